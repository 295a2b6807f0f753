"""The only place that factorises what models believe. Singular matrices are legal."""

import functools
from typing import NamedTuple, Self, cast

import numpy as np
from scipy.linalg import blas, lapack

from adats.models.core.types import FloatArray, IntArray

NARROWEST, FARTHEST = 1e-6, 1e6  # variance and mean of a prior that is given as a precision


def psd_factor(cov: FloatArray) -> FloatArray:
    """A matrix L with L Lᵀ = cov, for a positive semi-definite cov, singular or not."""
    lower, info = lapack.dpotrf(cov, 1, 1)
    if info == 0:
        return np.ascontiguousarray(lower)
    values, vectors = np.linalg.eigh(cov)
    return np.ascontiguousarray(vectors * np.sqrt(np.maximum(values, 0.0)))


def psd_factors(cov: FloatArray) -> FloatArray:
    """As `psd_factor`, of each of a stack."""
    flat = cov.reshape(-1, *cov.shape[-2:])
    return np.stack([psd_factor(one) for one in flat]).reshape(cov.shape)


def psd_inverse(cov: FloatArray) -> tuple[FloatArray, float]:
    """The inverse and its largest eigenvalue; infinity, with zeros, if cov is singular.

    A cov of no dimensions stands for a multiple of the identity, and so does the inverse then.
    """
    if cov.ndim == 0:
        value = float(cov)
        return (np.array(1.0 / value), 1.0 / value) if value > 0 else (np.zeros(()), np.inf)
    values, vectors = np.linalg.eigh(cov)
    if values[0] <= len(values) * np.finfo(np.float64).eps * values[-1]:
        return np.zeros_like(cov), np.inf
    scaled = vectors / np.sqrt(values)
    return scaled @ scaled.T, float(1.0 / values[0])


def square_factor(factor: FloatArray) -> FloatArray:
    """A matrix R, no wider than high, with R Rᵀ = F Fᵀ, of one F or of each of a stack.

    By QR: nothing is squared on the way.
    """
    if factor.shape[-1] <= factor.shape[-2]:
        return factor
    wide = np.linalg.qr(np.swapaxes(factor, -1, -2)).R
    return np.ascontiguousarray(np.swapaxes(wide, -1, -2))


Factor = FloatArray | float  # a float stands for a multiple of the identity


def as_matrix(factor: Factor, size: int) -> FloatArray:
    if not isinstance(factor, float):
        return factor
    return _eye(size) if factor == 1.0 else factor * _eye(size)


def whiten(factor: Factor, precision: FloatArray) -> tuple[FloatArray, FloatArray]:
    """X = C⁻¹Fᵀ and C, where C Cᵀ = I + Fᵀ M F for the precision M.

    XᵀX is the posterior covariance of x = F u, u ~ N(0, I), under a likelihood of precision M.
    """
    if isinstance(factor, float):
        inner = precision * factor**2
        inner += _eye(len(inner))
        half, lower = whiten_inner(inner)
        half *= factor
        return half, lower
    inner = factor.T.dot(precision).dot(factor)  # dot: for small matrices twice as fast as @
    inner += _eye(len(inner))
    lower, info = lapack.dpotrf(inner, 1, 1)
    if info != 0:
        half, lower = _whiten_rounded(inner)
        return half.dot(factor.T), lower
    half, _ = lapack.dtrtrs(lower, factor.T, 1)
    return half, lower


def whiten_inner(inner: FloatArray) -> tuple[FloatArray, FloatArray]:
    """C⁻¹ and C, where C Cᵀ = inner, which is I plus a positive semi-definite matrix."""
    lower, info = lapack.dpotrf(inner, 1, 1)
    if info != 0:
        return _whiten_rounded(inner)
    half, _ = lapack.dtrtri(lower, 1)
    return half, lower


