"""Mixtures of whole models: Gaussian arms and linear bandits whose spread or noise is unknown.

A round draws one of the models by its weight, then theta from its posterior. Every reward brings
all posteriors up to date, and the log weights by its predictive density under each model.
"""

import math

import numpy as np

from adats.models.core.types import FloatArray, IntArray, Rng
from adats.simulation.kernels.common import compiled
from adats.simulation.kernels.linear import add_outer, dot, scores


@compiled
def gaussian_models_task(
    log_weights: FloatArray,
    mean: FloatArray,
    scale: FloatArray,
    noise: FloatArray,
    sigma: float,
    theta: FloatArray,
    first: IntArray,
    draws: FloatArray,
    rng: Rng,
    regret: FloatArray,
) -> FloatArray:
    """Gaussian arms: a row of `mean`, `scale` and `noise` a model; `sigma` is the true noise."""
    models, arms = mean.shape
    table = np.zeros((3, arms))
    logs, cumulative = log_weights.copy(), np.empty(models)
    centre, variance = mean.copy(), scale**2
    best = theta.max()
    for t in range(regret.size):
        if t < len(first):
            arm = first[t, 0]
        else:
            j = _pick(logs, cumulative, rng.random())
            arm, highest = 0, -np.inf
            for i in range(arms):
                value = centre[j, i] + math.sqrt(variance[j, i]) * rng.standard_normal()
                if value > highest:
                    arm, highest = i, value
        y = theta[arm] + sigma * draws[t]
        for j in range(models):
            square = noise[j, arm] ** 2
            spread = variance[j, arm] + square  # of the reward, theta integrated out
            gap = y - centre[j, arm]
            logs[j] -= 0.5 * (math.log(spread) + gap * gap / spread)
            centre[j, arm] += variance[j, arm] / spread * gap
            variance[j, arm] *= square / spread
        table[0, arm] += 1.0
        table[1, arm] += y
        table[2, arm] += y * y
        regret[t] = best - theta[arm]
    return table


@compiled
def linear_models_task(
    log_weights: FloatArray,
    mean: FloatArray,
    factor: FloatArray,
    noise: FloatArray,
    sigma: float,
    theta: FloatArray,
    features: FloatArray,
    first: IntArray,
    draws: FloatArray,
    rng: Rng,
    regret: FloatArray,
) -> tuple[float, FloatArray]:
    """Linear bandits, with a mean, a factor and a noise a model; `sigma` is the true noise.

    As in `linear_task`, theta = mean + factor u in every model, with L D Lᵀ the precision of u.
    """
    models, dim, size = factor.shape
    arms = features.shape[1]
    moments, z = np.zeros((dim + 1, dim + 1)), np.empty(dim + 1)
    columns, diagonal = np.zeros((models, size, size + 1)), np.ones((models, size))
    turned = np.empty((models, size, dim))
    for j in range(models):
        turned[j] = factor[j].T
    logs, cumulative = log_weights.copy(), np.empty(models)
    u, x, point = np.empty(size), np.empty(size + 1), np.empty(dim)
    values, means, zero = np.empty(arms), np.empty(arms), np.zeros(arms)
    across = np.empty((dim, arms))
    for t in range(regret.size):
        if t == 0 or len(features) > 1:
            across[:] = features[t].T
            scores(zero, across, theta, means)
        if t < len(first):
            arm = first[t, 0]
        else:
            j = _pick(logs, cumulative, rng.random())
            for i in range(size):
                u[i] = columns[j, i, size] + rng.standard_normal() / math.sqrt(diagonal[j, i])
            for i in range(size - 2, -1, -1):  # u = L⁻ᵀ (mean row + D^-½ z)
                u[i] -= dot(columns[j, i, i + 1 : size], u[i + 1 :])
            scores(mean[j], turned[j], u, point)
            scores(zero, across, point, values)
            arm = int(values.argmax())
        y = means[arm] + sigma * draws[t]
        z[:dim], z[dim] = across[:, arm], y
        add_outer(moments, z, 1.0)
        for j in range(models):
            for i in range(size):
                x[i] = dot(turned[j, i], z[:dim])
            x[size] = y - dot(mean[j], z[:dim])
            weight = _update(columns[j], diagonal[j], x, 1.0 / noise[j] ** 2)
            logs[j] += 0.5 * (math.log(weight) - weight * x[size] ** 2)
        regret[t] = means.max() - means[arm]
    return float(regret.size), moments


@compiled
def _update(columns: FloatArray, diagonal: FloatArray, x: FloatArray, weight: float) -> float:
    """L D Lᵀ + weight x xᵀ, with the mean of u in one more row of L.

    Leaves in the last entry of x how far the reward was from its prediction, and returns the
    precision of that prediction.
    """
    size = diagonal.size
    for j in range(size):
        p, old = x[j], diagonal[j]
        diagonal[j] = old + weight * p * p
        gain = weight * p / diagonal[j]
        weight *= old / diagonal[j]
        for i in range(j + 1, size + 1):
            x[i] -= p * columns[j, i]
            columns[j, i] += gain * x[i]
    return weight


@compiled
def _pick(logs: FloatArray, cumulative: FloatArray, point: float) -> int:
    """An index whose probability is proportional to exp(logs)."""
    top, total = logs.max(), 0.0
    for j in range(logs.size):
        total += math.exp(logs[j] - top)
        cumulative[j] = total
    index = 0
    while index < logs.size - 1 and cumulative[index] <= point * total:
        index += 1
    return index
