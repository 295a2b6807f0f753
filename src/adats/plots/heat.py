"""Ratios as colours: panels of cells, each with its number and a word (extra `plots`)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from adats.plots import GREY, SETTINGS, need

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = "RdBu_r"  # blue below 1, red above
STRONGEST = 2.0  # the ratio, or its inverse, from which on the colour is the same
DARK = 1.55  # from which on text is white
TICKS = (0.5, 0.7, 1.0, 1.4, 2.0)
WIDTH, HEIGHT = 0.56, 0.5  # inches: of a cell
GAP, APART = 0.1, 0.3  # between panels, and between groups of them
LEFT, RIGHT, TOP, BELOW, FOOT = 1.15, 0.3, 1.2, 0.6, 1.0  # around the panels
NARROWEST = 8.4  # with room for the notes beside the scale


class HeatCell(NamedTuple):
    """A ratio, a word about it, and whether it has a mark in its corner, and a frame."""

    ratio: float
    word: str
    marked: bool = False
    framed: bool = False


class HeatPanel(NamedTuple):
    """Cells by band, row and column; names of the columns."""

    title: str
    columns: Sequence[str]
    cells: Sequence[Sequence[Sequence[HeatCell]]]


class HeatGroup(NamedTuple):
    """Panels side by side, under one heading; what their columns are."""

    heading: str
    label: str
    panels: Sequence[HeatPanel]


@dataclass(frozen=True)
class HeatMap:
    """Groups of panels from left to right, in bands of rows from top to bottom."""

    title: str
    corner: str  # what the bands are
    bands: Sequence[str]
    rows: Sequence[str]
    groups: Sequence[HeatGroup]
    ends: tuple[str, str]  # what it means to be below 1, and above
    notes: Sequence[str]


def heat_figure(chart: HeatMap) -> "Figure":
    """The cells of all panels on one scale of colours."""
    need()
    import matplotlib as mpl
    from matplotlib.figure import Figure

    tall = HEIGHT * len(chart.rows)
    columns = [len(panel.columns) for group in chart.groups for panel in group.panels]
    inner = WIDTH * sum(columns) + GAP * (len(columns) - 1)
    inner += (APART - GAP) * (len(chart.groups) - 1)
    bands = (tall + GAP) * len(chart.bands) - GAP
    size = (max(LEFT + inner + RIGHT, NARROWEST), TOP + bands + BELOW + FOOT)

    def place(left: float, top: float, wide: float, high: float) -> "Axes":
        bottom = size[1] - top - high
        return figure.add_axes((left / size[0], bottom / size[1], wide / size[0], high / size[1]))

    def write(x: float, y: float, text: str, **style: object) -> None:
        figure.text(x / size[0], 1 - y / size[1], text, **{"va": "center", **style})  # type: ignore[arg-type]

    with mpl.rc_context(SETTINGS):
        figure = Figure(figsize=size)
        write(0.15, 0.27, chart.title, fontsize=13)
        write(0.15, TOP - 0.15, chart.corner, color=GREY)
        for b, band in enumerate(chart.bands):
            write(0.15, TOP + b * (tall + GAP) + tall / 2, band, fontsize=12)
        x = LEFT
        for group in chart.groups:
            start = x
            for panel in group.panels:
                wide = WIDTH * len(panel.columns)
                write(x + wide / 2, TOP - 0.15, panel.title, ha="center", color=GREY)
                for b, cells in enumerate(panel.cells):
                    axes = place(x, TOP + b * (tall + GAP), wide, tall)
                    _draw_cells(axes, cells)
                    axes.set_yticks(range(len(chart.rows)), chart.rows if x == LEFT else [])
                    last = b == len(chart.bands) - 1
                    axes.set_xticks(range(len(panel.columns)), panel.columns if last else [])
                x += wide + GAP
            middle = (start + x - GAP) / 2
            write(middle, TOP - 0.45, group.heading, ha="center", fontsize=11.5)
            write(middle, TOP + bands + 0.4, group.label, ha="center")
            x += APART - GAP
        _draw_scale(place(LEFT, size[1] - 0.65, 2.4, 0.16), chart.ends)
        for i, note in enumerate(chart.notes):
            write(LEFT + 2.9, size[1] - 0.8 + 0.23 * i, note, fontsize=9.5, color=GREY)
    return figure


def _draw_cells(axes: "Axes", cells: Sequence[Sequence[HeatCell]]) -> None:
    from matplotlib.patches import Polygon, Rectangle

    strongest = math.log(STRONGEST)
    logs = [[math.log(max(cell.ratio, 1e-9)) for cell in row] for row in cells]
    axes.imshow(logs, cmap=COLOURS, vmin=-strongest, vmax=strongest, aspect="auto")
    for r, row in enumerate(cells):
        for c, cell in enumerate(row):
            colour = "white" if abs(logs[r][c]) > math.log(DARK) else "black"
            number = f"{cell.ratio:.2f}"
            axes.text(c, r - 0.12, number, ha="center", va="center", fontsize=11, color=colour)
            axes.text(c, r + 0.25, cell.word, ha="center", va="center", fontsize=8, color=colour)
            if cell.marked:
                corner = [(c - 0.46, r - 0.45), (c - 0.31, r - 0.45), (c - 0.46, r - 0.28)]
                axes.add_patch(Polygon(corner, color=colour, linewidth=0))
            if cell.framed:
                place = (c - 0.46, r - 0.45)
                axes.add_patch(Rectangle(place, 0.92, 0.9, fill=False, linewidth=1.4))
    axes.tick_params(length=0, labelsize=10)
    axes.spines[:].set_visible(False)
    for c in range(1, len(cells[0])):
        axes.axvline(c - 0.5, color="white", linewidth=1.5)
    for r in range(1, len(cells)):
        axes.axhline(r - 0.5, color="white", linewidth=1.5)


def _draw_scale(axes: "Axes", ends: tuple[str, str]) -> None:
    """The colours of ratios, from the lowest to the highest."""
    strongest = math.log(STRONGEST)
    steps = [[strongest * (2 * i / 255 - 1) for i in range(256)]]
    axes.imshow(
        steps,
        cmap=COLOURS,
        vmin=-strongest,
        vmax=strongest,
        aspect="auto",
        extent=(-strongest, strongest, 0, 1),
    )
    axes.set_xticks([math.log(tick) for tick in TICKS], [f"{tick:g}" for tick in TICKS])
    axes.set_yticks([])
    axes.tick_params(length=2, labelsize=9.5)
    axes.spines[:].set_visible(False)
    for x, text, side in ((0, ends[0], "left"), (1, ends[1], "right")):
        axes.text(x, 1.3, text, transform=axes.transAxes, ha=side, fontsize=9.5, color=GREY)
