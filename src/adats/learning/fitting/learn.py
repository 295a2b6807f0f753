"""A prior from statistics, and a prior from a log."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

from adats.learning.fitting.fitted import Fitted
from adats.learning.fitting.grids import fit_grid
from adats.learning.fitting.normal import fit_gaussian, fit_linear
from adats.learning.tables import ArmTable, LinearTable


def estimate(table: ArmTable | LinearTable, *, model: str, diagonal: bool = False) -> Fitted:
    """The prior of `model`, one of gaussian, linear, binary and count, from statistics by task.

    `diagonal` is for linear models: Σ_0 without covariances.
    """
    if model != table.model:
        raise ValueError(f"these are statistics of a {table.model} log, not of a {model} one")
    if len(table) < 2:
        raise ValueError(f"a fit needs two tasks or more, to see how they differ; got {len(table)}")
    rows = table.n if isinstance(table, LinearTable) else table.table[:, 0]
    if not rows.any():
        raise ValueError("the log is empty: no task has a reward")
    if isinstance(table, LinearTable):
        found = fit_linear(table, diagonal=diagonal)
    elif diagonal:
        raise ValueError("diagonal is for linear models; arms have no covariances")
    else:
        found = fit_gaussian(table) if model == "gaussian" else fit_grid(table)
    about = {
        "model": model,
        "tasks": len(table),
        "rows": int(rows.sum()),
        "features": list(table.features) if isinstance(table, LinearTable) else None,
        "since": table.since,
        "until": table.until,
        "log_evidence": found.log_evidence,
        "shrinkage": found.shrinkage,
        "unidentified": list(found.unidentified),
        "warnings": list(found.warnings),
    }
    return replace(found, about=about)


def fit(
    source: Any,
    *,
    model: str,
    task: str = "task",
    arm: str = "arm",
    reward: str = "reward",
    features: Sequence[str] | None = None,
    time: str | None = None,
    on_bad: Literal["raise", "drop"] = "raise",
    diagonal: bool = False,
) -> Any:
    """The prior that a log tells, ready for `AdaTS`, which goes on learning from new tasks.

    `source` is an Ibis table, a data frame, or files of Parquet or CSV; the model is gaussian,
    linear, binary or count; the other arguments name columns. Do not tell the tasks of the log
    to the agent again: they would count twice. Rows that are no good are an error, unless
    `on_bad` is "drop". `estimate` says more about the same fit.
    """
    from adats.learning import logs

    told = logs.statistics(
        source,
        model=model,
        task=task,
        arm=arm,
        reward=reward,
        features=features,
        time=time,
        on_bad=on_bad,
    )
    return estimate(told.table, model=model, diagonal=diagonal).meta
