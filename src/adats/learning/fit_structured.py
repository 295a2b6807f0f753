"""Arms that move together, arms that are exchangeable, and what features of tasks and arms tell.

theta_s = Φ_s mu + ε_s in every task, as in the linear model; Φ_s says what is shared. Clicks and
counts are on a link, by expectation propagation (`models/latent/spreads.py`); numbers are exact
with the noise that their scatter within tasks and arms shows. Formulas: docs/math/fitting.md.
"""

import math
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from adats.learning.em import WIDE
from adats.learning.fit_arms import fewest_pulls, scattered
from adats.learning.fitted import Fitted, RewardFigures, few_tasks
from adats.learning.tables import ArmTable
from adats.models import LinearMeta, LinearStats
from adats.models.core import linalg
from adats.models.core.types import FloatArray
from adats.models.gaussian.belief import LOG_2PI
from adats.models.latent.family import BINARY, FAMILIES
from adats.models.latent.full import FullPrior, given_sites, site_sums
from adats.models.latent.meta import LatentMeta
from adats.models.latent.sites import SitePrior
from adats.models.latent.spreads import Learned, Log, learn_full, learn_level

STRUCTURES = ("level", "full", "exchangeable", "features")
LEVEL, ARM = 3.0, 2.0  # widths of the prior of mu: of what arms share, and of each arm
SLOPE = 1 / 3  # of them: of what a feature adds, where it has a spread of 1
FEWEST = 2  # tasks that tell something, below which it cannot be told
CHUNK = 1024


@dataclass(frozen=True, eq=False)
class NumberLog(Log):
    """Rewards that are numbers: their sites are exact. Units: a spread of 1, and noise² `v`."""

    squares: FloatArray = field(default_factory=lambda: np.zeros(0))
    v: float = 1.0

    def settled(self, part: slice, prior: SitePrior, start: FloatArray) -> FloatArray:  # noqa: ARG002
        n, s = self.n[part], self.s[part]
        rest = -0.5 * (n * (LOG_2PI + math.log(self.v)) + self.squares[part] / self.v)
        return np.stack([n / self.v, s / self.v, rest])

    def pooled(self) -> FloatArray:
        pooled: FloatArray = self.s.sum(axis=0) / np.maximum(self.n.sum(axis=0), 1.0)
        return pooled


class Units(NamedTuple):
    """Of theta: rewards = centre + unit · theta for numbers; a link for clicks and counts."""

    centre: float
    unit: float
    noise: float | None  # σ, in units of rewards


def _scale(table: ArmTable) -> Units:
    """The units in which the fit is made; a ValueError where numbers cannot tell σ."""
    n, s = float(table.table[:, 0].sum()), float(table.table[:, 1].sum())
    if table.kind.SUMS_TELL:
        return Units(float(FAMILIES[table.model].eta((s + 0.5) / (n + 1.0))), 1.0, None)
    found = scattered(table, s / n)
    return Units(s / n, found.spread, math.sqrt(found.noise))


def _log(table: ArmTable, scale: Units, mean: FloatArray, cov: FloatArray, design: Any) -> Log:
    n, s = table.table[:, 0], table.table[:, 1]
    if scale.noise is None:
        return Log(FAMILIES[table.model], n, s, mean, cov, design)
    around = s - n * scale.centre
    squares = (table.table[:, 2] - scale.centre * (s + around)) / scale.unit**2
    v = (scale.noise / scale.unit) ** 2
    return NumberLog(BINARY, n, around / scale.unit, mean, cov, design, squares, v)


def _arm_design(table: ArmTable, structure: str) -> FloatArray:
    """A: a column of ones, features of arms after one, or the identity."""
    arms = len(table.arms)
    if structure == "exchangeable":
        return np.ones((arms, 1))
    if structure == "features" and table.arm_features is not None:
        return np.column_stack([np.ones(arms), table.arm_features.values])
    return np.eye(arms)


def _design(table: ArmTable, structure: str) -> FloatArray | None:
    """Φ = (1, z_s) ⊗ A of every task, or A where tasks have no features; None for the identity."""
    arms = _arm_design(table, structure)
    if structure != "features" or table.task_features is None:
        return None if _named(arms) else arms
    z = np.column_stack([np.ones(len(table)), table.task_features.values])
    found: FloatArray = np.einsum("si,kj->skij", z, arms).reshape(len(z), len(arms), -1)
    return found


