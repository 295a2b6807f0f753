"""Beliefs over theta on the scale of eta, and over the mean rewards that follow from it."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from scipy.special import logsumexp, ndtr

from adats.models.core import linalg
from adats.models.core.belief import BeliefBase
from adats.models.core.draws import Draws
from adats.models.core.frozen import FieldOf, put
from adats.models.core.product import ProductArms
from adats.models.core.types import Conditioned, FloatArray, IntArray, Rng
from adats.models.core.weights import draw, softmax
from adats.models.latent import full
from adats.models.latent.chances import Laws, best_chance, best_chances
from adats.models.latent.family import Family
from adats.models.latent.level import in_common
from adats.models.latent.sites import SMALLEST, settled

if TYPE_CHECKING:
    from adats.models.latent.digest import LatentDigest
    from adats.models.latent.meta import LatentMeta
    from adats.models.latent.stats import ArmSites


def matched(
    family: Family, weights: FloatArray, means: FloatArray, variances: FloatArray
) -> "LatentArms":
    """Every arm by itself, with the mean and variance of eta over all candidates."""
    mean = weights.dot(means)
    gaps = means - mean[..., None, :]
    variance = weights.dot(variances + gaps * gaps)
    return LatentArms(family, mean, np.sqrt(variance))


def rates(
    family: Family, weights: FloatArray, means: FloatArray, variances: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Mean and standard deviation of each mean reward, over all candidates."""
    first, sd = family.expected(means, np.sqrt(variances))
    mean: FloatArray = weights.dot(first)
    gaps = first - mean[..., None, :]
    return mean, np.sqrt(weights.dot(sd * sd + gaps * gaps))


def apart(
    family: Family,
    weights: FloatArray,
    means: FloatArray,
    variances: FloatArray,
    common: FloatArray,
) -> "LatentArms":
    """As `matched`, without what all arms have in common: what is left is how they differ."""
    shifts = means.dot(linalg.ones(means.shape[-1]))[..., None] / means.shape[-1]
    centre = weights.dot(shifts)[..., None, :]
    return matched(family, weights, means - (shifts - centre), variances - common)


FAR_CAUTION = 1.3


class CautiousBelief(BeliefBase):
    """Few successes say less than a Gaussian does."""

    FAR_CAUTION: ClassVar[float] = FAR_CAUTION
    FAR_TASKS: ClassVar[int] = 200

    @cached_property
    def _rates(self) -> tuple[FloatArray, FloatArray]:
        """Mean and spread of each arm's mean reward, where that is asked for."""
        raise NotImplementedError

    @property
    def mean(self) -> FloatArray:
        return self._rates[0]

    @property
    def scale(self) -> FloatArray:
        return self._rates[1]


@dataclass(frozen=True, eq=False)
class LatentArms(CautiousBelief):
    """eta_i ~ N(eta_mean_i, eta_scale_i²), each by itself; its reward has the mean A'(eta_i)."""

    NAME: ClassVar[str] = "latent-arms"
    family: Family
    eta_mean: FloatArray
    eta_scale: FloatArray

    @cached_property
    def _rates(self) -> tuple[FloatArray, FloatArray]:
        return self.family.expected(self.eta_mean, self.eta_scale)

    @property
    def reward_variance(self) -> FloatArray:
        variance: FloatArray = self.family.variance(self.eta_mean)
        return variance

    @property
    def variance_ratio(self) -> FloatArray:
        """Var(eta)·A''(eta)."""
        return self.eta_scale**2 * self.reward_variance

    def sample(self, rng: Rng) -> FloatArray:
        eta = self.eta_mean + self.eta_scale * rng.standard_normal(self.eta_mean.shape)
        drawn: FloatArray = self.family.mean(eta)
        return drawn

    def below(self, x: FloatArray) -> FloatArray:
        """The chance that each arm's mean reward is below x."""
        scale = np.maximum(self.eta_scale, SMALLEST)
        chance: FloatArray = ndtr((_eta(self.family, x) - self.eta_mean) / scale)
        return chance

    def upper(self, z: FloatArray | float) -> FloatArray:
        rate: FloatArray = self.family.mean(self.eta_mean + z * self.eta_scale)
        return rate

    def rank(self, arm: int, reward: float) -> tuple[float, float]:
        some = np.array([arm])
        low, high = self.family.steps(self.eta_mean[some], self.eta_scale[some], np.array([reward]))
        return float(low[0]), float(high[0])

    def tightened(self, pending: FloatArray) -> "LatentArms":
        """When pending pulls have come in as expected: the means stay, the doubts shrink."""
        known = 1.0 + self.variance_ratio * pending
        return LatentArms(self.family, self.eta_mean, self.eta_scale / np.sqrt(known))


