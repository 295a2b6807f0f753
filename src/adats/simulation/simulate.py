"""Runs × tasks × rounds of a problem, with any number of agents, on any number of workers."""

import functools
import importlib.util
import os
import signal
import threading
import time
import warnings
import zlib
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy.special import ndtri

from adats.agents.agent import Agent
from adats.agents.pending import with_pulls, without_pulls
from adats.agents.policies import MOST_TASKS, POLICIES, FarSighted, Policy, Scene
from adats.models.core import files
from adats.models.core.checks import count_of
from adats.models.core.types import Belief, FloatArray, IntArray, MetaBelief, Rng
from adats.simulation.problems import Instance, Problem
from adats.simulation.problems.problem import SPREADS, Index, Start, UnknownSpread, kernel


class Learner(NamedTuple):
    """A built-in agent: where a task's prior comes from, and what its meta-prior is.

    `width` multiplies the true σ_q; `spreads` are the values of σ_0 that it holds for possible, in
    units of σ, instead of the true one.
    """

    prior: Literal["told", "marginal", "drawn", "fixed"]
    width: float = 1.0
    spreads: tuple[float, ...] = ()
    policy: str = "ts"  # a name in `POLICIES`

    def meta(self, problem: Problem) -> MetaBelief:
        """What it believes before the first task."""
        if not self.spreads:
            meta = problem.meta()
        elif isinstance(problem, UnknownSpread):
            meta = problem.candidates(self.spreads)
        else:
            raise ValueError(
                "an agent that is not told σ_0 needs candidates for it, which the problems "
                f"gaussian and linear have, but not {problem.name}"
            )
        return meta if self.width == 1.0 else meta.widen(self.width)


AGENTS: dict[str, Learner] = {
    "oracle-ts": Learner("told"),
    "ada-ts": Learner("marginal"),
    "meta-ts": Learner("drawn"),
    "ts": Learner("fixed"),
    "ada-ts+": Learner("marginal", 3.0),
    "ada-ts-": Learner("marginal", 1 / 3),
    "ada-grid": Learner("marginal", spreads=SPREADS),
    "ada-narrow": Learner("marginal", spreads=(0.05,)),
    "ada-broad": Learner("marginal", spreads=(1.0,)),
    "ada-ucb": Learner("marginal", policy="ucb"),
    "ada-index": Learner("marginal", policy="index"),
    "ada-far": Learner("marginal", policy="far"),
    "ada-greedy": Learner("marginal", policy="greedy"),
}
INDICES = ("greedy", "ucb", "index", "far")  # as they are numbered in `kernels.indices`

Factory = Callable[[Problem, int], Any]  # an agent with ask and tell, from a problem and a seed
Agents = Sequence[str] | Mapping[str, str | Factory]
ENGINES = ("local", "ray")


