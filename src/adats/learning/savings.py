"""What sharing saves a new task with its own arms and length: its size, and a held-out gain."""

import math
from typing import NamedTuple

import numpy as np

from adats.learning.effects import (
    Effects,
    Prior,
    TaskCounts,
    Working,
    arms_given,
    learn,
    linearised,
    pooled,
    rate,
    smoothed,
)
from adats.models.core.types import BoolArray, FloatArray, IntArray, Rng

RELINEARISED = 3  # times that clicks and counts are
CELLS = 40_000  # tasks times arms that are played for the size of the saving
MOST = 2000  # tasks that are held out
FOLDS = 5
LEAST = 0.2  # an opponent's regret counts as at least this part of the other's
NARROWEST = 0.003  # least standard error of a saving
WIDENED = 1.08  # errors of savings, by pilots
Z90 = 1.645
GROWTH = 1.2  # of batches
DRAWS = 4  # of the belief in a batch; its pulls are dealt to them
FURTHEST = 1.0  # that η̂ moves in one step
STEPS = 8  # of η̂ until it has settled


class Saving(NamedTuple):
    """The part of an opponent's regret that sharing saves; errors are those of log(1 − part)."""

    part: float
    error: float  # standard error

    def above(self, errors: float) -> float:
        """So many standard errors above the part, or below it."""
        left = max(1.0 - self.part, self.error)
        return self.part - left * math.expm1(-errors * self.error / left)

    @property
    def low(self) -> float:
        """Of the 90 % interval."""
        return self.above(-Z90)

    @property
    def high(self) -> float:
        """Of the 90 % interval."""
        return self.above(Z90)


class Gain(NamedTuple):
    """Reward that a held-out task gains."""

    mean: float
    error: float  # standard error

    @property
    def low(self) -> float:
        """Of the 90 % interval."""
        return self.mean - Z90 * self.error

    @property
    def high(self) -> float:
        """Of the 90 % interval."""
        return self.mean + Z90 * self.error


class Fits(NamedTuple):
    """What the log teaches to share, and to each task alone."""

    effects: Effects
    alone: Effects
    work: Working  # the counts as both saw them

    @property
    def priors(self) -> tuple[Prior, Prior]:
        """Of sharing and of each task alone."""
        return self.effects.prior, self.alone.prior


def fits(counts: TaskCounts) -> Fits:
    """Both fits; clicks and counts are linearised anew until they have settled."""
    eta = smoothed(counts)
    for _ in range(1 if counts.rewards == "gaussian" else RELINEARISED):
        work = linearised(counts, eta)
        effects = learn(work)
        eta = settled(effects.prior, counts, eta).mean
    return Fits(effects, learn(work, names=False, level=False), work)


def savings(counts: TaskCounts, found: Fits, rng: Rng) -> tuple[Saving, Saving]:
    """Against each task alone, and against one sampler for all."""
    task, features, regret = possible(counts, found, rng)
    floor = LEAST * regret[1:].mean(axis=1)[::-1]
    result = []
    for i in (0, 1):
        rival = regret[1 + i] + max(float(floor[i] - regret[1 + i].mean()), 0.0)
        part, error = ratio(regret[1 + i] - regret[0], rival, task, features)
        result.append(Saving(part, max(error, NARROWEST)))
    return result[0], result[1]


def possible(counts: TaskCounts, found: Fits, rng: Rng) -> tuple[IntArray, FloatArray, FloatArray]:
    """Regrets of share, alone and pooled in new tasks with the arms and lengths of the log's.

    Every row has its own draw of the effects that the log leaves possible. Gives the task whose
    arms and length a row has, what is peculiar to its effects, and the regrets (3, rows).
    """
    tasks, arms = counts.pulls.shape
    size = CELLS // arms
    passes = math.ceil(size / tasks)
    task = np.concatenate([rng.permutation(tasks) for _ in range(passes)])[:size]
    priors = (*found.priors, pooled(counts))
    a, own, level = found.effects.draws(rng, size)
    rows = counts.take(task)
    eta = a + level[:, None] * rng.standard_normal((size, 1))
    eta = eta + own[:, None] * rng.standard_normal(a.shape)
    theta, here = rate(counts.rewards, eta), rows.pulls > 0
    best = np.where(here, theta, -np.inf).max(axis=1)
    pulls = played(priors, theta, here, rows, rng)
    lost = np.stack([best * n.sum(axis=1) - (n * theta).sum(axis=1) for n in pulls])
    return task, np.stack([*_features(counts, priors, a), own, level], axis=1), lost


def _features(counts: TaskCounts, priors: tuple[Prior, ...], a: FloatArray) -> list[FloatArray]:
    """What matters of effects of arms: of pooled's favourites, of share's, and their spread."""
    here, weight = counts.pulls > 0, counts.lengths / counts.lengths.sum()
    usual = (weight / here.sum(axis=1)) @ here  # how often each arm is there to be pulled
    gaps = a - (a @ usual)[:, None]
    favourite = np.where(here, priors[2].mean, -np.inf).argmax(axis=1)
    often = np.bincount(favourite, weight, minlength=here.shape[1])
    believed = usual * (priors[0].mean - priors[0].mean @ usual)
    return [gaps @ often, gaps @ believed, np.sqrt(gaps**2 @ usual)]


