"""The picture of the demo (extra `plots`)."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from adats.models.core.types import FloatArray
from adats.plots import COLOURS, GREY, draw_grid, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
    with new_figure((10, 4.2), layout="constrained") as figure:
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
