"""Clicks and counts whose log-odds (or logarithms) are Gaussian: with a level that arms share, or
linear in features."""

import math
from abc import abstractmethod
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, TypeVar

import numpy as np

from adats.models.core import checks
from adats.models.core.frozen import fill
from adats.models.core.types import FloatArray, IntArray, JsonDict, MetaBelief, Rng
from adats.models.default_prior import (
    BASE_SCALE,
    COEFFICIENT,
    TYPICAL_RATE,
    default_prior,
    level_prior,
)
from adats.models.latent.family import FAMILIES, Family
from adats.models.latent.meta import LatentMeta
from adats.models.latent.row_meta import LatentLinearMeta
from adats.simulation.kernels.registry import register
from adats.simulation.problems.problem import BuiltInProblem, Instance, Start, first_of_features
from adats.simulation.rivals import PooledArms

M = TypeVar("M", bound=MetaBelief)


class LatentClicks(BuiltInProblem[M]):
    """What clicks and counts share, with features and without: a base rate, scales, rewards."""

    name: ClassVar[str] = "clicks"
    arms: int
    base: float
    arm_scale: float
    task_scale: float
    level_scale: float
    rewards: str

    def settle(self, **sizes: int) -> None:
        """Put clean values in place of the settings; the last of `sizes` is that of mu."""
        if self.rewards not in FAMILIES:
            raise ValueError(f"rewards must be 'binary' or 'count', got {self.rewards!r}")
        rate = checks.positive_number("base", self.base)
        if rate >= FAMILIES[self.rewards].most:
            raise ValueError(f"base must be below {FAMILIES[self.rewards].most}, got {rate}")
        whole = {name: checks.count_of(name, value) for name, value in sizes.items()}
        size = list(whole.values())[-1]
        scales = {
            name: checks.non_negative_number(name, getattr(self, name))
            for name in ("arm_scale", "task_scale", "level_scale")
        }
        known = None if self.mu is None else checks.array("mu", self.mu, ndim=1)
        if known is not None and known.shape != (size,):
            raise ValueError(f"mu must have {size} numbers, got {known.shape}")
        fill(self, base=rate, mu=known, **whole, **scales)

    @property
    def family(self) -> Family:
        return FAMILIES[self.rewards]

    @property
    def counts(self) -> bool:
        """Whether rewards are counts; else they are 0 or 1."""
        return self.rewards == "count"

    def describe(self) -> JsonDict:
        settings = {"name": self.name, **{f.name: getattr(self, f.name) for f in fields(self)}}  # type: ignore[arg-type]
        mu = settings.pop("mu")
        return settings if mu is None else {**settings, "mu": mu.tolist()}

    @abstractmethod
    def default(self) -> MetaBelief:
        """That of an agent which is told nothing."""

    @abstractmethod
    def pooled(self) -> MetaBelief:
        """That of an agent which takes all tasks for one."""

    def linear(self) -> MetaBelief:
        """That of an agent which takes rewards for Gaussian, with a mean linear in features."""
        raise ValueError("a linear model needs features, which these clicks do not have")

    def reward(self, mean: float, draw: float) -> float:
        return self.family.conjugate.reward_at(mean, draw)


@dataclass(frozen=True, eq=False)
class ClicksProblem(LatentClicks[LatentMeta]):
    """theta ~ N(mu_*, task_scale² I + level_scale² 11ᵀ), where the mean reward of arm i is
    A'(theta_i), and mu_* ~ N(A'⁻¹(base), arm_scale² I).
    """

    arms: int = 5
    base: float = 0.02  # the mean reward of a typical arm
    arm_scale: float = 0.3
    task_scale: float = 0.3
    level_scale: float = 0.0
    rewards: str = "binary"
    mu: Any = None

    def __post_init__(self) -> None:
        self.settle(arms=self.arms)

    def new_meta(self) -> LatentMeta:
        """That of an agent which is told the spreads, but not the base rate."""
        return level_prior(
            range(self.arms),
            self.rewards,
            task_scales={self.task_scale: 1.0},
            level_scales=[self.level_scale],
            arm_scale=self.arm_scale,
        )

    def default(self) -> LatentMeta:
        meta: LatentMeta = default_prior(arms=range(self.arms), rewards=self.rewards)  # type: ignore[arg-type]
        return meta

    def pooled(self) -> PooledArms:
        return PooledArms(self.arms, self.rewards)

    def start(self, rng: Rng) -> Start:
        if self.mu is not None:
            return Start(self.mu)
        centre = self.family.eta(self.base)
        return Start(centre + self.arm_scale * rng.standard_normal(self.arms))

    def instance(self, start: Start, rounds: int, rng: Rng) -> Instance:
        z = rng.standard_normal(self.arms + 1)
        theta = start.mu + self.task_scale * z[:-1] + self.level_scale * z[-1]
        means: FloatArray = np.asarray(self.family.mean(theta))
        return Instance(means, rng.random(rounds))


