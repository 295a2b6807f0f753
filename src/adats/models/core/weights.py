"""Weights of candidates in log space, and what mixtures share: means, spreads, quantiles."""

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import ndtr

from adats.models.core.types import FloatArray, IntArray, Rng

HALVINGS = 50  # of the interval that holds a quantile
LIGHT = 1e-12  # chances leave out a candidate of less weight


def log_of(weights: FloatArray) -> FloatArray:
    """Logarithms, with -inf for a weight of zero."""
    with np.errstate(divide="ignore"):
        logs: FloatArray = np.log(weights)
    return logs


def softmax(log_weights: FloatArray) -> FloatArray:
    """Weights that sum to one along the first axis."""
    weights: FloatArray = np.exp(log_weights - log_weights.max(axis=0))
    weights /= weights.sum(axis=0)
    return weights


def log_sum(logs: FloatArray, axis: int) -> FloatArray:
    """Log of the sum of exponentials, not all of which are 0: SciPy's takes ten times as long."""
    top = logs.max(axis=axis, keepdims=True)
    total: FloatArray = np.log(np.exp(logs - top).sum(axis=axis)) + top.squeeze(axis)
    return total


def draw(weights: FloatArray, rng: Rng) -> IntArray:
    """An index for each column of weights, with its probability."""
    cumulative = weights.cumsum(axis=0)
    points = rng.random(weights.shape[1]) * cumulative[-1]
    index: IntArray = (cumulative <= points).sum(axis=0)
    return np.minimum(index, len(weights) - 1)


def picks(weights: FloatArray, points: FloatArray) -> IntArray:
    """As `draw`, many times from the same weights; points are uniform between 0 and 1."""
    cumulative = np.cumsum(weights)
    index: IntArray = cumulative.searchsorted(points * cumulative[-1], side="right")
    return np.minimum(index, len(weights) - 1)


def average(weights: FloatArray, values: FloatArray) -> FloatArray:
    """Weighted sum over the first axis; what has no weight does not count, even if infinite."""
    average: FloatArray = (weights * np.where(weights > 0, values, 0.0)).sum(axis=0)
    return average


def spread(weights: FloatArray, means: FloatArray, scales: FloatArray) -> FloatArray:
    """Standard deviation of a mixture; infinite where a component's is."""
    centre = average(weights, means)
    endless = np.isinf(average(weights, scales))
    gaps = np.where(endless, 0.0, means) - np.where(endless, 0.0, centre)
    variances = np.where(endless, 0.0, scales) ** 2 + gaps**2
    return np.where(endless, np.inf, np.sqrt(average(weights, variances)))


def quantile(
    below: Callable[[FloatArray], FloatArray], parts: FloatArray, z: FloatArray | float
) -> FloatArray:
    """Between the least and the largest quantile of the parts lies that of the mixture."""
    level = ndtr(z)
    low: FloatArray = parts.min(axis=0)
    high: FloatArray = parts.max(axis=0)
    for _ in range(HALVINGS):
        middle = low + (high - low) / 2
        small = below(middle) < level
        low, high = np.where(small, middle, low), np.where(small, high, middle)
    return high


def finite_or_null(logs: FloatArray) -> Any:
    """JSON has no infinity: the logarithm of a zero weight is null."""
    return [finite_or_null(row) if row.ndim else _null(float(row)) for row in logs]


def _null(value: float) -> float | None:
    return None if value == -np.inf else value


def from_null(values: object) -> FloatArray:
    """Read what `finite_or_null` wrote."""
    if not isinstance(values, list):
        raise ValueError(f"the logarithms of weights are {values!r}")
    return np.array([_logs(value) for value in values], dtype=np.float64)


def _logs(value: Any) -> Any:
    if isinstance(value, list):
        return [_logs(part) for part in value]
    if value is not None and not value <= 1e-6:
        raise ValueError(f"the logarithm of a weight is {value}")
    return -np.inf if value is None else value
