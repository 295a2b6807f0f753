"""The report of an experiment, from its counters and from what is believed."""

import math
from functools import partial, reduce
from typing import Any, cast

import numpy as np

from adats.models.core.types import Arm
from adats.service.alarms import alarms_of
from adats.service.counters import by_time, moments, tally
from adats.service.errors import DamagedStore
from adats.service.evaluation import lift as lifts
from adats.service.evaluation import sequences, stopping
from adats.service.evaluation.lift import RewardMoments, Sides
from adats.service.messages import ArmStanding, Lift, LiftEstimate, LiftInterval, Report, Stop
from adats.service.served_experiment import ServedExperiment
from adats.service.snapshot import Snapshot
from adats.service.spec import ExperimentSpec, how_rewards_age
from adats.service.stores.interface import Bucket, Counts, ExperimentRow, ReadView

NONE = Counts()
_Sums = dict[tuple[str, int], Counts]  # by metric (none: the reward) and held out


def report(view: ReadView, row: ExperimentRow, now: float) -> Report:
    """How an experiment does."""
    snapshot = ServedExperiment(row, view).snapshot
    return report_of(view, row, snapshot, view.counts(row.id), now)


def report_of(
    view: ReadView, row: ExperimentRow, snapshot: Snapshot, counts: dict[Bucket, Counts], now: float
) -> Report:
    """From its counters: the lift over its holdout, whether to stop, what is missing.

    All figures are as of `now`: decisions made up to `over` have a window that has ended.

    With a window, the lift is of those only, up to the first that is not settled yet: among others
    rewards that come early would be too many.
    """
    spec, snapshot = snapshot.spec, snapshot.at(now)
    over = None if spec.window is None else now - spec.window
    counted = _Counted(view, row, counts, several=spec.size is not None)
    everything = counted.up_to(math.inf)
    ended = counted.up_to(-math.inf if over is None else over)
    total, past = (
        reduce(Counts.plus, (n for (metric, _), n in own.items() if not metric), NONE)
        for own in (everything, ended)
    )
    if (total.decisions, total.counted) != (row.decisions, row.counted):
        raise DamagedStore(
            f"the store is damaged: the counters of {row.name!r} do not agree; restore a copy of it"
        )
    settled = everything if over is None else ended
    first = view.overdue(row.id, now)
    if first is not None:
        settled = counted.up_to(math.nextafter(first, -math.inf))
    found = new_tasks = None
    if spec.holdout is not None:
        sides = _sides(settled, "", spec)
        found, new_tasks = _lifts(sides, _groups(counts, spec), row.tasks, zero_one(snapshot))
    expired = past.decisions - past.rewarded
    stop, sentence = _stop(snapshot, found)
    return Report(
        decisions=total.decisions,
        tasks=row.tasks,
        counted=total.counted,
        missing=total.decisions - total.rewarded - expired,
        expired=expired,
        explored=total.explored,
        lift=found,
        lift_new_tasks=new_tasks,
        metrics={
            name: lift_of(_sides(settled, name, spec), zero_one=False) for name in spec.metrics
        },
        stop=stop,
        sentence=sentence,
        alarms=alarms_of(
            counts, spec, snapshot.all_arms, stop, now, partial(view.decisions, row.id)
        ),
        state_version=row.version,
        prior_version=row.prior_version,
        aging=how_rewards_age(spec),
    )


class _Counted:
    """The counters of an experiment; where a moment is within a bucket, its decisions."""

    def __init__(
        self, view: ReadView, row: ExperimentRow, counts: dict[Bucket, Counts], *, several: bool
    ) -> None:
        self._view, self._row, self._several = view, row, several
        self._counts = by_time(counts, several=several)

    def up_to(self, moment: float) -> _Sums:
        """Of decisions that were made until then, by metric and whether they were held out."""
        found: _Sums = {}
        cut = None
        for bucket, counts in self._counts.items():
            if bucket.start + bucket.span <= moment:
                place = bucket.metric, bucket.held_out
                found[place] = found.get(place, NONE).plus(counts)
            elif bucket.start <= moment:
                cut = bucket.start
        if cut is not None:
            some: dict[Bucket, Counts] = {}
            until = math.nextafter(moment, math.inf)
            for decision in self._view.decisions(self._row.id, cut, until):
                tally(some, decision, self._row.days_until)
            for bucket, counts in by_time(some, several=self._several).items():
                place = bucket.metric, bucket.held_out
                found[place] = found.get(place, NONE).plus(counts)
        return found