@dataclass(frozen=True, eq=False)
class Result:
    """Expected regrets of every agent, run and task (and round, if asked for)."""

    problem: dict[str, Any]
    tasks: int
    rounds: int
    runs: int
    seed: int
    explore_first: bool
    agents: tuple[str, ...]
    regret: FloatArray  # (agents, runs, tasks), or (agents, runs, tasks, rounds)
    seconds: float
    agent_seconds: FloatArray  # inside the loops, summed over runs

    def per_task(self) -> FloatArray:
        """Regret of each agent, run and task."""
        if self.regret.ndim == 3:
            return self.regret
        total: FloatArray = self.regret.sum(axis=3)
        return total

    def total(self, agent: str) -> FloatArray:
        """Regret over all tasks, one entry a run."""
        if agent not in self.agents:
            raise ValueError(f"no agent {agent!r}; there are {', '.join(self.agents)}")
        total: FloatArray = self.per_task()[self.agents.index(agent)].sum(axis=1)
        return total

    def mean(self, agent: str) -> float:
        return float(self.total(agent).mean())

    def se(self, agent: str) -> float:
        """Standard error of the mean: std / √runs; NaN for a single run."""
        total = self.total(agent)
        return float(total.std(ddof=1) / np.sqrt(total.size)) if total.size > 1 else float("nan")

    def records(self) -> dict[str, Any]:
        """Flat columns run, task, (round,) agent, regret: one call from any data frame."""
        axes = {"agent": np.array(self.agents), "run": np.arange(self.runs)}
        axes["task"] = np.arange(1, self.tasks + 1)
        if self.regret.ndim == 4:
            axes["round"] = np.arange(1, self.rounds + 1)
        grids = np.meshgrid(*axes.values(), indexing="ij")
        columns = {name: grid.ravel() for name, grid in zip(axes, grids, strict=True)}
        order = [name for name in ("run", "task", "round", "agent") if name in columns]
        return {name: columns[name] for name in order} | {"regret": self.regret.ravel()}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the records as Parquet, whole or not at all."""
        try:
            import pyarrow as pa
            from pyarrow import parquet
        except ImportError:
            raise ValueError("Parquet needs pyarrow: pip install 'adats[sim]'") from None
        table = pa.table(self.records())
        files.write_whole(path, lambda file: parquet.write_table(table, file))

    def summary(self) -> dict[str, Any]:
        """Settings and regrets as plain JSON values."""
        decisions = self.runs * self.tasks * self.rounds * len(self.agents)
        each = decisions // len(self.agents)
        per_task = self.per_task().mean(axis=1)
        return {
            "problem": self.problem,
            "tasks": self.tasks,
            "rounds": self.rounds,
            "runs": self.runs,
            "seed": self.seed,
            "explore_first": self.explore_first,
            "decisions": decisions,
            "seconds": self.seconds,
            "agents": {
                name: {
                    "regret": self.mean(name),
                    "se": self.se(name) if self.runs > 1 else None,
                    "per_task": per_task[i].tolist(),
                    "ns_per_decision": float(self.agent_seconds[i] / each * 1e9),
                }
                for i, name in enumerate(self.agents)
            },
        }


def simulate(
    problem: Problem,
    agents: Agents,
    *,
    tasks: int,
    rounds: int,
    runs: int,
    seed: int,
    workers: int = 1,
    explore_first: bool = False,
    delay: int = 0,
    detail: Literal["task", "round"] = "task",
    engine: str = "local",
    chunk: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> Result:
    """Play every agent on the same instances.

    `agents` are names from `AGENTS`, or a mapping from names to names or to factories
    `(problem, seed) -> agent` of anything with `ask` and `tell`. The numbers depend on the seed
    alone: not on the workers, the chunking or the other agents. With a `delay`, a reward is known
    so many rounds later, and all of them at the end of the task. `progress` is called with the
    number of runs that have just been finished.
    """
    named = _named(agents)
    tasks, rounds = sizes = (count_of("tasks", tasks), count_of("rounds", rounds))
    runs = count_of("runs", runs)
    if detail not in ("task", "round"):
        raise ValueError(f"detail must be 'task' or 'round', got {detail!r}")
    count_of("workers", workers)
    count_of("delay", delay, least=0)
    if engine not in ENGINES:
        raise ValueError(f"unknown engine {engine!r}; known are {', '.join(ENGINES)}")
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise ValueError(f"seed must be a whole number that is not negative, got {seed!r}")
    if delay and not all(isinstance(agent, str) for agent in named.values()):
        raise ValueError("a delay is for the agents of AGENTS, not for factories")
    metas = {n: AGENTS[a].meta(problem) for n, a in named.items() if isinstance(a, str)}
    by_round, compiled = detail == "round", has_numba()
    job = _Job(problem, named, metas, *sizes, seed, explore_first, delay, by_round, compiled)
    if not job.compiled:
        warnings.warn(
            "Numba is not installed, so the plain loop is used, which is much slower: "
            "pip install 'adats[sim]'",
            stacklevel=2,
        )
    per_chunk = count_of("chunk", chunk) if chunk is not None else max(1, runs // (8 * workers))
    chunks = [range(i, min(i + per_chunk, runs)) for i in range(0, runs, per_chunk)]
    begin = time.perf_counter()
    shape = (len(named), runs, tasks, rounds) if detail == "round" else (len(named), runs, tasks)
    regret, seconds = np.empty(shape), np.zeros(len(named))
    parts = _spread(job, chunks, workers, engine)
    try:
        for done, part, spent in parts:
            regret[:, done.start : done.stop] = part
            seconds += spent
            if progress is not None:
                progress(len(done))
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            parts.close()
    return Result(
        problem.describe(),
        tasks,
        rounds,
        runs,
        seed,
        explore_first,
        tuple(named),
        regret,
        time.perf_counter() - begin,
        seconds,
    )


def has_numba() -> bool:
    return importlib.util.find_spec("numba") is not None


def _named(agents: Agents) -> dict[str, str | Factory]:
    named: dict[str, str | Factory] = (
        dict(agents) if isinstance(agents, Mapping) else {name: name for name in agents}
    )
    if not named or isinstance(agents, str):
        raise ValueError(f"agents must be a list of names, got {agents!r}")
    for agent in named.values():
        if isinstance(agent, str) and agent not in AGENTS:
            raise ValueError(f"unknown agent {agent!r}; known are {', '.join(AGENTS)}")
    return named


class _Job(NamedTuple):
    """All that a worker needs."""

    problem: Problem
    agents: dict[str, str | Factory]
    metas: dict[str, MetaBelief]  # meta-priors of the built-in agents
    tasks: int
    rounds: int
    seed: int
    explore_first: bool
    delay: int
    by_round: bool
    compiled: bool


_Part = tuple[range, FloatArray, FloatArray]
_Parts = Generator[_Part, None, None]


def _spread(job: _Job, chunks: list[range], workers: int, engine: str) -> _Parts:
    """The chunks as they are finished, in this process or in others."""
    if workers == 1 and engine == "local":
        for runs in chunks:
            yield _play_runs(job, runs)
        return
    try:
        import joblib
    except ImportError:
        raise ValueError("several workers need joblib: pip install 'adats[sim]'") from None
    options: dict[str, Any] = {"inner_max_num_threads": 1}
    if engine == "ray":
        try:
            from ray.util.joblib import register_ray
        except ImportError:
            raise ValueError("engine ray needs Ray: pip install 'adats[ray]'") from None
        register_ray()
        options = {}
    backend = "ray" if engine == "ray" else "loky"
    with joblib.parallel_config(backend=backend, n_jobs=workers, **options):
        parallel = joblib.Parallel(return_as="list" if engine == "ray" else "generator_unordered")
        jobs = (joblib.delayed(_play_runs)(job, runs) for runs in chunks)
        if engine == "ray":
            yield from parallel(jobs)
            return
        with _deaf_children():  # the processes start here, the results come later
            parts = parallel(jobs)
        yield from parts


@contextmanager
def _deaf_children() -> Iterator[None]:
    """Processes started inside do not hear Ctrl-C: it is for this process, which stops them."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may say what happens on a signal
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _stream(job: _Job, *key: int) -> Rng:
    return np.random.default_rng(np.random.SeedSequence(job.seed, spawn_key=key))


