"""The chance of each arm to be best, by quadrature that adapts to the densities.

Pieces are halved until the last terms of a polynomial through ORDER nodes are below ROUGH on each.
The distribution functions are integrals of that polynomial. The nodes are those of Gauss, so the
error is far below ROUGH.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from adats.models.core.types import FloatArray

Rows = Callable[[FloatArray], FloatArray]

ORDER, ROUGH = 12, 1e-7
SEEN = 1e-8  # a density must sum up to 1 as nearly as this, else some of it was overlooked
ROUND_OFF = 1e-14  # in a log density, relative to the largest of its terms
DROP = 32.0  # of a log density, from its peak to where it is cut off
BLOCK = 50_000  # numbers worked on at a time


class Density(NamedTuple):
    """Densities of mean rewards as exp(coefs · basis(u)), in a coordinate u where they are smooth.

    u is the logit of a probability, the logarithm of a count or time, and a number itself. In u the
    logarithm of every density is concave, and u grows with the mean reward, so the best arm stays
    it. Parameters have the shape (candidates, arms).
    """

    coefs: FloatArray  # (candidates, arms, functions)
    basis: Rows  # functions of u, one a row; the third is 1
    slopes: Rows  # their derivatives
    mode: FloatArray
    spread: FloatArray  # the standard deviation that the peak looks like
    bend: FloatArray  # where the logarithm bends, which for long tails is not at the peak
    width: FloatArray  # of the bend: a polynomial is good for some of it
    ends: tuple[float, float]  # beyond them nothing is computed
    reward: Rows  # the mean reward at u

    def slack(self) -> float:
        """The round-off in log densities."""
        return ROUND_OFF * float(np.abs(self.coefs).max())

    def sure(self) -> bool:
        """Whether floating point can tell enough of them."""
        return self.slack() <= 1e-5 and float(self.spread.max()) < 1e100

    def mirrored(self) -> "Density":
        """Of -u."""
        low, high = self.ends
        return Density(
            self.coefs,
            lambda u: self.basis(-u),
            lambda u: -self.slopes(-u),
            -self.mode,
            self.spread,
            -self.bend,
            self.width,
            (-high, -low),
            lambda u: self.reward(-u),
        )


def _rule(order: int) -> tuple[FloatArray, ...]:
    """Nodes and weights on [0, 1]; and, from values at the nodes, the last two Legendre
    coefficients and the integrals from 0 to each node of the polynomial through them."""
    legendre = np.polynomial.legendre
    t, w = legendre.leggauss(order)
    degrees = np.arange(order)
    coefs = legendre.legvander(t, order - 1) * w[:, None] * (degrees + 0.5)
    up = legendre.legvander(t, order)
    integrals = np.empty((order, order))  # of P_l from -1 to t
    integrals[:, 0] = t + 1
    integrals[:, 1:] = (up[:, 2:] - up[:, : order - 1]) / (2 * degrees[1:] + 1)
    return (t + 1) / 2, w / 2, coefs[:, -2:], coefs @ integrals.T / 2


NODES, WEIGHTS, _LAST, INTEGRALS = _rule(ORDER)


def best_of(density: Density, weights: FloatArray, separate: bool) -> FloatArray | None:
    """The chance of each arm to be best, or None where quadrature does not see all of a density.

    Every arm has a mixture of its own if they are `separate`, else candidates are whole products.
    """
    coefs, slack = density.coefs, density.slack()
    if not density.sure():
        return None
    if separate:
        coefs = coefs.copy()
        coefs[..., 2] += np.log(np.maximum(weights, 1e-300))  # finite, as matmul likes it
    low, high = _ends(density)
    ends = np.array([low, high])
    rates = np.abs(density.coefs @ density.slopes(ends))
    tails = _mixed(_exp(coefs @ density.basis(ends)) / rates, separate)  # beyond the ends
    value = partial(_density, coefs, density.basis, separate)
    for careful in (False, True):
        width, f = _resolve(value, _first_edges(density, weights, ends, careful))
        mass = (f @ WEIGHTS) * width
        seen = (mass.sum(axis=-1) + tails.sum(axis=-1))[..., None]
        if np.abs(seen - 1).max() < SEEN + slack:
            break
    else:
        return None
    tails, mass, f = tails / seen, mass / seen, f / seen[..., None]
    before = tails[..., :1] + mass.cumsum(axis=-1) - mass
    below = before[..., None] + width[:, None] * (f @ INTEGRALS)
    np.maximum(below, 1e-300, out=below)
    f /= below
    f *= np.multiply.reduce(below, axis=1, keepdims=True)
    shares: FloatArray = np.einsum("ckp,p->ck", f @ WEIGHTS, width) + _ties(tails)
    if not separate:
        shares *= weights
    result: FloatArray = shares.sum(axis=0)
    result /= result.sum()
    return result


def _ties(tails: FloatArray) -> FloatArray:
    """Shares of decisions where draws are equal, which go to the first of the equal arms.

    Draws below the lower end are all equal, and so are those above the upper one.
    """
    bottom, top = tails[..., 0], tails[..., 1]
    above = np.pad(1 - top[:, :-1], ((0, 0), (1, 0)), constant_values=1.0).cumprod(axis=1)
    shares: FloatArray = top * above  # no arm before this one is at the top
    shares[:, 0] += bottom.prod(axis=1)
    return shares


def _mixed(parts: FloatArray, separate: bool) -> FloatArray:
    return parts.sum(axis=0, keepdims=True) if separate else parts


def _exp(logs: FloatArray) -> FloatArray:
    """exp in place; numbers so small that arithmetic with them is slow are cut."""
    return np.exp(np.maximum(logs, -700.0, out=logs), out=logs)


def _density(coefs: FloatArray, basis: Rows, separate: bool, u: FloatArray) -> FloatArray:
    rows, block = basis(u), max(1, BLOCK * coefs.shape[-1] // coefs.size)
    cuts = range(0, u.size, block)
    return np.concatenate(
        [_mixed(_exp(coefs @ rows[:, i : i + block]), separate) for i in cuts], axis=-1
    )


def _first_edges(
    density: Density, weights: FloatArray, ends: FloatArray, careful: bool
) -> FloatArray:
    """Where densities peak and fade out, but no two points much closer than the narrowest peak.

    A careful look is at every candidate and further out; else at the likeliest of each arm's own.
    """
    away = np.array([-8.0, -3.0, 0.0, 3.0, 8.0] if careful else [-3.0, 0.0, 3.0])
    marks = density.mode[..., None] + away * density.spread[..., None]
    if weights.shape[1] > 1 and not careful:
        marks = marks[weights.argmax(axis=0), np.arange(marks.shape[1])]
    step = density.spread.min()
    marks = np.round(marks.ravel() / step) * step
    return np.unique(np.append(ends, np.clip(marks, *ends)))


def _ends(density: Density) -> tuple[float, float]:
    """Points outside which no density has more than about exp(-DROP).

    Newton's method for a drop of the log density by DROP; as that is concave, a step from
    anywhere lands outside.
    """

    def at(rows: Rows, u: FloatArray) -> FloatArray:
        values: FloatArray = np.einsum("ckb,bsck->sck", density.coefs, rows(u))
        return values

    peak = at(density.basis, density.mode[None])
    u = density.mode + np.array([-1.0, 1.0])[:, None, None] * math.sqrt(2 * DROP) * density.spread
    for _ in range(2):
        u = np.clip(u, *density.ends)
        u = u - (at(density.basis, u) - peak + DROP) / at(density.slopes, u)
    low, high = np.clip(u, *density.ends)
    return float(low.min()), float(high.max())


def _resolve(density: Rows, edges: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Pieces on which a polynomial describes the density: their widths, and values at nodes."""
    left, width = edges[:-1], np.diff(edges)
    done = []
    for _ in range(60):
        nodes = left[:, None] + width[:, None] * NODES
        f = density(nodes.ravel())
        f = f.reshape(*f.shape[:2], *nodes.shape)
        rough = np.abs(f @ _LAST).max(axis=(0, 1, 3)) * width > ROUGH
        done.append((left[~rough], width[~rough], f[:, :, ~rough]))
        if not rough.any():
            break
        half = width[rough] / 2
        left = np.concatenate([left[rough], left[rough] + half])
        width = np.concatenate([half, half])
    lefts, widths, values = (
        np.concatenate([piece[i] for piece in done], axis=2 if i == 2 else 0) for i in range(3)
    )
    order = lefts.argsort()
    return widths[order], values[:, :, order]
