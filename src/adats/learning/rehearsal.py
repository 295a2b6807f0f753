"""Thompson sampling in many tasks side by side, with any normal prior of η that has a level.

Pulls go in batches that grow by a fifth: some dozen steps for a thousand pulls, each over arrays.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

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
        level, own = rng.standard_normal(self.level.shape), rng.standard_normal(self.base.shape)
        drawn: FloatArray = self.mean + self.around(level, own)
        return drawn

    def around(self, level: Any, own: Any) -> Any:
        """η less its mean, where the standard normal numbers of levels and arms are these.

        As precise as they are: draws need not be.
        """
        found = np.sqrt(self.var).astype(own.dtype) * own
        if np.any(self.level_var):
            found += (self.slope * np.sqrt(self.level_var)).astype(own.dtype) * level
        return found


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
