"""A mixture of product beliefs of one family: exact, with weights in log space (Section 3.4)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp

from adats.models.core import checks
from adats.models.core.belief import WeightedBelief
from adats.models.core.errors import InvalidValue
from adats.models.core.frozen import fill, unchecked
from adats.models.core.product import ProductArms, rewards_before
from adats.models.core.types import Conditioned, FloatArray, IntArray, Rng
from adats.models.core.weights import LIGHT, average, draw, log_of, softmax, spread

FAINT = 1e-18  # indices leave out a candidate of less weight


@dataclass(frozen=True, eq=False)
class MixtureArms(WeightedBelief):
    """A mixture of product beliefs of one family, given as a stack.

    `log_weights` has a row a candidate and one column (the candidates are whole product priors)
    or one column an arm (every arm has a mixture of its own). They need not be normalised.
    """

    NAME: ClassVar[str] = "mixture"
    log_weights: FloatArray
    components: ProductArms

    def __init__(self, weights: ArrayLike, beliefs: Sequence[ProductArms] | ProductArms) -> None:
        components = stacked(beliefs)
        log_weights = log_of(candidate_weights(weights, components))
        fill(self, log_weights=log_weights, components=components)

    @classmethod
    def of(cls, log_weights: FloatArray, components: ProductArms) -> Self:
        return unchecked(cls, log_weights=log_weights, components=components)

    @property
    def mean(self) -> FloatArray:
        return average(self.weights, self.components.mean)

    @property
    def scale(self) -> FloatArray:
        return spread(self.weights, self.components.mean, self.components.scale)

    @property
    def reward_variance(self) -> FloatArray:
        return average(self.weights, self.components.reward_variance)

    def sample(self, rng: Rng) -> FloatArray:
        """Exact: a component (one an arm, if arms are separate), then a draw from it."""
        return self.components.pick(draw(self.weights, rng)).sample(rng)

    def draws(self, count: int, rng: Rng) -> FloatArray:
        index = draw(np.tile(self.weights, count), rng).reshape(count, -1)
        stack, arms = self.components, np.arange(self.components.n_arms)
        return stack.of(*(p[index, arms] for p in stack.parameters())).sample(rng)

    def best_chances(self, arms: IntArray | None = None) -> FloatArray | None:
        weights, parameters = self.weights, self.components.parameters()
        separate = weights.shape[1] > 1
        if arms is not None:
            parameters = tuple(p[:, arms] for p in parameters)
            weights = weights[:, arms] if separate else weights
        heavy = weights.max(axis=1) > LIGHT
        if not heavy.all():
            parameters, weights = tuple(p[heavy] for p in parameters), weights[heavy]
        return self.components.of(*parameters).stack_chances(weights, separate)

    def below(self, x: FloatArray) -> FloatArray:
        return average(self.weights, self.components.below(x))

    @property
    def apart(self) -> Self:
        """Without candidates that no index can tell."""
        heavy = self.weights.max(axis=1) > FAINT
        if heavy.all():
            return self
        some = self.components.of(*(p[heavy] for p in self.components.parameters()))
        return self.of(self.log_weights[heavy], some)

    def upper(self, z: FloatArray | float) -> FloatArray:
        weights = np.broadcast_to(self.weights, self.components.parameters()[0].shape)
        return self.components.stack_upper(weights, z)

    def tightened(self, pending: FloatArray) -> Self:
        """When pending pulls have come in as expected under each candidate; no weight moves."""
        return self.of(self.log_weights, self.components.tightened(pending))

    @property
    def one_family(self) -> ProductArms:
        """The one belief of the candidates' family with this mean and spread of each arm."""
        return self.components.matched(self.mean, self.scale)

    def ranks(self, actions: IntArray, rewards: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Where each reward falls in what this belief and the rewards before it predict."""
        arms = self.components.n_arms
        if self.log_weights.shape[1] != arms:
            raise ValueError("every arm must have a mixture of its own")
        each = self.components.columns(actions.tolist())
        stats = each.STATS(rewards_before(actions, rewards, arms))
        weights = softmax(self.log_weights[:, actions] + each.arm_log_evidence(stats))
        return each.updated(stats).reward_chances(weights, rewards)

    def rank(self, arm: int, reward: float) -> tuple[float, float]:
        weights = self.weights if self.weights.shape[1] == 1 else self.weights[:, [arm]]
        low, high = self.components.columns([arm]).reward_chances(weights, np.array([reward]))
        return float(low[0]), float(high[0])

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


def candidate_weights(weights: ArrayLike, components: ProductArms) -> FloatArray:
    """Checked weights of shape (candidates, 1) or (candidates, arms)."""
    result = checks.weights("weights", weights, ndim=(1, 2))
    candidates, arms = components.parameters()[0].shape
    if result.shape not in ((candidates,), (candidates, arms)):
        raise InvalidValue(
            "weights",
            f"must have shape ({candidates},), or ({candidates}, {arms}) for a mixture "
            f"of its own in every arm, got {result.shape}",
        )
    return result.reshape(candidates, -1)
