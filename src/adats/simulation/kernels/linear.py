"""Linear bandits."""

import math

import numba
import numpy as np

from adats.models import LinearBelief, LinearStats
from adats.models.core.linalg import ALLOWED
from adats.models.core.types import FloatArray, Rng
from adats.simulation.kernels.common import Policy, World, compiled, fresh, inlined
from adats.simulation.kernels.indices import index_arm, loop_of
from adats.simulation.kernels.registry import TS, LoopInput

LinearPrior = tuple[FloatArray, FloatArray, float]  # mean, factor and noise

# A posterior: theta = mean + factor u, and the precision of u is L D Lᵀ, with the mean of u in one
# more row of L. These are L, D and D^-½. Column j of L is row j of the first array, so that every
# loop runs along memory.
Inner = tuple[FloatArray, FloatArray, FloatArray]


@compiled
def linear_task(
    prior: LinearPrior, features: FloatArray, world: World, rng: Rng
) -> tuple[FloatArray, float]:
    """Thompson sampling in a linear bandit; `features` has one set of arms, or one a round.

    A pull is a rank-one update of the posterior (without square roots), a sample one back
    substitution. Arms that stay the same are taken to the space of u once, in `inner`. Gives the
    moments, and `size_of` them.
    """
    mean, factor, noise = prior
    theta, first, draws, regret, actions = world
    dim, size = factor.shape
    arms, fixed, precision = features.shape[1], len(features) == 1, 1.0 / (noise * noise)
    moments = np.zeros((dim + 1, dim + 1))
    columns, diagonal, scale = no_data(size)
    u, x, z = np.empty(size), np.empty(size + 1), np.empty(dim + 1)
    values, means, base, zero = np.empty(arms), np.empty(arms), np.empty(arms), np.zeros(arms)
    across, turned = np.ascontiguousarray(features[0].T), np.ascontiguousarray(factor.T)
    inner = turned @ across if fixed else turned
    scores(zero, across, theta, means)
    scores(zero, across, mean, base)
    best = means.max()
    counts, totals = np.zeros(arms), np.zeros(arms)
    for t in range(regret.size):
        if t > 0 and not fixed:
            across = np.ascontiguousarray(features[t].T)
            scores(zero, across, theta, means)
            scores(zero, across, mean, base)
            best = means.max()
        if t < len(first):
            arm = first[t, 0]
        else:
            draw(columns, scale, rng, u)
            if fixed:
                scores(base, inner, u, values)
            else:
                scores(base, across, factor @ u, values)
            arm = largest(values)
        y = means[arm] + noise * draws[t]
        if fixed:
            counts[arm] += 1.0
            totals[arm] += y
            moments[dim, dim] += y * y
            for j in range(size):
                x[j] = inner[j, arm]
        else:
            z[:dim], z[dim] = across[:, arm], y
            add_outer(moments, z, 1.0)
            x[:size] = turned @ z[:dim]
        x[size] = y - base[arm]
        rank_one(columns, diagonal, scale, x, precision)
        regret[t], actions[t] = best - means[arm], arm
    for arm in range(arms):
        if counts[arm] > 0.0:
            z[:dim], z[dim] = across[:, arm], totals[arm] / counts[arm]
            squares = moments[dim, dim]
            add_outer(moments, z, counts[arm])
            moments[dim, dim] = squares
    return moments, size_of(mean, factor, noise, moments)


@compiled
def linear_index_task(
    policy: Policy, prior: LinearPrior, features: FloatArray, world: World
) -> tuple[FloatArray, float]:
    """An index policy where arms stay the same: their means and variances are brought up to date.

    A pull of x changes the mean of arm a by aᵀΣx/(σ² + xᵀΣx) times the surprise, and its
    variance by -(aᵀΣx)²/(σ² + xᵀΣx). With a delay, variances know pulls as they are asked for
    (`ahead`), means as rewards come.
    """
    mean, factor, noise = prior
    theta, first, draws, regret, actions = world
    number, levels, counted, delay = policy
    rounds, dim, arms = regret.size, mean.size, features.shape[1]
    rows = features[0]
    means, centre, variance = rows @ theta, rows @ mean, np.empty(arms)
    cov = factor @ factor.T
    ahead = cov.copy()
    precision = np.full(arms, noise**-2.0)
    moved, gains = np.empty(dim), np.empty(arms)
    for k in range(arms):
        variance[k] = max(np.dot(rows[k], cov, moved) @ rows[k], 0.0)
    counts, totals, squares = np.zeros(arms), np.zeros(arms), 0.0
    best, bounds = means.max(), np.full(arms, np.inf)
    for t in range(rounds):
        if t < len(first):
            arm = first[t, 0]
        else:
            now = (number, levels[t], rounds - t)
            arm = index_arm(now, counted, precision, centre, variance, bounds)
        regret[t], actions[t] = best - means[arm], arm
        rewarded = actions[t - delay] if t >= delay else -1
        if rewarded >= 0:
            y = means[rewarded] + noise * draws[t - delay]
            counts[rewarded] += 1.0
            totals[rewarded] += y
            squares += y * y
            share = _pulled(cov, rows, rewarded, noise, moved, gains)
            surprise = (y - centre[rewarded]) * share
            for k in range(arms):
                centre[k] += gains[k] * surprise
        if delay > 0:
            share = _pulled(ahead, rows, arm, noise, moved, gains)
        for k in range(arms):
            variance[k] = max(variance[k] - gains[k] ** 2 * share, 0.0)
    for t in range(max(0, rounds - delay), rounds):
        y = means[actions[t]] + noise * draws[t]
        counts[actions[t]] += 1.0
        totals[actions[t]] += y
        squares += y * y
    moments = _moments(rows, counts, totals, squares)
    return moments, size_of(mean, factor, noise, moments)


