"""Linear models: the likelihood from sufficient statistics, EM, shrinkage, what a log cannot tell.

Formulas and names: docs/math/fitting.md.
"""

import math
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import numpy as np

from adats.learning import em
from adats.learning.em import Point, View
from adats.learning.fitted import ENOUGH_TASKS, Fitted, RewardFigures
from adats.learning.tables import LinearTable
from adats.models import LinearMeta
from adats.models.core import linalg
from adats.models.core.types import BoolArray, FloatArray, IntArray
from adats.models.gaussian.belief import LOG_2PI

CHUNK = 1024  # tasks at a time: what is computed on the way stays small
RANK = 1e-10  # eigenvalues below this share of the largest count as zero


class Rows(NamedTuple):
    """Every task as d rows y = R theta + noise, and a remainder that knows only the noise."""

    root: FloatArray  # R, (tasks, d, d): RᵀR is the Gram matrix
    y: FloatArray  # (tasks, d)
    rest: FloatArray  # (tasks,): the sum of squares that no theta explains
    n: FloatArray  # (tasks,): the number of rewards

    def chunks(self) -> Iterator[slice]:
        return (slice(i, i + CHUNK) for i in range(0, len(self.n), CHUNK))

    def subset(self, index: IntArray) -> "Rows":
        return Rows(*(part[index] for part in self))


class Frame(NamedTuple):
    """The units of `Rows`: features of mean square 1 in tasks that have them at all, rewards
    around a pooled fit, of spread 1."""

    centre: FloatArray  # the pooled fit by least squares, in the user's units
    unit: FloatArray  # of each coefficient, in the user's units
    spread: float  # of rewards around the pooled fit
    noise: float  # a first σ², in the units of Rows


def rows_of(table: LinearTable) -> tuple[Rows, Frame]:
    """The statistics in good units; a ValueError where they cannot tell σ."""
    pooled, count = table.moments.sum(axis=0), float(table.n.sum())
    squares = np.diagonal(table.moments, axis1=1, axis2=2)[:, :-1]
    there = table.n @ (squares > 0)  # rewards of tasks that have the feature at all
    size = np.sqrt(np.where(there > 0, squares.sum(axis=0) / np.maximum(there, 1.0), 1.0))
    change = np.diag(np.append(1 / size, 1.0))
    scaled = change @ pooled @ change
    centre = pseudo_inverse(scaled[:-1, :-1]) @ scaled[:-1, -1]
    change[:-1, -1] = -centre / size  # rewards less the pooled fit
    tasks, d = len(table.n), len(size)
    root, y, rest = np.empty((tasks, d, d)), np.empty((tasks, d)), np.empty(tasks)
    rank = 0
    for i in range(0, tasks, CHUNK):
        part = slice(i, i + CHUNK)
        moments = change.T @ table.moments[part] @ change
        root[part], y[part], seen = as_rows(moments)
        rest[part] = moments[:, -1, -1] - (y[part] ** 2).sum(axis=1)
        rank += int(seen.sum())
    noise = em.start_noise(float(rest.sum()), count - rank, float(pooled[-1, -1]))
    spread = math.sqrt(float((y**2).sum() + rest.sum()) / count)
    y /= spread
    rest /= spread**2
    frame = Frame(centre / size, spread / size, spread, noise / spread**2)
    return Rows(root, y, rest, table.n), frame


def as_rows(moments: FloatArray) -> tuple[FloatArray, FloatArray, BoolArray]:
    """R and y of every task, and which of its rows are other than zero.

    With the Gram matrix VΛVᵀ they are Λ^½Vᵀ and Λ^-½Vᵀ Σxy, 0 where Λ is.
    """
    values, vectors = np.linalg.eigh(moments[:, :-1, :-1])
    seen = values > RANK * np.maximum(values[:, -1:], 0.0)
    roots = np.sqrt(np.where(seen, values, 0.0))
    along = np.einsum("sij,si->sj", vectors, moments[:, :-1, -1])
    y = np.where(seen, along, 0.0) / np.where(seen, roots, 1.0)
    return roots[:, :, None] * vectors.swapaxes(1, 2), y, seen


