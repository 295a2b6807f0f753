"""What the reports measure, with standard errors, and how a measure is judged.

Agents of one run meet the same instances, and panels of one experiment share their seeds, so runs
are paired, and every standard error here is of the paired difference or ratio.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import inf, isfinite, isinf
from typing import Literal

import numpy as np
from scipy.special import stdtr

from adats.models.core.types import FloatArray, IntArray
from adats.paper.experiments.panels import Outcome
from adats.simulation.learners import label_of

Verdict = Literal["holds", "does not hold", "undecided"]  # of a measure, and of a claim
LEVEL = 0.05  # the chance, at most, that any verdict of a report is wrong
MAJOR = 1.5  # a ratio of regrets that counts as a major difference
CLOSE = 1.25  # one that counts as none where σ_0 is to be learned
STEADY = 0.1  # a change over all tasks, as a share of a task's regret, that counts as none
TAIL = 0.99
RESAMPLES = 400


@dataclass(frozen=True)
class Measure:
    """A measured value, its standard error, and the range in which the claim holds.

    `freedom` is that of Student's t: the runs less one.
    """

    where: str
    what: str
    figure: str
    value: float
    se: float
    low: float = -inf
    high: float = inf
    freedom: float = inf

    def p_outside(self) -> float:
        """How likely a value so far inside the range would be, were the true one outside."""
        return max(self._p(self.value, self.low), self._p(self.high, self.value))

    def p_inside(self) -> float:
        """How likely a value so far outside the range would be, were the true one inside."""
        sides = 1 + (isfinite(self.low) and isfinite(self.high))
        return min(1.0, sides * min(self._p(self.low, self.value), self._p(self.value, self.high)))

    def _p(self, above: float, below: float) -> float:
        """That one is so far above the other by chance."""
        if self.se == 0 or isinf(above) or isinf(below):
            return 0.0 if above >= below else 1.0
        return float(stdtr(self.freedom, (below - above) / self.se))

    def verdict(self, level: float, among: int = 1) -> Verdict:
        """By a test at this level; of `among` measures none may fail by chance."""
        if self.p_outside() <= level:
            return "holds"
        return "does not hold" if self.p_inside() <= level / among else "undecided"


Measures = Callable[[Sequence[Outcome]], Iterator[Measure]]


def standard_error(values: FloatArray) -> float:
    return float(values.std(ddof=1) / np.sqrt(values.size))


def ratio(a: FloatArray, b: FloatArray) -> tuple[float, float]:
    """Ratio of two means over the same runs, and its standard error (delta method)."""
    if b.mean() == 0:
        return (1.0 if a.mean() == 0 else inf), inf
    value = float(a.mean() / b.mean())
    return value, standard_error((a - value * b) / b.mean())


def z_score(values: FloatArray) -> float:
    """Mean over its standard error."""
    mean, se = float(values.mean()), standard_error(values)
    return mean / se if se > 0 else 0.0 if mean == 0 else inf * np.sign(mean)


def tail(totals: FloatArray) -> float:
    return float(np.quantile(totals, TAIL))


def resampled(runs: int) -> IntArray:
    """Runs drawn with replacement, one row a resample."""
    return np.random.default_rng(0).integers(runs, size=(RESAMPLES, runs))


def tail_ratio(a: FloatArray, b: FloatArray) -> tuple[float, float]:
    """Ratio of two tails over the same runs, and its standard error by the bootstrap."""
    found = [tail(a[some]) / tail(b[some]) for some in resampled(a.size)]
    return tail(a) / tail(b), float(np.std(found, ddof=1))


def slope(per_task: FloatArray) -> FloatArray:
    """Least-squares slope of a task's regret over its number, one a run."""
    tasks = per_task.shape[1]
    centred = np.arange(tasks) - (tasks - 1) / 2
    slopes: FloatArray = per_task @ centred / max(float(centred @ centred), 1.0)
    return slopes


def lower(agent: str, than: str) -> Measures:
    """The regret of one agent is lower than another's."""
    return lambda outcomes: (_lower(o, agent, than) for o in outcomes)


def lowest(agent: str) -> Measures:
    """The regret of one agent is lower than that of every other."""
    return lambda outcomes: (
        _lower(o, agent, other) for o in outcomes for other in o.panel.agents if other != agent
    )


def beside(o: Outcome, other: Outcome, agent: str, than: str) -> Measure:
    """The regret of an agent is lower than in another outcome of the same runs.

    `than` is what the agent there is called.
    """
    what = f"{label_of(agent)} below {than}"
    return _below(o, what, o.total(agent), other.total(agent))


def _lower(o: Outcome, agent: str, than: str) -> Measure:
    what = f"{label_of(agent)} below {label_of(than)}"
    return _below(o, what, o.total(agent), o.total(than))


