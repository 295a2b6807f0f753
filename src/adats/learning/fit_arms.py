"""Arms: independent ones, and such as belong together.

Independent arms of numbers have one σ: EM, shrinkage, and what the log cannot tell; of clicks and
counts they have beta and gamma priors by evidence over a grid, laid where the log says.

Arms belong together where they share a level in every task, have any covariance, are exchangeable,
or where features of tasks and arms tell their means: theta_s = Φ_s mu + ε_s, as in the linear
model, and Φ_s says what is shared. Clicks and counts are on a link, by expectation propagation
(`models/latent/spreads.py`); numbers are exact with the noise that their scatter within tasks and
arms shows. Formulas and names: docs/math/fitting.md.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from scipy.special import logsumexp

from adats.learning import fit_common as common
from adats.learning.fit_common import Fitted, Point, RewardFigures, View
from adats.learning.tables import ArmTable
from adats.models import GaussianMeta, LinearMeta, LinearStats, MixtureMeta
from adats.models.core import linalg
from adats.models.core.product import ProductArms
from adats.models.core.stats import ArmStats
from adats.models.core.types import BoolArray, FloatArray, IntArray
from adats.models.core.weights import log_of, softmax
from adats.models.gaussian.belief import LOG_2PI
from adats.models.latent.family import BINARY, FAMILIES
from adats.models.latent.full import FullPrior, given_sites, site_sums
from adats.models.latent.meta import LatentMeta
from adats.models.latent.sites import SitePrior
from adats.models.latent.spreads import Learned, Log, learn_full, learn_level

SIDE = 11  # candidates along each side of the grid
REACH = 4.0  # of the first grid, around the pooled mean: logits, or logarithms
# of the first grid: pseudo-pulls of a beta, pseudo-events of a gamma; more where a task has more
STRENGTHS = (0.1, 1e4)
DEEP = 8.0  # where the log evidence is so far below the best, a grid ends
ROUNDS = 20
CHUNK = 4096  # different tasks at a time
TOGETHER = ("level", "full", "exchangeable", "features")
LEVEL, ARM = 3.0, 2.0  # widths of the prior of mu: of what arms share, and of each arm
SLOPE = 1 / 3  # of them: of what a feature adds, where it has a spread of 1
FEWEST_TASKS = 2  # tasks that tell something, below which it cannot be told
PART = 1024  # tasks at a time
MOST_TOGETHER = 150  # arms: those of a task have a covariance each


class Pulls(NamedTuple):
    """Statistics of every task and arm around the arm's pooled mean, where rewards spread by 1."""

    n: FloatArray  # T, (tasks, arms)
    total: FloatArray  # B, (tasks, arms)
    rest: FloatArray  # (tasks,): the sum of squares within arms

    def subset(self, index: IntArray) -> "Pulls":
        return Pulls(*(part[index] for part in self))


class ArmFrame(NamedTuple):
    centre: FloatArray  # pooled mean of each arm, in the user's units
    spread: float  # of rewards around it
    noise: float  # a first σ², in the units of Pulls


def pulls_of(table: ArmTable) -> tuple[Pulls, ArmFrame]:
    """The statistics in good units; a ValueError where they cannot tell σ."""
    count, total = table.table[:, 0], table.table[:, 1]
    centre = total.sum(axis=0) / np.maximum(count.sum(axis=0), 1.0)
    around, rest, spread, noise = scattered(table, centre)
    frame = ArmFrame(centre, spread, noise / spread**2)
    return Pulls(count, around / spread, rest.sum(axis=1) / spread**2), frame


class Scatter(NamedTuple):
    """Of rewards around a centre."""

    around: FloatArray  # (tasks, arms): sums of what they are beyond it
    rest: FloatArray  # and of squares around the mean of their task and arm
    spread: float  # of all of them
    noise: float  # σ² by what is within tasks and arms


def scattered(table: ArmTable, centre: FloatArray | float) -> Scatter:
    count, total, squares = table.table.swapaxes(0, 1)[:3]
    pulled, n = count > 0, float(count.sum())
    around = total - count * centre
    wide = squares - centre * (total + around)  # Σ (y - centre)²
    rest = np.where(pulled, wide - around**2 / np.where(pulled, count, 1.0), 0.0)
    noise = common.start_noise(float(rest.sum()), n - pulled.sum(), float(squares.sum()))
    return Scatter(around, rest, math.sqrt(float(wide.sum()) / n), noise)


