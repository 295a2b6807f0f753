"""Clicks and counts whose log-odds (or logarithms) are Gaussian, with a level that arms share."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from adats.models.core import checks
from adats.models.core.frozen import fill
from adats.models.core.types import FloatArray, Rng
from adats.models.default_prior import default_prior, level_prior
from adats.models.latent.family import FAMILIES
from adats.models.latent.meta import LatentMeta
from adats.simulation.kernels.registry import Loops, register
from adats.simulation.problems.mixture import REWARDS, poisson
from adats.simulation.problems.problem import BuiltInProblem, Instance, Start
from adats.simulation.rivals import PooledArms


@dataclass(frozen=True, eq=False)
class ClicksProblem(BuiltInProblem[LatentMeta]):
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

    def __init__(
        self,
        arms: int = 5,
        base: float = 0.02,
        arm_scale: float = 0.3,
        task_scale: float = 0.3,
        level_scale: float = 0.0,
        rewards: str = "binary",
        mu: ArrayLike | None = None,
    ) -> None:
        if rewards not in FAMILIES:
            raise ValueError(f"rewards must be 'binary' or 'count', got {rewards!r}")
        size = checks.count_of("arms", arms)
        rate = float(checks.positive("base", checks.number("base", base)))
        if rate >= FAMILIES[rewards].most:
            raise ValueError(f"base must be below {FAMILIES[rewards].most}, got {rate}")
        scales = {
            name: float(checks.non_negative(name, checks.number(name, value)))
            for name, value in (
                ("arm_scale", arm_scale),
                ("task_scale", task_scale),
                ("level_scale", level_scale),
            )
        }
        known = None if mu is None else checks.array("mu", mu, ndim=1)
        if known is not None and known.shape != (size,):
            raise ValueError(f"mu must have {size} numbers, got {known.shape}")
        fill(self, arms=size, base=rate, **scales, rewards=rewards, mu=known)

    @property
    def name(self) -> str:
        return "clicks"

    @property
    def counts(self) -> bool:
        """Whether rewards are counts; else they are 0 or 1."""
        return self.rewards == "count"

    def describe(self) -> dict[str, Any]:
        names = ("name", "arms", "base", "arm_scale", "task_scale", "level_scale", "rewards")
        settings = {name: getattr(self, name) for name in names}
        return settings if self.mu is None else {**settings, "mu": self.mu.tolist()}

    def new_meta(self) -> LatentMeta:
        """That of an agent which is told the spreads, but not the base rate."""
        return level_prior(
            range(self.arms),
            self.rewards,
            task_scales=[self.task_scale],
            level_scales=[self.level_scale],
            arm_scale=self.arm_scale,
        )

    def default(self) -> LatentMeta:
        """That of an agent which is told nothing."""
        meta: LatentMeta = default_prior(arms=range(self.arms), rewards=self.rewards)  # type: ignore[arg-type]
        return meta

    def pooled(self) -> PooledArms:
        """That of an agent which takes all tasks for one."""
        return PooledArms(self.arms, self.rewards)

    def start(self, rng: Rng) -> Start:
        if self.mu is not None:
            return Start(self.mu)
        centre = FAMILIES[self.rewards].eta(self.base)
        return Start(centre + self.arm_scale * rng.standard_normal(self.arms))

    def instance(self, start: Start, rounds: int, rng: Rng) -> Instance:
        z = rng.standard_normal(self.arms + 1)
        theta = start.mu + self.task_scale * z[:-1] + self.level_scale * z[-1]
        means: FloatArray = np.asarray(FAMILIES[self.rewards].mean(theta))
        return Instance(means, rng.random(rounds))

    def reward(self, mean: float, draw: float) -> float:
        return poisson(mean, draw) if self.counts else REWARDS["binary"](mean, draw)


@register(ClicksProblem, "latent")
def _loops() -> Loops:
    from adats.simulation.kernels import latent

    return Loops(latent.play, renew=latent.settled)


@register(ClicksProblem, "beta")
@register(ClicksProblem, "poisson")
def _told_loops() -> Loops:
    from adats.simulation.kernels import mixture

    return Loops(mixture.play_told)