def _below(o: Outcome, what: str, totals: FloatArray, others: FloatArray) -> Measure:
    share, se = ratio(totals, others)
    return difference(o, what, _percent(1 - share, se), others - totals)


def difference(o: Outcome, what: str, figure: str, values: FloatArray) -> Measure:
    """The mean of what the runs have is above 0."""
    z = z_score(values)
    return Measure(
        o.panel.label, what, f"{figure}, z = {z:+.1f}", z, 1.0, low=0.0, freedom=values.size - 1
    )


def quotient(
    o: Outcome, what: str, a: FloatArray, b: FloatArray, *, low: float = -inf, high: float = inf
) -> Measure:
    """The ratio of two means over the runs is from `low` to `high`."""
    value, se = ratio(a, b)
    figure = f"{value:.3f} ± {se:.3f}"
    return Measure(o.panel.label, what, figure, value, se, low, high, freedom=a.size - 1)


def less_by(agent: str, than: str, *, low: float, high: float, **settings: object) -> Measures:
    """The regret of one agent is lower than another's by a share from `low` to `high`."""

    def measure(outcomes: Sequence[Outcome]) -> Iterator[Measure]:
        what = f"{label_of(agent)} below {label_of(than)}"
        for o in _picked(outcomes, settings):
            share, se = ratio(o.total(agent), o.total(than))
            figure, freedom = _percent(1 - share, se), o.result.runs - 1
            yield Measure(o.panel.label, what, figure, 1 - share, se, low, high, freedom)

    return measure


def times(
    agent: str, of: str, *, low: float = -inf, high: float = inf, **settings: object
) -> Measures:
    """The ratio of two agents' regrets is from `low` to `high`."""
    return _times(agent, of, False, low, high, settings)


def comparable(agent: str, to: str, *, late: bool = True, **settings: object) -> Measures:
    """One regret is at most `MAJOR` times the other; `late`: also in the second half of tasks."""
    parts = [_times(agent, to, half, -inf, MAJOR, settings) for half in (False, True)[: 1 + late]]
    return all_of(*parts)


def _times(
    agent: str, of: str, late: bool, low: float, high: float, settings: dict[str, object]
) -> Measures:
    def measure(outcomes: Sequence[Outcome]) -> Iterator[Measure]:
        for o in _picked(outcomes, settings):
            since = o.panel.tasks // 2 if late else 0
            what = f"{label_of(agent)} / {label_of(of)}"
            what += f", tasks {since + 1} to {o.panel.tasks}" if late else ""
            yield quotient(o, what, o.total(agent, since), o.total(of, since), low=low, high=high)

    return measure


def widened(agent: str, *, before: float, after: float) -> Measures:
    """A wider meta-prior alone makes an agent's regret at least `MAJOR` times as large."""

    def measure(outcomes: Sequence[Outcome]) -> Iterator[Measure]:
        for one in _picked(outcomes, {"meta_scale": before}):
            for two in _picked(outcomes, {**one.result.problem, "meta_scale": after}):
                if two.panel.explore_first == one.panel.explore_first:
                    what = f"{label_of(agent)} / the same at σ_q = {before:g}"
                    yield quotient(two, what, two.total(agent), one.total(agent), low=MAJOR)

    return measure


def steady(*agents: str) -> Measures:
    """A task's regret does not change with its number: by at most `STEADY` over all tasks, as the
    mean of all panels, whose runs are paired."""

    def measure(outcomes: Sequence[Outcome]) -> Iterator[Measure]:
        for agent in agents:
            parts = []  # what each run says of the change
            for o in outcomes:
                regret = o.result.regret[o.result.agents.index(agent)]
                rise, lost = slope(regret) * (o.panel.tasks - 1), regret.mean(axis=1)
                mean = lost.mean() or 1.0  # nothing lost does not change
                change = rise.mean() / mean
                parts.append(change + (rise - change * lost) / mean)  # (delta method)
            each = np.mean(parts, axis=0)
            value, se = float(each.mean()), standard_error(each)
            yield Measure(
                "mean of all panels", f"{label_of(agent)}, first task to last",
                _percent(-value, se), value, se, -STEADY, STEADY, each.size - 1,
            )  # fmt: skip

    return measure


def all_of(*parts: Measures) -> Measures:
    """The measures of all parts of a claim."""
    return lambda outcomes: (measure for part in parts for measure in part(outcomes))


def _picked(outcomes: Sequence[Outcome], settings: dict[str, object]) -> Iterator[Outcome]:
    """The outcomes whose problem has these settings."""
    for outcome in outcomes:
        if all(outcome.result.problem.get(key) == value for key, value in settings.items()):
            yield outcome


def _percent(share: float, se: float) -> str:
    return f"{100 * abs(share):.1f} ± {100 * se:.1f} % {'lower' if share >= 0 else 'higher'}"
