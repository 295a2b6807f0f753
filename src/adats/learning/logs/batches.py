"""Pulls and successes of every task and arm, batch by batch."""

from typing import Any, NamedTuple

import numpy as np

from adats.learning.logs.columns import Plan, plan
from adats.learning.logs.reading import fetch, ibis, present, read_log
from adats.models.core.types import FloatArray, IntArray

DAY = 86400.0  # seconds


class Batches(NamedTuple):
    """One entry a batch; those of one cell, a task and an arm, stand together in their order."""

    cell: IntArray
    pulls: FloatArray
    successes: FloatArray  # or the sum of counts


def batches(log: Any, *, model: str, batch: str | None = None, **columns: Any) -> Batches | None:
    """The batches of a log of binary rewards or counts; None where it has none.

    They are what the column `batch` names, such as visitors or days; else the rows, if they have
    several `pulls`; else the days of the column of times. `columns` are those of `statistics`.
    """
    use = plan(read_log(log), model=model, **columns)
    if use.stats is None or not use.stats.SUMS_TELL:
        raise ValueError(f"batches are for binary rewards and counts, not for {model}")
    pulls = columns.get("pulls")
    part = _part(use, batch)
    if part is None and pulls is None:
        return None
    if part is None:
        rows = use.select()
        found = fetch(rows.filter(rows.good).select("task", "arm", "y", n=rows.pulls))
        order = np.arange(len(found))
    else:
        rows = use.select(batch=part)
        rows = rows.filter(rows.good & rows.batch.notnull())
        sums = {"n": rows.count() if pulls is None else rows.pulls.sum(), "y": rows.y.sum()}
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
