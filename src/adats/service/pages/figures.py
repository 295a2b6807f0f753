"""Figures as SVG text: lines with bands, stacked shares, and slopes from raw to believed.

Each has a text alternative. What is under the pointer is the title of an invisible strip, which a
browser shows without scripts. Colours are classes of `page.css`, and lines differ by dashes too.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from html import escape
from itertools import pairwise
from typing import NamedTuple

WIDTH, HEIGHT = 440.0, 260.0
LEFT, RIGHT, TOP, BOTTOM = 52.0, 116.0, 14.0, 34.0  # margins
LINE_OF_TEXT = 14.0
COLOURS = 6  # in the style sheet; a figure has no more lines
LONGEST_LABEL = 12  # characters

Words = Callable[[float], str]


class Line(NamedTuple):
    name: str
    y: Sequence[float]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None


class Slope(NamedTuple):
    """One task: what its data say by themselves, and what is believed."""

    name: str
    link: str
    colour: int
    raw: float
    believed: float


class Axis(NamedTuple):
    """From values to places, along one side."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high = self.low, self.high
        if self.log:
            low, high, value = math.log(low), math.log(high), math.log(value)
        return self.start + (self.end - self.start) * (value - low) / ((high - low) or 1.0)


# words


def number(value: float) -> str:
    """With three digits that matter."""
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else "–"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    text = f"{value:.{max(0, 2 - math.floor(math.log10(abs(value))))}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def percent(value: float) -> str:
    return f"{number(100 * value)} %"


def moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%-d %b %H:%M")


def short(text: str) -> str:
    return text if len(text) <= LONGEST_LABEL else text[: LONGEST_LABEL - 1] + "…"


# figures


def lines(
    x: Sequence[float], several: Sequence[Line], *, alt: str, x_words: Words, y_words: Words,
    log: bool = False, zero: bool = False,
) -> str:  # fmt: skip
    """Lines over the same places, with their bands; `zero` marks no difference."""
    values = [v for line in several for part in (line.y, line.low, line.high) for v in part or ()]
    finite = [value for value in values if math.isfinite(value)] + ([0.0] if zero else [])
    across, up = _across(x, log=log), _up(finite)
    parts = _axes(across, up, x_words, y_words)
    if zero:
        parts.append(f'<path class="zero" d="M{LEFT:.0f} {up(0):.1f}H{WIDTH - RIGHT:.0f}"/>')
    for i, line in enumerate(several):
        if line.low is not None and line.high is not None:
            there = [(across(a), up(b)) for a, b in zip(x, line.low, strict=True) if _is(b)]
            back = [(across(a), up(b)) for a, b in zip(x, line.high, strict=True) if _is(b)]
            parts.append(f'<path class="band c{i}" d="{_path(there + back[::-1])}Z"/>')
    for i, line in enumerate(several):
        points = [(across(a), up(b)) for a, b in zip(x, line.y, strict=True) if _is(b)]
        parts.append(f'<path class="line c{i}" d="{_path(points)}"/>')
    ends = [(next((up(v) for v in reversed(line.y) if _is(v)), TOP)) for line in several]
    parts += _labels([line.name for line in several], ends)
    about = [
        "\n".join([x_words(a), *(_said(line, i, y_words) for line in several if _is(line.y[i]))])
        for i, a in enumerate(x)
    ]
    return _figure(parts + _strips([across(a) for a in x], about), alt)


def stacked(
    x: Sequence[float], names: Sequence[str], shares: Sequence[Sequence[float]], *, alt: str,
    x_words: Words,
) -> str:  # fmt: skip
    """Shares of a whole over time; a row of shares for each place."""
    across, up = _across(x), Axis(0.0, 1.0, HEIGHT - BOTTOM, TOP)
    parts = _axes(across, up, x_words, percent)
    below = [0.0] * len(x)
    middles = []
    for i, _ in enumerate(names):
        above = [b + row[i] for b, row in zip(below, shares, strict=True)]
        there = [(across(a), up(b)) for a, b in zip(x, below, strict=True)]
        back = [(across(a), up(b)) for a, b in zip(x, above, strict=True)]
        parts.append(f'<path class="area c{i}" d="{_path(there + back[::-1])}Z"/>')
        middles.append(up((below[-1] + above[-1]) / 2))
        below = above
    parts += _labels(names, middles)
    about = [
        "\n".join([x_words(a), *(f"{n} {percent(s)}" for n, s in zip(names, row, strict=True))])
        for a, row in zip(x, shares, strict=True)
    ]
    return _figure(parts + _strips([across(a) for a in x], about), alt)


