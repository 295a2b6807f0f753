"""Intervals that hold at every look: see docs/math/lift.md.

Everything takes arrays as well as numbers.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from adats.models.core.types import FloatArray

ALPHA = 0.05  # intervals are of 95 %
_SIZES = np.geomspace(0.08, 4.0, 8)  # of bets: for one event and for some thousands
BETS = np.concatenate([-_SIZES[::-1], _SIZES])
RATE = 0.033  # where the asymptotic sequence is narrowest: at some 250 events
STEPS = 45  # of bisections, in log-odds


class Interval(NamedTuple):
    low: Any
    high: Any


def log_wealth(total: ArrayLike, n: ArrayLike, mean: ArrayLike, bets: FloatArray = BETS) -> Any:
    """Log of a supermartingale that starts at 1, if `mean` is the average of conditional means.

    Of n values between 0 and 1, which may depend on what was before, with this total. It is the
    average over bets of ∏ exp(λ x) / (1 − m + m exp(λ)), which is smallest where all means are
    equal.
    """
    sums, size, m = (np.asarray(value, np.float64)[..., None] for value in (total, n, mean))
    logs = bets * sums - size * np.log1p(m * np.expm1(bets))
    top = logs.max(axis=-1)
    return top + np.log(np.exp(logs - top[..., None]).mean(axis=-1))


def bounded_sequence(total: ArrayLike, n: ArrayLike, alpha: float = ALPHA) -> Interval:
    """For the average conditional mean of values between 0 and 1; exact at every n at once.

    The wealth is log-convex in the mean, so that what it does not refute is an interval.
    """
    sums, size = np.broadcast_arrays(np.asarray(total, np.float64), np.asarray(n, np.float64))
    limit = -np.log(alpha)
    middle = np.clip((sums + 1e-9) / (size + 2e-9), 1e-12, 1 - 1e-12)
    ends = []
    for out in (-60.0, 60.0):  # log-odds
        inside, outside = np.log(middle / (1 - middle)), np.full(middle.shape, out)
        for _ in range(STEPS):
            half = (inside + outside) / 2
            refuted = log_wealth(sums, size, 1 / (1 + np.exp(-half))) >= limit
            inside, outside = np.where(refuted, inside, half), np.where(refuted, half, outside)
        ends.append(1 / (1 + np.exp(-outside)))
    return Interval(
        np.where(log_wealth(sums, size, 0.0) < limit, 0.0, ends[0]),
        np.where(log_wealth(sums, size, 1.0) < limit, 1.0, ends[1]),
    )


def asymptotic_factor(events: ArrayLike, *, rate: float = RATE, alpha: float = ALPHA) -> Any:
    """How many standard errors an interval has on each side to hold at every look.

    Robbins' normal mixture, for averages of many: Waudby-Smith and others (2024), theorem 2.2.
    """
    x = rate * np.maximum(np.asarray(events, np.float64), 1e-9)
    return np.sqrt((1 + 1 / x) * (np.log1p(x) - 2 * np.log(alpha)))
