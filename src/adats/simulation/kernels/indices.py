"""Index policies for Gaussian arms, semi-bandits and linear bandits.

`levels` has, for every round, the level of Bayes-UCB, and is empty for the others; `counted` has
for every arm the rounds of later tasks that it counts. Rewards come `delay` rounds late; pending
pulls shrink the variances at once.
"""

import math

import numpy as np

from adats.agents.policies import CAUTION
from adats.models.core.types import FloatArray, IntArray
from adats.simulation.kernels.common import compiled
from adats.simulation.kernels.linear import dot
from adats.simulation.kernels.semibandit import best_set, forced, pull_set

GREEDY, UCB, INDEX, FAR = range(4)  # as in `simulate.INDICES`


@compiled
def _level(policy: int, level: float, v: float, horizon: float, counted: float) -> float:
    """z of one arm, whose index is mean + z·scale."""
    if policy == UCB:
        return level
    if policy == INDEX:
        hv = horizon * v
        if hv <= 0.0:
            return 0.0
        beta = min(horizon / math.log(horizon + 1.0) ** 1.5, hv / math.sqrt(math.log1p(hv)))
        return math.sqrt(2.0 * math.log(beta)) if beta > 1.0 else 0.0
    if policy == FAR:
        x = (horizon + counted) * v
        ahead = CAUTION * math.sqrt(math.log1p(0.4 * x + x * x / 300.0))
        return max(ahead - 0.583 * math.sqrt(v / (1.0 + v)), 0.0)
    return 0.0


@compiled
def _best(
    policy: int,
    level: float,
    horizon: float,
    counted: FloatArray,
    precision: FloatArray,
    centre: FloatArray,
    variance: FloatArray,
    bounds: FloatArray,
) -> int:
    """The arm with the highest index.

    Few levels are worked out: they only fall with the variance and the horizon, so those of
    earlier rounds, in `bounds`, bound them. That of Bayes-UCB is the same for all.
    """
    leader = 0
    for i in range(1, centre.size):
        if centre[i] > centre[leader]:
            leader = i
    arm, highest, known = leader, centre[leader], False
    for i in range(centre.size):
        bound = level if policy == UCB else bounds[i]
        gap = highest - centre[i]
        if i == leader or (gap > 0.0 and bound * bound * variance[i] < gap * gap):
            continue
        if not known:  # the leader's mean alone was not enough
            known = True
            v = variance[leader] * precision[leader]
            z = _level(policy, level, v, horizon, counted[leader])
            highest = max(highest, centre[leader] + z * math.sqrt(variance[leader]))
            gap = highest - centre[i]
            if gap > 0.0 and bound * bound * variance[i] < gap * gap:
                continue
        v = variance[i] * precision[i]
        z = _level(policy, level, v, horizon, counted[i])
        bounds[i] = z + 0.583 * math.sqrt(v) if policy == FAR else z
        value = centre[i] + z * math.sqrt(variance[i])
        if value > highest or (value == highest and i < arm):
            arm, highest = i, value
    return arm


@compiled
def gaussian_index_task(
    policy: int,
    levels: FloatArray,
    counted: FloatArray,
    delay: int,
    mean: FloatArray,
    scale: FloatArray,
    noise: FloatArray,
    theta: FloatArray,
    first: IntArray,
    draws: FloatArray,
    regret: FloatArray,
) -> FloatArray:
    """Gaussian arms; fills `regret` and returns the statistics."""
    rounds, arms = regret.size, mean.size
    table, asked = np.zeros((3, arms)), np.zeros(arms)
    centre, variance, precision = mean.copy(), scale**2, noise**-2.0
    ratio, chosen = (scale / noise) ** 2, np.empty(rounds, dtype=np.int64)
    best, bounds = theta.max(), np.full(arms, np.inf)
    for t in range(rounds):
        if t < len(first):
            arm = first[t, 0]
        else:
            level = levels[t] if policy == UCB else 0.0
            arm = _best(policy, level, rounds - t, counted, precision, centre, variance, bounds)
        chosen[t] = arm
        asked[arm] += 1.0
        variance[arm] = scale[arm] ** 2 / (1.0 + asked[arm] * ratio[arm])
        regret[t] = best - theta[arm]
        if t >= delay:
            arm = chosen[t - delay]
            _count(table, arm, theta[arm] + noise[arm] * draws[t - delay])
            told = mean[arm] + ratio[arm] * table[1, arm]
            centre[arm] = told / (1.0 + table[0, arm] * ratio[arm])
    for t in range(max(0, rounds - delay), rounds):
        arm = chosen[t]
        _count(table, arm, theta[arm] + noise[arm] * draws[t])
    return table


@compiled
def _count(table: FloatArray, arm: int, y: float) -> None:
    table[0, arm] += 1.0
    table[1, arm] += y
    table[2, arm] += y * y


