"""Linear model with Gaussian rewards (paper, Section 3.2)."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr

from adats.models.core import checks, linalg
from adats.models.core.belief import BeliefBase
from adats.models.core.draws import Draws
from adats.models.core.frozen import fill, put, setters
from adats.models.core.types import Conditioned, Design, FloatArray, IntArray, Rng
from adats.models.gaussian.belief import LOG_2PI, GaussianArms
from adats.models.linear.stats import LinearStats


class _Factored(BeliefBase):
    """theta ~ N(mean, factor @ factorᵀ); the reward of an arm with features a is N(aᵀtheta, σ²)."""

    NAME: ClassVar[str] = "linear"
    noise: float
    if TYPE_CHECKING:  # a field or a property

        @property
        def factor(self) -> FloatArray: ...

    @property
    def scale(self) -> FloatArray:
        """Standard deviation of each entry of theta."""
        scale: FloatArray = np.sqrt((self.factor**2).sum(axis=-1))
        return scale


class _Linear(_Factored):
    """The belief in one task."""

    @property
    def cov(self) -> FloatArray:
        return self.factor @ self.factor.T

    def at_rows(self, rows: FloatArray) -> GaussianArms:
        """The belief over the mean rewards of arms with these features, each by itself."""
        spread = rows.dot(self.factor)
        scale = np.sqrt(np.einsum("ij,ij->i", spread, spread))
        return GaussianArms.of(rows.dot(self.mean), scale, np.full(len(rows), self.noise))

    def draws(self, count: int, rng: Rng) -> FloatArray:
        factor = self.factor
        theta: FloatArray = self.mean + rng.standard_normal((count, factor.shape[1])) @ factor.T
        return theta

    def tightened(self, pending: FloatArray) -> "LinearBelief":
        """When pending pulls, with this Gram matrix, have come in as expected: the mean stays."""
        mean = self.mean
        stats = LinearStats.zeros(mean.size)
        stats.gram[:], stats.xy[:] = pending, pending.dot(mean)
        return self.condition(stats).belief

    @property
    def one_family(self) -> GaussianArms:
        """Every entry of theta by itself."""
        return self.at_rows(np.eye(self.mean.size))

    def ranks(
        self, actions: FloatArray | IntArray, rewards: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Where each reward falls in what this belief and the rewards before it predict.

        Actions are rows of features, or numbers of arms where theta has an entry for each. A
        Cholesky factor of the rewards' covariance predicts each from those before it.
        """
        rows = np.eye(self.mean.size)[actions] if actions.ndim == 1 else actions
        half = rows @ self.factor
        cov = half @ half.T
        cov.flat[:: len(cov) + 1] += self.noise**2
        left = linalg.solved_lower(linalg.psd_factor(cov), rewards - rows @ self.mean)
        far: FloatArray = ndtr(left)
        return far, far

    def condition(self, stats: LinearStats) -> "Conditioned[LinearBelief]":
        precision = self.noise**-2.0
        factor = linalg.square_factor(self.factor)
        new = linalg.condition(self.mean, factor, stats.gram * precision, stats.xy * precision)
        linalg.check_digits(new.lower)
        log_noise = stats.n * (LOG_2PI + 2 * np.log(self.noise)) + stats.yy * precision
        log_evidence = float(new.log_integral() - 0.5 * log_noise)
        return Conditioned(log_evidence, LinearBelief.of(new.mean, new.factor, self.noise))


@dataclass(frozen=True, eq=False)
class LinearBelief(_Linear):
    """theta ~ N(mean, cov), kept as a factor with factor @ factorᵀ = cov, which may be singular.

    The reward of an arm with features a is N(aᵀtheta, noise²).

    >>> prior = LinearBelief(mean=[0.0, 0.0], cov=np.eye(2), noise=1.0)
    >>> prior.condition(LinearStats.zeros(2).add([1.0, 0.0], 2.0)).belief.mean
    array([1., 0.])
    """

    mean: FloatArray
    factor: FloatArray
    noise: float

    def __init__(self, mean: ArrayLike, cov: ArrayLike, noise: ArrayLike) -> None:
        mean = checks.array("mean", mean, ndim=1)
        factor = linalg.psd_factor(checks.covariance("cov", cov, len(mean)))
        noise = checks.positive_number("noise", noise)
        fill(self, mean=mean, factor=factor, noise=noise)

    @classmethod
    def of(cls, mean: FloatArray, factor: FloatArray, noise: float) -> Self:
        """From parts known to be good."""
        new = object.__new__(cls)
        put(new, "mean", mean)
        put(new, "factor", factor)
        put(new, "noise", noise)
        return new

    def sample(self, rng: Rng) -> FloatArray:
        return self.mean + self.factor @ rng.standard_normal(self.factor.shape[1])


