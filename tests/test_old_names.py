"""Imports that README and guides of version 0.1.0 showed still work, and say where to look now."""

import importlib
import re
import subprocess
import sys
import warnings

import pytest

from adats.old_names import MOVED

SHOWN = {
    "adats.propensities": ("propensities", "chance"),
    "adats.policies": ("Scene",),
    "adats.stats": ("ArmStats", "LinearStats"),
    "adats.bounds": ("linear_bound", "variance_bound", "decomposition"),
    "adats.offpolicy": ("evaluate",),
    "adats.tables": ("load_statistics", "save_statistics"),
    "adats.logs": ("statistics", "rows", "spread"),
    "adats.datasets": ("load",),
    "adats.simulate": ("simulate",),
    "adats.problems.classification": ("ClassificationProblem",),
    "adats.fitting": ("estimate", "ArmTable", "standard_errors"),
    "adats.fitting.calibration": ("calibrate", "TASKS"),
    "adats.fitting.report": ("write_report",),
    "adats.fitting.verdict": ("verdict",),
    "adats.beliefs": ("GaussianArms", "BetaArms"),
    "adats.meta": ("GaussianMeta",),
}


@pytest.fixture(autouse=True)
def _forget_imports():
    """A module is made, and warns, when it is first imported."""
    old = {name: sys.modules.pop(name) for name in list(sys.modules) if _moved(name)}
    yield
    for name in [name for name in sys.modules if _moved(name)]:
        del sys.modules[name]
    sys.modules.update(old)


def _moved(name):
    return name.startswith("adats.") and name.split(".")[1] in MOVED


@pytest.mark.parametrize("module", SHOWN)
def test_an_old_import_works_and_warns(module):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = importlib.import_module(module)
    assert {warning.category for warning in caught} == {DeprecationWarning}
    assert re.fullmatch(rf"{module} is adats\.\S+ now", str(caught[-1].message))
    for name in SHOWN[module]:
        assert hasattr(found, name)


@pytest.mark.parametrize("old", MOVED)
def test_every_old_name_leads_somewhere(old):
    with pytest.warns(DeprecationWarning, match=f"adats.{old} is"):
        importlib.import_module(f"adats.{old}")


def test_names_that_never_were_are_not_found():
    with pytest.raises(ModuleNotFoundError, match=r"adats\.nothing"):
        importlib.import_module("adats.nothing")
    with pytest.raises(ModuleNotFoundError), pytest.warns(DeprecationWarning, match="problems is"):
        importlib.import_module("adats.problems.nothing")


def test_the_package_itself_uses_no_old_name():
    code = "import adats, adats.cli, adats.service.http.app, adats.paper.experiments"
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)