def log_density(pulls: Pulls, mu: FloatArray, point: Point) -> FloatArray:
    """Of the rewards of each task, theta ~ N(mu, σ_0²) integrated out."""
    count, total, rest = pulls
    scale, v = point
    grown = 1.0 + count * scale**2 / v
    gaps = np.where(count > 0, (total - count * mu) ** 2 / np.where(count > 0, count, 1.0), 0.0)
    squares = rest + (gaps / grown).sum(axis=1)
    logs = count.sum(axis=1) * (LOG_2PI + math.log(v)) + np.log(grown).sum(axis=1)
    density: FloatArray = -0.5 * (logs + squares / v)
    return density


def look(pulls: Pulls, point: Point) -> View:
    """The likelihood, its slope by every σ_0² and by σ², and where EM goes."""
    count, total, rest = pulls
    scale, v = point
    tasks = np.maximum((count > 0).sum(axis=0), 1)
    grown = 1.0 + count * scale**2 / v
    m = information(pulls, point)
    cov = 1.0 / (m.sum(axis=0) + common.WIDE**-2.0)
    mean = cov * (total / (v * grown)).sum(axis=0)
    left = total - count * mean
    score = left / (v * grown)
    less = m - m**2 * cov
    slope = 0.5 * (score**2 - less).sum(axis=0)
    n = float(count.sum())
    gaps = np.where(count > 0, left**2 / np.where(count > 0, count, 1.0), 0.0)
    squares = float(rest.sum() + ((gaps + cov * count) / grown**2).sum())
    seen = float((m * scale**2).sum())
    slope_variance = 0.5 * (squares / v**2 - (n - seen) / v)
    pull = slope * scale
    bend = (count * (1.0 - scale**2 * (less - score**2))).sum(axis=0)  # Σ T E u²
    step = np.where(bend > 0, 2 * v * pull / np.where(bend > 0, bend, 1.0), 0.0)
    psi = 1.0 + (2 / tasks) * scale * pull
    variance = v + (2 * v**2 * slope_variance - 2 * v * float((step * pull).sum())) / n
    goal = Point((scale + step) * np.sqrt(np.maximum(psi, 0.0)), max(variance, common.LEAST))
    # mu integrated out: its density at the mean, over what the rewards leave of it
    far, left_of = mean / common.WIDE, cov / common.WIDE**2
    log_mu = -0.5 * float(far @ far - np.log(left_of).sum())
    log_likelihood = float(log_density(pulls, mean, point).sum()) + log_mu
    return View(log_likelihood, mean, cov, slope, slope_variance, goal)


def information(pulls: Pulls, point: Point) -> FloatArray:
    """M of every task and arm: what it tells about mu."""
    scale, v = point
    m: FloatArray = pulls.n / (v + pulls.n * scale**2)
    return m


def fit_gaussian(table: ArmTable) -> Fitted:
    pulls, frame = pulls_of(table)
    n = float(pulls.n.sum())
    found = common.climb(partial(look, pulls), Point(np.ones(len(table.arms)), frame.noise))

    def effective(part: Pulls, point: Point) -> FloatArray:
        m = information(part, point)
        total, squares = m.sum(axis=0), (m**2).sum(axis=0)
        return common.effective_tasks(total, squares, most=float(total.max()))

    tasks = effective(pulls, found.point)
    lost = tasks < common.FEWEST
    if lost.all():
        raise ValueError("the log cannot tell how tasks differ: no two tasks pulled the same arm")

    def score(train: IntArray, test: IntArray) -> FloatArray:
        """Held-out log density of σ_0 fitted to other tasks, for every weight of the average."""
        some, held = pulls.subset(train), pulls.subset(test)
        search = common.holding(partial(look, some), found.point.variance)
        part = common.climb(search, found.point, enough=common.ENOUGH)
        known = effective(some, part.point)
        result = np.empty(len(common.WEIGHTS))
        for i, weight in enumerate(common.WEIGHTS):
            variances = towards_common(part.point.factor**2, known, weight) + part.view.mu_cov
            point = Point(np.sqrt(variances), part.point.variance)
            result[i] = log_density(held, part.view.mu, point).sum()
        return result

    weight = common.best_weight(table.tasks, score)
    variances, v = towards_common(found.point.factor**2, tasks, weight), found.point.variance
    view = look(pulls, Point(np.sqrt(variances), v))
    mu, mu_scale = frame.centre + frame.spread * view.mu, frame.spread * np.sqrt(view.mu_cov)
    task_scale, noise = frame.spread * np.sqrt(variances), float(frame.spread * np.sqrt(v))
    shift = n * float(np.log(frame.spread))
    meta = GaussianMeta(mu, mu_scale, task_scale=task_scale, noise=noise, arms=table.arms)
    prior = meta.task_prior()

    def given(other: ArmTable) -> tuple[FloatArray, FloatArray]:
        cells = other.kind(other.table.swapaxes(0, 1))
        return prior.arm_log_evidence(cells).sum(axis=1), prior.updated(cells).mean

    return Fitted(
        meta=meta,
        mu=mu,
        mu_cov=np.diag(mu_scale**2),
        task_cov=np.diag(task_scale**2),
        noise=noise,
        log_evidence=view.log_likelihood - shift,
        curve=found.curve - shift,
        shrinkage=weight,
        unidentified=spreads_of(table.arms, lost),
        warnings=few_tasks(table) + found.warnings,
        rewards=RewardFigures(mu, task_scale**2, mu_scale**2),
        given=given,
    )


