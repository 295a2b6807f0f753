"""`adats fit`: a prior from logs."""

from pathlib import Path
from typing import Annotated, Any

import typer

from adats import plots
from adats.cli.common import Seed, check_file, check_folder, command_line, progress_bar, say
from adats.learning.analysis import STEPS, Analysis, analyse
from adats.learning.tables import save_statistics
from adats.models import prior_files

SHOWN = 10  # of what the log cannot tell


def fit(
    model: Annotated[str, typer.Argument(help="gaussian, linear, binary or count.")],
    sources: Annotated[
        list[str],
        typer.Argument(metavar="LOGS...", help="Parquet, CSV or NDJSON; or files of --stats."),
    ],
    out: Annotated[Path, typer.Option(help="The prior file to write.")],
    task: Annotated[str, typer.Option(help="Column of tasks.")] = "task",
    arm: Annotated[str, typer.Option(help="Column of arms.")] = "arm",
    reward: Annotated[
        str, typer.Option(help="Column of rewards; or {arm}_clicks, say, a column for each arm.")
    ] = "reward",
    features: Annotated[str | None, typer.Option(help="Such as x0:x15, or age,price.")] = None,
    time: Annotated[str | None, typer.Option(help="Column of times.")] = None,
    pulls: Annotated[
        str | None, typer.Option(help="Column of pulls, where rewards are their sums.")
    ] = None,
    squares: Annotated[
        str | None,
        typer.Option(help="With --pulls, for gaussian: column of variances, rewards are means."),
    ] = None,
    sums: Annotated[
        bool | None,
        typer.Option("--sums/--means", help="What rewards and squares are, where pulls are many."),
    ] = None,
    task_features: Annotated[
        str | None, typer.Option(help="Columns that describe a task, such as age,plan.")
    ] = None,
    arm_features: Annotated[
        str | None, typer.Option(help="Columns that describe an arm, such as price.")
    ] = None,
    batch: Annotated[
        str | None, typer.Option(help="Column of batches, such as days or visitors.")
    ] = None,
    structure: Annotated[
        str,
        typer.Option(help="Of arms: auto, independent, level, full, exchangeable or features."),
    ] = "auto",
    diagonal: Annotated[bool, typer.Option("--diagonal", help="No covariances in Σ_0.")] = False,
    on_bad: Annotated[str, typer.Option(help="raise, or drop and count bad rows.")] = "raise",
    half_life: Annotated[
        str | None,
        typer.Option(help="auto: half-lives that would have predicted better. Needs --time."),
    ] = None,
    stats: Annotated[
        Path | None, typer.Option(help="Keep the statistics here, to add other logs later.")
    ] = None,
    report: Annotated[Path | None, typer.Option(help="Folder: is sharing worth it?")] = None,
    seed: Seed = 1,
) -> None:
    """Learn a prior from logged tasks, and say whether sharing it is worth it.

    Several files of statistics, kept by --stats, are added. Do not tell an agent the tasks of a
    log that its prior was fitted to: they would count twice.
    """
    check_folder(report, "--report")
    check_file("--out", out, *sources, stats)
    check_file("--stats", stats)
    if report is not None:
        plots.need()
    columns: dict[str, Any] = {
        "task": task,
        "arm": arm,
        "reward": reward,
        "features": features,
        "time": time,
        "pulls": pulls,
        "squares": squares,
        "means": None if sums is None else not sums,
        "task_features": task_features,
        "arm_features": arm_features,
    }
    chosen: Any = structure
    drop: Any = on_bad
    lives: Any = half_life
    with progress_bar("fitting", len(STEPS) + 1) as progress:
        found = analyse(
            sources,
            model=model,
            structure=chosen,
            diagonal=diagonal,
            batch=batch,
            on_bad=drop,
            seed=seed,
            half_life=lives,
            progress=lambda step: progress(1),  # noqa: ARG005
            **columns,
        )
        written = None if report is None else found.report(report, command=command_line())
        if stats is not None:
            save_statistics(stats, found.table)
        prior_files.save_prior(found.prior, out, about=found.fitted.about)
        progress(1)
    _print(found)
    say(f"The prior is {out}")
    if written is not None:
        say(f"The report is {written}")


def _print(found: Analysis) -> None:
    about, dropped = found.fitted.about, found.dropped
    say(found.sentence, wrap=True)
    structure = "" if found.table.arms is None else f", {about['structure']} arms"
    say(
        f"A {about['model']} prior from {about['tasks']:,} tasks and {about['rows']:,} rewards"
        + structure
        + (f"; {dropped:,} bad rows were dropped" if dropped else "")
    )
    if found.half_lives is not None:
        say(f"{found.half_lives.sentence}", wrap=True)
    unknown = found.fitted.unidentified
    for name in unknown[:SHOWN]:
        say(f"  the log cannot tell {name}")
    if len(unknown) > SHOWN:
        say(f"  and {len(unknown) - SHOWN:,} more, which the prior file has")
    for warning in found.warnings:
        say(f"  {warning}")
