"""Oracles over arms: the best one, the best row of features, the best few; and the user's own."""

from dataclasses import KW_ONLY, dataclass
from typing import Protocol

import numpy as np

from adats.models.core import checks
from adats.models.core.frozen import fill
from adats.models.core.types import FloatArray, IntArray

_INF = float("inf")


class Oracle(Protocol):
    """What every oracle is: sampled mean rewards in, an action out."""

    def __call__(self, values: FloatArray, /) -> int | IntArray: ...


@dataclass(frozen=True)
class BestArm:
    """The arm of the largest mean; the first of them in a tie.

    >>> BestArm()(np.array([0.1, 0.7, -np.inf]))
    1
    """

    def __call__(self, values: FloatArray, /) -> int:
        arm = int(values.argmax())
        if values.item(arm) > -_INF:  # the argmax of an array with NaN is a NaN
            return arm
        raise unusable(values, arm)


@dataclass(frozen=True, eq=False)
class BestRow:
    """The row of `features` with the largest product with theta, as in a linear bandit.

    >>> BestRow(np.array([[1.0, 0.0], [0.6, 0.8]]))(np.array([0.0, 1.0]))
    1
    """

    features: FloatArray  # one row an arm, kept as a read-only copy

    def __post_init__(self) -> None:
        features = checks.array("features", self.features, ndim=2)
        if features.size == 0:
            raise ValueError(f"features have shape {features.shape}; give at least one row")
        fill(self, features=features)

    def __call__(self, theta: FloatArray, /) -> int:
        if theta.shape != self.features.shape[1:]:
            raise ValueError(
                f"theta has shape {theta.shape}; give {self.features.shape[1]} numbers, "
                "one a column of the features"
            )
        values = self.features @ theta
        arm = int(values.argmax())
        if values.item(arm) > -_INF:
            return arm
        raise unusable(values, arm)


@dataclass(frozen=True)
class Top:
    """The `size` arms of the largest means; the lowest indices in a tie.

    Arms of negative mean are left out unless `exactly` size arms are due. So the set is empty where
    every mean is negative: nothing is then worth pulling, and nothing is learned.

    >>> Top(2)(np.array([0.3, -1.0, 0.9, 0.5]))
    array([2, 3])
    >>> Top(2, exactly=True)(np.array([-0.3, -1.0, -0.9]))
    array([0, 2])
    """

    size: int
    _: KW_ONLY
    exactly: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.size, int | np.integer) or isinstance(self.size, bool):
            raise ValueError(f"size is {self.size!r}; give a whole number of arms")
        if self.size < 1:
            raise ValueError(f"size is {self.size}; give at least 1")
        fill(self, size=int(self.size), exactly=bool(self.exactly))

    def __call__(self, values: FloatArray, /) -> IntArray:
        values = means(values)
        if self.size > values.size:
            raise ValueError(
                f"size is {self.size} but there are {values.size} arms; give a smaller size"
            )
        least = np.partition(values, -self.size)[-self.size]
        above = np.flatnonzero(values > least)
        tied = np.flatnonzero(values == least)[: self.size - above.size]
        chosen: IntArray = np.sort(np.concatenate([above, tied]))
        if not self.exactly:
            return chosen[values[chosen] >= 0]
        if least == -_INF:
            raise ValueError(
                f"exactly {self.size} arms are due but only {above.size} may be chosen; "
                "allow more arms or give a smaller size"
            )
        return chosen


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


def unusable(values: FloatArray, arm: int) -> ValueError:
    if np.isnan(values[arm]):
        return ValueError(f"the mean of arm {arm} is NaN; check the rewards and the belief")
    return ValueError("the mean of every arm is -inf; allow at least one arm")


def means(values: FloatArray, arms: int | None = None) -> FloatArray:
    values = np.asarray(values, dtype=np.float64)
    if values.ndim != 1 or (arms is not None and values.size != arms):
        due = "one number an arm" if arms is None else f"{arms} numbers, one an arm"
        raise ValueError(f"values have shape {values.shape}; give {due}")
    if np.isnan(values).any():
        raise unusable(values, int(np.isnan(values).argmax()))
    return values
