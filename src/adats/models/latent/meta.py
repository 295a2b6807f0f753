"""Clicks and counts in arms whose prior mean is unknown: theta is Gaussian, rewards are not.

The rewards of a task become Gaussian sites (see `sites`), and with these the model is the linear
one. Several candidates for the spreads are kept side by side, weighted by their evidence.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import block_diag
from scipy.special import logsumexp

from adats.models.core import checks, linalg
from adats.models.core.errors import InvalidValue
from adats.models.core.frozen import evolve, fill, put
from adats.models.core.meta import MetaBase
from adats.models.core.names import arm_names, grown_names
from adats.models.core.registry import register
from adats.models.core.sums import Sum
from adats.models.core.types import Arm, FloatArray, Rng
from adats.models.core.weights import finite_or_null, from_null, log_of, softmax
from adats.models.latent import sites as ep
from adats.models.latent.belief import LatentBelief, LatentPosterior
from adats.models.latent.family import FAMILIES, Family
from adats.models.latent.full import Full
from adats.models.latent.level import Level
from adats.models.latent.spreads import gathered, learn_full, learn_level
from adats.models.latent.stats import ArmSites, ClickStats, EventStats

STATS: dict[str, type[ArmSites]] = {"binary": ClickStats, "count": EventStats}
FIRST_ANCHOR = 8.0  # rewards after which the meta-prior is the anchor no longer


class Anchor(NamedTuple):
    """A frozen belief over mu. It says where sites have to fit, and nothing else."""

    number: int
    rewards: float  # how many had been absorbed
    mean: FloatArray  # (candidates, p)
    cov: FloatArray  # (candidates, p, p)
    prior: ep.Prior  # of theta in a task without a design of its own


class LatentDigest(NamedTuple):
    """One task's sites. The message is worked out from them when it is asked for."""

    stats: ArmSites
    design: FloatArray | None  # Φ
    spread: Level | Full

    @property
    def message(self) -> FloatArray:
        sites = self.stats.sites_of(len(self.spread[0]))
        return _message(self.spread, sites, self.design, self.stats.pulls)


def _message(
    spread: Level | Full, sites: FloatArray, design: FloatArray | None, pulls: ArrayLike
) -> FloatArray:
    """T of every candidate and the number of rewards; of one set of sites, or of several."""
    several, arms = sites.shape[1:-1], sites.shape[-1] + 1
    if design is None:
        found = np.empty((*several, arms * arms + 1))
        spread.message(sites, found[..., :-1].reshape(*several, arms, arms))
    else:
        terms = np.empty((*several, arms, arms))
        spread.message(sites, terms)
        frame = block_diag(design, 1.0)
        size = len(frame.T) ** 2
        found = np.empty((*several, size + 1))
        found[..., :-1] = np.matmul(frame.T, np.matmul(terms, frame)).reshape(*several, size)
    found[..., -1] = pulls
    return found.reshape(*several[:-1], -1)


