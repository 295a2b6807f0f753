"""Tasks that were digested in an earlier generation of the model, to be brought up to date."""

from collections import deque

from adats.agents.task_state import TaskState
from adats.models.core.types import MetaBelief
from adats.service.errors import DamagedStore
from adats.service.stores.interface import Store
from adats.service.task_cache import TaskCache

READ_AT_ONCE = 64  # names of tasks
START = (-1, "")


class StaleTasks:
    """Those of one experiment, the oldest generation first and by name: a replay has the same."""

    def __init__(self, store: Store, experiment: int, task_cache: TaskCache) -> None:
        self._store, self._experiment, self._task_cache = store, experiment, task_cache
        self._generation = 0  # up to which tasks are to be brought
        self._waiting: deque[tuple[int, str]] = deque()
        self._last, self._all_read = START, False

    def next(self, meta: MetaBelief) -> tuple[str, TaskState] | None:
        """The next stale task; None if there is none. What is damaged is left out."""
        if meta.generation != self._generation:
            self._task_cache.flush()  # the store then knows all that are stale
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
            found = self._store.tasks_before(
                self._experiment, self._generation, self._last, READ_AT_ONCE
            )
            self._waiting.extend(found)
            self._all_read = len(found) < READ_AT_ONCE
            self._last = found[-1] if found else self._last
        return bool(self._waiting)
