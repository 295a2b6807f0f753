"""What came out where things change, and the claims about it."""

from collections.abc import Iterator, Sequence

from adats.models.core.types import FloatArray
from adats.paper.experiments.claims import BELOW, Claim
from adats.paper.experiments.drift_detector import DELAY, delay, false_alarms
from adats.paper.experiments.measures import Measure, Measures, difference, quotient
from adats.paper.experiments.panels import Outcome, of_part
from adats.simulation.learners import label_of

STILL, MU, THETA, WALK, SEASONS = "still", "mu", "theta", "walk", "seasons"  # parts
NONE, ALONE = "ada-ts", "ts"
TOLD, INDEX_TOLD = "told the change", "finite horizon, told"
FILTER, BOTH = "exact filter", "half-life 4, prior half-life 8 tasks"
JUMP, NEXT = 20, 10  # mu jumps before this task, and so many are looked at
REFERENCE = {STILL: NONE, MU: TOLD, THETA: TOLD, WALK: FILTER, SEASONS: NONE}
PULLS_OF_A_TASK = "half-life 1 task in pulls"
INDEX_IN_PULLS = "finite horizon, half-life ⅛ task in pulls"
OURS = {  # half-lives for each way to move
    MU: "prior half-life 1 task",
    THETA: "half-life ⅛ task in pulls",
    WALK: PULLS_OF_A_TASK,
    SEASONS: "prior half-life 1 task",
}


def regret_of(o: Outcome, agent: str) -> FloatArray:
    """Of each run: of the tasks after a jump of mu, else of all."""
    if o.panel.part != MU:
        return o.total(agent)
    i = o.result.agents.index(agent)
    after: FloatArray = o.result.regret[i, :, JUMP : JUMP + NEXT].sum(axis=1)
    return after


def _at_most(part: str, agent: str, than: str, high: float) -> Measures:
    return lambda outcomes: (_ratio(o, agent, than, high) for o in of_part(part, outcomes))


def _ratio(o: Outcome, agent: str, than: str, high: float) -> Measure:
    what = f"{label_of(agent)} / {label_of(than)}"
    return quotient(o, what, regret_of(o, agent), regret_of(o, than), high=high)


def _below_rivals(place: str) -> Measures:
    """Below each rule of bayesianbandits, with its agents in this place."""

    def measures(outcomes: Sequence[Outcome]) -> Iterator[Measure]:
        for part in (MU, THETA, WALK):
            for o in of_part(part, outcomes):
                for rival in rivals(o, place):
                    yield _below(o, OURS[part], rival)

    return measures


def _below(o: Outcome, agent: str, than: str) -> Measure:
    own, other = regret_of(o, agent), regret_of(o, than)
    figure = f"{own.mean():.1f} against {other.mean():.1f}"
    return difference(o, f"{label_of(agent)} below {label_of(than)}", figure, other - own)


def _seasons(outcomes: Sequence[Outcome]) -> Iterator[Measure]:
    for o in of_part(SEASONS, outcomes):
        yield _below(o, OURS[SEASONS], NONE)


def rivals(o: Outcome, place: str) -> list[str]:
    """The rules of bayesianbandits, with an agent for "a task" or for "all tasks"."""
    return [agent for agent in o.panel.agents if agent.endswith(f", {place}")]


def _rule(high: float, what: str = "the ratio of regrets") -> str:
    return f"{what} is at most {high:g}"


AFTER = f"the ratio of regrets in the {NEXT} tasks after the jump"
CLAIMS = (
    *(
        Claim(
            f"Where nothing moves, {name} costs at most 5 %",
            _rule(1.05),
            _at_most(STILL, agent, NONE, 1.05),
        )
        for name, agent in (
            ("a half-life of 5 tasks", "half-life 5 tasks"),
            ("a prior half-life of 5 tasks", "prior half-life 5 tasks"),
            ("a half-life of one task in pulls", PULLS_OF_A_TASK),
        )
    ),
    Claim(
        "After a jump of μ_* a prior half-life of one task loses no more than TS, each task alone",
        _rule(1.0, AFTER),
        _at_most(MU, OURS[MU], ALONE, 1.0),
    ),
    Claim(
        "And at most 1.3 × a restart at the jump",
        _rule(1.3, AFTER),
        _at_most(MU, OURS[MU], TOLD, 1.3),
    ),
    Claim(
        "With the finite-horizon index it loses at most 1.3 × Thompson sampling's restart",
        _rule(1.3, AFTER),
        _at_most(MU, "finite horizon, prior half-life 1 task", TOLD, 1.3),
    ),
    *(
        Claim(f"Where θ_s jumps, {text} loses at most 1.08 × {than}", _rule(1.08), measures)
        for text, than, measures in (
            (
                "Thompson sampling with a half-life of ⅛ task in pulls",
                "splitting at the change",
                _at_most(THETA, OURS[THETA], TOLD, 1.08),
            ),
            (
                "the finite-horizon index with that half-life",
                "Thompson sampling that splits at the change",
                _at_most(THETA, INDEX_IN_PULLS, TOLD, 1.08),
            ),
            (
                "the finite-horizon index with that half-life",
                "the same index that splits at the change",
                _at_most(THETA, INDEX_IN_PULLS, INDEX_TOLD, 1.08),
            ),
        )
    ),
    Claim(
        "Where μ_* and θ_s walk slowly, half-lives lose at most 1.1 × the filter that knows the "
        "steps",
        _rule(1.1),
        _at_most(WALK, BOTH, FILTER, 1.1),
    ),
    Claim(
        "Half-lives lose less than each of bayesianbandits' rules with an agent a task",
        BELOW,
        _below_rivals("a task"),
    ),
    Claim(
        "And than each of them with one agent for all tasks",
        BELOW,
        _below_rivals("all tasks"),
    ),
    Claim(
        "Where nothing moves the detector sounds an alarm in at most 1 % of the runs",
        "the share of runs is at most 0.01",
        false_alarms,
    ),
    Claim(
        f"When every arm has shifted by σ_0 it does within {DELAY} tasks, on average",
        f"the mean delay is at most {DELAY} tasks, where a run without an alarm counts as its end",
        delay,
    ),
    Claim("With seasons a prior half-life of one task loses less than none", BELOW, _seasons),
)
