"""The agent of one experiment. Its tasks are in the store; here are those in use."""

import hashlib
from collections import OrderedDict
from collections.abc import Iterator, MutableMapping
from typing import Any, NamedTuple, cast

import msgspec
import numpy as np

from adats.agents.actions import Arms, Decision
from adats.agents.agent import Choice
from adats.agents.named import AdaTS
from adats.agents.pending import asked_for, told_of
from adats.agents.propensities import chance
from adats.agents.task_state import TaskState
from adats.models import ModelMixture
from adats.models.core.frozen import evolve
from adats.models.core.stats import ArmStats
from adats.models.core.sums import Sum
from adats.models.core.types import Arm, BoolArray, FloatArray, IntArray, MetaBelief, Task
from adats.service.errors import Invalid
from adats.service.spec import (
    MOST_NUMBERS,
    ExperimentSpec,
    arms_of_control,
    check,
    meta_of,
    numbers_in,
    options_of,
)
from adats.service.stores.interface import DecisionRow, ExperimentRow, Reward, Store, TaskRow

CACHE = 100e6  # bytes, roughly, of the task states of one experiment in memory
FADED = 1e6  # a reward taken out whose square is this much larger than the rest leaves round-off


class Change(msgspec.Struct, frozen=True):
    """An arm that was added, or retired."""

    arm: int | str
    retired: bool = False
    like: int | str | None = None
    features: list[float] | None = None


class Chosen(NamedTuple):
    decision: Decision
    held_out: bool | None  # None: it could not be
    explored: bool  # whether another action has the best mean


class Tasks(MutableMapping[Task, TaskState]):
    """The states of tasks, read from the store when they are needed; the oldest are let go."""

    def __init__(self, store: Store, experiment: int, blank: Any, most: int) -> None:
        self._store, self._experiment, self._most = store, experiment, most
        self.blank = blank  # makes an empty state, to know the kind and the size of statistics
        self._states: OrderedDict[Task, TaskState] = OrderedDict()
        self.changed: set[Task] = set()

    def __getitem__(self, task: Task) -> TaskState:
        state = self._states.get(task)
        if state is None:
            row = self._store.task(self._experiment, str(task))
            if row is None:
                raise KeyError(task)
            state = self._states[task] = _unpacked(row, self.blank())
        else:
            self._states.move_to_end(task)
        return state

    def __setitem__(self, task: Task, state: TaskState) -> None:
        old = self._states.get(task)
        if old is None or not (
            old.stats is state.stats and old.rounds == state.rounds and old.pending is state.pending
        ):
            self.changed.add(task)
        self._states[task] = state
        self._states.move_to_end(task)

    def __delitem__(self, task: Task) -> None:
        self._states.pop(task, None)
        self.changed.discard(task)

    def __iter__(self) -> Iterator[Task]:
        return iter(self._states)

    def __len__(self) -> int:
        return len(self._states)

    def drop(self) -> None:
        """Read all again; what has changed must have been written."""
        assert not self.changed
        self._states.clear()

    def flush(self) -> None:
        """Write what has changed, and let go of what has not been used for long."""
        for task in self.changed:
            self._store.save_task(self._experiment, str(task), _packed(self._states[task]))
        self.changed.clear()
        while len(self._states) > self._most:
            self._states.popitem(last=False)


