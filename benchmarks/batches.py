"""A million decisions and a million rewards at once, one core. Alone: -m benchmarks.batches."""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

import adats
from benchmarks.peers import quiet

ARMS, MANY = 10, 1_000_000
Row = tuple[str, str, str, bool]


def seconds(work: Callable[[], object], times: int = 1) -> float:
    """The least of several times."""
    least = float("inf")
    for _ in range(times):
        begin = time.perf_counter()
        work()
        least = min(least, time.perf_counter() - begin)
    return least


def told(meta: object, tasks: object, rate: float = 0.03) -> adats.AdaTS:
    """An agent that has rewards of every task."""
    agent = adats.AdaTS(meta, seed=1)
    decisions = agent.ask_many(tasks)
    rewards = np.random.default_rng(1).random(len(decisions)) < rate
    agent.tell_many({**decisions.columns(), "reward": rewards.astype(float)})
    return agent


def gaussian() -> Iterator[Row]:
    meta = adats.GaussianMeta(np.zeros(ARMS), 0.5, task_scale=0.1, noise=1.0)
    rng = np.random.default_rng(0)
    raw = seconds(lambda: rng.standard_normal((MANY, ARMS)), 3)
    numbers, names = np.arange(MANY), [f"user-{i}" for i in range(MANY)]
    agent = told(meta, numbers)
    ours = seconds(lambda: agent.ask_many(numbers), 5)
    yield _times("ask_many, a million tasks, Gaussian K=10, by number", ours, raw, 5)
    keyed = seconds(lambda: adats.decide({"task": numbers}, agent, seed=1), 3)
    yield _times("  decide, keyed, by number", keyed, raw, 25)
    agent = told(meta, names)
    ours = seconds(lambda: agent.ask_many(names), 3)
    yield _times("  ask_many by name", ours, raw, 15)
    keyed = seconds(lambda: adats.decide({"task": names}, agent, seed=1), 2)
    yield _times("  decide, keyed, by name", keyed, raw, 25)
    frame = {**agent.ask_many(names).columns(), "reward": rng.standard_normal(MANY)}
    ours = seconds(lambda: agent.tell_many(frame))
    yield "tell_many, a million rewards, Gaussian K=10", f"{ours:.1f} s", "≤ 10 s", ours <= 10


def _times(what: str, ours: float, raw: float, most: float) -> Row:
    shown = f"{ours:.2f} s = {ours / raw:.1f} × its normals"
    return what, shown, f"≤ {most} ×", ours <= most * raw


CLICKS = """
import json, resource, tempfile
import numpy as np
from benchmarks.batches import ARMS, MANY, seconds, told
import adats
tasks = np.arange(MANY)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
agent = told(adats.default_prior(arms=range(ARMS), rewards="binary"), tasks)
figures = {"kept": agent.state().tasks.array.nbytes / 1e9}
figures["ask"] = seconds(lambda: agent.ask_many(tasks), 2)
for name in ("second", "third"):
    decisions = agent.ask_many(tasks)
    frame = {**decisions.columns(), "reward": (np.random.default_rng(2).random(MANY) < 0.03) * 1.0}
    figures[name] = seconds(lambda: agent.tell_many(frame))
figures["peak"] = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1e6
with tempfile.TemporaryDirectory() as folder:
    path = folder + "/agent.npz"
    figures["save"] = seconds(lambda: agent.save(path))
    figures["load"] = seconds(lambda: adats.load(path))
print(json.dumps(figures))
"""


def clicks() -> Iterator[Row]:
    """In a process of its own, for its memory."""
    done = subprocess.run([sys.executable, "-c", CLICKS], capture_output=True, check=True)
    got = json.loads(done.stdout)
    ask, third, kept = got["ask"], got["third"], got["kept"]
    yield "ask_many, a million tasks, default binary K=10", f"{ask:.1f} s", "≤ 10 s", ask <= 10
    what = "tell_many, a million rewards, default binary K=10"
    yield what, f"{third:.1f} s, after as many: {got['second']:.1f} s", "≤ 10 s", third <= 10
    what = "memory of a million open tasks, default binary K=10"
    yield what, f"{kept:.2f} GB; {got['peak']:.1f} at the most", "≤ 3 GB", kept <= 3
    yield "  saved and loaded", f"{got['save']:.1f} and {got['load']:.1f} s", "", True


