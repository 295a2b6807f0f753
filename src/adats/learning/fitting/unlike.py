"""Tasks that look unlike the rest: how likely is a task, if the prior comes from the others?"""

from typing import Any, NamedTuple

import numpy as np
from scipy.special import betainc, betaln, gammaincc, gammaln, ndtr

from adats.learning.fitting.fitted import Fitted, stats_of
from adats.learning.fitting.savings import matched
from adats.learning.tables import ArmTable, LinearTable, Table
from adats.models import BetaArms, GaussianArms, LinearBelief, MixtureArms, PoissonArms
from adats.models.core.product import ProductArms
from adats.models.core.types import FloatArray, Task
from adats.models.latent.belief import LatentBelief
from adats.models.latent.family import BINARY

LEVEL = 0.05  # chance that any task at all is flagged, where all are alike
CLOSE = 50  # so many tasks are looked at closely: their own part is taken out of the prior
CHUNK = 4096
RANK = 1e-10  # eigenvalues below this share of the largest count as zero


class Unlike(NamedTuple):
    task: Task
    chance: float  # that a task is as far off as this one, or farther
    what: str
    flagged: bool  # the chance is below LEVEL over the number of tasks


def unlike(table: Table, fitted: Fitted, *, most: int = 5) -> list[Unlike]:
    """The `most` unlikely tasks, the least likely first."""
    if isinstance(table, LinearTable):
        far, rank = _distances(fitted.meta.task_prior(), table)
        far = -gammaincc(np.maximum(rank, 1) / 2, far / 2)
    else:
        far = _screened(_one_prior(fitted.meta.task_prior()), table)
    found = []
    for i in np.argsort(-far, kind="stable")[:CLOSE].tolist():
        prior = others(fitted.meta, stats_of(table, i, fitted.meta))
        one = table.subset(np.array([i]))
        if isinstance(one, LinearTable):
            chance, what = _linear_chance(prior, one)
        else:
            chance, what = _arm_chance(_one_prior(prior), one)
        found.append(Unlike(table.tasks[i], chance, what, chance < LEVEL / len(table)))
    return sorted(found, key=lambda task: task.chance)[:most]


def others(meta: Any, stats: Any) -> Any:
    """The prior of a task from all the others: what the task itself said is taken out again."""
    return meta.absorb(-meta.digest(stats).message).task_prior()


def _one_prior(prior: Any) -> ProductArms:
    """A mixture, or what a link makes of theta, as one prior with its mean and spread."""
    if isinstance(prior, LatentBelief):
        ones = np.ones(prior.mean.shape)
        family = BetaArms if prior.family is BINARY else PoissonArms
        return matched(family.of(ones, ones), prior.mean, prior.scale)
    if isinstance(prior, MixtureArms):
        return matched(prior.components, prior.mean, prior.scale)
    single: ProductArms = prior
    return single


# linear


def _distances(prior: Any, table: LinearTable) -> tuple[FloatArray, FloatArray]:
    """Squared distance of each task's least-squares estimate from the prior, and its dimension.

    Of tasks that are alike it is χ² with as many degrees of freedom. With G = VΛVᵀ, the rows
    Λ^½Vᵀ and the numbers Λ^-½Vᵀ(xy - G mean) stand for the task, and N is their covariance.
    """
    far, ranks = np.empty(len(table)), np.empty(len(table))
    for i in range(0, len(table), CHUNK):
        moments = table.moments[i : i + CHUNK]
        gram = moments[:, :-1, :-1]
        values, vectors = np.linalg.eigh(gram)
        seen = values > RANK * np.maximum(values[:, -1:], np.finfo(np.float64).tiny)
        roots = np.sqrt(np.where(seen, values, 0.0))
        left = np.einsum("sij,si->sj", vectors, moments[:, :-1, -1] - gram @ prior.mean)
        y = np.where(seen, left, 0.0) / np.where(seen, roots, 1.0) / prior.noise
        half = (roots[:, :, None] * vectors.transpose(0, 2, 1)) @ prior.factor / prior.noise
        cov = half @ half.transpose(0, 2, 1) + np.eye(len(prior.mean))
        far[i : i + CHUNK] = (y * np.linalg.solve(cov, y[:, :, None])[:, :, 0]).sum(axis=1)
        ranks[i : i + CHUNK] = seen.sum(axis=1)
    return far, ranks


def _linear_chance(prior: LinearBelief, one: LinearTable) -> tuple[float, str]:
    far, rank = (float(value[0]) for value in _distances(prior, one))
    if rank == 0:
        return 1.0, "no rows"
    what = f"squared distance {far:.1f}, where {rank:.0f} is usual, from {_rows(one.n[0])}"
    return float(gammaincc(rank / 2, far / 2)), what


# arms


def _spread(prior: ProductArms, count: FloatArray) -> FloatArray:
    """Standard deviation of the average of `count` rewards of each arm, over tasks."""
    if isinstance(prior, GaussianArms):
        within = prior.noise**2
    elif isinstance(prior, BetaArms):
        within = prior.mean * (1 - prior.mean) - prior.scale**2  # mean of theta (1 - theta)
    else:
        within = prior.mean
    spread: FloatArray = np.sqrt(prior.scale**2 + within / count)
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
    low: Any
    high: Any
    if isinstance(prior, GaussianArms):
        low = high = ndtr(-np.abs(total / count - prior.mean) / _spread(prior, count))
    elif isinstance(prior, BetaArms):
        parts = zip(*prior.parameters(), count, total, strict=True)
        low, high = np.array([_beta_binomial(*part) for part in parts]).T
    else:  # totals are negative binomial
        shape, rate = prior.parameters()
        low = betainc(shape, total + 1, rate / (rate + count))
        above = betainc(np.maximum(total, 1), shape, count / (rate + count))
        high = np.where(total > 0, above, 1.0)
    chances: FloatArray = np.minimum(1.0, 2 * np.minimum(low, high))
    return chances


def _beta_binomial(a: float, b: float, count: float, total: float) -> tuple[float, float]:
    """Chances of a total that is not larger, and of one that is not smaller."""
    at = np.arange(count + 1)
    ways = gammaln(count + 1) - gammaln(at + 1) - gammaln(count - at + 1)
    mass = np.exp(ways + betaln(at + a, count - at + b) - betaln(a, b))
    return float(mass[: int(total) + 1].sum()), float(mass[int(total) :].sum())
