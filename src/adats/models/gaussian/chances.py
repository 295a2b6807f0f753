"""Gaussian arms: the chance of each to be best."""

import math
from functools import lru_cache

import numpy as np
from scipy.special import ndtr

from adats.models.core.types import BoolArray, FloatArray, IntArray

# Distances are in standard deviations of an arm: of what lies further than REACH from its mean
# nothing is seen, 1e-15 of the probability. A piece is STEP long, or TAIL where it begins more
# than CUT above the mean.
REACH, STEP, TAIL, CUT = 8.0, 4.1, 8.2, 2.5
BELOW, ABOVE, NARROWEST = -6, 9, 6.0  # of one arm's u; and how much narrower others may be
LARGE = 1 << 20  # numbers at a time
_T, _W = np.polynomial.legendre.leggauss(14)
_LINE = np.array([np.ones_like(_T), (_T + 1) / 2])  # where a piece begins and its width, to nodes
_W /= 2 * math.sqrt(2 * math.pi)


def best_gaussian(mean: FloatArray, scale: FloatArray) -> FloatArray:
    """The chance of each of some independent Gaussians to be the largest; scales may be 0.

    All is measured from the lowest point that the best arm can have. Arms that end below it are
    never best.
    """
    means, scales = mean.tolist(), scale.tolist()
    top = max(means)
    lows = [m - top - REACH * s for m, s in zip(means, scales, strict=True)]
    first = lows.index(max(lows))
    base, start = means[first], REACH * scales[first]
    ends = [
        (end, s)
        for m, s in zip(means, scales, strict=True)
        if (end := m - base + start + REACH * s) > 0 and s > 0
    ]
    centre = mean - base
    centre += start
    if len(ends) == len(means):
        result = _shares(centre, scale, ends)
    else:
        live = (centre + REACH * scale > 0) & (scale > 0)
        result = np.zeros(len(means))
        if start == 0:  # the best known arm is best if all others are below it
            result[first] = ndtr(-centre[live] / scale[live]).prod()
        if len(ends) == 1 and start > 0:
            result[first] = 1.0
        elif ends:
            result[live] = _shares(centre[live], scale[live], ends)
    total = sum(result.tolist())
    if not abs(total - 1) < 1e-3:
        raise ValueError(f"scales from {min(scales)} to {max(scales)} are too far apart")
    result /= total
    return result


def chance_gaussian(mean: FloatArray, scale: FloatArray, arm: int) -> float:
    """The chance of one of some independent Gaussians to be the largest.

    With u the arm's distance from its mean in standard deviations it is ∫ φ(u) Π Φ(a_j u + b_j) du,
    worked out by the trapezoidal rule. The Fourier transform of the integrand falls like
    exp(-ω²/2V), V = 1 + Σ a_j², and the error like that at ω = 2π/step. A step of 1/√V makes it
    3e-9 at most, and 1e-11 in what was tried. Where an arm is known, or is far narrower than this
    one, `best_gaussian` is better.
    """
    own = scale.item(arm)
    if not own < NARROWEST * min(scale.tolist()):
        return best_gaussian(mean, scale).item(arm)
    a = own / scale
    u, weights = _steps(math.ceil(math.sqrt(a.dot(a))))  # √V, as its own a is 1
    b = (mean.item(arm) - mean) / scale
    z = a[:, None] * u
    z += b[:, None]
    z[arm] = np.inf
    return min(1.0, float(np.multiply.reduce(ndtr(z), axis=0).dot(weights)))


def chances_gaussian(
    mean: FloatArray, scale: FloatArray, arms: IntArray, allowed: BoolArray | None
) -> FloatArray:
    """The chance of one arm in each of many tasks to be the largest of those allowed.

    As `chance_gaussian`, for all tasks at once that need the same steps.
    """
    tasks = np.arange(len(mean))
    own, centre = scale[tasks, arms][:, None], mean[tasks, arms][:, None]
    open_ = np.ones(mean.shape, dtype=bool) if allowed is None else allowed.copy()
    open_[tasks, arms] = False  # but for the arm itself
    safe = np.where(scale > 0, scale, 1.0)
    a, b = np.where(open_, own / safe, 0.0), np.where(open_, (centre - mean) / safe, np.inf)
    steps = np.exp2(np.ceil(np.log2(np.sqrt(1.0 + (a * a).sum(axis=1)))))
    smooth = (own[:, 0] > 0) & ((scale > 0) | ~open_).all(axis=1) & (a.max(axis=1) < NARROWEST)
    chances = np.empty(len(mean))
    for per_unit in np.unique(steps[smooth]).tolist():
        u, weights = _steps(int(per_unit))
        some = np.flatnonzero(smooth & (steps == per_unit))
        for part in np.array_split(some, max(1, some.size * a.shape[1] * u.size // LARGE)):
            z = a[part][:, :, None] * u + b[part][:, :, None]
            chances[part] = np.multiply.reduce(ndtr(z, out=z), axis=1) @ weights
    for i in np.flatnonzero(~smooth).tolist():
        where = np.flatnonzero(np.ones(len(mean[i]), bool) if allowed is None else allowed[i])
        place = int(np.searchsorted(where, arms[i]))
        chances[i] = chance_gaussian(mean[i, where], scale[i, where], place)
    return np.minimum(chances, 1.0)


@lru_cache(maxsize=256)
def _steps(per_unit: int) -> tuple[FloatArray, FloatArray]:
    """Points as far out as it matters, and φ there times the step."""
    u = np.arange(BELOW * per_unit, ABOVE * per_unit + 1) / per_unit
    return u, np.exp(-0.5 * u * u) / (math.sqrt(2 * math.pi) * per_unit)


def _shares(centre: FloatArray, scale: FloatArray, ends: list[tuple[float, float]]) -> FloatArray:
    """∫ f_k Π_{j≠k} F_j from 0 on, for every k, on nodes that all arms share."""
    pieces = np.array(_pieces(sorted(ends, reverse=True))).reshape(-1, 2)
    z = pieces.dot(_LINE).ravel() - centre[:, None]
    z /= scale[:, None]
    below: FloatArray = ndtr(z)
    weights: FloatArray = np.multiply.reduce(below, axis=0)
    weights *= (pieces[:, 1:] * _W).ravel()
    z *= z
    z *= -0.5
    np.maximum(z, -700.0, out=z)  # exp is slow where it is subnormal
    np.exp(z, out=z)
    z /= below
    shares: FloatArray = z.dot(weights)
    shares /= scale
    return shares


def _pieces(ends: list[tuple[float, float]]) -> list[float]:
    """Where a piece begins and how wide it is, one after another; arms that end last come first.

    An arm matters up to its end: so pieces follow the narrowest of those that have not ended.
    """
    narrowest, least = [], math.inf
    for arm in ends:
        if arm[1] < least:
            narrowest.append(arm)
            least = arm[1]
    pace = 1.0 if len(ends) <= 10 else (10 / len(ends)) ** 0.2  # the best of many varies less
    core, tail = pace * STEP, pace * TAIL
    x, pieces = 0.0, list[float]()
    while narrowest:
        end, scale = narrowest.pop()
        turn, short, long = end - (REACH - CUT) * scale, core * scale, tail * scale
        if narrowest:
            long = min(long, core * narrowest[-1][1])
        while x < end:
            step = short if x < turn else long
            pieces += (x, step)
            x += step
    return pieces
