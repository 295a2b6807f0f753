"""What the service needs of a store, and the rows that it keeps. `sqlite` and `postgres` are two.

A group of operations begins, loads what it needs, and saves what has become of it. What was loaded
is nobody else's until then: a store that several processes write to locks the tasks first, in
order of their names, then reads. `save` writes all or nothing, and the next group may begin; it is
durable when `sync` returns.

Every commit that changes an experiment has a number, its `version`. Events are ordered by version,
then task, then their place among the task's events in that commit. So no row is changed by all.

Where many write, a group ends without a number: what its tasks have learned is kept beside them,
and whoever takes the experiment next folds it into what all taught. That fold has the number.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from operator import add, sub
from typing import Any, NamedTuple, Protocol, Self

from adats.models.core.types import Arm

Action = Arm | list[Arm]
Reward = float | list[float]
Metrics = dict[str, float]
RUNNING, ARCHIVED = "running", "archived"


class ExperimentRow(NamedTuple):
    id: int
    tenant: str
    name: str
    spec: str  # as it was made, in canonical JSON
    seed: int
    version: int = 0  # commits so far
    prior_version: int = 1
    arms: str = "[]"  # what was added and retired since, in JSON
    total: bytes | None = b""  # sum of all messages, with its time where they age; None: as it was
    tasks: int = 0
    decisions: int = 0
    counted: int = 0  # decisions whose reward counts
    days_until: int = 0  # before this time decisions are counted by days, from then on by hours
    believed_at: float = 0.0  # when beliefs were noted last
    believed_tasks: int = 0  # and how many tasks there were
    total_version: int = 0  # the commit that wrote the total; large ones are not in each
    status: str = RUNNING  # or paused, or archived


class TaskRow(NamedTuple):
    stats: bytes  # where rewards age, with the time of the last
    rounds: int
    pending: bytes | None
    generation: int | None = None  # in which it was digested, if that matters
    folded: bytes | None = None  # the statistics that are in the total, if those are others
    folded_in: int | None = None  # and in which: the commit that wrote it
    design: bytes | None = None  # if the task has one of its own
    size: int | None = None  # of n rewards, n > 0: log4(1 + n), rounded down


class LearnedReward(NamedTuple):
    """A reward of a task that is not in what all taught yet."""

    action: Action
    features: bytes | None
    reward: Reward
    instead: Reward | None = None  # of this one, which counted before
    stats: bytes | None = None  # all of the task, where it was counted anew
    time: float | None = None  # of its decision, where rewards age


class Progress(NamedTuple):
    """What groups have added to an experiment's figures."""

    tasks: int = 0
    decisions: int = 0
    counted: int = 0
    rewards: int = 0  # that were counted in place of none

    def plus(self, other: "Progress") -> "Progress":
        return Progress(*(a + b for a, b in zip(self, other, strict=True)))


class DecisionRow(NamedTuple):
    """A decision, what it was made from, and what has become of it."""

    id: int  # the store's own; 0 for a new one
    experiment: int
    version: int  # of the commit that it is in
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
    settled: int | None = None  # version of the commit in which the window's end changed something
    received: int = 0  # rewards
    reward: Reward | None = None  # what the rewards in time amount to
    counted: Reward | None = None  # what is in the statistics
    place: int = 0  # among the events of its task in its commit
    settled_place: int = 0  # the same of the window's end
    metrics: Metrics | None = None  # further figures, which count where the reward does
    kept: float | None = None  # when the arm was drawn, if the task keeps to an earlier draw


class RewardRow(NamedTuple):
    id: int
    experiment: int
    version: int
    decision: int  # the store's id of it; 0 if that is new too
    reward: Reward
    reward_id: str | None
    time: float
    place: int = 0
    metrics: Metrics | None = None


class ChangeRow(NamedTuple):
    """An arm added or retired, a task forgotten, another status; alone in its commit."""

    experiment: int
    version: int
    kind: str
    data: str
    time: float


class BeliefRow(NamedTuple):
    """What was believed of a new task, at some time."""

    experiment: int
    version: int
    time: float
    tasks: int
    mean: bytes
    scale: bytes
    best: bytes | None  # the chance of each arm to be the best; None where there are no arms


