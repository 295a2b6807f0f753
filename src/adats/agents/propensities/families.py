"""Densities of a mean reward as exp(coefs · basis(u)), in a coordinate u where they are smooth.

u is the logit of a probability, the logarithm of a count or time, and a number itself. In u the
logarithm of every density is concave, and u grows with the mean reward, so the best arm stays it.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.special import betaln, expit, gammaln, log_expit

from adats.models import BetaArms, ExponentialArms, GaussianArms, PoissonArms
from adats.models.core.types import FloatArray

Rows = Callable[[FloatArray], FloatArray]


class Family(NamedTuple):
    """The densities of a stack of candidates: parameters have the shape (candidates, arms)."""

    coefs: FloatArray  # (candidates, arms, 3)
    basis: Rows  # three functions of u, one a row
    slopes: Rows  # their derivatives
    mode: FloatArray
    spread: FloatArray  # the standard deviation that the peak looks like
    ends: tuple[float, float]  # beyond them all draws are rounded to the same number


def _beta(belief: Any) -> Family:
    a, b = belief.alpha, belief.beta
    return Family(
        np.stack([a, b, -betaln(a, b)], axis=-1),
        lambda u: np.stack([log_expit(u), log_expit(-u), np.ones_like(u)]),
        lambda u: np.stack([expit(-u), -expit(u), np.zeros_like(u)]),
        np.log(a) - np.log(b),
        np.sqrt(1 / a + 1 / b),
        (-744.0, 36.7),  # a draw below 5e-324 is 0, one above 1 - 1e-16 is 1
    )


def _poisson(belief: Any) -> Family:
    k, r = belief.shape, belief.rate
    return Family(
        np.stack([k, -r, k * np.log(r) - gammaln(k)], axis=-1),
        lambda u: np.stack([u, np.exp(u), np.ones_like(u)]),
        lambda u: np.stack([np.ones_like(u), np.exp(u), np.zeros_like(u)]),
        np.log(k) - np.log(r),
        1 / np.sqrt(k),
        (-744.0, 700.0),
    )


def _exponential(belief: Any) -> Family:
    """The mean reward is one over the rate: the same mirrored."""
    rate = _poisson(belief)
    return Family(
        rate.coefs,
        lambda u: rate.basis(-u),
        lambda u: -rate.slopes(-u),
        -rate.mode,
        rate.spread,
        (-700.0, 709.0),
    )


def _gaussian(belief: Any) -> Family:
    unit = belief.scale.max()
    mean, scale = (belief.mean - belief.mean.mean()) / unit, belief.scale / unit
    precision = scale**-2.0
    rest = 0.5 * np.log(precision / (2 * math.pi)) - 0.5 * precision * mean**2
    return Family(
        np.stack([mean * precision, -0.5 * precision, rest], axis=-1),
        lambda u: np.stack([u, u * u, np.ones_like(u)]),
        lambda u: np.stack([np.ones_like(u), 2 * u, np.zeros_like(u)]),
        mean,
        scale,
        (-math.inf, math.inf),
    )


FAMILIES: dict[type, Callable[[Any], Family]] = {
    BetaArms: _beta,
    ExponentialArms: _exponential,
    GaussianArms: _gaussian,
    PoissonArms: _poisson,
}
