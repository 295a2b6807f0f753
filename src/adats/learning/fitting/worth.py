"""How much tasks differ, how much rewards scatter within one, and what the prior is worth."""

from typing import NamedTuple

import numpy as np

from adats.learning.fitting.fitted import Fitted
from adats.learning.tables import LinearTable, Table
from adats.models.core.linalg import psd_factor
from adats.models.core.types import FloatArray
from adats.models.latent.meta import LatentMeta


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


def reward_means(fitted: Fitted) -> FloatArray:
    """The mean reward of each arm over tasks; of a linear model, its coefficients."""
    return family_figures(fitted)[0] if isinstance(fitted.meta, LatentMeta) else fitted.mu


def family_figures(fitted: Fitted) -> tuple[FloatArray, FloatArray]:
    """Mean and standard deviation over tasks of what a link makes of theta."""
    assert isinstance(fitted.meta, LatentMeta)
    return fitted.meta.family.expected(fitted.mu, np.sqrt(fitted.task_cov.diagonal()))


def worth(table: Table, fitted: Fitted) -> Worth:
    if isinstance(table, LinearTable):
        moment = table.moments[:, :-1, :-1].sum(axis=0) / table.n.sum()
        root = psd_factor(moment)
        _, ways = np.linalg.eigh(root.T @ (fitted.task_cov + fitted.mu_cov) @ root)
        ways = root @ ways[:, ::-1]
        between = (ways * (fitted.task_cov @ ways)).sum(axis=0)
        unknown = (ways * (fitted.mu_cov @ ways)).sum(axis=0)
    elif isinstance(fitted.meta, LatentMeta):
        between = family_figures(fitted)[1] ** 2
        unknown = fitted.meta.family.variance(fitted.mu) ** 2 * fitted.mu_cov.diagonal()
    else:
        between, unknown = fitted.task_cov.diagonal(), fitted.mu_cov.diagonal()
    mean = reward_means(fitted)
    if fitted.noise is not None:
        within = np.full(between.shape, fitted.noise**2)
    elif table.model == "binary":
        within = mean * (1 - mean) - between - unknown  # mean of theta (1 - theta)
    else:
        within = mean
    return Worth(between, unknown, within)
