"""Gaussian and linear models: EM, shrinkage, and what the log cannot tell."""

from functools import partial

import numpy as np

from adats.learning.fitting import arms, directions, linear
from adats.learning.fitting.em import Climb, Point, climb, holding
from adats.learning.fitting.fitted import ENOUGH_TASKS, Fitted, few_tasks, spreads_of
from adats.learning.fitting.shrinkage import (
    ENOUGH,
    WEIGHTS,
    best_weight,
    towards_common,
    towards_diagonal,
)
from adats.learning.tables import ArmTable, LinearTable
from adats.models import GaussianMeta, LinearMeta
from adats.models.core import linalg
from adats.models.core.types import FloatArray, IntArray


def fit_linear(table: LinearTable, *, diagonal: bool) -> Fitted:
    rows, frame = linear.rows_of(table)
    d, pulls = len(table.features), float(table.n.sum())
    diagonal = diagonal or d == 1
    look = partial(linear.look, diagonal=diagonal)
    found = climb(partial(look, rows), Point(np.eye(d) / np.sqrt(d), frame.noise))
    m = linear.messages(rows, found.point).m
    lost = directions.unseen(m)
    if lost.shape[1] == d:
        raise ValueError("the log cannot tell how tasks differ: no two tasks tried the same")

    def known(point: Point) -> FloatArray:
        return directions.filled(point.factor @ point.factor.T, lost, diagonal=diagonal)

    def score(train: IntArray, test: IntArray) -> FloatArray:
        """Held-out log density of Σ_0 fitted to other tasks, for every weight of its diagonal."""
        part = holding(partial(look, rows.subset(train)), found.point.variance)
        point, view, *_ = climb(part, found.point, enough=ENOUGH)
        cov, held = known(point), rows.subset(test)
        covs = [towards_diagonal(cov, weight) + view.mu_cov for weight in WEIGHTS]
        points = [Point(linalg.psd_factor(cov), point.variance) for cov in covs]
        return np.array([linear.log_density(held, view.mu, p).sum() for p in points])

    weight = 1.0 if diagonal else best_weight(table.tasks, score)
    cov, v = towards_diagonal(known(found.point), weight), found.point.variance
    unidentified = directions.names(lost, frame.unit, table.features)
    if not diagonal:
        unidentified += directions.pairs(m, lost, table.features)
    view = linear.look(rows, Point(linalg.psd_factor(cov), v))
    units, shift = np.outer(frame.unit, frame.unit), pulls * float(np.log(frame.spread))
    mu, mu_cov = frame.centre + frame.unit * view.mu, units * view.mu_cov
    noise = float(frame.spread * np.sqrt(v))
    few = (
        f"{len(table)} tasks are few for {d} features: below {ENOUGH_TASKS * d} Σ_0 is rough",
    ) * (len(table) < ENOUGH_TASKS * d)
    return Fitted(
        meta=LinearMeta(mu, mu_cov, task_cov=units * cov, noise=noise),
        mu=mu,
        mu_cov=mu_cov,
        task_cov=units * cov,
        noise=noise,
        log_evidence=view.log_likelihood - shift,
        curve=found.curve - shift,
        shrinkage=weight,
        unidentified=tuple(unidentified),
        warnings=few + _unfinished(found),
    )


def fit_gaussian(table: ArmTable) -> Fitted:
    pulls, frame = arms.pulls_of(table)
    n = float(pulls.n.sum())
    found = climb(partial(arms.look, pulls), Point(np.ones(len(table.arms)), frame.noise))

    def effective(part: arms.Pulls, point: Point) -> FloatArray:
        m = arms.information(part, point)
        total, squares = m.sum(axis=0), (m**2).sum(axis=0)
        return directions.effective_tasks(total, squares, most=float(total.max()))

    tasks = effective(pulls, found.point)
    lost = tasks < directions.FEWEST
    if lost.all():
        raise ValueError("the log cannot tell how tasks differ: no two tasks pulled the same arm")

    def score(train: IntArray, test: IntArray) -> FloatArray:
        """Held-out log density of σ_0 fitted to other tasks, for every weight of the average."""
        some, held = pulls.subset(train), pulls.subset(test)
        search = holding(partial(arms.look, some), found.point.variance)
        part = climb(search, found.point, enough=ENOUGH)
        known = effective(some, part.point)
        result = np.empty(len(WEIGHTS))
        for i, weight in enumerate(WEIGHTS):
            variances = towards_common(part.point.factor**2, known, weight) + part.view.mu_cov
            point = Point(np.sqrt(variances), part.point.variance)
            result[i] = arms.log_density(held, part.view.mu, point).sum()
        return result

    weight = best_weight(table.tasks, score)
    variances, v = towards_common(found.point.factor**2, tasks, weight), found.point.variance
    view = arms.look(pulls, Point(np.sqrt(variances), v))
    mu, mu_scale = frame.centre + frame.spread * view.mu, frame.spread * np.sqrt(view.mu_cov)
    task_scale, noise = frame.spread * np.sqrt(variances), float(frame.spread * np.sqrt(v))
    shift = n * float(np.log(frame.spread))
    return Fitted(
        meta=GaussianMeta(mu, mu_scale, task_scale=task_scale, noise=noise, arms=table.arms),
        mu=mu,
        mu_cov=np.diag(mu_scale**2),
        task_cov=np.diag(task_scale**2),
        noise=noise,
        log_evidence=view.log_likelihood - shift,
        curve=found.curve - shift,
        shrinkage=weight,
        unidentified=spreads_of(table.arms, lost),
        warnings=few_tasks(table) + _unfinished(found),
    )


def _unfinished(found: Climb) -> tuple[str, ...]:
    if found.converged:
        return ()
    return (f"EM had not converged after {len(found.curve)} iterations",)
