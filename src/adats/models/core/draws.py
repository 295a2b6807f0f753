"""Random numbers for many tasks at once: from one stream, or of each task from a key of its own."""

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from scipy.special import betaincinv, gammaincinv, ndtri

from adats.models.core.types import FloatArray, IntArray, Rng

Keys = npt.NDArray[np.uint64]
STEP = np.uint64(0x9E3779B97F4A7C15)  # of the counter: 2⁶⁴ over the golden ratio
MIXERS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
SHIFTS = (np.uint64(30), np.uint64(27), np.uint64(31))


class Draws(Protocol):
    """What beliefs over many tasks draw from. The first axis of every shape is the task.

    `take` are the draws of some of the tasks, and `generator` makes an rng for one.
    """

    def standard_normal(self, shape: tuple[int, ...]) -> FloatArray: ...
    def random(self, size: Any) -> FloatArray: ...
    def beta(self, a: FloatArray, b: FloatArray) -> FloatArray: ...
    def standard_gamma(self, shape: FloatArray) -> FloatArray: ...
    def take(self, index: IntArray) -> "Draws": ...
    def generator(self, index: int) -> Rng: ...


class StreamDraws:
    """All from one stream, as they come."""

    def __init__(self, rng: Rng) -> None:
        self._rng = rng
        self.standard_normal, self.random = rng.standard_normal, rng.random
        self.beta, self.standard_gamma = rng.beta, rng.standard_gamma

    def take(self, index: IntArray) -> "StreamDraws":  # noqa: ARG002
        return self

    def generator(self, index: int) -> Rng:  # noqa: ARG002
        return self._rng


def mixed(values: Keys) -> Keys:
    """Numbers that look random and are never equal unless the values are (SplitMix64's last step:
    Steele, Lea, Flood 2014)."""
    z = values ^ (values >> SHIFTS[0])
    z *= MIXERS[0]
    z ^= z >> SHIFTS[1]
    z *= MIXERS[1]
    z ^= z >> SHIFTS[2]
    return z


class KeyedDraws:
    """Of each task from its own key: they depend on nothing else, such as who its neighbours are.

    SplitMix64 with a counter, so that draw number i of a key can be had without those before it.
    """

    def __init__(self, keys: Keys, used: int = 0) -> None:
        self._keys, self._used = keys, used

    def random(self, size: Any) -> FloatArray:
        """Uniform, in the open interval from 0 to 1."""
        shape = (size,) if isinstance(size, int) else tuple(size)
        each = int(np.prod(shape[1:], dtype=int))
        with np.errstate(over="ignore"):  # modulo 2⁶⁴
            steps = STEP * np.arange(self._used + 1, self._used + each + 1, dtype=np.uint64)
            bits = mixed(self._keys[:, None] + steps)
        self._used += each
        bits >>= np.uint64(12)
        uniform = bits.astype(np.float64)
        uniform += 0.5
        uniform *= 2.0**-52
        return uniform.reshape(shape)

    def standard_normal(self, shape: tuple[int, ...]) -> FloatArray:
        uniform = self.random(shape)
        normal: FloatArray = ndtri(uniform, out=uniform)
        return normal

    def beta(self, a: FloatArray, b: FloatArray) -> FloatArray:
        shape = np.broadcast_shapes(np.shape(a), np.shape(b))
        return np.asarray(betaincinv(a, b, self.random(shape)))

    def standard_gamma(self, shape: FloatArray) -> FloatArray:
        return np.asarray(gammaincinv(shape, self.random(shape.shape)))

    def take(self, index: IntArray) -> "KeyedDraws":
        return KeyedDraws(self._keys[index], self._used)

    def generator(self, index: int) -> Rng:
        return np.random.Generator(np.random.Philox(key=int(self._keys[index])))
