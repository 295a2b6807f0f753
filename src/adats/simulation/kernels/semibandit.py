"""Semi-bandits: a set of Gaussian arms a round."""

import numpy as np

from adats.models.core.types import FloatArray, IntArray, Rng
from adats.simulation.kernels.common import compiled
from adats.simulation.kernels.gaussian import pull


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
            count = forced(first[t], chosen)
        else:
            for i in range(arms):
                values[i] = centre[i] + spread[i] * rng.standard_normal()
            count = best_set(values, size, edges, ends, floor, chosen)
        gained = pull_set(
            chosen[:count], theta, draws[t], table, mean, scale, noise, centre, spread
        )
        regret[t] = best - gained
    return table


@compiled
def pull_set(
    chosen: IntArray,
    theta: FloatArray,
    draws: FloatArray,
    table: FloatArray,
    mean: FloatArray,
    scale: FloatArray,
    noise: FloatArray,
    centre: FloatArray,
    spread: FloatArray,
) -> float:
    """Pull each arm of a set; gives the sum of their mean rewards."""
    gained = 0.0
    for arm in chosen:
        gained += theta[arm]
        y = theta[arm] + noise[arm] * draws[arm]
        pull(table, arm, y, mean, scale, noise, centre, spread)
    return gained


@compiled
def forced(arms: IntArray, chosen: IntArray) -> int:
    """The arms that forced exploration pulls in a round, and how many they are."""
    count = 0
    while count < arms.size and arms[count] >= 0:
        chosen[count] = arms[count]
        count += 1
    return count


@compiled
def best_set(
    values: FloatArray, size: int, edges: IntArray, ends: IntArray, floor: float, chosen: IntArray
) -> int:
    """The set of the largest value, and how many arms it has."""
    if len(edges):
        return _path(values, edges, ends, floor, chosen)
    return _top(values, size, chosen)


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
