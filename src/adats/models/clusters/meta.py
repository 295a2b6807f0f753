"""Tasks of several kinds: a task draws which of a few priors it has (beyond the paper).

With listed priors and unknown weights on a grid this is exact. Unknown means of the priors are
learned by `refit`, which is approximate.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike

from adats.models.clusters.em import learn_components
from adats.models.core import checks
from adats.models.core.errors import InvalidValue
from adats.models.core.frozen import evolve, fill
from adats.models.core.linalg import part_of
from adats.models.core.registry import meta_from_dict, register
from adats.models.core.sums import Sum
from adats.models.core.types import Arm, Belief, Design, FloatArray, JsonDict, MetaBelief, Rng
from adats.models.core.weights import draw, log_of, log_sum, softmax
from adats.models.ensemble.belief import BeliefMixture
from adats.models.ensemble.parts import MadeOfParts, check_alike

STEPS = {1: 1, 2: 20, 3: 10, 4: 6, 5: 4}  # of the grid of weights, by the number of kinds


class ClusterDigest(NamedTuple):
    stats: Any
    message: FloatArray  # log density of the rewards, for every point of the grid of weights
    evidence: FloatArray  # the same for every component
    beliefs: tuple[Belief, ...]  # every component, conditioned on the task's own rewards
    design: Design  # of the task


@register
@dataclass(frozen=True, eq=False, init=False)
class ClusterMeta(MadeOfParts[ClusterDigest]):
    """Every task is of one of the kinds `components`: its prior is that one's `task_prior`.

    Components are whole models, and stay as they are but for `refit`. `weights` says how frequent
    each kind is: numbers that are known, or rows of numbers of which one is right, all equally
    likely; not given, they are a grid over all there can be.

    >>> from adats.models import GaussianMeta
    >>> low, high = (GaussianMeta([m], 0.0, task_scale=0.1, noise=1.0) for m in (-1.0, 1.0))
    >>> meta = ClusterMeta([low, high], weights=[0.5, 0.5])
    >>> digest = meta.digest(meta.empty().add(0, 3.0))
    >>> meta.absorb(digest.message).posterior(digest).weights.round(3)
    array([0.003, 0.997])
    """

    NAME: ClassVar[str] = "clusters"
    components: tuple[MetaBelief, ...]
    priors: tuple[Belief, ...]  # their task priors
    grid: FloatArray  # a row of weights for every candidate
    log_grid: FloatArray
    total: Sum  # of the messages of all tasks

    def __init__(self, components: Sequence[MetaBelief], weights: ArrayLike | None = None) -> None:
        check_alike(components)
        grid = weights_grid(len(components)) if weights is None else _checked(weights)
        if grid.shape[1] != len(components):
            raise InvalidValue(
                "weights", f"must be {len(components)} numbers, one a component, got {grid.shape}"
            )
        fill(self, grid=grid, log_grid=log_of(grid), total=Sum.zeros(len(grid)))
        fill(self, **_parts(components))

    @property
    def parts(self) -> tuple[MetaBelief, ...]:
        return self.components

    @property
    def n_candidates(self) -> int:
        return self.grid.size

    def _priors(self, design: Design) -> tuple[Belief, ...]:
        if design is None:
            return self.priors
        return tuple(component.task_prior(design=design) for component in self.components)

    @cached_property
    def chances(self) -> FloatArray:
        """The belief in each row of the grid, given all tasks."""
        return softmax(self.total.value())

    @property
    def weights(self) -> FloatArray:
        """How frequent each kind is believed to be."""
        weights: FloatArray = self.chances @ self.grid
        return weights

    def digest(self, stats: Any, *, design: Design = None) -> ClusterDigest:
        parts = [prior.condition(stats) for prior in self._priors(design)]
        evidence = np.array([part.log_evidence for part in parts])
        message = log_sum(self.log_grid + evidence, axis=1)  # log Σ_c w_c e_c
        return ClusterDigest(stats, message, evidence, tuple(part.belief for part in parts), design)

    def _digest_anew(self, old: ClusterDigest, stats: Any) -> ClusterDigest:
        return self.digest(stats, design=old.design)

    def posterior(self, digest: ClusterDigest) -> BeliefMixture:
        """Of theta in a task whose own message is in the total: it is of kind c with probability
        Σ_j Q(j) w_jc e_c / Σ_b w_jb e_b."""
        per_point = self.total.value() - digest.message
        logs = log_sum(self.log_grid + per_point[:, None], axis=0) + digest.evidence
        return BeliefMixture.of(logs, digest.beliefs)

    def task_prior(self, *, design: Design = None) -> BeliefMixture:
        return BeliefMixture.of(log_of(self.weights), self._priors(design))

    def log_evidence(self) -> float:
        return float(log_sum(self.total.value(), axis=0) - np.log(len(self.grid)))

    def sample(self, rng: Rng) -> FloatArray:
        """The number of a row of the grid."""
        return draw(self.chances[:, None], rng).astype(np.float64)

    def prior_given(self, mu: ArrayLike, *, design: Design = None) -> BeliefMixture:
        value = checks.array("mu", mu)
        if value.size != 1 or value.item() not in range(len(self.grid)):
            raise ValueError(f"mu must be the number of a row of weights, got {mu!r}")
        return BeliefMixture.of(self.log_grid[int(value.item())], self._priors(design))

    def share(self, *, rows: FloatArray | None = None, design: Design = None) -> FloatArray:
        """What is not known of the task prior are the weights."""
        prior: Any = self.task_prior(design=design)
        arms = prior if rows is None else prior.at_rows(rows)
        means = self.grid @ np.stack([belief.mean for belief in arms.beliefs])
        between = self.chances @ (means - arms.mean) ** 2
        return part_of(between, arms.scale**2 - between)

    def with_arm(self, name: Arm | None, like: int) -> Self:
        """One more arm in every component, with the prior (not the data) of arm `like`."""
        return evolve(self, **_parts([part.with_arm(name, like) for part in self.components]))

    def refit(self, tasks: Sequence[tuple[Any, FloatArray | None]]) -> tuple[Self, list[Any]]:
        """Components whose means are learned from all tasks, by EM (`clusters.em`).

        It is approximate: components then know the tasks they were learned from, which counts the
        rewards of those twice, in them and in their own posterior.
        """
        learned = _parts(learn_components(self.components, tasks))
        new = evolve(self, **learned, total=Sum.zeros(len(self.grid)))
        for stats, design in tasks:
            new = new.absorb(new.digest(stats, design=design).message)
        return new, [stats for stats, _ in tasks]

    def figures(self) -> dict[str, FloatArray]:
        means = [component.mean for component in self.components]
        return {"means": np.array(means), "weights": self.weights}

    def to_dict(self) -> JsonDict:
        return {
            "model": self.NAME,
            "components": [component.to_dict() for component in self.components],
            "weights": self.grid.tolist(),
            "total": self.total_to_list(),
        }

    @classmethod
    def from_dict(cls, data: JsonDict) -> Self:
        components = [meta_from_dict(part) for part in data["components"]]
        return cls(components, data["weights"]).with_total_of(data)


def _parts(components: Sequence[MetaBelief]) -> dict[str, Any]:
    """The fields that follow from the components."""
    priors = tuple(component.task_prior() for component in components)
    return {"components": tuple(components), "priors": priors}


def weights_grid(kinds: int) -> FloatArray:
    """Weights of so many kinds, evenly over all there can be; none of them is 0.

    >>> weights_grid(2)[[0, 10, 20]].round(3).tolist()
    [[0.024, 0.976], [0.5, 0.5], [0.976, 0.024]]
    """
    steps = STEPS.get(kinds, 3)
    cuts = itertools.combinations(range(steps + kinds - 1), kinds - 1)
    rows = [np.diff([-1, *cut, steps + kinds - 1]) - 1 for cut in cuts]
    grid: FloatArray = (np.array(rows) + 0.5) / (steps + 0.5 * kinds)
    return grid


def _checked(weights: ArrayLike) -> FloatArray:
    """Rows of weights, each of which sums to 1."""
    table = checks.array("weights", weights)
    rows = table[None] if table.ndim == 1 else table
    if rows.ndim != 2 or len(rows) == 0:
        raise InvalidValue("weights", f"are numbers, or rows of numbers, got shape {table.shape}")
    return np.stack([checks.weights("weights", row) for row in rows])
