"""Simulated clicks and counts of arms that move together, and their evidence by brute force."""

import numpy as np
from scipy.special import expit

from adats.models.latent.family import BINARY
from adats.models.latent.spreads import Log


def counts(rng, tasks, pulls, *, mu, cov, family=BINARY):
    """Pulls, from 0 to twice `pulls`, and successes of every task and arm."""
    theta = rng.multivariate_normal(mu, cov, tasks)
    n = rng.integers(0, 2 * pulls + 1, theta.shape)
    s = rng.binomial(n, expit(theta)) if family is BINARY else rng.poisson(n * np.exp(theta))
    return n.astype(float), s.astype(float)


def wide_log(n, s, *, centre, family=BINARY):
    """With a wide meta-prior."""
    arms = n.shape[1]
    return Log(family, n, s, np.full(arms, centre), np.full((arms, arms), 9.0) + 4 * np.eye(arms))


def brute_log_evidence(log, own, shared, *, points=41, reach=4.0):
    """Of two arms: mu on a grid, then the level, then each theta by quadrature."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(30)
    weights = weights / weights.sum()
    grid = log.mean[0] + np.linspace(-reach, reach, points)
    factor = np.linalg.inv(log.cov)
    away = np.stack(np.meshgrid(grid, grid, indexing="ij"), axis=-1) - log.mean
    logs = -0.5 * np.einsum("ijk,kl,ijl->ij", away, factor, away)
    logs -= np.log(2 * np.pi) + 0.5 * np.log(np.linalg.det(log.cov))
    eta = grid[:, None, None] + shared * nodes[:, None] + own * nodes
    for n, s in zip(log.n, log.s, strict=True):
        arms = []
        for k in range(2):
            density = s[k] * eta - n[k] * log.family.log_partition(eta)
            arms.append(np.exp(density) @ weights)  # (grid, level)
        logs += np.log((arms[0] * weights) @ arms[1].T)
    top = logs.max()
    return top + np.log(np.exp(logs - top).sum() * (grid[1] - grid[0]) ** 2)
