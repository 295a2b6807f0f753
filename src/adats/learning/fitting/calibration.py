"""Are predictions calibrated? Each reward is predicted from those before it in its task.

The probability that the prediction gave to a smaller reward is uniform if all is right, also in a
log that a bandit wrote: the choice of an action depends on the past alone, which is given here.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import betainc, kolmogorov, ndtr, pdtr

from adats.learning.fitting.fitted import Fitted, stats_of
from adats.learning.fitting.unlike import others
from adats.learning.tables import Table
from adats.models import BetaArms, GaussianArms, LinearBelief, MixtureArms
from adats.models.core.stats import ArmStats
from adats.models.core.types import FloatArray, IntArray, Rng, Task
from adats.models.core.weights import softmax
from adats.models.latent.belief import LatentBelief
from adats.models.latent.family import BINARY, NODES, WEIGHTS
from adats.models.latent.full import FullPrior, square
from adats.models.latent.sites import settled

TASKS = 200  # looked at, at most
ROWS = 100  # of each task, its first ones
FINE = 0.03  # a distance from uniform that nobody need care about
FAR = 0.1
LEVEL = 0.01  # chance above which a distance may be an accident
TILT = 0.02  # of the mean from one half
TENSE = 0.05  # of the spread, relative


@dataclass(frozen=True, eq=False)
class Calibration:
    """Probability integral transforms of rewards, one step ahead."""

    values: FloatArray  # uniform between 0 and 1 if all is right
    tasks: int

    @property
    def distance(self) -> float:
        """Largest gap to the uniform distribution function (Kolmogorov and Smirnov)."""
        n, ordered = self.values.size, np.sort(self.values)
        steps = np.arange(n + 1) / n
        return float(max((steps[1:] - ordered).max(), (ordered - steps[:-1]).max()))

    @property
    def chance(self) -> float:
        """Of such a distance or a larger one where all is right."""
        return float(kolmogorov(np.sqrt(self.values.size) * self.distance))

    @property
    def bins(self) -> IntArray:
        """Counts in ten equal parts."""
        return np.histogram(self.values, bins=10, range=(0.0, 1.0))[0].astype(np.intp)

    @property
    def reading(self) -> str:
        """What it means, in words."""
        distance = self.distance
        if distance <= FINE or self.chance > LEVEL:
            return "Calibrated: rewards fall where the predictions say."
        tilt = float(self.values.mean()) - 0.5
        tense = float(self.values.std()) * np.sqrt(12.0) - 1.0
        found = []
        if abs(tense) > TENSE:
            found.append(
                "predictions are too sure: rewards fall too often far out, as with heavy tails, "
                "with a noise that differs between tasks, or with tasks that drift"
                if tense > 0
                else "predictions are not sure enough: rewards fall too often near the middle"
            )
        if abs(tilt) > TILT:
            found.append(f"rewards are {'higher' if tilt > 0 else 'lower'} than predicted")
        words = "; ".join(found) or "rewards do not have the shape that the model gives them"
        return f"{'Not' if distance > FAR else 'Not quite'} calibrated: {words}."


def calibrate(
    table: Table,
    fitted: Fitted,
    rows: Sequence[tuple[Task, IntArray | FloatArray, FloatArray]],
    *,
    rng: Rng,
) -> Calibration:
    """Transforms of the rewards of some tasks; the prior of each comes from the other tasks.

    `rows` has a task, its actions (arms as indices, or features) and its rewards, in the order of
    time. For rewards with steps (0 or 1, and counts) a point of the step is drawn with `rng`.
    """
    if not rows:
        raise ValueError("no rows to look at: give those of at least one task")
    place = {task: i for i, task in enumerate(table.tasks)}
    chosen = np.linspace(0, len(rows) - 1, min(TASKS, len(rows))).round().astype(int).tolist()
    values = []
    for task, actions, rewards in (rows[i] for i in chosen):
        if task not in place:
            raise ValueError(f"task {task!r} has rows, but is not in the statistics")
        prior = others(fitted.meta, stats_of(table, place[task], fitted.meta))
        values.append(transforms(prior, actions[:ROWS], rewards[:ROWS], rng))
    return Calibration(np.concatenate(values), len(chosen))


def transforms(prior: Any, actions: Any, rewards: FloatArray, rng: Rng) -> FloatArray:
    """One a reward: where it falls in what the prior and the earlier rewards predict."""
    if isinstance(prior, LinearBelief):
        return _linear(prior, actions, rewards)
    before = _before(actions, rewards, prior.mean.size)
    if isinstance(prior, GaussianArms):
        now = prior.columns(actions.tolist()).updated(ArmStats(before))
        far: FloatArray = ndtr((rewards - now.mean) / np.hypot(now.scale, now.noise))
        return far
    if isinstance(prior, LatentBelief):
        low, high = _latent_steps(prior, actions, rewards)
    else:
        low, high = _steps(prior, actions, rewards, before)
    return low + rng.random(rewards.size) * (high - low)


def _linear(prior: LinearBelief, actions: FloatArray, rewards: FloatArray) -> FloatArray:
    """A Cholesky factor of the rewards' covariance predicts each from those before it."""
    half = actions @ prior.factor
    cov = half @ half.T
    cov.flat[:: len(cov) + 1] += prior.noise**2
    left = solve_triangular(np.linalg.cholesky(cov), rewards - actions @ prior.mean, lower=True)
    far: FloatArray = ndtr(left)
    return far


