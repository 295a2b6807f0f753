"""What is wrong with an experiment, a sentence each, from its counters."""

from collections.abc import Callable
from datetime import UTC, datetime
from functools import reduce
from typing import NamedTuple

import msgspec
import numpy as np

from adats.models.core.types import FloatArray
from adats.service.counters import DAY, FLOOR, by_time, moments
from adats.service.evaluation import alarms
from adats.service.messages import Stop
from adats.service.spec import ExperimentSpec
from adats.service.stores.interface import Bucket, Counts

NONE = Counts()


class _Day(NamedTuple):
    """Decisions of one day, in UTC."""

    start: int
    policy: Counts  # that were not held out
    holdout: Counts
    others: Counts  # that could not be

    @property
    def together(self) -> Counts:
        return self.policy.plus(self.holdout).plus(self.others)


def alarms_of(
    counts: dict[Bucket, Counts], spec: ExperimentSpec, stop: Stop | None, now: float
) -> list[str]:
    """Days are those that are over; where rewards matter, their windows too (without, a day)."""
    days = _days(counts, several=spec.size is not None)
    over = [day for day in days if day.start + DAY <= now]
    closed = [day for day in over if day.start + DAY + (spec.window or DAY) <= now]
    found = [_off_plan(days, spec), _fewer_rewards(closed), *_moved(closed)]
    if stop is not None and over:
        found += [_too_unlikely(days, stop), _collapsed(counts, over[-1], spec, stop)]
    return [sentence for sentence in found if sentence is not None]


def _days(counts: dict[Bucket, Counts], *, several: bool) -> list[_Day]:
    sums: dict[tuple[int, int], Counts] = {}
    for bucket, own in by_time(counts, several=several).items():
        if not bucket.metric:
            place = bucket.start // DAY * DAY, bucket.held_out
            sums[place] = sums.get(place, NONE).plus(own)
    starts = sorted({start for start, _ in sums})
    return [_Day(start, *(sums.get((start, h), NONE) for h in (0, 1, -1))) for start in starts]


def _off_plan(days: list[_Day], spec: ExperimentSpec) -> str | None:
    held = sum(day.holdout.decisions for day in days)
    could = held + sum(day.policy.decisions for day in days)
    if spec.holdout is None or not alarms.off_plan(held, could, spec.holdout.share):
        return None
    return f"{held} of {could} decisions were held out; {_part(spec.holdout.share)} is planned."


def _too_unlikely(days: list[_Day], stop: Stop) -> str | None:
    total = reduce(Counts.plus, (day.together for day in days), NONE)
    arms = len(stop.arms)
    if not alarms.too_unlikely(total.unlikely, total.decisions, arms, FLOOR):
        return None
    return (
        f"Propensities are too small: {total.unlikely} of {total.decisions} decisions had one "
        f"below {_part(FLOOR)}; with {arms} arms these are {_part(arms * FLOOR)} at most."
    )


def _collapsed(
    counts: dict[Bucket, Counts], day: _Day, spec: ExperimentSpec, stop: Stop
) -> str | None:
    """A greedy policy does not explore, and need not."""
    if spec.policy.name == "greedy":
        return None
    made = dict.fromkeys((msgspec.json.encode(own.arm).decode() for own in stop.arms), 0)
    for bucket, own in counts.items():
        same_day = bucket.span and not bucket.metric and bucket.start // DAY * DAY == day.start
        if same_day and bucket.held_out != 1 and bucket.arm in made:
            made[bucket.arm] += own.decisions
    chances, by_arm = [own.best for own in stop.arms], list(made.values())
    if not alarms.collapsed(by_arm, chances):
        return None
    top = int(np.argmax(by_arm))
    return (
        f"Exploration collapsed: on {_date(day)} all went to {stop.arms[top].arm}, which is the "
        f"best with a probability of {_part(chances[top])}."
    )


def _fewer_rewards(days: list[_Day]) -> str | None:
    both = np.array([day.together[:3] for day in days], np.float64).reshape(-1, 3)
    decisions, rewarded = both[:, 0], both[:, 2]
    if not alarms.fewer_rewards(rewarded, decisions):
        return None
    usual = rewarded[:-1].sum() / decisions[:-1].sum()
    return (
        f"Rewards are missing: {_part(rewarded[-1] / decisions[-1])} of the decisions of "
        f"{_date(days[-1])} have one; {_part(usual)} is usual."
    )


def _moved(days: list[_Day]) -> list[str | None]:
    """Of the control, which is always the same; and the lift, which may only rise."""
    known = [day for day in days if day.policy.counted and day.holdout.counted]
    if len(known) < alarms.DAYS:
        return []
    control, noise = _daily(known, lambda day: day.holdout)
    policy, more = _daily(known, lambda day: day.policy)
    found: list[str | None] = []
    for what, means, variances in (
        ("The control's rewards moved", control, noise),
        ("What was learned is worth less: the lift fell", policy - control, noise + more),
    ):
        move = alarms.moved(means, variances, fall_only=means is not control)
        if move is not None:
            when = _date(known[move.day])
            found.append(f"{what} on {when}, from {move.before:.3g} to {move.after:.3g}.")
    return found


def _daily(days: list[_Day], side: Callable[[_Day], Counts]) -> tuple[FloatArray, FloatArray]:
    """Means, and what they would vary by if all days were alike."""
    own = [moments(side(day)) for day in days]
    sizes, means, squares, _ = np.array(own, np.float64).T
    spread = squares.sum() / max(sizes.sum() - sizes.size, 1.0)
    return means, spread / sizes


def _date(day: _Day) -> str:
    return datetime.fromtimestamp(day.start, UTC).date().isoformat()


def _part(value: float) -> str:
    return f"{100 * value:.3g} %"
