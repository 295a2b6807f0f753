"""Arms with a gamma belief over a rate: Poisson counts and exponential times (Section 3.4)."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import (
    betainc,
    gammainc,
    gammaincc,
    gammainccinv,
    gammaincinv,
    gammaln,
    ndtr,
    pdtrik,
)

from adats.models.core import checks
from adats.models.core.frozen import fill
from adats.models.core.product import ProductArms, PullSums
from adats.models.core.quadrature import Density
from adats.models.core.stats import ArmStats
from adats.models.core.ties import untied
from adats.models.core.types import FloatArray, Rng
from adats.models.gamma.stats import CountStats, PositiveStats

LARGEST = 1e308  # a mean reward above it is cut


@dataclass(frozen=True, eq=False)
class _GammaArms(ProductArms):
    """rate_i ~ Gamma(shape_i, rate_i): `shape` pseudo-events in `rate` pseudo-time."""

    shape: FloatArray
    rate: FloatArray
    PARAMETERS: ClassVar[tuple[str, ...]] = ("shape", "rate")

    def __init__(self, shape: ArrayLike, rate: ArrayLike) -> None:
        fill(self, shape=checks.positive("shape", shape), rate=checks.positive("rate", rate))
        self._settle()

    def _rate_density(self) -> Density:
        """Of the logarithm of the rate."""
        k, r = self.shape, self.rate
        return Density(
            np.stack([k, -r, k * np.log(r) - gammaln(k)], axis=-1),
            lambda u: np.stack([u, np.exp(u), np.ones_like(u)]),
            lambda u: np.stack([np.ones_like(u), np.exp(u), np.zeros_like(u)]),
            np.log(k) - np.log(r),
            1 / np.sqrt(k),
            np.log(np.maximum(k, 1.0) / r),
            1 / np.sqrt(np.maximum(k, 1.0)),
            (-math.inf, 700.0 - max(0.0, math.log(r.max()))),  # so that r eᵘ is a number
            np.exp,
        )

    def log_normaliser(self) -> FloatArray:
        return np.asarray(gammaln(self.shape) - self.shape * np.log(self.rate))


class PoissonArms(_GammaArms):
    """Counts: a reward of arm i is Poisson(theta_i), theta_i ~ Gamma(shape_i, rate_i).

    >>> PoissonArms(shape=[6.0], rate=[2.0]).mean
    array([3.])
    """

    NAME: ClassVar[str] = "poisson"
    MODEL: ClassVar[str] = "count"
    STATS: ClassVar[type[ArmStats]] = CountStats

    @property
    def mean(self) -> FloatArray:
        return self.shape / self.rate

    @property
    def scale(self) -> FloatArray:
        scale: FloatArray = np.sqrt(self.shape) / self.rate
        return scale

    @property
    def reward_variance(self) -> FloatArray:
        return self.mean

    def sample(self, rng: Rng) -> FloatArray:
        draws = rng.standard_gamma(self.shape) / self.rate
        return untied(draws, rng, bottom=self.shape)

    @staticmethod
    def reward_at(mean: float, point: float) -> float:
        return float(max(0.0, np.ceil(pdtrik(point, mean))))

    def below(self, x: FloatArray) -> FloatArray:
        return np.asarray(gammainc(self.shape, self.rate * x))

    def upper(self, z: FloatArray | float) -> FloatArray:
        return np.asarray(gammaincinv(self.shape, ndtr(z)) / self.rate)

    def density(self) -> Density:
        return self._rate_density()

    def matched(self, mean: FloatArray, scale: FloatArray) -> Self:
        variance = np.maximum(scale**2, 1e-12 * mean)
        return self.of(mean**2 / variance, mean / variance)

    @classmethod
    def placed(
        cls,
        mean: FloatArray,  # noqa: ARG003
        mirrored: FloatArray,
        strength: FloatArray,
    ) -> tuple[FloatArray, FloatArray]:
        return strength + 0.0 * mirrored, strength * mirrored

    def total_chances(self, count: FloatArray, total: FloatArray) -> tuple[Any, Any]:
        """Totals are negative binomial."""
        low = betainc(self.shape, total + 1, self.rate / (self.rate + count))
        above = betainc(np.maximum(total, 1), self.shape, count / (self.rate + count))
        return low, np.where(total > 0, above, 1.0)

    def reward_chances(
        self, weights: FloatArray, rewards: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        share = self.rate / (self.rate + 1.0)  # counts are negative binomial
        high = (weights * betainc(self.shape, rewards + 1.0, share)).sum(axis=0)
        low = (weights * betainc(self.shape, np.maximum(rewards, 1.0), share)).sum(axis=0)
        return np.where(rewards > 0, low, 0.0), high

    def updated(self, stats: ArmStats | PullSums) -> Self:
        return self.of(self.shape + stats.total, self.rate + stats.count)


class ExponentialArms(_GammaArms):
    """Waiting times: a reward of arm i is exponential with a Gamma(shape_i, rate_i) rate.

    `sample` and `mean` are of the mean reward, one over the rate.

    >>> ExponentialArms(shape=[3.0], rate=[4.0]).mean
    array([2.])
    """

    NAME: ClassVar[str] = "exponential"
    MODEL: ClassVar[str] = "time"
    STATS: ClassVar[type[ArmStats]] = PositiveStats

    @property
    def mean(self) -> FloatArray:
        """Infinite where shape <= 1."""
        heavy = self.shape <= 1
        return np.where(heavy, np.inf, self.rate / np.where(heavy, 1.0, self.shape - 1))

    @property
    def scale(self) -> FloatArray:
        """Infinite where shape <= 2."""
        heavy = self.shape <= 2
        return np.where(heavy, np.inf, self.mean / np.sqrt(np.where(heavy, 1.0, self.shape - 2)))

    @property
    def reward_variance(self) -> FloatArray:
        return self.mean**2

    def sample(self, rng: Rng) -> FloatArray:
        draws = self.rate / np.maximum(rng.standard_gamma(self.shape), self.rate / LARGEST)
        return untied(np.minimum(draws, LARGEST), rng, top=(LARGEST, self.shape))

    @staticmethod
    def reward_at(mean: float, point: float) -> float:
        return -mean * math.log1p(-point)

    def below(self, x: FloatArray) -> FloatArray:
        return np.asarray(gammaincc(self.shape, self.rate / x))

    def upper(self, z: FloatArray | float) -> FloatArray:
        times = gammainccinv(self.shape, ndtr(z))
        return self.rate / np.maximum(times, self.rate / LARGEST)

    def density(self) -> Density:
        """The mean reward is one over the rate: the same mirrored."""
        return (
            self._rate_density()
            .mirrored()
            ._replace(reward=lambda u: np.exp(np.minimum(u, math.log(LARGEST))))
        )

    def reward_chances(
        self, weights: FloatArray, rewards: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        level = -np.expm1(-self.shape * np.log1p(rewards / self.rate))  # times are Lomax
        chance: FloatArray = (weights * level).sum(axis=0)
        return chance, chance

    def updated(self, stats: ArmStats | PullSums) -> Self:
        return self.of(self.shape + stats.count, self.rate + stats.total)
