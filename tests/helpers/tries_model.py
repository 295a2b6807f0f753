"""A model that is not shipped: how many tries until the first success, with beta beliefs.

A reward is y = 1, 2, ... with chance θ(1 - θ)^(y - 1), where a small θ means many tries; the mean
reward is 1/θ. A task's θ is Beta(mu·strength, (1 - mu)·strength), and mu is one of a few rates.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from scipy.special import betaln

from adats.models.core.belief import BeliefBase
from adats.models.core.frozen import fill
from adats.models.core.meta import MetaBase
from adats.models.core.stats import ArmStats
from adats.models.core.sums import Sum
from adats.models.core.types import Conditioned, FloatArray
from adats.models.core.weights import draw, softmax


class TriesStats(ArmStats):
    """Pulls, summed tries and their squares; tries are whole numbers from 1 on."""

    @classmethod
    def check_reward(cls, reward: Any) -> float:
        value = super().check_reward(reward)
        if value < 1 or value != int(value):
            raise ValueError(f"a number of tries is 1, 2, 3, ..., got {value}")
        return value


@dataclass(frozen=True, eq=False)
class TriesBelief(BeliefBase):
    """θ_k ~ Beta(alpha_k, beta_k) under each candidate, a row each, with log weights."""

    log_weights: FloatArray
    alpha: FloatArray
    beta: FloatArray
    NAME: ClassVar[str] = "tries"

    @property
    def mean(self) -> FloatArray:
        """Of 1/θ, which is (alpha + beta - 1) / (alpha - 1)."""
        means = (self.alpha + self.beta - 1) / (self.alpha - 1)
        return softmax(self.log_weights) @ means

    @property
    def scale(self) -> FloatArray:
        a, b = self.alpha, self.beta
        squares = (a + b - 1) * (a + b - 2) / ((a - 1) * (a - 2))
        return np.sqrt(softmax(self.log_weights) @ squares - self.mean**2)

    def sample(self, rng: np.random.Generator) -> FloatArray:
        index = draw(softmax(self.log_weights)[:, None], rng)[0]
        return 1 / rng.beta(self.alpha[index], self.beta[index])

    def condition(self, stats: TriesStats) -> Conditioned[Self]:
        gain, alpha, beta = _updated(self.alpha, self.beta, stats)
        logs = self.log_weights + gain
        evidence = float(np.logaddexp.reduce(logs) - np.logaddexp.reduce(self.log_weights))
        return Conditioned(evidence, type(self)(logs, alpha, beta))


def _updated(alpha, beta, stats):
    """Log evidence of each candidate, and its posterior: `count` successes in `total` tries."""
    more, less = alpha + stats.count, beta + stats.total - stats.count
    return (betaln(more, less) - betaln(alpha, beta)).sum(axis=1), more, less


class TriesDigest(NamedTuple):
    stats: TriesStats
    message: FloatArray  # log evidence of every candidate


@dataclass(frozen=True, eq=False, init=False)
class TriesMeta(MetaBase[TriesStats, TriesDigest]):
    """mu is one of `rates`, each as likely; all arms of all tasks have Beta priors around it."""

    NAME: ClassVar[str] = "tries"
    rates: FloatArray
    strength: float
    count: int
    total: Sum

    def __init__(self, rates: Any, strength: float, count: int) -> None:
        rates = np.array(rates, dtype=np.float64)
        fill(self, rates=rates, strength=strength, count=count, total=Sum.zeros(rates.size))

    @property
    def n_arms(self) -> int:
        return self.count

    @property
    def mean(self) -> FloatArray:
        return self.task_prior().mean

    def empty(self, *, design=None) -> TriesStats:
        return TriesStats.zeros(self.count)

    def digest(self, stats: TriesStats, *, design=None) -> TriesDigest:
        prior = self._prior(np.zeros(self.rates.size))
        return TriesDigest(stats, _updated(prior.alpha, prior.beta, stats)[0])

    def _prior(self, log_weights: FloatArray) -> TriesBelief:
        size = np.full((self.rates.size, self.count), self.strength)
        return TriesBelief(
            log_weights, self.rates[:, None] * size, (1 - self.rates[:, None]) * size
        )

    def task_prior(self, *, design=None) -> TriesBelief:
        return self._prior(self.total.value())

    def posterior(self, digest: TriesDigest) -> TriesBelief:
        """The task's own message is in the total, so its evidence is in the weights."""
        prior = self._prior(self.total.value())
        return TriesBelief(prior.log_weights, *_updated(prior.alpha, prior.beta, digest.stats)[1:])

    def log_evidence(self) -> float:
        return float(np.logaddexp.reduce(self.total.value()) - np.log(self.rates.size))

    def sample(self, rng: np.random.Generator) -> FloatArray:
        return draw(softmax(self.total.value())[:, None], rng).astype(np.float64)

    def prior_given(self, mu: Any, *, design=None) -> TriesBelief:
        known = np.where(np.arange(self.rates.size) == int(np.ravel(mu)[0]), 0.0, -np.inf)
        return self._prior(known)

    def to_dict(self) -> dict[str, Any]:
        settings = {"rates": self.rates.tolist(), "strength": self.strength, "count": self.count}
        return {"model": self.NAME, **settings, "total": self.total_to_list()}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        return cls(data["rates"], data["strength"], data["count"]).with_total_of(data)
