"""What sharing saves a new task with its own arms and length: its size, and a held-out gain.

Thompson sampling is played in many tasks side by side, with any normal prior of η that has a level.
Pulls go in batches that grow by a fifth: some dozen steps for a thousand pulls, each over arrays.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import chdtrc

from adats.learning.effects import (
    FURTHEST,
    TAILS,
    Effects,
    Prior,
    TaskCounts,
    Working,
    arms_given,
    believed,
    learn,
    linearised,
    pooled,
    rate,
    settled,
    smoothed,
    split,
    tails,
)
from adats.models.core.types import BoolArray, FloatArray, IntArray, Rng

RELINEARISED = 3  # times that clicks and counts are
CELLS = 60_000  # tasks times arms that are played for the size of the saving
MOST = 2000  # tasks that are held out
FOLDS = 5
LEAST = 0.2  # an opponent's regret counts as at least this part of the other's
CHEAP = 16  # more draws of every task's rates, to know what is luck
APPROXIMATE = 0.007  # standard error of what is approximate: batches, linearised clicks
WIDENED = 1.08  # errors of savings, by pilots
Z90 = 1.645
GROWTH = 1.2  # of batches
LENGTHS = 4  # groups of tasks from short to long
OFTEN = 20  # tasks in a group, at least
CLEARLY = 0.001  # of the test whether spreads depend on lengths
DRAWS = 4  # of the belief in a batch; its pulls are dealt to them


class Saving(NamedTuple):
    """What sharing saves of an opponent's regret; its part is negative where the opponent saves."""

    left: float  # regret with sharing, over the opponent's
    error: float  # standard error; the logarithm of what is left is normal

    @property
    def part(self) -> float:
        """Of the greater of both regrets."""
        return self.above(0.0)

    def above(self, errors: float) -> float:
        """So many standard errors above the part, or below it."""
        unit = max(self.left, self.error) or 1.0
        left = self.left + unit * math.expm1(-errors * self.error / unit)
        return 1.0 - left if left < 1.0 else 1.0 / left - 1.0

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
    task, features, controls, regret = possible(counts, found, rng)
    regret = without_luck(regret, features, controls)
    floor = LEAST * regret[1:].mean(axis=1)[::-1]
    result = []
    for i in (0, 1):
        rival = regret[1 + i] + max(float(floor[i] - regret[1 + i].mean()), 0.0)
        part, error = ratio(regret[1 + i] - regret[0], rival, task, features)
        result.append(Saving(1.0 - part, math.hypot(error, APPROXIMATE)))
    return result[0], result[1]


class Possible(NamedTuple):
    """New tasks, each with its own draw of the effects that the log leaves possible."""

    task: IntArray  # of the log, whose arms and length it has
    features: FloatArray  # (rows, features): what is peculiar to its effects
    controls: FloatArray  # (rows, controls): the luck of its rates, zero on average given effects
    lost: FloatArray  # (3, rows): regrets of share, alone and pooled


def possible(counts: TaskCounts, found: Fits, rng: Rng) -> Possible:
    """Regrets of share, alone and pooled in new tasks with the arms and lengths of the log's."""
    tasks, arms = counts.pulls.shape
    size = CELLS // arms
    passes = math.ceil(size / tasks)
    task = np.concatenate([rng.permutation(tasks) for _ in range(passes)])[:size]
    priors = (*found.priors, pooled(counts))
    a, own, level = found.effects.draws(rng, size)
    rows = counts.take(task)
    heavy = tails(found.work, found.effects)
    which = rng.choice(len(TAILS), size, p=heavy.weight)
    here, some = rows.here, which < len(TAILS) - 1
    scale = own * heavy.scale[which] * by_length(counts, found)[task]
    tail = TAILS[which[some], None]
    mixes = [_first_choices(prior, here, rng) for prior in (priors[2], priors[0])]
    mixes.append(here / here.sum(axis=1, keepdims=True))

    def drawn() -> tuple[FloatArray, FloatArray, FloatArray]:
        """Rates, the best of them, and what is lost by three choices that do not learn."""
        z = rng.standard_normal(a.shape)
        z[some] *= np.sqrt((tail - 2) / rng.chisquare(tail, (len(tail), arms)))
        eta = a + level[:, None] * rng.standard_normal((size, 1)) + scale[:, None] * z
        theta = rate(counts.rewards, eta)
        best = np.where(here, theta, -np.inf).max(axis=1)
        lost = [rows.lengths * (best - (mix * theta).sum(axis=1)) for mix in mixes]
        return theta, best, np.stack(lost, axis=1)

    theta, best, controls = drawn()
    controls -= sum(drawn()[2] for _ in range(CHEAP)) / CHEAP
    pulls = [one.pulls for one in play(priors, theta, here, rows, rng)]
    lost = np.stack([best * n.sum(axis=1) - (n * theta).sum(axis=1) for n in pulls])
    features = [*_features(counts, priors, a), own, level, 1 / TAILS[which]]
    return Possible(task, np.stack(features, axis=1), controls, lost)


