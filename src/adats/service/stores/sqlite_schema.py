"""The tables of a store in SQLite, version by version, and how one becomes the next."""

import sqlite3
from collections.abc import Callable
from functools import cache
from typing import Any

from adats.service.counters import days_until, tally
from adats.service.stores import sqlite_rows as rows
from adats.service.stores.interface import Bucket, Counts, DecisionRow, ExperimentRow, TaskRow

Version = tuple[str, Callable[[sqlite3.Connection], None] | None]

APPLICATION_ID = 0x61646174  # "adat"

VERSION_1 = """
CREATE TABLE commits (count INTEGER NOT NULL);
INSERT INTO commits VALUES (0);
CREATE TABLE experiments (
    id INTEGER PRIMARY KEY, tenant TEXT NOT NULL, name TEXT NOT NULL, spec TEXT NOT NULL,
    seed INTEGER NOT NULL, version INTEGER NOT NULL, prior_version INTEGER NOT NULL,
    arms TEXT NOT NULL, total BLOB NOT NULL, crc INTEGER NOT NULL,
    UNIQUE (tenant, name)
);
CREATE TABLE tasks (
    id INTEGER PRIMARY KEY, experiment INTEGER NOT NULL, task TEXT NOT NULL,
    stats BLOB NOT NULL, rounds INTEGER NOT NULL, pending BLOB, crc INTEGER NOT NULL
);
CREATE UNIQUE INDEX tasks_by_name ON tasks (experiment, task);
CREATE TABLE decisions (
    id INTEGER PRIMARY KEY, experiment INTEGER NOT NULL, seq INTEGER NOT NULL,
    decision_id TEXT NOT NULL, task TEXT NOT NULL, action TEXT NOT NULL, features BLOB,
    request TEXT, propensity, state_version INTEGER NOT NULL, prior_version INTEGER NOT NULL,
    time NOT NULL, explored INTEGER NOT NULL, holdout INTEGER, due, settled INTEGER,
    received INTEGER NOT NULL, reward, counted, crc INTEGER NOT NULL
);
CREATE UNIQUE INDEX decisions_by_name ON decisions (experiment, decision_id);
CREATE INDEX decisions_by_task ON decisions (experiment, task);
CREATE INDEX decisions_due ON decisions (due) WHERE due IS NOT NULL;
CREATE TABLE rewards (
    id INTEGER PRIMARY KEY, experiment INTEGER NOT NULL, seq INTEGER NOT NULL,
    decision INTEGER NOT NULL, reward NOT NULL, reward_id TEXT, time NOT NULL,
    crc INTEGER NOT NULL
);
CREATE INDEX rewards_by_decision ON rewards (decision);
CREATE TABLE changes (
    experiment INTEGER NOT NULL, seq INTEGER NOT NULL, kind TEXT NOT NULL, data TEXT NOT NULL,
    time NOT NULL, crc INTEGER NOT NULL
);
CREATE TABLE keys (
    id TEXT PRIMARY KEY, tenant TEXT NOT NULL, hash BLOB NOT NULL, write INTEGER NOT NULL,
    created NOT NULL, crc INTEGER NOT NULL
);
"""
VERSION_2 = """
ALTER TABLE tasks ADD COLUMN generation INTEGER;
CREATE INDEX tasks_by_generation ON tasks (experiment, generation, task)
    WHERE generation IS NOT NULL;
"""
VERSION_3 = """
CREATE INDEX rewards_by_name ON rewards (decision, reward_id, reward);
"""
VERSION_4 = """
ALTER TABLE decisions RENAME COLUMN seq TO version;
ALTER TABLE rewards RENAME COLUMN seq TO version;
ALTER TABLE changes RENAME COLUMN seq TO version;
ALTER TABLE decisions ADD COLUMN place INTEGER NOT NULL DEFAULT 0;
ALTER TABLE decisions ADD COLUMN settled_place INTEGER NOT NULL DEFAULT 0;
ALTER TABLE rewards ADD COLUMN place INTEGER NOT NULL DEFAULT 0;
ALTER TABLE experiments ADD COLUMN tasks INTEGER NOT NULL DEFAULT 0;
ALTER TABLE experiments ADD COLUMN decisions INTEGER NOT NULL DEFAULT 0;
ALTER TABLE experiments ADD COLUMN counted INTEGER NOT NULL DEFAULT 0;
ALTER TABLE experiments ADD COLUMN days_until INTEGER NOT NULL DEFAULT 0;
ALTER TABLE experiments ADD COLUMN believed_at NOT NULL DEFAULT 0.0;
ALTER TABLE experiments ADD COLUMN believed_tasks INTEGER NOT NULL DEFAULT 0;
CREATE INDEX decisions_by_time ON decisions (experiment, time);
CREATE TABLE hourly (
    experiment INTEGER NOT NULL, start INTEGER NOT NULL, span INTEGER NOT NULL, arm TEXT NOT NULL,
    held_out INTEGER NOT NULL, decisions INTEGER NOT NULL, explored INTEGER NOT NULL,
    rewarded INTEGER NOT NULL, counted INTEGER NOT NULL, sum TEXT NOT NULL, squares TEXT NOT NULL,
    crc INTEGER NOT NULL, PRIMARY KEY (experiment, start, span, arm, held_out)
) WITHOUT ROWID;
CREATE TABLE beliefs (
    experiment INTEGER NOT NULL, version INTEGER NOT NULL, time NOT NULL, tasks INTEGER NOT NULL,
    mean BLOB NOT NULL, scale BLOB NOT NULL, best BLOB, crc INTEGER NOT NULL
);
CREATE INDEX beliefs_by_experiment ON beliefs (experiment);
"""
VERSION_5 = """
CREATE TABLE totals (experiment INTEGER PRIMARY KEY, total BLOB NOT NULL, crc INTEGER NOT NULL);
ALTER TABLE experiments ADD COLUMN total_version INTEGER NOT NULL DEFAULT 0;
ALTER TABLE tasks ADD COLUMN folded BLOB;
ALTER TABLE tasks ADD COLUMN folded_in INTEGER;
ALTER TABLE tasks ADD COLUMN size INTEGER;
CREATE INDEX tasks_by_size ON tasks (experiment, size) WHERE size IS NOT NULL;
CREATE INDEX tasks_unfolded ON tasks (experiment, folded_in) WHERE folded_in IS NOT NULL;
ALTER TABLE experiments ADD COLUMN status TEXT NOT NULL DEFAULT 'running';
ALTER TABLE tasks ADD COLUMN design BLOB;
ALTER TABLE decisions ADD COLUMN metrics TEXT;
ALTER TABLE decisions ADD COLUMN kept;
ALTER TABLE rewards ADD COLUMN metrics TEXT;
DROP TABLE hourly;
CREATE TABLE hourly (
    experiment INTEGER NOT NULL, start INTEGER NOT NULL, span INTEGER NOT NULL, arm TEXT NOT NULL,
    held_out INTEGER NOT NULL, metric TEXT NOT NULL, decisions INTEGER NOT NULL,
    explored INTEGER NOT NULL, rewarded INTEGER NOT NULL, counted INTEGER NOT NULL,
    nonzero INTEGER NOT NULL, unlikely INTEGER NOT NULL, sum TEXT NOT NULL, squares TEXT NOT NULL,
    crc INTEGER NOT NULL, PRIMARY KEY (experiment, start, span, arm, held_out, metric)
) WITHOUT ROWID;
"""


