"""What the paper's text says of its figures, and our own questions, each with the rule to judge it.

The paper gives no limits for words such as comparable, major and about: those here are ours.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from adats.paper.experiments.measures import (
    CLOSE,
    LEVEL,
    MAJOR,
    STEADY,
    Measure,
    Measures,
    Verdict,
    all_of,
    comparable,
    less_by,
    lower,
    lowest,
    steady,
    times,
    widened,
)
from adats.paper.experiments.panels import Outcome


@dataclass(frozen=True)
class Claim:
    """A sentence to check, the rule, and what to measure for it."""

    text: str
    rule: str
    measures: Measures


@dataclass(frozen=True)
class Judged:
    """A claim with what was measured for it, and the verdict on each measure."""

    claim: Claim
    measures: tuple[Measure, ...]
    each: tuple[Verdict, ...]

    @property
    def verdict(self) -> Verdict:
        """A claim holds if all its measures do, and does not if one of them does not."""
        if "does not hold" in self.each:
            return "does not hold"
        return "holds" if set(self.each) == {"holds"} else "undecided"


def judge(claims: Sequence[Claim], outcomes: Sequence[Outcome]) -> list[Judged]:
    """All claims of a report together: no verdict is wrong with a chance of 1 - `LEVEL`."""
    found = []
    for claim in claims:
        measures, level = tuple(claim.measures(outcomes)), LEVEL / len(claims)
        each = tuple(measure.verdict(level, len(measures)) for measure in measures)
        found.append(Judged(claim, measures, each))
    return found


BELOW = "the mean difference of the paired runs is above 0"
COMPARABLE = (
    f"the ratio of regrets is at most {MAJOR}, over all tasks and over the second half of them, "
    "when the prior has been learned"
)
UNCHANGED = (
    f"over all tasks a task's regret changes by at most {100 * STEADY:.0f} %, by a line, "
    "on average over the panels"
)

OUTPERFORMS_TS = Claim("“AdaTS outperforms TS”", BELOW, lower("ada-ts", "ts"))
OUTPERFORMS_META = Claim("“AdaTS outperforms MetaTS again”", BELOW, lower("ada-ts", "meta-ts"))
COMPARABLE_TO_ORACLE = Claim(
    "AdaTS “is comparable to OracleTS, which knows μ_*”",
    COMPARABLE,
    comparable("ada-ts", "oracle-ts"),
)
THIRTY_PERCENT = Claim(
    "K = 2, σ_q = 0.5: its regret “is about 30 % lower than that of MetaTS”",
    "lower by 20 to 40 %",
    less_by("ada-ts", "meta-ts", low=0.2, high=0.4, name="gaussian", arms=2, meta_scale=0.5),
)
WIDER = Claim(
    "σ_q = 1: MetaTS has “a major increase in regret, while AdaTS performs comparably to OracleTS”",
    f"the regret of MetaTS is at least {MAJOR} times that at σ_q = 0.5, and that of AdaTS at most "
    f"{MAJOR} times that of OracleTS",
    all_of(
        widened("meta-ts", before=0.5, after=1.0),
        comparable("ada-ts", "oracle-ts", late=False, name="gaussian", meta_scale=1.0),
    ),
)
THREE_TIMES = Claim(
    "linear, σ_q = 1: AdaTS “outperforms MetaTS again and has more than three times lower regret”",
    "the regret of MetaTS is at least 3 times that of AdaTS",
    times("meta-ts", "ada-ts", low=3.0, name="linear", meta_scale=1.0),
)
LINEAR_IN_TASKS = Claim(
    "the regret of OracleTS and TS “is obviously linear in s”",
    UNCHANGED,
    steady("oracle-ts", "ts"),
)
MINIMUM = Claim(
    "“no algorithm can outperform OracleTS”",
    f"against every other agent, {BELOW}",
    lowest("oracle-ts"),
)
ROBUST = Claim(
    "a meta-prior three times too wide or too narrow “has no major impact on the regret of AdaTS”",
    f"the ratio to the regret of AdaTS is from 1/{MAJOR} to {MAJOR}",
    all_of(
        *(times(agent, "ada-ts", low=1 / MAJOR, high=MAJOR) for agent in ("ada-ts+", "ada-ts-"))
    ),
)

OWN = (
    Claim("AdaTS has lower regret than TS", BELOW, lower("ada-ts", "ts")),
    Claim("AdaTS has lower regret than MetaTS", BELOW, lower("ada-ts", "meta-ts")),
    Claim("AdaTS is comparable to OracleTS", COMPARABLE, comparable("ada-ts", "oracle-ts")),
    Claim("OracleTS and TS lose as much in every task", UNCHANGED, steady("oracle-ts", "ts")),
)

UNKNOWN = (
    Claim(
        f"AdaTS that learns σ_0 has at most {CLOSE} times the regret of AdaTS that is told it",
        f"the ratio of regrets is at most {CLOSE}",
        times("ada-grid", "ada-ts", high=CLOSE),
    ),
    Claim(
        "AdaTS that learns σ_0 has lower regret than TS that is told it",
        BELOW,
        lower("ada-grid", "ts"),
    ),
    Claim(
        "A wrong σ_0 costs more than learning it: 0.05 σ where it is σ, and the other way round",
        f"the regret with the wrong value is at least {MAJOR} times that of learning",
        all_of(
            times("ada-narrow", "ada-grid", low=MAJOR, task_scale=1.0),
            times("ada-broad", "ada-grid", low=MAJOR, task_scale=0.05),
        ),
    ),
)

SYNTHETIC = (
    OUTPERFORMS_TS,
    COMPARABLE_TO_ORACLE,
    THIRTY_PERCENT,
    WIDER,
    THREE_TIMES,
    LINEAR_IN_TASKS,
    MINIMUM,
)
GAUSSIAN = (*SYNTHETIC[:4], *SYNTHETIC[5:], ROBUST)
LINEAR = (
    OUTPERFORMS_TS,
    COMPARABLE_TO_ORACLE,
    OUTPERFORMS_META,
    THREE_TIMES,
    LINEAR_IN_TASKS,
    MINIMUM,
    ROBUST,
)