def linear() -> Iterator[Row]:
    tasks, rng = 100_000, np.random.default_rng(0)
    features = rng.standard_normal((50, 16))
    meta = adats.LinearMeta(np.zeros(16), 0.25, task_cov=0.01, noise=1.0)
    agent = adats.AdaTS(meta, seed=1, features=features)
    numbers = np.arange(tasks)
    frame = {**agent.ask_many(numbers).columns(), "reward": rng.standard_normal(tasks)}
    told = seconds(lambda: agent.tell_many(frame)) / tasks * 1e6
    asked = seconds(lambda: agent.ask_many(numbers), 3) / tasks * 1e6
    what = "ask_many, linear d=16, 50 rows, 100,000 tasks"
    yield what, f"{asked:.1f} µs each; tell_many {told:.1f} µs", "≤ 15 µs", asked <= 15


def single() -> Iterator[Row]:
    """One ask and tell after another, in columns and as objects, in turns."""
    meta = adats.GaussianMeta(np.zeros(ARMS), 0.5, task_scale=0.1, noise=1.0)
    for tasks, most in ((100, 1.1), (100_000, 2.0)):
        visits = np.random.default_rng(0).integers(tasks, size=20_000).tolist()
        agents = {}
        for columns in (True, False):
            agents[columns] = adats.AdaTS(meta, seed=1, columns=columns)
            for task in range(tasks):
                agents[columns].tell(task=task, action=0, reward=0.1)
        times = {True: float("inf"), False: float("inf")}
        for _ in range(5):
            for columns, agent in agents.items():
                took = seconds(partial(_visited, agent, visits)) / len(visits) * 1e6
                times[columns] = min(times[columns], took)
        ratio = times[True] / times[False]
        shown = f"{times[True]:.1f} µs = {ratio:.2f} × that with a dict"
        what = f"single ask + tell in columns, Gaussian K=10, {tasks:,} tasks"
        yield what, shown, f"≤ {most} ×", ratio <= most


def _visited(agent: adats.AdaTS, visits: list[int]) -> None:
    for task in visits:
        agent.tell(agent.ask(task), reward=0.3)


def peers() -> Iterator[Row]:
    """Decisions for many at once, of arms that were learned: nobody else has a prior a task."""
    meta = adats.GaussianMeta(np.zeros(ARMS), 0.5, task_scale=0.1, noise=1.0)
    users = 100_000
    agent = told(meta, np.arange(users))
    ours = seconds(lambda: agent.ask_many(np.arange(users)), 3)
    rng = np.random.default_rng(0)
    x, arms = rng.standard_normal((users, 5)), rng.integers(ARMS, size=1000)
    for name, work in (
        ("mabwiser, LinTS predict", _mabwiser(x, arms)),
        ("bayesianbandits, linear an arm, pull", _bayesianbandits(x, arms)),
        ("contextualbandits, LinTS predict", _contextualbandits(x, arms)),
    ):
        with quiet():
            ratio = seconds(work) / ours
        yield f"{name}, {users:,} at once", f"{ratio:.1f} × our time", "> 1 ×", ratio > 1


def _mabwiser(x: np.ndarray, arms: np.ndarray) -> Callable[[], object]:
    from mabwiser.mab import MAB, LearningPolicy

    agent = MAB(list(range(ARMS)), LearningPolicy.LinTS(alpha=1.0), seed=1)
    agent.fit(arms, np.ones(arms.size), x[: arms.size])
    return lambda: agent.predict(x)


def _bayesianbandits(x: np.ndarray, arms: np.ndarray) -> Callable[[], object]:
    from bayesianbandits import Arm, ContextualAgent, NormalRegressor, ThompsonSampling

    made = [Arm(i, learner=NormalRegressor(alpha=1.0, beta=1.0)) for i in range(ARMS)]
    agent = ContextualAgent(made, ThompsonSampling(), random_seed=1)
    for i in range(ARMS):
        made[i].update(x[: arms.size][arms == i], np.ones((arms == i).sum()))
    return lambda: agent.pull(x)


def _contextualbandits(x: np.ndarray, arms: np.ndarray) -> Callable[[], object]:
    from contextualbandits.online import LinTS

    agent = LinTS(nchoices=ARMS, fit_intercept=False, random_state=1)
    agent.fit(x[: arms.size], arms, np.ones(arms.size))
    return lambda: agent.predict(x)


def rows() -> Iterator[Row]:
    for part in (gaussian, clicks, linear, single, peers):
        yield from part()


if __name__ == "__main__":
    for row in rows():
        print(*row, sep=" | ", flush=True)
    print(f"at the most {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.1f} GB")
