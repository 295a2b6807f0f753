"""Clicks and counts the slow way: sums over grids, importance sampling and a Gibbs sampler.

The model is mu ~ N(mean, cov), theta_s ~ N(design @ mu, own·I + shared·11ᵀ) in task s, and n
rewards of an arm with the sum y have the log density y·theta - n·A(theta). `pulls` and `wins` have
a row a task and a column an arm. Nothing here uses the sites of the model that is tested.
"""

from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, logsumexp
from scipy.stats import qmc
from scipy.stats import t as student

STEP = 0.04  # of tables over theta: cubic in between, so within 1e-5
TERMS = 30  # of the sum that makes a Pólya-Gamma variable
FREEDOM = 8  # of the Student law from which mu is drawn
FALL = 45.0  # what is this much less likely than the mode, in logs, does not count


def log_density(family, n, y, theta):
    """Of the rewards of one arm, or of many, up to what does not depend on theta."""
    if family == "binary":
        return y * theta - n * np.logaddexp(0.0, theta)
    with np.errstate(over="ignore"):
        return np.maximum(y * theta - n * np.exp(theta), -1e300)


def draw_rewards(family, pulls, theta, rng):
    """Sums of rewards."""
    if family == "binary":
        return rng.binomial(np.asarray(pulls).astype(int), expit(theta)).astype(float)
    return rng.poisson(pulls * np.exp(theta)).astype(float)


class Moments(NamedTuple):
    log_evidence: float
    mean: np.ndarray
    sd: np.ndarray


class Truth(NamedTuple):
    """Of mu, and of theta of every task; `size` is the number of draws that all of it is worth."""

    log_evidence: float
    mu: np.ndarray
    mu_sd: np.ndarray
    theta: np.ndarray
    theta_sd: np.ndarray
    size: float


# Sums over grids


def one_dim(family, n, y, mean, variance, points=801):
    """Of theta ~ N(mean, variance) with n rewards, on grids that hold all the mass: of many."""
    n, y, mean, variance = np.broadcast_arrays(*map(np.asarray, (n, y, mean, variance)))
    rate = expit if family == "binary" else np.exp

    def log_joint(theta):
        return log_density(family, n, y, theta) - (theta - mean) ** 2 / (2 * variance)

    def rises(theta):
        with np.errstate(over="ignore"):
            return (mean - theta) / variance + y > n * rate(theta)

    mode = _bisect(rises, mean - variance * n * rate(mean), mean + variance * y + 1e-9)
    top = log_joint(mode) - FALL
    far = 12 * np.sqrt(variance)
    low = mode - _bisect(lambda d: log_joint(mode - d) > top, 0 * far, far)
    high = mode + _bisect(lambda d: log_joint(mode + d) > top, 0 * far, far)
    grid = np.linspace(low, high, points)
    logs = log_joint(grid) - 0.5 * np.log(2 * np.pi * variance)
    total = logsumexp(logs, axis=0)
    weights = np.exp(logs - total)
    centre = (weights * grid).sum(axis=0)
    sd = np.sqrt((weights * (grid - centre) ** 2).sum(axis=0))
    return Moments(total + np.log((high - low) / (points - 1)), centre, sd)


def _bisect(holds, low, high):
    """Where a condition that holds at the low end ceases to hold."""
    for _ in range(100):
        middle = (low + high) / 2
        good = holds(middle)
        low, high = np.where(good, middle, low), np.where(good, high, middle)
    return high


def two_dim(mean, cov, log_likelihood, points=801, reach=9.0):
    """Of x ~ N(mean, cov) in two dimensions, from the likelihood of many x at once."""
    z = np.linspace(-reach, reach, points)
    white = np.stack(np.meshgrid(z, z, indexing="ij"), axis=-1).reshape(-1, 2)
    x = np.asarray(mean) + white @ np.linalg.cholesky(cov).T
    logs = log_likelihood(x) - 0.5 * (white**2).sum(axis=1) - np.log(2 * np.pi)
    log_evidence = logsumexp(logs) + 2 * np.log(z[1] - z[0])
    weights = np.exp(logs - logsumexp(logs))
    centre = weights @ x
    return Moments(log_evidence, centre, np.sqrt(weights @ (x - centre) ** 2))


# Theta is summed over by tables, the level by a grid, and mu by importance sampling


def normal_nodes(narrow):
    """Of integrals over N(0, 1), where the rest is no narrower than this; logs of weights.

    A grid of 0.7 standard deviations of the product is exact to 1e-15 if that is Gaussian.
    """
    if narrow == np.inf:
        return np.zeros(1), np.zeros(1)
    step = 0.7 * narrow / np.hypot(1.0, narrow)
    z = step * np.arange(-np.ceil(7.5 / step), np.ceil(7.5 / step) + 1)
    return z, -0.5 * z**2 - logsumexp(-0.5 * z**2)


