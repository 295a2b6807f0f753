"""What all fits share: what they return, EM that never goes down, and folds that choose.

EM stretches its steps as long as that helps. Formulas and names: docs/math/fitting.md.
"""

import math
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from adats.models.core.linalg import psd_factor
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
ENOUGH_TASKS = 5  # for every dimension of a covariance
FEWEST = 1.0  # effective tasks; a direction with less is not identified
NOTHING = 1e-9  # of the information about the best known direction: as good as none


class RewardFigures(NamedTuple):
    """Of each arm on the scale of rewards; of a linear model, of each coefficient."""

    mean: FloatArray  # over tasks
    between: FloatArray  # variance of the mean reward between tasks
    unknown: FloatArray  # variance of what is not known about `mean`


@dataclass(frozen=True, eq=False)
class Fitted:
    """A prior learned from a log, and what there is to say about it."""

    meta: Any  # fresh: it goes on learning
    mu: FloatArray  # mean of the meta-posterior: of rewards, or of theta where that is on a link
    mu_cov: FloatArray  # and its covariance
    task_cov: FloatArray  # Σ_0
    noise: float | None  # σ; None for binary rewards and counts, which have no σ of their own
    log_evidence: float  # log density of all rewards, mu integrated out
    curve: FloatArray  # log likelihood by EM iteration, before shrinkage; empty for grids
    shrinkage: float | None  # weight of the simpler Σ_0; None where no folds chose it
    unidentified: tuple[str, ...]  # what the log cannot tell
    warnings: tuple[str, ...]
    rewards: RewardFigures
    # of other tasks with the same arms: the log density of each one's rewards, and the mean of
    # theta (of the rewards of arms) after them
    given: Callable[[Any], tuple[FloatArray, FloatArray]] = field(repr=False)
    stats: Callable[[Any, int], Any] | None = field(default=None, repr=False)  # as the model's
    designs: FloatArray | None = field(default=None, repr=False)  # of tasks that have their own
    words: str = ""  # how tasks differ, in a sentence, where there is more to say than spreads
    about: dict[str, Any] = field(default_factory=dict)  # for the prior file

    def log_density(self, table: Any) -> FloatArray:
        """Of the rewards of each task of another table with the same arms."""
        return self.given(table)[0]

    def means(self, table: Any) -> FloatArray:
        """Of theta, or of the rewards of arms, after the rewards of each task."""
        return self.given(table)[1]


def prior_of_others(table: Any, fitted: Fitted, i: int) -> Any:
    """The prior of a task from all the others: what the task itself said is taken out again."""
    meta = fitted.meta
    design = None if fitted.designs is None else fitted.designs[i]
    stats = meta.empty() + table.stats(i) if fitted.stats is None else fitted.stats(table, i)
    digest = meta.digest(stats, design=design)
    return meta.absorb(-digest.message).task_prior(design=design)


# how much tasks differ, and how much rewards scatter within one


class Worth(NamedTuple):
    """Variances of a reward, one entry an arm; of a linear model, one a direction.

    Directions are those of the features as the log has them, the most uncertain one first, and
    their variances add up to what tasks differ by in the reward of an average row.
    """

    between: FloatArray  # of the mean reward, between tasks: σ_0²
    unknown: FloatArray  # what is not known about mu
    within: FloatArray  # of a reward around its mean: σ²

    @property
    def pulls(self) -> FloatArray:
        """Pulls that tell a task as much as the prior does: σ² over the prior's variance."""
        prior = self.between + self.unknown
        return np.where(prior > 0, self.within / np.where(prior > 0, prior, 1.0), np.inf)

    @property
    def typical(self) -> float:
        """The same over all arms or directions: their harmonic mean."""
        with np.errstate(divide="ignore"):
            return float(1.0 / (1.0 / self.pulls).mean())


def worth(table: Any, fitted: Fitted) -> Worth:
    """What tasks differ by, and what a prior is worth beside the noise of rewards."""
    mean, between, unknown = fitted.rewards
    if table.arms is not None:
        within = table.kind.within(mean, between + unknown, fitted.noise)
        return Worth(between, unknown, within)
    moment = table.moments[:, :-1, :-1].sum(axis=0) / table.n.sum()
    root = psd_factor(moment)
    _, ways = np.linalg.eigh(root.T @ (fitted.task_cov + fitted.mu_cov) @ root)
    ways = root @ ways[:, ::-1]
    between = (ways * (fitted.task_cov @ ways)).sum(axis=0)
    unknown = (ways * (fitted.mu_cov @ ways)).sum(axis=0)
    return Worth(between, unknown, np.full(between.shape, (fitted.noise or 1.0) ** 2))


# the search: EM from a start to the top


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


# folds: what predicts other tasks best


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


def effective_tasks(total: FloatArray, squares: FloatArray, *, most: float) -> FloatArray:
    """How many tasks told a spread, one less for the unknown mean.

    From the information a of the tasks about mu: tasks that tell much less than others count for
    less, (Σa)²/Σa² - 1, with `total` Σa and `squares` Σa². What is nothing against `most` is none.
    """
    known = total > NOTHING * most
    count = np.where(known, total**2 / np.where(known, squares, 1.0), 0.0)
    effective: FloatArray = np.maximum(count - 1.0, 0.0)
    return effective
