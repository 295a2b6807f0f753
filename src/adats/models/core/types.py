"""The array types, and the four protocols that every model follows."""

from collections.abc import Iterable
from typing import Any, Generic, NamedTuple, Protocol, Self, TypeVar

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.intp]
BoolArray = npt.NDArray[np.bool_]
Rng = np.random.Generator
Arm = int | str  # an arm: its index, or the name that the user gave it
Task = int | str


class Stats(Protocol):
    """Sufficient statistics of one task: a commutative group."""

    def add(self, action: Any, reward: Any) -> Self: ...
    def __add__(self, other: Self) -> Self: ...
    def __sub__(self, other: Self) -> Self: ...
    def flat(self) -> FloatArray: ...


B = TypeVar("B", covariant=True)


class Conditioned(NamedTuple, Generic[B]):
    """What conditioning returns: the log density of rewards given actions, and the belief."""

    log_evidence: float
    belief: B


class Belief(Protocol):
    """A distribution over theta. A prior and a posterior are the same kind of object."""

    @property
    def mean(self) -> FloatArray: ...
    @property
    def scale(self) -> FloatArray: ...
    def condition(self, stats: Any) -> "Conditioned[Belief]": ...
    def sample(self, rng: Rng) -> FloatArray: ...


class ArmBelief(Belief, Protocol):
    """A belief over the mean rewards of arms, as index policies need it."""

    @property
    def reward_variance(self) -> FloatArray: ...
    def below(self, x: FloatArray) -> FloatArray: ...
    def upper(self, z: FloatArray | float) -> FloatArray: ...
    def tightened(self, pending: FloatArray) -> "ArmBelief": ...


class Digest(Protocol):
    """One task's statistics, worked out: its message about mu and what its posterior needs."""

    @property
    def stats(self) -> Any: ...
    @property
    def message(self) -> FloatArray: ...


class MetaBelief(Protocol):
    """A belief over the unknown task prior: its own prior plus a sum of messages, one a task.

    A message is a flat array; messages of different tasks add, and a message subtracted is a
    task forgotten. `digest` depends on the model alone, not on what was absorbed before. `retell`
    is for a task that is absorbed already and has new statistics, which differ in the arms that
    `changed`: their digest, and the belief with its message in place of the old one's. `share` is
    the part of each arm's variance in a new task that is due to the unknown task prior.
    """

    @property
    def total(self) -> Any: ...
    def empty(self, *, design: FloatArray | None = None) -> Any: ...
    def digest(self, stats: Any, *, design: FloatArray | None = None) -> Any: ...
    def absorb(self, message: FloatArray) -> Self: ...
    def retell(self, old: Any, stats: Any, changed: Iterable[int]) -> tuple[Any, Self]: ...
    def log_evidence(self) -> float: ...
    def task_prior(self, *, design: FloatArray | None = None) -> Belief: ...
    def share(
        self, *, rows: FloatArray | None = None, design: FloatArray | None = None
    ) -> FloatArray: ...
    def posterior(self, digest: Any) -> Belief: ...
    def sample(self, rng: Rng) -> FloatArray: ...
    def prior_given(self, mu: Any, *, design: FloatArray | None = None) -> Belief: ...
    def widen(self, factor: float) -> Self: ...


class ArmMeta(MetaBelief, Protocol):
    """A meta-belief whose theta has one entry an arm, so that arms can be named and added."""

    @property
    def arms(self) -> tuple[Arm, ...] | None: ...
    @property
    def n_arms(self) -> int: ...
    def with_arm(self, name: Arm | None, like: int) -> Self: ...
