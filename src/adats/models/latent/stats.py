"""Statistics of clicks and of counts. They keep the sites in which they were worked out."""

from typing import Any, ClassVar, Self

import numpy as np

from adats.models.beta.stats import BinaryStats
from adats.models.core.frozen import put
from adats.models.core.stats import ArmStats
from adats.models.core.types import FloatArray
from adats.models.gamma.stats import CountStats
from adats.models.latent.family import BINARY, COUNT, Family

OUTDATED = -1  # the anchor of sites that are to be found anew, whatever the anchor is


class ArmSites(ArmStats):
    """Pulls and successes of every arm, and its sites (w, b and log s of every candidate).

    Sites are those of these very counts if they are `settled`; else of counts that were fewer.
    `anchor` is the number of the anchor under which they were found.
    """

    FAMILY: ClassVar[Family]
    sites: FloatArray | None = None
    anchor: int = 0
    settled: bool = False

    def sites_of(self, candidates: int) -> FloatArray:
        """The sites, zeros if there are none yet."""
        if self.sites is None:
            return np.zeros((3, candidates, self.table.shape[1]))
        return self.sites

    def with_table(self, table: FloatArray) -> Self:
        """Other counts, without sites."""
        return type(self)(table)

    def unsettled(self) -> Self:
        """The counts alone."""
        return type(self)(self.table)

    def with_sites(self, sites: FloatArray, anchor: int) -> Self:
        return self._new(self.table, sites, anchor, True)

    def _new(self, table: FloatArray, sites: FloatArray | None, anchor: int, settled: bool) -> Self:
        new = type(self)(table)
        put(new, "sites", sites)
        put(new, "anchor", anchor)
        put(new, "settled", settled)
        return new

    @property
    def pulls(self) -> float:
        """Of all arms."""
        return float(np.add.reduce(self.table[0]))

    @property
    def log_base(self) -> float:
        """What the log density of the rewards has in it that does not depend on eta, negated."""
        return 0.0

    def add(self, action: Any, reward: Any, *, keep: float = 1.0) -> Self:
        table = super().add(action, reward, keep=keep).table
        return self._new(table, self.sites, self.anchor, False)

    def add_counts(self, action: Any, pulls: Any, successes: Any, *, keep: float = 1.0) -> Self:
        table = super().add_counts(action, pulls, successes, keep=keep).table
        return self._new(table, self.sites, self.anchor, False)

    def scaled(self, factor: float, *, afresh: bool = False) -> Self:
        """With sites that have less weight too: nearly those of so many pulls."""
        sites = None if self.sites is None else self.sites * factor
        anchor = OUTDATED if afresh else self.anchor
        return self._new(self.table * factor, sites, anchor, self.settled and not afresh)

    def flat(self) -> FloatArray:
        sites = self.sites
        if sites is None or not self.settled:
            return np.concatenate([self.table.ravel(), [0.0, 0.0]])
        size = (float(self.anchor), float(sites.shape[1]))
        return np.concatenate([self.table.ravel(), sites.ravel(), size])

    @classmethod
    def from_flat(cls, values: FloatArray) -> Self:
        if values.ndim != 1 or values.size < 2 or not np.isfinite(values).all():
            raise ValueError(f"{values.size} numbers, some not finite, are not statistics")
        candidates = int(values[-1])
        each = cls.ROWS + 3 * max(candidates, 0)
        arms, rest = divmod(values.size - 2, each)
        if rest or arms == 0 or candidates != values[-1] or candidates < 0:
            raise ValueError(f"{values.size} numbers are not {each} for each arm")
        table = values[: cls.ROWS * arms].reshape(cls.ROWS, arms).copy()
        new = cls(table)
        if candidates:
            sites = values[cls.ROWS * arms : -2].reshape(3, candidates, arms).copy()
            return new.with_sites(sites, int(values[-2]))
        return new

    def grow(self, arms: int) -> Self:
        """The same statistics with room for more arms: sites of no pulls are 0."""
        missing = arms - self.table.shape[1]
        if missing == 0:
            return self
        table = np.pad(self.table, ((0, 0), (0, missing)))
        sites = self.sites
        if sites is not None:
            sites = np.pad(sites, ((0, 0), (0, 0), (0, missing)))
        return self._new(table, sites, self.anchor, self.settled)


class ClickStats(ArmSites, BinaryStats):
    """Pulls and clicks of every arm."""

    FAMILY: ClassVar[Family] = BINARY


class EventStats(ArmSites, CountStats):
    """Pulls and summed counts of every arm."""

    FAMILY: ClassVar[Family] = COUNT

    @property
    def log_base(self) -> float:
        return float(self.log_factorial.sum())
