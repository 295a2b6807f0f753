"""What beliefs do in one way unless they know a better one."""

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np

from adats.models.core.types import FloatArray, IntArray, Rng


class BeliefBase(ABC):
    """Many draws one by one, chances that only draws can tell, and no quantiles."""

    NAME: ClassVar[str]

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

    def upper(self, z: FloatArray | float) -> FloatArray:  # noqa: ARG002
        """The quantile of each arm's mean reward at the level Φ(z)."""
        raise ValueError(
            f"this policy needs quantiles, which {self.NAME} beliefs do not have; take policy 'ts'"
        )
