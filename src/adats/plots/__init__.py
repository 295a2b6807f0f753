"""Figures. The only module that uses Matplotlib (extra `plots`), and only when it draws."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

from adats.models.core.types import FloatArray
from adats.simulation.learners import label_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours, which colour-blind readers can tell apart; dashes tell once more.
COLOURS = {
    "oracle-ts": "#000000",
    "ada-ts": "#0072B2",
    "meta-ts": "#D55E00",
    "ts": "#009E73",
    "ada-ts+": "#56B4E9",
    "ada-ts-": "#CC79A7",
    "ada-grid": "#E69F00",
    "ada-narrow": "#8C564B",
    "ada-broad": "#7F3FBF",
    "ada-ucb": "#B3446C",
    "ada-index": "#5DA63A",
    "ada-far": "#E6194B",
    "ada-greedy": "#A9A9A9",
    "default-ts": "#1F3F8F",
    "default-far": "#8B0020",
    "pooled-ts": "#B8860B",
    "flat-ts": "#4D4D4D",
    "linear-ts": "#6B8E23",
}
DASHES: dict[str, Any] = {
    "ada-ts+": (0, (4, 1.5)),
    "ada-ts-": (0, (1.2, 1.2)),
    "ada-narrow": (0, (1.2, 1.2)),
    "ada-broad": (0, (4, 1.5)),
}
GREY = "#595959"
OTHER = ("#A6761D", "#F0E442", "#17BECF", "#7F7F7F")  # agents of other names, in turn

SETTINGS: Any = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 10,
    "mathtext.fontset": "dejavusans",
    "pdf.fonttype": 42,  # text stays text
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "adats",  # the same figure gives the same file
}


Kind = Literal["png", "svg", "pdf"]
KINDS: tuple[Kind, ...] = get_args(Kind)


# Above the panels where the layout makes room, at the top where there is room, or where a grid of
# panels has its last place free.
LegendPlace = Literal["above", "top", "corner"]


class Curve(NamedTuple):
    """Means with their standard errors."""

    mean: FloatArray
    se: FloatArray


@dataclass(frozen=True, eq=False)
class Chart:
    """One panel: curves by agent over a common x."""

    title: str
    note: str
    x: FloatArray
    curves: Mapping[str, Curve]


def need() -> None:
    """Raise `ValueError` unless figures can be drawn."""
    try:
        import matplotlib as _  # noqa: F401
    except ImportError:
        raise ValueError("figures need Matplotlib: pip install 'adats[plots]'") from None


def regret_figure(
    charts: Sequence[Chart],
    *,
    columns: int = 3,
    label: str = "cumulative regret",
    legend: LegendPlace = "above",
) -> "Figure":
    """Curves over tasks with standard-error bands: a panel a chart, and one legend."""
    need()
    import matplotlib as mpl
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    rows = -(-len(charts) // columns)
    height = 2.9 * rows + 0.6
    with mpl.rc_context(SETTINGS):
        layout = ConstrainedLayoutEngine(h_pad=0.09, w_pad=0.09)
        figure = Figure(figsize=(3.5 * columns, height), layout=layout)
        grid = figure.subplots(rows, columns, squeeze=False)
        for i, axes in enumerate(grid.flat):
            if i >= len(charts):
                axes.remove()
                continue
            draw_chart(axes, charts[i])
            if i % columns == 0:
                axes.set_ylabel(label)
            if i + columns >= len(charts):  # no panel below
                axes.set_xlabel("task")
        draw_legend(figure, legend)
    return figure


def draw_legend(figure: "Figure", place: LegendPlace) -> None:
    """One legend for all panels."""
    lines = {line.get_label(): line for axes in figure.axes for line in axes.get_lines()}
    handles, labels = list(lines.values()), [str(label) for label in lines]
    if place == "corner":
        beside: Any = {"loc": "lower right", "bbox_to_anchor": (0.99, 0.12)}
    else:
        loc = "outside upper center" if place == "above" else "upper center"
        beside = {"loc": loc, "ncols": len(lines), "handlelength": 2.6}
    figure.legend(handles, labels, frameon=False, fontsize=11, **beside)


def draw_chart(axes: "Axes", chart: Chart) -> None:
    others = [agent for agent in chart.curves if agent not in COLOURS]
    for agent, (mean, se) in chart.curves.items():
        spare = OTHER[others.index(agent) % len(OTHER)] if agent in others else GREY
        colour = COLOURS.get(agent, spare)
        axes.fill_between(chart.x, mean - se, mean + se, color=colour, alpha=0.18, linewidth=0)
        axes.plot(
            chart.x,
            mean,
            color=colour,
            linewidth=1.6,
            linestyle=DASHES.get(agent, "-"),
            label=label_of(agent),
        )
    axes.set_xlim(0, chart.x[-1])
    axes.set_ylim(bottom=0)
    axes.locator_params(axis="x", nbins=5, integer=True)
    axes.locator_params(axis="y", nbins=6)
    axes.set_title(_symbols(chart.title), loc="left", fontsize=10.5, pad=18)
    axes.text(0, 1.03, chart.note, transform=axes.transAxes, fontsize=9, color=GREY)
    draw_grid(axes)


def draw_grid(axes: "Axes", along: Literal["x", "y"] = "y") -> None:
    """Light lines at the ticks of one axis, and no frame."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis=along, color="#E6E6E6", linewidth=0.7)
    axes.set_axisbelow(True)


