"""The store in one SQLite file: a write-ahead log, synced at every commit.

Beside the file lies its witness: how many commits there have been, written after each of them. A
store with fewer commits than its witness has lost some, and is not opened.
"""

import errno
import fcntl
import os
import sqlite3
import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import msgspec

from adats.errors import FileFormatError
from adats.service.store import (
    ChangeRow,
    DamagedStore,
    DecisionRow,
    ExperimentRow,
    KeyRow,
    RewardRow,
    StoreError,
    Summary,
    Tally,
    TaskRow,
)

Values = Sequence[Any] | dict[str, Any]

APPLICATION, VERSION = 0x61646174, 1  # "adat"
BUSY = 5.0  # seconds that a view or a command waits for a lock; the engine does not wait

SCHEMA = """
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
    time REAL NOT NULL, explored INTEGER NOT NULL, holdout INTEGER, due REAL, settled INTEGER,
    received INTEGER NOT NULL, reward, counted
);
CREATE UNIQUE INDEX decisions_by_name ON decisions (experiment, decision_id);
CREATE INDEX decisions_by_task ON decisions (experiment, task);
CREATE INDEX decisions_due ON decisions (due) WHERE due IS NOT NULL;
CREATE TABLE rewards (
    id INTEGER PRIMARY KEY, experiment INTEGER NOT NULL, seq INTEGER NOT NULL,
    decision INTEGER NOT NULL, reward NOT NULL, reward_id TEXT, time REAL NOT NULL
);
CREATE INDEX rewards_by_decision ON rewards (decision);
CREATE TABLE changes (
    experiment INTEGER NOT NULL, seq INTEGER NOT NULL, kind TEXT NOT NULL, data TEXT NOT NULL,
    time REAL NOT NULL
);
CREATE TABLE keys (
    id TEXT PRIMARY KEY, tenant TEXT NOT NULL, hash BLOB NOT NULL, write INTEGER NOT NULL,
    created REAL NOT NULL
);
"""

_EXPERIMENT = "id, tenant, name, spec, seed, version, prior_version, arms, total"
_DECISION = ", ".join(DecisionRow._fields)
_REWARD = ", ".join(RewardRow._fields)
_ADD_DECISION = (
    f"INSERT INTO decisions ({', '.join(DecisionRow._fields[1:])}) "
    f"VALUES ({', '.join('?' * (len(DecisionRow._fields) - 1))})"
)
_ADD_REWARD = f"INSERT INTO rewards ({', '.join(RewardRow._fields[1:])}) VALUES (?, ?, ?, ?, ?, ?)"

_encode, _decode = msgspec.json.encode, msgspec.json.decode


def _plain(value: Any) -> Any:
    """A number, or a list of them, as SQLite keeps it."""
    return _encode(value).decode() if isinstance(value, list) else value


def _listed(value: Any) -> Any:
    return _decode(value) if isinstance(value, str) else value


def _crc(*parts: bytes | str | None) -> int:
    crc = 0
    for part in parts:
        crc = zlib.crc32(part.encode() if isinstance(part, str) else part or b"", crc)
    return crc


class Reading:
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
            yield from self._connection.execute(sql, values)
        except sqlite3.Error as error:
            raise _explained(error) from error

    def _one(self, sql: str, values: Values) -> Any:
        try:
            return self._connection.execute(sql, values).fetchone()
        except sqlite3.Error as error:
            raise _explained(error) from error

    def experiment(self, tenant: str, name: str) -> ExperimentRow | None:
        where = "tenant = ? AND name = ?"
        row = self._one(f"SELECT {_EXPERIMENT}, crc FROM experiments WHERE {where}", (tenant, name))
        return None if row is None else _experiment(row)

    def by_id(self, experiment: int) -> ExperimentRow:
        row = self._one(f"SELECT {_EXPERIMENT}, crc FROM experiments WHERE id = ?", (experiment,))
        return _experiment(row)

    def experiments(self, tenant: str | None = None) -> list[ExperimentRow]:
        where, values = ("WHERE tenant = ?", (tenant,)) if tenant is not None else ("", ())
        sql = f"SELECT {_EXPERIMENT}, crc FROM experiments {where} ORDER BY tenant, name"
        return [_experiment(row) for row in self._all(sql, values)]

    def task(self, experiment: int, task: str) -> TaskRow | None:
        sql = "SELECT stats, rounds, pending, crc FROM tasks WHERE experiment = ? AND task = ?"
        row = self._one(sql, (experiment, task))
        return None if row is None else _task(task, row)

    def tasks(self, experiment: int) -> Iterator[tuple[str, TaskRow]]:
        sql = "SELECT stats, rounds, pending, crc, task FROM tasks WHERE experiment = ? ORDER BY id"
        for *row, task in self._all(sql, (experiment,)):
            yield task, _task(task, row)

    def decisions(self, experiment: int) -> Iterator[DecisionRow]:
        sql = f"SELECT {_DECISION} FROM decisions WHERE experiment = ? ORDER BY id"
        yield from map(_decision, self._all(sql, (experiment,)))

    def changes(self, experiment: int) -> Iterator[ChangeRow]:
        sql = "SELECT * FROM changes WHERE experiment = ? ORDER BY rowid"
        yield from (ChangeRow(*row) for row in self._all(sql, (experiment,)))

    def key_rows(self) -> list[KeyRow]:
        return [KeyRow(*row) for row in self._all("SELECT * FROM keys ORDER BY created")]


