"""What the experiments draw."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

import numpy as np

from adats import plots
from adats.models.core.types import FloatArray
from adats.paper.experiments.measures import CLOSE, ratio
from adats.paper.experiments.panels import Outcome


def regret_panels(outcomes: Sequence[Outcome], columns: int = 3) -> "plots.Figure":
    """Cumulative regret, a panel an outcome."""
    return plots.regret_figure([chart(o) for o in outcomes], columns=columns)


def chart(outcome: Outcome) -> plots.Chart:
    """The curves of a panel, from the origin."""
    panel = outcome.panel
    x = np.arange(panel.tasks)[:, None] + outcome.at / panel.rounds
    lines = {
        agent: plots.Curve(_from_zero(outcome.mean[i]), _from_zero(outcome.se[i]))
        for i, agent in enumerate(outcome.result.agents)
    }
    return plots.Chart(panel.title, panel.note, _from_zero(x), lines)


def _from_zero(values: FloatArray) -> FloatArray:
    return np.concatenate(([0.0], values.ravel()))


def spread_figure(outcomes: Sequence[Outcome]) -> "plots.Figure":
    """A row a problem: what learning σ_0 costs, what a wrong one does, and regret over tasks.

    Of the regrets over tasks those at the paper's σ_0 are shown.
    """
    groups = groupby(outcomes, key=lambda o: o.panel.title.split(", σ_0")[0])
    charts = []
    for title, group in groups:
        found = list(group)
        charts += [
            _ratios(title, f"σ_0 learned; dashed: {CLOSE:g}", found, ("ada-grid",)),
            _ratios(title, "σ_0 learned or wrong", found, RATIO_AGENTS),
            *(replace(chart(o), note="cumulative regret") for o in found if _spread(o) == 0.1),
        ]
    columns = 3
    figure = plots.regret_figure(charts, columns=columns, label="regret / AdaTS's")
    for column, log in enumerate((False, True)):
        pairs = list(zip(figure.axes, charts, strict=True))[column::columns]
        drawn = [_as_ratios(axes, ratios, log) for axes, ratios in pairs]
        low, high = zip(*(one.get_ylim() for one in drawn), strict=True)
        for one in drawn:
            one.set_ylim(min(low), max(high))
    return figure


RATIO_AGENTS = ("ada-grid", "ada-narrow", "ada-broad", "ts")


def _spread(outcome: Outcome) -> float:
    return float(outcome.result.problem["task_scale"])


def _ratios(
    title: str, note: str, outcomes: Sequence[Outcome], agents: Sequence[str]
) -> plots.Chart:
    """Ratios to the regret of AdaTS that is told σ_0, over σ_0."""
    found = {a: [ratio(o.total(a), o.total("ada-ts")) for o in outcomes] for a in agents}
    curves = {agent: plots.Curve(*np.array(pairs).T) for agent, pairs in found.items()}
    return plots.Chart(title, note, np.array([_spread(o) for o in outcomes]), curves)


def _as_ratios(axes: "plots.Axes", ratios: plots.Chart, log: bool) -> "plots.Axes":
    """The axes of a curve over tasks, turned into those of ratios over σ_0."""
    for line, curve in zip(list(axes.get_lines()), ratios.curves.values(), strict=True):
        axes.errorbar(
            *(ratios.x, curve.mean, curve.se),
            fmt="o",
            markersize=2.5,
            capsize=1.5,
            color=line.get_color(),
        )
    axes.axhline(1.0, color=plots.GREY, linewidth=0.8)
    axes.axhline(CLOSE, color=plots.GREY, linewidth=1.0, linestyle=(0, (4, 2)))
    axes.set_xscale("log")
    axes.set_xlim(ratios.x[0] / 1.15, ratios.x[-1] * 1.15)
    axes.set_xticks(ratios.x, [f"{x:g}" for x in ratios.x])
    axes.set_xticks([], minor=True)
    axes.set_xlabel("$σ_0$")
    axes.autoscale(axis="y")
    if log:
        plots.log_ticks(axes, [1, 2, 4, 8])
    return axes
