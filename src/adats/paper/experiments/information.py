"""What the histories of agents have told, beside Lemma 4: over the number of tasks."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from adats import plots
from adats.models.core.types import FloatArray
from adats.paper.bounds import Information, information_bounds
from adats.paper.experiments.claims import Claim
from adats.paper.experiments.measures import Measure, Measures
from adats.paper.experiments.panels import Outcome, Panel, start_of
from adats.paper.experiments.report_text import table
from adats.paper.experiments.simulations import PAPER_AGENTS, SHARED, gaussian_panel, linear_panel
from adats.paper.experiments.spec import PanelExperiment
from adats.paper.information import RealisedInformation, realised_information
from adats.simulation.learners import label_of

TASKS, SHOWN = 100, (1, 10, 100)
LEMMA = "Lemma 4"
WHAT = {  # by the fields of both dataclasses
    "meta": "I(μ_*; H_1:s), what all tasks so far say about μ_*",
    "task": "I(θ_s; H_s | μ_*), what a task says about its θ_s",
}


def _recorded(panel: Panel) -> Panel:
    return replace(panel, tasks=TASKS, detail="task", record=True)


def _model(o: Outcome) -> dict[str, float]:
    settings = o.result.problem
    covs = {f"{part}_cov": settings[f"{part}_scale"] ** 2 for part in ("meta", "task")}
    return {**covs, "noise": settings["noise"]}


def designs(o: Outcome) -> dict[str, FloatArray]:
    """Pulls of arms, or Gram matrices, of every agent, run and task."""
    arms, actions = o.result.problem["arms"], o.result.actions
    assert actions is not None
    pulls = np.stack([(actions == arm).sum(axis=-1) for arm in range(arms)], axis=-1)
    if "dim" not in o.result.problem:
        return {"pulls": pulls}
    problem = o.panel.problem()
    starts = [start_of(problem, o.result.seed, run) for run in range(o.result.runs)]
    features = np.array([start.features for start in starts])  # (runs, 1, arms, dim)
    return {"grams": np.einsum("artk,rki,rkj->artij", pulls, features[:, 0], features[:, 0])}


@lru_cache(maxsize=2)
def informations(o: Outcome) -> RealisedInformation:
    """Of every agent, run and task."""
    return realised_information(**_model(o), **designs(o))  # type: ignore[arg-type]


def bound(o: Outcome, tasks: int) -> Information:
    """Lemma 4."""
    settings = o.result.problem
    dim = settings.get("dim", settings["arms"])
    return information_bounds(tasks=tasks, rounds=o.result.rounds, dim=dim, **_model(o))


def _bounds(o: Outcome, field: str) -> FloatArray:
    return np.array([getattr(bound(o, s), field) for s in range(1, o.result.tasks + 1)])


def _below(field: str) -> Measures:
    """No history has told more: the largest ratio to the bound of all runs and tasks."""

    def measures(outcomes: Sequence[Outcome]) -> Iterator[Measure]:
        for o in outcomes:
            ratios = (getattr(informations(o), field) / _bounds(o, field)).max(axis=(1, 2))
            for agent, value in zip(o.result.agents, ratios, strict=True):
                what = f"{label_of(agent)}, largest of {o.result.runs} runs"
                yield Measure(o.panel.label, what, f"{value:.3f}", float(value), 0.0, high=1.0)

    return measures


def figure(outcomes: Sequence[Outcome]) -> "plots.Figure":
    """A row a problem: both informations over tasks, and their bounds."""
    charts = []
    for o in outcomes:
        x = np.arange(1.0, o.result.tasks + 1)
        for field, what in WHAT.items():
            found = getattr(informations(o), field)
            curves = {
                agent: plots.Curve.of_runs(runs)
                for agent, runs in zip(o.result.agents, found, strict=True)
            }
            curves[LEMMA] = plots.Curve.exact(_bounds(o, field))
            charts.append(plots.Chart(o.panel.title, what, x, curves))
    return plots.regret_figure(charts, columns=2, label="information (nats)")


def _sections(outcomes: Sequence[Outcome]) -> list[str]:
    rows = []
    for o in outcomes:
        for field, what in WHAT.items():
            for tasks in SHOWN:
                found = getattr(informations(o), field)[..., tasks - 1].mean(axis=1)
                limit = getattr(bound(o, tasks), field)
                cells = [f"{value:.2f}" for value in (*found, limit)]
                rows.append((o.panel.title, what.split(",")[0], str(tasks), *cells))
    entropies = []
    for o in outcomes:
        found = informations(o)
        ends = found.meta_entropy[..., -1].mean(axis=1), found.task_entropy.mean(axis=(1, 2))
        for i, agent in enumerate(o.result.agents):
            numbers = (found.prior_entropy, ends[0][i], found.task_prior_entropy, ends[1][i])
            entropies.append((o.panel.title, label_of(agent), *(f"{x:.2f}" for x in numbers)))
    head = ("problem", "what", "task s", *map(label_of, PAPER_AGENTS), LEMMA)
    names = (
        "h(μ_*)",
        f"h(μ_* | H_1:{TASKS})",
        "h(θ_s | μ_*)",
        "h(θ_s | μ_*, H_s), mean over tasks",
    )
    return [
        "## Information, in nats",
        table(head, rows),
        "## Entropies, in nats",
        table(("problem", "agent", *names), entropies),
    ]


INFORMATION = PanelExperiment(
    name="information",
    title="What rewards tell about the prior and about a task, beside Lemma 4",
    about=(
        f"{SHARED} With Gaussian models the covariance of a belief depends on the arms that were "
        "pulled and not on the rewards, so the information of a history has a closed form "
        "(`adats.paper.information.realised_information`). Its mean over runs estimates the "
        "mutual information of the paper, and Lemma 4 holds for each history. The figure and the "
        "tables have means; bands are one standard error."
    ),
    panels=tuple(
        map(_recorded, (gaussian_panel(2, 0.5, PAPER_AGENTS), linear_panel(4, 1.0, PAPER_AGENTS)))
    ),
    claims=(
        Claim(
            "I(μ_*; H_1:m) ≤ (d/2) log(1 + λ_1(Σ_q) m / (λ_d(Σ_0) + σ²/n)), Lemma 4",
            "in no run and after no task is the ratio to the bound above 1",
            _below("meta"),
        ),
        Claim(
            "I(θ_s; H_s | μ_*, H_1:s−1) ≤ (d/2) log(1 + λ_1(Σ_0) n / σ²), Lemma 4",
            "in no run and in no task is the ratio to the bound above 1",
            _below("task"),
        ),
    ),
    runs=100,
    needs_numba=True,
    drawings={"information": ("What rewards tell, and Lemma 4", figure)},
    sections=_sections,
)
