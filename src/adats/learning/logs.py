"""Logs to sufficient statistics by task: one pass, written once with Ibis, for any engine it knows.

A log has one row a pull: `task`, `arm` (not for linear models), `reward`, and if known `time`,
`propensity`, `decision_id`; linear models have features `x0`, `x1`, ... (docs/guides/logs.md).
Other parts of a log: rows in the order of time, first halves, batches. Each takes a log and its
columns as `statistics` does, or what `planned` made of them.
"""

import json
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from adats.learning.log_columns import Plan, fetch, ibis, planned, present
from adats.learning.tables import ArmTable, Features, LinearTable, evenly
from adats.models.core.checks import count_of
from adats.models.core.types import Arm, FloatArray, IntArray, Task

MOST_CELLS = 50_000_000  # numbers of a table by names of arms; beyond, arms are places in a task
DAY = 86400.0  # seconds
PROPENSITY = "propensity"  # the column of how likely each pull was


class Aggregated(NamedTuple):
    """The statistics of a log, how many rows they sum, and how many bad ones were dropped."""

    table: ArmTable | LinearTable
    rows: int
    dropped: int


def statistics(
    log: Any, *, on_bad: Literal["raise", "drop"] = "raise", **columns: Any
) -> Aggregated:
    """Sufficient statistics by task of a log, which is anything that `read_log` takes.

    `columns` are those of `plan`: `model`, which is gaussian, binary, count or linear; task, arm,
    reward, features, time, pulls, squares, means, task_features and arm_features. A bad row (a
    name that is missing, a number that is none or is not finite, a reward that the model cannot
    have, a time that cannot be read) is an error, or is dropped.
    """
    if on_bad not in ("raise", "drop"):
        raise ValueError(f"on_bad is 'raise' or 'drop', got {on_bad!r}")
    use = planned(log, **columns)
    found = fetch(_aggregation(use))
    total, good = (int(found[name].to_numpy().sum()) for name in ("rows", "good_rows"))
    if not total:
        raise ValueError("the log is empty: it has columns, but no rows")
    if good < total and on_bad == "raise":
        raise ValueError(
            f"{_complaint(use, total)}. To drop such rows: on_bad='drop', --on-bad drop"
        )
    if not good:
        raise ValueError(f"no good row is left in the log: {_complaint(use, total)}")
    found = found.filter(found["n"].to_numpy() > 0)
    if not len(found):
        raise ValueError(f"the log is empty: column {use.numbers['pulls'].name!r} has no pulls")
    table = _linear_table(use, found) if use.stats is None else _arm_table(use, found)
    return Aggregated(table, good, total - good)


def _aggregation(use: Plan) -> Any:
    """One pass over the log; bad rows are counted, and add nothing but zeros to the sums."""
    rows, keys = use.select(), list(use.keys)
    rows = rows.mutate(**{z: ibis().ifelse(rows.good, rows[z], 0.0) for z in use.numbers})
    good = rows.good.cast("int64").sum()
    n = rows.pulls.sum() if "pulls" in use.numbers else good
    sums = {"n": n, "good_rows": good, "rows": rows.count()}
    for name in use.times:
        sums[f"since_{name}"] = rows[name].min(where=rows.good)
        sums[f"until_{name}"] = rows[name].max(where=rows.good)
    for name in use.known:
        sums[f"least_{name}"] = rows[name].min(where=rows.good)
        sums[f"most_{name}"] = rows[name].max(where=rows.good)
    if use.stats is None:
        numbers = list(use.numbers)
        for i, z in enumerate(numbers):
            sums |= {f"{z}_{w}": (rows[z] * rows[w]).sum() for w in numbers[: i + 1]}
    elif use.stats.ROWS > 3:
        keys.append("y")  # pulls of each value, so that no engine need know log y!
    else:
        squares = rows.squares if "squares" in use.numbers else rows.y * rows.y
        sums |= {"total": rows.y.sum(), "squares": squares.sum()}
    return rows.group_by(keys).aggregate(**sums)


def _linear_table(use: Plan, found: Any) -> LinearTable:
    tasks, rows = use.coded("task", found)

    def summed(name: str) -> FloatArray:
        return np.bincount(rows, found[name].to_numpy(), len(tasks)).astype(np.float64)

    numbers = list(use.numbers)
    moments = np.empty((len(tasks), len(numbers), len(numbers)))
    for i, z in enumerate(numbers):
        for j, w in enumerate(numbers[: i + 1]):
            moments[:, i, j] = moments[:, j, i] = summed(f"{z}_{w}")
    features = tuple(column.name for column in use.numbers.values())[:-1]
    return LinearTable(tasks, features, summed("n"), moments, *_span(found))


