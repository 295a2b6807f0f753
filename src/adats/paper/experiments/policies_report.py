"""The report on index policies, as Markdown."""

from collections.abc import Sequence

import numpy as np

from adats.paper.experiments.measures import ratio, resampled, standard_error, tail, z_score
from adats.paper.experiments.panels import Outcome, of_part
from adats.paper.experiments.policies_claims import DELAY, INDEX_AGENTS, SINCE, learned
from adats.paper.experiments.report_text import Cell, ReportParts, by_panel, table, total_regret
from adats.simulation.learners import label_of

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
    f"A reward is known {DELAY} rounds after its pull, and all of them at the end of the task. "
    "Pending pulls, asked for and not yet told, shrink the standard deviations and leave the "
    "means; “pending not counted” is without that."
)
CROSSED = "In brackets the task from which on an agent's regret so far is below that of OracleTS."


def report_parts(about: str, outcomes: Sequence[Outcome]) -> ReportParts:
    """Settings and tables; the claims are about all outcomes."""
    table, late, many = (of_part(part, outcomes) for part in ("table", "late", "many"))
    first = table[0].result
    settings = (
        f"{first.tasks} tasks, {first.rounds} rounds a task, {first.runs} runs, seed {first.seed}; "
        f"{late[0].result.runs} runs where rewards come late, and of {many[0].result.tasks} tasks. "
        "Regret is expected regret; after ± stands one standard error."
    )
    tables = [
        f"## Total regret over {first.tasks} tasks",
        _by_panel(table, total_regret),
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
        _by_agent(late, total_regret),
        f"## Total regret over {many[0].result.tasks} tasks",
        CROSSED,
        "![Cumulative regret over many tasks](many.png)",
        _by_panel(many, _crossed),
    ]
    image = "![Regret of each task over its number](policies.png)"
    return ReportParts([about, settings, image], tables, outcomes, outcomes, [_cost(table)])


def _by_panel(outcomes: Sequence[Outcome], cell: Cell) -> str:
    return by_panel(outcomes, outcomes[0].result.agents, cell)


def _by_agent(outcomes: Sequence[Outcome], cell: Cell) -> str:
    agents = outcomes[0].result.agents
    rows = [(label_of(agent), *(cell(o, agent) for o in outcomes)) for agent in agents]
    return table(("agent", *(o.panel.label for o in outcomes)), rows)


def _share(o: Outcome, agent: str) -> str:
    value, se = ratio(o.total(agent), o.total("ada-ts"))
    return "1" if agent == "ada-ts" else f"{value:.3f} ± {se:.3f}"


def _tail(o: Outcome, agent: str) -> str:
    total = o.total(agent)
    found = [tail(total[some]) for some in resampled(total.size)]
    return f"{tail(total):.0f} ± {np.std(found, ddof=1):.0f}"


def _learned(o: Outcome, agent: str) -> str:
    mean = f"{learned(o, agent).mean():.2f} ± {standard_error(learned(o, agent)):.2f}"
    if agent == "oracle-ts":
        return mean
    return f"{mean} ({z_score(learned(o, 'oracle-ts') - learned(o, agent)):+.1f})"


def _crossed(o: Outcome, agent: str) -> str:
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
        found += [
            (spent[a] / spent["ada-ts"], f"{label_of(a)}, {o.panel.label}") for a in INDEX_AGENTS
        ]
    highest, where = max(found)
    return (
        f"A decision of the dearest index takes {highest:.2f} times as long as one of Thompson "
        f"sampling with the same prior ({where})."
    )
