"""Gaussian arms."""

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from adats.agents.prior_source import Drawn, Fixed, Known, Marginal, PriorSource
from adats.models import GaussianArms, GaussianMeta
from adats.models.core.linalg import part_of
from adats.models.core.stats import ArmStats
from adats.models.core.sums import Sum, two_sum
from adats.models.core.types import FloatArray, IntArray, Rng
from adats.models.gaussian.belief import posterior_of_arm
from adats.models.gaussian.meta import arm_digest, meta_posterior
from adats.simulation.kernels.common import Policy, World, compiled, count_reward, fresh, inlined
from adats.simulation.kernels.indices import index_arm, loop_of
from adats.simulation.kernels.registry import TS, CompiledPolicy, LoopInput

if TYPE_CHECKING:
    from adats.simulation.problems import Instance

SOURCES = (Marginal, Fixed, Drawn, Known)
ArmPrior = tuple[FloatArray, FloatArray, FloatArray]  # mean, scale and noise of every arm
posterior: Any = inlined(posterior_of_arm)
_arm_digest: Any = compiled(arm_digest)
_meta_posterior = inlined(meta_posterior)
_two_sum = compiled(two_sum)
_part_of = compiled(part_of)


@compiled
def gaussian_task(prior: ArmPrior, world: World, rng: Rng) -> FloatArray:
    """Thompson sampling with Gaussian arms; fills regret and actions, returns the statistics."""
    mean, scale, noise = prior
    theta, first, draws, regret, actions = world
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
        regret[t], actions[t] = best - theta[arm], arm
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
    count_reward(table, arm, y)
    ratio = (scale[arm] / noise[arm]) ** 2
    centre[arm], keep = posterior(mean[arm], ratio, table[0, arm], table[1, arm])
    spread[arm] = scale[arm] * math.sqrt(keep)


@compiled
def gaussian_index_task(policy: Policy, prior: ArmPrior, world: World) -> FloatArray:
    """The same by an index policy."""
    mean, scale, noise = prior
    theta, first, draws, regret, actions = world
    number, levels, counted, delay = policy
    rounds, arms = regret.size, mean.size
    table, asked = np.zeros((3, arms)), np.zeros(arms)
    centre, variance, precision = mean.copy(), scale**2, noise**-2.0
    ratio, best, bounds = (scale / noise) ** 2, theta.max(), np.full(arms, np.inf)
    for t in range(rounds):
        if t < len(first):
            arm = first[t, 0]
        else:
            now = (number, levels[t], rounds - t)
            arm = index_arm(now, counted, precision, centre, variance, bounds)
        regret[t], actions[t] = best - theta[arm], arm
        asked[arm] += 1.0
        _, keep = posterior(mean[arm], ratio[arm], asked[arm], 0.0)
        variance[arm] = scale[arm] ** 2 * keep
        if t >= delay:
            arm = actions[t - delay]
            count_reward(table, arm, theta[arm] + noise[arm] * draws[t - delay])
            centre[arm], _ = posterior(mean[arm], ratio[arm], table[0, arm], table[1, arm])
    for t in range(max(0, rounds - delay), rounds):
        arm = actions[t]
        count_reward(table, arm, theta[arm] + noise[arm] * draws[t])
    return table


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
        m, h, grown, base, fit = _arm_digest(
            table[0, i],
            table[1, i],
            table[2, i],
            constants[0, i],
            constants[1, i],
            constants[2, i],
            constants[3, i],
        )
        parts = (m, h, -0.5 * (base + math.log(grown) + fit))
        for k in range(3):
            j = k * arms + i
            high[j], lost = _two_sum(high[j], parts[k])
            low[j] += lost
        m, h = high[i] + low[i], high[arms + i] + low[arms + i]
        mean[i], variance[i] = _meta_posterior(meta_mean[i], meta_variance[i], m, h)
    return high, low, mean, variance


@compiled
def gaussian_run(
    learns: bool,
    drawn: bool,
    policy: Policy,
    prior: ArmPrior,
    belief: tuple[FloatArray, FloatArray, FloatArray, FloatArray, FloatArray],
    share: FloatArray,
    task_variance: FloatArray,
    later: FloatArray,
    worlds: World,
    rng: Rng,
) -> None:
    """All tasks of a run, one after another; `worlds` has a row a task.

    `learns` and `drawn` say where the next prior comes from. `later` are the rounds of later tasks
    that an arm counts in each task if mu has all of its variance, and not only its `share`.
    """
    number, levels, _, delay = policy
    mean, scale, noise = prior
    constants, meta_mean, meta_variance, high, low = belief
    thetas, first, draws, regret, actions = worlds
    table = np.zeros((3, mean.size))
    for s in range(len(thetas)):
        if learns and s > 0:
            high, low, mean, variance = gaussian_learn(
                table, constants, meta_mean, meta_variance, high, low
            )
            share = _part_of(variance, task_variance)
            if drawn:
                mean += np.sqrt(variance) * rng.standard_normal(mean.size)
            else:
                scale = np.sqrt(variance + task_variance)
        given = (mean, scale, noise)
        world = (thetas[s], first, draws[s], regret[s], actions[s])
        if number == TS:
            table = gaussian_task(given, world, rng)
        else:
            index = (number, levels, later[s] * share**2, delay)
            table = gaussian_index_task(index, given, world)


def arm_prior(belief: GaussianArms) -> ArmPrior:
    """A belief as the compiled loops take it."""
    mean, scale, noise = fresh(belief.mean, belief.scale, belief.noise)
    return mean, scale, noise


def play(problem: object, task: LoopInput) -> ArmStats:  # noqa: ARG001
    prior = arm_prior(task.prior)
    if task.policy.number == TS:
        table = gaussian_task(prior, task.world(), task.rng)
    else:
        loop = loop_of(gaussian_index_task, task.policy.rule)
        table = loop(task.policy.fields(), prior, task.world())
    return ArmStats(table)


def learn(meta: GaussianMeta, stats: ArmStats) -> GaussianMeta:
    total = meta.total
    high, low, mean, variance = gaussian_learn(stats.table, *meta.arrays(), total.high, total.low)
    return meta.with_sum(Sum(high, low), mean, variance)


def play_all(
    meta: GaussianMeta,
    source: PriorSource,
    prior: GaussianArms,
    policy: CompiledPolicy,
    later: FloatArray,
    instances: "list[Instance]",
    first: IntArray,
    rng: Rng,
    regret: FloatArray,
    actions: IntArray,
) -> bool:
    if policy.rule is not None or instances[0].then is not None or type(source) not in SOURCES:
        return False
    thetas = np.array([instance.theta for instance in instances])
    draws = np.array([instance.draws for instance in instances])
    worlds = (thetas, first, draws, regret, actions)
    drawn, belief = type(source) is Drawn, (*meta.arrays(), *meta.total)
    share, spread = fresh(meta.share(), meta.scales.task_variance)
    start, index = arm_prior(prior), policy.fields()
    gaussian_run(source.LEARNS, drawn, index, start, belief, share, spread, later, worlds, rng)
    return True
