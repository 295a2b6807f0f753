"""Modules that have moved: the old names still work in this version, with a warning."""

import importlib
import sys
import warnings
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

MOVED = {
    "actions": "agents.arms",
    "agent": "agents.agent",
    "beliefs": "models",
    "bounds": "paper.bounds",
    "checks": "models.core.checks",
    "client": "service.client",
    "datasets": "paper.datasets",
    "defaults": "models.default_prior",
    "errors": "models.core.errors",
    "experiments": "paper.experiments",
    "explore": "agents.exploration",
    "fitting": "learning.fitting",
    "linalg": "models.core.linalg",
    "logs": "learning.logs",
    "meta": "models",
    "networks": "simulation.networks",
    "offpolicy": "agents.offpolicy",
    "oracles": "agents.oracles",
    "policies": "agents.policies",
    "problems": "simulation.problems",
    "propensities": "agents.propensities",
    "simulate": "simulation",
    "stats": "models",
    "tables": "learning.tables",
    "types": "models.core.types",
}
PARTS_MOVED = {
    "fitting.calibration": "learning.checks",
    "fitting.report": "learning.report",
    "fitting.verdict": "learning.verdict",
}


class _OldNames(MetaPathFinder, Loader):
    """Finds `adats.tables`, say, and parts of a package such as `adats.problems.gaussian`."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        package, _, rest = fullname.partition(".")
        if package != "adats" or rest.partition(".")[0] not in MOVED:
            return None
        return ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:  # noqa: ARG002
        return None

    def exec_module(self, module: ModuleType) -> None:
        old = module.__name__.removeprefix("adats.")
        first, _, rest = old.partition(".")
        new = "adats." + (PARTS_MOVED.get(old) or ".".join(filter(None, (MOVED[first], rest))))
        found = importlib.import_module(new)
        warnings.warn(f"{module.__name__} is {new} now", DeprecationWarning, stacklevel=2)
        names = {name: value for name, value in vars(found).items() if not name.startswith("__")}
        vars(module).update(names)


def keep_old_names() -> None:
    """Look for what Python does not find among the modules that have moved."""
    sys.meta_path.append(_OldNames())
