"""What the service needs of a store, and the rows that it keeps. `sqlite` is the one there is.

Everything between `begin` and `commit` happens or does not. A store is used by one engine; what
only reads (reports, exports) has a view of its own.

With a task goes the generation in which it was digested, None if that does not matter.
`tasks_before` finds the next tasks of earlier generations, in order of generation and name.
`earlier_rewards` are those of a decision that can matter to another reward, in order: the last; and
those with the same name or, if it has none, those without that are the same.
"""

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from adats.models.core.types import Arm

Action = Arm | list[Arm]
Reward = float | list[float]


class ExperimentRow(NamedTuple):
    id: int
    tenant: str
    name: str
    spec: str  # as it was made, in canonical JSON
    seed: int
    version: int  # events so far
    prior_version: int
    arms: str  # what was added and retired since, in JSON
    total: bytes  # the sum of all messages


class TaskRow(NamedTuple):
    stats: bytes
    rounds: int
    pending: bytes | None


class DecisionRow(NamedTuple):
    """A decision, what it was made from, and what has become of it."""

    id: int  # the store's own; 0 for a new one
    experiment: int
    seq: int  # its place among the experiment's events
    decision_id: str
    task: str
    action: Action
    features: bytes | None  # of the arm, or of each
    request: str | None  # the rest of what was asked: all features, allowed, horizon
    propensity: float | list[float]  # of the arm, or of each
    state_version: int
    prior_version: int
    time: float
    explored: int  # whether the action is not the posterior's best
    holdout: int | None  # whether it was held out; None if it could not be
    due: float | None = None  # when something is left to do at the end of the window
    settled: int | None = None  # its place among the events, if the window's end changed something
    received: int = 0  # rewards
    reward: Reward | None = None  # what the rewards in time amount to
    counted: Reward | None = None  # what is in the statistics


class RewardRow(NamedTuple):
    id: int
    experiment: int
    seq: int
    decision: int  # the store's id of it
    reward: Reward
    reward_id: str | None
    time: float


class ChangeRow(NamedTuple):
    """An arm added or retired, or a task forgotten."""

    experiment: int
    seq: int
    kind: str
    data: str
    time: float


class KeyRow(NamedTuple):
    id: str
    tenant: str
    hash: bytes  # SHA-256 of the secret
    write: int
    created: float


class DecisionCounts(NamedTuple):
    """Of the decisions of an experiment."""

    decisions: int
    tasks: int
    counted: int
    missing: int
    expired: int
    explored: int


class RewardMoments(NamedTuple):
    """Number, mean and summed squared deviations of rewards."""

    size: int
    mean: float
    squares: float


class ReadView(Protocol):
    """Reading what is committed, beside the engine."""

    def __enter__(self) -> "ReadView": ...
    def __exit__(self, *_: object) -> None: ...
    def close(self) -> None: ...
    def experiments(self, tenant: str | None = None) -> list[ExperimentRow]: ...
    def experiment(self, tenant: str, name: str) -> ExperimentRow | None: ...
    def task(self, experiment: int, task: str) -> TaskRow | None: ...
    def counts(self, experiment: int) -> tuple[int, int, int]: ...
    def tasks(self, experiment: int) -> Iterator[tuple[str, TaskRow]]: ...
    def decisions(self, experiment: int) -> Iterator[DecisionRow]: ...
    def rewards(self, experiment: int) -> Iterator[RewardRow]: ...
    def changes(self, experiment: int) -> Iterator[ChangeRow]: ...
    def decision_counts(self, experiment: int, over: float | None) -> DecisionCounts: ...
    def reward_moments(self, experiment: int, over: float | None) -> dict[int, RewardMoments]: ...
    def overdue(self, experiment: int, now: float) -> float | None: ...
    def due_count(self, now: float) -> int: ...
    def newest_time(self) -> float | None: ...
    def key_rows(self) -> list[KeyRow]: ...


class Store(Protocol):
    """Writing, in transactions."""

    def begin(self) -> None: ...
    def commit(self) -> None: ...
    def rollback(self) -> None: ...
    def close(self) -> None: ...
    def view(self) -> ReadView: ...

    def experiment(self, tenant: str, name: str) -> ExperimentRow | None: ...
    def by_id(self, experiment: int) -> ExperimentRow: ...
    def add_experiment(self, row: ExperimentRow) -> int: ...
    def save_experiment(self, row: ExperimentRow) -> None: ...

    def task(self, experiment: int, task: str) -> TaskRow | None: ...
    def save_task(
        self, experiment: int, task: str, row: TaskRow, generation: int | None
    ) -> None: ...
    def tasks_before(
        self, experiment: int, generation: int, after: tuple[int, str], limit: int
    ) -> list[tuple[int, str]]: ...
    def counts(self, experiment: int) -> tuple[int, int, int]: ...
    def counted(self, experiment: int, task: str) -> list[DecisionRow]: ...
    def forget(self, experiment: int, task: str) -> None: ...

    def decision(self, experiment: int, decision_id: str) -> DecisionRow | None: ...
    def add_decision(self, row: DecisionRow) -> int: ...
    def save_decision(self, row: DecisionRow) -> None: ...
    def due(self, now: float, limit: int) -> list[DecisionRow]: ...

    def earlier_rewards(
        self, decision: int, reward: Reward, reward_id: str | None
    ) -> list[RewardRow]: ...
    def add_reward(self, row: RewardRow) -> None: ...
    def add_change(self, row: ChangeRow) -> None: ...