def slopes(tasks: Sequence[Slope], *, alt: str, words: Words) -> str:
    """From what the data of each task say by themselves to what is believed; each is a link."""
    height = 1.4 * HEIGHT
    up = _up([value for task in tasks for value in (task.raw, task.believed)], height)
    left, right = LEFT + 30, WIDTH - LEFT - 10
    parts = [
        f'<text class="axis" x="{LEFT - 6:.0f}" y="{up(v) + 4:.1f}" text-anchor="end">'
        f"{words(v)}</text>" for v in _ticks(up)
    ]  # fmt: skip
    for place, name in ((left, "its own data"), (right, "believed")):
        parts.append(f'<path class="grid" d="M{place:.0f} {TOP:.0f}V{height - BOTTOM:.0f}"/>')
        at = f'x="{place:.0f}" y="{height - 10:.0f}"'
        parts.append(f'<text class="axis" {at} text-anchor="middle">{name}</text>')
    for task in tasks:
        a, b = up(task.raw), up(task.believed)
        said = f"{task.name}\n{words(task.raw)} → {words(task.believed)}"
        parts.append(
            f'<a href="{escape(task.link)}"><title>{escape(said)}</title><path class="line thin '
            f'c{task.colour}" d="M{left:.0f} {a:.1f}L{right:.0f} {b:.1f}"/><circle '
            f'class="dot c{task.colour}" cx="{left:.0f}" cy="{a:.1f}" r="2.5"/><circle '
            f'class="dot c{task.colour}" cx="{right:.0f}" cy="{b:.1f}" r="2.5"/></a>'
        )
    return _figure(parts, alt, height)


# their parts


def _figure(parts: Iterable[str], alt: str, height: float = HEIGHT) -> str:
    box = f'viewBox="0 0 {WIDTH:.0f} {height:.0f}"'
    return f'<svg {box} role="img" aria-label="{escape(alt)}">{"".join(parts)}</svg>'


def _across(x: Sequence[float], *, log: bool = False) -> Axis:
    return Axis(x[0], x[-1], LEFT, WIDTH - RIGHT, log and x[0] > 0 and x[-1] > 20 * x[0])


def _up(values: Sequence[float], height: float = HEIGHT) -> Axis:
    low, high = min(values, default=0.0), max(values, default=1.0)
    room = 0.05 * (high - low) or 0.1 * abs(high) or 1.0
    return Axis(low - room, high + room, height - BOTTOM, TOP)


def _ticks(scale: Axis, count: int = 4) -> list[float]:
    """Round values within a scale."""
    if scale.log:
        first, last = math.ceil(math.log10(scale.low)), math.floor(math.log10(scale.high))
        return [10.0**power for power in range(first, last + 1)]
    rough = (scale.high - scale.low) / count
    size = 10.0 ** math.floor(math.log10(rough)) if rough > 0 else 1.0
    step = next(size * m for m in (1, 2, 2.5, 5, 10) if size * m >= rough)
    first = math.ceil(scale.low / step)
    found = [step * i for i in range(first, first + 3 * count) if step * i <= scale.high]
    return [round(value, 12) for value in found]


def _axes(across: Axis, up: Axis, x_words: Words, y_words: Words) -> list[str]:
    bottom = HEIGHT - BOTTOM
    parts = []
    for value in _ticks(up):
        y = up(value)
        parts.append(f'<path class="grid" d="M{LEFT:.0f} {y:.1f}H{WIDTH - RIGHT:.0f}"/>')
        parts.append(
            f'<text class="axis" x="{LEFT - 6:.0f}" y="{y + 4:.1f}" text-anchor="end">'
            f"{escape(y_words(value))}</text>"
        )
    ends = [across.low, across.high] if across.high > across.low else [across.low]
    for value, anchor in zip(ends, ("start", "end"), strict=False):
        parts.append(
            f'<text class="axis" x="{across(value):.1f}" y="{bottom + 20:.0f}" '
            f'text-anchor="{anchor}">{escape(x_words(value))}</text>'
        )
    return parts


def _labels(names: Sequence[str], places: Sequence[float]) -> list[str]:
    """Beside the ends of lines, apart from each other."""
    order = sorted(range(len(names)), key=lambda i: places[i])
    heights = [places[i] for i in order]
    for i in range(1, len(heights)):
        heights[i] = max(heights[i], heights[i - 1] + LINE_OF_TEXT)
    limit = HEIGHT - BOTTOM + 4
    for i in reversed(range(len(heights))):
        heights[i], limit = min(heights[i], limit), min(heights[i], limit) - LINE_OF_TEXT
    x = WIDTH - RIGHT + 6
    return [
        f'<path class="line c{i}" d="M{x:.0f} {y:.1f}h12"/><text class="label" x="{x + 16:.0f}" '
        f'y="{y + 4:.1f}"><title>{escape(names[i])}</title>{escape(short(names[i]))}</text>'
        for i, y in zip(order, heights, strict=True)
    ]


def _strips(places: Sequence[float], about: Sequence[str]) -> list[str]:
    """Invisible, one for each place; their titles are shown under the pointer."""
    edges = [LEFT, *((a + b) / 2 for a, b in pairwise(places)), WIDTH - RIGHT]
    return [
        f'<rect class="strip" x="{a:.1f}" y="{TOP:.0f}" width="{max(b - a, 0):.1f}" '
        f'height="{HEIGHT - TOP - BOTTOM:.0f}"><title>{escape(text)}</title></rect>'
        for (a, b), text in zip(pairwise(edges), about, strict=True)
    ]


def _path(points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points) if points else "M0 0"


def _said(line: Line, i: int, words: Words) -> str:
    said = f"{line.name} {words(line.y[i])}"
    if line.low is not None and line.high is not None and _is(line.low[i]) and _is(line.high[i]):
        said += f" ({words(line.low[i])} to {words(line.high[i])})"
    return said


def _is(value: float) -> bool:
    return math.isfinite(value)
