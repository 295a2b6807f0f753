"""Is sharing worth it where arms are rows of features? Held-out scores, and a simulation.

The statistics of such a log do not say which arms were on offer, so its tasks cannot be played
again as `verdict` does. The opponent is a task by itself: coefficients, each in units of the size
of its feature, with one normal prior around zero (an intercept: around the mean reward).
"""

import math
from typing import NamedTuple

import numpy as np

from adats.learning.em import held_out
from adats.learning.fitted import ENOUGH_TASKS, Fitted
from adats.learning.fitting import estimate
from adats.learning.savings import Saving
from adats.learning.tables import LinearTable
from adats.learning.verdict import FEWEST, WORTH, Answer, Verdict, nothing
from adats.models import LinearBelief
from adats.models.core.linalg import psd_factor
from adats.models.core.types import FloatArray

EXACT = 1e-9  # relative: a column whose squares are this even in all tasks is an intercept
LOGS = (-28.0, 28.0)  # least and greatest log of a ratio of variances
MOST = 2000  # tasks that are scored; of more, some are drawn
ERRORS = 2.0  # standard errors by which the held-out gain must exceed zero
LONGEST = 1000  # rounds of a simulated task
WORK = 2e7  # numbers to draw or to update: as many tasks are simulated as that allows
SIMULATED = 200, 4000  # tasks, at least and at most
OFFERED = 10  # arms in each round


def linear_verdict(
    table: LinearTable, fitted: Fitted, *, diagonal: bool = False, seed: int
) -> Verdict:
    """Share, if held-out tasks gain more than two standard errors and a new one saves 5 %.

    `fitted` is what `estimate` made of the table with the same `diagonal`. A new task has as many
    rounds as the median task of the log, and ten arms a round with features like the log's.
    """
    if len(table) < FEWEST:
        return nothing(f"{len(table)} tasks are too few to tell; {FEWEST} are the least")
    try:
        gains = held_out_gains(table, diagonal=diagonal, seed=seed)
    except ValueError as error:  # what is left of the log is not enough for a fit
        return nothing(f"with a fifth of the tasks left out there is no fit: {error}")
    both = fitted.meta.task_prior(), alone_linear(table, fitted.noise)
    saved = savings(*both, rows=action_rows(table), rounds=usual_rounds(table), seed=seed)
    return judged(gains, saved, few=len(table) < ENOUGH_TASKS * len(table.features))


def judged(gains: FloatArray, saved: "Savings", *, few: bool) -> Verdict:
    """The rule, in order: share; better, but for nothing; cannot tell; each for itself."""
    gain, se = float(gains.mean()), float(gains.std(ddof=1)) / math.sqrt(gains.size)
    better, worse = gain > ERRORS * se, gain < -ERRORS * se
    answer: Answer
    if better and saved.share >= WORTH:
        answer, how = "share", "better"
    elif not better and (few or (not worse and saved.share >= WORTH)):
        answer, how = "too little data", "neither clearly better nor clearly worse"
    else:
        answer, how = "each for itself", "better" if better else "worse" if worse else "no better"
    reason = (
        f"the shared prior predicts tasks that it has not seen {how} than each could by itself: "
        f"their rewards are {math.exp(min(gain, 50.0)):.3g} times as likely, a task on average"
    )
    over = Saving(1.0 - saved.share, saved.se)
    return Verdict(answer, None, over.part, (over.low, over.high), (reason,), over)


def held_out_gains(table: LinearTable, *, diagonal: bool, seed: int) -> FloatArray:
    """Log density of each task's rewards, fitted to the other folds: shared less alone."""
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(1,)))
    if len(table) > MOST:
        table = table.subset(np.sort(rng.choice(len(table), MOST, replace=False)))
    gains = np.empty(len(table))
    for train, test in held_out(table.tasks):
        others, held = table.subset(train), table.subset(test)
        fitted = estimate(others, model=table.model, diagonal=diagonal)
        own = alone_linear(others, fitted.noise)
        each = (own.condition(held.stats(i)).log_evidence for i in range(len(held)))
        gains[test] = fitted.log_density(held) - np.fromiter(each, np.float64, len(held))
    return gains


def usual_rounds(table: LinearTable) -> int:
    """Rows of the median task."""
    return max(1, min(round(float(np.median(table.n[table.n > 0]))), LONGEST))


def alone_linear(table: LinearTable, noise: float | None) -> LinearBelief:
    from scipy.optimize import minimize_scalar

    sigma = noise or 1.0
    size, mean = table.units, np.zeros(len(table.features))
    if (column := intercept(table)) is not None:
        mean[column] = table.moments[:, column, -1].sum() / (size[column] ** 2 * table.n.sum())
    gram = table.moments[:, :-1, :-1]
    shift = (table.moments[:, :-1, -1] - gram @ mean) / (size * sigma)
    values, vectors = np.linalg.eigh(gram / np.outer(size, size))
    squares = np.einsum("sij,si->sj", vectors, shift) ** 2
    values = np.maximum(values, 0.0)

    def loss(log_ratio: float) -> float:  # of the variances: between tasks, and of the noise
        ratio = math.exp(log_ratio)
        grown = 1 + ratio * values
        return 0.5 * float((np.log(grown) - ratio * squares / grown).sum())

    best = minimize_scalar(loss, bounds=LOGS, method="bounded")
    return LinearBelief.of(mean, np.diag(sigma * math.exp(best.x / 2) / size), sigma)


def intercept(table: LinearTable) -> int | None:
    """The only feature that has the same size in every row, if there is just one such."""
    squares = np.diagonal(table.moments, axis1=1, axis2=2)[:, :-1]
    expected = table.n[:, None] * table.units**2
    even = (np.abs(squares - expected) <= EXACT * expected).all(axis=0)
    return int(even.argmax()) if even.sum() == 1 else None


def action_rows(table: LinearTable) -> tuple[FloatArray, FloatArray]:
    """Mean and factor of features drawn like those of the log: N(mean, factor @ factorᵀ)."""
    moment = table.moments[:, :-1, :-1].sum(axis=0) / table.n.sum()
    mean = np.zeros(len(moment))
    if (column := intercept(table)) is not None:
        mean = moment[column] / math.sqrt(moment[column, column])
    cov = moment - np.outer(mean, mean)
    if column is not None:
        cov[column] = cov[:, column] = 0.0
    return mean, psd_factor(cov)


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


def savings(
    shared: LinearBelief,
    alone: LinearBelief,
    *,
    rows: tuple[FloatArray, FloatArray],
    rounds: int,
    seed: int,
) -> Savings:
    """Linear: in each round `OFFERED` arms, with features N(mean, factor @ factorᵀ) from `rows`."""
    dim = len(shared.mean)
    tasks = int(np.clip(WORK / (rounds * dim * (OFFERED + 6 * dim)), *SIMULATED))
    seeds = np.random.SeedSequence(seed).spawn(2)
    world, stream = (np.random.default_rng(one) for one in seeds)
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
