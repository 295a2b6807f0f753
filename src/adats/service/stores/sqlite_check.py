"""Whether a store in SQLite is as it was written: all of it at once, or slice by slice.

A slice is some rows of a table: their checksums, and that their numbers and every index lead to
them. Then come slices of its indices: each entry has to lead to a row that has it, so that no row
can be gone. However large a store is, a look at it is short: whoever forgets a task waits for it.
The pages of a small table are looked at too, which SQLite does all at once.
"""

import sqlite3
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from adats.service.counters import SEVERAL, of_rewards, tally
from adats.service.errors import DamagedStore, StoreError
from adats.service.stores import interface
from adats.service.stores import sqlite_rows as rows

if TYPE_CHECKING:
    from adats.service.stores.sqlite import SQLiteReadView

SLICE = 1000  # rows
ENTRIES = 3  # of an index are looked at in the time of a row
MOST_FOR_PAGES = 20_000  # rows of a table whose pages are looked at all at once


class _Table(NamedTuple):
    columns: str
    parse: Callable[[Any], Any]
    indices: dict[str, str]  # the columns of each


TABLES = {
    "experiments": _Table(rows.columns(interface.ExperimentRow), rows.experiment_from, {}),
    "totals": _Table("experiment, total, crc", rows.total_from, {}),
    "tasks": _Table(
        f"experiment, task, {rows.columns(interface.TaskRow)}",
        rows.task_from,
        {
            "tasks_by_name": "experiment, task",
            "tasks_by_generation": "experiment, generation, task",
            "tasks_unfolded": "experiment, folded_in",
            "tasks_by_size": "experiment, size",
        },
    ),
    "decisions": _Table(
        rows.columns(interface.DecisionRow),
        rows.decision_from,
        {
            "decisions_by_name": "experiment, decision_id",
            "decisions_by_task": "experiment, task",
            "decisions_by_time": "experiment, time",
            "decisions_due": "due",
        },
    ),
    "rewards": _Table(
        rows.columns(interface.RewardRow),
        rows.reward_from,
        {"rewards_by_decision": "decision", "rewards_by_name": "decision, reward_id, reward"},
    ),
    "changes": _Table(rows.columns(interface.ChangeRow), rows.change_from, {}),
    "beliefs": _Table(
        rows.columns(interface.BeliefRow), rows.belief_from, {"beliefs_by_experiment": "experiment"}
    ),
    "keys": _Table(rows.columns(interface.KeyRow), rows.key_from, {}),
}
PARTIAL = {  # only where it is not null
    "tasks_by_generation": "generation",
    "tasks_unfolded": "folded_in",
    "tasks_by_size": "size",
    "decisions_due": "due",
}
NOT_NULL = {"rewards_by_name": "decision"}  # what an index is read by, as others may be null


class Scrub:
    """Looks at a store again and again, some rows at a time."""

    def __init__(self) -> None:
        self._start(next(iter(TABLES)))
        self.rounds = 0  # through all tables

    def _start(self, table: str) -> None:
        self._table, self._last, self._rows, self._rows_left = table, 0, 0, True
        self._indices = list(TABLES[table].indices)  # that are still to be looked at
        self._entry: tuple[Any, ...] | None = (
            None  # of the first of them: where the last slice ended
        )

    def step(self, view: "SQLiteReadView", limit: int = SLICE) -> list[str]:
        """Look at the next slice; what is wrong with it."""
        table = self._table
        if self._rows_left:
            look = partial(_slice, table=table, after=self._last, limit=limit)
            found, size, last = view.look(look)
            self._rows += size
            if last is not None:
                self._last = last
                return found
            if self._rows <= MOST_FOR_PAGES:
                found += view.look(lambda connection: list(_pages(connection, table)))
            if table == "experiments":
                found += _check_sums(view)
            self._rows_left = False
        else:
            entries = partial(_entries, table=table, index=self._indices[0])
            look_at = partial(entries, after=self._entry, limit=ENTRIES * limit)
            found, self._entry = view.look(look_at)
            if self._entry is None:
                del self._indices[0]
        if not self._indices:
            following = dict(zip(TABLES, [*TABLES][1:], strict=False)).get(table)
            self.rounds += following is None
            self._start(following or next(iter(TABLES)))
        return found


