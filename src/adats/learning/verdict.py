"""Is sharing worth it, and against whom? One answer with its size, from counts by task and arm.

Two opponents: each task alone, with one prior for all arms, and one sampler for all tasks. What a
new task saves, with its own arms and its own length, is estimated under what the log leaves
possible; that it gains at all is tested on tasks that were held out. docs/math/verdict.md.
"""

import math
from typing import Literal, NamedTuple

import numpy as np

from adats.learning.effects import TaskCounts
from adats.learning.log_tests import (
    level_matters,
    names_matter,
    pulls_by_name,
    pulls_drift,
    pulls_follow_rewards,
)
from adats.learning.task_savings import Gain, Saving, fits, held_out, savings
from adats.models.core.types import FloatArray, Rng

Answer = Literal[
    "share", "one for all", "each for itself", "too little data", "cannot tell from this log"
]
Structure = Literal["independent", "level", "exchangeable"]
FEWEST = 10  # tasks; with less there is no verdict
MOST = 20_000  # tasks that are looked at; of more, some are drawn
LEVEL = 0.02  # of the tests whether names and levels matter
ADAPTIVE = 0.001  # of the test whether pulls follow rewards
HELD_OUT, SAVED = 2.054, 2.326  # standard errors: 98 % for held-out gains, 99 % for savings
WORTH = 0.05  # the part of the regret below which a saving is not worth the trouble


class Verdict(NamedTuple):
    """The answer and what it rests on."""

    answer: Answer
    structure: Structure | None  # what to share
    saving: float  # part of the better opponent's regret
    interval: tuple[float, float]  # 90 %
    reasons: tuple[str, ...]
    over_alone: Saving | None = None
    over_pooled: Saving | None = None
    gain: Gain | None = None  # reward of a held-out task over playing alone
    names: float = math.nan  # chance of such differences of arms if names meant nothing
    level: float = math.nan  # and of tasks, if they had no level of their own


class Early(NamedTuple):
    """Pulls and rewards of the first half of every task's rows, to see whether pulls follow."""

    pulls: FloatArray  # (tasks, arms)
    sums: FloatArray


def verdict(
    counts: TaskCounts, *, early: Early | None = None, weighted: bool = False, rng: Rng
) -> Verdict:
    """The verdict on a log.

    With propensities `counts` are of what `by_propensity` gives, with the tasks' true lengths, and
    are `weighted`. Without them a log that looks adaptive gets no verdict where its pulls depend on
    names or drift within tasks, which `early` shows.
    """
    used = np.flatnonzero(counts.pulls.sum(axis=1) > 0)
    if used.size < FEWEST:
        return nothing(f"{used.size} tasks are too few to tell; {FEWEST} are the least")
    if used.size > MOST:
        used = np.sort(rng.choice(used, MOST, replace=False))
    counts = counts.take(used)
    if not weighted:
        first = early and Early(early.pulls[used], early.sums[used])
        reason = adaptive(counts, first, rng)
        if reason:
            return nothing(reason, "cannot tell from this log")
    found = fits(counts)
    over_alone, over_pooled = savings(counts, found, rng)
    gain = held_out(counts, found, rng)
    names, level = names_matter(counts, rng), level_matters(counts, rng)
    return judged(names, level, over_alone, over_pooled, gain)


def nothing(reason: str, answer: Answer = "too little data") -> Verdict:
    """No size can be given."""
    return Verdict(answer, None, math.nan, (math.nan, math.nan), (reason,))


def by_propensity(
    weights: FloatArray, squares: FloatArray, rewards: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Pulls and sums to pass for rows weighted by w = 1/propensity: Σw, Σw², Σwy by task and arm.

    Pulls are as many as would tell as much without weights: (Σw)²/Σw².
    """
    here = weights > 0
    pulls = np.where(here, weights**2 / np.where(here, squares, 1.0), 0.0)
    return pulls, pulls * rewards / np.where(here, weights, 1.0)


def adaptive(counts: TaskCounts, early: Early | None, rng: Rng) -> str | None:
    """Why the log cannot tell, if it cannot."""
    if early is None:
        follows, drift = pulls_follow_rewards(counts), 1.0
    else:
        first = counts._replace(pulls=early.pulls, sums=early.sums)
        follows = pulls_follow_rewards(first, counts.pulls - early.pulls)
        drift = pulls_drift(counts.pulls, early.pulls)
    if follows > ADAPTIVE:
        return None
    if drift <= LEVEL:
        how = "drift within tasks"
    elif pulls_by_name(counts, rng) <= LEVEL:
        how = "depend on the names of arms"
    else:
        return None
    return (
        f"pulls follow rewards (chance {follows:.1g}) and {how}, and there are no propensities: "
        "log them, or give every arm its pulls at random in some tasks"
    )


def judged(
    names: float, level: float, over_alone: Saving, over_pooled: Saving, gain: Gain
) -> Verdict:
    """The rule, in order: one for all, share, each for itself, too little data."""
    worst = min(over_alone, over_pooled, key=lambda saving: saving.part)
    structure: Structure | None = None
    if names <= LEVEL:
        structure = "level" if level <= LEVEL else "independent"
    elif level <= LEVEL:
        structure = "exchangeable"
    together = (
        over_alone.above(-SAVED) > 0 and gain.mean > HELD_OUT * gain.error and bool(structure)
    )
    answer: Answer
    if together and over_pooled.above(-SAVED) > 0 and over_pooled.high >= WORTH:
        answer = "share"
        why = f"a new task saves {_percent(over_alone)} of what it loses alone and "
        why += f"{_percent(over_pooled)} of what one sampler for all loses"
    elif together and (over_pooled.high < WORTH or over_pooled.part <= 0):
        answer = "one for all"
        why = f"tasks are so alike that sharing saves {_percent(over_pooled)} of what one sampler "
        why += "for all loses"
    elif over_alone.high < WORTH:
        answer = "each for itself"
        why = f"sharing saves {_percent(over_alone)} of what a new task loses alone"
    else:
        answer = "too little data"
        why = f"sharing saves {_percent(over_alone)} of what a new task loses alone and "
        why += f"{_percent(over_pooled)} of what one sampler for all loses, and "
        why += "the log does not settle " + (
            "which of the two is better" if together else "whether there is a gain at all"
        )
    structure = structure if answer == "share" else None
    reasons = (why, _chances(names, level, gain))
    part, interval = worst.part, (worst.low, worst.high)
    return Verdict(
        answer, structure, part, interval, reasons, over_alone, over_pooled, gain, names, level
    )


def _percent(saving: Saving) -> str:
    return f"{saving.part:.0%} ({saving.low:.0%} to {saving.high:.0%})"


def _chances(names: float, level: float, gain: Gain) -> str:
    return (
        f"if names of arms meant nothing, they would differ as much with chance {names:.2g}; if "
        f"tasks had no level, with chance {level:.2g}; tasks that were held out gain "
        f"{gain.mean:+.3g} ± {gain.error:.2g} over playing alone"
    )
