"""What the service does, one operation after another, inside a transaction of its store.

An operation raises before it changes anything, or it changes everything. If a transaction cannot
be committed, `undo` forgets what is in memory, and the store says what is true.
"""

import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from functools import partial
from typing import TypeVar, cast

import msgspec

from adats.models.core.errors import UnknownTask
from adats.models.core.types import Arm
from adats.service import answers, rules
from adats.service.errors import Conflict, DamagedStore, Invalid, NotFound, Refusal, status_of
from adats.service.field_types import CONTROL, MOST_ARMS, check_new_name
from adats.service.messages import (
    DecisionRequest,
    DecisionResult,
    ExperimentInfo,
    NewArm,
    PriorBelief,
    RefusedReward,
    RewardBatchRequest,
    RewardBatchResult,
    RewardRequest,
    RewardResult,
    TaskBelief,
)
from adats.service.priors import check_cost
from adats.service.served_experiment import Change, ServedExperiment
from adats.service.spec import ExperimentSpec, canonical, check, completed, parse
from adats.service.stores.interface import (
    ChangeRow,
    DecisionRow,
    ExperimentRow,
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
        self._served: OrderedDict[tuple[str, str], ServedExperiment] = (
            OrderedDict()
        )  # the last used last
        self._touched: set[ServedExperiment] = set()  # in this transaction
        self._names_by_id: dict[int, tuple[str, str]] = {}
        self._unsettleable: set[int] = set()  # decisions that are due, of tasks that are damaged
        self.behind = False  # whether more decisions are due than were settled
        self._run_id, self._ids_made = secrets.token_hex(8), 0  # for ids of decisions

    # transactions

    def begin(self) -> None:
        self.store.begin()

    def flush(self) -> None:
        """Write the statistics of all that has changed; `store.commit` comes next."""
        for served in self._touched:
            served.flush(self.store)
        self._touched.clear()
        weight = sum(served.weight for served in self._served.values())
        while weight > MEMORY and len(self._served) > 1:
            weight -= self._served.popitem(last=False)[1].weight

    def undo(self) -> None:
        """Nothing since `begin` has happened."""
        self._served.clear()
        self._touched.clear()
        self._names_by_id.clear()
        self.behind = False
        self.store.rollback()

    # experiments

    def put(self, tenant: str, name: str, spec: ExperimentSpec) -> tuple[bool, ExperimentInfo]:
        """Make an experiment. The same again changes nothing; another under its name raises."""
        check(spec)
        row, new = self.store.experiment(tenant, name), completed(spec)
        if row is not None:
            if row.spec not in (canonical(spec), canonical(new)):
                raise Conflict(
                    f"experiment {name!r} is there with other settings, which are fixed; take "
                    "another name"
                )
            return False, self.about(tenant, name)
        seed = secrets.randbits(63) if spec.seed is None else spec.seed
        row = ExperimentRow(
            id=0,
            tenant=tenant,
            name=name,
            spec=canonical(new),
            seed=seed,
            version=0,
            prior_version=1,
            arms="[]",
            total=b"",
        )
        check_cost(new)
        served = ServedExperiment(new, row, self.store)  # raises if the parts do not fit
        arms = served.all_arms or []
        for i, arm in enumerate(arms):
            check_new_name(f"arms[{i}]" if isinstance(spec.arms, list) else "prior.file", arm)
            _check_told_apart("prior.file", arm, arms[:i])
        self.store.add_experiment(row)
        return True, self.about(tenant, name)

    def about(self, tenant: str, name: str) -> ExperimentInfo:
        return answers.experiment_info(name, self.served(tenant, name))

    def served(self, tenant: str, name: str) -> ServedExperiment:
        """The agent of an experiment, from memory or from the store."""
        key = (tenant, name)
        known = self._served.get(key)
        if known is None:
            row = self.store.experiment(tenant, name)
            if row is None:
                raise NotFound(f"there is no experiment {name!r}")
            known = self._served[key] = ServedExperiment(parse(row.spec), row, self.store)
        else:
            self._served.move_to_end(key)
        self._touched.add(known)
        return known

    # the two verbs

    def decide(self, tenant: str, name: str, request: DecisionRequest) -> DecisionResult:
        served = self.served(tenant, name)
        decision_id = request.decision_id
        if decision_id is None:
            decision_id = self._new_id()
        else:
            known = self.store.decision(served.id, decision_id)
            if known is not None:
                if known.task != request.task:
                    raise Conflict(f"decision_id {decision_id!r} was made for task {known.task!r}")
                return _decision_result(known)
        if CONTROL.search(request.task) and served.task_cache.get(request.task) is None:
            check_new_name("task", request.task)
        row = self.choose(served, decision_id, request)
        self.add_decision(served, row)
        return _decision_result(row)

    def _new_id(self) -> str:
        """Sorted by time, so that the store's index grows at its end."""
        self._ids_made += 1
        return f"{time.time_ns() // 1_000_000:012x}-{self._run_id}-{self._ids_made:x}"

    def add_decision(self, served: ServedExperiment, row: DecisionRow) -> None:
        self.store.add_decision(row)
        served.version += 1

    def choose(
        self, served: ServedExperiment, decision_id: str, request: DecisionRequest
    ) -> DecisionRow:
        """A decision, which is not in the store yet."""
        served.check_request(request.features, request.allowed, request.horizon)
        try:
            chosen = served.decide(
                request.task,
                decision_id,
                features=request.features,
                allowed=request.allowed,
                horizon=request.horizon,
            )
        except ValueError as error:  # the oracle finds no action among the allowed arms
            raise Invalid("allowed", str(error)) from None
        decision, now = chosen.decision, self.now()
        row = DecisionRow(
            id=0,
            experiment=served.id,
            seq=served.version + 1,
            decision_id=decision_id,
            task=request.task,
            action=_list_of(decision.action),
            features=None if decision.features is None else decision.features.tobytes(),
            request=_other_fields(request),
            propensity=_list_of(cast("float | tuple[float, ...]", decision.propensity)),
            state_version=served.version,
            prior_version=served.prior_version,
            time=now,
            explored=int(chosen.explored),
            holdout=None if chosen.held_out is None else int(chosen.held_out),
            due=rules.when_due(served.spec, now, served.counts_pending),
        )
        return rules.of_no_arm(row) if row.action == [] else row

    def reward(self, tenant: str, name: str, request: RewardRequest) -> RewardResult:
        served = self.served(tenant, name)
        decision = self.store.decision(served.id, request.decision_id)
        if decision is None:
            raise NotFound(f"there is no decision {request.decision_id!r}")
        now = self.now()
        reward = served.check_reward(decision, request.reward)
        earlier = []
        if decision.received:
            earlier = self.store.earlier_rewards(decision.id, reward, request.reward_id)
        due = decision.due is not None and now >= decision.due
        settled = rules.settle(decision, served.spec, served.version + 1) if due else decision
        outcome = rules.receive(settled, earlier, reward, request.reward_id, served.spec, now)
        if outcome.decision is not None and outcome.decision.reward is not None:
            served.check_reward(decision, outcome.decision.reward)  # the sum of several
        if due:
            self._settle(served, decision)
        if outcome.decision is not None:
            self._count(served, settled, outcome.decision)
            served.version += 1
            row = RewardRow(
                id=0,
                experiment=decision.experiment,
                seq=served.version,
                decision=decision.id,
                reward=reward,
                reward_id=request.reward_id,
                time=now,
            )
            self.store.add_reward(row)
        return RewardResult(request.decision_id, outcome.status, served.version)

    def rewards(self, tenant: str, name: str, batch: RewardBatchRequest) -> RewardBatchResult:
        """Each alone: one that cannot be taken does not keep the others out."""
        self.served(tenant, name)
        results: list[RewardResult | RefusedReward] = []
        for request in batch.rewards:
            try:
                results.append(self.reward(tenant, name, request))
            except Refusal as error:
                refused = RefusedReward(request.decision_id, status_of(error), str(error))
                results.append(refused)
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
        for decision in due:
            if decision.id in self._unsettleable:
                continue
            served = self._by_id(decision.experiment)
            try:
                served.task_cache.get(decision.task)
            except DamagedStore as error:
                self._unsettleable.add(decision.id)
                found = error
                continue
            self._settle(served, decision)
        return found

    def settle(self, tenant: str, name: str, decision_id: str) -> None:
        """Settle one decision, whatever the time is."""
        served = self.served(tenant, name)
        decision = self.store.decision(served.id, decision_id)
        if decision is not None:
            self._settle(served, decision)

    def _settle(self, served: ServedExperiment, decision: DecisionRow) -> None:
        settled = rules.settle(decision, served.spec, served.version + 1)
        if settled.counted is None:
            served.give_up(decision)
        self._count(served, decision, settled)
        served.version += 1

    def _count(self, served: ServedExperiment, old: DecisionRow, new: DecisionRow) -> None:
        """Bring the statistics from one state of a decision to the next, and keep it."""
        self.store.save_decision(new)
        if new.counted is None or new.counted == old.counted:
            return
        if old.counted is None:
            served.count(new, new.counted, given_up=old.settled is not None)
            return
        rows = partial(self.store.counted, new.experiment, new.task)
        served.recount(new, old.counted, new.counted, rows)

    def _by_id(self, experiment: int) -> ServedExperiment:
        named = self._names_by_id.get(experiment)
        if named is None:
            row = self.store.by_id(experiment)
            named = self._names_by_id[experiment] = (row.tenant, row.name)
        return self.served(*named)

    # tasks and arms

    def task(self, tenant: str, name: str, task: str) -> TaskBelief:
        try:
            return answers.task_belief(task, self.served(tenant, name))
        except UnknownTask:
            raise NotFound(f"there is no task {task!r}") from None

    def forget(self, tenant: str, name: str, task: str) -> None:
        """Take a task out: the state is that of the remaining log, its actions as given."""
        served = self.served(tenant, name)
        try:
            served.forget(task)
        except UnknownTask:
            raise NotFound(f"there is no task {task!r}") from None
        self.store.forget(served.id, task)
        self.note_forgotten(tenant, name)

    def note_forgotten(self, tenant: str, name: str) -> None:
        """That a task was forgotten, not which."""
        self._add_change(self.served(tenant, name), "forget", None)

    def meta(self, tenant: str, name: str) -> PriorBelief:
        served = self.served(tenant, name)
        self.flush()  # the store counts what has been written
        tasks, decisions, rewards = self.store.counts(served.id)
        return answers.prior_belief(served, tasks=tasks, decisions=decisions, rewards=rewards)

    def add_arm(self, tenant: str, name: str, new: NewArm) -> ExperimentInfo:
        """The same arm again changes nothing."""
        served = self.served(tenant, name)
        change = Change(new.arm, False, new.like, new.features)
        known = served.added(new.arm)
        if known is not None and known == change:
            return self.about(tenant, name)
        check_new_name("arm", new.arm)
        _check_told_apart("arm", new.arm, served.all_arms or ())
        if (served.n_arms or 0) >= MOST_ARMS:
            raise Invalid("arm", f"there are {MOST_ARMS} arms, and there cannot be more")
        if new.features is not None and not served.dim:
            raise Invalid("features", "only arms of a linear model have features")
        if new.like is not None and new.like not in (served.all_arms or ()):
            raise Invalid("like", f"there is no arm {new.like!r}")
        self.change_arm(tenant, name, change)
        return self.about(tenant, name)

    def retire_arm(self, tenant: str, name: str, arm: str) -> ExperimentInfo:
        served = self.served(tenant, name)
        named: Arm = arm
        known = served.all_arms
        if known is None or named not in known:
            named = int(arm) if arm.isascii() and arm.isdecimal() else arm
            if known is None or named not in known:
                raise NotFound(f"there is no arm {arm!r}")
        if named not in served.retired:
            self.change_arm(tenant, name, Change(named, True))
        return self.about(tenant, name)

    def change_arm(self, tenant: str, name: str, change: Change) -> None:
        served = self.served(tenant, name)
        served.flush(self.store)
        served.change(change)
        self._add_change(served, "arm", change)

    def _add_change(self, served: ServedExperiment, kind: str, data: Change | None) -> None:
        served.version += 1
        text = msgspec.json.encode(data).decode()
        self.store.add_change(ChangeRow(served.id, served.version, kind, text, self.now()))


def _check_told_apart(field: str, arm: Arm, others: Iterable[Arm]) -> None:
    """Raise `Invalid` if another arm is written the same in an address: 1 and "1"."""
    for other in others:
        if other != arm and str(other) == str(arm):
            raise Invalid(field, f"arms {other!r} and {arm!r} cannot be told apart")


def _list_of(value: T | tuple[T, ...]) -> T | list[T]:
    return list(value) if isinstance(value, tuple) else value


def _other_fields(request: DecisionRequest) -> str | None:
    """What was asked besides the task, to make the decision again."""
    fields = {name: getattr(request, name) for name in ("features", "allowed", "horizon")}
    given = {name: value for name, value in fields.items() if value is not None}
    return msgspec.json.encode(given).decode() if given else None


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
    )
