"""Runs × tasks × rounds of a problem, with any number of agents, on any number of workers."""

import signal
import threading
import time
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from typing import Any, Literal

import numpy as np

from adats.models.core.checks import count_of
from adats.simulation.kernels import registry
from adats.simulation.learners import AGENTS, Learner
from adats.simulation.play import Factory, Job, PlayedRuns, play_runs
from adats.simulation.problems import Problem
from adats.simulation.results import Result

ENGINES = ("local", "ray")
DAY = 86_400  # seconds; a pool that is asked for more just when its idle processes end may hang
Agents = Sequence[str] | Mapping[str, str | Learner | Factory]


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
    record: bool = False,
    engine: str = "local",
    chunk: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> Result:
    """Play every agent on the same instances.

    `agents` are names from `AGENTS`, or a mapping from names to such names, to a `Learner`, or to
    factories `(problem, seed) -> agent` of anything with `ask` and `tell`. The numbers depend on
    the seed alone: not on the workers, the chunking or the other agents. With a `delay`, a reward
    is known so many rounds later, and all of them at the end of the task. `record` keeps the arm
    of every round in `Result.actions`. `progress` is called with the number of runs that have just
    been finished.
    """
    named = _named(agents)
    tasks, rounds = count_of("tasks", tasks), count_of("rounds", rounds)
    runs = count_of("runs", runs)
    if detail not in ("task", "round"):
        raise ValueError(f"detail must be 'task' or 'round', got {detail!r}")
    count_of("workers", workers)
    count_of("delay", delay, least=0)
    if engine not in ENGINES:
        raise ValueError(f"unknown engine {engine!r}; known are {', '.join(ENGINES)}")
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise ValueError(f"seed must be a whole number that is not negative, got {seed!r}")
    if record and _chooses_sets(problem):
        raise ValueError("record is for problems whose actions are single arms, not sets of them")
    metas = {n: a.meta(problem) for n, a in named.items() if isinstance(a, Learner)}
    by_round, compiled = detail == "round", registry.has_numba()
    job = Job(
        problem, named, metas, tasks, rounds, seed,
        explore_first, delay, by_round, record, compiled,
    )  # fmt: skip
    for agent in named.values():
        if isinstance(agent, Learner) and agent.memory is not None:
            agent.memory.check(job)
    if not job.compiled:
        warnings.warn(
            "Numba is not installed, so the plain loop is used, which is much slower: "
            "pip install 'adats[sim]'",
            stacklevel=2,
        )
    per_chunk = count_of("chunk", chunk) if chunk is not None else max(1, runs // (8 * workers))
    chunks = [range(i, min(i + per_chunk, runs)) for i in range(0, runs, per_chunk)]
    begin = time.perf_counter()
    shape = (len(named), runs, tasks, rounds)
    regret, seconds = np.empty(shape if by_round else shape[:3]), np.zeros(len(named))
    actions = np.empty(shape, dtype=np.intp) if record else None
    parts = _in_parallel(job, chunks, workers, engine)
    try:
        for part in parts:
            done = slice(part.runs.start, part.runs.stop)
            regret[:, done] = part.regret
            if actions is not None and part.actions is not None:
                actions[:, done] = part.actions
            seconds += part.seconds
            if progress is not None:
                progress(len(part.runs))
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
        actions,
    )


def _named(agents: Agents) -> dict[str, Learner | Factory]:
    """Agents by their names, those of `AGENTS` looked up."""
    if not agents or isinstance(agents, str):
        raise ValueError(f"agents must be a list of names, got {agents!r}")
    named = agents if isinstance(agents, Mapping) else {name: name for name in agents}
    unknown = [a for a in named.values() if isinstance(a, str) and a not in AGENTS]
    if unknown:
        raise ValueError(f"unknown agent {unknown[0]!r}; known are {', '.join(AGENTS)}")
    return {n: AGENTS[a] if isinstance(a, str) else a for n, a in named.items()}


def _chooses_sets(problem: Problem) -> bool:
    rng = np.random.default_rng(0)
    instance = problem.instance(problem.start(rng), 1, rng)
    return np.ndim(problem.oracle(instance.means(0))) > 0


def _in_parallel(
    job: Job, chunks: Sequence[range], workers: int, engine: str
) -> Generator[PlayedRuns, None, None]:
    """Each chunk of runs played, as it is finished: here, in other processes, or by Ray."""
    if workers == 1 and engine == "local":
        with _one_thread():
            for runs in chunks:
                yield play_runs(job, runs)
        return
    try:
        import joblib
    except ImportError:
        raise ValueError("several workers need joblib: pip install 'adats[sim]'") from None
    options: dict[str, Any] = {"inner_max_num_threads": 1, "idle_worker_timeout": DAY}
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
        jobs = (joblib.delayed(play_runs)(job, runs) for runs in chunks)
        if engine == "ray":
            yield from parallel(jobs)
            return
        with _without_interrupts():  # the processes start here, the results come later
            parts = parallel(jobs)
        yield from parts


def _one_thread() -> AbstractContextManager[Any]:
    """As in the processes of several workers: matrices are small, and threads of linear algebra
    would wait for each other, and may round otherwise."""
    controller = _linear_algebra()
    return nullcontext() if controller is None else controller.limit(limits=1, user_api="blas")


@cache
def _linear_algebra() -> Any:
    """What counts the threads of NumPy and SciPy, which takes a millisecond to find; or None."""
    try:
        from threadpoolctl import ThreadpoolController
    except ImportError:
        return None
    return ThreadpoolController()


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Processes started inside do not hear Ctrl-C: it is for this process, which stops them."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may say what happens on a signal
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
