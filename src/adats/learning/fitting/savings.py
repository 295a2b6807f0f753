"""What a new task saves if it starts from the shared prior: a simulation on the fitted model."""

from typing import NamedTuple

import numpy as np

from adats.models import BetaArms, GaussianArms, LinearBelief, PoissonArms
from adats.models.core.product import ProductArms
from adats.models.core.types import Belief, FloatArray, Rng

WORK = 2e7  # numbers to draw or to update: as many tasks are simulated as that allows
FEWEST, MOST = 200, 4000  # simulated tasks
OFFERED = 10  # arms of a linear bandit in each round


class Savings(NamedTuple):
    """Regret of Thompson sampling with two priors on the same tasks, drawn from the shared one."""

    shared: FloatArray  # (tasks, rounds): expected regret of each round
    alone: FloatArray

    @property
    def share(self) -> float:
        """The part of the regret that sharing saves; 0 where there is no regret to save."""
        lost = float(self.alone.sum())
        return 1.0 - float(self.shared.sum()) / lost if lost > 0 else 0.0

    @property
    def se(self) -> float:
        """Standard error of `share`, from the spread over tasks."""
        lost = self.alone.sum(axis=1)
        if not lost.sum() > 0:
            return 0.0
        rest = self.shared.sum(axis=1) - (1.0 - self.share) * lost
        return float(rest.std(ddof=1) / np.sqrt(len(lost)) / lost.mean())


def _how_many(rounds: int, size: int) -> int:
    return int(min(max(WORK / (rounds * size), FEWEST), MOST))


def _streams(seed: int) -> list[Rng]:
    """One stream for the tasks, and two that are the same for the two agents."""
    world, agent = np.random.SeedSequence(seed).spawn(2)
    return [np.random.default_rng(s) for s in (world, agent, agent)]


def savings_arms(shared: Belief, alone: ProductArms, *, rounds: int, seed: int) -> Savings:
    """Arms. A mixture is replaced by the one prior of its family with its mean and spread."""
    arms = alone.n_arms
    truth = matched(alone, shared.mean, shared.scale)
    shape = (_how_many(rounds, 4 * arms), arms)
    world, *streams = _streams(seed)
    each = [
        prior.of(*(np.broadcast_to(p, shape) for p in prior.parameters()))
        for prior in (truth, alone)
    ]
    theta = each[0].sample(world)
    pairs = zip(each, streams, strict=True)
    return Savings(*(_play_arms(prior, theta, rounds, stream) for prior, stream in pairs))


def matched(like: ProductArms, mean: FloatArray, scale: FloatArray) -> ProductArms:
    """The prior of the family of `like` with this mean and standard deviation of each arm."""
    if isinstance(like, GaussianArms):
        return GaussianArms.of(mean, scale, like.noise)
    variance = np.maximum(scale**2, 1e-12 * mean)
    if isinstance(like, BetaArms):
        strength = np.maximum(mean * (1 - mean) / variance - 1, 1e-3)
        return BetaArms.of(strength * mean, strength * (1 - mean))
    return PoissonArms.of(mean**2 / variance, mean / variance)


def _play_arms(prior: ProductArms, theta: FloatArray, rounds: int, rng: Rng) -> FloatArray:
    """All tasks side by side."""
    table = np.zeros((prior.STATS.ROWS, *theta.shape))
    stats = prior.STATS(table)
    every, best = np.arange(len(theta)), theta.max(axis=1)
    regret = np.empty((rounds, len(theta)))
    for t in range(rounds):
        arm = prior.updated(stats).sample(rng).argmax(axis=1)
        mean = theta[every, arm]
        table[0, every, arm] += 1.0
        table[1, every, arm] += _rewards(prior, mean, rng)
        regret[t] = best - mean
    return regret.T


def _rewards(prior: ProductArms, mean: FloatArray, rng: Rng) -> FloatArray:
    if isinstance(prior, GaussianArms):
        return rng.normal(mean, prior.noise[0, 0])
    if isinstance(prior, BetaArms):
        return (rng.random(mean.size) < mean).astype(np.float64)
    return rng.poisson(mean).astype(np.float64)


def savings_linear(
    shared: LinearBelief,
    alone: LinearBelief,
    *,
    rows: tuple[FloatArray, FloatArray],
    rounds: int,
    seed: int,
) -> Savings:
    """Linear: in each round `OFFERED` arms, with features N(mean, factor @ factorᵀ) from `rows`."""
    dim = len(shared.mean)
    tasks = _how_many(rounds, dim * (OFFERED + 6 * dim))
    world, stream, _ = _streams(seed)
    agents = [_Normal.start(prior, tasks) for prior in (shared, alone)]
    theta = agents[0].sample(world.standard_normal((tasks, dim)))
    regret = np.empty((2, tasks, rounds))
    every = np.arange(tasks)
    for t in range(rounds):
        offered = rows[0] + world.standard_normal((tasks, OFFERED, dim)) @ rows[1].T
        means = np.einsum("skd,sd->sk", offered, theta)
        noise = shared.noise * world.standard_normal(tasks)
        z = stream.standard_normal((tasks, dim))
        for i, agent in enumerate(agents):
            arm = np.einsum("skd,sd->sk", offered, agent.sample(z)).argmax(axis=1)
            agents[i] = agent.tell(offered[every, arm], means[every, arm] + noise, shared.noise)
            regret[i, :, t] = means.max(axis=1) - means[every, arm]
    return Savings(*regret)


class _Normal(NamedTuple):
    """N(mean, factor @ factorᵀ) in every task; a reward is a rank-one update of the factor."""

    mean: FloatArray  # (tasks, d)
    factor: FloatArray  # (tasks, d, d)

    @classmethod
    def start(cls, prior: LinearBelief, tasks: int) -> "_Normal":
        """With the symmetric factor: then the same draws move two agents the same way."""
        left, values, _ = np.linalg.svd(prior.factor)
        root = (left * values) @ left.T
        return cls(np.tile(prior.mean, (tasks, 1)), np.tile(root, (tasks, 1, 1)))

    def sample(self, z: FloatArray) -> FloatArray:
        theta: FloatArray = self.mean + np.einsum("sij,sj->si", self.factor, z)
        return theta

    def tell(self, x: FloatArray, y: FloatArray, noise: float) -> "_Normal":
        """Potter's square-root update: nothing is factorised, singular covariances are legal."""
        f = np.einsum("sij,si->sj", self.factor, x)
        along = np.einsum("sij,sj->si", self.factor, f)
        variance = (f * f).sum(axis=1) + noise**2  # of the reward
        gain = along / variance[:, None]
        mean = self.mean + gain * (y - (x * self.mean).sum(axis=1))[:, None]
        share = 1.0 / (1.0 + noise / np.sqrt(variance))
        return _Normal(mean, self.factor - share[:, None, None] * gain[:, :, None] * f[:, None, :])