class Served(AdaTS):
    """AdaTS with its tasks in a store, a holdout, and randomness keyed by the decision."""

    def __init__(self, spec: ExperimentSpec, row: ExperimentRow, store: Store) -> None:
        meta = meta_of(spec)
        if numbers_in(meta) > MOST_NUMBERS:
            raise Invalid("prior", f"more than {MOST_NUMBERS} candidates times arms")
        try:
            super().__init__(meta, seed=0, **options_of(spec))
        except ValueError as error:
            raise Invalid("features" if spec.features is not None else "arms", str(error)) from None
        if (spec.size or 1) > (self._arms.count or 1):
            raise Invalid("size", f"there are {self._arms.count} arms")
        self._warned = True  # of propensities of 1: the report says it
        self.spec = spec
        self.version, self.prior_version = row.version, row.prior_version
        self._key = row.seed.to_bytes(8, "little")
        self._bits = np.random.PCG64(0)
        self._rng = np.random.Generator(self._bits)
        # what `ask` finds out on its way, for `decide`
        self._held: bool | None = None
        self._explored = False
        self.changes: list[Change] = []
        self._control = _control_of(spec, self._arms)
        self._stored = row
        self._size = 300 + _bytes_of(self._blank, set())  # of a state, with its place here
        most = max(64, int(CACHE / self._size))
        self.task_cache = Tasks(store, row.id, lambda: self._blank, most)
        self._tasks = self.task_cache  # type: ignore[assignment]
        for change in msgspec.json.decode(row.arms, type=list[Change]):
            self._apply(change)
        if row.total:
            self._meta = _with_total(self._meta, np.frombuffer(row.total))

    @property
    def id(self) -> int:
        return self._stored.id

    @property
    def weight(self) -> float:
        """Bytes in memory, roughly."""
        return 20_000.0 + 10 * self._size + len(self.task_cache) * self._size

    # decisions

    def decide(
        self, task: str, decision_id: str, *, features: Any, allowed: Any, horizon: int | None
    ) -> Chosen:
        self._held, self._explored = None, False
        self._bits.state = generator_state(self._key, decision_id)
        decision = self.ask(
            task, features=features, allowed=allowed, horizon=horizon, propensities=True
        )
        return Chosen(decision, self._held, self._explored)

    def record_decision(self, decision: DecisionRow, before: TaskState | None) -> None:
        """A decision as it was made elsewhere, for a task whose state was `before`."""
        state = self._blank if before is None else before
        if self._index:
            action, features = _pull(decision)
            if features is None:
                pulled, rows = self._pulled(action, None), None
            else:
                pulled, rows = slice(None), np.atleast_2d(features)
            pending = asked_for(state.pending, rows, pulled, self._arms.count or 0)
            state = state._replace(rounds=state.rounds + 1, pending=pending)
        self.task_cache[decision.task] = state

    def check_request(self, features: Any, allowed: Any, horizon: int | None) -> None:
        """Raise `Invalid`, with the field, for what `ask` would refuse."""
        if features is allowed is horizon is None and not (self._linear or self._index):
            return
        try:
            rows = self._rows(self._blank, features)
        except ValueError as error:
            raise Invalid("features", str(error)) from None
        try:
            self._arms.mask(allowed, None if rows is None else len(rows))
        except ValueError as error:
            raise Invalid("allowed", str(error)) from None
        if self.spec.policy.name in ("index", "far") and horizon is None:
            raise Invalid("horizon", "this policy plans ahead: say how many rounds are left")

    def _propensities(
        self, choice: Choice, rows: FloatArray | None, mask: BoolArray | None, before: Any
    ) -> FloatArray:
        """Seen on the way: whether the choice is the best as far as is known."""
        mean = choice.belief.mean
        values = mean if rows is None else rows.dot(mean)
        best = self._oracle(values if mask is None else np.where(mask, values, -np.inf))
        if isinstance(best, int):
            self._explored = best != choice.action
        else:
            self._explored = not np.array_equal(best, choice.action)
        return super()._propensities(choice, rows, mask, before)

    def _drawn_chances(
        self, choice: Choice, rows: FloatArray | None, mask: BoolArray | None, before: Any
    ) -> FloatArray:
        """Only the chance of what is done is told: that of the others need not be known."""
        if rows is None and isinstance(choice.action, int) and not self._epsilon:
            own = chance(choice.belief, choice.action, mask)
            if own is not None:
                chances = np.zeros(choice.belief.mean.size)
                chances[choice.action] = own
                return chances
        return super()._drawn_chances(choice, rows, mask, before)

    def _instead(self, mask: BoolArray | None, arms: int) -> int | IntArray | None:
        """The holdout comes first: a share of all decisions."""
        holdout = self.spec.holdout
        if holdout is None or not self._can_hold_out(mask, arms):
            return super()._instead(mask, arms)
        self._held = bool(self._rng.random() < holdout.share)
        if not self._held:
            return super()._instead(mask, arms)
        if holdout.to == "control":
            return self._control
        return int(self._rng.choice(arms if mask is None else np.flatnonzero(mask)))

    def _mixed(self, chances: FloatArray, mask: BoolArray | None) -> FloatArray:
        own, holdout = super()._mixed(chances, mask), self.spec.holdout
        if holdout is None or self._held is None:
            return own
        held = np.zeros_like(own)
        if holdout.to == "control":
            held[self._control] = 1.0
        else:
            held[:] = 1 / own.size if mask is None else mask / mask.sum()
        return (1 - holdout.share) * own + holdout.share * held

    def _can_hold_out(self, mask: BoolArray | None, arms: int) -> bool:
        if self.spec.holdout is None or self.spec.holdout.to == "uniform":
            return True
        if isinstance(self._control, int) and self._control >= arms:
            return False
        return mask is None or bool(mask[self._control].all())

    # rewards

    def check_reward(self, decision: DecisionRow, reward: Reward) -> Reward:
        """The reward as the statistics take it, or `Invalid`."""
        action = decision.action
        if isinstance(action, list) != isinstance(reward, list):
            due = "a list, one number an arm" if isinstance(action, list) else "one number"
            raise Invalid("reward", f"the reward of this decision is {due}; got {reward!r}")
        if isinstance(action, list) and isinstance(reward, list) and len(reward) != len(action):
            raise Invalid("reward", f"{len(action)} arms need as many rewards, got {len(reward)}")
        stats = self._blank.stats
        kind = stats if isinstance(stats, ArmStats) else ArmStats
        try:
            for value in reward if isinstance(reward, list) else [reward]:
                kind.check_reward(value)
        except ValueError as error:
            raise Invalid("reward", str(error)) from None
        return reward

    def count(self, decision: DecisionRow, reward: Reward, *, given_up: bool = False) -> None:
        """A reward for a decision that had none in the statistics."""
        if given_up and self._index:  # its pull is not pending any more: another's may be
            pending = self._known(decision.task).pending
            self.tell(as_decision(decision), reward=reward)
            self._tasks[decision.task] = self._known(decision.task)._replace(pending=pending)
            return
        self.tell(as_decision(decision), reward=reward)

    def recount(self, decision: DecisionRow, old: Reward, new: Reward, rows: Any) -> None:
        """Another reward in place of one that counts; `rows` gives those of the task that do."""
        state = self._known(decision.task)
        pulled = self._pulled(*_pull(decision))
        out, into = self._blank.stats.add(pulled, old), self._blank.stats.add(pulled, new)
        stats = state.stats - out + into
        if _faded(out, stats):
            stats = self._blank.stats  # what is left would be round-off: count from the log
            for row in rows():
                value = new if row.id == decision.id else row.counted
                stats = stats.add(self._pulled(*_pull(row)), value)
        arms = () if self._linear else range(stats.table.shape[1])
        digest, self._meta = self._meta.retell(self._digest(state), stats, arms)
        self._tasks[decision.task] = state._replace(stats=stats, digest=digest)

    def give_up(self, decision: DecisionRow) -> None:
        """No reward will come: its pull is not pending any more."""
        state = self._known(decision.task)
        if state.pending is not None:
            pulled = self._pulled(*_pull(decision))
            self._tasks[decision.task] = state._replace(pending=told_of(state.pending, pulled))

    @property
    def counts_pending(self) -> bool:
        return self._index

    # arms

    def change(self, change: Change) -> None:
        """Add or retire an arm; `Invalid` if that cannot be."""
        control = self._control
        if change.retired and control is not None:
            try:
                index = self._arms.index(change.arm)
            except ValueError as error:
                raise Invalid("arm", str(error)) from None
            if index in np.atleast_1d(control):
                raise Invalid("arm", f"{change.arm!r} is the control arm; it cannot be retired")
        if change.retired and self.spec.exactly and len(self.arms or ()) <= (self.spec.size or 0):
            raise Invalid("arm", f"an action has exactly {self.spec.size} arms; add one before")
        try:
            self._apply(change)
        except ValueError as error:
            raise Invalid("arm", str(error)) from None
        if not change.retired:
            self.prior_version += 1

    def _apply(self, change: Change) -> None:
        if change.retired:
            self.retire_arm(change.arm)
        else:
            task_cache, self._tasks = self._tasks, {}  # states grow when they are read again
            try:
                self.add_arm(change.arm, like=change.like, features=change.features)
            finally:
                self._tasks = task_cache
            self.task_cache.drop()
        self.changes.append(change)

    def added(self, arm: Arm) -> Change | None:
        """How an arm was added, if it was."""
        return next((c for c in self.changes if c.arm == arm and not c.retired), None)

    @property
    def n_arms(self) -> int | None:
        return self._arms.count

    @property
    def all_arms(self) -> tuple[Arm, ...] | None:
        """Retired ones too; None where features come with every decision."""
        if self._arms.count is None:
            return None
        return cast("tuple[Arm, ...]", self._arms.name(np.arange(self._arms.count)))

    @property
    def dim(self) -> int:
        """Features of a linear model, else 0."""
        return self._dim

    @property
    def retired(self) -> list[Arm]:
        return [cast(Arm, self._arms.name(i)) for i in sorted(self._arms.retired)]

    # looking

    def prior_of(self, task: str) -> Any:
        """The prior of a task as all the others have taught it."""
        state = self._known(task)
        return self._meta.absorb(-self._digest(state).message).task_prior()

    # the store

    def flush(self, store: Store) -> None:
        """Write what has changed since the last time."""
        self.task_cache.flush()
        row = self._stored._replace(
            version=self.version,
            prior_version=self.prior_version,
            arms=msgspec.json.encode(self.changes).decode(),
            total=total_of(self._meta).tobytes(),
        )
        if row != self._stored:
            store.save_experiment(row)
            self._stored = row


