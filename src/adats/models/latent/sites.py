"""Gaussian sites: each arm's rewards as if they were one reading of its eta with Gaussian noise.

Expectation propagation within a task. The likelihood of n pulls with the sum s of rewards becomes
exp(log_s + b·eta - ½ w·eta²), with the mass, mean and variance of the true one under the cavity
N(m, v), which is what is believed of eta without these pulls. Arrays end in (candidates, arms).
"""

from typing import Protocol

import numpy as np

from adats.models.core import checks
from adats.models.core.types import FloatArray
from adats.models.latent.family import Family

WIDER = 1.2  # nodes reach further than those of a Gaussian: tails are heavier
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(24)
NODES = WIDER * _NODES
LOG_WEIGHTS = np.log(_WEIGHTS * WIDER / np.sqrt(2 * np.pi)) + 0.5 * _NODES**2
POWERS = np.stack([np.ones(NODES.size), NODES, NODES**2], axis=1)
BASIS = np.concatenate([POWERS.T, LOG_WEIGHTS[None]])
# nodes are laid anew if the mean is further off, or the variance less or more
FAR, THIN, WIDE = 0.5**2, 0.5, 2.0
NARROW = 1e-9
NEWTON_STEPS = 100  # at most: mostly it needs five
CLOSE = 0.05  # standard deviations from the mode: nearer is not needed
SWEEPS, SETTLED = 24, 3e-3  # at most; until no cavity moves by more standard deviations
DAMPED_FROM = 3  # sweeps: arms that share much would swing to and fro
SMALLEST = 1e-300
LARGEST_MEAN = 1e15  # of a reward: rates beyond are not told apart
ROUND_OFF = 1e-6  # of fractional counts that were put in and taken out
LEAST_VARIANCE = 1e-6  # of a cavity: what is known better needs no wider fit, and round-off grows