def _play_runs(job: _Job, runs: range) -> _Part:
    shape = (len(job.agents), len(runs), job.tasks, job.rounds)
    regret = np.empty(shape if job.by_round else shape[:3])
    seconds = np.zeros(len(job.agents))
    buffer = np.empty((job.tasks, job.rounds))
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
                rng = kernel("KnownRng")(rng.bit_generator)
            begin = time.perf_counter()
            if isinstance(agent, str):
                meta = job.metas[name]
                _play(job, AGENTS[agent], meta, start, instances, first, rng, buffer)
            else:
                built = agent(job.problem, int(rng.integers(2**63)))
                _play_agent(job, built, instances, buffer)
            seconds[a] += time.perf_counter() - begin
            regret[a, i] = buffer if job.by_round else buffer.sum(axis=1)
    return runs, regret, seconds


def _warm_up(job: _Job) -> None:
    """Compile or load the loops, so that no agent's time has that in it."""
    rng = np.random.default_rng(0)
    instance = job.problem.instance(job.problem.start(rng), 1, rng)
    nothing = np.zeros((0, 1), dtype=np.intp)
    for name, meta in job.metas.items():
        policy = AGENTS[str(job.agents[name])].policy
        stats = _task(job, policy, meta, 0, meta.task_prior(), instance, nothing, rng, np.empty(1))
        job.problem.learn(meta, stats)


