"""Online classification: all of MNIST as in the paper, and one task against the plain loop."""

import time
from typing import NamedTuple

import numpy as np

from adats.paper.datasets import load_mnist
from adats.simulation import simulate
from adats.simulation.kernels.registry import LoopInput, loops_of
from adats.simulation.one_task import plain_task
from adats.simulation.problems.classification import ClassificationProblem

AGENTS = ("oracle-ts", "ada-ts", "meta-ts", "ts")
SIZES = {"tasks": 10, "rounds": 200, "runs": 20, "seed": 1}


class Row(NamedTuple):
    what: str
    measured: str
    reach: str
    reached: bool


def mnist(positive: int) -> tuple[str, ClassificationProblem]:
    """MNIST where it is found (ADATS_DATA or the cache), else random arrays of the same sizes."""
    try:
        images = load_mnist(download=False)
        name, train, test = "MNIST", images.train, images.test
        features, own = test.features, train.features[train.labels == positive]
        labels = test.labels
    except ValueError:
        rng = np.random.default_rng(0)
        name, labels = "arrays like MNIST", rng.integers(10, size=30_000)
        features = rng.random((10, 49))[labels] * rng.random((30_000, 49))
        own = features[labels == positive]
    problem = ClassificationProblem(
        features, labels, positive, own.mean(axis=0), np.cov(own, rowvar=False), arms=30
    )
    return name, problem


def classification() -> list[Row]:
    named = [mnist(positive) for positive in (0, 1)]
    name, problem = named[1]
    simulate(problem, AGENTS, workers=2, **{**SIZES, "runs": 4})  # compile, start the processes
    begin = time.perf_counter()
    for _, one in named:
        simulate(one, AGENTS, workers=2, detail="round", **SIZES)
    seconds = time.perf_counter() - begin
    compiled, plain = one_task(problem)
    per = f"{compiled / SIZES['rounds'] * 1e6:.1f} µs"
    ratio = plain / compiled
    return [
        Row(
            f"{name}, 4 agents × 20 runs × 2 classes", f"{seconds:.1f} s", "≤ 120 s", seconds <= 120
        ),
        Row(
            f"  one decision, d=49, K=30: {per}",
            f"{ratio:.0f} × faster than NumPy",
            "≥ 10 ×",
            ratio >= 10,
        ),
    ]


def one_task(problem: ClassificationProblem) -> tuple[float, float]:
    """Seconds of one task in the compiled and in the plain loop, the better of some turns."""
    rng = np.random.default_rng(0)
    instance = problem.instance(problem.start(rng), SIZES["rounds"], rng)
    prior, first = problem.meta().task_prior(), np.zeros((0, 1), dtype=np.intp)
    regret = np.empty(SIZES["rounds"])
    loop = loops_of(problem, prior).play
    actions = np.empty(SIZES["rounds"], dtype=np.intp)
    ways = (
        lambda: loop(problem, LoopInput(prior, instance, first, rng, regret, actions)),
        lambda: plain_task(problem, prior, instance, first, rng, regret),
    )
    best = [float("inf")] * 2
    for _ in range(9):
        for i, play in enumerate(ways):
            begin = time.perf_counter()
            play()
            best[i] = min(best[i], time.perf_counter() - begin)
    return best[0], best[1]
