"""What there is to look at: a prior, a task, the allocation over time, priors side by side."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from adats.models.core.summary import interval
from adats.models.core.types import FloatArray, MetaBelief, Task
from adats.plots import fit as figures

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from adats.agents import AdaTS

PARTS = 20  # of a log, in the figure of the allocation


def prior(
    prior: MetaBelief,
    *,
    points: tuple[FloatArray, FloatArray, FloatArray] | None = None,
    names: Sequence[str] | None = None,
    label: str = "mean reward",
) -> "Figure":
    """The prior of a new task, arm by arm.

    `points` are its interval, and tasks by themselves and with the prior, a row a task.
    """
    ends = interval(prior.task_prior())
    none = np.zeros((0, ends.shape[1]))
    ends, own, learned = (ends, none, none) if points is None else points
    return figures.prior_figure(_names(prior, names, ends), ends, own, learned, label=label)


def task(agent: "AdaTS", task: Task) -> "Figure":
    """A task's arms: their averages, and what the agent believes of them."""
    stats, belief = agent.stats(task), interval(agent.posterior(task))
    if stats.arm_pulls is None:
        raise ValueError("a task is shown arm by arm; arms of this model are rows of features")
    n, raw = stats.arm_pulls, stats.arm_averages
    names = agent.arms if agent.arms and len(agent.arms) == n.size else range(n.size)
    return figures.task_figure(f"task {task}", [str(name) for name in names], n, raw, belief)


def compare(priors: Mapping[str, MetaBelief], *, names: Sequence[str] | None = None) -> "Figure":
    """Priors of the same arms side by side."""
    ends = {name: interval(prior.task_prior()) for name, prior in priors.items()}
    if len({end.shape for end in ends.values()}) != 1:
        raise ValueError("priors are compared arm by arm: they must have the same arms")
    first = next(iter(priors))
    return figures.compare_figure(_names(priors[first], names, ends[first]), ends)


def allocation(records: Any, *, time: str = "time", arm: str = "arm") -> "Figure":
    """Which part of the pulls each arm got over time.

    `records` are rows as `Decision.record` makes them, or a data frame with such columns.
    """
    if hasattr(records, "columns"):
        times, arms = np.asarray(records[time], dtype=float), [str(a) for a in records[arm]]
    else:
        rows = list(records)
        times, arms = np.array([float(r[time]) for r in rows]), [str(r[arm]) for r in rows]
    if not arms:
        raise ValueError("there is no allocation without pulls")
    names = sorted(set(arms))
    place = np.array([names.index(name) for name in arms])
    part = np.argsort(np.argsort(times, kind="stable")) * min(PARTS, len(arms)) // len(arms)
    counts = np.zeros((int(part.max()) + 1, len(names)))
    np.add.at(counts, (part, place), 1.0)
    middles = np.bincount(part, times) / np.bincount(part)
    return figures.allocation_figure(middles, counts / counts.sum(axis=1, keepdims=True), names)


def _names(prior: MetaBelief, names: Sequence[str] | None, ends: FloatArray) -> list[str]:
    known = names or prior.arms or range(ends.shape[1])
    return [str(name) for name in known]
