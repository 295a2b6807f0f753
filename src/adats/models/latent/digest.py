"""What tasks of clicks and counts say of mu: the messages of their sites, of one task or many."""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from adats.models.core.types import Design, FloatArray
from adats.models.latent.base import framed
from adats.models.latent.full import FullSpread
from adats.models.latent.level import LevelSpread
from adats.models.latent.stats import ArmSites, ClickStats, EventStats

if TYPE_CHECKING:
    from adats.models.latent.meta import LatentMeta

STATS: dict[str, type[ArmSites]] = {"binary": ClickStats, "count": EventStats}


class LatentDigest(NamedTuple):
    """One task's sites. The message is worked out from them when it is asked for."""

    stats: ArmSites
    design: Design  # Φ
    spread: LevelSpread | FullSpread

    @property
    def message(self) -> FloatArray:
        sites = self.stats.sites_of(len(self.spread[0]))
        stats = self.stats
        return message_of(self.spread, sites, self.design, stats.pulls, stats.log_base or None)


class LatentDigests(NamedTuple):
    """The sites of many tasks, a row each, without designs of their own."""

    rows: FloatArray
    meta: "LatentMeta"

    @property
    def table(self) -> FloatArray:
        """Pulls, successes and what else is counted, (rows of the table, tasks, arms)."""
        arms, kind = self.meta.n_arms, STATS[self.meta.family.name].ROWS
        return np.moveaxis(self.rows[:, : kind * arms].reshape(-1, kind, arms), 1, 0)

    @property
    def sites(self) -> FloatArray:
        """Of every candidate, (3, tasks, candidates, arms)."""
        count, arms = self.meta.log_weights.size, self.meta.n_arms
        sites = self.rows[:, -2 - 3 * count * arms : -2].reshape(-1, 3, count, arms)
        return np.moveaxis(sites, 1, 0)

    @property
    def pulls(self) -> FloatArray:
        pulls: FloatArray = np.add.reduce(self.table[0], axis=-1)
        return pulls

    @property
    def log_base(self) -> FloatArray | None:
        """What the log density of rewards has in it besides eta, negated; of each task."""
        table = self.table
        return None if len(table) < 4 else np.add.reduce(table[3], axis=-1)

    @property
    def messages(self) -> FloatArray:
        meta, base = self.meta, self.log_base
        rest = None if base is None else base[:, None]
        return message_of(meta.spread, self.sites, meta.design, self.pulls[:, None], rest)

    @property
    def message_sum(self) -> FloatArray:
        base = self.log_base
        known = 0.0 if base is None else base.sum()
        return message_sum_of(self.meta, self.sites, self.pulls.sum(), known)


def message_of(
    spread: LevelSpread | FullSpread,
    sites: FloatArray,
    design: Design,
    pulls: ArrayLike,
    log_base: ArrayLike | None,
) -> FloatArray:
    """T of every candidate and the number of rewards; of one set of sites, or of several."""
    several, arms = sites.shape[1:-1], sites.shape[-1] + 1
    if design is None:
        found = np.empty((*several, arms * arms + 1))
        spread.message(sites, found[..., :-1].reshape(*several, arms, arms))
    else:
        terms = np.empty((*several, arms, arms))
        spread.message(sites, terms)
        said = framed(terms, design).reshape(*several, -1)
        found = np.empty((*several, said.shape[-1] + 1))
        found[..., :-1] = said
    found[..., -1] = pulls
    if log_base is not None:
        found[..., -2] += 2.0 * np.asarray(log_base)  # the last of T is -2c
    return found.reshape(*several[:-1], -1)


def message_sum_of(
    meta: "LatentMeta", sites: FloatArray, pulls: float, log_base: float
) -> FloatArray:
    """The sum of the messages of many tasks without designs of their own."""
    terms = meta.spread.message_sum(sites)
    terms[:, -1, -1] += 2.0 * log_base
    if meta.design is not None:
        terms = framed(terms, meta.design)
    counted = np.full((len(terms), 1), pulls)
    return np.concatenate([terms.reshape(len(terms), -1), counted], axis=1).ravel()
