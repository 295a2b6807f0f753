"""Several whole models, each exact, weighted by evidence: what the paper leaves open.

With Gaussian or linear models that differ in `task_scale` and `noise`, this learns Σ_0 and σ
on a grid.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple, Self, cast

import numpy as np
from scipy.special import logsumexp

from adats.models import BeliefMixture
from adats.models.core import checks
from adats.models.core.frozen import evolve
from adats.models.core.linalg import part_of
from adats.models.core.types import Arm, ArmMeta, Belief, Digest, FloatArray, MetaBelief, Rng
from adats.models.core.weights import draw, log_of, softmax


class ModelDigest(NamedTuple):
    stats: Any
    message: FloatArray  # the messages of all models, one after another
    parts: tuple[Digest, ...]


class _Posteriors(Sequence[Belief]):
    """Of one task under each model, worked out when asked for: a draw needs only one of them."""

    def __init__(self, models: Sequence[MetaBelief], parts: Sequence[Digest]) -> None:
        self._models, self._parts = models, parts
        self._known: dict[int, Belief] = {}

    def __len__(self) -> int:
        return len(self._models)

    def __getitem__(self, index: Any) -> Any:
        if index not in self._known:
            self._known[index] = self._models[index].posterior(self._parts[index])
        return self._known[index]


@dataclass(frozen=True, eq=False, init=False)
class ModelMixture:
    """One of `models` is right; `weights` is the belief about which before any data.

    All models see the same statistics. Each keeps its own exact meta-posterior, and a task is
    left out or put back in each of them, never under another's state.
    """

    log_weights: FloatArray
    models: tuple[MetaBelief, ...]
    _parts: tuple[slice, ...] = field(repr=False)  # of a message, one a model

    def __init__(self, weights: Any, models: Sequence[MetaBelief]) -> None:
        checked = checks.weights("weights", weights)
        if checked.shape != (len(models),):
            raise ValueError(f"{len(models)} models need as many weights, got {checked.shape}")
        empties = [model.empty() for model in models]
        if len({(type(e), e.flat().size) for e in empties}) != 1:
            raise ValueError("models must have the same kind of rewards and the same arms")
        if len({getattr(m, "arms", None) for m in models}) != 1:
            raise ValueError("models must have the same names of arms")
        self.__dict__.update(log_weights=log_of(checked), models=tuple(models))
        self._prepare()

    def _prepare(self) -> None:
        sizes = [model.digest(model.empty()).message.size for model in self.models]
        ends = pairwise([0, *np.cumsum(sizes).tolist()])
        self.__dict__["_parts"] = tuple(slice(start, stop) for start, stop in ends)

    @property
    def arms(self) -> tuple[Arm, ...] | None:
        return cast("tuple[Arm, ...] | None", getattr(self.models[0], "arms", None))

    @property
    def n_arms(self) -> int:
        return cast(ArmMeta, self.models[0]).n_arms

    @property
    def total(self) -> tuple[Any, ...]:
        return tuple(model.total for model in self.models)

    def with_models(self, models: Iterable[MetaBelief]) -> Self:
        """The same choice between models that know more, or less."""
        return evolve(self, drop=("_known_log",), models=tuple(models))

    def _log_posterior(self) -> FloatArray:
        known: FloatArray | None = self.__dict__.get("_known_log")
        if known is None:
            evidence = np.array([model.log_evidence() for model in self.models])
            known = self.__dict__["_known_log"] = self.log_weights + evidence
        return known

    @property
    def weights(self) -> FloatArray:
        """The belief in each model given all tasks."""
        return softmax(self._log_posterior())

    @property
    def mean(self) -> FloatArray:
        """Mean of theta in a new task."""
        return self.task_prior().mean

    def empty(self, *, design: FloatArray | None = None) -> Any:
        return self.models[0].empty(design=design)

    def digest(
        self,
        stats: Any,
        *,
        design: FloatArray | None = None,
    ) -> ModelDigest:
        parts = tuple(model.digest(stats, design=design) for model in self.models)
        return ModelDigest(stats, np.concatenate([part.message for part in parts]), parts)

    def absorb(self, message: FloatArray) -> Self:
        pairs = zip(self.models, self._parts, strict=True)
        return self.with_models(model.absorb(message[part]) for model, part in pairs)

    def retell(
        self, old: ModelDigest, stats: Any, changed: Iterable[int]
    ) -> tuple[ModelDigest, Self]:
        changed = tuple(changed)
        pairs = zip(self.models, old.parts, strict=True)
        parts, models = zip(*(m.retell(part, stats, changed) for m, part in pairs), strict=True)
        message = np.concatenate([part.message for part in parts])
        return ModelDigest(stats, message, parts), self.with_models(models)

    def log_evidence(self) -> float:
        """Log density of all absorbed rewards, the choice of model summed out."""
        return float(logsumexp(self._log_posterior()))

    def task_prior(self, *, design: FloatArray | None = None) -> BeliefMixture:
        priors = tuple(model.task_prior(design=design) for model in self.models)
        return BeliefMixture.of(self._log_posterior(), priors)

    def share(
        self, *, rows: FloatArray | None = None, design: FloatArray | None = None
    ) -> FloatArray:
        """Not knowing the model is not knowing the task prior: only what every model has within
        its tasks is not part of the share."""
        prior = self.task_prior(design=design)
        both: Any = prior if rows is None else prior.at_rows(rows)
        within = [
            weight * (1.0 - model.share(rows=rows, design=design)) * belief.scale**2
            for weight, model, belief in zip(both.weights, self.models, both.beliefs, strict=True)
        ]
        inside = np.sum(within, axis=0)
        return part_of(both.scale**2 - inside, inside)

    def posterior(self, digest: ModelDigest) -> BeliefMixture:
        """Of theta in a task whose own message is in the total."""
        beliefs = _Posteriors(self.models, digest.parts)
        return BeliefMixture.of(self._log_posterior(), cast(tuple[Belief, ...], beliefs))

    def sample(self, rng: Rng) -> FloatArray:
        """The index of a model, followed by a draw of its mu."""
        index = int(draw(self.weights[:, None], rng)[0])
        return np.append(float(index), self.models[index].sample(rng))

    def prior_given(self, mu: Any, *, design: FloatArray | None = None) -> Belief:
        """The task prior of model mu[0] at its meta-parameter mu[1:]."""
        values = checks.array("mu", mu, ndim=1)
        if not (values.size and values[0] in range(len(self.models))):
            raise ValueError(f"mu must start with a model's index, got {values}")
        return self.models[int(values[0])].prior_given(values[1:], design=design)

    def widen(self, factor: float) -> Self:
        return self.with_models(model.widen(factor) for model in self.models)

    def with_arm(self, name: Arm | None, like: int) -> Self:
        """One more arm in every model, with the prior (not the data) of arm `like`."""
        new = self.with_models(cast(ArmMeta, model).with_arm(name, like) for model in self.models)
        new._prepare()
        return new
