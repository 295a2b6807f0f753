"""What the service does, one operation after another, in groups that become one commit.

An operation raises before it changes anything, or it changes everything. `load` reads at once what
a group will need, `flush` ends the commit, `save` writes it. If that cannot be done, `undo`
forgets what is in memory, and the store says what is true.
"""

import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

import msgspec

from adats.models.core.errors import UnknownTask
from adats.models.core.types import Arm
from adats.service import answers, rules
from adats.service.arm_changes import Change
from adats.service.errors import Conflict, DamagedStore, Invalid, NotFound, Refusal, refusal
from adats.service.field_types import CONTROL, MOST_ARMS, check_new_name
from adats.service.group import Group
from adats.service.messages import (
    DecisionBatchRequest,
    DecisionBatchResult,
    DecisionRequest,
    DecisionResult,
    ExperimentInfo,
    Fallback,
    NewArm,
    PriorBelief,
    RefusedDecision,
    RefusedReward,
    RewardBatchRequest,
    RewardBatchResult,
    RewardRequest,
    RewardResult,
    Status,
    TaskBelief,
)
from adats.service.priors import check_cost
from adats.service.served_experiment import ServedExperiment
from adats.service.spec import ExperimentSpec, canonical, check, completed
from adats.service.stores.interface import (
    ARCHIVED,
    RUNNING,
    ChangeRow,
    Changes,
    DecisionRow,
    ExperimentRow,
    Keys,
    RewardKey,
    RewardRow,
    Store,
)

T = TypeVar("T")

MEMORY = 120e6  # bytes, roughly, that experiments and their tasks may take
MOST_SETTLED = 200  # decisions settled in one transaction, at most


