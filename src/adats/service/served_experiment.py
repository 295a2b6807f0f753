"""One experiment at work: the parts of an agent, with its tasks in a store.

What the tasks of a commit have learned is folded into what all taught when the commit ends, task by
task in order of their names. Until then a decision knows all of its own task, and of the others
what was there at the last commit. So a log says in which order to play it again.
"""

import hashlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
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
from adats.models.core.types import (
    Arm,
    ArmBelief,
    Belief,
    BoolArray,
    FloatArray,
    MetaBelief,
    Stats,
)
from adats.service import counters, rules
from adats.service.errors import Invalid
from adats.service.group import Group
from adats.service.messages import DecisionRequest
from adats.service.priors import prior_of
from adats.service.spec import ExperimentSpec, arms_of_control, check, options_of
from adats.service.stores.interface import (
    BeliefRow,
    DecisionRow,
    ExperimentRow,
    LearnedReward,
    Progress,
    Reward,
    Taken,
    TaskRow,
)
from adats.service.task_cache import StaleTasks, TaskCache, TaskReader, unpacked

DRAWS = 500  # to tell the chances of arms, where there is no formula
LARGE_TOTAL = 64_000  # bytes: a larger one is not written at each commit
MOST_UNFOLDED = 32  # tasks that may have changed since
ROUND_OFF = 1e6  # a reward taken out whose square is this much larger than the rest leaves that


class Change(msgspec.Struct, frozen=True):
    """An arm that was added, or retired."""

    arm: int | str
    retired: bool = False
    like: int | str | None = None
    features: list[float] | None = None


