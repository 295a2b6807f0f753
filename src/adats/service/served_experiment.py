"""One experiment at work: the parts of an agent, with its tasks in a store.

What the tasks of a commit have learned is folded into what all taught when the commit ends, task by
task in order of their names. Until then a decision knows all of its own task, and of the others
what was there at the last commit. So a log says in which order to play it again.
"""

import hashlib
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, NamedTuple, cast

import msgspec
import numpy as np

from adats.agents.arms import Arms
from adats.agents.choice import Action, Holdout
from adats.agents.decision import Decision
from adats.agents.pending import without_pulls
from adats.agents.prior_source import Marginal
from adats.agents.steps import MOVED_TASKS, Setup, make_setup
from adats.agents.task_state import TaskState
from adats.models.core.errors import UnknownTask
from adats.models.core.types import Arm, ArmBelief, Belief, FloatArray, MetaBelief, Stats
from adats.service import counters
from adats.service.errors import Invalid
from adats.service.field_types import ArmNames, Rows
from adats.service.group import Group
from adats.service.priors import prior_of
from adats.service.spec import ExperimentSpec, arms_of_control, check, options_of
from adats.service.stores.interface import BeliefRow, DecisionRow, ExperimentRow, Reward
from adats.service.task_cache import StaleTasks, TaskCache, TaskReader

DRAWS = 500  # to tell the chances of arms, where there is no formula
ROUND_OFF = 1e6  # a reward taken out whose square is this much larger than the rest leaves that


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


