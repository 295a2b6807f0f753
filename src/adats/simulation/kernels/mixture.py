"""Bernoulli and Poisson arms with a mixture of priors."""

import math

import numpy as np

from adats.models.core.types import FloatArray, IntArray, Rng
from adats.simulation.kernels.common import compiled


@compiled
def mixture_task(
    counts: bool,
    weights: FloatArray,
    shape: FloatArray,
    rate: FloatArray,
    theta: FloatArray,
    first: IntArray,
    draws: FloatArray,
    rng: Rng,
    regret: FloatArray,
) -> FloatArray:
    """Bernoulli arms with beta candidates, or Poisson `counts` with gamma candidates.

    `weights` has one column, or one an arm; they are multiplied by the density of each reward and
    made to sum to one again, so that nothing underflows.
    """
    candidates, groups = weights.shape
    arms = theta.size
    weights = weights.copy()
    table = np.zeros((4 if counts else 3, arms))
    picks = np.zeros(arms, dtype=np.int64)
    best = theta.max()
    for t in range(regret.size):
        if t < len(first):
            arm = first[t, 0]
        else:
            for g in range(groups):
                picks[g] = _draw(weights[:, g], rng.random())
            arm, highest = 0, -np.inf
            for k in range(arms):
                j = picks[k if groups > 1 else 0]
                pulls, total = table[0, k], table[1, k]
                if counts:
                    value = rng.standard_gamma(shape[j, k] + total) / (rate[j, k] + pulls)
                else:
                    value = rng.beta(shape[j, k] + total, rate[j, k] + pulls - total)
                if value > highest:
                    arm, highest = k, value
        pulls, total = table[0, arm], table[1, arm]
        g = arm if groups > 1 else 0
        if counts:
            y = _poisson(theta[arm], draws[t])
            table[3, arm] += math.lgamma(y + 1.0)
        else:
            y = 1.0 if draws[t] < theta[arm] else 0.0
        if groups and counts:
            top = -np.inf
            logs = np.empty(candidates)
            for j in range(candidates):
                a, b = shape[j, arm] + total, rate[j, arm] + pulls
                logs[j] = math.lgamma(a + y) - math.lgamma(a)
                logs[j] += a * math.log(b / (b + 1.0)) - y * math.log(b + 1.0)
                if weights[j, g] > 0.0:
                    top = max(top, logs[j])
            for j in range(candidates):
                if weights[j, g] > 0.0:
                    weights[j, g] *= math.exp(logs[j] - top)
        elif groups:
            for j in range(candidates):
                a, b = shape[j, arm] + total, rate[j, arm] + pulls - total
                weights[j, g] *= (a if y > 0.0 else b) / (a + b)
        if groups:
            weights[:, g] /= weights[:, g].sum()
        table[0, arm] += 1.0
        table[1, arm] += y
        table[2, arm] += y * y
        regret[t] = best - theta[arm]
    return table


@compiled
def _draw(weights: FloatArray, point: float) -> int:
    """The index at which the cumulative weights pass the point."""
    cumulative = weights.cumsum()
    goal = point * cumulative[-1]
    index = 0
    while index < weights.size - 1 and cumulative[index] <= goal:
        index += 1
    return index


@compiled
def _poisson(mean: float, point: float) -> float:
    """The smallest count whose distribution function reaches the point."""
    count = max(0.0, math.floor(mean - 12.0 * math.sqrt(mean) - 12.0))
    mass = math.exp(count * math.log(mean) - mean - math.lgamma(count + 1.0))
    total = mass
    while total < point and (mass > 0.0 or count < mean):
        count += 1.0
        mass *= mean / count
        total += mass
    return count
