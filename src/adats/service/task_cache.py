"""The task states of one experiment: in the store, and the last used in memory too."""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from adats.agents.task_state import TaskState
from adats.models.core.types import Task
from adats.service.stores.interface import Store, TaskRow

MEMORY = 100e6  # bytes, roughly, of the task states of one experiment
FEWEST = 64  # states that stay in memory all the same
PLACE = 300  # bytes of a state's name and place


class TaskCache:
    """A book of tasks that reads from the store what it needs, and writes there at `flush`."""

    def __init__(
        self,
        store: Store,
        experiment: int,
        blank: Callable[[], TaskState],
        generation_of: Callable[[Any], int | None],
    ) -> None:
        self._store, self._experiment = store, experiment
        self._blank = blank  # an empty state, to know the kind and the size of statistics
        self._generation_of = generation_of  # in which statistics were digested
        self._states: OrderedDict[Task, TaskState] = OrderedDict()  # the last used last
        self._changed: set[Task] = set()
        # of the largest state that was seen, with its place here
        self.state_bytes = PLACE + _bytes_of(blank(), set())

    def __len__(self) -> int:
        """How many are in memory."""
        return len(self._states)

    def get(self, task: Task) -> TaskState | None:
        state = self._states.get(task)
        if state is None:
            row = self._store.task(self._experiment, str(task))
            if row is None:
                return None
            state = self._states[task] = _unpacked(row, self._blank())
        else:
            self._states.move_to_end(task)
        return state

    def put(self, task: Task, state: TaskState) -> None:
        old = self._states.get(task)
        if old is None or not (
            old.stats is state.stats and old.rounds == state.rounds and old.pending is state.pending
        ):
            self._changed.add(task)
        self._states[task] = state
        self._states.move_to_end(task)

    def delete(self, task: Task) -> None:
        self._states.pop(task, None)
        self._changed.discard(task)

    def drop(self) -> None:
        """Read all again; what has changed must have been written."""
        assert not self._changed
        self._states.clear()

    def flush(self) -> None:
        """Write what has changed, and let go of what has not been used for long."""
        for task in self._changed:
            state = self._states[task]
            generation = self._generation_of(state.stats)
            self._store.save_task(self._experiment, str(task), _packed(state), generation)
        self._changed.clear()
        self._measure()
        most = max(FEWEST, int(MEMORY / self.state_bytes))
        while len(self._states) > most:
            self._states.popitem(last=False)

    def _measure(self) -> None:
        """Look at the state that was used last. What it shares with an empty one is not its own."""
        if self._states:
            shared: set[int] = set()
            _bytes_of(self._blank(), shared)
            own = PLACE + _bytes_of(next(reversed(self._states.values())), shared)
            self.state_bytes = max(self.state_bytes, own)


def _packed(state: TaskState) -> TaskRow:
    pending = None if state.pending is None else state.pending.tobytes()
    return TaskRow(state.stats.flat().tobytes(), state.rounds, pending)


def _unpacked(row: TaskRow, blank: TaskState) -> TaskState:
    """The state in a row. Arms may have been added since it was written."""
    stats = type(blank.stats).from_flat(np.frombuffer(row.stats))
    pending = None
    if row.pending is not None:
        counts = np.frombuffer(row.pending)
        pending = np.zeros(blank.stats.pending_shape)
        pending.flat[: counts.size] = counts
    arms = blank.stats.arm_pulls
    return TaskState(
        stats if arms is None else stats.grow(arms.size), rounds=row.rounds, pending=pending
    )


def _bytes_of(value: Any, seen: set[int]) -> int:
    """What a state takes in memory: its arrays and the objects around them, each once."""
    if id(value) in seen:
        return 0
    seen.add(id(value))
    if isinstance(value, np.ndarray):
        return 112 + value.nbytes
    parts: Any = value if isinstance(value, tuple) else ()
    if is_dataclass(value):
        named = (getattr(value, field.name) for field in fields(value))
        parts = (*named, *getattr(value, "__dict__", {}).values())
    return 56 + sum(_bytes_of(part, seen) for part in parts)
