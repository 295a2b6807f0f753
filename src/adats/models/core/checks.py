"""Checks of what users give: each returns a clean value or raises `InvalidValue` saying why."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.linalg import blas

from adats.models.core.errors import InvalidValue
from adats.models.core.types import FloatArray

ROUND_OFF = 1e-9  # relative: how far from symmetric or positive semi-definite still is round-off

HUGE = 1e150  # its square still is a number
NO_NUMBERS = (
    str,
    bytes,
    np.complexfloating,
    np.datetime64,
    np.timedelta64,
)  # though float() may do


def array(name: str, value: object, *, ndim: int | None = None) -> FloatArray:
    """A finite, read-only copy of `value` as float64."""
    try:
        given = np.asarray(value)
        if given.dtype.kind in "USVcmM":  # text, complex numbers and dates would be read as numbers
            raise TypeError
        result = np.array(given, dtype=np.float64, order="C")
    except (TypeError, ValueError, OverflowError):
        raise InvalidValue(name, f"must be numbers, got {value!r}") from None
    if ndim is not None and result.ndim != ndim:
        raise InvalidValue(name, f"must have {ndim} dimensions, got shape {result.shape}")
    if not np.isfinite(result).all():
        where = tuple(int(i) for i in np.argwhere(~np.isfinite(result))[0])
        raise InvalidValue(name, f"must be finite, got {result[where]} at index {where}")
    result.flags.writeable = False
    return result


def non_negative(name: str, value: object) -> FloatArray:
    """A finite array with no negative entry; a scale of 0 is legal and exact."""
    result = array(name, value)
    if (result < 0).any():
        raise InvalidValue(name, f"must not be negative, got {result.min()}")
    return result


def positive(name: str, value: object) -> FloatArray:
    """A finite array of positive entries."""
    result = array(name, value)
    if not (result > 0).all():
        raise InvalidValue(name, f"must be positive, got {result.min()}")
    return result


def number(name: str, value: Any) -> float:
    """A finite float."""
    try:
        if isinstance(value, NO_NUMBERS) or np.ndim(value):
            raise TypeError
        result = float(value)
    except (TypeError, ValueError, OverflowError):
        raise InvalidValue(name, f"must be a number, got {value!r}") from None
    if not math.isfinite(result):
        raise InvalidValue(name, f"must be finite, got {result}")
    return result


def non_negative_number(name: str, value: Any) -> float:
    """A finite float that is not negative."""
    return float(non_negative(name, number(name, value)))


def positive_number(name: str, value: Any) -> float:
    """A finite positive float."""
    return float(positive(name, number(name, value)))


def count_of(name: str, value: object, *, least: int = 1) -> int:
    """A whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise InvalidValue(name, f"must be a whole number of at least {least}, got {value!r}")
    return int(value)


def counts(pulls: object, successes: object, most: float) -> tuple[float, float]:
    """So many pulls, and the sum of their rewards, each of at most `most`; fractions are legal."""
    n, s = number("pulls", pulls), number("successes", successes)
    if not 0.0 < n < HUGE:
        raise InvalidValue("pulls", f"must be positive, got {n}")
    if not 0.0 <= s <= min(most * n, HUGE):
        top = f"from 0 to {n}, the pulls" if most == 1.0 else "0 or more"
        raise InvalidValue("successes", f"must be {top}, got {s}")
    return n, s


def modest(name: str, values: FloatArray, most: float = HUGE) -> None:
    """Raise unless all values are finite and of modest size, so that by default their squares are
    finite too; one pass, for the hot path."""
    if values.size and not blas.dasum(values) < most:
        array(name, values)  # says which entry, if one is not finite
        why = "their squares overflow" if most == HUGE else f"{np.abs(values).max():g}; scale them"
        raise InvalidValue(name, f"too large: {why}")


def covariance(name: str, value: object, dim: int) -> FloatArray:
    """A symmetric positive semi-definite matrix, up to round-off; a number means number * I."""
    cov = array(name, value)
    if cov.ndim == 0:
        cov = cov * np.eye(dim)
    if cov.shape != (dim, dim):
        raise InvalidValue(name, f"must be a number or have shape ({dim}, {dim}), got {cov.shape}")
    size = np.abs(cov).max(initial=0.0)
    gap = np.abs(cov - cov.T).max(initial=0.0)
    if gap > ROUND_OFF * size:
        raise InvalidValue(name, f"must be symmetric, but differs from its transpose by {gap}")
    cov = (cov + cov.T) / 2
    smallest = np.linalg.eigvalsh(cov)[0] if dim else 0.0
    if smallest < -ROUND_OFF * size:
        raise InvalidValue(
            name, f"must be positive semi-definite, but its smallest eigenvalue is {smallest}"
        )
    cov.flags.writeable = False
    return cov


def weights(name: str, value: object, *, ndim: tuple[int, ...] = (1,)) -> FloatArray:
    """Probabilities that sum to one along the first axis."""
    result = non_negative(name, value)
    if result.ndim not in ndim or result.shape[0] == 0:
        raise InvalidValue(name, f"has the wrong shape {result.shape}")
    sums = result.sum(axis=0)
    if (np.abs(sums - 1) > ROUND_OFF).any():
        worst = float(np.ravel(sums)[np.abs(np.ravel(sums) - 1).argmax()])
        raise InvalidValue(name, f"must sum to 1, got {worst}")
    return result


def broadcast(names: Sequence[str], arrays: Sequence[FloatArray]) -> list[FloatArray]:
    """The arrays in one common shape."""
    try:
        return [np.array(a) for a in np.broadcast_arrays(*arrays)]
    except ValueError:
        shapes = ", ".join(f"{n} {a.shape}" for n, a in zip(names, arrays, strict=True))
        raise ValueError(f"shapes do not fit together: {shapes}") from None
