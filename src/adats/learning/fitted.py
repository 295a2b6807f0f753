"""What a fit returns, the same for every model, and what its prior is worth."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from adats.learning.tables import ArmTable
from adats.models.core.linalg import psd_factor
from adats.models.core.types import BoolArray, FloatArray

ENOUGH_TASKS = 5  # for every dimension of a covariance


class RewardFigures(NamedTuple):
    """Of each arm on the scale of rewards; of a linear model, of each coefficient."""

    mean: FloatArray  # over tasks
    between: FloatArray  # variance of the mean reward between tasks
    unknown: FloatArray  # variance of what is not known about `mean`


@dataclass(frozen=True, eq=False)
class Fitted:
    """A prior learned from a log, and what there is to say about it."""

    meta: Any  # fresh: it goes on learning
    mu: FloatArray  # mean of the meta-posterior: of rewards, or of theta where that is on a link
    mu_cov: FloatArray  # and its covariance
    task_cov: FloatArray  # Σ_0
    noise: float | None  # σ; None for binary rewards and counts, which have no σ of their own
    log_evidence: float  # log density of all rewards, mu integrated out
    curve: FloatArray  # log likelihood by EM iteration, before shrinkage; empty for grids
    shrinkage: float | None  # weight of the simpler Σ_0; None where no folds chose it
    unidentified: tuple[str, ...]  # what the log cannot tell
    warnings: tuple[str, ...]
    rewards: RewardFigures
    # of other tasks with the same arms: the log density of each one's rewards, and the mean of
    # theta (of the rewards of arms) after them
    log_density: Callable[[Any], FloatArray] = field(repr=False)
    means: Callable[[Any], FloatArray] = field(repr=False)
    stats: Callable[[Any, int], Any] | None = field(default=None, repr=False)  # as the model's
    designs: FloatArray | None = field(default=None, repr=False)  # of tasks that have their own
    words: str = ""  # how tasks differ, in a sentence, where there is more to say than spreads
    about: dict[str, Any] = field(default_factory=dict)  # for the prior file


def prior_of_others(table: Any, fitted: Fitted, i: int) -> Any:
    """The prior of a task from all the others: what the task itself said is taken out again."""
    meta = fitted.meta
    design = None if fitted.designs is None else fitted.designs[i]
    stats = meta.empty() + table.stats(i) if fitted.stats is None else fitted.stats(table, i)
    digest = meta.digest(stats, design=design)
    return meta.absorb(-digest.message).task_prior(design=design)


def spreads_of(arms: Sequence[Any], lost: BoolArray) -> tuple[str, ...]:
    return tuple(f"the spread of arm {arm!r}" for arm, gone in zip(arms, lost, strict=True) if gone)


def few_tasks(table: ArmTable) -> tuple[str, ...]:
    """Warnings about arms that few tasks pulled."""
    tasks = (table.table[:, 0] > 0).sum(axis=0).tolist()
    rare = [(arm, n) for arm, n in zip(table.arms, tasks, strict=True) if n < ENOUGH_TASKS]
    if len(rare) > ENOUGH_TASKS:
        return (
            f"{len(rare)} arms, such as {rare[0][0]!r}, were pulled in fewer than {ENOUGH_TASKS} "
            "tasks: their spreads are rough",
        )
    return tuple(
        f"arm {arm!r} was pulled in {n} tasks: below {ENOUGH_TASKS} its spread is rough"
        for arm, n in rare
    )


# how much tasks differ, and how much rewards scatter within one


class Worth(NamedTuple):
    """Variances of a reward, one entry an arm; of a linear model, one a direction.

    Directions are those of the features as the log has them, the most uncertain one first, and
    their variances add up to what tasks differ by in the reward of an average row.
    """

    between: FloatArray  # of the mean reward, between tasks: σ_0²
    unknown: FloatArray  # what is not known about mu
    within: FloatArray  # of a reward around its mean: σ²

    @property
    def pulls(self) -> FloatArray:
        """Pulls that tell a task as much as the prior does: σ² over the prior's variance."""
        prior = self.between + self.unknown
        return np.where(prior > 0, self.within / np.where(prior > 0, prior, 1.0), np.inf)

    @property
    def typical(self) -> float:
        """The same over all arms or directions: their harmonic mean."""
        with np.errstate(divide="ignore"):
            return float(1.0 / (1.0 / self.pulls).mean())


def worth(table: Any, fitted: Fitted) -> Worth:
    """What tasks differ by, and what a prior is worth beside the noise of rewards."""
    mean, between, unknown = fitted.rewards
    if table.arms is not None:
        within = table.kind.within(mean, between + unknown, fitted.noise)
        return Worth(between, unknown, within)
    moment = table.moments[:, :-1, :-1].sum(axis=0) / table.n.sum()
    root = psd_factor(moment)
    _, ways = np.linalg.eigh(root.T @ (fitted.task_cov + fitted.mu_cov) @ root)
    ways = root @ ways[:, ::-1]
    between = (ways * (fitted.task_cov @ ways)).sum(axis=0)
    unknown = (ways * (fitted.mu_cov @ ways)).sum(axis=0)
    return Worth(between, unknown, np.full(between.shape, (fitted.noise or 1.0) ** 2))