class ServedExperiment:
    """AdaTS with its tasks in a store, a holdout, and randomness keyed by the decision."""

    def __init__(self, spec: ExperimentSpec, row: ExperimentRow, store: TaskReader) -> None:
        """As its row has it; `Invalid` if the parts do not fit."""
        check(spec)
        self.spec, self.meta = spec, prior_of(spec)
        self._setup = _setup_of(spec, self.meta)
        self.version, self.prior_version = row.version, row.prior_version
        self.tasks, self.decisions, self.counted = row.tasks, row.decisions, row.counted
        self.days_until = row.days_until
        self._key = row.seed.to_bytes(8, "little")
        self._bits = np.random.PCG64(0)
        self._rng = np.random.Generator(self._bits)
        self._stored = row
        self._places: dict[str, int] = {}  # events of this commit, by task
        self._unfolded: dict[str, _Unfolded] = {}
        self._rewards = 0  # that were counted in this commit
        self._blank = self._setup.new_state(self.meta)
        self._check_policy()
        self.task_cache = TaskCache(
            store, row.id, lambda: self._blank, lambda stats: self.meta.generation_of(stats)
        )
        self._stale_tasks = StaleTasks(store, row.id, self.task_cache)
        self.changes: list[Change] = []
        for change in msgspec.json.decode(row.arms, type=list[Change]):
            self._apply(change)
        if row.total:
            self.meta = self.meta.with_sums(np.frombuffer(row.total))

    @property
    def id(self) -> int:
        return self._stored.id

    @property
    def weight(self) -> float:
        """Bytes in memory, roughly."""
        learned = 5 * len(self._stored.total)  # with what is worked out from it
        return 20_000.0 + learned + (10 + len(self.task_cache)) * self.task_cache.state_bytes

    def _check_policy(self) -> None:
        """Raise `Invalid` for an index where beliefs have no quantiles."""
        if self.counts_pending and not self.dim:
            try:
                cast(ArmBelief, self.meta.task_prior()).upper(0.0)
            except ValueError as error:
                raise Invalid("policy.name", str(error)) from None

    # commits

    def place(self, task: str) -> int:
        """Of the next event of a task, among its events in this commit."""
        place = self._places.get(task, 0)
        self._places[task] = place + 1
        return place

    @property
    def coming(self) -> int:
        """The version of which everything so far will be a part."""
        return self.version + 1 if self._places else self.version

    def fold(self, group: Group) -> None:
        """End the commit: what its tasks have learned becomes part of what all taught."""
        self._replace(
            [(task, self._known(task), *self._unfolded[task]) for task in sorted(self._unfolded)]
        )
        self._unfolded.clear()
        self._put_tasks(group)
        if self._rewards and self.meta.generation:
            self._renew(MOVED_TASKS * self._rewards)
            self._put_tasks(group)
        self._rewards = 0
        if self._places:
            self.version += 1
            self._places.clear()

    def _put_tasks(self, group: Group) -> None:
        for task, row in self.task_cache.take_changes().items():
            group.put_task(self.id, task, row)

    def _renew(self, count: int) -> None:
        """Bring the next stale tasks up to date."""
        meta = self.meta
        found = islice(iter(lambda: self._stale_tasks.next(meta), None), count)
        self._replace([(task, state, state, frozenset()) for task, state in found])

    def _replace(self, changes: list[tuple[str, TaskState, TaskState, frozenset[int]]]) -> None:
        """Put what tasks have learned, in some arms, in the place of what they taught before."""
        meta = self.meta
        digests, self.meta = meta.replace_tasks(
            [(before.digested(meta), state.stats, arms) for _, state, before, arms in changes]
        )
        for (task, state, *_), digest in zip(changes, digests, strict=True):
            self.task_cache.put(task, state._replace(stats=digest.stats, digest=digest))

    def _present(self, task: str, state: TaskState) -> tuple[MetaBelief, TaskState]:
        """What all taught, with what this task has learned in this commit."""
        unfolded = self._unfolded.get(task)
        if unfolded is None:
            return self.meta, state
        before, arms = unfolded
        digest, meta = self.meta.replace_task(before.digested(self.meta), state.stats, arms)
        return meta, state._replace(stats=digest.stats, digest=digest)

    def _learned(self, task: str, old: TaskState, new: TaskState, arms: Iterable[int]) -> None:
        """Keep the new state of a task whose statistics changed in these arms."""
        before, known = self._unfolded.get(task, (old, frozenset()))
        self._unfolded[task] = _Unfolded(before, known | frozenset(arms))
        self.task_cache.put(task, new._replace(digest=None))

    # decisions

    def decide(
        self,
        task: str,
        decision_id: str,
        *,
        features: Rows | None,
        allowed: ArmNames | None,
        horizon: int | None,
    ) -> Chosen:
        setup = self._setup
        self._bits.state = generator_state(self._key, decision_id)
        seed = cast(Any, self._bits.state)["state"]["state"]  # of draws that count chances
        known = self.task_cache.get(task)
        kept = self._blank if known is None else known
        meta, state = self._present(task, kept)
        rows = setup.arms.rows(features, state.stats.pending_shape[0])
        mask = setup.arms.mask(allowed, None if rows is None else len(rows))
        choice, state = setup.decide(
            meta, state, self._rng, rows, mask, horizon, draws=seed, logged=True
        )
        self._decided(task, known, kept if task in self._unfolded else state, state)
        action = choice.action
        chances = cast(FloatArray, choice.propensities)[action].tolist()
        decision = Decision(
            task,
            setup.arms.name(action),
            None if rows is None else rows[action].copy(),
            decision_id,
            propensity=tuple(chances) if isinstance(chances, list) else chances,
        )
        return Chosen(decision, choice.held_out, choice.explored)

    def _decided(
        self, task: str, known: TaskState | None, kept: TaskState, after: TaskState
    ) -> None:
        """Keep what a decision changes in a task; a new one is there from now on."""
        self.tasks += known is None
        self.task_cache.put(task, kept._replace(rounds=after.rounds, pending=after.pending))

    def record_decision(self, decision: DecisionRow, before: TaskState | None) -> None:
        """A decision as it was made elsewhere, for a task whose state was `before`."""
        state = self._blank if before is None else before
        if self.counts_pending:
            action, features = _pull(decision)
            if features is None:
                state = self._setup.awaiting(state, None, self._setup.arms.pulled(action, None))
            else:
                state = self._setup.awaiting(state, np.atleast_2d(features), slice(None))
        self.task_cache.put(decision.task, state)

    def check_request(
        self, features: Rows | None, allowed: ArmNames | None, horizon: int | None
    ) -> None:
        """Raise `Invalid`, with the field, for what `decide` would refuse."""
        arms = self._setup.arms
        plain = features is None and allowed is None and horizon is None
        if plain and not (arms.n_features or self.counts_pending):
            return
        try:
            rows = arms.rows(features, self._blank.stats.pending_shape[0])
        except ValueError as error:
            raise Invalid("features", str(error)) from None
        try:
            arms.mask(allowed, None if rows is None else len(rows))
        except ValueError as error:
            raise Invalid("allowed", str(error)) from None
        if self.spec.policy.name in ("index", "far") and horizon is None:
            raise Invalid("horizon", "this policy plans ahead: say how many rounds are left")

    @property
    def counts_pending(self) -> bool:
        return self._setup.counts_pending

    # rewards

    def check_reward(self, decision: DecisionRow, reward: Reward) -> Reward:
        """The reward as the statistics take it, or `Invalid`."""
        action = decision.action
        if isinstance(action, list) != isinstance(reward, list):
            due = "a list, one number an arm" if isinstance(action, list) else "one number"
            raise Invalid("reward", f"the reward of this decision is {due}; got {reward!r}")
        if isinstance(action, list) and isinstance(reward, list) and len(reward) != len(action):
            raise Invalid("reward", f"{len(action)} arms need as many rewards, got {len(reward)}")
        try:
            for value in reward if isinstance(reward, list) else [reward]:
                self._blank.stats.check_reward(value)
            if self.dim and decision.counted is None:
                meta, state = self._present(decision.task, self._known(decision.task))
                pulled = self._setup.arms.pulled(*_pull(decision))
                meta.check_change(state.digested(meta), state.stats.add(pulled, reward))
        except ValueError as error:
            raise Invalid("reward", str(error)) from None
        return reward

    def count(self, decision: DecisionRow, reward: Reward, *, given_up: bool = False) -> None:
        """A reward for a decision that had none in the statistics.

        If the decision was given up, its pull is not pending any more: another's may be.
        """
        state, pulled = self._known(decision.task), self._setup.arms.pulled(*_pull(decision))
        pending = state.pending
        if pending is not None and not given_up:
            pending = without_pulls(pending, pulled)
        new = state._replace(stats=state.stats.add(pulled, reward), pending=pending)
        self._learned(decision.task, state, new, self._arms_in(pulled))
        self._rewards += 1

    def _arms_in(self, pulled: Any) -> Iterable[int]:
        """Arms whose statistics a pull changes; none where they are rows of features."""
        if self.dim:
            return ()
        return (pulled,) if type(pulled) is int else np.atleast_1d(pulled).tolist()

    def recount(
        self,
        decision: DecisionRow,
        old: Reward,
        new: Reward,
        rows: Callable[[], Iterable[DecisionRow]],
    ) -> None:
        """Another reward in place of one that counts; `rows` gives the decisions of the task."""
        state, arms = self._known(decision.task), self._setup.arms
        pulled, nothing = arms.pulled(*_pull(decision)), self._blank.stats
        out, into = nothing.add(pulled, old), nothing.add(pulled, new)
        stats = state.stats - out + into
        changed: Iterable[int] = range(self.meta.n_arms)
        if stats.dwarfed_by(out, ROUND_OFF):  # count from the log
            stats = nothing
            for row in rows():
                value = new if row.decision_id == decision.decision_id else row.counted
                if value is not None:
                    stats = stats.add(arms.pulled(*_pull(row)), value)
        elif changed:
            changed = np.atleast_1d(pulled).tolist()
        self._learned(decision.task, state, state._replace(stats=stats), changed)

    def give_up(self, decision: DecisionRow) -> None:
        """No reward will come: its pull is not pending any more."""
        state = self._known(decision.task)
        if state.pending is not None:
            pulled = self._setup.arms.pulled(*_pull(decision))
            left = state._replace(pending=without_pulls(state.pending, pulled))
            self.task_cache.put(decision.task, left)

    # tasks

    def _known(self, task: str) -> TaskState:
        state = self.task_cache.get(task)
        if state is None:
            raise UnknownTask(f"task {task!r} is not known to this experiment")
        return state

    def stats(self, task: str) -> Stats:
        """The sufficient statistics of a task."""
        stats: Stats = self._known(task).stats
        return stats

    def posterior(self, task: str) -> Belief:
        """The belief over theta of this task."""
        return self._setup.source.posterior(*self._present(task, self._known(task)))

    def prior_of(self, task: str) -> Belief:
        """The prior of a task as all the others have taught it."""
        return self._setup.forget(*self._present(task, self._known(task))).task_prior()

    def forget(self, task: str) -> None:
        """Take the task out, at the end of a commit: the state is that of the remaining log."""
        self.meta = self._setup.forget(self.meta, self._known(task))
        self.tasks -= 1
        self.task_cache.delete(task)

    # arms

    def change(self, change: Change) -> None:
        """Add or retire an arm; `Invalid` if that cannot be."""
        arms = self._setup.arms
        control = _control_of(self.spec, arms)
        if change.retired and control is not None:
            try:
                index = arms.index(change.arm)
            except ValueError as error:
                raise Invalid("arm", str(error)) from None
            if index in np.atleast_1d(control):
                raise Invalid("arm", f"{change.arm!r} is the control arm; it cannot be retired")
        if change.retired and self.spec.exactly and len(arms.open) <= (self.spec.size or 0):
            raise Invalid("arm", f"an action has exactly {self.spec.size} arms; add one before")
        try:
            self._apply(change)
        except ValueError as error:
            raise Invalid("arm", str(error)) from None
        if not change.retired:
            self.prior_version += 1

    def _apply(self, change: Change) -> None:
        if change.retired:
            self._setup = self._setup.with_arms(self._setup.arms.retire(change.arm))
        else:
            self._setup, self.meta = self._setup.with_arm(
                self.meta, change.arm, change.like, change.features
            )
            self._blank = self._setup.new_state(self.meta)
            self.task_cache.drop()  # states grow when they are read again
        self.changes.append(change)

    def added(self, arm: Arm) -> Change | None:
        """How an arm was added, if it was."""
        return next((c for c in self.changes if c.arm == arm and not c.retired), None)

    @property
    def n_arms(self) -> int | None:
        return self._setup.arms.count

    @property
    def dim(self) -> int:
        """Features of a linear model, else 0."""
        return self._setup.arms.n_features

    @property
    def arms(self) -> list[Arm] | None:
        """The arms that can still be chosen; None where features come with every decision."""
        return None if self.n_arms is None else self._named(self._setup.arms.open)

    @property
    def all_arms(self) -> list[Arm] | None:
        """Retired ones too; None where features come with every decision."""
        return None if self.n_arms is None else self._named(range(self.n_arms))

    @property
    def retired(self) -> list[Arm]:
        return self._named(sorted(self._setup.arms.retired))

    def _named(self, arms: Iterable[int]) -> list[Arm]:
        return [cast(Arm, self._setup.arms.name(arm)) for arm in arms]

    # the store

    def flush(self, group: Group, now: float) -> None:
        """End the commit, and hand over what has changed since the last time."""
        self.fold(group)
        self.task_cache.shrink()
        until = counters.days_until(now)
        if until > self.days_until and self.version != self._stored.version:
            group.count_by_days(self.id, until)
            self.days_until = until
        row = self._stored._replace(
            version=self.version,
            prior_version=self.prior_version,
            arms=msgspec.json.encode(self.changes).decode(),
            total=self.meta.sums().tobytes(),
            tasks=self.tasks,
            decisions=self.decisions,
            counted=self.counted,
            days_until=self.days_until,
        )
        if row == self._stored:
            return
        # beliefs are noted when there are a tenth more tasks, and every hour
        grown = row.tasks > row.believed_tasks and 10 * row.tasks >= 11 * row.believed_tasks
        if grown or now >= row.believed_at + counters.HOUR:
            row = row._replace(believed_at=now, believed_tasks=row.tasks)
            group.add_belief(self._belief(now))
        group.put_experiment(row)
        self._stored = row

    def _belief(self, now: float) -> BeliefRow:
        prior = self.meta.task_prior()
        best = self._best_chances(prior)
        return BeliefRow(
            self.id,
            self.version,
            now,
            self.tasks,
            prior.mean.tobytes(),
            prior.scale.tobytes(),
            None if best is None else best.tobytes(),
        )

    def _best_chances(self, prior: Belief) -> FloatArray | None:
        """Of arms to be the best in a new task, of those that can still be chosen."""
        arms = self._setup.arms
        if arms.count is None or arms.come_with_decisions:
            return None
        chances, still = np.zeros(arms.count), np.array(arms.open)
        theta = prior.draws(DRAWS, np.random.default_rng(self.version))
        values = theta if arms.features is None else theta @ arms.features.T
        best, counts = np.unique(values[:, still].argmax(axis=1), return_counts=True)
        chances[still[best]] = counts / DRAWS
        return chances


class _Unfolded(NamedTuple):
    """A task that has learned something in this commit: as it was before, and in which arms."""

    before: TaskState
    arms: frozenset[int]


def _setup_of(spec: ExperimentSpec, meta: MetaBelief) -> Setup:
    try:
        setup = make_setup(meta, Marginal(), **options_of(spec))
    except ValueError as error:
        raise Invalid("features" if spec.features is not None else "arms", str(error)) from None
    if (spec.size or 1) > (setup.arms.count or 1):
        raise Invalid("size", f"there are {setup.arms.count} arms")
    control = _control_of(spec, setup.arms)
    if spec.holdout is None:
        return setup
    to_control = spec.holdout.to == "control"
    return setup.with_holdout(Holdout(spec.holdout.share, control if to_control else None))


def _control_of(spec: ExperimentSpec, arms: Arms) -> Action | None:
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


def _pull(row: DecisionRow) -> tuple[Arm | tuple[Arm, ...], FloatArray | None]:
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
