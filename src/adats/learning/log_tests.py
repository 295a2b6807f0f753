"""Tests on counts by task and arm: do names matter, does the level, is the log adaptive?"""

import math

import numpy as np
from scipy.special import chdtrc, ndtr

from adats.learning.effects import TaskCounts, linearised, smoothed
from adats.models.core.types import BoolArray, FloatArray, Rng

MANY = 400  # tasks from which on permutations are replaced by their limit
OFTEN = 20  # tasks that an arm must occur in for that limit
PERMUTATIONS = 399


def names_matter(counts: TaskCounts, rng: Rng) -> float:
    """Chance of such differences of arms if (pulls, sums) were dealt to a task's arms at random."""
    return dealt_within_tasks(_scores(counts, within_tasks=True), counts.pulls > 0, rng)


def dealt_within_tasks(x: FloatArray, here: BoolArray, rng: Rng) -> float:
    """Chance of such differences of arms if scores were dealt to a task's arms at random."""
    n = here.sum(axis=1)
    often = here[n > 1].sum(axis=0) >= (OFTEN if len(x) >= MANY else 1)
    if often.sum() < 2:
        return 1.0
    centre = x.sum(axis=1) / np.maximum(n, 1)
    x = np.where(here, x - centre[:, None], 0.0)
    own = (x**2).sum(axis=1) / np.maximum(n - 1, 1) * (n > 1)
    cov = np.diag(own @ here) - (here * (own / np.maximum(n, 1))[:, None]).T @ here
    inverse = np.linalg.pinv(cov[np.ix_(often, often)], rcond=1e-9, hermitian=True)

    def far(u: FloatArray) -> FloatArray:
        u = u[..., often]
        return np.asarray(np.einsum("...i,ij,...j->...", u, inverse, u))

    seen = far(x.sum(axis=0))
    if len(x) >= MANY:
        rank = int(np.linalg.matrix_rank(inverse, hermitian=True))
        return float(chdtrc(rank, seen))
    order = np.argsort(~here, axis=1, kind="stable")  # arms that a task has come first
    packed, absent = np.take_along_axis(x, order, 1), np.sort(~here, axis=1)
    u = np.empty((PERMUTATIONS, x.shape[1]))
    for i in range(PERMUTATIONS):
        deal = np.argsort(rng.random(x.shape) + absent, axis=1)
        dealt = np.take_along_axis(packed, deal, 1)
        u[i] = np.bincount(order.ravel(), dealt.ravel(), minlength=x.shape[1])
    return float((1 + (far(u) >= seen * (1 - 1e-9)).sum()) / (1 + PERMUTATIONS))


def level_matters(counts: TaskCounts, rng: Rng) -> float:
    """Chance of such agreement of a task's arms if they were dealt to tasks at random."""
    here = counts.pulls > 0
    x = _scores(counts, within_tasks=False)

    def agree(x: FloatArray) -> float:
        return float((x.sum(axis=1) ** 2 - (x**2).sum(axis=1)).sum())

    seen = agree(x)
    if len(x) >= MANY:
        var = 2 * float(((x**2).sum(axis=1) ** 2 - (x**4).sum(axis=1)).sum())
        return float(ndtr(-seen / math.sqrt(var))) if var > 0 else 1.0
    beyond = 0
    for _ in range(PERMUTATIONS):
        dealt = np.zeros_like(x)
        for k in range(x.shape[1]):
            dealt[here[:, k], k] = rng.permutation(x[here[:, k], k])
        beyond += agree(dealt) >= seen
    return (1 + beyond) / (1 + PERMUTATIONS)


def _scores(counts: TaskCounts, *, within_tasks: bool) -> FloatArray:
    """Weighted gaps of means of η, from the mean of their task or of their arm."""
    work = linearised(counts, smoothed(counts, arms=not within_tasks, tasks=within_tasks))
    n = work.pulls / work.phi
    gaps = work.means - float((n * work.means).sum() / n.sum())
    spread = max(float((n * gaps**2 - (n > 0)).sum() / n.sum()), 0.0)
    w = n / (1.0 + n * spread)
    axis = 1 if within_tasks else 0
    total = np.maximum(w.sum(axis=axis, keepdims=True), 1e-300)
    centre = (w * work.means).sum(axis=axis, keepdims=True) / total
    return np.asarray(w * (work.means - centre))


def pulls_by_name(counts: TaskCounts, rng: Rng) -> float:
    """Chance of such a preference for some arms if pulls were dealt to a task's arms at random."""
    return dealt_within_tasks(_preference(counts.pulls), counts.pulls > 0, rng)


def _preference(pulls: FloatArray) -> FloatArray:
    """The part of a task's pulls that an arm has, over that of an equal split."""
    here = pulls > 0
    total, arms = pulls.sum(axis=1, keepdims=True), here.sum(axis=1, keepdims=True)
    even = 1.0 / np.maximum(arms, 1)
    return np.asarray(np.where(here, pulls / np.maximum(total, 1.0) - even, 0.0))


def pulls_follow_rewards(counts: TaskCounts, later: FloatArray | None = None) -> float:
    """Chance of such agreement of pulls and rewards within tasks if pulls were set beforehand.

    What each arm has in all tasks is subtracted from both. `later` are pulls after the rewards
    of `counts`; without them it is the pulls of `counts` themselves.
    """
    here = counts.pulls > 0
    pulls = _preference(counts.pulls if later is None else np.where(here, later, 0.0))
    work = linearised(counts, smoothed(counts))
    n = work.pulls / work.phi
    pulls, means = (_without_arms(x, here) for x in (pulls, np.where(here, work.means, 0.0)))
    weight = n.sum(axis=1, keepdims=True) ** 0.5
    agree = (weight * pulls * means).sum(axis=1)
    size = math.sqrt(float((agree**2).sum()))
    return float(ndtr(-agree.sum() / size)) if size > 0 else 1.0


def _without_arms(x: FloatArray, here: BoolArray) -> FloatArray:
    """Less the mean of each arm, then less that of each task."""
    x = np.where(here, x - x.sum(axis=0) / np.maximum(here.sum(axis=0), 1), 0.0)
    centre = x.sum(axis=1, keepdims=True) / np.maximum(here.sum(axis=1, keepdims=True), 1)
    return np.asarray(np.where(here, x - centre, 0.0))


def pulls_drift(pulls: FloatArray, early: FloatArray) -> float:
    """Chance of such a change within tasks if the order of a task's pulls were random.

    `early` are those of `pulls` that came first. A chi-square over tasks and arms, with the exact
    mean and variance of dealing at random in large tasks.
    """
    total, first = pulls.sum(axis=1, keepdims=True), early.sum(axis=1, keepdims=True)
    told = ((first > 0) & (first < total) & (total > 1))[:, 0]
    pulls, early, total, first = (x[told] for x in (pulls, early, total, first))
    expected = pulls * first / np.maximum(total, 1.0)
    share = first / np.maximum(total, 1.0)
    var = np.maximum(pulls * share * (1 - share), 1e-300)
    square = np.where(pulls > 0, (early - expected) ** 2 / var, 0.0).sum(axis=1)
    square = square * ((total - 1) / np.maximum(total, 1.0))[:, 0]
    degrees = float(np.maximum((pulls > 0).sum(axis=1) - 1, 0).sum())
    return float(chdtrc(degrees, square.sum())) if degrees > 0 else 1.0
