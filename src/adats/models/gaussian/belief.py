"""Gaussian arms with known noise (paper, Section 3.1)."""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr

from adats.models.core import checks
from adats.models.core.frozen import fill, put
from adats.models.core.product import SEVERAL, ProductArms
from adats.models.core.quadrature import Density
from adats.models.core.types import FloatArray, IntArray, N, Rng

LOG_2PI = math.log(2 * math.pi)


def posterior_of_arm(mean: N, ratio: N, count: N, total: N) -> tuple[N, N]:
    """The mean after `count` rewards that sum to `total`, and the part of the variance left.

    `ratio` is scale² / noise². Of floats or arrays, and as compiled.
    """
    keep = 1.0 / (1.0 + count * ratio)  # share of the prior in the posterior
    return keep * (mean + ratio * total), keep


@dataclass(frozen=True, eq=False)
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
        put(new, "mean", mean)
        put(new, "scale", scale)
        put(new, "noise", noise)
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

    def stack_chances(self, weights: FloatArray, separate: bool) -> FloatArray | None:
        if separate or len(self.mean) > SEVERAL:
            return super().stack_chances(weights, separate)
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

    def updated(self, stats: Any) -> Self:
        ratio = (self.scale / self.noise) ** 2
        mean, keep = posterior_of_arm(self.mean, ratio, stats.count, stats.total)
        return self.of(mean, self.scale * np.sqrt(keep), self.noise)

    def arm_log_evidence(self, stats: Any) -> FloatArray:
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


# the chance of each arm to be best

# Distances are in standard deviations of an arm: of what lies further than REACH from its mean
# nothing is seen, 1e-15 of the probability. A piece is STEP long, or TAIL where it begins more
# than CUT above the mean.
REACH, STEP, TAIL, CUT = 8.0, 4.1, 8.2, 2.5
BELOW, ABOVE, NARROWEST = -6, 9, 6.0  # of one arm's u; and how much narrower others may be
_T, _W = np.polynomial.legendre.leggauss(14)
_LINE = np.array([np.ones_like(_T), (_T + 1) / 2])  # where a piece begins and its width, to nodes
_W /= 2 * math.sqrt(2 * math.pi)


def best_gaussian(mean: FloatArray, scale: FloatArray) -> FloatArray:
    """The chance of each of some independent Gaussians to be the largest; scales may be 0.

    All is measured from the lowest point that the best arm can have. Arms that end below it are
    never best.
    """
    means, scales = mean.tolist(), scale.tolist()
    top = max(means)
    lows = [m - top - REACH * s for m, s in zip(means, scales, strict=True)]
    first = lows.index(max(lows))
    base, start = means[first], REACH * scales[first]
    ends = [
        (end, s)
        for m, s in zip(means, scales, strict=True)
        if (end := m - base + start + REACH * s) > 0 and s > 0
    ]
    centre = mean - base
    centre += start
    if len(ends) == len(means):
        result = _shares(centre, scale, ends)
    else:
        live = (centre + REACH * scale > 0) & (scale > 0)
        result = np.zeros(len(means))
        if start == 0:  # the best known arm is best if all others are below it
            result[first] = ndtr(-centre[live] / scale[live]).prod()
        if len(ends) == 1 and start > 0:
            result[first] = 1.0
        elif ends:
            result[live] = _shares(centre[live], scale[live], ends)
    total = sum(result.tolist())
    if not abs(total - 1) < 1e-3:
        raise ValueError(f"scales from {min(scales)} to {max(scales)} are too far apart")
    result /= total
    return result


def chance_gaussian(mean: FloatArray, scale: FloatArray, arm: int) -> float:
    """The chance of one of some independent Gaussians to be the largest.

    With u the arm's distance from its mean in standard deviations it is ∫ φ(u) Π Φ(a_j u + b_j) du,
    worked out by the trapezoidal rule. The Fourier transform of the integrand falls like
    exp(-ω²/2V), V = 1 + Σ a_j², and the error like that at ω = 2π/step. A step of 1/√V makes it
    3e-9 at most, and 1e-11 in what was tried. Where an arm is known, or is far narrower than this
    one, `best_gaussian` is better.
    """
    own = scale.item(arm)
    if not own < NARROWEST * min(scale.tolist()):
        return best_gaussian(mean, scale).item(arm)
    a = own / scale
    u, weights = _steps(math.ceil(math.sqrt(a.dot(a))))  # √V, as its own a is 1
    b = (mean.item(arm) - mean) / scale
    z = a[:, None] * u
    z += b[:, None]
    z[arm] = np.inf
    return min(1.0, float(np.multiply.reduce(ndtr(z), axis=0).dot(weights)))


@lru_cache(maxsize=256)
def _steps(per_unit: int) -> tuple[FloatArray, FloatArray]:
    """Points as far out as it matters, and φ there times the step."""
    u = np.arange(BELOW * per_unit, ABOVE * per_unit + 1) / per_unit
    return u, np.exp(-0.5 * u * u) / (math.sqrt(2 * math.pi) * per_unit)


def _shares(centre: FloatArray, scale: FloatArray, ends: list[tuple[float, float]]) -> FloatArray:
    """∫ f_k Π_{j≠k} F_j from 0 on, for every k, on nodes that all arms share."""
    pieces = np.array(_pieces(sorted(ends, reverse=True))).reshape(-1, 2)
    z = pieces.dot(_LINE).ravel() - centre[:, None]
    z /= scale[:, None]
    below: FloatArray = ndtr(z)
    weights: FloatArray = np.multiply.reduce(below, axis=0)
    weights *= (pieces[:, 1:] * _W).ravel()
    z *= z
    z *= -0.5
    np.maximum(z, -700.0, out=z)  # exp is slow where it is subnormal
    np.exp(z, out=z)
    z /= below
    shares: FloatArray = z.dot(weights)
    shares /= scale
    return shares


def _pieces(ends: list[tuple[float, float]]) -> list[float]:
    """Where a piece begins and how wide it is, one after another; arms that end last come first.

    An arm matters up to its end: so pieces follow the narrowest of those that have not ended.
    """
    narrowest, least = [], math.inf
    for arm in ends:
        if arm[1] < least:
            narrowest.append(arm)
            least = arm[1]
    pace = 1.0 if len(ends) <= 10 else (10 / len(ends)) ** 0.2  # the best of many varies less
    core, tail = pace * STEP, pace * TAIL
    x, pieces = 0.0, list[float]()
    while narrowest:
        end, scale = narrowest.pop()
        turn, short, long = end - (REACH - CUT) * scale, core * scale, tail * scale
        if narrowest:
            long = min(long, core * narrowest[-1][1])
        while x < end:
            step = short if x < turn else long
            pieces += (x, step)
            x += step
    return pieces