@dataclass(frozen=True, eq=False, slots=True)
class LinearPosterior(_Linear):
    """The same belief where theta depends on an uncertain mu, sampled in O(d²): mu, then theta.

    Given mu, theta is N(QΦmu + own, F Fᵀ). Mean and factor are worked out when asked for.
    """

    mu: linalg.Gaussian
    design: Design  # Φ
    keep: FloatArray  # Q
    own: FloatArray
    spread: FloatArray  # F
    noise: float

    @classmethod
    def of(
        cls,
        mu: linalg.Gaussian,
        design: Design,
        keep: FloatArray,
        own: FloatArray,
        spread: FloatArray,
        noise: float,
    ) -> Self:
        new = object.__new__(cls)
        _set_mu(new, mu)
        _set_design(new, design)
        _set_keep(new, keep)
        _set_own(new, own)
        _set_spread(new, spread)
        _set_noise(new, noise)
        return new

    def _designed(self, point: FloatArray) -> FloatArray:
        return point if self.design is None else self.design.dot(point)

    @property
    def mean(self) -> FloatArray:
        """QΦμ̂ + QΣ_0B/σ²."""
        return self.keep @ self._designed(self.mu.mean) + self.own

    @property
    def factor(self) -> FloatArray:
        """Of the covariance QΣ_0 + QΦΣ̂ΦᵀQᵀ."""
        return np.hstack([self.spread, self.keep @ self._designed(self.mu.factor)])

    def sample(self, rng: Rng) -> FloatArray:
        p = len(self.mu.half)
        z = rng.standard_normal(p + self.spread.shape[1])
        theta: FloatArray = self.keep.dot(self._designed(self.mu.sample(z[:p])))
        theta += self.own
        theta += self.spread.dot(z[p:])
        return theta


_set_mu, _set_design, _set_keep, _set_own, _set_spread, _set_noise = setters(LinearPosterior)


class _Linears(_Factored):
    """The same beliefs over many tasks: mean and factor have a first axis for the task."""

    def sample(self, rng: Draws) -> FloatArray:  # type: ignore[override]
        z = rng.standard_normal((len(self.mean), self.factor.shape[-1]))
        return self.mean + linalg.times(self.factor, z)

    def at_rows(self, rows: FloatArray) -> GaussianArms:
        """Over the mean rewards of arms with these features, the same or others in each task."""
        spread = np.matmul(rows, self.factor)
        scale = np.sqrt(np.einsum("...ij,...ij->...i", spread, spread))
        return GaussianArms.of(
            self.rewards_at(rows, self.mean), scale, np.full(rows.shape[-2], self.noise)
        )

    def tightened(self, pending: FloatArray) -> "LinearBeliefs":
        """When pending pulls, with these Gram matrices, have come in as expected."""
        factor = self.factor
        turned = np.swapaxes(factor, -1, -2)
        inner = np.matmul(turned, np.matmul(pending * self.noise**-2.0, factor))
        lower = linalg.lower_factors(inner + np.eye(factor.shape[-1]))
        half = linalg.solved(lower, turned)
        return LinearBeliefs(self.mean, np.swapaxes(half, -1, -2), self.noise)


@dataclass(frozen=True, eq=False)
class LinearBeliefs(_Linears):
    """theta ~ N(mean, factor @ factorᵀ) in every task."""

    mean: FloatArray
    factor: FloatArray
    noise: float


@dataclass(frozen=True, eq=False)
class LinearPosteriors(_Linears):
    """`LinearPosterior` of many tasks, with theta = mu + F u in each, u ~ N(0, I)."""

    mu: linalg.Gaussian
    design: Design  # Φ
    prior: FloatArray  # F, with F Fᵀ = Σ_0
    gram: FloatArray  # G/σ²
    xy: FloatArray  # B/σ²
    inner: FloatArray  # I + FᵀGF/σ²
    lower: FloatArray  # C, with C Cᵀ = inner
    noise: float

    def _designed(self, points: FloatArray) -> FloatArray:
        return points if self.design is None else points @ self.design.T

    def _given(self, mu: FloatArray, more: FloatArray | None = None) -> FloatArray:
        """The mean of theta where its prior mean is `mu`; plus FC⁻ᵀz for `more` = C z."""
        side = (self.xy - linalg.times(self.gram, mu)) @ self.prior
        if more is not None:
            side += more
        u = linalg.solved(self.inner, side[..., None])[..., 0]
        return mu + u @ self.prior.T

    @cached_property
    def mean(self) -> FloatArray:
        """QΦμ̂ + QΣ_0B/σ²."""
        return self._given(np.broadcast_to(self._designed(self.mu.mean), self.xy.shape))

    @cached_property
    def factor(self) -> FloatArray:
        """Of the covariances QΣ_0 + QΦΣ̂ΦᵀQᵀ, with Q = I - FC⁻ᵀC⁻¹FᵀG/σ²."""
        half = linalg.solved(self.lower, np.broadcast_to(self.prior.T, self.gram.shape))
        turned = np.swapaxes(half, -1, -2)
        wide = self._designed(self.mu.half).T
        moved = wide - np.matmul(turned, np.matmul(half, np.matmul(self.gram, wide)))
        return np.concatenate([turned, moved], axis=-1)

    def sample(self, rng: Draws) -> FloatArray:  # type: ignore[override]
        size = self.lower.shape[-1]
        z = rng.standard_normal((len(self.xy), len(self.mu.half) + size))
        mu = self.mu.prior_mean + (self.mu.step + z[:, :-size]) @ self.mu.half
        return self._given(self._designed(mu), linalg.times(self.lower, z[:, -size:]))