def _control_of(spec: ExperimentSpec, arms: Arms) -> int | IntArray | None:
    """The control action by indices of arms, or `Invalid`."""
    if spec.control is None:
        return None
    if arms.count is None:  # the arms are the rows of features that come with a decision
        if not isinstance(spec.control, int):
            raise Invalid("control", "arms have no names here: control is a row of the features")
        return spec.control
    try:
        wanted = [arms.index(arm) for arm in arms_of_control(spec.control)]
    except ValueError as error:
        raise Invalid("control", str(error)) from None
    if spec.size is None:
        return wanted[0]
    several = np.unique(np.array(wanted, dtype=np.intp))
    if several.size != len(wanted) or not 1 <= several.size <= spec.size:
        raise Invalid("control", f"{spec.control} is not an action")
    return several


def as_decision(row: DecisionRow) -> Decision:
    action, features = _pull(row)
    chance = tuple(row.propensity) if isinstance(row.propensity, list) else row.propensity
    return Decision(row.task, action, features, row.decision_id, row.time, chance)


def make(spec: ExperimentSpec, row: ExperimentRow, store: Store) -> Served:
    """The agent of an experiment, as its row has it."""
    check(spec)
    return Served(spec, row, store)


def _pull(row: DecisionRow) -> tuple[Any, FloatArray | None]:
    action = tuple(row.action) if isinstance(row.action, list) else row.action
    if row.features is None:
        return action, None
    features = np.frombuffer(row.features)
    if isinstance(action, tuple):
        features = features.reshape(len(action), -1)
    return action, features


