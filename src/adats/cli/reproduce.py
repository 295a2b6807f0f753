"""`adats reproduce`: the figures of the paper, and our own."""

import os
from pathlib import Path
from typing import Annotated

import typer

from adats.cli.common import EngineName, Seed, check_folder, command_line, say, stage_bar
from adats.paper import experiments


def reproduce(
    name: Annotated[str, typer.Argument(help=f"{', '.join(experiments.EXPERIMENTS)}; or all.")],
    runs: Annotated[
        int | None, typer.Option(help="Runs, if not those that the verdicts need.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer runs, or a small version, for a first look.")
    ] = False,
    out: Annotated[Path, typer.Option(help="Folder for figures, records and report.")] = Path(
        "out"
    ),
    data: Annotated[
        Path | None, typer.Option(help="Folder with the files of mnist or omniglot.")
    ] = None,
    data_name: Annotated[
        str | None, typer.Option("--name", help="What titles call the data of --data.")
    ] = None,
    seed: Seed = 1,
    workers: Annotated[int | None, typer.Option(help="Processes; all cores by default.")] = None,
    engine: EngineName = "local",
) -> None:
    """Draw the figures of the paper and check its claims.

    `all` is what needs no images: the simulations.
    """
    check_folder(out)
    with stage_bar(f"reproducing {name}") as progress:
        report = experiments.reproduce(
            name,
            out=out,
            data=data,
            data_name=data_name,
            runs=runs,
            quick=quick,
            seed=seed,
            workers=workers or os.cpu_count() or 1,
            engine=engine,
            progress=progress,
            command=command_line(),
        )
    say(f"The report is {report}")
