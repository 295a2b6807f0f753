"""Figures of a prior learned from a log (extra `plots`)."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from adats.models.core.types import FloatArray, IntArray
from adats.plots import COLOURS, GREY, draw_grid, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SHARED, ALONE = COLOURS["ada-ts"], COLOURS["ts"]
LIGHT = "#B3B3B3"
LANES = 20  # arms or features in one figure
WIDTH = 8.0
AREA = (*(COLOURS[name] for name in ("ada-ts", "meta-ts", "ts", "ada-ts+", "ada-ts-")), LIGHT)
YEAR = 3.2e7  # seconds: smaller numbers are no dates


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
    shown = min(len(names), LANES)
    with new_figure((WIDTH, 1.3 + 0.62 * shown), layout="constrained") as figure:
        axes = figure.subplots()
        jitter = np.linspace(-0.11, 0.11, len(own)) if len(own) > 1 else np.zeros(len(own))
        jitter = jitter[np.argsort(np.argsort(np.sin(7.0 * np.arange(len(own)))))]
        for k in range(shown):
            lanes = ((own, k - 0.2, LIGHT), (learned, k + 0.16, SHARED))
            for i, (values, lane, colour) in enumerate(lanes):
                said = ("tasks by themselves", "tasks with the shared prior")[i] if k == 0 else None
                style: Any = {
                    "s": 7,
                    "color": colour,
                    "alpha": 0.55,
                    "linewidths": 0,
                    "label": said,
                }
                axes.scatter(values[:, k], lane + jitter, **style)
        what = "prior of a new task: mean, 95 % interval"
        _intervals(axes, prior[:, :shown], np.arange(shown) + 0.4, "black", what)
        axes.set_xlim(*_range(prior[:, :shown], own[:, :shown], learned[:, :shown]))
        _name_lanes(axes, np.arange(shown) + 0.1, [_short(name) for name in names[:shown]])
        axes.set_ylim(shown - 0.35, -0.55)
        axes.set_xlabel(label)
        _plain(axes, "x")
        _legend(figure, 3, handletextpad=0.3, markerscale=1.4)
    return figure


def _intervals(axes: "Axes", ends: FloatArray, lanes: Any, colour: str, label: str) -> None:
    """Means with their intervals, a lane each."""
    low, mean, high = ends
    axes.errorbar(
        mean, lanes, xerr=np.array([mean - low, high - mean]), fmt="o", color=colour,
        markersize=4.5, capsize=3, linewidth=1.4, label=label,
    )  # fmt: skip


def _name_lanes(axes: "Axes", lanes: ArrayLike, names: Sequence[str]) -> None:
    """From above, without ticks."""
    axes.set_yticks(lanes, names)
    axes.set_ylim(len(names) - 0.5, -0.6)
    axes.tick_params(axis="y", length=0)


def _legend(figure: "Figure", columns: int, **style: Any) -> None:
    figure.legend(loc="outside upper center", ncols=columns, frameon=False, fontsize=9, **style)


def _range(prior: FloatArray, *points: FloatArray) -> tuple[float, float]:
    """All of the priors, and all tasks but the farthest."""
    clouds = [cloud[np.isfinite(cloud)] for cloud in points]
    ends = [prior.ravel(), *(np.quantile(cloud, [0.005, 0.995]) for cloud in clouds if cloud.size)]
    low, high = (float(np.concatenate(ends).min()), float(np.concatenate(ends).max()))
    margin = 0.03 * (high - low) or 1.0
    return low - margin, high + margin


def _short(name: str) -> str:
    return name if len(name) <= 18 else name[:17] + "…"


def saving_figure(savings: Mapping[str, tuple[float, float, float]]) -> "Figure":
    """The part of each rival's regret that is saved, with the ends of its interval."""
    with new_figure((WIDTH, 0.9 + 0.55 * len(savings)), layout="constrained") as figure:
        axes = figure.subplots()
        part, low, high = np.array(list(savings.values())).T * 100
        lanes = np.arange(len(savings))
        axes.errorbar(
            part, lanes, xerr=np.array([part - low, high - part]), fmt="o", color=SHARED,
            markersize=7, capsize=4, linewidth=1.8,
        )  # fmt: skip
        axes.axvline(0.0, color="black", linewidth=1.0)
        for lane, value in zip(lanes, part, strict=True):
            axes.annotate(
                f"{value:.0f} %", (value, lane), (0, 8), textcoords="offset points", ha="center"
            )
        _name_lanes(axes, lanes, [f"against {name}" for name in savings])
        ends = min(0.0, float(low.min())), max(0.0, float(high.max()))
        margin = 0.08 * (ends[1] - ends[0]) or 1.0
        axes.set_xlim(ends[0] - margin, ends[1] + margin)
        axes.set_xlabel("regret that sharing saves (below 0: the other saves), %; 90 % intervals")
        _plain(axes, "x")
    return figure


