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

from adats.learning.fitting.em import WIDE, start_noise
from adats.learning.fitting.fitted import Fitted, RewardFigures, few_tasks, fits
from adats.learning.fitting.grids import fewest_pulls
from adats.learning.tables import ArmTable
from adats.models import LinearMeta, LinearStats
from adats.models.core import linalg
from adats.models.core.types import FloatArray
from adats.models.gaussian.belief import LOG_2PI
from adats.models.latent.belief import given_sites
from adats.models.latent.family import BINARY, FAMILIES
from adats.models.latent.full import FullPrior
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


class Scale(NamedTuple):
    """Of theta: rewards = centre + unit · theta for numbers; a link for clicks and counts."""

    centre: float
    unit: float
    noise: float | None  # σ, in units of rewards


def _scale(table: ArmTable) -> Scale:
    """The units in which the fit is made; a ValueError where numbers cannot tell σ."""
    if table.kind.SUMS_TELL:
        n, s = float(table.table[:, 0].sum()), float(table.table[:, 1].sum())
        return Scale(float(FAMILIES[table.model].eta((s + 0.5) / (n + 1.0))), 1.0, None)
    count, total, squares = table.table.swapaxes(0, 1)[:3]
    pulled, n = count > 0, float(count.sum())
    centre = float(total.sum()) / n
    around = total - count * centre
    wide = squares - centre * (total + around)  # Σ (y - centre)²
    rest = np.where(pulled, wide - around**2 / np.where(pulled, count, 1.0), 0.0)
    variance = start_noise(float(rest.sum()), n - pulled.sum(), float(squares.sum()))
    return Scale(centre, math.sqrt(float(wide.sum()) / n), math.sqrt(variance))


def _log(table: ArmTable, scale: Scale, mean: FloatArray, cov: FloatArray, design: Any) -> Log:
    n, s = table.table[:, 0], table.table[:, 1]
    if scale.noise is None:
        return Log(FAMILIES[table.model], n, s, mean, cov, design)
    around = s - n * scale.centre
    squares = (table.table[:, 2] - scale.centre * (s + around)) / scale.unit**2
    v = (scale.noise / scale.unit) ** 2
    return NumberLog(BINARY, n, around / scale.unit, mean, cov, design, squares, v)


class Designs(NamedTuple):
    """Φ = (1, z_s) ⊗ A: what of mu the arms of a task share, in the user's units of z and A."""

    arms: FloatArray  # A: the identity, a column of ones, or features of arms after one
    tasks: FloatArray | None  # z of every task, centred and scaled
    back: FloatArray  # from mu in these units to mu in the user's
    task_back: FloatArray | None = None  # (1, z) = (1, raw) @ task_back

    def of(self, table: ArmTable | None = None) -> FloatArray | None:
        """Φ of all tasks, or of those of another table; None for the identity."""
        if self.tasks is None or self.task_back is None:
            return None if np.array_equal(self.arms, np.eye(len(self.arms))) else self.arms
        z = np.column_stack([np.ones(len(self.tasks)), self.tasks])
        if table is not None and table.task_features is not None:
            z = np.column_stack([np.ones(len(table)), table.task_features.values])
            z = z @ self.task_back
        return _kronecker(z, self.arms)


def _kronecker(z: FloatArray, arms: FloatArray) -> FloatArray:
    """z_s ⊗ A of every task."""
    found: FloatArray = np.einsum("si,kj->skij", z, arms).reshape(len(z), len(arms), -1)
    return found


def _designs(table: ArmTable, structure: str) -> Designs:
    arms: FloatArray = np.eye(len(table.arms))
    back: FloatArray = np.eye(len(table.arms))
    tasks = own = None
    if structure == "exchangeable":
        arms, back = np.ones((len(table.arms), 1)), np.eye(1)
    if structure == "features":
        if table.task_features is None and table.arm_features is None:
            raise ValueError(
                "structure 'features' needs features of tasks or of arms "
                "(task_features=, arm_features=; --task-features, --arm-features)"
            )
        if table.arm_features is not None:
            arms, back = _standard(table.arm_features.values)
        if table.task_features is not None:
            shown, own = _standard(table.task_features.values)
            tasks, back = shown[:, 1:], np.kron(own, back).astype(np.float64)
    return Designs(arms, tasks, back, own)


