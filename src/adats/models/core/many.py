"""Many tasks at once: their statistics are rows of numbers, one task each."""

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from adats.models.core.belief import BeliefBase
from adats.models.core.draws import Draws
from adats.models.core.types import Belief, Digest, FloatArray, IntArray


class EachDigest(Sequence[Digest[Any]]):
    """Digests one by one, for models that have no faster way."""

    def __init__(self, parts: Sequence[Digest[Any]], rows: FloatArray) -> None:
        self.parts, self.rows = parts, rows

    def __len__(self) -> int:
        return len(self.parts)

    def __getitem__(self, index: Any) -> Any:
        return self.parts[index]

    @property
    def messages(self) -> FloatArray:
        return np.array([part.message for part in self.parts])


class EachBelief(BeliefBase):
    """Beliefs over many tasks, one by one; what is asked of them has a first axis for the task."""

    NAME: ClassVar[str] = "each"

    def __init__(self, parts: Sequence[Belief]) -> None:
        self.parts = parts

    @property
    def mean(self) -> FloatArray:
        return np.stack([part.mean for part in self.parts])

    @property
    def scale(self) -> FloatArray:
        return np.stack([part.scale for part in self.parts])

    def sample(self, rng: Any) -> FloatArray:
        draws: Draws = rng
        parts = enumerate(self.parts)
        return np.stack([part.sample(draws.generator(i)) for i, part in parts])


def add_to_rows(rows: FloatArray, at: IntArray, more: FloatArray) -> None:
    """Add each row of `more` to the row whose number is in `at`, which may come several times."""
    order = at.argsort(kind="stable")
    found, starts = np.unique(at[order], return_index=True)
    rows[found] += more[order] if found.size == at.size else np.add.reduceat(more[order], starts)
