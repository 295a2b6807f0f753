"""Gaussian arms whose means move, and agents that let rewards lose weight, or are told of it."""

import math
from typing import Any

import numpy as np

from adats.models import GaussianMeta
from adats.models.core.stats import ArmStats
from adats.models.core.types import FloatArray, IntArray, Rng
from adats.models.gaussian.belief import posterior_of_arm
from adats.models.gaussian.meta import meta_posterior
from adats.simulation.filters import faded_precision, filtered, updated
from adats.simulation.kernels.common import Policy, World, compiled, count_reward, fresh, inlined
from adats.simulation.kernels.indices import level_of
from adats.simulation.kernels.registry import TS, LoopInput
from adats.simulation.problems import Instance

Prior = tuple[FloatArray, ...]  # of every arm
Factors = tuple[float, float, float]
NOTHING_AGES = (1.0, 1.0, 1.0)
_posterior: Any = inlined(posterior_of_arm)
_meta_posterior: Any = inlined(meta_posterior)
_filtered: Any = inlined(filtered)
_updated: Any = inlined(updated)
_faded_precision: Any = inlined(faded_precision)


@compiled
def moving_task(
    policy: Policy, prior: Prior, factors: Factors, world: World, rng: Rng
) -> FloatArray:
    """One task; fills regret and actions, returns the statistics as they weigh at the end.

    `prior` has, of every arm, mean and variance of the meta-prior, the sums M and h of messages,
    the variance of tasks and that of rewards. `factors` are what a round leaves of a reward's
    weight in its task, and in what all tasks taught, and what the next reward of its arm leaves.
    """
    mean, width, m, h, spread, noise = prior
    theta, first, draws, regret, actions = world
    number, levels, counted, _ = policy
    rounds, arms = theta.shape
    table, weight = np.zeros((3, arms)), 1.0
    for t in range(rounds):
        weight *= factors[1]
        table *= factors[0]
        arm, highest = 0, -np.inf
        if t < len(first):
            arm = first[t, 0]
        else:
            for i in range(arms):
                mu, variance = _meta_posterior(mean[i], width[i], weight * m[i], weight * h[i])
                variance += spread[i]
                centre, left = _posterior(mu, variance / noise[i], table[0, i], table[1, i])
                variance *= left
                if number == TS:
                    z = rng.standard_normal()
                else:
                    level = levels[t] if levels.size else 0.0
                    z = level_of(number, level, variance / noise[i], rounds - t, counted[i])
                value = centre + z * math.sqrt(variance)
                if value > highest:
                    arm, highest = i, value
        table[:, arm] *= factors[2]
        count_reward(table, arm, theta[t, arm] + math.sqrt(noise[arm]) * draws[t])
        regret[t], actions[t] = theta[t].max() - theta[t, arm], arm
    return table


def _moving_world(task: LoopInput) -> World:
    theta, first, draws, regret, actions = task.world()
    rows = np.tile(theta, (regret.size, 1)) if theta.ndim == 1 else theta
    return fresh(rows)[0], first, draws, regret, actions


def play(problem: object, task: LoopInput) -> ArmStats | None:  # noqa: ARG001
    """A task with a prior that stays."""
    if task.policy.delay or task.policy.rule is not None:
        return None
    belief, nothing = task.prior, np.zeros(task.prior.mean.size)
    prior = fresh(belief.mean, nothing, nothing, nothing, belief.scale**2, belief.noise**2)
    world = _moving_world(task)
    return ArmStats(moving_task(task.policy.fields(), prior, NOTHING_AGES, world, task.rng))


def aged(task: LoopInput, meta: GaussianMeta, factors: Factors) -> ArmStats:
    """A task whose prior is what `meta` has left of what other tasks taught."""
    (m, h, _), scales = meta.total.value().reshape(3, -1), meta.scales
    prior = fresh(
        scales.meta_mean, scales.meta_variance, m, h, scales.task_variance, scales.noise**2
    )
    world = _moving_world(task)
    return ArmStats(moving_task(task.policy.fields(), prior, factors, world, task.rng))


