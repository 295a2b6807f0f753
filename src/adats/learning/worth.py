"""How much tasks differ, how much rewards scatter within one, and what the prior is worth."""

from typing import Any, NamedTuple

import numpy as np

from adats.learning.fitting.fitted import Fitted
from adats.models.core.linalg import psd_factor
from adats.models.core.types import FloatArray


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
