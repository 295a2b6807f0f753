"""What the commands share: options, checks of paths, a progress bar."""

import inspect
import json
import os
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from glob import glob
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
Scales = "a number, or one an arm (or direction) with commas between"
MetaScales = Annotated[str, typer.Option(help=f"σ_q: width of the meta-prior; {Scales}.")]
TaskScales = Annotated[str, typer.Option(help=f"σ_0: spread of tasks; {Scales}.")]
Cov = "Rows of numbers with commas between, and semicolons between rows: in place of"
MetaCov = Annotated[str | None, typer.Option(help=f"Σ_q. {Cov} --meta-scale.")]
TaskCov = Annotated[str | None, typer.Option(help=f"Σ_0. {Cov} --task-scale.")]
Noise = Annotated[float, typer.Option(help="σ: noise of rewards.")]

EVERY = 60.0  # seconds between lines where there is no terminal


def say(text: str, where: Console = console, *, wrap: bool = False, **style: Any) -> None:
    """A line as it is; or `wrap` it between words."""
    where.print(text, highlight=False, markup=False, soft_wrap=not wrap, **style)


@dataclass(frozen=True)
class SpreadOptions:
    """Options of Gaussian models: widths of the meta-prior, of tasks and of rewards."""

    meta_scale: MetaScales = "0.5"
    task_scale: TaskScales = "0.1"
    meta_cov: MetaCov = None
    task_cov: TaskCov = None
    noise: Noise = 1.0

    def settings(self) -> dict[str, Any]:
        """As numbers."""
        return {
            "meta_scale": scales("--meta-scale", self.meta_scale),
            "task_scale": scales("--task-scale", self.task_scale),
            "meta_cov": matrix("--meta-cov", self.meta_cov),
            "task_cov": matrix("--task-cov", self.task_cov),
            "noise": self.noise,
        }


Function = Callable[..., None]


def command(
    app: typer.Typer, name: str, *, old: str | None = None, **defaults: object
) -> Callable[[Function], Function]:
    """Make a command of a function; a parameter that is a dataclass is an option a field.

    `defaults` stand in for those of options. `old` is a name that the command had before, and
    still answers to.
    """

    def register(function: Function) -> Function:
        own = inspect.signature(function).parameters.values()
        groups: dict[str, Any] = {p.name: p.annotation for p in own if is_dataclass(p.annotation)}
        parts = [
            inspect.signature(p.annotation).parameters.values() if p.name in groups else [p]
            for p in own
        ]
        options = [
            p.replace(kind=p.KEYWORD_ONLY, default=defaults.get(p.name, p.default))
            for part in parts
            for p in part
        ]

        def run(**given: object) -> None:
            for group, kind in groups.items():
                given[group] = kind(**{field.name: given.pop(field.name) for field in fields(kind)})
            function(**given)

        run.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
        run.__annotations__ = {option.name: option.annotation for option in options}
        run.__doc__ = function.__doc__
        app.command(name)(run)
        if old is not None:
            app.command(old, hidden=True)(run)
        return function

    return register


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
                say(f"{done} of {total}: {what}", errors)

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


def numbers(option: str, text: str) -> list[float]:
    """Of `1,2,3`."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"{option} must be numbers with commas between, got {text!r}") from None


def scales(option: str, text: str) -> float | list[float]:
    """Of one number, or of several."""
    found = numbers(option, text)
    return found[0] if len(found) == 1 else found


def matrix(option: str, text: str | None) -> list[list[float]] | None:
    """Of `1,2;3,4`."""
    if text is None:
        return None
    rows = [numbers(option, row) for row in text.split(";")]
    if {len(row) for row in rows} != {len(rows)}:
        raise ValueError(f"{option} must have as many rows as columns, got {text!r}")
    return rows


def command_line() -> str:
    """What was typed."""
    return shlex.join(["adats", *sys.argv[1:]])


def check_folder(out: Path | None, option: str = "--out") -> None:
    if out is not None and out.exists() and not out.is_dir():
        raise ValueError(f"{option} {out} is a file; give a folder")


def check_file(option: str, path: Path | None, *others: str | Path | None) -> None:
    """Raise unless it can be written, and is none of the others, which may be patterns."""
    if path is None:
        return
    folder = path.resolve().parent
    if path.is_dir() or not folder.is_dir():
        raise ValueError(f"{option} {path} cannot be written: give a file in a folder that exists")
    if not os.access(folder, os.W_OK):
        raise ValueError(f"{option} {path} cannot be written: {folder} takes no new files")
    names = (name for one in others if one for name in (one, *glob(str(one), recursive=True)))
    if path.resolve() in {Path(name).resolve() for name in names}:
        raise ValueError(f"{option} {path} is another file of this command too: name a new one")


def check_json(target: str | None) -> None:
    if target is not None and target != "-":
        check_file("--json", Path(target))


def write_json(target: str | Path | None, data: object) -> None:
    text = json.dumps(data, indent=1) + "\n"
    if target == "-":
        sys.stdout.write(text)
    elif target is not None:
        files.write_bytes(target, text.encode())
