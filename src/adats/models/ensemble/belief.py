"""A mixture of beliefs of any kind over the same theta."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self, cast

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp

from adats.models.core import checks
from adats.models.core.belief import WeightedBelief
from adats.models.core.draws import Draws
from adats.models.core.frozen import fill, unchecked
from adats.models.core.types import (
    ArmBelief,
    Belief,
    Conditioned,
    FloatArray,
    IntArray,
    Rng,
    RowBelief,
)
from adats.models.core.weights import LIGHT, average, draw, log_of, picks, quantile, spread


@dataclass(frozen=True, eq=False)
class BeliefMixture(WeightedBelief):
    """A mixture of beliefs of any kind over the same theta."""

    NAME: ClassVar[str] = "ensemble"
    log_weights: FloatArray
    beliefs: Sequence[Belief]

    def __init__(self, weights: ArrayLike, beliefs: Sequence[Belief]) -> None:
        checked = checks.weights("weights", weights)
        if checked.shape != (len(beliefs),):
            raise ValueError(f"{len(beliefs)} beliefs need as many weights, got {checked.shape}")
        if len({np.shape(belief.mean) for belief in beliefs}) != 1:
            raise ValueError("the beliefs of a mixture must be over the same arms")
        fill(self, log_weights=log_of(checked), beliefs=tuple(beliefs))

    @classmethod
    def of(cls, log_weights: FloatArray, beliefs: Sequence[Belief]) -> Self:
        return unchecked(cls, log_weights=log_weights, beliefs=beliefs)

    @property
    def mean(self) -> FloatArray:
        return self._average(np.stack([b.mean for b in self.beliefs]))

    def _average(self, each: FloatArray) -> FloatArray:
        """Of values with a first axis for the belief."""
        return average(self._weights_like(each), each)

    def _weights_like(self, each: FloatArray) -> FloatArray:
        return self.weights.reshape(-1, *[1] * (each.ndim - 1))

    @property
    def scale(self) -> FloatArray:
        means = np.stack([b.mean for b in self.beliefs])
        scales = np.stack([b.scale for b in self.beliefs])
        return spread(self._weights_like(means), means, scales)

    @property
    def cov(self) -> FloatArray:
        """Covariance of theta, where every belief of the mixture has one."""
        result = np.zeros((self.mean.size, self.mean.size))
        for weight, belief in zip(self.weights, self.beliefs, strict=True):
            gap = belief.mean - self.mean
            cov = belief.cov if hasattr(belief, "cov") else np.diag(belief.scale**2)
            result += weight * (cov + np.outer(gap, gap))
        return result

    @property
    def reward_variance(self) -> FloatArray:
        each = [np.broadcast_to(b.reward_variance, b.mean.shape) for b in self._arms()]
        return self._average(np.stack(each))

    def sample(self, rng: Rng) -> FloatArray:
        return self.beliefs[int(draw(self.weights[:, None], rng)[0])].sample(rng)

    def draws(self, count: int, rng: Rng) -> FloatArray:
        counts = rng.multinomial(count, self.weights).tolist()
        parts = zip(self.beliefs, counts, strict=True)
        return np.concatenate([part.draws(n, rng) for part, n in parts if n])

    def best_chances(self, arms: IntArray | None = None) -> FloatArray | None:
        heavy = np.flatnonzero(self.weights > LIGHT)
        each = [self.beliefs[i].best_chances(arms) for i in heavy.tolist()]
        if any(part is None for part in each):
            return None
        weights = self.weights[heavy]
        chances: FloatArray = weights @ np.array(each) / weights.sum()
        return chances

    def below(self, x: FloatArray) -> FloatArray:
        return self._average(np.stack([b.below(x) for b in self._arms()]))

    def upper(self, z: FloatArray | float) -> FloatArray:
        return quantile(self.below, np.stack([b.upper(z) for b in self._arms()]), z)

    def rank(self, arm: int, reward: float) -> tuple[float, float]:
        low, high = self.weights @ np.array([b.rank(arm, reward) for b in self._arms()])
        return float(low), float(high)

    def tightened(self, pending: FloatArray) -> Self:
        """When pending pulls have come in as expected under each belief; no weight moves."""
        beliefs = tuple(belief.tightened(pending) for belief in self._arms())
        return self.of(self.log_weights, beliefs)

    def at_rows(self, rows: FloatArray) -> Self:
        """Of linear beliefs: over the mean rewards of arms with these features."""
        beliefs = tuple(belief.at_rows(rows) for belief in self._of_rows())
        return self.of(self.log_weights, beliefs)

    def rewards_at(self, rows: FloatArray, theta: FloatArray) -> FloatArray:
        return self._of_rows()[0].rewards_at(rows, theta)

    def expected_rewards(self, rows: FloatArray) -> FloatArray:
        each = [belief.expected_rewards(rows) for belief in self._of_rows()]
        return self._average(np.stack(each))

    def _arms(self) -> tuple[ArmBelief, ...]:
        return cast("tuple[ArmBelief, ...]", self.beliefs)

    def _of_rows(self) -> tuple[RowBelief, ...]:
        return cast("tuple[RowBelief, ...]", self.beliefs)

    def condition(self, stats: Any) -> Conditioned[Self]:
        parts = [belief.condition(stats) for belief in self.beliefs]
        gained = self.log_weights + np.array([part.log_evidence for part in parts])
        log_evidence = float(logsumexp(gained) - logsumexp(self.log_weights))
        return Conditioned(log_evidence, self.of(gained, tuple(part.belief for part in parts)))


class BeliefMixtures(BeliefMixture):
    """The same over many tasks at once: each belief of the mixture has a first axis for the task.

    `some` gives the belief of a model over some of the tasks, of which alone a draw is made.
    """

    some: Callable[[int, IntArray], Any]

    @classmethod
    def over(
        cls,
        log_weights: FloatArray,
        beliefs: Sequence[Belief],
        some: Callable[[int, IntArray], Any],
    ) -> Self:
        return unchecked(cls, log_weights=log_weights, beliefs=beliefs, some=some)

    def sample(self, rng: Draws) -> FloatArray:  # type: ignore[override]
        first = self.beliefs[0].mean
        which = picks(self.weights, rng.random(len(first)))
        theta = np.empty(first.shape)
        for j in np.unique(which).tolist():
            tasks = np.flatnonzero(which == j)
            theta[tasks] = self.some(j, tasks).sample(rng.take(tasks))
        return theta
