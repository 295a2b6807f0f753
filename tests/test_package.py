"""The package as a whole: what it exports, what it loads, how fast it starts."""

import importlib.metadata
import inspect
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import adats

ROOT = Path(__file__).parents[1]
HEAVY = [
    "numba", "llvmlite", "pandas", "matplotlib", "torch", "ibis", "duckdb", "polars", "pyarrow",
    "sklearn", "pooch", "PIL", "starlette", "fastapi", "uvicorn", "typer", "click", "rich",
    "joblib", "ray", "pydantic", "scipy.stats", "scipy.optimize",
]  # fmt: skip
ASK = """
import sys, time
import adats
start = time.perf_counter()
prior = adats.default_prior(arms=["red", "blue"], rewards="binary")
agent = adats.AdaTS(prior, seed=7)
agent.tell(agent.ask("user-17"), reward=1)
linear = adats.LinearMeta([0.0, 0.0], 1.0, task_cov=0.1, noise=1.0)
agent = adats.AdaTS(linear, seed=7)
agent.tell(agent.ask("user-17", features=[[1.0, 0.0], [0.0, 1.0]]), reward=1)
print(time.perf_counter() - start)
print(*sys.modules)
"""


def run(code):
    command = [sys.executable, "-W", "error", "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def loaded(modules):
    return [name for name in HEAVY if name in modules.split()]


def test_importing_loads_nothing_heavy():
    assert loaded(run("import sys, adats; print(*sys.modules)")) == []


def test_the_first_decisions_are_fast_and_load_nothing_heavy():
    took = []
    for _ in range(10):  # the least of some: what else the machine does only adds to it
        seconds, modules = run(ASK).split("\n", 1)
        assert loaded(modules) == []
        took.append(float(seconds))
        if took[-1] <= 0.5:
            break
    assert min(took) <= 0.5, took


def test_all_is_complete():
    public = {
        name
        for name, value in vars(adats).items()
        if not name.startswith("_") and not inspect.ismodule(value)
    }
    assert set(adats.__all__) == public
    assert len(adats.__all__) == len(public)
    constants = [name for name in adats.__all__ if name.isupper()]
    classes = [name for name in adats.__all__ if name[0].isupper() and not name.isupper()]
    functions = [name for name in adats.__all__ if name[0].islower()]
    assert adats.__all__ == sorted(constants) + sorted(classes) + sorted(functions)


@pytest.mark.parametrize("name", adats.__all__)
def test_every_public_name_is_documented(name):
    value = getattr(adats, name)
    own = vars(value).get("__doc__") if inspect.isclass(value) else value.__doc__
    assert own
    assert not own.startswith(f"{name}(")  # what a dataclass writes by itself
    assert value.__module__.startswith("adats.")


@pytest.mark.parametrize("cls", [adats.AdaTS, adats.MetaTS, adats.TS, adats.OracleTS])
def test_every_verb_of_an_agent_is_documented(cls):
    verbs = [name for name in dir(cls) if not name.startswith("_") and name != "LEARNS"]
    assert {"ask", "tell", "finish", "forget", "add_arm", "retire_arm", "save"} <= set(verbs)
    assert [verb for verb in verbs if not getattr(cls, verb).__doc__] == []


def test_versions_agree():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert adats.__version__ == project["version"]
    assert importlib.metadata.version("adats") == adats.__version__


def test_the_package_is_typed():
    assert (Path(adats.__file__).parent / "py.typed").is_file()
