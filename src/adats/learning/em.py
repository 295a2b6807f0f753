"""What fits of numbers share: EM that never goes down, with steps stretched as long as that helps;
shrinkage of Σ_0; and which directions of Σ_0 a log cannot tell."""

import math
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from scipy.linalg import qr

from adats.models.core.types import FloatArray, IntArray, Task

CONVERGED = 1e-6  # the log likelihood gains less than this, and than this share of its size
ROUND_OFF = 1e-14  # share of the log likelihood that is lost where Σ_0 is as large as σ²
MOST = 2000  # iterations
STRETCH, LONGEST = 1.5, 50.0  # growth of the stretch, and its end
WIDE = 100.0  # standard deviation of mu around the pooled fit, where rewards spread by 1
LEAST, GREATEST = 1e-12, 1e4  # of σ², in the same units
FOLDS = 5
WEIGHTS = np.linspace(0.0, 1.0, 11)
ENOUGH = 0.1  # a fit to a part of the tasks stops at this gain of its log likelihood
FEWEST = 1.0  # effective tasks; a direction with less is not identified
NOTHING = 1e-9  # of the information about the best known direction: as good as none
SMALL = 0.05  # coefficients below it are left out of a name
PAIRS = 10  # so many pairs are named one by one


class Point(NamedTuple):
    """Σ_0 and σ², as the search moves them."""

    factor: FloatArray  # L, with L Lᵀ = Σ_0; for arms σ_0 of each
    variance: float  # σ²


class View(NamedTuple):
    """What the log says at one point, mu integrated out. Matrices are vectors for arms."""

    log_likelihood: float
    mu: FloatArray
    mu_cov: FloatArray
    slope: FloatArray  # derivative of the log likelihood by Σ_0
    slope_variance: float  # and by σ²
    next: Point  # where EM goes


class Climb(NamedTuple):
    point: Point
    view: View
    curve: FloatArray  # log likelihood by iteration
    converged: bool

    @property
    def warnings(self) -> tuple[str, ...]:
        """Where the search came to no end."""
        if self.converged:
            return ()
        return (f"EM had not converged after {len(self.curve)} iterations",)


def climb(look: Callable[[Point], View], start: Point, *, enough: float = CONVERGED) -> Climb:
    """EM from `start` to the top, where a step gains less than `enough`.

    Steps are stretched while the likelihood rises, and taken back to plain EM where it falls, so
    the curve never falls. It would be an error of the program if plain EM fell.
    """
    point, view = start, look(start)
    curve, stretch = [view.log_likelihood], 1.0
    for _ in range(MOST):
        goal, plain = _stretched(point, view.next, stretch), stretch == 1.0
        seen = look(goal)
        if not plain and not seen.log_likelihood >= curve[-1]:
            stretch, goal, plain = 1.0, view.next, True
            seen = look(goal)
        else:
            stretch = min(stretch * STRETCH, LONGEST)
        gain = seen.log_likelihood - curve[-1]
        if not gain >= -_round_off(curve[-1], point):
            raise ArithmeticError(f"the log likelihood fell by {-gain} from {curve[-1]}")
        if gain > 0.0:
            point, view = goal, seen
            curve.append(seen.log_likelihood)
        if gain <= enough * min(1.0, abs(curve[-1])):
            if plain:
                return Climb(point, view, np.array(curve), True)
            stretch = 1.0  # a long step may gain little where a plain one still gains
    return Climb(point, view, np.array(curve), False)


def holding(look: Callable[[Point], View], variance: float) -> Callable[[Point], View]:
    """The same search with σ² held: for a part of the tasks that may not tell it."""

    def held(point: Point) -> View:
        view = look(point)
        return view._replace(next=Point(view.next.factor, variance))

    return held


def _round_off(log_likelihood: float, point: Point) -> float:
    ratio = float((point.factor**2).sum()) / point.variance
    return ROUND_OFF * (1e3 + ratio) * (1.0 + abs(log_likelihood))


def _stretched(old: Point, new: Point, by: float) -> Point:
    if by == 1.0:
        return new
    log = math.log(old.variance) + by * math.log(new.variance / old.variance)
    variance = math.exp(min(max(log, math.log(LEAST)), math.log(GREATEST)))
    return Point(old.factor + by * (new.factor - old.factor), variance)


