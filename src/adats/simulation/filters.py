"""Rivals where Gaussian arms move: the exact filter, and rules by which others forget.

The formulas are for floats or arrays, and compiled in `kernels/moving.py`. The agents are plain,
and the reference for the compiled loops.
"""

from typing import NamedTuple

import numpy as np

from adats.models import GaussianMeta
from adats.models.core.types import N, Rng


def filtered(
    mu: N, theta: N, width: N, shared: N, variance: N, y: N, noise: N
) -> tuple[N, N, N, N, N]:
    """One step of the Kalman filter of (mu, theta) of an arm, after a reward y of variance `noise`.

    `mu` and `theta` are their means, `width` and `variance` their variances, `shared` is their
    covariance.
    """
    error, whole = y - theta, variance + noise
    of_mu, of_theta = shared / whole, variance / whole  # gains
    return (
        mu + of_mu * error,
        theta + of_theta * error,
        width - of_mu * shared,
        noise * of_mu,
        noise * of_theta,
    )


def faded_precision(precision: N, rate: float, floor: N) -> N:
    """What is left of a precision; with a floor it falls to that, else to nothing."""
    return rate * precision + (1.0 - rate) * floor


def updated(centre: N, precision: N, y: N, weight: N) -> tuple[N, N]:
    """Mean and precision after a reward y of precision `weight`."""
    whole = precision + weight
    return (precision * centre + weight * y) / whole, whole


class Pull(NamedTuple):
    action: int


class FilterAgent:
    """Thompson sampling by the exact filter: told by how much mu and theta move.

    mu takes a step before each task but the first, theta before each round of a task but its
    first. Tasks come one after another.
    """

    def __init__(self, meta: GaussianMeta, mu_step: float, theta_step: float, rng: Rng) -> None:
        self.rng, self.task = rng, -1
        self.mu, self.width = meta.meta_mean.copy(), meta.meta_scale**2
        self.theta, self.shared, self.variance = self.mu, self.width, self.width
        self.spread, self.noise = meta.task_scale**2, meta.noise**2
        self.mu_step, self.theta_step = mu_step**2, theta_step**2

    def ask(self, task: int) -> Pull:
        if task == self.task:
            self.variance += self.theta_step
        else:
            self.width = self.width + (self.mu_step if task else 0.0)
            self.task, self.theta, self.shared = task, self.mu.copy(), self.width.copy()
            self.variance = self.width + self.spread
        normals = self.rng.standard_normal(self.mu.size)
        return Pull(int(np.argmax(self.theta + np.sqrt(self.variance) * normals)))

    def tell(self, decision: Pull, reward: float) -> None:
        arm = decision.action
        columns = (self.mu, self.theta, self.width, self.shared, self.variance)
        mu, theta, width, shared, variance = (float(column[arm]) for column in columns)
        told = filtered(mu, theta, width, shared, variance, reward, float(self.noise[arm]))
        for column, value in zip(columns, told, strict=True):
            column[arm] = value


class DecayAgent:
    """Thompson sampling with the forgetting of bayesianbandits 1.5, an arm a `NormalRegressor`.

    Precisions fade by a `rate`. With the rules "exponential" and "stabilized" those of all arms do
    at each round (their `decay`), to nothing or to those of the prior; with "directional" that of
    an arm when it has a reward (their `forgetting`, where all but the stabilized rule do the same
    to single arms). Each task starts from the marginal prior; or all are one, `pooled`.
    """

    def __init__(self, meta: GaussianMeta, rate: float, rule: str, pooled: bool, rng: Rng) -> None:
        self.rng, self.task, self.pooled, self.rate = rng, -1, pooled, rate
        prior = meta.task_prior()
        self.weight, self.prior = meta.noise**-2.0, (prior.mean, prior.scale**-2.0)
        self.ticks = rule != "directional"
        self.floor = self.prior[1] if rule == "stabilized" else np.zeros(prior.mean.size)

    def ask(self, task: int) -> Pull:
        if self.task < 0 or (task != self.task and not self.pooled):
            self.centre, self.precision = (value.copy() for value in self.prior)
        self.task = task
        normals = self.rng.standard_normal(self.centre.size)
        return Pull(int(np.argmax(self.centre + normals / np.sqrt(self.precision))))

    def tell(self, decision: Pull, reward: float) -> None:
        arm, sure = decision.action, self.precision
        if not self.ticks:
            sure[arm] *= self.rate
        self.centre[arm], sure[arm] = updated(
            float(self.centre[arm]), float(sure[arm]), reward, float(self.weight[arm])
        )
        if self.ticks:
            self.precision = faded_precision(sure, self.rate, self.floor)
