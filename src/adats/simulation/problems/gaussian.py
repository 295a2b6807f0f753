"""Gaussian arms (paper, Section 5)."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from adats.models.core import checks
from adats.models.core.frozen import fill
from adats.models.core.types import Rng
from adats.simulation.kernels.registry import GAUSSIAN_ARMS, register
from adats.simulation.problems.problem import (
    GaussianModel,
    Instance,
    Start,
    UnknownSpread,
    arms_model,
)


@dataclass(frozen=True, eq=False)
class GaussianProblem(UnknownSpread[GaussianModel]):
    """mu_* ~ N(meta_mean, meta_scale²), theta ~ N(mu_*, task_scale²), rewards N(theta, noise²).

    Scales are numbers, or have one entry an arm. With `meta_cov` or `task_cov` arms move together.
    """

    arms: int = 2
    meta_scale: Any = 0.5
    task_scale: Any = 0.1
    noise: float = 1.0
    meta_mean: float = 0.0
    mu: Any = None  # a fixed mu_*, or None to draw it in every run
    meta_cov: Any = None  # in place of meta_scale
    task_cov: Any = None  # in place of task_scale
    name: ClassVar[str] = "gaussian"

    def __post_init__(self) -> None:
        arms = checks.count_of("arms", self.arms)
        fill(self, arms=arms, meta_mean=checks.number("meta_mean", self.meta_mean))
        self.settle_scales(arms)

    def model(self, task_scale: float | None = None) -> GaussianModel:
        return arms_model(self, np.full(self.arms, self.meta_mean), task_scale)

    def instance(self, start: Start, rounds: int, rng: Rng) -> Instance:
        normals = rng.standard_normal(self.arms + rounds)
        theta = self.around(start.mu, normals[: self.arms])
        return Instance(theta, normals[self.arms :], self.arm_rows)


register(GaussianProblem, "gaussian", **GAUSSIAN_ARMS)
register(GaussianProblem, "linear", play="linear.play")
register(
    GaussianProblem, "ensemble", play="ensemble.play_gaussian", learn="ensemble.learn_gaussian"
)
