"""Arms that are independent. Of numbers, with one σ: EM, shrinkage, and what the log cannot tell.
Of clicks and counts: beta and gamma priors by evidence over a grid, laid where the log says.

Formulas and names: docs/math/fitting.md.
"""

import math
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp

from adats.learning import em
from adats.learning.em import Point, View
from adats.learning.fitted import Fitted, RewardFigures, few_tasks, spreads_of
from adats.learning.tables import ArmTable
from adats.models import GaussianMeta, MixtureMeta
from adats.models.core.product import ProductArms
from adats.models.core.stats import ArmStats
from adats.models.core.types import FloatArray, IntArray
from adats.models.core.weights import log_of, softmax
from adats.models.gaussian.belief import LOG_2PI
from adats.models.latent.family import FAMILIES

SIDE = 11  # candidates along each side of the grid
REACH = 4.0  # of the first grid, around the pooled mean: logits, or logarithms
STRENGTHS = (0.1, 1e4)  # of the first grid: pseudo-pulls of a beta, pseudo-events of a gamma
DEEP = 8.0  # where the log evidence is so far below the best, a grid ends
ROUNDS = 20
CHUNK = 4096


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
    noise = em.start_noise(float(rest.sum()), n - pulled.sum(), float(squares.sum()))
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
    cov = 1.0 / (m.sum(axis=0) + em.WIDE**-2.0)
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
    goal = Point((scale + step) * np.sqrt(np.maximum(psi, 0.0)), max(variance, em.LEAST))
    # mu integrated out: its density at the mean, over what the rewards leave of it
    log_mu = -0.5 * float((mean / em.WIDE) @ (mean / em.WIDE) - np.log(cov / em.WIDE**2).sum())
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
    found = em.climb(partial(look, pulls), Point(np.ones(len(table.arms)), frame.noise))

    def effective(part: Pulls, point: Point) -> FloatArray:
        m = information(part, point)
        total, squares = m.sum(axis=0), (m**2).sum(axis=0)
        return em.effective_tasks(total, squares, most=float(total.max()))

    tasks = effective(pulls, found.point)
    lost = tasks < em.FEWEST
    if lost.all():
        raise ValueError("the log cannot tell how tasks differ: no two tasks pulled the same arm")

    def score(train: IntArray, test: IntArray) -> FloatArray:
        """Held-out log density of σ_0 fitted to other tasks, for every weight of the average."""
        some, held = pulls.subset(train), pulls.subset(test)
        search = em.holding(partial(look, some), found.point.variance)
        part = em.climb(search, found.point, enough=em.ENOUGH)
        known = effective(some, part.point)
        result = np.empty(len(em.WEIGHTS))
        for i, weight in enumerate(em.WEIGHTS):
            variances = em.towards_common(part.point.factor**2, known, weight) + part.view.mu_cov
            point = Point(np.sqrt(variances), part.point.variance)
            result[i] = log_density(held, part.view.mu, point).sum()
        return result

    weight = em.best_weight(table.tasks, score)
    variances, v = em.towards_common(found.point.factor**2, tasks, weight), found.point.variance
    view = look(pulls, Point(np.sqrt(variances), v))
    mu, mu_scale = frame.centre + frame.spread * view.mu, frame.spread * np.sqrt(view.mu_cov)
    task_scale, noise = frame.spread * np.sqrt(variances), float(frame.spread * np.sqrt(v))
    shift = n * float(np.log(frame.spread))
    meta = GaussianMeta(mu, mu_scale, task_scale=task_scale, noise=noise, arms=table.arms)
    prior = meta.task_prior()

    def densities(other: ArmTable) -> FloatArray:
        cells = other.kind(other.table.swapaxes(0, 1))
        found: FloatArray = prior.arm_log_evidence(cells).sum(axis=1)
        return found

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
        log_density=densities,
        means=lambda other: prior.updated(other.kind(other.table.swapaxes(0, 1))).mean,
    )


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

    def each(other: ArmTable) -> tuple[FloatArray, FloatArray]:
        """Log density of each task, and posterior means: arm by arm, as they are independent."""
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
        log_density=lambda other: each(other)[0],
        means=lambda other: each(other)[1],
    )


def fewest_pulls(table: ArmTable) -> int:
    """That tell a spread: one count shows it, a single 0 or 1 does not."""
    return 2 if table.kind.MOST == 1.0 else 1


def _arm(
    family: type[ProductArms], kind: type[ArmStats], table: FloatArray
) -> tuple[tuple[FloatArray, ...], FloatArray]:
    """Parameters of the candidates of one arm, and the log evidence of each."""
    told, times = np.unique(table[table[:, 0] > 0][:, :2], axis=0, return_counts=True)
    constant = float(table[:, 3:].sum())  # Σ log y! of counts
    count, total = table[:, 0].sum(), table[:, 1].sum()
    centre = float(FAMILIES[family.MODEL].eta((total + 0.5) / (count + 1)))
    low = np.array([centre - REACH, np.log(STRENGTHS[0])])
    high = np.array([centre + REACH, np.log(STRENGTHS[1])])
    for _ in range(ROUNDS):
        sides = np.linspace(low, high, SIDE)
        parameters = _candidates(family, sides)
        logs = _evidence(family.of(*parameters), kind, told, times)
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
    candidates: ProductArms, kind: type[ArmStats], told: FloatArray, times: IntArray
) -> FloatArray:
    """Log evidence of every candidate; tasks that tell the same are worked out once."""
    logs = np.zeros(SIDE**2)
    for i in range(0, len(told), CHUNK):
        part = np.zeros((kind.ROWS, len(told[i : i + CHUNK])))
        part[:2] = told[i : i + CHUNK].T  # pulls and their total are all that matters
        stats = kind(part)
        logs += candidates.arm_log_evidence(stats) @ times[i : i + CHUNK]
    return logs