@compiled
def no_data(size: int) -> Inner:
    return np.zeros((size, size + 1)), np.ones(size), np.ones(size)


@inlined
def draw(columns: FloatArray, scale: FloatArray, rng: Rng, u: FloatArray) -> None:
    """Fill u = L⁻ᵀ (mean row + D^-½ z) with z standard normal.

    Entries are found two at a time, and what was found last is subtracted last, so that one sum
    does not wait for another.
    """
    size = u.size
    for j in range(size):
        u[j] = columns[j, size] + rng.standard_normal() * scale[j]
    for j in range(size - 1, 0, -2):
        one, other = u[j], u[j - 1]
        for i in range(size - 1, j, -1):
            one -= columns[j, i] * u[i]
            other -= columns[j - 1, i] * u[i]
        u[j], u[j - 1] = one, other - columns[j - 1, j] * one
    if size % 2 == 1:
        for i in range(size - 1, 0, -1):
            u[0] -= columns[0, i] * u[i]


@compiled
def rank_one(
    columns: FloatArray, diagonal: FloatArray, scale: FloatArray, x: FloatArray, precision: float
) -> float:
    """L D Lᵀ + precision x xᵀ, where the last entry of x is the reward less its prior mean.

    Leaves there how far the reward was from its prediction, and returns the precision of that
    prediction; the other entries of x are used up.
    """
    size, weight = diagonal.size, precision
    for j in range(size):
        p, old = x[j], diagonal[j]
        diagonal[j] = old + weight * p * p
        share = 1.0 / diagonal[j]
        gain = weight * p * share
        weight *= old * share
        scale[j] = math.sqrt(share)
        for i in range(j + 1, size + 1):
            x[i] -= p * columns[j, i]
            columns[j, i] += gain * x[i]
    return weight


@compiled
def add_outer(moments: FloatArray, z: FloatArray, weight: float) -> None:
    for i in range(z.size):
        for j in range(z.size):
            moments[i, j] += weight * z[i] * z[j]


@numba.njit(cache=True, fastmath={"reassoc", "contract"})
def dot(a: FloatArray, b: FloatArray) -> float:
    total = 0.0
    for i in range(a.size):
        total += a[i] * b[i]
    return total


@compiled
def scores(base: FloatArray, across: FloatArray, point: FloatArray, out: FloatArray) -> None:
    """base + features @ point, with the features across, so that the inner loop is over arms.

    Four features are added at a time: `out` is read and written less often.
    """
    for k in range(out.size):  # out[:] = base takes as long as all the rest
        out[k] = base[k]
    whole = point.size // 4 * 4
    for i in range(0, whole, 4):
        first, second, third, fourth = across[i], across[i + 1], across[i + 2], across[i + 3]
        a, b, c, d = point[i], point[i + 1], point[i + 2], point[i + 3]
        for k in range(out.size):
            out[k] += (first[k] * a + second[k] * b) + (third[k] * c + fourth[k] * d)
    for i in range(whole, point.size):
        weight = point[i]
        for k in range(out.size):
            out[k] += across[i, k] * weight


@compiled
def largest(values: FloatArray) -> int:
    """The first index of the largest value; faster than argmax, which looks for NaN."""
    arm, highest = 0, values[0]
    for k in range(1, values.size):
        if values[k] > highest:
            arm, highest = k, values[k]
    return arm


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


@compiled
def size_of(mean: FloatArray, factor: FloatArray, noise: float, moments: FloatArray) -> float:
    """At least the largest eigenvalue of FᵀGF/σ²: the trace of G times that of FFᵀ."""
    pulled, width = 0.0, 0.0
    for i in range(mean.size):
        pulled += moments[i, i]
        for j in range(factor.shape[1]):
            width += factor[i, j] * factor[i, j]
    return pulled * width / (noise * noise)


def linear_prior(belief: LinearBelief) -> LinearPrior:
    """A belief as the compiled loops take it."""
    mean, factor = fresh(belief.mean, belief.factor)
    return mean, factor, belief.noise


def play(problem: object, task: LoopInput) -> LinearStats | None:  # noqa: ARG001
    prior, features = linear_prior(task.prior), task.instance.features
    if features is None:
        raise ValueError("an instance of a linear bandit has features")
    if task.policy.number == TS:
        moments, size = linear_task(prior, features, task.world(), task.rng)
    elif len(features) == 1:
        loop = loop_of(linear_index_task, task.policy.rule)
        moments, size = loop(task.policy.fields(), prior, features, task.world())
    else:
        return None
    stats = LinearStats(float(task.regret.size), moments)
    if size > ALLOWED:  # too much for double precision? then it raises
        task.prior.condition(stats)
    return stats
