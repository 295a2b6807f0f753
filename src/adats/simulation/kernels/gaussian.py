"""Gaussian arms."""

import math

import numpy as np

from adats.models.core.sums import two_sum
from adats.models.core.types import FloatArray, IntArray, Rng
from adats.models.gaussian.meta import arm_digest
from adats.simulation.kernels.common import compiled


@compiled
def gaussian_task(
    mean: FloatArray,
    scale: FloatArray,
    noise: FloatArray,
    theta: FloatArray,
    first: IntArray,
    draws: FloatArray,
    rng: Rng,
    regret: FloatArray,
) -> FloatArray:
    """Thompson sampling with Gaussian arms; fills `regret` and returns the statistics."""
    arms = mean.size
    table = np.zeros((3, arms))
    centre, spread = mean.copy(), scale.copy()
    best = theta.max()
    for t in range(regret.size):
        if t < len(first):
            arm = first[t, 0]
        else:
            arm, highest = 0, -np.inf
            for i in range(arms):
                value = centre[i] + spread[i] * rng.standard_normal()
                if value > highest:
                    arm, highest = i, value
        y = theta[arm] + noise[arm] * draws[t]
        pull(table, arm, y, mean, scale, noise, centre, spread)
        regret[t] = best - theta[arm]
    return table


@compiled
def pull(
    table: FloatArray,
    arm: int,
    y: float,
    mean: FloatArray,
    scale: FloatArray,
    noise: FloatArray,
    centre: FloatArray,
    spread: FloatArray,
) -> None:
    """Count one reward, and bring the posterior of its arm up to date."""
    table[0, arm] += 1.0
    table[1, arm] += y
    table[2, arm] += y * y
    ratio = (scale[arm] / noise[arm]) ** 2
    keep = 1.0 / (1.0 + table[0, arm] * ratio)
    centre[arm] = keep * (mean[arm] + ratio * table[1, arm])
    spread[arm] = scale[arm] * math.sqrt(keep)


_arm_digest = compiled(arm_digest)
_two_sum = compiled(two_sum)


@compiled
def gaussian_learn(
    table: FloatArray,
    constants: FloatArray,
    meta_mean: FloatArray,
    meta_variance: FloatArray,
    high: FloatArray,
    low: FloatArray,
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """`digest`, `absorb` and the meta-posterior of `GaussianMeta`, in one.

    Gives the compensated sum of messages, and the mean and variance of mu.
    """
    arms = table.shape[1]
    high, low = high.copy(), low.copy()
    mean, variance = np.empty(arms), np.empty(arms)
    for i in range(arms):
        told = _arm_digest(
            table[0, i],
            table[1, i],
            table[2, i],
            constants[0, i],
            constants[1, i],
            constants[2, i],
            constants[3, i],
        )
        for k in range(3):
            j = k * arms + i
            high[j], lost = _two_sum(high[j], told[k])
            low[j] += lost
        m, h = high[i] + low[i], high[arms + i] + low[arms + i]
        variance[i] = meta_variance[i] / (1.0 + meta_variance[i] * m)  # (eq. 2)
        mean[i] = meta_mean[i] + variance[i] * h  # (eq. 2)
    return high, low, mean, variance