def _fill_version_4(connection: sqlite3.Connection) -> None:
    """Figures of what there is; seal what checksums did not cover."""
    for kept in connection.execute(f"SELECT {rows.columns(ExperimentRow)} FROM experiments"):
        *values, crc = kept
        size = ExperimentRow._fields.index("tasks")
        if crc != rows.checksum(values[1:size]):
            raise rows.damaged(f"experiment {values[2]!r}")
        row = ExperimentRow(*values)
        tasks = _seal_tasks(connection, row.id)
        (newest,) = connection.execute(
            "SELECT max(time) FROM decisions WHERE experiment = ?", (row.id,)
        ).fetchone()
        until = days_until(newest or 0.0)
        made = counted = 0
        for decision in _decisions(connection, row.id):
            made, counted = made + 1, counted + (decision.counted is not None)
        row = row._replace(tasks=tasks, decisions=made, counted=counted, days_until=until)
        connection.execute(rows.SAVE_EXPERIMENT.of(1), rows.sealed(row))


def _fill_version_5(connection: sqlite3.Connection) -> None:
    """What all tasks taught lies apart; counters have other columns."""
    for kept in connection.execute(f"SELECT {rows.columns(ExperimentRow)} FROM experiments"):
        row = rows.experiment_from(kept)
        assert row.total is not None
        connection.execute(rows.SAVE_TOTAL.of(1), rows.total_to_keep(row.id, row.total))
        row = row._replace(total=b"", total_version=row.version)
        connection.execute(rows.SAVE_EXPERIMENT.of(1), rows.sealed(row))
        counts: dict[Bucket, Counts] = {}
        for decision in _decisions(connection, row.id):
            tally(counts, decision, row.days_until)
        kept_counts = [rows.counts_to_keep(bucket, own) for bucket, own in counts.items()]
        connection.executemany(rows.SAVE_COUNTS.of(1), kept_counts)


