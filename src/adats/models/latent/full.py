"""Any covariance of theta, and arms that are rows of features: eta = X theta.

With G̃ = XᵀWX and b̃ = Xᵀb in place of G/σ² and B/σ² every formula of the linear model holds.
Arrays begin with the candidates.
"""

import math
from typing import NamedTuple, Self

import numpy as np

from adats.models.core import linalg
from adats.models.core.draws import Draws
from adats.models.core.linalg import times
from adats.models.core.types import FloatArray, IntArray, Rng
from adats.models.latent.level import in_common
from adats.models.latent.sites import LEAST_VARIANCE

NARROW = 1e-12  # the least part of a marginal variance that its cavity may divide by
FEW = 6  # candidates that are worked out one by one
WIDEST = 100.0  # the largest standard deviation of eta for which sites are right


class SiteSums(NamedTuple):
    """What the sites of a task say about theta: exp(log_s + b̃ᵀtheta - ½ thetaᵀG̃ theta)."""

    gram: FloatArray  # G̃
    shift: FloatArray  # b̃
    log_s: FloatArray


def site_sums(
    sites: FloatArray, rows: FloatArray | None, frozen: FloatArray | None = None
) -> SiteSums:
    """All sites together: of arms, or of rows of features, and of rows that were let go."""
    w, b, log_s = sites
    if rows is None:
        gram = w[..., None] * np.eye(w.shape[-1])
        shift = b
    else:
        gram = np.matmul(rows.T * w[..., None, :], rows)
        shift = b @ rows
    scale = log_s.sum(axis=-1)
    if frozen is None:
        return SiteSums(gram, shift, scale)
    d = gram.shape[-1]
    more = frozen[..., : d * d].reshape(gram.shape)
    return SiteSums(gram + more, shift + frozen[..., d * d : -1], scale + frozen[..., -1])


def frozen_sums(known: SiteSums) -> FloatArray:
    """As one array for each candidate, to be kept in place of the rows."""
    flat = known.gram.reshape(*known.shift.shape[:-1], -1)
    return np.concatenate([flat, known.shift, known.log_s[..., None]], axis=-1)


