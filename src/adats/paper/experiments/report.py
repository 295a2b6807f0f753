"""The report of an experiment as Markdown, and the figure of `unknown-spread`."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

import numpy as np

from adats import plots
from adats.paper.experiments.catalogue import EXPERIMENTS, Experiment
from adats.paper.experiments.measures import CLOSE, called, overall, ratio
from adats.paper.experiments.panels import Outcome

TIMING = "## Timing"  # heads the only part that differs between two runs of one seed

RULE = (
    "How claims are judged: a measure *holds* if its value lies in the range that the rule names, "
    "is *undecided* if it misses the range by at most two standard errors, and *does not hold* "
    "otherwise. A claim holds, or does not hold, if all its measures say so, and holds *partly* "
    "otherwise. The ranges are ours where the paper gives no numbers. Agents meet the same "
    "instances, so differences and ratios are of paired runs. After ± stands one standard error."
)


def report(name: str, outcomes: Sequence[Outcome], *, workers: int, engine: str) -> str:
    """Settings, regrets, claims and timing of one experiment."""
    experiment = EXPERIMENTS[name]
    first = outcomes[0].result
    settings = [
        f"{first.tasks} tasks, {first.rounds} rounds a task, {first.runs} runs, seed {first.seed}.",
        "Regret is expected regret, summed over tasks and averaged over runs; the standard error "
        "is the standard deviation of the runs over √runs, here and in the bands of the figure.",
    ]
    parts = [
        f"# {experiment.title}",
        experiment.about,
        " ".join(settings),
        f"![{experiment.title}]({name}.png)",
        "Files: `" + "`, `".join(file_names(name)) + "`.",
        "## Total regret",
        regrets(experiment, outcomes),
        "## Claims",
        RULE,
        summary(experiment, outcomes),
        *claims(experiment, outcomes),
        TIMING,
        timing(outcomes, workers=workers, engine=engine),
    ]
    return "\n\n".join(parts) + "\n"


def file_names(name: str) -> tuple[str, ...]:
    return f"{name}.png", f"{name}.svg", "records.parquet", "curves.parquet"


def overview(outcomes: Mapping[str, Sequence[Outcome]]) -> str:
    """The verdicts of several experiments, with links to their reports."""
    parts = ["# Reproduced experiments", RULE]
    for name, found in outcomes.items():
        experiment = EXPERIMENTS[name]
        parts += [f"## [{experiment.title}]({name}/report.md)", summary(experiment, found)]
    return "\n\n".join(parts) + "\n"


def summary(experiment: Experiment, outcomes: Sequence[Outcome]) -> str:
    rows = [
        (claim.text, f"**{overall(list(claim.measures(outcomes)))}**")
        for claim in experiment.claims
    ]
    return table(("claim", "verdict"), rows)


def regrets(experiment: Experiment, outcomes: Sequence[Outcome]) -> str:
    agents = list(dict.fromkeys(agent for panel in experiment.panels for agent in panel.agents))
    rows = []
    for o in outcomes:
        cells = [f"{o.result.mean(agent):.1f} ± {o.result.se(agent):.1f}" for agent in agents]
        rows.append((o.panel.label, *cells))
    return table(("panel", *(called(agent) for agent in agents)), rows)


def claims(experiment: Experiment, outcomes: Sequence[Outcome]) -> list[str]:
    parts = []
    for i, claim in enumerate(experiment.claims, 1):
        measures = list(claim.measures(outcomes))
        rows = [(m.where, m.what, m.figure, m.judgement) for m in measures]
        parts += [
            f"### {i}. {claim.text}",
            f"**{overall(measures)}**. Rule: {claim.rule}.",
            table(("panel", "what", "measured", "judgement"), rows),
        ]
    return parts


def timing(outcomes: Sequence[Outcome], *, workers: int, engine: str) -> str:
    rows = []
    for o in outcomes:
        agents = o.result.summary()["agents"].items()
        each = ", ".join(f"{called(name)} {a['ns_per_decision']:.0f}" for name, a in agents)
        rows.append((o.panel.label, f"{o.result.seconds:.2f}", each))
    total = sum(o.result.seconds for o in outcomes)
    text = (
        f"{total:.1f} seconds in all, {workers} worker{'s' if workers > 1 else ''}, engine "
        f"{engine}."
    )
    return text + "\n\n" + table(("panel", "seconds", "ns per decision"), rows)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def spread_figure(outcomes: Sequence[Outcome], charts: Sequence[plots.Chart]) -> Any:
    """A column a problem: what learning σ_0 costs, what a wrong one does, and regret over tasks.

    `charts` are the curves of the outcomes; those at the paper's σ_0 are shown.
    """
    groups = groupby(outcomes, key=lambda o: o.panel.title.split(", σ_0")[0])
    problems = {title: list(group) for title, group in groups}
    rows = [
        [_ratios(title, note, found, agents) for title, found in problems.items()]
        for note, agents in (
            (f"$σ_0$ learned; dashed: {CLOSE:g}", ("ada-grid",)),
            ("$σ_0$ learned or wrong; log scale", ("ada-grid", "ada-narrow", "ada-broad", "ts")),
        )
    ]
    paper = [c for o, c in zip(outcomes, charts, strict=True) if _spread(o) == 0.1]
    figure = plots.regret_figure([*rows[0], *rows[1], *paper], columns=len(problems))
    axes = iter(figure.axes)
    for row, log in zip(rows, (False, True), strict=True):
        drawn = [_as_ratios(next(axes), chart, log) for chart in row]
        low, high = zip(*(one.get_ylim() for one in drawn), strict=True)
        for one in drawn:
            one.set_ylim(min(low), max(high))
        drawn[0].set_ylabel("regret / that of AdaTS")
    return figure


def _spread(outcome: Outcome) -> float:
    return float(outcome.result.problem["task_scale"])


def _ratios(
    title: str, note: str, outcomes: Sequence[Outcome], agents: Sequence[str]
) -> plots.Chart:
    """Ratios to the regret of AdaTS that is told σ_0, over σ_0."""
    found = {a: [ratio(o.total(a), o.total("ada-ts")) for o in outcomes] for a in agents}
    curves = {agent: plots.Curve(*np.array(pairs).T) for agent, pairs in found.items()}
    return plots.Chart(title, note, np.array([_spread(o) for o in outcomes]), curves)


def _as_ratios(axes: Any, chart: plots.Chart, log: bool) -> Any:
    """The axes of a curve over tasks, turned into those of ratios over σ_0."""
    for line, curve in zip(list(axes.get_lines()), chart.curves.values(), strict=True):
        bars = {"fmt": "o", "markersize": 3.5, "capsize": 2.5, "color": line.get_color()}
        axes.errorbar(chart.x, curve.mean, curve.se, **bars)
    axes.axhline(1.0, color=plots.GREY, linewidth=0.8)
    axes.axhline(CLOSE, color=plots.GREY, linewidth=1.0, linestyle=(0, (4, 2)))
    axes.set_xscale("log")
    axes.set_xlim(chart.x[0] / 1.15, chart.x[-1] * 1.15)
    axes.set_xticks(chart.x, [f"{x:g}" for x in chart.x])
    axes.set_xticks([], minor=True)
    axes.set_xlabel("$σ_0$")
    axes.autoscale(axis="y")
    if log:
        axes.set_yscale("log")
        axes.set_yticks([1, CLOSE, 2, 4, 8], ["1", f"{CLOSE:g}", "2", "4", "8"])
        axes.set_yticks([], minor=True)
    return axes