def start_noise(rest: float, degrees: float, squares: float) -> float:
    """σ² from what no theta explains; `squares` is the sum of the squared rewards themselves."""
    if squares == 0:
        raise ValueError("the log has no rewards but zeros, so there is nothing to learn from")
    if degrees <= 0:
        raise ValueError(
            "the noise is not identifiable: no task pulled anything twice, so noise looks like a "
            "difference of tasks; log some tasks with more pulls than different actions"
        )
    if rest <= LEAST * squares:
        raise ValueError(
            f"the noise is not identifiable: within tasks the rewards leave a sum of squares of "
            f"{rest:.3g} in {degrees:.0f} degrees of freedom, nothing against the {squares:.3g} of "
            "the rewards; if these have a large common level, subtract it from all of them"
        )
    return rest / degrees


# shrinkage: how far to pull Σ_0 towards a simpler one; what predicts other tasks best


def best_weight(tasks: Sequence[Task], score: Callable[[IntArray, IntArray], FloatArray]) -> float:
    """The weight of the simpler estimate under which held-out tasks are most likely.

    `score` fits to the tasks of the first index and returns the log density of those of the
    second, for each of `WEIGHTS`. Of weights that are equally good the largest is taken, and
    with fewer tasks than folds, 1.
    """
    if len(tasks) < FOLDS:
        return 1.0
    total = np.zeros(len(WEIGHTS))
    for train, test in held_out(tasks):
        total += score(train, test)
    close = total >= total.max() - 1e-9 * (1.0 + abs(total.max()))
    return float(WEIGHTS[np.flatnonzero(close)[-1]])


def held_out(tasks: Sequence[Task]) -> Iterator[tuple[IntArray, IntArray]]:
    """For every fold the places of the tasks outside it, and of those in it."""
    place = folds(tasks)
    return ((np.flatnonzero(place != k), np.flatnonzero(place == k)) for k in range(FOLDS))


def folds(tasks: Sequence[Task]) -> IntArray:
    """The fold of every task: by its name, so that it does not depend on the order of tasks."""
    order = sorted(range(len(tasks)), key=lambda i: (zlib.crc32(repr(tasks[i]).encode()), tasks[i]))
    place = np.empty(len(tasks), dtype=np.intp)
    place[order] = np.arange(len(tasks)) % FOLDS
    return place


def towards_diagonal(cov: FloatArray, weight: float) -> FloatArray:
    return (1.0 - weight) * cov + weight * np.diag(cov.diagonal())


def towards_common(variances: FloatArray, effective: FloatArray, weight: float) -> FloatArray:
    """Variances of arms pulled towards their average, weighted by the tasks that told them.

    The weight of the average is at least 1 / (1 + effective tasks), as if one more task had
    shown it, and 1 for an arm with less than one effective task.
    """
    common = float(np.average(variances, weights=effective if effective.any() else None))
    least = np.where(effective < 1.0, 1.0, 1.0 / (1.0 + effective))
    weights = np.maximum(weight, least)
    return (1.0 - weights) * variances + weights * common


# which directions of Σ_0 the log identifies, and names for those that it does not


def effective_tasks(total: FloatArray, squares: FloatArray, *, most: float) -> FloatArray:
    """How many tasks told a spread, one less for the unknown mean.

    From the information a of the tasks about mu: tasks that tell much less than others count for
    less, (Σa)²/Σa² - 1, with `total` Σa and `squares` Σa². What is nothing against `most` is none.
    """
    known = total > NOTHING * most
    count = np.where(known, total**2 / np.where(known, squares, 1.0), 0.0)
    effective: FloatArray = np.maximum(count - 1.0, 0.0)
    return effective


def unseen(m: FloatArray) -> FloatArray:
    """Orthonormal columns, the directions with too few effective tasks; `m` are the M_s."""
    values, vectors = np.linalg.eigh(m.sum(axis=0))
    told = ((m @ vectors) * vectors).sum(axis=1)
    most = float(values[-1])
    effective = effective_tasks(told.sum(axis=0), (told**2).sum(axis=0), most=most)
    lost: FloatArray = vectors[:, effective < FEWEST]
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
    effective = effective_tasks(roots.T @ roots, own.T @ own, most=float(own.sum(axis=0).max()))
    seen = (lost**2).sum(axis=1) < 0.5
    apart = np.triu((effective < FEWEST) & np.outer(seen, seen), 1)
    found = [f"{features[i]} and {features[j]}" for i, j in np.argwhere(apart)]
    if len(found) > PAIRS:
        return [f"the covariances of {len(found)} pairs of features, such as {found[0]}"]
    return [f"the covariance of {both}" for both in found]
