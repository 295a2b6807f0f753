"""Which tasks are digested anew after a reward, where digests get stale (clicks and counts)."""

from collections import OrderedDict
from collections.abc import Iterable

from adats.agents.aging import LIGHT
from adats.agents.steps import Setup
from adats.agents.task_columns import ColumnBook
from adats.agents.task_state import DictBook, TaskState
from adats.models.core.types import MetaBelief, Task


class Renewals:
    """The oldest digests first. Where nothing ages, a list of the stale ones is made once a
    generation. Where tasks lose weight generations may be as short as a reward, so that there is
    no list of all: those that still weigh something have their `turns`."""

    def __init__(self, turns: Iterable[Task] = ()) -> None:
        self.turns: OrderedDict[Task, None] = OrderedDict.fromkeys(turns)
        self._stale: list[Task] | None = None  # None: not known

    def __copy__(self) -> "Renewals":
        return Renewals(self.turns)

    def learned(self, task: Task) -> None:
        """A task has had a reward, and was digested anew with it."""
        self.turns[task] = None
        self.turns.move_to_end(task)

    def forget(self, task: Task) -> None:
        self.turns.pop(task, None)

    def look_again(self) -> None:
        """There is another generation."""
        self._stale = None

    def next(
        self, setup: Setup, meta: MetaBelief, book: DictBook | ColumnBook, newest: float
    ) -> dict[Task, TaskState]:
        """The tasks to be digested anew now."""
        most = meta.renewals(1)
        if setup.aging is not None:
            return self._in_turn(setup, meta, book, newest, most)
        if self._stale is None:
            self._stale = book.stale(meta)
            self._stale.reverse()
        found: dict[Task, TaskState] = {}
        while self._stale and len(found) < most:
            task = self._stale.pop()
            state = book.get(task)
            if state is not None and meta.is_stale(state.stats):
                found[task] = state
        return found

    def _in_turn(
        self,
        setup: Setup,
        meta: MetaBelief,
        book: DictBook | ColumnBook,
        newest: float,
        most: int,
    ) -> dict[Task, TaskState]:
        found: dict[Task, TaskState] = {}
        while len(found) < min(most, len(self.turns)):
            task = next(iter(self.turns))
            state = book.get(task)
            if state is None or setup.weight(state, newest) < LIGHT:
                del self.turns[task]
            elif meta.is_stale(state.stats):
                self.turns.move_to_end(task)
                found[task] = state
            else:
                break
        return found
