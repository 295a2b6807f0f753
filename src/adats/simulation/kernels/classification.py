"""Online classification: a bandit whose arms are pictures, new ones in every round.

Rewards are taken for Gaussian, or for what they are, 0 or 1.
"""

import math
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from adats.models import LinearStats
from adats.models.core.linalg import square_factor
from adats.models.core.types import FloatArray, IntArray, Rng
from adats.models.latent.row_belief import LatentRows
from adats.models.latent.row_stats import RowSites
from adats.models.latent.sites import LEAST_VARIANCE
from adats.simulation.kernels.common import compiled
from adats.simulation.kernels.latent_sites import site
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
    from adats.simulation.problems.classification import (
        ClassificationProblem,
        LogisticClassification,
        PictureInstance,
        PictureProblem,
    )


# chances of rewards and features of all pictures; those of every round, draws, and what was pulled
Pictures = tuple[FloatArray, FloatArray, IntArray, FloatArray, IntArray]


@compiled
def best_picture(features: FloatArray, images: IntArray, theta: FloatArray) -> int:
    """Of these pictures the one that scores highest."""
    best, highest = images[0], -np.inf
    for image in images:
        value = dot(features[image], theta)
        if value > highest:
            highest, best = value, image
    found: int = best
    return found


@compiled
def classification_task(
    prior: LinearPrior, pictures: Pictures, rng: Rng
) -> tuple[float, FloatArray]:
    """Thompson sampling among `images[t]`, numbers of rows of `features`; fills `pulled`.

    The reward is 1 with the chance of the picture. The belief is kept as in `linear_task`.
    """
    mean, factor, noise = prior
    chances, features, images, draws, pulled = pictures
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
        pulled[t] = best_picture(features, images[t], theta)
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
    n, moments = classification_task(linear_prior(task.prior), _pictures(problem, task), task.rng)
    _fill_regret(problem, task)
    return LinearStats(n, moments)


@compiled
def logistic_task(mean: FloatArray, factor: FloatArray, pictures: Pictures, rng: Rng) -> FloatArray:
    """The same with log-odds that are linear in the features; gives the rewards.

    The belief N(mean, factor factorᵀ) is kept in `mean` and `factor`, which it changes. A reward
    has a site of its own; all sites are renewed when their number has doubled.
    """
    chances, features, images, draws, pulled = pictures
    dim, size = factor.shape
    rewards, sites = np.empty(pulled.size), np.zeros((pulled.size, 2))
    theta, z, moved = np.empty(dim), np.empty(size), np.empty(dim)
    for t in range(pulled.size):
        for j in range(size):
            z[j] = rng.standard_normal()
        for i in range(dim):
            theta[i] = mean[i] + dot(factor[i], z)
        pulled[t] = best_picture(features, images[t], theta)
        rewards[t] = 1.0 if draws[t] < chances[pulled[t]] else 0.0
        doubled = (t + 1) & t == 0
        for k in range(0 if doubled else t, t + 1):
            renew(features[pulled[k]], rewards[k], sites[k], mean, factor, z, moved)
    return rewards


@compiled
def renew(
    x: FloatArray,
    reward: float,
    own: FloatArray,
    mean: FloatArray,
    factor: FloatArray,
    z: FloatArray,
    moved: FloatArray,
) -> None:
    """Renew the site `own` of one pull of the row x, a change of rank one.

    With F the factor and z = Fᵀx, the covariance loses a share of Fz(Fz)ᵀ and F as much of Fzzᵀ
    that FFᵀ is the covariance again (Potter).
    """
    z[:] = 0.0
    for i in range(x.size):
        for j in range(z.size):
            z[j] += x[i] * factor[i, j]
    m, v = dot(mean, x), dot(z, z)
    w, b = own
    left = max(1.0 - w * v, 1e-12)
    cavity = max(v / left, LEAST_VARIANCE)
    own[0], own[1], _ = site(False, 1.0, reward, (m - v * b) / left, cavity, w, b)
    more, shift = own[0] - w, own[1] - b
    grown = 1.0 + more * v
    step = (shift - more * m) / grown
    root = math.sqrt(grown)
    part = more / (grown + root)  # (1 - √(1 - v·more/grown)) / v
    for i in range(x.size):
        moved[i] = dot(factor[i], z)
        mean[i] += moved[i] * step
        for j in range(z.size):
            factor[i, j] -= part * moved[i] * z[j]


def play_logistic(problem: "LogisticClassification", task: LoopInput) -> RowSites | None:
    if task.policy.number != TS or task.policy.delay:
        return None
    prior: LatentRows = task.prior
    if prior.log_weights.size > 1:
        return None
    mean, factor = prior.theta[0].copy(), np.array(square_factor(prior.factor)[0], order="C")
    rewards = logistic_task(mean, factor, _pictures(problem, task), task.rng)
    _fill_regret(problem, task)
    table = np.stack([np.ones(rewards.size), rewards])
    return problem.meta().empty().with_table(problem.features[task.actions], table)


def _pictures(problem: "PictureProblem[Any]", task: LoopInput) -> Pictures:
    images = cast("PictureInstance", task.instance).images
    known = _read_only(problem.chances), _read_only(problem.features)
    return *known, images, task.instance.draws, task.actions


def _fill_regret(problem: "PictureProblem[Any]", task: LoopInput) -> None:
    chances, images = problem.chances, cast("PictureInstance", task.instance).images
    task.regret[:] = chances[images].max(axis=1) - chances[task.actions]


def _read_only(values: FloatArray) -> FloatArray:
    """A view for the compiled loop; in workers, large arrays may be mapped from a file."""
    view = values.view(np.ndarray)
    view.flags.writeable = False
    return view
