"""Clicks and counts where arms are rows of features, whose prior mean is unknown.

The rewards of a task become Gaussian sites of its distinct rows (see `sites`), and with these the
model is the linear one. Several candidates for the spread of tasks are kept side by side.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike

from adats.models.core import checks, linalg
from adats.models.core.errors import InvalidValue
from adats.models.core.frozen import evolve, fill
from adats.models.core.registry import register
from adats.models.core.types import Design, FloatArray, Rng
from adats.models.latent import full
from adats.models.latent import sites as ep
from adats.models.latent.anchors import Anchor
from adats.models.latent.base import LatentBase, covariances_of, doublings, framed
from adats.models.latent.full import FullPrior, FullSpread, SiteSums
from adats.models.latent.row_belief import LatentRows, LatentRowsPosterior
from adats.models.latent.row_stats import MOST_ROWS, ClickRows, EventRows, RowSites

STATS: dict[str, type[RowSites]] = {"binary": ClickRows, "count": EventRows}
FEW = 8  # rows whose sites are worked out one by one: with more, all are worked out anew


class RowDigest(NamedTuple):
    """Given mu, theta is N(Φmu + S(b̃ - G̃Φmu), S) with S = (Σ_0⁻¹ + G̃)⁻¹, for each candidate."""

    stats: RowSites
    message: FloatArray
    design: Design  # Φ
    known: SiteSums  # G̃ and b̃


@register
@dataclass(frozen=True, eq=False, init=False, repr=False)
class LatentLinearMeta(LatentBase[RowSites, RowDigest]):
    """mu ~ N(mean, cov), theta ~ N(design @ mu, Σ_0); an arm with features a has the mean reward
    A'(aᵀtheta).

    Rewards are "binary", with aᵀtheta in log-odds, or a "count", with aᵀtheta the logarithm of its
    mean. Σ_0 is task_scale²·I, or `task_cov`, any covariance. Each of mean, cov, task_scale and
    task_cov may have a leading axis of candidates, of which one is right; `weights` is the belief
    about which. The design is the identity by default; another one may be given here, or task by
    task.

    >>> meta = LatentLinearMeta(np.zeros(2), 1.0, task_scale=0.3)
    >>> stats = meta.empty().add([1.0, 0.5], 1)
    >>> meta.absorb(meta.digest(stats).message).mean.round(3)
    array([0.393, 0.196])
    """

    NAME: ClassVar[str] = "latent-linear"
    spread: FullSpread
    task_scale: FloatArray | None  # (candidates,), if it is that of every entry of theta

    def __init__(
        self,
        mean: ArrayLike,
        cov: ArrayLike,
        *,
        task_scale: ArrayLike | None = None,
        task_cov: ArrayLike | None = None,
        rewards: str = "binary",
        weights: ArrayLike | None = None,
        design: ArrayLike | None = None,
    ) -> None:
        self._set(mean, cov, partial(_spread, task_scale, task_cov), rewards, weights, design)
        scales = None if task_scale is None else self.spread.factor[:, 0, 0].copy()
        fill(self, task_scale=scales)

    # what the model is

    @property
    def n_arms(self) -> int:
        return 0

    @property
    def n_features(self) -> int:
        return len(self.spread.factor.T)

    @property
    def n_candidates(self) -> int:
        return self.log_weights.size * self.n_features if self.log_weights.size > 1 else 0

    @property
    def row_size(self) -> int:
        """A task's rows may be many or few."""
        return 0

    def _spread_of(self, dim: int) -> FullSpread:
        """Σ_0 in a task whose theta has so many entries."""
        if dim == self.n_features:
            return self.spread
        if self.task_scale is None:
            raise ValueError(
                f"theta has {dim} entries in this task, but task_cov is for {self.n_features}; "
                "task_scale fits every size"
            )
        return _round(self.task_scale, dim)

    def _prior_at(self, mean: FloatArray, cov: FloatArray, phi: FloatArray | None) -> FullPrior:
        if phi is None:
            return self.spread.prior(mean, cov)
        own = self._spread_of(len(phi))
        return own.prior(mean @ phi.T, np.matmul(phi, np.matmul(cov, phi.T)))

    # tasks

    def empty(self, *, design: Design = None) -> RowSites:
        phi = self._phi(design)
        dim = self.n_features if phi is None else self._spread_of(len(phi)).factor.shape[-1]
        return STATS[self.family.name].zeros(dim)

    def digest(self, stats: RowSites, *, design: Design = None) -> RowDigest:
        """With the sites that the statistics have, or with new ones."""
        phi = self._phi(design)
        dim = self.n_features if phi is None else len(phi)
        if stats.rows.shape[1] != dim:
            raise ValueError(f"theta has {dim} entries, but features {stats.rows.shape[1]}")
        count = self.log_weights.size
        if stats.frozen is not None and len(stats.frozen) != count:
            raise ValueError(f"rows were let go under {len(stats.frozen)} candidates, not {count}")
        fits = stats.sites is None or stats.sites.shape[1] == count
        if not (stats.settled and fits):
            stats = self._settled(stats, phi, self.anchor, np.zeros((3, count, len(stats.rows))))
        return self._digested(stats, phi)

    def _settled(
        self, stats: RowSites, phi: FloatArray | None, anchor: Anchor, start: FloatArray
    ) -> RowSites:
        n, s = stats.table[0], stats.table[1]
        if (n < 0).any():
            raise ValueError("statistics of fewer than 0 pulls: more was taken out than put in")
        prior = self._task_anchor(stats, phi, anchor)
        return stats.with_sites(ep.settled(self.family, n, s, prior, start), anchor.number)

    def _task_anchor(self, stats: RowSites, phi: FloatArray | None, anchor: Anchor) -> FullPrior:
        """What the anchor says of theta in a task with these rows."""
        prior = anchor.prior
        if phi is not self.design:
            prior = self._prior_at(anchor.mean, anchor.cov, phi)
        assert isinstance(prior, FullPrior)
        return FullPrior(prior.mean, prior.factor, stats.rows, stats.frozen)

    def _digested(self, stats: RowSites, phi: FloatArray | None) -> RowDigest:
        count = self.log_weights.size
        known = full.site_sums(stats.sites_of(count), stats.rows, stats.frozen)
        terms = full.terms(self._spread_of(stats.rows.shape[1]).factor, known)
        terms[:, -1, -1] += 2.0 * stats.log_base
        if phi is not None:
            terms = framed(terms, phi)
        message = np.empty((count, terms[0].size + 1))
        message[:, :-1], message[:, -1] = terms.reshape(count, -1), stats.pulls
        return RowDigest(stats, message.ravel(), phi, known)

    def _replaced(
        self,
        old: RowDigest,
        stats: RowSites,
        changed: Iterable[int],  # noqa: ARG002
        weight: float = 1.0,
    ) -> tuple[RowDigest, Self]:
        """Only the sites of rows that changed are worked out, except where all should move: when
        the anchor is a new one, when the pulls of the task have doubled, before rows are let go,
        and while there are few rewards."""
        phi, anchor, sites = old.design, self.anchor, stats.sites_of(self.log_weights.size)
        stale_rows = [(row, *stats.table[:2, row].tolist()) for row in stats.stale[: FEW + 1]]
        one_by_one = (
            not self.has_few_rewards
            and sites is stats.sites
            and stats.anchor == anchor.number
            and doublings(stats.pulls) == doublings(old.stats.pulls)
            and len(stale_rows) <= FEW
            and len(stats.rows) <= MOST_ROWS
            and all(n > 0 for _, n, _ in stale_rows)
        )
        if one_by_one:
            prior, sites = self._task_anchor(stats, phi, anchor), sites.copy()
            if stats.settled_before is old.stats and len(stale_rows) == 1:
                prior = prior._replace(known=old.known)
            for row, n, s in stale_rows:
                ep.update_site(self.family, n, s, prior, sites, row)
            stats = stats.with_sites(sites, anchor.number)
        else:
            stats = self._settled(stats, phi, self._anchor_of(old, weight), sites)
        new = self._digested(stats, phi)
        return new, evolve(self, total=self.total.swap(weight * old.message, new.message))

    # beliefs

    def posterior_joint(self, digest: RowDigest) -> LatentRows:
        """The same as `posterior`, worked out under every candidate."""
        known = digest.known
        spread = self._spread_of(known.shift.shape[-1]).factor
        theta, wide = full.given_mu(spread, known, *self.mu_factors(digest.design))
        which = np.arange(self.log_weights.size)
        return LatentRows(self.family, self.log_posterior, theta, wide, which)

    def task_prior(self, *, design: Design = None) -> LatentRows:
        """P_s: the uncertainty of mu and of the spread is marginalised out."""
        return self.posterior_joint(self._digested(self.empty(design=design), self._phi(design)))

    def posterior(self, digest: RowDigest) -> LatentRowsPosterior:
        """Of theta in a task whose own message is in the total."""
        return LatentRowsPosterior(self, digest)

    def posterior_sample(self, digest: RowDigest, rng: Rng) -> FloatArray:
        """A draw of theta: a candidate, then mu, then theta."""
        which = self._draw_candidate(rng)
        mu = self._draw_mu(which, rng)
        if digest.design is not None:
            mu = digest.design.dot(mu)
        gram, shift, _ = digest.known
        factor = self._spread_of(mu.size).factor
        theta = linalg.condition(mu, factor[which], gram[which], shift[which])
        return theta.sample(rng.standard_normal(mu.shape))

    def share(self, *, rows: FloatArray | None = None, design: Design = None) -> FloatArray:
        """On the scale of eta, of arms with these features; of the entries of theta without them.
        Not knowing the candidate is not knowing the task prior."""
        prior = self.task_prior(design=design)
        wide = np.eye(prior.theta.shape[-1]) if rows is None else rows
        own = np.matmul(wide, self._spread_of(wide.shape[1]).factor)
        within = self.weights @ (own * own).sum(axis=-1)
        return linalg.part_of(prior.at_rows(wide).eta_scale ** 2 - within, within)

    def prior_given(self, mu: ArrayLike, *, design: Design = None) -> LatentRows:
        """P(·; mu) of the candidate mu[0] at mu[1:]; the index is not needed if there is one."""
        which, mean = self.task_mean(mu, design)
        factor = self._spread_of(mean.size).factor[which]
        return LatentRows(self.family, np.zeros(1), mean[None], factor[None], np.array([which]))

    # files

    def figures(self) -> dict[str, FloatArray]:
        found = {"mean": self.meta_mean, "cov": self.meta_cov}
        if self.task_scale is None:
            return found | {"task_cov": self.spread.cov}
        return found | {"task_scale": self.task_scale}


def _spread(task_scale: ArrayLike | None, task_cov: ArrayLike | None, dim: int) -> FullSpread:
    if task_scale is not None and task_cov is None:
        scale = np.atleast_1d(checks.non_negative("task_scale", task_scale))
        if scale.ndim != 1:
            raise InvalidValue("task_scale", f"is a number a candidate, got {scale.shape}")
        return _round(scale, dim)
    if task_cov is not None and task_scale is None:
        return FullSpread.of(covariances_of("task_cov", task_cov, dim))
    raise ValueError("give task_scale, the spread of tasks, or task_cov, a covariance")


def _round(scale: FloatArray, dim: int) -> FullSpread:
    """Σ_0 = scale² I of each candidate."""
    eye = np.eye(dim)
    return FullSpread(scale[:, None, None] * eye, scale[:, None, None] ** 2 * eye)
