"""The chance of each arm to be best, for every belief over independent arms and their mixtures."""

from functools import singledispatch
from typing import Any

import numpy as np

from adats.agents.propensities.families import FAMILIES
from adats.agents.propensities.gaussian import best_gaussian
from adats.agents.propensities.quadrature import best_of
from adats.models import BeliefMixture, GaussianArms, MixtureArms
from adats.models.core.product import ProductArms
from adats.models.core.types import FloatArray, IntArray

LIGHT = 1e-12  # a candidate of less weight is left out of a mixture


@singledispatch
def best_arm(belief: Any, arms: IntArray | None) -> FloatArray | None:  # noqa: ARG001
    """The chance of each of these arms (of all, if None); None where only draws can tell."""
    return None


@best_arm.register
def _(belief: GaussianArms, arms: IntArray | None) -> FloatArray:
    if arms is None:
        return best_gaussian(belief.mean, belief.scale)
    return best_gaussian(belief.mean[arms], belief.scale[arms])


@best_arm.register
def _(belief: ProductArms, arms: IntArray | None) -> FloatArray | None:
    stack = belief.of(*(p[None] if arms is None else p[None, arms] for p in belief.parameters()))
    return _stacked(stack, np.ones((1, 1)), False)


@best_arm.register
def _(belief: MixtureArms, arms: IntArray | None) -> FloatArray | None:
    weights, parameters = belief.weights, belief.components.parameters()
    separate = weights.shape[1] > 1
    if arms is not None:
        parameters = tuple(p[:, arms] for p in parameters)
        weights = weights[:, arms] if separate else weights
    heavy = weights.max(axis=1) > LIGHT
    stack = belief.components.of(*(p[heavy] for p in parameters))
    if isinstance(stack, GaussianArms) and not separate:
        each = [best_gaussian(m, s) for m, s in zip(stack.mean, stack.scale, strict=True)]
        return _average(weights[heavy, 0], np.array(each))
    return _stacked(stack, weights[heavy], separate)


@best_arm.register
def _(belief: BeliefMixture, arms: IntArray | None) -> FloatArray | None:
    heavy = np.flatnonzero(belief.weights > LIGHT)
    each = [best_arm(belief.beliefs[i], arms) for i in heavy]
    if any(part is None for part in each):
        return None
    return _average(belief.weights[heavy], np.array(each))


def _stacked(stack: ProductArms, weights: FloatArray, separate: bool) -> FloatArray | None:
    known = isinstance(stack, GaussianArms) and not stack.scale.all()  # a density of no width
    if known or type(stack) not in FAMILIES:
        return None
    return best_of(FAMILIES[type(stack)](stack), weights, separate)


def _average(weights: FloatArray, each: FloatArray) -> FloatArray:
    average: FloatArray = weights @ each / weights.sum()
    return average
