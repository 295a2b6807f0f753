"""The report on the grid of click problems, as Markdown, and its tables."""

from collections.abc import Sequence

import numpy as np

from adats.paper.experiments.claims import Claim, judge
from adats.paper.experiments.clicks_claims import (
    AGENTS,
    GRID,
    NOTHING,
    better_rival,
    ratio_to_better,
    setting,
)
from adats.paper.experiments.measures import Measure, ratio
from adats.paper.experiments.panels import Outcome, of_part
from adats.paper.experiments.records import Columns
from adats.paper.experiments.report_text import ReportParts, table, total_regrets

SETTINGS = ("base", "arms", "rounds", "task_scale", "level_scale", "arm_scale")
COUNTED = (
    "How many cells say what of each claim, and the one that is furthest off, or nearest to it:"
)
CELLS = (
    "Columns of `records.parquet` are the settings of a cell, the run, the agent and its regret "
    "over all tasks; `cells.parquet` has a row a cell, with the ratios and their standard errors."
)


def report_parts(about: str, claims: Sequence[Claim], outcomes: Sequence[Outcome]) -> ReportParts:
    """Settings, both figures, the claims counted over cells, and all regrets."""
    first = outcomes[0].result
    settings = (
        f"{first.tasks} tasks, {first.runs} runs a cell, seed {first.seed}. Regret is expected "
        "regret, summed over tasks and averaged over runs; the standard error is the standard "
        "deviation of the runs over √runs."
    )
    images = [
        "![Where sharing wins, with Thompson sampling](clicks.png)",
        "![Where sharing wins, with the far-sighted index](far.png)",
    ]
    tables = ["## Claims, counted over cells", COUNTED, _counted(claims, outcomes)]
    tables += ["## Total regret", total_regrets(of_part(GRID, outcomes))]
    tables += ["Nothing in common:", total_regrets(of_part(NOTHING, outcomes))]
    return ReportParts([about, settings, *images, CELLS], tables, outcomes, outcomes)


def _counted(claims: Sequence[Claim], outcomes: Sequence[Outcome]) -> str:
    rows = []
    for judged in judge(claims, outcomes):
        counts = [str(judged.each.count(word)) for word in ("holds", "undecided", "does not hold")]
        worst = max(judged.measures, key=_beyond)
        rows.append((judged.claim.text, *counts, f"{worst.figure} ({worst.where})"))
    return table(("claim", "holds", "undecided", "does not hold", "worst"), rows)


def _beyond(measure: Measure) -> float:
    """How far a measure is beyond its range; negative inside."""
    return max(measure.low - measure.value, measure.value - measure.high)


def run_records(outcomes: Sequence[Outcome]) -> Columns:
    """The regret over all tasks of every cell, run and agent."""
    parts = []
    for o in outcomes:
        size = len(o.result.agents) * o.result.runs
        columns: Columns = {"panel": np.repeat([o.panel.label], size)}
        columns |= {name: np.repeat([setting(o, name)], size) for name in SETTINGS}
        columns["run"] = np.tile(np.arange(o.result.runs), len(o.result.agents))
        columns["agent"] = np.repeat(o.result.agents, o.result.runs)
        columns["regret"] = np.concatenate([o.total(agent) for agent in o.result.agents])
        parts.append(columns)
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def cell_records(outcomes: Sequence[Outcome]) -> Columns:
    """A row a cell: mean regrets, the better rival, and ratios with their standard errors."""
    columns: Columns = {"panel": np.array([o.panel.label for o in outcomes])}
    columns |= {name: np.array([setting(o, name) for o in outcomes]) for name in SETTINGS}
    columns["better"] = np.array([better_rival(o) for o in outcomes])
    columns |= {agent: np.array([o.result.mean(agent) for o in outcomes]) for agent in AGENTS}
    ratios = {
        "default-ts / ada-ts": [ratio(o.total("default-ts"), o.total("ada-ts")) for o in outcomes],
        "default-ts / better": [ratio_to_better(o, "default-ts") for o in outcomes],
        "default-far / better": [ratio_to_better(o, "default-far") for o in outcomes],
        "default-ts / flat-ts": [
            ratio(o.total("default-ts"), o.total("flat-ts")) for o in outcomes
        ],
    }
    for name, pairs in ratios.items():
        columns[name], columns[f"{name}, se"] = np.array(pairs).T
    return columns
