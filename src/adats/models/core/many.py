"""Many tasks at once: their statistics are rows of numbers, one task each."""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from adats.models.core.belief import BeliefBase
from adats.models.core.draws import Draws
from adats.models.core.types import Digest, FloatArray, IntArray


class EachDigest(Sequence[Digest[Any]]):
    """Digests one by one, each when it is asked for: for models that have no faster way."""

    def __init__(self, digest: Callable[[FloatArray], Digest[Any]], rows: FloatArray) -> None:
        self._digest, self.rows = digest, rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: Any) -> Any:
        return self._digest(self.rows[index])

    @property
    def messages(self) -> FloatArray:
        return np.array([part.message for part in self])

    @property
    def message_sum(self) -> FloatArray:
        return summed(self.messages)


class EachBelief(BeliefBase):
    """Beliefs over many tasks, one by one; what is asked of them has a first axis for the task."""

    NAME: ClassVar[str] = "each"

    def __init__(self, parts: Sequence[Any]) -> None:
        self.parts = parts
        self.FAR_CAUTION, self.FAR_TASKS = parts[0].FAR_CAUTION, parts[0].FAR_TASKS  # type: ignore[misc]

    def _stack(self, ask: Callable[..., Any], *rest: Any) -> FloatArray:
        return np.stack([ask(*one) for one in zip(self.parts, *rest, strict=True)])

    def _each(self, ask: Callable[..., Any], *rest: Any) -> "EachBelief":
        return EachBelief([ask(*one) for one in zip(self.parts, *rest, strict=True)])

    @property
    def mean(self) -> FloatArray:
        return self._stack(lambda part: part.mean)

    @property
    def scale(self) -> FloatArray:
        return self._stack(lambda part: part.scale)

    @property
    def variance_ratio(self) -> FloatArray:
        return self._stack(lambda part: part.variance_ratio)

    @property
    def apart(self) -> "EachBelief":
        return self._each(lambda part: part.apart)

    def tightened(self, pending: FloatArray) -> "EachBelief":
        return self._each(lambda part, one: part.tightened(one), pending)

    def at_rows(self, rows: FloatArray) -> "EachBelief":
        return self._each(lambda part, one: part.at_rows(one), self._rows_of_each(rows))

    def expected_rewards(self, rows: FloatArray) -> FloatArray:
        each = self._rows_of_each(rows)
        return self._stack(lambda part, one: part.expected_rewards(one), each)

    def _rows_of_each(self, rows: FloatArray) -> FloatArray:
        return np.broadcast_to(rows, (len(self.parts), *rows.shape[-2:]))

    def upper(self, z: FloatArray | float) -> FloatArray:
        levels = np.broadcast_to(z, self.mean.shape)
        return self._stack(lambda part, level: part.upper(level), levels)

    def sample(self, rng: Draws) -> FloatArray:  # type: ignore[override]
        numbers = range(len(self.parts))
        return self._stack(lambda part, i: part.sample(rng.generator(i)), numbers)


def summed(messages: FloatArray) -> FloatArray:
    """The sum of many tasks' messages."""
    total: FloatArray = np.add.reduce(messages, axis=0)
    return total


def add_to_rows(rows: FloatArray, at: IntArray, more: FloatArray) -> None:
    """Add each row of `more` to the row whose number is in `at`, which may come several times."""
    order = at.argsort(kind="stable")
    found, starts = np.unique(at[order], return_index=True)
    rows[found] += more[order] if found.size == at.size else np.add.reduceat(more[order], starts)


def same_rows(rows: FloatArray) -> tuple[FloatArray, IntArray]:
    """The different ones among the rows, and for each row which of them it is."""
    clean = np.ascontiguousarray(rows + 0.0)  # no zero is negative: equal rows have equal bits
    whole = clean.view(np.dtype((np.void, clean.itemsize * clean.shape[1])))[:, 0]
    _, first, place = np.unique(whole, return_index=True, return_inverse=True)
    return clean[first], place
