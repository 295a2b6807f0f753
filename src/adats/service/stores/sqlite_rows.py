"""Rows as SQLite keeps them: lists are JSON, and each row ends with a checksum of all the rest.

No row is used that is not as it was written.
"""

import zlib
from collections.abc import Sequence
from functools import cache
from typing import Any

import msgspec

from adats.service.errors import DamagedStore
from adats.service.stores.interface import (
    RUNNING,
    BeliefRow,
    Bucket,
    ChangeRow,
    Counts,
    DecisionRow,
    ExperimentRow,
    KeyRow,
    Reward,
    RewardRow,
    TaskKey,
    TaskRow,
)

Kept = Sequence[Any]  # the columns of a row, the checksum last

CHECKSUM = "crc"
LATER_ADDED: dict[type, tuple[list[Any], ...]] = {  # as rows have them that were there before
    DecisionRow: ([0, 0], [None, None]),
    RewardRow: ([0], [None]),
    ExperimentRow: ([0], [RUNNING]),
}


def columns(*rows: Any) -> str:
    """The names of columns for `SELECT`."""
    return ", ".join([name for row in rows for name in row._fields] + [CHECKSUM])


class Statement:
    """SQL with a list of values for each of some rows; `of(n)` is the text for n of them."""

    def __init__(self, before: str, width: int, after: str) -> None:
        row = f"({', '.join('?' * width)})"
        self.of = cache(lambda count: f"{before} {', '.join([row] * count)} {after}")


def insert(table: str, fields: Sequence[str], after: str = "") -> Statement:
    names = (*fields, CHECKSUM)
    return Statement(f"INSERT INTO {table} ({', '.join(names)}) VALUES", len(names), after)


def upsert(table: str, fields: Sequence[str], key: Sequence[str], *but: str) -> Statement:
    """What is there is changed `but` for some columns."""
    left = (*key, *but)
    changed = ", ".join(f"{f} = excluded.{f}" for f in (*fields, CHECKSUM) if f not in left)
    return insert(table, fields, f"ON CONFLICT ({', '.join(key)}) DO UPDATE SET {changed}")


SAVE_EXPERIMENT = upsert("experiments", ExperimentRow._fields, ("id",))
SAVE_TOTAL = upsert("totals", ("experiment", "total"), ("experiment",))
_TASK, _RARELY = ("experiment", "task"), ("generation", "folded_in", "size")
SAVE_TASK = upsert("tasks", (*_TASK, *TaskRow._fields), _TASK, *_RARELY)
SAVE_COUNTS = upsert("hourly", Bucket._fields + Counts._fields, Bucket._fields)
ADD_DECISION = insert("decisions", DecisionRow._fields[1:])  # SQLite makes the ids
ADD_REWARD = insert("rewards", RewardRow._fields[1:])
ADD_CHANGE = insert("changes", ChangeRow._fields)
ADD_BELIEF = insert("beliefs", BeliefRow._fields)
ADD_KEY = insert("keys", KeyRow._fields)
LATER = ("due", "settled", "received", "reward", "counted", "settled_place", "metrics")
_ACTION, *_LISTS = (
    DecisionRow._fields.index(name) - 1
    for name in ("action", "propensity", "reward", "counted", "metrics")
)
_REWARD, _METRICS = (RewardRow._fields.index(name) - 1 for name in ("reward", "metrics"))
_LATER = [DecisionRow._fields.index(name) - 1 for name in LATER]
_NEW = ", ".join(f"{f} = v.column{i}" for i, f in enumerate((*LATER, CHECKSUM), 1))
SAVE_DECISION = Statement(
    f"UPDATE decisions SET {_NEW} FROM (VALUES",
    len(LATER) + 2,
    f") AS v WHERE id = v.column{len(LATER) + 2}",
)


_PLACES = [f"v.column{i}" for i in range(3, 3 + len(_RARELY))]
SAVE_TASK_INDICES = Statement(  # an index is written if its column is set, even to what it was
    "UPDATE tasks SET "
    + ", ".join(f"{f} = {place}" for f, place in zip(_RARELY, _PLACES, strict=True))
    + " FROM (VALUES",
    len(_TASK) + len(_RARELY),
    ") AS v WHERE experiment = v.column1 AND task = v.column2 "
    f"AND ({', '.join(_RARELY)}) IS NOT ({', '.join(_PLACES)})",
)


_encode, _decode = msgspec.json.Encoder().encode, msgspec.json.Decoder().decode


def checksum(values: Sequence[Any]) -> int:
    return zlib.crc32(_encode(values))


def sealed(row: Sequence[Any], start: int = 0) -> list[Any]:
    """All from `start` on, with the checksum; before is the row's own id."""
    values = list(row[start:])
    return [*values, checksum(_covered(type(row), values))]


def _covered(kind: type, values: list[Any]) -> list[Any]:
    """What a checksum covers: what was added later only where it is not as it was before."""
    for usual in reversed(LATER_ADDED.get(kind, ())):
        if values[-len(usual) :] != usual:
            break
        values = values[: -len(usual)]
    return values


def _checked(kind: Any, kept: Kept, what: str, *, name: int, start: int) -> Any:
    """The row without its checksum, if that is right."""
    *values, crc = kept
    if crc != checksum(_covered(kind, values[start:])):
        raise damaged(f"{what} {kept[name]!r}")
    return kind(*values)


def damaged(what: str) -> DamagedStore:
    return DamagedStore(f"the store is damaged: {what} is not as written; restore a copy of it")


# to the store


