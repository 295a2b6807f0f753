"""Small logs for the tests of the fit: rows as they are, and their statistics by task."""

import numpy as np

from adats.learning.tables import ArmTable, LinearTable
from adats.models import LinearStats
from adats.models.core.linalg import psd_factor
from adats.models.core.stats import ArmStats


def linear_table(log, d):
    """`log` has a pair (features, rewards) for each task."""
    stats = [LinearStats.zeros(d).add(np.reshape(x, (-1, d)), y) for x, y in log]
    moments = np.array([s.moments for s in stats])
    names = tuple(f"x{i}" for i in range(d))
    return LinearTable(tuple(range(len(log))), names, np.array([s.n for s in stats]), moments)


def arm_table(log, arms, kind=ArmStats):
    """`log` has a pair (arms, rewards) for each task."""
    table = np.array([kind.zeros(arms).add(np.array(a, int), y).table for a, y in log])
    return ArmTable(kind, tuple(range(len(log))), tuple("abcdefgh"[:arms]), table)


def linear_log(rng, designs, *, mu, cov, noise):
    """Tasks of a linear model, each with the features of one of `designs`."""
    factor = psd_factor(np.asarray(cov))
    log = []
    for x in designs:
        theta = mu + factor @ rng.standard_normal(len(mu))
        log.append((x, x @ theta + noise * rng.standard_normal(len(x))))
    return log


def arm_log(rng, pulls, *, mu, scale, noise):
    """Tasks of a Gaussian model, each with the arms of one of `pulls`."""
    log = []
    for arms in pulls:
        theta = mu + scale * rng.standard_normal(len(mu))
        log.append((arms, theta[arms] + noise * rng.standard_normal(len(arms))))
    return log
