"""The simulator's compiled inner loops: one task of one run a call.

Each is the loop of `simulate.plain_task` for one model, written out: the same draws in the same
order, so the same decisions. `first` are the arms that forced exploration pulls, one row a round,
padded with -1; `draws` are the random parts of the rewards, which all agents share.
"""

import math

import numba
import numpy as np

from adats.linalg import two_sum
from adats.meta.gaussian import arm_digest
from adats.types import FloatArray, IntArray, Rng

compiled = numba.njit(cache=True, error_model="numpy")


class KnownRng(np.random.Generator):
    """A generator whose type Numba knows at once; with a plain one, every call looks it up."""

    _numba_type_ = numba.types.NumPyRandomGeneratorType(np.random.default_rng(0))


@compiled
def gaussian_task(
    mean: FloatArray,
    scale: FloatArray,
    noise: FloatArray,
    theta: FloatArray,
    first: IntArray,
    draws: FloatArray,
    rng: Rng,
    regret: FloatArray,
) -> FloatArray:
    """Thompson sampling with Gaussian arms; fills `regret` and returns the statistics."""
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
        _pull(table, arm, y, mean, scale, noise, centre, spread)
        regret[t] = best - theta[arm]
    return table


@compiled
def _pull(
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
    table[0, arm] += 1.0
    table[1, arm] += y
    table[2, arm] += y * y
    ratio = (scale[arm] / noise[arm]) ** 2
    keep = 1.0 / (1.0 + table[0, arm] * ratio)
    centre[arm] = keep * (mean[arm] + ratio * table[1, arm])
    spread[arm] = scale[arm] * math.sqrt(keep)


_arm_digest = compiled(arm_digest)
_two_sum = compiled(two_sum)


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
        told = _arm_digest(
            table[0, i],
            table[1, i],
            table[2, i],
            constants[0, i],
            constants[1, i],
            constants[2, i],
            constants[3, i],
        )
        for k in range(3):
            j = k * arms + i
            high[j], lost = _two_sum(high[j], told[k])
            low[j] += lost
        m, h = high[i] + low[i], high[arms + i] + low[arms + i]
        variance[i] = meta_variance[i] / (1.0 + meta_variance[i] * m)  # (eq. 2)
        mean[i] = meta_mean[i] + variance[i] * h  # (eq. 2)
    return high, low, mean, variance


@compiled
def semibandit_task(
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
    rng: Rng,
    regret: FloatArray,
) -> FloatArray:
    """The same with a set of arms: at most `size` of them, or the edges of a shortest path.

    `edges` has no row for a top-size problem; else it has the two nodes of every edge, and `ends`
    the source, the target and the number of nodes.
    """
    arms = mean.size
    table = np.zeros((3, arms))
    centre, spread = mean.copy(), scale.copy()
    values, chosen = np.empty(arms), np.empty(arms, dtype=np.int64)
    for t in range(regret.size):
        if t < len(first):
            count = 0
            while count < first.shape[1] and first[t, count] >= 0:
                chosen[count] = first[t, count]
                count += 1
        else:
            for i in range(arms):
                values[i] = centre[i] + spread[i] * rng.standard_normal()
            if len(edges):
                count = _path(values, edges, ends, floor, chosen)
            else:
                count = _top(values, size, chosen)
        gained = 0.0
        for i in range(count):
            arm = chosen[i]
            gained += theta[arm]
            y = theta[arm] + noise[arm] * draws[t, arm]
            _pull(table, arm, y, mean, scale, noise, centre, spread)
        regret[t] = best - gained
    return table


@compiled
def _top(values: FloatArray, size: int, chosen: IntArray) -> int:
    """The `size` largest values that are not negative, in the order of their arms."""
    left = values.copy()
    count = 0
    while count < size:
        arm = int(left.argmax())
        if left[arm] < 0.0:
            break
        left[arm] = -np.inf
        count += 1
    found = 0
    for arm in range(values.size):
        if left[arm] == -np.inf:
            chosen[found] = arm
            found += 1
    return found


@compiled
def _path(
    values: FloatArray, edges: IntArray, ends: IntArray, floor: float, chosen: IntArray
) -> int:
    """The edges of the shortest path by Bellman and Ford, in the order of their arms."""
    source, target, nodes = ends
    distance = np.full(nodes, np.inf)
    last = np.full(nodes, -1)
    distance[source] = 0.0
    moved = True
    while moved:
        moved = False
        for e in range(len(edges)):
            cost = max(-values[e], floor)
            for a, b in ((edges[e, 0], edges[e, 1]), (edges[e, 1], edges[e, 0])):
                if distance[a] + cost < distance[b]:
                    distance[b] = distance[a] + cost
                    last[b] = e
                    moved = True
    count, node = 0, target
    while node != source:
        e = last[node]
        chosen[count] = e
        count += 1
        node = edges[e, 0] if edges[e, 1] == node else edges[e, 1]
    chosen[:count].sort()
    return count


@compiled
def linear_task(
    mean: FloatArray,
    factor: FloatArray,
    noise: float,
    theta: FloatArray,
    features: FloatArray,
    first: IntArray,
    draws: FloatArray,
    rng: Rng,
    regret: FloatArray,
) -> tuple[float, FloatArray]:
    """Thompson sampling in a linear bandit; `features` has one set of arms, or one a round.

    theta = mean + factor u, and the precision of u is L D Lᵀ, with the mean of u in one more row
    of L. A pull is a rank-one update of both (without square roots), a sample one back
    substitution. Column j of L is row j of `columns`, so that every loop runs along memory.
    Arms that stay the same are taken to the space of u once, in `inner`.
    """
    dim, size = factor.shape
    arms, fixed = features.shape[1], len(features) == 1
    moments = np.zeros((dim + 1, dim + 1))
    columns, diagonal, scale = np.zeros((size, size + 1)), np.ones(size), np.ones(size)
    u, x, z = np.empty(size), np.empty(size + 1), np.empty(dim + 1)
    values, means, base, zero = np.empty(arms), np.empty(arms), np.empty(arms), np.zeros(arms)
    across, turned = np.ascontiguousarray(features[0].T), np.ascontiguousarray(factor.T)
    inner = turned @ across if fixed else turned
    _scores(zero, across, theta, means)
    _scores(zero, across, mean, base)
    best = means.max()
    counts, totals = np.zeros(arms), np.zeros(arms)
    for t in range(regret.size):
        if t > 0 and not fixed:
            across = np.ascontiguousarray(features[t].T)
            _scores(zero, across, theta, means)
            _scores(zero, across, mean, base)
            best = means.max()
        if t < len(first):
            arm = first[t, 0]
        else:
            for j in range(size):
                u[j] = columns[j, size] + rng.standard_normal() * scale[j]
            for j in range(size - 2, -1, -1):  # u = L⁻ᵀ (mean row + D^-½ z)
                u[j] -= _dot(columns[j, j + 1 : size], u[j + 1 :])
            if fixed:
                _scores(base, inner, u, values)
            else:
                _scores(base, across, factor @ u, values)
            arm = int(values.argmax())
        y = means[arm] + noise * draws[t]
        if fixed:
            counts[arm] += 1.0
            totals[arm] += y
            moments[dim, dim] += y * y
            for j in range(size):
                x[j] = inner[j, arm]
        else:
            z[:dim], z[dim] = across[:, arm], y
            _add_outer(moments, z, 1.0)
            x[:size] = turned @ z[:dim]
        x[size] = y - base[arm]
        weight = 1.0 / (noise * noise)
        for j in range(size):  # L D Lᵀ + weight x xᵀ
            p, old = x[j], diagonal[j]
            diagonal[j] = old + weight * p * p
            share = 1.0 / diagonal[j]
            gain = weight * p * share
            weight *= old * share
            scale[j] = math.sqrt(share)
            for i in range(j + 1, size + 1):
                x[i] -= p * columns[j, i]
                columns[j, i] += gain * x[i]
        regret[t] = best - means[arm]
    for arm in range(arms):
        if counts[arm] > 0.0:
            z[:dim], z[dim] = across[:, arm], totals[arm] / counts[arm]
            squares = moments[dim, dim]
            _add_outer(moments, z, counts[arm])
            moments[dim, dim] = squares
    return float(regret.size), moments


@compiled
def _add_outer(moments: FloatArray, z: FloatArray, weight: float) -> None:
    for i in range(z.size):
        for j in range(z.size):
            moments[i, j] += weight * z[i] * z[j]


@numba.njit(cache=True, fastmath={"reassoc", "contract"})
def _dot(a: FloatArray, b: FloatArray) -> float:
    total = 0.0
    for i in range(a.size):
        total += a[i] * b[i]
    return total


@compiled
def _scores(base: FloatArray, across: FloatArray, point: FloatArray, out: FloatArray) -> None:
    """base + features @ point, with the features across, so that the inner loop is over arms."""
    out[:] = base
    for i in range(point.size):
        weight = point[i]
        for k in range(out.size):
            out[k] += across[i, k] * weight


@compiled
def mixture_task(
    counts: bool,
    weights: FloatArray,
    shape: FloatArray,
    rate: FloatArray,
    theta: FloatArray,
    first: IntArray,
    draws: FloatArray,
    rng: Rng,
    regret: FloatArray,
) -> FloatArray:
    """Bernoulli arms with beta candidates, or Poisson `counts` with gamma candidates.

    `weights` has one column, or one an arm; they are multiplied by the density of each reward and
    made to sum to one again, so that nothing underflows.
    """
    candidates, groups = weights.shape
    arms = theta.size
    weights = weights.copy()
    table = np.zeros((4 if counts else 3, arms))
    picks = np.zeros(arms, dtype=np.int64)
    best = theta.max()
    for t in range(regret.size):
        if t < len(first):
            arm = first[t, 0]
        else:
            for g in range(groups):
                picks[g] = _draw(weights[:, g], rng.random())
            arm, highest = 0, -np.inf
            for k in range(arms):
                j = picks[k if groups > 1 else 0]
                pulls, total = table[0, k], table[1, k]
                if counts:
                    value = rng.standard_gamma(shape[j, k] + total) / (rate[j, k] + pulls)
                else:
                    value = rng.beta(shape[j, k] + total, rate[j, k] + pulls - total)
                if value > highest:
                    arm, highest = k, value
        pulls, total = table[0, arm], table[1, arm]
        g = arm if groups > 1 else 0
        if counts:
            y = _poisson(theta[arm], draws[t])
            table[3, arm] += math.lgamma(y + 1.0)
        else:
            y = 1.0 if draws[t] < theta[arm] else 0.0
        if groups and counts:
            top = -np.inf
            logs = np.empty(candidates)
            for j in range(candidates):
                a, b = shape[j, arm] + total, rate[j, arm] + pulls
                logs[j] = math.lgamma(a + y) - math.lgamma(a)
                logs[j] += a * math.log(b / (b + 1.0)) - y * math.log(b + 1.0)
                if weights[j, g] > 0.0:
                    top = max(top, logs[j])
            for j in range(candidates):
                if weights[j, g] > 0.0:
                    weights[j, g] *= math.exp(logs[j] - top)
        elif groups:
            for j in range(candidates):
                a, b = shape[j, arm] + total, rate[j, arm] + pulls - total
                weights[j, g] *= (a if y > 0.0 else b) / (a + b)
        if groups:
            weights[:, g] /= weights[:, g].sum()
        table[0, arm] += 1.0
        table[1, arm] += y
        table[2, arm] += y * y
        regret[t] = best - theta[arm]
    return table


@compiled
def _draw(weights: FloatArray, point: float) -> int:
    """The index at which the cumulative weights pass the point."""
    cumulative = weights.cumsum()
    goal = point * cumulative[-1]
    index = 0
    while index < weights.size - 1 and cumulative[index] <= goal:
        index += 1
    return index


@compiled
def _poisson(mean: float, point: float) -> float:
    """The smallest count whose distribution function reaches the point."""
    count = max(0.0, math.floor(mean - 12.0 * math.sqrt(mean) - 12.0))
    mass = math.exp(count * math.log(mean) - mean - math.lgamma(count + 1.0))
    total = mass
    while total < point and (mass > 0.0 or count < mean):
        count += 1.0
        mass *= mean / count
        total += mass
    return count