def log_ticks(axes: "Axes", ticks: Sequence[float]) -> None:
    """A logarithmic y axis with these ticks alone."""
    axes.set_yscale("log")
    axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.set_yticks([], minor=True)


def _symbols(text: str) -> str:
    return text.replace("σ_q", "$σ_q$").replace("σ_0", "$σ_0$")


def rendered(figure: "Figure", kind: Kind) -> bytes:
    """The figure as the bytes of a file, the same every time."""
    import matplotlib as mpl

    nothing: Any = {"png": "Software", "svg": "Date", "pdf": "CreationDate"}
    file = BytesIO()
    with mpl.rc_context(SETTINGS):
        figure.savefig(file, format=kind, dpi=150, metadata={nothing[kind]: None})
    return file.getvalue()


EMAIL_COLOURS = ("#0072B2", "#D55E00", "#7F7F7F")
STORY_COLOURS = (COLOURS["ts"], GREY, COLOURS["ada-ts"], "#CC79A7")


def story_figure(
    lost: Mapping[str, FloatArray],
    labels: Sequence[str],
    mean: FloatArray,
    scale: FloatArray,
    rates: FloatArray,
) -> "Figure":
    """The demo's picture: visits lost in each segment, and the learned prior taking shape.

    `lost` has (repetitions, segments) for each way to play; `mean` and `scale` are of the learned
    prior before each segment and after the last one.
    """
    need()
    import matplotlib as mpl
    import numpy as np
    from matplotlib.figure import Figure

    with mpl.rc_context(SETTINGS):
        figure = Figure(figsize=(10, 4.2), layout="constrained")
        left, right = figure.subplots(1, 2, width_ratios=[1, 1.15])
        segments = np.arange(1, rates.shape[0] + 1)
        for (name, values), colour in zip(lost.items(), STORY_COLOURS, strict=True):
            centre = values.mean(axis=0)
            error = values.std(axis=0, ddof=1) / np.sqrt(len(values))
            low, high = centre - error, centre + error
            left.fill_between(segments, low, high, color=colour, alpha=0.2, linewidth=0)
            total = f"{name}: {values.sum(axis=1).mean():.0f} in all"
            left.plot(segments, centre, color=colour, linewidth=1.6, label=total)
        left.legend(frameon=False, loc="upper right")
        left.set_ylim(0, 1.45 * max(values.mean(axis=0).max() for values in lost.values()))
        left.set_xlim(1, segments[-1])
        left.set_xlabel("customer segment, in the order of arrival")
        left.set_ylabel("visits lost in the segment")
        left.set_title("A learned prior makes new segments cheaper", loc="left", fontsize=12)
        seen = np.arange(len(mean))
        gap = len(seen) * 0.07
        jitter = np.linspace(-0.3, 0.3, len(rates)) * gap
        for i, (label, colour) in enumerate(zip(labels, EMAIL_COLOURS, strict=True)):
            low, high = mean[:, i] - scale[:, i], mean[:, i] + scale[:, i]
            right.fill_between(seen, low, high, color=colour, alpha=0.15, linewidth=0)
            right.plot(seen, mean[:, i], color=colour, linewidth=1.8, label=label)
            where = len(seen) + gap * (i + 0.7)
            right.scatter(where + jitter, rates[:, i], s=7, color=colour, alpha=0.7, linewidths=0)
        right.set_xlim(0, len(seen) + 3.4 * gap)
        right.set_ylim(0, 0.6)
        right.set_xticks([0, 10, 20, 30, 40, 50])
        right.set_xlabel("segments seen")
        right.set_ylabel("visit rate")
        right.text(
            len(seen) + 1.7 * gap, 0.5, "true rates\nof all segments", ha="center", color=GREY
        )
        right.set_title("The learned prior takes shape (mean ± sd)", loc="left", fontsize=12)
        right.legend(frameon=False, loc="upper center", ncols=1)
        draw_grid(left)
        draw_grid(right)
    return figure


from adats.plots.views import allocation, compare, prior, task  # noqa: E402

__all__ = ["allocation", "compare", "prior", "regret_figure", "rendered", "task"]
