"""Many runs at once of the detector of changes, in arrays: Gaussian arms or clicks, one task after
another. Its formulas are its own, for single rewards and a prior with independent arms."""

from typing import NamedTuple

import numpy as np
from scipy.special import ndtr, ndtri

FAR, USUAL, PRIOR_MEMORY, TASK_MEMORY = 3.0, 10.0, 6.0, 8.0
BELOW = ndtr(-FAR)


class World(NamedTuple):
    """Arms whose means differ between tasks by `task_scale` around mu; or clicks, whose rates are
    known to be Beta(a, b), and mu is how far their mean has gone, in standard deviations."""

    arms: int
    task_scale: float = 1.0
    scale: float = 1.0
    noise: float = 1.0
    clicks: tuple[float, float] | None = None
    believed: tuple[float, float] = (1.0, 1.0)  # task scale and noise, of what they are
    tasks: int = 100
    rounds: int = 100
    jump: int | None = None  # the task at which mu goes up or down by a task scale in every arm
    size: float = 1.0
    signs: str = "random"  # or "up", "down"
    turn: int | None = None  # the round at which the last task's theta is drawn anew


class Found(NamedTuple):
    """The largest evidence in each task of each run."""

    prior: np.ndarray
    tasks: np.ndarray
    last: np.ndarray  # that of tasks in each round of the last task


class Bets:
    """Shifts of all arms together and of each, in every run."""

    def __init__(self, runs, arms):
        self.mean, self.variance = np.zeros((runs, arms + 1)), np.ones((runs, arms + 1))

    def odds(self, arm, size, low, high, seen, less, temper, memory):
        rows, load = np.arange(len(arm)), size * np.sqrt(0.5)
        at = np.stack([np.zeros_like(arm), arm + 1], axis=1)
        mean, variance = self.mean[rows[:, None], at], self.variance[rows[:, None], at]
        centre, wide = mean.sum(axis=1) * load, variance.sum(axis=1) * load**2
        scale = temper * less
        odds = multiplied(low, high, centre / np.sqrt(scale), wide / scale, np.sqrt(temper))
        gain = variance * (load / (wide + temper))[:, None]
        self.mean[rows[:, None], at] += gain * (seen - centre)[:, None]
        self.variance[rows[:, None], at] -= gain * variance * load[:, None]
        keep = (1 - size**2 / (2 * memory))[:, None]
        self.mean *= keep
        self.variance = 1 - keep**2 * (1 - self.variance)
        return np.where(size > 0, odds, 1.0)


def multiplied(low, high, centre, variance, root):
    wide = 1 + variance

    def ratio(score):
        z = score / root
        return np.exp(0.5 * (z**2 - (z - centre) ** 2 / wide)) / np.sqrt(wide)

    if low is high:
        return ratio(scores(low))
    precision = 1 - variance / (wide * root**2)
    top = centre / (root * wide * precision)
    ends = [(scores(level) - top) * np.sqrt(precision) for level in (low, high)]
    inside = (ndtr(ends[1]) - ndtr(ends[0])) / np.sqrt(wide * precision)
    inside *= np.exp(0.5 * (precision * top**2 - centre**2 / wide))
    return (inside + tail(low, high) * ratio(-FAR) + tail(1 - high, 1 - low) * ratio(FAR)) / (
        high - low
    )


def normal_score(low, high):
    if low is high:
        return scores(low)
    inside = np.diff(np.exp(-0.5 * np.stack([scores(high), scores(low)]) ** 2), axis=0)[0]
    outside = FAR * (tail(1 - high, 1 - low) - tail(low, high))
    return (inside / np.sqrt(2 * np.pi) + outside) / (high - low)


def tail(low, high):
    return np.maximum(np.minimum(high, BELOW) - low, 0)


def scores(level):
    return np.clip(ndtri(level), -FAR, FAR)