@dataclass(frozen=True, eq=False)
class LinkedInstance(Instance):
    """One task, in which the mean reward of an arm with features a is A'(aᵀtheta)."""

    family: Family = field(kw_only=True)

    def means(self, t: int) -> FloatArray:
        means: FloatArray = self.family.mean(super().means(t))
        return means


@dataclass(frozen=True, eq=False)
class FeatureClicksProblem(LatentClicks[LatentLinearMeta]):
    """theta ~ N(mu_*, Σ_0), where the mean reward of an arm with features a is A'(aᵀtheta).

    The first of the features is 1, the others are N(0, 1), drawn once a run, or anew every round.
    mu_* has A'⁻¹(base) for the first, and N(0, arm_scale²) for each of the others. Σ_0 is
    task_scale² I, with level_scale² more for the first.
    """

    features: int = 8
    arms: int = 20
    base: float = 0.03  # the mean reward of a typical arm
    arm_scale: float = 0.3
    task_scale: float = 0.3
    level_scale: float = 0.0
    rewards: str = "binary"
    redraw: str = "run"  # or "round"
    mu: Any = None

    def __post_init__(self) -> None:
        if self.redraw not in ("run", "round"):
            raise ValueError(f"redraw must be 'run' or 'round', got {self.redraw!r}")
        self.settle(arms=self.arms, features=self.features)

    def _scales(self, first: float, others: float) -> FloatArray:
        scales = np.full(self.features, others)
        scales[0] = first
        return scales

    @property
    def _task_scales(self) -> FloatArray:
        """Of every coefficient."""
        return self._scales(math.hypot(self.task_scale, self.level_scale), self.task_scale)

    def new_meta(self) -> LatentLinearMeta:
        """That of an agent which is told the spreads, but not the base rate."""
        return LatentLinearMeta(
            self._scales(self.family.eta(TYPICAL_RATE), 0.0),
            np.diag(self._scales(BASE_SCALE, self.arm_scale) ** 2),
            task_cov=np.diag(self._task_scales**2),
            rewards=self.rewards,
        )

    def default(self) -> LatentLinearMeta:
        meta: LatentLinearMeta = default_prior(dim=self.features, rewards=self.rewards)  # type: ignore[arg-type]
        return meta

    def pooled(self) -> LatentLinearMeta:
        """The same coefficients in all tasks."""
        none = np.zeros(self.features)
        return LatentLinearMeta(none, COEFFICIENT**2, task_scale=0.0, rewards=self.rewards)

    def linear(self) -> MetaBelief:
        """It is told the scale with which it loses least: half the standard deviation of a typical
        arm's reward."""
        scale = 0.5 * math.sqrt(self.family.variance(self.family.eta(self.base)))
        meta: MetaBelief = default_prior(dim=self.features, rewards="number", scale=scale)
        return meta

    def _arms(self, rng: Rng, sets: int) -> FloatArray:
        rows = rng.standard_normal((sets, self.arms, self.features))
        rows[..., 0] = 1.0
        return rows

    def start(self, rng: Rng) -> Start:
        mu = self.mu
        if mu is None:
            mu = self._scales(0.0, self.arm_scale) * rng.standard_normal(self.features)
            mu[0] = self.family.eta(self.base)
        return Start(mu, self._arms(rng, 1) if self.redraw == "run" else None)

    def instance(self, start: Start, rounds: int, rng: Rng) -> Instance:
        theta = start.mu + self._task_scales * rng.standard_normal(self.features)
        features = self._arms(rng, rounds) if start.features is None else start.features
        return LinkedInstance(theta, rng.random(rounds), features, family=self.family)

    def first(self, start: Start) -> IntArray:
        return first_of_features(start)


register(ClicksProblem, "latent", play="latent.play", renew="latent_sites.settled")
register(ClicksProblem, "beta", play="mixture.play_told")
register(ClicksProblem, "poisson", play="mixture.play_told")
register(
    FeatureClicksProblem, "latent-linear", play="latent_rows.play", renew="latent_rows.settled"
)
register(FeatureClicksProblem, "ensemble", play="ensemble.play_clicks")
