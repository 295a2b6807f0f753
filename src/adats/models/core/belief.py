"""What beliefs do in one way unless they know a better one."""

import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from scipy.special import ndtr

from adats.models.core.linalg import times
from adats.models.core.types import FloatArray, IntArray, Rng
from adats.models.core.weights import softmax

TINY, HUGE = 1e-300, 1e12


class BeliefBase(ABC):
    """Many draws one by one, chances that only draws can tell, and no quantiles."""

    NAME: ClassVar[str]
    FAR_CAUTION: ClassVar[float] = 1.0
    FAR_TASKS: ClassVar[int] = 20
    if TYPE_CHECKING:  # fields or properties: of theta; and of a reward whose mean is as expected

        @property
        def mean(self) -> FloatArray: ...
        @property
        def scale(self) -> FloatArray: ...
        @property
        def reward_variance(self) -> FloatArray: ...

    @property
    def apart(self) -> Any:
        """As indices compare arms: without what all of them have in common, where that is known."""
        return self

    @abstractmethod
    def sample(self, rng: Rng) -> FloatArray:
        """A draw of theta."""

    def draws(self, count: int, rng: Rng) -> FloatArray:
        """Draws of theta, one a row."""
        return np.stack([self.sample(rng) for _ in range(count)])

    def best_chances(self, arms: IntArray | None = None) -> FloatArray | None:  # noqa: ARG002
        """The chance of each of these arms (of all, if None) to be best; None: draws can tell."""
        return None

    def best_chance(self, arm: int, arms: IntArray | None = None) -> float | None:
        """The chance of the arm at place `arm` among these."""
        chances = self.best_chances(arms)
        return None if chances is None else chances.item(arm)

    def updated_many(self, rows: FloatArray) -> Any:  # noqa: ARG002
        """The posteriors of many tasks, whose statistics are rows; None: only one by one."""
        return None

    def best_chance_many(self, arms: IntArray, allowed: Any) -> FloatArray | None:  # noqa: ARG002
        """Of beliefs over many tasks, the chance of one of the allowed arms in each to be best;
        None: only one by one."""
        return None

    def rewards_at(self, rows: FloatArray, theta: FloatArray) -> FloatArray:
        """The mean rewards of arms with these features under theta; many thetas are a row each,
        and may have features of their own."""
        if rows.ndim == 3:
            return times(rows, theta)
        rewards: FloatArray = rows.dot(theta) if theta.ndim == 1 else theta @ rows.T
        return rewards

    def expected_rewards(self, rows: FloatArray) -> FloatArray:
        """The mean rewards of arms with these features, as they are believed to be."""
        return self.rewards_at(rows, self.mean)

    def rank(self, arm: int, reward: float) -> tuple[float, float]:
        """Where a reward of an arm falls in what is believed: the chance of a smaller one, and of
        one that is not larger. Here as if rewards were normal, with the right mean and variance."""
        variance = np.broadcast_to(self.reward_variance, self.mean.shape)[arm]
        spread = math.sqrt(self.scale[arm] ** 2 + variance)
        level = float(ndtr((reward - self.mean[arm]) / spread))
        return level, level

    @property
    def variance_ratio(self) -> FloatArray:
        """The variance of each arm's mean reward over that of one reward."""
        scale = self.scale
        known = np.isfinite(scale)
        noise = np.maximum(np.where(known, self.reward_variance, 1.0), TINY)
        return np.where(known, np.where(known, scale, 0.0) ** 2 / noise, HUGE)

    def upper(self, z: FloatArray | float) -> FloatArray:  # noqa: ARG002
        """The quantile of each arm's mean reward at the level Φ(z)."""
        raise ValueError(
            f"this policy needs quantiles, which {self.NAME} beliefs do not have; take policy 'ts'"
        )


class WeightedBelief(BeliefBase):
    """One of several beliefs is right; `log_weights` need not be normalised."""

    log_weights: FloatArray

    @property
    def weights(self) -> FloatArray:
        return softmax(self.log_weights)
