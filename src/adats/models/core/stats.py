"""Sufficient statistics of one task. They add and subtract, so order and delay do not matter."""

from dataclasses import dataclass
from math import floor
from typing import Any, ClassVar, Self

import numpy as np

from adats.models.core import checks
from adats.models.core.errors import InvalidValue
from adats.models.core.types import BoolArray, FloatArray, IntArray

SINGLE = "this model takes single rewards: give reward=, not pulls and successes"


def arm_index(action: object, arms: int) -> int:
    if type(action) is not int and (
        isinstance(action, (bool, np.bool_)) or not isinstance(action, (int, np.integer))
    ):
        raise ValueError(f"an arm is an integer index here, got {action!r}")
    if not 0 <= action < arms:
        raise ValueError(f"there is no arm {action}: arms are 0 to {arms - 1}")
    return int(action)


def same_shape(left: FloatArray, right: FloatArray) -> None:
    if left.shape != right.shape:
        raise ValueError(f"statistics of different shapes: {left.shape} and {right.shape}")


class TableRow:
    """One row of a table of statistics."""

    def __init__(self, row: int) -> None:
        self._row = row

    def __get__(self, stats: "ArmStats", owner: type) -> FloatArray:
        row: FloatArray = stats.table[self._row]
        return row


@dataclass(frozen=True, eq=False, slots=True)
class ArmStats:
    """Pulls, summed rewards and summed squares of every arm (T and B of the paper).

    >>> stats = ArmStats.zeros(2).add(0, 1.5).add(0, 0.5).add(1, -1.0)
    >>> stats.count, stats.total
    (array([2., 1.]), array([ 2., -1.]))
    >>> (stats - ArmStats.zeros(2).add(0, 1.5)).total
    array([ 0.5, -1. ])
    """

    table: FloatArray  # one row a statistic, one column an arm
    count = TableRow(0)
    total = TableRow(1)
    squares = TableRow(2)
    ROWS: ClassVar[int] = 3
    REWARDS_ADD: ClassVar[bool] = True  # whether the sum of two rewards is one too
    WHOLE_REWARDS: ClassVar[bool] = False  # whether rewards are whole numbers
    LEAST: ClassVar[float] = -checks.HUGE  # of a reward, and the greatest
    MOST: ClassVar[float] = checks.HUGE
    WANTED: ClassVar[str] = "a finite number"  # what a reward has to be
    SUMS_TELL: ClassVar[bool] = False  # whether pulls and the sum of their rewards tell all

    @classmethod
    def zeros(cls, arms: int) -> Self:
        return cls(np.zeros((cls.ROWS, arms)))

    @property
    def arm_log_base(self) -> FloatArray:
        """What the log density of each arm's rewards has besides the parameter, negated."""
        base: FloatArray = self.table[3:].sum(axis=0)
        return base

    @classmethod
    def check_reward(cls, reward: object) -> float:
        """The reward as a float, or an error where this kind of reward cannot have that value."""
        value = reward if type(reward) is float else checks.number("reward", reward)
        if not cls.LEAST <= value <= cls.MOST or (cls.WHOLE_REWARDS and value != floor(value)):
            checks.number("reward", value)  # raises where the reward itself is not finite
            if value > cls.MOST == checks.HUGE or value < cls.LEAST == -checks.HUGE:
                raise InvalidValue("reward", f"{value} is too large: its square overflows")
            raise InvalidValue("reward", f"must be {cls.WANTED}, got {value}")
        return value

    def add(self, action: Any, reward: Any, *, keep: float = 1.0) -> Self:
        """The statistics with one more pull, or with one pull for each arm in an array. What that
        arm had before will `keep` so much of its weight."""
        arms = self.table.shape[1]
        table = self.table.copy()
        if type(action) is int or np.ndim(action) == 0:
            arm, value = arm_index(action, arms), self.check_reward(reward)
            if keep != 1.0:
                table[:, arm] *= keep
            self.count_reward(table, arm, value)
            return type(self)(table)
        if np.shape(action) != np.shape(reward) or np.ndim(action) != 1:
            raise ValueError(
                f"rewards must be one for each arm: {np.shape(reward)} rewards "
                f"for {np.shape(action)} arms"
            )
        for arm, value in zip(action, reward, strict=True):
            place = arm_index(arm, arms)
            table[:, place] *= keep
            self.count_reward(table, place, self.check_reward(value))
        return type(self)(table)

    def add_counts(self, action: Any, pulls: Any, successes: Any, *, keep: float = 1.0) -> Self:
        """The statistics with so many more pulls of an arm, and the sum of their rewards; or with
        those of each arm in an array. At each pull those before it `keep` so much of their weight,
        and the successes are spread evenly over the pulls."""
        arms = self.table.shape[1]
        table = self.table.copy()
        if np.ndim(action) == 0 and not np.ndim(pulls) == np.ndim(successes) == 1:
            self._count_pulls(table, arm_index(action, arms), pulls, successes, keep)
            return type(self)(table)
        if not np.shape(action) == np.shape(pulls) == np.shape(successes):
            raise ValueError(
                f"pulls and successes must be one for each arm: {np.shape(pulls)} and "
                f"{np.shape(successes)} for {np.shape(action)} arms"
            )
        for arm, n, s in zip(action, pulls, successes, strict=True):
            self._count_pulls(table, arm_index(arm, arms), n, s, keep)
        return type(self)(table)

    def _count_pulls(self, table: FloatArray, arm: int, n: Any, s: Any, keep: float) -> None:
        more = self.counted(n, s)
        if keep != 1.0:
            left = keep ** float(n)
            more *= (1.0 - left) / (1.0 - keep) / float(n)
            table[:, arm] *= left
        table[:, arm] += more

    @classmethod
    def counted(cls, pulls: object, successes: object) -> FloatArray:  # noqa: ARG003
        """A column of the table: so many pulls, and the sum of their rewards."""
        raise ValueError(SINGLE)

    @staticmethod
    def within(mean: FloatArray, variance: FloatArray, noise: float | None) -> FloatArray:  # noqa: ARG004
        """The variance of a reward around its mean, on average where the mean has a `variance`."""
        return np.full(mean.shape, 1.0 if noise is None else noise**2)

    @staticmethod
    def count_reward(table: FloatArray, arm: int, value: float) -> None:
        n, total, squares = table.item(0, arm), table.item(1, arm), table.item(2, arm)
        table[0, arm] = n + 1.0  # of Python's numbers: quicker than += of an entry
        table[1, arm] = total + value
        table[2, arm] = squares + value * value

    def __add__(self, other: Self) -> Self:
        same_shape(self.table, other.table)
        return type(self)(self.table + other.table)

    def __sub__(self, other: Self) -> Self:
        same_shape(self.table, other.table)
        return type(self)(self.table - other.table)

    def scaled(self, factor: float, *, afresh: bool = False) -> Self:  # noqa: ARG002
        """The same pulls with less weight, or more."""
        return type(self)(self.table * factor)

    def flat(self) -> FloatArray:
        """All numbers in one array; `from_flat` reads them back."""
        return self.table.ravel()

    @classmethod
    def from_flat(cls, values: FloatArray) -> Self:
        if values.ndim != 1 or values.size % cls.ROWS:
            raise ValueError(f"{values.size} numbers are not {cls.ROWS} for each arm")
        return cls(values.reshape(cls.ROWS, -1).copy())

    @classmethod
    def are_rewards(cls, values: FloatArray) -> BoolArray:
        """Which of many values `check_reward` takes."""
        if cls.check_reward.__func__ is not ArmStats.check_reward.__func__:  # type: ignore[attr-defined]
            return np.array([cls._is_reward(value) for value in values.tolist()], dtype=bool)
        good: BoolArray = (values >= cls.LEAST) & (values <= cls.MOST)
        return good & (values == np.floor(values)) if cls.WHOLE_REWARDS else good

    @classmethod
    def _is_reward(cls, value: float) -> bool:
        try:
            cls.check_reward(value)
        except ValueError:
            return False
        return True

    @classmethod
    def sums_of(cls, rewards: FloatArray) -> FloatArray:
        """What each reward adds to the table, a column each."""
        if cls.count_reward is not ArmStats.count_reward:
            table = np.zeros((cls.ROWS, rewards.size))
            for i, value in enumerate(rewards.tolist()):
                cls.count_reward(table, i, value)
            return table
        return np.stack([np.ones(rewards.size), rewards, rewards * rewards])

    @classmethod
    def add_many(cls, rows: FloatArray, at: IntArray, actions: Any, sums: FloatArray) -> None:
        """Add the columns `sums` of the arms `actions` to the flat statistics in rows `at`."""
        arms, pulled = actions
        entry = at * rows.shape[1] + pulled
        flat = rows.reshape(-1)
        for k, column in enumerate(sums[: cls.ROWS]):
            np.add.at(flat, entry + k * arms, column)

    @property
    def arm_pulls(self) -> FloatArray | None:
        """Pulls of each arm."""
        return self.count

    @property
    def arm_averages(self) -> FloatArray | None:
        """Average reward of each arm; NaN where it has none."""
        n = self.count
        return np.where(n > 0, self.table[1] / np.where(n > 0, n, 1.0), np.nan)

    @property
    def pending_shape(self) -> tuple[int, ...]:
        """Of pulls that were asked for and have no reward yet: a count for each arm."""
        return self.table.shape[1:]

    def dwarfed_by(self, out: Self, factor: float) -> bool:
        """Whether what is left of some arm is round-off beside what was taken `out`."""
        taken, left = np.abs(out.table).max(axis=0), np.abs(self.table).max(axis=0)
        return bool((taken > factor * left).any())

    def columns(self, arms: list[int]) -> Self:
        """The statistics of some of the arms."""
        return type(self)(self.table[:, arms])

    def grow(self, arms: int) -> Self:
        """The same statistics with room for more arms."""
        missing = arms - self.table.shape[1]
        if missing == 0:
            return self
        return type(self)(np.pad(self.table, ((0, 0), (0, missing))))


class FeatureStats:
    """What statistics share where arms are rows of features."""

    @property
    def arm_pulls(self) -> None:
        """Pulls of arms are not counted apart."""
        return None

    @property
    def arm_averages(self) -> None:
        return None

    def grow(self, arms: int) -> Self:  # noqa: ARG002
        """They do not depend on how many arms there are."""
        return self
