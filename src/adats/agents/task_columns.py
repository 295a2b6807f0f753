"""Task states in columns, for very many tasks: all that is kept of one is a row of numbers."""

import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import repeat
from operator import attrgetter
from typing import Any

import numpy as np

from adats.agents.aging import NEVER
from adats.agents.task_state import TaskState
from adats.models.core.types import FloatArray, IntArray, MetaBelief, Task

LEAST_ROOM = 1024  # rows; room grows by an eighth when it is used up
RECENT = 1000  # states at most that are kept worked out
NOT_A_ROW = -1  # the row of a task that has none
UNKNOWN = -2  # that of one that is not there
LARGEST = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Layout:
    """Where the parts of a state are in its row. A part that is None there begins with NaN, and a
    draw with fewer numbers than others ends with NaN."""

    meta: MetaBelief
    stats: int  # how many numbers each part has
    mu: int
    asked: tuple[int, ...]
    pending: tuple[int, ...]
    times: int = 0  # 1 where rewards age

    @classmethod
    def of(
        cls, meta: MetaBelief, blank: TaskState, draws: int, counts_pending: bool, times: bool
    ) -> "Layout":
        """For states like a blank one; `draws` is the size of what is drawn for a task."""
        asked = () if blank.asked is None else blank.asked.shape
        pending = blank.stats.pending_shape if counts_pending else ()
        return cls(meta, meta.row_size, draws, asked, pending, int(times))

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        parts = (int(np.prod(shape)) if shape else 0 for shape in (self.asked, self.pending))
        return (self.stats, 1, self.mu, *parts, self.times)

    @cached_property
    def slices(self) -> list[slice]:
        """Of the statistics, the rounds, mu, what was asked for, what is pending, and the time."""
        ends = np.cumsum(self.sizes).tolist()
        starts = [0, *ends]
        return [slice(a, b) for a, b in zip(starts, ends, strict=False)]

    @cached_property
    def kind(self) -> Any:
        """The class of the statistics."""
        return type(self.meta.empty())

    def pack(self, states: Iterable[TaskState]) -> FloatArray:
        """A row for each state."""
        states = list(states)
        rows = np.full((len(states), sum(self.sizes)), np.nan)
        stats, rounds, *parts, time = self.slices
        rows[:, time] = [[state.time] * self.times for state in states]
        rows[:, stats] = [self.meta.row_of(state.stats) for state in states]
        rows[:, rounds.start] = [state.rounds for state in states]
        for part, name in zip(parts, ("mu", "asked", "pending"), strict=True):
            for row, value in zip(rows, map(attrgetter(name), states), strict=True):
                if part.start < part.stop and value is not None:
                    row[part.start : part.start + value.size] = value.ravel()
        return rows

    def unpack(self, row: FloatArray, finished: bool = False) -> TaskState:
        stats, rounds, mu, asked, pending, time = self.slices
        return TaskState(
            self.kind.from_flat(row[stats].copy()),
            mu=_part(row[mu], (-1,)),
            asked=_part(row[asked], self.asked),
            finished=finished,
            rounds=int(row[rounds].item()),
            pending=_part(row[pending], self.pending),
            time=row[time].item() if self.times else NEVER,
        )


def _part(values: FloatArray, shape: tuple[int, ...]) -> FloatArray | None:
    if values.size == 0 or np.isnan(values[0]):
        return None
    return values[~np.isnan(values)].reshape(shape)


