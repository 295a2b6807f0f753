"""A covariance C = UᵀU kept as its Cholesky factor, whose transpose U has zeros below its diagonal.

What is learned about xᵀtheta changes it by a rank of one, in as many steps as U has entries.
"""

import math

import numpy as np

from adats.models.core.types import FloatArray, Rng
from adats.simulation.kernels.common import compiled

LIGHT = -20.0  # log of a weight, beside the best: such candidates sit a task out


@compiled
def factorised(cov: FloatArray) -> FloatArray:
    """U; the covariance may be singular."""
    size = len(cov)
    upper = np.zeros((size, size))
    for j in range(size):
        for i in range(j, size):
            upper[j, i] = cov[j, i]
        for k in range(j):
            for i in range(j, size):
                upper[j, i] -= upper[k, j] * upper[k, i]
        diagonal = math.sqrt(max(upper[j, j], 1e-300))
        upper[j, j] = diagonal
        for i in range(j + 1, size):
            upper[j, i] /= diagonal
    return upper


@compiled
def candidates_of(
    log_weights: FloatArray, means: FloatArray, covs: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Log weights, means and U of the candidates that take part in a task; others weigh nothing."""
    logs, upper = log_weights.copy(), np.empty(covs.shape)
    top = logs.max()
    for j in range(logs.size):
        if logs[j] - top < LIGHT:
            logs[j] = -np.inf
        else:
            upper[j] = factorised(covs[j])
    return logs, means.copy(), upper


@compiled
def draw(mean: FloatArray, upper: FloatArray, rng: Rng, theta: FloatArray) -> None:
    """theta ~ N(mean, C)."""
    for i in range(mean.size):
        theta[i] = mean[i]
    for j in range(mean.size):
        z = rng.standard_normal()
        for i in range(j, mean.size):
            theta[i] += upper[j, i] * z


@compiled
def narrow(
    upper: FloatArray, own: FloatArray, size: int, share: float, left: float, moved: FloatArray
) -> None:
    """C becomes C - share·Cx(Cx)ᵀ, where own = Ux, which is zero from `size` on.

    `left` is 1 - share·xᵀCx; `moved` becomes Cx, of the old C. I - share·own ownᵀ has a Cholesky
    factor with closed form, by which that of C is multiplied.
    """
    moved[:] = 0.0
    for j in range(size - 1, -1, -1):
        more = left + share * own[j] * own[j]
        ratio = math.sqrt(left / more)
        less = share * own[j] / (more * ratio)
        for i in range(j, moved.size):
            old = upper[j, i]
            upper[j, i] = ratio * old - less * moved[i]
            moved[i] += own[j] * old
        left = more


@compiled
def variances(upper: FloatArray, found: FloatArray) -> float:
    """Fill the diagonal of C; gives the sum of all its entries."""
    found[:] = 0.0
    total = 0.0
    for j in range(found.size):
        row = 0.0
        for i in range(j, found.size):
            found[i] += upper[j, i] * upper[j, i]
            row += upper[j, i]
        total += row * row
    return total
