"""The figures of index policies."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from adats import plots
from adats.paper.experiments.figures import chart
from adats.paper.experiments.measures import TAIL, tail
from adats.paper.experiments.panels import Outcome, of_part

TICKS = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0)


def tasks_figure(outcomes: Sequence[Outcome]) -> "plots.Figure":
    """Regret of each task over its number, on a logarithmic axis."""
    charts = []
    for o in of_part("table", outcomes):
        curves = {
            agent: plots.Curve.of_runs(regret)
            for agent, regret in zip(o.result.agents, o.result.regret, strict=True)
            if agent != "ada-greedy"
        }
        x = np.arange(1.0, o.panel.tasks + 1)
        charts.append(plots.Chart(o.panel.title, _runs(o), x, curves))
    figure = plots.regret_figure(charts, label="regret of the task")
    for axes, drawn in zip(figure.axes, charts, strict=True):
        means = np.concatenate([curve.mean for curve in drawn.curves.values()])
        low, high = max(means.min(), means.max() / 500), means.max()
        axes.set_xlim(1, drawn.x[-1])
        axes.set_ylim(low / 1.3, high * 1.2)
        plots.log_ticks(axes, [tick for tick in TICKS if low / 1.3 <= tick <= high * 1.2])
    return figure


def tails_figure(outcomes: Sequence[Outcome]) -> "plots.Figure":
    """The share of runs with more than x regret in all."""
    charts = []
    for o in of_part("table", outcomes):
        totals = {agent: o.total(agent) for agent in o.result.agents if agent != "ada-greedy"}
        x = np.linspace(0.0, 1.15 * max(tail(total) for total in totals.values()), 300)
        shares = {agent: (total[:, None] > x).mean(axis=0) for agent, total in totals.items()}
        curves = {
            agent: plots.Curve.exact(np.where(share > 0, share, np.nan))
            for agent, share in shares.items()
        }
        charts.append(plots.Chart(o.panel.title, _runs(o), x, curves))
    figure = plots.regret_figure(charts, label="share of runs above", across="total regret")
    for axes in figure.axes:
        axes.set_ylim(0.002, 1)
        axes.axhline(1 - TAIL, color=plots.GREY, linewidth=0.8)
        plots.log_ticks(axes, [0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0])
    return figure


def many_figure(outcomes: Sequence[Outcome]) -> "plots.Figure":
    """Cumulative regret over many tasks."""
    charts = [
        replace(chart(o), title=o.panel.title.rsplit(", ", 1)[0], note=_runs(o))
        for o in of_part("many", outcomes)
    ]
    return plots.regret_figure(charts)


def _runs(o: Outcome) -> str:
    return f"{o.result.runs} runs of {o.panel.tasks} tasks"
