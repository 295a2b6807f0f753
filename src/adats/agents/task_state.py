"""What is kept of one task, where that is kept, and how it goes into a file."""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from adats.agents.aging import NEVER
from adats.models.core import files
from adats.models.core.types import Design, Digest, FloatArray, IntArray, MetaBelief, Stats, Task


class TaskState(NamedTuple):
    """All that is kept of one task."""

    stats: Stats
    digest: Digest[Any] | None = None  # the statistics worked out; freed when the task is finished
    design: Design = None
    mu: FloatArray | None = None  # MetaTS's draw
    asked: FloatArray | None = None  # pulls that forced exploration asked for; None: it is over
    finished: bool = False
    # kept for indices only: decisions and rewards without one; pulls that have no reward yet
    rounds: int = 0
    pending: FloatArray | None = None
    time: float = NEVER  # of the last reward, at which the statistics are as they stand

    def digested(self, meta: MetaBelief) -> Digest[Any]:
        """The statistics worked out: now, if they are not yet."""
        if self.digest is not None:
            return self.digest
        digest: Digest[Any] = meta.digest(self.stats, design=self.design)
        return digest


class DictBook(dict[Task, TaskState]):
    """Task states in a dict."""

    put = dict[Task, TaskState].__setitem__
    delete = dict[Task, TaskState].__delitem__

    def stale(self, meta: MetaBelief) -> list[Task]:
        """Tasks that had better be digested anew, the oldest digests first."""
        stale = [(task, state.stats) for task, state in self.items() if meta.is_stale(state.stats)]
        return [task for task, _ in sorted(stale, key=lambda one: meta.generation_of(one[1]) or 0)]


# pulls that have no reward yet: counts of arms, or the Gram matrix of a linear model


def with_pulls(
    pending: FloatArray | None, rows: FloatArray | None, action: int | IntArray, arms: int
) -> FloatArray:
    """The pending pulls and these; `rows` are the features of a linear model."""
    if rows is None:
        more = np.zeros(arms)
        more[action] = 1.0
    else:
        pulled = np.atleast_2d(rows[action])
        more = pulled.T @ pulled
    return more if pending is None else pending + more


def without_pulls(pending: FloatArray, pulled: Any) -> FloatArray:
    """The pending pulls without these; `pulled` is what the statistics took."""
    if pending.ndim == 2:
        rows = np.atleast_2d(pulled)
        left: FloatArray = pending - rows.T @ rows
        return left
    left = pending.copy()
    left[pulled] -= 1.0
    return np.maximum(left, 0.0)


# files


def pack_states(states: Iterable[TaskState]) -> dict[str, Any]:
    """The states as arrays for a file; digests are worked out again."""
    states = list(states)
    return {
        "finished": np.array([s.finished for s in states], dtype=bool),
        "rounds": np.array([s.rounds for s in states], dtype=np.int64),
        "time": np.array([s.time for s in states], dtype=np.float64),
        **files.pack("stats", [s.stats.flat() for s in states]),
        **files.pack("design", [s.design for s in states]),
        **files.pack("mu", [s.mu for s in states]),
        **files.pack("asked", [s.asked for s in states]),
        **files.pack("pending", [s.pending for s in states]),
    }


def unpack_states(arrays: dict[str, Any], kind: Any) -> Iterator[TaskState]:
    """The states that `pack_states` packed; `kind` is the class of their statistics."""
    names = ("stats", "design", "mu", "asked", "pending")
    columns = [files.unpack(name, arrays) for name in names]
    times = arrays["time"].tolist() if "time" in arrays else [NEVER] * len(columns[0])
    flags = (arrays["finished"].tolist(), arrays["rounds"].tolist(), times)
    for stats, design, mu, asked, pending, done, rounds, time in zip(*columns, *flags, strict=True):
        yield TaskState(kind.from_flat(stats), None, design, mu, asked, done, rounds, pending, time)


def check_state(state: TaskState, fresh: TaskState) -> None:
    """Raise unless the state, read from a file, is like a fresh one of the same agent."""
    if state.stats.pending_shape != fresh.stats.pending_shape:
        raise ValueError("statistics of the wrong size")
    expected = None if fresh.asked is None else fresh.asked.shape
    if state.asked is not None and expected != state.asked.shape:
        raise ValueError("counts of forced pulls of the wrong size")
    if state.pending is not None and state.pending.shape != state.stats.pending_shape:
        raise ValueError("pending pulls of the wrong size")


def task_name(task: Any) -> Task:
    if type(task) is str or type(task) is int:
        return task
    if isinstance(task, (str, np.str_)):
        return str(task)
    if isinstance(task, (int, np.integer)) and not isinstance(task, bool):
        return int(task)
    raise ValueError(f"a task is named by a string or an integer, got {task!r}")
