"""What a panel of a figure runs, and what came out of it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, TypedDict

import numpy as np

from adats.models.core.types import FloatArray, IntArray
from adats.simulation import Learner, Result, simulate
from adats.simulation.problems import Problem
from adats.simulation.problems.problem import Start
from adats.simulation.simulate import Agents

POINTS = 20  # of a curve in every task


class Options(TypedDict):
    """How simulations are run, as `simulate` takes it."""

    runs: int
    seed: int
    workers: int
    engine: str


class Variant(NamedTuple):
    """Another version of a panel's problem, and agents that play only that."""

    problem: Callable[[], Problem]
    agents: Mapping[str, str]  # names in `AGENTS` by the names that are shown


@dataclass(frozen=True)
class Panel:
    """One setting: the settings of `simulate`, and a title."""

    title: str
    problem: Callable[[], Problem]  # made when it is run, since networks are read from a package
    agents: tuple[str, ...] | Mapping[str, str | Learner]  # names in `AGENTS`, or by other names
    tasks: int = 20
    rounds: int = 200
    explore_first: bool = False
    delay: int = 0
    detail: Literal["task", "round"] = "round"  # where its curves have points
    record: bool = False  # keep the arm of every round
    part: str = ""  # of an experiment that has several
    one_run_in: int = 1  # of those that are asked for, where each is dear
    variant: Variant | None = None

    @property
    def note(self) -> str:
        return "forced exploration first" if self.explore_first else "no forced exploration"

    @property
    def label(self) -> str:
        """A name that no other panel of the experiment has."""
        return f"{self.title}; forced exploration" if self.explore_first else self.title

    def runs(self, asked: int) -> int:
        """How many runs a simulation has if `asked` are asked for."""
        return max(2, asked // self.one_run_in)

    def total_runs(self, asked: int) -> int:
        """Runs of all its simulations."""
        return self.runs(asked) * (1 if self.variant is None else 2)


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


def of_part(part: str, outcomes: Sequence[Outcome]) -> list[Outcome]:
    return [o for o in outcomes if o.panel.part == part]


def start_of(problem: Problem, seed: int, run: int) -> Start:
    """What is drawn once a run, as `simulate` draws it."""
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(run, 0)))
    return problem.start(rng)


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

    def play(world: Problem, agents: Agents) -> Result:
        return simulate(
            world,
            agents,
            tasks=panel.tasks,
            rounds=panel.rounds,
            runs=panel.runs(runs),
            seed=seed,
            workers=workers,
            explore_first=panel.explore_first,
            delay=panel.delay,
            detail=panel.detail,
            record=panel.record,
            engine=engine,
            progress=progress,
        )

    result = play(problem, panel.agents)
    if panel.variant is not None:
        result = _joined(result, play(panel.variant.problem(), panel.variant.agents))
    return outcome_of(panel, result)


def _joined(one: Result, other: Result) -> Result:
    """The agents of two simulations of the same worlds."""
    return replace(
        one,
        agents=one.agents + other.agents,
        regret=np.concatenate([one.regret, other.regret]),
        seconds=one.seconds + other.seconds,
        agent_seconds=np.concatenate([one.agent_seconds, other.agent_seconds]),
    )


def outcome_of(panel: Panel, result: Result) -> Outcome:
    """The regrets of tasks, and the curves: at the ends of tasks if no more is known."""
    points = POINTS if result.regret.ndim == 4 else 1
    at = np.unique(np.ceil(np.arange(1, points + 1) * result.rounds / points)).astype(np.intp)
    shape = (len(result.agents), result.tasks, at.size)
    mean, se = np.empty(shape), np.empty(shape)
    for i, regret in enumerate(result.regret):  # one agent at a time: memory
        so_far = regret.reshape(result.runs, -1).cumsum(axis=1)
        curves = so_far.reshape(result.runs, result.tasks, -1)[..., at - 1 if points > 1 else [0]]
        mean[i] = curves.mean(axis=0)
        se[i] = curves.std(axis=0, ddof=1) / np.sqrt(result.runs)
    return Outcome(panel, replace(result, regret=result.per_task()), at, mean, se)
