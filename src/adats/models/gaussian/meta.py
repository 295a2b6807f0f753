"""Gaussian arms whose prior mean is unknown (paper, Sections 3.1 and 3.3)."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

import numpy as np

from adats.models import GaussianArms
from adats.models.core import checks
from adats.models.core.frozen import evolve
from adats.models.core.linalg import Sum, part_of, two_sum
from adats.models.core.names import arm_names, grown_names, no_design
from adats.models.core.stats import ArmStats
from adats.models.core.types import Arm, FloatArray, Rng
from adats.models.gaussian.belief import LOG_2PI


class GaussianDigest(NamedTuple):
    stats: ArmStats
    # M, h and c of every arm: log p(rewards | mu) = Σ c + h·v - ½ M·v² with v = mu - mu_q
    message: FloatArray
    keep: FloatArray  # σ² / (σ² + T σ_0²), the share of mu in theta's posterior


def arm_digest(
    count: float,
    total: float,
    squares: float,
    mu_q: float,
    ratio: float,  # σ_0² / σ²
    precision: float,  # 1 / σ²
    log_noise: float,  # log 2πσ²
) -> tuple[float, float, float, float]:
    """M, h, c and keep of one arm."""
    if count < 0:
        raise ValueError("a negative number of pulls: more was taken out than put in")
    centred = total - count * mu_q
    grown = 1.0 + count * ratio
    weight = precision / grown
    m = count * weight  # T / (T σ_0² + σ²) (eq. 2)
    h = centred * weight  # (B - T mu_q) / (T σ_0² + σ²) (eq. 2)
    around = squares - mu_q * (total + centred)  # Σ (y - mu_q)²
    fit = around * precision - ratio * centred * h
    return m, h, -0.5 * (count * log_noise + math.log(grown) + fit), 1.0 / grown


def meta_posterior(mu_q: Any, width: Any, m: Any, h: Any) -> tuple[Any, Any]:
    """Mean and variance of mu, whose meta-prior is N(mu_q, width), from the sums of M and h.

    Of floats or arrays, and as compiled.
    """
    variance = width / (1.0 + width * m)  # (eq. 2)
    return mu_q + variance * h, variance  # (eq. 2)


@dataclass(frozen=True, eq=False, init=False)
class GaussianMeta:
    """mu_i ~ N(mean_i, scale_i²), theta_i ~ N(mu_i, task_scale_i²), rewards N(theta_i, noise_i²).

    Scalars stand for all arms. `mean` and `scale` of the object are those of the meta-posterior.

    >>> meta = GaussianMeta(mean=[0.0, 0.0], scale=1.0, task_scale=0.0, noise=1.0)
    >>> meta.absorb(meta.digest(ArmStats.zeros(2).add(0, 3.0)).message).mean
    array([1.5, 0. ])
    """

    meta_mean: FloatArray  # mu_q
    meta_scale: FloatArray  # σ_q
    task_scale: FloatArray  # σ_0
    noise: FloatArray  # σ
    arms: tuple[Arm, ...] | None
    total: Sum = field(repr=False)  # of the messages of all tasks
    # computed once from the above
    _ratio: FloatArray = field(repr=False)  # σ_0² / σ²
    _task_variance: FloatArray = field(repr=False)
    _meta_variance: FloatArray = field(repr=False)
    _mu_q: FloatArray = field(repr=False)  # not read-only, as compiled code takes it
    # mu_q, σ_0²/σ², 1/σ² and log 2πσ², a row each: what `arm_digest` needs of every arm
    constants: FloatArray = field(repr=False)
    _of_arm: list[list[float]] = field(repr=False)  # the same, a list an arm

    def __init__(
        self,
        mean: Any,
        scale: Any,
        *,
        task_scale: Any,
        noise: Any,
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
            raise ValueError(
                f"mean must be a vector, one entry an arm, or arms must be named; "
                f"got shape {values[0].shape}"
            )
        if names is not None and len(names) != values[0].size:
            raise ValueError(f"{len(names)} names for {values[0].size} arms")
        for value in values:
            value.flags.writeable = False
        self.__dict__.update(
            meta_mean=values[0],
            meta_scale=values[1],
            task_scale=values[2],
            noise=values[3],
            arms=names,
            total=Sum.zeros(3 * values[0].size),
        )
        self._prepare()

    def _prepare(self) -> None:
        ratio = (self.task_scale / self.noise) ** 2
        logs = LOG_2PI + 2 * np.log(self.noise)
        constants = np.array([self.meta_mean, ratio, self.noise**-2.0, logs])
        self.__dict__.update(
            _ratio=ratio,
            _task_variance=self.task_scale**2,
            _meta_variance=self.meta_scale**2,
            _mu_q=self.meta_mean.copy(),
            constants=constants,
            _of_arm=constants.T.tolist(),
        )

    @property
    def n_arms(self) -> int:
        return self.meta_mean.size

    def _mu(self) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of the meta-posterior, with the sums in covariance form."""
        known: tuple[FloatArray, FloatArray] | None = self.__dict__.get("_known_mu")
        if known is None:
            total = self.total.value().reshape(3, -1)
            known = meta_posterior(self.meta_mean, self._meta_variance, total[0], total[1])
            self.__dict__["_known_mu"] = known
        return known

    @property
    def mean(self) -> FloatArray:
        return self._mu()[0]

    @property
    def scale(self) -> FloatArray:
        return np.sqrt(self._mu()[1])

    def empty(self, *, design: FloatArray | None = None) -> ArmStats:
        no_design(design)
        return ArmStats.zeros(self.n_arms)

    def digest(self, stats: ArmStats, *, design: FloatArray | None = None) -> GaussianDigest:
        """An arm's message is three numbers, the same however the statistics were reached."""
        no_design(design)
        table = stats.table
        if table.shape[1] != self.n_arms:
            raise ValueError(f"statistics of {table.shape[1]} arms for {self.n_arms}")
        columns = np.zeros((4, self.n_arms))
        columns[3] = 1.0  # an arm of which nothing is known says nothing
        for i, told in enumerate(table.T.tolist()):
            if any(told):
                columns[:, i] = arm_digest(*told, *self._of_arm[i])
        return GaussianDigest(stats, columns[:3].ravel(), columns[3])

    def absorb(self, message: FloatArray) -> Self:
        return evolve(self, drop=("_known_mu",), total=self.total.add(message))

    def arrays(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """What a compiled `absorb` needs: constants of the arms, mu_q and σ_q²."""
        return self.constants, self._mu_q, self._meta_variance

    def with_sum(self, total: Sum, mean: FloatArray, variance: FloatArray) -> Self:
        """The meta-belief at another sum of messages, whose posterior is known already."""
        return evolve(self, total=total, _known_mu=(mean, variance))

    def retell(
        self, old: GaussianDigest, stats: ArmStats, changed: Iterable[int]
    ) -> tuple[GaussianDigest, Self]:
        """Only the arms that changed are worked out, with plain floats, which is fastest."""
        arms = self.meta_mean.size
        message, keep = old.message.copy(), old.keep.copy()
        high, low = self.total.high.copy(), self.total.low.copy()
        mean, variance = self._mu()
        mean, variance = mean.copy(), variance.copy()
        for i in changed:
            of_arm = self._of_arm[i]
            *told, keep[i] = arm_digest(*stats.table[:, i].tolist(), *of_arm)
            sums = []
            for k, new in zip((i, arms + i, 2 * arms + i), told, strict=True):
                value, lost = two_sum(high.item(k), new)
                value, more = two_sum(value, -message.item(k))
                high[k], low[k] = value, (rest := low.item(k) + (lost + more))
                message[k] = new
                sums.append(value + rest)
            width = self._meta_variance.item(i)
            mean[i], variance[i] = meta_posterior(of_arm[0], width, sums[0], sums[1])
        return (
            GaussianDigest(stats, message, keep),
            self.with_sum(Sum(high, low), mean, variance),
        )

    def log_evidence(self) -> float:
        """Log density of all absorbed rewards, mu integrated out."""
        m, h, c = self.total.value().reshape(3, -1)
        variance = self._mu()[1]
        terms = c - 0.5 * np.log1p(self._meta_variance * m) + 0.5 * variance * h**2
        return float(terms.sum())

    def task_prior(self, *, design: FloatArray | None = None) -> GaussianArms:
        """P_s = N(mean of mu, Σ̂_s + Σ_0): the uncertainty of mu is marginalised out."""
        no_design(design)
        mean, variance = self._mu()
        return GaussianArms.of(mean, np.sqrt(variance + self._task_variance), self.noise)

    def share(
        self,
        *,
        rows: FloatArray | None = None,  # noqa: ARG002
        design: FloatArray | None = None,
    ) -> FloatArray:
        no_design(design)
        return part_of(self._mu()[1], self._task_variance)

    def posterior(self, digest: GaussianDigest) -> GaussianArms:
        """Of theta in a task whose own message is in the total: exact, nothing is subtracted."""
        mu, variance = self._mu()
        keep = digest.keep
        mean = keep * (mu + self._ratio * digest.stats.table[1])
        spread = keep * (self._task_variance + keep * variance)
        return GaussianArms.of(mean, np.sqrt(spread), self.noise)

    def sample(self, rng: Rng) -> FloatArray:
        mean, variance = self._mu()
        return mean + np.sqrt(variance) * rng.standard_normal(mean.size)

    def prior_given(self, mu: Any, *, design: FloatArray | None = None) -> GaussianArms:
        """P(·; mu): the task prior if mu were known."""
        no_design(design)
        mu = checks.array("mu", mu)
        if mu.shape != self.meta_mean.shape:
            raise ValueError(f"mu must have shape {self.meta_mean.shape}, got {mu.shape}")
        return GaussianArms.of(mu, self.task_scale, self.noise)

    def widen(self, factor: float) -> Self:
        """The meta-prior with its width times `factor`: 3 and 1/3 make AdaTS+ and AdaTS-."""
        wider = self.meta_scale * checks.positive("factor", checks.number("factor", factor))
        return evolve(self, drop=("_known_mu",), meta_scale=wider, _meta_variance=wider**2)

    def with_arm(self, name: Arm | None, like: int) -> Self:
        """One more arm at the end, with the prior (not the data) of arm `like`."""
        arms = grown_names(self.arms, name, like, self.n_arms)
        columns = [np.pad(v.reshape(3, -1), ((0, 0), (0, 1))).ravel() for v in self.total]
        new = evolve(
            self,
            drop=("_known_mu",),
            meta_mean=np.append(self.meta_mean, self.meta_mean[like]),
            meta_scale=np.append(self.meta_scale, self.meta_scale[like]),
            task_scale=np.append(self.task_scale, self.task_scale[like]),
            noise=np.append(self.noise, self.noise[like]),
            arms=arms,
            total=Sum(*columns),
        )
        new._prepare()
        return new
