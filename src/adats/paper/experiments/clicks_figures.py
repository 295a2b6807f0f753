"""The figures of the grid of click problems."""

from collections.abc import Sequence
from typing import Any

from adats import plots
from adats.paper.experiments.clicks_claims import (
    GRID,
    NOTHING,
    better_rival,
    ratio_to_better,
    setting,
)
from adats.paper.experiments.panels import Outcome, of_part
from adats.plots import heat
from adats.simulation.learners import label_of

WORDS = {"pooled-ts": "pooled", "flat-ts": "alone"}  # of rivals


def _values(outcomes: Sequence[Outcome], name: str) -> list[Any]:
    """All values of a setting, in order."""
    return sorted({setting(o, name) for o in outcomes})


def ratios_figure(agent: str, high: float, outcomes: Sequence[Outcome]) -> "plots.Figure":
    """An agent's regret over that of the better rival in every cell; framed above `high`."""
    bases, arms = _values(outcomes, "base"), _values(outcomes, "arms")

    def panel(title: str, over: str, names: Sequence[str], some: Sequence[Outcome]) -> Any:
        found = {(setting(o, "base"), setting(o, "arms"), setting(o, over)): o for o in some}
        columns = _values(some, over)
        cells = [
            [[_cell(found[base, k, x], agent, high) for x in columns] for k in arms]
            for base in bases
        ]
        return heat.HeatPanel(title, names, cells)

    grid, unlike = of_part(GRID, outcomes), of_part(NOTHING, outcomes)
    spreads = [f"{x:g}" for x in _values(grid, "task_scale")]
    groups = []
    for rounds in _values(grid, "rounds"):
        panels = []
        for level in _values(grid, "level_scale"):
            where = (rounds, level)
            some = [o for o in grid if (o.result.rounds, setting(o, "level_scale")) == where]
            title = f"level {level:g}" if level else "no level"
            panels.append(panel(title, "task_scale", spreads, some))
        groups.append(heat.HeatGroup(f"{rounds} rounds a task", "spread of tasks $σ_0$", panels))
    alike = panel(
        "arms alike, $σ_0$ = 1", "rounds", [str(x) for x in _values(unlike, "rounds")], unlike
    )
    groups.append(heat.HeatGroup("nothing in common", "rounds a task", [alike]))
    first = outcomes[0].result
    return heat.heat_figure(
        heat.HeatMap(
            f"{label_of(agent)}: regret / regret of the better rival",
            "base rate",
            [f"{100 * base:g} %" for base in bases],
            [f"K = {k}" for k in arms],
            groups,
            ("sharing wins", "the rival wins"),
            [
                "The word names the better rival: pooled, one TS for all tasks",
                "(with a corner), or alone, one for each task.",
                f"Framed: above {high:g}. {first.tasks} tasks, {first.runs} runs a cell.",
            ],
        )
    )


def _cell(o: Outcome, agent: str, high: float) -> heat.HeatCell:
    value, _ = ratio_to_better(o, agent)
    rival = better_rival(o)
    return heat.HeatCell(value, WORDS[rival], rival == "pooled-ts", value > high)
