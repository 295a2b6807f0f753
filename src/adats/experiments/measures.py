"""What the reports measure, with standard errors, and how a measure is judged.

Agents of one run meet the same instances, and panels of one experiment share their seeds, so runs
are paired, and every standard error here is of the paired difference or ratio.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Literal

import numpy as np

from adats.experiments.panels import Outcome
from adats.types import FloatArray

Verdict = Literal["holds", "partly", "does not hold"]
MAJOR = 1.5  # a ratio of regrets that counts as a major difference


@dataclass(frozen=True)
class Measure:
    """A measured value, its standard error, and the range in which the claim holds."""

    where: str
    text: str
    value: float
    se: float
    low: float = -inf
    high: float = inf

    @property
    def verdict(self) -> Verdict:
        """In the range it holds; two standard errors from the range it does not."""
        if self.low <= self.value <= self.high:
            return "holds"
        outside = max(self.low - self.value, self.value - self.high)
        return "partly" if outside <= 2 * self.se else "does not hold"


Measures = Callable[[Sequence[Outcome]], list[Measure]]


def overall(measures: Sequence[Measure]) -> Verdict:
    """One verdict for a claim: what all its measures say, or else partly."""
    verdicts = {measure.verdict for measure in measures}
    return verdicts.pop() if len(verdicts) == 1 else "partly"


def ratio(a: FloatArray, b: FloatArray) -> tuple[float, float]:
    """Ratio of two means over the same runs, and its standard error (delta method)."""
    value = a.mean() / b.mean()
    return float(value), standard_error((a - value * b) / b.mean())


def standard_error(values: FloatArray) -> float:
    return float(values.std(ddof=1) / np.sqrt(values.size))


def z_score(values: FloatArray) -> float:
    """Mean over its standard error; zero for values that are all zero."""
    se = standard_error(values)
    return float(values.mean() / se) if se > 0 else float(np.sign(values.mean())) * inf or 0.0


def slope(per_task: FloatArray) -> FloatArray:
    """Least-squares slope of the regret over the task number, one a run."""
    tasks = per_task.shape[1]
    centred = np.arange(tasks) - (tasks - 1) / 2
    slopes: FloatArray = per_task @ centred / max(float(centred @ centred), 1.0)
    return slopes


def where(**settings: object) -> Callable[[Outcome], bool]:
    """Picks the outcomes whose problem has these settings."""
    return lambda o: all(o.result.problem.get(key) == value for key, value in settings.items())


def everywhere(outcome: Outcome) -> bool:  # noqa: ARG001
    return True


def lower(agent: str, than: str) -> Measures:
    """The regret of one agent is lower than another's, by z >= 2."""

    def measure(outcomes: Sequence[Outcome]) -> list[Measure]:
        found = []
        for o in outcomes:
            share, se = ratio(o.total(agent), o.total(than))
            z = z_score(o.total(than) - o.total(agent))
            text = f"{_less(1 - share)} ± {100 * se:.1f}, z = {z:.1f}"
            found.append(Measure(o.panel.label, text, z, 1.0, low=2.0))
        return found

    return measure


def _less(share: float) -> str:
    return f"{100 * abs(share):.1f} % {'lower' if share >= 0 else 'higher'}"


def less_by(
    agent: str, than: str, low: float, high: float, picked: Callable[[Outcome], bool] = everywhere
) -> Measures:
    """The regret of one agent is lower than another's by a share between `low` and `high`."""

    def measure(outcomes: Sequence[Outcome]) -> list[Measure]:
        found = []
        for o in filter(picked, outcomes):
            share, se = ratio(o.total(agent), o.total(than))
            text = f"{_less(1 - share)} ± {100 * se:.1f}"
            found.append(Measure(f"{o.panel.title}; {o.panel.note}", text, 1 - share, se, low, high))
        return found

    return measure


def times(
    agent: str,
    of: str,
    *,
    low: float = -inf,
    high: float = inf,
    late: bool = False,
    picked: Callable[[Outcome], bool] = everywhere,
) -> Measures:
    """The ratio of two agents' regrets; with `late`, also over the second half of the tasks."""

    def measure(outcomes: Sequence[Outcome]) -> list[Measure]:
        found = []
        for o in filter(picked, outcomes):
            half = o.panel.tasks // 2
            for since in (0, half) if late and half else (0,):
                value, se = ratio(o.total(agent, since), o.total(of, since))
                tasks = f" in tasks {since + 1} to {o.panel.tasks}" if late else ""
                text = f"{value:.2f} ± {se:.2f} times{tasks}"
                found.append(Measure(o.panel.label, text, value, se, low, high))
        return found

    return measure


def grows(agent: str, setting: str, before: float, after: float, low: float) -> Measures:
    """The ratio of an agent's regrets in panels that differ in one setting alone."""

    def measure(outcomes: Sequence[Outcome]) -> list[Measure]:
        found = []
        for one in filter(where(**{setting: before}), outcomes):
            like = {**one.result.problem, setting: after}
            for two in filter(where(**like), outcomes):
                if two.panel.explore_first == one.panel.explore_first:
                    value, se = ratio(two.total(agent), one.total(agent))
                    text = f"{value:.2f} ± {se:.2f} times"
                    label = f"{one.panel.label} → {two.panel.label}"
                    found.append(Measure(label, text, value, se, low=low))
        return found

    return measure


def steady(*agents: str) -> Measures:
    """The regret of a task does not change with its number: |z| of the slope is at most 3."""

    def measure(outcomes: Sequence[Outcome]) -> list[Measure]:
        found = []
        for o in outcomes:
            for agent in agents:
                per_task = o.result.regret[o.result.agents.index(agent)]
                z = z_score(slope(per_task))
                text = f"{agent}: z = {z:+.1f}"
                found.append(Measure(o.panel.label, text, z, 1.0, -3.0, 3.0))
        return found

    return measure


def both(*parts: Measures) -> Measures:
    """The measures of several parts of a claim."""
    return lambda outcomes: [measure for part in parts for measure in part(outcomes)]
