"""Clicks and counts with a latent Gaussian theta, under several candidates at once.

Each candidate's posterior is kept as a mean and a covariance. A reward renews the site of its arm,
which is a rank-one change; when the pulls have doubled, all sites are renewed.
"""

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from adats.models.core.types import FloatArray, Rng
from adats.models.latent import sites as ep
from adats.models.latent.belief import FAR_CAUTION, LatentBelief
from adats.models.latent.family import LARGEST
from adats.models.latent.family import NODES as RATE_NODES
from adats.models.latent.family import WEIGHTS as RATE_WEIGHTS
from adats.models.latent.level import LevelPrior
from adats.models.latent.meta import LatentMeta
from adats.simulation.kernels.common import (
    Policy,
    World,
    compiled,
    count_reward,
    fresh,
    pick_by_logs,
)
from adats.simulation.kernels.indices import level_of
from adats.simulation.kernels.mixture import poisson
from adats.simulation.kernels.registry import FAR as FAR_SIGHTED
from adats.simulation.kernels.registry import GREEDY, TS, LoopInput

if TYPE_CHECKING:
    from adats.simulation.problems.clicks import ClicksProblem

NODES, LOG_WEIGHTS = ep.NODES, ep.LOG_WEIGHTS
FAR, THIN, WIDE = ep.FAR, ep.THIN, ep.WIDE
LIGHT = -20.0  # log of a weight, beside the best: such candidates sit a task out


@compiled
def log_partition(counts: bool, eta: float) -> float:
    if counts:
        return math.exp(min(eta, LARGEST))
    return max(eta, 0.0) + math.log(1.0 + math.exp(-abs(eta)))


@compiled
def derivatives(counts: bool, eta: float) -> tuple[float, float]:
    """A' and A''."""
    if counts:
        rate = math.exp(min(eta, LARGEST))
        return rate, rate
    small = math.exp(-abs(eta))
    variance = small / (1.0 + small) ** 2
    return (1.0 if eta >= 0 else small) / (1.0 + small), variance


@compiled
def expected(counts: bool, mean: float, variance: float) -> float:
    """The mean reward where eta ~ N(mean, variance)."""
    if counts:
        return math.exp(min(mean + 0.5 * variance, LARGEST))
    scale, total = math.sqrt(variance), 0.0
    for i in range(RATE_NODES.size):
        total += RATE_WEIGHTS[i] * derivatives(counts, mean + scale * RATE_NODES[i])[0]
    return total


@compiled
def mode(counts: bool, n: float, s: float, m: float, v: float) -> float:
    """As `sites.mode`, by Newton's method kept inside an interval."""
    alone = math.log(max(s, 1e-15) / n) if counts else math.log(max(s, 1e-15) / max(n - s, 1e-15))
    low, high = min(m, alone), max(m, alone)
    x = high
    if not counts:
        x = min(0.0, high) if -m / v + 0.5 * n > s else max(0.0, low)
    for _ in range(100):
        mean, variance = derivatives(counts, x)
        precision = 1.0 / v + n * variance
        step = ((m - x) / v + s - n * mean) / precision
        x += step
        if step * step * precision < 0.0025:
            break
    return x


@compiled
def moments(
    counts: bool, n: float, s: float, m: float, v: float, centre: float, sd: float
) -> tuple[float, float, float, float]:
    """Of the cavity times the likelihood: top and sum of the masses, mean and variance in sd."""
    top = -np.inf
    logs = np.empty(NODES.size)
    slope, bend = s + m / v, -0.5 / v
    for i in range(NODES.size):
        x = centre + sd * NODES[i]
        logs[i] = (slope + bend * x) * x - n * log_partition(counts, x) + LOG_WEIGHTS[i]
        top = max(top, logs[i])
    total, first, second = 0.0, 0.0, 0.0
    for i in range(NODES.size):
        mass = math.exp(logs[i] - top)
        total += mass
        first += mass * NODES[i]
        second += mass * NODES[i] ** 2
    first /= total
    return top, total, first, max(second / total - first * first, 1e-9)


