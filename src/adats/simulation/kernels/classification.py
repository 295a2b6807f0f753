"""Online classification: a linear bandit whose arms are pictures, new ones in every round."""

import numpy as np

from adats.models.core.types import FloatArray, IntArray, Rng
from adats.simulation.kernels.common import compiled
from adats.simulation.kernels.linear import add_outer, dot, rank_one


@compiled
def classification_task(
    mean: FloatArray,
    factor: FloatArray,
    noise: float,
    chances: FloatArray,
    features: FloatArray,
    images: IntArray,
    draws: FloatArray,
    rng: Rng,
    pulled: IntArray,
) -> tuple[float, FloatArray]:
    """Thompson sampling among `images[t]`, numbers of rows of `features`; fills `pulled`.

    The reward is 1 with the chance of the picture. The belief is kept as in `linear_task`: theta =
    mean + factor u, the precision of u is L D Lᵀ, the mean of u is one more row of L, and column j
    of L is row j of `columns`.
    """
    dim, size = factor.shape
    turned = np.ascontiguousarray(factor.T)
    moments = np.zeros((dim + 1, dim + 1))
    columns, diagonal, scale = np.zeros((size, size + 1)), np.ones(size), np.ones(size)
    theta, u, x, z = np.empty(dim), np.empty(size), np.empty(size + 1), np.empty(dim + 1)
    for t in range(pulled.size):
        for j in range(size):
            u[j] = columns[j, size] + rng.standard_normal() * scale[j]
        for j in range(size - 2, -1, -1):  # u = L⁻ᵀ (mean row + D^-½ z)
            u[j] -= dot(columns[j, j + 1 : size], u[j + 1 :])
        theta[:] = mean
        for j in range(size):
            for i in range(dim):
                theta[i] += turned[j, i] * u[j]
        best = -np.inf
        for image in images[t]:
            value = dot(features[image], theta)
            if value > best:
                best, pulled[t] = value, image
        z[:dim] = features[pulled[t]]
        z[dim] = 1.0 if draws[t] < chances[pulled[t]] else 0.0
        add_outer(moments, z, 1.0)
        for j in range(size):
            x[j] = dot(turned[j], z[:dim])
        x[size] = z[dim] - dot(mean, z[:dim])
        rank_one(columns, diagonal, scale, x, noise)
    return float(pulled.size), moments
