"""Gaussian sites of clicks and counts, compiled: `adats.models.latent.sites`, arm by arm.

All nodes of a quadrature are worked on at once: exp and log1p are polynomials without branches,
right to the last digits of a float, which a compiler turns into instructions on many numbers.
"""

import math
from typing import Any

import numpy as np

from adats.models.core.types import FloatArray
from adats.models.latent import sites as ep
from adats.models.latent.family import LARGEST
from adats.models.latent.family import NODES as RATE_NODES
from adats.models.latent.family import WEIGHTS as RATE_WEIGHTS
from adats.models.latent.meta import LatentMeta
from adats.simulation.kernels.common import compiled, compiled_sums, exact, inlined

NODES, LOG_WEIGHTS = ep.NODES, ep.LOG_WEIGHTS
FAR, THIN, WIDE = ep.FAR, ep.THIN, ep.WIDE
LEAST, MOST = -700.0, 600.0  # exponents: beyond them a sum over nodes is not finite
LOG2_E = 1.0 / math.log(2.0)
LOG_2, LOG_2_REST = 6.93147180369123816490e-01, 1.90821492927058770002e-10  # together log 2
ROUNDING = 1.5 * 2.0**52  # a float that is added to it is rounded, to an integer in its last bits
EXP = tuple(1.0 / math.factorial(i) for i in range(13))  # up to ½ log 2, to 2e-16
LOG = tuple(2.0 / (2 * i + 1) for i in range(15))  # 2 atanh y / y in powers of y², up to y = 1/3


@exact
def exp(x: float) -> float:
    """2^k exp(r), where the bits of k are shifted to where a float has its exponent."""
    x = min(max(x, LEAST), MOST)
    shifted = x * LOG2_E + ROUNDING
    k = shifted - ROUNDING
    r = (x - k * LOG_2) - k * LOG_2_REST
    power = np.int64((np.float64(shifted).view(np.int64) + 1023) << 52).view(np.float64)
    r2 = r * r
    r4 = r2 * r2
    low = (EXP[0] + EXP[1] * r) + (EXP[2] + EXP[3] * r) * r2
    mid = (EXP[4] + EXP[5] * r) + (EXP[6] + EXP[7] * r) * r2
    high = (EXP[8] + EXP[9] * r) + (EXP[10] + EXP[11] * r) * r2 + EXP[12] * r4
    found: float = (low + r4 * (mid + r4 * high)) * power
    return found


@exact
def log1p(u: float) -> float:
    """Of 0 to 1."""
    y = u / (2.0 + u)
    z = y * y
    z2 = z * z
    z4 = z2 * z2
    a = (LOG[0] + LOG[1] * z) + (LOG[2] + LOG[3] * z) * z2
    b = (LOG[4] + LOG[5] * z) + (LOG[6] + LOG[7] * z) * z2
    c = (LOG[8] + LOG[9] * z) + (LOG[10] + LOG[11] * z) * z2
    d = (LOG[12] + LOG[13] * z) + LOG[14] * z2
    return y * ((a + b * z4) + (c + d * z4) * (z4 * z4))


@inlined
def log_partition(counts: float, eta: float) -> float:
    """A; counts is 1 or 0. Without a branch, as it is worked out at all nodes at once."""
    clicks = 1.0 - counts
    power = exp(counts * min(eta, LARGEST) - clicks * abs(eta))
    return counts * power + clicks * (max(eta, 0.0) + log1p(power))


@compiled
def derivatives(counts: bool, eta: float) -> tuple[float, float]:
    """A' and A''."""
    if counts:
        rate = exp(min(eta, LARGEST))
        return rate, rate
    small = exp(-abs(eta))
    variance = small / (1.0 + small) ** 2
    return (1.0 if eta >= 0 else small) / (1.0 + small), variance


@compiled
def expected(counts: bool, mean: float, variance: float) -> float:
    """The mean reward where eta ~ N(mean, variance)."""
    if counts:
        return math.exp(min(mean + 0.5 * variance, LARGEST))
    scale, total = math.sqrt(variance), 0.0
    for i in range(RATE_NODES.size):
        total += RATE_WEIGHTS[i] * derivatives(counts, mean + scale * RATE_NODES[i])[0]
    return total


