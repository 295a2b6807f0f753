"""What the pages show of an experiment, as values: from counters and noted beliefs, not the log."""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeVar

import msgspec
import numpy as np

from adats.models.core.types import FloatArray
from adats.service import answers, reports
from adats.service.counters import DAY, HOUR, by_time
from adats.service.messages import Lift, Report, TaskBelief
from adats.service.served_experiment import ServedExperiment
from adats.service.snapshot import Snapshot
from adats.service.spec import ExperimentSpec
from adats.service.stores.interface import (
    BeliefRow,
    Bucket,
    Counts,
    DecisionRow,
    ExperimentRow,
    ReadView,
)

MOST_POINTS = 60  # of a line
AGES = ((HOUR, "an hour"), (DAY, "a day"), (7 * DAY, "a week"))
LAST_DECISIONS = 20
MOST_TASKS = 100

T = TypeVar("T")


class Period(NamedTuple):
    """Decisions of some hours or days."""

    end: float
    by_arm: dict[str, int]  # decisions that were not held out, by arm in JSON
    policy: Counts  # of all that were not held out
    holdout: Counts


class Beliefs(NamedTuple):
    """What was believed of a new task, over time."""

    times: list[float]
    tasks: list[int]
    mean: FloatArray  # a row for each time
    scale: FloatArray
    best: FloatArray | None


class TaskSummary(NamedTuple):
    """A task, in the arm that it has used most."""

    task: str
    arm: int
    average: float  # of its own rewards
    believed: float


class ExperimentContent(NamedTuple):
    row: ExperimentRow
    spec: ExperimentSpec
    arms: list[str]  # or coefficients
    report: Report
    periods: list[Period]
    lifts: list[Lift]  # at the end of each period, of all until then
    beliefs: Beliefs | None
    pending: list[tuple[str, int]]  # decisions without a reward, by age
    unlikely: int  # decisions whose propensity was below the floor
    tasks: list[TaskSummary]


def experiment_content(view: ReadView, row: ExperimentRow, now: float) -> ExperimentContent:
    served = ServedExperiment(row, view)
    spec = served.spec
    counts = view.counts(row.id)
    periods = periods_of(counts, several=spec.size is not None)
    last = [period.policy.plus(period.holdout) for period in periods]
    return ExperimentContent(
        row=row,
        spec=spec,
        arms=[str(name) for name in answers.names_of(served)],
        report=reports.report_of(view, row, served.snapshot, counts, now),
        periods=periods,
        lifts=[] if spec.holdout is None else _lifts(periods, served.snapshot),
        beliefs=_beliefs(view.beliefs(row.id)),
        pending=_pending(counts, now, several=spec.size is not None),
        unlikely=sum(own.unlikely for own in last),
        tasks=_tasks(view, served, now),
    )


def decisions_a_day(counts: dict[Bucket, Counts], now: float, *, several: bool) -> int:
    """In the last 24 hours."""
    return sum(
        own.decisions
        for bucket, own in by_time(counts, several=several).items()
        if bucket.start + bucket.span > now - DAY and not bucket.metric
    )


def periods_of(counts: dict[Bucket, Counts], *, several: bool) -> list[Period]:
    """At most as many as a figure has places for, all of the same length."""
    own = {b: n for b, n in by_time(counts, several=several).items() if not b.metric}
    arms = {b: n for b, n in by_time(counts, several=False).items() if not b.metric}
    if not own:
        return []
    first = min(bucket.start for bucket in own)
    last = max(bucket.start + bucket.span for bucket in own)
    longest = max(bucket.span for bucket in own)
    length = longest * -(-(last - first) // (MOST_POINTS * longest))
    found: dict[int, Period] = {}
    for bucket, n in own.items():
        i = (bucket.start - first) // length
        end = min(first + (i + 1) * length, last)
        period = found.get(i) or Period(end, {}, Counts(), Counts())
        if bucket.held_out == 1:
            found[i] = period._replace(holdout=period.holdout.plus(n))
        else:
            found[i] = period._replace(policy=period.policy.plus(n))
    for bucket, n in arms.items():
        by_arm = found[(bucket.start - first) // length].by_arm
        if bucket.held_out != 1:
            by_arm[bucket.arm] = by_arm.get(bucket.arm, 0) + n.decisions
    return [found[i] for i in sorted(found)]


def _lifts(periods: Iterable[Period], now: Snapshot) -> list[Lift]:
    policy = holdout = Counts()
    found = []
    for period in periods:
        policy, holdout = policy.plus(period.policy), holdout.plus(period.holdout)
        sides = reports.sides_of(policy, holdout, now.spec)
        found.append(reports.lift_of(sides, zero_one=reports.zero_one(now)))
    return found


def _beliefs(rows: Iterable[BeliefRow]) -> Beliefs | None:
    kept = thinned(list(rows))
    if not kept:
        return None
    size = max(len(row.mean) for row in kept) // 8  # arms may have been added since
    best = None if kept[-1].best is None else _filled([row.best or b"" for row in kept], size)
    return Beliefs(
        [row.time for row in kept],
        [row.tasks for row in kept],
        _filled([row.mean for row in kept], size),
        _filled([row.scale for row in kept], size),
        best,
    )


def _filled(rows: list[bytes], size: int) -> FloatArray:
    found = np.full((len(rows), size), np.nan)
    for own, row in zip(found, rows, strict=True):
        values = np.frombuffer(row)
        own[: values.size] = values
    return found


def thinned(several: Sequence[T]) -> list[T]:
    """Some of them, the first and the last too."""
    if len(several) <= MOST_POINTS:
        return list(several)
    places = np.linspace(0, len(several) - 1, MOST_POINTS).round().astype(int)
    return [several[i] for i in places]


def _pending(counts: dict[Bucket, Counts], now: float, *, several: bool) -> list[tuple[str, int]]:
    found = dict.fromkeys([f"for up to {name}" for _, name in AGES] + ["for longer"], 0)
    for bucket, own in by_time(counts, several=several).items():
        if not bucket.metric:
            age = now - bucket.start - bucket.span / 2
            name = next((f"for up to {name}" for limit, name in AGES if age <= limit), "for longer")
            found[name] += own.decisions - own.rewarded
    return list(found.items())


def _tasks(view: ReadView, served: ServedExperiment, now: float) -> list[TaskSummary]:
    """Those with most rewards."""
    found = []
    for task in view.largest_tasks(served.id, MOST_TASKS):
        stats = served.stats(task)
        if stats.arm_pulls is None or stats.arm_averages is None:
            return []
        arm = int(stats.arm_pulls.argmax())
        average = float(stats.arm_averages[arm])
        if not math.isnan(average):
            believed = float(served.posterior(task, now).mean[arm])
            found.append(TaskSummary(task, arm, average, believed))
    return found


class TaskContent(NamedTuple):
    belief: TaskBelief
    averages: list[float]  # of its own rewards, by arm; NaN where there are none
    decisions: list[DecisionRow]  # the last, the newest first


def task_content(view: ReadView, row: ExperimentRow, task: str, now: float) -> TaskContent:
    served = ServedExperiment(row, view)
    belief, own = answers.task_belief(task, served, now), served.stats(task).arm_averages
    return TaskContent(
        belief,
        [math.nan] * len(belief.parts) if own is None else own.tolist(),
        view.decisions_of(row.id, task, LAST_DECISIONS)[::-1],
    )


def arm_name(text: str) -> str:
    """Of an arm as counters have it."""
    return str(msgspec.json.decode(text))
