"""Mistakes in logs that would pass as data: swapped columns, rows that are in it twice, visitors
who come again."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.special import gammaincc

from adats.learning.log_columns import Plan, planned
from adats.learning.log_files import fetch, ibis
from adats.learning.logs import Batches, as_written
from adats.learning.tables import KINDS
from adats.models.core.types import FloatArray, IntArray, Task

SHARE = 0.01  # of rows that are in the log twice, where their times tell them apart
GROUPS = 20  # different rows, below which nothing is said
LIMIT = 100_000  # different rows that are looked at
HOUR = 3600.0
COUNT = "times in the log"
DECISION = "decision_id"
LEVEL = 0.003  # nominal; in simulations at most 1 in 100 logs without such variation is warned of
LEAST = 1.1  # a factor below which nobody need care
EXPECTED = 2.0  # successes and failures of a batch; smaller ones are joined with their neighbours


def swapped(table: Any) -> tuple[str, ...]:
    """A warning where tasks look like arms and arms like tasks."""
    if table.arms is None or len(table.arms) <= max(2 * len(table), 10):
        return ()
    if np.median((table.table[:, 0] > 0).sum(axis=0)) < 2:
        return ()
    return (
        f"the log has {len(table):,} tasks and {len(table.arms):,} arms: are the columns of tasks "
        f"and arms swapped? The first of each are {table.tasks[0]!r} and {table.arms[0]!r}",
    )


def duplicated(log: Any, *, tasks: Sequence[Task], **columns: Any) -> tuple[str, ...]:
    """A warning where rows of some tasks are in the log twice.

    Rows of one decision and arm are the same row. Without decisions: where times tell rows of a
    task apart, rows that are alike in all columns are; and where they do not, if nearly all
    different rows come an even number of times.
    """
    use = planned(log, **columns)
    keys = {name: column.name for name, column in use.keys.items()}
    some = use.log.filter(use.keys["task"].value.isin(as_written(use, tasks)))
    if DECISION in use.log.columns:
        names = list(dict.fromkeys([*keys.values(), DECISION]))
        some = some.filter(some[DECISION].notnull())
        if use.stats is None:  # a decision has several rows if it is a set of arms
            names += [column.name for column in use.numbers.values() if column.name not in names]
        found = _groups(some, names)
        again = float(found[COUNT].to_numpy().sum()) - len(found)
        if again:
            return (_text(again, found, f"share their {DECISION} and arm with another"),)
        return ()
    found = _groups(some, list(use.log.columns))
    n = found[COUNT].to_numpy().astype(np.float64)
    again = float(n.sum()) - n.size
    if n.size < GROUPS or not again:
        return ()
    if np.mean(n % 2 == 1) <= SHARE or (again > SHARE * n.sum() and _times_tell(use, found, keys)):
        return (_text(again, found, "are in it once more"),)
    return ()


def _groups(rows: Any, names: list[str]) -> Any:
    """Different rows, and how often each is there."""
    values = {f"c{i}": rows[name].cast("string") for i, name in enumerate(names)}
    grouped = rows.select(**values).group_by(list(values)).aggregate(**{COUNT: ibis()._.count()})
    return fetch(grouped.limit(LIMIT)).rename_columns([*names, COUNT])


def _times_tell(use: Plan, found: Any, keys: dict[str, str]) -> bool:
    """Whether different rows of a task have different times, which are not whole hours."""
    time = next((name for name in _time_names(use) if name in found.column_names), None)
    if time is None:
        return False
    pairs = set(zip(found[keys["task"]].to_pylist(), found[time].to_pylist(), strict=True))
    return len(pairs) > (1 - SHARE) * len(found) and not _whole_hours(found[time].to_pylist())


def _time_names(use: Plan) -> list[str]:
    return [value.get_name() for value in use.times.values()] + ["time", *use.log.columns]


def _whole_hours(times: list[Any]) -> bool:
    def seconds(text: Any) -> float:
        try:
            return float(text)
        except (TypeError, ValueError):
            pass
        try:
            clock = np.datetime64(str(text)[:26].rstrip("Z")).astype("datetime64[s]")
            return float(clock.astype(np.int64))
        except ValueError:
            return 0.5

    known: FloatArray = np.array([seconds(time) for time in times[:1000] if time is not None])
    return bool((known % HOUR == 0).all())


def _text(again: float, found: Any, how: str) -> str:
    n = found[COUNT].to_numpy()
    row = {k: v[0] for k, v in found.slice(int(n.argmax()), 1).to_pydict().items() if k != COUNT}
    return (
        f"of {n.sum():,.0f} rows that were looked at, {again:,.0f} {how}: is the log duplicated? "
        f"They count twice; for example {row}"
    )


# Do successes of one task and arm vary from batch to batch more than chance allows? They do where
# visitors come again and do the same again, or where rates change with time. A belief takes every
# pull for new evidence then, and is too sure.


class Dispersion(NamedTuple):
    """Variance of successes over the batches of a task and arm."""

    factor: float  # over that of a binomial, or of a Poisson for counts
    degrees: float  # of freedom; 0 where there is nothing to compare
    chance: float  # of such a factor or a larger one where all is right

    @property
    def warning(self) -> str | None:
        """What to tell the user, if anything."""
        if self.chance >= LEVEL or self.factor < LEAST:
            return None
        return (
            f"from batch to batch the successes of one task and arm vary {self.factor:.2g} times "
            f"as much as chance allows (variance, {self.degrees:,.0f} degrees of freedom): the "
            "same visitors may come again, or rates change with time; beliefs will be too sure, "
            f"their intervals too narrow by a factor of {math.sqrt(self.factor):.2g}; count a "
            f"visitor once, or divide pulls and successes by {self.factor:.2g}"
        )


def dispersion(batches: Batches, *, model: str) -> Dispersion:
    """A chi-square over the batches of every task and arm, given its pulls and its successes.

    Its mean and variance are exact: those of successes that are dealt to the pulls at random. Its
    tail is that of a gamma distribution with this mean and variance.
    """
    if not batches.cell.size:
        return Dispersion(1.0, 0.0, 1.0)
    cell, n, s = _joined(batches, model)
    binary = KINDS[model].MOST == 1.0
    pulls, wins, count, inverse = _sums(cell, n, s, np.ones(n.size), 1.0 / n)
    misses = pulls - wins if binary else pulls
    told = (count > 1) & (np.minimum(wins, misses) > 0)
    if not told.any():
        return Dispersion(1.0, 0.0, 1.0)
    kept = told[cell]
    cell, n, s = np.unique(cell[kept], return_inverse=True)[1], n[kept], s[kept]
    pulls, wins, misses, count, inverse = (
        part[told] for part in (pulls, wins, misses, count, inverse)
    )
    expected = n * (wins / pulls)[cell]
    within = expected * (misses / pulls)[cell]
    squares = float(((s - expected) ** 2 / within).sum())
    if binary:  # Haldane (1940), Dawson (1954)
        mean = (count - 1) * pulls / (pulls - 1)
        own = (pulls * inverse - count**2) / (pulls - 2)
        two = (pulls * (1 / wins + 1 / misses) - 4) / (pulls - 2)
        most = (count - 1) * (pulls - count) / (pulls - 1) - own
        variance = 2 * pulls / (pulls - 3) * most * ((pulls - 2) / (pulls - 1) - two)
        variance += pulls**2 / (pulls - 1) * own * two
    else:
        mean = count - 1
        variance = 2 * mean + (pulls * inverse - count**2 - 2 * mean) / wins
    total, spread = float(mean.sum()), float(variance.sum())
    chance = float(gammaincc(total**2 / spread, squares * total / spread)) if spread > 0 else 1.0
    return Dispersion(squares / total, total, chance)


def _sums(cell: IntArray, *values: FloatArray) -> list[FloatArray]:
    return [np.bincount(cell, value).astype(np.float64) for value in values]


def _joined(batches: Batches, model: str) -> Batches:
    """Batches of one cell joined until they expect enough successes and failures each."""
    cell = np.unique(batches.cell, return_inverse=True)[1]
    n, s = batches.pulls, batches.successes
    pulls, wins = _sums(cell, n, s)
    rare = np.minimum(wins, pulls - wins) if KINDS[model].MOST == 1.0 else wins
    parts = np.maximum(np.floor(rare / EXPECTED), 1.0)
    first = np.append(True, cell[1:] != cell[:-1])
    before = np.cumsum(n) - n
    middle = before - np.maximum.accumulate(np.where(first, before, 0.0)) + n / 2
    part = np.minimum(np.floor(middle / pulls[cell] * parts[cell]), parts[cell] - 1)
    new = first | np.append(True, part[1:] != part[:-1])
    place = np.cumsum(new) - 1
    return Batches(cell[new], *_sums(place, n, s))
