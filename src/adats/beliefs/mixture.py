"""Mixtures of beliefs: exact, with weights in log space (paper, Section 3.4)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self, cast

import numpy as np
from scipy.special import logsumexp, ndtr

from adats import checks
from adats.beliefs.product import ProductArms
from adats.frozen import unchecked
from adats.types import ArmBelief, Belief, Conditioned, FloatArray, IntArray, Rng

HALVINGS = 50  # of the interval that holds a quantile


def log_of(weights: FloatArray) -> FloatArray:
    """Logarithms, with -inf for a weight of zero."""
    with np.errstate(divide="ignore"):
        logs: FloatArray = np.log(weights)
    return logs


def softmax(log_weights: FloatArray) -> FloatArray:
    """Weights that sum to one along the first axis."""
    weights: FloatArray = np.exp(log_weights - log_weights.max(axis=0))
    weights /= weights.sum(axis=0)
    return weights


def draw(weights: FloatArray, rng: Rng) -> IntArray:
    """An index for each column of weights, with its probability."""
    cumulative = weights.cumsum(axis=0)
    points = rng.random(weights.shape[1]) * cumulative[-1]
    index: IntArray = (cumulative <= points).sum(axis=0)
    return np.minimum(index, len(weights) - 1)


def _average(weights: FloatArray, values: FloatArray) -> FloatArray:
    """Weighted sum over the first axis; what has no weight does not count, even if infinite."""
    average: FloatArray = (weights * np.where(weights > 0, values, 0.0)).sum(axis=0)
    return average


def _spread(weights: FloatArray, means: FloatArray, scales: FloatArray) -> FloatArray:
    """Standard deviation of a mixture; infinite where a component's is."""
    centre = _average(weights, means)
    endless = np.isinf(_average(weights, scales))
    gaps = np.where(endless, 0.0, means) - np.where(endless, 0.0, centre)
    variances = np.where(endless, 0.0, scales) ** 2 + gaps**2
    return np.where(endless, np.inf, np.sqrt(_average(weights, variances)))


def _quantile(
    below: Callable[[FloatArray], FloatArray], parts: FloatArray, z: FloatArray | float
) -> FloatArray:
    """Between the least and the largest quantile of the parts lies that of the mixture."""
    level = ndtr(z)
    low: FloatArray = parts.min(axis=0)
    high: FloatArray = parts.max(axis=0)
    for _ in range(HALVINGS):
        middle = low + (high - low) / 2
        small = below(middle) < level
        low, high = np.where(small, middle, low), np.where(small, high, middle)
    return high


@dataclass(frozen=True, eq=False)
class MixtureArms:
    """A mixture of product beliefs of one family, given as a stack.

    `log_weights` has a row a candidate and one column (the candidates are whole product priors)
    or one column an arm (every arm has a mixture of its own). They need not be normalised.
    """

    log_weights: FloatArray
    components: ProductArms

    def __init__(self, weights: Any, beliefs: Sequence[ProductArms] | ProductArms) -> None:
        components = stacked(beliefs)
        log_weights = log_of(candidate_weights(weights, components))
        object.__setattr__(self, "log_weights", log_weights)
        object.__setattr__(self, "components", components)

    @classmethod
    def of(cls, log_weights: FloatArray, components: ProductArms) -> Self:
        return unchecked(cls, log_weights=log_weights, components=components)

    @property
    def weights(self) -> FloatArray:
        return softmax(self.log_weights)

    @property
    def mean(self) -> FloatArray:
        return _average(self.weights, self.components.mean)

    @property
    def scale(self) -> FloatArray:
        return _spread(self.weights, self.components.mean, self.components.scale)

    @property
    def reward_variance(self) -> FloatArray:
        return _average(self.weights, self.components.reward_variance)

    def sample(self, rng: Rng) -> FloatArray:
        """Exact: a component (one an arm, if arms are separate), then a draw from it."""
        return self.components.pick(draw(self.weights, rng)).sample(rng)

    def below(self, x: FloatArray) -> FloatArray:
        return _average(self.weights, self.components.below(x))

    def upper(self, z: FloatArray | float) -> FloatArray:
        return _quantile(self.below, self.components.upper(z), z)

    def tightened(self, pending: FloatArray) -> Self:
        """When pending pulls have come in as expected under each candidate; no weight moves."""
        return self.of(self.log_weights, self.components.tightened(pending))

    def condition(self, stats: Any) -> Conditioned[Self]:
        gained = self.log_weights + grouped(
            self.components.arm_log_evidence(stats), self.log_weights.shape[1]
        )
        log_evidence = logsumexp(gained, axis=0) - logsumexp(self.log_weights, axis=0)
        return Conditioned(
            float(log_evidence.sum()), self.of(gained, self.components.updated(stats))
        )


