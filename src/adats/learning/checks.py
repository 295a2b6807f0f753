"""What speaks against a log, and against what a fit predicts.

Of the log: swapped columns, rows that are in it twice, visitors who come again. Of predictions:
calibration, drift over time, and tasks that look unlike the rest. There each reward is predicted
from those before it in its task and the prior of the other tasks. The probability that the
prediction gave to a smaller reward is uniform if all is right, also in a log that a bandit wrote:
the choice of an action depends on the past alone, which is given here.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from scipy.special import gammaincc, kolmogorov, stdtr

from adats.learning.fit_common import Fitted, prior_of_others
from adats.learning.linear import as_rows
from adats.learning.log_columns import Plan, fetch, ibis, planned
from adats.learning.logs import PROPENSITY, Batches, as_written
from adats.learning.tables import KINDS, ArmTable, LinearTable, Table, evenly
from adats.models.core.product import ProductArms
from adats.models.core.types import FloatArray, IntArray, Rng, Task

SHARE = 0.01  # of rows that are in the log twice, where their times tell them apart
GROUPS = 20  # different rows, below which nothing is said
LIMIT = 100_000  # different rows that are looked at
HOUR = 3600.0
DATES = 19_000_101, 22_001_231  # as numbers
MILLISECONDS = 1e11  # since 1970: as seconds it is the year 5138
COUNT = "times in the log"
DECISION = "decision_id"
UNEVEN = 0.003  # nominal; in simulations at most 1 in 100 logs without such variation is warned of
LEAST = 1.1  # a factor below which nobody need care
EXPECTED = 2.0  # successes and failures of a batch; smaller ones are joined with their neighbours
TASKS = 200  # looked at, at most
ROWS = 100  # of each task, its first ones
FINE = 0.03  # a distance from uniform that nobody need care about
FAR = 0.1
LEVEL = 0.01  # chance above which a distance may be an accident
TILT = 0.02  # of the mean from one half
TENSE = 0.05  # of the spread, relative
DRIFT_LEVEL = 0.01  # size of the test: of the logs that do not move, one in a hundred is warned of
FEWEST_TASKS = 10  # tasks
BINS = 12  # of time, in figures
UNLIKE = 0.05  # chance that any task at all is flagged, where all are alike
CLOSE = 50  # so many tasks are looked at closely: their own part is taken out of the prior
CHUNK = 4096


def mistaken(log: Any, **columns: Any) -> tuple[str, ...]:
    """Warnings of columns whose numbers are legal, and look like something else."""
    use, looks = planned(log, **columns), dict[str, Any]()
    chance = use.log[PROPENSITY] if PROPENSITY in use.log.columns else None
    more = (
        {}
        if chance is None
        else {"chance": chance.try_cast("float64"), "chance_text": chance.cast("string")}
    )
    rows = use.select(**more)
    rows = rows.filter(rows.good)
    if chance is not None:
        wrong = rows.chance_text.notnull() & ~_between_0_and_1(rows.chance)
        looks |= {
            "rows": rows.count(),
            "wrong": wrong.cast("int64").sum(),
            "none": rows.chance_text.isnull().cast("int64").sum(),
            "such": rows.chance_text.min(where=wrong),
        }
    if "pulls" in use.numbers and use.model == "binary" and not use.averages:
        several = rows.pulls > 2.0
        looks |= {
            "several": several.cast("int64").sum(),
            "parts": (several & (rows.y != rows.y.floor())).cast("int64").sum(),
            "most": rows.y.max(where=several),
        }
    if "seconds" in use.times:
        looks |= {"first": rows.seconds.min(), "last": rows.seconds.max()}
    if not looks:
        return ()
    found = {name: column[0] for name, column in fetch(rows.aggregate(**looks)).to_pydict().items()}
    return tuple(filter(None, (_propensities(found), _rates(use, found), _odd_times(use, found))))


def _between_0_and_1(chance: Any) -> Any:
    return ibis().coalesce((chance > 0.0) & (chance <= 1.0), False)


def _propensities(found: dict[str, Any]) -> str | None:
    wrong, none = found.get("wrong") or 0, found.get("none") or 0
    if wrong:
        why = f"in {wrong:,} of {found['rows']:,} rows it is not, for example {found['such']!r}"
    elif 0 < none < found["rows"]:
        why = f"{none:,} of {found['rows']:,} rows have none"
    else:
        return None
    return f"propensities are not used: each must be more than 0 and at most 1, and {why}"


def _rates(use: Plan, found: dict[str, Any]) -> str | None:
    if not found.get("parts") or found["most"] > 1.0:
        return None
    reward, pulls = use.numbers["y"].name, use.numbers["pulls"].name
    return (
        f"in {found['parts']:,} of {found['several']:,} rows with several {pulls!r}, {reward!r} is "
        "a fraction, and never above 1: are these rates? They were taken for sums; for rates say "
        "means=True, --means"
    )


def _odd_times(use: Plan, found: dict[str, Any]) -> str | None:
    first, last = found.get("first"), found.get("last")
    if first is None or last is None:
        return None
    if DATES[0] <= first <= last <= DATES[1]:
        return (
            f"column {use.time!r} has numbers from {first:.0f} to {last:.0f}: are these dates? "
            "They were taken for seconds; write 2026-02-13"
        )
    if first >= MILLISECONDS:
        return (
            f"column {use.time!r} has numbers from {first:.0f} on: are these milliseconds, or "
            "less? They were taken for seconds"
        )
    return None


def swapped(table: Any) -> tuple[str, ...]:
    """A warning where tasks look like arms and arms like tasks."""
    if table.arms is None or len(table.arms) <= max(2 * len(table), 10):
        return ()
    if np.median((table.table[:, 0] > 0).sum(axis=0)) < 2:
        return ()
    return (
        f"the log has {len(table):,} tasks and {len(table.arms):,} arms: are the columns of tasks "
        f"and arms swapped? The first of each are {table.tasks[0]!r} and {table.arms[0]!r}",
    )


def duplicated(log: Any, *, tasks: Sequence[Task], **columns: Any) -> tuple[str, ...]:
    """A warning where rows of some tasks are in the log twice.

    Rows of one decision and arm are the same row. Without decisions: where times tell rows of a
    task apart (or where rows are sums, and each task and arm has one of them at a time), rows that
    are alike in all columns are; and where they do not, if nearly all different rows come an even
    number of times.
    """
    use = planned(log, **columns)
    keys = {name: column.name for name, column in use.keys.items()}
    some = use.log.filter(use.keys["task"].value.isin(as_written(use, tasks)))
    if DECISION in use.log.columns:
        names = list(dict.fromkeys([*keys.values(), DECISION]))
        some = some.filter(some[DECISION].notnull())
        if use.stats is None:  # a decision has several rows if it is a set of arms
            names += [column.name for column in use.numbers.values() if column.name not in names]
        found = _groups(some, names)
        again = float(found[COUNT].to_numpy().sum()) - len(found)
        if again:
            return (_text(again, found, f"share their {DECISION} and arm with another"),)
        return ()
    found = _groups(some, list(use.log.columns))
    n = found[COUNT].to_numpy().astype(np.float64)
    again = float(n.sum()) - n.size
    if n.size < GROUPS or not again:
        return ()
    tell = _sums_tell if "pulls" in use.numbers else _times_tell
    if np.mean(n % 2 == 1) <= SHARE or (again > SHARE * n.sum() and tell(use, found, keys)):
        return (_text(again, found, "are in it once more"),)
    return ()


def _groups(rows: Any, names: list[str]) -> Any:
    """Different rows, and how often each is there."""
    values = {f"c{i}": rows[name].cast("string") for i, name in enumerate(names)}
    grouped = rows.select(**values).group_by(list(values)).aggregate(**{COUNT: ibis()._.count()})
    return fetch(grouped.limit(LIMIT)).rename_columns([*names, COUNT])


def _times_tell(use: Plan, found: Any, keys: dict[str, str]) -> bool:
    """Whether different rows of a task have different times, which are not whole hours."""
    if use.time is None:
        return False
    times = found[use.time].to_pylist()
    pairs = set(zip(found[keys["task"]].to_pylist(), times, strict=True))
    return len(pairs) > (1 - SHARE) * len(found) and not _whole_hours(times)


def _sums_tell(use: Plan, found: Any, keys: dict[str, str]) -> bool:
    """Whether different sums are of different tasks, arms and times; and, where there are no
    times, are so many numbers that two batches are hardly ever alike."""
    names = [*keys.values(), *([] if use.time is None else [use.time])]
    cells = len(set(zip(*(found[name].to_pylist() for name in names), strict=True)))
    numbers = [use.numbers[name].name for name in ("pulls", "y")]
    sums = len(set(zip(*(found[name].to_pylist() for name in numbers), strict=True)))
    apart = cells > (1 - SHARE) * len(found)
    return apart and (use.time is not None or sums > len(found) / 2)


def _whole_hours(times: list[Any]) -> bool:
    def seconds(text: Any) -> float:
        try:
            return float(text)
        except (TypeError, ValueError):
            pass
        try:
            clock = np.datetime64(str(text)[:26].rstrip("Z")).astype("datetime64[s]")
            return float(clock.astype(np.int64))
        except ValueError:
            return 0.5

    known: FloatArray = np.array([seconds(time) for time in times[:1000] if time is not None])
    return bool((known % HOUR == 0).all())


def _text(again: float, found: Any, how: str) -> str:
    n = found[COUNT].to_numpy()
    row = {k: v[0] for k, v in found.slice(int(n.argmax()), 1).to_pydict().items() if k != COUNT}
    return (
        f"of {n.sum():,.0f} rows that were looked at, {again:,.0f} {how}: is the log duplicated? "
        f"They count twice; for example {row}"
    )


# Do successes of one task and arm vary from batch to batch more than chance allows? They do where
# visitors come again and do the same again, or where rates change with time. A belief takes every
# pull for new evidence then, and is too sure.


class Dispersion(NamedTuple):
    """Variance of successes over the batches of a task and arm."""

    factor: float  # over that of a binomial, or of a Poisson for counts
    degrees: float  # of freedom; 0 where there is nothing to compare
    chance: float  # of such a factor or a larger one where all is right

    @property
    def warning(self) -> str | None:
        """What to tell the user, if anything."""
        if self.chance >= UNEVEN or self.factor < LEAST:
            return None
        return (
            f"from batch to batch the successes of one task and arm vary {self.factor:.2g} times "
            f"as much as chance allows (variance, {self.degrees:,.0f} degrees of freedom): the "
            "same visitors may come again, or rates change with time; beliefs will be too sure, "
            f"their intervals too narrow by a factor of {math.sqrt(self.factor):.2g}; count a "
            f"visitor once, or divide pulls and successes by {self.factor:.2g}"
        )


def dispersion(batches: Batches, *, model: str) -> Dispersion:
    """A chi-square over the batches of every task and arm, given its pulls and its successes.

    Its mean and variance are exact: those of successes that are dealt to the pulls at random. Its
    tail is that of a gamma distribution with this mean and variance.
    """
    if not batches.cell.size:
        return Dispersion(1.0, 0.0, 1.0)
    cell, n, s = _joined(batches, model)
    binary = KINDS[model].MOST == 1.0
    pulls, wins, count, inverse = _sums(cell, n, s, np.ones(n.size), 1.0 / n)
    misses = pulls - wins if binary else pulls
    informative = (count > 1) & (np.minimum(wins, misses) > 0)
    if not informative.any():
        return Dispersion(1.0, 0.0, 1.0)
    kept = informative[cell]
    cell, n, s = np.unique(cell[kept], return_inverse=True)[1], n[kept], s[kept]
    pulls, wins, misses, count, inverse = (
        part[informative] for part in (pulls, wins, misses, count, inverse)
    )
    expected = n * (wins / pulls)[cell]
    within = expected * (misses / pulls)[cell]
    squares = float(((s - expected) ** 2 / within).sum())
    if binary:  # Haldane (1940), Dawson (1954)
        mean = (count - 1) * pulls / (pulls - 1)
        own = (pulls * inverse - count**2) / (pulls - 2)
        two = (pulls * (1 / wins + 1 / misses) - 4) / (pulls - 2)
        most = (count - 1) * (pulls - count) / (pulls - 1) - own
        variance = 2 * pulls / (pulls - 3) * most * ((pulls - 2) / (pulls - 1) - two)
        variance += pulls**2 / (pulls - 1) * own * two
    else:
        mean = count - 1
        variance = 2 * mean + (pulls * inverse - count**2 - 2 * mean) / wins
    total, spread = float(mean.sum()), float(variance.sum())
    chance = float(gammaincc(total**2 / spread, squares * total / spread)) if spread > 0 else 1.0
    return Dispersion(squares / total, total, chance)


def _sums(cell: IntArray, *values: FloatArray) -> list[FloatArray]:
    return [np.bincount(cell, value).astype(np.float64) for value in values]


def _joined(batches: Batches, model: str) -> Batches:
    """Batches of one cell joined until they expect enough successes and failures each."""
    cell = np.unique(batches.cell, return_inverse=True)[1]
    n, s = batches.pulls, batches.successes
    pulls, wins = _sums(cell, n, s)
    rare = np.minimum(wins, pulls - wins) if KINDS[model].MOST == 1.0 else wins
    parts = np.maximum(np.floor(rare / EXPECTED), 1.0)
    first = np.append(True, cell[1:] != cell[:-1])
    before = np.cumsum(n) - n
    middle = before - np.maximum.accumulate(np.where(first, before, 0.0)) + n / 2
    part = np.minimum(np.floor(middle / pulls[cell] * parts[cell]), parts[cell] - 1)
    new = first | np.append(True, part[1:] != part[:-1])
    place = np.cumsum(new) - 1
    return Batches(cell[new], *_sums(place, n, s))


# Are predictions right?


@dataclass(frozen=True, eq=False)
class Calibration:
    """Probability integral transforms of rewards, one step ahead."""

    values: FloatArray  # uniform between 0 and 1 if all is right
    tasks: int
    # of each value: the place of its task, its arm (-1: features) and its time, if known
    task: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.intp))
    arm: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.intp))
    time: FloatArray = field(default_factory=lambda: np.zeros(0))
    middle: FloatArray = field(default_factory=lambda: np.zeros(0))  # of the step it was drawn in

    @property
    def distance(self) -> float:
        """Largest gap to the uniform distribution function (Kolmogorov and Smirnov)."""
        n, ordered = self.values.size, np.sort(self.values)
        steps = np.arange(n + 1) / n
        return float(max((steps[1:] - ordered).max(), (ordered - steps[:-1]).max()))

    @property
    def chance(self) -> float:
        """Of such a distance or a larger one where all is right."""
        return float(kolmogorov(np.sqrt(self.values.size) * self.distance))

    @property
    def bins(self) -> IntArray:
        """Counts in ten equal parts."""
        return np.histogram(self.values, bins=10, range=(0.0, 1.0))[0].astype(np.intp)

    @property
    def reading(self) -> str:
        """What it means, in words."""
        distance = self.distance
        if distance <= FINE or self.chance > LEVEL:
            return "Calibrated: rewards fall where the predictions say."
        tilt = float(self.values.mean()) - 0.5
        tense = float(self.values.std()) * np.sqrt(12.0) - 1.0
        found = []
        if abs(tense) > TENSE:
            found.append(
                "predictions are too sure: rewards fall too often far out, as with heavy tails, "
                "with a noise that differs between tasks, or with tasks that drift"
                if tense > 0
                else "predictions are not sure enough: rewards fall too often near the middle"
            )
        if abs(tilt) > TILT:
            found.append(f"rewards are {'higher' if tilt > 0 else 'lower'} than predicted")
        words = "; ".join(found) or "rewards do not have the shape that the model gives them"
        return f"{'Not' if distance > FAR else 'Not quite'} calibrated: {words}."


def calibrate(table: Table, fitted: Fitted, rows: Sequence[Any], *, rng: Rng) -> Calibration:
    """Transforms of the rewards of some tasks; the prior of each comes from the other tasks.

    `rows` has a task, its actions (arms as indices, or features), its rewards in the order of
    time, and if known their times. For rewards with steps (0 or 1, and counts) a point of the step
    is drawn with `rng`.
    """
    if not rows:
        raise ValueError("no rows to look at: give those of at least one task")
    place = {task: i for i, task in enumerate(table.tasks)}
    chosen = evenly(len(rows), TASKS).tolist()
    values, middles, tasks, arms, times = [], [], [], [], []
    for task, actions, rewards, *clock in (rows[i] for i in chosen):
        if task not in place:
            raise ValueError(f"task {task!r} has rows, but is not in the statistics")
        prior = prior_of_others(table, fitted, place[task])
        low, high = prior.ranks(actions[:ROWS], rewards[:ROWS])
        found = low + rng.random(low.size) * (high - low)
        values.append(found)
        middles.append((low + high) / 2)
        tasks.append(np.full(found.size, place[task]))
        arms.append(np.full(found.size, -1) if actions.ndim > 1 else actions[:ROWS])
        times.append(clock[0][:ROWS] if clock else np.full(found.size, np.nan))
    parts = [np.concatenate(part) for part in (values, tasks, arms, times, middles)]
    return Calibration(parts[0], len(chosen), *parts[1:])


# Do rewards move over the time of the log? Where all is right, how far one falls from what was
# predicted has nothing to do with the date, also in a log that a bandit wrote.


class Drift(NamedTuple):
    """The strongest movement that was found."""

    chance: float  # of one as strong in a log that does not move, for all that was looked at
    what: str  # all rewards, or the name of an arm
    shift: float  # by how much later rewards rank higher, from the first to the last day
    looked: int  # movements looked at

    @property
    def warning(self) -> str | None:
        if self.chance >= DRIFT_LEVEL:
            return None
        way = "higher" if self.shift > 0 else "lower"
        return (
            f"rewards move over the time of the log: of {self.what} the late ones are {way} than "
            f"the early ones teach (chance {self.chance:.1g} if nothing moved); fit to the latest "
            "part of the log, or let each period be a task"
        )


def drift(found: Calibration, names: Sequence[str]) -> Drift | None:
    """Trends and bends of ranks over time, of all rewards and of each arm; None: too few tasks.

    Every chance is that of a t test over tasks; the least is multiplied by their number.
    """
    known = np.isfinite(found.time) if found.time.size else np.zeros(0, dtype=bool)
    if not known.any() or np.unique(found.task[known]).size < FEWEST_TASKS:
        return None
    time, rank, arm = found.time[known], found.middle[known] - 0.5, found.arm[known]
    task = np.unique(found.task[known], return_inverse=True)[1]
    span = float(np.ptp(time))
    if not span > 0:
        return None
    at = (time - time.min()) / span
    trend = at - at.mean()
    bend = trend**2 - (trend**2).mean()
    bend -= trend * float(trend @ bend) / float(trend @ trend)
    tests = []
    groups = [("all rewards", np.ones(at.size, dtype=bool))]
    groups += [(f"arm {name}", arm == k) for k, name in enumerate(names) if (arm == k).any()]
    for what, some in groups[: 1 if len(groups) == 2 else None]:
        for shape in (trend, bend):
            chance = _chance(np.bincount(task[some], (shape * rank)[some]).astype(np.float64))
            slope = float(trend[some] @ rank[some]) / max(float(trend[some] @ trend[some]), 1e-300)
            tests.append((chance, what, slope))
    chance, what, shift = min(tests)
    return Drift(min(1.0, chance * len(tests)), what, shift, len(tests))


def _chance(sums: FloatArray) -> float:
    """Of a mean as far from zero, from one number a task; few that weigh much count as few."""
    squares = float((sums**2).sum())
    if not squares > 0:
        return 1.0
    degrees = max(squares**2 / float((sums**4).sum()) - 1.0, 1.0)
    return 2 * float(stdtr(degrees, -abs(float(sums.sum())) / np.sqrt(squares)))


class Allocation(NamedTuple):
    """Which part of the pulls each arm got over time."""

    time: FloatArray  # seconds since 1970: middles of equal parts of the log
    shares: FloatArray  # (parts, arms)


def allocation(found: Calibration, arms: int) -> Allocation | None:
    """Of the tasks that were looked at; None where arms or times are not known."""
    known = np.isfinite(found.time) & (found.arm >= 0) if found.time.size else np.zeros(0, bool)
    if not known.any() or not np.ptp(found.time[known]) > 0:
        return None
    edges = np.quantile(found.time[known], np.linspace(0, 1, BINS + 1))
    edges = np.unique(edges)
    part = np.clip(np.searchsorted(edges, found.time[known], side="right") - 1, 0, len(edges) - 2)
    counts = np.zeros((len(edges) - 1, arms))
    np.add.at(counts, (part, found.arm[known]), 1.0)
    total = counts.sum(axis=1, keepdims=True)
    full = total[:, 0] > 0
    return Allocation(((edges[1:] + edges[:-1]) / 2)[full], (counts / np.maximum(total, 1.0))[full])


# How likely is a task, if the prior comes from the others?


class Outlier(NamedTuple):
    task: Task
    chance: float  # that a task is as far off as this one, or farther
    what: str
    flagged: bool  # the chance is below UNLIKE over the number of tasks


def outliers(table: Any, fitted: Fitted, *, most: int = 5) -> list[Outlier]:
    """The `most` unlikely tasks, the least likely first."""
    prior = fitted.meta.task_prior()
    if table.arms is None:
        far, rank = _distances(prior, table)
        far = -gammaincc(np.maximum(rank, 1) / 2, far / 2)
    else:
        far = _screened(prior.one_family, table)
    found = []
    for i in np.argsort(-far, kind="stable")[:CLOSE].tolist():
        others = prior_of_others(table, fitted, i)
        one = table.subset(np.array([i]))
        if table.arms is None:
            chance, what = _linear_chance(others, one)
        else:
            chance, what = _arm_chance(others.one_family, one)
        found.append(Outlier(table.tasks[i], chance, what, chance < UNLIKE / len(table)))
    return sorted(found, key=lambda task: task.chance)[:most]


# linear


def _distances(prior: Any, table: LinearTable) -> tuple[FloatArray, FloatArray]:
    """Squared distance of each task's least-squares estimate from the prior, and its dimension.

    Of tasks that are alike it is χ² with as many degrees of freedom; N is the covariance of the
    rows y - R mean that stand for a task.
    """
    far, ranks = np.empty(len(table)), np.empty(len(table))
    for i in range(0, len(table), CHUNK):
        root, y, seen = as_rows(table.moments[i : i + CHUNK])
        y, half = (y - root @ prior.mean) / prior.noise, root @ prior.factor / prior.noise
        cov = half @ half.transpose(0, 2, 1) + np.eye(len(prior.mean))
        far[i : i + CHUNK] = (y * np.linalg.solve(cov, y[:, :, None])[:, :, 0]).sum(axis=1)
        ranks[i : i + CHUNK] = seen.sum(axis=1)
    return far, ranks


def _linear_chance(prior: Any, one: LinearTable) -> tuple[float, str]:
    far, rank = (float(value[0]) for value in _distances(prior, one))
    if rank == 0:
        return 1.0, "no rewards"
    what = f"squared distance {far:.1f}, where {rank:.0f} is usual, from {_rewards(one.n[0])}"
    return float(gammaincc(rank / 2, far / 2)), what


# arms


def _spread(prior: ProductArms, count: FloatArray) -> FloatArray:
    """Standard deviation of the average of `count` rewards of each arm, over tasks."""
    variance = prior.scale**2
    noise = float(np.sqrt(prior.reward_variance.flat[0]))
    spread: FloatArray = np.sqrt(variance + prior.STATS.within(prior.mean, variance, noise) / count)
    return spread


def _screened(prior: ProductArms, table: ArmTable) -> FloatArray:
    """How many standard deviations the worst arm of each task is off."""
    count, total = table.table[:, 0], table.table[:, 1]
    often = np.where(count > 0, count, 1.0)
    off = np.abs(total / often - prior.mean) / _spread(prior, often)
    worst: FloatArray = np.where(count > 0, off, 0.0).max(axis=1)
    return worst


def _arm_chance(prior: ProductArms, one: ArmTable) -> tuple[float, str]:
    """That of the worst arm, times the number of arms pulled."""
    pulled = np.flatnonzero(one.table[0, 0] > 0)
    if not pulled.size:
        return 1.0, "no rewards"
    prior, (count, total) = prior.columns(pulled.tolist()), one.table[0, :2, pulled].T
    chances = _tails(prior, count, total)
    k = int(np.argmin(chances))
    what = (
        f"arm {one.arms[pulled[k]]}: {total[k] / count[k]:.3g} on average in {_rewards(count[k])}, "
        f"where {prior.mean[k]:.3g} ± {_spread(prior, count)[k]:.2g} is usual"
    )
    return min(1.0, float(chances[k]) * pulled.size), what


def _rewards(count: float) -> str:
    return f"{count:,.0f} reward{'s' if count > 1 else ''}"


def _tails(prior: ProductArms, count: FloatArray, total: FloatArray) -> FloatArray:
    """Chances of totals as far out, or farther, on either side."""
    low, high = prior.total_chances(count, total)
    chances: FloatArray = np.minimum(1.0, 2 * np.minimum(low, high))
    return chances