def _whiten_rounded(inner: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The same where round-off in the statistics outgrew the prior: `inner` is at least I."""
    values, vectors = np.linalg.eigh(inner)
    roots = np.sqrt(np.maximum(values, 1.0))
    return (vectors / roots).T, np.diag(roots)


@functools.lru_cache(maxsize=16)
def _eye(size: int) -> FloatArray:
    eye = np.eye(size)
    eye.flags.writeable = False  # it is shared
    return eye


@functools.lru_cache(maxsize=64)
def ones(size: int) -> FloatArray:
    """For sums along the last axis: a product with it is quicker than a sum, if there are few."""
    one = np.ones(size)
    one.flags.writeable = False  # it is shared
    return one


def log_det(lower: FloatArray) -> float:
    """Of a triangular factor, so half the log determinant of the matrix."""
    return float(np.add.reduce(np.log(lower.diagonal())))


# Round-off in statistics moves a posterior mean by about eps·(largest eigenvalue of C Cᵀ)/√(its
# smallest) posterior standard deviations: measured, up to 28 times that. What is allowed is 1e-3.
ALLOWED = 3e-5 / float(np.finfo(np.float64).eps)
FROBENIUS_ALLOWED = ALLOWED**0.5  # eigenvalues are at least 1: with this norm of C all is well
LOG_DET_AT_RISK = -0.5 * float(np.log(ALLOWED))  # and above this -log det C
TOO_SURE = (
    "double precision is not enough here: beside what is believed before, some directions of the "
    "features are known {:.0e} times as precisely as others; take a larger noise (so many times "
    "as large: {:.0f}), a smaller spread, or fewer features that depend on each other"
)


def check_digits(lower: FloatArray) -> None:
    """Raise if round-off moves a posterior by more than 1e-3 of its scale; C is from `whiten`."""
    if lower.size and blas.dasum(lower.ravel("K")) > FROBENIUS_ALLOWED:  # the norm is no larger
        check_all_digits(lower[None])


def check_all_digits(lower: FloatArray) -> None:
    """The same of each of a stack."""
    if (lower * lower).sum(axis=(-1, -2)).max(initial=0.0) <= ALLOWED:
        return
    roots = np.linalg.svd(lower, compute_uv=False)
    most, least = roots[:, 0], np.maximum(roots[:, -1], 1.0)
    excess = float((most * most / least).max()) / ALLOWED
    if not excess <= 1.0:
        raise ValueError(TOO_SURE.format(float((most / least).max() ** 2), np.ceil(excess**0.5)))


class Gaussian(NamedTuple):
    """A conditioned Gaussian: N(prior_mean + Xᵀstep, XᵀX), with X from `whiten`."""

    prior_mean: FloatArray
    half: FloatArray  # X
    step: FloatArray
    lower: FloatArray
    shift: FloatArray
    residual: FloatArray

    @property
    def mean(self) -> FloatArray:
        move: FloatArray = self.step.dot(self.half)
        return self.prior_mean + move

    @property
    def factor(self) -> FloatArray:
        return self.half.T

    def sample(self, z: FloatArray) -> FloatArray:
        """The point that the standard normal draw z stands for."""
        move: FloatArray = (self.step + z).dot(self.half)
        return self.prior_mean + move

    def log_integral(self) -> float:
        """Log of ∫ N(x; prior_mean, F Fᵀ) exp(shiftᵀx - ½ xᵀ precision x) dx."""
        exponent = self.prior_mean.dot(self.shift + self.residual) + self.step.dot(self.step)
        return 0.5 * float(exponent) - log_det(self.lower)


def condition(
    mean: FloatArray, factor: Factor, precision: FloatArray, shift: FloatArray
) -> Gaussian:
    """N(mean, F Fᵀ) times exp(shiftᵀx - ½ xᵀ precision x), normalised."""
    half, lower = whiten(factor, precision)
    residual = shift - precision.dot(mean)
    return Gaussian(mean, half, half.dot(residual), lower, shift, residual)


def times(matrices: FloatArray, vectors: FloatArray) -> FloatArray:
    """A matrix times a vector, of each of a stack."""
    product: FloatArray = np.matmul(matrices, vectors[..., None])[..., 0]
    return product


def drawn(means: FloatArray, factors: FloatArray, which: IntArray, z: FloatArray) -> FloatArray:
    """m + F z for each row of z, with the mean and the factor of which it is."""
    found: FloatArray = means[which]
    for j in np.unique(which).tolist():  # a copy of a factor for each row would take much memory
        some = which == j
        found[some] += z[some] @ factors[j].T
    return found


def solved(matrices: FloatArray, sides: FloatArray) -> FloatArray:
    """The inverse of a matrix times another, of each of a stack."""
    return cast(FloatArray, np.linalg.solve(matrices, sides))


def solved_lower(lower: FloatArray, side: FloatArray) -> FloatArray:
    """The inverse of a triangular factor times a vector."""
    return cast(FloatArray, lapack.dtrtrs(lower, side, 1)[0])


def lower_inverses(lower: FloatArray) -> FloatArray:
    """Of triangular factors."""
    return np.array([lapack.dtrtri(one, 1)[0] for one in lower])


def pseudo_inverses(cov: FloatArray) -> FloatArray:
    """Of positive semi-definite matrices; directions without variance give zero."""
    return cast(FloatArray, np.linalg.pinv(cov, hermitian=True))


def definite_factors(cov: FloatArray) -> FloatArray:
    """As `psd_factors`, of matrices none of which is singular."""
    return cast(FloatArray, np.linalg.cholesky(cov))


def lower_factors(inner: FloatArray) -> FloatArray:
    """C with C Cᵀ = inner, of each of a stack: eigenvalues are at least 1 but for round-off."""
    try:
        return definite_factors(inner)
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(inner)
        roots = np.sqrt(np.maximum(values, 1.0))
        upper = np.linalg.qr(roots[..., :, None] * np.swapaxes(vectors, -1, -2)).R
        signs = np.sign(np.einsum("...ii->...i", upper))
        return cast(FloatArray, np.swapaxes(signs[..., :, None] * upper, -1, -2))


class Gaussians(NamedTuple):
    """A stack of conditioned Gaussians N(prior_mean + Xᵀstep, XᵀX), with X = lower⁻¹Fᵀ."""

    frame: FloatArray | None  # F and the prior mean, as `frames` made it; None: F = I and mean 0
    lower: FloatArray
    step: FloatArray
    log_integral: FloatArray  # of the prior times exp(-½ xᵀT x), of each

    def sample(self, which: int, z: FloatArray) -> FloatArray:
        """The point of one of them that the standard normal draw z stands for."""
        white: FloatArray = lapack.dtrtrs(self.lower[which], self.step[which] + z, 1, 1)[0]
        if self.frame is None:
            return white
        frame = self.frame[which]
        point: FloatArray = frame[:-1, -1] + frame[:-1, :-1].dot(white)
        return point

    def halves(self) -> FloatArray:
        """X of each."""
        if self.frame is None:
            return lower_inverses(self.lower)
        turned = np.swapaxes(self.frame[:, :-1, :-1], -1, -2)
        pairs = zip(self.lower, turned, strict=True)
        return np.array([lapack.dtrtrs(lower, turn, 1)[0] for lower, turn in pairs])

    def means(self, halves: FloatArray) -> FloatArray:
        """Of each, with their X."""
        moves: FloatArray = np.matmul(self.step[:, None], halves)[:, 0]
        return moves if self.frame is None else self.frame[:, :-1, -1] + moves


def frames(mean: FloatArray, factor: FloatArray) -> FloatArray:
    """Of N(mean, FFᵀ), each of a stack: x = (F u + mean, 1) is this matrix times (u, 1)."""
    size = mean.shape[-1]
    frame = np.zeros((len(mean), size + 1, size + 1))
    frame[:, :-1, :-1], frame[:, :-1, -1], frame[:, -1, -1] = factor, mean, 1.0
    return frame


def condition_all(frame: FloatArray, turned: FloatArray, terms: FloatArray) -> Gaussians:
    """A stack of Gaussians, each times exp(-½ xᵀT x) with x = (point, 1), and normalised.

    `turned` is the frame transposed. One factorisation gives all: that of I + Fᵀ M F with one more
    row, which comes out as C⁻¹Fᵀ residual.
    """
    inner = np.matmul(turned, np.matmul(terms, frame))
    last = inner[:, -1]
    corner = last[:, -1].copy()
    np.negative(last, out=last)
    inner += _eye(inner.shape[-1])
    white = last[:, :-1]
    one = ones(white.shape[-1])
    last[:, -1] = 1.0 + (white * white).dot(one)
    try:
        lower = definite_factors(inner)
    except np.linalg.LinAlgError:  # where round-off outgrew the prior
        lower = np.zeros(inner.shape)
        known = lower[:, :-1, :-1] = lower_factors(inner[:, :-1, :-1])
        lower[:, -1, :-1] = solved(known, white[..., None])[..., 0]
        lower[:, -1, -1] = 1.0
    step, known = lower[:, -1, :-1], lower[:, :-1, :-1]
    diagonal = lower.reshape(len(lower), -1)[:, : -1 : inner.shape[-1] + 1]
    logs = np.log(diagonal).dot(one)
    exponent = (step * step).dot(one) - corner
    return Gaussians(frame, known, step, 0.5 * exponent - logs)


class GaussianPriors(NamedTuple):
    """N(mean, Σ) of each of a stack, made ready to be conditioned time and again.

    Where no Σ is near singular, a prior is -½ xᵀT x with x = (point, 1), as what is seen is. So
    conditioning is a sum and a factorisation, with no product of matrices.
    """

    frame: FloatArray
    turned: FloatArray  # the frame transposed
    terms: FloatArray | None  # T: blocks Σ⁻¹, -Σ⁻¹mean, and 1 more than meanᵀΣ⁻¹mean
    log_scale: FloatArray  # -½ log det Σ

    @classmethod
    def of(cls, mean: FloatArray, cov: FloatArray) -> Self:
        frame = frames(mean, psd_factors(cov))
        turned = np.ascontiguousarray(np.swapaxes(frame, -1, -2))
        values, vectors = np.linalg.eigh(cov)
        if values.min() < NARROWEST or np.abs(mean).max() > FARTHEST:
            return cls(frame, turned, None, np.zeros(len(mean)))
        scaled = vectors / np.sqrt(values)[..., None, :]
        inverse = np.matmul(scaled, np.swapaxes(scaled, -1, -2))
        shift = times(inverse, mean)
        terms = np.empty(frame.shape)
        terms[:, :-1, :-1] = inverse
        terms[:, -1, :-1] = terms[:, :-1, -1] = -shift
        terms[:, -1, -1] = 1.0 + (shift * mean).sum(axis=-1)
        return cls(frame, turned, terms, -0.5 * np.log(values).sum(axis=-1))

    def as_given(self) -> Gaussians:
        """Each where nothing was seen, to the last bit."""
        count, size = len(self.frame), self.frame.shape[-1] - 1
        lower = np.broadcast_to(_eye(size), (count, size, size))
        return Gaussians(self.frame, lower, np.zeros((count, size)), np.zeros(count))

    def condition(self, seen: FloatArray) -> Gaussians:
        """Each times exp(-½ xᵀT x) with the T that was seen, and normalised."""
        if self.terms is None:
            return condition_all(self.frame, self.turned, seen)
        both = self.terms + seen
        last = both[:, -1, :-1]
        np.negative(last, out=last)  # the factorisation reads the last row, not the last column
        try:
            lower = definite_factors(both)
        except np.linalg.LinAlgError:  # where round-off outgrew the prior
            return condition_all(self.frame, self.turned, seen)
        size = both.shape[-1]
        diagonal = lower.reshape(len(lower), -1)[:, :: size + 1]
        rest = diagonal[:, -1]  # its square is 1 - 2 log of the largest density
        logs = np.log(diagonal[:, :-1]).dot(ones(size - 1))
        found = self.log_scale + 0.5 * (1.0 - rest * rest) - logs
        return Gaussians(None, lower[:, :-1, :-1], lower[:, -1, :-1], found)


def part_of(one: FloatArray, other: FloatArray) -> FloatArray:
    """One variance as a share of both; 0 where both are."""
    both = one + other
    if both.all():
        clean: FloatArray = np.maximum(one, 0.0) / both
        return clean
    return np.where(both > 0, np.maximum(one, 0.0) / np.where(both > 0, both, 1.0), 0.0)
