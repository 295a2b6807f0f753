"""The report of an analysis: a text and its figures, in a folder."""

import math
import os
from pathlib import Path
from typing import TYPE_CHECKING

from adats import plots
from adats.learning.report_text import report_text
from adats.models.core.files import write_bytes
from adats.plots import fit as plots_fit

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from adats.learning.analysis import Analysis


def write_report(
    folder: str | os.PathLike[str], found: "Analysis", command: str | None = None
) -> Path:
    """Write report.md and its figures, each as PNG and SVG; returns the path of report.md.

    Nothing is written before all is drawn, and each file is written whole.
    """
    out = Path(folder)
    if out.exists() and not out.is_dir():
        raise ValueError(f"{out} is a file, not a folder for the report")
    plots.need()
    files: dict[str, bytes] = {}
    for name, figure in _figures(found).items():
        files[f"{name}.png"] = plots.rendered(figure, "png")
        files[f"{name}.svg"] = plots.rendered(figure, "svg")
    files["report.md"] = report_text(found, command).encode()
    out.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        write_bytes(out / name, data)
    return out / "report.md"


def _figures(found: "Analysis") -> dict[str, "Figure"]:
    names, points, verdict = list(found.table.names), found.points, found.verdict
    label = "mean reward"
    if found.table.arms is None:
        label = "coefficient × root mean square of its feature"
    figures = {"prior": plots.prior(found.prior, points=points, names=names, label=label)}
    if not math.isnan(verdict.saving):
        both = {"each task by itself": verdict.over_alone, "one for all": verdict.over_pooled}
        known = {
            name: (saving.part, saving.low, saving.high)
            for name, saving in both.items()
            if saving is not None
        }
        figures["verdict"] = plots_fit.saving_figure(known)
    if found.example is not None:
        task, pulls, raw, belief = found.example
        figures["task"] = plots_fit.task_figure(f"task {task}", names, pulls, raw, belief)
    if found.without_names is not None:
        priors = {f"{found.structure} arms": found.prior, "no names": found.without_names}
        figures["compare"] = plots.compare(priors, names=names)
    if found.allocation is not None:
        figures["allocation"] = plots_fit.allocation_figure(*found.allocation, names)
    if found.calibration is not None:
        figures["calibration"] = plots_fit.calibration_figure(found.calibration.bins)
    return figures
