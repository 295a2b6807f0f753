"""The command line: parse, call, print."""

import os
import platform
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

import adats
from adats import plots
from adats.cli.bound import bound_app
from adats.cli.common import Seed, check_folder, console, errors, progress_bar, say
from adats.cli.decide import decide
from adats.cli.fit import fit
from adats.cli.report import report_command
from adats.cli.reproduce import reproduce
from adats.cli.serve import keys_app, replay, serve
from adats.cli.simulate import simulate_app
from adats.cli.store import store_app
from adats.cli.tune import tune_command

app = typer.Typer(
    help="Thompson sampling that learns its own prior.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
app.add_typer(simulate_app, name="simulate")
app.add_typer(bound_app, name="bound")
app.command("fit")(fit)
app.command("decide")(decide)
app.command("tune")(tune_command)
app.command("reproduce")(reproduce)
app.command("serve")(serve)
app.command("replay")(replay)
app.command("report")(report_command)
app.add_typer(keys_app, name="keys")
app.add_typer(store_app, name="store")


def _version(asked: bool) -> None:
    if asked:
        say(f"adats {adats.__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_version, is_eager=True, help="The version, and no more."
        ),
    ] = False,
) -> None:
    """Thompson sampling that learns its own prior."""
    del version  # its callback has done it


def run() -> None:
    """The command itself: bad input is one line and exit code 2, Ctrl-C is 130."""
    try:
        app()
    except (ValueError, OSError) as error:
        if isinstance(error, OSError) and error.filename is not None:
            error = ValueError(f"{error.filename}: {error.strerror}")
        say(f"adats: {error}", errors, style="red")
        sys.exit(2)
    except SystemExit as stop:
        if stop.code == 130:  # Typer's word for Ctrl-C
            say("adats: stopped; nothing was written", errors)
        raise


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the picture.")] = Path("out"),
    seed: Seed = 1,
) -> None:
    """The cold-start story on real data, in sixty seconds."""
    from adats.demo.story import PLAYERS, draw, tell_story
    from adats.simulation.kernels import registry

    check_folder(out)
    plots.need()
    repetitions = 200 if registry.has_numba() else 2
    if not registry.has_numba():
        say(
            f"Numba is not installed, so there are {repetitions} repetitions in place of 200, "
            "in about a minute: the figures are rough. For all of them: pip install 'adats[sim]'",
            errors,
        )
    with progress_bar("sending e-mails", repetitions * len(PLAYERS)) as progress:
        story = tell_story(repetitions=repetitions, seed=seed, progress=progress)
    picture = draw(story, out)
    say(story.sentence(), wrap=True)
    say(f"\nThe picture is {picture}")
    say("Next: adats simulate gaussian, adats reproduce synthetic, or the example in the README.")


@app.command()
def info() -> None:
    """Versions, and which extras are installed."""
    from importlib.metadata import PackageNotFoundError, version

    table = Table("what", "version")
    table.add_row("adats", adats.__version__)
    table.add_row("python", platform.python_version())
    table.add_row("cores", str(os.cpu_count()))
    packages = (
        *("numpy", "scipy", "numba", "joblib", "pyarrow", "matplotlib", "topohub", "ray"),
        *("ibis-framework", "duckdb", "pyspark", "scikit-learn", "pooch", "torch"),
        *("starlette", "uvicorn", "msgspec"),
    )
    for package in packages:
        try:
            table.add_row(package, version(package))
        except PackageNotFoundError:
            table.add_row(package, "not installed")
    console.print(table)
