"""The report of a fit: a text and its figures, in a folder."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import betaincinv, gammaincinv, ndtri

from adats import plots
from adats.learning.fitting.alone import sizes
from adats.learning.fitting.calibration import Calibration
from adats.learning.fitting.fitted import Fitted, stats_of
from adats.learning.fitting.savings import matched
from adats.learning.fitting.verdict import Verdict
from adats.learning.fitting.words import names, report
from adats.learning.tables import LinearTable, Table
from adats.models import BetaArms, MixtureArms
from adats.models.core.files import write_bytes
from adats.models.core.types import Belief, FloatArray, MetaBelief
from adats.models.latent.belief import LatentBelief
from adats.plots import fit as plots_fit

if TYPE_CHECKING:
    from matplotlib.figure import Figure

POINTS = 200  # tasks in the figure of the prior
TAILS = np.array([[0.025], [0.975]])


def write_report(
    folder: str | os.PathLike[str],
    *,
    table: Table,
    fitted: Fitted,
    verdict: Verdict,
    calibration: Calibration | None = None,
    dropped: int = 0,
) -> Path:
    """Write report.md and its figures, each as PNG and SVG; returns the path of report.md.

    `calibration` is None where the log has no time; `dropped` counts bad rows that were left out.
    Nothing is written before all is drawn, and each file is written whole.
    """
    out = Path(folder)
    if out.exists() and not out.is_dir():
        raise ValueError(f"{out} is a file, not a folder for the report")
    plots.need()
    figures = {"prior": _prior_figure(table, fitted)}
    if verdict.savings is not None:
        figures["saving"] = plots_fit.saving_figure(*verdict.savings, verdict.gains)
    if calibration is not None:
        figures["calibration"] = plots_fit.calibration_figure(calibration.bins)
    files: dict[str, bytes] = {}
    for name, figure in figures.items():
        files[f"{name}.png"] = plots.rendered(figure, "png")
        files[f"{name}.svg"] = plots.rendered(figure, "svg")
    text = report(table, fitted, verdict, calibration=calibration, dropped=dropped)
    files["report.md"] = text.encode()
    out.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        write_bytes(out / name, data)
    return out / "report.md"


def _prior_figure(table: Table, fitted: Fitted) -> "Figure":
    chosen = np.linspace(0, len(table) - 1, min(POINTS, len(table))).round().astype(np.intp)
    some = table.subset(chosen)
    meta: MetaBelief = fitted.meta
    prior = meta.task_prior()
    each = (meta.digest(stats_of(some, i, meta)) for i in range(len(some)))
    learned = [meta.posterior(digest).mean for digest in each]
    unit, label = np.ones(prior.mean.shape), "mean reward"
    if isinstance(table, LinearTable):
        unit, label = sizes(table), "coefficient × root mean square of its feature"
    values = (_interval(prior), _own(some), np.array(learned))
    return plots_fit.prior_figure(names(table), *(v * unit for v in values), label=label)


def _interval(prior: Belief) -> FloatArray:
    """Low end, mean and high end of each entry of theta: 95 % lie between."""
    if isinstance(prior, MixtureArms):
        one = matched(prior.components, prior.mean, prior.scale)
        a, b = one.parameters()
        ends = betaincinv(a, b, TAILS) if isinstance(one, BetaArms) else gammaincinv(a, TAILS) / b
    elif isinstance(prior, LatentBelief):
        ends = prior.upper(ndtri(TAILS))
    else:
        ends = prior.mean + ndtri(TAILS) * prior.scale
    return np.array([ends[0], prior.mean, ends[1]])


def _own(table: Table) -> FloatArray:
    """What every task says by itself: averages, or least squares; NaN where it says nothing."""
    if not isinstance(table, LinearTable):
        count, total = table.table[:, 0], table.table[:, 1]
        return np.where(count > 0, total / np.where(count > 0, count, 1.0), np.nan)
    own = np.full((len(table), len(table.features)), np.nan)
    for i, moments in enumerate(table.moments):
        if np.linalg.matrix_rank(moments[:-1, :-1], hermitian=True) == own.shape[1]:
            own[i] = np.linalg.solve(moments[:-1, :-1], moments[:-1, -1])
    return own
