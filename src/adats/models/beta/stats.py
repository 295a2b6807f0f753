"""Statistics of rewards that are 0 or 1."""

from typing import ClassVar

import numpy as np

from adats.models.core import checks
from adats.models.core.stats import ArmStats
from adats.models.core.types import FloatArray


class BinaryStats(ArmStats):
    """Statistics of rewards that are 0 or 1."""

    REWARDS_ADD: ClassVar[bool] = False
    WHOLE_REWARDS: ClassVar[bool] = True
    LEAST: ClassVar[float] = 0.0
    MOST: ClassVar[float] = 1.0
    WANTED: ClassVar[str] = "0 or 1"
    SUMS_TELL: ClassVar[bool] = True

    @staticmethod
    def within(mean: FloatArray, variance: FloatArray, noise: float | None) -> FloatArray:  # noqa: ARG004
        return mean * (1 - mean) - variance

    @classmethod
    def counted(cls, pulls: object, successes: object) -> FloatArray:
        n, s = checks.counts(pulls, successes, 1.0)
        return np.array([n, s, s])
