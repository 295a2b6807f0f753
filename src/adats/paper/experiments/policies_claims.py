"""What came out of index policies on a learned prior, and the claims about it."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from adats.models.core.types import FloatArray
from adats.paper.experiments.claims import BELOW, Claim
from adats.paper.experiments.measures import (
    Measure,
    Measures,
    difference,
    quotient,
    tail,
    tail_ratio,
)
from adats.paper.experiments.panels import Outcome, of_part
from adats.simulation.learners import label_of

RECOMMENDED = "ada-far"
INDEX_AGENTS = ("ada-ucb", "ada-index", RECOMMENDED)
PENDING_IGNORED = {agent: f"{label_of(agent)}, pending not counted" for agent in INDEX_AGENTS}
DELAY = 20  # rounds until a reward is known
SINCE = 9  # tasks before those in which the prior has been learned
GOAL = 0.70  # of AdaTS's regret


def learned(o: Outcome, agent: str) -> FloatArray:
    """Mean regret of a task when the prior has been learned, one a run."""
    return o.total(agent, SINCE) / (o.panel.tasks - SINCE)


def _best(o: Outcome) -> str:
    return min(INDEX_AGENTS, key=o.result.mean)


def _recommended(o: Outcome) -> str:  # noqa: ARG001
    return RECOMMENDED


def _share(o: Outcome, agent: str) -> Measure:
    what = f"{label_of(agent)} / AdaTS"
    return quotient(o, what, o.total(agent), o.total("ada-ts"), high=GOAL)


def _shares(pick: Callable[[Outcome], str]) -> Measures:
    return lambda outcomes: (_share(o, pick(o)) for o in of_part("table", outcomes))


def _tails(outcomes: Sequence[Outcome]) -> Iterator[Measure]:
    for o in of_part("table", outcomes):
        value, se = tail_ratio(o.total(RECOMMENDED), o.total("ada-ts"))
        figure = f"{tail(o.total(RECOMMENDED)):.0f} against {tail(o.total('ada-ts')):.0f}, "
        figure += f"ratio {value:.2f} ± {se:.2f}"
        what = f"{label_of(RECOMMENDED)} / AdaTS"
        yield Measure(o.panel.label, what, figure, value, se, high=1.0, freedom=o.result.runs - 1)


def _late_tasks(*, large: bool) -> Measures:
    return lambda outcomes: (
        _below(o, RECOMMENDED, "oracle-ts", partial(learned, o))
        for o in of_part("table", outcomes)
        if (o.result.problem.get("dim", 0) > 2) == large
    )


def _below_oracle(part: str, pick: Callable[[Outcome], str]) -> Measures:
    return lambda outcomes: (
        _below(o, pick(o), "oracle-ts", o.total) for o in of_part(part, outcomes)
    )


def _delayed(pairs: Sequence[tuple[str, str]]) -> Measures:
    return lambda outcomes: (
        _below(o, *pair, o.total) for o in of_part("late", outcomes) for pair in pairs
    )


def _below(o: Outcome, agent: str, than: str, of: Callable[[str], FloatArray]) -> Measure:
    figure = f"{of(agent).mean():.2f} against {of(than).mean():.2f}"
    what = f"{label_of(agent)} below {label_of(than)}"
    return difference(o, what, figure, of(than) - of(agent))


SHARE_RULE = f"the ratio of regrets is at most {GOAL:.2f}"
CLAIMS = (
    Claim(
        f"On each row the best index has at most {GOAL:.2f} of AdaTS's regret over 20 tasks",
        SHARE_RULE,
        _shares(_best),
    ),
    Claim("So has the far-sighted index, which we recommend", SHARE_RULE, _shares(_recommended)),
    Claim(
        f"From task {SINCE + 1} on the far-sighted index loses less in a task than OracleTS, which "
        "is told μ_*, with Gaussian arms and in the linear bandit with d = 2",
        BELOW,
        _late_tasks(large=False),
    ),
    Claim("And with d = 8", BELOW, _late_tasks(large=True)),
    Claim(
        "Its 99th percentile of regret is at most that of AdaTS",
        "the ratio of the percentiles is at most 1",
        _tails,
    ),
    Claim(
        "Over 20 tasks the best index, which has to learn μ_*, has lower regret than OracleTS",
        BELOW,
        _below_oracle("table", _best),
    ),
    Claim(
        "Over 200 tasks the far-sighted index has lower regret than OracleTS",
        BELOW,
        _below_oracle("many", _recommended),
    ),
    Claim(
        f"With rewards {DELAY} rounds late every index has lower regret than AdaTS",
        BELOW,
        _delayed([(agent, "ada-ts") for agent in INDEX_AGENTS]),
    ),
    Claim(
        "Counting pending pulls lowers their regret", BELOW, _delayed([*PENDING_IGNORED.items()])
    ),
)