class SQLiteView(Reading):
    """Reading what is committed, as it was when the view was opened."""

    def __init__(self, path: Path) -> None:
        super().__init__(_connect(path, mode="ro"))
        self._run("BEGIN")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._connection.close()

    def rewards(self, experiment: int) -> Iterator[RewardRow]:
        sql = f"SELECT {_REWARD} FROM rewards WHERE experiment = ? ORDER BY id"
        yield from map(_reward, self._all(sql, (experiment,)))

    def summary(self, experiment: int, over: float | None) -> Summary:
        """Decisions made up to `over` had a window that has ended."""
        ended = -1.0 if over is None else over
        sql = (
            "SELECT count(*), count(DISTINCT task), count(counted), "
            "total(reward IS NULL AND time > :ended), total(reward IS NULL AND time <= :ended), "
            "total(explored) FROM decisions WHERE experiment = :experiment"
        )
        row = self._one(sql, {"ended": ended, "experiment": experiment})
        return Summary(*map(int, row))

    def tallies(self, experiment: int, over: float | None) -> dict[int, Tally]:
        """Rewards of decisions that were held out, 1, and of those that could have been, 0."""
        sql = """
            WITH told AS (
                SELECT holdout, CASE typeof(counted) WHEN 'text'
                    THEN (SELECT total(value) FROM json_each(counted)) ELSE counted END AS y
                FROM decisions WHERE experiment = :experiment AND counted IS NOT NULL
                    AND holdout IS NOT NULL AND (:over IS NULL OR time <= :over)
            ), means AS (
                SELECT holdout, count(*) AS n, avg(y) AS mean FROM told GROUP BY holdout
            )
            SELECT holdout, n, mean, total((y - mean) * (y - mean))
            FROM told JOIN means USING (holdout) GROUP BY holdout
        """
        rows = self._all(sql, {"over": over, "experiment": experiment})
        return {row[0]: Tally(*row[1:]) for row in rows}