class ServedExperiment:
    """AdaTS with its tasks in a store, a holdout, and randomness keyed by the decision."""

    def __init__(self, spec: ExperimentSpec, row: ExperimentRow, store: TaskReader) -> None:
        """As its row has it; `Invalid` if the parts do not fit."""
        check(spec)
        self.spec, self.meta = spec, prior_of(spec)
        self._setup = _setup_of(spec, self.meta)
        self.id, self.version, self.prior_version = row.id, row.version, row.prior_version
        self.tasks, self.decisions, self.counted = row.tasks, row.decisions, row.counted
        self.days_until = row.days_until
        self._key = row.seed.to_bytes(8, "little")
        self._bits = np.random.PCG64(0)
        self._rng = np.random.Generator(self._bits)
        self._stored = row._replace(total=None)
        self._places: dict[str, int] = {}  # events of this commit, by task
        self._unfolded: dict[str, _Unfolded] = {}
        self._rewards = 0  # that were counted in this commit
        self._learned_now: dict[str, list[LearnedReward]] = {}  # the same, by task
        self.past: deque[_Past] | None = None  # what there was before each fold, if it is kept
        self._blank = self._setup.new_state(self.meta)
        self._check_policy()
        self.task_cache = TaskCache(
            store,
            row.id,
            lambda: self._blank,
            lambda stats: self.meta.generation_of(stats),
            self._with_learned,
        )
        self._stale_tasks = StaleTasks(store, row.id, self.task_cache)
        self.changes: list[Change] = []
        for change in msgspec.json.decode(row.arms, type=list[Change]):
            self._apply(change)
        if row.total:
            self.meta = self.meta.with_sums(np.frombuffer(row.total))
        self._total_size = len(row.total or b"")
        self._in_total = self.meta if row.total else None
        self._changed_otherwise = False  # what all taught: by an arm, or a task that is forgotten
        self._folded: dict[str, bytes] = {}  # of tasks that changed since: what the total has
        for task, kept in store.unfolded_tasks(row.id, row.total_version):
            self._fold_again(task, kept)

    @property
    def weight(self) -> float:
        """Bytes in memory, roughly."""
        learned = 5 * self._total_size  # with what is worked out from it
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
        if self.past is not None:
            self._remember()
        self._replace(
            [(task, self._known(task), *self._unfolded[task]) for task in sorted(self._unfolded)]
        )
        self._unfolded.clear()
        self._learned_now = {}
        self._put_tasks(group)
        if self._rewards and self.meta.generation:
            self._renew(MOVED_TASKS * self._rewards)
            self._put_tasks(group)
        self._rewards = 0
        if self._places:
            self.version += 1
            self._places.clear()

    def _remember(self) -> None:
        changed = {
            task: (before, self._learned_now.get(task, []))
            for task, (before, _) in self._unfolded.items()
        }
        now = (self.version, self.prior_version, self.meta, self._setup, self._blank)
        cast("deque[_Past]", self.past).append(_Past(*now, changed))

    @contextmanager
    def as_of(self, version: int, task: str) -> Iterator[None]:
        """As it was at an earlier version, but with all that this task has learned since."""
        if self.past is None or self.version <= version:
            yield
            return
        now = (self.version, self.prior_version, self.meta, self._setup, self._blank)
        present, unfolded = self.task_cache.get(task), self._unfolded.pop(task, None)
        later = [past for past in self.past if past.version >= version]
        then = later[0][:5] if later else now  # folds since have taught nothing
        _, self.prior_version, self.meta, self._setup, self._blank = then
        self.version = version
        parts = [past.changed[task] for past in later if task in past.changed]
        if unfolded is not None:
            parts.append((unfolded.before, self._learned_now.get(task, [])))
        if present is not None and parts:
            start = parts[0][0]._replace(rounds=present.rounds, pending=present.pending)
            learned = tuple(one for _, some in parts for one in some)
            self.task_cache.put(task, self._with_learned(task, start, learned))
        try:
            yield
        finally:
            self.version, self.prior_version, self.meta, self._setup, self._blank = now
            self._unfolded.pop(task, None)
            if unfolded is not None:
                self._unfolded[task] = unfolded
            after = self.task_cache.get(task)
            if present is not None and after is not None:
                moved = present._replace(rounds=after.rounds, pending=after.pending)
                self.task_cache.put(task, moved)

    def _put_tasks(self, group: Group) -> None:
        for task, row in self.task_cache.take_changes().items():
            folded = self._folded.get(task)
            if folded is not None:
                row = row._replace(folded=folded, folded_in=self._stored.total_version)
            group.put_task(self.id, task, row)

    def _renew(self, count: int) -> None:
        """Bring the next stale tasks up to date."""
        meta = self.meta
        found = islice(iter(lambda: self._stale_tasks.next(meta), None), count)
        self._replace([(task, state, state, set()) for task, state in found])

    def _fold_again(self, task: str, row: TaskRow) -> None:
        """What a task has learned since the total was written becomes part of it."""
        assert row.folded is not None
        self._folded[task] = row.folded
        for stats, sign in ((row.folded, -1.0), (row.stats, 1.0)):
            state = unpacked(row._replace(stats=stats), self._blank)
            self.meta = self.meta.absorb(sign * state.digested(self.meta).message)

    def _replace(self, changes: list[tuple[str, TaskState, TaskState, set[int]]]) -> None:
        """Put what tasks have learned, in some arms, in the place of what they taught before."""
        meta = self.meta
        if self._total_size > LARGE_TOTAL:
            for task, _, before, _ in changes:
                if task not in self._folded:
                    self._folded[task] = before.stats.flat().tobytes()
        digests, self.meta = meta.replace_tasks(
            [
                (before.digested(meta), state.stats, sorted(arms))
                for _, state, before, arms in changes
            ]
        )
        for (task, state, *_), digest in zip(changes, digests, strict=True):
            self.task_cache.put(task, state._replace(stats=digest.stats, digest=digest))

    def _present(self, task: str, state: TaskState) -> tuple[MetaBelief, TaskState]:
        """What all taught, with what this task has learned in this commit."""
        unfolded = self._unfolded.get(task)
        if unfolded is None:
            return self.meta, state
        before, arms = unfolded
        digest, meta = self.meta.replace_task(before.digested(self.meta), state.stats, sorted(arms))
        return meta, state._replace(stats=digest.stats, digest=digest)

    def _learned(
        self, task: str, old: TaskState, new: TaskState, arms: Iterable[int], what: LearnedReward
    ) -> None:
        """Keep the new state of a task, not digested, whose statistics changed in these arms."""
        self._learned_now.setdefault(task, []).append(what)
        unfolded = self._unfolded.get(task)
        if unfolded is None:
            self._unfolded[task] = _Unfolded(old, set(arms))
        else:
            unfolded.arms.update(arms)
        self.task_cache.put(task, new)

    # decisions

    def decide(self, request: DecisionRequest, decision_id: str, now: float) -> DecisionRow:
        """A decision, which is not in the store yet; `Invalid` if it cannot be made."""
        setup, task = self._setup, request.task
        rows, mask, more = None, setup.arms.not_retired, _other_fields(request)
        if more is not None or self.dim or self.counts_pending:
            rows, mask = self._asked(request)
        state = generator_state(self._key, decision_id)
        self._bits.state = state
        known = self.task_cache.get(task)
        kept = self._blank if known is None else known
        meta, present = self._present(task, kept)
        try:
            choice, after = setup.decide(
                meta,
                present,
                self._rng,
                rows,
                mask,
                request.horizon,
                draws=state["state"]["state"],  # of draws that count chances
                logged=True,
            )
        except ValueError as error:  # the oracle finds no action among the allowed arms
            raise Invalid("allowed", str(error)) from None
        if self.counts_pending:
            kept = kept._replace(rounds=after.rounds, pending=after.pending)
        if after.digest is not kept.digest and task not in self._unfolded:
            kept = kept._replace(digest=after.digest)
        if kept is not known:
            self.tasks += known is None
            self.task_cache.put(task, kept)
        action = choice.action
        named = setup.arms.name(action)
        row = DecisionRow(
            id=0,
            experiment=self.id,
            version=self.version + 1,
            decision_id=decision_id,
            task=task,
            action=list(named) if isinstance(named, tuple) else named,
            features=None if rows is None else rows[action].tobytes(),
            request=more,
            propensity=cast(FloatArray, choice.propensities)[action].tolist(),
            state_version=self.version,
            prior_version=self.prior_version,
            time=now,
            explored=int(choice.explored),
            holdout=None if choice.held_out is None else int(choice.held_out),
            due=rules.when_due(self.spec, now, self.counts_pending),
            place=self.place(task),
        )
        return rules.of_no_arm(row) if row.action == [] else row

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

    def _asked(self, request: DecisionRequest) -> tuple[FloatArray | None, BoolArray | None]:
        """Rows of features, and which may be chosen; `Invalid`, with the field, if that is wrong"""
        arms = self._setup.arms
        try:
            rows = arms.rows(request.features, self._blank.stats.pending_shape[0])
        except ValueError as error:
            raise Invalid("features", str(error)) from None
        try:
            mask = arms.mask(request.allowed, None if rows is None else len(rows))
        except ValueError as error:
            raise Invalid("allowed", str(error)) from None
        if self.spec.policy.name in ("index", "far") and request.horizon is None:
            raise Invalid("horizon", "this policy plans ahead: say how many rounds are left")
        return rows, mask

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
        stats = state.stats.add(pulled, reward)
        new = state._replace(stats=stats, digest=None, pending=pending)
        what = LearnedReward(decision.action, decision.features, reward)
        self._learned(decision.task, state, new, self._arms_in(pulled), what)
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
        what = LearnedReward(decision.action, decision.features, new, old)
        pulled, nothing = arms.pulled(*_pull(decision)), self._blank.stats
        out = nothing.add(pulled, old)
        stats = state.stats - out + nothing.add(pulled, new)
        changed: Iterable[int] = range(self.meta.n_arms)
        if stats.dwarfed_by(out, ROUND_OFF):  # count from the log
            stats = nothing
            for row in rows():
                value = new if row.decision_id == decision.decision_id else row.counted
                if value is not None:
                    stats = stats.add(arms.pulled(*_pull(row)), value)
            what = what._replace(stats=stats.flat().tobytes())
        elif changed:
            changed = np.atleast_1d(pulled).tolist()
        new_state = state._replace(stats=stats, digest=None)
        self._learned(decision.task, state, new_state, changed, what)

    def _with_learned(
        self, task: Any, state: TaskState, learned: tuple[LearnedReward, ...]
    ) -> TaskState:
        """A task as it was folded last, with what it has learned since."""
        stats, nothing = state.stats, self._blank.stats
        changed: set[int] = set()
        for one in learned:
            pulled = self._setup.arms.pulled(*_pull(one))
            if one.stats is not None:
                stats = type(nothing).from_flat(np.frombuffer(one.stats))
                changed.update(range(self.meta.n_arms))
                continue
            if one.instead is not None:
                stats = stats - nothing.add(pulled, one.instead) + nothing.add(pulled, one.reward)
            else:
                stats = stats.add(pulled, one.reward)
            changed.update(self._arms_in(pulled))
        self._unfolded[task] = _Unfolded(state, changed)
        return state._replace(stats=stats, digest=None)

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

    def message_of(self, row: TaskRow) -> FloatArray:
        """What a task teaches the others."""
        message: FloatArray = unpacked(row, self._blank).digested(self.meta).message
        return message

    def forget(self, task: str) -> None:
        """Take the task out, at the end of a commit: the state is that of the remaining log."""
        self.meta = self._setup.forget(self.meta, self._known(task))
        self._changed_otherwise = True
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
        self._changed_otherwise = True

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

    def refresh(self, row: ExperimentRow) -> None:
        """Others have folded it since; it has the same arms."""
        self._stored = row._replace(total=None)
        self.version, self.prior_version = row.version, row.prior_version
        self.tasks, self.decisions, self.counted = row.tasks, row.decisions, row.counted
        self.days_until = row.days_until
        assert row.total is not None
        self.meta = self._in_total = self.meta.with_sums(np.frombuffer(row.total))
        self._total_size = len(row.total)
        self._folded.clear()

    def hand_over(self, group: Group) -> None:
        """Where many write: somebody folds later what the tasks of this group have learned."""
        self._put_tasks(group)
        for task, learned in self._learned_now.items():
            group.put_learned(self.id, task, learned)
        was = self._stored
        if self._places:
            new = (self.tasks - was.tasks, self.decisions - was.decisions)
            progress = Progress(*new, self.counted - was.counted, self._rewards)
            group.put_progress(self.id, progress)
        self.tasks, self.decisions, self.counted = was.tasks, was.decisions, was.counted
        self._rewards = 0
        for known in (self._learned_now, self._unfolded, self._places):
            known.clear()
        self.task_cache.drop()

    def take(self, taken: Taken) -> None:
        """Nobody else folds now: what others have handed over is part of this commit."""
        self.task_cache.drop()
        self._changed_otherwise = True  # others need the total
        self._rewards = taken.rewards
        self._places = dict.fromkeys(taken.names, 0)
        for task in taken.tasks:
            self.task_cache.rewrite(task)

    @property
    def stored(self) -> ExperimentRow:
        """As it was in the store."""
        return self._stored

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
            tasks=self.tasks,
            decisions=self.decisions,
            counted=self.counted,
            days_until=self.days_until,
        )
        if self._total_is_due():
            row = row._replace(total=self.meta.sums().tobytes(), total_version=self.version)
            self._total_size, self._in_total = len(row.total or b""), self.meta
            self._folded.clear()
            self._changed_otherwise = False
        if row == self._stored:
            return
        # beliefs are noted when there are a tenth more tasks, and every hour
        grown = row.tasks > row.believed_tasks and 10 * row.tasks >= 11 * row.believed_tasks
        if grown or now >= row.believed_at + counters.HOUR:
            row = row._replace(believed_at=now, believed_tasks=row.tasks)
            group.add_belief(self._belief(now))
        group.put_experiment(row)
        self._stored = row._replace(total=None)

    def _total_is_due(self) -> bool:
        """Whether the sum of all messages is written. A large one is not written at each commit, as
        long as few tasks have changed: what they had in it is kept with them."""
        meta, before = self.meta, self._in_total
        if meta is before or before is None:
            return before is None
        few = self._total_size > LARGE_TOTAL and len(self._folded) <= MOST_UNFOLDED
        return not few or self._changed_otherwise or meta.generation != before.generation

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


class _Past(NamedTuple):
    """An experiment before a fold, and what the tasks had learned that it folded."""

    version: int
    prior_version: int
    meta: MetaBelief
    setup: Setup
    blank: TaskState
    changed: dict[str, tuple[TaskState, list[LearnedReward]]]


class _Unfolded(NamedTuple):
    """A task that has learned something in this commit: as it was before, and in which arms."""

    before: TaskState
    arms: set[int]


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


def _pull(row: DecisionRow | LearnedReward) -> tuple[Arm | tuple[Arm, ...], FloatArray | None]:
    action = tuple(row.action) if isinstance(row.action, list) else row.action
    if row.features is None:
        return action, None
    features = np.frombuffer(row.features)
    if isinstance(action, tuple):
        features = features.reshape(len(action), -1)
    return action, features


def _other_fields(request: DecisionRequest) -> str | None:
    """What was asked besides the task, to make the decision again."""
    features, allowed, horizon = request.features, request.allowed, request.horizon
    if features is None and allowed is None and horizon is None:
        return None
    fields = {"features": features, "allowed": allowed, "horizon": horizon}
    given = {name: value for name, value in fields.items() if value is not None}
    return msgspec.json.encode(given).decode()


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