@compiled
def semibandit_index_task(
    policy: int,
    levels: FloatArray,
    counted: FloatArray,
    mean: FloatArray,
    scale: FloatArray,
    noise: FloatArray,
    theta: FloatArray,
    best: float,
    size: int,
    edges: IntArray,
    ends: IntArray,
    floor: float,
    first: IntArray,
    draws: FloatArray,
    regret: FloatArray,
) -> FloatArray:
    """A set of arms a round: the index of each arm goes to the oracle."""
    rounds, arms = regret.size, mean.size
    table = np.zeros((3, arms))
    centre, spread, precision = mean.copy(), scale.copy(), noise**-2.0
    values, chosen = np.empty(arms), np.empty(arms, dtype=np.int64)
    for t in range(rounds):
        if t < len(first):
            count = forced(first[t], chosen)
        else:
            level = levels[t] if policy == UCB else 0.0
            for i in range(arms):
                v = spread[i] ** 2 * precision[i]
                values[i] = centre[i] + spread[i] * _level(policy, level, v, rounds - t, counted[i])
            count = best_set(values, size, edges, ends, floor, chosen)
        gained = pull_set(
            chosen[:count], theta, draws[t], table, mean, scale, noise, centre, spread
        )
        regret[t] = best - gained
    return table


@compiled
def linear_index_task(
    policy: int,
    levels: FloatArray,
    counted: FloatArray,
    delay: int,
    mean: FloatArray,
    factor: FloatArray,
    noise: float,
    theta: FloatArray,
    features: FloatArray,
    first: IntArray,
    draws: FloatArray,
    regret: FloatArray,
) -> tuple[float, FloatArray]:
    """Linear bandits whose arms stay the same: their means and variances are brought up to date.

    A pull of x changes the mean of arm a by aᵀΣx/(σ² + xᵀΣx) times the surprise, and its
    variance by -(aᵀΣx)²/(σ² + xᵀΣx). With a delay, variances know pulls as they are asked for
    (`ahead`), means as they are told.
    """
    rounds, dim, arms = regret.size, mean.size, features.shape[1]
    rows = features[0]
    means, centre, variance = rows @ theta, rows @ mean, np.empty(arms)
    cov = factor @ factor.T
    ahead = cov.copy()
    precision = np.full(arms, noise**-2.0)
    moved, gains = np.empty(dim), np.empty(arms)
    for k in range(arms):
        variance[k] = max((rows[k] @ cov) @ rows[k], 0.0)
    chosen, counts, totals, squares = (
        np.empty(rounds, dtype=np.int64),
        np.zeros(arms),
        np.zeros(arms),
        0.0,
    )
    best, bounds = means.max(), np.full(arms, np.inf)
    for t in range(rounds):
        if t < len(first):
            arm = first[t, 0]
        else:
            level = levels[t] if policy == UCB else 0.0
            arm = _best(policy, level, rounds - t, counted, precision, centre, variance, bounds)
        chosen[t] = arm
        regret[t] = best - means[arm]
        told = chosen[t - delay] if t >= delay else -1
        if told >= 0:
            y = means[told] + noise * draws[t - delay]
            counts[told] += 1.0
            totals[told] += y
            squares += y * y
            share = _pulled(cov, rows, told, noise, moved, gains)
            surprise = (y - centre[told]) * share
            for k in range(arms):
                centre[k] += gains[k] * surprise
        if delay > 0:
            share = _pulled(ahead, rows, arm, noise, moved, gains)
        for k in range(arms):
            variance[k] = max(variance[k] - gains[k] ** 2 * share, 0.0)
    for t in range(max(0, rounds - delay), rounds):
        y = means[chosen[t]] + noise * draws[t]
        counts[chosen[t]] += 1.0
        totals[chosen[t]] += y
        squares += y * y
    return float(rounds), _moments(rows, counts, totals, squares)


@compiled
def _pulled(
    cov: FloatArray, rows: FloatArray, arm: int, noise: float, moved: FloatArray, gains: FloatArray
) -> float:
    """Condition `cov` on one pull. Fills `gains` with aᵀΣx of every arm; gives 1/(σ² + xᵀΣx)."""
    dim = moved.size
    moved[:] = 0.0
    for j in range(dim):
        weight = rows[arm, j]
        for i in range(dim):
            moved[i] += cov[j, i] * weight
    for k in range(rows.shape[0]):
        gains[k] = dot(rows[k], moved)
    share: float = 1.0 / (noise * noise + gains[arm])
    for j in range(dim):
        weight = moved[j] * share
        for i in range(dim):
            cov[j, i] -= weight * moved[i]
    return share


@compiled
def _moments(
    rows: FloatArray, counts: FloatArray, totals: FloatArray, squares: float
) -> FloatArray:
    """Σ (a, y)(a, y)ᵀ from the pulls and rewards of every arm."""
    dim = rows.shape[1]
    moments = np.zeros((dim + 1, dim + 1))
    for k in range(len(counts)):
        if counts[k] > 0.0:
            for i in range(dim):
                moments[i, dim] += rows[k, i] * totals[k]
                for j in range(dim):
                    moments[i, j] += counts[k] * rows[k, i] * rows[k, j]
    moments[dim, :dim] = moments[:dim, dim]
    moments[dim, dim] = squares
    return moments