class Tables:
    """log ∫ N(theta; x, own) p(y | theta) dtheta of every arm of every task, with the first two
    moments of theta - x, at points x on a grid; in between by cubic interpolation."""

    def __init__(self, family, pulls, wins, own, low, high):
        pairs, self.which = np.unique(
            np.stack([np.ravel(pulls), np.ravel(wins)], axis=1), axis=0, return_inverse=True
        )
        self.which = self.which.reshape(np.shape(pulls))
        self.low, self.high = low, high
        x = np.arange(low - 2 * STEP, high + 3 * STEP, STEP)
        spread = np.sqrt(own)
        self.parts = np.empty((3, len(pairs), x.size))
        for row, (n, y) in enumerate(pairs):
            bend = n / 4 if family == "binary" else y + 5 * np.sqrt(y) + 5
            z, log_weights = normal_nodes(1 / np.sqrt(bend * own) if own else np.inf)
            weights = np.exp(log_weights)
            logs = log_density(family, n, y, x[:, None] + spread * z)
            top = logs.max(axis=1, keepdims=True)
            mass = np.exp(logs - top) * weights
            total = mass.sum(axis=1)
            self.parts[0, row] = top[:, 0] + np.log(total)
            self.parts[1, row] = spread * (mass @ z) / total
            self.parts[2, row] = own * (mass @ z**2) / total

    def __call__(self, x, count=3):
        """The log, and moments, at x of shape (..., tasks, arms)."""
        place = np.clip((x - self.low) / STEP, 0.0, (self.high - self.low) / STEP) + 2
        index = place.astype(int)
        t = place - index
        weights = (
            -t * (t - 1) * (t - 2) / 6,
            (t + 1) * (t - 1) * (t - 2) / 2,
            -(t + 1) * t * (t - 2) / 2,
            (t + 1) * t * (t - 1) / 6,
        )
        index = index + self.which * self.parts.shape[-1] - 1
        return [
            sum(w * part.ravel().take(index + j) for j, w in enumerate(weights))
            for part in self.parts[:count]
        ]