def decision_to_keep(row: DecisionRow) -> list[Any]:
    values: list[Any] = list(row[1:])
    values[_ACTION] = _encode(row.action).decode()
    for column in _LISTS:
        if isinstance(values[column], list | dict):
            values[column] = to_column(values[column])
    return [*values, checksum(_covered(DecisionRow, values))]


def later_part(row: DecisionRow) -> list[Any]:
    """What may change of a decision, for `SAVE_DECISION`."""
    values = decision_to_keep(row)
    return [*(values[column] for column in _LATER), values[-1], row.id]


def reward_to_keep(row: RewardRow) -> list[Any]:
    values: list[Any] = list(row[1:])
    values[_REWARD], values[_METRICS] = reward_column(row.reward), to_column(row.metrics)
    return [*values, checksum(_covered(RewardRow, values))]


def task_to_keep(key: TaskKey, row: TaskRow) -> list[Any]:
    return [*key, *row, task_checksum(key, row)]


def task_checksum(key: TaskKey, row: TaskRow) -> int:
    crc = zlib.crc32(row.pending or b"", zlib.crc32(row.stats))
    more = () if row.generation is None else (row.generation,)
    if row.folded is not None:
        crc = zlib.crc32(row.folded, crc)
        more = (*more, row.folded_in)
    if row.design is not None:
        crc = zlib.crc32(row.design, crc)
    if row.size is not None:
        more = (*more, "size", row.size)
    return zlib.crc32(_encode((*key, row.rounds, *more)), crc)


def total_to_keep(experiment: int, total: bytes) -> list[Any]:
    return [experiment, total, zlib.crc32(total, experiment)]


def counts_to_keep(bucket: Bucket, counts: Counts) -> list[Any]:
    kept = counts._replace(sum=text_of(counts.sum), squares=text_of(counts.squares))  # type: ignore[arg-type]
    return sealed((*bucket, *kept))


def reward_column(reward: Reward) -> Any:
    """The same text for equal rewards: there is no -0.0 in it."""
    return to_column([float(x) + 0.0 for x in reward] if isinstance(reward, list) else reward)


def to_column(value: Any) -> Any:
    """A number, or several of them, as SQLite keeps it."""
    return _encode(value).decode() if isinstance(value, list | dict) else value


# from the store


def experiment_from(kept: Kept) -> ExperimentRow:
    row: ExperimentRow = _checked(ExperimentRow, kept, "experiment", name=2, start=0)
    return row


def with_total(kept: Kept) -> ExperimentRow:
    """Of the columns of an experiment, its total and the checksum of that."""
    row = experiment_from(kept[:-2])
    return row._replace(total=total_from((row.id, *kept[-2:])))


def total_from(kept: Kept) -> bytes:
    experiment, total, crc = kept
    if not isinstance(total, bytes) or crc != zlib.crc32(total, experiment):
        raise damaged(f"what all tasks of experiment {experiment} taught")
    return total


def decision_from(kept: Kept) -> DecisionRow:
    *values, crc = kept
    if crc != checksum(_covered(DecisionRow, values[1:])):
        raise damaged(f"decision {values[3]!r}")
    values[_ACTION + 1] = _decode(values[_ACTION + 1])
    for column in _LISTS:
        if type(values[column + 1]) is str:
            values[column + 1] = _decode(values[column + 1])
    return DecisionRow._make(values)


def reward_from(kept: Kept) -> RewardRow:
    row: RewardRow = _checked(RewardRow, kept, "reward", name=0, start=1)
    return row._replace(reward=_from_column(row.reward), metrics=_from_column(row.metrics))


def change_from(kept: Kept) -> ChangeRow:
    row: ChangeRow = _checked(ChangeRow, kept, "change", name=1, start=0)
    return row


def belief_from(kept: Kept) -> BeliefRow:
    row: BeliefRow = _checked(BeliefRow, kept, "belief", name=1, start=0)
    return row


def key_from(kept: Kept) -> KeyRow:
    row: KeyRow = _checked(KeyRow, kept, "key", name=0, start=0)
    return row


def task_from(kept: Kept) -> tuple[str, TaskRow]:
    """Of the columns experiment and task, those of the row, and the checksum."""
    experiment, task, *values, crc = kept
    row = TaskRow(*values)
    whole = isinstance(row.stats, bytes) and all(
        isinstance(part, bytes | None) for part in (row.pending, row.folded, row.design)
    )
    if not whole or crc != task_checksum((experiment, task), row):
        raise damaged(f"task {task!r}")
    return task, row


def counts_from(kept: Kept) -> tuple[Bucket, Counts]:
    *values, crc = kept
    if crc != checksum(values):
        raise damaged(f"counter of {kept[1]!r}")
    return counts_of(values)


def counts_of(values: Sequence[Any]) -> tuple[Bucket, Counts]:
    """Of the columns of a counter; the last two are large integers, as text."""
    size = len(Bucket._fields)
    numbers = (number_of(text) for text in values[-2:])
    return Bucket(*values[:size]), Counts._make((*values[size:-2], *numbers))


def _from_column(value: Any) -> Any:
    return _decode(value) if isinstance(value, str) else value


def text_of(value: int) -> str:
    """A large integer whose last bits are mostly 0: what is before them, and how many there are."""
    zeros = max(0, (value & -value).bit_length() - 1)
    return f"{value >> zeros:x}p{zeros}"


def number_of(text: Any) -> int:
    digits, _, zeros = text.partition("p")
    return int(digits, 16) << int(zeros)
