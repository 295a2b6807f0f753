"""Linear models, whose arms are rows of features: a fit, and whether sharing it is worth it.

The likelihood comes from sufficient statistics; then EM, shrinkage, and what a log cannot tell.
Formulas and names: docs/math/fitting.md.
"""

import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.linalg import qr

from adats.learning import fit_common as common
from adats.learning.fit_common import ENOUGH_TASKS, Fitted, Point, RewardFigures, View
from adats.learning.savings import LEAST, Saving
from adats.learning.tables import LinearTable
from adats.learning.verdict import FEWEST, WORTH, Answer, Verdict, nothing
from adats.models import LinearBelief, LinearMeta
from adats.models.core import linalg
from adats.models.core.types import BoolArray, FloatArray, IntArray
from adats.models.gaussian.belief import LOG_2PI

CHUNK = 1024  # tasks at a time: what is computed on the way stays small
SMALL = 0.05  # coefficients below it are left out of the name of a direction
PAIRS = 10  # so many pairs are named one by one
RANK = 1e-10  # eigenvalues below this share of the largest count as zero
EXACT = 1e-9  # relative: a column whose squares are this even in all tasks is an intercept
LOGS = (-28.0, 28.0)  # least and greatest log of a ratio of variances
SCORED = 2000  # tasks whose gain is looked at; of more, some are drawn
ERRORS = 2.0  # standard errors by which the held-out gain must exceed zero
LONGEST = 1000  # rounds of a simulated task
WORK = 2e7  # numbers to draw or to update: as many tasks are simulated as that allows
SIMULATED = 200, 4000  # tasks, at least and at most
OFFERED = 10  # arms in each round


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
    noise = common.start_noise(float(rest.sum()), count - rank, float(pooled[-1, -1]))
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
    mu = linalg.condition(np.zeros(d), common.WIDE, total, h.sum(axis=0))
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
    goal = Point((factor + step * way) @ _root(psi), max(variance, common.LEAST))
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
    found = common.climb(partial(search, rows), Point(np.eye(d) / np.sqrt(d), frame.noise))
    m = messages(rows, found.point).m
    lost = unseen(m)
    if lost.shape[1] == d:
        raise ValueError("the log cannot tell how tasks differ: no two tasks tried the same")

    def known(point: Point) -> FloatArray:
        return filled(point.factor @ point.factor.T, lost, diagonal=diagonal)

    def score(train: IntArray, test: IntArray) -> FloatArray:
        """Held-out log density of Σ_0 fitted to other tasks, for every weight of its diagonal."""
        part = common.holding(partial(search, rows.subset(train)), found.point.variance)
        point, view, *_ = common.climb(part, found.point, enough=common.ENOUGH)
        cov, held = known(point), rows.subset(test)
        covs = [towards_diagonal(cov, weight) + view.mu_cov for weight in common.WEIGHTS]
        points = [Point(linalg.psd_factor(cov), point.variance) for cov in covs]
        return np.array([log_density(held, view.mu, p).sum() for p in points])

    weight = 1.0 if diagonal else common.best_weight(table.tasks, score)
    cov, v = towards_diagonal(known(found.point), weight), found.point.variance
    unidentified = lost_names(lost, frame.unit, table.features)
    if not diagonal:
        unidentified += lost_pairs(m, lost, table.features)
    view = look(rows, Point(linalg.psd_factor(cov), v))
    units, shift = np.outer(frame.unit, frame.unit), pulls * float(np.log(frame.spread))
    mu, mu_cov = frame.centre + frame.unit * view.mu, units * view.mu_cov
    noise = float(frame.spread * np.sqrt(v))
    few = (
        f"{len(table)} tasks are few for {d} features: below {ENOUGH_TASKS * d} Σ_0 is rough",
    ) * (len(table) < ENOUGH_TASKS * d)
    meta = LinearMeta(mu, mu_cov, task_cov=units * cov, noise=noise)
    prior = meta.task_prior()
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
        given=partial(_given, prior),
    )


def _given(prior: LinearBelief, table: LinearTable) -> tuple[FloatArray, FloatArray]:
    """Log density of each task's rewards, and the mean of theta after them."""
    density, means = np.empty(len(table)), np.empty((len(table), len(prior.mean)))
    for i in range(len(table)):
        found = prior.condition(table.stats(i))
        density[i], means[i] = found.log_evidence, found.belief.mean
    return density, means


# which directions of Σ_0 the log identifies, and names for those that it does not