def generator_state(key: bytes, decision_id: str) -> Any:
    """The state of a generator that belongs to one decision of one experiment."""
    hashed = hashlib.blake2b(decision_id.encode(), key=key, digest_size=32).digest()
    state = int.from_bytes(hashed[:16], "little")
    inc = int.from_bytes(hashed[16:], "little") | 1
    return {
        "bit_generator": "PCG64",
        "state": {"state": state, "inc": inc},
        "has_uint32": 0,
        "uinteger": 0,
    }


def _faded(out: Any, left: Any) -> bool:
    """Whether statistics are small beside what was taken out of them; arm by arm."""
    taken, stayed = (np.abs(getattr(part, "table", part.flat())) for part in (out, left))
    return bool((taken.max(axis=0) > FADED * stayed.max(axis=0)).any())


def _packed(state: TaskState) -> TaskRow:
    pending = None if state.pending is None else state.pending.tobytes()
    return TaskRow(state.stats.flat().tobytes(), state.rounds, pending)


def _unpacked(row: TaskRow, blank: TaskState) -> TaskState:
    """The state in a row. Arms may have been added since it was written."""
    stats = type(blank.stats).from_flat(np.frombuffer(row.stats))
    pending = None if row.pending is None else np.frombuffer(row.pending)
    if hasattr(stats, "table"):
        arms = blank.stats.table.shape[1]
        if stats.table.shape[1] < arms:
            stats = stats.grow(arms)
        if pending is not None:
            pending = np.append(pending, np.zeros(arms - pending.size))
    elif pending is not None:
        pending = pending.reshape(stats.gram.shape)
    return TaskState(stats, rounds=row.rounds, pending=pending)


def _bytes_of(value: Any, seen: set[int]) -> int:
    """What a state takes in memory: its arrays and the objects around them, each once."""
    if id(value) in seen:
        return 0
    seen.add(id(value))
    if isinstance(value, np.ndarray):
        return 112 + value.nbytes
    parts = value if isinstance(value, tuple) else getattr(value, "__dict__", {}).values()
    return 56 + sum(_bytes_of(part, seen) for part in parts)


def total_of(meta: Any) -> FloatArray:
    """What a meta-belief has learned: the sums of all messages, in one array."""
    if isinstance(meta, ModelMixture):
        return np.concatenate([total_of(model) for model in meta.models])
    return np.concatenate([meta.total.high, meta.total.low])


def _with_total(meta: Any, values: FloatArray) -> MetaBelief:
    if isinstance(meta, ModelMixture):
        models, start = [], 0
        for model in meta.models:
            size = total_of(model).size
            models.append(_with_total(model, values[start : start + size]))
            start += size
        return meta.with_models(models)
    high, low = values.reshape(2, -1)
    learned: MetaBelief = evolve(meta, drop=("_known_mu",), total=Sum(high.copy(), low.copy()))
    return learned
