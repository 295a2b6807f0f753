"""What an agent chooses from, and what it chose."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np

from adats.models.core import checks
from adats.models.core.names import arm_names
from adats.models.core.types import Arm, BoolArray, FloatArray, IntArray, Task


@dataclass(frozen=True, slots=True)
class Decision:
    """One decision, a plain value: the agent keeps no record of it.

    One that is a `fallback` was made by nobody: a service that could not decide named its control
    action. It has no propensity, and its reward is not learned from.
    """

    task: Task
    action: Arm | tuple[Arm, ...]  # the arm to pull; a tuple of them in a semi-bandit
    features: FloatArray | None = field(default=None, compare=False)  # of the arm, or of each
    decision_id: int | str = 0  # counts the decisions of its agent; a service gives text
    time: float = field(default=0.0, compare=False)  # seconds since 1970
    propensity: float | tuple[float, ...] | None = None  # of the arm, or of each being chosen
    propensities: FloatArray | None = field(default=None, compare=False)  # of all arms
    fallback: bool = False

    def record(self, reward: float) -> dict[str, Any]:
        """The decision and its reward as one flat row of the project's log format."""
        if isinstance(self.action, tuple):
            raise ValueError("a decision with several arms has a row for each: use records")
        return self._row(self.action, reward, self.features, self.propensity)

    def records(self, rewards: Sequence[float] | FloatArray) -> list[dict[str, Any]]:
        """One flat row for each arm of a semi-bandit decision; they share the decision_id."""
        arms = self.action if isinstance(self.action, tuple) else (self.action,)
        if np.shape(rewards) != (len(arms),):
            raise ValueError(f"{len(arms)} arms need as many rewards, got {rewards!r}")
        rows = [None] * len(arms) if self.features is None else np.atleast_2d(self.features)
        chances = self.propensity if isinstance(self.propensity, tuple) else [self.propensity]
        if len(chances) != len(arms):
            chances = [None] * len(arms)
        return [self._row(*parts) for parts in zip(arms, rewards, rows, chances, strict=True)]

    def _row(
        self, arm: Arm, reward: float, features: FloatArray | None, propensity: Any
    ) -> dict[str, Any]:
        row: dict[str, Any] = {
            "task": self.task,
            "arm": arm,
            "reward": checks.number("reward", reward),
            "propensity": propensity,
            "decision_id": self.decision_id,
            "time": self.time,
        }
        if features is not None:
            row |= {f"x{i}": float(x) for i, x in enumerate(features)}
        return row


@dataclass(frozen=True, eq=False)
class Arms:
    """The arms of an agent: how many, their names, their features if those are fixed."""

    count: int | None  # None: features come with every decision
    names: tuple[Arm, ...] | None = None
    features: FloatArray | None = None
    retired: frozenset[int] = frozenset()
    _open: BoolArray | None = field(init=False, repr=False)  # None: no arm is retired
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
        object.__setattr__(self, "_open", still)
        names: dict[Arm | None, int] | None = None
        if self.names is not None:
            names = {name: i for i, name in enumerate(self.names)}
        object.__setattr__(self, "_index", names)

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
            return self._open
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
        if self._open is not None:
            mask &= self._open
        if not mask.any():
            raise ValueError("allowed leaves no arm to choose")
        return mask

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


def feature_rows(features: Any, dim: int | None) -> FloatArray:
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
