"""Expectation maximisation that never goes down, with steps stretched as long as that helps."""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from adats.models.core.types import FloatArray

CONVERGED = 1e-6  # the log likelihood gains less than this, and than this share of its size
ROUND_OFF = 1e-14  # share of the log likelihood that is lost where Σ_0 is as large as σ²
MOST = 2000  # iterations
STRETCH, LONGEST = 1.5, 50.0  # growth of the stretch, and its end
WIDE = 100.0  # standard deviation of mu around the pooled fit, where rewards spread by 1
LEAST, GREATEST = 1e-12, 1e4  # of σ², in the same units


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
