"""Statistics of counts, and of times."""

import math
from typing import ClassVar

import numpy as np
from scipy.special import gammaln

from adats.models.core import checks
from adats.models.core.stats import ArmStats, TableRow
from adats.models.core.types import FloatArray


class PositiveStats(ArmStats):
    """Statistics of rewards that are not negative, such as waiting times."""

    LEAST: ClassVar[float] = 0.0
    WANTED: ClassVar[str] = "0 or more"


class CountStats(ArmStats):
    """Statistics of counts; the fourth row sums log y!, which the Poisson evidence needs."""

    ROWS: ClassVar[int] = 4
    WHOLE_REWARDS: ClassVar[bool] = True
    LEAST: ClassVar[float] = 0.0
    WANTED: ClassVar[str] = "0, 1, 2, ..."
    SUMS_TELL: ClassVar[bool] = True
    log_factorial = TableRow(3)

    @staticmethod
    def within(mean: FloatArray, variance: FloatArray, noise: float | None) -> FloatArray:  # noqa: ARG004
        return mean

    @staticmethod
    def count_reward(table: FloatArray, arm: int, value: float) -> None:
        ArmStats.count_reward(table, arm, value)
        table[3, arm] += math.lgamma(value + 1.0)

    @classmethod
    def sums_of(cls, rewards: FloatArray) -> FloatArray:
        return np.concatenate([ArmStats.sums_of(rewards), gammaln(rewards + 1.0)[None]])

    @classmethod
    def counted(cls, pulls: object, successes: object) -> FloatArray:
        """The squares are those of equal counts; log y! makes the density that of the sum."""
        n, s = checks.counts(pulls, successes, math.inf)
        return np.array([n, s, s * s / n, math.lgamma(s + 1.0) - s * math.log(n)])
