"""Index policies on a learned prior: regret, tails, rewards that come late, and many tasks."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from adats import plots
from adats.agents.policies import POLICIES, FarSighted, Policy, Scene
from adats.models.core.checks import count_of
from adats.models.core.files import write_bytes
from adats.models.core.types import FloatArray
from adats.paper.experiments.catalogue import _gaussian, _linear
from adats.paper.experiments.panels import Panel
from adats.paper.experiments.policies_claims import INDICES, LATE, UNCOUNTED, PolicyOutcome
from adats.paper.experiments.policies_report import (
    FILES,
    many_figure,
    policies_report,
    tails_figure,
    tasks_figure,
)
from adats.paper.experiments.run import Progress, check_folder, parquet_bytes, records
from adats.simulation import Result, simulate
from adats.simulation.kernels.registry import NUMBERED, Loops, Task, has_numba, register
from adats.simulation.play import plain_task
from adats.simulation.problems import GaussianProblem, LinearProblem, Problem
from adats.simulation.simulate import Agents

RUNS = 2000
FEW = 10  # one run in so many is made where rewards come late, and of many tasks
AGENTS = ("oracle-ts", "ada-ts", *INDICES, "ada-greedy")
MANY = 200


@dataclass(frozen=True)
class _Unaware:
    """A policy that does not see pending pulls."""

    policy: Policy
    DRAWS: ClassVar[bool] = False

    def values(self, scene: Scene) -> FloatArray:
        return self.policy.values(scene._replace(pending=None))


class _UncountedGaussian(GaussianProblem):
    """A problem whose indices do not count pending pulls."""


class _UncountedLinear(LinearProblem):
    """The same."""


@register(_UncountedGaussian, "gaussian")
@register(_UncountedLinear, "linear")
def _uncounted() -> Loops:
    return Loops(_play_uncounted)


def _play_uncounted(problem: Problem, task: Task) -> Any:
    index = task.policy
    name = NUMBERED[index.number]
    policy = _Unaware(FarSighted(1.0) if name == "far" else POLICIES[name])
    counted = np.sqrt(index.counted)
    options: Any = {"policy": policy, "share": lambda _: counted, "delay": index.delay}
    return plain_task(problem, *task[:-1], **options)


ROWS = (
    _gaussian(2, 0.5, AGENTS, False),
    _gaussian(2, 1.0, AGENTS, False),
    _gaussian(8, 1.0, AGENTS, False),
    _linear(2, 0.5, AGENTS),
    _linear(8, 1.0, AGENTS),
)
LATE_ROWS: dict[Panel, Callable[[], Problem]] = {  # and where pending pulls are not counted
    ROWS[2]: partial(_UncountedGaussian, 8, 1.0),
    ROWS[3]: partial(_UncountedLinear, 2, 10, 0.5),
}


def reproduce_policies(
    *,
    out: Path,
    runs: int | None = None,
    seed: int = 1,
    workers: int = 1,
    engine: str = "local",
    progress: Progress | None = None,
) -> Path:
    """Run all parts, write figures, records and report, and return the path of the report.

    Nothing is written before all is computed. `progress` gets a panel's label, the number of runs
    done and the number of all runs.
    """
    total, out = total_policy_runs(runs), Path(out)
    check_folder(out)
    plots.need()
    parquet_bytes()
    if not has_numba():
        raise ValueError("this experiment needs Numba: pip install 'adats[sim]'")
    done = 0

    def run(panel: Panel, problem: Problem, agents: Agents, runs: int, delay: int = 0) -> Result:
        def advance(finished: int) -> None:
            nonlocal done
            done += finished
            if progress is not None:
                progress(panel.label, done, total)

        return simulate(
            problem,
            agents,
            tasks=panel.tasks,
            rounds=panel.rounds,
            runs=runs,
            seed=seed,
            workers=workers,
            delay=delay,
            engine=engine,
            progress=advance,
        )

    runs = RUNS if runs is None else runs
    found = [PolicyOutcome.of("table", p, run(p, p.problem(), p.agents, runs)) for p in ROWS]
    for row, uncounted in LATE_ROWS.items():
        panel = replace(row, title=f"{row.title}, rewards {LATE} rounds late", agents=AGENTS[:-1])
        known = run(panel, row.problem(), panel.agents, few(runs), LATE)
        unknown = {UNCOUNTED[agent]: agent for agent in INDICES}
        more = run(panel, uncounted(), unknown, few(runs), LATE)
        found.append(PolicyOutcome.of("late", panel, joined(known, more)))
    for row in ROWS:
        panel = replace(row, title=f"{row.title}, {MANY} tasks", tasks=MANY, agents=AGENTS[:-1])
        result = run(panel, row.problem(), panel.agents, few(runs))
        found.append(PolicyOutcome.of("many", panel, result))
    files = dict(zip(FILES, _data(found), strict=True))
    text = policies_report(found, workers=workers, engine=engine)
    out.mkdir(parents=True, exist_ok=True)
    for file, data in {**files, "report.md": text.encode()}.items():
        write_bytes(out / file, data)
    return out / "report.md"


def total_policy_runs(runs: int | None = None) -> int:
    """How many runs `reproduce_policies` will make, over all panels."""
    runs = RUNS if runs is None else count_of("runs", runs, least=2)  # of one there is no error
    return len(ROWS) * (runs + few(runs)) + 2 * len(LATE_ROWS) * few(runs)


def few(runs: int) -> int:
    """Runs where each is dear."""
    return max(2, runs // FEW)


def joined(one: Result, other: Result) -> Result:
    """The agents of two simulations of the same worlds."""
    return replace(
        one,
        agents=one.agents + other.agents,
        regret=np.concatenate([one.regret, other.regret]),
        seconds=one.seconds + other.seconds,
        agent_seconds=np.concatenate([one.agent_seconds, other.agent_seconds]),
    )


def _data(outcomes: Sequence[PolicyOutcome]) -> list[bytes]:
    """The files of `FILES`."""
    figures = (tasks_figure(outcomes), tails_figure(outcomes), many_figure(outcomes))
    drawn = [plots.rendered(figure, kind) for figure in figures for kind in ("png", "svg")]
    return [*drawn, parquet_bytes(records(outcomes))]
