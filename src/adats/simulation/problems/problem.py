"""What every problem is, and what the agents of one run all meet."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from adats.agents.exploration import spanning_arms
from adats.agents.oracles import BestArm, Oracle
from adats.models import GaussianMeta, LinearMeta, ModelMixture
from adats.models.core import checks
from adats.models.core.frozen import fill
from adats.models.core.linalg import psd_factor
from adats.models.core.types import FloatArray, IntArray, JsonDict, MetaBelief, Rng

M = TypeVar("M", bound=MetaBelief)


class Start(NamedTuple):
    """What is drawn once a run: mu_*, and the arms of a linear bandit where they are fixed."""

    mu: FloatArray
    features: FloatArray | None = None
    task: int = 0  # where mu moves: the number of the task that starts from here


@dataclass(frozen=True, eq=False)
class Instance:
    """One task, the same for all agents of a run."""

    theta: FloatArray  # mean rewards, or a linear bandit's parameter; a row a round, if it moves
    draws: FloatArray  # random parts of the rewards: one a round, or one a round and arm
    features: FloatArray | None = None  # of a linear bandit: (1 or rounds, arms, dim)
    then: Start | None = None  # where mu moves: for the next task, with the mu of this one
    jumps: tuple[int, ...] = ()  # rounds before which theta was drawn anew; 0: mu was

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
        theta: FloatArray = self.theta if self.theta.ndim == 1 else self.theta[t]
        return theta if rows is None else rows @ theta

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

    def describe(self) -> JsonDict:
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


def instances_of(
    problem: Problem, start: Start, tasks: int, rounds: int, rng: Rng
) -> list[Instance]:
    """All tasks of a run."""
    instances = []
    for _ in range(tasks):
        instances.append(problem.instance(start, rounds, rng))
        start = instances[-1].then or start
    return instances


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


def first_of_features(start: Start) -> IntArray:
    """Arms that span the space of the features, one a round."""
    if start.features is None:
        raise ValueError("forced exploration needs arms that stay the same during a run")
    return spanning_arms(start.features[0]).reshape(-1, 1)


class GaussianRewards(BuiltInProblem[M]):
    """What problems with Gaussian rewards share: spreads, a fixed or drawn mu_*, noise.

    A scale is a number, or has one entry an arm (a direction of a linear bandit). A covariance,
    where there is one, takes the place of its scale.
    """

    name: ClassVar[str]
    meta_scale: Any
    task_scale: Any
    noise: float
    meta_cov: Any = None
    task_cov: Any = None

    def settle_scales(self, size: int) -> None:
        """Put clean values in place of the settings; `size` is that of mu."""
        clean: dict[str, Any] = {
            "meta_scale": self._scale("meta_scale", size),
            "task_scale": self._scale("task_scale", size),
            "noise": checks.positive_number("noise", self.noise),
            "mu": None if self.mu is None else checks.array("mu", self.mu),
        }
        if clean["mu"] is not None and np.shape(clean["mu"]) != (size,):
            raise ValueError(f"mu must have shape ({size},), got {np.shape(clean['mu'])}")
        for name in ("meta_cov", "task_cov"):
            if getattr(self, name) is not None:
                clean[name] = checks.covariance(name, getattr(self, name), size)
        fill(self, **clean)

    def _scale(self, name: str, size: int) -> float | FloatArray:
        value = getattr(self, name)
        if not np.ndim(value):
            return checks.non_negative_number(name, value)
        scale = checks.non_negative(name, value)
        if scale.shape != (size,):
            raise ValueError(f"{name} must be a number or have shape ({size},), got {scale.shape}")
        return scale

    @property
    def correlated(self) -> bool:
        """Whether it has covariances, so that its model is a linear one."""
        return self.meta_cov is not None or self.task_cov is not None

    @cached_property
    def arm_rows(self) -> FloatArray | None:
        """The features of Gaussian arms in that model; None where they are independent."""
        return np.eye(self.arms)[None] if self.correlated else None

    def meta_spread(self) -> FloatArray | float:
        """Σ_q, as a linear model takes it."""
        return _as_cov(self.meta_scale, self.meta_cov)

    def task_spread(self) -> FloatArray | float:
        """Σ_0, as a linear model takes it."""
        return _as_cov(self.task_scale, self.task_cov)

    def around(self, mu: FloatArray, normals: FloatArray) -> FloatArray:
        """The theta of a task, from standard normals."""
        spread: FloatArray = (
            self.task_scale * normals if self.task_cov is None else self._task_factor @ normals
        )
        return mu + spread

    @cached_property
    def _task_factor(self) -> FloatArray:
        return psd_factor(self.task_cov)

    def describe(self) -> JsonDict:
        settings = {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]
        for part in ("meta", "task"):
            if settings.get(f"{part}_cov") is not None:
                del settings[f"{part}_scale"]
        known = {name: value for name, value in settings.items() if value is not None}
        return {"name": self.name} | {
            name: value.tolist() if isinstance(value, np.ndarray) else value
            for name, value in known.items()
        }

    def reward(self, mean: float, draw: float) -> float:
        return mean + self.noise * draw


def _as_cov(scale: FloatArray | float, cov: FloatArray | None) -> FloatArray | float:
    if cov is not None:
        return cov
    return np.diag(scale**2) if isinstance(scale, np.ndarray) else scale**2


GaussianModel = GaussianMeta | LinearMeta


def arms_model(
    problem: GaussianRewards[GaussianModel], mean: FloatArray, task_scale: float | None = None
) -> GaussianModel:
    """The model of Gaussian arms; where they move together, a linear one whose rows are arms.

    `task_scale` is a σ_0 in place of the problem's own.
    """
    noise = problem.noise
    if problem.correlated:
        spread = problem.task_spread() if task_scale is None else task_scale**2
        return LinearMeta(mean, problem.meta_spread(), task_cov=spread, noise=noise)
    own = problem.task_scale if task_scale is None else task_scale
    return GaussianMeta(mean, problem.meta_scale, task_scale=own, noise=noise)


# Candidates for σ_0 in units of σ: from what 200 rounds cannot tell from no spread at all (they
# know a mean to 0.07 σ) to where a task has little to learn from others. No problem's own σ_0 is
# used.
SPREADS = tuple(np.geomspace(0.02, 2.0, 8).tolist())


class UnknownSpread(GaussianRewards[M]):
    """Problems with Gaussian rewards that offer candidates to agents that are not told σ_0."""

    @abstractmethod
    def model(self, task_scale: float | None = None) -> M:
        """The meta-prior, also if σ_0 were `task_scale`."""

    def new_meta(self) -> M:
        return self.model()

    def candidates(self, spreads: Sequence[float] = SPREADS) -> ModelMixture:
        """Models that differ in σ_0 alone, equally likely; `spreads` are in units of σ."""
        if self.correlated:
            raise ValueError("an agent that is not told σ_0 is for scales, not for covariances")
        models = [self.model(spread * self.noise) for spread in spreads]
        return ModelMixture(np.full(len(models), 1 / len(models)), models)
