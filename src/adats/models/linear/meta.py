"""Linear model whose prior mean is unknown (paper, Section 3.2)."""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike

from adats.models.core import checks, linalg
from adats.models.core.errors import InvalidValue
from adats.models.core.frozen import FieldOf, evolve, fill, put
from adats.models.core.many import summed
from adats.models.core.meta import MetaBase
from adats.models.core.names import arm_names, checked_design
from adats.models.core.registry import register
from adats.models.core.sums import Sum
from adats.models.core.types import Arm, Design, FloatArray, JsonDict, Rng
from adats.models.gaussian.belief import LOG_2PI
from adats.models.linear.belief import LinearBelief, LinearPosterior, LinearPosteriors
from adats.models.linear.stats import LinearStats


class LinearDigest(NamedTuple):
    """Given mu, theta is N(QΦmu + own, F Fᵀ), with Q = (I + Σ_0 G/σ²)⁻¹."""

    stats: LinearStats
    message: FloatArray  # M, h and c: log p(rewards | mu) = c + hᵀmu - ½ muᵀM mu
    design: Design  # Φ
    keep: FloatArray  # Q, the share of mu
    own: FloatArray  # QΣ_0 B/σ², the share of the task's own rewards
    factor: FloatArray  # F, with F Fᵀ = QΣ_0


class LinearDigests(NamedTuple):
    """Of many tasks, a row each, without designs of their own.

    theta = mu + F u in a task, with F Fᵀ = Σ_0 and u ~ N(0, I): what rewards say is about u.
    """

    rows: FloatArray
    meta: "LinearMeta"
    gram: FloatArray  # G/σ², (tasks, d, d)
    xy: FloatArray  # B/σ²
    inner: FloatArray  # I + FᵀGF/σ²
    lower: FloatArray  # its Cholesky factors

    @property
    def messages(self) -> FloatArray:
        meta, factor = self.meta, self.meta.task_factor
        wide = np.broadcast_to(factor.T, self.gram.shape)
        half = linalg.solved(self.lower, wide)
        turned = np.swapaxes(half, -1, -2)
        m = self.gram - np.matmul(self.gram, np.matmul(turned, np.matmul(half, self.gram)))
        own = linalg.times(turned, linalg.times(half, self.xy))
        h = self.xy - linalg.times(self.gram, own)
        yy = self.rows[:, -2] * meta.parts.precision
        c = 0.5 * ((self.xy * own).sum(axis=-1) - yy - self.rows[:, -1] * meta.parts.log_noise)
        c -= np.log(np.einsum("...ii->...i", self.lower)).sum(axis=-1)
        if meta.design is not None:
            m, h = np.matmul(meta.design.T, np.matmul(m, meta.design)), h @ meta.design
        return np.concatenate([m.reshape(len(m), -1), h, c[:, None]], axis=1)

    @property
    def message_sum(self) -> FloatArray:
        return summed(self.messages)


class _Undesigned(NamedTuple):
    """M, h and c of a task without its design (c but for the noise), and the rest of its digest.

    M = G/σ² Q = Σ_0⁻¹ (I - Q): what is multiplied should be small, so that the result loses few
    digits; and h = B/σ² - G/σ² own = Σ_0⁻¹ own.
    """

    m: FloatArray
    h: FloatArray
    c: float
    keep: FloatArray
    own: FloatArray
    factor: FloatArray


HALF_BIT = -0.5 * math.log(2.0)  # rewards that say more than one bit about theta say much


@functools.lru_cache(maxsize=16)
def _scales(dim: int, spread: float, precision: float) -> tuple[FloatArray, FloatArray]:
    """What makes Σ_0^½ G Σ_0^½/σ², Σ_0^½ B/σ² and Σy²/σ² of the moments; and I for the first."""
    root = np.append(np.full(dim, spread), 1.0)
    return np.outer(root, root) * precision, np.diag(np.append(np.ones(dim), 0.0))