@register
@dataclass(frozen=True, eq=False, init=False)
class LatentMeta(MetaBase[ArmSites, LatentDigest]):
    """mu ~ N(mean, cov), theta ~ N(design @ mu, Σ_0), and A'(theta_i) is the mean reward of arm i.

    Rewards are "binary", with theta in log-odds, or a "count", with theta the logarithm of its
    mean. Σ_0 is task_scale²·I + level_scale²·11ᵀ, where a task's arms share a level, or
    `task_cov`, any covariance. Each of mean, cov, task_scale, level_scale and task_cov may have a
    leading axis of candidates, of which one is right; `weights` is the belief about which.

    >>> meta = LatentMeta(np.zeros(2), 1.0, task_scale=0.3)
    >>> stats = meta.empty().add(0, 1)
    >>> meta.absorb(meta.digest(stats).message).task_prior().mean.round(3)
    array([0.594, 0.5  ])
    """

    NAME: ClassVar[str] = "latent"
    family: Family
    meta_mean: FloatArray  # mu_q, (candidates, p)
    meta_cov: FloatArray  # Σ_q, (candidates, p, p)
    spread: Level | Full  # Σ_0
    log_weights: FloatArray
    design: FloatArray | None  # Φ
    arms: tuple[Arm, ...] | None
    anchor: Anchor = field(repr=False)
    total: Sum = field(repr=False)  # of the messages of all tasks
    frames: tuple[FloatArray, FloatArray] = field(repr=False)  # of N(mu_q, Σ_q), and transposed
    _known_mu: ClassVar[linalg.Gaussians | None] = None  # of an object, once asked for

    def __init__(
        self,
        mean: ArrayLike,
        cov: ArrayLike,
        *,
        task_scale: ArrayLike | None = None,
        level_scale: ArrayLike = 0.0,
        task_cov: ArrayLike | None = None,
        rewards: str = "binary",
        weights: ArrayLike | None = None,
        design: ArrayLike | None = None,
        arms: Sequence[Arm] | None = None,
    ) -> None:
        if rewards not in FAMILIES:
            raise InvalidValue("rewards", f"must be 'binary' or 'count', got {rewards!r}")
        names = arm_names(arms)
        means = np.atleast_2d(checks.array("mean", mean))
        p = means.shape[-1]
        phi = None if design is None else _checked_design(design, p)
        dim = p if phi is None else len(phi)
        if means.ndim != 2 or p == 0:
            raise InvalidValue("mean", f"must have a number for each arm, got {np.shape(mean)}")
        if names is not None and len(names) != dim:
            raise ValueError(f"{len(names)} names for {dim} arms")
        covs = _covariances("cov", cov, p)
        spread = _spread(task_scale, level_scale, task_cov, dim)
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
            arms=names,
            total=Sum.zeros(count * ((p + 1) ** 2 + 1)),
            frames=_frames(means, covs),
        )
        fill(self, anchor=self._anchor(0, 0.0, means, covs))

    def _anchor(self, number: int, rewards: float, mean: FloatArray, cov: FloatArray) -> Anchor:
        return Anchor(number, rewards, mean, cov, self._prior_at(mean, cov, self.design))

    def _prior_at(self, mean: FloatArray, cov: FloatArray, phi: FloatArray | None) -> ep.Prior:
        if phi is None:
            return self.spread.prior(mean, cov)
        return self.spread.prior(mean @ phi.T, np.matmul(phi, np.matmul(cov, phi.T)))

    # what the model is

    @property
    def model(self) -> str:
        return self.family.name

    @property
    def n_arms(self) -> int:
        return self.meta_mean.shape[-1] if self.design is None else len(self.design)

    @property
    def has_design(self) -> bool:
        return self.design is not None

    @property
    def n_candidates(self) -> int:
        return self.log_weights.size * self.n_arms if self.log_weights.size > 1 else 0

    def _phi(self, design: FloatArray | None) -> FloatArray | None:
        return self.design if design is None else _checked_design(design, self.meta_mean.shape[-1])

    # tasks

    def empty(self, *, design: FloatArray | None = None) -> ArmSites:
        phi = self._phi(design)
        arms = self.meta_mean.shape[-1] if phi is None else len(phi)
        return STATS[self.family.name].zeros(arms)

    def digest(self, stats: ArmSites, *, design: FloatArray | None = None) -> LatentDigest:
        """With the sites that the statistics have, or with new ones."""
        phi = self._phi(design)
        arms = self.meta_mean.shape[-1] if phi is None else len(phi)
        if stats.table.shape[1] != arms:
            raise ValueError(f"statistics of {stats.table.shape[1]} arms, but there are {arms}")
        candidates = self.log_weights.size
        if not stats.settled and stats.pulls or (
            stats.sites is not None and stats.sites.shape[1] != candidates
        ):
            if (stats.table[0] < 0).any():
                raise ValueError("statistics of fewer than 0 pulls: more was taken out than put in")
            prior = self._task_anchor(phi, design)
            start = np.zeros((3, candidates, arms))
            found = ep.settled(self.family, stats.table[0], stats.table[1], prior, start)
            stats = stats.with_sites(found, self.anchor.number)
        return LatentDigest(stats, phi, self.spread)

    def _task_anchor(self, phi: FloatArray | None, design: FloatArray | None) -> ep.Prior:
        anchor = self.anchor
        return anchor.prior if design is None else self._prior_at(anchor.mean, anchor.cov, phi)

    def replace_task(
        self, old: LatentDigest, stats: ArmSites, changed: Iterable[int]
    ) -> tuple[LatentDigest, Self]:
        """Only the sites of arms that changed are worked out, except where all should move: when
        the anchor is a new one, and when the pulls of the task have doubled."""
        phi, candidates = old.design, self.log_weights.size
        prior = self._task_anchor(phi, None if phi is self.design else phi)
        before = old.stats.sites_of(candidates)
        pulls, had = stats.pulls, old.stats.pulls
        n, s = stats.table[0], stats.table[1]
        if old.stats.anchor == self.anchor.number and _octave(pulls) == _octave(had):
            after = before.copy()
            for arm in changed:
                ep.tell(self.family, n.item(arm), s.item(arm), prior, after, arm)
        else:
            after = ep.settled(self.family, n, s, prior, before)
        new = LatentDigest(stats.with_sites(after, self.anchor.number), phi, self.spread)
        both = np.stack([before, after], axis=1)
        out, add = _message(self.spread, both, phi, np.array([[had], [pulls]]))
        return new, evolve(self, total=self.total.swap(out, add))._renewed()

    def _renewed(self) -> Self:
        """With a new anchor, once the rewards have doubled."""
        rewards = self.total.high.item(-1)
        if rewards < FIRST_ANCHOR or rewards < 2 * self.anchor.rewards:
            return self
        mu = self._mu
        halves = mu.halves()
        cov = np.matmul(np.swapaxes(halves, -1, -2), halves)
        number = self.anchor.number + 1
        put(self, "anchor", self._anchor(number, rewards, mu.means(halves), cov))
        return self

    # beliefs

    @property
    def _mu(self) -> linalg.Gaussians:
        """mu given all tasks, under every candidate."""
        known = self._known_mu
        if known is None:
            frame, turned = self.frames
            size = frame.shape[-1]
            total = self.total.value().reshape(len(frame), -1)
            terms = total[:, :-1].reshape(len(frame), size, size)
            known = linalg.condition_all(frame, turned, terms)
            put(self, "_known_mu", known)
        return known

    @property
    def log_posterior(self) -> FloatArray:
        """Of the candidates, not normalised."""
        return self.log_weights + self._mu.log_integral

    @property
    def weights(self) -> FloatArray:
        """The belief in each candidate given all tasks."""
        return softmax(self.log_posterior)

    def log_evidence(self) -> float:
        """Log density of all absorbed rewards, up to what depends on the rewards alone."""
        return float(logsumexp(self.log_posterior))

    @property
    def mean(self) -> FloatArray:
        """Mean of mu over all candidates."""
        mu = self._mu
        mean: FloatArray = self.weights @ mu.means(mu.halves())
        return mean

    def _joint(self, sites: FloatArray, phi: FloatArray | None) -> LatentBelief:
        mu = self._mu
        halves = mu.halves()
        mean, factor = mu.means(halves), np.swapaxes(halves, -1, -2)
        if phi is not None:
            mean, factor = mean @ phi.T, np.matmul(phi, factor)
        theta, wide = self.spread.given(sites, mean, factor)
        return LatentBelief(self.family, self.log_posterior, theta, wide)

    def task_prior(self, *, design: FloatArray | None = None) -> LatentBelief:
        """P_s: the uncertainty of mu and of the spreads is marginalised out."""
        phi = self._phi(design)
        return self._joint(self.empty(design=design).sites_of(self.log_weights.size), phi)

    def posterior(self, digest: LatentDigest) -> LatentPosterior:
        """Of theta in a task whose own message is in the total."""
        return LatentPosterior(self, digest)

    def posterior_joint(self, digest: LatentDigest) -> LatentBelief:
        """The same worked out under every candidate."""
        return self._joint(digest.stats.sites_of(self.log_weights.size), digest.design)

    def posterior_sample(self, digest: LatentDigest, rng: Rng) -> FloatArray:
        """A draw of theta: a candidate, then mu, then theta."""
        which = self._draw_candidate(rng)
        mu = self._draw_mu(which, rng)
        if digest.design is not None:
            mu = digest.design.dot(mu)
        sites = digest.stats.sites_of(self.log_weights.size)
        return self.spread.sample(which, sites, mu, rng)

    def _draw_candidate(self, rng: Rng) -> int:
        logs = self.log_posterior
        if logs.size == 1:
            return 0
        cumulative = np.cumsum(np.exp(logs - logs.max()))
        return int(cumulative.searchsorted(rng.random() * cumulative[-1], side="right"))

    def _draw_mu(self, which: int, rng: Rng) -> FloatArray:
        return self._mu.sample(which, rng.standard_normal(self.meta_mean.shape[-1]))

    def share(
        self,
        *,
        rows: FloatArray | None = None,  # noqa: ARG002
        design: FloatArray | None = None,
    ) -> FloatArray:
        """On the scale of theta. Not knowing the candidate is not knowing the task prior."""
        both = self.task_prior(design=design).each_arm.eta_scale ** 2
        arms = both.size
        within = self.weights @ np.einsum("...ii->...i", self.spread.covs(arms))
        return linalg.part_of(both - within, within)

    def sample(self, rng: Rng) -> FloatArray:
        """The index of a candidate, followed by a draw of its mu."""
        which = self._draw_candidate(rng)
        return np.append(float(which), self._draw_mu(which, rng))

    def prior_given(self, mu: ArrayLike, *, design: FloatArray | None = None) -> LatentBelief:
        """P(·; mu) of the candidate mu[0] at mu[1:]; the index is not needed if there is one."""
        count, p = self.meta_mean.shape
        values = checks.array("mu", mu, ndim=1)
        if count == 1 and values.size == p:
            values = np.append(0.0, values)
        if values.size != p + 1 or values[0] not in range(count):
            raise ValueError(f"mu must be a candidate's index and {p} numbers, got {values}")
        phi, which = self._phi(design), int(values[0])
        mean = values[1:] if phi is None else phi @ values[1:]
        cov = self.spread.covs(mean.size)[which]
        factor = linalg.psd_factor(cov)[None]
        return LatentBelief(self.family, np.zeros(1), mean[None], factor)

    def widen(self, factor: float) -> Self:
        """The meta-prior with its width times `factor`."""
        factor = float(checks.positive("factor", checks.number("factor", factor)))
        covs = self.meta_cov * factor**2
        new = evolve(self, meta_cov=covs, frames=_frames(self.meta_mean, covs))
        if self.anchor.number == 0:
            fill(new, anchor=new._anchor(0, 0.0, self.meta_mean, covs))
        return new

    def with_arm(self, name: Arm | None, like: int) -> Self:
        """One more arm at the end, with the prior (not the data) of arm `like`."""
        if self.design is not None or isinstance(self.spread, Full):
            raise ValueError("arms cannot be added where there is a design or a full task_cov")
        names = grown_names(self.arms, name, like, self.n_arms)
        count, p = self.meta_mean.shape
        grow = np.append(np.arange(p), like)
        means, covs = self.meta_mean[:, grow], self.meta_cov[:, grow][:, :, grow]
        covs[:, -1, like] = covs[:, like, -1] = self._common(like)
        high, low = (_padded(part.reshape(count, -1), p) for part in self.total)
        frames = _frames(means, covs)
        changes = {"meta_mean": means, "meta_cov": covs, "frames": frames, "arms": names}
        new = evolve(self, **changes, total=Sum(high, low))
        mu = new._mu
        halves = mu.halves()
        cov = np.matmul(np.swapaxes(halves, -1, -2), halves)
        old = self.anchor
        return fill(new, anchor=new._anchor(old.number + 1, old.rewards, mu.means(halves), cov))

    def refit(
        self, tasks: Sequence[tuple[ArmSites, FloatArray | None]]
    ) -> tuple[Self, list[ArmSites]]:
        """With any Σ_0, learned from all tasks, which are given with their designs.

        Only the meta-prior of the likeliest candidate is kept. Returns the new model, which has
        absorbed all tasks, and their statistics with new sites.
        """
        best = int(self.log_posterior.argmax())
        mean, cov = self.meta_mean[best], self.meta_cov[best]
        log = gathered(self.family, mean, cov, tasks, self.design)
        learned = learn_level(log, *self.spread.sizes(best))
        if log.n.shape[1] > 1:
            learned = learn_full(log, learned)
        task_cov = learned.spread.covs(log.n.shape[1])
        kept: dict[str, Any] = {"rewards": self.family.name, "design": self.design}
        new = type(self)(mean, cov, task_cov=task_cov, arms=self.arms, **kept)
        number, rewards = self.anchor.number + 1, float(log.n.sum())
        fill(new, anchor=new._anchor(number, rewards, learned.mean[None], learned.cov[None]))
        found = []
        for i, (stats, design) in enumerate(tasks):
            found.append(stats.with_sites(learned.sites[:, None, i].copy(), number))
            new = new.absorb(new.digest(found[-1], design=design).message)
        return new, found

    def _common(self, arm: int) -> FloatArray:
        """The covariance of this arm's mu with another's: the largest of them, or 0."""
        others = np.delete(self.meta_cov[:, arm], arm, axis=1)
        return others.max(axis=1, initial=0.0)

    # files

    def figures(self) -> dict[str, FloatArray]:
        found = {"mean": self.meta_mean, "cov": self.meta_cov}
        if isinstance(self.spread, Level):
            found["task_scale"] = np.sqrt(self.spread.own[:, 0])
            found["level_scale"] = np.sqrt(self.spread.shared[:, 0])
        else:
            found["task_cov"] = self.spread.covs(self.n_arms)
        return found

    def to_dict(self) -> dict[str, Any]:
        anchor = self.anchor
        return {
            "model": self.NAME,
            "rewards": self.family.name,
            **{name: value.tolist() for name, value in self.figures().items()},
            "log_weights": finite_or_null(self.log_weights),
            "design": None if self.design is None else self.design.tolist(),
            "arms": self.arms,
            "anchor": None
            if anchor.number == 0
            else [anchor.number, anchor.rewards, anchor.mean.tolist(), anchor.cov.tolist()],
            "total": self.total_to_list(),
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        logs = from_null(data["log_weights"])
        names = ("mean", "cov", "task_scale", "level_scale", "task_cov", "rewards", "design")
        options = {name: data[name] for name in (*names, "arms") if name in data}
        meta = cls(**options, weights=np.exp(logs))
        meta = evolve(meta, log_weights=logs).with_total_of(data)
        if data["anchor"] is not None:
            number, rewards, mean, cov = data["anchor"]
            mean, cov = checks.array("anchor", mean), checks.array("anchor", cov)
            if mean.shape != meta.meta_mean.shape or cov.shape != meta.meta_cov.shape:
                raise ValueError(f"an anchor of shape {mean.shape}")
            fill(meta, anchor=meta._anchor(int(number), float(rewards), mean, cov))
        return meta


def _frames(means: FloatArray, covs: FloatArray) -> tuple[FloatArray, FloatArray]:
    frame = linalg.frames(means, linalg.psd_factors(covs))
    return frame, np.ascontiguousarray(np.swapaxes(frame, -1, -2))


def _padded(total: FloatArray, p: int) -> FloatArray:
    """A sum of messages with room for one more arm, before the last entry of x = (mu, 1)."""
    old = total[:, :-1].reshape(-1, p + 1, p + 1)
    new = np.zeros((len(old), p + 2, p + 2))
    place = np.append(np.arange(p), p + 1)
    new[:, place[:, None], place] = old
    return np.concatenate([new.reshape(len(new), -1), total[:, -1:]], axis=1).ravel()


def _octave(pulls: float) -> int:
    return math.frexp(pulls)[1]


def _checked_design(design: Any, p: int) -> FloatArray:
    phi = checks.array("design", design, ndim=2)
    if phi.shape[1] != p or len(phi) == 0:
        raise ValueError(f"design must have {p} columns, as mean has, got shape {phi.shape}")
    return phi


def _covariances(name: str, value: ArrayLike, dim: int) -> FloatArray:
    """One covariance, or a stack of them."""
    given = checks.array(name, value)
    parts = given if given.ndim in (1, 3) else given[None]
    return np.stack([checks.covariance(name, part, dim) for part in parts])


def _spread(
    task_scale: ArrayLike | None, level_scale: ArrayLike, task_cov: ArrayLike | None, dim: int
) -> Level | Full:
    if (task_scale is None) == (task_cov is None):
        raise ValueError("give task_scale, the spread of tasks, or task_cov, a whole covariance")
    if task_cov is not None:
        return Full(linalg.psd_factors(_covariances("task_cov", task_cov, dim)))
    own = np.atleast_1d(checks.non_negative("task_scale", task_scale))
    shared = np.atleast_1d(checks.non_negative("level_scale", level_scale))
    if own.ndim != 1 or shared.ndim != 1:
        raise InvalidValue("task_scale", f"is one number a candidate, got shape {own.shape}")
    return Level(own[:, None] ** 2, shared[:, None] ** 2)
