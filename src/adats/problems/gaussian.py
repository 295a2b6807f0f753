"""Gaussian arms (paper, Section 5)."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from adats.beliefs import GaussianArms
from adats.checks import count_of
from adats.frozen import unchecked
from adats.linalg import Sum
from adats.meta import GaussianMeta
from adats.oracles import BestArm, Oracle
from adats.problems.problem import GaussianRewards, Instance, Start, each_once, fresh, kernel
from adats.stats import ArmStats
from adats.types import FloatArray, IntArray, Rng


def learned(meta: GaussianMeta, stats: ArmStats) -> GaussianMeta:
    """`meta` with a task absorbed, by the compiled way."""
    total = meta.total
    high, low, mean, variance = kernel("gaussian_learn")(
        stats.table, *meta.arrays(), total.high, total.low
    )
    return meta.with_sum(Sum(high, low), mean, variance)


@dataclass(frozen=True, eq=False)
class GaussianProblem(GaussianRewards):
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
        mean = np.full(self.arms, self.meta_mean)
        return GaussianMeta(mean, self.meta_scale, task_scale=self.task_scale, noise=self.noise)

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
        prior: GaussianArms,
        instance: Instance,
        first: IntArray,
        rng: Rng,
        regret: FloatArray,
    ) -> ArmStats:
        mean, scale, noise = fresh(prior.mean, prior.scale, prior.noise)
        table = kernel("gaussian_task")(
            mean,
            scale,
            noise,
            instance.theta,
            first,
            instance.draws,
            rng,
            regret,
        )
        return unchecked(ArmStats, table=table)

    def learn(self, meta: GaussianMeta, stats: ArmStats) -> GaussianMeta:
        return learned(meta, stats)
