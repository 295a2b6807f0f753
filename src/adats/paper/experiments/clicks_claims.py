"""What came out of the grid of click problems, and the claims about it."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from adats.models.core.types import FloatArray
from adats.paper.experiments.claims import Claim
from adats.paper.experiments.measures import (
    Measure,
    Measures,
    ratio,
    resampled,
    tail,
    tail_ratio,
)
from adats.paper.experiments.panels import Outcome, of_part
from adats.simulation.learners import label_of

AGENTS = ("flat-ts", "pooled-ts", "ada-ts", "default-ts", "default-far")
RIVALS = ("flat-ts", "pooled-ts")
GRID, NOTHING = "grid", "nothing in common"  # parts
TOLD, EVERYWHERE, MOSTLY, FAR, ALONE = 1.10, 1.4, 1.15, 1.15, 1.05  # the largest ratios
MOST = 0.75  # the share of cells that is meant by mostly


def setting(o: Outcome, name: str) -> Any:
    """Of a cell: the rounds of a task, or what its problem has by this name."""
    return o.result.rounds if name == "rounds" else o.result.problem[name]


def better_rival(o: Outcome) -> str:
    """Which of the two that learn no prior has the lower regret in this cell."""
    return min(RIVALS, key=o.result.mean)


def ratio_to_better(o: Outcome, agent: str) -> tuple[float, float]:
    """Of regrets, with the standard error of the paired runs."""
    return ratio(o.total(agent), o.total(better_rival(o)))


def _measure(o: Outcome, agent: str, than: str, high: float) -> Measure:
    value, se = ratio(o.total(agent), o.total(than))
    what = f"{label_of(agent)} / {label_of(than)}"
    return Measure(o.panel.label, what, f"{value:.3f} ± {se:.3f}", value, se, high=high)


def at_most(agent: str, than: str, high: float, part: str) -> Measures:
    """The ratio of two agents' regrets, in every cell."""
    return lambda outcomes: (_measure(o, agent, than, high) for o in of_part(part, outcomes))


def against_better(agent: str, high: float) -> Measures:
    """The ratio of an agent's regret to that of the better rival, in every cell."""
    return lambda outcomes: (
        _measure(o, agent, better_rival(o), high) for o in of_part(GRID, outcomes)
    )


def share_below(means: Sequence[FloatArray], high: float) -> float:
    """The share of cells in which the first mean is at most `high` times the least of others."""
    below = [own <= high * min(others) for own, *others in means]
    return float(np.mean(below))


def _mostly(outcomes: Sequence[Outcome]) -> Iterator[Measure]:
    """How many cells are below a ratio; its standard error is by the bootstrap over runs."""
    cells = of_part(GRID, outcomes)
    totals = [np.array([o.total(a) for a in ("default-ts", *RIVALS)]) for o in cells]
    share = share_below([total.mean(axis=1) for total in totals], MOSTLY)
    draws = [
        share_below([total[:, some].mean(axis=1) for total in totals], MOSTLY)
        for some in resampled(totals[0].shape[1])
    ]
    se = float(np.std(draws, ddof=1))
    count = round(share * len(cells))
    figure = f"{count} of {len(cells)} cells, {100 * share:.0f} ± {100 * se:.0f} %"
    what = f"cells with {label_of('default-ts')} / the better rival ≤ {MOSTLY}"
    yield Measure("all cells", what, figure, share, se, low=MOST)


def _tails(outcomes: Sequence[Outcome]) -> Iterator[Measure]:
    for o in of_part(GRID, outcomes):
        far, drawn = o.total("default-far"), o.total("default-ts")
        value, se = tail_ratio(far, drawn)
        figure = f"{tail(far):.1f} against {tail(drawn):.1f}, ratio {value:.3f} ± {se:.3f}"
        what = f"{label_of('default-far')} / {label_of('default-ts')}"
        yield Measure(o.panel.label, what, figure, value, se, high=1.0)


def _rule(high: float) -> str:
    return f"in every cell the ratio of regrets is at most {high:.2f}"


CLAIMS = (
    Claim(
        f"AdaTS that is told nothing has at most {TOLD:.2f} × the regret of the same model told "
        "its spreads",
        _rule(TOLD),
        at_most("default-ts", "ada-ts", TOLD, GRID),
    ),
    Claim(
        f"It has at most {EVERYWHERE} × the regret of the better rival, in every cell",
        _rule(EVERYWHERE),
        against_better("default-ts", EVERYWHERE),
    ),
    Claim(
        f"And at most {MOSTLY} × in three quarters of the cells",
        f"the ratio of regrets is at most {MOSTLY} in at least {100 * MOST:.0f} % of the cells",
        _mostly,
    ),
    Claim(
        f"The far-sighted index, told nothing, has at most {FAR} × the regret of the better rival",
        _rule(FAR),
        against_better("default-far", FAR),
    ),
    Claim(
        "Its 99th percentile of regret is not above that of AdaTS that is told nothing",
        "in every cell the ratio of the percentiles is at most 1",
        _tails,
    ),
    Claim(
        f"Where tasks have nothing in common AdaTS that is told nothing has at most {ALONE} × the "
        "regret of TS, each task alone",
        _rule(ALONE),
        at_most("default-ts", "flat-ts", ALONE, NOTHING),
    ),
)