def grouped(arm_log_evidence: FloatArray, groups: int) -> FloatArray:
    """Log evidence of each candidate: over all arms (one group), or for each arm."""
    if groups == 1:
        summed: FloatArray = arm_log_evidence.sum(axis=1, keepdims=True)
        return summed
    return arm_log_evidence


def stacked(beliefs: Sequence[ProductArms] | ProductArms) -> ProductArms:
    """Candidates of one family as a stack."""
    if isinstance(beliefs, ProductArms):
        if beliefs.parameters()[0].ndim != 2:
            raise ValueError("a stack of candidates has parameters of shape (candidates, arms)")
        return beliefs
    kinds = {type(b) for b in beliefs}
    if len(kinds) != 1 or not issubclass(kind := kinds.pop(), ProductArms):
        raise ValueError("priors must be at least one, all of one family, such as BetaArms")
    return kind.stack(beliefs)


def candidate_weights(weights: Any, components: ProductArms) -> FloatArray:
    """Checked weights of shape (candidates, 1) or (candidates, arms)."""
    result = checks.weights("weights", weights, ndim=(1, 2))
    candidates, arms = components.parameters()[0].shape
    if result.shape not in ((candidates,), (candidates, arms)):
        raise ValueError(
            f"weights must have shape ({candidates},), or ({candidates}, {arms}) for a mixture "
            f"of its own in every arm, got {result.shape}"
        )
    return result.reshape(candidates, -1)


@dataclass(frozen=True, eq=False)
class BeliefMixture:
    """A mixture of beliefs of any kind over the same theta."""

    log_weights: FloatArray
    beliefs: tuple[Belief, ...]

    def __init__(self, weights: Any, beliefs: Sequence[Belief]) -> None:
        checked = checks.weights("weights", weights)
        if checked.shape != (len(beliefs),):
            raise ValueError(f"{len(beliefs)} beliefs need as many weights, got {checked.shape}")
        if len({np.shape(belief.mean) for belief in beliefs}) != 1:
            raise ValueError("the beliefs of a mixture must be over the same arms")
        object.__setattr__(self, "log_weights", log_of(checked))
        object.__setattr__(self, "beliefs", tuple(beliefs))

    @classmethod
    def of(cls, log_weights: FloatArray, beliefs: tuple[Belief, ...]) -> Self:
        return unchecked(cls, log_weights=log_weights, beliefs=beliefs)

    @property
    def weights(self) -> FloatArray:
        return softmax(self.log_weights)

    @property
    def mean(self) -> FloatArray:
        return _average(self.weights[:, None], np.stack([b.mean for b in self.beliefs]))

    @property
    def scale(self) -> FloatArray:
        means = np.stack([b.mean for b in self.beliefs])
        scales = np.stack([b.scale for b in self.beliefs])
        return _spread(self.weights[:, None], means, scales)

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
        each = np.stack([b.reward_variance for b in self._arms()])
        return _average(self.weights[:, None], each)

    def sample(self, rng: Rng) -> FloatArray:
        return self.beliefs[int(draw(self.weights[:, None], rng)[0])].sample(rng)

    def below(self, x: FloatArray) -> FloatArray:
        return _average(self.weights[:, None], np.stack([b.below(x) for b in self._arms()]))

    def upper(self, z: FloatArray | float) -> FloatArray:
        return _quantile(self.below, np.stack([b.upper(z) for b in self._arms()]), z)

    def tightened(self, pending: FloatArray) -> Self:
        """When pending pulls have come in as expected under each belief; no weight moves."""
        beliefs = tuple(cast(ArmBelief, b).tightened(pending) for b in self.beliefs)
        return self.of(self.log_weights, beliefs)

    def at_rows(self, rows: FloatArray) -> Self:
        """Of linear beliefs: over the mean rewards of arms with these features."""
        beliefs = tuple(cast(Any, b).at_rows(rows) for b in self.beliefs)
        return self.of(self.log_weights, beliefs)

    def _arms(self) -> tuple[ArmBelief, ...]:
        return cast("tuple[ArmBelief, ...]", self.beliefs)

    def condition(self, stats: Any) -> Conditioned[Self]:
        parts = [belief.condition(stats) for belief in self.beliefs]
        gained = self.log_weights + np.array([part.log_evidence for part in parts])
        log_evidence = float(logsumexp(gained) - logsumexp(self.log_weights))
        return Conditioned(log_evidence, self.of(gained, tuple(part.belief for part in parts)))
