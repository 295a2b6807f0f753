"""What is counted of decisions at every commit, so that a report reads few rows: by hour and arm;
and, where there is a holdout, the rewards that count by group of tasks, for all time together.

Sums of rewards are exact, so that what is forgotten can be taken out and nothing of it stays.
"""

import zlib
from fractions import Fraction
from functools import lru_cache

import msgspec

from adats.models.core.types import Arm
from adats.service.evaluation.lift import RewardMoments
from adats.service.stores.interface import Bucket, Counts, DecisionRow, Reward

HOUR, DAY = 3600, 86_400  # seconds
HOURS_KEPT = 14 * DAY  # seconds: what is older is counted by days
BITS = 1074  # a float is a multiple of 2⁻¹⁰⁷⁴, its square of 2⁻²¹⁴⁸
SEVERAL = "null"  # the arm of a decision that has several; each of them has a bucket too
GROUPS = 64  # of tasks, by chance
FLOOR = 0.01  # propensities below are counted

NOTHING = Counts()

encode = msgspec.json.Encoder().encode


def tally(
    into: dict[Bucket, Counts], decision: DecisionRow, days_until: int, sign: int = 1
) -> None:
    """Count a decision as it is; with -1, do not count it any more."""
    for bucket, counts in _parts(decision, _own_bucket(decision, days_until), days_until):
        _add(into, bucket, counts, sign)


def tally_change(
    into: dict[Bucket, Counts], old: DecisionRow, new: DecisionRow, days_until: int
) -> None:
    """Count a decision as it is now, and no more as it was."""
    own = _own_bucket(new, days_until)
    before = dict(_parts(old, own, days_until))
    for bucket, after in _parts(new, own, days_until):
        less = before.pop(bucket, None)
        _add(into, bucket, after if less is None else after.plus(less, -1), 1)
    for bucket, counts in before.items():
        _add(into, bucket, counts, -1)


def _add(into: dict[Bucket, Counts], bucket: Bucket, counts: Counts, sign: int) -> None:
    known = into.get(bucket)
    new = counts if known is None and sign > 0 else (known or NOTHING).plus(counts, sign)
    if new == NOTHING:
        into.pop(bucket, None)
    else:
        into[bucket] = new


def _parts(decision: DecisionRow, own: Bucket, days_until: int) -> list[tuple[Bucket, Counts]]:
    """For the arm; of a decision with several one for all, and one for each; for its group of
    tasks; for each further metric, of all arms."""
    action, counted = decision.action, decision.counted
    total = None if counted is None else _exact_sum(counted)
    whole = _counts(decision, total)
    parts = [(own, whole)]
    if isinstance(action, list):
        values = counted if isinstance(counted, list) else [None] * len(action)
        parts += [
            (_bucket(decision, arm, days_until), _counts(decision, value))
            for arm, value in zip(action, values, strict=True)
        ]
    if total is not None and decision.holdout is not None and decision.kept is None:
        group = zlib.crc32(decision.task.encode()) % GROUPS
        ever = Bucket(decision.experiment, 0, 0, f"group {group}", decision.holdout)
        parts.append((ever, whole))
    if total is not None and decision.metrics:
        parts += [
            (own._replace(metric=name), _counts(decision, value))
            for name, value in decision.metrics.items()
        ]
    return parts


def _counts(decision: DecisionRow, value: float | Fraction | None) -> Counts:
    chance, explored, rewarded = decision.propensity, decision.explored, decision.reward is not None
    unlikely = decision.kept is None and not isinstance(chance, list) and chance < FLOOR
    if value is None:
        return Counts(1, explored, int(rewarded), 0, 0, int(unlikely))
    n, d = value.as_integer_ratio()
    places = BITS + 1 - d.bit_length()  # d is a power of two
    sums = (n << places, n * n << 2 * places)
    return Counts(1, explored, int(rewarded), 1, int(n != 0), int(unlikely), *sums)


def of_rewards(counts: dict[Bucket, Counts], *, several: bool) -> dict[Bucket, Counts]:
    """Each decision once, by time."""
    return {b: n for b, n in by_time(counts, several=several).items() if not b.metric}


def by_time(counts: dict[Bucket, Counts], *, several: bool) -> dict[Bucket, Counts]:
    """Rewards and further metrics, of all arms together, where a decision may have several."""
    return {b: n for b, n in counts.items() if b.span and (b.arm == SEVERAL) == several}


def _own_bucket(decision: DecisionRow, days_until: int) -> Bucket:
    """For its arm, or for all arms of a decision with several."""
    action = decision.action
    return _bucket(decision, None if isinstance(action, list) else action, days_until)


def _bucket(decision: DecisionRow, arm: Arm | None, days_until: int) -> Bucket:
    span = DAY if decision.time < days_until else HOUR
    start = int(decision.time // span) * span
    held_out = -1 if decision.holdout is None or decision.kept is not None else decision.holdout
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
        return RewardMoments(0, 0.0, 0.0, 0)
    total, squares = Fraction(counts.sum, 1 << BITS), Fraction(counts.squares, 1 << 2 * BITS)
    mean = total / counts.counted
    return RewardMoments(counts.counted, float(mean), float(squares - total * mean), counts.nonzero)


def _exact_sum(values: Reward) -> float | Fraction:
    if isinstance(values, list):
        return sum((Fraction(value) for value in values), Fraction(0))
    return values
