"""Arms of any one-parameter exponential family with conjugate beliefs, by quadrature.

The belief over eta is exp(total·eta - count·A(eta)) / Z: as if `count` rewards with the sum `total`
had been seen. The mean of A'(eta) is total / count (Diaconis and Ylvisaker, 1979). Z and the spread
are integrals over four pieces around the peak, up to where the log density has fallen by DROPS.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike

from adats.models.core import checks
from adats.models.core.errors import InvalidValue
from adats.models.core.frozen import fill
from adats.models.core.product import ProductArms, PullSums
from adats.models.core.quadrature import Density, Rows
from adats.models.core.stats import ArmStats
from adats.models.core.tails import quantiles
from adats.models.core.ties import in_order
from adats.models.core.types import FloatArray, Rng
from adats.models.family.family import ExponentialFamily

NODES, WEIGHTS = np.polynomial.legendre.leggauss(32)
NODES, WEIGHTS = (NODES + 1.0) / 2.0, WEIGHTS / 2.0
DROPS = (1.0, 40.0)
WIDE, FINE, ROUGH = 30.0, 45, 10  # how far a point is sought, and halvings of that
LARGE = 1e280  # values of A and its derivative beyond it are cut


class Shape(NamedTuple):
    """Where the density in u of each arm is: edges of pieces from left to right, and log Z."""

    edges: FloatArray
    peak: FloatArray  # of the log density, before Z
    log_z: FloatArray


@dataclass(frozen=True, eq=False)
class FamilyArms(ProductArms):
    """As if each arm had been pulled `count` times, with rewards that sum to `total`.

    A subclass gives the FAMILY; the arms are independent.

    >>> from adats.models.family.family import TIME
    >>> class Times(FamilyArms):
    ...     FAMILY = TIME
    >>> Times(total=[4.0], count=[2.0]).mean
    array([2.])
    """

    total: FloatArray
    count: FloatArray
    PARAMETERS: ClassVar[tuple[str, ...]] = ("total", "count")
    FAMILY: ClassVar[ExponentialFamily]

    def __init_subclass__(cls) -> None:
        cls.NAME = cls.MODEL = cls.FAMILY.name
        cls.STATS = cls.FAMILY.rewards

    def __init__(self, total: ArrayLike, count: ArrayLike) -> None:
        fill(self, total=checks.array("total", total), count=checks.positive("count", count))
        self._settle()
        if not np.isfinite(self.shape.log_z).all():
            raise InvalidValue("total", f"over count must be a mean reward, got {self.mean}")

    @property
    def mean(self) -> FloatArray:
        return self.total / self.count

    @property
    def scale(self) -> FloatArray:
        """Of A'(eta), by pieces that go as far as its square needs; infinite where none do."""
        edges, mean = self.shape.edges, self.mean
        gap = self._rewards(edges[3]) - self._rewards(edges[1])

        def left(u: FloatArray) -> FloatArray:
            off = (self._rewards(u) - mean) / gap
            fallen = self._along(self._basis(u)) - self.shape.peak
            return fallen + 2.0 * np.log(np.hypot(1.0, off))

        with np.errstate(all="ignore"):
            low, high = _crossings(left, DROPS[1], edges[2], self.FAMILY.ends)
            known = np.maximum(left(low), left(high)) < 1.0 - DROPS[1]
            low, high = np.minimum(low, edges[0]), np.maximum(high, edges[-1])
            u, width = _nodes(np.concatenate([low[None], edges, high[None]]))
            variance = _integral(self._chances(u) * (self._rewards(u) - mean) ** 2, width)
        return np.where(known, np.sqrt(variance), np.inf)

    @property
    def reward_variance(self) -> FloatArray:
        """On average: E[A''(eta)], by parts."""
        return self.count * self.scale**2

    def sample(self, rng: Rng) -> FloatArray:
        return self.upper(rng.standard_normal(self.total.shape))

    def below(self, x: FloatArray) -> FloatArray:
        edges = self.shape.edges
        with np.errstate(all="ignore"):
            u = _root(lambda u: x - self._rewards(u), edges[2], self.FAMILY.ends)
            u = np.where(np.isnan(u), np.where(x > self.mean, np.inf, -np.inf), u)
            nodes, width = _nodes(np.clip(u, edges[0], edges))
            return np.minimum(_integral(self._chances(nodes), width), 1.0)

    def upper(self, z: FloatArray | float) -> FloatArray:
        flat = self.of(*(p.reshape(1, -1) for p in self.parameters()))
        density, levels = flat.density(), np.broadcast_to(z, self.total.shape).ravel()
        if not density.sure():  # a billion pulls: nothing is left but a normal distribution
            return self.mean + z * self.scale
        u = quantiles(density, np.ones((1, levels.size)), levels).reshape(self.total.shape)
        pairs = zip(np.atleast_2d(self._rewards(u)), np.atleast_2d(u), strict=True)
        return np.array([in_order(rewards, at) for rewards, at in pairs]).reshape(u.shape)

    def density(self) -> Density:
        shape = self.shape
        mode, ones = shape.edges[2], np.ones_like(shape.peak)
        near = shape.edges[1:4]  # the logarithm bends most at one of these
        curves = self._curve(near)
        at = curves.argmax(axis=0)[None]
        bend, curve = (np.take_along_axis(part, at, axis=0)[0] for part in (near, curves))
        return Density(
            np.stack([self.total, self.count, -shape.log_z, ones], axis=-1),
            self._basis,
            self._slopes,
            mode,
            self._curve(mode) ** -0.5,
            bend,
            curve**-0.5,
            self.FAMILY.ends,
            self._rewards,
        )

    def updated(self, stats: ArmStats | PullSums) -> Self:
        return self.of(self.total + stats.total, self.count + stats.count)

    def log_normaliser(self) -> FloatArray:
        return self.shape.log_z

    @cached_property
    def shape(self) -> Shape:
        ends = self.FAMILY.ends
        with np.errstate(all="ignore"):
            mode = _root(lambda u: self._along(self._slopes(u)), self.total, ends)
            peak = self._along(self._basis(mode))

            def left(u: FloatArray) -> FloatArray:
                return self._along(self._basis(u)) - peak

            near, far = (_crossings(left, drop, mode, ends) for drop in DROPS)
            edges = np.stack([far[0], near[0], mode, near[1], far[1]])
            u, width = _nodes(edges)
            return Shape(edges, peak, peak + np.log(_integral(np.exp(left(u)), width)))

    def _along(self, rows: FloatArray) -> FloatArray:
        """The log density in u, before Z, or its slope; arms are the last axis."""
        along: FloatArray = self.total * rows[0] + self.count * rows[1] + rows[3]
        return along

    def _chances(self, u: FloatArray) -> FloatArray:
        """The density at u."""
        chances: FloatArray = np.exp(self._along(self._basis(u)) - self.shape.log_z)
        return chances

    @classmethod
    def _basis(cls, u: FloatArray) -> FloatArray:
        with np.errstate(all="ignore"):
            eta, _, log_slope, _ = cls.FAMILY.natural(u)
            rows = np.stack([eta, -cls.FAMILY.log_partition(eta), np.ones_like(u), log_slope])
        return _cut(rows)

    @classmethod
    def _slopes(cls, u: FloatArray) -> FloatArray:
        with np.errstate(all="ignore"):
            eta, slope, _, change = cls.FAMILY.natural(u)
            rows = np.stack([slope, -cls.FAMILY.mean(eta) * slope, np.zeros_like(u), change])
        return _cut(rows)

    @classmethod
    def _rewards(cls, u: FloatArray) -> FloatArray:
        with np.errstate(all="ignore"):
            return _cut(np.asarray(cls.FAMILY.mean(cls.FAMILY.natural(u)[0])))

    def _curve(self, u: FloatArray) -> FloatArray:
        """How much the log density bends there, by a difference of slopes."""
        step = 1e-4 * (self.shape.edges[3] - self.shape.edges[1])
        fall = self._along(self._slopes(u - step)) - self._along(self._slopes(u + step))
        curve: FloatArray = np.maximum(fall / (2.0 * step), 1.0 / LARGE)
        return curve


