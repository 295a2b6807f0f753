"""The one way in which experiments are reproduced: check, compute all, then write."""

import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

from adats import plots
from adats.models.core.checks import count_of
from adats.models.core.files import write_bytes
from adats.paper.experiments.catalogue import ALL, EXPERIMENTS
from adats.paper.experiments.panels import Options
from adats.paper.experiments.report_text import overview
from adats.paper.experiments.spec import Experiment, Progress, RunRequest
from adats.simulation.kernels.registry import has_numba
from adats.simulation.provenance import parquet_bytes, versions

T = TypeVar("T")


def reproduce(
    name: str,
    *,
    out: Path,
    data: Path | None = None,
    data_name: str | None = None,
    runs: int | None = None,
    quick: bool = False,
    seed: int = 1,
    workers: int = 1,
    engine: str = "local",
    progress: Progress | None = None,
    command: str | None = None,
) -> Path:
    """Run an experiment (or `all`, each in a folder of its own) and return its report's path.

    Nothing is written before all is computed. `data` is a folder with the files of a dataset, and
    `data_name` what titles call it. `quick` is a small version, for a first look. `progress` gets
    what is being done, how much of it is done and how much there is. `command` is what the report
    says it came from, if not this call.
    """
    _check_data(name, data, data_name)
    chosen, total, out = _chosen(name, quick), total_steps(name, runs, quick), Path(out)
    _check_folder(out)
    plots.need()
    parquet_bytes({}, {})
    if any(experiment.needs_numba for experiment in chosen) and not has_numba():
        raise ValueError("this experiment needs Numba: pip install 'adats[sim]'")
    if data_name is not None:
        chosen = [experiment.called(data_name) for experiment in chosen]
    if command is None:
        command = f"adats.paper.experiments.reproduce({name!r}, seed={seed})"

    def options(experiment: Experiment) -> Options:
        some = experiment.runs if runs is None else runs
        return Options(runs=some, seed=seed, workers=workers, engine=engine)

    done = 0

    def advance(label: str, more: int) -> None:
        nonlocal done
        done += more
        if progress is not None:
            progress(label, done, total)

    clocks = [_Stopwatch() for _ in chosen]
    parts = [
        clock.timed(partial(e.parts, RunRequest(options(e), data, progress)))
        for e, clock in zip(chosen, clocks, strict=True)
    ]
    found = [
        [
            outcome
            for part in some
            for outcome in clock.timed(partial(part.run, partial(advance, part.label)))
        ]
        for some, clock in zip(parts, clocks, strict=True)
    ]
    files: dict[Path, bytes] = {}
    for experiment, outcomes, clock in zip(chosen, found, clocks, strict=True):
        folder = out / experiment.name if name == "all" else out
        drawn = clock.timed(partial(experiment.drawn, outcomes))
        asked = {"command": command, **options(experiment)}
        record = {**asked, "seconds": clock.seconds, "versions": versions()}
        new = drawn | experiment.written(outcomes, record)
        files |= {folder / file: content for file, content in new.items()}
    if name == "all":
        each = zip(chosen, found, strict=True)
        files[out / "report.md"] = overview(
            [(e.name, e.title, e.verdicts(outcomes)) for e, outcomes in each]
        ).encode()
    for path, content in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(path, content)
    return out / "report.md"


class _Stopwatch:
    """Adds up the wall time of what it is told to time."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def timed(self, work: Callable[[], T]) -> T:
        begin = time.perf_counter()
        try:
            return work()
        finally:
            self.seconds += time.perf_counter() - begin


def total_steps(name: str, runs: int | None = None, quick: bool = False) -> int:
    """How much `reproduce` has to do, as progress counts it."""
    if runs is not None:
        count_of("runs", runs, least=2)  # of one run there is no standard error
    return sum(e.steps(e.runs if runs is None else runs) for e in _chosen(name, quick))


def _chosen(name: str, quick: bool) -> list[Experiment]:
    if name not in (*EXPERIMENTS, "all"):
        raise ValueError(f"unknown experiment {name!r}; known are {', '.join(EXPERIMENTS)}, all")
    chosen = [EXPERIMENTS[each] for each in (ALL if name == "all" else (name,))]
    return [each.small() for each in chosen] if quick else chosen


def _check_data(name: str, data: Path | None, data_name: str | None) -> None:
    takers = [each.name for each in EXPERIMENTS.values() if each.takes_files]
    for option, value in (("--data", data), ("--name", data_name)):
        if value is not None and name not in takers:
            raise ValueError(f"{option} is for {' and '.join(takers)}; {name!r} needs no files")


def _check_folder(out: Path) -> None:
    nearest = next(path for path in (out.absolute(), *out.absolute().parents) if path.exists())
    if not nearest.is_dir():
        raise ValueError(f"{nearest} is a file, not a folder to write into")
    if not os.access(nearest, os.W_OK):
        raise ValueError(f"{nearest} is not writable")
