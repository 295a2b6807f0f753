"""Anchors: frozen beliefs over mu under which sites are found, and when these are found anew."""

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from itertools import cycle, islice
from typing import Any, ClassVar, NamedTuple, Self, TypeVar

import numpy as np

from adats.models.core import linalg
from adats.models.core.frozen import evolve, put
from adats.models.core.meta import MetaBase
from adats.models.core.types import Digest, FloatArray
from adats.models.latent import sites as ep

FEW_REWARDS = 256.0  # with fewer in all, each task has what all others say as its anchor
# by how much rewards grow until the next anchor, up to so many rewards and after that
GROWTH, MANY_REWARDS, LATER_GROWTH = 1.25, 2048.0, 1.5
STILL, PASSES = 8, 4  # tasks in a row that leave mu where it is; at most, over those to be renewed
MANY_MEANS = 30  # from so many entries of mu on, fewer tasks are renewed at a time: each costs more
MOVED, HARDLY, LIGHT = 0.1, 0.01, 1e-3  # standard deviations of mu; weight that does not count

S = TypeVar("S")
D = TypeVar("D", bound=Digest[Any])


class Anchor(NamedTuple):
    """A frozen belief over mu. It says where sites have to fit, and nothing else."""

    number: int
    rewards: float  # how many had been absorbed
    mean: FloatArray  # (candidates, p)
    cov: FloatArray  # (candidates, p, p)
    prior: ep.SitePrior  # of theta in a task without a design of its own


class Anchored(MetaBase[S, D]):
    """A belief over mu, given sites that tasks had under its last anchors."""

    RENEWS: ClassVar[bool] = True
    anchor: Anchor

    @property
    @abstractmethod
    def weights(self) -> FloatArray:
        """The belief in each candidate given all tasks."""

    @property
    @abstractmethod
    def mu(self) -> linalg.Gaussians:
        """mu given all tasks, under every candidate."""

    @abstractmethod
    def mu_moments(self, phi: FloatArray | None = None) -> tuple[FloatArray, FloatArray]:
        """Mean and covariance of Φmu under every candidate."""

    @abstractmethod
    def anchor_at(self, number: int, rewards: float, mean: FloatArray, cov: FloatArray) -> Anchor:
        """An anchor of this model."""

    @abstractmethod
    def _replaced(
        self, old: D, stats: S, changed: Iterable[int], weight: float = 1.0
    ) -> tuple[D, Self]:
        """`replace_task` under the anchor that there is; the old message has this `weight`."""

    def replace_task(
        self, old: D, stats: S, changed: Iterable[int], *, weight: float | None = None
    ) -> tuple[D, Self]:
        """Sites have lost weight with the pulls: only those of what `changed` are worked out."""
        digest, new = self._replaced(old, stats, changed, 1.0 if weight is None else weight)
        return digest, new.renewed()

    @property
    def rewards(self) -> float:
        """How many were absorbed."""
        return self.total.high.item(-1)

    @property
    def has_few_rewards(self) -> bool:
        return self.rewards < FEW_REWARDS

    def _anchor_of(self, digest: D, weight: float) -> Anchor:
        """For the sites of a task that is absorbed: what all others say, while that is little."""
        if not self.has_few_rewards:
            return self.anchor
        others = evolve(self, total=self.total.add(-weight * digest.message))
        return self.anchor_at(self.anchor.number, self.anchor.rewards, *others.mu_moments())

    def faded(self, factor: float) -> Self:
        """The rewards of the last anchor lose weight too: new ones make the next anchor due."""
        anchor = self.anchor._replace(rewards=self.anchor.rewards * factor)
        return self if factor == 1.0 else evolve(super().faded(factor), anchor=anchor)

    def renewed(self) -> Self:
        """With a new anchor, once there are enough new rewards; while they are few, always."""
        rewards, last = self.rewards, self.anchor.rewards
        growth = GROWTH if last < MANY_REWARDS else LATER_GROWTH
        lasts = min(rewards, last) >= FEW_REWARDS and rewards < growth * last
        return self if lasts else self._anchored()

    def renewed_if_moved(self) -> Self:
        """With a new anchor, if mu has moved away from the last one."""
        moved = self.anchor.number > 0 and self.is_off(self.anchor.mean, MOVED)
        return self._anchored() if moved else self

    def is_off(self, mean: FloatArray, most: float) -> bool:
        """Whether mu is further off, in standard deviations, under a candidate that counts."""
        own, cov = self.mu_moments()
        scale = np.sqrt(np.einsum("...ii->...i", cov))
        off = (np.abs(own - mean) > most * scale).any(axis=-1)
        return bool(off[self.weights > LIGHT].any())

    def _anchored(self) -> Self:
        mean, cov = known = self.mu_moments()
        anchor = self.anchor_at(self.anchor.number + 1, self.rewards, mean, cov)
        new = evolve(self, anchor=anchor)
        put(new, "_known_mu", self.mu)
        put(new, "_known_moments", known)
        return new

    def renewals(self, rewards: int) -> int:
        """More of them while rewards are few, and mu is not too long."""
        usual = super().renewals(rewards)
        if not self.has_few_rewards:
            return usual
        return max(usual, int(2 * STILL * min(1.0, MANY_MEANS / self.anchor.mean.shape[1])))

    def renew(
        self, digests: Sequence[D], weights: Sequence[float] | None = None
    ) -> tuple[list[D], Self]:
        if self.has_few_rewards:
            return self._agreed(digests, STILL, weights)
        return super().renew(digests, weights)

    def renew_many(self, rows: FloatArray) -> tuple[FloatArray, Self]:
        if not self.has_few_rewards:
            return super().renew_many(rows)
        kind: Any = type(self.empty())
        order, new = np.lexsort(rows.T), np.empty(rows.shape)  # not as they came: by their counts
        digests = [self.digest(kind.from_flat(row)) for row in rows[order]]
        digests, meta = self._agreed(digests, len(rows))
        new[order] = [meta.row_of(digest.stats) for digest in digests]
        return new, meta

    def _agreed(
        self, digests: Sequence[D], most: int, weights: Sequence[float] | None = None
    ) -> tuple[list[D], Self]:
        """Tasks take turns, until so many in a row leave mu where it is: while rewards are few."""
        found, meta, still = list(digests), self, 0
        for i in islice(cycle(range(len(found))), PASSES * len(found)):
            mean, _ = meta.mu_moments()
            weight = 1.0 if weights is None else weights[i]
            found[i], meta = meta._replaced(found[i], found[i].stats, (), weight)
            if weight != 1.0:
                meta = meta.absorb((weight - 1.0) * found[i].message)
            still = 0 if meta.is_off(mean, HARDLY) else still + 1
            if still == min(most, len(found)):
                break
        return found, meta

    @property
    def generation(self) -> int:
        return self.anchor.number

    def at_generation(self, number: int) -> Self | None:
        """While rewards are few, no site is found under the anchor, so that any will do."""
        if not self.has_few_rewards:
            return None
        return evolve(self, anchor=self.anchor._replace(number=number, rewards=self.rewards))

    def is_stale(self, stats: Any) -> bool:
        """Whether its sites were found under an older anchor."""
        return bool(stats.anchor != self.anchor.number and stats.pulls > 0)

    def generation_of(self, stats: Any) -> int | None:
        """The number of the anchor under which its sites were found."""
        number: int = stats.anchor
        return number if stats.pulls > 0 else None
