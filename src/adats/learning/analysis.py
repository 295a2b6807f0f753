"""A log analysed: `analyse` returns as values all that a report shows; `fit` only the prior."""

import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, reduce, wraps
from operator import add
from pathlib import Path
from typing import Any, Literal, NamedTuple, ParamSpec, TypeVar

import numpy as np

from adats.agents.agent import THREADS
from adats.learning import logs
from adats.learning.checks import (
    TASKS,
    Allocation,
    Calibration,
    Drift,
    Outlier,
    allocation,
    calibrate,
    dispersion,
    drift,
    duplicated,
    mistaken,
    outliers,
    swapped,
)
from adats.learning.effects import counted
from adats.learning.fit_common import Fitted, Worth, prior_of_others, worth
from adats.learning.fitting import Structure, StructureScore, check, chosen, compare, estimate
from adats.learning.half_lives import NO_TIMES, ChosenHalfLives, faded_prior, half_lives
from adats.learning.linear import linear_verdict
from adats.learning.log_columns import Plan, planned
from adats.learning.tables import evenly, is_statistics, load_statistics
from adats.learning.verdict import Early, Verdict, adaptive, by_propensity, nothing, verdict
from adats.models.core.errors import InvalidValue
from adats.models.core.summary import SummaryTable, interval
from adats.models.core.types import FloatArray, Rng

POINTS = 200  # tasks in the figure of the prior
LOOKED = 2000  # tasks whose halves say whether pulls follow rewards
STEPS = ("reading", "fitting", "judging", "checking")


class TaskPoints(NamedTuple):
    """Some tasks by themselves and with the prior, for figures: a row a task."""

    prior: FloatArray  # low end, mean and high end of each arm in a new task
    own: FloatArray  # NaN where a task says nothing
    learned: FloatArray


class TaskExample(NamedTuple):
    """One task: pulls and averages of its arms, and what is believed of them."""

    task: Any
    pulls: FloatArray
    own: FloatArray
    belief: FloatArray  # low end, mean and high end


class _Source(NamedTuple):
    """Statistics, and the log that they were counted in, if there is one."""

    table: Any
    log: Plan | None
    dropped: int