class KeyRow(NamedTuple):
    id: str
    tenant: str
    hash: bytes  # SHA-256 of the secret
    write: int
    created: float


class Bucket(NamedTuple):
    """Decisions of one hour, or of one day, that chose the same arm; or of a group of tasks."""

    experiment: int
    start: int  # seconds since 1970
    span: int  # seconds
    arm: str  # in JSON; null for several at once; or a name that is no JSON, such as group 7
    held_out: int  # 1, or 0; -1 if they could not be
    metric: str = ""  # whose values are counted; empty: rewards


class Counts(NamedTuple):
    """Of the decisions of a bucket. Sums are exact: integers in units of 2⁻¹⁰⁷⁴ and 2⁻²¹⁴⁸."""

    decisions: int = 0
    explored: int = 0
    rewarded: int = 0  # have a reward, counted or held
    counted: int = 0
    nonzero: int = 0  # rewards that count and are not 0
    unlikely: int = 0  # had a propensity below `FLOOR`
    sum: int = 0  # of rewards that count
    squares: int = 0  # of the same

    def plus(self, other: "Counts", sign: int = 1) -> "Counts":
        return Counts._make(map(add if sign > 0 else sub, self, other))


class RewardKey(NamedTuple):
    """A reward that came for a decision."""

    experiment: int
    decision_id: str
    reward: Reward
    reward_id: str | None
    metrics: Metrics | None = None


TaskKey = tuple[int, str]  # experiment and task
DecisionKey = tuple[int, str]  # experiment and decision_id


class Keys(NamedTuple):
    """What a group of operations is about."""

    tasks: Collection[TaskKey] = ()
    decisions: Collection[DecisionKey] = ()
    rewards: Collection[RewardKey] = ()
    experiments: Collection[tuple[int, int]] = ()  # with the version that is known


class Loaded(NamedTuple):
    """What is there of it. Rewards are those of their decisions that can matter to another.

    Of each decision these are, in order: the last; and those with the same name or, if it has
    none, those without that are the same. Where many write, tasks are as they were folded last,
    with what they have learned since; and experiments are those that are another version by now,
    or None if they are deleted.
    """

    tasks: dict[TaskKey, TaskRow]
    decisions: dict[DecisionKey, DecisionRow]
    rewards: dict[DecisionKey, list[RewardRow]]
    learned: dict[TaskKey, tuple[LearnedReward, ...]] = {}  # noqa: RUF012
    experiments: dict[int, ExperimentRow | None] = {}  # noqa: RUF012


class Taken(NamedTuple):
    """An experiment that nobody else folds until the end of the transaction."""

    row: ExperimentRow
    names: list[str]  # of tasks that have had events since it was folded last
    tasks: dict[str, TaskRow]  # those that were changed by them
    learned: dict[str, tuple[LearnedReward, ...]]
    rewards: int


@dataclass(slots=True)
class Changes:
    """What a group of operations changes. What is forgotten goes first."""

    experiments: dict[int, ExperimentRow] = field(default_factory=dict)
    forgotten: list[TaskKey] = field(default_factory=list)
    tasks: dict[TaskKey, TaskRow] = field(default_factory=dict)
    decisions: dict[DecisionKey, DecisionRow] = field(default_factory=dict)
    rewards: list[tuple[DecisionKey, RewardRow]] = field(default_factory=list)
    changes: list[ChangeRow] = field(default_factory=list)
    counts: dict[Bucket, Counts] = field(default_factory=dict)  # differences
    beliefs: list[BeliefRow] = field(default_factory=list)
    learned: dict[TaskKey, list[LearnedReward]] = field(default_factory=dict)  # where many write
    progress: dict[int, Progress] = field(default_factory=dict)  # the same
    deleted: list[int] = field(default_factory=list)  # experiments, with all they have; last

    def __bool__(self) -> bool:
        return any(getattr(self, name) for name in self.__slots__)


