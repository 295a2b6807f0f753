"""Are predictions calibrated? Each reward is predicted from those before it in its task.

The probability that the prediction gave to a smaller reward is uniform if all is right, also in a
log that a bandit wrote: the choice of an action depends on the past alone, which is given here.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.special import kolmogorov

from adats.learning.fitting.fitted import Fitted, prior_of_others
from adats.learning.tables import Table, evenly
from adats.models.core.types import FloatArray, IntArray, Rng

TASKS = 200  # looked at, at most
ROWS = 100  # of each task, its first ones
FINE = 0.03  # a distance from uniform that nobody need care about
FAR = 0.1
LEVEL = 0.01  # chance above which a distance may be an accident
TILT = 0.02  # of the mean from one half
TENSE = 0.05  # of the spread, relative


@dataclass(frozen=True, eq=False)
class Calibration:
    """Probability integral transforms of rewards, one step ahead."""

    values: FloatArray  # uniform between 0 and 1 if all is right
    tasks: int
    # of each value: the place of its task, its arm (-1: features) and its time, if known
    task: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.intp))
    arm: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.intp))
    time: FloatArray = field(default_factory=lambda: np.zeros(0))
    middle: FloatArray = field(default_factory=lambda: np.zeros(0))  # of the step it was drawn in

    @property
    def distance(self) -> float:
        """Largest gap to the uniform distribution function (Kolmogorov and Smirnov)."""
        n, ordered = self.values.size, np.sort(self.values)
        steps = np.arange(n + 1) / n
        return float(max((steps[1:] - ordered).max(), (ordered - steps[:-1]).max()))

    @property
    def chance(self) -> float:
        """Of such a distance or a larger one where all is right."""
        return float(kolmogorov(np.sqrt(self.values.size) * self.distance))

    @property
    def bins(self) -> IntArray:
        """Counts in ten equal parts."""
        return np.histogram(self.values, bins=10, range=(0.0, 1.0))[0].astype(np.intp)

    @property
    def reading(self) -> str:
        """What it means, in words."""
        distance = self.distance
        if distance <= FINE or self.chance > LEVEL:
            return "Calibrated: rewards fall where the predictions say."
        tilt = float(self.values.mean()) - 0.5
        tense = float(self.values.std()) * np.sqrt(12.0) - 1.0
        found = []
        if abs(tense) > TENSE:
            found.append(
                "predictions are too sure: rewards fall too often far out, as with heavy tails, "
                "with a noise that differs between tasks, or with tasks that drift"
                if tense > 0
                else "predictions are not sure enough: rewards fall too often near the middle"
            )
        if abs(tilt) > TILT:
            found.append(f"rewards are {'higher' if tilt > 0 else 'lower'} than predicted")
        words = "; ".join(found) or "rewards do not have the shape that the model gives them"
        return f"{'Not' if distance > FAR else 'Not quite'} calibrated: {words}."


def calibrate(table: Table, fitted: Fitted, rows: Sequence[Any], *, rng: Rng) -> Calibration:
    """Transforms of the rewards of some tasks; the prior of each comes from the other tasks.

    `rows` has a task, its actions (arms as indices, or features), its rewards in the order of
    time, and if known their times. For rewards with steps (0 or 1, and counts) a point of the step
    is drawn with `rng`.
    """
    if not rows:
        raise ValueError("no rows to look at: give those of at least one task")
    place = {task: i for i, task in enumerate(table.tasks)}
    chosen = evenly(len(rows), TASKS).tolist()
    values, middles, tasks, arms, times = [], [], [], [], []
    for task, actions, rewards, *clock in (rows[i] for i in chosen):
        if task not in place:
            raise ValueError(f"task {task!r} has rows, but is not in the statistics")
        prior = prior_of_others(table, fitted, place[task])
        low, high = prior.ranks(actions[:ROWS], rewards[:ROWS])
        found = low + rng.random(low.size) * (high - low)
        values.append(found)
        middles.append((low + high) / 2)
        tasks.append(np.full(found.size, place[task]))
        arms.append(np.full(found.size, -1) if actions.ndim > 1 else actions[:ROWS])
        times.append(clock[0][:ROWS] if clock else np.full(found.size, np.nan))
    parts = [np.concatenate(part) for part in (values, tasks, arms, times, middles)]
    return Calibration(parts[0], len(chosen), *parts[1:])
