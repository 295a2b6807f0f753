"""Draws from any belief, many at once, and the actions that they lead to."""

from functools import singledispatch
from typing import Any

import numpy as np

from adats.agents.oracles import Oracle
from adats.models import BeliefMixture, LinearBelief, MixtureArms
from adats.models.core.product import ProductArms
from adats.models.core.types import FloatArray, IntArray, Rng
from adats.models.core.weights import draw
from adats.models.linear.belief import LinearPosterior


def counted(
    values: FloatArray, oracle: Oracle | None, chosen: int | IntArray | None
) -> tuple[FloatArray, FloatArray]:
    """The share of rows of mean rewards in which each arm is chosen, and its standard error."""
    draws, arms = values.shape
    if oracle is None:
        counts = np.bincount(values.argmax(axis=1), minlength=arms).astype(np.float64)
    else:
        counts = np.zeros(arms)
        for row in values:
            counts[oracle(row)] += 1
    if chosen is not None:
        picked = np.atleast_1d(chosen)
        if picked.size and not (
            picked.dtype.kind in "iu" and 0 <= picked.min() <= picked.max() < arms
        ):
            raise ValueError(f"chosen must be indices of the {arms} arms, got {chosen!r}")
        counts[picked.astype(np.intp)] += 1
        draws += 1
    smooth = (counts + 1) / (draws + 2)  # so that no standard error is 0
    return counts / draws, np.sqrt(smooth * (1 - smooth) / draws)


@singledispatch
def thetas(belief: Any, draws: int, rng: Rng) -> FloatArray:
    """Draws from the belief, one a row."""
    return np.stack([belief.sample(rng) for _ in range(draws)])


@thetas.register
def _(belief: ProductArms, draws: int, rng: Rng) -> FloatArray:
    return belief.of(*(np.tile(p, (draws, 1)) for p in belief.parameters())).sample(rng)


@thetas.register(LinearBelief)
@thetas.register(LinearPosterior)
def _(belief: Any, draws: int, rng: Rng) -> FloatArray:
    factor = belief.factor
    theta: FloatArray = belief.mean + rng.standard_normal((draws, factor.shape[1])) @ factor.T
    return theta


@thetas.register
def _(belief: MixtureArms, draws: int, rng: Rng) -> FloatArray:
    index = draw(np.tile(belief.weights, draws), rng).reshape(draws, -1)
    stack, arms = belief.components, np.arange(belief.components.n_arms)
    return stack.of(*(p[index, arms] for p in stack.parameters())).sample(rng)


@thetas.register
def _(belief: BeliefMixture, draws: int, rng: Rng) -> FloatArray:
    counts = rng.multinomial(draws, belief.weights).tolist()
    parts = zip(belief.beliefs, counts, strict=True)
    return np.concatenate([thetas(part, n, rng) for part, n in parts if n])
