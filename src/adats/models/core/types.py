"""The array types, and the four protocols that every model follows."""

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, Self, TypeVar

import numpy as np
import numpy.typing as npt
from numpy.typing import ArrayLike

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.intp]
BoolArray = npt.NDArray[np.bool_]
N = TypeVar("N", float, FloatArray)  # a formula for one number, or for many at once
Rng = np.random.Generator
Arm = int | str  # an arm: its index, or the name that the user gave it
Task = int | str


class Stats(Protocol):
    """Sufficient statistics of one task: a commutative group.

    `check_reward` raises for a reward that this kind cannot have; `REWARDS_ADD` says whether the
    sum of two is one. `arm_pulls` are those of each arm, None where arms are rows of features.
    `pending_shape` is that of the array which counts pulls without a reward: one number an arm, or
    a Gram matrix. `add_counts` takes so many pulls and the sum of their rewards, and raises where
    single rewards have to be known. `grow` makes room for arms that were added. `dwarfed_by` says
    whether so little is left beside what was taken out that it is round-off.
    """

    REWARDS_ADD: ClassVar[bool]

    def add(self, action: Any, reward: Any) -> Self: ...
    def add_counts(self, action: Any, pulls: Any, successes: Any) -> Self: ...
    def __add__(self, other: Self) -> Self: ...
    def __sub__(self, other: Self) -> Self: ...
    def flat(self) -> FloatArray: ...
    @classmethod
    def from_flat(cls, values: FloatArray) -> Self: ...
    @classmethod
    def check_reward(cls, reward: Any) -> float: ...
    @property
    def arm_pulls(self) -> FloatArray | None: ...
    @property
    def pending_shape(self) -> tuple[int, ...]: ...
    def grow(self, arms: int) -> Self: ...
    def dwarfed_by(self, out: Self, factor: float) -> bool: ...


B = TypeVar("B", covariant=True)


class Conditioned(NamedTuple, Generic[B]):
    """What conditioning returns: the log density of rewards given actions, and the belief."""

    log_evidence: float
    belief: B


class Belief(Protocol):
    """A distribution over theta. A prior and a posterior are the same kind of object.

    `NAME` is the kind's, by which the simulator finds compiled loops. `draws` are many samples, a
    row each. `best_chances` is the chance of each of some arms to have the highest mean reward,
    and `best_chance` that of one of them; None where only draws can tell. The far-sighted policy
    multiplies its levels by `FAR_CAUTION`, and looks ahead `FAR_TASKS` tasks at most.
    """

    NAME: ClassVar[str]
    FAR_CAUTION: ClassVar[float]
    FAR_TASKS: ClassVar[int]

    @property
    def mean(self) -> FloatArray: ...
    @property
    def scale(self) -> FloatArray: ...
    def condition(self, stats: Any) -> "Conditioned[Belief]": ...
    def sample(self, rng: Rng) -> FloatArray: ...
    def draws(self, count: int, rng: Rng) -> FloatArray: ...
    def best_chances(self, arms: IntArray | None = None) -> FloatArray | None: ...
    def best_chance(self, arm: int, arms: IntArray | None = None) -> float | None: ...


class ArmBelief(Belief, Protocol):
    """A belief over the mean rewards of arms, as index policies need it."""

    @property
    def reward_variance(self) -> FloatArray: ...
    @property
    def variance_ratio(self) -> FloatArray: ...
    def below(self, x: FloatArray) -> FloatArray: ...
    def upper(self, z: FloatArray | float) -> FloatArray: ...
    def tightened(self, pending: FloatArray) -> "ArmBelief": ...


class RowBelief(Belief, Protocol):
    """A belief over the coefficients of features; `at_rows` is that over arms with these.

    `rewards_at` are their mean rewards under a theta, or under many, and `expected_rewards` the
    means of those.
    """

    def at_rows(self, rows: FloatArray) -> ArmBelief: ...
    def rewards_at(self, rows: FloatArray, theta: FloatArray) -> FloatArray: ...
    def expected_rewards(self, rows: FloatArray) -> FloatArray: ...
    def tightened(self, pending: FloatArray) -> "RowBelief": ...


