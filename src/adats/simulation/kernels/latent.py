"""Clicks and counts with a latent Gaussian theta, under several candidates at once.

Each candidate's posterior is kept as a mean and a factor of the covariance. A reward renews the
site of its arm, which is a rank-one change; when the pulls have doubled, all sites are renewed.
"""

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from adats.models.core.types import FloatArray, Rng
from adats.models.latent.belief import FAR_CAUTION, LatentBelief
from adats.simulation.kernels.common import (
    Policy,
    Round,
    World,
    compiled,
    count_reward,
    fresh,
    pick_by_logs,
    reward,
)
from adats.simulation.kernels.factors import candidates_of, draw, narrow, variances
from adats.simulation.kernels.indices import level_of
from adats.simulation.kernels.latent_sites import derivatives, expected, site
from adats.simulation.kernels.registry import FAR as FAR_SIGHTED
from adats.simulation.kernels.registry import GREEDY, TS, LoopInput

if TYPE_CHECKING:
    from adats.simulation.problems.clicks import ClicksProblem


@compiled
def renew(
    counts: bool,
    n: float,
    s: float,
    k: int,
    sites: FloatArray,
    mean: FloatArray,
    upper: FloatArray,
    room: FloatArray,
) -> float:
    """Renew the site of arm k under one candidate; gives what I + VW has its determinant grow by.

    `room` is two rows to work in.
    """
    own, moved = room[0], room[1]
    v: float = 0.0
    for j in range(k + 1):
        own[j] = upper[j, k]
        v += own[j] * own[j]
    w, b = sites[0, k], sites[1, k]
    left = max(1.0 - w * v, 1e-12)
    new_w, new_b, log_s = site(counts, n, s, (mean[k] - v * b) / left, v / left, w, b)
    more, shift = new_w - w, new_b - b
    grown: float = 1.0 + more * v
    move = (shift - more * mean[k]) / grown
    narrow(upper, own, k + 1, more / grown, 1.0 / grown, moved)
    for i in range(mean.size):
        mean[i] += moved[i] * move
    sites[0, k], sites[1, k], sites[2, k] = new_w, new_b, log_s
    return grown


@compiled
def log_evidence(sites: FloatArray, prior: FloatArray, mean: FloatArray, log_det: float) -> float:
    """Of the rewards of a task under one candidate."""
    total = -log_det
    for k in range(prior.size):
        residual = sites[1, k] - sites[0, k] * prior[k]
        total += 2.0 * sites[2, k] + prior[k] * (sites[1, k] + residual)
        total += residual * (mean[k] - prior[k])
    return 0.5 * total


@compiled
def latent_task(
    counts: bool,
    log_weights: FloatArray,
    means: FloatArray,
    covs: FloatArray,
    policy: Policy,
    world: World,
    rng: Rng,
) -> tuple[FloatArray, FloatArray]:
    """Thompson sampling or an index; fills regret and actions, gives the statistics and sites."""
    theta, first, draws, regret, actions = world
    number, levels, counted, _ = policy
    candidates, arms = means.shape
    table, sites = np.zeros((4 if counts else 3, arms)), np.zeros((candidates, 3, arms))
    logs, mean, upper = candidates_of(log_weights, means, covs)
    weights, log_det = np.empty(candidates), np.zeros(candidates)
    point, room = np.empty(arms), np.empty((2, arms))
    etas, spreads = np.empty((candidates, arms)), np.empty((candidates, arms))
    best, rounds = theta.max(), regret.size
    for t in range(rounds):
        if t < len(first):
            arm = first[t, 0]
        elif number == TS:
            j = pick_by_logs(logs, weights, rng.random()) if candidates > 1 else 0
            draw(mean[j], upper[j], rng, point)
            arm = 0
            for k in range(1, arms):
                if point[k] > point[arm]:
                    arm = k
        elif number == GREEDY:
            for j in range(candidates):
                if logs[j] > -np.inf:
                    variances(upper[j], spreads[j])
            arm = greedy_arm(counts, logs, mean, spreads)
        else:
            apart(logs, weights, mean, upper, etas, spreads)
            now = (number, levels[t], rounds - t)
            arm = index_arm(now, counted, counts, weights, etas, spreads)
        y = reward(counts, theta[arm], draws[t])
        if counts:
            table[3, arm] += math.lgamma(y + 1.0)
        count_reward(table, arm, y)
        doubled = (t + 1) & t == 0 or t == 2  # as `doublings` has it
        for j in range(candidates):
            if logs[j] == -np.inf:
                continue
            grown = 1.0
            for k in range(0 if doubled else arm, arms if doubled else arm + 1):
                if table[0, k] > 0.0:
                    n, s = table[0, k], table[1, k]
                    grown *= renew(counts, n, s, k, sites[j], mean[j], upper[j], room)
            if candidates > 1:
                log_det[j] += math.log(grown)
                logs[j] = log_weights[j] + log_evidence(sites[j], means[j], mean[j], log_det[j])
        regret[t], actions[t] = best - theta[arm], arm
    return table, sites


