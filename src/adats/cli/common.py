"""What the commands share: options, checks of paths, a progress bar."""

import json
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from adats.models.core import files
from adats.simulation import AGENTS

console, errors = Console(), Console(stderr=True)

Tasks = Annotated[int, typer.Option(help="Number of tasks m.")]
Rounds = Annotated[int, typer.Option(help="Rounds n in each task.")]
Runs = Annotated[int, typer.Option(help="Independent runs to average over.")]
Agents = Annotated[str, typer.Option(help=f"Any of {', '.join(AGENTS)}.")]
Seed = Annotated[int, typer.Option(help="The same numbers on any number of workers.")]
First = Annotated[bool, typer.Option("--explore-first", help="Forced exploration in each task.")]
Workers = Annotated[int, typer.Option(help="Processes.")]
EngineName = Annotated[str, typer.Option("--engine", help="local, or ray for a cluster.")]
Json = Annotated[str | None, typer.Option("--json", help="Write the figures to a file, or -.")]
Out = Annotated[Path | None, typer.Option(help="Folder for records.parquet and summary.json.")]
Mu = Annotated[str | None, typer.Option(help="A fixed mu_*, as numbers with commas between.")]
MetaScale = Annotated[float, typer.Option(help="σ_q: width of the meta-prior.")]
TaskScale = Annotated[float, typer.Option(help="σ_0: spread of tasks.")]
Noise = Annotated[float, typer.Option(help="σ: noise of rewards.")]


EVERY = 60.0  # seconds between lines where there is no terminal


@contextmanager
def stage_bar(title: str) -> Iterator[Callable[[str, int, int], None]]:
    """A bar on the error stream, gone when the work is done: told what, how far, of how much.

    Where that is no terminal, a line a minute.
    """
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(
        *columns,
        TimeRemainingColumn(),
        console=errors,
        transient=True,
        disable=not errors.is_terminal,
    ) as bar:
        task = bar.add_task(title, total=None)
        said = time.monotonic()

        def show(what: str, done: int, total: int) -> None:
            nonlocal said
            bar.update(task, description=what, completed=done, total=total)
            if not errors.is_terminal and time.monotonic() - said >= EVERY:
                said = time.monotonic()
                errors.print(f"{done} of {total}: {what}", highlight=False, soft_wrap=True)

        yield show


@contextmanager
def progress_bar(title: str, total: int) -> Iterator[Callable[[int], None]]:
    """The same for work of one kind: told what more is done."""
    done = 0
    with stage_bar(title) as show:

        def advance(more: int) -> None:
            nonlocal done
            done += more
            show(title, done, total)

        advance(0)
        yield advance


def command_line() -> str:
    """What was typed."""
    return shlex.join(["adats", *sys.argv[1:]])


def check_folder(out: Path | None) -> None:
    if out is not None and out.exists() and not out.is_dir():
        raise ValueError(f"--out {out} is a file; give a folder")


def check_json(target: str | None) -> None:
    if target not in (None, "-"):
        path = Path(str(target))
        if path.is_dir() or not path.resolve().parent.is_dir():
            raise ValueError(
                f"--json {target} cannot be written: give a file in a folder that exists"
            )


def write_json(target: str | Path | None, data: Any) -> None:
    text = json.dumps(data, indent=1) + "\n"
    if target == "-":
        sys.stdout.write(text)
    elif target is not None:
        files.write_bytes(target, text.encode())