def _eta(family: Family, x: FloatArray) -> FloatArray:
    with np.errstate(divide="ignore", invalid="ignore"):
        eta: FloatArray = family.eta(np.clip(x, 0.0, family.most))
    return eta


@dataclass(frozen=True, eq=False)
class LatentBelief(CautiousBelief):
    """eta ~ N(eta_mean, FFᵀ) under each candidate, a row each, with log weights."""

    NAME: ClassVar[str] = "latent"
    family: Family
    log_weights: FloatArray  # (candidates,)
    eta_mean: FloatArray  # (candidates, arms)
    factor: FloatArray  # (candidates, arms, any)

    @cached_property
    def weights(self) -> FloatArray:
        return softmax(self.log_weights)

    @cached_property
    def _eta_scale(self) -> FloatArray:
        scale: FloatArray = np.sqrt((self.factor**2).sum(axis=-1))
        return scale

    @property
    def _etas_apart(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Weights of the candidates, and under each the means and variances of eta."""
        return self.weights, self.eta_mean, self._eta_scale**2

    def rank(self, arm: int, reward: float) -> tuple[float, float]:
        weights, means, variances = self._etas_apart
        rewards = np.full(weights.shape, reward)
        low, high = self.family.steps(means[:, arm], np.sqrt(variances[:, arm]), rewards)
        return float(weights @ low), float(weights @ high)

    @cached_property
    def each_arm(self) -> LatentArms:
        """Every arm by itself, with the mean and variance of eta over all candidates."""
        return matched(self.family, *self._etas_apart)

    @cached_property
    def apart(self) -> LatentArms:
        """As indices compare arms: without what all of them have in common."""
        together = (self.factor.sum(axis=-2) ** 2).sum(axis=-1)
        squares = self._eta_scale**2
        common = in_common(together, squares)
        return apart(self.family, self.weights, self.eta_mean, squares, common)

    @cached_property
    def _rates(self) -> tuple[FloatArray, FloatArray]:
        return rates(self.family, self.weights, self.eta_mean, self._eta_scale**2)

    reward_variance = FieldOf[FloatArray]("each_arm")
    variance_ratio = FieldOf[FloatArray]("each_arm")

    def below(self, x: FloatArray) -> FloatArray:
        """The chance that each arm's mean reward is below x."""
        eta = _eta(self.family, x)
        scale = np.maximum(self._eta_scale, SMALLEST)
        chances: FloatArray = self.weights @ ndtr((eta - self.eta_mean) / scale)
        return chances

    def upper(self, z: FloatArray | float) -> FloatArray:
        return self.each_arm.upper(z)

    def tightened(self, pending: FloatArray) -> LatentArms:
        return self.each_arm.tightened(pending)

    def sample(self, rng: Rng) -> FloatArray:
        drawn: FloatArray = self.family.mean(self._etas(1, rng)[0])
        return drawn

    def draws(self, count: int, rng: Rng) -> FloatArray:
        drawn: FloatArray = self.family.mean(self._etas(count, rng))
        return drawn

    def _etas(self, count: int, rng: Rng) -> FloatArray:
        index = draw(np.tile(self.weights[:, None], count), rng)
        z = rng.standard_normal((count, self.factor.shape[-1]))
        return linalg.drawn(self.eta_mean, self.factor, index, z)

    @cached_property
    def _laws(self) -> Laws:
        covs = np.matmul(self.factor, np.swapaxes(self.factor, -1, -2))
        return Laws(self.weights, self.eta_mean, covs)

    def best_chances(self, arms: IntArray | None = None) -> FloatArray:
        """Over fixed points: within 10 % where a chance is above 0.01, and never 0."""
        return best_chances(self._laws.of(arms))

    def best_chance(self, arm: int, arms: IntArray | None = None) -> float:
        return best_chance(self._laws.of(arms), arm)

    @property
    def one_family(self) -> ProductArms:
        """The one conjugate belief with this mean and spread of each arm."""
        ones = np.ones(self.mean.shape)
        return self.family.conjugate.of(ones, ones).matched(self.mean, self.scale)

    def ranks(self, actions: IntArray, rewards: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Where each reward falls in what this belief and the rewards before it predict.

        All earlier rewards count, those of other arms too.
        """
        rows = np.arange(len(rewards))
        pulled = np.zeros((len(rewards), self.eta_mean.shape[1]))
        pulled[rows, actions] = 1.0
        n, s = ((what.cumsum(axis=0) - what) for what in (pulled, pulled * rewards[:, None]))
        at = full.FullPrior(self.eta_mean[0], linalg.square_factor(self.factor)[0], None)
        sites = settled(self.family, n, s, at, np.zeros((3, *n.shape)))
        mean, variance = at.marginals(sites)
        scale = np.sqrt(variance[rows, actions])
        return self.family.steps(mean[rows, actions], scale, rewards)

    def condition(self, stats: "ArmSites") -> "Conditioned[LatentBelief]":
        """By expectation propagation under this belief."""
        prior = full.FullPrior(self.eta_mean, linalg.square_factor(self.factor), None)
        n, s = stats.table[0], stats.table[1]
        sites = settled(self.family, n, s, prior, np.zeros((3, *self.eta_mean.shape)))
        known = full.site_sums(sites, None)
        gain, mean, wide = full.given_sites(self.eta_mean, prior.factor, known)
        factor = linalg.psd_factors(np.matmul(wide, np.swapaxes(wide, -1, -2)))  # triangular
        logs = self.log_weights + gain
        evidence = float(logsumexp(logs) - logsumexp(self.log_weights)) - stats.log_base
        return Conditioned(evidence, LatentBelief(self.family, logs, mean, factor))


class InTask:
    """A belief in a task, drawn from without working out every candidate, and the rest of it only
    where it is asked for."""

    meta: Any
    digest: Any

    def __init__(self, meta: Any, digest: Any) -> None:
        put(self, "family", meta.family)
        put(self, "meta", meta)
        put(self, "digest", digest)

    @cached_property
    def joint(self) -> Any:
        """Worked out under every candidate."""
        return self.meta.posterior_joint(self.digest)

    log_weights = FieldOf[FloatArray]("joint")
    factor = FieldOf[FloatArray]("joint")


class LatentPosterior(InTask, LatentBelief):
    """The same belief in a task."""

    meta: "LatentMeta"
    digest: "LatentDigest"

    def sample(self, rng: Rng) -> FloatArray:
        drawn: FloatArray = self.family.mean(self.meta.posterior_sample(self.digest, rng))
        return drawn

    @cached_property
    def _moments(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Means and variances of eta under every candidate, and what arms have in common."""
        return self.meta.posterior_moments(self.digest)

    @property
    def _etas_apart(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        return self.meta.weights, *self._moments[:2]

    @cached_property
    def apart(self) -> LatentArms:
        return apart(self.family, self.meta.weights, *self._moments)

    @cached_property
    def _rates(self) -> tuple[FloatArray, FloatArray]:
        weights, means, covs = self._laws
        return rates(self.family, weights, means, np.einsum("...ii->...i", covs))

    @cached_property
    def _laws(self) -> Laws:
        return self.meta.posterior_laws(self.digest)

    eta_mean = FieldOf[FloatArray]("joint")


class LatentPosteriors(CautiousBelief):
    """Beliefs over many tasks; what is asked of them has a first axis for the task."""

    NAME: ClassVar[str] = "latent"

    def __init__(self, meta: Any, digests: Any) -> None:
        self._meta, self._digests = meta, digests

    def sample(self, rng: Draws) -> FloatArray:  # type: ignore[override]
        drawn: FloatArray = self._meta.family.mean(self._meta.sample_many(self._digests, rng))
        return drawn

    @cached_property
    def _moments(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Means and variances of eta under every candidate, and what arms have in common."""
        moments: tuple[FloatArray, FloatArray, FloatArray] = self._meta.moments_many(self._digests)
        return moments

    @cached_property
    def apart(self) -> LatentArms:
        """As indices compare arms: without what all of them have in common."""
        return apart(self._meta.family, self._meta.weights, *self._moments)

    @cached_property
    def _rates(self) -> tuple[FloatArray, FloatArray]:
        return rates(self._meta.family, self._meta.weights, *self._moments[:2])
