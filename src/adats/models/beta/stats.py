"""Statistics of rewards that are 0 or 1."""

from typing import Any, ClassVar

import numpy as np

from adats.models.core import checks
from adats.models.core.stats import ArmStats
from adats.models.core.types import BoolArray, FloatArray


class BinaryStats(ArmStats):
    """Statistics of rewards that are 0 or 1."""

    REWARDS_ADD: ClassVar[bool] = False
    WHOLE_REWARDS: ClassVar[bool] = True
    LEAST: ClassVar[float] = 0.0
    MOST: ClassVar[float] = 1.0
    WANTED: ClassVar[str] = "0 or 1"
    SUMS_TELL: ClassVar[bool] = True

    @classmethod
    def check_reward(cls, reward: Any) -> float:
        value = checks.number("reward", reward)
        if value not in (0.0, 1.0):
            raise ValueError(f"a binary reward is 0 or 1, got {value}")
        return value

    @classmethod
    def are_rewards(cls, values: FloatArray) -> BoolArray:
        either: BoolArray = (values == 0.0) | (values == 1.0)
        return either

    @staticmethod
    def within(mean: FloatArray, variance: FloatArray, noise: float | None) -> FloatArray:  # noqa: ARG004
        return mean * (1 - mean) - variance

    @classmethod
    def counted(cls, pulls: Any, successes: Any) -> FloatArray:
        n, s = checks.counts(pulls, successes, 1.0)
        return np.array([n, s, s])
