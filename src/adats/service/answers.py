"""Rows and agents as the messages that the service answers with."""

import math
from typing import Any

import msgspec
import numpy as np
from scipy.special import ndtri

from adats.models.core.types import Arm, FloatArray
from adats.models.prior_files import prior_to_dict
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
from adats.service.spec import parse
from adats.service.stores.interface import ExperimentRow, ReadView, RewardMoments

WIDTH = float(ndtri(0.975))  # of half an interval, in standard errors


def experiment_info(name: str, served: ServedExperiment) -> ExperimentInfo:
    return ExperimentInfo(
        name=name,
        spec=msgspec.to_builtins(served.spec),
        arms=None if served.arms is None else list(served.arms),
        retired=served.retired,
        state_version=served.version,
        prior_version=served.prior_version,
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
    return TaskBelief(task, parts, served.version, served.prior_version)


def prior_belief(
    served: ServedExperiment, *, tasks: int, decisions: int, rewards: int
) -> PriorBelief:
    prior = served.meta.task_prior()
    names = _names(served, prior.mean.size)
    parts = zip(names, prior.mean.tolist(), prior.scale.tolist(), strict=True)
    return PriorBelief(
        tasks=tasks,
        decisions=decisions,
        rewards=rewards,
        log_evidence=served.meta.log_evidence(),
        parts=[PriorBeliefPart(*part) for part in parts],
        prior=prior_to_dict(served.meta),
        state_version=served.version,
        prior_version=served.prior_version,
    )


def report(view: ReadView, row: ExperimentRow, now: float) -> Report:
    """How an experiment does: the lift over its holdout, and what is still missing.

    All figures are as of `now`: decisions made up to `over` have a window that has ended.

    With a window, the lift is of those only, up to the first that is not settled yet: among others
    rewards that come early would be too many.
    """
    spec = parse(row.spec)
    over = None if spec.window is None else now - spec.window
    summary = view.decision_counts(row.id, over)
    found = None
    if spec.holdout is not None:
        first = view.overdue(row.id, now)
        settled = over if first is None else math.nextafter(first, -math.inf)
        reward_moments = view.reward_moments(row.id, settled)
        found = lift(
            reward_moments.get(0, RewardMoments(0, 0.0, 0.0)),
            reward_moments.get(1, RewardMoments(0, 0.0, 0.0)),
        )
    return Report(*summary, found, row.version, row.prior_version)


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
    arms = None if served.dim else served.all_arms
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