@dataclass(frozen=True, eq=False, repr=False)
class Analysis:
    """What a log tells, as values: the prior, whether to share it, and what speaks against it."""

    table: Any
    fitted: Fitted
    structures: tuple[StructureScore, ...]  # compared on held-out tasks; empty where one was given
    verdict: Verdict
    calibration: Calibration | None  # None: no times, or several pulls in a row
    drift: Drift | None
    allocation: Allocation | None
    outliers: tuple[Outlier, ...]
    warnings: tuple[str, ...]
    dropped: int  # bad rows that were left out
    without_names: Any = None  # the prior in which arms are exchangeable, if that is another
    half_lives: ChosenHalfLives | None = None  # if they were asked for
    faded: Any = None  # the prior, if what tasks teach has a half-life

    @property
    def prior(self) -> Any:
        """Ready for `AdaTS`, which goes on learning from new tasks."""
        return self.fitted.meta if self.faded is None else self.faded

    @property
    def structure(self) -> str:
        return str(self.fitted.about["structure"])

    @cached_property
    def worth(self) -> Worth:
        return worth(self.table, self.fitted)

    @cached_property
    def points(self) -> TaskPoints:
        """Of at most two hundred tasks, evenly spaced."""
        some = self.table.subset(evenly(len(self.table), POINTS))
        low, mean, high = interval(self.prior.task_prior()) * self.table.units
        own, learned = some.own() * self.table.units, self.fitted.means(some) * self.table.units
        return TaskPoints(np.array([low, mean, high]), own, learned)

    @cached_property
    def example(self) -> TaskExample | None:
        """The task whose number of pulls is the median."""
        if self.table.arms is None:
            return None
        pulls = self.table.pulls
        i = int(np.argsort(pulls, kind="stable")[len(pulls) // 2])
        prior = prior_of_others(self.table, self.fitted, i)
        stats = self.table.stats(i)
        if self.fitted.stats is not None:
            stats = self.fitted.stats(self.table, i)
        belief = interval(prior.condition(self.prior.empty() + stats).belief)
        one = self.table.subset(np.array([i]))
        return TaskExample(self.table.tasks[i], one.table[0, 0], one.own()[0], belief)

    @cached_property
    def sentence(self) -> str:
        """The verdict in one sentence, with its size."""
        from adats.learning.report import sentence

        return sentence(self.verdict)

    def summary(self) -> SummaryTable:
        """The prior of a new task, under the verdict."""
        summary: SummaryTable = replace(self.prior.summary(), title=self.sentence)
        return summary

    def __repr__(self) -> str:
        return repr(self.summary())

    def _repr_html_(self) -> str:
        return self.summary()._repr_html_()

    def report(self, folder: str | os.PathLike[str], *, command: str | None = None) -> Path:
        """Write report.md and its figures; returns the path of report.md.

        `command` is what the report says it was made by.
        """
        from adats.learning.report import write_report

        return write_report(folder, self, command)


P = ParamSpec("P")
T = TypeVar("T")


def _one_thread(work: Callable[P, T]) -> Callable[P, T]:
    """Matrices of arms are small: threads of linear algebra would wait for each other, for twice
    the time on a busy machine. Where their number was asked for, it stays."""

    @wraps(work)
    def alone(*args: P.args, **kwargs: P.kwargs) -> T:
        if kwargs.get("model") == "linear" or THREADS & os.environ.keys():
            return work(*args, **kwargs)
        try:
            from threadpoolctl import threadpool_limits
        except ImportError:
            return work(*args, **kwargs)
        with threadpool_limits(1):
            return work(*args, **kwargs)

    return alone


@_one_thread
def analyse(
    source: Any,
    *,
    model: str,
    structure: Structure = "auto",
    diagonal: bool = False,
    on_bad: Literal["raise", "drop"] = "raise",
    seed: int = 1,
    half_life: Literal["auto"] | None = None,
    progress: Callable[[str], None] = lambda step: None,  # noqa: ARG005
    **columns: Any,
) -> Analysis:
    """All that a log tells: a prior, its structure, whether to share it, warnings.

    `source` is an Ibis table, a data frame, files of Parquet, CSV or NDJSON, or of statistics that
    were kept. `model` is gaussian, linear, binary or count. `columns` name columns of the log:
    task, arm, reward, time; features of a linear model; pulls, where rewards are their sums (with
    means=True averages), and of numbers squares, their variance; task_features and arm_features;
    batch, such as days or visitors, between which successes should vary no more than by chance.
    Names with "{arm}" in them are for tables with columns for each arm. `structure` is how arms
    belong together; "auto" compares what is possible on held-out tasks. With half_life="auto",
    which needs a column of times, half-lives are chosen that would have predicted better.
    """
    batch = columns.pop("batch", None)
    if half_life not in (None, "auto"):
        raise InvalidValue("half_life", f"must be 'auto', or None for never, got {half_life!r}")
    data = _read(source, model, on_bad, columns)
    table = data.table
    if half_life is not None and not _has_times(data):
        raise InvalidValue("half_life", NO_TIMES)
    check(table, model=model, structure=structure, diagonal=diagonal)
    progress(STEPS[0])
    scores = compare(table, seed=seed) if structure == "auto" else []
    name = chosen(scores) if scores else structure
    found = estimate(table, model=model, diagonal=diagonal, structure=name)
    progress(STEPS[1])
    if table.arms is None:
        judged = linear_verdict(table, found, diagonal=diagonal, seed=seed)
    else:
        judged = _verdict(data, _rng(seed, 5))
    progress(STEPS[2])
    calibrated = _calibration(data, found, seed)
    names = [] if table.arms is None else list(table.names)
    moved = None if calibrated is None else drift(calibrated, names)
    noted = _warnings(data, batch)
    if moved is not None and moved.warning is not None:
        noted += (moved.warning,)
    about = found.about | {"warnings": [*found.warnings, *noted]}
    lives, faded = (None, None) if half_life is None else _half_lives(data, found)
    if lives is not None:
        about |= {
            "half_life": lives.half_life,
            "prior_half_life": lives.prior_half_life,
            "half_life_unit": "seconds",
        }
    result = Analysis(
        table=table,
        fitted=replace(found, about=about),
        structures=tuple(scores),
        verdict=judged,
        calibration=calibrated,
        drift=moved,
        allocation=None if calibrated is None or not names else allocation(calibrated, len(names)),
        outliers=tuple(outliers(table, found)),
        warnings=found.warnings + noted,
        dropped=data.dropped,
        without_names=_without_names(table, model, name),
        half_lives=lives,
        faded=faded,
    )
    progress(STEPS[3])
    return result


@_one_thread
def fit(
    source: Any,
    *,
    model: str,
    structure: Structure = "auto",
    diagonal: bool = False,
    on_bad: Literal["raise", "drop"] = "raise",
    **columns: Any,
) -> Any:
    """The prior that a log tells, ready for `AdaTS`, which goes on learning from new tasks.

    The arguments are those of `analyse`, which says more about the same fit. Do not tell the tasks
    of the log to the agent again: they would count twice. Rows that are no good are an error,
    unless `on_bad` is "drop". What looks like a mistake in the log is a warning.
    """
    batch = columns.pop("batch", None)
    data = _read(source, model, on_bad, columns)
    found = estimate(data.table, model=model, diagonal=diagonal, structure=structure)
    for text in _warnings(data, batch):
        warnings.warn(text, stacklevel=3)
    return found.meta


def _rng(seed: int, key: int) -> Rng:
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(key,)))


