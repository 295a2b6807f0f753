"""Gaussian arms (paper, Section 5)."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from adats.models import GaussianMeta
from adats.models.core import checks
from adats.models.core.frozen import fill
from adats.models.core.types import Rng
from adats.simulation.kernels.registry import Loops, register
from adats.simulation.problems.problem import Instance, Start, UnknownSpread


@dataclass(frozen=True, eq=False)
class GaussianProblem(UnknownSpread[GaussianMeta]):
    """mu_* ~ N(meta_mean, meta_scale²), theta ~ N(mu_*, task_scale²), rewards N(theta, noise²)."""

    arms: int = 2
    meta_scale: float = 0.5
    task_scale: float = 0.1
    noise: float = 1.0
    meta_mean: float = 0.0
    mu: Any = None  # a fixed mu_*, or None to draw it in every run
    name: ClassVar[str] = "gaussian"

    def __post_init__(self) -> None:
        arms = checks.count_of("arms", self.arms)
        fill(self, arms=arms, meta_mean=checks.number("meta_mean", self.meta_mean))
        self.settle_scales(arms)

    def model(self, task_scale: float) -> GaussianMeta:
        mean = np.full(self.arms, self.meta_mean)
        return GaussianMeta(mean, self.meta_scale, task_scale=task_scale, noise=self.noise)

    def instance(self, start: Start, rounds: int, rng: Rng) -> Instance:
        normals = rng.standard_normal(self.arms + rounds)
        theta = start.mu + self.task_scale * normals[: self.arms]
        return Instance(theta, normals[self.arms :])


@register(GaussianProblem, "gaussian")
def _loops() -> Loops:
    from adats.simulation.kernels import gaussian

    return Loops(gaussian.play, gaussian.learn, own_index=True)


@register(GaussianProblem, "ensemble")
def _ensemble_loops() -> Loops:
    from adats.simulation.kernels import ensemble

    return Loops(ensemble.play_gaussian, ensemble.learn_gaussian)
