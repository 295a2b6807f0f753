"""Clicks of every kind: where a learned prior wins, where one for all tasks, where none."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import product

from adats.paper.experiments import clicks_report
from adats.paper.experiments.clicks_claims import AGENTS, CLAIMS, EVERYWHERE, FAR, GRID, NOTHING
from adats.paper.experiments.clicks_figures import ratios_figure
from adats.paper.experiments.panels import Outcome, Panel
from adats.paper.experiments.report_text import ReportParts
from adats.paper.experiments.spec import Drawings, PanelExperiment, Tables
from adats.simulation.problems import ClicksProblem

BASES, ARMS, ROUNDS = (0.005, 0.02, 0.2), (3, 10), (50, 500)
SPREADS, LEVELS = (0.05, 0.3, 1.0), (0.0, 0.5)
BETWEEN_ARMS, TASKS = 0.3, 200


def _cell(
    base: float, arms: int, rounds: int, spread: float, level: float, *, tasks: int = TASKS
) -> Panel:
    problem = partial(ClicksProblem, arms, base, BETWEEN_ARMS, spread, level)
    title = f"{100 * base:g} %, K = {arms}, {rounds} rounds, σ_0 = {spread:g}, level {level:g}"
    return Panel(title, problem, AGENTS, tasks, rounds, detail="task", part=GRID)


def _unlike(base: float, arms: int, rounds: int, *, tasks: int = TASKS) -> Panel:
    """Tasks that teach nothing about one another: arms are alike, and their spread is wide."""
    problem = partial(ClicksProblem, arms, base, arm_scale=0.0, task_scale=1.0)
    title = f"{100 * base:g} %, K = {arms}, {rounds} rounds, σ_0 = 1, arms alike"
    return Panel(title, problem, AGENTS, tasks, rounds, detail="task", part=NOTHING)


class ClicksExperiment(PanelExperiment):
    """A grid of cells, each of which is judged."""

    def figures(self) -> Drawings:
        return {
            "clicks": partial(ratios_figure, "default-ts", EVERYWHERE),
            "far": partial(ratios_figure, "default-far", FAR),
        }

    def tables(self) -> Tables:
        return {"records": clicks_report.run_records, "cells": clicks_report.cell_records}

    def report_parts(self, outcomes: Sequence[Outcome]) -> ReportParts:
        return clicks_report.report_parts(self.about, self.claims, outcomes)


_GRID = ClicksExperiment(
    name="clicks",
    title="Clicks: where a learned prior wins, where one for all tasks, and where none",
    about=(
        "Rewards are 0 or 1, with a click rate of 0.5, 2 or 20 % for a typical arm. In log-odds "
        "arms differ by 0.3 (standard deviation), every arm differs from task to task by σ_0, and "
        "in half of the cells all arms of a task move together by a level of spread 0.5. “AdaTS, "
        "told nothing” is `default_prior`, which has to learn the base rate and all spreads; "
        "“AdaTS” is the same model told its spreads. Two rivals learn no prior: “one TS for all "
        "tasks” pools all clicks, and “TS, each task alone” starts every task from a flat prior. "
        "The better rival is the one with the lower regret in the cell, which nobody knows "
        "beforehand. “Nothing in common” is where there is no prior to learn but the base rate: "
        "the arms are alike and σ_0 = 1. The paper has no such experiment: the claims below are "
        "our own questions."
    ),
    panels=(
        *(_cell(*values) for values in product(BASES, ARMS, ROUNDS, SPREADS, LEVELS)),
        *(_unlike(*values) for values in product(BASES, ARMS, ROUNDS)),
    ),
    claims=CLAIMS,
    needs_numba=True,
)
_FEW = replace(
    _GRID,
    title=f"{_GRID.title}; a quick look",
    about=f"{_GRID.about} This is a quick look, with few cells, tasks and runs.",
    panels=(
        *(
            _cell(base, 3, 50, spread, level, tasks=20)
            for base, spread, level in product(BASES[1:], SPREADS[::2], LEVELS)
        ),
        *(_unlike(base, 3, 50, tasks=20) for base in BASES[1:]),
    ),
    runs=10,
)
CLICKS_EXPERIMENT = replace(_GRID, quick=_FEW)
