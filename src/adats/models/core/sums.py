"""Compensated sums: adding and subtracting a million terms leaves the error of one."""

from typing import NamedTuple, Self

import numpy as np

from adats.models.core.types import FloatArray


def two_sum(a: float, b: float) -> tuple[float, float]:
    """a + b as it is rounded, and what the rounding lost (Knuth)."""
    total = a + b
    back = total - a
    return total, (a - (total - back)) + (b - back)


def swapped(high: float, low: float, old: float, new: float) -> tuple[float, float]:
    """An entry of a compensated sum, with one term in and another out, as `Sum.swap` has it."""
    added = high + new
    back = added - high
    lost = (high - (added - back)) + (new - back)
    total = added - old
    back = total - added
    return total, low + (lost + ((added - (total - back)) - (old + back)))


def two_sums(a: FloatArray, b: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The same of arrays."""
    total = a + b
    back = total - a
    lost = total - back
    np.subtract(a, lost, lost)  # by place: quicker than out=
    np.subtract(b, back, back)
    lost += back
    return total, lost


class Sum(NamedTuple):
    """A compensated sum of arrays: what `high` rounds away is kept in `low`.

    Adding and subtracting a million terms leaves the error of one (Knuth's TwoSum), so a sum
    over tasks never has to be made anew.
    """

    high: FloatArray
    low: FloatArray

    @classmethod
    def zeros(cls, size: int) -> Self:
        return cls(np.zeros(size), np.zeros(size))

    def add(self, term: FloatArray) -> "Sum":
        if term.shape != self.high.shape:
            raise ValueError(f"a message of shape {term.shape} does not fit {self.high.shape}")
        high, lost = two_sums(self.high, term)
        lost += self.low
        return Sum(high, lost)

    def swap(self, old: FloatArray, new: FloatArray) -> "Sum":
        """One term in and another out. What goes out is just what once came in, to the last bit."""
        added, lost = two_sums(self.high, new)
        high = added - old  # from here as two_sums(added, -old), but nothing is negated
        back = high - added
        more = high - back
        np.subtract(added, more, more)
        back += old
        more -= back
        lost += more
        lost += self.low
        return Sum(high, lost)

    def scaled(self, factor: float) -> "Sum":
        return Sum(self.high * factor, self.low * factor)

    def value(self) -> FloatArray:
        return self.high + self.low