def _read(source: Any, model: str, on_bad: Any, columns: dict[str, Any]) -> _Source:
    """The statistics of a log, or those that were kept: of several logs, their sum."""
    if hasattr(source, "to_parts"):  # a table of statistics
        return _Source(source, None, 0)
    paths = [source] if isinstance(source, (str, os.PathLike)) else source
    if isinstance(paths, (list, tuple)) and all(isinstance(p, (str, os.PathLike)) for p in paths):
        kept = [path for path in paths if is_statistics(path)]
        if kept and len(kept) < len(paths):
            raise ValueError(
                f"{kept[0]} has statistics, others are logs: give one kind or the other"
            )
        if kept:
            return _Source(reduce(add, map(load_statistics, kept)), None, 0)
    log = planned(source, model=model, **columns)
    found = logs.statistics(log, on_bad=on_bad)
    return _Source(found.table, log, found.dropped)


def _warnings(data: _Source, batch: str | None) -> tuple[str, ...]:
    """What looks like a mistake in the log, or like visitors who come again."""
    table = data.table
    found = swapped(table)
    counted = table.arms is not None and table.kind.SUMS_TELL
    if batch is not None and not counted:
        raise ValueError(f"a batch is for binary and count models, not for a {table.model} one")
    if data.log is None:
        return found
    found += mistaken(data.log)
    twice = duplicated(data.log, tasks=logs.spread(table.tasks, TASKS))
    found += twice
    if counted and not twice:  # else batches vary for that reason
        parts = logs.batches(data.log, batch=batch)
        text = None if parts is None else dispersion(parts, model=table.model).warning
        found += () if text is None else (text,)
    return found


def _without_names(table: Any, model: str, structure: str) -> Any:
    if table.arms is None or len(table.arms) < 2 or structure == "exchangeable":
        return None
    try:
        return estimate(table, model=model, structure="exchangeable").meta
    except ValueError:
        return None


def _verdict(data: _Source, rng: Rng) -> Verdict:
    """The verdict on arms: with propensities, or after a look at how the log was allocated."""
    table = data.table
    n, s = table.table[:, 0], table.table[:, 1]
    squares = None if table.kind.SUMS_TELL else table.table[:, 2]
    counts = counted(n, s, table.model, squares)
    if data.log is None or table.packed:
        return verdict(counts, rng=rng)
    some = np.sort(rng.permutation(len(table))[:LOOKED])
    tasks = table.subset(some).tasks
    weighted = logs.weighted_cells(data.log, tasks=table.tasks, arms=table.arms)
    if weighted is not None:
        pulls, sums = by_propensity(*weighted)
        if squares is not None:
            squares = squares * pulls / np.maximum(n, 1.0)
        counts = counted(pulls, sums, table.model, squares).lasting(table.pulls)
        return verdict(counts, weighted=True, rng=rng)
    halves = logs.first_halves(data.log, tasks=tasks, arms=table.arms)
    early = None if halves is None else Early(*halves)
    if early is not None and len(tasks) < len(table):
        reason = adaptive(counts.take(some), early, rng)
        if reason:
            return nothing(reason, "cannot tell from this log")
        early = None
    return verdict(counts, early=early, rng=rng)


def _calibration(data: _Source, found: Fitted, seed: int) -> Calibration | None:
    """One step ahead, where there is a log with times, and with a row a pull."""
    table, log = data.table, data.log
    if not _has_times(data):
        return None
    rows = logs.rows(log, tasks=logs.spread(table.tasks, TASKS), arms=table.arms)
    return calibrate(table, found, rows, rng=_rng(seed, 3))


def _has_times(data: _Source) -> bool:
    """Whether there is a log with times, and with a row a pull."""
    table, log = data.table, data.log
    if log is None or "pulls" in log.numbers or not log.times or table.since is None:
        return False
    return table.arms is None or not table.packed


def _half_lives(data: _Source, found: Fitted) -> tuple[ChosenHalfLives, Any]:
    """Half-lives that predict better, and what the log taught if that has one."""
    table, log = data.table, data.log
    rows = logs.rows(log, tasks=logs.spread(table.tasks, TASKS), arms=table.arms)
    lives = half_lives(table, found, rows)
    if lives.prior_half_life is None:
        return lives, None
    last = logs.last_times(log, tasks=table.tasks)
    return lives, faded_prior(table, found, last, lives.prior_half_life)
