"""How likely each arm is the best, where arms are Gaussian and move together.

Over fixed points, each of which stands for a draw of all arms. At a point an arm does not win or
lose: given the other arms it is Gaussian still, so its chance to beat the best of them is known.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr, ndtri

from adats.models.core import linalg
from adats.models.core.types import FloatArray

POINTS = 1024
APART, LEAST_APART = 1e-9, 1e-20  # of the largest variance, added: no two arms are one and the same
LEAST = 1e-12  # a chance is never 0

Points = npt.NDArray[np.float32]


class Laws(NamedTuple):
    """N(means, covs) of all arms under each candidate, which are weighted."""

    weights: FloatArray  # (candidates,)
    means: FloatArray  # (candidates, arms)
    covs: FloatArray  # (candidates, arms, arms)

    def of(self, arms: npt.NDArray[np.intp] | None) -> "Laws":
        """Of some arms."""
        if arms is None:
            return self
        return Laws(self.weights, self.means[:, arms], self.covs[:, arms[:, None], arms])


@lru_cache(maxsize=8)
def _points(arms: int) -> Points:
    """Points spread as a standard normal is, more evenly than draws are; always the same.

    They are columns: multiples of the square roots of prime numbers, without their whole parts.
    """
    primes: list[int] = []
    number = 2
    while len(primes) < arms:
        if all(number % prime for prime in primes):
            primes.append(number)
        number += 1
    spread = (np.sqrt(primes)[:, None] * np.arange(1.0, POINTS + 1.0)) % 1.0
    points: Points = ndtri(np.clip(spread, 1e-9, 1 - 1e-9)).astype(np.float32)
    return points


def _each(values: FloatArray, ends: list[int]) -> Points:
    """What a candidate has, at all of its points."""
    counts = [end - start for start, end in zip([0, *ends], ends, strict=False)]
    found: Points = values.astype(np.float32).repeat(counts, axis=-1)
    return found


def _factors(laws: Laws) -> tuple[FloatArray, FloatArray, list[int]]:
    """Means and factors of all candidates, and where the points of each of them end."""
    covs = laws.covs.copy()
    diagonal = np.einsum("...ii->...i", covs)
    diagonal += APART * np.maximum.reduce(diagonal, axis=-1)[:, None] + LEAST_APART
    means = laws.means - np.maximum.reduce(laws.means, axis=-1)[:, None]
    ends = np.rint(np.add.accumulate(laws.weights) * POINTS).astype(np.intp)
    return means, linalg.definite_factors(covs), ends.tolist()


def _at_points(means: FloatArray, factors: FloatArray, ends: list[int]) -> Points:
    """A row for each arm: what every point stands for, with the candidate whose point it is."""
    points = _points(means.shape[1])
    values = np.empty_like(points)
    columns, lower = means.astype(np.float32)[..., None], factors.astype(np.float32)
    for j, (start, end) in enumerate(zip([0, *ends], ends, strict=False)):
        if end > start:
            np.add(lower[j].dot(points[:, start:end]), columns[j], out=values[:, start:end])
    return values


def best_chance(laws: Laws, arm: int) -> float:
    """That of one arm: within 10 % where it is above 0.01."""
    arms = laws.means.shape[1]
    if arms == 1:
        return 1.0
    order = np.arange(arms)
    order[arm], order[-1] = arms - 1, arm
    means, factors, ends = _factors(laws.of(order))
    scale = factors[:, -1, -1].copy()  # of the arm, which is the last now, given all others
    factors[:, -1, -1] = 0.0
    values = _at_points(means, factors, ends)
    gap = values[-1] - np.maximum.reduce(values[:-1])
    gap /= _each(scale, ends)
    return max(float(np.add.reduce(ndtr(gap), dtype=np.float64)) / POINTS, LEAST)


def best_chances(laws: Laws) -> FloatArray:
    """Those of all arms, which sum to 1: within 10 % where they are above 0.01."""
    means, factors, ends = _factors(laws)
    inverse = linalg.lower_inverses(factors)
    variance = 1.0 / (inverse * inverse).sum(axis=-2)  # of each arm given all others
    values = _at_points(means, factors, ends)
    own = _at_points(means, factors - variance[..., None] * np.swapaxes(inverse, -1, -2), ends)
    top = np.maximum.reduce(values)
    wins = values == top
    np.putmask(values, wins, -np.inf)
    own -= np.where(wins, np.maximum.reduce(values), top)
    own /= _each(np.sqrt(variance).T, ends)
    total = np.maximum(np.add.reduce(ndtr(own), axis=-1, dtype=np.float64), LEAST * POINTS)
    chances: FloatArray = total / total.sum()
    return chances
