"""One decision, as users get it and as logs keep it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from adats.models.core import checks
from adats.models.core.frozen import setters
from adats.models.core.types import Arm, FloatArray, JsonDict, Task


@dataclass(frozen=True, slots=True, init=False)
class Decision:
    """One decision, a plain value: the agent keeps no record of it.

    One that is a `fallback` was made by nobody: a service that could not decide named its control
    action. It has no propensity, and its reward is not learned from.
    """

    task: Task
    action: Arm | tuple[Arm, ...]  # the arm to pull; a tuple of them in a semi-bandit
    features: FloatArray | None = field(default=None, compare=False)  # of the arm, or of each
    decision_id: int | str = 0  # counts the decisions of its agent; a service gives text
    time: float = field(default=0.0, compare=False)  # seconds since 1970, or as given
    propensity: float | tuple[float, ...] | None = None  # of the arm, or of each being chosen
    propensities: FloatArray | None = field(default=None, compare=False)  # of all arms
    fallback: bool = False

    def __init__(
        self,
        task: Task,
        action: Arm | tuple[Arm, ...],
        features: FloatArray | None = None,
        decision_id: int | str = 0,
        time: float = 0.0,
        propensity: float | tuple[float, ...] | None = None,
        propensities: FloatArray | None = None,
        fallback: bool = False,
    ) -> None:
        _set_task(self, task)  # by hand: faster than what a dataclass writes
        _set_action(self, action)
        _set_features(self, features)
        _set_decision_id(self, decision_id)
        _set_time(self, time)
        _set_propensity(self, propensity)
        _set_propensities(self, propensities)
        _set_fallback(self, fallback)

    def record(self, reward: float) -> JsonDict:
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
    ) -> JsonDict:
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


(
    _set_task,
    _set_action,
    _set_features,
    _set_decision_id,
    _set_time,
    _set_propensity,
    _set_propensities,
    _set_fallback,
) = setters(Decision)