def whitened(
    factor: FloatArray, gram: FloatArray, sides: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """C⁻¹Fᵀ sides with CCᵀ = I + FᵀG̃F, and the diagonal of C, of each of a stack."""
    if gram.ndim > 3 or len(gram) > FEW:
        half, diagonal = halves(factor, gram)
        return np.matmul(half, sides), diagonal
    found, diagonal = np.empty(sides.shape), np.empty(sides.shape[:-1])
    factor = np.broadcast_to(factor, gram.shape)
    for i, (f, g) in enumerate(zip(factor, gram, strict=True)):  # for few faster than stacked
        half, lower = linalg.whiten(f, g)
        np.dot(half, sides[i], out=found[i])
        diagonal[i] = lower.diagonal()
    return found, diagonal


def halves(factor: FloatArray, gram: FloatArray) -> tuple[FloatArray, FloatArray]:
    """X with XᵀX = (Σ⁻¹ + G̃)⁻¹ and FFᵀ = Σ, and the diagonal of C as in `whitened`."""
    turned = np.swapaxes(factor, -1, -2)
    inner = np.matmul(turned, np.matmul(gram, factor)) + np.eye(gram.shape[-1])
    lower = linalg.lower_factors(inner)
    half = linalg.solved(lower, turned)
    return half, np.einsum("...ii->...i", lower)


def log_dets(diagonal: FloatArray) -> FloatArray:
    """log det(I + FᵀG̃F), from the diagonals of its factors."""
    logs: FloatArray = 2.0 * np.add.reduce(np.log(diagonal), axis=-1)
    return logs


def covariances(factor: FloatArray, gram: FloatArray) -> tuple[FloatArray, FloatArray]:
    """S = (Σ⁻¹ + G̃)⁻¹ with FFᵀ = Σ, and log det(I + FᵀG̃F)."""
    half, diagonal = halves(factor, gram)
    return np.matmul(np.swapaxes(half, -1, -2), half), log_dets(diagonal)


def terms(factor: FloatArray, known: SiteSums) -> FloatArray:
    """What a task says of x = (theta's prior mean, 1): log p(rewards | mean) = -½ xᵀT x.

    The blocks of T are M = P G̃, minus h = P b̃, and -2c.
    """
    dim = known.shift.shape[-1]
    found = np.empty((*known.shift.shape[:-1], dim + 1, dim + 1))
    found[..., :-1, :-1], found[..., :-1, -1] = known.gram, -known.shift
    sides, diagonal = whitened(factor, known.gram, found[..., :-1, :])
    found[..., -1, :-1] = found[..., :-1, -1]
    found[..., -1, -1] = log_dets(diagonal) - 2.0 * known.log_s
    found -= np.matmul(np.swapaxes(sides, -1, -2), sides)
    return found


def given_sites(
    mean: FloatArray, factor: FloatArray, known: SiteSums
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """theta ~ N(mean, FFᵀ) given sites: their log density, and the new mean and factor.

    Of candidates along the first axis, or of tasks.
    """
    half, diagonal = halves(factor, known.gram)
    turned = np.swapaxes(half, -1, -2)
    residual = known.shift - times(known.gram, mean)
    step = times(half, residual)
    exponent = (mean * (known.shift + residual)).sum(axis=-1) + (step * step).sum(axis=-1)
    return known.log_s + 0.5 * (exponent - log_dets(diagonal)), mean + times(turned, step), turned


def given_mu(
    spread: FloatArray, known: SiteSums, mu: FloatArray, factor: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Mean and factor of theta ~ N(mu, spread spreadᵀ) given sites, where mu ~ N(mu, FFᵀ)."""
    half, _ = halves(spread, known.gram)
    turned = np.swapaxes(half, -1, -2)
    mean = mu + times(turned, times(half, known.shift - times(known.gram, mu)))
    moved = factor - np.matmul(turned, np.matmul(half, np.matmul(known.gram, factor)))
    return mean, np.concatenate([turned, moved], axis=-1)


class FullPrior(NamedTuple):
    """theta ~ N(mean, FFᵀ), of which the rows are seen."""

    mean: FloatArray
    factor: FloatArray
    rows: FloatArray | None
    frozen: FloatArray | None = None
    known: SiteSums | None = None  # what the sites say, if they are those of a single cavity

    def by_level(self) -> None:
        """None: arms move together in more ways than by a level."""

    def marginals(self, sites: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of each eta, from all sites."""
        known = site_sums(sites, self.rows, self.frozen)
        cov, _ = covariances(self.factor, known.gram)
        theta = self.mean + times(cov, known.shift - times(known.gram, self.mean))
        if self.rows is None:
            return theta, np.einsum("...ii->...i", cov)
        return theta @ self.rows.T, (np.matmul(self.rows, cov) * self.rows).sum(axis=-1)

    def cavities(self, sites: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of each eta, from all sites but its own."""
        m, v = self.marginals(sites)
        return _without(m, v, sites[0], sites[1])

    def cavity(self, sites: FloatArray, arm: int) -> tuple[FloatArray, FloatArray]:
        """Those of one arm."""
        known = self.known or site_sums(sites, self.rows, self.frozen)
        row = np.eye(self.mean.shape[-1])[arm] if self.rows is None else self.rows[arm]
        sides = np.empty((*known.shift.shape, 2))
        sides[..., 0] = row
        sides[..., 1] = known.shift - times(known.gram, self.mean)
        both, _ = whitened(self.factor, known.gram, sides)
        products = np.add.reduce(both * both[..., :1], axis=-2)
        m = self.mean @ row + products[..., 1]
        v = products[..., 0]
        return _without(m, v, sites[0, ..., arm], sites[1, ..., arm])


def _without(
    m: FloatArray, v: FloatArray, w: FloatArray, b: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """N(m, v) divided by the site: what is believed of eta without its own rewards."""
    if not v.max(initial=0.0) <= WIDEST**2:
        raise ValueError(
            f"the prior lets log-odds, or the logarithm of a count, vary by "
            f"{math.sqrt(v.max()):.3g}, and at most {WIDEST:g} makes sense: scale the features, "
            "or give smaller covariances"
        )
    left = np.maximum(1.0 - w * v, NARROW)
    return (m - v * b) / left, np.maximum(v / left, LEAST_VARIANCE)


class FullSpread(NamedTuple):
    """theta ~ N(mu, Σ_0) in a task, with FFᵀ = Σ_0."""

    factor: FloatArray
    cov: FloatArray

    @classmethod
    def of(cls, cov: FloatArray) -> Self:
        return cls(linalg.psd_factors(cov), cov)

    def prior(self, mean: FloatArray, cov: FloatArray) -> FullPrior:
        """Of theta where mu ~ N(mean, cov)."""
        both = cov + self.covs(mean.shape[-1])
        return FullPrior(mean, linalg.psd_factors(both), None)

    def message(self, sites: FloatArray, found: FloatArray) -> None:
        """Put what a task says of x = (mu, 1) into `found`."""
        found[...] = terms(self.factor, site_sums(sites, None))

    def moments(
        self, sites: FloatArray, mu: FloatArray, cov: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Mean and variance of each entry of theta in a task with these sites, where mu ~ N(mu,
        cov), and the variance that they have in common."""
        mean, cov = self.joint(sites, mu, cov)
        squares: FloatArray = np.einsum("...ii->...i", cov)
        return mean, squares, in_common(cov.sum(axis=(-1, -2)), squares)

    def joint(
        self, sites: FloatArray, mu: FloatArray, cov: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Mean and covariance of theta in a task with these sites, where mu ~ N(mu, cov)."""
        known = site_sums(sites, None)
        own, _ = covariances(self.factor, known.gram)
        mean = mu + times(own, known.shift - times(known.gram, mu))
        moved = np.eye(own.shape[-1]) - np.matmul(own, known.gram)
        return mean, own + np.matmul(moved, np.matmul(cov, np.swapaxes(moved, -1, -2)))

    def given(
        self, sites: FloatArray, mu: FloatArray, factor: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Mean and factor of theta in a task with these sites, where mu ~ N(mu, factor factorᵀ)."""
        return given_mu(self.factor, site_sums(sites, None), mu, factor)

    def sample(self, which: int, sites: FloatArray, mu: FloatArray, rng: Rng) -> FloatArray:
        """A draw of theta under one candidate, where mu is known."""
        gram, shift, _ = site_sums(sites[:, which], None)
        new = linalg.condition(mu, self.factor[which], gram, shift)
        return new.sample(rng.standard_normal(len(new.half)))

    def message_sum(self, sites: FloatArray) -> FloatArray:
        """The sum of what many tasks say; the sites of each task are along the second axis."""
        arms = sites.shape[-1] + 1
        found = np.empty((*sites.shape[1:-1], arms, arms))
        self.message(sites, found)
        total: FloatArray = np.add.reduce(found, axis=0)
        return total

    def sample_many(
        self, which: IntArray, sites: FloatArray, mu: FloatArray, rng: Draws
    ) -> FloatArray:
        """A draw of theta in each of many tasks, with the sites of its own candidate."""
        factor = self.factor[which]
        w, b = sites[0], sites[1]
        turned = np.swapaxes(factor, -1, -2)
        inner = np.matmul(turned * w[:, None, :], factor) + np.eye(factor.shape[-1])
        lower = linalg.lower_factors(inner)
        z = rng.standard_normal((len(mu), factor.shape[-1]))
        side = times(turned, b - w * mu) + times(lower, z)
        return mu + times(factor, linalg.solved(inner, side[..., None])[..., 0])

    def sizes(self, which: int) -> tuple[float, float]:
        """σ_0 and τ that come nearest to the Σ_0 of one candidate."""
        cov = self.covs(0)[which]
        arms = len(cov)
        shared = max(float(cov.sum() - cov.trace()) / max(arms * (arms - 1), 1), 0.0)
        own = max(float(cov.trace()) / arms - shared, 0.0)
        return math.sqrt(own), math.sqrt(shared)

    def covs(self, arms: int) -> FloatArray:  # noqa: ARG002
        """Σ_0 of every candidate."""
        return self.cov

    def own_variances(self, arms: int) -> FloatArray:
        """What each entry of theta has for itself, beside what all have in common."""
        cov = self.covs(arms)
        squares: FloatArray = np.einsum("...ii->...i", cov)
        return squares - in_common(cov.sum(axis=(-1, -2)), squares)