def pseudo_inverse(gram: FloatArray) -> FloatArray:
    """Of a positive semi-definite matrix; directions that it does not see give zero."""
    values, vectors = np.linalg.eigh(gram)
    seen = values > RANK * max(float(values[-1]), 0.0)
    inverse: FloatArray = (vectors * (seen / np.where(seen, values, 1.0))) @ vectors.T
    return inverse


class Messages(NamedTuple):
    """What every task says about mu: log density c + hᵀmu - ½ muᵀM mu."""

    m: FloatArray  # RᵀN⁻¹R/σ² with N = I + RΣ_0Rᵀ/σ²
    h: FloatArray  # RᵀN⁻¹y/σ²
    c: FloatArray


def messages(rows: Rows, point: Point) -> Messages:
    v = point.variance
    tasks, d = rows.y.shape
    both, c = np.empty((tasks, d, d + 1)), np.empty(tasks)
    for part in rows.chunks():
        known = np.concatenate([rows.root[part], rows.y[part, :, None]], axis=2)
        half, logs = _half(rows.root[part], known, point)
        both[part] = half[:, :, :-1].swapaxes(1, 2) @ half
        squares = rows.rest[part] + (half[:, :, -1] ** 2).sum(axis=1)
        c[part] = _log_normal(rows.n[part], squares, v, logs)
    both /= v
    return Messages(both[:, :, :-1], both[:, :, -1], c)


def log_density(rows: Rows, mu: FloatArray, point: Point) -> FloatArray:
    """Of the rewards of each task, theta ~ N(mu, Σ_0) integrated out."""
    density = np.empty(len(rows.n))
    for part in rows.chunks():
        root = rows.root[part]
        half, logs = _half(root, (rows.y[part] - root @ mu)[:, :, None], point)
        squares = rows.rest[part] + (half**2).sum(axis=(1, 2))
        density[part] = _log_normal(rows.n[part], squares, point.variance, logs)
    return density


def _half(root: FloatArray, known: FloatArray, point: Point) -> tuple[FloatArray, FloatArray]:
    """C⁻¹ times `known`, for the Cholesky factor C of N, and the log determinant of C."""
    spread = root @ (point.factor / math.sqrt(point.variance))
    grown = spread @ spread.swapaxes(1, 2)
    grown += np.eye(root.shape[-1])
    lower = linalg.lower_factors(grown)
    logs = np.log(np.diagonal(lower, axis1=1, axis2=2)).sum(axis=1)
    return np.asarray(np.linalg.solve(lower, known), np.float64), logs


def _log_normal(n: FloatArray, squares: FloatArray, v: float, logs: FloatArray) -> FloatArray:
    return -0.5 * (n * (LOG_2PI + math.log(v)) + squares / v) - logs


def look(rows: Rows, point: Point, *, diagonal: bool = False) -> View:
    """The likelihood, its slope, and where EM goes; with `diagonal`, among diagonal Σ_0."""
    factor, v = point
    d, n = len(factor), float(rows.n.sum())
    m, h, c = messages(rows, point)
    total = m.sum(axis=0)
    mu = linalg.condition(np.zeros(d), em.WIDE, total, h.sum(axis=0))
    mean, cov = mu.mean, mu.factor @ mu.factor.T
    score = h - m @ mean  # g_s: what a task says at the mean of mu
    spread = factor @ factor.T
    squares = float(rows.rest.sum())  # becomes E |y - R theta|² without the spread of theta
    for part in rows.chunks():
        root = rows.root[part]
        less = root - root @ spread @ m[part]  # N⁻¹R
        left = rows.y[part] - root @ mean - np.einsum("sij,sj->si", root @ spread, score[part])
        squares += float((left**2).sum() + ((less @ mu.factor) ** 2).sum())
        m[part] -= m[part] @ cov @ m[part]  # M_s becomes K_s = M_s - M_s C M_s
    slope = 0.5 * (score.T @ score - m.sum(axis=0))
    if diagonal:
        slope = np.diag(slope.diagonal())
    seen = float((total * spread).sum())
    slope_variance = 0.5 * (squares / v**2 - (n - seen) / v)
    # theta = mu + A u: the best A along one way from L, then the covariance of u, then σ²
    pull = slope @ factor
    psi = np.eye(d) + (2 / len(rows.n)) * factor.T @ pull  # mean of E uuᵀ
    way, bend = _way(rows, factor, pull, psi, m, score, diagonal)
    rise = 2 * v * float((way * pull).sum())
    step = rise / bend if bend > 0 else 0.0
    variance = v + (2 * v**2 * slope_variance - step * rise) / n
    goal = Point((factor + step * way) @ _root(psi), max(variance, em.LEAST))
    return View(float(c.sum()) + mu.log_integral(), mean, cov, slope, slope_variance, goal)


