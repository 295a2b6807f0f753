"""The report on what half-lives cost and bring, its figures and its tables."""

import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np

from adats import plots
from adats.paper.experiments.drift_claims import (
    ALONE,
    JUMP,
    MU,
    NEXT,
    NONE,
    REFERENCE,
    SEASONS,
    STILL,
    THETA,
    TOLD,
    WALK,
    regret_of,
    rivals,
)
from adats.paper.experiments.drift_detector import section
from adats.paper.experiments.measures import ratio
from adats.paper.experiments.panels import Outcome, of_part
from adats.paper.experiments.records import Columns
from adats.paper.experiments.report_text import ReportParts, table, total_regret
from adats.simulation.learners import label_of

REACH = {STILL: 1.05, MU: 1.3, THETA: 1.08, WALK: 1.1}  # largest ratios to the reference
TICKS = (0.5, 0.7, 1.0, 1.4, 2.0)
HIGH = 0.21  # inches: a row of the figure
LETTERS = 24  # in a line of an agent's name, in the figure


def best_rival(o: Outcome, place: str) -> str:
    """Of the rules of bayesianbandits, that with the lowest regret."""
    return min(rivals(o, place), key=lambda agent: float(regret_of(o, agent).mean()))


def report_parts(about: str, outcomes: Sequence[Outcome]) -> ReportParts:
    """Settings, figures, and a table a panel."""
    first = outcomes[0].result
    settings = (
        f"{first.runs} runs, seed {first.seed}. Regret is expected regret, averaged over runs; the "
        "standard error is the standard deviation of the runs over √runs, and of a ratio that of "
        "the paired runs."
    )
    images = [
        "![Regret, over that of a reference, in each panel](drift.png)",
        "![Regret of each task: a jump of all means, and seasons](jump.png)",
    ]
    tables = ["## Regret, and what it is of the reference"]
    for o in _compared(outcomes):
        tables += [f"### {o.panel.label}", _table(o)]
    tables += section(outcomes)
    return ReportParts([about, settings, *images], tables, outcomes, outcomes)


def _compared(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Those of which regrets are compared with that of a reference."""
    return [o for o in outcomes if o.panel.part in REFERENCE]


def _table(o: Outcome) -> str:
    """A row an agent."""
    reference, jumped = REFERENCE[o.panel.part], o.panel.part == MU
    some = f"tasks {JUMP + 1} to {JUMP + NEXT}"
    head = ["agent", "regret", *([some] if jumped else ()), f"ratio to {label_of(reference)}"]
    rows = []
    for agent in o.panel.agents:
        cells = [label_of(agent), total_regret(o, agent)]
        if jumped:
            after = regret_of(o, agent)
            error = after.std(ddof=1) / np.sqrt(after.size)
            cells.append(f"{after.mean():.1f} ± {error:.1f}")
        value, error = _to_reference(o, agent)
        rows.append([*cells, f"{value:.3f} ± {error:.3f}"])
    return table(head, rows)


def _to_reference(o: Outcome, agent: str) -> tuple[float, float]:
    return ratio(regret_of(o, agent), regret_of(o, REFERENCE[o.panel.part]))


def _shown(o: Outcome) -> dict[str, str]:
    """The agents that the figure has, by what it calls them: of each kind of rival the best."""
    places = ("a task", "all tasks")
    own = [agent for agent in o.panel.agents if not any(agent in rivals(o, p) for p in places)]
    best = {
        f"bayesianbandits, {place}": best_rival(o, place) for place in places if rivals(o, place)
    }
    reference = REFERENCE[o.panel.part]
    return {label_of(agent): agent for agent in own if agent != reference} | best


def ratios_figure(outcomes: Sequence[Outcome]) -> "plots.Figure":
    """Ratios to the reference of each panel, with two standard errors; dashed is what to reach."""
    outcomes = _compared(outcomes)
    shown = [_shown(o) for o in outcomes]
    pairs = range(0, len(outcomes), 2)
    heights = [max(len(agents) for agents in shown[i : i + 2]) for i in pairs]
    size = (plots.WIDTH, 0.8 * len(heights) + HIGH * sum(heights))
    with plots.new_figure(size, plots.PRINT, dpi=plots.DPI, layout="constrained") as figure:
        options: Any = {"height_ratios": heights, "squeeze": False}
        grid = figure.subplots(len(heights), 2, **options)
        for axes, o, agents in zip(grid.flat, outcomes, shown, strict=False):
            _draw_ratios(axes, o, agents)
        for axes in list(grid.flat)[len(outcomes) :]:
            axes.remove()
    return figure


def _draw_ratios(axes: "plots.Axes", o: Outcome, agents: dict[str, str]) -> None:
    part = o.panel.part
    axes.axvline(1.0, color=plots.GREY, linewidth=0.8)
    if part in REACH:
        axes.axvline(REACH[part], color=plots.GREY, linewidth=1.0, linestyle=(0, (4, 2)))
    for row, agent in enumerate(agents.values()):
        value, error = _to_reference(o, agent)
        colour = plots.COLOURS.get(agent, plots.COLOURS[NONE])
        axes.errorbar(value, row, xerr=2 * error, fmt="o", markersize=3, capsize=1.5, color=colour)
    names = [textwrap.fill(name, LETTERS) for name in agents]
    axes.set_xscale("log")
    axes.set_xlim(0.5, 2.9)
    axes.set_xticks(TICKS, [f"{tick:g}" for tick in TICKS])
    axes.set_xticks([], minor=True)
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.tick_params(labelsize=plots.SMALL, width=0.6, length=2.5)
    axes.set_title(
        plots.symbols(textwrap.fill(plots.unbroken(o.panel.title), 28)),
        loc="left",
        fontsize=plots.TEXT,
    )
    axes.set_xlabel(f"regret / {label_of(REFERENCE[part])}", fontsize=plots.SMALL)
    plots.draw_grid(axes, "x")


def jump_figure(outcomes: Sequence[Outcome]) -> "plots.Figure":
    """Regret of each task, where mu jumps and with seasons."""
    charts = [
        _tasks(o, note)
        for part, note in ((MU, f"means are drawn anew after task {JUMP}"), (SEASONS, ""))
        for o in of_part(part, outcomes)
    ]
    return plots.regret_figure(charts, columns=2, label="regret of a task")


def _tasks(o: Outcome, note: str) -> "plots.Chart":
    agents = [a for a in o.panel.agents if "half-life" in a]
    agents += [a for a in (NONE, ALONE, TOLD) if a in o.panel.agents]
    curves = {}
    for agent in agents:
        lost = o.result.regret[o.result.agents.index(agent)]
        curves[agent] = plots.Curve.of_runs(lost)
    return plots.Chart(o.panel.title, note, np.arange(1.0, o.panel.tasks + 1.0), curves)


def run_records(outcomes: Sequence[Outcome]) -> Columns:
    """The regret over all tasks of every panel, run and agent, and of the tasks after a jump."""
    parts = []
    for o in _compared(outcomes):
        agents, runs = o.result.agents, o.result.runs
        parts.append(
            {
                "panel": np.repeat([o.panel.label], len(agents) * runs),
                "run": np.tile(np.arange(runs), len(agents)),
                "agent": np.repeat(agents, runs),
                "regret": np.concatenate([o.total(agent) for agent in agents]),
                "judged": np.concatenate([regret_of(o, agent) for agent in agents]),
            }
        )
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
