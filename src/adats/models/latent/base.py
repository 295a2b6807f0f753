"""What models of clicks and counts share: candidates for the spreads, anchors, a belief over mu."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp

from adats.models.core import checks, linalg
from adats.models.core.errors import InvalidValue
from adats.models.core.frozen import evolve, fill, put
from adats.models.core.names import checked_design
from adats.models.core.sums import Sum
from adats.models.core.types import Design, Digest, FloatArray, JsonDict, Rng
from adats.models.core.weights import finite_or_null, from_null, log_of, softmax
from adats.models.latent import sites as ep
from adats.models.latent.anchors import Anchor, Anchored
from adats.models.latent.family import FAMILIES, Family
from adats.models.latent.full import FullSpread
from adats.models.latent.level import LevelSpread

S = TypeVar("S")
D = TypeVar("D", bound=Digest[Any])


@dataclass(frozen=True, eq=False, init=False, repr=False)
class LatentBase(Anchored[S, D]):
    """mu ~ N(mean, cov), theta ~ N(design @ mu, Σ_0), and rewards whose mean follows from theta.

    Every array begins with the candidates. A message is T of each of them, with the number of
    rewards: log p(rewards | mu) = -½ xᵀT x for x = (mu, 1).
    """

    family: Family
    meta_mean: FloatArray  # mu_q, (candidates, p)
    meta_cov: FloatArray  # Σ_q, (candidates, p, p)
    spread: LevelSpread | FullSpread  # Σ_0
    log_weights: FloatArray
    design: Design  # Φ
    anchor: Anchor = field(repr=False)
    total: Sum = field(repr=False)  # of the messages of all tasks
    mu_prior: linalg.GaussianPriors = field(repr=False)  # N(mu_q, Σ_q)
    _known_mu: ClassVar[linalg.Gaussians | None] = None  # of an object, once asked for
    _known_moments: ClassVar[tuple[FloatArray, FloatArray] | None] = None
    _known_weights: ClassVar[FloatArray | None] = None

    def _set(
        self,
        mean: ArrayLike,
        cov: ArrayLike,
        spread_of: Callable[[int], LevelSpread | FullSpread],
        rewards: str,
        weights: ArrayLike | None,
        design: ArrayLike | None,
    ) -> None:
        """Fill the fields, each with all candidates; the spread depends on the size of theta."""
        if rewards not in FAMILIES:
            raise InvalidValue("rewards", f"must be 'binary' or 'count', got {rewards!r}")
        means = np.atleast_2d(checks.array("mean", mean))
        p = means.shape[-1]
        if means.ndim != 2 or p == 0:
            raise InvalidValue("mean", f"must have a number for each arm, got {np.shape(mean)}")
        phi = None if design is None else checked_design(design, p)
        spread = spread_of(p if phi is None else len(phi))
        covs = covariances_of("cov", cov, p)
        count = max(len(means), len(covs), *(len(part) for part in spread))
        given = np.full(count, 1 / count) if weights is None else weights
        checked = checks.weights("weights", given)
        count = checked.size
        try:
            means = np.array(np.broadcast_to(means, (count, p)))
            covs = np.array(np.broadcast_to(covs, (count, p, p)))
            spread = type(spread)(
                *(np.array(np.broadcast_to(part, (count, *part.shape[1:]))) for part in spread)
            )
        except ValueError:
            raise ValueError(f"weights for {count} candidates, but other numbers of them") from None
        fill(
            self,
            family=FAMILIES[rewards],
            meta_mean=means,
            meta_cov=covs,
            spread=spread,
            log_weights=log_of(checked),
            design=phi,
            total=Sum.zeros(count * ((p + 1) ** 2 + 1)),
            mu_prior=linalg.GaussianPriors.of(means, covs),
        )
        fill(self, anchor=self.anchor_at(0, 0.0, means, covs))

    def anchor_at(self, number: int, rewards: float, mean: FloatArray, cov: FloatArray) -> Anchor:
        return Anchor(number, rewards, mean, cov, self._prior_at(mean, cov, self.design))

    def _prior_at(self, mean: FloatArray, cov: FloatArray, phi: FloatArray | None) -> ep.SitePrior:
        if phi is None:
            return self.spread.prior(mean, cov)
        return self.spread.prior(mean @ phi.T, np.matmul(phi, np.matmul(cov, phi.T)))

    # what the model is

    @property
    def model(self) -> str:
        return self.family.name

    @property
    def has_design(self) -> bool:
        return self.design is not None

    def _phi(self, design: Design) -> FloatArray | None:
        return self.design if design is None else checked_design(design, self.meta_mean.shape[-1])

    # beliefs

    @property
    def mu(self) -> linalg.Gaussians:
        """mu given all tasks, under every candidate."""
        known = self._known_mu
        if known is None:
            count, p = self.meta_mean.shape
            total = self.total.value().reshape(count, -1)
            terms = total[:, :-1].reshape(count, p + 1, p + 1)
            prior, rewards = self.mu_prior, total.item(-1)
            known = prior.condition(terms) if rewards else prior.as_given()
            put(self, "_known_mu", known)
        return known

    def mu_moments(self, phi: FloatArray | None = None) -> tuple[FloatArray, FloatArray]:
        """Mean and covariance of Φmu under every candidate."""
        known = self._known_moments
        if known is None:
            halves = self.mu.halves()
            cov = np.matmul(np.swapaxes(halves, -1, -2), halves)
            known = self.mu.means(halves), cov
            put(self, "_known_moments", known)
        if phi is None:
            return known
        return known[0] @ phi.T, np.matmul(phi, np.matmul(known[1], phi.T))

    def mu_factors(self, phi: FloatArray | None) -> tuple[FloatArray, FloatArray]:
        """Mean of Φmu and a factor of its covariance under every candidate."""
        halves = self.mu.halves()
        mean, factor = self.mu.means(halves), np.swapaxes(halves, -1, -2)
        return (mean, factor) if phi is None else (mean @ phi.T, np.matmul(phi, factor))

    @property
    def log_posterior(self) -> FloatArray:
        """Of the candidates, not normalised."""
        return self.log_weights + self.mu.log_integral

    @property
    def weights(self) -> FloatArray:
        """The belief in each candidate given all tasks."""
        known = self._known_weights
        if known is None:
            known = softmax(self.log_posterior)
            put(self, "_known_weights", known)
        return known

    def log_evidence(self) -> float:
        """Log density of all absorbed rewards."""
        return float(logsumexp(self.log_posterior))

    @property
    def mu_mean(self) -> FloatArray:
        """Mean of mu over all candidates."""
        mean: FloatArray = self.weights @ self.mu_moments()[0]
        return mean

    @property
    def mean(self) -> FloatArray:
        return self.mu_mean

    def _draw_candidate(self, rng: Rng) -> int:
        logs = self.log_posterior
        if logs.size == 1:
            return 0
        cumulative = np.cumsum(np.exp(logs - logs.max()))
        return int(cumulative.searchsorted(rng.random() * cumulative[-1], side="right"))

    def _draw_mu(self, which: int, rng: Rng) -> FloatArray:
        return self.mu.sample(which, rng.standard_normal(self.meta_mean.shape[1:]))

    def sample(self, rng: Rng) -> FloatArray:
        """The index of a candidate, followed by a draw of its mu."""
        which = self._draw_candidate(rng)
        return np.append(float(which), self._draw_mu(which, rng))

    def task_mean(self, mu: ArrayLike, design: Design) -> tuple[int, FloatArray]:
        """Of what `sample` gives, the index of a candidate, not needed if there is one, and a mu:
        which one it is, and Φmu."""
        count, p = self.meta_mean.shape
        values = checks.array("mu", mu, ndim=1)
        if count == 1 and values.size == p:
            values = np.append(0.0, values)
        if values.size != p + 1 or values[0] not in range(count):
            raise ValueError(f"mu must be a candidate's index and {p} numbers, got {values}")
        phi = self._phi(design)
        return int(values[0]), values[1:] if phi is None else phi @ values[1:]

    def sums(self) -> FloatArray:
        """All that was absorbed, and the anchor."""
        anchor = self.anchor
        known = [[anchor.number, anchor.rewards], anchor.mean.ravel(), anchor.cov.ravel()]
        return np.concatenate([*self.total, *known])

    def with_sums(self, values: FloatArray) -> Self:
        """The same model after what `sums` gave was absorbed."""
        size, means = 2 * self.total.high.size, self.meta_mean.size
        if values.size != size + 2 + means + self.meta_cov.size:
            raise ValueError(f"{values.size} numbers are not what all tasks taught")
        new = self.with_total(values[:size])
        number, rewards = values[size : size + 2].tolist()
        mean, cov = values[size + 2 : size + 2 + means], values[size + 2 + means :]
        shapes = self.meta_mean.shape, self.meta_cov.shape
        anchor = self.anchor_at(
            int(number), rewards, mean.reshape(shapes[0]), cov.reshape(shapes[1])
        )
        return fill(new, anchor=anchor)

    def widen(self, factor: float) -> Self:
        """The meta-prior with its width times `factor`."""
        factor = checks.positive_number("factor", factor)
        covs = self.meta_cov * factor**2
        new = evolve(self, meta_cov=covs, mu_prior=linalg.GaussianPriors.of(self.meta_mean, covs))
        if self.anchor.number == 0:
            fill(new, anchor=new.anchor_at(0, 0.0, self.meta_mean, covs))
        return new

    # files

    def to_dict(self) -> JsonDict:
        anchor = self.anchor
        return {
            "model": self.NAME,
            "rewards": self.family.name,
            **{name: value.tolist() for name, value in self.figures().items()},
            "log_weights": finite_or_null(self.log_weights),
            "design": None if self.design is None else self.design.tolist(),
            "anchor": None
            if anchor.number == 0
            else [anchor.number, anchor.rewards, anchor.mean.tolist(), anchor.cov.tolist()],
            "total": self.total_to_list(),
        }

    @classmethod
    def from_dict(cls, data: JsonDict) -> Self:
        logs = from_null(data["log_weights"])
        names = ("mean", "cov", "task_scale", "level_scale", "task_cov", "rewards", "design")
        options = {name: data[name] for name in (*names, "arms") if name in data}
        make: Any = cls
        meta: Self = make(**options, weights=np.exp(logs))
        meta = evolve(meta, log_weights=logs).with_total_of(data)
        if data["anchor"] is not None:
            number, rewards, mean, cov = data["anchor"]
            mean, cov = checks.array("anchor", mean), checks.array("anchor", cov)
            if mean.shape != meta.meta_mean.shape or cov.shape != meta.meta_cov.shape:
                raise ValueError(f"an anchor of shape {mean.shape}")
            fill(meta, anchor=meta.anchor_at(int(number), float(rewards), mean, cov))
        return meta


def framed(terms: FloatArray, phi: FloatArray) -> FloatArray:
    """What is said of (Φmu, 1) as what that says of (mu, 1); of one Φ, or of each of a stack."""
    frame = np.zeros((*phi.shape[:-2], phi.shape[-2] + 1, phi.shape[-1] + 1))
    frame[..., :-1, :-1], frame[..., -1, -1] = phi, 1.0
    found: FloatArray = np.matmul(np.swapaxes(frame, -1, -2), np.matmul(terms, frame))
    return found


def doublings(pulls: float) -> int:
    """How often the pulls of a task have doubled; the third counts too, as three say far more than
    two."""
    return math.frexp(pulls)[1] + (pulls >= 3)


def covariances_of(name: str, value: ArrayLike, dim: int) -> FloatArray:
    """One covariance, or a stack of them."""
    given = checks.array(name, value)
    if given.size == 0:
        raise InvalidValue(name, f"is empty, of shape {given.shape}")
    parts = given if given.ndim in (1, 3) else given[None]
    return np.stack([checks.covariance(name, part, dim) for part in parts])
