"""What came out of experiments as flat columns."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adats.paper.experiments.panels import Outcome

Columns = dict[str, NDArray[Any]]


def records(outcomes: Sequence[Outcome]) -> Columns:
    """Panel, run, task, agent, regret of the task."""
    return _joined(outcomes, [o.result.records() for o in outcomes])


def curves(outcomes: Sequence[Outcome]) -> Columns:
    """Panel, task, round, agent, mean and standard error of the regret so far."""
    parts = []
    for o in outcomes:
        tasks = np.arange(1, o.panel.tasks + 1)
        agents = np.array(o.result.agents)
        agent, task, at = (g.ravel() for g in np.meshgrid(agents, tasks, o.at, indexing="ij"))
        parts.append(
            {"task": task, "round": at, "agent": agent, "mean": o.mean.ravel(), "se": o.se.ravel()}
        )
    return _joined(outcomes, parts)


def _joined(outcomes: Sequence[Outcome], parts: Sequence[Columns]) -> Columns:
    sizes = [len(part["task"]) for part in parts]
    panel = np.repeat([o.panel.label for o in outcomes], sizes)
    return {"panel": panel} | {key: np.concatenate([p[key] for p in parts]) for key in parts[0]}
