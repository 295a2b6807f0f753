"""What product beliefs share: independent arms, one conjugate family, parameters as arrays."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from scipy.special import ndtr

from adats.models.core import checks
from adats.models.core.belief import BeliefBase
from adats.models.core.errors import InvalidValue
from adats.models.core.frozen import fill, put
from adats.models.core.quadrature import Density, best_of
from adats.models.core.stats import ArmStats
from adats.models.core.tails import chances, quantiles
from adats.models.core.ties import in_order
from adats.models.core.types import Conditioned, FloatArray, IntArray, Rng
from adats.models.core.weights import average, quantile

MANY = 400  # beliefs in a mixture, candidates times arms, whose chances are worked out quickly
SEVERAL = 10  # the same of candidates that are whole products


@dataclass(frozen=True, eq=False)
class PullSums:
    """Pulls and summed rewards of each arm: all that a conjugate posterior needs."""

    count: FloatArray
    total: FloatArray


def rewards_before(actions: IntArray, rewards: FloatArray, arms: int) -> FloatArray:
    """Pulls of the same arm before each reward and their total; other rows stay zero."""
    rows = np.arange(len(rewards))
    pulled = np.zeros((len(rewards), arms))
    pulled[rows, actions] = 1.0
    table = np.zeros((4, len(rewards)))
    for row, what in zip(table, (pulled, pulled * rewards[:, None]), strict=False):
        row[:] = (what.cumsum(axis=0) - what)[rows, actions]
    return table


class ProductArms(BeliefBase):
    """Independent arms. The last axis of every parameter is the arm; axes before it are a stack
    of candidates, which a mixture evaluates all at once."""

    NAME: ClassVar[str]
    MODEL: ClassVar[str]  # what users call a mixture of such priors
    PARAMETERS: ClassVar[tuple[str, ...]]
    STATS: ClassVar[type[ArmStats]] = ArmStats

    def log_normaliser(self) -> FloatArray:
        """What makes a conjugate density sum to one, under each candidate of the stack."""
        raise NotImplementedError

    def arm_log_evidence(self, stats: ArmStats) -> FloatArray:
        """Log density of each arm's rewards, under each candidate of the stack."""
        gain = self.updated(stats).log_normaliser() - self.log_normaliser()
        return gain if stats.ROWS < 4 else gain - stats.arm_log_base

    @abstractmethod
    def updated(self, stats: ArmStats | PullSums) -> Self:
        """The posterior, under each candidate of the stack."""

    @abstractmethod
    def below(self, x: FloatArray) -> FloatArray:
        """The chance that each arm's mean reward is below x."""

    @abstractmethod
    def upper(self, z: FloatArray | float) -> FloatArray:
        """The quantile of each arm's mean reward at the level Φ(z)."""

    def density(self) -> Density | None:
        """Of a stack of candidates; None where an arm is known, and has none."""
        return None

    def stack_chances(self, weights: FloatArray, separate: bool) -> FloatArray | None:
        """The chance of each arm to be best in a mixture of this stack; None: draws can tell.

        If arms are `separate`, each has weights of its own, else a candidate is a whole product.
        """
        density = self.density()
        if density is None:
            return None
        many = density.mode.size > MANY or (not separate and len(weights) > SEVERAL)
        if many and density.sure():
            return chances(density, weights, separate)
        return best_of(density, weights, separate)

    def stack_upper(self, weights: FloatArray, z: FloatArray | float) -> FloatArray:
        """The quantile of each arm at the level Φ(z) in a mixture of this stack."""
        density = self.density()
        if density is not None and density.sure():
            u = quantiles(density, weights, np.broadcast_to(z, self.n_arms))
            if np.isfinite(u).all():
                return in_order(density.reward(u), u)
        return quantile(lambda x: average(weights, self.below(x)), self.upper(z), z)

    @staticmethod
    def reward_at(mean: float, point: float) -> float:
        """The reward of an arm with this mean at which its chances have summed to the point."""
        raise NotImplementedError

    def best_chances(self, arms: IntArray | None = None) -> FloatArray | None:
        some = (p[None] if arms is None else p[None, arms] for p in self.parameters())
        return self.of(*some).stack_chances(np.ones((1, 1)), False)

    def draws(self, count: int, rng: Rng) -> FloatArray:
        return self.of(*(np.tile(p, (count, 1)) for p in self.parameters())).sample(rng)

    def tightened(self, pending: FloatArray) -> Self:
        """When pending pulls have come in as expected: the means stay, the doubts shrink."""
        mean = self.mean
        known = np.isfinite(mean)
        count = np.where(known, pending, 0.0)
        return self.updated(PullSums(count, count * np.where(known, mean, 0.0)))

    def condition(self, stats: ArmStats) -> Conditioned[Self]:
        if stats.table.shape != (self.STATS.ROWS, self.n_arms):
            raise ValueError(f"statistics of shape {stats.table.shape} for {self.n_arms} arms")
        return Conditioned(float(self.arm_log_evidence(stats).sum()), self.updated(stats))

    def updated_many(self, rows: FloatArray) -> Self:
        table = rows.reshape(len(rows), -1, self.n_arms)
        return self.updated(self.STATS(np.moveaxis(table, 1, 0)))

    # what learning from logs asks

    @property
    def one_family(self) -> "ProductArms":
        """The belief as one product: a mixture has to be replaced by one with its moments."""
        return self

    def matched(self, mean: FloatArray, scale: FloatArray) -> Self:
        """The belief of this family with this mean and standard deviation of each arm."""
        raise NotImplementedError

    @classmethod
    def placed(
        cls, mean: FloatArray, mirrored: FloatArray, strength: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Parameters that give this mean, and are worth so much data: pulls, or events.

        `mirrored` is the mean with its natural parameter negated: 1 - mean of a chance, 1 / mean
        of a rate, both without round-off.
        """
        raise NotImplementedError

    def total_chances(self, count: FloatArray, total: FloatArray) -> tuple[Any, Any]:
        """Of each arm: the chance that so many rewards sum to no more, and to no less."""
        raise NotImplementedError

    def reward_chances(
        self, weights: FloatArray, rewards: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Of each arm: the chance of a smaller reward, and of one that is not larger.

        This is a stack of candidates, and `weights` is the belief in each. As if rewards were
        normal, where a family does not know better.
        """
        spread = np.sqrt(self.scale**2 + self.reward_variance)
        level = average(weights, ndtr((rewards - self.mean) / spread))
        return level, level

    def rank(self, arm: int, reward: float) -> tuple[float, float]:
        one = self.of(*(p[None] for p in self.columns([arm]).parameters()))
        low, high = one.reward_chances(np.ones((1, 1)), np.array([reward]))
        return float(low[0]), float(high[0])

    def ranks(self, actions: IntArray, rewards: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Where each reward falls in what this belief and the rewards before it predict.

        The chance of a smaller reward, and of one that is not larger: a point drawn between the
        two is uniform if all is right.
        """
        each = self.columns(actions.tolist())
        now = each.updated(each.STATS(rewards_before(actions, rewards, self.n_arms)))
        stack = now.of(*(p[None] for p in now.parameters()))
        return stack.reward_chances(np.ones((1, 1)), rewards)

    @property
    def n_arms(self) -> int:
        return int(self.parameters()[0].shape[-1])

    def parameters(self) -> tuple[FloatArray, ...]:
        return tuple(getattr(self, name) for name in self.PARAMETERS)

    @classmethod
    def of(cls, *parameters: FloatArray) -> Self:
        """From parameters known to be good."""
        new = object.__new__(cls)
        for name, value in zip(cls.PARAMETERS, parameters, strict=True):
            put(new, name, value)
        return new

    def _settle(self) -> None:
        """Bring checked parameters to one shape, at least one axis."""
        values = checks.broadcast(self.PARAMETERS, [np.atleast_1d(p) for p in self.parameters()])
        if values[0].size == 0:
            raise InvalidValue(self.PARAMETERS[0], "must have an entry for each arm, got none")
        for value in values:
            value.flags.writeable = False
        fill(self, **dict(zip(self.PARAMETERS, values, strict=True)))

    @classmethod
    def stack(cls, beliefs: Sequence[Self]) -> Self:
        """Candidates as one belief whose parameters have a leading axis."""
        shapes = {b.parameters()[0].shape for b in beliefs}
        if len(shapes) != 1 or any(len(shape) != 1 for shape in shapes):
            raise ValueError(f"candidate priors must have the same arms, got shapes {shapes}")
        columns = zip(*(b.parameters() for b in beliefs), strict=True)
        return cls.of(*(np.stack(column) for column in columns))

    def pick(self, index: IntArray | int) -> Self:
        """One candidate of the stack; or, from an array, one for each arm."""
        if isinstance(index, np.ndarray):
            arms = np.arange(self.n_arms)
            return self.of(*(p[index, arms] for p in self.parameters()))
        return self.of(*(p[index] for p in self.parameters()))

    def columns(self, arms: list[int]) -> Self:
        """The belief over some of the arms."""
        return self.of(*(p[..., arms] for p in self.parameters()))

    def with_columns(self, arms: list[int], other: Self) -> Self:
        """This belief with some arms replaced by those of another."""
        changed = []
        for mine, theirs in zip(self.parameters(), other.parameters(), strict=True):
            copy = mine.copy()
            copy[..., arms] = theirs
            changed.append(copy)
        return self.of(*changed)

    def with_arm(self, like: int) -> Self:
        """One more arm at the end, with the parameters of arm `like`."""
        return self.of(*(np.append(p, p[..., [like]], axis=-1) for p in self.parameters()))