def check_whole(view: "SQLiteReadView") -> Iterator[str]:
    """All that is wrong with a store, which may be in use."""
    try:
        yield from view.look(_integrity)
        for table in TABLES:
            last: int | None = 0
            while last is not None:
                look = partial(_slice, table=table, after=last, limit=SLICE)
                found, _, last = view.look(look)
                yield from found
        for row in view.experiments():
            yield from _check_counters(view, row)
    except (DamagedStore, StoreError) as error:
        yield str(error)


def _integrity(connection: sqlite3.Connection) -> list[str]:
    found = [str(row[0]) for row in connection.execute("PRAGMA integrity_check(10)")]
    return [" ".join(line.split()) for line in found if line != "ok"]


def _slice(
    connection: sqlite3.Connection, table: str, after: int, limit: int
) -> tuple[list[str], int, int | None]:
    """What is wrong with some rows, how many, and the last; None if it was the last of all."""
    what, found, size, last = TABLES[table], [], 0, None
    part = f"FROM {table} NOT INDEXED WHERE rowid > ? ORDER BY rowid LIMIT ?"
    try:
        kept = connection.execute(f"SELECT rowid, {what.columns} {part}", (after, limit)).fetchall()
        for _, *row in kept:
            try:
                what.parse(row)
            except DamagedStore as error:
                found.append(str(error))
        found += _not_found(connection, table, part, (after, limit))
        for index, columns in what.indices.items():
            found += _not_in_index(connection, table, index, columns, part, (after, limit))
        size, last = len(kept), kept[-1][0] if len(kept) == limit else None
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        if isinstance(error, sqlite3.OperationalError) and "decode" not in str(error):
            raise
        found.append(f"{table} cannot be read: {error}; restore a copy of the store")
    return found, size, last


def _not_found(
    connection: sqlite3.Connection, table: str, part: str, values: tuple[int, int]
) -> Iterator[str]:
    """Rows that are there, but not where one looks for their number."""
    sql = (
        f"SELECT count(*) FROM (SELECT rowid AS row {part}) s WHERE NOT EXISTS "
        f"(SELECT 1 FROM {table} t WHERE t.rowid = s.row)"
    )
    (lost,) = connection.execute(sql, values).fetchone()
    if lost:
        yield f"{lost} rows of {table} are not in their place; restore a copy of the store"


def _not_in_index(
    connection: sqlite3.Connection,
    table: str,
    index: str,
    columns: str,
    part: str,
    values: tuple[int, int],
) -> Iterator[str]:
    same = " AND ".join(f"i.{name} IS s.{name}" for name in columns.split(", "))
    there = f"AND {PARTIAL[index]} IS NOT NULL" if index in PARTIAL else ""
    sql = (
        f"SELECT count(*) FROM (SELECT rowid AS row, {columns} {part}) s WHERE 1 {there} AND NOT "
        f"EXISTS (SELECT 1 FROM {table} i INDEXED BY {index} WHERE {same} AND i.rowid = s.row "
        f"{there.replace('AND ', 'AND i.')})"
    )
    (lost,) = connection.execute(sql, values).fetchone()
    if lost:
        yield f"{lost} rows of {table} are not in {index}; restore a copy of the store"


def _pages(connection: sqlite3.Connection, table: str) -> Iterator[str]:
    """What is wrong with the pages of a table and of its indices."""
    for (line,) in connection.execute(f"PRAGMA quick_check({table})"):
        if line != "ok":
            yield f"{table}: {' '.join(line.split())}; restore a copy of the store"


