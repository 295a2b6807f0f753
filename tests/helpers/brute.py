"""References written out the long way: dense joint Gaussians, quadrature, exact fractions."""

from fractions import Fraction
from itertools import pairwise, product
from typing import NamedTuple

import numpy as np
from scipy import integrate, stats
from scipy.linalg import block_diag


class Joint(NamedTuple):
    """Mean and covariance of mu and of the theta of every task, given all rewards."""

    mu: tuple[np.ndarray, np.ndarray]
    thetas: list[tuple[np.ndarray, np.ndarray]]
    log_evidence: float


class JointTask(NamedTuple):
    """theta ~ N(design @ mu, cov), rewards y ~ N(x @ theta, noise²); x may have no row."""

    design: np.ndarray
    cov: np.ndarray
    x: np.ndarray
    y: np.ndarray
    noise: float | np.ndarray


def joint(mean, cov, tasks):
    """Condition the joint Gaussian over (mu, theta_1, ..., theta_m, all rewards) on the rewards."""
    designs = np.vstack([t.design for t in tasks])
    spread = block_diag(*(t.cov for t in tasks))
    mean = np.concatenate([mean, designs @ mean])
    cross = designs @ cov
    cov = np.block([[cov, cross.T], [cross, designs @ cov @ designs.T + spread]])
    p = len(cov) - len(spread)
    x = np.hstack([np.zeros((sum(len(t.y) for t in tasks), p)), block_diag(*(t.x for t in tasks))])
    y = np.concatenate([t.y for t in tasks])
    noise = np.concatenate([np.broadcast_to(t.noise, len(t.y)) for t in tasks])
    seen = x @ cov @ x.T + np.diag(noise**2)
    log_evidence = stats.multivariate_normal.logpdf(y, x @ mean, seen) if len(y) else 0.0
    gain = np.linalg.solve(seen, x @ cov).T
    mean, cov = mean + gain @ (y - x @ mean), cov - gain @ x @ cov
    ends = p + np.cumsum([0, *(len(t.cov) for t in tasks)])
    slices = [slice(a, b) for a, b in pairwise(ends)]
    parts = [(mean[s], cov[s, s]) for s in (slice(0, p), *slices)]
    return Joint(parts[0], parts[1:], log_evidence)


def one_task(mean, cov, x, y, noise):
    """Posterior mean, covariance and log evidence of theta ~ N(mean, cov) in a single task."""
    task = JointTask(np.eye(len(mean)), np.zeros_like(cov), x, y, noise)
    result = joint(mean, cov, [task])
    return *result.thetas[0], result.log_evidence


def quadrature(prior, likelihood, values, low, high):
    """Evidence, and posterior means of `values`, of one parameter between low and high."""
    points = prior.ppf([0.01, 0.5, 0.99])

    def integral(f):
        def g(t):
            return f(t) * prior.pdf(t) * likelihood(t)

        edges = [low, *points, high]
        return sum(
            integrate.quad(g, a, b, epsabs=0, epsrel=1e-11, limit=200)[0]
            for a, b in pairwise(edges)
        )

    evidence = integral(lambda _: 1.0)
    return evidence, [integral(f) / evidence for f in values]


class Mixed(NamedTuple):
    log_evidence: float
    weights: np.ndarray
    mean: np.ndarray
    scale: np.ndarray


def mixture(weights, beliefs, rewards):
    """The mixture of beliefs conditioned on the rewards, by a plain sum."""
    parts = [belief.condition(rewards) for belief in beliefs]
    terms = np.array(weights) * np.exp([part.log_evidence for part in parts])
    new = terms / terms.sum()
    mean = sum(w * p.belief.mean for w, p in zip(new, parts, strict=True))
    square = sum(
        w * (p.belief.mean**2 + p.belief.scale**2) for w, p in zip(new, parts, strict=True)
    )
    return Mixed(np.log(terms.sum()), new, mean, np.sqrt(square - mean**2))


def unfactorised(weights, priors):
    """A mixture of its own in every arm, as one mixture over all ways to choose a prior an arm."""
    candidates, arms = np.shape(weights)
    flat = []
    for choice in product(range(candidates), repeat=arms):
        weight = np.prod([weights[j][i] for i, j in enumerate(choice)])
        columns = zip(*(priors[j].parameters() for j in choice), strict=True)
        parameters = [[column[i][i] for i in range(arms)] for column in columns]
        flat.append((weight, type(priors[0])(*parameters)))
    return [w for w, _ in flat], [b for _, b in flat]


def _fractions(matrix):
    return [[Fraction(float(v)) for v in row] for row in np.atleast_2d(matrix)]


def _times(a, b):
    return [[sum(x * y for x, y in zip(row, col, strict=True)) for col in zip(*b, strict=True)]
            for row in a]  # fmt: skip


def _plus(a, b, sign=1):
    return [[x + sign * y for x, y in zip(r, q, strict=True)] for r, q in zip(a, b, strict=True)]


def _inverse(a):
    """By Gauss and Jordan, exactly."""
    n = len(a)
    rows = [list(row) + [Fraction(int(i == j)) for j in range(n)] for i, row in enumerate(a)]
    for i in range(n):
        rows[i] = [v / rows[i][i] for v in rows[i]]  # positive definite: the pivot is not 0
        for k in range(n):
            if k != i:
                rows[k] = [v - rows[k][i] * w for v, w in zip(rows[k], rows[i], strict=True)]
    return [row[n:] for row in rows]


def paper_meta_posterior(mean, cov, task_cov, noise, tasks):
    """Section 3.2 of the paper in exact arithmetic; `tasks` are pairs (G, B). Floats at the end."""
    variance = Fraction(float(noise)) ** 2
    spread = _inverse(_fractions(task_cov))
    precision = _inverse(_fractions(cov))
    shift = _times(precision, _fractions(np.reshape(mean, (-1, 1))))
    for gram, xy in tasks:
        g = [[v / variance for v in row] for row in _fractions(gram)]
        b = [[v / variance for v in row] for row in _fractions(np.reshape(xy, (-1, 1)))]
        weight = _times(g, _inverse(_plus(spread, g)))
        shift = _plus(shift, _plus(b, _times(weight, b), -1))
        precision = _plus(precision, _plus(g, _times(weight, g), -1))
    cov = _inverse(precision)
    as_floats = [np.array(m, dtype=np.float64) for m in (_times(cov, shift), cov)]
    return as_floats[0][:, 0], as_floats[1]
