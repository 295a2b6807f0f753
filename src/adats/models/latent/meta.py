"""Clicks and counts in arms whose prior mean is unknown: theta is Gaussian, rewards are not.

The rewards of a task become Gaussian sites (see `sites`), and with these the model is the linear
one. Several candidates for the spreads are kept side by side, weighted by their evidence.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from adats.models.core import checks, linalg
from adats.models.core.draws import Draws
from adats.models.core.errors import InvalidValue
from adats.models.core.frozen import evolve, fill
from adats.models.core.many import same_rows
from adats.models.core.names import arm_names, grown_names
from adats.models.core.registry import register
from adats.models.core.sums import Sum
from adats.models.core.types import Arm, BoolArray, Design, FloatArray, JsonDict, Rng
from adats.models.core.weights import picks
from adats.models.latent import sites as ep
from adats.models.latent.anchors import Anchor
from adats.models.latent.base import LatentBase, covariances_of, doublings
from adats.models.latent.belief import LatentBelief, LatentPosterior, LatentPosteriors, apart
from adats.models.latent.chances import Laws
from adats.models.latent.digest import (
    STATS,
    LatentDigest,
    LatentDigests,
    message_of,
    message_sum_of,
)
from adats.models.latent.full import FullSpread
from adats.models.latent.level import LevelSpread, in_common
from adats.models.latent.spreads import gathered, learn_full, learn_level
from adats.models.latent.stats import OUTDATED, ArmSites

SEVERAL = 4  # tasks, which are replaced faster together than one by one
NEGLIGIBLE = -30.0  # log of a weight beside the best: beliefs do without such candidates
FARTHEST, WIDEST = 30.0, 10.0  # of theta in a task: its mean, and its standard deviation


@register
@dataclass(frozen=True, eq=False, init=False, repr=False)
class LatentMeta(LatentBase[ArmSites, LatentDigest]):
    """mu ~ N(mean, cov), theta ~ N(design @ mu, Σ_0), and A'(theta_i) is the mean reward of arm i.

    Rewards are "binary", with theta in log-odds, or a "count", with theta the logarithm of its
    mean. Σ_0 is task_scale²·I + level_scale²·11ᵀ, where a task's arms share a level, or
    `task_cov`, any covariance. Each of mean, cov, task_scale, level_scale and task_cov may have a
    leading axis of candidates, of which one is right; `weights` is the belief about which.

    >>> meta = LatentMeta(np.zeros(2), 1.0, task_scale=0.3)
    >>> stats = meta.empty().add(0, 1)
    >>> meta.absorb(meta.digest(stats).message).task_prior().mean.round(3)
    array([0.585, 0.5  ])
    """

    NAME: ClassVar[str] = "latent"
    arms: tuple[Arm, ...] | None

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
        spread_of = partial(_spread, task_scale, level_scale, task_cov)
        self._set(mean, cov, spread_of, rewards, weights, design)
        fill(self, arms=arm_names(arms, self.n_arms))
        _check_reach(self.task_prior())

    # what the model is

    @property
    def n_arms(self) -> int:
        return self.meta_mean.shape[-1] if self.design is None else len(self.design)

    @property
    def n_candidates(self) -> int:
        return self.log_weights.size * self.n_arms if self.log_weights.size > 1 else 0

    @property
    def mean(self) -> FloatArray:
        """Mean reward of each arm in a new task."""
        return self.task_prior().mean

    # tasks

    def empty(self, *, design: Design = None) -> ArmSites:
        phi = self._phi(design)
        arms = self.meta_mean.shape[-1] if phi is None else len(phi)
        return STATS[self.family.name].zeros(arms)

    def digest(self, stats: ArmSites, *, design: Design = None) -> LatentDigest:
        """With the sites that the statistics have, or with new ones."""
        phi = self._phi(design)
        arms = self.meta_mean.shape[-1] if phi is None else len(phi)
        if stats.table.shape[1] != arms:
            raise ValueError(f"statistics of {stats.table.shape[1]} arms, but there are {arms}")
        candidates = self.log_weights.size
        if (not stats.settled and stats.table[:2].any()) or (
            stats.sites is not None and stats.sites.shape[1] != candidates
        ):
            prior = self._task_anchor(self.anchor, phi)
            start = np.zeros((3, candidates, arms))
            found = ep.settled(self.family, stats.table[0], stats.table[1], prior, start)
            stats = stats.with_sites(found, self.anchor.number)
        return LatentDigest(stats, phi, self.spread)

    def _task_anchor(self, anchor: Anchor, phi: FloatArray | None) -> ep.SitePrior:
        own = phi is not self.design  # a design of its own
        return self._prior_at(anchor.mean, anchor.cov, phi) if own else anchor.prior

    def _replaced(
        self, old: LatentDigest, stats: ArmSites, changed: Iterable[int], weight: float = 1.0
    ) -> tuple[LatentDigest, Self]:
        """Only the sites of arms that changed are worked out, except where all should move: when
        the anchor is a new one, when the pulls of the task have doubled, and while there are few
        rewards."""
        phi, candidates = old.design, self.log_weights.size
        if stats.table.shape != old.stats.table.shape:
            raise ValueError(f"statistics of {stats.table.shape[1]} arms, not of as many as before")
        before = old.stats.sites_of(candidates)
        both = np.empty((3, 2, *before.shape[1:]))
        both[:, 0] = before
        pulls, had = stats.pulls, old.stats.pulls
        n, s = stats.table[0], stats.table[1]
        prior, number = self._task_anchor(self._anchor_of(old, weight), phi), self.anchor.number
        known = old.stats.anchor == number and stats.anchor != OUTDATED
        same = known and doublings(pulls) == doublings(had)
        if same and not self.has_few_rewards:
            after = (before if stats.sites is None else stats.sites).copy()
            for arm in changed:
                ep.update_site(self.family, n.item(arm), s.item(arm), prior, after, arm)
        else:
            after = ep.settled(self.family, n, s, prior, before)
        both[:, 1] = after
        new = LatentDigest(stats.with_sites(after, number), phi, self.spread)
        bases = old.stats.log_base, stats.log_base
        log_base = np.array(bases)[:, None] if any(bases) else None
        out, add = message_of(self.spread, both, phi, np.array([[had], [pulls]]), log_base)
        out *= weight
        return new, evolve(self, total=self.total.swap(out, add))

    def replace_tasks(
        self, changes: Sequence[tuple[LatentDigest, ArmSites, Collection[int]]]
    ) -> tuple[list[LatentDigest], Self]:
        """All at once, under the same anchor: it is renewed at the end."""
        plain = all(old.design is self.design for old, _, _ in changes)
        if len(changes) < SEVERAL or not plain or self.has_few_rewards:
            return super().replace_tasks(changes)
        before = np.stack([old.stats.sites_of(self.log_weights.size) for old, _, _ in changes], 1)
        tables = np.stack([stats.table[:2] for _, stats, _ in changes], 1)
        after = self._sites_of_many(changes, before, tables)
        found = [
            stats.with_sites(after[:, i].copy(), self.anchor.number)
            for i, (_, stats, _) in enumerate(changes)
        ]
        had = [old.stats for old, _, _ in changes]
        out, add = (
            message_sum_of(self, sites, sum(s.pulls for s in stats), sum(s.log_base for s in stats))
            for sites, stats in ((before, had), (after, found))
        )
        digests = [LatentDigest(stats, self.design, self.spread) for stats in found]
        return digests, evolve(self, total=self.total.swap(out, add)).renewed()

    def _sites_of_many(
        self,
        changes: Sequence[tuple[LatentDigest, ArmSites, Collection[int]]],
        before: FloatArray,
        tables: FloatArray,
    ) -> FloatArray:
        """Where one arm has changed, only its site is worked out, as in `replace_task`."""
        prior, number = self.anchor.prior, self.anchor.number
        one = np.array(
            [
                len(changed) == 1
                and old.stats.anchor == number
                and doublings(stats.pulls) == doublings(old.stats.pulls)
                for old, stats, changed in changes
            ]
        )
        after = np.empty(before.shape)
        if one.any():
            arms = np.array(
                [next(iter(c[2])) for c, only in zip(changes, one, strict=True) if only]
            )
            n, s = tables[:, one, :][:, np.arange(arms.size), arms]
            after[:, one] = ep.update_sites(self.family, n, s, prior, before[:, one], arms)
        if not one.all():
            n, s = tables[:, ~one, None, :]
            after[:, ~one] = ep.settled(self.family, n, s, prior, before[:, ~one])
        return after

    # many tasks at once

    @property
    def row_size(self) -> int:
        kind = STATS[self.family.name].ROWS
        return (kind + 3 * self.log_weights.size) * self.n_arms + 2

    def row_of(self, stats: ArmSites) -> FloatArray:
        """With sites of zeros, if there are none yet."""
        sites = stats.sites_of(self.log_weights.size)
        return np.concatenate(
            [stats.table.ravel(), sites.ravel(), [stats.anchor, self.log_weights.size]]
        )

    def digest_many(self, rows: FloatArray, *, kept: bool = True) -> LatentDigests:
        """With the sites that the rows have, if they are kept; else with new ones, which are the
        same in tasks with the same counts."""
        if kept:
            return LatentDigests(rows, self)
        counts, arms = 2 * self.n_arms, self.n_arms
        tables, place = same_rows(rows[:, :counts])
        n, s = tables[:, None, :arms], tables[:, None, arms:]
        start = np.zeros((3, len(tables), self.log_weights.size, arms))
        sites = ep.settled(self.family, n, s, self.anchor.prior, start)
        new = rows.copy()
        size = sites[:, 0].size
        new[:, -2 - size : -2] = np.moveaxis(sites, 0, 1).reshape(len(tables), size)[place]
        new[:, -2] = self.anchor.number
        return LatentDigests(new, self)

    def posterior_many(self, digests: LatentDigests) -> LatentPosteriors:
        return LatentPosteriors(self, digests)

    def row_generations(self, rows: FloatArray) -> FloatArray:
        """The numbers of the anchors under which their sites were found."""
        return rows[:, -2]

    def stale_rows(self, rows: FloatArray) -> BoolArray:
        """Whether their sites were found under an older anchor."""
        old = self.row_generations(rows) != self.anchor.number
        stale: BoolArray = old & rows[:, : self.n_arms].any(axis=1)
        return stale

    def moments_many(self, digests: LatentDigests) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Of theta in many tasks under every candidate: means, variances, what is in common."""
        return self.spread.moments(digests.sites, *self.mu_moments(self.design))

    def sample_many(self, digests: LatentDigests, rng: Draws) -> FloatArray:
        """A draw of theta in each of many tasks: a candidate, then mu, then theta."""
        tasks = len(digests.rows)
        which = np.zeros(tasks, dtype=np.intp)
        if self.log_weights.size > 1:
            which = picks(self.weights, rng.random(tasks))
        halves = self.mu.halves()
        means = self.mu.means(halves)
        z = rng.standard_normal((tasks, means.shape[-1]))
        mu = linalg.drawn(means, np.swapaxes(halves, -1, -2), which, z)
        if self.design is not None:
            mu = mu @ self.design.T
        sites = digests.sites[:, np.arange(tasks), which]
        return self.spread.sample_many(which, sites, mu, rng)

    # beliefs

    def _joint(self, sites: FloatArray, phi: FloatArray | None) -> LatentBelief:
        """Under all candidates but those which are all but impossible."""
        mean, factor = self.mu_factors(phi)
        logs, spread = self.log_posterior, self.spread
        likely = logs > logs.max() + NEGLIGIBLE
        if not likely.all():
            logs, mean, factor, sites = logs[likely], mean[likely], factor[likely], sites[:, likely]
            spread = type(spread)(*(part[likely] for part in spread))
        return LatentBelief(self.family, logs, *spread.given(sites, mean, factor))

    def task_prior(self, *, design: Design = None) -> LatentBelief:
        """P_s: the uncertainty of mu and of the spreads is marginalised out."""
        phi = self._phi(design)
        return self._joint(self.empty(design=design).sites_of(self.log_weights.size), phi)

    def posterior(self, digest: LatentDigest) -> LatentPosterior:
        """Of theta in a task whose own message is in the total."""
        return LatentPosterior(self, digest)

    def posterior_joint(self, digest: LatentDigest) -> LatentBelief:
        """The same worked out under every candidate."""
        return self._joint(digest.stats.sites_of(self.log_weights.size), digest.design)

    def posterior_moments(self, digest: LatentDigest) -> tuple[FloatArray, FloatArray, FloatArray]:
        """The same of each arm by itself under every candidate: means, variances, and what arms
        have in common."""
        sites = digest.stats.sites_of(self.log_weights.size)
        return self.spread.moments(sites, *self.mu_moments(digest.design))

    def posterior_laws(self, digest: LatentDigest) -> Laws:
        """The same of all arms together."""
        sites = digest.stats.sites_of(self.log_weights.size)
        return Laws(self.weights, *self.spread.joint(sites, *self.mu_moments(digest.design)))

    def posterior_sample(self, digest: LatentDigest, rng: Rng) -> FloatArray:
        """A draw of theta: a candidate, then mu, then theta."""
        which = self._draw_candidate(rng)
        mu = self._draw_mu(which, rng)
        if digest.design is not None:
            mu = digest.design.dot(mu)
        sites = digest.stats.sites_of(self.log_weights.size)
        return self.spread.sample(which, sites, mu, rng)

    def share(
        self,
        *,
        rows: FloatArray | None = None,  # noqa: ARG002
        design: Design = None,
    ) -> FloatArray:
        """Of what is not common to all arms, on the scale of theta. Not knowing the candidate is
        not knowing the task prior."""
        means, cov = self.mu_moments(self._phi(design))
        weights, one = self.weights, linalg.ones(means.shape[-1])
        squares = np.einsum("...ii->...i", cov)
        together = cov.dot(one).dot(one)
        mu = apart(self.family, weights, means, squares, in_common(together, squares))
        within = weights.dot(self.spread.own_variances(means.shape[-1]))
        return linalg.part_of(mu.eta_scale**2, within)

    def prior_given(self, mu: ArrayLike, *, design: Design = None) -> LatentBelief:
        """P(·; mu) of the candidate mu[0] at mu[1:]; the index is not needed if there is one."""
        which, mean = self.task_mean(mu, design)
        cov = self.spread.covs(mean.size)[which]
        factor = linalg.psd_factor(cov)[None]
        return LatentBelief(self.family, np.zeros(1), mean[None], factor)

    def with_arm(self, name: Arm | None, like: int) -> Self:
        """One more arm at the end, with the prior (not the data) of arm `like`."""
        if self.design is not None or isinstance(self.spread, FullSpread):
            raise ValueError("arms cannot be added where there is a design or a full task_cov")
        names = grown_names(self.arms, name, like, self.n_arms)
        count, p = self.meta_mean.shape
        grow = np.append(np.arange(p), like)
        means, covs = self.meta_mean[:, grow], self.meta_cov[:, grow][:, :, grow]
        covs[:, -1, like] = covs[:, like, -1] = self._common(like)
        high, low = (_padded(part.reshape(count, -1), p) for part in self.total)
        prior = linalg.GaussianPriors.of(means, covs)
        changes = {"meta_mean": means, "meta_cov": covs, "mu_prior": prior, "arms": names}
        new = evolve(self, **changes, total=Sum(high, low))
        old = self.anchor
        return fill(new, anchor=new.anchor_at(old.number + 1, old.rewards, *new.mu_moments()))

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
        fill(new, anchor=new.anchor_at(number, rewards, learned.mean[None], learned.cov[None]))
        found = []
        for i, (stats, design) in enumerate(tasks):
            found.append(stats.with_sites(learned.sites[:, None, i].copy(), number))
            new = new.absorb(new.digest(found[-1], design=design).message)
        return new, found

    def _common(self, arm: int) -> FloatArray:
        """The covariance of this arm's mu with another's: the largest of them, or 0.

        It is at least what the other arms say of both, and at most the variance: else the whole
        is no covariance.
        """
        rest = np.delete(np.delete(self.meta_cov, arm, axis=1), arm, axis=2)
        others = np.delete(self.meta_cov[:, arm], arm, axis=1)
        by_others = np.einsum("ci,cij,cj->c", others, linalg.pseudo_inverses(rest), others)
        most = np.maximum(others.max(axis=1, initial=0.0), by_others)
        common: FloatArray = np.minimum(most, self.meta_cov[:, arm, arm])
        return common

    # files

    def figures(self) -> dict[str, FloatArray]:
        found = {"mean": self.meta_mean, "cov": self.meta_cov}
        if isinstance(self.spread, LevelSpread):
            found["task_scale"] = np.sqrt(self.spread.own[:, 0])
            found["level_scale"] = np.sqrt(self.spread.shared[:, 0])
        else:
            found["task_cov"] = self.spread.covs(self.n_arms)
        return found

    def to_dict(self) -> JsonDict:
        return super().to_dict() | {"arms": self.arms}


