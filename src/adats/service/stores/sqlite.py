"""The store in one SQLite file: a write-ahead log, synced before anybody has an answer.

A commit is written to the log, and `sync` waits until the log is on the disk; meanwhile the next
commit may be written. Beside the file lies its witness: how many commits there have been, written
after they were synced. A store with fewer than its witness has lost some, and is not opened. Rows
have a checksum, and none is used that is not as it was written.
"""

import errno
import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from adats.models.core.errors import FileFormatError
from adats.service.errors import DamagedStore, StoreError
from adats.service.stores import sqlite_rows as rows
from adats.service.stores.interface import (
    BeliefRow,
    Bucket,
    ChangeRow,
    Changes,
    Connected,
    Counts,
    DecisionKey,
    DecisionRow,
    ExperimentRow,
    KeyRow,
    Keys,
    LearnedReward,
    Loaded,
    RewardKey,
    RewardRow,
    Taken,
    TaskRow,
)
from adats.service.stores.sqlite_check import Scrub
from adats.service.stores.sqlite_file import (
    LOCK_WAIT,
    Witness,
    check_file,
    connect,
    file_ids,
    open_to_write,
    real_path,
    sync_file,
)

Values = Sequence[Any] | dict[str, Any]
T = TypeVar("T")
MOST_COUNTS = 10_000  # that are kept in memory
OF_EXPERIMENT = ("rewards", "decisions", "tasks", "totals", "changes", "hourly", "beliefs")
ROWS_AT_ONCE = 64  # in one statement
TROUBLE = (sqlite3.Error, UnicodeDecodeError)  # the latter for names in messages of the former

_OWN = ", ".join(f"e.{name}" for name in (*ExperimentRow._fields, rows.CHECKSUM))
_EXPERIMENTS = f"""SELECT {_OWN}, t.total, t.crc
FROM experiments e LEFT JOIN totals t ON t.experiment = e.id"""
_TASK = f"experiment, task, {rows.columns(TaskRow)}"
_DECISION = rows.columns(DecisionRow)
_REWARD = rows.columns(RewardRow)
_CHANGE = rows.columns(ChangeRow)
_BELIEF = rows.columns(BeliefRow)
_KEY = rows.columns(KeyRow)
_COUNTS = rows.columns(Bucket, Counts)


