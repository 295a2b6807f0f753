"""What there was before the last folds: to play the log of many writers again.

A decision whose task had learned something while a fold was under way belongs to a later fold than
its `state_version` says.
"""

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from adats.agents.task_state import TaskState
from adats.service.folds import OpenCommit
from adats.service.snapshot import Snapshot, Unfolded
from adats.service.stores.interface import LearnedReward

VERSIONS_KEPT = 200


class _Fold(NamedTuple):
    """An experiment before a fold, and what the tasks had learned that it folded."""

    snapshot: Snapshot
    learned: dict[str, tuple[TaskState, list[LearnedReward]]]


class Past:
    def __init__(self) -> None:
        self._folds: deque[_Fold] = deque(maxlen=VERSIONS_KEPT)

    def remember(self, snapshot: Snapshot, commit: OpenCommit) -> None:
        """A commit that is about to be folded."""
        self._folds.append(_Fold(snapshot, _learned_in(commit)))

    def renew(self, tasks: Iterable[tuple[str, TaskState]]) -> None:
        """The same fold digests these anew, which have learned nothing."""
        for task, state in tasks:
            self._folds[-1].learned.setdefault(task, (state, []))

    def as_of(
        self, version: int, now: Snapshot, task: str, state: TaskState, commit: OpenCommit
    ) -> tuple[Snapshot, TaskState, Unfolded | None]:
        """As it was at an earlier version, but with all that this task has learned since."""
        later = [fold for fold in self._folds if fold.snapshot.version >= version]
        then = later[0].snapshot if later else now  # folds since have taught nothing
        snapshot = then._replace(version=version)
        folds = [*(fold.learned for fold in later), _learned_in(commit)]
        parts = [fold[task] for fold in folds if task in fold]
        if not parts:
            return snapshot, state, None
        start = parts[0][0]._replace(rounds=state.rounds, pending=state.pending)
        learned = [one for _, some in parts for one in some]
        if not learned:
            return snapshot, start, None
        return snapshot, *snapshot.with_learned(start, learned)


def _learned_in(commit: OpenCommit) -> dict[str, tuple[TaskState, list[LearnedReward]]]:
    return {
        task: (unfolded.before, commit.learned.get(task, []))
        for task, unfolded in commit.unfolded.items()
    }
