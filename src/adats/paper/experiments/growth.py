"""How what the runs measure grows with a size, as a power of it: slopes on logarithmic axes."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from adats import plots
from adats.models.core.types import FloatArray
from adats.paper.experiments.measures import Measure, standard_error


class Growth(NamedTuple):
    """What each run measures at every size, (runs, sizes); its mean is taken for a power."""

    sizes: FloatArray
    values: FloatArray

    def mean(self) -> FloatArray:
        mean: FloatArray = self.values.mean(axis=0)
        return mean

    def curve(self) -> plots.Curve:
        return plots.Curve.of_runs(self.values)

    def influence(self) -> FloatArray:
        """Of each run on the slope; the mean of the runs is the slope itself.

        The slope is least squares on logarithms, Σ w_i log(mean_i); to first order a run moves it
        by Σ w_i (value_i - mean_i) / mean_i (delta method). Where a mean is not positive there is
        no slope, and all are NaN.
        """
        centred = np.log(self.sizes) - np.log(self.sizes).mean()
        weights = centred / (centred @ centred)
        mean = np.where(self.mean() > 0, self.mean(), np.nan)
        slope = float(weights @ np.log(mean))
        moved: FloatArray = slope + (self.values / mean - 1) @ weights
        return moved

    def slope(self) -> tuple[float, float]:
        """With its standard error."""
        influence = self.influence()
        return float(influence.mean()), standard_error(influence)

    def measure(self, where: str, what: str, *, high: float) -> Measure:
        """The slope is at most `high`."""
        value, se = self.slope()
        freedom = len(self.values) - 1
        return Measure(where, what, _figure(value, se), value, se, high=high, freedom=freedom)


def steeper(one: Growth, two: Growth, where: str, what: str) -> Measure:
    """The slope of one is above that of another over the same runs."""
    gap = one.influence() - two.influence()
    value, se = float(gap.mean()), standard_error(gap)
    return Measure(where, what, _figure(value, se), value, se, low=0.0, freedom=gap.size - 1)


def _figure(value: float, se: float) -> str:
    return f"{value:.3f} ± {se:.3f}"


def slopes_note(growths: Mapping[str, Growth]) -> str:
    """The slopes of several, by what they are called."""
    found = {name: growth.slope() for name, growth in growths.items()}
    return "slopes: " + ", ".join(
        f"{n}\u00a0{value:.2f} ± {se:.2f}" for n, (value, se) in found.items()
    )


def log_log_figure(
    charts: Sequence[plots.Chart], across: Sequence[str], *, label: str
) -> "plots.Figure":
    """Charts on logarithmic axes; `across` is what each has along x."""
    figure = plots.regret_figure(charts, columns=2, label=label)
    for axes, chart, name in zip(figure.axes, charts, across, strict=True):
        axes.set_xscale("log")
        axes.set_xlim(chart.x[0] / 1.1, chart.x[-1] * 1.1)
        means = np.concatenate([curve.mean for curve in chart.curves.values()])
        low, high = means[means > 0].min(), means.max()
        axes.set_ylim(low / 1.5, high * 1.5)
        plots.log_ticks(axes, _ticks(low / 1.5, high * 1.5))
        axes.set_xticks(chart.x, [f"{x:g}" for x in chart.x])
        axes.set_xticks([], minor=True)
        axes.set_xlabel(name)
    return figure


def _ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 times powers of ten; powers alone over a long range."""
    steps = (1, 2, 5) if high / low < 1000 else (1,)
    powers = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
    ticks = [step * 10.0**power for power in powers for step in steps]
    return [tick for tick in ticks if low <= tick <= high]
