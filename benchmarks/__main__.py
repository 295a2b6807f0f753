"""The table of `make bench`: ratios within one run, one core unless a row says otherwise."""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import json
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import adats
from adats.simulation import simulate
from adats.simulation.problems import GaussianProblem, LinearProblem
from benchmarks import (
    batches,
    classification,
    clicks,
    contextual,
    fitting,
    logs,
    propensities,
    service,
)
from benchmarks.peers import PEERS, ROUNDS, ours_arms, ours_linear, quiet

TABLE = Table("what", "measured", "reach", "reached")
TASKS, LENGTH = 20, 200


def row(what: str, measured: str, reach: str, reached: bool) -> None:
    TABLE.add_row(what, measured, reach, "yes" if reached else "NO")


def best_of(times: int, *work: Callable[[], None]) -> list[float]:
    """Least seconds of each piece of work; they take turns, so that all meet the same machine."""
    seconds = [float("inf")] * len(work)
    for _ in range(times):
        for i, piece in enumerate(work):
            begin = time.perf_counter()
            piece()
            seconds[i] = min(seconds[i], time.perf_counter() - begin)
    return seconds


def normals(each: int, runs: int) -> Callable[[], None]:
    """NumPy drawing `each` normals a decision, a task's worth at a time."""
    rng = np.random.default_rng(0)

    def draw() -> None:
        for _ in range(runs * TASKS):
            rng.standard_normal(each * LENGTH)

    return draw


def simulation() -> None:
    runs = 20
    decisions = runs * TASKS * LENGTH

    def play(problem: object) -> Callable[[], None]:
        return lambda: (
            simulate(problem, ["ada-ts"], tasks=TASKS, rounds=LENGTH, runs=runs, seed=1, chunk=runs)
            and None
        )

    gaussian = play(GaussianProblem(arms=10))
    linear = play(LinearProblem(dim=16, arms=50))
    gaussian(), linear()  # compile
    ours, raw = best_of(15, gaussian, normals(11, runs))
    row(
        "simulate Gaussian K=10, per decision",
        f"{ours / decisions * 1e9:.0f} ns = {ours / raw:.2f} × its normals",
        "≤ 1.2 ×",
        ours <= 1.2 * raw,
    )
    ours, raw = best_of(9, linear, normals(17, runs))
    (naive,) = best_of(3, naive_linear)
    per = naive / LENGTH
    row(
        "simulate linear d=16, K=50, per decision",
        f"{ours / decisions * 1e9:.0f} ns = {ours / raw:.2f} × its normals",
        "≤ 5 ×",
        ours <= 5 * raw,
    )
    ratio = per / (ours / decisions)
    row("  against inv + multivariate_normal", f"{ratio:.0f} × faster", "≥ 60 ×", ratio >= 60)


def naive_linear() -> None:
    """One task of the textbook loop: a new inverse and a multivariate_normal in every round."""
    rng = np.random.default_rng(0)
    features = rng.standard_normal((50, 16))
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    theta = rng.standard_normal(16)
    precision, weighted = np.eye(16), np.zeros(16)
    for _ in range(LENGTH):
        cov = np.linalg.inv(precision)
        sample = rng.multivariate_normal(cov @ weighted, cov)
        x = features[(features @ sample).argmax()]
        y = x @ theta + rng.standard_normal()
        precision += np.outer(x, x)
        weighted += x * y


def workers() -> None:
    problem = LinearProblem(dim=16, arms=50)
    options = {"tasks": TASKS, "rounds": LENGTH, "runs": 1200, "seed": 1}

    def play(count: int) -> Callable[[], None]:
        return lambda: simulate(problem, ["ada-ts", "ts"], workers=count, **options) and None

    simulate(problem, ["ts"], workers=2, **{**options, "runs": 4})  # start the processes
    one, two = best_of(3, play(1), play(2))
    row(
        f"two workers, {one:.0f} s of work",
        f"{one / two:.2f} × one",
        "≥ 1.8 ×",
        one / two >= 1.8,
    )


def live() -> None:
    rng = np.random.default_rng(0)
    features = rng.standard_normal((50, 16))
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    gaussian = adats.GaussianMeta(np.zeros(10), 0.5, task_scale=0.1, noise=1.0)
    linear = adats.LinearMeta(np.zeros(16), 0.25, task_cov=0.01, noise=1.0)
    for name, meta, options, reach in (
        ("Gaussian K=10", gaussian, {}, 25),
        ("linear d=16, K=50", linear, {"features": features}, 60),
    ):
        micros = {}
        agents = {
            tasks: opened(adats.AdaTS(meta, seed=1, **options), tasks) for tasks in (10, 100_000)
        }
        work = [busy(agent, tasks) for tasks, agent in agents.items()]
        for tasks, seconds in zip(agents, best_of(15, *work), strict=True):
            micros[tasks] = seconds / 2000 * 1e6
            row(
                f"live ask + tell, {name}, {tasks:,} tasks",
                f"{micros[tasks]:.1f} µs",
                f"≤ {reach} µs",
                micros[tasks] <= reach,
            )
        growth = micros[100_000] / micros[10]
        row("  from 10 to 100,000 tasks", f"{growth:.2f} ×", "≤ 1.3 ×", growth <= 1.3)


