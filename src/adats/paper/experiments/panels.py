"""What a panel of a figure runs, and what came out of it."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from adats.models.core.types import FloatArray, IntArray
from adats.simulation import Result, simulate
from adats.simulation.problems import Problem

POINTS = 20  # of a curve in every task


@dataclass(frozen=True)
class Panel:
    """One setting: the settings of `simulate`, and a title."""

    title: str
    problem: Callable[[], Problem]  # made when it is run, since networks are read from a package
    agents: tuple[str, ...]
    tasks: int = 20
    rounds: int = 200
    explore_first: bool = False

    @property
    def note(self) -> str:
        return "each arm pulled once first" if self.explore_first else "no forced exploration"

    @property
    def label(self) -> str:
        """A name that no other panel of the experiment has."""
        return f"{self.title}; each arm once first" if self.explore_first else self.title


@dataclass(frozen=True, eq=False)
class Outcome:
    """A panel's regrets by run and task, and its curves of cumulative regret."""

    panel: Panel
    result: Result
    at: IntArray  # rounds of a task at which the curves are known
    mean: FloatArray  # (agents, tasks, len(at))
    se: FloatArray

    def total(self, agent: str, since: int = 0) -> FloatArray:
        """Regret of each run, without its first `since` tasks."""
        i = self.result.agents.index(agent)
        total: FloatArray = self.result.regret[i, :, since:].sum(axis=1)
        return total


def run_panel(
    panel: Panel,
    problem: Problem,
    *,
    runs: int,
    seed: int,
    workers: int,
    engine: str,
    progress: Callable[[int], None] | None = None,
) -> Outcome:
    """Simulate a panel and keep what its figure and its table need."""
    result = simulate(
        problem,
        panel.agents,
        tasks=panel.tasks,
        rounds=panel.rounds,
        runs=runs,
        seed=seed,
        workers=workers,
        explore_first=panel.explore_first,
        detail="round",
        engine=engine,
        progress=progress,
    )
    at = np.unique(np.ceil(np.arange(1, POINTS + 1) * panel.rounds / POINTS)).astype(np.intp)
    shape = (len(panel.agents), panel.tasks, at.size)
    mean, se = np.empty(shape), np.empty(shape)
    for i, regret in enumerate(result.regret):  # one agent at a time: memory
        curves = regret.reshape(runs, -1).cumsum(axis=1).reshape(regret.shape)[..., at - 1]
        mean[i] = curves.mean(axis=0)
        se[i] = curves.std(axis=0, ddof=1) / np.sqrt(runs)
    return Outcome(panel, replace(result, regret=result.per_task()), at, mean, se)