@compiled
def site(
    counts: bool, n: float, s: float, m: float, v: float, w: float, b: float
) -> tuple[float, float, float]:
    """w, b and log s of an arm under the cavity N(m, v); w and b are those that it had."""
    variance = v / (1.0 + w * v)
    centre, sd = variance * (m / v + b), math.sqrt(variance)
    top, total, first, spread = moments(counts, n, s, m, v, centre, sd)
    if first * first > FAR or spread < THIN or spread > WIDE:
        centre = mode(counts, n, s, m, v)
        sd = 1.0 / math.sqrt(1.0 / v + n * derivatives(counts, centre)[1])
        top, total, first, spread = moments(counts, n, s, m, v, centre, sd)
    mean = centre + sd * first
    tight = 1.0 / (spread * sd * sd)
    log_s = top + math.log(total / math.sqrt(spread)) - 0.5 * mean * mean * tight
    return max(tight - 1.0 / v, 1e-300), tight * mean - m / v, log_s


@compiled
def renew(
    counts: bool,
    n: float,
    s: float,
    k: int,
    sites: FloatArray,
    mean: FloatArray,
    cov: FloatArray,
) -> float:
    """Renew the site of arm k under one candidate; gives what log det(I + VW) grows by."""
    v, w, b = cov[k, k], sites[0, k], sites[1, k]
    left = max(1.0 - w * v, 1e-12)
    new_w, new_b, log_s = site(counts, n, s, (mean[k] - v * b) / left, v / left, w, b)
    more, shift = new_w - w, new_b - b
    grown = 1.0 + more * v
    move = (shift - more * mean[k]) / grown
    column, part = cov[:, k].copy(), more / grown
    for i in range(mean.size):
        mean[i] += column[i] * move
        less = column[i] * part
        for j in range(mean.size):
            cov[i, j] -= less * column[j]
    sites[0, k], sites[1, k], sites[2, k] = new_w, new_b, log_s
    return math.log(grown)


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
def draw(mean: FloatArray, cov: FloatArray, rng: Rng, lower: FloatArray, theta: FloatArray) -> None:
    """theta ~ N(mean, cov), by a Cholesky factor made on the way."""
    size = mean.size
    for i in range(size):
        theta[i] = mean[i]
    for j in range(size):
        z = rng.standard_normal()
        rest = cov[j, j]
        for i in range(j):
            rest -= lower[j, i] ** 2
        diagonal = math.sqrt(max(rest, 1e-300))
        inverse = 1.0 / diagonal
        lower[j, j] = diagonal
        theta[j] += diagonal * z
        for i in range(j + 1, size):
            value = cov[i, j]
            for k in range(j):
                value -= lower[i, k] * lower[j, k]
            lower[i, j] = value * inverse
            theta[i] += lower[i, j] * z


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
    mean, cov = means.copy(), covs.copy()
    logs, weights, log_det = log_weights.copy(), np.empty(candidates), np.zeros(candidates)
    top = logs.max()
    for j in range(candidates):
        if logs[j] - top < LIGHT:
            logs[j] = -np.inf
    lower, point = np.empty((arms, arms)), np.empty(arms)
    etas, variances = np.empty((candidates, arms)), np.empty((candidates, arms))
    best, rounds = theta.max(), regret.size
    for t in range(rounds):
        if t < len(first):
            arm = first[t, 0]
        elif number == TS:
            j = pick_by_logs(logs, weights, rng.random()) if candidates > 1 else 0
            draw(mean[j], cov[j], rng, lower, point)
            arm = int(point.argmax())
        elif number == GREEDY:
            for j in range(candidates):
                variances[j] = np.diag(cov[j])
            arm = greedy_arm(counts, logs, mean, variances)
        else:
            apart(logs, weights, mean, cov, etas, variances)
            level, left = levels[t], rounds - t
            arm = index_arm(number, level, left, counted, counts, weights, etas, variances)
        if counts:
            y = poisson(theta[arm], draws[t])
            table[3, arm] += math.lgamma(y + 1.0)
        else:
            y = 1.0 if draws[t] < theta[arm] else 0.0
        count_reward(table, arm, y)
        doubled = (t + 1) & t == 0
        for j in range(candidates):
            if logs[j] == -np.inf:
                continue
            for k in range(arms):
                if k == arm or (doubled and table[0, k] > 0):
                    n, s = table[0, k], table[1, k]
                    log_det[j] += renew(counts, n, s, k, sites[j], mean[j], cov[j])
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
    cov: FloatArray,
    etas: FloatArray,
    variances: FloatArray,
) -> None:
    """Fill weights, and eta of every arm without what all have in common: `LatentBelief.apart`."""
    candidates, arms = mean.shape
    normalise(logs, weights)
    shift = 0.0
    for j in range(candidates):
        shift += weights[j] * mean[j].mean()
    for j in range(candidates):
        diagonal, least, own = 0.0, np.inf, mean[j].mean()
        for k in range(arms):
            diagonal += cov[j, k, k]
            least = min(least, cov[j, k, k])
        pairs = max(arms * (arms - 1), 1)
        common = min(max((cov[j].sum() - diagonal) / pairs, 0.0), least)
        for k in range(arms):
            etas[j, k] = mean[j, k] - own + shift
            variances[j, k] = cov[j, k, k] - common


