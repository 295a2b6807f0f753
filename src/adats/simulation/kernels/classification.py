"""Online classification: a linear bandit whose arms are pictures, new ones in every round."""

from typing import TYPE_CHECKING, cast

import numpy as np

from adats.models import LinearStats
from adats.models.core.types import FloatArray, IntArray, Rng
from adats.simulation.kernels.common import compiled
from adats.simulation.kernels.linear import (
    LinearPrior,
    add_outer,
    dot,
    draw,
    linear_prior,
    no_data,
    rank_one,
)
from adats.simulation.kernels.registry import TS, LoopInput

if TYPE_CHECKING:
    from adats.simulation.problems.classification import ClassificationProblem, PictureInstance


@compiled
def classification_task(
    prior: LinearPrior,
    chances: FloatArray,
    features: FloatArray,
    images: IntArray,
    draws: FloatArray,
    rng: Rng,
    pulled: IntArray,
) -> tuple[float, FloatArray]:
    """Thompson sampling among `images[t]`, numbers of rows of `features`; fills `pulled`.

    The reward is 1 with the chance of the picture. The belief is kept as in `linear_task`.
    """
    mean, factor, noise = prior
    dim, size = factor.shape
    turned, precision = np.ascontiguousarray(factor.T), 1.0 / (noise * noise)
    moments = np.zeros((dim + 1, dim + 1))
    columns, diagonal, scale = no_data(size)
    theta, u, x, z = np.empty(dim), np.empty(size), np.empty(size + 1), np.empty(dim + 1)
    for t in range(pulled.size):
        draw(columns, scale, rng, u)
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
        rank_one(columns, diagonal, scale, x, precision)
    return float(pulled.size), moments


def play(problem: "ClassificationProblem", task: LoopInput) -> LinearStats | None:
    if task.policy.number != TS:
        return None
    chances, images = problem.chances, cast("PictureInstance", task.instance).images
    n, moments = classification_task(
        linear_prior(task.prior),
        _read_only(chances),
        _read_only(problem.features),
        images,
        task.instance.draws,
        task.rng,
        task.actions,
    )
    task.regret[:] = chances[images].max(axis=1) - chances[task.actions]
    return LinearStats(n, moments)


def _read_only(values: FloatArray) -> FloatArray:
    """A view for the compiled loop; in workers, large arrays may be mapped from a file."""
    view = values.view(np.ndarray)
    view.flags.writeable = False
    return view
