"""Gaussian arms with known noise (paper, Section 3.1)."""

import math
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr

from adats.models.core import checks
from adats.models.core.frozen import fill, setters
from adats.models.core.product import SEVERAL, ProductArms, PullSums, rewards_before
from adats.models.core.quadrature import Density
from adats.models.core.stats import ArmStats
from adats.models.core.types import BoolArray, FloatArray, IntArray, N, Rng
from adats.models.gaussian.chances import best_gaussian, chance_gaussian, chances_gaussian

LOG_2PI = math.log(2 * math.pi)


def posterior_of_arm(mean: N, ratio: N, count: N, total: N) -> tuple[N, N]:
    """The mean after `count` rewards that sum to `total`, and the part of the variance left.

    `ratio` is scale² / noise². Of floats or arrays, and as compiled.
    """
    keep = 1.0 / (1.0 + count * ratio)  # share of the prior in the posterior
    return keep * (mean + ratio * total), keep


@dataclass(frozen=True, eq=False, slots=True)
class GaussianArms(ProductArms):
    """theta_i ~ N(mean_i, scale_i²); a reward of arm i is N(theta_i, noise_i²). Scale 0 is legal.

    >>> from adats import ArmStats
    >>> prior = GaussianArms(mean=[0.0, 1.0], scale=1.0, noise=1.0)
    >>> posterior = prior.condition(ArmStats.zeros(2).add(0, 3.0)).belief
    >>> posterior.mean
    array([1.5, 1. ])
    """

    mean: FloatArray
    scale: FloatArray
    noise: FloatArray
    NAME: ClassVar[str] = "gaussian"
    MODEL: ClassVar[str] = "gaussian-mixture"
    PARAMETERS: ClassVar[tuple[str, ...]] = ("mean", "scale", "noise")

    def __init__(self, mean: ArrayLike, scale: ArrayLike, noise: ArrayLike) -> None:
        fill(
            self,
            mean=checks.array("mean", mean),
            scale=checks.non_negative("scale", scale),
            noise=checks.positive("noise", noise),
        )
        self._settle()

    @classmethod
    def of(cls, *parameters: FloatArray) -> Self:
        new = object.__new__(cls)  # the base's way, written out: this is the hot path
        mean, scale, noise = parameters
        _set_mean(new, mean)
        _set_scale(new, scale)
        _set_noise(new, noise)
        return new

    @property
    def reward_variance(self) -> FloatArray:
        return self.noise**2

    def sample(self, rng: Rng) -> FloatArray:
        return self.mean + self.scale * rng.standard_normal(self.mean.shape)

    def below(self, x: FloatArray) -> FloatArray:
        known = self.scale == 0
        chance = ndtr((x - self.mean) / np.where(known, 1.0, self.scale))
        return np.where(known, x >= self.mean, chance).astype(np.float64)

    def upper(self, z: FloatArray | float) -> FloatArray:
        return self.mean + z * self.scale

    def best_chances(self, arms: IntArray | None = None) -> FloatArray:
        if arms is None:
            return best_gaussian(self.mean, self.scale)
        return best_gaussian(self.mean[arms], self.scale[arms])

    def best_chance(self, arm: int, arms: IntArray | None = None) -> float:
        """In less time than that of all."""
        if arms is None:
            return chance_gaussian(self.mean, self.scale, arm)
        return chance_gaussian(self.mean[arms], self.scale[arms], arm)

    def best_chance_many(self, arms: IntArray, allowed: BoolArray | None) -> FloatArray:
        return chances_gaussian(self.mean, self.scale, arms, allowed)

    def stack_chances(self, weights: FloatArray, separate: bool) -> FloatArray | None:
        if separate or len(self.mean) > SEVERAL:
            return ProductArms.stack_chances(self, weights, separate)
        each = [best_gaussian(m, s) for m, s in zip(self.mean, self.scale, strict=True)]
        chances: FloatArray = weights[:, 0] @ np.array(each) / weights[:, 0].sum()
        return chances

    def density(self) -> Density | None:
        if not self.scale.all():
            return None
        unit, centre = self.scale.max(), self.mean.mean()
        mean, scale = (self.mean - centre) / unit, self.scale / unit
        precision = scale**-2.0
        rest = 0.5 * np.log(precision / (2 * math.pi)) - 0.5 * precision * mean**2
        return Density(
            np.stack([mean * precision, -0.5 * precision, rest], axis=-1),
            lambda u: np.stack([u, u * u, np.ones_like(u)]),
            lambda u: np.stack([np.ones_like(u), 2 * u, np.zeros_like(u)]),
            mean,
            scale,
            mean,
            scale,
            (-math.inf, math.inf),
            lambda u: centre + unit * u,
        )

    def updated(self, stats: ArmStats | PullSums) -> Self:
        ratio = (self.scale / self.noise) ** 2
        mean, keep = posterior_of_arm(self.mean, ratio, stats.count, stats.total)
        return self.of(mean, self.scale * np.sqrt(keep), self.noise)

    def matched(self, mean: FloatArray, scale: FloatArray) -> Self:
        return self.of(mean, scale, np.broadcast_to(self.noise.flat[0], mean.shape))

    def total_chances(self, count: FloatArray, total: FloatArray) -> tuple[FloatArray, FloatArray]:
        off = (total / count - self.mean) / np.sqrt(self.scale**2 + self.noise**2 / count)
        return ndtr(off), ndtr(-off)

    def ranks(self, actions: IntArray, rewards: FloatArray) -> tuple[FloatArray, FloatArray]:
        before = self.STATS(rewards_before(actions, rewards, self.n_arms))
        now = self.columns(actions.tolist()).updated(before)
        far: FloatArray = ndtr((rewards - now.mean) / np.hypot(now.scale, now.noise))
        return far, far

    def arm_log_evidence(self, stats: ArmStats) -> FloatArray:
        count, total = stats.count, stats.total
        ratio = (self.scale / self.noise) ** 2
        centred = total - count * self.mean
        squares = stats.squares - self.mean * (total + centred)  # Σ (y - mean)²
        fit = squares - ratio / (1.0 + count * ratio) * centred**2
        log_noise = LOG_2PI + 2 * np.log(self.noise)
        result: FloatArray = -0.5 * (
            count * log_noise + np.log1p(count * ratio) + fit / self.noise**2
        )
        return result


_set_mean, _set_scale, _set_noise = setters(GaussianArms)
