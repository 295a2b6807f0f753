"""Is something wrong? Tests that may be looked at every day: docs/math/lift.md has how often they
are wrong. They take what was counted, by day where they ask for what has changed."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtr

from adats.models.core.types import FloatArray
from adats.service.evaluation.sequences import log_wealth

ALPHA = 0.001  # of exact tests, over all looks together
SIZES = np.geomspace(0.004, 4.0, 20)  # of bets: for a few events and for millions
BOTH, UP = np.concatenate([-SIZES, SIZES]), SIZES
DAYS, USUAL = 10, 28  # that are needed to know what is usual; that are taken for it
FEWER = 3e-4  # chance of so few rewards on one day
MOVED = 1e-4  # the same of the largest change between days before and after some day
LEAST = 0.1  # part of a mean: changes of less are let be, as tasks come and go
LATEST = 90  # days that are asked for changes
MANY, ALL, UNSURE = 1000, 0.999, 0.97  # decisions of a day, part of one arm, its chance to be best


class Daily(NamedTuple):
    """Means of days, and what they would vary by if all days were alike."""

    means: FloatArray
    variances: FloatArray

    @property
    def level(self) -> float:
        return abs(float(self.means.mean()))

    def minus(self, other: "Daily", scale: float = 1.0) -> "Daily":
        return Daily(self.means - scale * other.means, self.variances + scale**2 * other.variances)


class Move(NamedTuple):
    """Means before and after a day."""

    day: int
    before: float
    after: float


def off_plan(held_out: ArrayLike, could: ArrayLike, share: float) -> Any:
    """Whether not as many were held out as planned; exact."""
    return log_wealth(held_out, could, share, BOTH) >= -np.log(ALPHA)


def too_unlikely(unlikely: ArrayLike, decisions: ArrayLike, arms: int, floor: float) -> Any:
    """Whether actions with propensities below a floor are done more often than these say; exact.

    All such arms together have a chance of at most floor times the number of arms.
    """
    return log_wealth(unlikely, decisions, min(arms * floor, 1.0), UP) >= -np.log(ALPHA)


def collapsed(by_arm: ArrayLike, best: ArrayLike) -> bool:
    """Whether one arm has all decisions of a day, though it is not known to be the best."""
    counts = np.asarray(by_arm, np.float64)
    top = int(counts.argmax())
    total = counts.sum()
    sure = float(np.asarray(best)[top])
    return bool(total >= MANY and counts[top] >= ALL * total and sure < UNSURE)


def fewer(some: FloatArray, decisions: FloatArray) -> bool:
    """Whether fewer decisions of the last day are among some than usual, for days that differ.

    Days that are more alike than chance allows are taken to differ as much as chance makes them.
    """
    if some.size <= DAYS:
        return False
    sizes = decisions[-USUAL - 1 :]
    angles = np.arcsin(np.sqrt(some[-USUAL - 1 :] / sizes))  # whose variance is 1/4 of a decision
    usual, chance = angles[:-1], 0.25 / sizes
    between = max(float(usual.var(ddof=1)) - float(chance[:-1].mean()), 0.0)
    error = np.sqrt((between + float(chance[-1])) * (1 + 1 / usual.size))
    return bool(stdtr(usual.size - 1, (angles[-1] - usual.mean()) / error) < FEWER)


def moved(
    daily: Daily, *, least: float | None = None, fall_only: bool = False, tests: int = 1
) -> Move | None:
    """The largest change of daily means, if it is more than days differ anyway.

    It is one of so many tests, and changes of less than `least` do not matter. The days are split
    in two at each place, and a t-test compares the parts; how much days differ is what is left
    within the parts.
    """
    means, variances = daily
    days = means.size
    if days < DAYS or not (variances > 0).all():
        return None
    weights = 1 / variances
    off = means - means.mean()
    sums = np.cumsum([weights, weights * off, weights * off**2], axis=1)
    before = sums[:, 2:-3]  # of the first 3, 4, … days
    after = sums[:, -1:] - before
    centres = before[1] / before[0], after[1] / after[0]
    left = sum(part[2] - part[1] * own for part, own in zip((before, after), centres, strict=True))
    spread = np.maximum(left / (days - 2), 1.0)  # of days, over what chance makes
    change = centres[1] - centres[0]
    more = (change if fall_only else -abs(change)) + (
        daily.level * LEAST if least is None else least
    )
    chance = stdtr(days - 2, more / np.sqrt(spread * (1 / before[0] + 1 / after[0])))
    best = int(chance.argmin())
    if chance[best] >= MOVED / tests:
        return None
    day = best + 3
    parts = (slice(None, day), slice(day, None))
    return Move(day, *(float(np.average(means[own], weights=weights[own])) for own in parts))


def fell_alone(arm: Daily, others: Daily, arms: int) -> Move | None:
    """Whether the rewards of one of some arms fell, by themselves and beside those of the others.

    While a policy learns an arm is left to tasks where it is good: its rewards rise, and may fall
    beside those of others, but not both.
    """
    found = moved(arm, fall_only=True, tests=arms)
    if found is None or not others.level:
        return None
    scale = arm.level / others.level
    beside = moved(arm.minus(others, scale), least=LEAST * arm.level, fall_only=True, tests=arms)
    return None if beside is None else found
