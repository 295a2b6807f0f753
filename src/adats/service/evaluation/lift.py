"""The lift of a policy over its holdout, from sums of rewards: see docs/math/lift.md.

Everything takes arrays as well as numbers; what cannot be said yet is NaN.
"""

from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtri, stdtrit

from adats.service.evaluation.sequences import (
    ALPHA,
    Interval,
    asymptotic_factor,
    bounded_sequence,
)

FEW = 20  # held-out successes: below, intervals for 0/1 rewards are exact
FEW_NUMBERS = 60  # held-out rewards that are not 0: below, there is no interval for numbers
TASK_RATE = 0.03  # where the interval for new tasks is narrowest: at some 270 tasks
CAUTION = 350, 1000  # its weight is the first over the sum of the second and the same


class RewardMoments(NamedTuple):
    """Rewards that count of the policy's decisions, or of those that were held out."""

    size: Any
    mean: Any
    squares: Any  # summed squared deviations from the mean
    nonzero: Any

    def at_least(self, other: "RewardMoments") -> "RewardMoments":
        more = self.size * other.squares / np.maximum(other.size, 1) - self.squares
        part = CAUTION[0] / (CAUTION[1] + self.nonzero)
        return self._replace(squares=self.squares + part * np.maximum(more, 0.0))


class Sides(NamedTuple):
    """Both, and the share that is held out by plan."""

    policy: RewardMoments
    holdout: RewardMoments
    share: Any

    @property
    def size(self) -> Any:
        return self.policy.size + self.holdout.size

    @property
    def estimate(self) -> Any:
        return self.policy.mean - self.holdout.mean

    @property
    def errors(self) -> tuple[Any, Any]:
        """Squared standard errors of the two means, by the shares that came about."""
        own, held = (side.squares / np.maximum(side.size, 1) ** 2 for side in self[:2])
        return own, held

    def as_arrays(self) -> "Sides":
        policy, holdout = (
            RewardMoments(*(np.asarray(x, np.float64) for x in own)) for own in self[:2]
        )
        return Sides(policy, holdout, np.asarray(self.share, np.float64))

    def cautious(self) -> "Sides":
        """Few numbers with heavy tails vary less than they should: the more so the fewer they are,
        a side is taken to vary like the other if that varies more."""
        policy, holdout = self.policy, self.holdout
        return self._replace(policy=policy.at_least(holdout), holdout=holdout.at_least(policy))


class LiftIntervals(NamedTuple):
    estimate: Any
    safe: Interval  # holds at every look
    fixed_time: Interval  # holds at one look, whose time was fixed before
    relative: Any  # the lift as a part of the holdout's mean
    relative_safe: Interval


def lift(sides: Sides, *, zero_one: bool) -> LiftIntervals:
    """All that is said of the decisions that were made. `zero_one`: rewards are 0 or 1."""
    sides = sides.as_arrays()
    with np.errstate(all="ignore"):
        asymptotic, relative = _asymptotic(sides if zero_one else sides.cautious(), zero_one)
        few = _events(sides, zero_one) < (FEW if zero_one else FEW_NUMBERS)
        if zero_one:
            exact, exact_relative = _exact(sides)
        else:
            nothing = np.full(np.shape(sides.estimate), np.nan)
            exact = exact_relative = Interval(nothing, nothing)
        return LiftIntervals(
            sides.estimate,
            Interval(*(np.where(few, *pair) for pair in zip(exact, asymptotic, strict=True))),
            fixed_time(sides.policy, sides.holdout),
            sides.estimate / sides.holdout.mean,
            Interval(
                *(np.where(few, *pair) for pair in zip(exact_relative, relative, strict=True))
            ),
        )


def fixed_time(policy: RewardMoments, holdout: RewardMoments) -> Interval:
    """The difference of two means with a normal interval."""
    with np.errstate(all="ignore"):
        errors = [
            np.where(side.size > 1, side.squares / (side.size - 1) / side.size, np.nan)
            for side in (policy, holdout)
        ]
        half = ndtri(1 - ALPHA / 2) * np.sqrt(errors[0] + errors[1])
        estimate = policy.mean - holdout.mean
        return Interval(estimate - half, estimate + half)


def _events(sides: Sides, zero_one: bool) -> Any:
    """What an average is safe by: rewards that are not 0, or the rarer of 0 and 1."""
    found = np.minimum(sides.policy.nonzero, sides.holdout.nonzero)
    if zero_one:
        for side in (sides.policy, sides.holdout):
            found = np.minimum(found, side.size - side.nonzero)
    return found


def _exact(sides: Sides) -> tuple[Interval, Interval]:
    """From the two sums, at half the error each, divided by the known shares."""
    share = sides.share
    bounds = []
    for side, part in ((sides.policy, 1 - share), (sides.holdout, share)):
        found = bounded_sequence(side.nonzero, sides.size, ALPHA / 2)
        bounds.append(Interval(*(np.minimum(end / part, 1.0) for end in found)))
    policy, holdout = bounds
    return (
        Interval(policy.low - holdout.high, policy.high - holdout.low),
        Interval(
            policy.low / holdout.high - 1,
            np.where(holdout.low > 0, policy.high / holdout.low - 1, np.nan),
        ),
    )


def _asymptotic(sides: Sides, zero_one: bool) -> tuple[Interval, Interval]:
    """The difference; and the ratio, by Fieller: which r leave policy − (1 + r) holdout at 0?"""
    factor = asymptotic_factor(_events(sides, zero_one))
    own, held = sides.errors
    half = factor * np.sqrt(own + held)
    difference = Interval(sides.estimate - half, sides.estimate + half)
    a = sides.holdout.mean**2 - factor**2 * held  # of a quadratic in 1 + r
    b = sides.policy.mean * sides.holdout.mean
    c = sides.policy.mean**2 - factor**2 * own
    root = np.sqrt(np.where(a > 0, b * b - a * c, np.nan))
    ratio = Interval((b - root) / a - 1, (b + root) / a - 1)
    return difference, ratio


def lift_new_tasks(sides: Sides, groups: Sides, tasks: Any, safe: Interval) -> Interval:
    """For tasks like these that were not met yet, from how much the lift differs between tasks.

    Tasks are in groups by chance, whose sides have one more axis, the last. They are what is
    averaged here; the interval is never within the safe one.
    """
    sides, n = sides.as_arrays(), groups.size
    with np.errstate(all="ignore"):
        far = _weighted(groups.policy, sides.policy.mean, 1 - sides.share)
        far -= _weighted(groups.holdout, sides.holdout.mean, sides.share)
        count = (n > 0).sum(axis=-1)
        like = n.sum(axis=-1) ** 2 / (n**2).sum(axis=-1)  # so many groups of one size
        error = np.sqrt(like / (like - 1) * (far**2).sum(axis=-1)) / sides.size
        few = stdtrit(np.maximum(like - 1, 1), 1 - ALPHA / 2) / ndtri(1 - ALPHA / 2)
        half = asymptotic_factor(tasks, rate=TASK_RATE) * few * error
        half = np.where(count > 1, half, np.nan)
        return Interval(
            np.minimum(safe.low, sides.estimate - half),
            np.maximum(safe.high, sides.estimate + half),
        )


def _weighted(groups: RewardMoments, mean: Any, part: Any) -> Any:
    """Sums of scores by group, less what they would be if all were alike."""
    centre = np.asarray(mean)[..., None]
    return np.where(groups.size > 0, groups.size * (groups.mean - centre), 0.0) / part
