"""Reading a store in PostgreSQL: rows out of a session, and views of one moment."""

import zlib
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any

import msgspec

from adats.service.stores.interface import (
    BeliefRow,
    Bucket,
    ChangeRow,
    Connected,
    Counts,
    DecisionRow,
    ExperimentRow,
    KeyRow,
    LearnedReward,
    RewardRow,
    TaskRow,
)
from adats.service.stores.postgres_link import Pool, explained
from adats.service.stores.sqlite_rows import counts_of, damaged

EXPERIMENT = ", ".join(ExperimentRow._fields)
HOURLY = ", ".join(Bucket._fields + Counts._fields)
RAW, LARGE = b"r", 500  # before statistics that are not compressed; bytes of those that may be
UNFOLDED = -1  # in place of a version: that of the fold which has it, see `folds`
PIECE = 2000  # rows that are fetched at once
_numbers = count()  # of cursors

_AT = {"version": "d.version", "task": "t.task"}
DECISION = ", ".join(_AT.get(name, f"d.{name}") for name in DecisionRow._fields)
_FOLD = (
    "coalesce((SELECT f.version FROM folds f WHERE f.task_id = d.task_id AND f.seq >= {} "
    "ORDER BY f.seq LIMIT 1), e.version + 1)"
)
_AT_REST = {
    "version": "CASE WHEN EXISTS (SELECT 1 FROM queue q WHERE q.experiment = d.experiment AND "
    "d.id BETWEEN q.first AND q.last) THEN greatest(d.version, e.version + 1) "
    f"WHEN d.after > 0 THEN greatest(d.version, {_FOLD.format('d.after')}) ELSE d.version END",
    "task": "t.task",
    "settled": f"CASE WHEN d.settled = {UNFOLDED} THEN {_FOLD.format('d.settled_place')} "
    "ELSE d.settled END",
}
_NUMBERED = ", ".join(f"{_AT_REST.get(n, f'd.{n}')} AS {n}" for n in DecisionRow._fields)
_FROM = (
    "FROM decisions d JOIN tasks t ON t.id = d.task_id JOIN experiments e ON e.id = d.experiment"
)
_REWARDS = (
    f"SELECT r.id, r.experiment, coalesce(r.version, {_FOLD.format('r.id')}) AS version, "
    "r.decision, r.reward, r.reward_id, r.time, r.place, r.metrics FROM rewards r "
    "JOIN decisions d ON d.id = r.decision JOIN tasks t ON t.id = d.task_id "
    "JOIN experiments e ON e.id = r.experiment WHERE r.experiment = %s "
    "ORDER BY version, t.task, r.place, r.id"
)
TASK = "f.stats, t.rounds, t.pending, f.generation, t.learned, f.seq, t.design"
_decode = msgspec.json.Decoder().decode
all_learned = msgspec.json.Decoder(
    list[tuple[int, list[LearnedReward]]]
).decode  # each with its event
_LATER_LISTS = [
    DecisionRow._fields.index(name) for name in ("propensity", "reward", "counted", "metrics")
]
_ACTION = DecisionRow._fields.index("action")


