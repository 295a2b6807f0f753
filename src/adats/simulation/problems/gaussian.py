"""Gaussian arms (paper, Section 5)."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, cast

import numpy as np

from adats.agents.oracles import BestArm, Oracle
from adats.models import BeliefMixture, GaussianArms, GaussianMeta, ModelMixture
from adats.models.core.checks import count_of
from adats.models.core.frozen import unchecked
from adats.models.core.stats import ArmStats
from adats.models.core.sums import Sum
from adats.models.core.types import FloatArray, IntArray, Rng
from adats.simulation.problems.problem import (
    Index,
    Instance,
    Start,
    UnknownSpread,
    each_once,
    fresh,
    kernel,
    stacked,
)


def learned(meta: GaussianMeta, stats: ArmStats) -> GaussianMeta:
    """`meta` with a task absorbed, by the compiled way."""
    total = meta.total
    high, low, mean, variance = kernel("gaussian_learn")(
        stats.table, *meta.arrays(), total.high, total.low
    )
    return meta.with_sum(Sum(high, low), mean, variance)


@dataclass(frozen=True, eq=False)
class GaussianProblem(UnknownSpread):
    """mu_* ~ N(meta_mean, meta_scale²), theta ~ N(mu_*, task_scale²), rewards N(theta, noise²)."""

    arms: int = 2
    meta_scale: float = 0.5
    task_scale: float = 0.1
    noise: float = 1.0
    meta_mean: float = 0.0
    mu: Any = None  # a fixed mu_*, or None to draw it in every run
    name: ClassVar[str] = "gaussian"

    def __post_init__(self) -> None:
        arms = count_of("arms", self.arms)
        self.__dict__.update(arms=arms, meta_mean=self._number("meta_mean"))
        self._check(arms)

    @property
    def oracle(self) -> Oracle:
        return BestArm()

    def meta(self) -> GaussianMeta:
        return self._meta

    @cached_property
    def _meta(self) -> GaussianMeta:
        return self.model(self.task_scale)

    def model(self, task_scale: float) -> GaussianMeta:
        mean = np.full(self.arms, self.meta_mean)
        return GaussianMeta(mean, self.meta_scale, task_scale=task_scale, noise=self.noise)

    def start(self, rng: Rng) -> Start:
        return Start(self.meta().sample(rng) if self.mu is None else self.mu)

    def instance(self, start: Start, rounds: int, rng: Rng) -> Instance:
        normals = rng.standard_normal(self.arms + rounds)
        theta = start.mu + self.task_scale * normals[: self.arms]
        return Instance(theta, normals[self.arms :])

    def first(self, start: Start) -> IntArray:  # noqa: ARG002
        return each_once(self.arms)

    def play(
        self,
        prior: GaussianArms | BeliefMixture,
        instance: Instance,
        first: IntArray,
        rng: Rng,
        regret: FloatArray,
    ) -> ArmStats:
        world = (instance.theta, first, instance.draws, rng, regret)
        if isinstance(prior, BeliefMixture):
            beliefs = cast(tuple[GaussianArms, ...], prior.beliefs)
            each = stacked(*(belief.parameters() for belief in beliefs))
            task = kernel("gaussian_models_task")
            table = task(prior.log_weights, *each, self.noise, *world)
        else:
            mean, scale, noise = fresh(prior.mean, prior.scale, prior.noise)
            table = kernel("gaussian_task")(mean, scale, noise, *world)
        return unchecked(ArmStats, table=table)

    def play_index(
        self, index: Index, prior: Any, instance: Instance, first: IntArray, regret: FloatArray
    ) -> ArmStats | None:
        if not isinstance(prior, GaussianArms):
            return None
        parts = fresh(prior.mean, prior.scale, prior.noise)
        world = (instance.theta, first, instance.draws, regret)
        table = kernel("gaussian_index_task")(*index, *parts, *world)
        return unchecked(ArmStats, table=table)

    def learn(
        self, meta: GaussianMeta | ModelMixture, stats: ArmStats
    ) -> GaussianMeta | ModelMixture:
        if isinstance(meta, ModelMixture):
            return meta.with_models(learned(cast(GaussianMeta, m), stats) for m in meta.models)
        return learned(meta, stats)