class ColumnBook(Mapping[Task, TaskState]):
    """Rows of one array. Finished tasks leave it, and are kept compressed; so are tasks that have
    a design of their own, as they are. The states last used are kept worked out, until a batch
    takes the array."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self._array = np.empty((0, sum(layout.sizes)))
        self._recent: dict[Task, TaskState] = {}  # of tasks that have rows
        self._unwritten: set[Task] = set()  # those of them that differ from their rows
        self._row: dict[Task, int] = {}  # by task, in the order in which they came
        self._numbers = np.empty(0, dtype=np.int64)  # of each row the task, if that is a number
        self._used = 0
        self._free: list[int] = []
        self._apart: dict[Task, TaskState | bytes] = {}

    def __copy__(self) -> "ColumnBook":
        new = ColumnBook(self.layout)
        new._array, new._numbers = self.array.copy(), self._numbers.copy()
        new._row, new._apart = self._row.copy(), self._apart.copy()
        new._used, new._free = self._used, self._free.copy()
        return new

    @property
    def array(self) -> FloatArray:
        """The rows, to be read and written: all states are in them, and none is elsewhere."""
        if self._recent:
            self._write_recent()
        return self._array

    def _write_recent(self) -> None:
        if self._unwritten:
            rows = [self._row[task] for task in self._unwritten]
            self._array[rows] = self.layout.pack(self._recent[task] for task in self._unwritten)
            self._unwritten.clear()
        self._recent.clear()

    # as a mapping, and as a book

    def __len__(self) -> int:
        return len(self._row)

    def __iter__(self) -> Iterator[Task]:
        return iter(self._row)

    def __contains__(self, task: object) -> bool:
        return task in self._row

    def __getitem__(self, task: Task) -> TaskState:
        recent = self._recent.get(task)
        if recent is not None:
            return recent
        row = self._row[task]
        if row >= 0:
            return self.layout.unpack(self._array[row])
        state = self._apart[task]
        if isinstance(state, bytes):
            return self.layout.unpack(np.frombuffer(zlib.decompress(state)), finished=True)
        return state

    def put(self, task: Task, state: TaskState) -> None:
        row = self._row.get(task, UNKNOWN)
        if state.finished or state.design is not None:
            if row >= 0:
                self._release(task, row)
            plain = state.design is not None
            self._apart[task] = state if plain else _compressed(self.layout.pack([state]))
            self._row[task] = NOT_A_ROW
            return
        if row < 0:
            self._apart.pop(task, None)
            self.open([task])
        if len(self._recent) >= RECENT:
            self._write_recent()
        self._recent[task] = state
        self._unwritten.add(task)

    def delete(self, task: Task) -> None:
        row = self._row.pop(task)
        if row >= 0:
            self._release(task, row)
        else:
            del self._apart[task]

    def _release(self, task: Task, row: int) -> None:
        self._recent.pop(task, None)
        self._unwritten.discard(task)
        self._free.append(row)
        self._numbers[row] = UNKNOWN

    # many at once

    def rows(self, tasks: list[Task] | IntArray) -> IntArray:
        """The row of each task: `NOT_A_ROW` or `UNKNOWN` where there is none."""
        if isinstance(tasks, np.ndarray):
            if tasks.size == 0 or (
                tasks.min() >= 0
                and tasks.max() < self._used
                and np.array_equal(self._numbers[tasks], tasks)
            ):
                return tasks  # tasks 0, 1, 2, ... have the rows 0, 1, 2, ...
            tasks = tasks.tolist()
        found = map(self._row.get, tasks, repeat(UNKNOWN))
        return np.fromiter(found, dtype=np.intp, count=len(tasks))

    def row_numbers(self) -> IntArray:
        """Of all tasks that have rows, in the order in which they came."""
        rows = np.fromiter(self._row.values(), dtype=np.intp, count=len(self._row))
        return rows[rows >= 0]

    def open(self, tasks: list[Any]) -> IntArray:
        """Rows for tasks that have none; what is in them is not set."""
        reused = self._free[len(self._free) - min(len(tasks), len(self._free)) :]
        del self._free[len(self._free) - len(reused) :]
        fresh = len(tasks) - len(reused)
        self._make_room(self._used + fresh)
        rows = np.array([*reused, *range(self._used, self._used + fresh)], dtype=np.intp)
        self._used += fresh
        self._row.update(zip(tasks, rows.tolist(), strict=True))
        self._numbers[rows] = [_number(task) for task in tasks]
        return rows

    def _make_room(self, rows: int) -> None:
        """No copy where the system can give more room at the same place."""
        room = len(self._array)
        if rows > room:
            more = max(rows, room + room // 8, LEAST_ROOM)
            if not self._array.flags.owndata:  # after pickle
                self._array, self._numbers = self._array.copy(), self._numbers.copy()
            self._array.resize((more, self._array.shape[1]), refcheck=False)
            self._numbers.resize(more, refcheck=False)

    def stale(self, meta: MetaBelief) -> list[Task]:
        """Tasks that had better be digested anew, the oldest digests first."""
        rows = self.array[: self._used, : self.layout.stats]
        stale, numbers = meta.stale_rows(rows).tolist(), meta.row_generations(rows).tolist()
        found = [
            (numbers[row], task) if row >= 0 else (meta.generation_of(self[task].stats) or 0, task)
            for task, row in self._row.items()
            if (stale[row] if row >= 0 else meta.is_stale(self[task].stats))
        ]
        return [task for _, task in sorted(found, key=lambda one: one[0])]

    # files

    def split(self) -> tuple[list[Task], FloatArray, dict[Task, TaskState]]:
        """All tasks, the rows of those that have one, and the states of all others."""
        others = {task: self[task] for task, row in self._row.items() if row < 0}
        return list(self), self.array[self.row_numbers()], others

    @classmethod
    def joined(
        cls, layout: Layout, tasks: list[Task], rows: FloatArray, others: dict[Task, TaskState]
    ) -> "ColumnBook":
        """What `split` gave."""
        book = cls(layout)
        own = [task for task in tasks if task not in others]
        if rows.shape != (len(own), book.array.shape[1]):
            raise ValueError(f"rows of shape {rows.shape} for {len(own)} tasks")
        sound = np.isfinite(rows)
        if not (sound[:, : layout.stats + 1].all() and sound[:, layout.slices[2]][:, :1].all()):
            raise ValueError("numbers of tasks that are not finite")
        book._row = dict.fromkeys(tasks, NOT_A_ROW)  # in this order
        if len(book) != len(own) + len(others):
            raise ValueError("two tasks have one name")
        places = book.open(own)
        book.array[places] = rows
        for task, state in others.items():
            book.put(task, state)
        return book


def times_of(tasks: Mapping[Task, TaskState]) -> FloatArray:
    """Of the last rewards of tasks."""
    if isinstance(tasks, ColumnBook):
        _, rows, others = tasks.split()
        return np.append(rows[:, tasks.layout.slices[-1]], [one.time for one in others.values()])
    return np.array([state.time for state in tasks.values()])


def _number(task: Task) -> int:
    """Of a task that is a number: so that it can be looked up in an array."""
    return task if isinstance(task, int) and 0 <= task <= LARGEST else UNKNOWN


def _compressed(row: FloatArray) -> bytes:
    return zlib.compress(row.tobytes(), 1)
