"""Rows and agents as the messages that the service answers with."""

import math
from functools import reduce
from typing import Any

import msgspec
import numpy as np
from scipy.special import ndtri

from adats.models.core.types import Arm, FloatArray
from adats.models.prior_files import prior_to_dict
from adats.service.counters import RewardMoments, moments, of_rewards, tally
from adats.service.errors import DamagedStore
from adats.service.messages import (
    ExperimentInfo,
    Lift,
    PriorBelief,
    PriorBeliefPart,
    Report,
    TaskBelief,
    TaskBeliefPart,
)
from adats.service.served_experiment import ServedExperiment
from adats.service.snapshot import Snapshot
from adats.service.spec import parse
from adats.service.stores.interface import Bucket, Counts, ExperimentRow, ReadView

WIDTH = float(ndtri(0.975))  # of half an interval, in standard errors


def experiment_info(name: str, now: Snapshot, status: str) -> ExperimentInfo:
    return ExperimentInfo(
        name=name,
        spec=msgspec.to_builtins(now.spec),
        arms=None if now.arms is None else list(now.arms),
        retired=now.retired,
        state_version=now.version,
        prior_version=now.prior_version,
        status=status,
    )


def task_belief(task: str, served: ServedExperiment) -> TaskBelief:
    """What is believed of a task; `UnknownTask` if there is none."""
    belief, prior, stats = served.posterior(task), served.prior_of(task), served.stats(task)
    shares = _shares(belief.scale, prior.scale)
    counts = stats.arm_pulls
    pulls = [None] * len(shares) if counts is None else counts.tolist()
    rows = zip(
        _names(served, len(shares)),
        belief.mean.tolist(),
        belief.scale.tolist(),
        prior.mean.tolist(),
        prior.scale.tolist(),
        shares,
        (1 - share for share in shares),
        pulls,
        strict=True,
    )
    parts = [TaskBeliefPart(*row) for row in rows]
    return TaskBelief(task, parts, served.snapshot.version, served.snapshot.prior_version)


def prior_belief(served: ServedExperiment) -> PriorBelief:
    prior = served.snapshot.meta.task_prior()
    names = _names(served, prior.mean.size)
    parts = zip(names, prior.mean.tolist(), prior.scale.tolist(), strict=True)
    return PriorBelief(
        tasks=served.tasks,
        decisions=served.decisions,
        rewards=served.counted,
        log_evidence=served.snapshot.meta.log_evidence(),
        parts=[PriorBeliefPart(*part) for part in parts],
        prior=prior_to_dict(served.snapshot.meta),
        state_version=served.snapshot.version,
        prior_version=served.snapshot.prior_version,
    )


def report(view: ReadView, row: ExperimentRow, now: float) -> Report:
    """How an experiment does: the lift over its holdout, and what is still missing.

    All figures are as of `now`: decisions made up to `over` have a window that has ended.

    With a window, the lift is of those only, up to the first that is not settled yet: among others
    rewards that come early would be too many.
    """
    spec = parse(row.spec)
    over = None if spec.window is None else now - spec.window
    counted = _Counted(view, row, several=spec.size is not None)
    everything = counted.up_to(math.inf)
    ended = counted.up_to(-math.inf if over is None else over)
    total, past = (reduce(Counts.plus, own.values(), Counts()) for own in (everything, ended))
    if (total.decisions, total.counted) != (row.decisions, row.counted):
        raise DamagedStore(
            f"the store is damaged: the counters of {row.name!r} do not agree; restore a copy of it"
        )
    found = None
    if spec.holdout is not None:
        first = view.overdue(row.id, now)
        settled = everything if over is None else ended
        if first is not None:
            settled = counted.up_to(math.nextafter(first, -math.inf))
        none = Counts()
        found = lift(moments(settled.get(0, none)), moments(settled.get(1, none)))
    expired = past.decisions - past.rewarded
    return Report(
        decisions=total.decisions,
        tasks=row.tasks,
        counted=total.counted,
        missing=total.decisions - total.rewarded - expired,
        expired=expired,
        explored=total.explored,
        lift=found,
        state_version=row.version,
        prior_version=row.prior_version,
    )


class _Counted:
    """The counters of an experiment; where a moment is within a bucket, its decisions."""

    def __init__(self, view: ReadView, row: ExperimentRow, *, several: bool) -> None:
        self._view, self._row, self._several = view, row, several
        self._counts = of_rewards(view.counts(row.id), several=several)

    def up_to(self, moment: float) -> dict[int, Counts]:
        """Of decisions that were made until then, by whether they were held out."""
        found: dict[int, Counts] = {}
        cut = None
        for bucket, counts in self._counts.items():
            if bucket.start + bucket.span <= moment:
                found[bucket.held_out] = found.get(bucket.held_out, Counts()).plus(counts)
            elif bucket.start <= moment:
                cut = bucket.start
        if cut is not None:
            some: dict[Bucket, Counts] = {}
            until = math.nextafter(moment, math.inf)
            for decision in self._view.decisions(self._row.id, cut, until):
                tally(some, decision, self._row.days_until)
            for bucket, counts in of_rewards(some, several=self._several).items():
                found[bucket.held_out] = found.get(bucket.held_out, Counts()).plus(counts)
        return found


def lift(policy: RewardMoments, holdout: RewardMoments) -> Lift:
    """Decisions are held out by chance alone, so the difference of the means is unbiased."""
    means = [tally.mean if tally.size else None for tally in (policy, holdout)]
    estimate = low = high = None
    if policy.size and holdout.size:
        estimate = policy.mean - holdout.mean
    if estimate is not None and policy.size > 1 and holdout.size > 1:
        errors = [tally.squares / (tally.size - 1) / tally.size for tally in (policy, holdout)]
        half = WIDTH * math.sqrt(sum(errors))
        low, high = estimate - half, estimate + half
    return Lift(estimate, low, high, means[0], policy.size, means[1], holdout.size)


def _names(served: ServedExperiment, size: int) -> list[Arm]:
    """Of arms, or the numbers of coefficients."""
    arms = None if served.snapshot.dim else served.snapshot.all_arms
    return list(range(size)) if arms is None else list(arms)


def _shares(scale: FloatArray, before: FloatArray) -> list[float]:
    """How much of each belief comes from its own data: the part of the variance that it took."""
    with np.errstate(divide="ignore", invalid="ignore"):
        left: Any = np.where(
            np.isinf(before), np.where(np.isinf(scale), 1.0, 0.0), (scale / before) ** 2
        )
    left = np.where(before == 0, 1.0, left)
    shares: list[float] = (1 - np.clip(left, 0.0, 1.0)).tolist()
    return shares