def _named(arms: FloatArray) -> bool:
    """Whether every arm has a mean of its own."""
    return np.array_equal(arms, np.eye(len(arms)))


class Wide(NamedTuple):
    """A weak prior of mu: around the mean of all rewards, and no effect of features."""

    level: FloatArray  # 1 where an entry of mu is a level of rewards, else 0
    cov: FloatArray


def _wide(table: ArmTable, structure: str, scale: Units) -> Wide:
    arms = _arm_design(table, structure)
    size = arms.shape[1]
    level, arm = (LEVEL, ARM) if scale.noise is None else (WIDE, WIDE)
    if _named(arms):
        first, cov = np.ones(size), level**2 + arm**2 * np.eye(size)
    else:
        first, cov = np.eye(1, size)[0], level**2 * _slopes(arms[:, 1:])
    if structure != "features" or table.task_features is None:
        return Wide(first, cov)
    tasks = _slopes(table.task_features.values)
    wide: FloatArray = np.kron(tasks, cov).astype(np.float64)
    return Wide(np.append(first, np.zeros(len(wide) - size)), wide)


def _slopes(values: FloatArray) -> FloatArray:
    """Covariance of an intercept and slopes: 1, and `SLOPE`² where a feature has a spread of 1.

    They are independent for features that are centred, and are turned back to the user's units.
    """
    spread = values.std(axis=0)
    spread = np.where(spread > 0, spread, 1.0)
    back = np.diag(np.append(1.0, SLOPE / spread))
    back[0, 1:] = -values.mean(axis=0) * SLOPE / spread
    cov: FloatArray = back @ back.T
    return cov


def fit_structured(table: ArmTable, *, structure: str) -> Fitted:
    """A prior whose arms share a level in every task, have any covariance, are exchangeable, or
    have means that follow from features of arms and of tasks."""
    if structure == "features" and table.task_features is None and table.arm_features is None:
        raise ValueError(
            "structure 'features' needs features of tasks or of arms "
            "(task_features=, arm_features=; --task-features, --arm-features)"
        )
    scale, phi = _scale(table), _design(table, structure)
    level, wide = _wide(table, structure, scale)
    shift = 0.0 if scale.noise is None else scale.centre  # of mu, in the user's units
    log = _log(table, scale, (scale.centre - shift) * level, wide, phi)
    found, arms = learn_level(log), len(table.arms)
    if structure == "full" and arms > 1:
        found = learn_full(log, found)
    cov = found.spread.covs(arms)[0]
    mu, mu_cov = found.mean * scale.unit + shift * level, found.cov * scale.unit**2
    task_cov = cov * scale.unit**2
    own = phi if phi is not None and phi.ndim == 3 else None  # designs of tasks
    average = phi if own is None else own.mean(axis=0, dtype=np.float64)
    link = FAMILIES.get(table.model)

    def given(other: ArmTable) -> tuple[FloatArray, FloatArray]:
        """Log density of each task, and the means of the rewards of its arms after them."""
        its = _log(other, scale, found.mean, found.cov, _design(other, structure))
        density, means = np.empty(len(other)), np.empty((len(other), arms))
        for i in range(0, len(other), CHUNK):
            part = slice(i, i + CHUNK)
            some = len(other.tasks[part])
            half = its.of_arms(linalg.psd_factor(found.cov), part)
            mean = np.array(np.broadcast_to(its.of_arms(found.mean, part), (some, arms)))
            wide = half @ np.swapaxes(half, -1, -2) + cov
            factor = np.broadcast_to(linalg.psd_factors(wide), (some, arms, arms))
            prior = FullPrior(mean, factor, None)
            sites = its.settled(part, prior, np.zeros((3, some, arms)))
            density[part], eta, after = given_sites(mean, factor, site_sums(sites, None))
            means[part] = eta
            if link is not None:
                means[part] = link.expected(eta, np.sqrt((after**2).sum(axis=-1)))[0]
        if link is None:
            density -= other.pulls * math.log(scale.unit)
            return density, scale.centre + scale.unit * means
        return density - other.table[:, 3:].sum(axis=(1, 2)), means

    evidence = found.log_evidence - float(table.table[:, 3:].sum())  # Σ log y! of counts
    evidence -= float(table.pulls.sum()) * math.log(scale.unit)
    return Fitted(
        meta=_meta(table, mu, mu_cov, found, scale, average, full=structure == "full"),
        mu=mu,
        mu_cov=mu_cov,
        task_cov=task_cov,
        noise=scale.noise,
        log_evidence=evidence,
        curve=found.curve,
        shrinkage=None,
        unidentified=_unidentified(table, structure),
        warnings=() if structure in ("exchangeable", "features") else few_tasks(table),
        rewards=_rewards(table, mu, mu_cov, task_cov.diagonal(), average),
        log_density=lambda other: given(other)[0],
        means=lambda other: given(other)[1],
        words=_words(table, scale, found),
        stats=None if link is not None else _as_linear,
        designs=own,
    )