def played(
    priors: tuple[Prior, ...], theta: FloatArray, here: BoolArray, rows: TaskCounts, rng: Rng
) -> list[FloatArray]:
    """Pulls of each arm by each prior, with the same random numbers."""
    seeds = rng.integers(2**63, size=2)

    def streams() -> tuple[Rng, Rng]:
        return np.random.default_rng(seeds[0]), np.random.default_rng(seeds[1])

    return [play(prior, theta, here, rows, streams()).pulls for prior in priors]


def ratio(
    gained: FloatArray, lost: FloatArray, task: IntArray, features: FloatArray
) -> tuple[float, float]:
    """Σ gained / Σ lost, with its standard error.

    The error has three parts: what the log leaves possible (what a regression on the features of
    the effects explains), which tasks the log has (between tasks), and the luck of the rehearsal.
    """
    unit = float(lost.mean())
    if not unit > 0:
        return 0.0, 0.0
    part = float(gained.mean()) / unit
    e = (gained - part * lost) / unit
    x = features - features.mean(axis=0)
    x = x[:, x.std(axis=0) > 0] / x.std(axis=0)[x.std(axis=0) > 0]
    q, r = np.linalg.qr(x)
    kept = np.abs(np.diagonal(r)) > 1e-6 * math.sqrt(e.size)
    along = (q.T @ e)[kept]
    luck = float((e * e).sum() - (along**2).sum()) / (e.size - along.size)
    possible = max(float((along**2).sum()) - along.size * luck, 0.0) / e.size
    n_task = np.bincount(task)
    pairs = float((n_task * (n_task - 1)).sum())
    rest = e - q[:, kept] @ along
    together = np.bincount(task, rest) ** 2 - np.bincount(task, rest**2)
    between = max(float(together.sum()) / pairs, 0.0) if pairs else 0.0
    return part, WIDENED * math.sqrt(possible + between / n_task.size + luck / e.size)


def held_out(counts: TaskCounts, found: Fits, rng: Rng) -> Gain:
    """Reward that a task gains by sharing over playing alone, with its standard error.

    The arms' effects come from the other folds. Half of a task's rewards says in which rates the
    samplers play, by the opponent's posterior; the means of the other half value their pulls.
    """
    tasks = len(counts.pulls)
    chosen = rng.permutation(tasks)[:MOST]
    rows = counts.take(chosen)
    share, alone = (
        _fitted_to_others(found.work, fit, chosen) for fit in (found.effects, found.alone)
    )
    one, two = split(rows, rng)
    first, second, both = _stacked(one, two), _stacked(two, one), _stacked(rows, rows)
    share, alone = (
        prior._replace(mean=np.tile(prior.mean, (2, 1)), spread=np.tile(prior.spread, (2, 1)))
        for prior in (share, alone)
    )
    belief, here = settled(alone, first), both.pulls > 0
    theta, blank = rate(rows.rewards, belief.draw(rng)), rate(rows.rewards, belief.mean)
    value = np.where(second.pulls > 0, second.means, blank)
    ours, theirs = played((share, alone), theta, here, both, rng)
    gains = np.where(here, (ours - theirs) * value, 0.0).sum(axis=1).reshape(2, -1).mean(axis=0)
    return Gain(float(gains.mean()), float(gains.std(ddof=1)) / math.sqrt(gains.size))


def _fitted_to_others(work: Working, fit: Effects, chosen: IntArray) -> Prior:
    """The prior of each chosen task from the tasks of the other folds, spreads as they are."""
    mean, spread = np.empty((2, chosen.size, work.pulls.shape[1]))
    spreads = fit.spreads
    for fold in range(FOLDS):
        mine = np.arange(chosen.size) % FOLDS == fold
        others = np.delete(np.arange(len(work.pulls)), chosen[mine])
        mean[mine], spread[mine], _ = arms_given(work.take(others), spreads)
    return Prior(mean, spread, spreads.level)


def _stacked(one: TaskCounts, two: TaskCounts) -> TaskCounts:
    pairs = zip((one.pulls, one.sums, one.lengths), (two.pulls, two.sums, two.lengths), strict=True)
    pulls, sums, lengths = (np.concatenate(pair) for pair in pairs)
    return one._replace(pulls=pulls, sums=sums, lengths=lengths)


