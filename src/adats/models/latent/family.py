"""The families of clicks and of counts, whose natural parameter may be any number."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit, logit, pdtr

from adats.models.beta.belief import BetaArms, bernoulli_steps
from adats.models.beta.stats import BinaryStats
from adats.models.core import checks
from adats.models.core.product import ProductArms
from adats.models.core.types import FloatArray
from adats.models.family.family import ExponentialFamily
from adats.models.gamma.belief import PoissonArms
from adats.models.gamma.stats import CountStats

LARGEST = 300.0  # exp of more is not told apart: times any number of pulls it is finite
# evenly spaced nodes for integrals over a standard normal: exact to round-off for smooth functions
NODES = np.linspace(-8.0, 8.0, 97)
WEIGHTS = np.exp(-0.5 * NODES**2) / np.exp(-0.5 * NODES**2).sum()
# up to such a scale of eta every fourth, third or second node is enough, to 1e-8
ENOUGH = [
    (scale, NODES[::step], WEIGHTS[::step] / WEIGHTS[::step].sum())
    for scale, step in ((1.0, 4), (1.5, 3), (2.5, 2), (math.inf, 1))
]


@dataclass(frozen=True, kw_only=True)
class Family(ExponentialFamily):
    """One whose natural parameter may be Gaussian, with what sites and beliefs then need."""

    variance: Callable[[Any], Any]  # A'', the variance of a reward
    eta: Callable[[Any], Any]  # of a mean: the inverse of A'
    expected: Callable[[FloatArray, FloatArray], tuple[FloatArray, FloatArray]]
    most: float  # the largest mean of a reward
    steepest: float  # A'' rises up to this eta, and falls after it
    conjugate: type[ProductArms]  # beliefs over the mean itself
    # chances of a smaller reward and of one that is not larger, where eta ~ N(mean, scale²)
    steps: Callable[[FloatArray, FloatArray, FloatArray], tuple[FloatArray, FloatArray]]

    @property
    def counts(self) -> bool:
        """Whether rewards are counts, not 0 and 1."""
        return self.most > 1.0

    def check_counts(self, pulls: object, successes: object) -> tuple[float, float]:
        """So many pulls, and the sum of their rewards; fractions are legal."""
        return checks.counts(pulls, successes, self.most)


def bernoulli_log_partition(eta: Any) -> Any:
    """As logaddexp(0, eta), three times as fast for many."""
    return np.maximum(np.log1p(np.exp(np.minimum(eta, LARGEST))), eta)


def bernoulli_variance(eta: Any) -> Any:
    small = np.exp(-np.abs(eta))
    return small / (1.0 + small) ** 2


def bernoulli_expected(mean: FloatArray, scale: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Mean and standard deviation of a rate whose log-odds are N(mean, scale²)."""
    largest = scale.max(initial=0.0)
    _, nodes, weights = next(part for part in ENOUGH if largest <= part[0])
    rates = expit(mean[..., None] + scale[..., None] * nodes)
    first = rates @ weights
    rates -= first[..., None]
    rates *= rates
    return first, np.sqrt(rates @ weights)


def bernoulli_chances(
    mean: FloatArray, scale: FloatArray, rewards: FloatArray
) -> tuple[FloatArray, FloatArray]:
    return bernoulli_steps(bernoulli_expected(mean, scale)[0], rewards)


def poisson_chances(
    mean: FloatArray, scale: FloatArray, rewards: FloatArray
) -> tuple[FloatArray, FloatArray]:
    rates = poisson_mean(mean[:, None] + scale[:, None] * NODES)
    high = pdtr(rewards[:, None], rates) @ WEIGHTS
    low = pdtr(np.maximum(rewards - 1.0, 0.0)[:, None], rates) @ WEIGHTS
    return np.where(rewards > 0, low, 0.0), high


def poisson_mean(eta: Any) -> Any:
    return np.exp(np.minimum(eta, LARGEST))


def poisson_expected(mean: FloatArray, scale: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Mean and standard deviation of a rate whose logarithm is N(mean, scale²)."""
    first = poisson_mean(mean + 0.5 * scale**2)
    return first, first * np.sqrt(np.expm1(np.minimum(scale**2, LARGEST)))


BINARY = Family(
    "binary",
    bernoulli_log_partition,
    expit,
    rewards=BinaryStats,
    variance=bernoulli_variance,
    eta=logit,
    expected=bernoulli_expected,
    most=1.0,
    steepest=0.0,
    conjugate=BetaArms,
    steps=bernoulli_chances,
)
COUNT = Family(
    "count",
    poisson_mean,
    poisson_mean,
    rewards=CountStats,
    variance=poisson_mean,
    eta=np.log,
    expected=poisson_expected,
    most=math.inf,
    steepest=math.inf,
    conjugate=PoissonArms,
    steps=poisson_chances,
)
FAMILIES = {family.name: family for family in (BINARY, COUNT)}
