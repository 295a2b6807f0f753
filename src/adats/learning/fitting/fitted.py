"""What a fit returns, the same for every model."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from adats.learning.tables import ArmTable, Table
from adats.models import GaussianMeta, LinearMeta, MixtureMeta
from adats.models.core.types import BoolArray, FloatArray
from adats.models.latent.meta import LatentMeta

ENOUGH_TASKS = 5  # for every dimension of a covariance


@dataclass(frozen=True, eq=False)
class Fitted:
    """A prior learned from a log, and what there is to say about it."""

    meta: GaussianMeta | LinearMeta | MixtureMeta | LatentMeta  # fresh: it goes on learning
    mu: FloatArray  # mean of the meta-posterior: of rewards, or of theta where that is on a link
    mu_cov: FloatArray  # and its covariance
    task_cov: FloatArray  # Σ_0
    noise: float | None  # σ; None for binary rewards and counts, which have no σ of their own
    log_evidence: float  # log density of all rewards, mu integrated out
    curve: FloatArray  # log likelihood by EM iteration, before shrinkage; empty for grids
    shrinkage: float | None  # weight of the simpler Σ_0; None where no folds chose it
    unidentified: tuple[str, ...]  # what the log cannot tell
    warnings: tuple[str, ...]
    about: dict[str, Any] = field(default_factory=dict)  # for the prior file


def stats_of(table: Table, i: int, meta: Any) -> Any:
    """The statistics of the i-th task, of the kind that the model takes."""
    return meta.empty() + table.stats(i)


def spreads_of(arms: Sequence[Any], lost: BoolArray) -> tuple[str, ...]:
    return tuple(f"the spread of arm {arm!r}" for arm, gone in zip(arms, lost, strict=True) if gone)


def few_tasks(table: ArmTable) -> tuple[str, ...]:
    """Warnings about arms that few tasks pulled."""
    tasks = (table.table[:, 0] > 0).sum(axis=0).tolist()
    return tuple(
        f"arm {arm!r} was pulled in {count} tasks: below {ENOUGH_TASKS} its spread is rough"
        for arm, count in zip(table.arms, tasks, strict=True)
        if count < ENOUGH_TASKS
    )
