"""The report on index policies, as Markdown, and its figures."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from adats import plots
from adats.paper.experiments.catalogue import SHARED, Experiment
from adats.paper.experiments.measures import called, ratio, standard_error, z_score
from adats.paper.experiments.panels import Outcome
from adats.paper.experiments.policies_claims import (
    CLAIMS,
    INDICES,
    LATE,
    SINCE,
    TAIL,
    PolicyOutcome,
    of_part,
    resampled,
    tail,
)
from adats.paper.experiments.report import RULE, TIMING, claims, summary, table, timing

FILES = (
    *(f"{name}.{kind}" for name in ("policies", "tails", "many") for kind in ("png", "svg")),
    "records.parquet",
)
TICKS = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0)

TITLE = "Index policies on a learned prior"
ABOUT = (
    f"{SHARED} All agents but OracleTS learn the prior from task to task as AdaTS does. They "
    "differ in how they explore within a task. Bayes-UCB takes the quantile at 1 − 1/(t + 1); "
    "“finite horizon” approximates the finite-horizon Gittins index; “far-sighted” is that index "
    "with a horizon that reaches into later tasks, as far as they have something to learn from "
    "this one, and it is told how many rounds they have; “greedy” takes the highest mean. Nothing "
    "was tuned on these settings or seeds, and no arm is pulled by force."
)
TAILS = (
    "The regret over all tasks that one run in a hundred exceeds, ± one standard error by the "
    "bootstrap. An index that explores too little has a low mean and a high tail: some runs settle "
    "on a wrong arm. The figure leaves greedy out; its grey line is at one in a hundred."
)
TASKS = (
    f"Mean regret of a task from task {SINCE + 1} on, when the prior has been learned, and in "
    "brackets z of the paired difference to OracleTS: positive where the agent loses less."
)
DELAYED = (
    f"A reward is known {LATE} rounds after its pull, and all of them at the end of the task. "
    "Pending pulls, asked for and not yet told, shrink the standard deviations and leave the "
    "means; “pending not counted” is without that."
)
CROSSED = "In brackets the task from which on an agent's regret so far is below that of OracleTS."


def tasks_figure(outcomes: Sequence[Outcome]) -> Any:
    """Regret of each task over its number, on a logarithmic axis."""
    charts = []
    for o in of_part("table", outcomes):
        curves = {
            agent: plots.Curve(
                regret.mean(axis=0), np.std(regret, axis=0, ddof=1) / np.sqrt(o.result.runs)
            )
            for agent, regret in zip(o.result.agents, o.result.regret, strict=True)
            if agent != "ada-greedy"
        }
        x = np.arange(1.0, o.panel.tasks + 1)
        charts.append(plots.Chart(o.panel.title, _runs(o), x, curves))
    figure = _drawn(charts, "regret of the task")
    for axes, chart in zip(figure.axes, charts, strict=True):
        means = np.concatenate([curve.mean for curve in chart.curves.values()])
        low, high = max(means.min(), means.max() / 500), means.max()
        axes.set_xlim(1, chart.x[-1])
        axes.set_ylim(low / 1.3, high * 1.2)
        _log_ticks(axes, [tick for tick in TICKS if low / 1.3 <= tick <= high * 1.2])
    return figure


def tails_figure(outcomes: Sequence[Outcome]) -> Any:
    """The share of runs with more than x regret in all."""
    charts = []
    for o in of_part("table", outcomes):
        totals = {agent: o.total(agent) for agent in o.result.agents if agent != "ada-greedy"}
        x = np.linspace(0.0, 1.15 * max(tail(total) for total in totals.values()), 300)
        shares = {agent: (total[:, None] > x).mean(axis=0) for agent, total in totals.items()}
        curves = {
            agent: plots.Curve(np.where(share > 0, share, np.nan), np.zeros_like(x))
            for agent, share in shares.items()
        }
        charts.append(plots.Chart(o.panel.title, _runs(o), x, curves))
    figure = _drawn(charts, "share of runs above")
    for axes in figure.axes:
        axes.set_ylim(0.002, 1)
        axes.axhline(1 - TAIL, color=plots.GREY, linewidth=0.8)
        axes.set_xlabel("total regret")
        _log_ticks(axes, [0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0])
    return figure


def many_figure(outcomes: Sequence[Outcome]) -> Any:
    """Cumulative regret over many tasks."""
    charts = []
    for o in of_part("many", outcomes):
        starts = np.zeros((len(o.result.agents), 1))
        means, errors = (np.hstack([starts, part[..., 0]]) for part in (o.mean, o.se))
        lines = zip(o.result.agents, means, errors, strict=True)
        curves = {agent: plots.Curve(mean, se) for agent, mean, se in lines}
        x = np.arange(o.panel.tasks + 1.0)
        charts.append(plots.Chart(o.panel.title.rsplit(", ", 1)[0], _runs(o), x, curves))
    return _drawn(charts, "cumulative regret")


def _runs(o: Outcome) -> str:
    return f"{o.result.runs} runs of {o.panel.tasks} tasks"


def _drawn(charts: Sequence[plots.Chart], label: str) -> Any:
    """The charts, with the legend where no panel is."""
    figure = plots.regret_figure(charts)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    for legend in list(figure.legends):
        legend.remove()
    figure.legend(
        handles, labels, loc="lower right", bbox_to_anchor=(0.99, 0.12), frameon=False, fontsize=11
    )
    for axes in figure.axes:
        if axes.get_ylabel():
            axes.set_ylabel(label)
    return figure


def _log_ticks(axes: Any, ticks: Sequence[float]) -> None:
    axes.set_yscale("log")
    axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.set_yticks([], minor=True)


def policies_report(outcomes: Sequence[Outcome], *, workers: int, engine: str) -> str:
    """Settings, tables, claims and timing."""
    table, late, many = (of_part(part, outcomes) for part in ("table", "late", "many"))
    first = table[0].result
    experiment = Experiment(TITLE, ABOUT, tuple(o.panel for o in outcomes), CLAIMS)
    settings = (
        f"{first.tasks} tasks, {first.rounds} rounds a task, {first.runs} runs, seed {first.seed}; "
        f"{late[0].result.runs} runs where rewards come late, and of {many[0].result.tasks} tasks. "
        "Regret is expected regret; after ± stands one standard error."
    )
    parts = [
        f"# {TITLE}",
        ABOUT,
        settings,
        "![Regret of each task over its number](policies.png)",
        "Files: `" + "`, `".join(FILES) + "`.",
        f"## Total regret over {first.tasks} tasks",
        _by_panel(table, _total),
        "As a share of AdaTS's, with the standard error of the paired runs:",
        _by_panel(table, _share),
        "## Tails",
        TAILS,
        "![The share of runs with more regret](tails.png)",
        _by_panel(table, _tail),
        f"## From task {SINCE + 1} on",
        TASKS,
        _by_panel(table, _learned),
        "## Rewards that come late",
        DELAYED,
        _by_agent(late, _total),
        f"## Total regret over {many[0].result.tasks} tasks",
        CROSSED,
        "![Cumulative regret over many tasks](many.png)",
        _by_panel(many, _crossed),
        "## Claims",
        RULE,
        summary(experiment, outcomes),
        *claims(experiment, outcomes),
        TIMING,
        _cost(table),
        timing(outcomes, workers=workers, engine=engine),
    ]
    return "\n\n".join(parts) + "\n"


Cell = Callable[[PolicyOutcome, str], str]


def _by_panel(outcomes: Sequence[PolicyOutcome], cell: Cell) -> str:
    agents = outcomes[0].result.agents
    rows = [(o.panel.label, *(cell(o, agent) for agent in agents)) for o in outcomes]
    return table(("panel", *(called(agent) for agent in agents)), rows)


def _by_agent(outcomes: Sequence[PolicyOutcome], cell: Cell) -> str:
    agents = outcomes[0].result.agents
    rows = [(called(agent), *(cell(o, agent) for o in outcomes)) for agent in agents]
    return table(("agent", *(o.panel.label for o in outcomes)), rows)


def _total(o: PolicyOutcome, agent: str) -> str:
    return f"{o.result.mean(agent):.1f} ± {o.result.se(agent):.1f}"


def _share(o: PolicyOutcome, agent: str) -> str:
    value, se = ratio(o.total(agent), o.total("ada-ts"))
    return "1" if agent == "ada-ts" else f"{value:.3f} ± {se:.3f}"


def _tail(o: PolicyOutcome, agent: str) -> str:
    total = o.total(agent)
    found = [tail(total[some]) for some in resampled(total.size)]
    return f"{tail(total):.0f} ± {np.std(found, ddof=1):.0f}"


def _learned(o: PolicyOutcome, agent: str) -> str:
    mean = f"{o.learned(agent).mean():.2f} ± {standard_error(o.learned(agent)):.2f}"
    if agent == "oracle-ts":
        return mean
    return f"{mean} ({z_score(o.learned('oracle-ts') - o.learned(agent)):+.1f})"


def _crossed(o: PolicyOutcome, agent: str) -> str:
    text = f"{o.result.mean(agent):.0f} ± {o.result.se(agent):.0f}"
    return text if agent == "oracle-ts" else f"{text} ({crossing(o, agent) or 'never'})"


def crossing(o: Outcome, agent: str) -> int | None:
    """The task from which on the mean regret so far is below that of OracleTS."""
    i, j = (o.result.agents.index(name) for name in (agent, "oracle-ts"))
    not_below = np.flatnonzero(o.mean[i, :, -1] >= o.mean[j, :, -1])
    first = int(not_below[-1]) + 2 if not_below.size else 1
    return first if first <= o.panel.tasks else None


def _cost(outcomes: Sequence[Outcome]) -> str:
    """How the time of a decision compares with that of Thompson sampling."""
    found = []
    for o in outcomes:
        spent = dict(zip(o.result.agents, o.result.agent_seconds, strict=True))
        found += [(spent[a] / spent["ada-ts"], f"{called(a)}, {o.panel.label}") for a in INDICES]
    highest, where = max(found)
    verdict = "holds" if highest <= 1 else "does not hold"
    return (
        "Claim: an index costs no more a decision than Thompson sampling with the same prior. "
        f"**{verdict}**: the dearest takes {highest:.2f} times as long ({where})."
    )
