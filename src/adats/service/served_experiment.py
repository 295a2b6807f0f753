"""One experiment at work: the parts of an agent, with its tasks in a store.

What the tasks of a commit have learned is folded into what all taught when the commit ends, task by
task in order of their names. Until then a decision knows all of its own task, and of the others
what was there at the last commit. So a log says in which order to play it again.
"""

import hashlib
from collections.abc import Iterable
from functools import lru_cache, partial
from itertools import islice
from typing import Any, cast

import msgspec
import numpy as np

from adats.agents.aging import NEVER
from adats.agents.task_state import TaskState
from adats.models.core.errors import UnknownTask
from adats.models.core.types import Belief, FloatArray, MetaBelief, Stats
from adats.service import beliefs, counters, rules
from adats.service.arm_changes import Change
from adats.service.folds import DecisionsOf, OpenCommit, WrittenTotal
from adats.service.group import Group
from adats.service.messages import DecisionRequest
from adats.service.past import Past
from adats.service.snapshot import LearnedTask, Snapshot, other_fields
from adats.service.spec import KEPT, parse
from adats.service.stores.interface import (
    DecisionRow,
    ExperimentRow,
    LearnedReward,
    Progress,
    Reward,
    Taken,
    TaskRow,
)
from adats.service.task_cache import StaleTasks, TaskCache, TaskReader


