"""Draws that are larger or smaller than floating point can tell, kept in their order."""

import math

import numpy as np

from adats.models.core.types import BoolArray, FloatArray, Rng

STEP = 5e-324  # the smallest number above 0


def untied(
    draws: FloatArray,
    rng: Rng,
    *,
    top: tuple[float, FloatArray] | None = None,
    bottom: FloatArray | None = None,
) -> FloatArray:
    """Draws of arms, the last axis, where those that were rounded to one number differ again.

    Beyond `top`, a number, and below the smallest float the logarithm or logit of a draw is
    exponential, with these rates. How far it lies beyond is drawn, and the draws become
    neighbouring numbers in that order. It is done only where the largest draws are tied.
    """
    if draws.ndim == 1 and 0.0 < draws.max() < (math.inf if top is None else top[0]):
        return draws  # nearly always
    best = draws.max(axis=-1)
    if top is not None and (best == top[0]).any():
        end, rates = top
        tied = _largest(draws, end)
        place = _beyond(tied, rates, rng).argsort(axis=-1).argsort(axis=-1)
        below = np.spacing(np.nextafter(end, 0.0)) * (draws.shape[-1] - 1 - place)
        draws = np.where(tied, end - below, draws)
    if bottom is not None and not best.all():
        tied = _largest(draws, 0.0)
        place = (-_beyond(tied, bottom, rng)).argsort(axis=-1).argsort(axis=-1)
        draws = np.where(tied, STEP * place, draws)
    return draws


def _largest(draws: FloatArray, end: float) -> BoolArray:
    """Where two or more draws are the largest and at this end."""
    tied: BoolArray = draws == end
    rows = (draws.max(axis=-1) == end) & (tied.sum(axis=-1) > 1)
    tied &= rows[..., None]
    return tied


def _beyond(tied: BoolArray, rates: FloatArray, rng: Rng) -> FloatArray:
    """How far beyond the end; 0 is not beyond."""
    far = np.zeros(tied.shape)
    far[tied] = rng.standard_exponential(int(tied.sum())) / np.broadcast_to(rates, tied.shape)[tied]
    return far


def in_order(values: FloatArray, u: FloatArray) -> FloatArray:
    """Numbers of arms where those that were rounded to the largest one are in the order of u."""
    best = values.max()
    tied = np.flatnonzero(values == best)
    if tied.size > 1 and np.ptp(u[tied]) > 0:
        _, place = np.unique(u[tied], return_inverse=True)
        values[tied] -= np.spacing(np.nextafter(best, 0.0)) * (place.max() - place)
    return values