def unseen(m: FloatArray) -> FloatArray:
    """Orthonormal columns, the directions with too few effective tasks; `m` are the M_s."""
    values, vectors = np.linalg.eigh(m.sum(axis=0))
    information = ((m @ vectors) * vectors).sum(axis=1)
    most = float(values[-1])
    effective = common.effective_tasks(
        information.sum(axis=0), (information**2).sum(axis=0), most=most
    )
    lost: FloatArray = vectors[:, effective < common.FEWEST]
    return lost


def filled(cov: FloatArray, lost: FloatArray, *, diagonal: bool) -> FloatArray:
    """Along lost directions the average variance of the others, uncorrelated with them.

    A diagonal Σ_0 is changed only where a whole feature is lost.
    """
    d, k = lost.shape
    gone = lost @ lost.T
    if diagonal:
        away, variances = gone.diagonal() > 1.0 - SMALL, cov.diagonal()
        return np.diag(np.where(away, variances[~away].mean(), variances))
    kept = np.eye(d) - gone
    seen = kept @ cov @ kept
    result: FloatArray = seen + (seen.trace() / (d - k)) * gone
    return (result + result.T) / 2


def lost_names(lost: FloatArray, unit: FloatArray, features: Sequence[str]) -> list[str]:
    """A name for each lost direction: a feature, or a combination of coefficients."""
    k = lost.shape[1]
    if k == 0:
        return []
    upper, order = qr(lost.T, mode="r", pivoting=True)
    rows = np.linalg.solve(upper[:, :k], upper)  # each begins with a feature of its own
    result = []
    for i, row in enumerate(rows):
        coefficients = row * unit[order] / unit[order[i]]
        terms = [features[order[i]]]
        for j in np.flatnonzero(np.abs(row) >= SMALL):
            if j != i:
                size = f"{abs(coefficients[j]):.2g}"
                terms += ["-" if row[j] < 0 else "+", *([] if size == "1" else [size])]
                terms.append(features[order[j]])
        result.append(" ".join(terms))
    return result


def lost_pairs(m: FloatArray, lost: FloatArray, features: Sequence[str]) -> list[str]:
    """Pairs of features that too few tasks tried both, so that their covariance is not known."""
    own = np.maximum(np.diagonal(m, axis1=1, axis2=2), 0.0)
    roots = np.sqrt(own)  # the information about a pair is the geometric mean of both
    effective = common.effective_tasks(
        roots.T @ roots, own.T @ own, most=float(own.sum(axis=0).max())
    )
    seen = (lost**2).sum(axis=1) < 0.5
    apart = np.triu((effective < common.FEWEST) & np.outer(seen, seen), 1)
    found = [f"{features[i]} and {features[j]}" for i, j in np.argwhere(apart)]
    if len(found) > PAIRS:
        return [f"the covariances of {len(found)} pairs of features, such as {found[0]}"]
    return [f"the covariance of {both}" for both in found]


def towards_diagonal(cov: FloatArray, weight: float) -> FloatArray:
    return (1.0 - weight) * cov + weight * np.diag(cov.diagonal())


# Is sharing worth it? The statistics do not say which arms were on offer, so tasks cannot be played
# again as `savings` does: held-out scores decide, and a simulation gives the size.


def linear_verdict(
    table: LinearTable, fitted: Fitted, *, diagonal: bool = False, seed: int
) -> Verdict:
    """Share, if held-out tasks gain more than two standard errors over both opponents and a new
    one saves 5 % of what either loses.

    `fitted` is what `fit_linear` made of the table with the same `diagonal`. A new task has as many
    rounds as the median task of the log, and ten arms a round with features like the log's.
    """
    if len(table) < FEWEST:
        return nothing(f"{len(table)} tasks are too few to tell; {FEWEST} are the least")
    if _no_choice(table):
        return nothing("all rows of features are the same, so that there is nothing to choose")
    try:
        alone, pooled = held_out_gains(table, diagonal=diagonal, seed=seed)
    except ValueError as error:  # what is left of the log is not enough for a fit
        return nothing(f"with a fifth of the tasks left out there is no fit: {error}")
    priors = (
        fitted.meta.task_prior(),
        alone_linear(table, fitted.noise),
        pooled_linear(table, fitted.noise),
    )
    rounds = max(1, min(round(float(np.median(table.n[table.n > 0]))), LONGEST))
    saved = simulated_savings(priors, rows=action_rows(table), rounds=rounds, seed=seed)
    few = len(table) < ENOUGH_TASKS * len(table.features)
    return judged((alone, pooled), saved, few=few)


