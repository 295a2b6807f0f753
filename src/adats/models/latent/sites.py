"""Gaussian sites: each arm's rewards as if they were one reading of its eta with Gaussian noise.

Expectation propagation within a task. The likelihood of n pulls with the sum s of rewards becomes
exp(log_s + b·eta - ½ w·eta²), with the mass, mean and variance of the true one under the cavity
N(m, v), which is what is believed of eta without these pulls. Arrays end in (candidates, arms).
"""

from typing import Protocol

import numpy as np

from adats.models.core import checks
from adats.models.core.types import FloatArray, IntArray
from adats.models.latent.family import Family

WIDER = 1.2  # nodes reach further than those of a Gaussian: tails are heavier
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(24)
NODES = WIDER * _NODES
LOG_WEIGHTS = np.log(_WEIGHTS * WIDER / np.sqrt(2 * np.pi)) + 0.5 * _NODES**2
COUNT = NODES.size
POWERS = np.stack([np.ones(COUNT), NODES, NODES**2])
BASIS = np.zeros((5, 2 * COUNT))  # of the log density at the nodes, and of the nodes themselves
BASIS[:3, :COUNT], BASIS[3:, COUNT:] = [NODES, -0.5 * NODES**2, LOG_WEIGHTS], POWERS[:2]
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

    def by_level(self) -> tuple[FloatArray, FloatArray, FloatArray] | None:
        """Mean, own and shared variance, where arms are independent given a level they share."""
        ...


def mode(family: Family, n: FloatArray, s: FloatArray, m: FloatArray, v: FloatArray) -> FloatArray:
    """Where s·x - n·A(x) - (x - m)²/2v is largest, closely.

    Newton's method, from the end of [m, what the rewards alone say] at which A'' is larger: it then
    comes from one side and never overshoots.
    """
    least, most = 1 / LARGEST_MEAN, min(family.most, LARGEST_MEAN) * (1 - 1 / LARGEST_MEAN)
    alone = family.eta(np.minimum(np.maximum(s / np.maximum(n, least), least), most))
    top = family.steepest
    x: FloatArray = np.minimum(np.maximum(m, alone), top)
    if np.isfinite(top):
        below = (top - m) / v + n * family.mean(top) > s
        x = np.where(below, x, np.maximum(np.minimum(m, alone), top))
    for _ in range(NEWTON_STEPS):
        x, off = _newton_step(family, n, s, m, v, x)
        if off < CLOSE * CLOSE:
            break
    return x


