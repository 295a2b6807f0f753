"""The house: few rooms, imports between them, and tests that mirror them."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "adats"
ROOMS = {"agents", "cli", "demo", "learning", "models", "paper", "plots", "service", "simulation"}
MODULES = sorted(SOURCE.rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("test_*.py"))
MODEL_CLASSES = ("Meta", "Stats", "Arms", "Mixture", "Belief", "Posterior", "Digest")


def imports(tree):
    """Module and name of everything that a file imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from ((node.module, name.name) for name in node.names)
        elif isinstance(node, ast.Import):
            yield from ((name.name, "") for name in node.names)


def test_the_rooms():
    rooms = {path.name for path in SOURCE.iterdir() if (path / "__init__.py").exists()}
    assert rooms == ROOMS
    loose = {path.name for path in SOURCE.glob("*.py")}
    assert loose == {"__init__.py", "__main__.py", "old_names.py", "testing.py"}
    folders = {path.name for path in (ROOT / "tests").iterdir() if path.is_dir()}
    mirrored = {"agents", "cli", "learning", "models", "paper", "service", "simulation"}
    assert folders - {"__pycache__"} == mirrored | {"assets", "heavy", "helpers"}


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_no_module_imports_a_private_name(path):
    private = [
        name
        for module, name in imports(ast.parse(path.read_text()))
        if module.startswith("adats") and name.startswith("_")
    ]
    assert private == []


@pytest.mark.parametrize(
    "path",
    [p for p in MODULES if p.relative_to(SOURCE).parts[0] not in ("models", "learning")],
    ids=lambda p: str(p.relative_to(SOURCE)),
)
def test_nobody_asks_for_the_class_of_a_model(path):
    """Models say of themselves what they offer; `learning` is not there yet."""
    asked = [
        ast.unparse(node)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in ("isinstance", "issubclass")
        and ast.unparse(node.args[1]).endswith(MODEL_CLASSES)
    ]
    assert [call for call in asked if "oracle" not in call] == []


@pytest.mark.parametrize("path", TESTS, ids=lambda p: str(p.relative_to(ROOT / "tests")))
def test_no_test_file_imports_another(path):
    modules = [module for module, _ in imports(ast.parse(path.read_text()))]
    assert [module for module in modules if module.split(".")[-1].startswith("test_")] == []