def _as_linear(table: ArmTable, i: int) -> LinearStats:
    """The statistics of a task as those of a linear model with an indicator for each arm."""
    count, total, squares = table.table[i, :3]
    moments = np.diag(np.append(count, squares.sum()))
    moments[-1, :-1] = moments[:-1, -1] = total
    return LinearStats(float(count.sum()), moments)


def _meta(
    table: ArmTable,
    mu: FloatArray,
    mu_cov: FloatArray,
    found: Learned,
    scale: Units,
    design: FloatArray | None,
    *,
    full: bool,
) -> LatentMeta | LinearMeta:
    """The prior in the user's units, with the design of an average task."""
    known: dict[str, Any] = {"design": design, "arms": table.arms}
    task_cov = found.spread.covs(len(table.arms))[0] * scale.unit**2
    if scale.noise is not None:
        return LinearMeta(mu, mu_cov, task_cov=task_cov, noise=scale.noise, **known)
    spread: dict[str, Any] = {"task_cov": task_cov[None]}
    if not full:
        spread = dict(zip(("task_scale", "level_scale"), found.spread.sizes(0), strict=True))
    return LatentMeta(mu, mu_cov, rewards=table.model, **known, **spread)


def _rewards(
    table: ArmTable,
    mu: FloatArray,
    mu_cov: FloatArray,
    own: FloatArray,
    design: FloatArray | None,
) -> RewardFigures:
    """On the scale of rewards, in an average task; `own` are the variances of theta."""
    phi = np.eye(len(mu)) if design is None else design
    mean, unknown = phi @ mu, ((phi @ mu_cov) * phi).sum(axis=1)
    link = FAMILIES.get(table.model)
    if link is None:
        return RewardFigures(mean, own, unknown)
    first, spread = link.expected(mean, np.sqrt(own))
    return RewardFigures(first, spread**2, link.variance(mean) ** 2 * unknown)


def _words(table: ArmTable, scale: Units, found: Learned) -> str:
    own, level = (size * scale.unit for size in found.spread.sizes(0))
    where = (
        ""
        if scale.noise is not None
        else (" of log-odds" if table.kind.MOST == 1.0 else " of the logarithm of the mean")
    )
    return (
        f"Tasks differ by {level:.3g} in what their arms have in common and by {own:.3g} in each "
        f"arm (standard deviations{where})."
    )


def _unidentified(table: ArmTable, structure: str) -> tuple[str, ...]:
    """Spreads that keep what was believed of them before."""
    n = table.table[:, 0]
    if (table.pulls >= fewest_pulls(table)).sum() < FEWEST:
        return ("how tasks differ",)
    both = (n > 0).astype(float)
    if (both.sum(axis=1) > 1).sum() < FEWEST and len(table.arms) > 1:
        return ("what a task's arms have in common: no two tasks tried several arms",)
    if structure != "full":
        return ()
    together = both.T @ both
    apart = [pair for pair in combinations(range(len(table.arms)), 2) if together[pair] < FEWEST]
    if not apart:
        return ()
    first = " and ".join(repr(table.arms[i]) for i in apart[0])
    more = f" (and {len(apart) - 1} more pairs)" * (len(apart) > 1)
    return (f"the covariance of arms {first}{more}",)
