"""What is wrong with an experiment, a sentence each, from its counters."""

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from functools import reduce
from typing import NamedTuple

import numpy as np

from adats.models.core.types import Arm, FloatArray
from adats.service.counters import BITS, DAY, FLOOR, by_time, encode
from adats.service.evaluation import alarms
from adats.service.messages import Stop
from adats.service.spec import ExperimentSpec
from adats.service.stores.interface import Bucket, Counts, DecisionRow

NONE = Counts()
SAMPLE = 2000  # decisions that are read to see whether rewards are late

_Made = Callable[[float, float], Iterable[DecisionRow]]


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
    counts: dict[Bucket, Counts],
    spec: ExperimentSpec,
    arms: Sequence[Arm] | None,
    stop: Stop | None,
    now: float,
    made: _Made,
) -> list[str]:
    """Days are those that are over; where rewards matter, their windows too (without, a day).

    `arms` are None where features come with every decision; `made` reads decisions of some time.
    """
    days = _days(counts, several=spec.size is not None)
    over = [day for day in days if day.start + DAY <= now]
    closed = [day for day in over if day.start + DAY + (spec.window or DAY) <= now]
    last = closed[-alarms.LATEST :]
    found = [_off_plan(days, spec), _fewer_rewards(last, spec, made), *_moved(last, spec)]
    found += _arms_moved(counts, arms or (), last)
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
    """Of Thompson sampling: an index is the same all day, and greedy ones do not explore."""
    if spec.policy.name != "ts":
        return None
    made = dict.fromkeys((encode(own.arm).decode() for own in stop.arms), 0)
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


def _fewer_rewards(days: list[_Day], spec: ExperimentSpec, made: _Made) -> str | None:
    """Missing, or too late for their window: of some decisions it is read which."""
    both = np.array([day.together[:3] for day in days], np.float64).reshape(-1, 3)
    decisions, rewarded = both[:, 0], both[:, 2]
    if not alarms.fewer(rewarded, decisions):
        return None
    usual = rewarded[:-1].sum() / decisions[:-1].sum()
    found = (
        f"Rewards are missing: {_part(rewarded[-1] / decisions[-1])} of the decisions of "
        f"{_date(days[-1])} have one; {_part(usual)} is usual."
    )
    end = days[-1].start + DAY
    read = list(made(end - DAY * min(1.0, SAMPLE / decisions[-1]), end)) if spec.window else []
    late = sum(decision.received > 0 and decision.reward is None for decision in read)
    return f"{found} {_part(late / len(read))} came too late for the window." if late else found


def _moved(days: list[_Day], spec: ExperimentSpec) -> list[str | None]:
    """Of the control, which is always the same; and the lift, which may only rise. Without a
    holdout, of all rewards: where a policy learns, these may only rise too."""
    if spec.holdout is None:
        known = [day for day in days if day.together.counted]
        rewards = _daily(_table(day.together for day in known))
        return [_said("Rewards fell", known, alarms.moved(rewards, fall_only=True))]
    known = [day for day in days if day.policy.counted and day.holdout.counted]
    control = _daily(_table(day.holdout for day in known))
    lift = _daily(_table(day.policy for day in known)).minus(control)
    return [
        _said("The control's rewards moved", known, alarms.moved(control)),
        _said(
            "What was learned is worth less: the lift fell",
            known,
            alarms.moved(lift, fall_only=True),
        ),
    ]


def _arms_moved(
    counts: dict[Bucket, Counts], arms: Sequence[Arm], days: list[_Day]
) -> list[str | None]:
    """Arms whose rewards fell, while those of the others did not."""
    places = {encode(arm).decode(): i for i, arm in enumerate(arms)}
    starts = {day.start: i for i, day in enumerate(days)}
    asked = {
        bucket: own
        for bucket, own in counts.items()
        if bucket.arm in places and not bucket.metric and bucket.held_out != 1
        if bucket.start // DAY * DAY in starts
    }
    at = [(places[bucket.arm], starts[bucket.start // DAY * DAY]) for bucket in asked]
    sums = np.zeros((len(arms), len(days), 3))
    np.add.at(sums, tuple(np.array(at, int).reshape(-1, 2).T), _table(asked.values()))
    total = sums.sum(axis=0)
    found: list[str | None] = []
    for arm, mine in zip(arms, sums, strict=True):
        others = total - mine
        both = np.flatnonzero((mine[:, 0] > 0) & (others[:, 0] > 0))
        move = alarms.fell_alone(_daily(mine[both]), _daily(others[both]), len(arms))
        what = f"The best arms may be others: the rewards of {arm} fell, and not those of all,"
        found.append(_said(what, [days[i] for i in both], move))
    return found


def _table(days: Iterable[Counts]) -> FloatArray:
    """Rewards that count, their sum and that of their squares, in floats."""
    unit, square = 1 << BITS, 1 << 2 * BITS
    rows = [(own.counted, own.sum / unit, own.squares / square) for own in days]
    return np.array(rows).reshape(-1, 3)


def _daily(days: FloatArray) -> alarms.Daily:
    sizes, totals, _ = days.T
    n, total, squares = days.sum(axis=0)
    spread = max(squares - total**2 / max(n, 1.0), 0.0) / max(n - 1, 1.0)
    return alarms.Daily(totals / sizes, spread / sizes)


def _said(what: str, days: list[_Day], move: alarms.Move | None) -> str | None:
    if move is None:
        return None
    return f"{what} on {_date(days[move.day])}, from {move.before:.3g} to {move.after:.3g}."


def _date(day: _Day) -> str:
    return datetime.fromtimestamp(day.start, UTC).date().isoformat()


def _part(value: float) -> str:
    return f"{100 * value:.3g} %"