def _standard(values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """(1, x) with every x centred and scaled, and the matrix B with (1, x) = (1, raw) B."""
    mean, scale = values.mean(axis=0), values.std(axis=0)
    scale = np.where(scale > 0, scale, 1.0)
    back = np.diag(np.append(1.0, 1 / scale))
    back[0, 1:] = -mean / scale
    return np.column_stack([np.ones(len(values)), values]) @ back, back


def _wide(designs: Designs, scale: Scale) -> tuple[FloatArray, FloatArray]:
    """A weak prior of mu: around the mean of all rewards, and no effect of features."""
    size = designs.arms.shape[1]
    level, arm = (LEVEL, ARM) if scale.noise is None else (WIDE, WIDE)
    centre = scale.centre if scale.noise is None else 0.0
    if np.array_equal(designs.arms, np.eye(len(designs.arms))):
        mean, cov = np.full(size, centre), level**2 + arm**2 * np.eye(size)
    else:
        mean = np.append(centre, np.zeros(size - 1))
        cov = np.diag(np.append(level, np.full(size - 1, SLOPE * level)) ** 2)
    if designs.tasks is None:
        return mean, cov
    q = designs.tasks.shape[1]
    sizes = np.append(1.0, np.full(q, SLOPE))
    wide: FloatArray = np.kron(np.diag(sizes**2), cov).astype(np.float64)
    return np.append(mean, np.zeros(q * size)), wide


@fits("gaussian", *STRUCTURES)
@fits("binary", *STRUCTURES)
@fits("count", *STRUCTURES)
def fit_structured(table: ArmTable, *, structure: str) -> Fitted:
    """A prior whose arms share a level in every task, have any covariance, are exchangeable, or
    have means that follow from features of arms and of tasks."""
    scale, designs = _scale(table), _designs(table, structure)
    log = _log(table, scale, *_wide(designs, scale), designs.of())
    found, arms = learn_level(log), len(table.arms)
    if structure == "full" and arms > 1:
        found = learn_full(log, found)
    cov = found.spread.covs(arms)[0]
    meta = _meta(table, scale, designs, found, structure)
    link = FAMILIES.get(table.model)

    def given(other: ArmTable) -> tuple[FloatArray, FloatArray]:
        """Log density of each task, and the means of the rewards of its arms after them."""
        its = _log(other, scale, found.mean, found.cov, designs.of(other))
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
            density[part], eta, after = given_sites(mean, factor, sites)
            means[part] = eta
            if link is not None:
                means[part] = link.expected(eta, np.sqrt(np.einsum("sii->si", after)))[0]
        if link is None:
            density -= other.pulls * math.log(scale.unit)
            return density, scale.centre + scale.unit * means
        return density - other.table[:, 3:].sum(axis=(1, 2)), means

    evidence = found.log_evidence - float(table.table[:, 3:].sum())  # Σ log y! of counts
    evidence -= float(table.pulls.sum()) * math.log(scale.unit)
    return Fitted(
        meta=meta,
        mu=designs.back @ found.mean * scale.unit + _shift(designs, scale),
        mu_cov=designs.back @ found.cov @ designs.back.T * scale.unit**2,
        task_cov=cov * scale.unit**2,
        noise=scale.noise,
        log_evidence=evidence,
        curve=found.curve,
        shrinkage=None,
        unidentified=_unidentified(table, structure),
        warnings=() if structure in ("exchangeable", "features") else few_tasks(table),
        rewards=_rewards(table, scale, designs, found, cov),
        log_density=lambda other: given(other)[0],
        means=lambda other: given(other)[1],
        words=_words(table, scale, found),
        stats=None if link is not None else _as_linear,
        designs=_own_designs(table, structure),
    )


def _as_linear(table: ArmTable, i: int) -> LinearStats:
    """The statistics of a task as those of a linear model with an indicator for each arm."""
    count, total, squares = table.table[i, :3]
    moments = np.diag(np.append(count, squares.sum()))
    moments[-1, :-1] = moments[:-1, -1] = total
    return LinearStats(float(count.sum()), moments)


def _plain(table: ArmTable, structure: str) -> FloatArray:
    """A of `Designs` in the user's units."""
    arms = len(table.arms)
    if structure == "exchangeable":
        return np.ones((arms, 1))
    if structure == "features" and table.arm_features is not None:
        return np.column_stack([np.ones(arms), table.arm_features.values])
    return np.eye(arms)


def _own_designs(table: ArmTable, structure: str) -> FloatArray | None:
    """Φ of every task in the user's units, where tasks have features."""
    if structure != "features" or table.task_features is None:
        return None
    z = np.column_stack([np.ones(len(table)), table.task_features.values])
    plain = _plain(table, structure)
    return _kronecker(z, plain)


def _shift(designs: Designs, scale: Scale) -> FloatArray:
    """The centre of numbers, in mu: where every design has an intercept, it is the first entry."""
    size = len(designs.back)
    if scale.noise is None:
        return np.zeros(size)
    own = designs.arms.shape[1]
    first = np.ones(own) if np.array_equal(designs.arms, np.eye(own)) else np.eye(1, own)[0]
    return np.append(scale.centre * first, np.zeros(size - own))


def _meta(
    table: ArmTable, scale: Scale, designs: Designs, found: Learned, structure: str
) -> LatentMeta | LinearMeta:
    """The prior in the user's units, with the design of an average task."""
    arms, plain = len(table.arms), _plain(table, structure)
    phi: FloatArray | None = None if np.array_equal(plain, np.eye(arms)) else plain
    if (own := _own_designs(table, structure)) is not None:
        phi = own.mean(axis=0, dtype=np.float64)
    mean = designs.back @ found.mean * scale.unit + _shift(designs, scale)
    cov = designs.back @ found.cov @ designs.back.T * scale.unit**2
    task_cov = found.spread.covs(arms)[0] * scale.unit**2
    if scale.noise is not None:
        return LinearMeta(
            mean, cov, task_cov=task_cov, noise=scale.noise, design=phi, arms=table.arms
        )
    spread: dict[str, Any] = {"task_cov": task_cov[None]}
    if structure != "full":
        spread = dict(zip(("task_scale", "level_scale"), found.spread.sizes(0), strict=True))
    return LatentMeta(mean, cov, rewards=table.model, arms=table.arms, design=phi, **spread)


def _rewards(
    table: ArmTable, scale: Scale, designs: Designs, found: Learned, cov: FloatArray
) -> RewardFigures:
    """On the scale of rewards, in an average task."""
    phi = designs.arms
    if designs.tasks is not None:
        phi = np.hstack([phi, np.zeros((len(phi), phi.shape[1] * designs.tasks.shape[1]))])
    mean, unknown = phi @ found.mean, ((phi @ found.cov) * phi).sum(axis=1)
    own = cov.diagonal()
    if scale.noise is not None:
        square = scale.unit**2
        return RewardFigures(scale.centre + scale.unit * mean, square * own, square * unknown)
    link = FAMILIES[table.model]
    first, spread = link.expected(mean, np.sqrt(own))
    return RewardFigures(first, spread**2, link.variance(mean) ** 2 * unknown)


def _words(table: ArmTable, scale: Scale, found: Learned) -> str:
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