class LinearParts(NamedTuple):
    """What is fixed in a linear model, and what follows from it."""

    meta_mean: FloatArray  # mu_q
    meta_cov: FloatArray  # Σ_q
    task_cov: FloatArray  # Σ_0; a number where it is a multiple of the identity
    noise: float  # σ
    design: Design  # Φ
    dim: int  # of theta, where a task has no design of its own
    meta_factor: linalg.Factor
    task_factor: linalg.Factor
    task_precision: FloatArray  # Σ_0⁻¹, where it is a matrix and has one
    task_weight: float  # its largest eigenvalue, or infinity
    precision: float  # 1 / σ²
    log_noise: float  # log 2πσ²

    @classmethod
    def of(
        cls,
        mean: FloatArray,
        cov: FloatArray,
        task_cov: FloatArray,
        noise: float,
        design: Design,
    ) -> Self:
        dim = mean.size if design is None else len(design)
        size = float(cov[0, 0])
        simple = np.array_equal(cov, size * np.eye(len(cov)))
        return cls(
            mean,
            cov,
            task_cov,
            noise,
            design,
            dim,
            math.sqrt(size) if simple else linalg.psd_factor(cov),
            _factor_of(task_cov, dim),
            *linalg.psd_inverse(task_cov),
            noise**-2.0,
            LOG_2PI + 2 * float(np.log(noise)),
        )


def _factor_of(task_cov: FloatArray, dim: int) -> linalg.Factor:
    """Of Σ_0 in a task where theta has so many entries."""
    if task_cov.ndim == 0:
        return math.sqrt(task_cov)
    if len(task_cov) != dim:
        raise ValueError(
            f"theta has {dim} entries in this task, but task_cov has shape "
            f"{task_cov.shape}; a number fits every size"
        )
    return linalg.psd_factor(task_cov)