class PostgresReader(Connected):
    """Rows out of a session; what the store and its views share."""

    def _all(self, sql: str, values: Any = ()) -> list[Any]:
        with explained():
            found: list[Any] = self._connection.execute(sql, values, binary=True).fetchall()
            return found

    def _one(self, sql: str, values: Any = ()) -> Any:
        found = self._all(sql, values)
        return found[0] if found else None

    def _stream(self, sql: str, values: Sequence[Any]) -> Iterator[Any]:
        """Of a result that may be larger than memory."""
        with explained(), self._connection.cursor(f"rows{next(_numbers)}", binary=True) as cursor:
            cursor.itersize = PIECE
            cursor.execute(sql, values)
            yield from cursor

    def experiment(self, tenant: str, name: str) -> ExperimentRow | None:
        where = "tenant = %s AND name = %s"
        row = self._one(f"SELECT {EXPERIMENT} FROM experiments WHERE {where}", (tenant, name))
        return None if row is None else ExperimentRow(*row)

    def by_id(self, experiment: int) -> ExperimentRow:
        row = self._one(f"SELECT {EXPERIMENT} FROM experiments WHERE id = %s", (experiment,))
        if row is None:
            raise damaged(f"experiment {experiment}")
        return ExperimentRow(*row)

    def experiments(self, tenant: str | None = None) -> list[ExperimentRow]:
        where, values = ("WHERE tenant = %s", (tenant,)) if tenant is not None else ("", ())
        sql = f"SELECT {EXPERIMENT} FROM experiments {where} ORDER BY tenant, name"
        return [ExperimentRow(*row) for row in self._all(sql, values)]

    def _task_of(
        self, experiment: int, task: str
    ) -> tuple[TaskRow, tuple[LearnedReward, ...]] | None:
        sql = (
            f"SELECT {TASK} FROM tasks t LEFT JOIN folded f ON f.task_id = t.id "
            "WHERE t.experiment = %s AND t.task = %s AND t.seq > 0"
        )
        row = self._one(sql, (experiment, task))
        return None if row is None else task_from(row)

    def task(self, experiment: int, task: str) -> TaskRow | None:
        found = self._task_of(experiment, task)
        return None if found is None else found[0]

    def learned(self, experiment: int, task: str) -> tuple[LearnedReward, ...]:
        found = self._task_of(experiment, task)
        return () if found is None else found[1]

    def stale_tasks(
        self, experiment: int, generation: int, after: tuple[int, str], limit: int
    ) -> list[tuple[int, str]]:
        sql = (
            "SELECT f.generation, t.task FROM folded f JOIN tasks t ON t.id = f.task_id "
            "WHERE f.experiment = %s AND f.generation < %s AND f.generation >= %s AND "
            "(f.generation, t.task) > (%s, %s) ORDER BY f.generation, t.task LIMIT %s"
        )
        values = (experiment, generation, after[0], *after, limit)
        return [(int(found), task) for found, task in self._all(sql, values)]

    def unfolded_tasks(
        self,
        experiment: int,  # noqa: ARG002
        total_version: int,  # noqa: ARG002
    ) -> list[tuple[str, TaskRow]]:
        """Every fold writes the total."""
        return []

    def decisions(
        self, experiment: int, since: float | None = None, before: float | None = None
    ) -> Iterator[DecisionRow]:
        where, values = "d.experiment = %s", [experiment]
        if since is not None and before is not None:
            where += " AND d.time >= %s AND d.time < %s"
            values += [since, before]  # type: ignore[list-item]
        order = "ORDER BY 3, 5, d.place, d.id"
        yield from map(
            decision_from, self._stream(f"SELECT {_NUMBERED} {_FROM} WHERE {where} {order}", values)
        )

    def decisions_of(
        self, experiment: int, task: str, last: int | None = None
    ) -> list[DecisionRow]:
        where = "WHERE t.experiment = %s AND t.task = %s ORDER BY d.id DESC LIMIT %s"
        found = self._all(f"SELECT {_NUMBERED} {_FROM} {where}", (experiment, task, last))
        return [decision_from(row) for row in reversed(found)]

    def counts(self, experiment: int) -> dict[Bucket, Counts]:
        sql = f"SELECT {HOURLY} FROM hourly WHERE experiment = %s ORDER BY start"
        return dict(map(counts_of, self._all(sql, (experiment,))))

    def key_rows(self) -> list[KeyRow]:
        fields = ", ".join(KeyRow._fields)
        return [KeyRow(*row) for row in self._all(f"SELECT {fields} FROM keys ORDER BY created")]


