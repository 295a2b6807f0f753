"""Whether a store in SQLite is as it was written: all of it at once, or slice by slice.

A slice is some rows of a table: their checksums, and that their numbers and every index lead to
them. After the last slice of a table the entries of its indices are counted, so that no row can be
gone. The pages of a small table are looked at too: SQLite does that all at once, and whoever
forgets a task would wait for it.
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


class Scrub:
    """Looks at a store again and again, some rows at a time."""

    def __init__(self) -> None:
        self._start(next(iter(TABLES)))
        self.rounds = 0  # through all tables

    def _start(self, table: str) -> None:
        self._table, self._last, self._rows = table, 0, 0
        self._forgotten: int | None = None  # tasks, when the first slice was looked at

    def step(self, view: "SQLiteReadView", limit: int = SLICE) -> list[str]:
        """Look at the next slice; what is wrong with it."""
        table = self._table
        (forgotten,) = view.look(
            lambda connection: connection.execute(
                "SELECT count(*) FROM changes WHERE kind = 'forget'"
            ).fetchone()
        )
        if self._forgotten is None:
            self._forgotten = forgotten
        found, size, last = view.look(partial(_slice, table=table, after=self._last, limit=limit))
        self._rows += size
        if last is not None:
            self._last = last
            return found
        if forgotten == self._forgotten and not found:  # nothing was taken out meanwhile
            found += view.look(lambda connection: list(_counted(connection, table, self._rows)))
        if self._rows <= MOST_FOR_PAGES:
            found += view.look(lambda connection: list(_pages(connection, table)))
        if table == "experiments":
            found += _check_sums(view)
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


def _counted(connection: sqlite3.Connection, table: str, size: int) -> Iterator[str]:
    """Whether indices have as many entries as there are rows."""
    for index in TABLES[table].indices:
        where, due = "", size
        if index in PARTIAL:
            where = f"WHERE {PARTIAL[index]} IS NOT NULL"
            sql = f"SELECT count(*) FROM {table} NOT INDEXED {where}"
            (due,) = connection.execute(sql).fetchone()
        sql = f"SELECT count(rowid) FROM {table} INDEXED BY {index} {where}"  # count(*): any index
        (entries,) = connection.execute(sql).fetchone()
        if entries != due:
            yield f"{table} has {due} rows, {index} {entries}; restore a copy of the store"


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
