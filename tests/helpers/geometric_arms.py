"""A family that is not shipped: how often it fails before it succeeds."""

import numpy as np

from adats.models import ArmStats, ExponentialFamily, FamilyArms, register_arms


class FailureStats(ArmStats):
    LEAST, WHOLE_REWARDS, WANTED = 0.0, True, "0, 1, 2, ..."


@register_arms
class GeometricArms(FamilyArms):
    """A reward is y = 0, 1, 2, ... with chance (1 - p) pʸ, and eta = log p."""

    FAMILY = ExponentialFamily(
        "geometric",
        log_partition=lambda eta: -np.log(-np.expm1(eta)),
        mean=lambda eta: 1 / np.expm1(-eta),
        domain=(-np.inf, 0.0),
        rewards=FailureStats,
    )

    @staticmethod
    def reward_at(mean, point):
        return float(np.floor(np.log1p(-point) / -np.log1p(1 / mean)))
