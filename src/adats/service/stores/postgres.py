"""The store in PostgreSQL, to which many processes write.

A group locks its tasks, in order of their names, then reads. It writes all it has changed in one
statement, and queues what its tasks have learned. A fold, under the advisory lock of an experiment,
takes the queue and writes the next version; nobody else writes to a row that all read.
"""

import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import msgspec

from adats.service.clock import time_passed
from adats.service.counters import by_days
from adats.service.errors import Again, NotFound, OutcomeUnknown
from adats.service.stores import postgres_sql as sql
from adats.service.stores.interface import (
    Bucket,
    Changes,
    Counts,
    DecisionRow,
    ExperimentRow,
    KeyRow,
    Keys,
    Loaded,
    Progress,
    RewardRow,
    Taken,
    TaskKey,
)
from adats.service.stores.postgres_link import Address, Pool, connect, explained, trouble
from adats.service.stores.postgres_reader import (
    EXPERIMENT,
    PostgresReader,
    PostgresReadView,
    add_counts,
    decision_from,
    task_from,
)
from adats.service.stores.postgres_schema import BLOCK
from adats.service.stores.postgres_write import (
    GroupRows,
    KnownTask,
    Row,
    as_json,
    counts_row,
    reward_text,
    tasks_of,
)
from adats.service.stores.sqlite_rows import counts_of, damaged

ASK_AGAIN, ASK_FOR = 0.2, 3.0  # seconds: whether a commit has happened
FOLD_WAIT = 4.0  # seconds for a fold that somebody else makes