class PostgresReadView(PostgresReader):
    """What is committed, as it was when the view was opened."""

    many_writers = True

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._connection = pool.get()
        try:
            self._all("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        except BaseException:
            self._connection.close()
            raise

    def _all(self, sql: str, values: Any = ()) -> list[Any]:
        with explained():
            cursor = self._connection.execute(sql, values, binary=True)
            return cursor.fetchall() if cursor.description else []

    def close(self) -> None:
        try:
            with explained():
                self._connection.execute("ROLLBACK", prepare=False)
        except Exception:
            self._connection.close()
        self._pool.give_back(self._connection)

    def tasks(self, experiment: int) -> Iterator[tuple[str, TaskRow]]:
        sql = (
            "SELECT t.task, t.design, f.size, f.stats, f.rounds, f.pending, f.generation "
            "FROM folded f JOIN tasks t ON t.id = f.task_id WHERE f.experiment = %s ORDER BY t.id"
        )
        for task, design, size, stats, *row in self._stream(sql, (experiment,)):
            yield task, TaskRow(unpacked(stats), *row)._replace(design=design, size=size)

    def largest_tasks(self, experiment: int, limit: int) -> list[str]:
        sql = (
            "SELECT t.task FROM folded f JOIN tasks t ON t.id = f.task_id "
            "WHERE f.experiment = %s AND f.size IS NOT NULL ORDER BY f.size DESC LIMIT %s"
        )
        return [task for (task,) in self._all(sql, (experiment, limit))]

    def unfolded(self, experiment: int) -> set[str]:
        sql = (
            "SELECT DISTINCT t.task FROM queue q, json_array_elements_text(q.task_ids::json) i "
            "JOIN tasks t ON t.id = i::bigint WHERE q.experiment = %s"
        )
        return {task for (task,) in self._all(sql, (experiment,))}

    def rewards(self, experiment: int) -> Iterator[RewardRow]:
        for row in self._stream(_REWARDS, (experiment,)):
            metrics = None if row[-1] is None else _decode(row[-1])
            yield RewardRow(*row)._replace(reward=_decode(row[4]), metrics=metrics)

    def changes(self, experiment: int) -> Iterator[ChangeRow]:
        sql = (
            f"SELECT {', '.join(ChangeRow._fields)} FROM changes WHERE experiment = %s ORDER BY id"
        )
        yield from (ChangeRow(*row) for row in self._all(sql, (experiment,)))

    def beliefs(self, experiment: int) -> Iterator[BeliefRow]:
        sql = (
            f"SELECT {', '.join(BeliefRow._fields)} FROM beliefs WHERE experiment = %s ORDER BY id"
        )
        yield from (BeliefRow(*row) for row in self._all(sql, (experiment,)))

    def overdue(self, experiment: int, now: float) -> float | None:
        sql = "SELECT min(time) FROM decisions WHERE experiment = %s AND due <= %s"
        first: float | None = self._one(sql, (experiment, now))[0]
        return first

    def due_count(self, now: float) -> int:
        return int(self._one("SELECT count(*) FROM decisions WHERE due <= %s", (now,))[0])

    def newest_time(self) -> float | None:
        sql = "SELECT max(time) FROM (SELECT time FROM decisions ORDER BY id DESC LIMIT 1000) d"
        newest: float | None = self._one(sql)[0]
        return newest

    def queued(self, experiment: int) -> tuple[tuple[int, int, int], dict[Bucket, Counts]]:
        """What is not folded yet: of tasks, decisions and counted, and of the counters."""
        sql = "SELECT tasks, decisions, counted, counts FROM queue WHERE experiment = %s"
        figures, counts = [0, 0, 0], dict[Bucket, Counts]()
        for *some, text in self._all(sql, (experiment,)):
            figures = [a + b for a, b in zip(figures, some, strict=True)]
            add_counts(counts, experiment, text)
        return (figures[0], figures[1], figures[2]), counts

    def settings(self) -> dict[str, str]:
        """Of the server, on which it depends whether what is committed stays."""
        names = ("fsync", "full_page_writes", "synchronous_commit", "data_checksums")
        return {name: str(self._one(f"SHOW {name}")[0]) for name in names}


def task_from(row: Sequence[Any]) -> tuple[TaskRow, tuple[LearnedReward, ...]]:
    """Of the columns of `TASK`: as it was folded last, and what it learned since."""
    stats, rounds, pending, generation, learned, seq, design = row
    state = TaskRow(unpacked(stats), rounds or 0, pending, generation, design=design)
    if not learned:
        return state, ()
    since = (some for at, some in all_learned(learned) if at > (seq or 0))
    return state, tuple(one for some in since for one in some)


def packed(stats: bytes) -> bytes:
    """Statistics as they are kept: those with sites are large, and mostly zeros."""
    if len(stats) < LARGE:
        return RAW + stats
    return min(RAW + stats, zlib.compress(stats, 6), key=len)


def unpacked(kept: bytes | None) -> bytes:
    if not kept:
        return b""
    return kept[1:] if kept[:1] == RAW else zlib.decompress(kept)


def decision_from(row: Sequence[Any]) -> DecisionRow:
    values = list(row)
    values[_ACTION] = _decode(values[_ACTION])
    for column in _LATER_LISTS:
        if values[column] is not None:
            values[column] = _decode(values[column])
    return DecisionRow(*values)


def add_counts(into: dict[Bucket, Counts], experiment: int, text: str) -> None:
    """What a group has counted, as the queue has it."""
    for row in _decode(text):
        bucket, counts = counts_of([experiment, *row])
        into[bucket] = into.get(bucket, Counts()).plus(counts)
