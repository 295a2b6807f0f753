"""`adats fit`: a prior from logs."""

from dataclasses import replace
from functools import reduce
from operator import add
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer

from adats import plots
from adats.cli.common import Seed, check_folder, console, progress_bar
from adats.learning import logs
from adats.learning.fitting import Fitted, estimate
from adats.learning.fitting.calibration import TASKS, Calibration, calibrate
from adats.learning.fitting.learn import too_varied
from adats.learning.fitting.report import write_report
from adats.learning.fitting.verdict import verdict
from adats.learning.tables import Table, load_statistics, save_statistics
from adats.models import prior_files
from adats.models.core.errors import FileFormatError


class LogSource(NamedTuple):
    """The log itself, if it is one, and the names of its columns."""

    log: Any
    columns: dict[str, Any]
    dropped: int


def fit(
    model: Annotated[str, typer.Argument(help="gaussian, linear, binary or count.")],
    sources: Annotated[
        list[str],
        typer.Argument(metavar="LOGS...", help="Parquet, CSV or NDJSON; or files of --stats."),
    ],
    out: Annotated[Path, typer.Option(help="The prior file to write.")],
    task: Annotated[str, typer.Option(help="Column of tasks.")] = "task",
    arm: Annotated[str, typer.Option(help="Column of arms.")] = "arm",
    reward: Annotated[str, typer.Option(help="Column of rewards.")] = "reward",
    features: Annotated[str | None, typer.Option(help="Such as x0:x15, or age,price.")] = None,
    time: Annotated[str | None, typer.Option(help="Column of times.")] = None,
    pulls: Annotated[
        str | None, typer.Option(help="Column of pulls, where rewards are their sums.")
    ] = None,
    batch: Annotated[
        str | None, typer.Option(help="Column of batches, such as days or visitors.")
    ] = None,
    structure: Annotated[
        str,
        typer.Option(help="Arms of binary and count models: independent, level or full."),
    ] = "independent",
    diagonal: Annotated[bool, typer.Option("--diagonal", help="No covariances in Σ_0.")] = False,
    on_bad: Annotated[str, typer.Option(help="raise, or drop and count bad rows.")] = "raise",
    stats: Annotated[
        Path | None, typer.Option(help="Keep the statistics here, to add other logs later.")
    ] = None,
    report: Annotated[Path | None, typer.Option(help="Folder: is sharing worth it?")] = None,
    seed: Seed = 1,
) -> None:
    """Learn a prior from logged tasks.

    Several files of statistics, kept by --stats, are added. Do not tell an agent the tasks of a
    log that its prior was fitted to: they would count twice.
    """
    check_folder(report)
    for path in (out, stats):
        _check_file(path)
    if report is not None:
        plots.need()
    with progress_bar("fitting", 3 if report is None else 5) as progress:
        columns = {"task": task, "arm": arm, "reward": reward, "features": features, "time": time}
        table, source = _statistics(sources, model, on_bad, columns | {"pulls": pulls})
        progress(1)
        chosen: Any = structure
        found = estimate(table, model=model, diagonal=diagonal, structure=chosen)
        found = _warned(found, model, source, batch)
        progress(1)
        written = None
        if report is not None:
            judged = verdict(table, found, diagonal=diagonal, seed=seed)
            progress(1)
            checked = _calibration(table, found, model, source, seed)
            written = write_report(
                report,
                table=table,
                fitted=found,
                verdict=judged,
                calibration=checked,
                dropped=source.dropped,
            )
            progress(1)
        if stats is not None:
            save_statistics(stats, table)
        prior_files.save_prior(found.meta, out, about=found.about)
        progress(1)
    if written is not None:
        console.print(judged.sentence, highlight=False)
    _print(found, source.dropped)
    console.print(f"The prior is {out}", highlight=False)
    if written is not None:
        console.print(f"The report is {written}", highlight=False)


def _check_file(path: Path | None) -> None:
    if path is not None and (path.is_dir() or not path.resolve().parent.is_dir()):
        raise ValueError(f"{path} cannot be written: give a file in a folder that exists")


def _statistics(
    sources: list[str], model: str, on_bad: Any, columns: dict[str, Any]
) -> tuple[Table, LogSource]:
    kept = [path for path in sources if _is_statistics(path)]
    if kept and len(kept) < len(sources):
        raise ValueError(f"{kept[0]} has statistics, others are logs: give one kind or the other")
    if kept:
        tables: list[Any] = [load_statistics(path) for path in kept]
        return reduce(add, tables), LogSource(None, columns, 0)
    log = logs.read_log(sources)
    if columns["features"] is not None:
        columns = columns | {"features": logs.feature_names(columns["features"], log.columns)}
    found = logs.statistics(log, model=model, on_bad=on_bad, **columns)
    return found.table, LogSource(log, columns, found.dropped)


def _warned(found: Fitted, model: str, source: LogSource, batch: str | None) -> Fitted:
    """With a warning where successes vary too much from batch to batch."""
    if source.log is None:
        return found
    columns = {name: column for name, column in source.columns.items() if name != "features"}
    more = found.warnings + too_varied(source.log, model=model, batch=batch, **columns)
    return replace(found, warnings=more, about=found.about | {"warnings": list(more)})


def _is_statistics(path: str) -> bool:
    if not (path.endswith(".parquet") and Path(path).is_file()):
        return False
    try:
        load_statistics(path)
    except FileFormatError:
        return False
    return True


def _calibration(
    table: Table, found: Fitted, model: str, source: LogSource, seed: int
) -> Calibration | None:
    """One step ahead, where there is a log with times, and with a row a pull."""
    columns = {name: column for name, column in source.columns.items() if name != "pulls"}
    if source.log is None or columns["time"] is None or source.columns["pulls"] is not None:
        return None
    tasks = logs.spread(table.tasks, TASKS)
    rows = logs.rows(source.log, model=model, tasks=tasks, arms=table.arms, **columns)
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(3,)))
    return calibrate(table, found, rows, rng=rng)


def _print(found: Fitted, dropped: int) -> None:
    about = found.about
    console.print(
        f"A {about['model']} prior from {about['tasks']:,} tasks and {about['rows']:,} rewards"
        + (f"; {dropped:,} bad rows were dropped" if dropped else ""),
        highlight=False,
    )
    for name in found.unidentified:
        console.print(f"  the log cannot tell {name}", highlight=False, markup=False)
    for warning in found.warnings:
        console.print(f"  {warning}", highlight=False, markup=False)
