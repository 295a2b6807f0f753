"""The arms of an agent: their names and features, which may be chosen, and what was pulled."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np

from adats.models.core import checks
from adats.models.core.frozen import fill
from adats.models.core.names import arm_names
from adats.models.core.types import Arm, BoolArray, FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class Arms:
    """The arms of an agent: how many, their names, their features if those are fixed."""

    count: int | None  # None: features come with every decision
    names: tuple[Arm, ...] | None = None
    features: FloatArray | None = None
    retired: frozenset[int] = frozenset()
    n_features: int = 0  # of an arm, where arms are rows of features
    not_retired: BoolArray | None = field(init=False, repr=False)  # None: all of them
    _index: dict[Arm | None, int] | None = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if self.names is not None and len(self.names) != self.count:
            have = "features come with every decision" if self.count is None else self.count
            raise ValueError(f"{len(self.names)} names of arms, but arms: {have}")
        still = None
        if self.retired and self.count is not None:
            still = np.ones(self.count, dtype=bool)
            still[list(self.retired)] = False
            if not still.any():
                raise ValueError("the last arm cannot be retired: nothing would be left to pull")
        names: dict[Arm | None, int] | None = None
        if self.names is not None:
            names = {name: i for i, name in enumerate(self.names)}
        fill(self, not_retired=still, _index=names)

    @property
    def come_with_decisions(self) -> bool:
        """Whether features are given anew with every decision."""
        return self.n_features > 0 and self.features is None

    @property
    def open(self) -> tuple[int, ...]:
        """The arms that are not retired, by index."""
        return tuple(i for i in range(self.count or 0) if i not in self.retired)

    def index(self, arm: Any, rows: int | None = None) -> int:
        """The index of an arm given by name, or by index where arms have no names."""
        if self._index is not None:
            named = isinstance(arm, (str, int, np.integer)) and not isinstance(arm, bool)
            try:
                return self._index[arm if named else None]
            except KeyError:
                known = ", ".join(map(repr, self.names or ()))
                raise ValueError(f"there is no arm {arm!r}; the arms are {known}") from None
        count = self.count if rows is None else rows
        if isinstance(arm, (bool, np.bool_)) or not isinstance(arm, (int, np.integer)):
            raise ValueError(f"an arm is an index here, as arms have no names; got {arm!r}")
        if count is not None and not 0 <= arm < count:
            raise ValueError(f"there is no arm {arm}: arms are 0 to {count - 1}")
        return int(arm)

    def name(self, action: int | IntArray) -> Arm | tuple[Arm, ...]:
        """What the user calls the chosen arm, or each of the chosen arms."""
        if isinstance(action, np.ndarray):
            chosen = action.tolist()
            return tuple(chosen if self.names is None else (self.names[i] for i in chosen))
        return action if self.names is None else self.names[action]

    def mask(self, allowed: Iterable[Arm] | None, rows: int | None) -> BoolArray | None:
        """Which arms may be chosen now; None for all."""
        if allowed is None:
            return self.not_retired
        try:
            arms = None if isinstance(allowed, str) else list(allowed)
        except TypeError:
            arms = None
        if arms is None:
            raise ValueError(f"allowed is a list of arms, got {allowed!r}")
        size = self.count if rows is None else rows
        mask = np.zeros(size or 0, dtype=bool)
        for arm in arms:
            mask[self.index(arm, rows)] = True
        if self.not_retired is not None:
            mask &= self.not_retired
        if not mask.any():
            raise ValueError("allowed leaves no arm to choose")
        return mask

    def rows(self, features: object, dim: int) -> FloatArray | None:
        """The features of the arms of one decision, in a task whose theta has `dim` entries."""
        if not self.n_features:
            if features is not None:
                raise ValueError("features are for linear models; this model has arms")
            return None
        if features is not None:
            if self.features is not None:
                raise ValueError("the features of this agent are fixed; use allowed= to restrict")
            rows = feature_rows(features, dim)
            if self.count is not None and len(rows) != self.count:
                raise ValueError(f"{len(rows)} rows of features for {self.count} named arms")
            return rows
        if self.features is None:
            raise ValueError("a linear model needs features, one row an arm: ask(task, features=X)")
        if self.features.shape[1] != dim:
            raise ValueError("this task has a design of another size than the fixed features")
        return self.features

    def pulled(self, action: Any, features: Any) -> Any:
        """What was pulled, as the statistics take it: indices, or rows of features."""
        if not self.n_features:
            if features is not None:
                raise ValueError("features are for linear models; this model has arms")
            if type(action) is int and self._index is None and 0 <= action < (self.count or 0):
                return action  # most often
            if action is None:
                raise ValueError("say which arm was pulled: action=")
            if _several(action):
                return [self.index(arm) for arm in action]
            return self.index(action)
        if features is not None:
            return features
        if self.features is None:
            raise ValueError("say the features of the arm that was pulled: features=")
        if _several(action):
            return self.features[[self.index(arm) for arm in action]]
        return self.features[self.index(action)]

    def add(self, name: Arm | None, features: FloatArray | None = None) -> Self:
        """One more arm at the end."""
        if self.count is None:
            raise ValueError("features come with every decision here, so there is no arm to add")
        if (self.names is None) != (name is None):
            raise ValueError("give the new arm a name just where the others have names")
        names = None if self.names is None or name is None else arm_names((*self.names, name))
        rows = self.features
        if rows is not None and features is not None:
            rows = np.vstack([rows, features])
        return replace(self, count=self.count + 1, names=names, features=rows)

    def retire(self, arm: Arm) -> Self:
        if self.count is None:
            raise ValueError("features come with every decision here: leave the arm out of them")
        return replace(self, retired=self.retired | {self.index(arm)})


def feature_rows(features: object, dim: int | None) -> FloatArray:
    """A finite K×d matrix of features; checked in one pass."""
    rows = features
    if type(rows) is not np.ndarray or rows.dtype != np.float64:
        rows = checks.array("features", features)
    if rows.ndim != 2 or len(rows) == 0 or (dim is not None and rows.shape[1] != dim):
        wanted = "one row an arm" if dim is None else f"one row of {dim} numbers an arm"
        raise ValueError(f"features must be a matrix, {wanted}; got shape {np.shape(rows)}")
    checks.modest("features", rows.ravel())
    clean: FloatArray = rows
    return clean


def _several(action: object) -> bool:
    return isinstance(action, (tuple, list)) or (isinstance(action, np.ndarray) and action.ndim > 0)
