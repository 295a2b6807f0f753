"""Rows and agents as the messages that the service answers with, and what stands in for them."""

from typing import Any

import msgspec
import numpy as np

from adats.agents.aging import NEVER
from adats.models.core.types import Arm, FloatArray
from adats.models.prior_files import prior_to_dict
from adats.service.errors import ServiceError, refusal, text_of
from adats.service.field_types import MOST_ARMS
from adats.service.messages import (
    DecisionRequest,
    ExperimentInfo,
    Fallback,
    PriorBelief,
    PriorBeliefPart,
    RefusedDecision,
    TaskBelief,
    TaskBeliefPart,
)
from adats.service.served_experiment import ServedExperiment
from adats.service.snapshot import Snapshot
from adats.service.spec import arms_of_control, how_rewards_age
from adats.service.stores.interface import Action

# in place of a decision that is not made: the control action, if it is open


def instead(
    error: ServiceError, control: Action | None, asked: DecisionRequest
) -> Fallback | RefusedDecision:
    """The control action with the reason; or a refusal, if the request does not leave it open."""
    if control is None or not _is_open(control, asked):
        return RefusedDecision(asked.decision_id, asked.task, *refusal(error))
    return Fallback(text_of(error), asked.decision_id, asked.task, control)


def _is_open(control: Action, request: DecisionRequest) -> bool:
    arms, rows, allowed = arms_of_control(control), request.features, request.allowed
    if rows is not None and any(arm in range(len(rows), MOST_ARMS) for arm in arms):
        return False
    return allowed is None or all(arm in allowed for arm in arms)


# what is believed


def experiment_info(name: str, now: Snapshot, status: str) -> ExperimentInfo:
    return ExperimentInfo(
        name=name,
        spec=msgspec.to_builtins(now.spec),
        arms=None if now.arms is None else list(now.arms),
        retired=now.retired,
        state_version=now.version,
        prior_version=now.prior_version,
        status=status,
        aging=how_rewards_age(now.spec),
    )


def task_belief(task: str, served: ServedExperiment, now: float = NEVER) -> TaskBelief:
    """What is believed of a task now; `UnknownTask` if there is none."""
    belief, prior = served.posterior(task, now), served.prior_of(task, now)
    shares = _shares(belief.scale, prior.scale)
    counts = served.present(task, now)[1].stats.arm_pulls
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


def prior_belief(served: ServedExperiment, now: float = NEVER) -> PriorBelief:
    meta = served.snapshot.at(now).meta
    prior = meta.task_prior()
    names = _names(served, prior.mean.size)
    parts = zip(names, prior.mean.tolist(), prior.scale.tolist(), strict=True)
    return PriorBelief(
        tasks=served.tasks,
        decisions=served.decisions,
        rewards=served.counted,
        log_evidence=meta.log_evidence(),
        parts=[PriorBeliefPart(*part) for part in parts],
        prior=prior_to_dict(meta),
        state_version=served.snapshot.version,
        prior_version=served.snapshot.prior_version,
    )


def names_of(served: ServedExperiment) -> list[Arm]:
    return _names(served, served.snapshot.meta.task_prior().mean.size)


def _names(served: ServedExperiment, size: int) -> list[Arm]:
    """Of arms, or the numbers of coefficients."""
    now = served.snapshot
    arms = None if now.dim and now.meta.arms is None else now.all_arms
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
