"""What the reports measure, with standard errors, and how a measure is judged.

Agents of one run meet the same instances, and panels of one experiment share their seeds, so runs
are paired, and every standard error here is of the paired difference or ratio.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import inf
from typing import Literal

import numpy as np

from adats.models.core.types import FloatArray, IntArray
from adats.paper.experiments.panels import Outcome
from adats.simulation.learners import label_of

Verdict = Literal["holds", "partly", "does not hold"]  # of a claim
Judgement = Literal["holds", "undecided", "does not hold"]  # of one of its measures
MAJOR = 1.5  # a ratio of regrets that counts as a major difference
CLOSE = 1.25  # one that counts as none where σ_0 is to be learned
TAIL = 0.99
RESAMPLES = 400


@dataclass(frozen=True)
class Measure:
    """A measured value, its standard error, and the range in which the claim holds."""

    where: str
    what: str
    figure: str
    value: float
    se: float
    low: float = -inf
    high: float = inf

    @property
    def judgement(self) -> Judgement:
        """In the range it holds; more than two standard errors from the range it does not."""
        if self.low <= self.value <= self.high:
            return "holds"
        outside = max(self.low - self.value, self.value - self.high)
        return "undecided" if outside <= 2 * self.se else "does not hold"


Measures = Callable[[Sequence[Outcome]], Iterator[Measure]]


def overall(measures: Sequence[Measure]) -> Verdict:
    """A claim holds, or does not, where all its measures say so."""
    judgements = {measure.judgement for measure in measures}
    if judgements == {"holds"}:
        return "holds"
    return "does not hold" if judgements == {"does not hold"} else "partly"


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
    """The regret of one agent is lower than another's, by z >= 2."""
    return lambda outcomes: (_lower(o, agent, than) for o in outcomes)


def lowest(agent: str) -> Measures:
    """The regret of one agent is lower than that of the best other, by z >= 2."""

    def best_other(o: Outcome) -> str:
        return min((name for name in o.panel.agents if name != agent), key=o.result.mean)

    return lambda outcomes: (_lower(o, agent, best_other(o)) for o in outcomes)


def beside(o: Outcome, other: Outcome, agent: str, than: str) -> Measure:
    """The regret of an agent is lower than in another outcome of the same runs, by z >= 2.

    `than` is what the agent there is called.
    """
    what = f"{label_of(agent)} below {than}"
    return _below(o, what, o.total(agent), other.total(agent))


def _lower(o: Outcome, agent: str, than: str) -> Measure:
    what = f"{label_of(agent)} below {label_of(than)}"
    return _below(o, what, o.total(agent), o.total(than))


def _below(o: Outcome, what: str, totals: FloatArray, others: FloatArray) -> Measure:
    share, se = ratio(totals, others)
    z = z_score(others - totals)
    return Measure(o.panel.label, what, f"{_percent(1 - share, se)}, z = {z:.1f}", z, 1.0, low=2.0)


def less_by(agent: str, than: str, *, low: float, high: float, **settings: object) -> Measures:
    """The regret of one agent is lower than another's by a share from `low` to `high`."""

    def measure(outcomes: Sequence[Outcome]) -> Iterator[Measure]:
        what = f"{label_of(agent)} below {label_of(than)}"
        for o in _picked(outcomes, settings):
            share, se = ratio(o.total(agent), o.total(than))
            place = f"{o.panel.title}; {o.panel.note}"
            yield Measure(place, what, _percent(1 - share, se), 1 - share, se, low, high)

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
            value, se = ratio(o.total(agent, since), o.total(of, since))
            what = f"{label_of(agent)} / {label_of(of)}"
            what += f", tasks {since + 1} to {o.panel.tasks}" if late else ""
            yield Measure(o.panel.label, what, f"{value:.2f} ± {se:.2f}", value, se, low, high)

    return measure


def widened(agent: str, *, before: float, after: float) -> Measures:
    """A wider meta-prior alone makes an agent's regret at least `MAJOR` times as large."""

    def measure(outcomes: Sequence[Outcome]) -> Iterator[Measure]:
        for one in _picked(outcomes, {"meta_scale": before}):
            for two in _picked(outcomes, {**one.result.problem, "meta_scale": after}):
                if two.panel.explore_first == one.panel.explore_first:
                    value, se = ratio(two.total(agent), one.total(agent))
                    what = f"{label_of(agent)} / the same at σ_q = {before:g}"
                    figure = f"{value:.2f} ± {se:.2f}"
                    yield Measure(two.panel.label, what, figure, value, se, low=MAJOR)

    return measure


def steady(*agents: str) -> Measures:
    """A task's regret does not change with its number: the slope has |z| <= 3."""

    def measure(outcomes: Sequence[Outcome]) -> Iterator[Measure]:
        for o in outcomes:
            for agent in agents:
                z = z_score(slope(o.result.regret[o.result.agents.index(agent)]))
                what = f"slope of {label_of(agent)} over tasks"
                yield Measure(o.panel.label, what, f"z = {z:+.1f}", z, 1.0, -3.0, 3.0)

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