def by_length(counts: TaskCounts, found: Fits) -> FloatArray:
    """Spread of own effects in tasks of about this length over σ_0, where that clearly differs.

    As where tests end as soon as a winner is seen: long ones are alike. By the score of σ_0² in
    groups of tasks from short to long, with errors taken over tasks; else 1 for every task.
    """
    tasks, same = len(counts.lengths), np.ones(len(counts.lengths))
    edges = np.quantile(counts.lengths, np.linspace(0, 1, min(LENGTHS, tasks // OFTEN) + 1)[1:-1])
    group = np.unique(np.searchsorted(edges, counts.lengths), return_inverse=True)[1]
    own = found.effects.spreads.own
    if group.max() == 0 or not own > 0:
        return same
    score, known = own_score(found.work, found.effects)
    size = np.bincount(group)
    info = np.bincount(group, known)
    more = np.bincount(group, score) / info  # of σ_0²
    rest = score - more[group] * known
    seen = np.bincount(group, rest**2) * size / np.maximum(size - 1, 1)
    var = np.maximum(seen, info) / info**2  # in the model the score varies by its information
    all_more = (more / var).sum() / (1 / var).sum()
    if chdtrc(len(more) - 1, ((more - all_more) ** 2 / var).sum()) > CLEARLY:
        return same
    factor: FloatArray = np.sqrt(np.maximum(own + more, 0.0) / own)
    return factor[group]


def own_score(work: Working, effects: Effects) -> tuple[FloatArray, FloatArray]:
    """Slope of each task's log density by σ_0², and its Fisher information."""
    prior, own = effects.prior, effects.spreads.own
    w = work.pulls / (work.pulls * own + work.phi)
    d = prior.level / (1.0 + prior.level * w.sum(axis=1, keepdims=True))
    gap = work.means - prior.mean
    pull = w * (gap - d * (w * gap).sum(axis=1, keepdims=True))  # V⁻¹ gap
    score = 0.5 * (pull**2 - w + d * w**2).sum(axis=1)
    squares = (w**2).sum(axis=1)
    known = 0.5 * (squares - 2 * d[:, 0] * (w**3).sum(axis=1) + (d[:, 0] * squares) ** 2)
    return score, known


def _first_choices(prior: Prior, here: BoolArray, rng: Rng) -> FloatArray:
    """How often a sampler chooses each arm at first, in a few draws."""
    chosen, away = np.zeros(here.shape), np.where(here, 0.0, -np.inf)
    for _ in range(CHEAP):
        drawn = prior.mean + np.sqrt(prior.spread) * rng.standard_normal(here.shape) + away
        chosen[np.arange(len(here)), drawn.argmax(axis=1)] += 1 / CHEAP
    return chosen


def without_luck(lost: FloatArray, features: FloatArray, controls: FloatArray) -> FloatArray:
    """Regrets less what the luck of rates explains; given the effects their means are the same."""
    x = np.column_stack([np.ones(len(features)), features, controls])
    x /= np.maximum(np.abs(x).max(axis=0), 1e-300)
    last = slice(-controls.shape[1], None)
    slopes = np.linalg.lstsq(x, lost.T, rcond=1e-9)[0][last]
    return np.asarray(lost - (x[:, last] @ slopes).T)


def _features(counts: TaskCounts, priors: tuple[Prior, ...], a: FloatArray) -> list[FloatArray]:
    """What matters of effects of arms: of pooled's favourites, of share's, and their spread."""
    here, weight = counts.here, counts.lengths / counts.lengths.sum()
    usual = (weight / here.sum(axis=1)) @ here  # how often each arm is there to be pulled
    gaps = a - (a @ usual)[:, None]
    favourite = np.where(here, priors[2].mean, -np.inf).argmax(axis=1)
    often = np.bincount(favourite, weight, minlength=here.shape[1])
    believed = usual * (priors[0].mean - priors[0].mean @ usual)
    return [gaps @ often, gaps @ believed, np.sqrt(gaps**2 @ usual)]


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


def held_out(counts: TaskCounts, found: Fits, rng: Rng) -> tuple[Gain, Gain]:
    """Rewards that held-out tasks gain by sharing: of a task over playing alone, and of a pull over
    the arm that is best for all.

    The arms' effects come from the other folds. Over alone: half of a task's rewards says in which
    rates both samplers play, by the opponent's posterior; the means of the other half value their
    pulls. Over pooled: the arm that looks best after half of a task, valued by the other half.
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
    belief, here = settled(alone, first), both.here
    theta, blank = rate(rows.rewards, belief.draw(rng)), rate(rows.rewards, belief.mean)
    known = second.pulls > 0
    value = np.where(known, second.means, blank)
    ours, theirs = (one.pulls for one in play((share, alone), theta, here, both, rng))
    looks = settled(share, first).mean, np.broadcast_to(pooled(counts).mean, known.shape)
    best = [np.where(known, look, -np.inf).argmax(axis=1) for look in looks]
    own, usual = (np.take_along_axis(value, arm[:, None], 1)[:, 0] for arm in best)
    return (
        _gain(np.where(here, (ours - theirs) * value, 0.0).sum(axis=1)),
        _gain(np.where(known.any(axis=1), own - usual, 0.0)),
    )


def _gain(found: FloatArray) -> Gain:
    """The mean over tasks, of which each is there twice."""
    each = found.reshape(2, -1).mean(axis=0)
    return Gain(float(each.mean()), float(each.std(ddof=1)) / math.sqrt(each.size))


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
    offered = None if one.offered is None else np.tile(one.offered, (2, 1))
    return one._replace(pulls=pulls, sums=sums, lengths=lengths, offered=offered)


# Thompson sampling in many tasks side by side


def play(
    priors: Sequence[Prior], theta: FloatArray, here: BoolArray, like: TaskCounts, rng: Rng
) -> list[TaskCounts]:
    """Pulls and rewards of Thompson sampling with each prior in tasks with these rates.

    `here` says which arms a task has; lengths and rewards are `like` those. All priors have the
    same random numbers. The longest tasks come first inside, so that those at their end drop out.
    """
    order = np.argsort(-like.lengths, kind="stable")
    theta, here, like = theta[order], here[order], like.take(order)
    away = np.where(here, 0.0, -np.inf)
    full = np.broadcast_to(0.0, theta.shape)
    parts = [[p.mean + full, p.spread + full, p.level + full[:, :1]] for p in priors]
    parts = [[part[order] for part in prior] for prior in parts]
    found = [like._replace(pulls=np.zeros(here.shape), sums=np.zeros(here.shape)) for _ in priors]
    etas, seed = [mean.copy() for mean, *_ in parts], rng.integers(2**63)
    streams = [np.random.default_rng(seed) for _ in priors]  # of rewards
    for size in batches(like.lengths):
        on = slice(0, int((size > 0).sum()))
        shares = [part for i in range(DRAWS) if (part := (size[on] + i) // DRAWS).any()]
        shape = (len(shares), *theta[on].shape)
        own = rng.standard_normal(shape, dtype=np.float32)
        level = rng.standard_normal((*shape[:2], 1), dtype=np.float32)
        for prior, counts, eta, stream in zip(parts, found, etas, streams, strict=True):
            work = linearised(counts.take(on), eta[on])
            belief = believed(Prior(*(part[on] for part in prior)), work)
            eta[on] += np.clip(belief.mean - eta[on], -FURTHEST, FURTHEST)
            means = belief.mean - belief.mean.mean(axis=1, keepdims=True) + away[on]
            arms = (belief.around(level, own) + means.astype(np.float32)).argmax(axis=2)
            new = np.zeros(shape[1:])
            for part, arm in zip(shares, arms, strict=True):
                new[np.arange(len(new)), arm] += part
            counts.pulls[on] += new
            counts.sums[on] += _rewarded(like, theta[on], new, stream)
    back = np.argsort(order)
    return [counts.take(back) for counts in found]


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
