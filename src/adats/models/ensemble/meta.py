"""Several whole models, each exact, weighted by evidence: what the paper leaves open.

With Gaussian or linear models that differ in `task_scale` and `noise`, this learns Σ_0 and σ
on a grid.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp

from adats.models.core import checks
from adats.models.core.frozen import evolve, fill
from adats.models.core.linalg import part_of
from adats.models.core.registry import meta_from_dict, register
from adats.models.core.types import (
    Arm,
    Belief,
    Design,
    Digest,
    FloatArray,
    IntArray,
    JsonDict,
    MetaBelief,
    Rng,
)
from adats.models.core.weights import draw, finite_or_null, from_null, log_of, softmax
from adats.models.ensemble.belief import BeliefMixture, BeliefMixtures
from adats.models.ensemble.parts import MadeOfParts, check_alike


class ModelDigest(NamedTuple):
    stats: Any
    message: FloatArray  # the messages of all models, one after another
    parts: tuple[Digest[Any], ...]


class ModelDigests(NamedTuple):
    """Of many tasks under each model."""

    rows: FloatArray
    parts: tuple[Any, ...]

    @property
    def messages(self) -> FloatArray:
        return np.concatenate([part.messages for part in self.parts], axis=1)

    @property
    def message_sum(self) -> FloatArray:
        return np.concatenate([part.message_sum for part in self.parts])


class _Posteriors(Sequence[Belief]):
    """Of one task under each model, worked out when asked for: a draw needs only one of them."""

    def __init__(self, posteriors: Sequence[Callable[[], Belief]]) -> None:
        self._posteriors = posteriors
        self._known: dict[int, Belief] = {}

    def __len__(self) -> int:
        return len(self._posteriors)

    def __getitem__(self, index: Any) -> Any:
        if index not in self._known:
            self._known[index] = self._posteriors[index]()
        return self._known[index]


@register
@dataclass(frozen=True, eq=False, init=False, repr=False)
class ModelMixture(MadeOfParts[ModelDigest]):
    """One of `models` is right; `weights` is the belief about which before any data.

    All models see the same statistics. Each keeps its own exact meta-posterior, and a task is
    left out or put back in each of them, never under another's state.
    """

    NAME: ClassVar[str] = "models"
    log_weights: FloatArray
    models: tuple[MetaBelief, ...]

    def __init__(self, weights: ArrayLike, models: Sequence[MetaBelief]) -> None:
        checked = checks.weights("weights", weights)
        if checked.shape != (len(models),):
            raise ValueError(f"{len(models)} models need as many weights, got {checked.shape}")
        check_alike(models)
        fill(self, log_weights=log_of(checked), models=tuple(models))

    @property
    def parts(self) -> tuple[MetaBelief, ...]:
        return self.models

    @property
    def n_candidates(self) -> int:
        return sum(model.n_candidates for model in self.models)

    def figures(self) -> dict[str, FloatArray]:
        found: dict[str, FloatArray] = {}
        for model in self.models:
            for name, value in model.figures().items():
                found[name] = np.append(found.get(name, ()), value)
        return found

    def with_models(self, models: Iterable[MetaBelief]) -> Self:
        """The same choice between models that know more, or less."""
        return evolve(self, models=tuple(models))

    @cached_property
    def _log_posterior(self) -> FloatArray:
        evidence = np.array([model.log_evidence() for model in self.models])
        known: FloatArray = self.log_weights + evidence
        return known

    @property
    def weights(self) -> FloatArray:
        """The belief in each model given all tasks."""
        return softmax(self._log_posterior)

    def check_change(self, old: ModelDigest, stats: Any) -> None:
        for model, part in zip(self.models, old.parts, strict=True):
            model.check_change(part, stats)

    def digest(self, stats: Any, *, design: Design = None) -> ModelDigest:
        parts = tuple(model.digest(stats, design=design) for model in self.models)
        return ModelDigest(stats, np.concatenate([part.message for part in parts]), parts)

    def absorb(self, message: FloatArray) -> Self:
        parts = _cut(message, [model.sums().size // 2 for model in self.models])
        pairs = zip(self.models, parts, strict=True)
        return self.with_models(model.absorb(part) for model, part in pairs)

    def faded(self, factor: float) -> Self:
        return self.with_models(model.faded(factor) for model in self.models)

    def sums(self) -> FloatArray:
        return np.concatenate([model.sums() for model in self.models])

    def with_sums(self, values: FloatArray) -> Self:
        parts = _cut(values, [model.sums().size for model in self.models])
        pairs = zip(self.models, parts, strict=True)
        return self.with_models(model.with_sums(part) for model, part in pairs)

    def replace_task(
        self, old: ModelDigest, stats: Any, changed: Iterable[int], *, weight: float | None = None
    ) -> tuple[ModelDigest, Self]:
        changed = tuple(changed)
        pairs = zip(self.models, old.parts, strict=True)
        parts, models = zip(
            *(m.replace_task(part, stats, changed, weight=weight) for m, part in pairs),
            strict=True,
        )
        message = np.concatenate([part.message for part in parts])
        return ModelDigest(stats, message, parts), self.with_models(models)

    def log_evidence(self) -> float:
        """Log density of all absorbed rewards, the choice of model summed out."""
        return float(logsumexp(self._log_posterior))

    def task_prior(self, *, design: Design = None) -> BeliefMixture:
        priors = tuple(model.task_prior(design=design) for model in self.models)
        return BeliefMixture.of(self._log_posterior, priors)

    def share(self, *, rows: FloatArray | None = None, design: Design = None) -> FloatArray:
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
        pairs = zip(self.models, digest.parts, strict=True)
        beliefs = _Posteriors([partial(model.posterior, part) for model, part in pairs])
        return BeliefMixture.of(self._log_posterior, beliefs)

    @property
    def row_size(self) -> int:
        return self.models[0].row_size

    @property
    def draw_size(self) -> int:
        return 1 + max(model.draw_size for model in self.models)

    def digest_many(self, rows: FloatArray, *, kept: bool = True) -> ModelDigests:
        return ModelDigests(rows, tuple(m.digest_many(rows, kept=kept) for m in self.models))

    def posterior_many(self, digests: ModelDigests) -> BeliefMixtures:
        pairs = zip(self.models, digests.parts, strict=True)
        beliefs = _Posteriors([partial(model.posterior_many, part) for model, part in pairs])
        return BeliefMixtures.over(
            self._log_posterior, beliefs, partial(self._posterior_of, digests.rows)
        )

    def _posterior_of(self, rows: FloatArray, index: int, tasks: IntArray) -> Any:
        """Of some tasks, under one model."""
        model = self.models[index]
        return model.posterior_many(model.digest_many(rows[tasks]))

    def sample(self, rng: Rng) -> FloatArray:
        """The index of a model, followed by a draw of its mu."""
        index = int(draw(self.weights[:, None], rng)[0])
        return np.append(float(index), self.models[index].sample(rng))

    def prior_given(self, mu: ArrayLike, *, design: Design = None) -> Belief:
        """The task prior of model mu[0] at its meta-parameter mu[1:]."""
        values = checks.array("mu", mu, ndim=1)
        if not (values.size and values[0] in range(len(self.models))):
            raise ValueError(f"mu must start with a model's index, got {values}")
        prior: Belief = self.models[int(values[0])].prior_given(values[1:], design=design)
        return prior

    def widen(self, factor: float) -> Self:
        return self.with_models(model.widen(factor) for model in self.models)

    def with_arm(self, name: Arm | None, like: int) -> Self:
        """One more arm in every model, with the prior (not the data) of arm `like`."""
        return self.with_models(model.with_arm(name, like) for model in self.models)

    def grown_draw(self, mu: FloatArray, rng: Rng) -> FloatArray:
        """Of the model that was drawn."""
        index = int(mu[0])
        return np.append(mu[0], self.models[index].grown_draw(mu[1:], rng))

    def to_dict(self) -> JsonDict:
        return {
            "model": self.NAME,
            "log_weights": finite_or_null(self.log_weights),
            "models": [model.to_dict() for model in self.models],
        }

    @classmethod
    def from_dict(cls, data: JsonDict) -> Self:
        logs = from_null(data["log_weights"])
        models = [meta_from_dict(part) for part in data["models"]]
        return evolve(cls(np.exp(logs), models), log_weights=logs)


def _cut(values: FloatArray, sizes: Sequence[int]) -> list[FloatArray]:
    """One array into parts of these sizes."""
    if values.shape != (sum(sizes),):
        raise ValueError(f"{values.shape} numbers for models that have {sizes}")
    return np.split(values, np.cumsum(sizes)[:-1])
