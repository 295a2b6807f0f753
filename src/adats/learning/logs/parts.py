"""Parts of a log beside its statistics: rows in the order of time, first halves, batches.

Each takes a log and its columns as `statistics` does, or what `planned` made of them.
"""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from adats.learning.logs.columns import Plan, planned
from adats.learning.logs.reading import fetch, ibis, present
from adats.learning.tables import evenly
from adats.models.core.checks import count_of
from adats.models.core.types import Arm, FloatArray, IntArray, Task

DAY = 86400.0  # seconds
PROPENSITY = "propensity"  # the column of how likely each pull was


class TaskRows(NamedTuple):
    """The pulls of one task, in the order of time."""

    task: Task
    actions: IntArray | FloatArray  # the index of each arm, or its features, a row a pull
    rewards: FloatArray
    times: FloatArray  # seconds since 1970; NaN where a row has none


def spread(tasks: Sequence[Task], most: int) -> list[Task]:
    """At most so many of the tasks, evenly spaced in their order."""
    ordered = sorted(tasks)
    return [ordered[i] for i in evenly(len(tasks), count_of("most", most)).tolist()]


def rows(
    log: Any, *, tasks: Sequence[Task], arms: Sequence[Arm] | None = None, **columns: Any
) -> list[TaskRows]:
    """The good rows of some tasks, each in the order of time (of the log, if that has no time).

    An action is the place of its arm in `arms`, by default all arms of the log in their order,
    as in its statistics. Rows without a time come last.
    """
    use = planned(log, **columns)
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


# how a log was allocated


class WeightedCells(NamedTuple):
    """Σw, Σw² and Σwy of every task and arm, with w one over the propensity."""

    weights: FloatArray
    squares: FloatArray
    rewards: FloatArray


def first_halves(
    log: Any, *, tasks: Sequence[Task], arms: Sequence[Arm], **columns: Any
) -> tuple[FloatArray, FloatArray] | None:
    """Pulls and summed rewards of the first half of the rows of some tasks, by time.

    None where a row has several pulls, or the log has no times.
    """
    use = planned(log, **columns)
    if "pulls" in use.numbers or not use.times:
        return None
    rows = use.select().filter(lambda row: row.good)
    rows = rows.filter(rows.task.isin(as_written(use, tasks)))
    order = ibis().window(group_by=rows.task, order_by=[rows[name] for name in use.times])
    rows = rows.mutate(place=ibis().row_number().over(order))
    rows = rows.mutate(size=rows.count().over(ibis().window(group_by=rows.task)))
    early = rows.filter(2 * (rows.place + 1) <= rows["size"])
    found = fetch(early.group_by(["task", "arm"]).aggregate(n=early.count(), s=early.y.sum()))
    n, s = _cells(use, found, tasks, arms, ("n", "s"))
    return n, s


def weighted_cells(
    log: Any, *, tasks: Sequence[Task], arms: Sequence[Arm], **columns: Any
) -> WeightedCells | None:
    """None where the log has no propensities, or not of every row."""
    use = planned(log, **columns)
    if PROPENSITY not in use.log.columns or "pulls" in use.numbers:
        return None
    rows = use.select(chance=use.log[PROPENSITY].try_cast("float64")).filter(lambda row: row.good)
    known = ibis().coalesce((rows.chance > 0.0) & (rows.chance <= 1.0), False)
    w = ibis().ifelse(known, 1.0 / rows.chance, 0.0)
    sums = {"w": w.sum(), "ww": (w * w).sum(), "wy": (w * rows.y).sum()}
    found = fetch(
        rows.group_by(["task", "arm"]).aggregate(**sums, bad=(~known).cast("int64").sum())
    )
    if found["bad"].to_numpy().any():
        return None
    return WeightedCells(*_cells(use, found, tasks, arms, ("w", "ww", "wy")))


def _cells(
    use: Plan, found: Any, tasks: Sequence[Task], arms: Sequence[Arm], names: Sequence[str]
) -> list[FloatArray]:
    row, column = places(use, "task", found, tasks), places(use, "arm", found, arms)
    result = []
    for name in names:
        cells = np.zeros((len(tasks), len(arms)))
        cells[row, column] = found[name].to_numpy()
        result.append(cells)
    return result


# batches


class Batches(NamedTuple):
    """One entry a batch; those of one cell, a task and an arm, stand together in their order."""

    cell: IntArray
    pulls: FloatArray
    successes: FloatArray  # or the sum of counts


def batches(log: Any, *, batch: str | None = None, **columns: Any) -> Batches | None:
    """The batches of a log of binary rewards or counts; None where it has none.

    They are what the column `batch` names, such as visitors or days; else the rows, if they have
    several `pulls`; else the days of the column of times.
    """
    use = planned(log, **columns)
    if use.stats is None or not use.stats.SUMS_TELL:
        raise ValueError(f"batches are for binary rewards and counts, not for {use.model}")
    several, part = "pulls" in use.numbers, _part(use, batch)
    if part is None and not several:
        return None
    if part is None:
        rows = use.select()
        found = fetch(rows.filter(rows.good).select("task", "arm", "y", n=rows.pulls))
        order = np.arange(len(found))
    else:
        rows = use.select(batch=part)
        rows = rows.filter(rows.good & rows.batch.notnull())
        sums = {"n": rows.pulls.sum() if several else rows.count(), "y": rows.y.sum()}
        found = fetch(rows.group_by(["task", "arm", "batch"]).aggregate(**sums))
        order = np.argsort(np.array(found["batch"].to_pylist(), dtype=str), kind="stable")
    if not len(found):
        return None
    (_, tasks), (arms, places) = use.coded("task", found), use.coded("arm", found)
    cell, counts = tasks * len(arms) + places, found["n"].to_numpy().astype(np.float64)
    order = order[counts[order] > 0]
    order = order[np.argsort(cell[order], kind="stable")]
    return Batches(cell[order], counts[order], found["y"].to_numpy()[order])


def _part(use: Plan, batch: str | None) -> Any:
    """What tells batches apart, as an Ibis expression that sorts as text."""
    if batch is not None:
        present(use.log.columns, [batch], "batch=, --batch")
        return use.log[batch].cast("string")
    if "pulls" in use.numbers or not use.times:
        return None
    days = []
    if "time" in use.times:
        days.append(use.times["time"].date().cast("string"))
    if "seconds" in use.times:
        days.append((use.times["seconds"] / DAY).floor().cast("int64").cast("string"))
    return days[0] if len(days) == 1 else ibis().coalesce(*days)