class SQLiteStore(Reading):
    """Writing: one process and one engine at a time."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Open a store, or make one. A file that is damaged or not a store raises."""
        self.path = Path(path)
        if self.path.is_dir() or not self.path.absolute().parent.is_dir():
            raise FileFormatError(f"{path} cannot be a store: give a file in a folder that exists")
        self._witness = Witness(Path(f"{self.path}-witness"))
        try:
            if self.path.exists():
                self._commits = check_file(self.path, self._witness.count())
            else:
                self._commits = 0
                if self._witness.count():
                    raise FileFormatError(
                        f"{path} is gone, but {self._witness.path} says that it had "
                        f"{self._witness.count()} commits; bring it back, or remove that file too"
                    )
            super().__init__(prepare(self.path))
        except BaseException:
            self._witness.close()
            raise
        self._changed = False

    def begin(self) -> None:
        self._run("BEGIN IMMEDIATE")
        self._changed = False

    def commit(self) -> None:
        """Durable when it returns."""
        if not self._changed:
            self._run("COMMIT")
            return
        self._run("UPDATE commits SET count = ?", (self._commits + 1,))
        self._run("COMMIT")
        self._commits += 1
        self._witness.write(self._commits)

    def rollback(self) -> None:
        if self._connection.in_transaction:
            try:
                self._connection.execute("ROLLBACK")
            except sqlite3.Error:  # the file itself has trouble: begin anew with it
                self._connection.close()
                self._connection = prepare(self.path)

    def close(self) -> None:
        self._connection.close()
        self._witness.close()

    def view(self) -> SQLiteView:
        return SQLiteView(self.path)

    def _write(self, sql: str, values: Sequence[Any]) -> sqlite3.Cursor:
        self._changed = True
        return self._run(sql, values)

    def add_experiment(self, row: ExperimentRow) -> int:
        sql = f"INSERT INTO experiments ({_EXPERIMENT}, crc) VALUES (NULL{', ?' * 9})"
        return self._write(sql, (*row[1:], _crc(row.arms, row.total))).lastrowid or 0

    def save_experiment(self, row: ExperimentRow) -> None:
        sql = (
            "UPDATE experiments SET version = ?, prior_version = ?, arms = ?, total = ?, crc = ? "
            "WHERE id = ?"
        )
        crc = _crc(row.arms, row.total)
        self._write(sql, (row.version, row.prior_version, row.arms, row.total, crc, row.id))

    def save_task(self, experiment: int, task: str, row: TaskRow) -> None:
        crc = _crc(row.stats, row.pending)
        self._write(
            "INSERT INTO tasks (experiment, task, stats, rounds, pending, crc) "
            "VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (experiment, task) DO UPDATE SET "
            "stats = excluded.stats, rounds = excluded.rounds, pending = excluded.pending, "
            "crc = excluded.crc",
            (experiment, task, *row, crc),
        )

    def counts(self, experiment: int) -> tuple[int, int, int]:
        """Tasks, decisions, and decisions with a reward that counts."""
        tasks = self._one("SELECT count(*) FROM tasks WHERE experiment = ?", (experiment,))
        sql = "SELECT count(*), count(counted) FROM decisions WHERE experiment = ?"
        return (*tasks, *self._one(sql, (experiment,)))

    def counted(self, experiment: int, task: str) -> list[DecisionRow]:
        """The decisions of a task whose rewards are in its statistics."""
        sql = (
            f"SELECT {_DECISION} FROM decisions WHERE experiment = ? AND task = ? "
            "AND counted IS NOT NULL ORDER BY id"
        )
        return [_decision(row) for row in self._all(sql, (experiment, task))]

    def forget(self, experiment: int, task: str) -> None:
        mine = "experiment = ? AND task = ?"
        of_task = f"SELECT id FROM decisions WHERE {mine}"
        self._write(f"DELETE FROM rewards WHERE decision IN ({of_task})", (experiment, task))
        self._write(f"DELETE FROM decisions WHERE {mine}", (experiment, task))
        self._write(f"DELETE FROM tasks WHERE {mine}", (experiment, task))

    def decision(self, experiment: int, decision_id: str) -> DecisionRow | None:
        sql = f"SELECT {_DECISION} FROM decisions WHERE experiment = ? AND decision_id = ?"
        row = self._one(sql, (experiment, decision_id))
        return None if row is None else _decision(row)

    def add_decision(self, row: DecisionRow) -> int:
        kept = row._replace(
            action=_encode(row.action).decode(),
            propensity=_plain(row.propensity),
            reward=_plain(row.reward),
            counted=_plain(row.counted),
        )
        return self._write(_ADD_DECISION, kept[1:]).lastrowid or 0

    def save_decision(self, row: DecisionRow) -> None:
        reward, counted = _plain(row.reward), _plain(row.counted)
        self._write(
            "UPDATE decisions SET due = ?, settled = ?, received = ?, reward = ?, counted = ? "
            "WHERE id = ?",
            (row.due, row.settled, row.received, reward, counted, row.id),
        )

    def due(self, now: float, limit: int) -> list[DecisionRow]:
        sql = f"SELECT {_DECISION} FROM decisions WHERE due <= ? ORDER BY due, id LIMIT ?"
        return [_decision(row) for row in self._all(sql, (now, limit))]

    def rewards(self, decision: int) -> list[RewardRow]:
        sql = f"SELECT {_REWARD} FROM rewards WHERE decision = ? ORDER BY id"
        return [_reward(row) for row in self._all(sql, (decision,))]

    def add_reward(self, row: RewardRow) -> None:
        self._write(_ADD_REWARD, row._replace(reward=_plain(row.reward))[1:])

    def add_change(self, row: ChangeRow) -> None:
        self._write("INSERT INTO changes VALUES (?, ?, ?, ?, ?)", row)


