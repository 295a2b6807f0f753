"""Runs, and the tasks of each one after another: what every worker does."""

import time
import zlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple, cast

import numpy as np

from adats.agents.policies import FarSighted, policy_of
from adats.models.core.frozen import evolve
from adats.models.core.types import Belief, FloatArray, IntArray, MetaBelief, Rng, Stats
from adats.simulation.kernels.registry import (
    LoopInput,
    Loops,
    Renew,
    absorb_of,
    known_rng,
    loops_of,
    plain_absorb,
)
from adats.simulation.learners import Learner
from adats.simulation.memory import Run
from adats.simulation.one_task import compiled_policy, play_agent, play_without_loop, rounds_ahead
from adats.simulation.problems import Instance, Problem
from adats.simulation.problems.problem import Start, instances_of

Factory = Callable[[Problem, int], Any]  # an agent with ask and tell, from a problem and a seed


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
        instances = instances_of(job.problem, start, job.tasks, job.rounds, world)
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
                play_agent(job.problem, built, instances, lost, chosen, job.delay)
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
    if learner.memory is not None:
        world = (start, instances, first, rng, regret, actions)
        learner.memory.play(Run(job, learner, meta, *world, play_learner))
        return
    absorb = absorb_of(job.problem, meta) if job.compiled else plain_absorb
    source = learner.source_of(start.mu)
    learns, prior = source.LEARNS, source.prior(meta, source.draw(meta, rng))
    loops = loops_of(job.problem, prior) if job.compiled else Loops()
    loop, policy = loops.play, policy_of(learner.policy)
    index = None if loop is None else compiled_policy(job, policy, loops, instances[0])
    far = policy if isinstance(policy, FarSighted) else None
    ahead = rounds_ahead(far, [row.size for row in regret], prior.FAR_TASKS) if far else []
    if loops.play_all and absorb is loops.learn and index is not None and watch is None:
        counted = far.counted(np.array(ahead), 1.0) if far else np.zeros(len(instances))
        origin, room = (meta, source, prior), (regret, actions)
        if loops.play_all(*origin, index, counted, instances, first, rng, *room):
            return
    absorbed: list[Stats] = []  # statistics of all tasks, where they can become stale
    first_meta = meta
    for s, (instance, lost, chosen) in enumerate(zip(instances, regret, actions, strict=True)):
        if learner.source is None and instance.then is not None:
            prior = learner.source_of(instance.then.mu).prior(meta, None)
        elif learns and s:
            prior = source.prior(meta, source.draw(meta, rng))
        if watch is not None:
            watch(meta.task_prior())
        stats, given = None, (prior, instance, first, rng, lost, chosen)
        if loop is not None and index is not None:
            if far:
                share = meta.share(rows=instance.rows(0))
                index = index._replace(counted=far.counted(ahead[s], share))
            stats = loop(job.problem, LoopInput(*given, index))
        if stats is None:
            policy = replace(far, later=ahead[s]) if far else policy
            stats = play_without_loop(job, policy, meta, given)
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
    absorbed: list[Stats],
    renew: Renew | None,
) -> MetaBelief:
    """With one more task; all tasks are digested anew, and summed from the `first` belief on, when
    it is time for that.

    `absorbed` has the statistics of all tasks, and gets those of one more. `renew` is that of
    `Loops`.
    """

    def settled(stats: Any) -> Stats:
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