class SitePrior(Protocol):
    """What is believed of all eta of a task before its rewards: Gaussian, for each candidate."""

    def cavities(self, sites: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of each eta, from all sites but its own."""
        ...

    def cavity(self, sites: FloatArray, arm: int) -> tuple[FloatArray, FloatArray]:
        """Those of one arm."""
        ...


def mode(family: Family, n: FloatArray, s: FloatArray, m: FloatArray, v: FloatArray) -> FloatArray:
    """Where s·x - n·A(x) - (x - m)²/2v is largest, closely.

    Newton's method, from the end of [m, what the rewards alone say] at which A'' is larger: it
    then comes from one side and never overshoots.
    """
    least, most = 1 / LARGEST_MEAN, min(family.most, LARGEST_MEAN) * (1 - 1 / LARGEST_MEAN)
    alone = family.eta(np.minimum(np.maximum(s / np.maximum(n, least), least), most))
    top = family.steepest
    low = np.minimum(np.maximum(m, alone), top)
    if np.isfinite(top):
        below = (top - m) / v + n * family.mean(top) > s
        low = np.where(below, low, np.maximum(np.minimum(m, alone), top))
    x: FloatArray = low
    for _ in range(NEWTON_STEPS):
        precision = 1.0 / v + n * family.variance(x)
        step = ((m - x) / v + s - n * family.mean(x)) / precision
        x = x + step
        if (step * step * precision).max(initial=0.0) < CLOSE * CLOSE:
            break
    return x


def fit(
    family: Family,
    n: FloatArray | float,
    s: FloatArray | float,
    m: FloatArray,
    v: FloatArray,
    centre: FloatArray,
    sd: FloatArray,
    found: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """Put w, b and log s into `found`: those with the moments of the cavity times the likelihood.

    By Gauss-Hermite quadrature around a centre near the mode. Returns how far from the centre the
    mean is, and the variance, both in units of sd.
    """
    precision = 1.0 / v
    shift = m * precision
    slope = shift + s
    bend = -0.5 * precision
    line = np.empty((*m.shape, 4))  # the log density but for A: coefficients of 1, t, t², a weight
    line[..., 0] = (slope + bend * centre) * centre
    line[..., 1] = (slope - precision * centre) * sd
    line[..., 2] = bend * (sd * sd)
    line[..., 3] = 1.0
    logs = line.dot(BASIS)
    normal = family.log_partition(centre[..., None] + sd[..., None] * NODES)
    normal *= n if isinstance(n, float) else n[..., None]
    logs -= normal
    top = np.maximum.reduce(logs, axis=-1)
    logs -= top[..., None]
    mass = np.exp(logs, out=logs).dot(POWERS)
    total = mass[..., 0]
    first = mass[..., 1] / total
    spread = np.maximum(mass[..., 2] / total - first * first, NARROW)
    mean = centre + sd * first
    tight = 1.0 / (spread * (sd * sd))
    both = tight * mean
    np.maximum(tight - precision, SMALLEST, out=found[0])  # log-concave: never negative
    np.subtract(both, shift, out=found[1])
    np.add(top + np.log(total / np.sqrt(spread)), -0.5 * mean * both, out=found[2])
    return first, spread


def update_site(
    family: Family, n: float, s: float, prior: SitePrior, sites: FloatArray, arm: int
) -> None:
    """Put the site of one arm into `sites`, after its rewards have changed: n and s in all."""
    own = sites[..., arm]
    if n <= 0.0 or s < 0.0 or s > family.most * n:
        check_counts(family, np.array([n]), np.array([s]))
        if n <= 0.0:
            own[...] = 0.0
            return
    m, v = prior.cavity(sites, arm)
    variance = v / (1.0 + own[0] * v)
    centre = variance * (m / v + own[1])
    first, spread = fit(family, n, s, m, v, centre, np.sqrt(variance), own)
    least, most = np.minimum.reduce(spread), np.maximum.reduce(spread)
    if least < THIN or most > WIDE or np.maximum.reduce(first * first) > FAR:
        _search(family, np.full(m.shape, n), np.full(m.shape, s), m, v, own)


def settled_many(
    family: Family, n: FloatArray, s: FloatArray, prior: SitePrior, sites: FloatArray
) -> FloatArray:
    """As `settled`, of many tasks (the first axis of n and s, the second of the sites), one arm
    after another and only in the tasks that pulled it."""
    check_counts(family, n, s)
    sites = np.where(n[:, None] > 0, sites, 0.0)
    moving = np.arange(len(n))  # tasks
    for _ in range(SWEEPS):
        moved = np.zeros(len(n))
        for arm in range(n.shape[1]):
            some = moving[n[moving, arm] > 0]
            if some.size == 0:
                continue
            own = sites[:, some]
            before = own[:2, ..., arm].copy()
            m, v = update_sites(family, n[some, arm], s[some, arm], prior, own, arm)
            sites[..., arm][:, some] = own[..., arm]
            tight = own[0, ..., arm] + 1.0 / v
            change = own[1, ..., arm] - before[1]
            change -= (own[0, ..., arm] - before[0]) * (m / v + own[1, ..., arm]) / tight
            moved[some] = np.maximum(moved[some], (change * change / tight).max(axis=-1))
        several = (n[moving] > 0).sum(axis=1) > 1  # one arm alone has its site at once
        moving = moving[several & (moved[moving] >= SETTLED**2)]
        if moving.size == 0:
            break
    return sites


def update_sites(
    family: Family, n: FloatArray, s: FloatArray, prior: SitePrior, sites: FloatArray, arm: int
) -> tuple[FloatArray, FloatArray]:
    """As `update_site`, of one arm in many tasks; gives the cavities, mean and variance."""
    own = sites[..., arm]
    m, v = prior.cavity(sites, arm)
    variance = v / (1.0 + own[0] * v)
    centre = variance * (m / v + own[1])
    found = np.empty(own.shape)
    first, spread = fit(family, n[:, None], s[:, None], m, v, centre, np.sqrt(variance), found)
    off = (spread < THIN) | (spread > WIDE) | (first * first > FAR)
    if off.any():
        pulls, wins = (np.broadcast_to(part[:, None], m.shape)[off] for part in (n, s))
        some = np.empty((3, pulls.size))
        _search(family, pulls, wins, m[off], v[off], some)
        found[:, off] = some
    own[...] = found
    return m, v


def check_counts(family: Family, n: FloatArray, s: FloatArray) -> None:
    """Raise where more was taken out of pulls or rewards than had been put in."""
    if (n < -ROUND_OFF).any():
        raise ValueError("statistics of fewer than 0 pulls: more was taken out than put in")
    slack = ROUND_OFF * (1.0 + np.abs(n))
    if (s < -slack).any() or (s > min(family.most, checks.HUGE) * n + slack).any():
        raise ValueError(f"rewards that sum to {s} in {n} pulls: others were taken out than put in")


def settled(
    family: Family, n: FloatArray, s: FloatArray, prior: SitePrior, sites: FloatArray
) -> FloatArray:
    """The sites of all arms, each right for its cavity, from any sites."""
    check_counts(family, n, s)
    seen = n > 0 if n.ndim == 1 else (n > 0).any(axis=tuple(range(n.ndim - 1)))
    pulled = np.flatnonzero(seen)  # others have no site
    shape = (*sites.shape[1:-1], pulled.size)
    pulls, wins = np.broadcast_to(n[..., pulled], shape), np.broadcast_to(s[..., pulled], shape)
    m, v = (part[..., pulled] for part in prior.cavities(sites))
    for sweep in range(SWEEPS):
        before, sites = sites, np.zeros(sites.shape)
        found = np.empty((3, *shape))
        _search(family, pulls, wins, m, v, found)
        sites[..., pulled] = found if n.ndim == 1 else found * (pulls > 0)
        if DAMPED_FROM <= sweep < SWEEPS - 1:
            sites = 0.5 * (before + sites)
        old = m
        m, v = (part[..., pulled] for part in prior.cavities(sites))
        if ((m - old) ** 2 / v).max(initial=0.0) < SETTLED**2:
            break
    return sites


def _search(
    family: Family, n: FloatArray, s: FloatArray, m: FloatArray, v: FloatArray, found: FloatArray
) -> None:
    """Put sites into `found` if it is not known where the mode is."""
    centre = mode(family, n, s, m, v)
    sd = 1.0 / np.sqrt(1.0 / v + n * family.variance(centre))
    fit(family, n, s, m, v, centre, sd, found)
