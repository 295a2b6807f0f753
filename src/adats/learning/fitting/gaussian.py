"""Gaussian arms, every arm by itself but for one σ: EM, shrinkage, and what the log cannot tell.

Formulas and names: docs/math/fitting.md.
"""

import math
from functools import partial
from typing import NamedTuple

import numpy as np

from adats.learning.fitting import directions
from adats.learning.fitting.em import LEAST, WIDE, Point, View, climb, holding, start_noise
from adats.learning.fitting.fitted import Fitted, RewardFigures, few_tasks, fits, spreads_of
from adats.learning.fitting.shrinkage import ENOUGH, WEIGHTS, best_weight, towards_common
from adats.learning.tables import ArmTable
from adats.models import GaussianMeta
from adats.models.core.types import FloatArray, IntArray
from adats.models.gaussian.belief import LOG_2PI


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
    count, total, squares = table.table.swapaxes(0, 1)[:3]
    pulled = count > 0
    often = np.where(pulled, count, 1.0)
    centre = total.sum(axis=0) / np.maximum(count.sum(axis=0), 1.0)
    around = total - count * centre
    wide = squares - centre * (total + around)  # Σ (y - centre)²
    rest = np.where(pulled, wide - around**2 / often, 0.0).sum(axis=1)
    n = float(count.sum())
    noise = start_noise(float(rest.sum()), n - pulled.sum(), float(squares.sum()))
    spread = math.sqrt(float(wide.sum()) / n)
    frame = ArmFrame(centre, spread, noise / spread**2)
    return Pulls(count, around / spread, rest / spread**2), frame


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
    cov = 1.0 / (m.sum(axis=0) + WIDE**-2.0)
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
    goal = Point((scale + step) * np.sqrt(np.maximum(psi, 0.0)), max(variance, LEAST))
    # mu integrated out: its density at the mean, over what the rewards leave of it
    log_mu = -0.5 * float((mean / WIDE) @ (mean / WIDE) - np.log(cov / WIDE**2).sum())
    log_likelihood = float(log_density(pulls, mean, point).sum()) + log_mu
    return View(log_likelihood, mean, cov, slope, slope_variance, goal)


def information(pulls: Pulls, point: Point) -> FloatArray:
    """M of every task and arm: what it tells about mu."""
    scale, v = point
    m: FloatArray = pulls.n / (v + pulls.n * scale**2)
    return m


@fits("gaussian", "independent")
def fit_gaussian(table: ArmTable) -> Fitted:
    pulls, frame = pulls_of(table)
    n = float(pulls.n.sum())
    found = climb(partial(look, pulls), Point(np.ones(len(table.arms)), frame.noise))

    def effective(part: Pulls, point: Point) -> FloatArray:
        m = information(part, point)
        total, squares = m.sum(axis=0), (m**2).sum(axis=0)
        return directions.effective_tasks(total, squares, most=float(total.max()))

    tasks = effective(pulls, found.point)
    lost = tasks < directions.FEWEST
    if lost.all():
        raise ValueError("the log cannot tell how tasks differ: no two tasks pulled the same arm")

    def score(train: IntArray, test: IntArray) -> FloatArray:
        """Held-out log density of σ_0 fitted to other tasks, for every weight of the average."""
        some, held = pulls.subset(train), pulls.subset(test)
        search = holding(partial(look, some), found.point.variance)
        part = climb(search, found.point, enough=ENOUGH)
        known = effective(some, part.point)
        result = np.empty(len(WEIGHTS))
        for i, weight in enumerate(WEIGHTS):
            variances = towards_common(part.point.factor**2, known, weight) + part.view.mu_cov
            point = Point(np.sqrt(variances), part.point.variance)
            result[i] = log_density(held, part.view.mu, point).sum()
        return result

    weight = best_weight(table.tasks, score)
    variances, v = towards_common(found.point.factor**2, tasks, weight), found.point.variance
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
