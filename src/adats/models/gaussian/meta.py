"""Gaussian arms whose prior mean is unknown (paper, Sections 3.1 and 3.3)."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike

from adats.models.core import checks
from adats.models.core.errors import InvalidValue
from adats.models.core.frozen import FieldOf, evolve, fill, put, unchecked
from adats.models.core.linalg import part_of
from adats.models.core.many import summed
from adats.models.core.meta import MetaBase
from adats.models.core.names import arm_names, grown_names, no_design
from adats.models.core.registry import register
from adats.models.core.stats import ArmStats
from adats.models.core.sums import Sum, swapped
from adats.models.core.types import Arm, Design, FloatArray, JsonDict, N, Rng
from adats.models.gaussian.belief import LOG_2PI, GaussianArms, posterior_of_arm

NEGATIVE = "a negative number of pulls: more was taken out than put in"


class GaussianDigest(NamedTuple):
    stats: ArmStats
    # M, h and c of every arm: log p(rewards | mu) = Σ c + h·v - ½ M·v² with v = mu - mu_q
    message: FloatArray
    keep: FloatArray  # σ² / (σ² + T σ_0²), the share of mu in theta's posterior


def arm_digest(
    count: N,
    total: N,
    squares: N,
    mu_q: N,
    ratio: N,  # σ_0² / σ²
    precision: N,  # 1 / σ²
    log_noise: N,  # log 2πσ²
) -> tuple[N, N, N, N, N]:
    """M and h of an arm, and g, u and v, of which keep is 1/g and c is -½ (u + log g + v).

    Of floats or arrays, and as compiled.
    """
    centred = total - count * mu_q
    grown = 1.0 + count * ratio
    weight = precision / grown
    m = count * weight  # T / (T σ_0² + σ²) (eq. 2)
    h = centred * weight  # (B - T mu_q) / (T σ_0² + σ²) (eq. 2)
    around = squares - mu_q * (total + centred)  # Σ (y - mu_q)²
    return m, h, grown, count * log_noise, around * precision - ratio * centred * h


def arm_message(sums: list[float], of_arm: list[float]) -> tuple[float, float, float, float]:
    """M, h, c and keep of one arm."""
    if sums[0] < 0:
        raise ValueError(NEGATIVE)
    m, h, grown, base, fit = arm_digest(*sums, *of_arm)
    return m, h, -0.5 * (base + math.log(grown) + fit), 1.0 / grown


def meta_posterior(mu_q: N, width: N, m: N, h: N) -> tuple[N, N]:
    """Mean and variance of mu, whose meta-prior is N(mu_q, width), from the sums of M and h.

    Of floats or arrays, and as compiled.
    """
    variance = width / (1.0 + width * m)  # (eq. 2)
    return mu_q + variance * h, variance  # (eq. 2)


class GaussianScales(NamedTuple):
    """What is fixed in a model of Gaussian arms, and what follows from it."""

    meta_mean: FloatArray  # mu_q
    meta_scale: FloatArray  # σ_q
    task_scale: FloatArray  # σ_0
    noise: FloatArray  # σ
    ratio: FloatArray  # σ_0² / σ²
    task_variance: FloatArray
    meta_variance: FloatArray
    constants: FloatArray  # what `arm_digest` needs of every arm, a row each
    of_arm: list[list[float]]  # the same, a list an arm

    @classmethod
    def of(
        cls, mean: FloatArray, scale: FloatArray, task_scale: FloatArray, noise: FloatArray
    ) -> Self:
        ratio = (task_scale / noise) ** 2
        constants = np.array([mean, ratio, noise**-2.0, LOG_2PI + 2 * np.log(noise)])
        for value in (mean, scale, task_scale, noise):
            value.flags.writeable = False
        return cls(
            mean,
            scale,
            task_scale,
            noise,
            ratio,
            task_scale**2,
            scale**2,
            constants,
            constants.T.tolist(),
        )


class GaussianDigests(NamedTuple):
    """Of many tasks, a row each."""

    rows: FloatArray
    scales: GaussianScales

    @property
    def sums(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Pulls, summed rewards and squares of every arm."""
        count, total, squares = np.split(self.rows, 3, axis=1)
        return count, total, squares

    @property
    def messages(self) -> FloatArray:
        m, h, grown, base, fit = arm_digest(*self.sums, *self.scales.constants)
        return np.concatenate([m, h, -0.5 * (base + np.log(grown) + fit)], axis=1)

    @property
    def message_sum(self) -> FloatArray:
        return summed(self.messages)

    @property
    def keep(self) -> FloatArray:
        return 1.0 / (1.0 + self.sums[0] * self.scales.ratio)