def aging() -> None:
    """What half-lives cost, with the computer's clock and in pulls."""
    pulls: dict[str, Any] = {"half_life": 20.0, "clock": "pulls"}
    lives = {"half_life": 3600.0, "prior_half_life": 86_400.0}
    features = np.random.default_rng(0).standard_normal((50, 16))
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    gaussian = adats.GaussianMeta(np.zeros(10), 0.5, task_scale=0.1, noise=1.0)
    linear = adats.LinearMeta(np.zeros(16), 0.25, task_cov=0.01, noise=1.0)
    named = adats.default_prior(arms=[f"arm {i}" for i in range(10)], rewards="binary")
    for name, meta, options in (
        ("Gaussian K=10", gaussian, {}),
        ("linear d=16, K=50", linear, {"features": features}),
        ("clicks K=10", named, {}),
    ):
        agents = [
            opened(adats.AdaTS(meta, seed=1, **options, **more), tasks)
            for more, tasks in (({}, 1000), (lives, 1000), (lives, 100_000))
        ]
        plain, aged, many = best_of(9, *(busy(agent, len(agent.tasks)) for agent in agents))
        ratio, growth = aged / plain, many / aged
        row(f"half-lives, ask + tell, {name}", f"{ratio:.2f} × without", "≤ 1.15 ×", ratio <= 1.15)
        row("  from 1,000 to 100,000 tasks", f"{growth:.2f} ×", "≤ 1.3 ×", growth <= 1.3)
        if not meta.n_features:
            counted = opened(adats.AdaTS(meta, seed=1, **pulls), 1000)
            plain, aged = best_of(9, *(busy(agent, 1000) for agent in (agents[0], counted)))
            row("  in pulls", f"{aged / plain:.2f} × without", "≤ 1.15 ×", aged <= 1.15 * plain)


def reward_of(agent: adats.AdaTS, task: int) -> float:
    return float(task % 5 == 0) if agent.meta.model == "binary" else 0.3


def opened(agent: adats.AdaTS, tasks: int) -> adats.AdaTS:
    for task in range(tasks):
        agent.tell(agent.ask(task), reward=reward_of(agent, task))
    return agent


def busy(agent: adats.AdaTS, tasks: int) -> Callable[[], None]:
    order = np.random.default_rng(1).integers(tasks, size=2000).tolist()
    rewards = [reward_of(agent, task) for task in order]

    def work() -> None:
        for task, reward in zip(order, rewards, strict=True):
            agent.tell(agent.ask(task), reward=reward)

    return work


FIRST_ASK = """
import json, time
import numpy as np, adats
begin = time.perf_counter()
agent = adats.AdaTS(adats.default_prior(arms=["a", "b"], rewards="binary"), seed=1)
agent.ask("x")
linear = adats.LinearMeta(np.zeros(16), 1.0, task_cov=0.1, noise=1.0)
adats.AdaTS(linear, seed=1, features=np.eye(16)).ask("x")
print(json.dumps(time.perf_counter() - begin))
"""


def first_ask() -> None:
    done = subprocess.run([sys.executable, "-c", FIRST_ASK], capture_output=True, check=True)
    seconds = json.loads(done.stdout)
    row("first ask in a fresh process", f"{seconds * 1e3:.0f} ms", "≤ 500 ms", seconds <= 0.5)


def peers() -> None:
    ours = best_of(3, ours_arms, ours_linear)
    names = ("K=10 arms", "linear, 10 arms, d=16")
    for kind, name in enumerate(names):
        row(f"ours, {name}, 1,000 rounds", f"{ours[kind] / ROUNDS * 1e6:.0f} µs a round", "", True)
    for peer, (arms, linear, what) in PEERS.items():
        with quiet():
            theirs = best_of(1, arms, linear)
        for kind, name in enumerate(names):
            ratio = theirs[kind] / ours[kind]
            nearest = what.split(" / ")[kind]
            row(f"{peer}, {name} ({nearest})", f"{ratio:.1f} × our time", "> 1 ×", ratio > 1)


def policies() -> None:
    """An index against Thompson sampling, in the same simulation."""
    for name, problem in (
        ("Gaussian K=10", GaussianProblem(arms=10)),
        ("linear d=16, K=50", LinearProblem(dim=16, arms=50)),
    ):
        names = ("ada-ts", "ada-ucb", "ada-index", "ada-far")
        least = dict.fromkeys(names, float("inf"))
        for _ in range(9):
            got = simulate(problem, names, tasks=TASKS, rounds=LENGTH, runs=10, seed=1, chunk=10)
            for agent, seconds in zip(names, got.agent_seconds.tolist(), strict=True):
                least[agent] = min(least[agent], seconds)
        for agent in names[1:]:
            ratio = least[agent] / least["ada-ts"]
            row(f"{agent}, {name}", f"{ratio:.2f} × ada-ts", "≤ 1 ×", ratio <= 1)


def others() -> None:
    """What other files measure."""
    fitting.fitting(row)
    fitting.clicks(row)
    parts = (
        propensities.rows(),
        batches.rows(),
        clicks.rows(),
        contextual.rows(),
        classification.classification(),
        logs.rows(),
        logs.aggregated(),
        service.rows(),
    )
    for rows in parts:
        for line in rows:
            row(*line)


if __name__ == "__main__":
    for part in (simulation, live, aging, policies, first_ask, peers, workers, others):
        part()
    Console(width=120).print(TABLE)
