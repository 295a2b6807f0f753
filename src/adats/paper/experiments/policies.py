"""Index policies on a learned prior: regret, tails, rewards that come late, and many tasks."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from adats.agents.policies import POLICIES, FarSighted, Policy, Scene
from adats.models.core.types import FloatArray
from adats.paper.experiments import policies_figures, policies_report
from adats.paper.experiments.panels import Outcome, Panel, Variant
from adats.paper.experiments.policies_claims import CLAIMS, DELAY, INDEX_AGENTS, PENDING_IGNORED
from adats.paper.experiments.records import records
from adats.paper.experiments.report_text import ReportParts
from adats.paper.experiments.simulations import SHARED, gaussian_panel, linear_panel
from adats.paper.experiments.spec import Drawings, PanelExperiment, Tables
from adats.simulation.kernels.registry import NUMBERED, LoopInput, register
from adats.simulation.one_task import plain_task
from adats.simulation.problems import GaussianProblem, LinearProblem, Problem

AGENTS = ("oracle-ts", "ada-ts", *INDEX_AGENTS, "ada-greedy")
MANY = 200  # tasks


@dataclass(frozen=True)
class BlindToPending:
    """A policy that does not see pending pulls."""

    policy: Policy
    DRAWS: ClassVar[bool] = False

    def values(self, scene: Scene) -> FloatArray:
        return self.policy.values(scene._replace(pending=None))


class GaussianPendingIgnored(GaussianProblem):
    """A problem whose indices do not count pending pulls."""


class LinearPendingIgnored(LinearProblem):
    """The same."""


def _play_pending_ignored(problem: Problem, task: LoopInput) -> Any:
    """The plain loop with a blind policy."""
    index = task.policy
    name = NUMBERED[index.number]
    # `index.counted` is later * share²: so 1 round that is later, and a share of its root
    policy = BlindToPending(FarSighted(1.0) if name == "far" else POLICIES[name])
    share = np.sqrt(index.counted)
    options: Any = {"policy": policy, "share": lambda _: share, "delay": index.delay}
    return plain_task(problem, *task[:-1], **options)


register(GaussianPendingIgnored, "gaussian", play=_play_pending_ignored)
register(LinearPendingIgnored, "linear", play=_play_pending_ignored)


TABLE = tuple(
    replace(panel, detail="task", part="table")
    for panel in (
        gaussian_panel(2, 0.5, AGENTS),
        gaussian_panel(2, 1.0, AGENTS),
        gaussian_panel(8, 1.0, AGENTS),
        linear_panel(2, 0.5, AGENTS),
        linear_panel(8, 1.0, AGENTS),
    )
)


def _late(panel: Panel, pending_ignored: Callable[[], Problem]) -> Panel:
    """The panel with late rewards, and its indices also where they do not count pending pulls."""
    return replace(
        panel,
        title=f"{panel.title}, rewards {DELAY} rounds late",
        agents=AGENTS[:-1],
        delay=DELAY,
        part="late",
        one_run_in=10,
        variant=Variant(pending_ignored, {PENDING_IGNORED[agent]: agent for agent in INDEX_AGENTS}),
    )


def _many(panel: Panel) -> Panel:
    title = f"{panel.title}, {MANY} tasks"
    return replace(panel, title=title, agents=AGENTS[:-1], tasks=MANY, part="many", one_run_in=10)


class PolicyExperiment(PanelExperiment):
    """Three parts, each with a figure or a table of its own."""

    def figures(self) -> Drawings:
        return {
            "policies": policies_figures.tasks_figure,
            "tails": policies_figures.tails_figure,
            "many": policies_figures.many_figure,
        }

    def tables(self) -> Tables:
        return {"records": records}

    def report_parts(self, outcomes: Sequence[Outcome]) -> ReportParts:
        return policies_report.report_parts(self.about, outcomes)


POLICY_EXPERIMENT = PolicyExperiment(
    name="policies",
    title="Index policies on a learned prior",
    about=(
        f"{SHARED} All agents but OracleTS learn the prior from task to task as AdaTS does. They "
        "differ in how they explore within a task. Bayes-UCB takes the quantile at 1 − 1/(t + 1); "
        "“finite horizon” approximates the finite-horizon Gittins index; “far-sighted” is that "
        "index with a horizon that reaches into later tasks, as far as they have something to "
        "learn from this one, and it is told how many rounds they have; “greedy” takes the "
        "highest mean. Nothing was tuned on these settings or seeds, and no arm is pulled by "
        "force."
    ),
    panels=(
        *TABLE,
        _late(TABLE[2], partial(GaussianPendingIgnored, 8, 1.0)),
        _late(TABLE[3], partial(LinearPendingIgnored, 2, 10, 0.5)),
        *(_many(panel) for panel in TABLE),
    ),
    claims=CLAIMS,
    runs=2000,
    needs_numba=True,
)