def by_importance(
    family, mean, cov, own, shared, pulls, wins, *, design=None, draws=1024, seed=0, theta=True
):
    """mu by importance sampling; theta and the level of each task by quadrature given mu."""
    rows = np.stack([np.atleast_2d(pulls), np.atleast_2d(wins)], axis=1).astype(float)
    rows, back, times = np.unique(rows, axis=0, return_inverse=True, return_counts=True)
    pulls, wins = rows[:, 0], rows[:, 1]  # of tasks that are alike one will do
    mean, cov = np.atleast_1d(mean).astype(float), np.atleast_2d(cov)
    points = qmc.Sobol(mean.size, seed=seed)
    frame = np.eye(mean.size) if design is None else np.asarray(design)
    wide = np.sqrt(np.diagonal(frame @ cov @ frame.T) + shared).max()
    centre = frame @ mean
    tables = Tables(family, pulls, wins, own, centre.min() - 9 * wide, centre.max() + 9 * wide)
    bend = np.sum(pulls / 4 if family == "binary" else wins + 5 * np.sqrt(wins) + 5, axis=1).max()
    least = own / pulls.shape[1] + 1 / bend
    z, log_w = normal_nodes(np.sqrt(least / shared) if shared else np.inf)
    level, nodes = np.sqrt(shared) * z, z.size
    precision, shift = np.linalg.inv(cov), -0.5 * np.linalg.slogdet(2 * np.pi * cov)[1]

    def per_level(mu):
        x = (mu @ frame.T)[..., None, None, :] + level[:, None, None]  # (..., level, tasks, arms)
        return x, tables(x, 1)[0].sum(axis=-1) + log_w[:, None]

    def log_joint(mu):
        gap = mu - mean
        prior = -0.5 * np.einsum("...i,ij,...j->...", gap, precision, gap) + shift
        return prior + logsumexp(per_level(mu)[1], axis=-2) @ times

    place, spread = _laplace(log_joint, mean, np.linalg.cholesky(cov))
    size = max(1, int(3e6 / (nodes * pulls.size)))
    for count in (draws // 4, draws // 2, draws):
        lower = 1.15 * np.linalg.cholesky(spread)
        white = student.ppf(points.random(count), FREEDOM)
        mus = place + white @ lower.T
        logs = np.concatenate([log_joint(mus[i : i + size]) for i in range(0, count, size)])
        logs += np.log(np.diagonal(lower)).sum() - student.logpdf(white, FREEDOM).sum(axis=1)
        weights = np.exp(logs - logsumexp(logs))
        place = weights @ mus
        spread = (weights[:, None] * (mus - place)).T @ (mus - place)
    first, second = np.zeros(pulls.shape), np.zeros(pulls.shape)
    for i in range(0, count if theta else 0, size):
        x, joint = per_level(mus[i : i + size])
        share = np.exp(joint - logsumexp(joint, axis=-2, keepdims=True))[..., None]
        _, more, square = tables(x)
        part = weights[i : i + size]
        first += np.einsum("d,dlta->ta", part, share * (x + more))
        second += np.einsum("d,dlta->ta", part, share * (x * x + 2 * x * more + square))
    return Truth(
        logsumexp(logs) - np.log(count),
        place,
        np.sqrt(np.diagonal(spread)),
        first[back.ravel()],
        np.sqrt(np.maximum(second - first**2, 0.0))[back.ravel()],
        1.0 / (weights**2).sum(),
    )


def _laplace(log_joint, mean, root):
    """Where to draw from: the mode, and a covariance from the second differences there."""
    best = minimize(lambda u: -log_joint(mean + root @ u), np.zeros(mean.size), method="BFGS")
    frame = np.linalg.cholesky(best.hess_inv + 1e-9 * np.eye(mean.size))
    for step in (0.3, 0.5):
        eye = step * np.eye(mean.size)
        corners = [(a[:, None] + b[None]) for a in (eye, -eye) for b in (eye, -eye)]
        points = np.stack(corners) @ frame.T + best.x
        pp, pm, mp, mm = log_joint(mean + points @ root.T)
        values, vectors = np.linalg.eigh(-(pp - pm - mp + mm) / (4 * step**2))
        frame = frame @ vectors / np.sqrt(np.maximum(values, 1e-3))
    lower = root @ frame
    return mean + root @ best.x, lower @ lower.T


# Pólya-Gamma variables, for clicks only


def polya_gamma(n, z, rng):
    """PG(n, z): the first terms of its sum of gammas, and the mean of all that follow, whose
    variance is 1e-6 of the whole's."""
    n, z = np.asarray(n, dtype=float), np.abs(np.asarray(z, dtype=float))
    k = np.arange(TERMS) + 0.5
    rates = 1.0 / (2 * np.pi**2 * (k**2 + (z[..., None] / (2 * np.pi)) ** 2))
    drawn = rng.standard_gamma(np.broadcast_to(n[..., None], rates.shape))
    small = np.maximum(z, 1e-6)
    mean = n * np.tanh(small / 2) / (2 * small)
    return (drawn * rates).sum(axis=-1) + np.maximum(mean - n * rates.sum(axis=-1), 0.0)


def by_gibbs(mean, cov, own, shared, pulls, wins, *, sweeps=2000, warm=300, chains=4, seed=0):
    """Clicks: Pólya-Gamma variables given theta, then mu and all theta together given them."""
    pulls, wins = np.atleast_2d(pulls).astype(float), np.atleast_2d(wins).astype(float)
    mean, cov = np.atleast_1d(mean).astype(float), np.atleast_2d(cov)
    tasks, arms = pulls.shape
    rng = np.random.default_rng(seed)
    spread = own * np.eye(arms) + shared
    known, precision = np.linalg.inv(spread), np.linalg.inv(cov)
    theta = mean + rng.standard_normal((chains, tasks, arms))
    centred = wins - pulls / 2
    kept_mu, kept = np.empty((sweeps, chains, arms)), np.empty((sweeps, chains, tasks, arms))
    for sweep in range(-warm, sweeps):
        omega = polya_gamma(np.broadcast_to(pulls, theta.shape), theta, rng)
        gram = omega[..., None] * np.eye(arms)
        shrunk = np.linalg.inv(np.eye(arms) + gram @ spread)  # P
        h = np.einsum("ctij,tj->cti", shrunk, centred)
        total = np.linalg.inv(precision + (shrunk @ gram).sum(axis=1))
        place = np.einsum("cij,cj->ci", total, precision @ mean + h.sum(axis=1))
        z = rng.standard_normal((chains, arms))
        mu = place + np.einsum("cij,cj->ci", np.linalg.cholesky(total), z)
        inside = np.linalg.inv(known + gram)
        place = np.einsum("ctij,ctj->cti", inside, (mu @ known)[:, None] + centred)
        z = rng.standard_normal(theta.shape)
        theta = place + np.einsum("ctij,ctj->cti", np.linalg.cholesky(inside), z)
        if sweep >= 0:
            kept_mu[sweep], kept[sweep] = mu, theta
    between = kept_mu.mean(axis=0).var(axis=0, ddof=1).max() if chains > 1 else np.nan
    size = float(kept_mu.reshape(-1, arms).var(axis=0).max() / max(between, 1e-300))
    flat_mu, flat = kept_mu.reshape(-1, arms), kept.reshape(-1, tasks, arms)
    return Truth(
        np.nan, flat_mu.mean(axis=0), flat_mu.std(axis=0), flat.mean(axis=0), flat.std(axis=0), size
    )
