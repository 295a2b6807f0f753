"""The rows of some tasks, in the order of time."""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from adats.learning.logs.columns import Plan, plan
from adats.learning.logs.reading import fetch, read_log
from adats.models.core.checks import count_of
from adats.models.core.types import Arm, FloatArray, IntArray, Task


class TaskRows(NamedTuple):
    """The pulls of one task, in the order of time."""

    task: Task
    actions: IntArray | FloatArray  # the index of each arm, or its features, a row a pull
    rewards: FloatArray
    times: FloatArray  # seconds since 1970; NaN where a row has none


def spread(tasks: Sequence[Task], most: int) -> list[Task]:
    """At most so many of the tasks, evenly spaced in their order."""
    ordered = sorted(tasks)
    places = np.linspace(0, len(tasks) - 1, min(count_of("most", most), len(tasks)))
    return [ordered[int(i)] for i in places.round()]


def rows(
    log: Any,
    *,
    model: str,
    tasks: Sequence[Task],
    arms: Sequence[Arm] | None = None,
    **columns: Any,
) -> list[TaskRows]:
    """The good rows of some tasks, each in the order of time (of the log, if that has no time).

    An action is the place of its arm in `arms`, by default all arms of the log in their order,
    as in its statistics. Rows without a time come last. `columns` are those of `statistics`.
    """
    use = plan(read_log(log), model=model, **columns)
    good = use.select().filter(lambda row: row.good)
    found = fetch(good.filter(good.task.isin(as_written(use, tasks))))
    codes = places(use, "task", found, tasks)
    if use.stats is None:
        actions: Any = np.column_stack([found[x].to_numpy() for x in use.numbers if x != "y"])
    else:
        every = use.coded("arm", fetch(good.select("arm").distinct()))[0] if arms is None else arms
        actions = places(use, "arm", found, every)
    order = np.lexsort((*(found[name].to_numpy() for name in use.times), codes))
    ends = np.cumsum(np.bincount(codes, minlength=len(tasks)))
    rewards, times = found["y"].to_numpy(), _clock(use, found)
    parts = zip(tasks, np.split(order, ends)[:-1], strict=True)
    return [TaskRows(name, actions[part], rewards[part], times[part]) for name, part in parts]


def _clock(use: Plan, found: Any) -> FloatArray:
    """Seconds since 1970, NaN where the time is not known."""
    times = np.full(len(found), np.nan)
    for name in use.times:
        values = found[name].to_numpy()
        if values.dtype.kind == "M":
            known = ~np.isnat(values)
            seconds = values.astype("datetime64[us]").astype(np.int64) / 1e6
            times[known] = seconds[known]
        elif values.dtype.kind == "O":  # dates
            days = np.array(values, dtype="datetime64[s]")
            times[~np.isnat(days)] = days.astype(np.int64)[~np.isnat(days)]
        else:
            times = np.where(np.isfinite(values), values, times)
    return times


def as_written(use: Plan, tasks: Sequence[Task]) -> list[Any]:
    """Names of tasks as they stand in the column of the log."""
    if use.kind("task").is_integer():
        return [int(name) for name in tasks]
    names = [str(name) for name in tasks]
    if use.kind("task").is_json():
        names += [json.dumps(name, ensure_ascii=False) for name in names]
    return names


def places(use: Plan, key: str, found: Any, known: Sequence[Task]) -> IntArray:
    """The place of each row's task, or arm, among those that are known."""
    place = {str(name): i for i, name in enumerate(known)}
    names = list(map(str, use.plain(key, found[key].to_pylist())))
    unknown = sorted(set(names) - set(place))
    if unknown:
        raise ValueError(f"the log has an {key} {unknown[0]!r}, which is not one of {list(known)}")
    return np.array([place[name] for name in names], dtype=np.intp)
