"""Clicks with features: the default prior against a linear model and against bayesianbandits.

20 arms with 8 features, 3 % for a typical arm, 100 tasks of 100 rounds; the ratio of regrets over
the same runs. Alone: python -m benchmarks.contextual, and for more runs with a seed:
python -m benchmarks.contextual 200 20 7
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from adats.simulation import simulate
from adats.simulation.problems import FeatureClicksProblem
from benchmarks.peers import quiet

TASKS, ROUNDS, SEED = 100, 100, 1
RUNS, SLOW_RUNS = 60, 8  # of our agents, and of those beside bayesianbandits
PROBLEM = FeatureClicksProblem(features=8, arms=20, base=0.03)
OURS, FAR, LINEAR = "default-ts", "default-far", "linear-ts"
EACH, POOLED = "BayesianGLM a task", "BayesianGLM pooled"


@dataclass
class GLMAgent:
    """Thompson sampling with `BayesianGLM`, one for each task or one for all."""

    seed: int
    pooled: bool
    alpha: float = 1.0  # as it is by default
    models: dict[Any, Any] = field(default_factory=dict)

    def ask(self, task: Any, features: np.ndarray) -> Any:
        from bayesianbandits import BayesianGLM

        key = None if self.pooled else task
        if key not in self.models:
            seed = self.seed + len(self.models)
            self.models[key] = BayesianGLM(alpha=self.alpha, link="logit", random_state=seed)
        model = self.models[key]
        arm = int(model.sample(features).ravel().argmax())
        return SimpleNamespace(action=arm, model=model, row=features[arm : arm + 1])

    def tell(self, decision: Any, reward: float) -> None:
        decision.model.partial_fit(decision.row, np.array([reward]))


def _peer(pooled: bool, alpha: float, problem: Any, seed: int) -> GLMAgent:  # noqa: ARG001
    return GLMAgent(seed % 2**31, pooled, alpha)


def peers(alpha: float = 1.0) -> dict[str, Callable[..., Any]]:
    return {EACH: partial(_peer, False, alpha), POOLED: partial(_peer, True, alpha)}


def ratio(ours: np.ndarray, theirs: np.ndarray) -> tuple[float, float]:
    """Of the mean regrets over the same runs, with its standard error."""
    value = ours.mean() / theirs.mean()
    gaps = ours - value * theirs
    return value, float(gaps.std(ddof=1) / (theirs.mean() * np.sqrt(ours.size)))


def rows(
    runs: int = RUNS, slow_runs: int = SLOW_RUNS, seed: int = SEED
) -> list[tuple[str, str, str, bool]]:
    """Thompson sampling is what has to reach something; beside it, the far-sighted policy."""
    options: dict[str, Any] = {"tasks": TASKS, "rounds": ROUNDS, "seed": seed}
    fast = simulate(PROBLEM, [OURS, FAR, LINEAR], runs=runs, **options)
    with quiet():
        slow = simulate(PROBLEM, {OURS: OURS, FAR: FAR, **peers()}, runs=slow_runs, **options)
    table = []
    for name, result in ((LINEAR, fast), (EACH, slow), (POOLED, slow)):
        ours, far, theirs = (result.total(agent) for agent in (OURS, FAR, name))
        value, se = ratio(ours, theirs)
        measured = f"{value:.2f} ± {se:.2f} × ({ours.mean():.0f} / {theirs.mean():.0f})"
        measured += ", far {:.2f} ± {:.2f} ×".format(*ratio(far, theirs))
        what = "linear model, learned prior" if name == LINEAR else name
        reach, reached = ("≤ 1.0 ×", value <= 1.0) if name == LINEAR else ("< 1 ×", value < 1.0)
        table.append(
            (f"clicks, d=8, K=20, regret / {what}, {result.runs} runs", measured, reach, reached)
        )
    return table


if __name__ == "__main__":
    for line in rows(*map(int, sys.argv[1:])):
        print(*line, sep=" | ")