class PostgresStore(PostgresReader):
    """Writing, beside others."""

    many_writers = True
    erased = True

    def __init__(self, address: Address) -> None:
        self.address = address
        self._connection = connect(address)
        self._pool = Pool(address)
        self._clock = (0.0, 0.0)  # the database's time, and when that was
        self.now_from(self._connection)
        self.waited = 0.0
        self._looked = 0.0  # for sessions that have stopped
        self.lock_wait: float | None = None
        self._clear()

    def _clear(self) -> None:
        self._known: dict[TaskKey, KnownTask] = {}
        self._settled: dict[int, int | None] = {}  # by decision that was read
        self._taken: dict[int, int] = {}  # the versions of experiments
        self._queued: dict[Bucket, Counts] = {}  # of what was taken
        self._oldest: float | None = None  # when the first of that came
        self._block = 0
        self._xid: int | None = None  # of a transaction that has written
        self._proof: Row | None = None  # the events that it has written

    # time

    def now_from(self, connection: Any) -> None:
        with explained():
            (now,) = connection.execute(f"SELECT {sql.NOW}").fetchone()
        self._clock = (now, time_passed())

    def now(self) -> float:
        """The time of the database."""
        then, at = self._clock
        return then + (time_passed() - at)

    # groups

    def begin(self) -> None:
        self._clear()
        if self._connection.closed or self._connection.broken:
            self._connection = connect(self.address)
            self.now_from(self._connection)

    def _begun(self) -> None:
        """Within a transaction, from the first statement on."""
        if self._connection.info.transaction_status == 0:  # idle
            self._connection.execute("BEGIN", prepare=False)
            if self.lock_wait is not None:
                self._wait_for_locks(self.lock_wait)

    def _wait_for_locks(self, seconds: float) -> None:
        """At most so long each, in this transaction."""
        self._connection.execute(f"SET LOCAL lock_timeout = {1000 * seconds:.0f}", prepare=False)

    def _all(self, text: str, values: Any = ()) -> list[Any]:
        with explained():
            return self._rows(text, values)

    def _rows(self, text: str, values: Any = ()) -> list[Any]:
        cursor = self._connection.execute(text, values, binary=True)
        return cursor.fetchall() if cursor.description else []

    def _lock_and_read(self, locks: bool, reads: list[str], values: Any) -> list[list[Any]]:
        """The rows of what is read, in a transaction, all on one way there and back."""
        with explained(), self._connection.pipeline():
            self._begun()
            if locks:
                self._connection.execute(sql.LOCK, values)
            sent = [self._connection.execute(one, values, binary=True) for one in reads]
            return [cursor.fetchall() for cursor in sent]

    def load(self, keys: Keys) -> Loaded:
        lock = [key for key in keys.tasks if key[0] not in self._taken]
        asked = [
            {"i": i, "e": key.experiment, "d": key.decision_id, "r": reward_text(key.reward)}
            | ({} if key.reward_id is None else {"n": key.reward_id})
            for i, key in enumerate(keys.rewards)
        ]
        names = [{"i": -1, "e": e, "d": name} for e, name in keys.decisions]
        values = {
            "lock": as_json([{"e": e, "t": task} for e, task in lock]),
            "rewards": as_json([one for one in asked if one["e"] not in self._taken]),
            "tasks": as_json([{"e": e, "t": task} for e, task in keys.tasks]),
            "asked": as_json(asked),
            "decisions": as_json(asked + names),
            "experiments": as_json([{"e": e, "v": version} for e, version in keys.experiments]),
        }
        reads = [sql.READ_STATES, sql.READ_DECISIONS][: 2 if asked or names else 1]
        states, *rest = self._lock_and_read(bool(asked or lock), reads, values)
        found = Loaded({}, {}, {}, {}, {})
        for row in states:
            self._keep_state(row, found)
        for i, earlier, *decision in rest[0] if rest else ():
            row = decision_from(decision)
            found.decisions[row.experiment, row.decision_id] = row
            self._settled[row.id] = row.settled
            if i >= 0 and earlier:
                known = found.rewards.setdefault((row.experiment, row.decision_id), [])
                known += [one for one in _rewards_of(row, earlier) if one not in known]
        for several in found.rewards.values():
            several.sort(key=lambda one: one.id)
        return found

    def _keep_state(self, row: Any, found: Loaded) -> None:
        kind, experiment, id, name, seq, *rest = row
        if kind == sql.A_TASK:
            *state, folded = rest[:6]
            key = (experiment, name)
            known = self._known.get(key)
            if known is None or known.queued is None:  # else it is as it was taken
                self._known[key] = KnownTask(id, seq, state[4], folded)
            if seq:
                found.tasks[key], learned = task_from((*state, folded, rest[7]))
                if learned and experiment not in self._taken:
                    found.learned[key] = learned
        elif kind == sql.AN_EXPERIMENT:
            there = id is not None
            row = _experiment(experiment, id, name, seq, rest) if there else None
            found.experiments[experiment] = row
        else:
            self._block = id
            self._clock = (rest[6], time_passed())

    def take(self, experiment: int, *, wait: bool = True) -> Taken | None:
        with explained():
            self._begun()
            lock = sql.TRY_LOCK
            if wait:
                self._wait_for_locks(FOLD_WAIT)
                lock = sql.TAKE_LOCK
            if not self._rows(lock, (self.address.schema, experiment))[0][0]:
                return None
            found = self._rows(sql.TAKE, {"e": experiment})
            row = self._rows(f"SELECT {EXPERIMENT} FROM experiments WHERE id = %s", (experiment,))
        if not row:
            raise NotFound("the experiment is deleted")
        own, progress = ExperimentRow(*row[0]), Progress()
        taken = Taken(own, [], {}, {}, 0)
        counts: dict[Bucket, Counts] = {}
        for kind, id, name, seq, *rest in found:
            if kind == sql.A_TASK:
                *state, folded = rest[:6]
                self._known[experiment, name] = KnownTask(id, seq, state[4], folded, rest[7])
                taken.names.append(name)
                if seq != folded:
                    found_task = task_from((*state, folded, rest[8]))
                    taken.tasks[name], taken.learned[name] = found_task
            elif kind == sql.QUEUED:
                progress = progress.plus(Progress(*msgspec.json.decode(rest[4])))
                add_counts(counts, experiment, name)
                self._oldest = min(rest[6], self._oldest or rest[6])
            else:
                self._block = id
                self._clock = (rest[6], time_passed())
        self._taken[experiment] = own.version
        for bucket, difference in (by_days(counts, own.days_until)).items():
            counts[bucket] = counts.get(bucket, Counts()).plus(difference)
        self._queued |= counts
        row_now = own._replace(
            tasks=own.tasks + progress.tasks,
            decisions=own.decisions + progress.decisions,
            counted=own.counted + progress.counted,
        )
        return taken._replace(row=row_now, rewards=progress.rewards)

    def waiting(self, for_long: float = 0.0) -> list[int]:
        if time.monotonic() > self._looked + 1.0:
            self._looked = time.monotonic()
            self._all(sql.END_STOPPED)
        return [row[0] for row in self._all(sql.WAITING, (for_long,))]

    def counts(self, experiment: int) -> dict[Bucket, Counts]:
        own = super().counts(experiment)
        for bucket, difference in self._queued.items():
            if bucket.experiment == experiment:
                own[bucket] = own.get(bucket, Counts()).plus(difference)
        return own

    def due(self, now: float, limit: int) -> list[DecisionRow]:
        with explained():
            self._begun()
        return [decision_from(row) for row in self._all(sql.DUE, (now, limit))]

    def new_experiment(self) -> int:
        return int(self._one("SELECT nextval('experiment_ids')::integer")[0])

    # writing

    def save(self, changes: Changes) -> None:
        """If the connection is lost meanwhile, the database is asked what became of it."""
        self._write(changes)
        self._commit()

    def sync(self) -> None:
        """The database has done so at the end of each transaction."""

    def _write(self, changes: Changes) -> None:
        unused = [task.id for task in self._known.values() if not task.seq]
        if not (changes or unused or self._taken):
            return
        with explained():
            self._begun()
            for row in changes.experiments.values():
                save = sql.KEEP_TOTAL if row.total is None else sql.SAVE_EXPERIMENT
                self._rows(save, row._asdict())
            for key in changes.forgotten:
                self._rows(sql.FORGET, key)
                self._known.pop(key, None)
            self._know(tasks_of(changes))
            next_id = self._next
            rows = GroupRows(changes, self._known, self._settled, self._taken, next_id)
            values = rows.values()
            if values is not None:
                count, self._xid = self._rows(sql.WRITE, values)[0]
                self._proof = rows.proof()
                if count != len(rows.made):
                    raise Again("another process has made a decision with the same id")
            for change in changes.changes:
                self._rows(sql.ADD_CHANGE, change)
            for belief in changes.beliefs:
                self._rows(sql.ADD_BELIEF, belief)
            if self._taken:
                self._write_counts(changes.counts)
            for experiment in changes.deleted:
                for statement in sql.DELETE_EXPERIMENT:
                    self._rows(statement, (experiment,) if "%s" in statement else ())

    def _next(self) -> int:
        if not self._block:
            self._block = self._rows(sql.NEXT_BLOCK)[0][0]
        self._block += 1
        if self._block % BLOCK == 0:
            self._block = self._rows(sql.NEXT_BLOCK)[0][0]
        return self._block

    def _know(self, keys: Iterable[TaskKey]) -> None:
        """Make tasks that are not there."""
        missing = [key for key in keys if key not in self._known]
        if missing:
            named = as_json([{"e": e, "t": task} for e, task in missing])
            self._rows(sql.LOCK, {"lock": named, "rewards": "[]"})
            none = {"tasks": named, "asked": "[]", "experiments": "[]"}
            for row in self._rows(sql.READ_STATES, none):
                self._keep_state(row, Loaded({}, {}, {}, {}, {}))

    def _write_counts(self, differences: dict[Bucket, Counts]) -> None:
        """Of experiments that are taken: nobody else changes their counters."""
        added = self._queued
        self._queued = {}
        for bucket, difference in differences.items():
            added[bucket] = added.get(bucket, Counts()).plus(difference)
        named = as_json([bucket._asdict() for bucket in added])
        kept = dict(map(counts_of, self._rows(sql.READ_COUNTS, (named,)))) if added else {}
        new, gone = [], []
        for bucket, difference in added.items():
            counts = kept.get(bucket, Counts()).plus(difference)
            if min(counts[:6]) < 0:
                raise damaged(f"the counter of {bucket.start}")
            if counts.decisions:
                new.append(dict(zip(sql.HOURLY, counts_row(bucket, counts), strict=True)))
            else:
                gone.append(bucket._asdict())
        if new or gone:
            self._rows(sql.WRITE_COUNTS, {"new": as_json(new), "gone": as_json(gone)})

    def _commit(self) -> None:
        import psycopg

        if self._connection.info.transaction_status == 0:
            return
        try:
            self._connection.execute("COMMIT", prepare=False)
        except psycopg.OperationalError as error:
            if self._proof is None:  # a fold, the ends of windows: to be read again
                raise trouble(error) from error
            self._ask_for_outcome(error)
        except psycopg.Error as error:
            raise trouble(error) from error
        if self._oldest is not None:
            self.waited = self.now() - self._oldest

    def _ask_for_outcome(self, error: Exception) -> None:
        """Returns if the commit has happened; `Again` if not."""
        until = time.monotonic() + ASK_FOR
        while True:
            with suppress(Exception):
                self._connection.close()
                self._connection = connect(self.address)
                outcome = self._outcome()
                if outcome is not None:
                    break
            if time.monotonic() > until:
                raise OutcomeUnknown(
                    "the database was lost in the middle of a commit, and cannot say yet whether "
                    "that happened; ask again, with the same ids"
                ) from error
            time.sleep(ASK_AGAIN)
        if not outcome:
            raise Again(str(trouble(error))) from error

    def _outcome(self) -> bool | None:
        """Whether the last transaction was committed; None if that is not known.

        A database that crashed, or another one in its place, may give the number of a transaction
        that it lost to another one. So "committed" alone proves nothing; what was written does,
        when nobody is at it any more.
        """
        (status,) = self._one(sql.STATUS, {"xid": str(self._xid)})
        if status not in ("committed", "aborted"):
            return None
        return status == "committed" and bool(self._one(sql.IS_THERE, self._proof)[0])

    def rollback(self) -> None:
        try:
            if self._connection.info.transaction_status != 0:
                self._connection.execute("ROLLBACK", prepare=False)
        except Exception:
            self._connection.close()
        self._clear()

    def close(self) -> None:
        self._connection.close()
        self._pool.close()

    def view(self) -> PostgresReadView:
        return PostgresReadView(self._pool)

    def scrub(self) -> list[str]:
        """PostgreSQL has checksums of its own."""
        return []