def _seal_tasks(connection: sqlite3.Connection, experiment: int) -> int:
    """How many there are. Their generation was not in the checksum."""
    sql = f"SELECT experiment, task, {rows.columns(TaskRow)} FROM tasks WHERE experiment = ?"
    count = 0
    for of, task, *values, crc in connection.execute(sql, (experiment,)).fetchall():
        row, count = TaskRow(*values), count + 1
        if crc != rows.task_checksum((of, task), row._replace(generation=None)):
            raise rows.damaged(f"task {task!r}")
        if row.generation is not None:
            connection.execute(rows.SAVE_TASK.of(1), rows.task_to_keep((of, task), row))
    return count


def _decisions(connection: sqlite3.Connection, experiment: int) -> Any:
    sql = f"SELECT {rows.columns(DecisionRow)} FROM decisions NOT INDEXED WHERE experiment = ?"
    return map(rows.decision_from, connection.execute(sql, (experiment,)))


VERSIONS: tuple[Version, ...] = (
    (VERSION_1, None),
    (VERSION_2, None),
    (VERSION_3, None),
    (VERSION_4, _fill_version_4),
    (VERSION_5, _fill_version_5),
)
VERSION = len(VERSIONS)


def bring_up_to_date(connection: sqlite3.Connection, until: int = VERSION) -> None:
    """Make the tables of a new store, or those that an earlier version had not: all or nothing."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        missing = VERSIONS[version_of(connection) : until]
        _make_tables(connection, missing)
        for _, fill in missing:
            if fill is not None:
                fill(connection)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {until}")
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


def _make_tables(connection: sqlite3.Connection, versions: tuple[Version, ...]) -> None:
    for script, _ in versions:
        for statement in script.split(";")[:-1]:
            connection.execute(statement)


def version_of(connection: sqlite3.Connection) -> int:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return int(version)


def missing_part(connection: sqlite3.Connection, version: int) -> str | None:
    """A table, column or index that a store of this version has to have; other things may be there.

    It is not compared as text, which an administrator's tools may change.
    """
    found = _parts(connection)
    return next((name for name, part in _parts_of(version) if found.get(name) != part), None)


def _parts(connection: sqlite3.Connection) -> dict[str, Any]:
    """Columns by table and name, and indices by their name."""
    found: dict[str, Any] = {}
    listed = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    for (table,) in listed:
        for _, name, *kind in connection.execute("SELECT * FROM pragma_table_info(?)", (table,)):
            found[f"column {table}.{name}"] = (kind[0], kind[1], kind[3])  # without its default
        of_table = "SELECT name, [unique], partial FROM pragma_index_list(?)"
        for name, *how in connection.execute(of_table, (table,)).fetchall():
            sql = "SELECT name, [desc], coll FROM pragma_index_xinfo(?) WHERE key = 1"
            found[f"index {name}"] = (table, how, connection.execute(sql, (name,)).fetchall())
    return found


@cache
def _parts_of(version: int) -> list[tuple[str, Any]]:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    try:
        _make_tables(connection, VERSIONS[:version])
        return list(_parts(connection).items())
    finally:
        connection.close()
