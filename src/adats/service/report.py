"""How an experiment does: the lift over its holdout, and what is still missing."""

import math

from scipy.special import ndtri

from adats.service.messages import Lift, Report
from adats.service.spec import parse
from adats.service.stores.interface import ExperimentRow, ReadView, RewardMoments

WIDTH = float(ndtri(0.975))


def report(view: ReadView, row: ExperimentRow, now: float) -> Report:
    """All figures are as of `now`: decisions made up to `over` have a window that has ended.

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
