"""The report of an experiment, as Markdown."""

from collections.abc import Mapping, Sequence

from adats.experiments.catalogue import EXPERIMENTS, Experiment
from adats.experiments.measures import overall
from adats.experiments.panels import Outcome
from adats.plots import NAMES

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
        f"![Cumulative regret over tasks]({name}.png)",
        "Files: `" + "`, `".join(file_names(name)) + "`.",
        "## Total regret",
        _regrets(experiment, outcomes),
        "## Claims",
        RULE,
        summary(experiment, outcomes),
        *_claims(experiment, outcomes),
        TIMING,
        _timing(outcomes, workers=workers, engine=engine),
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
    return _table(("claim", "verdict"), rows)


def _regrets(experiment: Experiment, outcomes: Sequence[Outcome]) -> str:
    agents = list(dict.fromkeys(agent for panel in experiment.panels for agent in panel.agents))
    rows = []
    for o in outcomes:
        cells = [f"{o.result.mean(agent):.1f} ± {o.result.se(agent):.1f}" for agent in agents]
        rows.append((o.panel.label, *cells))
    return _table(("panel", *(NAMES[agent] for agent in agents)), rows)


def _claims(experiment: Experiment, outcomes: Sequence[Outcome]) -> list[str]:
    parts = []
    for i, claim in enumerate(experiment.claims, 1):
        measures = list(claim.measures(outcomes))
        rows = [(m.where, m.what, m.figure, m.judgement) for m in measures]
        parts += [
            f"### {i}. {claim.text}",
            f"**{overall(measures)}**. Rule: {claim.rule}.",
            _table(("panel", "what", "measured", "judgement"), rows),
        ]
    return parts


def _timing(outcomes: Sequence[Outcome], *, workers: int, engine: str) -> str:
    rows = []
    for o in outcomes:
        agents = o.result.summary()["agents"].items()
        each = ", ".join(f"{NAMES[name]} {a['ns_per_decision']:.0f}" for name, a in agents)
        rows.append((o.panel.label, f"{o.result.seconds:.2f}", each))
    total = sum(o.result.seconds for o in outcomes)
    text = (
        f"{total:.1f} seconds in all, {workers} worker{'s' if workers > 1 else ''}, engine "
        f"{engine}."
    )
    return text + "\n\n" + _table(("panel", "seconds", "ns per decision"), rows)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
