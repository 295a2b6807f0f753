"""Figures. The only module that uses Matplotlib (extra `plots`), and only when it draws."""

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import numpy as np

from adats.models.core.types import FloatArray
from adats.simulation.learners import label_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes as Axes
    from matplotlib.figure import Figure as Figure

# Of agents that are drawn together any two are told apart, also without red or green (ΔE > 20), and
# each has dashes of its own: tests/test_plots.py.
LONG, MIDDLE, SHORT, DOTS, SPARSE = (
    (0, lengths) for lengths in ((9, 1.5), (5, 1.5), (2.5, 1), (1, 1), (1, 2.5))
)
BOTH, TWICE = (0, (5, 1.2, 1, 1.2)), (0, (5, 1.2, 1, 1.2, 1, 1.2))
STYLES: dict[str, tuple[str, Any]] = {  # colour and dashes; None: a line without gaps
    "oracle-ts": ("#000000", LONG),
    "ada-ts": ("#0072B2", None),
    "meta-ts": ("#D55E00", MIDDLE),
    "ts": ("#00A38A", BOTH),
    "ada-ts+": ("#51B7EF", SHORT),
    "ada-ts-": ("#763A54", DOTS),
    "ada-grid": ("#F0B400", MIDDLE),
    "ada-narrow": ("#6F3D30", DOTS),
    "ada-broad": ("#2D007E", SHORT),
    "ada-ucb": ("#B9425E", MIDDLE),
    "ada-index": ("#004A00", BOTH),
    "ada-far": ("#FF674E", SHORT),
    "ada-greedy": ("#A9A9A9", DOTS),
    "default-ts": ("#00256B", MIDDLE),
    "default-far": ("#911B18", SHORT),
    "pooled-ts": ("#B28000", BOTH),
    "flat-ts": ("#6A6A69", DOTS),
    "linear-ts": ("#7CD29B", SPARSE),
}
COLOURS = {agent: colour for agent, (colour, _) in STYLES.items()}
DASHES = {agent: dashes for agent, (_, dashes) in STYLES.items() if dashes is not None}
OTHER_DASHES: Any = (SHORT, TWICE, DOTS, SPARSE)
GREY = "#595959"
OTHER = ("#543100", "#86780D", "#7DCFF8", "#BDD430")  # agents of other names, in turn

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


# For print: at this width, in inches, no text is smaller than `SMALL` points.
WIDTH = 5.5
TEXT, SMALL = 7.5, 7.0
PRINT: Any = {**SETTINGS, "font.size": TEXT, "legend.fontsize": TEXT, "axes.linewidth": 0.6}
DPI = 300


class Curve(NamedTuple):
    """Means with their standard errors."""

    mean: FloatArray
    se: FloatArray

    @classmethod
    def of_runs(cls, values: FloatArray) -> "Curve":
        """Of what every run has, (runs, points)."""
        return cls(values.mean(axis=0), values.std(axis=0, ddof=1) / np.sqrt(len(values)))

    @classmethod
    def exact(cls, values: FloatArray) -> "Curve":
        return cls(values, np.zeros_like(values))


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


@contextmanager
def new_figure(
    size: tuple[float, float], settings: Any = SETTINGS, **options: Any
) -> Iterator["Figure"]:
    """A figure of this size in inches, to be drawn on with these settings."""
    need()
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(settings):
        yield Figure(figsize=size, **options)


