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
DAYS, USUAL = 10, 14  # that are needed to know what is usual; that are taken for it
FEWER = 5e-4  # chance of so few rewards on one day
MOVED = 2e-5  # the same of the largest change between days before and after some day
MANY, ALL, UNSURE = 1000, 0.999, 0.9  # decisions of a day, part of one arm, its chance to be best


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


def fewer_rewards(rewarded: FloatArray, decisions: FloatArray) -> bool:
    """Whether fewer decisions of the last day have a reward than usual, for days that differ.

    Days that are more alike than chance allows are taken to differ as much as chance makes them.
    """
    if rewarded.size <= DAYS:
        return False
    rewarded, decisions = rewarded[-USUAL - 1 :], decisions[-USUAL - 1 :]
    shares = rewarded / decisions
    usual, last = shares[:-1], float(shares[-1])
    days, n = usual.size, float(decisions[:-1].sum())
    mean = (float(rewarded[:-1].sum()) + 1) / (n + 2)
    chance = mean * (1 - mean) / decisions
    between = max(float(usual.var(ddof=1)) - float(chance[:-1].mean()), 0.0)
    error = np.sqrt((between + float(chance[-1])) * (1 + 1 / days))
    return bool(stdtr(days - 1, (last - mean) / error) < FEWER)


def moved(means: FloatArray, variances: FloatArray, *, fall_only: bool = False) -> Move | None:
    """The largest change of daily means, if it is more than days differ anyway.

    `variances` are those of the means, as far as they are known. The days are split in two at each
    place, and a t-test compares the parts; how much days differ is what is left within the parts.
    """
    days = means.size
    if days < DAYS or not (variances > 0).all():
        return None
    weights = 1 / variances
    middle = float(means.mean())
    off = means - middle
    sums = np.cumsum([weights, weights * off, weights * off**2], axis=1)
    before = sums[:, 2:-3]  # of the first 3, 4, … days
    after = sums[:, -1:] - before
    centres = before[1] / before[0], after[1] / after[0]
    left = sum(part[2] - part[1] * own for part, own in zip((before, after), centres, strict=True))
    spread = np.maximum(left / (days - 2), 1.0)  # of days, over what chance makes
    z = (centres[1] - centres[0]) / np.sqrt(spread * (1 / before[0] + 1 / after[0]))
    chance = stdtr(days - 2, z if fall_only else -abs(z))
    best = int(chance.argmin())
    if chance[best] >= MOVED:
        return None
    return Move(best + 3, *(middle + float(own[best]) for own in centres))