@register
@dataclass(frozen=True, eq=False, init=False, repr=False)
class LinearMeta(MetaBase[LinearStats, LinearDigest]):
    """mu ~ N(mean, cov), theta ~ N(design @ mu, task_cov), the reward of a is N(aᵀtheta, noise²).

    Covariances may be singular, and numbers stand for multiples of the identity. The design is
    the identity by default, as in the paper; another one may be given here, or task by task.
    With names of `arms`, theta is their mean rewards, and agents need no features.
    `mean` and `cov` of the object are those of the meta-posterior.
    """

    NAME: ClassVar[str] = "linear"
    parts: LinearParts
    meta_mean = FieldOf[FloatArray]("parts")  # mu_q
    meta_cov = FieldOf[FloatArray]("parts")  # Σ_q
    task_cov = FieldOf[FloatArray]("parts")  # Σ_0
    noise = FieldOf[float]("parts")  # σ
    design = FieldOf[Design]("parts")  # Φ
    arms: tuple[Arm, ...] | None  # where theta has an entry for each arm: their names
    total: Sum = field(repr=False)  # of the messages of all tasks
    _known_mu: ClassVar[linalg.Gaussian | None] = None  # of an object, once asked for

    def __init__(
        self,
        mean: ArrayLike,
        cov: ArrayLike,
        *,
        task_cov: ArrayLike,
        noise: ArrayLike,
        design: ArrayLike | None = None,
        arms: Sequence[Arm] | None = None,
    ) -> None:
        mean = checks.array("mean", mean, ndim=1)
        p = mean.size
        if p == 0:
            raise InvalidValue("mean", "must have at least one entry")
        phi = None if design is None else checked_design(design, p)
        noise = float(checks.positive("noise", checks.number("noise", noise)))
        spread = checks.array("task_cov", task_cov)
        if spread.ndim:
            spread = checks.covariance("task_cov", spread, p if phi is None else len(phi))
        elif spread < 0:
            raise InvalidValue("task_cov", f"must not be negative, got {spread}")
        fill(
            self,
            parts=LinearParts.of(mean, checks.covariance("cov", cov, p), spread, noise, phi),
            arms=arm_names(arms, p if phi is None else len(phi)),
            total=Sum.zeros(p * p + p + 1),
        )

    @property
    def n_arms(self) -> int:
        return 0

    @property
    def has_design(self) -> bool:
        return self.design is not None

    @property
    def n_features(self) -> int:
        return self.parts.dim

    def _structure(self, design: Design) -> tuple[FloatArray | None, linalg.Factor, int]:
        """The design, the factor of Σ_0 and the dimension of theta in one task."""
        parts = self.parts
        if design is None:
            return parts.design, parts.task_factor, parts.dim
        phi = checked_design(design, parts.meta_mean.size)
        return phi, _factor_of(parts.task_cov, len(phi)), len(phi)

    @property
    def _mu(self) -> linalg.Gaussian:
        known = self._known_mu
        if known is None:
            mean = self.parts.meta_mean
            p, total = mean.size, self.total.value()
            m, h = total[: p * p].reshape(p, p), total[p * p : -1]
            known = linalg.condition(mean, self.parts.meta_factor, m, h)
            linalg.check_digits(known.lower)
            put(self, "_known_mu", known)
        return known

    @property
    def mean(self) -> FloatArray:
        return self._mu.mean

    @property
    def cov(self) -> FloatArray:
        factor = self._mu.factor
        return factor @ factor.T

    def empty(self, *, design: Design = None) -> LinearStats:
        return LinearStats.zeros(self._structure(design)[2])

    def check_change(self, old: LinearDigest, stats: LinearStats) -> None:
        self.replace_task(old, stats, ())[1].task_prior()

    def digest(self, stats: LinearStats, *, design: Design = None) -> LinearDigest:
        phi, spread, dim = self._structure(design)
        if len(stats.moments) != dim + 1:
            raise ValueError(f"theta has {dim} entries, but features {len(stats.moments) - 1}")
        if stats.n < 0:
            raise ValueError(f"statistics of {stats.n} pulls: more was taken out than put in")
        if isinstance(spread, float) and spread > 0:
            plain = self._isotropic(stats.moments, spread, dim)
        else:
            plain = self._general(stats.moments, linalg.as_matrix(spread, dim))
        c = plain.c - 0.5 * stats.n * self.parts.log_noise
        if phi is None:
            message = np.empty(dim * dim + dim + 1)
            message[: dim * dim], message[dim * dim : -1] = plain.m.ravel(), plain.h
            message[-1] = c
        else:
            message = np.concatenate([(phi.T @ plain.m @ phi).ravel(), plain.h @ phi, [c]])
        return LinearDigest(stats, message, phi, plain.keep, plain.own, plain.factor)

    def _isotropic(self, moments: FloatArray, spread: float, dim: int) -> _Undesigned:
        """Σ_0 = spread² I, so Q is symmetric and Q = C⁻ᵀC⁻¹ with C Cᵀ = I + Σ_0 G/σ²."""
        scales, eye = _scales(dim, spread, self.parts.precision)
        scaled = moments * scales
        scaled += eye
        half, lower = linalg.whiten_inner(scaled[:-1, :-1])
        step, turned = half.dot(scaled[:-1, -1]), half.T
        keep = turned.dot(half)
        c = -linalg.log_det(lower)
        if c < linalg.LOG_DET_AT_RISK:
            linalg.check_digits(lower)
        own = step.dot(half)
        if c < HALF_BIT:
            m = linalg.as_matrix(1.0, dim) - keep  # Σ_0⁻¹ (I - Q)
            m *= spread**-2.0
        else:
            m = (moments[:-1, :-1] * self.parts.precision).dot(keep)  # G/σ² Q
        h = own / spread
        own *= spread
        half *= spread
        c -= 0.5 * (scaled.item(-1) - float(step.dot(step)))
        return _Undesigned(m, h, c, keep, own, turned)

    def _general(self, moments: FloatArray, spread: FloatArray) -> _Undesigned:
        precision = self.parts.precision
        gram, xy = moments[:-1, :-1] * precision, moments[:-1, -1] * precision
        half, lower = linalg.whiten(spread, gram)
        linalg.check_digits(lower)
        seen = half.T.dot(half.dot(gram))  # I - Q
        own = half.T.dot(half.dot(xy))
        keep = linalg.as_matrix(1.0, len(gram)) - seen
        much = gram.trace() > self.parts.task_weight
        m = self.parts.task_precision.dot(seen) if much else gram.dot(keep)
        h = self.parts.task_precision.dot(own) if much else xy - gram.dot(own)
        fit = float(moments[-1, -1]) * precision - float(xy.dot(own))
        return _Undesigned(m, h, -0.5 * fit - linalg.log_det(lower), keep, own, half.T)

    def _digest_anew(self, old: LinearDigest, stats: LinearStats) -> LinearDigest:
        own = old.design
        return self.digest(stats, design=None if own is self.parts.design else own)

    def log_evidence(self) -> float:
        """Log density of all absorbed rewards, mu integrated out."""
        return float(self.total.value()[-1]) + self._mu.log_integral()

    def task_prior(self, *, design: Design = None) -> LinearBelief:
        """P_s = N(Φ mean of mu, ΦΣ̂_sΦᵀ + Σ_0): the uncertainty of mu is marginalised out."""
        phi, spread, dim = self._structure(design)
        mu = self._mu
        mean, factor = (mu.mean, mu.factor) if phi is None else (phi @ mu.mean, phi @ mu.factor)
        if isinstance(spread, float) and spread > 0:  # never singular
            cov = factor.dot(factor.T)
            cov.ravel()[:: dim + 1] += spread * spread
            return LinearBelief.of(mean, linalg.psd_factor(cov), self.noise)
        both = linalg.square_factor(np.hstack([linalg.as_matrix(spread, dim), factor]))
        return LinearBelief.of(mean, both, self.noise)

    def share(self, *, rows: FloatArray | None = None, design: Design = None) -> FloatArray:
        """Of arms with these features; of the entries of theta without them."""
        phi, spread, dim = self._structure(design)
        factor = self._mu.factor if phi is None else phi.dot(self._mu.factor)
        wide = linalg.as_matrix(1.0, dim) if rows is None else rows
        mu, own = wide.dot(factor), wide.dot(linalg.as_matrix(spread, dim))
        return linalg.part_of(np.einsum("ij,ij->i", mu, mu), np.einsum("ij,ij->i", own, own))

    def posterior(self, digest: LinearDigest) -> LinearPosterior:
        """Of theta in a task whose own message is in the total: exact, nothing is subtracted."""
        _, _, design, keep, own, factor = digest
        return LinearPosterior.of(self._mu, design, keep, own, factor, self.parts.noise)

    @property
    def task_factor(self) -> FloatArray:
        """F, with F Fᵀ = Σ_0."""
        return linalg.as_matrix(self.parts.task_factor, self.parts.dim)

    def digest_many(self, rows: FloatArray, *, kept: bool = True) -> LinearDigests:  # noqa: ARG002
        if (rows[:, -1] < 0).any():
            raise ValueError("statistics of fewer than 0 pulls: more was taken out than put in")
        dim, precision = self.parts.dim, self.parts.precision
        moments = rows[:, :-1].reshape(-1, dim + 1, dim + 1)
        gram, xy = moments[:, :-1, :-1] * precision, moments[:, :-1, -1] * precision
        factor = self.task_factor
        inner = np.matmul(factor.T, np.matmul(gram, factor)) + np.eye(dim)
        lower = linalg.lower_factors(inner)
        linalg.check_all_digits(lower)
        return LinearDigests(rows, self, gram, xy, inner, lower)

    def posterior_many(self, digests: LinearDigests) -> LinearPosteriors:
        gram, xy, inner, lower = digests[2:]
        return LinearPosteriors(
            self._mu, self.design, self.task_factor, gram, xy, inner, lower, self.noise
        )

    def sample(self, rng: Rng) -> FloatArray:
        mu = self._mu
        return mu.sample(rng.standard_normal(len(mu.half)))

    def prior_given(self, mu: ArrayLike, *, design: Design = None) -> LinearBelief:
        """P(·; mu): the task prior if mu were known."""
        phi, spread, dim = self._structure(design)
        mu = checks.array("mu", mu)
        if mu.shape != self.meta_mean.shape:
            raise ValueError(f"mu must have shape {self.meta_mean.shape}, got {mu.shape}")
        mean = mu if phi is None else phi @ mu
        return LinearBelief.of(mean, linalg.as_matrix(spread, dim), self.noise)

    def widen(self, factor: float) -> Self:
        """The meta-prior with its width times `factor`: 3 and 1/3 make AdaTS+ and AdaTS-."""
        factor = float(checks.positive("factor", checks.number("factor", factor)))
        parts = self.parts
        wider = parts.meta_cov * factor**2
        own = (parts.task_cov, parts.noise, parts.design)
        return evolve(self, parts=LinearParts.of(parts.meta_mean, wider, *own))

    def figures(self) -> dict[str, FloatArray]:
        return {
            "mean": self.meta_mean,
            "cov": self.meta_cov,
            "task_cov": self.task_cov,
            "noise": np.array(self.noise),
        }

    def to_dict(self) -> JsonDict:
        return {
            "model": self.NAME,
            **{name: value.tolist() for name, value in self.figures().items()},
            "design": None if self.design is None else self.design.tolist(),
            **({} if self.arms is None else {"arms": list(self.arms)}),
            "total": self.total_to_list(),
        }

    @classmethod
    def from_dict(cls, data: JsonDict) -> Self:
        keys = ("mean", "cov", "task_cov", "noise", "design")
        known = {key: data[key] for key in keys}
        return cls(**known, arms=data.get("arms")).with_total_of(data)
