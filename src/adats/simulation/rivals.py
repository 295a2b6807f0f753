"""What one would do without a learned prior: take all tasks for one, or each by itself."""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from adats.models import BetaArms, PoissonArms
from adats.models.core.frozen import fill
from adats.models.core.meta import MetaBase
from adats.models.core.product import ProductArms
from adats.models.core.stats import ArmStats
from adats.models.core.sums import Sum
from adats.models.core.types import Design, FloatArray, JsonDict, Rng


class PooledDigest(NamedTuple):
    stats: ArmStats
    message: FloatArray  # the statistics themselves


@dataclass(frozen=True, eq=False, init=False)
class PooledArms(MetaBase[ArmStats, PooledDigest]):
    """All tasks are one: the prior of a task is the posterior of all rewards before it.

    A flat one: Beta(1, 1) for binary rewards, and for counts a gamma that is worth a tenth of a
    pull. An agent that never absorbs a task solves each by itself from there.
    """

    NAME: ClassVar[str] = "pooled"
    prior: ProductArms
    total: Sum

    def __init__(self, arms: int, rewards: str) -> None:
        one = np.ones(arms)
        prior = BetaArms(one, one) if rewards == "binary" else PoissonArms(0.1 * one, 0.1 * one)
        fill(self, prior=prior, total=Sum.zeros(prior.STATS.ROWS * arms))

    @property
    def n_arms(self) -> int:
        return self.prior.n_arms

    @property
    def mean(self) -> FloatArray:
        return self.task_prior().mean

    def empty(self, *, design: Design = None) -> ArmStats:  # noqa: ARG002
        return self.prior.STATS.zeros(self.n_arms)

    def digest(self, stats: ArmStats, *, design: Design = None) -> PooledDigest:  # noqa: ARG002
        return PooledDigest(stats, stats.table.ravel())

    def task_prior(self, *, design: Design = None) -> ProductArms:  # noqa: ARG002
        return self.prior.updated(self.prior.STATS.from_flat(self.total.value()))

    def posterior(self, digest: PooledDigest) -> ProductArms:  # noqa: ARG002
        return self.task_prior()

    def log_evidence(self) -> float:
        stats = self.prior.STATS.from_flat(self.total.value())
        return float(self.prior.arm_log_evidence(stats).sum())

    def sample(self, rng: Rng) -> FloatArray:
        return self.task_prior().sample(rng)

    def prior_given(self, mu: Any, *, design: Design = None) -> ProductArms:  # noqa: ARG002
        return self.task_prior()

    def to_dict(self) -> JsonDict:
        raise ValueError("this rival is for simulations alone")

    @classmethod
    def from_dict(cls, data: JsonDict) -> Self:  # noqa: ARG003
        raise ValueError("this rival is for simulations alone")