def _entries(
    connection: sqlite3.Connection,
    table: str,
    index: str,
    after: tuple[Any, ...] | None,
    limit: int,
) -> tuple[list[str], tuple[Any, ...] | None]:
    """What is wrong with some entries of an index, and the last; None if it was the last of all.

    Entries are read on from the last one: first the rest of those that differ in their row only.
    """
    columns = TABLES[table].indices[index]
    key = NOT_NULL.get(index, columns)
    same = " AND ".join(f"t.{name} IS s.{name}" for name in columns.split(", "))
    entries = (
        f"SELECT NOT EXISTS (SELECT 1 FROM {table} t NOT INDEXED WHERE t.rowid = s.rowid AND "
        f"{same}), {key}, s.rowid FROM {table} s INDEXED BY {index} "
        f"WHERE {PARTIAL.get(index, 'rowid')} IS NOT NULL"
    )
    order = f"ORDER BY {key}, s.rowid" if key == columns else f"ORDER BY {key}"
    rows: list[tuple[Any, ...]] = []
    try:
        if after is None:
            rows = connection.execute(f"{entries} {order} LIMIT ?", (limit,)).fetchall()
        else:
            *at, row = after
            places = ", ".join("?" * len(at))
            if key == columns:
                rest = f"{entries} AND ({key}) = ({places}) AND s.rowid > ? {order} LIMIT ?"
                rows = connection.execute(rest, (*at, row, limit)).fetchall()
            following = f"{entries} AND ({key}) > ({places}) {order} LIMIT ?"
            rows += connection.execute(following, (*at, limit - len(rows))).fetchall()
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        if isinstance(error, sqlite3.OperationalError) and "decode" not in str(error):
            raise
        return [f"{index} cannot be read: {error}; restore a copy of the store"], None
    last = rows[-1][1:] if len(rows) == limit else None
    if last is not None and key != columns:  # the others with the last key come next
        rows = [row for row in rows if row[1] != last[0]] or rows
        last = rows[-1][1:]
    lost = sum(row[0] for row in rows)
    found = [f"{lost} rows of {table} are in {index} only; restore a copy of the store"]
    return found if lost else [], last


def _check_sums(view: "SQLiteReadView") -> list[str]:
    """That counters have their checksums, and add up to what their experiments say."""
    found = view.look(lambda connection: list(_pages(connection, "hourly")))
    try:
        for row in view.experiments():
            counts = view.counts(row.id)
            several = any(bucket.arm == SEVERAL for bucket in counts)
            own = of_rewards(counts, several=several).values()
            said = (sum(n.decisions for n in own), sum(n.counted for n in own))
            if said != (row.decisions, row.counted):
                found.append(f"the counters of experiment {row.name!r} do not agree")
    except DamagedStore as error:
        found.append(str(error))
    return found


def _check_counters(view: "SQLiteReadView", row: interface.ExperimentRow) -> Iterator[str]:
    """That they are those of the log."""
    counts: dict[interface.Bucket, interface.Counts] = {}
    made = counted = 0
    received = {}
    for decision in view.decisions(row.id):
        tally(counts, decision, row.days_until)
        made, counted = made + 1, counted + (decision.counted is not None)
        if decision.received:
            received[decision.id] = decision.received
    tasks = sum(1 for _ in view.tasks(row.id))
    if (row.tasks, row.decisions, row.counted) != (tasks, made, counted):
        yield (
            f"experiment {row.name!r} says {row.tasks} tasks, {row.decisions} decisions and "
            f"{row.counted} rewards that count; there are {tasks}, {made} and {counted}"
        )
    if view.counts(row.id) != counts:
        yield f"the counters of experiment {row.name!r} are not those of its log"
    for reward in view.rewards(row.id):
        received[reward.decision] = received.get(reward.decision, 0) - 1
    wrong = sum(left != 0 for left in received.values())
    if wrong:
        yield f"{wrong} decisions of experiment {row.name!r} do not have the rewards they say"
