"""Beliefs over the coefficients theta of features, where eta = xᵀtheta is a link away."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from scipy.special import logsumexp

from adats.models.core.frozen import FieldOf
from adats.models.core.linalg import drawn, square_factor
from adats.models.core.types import Conditioned, FloatArray, IntArray, Rng
from adats.models.core.weights import draw, softmax
from adats.models.latent import full
from adats.models.latent.belief import CautiousBelief, InTask, LatentArms
from adats.models.latent.family import Family
from adats.models.latent.row_stats import RowSites
from adats.models.latent.sites import settled

if TYPE_CHECKING:
    from adats.models.latent.row_meta import LatentLinearMeta, RowDigest


@dataclass(frozen=True, eq=False)
class LatentRows(CautiousBelief):
    """theta ~ N(theta, FFᵀ) under each candidate, with log weights.

    The reward of an arm with features a has the mean A'(aᵀtheta).
    """

    NAME: ClassVar[str] = "latent-linear"
    family: Family
    log_weights: FloatArray  # (candidates,)
    theta: FloatArray  # (candidates, d)
    factor: FloatArray  # (candidates, d, any)
    which: IntArray  # the numbers of these candidates in the model
    pending: FloatArray | None = None  # the Gram matrix of pulls that will come in as expected

    @cached_property
    def weights(self) -> FloatArray:
        return softmax(self.log_weights)

    @property
    def mean(self) -> FloatArray:
        """Of theta."""
        mean: FloatArray = self.weights @ self.theta
        return mean

    @property
    def cov(self) -> FloatArray:
        gaps = self.theta - self.mean
        each = np.matmul(self.factor, np.swapaxes(self.factor, -1, -2))
        return np.tensordot(self.weights, each, 1) + (gaps.T * self.weights) @ gaps

    @property
    def scale(self) -> FloatArray:
        """Standard deviation of each entry of theta."""
        scale: FloatArray = np.sqrt(np.diagonal(self.cov))
        return scale

    def _etas(self, rows: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Means and variances of eta for arms with these features, under each candidate."""
        spread = np.matmul(rows, self.factor if self.pending is None else self._tight(rows))
        return self.theta @ rows.T, np.add.reduce(spread * spread, axis=-1)

    def _tight(self, rows: FloatArray) -> FloatArray:
        """What is left of the factors after the pending pulls. How much a pull tells depends on
        the rate of its arm, which the Gram matrix does not say: it is taken to be what a pull of
        the arms at hand tells on average."""
        assert self.pending is not None
        weight = float(self.family.variance(rows @ self.mean).mean())
        half, _ = full.halves(square_factor(self.factor), weight * self.pending)
        return np.swapaxes(half, -1, -2)

    def at_rows(self, rows: FloatArray) -> LatentArms:
        """Each arm by itself, with the mean and variance of its eta over all candidates."""
        etas, variances = self._etas(rows)
        mean = self.weights @ etas
        variance = self.weights @ (variances + (etas - mean) ** 2)
        return LatentArms(self.family, mean, np.sqrt(variance))

    def rewards_at(self, rows: FloatArray, theta: FloatArray) -> FloatArray:
        rewards: FloatArray = self.family.mean(super().rewards_at(rows, theta))
        return rewards

    def expected_rewards(self, rows: FloatArray) -> FloatArray:
        etas, variances = self._etas(rows)
        means: FloatArray = self.weights @ self.family.expected(etas, np.sqrt(variances))[0]
        return means

    def tightened(self, pending: FloatArray) -> "LatentRows":
        """When pending pulls, with this Gram matrix, have come in as expected: the mean stays."""
        return LatentRows(
            self.family, self.log_weights, self.theta, self.factor, self.which, pending
        )

    def sample(self, rng: Rng) -> FloatArray:
        theta: FloatArray = self.draws(1, rng)[0]
        return theta

    def draws(self, count: int, rng: Rng) -> FloatArray:
        index = draw(np.tile(self.weights[:, None], count), rng)
        z = rng.standard_normal((count, self.factor.shape[-1]))
        return drawn(self.theta, self.factor, index, z)

    def condition(self, stats: RowSites) -> "Conditioned[LatentRows]":
        """By expectation propagation under this belief."""
        factor = square_factor(self.factor)
        frozen = None if stats.frozen is None else stats.frozen[self.which]
        prior = full.FullPrior(self.theta, factor, stats.rows, frozen)
        start = np.zeros((3, len(self.theta), len(stats.rows)))
        sites = settled(self.family, stats.table[0], stats.table[1], prior, start)
        known = full.site_sums(sites, stats.rows, frozen)
        gain, theta, new = full.given_sites(self.theta, factor, known)
        logs = self.log_weights + gain
        evidence = float(logsumexp(logs) - logsumexp(self.log_weights)) - stats.log_base
        return Conditioned(evidence, LatentRows(self.family, logs, theta, new, self.which))


class LatentRowsPosterior(InTask, LatentRows):
    """The same belief in a task."""

    meta: "LatentLinearMeta"
    digest: "RowDigest"
    pending = None

    def sample(self, rng: Rng) -> FloatArray:
        return self.meta.posterior_sample(self.digest, rng)

    theta = FieldOf[FloatArray]("joint")
    which = FieldOf[IntArray]("joint")
