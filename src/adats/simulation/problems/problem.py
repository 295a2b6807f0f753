"""What every problem is, and what the agents of one run all meet."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from adats.agents.oracles import BestArm, Oracle
from adats.models import ModelMixture
from adats.models.core import checks
from adats.models.core.frozen import fill
from adats.models.core.types import FloatArray, IntArray, MetaBelief, Rng

M = TypeVar("M", bound=MetaBelief)


class Start(NamedTuple):
    """What is drawn once a run: mu_*, and the arms of a linear bandit where they are fixed."""

    mu: FloatArray
    features: FloatArray | None = None


@dataclass(frozen=True, eq=False)
class Instance:
    """One task, the same for all agents of a run."""

    theta: FloatArray  # mean rewards, or the parameter of a linear bandit
    draws: FloatArray  # random parts of the rewards: one a round, or one a round and arm
    features: FloatArray | None = None  # of a linear bandit: (1 or rounds, arms, dim)

    def rows(self, t: int) -> FloatArray | None:
        if self.features is None:
            return None
        row: FloatArray = self.features[t if len(self.features) > 1 else 0]
        return row

    def draw(self, t: int, arm: int) -> float:
        """The random part of the reward of an arm in round t."""
        return float(self.draws[t] if self.draws.ndim == 1 else self.draws[t, arm])

    def means(self, t: int) -> FloatArray:
        """Mean rewards of the arms in round t."""
        rows = self.rows(t)
        return self.theta if rows is None else rows @ self.theta

    def number(self, t: int, arm: int) -> int:  # noqa: ARG002
        """What is recorded of the action in round t."""
        return arm


class Problem(Protocol):
    """A hierarchy of bandit tasks."""

    @property
    def name(self) -> str: ...

    @property
    def oracle(self) -> Oracle:
        """What turns mean rewards into the best action."""
        ...

    def describe(self) -> dict[str, Any]:
        """The settings as plain values."""
        ...

    def meta(self) -> MetaBelief:
        """The meta-prior from which mu_* is drawn: what the agents know."""
        ...

    def start(self, rng: Rng) -> Start: ...
    def instance(self, start: Start, rounds: int, rng: Rng) -> Instance: ...

    def reward(self, mean: float, draw: float) -> float:
        """The reward of an arm with this mean, from its random part."""
        ...

    def first(self, start: Start) -> IntArray:
        """Arms that forced exploration pulls, one row a round, padded with -1."""
        ...


def padded(actions: Sequence[IntArray]) -> IntArray:
    """Actions of different sizes as rows of one array."""
    width = max((len(action) for action in actions), default=1)
    rows = np.full((len(actions), width), -1, dtype=np.intp)
    for row, action in zip(rows, actions, strict=True):
        row[: len(action)] = action
    return rows


class BuiltInProblem(ABC, Generic[M]):
    """What most of the built-in problems share: the best of some arms, pulled once each at first.

    They say what differs, and which compiled loops they have (`kernels.registry.register`).
    """

    mu: Any  # a fixed mu_*, or None to draw it in every run

    if TYPE_CHECKING:  # a field or a property

        @property
        def arms(self) -> int: ...

    @property
    def oracle(self) -> Oracle:
        return BestArm()

    def meta(self) -> M:
        return self._meta

    @cached_property
    def _meta(self) -> M:
        return self.new_meta()

    @abstractmethod
    def new_meta(self) -> M:
        """The meta-prior; it is made once."""

    def start(self, rng: Rng) -> Start:
        return Start(self.meta().sample(rng) if self.mu is None else self.mu)

    def first(self, start: Start) -> IntArray:  # noqa: ARG002
        return np.arange(self.arms).reshape(-1, 1)


class GaussianRewards(BuiltInProblem[M]):
    """What problems with Gaussian rewards share: three scales, a fixed or drawn mu_*, noise."""

    name: ClassVar[str]
    meta_scale: float
    task_scale: float
    noise: float

    def settle_scales(self, size: int) -> None:
        """Put clean values in place of the settings; `size` is that of mu."""
        clean = {
            "meta_scale": float(checks.non_negative("meta_scale", self._number("meta_scale"))),
            "task_scale": float(checks.non_negative("task_scale", self._number("task_scale"))),
            "noise": float(checks.positive("noise", self._number("noise"))),
            "mu": None if self.mu is None else checks.array("mu", self.mu),
        }
        if clean["mu"] is not None and np.shape(clean["mu"]) != (size,):
            raise ValueError(f"mu must have shape ({size},), got {np.shape(clean['mu'])}")
        fill(self, **clean)

    def _number(self, name: str) -> float:
        return checks.number(name, getattr(self, name))

    def describe(self) -> dict[str, Any]:
        settings = {"name": self.name, **{f.name: getattr(self, f.name) for f in fields(self)}}  # type: ignore[arg-type]
        if self.mu is not None:
            settings["mu"] = self.mu.tolist()
        return {name: value for name, value in settings.items() if value is not None}

    def reward(self, mean: float, draw: float) -> float:
        return mean + self.noise * draw


# Candidates for σ_0 in units of σ: from what 200 rounds cannot tell from no spread at all (they
# know a mean to 0.07 σ) to where a task has little to learn from others. No problem's own σ_0 is
# used.
SPREADS = tuple(np.geomspace(0.02, 2.0, 8).tolist())


class UnknownSpread(GaussianRewards[M]):
    """Problems with Gaussian rewards that offer candidates to agents that are not told σ_0."""

    @abstractmethod
    def model(self, task_scale: float) -> M:
        """The meta-prior if σ_0 were `task_scale`."""

    def new_meta(self) -> M:
        return self.model(self.task_scale)

    def candidates(self, spreads: Sequence[float] = SPREADS) -> ModelMixture:
        """Models that differ in σ_0 alone, equally likely; `spreads` are in units of σ."""
        models = [self.model(spread * self.noise) for spread in spreads]
        return ModelMixture(np.full(len(models), 1 / len(models)), models)
