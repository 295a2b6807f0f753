"""What a fixed policy would have earned, from the log of another whose propensities are known."""

import warnings
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy.special import ndtri, stdtrit

from adats.models.core import checks
from adats.models.core.types import FloatArray, IntArray

FEW = 0.1  # rows worth a smaller share of their number bring a warning
FAR = 4.0  # and so does a mean weight that is more standard errors from 1


class Estimate(NamedTuple):
    """The mean reward of a policy, with an interval and how much of the log it rests on."""

    value: float
    low: float
    high: float
    se: float
    effective_sample_size: float  # (Σw)² / Σw²: how many rows with equal weights are worth as much
    n: int  # rows used
    warnings: tuple[str, ...]


def evaluate(
    rewards: Any,
    propensities: Any,
    target_probabilities: Any,
    *,
    tasks: Sequence[Any] | None = None,
    method: Literal["ips", "snips"] = "ips",
    confidence: float = 0.95,
) -> Estimate:
    """The value of a policy that does not depend on the log, by inverse propensity scoring.

    One entry a row of the log: its reward, the probability with which the log's policy took its
    action, and that with which the policy in question would have. `ips` is unbiased. `snips`
    divides by the sum of the weights: consistent, and steadier where rewards are far from 0.

    Without `tasks` the value is that in the tasks of the log. With them, one name a row, it is
    that in tasks of their kind, and the interval allows for the choice of tasks.

    >>> log = evaluate([1.0, 0.0, 1.0, 0.5], [0.5, 0.5, 0.8, 0.2], [1.0, 0.0, 0.8, 0.2])
    >>> log.value, log.n
    (0.875, 4)
    """
    reward = checks.array("rewards", rewards, ndim=1)
    propensity = checks.array("propensities", propensities, ndim=1)
    target = checks.array("target_probabilities", target_probabilities, ndim=1)
    group = np.arange(reward.size) if tasks is None else _numbered(tasks)
    _check(reward, propensity, target, group, method, confidence)
    doubts = []
    free = (propensity < 1) | (target == 1)
    if not free.all():
        doubts.append(
            f"{(~free).sum()} of {free.size} rows are left out: what was certain to be chosen "
            "(forced exploration, a deterministic policy) says nothing about other actions"
        )
    group = np.unique(group[free], return_inverse=True)[1]
    reward, propensity = reward[free], propensity[free]
    weight = target[free] / propensity
    if not weight.any():
        raise ValueError("the policy never takes an action of the log: it cannot be evaluated")
    parts = weight if method == "snips" else np.ones(weight.size)
    value = float(weight @ reward / parts.sum())
    residual = np.bincount(group, weight * reward - value * parts) / parts.sum()
    count = residual.size
    if count < 2:
        raise ValueError(f"an interval needs at least 2 rows, or 2 tasks; got {count}")
    se = float(np.sqrt(count / (count - 1) * (residual @ residual)))
    level = (1 + confidence) / 2
    # Bernstein's second term, for weights larger than any that were seen: see the guide
    beyond = float(ndtri(level)) ** 2 / 3 * float(np.abs(residual).max())
    half = float(stdtrit(count - 1, level)) * se + beyond
    effective = float(weight.sum() ** 2 / (weight @ weight))
    doubts += _doubts(weight, effective, float(propensity.min()))
    for text in doubts:
        warnings.warn(text, stacklevel=2)
    return Estimate(value, value - half, value + half, se, effective, weight.size, tuple(doubts))


def _doubts(weight: FloatArray, effective: float, least: float) -> list[str]:
    doubts = []
    if effective < FEW * weight.size:
        doubts.append(
            f"{weight.size} rows are worth {effective:.1f}: propensities go down to {least:.1e}, "
            f"weights up to {weight.max():.3g}, so the interval may be too narrow; a floor under "
            "the propensities of the log would help"
        )
    mean, se = weight.mean(), weight.std() / np.sqrt(weight.size)
    if abs(mean - 1) > FAR * se + checks.ROUND_OFF:
        doubts.append(
            f"the weights average {mean:.3g} and should average 1: the log hardly ever takes some "
            "action of the policy, or the propensities are not those of the log"
        )
    return doubts


def _check(
    reward: FloatArray,
    propensity: FloatArray,
    target: FloatArray,
    group: IntArray,
    method: str,
    confidence: float,
) -> None:
    sizes = (reward.size, propensity.size, target.size, group.size)
    if len(set(sizes)) > 1:
        raise ValueError(f"rewards, propensities, targets and tasks differ in length: {sizes}")
    if not reward.size:
        raise ValueError("the log has no rows")
    outside = propensity[(propensity <= 0) | (propensity > 1)]
    if outside.size:
        raise ValueError(f"propensities must be above 0 and at most 1, got {outside[0]}")
    outside = target[(target < 0) | (target > 1)]
    if outside.size:
        raise ValueError(f"target_probabilities must be between 0 and 1, got {outside[0]}")
    if (propensity == 1).all():
        raise ValueError(
            "all propensities are 1: the log of a deterministic policy says nothing about others; "
            "log with a floor under the propensities"
        )
    if method not in ("ips", "snips"):
        raise ValueError(f"method must be 'ips' or 'snips', got {method!r}")
    if not 0 < checks.number("confidence", confidence) < 1:
        raise ValueError(f"confidence must be between 0 and 1, got {confidence}")


def _numbered(tasks: Sequence[Any]) -> IntArray:
    numbers: dict[Any, int] = {}
    return np.array([numbers.setdefault(task, len(numbers)) for task in tasks], dtype=np.intp)