class PostgresKeys(PostgresReader):
    """The keys of a store, which may be in use."""

    def __init__(self, address: Address) -> None:
        self._connection = connect(address)

    def add(self, row: KeyRow) -> None:
        with explained():
            self._connection.execute(sql.ADD_KEY, row)

    def remove(self, key: str, mark: KeyRow) -> bool:
        with explained(), self._connection.transaction():
            gone = "DELETE FROM keys WHERE id = %s"
            found: int = self._connection.execute(gone, (key,)).rowcount
            if found:
                self._connection.execute(gone, (mark.id,))
                self._connection.execute(sql.ADD_KEY, mark)
        return found > 0


def _experiment(id: int, version: int, arms: str, prior_version: int, rest: Any) -> ExperimentRow:
    """What a group has to know of an experiment."""
    total, days_until, figures = rest[0], rest[1], msgspec.json.decode(rest[4])
    row = ExperimentRow(id, "", "", "", 0, version, prior_version, arms, total)
    tasks, decisions, counted, status = figures
    return row._replace(
        tasks=tasks, decisions=decisions, counted=counted, days_until=days_until, status=status
    )


def _rewards_of(decision: DecisionRow, earlier: str) -> list[RewardRow]:
    return [
        RewardRow(id, decision.experiment, 0, decision.id, msgspec.json.decode(reward), *rest)
        for id, reward, *rest in msgspec.json.decode(earlier)
    ]