@compiled
def greedy_arm(counts: bool, logs: FloatArray, etas: FloatArray, variances: FloatArray) -> int:
    """The arm with the highest mean reward; eta has a row for each candidate."""
    top, arm, highest = logs.max(), 0, -np.inf
    for k in range(etas.shape[1]):
        rate = 0.0
        for j in range(logs.size):
            if logs[j] > -np.inf:
                rate += math.exp(logs[j] - top) * expected(counts, etas[j, k], variances[j, k])
        if rate > highest:
            arm, highest = k, rate
    return arm


@compiled
def normalise(logs: FloatArray, weights: FloatArray) -> None:
    """Weights that sum to one."""
    top, total = logs.max(), 0.0
    for j in range(logs.size):
        weights[j] = math.exp(logs[j] - top)
        total += weights[j]
    for j in range(logs.size):
        weights[j] /= total


@compiled
def apart(
    logs: FloatArray,
    weights: FloatArray,
    mean: FloatArray,
    upper: FloatArray,
    etas: FloatArray,
    spreads: FloatArray,
) -> None:
    """Fill weights, and eta of every arm without what all have in common: `LatentBelief.apart`."""
    candidates, arms = mean.shape
    normalise(logs, weights)
    shift = 0.0
    for j in range(candidates):
        shift += weights[j] * mean[j].mean()
    pairs = max(arms * (arms - 1), 1)
    for j in range(candidates):
        if weights[j] == 0.0:
            continue
        total, own = variances(upper[j], spreads[j]), mean[j].mean()
        mean_cov = (total - spreads[j].sum()) / pairs
        common = min(max(mean_cov, 0.0), spreads[j].min())
        for k in range(arms):
            etas[j, k] = mean[j, k] - own + shift
            spreads[j, k] -= common


@compiled
def index_arm(
    now: Round,
    counted: FloatArray,
    counts: bool,
    weights: FloatArray,
    etas: FloatArray,
    variances: FloatArray,
) -> int:
    """The arm with the highest index on the scale of eta, of which candidates have a row each."""
    number, level, horizon = now
    arm, highest = 0, -np.inf
    for k in range(etas.shape[1]):
        centre, second = 0.0, 0.0
        for j in range(weights.size):
            if weights[j] > 0.0:
                centre += weights[j] * etas[j, k]
                second += weights[j] * (variances[j, k] + etas[j, k] * etas[j, k])
        variance = max(second - centre * centre, 0.0)
        v = variance * derivatives(counts, centre)[1]
        z = level_of(number, level, v, horizon, counted[k])
        if number == FAR_SIGHTED:
            z *= FAR_CAUTION
        value = centre + z * math.sqrt(variance)
        if value > highest:
            arm, highest = k, value
    return arm


def play(problem: "ClicksProblem", task: LoopInput) -> Any:
    if task.policy.delay:
        return None
    prior: LatentBelief = task.prior
    covs = np.matmul(prior.factor, np.swapaxes(prior.factor, -1, -2))
    logs, means, covs = fresh(prior.log_weights, prior.eta_mean, covs)
    policy = task.policy.fields()
    table, _ = latent_task(problem.counts, logs, means, covs, policy, task.world(), task.rng)
    return problem.meta().empty().with_table(table)
