"""Thompson sampling in many tasks side by side, with any normal prior of η that has a level.

Pulls go in batches that grow by a fifth: some dozen steps for a thousand pulls, each over arrays.
"""

import math
from typing import NamedTuple

import numpy as np

from adats.learning.effects import Prior, TaskCounts, Working, linearised
from adats.models.core.types import BoolArray, FloatArray, Rng

GROWTH = 1.2  # of batches
DRAWS = 4  # of the belief in a batch; its pulls are dealt to them
FURTHEST = 1.0  # that η̂ moves in one step
STEPS = 8  # of η̂ until it has settled


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