class Keys(Reading):
    """The keys of a store, which may be in use."""

    def __init__(self, path: Path, *, make: bool = False) -> None:
        if path.exists():
            check_file(path, 0)
        elif not make:
            raise FileNotFoundError(errno.ENOENT, "there is no such store", str(path))
        super().__init__(prepare(path, wait=BUSY))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def add(self, row: KeyRow) -> None:
        self._run("INSERT INTO keys VALUES (?, ?, ?, ?, ?)", row)

    def remove(self, key: str) -> bool:
        return self._run("DELETE FROM keys WHERE id = ?", (key,)).rowcount > 0


class Witness:
    """How many commits there have been, beside the store; and the lock on it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._file)
            raise FileFormatError(
                f"{str(path).removesuffix('-witness')} is in use by another process"
            ) from None

    def count(self) -> int:
        kept = os.pread(self._file, 8, 0)
        return int(struct.unpack("<q", kept)[0]) if len(kept) == 8 else 0

    def write(self, count: int) -> None:
        os.pwrite(self._file, struct.pack("<q", count), 0)

    def close(self) -> None:
        os.close(self._file)


def check_file(path: Path, witnessed: int) -> int:
    """The number of commits in a store that is whole; raises if it is not, and changes nothing."""
    remedy = "nothing was changed; restore a copy of the store"
    try:
        connection = _connect(path, mode="ro")
        try:
            if not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                return 0  # its making was cut off
            _check_kind(connection, path)
            found = [row[0] for row in connection.execute("PRAGMA quick_check(3)")]
            (commits,) = connection.execute("SELECT count FROM commits").fetchone()
        finally:
            connection.close()
    except sqlite3.DatabaseError as error:
        raise FileFormatError(f"{path} is damaged or not a store: {error}; {remedy}") from None
    if found != ["ok"]:
        raise FileFormatError(f"{path} is damaged: {'; '.join(found)}; {remedy}")
    if commits < witnessed:
        raise FileFormatError(
            f"{path} is damaged: it has {commits} commits, but {witnessed} were acknowledged (is "
            f"{path}-wal whole?); {remedy}"
        )
    return int(commits)


def prepare(path: Path, *, wait: float = 0.0) -> sqlite3.Connection:
    """A connection that writes; a new file becomes a store."""
    try:
        connection = _connect(path, mode="rwc", wait=wait)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA secure_delete = ON")  # what is forgotten is overwritten
        if connection.execute("PRAGMA user_version").fetchone() == (0,):
            connection.executescript(
                f"BEGIN IMMEDIATE; {SCHEMA} PRAGMA application_id = {APPLICATION}; "
                f"PRAGMA user_version = {VERSION}; COMMIT;"
            )
    except sqlite3.Error as error:
        raise FileFormatError(f"{path} cannot be opened: {error}") from None
    return connection


def _connect(path: Path, *, mode: str, wait: float = BUSY) -> sqlite3.Connection:
    uri = f"{path.absolute().as_uri()}?mode={mode}"
    return sqlite3.connect(
        uri, uri=True, isolation_level=None, check_same_thread=False, timeout=wait
    )


def _check_kind(connection: sqlite3.Connection, path: Path) -> None:
    (kind,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if kind != APPLICATION:
        raise FileFormatError(f"{path} is not a store of adats")
    if version != VERSION:
        raise FileFormatError(f"{path} has version {version}; this adats reads {VERSION}")


def _explained(error: sqlite3.Error) -> Exception:
    if isinstance(error, sqlite3.OperationalError):  # locked, full, an error of the disk
        return StoreError(str(error))
    return DamagedStore(f"the store is damaged: {error}")


def _experiment(row: Any) -> ExperimentRow:
    *fields, crc = row
    found = ExperimentRow(*fields)
    if crc != _crc(found.arms, found.total):
        raise DamagedStore(f"the store is damaged: experiment {found.name!r} is not as written")
    return found


def _task(task: str, row: Any) -> TaskRow:
    *fields, crc = row
    found = TaskRow(*fields)
    if crc != _crc(found.stats, found.pending):
        raise DamagedStore(f"the store is damaged: task {task!r} is not as written")
    return found


def _decision(row: Any) -> DecisionRow:
    kept = DecisionRow(*row)
    return kept._replace(
        action=_decode(kept.action),
        propensity=_listed(kept.propensity),
        reward=_listed(kept.reward),
        counted=_listed(kept.counted),
    )


def _reward(row: Any) -> RewardRow:
    kept = RewardRow(*row)
    return kept._replace(reward=_listed(kept.reward))
