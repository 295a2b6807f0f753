"""What every problem is, and what the agents of one run all meet."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

import numpy as np

from adats.agents.oracles import Oracle
from adats.models import ModelMixture
from adats.models.core import checks
from adats.models.core.types import FloatArray, IntArray, MetaBelief, Rng


class Start(NamedTuple):
    """What is drawn once a run: mu_*, and the arms of a linear bandit where they are fixed."""

    mu: FloatArray
    features: FloatArray | None = None


class Index(NamedTuple):
    """An index policy in one task, as the compiled loops take it.

    Problems that have such a loop have a method `play_index(index, prior, instance, first,
    regret)`, which is `play`, or None where the loop does not serve.
    """

    policy: int  # its number in `kernels.indices`
    levels: FloatArray  # of Bayes-UCB, one a round
    counted: FloatArray  # rounds of later tasks that each arm counts
    delay: int  # rounds until a reward is known


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

    def play(
        self,
        prior: Any,
        instance: Instance,
        first: IntArray,
        rng: Rng,
        regret: FloatArray,
    ) -> Any:
        """One task by the compiled loop: fills `regret`, returns the statistics."""
        ...

    def learn(self, meta: Any, stats: Any) -> Any:
        """The meta-belief with one more task absorbed, compiled where that pays."""
        ...


def fresh(*arrays: FloatArray) -> tuple[FloatArray, ...]:
    """Arrays that can be written to: a compiled loop is made for one kind of array only."""
    return tuple([a if a.flags.carray else np.array(a, order="C") for a in arrays])


def stacked(*parameters: Sequence[Any]) -> tuple[FloatArray, ...]:
    """The parameters of several models, each as one array."""
    return tuple([np.array(column) for column in zip(*parameters, strict=True)])


@functools.cache
def kernel(name: str) -> Any:
    """A compiled loop by its name; Numba is loaded when the first one is used."""
    from adats.simulation import kernels

    return getattr(kernels, name)


def each_once(arms: int) -> IntArray:
    return np.arange(arms).reshape(-1, 1)


def padded(actions: Sequence[IntArray]) -> IntArray:
    """Actions of different sizes as rows of one array."""
    width = max((len(action) for action in actions), default=1)
    rows = np.full((len(actions), width), -1, dtype=np.intp)
    for row, action in zip(rows, actions, strict=True):
        row[: len(action)] = action
    return rows


class GaussianRewards:
    """What problems with Gaussian rewards share: three scales, a fixed or drawn mu_*, noise."""

    name: ClassVar[str]
    meta_scale: float
    task_scale: float
    noise: float
    mu: Any  # a fixed mu_*, or None to draw it in every run

    def _check(self, size: int) -> None:
        """Replace the settings by clean values; `size` is that of mu."""
        clean = {
            "meta_scale": float(checks.non_negative("meta_scale", self._number("meta_scale"))),
            "task_scale": float(checks.non_negative("task_scale", self._number("task_scale"))),
            "noise": float(checks.positive("noise", self._number("noise"))),
            "mu": None if self.mu is None else checks.array("mu", self.mu),
        }
        if clean["mu"] is not None and np.shape(clean["mu"]) != (size,):
            raise ValueError(f"mu must have shape ({size},), got {np.shape(clean['mu'])}")
        self.__dict__.update(clean)

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


class UnknownSpread(GaussianRewards):
    """Problems with Gaussian rewards that offer candidates to agents that are not told σ_0."""

    if TYPE_CHECKING:

        def model(self, task_scale: float) -> MetaBelief:
            """The meta-prior if σ_0 were `task_scale`."""
            ...

    def candidates(self, spreads: Sequence[float] = SPREADS) -> ModelMixture:
        """Models that differ in σ_0 alone, equally likely; `spreads` are in units of σ."""
        models = [self.model(spread * self.noise) for spread in spreads]
        return ModelMixture(np.full(len(models), 1 / len(models)), models)
