"""Would forgetting have predicted better? Half-lives by one-step-ahead scores: docs/math/time.md.

Discounted evidence cannot rank half-lives, for each counts other data. Scores can: every reward is
predicted from those before it, with each pair of half-lives, and its log density is the score.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from adats.agents import AdaTS
from adats.learning.fit_common import Fitted
from adats.learning.logs import TaskRows
from adats.learning.tables import Table, evenly
from adats.models.core.types import FloatArray

NO_TIMES = (
    "'auto' compares predictions of single rewards in the order of time: give the log itself, with "
    "a row a pull, and its column of times (time=, --time)"
)
TASKS, ROWS = 120, 60  # that are played again: so many tasks, evenly spaced, and their first rows
FEWEST = 10  # tasks
SURE = 2.5  # standard errors by which forgetting must predict better
LEAST = 0.02  # of the log density of a task's rewards: less is not worth a half-life
BLOCKS = 20  # of tasks in the order of time, between which errors are taken
WIDTH = 2.0  # standard deviations of tasks: how far mu may be from that of the whole log
SHORTEST = 256  # times that a half-life goes into the time of the log, or of a task, at most

Pair = tuple[float | None, float | None]  # half-lives of rewards, and of what tasks teach
SAID = {"half_life": "half-life", "prior_half_life": "prior half-life"}
UNIT = "(seconds, or the unit of times that are numbers)"
ONLY_REWARDS = (
    "of what tasks teach none was tried, for a grid of candidates has no width to fall back to; "
    "structure 'level' has one"
)


class HalfLifeScore(NamedTuple):
    """What a pair of half-lives brought, beside no forgetting; None is never."""

    half_life: float | None
    prior_half_life: float | None
    gain: float  # of the log density of a task's rewards, on average
    error: float  # its standard error

    @property
    def sure(self) -> bool:
        return self.gain > max(SURE * self.error, LEAST)


class ChosenHalfLives(NamedTuple):
    """The half-lives that a log speaks for, in seconds, and all that were tried."""

    half_life: float | None
    prior_half_life: float | None
    scores: tuple[HalfLifeScore, ...]
    tasks: int
    rewards: int

    @property
    def chosen(self) -> HalfLifeScore | None:
        """None: nothing is to be forgotten."""
        pair = (self.half_life, self.prior_half_life)
        return next((score for score in self.scores if score[:2] == pair), None)

    @property
    def sentence(self) -> str:
        looked = f"{self.rewards:,} rewards of {self.tasks:,} tasks"
        found = self.chosen
        if self.tasks < FEWEST:
            return (
                f"Half-lives were not looked for: it takes {FEWEST} tasks with times, not {looked}"
            )
        if found is None:
            best = max(self.scores, key=lambda score: score.gain, default=None)
            brought = (
                "" if best is None else f"; the best tried, {_said(best)}, brought {_gain(best)}"
            )
            if not any(score.prior_half_life for score in self.scores):
                brought += f"; {ONLY_REWARDS}"
            return f"No half-life predicts better than none, of {looked}{brought}"
        return (
            f"The log moves: {_said(found)} {UNIT} predicts {looked} better than no forgetting, "
            f"by {_gain(found)}. Give AdaTS {_given(found)}"
        )


def _said(score: HalfLifeScore) -> str:
    return " and ".join(f"a {SAID[name]} of {life:.4g}" for name, life in _lives(score))


def _given(score: HalfLifeScore) -> str:
    return ", ".join(f"{name}={life:.4g}" for name, life in _lives(score))


def _lives(score: HalfLifeScore) -> list[tuple[str, float]]:
    pairs = (("half_life", score.half_life), ("prior_half_life", score.prior_half_life))
    return [(name, life) for name, life in pairs if life is not None]


def _gain(score: HalfLifeScore) -> str:
    return f"{score.gain:+.2g} ± {score.error:.2g} of log density a task"


def half_lives(table: Table, fitted: Fitted, rows: Sequence[TaskRows]) -> ChosenHalfLives:
    """Half-lives by scores; `rows` has tasks of the table with their times.

    First those of what tasks teach are tried, from the time of the log downwards, as long as it
    helps; then, with the best of them, those of rewards, from twice the time of a task.
    """
    place = {task: i for i, task in enumerate(table.tasks)}
    some = [rows[i] for i in evenly(len(rows), TASKS).tolist()]
    timed = [one for one in some if one.rewards.size and np.isfinite(one.times[:ROWS]).all()]
    count = sum(one.rewards[:ROWS].size for one in timed)
    if len(timed) < FEWEST:
        return ChosenHalfLives(None, None, (), len(timed), count)
    game = PlayedAgain(fitted, timed, [place[one.task] for one in timed])
    span = max(one.times[:ROWS].max() for one in timed) - min(one.times[0] for one in timed)
    durations = [float(np.ptp(one.times[:ROWS])) for one in timed]
    of_prior: list[HalfLifeScore] = []
    prior = None
    if widened(fitted) is not None:
        of_prior, prior = game.search(lambda life: (None, life), float(span))
    of_own, own = game.search(lambda life: (life, prior), 2.0 * float(np.median(durations)))
    scores = (*of_prior, *of_own)
    return ChosenHalfLives(own, prior, scores, len(timed), count)


def widened(fitted: Fitted) -> Any:
    """The prior before the log, around its mean: what a fit gives is sure of mu, and nothing of
    that fades. None for models whose meta-prior has no width."""
    apart, unsure = (float(np.diagonal(cov).mean()) for cov in (fitted.task_cov, fitted.mu_cov))
    try:
        return fitted.meta.widen(WIDTH * math.sqrt(apart / max(unsure, 1e-300)))
    except ValueError:
        return None


def faded_prior(table: Table, fitted: Fitted, last: FloatArray, life: float) -> Any:
    """What the tasks of the log taught, each with its weight at the end of the log; `last` are the
    times of their last rewards. A task without one is as old as the oldest."""
    meta, end = widened(fitted), np.nanmax(last)
    for i, time in enumerate(np.nan_to_num(last, nan=np.nanmin(last)).tolist()):
        stats = meta.empty() + table.stats(i) if fitted.stats is None else fitted.stats(table, i)
        design = None if fitted.designs is None else fitted.designs[i]
        weight = math.exp2(-(end - time) / life)
        meta = meta.absorb(weight * meta.digest(stats, design=design).message)
    return meta


class PlayedAgain:
    """Tasks that are played again in the order of time, from the prior before the log."""

    def __init__(self, fitted: Fitted, rows: Sequence[TaskRows], places: Sequence[int]) -> None:
        meta = widened(fitted)
        self.meta = fitted.meta if meta is None else meta
        designs = fitted.designs
        self.designs = [None if designs is None else designs[i] for i in places]
        self.rows = rows
        events = [
            (time, k, i) for k, one in enumerate(rows) for i, time in enumerate(one.times[:ROWS])
        ]
        self.events = sorted(events)
        self.known: dict[Pair, FloatArray] = {}
        first = np.array([one.times[0] for one in rows])
        self.order = np.argsort(first, kind="stable")

    def search(
        self, pair: Callable[[float | None], Pair], longest: float
    ) -> tuple[list[HalfLifeScore], float | None]:
        """All that were tried, shorter and shorter until two did not help, and the best half-life.

        None if it is not surely better than none, or if the shortest is the best: what to remember
        nothing of does not move, but is less alike, or more alike, than the fit says.
        """
        tried: list[HalfLifeScore] = []
        best, worse, life = None, 0, longest
        while worse < 2 and life > longest / SHORTEST:
            tried.append(self.score(pair(life)))
            better = best is None or tried[-1].gain > self.score(pair(best)).gain
            best, worse = (life, 0) if better else (best, worse + 1)
            life /= 2
        if best is None or best == 2 * life or not self.score(pair(best), pair(None)).sure:
            return tried, None
        return tried, best

    def score(self, pair: Pair, beside: Pair = (None, None)) -> HalfLifeScore:
        gains = self.densities(pair) - self.densities(beside)
        n = gains.size
        blocks = np.array_split(gains[self.order], min(BLOCKS, n))
        sums = np.array([block.sum() for block in blocks])
        each = float(gains.std(ddof=1)) * math.sqrt(n)
        together = float(sums.std(ddof=1)) * math.sqrt(len(blocks))
        return HalfLifeScore(*pair, float(gains.mean()), max(each, together) / n)

    def densities(self, pair: Pair) -> FloatArray:
        """The log density of the rewards of each task, each given those before it."""
        if pair not in self.known:
            self.known[pair] = self._played(*pair)
        return self.known[pair]

    def _played(self, half_life: float | None, prior_half_life: float | None) -> FloatArray:
        agent = AdaTS(self.meta, seed=0, half_life=half_life, prior_half_life=prior_half_life)
        found, last, opened = np.zeros(len(self.rows)), self.events[0][0], set()
        for time, k, i in self.events:
            one, design = self.rows[k], self.designs[k]
            if k in opened:
                belief = agent.posterior(k, time=time)
            else:
                left = 1.0
                if prior_half_life is not None:
                    left = math.exp2(-(time - last) / prior_half_life)
                belief = agent.meta.faded(left).task_prior(design=design)
            action, reward = one.actions[i], float(one.rewards[i])
            row: Any = None
            if agent.meta.n_features:
                row = action if one.actions.ndim > 1 else np.eye(belief.mean.size)[action]
            found[k] += log_density(belief, action if row is None else row, reward)
            names = agent.arms
            arm = None if row is not None or names is None else names[action]
            pulled = {"action": arm} if row is None else {"features": row}
            agent.tell(task=k, reward=reward, design=design, time=time, **pulled)
            opened.add(k)
            last = time
        return found


def log_density(belief: Any, pulled: Any, reward: float) -> float:
    """Of a reward of an arm, or of features: its chance, or a normal density by two moments."""
    arm = 0
    if np.ndim(pulled):
        belief = belief.at_rows(pulled[None])
    else:
        arm = int(pulled)
    low, high = belief.rank(arm, reward)
    if high > low:
        return math.log(high - low)
    noise = np.broadcast_to(belief.reward_variance, belief.scale.shape)[arm]
    variance = float(belief.scale[arm] ** 2 + noise)
    off = reward - float(belief.mean[arm])
    return -0.5 * (off * off / variance + math.log(2 * math.pi * variance))
