"""Semi-bandits with Gaussian arms: the best `size` arms, and routing on a real network."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from adats.agents.exploration import covering_actions
from adats.agents.oracles import Oracle, ShortestPath, Top
from adats.models import GaussianArms, GaussianMeta
from adats.models.core import checks
from adats.models.core.checks import count_of
from adats.models.core.frozen import unchecked
from adats.models.core.stats import ArmStats
from adats.models.core.types import FloatArray, IntArray, Rng
from adats.simulation.problems.gaussian import learned
from adats.simulation.problems.problem import (
    GaussianRewards,
    Index,
    Instance,
    Start,
    fresh,
    kernel,
    padded,
)

NO_EDGES = np.zeros((0, 2), dtype=np.intp)


class _Semibandit(GaussianRewards):
    """What both problems share: Gaussian arms, a set of them a round, one reward an arm."""

    if TYPE_CHECKING:  # a field or a property, and what the two problems choose

        @property
        def arms(self) -> int: ...
        @property
        def oracle(self) -> Oracle: ...
        def _graph(self) -> tuple[int, IntArray, IntArray, float]:
            """Size, edges, ends and floor, as the compiled loop takes them."""
            ...

    def _meta_mean(self) -> FloatArray:
        return np.zeros(self.arms)

    def _clipped(self, theta: FloatArray) -> FloatArray:
        return theta

    def meta(self) -> GaussianMeta:
        return self._meta

    @cached_property
    def _meta(self) -> GaussianMeta:
        return GaussianMeta(
            self._meta_mean(), self.meta_scale, task_scale=self.task_scale, noise=self.noise
        )

    def start(self, rng: Rng) -> Start:
        return Start(self.meta().sample(rng) if self.mu is None else self.mu)

    def instance(self, start: Start, rounds: int, rng: Rng) -> Instance:
        theta = start.mu + self.task_scale * rng.standard_normal(self.arms)
        return Instance(self._clipped(theta), rng.standard_normal((rounds, self.arms)))

    def first(self, start: Start) -> IntArray:  # noqa: ARG002
        return self._cover

    @cached_property
    def _cover(self) -> IntArray:
        return padded(covering_actions(self.oracle, self.arms))

    def play(
        self,
        prior: GaussianArms,
        instance: Instance,
        first: IntArray,
        rng: Rng,
        regret: FloatArray,
    ) -> ArmStats:
        theta = instance.theta
        best = float(theta[self.oracle(theta)].sum())
        mean, scale, noise = fresh(prior.mean, prior.scale, prior.noise)
        table = kernel("semibandit_task")(
            mean,
            scale,
            noise,
            theta,
            best,
            *self._graph(),
            first,
            instance.draws,
            rng,
            regret,
        )
        return unchecked(ArmStats, table=table)

    def play_index(
        self, index: Index, prior: Any, instance: Instance, first: IntArray, regret: FloatArray
    ) -> ArmStats | None:
        if index.delay > 0:
            return None
        theta = instance.theta
        best = float(theta[self.oracle(theta)].sum())
        parts = fresh(prior.mean, prior.scale, prior.noise)
        world = (theta, best, *self._graph(), first, instance.draws, regret)
        table = kernel("semibandit_index_task")(*index[:3], *parts, *world)
        return unchecked(ArmStats, table=table)

    def learn(self, meta: GaussianMeta, stats: ArmStats) -> GaussianMeta:
        return learned(meta, stats)


@dataclass(frozen=True, eq=False)
class SemibanditProblem(_Semibandit):
    """At most `size` of the arms a round, those of the largest means that are not negative."""

    arms: int = 20
    size: int = 4
    meta_scale: float = 0.5
    task_scale: float = 0.1
    noise: float = 1.0
    mu: Any = None  # a fixed mu_*, or None to draw it in every run
    name: ClassVar[str] = "semibandit"

    def __post_init__(self) -> None:
        arms, size = count_of("arms", self.arms), count_of("size", self.size)
        self.__dict__.update(arms=arms, size=size)
        if self.size > self.arms:
            raise ValueError(f"size {self.size} is more than the {self.arms} arms")
        self._check(arms)

    @property
    def oracle(self) -> Oracle:
        return Top(self.size)

    def _graph(self) -> tuple[int, IntArray, IntArray, float]:
        return self.size, NO_EDGES, np.zeros(3, dtype=np.intp), 0.0


@dataclass(frozen=True, eq=False)
class RoutingProblem(_Semibandit):
    """Shortest paths on a network: edges are arms, and the reward of an edge is minus its latency.

    Before any task, the expected latency of an edge is its length, in units of the mean length of
    the network. True and sampled latencies are clipped below at `floor`.
    """

    network: str
    edges: tuple[tuple[int, int], ...]
    lengths: tuple[float, ...]
    source: int
    target: int
    meta_scale: float = 0.5
    task_scale: float = 0.1
    noise: float = 1.0
    floor: float = 0.05
    mu: Any = None  # a fixed mu_* (minus latencies), or None to draw it in every run
    name: ClassVar[str] = "routing"
    _path: ShortestPath = field(init=False, repr=False)

    def __post_init__(self) -> None:
        lengths = checks.positive("lengths", self.lengths)
        if lengths.shape != (len(self.edges),):
            raise ValueError(f"{len(self.edges)} edges need as many lengths, got {lengths.shape}")
        object.__setattr__(self, "lengths", tuple((lengths / lengths.mean()).tolist()))
        path = ShortestPath(self.edges, self.source, self.target, floor=self.floor)
        self.__dict__.update(_path=path, source=path.source, target=path.target)
        self._check(len(self.edges))

    @classmethod
    def named(cls, network: str, **options: Any) -> "RoutingProblem":
        """A real network by its name in the package topohub, between its most distant nodes."""
        from adats.simulation.networks import load_network

        return cls(network=network, **load_network(network), **options)

    @property
    def arms(self) -> int:
        return len(self.edges)

    @property
    def oracle(self) -> Oracle:
        return self._path

    def describe(self) -> dict[str, Any]:
        settings = super().describe()
        del settings["lengths"], settings["_path"]
        return {**settings, "edges": len(self.edges), "floor": float(self.floor)}

    def _meta_mean(self) -> FloatArray:
        return -np.array(self.lengths)

    def _clipped(self, theta: FloatArray) -> FloatArray:
        return np.minimum(theta, -self.floor)

    def _graph(self) -> tuple[int, IntArray, IntArray, float]:
        edges, number = self._path._graph
        ends = [number[self.source], number[self.target], len(number)]
        return 0, edges, np.array(ends, dtype=np.intp), float(self.floor)