@compiled
def filter_run(
    prior: Prior,
    steps: tuple[float, float],
    worlds: tuple[FloatArray, FloatArray, FloatArray, IntArray],
    rng: Rng,
) -> None:
    """All tasks of a run by `FilterAgent`."""
    mean, width, spread, noise = prior
    thetas, draws, regret, actions = worlds
    tasks, rounds, arms = thetas.shape
    mu, width = mean.copy(), width.copy()
    for s in range(tasks):
        if s > 0:
            width += steps[0]
        theta, variance, shared = mu.copy(), width + spread, width.copy()
        for t in range(rounds):
            if t > 0:
                variance += steps[1]
            arm, highest = 0, -np.inf
            for i in range(arms):
                value = theta[i] + math.sqrt(variance[i]) * rng.standard_normal()
                if value > highest:
                    arm, highest = i, value
            y = thetas[s, t, arm] + math.sqrt(noise[arm]) * draws[s, t]
            mu[arm], theta[arm], width[arm], shared[arm], variance[arm] = _filtered(
                mu[arm], theta[arm], width[arm], shared[arm], variance[arm], y, noise[arm]
            )
            regret[s, t] = thetas[s, t].max() - thetas[s, t, arm]
            actions[s, t] = arm


@compiled
def decay_run(
    prior: Prior,
    rule: tuple[float, float, bool, bool],
    worlds: tuple[FloatArray, FloatArray, FloatArray, IntArray],
    rng: Rng,
) -> None:
    """All tasks of a run by `DecayAgent`; the rule is its rate, the part of the prior's precisions
    that they fall to, and whether they fall at each round, and all tasks are one."""
    mean, precision, weight = prior
    rate, floor, ticks, pooled = rule
    thetas, draws, regret, actions = worlds
    tasks, rounds, arms = thetas.shape
    centre, sure = mean.copy(), precision.copy()
    for s in range(tasks):
        if not pooled:
            centre[:], sure[:] = mean, precision
        for t in range(rounds):
            arm, highest = 0, -np.inf
            for i in range(arms):
                value = centre[i] + rng.standard_normal() / math.sqrt(sure[i])
                if value > highest:
                    arm, highest = i, value
            y = thetas[s, t, arm] + draws[s, t] / math.sqrt(weight[arm])
            if not ticks:
                sure[arm] *= rate
            centre[arm], sure[arm] = _updated(centre[arm], sure[arm], y, weight[arm])
            if ticks:
                for i in range(arms):
                    sure[i] = _faded_precision(sure[i], rate, floor * precision[i])
            regret[s, t] = thetas[s, t].max() - thetas[s, t, arm]
            actions[s, t] = arm


def _worlds(
    instances: list[Instance], regret: FloatArray, actions: IntArray
) -> tuple[FloatArray, FloatArray, FloatArray, IntArray]:
    thetas = np.array([instance.theta for instance in instances])
    return thetas, np.array([instance.draws for instance in instances]), regret, actions


def play_filter(
    meta: GaussianMeta, steps: tuple[float, float], instances: list[Instance], rng: Rng, *rows: Any
) -> None:
    """All tasks of a run by the exact filter, which is told the sizes of steps."""
    scales, (mu, theta) = meta.scales, steps
    prior = fresh(scales.meta_mean, scales.meta_variance, scales.task_variance, scales.noise**2)
    filter_run(prior, (mu**2, theta**2), _worlds(instances, *rows), rng)


def play_decay(
    meta: GaussianMeta,
    decay: tuple[float, str, bool],
    instances: list[Instance],
    rng: Rng,
    *rows: Any,
) -> None:
    """All tasks of a run by a rule of bayesianbandits."""
    belief, (rate, rule, pooled) = meta.task_prior(), decay
    prior = fresh(belief.mean, belief.scale**-2.0, belief.noise**-2.0)
    numbers = (rate, float(rule == "stabilized"), rule != "directional", pooled)
    decay_run(prior, numbers, _worlds(instances, *rows), rng)
