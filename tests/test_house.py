"""The house: few rooms, imports between them, and tests that mirror them."""

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "adats"
ROOMS = {"agents", "cli", "demo", "learning", "models", "paper", "plots", "service", "simulation"}
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
MODEL_CLASSES = ("Meta", "Stats", "Arms", "Mixture", "Belief", "Posterior", "Digest", "Table")


def parsed(folder, pattern):
    """Every file below a folder, and its syntax."""
    for path in sorted(folder.rglob(pattern)):
        yield path.relative_to(folder), ast.parse(path.read_text())


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


def test_no_module_imports_a_private_name():
    private = [
        f"{path}: {name} of {module}"
        for path, tree in parsed(SOURCE, "*.py")
        for module, name in imports(tree)
        if module.startswith("adats") and name.startswith("_")
    ]
    assert private == []


def test_no_two_classes_have_one_name():
    places = defaultdict(list)
    for path, tree in parsed(SOURCE, "*.py"):
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(str(path))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_nobody_asks_for_the_class_of_a_model():
    """Models say of themselves what they offer."""
    asked = [
        f"{path}: {ast.unparse(node)}"
        for path, tree in parsed(SOURCE, "*.py")
        if path.parts[0] != "models"
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in ("isinstance", "issubclass")
        and ast.unparse(node.args[1]).endswith(MODEL_CLASSES)
        and "." not in ast.unparse(node.args[1])  # a table of another library
    ]
    assert asked == []


@pytest.mark.parametrize("page", ["docs/architecture.md", "CONTRIBUTING.md"])
def test_pages_about_the_code_name_what_is_there(page):
    """Files, and methods of classes without bases: `service/engine.py`, `Engine.load`."""
    methods = {
        node.name: {part.name for part in node.body if isinstance(part, DEFINITIONS)}
        for _, tree in parsed(SOURCE, "*.py")
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and not node.bases
    }
    text = (ROOT / page).read_text()
    named = re.findall(r"`([A-Z]\w+)\.(\w+)", text)
    assert {f"{of}.{name}" for of, name in named if name not in methods.get(of, name)} == set()
    rooms = (SOURCE, ROOT / "tests", ROOT / "benchmarks")
    paths = [f"/{path.relative_to(ROOT)}" for room in rooms for path in room.rglob("*.py")]
    files = set(re.findall(r"`([\w/]+\.py)`", text))
    assert {name for name in files if not any(p.endswith("/" + name) for p in paths)} == set()
    assert files


def test_no_test_file_imports_another():
    imported = [
        f"{path}: {module}"
        for path, tree in parsed(ROOT / "tests", "test_*.py")
        for module, _ in imports(tree)
        if module.split(".")[-1].startswith("test_")
    ]
    assert imported == []


def test_only_linalg_factorises_what_models_believe():
    """`checks.py` looks whether what is given can be a covariance."""
    free = {"core/linalg.py", "core/checks.py"}
    found = [
        f"{path}: {ast.unparse(node)}"
        for path, tree in parsed(SOURCE / "models", "*.py")
        if str(path) not in free
        for node in ast.walk(tree)
        if (isinstance(node, ast.Attribute) and ast.unparse(node).startswith("np.linalg."))
        or (isinstance(node, ast.ImportFrom) and node.module == "scipy.linalg")
    ]
    assert found == []


def links(page):
    """Files of this project that a page links to."""
    targets = re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text())
    return {(page.parent / to).resolve() for to in targets if "://" not in to}


def test_the_index_names_every_page():
    index = ROOT / "docs" / "index.md"
    assert set((ROOT / "docs").rglob("*.md")) - {index} - links(index) == set()


def test_links_lead_to_files():
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    assert {str(to) for page in pages for to in links(page) if not to.exists()} == set()