def study(world, runs, seed, rewards=None):
    """Thompson sampling in every run, with bets on each reward. `rewards` are added to, if given:
    the task, arm and reward of the first run."""
    rng, rows, arms = np.random.default_rng(seed), np.arange(runs), world.arms
    mu = rng.normal(0, world.scale, (runs, arms)) * (world.clicks is None)
    spread, noise = world.task_scale * world.believed[0], world.noise * world.believed[1]
    centre, doubt = np.zeros((runs, arms)), np.full((runs, arms), world.scale**2)
    shared, squares, count = Bets(runs, arms), np.zeros(runs), 0
    apart, expected = np.zeros(runs), np.zeros(runs)
    prior, pooled, finished = np.zeros(runs), np.zeros(runs), np.zeros(runs)
    tops = np.zeros((2, runs, world.tasks))
    last = np.zeros((runs, world.rounds))
    for task in range(world.tasks):
        if task == world.jump:
            signs = {"random": rng.choice([-1, 1], (runs, arms)), "up": 1, "down": -1}
            mu = mu + signs[world.signs] * world.size * world.task_scale
        theta = drawn(world, mu, rng)
        n, total = np.zeros((2, runs, arms))
        own, deviation, evidence = Bets(runs, arms), np.zeros((runs, arms)), np.zeros(runs)
        prior += 1
        for i in range(world.rounds):
            if task == world.tasks - 1 and i == world.turn:
                theta = drawn(world, mu, rng)
            arm, reward, low, high, size, keep = one_reward(
                world, (centre, doubt, spread, noise), n, total, theta, rng
            )
            if rewards is not None:
                rewards.append((task, int(arm[0]), float(reward[0])))
            usual = (USUAL + squares) / (USUAL + count)
            less, sure = np.minimum(usual, 1), apart - np.sqrt(2 * expected)
            temper = np.maximum(np.maximum(usual, 1), (USUAL + sure) / (USUAL + expected))
            score = normal_score(low, high)
            seen = score / np.sqrt(less)
            rest = low, high, seen, less, temper
            prior *= shared.odds(arm, keep * size, *rest, PRIOR_MEMORY * arms)
            odds = own.odds(arm, (1 - keep) * size, *rest, TASK_MEMORY)
            pooled, evidence = (pooled + 1) * odds, (evidence + 1) * odds
            squares, count = squares + score**2, count + 1
            more, before = keep * size * seen, deviation[rows, arm]
            apart, expected = apart + (2 * before + more) * more, expected + (keep * size) ** 2
            deviation[rows, arm] += more
            of_tasks = (pooled + finished + evidence) / 2
            tops[0, :, task] = np.maximum(tops[0, :, task], prior)
            tops[1, :, task] = np.maximum(tops[1, :, task], of_tasks)
            last[:, i] = of_tasks
            n[rows, arm] += 1
            total[rows, arm] += reward
        finished += evidence
        if world.clicks is None:
            often = np.maximum(n, 1)
            known = 1 / (spread**2 + noise**2 / often)
            less_doubt = 1 / (1 / doubt + known)
            centre = np.where(n > 0, less_doubt * (centre / doubt + known * total / often), centre)
            doubt = np.where(n > 0, less_doubt, doubt)
    return Found(*tops, last)


def drawn(world, mu, rng):
    if world.clicks is not None:
        a, b = world.clicks  # believed; where mu has moved, rates have another mean
        rate = a / (a + b)
        rate = rate + mu * np.sqrt(rate * (1 - rate) / (a + b + 1))
        return rng.beta((a + b) * rate, (a + b) * (1 - rate))
    return mu + world.task_scale * rng.standard_normal(mu.shape)


def one_reward(world, believed, n, total, theta, rng):
    """What is pulled and what it brings; between which levels that falls; and how far a standard
    deviation of the prior moves it, with the share of the prior."""
    rows = np.arange(len(n))
    if world.clicks is not None:
        a, b = world.clicks
        arm = rng.beta(a + total, b + n - total).argmax(axis=1)
        pulls, hits = n[rows, arm], total[rows, arm]
        rate = (a + hits) / (a + b + pulls)
        reward = (rng.random(len(n)) < theta[rows, arm]).astype(float)
        low, high = np.where(reward > 0, 1 - rate, 0.0), np.where(reward > 0, 1.0, 1 - rate)
        now, before = rate * (1 - rate) / (a + b + pulls + 1), a * b / (a + b) ** 2 / (a + b + 1)
        keep = np.minimum(now / before, 1)
        return arm, reward, low, high, np.sqrt(before / (now + rate * (1 - rate))), keep
    centre, doubt, spread, noise = believed
    wide = doubt + spread**2
    share = 1 / (1 + n * wide / noise**2)
    mean = share * (centre + wide / noise**2 * total)
    arm = (mean + np.sqrt(share * wide) * rng.standard_normal(n.shape)).argmax(axis=1)
    now, pulls = (share * wide)[rows, arm], n[rows, arm]
    taught = pulls / (pulls * spread**2 + noise**2)  # by the task itself to mu
    before = spread**2 + 1 / (1 / doubt[rows, arm] + taught)
    keep = np.minimum(now / before, 1)
    sure = np.sqrt(now + noise**2)
    reward = theta[rows, arm] + world.noise * rng.standard_normal(len(n))
    level = ndtr((reward - mean[rows, arm]) / sure)
    return arm, reward, level, level, np.sqrt(before) / sure, keep