def task_figure(
    title: str, names: Sequence[str], pulls: FloatArray, own: FloatArray, belief: FloatArray
) -> "Figure":
    """Averages of a task's arms, and where the belief puts them: low end, mean and high end."""
    shown = min(len(names), LANES)
    mean = belief[1]
    lanes = np.arange(shown)
    with new_figure((WIDTH, 1.3 + 0.42 * shown), layout="constrained") as figure:
        axes = figure.subplots()
        raw, known = own[:shown], np.isfinite(own[:shown])
        for lane in lanes[known]:
            move = {"arrowstyle": "->", "color": GREY, "linewidth": 0.8}
            ends = (mean[lane], lane), (raw[lane], lane - 0.18)
            axes.annotate("", *ends, arrowprops=move)
        axes.scatter(raw[known], lanes[known] - 0.18, s=24, color=LIGHT, label="average")
        _intervals(axes, belief[:, :shown], lanes, SHARED, "belief: mean, 95 % interval")
        text = [f"{_short(n)} ({p:,.0f})" for n, p in zip(names, pulls, strict=False)]
        _name_lanes(axes, lanes, text[:shown])
        axes.set_xlabel(f"mean reward; {title}, pulls in brackets")
        _plain(axes, "x")
        _legend(figure, 2)
    return figure


def compare_figure(names: Sequence[str], priors: Mapping[str, FloatArray]) -> "Figure":
    """Priors side by side: low end, mean and high end of each arm."""
    shown = min(len(names), LANES)
    colours = (SHARED, ALONE, COLOURS["meta-ts"], GREY)
    with new_figure((WIDTH, 1.2 + 0.5 * shown), layout="constrained") as figure:
        axes = figure.subplots()
        for i, (name, ends) in enumerate(priors.items()):
            lanes = np.arange(shown) + 0.24 * (i - (len(priors) - 1) / 2)
            _intervals(axes, ends[:, :shown], lanes, colours[i % len(colours)], name)
        _name_lanes(axes, np.arange(shown), [_short(name) for name in names[:shown]])
        axes.set_xlabel("mean reward of a new task: mean, 95 % interval")
        _plain(axes, "x")
        _legend(figure, len(priors))
    return figure


def allocation_figure(time: FloatArray, shares: FloatArray, names: Sequence[str]) -> "Figure":
    """Which part of the pulls each arm got, at times in seconds since 1970, or in any order."""
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    most = len(AREA)
    order = np.argsort(-shares.sum(axis=0), kind="stable")
    parts = [shares[:, k] for k in order[:most]]
    labels = [_short(str(names[k])) for k in order[:most]]
    if len(order) > most:
        parts[-1] = shares[:, order[most - 1 :]].sum(axis=1)
        labels[-1] = f"{len(order) - most + 1} others"
    with new_figure((WIDTH, 3.2), layout="constrained") as figure:
        axes = figure.subplots()
        dated = time.size > 0 and float(time.min()) > YEAR
        x = np.asarray(time * 1e3, dtype="datetime64[ms]") if dated else time
        axes.stackplot(x, *(100 * part for part in parts), labels=labels, colors=AREA, alpha=0.85)
        axes.set_ylim(0, 100)
        if len(x) > 1:
            axes.set_xlim(x[0], x[-1])
        axes.set_ylabel("part of the pulls, %")
        axes.set_xlabel("time")
        if dated:
            locator: Any = AutoDateLocator(minticks=3, maxticks=6)  # type: ignore[no-untyped-call]
            axes.xaxis.set_major_locator(locator)
            axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
        _plain(axes, "y")
        _legend(figure, min(len(labels), 5))
    return figure


def calibration_figure(bins: IntArray) -> "Figure":
    """Counts of the transforms in equal parts, and where nine of ten such counts would lie."""
    with new_figure((0.7 * WIDTH, 3.2), layout="constrained") as figure:
        axes = figure.subplots()
        parts, n = len(bins), int(bins.sum())
        places = (np.arange(parts) + 0.5) / parts
        expected = n / parts
        band = 1.645 * np.sqrt(expected * (1 - 1 / parts))
        axes.bar(places, bins / expected, width=0.94 / parts, color=SHARED, alpha=0.75)
        what, ends = "nine of ten bars, if calibrated", (1 - band / expected, 1 + band / expected)
        axes.axhspan(*ends, color="black", alpha=0.15, linewidth=0, label=what)
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
