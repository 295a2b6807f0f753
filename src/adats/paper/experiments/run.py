"""Run experiments, then write their figures, records and reports."""

import os
from collections.abc import Callable, Sequence
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from adats import plots
from adats.models.core.checks import count_of
from adats.models.core.files import write_bytes
from adats.paper.experiments.catalogue import EXPERIMENTS
from adats.paper.experiments.panels import Outcome, run_panel
from adats.paper.experiments.report import file_names, overview, report, spread_figure

Progress = Callable[[str, int, int], None]  # what runs, runs done, runs in all


def reproduce(
    name: str,
    *,
    out: Path,
    runs: int | None = None,
    seed: int = 1,
    workers: int = 1,
    engine: str = "local",
    progress: Progress | None = None,
) -> Path:
    """Run an experiment (or `all`, each in a folder of its own) and return its report's path.

    Nothing is written before all is computed. `progress` gets a panel's label, the number of runs
    done and the number of all runs.
    """
    chosen, out = _chosen(name), Path(out)
    total = total_runs(name, runs)
    check_folder(out)
    plots.need()
    parquet_bytes()
    problems = {n: [panel.problem() for panel in EXPERIMENTS[n].panels] for n in chosen}
    done = 0

    def advance(label: str, finished: int) -> None:
        nonlocal done
        done += finished
        if progress is not None:
            progress(label, done, total)

    outcomes = {
        n: [
            run_panel(
                panel,
                problem,
                runs=runs or EXPERIMENTS[n].runs,
                seed=seed,
                workers=workers,
                engine=engine,
                progress=partial(advance, panel.label),
            )
            for panel, problem in zip(EXPERIMENTS[n].panels, problems[n], strict=True)
        ]
        for n in chosen
    }
    files: dict[Path, bytes] = {}
    for n, found in outcomes.items():
        folder = out / n if name == "all" else out
        text = report(n, found, workers=workers, engine=engine)
        for file, data in zip(file_names(n), _data(n, found), strict=True):
            files[folder / file] = data
        files[folder / "report.md"] = text.encode()
    if name == "all":
        files[out / "report.md"] = overview(outcomes).encode()
    for path, data in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(path, data)
    return out / "report.md"


def total_runs(name: str, runs: int | None = None) -> int:
    """How many runs `reproduce` will make, over all panels."""
    if runs is not None:
        count_of("runs", runs, least=2)  # of one run there is no standard error
    chosen = [EXPERIMENTS[n] for n in _chosen(name)]
    return sum(len(e.panels) * (e.runs if runs is None else runs) for e in chosen)


def _chosen(name: str) -> tuple[str, ...]:
    if name == "all":
        return tuple(EXPERIMENTS)
    if name not in EXPERIMENTS:
        raise ValueError(f"unknown experiment {name!r}; known are {', '.join(EXPERIMENTS)}, all")
    return (name,)


def check_folder(out: Path) -> None:
    nearest = next(path for path in (out.absolute(), *out.absolute().parents) if path.exists())
    if not nearest.is_dir():
        raise ValueError(f"{nearest} is a file, not a folder to write into")
    if not os.access(nearest, os.W_OK):
        raise ValueError(f"{nearest} is not writable")


def _data(name: str, outcomes: Sequence[Outcome]) -> tuple[bytes, ...]:
    """The files of `file_names`."""
    experiment, charts = EXPERIMENTS[name], [chart(o) for o in outcomes]
    if experiment.figure == "spread":
        figure = spread_figure(outcomes, charts)
    else:
        figure = plots.regret_figure(charts, columns=experiment.columns)
    png, svg = plots.rendered(figure, "png"), plots.rendered(figure, "svg")
    return png, svg, parquet_bytes(records(outcomes)), parquet_bytes(curves(outcomes))


def chart(outcome: Outcome) -> plots.Chart:
    """What the figure shows of a panel: the curves from the origin."""
    panel = outcome.panel
    x = np.arange(panel.tasks)[:, None] + outcome.at / panel.rounds
    lines = {
        agent: plots.Curve(_from_zero(outcome.mean[i]), _from_zero(outcome.se[i]))
        for i, agent in enumerate(panel.agents)
    }
    return plots.Chart(panel.title, panel.note, _from_zero(x), lines)


def _from_zero(values: Any) -> Any:
    return np.concatenate(([0.0], values.ravel()))


def records(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Flat columns: panel, run, task, agent, regret of the task."""
    return _joined(outcomes, [o.result.records() for o in outcomes])


def curves(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Flat columns: panel, task, round, agent, mean and standard error of the regret so far."""
    parts = []
    for o in outcomes:
        tasks = np.arange(1, o.panel.tasks + 1)
        agents = np.array(o.panel.agents)
        agent, task, at = (g.ravel() for g in np.meshgrid(agents, tasks, o.at, indexing="ij"))
        parts.append(
            {"task": task, "round": at, "agent": agent, "mean": o.mean.ravel(), "se": o.se.ravel()}
        )
    return _joined(outcomes, parts)


def _joined(outcomes: Sequence[Outcome], parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    sizes = [len(part["task"]) for part in parts]
    panel = np.repeat([o.panel.label for o in outcomes], sizes)
    return {"panel": panel} | {key: np.concatenate([p[key] for p in parts]) for key in parts[0]}


def parquet_bytes(columns: dict[str, Any] | None = None) -> bytes:
    """Columns as the bytes of a Parquet file; raises `ValueError` where pyarrow is missing."""
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError:
        raise ValueError("Parquet needs pyarrow: pip install 'adats[sim]'") from None
    file = BytesIO()
    parquet.write_table(pa.table(columns or {}), file)
    return file.getvalue()
