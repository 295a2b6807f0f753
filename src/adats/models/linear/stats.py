"""Statistics of a linear model."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from adats.models.core import checks
from adats.models.core.many import add_to_rows
from adats.models.core.stats import SINGLE, ArmStats, FeatureStats, same_shape
from adats.models.core.types import FloatArray, IntArray


@dataclass(frozen=True, eq=False, slots=True)
class LinearStats(FeatureStats):
    """Number of pulls n, Gram matrix Σ aaᵀ, Σ a·y and Σ y² (G and B of the paper).

    The three sums are kept as one matrix, Σ (a, y)(a, y)ᵀ.

    >>> stats = LinearStats.zeros(2).add([1.0, 0.0], 2.0)
    >>> stats.n, stats.xy, stats.yy
    (1.0, array([2., 0.]), 4.0)
    """

    n: float
    moments: FloatArray
    REWARDS_ADD: ClassVar[bool] = True
    WHOLE_REWARDS: ClassVar[bool] = False
    # what rewards are and which sums say all of them, as with arms
    check_reward = ArmStats.check_reward
    are_rewards = ArmStats.are_rewards
    sums_of = ArmStats.sums_of

    @classmethod
    def zeros(cls, dim: int) -> Self:
        return cls(0.0, np.zeros((dim + 1, dim + 1)))

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
            z[-1] = self.check_reward(reward)
            n, moments = 1.0, z[:, None].dot(z[None, :])
        else:
            rewards = checks.array("reward", reward)
            if rewards.shape != x.shape[:1]:
                raise ValueError(f"{rewards.shape} rewards for features of shape {x.shape}")
            z = np.column_stack([x, rewards])
            checks.modest("reward", rewards)
            n, moments = float(len(z)), z.T @ z
        moments += self.moments
        return type(self)(self.n + n, moments)

    def add_counts(self, action: Any, pulls: Any, successes: Any) -> Self:  # noqa: ARG002
        """Sums do not say enough: this raises."""
        raise ValueError(SINGLE)

    def __add__(self, other: Self) -> Self:
        same_shape(self.moments, other.moments)
        return type(self)(self.n + other.n, self.moments + other.moments)

    def scaled(self, factor: float, *, afresh: bool = False) -> Self:  # noqa: ARG002
        """The same pulls with less weight, or more."""
        return type(self)(self.n * factor, self.moments * factor)

    def __sub__(self, other: Self) -> Self:
        same_shape(self.moments, other.moments)
        return type(self)(self.n - other.n, self.moments - other.moments)

    @classmethod
    def add_many(cls, rows: FloatArray, at: IntArray, actions: Any, sums: FloatArray) -> None:
        """Add pulls of arms with the features `actions` to the flat statistics in rows `at`."""
        n, s, q = sums
        size = actions.shape[1] + 1
        moments = np.empty((len(at), size, size))
        moments[:, :-1, :-1] = (n[:, None] * actions)[:, :, None] * actions[:, None, :]
        moments[:, -1, :-1] = moments[:, :-1, -1] = s[:, None] * actions
        moments[:, -1, -1] = q
        add_to_rows(rows, at, np.column_stack([moments.reshape(len(at), -1), n]))

    @property
    def pending_shape(self) -> tuple[int, ...]:
        """Of pulls that were asked for and have no reward yet: their Gram matrix."""
        dim = len(self.moments) - 1
        return dim, dim

    def dwarfed_by(self, out: Self, factor: float) -> bool:
        """Whether so little is left beside what was taken `out` that it is round-off."""
        taken, left = (np.abs(part.flat()).max() for part in (out, self))
        return bool(taken > factor * left)

    def flat(self) -> FloatArray:
        """All numbers in one array; `from_flat` reads them back."""
        return np.append(self.moments.ravel(), self.n)

    @classmethod
    def from_flat(cls, values: FloatArray) -> Self:
        size = math.isqrt(max(values.size - 1, 0))
        if values.ndim != 1 or size == 0 or size * size + 1 != values.size:
            raise ValueError(f"{values.size} numbers are not the statistics of a linear model")
        moments = values[:-1].reshape(size, size).copy()
        return cls(float(values[-1]), moments)