def _way(
    rows: Rows,
    factor: FloatArray,
    pull: FloatArray,
    psi: FloatArray,
    k: FloatArray,
    score: FloatArray,
    diagonal: bool,
) -> tuple[FloatArray, float]:
    """Where A goes from L, as if all tasks had the same Gram matrix, and Σ E |R way u|²."""
    flat = rows.root.reshape(-1, len(factor))
    gram = flat.T @ flat
    if diagonal:
        gram = np.diag(gram.diagonal())
    way = np.linalg.solve(psi, (pseudo_inverse(gram) @ pull).T).T.astype(np.float64)
    bend = float(((flat @ way) ** 2).sum())
    for part in rows.chunks():
        moved = rows.root[part] @ (way @ factor.T)
        bend -= float(((moved @ k[part]) * moved).sum())
        bend += float((np.einsum("sij,sj->si", moved, score[part]) ** 2).sum())
    return way, bend


def _root(matrix: FloatArray) -> FloatArray:
    """The symmetric square root."""
    values, vectors = np.linalg.eigh(matrix)
    root: FloatArray = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
    return root


def fit_linear(table: LinearTable, *, diagonal: bool = False) -> Fitted:
    rows, frame = rows_of(table)
    d, pulls = len(table.features), float(table.n.sum())
    diagonal = diagonal or d == 1
    search = partial(look, diagonal=diagonal)
    found = em.climb(partial(search, rows), Point(np.eye(d) / np.sqrt(d), frame.noise))
    m = messages(rows, found.point).m
    lost = em.unseen(m)
    if lost.shape[1] == d:
        raise ValueError("the log cannot tell how tasks differ: no two tasks tried the same")

    def known(point: Point) -> FloatArray:
        return em.filled(point.factor @ point.factor.T, lost, diagonal=diagonal)

    def score(train: IntArray, test: IntArray) -> FloatArray:
        """Held-out log density of Σ_0 fitted to other tasks, for every weight of its diagonal."""
        part = em.holding(partial(search, rows.subset(train)), found.point.variance)
        point, view, *_ = em.climb(part, found.point, enough=em.ENOUGH)
        cov, held = known(point), rows.subset(test)
        covs = [em.towards_diagonal(cov, weight) + view.mu_cov for weight in em.WEIGHTS]
        points = [Point(linalg.psd_factor(cov), point.variance) for cov in covs]
        return np.array([log_density(held, view.mu, p).sum() for p in points])

    weight = 1.0 if diagonal else em.best_weight(table.tasks, score)
    cov, v = em.towards_diagonal(known(found.point), weight), found.point.variance
    unidentified = em.lost_names(lost, frame.unit, table.features)
    if not diagonal:
        unidentified += em.lost_pairs(m, lost, table.features)
    view = look(rows, Point(linalg.psd_factor(cov), v))
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
        warnings=few + found.warnings,
        rewards=RewardFigures(mu, units.diagonal() * cov.diagonal(), mu_cov.diagonal()),
        log_density=densities,
        means=lambda other: np.array(
            [prior.condition(other.stats(i)).belief.mean for i in range(len(other))]
        ).reshape(len(other), d),
    )
