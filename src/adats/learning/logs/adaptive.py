"""How a log was allocated: the first half of each task, and pulls weighted by propensities."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from adats.learning.logs.columns import Plan, plan
from adats.learning.logs.reading import fetch, ibis, read_log
from adats.learning.logs.task_rows import as_written, places
from adats.models.core.types import Arm, FloatArray, Task


class WeightedCells(NamedTuple):
    """Σw, Σw² and Σwy of every task and arm, with w one over the propensity."""

    weights: FloatArray
    squares: FloatArray
    rewards: FloatArray


def first_halves(
    log: Any, *, model: str, tasks: Sequence[Task], arms: Sequence[Arm], **columns: Any
) -> tuple[FloatArray, FloatArray] | None:
    """Pulls and summed rewards of the first half of the rows of some tasks, by time.

    None where a row has several pulls, or the log has no times.
    """
    use = plan(read_log(log), model=model, **columns)
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
    log: Any,
    *,
    model: str,
    tasks: Sequence[Task],
    arms: Sequence[Arm],
    propensity: str = "propensity",
    **columns: Any,
) -> WeightedCells | None:
    """None where the log has no propensities, or not of every row."""
    log = read_log(log)
    use = plan(log, model=model, **columns)
    if propensity not in use.log.columns or "pulls" in use.numbers:
        return None
    rows = use.select(chance=use.log[propensity].try_cast("float64")).filter(lambda row: row.good)
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
