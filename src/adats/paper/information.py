"""What histories of a Gaussian model have told: Lemma 4's informations, and the entropies.

A Gaussian posterior's covariance depends on which arms were pulled and not on the rewards, so each
history has values of its own in closed form. Their means over histories are the mutual informations
and conditional entropies of the paper. In nats.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from adats.models.core import checks
from adats.models.core.linalg import psd_factor, solved
from adats.models.core.types import FloatArray


@dataclass(frozen=True, eq=False)
class RealisedInformation:
    """Of a history of m tasks, or of each of a stack of histories; the last axis is the tasks."""

    meta: FloatArray  # I(mu; H_1:s), of one history
    task: FloatArray  # I(theta_s; H_s | mu, H_1:s-1)
    meta_entropy: FloatArray  # h(mu | H_1:s)
    task_entropy: FloatArray  # h(theta_s | mu, H_1:s)
    prior_entropy: float  # h(mu)
    task_prior_entropy: float  # h(theta_s | mu)


def realised_information(
    *,
    meta_cov: ArrayLike,
    task_cov: ArrayLike,
    noise: float,
    grams: ArrayLike | None = None,
    pulls: ArrayLike | None = None,
) -> RealisedInformation:
    """From the Gram matrices Σ aaᵀ of every task, (..., tasks, d, d), or from pulls of arms.

    `pulls` has shape (..., tasks, arms): Gaussian arms are the rows of the identity. Numbers stand
    for multiples of it. An agent's tasks have them in `LinearStats.gram` and `ArmStats.count`.

    >>> told = realised_information(meta_cov=1.0, task_cov=1.0, noise=1.0, pulls=[[2, 0], [0, 2]])
    >>> told.meta.round(3), told.task.round(3)      # ½ log(1 + 2/3), and twice; ½ log 3
    (array([0.255, 0.511]), array([0.549, 0.549]))
    """
    if (grams is None) == (pulls is None):
        raise ValueError("give the Gram matrices of tasks, or the pulls of their arms: one of both")
    if grams is None:
        counts = checks.non_negative("pulls", pulls)
        if counts.ndim < 2:
            raise ValueError(f"pulls must have shape (..., tasks, arms), got {counts.shape}")
        designs = counts[..., None] * np.eye(counts.shape[-1])
    else:
        designs = checks.array("grams", grams)
        if designs.ndim < 3 or designs.shape[-1] != designs.shape[-2]:
            raise ValueError(f"grams must have shape (..., tasks, d, d), got {designs.shape}")
    dim = designs.shape[-1]
    precision = designs / checks.positive_number("noise", noise) ** 2
    meta, task = (
        checks.covariance("meta_cov", meta_cov, dim),
        checks.covariance("task_cov", task_cov, dim),
    )
    inner = np.eye(dim) + precision @ task  # has no eigenvalue below 1
    about_mu = np.cumsum(solved(inner, precision), axis=-3)  # the precision of mu's likelihood
    of_mu, of_theta = _gained(meta, about_mu), _gained(task, precision)
    prior, task_prior = _entropy(meta), _entropy(task)
    return RealisedInformation(
        meta=of_mu,
        task=of_theta,
        meta_entropy=prior - of_mu,
        task_entropy=task_prior - of_theta,
        prior_entropy=prior,
        task_prior_entropy=task_prior,
    )


def _gained(cov: FloatArray, precision: FloatArray) -> FloatArray:
    """½ log det(I + LᵀML), with LLᵀ = cov: what a likelihood of precision M says."""
    factor = psd_factor(cov)
    inner = np.eye(len(cov)) + factor.T @ precision @ factor
    return np.asarray(np.linalg.slogdet(inner)[1] / 2)


def _entropy(cov: FloatArray) -> float:
    """Of N(·, cov), -inf where it is singular."""
    sign, log_det = np.linalg.slogdet(cov)
    if sign <= 0:
        return -math.inf
    return float(len(cov) * math.log(2 * math.pi * math.e) + log_det) / 2
