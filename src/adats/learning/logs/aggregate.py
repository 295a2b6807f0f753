"""Sufficient statistics by task, in one pass over the log."""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy.special import gammaln

from adats.learning.logs.columns import Plan, plan
from adats.learning.logs.reading import fetch, ibis, read_log
from adats.learning.tables import KINDS, ArmTable, LinearTable
from adats.models.core.types import FloatArray


class Aggregated(NamedTuple):
    """The statistics of a log, how many rows they sum, and how many bad ones were dropped."""

    table: ArmTable | LinearTable
    rows: int
    dropped: int


def statistics(
    log: Any,
    *,
    model: str,
    task: str = "task",
    arm: str = "arm",
    reward: str = "reward",
    features: Sequence[str] | None = None,
    time: str | None = None,
    pulls: str | None = None,
    on_bad: Literal["raise", "drop"] = "raise",
) -> Aggregated:
    """Sufficient statistics by task of a log, which is anything that `read_log` takes.

    `model` is gaussian, binary, count or linear. A row is one pull; for binary rewards and counts
    it may be several, with the sum of their rewards, if a column says how many `pulls`. A bad row
    (a name that is missing, a number that is none or is not finite, a reward that the model cannot
    have) is an error, or is dropped.
    """
    if on_bad not in ("raise", "drop"):
        raise ValueError(f"on_bad is 'raise' or 'drop', got {on_bad!r}")
    use = plan(
        read_log(log),
        model=model, task=task, arm=arm, reward=reward, features=features, time=time,
        pulls=pulls,
    )  # fmt: skip
    found = fetch(_aggregation(use, model))
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
        raise ValueError(f"the log is empty: column {pulls!r} has no pulls")
    table = _linear_table(use, found) if model == "linear" else _arm_table(use, found, model)
    return Aggregated(table, good, total - good)


def _aggregation(use: Plan, model: str) -> Any:
    """One pass over the log; bad rows are counted, and add nothing but zeros to the sums."""
    rows, keys = use.select(), list(use.keys)
    rows = rows.mutate(**{z: ibis().ifelse(rows.good, rows[z], 0.0) for z in use.numbers})
    good = rows.good.cast("int64").sum()
    n = rows.pulls.sum() if "pulls" in use.numbers else good
    sums = {"n": n, "good_rows": good, "rows": rows.count()}
    for name in use.times:
        sums[f"since_{name}"] = rows[name].min(where=rows.good)
        sums[f"until_{name}"] = rows[name].max(where=rows.good)
    if model == "linear":
        numbers = list(use.numbers)
        for i, z in enumerate(numbers):
            sums |= {f"{z}_{w}": (rows[z] * rows[w]).sum() for w in numbers[: i + 1]}
    elif model == "count":
        keys.append("y")  # pulls of each value, so that no engine need know log y!
    else:
        sums |= {"total": rows.y.sum(), "squares": (rows.y * rows.y).sum()}
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


def _arm_table(use: Plan, found: Any, model: str) -> ArmTable:
    (tasks, rows), (arms, columns) = use.coded("task", found), use.coded("arm", found)
    n = found["n"].to_numpy().astype(np.float64)
    if model == "count":
        y, times = found["y"].to_numpy(), found["good_rows"].to_numpy()
        sums = [n, times * y, times * y * y, times * gammaln(y + 1.0)]
    else:
        sums = [n, found["total"].to_numpy(), found["squares"].to_numpy()]
    cells, shape = rows * len(arms) + columns, (len(tasks), len(arms))
    table = [np.bincount(cells, part, shape[0] * shape[1]).reshape(shape) for part in sums]
    return ArmTable(KINDS[model], tasks, arms, np.stack(table, axis=1), *_span(found))


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
