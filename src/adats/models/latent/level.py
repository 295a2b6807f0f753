"""Arms that share a level in every task: the covariance diag(own) + shared·11ᵀ.

Given the level, arms are independent, so every formula is a sum over arms, and nothing has to be
factorised. Arrays end in (candidates, arms); `own` and `shared` may have one column for all arms.
"""

import math
from typing import NamedTuple, Self

import numpy as np

from adats.models.core.draws import Draws
from adats.models.core.linalg import ones, times
from adats.models.core.types import FloatArray, IntArray, Rng
from adats.models.latent.sites import LEAST_VARIANCE

AT_A_TIME = 512  # tasks, where many are summed: what a processor's cache can hold


def in_common(together: FloatArray, squares: FloatArray) -> FloatArray:
    """The mean covariance of two arms, from the sums over all pairs and over the diagonal.

    It is at least 0, and at most the least variance.
    """
    arms = squares.shape[-1]
    mean = (together - squares.dot(ones(arms))) / max(arms * (arms - 1), 1)
    common: FloatArray = np.minimum(np.maximum(mean, 0.0), np.minimum.reduce(squares, axis=-1))
    return common[..., None]


class LevelPrior(NamedTuple):
    """eta ~ N(mean, diag(own) + shared·11ᵀ), as sites need it."""

    mean: FloatArray
    own: FloatArray
    shared: FloatArray

    def by_level(self) -> Self:
        """Mean, own and shared variance."""
        return self

    def cavities(self, sites: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of each eta, from all sites but its own."""
        a, e = self._about_level(sites)
        one = ones(a.shape[-1])
        rest = a.dot(one)[..., None] - a
        variance = self.shared / (1.0 + self.shared * rest)
        m = self.mean + variance * (e.dot(one)[..., None] - e)
        return m, self.own + variance

    def cavity(self, sites: FloatArray, arm: int) -> tuple[FloatArray, FloatArray]:
        """Those of one arm."""
        a, e = self._about_level(sites)
        one, shared = ones(a.shape[-1]), self.shared[..., 0]
        variance = shared / (1.0 + shared * (a.dot(one) - a[..., arm]))
        m = self.mean[..., arm] + variance * (e.dot(one) - e[..., arm])
        return m, self.own[..., arm] + variance

    def _about_level(self, sites: FloatArray) -> tuple[FloatArray, FloatArray]:
        """What each arm says about the level: its precision, and precision times mean."""
        w = sites[0]
        q = self.own * w
        q += 1.0
        a = w / q
        e = sites[1] / q
        e -= a * self.mean
        return a, e


class LevelSpread(NamedTuple):
    """theta ~ N(mu, σ_0² I + τ² 11ᵀ) in a task."""

    own: FloatArray  # σ_0², of shape (candidates, 1)
    shared: FloatArray  # τ²

    def prior(self, mean: FloatArray, cov: FloatArray) -> LevelPrior:
        """Of theta where mu ~ N(mean, cov), with the level that comes nearest to this cov."""
        variances = np.einsum("...ii->...i", cov)
        common = in_common(cov.sum(axis=(-1, -2)), variances)
        own = np.maximum(variances - common + self.own, LEAST_VARIANCE)
        return LevelPrior(mean, own, common + self.shared)

    def message(self, sites: FloatArray, found: FloatArray) -> None:
        """Put what a task says of x = (mu, 1) into `found`: log p(rewards | mu) = -½ xᵀT x.

        Its blocks are M = P G̃, minus h = P b̃, and -2c.
        """
        w, b, log_s = sites[0], sites[1], sites[2]
        arms = w.shape[-1]
        one, shared = ones(arms), self.shared[:, 0]
        q = self.own * w
        q += 1.0
        a, e = w / q, b / q
        known = 1.0 + shared * a.dot(one)
        x = np.empty((*w.shape[:-1], arms + 1))
        x[..., :-1] = a
        np.negative(e.dot(one), out=x[..., -1])
        scaled = x * (shared / -known)[..., None]
        np.multiply(scaled[..., None], x[..., None, :], out=found)
        found.reshape(*found.shape[:-2], -1)[..., : -1 : arms + 2] += a
        found[..., -1, :-1] -= e
        found[..., :-1, -1] -= e
        rest = np.log(q)
        e *= self.own
        e *= b
        rest -= e
        rest -= 2.0 * log_s
        found[..., -1, -1] += np.log(known) + rest.dot(one)

    def message_sum(self, sites: FloatArray) -> FloatArray:
        """The sum of what many tasks say; the sites of each task are along the second axis."""
        starts = range(0, sites.shape[1], AT_A_TIME)
        parts = (sites[:, i : i + AT_A_TIME] for i in starts)
        return sum(map(self._message_sum, parts), start=np.zeros(()))

    def _message_sum(self, sites: FloatArray) -> FloatArray:
        """The same blocks as in `message`, summed by one product of matrices a candidate."""
        w, b, log_s = np.ascontiguousarray(sites)
        q = 1.0 / (1.0 + self.own * w)
        a, e = w * q, b * q
        x = np.concatenate([a, -np.add.reduce(e, axis=-1, keepdims=True)], axis=-1)
        known = 1.0 + self.shared * np.add.reduce(a, axis=-1, keepdims=True)
        scaled = np.moveaxis(x * (self.shared / -known), 0, -1)
        found: FloatArray = np.matmul(scaled, np.moveaxis(x, 0, -2))
        arms = np.arange(w.shape[-1])
        found[:, arms, arms] += np.add.reduce(a, axis=0)
        shift = np.add.reduce(e, axis=0)
        found[:, -1, :-1] -= shift
        found[:, :-1, -1] -= shift
        rest = np.add.reduce(self.own * b * e + np.log(q) + 2.0 * log_s, axis=(0, 2))
        found[:, -1, -1] += np.add.reduce(np.log(known), axis=(0, 2)) - rest
        return found

    def _parts(
        self, sites: FloatArray, mu: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Of each arm what its own rewards leave over, and what they say about the level; the
        variance of the level given them all, and the mean of theta."""
        w, b = sites[0], sites[1]
        q = 1.0 / (1.0 + self.own * w)
        a, one = w * q, ones(w.shape[-1])
        gain = self.shared / (1.0 + self.shared * a.dot(one)[..., None])
        about = (b * q - a * mu).dot(one)[..., None]
        return q, a, gain, q * (mu + gain * about + self.own * b)

    def moments(
        self, sites: FloatArray, mu: FloatArray, cov: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Mean and variance of each entry of theta in a task with these sites, where mu ~ N(mu,
        cov), and the variance that they have in common."""
        q, a, gain, mean = self._parts(sites, mu)
        one = ones(q.shape[-1])
        sides = np.empty((*q.shape, 2))
        sides[..., 0], sides[..., 1] = a, q
        sides = np.matmul(cov, sides)
        known, sums = sides[..., 0] * gain, q.dot(one)[..., None]
        level = gain * (1.0 + (a * known).dot(one)[..., None])
        rest = level - 2.0 * known
        squares = np.maximum(np.einsum("...ii->...i", cov) + rest, 0.0) * q * q
        together = (q * (sides[..., 1] + sums * rest)).dot(one)
        return mean, self.own * q + squares, in_common(together, squares)

    def joint(
        self, sites: FloatArray, mu: FloatArray, cov: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Mean and covariance of theta in a task with these sites, where mu ~ N(mu, cov)."""
        q, a, gain, mean = self._parts(sites, mu)
        known = times(cov, a) * gain
        level = gain * (1.0 + (a * known).dot(ones(q.shape[-1]))[..., None]) - known
        found = cov - known[..., None, :]
        found += level[..., None]
        found *= q[..., None]
        found *= q[..., None, :]
        diagonal = np.einsum("...ii->...i", found)
        diagonal += self.own * q
        return mean, found

    def given(
        self, sites: FloatArray, mu: FloatArray, factor: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Mean and factor of theta in a task with these sites, where mu ~ N(mu, factor factorᵀ)."""
        q, a, gain, mean = self._parts(sites, mu)
        arms = q.shape[-1]
        wide = np.zeros((*q.shape, arms + 1 + factor.shape[-1]))
        diagonal = np.einsum("...ii->...i", wide[..., :arms])
        np.sqrt(self.own * q, out=diagonal)
        wide[..., arms] = q * np.sqrt(gain)
        moved = factor - (gain * times(np.swapaxes(factor, -1, -2), a))[..., None, :]
        np.multiply(q[..., None], moved, out=wide[..., arms + 1 :])
        return mean, wide

    def sample(self, which: int, sites: FloatArray, mu: FloatArray, rng: Rng) -> FloatArray:
        """A draw of theta under one candidate, where mu is known."""
        own, shared = self.own.item(which), self.shared.item(which)
        w = sites[0, which]
        q = own * w
        q += 1.0
        a = w / q
        left = sites[1, which] / q
        left -= a * mu
        one = ones(w.size)
        gain = shared / (1.0 + shared * float(a.dot(one)))
        z = rng.standard_normal(w.size + 1)
        level = gain * float(left.dot(one)) + math.sqrt(gain) * z.item(-1)
        theta: FloatArray = np.sqrt(own / q)
        theta *= z[:-1]
        theta += mu
        theta += level / q
        theta += own * left
        return theta

    def sample_many(
        self, which: IntArray, sites: FloatArray, mu: FloatArray, rng: Draws
    ) -> FloatArray:
        """A draw of theta in each of many tasks, with the sites of its own candidate."""
        own, shared = self.own[which], self.shared[which]
        w, b = sites[0], sites[1]
        q = 1.0 / (1.0 + own * w)
        left = (b - w * mu) * q
        gain = shared / (1.0 + shared * np.add.reduce(w * q, axis=-1, keepdims=True))
        z = rng.standard_normal((len(mu), mu.shape[1] + 1))
        level = gain * np.add.reduce(left, axis=-1, keepdims=True) + np.sqrt(gain) * z[:, -1:]
        theta: FloatArray = np.sqrt(own * q) * z[:, :-1] + mu + level * q + own * left
        return theta

    def sizes(self, which: int) -> tuple[float, float]:
        """σ_0 and τ of one candidate."""
        return math.sqrt(self.own.item(which)), math.sqrt(self.shared.item(which))

    def covs(self, arms: int) -> FloatArray:
        """Σ_0 of every candidate."""
        return self.own[..., None] * np.eye(arms) + self.shared[..., None]

    def own_variances(self, arms: int) -> FloatArray:
        """What each entry of theta has for itself, beside the level."""
        return self.own * ones(arms)
