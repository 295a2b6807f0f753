"""What the reports of all experiments share, as Markdown."""

from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from typing import Any, NamedTuple

from adats.paper.experiments.claims import Judged
from adats.paper.experiments.measures import Measure
from adats.paper.experiments.panels import Outcome
from adats.simulation.learners import label_of

TIMING = "## Made with"  # heads the only part that differs between two runs of one seed

RULE = (
    "How claims are judged: a measure *holds* if a one-sided t-test rejects that its true value is "
    "outside the range that the rule names, *does not hold* if one rejects that it is inside, and "
    "is *undecided* otherwise: more runs would tell. A claim holds if all its measures do, and "
    "does not hold if one of them does not. The level is 5 % over all claims of a report: each is "
    "tested at 5 % over their number, and to fail a measure at that over the number of measures "
    "of its claim. The ranges are ours where the paper gives no numbers. Agents meet the same "
    "instances, so differences and ratios are of paired runs. After ± stands one standard error."
)


Record = Mapping[str, Any]  # command, seed, runs, workers, engine, seconds and versions
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
    judged: Sequence[Judged],
    files: Sequence[str],
    record: Record,
) -> str:
    """Settings, tables, claims, and what it was made with, of one experiment."""
    return _paragraphs(
        f"# {title}",
        *parts.introduction,
        "Files: `" + "`, `".join(files) + "`.",
        *parts.tables,
        "## Claims",
        RULE,
        verdicts(judged),
        *_measured(judged),
        TIMING,
        *parts.costs,
        _made(record),
        _timing(parts.timed),
    )


def report_data(name: str, title: str, judged: Sequence[Judged], record: Record) -> dict[str, Any]:
    """The same as plain JSON values: the claims, what was measured, and what it was made with."""

    def number(value: float) -> float | None:
        return value if isfinite(value) else None

    def measured(measure: Measure, verdict: str) -> dict[str, Any]:
        numbers = {key: number(getattr(measure, key)) for key in ("value", "se", "low", "high")}
        return {"where": measure.where, "what": measure.what, **numbers, "verdict": verdict}

    claims = [
        {
            "claim": found.claim.text,
            "rule": found.claim.rule,
            "verdict": found.verdict,
            "measures": [measured(*pair) for pair in zip(found.measures, found.each, strict=True)],
        }
        for found in judged
    ]
    return {"experiment": name, "title": title, "made": record, "claims": claims}


def overview(experiments: Sequence[tuple[str, str, str]]) -> str:
    """Name, title and verdicts of several experiments, with links to their reports."""
    parts = ["# Reproduced experiments", RULE]
    for name, title, found in experiments:
        parts += [f"## [{title}]({name}/report.md)", found]
    return _paragraphs(*parts)


def _paragraphs(*parts: str) -> str:
    return "\n\n".join(parts) + "\n"


def verdicts(judged: Sequence[Judged]) -> str:
    """The verdict on each claim."""
    return table(("claim", "verdict"), [(j.claim.text, f"**{j.verdict}**") for j in judged])


def total_regrets(outcomes: Sequence[Outcome]) -> str:
    agents = list(dict.fromkeys(agent for o in outcomes for agent in o.panel.agents))
    return by_panel(outcomes, agents, total_regret)


def total_regret(o: Outcome, agent: str) -> str:
    return f"{o.result.mean(agent):.1f} ± {o.result.se(agent):.1f}"


def by_panel(outcomes: Sequence[Outcome], agents: Sequence[str], cell: Cell) -> str:
    """A row a panel and a column an agent."""
    rows = [(o.panel.label, *(cell(o, agent) for agent in agents)) for o in outcomes]
    return table(("panel", *(label_of(agent) for agent in agents)), rows)


def _measured(judged: Sequence[Judged]) -> list[str]:
    parts = []
    for i, found in enumerate(judged, 1):
        pairs = zip(found.measures, found.each, strict=True)
        rows = [(m.where, m.what, m.figure, verdict) for m, verdict in pairs]
        parts += [
            f"### {i}. {found.claim.text}",
            f"**{found.verdict}**. Rule: {found.claim.rule}.",
            table(("panel", "what", "measured", "verdict"), rows),
        ]
    return parts


def _made(record: Record) -> str:
    """Versions, command, seed and wall time."""
    rows = [
        (key, str(value)) for key, value in record.items() if key not in ("versions", "seconds")
    ]
    rows = [("wall time", f"{record['seconds']:.1f} s"), *rows, *record["versions"].items()]
    return table(("made with", ""), [(key, f"`{value}`") for key, value in rows])


def _timing(outcomes: Sequence[Outcome]) -> str:
    rows = []
    for o in outcomes:
        agents = o.result.summary()["agents"].items()
        each = ", ".join(f"{label_of(name)} {a['ns_per_decision']:.0f}" for name, a in agents)
        rows.append((o.panel.label, f"{o.result.seconds:.2f}", each))
    return table(("simulation", "seconds", "ns per decision"), rows)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