def _play(
    job: _Job,
    learner: Learner,
    meta: MetaBelief,
    start: Start,
    instances: list[Instance],
    first: IntArray,
    rng: Rng,
    regret: FloatArray,
) -> None:
    """All tasks of one run, one after another, by a built-in agent (paper, Algorithm 1)."""
    fixed: Belief | None = None
    if learner.prior == "told":
        fixed = meta.prior_given(start.mu)  # OracleTS
    elif learner.prior == "fixed":
        fixed = meta.task_prior()  # TS
    for s, (instance, out) in enumerate(zip(instances, regret, strict=True)):
        prior: Belief
        if fixed is not None:
            prior = fixed
        elif learner.prior == "marginal":
            prior = meta.task_prior()  # AdaTS: P_s
        else:
            prior = meta.prior_given(meta.sample(rng))  # MetaTS: P(·; mũ)
        later = min(job.tasks - 1 - s, MOST_TASKS) * job.rounds
        stats = _task(job, learner.policy, meta, later, prior, instance, first, rng, out)
        if fixed is None:
            if job.compiled:
                meta = job.problem.learn(meta, stats)
            else:
                meta = meta.absorb(meta.digest(stats).message)


def _task(
    job: _Job,
    policy: str,
    meta: MetaBelief,
    later: int,
    prior: Belief,
    instance: Instance,
    first: IntArray,
    rng: Rng,
    regret: FloatArray,
) -> Any:
    """One task, compiled where it can be; later tasks have `later` rounds."""
    if job.compiled and policy == "ts" and job.delay == 0:
        return job.problem.play(prior, instance, first, rng, regret)

    def share(rows: FloatArray | None) -> FloatArray:
        return meta.share(rows=rows)

    if job.compiled and policy != "ts" and hasattr(job.problem, "play_index"):
        rows = instance.rows(0)
        arms = len(instance.theta if rows is None else rows)
        counted = later * share(rows) ** 2 if policy == "far" else _zeros(arms)
        index = Index(INDICES.index(policy), _levels(regret.size), counted, job.delay)
        stats = job.problem.play_index(index, prior, instance, first, regret)
        if stats is not None:
            return stats
    rules: Policy = FarSighted(later) if policy == "far" else POLICIES[policy]
    return plain_task(
        job.problem, prior, instance, first, rng, regret,
        policy=rules, share=share, delay=job.delay,
    )  # fmt: skip


@functools.cache
def _zeros(arms: int) -> FloatArray:
    return np.zeros(arms)


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
    *,
    policy: Policy = POLICIES["ts"],
    share: Callable[[FloatArray | None], FloatArray | float] = lambda _: 0.0,
    delay: int = 0,
) -> Any:
    """One task with nothing compiled, for any belief and oracle: the kernels' reference.

    `share` is `MetaBelief.share` of arms with these features.
    """
    stats = problem.meta().empty()
    pending: FloatArray | None = None
    waiting: list[Any] = []  # pulls and their rewards, until they are told
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
    for pulled, reward in waiting:
        stats = stats.add(pulled, reward)
    return stats


def _reward(
    problem: Problem, instance: Instance, t: int, means: FloatArray, action: int | IntArray
) -> Any:
    if isinstance(action, int):
        return problem.reward(float(means[action]), instance.draw(t, action))
    return [problem.reward(float(means[arm]), instance.draw(t, arm)) for arm in action.tolist()]


def _play_agent(job: _Job, agent: Any, instances: list[Instance], regret: FloatArray) -> None:
    """All tasks of one run by an agent with ask and tell."""
    for task, (instance, out) in enumerate(zip(instances, regret, strict=True)):
        for t in range(out.size):
            rows, means = instance.rows(t), instance.means(t)
            options: dict[str, Any] = {} if rows is None else {"features": rows}
            if isinstance(agent, Agent):
                options["horizon"] = out.size - t
            decision = agent.ask(task, **options)
            arms = np.asarray(decision.action, dtype=np.intp)
            action = arms if arms.ndim else int(arms)
            reward = _reward(job.problem, instance, t, means, action)
            agent.tell(decision, reward=reward)
            out[t] = means[job.problem.oracle(means)].sum() - means[action].sum()
