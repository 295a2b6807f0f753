"""One run, one task, one round: what every worker does."""

import functools
import time
import zlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple, cast

import numpy as np
from scipy.special import ndtri

from adats.agents.agent import Agent
from adats.agents.pending import with_pulls, without_pulls
from adats.agents.policies import (
    CAUTION,
    POLICIES,
    FarSighted,
    OwnIndex,
    Policy,
    Scene,
    Thompson,
    policy_of,
)
from adats.agents.prior_source import Marginal
from adats.models.core.frozen import evolve
from adats.models.core.types import Belief, FloatArray, IntArray, MetaBelief, Rng, Stats
from adats.simulation.kernels.registry import (
    NUMBERED,
    THOMPSON,
    CompiledPolicy,
    LoopInput,
    Loops,
    absorb_of,
    known_rng,
    loops_of,
    plain_absorb,
)
from adats.simulation.learners import Learner
from adats.simulation.problems import Instance, Problem
from adats.simulation.problems.problem import Start

Given = tuple[Belief, Instance, IntArray, Rng, FloatArray, IntArray]  # the fields of `LoopInput`
Factory = Callable[[Problem, int], Any]  # an agent with ask and tell, from a problem and a seed
NAMES = {type(policy): name for name, policy in POLICIES.items()}


class Job(NamedTuple):
    """All that a worker needs."""

    problem: Problem
    agents: dict[str, Learner | Factory]
    metas: dict[str, MetaBelief]  # meta-priors of the built-in agents
    tasks: int
    rounds: int
    seed: int
    explore_first: bool
    delay: int
    by_round: bool
    record: bool
    compiled: bool


class PlayedRuns(NamedTuple):
    """Some of the runs, played."""

    runs: range
    regret: FloatArray
    actions: IntArray | None
    seconds: FloatArray  # of every agent


def _stream(job: Job, *key: int) -> Rng:
    return np.random.default_rng(np.random.SeedSequence(job.seed, spawn_key=key))


def play_runs(job: Job, runs: range) -> PlayedRuns:
    """All agents on the same instances, run by run."""
    shape = (len(job.agents), len(runs), job.tasks, job.rounds)
    regret = np.empty(shape if job.by_round else shape[:3])
    actions = np.empty(shape, dtype=np.intp) if job.record else None
    seconds = np.zeros(len(job.agents))
    lost = np.empty((job.tasks, job.rounds))
    chosen = np.empty((job.tasks, job.rounds), dtype=np.intp)
    if job.compiled:
        _warm_up(job)
    for i, run in enumerate(runs):
        world = _stream(job, run, 0)
        start = job.problem.start(world)
        instances = [job.problem.instance(start, job.rounds, world) for _ in range(job.tasks)]
        first = job.problem.first(start) if job.explore_first else np.zeros((0, 1), dtype=np.intp)
        for a, (name, agent) in enumerate(job.agents.items()):
            key = zlib.crc32(name.encode())  # the same stream whatever agents there are besides
            rng = _stream(job, run, 1, key)
            if job.compiled:
                rng = known_rng(rng)
            begin = time.perf_counter()
            if isinstance(agent, Learner):
                meta = job.metas[name]
                play_learner(job, agent, meta, start, instances, first, rng, lost, chosen)
            else:
                built = agent(job.problem, int(rng.integers(2**63)))
                _play_agent(job.problem, built, instances, lost, chosen, job.delay)
            seconds[a] += time.perf_counter() - begin
            regret[a, i] = lost if job.by_round else lost.sum(axis=1)
            if actions is not None:
                actions[a, i] = chosen
    return PlayedRuns(runs, regret, actions, seconds)


def _warm_up(job: Job) -> None:
    """Compile or load the loops, so that no agent's time has that in it."""
    rng = known_rng(np.random.default_rng(0))
    start = job.problem.start(rng)
    instances = [job.problem.instance(start, 1, rng)]
    nothing = np.zeros((0, 1), dtype=np.intp)
    for name, meta in job.metas.items():
        learner = cast(Learner, job.agents[name])
        room = (np.empty((1, 1)), np.empty((1, 1), dtype=np.intp))
        play_learner(job, learner, meta, start, instances, nothing, rng, *room)


