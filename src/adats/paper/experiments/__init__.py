"""The paper's figures and some of our own, as data: what to run and what to check."""

from pathlib import Path
from typing import Any

from adats.paper.experiments.catalogue import EXPERIMENTS, Experiment
from adats.paper.experiments.classification import reproduce_classification
from adats.paper.experiments.panels import Panel
from adats.paper.experiments.policies import reproduce_policies
from adats.paper.experiments.run import reproduce, total_runs

__all__ = [
    "EXPERIMENTS",
    "Experiment",
    "Panel",
    "reproduce",
    "reproduce_any",
    "reproduce_classification",
    "reproduce_policies",
    "total_runs",
]

FILES = ("mnist", "omniglot")
IMAGES = ("digits", *FILES)


def reproduce_any(name: str, *, data: Path | None = None, **options: Any) -> Path:
    """Run the experiment with this name; `data` is a folder with its files."""
    if data is not None and name not in FILES:
        raise ValueError(f"--data is for {' and '.join(FILES)}; {name!r} needs no files")
    if name in IMAGES:
        if options.get("runs") is None:
            options.pop("runs", None)
        return reproduce_classification(name, data=data, **options)
    if name == "policies":
        return reproduce_policies(**options)
    if name not in (*EXPERIMENTS, "all"):
        known = ", ".join((*EXPERIMENTS, "policies", *IMAGES, "all"))
        raise ValueError(f"unknown experiment {name!r}; known are {known}")
    return reproduce(name, **options)
