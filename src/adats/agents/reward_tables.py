"""Tables of rewards, of any kind, checked as a whole before anything is learned from them."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from adats.agents.arms import Arms
from adats.agents.batches import Rewards, tasks_of
from adats.agents.decision import Decision
from adats.agents.decision_numbers import OF_A_BATCH
from adats.agents.decisions import Column, columns_of
from adats.agents.errors import RowsError
from adats.models.core.types import FloatArray, IntArray, MetaBelief, Task


class RewardTable(NamedTuple):
    """Rewards as `learn_many` takes them, and the columns that they came from."""

    rewards: Rewards
    columns: dict[str, Column]
    numbers: IntArray | None  # of decisions


def rewards_of(frame: Any, arms: Arms, meta: MetaBelief) -> RewardTable:
    """The rewards of a table; raises with the first bad row, and the count of such rows."""
    kind: Any = type(meta.empty())
    comes_with_features = arms.come_with_decisions
    if hasattr(frame, "to_pyarrow") and hasattr(frame, "group_by"):  # Ibis
        frame = frame.to_pyarrow() if comes_with_features else _grouped(frame, kind)
    columns = columns_of(frame)
    features = [f"x{i}" for i in range(arms.n_features)] if comes_with_features else []
    counted = "pulls" in columns and "reward" not in columns
    need = ["task", *(features or ["action"])]
    need += ["pulls", "successes"] if counted else ["reward"]
    missing = [name for name in need if name not in columns]
    if missing:
        raise ValueError(
            f"the table lacks {', '.join(missing)}; its columns are {', '.join(columns)}"
        )
    tasks = tasks_of(columns["task"])
    pulled: Any
    if features:
        pulled = np.column_stack([_numbers(name, columns[name]) for name in features])
    else:
        pulled = _arm_numbers(arms, columns["action"])
    if counted:
        sums = _counted(kind, columns)
    else:
        values = _numbers("reward", columns["reward"])
        bad = np.flatnonzero(~kind.are_rewards(values))
        if bad.size:
            raise RowsError(bad, _why(kind, values[bad[0]]))
        sums = kind.sums_of(values)
        if "times" in columns:
            sums = sums * columns["times"]
        elif "squares" in columns:
            sums = np.stack([_numbers(n, columns[n]) for n in ("pulls", "reward", "squares")])
    numbers = None
    if "decision_id" in columns:
        whole = _numbers("decision_id", columns["decision_id"])
        numbers = whole.astype(np.int64)
        bad = np.flatnonzero(numbers != whole)
        if bad.size:
            raise RowsError(bad, f"decision_id is a whole number, got {whole[bad[0]]}")
    if arms.n_features and not features:
        assert arms.features is not None
        pulled = arms.features[pulled]
    decided = np.full(len(tasks), numbers is not None)
    return RewardTable(Rewards(tasks, pulled, sums, decided), columns, numbers)


def _grouped(table: Any, kind: Any) -> Any:
    """An Ibis table, summed in its engine: by task and arm, and by reward where those are whole."""
    missing = {"task", "action", "reward"} - set(table.columns)
    if missing:
        raise ValueError(f"the table lacks {', '.join(sorted(missing))}")
    nothing = int(table.filter(table.reward.isnull() | table.task.isnull()).count().execute())
    if nothing:
        raise ValueError(f"{nothing} rows have no task or no reward; nothing was changed")
    if kind.WHOLE_REWARDS:
        groups = table.group_by(["task", "action", "reward"]).aggregate(times=table.count())
    else:
        y = table.reward.cast("float64")
        groups = table.group_by(["task", "action"]).aggregate(
            pulls=table.count(), reward=y.sum(), squares=(y * y).sum()
        )
    return groups.to_pyarrow()


def _numbers(name: str, values: Column) -> FloatArray:
    """A column of finite numbers."""
    try:
        if values.dtype.kind in "USVc":
            raise TypeError
        found = values.astype(np.float64)
    except (TypeError, ValueError):
        bad = [i for i, value in enumerate(values.tolist()) if not _is_number(value)]
        raise RowsError(bad, f"{name} must be a number, got {values.tolist()[bad[0]]!r}") from None
    bad_rows = np.flatnonzero(~np.isfinite(found))
    if bad_rows.size:
        raise RowsError(bad_rows, f"{name} must be a finite number, got {found[bad_rows[0]]}")
    return found


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, np.number)) and not isinstance(value, np.complexfloating)


def _arm_numbers(arms: Arms, values: Column) -> IntArray:
    """Arms, by name or by index, as indices."""
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
    names = tasks_of(columns["task"])
    return names.tolist() if isinstance(names, np.ndarray) else names


def reward_rows(columns: dict[str, Column], arms: Arms) -> Iterator[dict[str, Any]]:
    """What `tell` is given for each row of a table."""
    given = [name for name in ("action", "reward", "pulls", "successes") if name in columns]
    missing = {"task"} - set(columns) or ({"reward", "pulls"} if not given[1:] else set())
    features = [f"x{i}" for i in range(arms.n_features)] if arms.come_with_decisions else []
    missing |= set(features) - set(columns)
    if missing:
        raise ValueError(
            f"the table lacks {', '.join(sorted(missing))}; its columns are {', '.join(columns)}"
        )
    rows = np.column_stack([_numbers(x, columns[x]) for x in features]) if features else None
    lists: dict[str, Any] = {name: columns[name].tolist() for name in given}
    numbers = columns.get("decision_id")
    for i, task in enumerate(tasks_in(columns)):
        values = {name: _plain(column[i]) for name, column in lists.items()}
        own = None if rows is None else rows[i]
        action = values.pop("action", None)
        if numbers is None:
            yield {"task": task, "action": None if features else action, "features": own, **values}
        else:
            count = int(numbers[i]) % OF_A_BATCH
            yield {"decision": Decision(task, action, own, count), **values}


def _plain(value: Any) -> Any:
    """An entry that is a list, as frames have them, is a tuple of arms or an array of rewards."""
    return tuple(value.tolist()) if isinstance(value, np.ndarray) else value