class ServedExperiment:
    """AdaTS with its tasks in a store, a holdout, and randomness keyed by the decision."""

    def __init__(self, row: ExperimentRow, store: TaskReader) -> None:
        """As its row has it; `Invalid` if the parts do not fit."""
        self.id, self._key = row.id, row.seed.to_bytes(8, "little")
        self._bits = np.random.PCG64(0)
        self._rng = np.random.Generator(self._bits)
        self.past: Past | None = None  # what there was before each fold, if it is kept
        self._commit = OpenCommit()
        self.changes = msgspec.json.decode(row.arms, type=list[Change])
        self.snapshot = _first(row.spec)
        self.spec = self.snapshot.spec
        for change in self.changes:
            self.snapshot = self.snapshot.changed(change)
        self.task_cache = TaskCache(
            store,
            row.id,
            lambda design: self.snapshot.blank_of(design),
            lambda state: self.snapshot.generation_of(state),
            self._learn_again,
            aging=self.snapshot.aging,
        )
        self._stale_tasks = StaleTasks(store, row.id, self.task_cache)
        self.refresh(row)
        self._fold_again(store.unfolded_tasks(row.id, row.total_version))

    def refresh(self, row: ExperimentRow) -> None:
        """As it is in the store now, with the same arms."""
        self.tasks, self.decisions, self.counted = row.tasks, row.decisions, row.counted
        self.days_until, self.status = row.days_until, row.status
        now = self.snapshot._replace(version=row.version, prior_version=row.prior_version)
        self.snapshot = now.with_total(row.total) if row.total else now
        self._total = WrittenTotal(row, self.snapshot.meta, aging=now.aging)
        self.stored = row._replace(total=None)  # as it is in the store

    @property
    def weight(self) -> float:
        """Bytes in memory, roughly."""
        learned = 5 * self._total.size  # with what is worked out from it
        return 20_000.0 + learned + (10 + len(self.task_cache)) * self.task_cache.state_bytes

    # commits

    def place(self, task: str) -> int:
        """Of the next event of a task, among its events in this commit."""
        return self._commit.place(task)

    @property
    def coming(self) -> int:
        """The version of which everything so far will be a part."""
        return self.snapshot.version + bool(self._commit.places)

    def number(self, version: int) -> None:
        """Give the last commit this number."""
        self.snapshot = self.snapshot._replace(version=version)

    def fold(self, group: Group) -> None:
        """End the commit: what its tasks have learned becomes part of what all taught."""
        commit = self._commit
        self._count_again(*commit.uncounted)
        if self.past is not None:
            self.past.remember(self.snapshot, commit)
        self._replace(
            [(task, self._known(task), *commit.unfolded[task]) for task in sorted(commit.unfolded)]
        )
        self._commit = OpenCommit()
        self._put_tasks(group)
        if commit.unfolded:
            self.renew(group, commit.rewards)
        if commit.places:
            self.number(self.snapshot.version + 1)

    def _put_tasks(self, group: Group) -> None:
        for task, row in self.task_cache.take_changes().items():
            group.put_task(self.id, task, self._total.with_kept(task, row))

    def _fold_again(self, tasks: Iterable[tuple[str, TaskRow]]) -> None:
        """What tasks have learned since the total was written becomes part of it."""
        swaps = []
        for task, row in tasks:
            before = row._replace(stats=self._total.kept(task, row).folded or b"")
            swaps.append([self.snapshot.state_of(one) for one in (before, row)])
        self.snapshot = self.snapshot.at(max((new.time for _, new in swaps), default=NEVER))
        meta = self.snapshot.meta
        for old, new in swaps:
            meta = meta.absorb(-self._taught_by(old)).absorb(self._taught_by(new))
        if self._total.newest != meta.generation:
            meta = meta.at_generation(self._total.newest) or meta
        self.snapshot = self.snapshot.with_meta(meta)

    def _replace(self, changes: list[tuple[str, TaskState, TaskState, set[int]]]) -> None:
        """Put what tasks have learned, in some arms, in the place of what they taught before."""
        for task, _, before, _ in changes:
            self._total.keep(task, before)
        told = [(before, state, sorted(arms)) for _, state, before, arms in changes]
        digests, self.snapshot = self.snapshot.with_learned_by(told)
        for (task, state, *_), digest in zip(changes, digests, strict=True):
            self.task_cache.put(task, state._replace(stats=digest.stats, digest=digest))

    # decisions

    def decide(
        self,
        request: DecisionRequest,
        decision_id: str,
        now: float,
        last: DecisionRow | None = None,
        as_of: int | None = None,
    ) -> DecisionRow:
        """A decision, which is not in the store yet; `Invalid` if it cannot be made.

        After the `last` one of the task, whose action it may keep. In a replay it is made as of an
        earlier version, but with all that its task knows now.
        """
        task, snapshot = request.task, self.snapshot
        self._count_again(task)
        known, unfolded = self.task_cache.get(task), self._commit.unfolded.get(task)
        kept = state = snapshot.opened(request, known)
        if as_of is not None and as_of < snapshot.version and self.past is not None:
            past = self.past.as_of(as_of, snapshot, task, state, self._commit)
            snapshot, state, unfolded = past
        if snapshot.aging and state is kept and unfolded is None and state.digest is None:
            kept = state = state._replace(digest=state.digested(snapshot.meta))
        drawn, same = rules.kept_since(last, self.spec, now), None
        if last is not None and drawn is not None:
            same = snapshot.keep(request, state, last)
        if last is not None and same is not None:
            action, after, rows = same
            how = (last.propensity, last.explored, last.holdout)
        else:
            self._bits.state = seed = generator_state(self._key, decision_id)
            choice, after, rows = snapshot.decide(
                request, state, unfolded, self._rng, seed["state"]["state"], now
            )
            action, drawn = choice.action, None
            chance = cast(FloatArray, choice.propensities)[action].tolist()
            held_out = None if choice.held_out is None else int(choice.held_out)
            how = (chance, int(choice.explored), held_out)
        if snapshot.setup.counts_pending:
            kept = kept._replace(rounds=after.rounds, pending=after.pending)
        whole = snapshot is self.snapshot and unfolded is None and not snapshot.aging
        if whole and after.digest is not kept.digest:
            kept = kept._replace(digest=after.digest)
        if kept is not known:
            self.tasks += known is None
            self.task_cache.put(task, kept)
        named = snapshot.setup.arms.name(action)
        row = DecisionRow(
            id=0,
            experiment=self.id,
            version=snapshot.version + 1,
            decision_id=decision_id,
            task=task,
            action=list(named) if isinstance(named, tuple) else named,
            features=None if rows is None else rows[action].tobytes(),
            request=other_fields(request),
            propensity=how[0],
            state_version=snapshot.version,
            prior_version=snapshot.prior_version,
            time=now,
            explored=how[1],
            holdout=how[2],
            due=rules.when_due(self.spec, now, snapshot.setup.counts_pending),
            place=self.place(task),
            kept=drawn,
        )
        return rules.of_no_arm(row, self.spec) if row.action == [] else row

    def record_decision(self, decision: DecisionRow, before: TaskState | None) -> None:
        """A decision as it was made elsewhere, for a task whose state was `before`."""
        state = before or self._known(decision.task)._replace(rounds=0, pending=None)
        self.task_cache.put(decision.task, self.snapshot.awaiting(decision, state))

    # rewards

    def check_reward(self, decision: DecisionRow, reward: Reward) -> None:
        """Raise `Invalid` if the statistics cannot take it."""
        present = partial(self._present, decision.task)  # other rewards do not matter here
        self.snapshot.check_reward(decision, reward, present)

    def count(self, decision: DecisionRow, reward: Reward, *, given_up: bool = False) -> None:
        """A reward for a decision that had none in the statistics, and may have been given up."""
        state = self._known(decision.task)
        self._learn(decision.task, state, self.snapshot.counted(decision, reward, state, given_up))
        self._commit.rewards += 1

    def recount(
        self, decision: DecisionRow, old: Reward, new: Reward, decisions: DecisionsOf
    ) -> None:
        """Another reward in place of one that counts; `decisions` gives all of the task."""
        task, state = decision.task, self._known(decision.task)
        learned, wild = self.snapshot.recounted(decision, old, new, state)
        self._learn(task, state, learned)
        if wild:
            self._commit.uncounted[task] = learned.what, decisions

    def _count_again(self, *tasks: str) -> None:
        """From the log, if a wild reward was taken out: once, however many followed."""
        for task in tasks:
            if task in self._commit.uncounted:
                what, decisions = self._commit.uncounted.pop(task)
                state = self._known(task)
                self._learn(task, state, self.snapshot.counted_again(state, what, decisions()))

    def _learn(self, task: str, before: TaskState, learned: LearnedTask) -> None:
        self._commit.learn(task, before, learned)
        self.task_cache.put(task, learned.state)

    def _learn_again(
        self, task: Any, state: TaskState, learned: tuple[LearnedReward, ...]
    ) -> TaskState:
        """A task as it was folded last, with what it has learned since."""
        state, self._commit.unfolded[task] = self.snapshot.with_learned(state, learned)
        return state

    def give_up(self, decision: DecisionRow) -> None:
        """No reward will come: its pull is not pending any more."""
        state = self._known(decision.task)
        self.task_cache.put(decision.task, self.snapshot.given_up(decision, state))

    # tasks

    def _known(self, task: str) -> TaskState:
        state = self.task_cache.get(task)
        if state is None:
            raise UnknownTask(f"task {task!r} is not known to this experiment")
        return state

    def stats(self, task: str) -> Stats:
        """The sufficient statistics of a task."""
        self._count_again(task)
        stats: Stats = self._known(task).stats
        return stats

    def posterior(self, task: str, now: float = NEVER) -> Belief:
        """The belief over theta of this task; where rewards age, now or at the newest of them."""
        return self.snapshot.setup.source.posterior(*self.present(task, now))

    def prior_of(self, task: str, now: float = NEVER) -> Belief:
        """The prior of a task as all the others have taught it."""
        meta, state = self.present(task, now)
        others = self.snapshot.setup.forget(meta, state, state.time)
        return others.task_prior(design=state.design)

    def present(self, task: str, now: float = NEVER) -> tuple[MetaBelief, TaskState]:
        """What all taught, with what this task has learned in this commit."""
        self._count_again(task)
        return self._present(task, now)

    def _present(self, task: str, now: float = NEVER) -> tuple[MetaBelief, TaskState]:
        return self.snapshot.present(self._known(task), self._commit.unfolded.get(task), now)

    def message_of(self, row: TaskRow) -> FloatArray:
        """What a task teaches the others, with its weight in what all taught."""
        return self._taught_by(self.snapshot.state_of(row))

    def _taught_by(self, state: TaskState) -> FloatArray:
        snapshot = self.snapshot
        message: FloatArray = state.digested(snapshot.meta).message
        return message * snapshot.setup.weight(state, snapshot.time)

    def forget(self, task: str) -> None:
        """Take the task out, at the end of a commit: the state is that of the remaining log."""
        snapshot = self.snapshot
        meta = snapshot.setup.forget(snapshot.meta, self._known(task), snapshot.time)
        self.snapshot = snapshot.with_meta(meta)
        self._total.must_be_written = True
        self.tasks -= 1
        self.task_cache.delete(task)

    def renew(self, group: Group, rewards: int) -> None:
        """Bring the next stale tasks up to date, after so many rewards."""
        meta = self.snapshot.meta
        if not meta.generation:
            return
        stale = iter(lambda: self._stale_tasks.next(meta), None)
        found = dict(islice(stale, meta.renewals(rewards)))
        for task in [task for task, state in found.items() if self.snapshot.is_light(state)]:
            del found[task]
            self.task_cache.rewrite(task)  # as one that is never stale
        if self.past is not None:
            self.past.renew(found.items())
        setup, time = self.snapshot.setup, self.snapshot.time
        states, meta = setup.renew(meta, list(found.values()), time)
        self.snapshot = self.snapshot.with_meta(meta)
        for (task, before), state in zip(found.items(), states, strict=True):
            if state.stats is not before.stats:
                self._total.keep(task, before)
                self.task_cache.put(task, state)
        self._put_tasks(group)

    def change(self, change: Change) -> None:
        """Add or retire an arm; `Invalid` if that cannot be."""
        self.snapshot = self.snapshot.changed(change)
        self.changes.append(change)
        self._total.must_be_written = True
        if not change.retired:
            self.task_cache.drop()  # states grow when they are read again

    # the store

    def hand_over(self, group: Group) -> None:
        """Where many write: somebody folds later what the tasks of this group have learned."""
        commit, was = self._commit, self.stored
        self._count_again(*commit.uncounted)
        self._put_tasks(group)
        for task, learned in commit.learned.items():
            group.put_learned(self.id, task, learned)
        if commit.places:
            new = (self.tasks - was.tasks, self.decisions - was.decisions)
            progress = Progress(*new, self.counted - was.counted, commit.rewards)
            group.put_progress(self.id, progress)
        self.tasks, self.decisions, self.counted = was.tasks, was.decisions, was.counted
        self._commit = OpenCommit()
        self.task_cache.drop()

    def take(self, taken: Taken) -> None:
        """Nobody else folds now: what others have handed over is part of this commit."""
        self.task_cache.drop()
        self._total.must_be_written = True
        self._commit = OpenCommit(taken.names, taken.rewards)
        for task in taken.tasks:
            self.task_cache.rewrite(task)

    def flush(self, group: Group, now: float) -> None:
        """End the commit, and hand over what has changed since the last time."""
        self.fold(group)
        self.task_cache.shrink()
        snapshot, until = self.snapshot, counters.days_until(now)
        if until > self.days_until and snapshot.version != self.stored.version:
            group.count_by_days(self.id, until)
            self.days_until = until
        row = self.stored._replace(
            version=snapshot.version,
            prior_version=snapshot.prior_version,
            arms=msgspec.json.encode(self.changes).decode(),
            tasks=self.tasks,
            decisions=self.decisions,
            counted=self.counted,
            days_until=self.days_until,
            status=self.status,
        )
        if self._total.is_due(snapshot.meta):
            row = row._replace(total=snapshot.total(), total_version=snapshot.version)
            self._total = WrittenTotal(row, snapshot.meta, aging=snapshot.aging)
        if row == self.stored:
            return
        if beliefs.is_due(row, now):
            row = row._replace(believed_at=now, believed_tasks=row.tasks)
            group.add_belief(beliefs.belief_row(snapshot.at(now), row))
        group.put_experiment(row)
        self.stored = row._replace(total=None)


@lru_cache(maxsize=KEPT)
def _first(spec: str) -> Snapshot:
    """Whoever reads an experiment does not build its prior again."""
    return Snapshot.first(parse(spec))


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
