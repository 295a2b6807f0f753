"""The one way in which experiments are reproduced: check, compute all, then write."""

import os
from functools import partial
from pathlib import Path

from adats import plots
from adats.models.core.checks import count_of
from adats.models.core.files import write_bytes
from adats.paper.experiments.catalogue import ALL, EXPERIMENTS
from adats.paper.experiments.panels import Options
from adats.paper.experiments.records import parquet_bytes
from adats.paper.experiments.report_text import overview
from adats.paper.experiments.spec import Experiment, Progress, RunRequest
from adats.simulation.kernels.registry import has_numba


def reproduce(
    name: str,
    *,
    out: Path,
    data: Path | None = None,
    runs: int | None = None,
    quick: bool = False,
    seed: int = 1,
    workers: int = 1,
    engine: str = "local",
    progress: Progress | None = None,
) -> Path:
    """Run an experiment (or `all`, each in a folder of its own) and return its report's path.

    Nothing is written before all is computed. `data` is a folder with the files of a dataset.
    `quick` is a small version of an experiment that has one. `progress` gets what is being done,
    how much of it is done and how much there is.
    """
    _check_data(name, data)
    chosen, total, out = _chosen(name, quick), total_steps(name, runs, quick), Path(out)
    _check_folder(out)
    plots.need()
    parquet_bytes({})
    if any(experiment.needs_numba for experiment in chosen) and not has_numba():
        raise ValueError("this experiment needs Numba: pip install 'adats[sim]'")

    def request(experiment: Experiment) -> RunRequest:
        some = experiment.runs if runs is None else runs
        return RunRequest(
            Options(runs=some, seed=seed, workers=workers, engine=engine), data, progress
        )

    parts = [experiment.parts(request(experiment)) for experiment in chosen]
    done = 0

    def advance(label: str, more: int) -> None:
        nonlocal done
        done += more
        if progress is not None:
            progress(label, done, total)

    outcomes = [
        [outcome for part in some for outcome in part.run(partial(advance, part.label))]
        for some in parts
    ]
    files: dict[Path, bytes] = {}
    for experiment, found in zip(chosen, outcomes, strict=True):
        folder = out / experiment.name if name == "all" else out
        files |= {folder / file: content for file, content in experiment.files(found).items()}
        text = experiment.report(found, workers=workers, engine=engine)
        files[folder / "report.md"] = text.encode()
    if name == "all":
        pairs = zip(chosen, outcomes, strict=True)
        files[out / "report.md"] = overview(
            [(e.name, e.title, e.verdicts(found)) for e, found in pairs]
        ).encode()
    for path, content in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(path, content)
    return out / "report.md"


def total_steps(name: str, runs: int | None = None, quick: bool = False) -> int:
    """How much `reproduce` has to do, as progress counts it."""
    if runs is not None:
        count_of("runs", runs, least=2)  # of one run there is no standard error
    return sum(e.steps(e.runs if runs is None else runs) for e in _chosen(name, quick))


def _chosen(name: str, quick: bool) -> list[Experiment]:
    if name not in (*EXPERIMENTS, "all"):
        raise ValueError(f"unknown experiment {name!r}; known are {', '.join(EXPERIMENTS)}, all")
    if not quick:
        return [EXPERIMENTS[each] for each in (ALL if name == "all" else (name,))]
    small = {each.name: each.quick for each in EXPERIMENTS.values() if each.quick is not None}
    if name not in small:
        raise ValueError(f"--quick is for {', '.join(small)}; for {name!r} give fewer --runs")
    return [small[name]]


def _check_data(name: str, data: Path | None) -> None:
    takers = [each.name for each in EXPERIMENTS.values() if each.takes_files]
    if data is not None and name not in takers:
        raise ValueError(f"--data is for {' and '.join(takers)}; {name!r} needs no files")


def _check_folder(out: Path) -> None:
    nearest = next(path for path in (out.absolute(), *out.absolute().parents) if path.exists())
    if not nearest.is_dir():
        raise ValueError(f"{nearest} is a file, not a folder to write into")
    if not os.access(nearest, os.W_OK):
        raise ValueError(f"{nearest} is not writable")
