"""Tables of rewards, of any kind, checked as a whole before anything is learned from them."""

from collections.abc import Iterator
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np

from adats.agents.arms import Arms
from adats.agents.batch_requests import names_of, tasks_of
from adats.agents.batches import Rewards
from adats.agents.decision import Decision
from adats.agents.decision_numbers import OF_A_BATCH
from adats.agents.decisions import Column, columns_of
from adats.agents.task_columns import LARGEST
from adats.models.core.checks import HUGE
from adats.models.core.errors import RowsError
from adats.models.core.types import FloatArray, IntArray, MetaBelief, Task


class RewardTable(NamedTuple):
    """Rewards as `learn_many` takes them."""

    rewards: Rewards
    numbers: IntArray | None  # of decisions


def rewards_of(
    frame: Any, arms: Arms, meta: MetaBelief, *, summed: bool, aged: bool = False
) -> RewardTable:
    """The rewards of a table, with their times where they are `aged`; raises with the first bad
    row, and the count of such rows.

    An Ibis table is `summed` in its engine, if that is asked for and no decision is named.
    """
    kind: Any = type(meta.empty())
    if summed and hasattr(frame, "to_pyarrow") and not arms.come_with_decisions:
        given = set(frame.columns)
        if {"task", "action", "reward"} <= given and not {"decision_id", "pulls"} & given:
            try:
                columns = columns_of(_grouped(frame, kind))
                return _rewards(columns, arms, _group_sums(kind, columns))
            except RowsError:
                pass  # it is found below, with its number
    columns = columns_of(frame)
    need = need_of(columns, feature_names(columns, arms))
    _check_columns(columns, need)
    return _rewards(columns, arms, _sums(kind, columns), aged=aged)


def feature_names(
    columns: dict[str, Column], arms: Arms, *, own_designs: bool = False
) -> list[str]:
    """The columns x0, x1, ..., where features come with decisions; as many as there are, if tasks
    have designs of their own."""
    if not arms.come_with_decisions:
        return []
    names = [f"x{i}" for i in range(len(columns) if own_designs else arms.n_features)]
    return [name for i, name in enumerate(names) if i == 0 or not own_designs or name in columns]


def need_of(columns: dict[str, Column], features: list[str]) -> list[str]:
    """Columns that a table must have."""
    counted = "pulls" in columns and "reward" not in columns
    return ["task", *(features or ["action"]), *(["pulls", "successes"] if counted else ["reward"])]


def _check_columns(columns: dict[str, Column], need: list[str]) -> None:
    missing = [name for name in need if name not in columns]
    if missing:
        raise ValueError(
            f"the table lacks {', '.join(missing)}; its columns are {', '.join(columns)}"
        )
    if "pulls" in columns and "reward" in columns:
        raise ValueError("the table has both reward and pulls: give the one or the other")


def _rewards(
    columns: dict[str, Column], arms: Arms, sums: FloatArray, *, aged: bool = False
) -> RewardTable:
    tasks, features = tasks_of(columns["task"]), feature_names(columns, arms)
    pulled: Any
    if features:
        pulled = np.column_stack([_numbers(name, columns[name]) for name in features])
        bad = np.flatnonzero((np.abs(pulled) >= HUGE).any(axis=1))
        if bad.size:
            raise RowsError(bad, "features too large: their squares overflow")
    else:
        pulled = _arm_numbers(arms, columns["action"])
    if arms.n_features and not features:
        assert arms.features is not None
        pulled = arms.features[pulled]
    numbers = decision_ids(columns)
    decided = np.full(len(tasks), numbers is not None)
    times = times_of(columns) if aged else None
    return RewardTable(Rewards(tasks, pulled, sums, decided, times), numbers)


def times_of(columns: dict[str, Column]) -> FloatArray | None:
    """When each reward was, if the table says so."""
    if "time" not in columns:
        return None
    if columns["time"].dtype.kind in "mM":
        raise RowsError([0], "time must be a number, in the unit of the half-lives, not a date")
    times = _numbers("time", columns["time"])
    bad = np.flatnonzero(np.abs(times) > HUGE)
    if bad.size:
        raise RowsError(bad, f"time is too far from 0, got {times[bad[0]]}")
    return times


def decision_ids(columns: dict[str, Column]) -> IntArray | None:
    """The numbers of decisions, if the table has them."""
    if "decision_id" not in columns:
        return None
    given = _numbers("decision_id", columns["decision_id"])
    bad = np.flatnonzero((given != np.floor(given)) | (np.abs(given) > LARGEST))
    if bad.size:
        raise RowsError(bad, f"decision_id is a whole number, got {given[bad[0]]}")
    return given.astype(np.int64)


def _sums(kind: Any, columns: dict[str, Column]) -> FloatArray:
    """What each row adds to the statistics."""
    if "reward" not in columns:
        return _counted(kind, columns)
    return _sums_of(kind, _numbers("reward", columns["reward"]))


def _sums_of(kind: Any, values: FloatArray) -> FloatArray:
    bad = np.flatnonzero(~kind.are_rewards(values))
    if bad.size:
        raise RowsError(bad, _why(kind, values[bad[0]]))
    sums: FloatArray = kind.sums_of(values)
    return sums


def _grouped(table: Any, kind: Any) -> Any:
    """An Ibis table, summed in its engine: by task and arm, and by reward where those are whole."""
    if kind.WHOLE_REWARDS:
        groups = table.group_by(["task", "action", "reward"]).aggregate(times=table.count())
        return groups.to_pyarrow()
    if not (table.reward.type().is_numeric() or table.reward.type().is_boolean()):
        raise RowsError([0], f"rewards of type {table.reward.type()}")
    y = table.reward.cast("float64")
    groups = table.group_by(["task", "action"]).aggregate(
        times=table.count(),
        known=y.count(),
        least=y.min(),
        most=y.max(),
        reward=y.sum(),
        squares=(y * y).sum(),
    )
    return groups.to_pyarrow()


