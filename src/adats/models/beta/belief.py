"""Bernoulli arms with beta beliefs (paper, Section 3.4)."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betainc, betaincinv, betaln, expit, gammaln, ndtr

from adats.models.beta.stats import BinaryStats
from adats.models.core import checks
from adats.models.core.frozen import fill
from adats.models.core.product import MANY, ProductArms, PullSums
from adats.models.core.quadrature import Density
from adats.models.core.stats import ArmStats
from adats.models.core.ties import untied
from adats.models.core.types import FloatArray, Rng


def _log_beta(a: FloatArray, b: FloatArray) -> FloatArray:
    """`betaln`; of many in half the time, and with the round-off of large logarithms."""
    if a.size <= MANY:
        return np.asarray(betaln(a, b))
    return np.asarray(gammaln(a) + gammaln(b) - gammaln(a + b))


def _log_chances(u: FloatArray) -> FloatArray:
    """log x, log(1 - x) and 1, where u is the logit of x; to 1e-16, absolutely."""
    rows = np.empty((3, *u.shape))
    rest = np.log(1.0 + np.exp(-np.abs(u)))
    np.subtract(np.minimum(u, 0.0), rest, out=rows[0])
    np.subtract(rows[0], u, out=rows[1])
    rows[2] = 1.0
    return rows


def bernoulli_steps(rate: FloatArray, rewards: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The chance of a smaller reward, and of one that is not larger."""
    miss = 1.0 - rate
    return np.where(rewards > 0, miss, 0.0), np.where(rewards > 0, 1.0, miss)


def _beta_binomial(a: float, b: float, count: float, total: float) -> tuple[float, float]:
    """Chances of a total that is not larger, and of one that is not smaller."""
    at = np.arange(count + 1)
    ways = gammaln(count + 1) - gammaln(at + 1) - gammaln(count - at + 1)
    mass = np.exp(ways + betaln(at + a, count - at + b) - betaln(a, b))
    return float(mass[: int(total) + 1].sum()), float(mass[int(total) :].sum())


@dataclass(frozen=True, eq=False)
class BetaArms(ProductArms):
    """theta_i ~ Beta(alpha_i, beta_i) is the chance that arm i gives a reward of 1.

    >>> BetaArms(alpha=1.0, beta=[1.0, 3.0]).mean
    array([0.5 , 0.25])
    """

    alpha: FloatArray
    beta: FloatArray
    NAME: ClassVar[str] = "beta"
    MODEL: ClassVar[str] = "binary"
    PARAMETERS: ClassVar[tuple[str, ...]] = ("alpha", "beta")
    STATS: ClassVar[type[ArmStats]] = BinaryStats

    def __init__(self, alpha: ArrayLike, beta: ArrayLike) -> None:
        fill(self, alpha=checks.positive("alpha", alpha), beta=checks.positive("beta", beta))
        self._settle()

    @property
    def mean(self) -> FloatArray:
        return self.alpha / (self.alpha + self.beta)

    @property
    def scale(self) -> FloatArray:
        size = self.alpha + self.beta
        return np.sqrt(self.mean * (1 - self.mean) / (size + 1))

    @property
    def reward_variance(self) -> FloatArray:
        return self.mean * (1 - self.mean)

    def sample(self, rng: Rng) -> FloatArray:
        draws = rng.beta(self.alpha, self.beta)
        return untied(draws, rng, top=(1.0, self.beta), bottom=self.alpha)

    @staticmethod
    def reward_at(mean: float, point: float) -> float:
        return float(point < mean)

    def below(self, x: FloatArray) -> FloatArray:
        return np.asarray(betainc(self.alpha, self.beta, x))

    def upper(self, z: FloatArray | float) -> FloatArray:
        return np.asarray(betaincinv(self.alpha, self.beta, ndtr(z)))

    def density(self) -> Density:
        a, b = self.alpha, self.beta
        rise, fall = np.maximum(a, 1.0), np.maximum(b, 1.0)
        return Density(
            np.stack([a, b, -_log_beta(a, b)], axis=-1),
            _log_chances,
            lambda u: np.stack([expit(-u), -expit(u), np.zeros_like(u)]),
            np.log(a) - np.log(b),
            np.sqrt(1 / a + 1 / b),
            np.log(rise / fall),
            np.sqrt(1 / rise + 1 / fall),
            (-math.inf, math.inf),
            expit,
        )

    def updated(self, stats: ArmStats | PullSums) -> Self:
        return self.of(self.alpha + stats.total, self.beta + stats.count - stats.total)

    def matched(self, mean: FloatArray, scale: FloatArray) -> Self:
        variance = np.maximum(scale**2, 1e-12 * mean)
        strength = np.maximum(mean * (1 - mean) / variance - 1, 1e-3)
        return self.of(strength * mean, strength * (1 - mean))

    @classmethod
    def placed(
        cls,
        mean: FloatArray,
        mirrored: FloatArray,
        strength: FloatArray,
    ) -> tuple[FloatArray, FloatArray]:
        return strength * mean, strength * mirrored

    def total_chances(self, count: FloatArray, total: FloatArray) -> tuple[Any, Any]:
        parts = zip(self.alpha, self.beta, count, total, strict=True)
        low, high = np.array([_beta_binomial(*part) for part in parts]).T
        return low, high

    def reward_chances(
        self, weights: FloatArray, rewards: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        return bernoulli_steps((weights * self.mean).sum(axis=0), rewards)

    def log_normaliser(self) -> FloatArray:
        return np.asarray(betaln(self.alpha, self.beta))
