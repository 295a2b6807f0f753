"""Statistics of clicks and counts where arms are rows of features, with the sites of the rows."""

import math
from bisect import bisect_left
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from adats.models.core import checks
from adats.models.core.errors import InvalidValue
from adats.models.core.stats import FeatureStats
from adats.models.core.types import FloatArray
from adats.models.latent.family import BINARY, COUNT, Family
from adats.models.latent.full import frozen_sums, site_sums
from adats.models.latent.stats import OUTDATED

MOST_ROWS = 128  # that a task keeps apart: beyond, half of them are let go
MOST_REWARDS = 1e15  # that are still counted one by one
LARGEST = 1e9  # sum of the sizes of features
ROUND_OFF = 1e-9  # relative: what is left of a row after all of it was taken out
HEADER = 6  # numbers at the end of `flat`


@dataclass(frozen=True, eq=False)
class RowSites(FeatureStats):
    """Distinct rows of features, sorted, with pulls and successes and the sites of each.

    Sites are w, b and log s of every candidate. Those of `stale` rows are of fewer rewards than the
    row has. `anchor` is the number of the anchor under which they were found. Of rows that were
    let go, `frozen` has what they say about theta under every candidate, and `gone` the pulls.
    """

    rows: FloatArray  # (rows, features)
    table: FloatArray  # pulls, successes and perhaps log y!, (2 or 3, rows)
    sites: FloatArray | None = None  # (3, candidates, rows)
    anchor: int = 0
    stale: tuple[int, ...] = ()
    frozen: FloatArray | None = None  # (candidates, d² + d + 1)
    gone: float = 0.0
    settled_before: Self | None = None  # what these were before rewards of the stale rows came
    REWARDS_ADD: ClassVar[bool] = False
    FAMILY: ClassVar[Family]
    ROWS: ClassVar[int]  # of the table

    @classmethod
    def zeros(cls, dim: int) -> Self:
        return cls(np.zeros((0, dim)), np.zeros((cls.ROWS, 0)))

    # what they say

    @property
    def pulls(self) -> float:
        """Of all rows, those that were let go too."""
        return float(np.add.reduce(self.table[0])) + self.gone

    @property
    def log_base(self) -> float:
        """What the log density of the rewards of these rows has in it besides eta, negated."""
        return float(self.table[2:].sum())

    @property
    def settled(self) -> bool:
        """Whether every row has the site of its rewards."""
        return not self.stale and (self.sites is not None or not len(self.rows))

    def sites_of(self, candidates: int) -> FloatArray:
        """The sites, zeros if there are none yet, or of another number of candidates."""
        if self.sites is None or self.sites.shape[1] != candidates:
            return np.zeros((3, candidates, len(self.rows)))
        return self.sites

    @property
    def gram(self) -> FloatArray:
        """Σ aaᵀ of all pulls; rows that were let go count as much as their sites say."""
        gram: FloatArray = (self.rows.T * self.table[0]) @ self.rows
        if self.frozen is None:
            return gram
        return gram + self.frozen[0, : gram.size].reshape(gram.shape)

    # more, or less, of them

    @classmethod
    def check_reward(cls, reward: Any) -> float:
        """The reward as a float, or an error where it cannot be one."""
        return cls.FAMILY.rewards.check_reward(reward)

    def add(self, action: Any, reward: Any) -> Self:
        """One more pull of the arm with features `action`; or several, a row each."""
        x = self._features(action)
        if x.ndim == 1:
            return self._with_row(x, self._column(1.0, self.check_reward(reward)))
        _as_many("reward", reward, x)
        columns = [self._column(1.0, self.check_reward(value)) for value in reward]
        return self._with_rows(x, columns)

    def add_counts(self, action: Any, pulls: Any, successes: Any) -> Self:
        """So many pulls of the arm with features `action`, and the sum of their rewards."""
        x, check = self._features(action), self.FAMILY.check_counts
        if x.ndim == 1:
            return self._with_row(x, self._column(*check(pulls, successes)))
        _as_many("pulls", pulls, x)
        _as_many("successes", successes, x)
        pairs = zip(pulls, successes, strict=True)
        return self._with_rows(x, [self._column(*check(n, s)) for n, s in pairs])

    def _features(self, action: Any) -> FloatArray:
        dim = self.rows.shape[1]
        clean = type(action) is np.ndarray and action.dtype == np.float64
        x: FloatArray = action if clean else checks.array("features", action)
        if x.shape[-1:] != (dim,) or x.ndim not in (1, 2):
            raise ValueError(f"features must end in {dim} numbers, got shape {x.shape}")
        checks.modest("features", x.ravel(), LARGEST)
        return x + 0.0  # no zero is negative: equal rows have equal bits

    def _column(self, n: float, s: float) -> FloatArray:
        if max(n, s) > MOST_REWARDS:
            raise InvalidValue("reward", f"too large: at most {MOST_REWARDS:g} can be counted")
        return np.array([n, s, math.lgamma(s + 1.0) - s * math.log(n)][: self.ROWS])

    def _with_row(self, x: FloatArray, column: FloatArray) -> Self:
        rows, sites, given = self.rows, self.sites, x.tolist()
        count = len(rows)
        place = bisect_left(range(count), given, key=lambda i: rows[i].tolist())
        if place < count and rows[place].tolist() == given:
            table, stale = self.table.copy(), self.stale
            table[:, place] += column
            if place not in stale:
                stale = (*stale, place)
        else:
            rows = np.concatenate([rows[:place], x[None], rows[place:]])
            table = _opened(self.table, place)
            table[:, place] = column
            sites = None if sites is None else _opened(sites, place)
            stale = (*(i + (i >= place) for i in self.stale), place)
        before = self if self.settled else self.settled_before
        anchor, frozen, gone = self.anchor, self.frozen, self.gone
        return type(self)(rows, table, sites, anchor, stale, frozen, gone, before)

    def _with_rows(self, x: FloatArray, columns: list[FloatArray]) -> Self:
        return self.with_table(x, np.array(columns).reshape(-1, self.ROWS).T)

    def with_table(self, rows: FloatArray, table: FloatArray) -> Self:
        """With more rows and their table, in any order; some may be the same or without pulls."""
        return self._merged(rows + 0.0, table, self.frozen, self.gone)

    def _merged(
        self, x: FloatArray, table: FloatArray, frozen: FloatArray | None, gone: float
    ) -> Self:
        """With more rows, of which some may be there already; rows without pulls go away."""
        rows = np.concatenate([self.rows, x])
        order = np.lexsort(rows.T[::-1])
        rows, tables = rows[order], np.concatenate([self.table, table], axis=1)[:, order]
        first = np.append(True, (rows[1:] != rows[:-1]).any(axis=1))[: len(rows)]
        starts = np.flatnonzero(first)
        new, sizes = (_grouped(part, starts) for part in (tables, np.abs(tables)))
        left = (np.abs(new[:2]) > ROUND_OFF * sizes[:2]).any(axis=0)
        changed = np.isin(order, self.stale) | (order >= len(self.rows))
        stale = np.flatnonzero(_grouped(changed[None].astype(float), starts)[0, left])
        sites = self.sites
        if sites is not None:
            wide = np.concatenate([sites, np.zeros((*sites.shape[:2], len(x)))], axis=2)
            sites = np.ascontiguousarray(_grouped(wide[..., order], starts)[..., left])
        kept, new, places = rows[starts][left], new[:, left].copy(), tuple(stale.tolist())
        return type(self)(kept, new, sites, self.anchor, places, frozen, gone)

    def __add__(self, other: Self) -> Self:
        self._like(other)
        if not (len(self.rows) or self.gone):
            return other
        return self._joined(other, 1.0)

    def __sub__(self, other: Self) -> Self:
        self._like(other)
        return self._joined(other, -1.0)

    def _joined(self, other: Self, sign: float) -> Self:
        frozen, gone = self.frozen, self.gone + sign * other.gone
        if other.frozen is not None:
            more = sign * other.frozen
            frozen = more if frozen is None else frozen + more
        if frozen is not None and not (gone or frozen.any()):
            frozen = None
        return self._merged(other.rows, sign * other.table, frozen, gone)

    def scaled(self, factor: float, *, afresh: bool = False) -> Self:
        """With sites that have less weight too: nearly those of so many pulls."""
        sites, frozen = (None if x is None else x * factor for x in (self.sites, self.frozen))
        anchor = OUTDATED if afresh else self.anchor
        table, gone = self.table * factor, self.gone * factor
        return type(self)(self.rows, table, sites, anchor, self.stale, frozen, gone)

    def _like(self, other: Self) -> None:
        mine, others = self.rows.shape[1], other.rows.shape[1]
        if mine != others:
            raise ValueError(f"statistics of {mine} features, and of {others}")
        if self.frozen is not None and other.frozen is not None:
            sizes = len(self.frozen), len(other.frozen)
            if sizes[0] != sizes[1]:
                raise ValueError(f"rows were let go under {sizes[0]} candidates, and {sizes[1]}")

    def with_sites(self, sites: FloatArray, anchor: int) -> Self:
        """With the site of every row; if there are too many rows, every second is let go."""
        if len(self.rows) <= MOST_ROWS:
            return type(self)(self.rows, self.table, sites, anchor, (), self.frozen, self.gone)
        go, stay = slice(0, None, 2), slice(1, None, 2)
        known = site_sums(sites[..., go], self.rows[go])
        base = self.table[2:, go].sum()
        frozen = frozen_sums(known._replace(log_s=known.log_s - base))
        if self.frozen is not None:
            frozen += self.frozen
        gone = self.gone + float(self.table[0, go].sum())
        rows, table = self.rows[stay].copy(), self.table[:, stay].copy()
        new = type(self)(rows, table, None, anchor, (), frozen, gone)
        return new.with_sites(sites[..., stay].copy(), anchor)

    def unsettled(self) -> Self:
        """The counts alone, and what is left of rows that were let go."""
        return type(self)(self.rows, self.table, frozen=self.frozen, gone=self.gone)

    # of agents

    @property
    def pending_shape(self) -> tuple[int, ...]:
        """Of pulls that were asked for and have no reward yet: their Gram matrix."""
        dim = self.rows.shape[1]
        return dim, dim

    def dwarfed_by(self, out: Self, factor: float) -> bool:
        """Whether what is left is round-off beside what was taken `out`, or what was taken out was
        not there any more: its row had been let go."""
        if (self.table[0] <= 0).any():
            return True
        taken, left = (np.abs(part.table).max(initial=0.0) for part in (out, self))
        return bool(taken > factor * left)

    # files

    def flat(self) -> FloatArray:
        """All numbers in one array, zeros if there are none; `from_flat` reads them back."""
        rows, dim = self.rows.shape
        sites = self.sites if self.settled else None
        if not rows and self.frozen is None:
            return np.zeros(dim + HEADER)
        parts = [part.ravel() for part in (sites, self.frozen) if part is not None]
        sizes = [0 if part is None else part.shape[-2] for part in (sites, self.frozen)]
        header = [self.gone, self.anchor if sizes[0] else 0, *sizes, rows, dim]
        return np.concatenate([self.rows.ravel(), self.table.ravel(), *parts, header])

    @classmethod
    def from_flat(cls, values: FloatArray) -> Self:
        if values.ndim != 1 or values.size <= HEADER:
            raise ValueError(f"{values.size} numbers are not statistics of rows of features")
        if not values[-HEADER:].any():
            return cls.zeros(values.size - HEADER)
        header = values[1 - HEADER :].tolist()
        anchor, candidates, parts, rows, dim = whole = [int(value) for value in header]
        shapes = [
            (rows, dim),
            (cls.ROWS, rows),
            (3, candidates, rows),
            (parts, dim * dim + dim + 1),
        ]
        sizes = [math.prod(shape) for shape in shapes]
        if whole != header or min(whole) < 0 or dim == 0 or sum(sizes) != values.size - HEADER:
            raise ValueError(f"{values.size} numbers are not statistics of {rows} rows of features")
        ends = np.cumsum(sizes)
        found = [
            part.reshape(shape).copy()
            for part, shape in zip(np.split(values[:-HEADER], ends[:-1]), shapes, strict=True)
        ]
        if (np.lexsort(found[0].T[::-1]) != np.arange(rows)).any():
            raise ValueError("rows of features are not sorted")
        sites, frozen = (found[2] if candidates else None), (found[3] if parts else None)
        return cls(found[0], found[1], sites, anchor, (), frozen, float(values[-HEADER]))


class ClickRows(RowSites):
    """Pulls and clicks of every row."""

    FAMILY: ClassVar[Family] = BINARY
    ROWS: ClassVar[int] = 2


class EventRows(RowSites):
    """Pulls, summed counts and summed log y! of every row."""

    FAMILY: ClassVar[Family] = COUNT
    ROWS: ClassVar[int] = 3


def _opened(columns: FloatArray, place: int) -> FloatArray:
    """With one more column at this place, of zeros."""
    new = np.zeros((*columns.shape[:-1], columns.shape[-1] + 1))
    new[..., :place], new[..., place + 1 :] = columns[..., :place], columns[..., place:]
    return new


def _grouped(columns: FloatArray, starts: Any) -> FloatArray:
    """Sums of the columns from each start to the next."""
    if not len(starts):
        return columns
    sums: FloatArray = np.add.reduceat(columns, starts, axis=-1)
    return sums


def _as_many(name: str, values: Any, rows: FloatArray) -> None:
    if np.shape(values) != rows.shape[:1]:
        raise ValueError(f"{name} of shape {np.shape(values)} for features of shape {rows.shape}")
