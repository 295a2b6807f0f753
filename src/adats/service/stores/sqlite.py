"""The store in one SQLite file: a write-ahead log, synced at every commit.

Beside the file lies its witness: how many commits there have been, written after each of them. A
store with fewer commits than its witness has lost some, and is not opened. Rows have a checksum,
and none is used that is not as it was written.
"""

import errno
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from adats.models.core.errors import FileFormatError
from adats.service.errors import DamagedStore, StoreError
from adats.service.stores import sqlite_rows as rows
from adats.service.stores.interface import (
    ChangeRow,
    DecisionCounts,
    DecisionRow,
    ExperimentRow,
    KeyRow,
    Reward,
    RewardMoments,
    RewardRow,
    TaskRow,
)
from adats.service.stores.sqlite_file import (
    LOCK_WAIT,
    Witness,
    check_file,
    connect,
    file_ids,
    open_to_write,
    real_path,
    upgrade,
)

Values = Sequence[Any] | dict[str, Any]

_EXPERIMENT = rows.columns(ExperimentRow)
_DECISION = rows.columns(DecisionRow)
_REWARD = rows.columns(RewardRow)


class SQLiteReader:
    """Rows out of a connection; what the store and its views share."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def _run(self, sql: str, values: Values = ()) -> sqlite3.Cursor:
        try:
            return self._connection.execute(sql, values)
        except sqlite3.Error as error:
            raise _explained(error) from error

    def _all(self, sql: str, values: Values = ()) -> Iterator[Any]:
        try:
            cursor = self._connection.execute(sql, values)
            yield from iter(cursor.fetchone, None)  # a cursor would be closed, maybe too late
        except sqlite3.Error as error:
            raise _explained(error) from error

    def _one(self, sql: str, values: Values = ()) -> Any:
        try:
            return self._connection.execute(sql, values).fetchone()
        except sqlite3.Error as error:
            raise _explained(error) from error

    def experiment(self, tenant: str, name: str) -> ExperimentRow | None:
        where = "tenant = ? AND name = ?"
        row = self._one(f"SELECT {_EXPERIMENT} FROM experiments WHERE {where}", (tenant, name))
        return None if row is None else rows.experiment_from(row)

    def by_id(self, experiment: int) -> ExperimentRow:
        row = self._one(f"SELECT {_EXPERIMENT} FROM experiments WHERE id = ?", (experiment,))
        return rows.experiment_from(row)

    def experiments(self, tenant: str | None = None) -> list[ExperimentRow]:
        where, values = ("WHERE tenant = ?", (tenant,)) if tenant is not None else ("", ())
        sql = f"SELECT {_EXPERIMENT} FROM experiments {where} ORDER BY tenant, name"
        return [rows.experiment_from(row) for row in self._all(sql, values)]

    def task(self, experiment: int, task: str) -> TaskRow | None:
        sql = "SELECT stats, rounds, pending, crc FROM tasks WHERE experiment = ? AND task = ?"
        row = self._one(sql, (experiment, task))
        return None if row is None else rows.task_from(experiment, task, row)

    def tasks(self, experiment: int) -> Iterator[tuple[str, TaskRow]]:
        sql = "SELECT stats, rounds, pending, crc, task FROM tasks WHERE experiment = ? ORDER BY id"
        for *row, task in self._all(sql, (experiment,)):
            yield task, rows.task_from(experiment, task, row)

    def decisions(self, experiment: int) -> Iterator[DecisionRow]:
        sql = f"SELECT {_DECISION} FROM decisions NOT INDEXED WHERE experiment = ? ORDER BY id"
        yield from map(rows.decision_from, self._all(sql, (experiment,)))

    def changes(self, experiment: int) -> Iterator[ChangeRow]:
        sql = "SELECT * FROM changes WHERE experiment = ? ORDER BY rowid"
        yield from map(rows.change_from, self._all(sql, (experiment,)))

    def counts(self, experiment: int) -> tuple[int, int, int]:
        """Tasks, decisions, and decisions with a reward that counts."""
        tasks = self._one("SELECT count(*) FROM tasks WHERE experiment = ?", (experiment,))
        sql = "SELECT count(*), count(counted) FROM decisions WHERE experiment = ?"
        return (*tasks, *self._one(sql, (experiment,)))

    def key_rows(self) -> list[KeyRow]:
        return list(map(rows.key_from, self._all("SELECT * FROM keys ORDER BY created")))


class SQLiteReadView(SQLiteReader):
    """Reading what is committed, as it was when the view was opened."""

    def __init__(self, path: Path) -> None:
        try:
            super().__init__(connect(real_path(path), mode="ro"))
        except sqlite3.Error as error:
            raise _explained(error) from error
        self._run("BEGIN")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._connection.close()

    def rewards(self, experiment: int) -> Iterator[RewardRow]:
        sql = f"SELECT {_REWARD} FROM rewards WHERE experiment = ? ORDER BY id"
        yield from map(rows.reward_from, self._all(sql, (experiment,)))

    def decision_counts(self, experiment: int, over: float | None) -> DecisionCounts:
        """Decisions made up to `over` had a window that has ended."""
        ended = -1.0 if over is None else over
        sql = (
            "SELECT count(*), count(DISTINCT task), count(counted), "
            "total(reward IS NULL AND time > :ended), total(reward IS NULL AND time <= :ended), "
            "total(explored) FROM decisions WHERE experiment = :experiment"
        )
        row = self._one(sql, {"ended": ended, "experiment": experiment})
        return DecisionCounts(*map(int, row))

    def overdue(self, experiment: int, now: float) -> float | None:
        """When the first decision was made whose window is over and which is not settled."""
        sql = "SELECT min(time) FROM decisions WHERE experiment = ? AND due <= ?"
        first: float | None = self._one(sql, (experiment, now))[0]
        return first

    def due_count(self, now: float) -> int:
        """Decisions of all experiments whose window is over and which are not settled."""
        return int(self._one("SELECT count(*) FROM decisions WHERE due <= ?", (now,))[0])

    def newest_time(self) -> float | None:
        """Of the last decisions and rewards; None if there are none."""
        last = "SELECT max(time) AS time FROM (SELECT time FROM {} ORDER BY id DESC LIMIT 1000)"
        both = f"{last.format('decisions')} UNION ALL {last.format('rewards')}"
        newest: float | None = self._one(f"SELECT max(time) FROM ({both})")[0]
        return newest

    def reward_moments(self, experiment: int, over: float | None) -> dict[int, RewardMoments]:
        """Rewards of decisions that were held out, 1, and of those that could have been, 0."""
        sql = """
            WITH counted_rewards AS (
                SELECT holdout, CASE typeof(counted) WHEN 'text'
                    THEN (SELECT total(value) FROM json_each(counted)) ELSE counted END AS y
                FROM decisions WHERE experiment = :experiment AND counted IS NOT NULL
                    AND holdout IS NOT NULL AND (:over IS NULL OR time <= :over)
            ), means AS (
                SELECT holdout, count(*) AS n, avg(y) AS mean FROM counted_rewards GROUP BY holdout
            )
            SELECT holdout, n, mean, total((y - mean) * (y - mean))
            FROM counted_rewards JOIN means USING (holdout) GROUP BY holdout
        """
        found = self._all(sql, {"over": over, "experiment": experiment})
        return {held_out: RewardMoments(*moments) for held_out, *moments in found}


class SQLiteStore(SQLiteReader):
    """Writing: one process and one engine at a time."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Open a store, or make one. A file that is damaged or not a store raises."""
        self.path = real_path(path)
        if self.path.is_dir() or not self.path.parent.is_dir():
            raise FileFormatError(f"{path} cannot be a store: give a file in a folder that exists")
        check_file(self.path)
        self._witness = Witness(self.path)
        try:
            super().__init__(open_to_write(self.path))
            upgrade(self._connection, self.path)
            (self._commits,) = self._one("SELECT count FROM commits")
            self._witness.write(self._commits)  # the last may not be in it, if it was cut off
            self._file_ids = file_ids(self.path)
        except BaseException:
            self._witness.close()
            raise
        self._changed = self._write_anyway = self._broken = self._forgot = False

    def begin(self) -> None:
        if self._broken:
            self._reopen()
        if file_ids(self.path) != self._file_ids:
            raise StoreError("its file, or the -wal beside it, was taken away; bring it back")
        self._run("BEGIN IMMEDIATE")
        self._changed = self._write_anyway

    def commit(self) -> None:
        """Durable when it returns."""
        if self._changed:
            self._run("UPDATE commits SET count = ?", (self._commits + 1,))
        self._run("COMMIT")
        if self._changed:
            self._commits += 1
            self._write_anyway = False
            with suppress(OSError):  # the store has it, and the next commit tells the witness again
                self._witness.write(self._commits)
        if self._forgot:
            self._clear_log()

    def _clear_log(self) -> None:
        """What was forgotten is in the log still; while somebody reads it, it cannot be cleared."""
        with suppress(sqlite3.Error):
            row = self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            self._forgot = bool(row[0])

    def rollback(self) -> None:
        """The next commit writes in any case: only that shows whether it can be done again."""
        self._write_anyway = True
        try:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        except sqlite3.Error:  # the file itself has trouble: begin anew with it
            self._connection.close()
            self._broken = True

    def _reopen(self) -> None:
        try:
            self._commits = check_file(self.path, self._commits)
            self._connection = open_to_write(self.path)
            upgrade(self._connection, self.path)
            self._file_ids = file_ids(self.path)
        except FileFormatError as error:
            raise StoreError(str(error)) from None
        self._broken = False

    def close(self) -> None:
        self._connection.close()
        self._witness.close()

    def view(self) -> SQLiteReadView:
        return SQLiteReadView(self.path)

    def _write(self, sql: str, values: Sequence[Any]) -> sqlite3.Cursor:
        self._changed = True
        return self._run(sql, values)

    def add_experiment(self, row: ExperimentRow) -> int:
        return self._write(rows.ADD_EXPERIMENT, rows.without_id(row)).lastrowid or 0

    def save_experiment(self, row: ExperimentRow) -> None:
        sql = (
            "UPDATE experiments SET version = ?, prior_version = ?, arms = ?, total = ?, crc = ? "
            "WHERE id = ?"
        )
        *_, crc = rows.without_id(row)
        self._write(sql, (row.version, row.prior_version, row.arms, row.total, crc, row.id))

    def save_task(self, experiment: int, task: str, row: TaskRow, generation: int | None) -> None:
        crc = rows.task_checksum(experiment, task, row)
        self._write(
            "INSERT INTO tasks (experiment, task, stats, rounds, pending, crc, generation) "
            "VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (experiment, task) DO UPDATE SET "
            "stats = excluded.stats, rounds = excluded.rounds, pending = excluded.pending, "
            "crc = excluded.crc, generation = excluded.generation",
            (experiment, task, *row, crc, generation),
        )

    def tasks_before(
        self, experiment: int, generation: int, after: tuple[int, str], limit: int
    ) -> list[tuple[int, str]]:
        """The next tasks of earlier generations after this one, with their generations."""
        sql = (
            "SELECT generation, task FROM tasks WHERE experiment = ? AND generation < ? "
            "AND (generation, task) > (?, ?) ORDER BY generation, task LIMIT ?"
        )
        return list(self._all(sql, (experiment, generation, *after, limit)))

    def counted(self, experiment: int, task: str) -> list[DecisionRow]:
        """The decisions of a task whose rewards are in its statistics."""
        sql = (
            f"SELECT {_DECISION} FROM decisions WHERE experiment = ? AND task = ? "
            "AND counted IS NOT NULL ORDER BY id"
        )
        return [rows.decision_from(row) for row in self._all(sql, (experiment, task))]

    def forget(self, experiment: int, task: str) -> None:
        mine = "experiment = ? AND task = ?"
        of_task = f"SELECT id FROM decisions WHERE {mine}"
        self._write(f"DELETE FROM rewards WHERE decision IN ({of_task})", (experiment, task))
        self._write(f"DELETE FROM decisions WHERE {mine}", (experiment, task))
        self._write(f"DELETE FROM tasks WHERE {mine}", (experiment, task))
        self._forgot = True

    def decision(self, experiment: int, decision_id: str) -> DecisionRow | None:
        sql = f"SELECT {_DECISION} FROM decisions WHERE experiment = ? AND decision_id = ?"
        row = self._one(sql, (experiment, decision_id))
        return None if row is None else rows.decision_from(row)

    def add_decision(self, row: DecisionRow) -> int:
        return self._write(rows.ADD_DECISION, rows.decision_to_keep(row)).lastrowid or 0

    def save_decision(self, row: DecisionRow) -> None:
        self._write(
            "UPDATE decisions SET due = ?, settled = ?, received = ?, reward = ?, counted = ?, "
            "crc = ? WHERE id = ?",
            (*rows.decision_to_keep(row)[-6:], row.id),
        )

    def due(self, now: float, limit: int) -> list[DecisionRow]:
        sql = f"SELECT {_DECISION} FROM decisions WHERE due <= ? ORDER BY due, id LIMIT ?"
        return [rows.decision_from(row) for row in self._all(sql, (now, limit))]

    def earlier_rewards(
        self, decision: int, reward: Reward, reward_id: str | None
    ) -> list[RewardRow]:
        """By an index each, however many there are."""
        last = "SELECT id FROM rewards WHERE decision = :decision ORDER BY id DESC LIMIT 1"
        same = "SELECT id FROM rewards WHERE decision = :decision AND reward_id = :reward_id"
        if reward_id is None:
            same = (
                "SELECT id FROM rewards WHERE decision = :decision AND reward_id IS NULL "
                "AND reward IN (:as_kept, :as_given)"
            )
        sql = (
            f"SELECT {_REWARD} FROM rewards WHERE id IN (SELECT id FROM ({last}) UNION {same}) "
            "ORDER BY id"
        )
        values = {
            "decision": decision,
            "reward_id": reward_id,
            "as_kept": rows.reward_column(reward),
            "as_given": rows.to_column(reward),  # as earlier versions kept it
        }
        return [rows.reward_from(row) for row in self._all(sql, values)]

    def add_reward(self, row: RewardRow) -> None:
        self._write(rows.ADD_REWARD, rows.reward_to_keep(row))

    def add_change(self, row: ChangeRow) -> None:
        self._write(rows.ADD_CHANGE, rows.whole(row))


class SQLiteKeys(SQLiteReader):
    """The keys of a store, which may be in use."""

    def __init__(self, path: Path, *, make: bool = False) -> None:
        if not (make or path.exists()):
            raise FileNotFoundError(errno.ENOENT, "there is no such store", str(path))
        real = real_path(path)
        check_file(real)
        super().__init__(open_to_write(real, wait=LOCK_WAIT))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def add(self, row: KeyRow) -> None:
        self._run(rows.ADD_KEY, rows.whole(row))

    def remove(self, key: str, mark: KeyRow) -> bool:
        """Whether there was such a key. The mark stays in its place: keys have been in use."""
        self._run("BEGIN IMMEDIATE")
        found = self._run("DELETE FROM keys WHERE id = ?", (key,)).rowcount > 0
        if found:
            self._run("DELETE FROM keys WHERE id = ?", (mark.id,))
            self.add(mark)
        self._run("COMMIT")
        return found


def _explained(error: sqlite3.Error) -> Exception:
    if isinstance(error, sqlite3.OperationalError) and "decode" not in str(error):
        return StoreError(str(error))  # locked, full, an error of the disk
    return DamagedStore(f"the store is damaged: {error}; restore a copy of it")
