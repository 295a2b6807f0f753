"""Sufficient statistics by task, in one pass over the log."""

from typing import Any, Literal, NamedTuple

import numpy as np

from adats.learning.logs.columns import Plan, planned
from adats.learning.logs.reading import fetch, ibis
from adats.learning.tables import ArmTable, Features, LinearTable
from adats.models.core.types import FloatArray, IntArray

MOST_CELLS = 50_000_000  # numbers of a table by names of arms; beyond, arms are places in a task


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
