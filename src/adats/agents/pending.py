"""Pulls that have no reward yet: counts of arms, or the Gram matrix of a linear model."""

from typing import Any

import numpy as np

from adats.models.core.types import FloatArray, IntArray


def with_pulls(
    pending: FloatArray | None, rows: FloatArray | None, action: int | IntArray, arms: int
) -> FloatArray:
    """The pending pulls and these; `rows` are the features of a linear model."""
    if rows is None:
        more = np.zeros(arms)
        more[action] = 1.0
    else:
        pulled = np.atleast_2d(rows[action])
        more = pulled.T @ pulled
    return more if pending is None else pending + more


def without_pulls(pending: FloatArray, pulled: Any) -> FloatArray:
    """The pending pulls without these; `pulled` is what the statistics took."""
    if pending.ndim == 2:
        rows = np.atleast_2d(pulled)
        left: FloatArray = pending - rows.T @ rows
        return left
    left = pending.copy()
    left[pulled] -= 1.0
    return np.maximum(left, 0.0)
