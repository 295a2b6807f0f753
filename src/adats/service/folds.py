"""What is not in the sum over all tasks yet: of the commit that is open, and of the written one."""

from collections.abc import Callable, Iterable

from adats.agents.task_state import TaskState
from adats.models.core.types import MetaBelief
from adats.service.snapshot import LearnedTask, Unfolded
from adats.service.stores.interface import DecisionRow, ExperimentRow, LearnedReward, TaskRow
from adats.service.task_cache import packed_stats

DecisionsOf = Callable[[], Iterable[DecisionRow]]  # of one task
LARGE_TOTAL = 64_000  # bytes: a larger one is not written at each commit
MOST_UNFOLDED = 32  # tasks that may have changed since


class OpenCommit:
    """What has happened in an experiment since its last commit."""

    def __init__(self, tasks: Iterable[str] = (), rewards: int = 0) -> None:
        self.places = dict.fromkeys(tasks, 0)  # events, by task
        self.unfolded: dict[str, Unfolded] = {}
        self.learned: dict[str, list[LearnedReward]] = {}  # the same, reward by reward
        self.rewards = rewards  # that were counted in place of none
        self.uncounted: dict[str, tuple[LearnedReward, DecisionsOf]] = {}  # from the log, at last

    def place(self, task: str) -> int:
        """Of the next event of a task, among its events in this commit."""
        place = self.places.get(task, 0)
        self.places[task] = place + 1
        return place

    def learn(self, task: str, before: TaskState, learned: LearnedTask) -> None:
        self.learned.setdefault(task, []).append(learned.what)
        unfolded = self.unfolded.get(task)
        if unfolded is None:
            self.unfolded[task] = Unfolded(before, set(learned.arms))
        else:
            unfolded.arms.update(learned.arms)


class WrittenTotal:
    """The sum of all messages as it is in the store.

    A large one is not written at each commit, as long as few tasks have changed: what they had in
    it is kept with them.
    """

    def __init__(self, row: ExperimentRow, meta: MetaBelief, *, aging: bool) -> None:
        self.size, self._version, self._aging = len(row.total or b""), row.total_version, aging
        self._meta = meta if row.total else None
        self.folded: dict[str, bytes] = {}  # of tasks that changed since: what is in it
        self.newest = meta.generation  # of it, and of tasks that changed since
        self.must_be_written = False  # it changed otherwise, or others need it

    def keep(self, task: str, state: TaskState) -> None:
        """The statistics of a task, which is about to change."""
        if self.size > LARGE_TOTAL and task not in self.folded:
            self.folded[task] = packed_stats(state, aging=self._aging)

    def with_kept(self, task: str, row: TaskRow) -> TaskRow:
        """As it is written."""
        folded = self.folded.get(task)
        if folded is None:
            return row
        return self.kept(task, row._replace(folded=folded, folded_in=self._version))

    def kept(self, task: str, row: TaskRow) -> TaskRow:
        """A task that is not in the written total as it is."""
        assert row.folded is not None
        self.folded[task] = row.folded
        self.newest = max(self.newest, row.generation or 0)
        return row

    def is_due(self, meta: MetaBelief) -> bool:
        """Whether it is written now."""
        before = self._meta
        if meta is before or before is None:
            return before is None
        few = self.size > LARGE_TOTAL and len(self.folded) <= MOST_UNFOLDED
        if not few or self.must_be_written:
            return True
        number = meta.generation  # known from the tasks, or from what was written
        return number != before.generation and (
            number != self.newest or meta.at_generation(number) is None
        )