class Reader(Protocol):
    """Reading what is committed."""

    def experiments(self, tenant: str | None = None) -> list[ExperimentRow]: ...
    def experiment(self, tenant: str, name: str) -> ExperimentRow | None: ...
    def by_id(self, experiment: int) -> ExperimentRow: ...
    def task(self, experiment: int, task: str) -> TaskRow | None: ...
    def learned(self, experiment: int, task: str) -> tuple[LearnedReward, ...]:
        """What the task has learned since it was folded last."""
        ...

    def stale_tasks(
        self, experiment: int, generation: int, after: tuple[int, str], limit: int
    ) -> list[tuple[int, str]]:
        """The next tasks of earlier generations, in order of generation and name."""
        ...

    def unfolded_tasks(self, experiment: int, total_version: int) -> list[tuple[str, TaskRow]]:
        """Those that have changed since the total was written, in order of their names."""
        ...

    def decisions(
        self, experiment: int, since: float | None = None, before: float | None = None
    ) -> Iterator[DecisionRow]:
        """In order; of some time only, if that is given."""
        ...

    def decisions_of(
        self, experiment: int, task: str, last: int | None = None
    ) -> list[DecisionRow]:
        """In order; the last ones only, if their number is given."""
        ...

    def counts(self, experiment: int) -> dict[Bucket, Counts]: ...


class Connected:
    """What works through a connection, and closes it at the end of a `with`."""

    _connection: Any

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._connection.close()


class ReadView(Reader, Protocol):
    """Reading beside the engine: what was committed when the view was opened."""

    many_writers: bool

    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...
    def close(self) -> None: ...
    def tasks(self, experiment: int) -> Iterator[tuple[str, TaskRow]]:
        """As they are in what all taught."""
        ...

    def unfolded(self, experiment: int) -> set[str]:
        """Tasks that have changed since."""
        ...

    def rewards(self, experiment: int) -> Iterator[RewardRow]: ...
    def changes(self, experiment: int) -> Iterator[ChangeRow]: ...
    def largest_tasks(self, experiment: int, limit: int) -> list[str]:
        """Those of the greatest size."""
        ...

    def beliefs(self, experiment: int) -> Iterator[BeliefRow]: ...
    def overdue(self, experiment: int, now: float) -> float | None: ...
    def due_count(self, now: float) -> int: ...
    def newest_time(self) -> float | None: ...
    def key_rows(self) -> list[KeyRow]: ...


class Store(Reader, Protocol):
    """Writing, a group at a time."""

    many_writers: bool  # others write too
    waited: float  # seconds that the oldest of what was folded last had waited for that
    erased: bool  # False: something that was forgotten is in a log, which somebody still reads

    def now(self) -> float:
        """Its own time, by which all go who write to it."""
        ...

    def begin(self) -> None: ...
    def load(self, keys: Keys) -> Loaded: ...
    def take(self, experiment: int, *, wait: bool = True) -> Taken | None:
        """Keep others from folding it, first in a transaction; None: somebody else has it.

        Whoever has taken an experiment numbers its versions.
        """
        ...

    def waiting(self, for_long: float = 0.0) -> list[int]:
        """Experiments in which something has waited to be folded, for so many seconds."""
        ...

    def due(self, now: float, limit: int) -> list[DecisionRow]: ...
    def new_experiment(self) -> int:
        """An id that no other experiment has."""
        ...

    def save(self, changes: Changes) -> None:
        """Write it, in any thread."""
        ...

    def sync(self) -> None:
        """What was saved is durable when this returns. In any thread, while the next group goes on.

        If it raises, nobody knows what is: the next `begin` sees to it, or raises.
        """
        ...

    def rollback(self) -> None: ...
    def view(self) -> ReadView: ...
    def scrub(self) -> list[str]:
        """Look at some more rows, round and round; what is wrong with them. In any thread."""
        ...

    def close(self) -> None: ...


class SharedStore(Store, Protocol):
    """To which others write too."""

    lock_wait: float | None  # seconds that a group waits for what others hold; None: as usual


class KeyBook(Protocol):
    """The keys of a store, which may be in use."""

    def key_rows(self) -> list[KeyRow]: ...
    def add(self, row: KeyRow) -> None: ...
    def remove(self, key: str, mark: KeyRow) -> bool: ...
