"""What the loops of index policies share: levels, and the arm with the highest index.

Of a policy (`Policy`), `levels` has, for every round, the level of Bayes-UCB or the width of the
far-sighted index, and is not read for the others; `counted` has for every arm the rounds of later
tasks that it counts. Rewards come `delay` rounds late; pending pulls shrink the variances at once.
"""

import functools
import math
from collections.abc import Callable
from types import FunctionType
from typing import Any

import numba
import numpy as np

from adats.agents.policies import far_sighted_level, finite_horizon_level
from adats.models.core.types import FloatArray
from adats.simulation.kernels.common import Round, compiled, inlined
from adats.simulation.kernels.registry import FAR, INDEX, UCB

_finite_horizon_level = inlined(finite_horizon_level)
_far_sighted_level = inlined(far_sighted_level)


@compiled
def level_of(number: int, level: float, v: float, horizon: int, counted: float) -> float:
    """z of one arm, whose index is mean + z·scale; `level` is the policy's for this round."""
    z = 0.0
    if number == UCB:
        z = level
    elif number == INDEX:
        z = _finite_horizon_level(v, horizon)
    elif number == FAR:
        z = _far_sighted_level(v, horizon + counted, level)
    return z


@compiled
def index_arm(
    now: Round,
    counted: FloatArray,
    precision: FloatArray,
    centre: FloatArray,
    variance: FloatArray,
    bounds: FloatArray,
) -> int:
    """The arm with the highest index.

    Few levels are worked out: they only fall with the variance and the horizon, so those of
    earlier rounds, in `bounds`, bound them. That of Bayes-UCB is the same for all.
    """
    number, level, horizon = now
    leader = 0
    for i in range(1, centre.size):
        if centre[i] > centre[leader]:
            leader = i
    arm, highest, known = leader, centre[leader], False
    for i in range(centre.size):
        bound = level if number == UCB else bounds[i]
        gap = highest - centre[i]
        if i == leader or (gap > 0.0 and bound * bound * variance[i] < gap * gap):
            continue
        if not known:  # the leader's mean alone was not enough
            known = True
            v = variance[leader] * precision[leader]
            z = level_of(number, level, v, horizon, counted[leader])
            highest = max(highest, centre[leader] + z * math.sqrt(variance[leader]))
            gap = highest - centre[i]
            if gap > 0.0 and bound * bound * variance[i] < gap * gap:
                continue
        v = variance[i] * precision[i]
        z = level_of(number, level, v, horizon, counted[i])
        bounds[i] = z + 0.583 * math.sqrt(v) if number == FAR else z
        value = centre[i] + z * math.sqrt(variance[i])
        if value > highest or (value == highest and i < arm):
            arm, highest = i, value
    return arm


@functools.cache
def with_rule(loop: Any, rule: Callable[[float, float, float], float]) -> Any:
    """A loop of index policies with a rule of the user's own in place of `index_arm`.

    Its `levels` are the numbers of the rounds.
    """
    own: Any = numba.njit(rule, error_model="numpy")

    def own_arm(
        now: Round,
        counted: FloatArray,  # noqa: ARG001
        precision: FloatArray,
        centre: FloatArray,
        variance: FloatArray,
        bounds: FloatArray,  # noqa: ARG001
    ) -> int:
        _, level, horizon = now
        arm, highest = 0, -np.inf
        for i in range(centre.size):
            z = own(variance[i] * precision[i], horizon, level)
            value = centre[i] + z * math.sqrt(variance[i])
            if value > highest:
                arm, highest = i, value
        return arm

    plain = loop.py_func
    names = {**plain.__globals__, "index_arm": numba.njit(own_arm, error_model="numpy")}
    return numba.njit(FunctionType(plain.__code__, names), error_model="numpy")


def loop_of(loop: Any, rule: Callable[[float, float, float], float] | None) -> Any:
    """The loop for a policy with this rule, or for one that is built in."""
    return loop if rule is None else with_rule(loop, rule)
