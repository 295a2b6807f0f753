"""K' of K arms differ between tasks: the paper's case for widths that are averages over arms."""

from collections.abc import Iterator, Sequence
from functools import partial
from math import sqrt

import numpy as np

from adats import plots
from adats.paper.bounds import SemibanditBound, semibandit_bound
from adats.paper.experiments import growth
from adats.paper.experiments.claims import BELOW, Claim
from adats.paper.experiments.growth import Growth
from adats.paper.experiments.measures import Measure, Measures, lower, quotient
from adats.paper.experiments.panels import Outcome, Panel
from adats.paper.experiments.report_text import table
from adats.paper.experiments.spec import PanelExperiment
from adats.simulation.learners import label_of
from adats.simulation.problems import SemibanditProblem

ARMS, SIZE, SPREAD = 20, 4, 0.3
UNCERTAIN = (2, 5, 10, 20)  # K'
AGENTS = ("oracle-ts", "ada-ts", "ts")
ROOT = "√(K'/K) of the last"


def _panel(uncertain: int) -> Panel:
    scale = np.where(np.arange(ARMS) < uncertain, SPREAD, 0.0)
    problem = partial(SemibanditProblem, ARMS, SIZE, task_scale=scale)
    return Panel(f"Best {SIZE} of K = {ARMS}, K' = {uncertain}", problem, AGENTS, detail="task")


def uncertain(o: Outcome) -> int:
    return int(np.count_nonzero(o.result.problem["task_scale"]))


def bound(o: Outcome) -> SemibanditBound:
    """Theorem 6 with the scales of each arm."""
    settings = o.result.problem
    return semibandit_bound(
        tasks=o.result.tasks,
        rounds=o.result.rounds,
        arms=ARMS,
        size=SIZE,
        meta_scale=settings["meta_scale"],
        task_scale=settings["task_scale"],
        noise=settings["noise"],
    )


def _at_most_root(agent: str) -> Measures:
    """Beside the regret where all arms are uncertain."""

    def measures(outcomes: Sequence[Outcome]) -> Iterator[Measure]:
        *some, last = outcomes
        for o in some:
            high = sqrt(uncertain(o) / ARMS)
            what = f"{label_of(agent)} / the same at K' = {ARMS}; √(K'/K) = {high:.3f}"
            yield quotient(o, what, o.total(agent), last.total(agent), high=high)

    return measures


def figure(outcomes: Sequence[Outcome]) -> "plots.Figure":
    """Regret over K', and Theorem 6 for one task, beside √(K'/K) of where all are uncertain."""
    x = np.array([float(uncertain(o)) for o in outcomes])
    roots = np.sqrt(x / ARMS)
    known = {a: Growth(x, np.stack([o.total(a) for o in outcomes], axis=1)) for a in AGENTS}
    measured = {agent: found.curve() for agent, found in known.items()}
    measured[ROOT] = plots.Curve.exact(known["oracle-ts"].mean()[-1] * roots)
    found = [bound(o) for o in outcomes]
    known_prior = np.array(
        [o.result.tasks * b.per_task for o, b in zip(outcomes, found, strict=True)]
    )
    terms = {
        ROOT: plots.Curve.exact(known_prior[-1] * roots),
        "Theorem 6": plots.Curve.exact(np.array([b.total for b in found])),
        "its term for μ_*": plots.Curve.exact(np.array([b.learning for b in found])),
        "m R_δ(n; μ_*), all tasks told μ_*": plots.Curve.exact(known_prior),
    }
    slopes = {label_of(agent): known[agent] for agent in AGENTS[:2]}
    charts = [
        plots.Chart("Regret", growth.slopes_note(slopes), x, measured),
        plots.Chart("Theorem 6", "safe constants", x, terms),
    ]
    return growth.log_log_figure(charts, ["uncertain arms K'"] * 2, label="regret")


def _sections(outcomes: Sequence[Outcome]) -> list[str]:
    last = outcomes[-1]
    rows = []
    for o in outcomes:
        found = [quotient(o, "", o.total(a), last.total(a)).figure for a in AGENTS]
        theorem = bound(o).per_task / bound(last).per_task
        root = f"{sqrt(uncertain(o) / ARMS):.3f}"
        rows.append((str(uncertain(o)), root, f"{theorem:.3f}", f"{bound(o).total:.0f}", *found))
    head = ("K'", "√(K'/K)", "R_δ(n; μ_*) / that at K", "Theorem 6 in all")
    return [
        f"## Beside all {ARMS} arms uncertain",
        table((*head, *map(label_of, AGENTS)), rows),
    ]


UNCERTAIN_ARMS = PanelExperiment(
    name="uncertain-arms",
    title="Semi-bandits where only K' of K arms differ between tasks",
    about=(
        f"At most {SIZE} of {ARMS} arms a round, σ_q = 0.5 and σ = 1. σ_0,k = {SPREAD} for K' of "
        "the arms, and 0 for the others, which are the same in every task. The paper: the bound "
        "of Theorem 6 is then Õ(m √(K'Ln)), where one that takes the widest arm for all has K in "
        "place of K'. So what a task costs whose prior is known should fall at least as fast as "
        "√(K'/K). Theorem 6 in all does not: its other terms are for what all tasks share. "
        "No arm is pulled by force."
    ),
    panels=tuple(map(_panel, UNCERTAIN)),
    claims=(
        Claim(
            "Where μ_* is known, regret falls at least as √(K'/K)",
            "the ratio of OracleTS's regret to that at K' = K is at most √(K'/K)",
            _at_most_root("oracle-ts"),
        ),
        Claim("AdaTS has lower regret than TS at every K'", BELOW, lower("ada-ts", "ts")),
    ),
    runs=1000,
    needs_numba=True,
    drawings={"uncertain-arms": ("Regret and Theorem 6 over the number of uncertain arms", figure)},
    sections=_sections,
)
