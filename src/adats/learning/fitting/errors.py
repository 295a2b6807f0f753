"""Standard errors from the curvature of the log likelihood at the fit."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from adats.learning.fitting import gaussian, linear
from adats.learning.fitting.em import Point
from adats.learning.fitting.fitted import Fitted
from adats.learning.tables import ArmTable, LinearTable
from adats.models.core import linalg
from adats.models.core.types import FloatArray

STEP = 1e-4  # of a typical variance: for the difference of two slopes
FLAT = 1e-6  # curvature in the same units, below which an error is infinite


class Errors(NamedTuple):
    mu: FloatArray
    task_cov: FloatArray
    noise: float


def standard_errors(table: Any, fitted: Fitted) -> Errors:
    """Of mu, Σ_0 and σ, from the observed information about Σ_0 and σ, mu integrated out.

    Infinite where the log tells nothing, zero for covariances that are zero by assumption: those
    of arms and of a diagonal Σ_0. The work is that of one EM step for each entry of Σ_0.
    """
    if fitted.noise is None:
        raise ValueError("a grid of candidates has no standard errors; its weights are the belief")
    of = _of_linear if table.arms is None else _of_arms
    cov, variance = of(table, fitted.task_cov, fitted.noise)
    mu: FloatArray = np.sqrt(fitted.mu_cov.diagonal())
    return Errors(mu, cov, variance / (2 * fitted.noise))


def _of_linear(table: LinearTable, cov: FloatArray, noise: float) -> tuple[FloatArray, float]:
    rows, frame = linear.rows_of(table)
    units = np.outer(frame.unit, frame.unit)
    cov, v = cov / units, (noise / frame.spread) ** 2
    d = len(cov)
    alone = np.array_equal(cov, np.diag(cov.diagonal()))
    pairs = [(i, j) for i in range(d) for j in range(i + 1) if i == j or not alone]
    ways = np.zeros((len(pairs), d, d))  # each adds a square, so that Σ_0 stays a covariance
    for way, (i, j) in zip(ways, pairs, strict=True):
        way[[i, i, j, j], [i, j, i, j]] = 1.0
    typical = float(cov.trace()) / d + v * len(rows.n) / float(rows.n.sum())

    def slopes(at: FloatArray) -> FloatArray:
        moved = cov + np.tensordot(at[:-1], ways, 1) * typical
        view = linear.look(rows, Point(linalg.psd_factor(moved), v + at[-1] * typical))
        along = (ways * view.slope).sum(axis=(1, 2))
        return np.append(along, view.slope_variance) * typical

    errors = _errors(slopes, np.append(ways.reshape(len(ways), -1).T, np.zeros((d * d, 1)), axis=1))
    return errors[:-1].reshape(d, d) * typical * units, errors[-1] * typical * frame.spread**2


def _of_arms(table: ArmTable, cov: FloatArray, noise: float) -> tuple[FloatArray, float]:
    pulls, frame = gaussian.pulls_of(table)
    square = frame.spread**2
    variances, v = cov.diagonal() / square, noise**2 / square
    typical = float(variances.mean()) + v

    def slopes(at: FloatArray) -> FloatArray:
        scales = np.sqrt(variances + at[:-1] * typical)
        view = gaussian.look(pulls, Point(scales, v + at[-1] * typical))
        return np.append(view.slope, view.slope_variance) * typical

    errors = _errors(slopes, np.eye(len(variances), len(variances) + 1))
    return np.diag(errors[:-1]) * typical * square, errors[-1] * typical * square


def _errors(slopes: Callable[[FloatArray], FloatArray], shown: FloatArray) -> FloatArray:
    """Errors of the combinations in the rows of `shown`, and of the last coordinate."""
    size = shown.shape[1]
    here = slopes(np.zeros(size))
    bend = np.array([here - slopes(STEP * e) for e in np.eye(size)]) / STEP
    values, vectors = np.linalg.eigh((bend + bend.T) / 2)
    parts = np.vstack([shown, np.eye(size)[-1]]) @ vectors
    flat = values <= FLAT
    endless = (parts[:, flat] ** 2).sum(axis=1) > FLAT
    finite = (parts[:, ~flat] ** 2 / values[~flat]).sum(axis=1)
    return np.where(endless, np.inf, np.sqrt(finite))