@compiled
def mode(counts: bool, n: float, s: float, m: float, v: float) -> float:
    """As `sites.mode`, by Newton's method kept inside an interval."""
    alone = math.log(max(s, 1e-15) / n) if counts else math.log(max(s, 1e-15) / max(n - s, 1e-15))
    low, high = min(m, alone), max(m, alone)
    x = high
    if not counts:
        x = min(0.0, high) if -m / v + 0.5 * n > s else max(0.0, low)
    for _ in range(100):
        mean, variance = derivatives(counts, x)
        precision = 1.0 / v + n * variance
        step = ((m - x) / v + s - n * mean) / precision
        x += step
        if step * step * precision < 0.0025:
            break
    return x


@compiled_sums
def moments(
    counts: float, n: float, s: float, m: float, v: float, centre: float, sd: float
) -> tuple[float, float, float, float]:
    """Of the cavity times the likelihood: its log at the centre, the sum of the masses in units of
    that, and mean and variance in sd."""
    slope, bend = s + m / v, -0.5 / v
    top = (slope + bend * centre) * centre - n * log_partition(counts, centre)
    total, first, second = 0.0, 0.0, 0.0
    for i in range(NODES.size):
        x = centre + sd * NODES[i]
        mass = exp((slope + bend * x) * x - n * log_partition(counts, x) + LOG_WEIGHTS[i] - top)
        total += mass
        first += mass * NODES[i]
        second += mass * NODES[i] ** 2
    first /= total
    return top, total, first, max(second / total - first * first, 1e-9)


@compiled
def site(
    counts: bool, n: float, s: float, m: float, v: float, w: float, b: float
) -> tuple[float, float, float]:
    """w, b and log s of an arm under the cavity N(m, v); w and b are those that it had."""
    variance = v / (1.0 + w * v)
    centre, sd = variance * (m / v + b), math.sqrt(variance)
    kind = 1.0 if counts else 0.0
    top, total, first, spread = moments(kind, n, s, m, v, centre, sd)
    if first * first > FAR or spread < THIN or spread > WIDE:
        centre = mode(counts, n, s, m, v)
        sd = 1.0 / math.sqrt(1.0 / v + n * derivatives(counts, centre)[1])
        top, total, first, spread = moments(kind, n, s, m, v, centre, sd)
    mean = centre + sd * first
    tight = 1.0 / (spread * sd * sd)
    log_s = top + math.log(total / math.sqrt(spread)) - 0.5 * mean * mean * tight
    return max(tight - 1.0 / v, 1e-300), tight * mean - m / v, log_s


@compiled
def settle(
    counts: bool,
    table: FloatArray,
    mean: FloatArray,
    own: FloatArray,
    shared: FloatArray,
    sites: FloatArray,
) -> None:
    """As `sites.settled` with a level, one arm after another; changes `sites`."""
    candidates, arms = mean.shape
    for j in range(candidates):
        for _ in range(12):
            about, weighted = 0.0, 0.0
            for k in range(arms):
                q = 1.0 + own[j, k] * sites[0, j, k]
                about += sites[0, j, k] / q
                weighted += (sites[1, j, k] - sites[0, j, k] * mean[j, k]) / q
            moved = 0.0
            for k in range(arms):
                n, s, w, b = table[0, k], table[1, k], sites[0, j, k], sites[1, j, k]
                if n == 0.0:
                    continue
                q = 1.0 + own[j, k] * w
                about -= w / q
                weighted -= (b - w * mean[j, k]) / q
                level = shared[j] / (1.0 + shared[j] * about)
                m, v = mean[j, k] + level * weighted, own[j, k] + level
                new_w, new_b, log_s = site(counts, n, s, m, v, w, b)
                tight = new_w + 1.0 / v
                change = (new_b - b) - (new_w - w) * (m / v + new_b) / tight
                moved = max(moved, change * change / tight)
                q = 1.0 + own[j, k] * new_w
                about += new_w / q
                weighted += (new_b - new_w * mean[j, k]) / q
                sites[0, j, k], sites[1, j, k], sites[2, j, k] = new_w, new_b, log_s
            if moved < 1e-6:
                break


def settled(meta: LatentMeta, stats: Any) -> Any:
    """The statistics with the sites that the meta-belief's anchor gives them."""
    found = meta.anchor.prior.by_level()
    if found is None:
        return stats
    mean, own, shared = found
    sites = stats.sites_of(meta.log_weights.size).copy()
    settle(meta.family.counts, stats.table, mean, own, shared.ravel(), sites)
    return stats.with_sites(sites, meta.anchor.number)
