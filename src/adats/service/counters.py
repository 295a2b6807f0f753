"""What is counted of decisions at every commit, by hour and arm, so that a report reads few rows.

Sums of rewards are exact, so that what is forgotten can be taken out and nothing of it stays.
"""

from collections.abc import Iterator
from fractions import Fraction
from typing import NamedTuple

import msgspec

from adats.service.stores.interface import Bucket, Counts, DecisionRow, Reward

HOUR, DAY = 3600, 86_400  # seconds
HOURS_KEPT = 14 * DAY  # seconds: what is older is counted by days
BITS = 1074  # a float is a multiple of 2⁻¹⁰⁷⁴, its square of 2⁻²¹⁴⁸
SEVERAL = "null"  # the arm of a decision that has several; each of them has a bucket too

NOTHING = Counts()

encode = msgspec.json.Encoder().encode


class RewardMoments(NamedTuple):
    """Number, mean and summed squared deviations of rewards."""

    size: int
    mean: float
    squares: float


def tally(
    into: dict[Bucket, Counts], decision: DecisionRow, days_until: int, sign: int = 1
) -> None:
    """Count a decision as it is; with -1, do not count it any more."""
    for bucket, counts in of_decision(decision, days_until):
        known = into.get(bucket)
        if known is None and sign > 0:
            into[bucket] = counts
            continue
        new = (known or NOTHING).plus(counts, sign)
        if new == NOTHING:
            into.pop(bucket, None)
        else:
            into[bucket] = new


def of_decision(decision: DecisionRow, days_until: int) -> Iterator[tuple[Bucket, Counts]]:
    """One bucket; of a decision with several arms one for all, and one for each."""
    action, counted = decision.action, decision.counted
    total = None if counted is None else _exact_sum(counted)
    if not isinstance(action, list):
        yield _part(decision, encode(action).decode(), total, days_until)
        return
    yield _part(decision, SEVERAL, total, days_until)
    for i, arm in enumerate(action):
        value = counted[i] if isinstance(counted, list) else None
        yield _part(decision, encode(arm).decode(), value, days_until)


def _part(
    decision: DecisionRow, arm: str, value: float | Fraction | None, days_until: int
) -> tuple[Bucket, Counts]:
    held_out = -1 if decision.holdout is None else decision.holdout
    start, span = when(decision.time, days_until)
    total = squares = 0
    if value is not None:
        n, d = value.as_integer_ratio()
        places = BITS + 1 - d.bit_length()  # d is a power of two
        total, squares = n << places, n * n << 2 * places
    counts = Counts(
        1,
        decision.explored,
        int(decision.reward is not None),
        int(value is not None),
        total,
        squares,
    )
    return Bucket(decision.experiment, start, span, arm, held_out), counts


def when(time: float, days_until: int) -> tuple[int, int]:
    """Start and span of the bucket of a time."""
    span = DAY if time < days_until else HOUR
    return int(time // span) * span, span


def by_days(counts: dict[Bucket, Counts], until: int) -> dict[Bucket, Counts]:
    """The differences that make days of the hours before `until`."""
    found: dict[Bucket, Counts] = {}
    for bucket, own in counts.items():
        if bucket.span == HOUR and bucket.start < until:
            day = bucket._replace(start=bucket.start // DAY * DAY, span=DAY)
            found[bucket] = Counts().plus(own, -1)
            found[day] = found.get(day, Counts()).plus(own)
    return found


def days_until(now: float) -> int:
    return max(0, int((now - HOURS_KEPT) // DAY) * DAY)


def moments(counts: Counts) -> RewardMoments:
    """Of the rewards that count, rounded once."""
    if not counts.counted:
        return RewardMoments(0, 0.0, 0.0)
    total, squares = Fraction(counts.sum, 1 << BITS), Fraction(counts.squares, 1 << 2 * BITS)
    mean = total / counts.counted
    return RewardMoments(counts.counted, float(mean), float(squares - total * mean))


def _exact_sum(values: Reward) -> float | Fraction:
    if isinstance(values, list):
        return sum((Fraction(value) for value in values), Fraction(0))
    return values