def regret_figure(
    charts: Sequence[Chart],
    *,
    columns: int = 3,
    label: str = "cumulative regret",
    across: str = "task",
) -> "Figure":
    """Curves over tasks with standard-error bands: a panel a chart, and one legend.

    The legend is where the grid of panels has room for it, else above.
    """
    need()
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    columns = min(columns, len(charts))
    rows = -(-len(charts) // columns)
    free = rows * columns - len(charts)
    layout = ConstrainedLayoutEngine(h_pad=0.05, w_pad=0.04)
    size = (WIDTH, 0.3 + HEIGHTS[columns] * rows)
    with new_figure(size, PRINT, dpi=DPI, layout=layout) as figure:
        grid = figure.subplots(rows, columns, squeeze=False)
        for i, axes in enumerate(grid.flat):
            if i >= len(charts):
                axes.remove()
                continue
            draw_chart(axes, charts[i], letters=LETTERS[columns])
            if i % columns == 0:
                axes.set_ylabel(label)
            if i + columns >= len(charts):  # no panel below
                axes.set_xlabel(across)
        if free:
            draw_legend(figure, loc="center", at=(1 - free / (2 * columns), 0.5 / rows))
        else:
            draw_legend(figure, loc="outside upper center")
    return figure


HEIGHTS = {1: 2.6, 2: 1.95, 3: 1.65}  # of a panel, in inches, by the number of columns
LETTERS = {1: 80, 2: 38, 3: 27}  # in a line of a title


def draw_legend(figure: "Figure", *, loc: Any, at: tuple[float, float] | None = None) -> int:
    """One legend for all panels, in as many rows as it needs; how many.

    `at` is the middle of a free place in a grid of panels, where it is one column.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    lines = {line.get_label(): line for axes in figure.axes for line in axes.get_lines()}
    shown = {str(name): line for name, line in lines.items() if not str(name).startswith("_")}
    names = (
        [textwrap.fill(name, 20, break_on_hyphens=False) for name in shown] if at else list(shown)
    )
    renderer = FigureCanvasAgg(figure).get_renderer()  # type: ignore[no-untyped-call]
    columns = 1 if at else len(shown)
    while True:
        legend = figure.legend(
            list(shown.values()),
            names,
            loc=loc,
            bbox_to_anchor=at,
            ncols=columns,
            frameon=False,
            handlelength=3.2,
            columnspacing=1.4,
            fontsize=TEXT,
        )
        if columns == 1 or legend.get_window_extent(renderer).width <= figure.bbox.width:
            return -(-len(shown) // columns)
        legend.remove()
        columns -= 1


def draw_chart(axes: "Axes", chart: Chart, *, letters: int) -> None:
    """Curves with their bands; a line of the title has so many letters."""
    others = [agent for agent in chart.curves if agent not in COLOURS]
    for agent, (mean, se) in chart.curves.items():
        spare = others.index(agent) % len(OTHER) if agent in others else 0
        colour = COLOURS.get(agent, OTHER[spare])
        dashes = DASHES.get(agent, OTHER_DASHES[spare] if agent in others else "-")
        axes.fill_between(chart.x, mean - se, mean + se, color=colour, alpha=0.18, linewidth=0)
        axes.plot(
            chart.x,
            mean,
            color=colour,
            linewidth=1.1,
            linestyle=dashes,
            label=symbols(label_of(agent)),
        )
    axes.set_xlim(0, chart.x[-1])
    axes.set_ylim(bottom=0)
    axes.locator_params(axis="x", nbins=5, integer=True)
    axes.locator_params(axis="y", nbins=6)
    axes.tick_params(labelsize=SMALL, width=0.6, length=2.5)
    note = textwrap.fill(unbroken(chart.note), letters)
    lines = note.count("\n") + bool(note)
    title = textwrap.fill(unbroken(chart.title), letters)
    axes.set_title(symbols(title), loc="left", fontsize=TEXT, pad=5 + 8.5 * lines)
    axes.text(0, 1.03, symbols(note), transform=axes.transAxes, fontsize=SMALL, color=GREY)
    draw_grid(axes)


def unbroken(text: str) -> str:
    """With spaces around signs that no line breaks at."""
    return text.replace(" = ", "\u00a0=\u00a0").replace(" ± ", "\u00a0±\u00a0")


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


def symbols(text: str) -> str:
    """With the paper's symbols set as such."""
    for name in ("σ_q", "σ_0", "μ_*", "θ_s", "H_s", "R_δ"):
        text = text.replace(name, f"${name}$")
    return text.replace("H_1:s", "$H_{1:s}$")


def rendered(figure: "Figure", kind: Kind) -> bytes:
    """The figure as the bytes of a file, the same every time."""
    import matplotlib as mpl

    nothing: Any = {"png": "Software", "svg": "Date", "pdf": "CreationDate"}
    file = BytesIO()
    with mpl.rc_context(SETTINGS):
        figure.savefig(file, format=kind, dpi=max(figure.dpi, 150), metadata={nothing[kind]: None})
    return file.getvalue()


from adats.plots.views import allocation, compare, prior, task  # noqa: E402

__all__ = ["allocation", "compare", "prior", "regret_figure", "rendered", "task"]
