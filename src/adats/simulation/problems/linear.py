"""Linear bandits with arms from the unit sphere (paper, Section 5)."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, cast

import numpy as np

from adats.agents.exploration import spanning_arms
from adats.agents.oracles import BestArm, Oracle
from adats.models import BeliefMixture, LinearBelief, LinearMeta, LinearStats, ModelMixture
from adats.models.core.checks import count_of
from adats.models.core.frozen import unchecked
from adats.models.core.types import FloatArray, IntArray, Rng
from adats.simulation.problems.problem import (
    Index,
    Instance,
    Start,
    UnknownSpread,
    fresh,
    kernel,
    stacked,
)


def unit_sphere(rng: Rng, *shape: int) -> FloatArray:
    """Points drawn evenly from the unit sphere, along the last axis."""
    points = rng.standard_normal(shape)
    points /= np.linalg.norm(points, axis=-1, keepdims=True)
    return points


@dataclass(frozen=True, eq=False)
class LinearProblem(UnknownSpread):
    """mu_* ~ N(0, meta_scale² I), theta ~ N(mu_*, task_scale² I), rewards N(aᵀtheta, noise²).

    The arms are drawn from the unit sphere, once a run as in the paper, or anew every round.
    """

    dim: int = 2
    arms: int = 10
    meta_scale: float = 1.0
    task_scale: float = 0.1
    noise: float = 1.0
    redraw: str = "run"  # or "round"
    mu: Any = None  # a fixed mu_*, or None to draw it in every run
    name: ClassVar[str] = "linear"

    def __post_init__(self) -> None:
        dim, arms = count_of("dim", self.dim), count_of("arms", self.arms)
        self.__dict__.update(dim=dim, arms=arms)
        if self.redraw not in ("run", "round"):
            raise ValueError(f"redraw must be 'run' or 'round', got {self.redraw!r}")
        self._check(dim)

    @property
    def oracle(self) -> Oracle:
        return BestArm()

    def meta(self) -> LinearMeta:
        return self._meta

    @cached_property
    def _meta(self) -> LinearMeta:
        return self.model(self.task_scale)

    def model(self, task_scale: float) -> LinearMeta:
        return LinearMeta(
            np.zeros(self.dim), self.meta_scale**2, task_cov=task_scale**2, noise=self.noise
        )

    def start(self, rng: Rng) -> Start:
        mu = self.meta_scale * rng.standard_normal(self.dim) if self.mu is None else self.mu
        features = unit_sphere(rng, 1, self.arms, self.dim) if self.redraw == "run" else None
        return Start(mu, features)

    def instance(self, start: Start, rounds: int, rng: Rng) -> Instance:
        theta = start.mu + self.task_scale * rng.standard_normal(self.dim)
        features = start.features
        if features is None:
            features = unit_sphere(rng, rounds, self.arms, self.dim)
        return Instance(theta, rng.standard_normal(rounds), features)

    def first(self, start: Start) -> IntArray:
        if start.features is None:
            raise ValueError("forced exploration needs arms that stay the same during a run")
        return spanning_arms(start.features[0]).reshape(-1, 1)

    def play(
        self,
        prior: LinearBelief | BeliefMixture,
        instance: Instance,
        first: IntArray,
        rng: Rng,
        regret: FloatArray,
    ) -> LinearStats:
        if instance.features is None:
            raise ValueError("an instance of a linear bandit has features")
        world = (instance.theta, instance.features, first, instance.draws, rng, regret)
        if isinstance(prior, BeliefMixture):
            beliefs = cast(tuple[LinearBelief, ...], prior.beliefs)
            each = stacked(*((b.mean, b.factor, b.noise) for b in beliefs))
            task = kernel("linear_models_task")
            n, moments = task(prior.log_weights, *each, self.noise, *world)
        else:
            task, (mean, factor) = kernel("linear_task"), fresh(prior.mean, prior.factor)
            n, moments = task(mean, factor, prior.noise, *world)
        return unchecked(LinearStats, n=n, moments=moments)

    def play_index(
        self, index: Index, prior: Any, instance: Instance, first: IntArray, regret: FloatArray
    ) -> LinearStats | None:
        features = instance.features
        if not isinstance(prior, LinearBelief) or features is None or len(features) > 1:
            return None
        parts = (*fresh(prior.mean, prior.factor), prior.noise)
        world = (instance.theta, features, first, instance.draws, regret)
        n, moments = kernel("linear_index_task")(*index, *parts, *world)
        return unchecked(LinearStats, n=n, moments=moments)

    def learn(
        self, meta: LinearMeta | ModelMixture, stats: LinearStats
    ) -> LinearMeta | ModelMixture:
        return meta.absorb(meta.digest(stats).message)