def _group_sums(kind: Any, columns: dict[str, Column]) -> FloatArray:
    """Of what `_grouped` gave."""
    times = _numbers("times", columns["times"])
    if kind.WHOLE_REWARDS:
        return _sums_of(kind, _numbers("reward", columns["reward"])) * times
    for name in ("least", "most"):
        _sums_of(kind, _numbers("reward", columns[name]))
    some = np.flatnonzero(times != columns["known"])
    if some.size:
        raise RowsError(some, "rewards are missing")
    return np.stack([times, *(_numbers(name, columns[name]) for name in ("reward", "squares"))])


def _numbers(name: str, values: Column) -> FloatArray:
    """A column of finite numbers."""
    if values.ndim != 1:
        raise ValueError(f"{name} must be one number a row, got shape {values.shape}")
    if values.dtype.kind not in "biuf":
        each = values.tolist()
        bad = [i for i, value in enumerate(each) if not _is_number(value)]
        if bad:
            raise RowsError(bad, f"{name} must be a number, got {each[bad[0]]!r}")
    found = values.astype(np.float64)
    bad_rows = np.flatnonzero(~np.isfinite(found))
    if bad_rows.size:
        raise RowsError(bad_rows, f"{name} must be a finite number, got {found[bad_rows[0]]}")
    return found


def _is_number(value: Any) -> bool:
    known = isinstance(value, (int, float, Decimal, np.number, np.bool_))
    return known and not isinstance(value, np.complexfloating)


def _arm_numbers(arms: Arms, values: Column) -> IntArray:
    """Arms, by name or by index, as indices."""
    if values.dtype.kind == "f" and np.isnan(values).any():
        raise RowsError(np.flatnonzero(np.isnan(values)), "there is no action")
    names = values.tolist()
    try:
        known = {name: arms.index(name) for name in set(names)}
    except (ValueError, TypeError):
        bad = [i for i, name in enumerate(names) if not _is_arm(arms, name)]
        try:
            arms.index(names[bad[0]])
        except ValueError as error:
            raise RowsError(bad, str(error)) from None
        raise
    return np.fromiter(map(known.__getitem__, names), dtype=np.intp, count=len(names))


def _is_arm(arms: Arms, name: Any) -> bool:
    try:
        arms.index(name)
    except (ValueError, TypeError):
        return False
    return True


def _counted(kind: Any, columns: dict[str, Column]) -> FloatArray:
    """Sums of so many pulls and successes a row."""
    pulls, successes = (_numbers(name, columns[name]) for name in ("pulls", "successes"))
    found = []
    for i, (n, s) in enumerate(zip(pulls.tolist(), successes.tolist(), strict=True)):
        try:
            found.append(kind.counted(n, s))
        except ValueError as error:
            raise RowsError([i], str(error)) from None
    return np.array(found).reshape(len(pulls), -1).T


def _why(kind: Any, value: float) -> str:
    try:
        kind.check_reward(value)
    except ValueError as error:
        return str(error)
    return f"{value} is no reward of this model"


def tasks_in(columns: dict[str, Column]) -> list[Task]:
    return names_of(tasks_of(columns["task"]))


def reward_rows(
    columns: dict[str, Column], arms: Arms, times: FloatArray | None
) -> Iterator[dict[str, Any]]:
    """What `tell` is given for each row of a table; with times, if rewards age."""
    features = feature_names(columns, arms, own_designs=True)
    need = need_of(columns, features)
    _check_columns(columns, need)
    rows = np.column_stack([_numbers(x, columns[x]) for x in features]) if features else None
    given = ["action", *(name for name in need if name in ("reward", "pulls", "successes"))]
    lists: dict[str, Any] = {name: columns[name].tolist() for name in given if name in columns}
    if times is not None:
        lists["time"] = times.tolist()
    numbers = decision_ids(columns)
    for i, task in enumerate(tasks_in(columns)):
        values = {name: _plain(column[i]) for name, column in lists.items()}
        own = None if rows is None else rows[i]
        action = values.pop("action", None)
        if numbers is None:
            yield {"task": task, "action": None if features else action, "features": own, **values}
        else:
            count = int(numbers[i]) % OF_A_BATCH
            made = values.get("time", 0.0)
            yield {"decision": Decision(task, action, own, count, made), **values}


def _plain(value: Any) -> Any:
    """An entry that is a list, as frames have them, is a tuple of arms or an array of rewards."""
    return tuple(value.tolist()) if isinstance(value, np.ndarray) else value


def bad_rows(rows: list[dict[str, Any]], arms: Arms, meta: MetaBelief) -> list[int]:
    """Places of rows whose action or reward cannot be right, as far as each says by itself."""
    return [i for i, row in enumerate(rows) if _is_bad(row, arms, type(meta.empty()))]


def _is_bad(row: dict[str, Any], arms: Arms, kind: Any) -> bool:
    decision, rewards = row.get("decision"), row.get("reward", ())
    given = row if decision is None else {"action": decision.action, "features": decision.features}
    try:
        arms.pulled(given["action"], given["features"])
        for reward in rewards if isinstance(rewards, (tuple, list)) else (rewards,):
            kind.check_reward(reward)
    except (ValueError, TypeError):
        return True
    return False