def judged(
    gains: tuple[FloatArray, FloatArray], saved: tuple[Saving, Saving], *, few: bool
) -> Verdict:
    """The rule, in order: share; one for all; better than alone, but for nothing; cannot tell; each
    for itself. Gains and savings are those over each task alone, and over one agent for all."""
    (better, worse, likely), (apart, _, pool) = map(_compared, gains)
    over_alone, over_pooled = saved
    worst = min(saved, key=lambda saving: saving.part)
    worth = over_alone.part >= WORTH
    answer: Answer = "too little data"
    if better and worth and apart and over_pooled.part >= WORTH:
        answer = "share"
    elif better and worth and over_pooled.high < WORTH:
        answer = "one for all"
    elif (better and not worth) or (not better and not few and (worse or not worth)):
        answer, worst = "each for itself", over_alone
    how = "better" if better else "worse" if worse else "no better"
    if answer == "too little data" and not better:
        how = "neither clearly better nor clearly worse"
    reason = (
        f"the shared prior predicts tasks that it has not seen {how} than each could by itself: "
        f"their rewards are {likely} times as likely, a task on average, and {pool} times as "
        "likely as one set of coefficients for all makes them"
    )
    return Verdict(answer, None, worst.part, (worst.low, worst.high), (reason,), *saved)


def _compared(gains: FloatArray) -> tuple[bool, bool, str]:
    """Whether densities are higher, whether they are lower, and by what factor on average."""
    gain, se = float(gains.mean()), float(gains.std(ddof=1)) / math.sqrt(gains.size)
    return gain > ERRORS * se, gain < -ERRORS * se, f"{math.exp(min(gain, 50.0)):.3g}"


def _no_choice(table: LinearTable) -> bool:
    """Whether several features are the same in all rows. (One might change its sign.)"""
    gram = table.moments[:, :-1, :-1].sum(axis=0)
    size = np.sqrt(gram.diagonal())
    alike = np.abs(np.abs(gram) - np.outer(size, size)) <= EXACT * np.outer(size, size)
    return len(size) > 1 and bool(_even(table).all() and alike.all())


def held_out_gains(
    table: LinearTable, *, diagonal: bool, seed: int
) -> tuple[FloatArray, FloatArray]:
    """Log density of each task's rewards, fitted to the other folds: shared less alone, and less
    that with one theta for all."""
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(1,)))
    if len(table) > SCORED:
        table = table.subset(np.sort(rng.choice(len(table), SCORED, replace=False)))
    alone, pooled = np.empty((2, len(table)))
    for train, test in common.held_out(table.tasks):
        others, held = table.subset(train), table.subset(test)
        fitted = fit_linear(others, diagonal=diagonal)
        shared = fitted.log_density(held)
        alone[test] = shared - _given(alone_linear(others, fitted.noise), held)[0]
        pooled[test] = shared - _given(pooled_linear(others, fitted.noise), held)[0]
    return alone, pooled


def pooled_linear(table: LinearTable, noise: float | None) -> LinearBelief:
    """One theta for all tasks, by least squares; what no row tells of it is 0."""
    moments, sigma = table.moments.sum(axis=0), noise or 1.0
    unit = 1.0 / table.units
    inverse = np.linalg.pinv(moments[:-1, :-1] * np.outer(unit, unit), rcond=RANK, hermitian=True)
    inverse *= np.outer(unit, unit)
    cov = sigma**2 * (inverse + inverse.T) / 2
    return LinearBelief(inverse @ moments[:-1, -1], cov, sigma)


def alone_linear(table: LinearTable, noise: float | None) -> LinearBelief:
    """A task by itself: coefficients with one normal prior around zero, in units of features."""
    from scipy.optimize import minimize_scalar

    sigma = noise or 1.0
    size, mean = table.units, np.zeros(len(table.features))
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

    best = minimize_scalar(loss, bounds=LOGS, method="bounded")
    return LinearBelief.of(mean, np.diag(sigma * math.exp(best.x / 2) / size), sigma)


def intercept(table: LinearTable) -> int | None:
    """The only feature that has the same size in every row, if there is just one such."""
    even = _even(table)
    return int(even.argmax()) if even.sum() == 1 else None


def _even(table: LinearTable) -> BoolArray:
    """Which features have the same size in every row."""
    squares = np.diagonal(table.moments, axis1=1, axis2=2)[:, :-1]
    expected = table.n[:, None] * table.units**2
    return np.asarray((np.abs(squares - expected) <= EXACT * expected).all(axis=0))


