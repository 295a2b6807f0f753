"""What all kernels share."""

import math

import numba
import numpy as np

from adats.models.core.types import FloatArray, IntArray

compiled = numba.njit(cache=True, error_model="numpy")
# sums in any order, so that a loop works on many numbers at once; what it calls is compiled in the
# same way, unless it says how, as `exact` does
compiled_sums = numba.njit(cache=True, error_model="numpy", fastmath={"reassoc", "nsz", "contract"})
exact = numba.njit(cache=True, error_model="numpy", fastmath={"contract"})
inlined = numba.njit(inline="always", error_model="numpy")  # for formulas: a call would cost more

# theta, arms to pull first, draws; regret and actions, which are filled
World = tuple[FloatArray, IntArray, FloatArray, FloatArray, IntArray]
Policy = tuple[int, FloatArray, FloatArray, int]  # the fields of `CompiledPolicy`
Round = tuple[int, float, int]  # its number and level, rounds left; an array here would be slow


class KnownRng(np.random.Generator):
    """A generator whose type Numba knows at once; with a plain one, every call looks it up."""

    _numba_type_ = numba.types.NumPyRandomGeneratorType(np.random.default_rng(0))


def fresh(*arrays: FloatArray) -> tuple[FloatArray, ...]:
    """Arrays that can be written to: a compiled loop is made for one kind of array only."""
    return tuple([a if a.flags.carray else np.array(a, order="C") for a in arrays])


@compiled
def count_reward(table: FloatArray, arm: int, y: float) -> None:
    table[0, arm] += 1.0
    table[1, arm] += y
    table[2, arm] += y * y


@compiled
def pick(weights: FloatArray, point: float) -> int:
    """The index at which the sum of weights passes that part of all of them."""
    total, below = 0.0, 0.0
    for weight in weights:
        total += weight
    for index in range(weights.size - 1):
        below += weights[index]
        if below > point * total:
            return index
    last: int = weights.size - 1
    return last


@compiled
def pick_by_logs(logs: FloatArray, weights: FloatArray, point: float) -> int:
    """An index whose probability is proportional to exp(logs); `weights` is room to work in."""
    top = logs.max()
    for j in range(logs.size):
        weights[j] = math.exp(logs[j] - top)
    return pick(weights, point)


@compiled
def poisson(mean: float, point: float) -> float:
    """The smallest count whose distribution function reaches the point."""
    count = max(0.0, math.floor(mean - 12.0 * math.sqrt(mean) - 12.0))
    mass = math.exp(count * math.log(mean) - mean - math.lgamma(count + 1.0))
    total = mass
    while total < point and (mass > 0.0 or count < mean):
        count += 1.0
        mass *= mean / count
        total += mass
    return count


@compiled
def reward(counts: bool, mean: float, point: float) -> float:
    """A count, or 0 or 1, of this mean: that at which its chances reach the point."""
    if counts:
        return poisson(mean, point)
    return 1.0 if point < mean else 0.0
