"""A prior from statistics, and a prior from a log."""

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

from adats.learning.fitting.fitted import Fitted
from adats.learning.fitting.grids import fit_grid
from adats.learning.fitting.latent import STRUCTURES, fit_latent
from adats.learning.fitting.normal import fit_gaussian, fit_linear
from adats.learning.tables import ArmTable, LinearTable

Structure = Literal["independent", "level", "full"]


def estimate(
    table: ArmTable | LinearTable,
    *,
    model: str,
    diagonal: bool = False,
    structure: Structure = "independent",
) -> Fitted:
    """The prior of `model`, one of gaussian, linear, binary and count, from statistics by task.

    `diagonal` is for linear models: Σ_0 without covariances. `structure` is for binary and count:
    how the arms of a task move together. They are "independent", each with a grid of beta or gamma
    priors; or they share a "level" in every task; or they have any covariance, "full".
    """
    if model != table.model:
        raise ValueError(f"these are statistics of a {table.model} log, not of a {model} one")
    if len(table) < 2:
        raise ValueError(f"a fit needs two tasks or more, to see how they differ; got {len(table)}")
    if structure not in ("independent", *STRUCTURES):
        known = ", ".join(STRUCTURES)
        raise ValueError(f"structure is one of independent, {known}, got {structure!r}")
    rows = table.n if isinstance(table, LinearTable) else table.table[:, 0]
    if not rows.any():
        raise ValueError("the log is empty: no task has a reward")
    if structure in STRUCTURES and model not in ("binary", "count"):
        raise ValueError(f"a structure is for binary and count models, not for a {model} one")
    if isinstance(table, LinearTable):
        found = fit_linear(table, diagonal=diagonal)
    elif diagonal:
        raise ValueError("diagonal is for linear models; arms have no covariances")
    elif structure in STRUCTURES:
        found = fit_latent(table, structure=structure)
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
        "structure": structure,
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
    pulls: str | None = None,
    batch: str | None = None,
    on_bad: Literal["raise", "drop"] = "raise",
    diagonal: bool = False,
    structure: Structure = "independent",
) -> Any:
    """The prior that a log tells, ready for `AdaTS`, which goes on learning from new tasks.

    `source` is an Ibis table, a data frame, or files of Parquet or CSV; the model is gaussian,
    linear, binary or count; the other arguments name columns. Do not tell the tasks of the log
    to the agent again: they would count twice. Rows that are no good are an error, unless
    `on_bad` is "drop". Binary rewards and counts may come as sums, with a column of `pulls`; if
    they vary too much from `batch` to batch, a warning says so. `estimate` says more about the
    same fit, and what `structure` is.
    """
    from adats.learning import logs

    log = logs.read_log(source)
    columns: dict[str, Any] = {
        "task": task,
        "arm": arm,
        "reward": reward,
        "time": time,
        "pulls": pulls,
    }
    told = logs.statistics(log, model=model, features=features, on_bad=on_bad, **columns)
    found = estimate(told.table, model=model, diagonal=diagonal, structure=structure)
    for text in too_varied(log, model=model, batch=batch, **columns):
        warnings.warn(text, stacklevel=2)
    return found.meta


def too_varied(
    log: Any, *, model: str, batch: str | None = None, **columns: Any
) -> tuple[str, ...]:
    """A warning if successes vary more from batch to batch than chance allows.

    `columns` are the other arguments of `adats.learning.logs.batches`.
    """
    from adats.learning import logs
    from adats.learning.fitting.dispersion import dispersion

    if model not in logs.COUNTED:
        if batch is not None:
            raise ValueError(f"a batch is for binary and count models, not for a {model} one")
        return ()
    parts = logs.batches(log, model=model, batch=batch, **columns)
    text = None if parts is None else dispersion(parts, model=model).warning
    return () if text is None else (text,)