class SQLiteReader(Connected):
    """Rows out of a connection; what the store and its views share."""

    _connection: sqlite3.Connection

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def _run(self, sql: str, values: Values = ()) -> sqlite3.Cursor:
        try:
            return self._connection.execute(sql, values)
        except TROUBLE as error:
            raise _explained(error) from error

    def _all(self, sql: str, values: Values = ()) -> Iterator[Any]:
        try:
            cursor = self._connection.execute(sql, values)
            yield from iter(cursor.fetchone, None)  # a cursor would be closed, maybe too late
        except TROUBLE as error:
            raise _explained(error) from error

    def _run_rows(self, statement: rows.Statement, kept: Sequence[Sequence[Any]]) -> None:
        """In few statements, of which few texts are known: others can work during each of them."""
        start = 0
        while start < len(kept):
            size = min(ROWS_AT_ONCE, 1 << (len(kept) - start).bit_length() - 1)
            values = list(chain.from_iterable(kept[start : start + size]))
            self._run(statement.of(size), values)
            start += size

    def _named(self, sql: str, experiment: int, names: list[str]) -> Iterator[Any]:
        """Rows of an experiment by their names, which follow `sql`."""
        for start in range(0, len(names), ROWS_AT_ONCE):
            some = names[start : start + ROWS_AT_ONCE]
            size = 1 << (len(some) - 1).bit_length()  # few texts, with the last name repeated
            places = ", ".join("?" * size)
            values = (experiment, *some, *some[-1:] * (size - len(some)))
            yield from self._all(f"{sql} IN ({places})", values)

    def _one(self, sql: str, values: Values = ()) -> Any:
        try:
            return self._connection.execute(sql, values).fetchone()
        except TROUBLE as error:
            raise _explained(error) from error

    def look(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Whatever a check finds in the connection."""
        try:
            return work(self._connection)
        except TROUBLE as error:
            raise _explained(error) from error

    def experiment(self, tenant: str, name: str) -> ExperimentRow | None:
        row = self._one(f"{_EXPERIMENTS} WHERE e.tenant = ? AND e.name = ?", (tenant, name))
        return None if row is None else rows.with_total(row)

    def by_id(self, experiment: int) -> ExperimentRow:
        row = self._one(f"{_EXPERIMENTS} WHERE e.id = ?", (experiment,))
        if row is None:
            raise rows.damaged(f"experiment {experiment}")
        return rows.with_total(row)

    def experiments(self, tenant: str | None = None) -> list[ExperimentRow]:
        where, values = ("WHERE e.tenant = ?", (tenant,)) if tenant is not None else ("", ())
        sql = f"{_EXPERIMENTS} {where} ORDER BY e.tenant, e.name"
        return [rows.with_total(row) for row in self._all(sql, values)]

    def task(self, experiment: int, task: str) -> TaskRow | None:
        sql = f"SELECT {_TASK} FROM tasks WHERE experiment = ? AND task = ?"
        row = self._one(sql, (experiment, task))
        return None if row is None else rows.task_from(row)[1]

    def learned(self, experiment: int, task: str) -> tuple[LearnedReward, ...]:  # noqa: ARG002
        """Every commit folds what it has learned."""
        return ()

    def tasks(self, experiment: int) -> Iterator[tuple[str, TaskRow]]:
        sql = f"SELECT {_TASK} FROM tasks WHERE experiment = ? ORDER BY id"
        yield from map(rows.task_from, self._all(sql, (experiment,)))

    def stale_tasks(
        self, experiment: int, generation: int, after: tuple[int, str], limit: int
    ) -> list[tuple[int, str]]:
        sql = (
            "SELECT generation, task FROM tasks WHERE experiment = ? AND generation < ? "
            "AND (generation, task) > (?, ?) ORDER BY generation, task LIMIT ?"
        )
        return list(self._all(sql, (experiment, generation, *after, limit)))

    def unfolded_tasks(self, experiment: int, total_version: int) -> list[tuple[str, TaskRow]]:
        where = "experiment = ? AND folded_in = ?"  # by their own index: by name they are all read
        sql = f"SELECT {_TASK} FROM tasks WHERE {where} ORDER BY +task"
        return list(map(rows.task_from, self._all(sql, (experiment, total_version))))

    def decision(self, experiment: int, decision_id: str) -> DecisionRow | None:
        sql = f"SELECT {_DECISION} FROM decisions WHERE experiment = ? AND decision_id = ?"
        row = self._one(sql, (experiment, decision_id))
        return None if row is None else rows.decision_from(row)

    def decisions(
        self, experiment: int, since: float | None = None, before: float | None = None
    ) -> Iterator[DecisionRow]:
        table, where, values = "decisions NOT INDEXED", "experiment = ?", (experiment,)
        if since is not None and before is not None:
            table, where = "decisions", "experiment = ? AND time >= ? AND time < ?"
            values = (experiment, since, before)  # type: ignore[assignment]
        sql = f"SELECT {_DECISION} FROM {table} WHERE {where} ORDER BY id"
        yield from map(rows.decision_from, self._all(sql, values))

    def decisions_of(
        self, experiment: int, task: str, last: int | None = None
    ) -> list[DecisionRow]:
        sql = (
            f"SELECT {_DECISION} FROM decisions WHERE experiment = ? AND task = ? "
            "ORDER BY id DESC LIMIT ?"
        )
        found = list(self._all(sql, (experiment, task, -1 if last is None else last)))
        return [rows.decision_from(row) for row in reversed(found)]

    def largest_tasks(self, experiment: int, limit: int) -> list[str]:
        sql = (
            "SELECT task FROM tasks WHERE experiment = ? AND size IS NOT NULL "
            "ORDER BY size DESC LIMIT ?"
        )
        return [task for (task,) in self._all(sql, (experiment, limit))]

    def changes(self, experiment: int) -> Iterator[ChangeRow]:
        sql = f"SELECT {_CHANGE} FROM changes WHERE experiment = ? ORDER BY rowid"
        yield from map(rows.change_from, self._all(sql, (experiment,)))

    def counts(self, experiment: int) -> dict[Bucket, Counts]:
        sql = f"SELECT {_COUNTS} FROM hourly WHERE experiment = ? ORDER BY start"
        return dict(map(rows.counts_from, self._all(sql, (experiment,))))

    def beliefs(self, experiment: int) -> Iterator[BeliefRow]:
        sql = f"SELECT {_BELIEF} FROM beliefs WHERE experiment = ? ORDER BY rowid"
        yield from map(rows.belief_from, self._all(sql, (experiment,)))

    def key_rows(self) -> list[KeyRow]:
        return list(map(rows.key_from, self._all(f"SELECT {_KEY} FROM keys ORDER BY created")))


class SQLiteReadView(SQLiteReader):
    """Reading what is committed, as it was when the view was opened."""

    many_writers = False

    def __init__(self, path: Path) -> None:
        try:
            super().__init__(connect(real_path(path), mode="ro"))
        except sqlite3.Error as error:
            raise _explained(error) from error
        self._run("BEGIN")

    def unfolded(self, experiment: int) -> set[str]:  # noqa: ARG002
        return set()

    def rewards(self, experiment: int) -> Iterator[RewardRow]:
        sql = f"SELECT {_REWARD} FROM rewards WHERE experiment = ? ORDER BY id"
        yield from map(rows.reward_from, self._all(sql, (experiment,)))

    def overdue(self, experiment: int, now: float) -> float | None:
        """When the first decision was made whose window is over and which is not settled."""
        sql = (
            f"SELECT {_DECISION} FROM decisions INDEXED BY decisions_due "  # few, by time all
            "WHERE experiment = ? AND due <= ? ORDER BY time LIMIT 1"
        )
        first = self._one(sql, (experiment, now))
        return None if first is None else rows.decision_from(first).time

    def due_count(self, now: float) -> int:
        """Decisions of all experiments whose window is over and which are not settled."""
        return int(self._one("SELECT count(*) FROM decisions WHERE due <= ?", (now,))[0])

    def newest_time(self) -> float | None:
        """Of the last decisions and rewards that are whole; None if there are none."""
        last = "SELECT {} FROM {} ORDER BY id DESC LIMIT 1000"
        times = []
        for row in self._all(last.format(_DECISION, "decisions")):
            with suppress(DamagedStore):
                times.append(rows.decision_from(row).time)
        for row in self._all(last.format(_REWARD, "rewards")):
            with suppress(DamagedStore):
                times.append(rows.reward_from(row).time)
        return max(times, default=None)


class SQLiteStore(SQLiteReader):
    """Writing: one process and one engine at a time."""

    many_writers, waited = False, 0.0

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Open a store, or make one. A file that is damaged or not a store raises."""
        self.path = real_path(path)
        if self.path.is_dir() or not self.path.parent.is_dir():
            raise FileFormatError(f"{path} cannot be a store: give a file in a folder that exists")
        check_file(self.path)
        self._witness = Witness(self.path)
        self._log: int | None = None  # to sync it
        self._broken = False  # it has to be opened again
        self._unsafe = False  # a sync failed: what is in memory may build on what is lost
        try:
            self._open()
            (self._commits,) = self._one("SELECT count FROM commits")
            self.sync()  # the last may not be on the disk, or in the witness, if it was cut off
        except BaseException:
            self._witness.close()
            raise
        self._counts: dict[Bucket, Counts] = {}  # some of those that are in the store
        self._write_anyway = False
        # whether nothing of what was forgotten is left in the log
        self.erased = not os.path.getsize(f"{self.path}-wal")
        self._scrub = Scrub()
        self._new_experiments = 0

    def _open(self) -> None:
        super().__init__(open_to_write(self.path))
        self._run("PRAGMA synchronous = NORMAL")  # SQLite waits for the disk at a checkpoint only
        self._log = os.open(f"{self.path}-wal", os.O_RDONLY)
        self._file_ids = file_ids(self.path)
        self._synced = -1  # the commits that are on the disk

    def now(self) -> float:
        return time.time()

    def begin(self) -> None:
        if self._broken:
            self._reopen()
        if self._unsafe:
            raise StoreError("its log is to be written anew")
        if file_ids(self.path) != self._file_ids:
            raise StoreError("its file, or the -wal beside it, was taken away; bring it back")
        self._run("BEGIN IMMEDIATE")
        self._new_experiments = 0

    def load(self, keys: Keys) -> Loaded:
        found = Loaded({}, {}, {})
        for experiment, names in _by_experiment(keys.tasks):
            sql = f"SELECT {_TASK} FROM tasks WHERE experiment = ? AND task"
            for task, state in map(rows.task_from, self._named(sql, experiment, names)):
                found.tasks[experiment, task] = state
        named = ((key.experiment, key.decision_id) for key in keys.rewards)
        for experiment, names in _by_experiment(chain(keys.decisions, named)):
            sql = f"SELECT {_DECISION} FROM decisions WHERE experiment = ? AND decision_id"
            for row in map(rows.decision_from, self._named(sql, experiment, names)):
                found.decisions[experiment, row.decision_id] = row
        earlier: dict[DecisionKey, dict[int, RewardRow]] = {}
        for asked in keys.rewards:
            name = (asked.experiment, asked.decision_id)
            known = found.decisions.get(name)
            if known is not None and known.received:
                earlier.setdefault(name, {}).update(self._earlier(known.id, asked))
        for name, own in earlier.items():
            found.rewards[name] = [own[id] for id in sorted(own)]
        return found

    def _earlier(self, decision: int, asked: RewardKey) -> dict[int, RewardRow]:
        """Those that can matter to this reward: by an index each, however many there are."""
        last = "SELECT id FROM rewards WHERE decision = :decision ORDER BY id DESC LIMIT 1"
        same = "SELECT id FROM rewards WHERE decision = :decision AND reward_id = :reward_id"
        if asked.reward_id is None:
            same = (
                "SELECT id FROM rewards WHERE decision = :decision AND reward_id IS NULL "
                "AND reward IN (:as_kept, :as_given)"
            )
        sql = f"SELECT {_REWARD} FROM rewards WHERE id IN (SELECT id FROM ({last}) UNION {same})"
        values = {
            "decision": decision,
            "reward_id": asked.reward_id,
            "as_kept": rows.reward_column(asked.reward),
            "as_given": rows.to_column(asked.reward),  # as earlier versions kept it
        }
        return {row[0]: rows.reward_from(row) for row in self._all(sql, values)}

    def take(self, experiment: int, *, wait: bool = True) -> Taken | None:  # noqa: ARG002
        """Nobody else folds anything."""
        return None

    def waiting(self, for_long: float = 0.0) -> list[int]:  # noqa: ARG002
        return []

    def due(self, now: float, limit: int) -> list[DecisionRow]:
        sql = f"SELECT {_DECISION} FROM decisions WHERE due <= ? ORDER BY due, id LIMIT ?"
        return [rows.decision_from(row) for row in self._all(sql, (now, limit))]

    def new_experiment(self) -> int:
        self._new_experiments += 1
        (last,) = self._one("SELECT coalesce(max(id), 0) FROM experiments")
        return int(last) + self._new_experiments

    # writing

    def save(self, changes: Changes) -> None:
        """In the log when it returns. In any thread, while nobody else uses the store."""
        something = bool(changes) or self._write_anyway
        if something:
            self._write(changes)
            self._run("UPDATE commits SET count = ?", (self._commits + 1,))
        self._run("COMMIT")
        if something:
            self._commits += 1
            self._write_anyway = False
        if changes.forgotten or changes.deleted:
            self.erased = False
        if not self.erased:
            self._clear_log()

    def sync(self) -> None:
        """All of the log is on the disk when it returns, and the witness knows."""
        commits = self._commits
        if commits == self._synced:
            return
        if self._unsafe:
            raise StoreError("its log is to be written anew")
        try:
            sync_file(-1 if self._log is None else self._log)
        except OSError as error:  # the system forgets what it could not write
            self._unsafe = True
            raise StoreError(f"its log cannot be written to the disk: {error}") from None
        self._synced = commits
        with suppress(OSError):  # the store has it, and the next commit tells the witness again
            self._witness.write(commits)

    def _write(self, changes: Changes) -> None:
        for row in changes.experiments.values():
            if row.total is not None:
                self._run_rows(rows.SAVE_TOTAL, [rows.total_to_keep(row.id, row.total)])
            self._run_rows(rows.SAVE_EXPERIMENT, [rows.sealed(row._replace(total=b""))])
        for key in changes.forgotten:
            self._forget(*key)
        tasks = changes.tasks.items()
        self._run_rows(rows.SAVE_TASK, [rows.task_to_keep(*item) for item in tasks])
        self._run_rows(
            rows.SAVE_TASK_INDICES,
            [(*key, row.generation, row.folded_in, row.size) for key, row in tasks],
        )
        new: list[list[Any]] = []
        known: list[list[Any]] = []
        ids: dict[DecisionKey, int] = {}  # of new ones, which follow the last
        next_id = self._one("SELECT coalesce(max(id), 0) + 1 FROM decisions")[0]
        for name, decision in changes.decisions.items():
            if decision.id:
                known.append(rows.later_part(decision))
            else:
                ids[name] = next_id + len(new)
                new.append(rows.decision_to_keep(decision))
        self._run_rows(rows.SAVE_DECISION, known)
        self._run_rows(rows.ADD_DECISION, new)
        rewards = [
            reward if reward.decision else reward._replace(decision=ids[name])
            for name, reward in changes.rewards
        ]
        self._run_rows(rows.ADD_REWARD, list(map(rows.reward_to_keep, rewards)))
        self._run_rows(rows.ADD_CHANGE, list(map(rows.sealed, changes.changes)))
        self._count(changes.counts)
        self._run_rows(rows.ADD_BELIEF, list(map(rows.sealed, changes.beliefs)))
        for experiment in changes.deleted:
            for table in OF_EXPERIMENT:
                self._run(f"DELETE FROM {table} WHERE experiment = ?", (experiment,))
            self._run("DELETE FROM experiments WHERE id = ?", (experiment,))
            self._counts.clear()

    def _forget(self, experiment: int, task: str) -> None:
        mine = "experiment = ? AND task = ?"
        of_task = f"SELECT id FROM decisions WHERE {mine}"
        self._run(f"DELETE FROM rewards WHERE decision IN ({of_task})", (experiment, task))
        self._run(f"DELETE FROM decisions WHERE {mine}", (experiment, task))
        self._run(f"DELETE FROM tasks WHERE {mine}", (experiment, task))

    def _count(self, differences: dict[Bucket, Counts]) -> None:
        where = " AND ".join(f"{name} = ?" for name in Bucket._fields)
        if len(self._counts) > MOST_COUNTS:
            self._counts.clear()
        changed = []
        for bucket, difference in differences.items():
            counts = self._counts.get(bucket)
            if counts is None:
                kept = self._one(f"SELECT {_COUNTS} FROM hourly WHERE {where}", bucket)
                counts = Counts() if kept is None else rows.counts_from(kept)[1]
            counts = self._counts[bucket] = counts.plus(difference)
            if min(counts[:6]) < 0:
                raise rows.damaged(f"the counter of {bucket.start}")
            if counts.decisions:
                changed.append(rows.counts_to_keep(bucket, counts))
            else:
                self._run(f"DELETE FROM hourly WHERE {where}", bucket)
        self._run_rows(rows.SAVE_COUNTS, changed)

    def _clear_log(self) -> None:
        """What was forgotten is in the log still; while somebody reads it, it cannot be cleared."""
        with suppress(sqlite3.Error):
            row = self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            self.erased = not row[0]

    def rollback(self) -> None:
        """The next commit writes in any case: only that shows whether it can be done again."""
        self._write_anyway = True
        self._counts.clear()
        try:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        except sqlite3.Error:  # the file itself has trouble: begin anew with it
            self._connection.close()
            self._broken = True
        self._broken |= self._unsafe

    def _reopen(self) -> None:
        """Begin anew with the file. What the disk may not have goes into the file itself."""
        self._close()
        try:
            self._commits = check_file(self.path, self._synced if self._unsafe else self._commits)
            self._open()
        except FileFormatError as error:
            raise StoreError(str(error)) from None
        if self._unsafe:
            (busy, *_) = self._one("PRAGMA wal_checkpoint(TRUNCATE)")
            if busy:
                raise StoreError("its log has to be written anew, and somebody reads it")
        self._broken = self._unsafe = False

    def close(self) -> None:
        self._close()
        self._witness.close()

    def _close(self) -> None:
        self._connection.close()
        if self._log is not None:
            os.close(self._log)
        self._log = None

    def view(self) -> SQLiteReadView:
        return SQLiteReadView(self.path)

    def scrub(self) -> list[str]:
        with self.view() as view:
            return self._scrub.step(view)


class SQLiteKeys(SQLiteReader):
    """The keys of a store, which may be in use."""

    def __init__(self, path: Path, *, make: bool = False) -> None:
        if not (make or path.exists()):
            raise FileNotFoundError(errno.ENOENT, "there is no such store", str(path))
        real = real_path(path)
        check_file(real)
        super().__init__(open_to_write(real, wait=LOCK_WAIT, upgrade=False))

    def add(self, row: KeyRow) -> None:
        self._run_rows(rows.ADD_KEY, [rows.sealed(row)])

    def remove(self, key: str, mark: KeyRow) -> bool:
        """Whether there was such a key. The mark stays in its place: keys have been in use."""
        self._run("BEGIN IMMEDIATE")
        found = self._run("DELETE FROM keys WHERE id = ?", (key,)).rowcount > 0
        if found:
            self._run("DELETE FROM keys WHERE id = ?", (mark.id,))
            self.add(mark)
        self._run("COMMIT")
        return found


def _by_experiment(keys: Iterable[tuple[int, str]]) -> Iterable[tuple[int, list[str]]]:
    """The names among some keys, each once."""
    found: dict[int, dict[str, None]] = {}
    for experiment, name in keys:
        found.setdefault(experiment, {})[name] = None
    return [(experiment, list(names)) for experiment, names in found.items()]


def _explained(error: Exception) -> Exception:
    if isinstance(error, sqlite3.OperationalError) and "decode" not in str(error):
        return StoreError(str(error))  # locked, full, an error of the disk
    return DamagedStore(f"the store is damaged: {error}; restore a copy of it")