def _newton_step(
    family: Family, n: FloatArray, s: FloatArray, m: FloatArray, v: FloatArray, x: FloatArray
) -> tuple[FloatArray, float]:
    """The next x, and the square of the longest step in standard deviations."""
    precision = 1.0 / v + n * family.variance(x)
    step = ((m - x) / v + s - n * family.mean(x)) / precision
    return x + step, float((step * step * precision).max(initial=0.0))


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

    Of a row of arms, by Gauss-Hermite quadrature around a centre near the mode. Returns how far
    from the centre the mean is, and the variance, both in units of sd.
    """
    precision = np.reciprocal(v)
    shift = m * precision
    slope, pull, square = shift + s, precision * centre, sd * sd
    line = np.empty((5, centre.size))  # coefficients of the log density but for A, and of eta
    np.multiply(slope - pull, sd, out=line[0])
    np.multiply(precision, square, out=line[1])
    line[2] = 1.0
    line[3], line[4] = centre, sd
    both = line.T.dot(BASIS)
    logs, normal = both[:, :COUNT], family.log_partition(both[:, COUNT:])
    normal *= n if isinstance(n, float) else n[:, None]
    logs -= normal
    top = np.maximum.reduce(logs, axis=-1)
    logs -= top[:, None]
    total, first, second = POWERS.dot(np.exp(logs).T)
    first = first / total  # not in place: that takes longer, for one candidate
    spread = np.maximum(second / total - first * first, NARROW)
    mean = centre + sd * first
    tight = np.reciprocal(spread * square)
    weighted = tight * mean
    np.maximum(tight - precision, SMALLEST, out=found[0])  # log-concave: never negative
    np.subtract(weighted, shift, out=found[1])
    rest = slope * centre - 0.5 * (pull * centre + weighted * mean)
    np.add(top + np.log(total / np.sqrt(spread)), rest, out=found[2])
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
    _fit_near(family, n, s, m, v, own, own)


def update_sites(
    family: Family,
    n: FloatArray,
    s: FloatArray,
    prior: SitePrior,
    sites: FloatArray,
    arms: IntArray,
) -> FloatArray:
    """The sites of many tasks, after the rewards of one arm of each have changed: n and s in all.

    Tasks are along the second axis of sites.
    """
    check_counts(family, n, s)
    one = arms[:, None, None]
    m, v = (np.take_along_axis(part, one, axis=-1).ravel() for part in prior.cavities(sites))
    old = np.take_along_axis(sites, one[None], axis=-1)
    found = np.empty((3, m.size))
    each = sites.shape[2]  # candidates
    _fit_near(family, n.repeat(each), s.repeat(each), m, v, old.reshape(3, -1), found)
    new = sites.copy()
    np.put_along_axis(new, one[None], found.reshape(old.shape), axis=-1)
    return new


def _fit_near(
    family: Family,
    n: FloatArray | float,
    s: FloatArray | float,
    m: FloatArray,
    v: FloatArray,
    old: FloatArray,
    found: FloatArray,
) -> None:
    """Put sites of a row of arms into `found`, with nodes where the old sites say that eta is."""
    variance = v / (1.0 + old[0] * v)
    centre = variance * (m / v + old[1])
    first, spread = fit(family, n, s, m, v, centre, np.sqrt(variance), found)
    off = (first * first > FAR) | (spread < THIN) | (spread > WIDE)
    if np.count_nonzero(off):
        n, s = (np.full(m.shape, part)[off] for part in (n, s))
        found[:, off] = _searched(family, n, s, m[off], v[off])


def check_counts(family: Family, n: FloatArray, s: FloatArray) -> None:
    """Raise where more was taken out of pulls or rewards than had been put in."""
    most = min(family.most, checks.HUGE)
    if not np.count_nonzero((n < 0.0) | (s < 0.0) | (s > most * n)):
        return
    if (n < -ROUND_OFF).any():
        raise ValueError("statistics of fewer than 0 pulls: more was taken out than put in")
    slack = ROUND_OFF * (1.0 + np.abs(n))
    if (s < -slack).any() or (s > most * n + slack).any():
        raise ValueError(f"rewards that sum to {s} in {n} pulls: others were taken out than put in")


def settled(
    family: Family, n: FloatArray, s: FloatArray, prior: SitePrior, sites: FloatArray
) -> FloatArray:
    """The sites of all arms, each right for its cavity, from any sites."""
    check_counts(family, n, s)
    counts = np.empty((2, *sites.shape[1:]))
    counts[0], counts[1] = n, s
    counts = counts.reshape(2, -1)
    pulled = np.flatnonzero(counts[0] > 0.0)  # others have no site
    pulls, wins = counts[:, pulled]
    found = sites.reshape(3, -1)[:, pulled]
    m, v = (part.reshape(-1)[pulled] for part in prior.cavities(sites))
    for sweep in range(SWEEPS):
        before, found = found, np.empty(found.shape)
        if sweep or before[0].any():
            _fit_near(family, pulls, wins, m, v, before, found)
        else:
            found = _searched(family, pulls, wins, m, v)
        if DAMPED_FROM <= sweep < SWEEPS - 1:
            found = 0.5 * (before + found)
        sites = np.zeros(sites.shape)
        sites.reshape(3, -1)[:, pulled] = found
        old = m
        m, v = (part.reshape(-1)[pulled] for part in prior.cavities(sites))
        if ((m - old) ** 2 / v).max(initial=0.0) < SETTLED**2:
            break
    return sites


def _searched(
    family: Family, n: FloatArray, s: FloatArray, m: FloatArray, v: FloatArray
) -> FloatArray:
    """The sites of a row of arms, with nodes around the mode."""
    centre = mode(family, n, s, m, v)
    sd = 1.0 / np.sqrt(1.0 / v + n * family.variance(centre))
    found = np.empty((3, m.size))
    fit(family, n, s, m, v, centre, sd, found)
    return found
