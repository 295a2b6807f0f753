"""Has the world changed? Bets that rewards fall off what is believed of them: docs/math/time.md.

Each reward has a place in what was believed of it just before. If nothing moves, no bet on these
places wins on average, whatever the policy chose. Two bets are made: that the prior mean has
shifted, and that theta has shifted since a task's own rewards were seen. A new bet of 1 begins with
each new task (of the prior), or with each reward (in a task); all stakes together are the evidence.
In a world that stands still it is E on average once in E beginnings, or less often.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtr, ndtri

from adats.agents.steps import Setup, learned
from adats.agents.task_state import TaskState
from adats.models.core.errors import InvalidValue
from adats.models.core.types import Belief, FloatArray, JsonDict, MetaBelief, Task

PRIOR, TASKS = "prior", "tasks"  # what may have changed: what tasks have in common, or tasks
WARNING, ALARM = "warning", "alarm"
LIMITS = {  # of the evidence: false ones are at most as frequent as one in so many
    PRIOR: {WARNING: 1e3, ALARM: 1e4},  # tasks
    TASKS: {WARNING: 2e5, ALARM: 2e6},  # rewards
}
FAR = 3.0  # normal scores beyond it are cut: outliers are no changes
TOGETHER = 0.5  # part of a shift's variance that all arms have in common
PRIOR_MEMORY, TASK_MEMORY = 6.0, 8.0  # what is remembered of shifts: so many tasks, or arms
USUAL = 10.0  # rewards, or deviations of tasks, that are taken to have been as believed
POINT = 1e-12  # steps below it are points

LATE = {
    PRIOR: "the rewards of new tasks fall off what earlier tasks taught",
    TASKS: "the rewards of tasks fall off what their own earlier ones taught",
}
ADVICE = {
    PRIOR: "prior_half_life= lets old tasks lose weight, or begin with a new agent",
    TASKS: "half_life= lets old rewards lose weight, or let each period be a new task",
}


class FoundChange(NamedTuple):
    """What was found, and when."""

    what: str  # PRIOR or TASKS
    kind: str  # WARNING or ALARM
    task: Task | None  # the reward that it was found at was of this task; None: it was forgotten
    tasks: int  # so many had been seen
    rewards: int

    def __str__(self) -> str:
        limit = LIMITS[self.what][self.kind]
        unit = "tasks" if self.what == PRIOR else "rewards"
        task = "a task that was forgotten" if self.task is None else f"task {self.task!r}"
        return (
            f"{self.kind}: {LATE[self.what]}, as happens at most once in {limit:,.0f} {unit} if "
            f"nothing moves (at reward {self.rewards:,}, of {task}); "
            f"{ADVICE[self.what]}"
        )


class Surprise(NamedTuple):
    """Where a reward falls in what was believed of it, and what that belief hangs on.

    `prior` and `own` are how far the expected reward goes with a prior mean, or with a theta, that
    is one standard deviation higher, in standard deviations of a reward. `direction` is a unit
    vector: the arm, or features.
    """

    low: float  # chance of a smaller reward
    high: float  # of one that is not larger
    prior: float
    own: float
    direction: FloatArray


class Shift(NamedTuple):
    """What is believed of a shift, in standard deviations: of all arms together, then of each arm
    or feature. It wanders around zero, and entries are taken to be independent."""

    mean: FloatArray
    variance: FloatArray


class TaskWatch(NamedTuple):
    """What is kept of one task."""

    since: int  # when the watch began that it belongs to
    shift: Shift
    evidence: float
    deviation: FloatArray  # of its rewards from the prior mean, by entry of the shift

    def flat(self) -> FloatArray:
        """Figures for a file; `task_watch_from_flat` reads them."""
        return np.concatenate([[self.since, self.evidence], *self.shift, self.deviation])


class Watch(NamedTuple):
    """What is kept besides; a few numbers an arm."""

    shift: Shift = Shift(np.zeros(0), np.zeros(0))  # of the prior mean
    prior_evidence: float = 0.0
    tasks_evidence: float = 0.0  # of bets that go on from task to task
    task_evidence: float = 0.0  # of bets on one task each, all together
    rewards: int = 0
    tasks: int = 0
    squares: float = 0.0  # of normal scores
    deviations: float = 0.0  # squares of what tasks deviate from the prior mean,
    expected: float = 0.0  # and what they were expected to be
    changes: tuple[FoundChange, ...] = ()
    since: int = 0  # rewards when it began

    def to_dict(self) -> JsonDict:
        """Figures for a file; `watch_from_dict` reads them."""
        figures = self._asdict()
        figures["shift"] = [part.tolist() for part in self.shift]
        figures["changes"] = [list(change) for change in self.changes]
        return figures


def watch_from_dict(data: JsonDict) -> Watch:
    mean, variance = (np.array(part, dtype=np.float64) for part in data["shift"])
    changes = tuple(FoundChange(*change) for change in data["changes"])
    return Watch(**data | {"shift": Shift(mean, variance), "changes": changes})


def task_watch_from_flat(values: FloatArray) -> TaskWatch:
    mean, variance, deviation = values[2:].reshape(3, -1)
    return TaskWatch(int(values[0]), Shift(mean, variance), float(values[1]), deviation)


def surprise(prior: Belief, belief: Belief, pulled: Any, reward: float) -> Surprise:
    """Of a reward, under the prior of its task and what was believed of the task before it;
    `pulled` is an arm, or its features."""
    known: Any = belief
    before: Any = prior
    if np.ndim(pulled):
        weighed = pulled * before.scale
        direction = weighed / max(float(np.sqrt(weighed @ weighed)), 1e-300)
        known, before, arm = known.at_rows(pulled[None]), before.at_rows(pulled[None]), 0
    else:
        arm = int(pulled)
        direction = np.zeros(len(before.scale))
        direction[arm] = 1.0
    low, high = (min(max(level, 0.0), 1.0) for level in known.rank(arm, reward))
    wide, now = float(before.scale[arm]), float(known.scale[arm])
    noise = float(np.broadcast_to(known.reward_variance, known.scale.shape)[arm])
    if not (0.0 < wide < math.inf and 0.0 < now * now + noise < math.inf):
        return Surprise(low, high, 0.0, 0.0, direction)
    keep = min((now / wide) ** 2, 1.0)  # share of the prior in the belief
    size = wide / math.sqrt(now * now + noise)
    return Surprise(low, high, keep * size, (1.0 - keep) * size, direction)


def watched(
    watch: Watch, known: TaskWatch | None, task: Task, found: Surprise
) -> tuple[Watch, TaskWatch]:
    """After one more reward of a task; `known` is None for its first."""
    if known is None or known.since != watch.since:
        known = TaskWatch(watch.since, Shift(np.zeros(0), np.zeros(0)), 0.0, np.zeros(0))
        new = 1
    else:
        new = 0
    usual = (USUAL + watch.squares) / (USUAL + watch.rewards - watch.since)
    less = min(usual, 1.0)  # rewards with steps have normal scores that vary less
    sure = watch.deviations - math.sqrt(2.0 * watch.expected)  # by a standard error or more
    apart = (USUAL + sure) / (USUAL + watch.expected)
    temper = max(usual, apart, 1.0)  # to differ more than believed is no change
    score = normal_score(found.low, found.high)
    seen = score / math.sqrt(less)
    entries = np.append(math.sqrt(TOGETHER), math.sqrt(1.0 - TOGETHER) * found.direction)
    entries = _filled(entries, watch.shift.mean.size)
    prior_shift, own_shift = (_grown(one, entries.size) for one in (watch.shift, known.shift))
    prior_odds, prior_shift = _bet(
        prior_shift, found.prior * entries, found, seen, less, temper,
        PRIOR_MEMORY * (entries.size - 1),
    )  # fmt: skip
    own_odds, own_shift = _bet(
        own_shift, found.own * entries, found, seen, less, temper, TASK_MEMORY
    )
    alarmed = {change.what for change in watch.changes if change.kind == ALARM}
    prior_evidence, tasks_evidence = watch.prior_evidence, watch.tasks_evidence
    task_evidence, own_evidence = watch.task_evidence, known.evidence
    if PRIOR not in alarmed:
        prior_evidence = (prior_evidence + new) * prior_odds
    if TASKS not in alarmed:
        tasks_evidence = (tasks_evidence + 1.0) * own_odds
        own_evidence = (own_evidence + 1.0) * own_odds
        task_evidence = max(task_evidence - known.evidence, 0.0) + own_evidence
    more = found.prior * seen * _filled(np.append(0.0, found.direction), entries.size)
    deviation = _filled(known.deviation, entries.size)
    after = watch._replace(
        shift=prior_shift,
        prior_evidence=prior_evidence,
        tasks_evidence=tasks_evidence,
        task_evidence=task_evidence,
        rewards=watch.rewards + 1,
        tasks=watch.tasks + new,
        squares=watch.squares + score * score,
        deviations=watch.deviations + float((2.0 * deviation + more) @ more),
        expected=watch.expected + found.prior**2,
    )
    known = TaskWatch(watch.since, own_shift, own_evidence, deviation + more)
    return _with_changes(after, task), known


def surprises(
    setup: Setup, meta: MetaBelief, state: TaskState, pulled: Any, rewards: Any
) -> list[Surprise]:
    """Of what a task is told at once: of each reward, given those before it."""
    several = np.ndim(rewards) > 0
    found = []
    for action, reward in zip(pulled, rewards, strict=True) if several else [(pulled, rewards)]:
        prior = meta.task_prior(design=state.design)
        belief = meta.posterior(state.digested(meta))
        found.append(surprise(prior, belief, action, float(reward)))
        if several:
            stats = learned(state.stats, action, reward, None, None, setup.keep)
            state, meta = setup.learn(meta, state, stats, action, decided=False)
    return found


class Detector:
    """A watch that goes on with the rewards of an agent."""

    def __init__(self, watch: Watch, tasks: Mapping[Task, TaskWatch]) -> None:
        self.watch = watch
        self.tasks = dict(tasks)

    def __copy__(self) -> "Detector":
        return Detector(self.watch, self.tasks)

    def see(self, task: Task, found: Sequence[Surprise]) -> list[FoundChange]:
        """What was found only now."""
        old = self.watch.changes
        for one in found:
            self.watch, self.tasks[task] = watched(self.watch, self.tasks.get(task), task, one)
        return [change for change in self.watch.changes if change not in old]

    def forget(self, task: Task) -> None:
        self.tasks.pop(task, None)
        known = self.watch.changes
        changes = tuple(c._replace(task=None) if c.task == task else c for c in known)
        self.watch = self.watch._replace(changes=changes)


def detector_of(setup: Setup, wanted: bool) -> Detector | None:
    """For an agent with this setup."""
    if not isinstance(wanted, bool):
        raise InvalidValue("detect_changes", f"is True or False, got {wanted!r}")
    if wanted and not setup.source.LEARNS:
        raise InvalidValue("detect_changes", "is for agents that learn their prior, such as AdaTS")
    return Detector(Watch(), {}) if wanted else None


def evidence(watch: Watch) -> dict[str, float]:
    """For a change: in a world that stands still it is as much on average once in so many tasks,
    or rewards, at most."""
    of_tasks = (watch.tasks_evidence + watch.task_evidence) / 2
    return {PRIOR: watch.prior_evidence, TASKS: of_tasks}


def anew(watch: Watch) -> Watch:
    """The watch begins again, and knows of no change."""
    return Watch(rewards=watch.rewards, tasks=watch.tasks, since=watch.rewards)


def _with_changes(watch: Watch, task: Task) -> Watch:
    """With what has been found now; a warning gives way to an alarm."""
    changes = {change.what: change for change in watch.changes}
    for what, value in evidence(watch).items():
        kind = next((kind for kind in (ALARM, WARNING) if value >= LIMITS[what][kind]), None)
        if kind is not None and (what not in changes or kind != changes[what].kind == WARNING):
            changes[what] = FoundChange(what, kind, task, watch.tasks, watch.rewards)
    return watch._replace(changes=tuple(changes.values()))


def _bet(
    shift: Shift,
    load: FloatArray,
    found: Surprise,
    seen: float,
    less: float,
    temper: float,
    memory: float,
) -> tuple[float, Shift]:
    """What a bet on a shift multiplies by at a reward, and what is then believed of the shift.

    The score is N(load·shift, temper) if the shift wanders, and less where rewards have steps.
    """
    info = float(load @ load)
    if not info:
        return 1.0, shift
    doubt = shift.variance * load
    centre, variance = float(shift.mean @ load), float(doubt @ load)
    scale = math.sqrt(temper * less)
    odds = multiplied(
        found.low, found.high, centre / scale, variance / (temper * less), math.sqrt(temper)
    )
    gain = doubt / (variance + temper)
    mean = shift.mean + gain * (seen - centre)
    variances = shift.variance - gain * doubt
    keep = max(1.0 - info / (2.0 * memory), 0.0)
    return odds, Shift(keep * mean, 1.0 - keep * keep * (1.0 - variances))


def multiplied(low: float, high: float, centre: float, variance: float, root: float) -> float:
    """By what a bet multiplies: the density ratio of N(centre, 1 + variance) to N(0, 1) at the
    normal score over `root`, cut at FAR, on average over the step from low to high.

    On average over uniform steps it is at most 1, and just that at a root of 1 without the cut: the
    logarithm of the ratio is convex in the score, which is nearer to 0 if it is cut or divided.
    """
    wide = 1.0 + variance

    def ratio(score: float) -> float:
        z = score / root
        return math.exp(0.5 * (z * z - (z - centre) ** 2 / wide)) / math.sqrt(wide)

    if high - low < POINT:
        return ratio(_score((low + high) / 2))
    first, last = _score(low), _score(high)
    precision = 1.0 - variance / (wide * root * root)
    top = centre / (root * wide * precision)
    inside = _chance((first - top) * math.sqrt(precision), (last - top) * math.sqrt(precision))
    inside *= math.exp(0.5 * (precision * top * top - centre * centre / wide))
    inside /= math.sqrt(wide * precision)
    below, above = max(min(high, BELOW) - low, 0.0), max(high - max(low, 1.0 - BELOW), 0.0)
    return (inside + below * ratio(-FAR) + above * ratio(FAR)) / (high - low)


def normal_score(low: float, high: float) -> float:
    """The mean of a standard normal between these levels, cut at FAR."""
    if high - low < POINT:
        return _score((low + high) / 2)
    first, last = _score(low), _score(high)
    below, above = max(min(high, BELOW) - low, 0.0), max(high - max(low, 1.0 - BELOW), 0.0)
    inside = (math.exp(-0.5 * first * first) - math.exp(-0.5 * last * last)) / ROOT_2PI
    return (inside + FAR * (above - below)) / (high - low)


ROOT_2PI = math.sqrt(2 * math.pi)
BELOW = float(ndtr(-FAR))


def _score(level: float) -> float:
    return min(max(float(ndtri(level)), -FAR), FAR)


def _chance(first: float, last: float) -> float:
    if first > 0:
        first, last = -last, -first
    return float(ndtr(last) - ndtr(first))


def _filled(values: FloatArray, size: int, fill: float = 0.0) -> FloatArray:
    """With room for arms that were added."""
    missing = size - values.size
    return np.pad(values, (0, missing), constant_values=fill) if missing > 0 else values


def _grown(shift: Shift, size: int) -> Shift:
    return Shift(_filled(shift.mean, size), _filled(shift.variance, size, 1.0))