class Engine:
    """The experiments of a store."""

    def __init__(self, store: Store, *, clock: Callable[[], float] = time.time) -> None:
        self.store, self.now = store, clock
        self._group, self._changes = Group(store), Changes()
        self._served: OrderedDict[tuple[str, str], ServedExperiment] = (
            OrderedDict()
        )  # the last used last
        self._touched: set[ServedExperiment] = set()  # in this transaction
        self._current: set[int] = set()  # where many write: of which the newest version is here
        self._taken: set[int] = set()  # the same: which nobody else folds
        self._names_by_id: dict[int, tuple[str, str]] = {}
        self._unsettleable: set[int] = set()  # decisions that are due, of tasks that are damaged
        self.behind = False  # whether more decisions are due than were settled
        self._run_id, self._ids_made = secrets.token_hex(8), 0  # for ids of decisions

    # transactions

    def begin(self) -> None:
        self._group.clear()
        self._current.clear()
        self._taken.clear()
        self.store.begin()

    def load(self, asked: Iterable[tuple[Any, ...]]) -> None:
        """Read what these requests will need, with the tenant and the name before each.

        What is left out is read when it is needed.
        """
        tasks, decisions, rewards, rewarded = set(), [], [], []
        known: dict[int, int] = {}  # versions
        for tenant, name, *request in asked:
            try:
                served = self._served_before(tenant, name)
            except NotFound:
                continue
            if self.store.many_writers and served.id not in self._current:
                known[served.id] = served.snapshot.version
            for one in _each(*request):
                if isinstance(one, DecisionRequest):
                    if one.task not in served.task_cache:
                        tasks.add((served.id, one.task))
                    if one.decision_id is not None:
                        decisions.append((served.id, one.decision_id))
                elif isinstance(one, RewardRequest):
                    rewards.append(_reward_key(served, one))
                    rewarded.append(served)
        if self.store.many_writers:  # all at once: they are locked in one order, then read
            self._bring_up(known, Keys(tasks, decisions, rewards, known.items()))
            return
        with suppress(DamagedStore):  # whoever needs what is damaged will find it
            self._group.load(Keys((), decisions, rewards))
            for key, served in zip(rewards, rewarded, strict=True):
                decision = self._group.decision(key.experiment, key.decision_id)
                if decision is not None and decision.task not in served.task_cache:
                    tasks.add((key.experiment, decision.task))
            self._group.load(Keys(tasks))

    def _bring_up(self, known: Iterable[int], keys: Keys) -> None:
        """Read, and bring experiments to the version that they have now."""
        for experiment, row in self._group.load(keys).items():
            if row is None:
                self._let_go(experiment)
            else:
                self._renew(self._names_by_id[experiment], row)
        self._current.update(known)

    def _let_go(self, experiment: int) -> None:
        """Of an experiment that is deleted."""
        served = self._served.pop(self._names_by_id.pop(experiment), None)
        if served is not None:
            self._touched.discard(served)

    def _renew(self, key: tuple[str, str], row: ExperimentRow) -> ServedExperiment:
        served = self._served[key]
        was = served.stored
        row = row._replace(tenant=was.tenant, name=was.name, spec=was.spec, seed=was.seed)
        if row.arms == was.arms and row.total:
            served.refresh(row)
        else:
            self._touched.discard(served)
            served = self._served[key] = ServedExperiment(row, self._group)
            self._touched.add(served)
        return served

    def take(self, tenant: str, name: str, *, wait: bool = True) -> ServedExperiment | None:
        """Where many write: keep others from folding it. None: somebody else does that now."""
        key = (tenant, name)
        served = self._served_before(*key)
        if not self.store.many_writers or served.id in self._taken:
            return served
        taken = self._group.take(served.id, wait=wait)
        if taken is None:
            return None
        self._taken.add(served.id)
        self._current.add(served.id)
        served = self._renew(key, taken.row)
        served.take(taken)
        return served

    def _sole(self, tenant: str, name: str) -> ServedExperiment:
        served = self.take(tenant, name)
        assert served is not None
        return served

    def fold(self, experiment: int) -> bool:
        """A commit of what many have handed over, unless somebody else is at it."""
        self.begin()
        name = self._name_of(experiment)
        known = self._served.get(name)
        if known is not None and known.id != experiment:  # that was deleted
            self._let_go(known.id)
        done = self.take(*name, wait=False) is not None
        self.flush()
        self.commit()
        return done

    def fold_all(self) -> None:
        """Until nothing is left."""
        for experiment in self.store.waiting():
            self.fold(experiment)

    def flush(self) -> None:
        """End the commit of all experiments that have changed; `commit` comes next."""
        now = self.now()
        for served in self._touched:
            if self.store.many_writers and served.id not in self._taken:
                served.hand_over(self._group)
            else:
                served.flush(self._group, now)
                if self.store.many_writers:  # others will change what is known of its tasks
                    served.task_cache.drop()
        self._touched.clear()
        self._changes = self._group.changes()
        weight = sum(served.weight for served in self._served.values())
        while weight > MEMORY and len(self._served) > 1:
            weight -= self._served.popitem(last=False)[1].weight

    def save(self) -> None:
        """The next group may build on it; once the store is synced it is durable. In any thread."""
        self.store.save(self._changes)

    def commit(self) -> None:
        """Durable when it returns; it may be called in another thread."""
        self.save()
        self.store.sync()

    def undo(self) -> None:
        """Nothing since `begin` has happened."""
        self._served.clear()
        self._touched.clear()
        self._group.clear()
        self._names_by_id.clear()
        self.behind = False
        self.store.rollback()

    # experiments

    def put(self, tenant: str, name: str, spec: ExperimentSpec) -> tuple[bool, ExperimentInfo]:
        """Make an experiment. The same again changes nothing; another under its name raises."""
        check(spec)
        row, new = self._group.experiment(tenant, name), completed(spec)
        if row is not None:
            if row.spec not in (canonical(spec), canonical(new)):
                raise Conflict(
                    f"experiment {name!r} is there with other settings, which are fixed; take "
                    "another name"
                )
            return False, self.about(tenant, name)
        seed = secrets.randbits(63) if spec.seed is None else spec.seed
        row = ExperimentRow(
            id=self.store.new_experiment(),
            tenant=tenant,
            name=name,
            spec=canonical(new),
            seed=seed,
        )
        check_cost(new)
        served = ServedExperiment(row, self._group)  # raises if the parts do not fit
        arms = served.snapshot.all_arms or []
        for i, arm in enumerate(arms):
            check_new_name(f"arms[{i}]" if isinstance(spec.arms, list) else "prior.file", arm)
            _check_told_apart("prior.file", arm, arms[:i])
        self.add_experiment(row)
        return True, self.about(tenant, name)

    def add_experiment(self, row: ExperimentRow) -> None:
        self._group.put_experiment(row)

    def about(self, tenant: str, name: str) -> ExperimentInfo:
        served = self.served(tenant, name)
        return answers.experiment_info(name, served.snapshot, served.status)

    def set_status(self, tenant: str, name: str, status: Status) -> ExperimentInfo:
        """Pause, archive or resume; the same again changes nothing."""
        served = self._sole(tenant, name)
        if served.status != status:
            self.change_status(tenant, name, status)
        return self.about(tenant, name)

    def change_status(self, tenant: str, name: str, status: str) -> None:
        served = self.served(tenant, name)
        served.fold(self._group)
        served.status = status
        self._add_change(served, "status", status)

    def delete(self, tenant: str, name: str) -> None:
        """With all that it has, if it is archived."""
        served = self._sole(tenant, name)
        if served.status != ARCHIVED:
            raise Conflict(f"experiment {name!r} is {served.status}: archive it first")
        served.fold(self._group)
        self._group.delete(served.id)
        self._unsettleable.clear()
        self._let_go(served.id)

    def served(self, tenant: str, name: str) -> ServedExperiment:
        """The agent of an experiment, from memory or from the store, as it is now."""
        known = self._served_before(tenant, name)
        if self.store.many_writers and known.id not in self._current:
            self._bring_up([known.id], Keys(experiments=[(known.id, known.snapshot.version)]))
            return self._served_before(tenant, name)
        return known

    def spec_of(self, tenant: str, name: str) -> ExperimentSpec | None:
        """Of an experiment that is in memory."""
        known = self._served.get((tenant, name))
        return None if known is None else known.spec

    def _served_before(self, tenant: str, name: str) -> ServedExperiment:
        """The same as it was in this process the last time."""
        key = (tenant, name)
        known = self._served.get(key)
        if known is None:
            row = self._group.experiment(tenant, name)
            if row is None:
                raise NotFound(f"there is no experiment {name!r}")
            known = self._served[key] = ServedExperiment(row, self._group)
            self._names_by_id[row.id] = key
        else:
            self._served.move_to_end(key)
        self._touched.add(known)
        return known

    # the two verbs

    def decide(self, tenant: str, name: str, request: DecisionRequest) -> DecisionResult | Fallback:
        served = self.served(tenant, name)
        decision_id = request.decision_id
        if decision_id is None:
            decision_id = self._new_id()
        else:
            known = self._group.decision(served.id, decision_id)
            if known is not None:
                if known.task != request.task:
                    raise Conflict(f"decision_id {decision_id!r} was made for task {known.task!r}")
                return _decision_result(known)
        if served.status != RUNNING:
            paused = Conflict(f"experiment {name!r} is {served.status}")
            found = answers.instead(paused, served.spec.control, request)
            if isinstance(found, RefusedDecision):
                raise paused
            return found
        if CONTROL.search(request.task) and served.task_cache.get(request.task) is None:
            check_new_name("task", request.task)
        row = served.decide(request, decision_id, self.now(), self.last_decision(served, request))
        self.add_decision(served, row)
        return _decision_result(row)

    def decisions(self, tenant: str, name: str, batch: DecisionBatchRequest) -> DecisionBatchResult:
        """Each alone: one that cannot be made does not keep the others out."""
        self.load([(tenant, name, batch)])
        self.served(tenant, name)
        results: list[DecisionResult | Fallback | RefusedDecision] = []
        for one in batch.decisions:
            try:
                results.append(self.decide(tenant, name, one))
            except Refusal as error:
                results.append(RefusedDecision(one.decision_id, one.task, *refusal(error)))
        return DecisionBatchResult(results, sum(isinstance(r, RefusedDecision) for r in results))

    def last_decision(
        self, served: ServedExperiment, request: DecisionRequest
    ) -> DecisionRow | None:
        """Of the task, where that matters."""
        if served.spec.sticky is None:
            return None
        return self._group.last_decision(served.id, request.task)

    def _new_id(self) -> str:
        """Sorted by time, so that the store's index grows at its end."""
        self._ids_made += 1
        return f"{time.time_ns() // 1_000_000:012x}-{self._run_id}-{self._ids_made:x}"

    def add_decision(self, served: ServedExperiment, row: DecisionRow) -> None:
        self._group.put_decision(row, served.days_until)
        served.decisions += 1
        served.counted += row.counted is not None

    def reward(self, tenant: str, name: str, request: RewardRequest) -> RewardResult:
        served, asked = self.served(tenant, name), request.decision_id
        decision = self._group.decision(served.id, asked)
        if decision is None:
            raise NotFound(f"there is no decision {asked!r}")
        _check_not_archived(name, served)
        now = self.now()
        reward = request.reward
        served.check_reward(decision, reward)
        for metric in request.metrics or ():
            if metric not in served.spec.metrics:
                raise Invalid(f"metrics.{metric}", "the experiment has no such metric")
        earlier: list[RewardRow] = []
        if decision.received:
            earlier = self._group.earlier_rewards(_reward_key(served, request))
        due = decision.due is not None and now >= decision.due
        settled = rules.settle(decision, served.spec, 0, 0) if due else decision
        more = (reward, request.reward_id, served.spec, now, request.metrics)
        outcome = rules.receive(settled, earlier, *more)
        new = outcome.decision
        if new is not None and new.reward is not None and new.reward is not reward:
            served.check_reward(decision, new.reward)  # the sum of several
        if due:
            settled = self._settle(served, decision)
            outcome = rules.receive(settled, earlier, *more)
        if outcome.decision is not None:
            row = RewardRow(
                id=0,
                experiment=decision.experiment,
                version=served.snapshot.version + 1,
                decision=decision.id,
                reward=reward,
                reward_id=request.reward_id,
                time=now,
                place=served.place(decision.task),
                metrics=request.metrics or None,
            )
            self._count(served, settled, outcome.decision)
            self._group.add_reward(asked, row)
        return RewardResult(asked, outcome.status, served.coming)

    def rewards(self, tenant: str, name: str, batch: RewardBatchRequest) -> RewardBatchResult:
        """Each alone: one that cannot be taken does not keep the others out."""
        self.load([(tenant, name, batch)])
        self.served(tenant, name)
        results: list[RewardResult | RefusedReward] = []
        for one in batch.rewards:
            try:
                results.append(self.reward(tenant, name, one))
            except Refusal as error:
                results.append(RefusedReward(one.decision_id, *refusal(error)))
        return RewardBatchResult(results, sum(isinstance(r, RefusedReward) for r in results))

    # the ends of windows

    def has_due(self) -> bool:
        """Whether there is something to settle."""
        limit = 1 + len(self._unsettleable)
        return len(self.store.due(self.now(), limit)) == limit

    def settle_due(self, most: int = MOST_SETTLED) -> DamagedStore | None:
        """Settle decisions whose window is over; of damaged tasks none, and what was found."""
        found = None
        limit = most + len(self._unsettleable)
        due = self.store.due(self.now(), limit)
        self.behind = len(due) == limit
        if self.store.many_writers:  # the tasks are locked; now they are read
            tasks = {(row.experiment, row.task) for row in due}
            self._group.load(Keys(tasks, {(row.experiment, row.decision_id) for row in due}))
        for decision in due:
            known = self._group.known_decision(decision)
            if decision.id in self._unsettleable or known is None or known.due is None:
                continue
            served = self._by_id(decision.experiment)
            try:
                served.task_cache.get(decision.task)
            except DamagedStore as error:
                self._unsettleable.add(decision.id)
                found = error
                continue
            self._settle(served, known)
        return found

    def settle(self, tenant: str, name: str, decision_id: str) -> None:
        """Settle one decision, whatever the time is."""
        served = self.served(tenant, name)
        decision = self._group.decision(served.id, decision_id)
        if decision is not None:
            self._settle(served, decision)

    def _settle(self, served: ServedExperiment, decision: DecisionRow) -> DecisionRow:
        place = served.place(decision.task)
        settled = rules.settle(decision, served.spec, served.snapshot.version + 1, place)
        if settled.counted is not None:
            try:
                served.check_reward(decision, settled.counted)
            except Invalid:  # it could not be told apart from round-off
                settled = settled._replace(counted=None)
        if settled.counted is None:
            served.give_up(decision)
        self._count(served, decision, settled)
        return settled

    def _count(self, served: ServedExperiment, old: DecisionRow, new: DecisionRow) -> None:
        """Bring the statistics from one state of a decision to the next, and keep it."""
        if new.counted is not None and new.counted != old.counted:
            if old.counted is None:
                served.count(new, new.counted, given_up=old.settled is not None)
                served.counted += 1
            else:
                decisions = partial(self._group.decisions_of, new.experiment, new.task)
                served.recount(new, old.counted, new.counted, decisions)
        self._group.put_decision(new, served.days_until)

    def _by_id(self, experiment: int) -> ServedExperiment:
        return self.served(*self._name_of(experiment))

    def _name_of(self, experiment: int) -> tuple[str, str]:
        named = self._names_by_id.get(experiment)
        if named is None:
            row = self.store.by_id(experiment)
            named = self._names_by_id[experiment] = (row.tenant, row.name)
        return named

    # tasks and arms

    def task(self, tenant: str, name: str, task: str) -> TaskBelief:
        try:
            return answers.task_belief(task, self.served(tenant, name), self.now())
        except UnknownTask:
            raise NotFound(f"there is no task {task!r}") from None

    def forget(self, tenant: str, name: str, task: str) -> None:
        """Take a task out: the state is that of the remaining log, its actions as given."""
        if self.store.many_writers:  # nobody changes it, and then nobody folds it
            self._group.load(Keys(tasks=[(self.served(tenant, name).id, task)]))
        served = self._sole(tenant, name)
        served.fold(self._group)
        try:
            served.forget(task)
        except UnknownTask:
            raise NotFound(f"there is no task {task!r}") from None
        gone = self._group.forget(served.id, task, served.days_until)
        served.decisions -= len(gone)
        served.counted -= sum(row.counted is not None for row in gone)
        served.renew(self._group, 1)
        self.note_forgotten(tenant, name)

    def end_commit(self, tenant: str, name: str) -> None:
        """What follows belongs to the next commit of the experiment."""
        self.served(tenant, name).fold(self._group)

    def note_forgotten(self, tenant: str, name: str) -> None:
        """That a task was forgotten, not which."""
        self._add_change(self.served(tenant, name), "forget", None)

    def meta(self, tenant: str, name: str) -> PriorBelief:
        return answers.prior_belief(self.served(tenant, name), self.now())

    def add_arm(self, tenant: str, name: str, new: NewArm) -> ExperimentInfo:
        """The same arm again changes nothing."""
        served = self._sole(tenant, name)
        change = Change(new.arm, False, new.like, new.features)
        if change in served.changes:
            return self.about(tenant, name)
        _check_not_archived(name, served)
        check_new_name("arm", new.arm)
        _check_told_apart("arm", new.arm, served.snapshot.all_arms or ())
        if (served.snapshot.n_arms or 0) >= MOST_ARMS:
            raise Invalid("arm", f"there are {MOST_ARMS} arms, and there cannot be more")
        if new.features is not None and not served.snapshot.dim:
            raise Invalid("features", "only arms of a linear model have features")
        if new.like is not None and new.like not in (served.snapshot.all_arms or ()):
            raise Invalid("like", f"there is no arm {new.like!r}")
        self.change_arm(tenant, name, change)
        return self.about(tenant, name)

    def retire_arm(self, tenant: str, name: str, arm: str) -> ExperimentInfo:
        served = self._sole(tenant, name)
        named: Arm = arm
        known = served.snapshot.all_arms
        if known is None or named not in known:
            named = int(arm) if arm.isascii() and arm.isdecimal() else arm
            if known is None or named not in known:
                raise NotFound(f"there is no arm {arm!r}")
        if named not in served.snapshot.retired:
            _check_not_archived(name, served)
            self.change_arm(tenant, name, Change(named, True))
        return self.about(tenant, name)

    def change_arm(self, tenant: str, name: str, change: Change) -> None:
        served = self.served(tenant, name)
        served.fold(self._group)
        served.change(change)
        self._add_change(served, "arm", change)

    def _add_change(self, served: ServedExperiment, kind: str, data: Change | str | None) -> None:
        served.number(served.snapshot.version + 1)
        text = msgspec.json.encode(data).decode()
        self._group.add_change(
            ChangeRow(served.id, served.snapshot.version, kind, text, self.now())
        )


def _check_not_archived(name: str, served: ServedExperiment) -> None:
    if served.status == ARCHIVED:
        raise Conflict(f"experiment {name!r} is archived")


def _each(request: object = None) -> Sequence[object]:
    if isinstance(request, DecisionBatchRequest):
        return request.decisions
    return request.rewards if isinstance(request, RewardBatchRequest) else (request,)


def _reward_key(served: ServedExperiment, request: RewardRequest) -> RewardKey:
    return RewardKey(
        served.id, request.decision_id, request.reward, request.reward_id, request.metrics
    )


def _check_told_apart(field: str, arm: Arm, others: Iterable[Arm]) -> None:
    """Raise `Invalid` if another arm is written the same in an address: 1 and "1"."""
    for other in others:
        if other != arm and str(other) == str(arm):
            raise Invalid(field, f"arms {other!r} and {arm!r} cannot be told apart")


def _decision_result(row: DecisionRow) -> DecisionResult:
    return DecisionResult(
        decision_id=row.decision_id,
        task=row.task,
        action=row.action,
        propensity=row.propensity,
        state_version=row.state_version,
        prior_version=row.prior_version,
        time=row.time,
        holdout=bool(row.holdout),
        kept=row.kept is not None,
    )
