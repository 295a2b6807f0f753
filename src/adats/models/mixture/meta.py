"""Exponential-family arms with an unknown choice among candidate priors (paper, Section 3.4)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Self, cast

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp

from adats.models.core import checks
from adats.models.core.draws import Draws
from adats.models.core.frozen import evolve, fill
from adats.models.core.linalg import part_of
from adats.models.core.many import EachBelief, EachDigest
from adats.models.core.meta import MetaBase
from adats.models.core.names import arm_names, grown_names, no_design
from adats.models.core.product import ProductArms
from adats.models.core.registry import register
from adats.models.core.stats import ArmStats
from adats.models.core.sums import Sum
from adats.models.core.types import Arm, Design, FloatArray, JsonDict, Rng
from adats.models.core.weights import draw, finite_or_null, from_null, log_of, picks, softmax
from adats.models.mixture.belief import MixtureArms, candidate_weights, grouped, stacked
from adats.models.mixture.families import FAMILIES


class MixtureDigest(NamedTuple):
    stats: ArmStats
    message: FloatArray  # log evidence of every candidate (and arm, if arms are separate)
    evidence: FloatArray  # log evidence of every candidate and arm
    components: ProductArms  # every candidate conditioned on the task's own rewards


class MixturePosteriors(EachBelief):
    """Beliefs over many tasks, one by one, but for draws."""

    def __init__(self, meta: "MixtureMeta", digests: EachDigest) -> None:
        self._meta, self._digests = meta, digests

    @cached_property
    def parts(self) -> Sequence[Any]:  # type: ignore[override]
        return [self._meta.posterior(cast(MixtureDigest, digest)) for digest in self._digests]

    def sample(self, rng: Draws) -> FloatArray:  # type: ignore[override]
        return self._meta.sample_many(self._digests.rows, rng)


@register
@dataclass(frozen=True, eq=False, init=False, repr=False)
class MixtureMeta(MetaBase[ArmStats, MixtureDigest]):
    """The task prior is one of `priors`; `weights` is the belief about which.

    With weights of shape (candidates,) a candidate is a whole product prior, as in the paper.
    With shape (candidates, arms) every arm has a categorical of its own.

    >>> from adats.models import BetaArms
    >>> low, high = BetaArms([1.0], [9.0]), BetaArms([9.0], [1.0])
    >>> meta = MixtureMeta([0.5, 0.5], [low, high])
    >>> meta.absorb(meta.digest(meta.empty().add(0, 1)).message).weights
    array([0.1, 0.9])
    """

    NAME: ClassVar[str] = "mixture"
    log_weights: FloatArray  # log w_q, (candidates, 1) or (candidates, arms)
    priors: ProductArms  # a stack: parameters have shape (candidates, arms)
    arms: tuple[Arm, ...] | None
    separate: bool  # whether every arm has a categorical of its own
    total: Sum  # of the messages of all tasks

    def __init__(
        self,
        weights: ArrayLike,
        priors: Sequence[ProductArms] | ProductArms,
        *,
        arms: Sequence[Arm] | None = None,
    ) -> None:
        stack = stacked(priors)
        log_weights = log_of(candidate_weights(weights, stack))
        fill(
            self,
            log_weights=log_weights,
            priors=stack,
            arms=arm_names(arms, stack.n_arms),
            separate=np.ndim(weights) == 2,
            total=Sum.zeros(log_weights.size),
        )

    @property
    def model(self) -> str:
        return self.priors.MODEL

    @property
    def n_candidates(self) -> int:
        return self.log_weights.size

    @property
    def n_arms(self) -> int:
        return self.priors.n_arms

    def _log_posterior(self) -> FloatArray:
        """Unnormalised: log w_q plus the summed log evidences, so nothing underflows."""
        return self.log_weights + self.total.value().reshape(self.log_weights.shape)

    @property
    def weights(self) -> FloatArray:
        """Q_s(j): the belief in each candidate given all tasks, in the shape it was given."""
        weights = softmax(self._log_posterior())
        return weights if self.separate else weights[:, 0]

    @property
    def mean(self) -> FloatArray:
        """Mean reward of each arm in a new task."""
        return self.task_prior().mean

    def empty(self, *, design: Design = None) -> ArmStats:
        no_design(design)
        return self.priors.STATS.zeros(self.n_arms)

    def digest(self, stats: ArmStats, *, design: Design = None) -> MixtureDigest:
        no_design(design)
        if stats.table.shape != (self.priors.STATS.ROWS, self.n_arms):
            raise ValueError(f"statistics of shape {stats.table.shape} for {self.n_arms} arms")
        return self._digested(
            stats, self.priors.arm_log_evidence(stats), self.priors.updated(stats)
        )

    def _digested(
        self, stats: ArmStats, evidence: FloatArray, components: ProductArms
    ) -> MixtureDigest:
        message = grouped(evidence, self.log_weights.shape[1]).ravel()
        return MixtureDigest(stats, message, evidence, components)

    def replace_task(
        self,
        old: MixtureDigest,
        stats: ArmStats,
        changed: Iterable[int],
        *,
        weight: float | None = None,
    ) -> tuple[MixtureDigest, Self]:
        """Only the arms that changed are worked out."""
        if weight is not None:
            return super().replace_task(old, stats, changed, weight=weight)
        arms = list(changed)
        priors, pulls = self.priors.columns(arms), stats.columns(arms)
        evidence = old.evidence.copy()
        evidence[:, arms] = priors.arm_log_evidence(pulls)
        components = old.components.with_columns(arms, priors.updated(pulls))
        new = self._digested(stats, evidence, components)
        return new, evolve(self, total=self.total.swap(old.message, new.message))

    def log_evidence(self) -> float:
        """Log density of all absorbed rewards, the choice of candidate summed out."""
        return float(logsumexp(self._log_posterior(), axis=0).sum())

    def task_prior(self, *, design: Design = None) -> MixtureArms:
        """P_s = Σ_j Q_s(j) P(·; j)."""
        no_design(design)
        return MixtureArms.of(self._log_posterior(), self.priors)

    def share(self, *, rows: FloatArray | None = None, design: Design = None) -> FloatArray:
        """The variance of the candidates' means, over all of it."""
        del rows
        no_design(design)
        weights, means, scales = self.weights, self.priors.mean, self.priors.scale
        weights = weights if self.separate else weights[:, None]
        endless = ~np.isfinite(scales).all(axis=0)  # there, nothing can be said of a share
        means, scales = np.where(endless, 0.0, means), np.where(endless, 1.0, scales)
        gaps = means - (weights * means).sum(axis=0)
        return part_of((weights * gaps**2).sum(axis=0), (weights * scales**2).sum(axis=0))

    def posterior(self, digest: MixtureDigest) -> MixtureArms:
        """Of theta in a task whose own message is in the total: its evidence is in the weights."""
        return MixtureArms.of(self._log_posterior(), digest.components)

    def posterior_many(self, digests: EachDigest) -> "MixturePosteriors":
        return MixturePosteriors(self, digests)

    def sample_many(self, rows: FloatArray, rng: Draws) -> FloatArray:
        """A draw of theta in each of many tasks: a candidate (one an arm, if arms are separate),
        then theta."""
        tasks, groups = len(rows), self.log_weights.shape[1]
        points = rng.random((tasks, groups))
        pairs = zip(softmax(self._log_posterior()).T, points.T, strict=True)
        index = np.stack([picks(weights, point) for weights, point in pairs], axis=1)
        arms = np.arange(self.n_arms)
        picked = self.priors.of(*(p[index, arms] for p in self.priors.parameters()))
        table = np.moveaxis(rows.reshape(tasks, -1, self.n_arms), 1, 0)
        return picked.updated(self.priors.STATS(table)).sample(cast(Rng, rng))

    def sample(self, rng: Rng) -> FloatArray:
        """The index of a candidate; or one for each arm, if they are separate."""
        return draw(softmax(self._log_posterior()), rng).astype(np.float64)

    def prior_given(self, mu: ArrayLike, *, design: Design = None) -> ProductArms:
        """P(·; j) for the candidate j = mu; or, from an array, one for each arm."""
        no_design(design)
        value = checks.array("mu", mu)
        candidates, groups = self.log_weights.shape
        fits = value.size == groups and (value >= 0).all() and (value < candidates).all()
        if not fits or (value != np.floor(value)).any():
            raise ValueError(
                f"mu must be the index of a candidate, 0 to {candidates - 1}"
                f"{', for each arm' if groups > 1 else ''}, got {mu!r}"
            )
        index = value.astype(np.intp).reshape(groups)
        return self.priors.pick(np.broadcast_to(index, (self.n_arms,)))

    def widen(self, factor: float) -> Self:  # noqa: ARG002
        raise ValueError("a categorical meta-prior has no width; give other weights instead")

    def with_arm(self, name: Arm | None, like: int) -> Self:
        """One more arm at the end, with the prior (not the data) of arm `like`."""
        arms = grown_names(self.arms, name, like, self.n_arms)
        changes: dict[str, Any] = {"priors": self.priors.with_arm(like), "arms": arms}
        if self.separate:
            shape = self.log_weights.shape
            columns = [np.pad(v.reshape(shape), ((0, 0), (0, 1))).ravel() for v in self.total]
            changes["total"] = Sum(*columns)
            changes["log_weights"] = np.append(
                self.log_weights, self.log_weights[:, [like]], axis=1
            )
        return evolve(self, **changes)

    def figures(self) -> dict[str, FloatArray]:
        return dict(zip(self.priors.PARAMETERS, self.priors.parameters(), strict=True))

    def to_dict(self) -> JsonDict:
        return {
            "model": self.NAME,
            "family": type(self.priors).__name__,
            "priors": {name: value.tolist() for name, value in self.figures().items()},
            "log_weights": finite_or_null(self.log_weights),
            "separate": self.separate,
            "arms": self.arms,
            "total": self.total_to_list(),
        }

    @classmethod
    def from_dict(cls, data: JsonDict) -> Self:
        if data["family"] not in FAMILIES:
            raise ValueError(f"unknown kind {data['family']!r}; is it registered (register_arms)?")
        logs = from_null(data["log_weights"])
        weights = np.exp(logs) if data["separate"] else np.exp(logs)[:, 0]
        meta = cls(weights, FAMILIES[data["family"]](**data["priors"]), arms=data["arms"])
        return evolve(meta, log_weights=logs).with_total_of(data)