S_co = TypeVar("S_co", covariant=True)


class Digest(Protocol[S_co]):
    """One task's statistics, worked out: its message about mu and what its posterior needs."""

    @property
    def stats(self) -> S_co: ...
    @property
    def message(self) -> FloatArray: ...


S = TypeVar("S")
D = TypeVar("D")


class MetaBeliefOf(Protocol[S, D, B]):
    """A belief over the unknown task prior: its own prior plus a sum of messages, one a task.

    S are its statistics, D their digests, B its beliefs over theta.

    What a model offers is said here, and nobody asks for its class. `NAME` is the name under which
    it is registered and which its files have; `model` is what users call it. `n_arms` is 0 where
    arms are rows of features, `n_features` of them each; else `n_features` is 0.

    A message is a flat array; messages of different tasks add, and a message subtracted is a
    task forgotten. `digest` depends on the model alone, not on what was absorbed before.
    `replace_task` is for a task that is absorbed already and has new statistics, which differ in
    the arms that `changed`: their digest, and the belief with its message in place of the old
    one's. `sums` is all that was absorbed, two numbers for each of a message, and `with_sums` reads
    it back. `share` is the part of each arm's variance in a new task that is due to the unknown
    task prior. `refit` takes the statistics and the design of every task, for models that learn
    their spreads from all of them at once.

    Where digests are approximate they may become stale: `RENEWS` says so. `renewed` is the belief
    of the next `generation`, if it is time for that, and `replace_task` looks after it by itself.
    `is_stale` asks about a task, which then had better be digested anew: by `replace_task`, with
    nothing changed. `generation_of` is that in which it was digested; None if that cannot become
    stale.
    """

    NAME: ClassVar[str]
    RENEWS: ClassVar[bool]

    @property
    def model(self) -> str: ...
    @property
    def arms(self) -> tuple[Arm, ...] | None: ...
    @property
    def n_arms(self) -> int: ...
    @property
    def n_features(self) -> int: ...
    @property
    def n_candidates(self) -> int: ...
    @property
    def has_design(self) -> bool: ...
    @property
    def mean(self) -> FloatArray: ...

    def empty(self, *, design: FloatArray | None = None) -> S: ...
    def digest(self, stats: S, *, design: FloatArray | None = None) -> D: ...
    def absorb(self, message: FloatArray) -> Self: ...
    def replace_task(self, old: D, stats: S, changed: Iterable[int]) -> tuple[D, Self]: ...
    @property
    def generation(self) -> int: ...
    def renewed(self) -> Self: ...
    def is_stale(self, stats: S) -> bool: ...
    def generation_of(self, stats: S) -> int | None: ...
    def sums(self) -> FloatArray: ...
    def with_sums(self, values: FloatArray) -> Self: ...
    def log_evidence(self) -> float: ...

    def task_prior(self, *, design: FloatArray | None = None) -> B: ...
    def posterior(self, digest: D) -> B: ...
    def share(
        self, *, rows: FloatArray | None = None, design: FloatArray | None = None
    ) -> FloatArray: ...

    def sample(self, rng: Rng) -> FloatArray: ...
    def prior_given(self, mu: ArrayLike, *, design: FloatArray | None = None) -> B: ...
    def widen(self, factor: float) -> Self: ...
    def with_arm(self, name: Arm | None, like: int) -> Self: ...
    def grown_draw(self, mu: FloatArray, rng: Rng) -> FloatArray: ...
    def refit(self, tasks: Sequence[tuple[S, FloatArray | None]]) -> tuple[Self, list[S]]: ...

    def figures(self) -> dict[str, FloatArray]: ...
    def to_dict(self) -> dict[str, Any]: ...
    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self: ...


MetaBelief = MetaBeliefOf[Any, Any, Belief]  # of any model