def split(counts: TaskCounts, rng: Rng) -> tuple[TaskCounts, TaskCounts]:
    """The rewards of every task and arm dealt at random to two halves."""
    n, s = counts.pulls, counts.sums
    if counts.rewards == "binary" and bool(((n == np.floor(n)) & (s == np.floor(s))).all()):
        n1 = np.floor(n / 2 + (rng.random(n.shape) < 0.5) / 2)
        won, lost = s.astype(np.int64), (n - s).astype(np.int64)
        s1 = rng.hypergeometric(won, lost, n1.astype(np.int64)).astype(np.float64)
    elif counts.rewards == "count" and bool((s == np.floor(s)).all()):
        n1, s1 = n / 2, rng.binomial(s.astype(np.int64), 0.5).astype(np.float64)
    else:
        phi = linearised(counts, smoothed(counts)).phi
        noise = counts.noise if counts.rewards == "gaussian" else 1.0 / phi
        n1 = n / 2
        s1 = s / 2 + np.sqrt(noise * n) / 2 * rng.standard_normal(n.shape)
    return counts._replace(pulls=n1, sums=s1), counts._replace(pulls=n - n1, sums=s - s1)


# Thompson sampling in many tasks side by side, with any normal prior of η that has a level. Pulls
# go in batches that grow by a fifth: some dozen steps for a thousand pulls, each over arrays.


class LevelBelief(NamedTuple):
    """Of η in every task: normal given the level, which is normal."""

    level: FloatArray  # (tasks, 1): mean of the level
    level_var: FloatArray
    base: FloatArray  # (tasks, arms): mean where the level is 0
    slope: FloatArray  # and how it moves with the level
    var: FloatArray  # given the level

    @property
    def mean(self) -> FloatArray:
        """Of η."""
        return self.base + self.slope * self.level

    def draw(self, rng: Rng) -> FloatArray:
        """One η for every task."""
        level = self.level + np.sqrt(self.level_var) * rng.standard_normal(self.level.shape)
        drawn: FloatArray = self.base + self.slope * level
        drawn += np.sqrt(self.var) * rng.standard_normal(self.base.shape)
        return drawn


def believed(prior: Prior, work: Working) -> LevelBelief:
    """The posterior, exact for normal means."""
    w = work.pulls / (work.pulls * prior.spread + work.phi)
    gap = work.means - prior.mean
    grown = 1.0 + prior.level * w.sum(axis=1, keepdims=True)
    level = prior.level * (w * gap).sum(axis=1, keepdims=True) / grown
    trust = w * prior.spread
    return LevelBelief(
        level,
        prior.level / grown,
        prior.mean + trust * gap,
        1.0 - trust,
        prior.spread * (1.0 - trust),
    )


def settled(prior: Prior, counts: TaskCounts, eta: FloatArray | None = None) -> LevelBelief:
    """The posterior with counts linearised around its own mean."""
    eta = np.broadcast_to(prior.mean, counts.pulls.shape) if eta is None else eta
    steps = 1 if counts.rewards == "gaussian" else STEPS
    for _ in range(steps):
        belief = believed(prior, linearised(counts, eta))
        eta = eta + np.clip(belief.mean - eta, -FURTHEST, FURTHEST)
    return belief


def play(
    prior: Prior,
    theta: FloatArray,
    here: BoolArray,
    like: TaskCounts,
    rng: tuple[Rng, Rng],
) -> TaskCounts:
    """Pulls and rewards of Thompson sampling in tasks with these rates.

    `here` says which arms a task has; lengths and rewards are `like` those. One generator draws
    beliefs, the other rewards.
    """
    n, s = np.zeros(theta.shape), np.zeros(theta.shape)
    counts = like._replace(pulls=n, sums=s)
    every, away = np.arange(len(theta)), np.where(here, 0.0, -np.inf)
    eta = np.broadcast_to(prior.mean, theta.shape)
    for size in batches(like.lengths):
        belief = believed(prior, linearised(counts, eta))
        eta = eta + np.clip(belief.mean - eta, -FURTHEST, FURTHEST)
        new = np.zeros(theta.shape)
        for i in range(DRAWS):
            arm = (belief.draw(rng[0]) + away).argmax(axis=1)
            new[every, arm] += (size + i) // DRAWS
        n += new
        s += _rewarded(like, theta, new, rng[1])
    return counts


def batches(lengths: FloatArray) -> FloatArray:
    """Pulls of every batch and task: each batch a fifth of what was pulled before, at least 1."""
    ends = [0]
    while ends[-1] < lengths.max():
        ends.append(max(ends[-1] + 1, math.floor(ends[-1] * GROWTH)))
    ahead = np.minimum(np.array(ends)[:, None], lengths[None, :])
    sizes: FloatArray = np.diff(ahead, axis=0)
    return sizes


def _rewarded(like: TaskCounts, theta: FloatArray, pulls: FloatArray, rng: Rng) -> FloatArray:
    """Sums of new rewards."""
    if like.rewards == "gaussian":
        return theta * pulls + np.sqrt(like.noise * pulls) * rng.standard_normal(theta.shape)
    if like.rewards == "count":
        return rng.poisson(theta * pulls).astype(np.float64)
    return rng.binomial(pulls.astype(np.int64), theta).astype(np.float64)
