"""The prior of somebody who plays every task alone: it knows the level of rewards and no more.

All arms, or all features, have the same prior. Its level and spread are the most likely ones: the
best that can be had without knowing which arm is which, so sharing has to beat a strong opponent.
"""

import math
from typing import Any

import numpy as np
from scipy.special import expit, logit

from adats.learning.tables import ArmTable, LinearTable, Table
from adats.models import BetaArms, GaussianArms, LinearBelief, PoissonArms
from adats.models.core.linalg import psd_factor
from adats.models.core.product import ProductArms
from adats.models.core.types import FloatArray

ABOUT = {
    "gaussian": "all arms have one and the same normal prior, with the most likely mean and spread",
    "binary": "all arms have one and the same beta prior, the most likely one",
    "count": "all arms have one and the same gamma prior, the most likely one",
    "linear": "the coefficients, each in units of the size of its feature, have one and the same "
    "normal prior around zero, with the most likely spread (an intercept: around the mean reward)",
}
EXACT = 1e-9  # relative: a column whose squares are this even in all tasks is an intercept
SIMPLEX = np.array([[0.0, 0.0], [0.5, 0.0], [0.0, 0.5]])  # where the search begins
LOGS = (-14.0, 14.0)  # least and greatest log of a spread or strength, in its own units


def alone(table: Table, noise: float | None) -> ProductArms | LinearBelief:
    """The prior without sharing, with the `noise` of the shared model, where it has one."""
    if isinstance(table, LinearTable):
        return alone_linear(table, noise)
    return alone_arms(table, noise)


def alone_arms(table: ArmTable, noise: float | None) -> ProductArms:
    """Every arm of every task is one more draw from the same prior, which has two parameters."""
    from scipy.optimize import minimize

    counts = table.table[:, 0]
    cells = table.kind(table.table.transpose(1, 0, 2)[:, counts > 0])
    pulls = float(counts.sum())
    level = float(cells.total.sum()) / pulls
    rate = (level * pulls + 0.5) / (pulls + 1)  # for 0 or 1 and for counts: never at an end
    apart = float(((cells.total / cells.count - level) ** 2).mean())
    sigma = noise or 1.0
    unit = math.sqrt(apart + sigma**2)

    def prior(at: FloatArray, arms: int) -> ProductArms:
        move, size = np.clip(at, *LOGS).tolist()
        sizes = np.full(arms, math.exp(size))
        if table.model == "gaussian":
            mean = np.full(arms, level + unit * move)
            return GaussianArms.of(mean, unit * sizes, np.full(arms, sigma))
        if table.model == "binary":
            place = logit(rate) + move
            return BetaArms.of(sizes * expit(place), sizes * expit(-place))
        return PoissonArms.of(sizes * rate * math.exp(move), sizes)

    def loss(at: FloatArray) -> float:
        return -float(prior(at, cells.count.size).arm_log_evidence(cells).sum())

    options: Any = {"initial_simplex": SIMPLEX, "xatol": 1e-4, "fatol": 1e-4}
    best = minimize(loss, SIMPLEX[0], method="Nelder-Mead", options=options)
    return prior(best.x, len(table.arms))


def alone_linear(table: LinearTable, noise: float | None) -> LinearBelief:
    from scipy.optimize import minimize_scalar

    sigma = noise or 1.0
    size, mean = sizes(table), np.zeros(len(table.features))
    if (column := intercept(table)) is not None:
        mean[column] = table.moments[:, column, -1].sum() / (size[column] ** 2 * table.n.sum())
    gram = table.moments[:, :-1, :-1]
    shift = (table.moments[:, :-1, -1] - gram @ mean) / (size * sigma)
    values, vectors = np.linalg.eigh(gram / np.outer(size, size))
    squares = np.einsum("sij,si->sj", vectors, shift) ** 2
    values = np.maximum(values, 0.0)

    def loss(log_ratio: float) -> float:  # of the variances: between tasks, and of the noise
        ratio = math.exp(log_ratio)
        grown = 1 + ratio * values
        return 0.5 * float((np.log(grown) - ratio * squares / grown).sum())

    best = minimize_scalar(loss, bounds=(2 * LOGS[0], 2 * LOGS[1]), method="bounded")
    return LinearBelief.of(mean, np.diag(sigma * math.exp(best.x / 2) / size), sigma)


def sizes(table: LinearTable) -> FloatArray:
    """Root mean square of every feature; 1 where it is never other than 0."""
    squares = np.einsum("sii->i", table.moments)[:-1] / max(float(table.n.sum()), 1.0)
    return np.sqrt(np.where(squares > 0, squares, 1.0))


def intercept(table: LinearTable) -> int | None:
    """The only feature that has the same size in every row, if there is just one such."""
    squares = np.diagonal(table.moments, axis1=1, axis2=2)[:, :-1]
    expected = table.n[:, None] * sizes(table) ** 2
    even = (np.abs(squares - expected) <= EXACT * expected).all(axis=0)
    return int(even.argmax()) if even.sum() == 1 else None


def action_rows(table: LinearTable) -> tuple[FloatArray, FloatArray]:
    """Mean and factor of features drawn like those of the log: N(mean, factor @ factorᵀ)."""
    moment = table.moments[:, :-1, :-1].sum(axis=0) / table.n.sum()
    mean = np.zeros(len(moment))
    if (column := intercept(table)) is not None:
        mean = moment[column] / math.sqrt(moment[column, column])
    cov = moment - np.outer(mean, mean)
    if column is not None:
        cov[column] = cov[:, column] = 0.0
    return mean, psd_factor(cov)
