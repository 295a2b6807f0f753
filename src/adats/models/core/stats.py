"""Sufficient statistics of one task. They add and subtract, so order and delay do not matter."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from adats.models.core import checks
from adats.models.core.frozen import unchecked
from adats.models.core.types import FloatArray


def _index(action: Any, arms: int) -> int:
    if type(action) is not int and (
        isinstance(action, (bool, np.bool_)) or not isinstance(action, (int, np.integer))
    ):
        raise ValueError(f"an arm is an integer index here, got {action!r}")
    if not 0 <= action < arms:
        raise ValueError(f"there is no arm {action}: arms are 0 to {arms - 1}")
    return int(action)


def _same_shape(left: FloatArray, right: FloatArray) -> None:
    if left.shape != right.shape:
        raise ValueError(f"statistics of different shapes: {left.shape} and {right.shape}")


@dataclass(frozen=True, eq=False)
class ArmStats:
    """Pulls, summed rewards and summed squares of every arm (T and B of the paper).

    >>> stats = ArmStats.zeros(2).add(0, 1.5).add(0, 0.5).add(1, -1.0)
    >>> stats.count, stats.total
    (array([2., 1.]), array([ 2., -1.]))
    >>> (stats - ArmStats.zeros(2).add(0, 1.5)).total
    array([ 0.5, -1. ])
    """

    table: FloatArray  # one row a statistic, one column an arm
    ROWS: ClassVar[int] = 3

    @classmethod
    def zeros(cls, arms: int) -> Self:
        return unchecked(cls, table=np.zeros((cls.ROWS, arms)))

    @property
    def count(self) -> FloatArray:
        row: FloatArray = self.table[0]
        return row

    @property
    def total(self) -> FloatArray:
        row: FloatArray = self.table[1]
        return row

    @property
    def squares(self) -> FloatArray:
        row: FloatArray = self.table[2]
        return row

    @classmethod
    def check_reward(cls, reward: Any) -> float:
        """The reward as a float, or an error where this kind of reward cannot have that value."""
        value = reward if type(reward) is float else checks.number("reward", reward)
        if not -checks.HUGE < value < checks.HUGE:
            checks.number("reward", value)  # raises where the reward itself is not finite
            raise ValueError(f"reward {value} is too large: its square overflows")
        return value

    def add(self, action: Any, reward: Any) -> Self:
        """The statistics with one more pull, or with one pull for each arm in an array."""
        arms = self.table.shape[1]
        table = self.table.copy()
        if type(action) is int or np.ndim(action) == 0:
            self._pull(table, _index(action, arms), self.check_reward(reward))
            return unchecked(type(self), table=table)
        if np.shape(action) != np.shape(reward) or np.ndim(action) != 1:
            raise ValueError(
                f"rewards must be one for each arm: {np.shape(reward)} rewards "
                f"for {np.shape(action)} arms"
            )
        for arm, value in zip(action, reward, strict=True):
            self._pull(table, _index(arm, arms), self.check_reward(value))
        return unchecked(type(self), table=table)

    @staticmethod
    def _pull(table: FloatArray, arm: int, value: float) -> None:
        table[0, arm] += 1.0
        table[1, arm] += value
        table[2, arm] += value * value

    def __add__(self, other: Self) -> Self:
        _same_shape(self.table, other.table)
        return unchecked(type(self), table=self.table + other.table)

    def __sub__(self, other: Self) -> Self:
        _same_shape(self.table, other.table)
        return unchecked(type(self), table=self.table - other.table)

    def flat(self) -> FloatArray:
        """All numbers in one array; `from_flat` reads them back."""
        return self.table.ravel()

    @classmethod
    def from_flat(cls, values: FloatArray) -> Self:
        if values.ndim != 1 or values.size % cls.ROWS:
            raise ValueError(f"{values.size} numbers are not {cls.ROWS} for each arm")
        return unchecked(cls, table=values.reshape(cls.ROWS, -1).copy())

    def columns(self, arms: list[int]) -> Self:
        """The statistics of some of the arms."""
        return unchecked(type(self), table=self.table[:, arms])

    def grow(self, arms: int) -> Self:
        """The same statistics with room for more arms."""
        missing = arms - self.table.shape[1]
        return unchecked(type(self), table=np.pad(self.table, ((0, 0), (0, missing))))


class BinaryStats(ArmStats):
    """Statistics of rewards that are 0 or 1."""

    @classmethod
    def check_reward(cls, reward: Any) -> float:
        value = checks.number("reward", reward)
        if value not in (0.0, 1.0):
            raise ValueError(f"a binary reward is 0 or 1, got {value}")
        return value


class PositiveStats(ArmStats):
    """Statistics of rewards that are not negative, such as waiting times."""

    @classmethod
    def check_reward(cls, reward: Any) -> float:
        value = super().check_reward(reward)
        if value < 0:
            raise ValueError(f"a reward of this model is not negative, got {value}")
        return value


class CountStats(ArmStats):
    """Statistics of counts; the fourth row sums log y!, which the Poisson evidence needs."""

    ROWS: ClassVar[int] = 4

    @property
    def log_factorial(self) -> FloatArray:
        row: FloatArray = self.table[3]
        return row

    @classmethod
    def check_reward(cls, reward: Any) -> float:
        value = super().check_reward(reward)
        if value < 0 or value != math.floor(value):
            raise ValueError(f"a count is 0, 1, 2, ..., got {value}")
        return value

    @staticmethod
    def _pull(table: FloatArray, arm: int, value: float) -> None:
        ArmStats._pull(table, arm, value)
        table[3, arm] += math.lgamma(value + 1.0)


@dataclass(frozen=True, eq=False)
class LinearStats:
    """Number of pulls n, Gram matrix Σ aaᵀ, Σ a·y and Σ y² (G and B of the paper).

    The three sums are kept as one matrix, Σ (a, y)(a, y)ᵀ.

    >>> stats = LinearStats.zeros(2).add([1.0, 0.0], 2.0)
    >>> stats.n, stats.xy, stats.yy
    (1.0, array([2., 0.]), 4.0)
    """

    n: float
    moments: FloatArray

    @classmethod
    def zeros(cls, dim: int) -> Self:
        return unchecked(cls, n=0.0, moments=np.zeros((dim + 1, dim + 1)))

    @property
    def gram(self) -> FloatArray:
        return self.moments[:-1, :-1]

    @property
    def xy(self) -> FloatArray:
        return self.moments[:-1, -1]

    @property
    def yy(self) -> float:
        return float(self.moments[-1, -1])

    def add(self, action: Any, reward: Any) -> Self:
        """One more pull of the arm with features `action`; or several, a row each."""
        size = len(self.moments)
        clean = type(action) is np.ndarray and action.dtype == np.float64
        x = action if clean else checks.array("features", action)
        if x.shape[-1:] != (size - 1,) or x.ndim not in (1, 2):
            raise ValueError(f"features must end in {size - 1} numbers, got shape {x.shape}")
        checks.modest("features", x.ravel())
        if x.ndim == 1:
            z = np.empty(size)
            z[:-1] = x
            z[-1] = ArmStats.check_reward(reward)
            n, moments = 1.0, z[:, None].dot(z[None, :])
        else:
            rewards = checks.array("reward", reward)
            if rewards.shape != x.shape[:1]:
                raise ValueError(f"{rewards.shape} rewards for features of shape {x.shape}")
            z = np.column_stack([x, rewards])
            checks.modest("reward", rewards)
            n, moments = float(len(z)), z.T @ z
        return unchecked(type(self), n=self.n + n, moments=self.moments + moments)

    def __add__(self, other: Self) -> Self:
        _same_shape(self.moments, other.moments)
        return unchecked(type(self), n=self.n + other.n, moments=self.moments + other.moments)

    def __sub__(self, other: Self) -> Self:
        _same_shape(self.moments, other.moments)
        return unchecked(type(self), n=self.n - other.n, moments=self.moments - other.moments)

    def flat(self) -> FloatArray:
        """All numbers in one array; `from_flat` reads them back."""
        return np.append(self.moments.ravel(), self.n)

    @classmethod
    def from_flat(cls, values: FloatArray) -> Self:
        size = math.isqrt(max(values.size - 1, 0))
        if values.ndim != 1 or size == 0 or size * size + 1 != values.size:
            raise ValueError(f"{values.size} numbers are not the statistics of a linear model")
        moments = values[:-1].reshape(size, size).copy()
        return unchecked(cls, n=float(values[-1]), moments=moments)
