"""Rows as SQLite keeps them: lists are JSON, and each row ends with a checksum of all the rest.

No row is used that is not as it was written.
"""

import zlib
from collections.abc import Sequence
from typing import Any

import msgspec

from adats.service.errors import DamagedStore
from adats.service.stores.interface import (
    ChangeRow,
    DecisionRow,
    ExperimentRow,
    KeyRow,
    Reward,
    RewardRow,
    TaskRow,
)

Kept = Sequence[Any]  # the columns of a row, the checksum last

CHECKSUM = "crc"


def columns(row: type[ExperimentRow] | type[DecisionRow] | type[RewardRow]) -> str:
    return ", ".join((*row._fields, CHECKSUM))


def insert(table: str, fields: Sequence[str]) -> str:
    names, places = ", ".join((*fields, CHECKSUM)), ", ".join("?" * (len(fields) + 1))
    return f"INSERT INTO {table} ({names}) VALUES ({places})"


ADD_EXPERIMENT = insert("experiments", ExperimentRow._fields[1:])  # SQLite makes the ids
ADD_DECISION = insert("decisions", DecisionRow._fields[1:])
ADD_REWARD = insert("rewards", RewardRow._fields[1:])
ADD_CHANGE = insert("changes", ChangeRow._fields)
ADD_KEY = insert("keys", KeyRow._fields)


def checksum(values: Sequence[Any]) -> int:
    return zlib.crc32(msgspec.json.encode(values))


def task_checksum(experiment: int, task: str, row: TaskRow) -> int:
    crc = zlib.crc32(row.pending or b"", zlib.crc32(row.stats))
    return zlib.crc32(msgspec.json.encode((experiment, task, row.rounds)), crc)


def without_id(row: ExperimentRow | DecisionRow | RewardRow) -> list[Any]:
    """What is kept besides the id, with the checksum."""
    _, *values = row
    return [*values, checksum(values)]


def whole(row: ChangeRow | KeyRow) -> list[Any]:
    """All that is kept, with the checksum."""
    return [*row, checksum(row)]


def decision_to_keep(row: DecisionRow) -> list[Any]:
    plain = row._replace(
        action=msgspec.json.encode(row.action).decode(),
        propensity=to_column(row.propensity),
        reward=to_column(row.reward),
        counted=to_column(row.counted),
    )
    return without_id(plain)


def reward_to_keep(row: RewardRow) -> list[Any]:
    return without_id(row._replace(reward=reward_column(row.reward)))


def reward_column(reward: Reward) -> Any:
    """The same text for equal rewards: there is no -0.0 in it."""
    return to_column([float(x) + 0.0 for x in reward] if isinstance(reward, list) else reward)


def experiment_from(kept: Kept) -> ExperimentRow:
    return ExperimentRow(*_checked(kept, "experiment", name=2, start=1))


def decision_from(kept: Kept) -> DecisionRow:
    row = DecisionRow(*_checked(kept, "decision", name=3, start=1))
    return row._replace(
        action=msgspec.json.decode(row.action),  # type: ignore[arg-type]
        propensity=_from_column(row.propensity),
        reward=_from_column(row.reward),
        counted=_from_column(row.counted),
    )


def reward_from(kept: Kept) -> RewardRow:
    row = RewardRow(*_checked(kept, "reward", name=0, start=1))
    return row._replace(reward=_from_column(row.reward))


def change_from(kept: Kept) -> ChangeRow:
    return ChangeRow(*_checked(kept, "change", name=1, start=0))


def key_from(kept: Kept) -> KeyRow:
    return KeyRow(*_checked(kept, "key", name=0, start=0))


def task_from(experiment: int, task: str, kept: Kept) -> TaskRow:
    *values, crc = kept
    row = TaskRow(*values)
    if crc != task_checksum(experiment, task, row):
        raise _damaged(f"task {task!r}")
    return row


def _checked(kept: Kept, what: str, *, name: int, start: int) -> list[Any]:
    """The row without its checksum, which covers all from `start` on: before is its own id."""
    *values, crc = kept
    if crc != checksum(values[start:]):
        raise _damaged(f"{what} {kept[name]!r}")
    return values


def _damaged(what: str) -> DamagedStore:
    return DamagedStore(f"the store is damaged: {what} is not as written; restore a copy of it")


def to_column(value: Any) -> Any:
    """A number, or a list of them, as SQLite keeps it."""
    return msgspec.json.encode(value).decode() if isinstance(value, list) else value


def _from_column(value: Any) -> Any:
    return msgspec.json.decode(value) if isinstance(value, str) else value
