"""Linear bandits with arms from the unit sphere (paper, Section 5)."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from adats.models import LinearMeta
from adats.models.core.checks import count_of
from adats.models.core.frozen import fill
from adats.models.core.types import FloatArray, IntArray, Rng
from adats.simulation.kernels.registry import register
from adats.simulation.problems.problem import Instance, Start, UnknownSpread, first_of_features


def unit_sphere(rng: Rng, *shape: int) -> FloatArray:
    """Points drawn evenly from the unit sphere, along the last axis."""
    points = rng.standard_normal(shape)
    points /= np.linalg.norm(points, axis=-1, keepdims=True)
    return points


@dataclass(frozen=True, eq=False)
class LinearProblem(UnknownSpread[LinearMeta]):
    """mu_* ~ N(0, meta_scale² I), theta ~ N(mu_*, task_scale² I), rewards N(aᵀtheta, noise²).

    Scales are numbers, or have one entry a direction; `meta_cov` and `task_cov` are any. The arms
    are drawn from the unit sphere, once a run as in the paper, or anew every round.
    """

    dim: int = 2
    arms: int = 10
    meta_scale: Any = 1.0
    task_scale: Any = 0.1
    noise: float = 1.0
    redraw: str = "run"  # or "round"
    mu: Any = None  # a fixed mu_*, or None to draw it in every run
    meta_cov: Any = None  # in place of meta_scale
    task_cov: Any = None  # in place of task_scale
    name: ClassVar[str] = "linear"

    def __post_init__(self) -> None:
        dim, arms = count_of("dim", self.dim), count_of("arms", self.arms)
        fill(self, dim=dim, arms=arms)
        if self.redraw not in ("run", "round"):
            raise ValueError(f"redraw must be 'run' or 'round', got {self.redraw!r}")
        self.settle_scales(dim)

    def model(self, task_scale: float | None = None) -> LinearMeta:
        spread = self.task_spread() if task_scale is None else task_scale**2
        return LinearMeta(np.zeros(self.dim), self.meta_spread(), task_cov=spread, noise=self.noise)

    def start(self, rng: Rng) -> Start:
        mu = self.meta().sample(rng) if self.mu is None else self.mu
        features = unit_sphere(rng, 1, self.arms, self.dim) if self.redraw == "run" else None
        return Start(mu, features)

    def instance(self, start: Start, rounds: int, rng: Rng) -> Instance:
        theta = self.around(start.mu, rng.standard_normal(self.dim))
        features = start.features
        if features is None:
            features = unit_sphere(rng, rounds, self.arms, self.dim)
        return Instance(theta, rng.standard_normal(rounds), features)

    def first(self, start: Start) -> IntArray:
        return first_of_features(start)


register(LinearProblem, "linear", play="linear.play", own_index=True)
register(LinearProblem, "ensemble", play="ensemble.play_linear")
