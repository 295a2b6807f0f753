"""How a belief becomes an action: a policy gives every arm a value, and the oracle maximises.

Thompson sampling draws the values. The others are indices, the quantile of each arm's mean reward
at a level Φ(z): for Gaussian arms and linear models mean + z·scale. They explore less.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from scipy.special import ndtri

from adats.models.core import checks
from adats.models.core.frozen import fill
from adats.models.core.types import ArmBelief, FloatArray, JsonDict, Rng

CAUTION = 1.1  # more than the Gittins index asks for: it guards the tail
USUAL_TASKS = 10  # that a decision looks ahead, if nobody knows how many there will be
TINY = 1e-300


class Scene(NamedTuple):
    """What a policy sees of one decision; or of many at once, a first axis for each of them."""

    belief: Any  # over theta, in this task
    rng: Rng
    rows: FloatArray | None = None  # the features of the arms of a linear model
    round: Any = 1  # of the task: this is decision number `round`
    horizon: Any = None  # rounds left in the task, this one too
    pending: FloatArray | None = None  # pulls asked for and not told: counts, or a Gram matrix
    share: Callable[[], FloatArray | float] = lambda: 0.0  # `MetaBelief.share` of the arms


class Policy(Protocol):
    """A value for every arm. `DRAWS` says whether it is random, so that every arm has a chance."""

    DRAWS: ClassVar[bool]

    def values(self, scene: Scene) -> FloatArray: ...


@dataclass(frozen=True)
class Thompson:
    """Thompson sampling: the mean rewards under a draw of theta."""

    DRAWS: ClassVar[bool] = True

    def values(self, scene: Scene) -> FloatArray:
        belief, rows = scene.belief, scene.rows
        theta: FloatArray = belief.sample(scene.rng)
        if rows is None:
            return theta
        drawn: FloatArray = belief.rewards_at(rows, theta)
        return drawn


class _Index(ABC):
    """What indices share: a level for every arm, and pending pulls that shrink the doubt."""

    DRAWS: ClassVar[bool] = False

    @abstractmethod
    def level(self, arms: ArmBelief, scene: Scene) -> FloatArray | float:
        """z of every arm."""

    def values(self, scene: Scene) -> FloatArray:
        belief = scene.belief.apart
        if scene.pending is not None:
            belief = belief.tightened(scene.pending)
        arms = belief if scene.rows is None else belief.at_rows(scene.rows)
        index: FloatArray = arms.upper(self.level(arms, scene))
        return index


@dataclass(frozen=True)
class Greedy:
    """The mean rewards as they are believed to be. It can stay with a bad arm for ever."""

    DRAWS: ClassVar[bool] = False

    def values(self, scene: Scene) -> FloatArray:
        if scene.rows is None:
            mean: FloatArray = scene.belief.mean
            return mean
        means: FloatArray = scene.belief.expected_rewards(scene.rows)
        return means


@dataclass(frozen=True)
class BayesUCB(_Index):
    """The quantile at 1 - 1/(t + 1) in round t (Kaufmann, Cappé, Garivier 2012)."""

    def level(self, arms: ArmBelief, scene: Scene) -> FloatArray | float:  # noqa: ARG002
        level: FloatArray | float = ndtri(1.0 - 1.0 / (scene.round + 1.0))
        return level


def _rounds_left(scene: Scene) -> Any:
    if scene.horizon is None:
        raise ValueError("this policy plans ahead: say how many rounds are left, ask(horizon=...)")
    if isinstance(scene.horizon, np.ndarray):  # of many decisions, checked already
        return scene.horizon
    return checks.count_of("horizon", scene.horizon)


def finite_horizon_level(v: Any, rounds: Any) -> Any:
    """z of an arm with this ratio of variances; of floats or arrays, and as compiled."""
    hv = rounds * v + TINY
    beta = np.minimum(rounds / np.log(rounds + 1.0) ** 1.5, hv / np.sqrt(np.log1p(hv)))
    return np.sqrt(2.0 * np.log(np.maximum(beta, 1.0)))


def far_sighted_level(v: Any, rounds: Any, width: float) -> Any:
    """The same for `FarSighted`, with all the rounds that count."""
    x = rounds * v
    ahead = width * np.sqrt(np.log1p(0.4 * x + x * x / 300.0))
    return np.maximum(ahead - 0.583 * np.sqrt(v / (1.0 + v)), 0.0)


@dataclass(frozen=True)
class FiniteHorizon(_Index):
    """An approximation of the finite-horizon Gittins index (after Lattimore 2016)."""

    def level(self, arms: ArmBelief, scene: Scene) -> FloatArray:
        level: FloatArray = finite_horizon_level(arms.variance_ratio, _rounds_left(scene))
        return level


@dataclass(frozen=True)
class FarSighted(_Index):
    """The finite-horizon Gittins index, with a horizon that reaches past the task.

    What is learned about mu serves later tasks too: of their rounds an arm counts the square of
    the share that mu has in its variance. `later` is how many they are, all together. No more
    count than 20 tasks as long as this one would have (200 for clicks and counts); 10 such tasks
    if it is not given. With
    x = v·(rounds that count), the level is c·√log(1 + 0.4 x + x²/300) - 0.583·√(v/(1 + v)). For
    c = 1 the first term follows the Gittins index of a Brownian motion, and the second is the
    correction for rewards that come one by one. For clicks and counts the level is 1.3 times
    that: few successes say less than a Gaussian does.

    `width` is c, and `ahead` the part of later rounds that counts: `adats.tune` finds both for a
    prior, a number of tasks and their length.
    """

    later: float | None = None
    width: float = CAUTION
    ahead: float = 1.0

    def __post_init__(self) -> None:
        for name in ("later", "width", "ahead"):
            value = getattr(self, name)
            if value is not None:
                fill(self, **{name: checks.non_negative_number(name, value)})

    def counted(self, later: Any, share: Any) -> Any:
        """Of `later` rounds those that an arm with this share of mu counts."""
        return self.ahead * later * share**2

    def level(self, arms: ArmBelief, scene: Scene) -> FloatArray:
        left = _rounds_left(scene)
        length = scene.round - 1 + left
        later = USUAL_TASKS * length
        if self.later is not None:
            later = np.minimum(self.later, arms.FAR_TASKS * length)
        rounds = left + self.counted(later, scene.share())
        level = far_sighted_level(arms.variance_ratio, rounds, self.width)
        found: FloatArray = arms.FAR_CAUTION * level
        return found


@dataclass(frozen=True)
class OwnIndex(_Index):
    """An index of your own, mean + z·scale with z = rule(v, left, round) of single numbers.

    v is the ratio of an arm's variance to that of a reward, `left` the rounds left in the task,
    this one too, and `round` its number. A rule that Numba can compile is compiled in simulations
    of Gaussian and linear problems.
    """

    rule: Callable[[float, float, float], float]

    def level(self, arms: ArmBelief, scene: Scene) -> FloatArray:
        left = _rounds_left(scene)
        level: FloatArray = np.vectorize(self.rule, otypes=[np.float64])(
            arms.variance_ratio, left, scene.round
        )
        return level


POLICIES: dict[str, Policy] = {
    "ts": Thompson(),
    "ucb": BayesUCB(),
    "index": FiniteHorizon(),
    "far": FarSighted(),
    "greedy": Greedy(),
}


def policy_of(policy: Policy | str) -> Policy:
    """A policy, or the one with this name."""
    if isinstance(policy, str):
        if policy not in POLICIES:
            raise ValueError(f"unknown policy {policy!r}; known are {', '.join(POLICIES)}")
        return POLICIES[policy]
    if not callable(getattr(policy, "values", None)):
        raise ValueError(f"a policy is a name or has a method values, got {policy!r}")
    return policy


def policy_to_dict(policy: Policy) -> JsonDict | None:
    """A policy of this module as JSON; None for one of the user's own."""
    for name, known in POLICIES.items():
        if type(policy) is type(known):
            return {"name": name, **vars(policy)}
    return None


def policy_from_dict(data: JsonDict) -> Policy:
    """Read what `policy_to_dict` wrote."""
    options = {key: value for key, value in data.items() if key != "name"}
    return type(policy_of(data["name"]))(**options)