def _cut(rows: FloatArray) -> FloatArray:
    finite: FloatArray = np.nan_to_num(rows, nan=-LARGE, posinf=LARGE, neginf=-LARGE)
    return finite


def _root(falling: Rows, like: FloatArray, ends: tuple[float, float]) -> FloatArray:
    """Where a falling function is 0; NaN if it is nowhere."""

    def at(v: FloatArray) -> FloatArray:
        return np.clip(np.sinh(v), *ends)

    low, high = np.full_like(like, -WIDE), np.full_like(like, WIDE)
    nowhere = (falling(at(low)) <= 0) | (falling(at(high)) > 0)
    for _ in range(FINE):
        middle = 0.5 * (low + high)
        on = falling(at(middle)) > 0
        low, high = np.where(on, middle, low), np.where(on, high, middle)
    return np.where(nowhere, np.nan, at(0.5 * (low + high)))


def _crossings(left: Rows, drop: float, start: FloatArray, ends: tuple[float, float]) -> FloatArray:
    """About where a function that is 0 at the start has fallen so far, below and above it; the
    ends where it has not fallen up to there."""
    sides = np.array([-1.0, 1.0]).reshape(2, *[1] * start.ndim)
    low, high = np.full((2, *start.shape), -WIDE), np.full((2, *start.shape), WIDE)
    for _ in range(ROUGH):
        middle = 0.5 * (low + high)
        on = left(np.clip(start + sides * np.exp(middle), *ends)) > -drop
        low, high = np.where(on, middle, low), np.where(on, high, middle)
    found: FloatArray = np.clip(start + sides * np.exp(high), *ends)
    return found


def _nodes(edges: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Points on each piece, with a first axis for the points, and the widths."""
    width = np.diff(edges, axis=0)
    return edges[:-1] + width * NODES.reshape(-1, *[1] * width.ndim), width


def _integral(values: FloatArray, width: FloatArray) -> FloatArray:
    """Over all pieces, from values at the nodes."""
    integral: FloatArray = np.tensordot(WEIGHTS, (values * width).sum(axis=1), 1)
    return integral
