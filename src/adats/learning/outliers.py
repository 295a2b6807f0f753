"""Tasks that look unlike the rest: how likely is a task, if the prior comes from the others?"""

from typing import Any, NamedTuple

import numpy as np
from scipy.special import gammaincc

from adats.learning.fitting.fitted import Fitted, prior_of_others
from adats.learning.fitting.linear import as_rows
from adats.learning.tables import ArmTable, LinearTable
from adats.models.core.product import ProductArms
from adats.models.core.types import FloatArray, Task

LEVEL = 0.05  # chance that any task at all is flagged, where all are alike
CLOSE = 50  # so many tasks are looked at closely: their own part is taken out of the prior
CHUNK = 4096


class Outlier(NamedTuple):
    task: Task
    chance: float  # that a task is as far off as this one, or farther
    what: str
    flagged: bool  # the chance is below LEVEL over the number of tasks


def outliers(table: Any, fitted: Fitted, *, most: int = 5) -> list[Outlier]:
    """The `most` unlikely tasks, the least likely first."""
    prior = fitted.meta.task_prior()
    if table.arms is None:
        far, rank = _distances(prior, table)
        far = -gammaincc(np.maximum(rank, 1) / 2, far / 2)
    else:
        far = _screened(prior.one_family, table)
    found = []
    for i in np.argsort(-far, kind="stable")[:CLOSE].tolist():
        others = prior_of_others(table, fitted, i)
        one = table.subset(np.array([i]))
        if table.arms is None:
            chance, what = _linear_chance(others, one)
        else:
            chance, what = _arm_chance(others.one_family, one)
        found.append(Outlier(table.tasks[i], chance, what, chance < LEVEL / len(table)))
    return sorted(found, key=lambda task: task.chance)[:most]


# linear


def _distances(prior: Any, table: LinearTable) -> tuple[FloatArray, FloatArray]:
    """Squared distance of each task's least-squares estimate from the prior, and its dimension.

    Of tasks that are alike it is χ² with as many degrees of freedom; N is the covariance of the
    rows y - R mean that stand for a task.
    """
    far, ranks = np.empty(len(table)), np.empty(len(table))
    for i in range(0, len(table), CHUNK):
        root, y, seen = as_rows(table.moments[i : i + CHUNK])
        y, half = (y - root @ prior.mean) / prior.noise, root @ prior.factor / prior.noise
        cov = half @ half.transpose(0, 2, 1) + np.eye(len(prior.mean))
        far[i : i + CHUNK] = (y * np.linalg.solve(cov, y[:, :, None])[:, :, 0]).sum(axis=1)
        ranks[i : i + CHUNK] = seen.sum(axis=1)
    return far, ranks


def _linear_chance(prior: Any, one: LinearTable) -> tuple[float, str]:
    far, rank = (float(value[0]) for value in _distances(prior, one))
    if rank == 0:
        return 1.0, "no rows"
    what = f"squared distance {far:.1f}, where {rank:.0f} is usual, from {_rows(one.n[0])}"
    return float(gammaincc(rank / 2, far / 2)), what


# arms


def _spread(prior: ProductArms, count: FloatArray) -> FloatArray:
    """Standard deviation of the average of `count` rewards of each arm, over tasks."""
    variance = prior.scale**2
    noise = float(np.sqrt(prior.reward_variance.flat[0]))
    spread: FloatArray = np.sqrt(variance + prior.STATS.within(prior.mean, variance, noise) / count)
    return spread


def _screened(prior: ProductArms, table: ArmTable) -> FloatArray:
    """How many standard deviations the worst arm of each task is off."""
    count, total = table.table[:, 0], table.table[:, 1]
    often = np.where(count > 0, count, 1.0)
    off = np.abs(total / often - prior.mean) / _spread(prior, often)
    worst: FloatArray = np.where(count > 0, off, 0.0).max(axis=1)
    return worst


def _arm_chance(prior: ProductArms, one: ArmTable) -> tuple[float, str]:
    """That of the worst arm, times the number of arms pulled."""
    pulled = np.flatnonzero(one.table[0, 0] > 0)
    if not pulled.size:
        return 1.0, "no rows"
    prior, (count, total) = prior.columns(pulled.tolist()), one.table[0, :2, pulled].T
    chances = _tails(prior, count, total)
    k = int(np.argmin(chances))
    what = (
        f"arm {one.arms[pulled[k]]}: {total[k] / count[k]:.3g} on average in {_rows(count[k])}, "
        f"where {prior.mean[k]:.3g} ± {_spread(prior, count)[k]:.2g} is usual"
    )
    return min(1.0, float(chances[k]) * pulled.size), what


def _rows(count: float) -> str:
    return f"{count:.0f} row{'s' if count > 1 else ''}"


def _tails(prior: ProductArms, count: FloatArray, total: FloatArray) -> FloatArray:
    """Chances of totals as far out, or farther, on either side."""
    low, high = prior.total_chances(count, total)
    chances: FloatArray = np.minimum(1.0, 2 * np.minimum(low, high))
    return chances