# the lift


def zero_one(now: Snapshot) -> bool:
    """Whether rewards are 0 or 1 and nothing else."""
    return not now.blank.stats.REWARDS_ADD


def _sides(sums: _Sums, metric: str, spec: ExperimentSpec) -> Sides:
    """Without a holdout all are the policy's."""
    own = sums.get((metric, -1 if spec.holdout is None else 0), NONE)
    return sides_of(own, sums.get((metric, 1), NONE), spec)


def sides_of(policy: Counts, holdout: Counts, spec: ExperimentSpec) -> Sides:
    share = 0.0 if spec.holdout is None else spec.holdout.share
    return Sides(moments(policy), moments(holdout), share)


def lift_of(sides: Sides, *, zero_one: bool) -> Lift:
    """What is said at one time, of all that was counted until then."""
    return _lift(sides, lifts.lift(sides, zero_one=zero_one))


def _lift(sides: Sides, found: lifts.LiftIntervals) -> Lift:
    policy, holdout = sides.policy, sides.holdout
    both = bool(policy.size and holdout.size)
    return Lift(
        estimate=_known(found.estimate) if both else None,
        low=_known(found.safe.low) if both else None,
        high=_known(found.safe.high) if both else None,
        policy_mean=policy.mean if policy.size else None,
        policy_decisions=policy.size,
        holdout_mean=holdout.mean if holdout.size else None,
        holdout_decisions=holdout.size,
        fixed_time=LiftInterval(*map(_known, found.fixed_time)),
        relative=_estimate(found.relative, found.relative_safe)
        if both
        else LiftEstimate(None, None, None),
    )


def _lifts(sides: Sides, groups: Sides, tasks: int, zero_one: bool) -> tuple[Lift, LiftEstimate]:
    found = lifts.lift(sides, zero_one=zero_one)
    new_tasks = lifts.lift_new_tasks(sides, groups, tasks, found.safe)
    said = _lift(sides, found)
    if said.estimate is None:
        return said, LiftEstimate(None, None, None)
    return said, _estimate(found.estimate, new_tasks)


def _groups(counts: dict[Bucket, Counts], spec: ExperimentSpec) -> Sides:
    """Of groups of tasks, in arrays."""
    names = sorted({bucket.arm for bucket in counts if not bucket.span})
    own = {(bucket.arm, bucket.held_out): n for bucket, n in counts.items() if not bucket.span}
    sides = []
    for held_out in (0, 1):
        found = [moments(own.get((name, held_out), NONE)) for name in names]
        sides.append(RewardMoments(*np.array(found).reshape(-1, len(RewardMoments._fields)).T))
    return Sides(sides[0], sides[1], 0.0 if spec.holdout is None else spec.holdout.share)


def _known(value: Any) -> float | None:
    return float(value) if np.isfinite(value) else None


def _estimate(value: Any, interval: sequences.Interval) -> LiftEstimate:
    return LiftEstimate(_known(value), _known(interval.low), _known(interval.high))


# whether to stop


def _stop(now: Snapshot, lift: Lift | None) -> tuple[Stop | None, str]:
    """From the meta-posterior, where arms have names; else from the lift."""
    spec, arms = now.spec, now.setup.arms
    if arms.count is None or arms.come_with_decisions or now.meta.has_design or spec.size:
        return None, _sentence_of(lift)
    control = None if spec.control is None else arms.index(cast(Arm, spec.control))
    kept = sorted({*arms.open, *(() if control is None else (control,))})
    rng = np.random.default_rng(now.version)
    draws = stopping.average_rewards(now.meta, rng, features=arms.features)[:, kept]
    names = [cast(Arm, arms.name(arm)) for arm in kept]
    at = stopping.standing(
        draws, names, None if control is None else kept.index(control), spec.worth
    )
    best = [ArmStanding(name, chance) for name, chance in zip(names, at.best, strict=True)]
    return Stop(best, at.loss, at.settled), at.sentence


def _sentence_of(lift: Lift | None) -> str:
    if lift is None or lift.low is None or lift.high is None or lift.low <= 0 <= lift.high:
        return "Keep running."
    how = "better" if lift.low > 0 else "worse"
    ends = sorted(abs(end) for end in (lift.low, lift.high))
    span = f"{stopping.rounded(ends[0], down=True)} to {stopping.rounded(ends[1])}"
    return f"The policy is {how} than the control by {span} a decision."