@register
@dataclass(frozen=True, eq=False, init=False, repr=False)
class GaussianMeta(MetaBase[ArmStats, GaussianDigest]):
    """mu_i ~ N(mean_i, scale_i²), theta_i ~ N(mu_i, task_scale_i²), rewards N(theta_i, noise_i²).

    Scalars stand for all arms. `mean` and `scale` of the object are those of the meta-posterior.

    >>> meta = GaussianMeta(mean=[0.0, 0.0], scale=1.0, task_scale=0.0, noise=1.0)
    >>> meta.absorb(meta.digest(ArmStats.zeros(2).add(0, 3.0)).message).mean
    array([1.5, 0. ])
    """

    NAME: ClassVar[str] = "gaussian"
    scales: GaussianScales
    meta_mean = FieldOf[FloatArray]("scales")  # mu_q
    meta_scale = FieldOf[FloatArray]("scales")  # σ_q
    task_scale = FieldOf[FloatArray]("scales")  # σ_0
    noise = FieldOf[FloatArray]("scales")  # σ
    arms: tuple[Arm, ...] | None
    total: Sum = field(repr=False)  # of the messages of all tasks
    APART_MANY: ClassVar[bool] = True
    _known_mu: ClassVar[tuple[FloatArray, FloatArray] | None] = None  # of an object, once asked for

    def __init__(
        self,
        mean: ArrayLike,
        scale: ArrayLike,
        *,
        task_scale: ArrayLike,
        noise: ArrayLike,
        arms: Sequence[Arm] | None = None,
    ) -> None:
        names = arm_names(arms)
        values = checks.broadcast(
            ("mean", "scale", "task_scale", "noise", "arms"),
            [
                checks.array("mean", mean),
                checks.non_negative("scale", scale),
                checks.non_negative("task_scale", task_scale),
                checks.positive("noise", noise),
                np.zeros(()) if names is None else np.zeros(len(names)),
            ],
        )
        if values[0].ndim != 1 or values[0].size == 0:
            raise InvalidValue(
                "mean",
                f"must be a vector, one entry an arm, or arms must be named; "
                f"got shape {values[0].shape}",
            )
        if names is not None and len(names) != values[0].size:
            raise ValueError(f"{len(names)} names for {values[0].size} arms")
        scales = GaussianScales.of(*values[:4])
        fill(self, scales=scales, arms=names, total=Sum.zeros(3 * values[0].size))

    @property
    def n_arms(self) -> int:
        return self.scales.meta_mean.size

    @property
    def _mu(self) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of the meta-posterior, with the sums in covariance form."""
        known = self._known_mu
        if known is None:
            scales, (m, h, _) = self.scales, self.total.value().reshape(3, -1)
            m = np.where(m * scales.meta_variance > -1.0, m, 0.0)  # less is round-off
            known = meta_posterior(scales.meta_mean, scales.meta_variance, m, h)
            put(self, "_known_mu", known)
        return known

    def _mu_of_others(self, m: FloatArray, h: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The same where a message has gone out that had lost weight: M below 0 is round-off."""
        scales = self.scales
        return meta_posterior(scales.meta_mean, scales.meta_variance, np.maximum(m, 0.0), h)

    @property
    def mean(self) -> FloatArray:
        return self._mu[0]

    @property
    def scale(self) -> FloatArray:
        return np.sqrt(self._mu[1])

    def empty(self, *, design: Design = None) -> ArmStats:
        no_design(design)
        return ArmStats.zeros(self.n_arms)

    def digest(self, stats: ArmStats, *, design: Design = None) -> GaussianDigest:
        """An arm's message is three numbers, the same however the statistics were reached."""
        no_design(design)
        table = stats.table
        if table.shape[1] != self.n_arms:
            raise ValueError(f"statistics of {table.shape[1]} arms for {self.n_arms}")
        columns = np.zeros((4, self.n_arms))
        columns[3] = 1.0  # an arm of which nothing is known says nothing
        for i, sums in enumerate(table.T.tolist()):
            if any(sums):
                columns[:, i] = arm_message(sums, self.scales.of_arm[i])
        return GaussianDigest(stats, columns[:3].ravel(), columns[3])

    def arrays(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """What a compiled `absorb` needs: constants of the arms, mu_q and σ_q²."""
        return self.scales.constants, self.scales.constants[0], self.scales.meta_variance

    def with_sum(self, total: Sum, mean: FloatArray, variance: FloatArray) -> Self:
        """The meta-belief at another sum of messages, whose posterior is known already."""
        new = object.__new__(type(self))
        put(new, "scales", self.scales)
        put(new, "arms", self.arms)
        put(new, "total", total)
        put(new, "_known_mu", (mean, variance))
        return new

    def replace_task(
        self,
        old: GaussianDigest,
        stats: ArmStats,
        changed: Iterable[int],
        *,
        weight: float | None = None,
    ) -> tuple[GaussianDigest, Self]:
        if weight is not None:
            return self.replace_aged(old, stats, changed, 1.0, weight)
        digests, meta = self.replace_tasks(((old, stats, changed),))
        return digests[0], meta

    def replace_aged(
        self,
        old: GaussianDigest,
        stats: ArmStats,
        changed: Iterable[int],
        kept: float,
        weight: float,
    ) -> tuple[GaussianDigest, Self]:
        """All arms together, for all have lost weight."""
        del changed
        m, h, grown, base, fit = arm_digest(*stats.table, *self.scales.constants)
        message = np.concatenate([m, h, -0.5 * (base + np.log(grown) + fit)])
        total = self.total.scaled(kept).swap(weight * old.message, message)
        return GaussianDigest(stats, message, 1.0 / grown), evolve(self, total=total)

    def replace_tasks(
        self, changes: Sequence[tuple[GaussianDigest, ArmStats, Iterable[int]]]
    ) -> tuple[list[GaussianDigest], Self]:
        """Only the arms that changed are worked out, with plain floats, which is fastest."""
        if not changes:
            return [], self
        scales = self.scales
        arms = scales.meta_mean.size
        high, low = self.total.high.copy(), self.total.low.copy()
        mean, variance = self._mu
        mean, variance = mean.copy(), variance.copy()
        digests = []
        for old, stats, changed in changes:
            message, keep = old.message.copy(), old.keep.copy()
            for i in changed:
                of_arm = scales.of_arm[i]
                *parts, keep[i] = arm_message(stats.table[:, i].tolist(), of_arm)
                sums, k = [], i
                for new in parts:
                    value, rest = swapped(high.item(k), low.item(k), message.item(k), new)
                    high[k], low[k], message[k] = value, rest, new
                    sums.append(value + rest)
                    k += arms
                width = scales.meta_variance.item(i)
                mean[i], variance[i] = meta_posterior(of_arm[0], width, sums[0], sums[1])
            digests.append(GaussianDigest(stats, message, keep))
        return digests, self.with_sum(Sum(high, low), mean, variance)

    def log_evidence(self) -> float:
        """Log density of all absorbed rewards, mu integrated out."""
        m, h, c = self.total.value().reshape(3, -1)
        width = self.scales.meta_variance
        terms = c - 0.5 * np.log1p(width * m) + 0.5 * self._mu[1] * h**2
        return float(terms.sum())

    def task_prior(self, *, design: Design = None) -> GaussianArms:
        """P_s = N(mean of mu, Σ̂_s + Σ_0): the uncertainty of mu is marginalised out."""
        no_design(design)
        (mean, variance), scales = self._mu, self.scales
        return GaussianArms.of(mean, np.sqrt(variance + scales.task_variance), scales.noise)

    def share(self, *, rows: FloatArray | None = None, design: Design = None) -> FloatArray:
        del rows
        no_design(design)
        return part_of(self._mu[1], self.scales.task_variance)

    def posterior(self, digest: GaussianDigest) -> GaussianArms:
        """Of theta in a task whose own message is in the total: exact, nothing is subtracted."""
        scales, keep = self.scales, digest.keep
        mu, variance = self._known_mu or self._mu
        mean = keep * (mu + scales.ratio * digest.stats.table[1])
        spread = keep * (scales.task_variance + keep * variance)
        return GaussianArms.of(mean, np.sqrt(spread), scales.noise)

    def posterior_aged(
        self, old: GaussianDigest, stats: ArmStats, kept: float, weight: float
    ) -> GaussianArms:
        """From what the others say, and then the task's own pulls: no sum is made."""
        scales = self.scales
        others = kept * self.total.high - weight * old.message + kept * self.total.low
        m, h, _ = others.reshape(3, -1)
        mu, variance = self._mu_of_others(m, h)
        variance += scales.task_variance
        count, total, _ = stats.table
        mean, keep = posterior_of_arm(mu, variance * scales.constants[2], count, total)
        return GaussianArms.of(mean, np.sqrt(keep * variance), scales.noise)

    def digest_many(self, rows: FloatArray, *, kept: bool = True) -> GaussianDigests:  # noqa: ARG002
        if (rows[:, : self.n_arms] < 0).any():
            raise ValueError(NEGATIVE)
        return GaussianDigests(rows, self.scales)

    def posterior_many(self, digests: GaussianDigests) -> GaussianArms:
        table = np.moveaxis(digests.rows.reshape(-1, 3, self.n_arms), 1, 0)
        return self.posterior(GaussianDigest(ArmStats(table), digests.rows, digests.keep))

    def posterior_apart_many(self, digests: GaussianDigests, changes: FloatArray) -> GaussianArms:
        m, h, _ = np.split(self.total.value() + changes, 3, axis=1)
        return self.with_sum(self.total, *self._mu_of_others(m, h)).posterior_many(digests)

    def sample(self, rng: Rng) -> FloatArray:
        mean, variance = self._mu
        return mean + np.sqrt(variance) * rng.standard_normal(mean.size)

    def prior_given(self, mu: ArrayLike, *, design: Design = None) -> GaussianArms:
        """P(·; mu): the task prior if mu were known."""
        no_design(design)
        mu = checks.array("mu", mu)
        if mu.shape != self.meta_mean.shape:
            raise ValueError(f"mu must have shape {self.meta_mean.shape}, got {mu.shape}")
        return GaussianArms.of(mu, self.task_scale, self.noise)

    def widen(self, factor: float) -> Self:
        """The meta-prior with its width times `factor`: 3 and 1/3 make AdaTS+ and AdaTS-."""
        wider = self.meta_scale * checks.positive("factor", checks.number("factor", factor))
        scales = GaussianScales.of(self.meta_mean, wider, self.task_scale, self.noise)
        return unchecked(type(self), scales=scales, arms=self.arms, total=self.total)

    def with_arm(self, name: Arm | None, like: int) -> Self:
        """One more arm at the end, with the prior (not the data) of arm `like`."""
        arms = grown_names(self.arms, name, like, self.n_arms)
        columns = [np.pad(v.reshape(3, -1), ((0, 0), (0, 1))).ravel() for v in self.total]
        scales = GaussianScales.of(*(np.append(v, v[like]) for v in self.scales[:4]))
        return unchecked(type(self), scales=scales, arms=arms, total=Sum(*columns))

    def figures(self) -> dict[str, FloatArray]:
        return dict(zip(("mean", "scale", "task_scale", "noise"), self.scales[:4], strict=True))

    def to_dict(self) -> JsonDict:
        figures = {name: value.tolist() for name, value in self.figures().items()}
        return {"model": self.NAME, **figures, "arms": self.arms, "total": self.total_to_list()}

    @classmethod
    def from_dict(cls, data: JsonDict) -> Self:
        keys = ("mean", "scale", "task_scale", "noise", "arms")
        return cls(**{key: data[key] for key in keys}).with_total_of(data)
