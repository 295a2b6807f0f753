"""Figures of online classification: regret, and the pictures that were pulled (extra `plots`)."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from adats.models.core.types import FloatArray
from adats.plots import (
    COLOURS,
    DPI,
    GREY,
    PRINT,
    SMALL,
    WIDTH,
    Chart,
    draw_chart,
    draw_legend,
    new_figure,
)
from adats.simulation.learners import label_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


LEGEND, COLUMN, LEFT, ACROSS = 0.17, WIDTH / 2, 0.62, 2.03  # inches: a row of it, of a column
TITLE, CHART, GAP, LABELS = 0.42, 1.3, 0.08, 0.38  # and from the top of a row to its end


def pictures_figure(
    charts: Sequence[Chart], pictures: Sequence[Mapping[str, FloatArray]]
) -> "Figure":
    """Cumulative regret, and below each task one picture an agent: 0 is paper, 1 is ink.

    `pictures` has, for each chart, (tasks, height, width) by agent.
    """
    columns = min(2, len(charts))
    rows = -(-len(charts) // columns)
    tasks, height, width = next(iter(pictures[0].values())).shape
    sheet = ACROSS * len(pictures[0]) * height / (tasks * width)  # as wide as the chart
    row = TITLE + CHART + GAP + sheet + LABELS
    legend = LEGEND * 3  # at most so many rows
    size = (WIDTH, legend + row * rows)

    def place(axes_left: float, top: float, tall: float) -> "Axes":
        bottom = size[1] - top - tall
        return figure.add_axes(
            (axes_left / size[0], bottom / size[1], ACROSS / size[0], tall / size[1])
        )

    with new_figure(size, PRINT, dpi=DPI) as figure:
        for i, (chart, shown) in enumerate(zip(charts, pictures, strict=True)):
            left, top = LEFT + COLUMN * (i % columns), legend + row * (i // columns) + TITLE
            above = place(left, top, CHART)
            draw_chart(above, chart, letters=40)
            above.set_ylabel("cumulative regret")
            above.set_xticks(range(tasks + 1), labels=[])
            _draw_pictures(place(left, top + CHART + GAP, sheet), shown)
        draw_legend(figure, loc="upper center")
    return figure


def _draw_pictures(axes: "Axes", pictures: Mapping[str, FloatArray]) -> None:
    """A row an agent and a column a task, below the task's part of the curve."""
    tasks, height, _ = next(iter(pictures.values())).shape
    edge = max(1, height // 20)
    frame = ((0, 0), (edge, edge), (edge, edge))
    rows = [np.pad(row, frame, constant_values=np.nan) for row in pictures.values()]
    sheet = np.block([list(row) for row in rows])
    axes.imshow(
        sheet,
        cmap="gray_r",
        vmin=0,
        vmax=np.nanmax(sheet),
        extent=(0, tasks, len(rows), 0),
        aspect="auto",
    )
    axes.set_xticks(np.arange(tasks) + 0.5, [str(task) for task in range(1, tasks + 1)])
    axes.set_yticks(np.arange(len(rows)) + 0.5, [label_of(agent) for agent in pictures])
    for label, agent in zip(axes.get_yticklabels(), pictures, strict=True):
        label.set_color(COLOURS.get(agent, GREY))
    axes.tick_params(length=0, labelsize=SMALL)
    axes.spines[:].set_visible(False)
    axes.set_xlabel("task: average picture pulled in round 1")