@compiled
def index_arm(
    number: int,
    level: float,
    horizon: int,
    counted: FloatArray,
    counts: bool,
    weights: FloatArray,
    etas: FloatArray,
    variances: FloatArray,
) -> int:
    """The arm with the highest index on the scale of eta, of which candidates have a row each."""
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


@compiled
def settle(
    counts: bool,
    table: FloatArray,
    mean: FloatArray,
    own: FloatArray,
    shared: FloatArray,
    sites: FloatArray,
) -> None:
    """As `sites.settled` with a level, one arm after another; changes `sites`."""
    candidates, arms = mean.shape
    for j in range(candidates):
        for _ in range(12):
            about, weighted = 0.0, 0.0
            for k in range(arms):
                q = 1.0 + own[j, k] * sites[0, j, k]
                about += sites[0, j, k] / q
                weighted += (sites[1, j, k] - sites[0, j, k] * mean[j, k]) / q
            moved = 0.0
            for k in range(arms):
                n, s, w, b = table[0, k], table[1, k], sites[0, j, k], sites[1, j, k]
                if n == 0.0:
                    continue
                q = 1.0 + own[j, k] * w
                about -= w / q
                weighted -= (b - w * mean[j, k]) / q
                level = shared[j] / (1.0 + shared[j] * about)
                m, v = mean[j, k] + level * weighted, own[j, k] + level
                new_w, new_b, log_s = site(counts, n, s, m, v, w, b)
                tight = new_w + 1.0 / v
                change = (new_b - b) - (new_w - w) * (m / v + new_b) / tight
                moved = max(moved, change * change / tight)
                q = 1.0 + own[j, k] * new_w
                about += new_w / q
                weighted += (new_b - new_w * mean[j, k]) / q
                sites[0, j, k], sites[1, j, k], sites[2, j, k] = new_w, new_b, log_s
            if moved < 1e-6:
                break


def play(problem: "ClicksProblem", task: LoopInput) -> Any:
    if task.policy.delay:
        return None
    prior: LatentBelief = task.prior
    covs = np.matmul(prior.factor, np.swapaxes(prior.factor, -1, -2))
    logs, means, covs = fresh(prior.log_weights, prior.eta_mean, covs)
    policy = task.policy.fields()
    table, _ = latent_task(problem.counts, logs, means, covs, policy, task.world(), task.rng)
    return problem.meta().empty().with_table(table)


def settled(meta: LatentMeta, stats: Any) -> Any:
    """The statistics with the sites that the meta-belief's anchor gives them."""
    prior: Any = meta.anchor.prior
    if not isinstance(prior, LevelPrior):
        return stats
    sites = stats.sites_of(meta.log_weights.size).copy()
    shared = prior.shared.ravel()  # every candidate has its own
    settle(meta.model == "count", stats.table, prior.mean, prior.own, shared, sites)
    return stats.with_sites(sites, meta.anchor.number)
