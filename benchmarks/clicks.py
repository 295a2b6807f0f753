"""Clicks: speed and memory of the latent model, and what it loses beside Thompson sampling.

Alone: python -m benchmarks.clicks; some of it: python -m benchmarks.clicks live memory
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import shutil
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import expit, logit

import adats
from adats.demo.story import PLAYERS, tell_story
from adats.models.default_prior import level_prior
from adats.paper.experiments.measures import ratio
from adats.simulation import simulate
from adats.simulation.problems import ClicksProblem, GaussianProblem
from benchmarks import service

Row = tuple[str, str, str, bool]
ARMS, TASKS, PULLS = 10, 200, 20  # of each task before the clock runs, and as many after that
TURNS = 7
BASE, ARM_SCALE, TASK_SCALE, LEVEL_SCALE = 0.05, 0.3, 0.3, 0.5


def known() -> adats.LatentMeta:
    """Told all spreads, but not the base rate."""
    return level_prior(
        range(ARMS),
        "binary",
        task_scales={TASK_SCALE: 1.0},
        level_scales=[LEVEL_SCALE],
        arm_scale=ARM_SCALE,
    )


def default() -> adats.LatentMeta:
    meta: adats.LatentMeta = adats.default_prior(arms=range(ARMS), rewards="binary")
    return meta


class World:
    """Click rates of many tasks, and a uniform for each decision."""

    def __init__(self, tasks: int, decisions: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        arms = logit(BASE) + ARM_SCALE * rng.standard_normal(ARMS)
        level = LEVEL_SCALE * rng.standard_normal((tasks, 1))
        self.rates = expit(arms + level + TASK_SCALE * rng.standard_normal((tasks, ARMS)))
        self.pulls = rng.multinomial(PULLS, np.full(ARMS, 1 / ARMS), size=tasks).astype(float)
        self.clicks = rng.binomial(self.pulls.astype(int), self.rates).astype(float)
        self.order = rng.integers(tasks, size=decisions).tolist()
        self.draws = rng.random(decisions)

    def spent(self, agent: adats.AdaTS, horizon: int | None = None) -> np.ndarray:
        """Seconds of every ask and tell."""
        spent = np.zeros((2, len(self.order)))
        for i, (task, draw) in enumerate(zip(self.order, self.draws.tolist(), strict=True)):
            begin = time.perf_counter()
            decision = agent.ask(task, horizon=horizon)
            asked = time.perf_counter()
            reward = int(draw < self.rates[task, decision.action])
            clicked = time.perf_counter()
            agent.tell(decision, reward=reward)
            spent[:, i] = asked - begin, time.perf_counter() - clicked
        return spent

    def agent(self, meta: Any, **options: Any) -> adats.AdaTS:
        """One that has learned from some pulls of every task."""
        agent = adats.AdaTS(meta, seed=1, **options)
        for task, (pulls, clicks) in enumerate(zip(self.pulls, self.clicks, strict=True)):
            arms = np.flatnonzero(pulls)
            agent.tell(task=task, action=arms.tolist(), pulls=pulls[arms], successes=clicks[arms])
        return agent


def seconds(meta: Any, horizon: int | None = None, **options: Any) -> np.ndarray:
    """Of every ask and tell while the rewards double: the anchor is renewed, and so is every task.
    The same decisions are made whenever this is called."""
    world = World(TASKS, TASKS * PULLS, 0)
    agent = world.agent(meta, **options)
    generation = agent.meta.generation
    spent = world.spent(agent, horizon)
    assert agent.meta.generation > generation
    assert not any(agent.meta.is_stale(agent.stats(task)) for task in range(TASKS))
    return spent


def least(turns: list[np.ndarray]) -> tuple[np.ndarray, float]:
    """Microseconds of an ask and of a tell, from the least that each of them took; and what both
    take half of the time, without renewals."""
    micros = np.min(turns, axis=0) * 1e6
    return micros.mean(axis=1), float(np.median(micros.sum(axis=0)))


def gaussian_seconds() -> np.ndarray:
    """The same with Gaussian arms, for which clicks are numbers."""
    meta = adats.GaussianMeta(0.0, 0.5, task_scale=0.1, noise=1.0, arms=range(ARMS))
    return World(TASKS, TASKS * PULLS, 0).spent(adats.AdaTS(meta, seed=1))


def live() -> Iterator[Row]:
    turns: dict[str, list[np.ndarray]] = {"gaussian": [], "known": [], "default": [], "far": []}
    for _ in range(TURNS):
        turns["gaussian"].append(gaussian_seconds())
        turns["known"].append(seconds(known()))
        turns["default"].append(seconds(default()))
        turns["far"].append(seconds(default(), horizon=100, policy="far"))
    found = {name: least(taken) for name, taken in turns.items()}
    gaussian = found["gaussian"][0].sum()
    for name, what, reach in (
        ("known", "spreads known", 110),
        ("default", "default prior", 200),
    ):
        (ask, tell), median = found[name]
        both = ask + tell
        said = f"{both:.0f} µs = {both / gaussian:.1f} × Gaussian arms"
        said += f" (ask {ask:.0f}, tell {tell:.0f}; median of both {median:.0f})"
        yield (
            f"live ask + tell, clicks K={ARMS}, {what}",
            said,
            f"≤ {reach} µs",
            bool(both <= reach),
        )
    far, drawn = found["far"][0][0], found["default"][0][0]
    said = f"{far:.0f} µs = {far / drawn:.2f} × Thompson sampling"
    yield f"ask with far, clicks K={ARMS}, default prior", said, "≤ 2 ×", bool(far <= 2 * drawn)


def chances() -> Iterator[Row]:
    """Of one arm to be best, against counting over a million draws, in tasks of an agent."""
    for arms in (3, 10, 50):
        rng = np.random.default_rng(arms)
        agent = adats.AdaTS(adats.default_prior(arms=range(arms), rewards="binary"), seed=1)
        rates = expit(logit(BASE) + ARM_SCALE * rng.standard_normal((50, arms)))
        for task in rng.integers(50, size=600).tolist():
            decision = agent.ask(task)
            agent.tell(decision, reward=int(rng.random() < rates[task, decision.action]))
        worst, spent = 0.0, []
        for task in agent.tasks[:3]:
            draws = (agent.posterior(task).draws(100_000, rng) for _ in range(10))
            truth = sum(np.bincount(some.argmax(axis=1), minlength=arms) for some in draws) / 1e6
            for arm in np.flatnonzero(truth > 0.01).tolist():
                begin = time.perf_counter()
                found = agent.posterior(task).best_chance(arm)
                spent.append(time.perf_counter() - begin)
                worst = max(worst, abs(found / truth[arm] - 1))
        said = f"{100 * worst:.1f} % off at worst, {1e6 * np.median(spent):.0f} µs"
        yield f"chance of one arm, clicks K={arms}, above 0.01", said, "≤ 10 %", worst <= 0.1


def memory() -> Iterator[Row]:
    world = World(1000, 0, 1)
    for name, meta in (("spreads known", known()), ("default prior", default())):
        tracemalloc.start()
        agent = world.agent(meta)
        each = tracemalloc.get_traced_memory()[0] / len(agent.tasks) / 1e3
        tracemalloc.stop()
        what = f"memory of an open task, clicks K={ARMS}, {name}"
        yield what, f"{each:.2f} kB", "≤ 3 kB", each <= 3


def simulator() -> Iterator[Row]:
    clicks = ClicksProblem(ARMS, BASE, ARM_SCALE, TASK_SCALE, LEVEL_SCALE)
    sizes = {"tasks": 20, "rounds": 200, "seed": 1}
    spent: list[list[float]] = [[], []]
    for turn in range(1 + TURNS):
        for taken, problem in zip(spent, (clicks, GaussianProblem(arms=ARMS)), strict=True):
            runs = 10
            got = simulate(problem, ["ada-ts"], runs=runs, chunk=runs, **sizes)
            if turn:  # the first compiles
                taken.append(float(got.agent_seconds[0]) / (runs * 20 * 200))
    ours, gaussian = (min(taken) for taken in spent)
    said = f"{ours * 1e9:.0f} ns = {ours / gaussian:.1f} × Gaussian"
    yield f"simulate clicks K={ARMS}, spreads known", said, "≤ 10 ×", ours <= 10 * gaussian


def alone(runs: int = 100, seed: int = 20_261) -> Iterator[Row]:
    """Nothing in common: arms alike, tasks that differ by 1."""
    for base, arms, rounds in ((0.02, 3, 50), (0.02, 10, 50), (0.2, 3, 50), (0.2, 10, 200)):
        problem = ClicksProblem(arms, base, arm_scale=0.0, task_scale=1.0)
        names = ["default-ts", "flat-ts"]
        got = simulate(problem, names, tasks=200, rounds=rounds, runs=runs, seed=seed)
        value, se = ratio(*(got.total(name) for name in names))
        what = f"nothing in common, {100 * base:g} %, K={arms}, {rounds} rounds"
        yield what, f"{value:.3f} ± {se:.3f} × TS alone", "≤ 1.05 ×", value <= 1.05


def hillstrom(runs: int = 1000, seed: int = 13) -> Iterator[Row]:
    """The demo with more repetitions and another seed."""
    story = tell_story(repetitions=runs, seed=seed)
    flat, pooled, drawn, far = (story.totals(name) for name in PLAYERS)
    value, se = ratio(drawn, flat)
    what = f"Hillstrom, raw rates, {runs:,} runs: Thompson sampling"
    said = f"{drawn.mean():.1f} = {value:.3f} ± {se:.3f} × flat"
    yield what, said, "≤ 0.60 ×", value <= 0.6
    value, se = ratio(far, pooled)
    said = f"{far.mean():.1f} = {value:.3f} ± {se:.3f} × pooled"
    yield "  far", said, "≤ 1.1 ×", value <= 1.1
    high = float(np.quantile(far, 0.99))
    reach = f"≤ {flat.mean():.0f}, the mean of flat"
    yield "  its 99th percentile", f"{high:.0f}", reach, bool(high <= flat.mean())


def served() -> Iterator[Row]:
    """Decisions and rewards under load, × those of Gaussian arms; the servers take turns."""
    if shutil.which("wrk") is None:
        yield "clicks in the service", "wrk is not installed", "apt-get install wrk", False
        return
    binary = {"model": "binary", "prior": {"default": {}}, "seed": 1}
    named = [{**binary, "arms": [f"arm {i}" for i in range(arms)]} for arms in (10, 50)]
    specs = [service.SPEC, *named]
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        urls = []
        for i, spec in enumerate(specs):
            path = Path(folder, f"{i}.db")
            service.fill(path, service.FEW, service.FEW, spec)
            urls.append(stack.enter_context(service.served(path))[0])
        loads = {
            verb: [
                max(taken) for taken in service.measured(verb, *((u, service.FEW) for u in urls))
            ]
            for verb in ("decide", "reward")
        }
    gaussian, *clicks = zip(*loads.values(), strict=True)
    for arms, reach, (decide, reward) in zip((10, 50), (0.5, 0.2), clicks, strict=True):
        parts = decide.rate / gaussian[0].rate, reward.rate / gaussian[1].rate
        rates = [1 / (1 / d.rate + 1 / r.rate) for d, r in ((decide, reward), gaussian)]
        both = rates[0] / rates[1]
        said = f"{both:.2f} × (decide {parts[0]:.2f}, reward {parts[1]:.2f})"
        good = both >= reach and not decide.failed + reward.failed
        what = f"service, default binary K={arms} / Gaussian K=10"
        yield (
            what,
            f"{decide.rate:,.0f} and {reward.rate:,.0f} a second: {said}",
            f"≥ {reach} ×",
            good,
        )


PARTS = {
    part.__name__: part for part in (live, chances, memory, simulator, alone, hillstrom, served)
}


def rows() -> Iterator[Row]:
    """Lines of the table of `make bench`."""
    for part in PARTS.values():
        yield from part()


if __name__ == "__main__":
    for name in sys.argv[1:] or PARTS:
        for line in PARTS[name]():
            print(*line, sep=" | ", flush=True)
