"""Oracles of the user's own, with what they return checked."""

import numpy as np

from adats.agents.oracles.arms import Oracle
from adats.models.core.types import FloatArray, IntArray


class CheckedOracle:
    """An oracle that may be the user's own: its action is an arm, or distinct arms, all allowed."""

    def __init__(self, oracle: Oracle) -> None:
        if not callable(oracle):
            raise ValueError(f"an oracle is a function of mean rewards, got {oracle!r}")
        self.oracle = oracle
        if hasattr(oracle, "through"):
            self.through = oracle.through

    def is_graph(self) -> bool:
        return hasattr(self.oracle, "edges") or hasattr(self.oracle, "pairs")

    def __call__(self, values: FloatArray, /) -> int | IntArray:
        action = self.oracle(values)
        try:
            arms = np.asarray(action)
        except ValueError:  # lists of different lengths
            arms = np.zeros((1, 1))
        legal = arms.ndim <= 1 and (arms.size == 0 or np.issubdtype(arms.dtype, np.integer))
        if legal and arms.size:
            distinct = np.unique(arms)
            inside = distinct[0] >= 0 and distinct[-1] < values.size
            legal = (
                inside and distinct.size == arms.size and bool((values[distinct] > -np.inf).all())
            )
        if not legal:
            raise ValueError(f"the oracle must return allowed, distinct arms, but gave {action!r}")
        return arms.astype(np.intp) if arms.ndim else int(arms)