def _check_reach(prior: LatentBelief) -> None:
    """Raise where theta may be so far out that rewards are certain, or not finite."""
    far = np.abs(prior.eta_mean).max()
    if far > FARTHEST:
        raise InvalidValue("mean", f"is on the scale of theta, within ±{FARTHEST:g}, got {far}")
    wide = np.sqrt((prior.factor**2).sum(axis=-1)).max()
    if wide > WIDEST:
        raise InvalidValue(
            "cov",
            f"and the spread of tasks give theta a standard deviation of {wide}, more than "
            f"{WIDEST:g}; a variance of 4 leaves every rate open",
        )


def _padded(total: FloatArray, p: int) -> FloatArray:
    """A sum of messages with room for one more arm, before the last entry of x = (mu, 1)."""
    old = total[:, :-1].reshape(-1, p + 1, p + 1)
    new = np.zeros((len(old), p + 2, p + 2))
    place = np.append(np.arange(p), p + 1)
    new[:, place[:, None], place] = old
    return np.concatenate([new.reshape(len(new), -1), total[:, -1:]], axis=1).ravel()


def _spread(
    task_scale: ArrayLike | None, level_scale: ArrayLike, task_cov: ArrayLike | None, dim: int
) -> LevelSpread | FullSpread:
    if (task_scale is None) == (task_cov is None):
        raise ValueError("give task_scale, the spread of tasks, or task_cov, a whole covariance")
    if task_cov is not None:
        if np.any(level_scale):
            raise InvalidValue("level_scale", "is part of task_cov: add its square to every entry")
        return FullSpread.of(covariances_of("task_cov", task_cov, dim))
    own = np.atleast_1d(checks.non_negative("task_scale", task_scale))
    shared = np.atleast_1d(checks.non_negative("level_scale", level_scale))
    for name, part in (("task_scale", own), ("level_scale", shared)):
        if part.ndim != 1 or part.size == 0:
            raise InvalidValue(name, f"is one number a candidate, got shape {part.shape}")
        if part.max() > checks.HUGE:
            raise InvalidValue(name, f"must be less than {checks.HUGE}, got {part.max()}")
    return LevelSpread(own[:, None] ** 2, shared[:, None] ** 2)