def play_learner(
    job: Job,
    learner: Learner,
    meta: MetaBelief,
    start: Start,
    instances: list[Instance],
    first: IntArray,
    rng: Rng,
    regret: FloatArray,
    actions: IntArray,
    watch: Callable[[Belief], None] | None = None,
) -> None:
    """All tasks of one run, one after another, by a built-in agent (paper, Algorithm 1).

    `watch` sees the prior of each task, and that of the task that would come next.
    """
    absorb = absorb_of(job.problem, meta) if job.compiled else plain_absorb
    source = learner.source_of(start.mu)
    learns, prior = source.LEARNS, source.prior(meta, source.draw(meta, rng))
    loops = loops_of(job.problem, prior) if job.compiled else Loops()
    loop = loops.play
    policy = policy_of(learner.policy)
    sampled = loop is not None and isinstance(policy, Thompson) and job.delay == 0
    if loops.play_all and sampled and isinstance(source, Marginal) and watch is None:
        loops.play_all(meta, instances, first, rng, regret, actions)
        return
    most = prior.FAR_TASKS
    absorbed: list[Stats] = []  # statistics of all tasks, where they can become stale
    first_meta = meta
    for s, (instance, lost, chosen) in enumerate(zip(instances, regret, actions, strict=True)):
        if learns and s:
            prior = source.prior(meta, source.draw(meta, rng))
        if watch is not None:
            watch(meta.task_prior())
        stats = None
        if loop is not None and sampled:
            stats = loop(job.problem, LoopInput(prior, instance, first, rng, lost, chosen))
        if stats is None:
            later = min(job.tasks - 1 - s, most) * job.rounds
            given = (prior, instance, first, rng, lost, chosen)
            stats = _play_task(job, policy, meta, later, given)
        if learns and meta.RENEWS:
            meta = absorb_and_renew(first_meta, meta, stats, absorbed, loops.renew)
        elif learns:
            meta = absorb(meta, stats)
    if watch is not None:
        watch(meta.task_prior())


def absorb_and_renew(
    first: Any,
    meta: MetaBelief,
    stats: Any,
    absorbed: list[Any],
    renew: Callable[[Any, Any], Any] | None,
) -> MetaBelief:
    """With one more task; all tasks are digested anew, and summed from the `first` belief on, when
    it is time for that.

    `absorbed` has the statistics of all tasks, and gets those of one more. `renew` is that of
    `Loops`.
    """

    def settled(stats: Any) -> Any:
        return renew(meta, stats) if renew else meta.digest(stats.unsettled()).stats

    absorbed.append(settled(stats))
    new = meta.absorb(meta.digest(absorbed[-1]).message)
    meta = new.renewed()
    if meta is new:
        return meta
    new = evolve(meta, total=first.total)
    absorbed[:] = [settled(old) for old in absorbed]
    if new.row_size:
        rows = np.array([new.row_of(one) for one in absorbed])
        return new.absorb(new.digest_many(rows).message_sum)
    for one in absorbed:
        new = new.absorb(new.digest(one).message)
    return new


def _play_task(job: Job, policy: Policy, meta: MetaBelief, later: int, given: Given) -> Any:
    """One task, compiled where it can be; later tasks have `later` rounds."""
    loops = loops_of(job.problem, given[0]) if job.compiled else Loops()
    play = loops.play

    def share(rows: FloatArray | None) -> FloatArray:
        return meta.share(rows=rows)

    index = None
    if isinstance(policy, Thompson):
        index = THOMPSON if job.delay == 0 else None
    elif play is not None:
        rows = given[1].rows(0)
        if isinstance(policy, FarSighted):
            most = given[0].FAR_TASKS * job.rounds
            reach = later if policy.later is None else min(policy.later, most)
            counted = policy.counted(reach, share(rows))
            index = index_policy("far", job.rounds, counted, job.delay, policy.width)
        elif isinstance(policy, OwnIndex):
            numbers = np.arange(1.0, job.rounds + 1.0)
            own = CompiledPolicy(len(NUMBERED), numbers, np.zeros(0), job.delay, policy.rule)
            index = own if loops.own_index else None
        elif type(policy) in NAMES:
            arms = len(given[1].theta if rows is None else rows)
            index = _uncounted(NAMES[type(policy)], job.rounds, arms, job.delay)
    stats = None
    if play is not None and index is not None:
        stats = play(job.problem, LoopInput(*given, index))
    if stats is None:
        if isinstance(policy, FarSighted) and policy.later is None:
            policy = replace(policy, later=later)
        options: Any = {"policy": policy, "share": share, "delay": job.delay}
        stats = plain_task(job.problem, *given, **options, stats=meta.empty())
    return stats


def compiled_task(
    problem: Problem,
    prior: Belief,
    instance: Instance,
    first: IntArray,
    rng: Rng,
    regret: FloatArray,
    actions: IntArray | None = None,
    *,
    policy: CompiledPolicy = THOMPSON,
) -> Any:
    """One task by its compiled loop; None where there is none that serves."""
    play = loops_of(problem, prior).play
    if play is None:
        return None
    chosen = np.empty(regret.size, dtype=np.intp) if actions is None else actions
    return play(problem, LoopInput(prior, instance, first, rng, regret, chosen, policy))


def index_policy(
    name: str, rounds: int, counted: FloatArray, delay: int = 0, width: float = CAUTION
) -> CompiledPolicy:
    """An index policy by its name, for a task of so many rounds; `width` is for "far"."""
    levels = _widths(rounds, width) if name == "far" else _levels(rounds)
    return CompiledPolicy(NUMBERED.index(name), levels, counted, delay)


@functools.cache
def _uncounted(name: str, rounds: int, arms: int, delay: int) -> CompiledPolicy:
    """An index policy that counts no rounds of later tasks."""
    return index_policy(name, rounds, np.zeros(arms), delay)


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


def _play_agent(
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
