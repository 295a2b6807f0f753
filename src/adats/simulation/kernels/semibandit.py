"""Semi-bandits: a set of Gaussian arms a round."""

from typing import TYPE_CHECKING

import numpy as np

from adats.models.core.stats import ArmStats
from adats.models.core.types import FloatArray, IntArray, Rng
from adats.simulation.kernels.common import Policy, World, compiled
from adats.simulation.kernels.gaussian import ArmPrior, arm_prior, pull
from adats.simulation.kernels.indices import level_of
from adats.simulation.kernels.registry import TS, LoopInput

if TYPE_CHECKING:
    from adats.simulation.problems.semibandit import GaussianSets

# At most `size` arms, or the edges of a shortest path: `size`, `edges`, `ends` and `floor`. `edges`
# has no row for a top-size problem; else it has the two nodes of every edge, and `ends` the
# source, the target and the number of nodes.
Sets = tuple[int, IntArray, IntArray, float]


@compiled
def semibandit_task(
    policy: Policy, prior: ArmPrior, sets: Sets, best: float, world: World, rng: Rng | None
) -> FloatArray:
    """The values of the arms go to the oracle, whose best set is worth `best`.

    Thompson sampling where there is an `rng`, else an index policy: two functions, compiled.
    """
    number, levels, counted, _ = policy
    mean, scale, noise = prior
    theta, first, draws, regret, _ = world
    rounds, arms = regret.size, mean.size
    table = np.zeros((3, arms))
    centre, spread, precision = mean.copy(), scale.copy(), noise**-2.0
    values, chosen = np.empty(arms), np.empty(arms, dtype=np.int64)
    for t in range(rounds):
        if t < len(first):
            count = forced(first[t], chosen)
        else:
            for i in range(arms):
                if rng is None:
                    v = spread[i] ** 2 * precision[i]
                    z = level_of(number, levels[t], v, rounds - t, counted[i])
                else:
                    z = rng.standard_normal()
                values[i] = centre[i] + spread[i] * z
            count = best_set(values, sets, chosen)
        gained = 0.0
        for arm in chosen[:count]:
            gained += theta[arm]
            y = theta[arm] + noise[arm] * draws[t, arm]
            pull(table, arm, y, mean, scale, noise, centre, spread)
        regret[t] = best - gained
    return table


@compiled
def forced(arms: IntArray, chosen: IntArray) -> int:
    """The arms that forced exploration pulls in a round, and how many they are."""
    count = 0
    while count < arms.size and arms[count] >= 0:
        chosen[count] = arms[count]
        count += 1
    return count


@compiled
def best_set(values: FloatArray, sets: Sets, chosen: IntArray) -> int:
    """The set of the largest value, and how many arms it has."""
    size, edges, ends, floor = sets
    if len(edges):
        return path(values, edges, ends, floor, chosen)
    return top(values, size, chosen)


@compiled
def top(values: FloatArray, size: int, chosen: IntArray) -> int:
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
def path(
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


def play(problem: "GaussianSets", task: LoopInput) -> ArmStats | None:
    if task.policy.delay > 0:
        return None
    theta = task.instance.theta
    best = float(theta[problem.oracle(theta)].sum())
    given = (task.policy.fields(), arm_prior(task.prior), problem.sets(), best)
    rng = task.rng if task.policy.number == TS else None
    return ArmStats(semibandit_task(*given, task.world(), rng))