def towards_common(variances: FloatArray, effective: FloatArray, weight: float) -> FloatArray:
    """Variances of arms pulled towards their average, weighted by the tasks that told them.

    The weight of the average is at least 1 / (1 + effective tasks), as if one more task had
    shown it, and 1 for an arm with less than one effective task.
    """
    average = float(np.average(variances, weights=effective if effective.any() else None))
    least = np.where(effective < common.FEWEST, 1.0, 1.0 / (1.0 + effective))
    weights = np.maximum(weight, least)
    return (1.0 - weights) * variances + weights * average


def few_tasks(table: ArmTable) -> tuple[str, ...]:
    """Warnings about arms that few tasks pulled."""
    tasks = (table.table[:, 0] > 0).sum(axis=0).tolist()
    least = common.ENOUGH_TASKS
    rare = [(arm, n) for arm, n in zip(table.arms, tasks, strict=True) if n < least]
    if len(rare) > least:
        return (
            f"{len(rare)} arms, such as {rare[0][0]!r}, were pulled in fewer than {least} tasks: "
            "their spreads are rough",
        )
    return tuple(
        f"arm {arm!r} was pulled in {n} task{'s' * (n != 1)}: below {least} its spread is rough"
        for arm, n in rare
    )


def spreads_of(arms: Sequence[Any], lost: BoolArray) -> tuple[str, ...]:
    return tuple(f"the spread of arm {arm!r}" for arm, gone in zip(arms, lost, strict=True) if gone)


# clicks and counts


def fit_grid(table: ArmTable) -> Fitted:
    """Candidates for every arm, weighted by their evidence: the weighted grid goes on learning."""
    family = table.conjugate
    columns = [_arm(family, table.kind, table.table[:, :, k]) for k in range(len(table.arms))]
    priors = family(*(np.column_stack(p) for p in zip(*(c for c, _ in columns), strict=True)))
    logs = np.column_stack([evidence for _, evidence in columns])
    weights = softmax(logs)
    mu = (weights * priors.mean).sum(axis=0)
    unknown = (weights * (priors.mean - mu) ** 2).sum(axis=0)
    between = (weights * priors.scale**2).sum(axis=0)

    def given(other: ArmTable) -> tuple[FloatArray, FloatArray]:
        """Arm by arm, as they are independent."""
        density, means = np.zeros(len(other)), np.empty((len(other), len(other.arms)))
        for k in range(len(other.arms)):
            cells, place = np.unique(other.table[:, :, k], axis=0, return_inverse=True)
            one = family.of(*(p[:, k, None] for p in priors.parameters()))
            for i in range(0, len(cells), CHUNK):
                stats = other.kind(cells[i : i + CHUNK].T)
                gained = one.arm_log_evidence(stats) + log_of(weights[:, k, None])
                chosen = np.flatnonzero((place >= i) & (place < i + CHUNK))
                at = place[chosen] - i
                density[chosen] += logsumexp(gained, axis=0)[at]
                means[chosen, k] = (softmax(gained) * one.updated(stats).mean).sum(axis=0)[at]
        return density, means

    return Fitted(
        meta=MixtureMeta(weights, priors, arms=table.arms),
        mu=mu,
        mu_cov=np.diag(unknown),
        task_cov=np.diag(between),
        noise=None,
        log_evidence=float((logsumexp(logs, axis=0) - np.log(len(logs))).sum()),
        curve=np.zeros(0),
        shrinkage=None,
        unidentified=spreads_of(
            table.arms, (table.table[:, 0] >= fewest_pulls(table)).sum(axis=0) < 2
        ),
        warnings=few_tasks(table),
        rewards=RewardFigures(mu, between, unknown),
        given=given,
    )


