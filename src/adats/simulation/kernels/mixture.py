"""Bernoulli and Poisson arms with a mixture of priors."""

import math
from typing import TYPE_CHECKING

import numpy as np

from adats.models import ArmStats, MixtureArms
from adats.models.core.product import ProductArms
from adats.models.core.types import FloatArray, IntArray, Rng
from adats.simulation.kernels.common import World, compiled, count_reward, fresh, pick, reward
from adats.simulation.kernels.registry import TS, LoopInput

if TYPE_CHECKING:
    from adats.simulation.problems import MixtureProblem, Problem


COUNTS = {"binary": False, "count": True}  # whether rewards are counts; else they are 0 or 1
Candidates = tuple[FloatArray, FloatArray]  # alpha and beta, or shape and rate: (candidates, arms)


@compiled
def mixture_task(
    counts: bool, weights: FloatArray, candidates: Candidates, world: World, rng: Rng
) -> FloatArray:
    """Bernoulli arms with beta candidates, or Poisson `counts` with gamma candidates.

    `weights` has one column, or one an arm; they are multiplied by the density of each reward and
    made to sum to one again, so that nothing underflows.
    """
    shape, rate = candidates
    theta, first, draws, regret, actions = world
    size, groups = weights.shape
    arms = theta.size
    weights = weights.copy()
    table = np.zeros((4 if counts else 3, arms))
    picks, values = np.zeros(arms, dtype=np.int64), np.zeros(arms)
    best = theta.max()
    for t in range(regret.size):
        if t < len(first):
            arm = first[t, 0]
        else:
            for g in range(groups):
                picks[g] = pick(weights[:, g], rng.random())
            arm, highest = 0, -np.inf
            for k in range(arms):
                picks[k] = j = picks[k if groups > 1 else 0]
                pulls, total = table[0, k], table[1, k]
                if counts:
                    value = rng.standard_gamma(shape[j, k] + total) / (rate[j, k] + pulls)
                else:
                    value = rng.beta(shape[j, k] + total, rate[j, k] + pulls - total)
                values[k] = value
                if value > highest:
                    arm, highest = k, value
            if highest == 0.0 or (highest == 1.0 and not counts):
                arm = untied(values, picks, candidates, table, rng)
        pulls, total = table[0, arm], table[1, arm]
        g = arm if groups > 1 else 0
        y = reward(counts, theta[arm], draws[t])
        if counts:
            table[3, arm] += math.lgamma(y + 1.0)
        if groups and counts:
            top = -np.inf
            logs = np.empty(size)
            for j in range(size):
                a, b = shape[j, arm] + total, rate[j, arm] + pulls
                logs[j] = math.lgamma(a + y) - math.lgamma(a)
                logs[j] += a * math.log(b / (b + 1.0)) - y * math.log(b + 1.0)
                if weights[j, g] > 0.0:
                    top = max(top, logs[j])
            for j in range(size):
                if weights[j, g] > 0.0:
                    weights[j, g] *= math.exp(logs[j] - top)
        elif groups:
            for j in range(size):
                a, b = shape[j, arm] + total, rate[j, arm] + pulls - total
                weights[j, g] *= (a if y > 0.0 else b) / (a + b)
        if groups:
            weights[:, g] /= weights[:, g].sum()
        count_reward(table, arm, y)
        regret[t], actions[t] = best - theta[arm], arm
    return table


@compiled
def untied(
    values: FloatArray, picks: IntArray, candidates: Candidates, table: FloatArray, rng: Rng
) -> int:
    """The best of draws that were rounded to 0, or to 1: as `models.core.ties` has it."""
    highest = values.max()
    arm = int(values.argmax())
    if (values == highest).sum() > 1:
        furthest = -np.inf
        for k in range(values.size):
            if values[k] == highest:
                pulls, total = table[0, k], table[1, k]
                if highest > 0.0:
                    far = rng.standard_exponential() / (candidates[1][picks[k], k] + pulls - total)
                else:
                    far = -rng.standard_exponential() / (candidates[0][picks[k], k] + total)
                if far > furthest:
                    arm, furthest = k, far
    return arm


def play(problem: "MixtureProblem", task: LoopInput) -> ArmStats | None:  # noqa: ARG001
    prior: MixtureArms = task.prior
    return _play(task, prior.weights, prior.components.parameters(), prior.components)


def play_told(problem: "Problem", task: LoopInput) -> ArmStats | None:  # noqa: ARG001
    """The same where the candidate is known, so that there is nothing to draw."""
    prior: ProductArms = task.prior
    return _play(task, np.ones((1, 0)), tuple(p[None] for p in prior.parameters()), prior)


def _play(
    task: LoopInput,
    weights: FloatArray,
    parameters: tuple[FloatArray, ...],
    kind: ProductArms,
) -> ArmStats | None:
    if task.policy.number != TS or kind.MODEL not in COUNTS:
        return None
    weights, shape, rate = fresh(weights, *parameters)
    given = (COUNTS[kind.MODEL], weights, (shape, rate), task.world(), task.rng)
    return kind.STATS(mixture_task(*given))