def action_rows(table: LinearTable) -> tuple[FloatArray, FloatArray]:
    """Mean and factor of features drawn like those of the log: N(mean, factor @ factorᵀ)."""
    moment = table.moments[:, :-1, :-1].sum(axis=0) / table.n.sum()
    mean = np.zeros(len(moment))
    if (column := intercept(table)) is not None:
        mean = moment[column] / math.sqrt(moment[column, column])
    cov = moment - np.outer(mean, mean)
    if column is not None:
        cov[column] = cov[:, column] = 0.0
    return mean, linalg.psd_factor(cov)


def simulated_savings(
    priors: tuple[LinearBelief, LinearBelief, LinearBelief],
    *,
    rows: tuple[FloatArray, FloatArray],
    rounds: int,
    seed: int,
) -> tuple[Saving, Saving]:
    """Of sharing over alone and over pooled: Thompson sampling with these three priors on the same
    tasks, drawn from the shared one. The pooled one learns nothing more: it takes tasks for equal.

    In each round `OFFERED` arms, with features N(mean, factor @ factorᵀ) from `rows`.
    """
    dim, noise = len(priors[0].mean), priors[0].noise
    tasks = int(np.clip(WORK / (rounds * dim * (OFFERED + 6 * dim)), *SIMULATED))
    seeds = np.random.SeedSequence(seed).spawn(2)
    world, stream = (np.random.default_rng(one) for one in seeds)
    agents = [_Normal.start(prior, tasks) for prior in priors]
    theta = agents[0].sample(world.standard_normal((tasks, dim)))
    regret, every = np.zeros((3, tasks)), np.arange(tasks)
    for _ in range(rounds):
        offered = rows[0] + world.standard_normal((tasks, OFFERED, dim)) @ rows[1].T
        means = np.einsum("skd,sd->sk", offered, theta)
        luck = noise * world.standard_normal(tasks)
        z = stream.standard_normal((tasks, dim))
        for i, agent in enumerate(agents):
            arm = np.einsum("skd,sd->sk", offered, agent.sample(z)).argmax(axis=1)
            if i < 2:
                agents[i] = agent.tell(offered[every, arm], means[every, arm] + luck, noise)
            regret[i] += means.max(axis=1) - means[every, arm]
    least = LEAST * regret[1:].mean(axis=1)[::-1]
    alone, pooled = (saving_of(regret[0], regret[1 + i], float(least[i])) for i in (0, 1))
    return alone, pooled


def saving_of(shared: FloatArray, rival: FloatArray, least: float = 0.0) -> Saving:
    """From the regrets of the same tasks, with the error from their spread; none of no regret. The
    rival's counts as so much at `least`, on average."""
    gained, unit = rival - shared, rival + max(least - float(rival.mean()), 0.0)
    lost = float(unit.mean())
    if not lost > 0:
        return Saving(1.0, 0.0)
    part = float(gained.mean()) / lost
    error = float((gained - part * unit).std(ddof=1)) / math.sqrt(len(unit)) / lost
    return Saving(1.0 - part, error)


class _Normal(NamedTuple):
    """N(mean, factor @ factorᵀ) in every task; a reward is a rank-one update of the factor."""

    mean: FloatArray  # (tasks, d)
    factor: FloatArray  # (tasks, d, d)

    @classmethod
    def start(cls, prior: LinearBelief, tasks: int) -> "_Normal":
        """With the symmetric factor: then the same draws move two agents the same way."""
        left, values, _ = np.linalg.svd(prior.factor)
        root = (left * values) @ left.T
        return cls(np.tile(prior.mean, (tasks, 1)), np.tile(root, (tasks, 1, 1)))

    def sample(self, z: FloatArray) -> FloatArray:
        theta: FloatArray = self.mean + np.einsum("sij,sj->si", self.factor, z)
        return theta

    def tell(self, x: FloatArray, y: FloatArray, noise: float) -> "_Normal":
        """Potter's square-root update: nothing is factorised, singular covariances are legal."""
        f = np.einsum("sij,si->sj", self.factor, x)
        along = np.einsum("sij,sj->si", self.factor, f)
        variance = (f * f).sum(axis=1) + noise**2  # of the reward
        gain = along / variance[:, None]
        mean = self.mean + gain * (y - (x * self.mean).sum(axis=1))[:, None]
        share = 1.0 / (1.0 + noise / np.sqrt(variance))
        return _Normal(mean, self.factor - share[:, None, None] * gain[:, :, None] * f[:, None, :])
