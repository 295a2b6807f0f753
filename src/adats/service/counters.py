"""What is counted of decisions at every commit, by hour and arm, so that a report reads few rows.

Sums of rewards are exact, so that what is forgotten can be taken out and nothing of it stays.
"""

from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

import msgspec

from adats.models.core.types import Arm
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
    for arm, counts in _parts(decision):
        _add(into, _bucket(decision, arm, days_until), counts, sign)
    for bucket, counts in _metrics(decision, days_until):
        _add(into, bucket, counts, sign)


def tally_change(
    into: dict[Bucket, Counts], old: DecisionRow, new: DecisionRow, days_until: int
) -> None:
    """Count a decision as it is now, and no more as it was: it is in the same buckets."""
    for (arm, before), (_, after) in zip(_parts(old), _parts(new), strict=True):
        _add(into, _bucket(new, arm, days_until), after.plus(before, -1), 1)
    for row, sign in ((old, -1), (new, 1)):
        for bucket, counts in _metrics(row, days_until):
            _add(into, bucket, counts, sign)


def _add(into: dict[Bucket, Counts], bucket: Bucket, counts: Counts, sign: int) -> None:
    known = into.get(bucket)
    new = counts if known is None and sign > 0 else (known or NOTHING).plus(counts, sign)
    if new == NOTHING:
        into.pop(bucket, None)
    else:
        into[bucket] = new


def _parts(decision: DecisionRow) -> list[tuple[Arm | None, Counts]]:
    """For the arm; of a decision with several one for all (the arm None), and one for each."""
    action, counted = decision.action, decision.counted
    if not isinstance(action, list):
        return [(action, _counts(decision, None if counted is None else _exact_sum(counted)))]
    if not isinstance(counted, list):
        return [(arm, _counts(decision, None)) for arm in (None, *action)]
    values = zip((None, *action), (_exact_sum(counted), *counted), strict=True)
    return [(arm, _counts(decision, value)) for arm, value in values]


def _metrics(decision: DecisionRow, days_until: int) -> list[tuple[Bucket, Counts]]:
    """For each further figure; of a decision with several arms only for all."""
    if not decision.metrics or decision.counted is None:
        return []
    arm = None if isinstance(decision.action, list) else decision.action
    whole = _bucket(decision, arm, days_until)
    return [
        (whole._replace(metric=name), _counts(decision, value))
        for name, value in decision.metrics.items()
    ]


def _counts(decision: DecisionRow, value: float | Fraction | None) -> Counts:
    if value is None:
        return Counts(1, decision.explored, int(decision.reward is not None))
    n, d = value.as_integer_ratio()
    places = BITS + 1 - d.bit_length()  # d is a power of two
    total, squares = n << places, n * n << 2 * places
    return Counts(1, decision.explored, int(decision.reward is not None), 1, total, squares)


def of_rewards(counts: dict[Bucket, Counts], *, several: bool) -> dict[Bucket, Counts]:
    """Each decision once: those of all arms together, where a decision may have several."""
    return {
        bucket: own
        for bucket, own in counts.items()
        if not bucket.metric and (bucket.arm == SEVERAL) == several
    }


def _bucket(decision: DecisionRow, arm: Arm | None, days_until: int) -> Bucket:
    span = DAY if decision.time < days_until else HOUR
    start = int(decision.time // span) * span
    held_out = -1 if decision.holdout is None else decision.holdout
    return Bucket(decision.experiment, start, span, _text(arm), held_out)


@lru_cache(maxsize=10_000)
def _text(arm: Arm | None) -> str:
    return encode(arm).decode()


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
