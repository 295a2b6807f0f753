"""Ratios as colours: panels of cells, each with its number and a word (extra `plots`)."""

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from adats.plots import DPI, GREY, PRINT, SMALL, TEXT, WIDTH, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = "RdBu_r"  # blue below 1, red above
STRONGEST = 2.0  # the ratio, or its inverse, from which on the colour is the same
DARK = 1.55  # from which on text is white
TICKS = (0.5, 0.7, 1.0, 1.4, 2.0)
WIDE, HIGH = 0.4, 0.34  # inches: of a cell
GAP, APART = 0.07, 0.2  # between panels, and between groups of them
LEFT, HEAD, TOP, BELOW, FOOT = 0.95, 0.3, 0.45, 0.42, 0.75  # around lines of panels


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
    """The cells of all panels on one scale of colours; groups in as many lines as they need."""
    tall = HIGH * len(chart.rows)
    bands = (tall + GAP) * len(chart.bands) - GAP
    lines = _lines(chart.groups)
    size = (WIDTH, HEAD + (TOP + bands + BELOW) * len(lines) + FOOT)

    def place(left: float, top: float, wide: float, high: float) -> "Axes":
        bottom = size[1] - top - high
        return figure.add_axes((left / size[0], bottom / size[1], wide / size[0], high / size[1]))

    def write(x: float, y: float, text: str, **style: object) -> None:
        style = {"va": "center", "fontsize": TEXT, **style}
        figure.text(x / size[0], 1 - y / size[1], text, **style)  # type: ignore[arg-type]

    def draw_line(groups: Sequence[HeatGroup], top: float) -> None:
        write(0.08, top - 0.1, chart.corner, color=GREY)
        for b, band in enumerate(chart.bands):
            write(0.08, top + b * (tall + GAP) + tall / 2, band)
        x = LEFT
        for group in groups:
            start = x
            for panel in group.panels:
                wide = WIDE * len(panel.columns)
                write(x + wide / 2, top - 0.1, panel.title, ha="center", color=GREY)
                for b, cells in enumerate(panel.cells):
                    axes = place(x, top + b * (tall + GAP), wide, tall)
                    _draw_cells(axes, cells)
                    axes.set_yticks(range(len(chart.rows)), chart.rows if x == LEFT else [])
                    last = b == len(chart.bands) - 1
                    axes.set_xticks(range(len(panel.columns)), panel.columns if last else [])
                x += wide + GAP
            middle = (start + x - GAP) / 2
            write(middle, top - 0.28, group.heading, ha="center")
            write(middle, top + bands + 0.27, group.label, ha="center")
            x += APART - GAP

    with new_figure(size, PRINT, dpi=DPI) as figure:
        write(0.08, 0.15, chart.title, fontsize=9)
        for i, groups in enumerate(lines):
            draw_line(groups, HEAD + (TOP + bands + BELOW) * i + TOP)
        _draw_scale(place(LEFT, size[1] - 0.45, 1.5, 0.12), chart.ends)
        for i, note in enumerate(textwrap.wrap(" ".join(chart.notes), 50)):
            write(LEFT + 1.75, size[1] - 0.67 + 0.14 * i, note, fontsize=SMALL, color=GREY)
    return figure


def _lines(groups: Sequence[HeatGroup]) -> list[list[HeatGroup]]:
    """Each group in the first line that has room for it."""
    lines: list[list[HeatGroup]] = []
    for group in groups:
        wide = [line for line in lines if LEFT + _wide([*line, group]) <= WIDTH]
        if wide:
            wide[0].append(group)
        else:
            lines.append([group])
    return lines


def _wide(groups: Sequence[HeatGroup]) -> float:
    panels = [panel for group in groups for panel in group.panels]
    inner = WIDE * sum(len(panel.columns) for panel in panels) + GAP * (len(panels) - 1)
    return inner + (APART - GAP) * (len(groups) - 1)


def _draw_cells(axes: "Axes", cells: Sequence[Sequence[HeatCell]]) -> None:
    from matplotlib.patches import Polygon, Rectangle

    strongest = math.log(STRONGEST)
    logs = [[math.log(max(cell.ratio, 1e-9)) for cell in row] for row in cells]
    axes.imshow(logs, cmap=COLOURS, vmin=-strongest, vmax=strongest, aspect="auto")
    for r, row in enumerate(cells):
        for c, cell in enumerate(row):
            colour = "white" if abs(logs[r][c]) > math.log(DARK) else "black"
            number = f"{cell.ratio:.2f}"
            axes.text(c, r - 0.2, number, ha="center", va="center", fontsize=TEXT, color=colour)
            axes.text(
                c, r + 0.24, cell.word, ha="center", va="center", fontsize=SMALL, color=colour
            )
            if cell.marked:
                corner = [(c - 0.46, r - 0.45), (c - 0.31, r - 0.45), (c - 0.46, r - 0.28)]
                axes.add_patch(Polygon(corner, color=colour, linewidth=0))
            if cell.framed:
                place = (c - 0.46, r - 0.45)
                axes.add_patch(Rectangle(place, 0.92, 0.9, fill=False, linewidth=1.0))
    axes.tick_params(length=0, labelsize=SMALL)
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
    axes.tick_params(length=2, labelsize=SMALL)
    axes.spines[:].set_visible(False)
    for x, text, side in ((0, ends[0], "left"), (1, ends[1], "right")):
        axes.text(x, 1.3, text, transform=axes.transAxes, ha=side, fontsize=SMALL, color=GREY)
