"""How likely each arm is the best, where arms are Gaussian and move together.

Over fixed points, each of which stands for a draw of all arms. At a point an arm does not win or
lose: given the other arms it is Gaussian still, so its chance to beat the best of them is known.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.linalg import lapack
from scipy.special import ndtr, ndtri

from adats.models.core import linalg
from adats.models.core.types import FloatArray

POINTS = 2048
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

    They are columns: multiples of powers of the root of x^(arms + 1) = x + 1, as the golden ratio
    for one arm.
    """
    root = 2.0
    for _ in range(60):
        root = (1.0 + root) ** (1.0 / (arms + 1))
    steps = root ** -np.arange(1.0, arms + 1.0)
    spread = (0.5 + steps[:, None] * np.arange(1.0, POINTS + 1.0)) % 1.0
    points: Points = ndtri(np.clip(spread, 1e-9, 1 - 1e-9)).astype(np.float32)
    return points


def _shares(laws: Laws) -> Iterator[tuple[FloatArray, FloatArray, Points]]:
    """Mean and factor of each candidate, with its share of the points."""
    points = _points(laws.means.shape[1])
    start = 0
    for j, end in enumerate(np.rint(np.cumsum(laws.weights) * POINTS).astype(np.intp).tolist()):
        if end > start:
            mean, cov = laws.means[j], laws.covs[j].copy()
            diagonal = np.einsum("ii->i", cov)
            diagonal += APART * diagonal.max() + LEAST_APART
            yield mean - mean.max(), linalg.psd_factor(cov), points[:, start:end]
        start = end


def _beats(gap: Points, variance: FloatArray) -> FloatArray:
    """The sum over points of the chance that a Gaussian with this mean is above 0."""
    scale = np.sqrt(variance).astype(np.float32)
    chances: FloatArray = np.add.reduce(ndtr(gap / scale), axis=-1, dtype=np.float64)
    return chances


def best_chance(laws: Laws, arm: int) -> float:
    """That of one arm: within 10 % where it is above 0.01."""
    total = 0.0
    for mean, lower, points in _shares(laws):
        unit = np.zeros(mean.size)
        unit[arm] = 1.0
        known, _ = lapack.dtrtrs(lower, unit, 1)
        variance = 1.0 / known.dot(known)  # given all other arms
        values = lower.astype(np.float32).dot(points)
        values += mean[:, None].astype(np.float32)
        own = values[arm] - (variance * known).astype(np.float32).dot(points)
        values[arm] = -np.inf
        total += float(_beats(own - np.maximum.reduce(values), variance))
    return max(total / POINTS, LEAST)


def best_chances(laws: Laws) -> FloatArray:
    """Those of all arms, which sum to 1: within 10 % where they are above 0.01."""
    total = np.zeros(laws.means.shape[1])
    for mean, lower, points in _shares(laws):
        inverse, _ = lapack.dtrtri(lower, 1)
        variance = 1.0 / (inverse * inverse).sum(axis=0)  # of each arm given all others
        middle = mean[:, None].astype(np.float32)
        values = lower.astype(np.float32).dot(points)
        values += middle
        own = (lower - variance[:, None] * inverse.T).astype(np.float32).dot(points)
        own += middle
        top = np.maximum.reduce(values)
        wins = values == top
        values[wins] = -np.inf
        own -= np.where(wins, np.maximum.reduce(values), top)
        total += _beats(own, variance[:, None])
    total = np.maximum(total, LEAST * POINTS)
    chances: FloatArray = total / total.sum()
    return chances
