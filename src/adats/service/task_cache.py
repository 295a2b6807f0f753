"""The task states of one experiment: in the store, and the last used in memory too."""

import math
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any, Protocol

import numpy as np

from adats.agents.aging import NEVER
from adats.agents.task_state import TaskState
from adats.models.core.types import FloatArray, MetaBelief, Task
from adats.service.errors import DamagedStore
from adats.service.stores.interface import LearnedReward, TaskRow

MEMORY = 100e6  # bytes, roughly, of the task states of one experiment
FEWEST = 64  # states that stay in memory all the same
PLACE = 300  # bytes of a state's name and place
READ_AT_ONCE = 64  # names of stale tasks
START = (-1, "")  # before all of them: generation and name


class TaskReader(Protocol):
    """Where task states are read: a view of a store, or a group of operations on it."""

    def task(self, experiment: int, task: str) -> TaskRow | None: ...
    def learned(self, experiment: int, task: str) -> tuple[LearnedReward, ...]: ...
    def stale_tasks(
        self, experiment: int, generation: int, after: tuple[int, str], limit: int
    ) -> list[tuple[int, str]]: ...
    def unfolded_tasks(self, experiment: int, total_version: int) -> list[tuple[str, TaskRow]]: ...


class TaskCache:
    """A book of tasks that reads from the store what it needs, and knows what has changed."""

    def __init__(
        self,
        store: TaskReader,
        experiment: int,
        blank_of: Callable[[FloatArray | None], TaskState],
        generation_of: Callable[[TaskState], int | None],
        learn: Callable[[Task, TaskState, tuple[LearnedReward, ...]], TaskState],
        *,
        aging: bool = False,
    ) -> None:
        self._store, self._experiment = store, experiment
        self._blank_of = blank_of  # an empty state for a design: the size of its statistics
        self._generation_of = generation_of  # in which a task was digested
        self._learn = learn  # a state with what it has learned since
        self._aging = aging  # whether rewards age: their times are kept
        self._states: OrderedDict[Task, TaskState] = OrderedDict()  # the last used last
        self._changed: set[Task] = set()
        # of the largest state that was seen, with its place here
        self.state_bytes = PLACE + _bytes_of(blank_of(None), set())

    def __len__(self) -> int:
        """How many are in memory."""
        return len(self._states)

    def __contains__(self, task: Task) -> bool:
        return task in self._states

    def get(self, task: Task) -> TaskState | None:
        state = self._states.get(task)
        if state is None:
            row = self._store.task(self._experiment, str(task))
            if row is None:
                return None
            state = unpacked(row, self._blank_of, aging=self._aging)
            learned = self._store.learned(self._experiment, str(task))
            if learned:
                state = self._learn(task, state, learned)
            self._states[task] = state
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

    def rewrite(self, task: Task) -> None:
        """Count a task as changed."""
        if self.get(task) is not None:
            self._changed.add(task)

    def delete(self, task: Task) -> None:
        self._states.pop(task, None)
        self._changed.discard(task)

    def drop(self) -> None:
        """Read all again; what has changed must have been written."""
        assert not self._changed
        self._states.clear()

    def take_changes(self) -> dict[str, TaskRow]:
        """The rows of all that has changed since the last time."""
        found = {}
        for task in self._changed:
            state = self._states[task]
            generation = self._generation_of(state)
            found[str(task)] = _packed(state, generation, aging=self._aging)
        self._changed.clear()
        return found

    def shrink(self) -> None:
        """Let go of what has not been used for long; what has changed must have been taken."""
        self._measure()
        most = max(FEWEST, int(MEMORY / self.state_bytes))
        while len(self._states) > most:
            self._states.popitem(last=False)

    def _measure(self) -> None:
        """Look at the state that was used last. What it shares with an empty one is not its own."""
        if self._states:
            shared: set[int] = set()
            _bytes_of(self._blank_of(None), shared)
            own = PLACE + _bytes_of(next(reversed(self._states.values())), shared)
            self.state_bytes = max(self.state_bytes, own)


class StaleTasks:
    """Tasks that were digested in an earlier generation of the model, to be brought up to date.

    The oldest generation comes first, then it goes by name: a replay has the same.
    """

    def __init__(self, store: TaskReader, experiment: int, task_cache: TaskCache) -> None:
        self._store, self._experiment, self._task_cache = store, experiment, task_cache
        self._generation = 0  # up to which tasks are to be brought
        self._waiting: deque[tuple[int, str]] = deque()
        self._last, self._all_read = START, False

    def next(self, meta: MetaBelief) -> tuple[str, TaskState] | None:
        """The next stale task; None if there is none. What is damaged is left out."""
        if meta.generation != self._generation:
            self._generation = meta.generation
            self._waiting.clear()
            self._last, self._all_read = START, False
        while self._waiting or self._read():
            _, task = self._waiting.popleft()
            try:
                state = self._task_cache.get(task)
            except DamagedStore:
                continue
            if state is not None and meta.is_stale(state.stats):
                return task, state
        return None

    def _read(self) -> bool:
        """Whether there are more of them."""
        if not self._all_read:
            found = self._store.stale_tasks(
                self._experiment, self._generation, self._last, READ_AT_ONCE
            )
            self._waiting.extend(found)
            self._all_read = len(found) < READ_AT_ONCE
            self._last = found[-1] if found else self._last
        return bool(self._waiting)


def packed_stats(state: TaskState, *, aging: bool) -> bytes:
    """The statistics of a task; where rewards age, with their time."""
    numbers = state.stats.flat()
    return (np.append(numbers, state.time) if aging else numbers).tobytes()


def _packed(state: TaskState, generation: int | None, *, aging: bool) -> TaskRow:
    pending = None if state.pending is None else state.pending.tobytes()
    design = None
    if state.design is not None:  # after the number of its columns
        design = np.append(state.design.shape[1], state.design).tobytes()
    pulls = state.stats.arm_pulls
    rewards = 0.0 if pulls is None else float(pulls.sum())
    size = int(math.log2(1 + rewards) / 2) if rewards > 0 else None  # coarse: an index has it
    stats = packed_stats(state, aging=aging)
    return TaskRow(stats, state.rounds, pending, generation, design=design, size=size)


def unpacked(
    row: TaskRow, blank_of: Callable[[FloatArray | None], TaskState], *, aging: bool
) -> TaskState:
    """The state in a row. Arms may have been added since it was written."""
    design = None
    if row.design is not None:
        numbers = np.frombuffer(row.design)
        design = numbers[1:].reshape(-1, int(numbers[0]))
    blank = blank_of(design)
    stats, time = blank.stats, NEVER
    if row.stats:
        known = np.frombuffer(row.stats)
        if aging:
            known, time = known[:-1], known.item(-1)
        stats = type(blank.stats).from_flat(known)
    pending = None
    if row.pending is not None:
        counts = np.frombuffer(row.pending)
        pending = np.zeros(blank.stats.pending_shape)
        pending.flat[: counts.size] = counts
    arms = blank.stats.arm_pulls
    grown = stats if arms is None else stats.grow(arms.size)
    return TaskState(grown, design=design, rounds=row.rounds, pending=pending, time=time)


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
