"""Mixtures of whole models: Gaussian arms and linear bandits whose spread or noise is unknown.

A round draws one of the models by its weight, then theta from its posterior. Every reward brings
all posteriors up to date, and the log weights by its predictive density under each model.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from adats.models import BeliefMixture, GaussianArms, GaussianMeta, LinearStats, ModelMixture
from adats.models.core.stats import ArmStats
from adats.models.core.types import FloatArray, Rng
from adats.simulation.kernels import gaussian
from adats.simulation.kernels.common import World, compiled, count_reward, pick_by_logs, reward
from adats.simulation.kernels.gaussian import posterior
from adats.simulation.kernels.latent_sites import derivatives
from adats.simulation.kernels.linear import add_outer, dot, draw, rank_one, scores
from adats.simulation.kernels.registry import TS, LoopInput

if TYPE_CHECKING:
    from adats.simulation.problems import FeatureClicksProblem, GaussianProblem, LinearProblem

NO_LINK, LOGIT, LOG = range(3)  # from a linear function of features to the mean of a reward
Priors = tuple[FloatArray, FloatArray, FloatArray]  # as of one model, with an axis of models first


@compiled
def gaussian_ensemble_task(
    log_weights: FloatArray, priors: Priors, sigma: float, world: World, rng: Rng
) -> FloatArray:
    """Gaussian arms; `sigma` is the true noise."""
    mean, scale, noise = priors
    theta, first, draws, regret, actions = world
    models, arms = mean.shape
    table = np.zeros((3, arms))
    logs, weights = log_weights.copy(), np.empty(models)
    centre, variance, ratio = mean.copy(), scale**2, (scale / noise) ** 2
    best = theta.max()
    for t in range(regret.size):
        if t < len(first):
            arm = first[t, 0]
        else:
            j = pick_by_logs(logs, weights, rng.random())
            arm, highest = 0, -np.inf
            for i in range(arms):
                value = centre[j, i] + math.sqrt(variance[j, i]) * rng.standard_normal()
                if value > highest:
                    arm, highest = i, value
        y = theta[arm] + sigma * draws[t]
        count_reward(table, arm, y)
        for j in range(models):
            spread = variance[j, arm] + noise[j, arm] ** 2  # of the reward, theta integrated out
            gap = y - centre[j, arm]
            logs[j] -= 0.5 * (math.log(spread) + gap * gap / spread)
            centre[j, arm], keep = posterior(
                mean[j, arm], ratio[j, arm], table[0, arm], table[1, arm]
            )
            variance[j, arm] = scale[j, arm] ** 2 * keep
        regret[t], actions[t] = best - theta[arm], arm
    return table


@compiled
def linear_ensemble_task(
    log_weights: FloatArray,
    priors: Priors,
    sigma: float,
    link: int,
    features: FloatArray,
    world: World,
    rng: Rng,
) -> tuple[float, FloatArray]:
    """Linear bandits; `sigma` is the true noise. Each posterior is kept as in `linear_task`.

    With a `link` the rewards are truly clicks, or counts, and there is no sigma.
    """
    mean, factor, noise = priors
    theta, first, draws, regret, actions = world
    models, dim, size = factor.shape
    arms = features.shape[1]
    moments, z = np.zeros((dim + 1, dim + 1)), np.empty(dim + 1)
    columns = np.zeros((models, size, size + 1))
    diagonal, scale = np.ones((models, size)), np.ones((models, size))
    turned = np.empty((models, size, dim))
    for j in range(models):
        turned[j] = factor[j].T
    logs, weights = log_weights.copy(), np.empty(models)
    u, x, point = np.empty(size), np.empty(size + 1), np.empty(dim)
    values, means, zero = np.empty(arms), np.empty(arms), np.zeros(arms)
    across = np.empty((dim, arms))
    for t in range(regret.size):
        if t == 0 or len(features) > 1:
            across[:] = features[t].T
            scores(zero, across, theta, means)
            if link != NO_LINK:
                for k in range(arms):
                    means[k] = derivatives(link == LOG, means[k])[0]
        if t < len(first):
            arm = first[t, 0]
        else:
            j = pick_by_logs(logs, weights, rng.random())
            draw(columns[j], scale[j], rng, u)
            scores(mean[j], turned[j], u, point)
            scores(zero, across, point, values)
            arm = int(values.argmax())
        if link == NO_LINK:
            y = means[arm] + sigma * draws[t]
        else:
            y = reward(link == LOG, means[arm], draws[t])
        z[:dim], z[dim] = across[:, arm], y
        add_outer(moments, z, 1.0)
        for j in range(models):
            for i in range(size):
                x[i] = dot(turned[j, i], z[:dim])
            x[size] = y - dot(mean[j], z[:dim])
            precision = rank_one(columns[j], diagonal[j], scale[j], x, 1.0 / noise[j] ** 2)
            logs[j] += 0.5 * (math.log(precision) - precision * x[size] ** 2)
        regret[t], actions[t] = means.max() - means[arm], arm
    return float(regret.size), moments


def play_gaussian(problem: "GaussianProblem", task: LoopInput) -> ArmStats | None:
    if task.policy.number != TS:
        return None
    prior: BeliefMixture = task.prior
    beliefs = cast(tuple[GaussianArms, ...], prior.beliefs)
    priors = stacked([belief.parameters() for belief in beliefs])
    given = (prior.log_weights, priors, problem.noise, task.world(), task.rng)
    return ArmStats(gaussian_ensemble_task(*given))


def play_linear(problem: "LinearProblem", task: LoopInput) -> LinearStats | None:
    return _play_linear(task, problem.noise, NO_LINK)


def play_clicks(problem: "FeatureClicksProblem", task: LoopInput) -> LinearStats | None:
    return _play_linear(task, 0.0, LOG if problem.counts else LOGIT)


def _play_linear(task: LoopInput, noise: float, link: int) -> LinearStats | None:
    if task.policy.number != TS:
        return None
    prior, features = task.prior, task.instance.features
    if features is None:
        raise ValueError("an instance of a linear bandit has features")
    priors = stacked([(b.mean, b.factor, b.noise) for b in prior.beliefs])
    given = (prior.log_weights, priors, noise, link, features, task.world(), task.rng)
    n, moments = linear_ensemble_task(*given)
    return LinearStats(n, moments)


def stacked(models: Sequence[Sequence[Any]]) -> Priors:
    """Mean, scale (or factor) and noise of several models, each as one array."""
    mean, scale, noise = (np.array(column) for column in zip(*models, strict=True))
    return mean, scale, noise


def learn_gaussian(meta: ModelMixture, stats: ArmStats) -> ModelMixture:
    return meta.with_models(gaussian.learn(cast(GaussianMeta, m), stats) for m in meta.models)
