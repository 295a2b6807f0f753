"""What meta-beliefs do in one way: a sum of messages, and answers that most models share."""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Sequence
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np

from adats.models.core.frozen import evolve
from adats.models.core.many import EachBelief, EachDigest
from adats.models.core.summary import SummaryTable, prior_table
from adats.models.core.sums import Sum
from adats.models.core.types import (
    Arm,
    Belief,
    BoolArray,
    Design,
    Digest,
    FloatArray,
    JsonDict,
    Rng,
)

S = TypeVar("S")
D = TypeVar("D", bound=Digest[Any])

RENEWED = 2  # stale digests that a reward brings up to date


class MetaBase(ABC, Generic[S, D]):
    """A frozen dataclass with a field `total`, the sum of the messages of all tasks.

    Independent arms without names, whose number is `n_arms`, unless the subclass says otherwise.
    """

    NAME: ClassVar[str]
    RENEWS: ClassVar[bool] = False  # whether digests can become stale
    APART_MANY: ClassVar[bool] = False  # whether there is `posterior_apart_many`
    total: Sum
    arms: tuple[Arm, ...] | None = None  # their names, where they have some

    @property
    def model(self) -> str:
        """What users call the model."""
        return self.NAME

    def summary(self) -> SummaryTable:
        """What is believed of a new task: the mean reward of each arm (of a linear model, each
        entry of theta), and where 95 % of tasks have it."""
        return prior_table(self)

    def __repr__(self) -> str:
        return repr(self.summary())

    def _repr_html_(self) -> str:
        return self.summary()._repr_html_()

    @property
    @abstractmethod
    def n_arms(self) -> int:
        """How many arms there are; 0 where arms are rows of features."""

    @property
    def n_features(self) -> int:
        """Of each arm; 0 where arms have none."""
        return 0

    @property
    def has_design(self) -> bool:
        """Whether the prior mean of a task is a design times mu."""
        return False

    @property
    def n_candidates(self) -> int:
        """Numbers of candidates times arms that every decision looks at."""
        return 0

    @abstractmethod
    def empty(self, *, design: Design = None) -> S:
        """The statistics of a task without rewards."""

    @abstractmethod
    def posterior(self, digest: D) -> Belief:
        """Of theta in a task whose own message is in the total."""

    @abstractmethod
    def digest(self, stats: S, *, design: Design = None) -> D:
        """The statistics of one task, worked out."""

    @abstractmethod
    def sample(self, rng: Rng) -> FloatArray:
        """A draw of the unknown parameter of the task prior."""

    def absorb(self, message: FloatArray) -> Self:
        """One more task; or, from a negative message, one less."""
        return evolve(self, total=self.total.add(message))

    def replace_task(
        self, old: D, stats: S, changed: Iterable[int], *, weight: float | None = None
    ) -> tuple[D, Self]:
        """New statistics of a task that is absorbed already; they differ in the arms `changed`.
        With a `weight`, that of the old message in the total, all other pulls have lost some too.
        """
        del changed
        new = self._digest_anew(old, stats)
        said = old.message if weight is None else weight * old.message
        return new, evolve(self, total=self.total.swap(said, new.message))

    def _digest_anew(self, old: D, stats: S) -> D:
        """Of the task that `old` is of, with other statistics."""
        del old
        return self.digest(stats)

    def replace_tasks(
        self, changes: Sequence[tuple[D, S, Collection[int]]]
    ) -> tuple[list[D], Self]:
        """`replace_task` of several tasks: the digest, new statistics, and what changed of each."""
        meta, digests = self, []
        for old, stats, changed in changes:
            digest, meta = meta.replace_task(old, stats, changed)
            digests.append(digest)
        return digests, meta

    def faded(self, factor: float) -> Self:
        """The same after all messages have lost weight."""
        return self if factor == 1.0 else evolve(self, total=self.total.scaled(factor))

    def replace_aged(
        self, old: D, stats: S, changed: Iterable[int], kept: float, weight: float
    ) -> tuple[D, Self]:
        """`replace_task` once all messages have `kept` so much of their weight, and that of the
        task has so much."""
        meta = self.faded(kept)
        if stats is old.stats and not meta.is_stale(stats):
            return old, meta.absorb((1.0 - weight) * old.message)
        return meta.replace_task(old, stats, changed, weight=weight)

    def posterior_aged(self, old: D, stats: S, kept: float, weight: float) -> Belief:
        """Of theta in a task whose message and statistics are `replace_aged`."""
        digest, meta = self.replace_aged(old, stats, (), kept, weight)
        return meta.posterior(digest)

    def renew(
        self, digests: Sequence[D], weights: Sequence[float] | None = None
    ) -> tuple[list[D], Self]:
        """Stale digests found anew, with the same statistics, and messages of the same weights."""
        if weights is None:
            return self.replace_tasks([(digest, digest.stats, ()) for digest in digests])
        meta, found = self, list(digests)
        for i, weight in enumerate(weights):
            found[i], meta = meta.replace_task(found[i], found[i].stats, (), weight=weight)
            meta = meta.absorb((weight - 1.0) * found[i].message)
        return found, meta

    def renew_many(self, rows: FloatArray) -> tuple[FloatArray, Self]:
        """The same of tasks whose statistics are rows."""
        new = self.digest_many(rows, kept=False)
        return new.rows, self.absorb(new.message_sum - self.digest_many(rows).message_sum)

    def renewals(self, rewards: int) -> int:
        """How many stale digests had better be renewed after so many rewards."""
        return RENEWED * rewards

    def retell(self, old: D, stats: S, changed: Iterable[int]) -> tuple[D, Self]:
        """The old name of `replace_task`."""
        warnings.warn("retell is called replace_task now", DeprecationWarning, stacklevel=2)
        return self.replace_task(old, stats, changed)

    @property
    def row_size(self) -> int:
        """How many numbers the statistics of a task are; 0 where that is not fixed."""
        empty: Any = self.empty()
        return int(empty.flat().size)

    @property
    def draw_size(self) -> int:
        """How many numbers a draw of `sample` has at most."""
        return self.sample(np.random.default_rng(0)).size

    def row_of(self, stats: S) -> FloatArray:
        """The statistics of a task as a row of numbers."""
        known: Any = stats
        row: FloatArray = known.flat()
        return row

    def digest_many(self, rows: FloatArray, *, kept: bool = True) -> Any:  # noqa: ARG002
        """The statistics of many tasks, a row each, worked out."""
        kind: Any = type(self.empty())
        return EachDigest(lambda row: self.digest(kind.from_flat(row)), rows)

    def posterior_many(self, digests: Any) -> Any:
        """Of theta in each of many tasks, whose messages are in the total."""
        return EachBelief([self.posterior(digest) for digest in digests])

    def posterior_apart_many(self, digests: Any, changes: FloatArray) -> Any:
        """The same where the total of each task differs by a message, a row of `changes`."""
        raise NotImplementedError

    def stale_rows(self, rows: FloatArray) -> BoolArray:
        """Of which tasks the digests had better be found anew."""
        return np.zeros(len(rows), dtype=bool)

    def row_generations(self, rows: FloatArray) -> FloatArray:
        """The generation in which each of many tasks was digested."""
        return np.zeros(len(rows))

    @property
    def generation(self) -> int:
        """How often digests that had been made became stale."""
        return 0

    def at_generation(self, number: int) -> Self | None:  # noqa: ARG002
        """Of another generation, where that is all there is to know of it; else None."""
        return None

    def renewed(self) -> Self:
        """The same belief of the next generation, if it is time for that."""
        return self

    def renewed_if_moved(self) -> Self:
        """The same after a batch: of the next generation, if that much has been learned."""
        return self

    def check_change(self, old: D, stats: S) -> None:
        """Raise `ValueError` if double precision is not enough once a task has these statistics."""

    def is_stale(self, stats: S) -> bool:  # noqa: ARG002
        """Whether a task with these statistics had better be digested anew (`replace_task`)."""
        return False

    def generation_of(self, stats: S) -> int | None:  # noqa: ARG002
        """The generation in which these statistics were digested; None: they never get stale."""
        return None

    def sums(self) -> FloatArray:
        """All that was absorbed, as one array: two numbers for each of a message."""
        return np.concatenate(self.total)

    def with_sums(self, values: FloatArray) -> Self:
        """The same model after what `sums` gave was absorbed."""
        return self.with_total(values)

    def with_total(self, values: FloatArray) -> Self:
        """The same model with another sum of messages, two numbers for each of one."""
        high, low = values.reshape(2, -1)
        if high.shape != self.total.high.shape:
            raise ValueError(f"total has shape {high.shape}, not {self.total.high.shape}")
        if not np.isfinite(values).all():
            raise ValueError("total is not finite")
        return evolve(self, total=Sum(high.copy(), low.copy()))

    def total_to_list(self) -> list[list[float]] | None:
        """For a file; None where nothing was absorbed yet, so that a fresh prior is small."""
        if not (self.total.high.any() or self.total.low.any()):
            return None
        return [self.total.high.tolist(), self.total.low.tolist()]

    def with_total_of(self, data: JsonDict) -> Self:
        """With what `total_to_list` wrote into the data of a file."""
        if data["total"] is None:
            return self
        high, low = (np.array(part, dtype=np.float64) for part in data["total"])
        if high.ndim != 1 or low.shape != high.shape:
            raise ValueError(f"total has shape {high.shape}")
        return self.with_total(np.concatenate([high, low]))

    def share(self, *, rows: FloatArray | None = None, design: Design = None) -> FloatArray:
        """No part of a task's variance is known to be shared with others."""
        del rows, design
        return np.zeros(self.n_arms)

    def grown_draw(self, mu: FloatArray, rng: Rng) -> FloatArray:
        """A draw of `sample`, made before the last arm was added, with its part for that arm."""
        fresh = self.sample(rng)
        return mu if mu.size == fresh.size else np.append(mu, fresh[-1])

    def widen(self, factor: float) -> Self:  # noqa: ARG002
        """The meta-prior with its width times `factor`."""
        raise ValueError(f"the meta-prior of a {self.model} model has no width")

    def with_arm(self, name: Arm | None, like: int) -> Self:  # noqa: ARG002
        """One more arm at the end, with the prior (not the data) of arm `like`."""
        raise ValueError(f"arms cannot be added to a {self.model} model")

    def refit(
        self,
        tasks: Sequence[tuple[S, FloatArray | None]],  # noqa: ARG002
    ) -> tuple[Self, list[S]]:
        """A model learned anew from all tasks, which it has absorbed, and their statistics."""
        raise ValueError(f"a {self.model} model learns as it goes: it has no refit")

    def figures(self) -> dict[str, FloatArray]:
        """The parameters, by the names under which users give them."""
        return {}