def fewest_pulls(table: ArmTable) -> int:
    """That tell a spread: one count shows it, a single 0 or 1 does not."""
    return 2 if table.kind.MOST == 1.0 else 1


def _arm(
    family: type[ProductArms], kind: type[ArmStats], table: FloatArray
) -> tuple[tuple[FloatArray, ...], FloatArray]:
    """Parameters of the candidates of one arm, and the log evidence of each."""
    cells, times = np.unique(table[table[:, 0] > 0][:, :2], axis=0, return_counts=True)
    constant = float(table[:, 3:].sum())  # Σ log y! of counts
    count, total = table[:, 0].sum(), table[:, 1].sum()
    centre = float(FAMILIES[family.MODEL].eta((total + 0.5) / (count + 1)))
    low = np.array([centre - REACH, np.log(STRENGTHS[0])])
    high = np.array([centre + REACH, np.log(max(STRENGTHS[1], cells.max(initial=0.0)))])
    for _ in range(ROUNDS):
        sides = np.linspace(low, high, SIDE)
        parameters = _candidates(family, sides)
        logs = _evidence(family.of(*parameters), kind, cells, times)
        depth = (logs - logs.max()).reshape(SIDE, SIDE)
        ends = [np.flatnonzero(depth.max(axis=1 - i) > -DEEP)[[0, -1]] for i in (0, 1)]
        steps = np.array([[max(a - 1, 0), min(b + 1, SIDE - 1)] for a, b in ends])
        before = high - low
        low, high = sides[steps[:, 0], [0, 1]], sides[steps[:, 1], [0, 1]]
        if (high - low > 0.8 * before).all():
            break
    return tuple(p[:, 0] for p in parameters), logs - constant


def _candidates(family: type[ProductArms], sides: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Every place with every strength, one a row."""
    place = np.repeat(sides[:, 0], SIDE)[:, None]
    strength = np.exp(np.tile(sides[:, 1], SIDE))[:, None]
    link = FAMILIES[family.MODEL]
    return family.placed(link.mean(place), link.mean(-place), strength)


def _evidence(
    candidates: ProductArms, kind: type[ArmStats], cells: FloatArray, times: IntArray
) -> FloatArray:
    """Log evidence of every candidate; tasks that tell the same are worked out once."""
    logs = np.zeros(SIDE**2)
    for i in range(0, len(cells), CHUNK):
        part = np.zeros((kind.ROWS, len(cells[i : i + CHUNK])))
        part[:2] = cells[i : i + CHUNK].T  # pulls and their total are all that matters
        stats = kind(part)
        logs += candidates.arm_log_evidence(stats) @ times[i : i + CHUNK]
    return logs


# arms that belong together


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
    level, arm = (LEVEL, ARM) if scale.noise is None else (common.WIDE, common.WIDE)
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


def fit_together(table: ArmTable, *, structure: str) -> Fitted:
    """A prior whose arms share a level in every task, have any covariance, are exchangeable, or
    have means that follow from features of arms and of tasks."""
    if structure == "features" and table.task_features is None and table.arm_features is None:
        raise ValueError(
            "structure 'features' needs features of tasks or of arms "
            "(task_features=, arm_features=; --task-features, --arm-features)"
        )
    if len(table.arms) > MOST_TOGETHER:
        raise ValueError(
            f"structure {structure!r} is for at most {MOST_TOGETHER} arms, and the log has "
            f"{len(table.arms):,}: take 'independent', or features of arms with a linear model"
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
        its = _log(other, scale, found.mean, found.cov, _design(other, structure))
        density, means = np.empty(len(other)), np.empty((len(other), arms))
        for i in range(0, len(other), PART):
            part = slice(i, i + PART)
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
        given=given,
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
    if (table.pulls >= fewest_pulls(table)).sum() < FEWEST_TASKS:
        return ("how tasks differ",)
    both = (n > 0).astype(float)
    if (both.sum(axis=1) > 1).sum() < FEWEST_TASKS and len(table.arms) > 1:
        return ("what a task's arms have in common: no two tasks tried several arms",)
    if structure != "full":
        return ()
    together = both.T @ both
    apart = [
        pair for pair in combinations(range(len(table.arms)), 2) if together[pair] < FEWEST_TASKS
    ]
    if not apart:
        return ()
    first = " and ".join(repr(table.arms[i]) for i in apart[0])
    more = f" (and {len(apart) - 1} more pairs)" * (len(apart) > 1)
    return (f"the covariance of arms {first}{more}",)
