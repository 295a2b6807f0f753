"""How likely Thompson sampling is to choose each arm: what a log needs to be evaluated later.

With independent arms the chance that arm k is best is ∫ f_k(x) Π_{j≠k} F_j(x) dx, which beliefs
work out. Linear models and sets of arms are counted over draws.
"""

from typing import NamedTuple, cast

import numpy as np
from numpy.typing import ArrayLike

from adats.agents.oracles import BestArm, BestRow, Oracle
from adats.models.core import checks
from adats.models.core.types import Belief, BoolArray, FloatArray, IntArray, Rng, RowBelief

__all__ = ["Propensities", "chance", "exact_propensities", "floored", "propensities"]


class Propensities(NamedTuple):
    """The probability of each arm, or of its being in the chosen set, and the standard errors.

    `se` is 0 where nothing was drawn. The probability is then an integral. Its relative error is
    below 1e-6 for Gaussian arms where it is at least 1e-10, and for others where it is at least
    1e-6; its absolute error is below 1e-8. In large mixtures (more than 10 candidates that are
    whole products, or 400 beliefs in all) the absolute error is below 1e-4.
    """

    probabilities: FloatArray
    se: FloatArray


def propensities(
    belief: Belief,
    *,
    oracle: Oracle | None = None,
    features: ArrayLike | None = None,
    allowed: BoolArray | None = None,
    rng: Rng | None = None,
    draws: int = 1000,
    chosen: int | IntArray | None = None,
) -> Propensities:
    """The probability of each arm under Thompson sampling from this belief.

    `features` and `oracle` are those of the decision, `allowed` a mask of the arms open to it.
    The best of independent arms needs no draws. All else is the share of `draws` from `rng`.
    There the action that was `chosen` counts as one draw more: its share is then never 0, and
    its inverse is right on average.

    >>> from adats import GaussianArms
    >>> propensities(GaussianArms([0.0, 1.0], 1.0, 1.0)).probabilities.round(4)
    array([0.2398, 0.7602])
    """
    if isinstance(oracle, BestRow):
        features, oracle = oracle.features, None
    if type(oracle) is BestArm:
        oracle = None
    if oracle is None and features is None:
        exact = exact_propensities(belief, allowed)
        if exact is not None:
            return Propensities(exact, np.zeros(exact.size))
    if rng is None:
        raise ValueError("these propensities are counted over draws: give rng=")
    values = belief.draws(checks.count_of("draws", draws), rng)
    if features is not None:
        rows = checks.array("features", features, ndim=2)
        if rows.shape[1] != values.shape[1]:
            raise ValueError(f"features have {rows.shape[1]} columns, theta {values.shape[1]}")
        values = cast(RowBelief, belief).rewards_at(rows, values)
    if allowed is not None:
        values = np.where(_mask(allowed, values.shape[1]), values, -np.inf)
    return Propensities(*counted(values, oracle, chosen))


def exact_propensities(belief: Belief, allowed: BoolArray | None = None) -> FloatArray | None:
    """The chance of each arm to be best; None where only draws can tell."""
    if allowed is None:
        return belief.best_chances()
    arms = np.flatnonzero(_mask(allowed, belief.mean.size))
    inside = belief.best_chances(arms)
    if inside is None:
        return None
    exact = np.zeros(belief.mean.size)
    exact[arms] = inside
    return exact


def chance(belief: Belief, arm: int, allowed: BoolArray | None = None) -> float | None:
    """The chance of one arm to be best, in less time than that of all; None as there."""
    if allowed is None:
        return belief.best_chance(arm)
    mask = _mask(allowed, belief.mean.size)
    if not mask[arm]:
        return 0.0
    return belief.best_chance(int(mask[:arm].sum()), np.flatnonzero(mask))


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


def floored(
    probabilities: FloatArray, epsilon: float, *, allowed: BoolArray | None = None
) -> FloatArray:
    """Propensities of a policy that, with chance epsilon, takes any allowed arm instead.

    >>> floored(np.array([0.0, 1.0]), 0.1)
    array([0.05, 0.95])
    """
    if not 0 <= checks.number("epsilon", epsilon) <= 1:
        raise ValueError(f"epsilon must be between 0 and 1, got {epsilon}")
    given = checks.non_negative("probabilities", probabilities)
    if epsilon == 0:
        return given
    if given.ndim != 1 or abs(given.sum() - 1) > 1e-6:
        raise ValueError(f"a floor is for single arms, whose chances sum to 1; got {given}")
    mask = np.ones(given.size, dtype=bool) if allowed is None else _mask(allowed, given.size)
    share: FloatArray = epsilon * mask / mask.sum()
    return (1 - epsilon) * given + share


def _mask(allowed: BoolArray, arms: int) -> BoolArray:
    mask = np.asarray(allowed)
    if mask.dtype != bool or mask.shape != (arms,) or not mask.any():
        raise ValueError(f"allowed must be a mask of {arms} arms, at least one True; got {allowed}")
    return mask
