"""Figures of a prior learned from a log (extra `plots`)."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np

from adats.models.core.types import FloatArray, IntArray
from adats.plots import COLOURS, GREY, SETTINGS, draw_grid, need

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SHARED, ALONE = COLOURS["ada-ts"], COLOURS["ts"]
LIGHT = "#B3B3B3"
LANES = 20  # arms or features in one figure
WIDTH = 8.0


def prior_figure(
    names: Sequence[str],
    prior: FloatArray,
    own: FloatArray,
    learned: FloatArray,
    *,
    label: str,
) -> "Figure":
    """A lane for each arm: the prior of a new task, and tasks by their own rewards and with it.

    `prior` has low end, mean and high end of each arm. `own` and `learned` have a row a task;
    what a task says nothing about is NaN.
    """
    need()
    import matplotlib as mpl
    from matplotlib.figure import Figure

    shown = min(len(names), LANES)
    low, mean, high = prior[:, :shown]
    with mpl.rc_context(SETTINGS):
        figure = Figure(figsize=(WIDTH, 1.3 + 0.62 * shown), layout="constrained")
        axes = figure.subplots()
        jitter = np.linspace(-0.11, 0.11, len(own)) if len(own) > 1 else np.zeros(len(own))
        jitter = jitter[np.argsort(np.argsort(np.sin(7.0 * np.arange(len(own)))))]
        for k in range(shown):
            lanes = ((own, k - 0.2, LIGHT), (learned, k + 0.16, SHARED))
            for i, (values, lane, colour) in enumerate(lanes):
                axes.scatter(
                    values[:, k],
                    lane + jitter,
                    s=7,
                    color=colour,
                    alpha=0.55,
                    linewidths=0,
                    label=("tasks by themselves", "tasks with the shared prior")[i]
                    if k == 0
                    else None,
                )
        axes.errorbar(
            mean,
            np.arange(shown) + 0.4,
            xerr=np.array([mean - low, high - mean]),
            fmt="o",
            color="black",
            markersize=4.5,
            capsize=3,
            linewidth=1.4,
            label="prior of a new task: mean, 95 % interval",
        )
        axes.set_xlim(*_range(prior[:, :shown], own[:, :shown], learned[:, :shown]))
        axes.set_ylim(shown - 0.35, -0.55)
        axes.set_yticks(np.arange(shown) + 0.1, [_short(name) for name in names[:shown]])
        axes.tick_params(axis="y", length=0)
        axes.set_xlabel(label)
        _plain(axes, "x")
        figure.legend(
            loc="outside upper center",
            ncols=3,
            frameon=False,
            fontsize=9,
            handletextpad=0.3,
            markerscale=1.4,
        )
    return figure


def _range(prior: FloatArray, *points: FloatArray) -> tuple[float, float]:
    """All of the priors, and all tasks but the farthest."""
    clouds = [cloud[np.isfinite(cloud)] for cloud in points]
    ends = [prior.ravel(), *(np.quantile(cloud, [0.005, 0.995]) for cloud in clouds if cloud.size)]
    low, high = (float(np.concatenate(ends).min()), float(np.concatenate(ends).max()))
    margin = 0.03 * (high - low) or 1.0
    return low - margin, high + margin


def _short(name: str) -> str:
    return name if len(name) <= 18 else name[:17] + "…"


def saving_figure(shared: FloatArray, alone: FloatArray, gains: FloatArray) -> "Figure":
    """Regret of a simulated new task, (tasks, rounds) each, and held-out gains of logged tasks."""
    need()
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(SETTINGS):
        figure = Figure(figsize=(WIDTH + 1.5, 3.6), layout="constrained")
        left, right = figure.subplots(1, 2)
        for name, regret, colour, width in (
            ("by itself", alone, ALONE, 3.0),  # to be seen also where the curves are the same
            ("with the shared prior", shared, SHARED, 1.5),
        ):
            curves = np.concatenate([np.zeros((len(regret), 1)), regret.cumsum(axis=1)], axis=1)
            mean, se = curves.mean(axis=0), curves.std(axis=0, ddof=1) / np.sqrt(len(curves))
            rounds = np.arange(mean.size)
            left.fill_between(
                rounds, mean - 2 * se, mean + 2 * se, color=colour, alpha=0.2, linewidth=0
            )
            left.plot(rounds, mean, color=colour, linewidth=width, label=name)
        left.set_xlim(0, shared.shape[1])
        left.set_ylim(0, 1.25 * max(float(r.sum(axis=1).mean()) for r in (shared, alone)) or 1.0)
        left.legend(frameon=False, loc="upper left", ncols=2, fontsize=9)
        left.locator_params(axis="x", integer=True, nbins=6)
        left.set_xlabel("round of a new task")
        left.set_ylabel("cumulative regret")
        left.set_title("Simulated: what a new task loses", loc="left", fontsize=11)
        _plain(left, "y")
        _draw_gains(right, gains)
    return figure


def _draw_gains(axes: "Axes", gains: FloatArray) -> None:
    low, high = np.quantile(gains, [0.005, 0.995])
    low, high = min(low, 0.0), max(high, 0.0)
    margin = 0.04 * (high - low) or 1.0
    ends = (float(low - margin), float(high + margin))
    bins = min(40, max(8, round(np.sqrt(gains.size))))
    axes.hist(np.clip(gains, *ends), bins=bins, range=ends, color=LIGHT)
    mean, se = float(gains.mean()), float(gains.std(ddof=1) / np.sqrt(gains.size))
    top = 0.86  # the legend is above
    axes.axvspan(mean - 2 * se, mean + 2 * se, ymax=top, color=SHARED, alpha=0.25, linewidth=0)
    axes.axvline(mean, ymax=top, color=SHARED, linewidth=1.6, label="mean ± 2 standard errors")
    axes.axvline(0.0, ymax=top, color="black", linewidth=1.0, linestyle="--", label="no difference")
    axes.set_xlim(*ends)
    axes.set_ylim(top=1.25 * axes.get_ylim()[1])
    axes.legend(frameon=False, loc="upper left", ncols=2, fontsize=9)
    axes.set_xlabel("gain in log score of a held-out task, nats")
    axes.set_ylabel("tasks")
    axes.set_title("Logged: is the shared prior the better forecast?", loc="left", fontsize=11)
    _plain(axes, "y")


def calibration_figure(bins: IntArray) -> "Figure":
    """Counts of the transforms in equal parts, and where nine of ten such counts would lie."""
    need()
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(SETTINGS):
        figure = Figure(figsize=(0.7 * WIDTH, 3.2), layout="constrained")
        axes = figure.subplots()
        parts, n = len(bins), int(bins.sum())
        places = (np.arange(parts) + 0.5) / parts
        expected = n / parts
        band = 1.645 * np.sqrt(expected * (1 - 1 / parts))
        axes.bar(places, bins / expected, width=0.94 / parts, color=SHARED, alpha=0.75)
        axes.axhspan(
            1 - band / expected,
            1 + band / expected,
            color="black",
            alpha=0.15,
            linewidth=0,
            label="nine of ten bars, if calibrated",
        )
        axes.axhline(1.0, color="black", linewidth=1.0)
        axes.set_xlim(0, 1)
        axes.set_ylim(0, 1.25 * max(float((bins / expected).max()), 1 + band / expected))
        axes.legend(frameon=False, loc="upper right", fontsize=9)
        axes.set_xlabel("predicted probability of a smaller reward")
        axes.set_ylabel("frequency (1 is expected)")
        _plain(axes, "y")
    return figure


def _plain(axes: "Axes", grid: Literal["x", "y"]) -> None:
    draw_grid(axes, grid)
    axes.xaxis.label.set_color(GREY)
    axes.yaxis.label.set_color(GREY)
