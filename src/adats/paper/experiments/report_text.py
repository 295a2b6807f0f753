"""What the reports of all experiments share, as Markdown."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from adats.paper.experiments.claims import Claim
from adats.paper.experiments.measures import overall
from adats.paper.experiments.panels import Outcome
from adats.simulation.learners import label_of

TIMING = "## Timing"  # heads the only part that differs between two runs of one seed

RULE = (
    "How claims are judged: a measure *holds* if its value lies in the range that the rule names, "
    "is *undecided* if it misses the range by at most two standard errors, and *does not hold* "
    "otherwise. A claim holds, or does not hold, if all its measures say so, and holds *partly* "
    "otherwise. The ranges are ours where the paper gives no numbers. Agents meet the same "
    "instances, so differences and ratios are of paired runs. After ± stands one standard error."
)


Cell = Callable[[Outcome, str], str]  # what a table says of an agent


class ReportParts(NamedTuple):
    """What the report of one experiment has of its own."""

    introduction: Sequence[str]
    tables: Sequence[str]
    judged: Sequence[Outcome]  # what its claims are about
    timed: Sequence[Outcome]
    costs: Sequence[str] = ()  # said of the time, which differs between two runs of one seed


def report(
    title: str,
    parts: ReportParts,
    claims: Sequence[Claim],
    files: Sequence[str],
    *,
    workers: int,
    engine: str,
) -> str:
    """Settings, tables, claims and timing of one experiment."""
    return _paragraphs(
        f"# {title}",
        *parts.introduction,
        "Files: `" + "`, `".join(files) + "`.",
        *parts.tables,
        "## Claims",
        RULE,
        verdicts(claims, parts.judged),
        *_measured(claims, parts.judged),
        TIMING,
        *parts.costs,
        _timing(parts.timed, workers=workers, engine=engine),
    )


def overview(experiments: Sequence[tuple[str, str, str]]) -> str:
    """Name, title and verdicts of several experiments, with links to their reports."""
    parts = ["# Reproduced experiments", RULE]
    for name, title, found in experiments:
        parts += [f"## [{title}]({name}/report.md)", found]
    return _paragraphs(*parts)


def _paragraphs(*parts: str) -> str:
    return "\n\n".join(parts) + "\n"


def verdicts(claims: Sequence[Claim], outcomes: Sequence[Outcome]) -> str:
    """The verdict on each claim."""
    rows = [(claim.text, f"**{overall(list(claim.measures(outcomes)))}**") for claim in claims]
    return table(("claim", "verdict"), rows)


def total_regrets(outcomes: Sequence[Outcome]) -> str:
    agents = list(dict.fromkeys(agent for o in outcomes for agent in o.panel.agents))
    return by_panel(outcomes, agents, total_regret)


def total_regret(o: Outcome, agent: str) -> str:
    return f"{o.result.mean(agent):.1f} ± {o.result.se(agent):.1f}"


def by_panel(outcomes: Sequence[Outcome], agents: Sequence[str], cell: Cell) -> str:
    """A row a panel and a column an agent."""
    rows = [(o.panel.label, *(cell(o, agent) for agent in agents)) for o in outcomes]
    return table(("panel", *(label_of(agent) for agent in agents)), rows)


def _measured(claims: Sequence[Claim], outcomes: Sequence[Outcome]) -> list[str]:
    parts = []
    for i, claim in enumerate(claims, 1):
        measures = list(claim.measures(outcomes))
        rows = [(m.where, m.what, m.figure, m.judgement) for m in measures]
        parts += [
            f"### {i}. {claim.text}",
            f"**{overall(measures)}**. Rule: {claim.rule}.",
            table(("panel", "what", "measured", "judgement"), rows),
        ]
    return parts


def _timing(outcomes: Sequence[Outcome], *, workers: int, engine: str) -> str:
    rows = []
    for o in outcomes:
        agents = o.result.summary()["agents"].items()
        each = ", ".join(f"{label_of(name)} {a['ns_per_decision']:.0f}" for name, a in agents)
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