def _before(actions: IntArray, rewards: FloatArray, arms: int) -> FloatArray:
    """Pulls and their total of the same arm before each row; other statistics are not needed."""
    pulled = np.zeros((len(rewards), arms))
    pulled[np.arange(len(rewards)), actions] = 1.0
    table = np.zeros((4, len(rewards)))
    for row, what in zip(table, (pulled, pulled * rewards[:, None]), strict=False):
        row[:] = (what.cumsum(axis=0) - what)[np.arange(len(rewards)), actions]
    return table


def _steps(
    prior: MixtureArms, actions: IntArray, rewards: FloatArray, before: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Probabilities of a smaller reward, and of one that is not larger."""
    if prior.log_weights.shape[1] != prior.components.n_arms:
        raise ValueError("every arm must have a mixture of its own")
    each = prior.components.columns(actions.tolist())
    stats = each.STATS(before)
    weights = softmax(prior.log_weights[:, actions] + each.arm_log_evidence(stats))
    now = each.updated(stats)
    if isinstance(now, BetaArms):
        miss = 1.0 - (weights * now.mean).sum(axis=0)
        return np.where(rewards > 0, miss, 0.0), np.where(rewards > 0, 1.0, miss)
    shape, rate = now.parameters()
    share = rate / (rate + 1.0)  # counts are negative binomial
    high = (weights * betainc(shape, rewards + 1.0, share)).sum(axis=0)
    low = (weights * betainc(shape, np.maximum(rewards, 1.0), share)).sum(axis=0)
    return np.where(rewards > 0, low, 0.0), high


def _latent_steps(
    prior: LatentBelief, actions: IntArray, rewards: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """The same where arms move together: all earlier rows count, those of other arms too."""
    rows = np.arange(len(rewards))
    pulled = np.zeros((len(rewards), prior.eta_mean.shape[1]))
    pulled[rows, actions] = 1.0
    n, s = ((what.cumsum(axis=0) - what) for what in (pulled, pulled * rewards[:, None]))
    at = FullPrior(prior.eta_mean[0], square(prior.factor)[0], None)
    mean, variance = at.marginals(settled(prior.family, n, s, at, np.zeros((3, *n.shape))))
    mean, scale = mean[rows, actions], np.sqrt(variance[rows, actions])
    if prior.family is BINARY:
        miss = 1.0 - prior.family.expected(mean, scale)[0]
        return np.where(rewards > 0, miss, 0.0), np.where(rewards > 0, 1.0, miss)
    rates = prior.family.mean(mean[:, None] + scale[:, None] * NODES)
    high = pdtr(rewards[:, None], rates) @ WEIGHTS
    low = pdtr(np.maximum(rewards - 1.0, 0.0)[:, None], rates) @ WEIGHTS
    return np.where(rewards > 0, low, 0.0), high
