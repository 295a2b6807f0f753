"""Semi-bandits with Gaussian arms: the best `size` arms, and routing on a real network."""

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from adats.agents.exploration import covering_actions
from adats.agents.oracles import Oracle, ShortestPath, Top
from adats.models.core import checks
from adats.models.core.checks import count_of
from adats.models.core.frozen import fill
from adats.models.core.types import FloatArray, IntArray, JsonDict, Rng
from adats.simulation.kernels.registry import register
from adats.simulation.problems.problem import (
    GaussianModel,
    GaussianRewards,
    Instance,
    Start,
    arms_model,
    padded,
)

NO_EDGES = np.zeros((0, 2), dtype=np.intp)


class GaussianSets(GaussianRewards[GaussianModel]):
    """What both problems share: Gaussian arms, a set of them a round, one reward an arm."""

    @abstractmethod
    def sets(self) -> tuple[int, IntArray, IntArray, float]:
        """Size, edges, ends and floor, as the compiled loop takes them."""

    def meta_mean(self) -> FloatArray:
        return np.zeros(self.arms)

    def clipped(self, theta: FloatArray) -> FloatArray:
        return theta

    def new_meta(self) -> GaussianModel:
        return arms_model(self, self.meta_mean())

    def instance(self, start: Start, rounds: int, rng: Rng) -> Instance:
        theta = self.around(start.mu, rng.standard_normal(self.arms))
        draws = rng.standard_normal((rounds, self.arms))
        return Instance(self.clipped(theta), draws, self.arm_rows)

    def first(self, start: Start) -> IntArray:  # noqa: ARG002
        return self._cover

    @cached_property
    def _cover(self) -> IntArray:
        return padded(covering_actions(self.oracle, self.arms))


register(GaussianSets, "gaussian", play="semibandit.play", learn="gaussian.learn")


@dataclass(frozen=True, eq=False)
class SemibanditProblem(GaussianSets):
    """At most `size` of the arms a round, those of the largest means that are not negative.

    Scales are numbers, or have one entry an arm. With `meta_cov` or `task_cov` arms move together,
    which has no compiled loop.
    """

    arms: int = 20
    size: int = 4
    meta_scale: Any = 0.5
    task_scale: Any = 0.1
    noise: float = 1.0
    mu: Any = None  # a fixed mu_*, or None to draw it in every run
    meta_cov: Any = None  # in place of meta_scale
    task_cov: Any = None  # in place of task_scale
    name: ClassVar[str] = "semibandit"

    def __post_init__(self) -> None:
        arms, size = count_of("arms", self.arms), count_of("size", self.size)
        fill(self, arms=arms, size=size)
        if self.size > self.arms:
            raise ValueError(f"size {self.size} is more than the {self.arms} arms")
        self.settle_scales(arms)

    @property
    def oracle(self) -> Oracle:
        return Top(self.size)

    def sets(self) -> tuple[int, IntArray, IntArray, float]:
        return self.size, NO_EDGES, np.zeros(3, dtype=np.intp), 0.0


@dataclass(frozen=True, eq=False)
class RoutingProblem(GaussianSets):
    """Shortest paths on a network: edges are arms, and the reward of an edge is minus its latency.

    Before any task, the expected latency of an edge is its length, in units of the mean length of
    the network. True and sampled latencies are clipped below at `floor`.
    """

    network: str
    edges: tuple[tuple[int, int], ...]
    lengths: tuple[float, ...]
    source: int
    target: int
    meta_scale: Any = 0.5
    task_scale: Any = 0.1
    noise: float = 1.0
    floor: float = 0.05
    mu: Any = None  # a fixed mu_* (minus latencies), or None to draw it in every run
    name: ClassVar[str] = "routing"

    def __post_init__(self) -> None:
        lengths = checks.positive("lengths", self.lengths)
        if lengths.shape != (len(self.edges),):
            raise ValueError(f"{len(self.edges)} edges need as many lengths, got {lengths.shape}")
        path = self.oracle  # raises if source and target do not fit
        fill(self, lengths=tuple((lengths / lengths.mean()).tolist()))
        fill(self, source=path.source, target=path.target)
        self.settle_scales(len(self.edges))

    @classmethod
    def named(cls, network: str, **options: Any) -> "RoutingProblem":
        """A real network by its name in the package topohub, between its most distant nodes."""
        from adats.simulation.networks import load_network

        return cls(network=network, **load_network(network), **options)

    @property
    def arms(self) -> int:
        return len(self.edges)

    @cached_property
    def oracle(self) -> ShortestPath:
        return ShortestPath(self.edges, self.source, self.target, floor=self.floor)

    def describe(self) -> JsonDict:
        settings = super().describe()
        del settings["lengths"]
        return {**settings, "edges": len(self.edges), "floor": float(self.floor)}

    def meta_mean(self) -> FloatArray:
        return -np.array(self.lengths)

    def clipped(self, theta: FloatArray) -> FloatArray:
        return np.minimum(theta, -self.floor)

    def sets(self) -> tuple[int, IntArray, IntArray, float]:
        edges, number = self.oracle.graph
        ends = [number[self.source], number[self.target], len(number)]
        return 0, edges, np.array(ends, dtype=np.intp), float(self.floor)
