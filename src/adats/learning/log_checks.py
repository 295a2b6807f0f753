"""Mistakes in logs that would pass as data: swapped columns, rows that are in it twice."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from adats.learning.logs import as_written, planned
from adats.learning.logs.columns import Plan
from adats.learning.logs.reading import fetch, ibis
from adats.models.core.types import FloatArray, Task

SHARE = 0.01  # of rows that are in the log twice, where their times tell them apart
GROUPS = 20  # different rows, below which nothing is said
LIMIT = 100_000  # different rows that are looked at
HOUR = 3600.0
COUNT = "times in the log"
DECISION = "decision_id"


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
