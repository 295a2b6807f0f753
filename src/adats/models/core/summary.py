"""Small tables for people to look at, in a console and in a notebook."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from adats.models.core.types import Arm, Belief, FloatArray

SHOWN = 7  # rows; with title, head and what is left out, ten lines
Z95 = 1.959964


@dataclass(frozen=True)
class SummaryTable:
    """A title, names of columns, and rows of numbers and text."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]

    def _cells(self) -> list[list[str]]:
        return [[_text(value) for value in row] for row in self.rows[:SHOWN]]

    def _rest(self) -> str:
        left = len(self.rows) - SHOWN
        return f"... and {left} more" if left > 0 else ""

    def __repr__(self) -> str:
        lines = [list(self.columns), *self._cells()]
        wide = [max(len(line[j]) for line in lines) for j in range(len(self.columns))]
        shown = [
            "  ".join(cell.rjust(w) for cell, w in zip(line, wide, strict=True)) for line in lines
        ]
        return "\n".join([self.title, *shown, *filter(None, [self._rest()])])

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{escape(name)}</th>" for name in self.columns)
        body = "".join(
            "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in line) + "</tr>"
            for line in self._cells()
        )
        rest = f"<p>{self._rest()}</p>" if self._rest() else ""
        return f"<p>{escape(self.title)}</p><table><tr>{head}</tr>{body}</table>{rest}"


def _text(value: Any) -> str:
    if isinstance(value, (float, np.floating)):
        return "" if np.isnan(value) else f"{value:.4g}"
    text = str(value)
    return text if len(text) <= 24 else text[:23] + "…"


def interval(belief: Any) -> FloatArray:
    """Low end, mean and high end of each entry of theta: 95 % lie between."""
    try:
        ends = belief.upper(-Z95), belief.upper(Z95)
    except ValueError:  # no quantiles: as if it were normal
        ends = belief.mean - Z95 * belief.scale, belief.mean + Z95 * belief.scale
    return np.array([ends[0], belief.mean, ends[1]])


def belief_table(
    title: str, names: Sequence[Arm] | None, belief: Belief, **more: Any
) -> SummaryTable:
    """The mean and 95 % interval of each arm, or of each coefficient; `more` are other columns."""
    low, mean, high = interval(belief)
    first = "arm" if names is not None else "theta"
    names = range(mean.size) if names is None else names
    columns: dict[str, Any] = {first: names, **more, "mean": mean, "from": low, "to": high}
    return SummaryTable(title, tuple(columns), tuple(zip(*columns.values(), strict=True)))


def prior_table(meta: Any) -> SummaryTable:
    """What a belief over the task prior says of a new task."""
    names = meta.arms or (range(meta.n_arms) if meta.n_arms else None)
    what, count = ("feature", meta.n_features) if names is None else ("arm", len(names))
    size = f"{count} {what}{'s' if count > 1 else ''}"
    title = f"{type(meta).__name__} ({meta.model}), a new task: {size}"
    return belief_table(title, names, meta.task_prior())
