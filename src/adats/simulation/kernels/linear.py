"""Linear bandits."""

import math

import numba
import numpy as np

from adats.models.core.types import FloatArray, IntArray, Rng
from adats.simulation.kernels.common import compiled


@compiled
def linear_task(
    mean: FloatArray,
    factor: FloatArray,
    noise: float,
    theta: FloatArray,
    features: FloatArray,
    first: IntArray,
    draws: FloatArray,
    rng: Rng,
    regret: FloatArray,
) -> tuple[float, FloatArray]:
    """Thompson sampling in a linear bandit; `features` has one set of arms, or one a round.

    theta = mean + factor u, and the precision of u is L D Lᵀ, with the mean of u in one more row
    of L. A pull is a rank-one update of both (without square roots), a sample one back
    substitution. Column j of L is row j of `columns`, so that every loop runs along memory.
    Arms that stay the same are taken to the space of u once, in `inner`.
    """
    dim, size = factor.shape
    arms, fixed = features.shape[1], len(features) == 1
    moments = np.zeros((dim + 1, dim + 1))
    columns, diagonal, scale = np.zeros((size, size + 1)), np.ones(size), np.ones(size)
    u, x, z = np.empty(size), np.empty(size + 1), np.empty(dim + 1)
    values, means, base, zero = np.empty(arms), np.empty(arms), np.empty(arms), np.zeros(arms)
    across, turned = np.ascontiguousarray(features[0].T), np.ascontiguousarray(factor.T)
    inner = turned @ across if fixed else turned
    scores(zero, across, theta, means)
    scores(zero, across, mean, base)
    best = means.max()
    counts, totals = np.zeros(arms), np.zeros(arms)
    for t in range(regret.size):
        if t > 0 and not fixed:
            across = np.ascontiguousarray(features[t].T)
            scores(zero, across, theta, means)
            scores(zero, across, mean, base)
            best = means.max()
        if t < len(first):
            arm = first[t, 0]
        else:
            for j in range(size):
                u[j] = columns[j, size] + rng.standard_normal() * scale[j]
            for j in range(size - 2, -1, -1):  # u = L⁻ᵀ (mean row + D^-½ z)
                u[j] -= dot(columns[j, j + 1 : size], u[j + 1 :])
            if fixed:
                scores(base, inner, u, values)
            else:
                scores(base, across, factor @ u, values)
            arm = largest(values)
        y = means[arm] + noise * draws[t]
        if fixed:
            counts[arm] += 1.0
            totals[arm] += y
            moments[dim, dim] += y * y
            for j in range(size):
                x[j] = inner[j, arm]
        else:
            z[:dim], z[dim] = across[:, arm], y
            add_outer(moments, z, 1.0)
            x[:size] = turned @ z[:dim]
        x[size] = y - base[arm]
        rank_one(columns, diagonal, scale, x, noise)
        regret[t] = best - means[arm]
    for arm in range(arms):
        if counts[arm] > 0.0:
            z[:dim], z[dim] = across[:, arm], totals[arm] / counts[arm]
            squares = moments[dim, dim]
            add_outer(moments, z, counts[arm])
            moments[dim, dim] = squares
    return float(regret.size), moments


@compiled
def rank_one(
    columns: FloatArray, diagonal: FloatArray, scale: FloatArray, x: FloatArray, noise: float
) -> None:
    """L D Lᵀ + x xᵀ / noise², and D^-½ in `scale`; x is used up."""
    size = diagonal.size
    weight = 1.0 / (noise * noise)
    for j in range(size):
        p, old = x[j], diagonal[j]
        diagonal[j] = old + weight * p * p
        share = 1.0 / diagonal[j]
        gain = weight * p * share
        weight *= old * share
        scale[j] = math.sqrt(share)
        for i in range(j + 1, size + 1):
            x[i] -= p * columns[j, i]
            columns[j, i] += gain * x[i]


@compiled
def add_outer(moments: FloatArray, z: FloatArray, weight: float) -> None:
    for i in range(z.size):
        for j in range(z.size):
            moments[i, j] += weight * z[i] * z[j]


@numba.njit(cache=True, fastmath={"reassoc", "contract"})
def dot(a: FloatArray, b: FloatArray) -> float:
    total = 0.0
    for i in range(a.size):
        total += a[i] * b[i]
    return total


@compiled
def scores(base: FloatArray, across: FloatArray, point: FloatArray, out: FloatArray) -> None:
    """base + features @ point, with the features across, so that the inner loop is over arms.

    Four features are added at a time: `out` is read and written less often.
    """
    out[:] = base
    whole = point.size // 4 * 4
    for i in range(0, whole, 4):
        first, second, third, fourth = across[i], across[i + 1], across[i + 2], across[i + 3]
        a, b, c, d = point[i], point[i + 1], point[i + 2], point[i + 3]
        for k in range(out.size):
            out[k] += (first[k] * a + second[k] * b) + (third[k] * c + fourth[k] * d)
    for i in range(whole, point.size):
        weight = point[i]
        for k in range(out.size):
            out[k] += across[i, k] * weight


@compiled
def largest(values: FloatArray) -> int:
    """The first index of the largest value; faster than argmax, which looks for NaN."""
    arm, highest = 0, values[0]
    for k in range(1, values.size):
        if values[k] > highest:
            arm, highest = k, values[k]
    return arm