def _arm_table(use: Plan, found: Any) -> ArmTable:
    (tasks, rows), (arms, columns) = use.coded("task", found), use.coded("arm", found)
    n = found["n"].to_numpy().astype(np.float64)
    if use.stats.ROWS > 3:
        times = found["good_rows"].to_numpy()
        sums = times * use.stats.sums_of(found["y"].to_numpy())
        sums[0] = n
    else:
        sums = np.stack([n, found["total"].to_numpy(), found["squares"].to_numpy()])
    if "pulls" in use.numbers and use.stats.MOST == 1.0:
        sums[2] = sums[1]  # the squares of single rewards
    own: list[Any] = [
        _features(use, "z", found, rows, tasks), _features(use, "a", found, columns, arms)
    ]  # fmt: skip
    packed = len(arms) * len(tasks) * len(sums) > MOST_CELLS
    if packed:  # names of arms mean nothing: each task has others
        arms, columns = _packed(rows, columns)
        own[1] = None
    cells, shape = rows * len(arms) + columns, (len(tasks), len(arms))
    table = [np.bincount(cells, part, shape[0] * shape[1]).reshape(shape) for part in sums]
    stacked = np.stack(table, axis=1).astype(np.float64)
    more: list[Any] = [*_span(found), *own, packed]
    return ArmTable(use.stats, tasks, arms, stacked, *more)


def _packed(rows: IntArray, columns: IntArray) -> tuple[tuple[int, ...], IntArray]:
    """The place of each arm among those of its task."""
    pairs, which = np.unique(np.stack([rows, columns]), axis=1, return_inverse=True)
    first = np.append(True, pairs[0, 1:] != pairs[0, :-1])
    start = np.maximum.accumulate(np.where(first, np.arange(first.size), 0))
    places = np.arange(first.size) - start
    return tuple(range(int(places.max()) + 1)), places[which.ravel()]


def _features(
    use: Plan, role: str, found: Any, codes: IntArray, names: tuple[Any, ...]
) -> Features | None:
    """Those of tasks, or of arms: the same in all rows of one."""
    columns = {key: column.name for key, column in use.known.items() if key.startswith(role)}
    if not columns:
        return None
    values = np.empty((len(names), len(columns)))
    for j, (key, name) in enumerate(columns.items()):
        least, most = np.full(len(names), np.inf), np.full(len(names), -np.inf)
        np.minimum.at(least, codes, found[f"least_{key}"].to_numpy())
        np.maximum.at(most, codes, found[f"most_{key}"].to_numpy())
        moved = np.flatnonzero(least != most)
        if moved.size:
            what = "task" if role == "z" else "arm"
            raise ValueError(
                f"column {name!r} must be the same in all rows of a {what}, but is not in "
                f"{moved.size:,} of {len(names):,}; for example {what} {names[moved[0]]!r} has "
                f"{least[moved[0]]:g} and {most[moved[0]]:g}"
            )
        values[:, j] = least
    return Features(tuple(columns.values()), values)


def _span(found: Any) -> list[str | None]:
    """The first and the last time, as ISO text in UTC."""
    span: list[str | None] = [None, None]
    for i, (end, extreme) in enumerate((("since", np.fmin), ("until", np.fmax))):
        for name in (name for name in found.column_names if name.startswith(end)):
            value = extreme.reduce(found[name].to_numpy())
            if name.endswith("seconds") and abs(value) < 2.5e11:  # before the year 9999
                value = np.datetime64(int(np.floor(value)), "s")
            if isinstance(value, np.datetime64) and not np.isnat(value):
                span[i] = str(value.astype("datetime64[s]"))
    return span


def _complaint(use: Plan, total: int) -> str:
    """Which columns are bad, in how many rows, and one of them: a second look at the log."""
    columns = use.columns
    bad = {key: ~ibis().coalesce(column.good, False) for key, column in columns.items()}
    counts = fetch(use.log.aggregate(**{k: b.cast("int64").sum() for k, b in bad.items()}))
    counts = {key: count for key, (count,) in counts.to_pydict().items() if count}
    found = [
        f"column {columns[key].name!r} must be {columns[key].wanted}, but is not in {count:,} "
        f"of {total:,} rows"
        for key, count in counts.items()
    ]
    first = next(iter(counts))
    names = dict.fromkeys(columns[key].name for key in (*use.keys, first, "y"))
    (row,) = fetch(use.log.filter(bad[first]).select(*names).limit(1)).to_pylist()
    return f"{'; '.join(found)}; for example {row}"


# rows in the order of time


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


def last_times(log: Any, *, tasks: Sequence[Task], **columns: Any) -> FloatArray:
    """Of the good rows of each task; NaN where no row has a time."""
    use = planned(log, **columns)
    good = use.select().filter(lambda row: row.good)
    found = fetch(good.group_by("task").aggregate(**{x: good[x].max() for x in use.times}))
    times = np.full(len(tasks), np.nan)
    times[places(use, "task", found, tasks)] = _clock(use, found)
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
