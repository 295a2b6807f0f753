"""A figure straight from the result of a simulation."""

import numpy as np

from adats import plots
from adats.simulation.results import Result


def result_figure(result: Result, *, title: str | None = None) -> "plots.Figure":
    """Cumulative regret of every agent over tasks, with standard errors."""
    total = np.concatenate([np.zeros((len(result.agents), result.runs, 1)), result.per_task()], 2)
    total = total.cumsum(axis=2)
    error = total.std(axis=1, ddof=1 if result.runs > 1 else 0) / np.sqrt(result.runs)
    pairs = zip(result.agents, total.mean(axis=1), error, strict=True)
    curves = {agent: plots.Curve(mean, se) for agent, mean, se in pairs}
    note = f"{result.runs} runs of {result.rounds} rounds a task"
    name = str(result.problem["name"]) if title is None else title
    chart = plots.Chart(name, note, np.arange(result.tasks + 1.0), curves)
    return plots.regret_figure([chart])
