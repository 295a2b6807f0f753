"""The fit of a linear model: EM, shrinkage, and what the log cannot tell."""

from functools import partial

import numpy as np

from adats.learning.fitting import directions, linear
from adats.learning.fitting.em import Point, climb, holding, unfinished
from adats.learning.fitting.fitted import ENOUGH_TASKS, Fitted, RewardFigures, fits
from adats.learning.fitting.shrinkage import ENOUGH, WEIGHTS, best_weight, towards_diagonal
from adats.learning.tables import LinearTable
from adats.models import LinearMeta
from adats.models.core import linalg
from adats.models.core.types import FloatArray, IntArray


@fits("linear", "independent")
def fit_linear(table: LinearTable, *, diagonal: bool = False) -> Fitted:
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
    meta = LinearMeta(mu, mu_cov, task_cov=units * cov, noise=noise)
    prior = meta.task_prior()

    def densities(other: LinearTable) -> FloatArray:
        each = (prior.condition(other.stats(i)).log_evidence for i in range(len(other)))
        return np.fromiter(each, np.float64, len(other))

    return Fitted(
        meta=meta,
        mu=mu,
        mu_cov=mu_cov,
        task_cov=units * cov,
        noise=noise,
        log_evidence=view.log_likelihood - shift,
        curve=found.curve - shift,
        shrinkage=weight,
        unidentified=tuple(unidentified),
        warnings=few + unfinished(found),
        rewards=RewardFigures(mu, units.diagonal() * cov.diagonal(), mu_cov.diagonal()),
        log_density=densities,
        means=lambda other: np.array(
            [prior.condition(other.stats(i)).belief.mean for i in range(len(other))]
        ).reshape(len(other), d),
    )
