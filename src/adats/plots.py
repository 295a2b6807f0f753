"""Figures. The only module that uses Matplotlib (extra `sim`), and only when it draws."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from adats.types import FloatArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NAMES = {
    "oracle-ts": "OracleTS",
    "ada-ts": "AdaTS",
    "meta-ts": "MetaTS",
    "ts": "TS",
    "ada-ts+": "AdaTS+",
    "ada-ts-": "AdaTS−",
}

# Okabe and Ito's colours, which colour-blind readers can tell apart; dashes tell once more.
COLOURS = {
    "oracle-ts": "#000000",
    "ada-ts": "#0072B2",
    "meta-ts": "#D55E00",
    "ts": "#009E73",
    "ada-ts+": "#56B4E9",
    "ada-ts-": "#CC79A7",
}
DASHES: dict[str, Any] = {
    "ada-ts+": (0, (4, 1.5)),
    "ada-ts-": (0, (1.2, 1.2)),
}
GREY = "#595959"
OTHER = ("#E69F00", "#F0E442", "#8C564B", "#7F7F7F")  # agents of other names, in turn

SETTINGS: Any = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 10,
    "mathtext.fontset": "dejavusans",
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "adats",  # the same figure gives the same file
}


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
        raise ValueError("figures need Matplotlib: pip install 'adats[sim]'") from None


def regret_figure(charts: Sequence[Chart], *, columns: int = 3) -> "Figure":
    """Cumulative regret with standard-error bands: a panel a chart, and one legend."""
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
            _draw(axes, charts[i])
            if i % columns == 0:
                axes.set_ylabel("cumulative regret")
            if i + columns >= len(charts):  # no panel below
                axes.set_xlabel("task")
        handles = {line.get_label(): line for axes in figure.axes for line in axes.get_lines()}
        figure.legend(
            list(handles.values()),
            [str(label) for label in handles],
            loc="outside upper center",
            ncols=len(handles),
            frameon=False,
            fontsize=11,
            handlelength=2.6,
        )
    return figure


def _draw(axes: "Axes", chart: Chart) -> None:
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
            label=NAMES.get(agent, agent),
        )
    axes.set_xlim(0, chart.x[-1])
    axes.set_ylim(bottom=0)
    axes.locator_params(axis="x", nbins=5, integer=True)
    axes.locator_params(axis="y", nbins=6)
    axes.set_title(_symbols(chart.title), loc="left", fontsize=10.5, pad=18)
    axes.text(0, 1.03, chart.note, transform=axes.transAxes, fontsize=9, color=GREY)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#E6E6E6", linewidth=0.7)
    axes.set_axisbelow(True)


def _symbols(text: str) -> str:
    return text.replace("σ_q", "$σ_q$").replace("σ_0", "$σ_0$")


def rendered(figure: "Figure", kind: Literal["png", "svg"]) -> bytes:
    """The figure as the bytes of a file, the same every time."""
    import matplotlib as mpl

    metadata = {"Date": None} if kind == "svg" else {"Software": None}
    file = BytesIO()
    with mpl.rc_context(SETTINGS):
        figure.savefig(file, format=kind, dpi=150, metadata=metadata)
    return file.getvalue()
