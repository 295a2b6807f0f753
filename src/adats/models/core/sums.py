"""Compensated sums: adding and subtracting a million terms leaves the error of one."""

from typing import NamedTuple, Self

import numpy as np

from adats.models.core.types import FloatArray


def two_sum(a: float, b: float) -> tuple[float, float]:
    """a + b as it is rounded, and what the rounding lost (Knuth)."""
    total = a + b
    back = total - a
    return total, (a - (total - back)) + (b - back)


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
        high = self.high + term
        back = high - self.high
        lost = high - back
        np.subtract(self.high, lost, out=lost)
        np.subtract(term, back, out=back)
        lost += back
        lost += self.low
        return Sum(high, lost)

    def swap(self, old: FloatArray, new: FloatArray) -> "Sum":
        """One term in and another out. What goes out is just what once came in, to the last bit."""
        added = self.high + new
        back = added - self.high
        lost = added - back
        np.subtract(self.high, lost, out=lost)
        np.subtract(new, back, out=back)
        lost += back
        high = np.subtract(added, old, out=back)
        more = high - added
        rest = high - more
        np.subtract(added, rest, out=rest)
        more += old
        rest -= more
        lost += rest
        lost += self.low
        return Sum(high, lost)

    def value(self) -> FloatArray:
        return self.high + self.low
