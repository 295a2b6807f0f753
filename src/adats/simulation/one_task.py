"""One task: by its compiled loop where there is one that serves, else by the plain one."""

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtri

from adats.agents.agent import Agent
from adats.agents.policies import (
    CAUTION,
    POLICIES,
    FarSighted,
    OwnIndex,
    Policy,
    Scene,
    Thompson,
)
from adats.agents.task_state import with_pulls, without_pulls
from adats.models.core.types import Belief, FloatArray, IntArray, MetaBelief, Rng, Stats
from adats.simulation.kernels.registry import FAR, NUMBERED, THOMPSON, CompiledPolicy, Loops
from adats.simulation.problems import Instance, Problem

if TYPE_CHECKING:
    from adats.simulation.play import Job

Given = tuple[Belief, Instance, IntArray, Rng, FloatArray, IntArray]  # the fields of `LoopInput`
NAMES = {type(policy): name for name, policy in POLICIES.items()}


def compiled_policy(
    job: "Job", policy: Policy, loops: Loops, instance: Instance
) -> CompiledPolicy | None:
    """A policy as compiled loops take it; None if there is none.

    It is the same in all tasks, but for the later rounds that the far-sighted index counts: none.
    """
    if isinstance(policy, Thompson):
        return THOMPSON if job.delay == 0 else None
    if isinstance(policy, OwnIndex) and loops.own_index:
        numbers = np.arange(1.0, job.rounds + 1.0)
        return CompiledPolicy(len(NUMBERED), numbers, np.zeros(0), job.delay, policy.rule)
    counted = np.zeros(instance.means(0).size)
    if isinstance(policy, FarSighted):
        return CompiledPolicy(FAR, _widths(job.rounds, policy.width), counted, job.delay)
    if type(policy) not in NAMES:
        return None
    return index_policy(NAMES[type(policy)], job.rounds, counted, job.delay)


def rounds_ahead(policy: FarSighted, rounds: Sequence[int], most: int) -> list[float]:
    """How many rounds of later tasks it looks at in each of these: those of `most` like it at most.

    Tasks have so many `rounds`.
    """
    later = np.cumsum([0, *rounds[:0:-1]])[::-1] if policy.later is None else policy.later
    ahead: list[float] = np.minimum(later, most * np.array(rounds)).tolist()
    return ahead


def play_without_loop(job: "Job", policy: Policy, meta: MetaBelief, given: Given) -> Stats:
    options: Any = {"policy": policy, "delay": job.delay, "stats": meta.empty()}
    return plain_task(job.problem, *given, **options, share=lambda rows: meta.share(rows=rows))


def index_policy(name: str, rounds: int, counted: FloatArray, delay: int = 0) -> CompiledPolicy:
    """An index policy by its name, for a task of so many rounds."""
    levels = _widths(rounds, CAUTION) if name == "far" else _levels(rounds)
    return CompiledPolicy(NUMBERED.index(name), levels, counted, delay)


@functools.lru_cache(maxsize=64)
def _widths(rounds: int, width: float) -> FloatArray:
    return np.full(rounds, width)


@functools.cache
def _levels(rounds: int) -> FloatArray:
    """The level of Bayes-UCB in every round."""
    return np.array(ndtri(1.0 - 1.0 / np.arange(2.0, rounds + 2.0)))


def plain_task(
    problem: Problem,
    prior: Belief,
    instance: Instance,
    first: IntArray,
    rng: Rng,
    regret: FloatArray,
    actions: IntArray | None = None,
    *,
    policy: Policy = POLICIES["ts"],
    share: Callable[[FloatArray | None], FloatArray | float] = lambda _: 0.0,
    delay: int = 0,
    stats: Stats | None = None,
) -> Stats:
    """One task with nothing compiled, for any belief and oracle: the kernels' reference.

    `share` is `MetaBelief.share` of arms with these features. `stats` are empty statistics, if the
    belief is of another kind than the problem's.
    """
    stats = problem.meta().empty() if stats is None else stats
    pending: FloatArray | None = None
    waiting: list[Any] = []  # pulls and their rewards, until they are known
    for t in range(regret.size):
        rows, means = instance.rows(t), instance.means(t)
        action: int | IntArray
        if t < len(first):
            arms = first[t][first[t] >= 0]
            action = int(arms[0]) if isinstance(problem.oracle(means), int) else arms
        else:
            belief, left = prior.condition(stats).belief, regret.size - t
            scene = Scene(belief, rng, rows, t + 1, left, pending, functools.partial(share, rows))
            action = problem.oracle(policy.values(scene))
        pulled = action if rows is None else rows[action]
        waiting.append((pulled, _reward(problem, instance, t, means, action)))
        if delay > 0:
            pending = with_pulls(pending, rows, action, means.size)
        if len(waiting) > delay:
            pulled, reward = waiting.pop(0)
            stats = stats.add(pulled, reward)
            pending = None if pending is None else without_pulls(pending, pulled)
        regret[t] = means[problem.oracle(means)].sum() - means[action].sum()
        if actions is not None and isinstance(action, int):
            actions[t] = instance.number(t, action)
    for pulled, reward in waiting:
        stats = stats.add(pulled, reward)
    return stats


def _reward(
    problem: Problem, instance: Instance, t: int, means: FloatArray, action: int | IntArray
) -> float | list[float]:
    if isinstance(action, int):
        return problem.reward(float(means[action]), instance.draw(t, action))
    return [problem.reward(float(means[arm]), instance.draw(t, arm)) for arm in action.tolist()]


def play_agent(
    problem: Problem,
    agent: Any,
    instances: list[Instance],
    regret: FloatArray,
    actions: IntArray,
    delay: int,
) -> None:
    """All tasks of one run by an agent with ask and tell."""
    rounds = regret.shape[1]
    for s, instance in enumerate(instances):
        waiting: list[tuple[Any, Any]] = []  # decisions and their rewards, until they are known
        for t in range(rounds):
            rows, means = instance.rows(t), instance.means(t)
            options: dict[str, Any] = {} if rows is None else {"features": rows}
            if isinstance(agent, Agent):
                options["horizon"] = rounds - t
            decision = agent.ask(s, **options)
            arms = np.asarray(decision.action, dtype=np.intp)
            action = arms if arms.ndim else int(arms)
            waiting.append((decision, _reward(problem, instance, t, means, action)))
            if len(waiting) > delay:
                known, reward = waiting.pop(0)
                agent.tell(known, reward=reward)
            regret[s, t] = means[problem.oracle(means)].sum() - means[action].sum()
            if isinstance(action, int):
                actions[s, t] = instance.number(t, action)
        for known, reward in waiting:
            agent.tell(known, reward=reward)
