"""Quantiles and chances to be best of large mixtures, from densities summed up from above.

The densities of `Density` are log-concave and cost about a nanosecond each, a hundredth of an
incomplete beta function. So a mixture is integrated over pieces, from where nothing is left above
them downwards. A piece is as long as every candidate allows: some widths of the bend in its
logarithm, or a part of the way to it. Mixtures that differ (arms, or candidates that are whole
products) go down side by side, each on pieces of its own.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

from adats.models.core.quadrature import INTEGRALS, NODES, WEIGHTS, Density
from adats.models.core.types import BoolArray, FloatArray, IntArray

CHUNK = 3  # pieces worked out at a time
CHUNKS = 500  # and no more of these: pieces get longer, so they reach anywhere
LADDER = np.array(  # where the upper end is sought, in spreads above the highest peak
    [[2.0, 5.0, 8.5], [25.0, 80.0, 250.0], [8e2, 2.5e3, 8e3], [3e4, 1e5, 1e6], [1e7, 1e8, 1e9]]
)
ABSOLUTE = 1e-6  # what is left out of a chance
TINY = 1e-300
LIGHT = 1e-8  # chances leave out a candidate of less weight
FAINT = 1e-10  # quantiles leave out candidates with less of the tail, together
BLOCK = 72_000  # numbers worked on at a time
FEW = 100  # beliefs, or groups, that are worked out with care
LEAST = {4: -80.0, 8: -700.0}  # logarithms in single and double precision


class Care(NamedTuple):
    """How exact: of a piece, the length in widths of a bend or as a part of the way to it; what
    is left out of a quantile's tail; and steps of Newton's method."""

    widths: float
    way: float
    relative: float
    steps: int


CAREFUL, QUICK = Care(2.0, 0.35, 1e-14, 5), Care(4.0, 0.7, 1e-9, 3)
ROUGHLY = QUICK._replace(widths=5.0)  # for chances
_SPOTS = np.concatenate([[0.0], NODES, [1.0]])
_TO_NODES_AND_END = np.column_stack([INTEGRALS, WEIGHTS]).T.copy()

_TO_ENDS = np.triu(np.ones((CHUNK, CHUNK)))  # sums over pieces, each with those before it


class Room(NamedTuple):
    """Memory that is used again: new memory costs more than what is done with it."""

    logs: FloatArray
    densities: FloatArray
    below: FloatArray


class Side(NamedTuple):
    """Groups that go down side by side; in each, arms that share pieces; in those, a mixture."""

    density: Density  # its parameters have the shape (groups, arms times candidates)
    arms: int
    bend: FloatArray  # the same turned, as the least of many columns is found quickly
    reach: FloatArray  # lengths that the candidates allow there
    care: Care

    @classmethod
    def of(cls, density: Density, arms: int, care: Care) -> "Side":
        """With more care where it costs little."""
        care = CAREFUL if density.mode.size <= FEW else care
        bend, reach = density.bend.T, care.widths * density.width.T
        return cls(density, arms, np.ascontiguousarray(bend), np.ascontiguousarray(reach), care)

    def only(self, groups: IntArray | slice) -> "Side":
        bend, reach = self.bend[:, groups], self.reach[:, groups]
        return Side(picked(self.density, groups), self.arms, bend, reach, self.care)

    def __call__(self, u: FloatArray, room: Room | None = None) -> FloatArray:
        """Densities of all arms at some u of each group: (groups, arms, u)."""
        groups, points = u.shape
        basis, coefs = np.moveaxis(self.density.basis(u), 0, 1), self.density.coefs
        if room is not None:
            return self._mixed(self._exp(np.matmul(coefs, basis, out=room.logs[:groups]), room))
        block = max(1, BLOCK // (coefs.shape[1] * points))
        cuts = [slice(first, first + block) for first in range(0, groups, block)]
        return np.concatenate([self._mixed(self._exp(coefs[c] @ basis[c])) for c in cuts])

    def _exp(self, logs: FloatArray, room: Room | None = None) -> FloatArray:
        if room is not None and room.densities is not room.logs:
            room.densities[: len(logs)] = logs
            logs = room.densities[: len(logs)]
        np.exp(np.maximum(logs, LEAST[logs.itemsize], out=logs), out=logs)  # below it is slow
        return logs

    def _mixed(self, each: FloatArray) -> FloatArray:
        each = each.reshape(len(each), self.arms, -1, each.shape[2])
        if each.shape[2] == 1:
            return each[:, :, 0]
        mixed: FloatArray = (np.ones((1, each.shape[2]), each.dtype) @ each)[:, :, 0]
        return mixed

    def start(self, small: FloatArray) -> FloatArray:
        """Where each group begins: above it all of its arms have less than `small`.

        Once its logarithm has fallen by 1, a log-concave density has less left than its value
        times the way from its peak.
        """
        mode, spread = (np.ascontiguousarray(p.T) for p in (self.density.mode, self.density.spread))
        top, bottom, width = mode.max(axis=0), mode.min(axis=0), spread.max(axis=0)
        found, left, side = np.empty(small.size), np.arange(small.size), self
        for steps in LADDER:
            u = np.minimum(top[left, None] + width[left, None] * steps, self.density.ends[1])
            above = side(u).max(axis=1) * (u - bottom[left, None])
            fits = above < small[left, None]
            found[left] = u[
                np.arange(left.size), np.where(fits.any(axis=1), fits.argmax(axis=1), -1)
            ]
            rest = np.flatnonzero(~fits.any(axis=1))
            if not rest.size:
                break
            side, left = side.only(rest), left[rest]
        return found

    def lengths(self, u: FloatArray) -> FloatArray:
        """Of the pieces that begin at u, one a group."""
        way = np.abs(self.bend - u)
        way *= self.care.way
        shortest: FloatArray = np.maximum(way, self.reach, out=way).min(axis=0)
        return shortest

    def edges(self, u: FloatArray) -> FloatArray:
        """Of the next pieces of each group, from above."""
        edges = np.empty((u.size, CHUNK + 1))
        edges[:, 0] = u
        for i in range(CHUNK):
            edges[:, i + 1] = edges[:, i] - self.lengths(edges[:, i])
        return edges

    def piecewise(
        self, edges: FloatArray, room: Room | None = None
    ) -> tuple[FloatArray, FloatArray]:
        """Lengths of pieces (groups, pieces), and densities (groups, arms, pieces, nodes)."""
        length = edges[:, :-1] - edges[:, 1:]
        nodes = edges[:, :-1, None] - length[:, :, None] * NODES
        f = self(nodes.reshape(len(edges), -1), room)
        return length, f.reshape(len(edges), self.arms, -1, NODES.size)


def changed(density: Density, change: Callable[[FloatArray], FloatArray]) -> Density:
    """With other parameters: all are arrays of (candidates, arms, ...)."""
    return density._replace(
        coefs=change(density.coefs),
        mode=change(density.mode),
        spread=change(density.spread),
        bend=change(density.bend),
        width=change(density.width),
    )


def picked(density: Density, rows: IntArray | BoolArray | slice) -> Density:
    return changed(density, lambda part: part[rows])


def mixtures(density: Density, weights: FloatArray, light: float) -> Density:
    """Of each arm, as (arms, candidates), with the weights in it; those up to `light` left out."""
    heavy = weights.max(axis=1) > light
    some = picked(density, heavy)
    some.coefs[..., 2] += np.log(np.maximum(weights[heavy], TINY))
    return changed(some, lambda part: part.swapaxes(0, 1))


def quantiles(density: Density, weights: FloatArray, z: FloatArray) -> FloatArray:
    """u of each arm at the level Φ(z), to 1e-7; NaN where nothing was found.

    Below the middle the same is done upside down.
    """
    found, p = np.empty(z.size), ndtr(-np.abs(z))
    arms = mixtures(density, weights, FAINT * float(p.min()) / len(weights))
    for part, turned in ((np.flatnonzero(z >= 0), False), (np.flatnonzero(z < 0), True)):
        if part.size:
            some = picked(arms, part)
            some = some.mirrored() if turned else some
            u = upper_quantiles(some, p[part])
            found[part] = -u if turned else u
    return found


def upper_quantiles(density: Density, p: FloatArray) -> FloatArray:
    """u of each arm, above which its mixture has the mass p; density as (arms, candidates)."""
    whole = side = Side.of(density, 1, QUICK)
    u, above, small = side.start(side.care.relative * p), np.zeros(p.size), p
    begin, top, guess = np.full((3, p.size), np.nan)
    left = np.arange(p.size)
    for _ in range(CHUNKS):
        if not left.size:
            break
        edges = side.edges(u)
        length, f = side.piecewise(edges)
        mass = _row_sums(f[:, 0], WEIGHTS) * length
        sums = above[:, None] + mass.cumsum(axis=1)
        over = sums > small[:, None]
        done = over.any(axis=1)
        here, rest = np.flatnonzero(done), np.flatnonzero(~done)
        if here.size:
            piece, arm = over[here].argmax(axis=1), left[here]
            begin[arm] = sums[here, piece] - mass[here, piece]
            top[arm], way = edges[here, piece], length[here, piece]
            parts = _row_sums(f[here, 0, piece][:, None], _TO_NODES_AND_END)
            inside = begin[arm, None] + way[:, None] * parts
            guess[arm] = top[arm] - way * _crossing(begin[arm], inside, p[arm])
            side, left, small = side.only(rest), left[rest], small[rest]
        u, above = edges[rest, -1], sums[rest, -1]
    return _solve(whole, begin, top, guess, p)


def _row_sums(rows: FloatArray, weights: FloatArray) -> FloatArray:
    """Weighted sums that are the same for the same rows, to the last digit, as those of BLAS are
    not: arms that are alike must have the same index."""
    sums: FloatArray = (rows * weights).sum(axis=-1)
    return sums


def _crossing(begin: FloatArray, inside: FloatArray, p: FloatArray) -> FloatArray:
    """About the part of a piece where the mass reaches p, between two of its nodes."""
    rows = np.arange(p.size)
    after = np.minimum((inside < p[:, None]).sum(axis=1), NODES.size)
    before = np.where(after > 0, inside[rows, after - 1], begin)
    part = np.clip((p - before) / (inside[rows, after] - before), 0.0, 1.0)
    crossing: FloatArray = _SPOTS[after] + (_SPOTS[after + 1] - _SPOTS[after]) * part
    return crossing


def _solve(
    side: Side, above: FloatArray, high: FloatArray, u: FloatArray, p: FloatArray
) -> FloatArray:
    """The point below high, near u, above which the mass is p; `above` is that above high.

    Newton's method for the logarithm of the mass.
    """
    for _ in range(side.care.steps):
        length = high - u
        f = side(np.concatenate([high[:, None] - length[:, None] * NODES, u[:, None]], axis=1))
        mass = above + length * _row_sums(f[:, 0, :-1], WEIGHTS)
        u = np.minimum(u + mass / f[:, 0, -1] * np.log(mass / p), high)
    return u


def chances(density: Density, weights: FloatArray, separate: bool) -> FloatArray:
    """The chance of each arm to be best in a mixture, to about 1e-5; as `best_of` for many."""
    arms = density.mode.shape[1]
    if separate:
        each = mixtures(density, weights, LIGHT)
        together = changed(each, lambda part: part.reshape(1, -1, *part.shape[2:]))
        chances: FloatArray = best_of_many(together, arms)[0]
        return chances
    heavy = weights[:, 0] > LIGHT
    if not heavy.all():
        density, weights = picked(density, heavy), weights[heavy]
    chances = weights[:, 0] @ best_of_many(density, arms)
    chances /= weights.sum()
    return chances


def best_of_many(density: Density, arms: int) -> FloatArray:
    """The chance of each arm to be best, (groups, arms), in groups of arms that share pieces.

    Many groups are worked out in single precision.
    """
    groups, wide = density.mode.shape
    points = CHUNK * NODES.size
    block = min(groups, max(1, BLOCK // (wide * points)))
    kind = np.float64 if groups <= FEW else np.float32
    logs = np.empty((block, wide, points))
    densities: FloatArray = logs if kind is np.float64 else np.empty(logs.shape, kind)
    room = Room(logs, densities, np.empty((block * arms * CHUNK, NODES.size), kind))
    shorter = min(1.0, (10 / arms) ** 0.2)  # the largest of many draws varies less than each
    care = ROUGHLY._replace(widths=ROUGHLY.widths * shorter)
    side, left = Side.of(density, arms, care), np.arange(groups)
    shares, above = np.zeros((groups, arms)), np.zeros((groups, arms), kind)
    u = side.start(np.full(groups, ABSOLUTE))
    for _ in range(CHUNKS):
        if not left.size:
            break
        edges = side.edges(u)
        for first in range(0, left.size, block):
            some = slice(first, first + block)
            shares[left[some]] += _shares(side.only(some), edges[some], above[some], room)
        rest = np.flatnonzero(np.maximum(1.0 - above.T, 0.0).prod(axis=0) > ABSOLUTE)
        side, left, u, above = side.only(rest), left[rest], edges[rest, -1], above[rest]
    shares /= shares.sum(axis=1, keepdims=True)
    return shares


def _shares(side: Side, edges: FloatArray, above: FloatArray, room: Room) -> FloatArray:
    """The chances that an arm is best and on these pieces; `above` grows by what is on them."""
    kind = room.below.dtype
    weights, integrals, to_ends = (m.astype(kind) for m in (WEIGHTS, INTEGRALS, _TO_ENDS))
    length, f = side.piecewise(edges, room)
    f *= length.astype(kind)[:, None, :, None]
    flat = f.reshape(-1, NODES.size)  # one product of matrices, not one a piece
    mass = flat @ weights
    sums = above[..., None] + (mass.reshape(-1, CHUNK) @ to_ends).reshape(f.shape[:-1])
    below = np.matmul(flat, integrals, out=room.below[: len(flat)]).reshape(f.shape)
    np.subtract((1 - sums + mass.reshape(sums.shape))[..., None], below, out=below)
    np.maximum(below, 1e-30, out=below)
    together = below[:, 0].copy()
    for arm in range(1, side.arms):
        together *= below[:, arm]
    f *= together[:, None]
    f /= below
    above[:] = sums[..., -1]
    shares: FloatArray = (flat @ weights).reshape(-1, CHUNK) @ to_ends[:, -1]
    return shares.reshape(above.shape)
