"""What the service does, one operation after another, inside a transaction of its store.

An operation raises before it changes anything, or it changes everything. If a transaction cannot
be committed, `undo` forgets what is in memory, and the store says what is true.
"""

import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np

from adats.models import prior_files
from adats.models.core import files
from adats.models.core.errors import UnknownTask
from adats.service import rules
from adats.service.messages import (
    About,
    Ask,
    Decided,
    MetaPart,
    MetaView,
    NewArm,
    Part,
    Refused,
    TaskView,
    Tell,
    Tells,
    Told,
    ToldAll,
)
from adats.service.model import Change, Served, make
from adats.service.spec import MOST_ARMS, Experiment, Invalid, canonical, check, parse
from adats.service.store import (
    ChangeRow,
    DamagedStore,
    DecisionRow,
    ExperimentRow,
    RewardRow,
    Store,
)

MEMORY = 120e6  # bytes, roughly, that experiments and their tasks may take
BACKLOG = 200  # decisions settled in one transaction, at most


class NotFound(Exception):
    """There is no such experiment, task, decision or arm, or it is another tenant's."""


class Engine:
    """The experiments of a store."""

    def __init__(self, store: Store, *, clock: Callable[[], float] = time.time) -> None:
        self.store, self.now = store, clock
        self._served: OrderedDict[tuple[str, str], Served] = OrderedDict()  # the last used last
        self._touched: set[Served] = set()  # in this transaction
        self._named_by_id: dict[int, tuple[str, str]] = {}
        self._aside: set[int] = set()  # decisions that are due, of tasks that are damaged
        self.behind = False  # whether more decisions are due than were settled
        self._run, self._named = secrets.token_hex(8), 0  # for names of decisions

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
        self._named_by_id.clear()
        self.behind = False
        self.store.rollback()

    # experiments

    def put(self, tenant: str, name: str, spec: Experiment) -> tuple[bool, About]:
        """Make an experiment. The same again changes nothing; another under its name raises."""
        check(spec)
        row = self.store.experiment(tenant, name)
        if row is not None:
            if row.spec != canonical(spec):
                raise rules.Conflict(
                    f"experiment {name!r} is there with other settings, which are fixed; take "
                    "another name"
                )
            return False, self.about(tenant, name)
        seed = secrets.randbits(63) if spec.seed is None else spec.seed
        row = ExperimentRow(0, tenant, name, canonical(spec), seed, 0, 1, "[]", b"")
        make(spec, row, self.store)  # raises if the parts do not fit
        self.store.add_experiment(row)
        return True, self.about(tenant, name)

    def about(self, tenant: str, name: str) -> About:
        served = self.served(tenant, name)
        return About(
            name,
            msgspec.to_builtins(served.spec),
            None if served.arms is None else list(served.arms),
            served.retired,
            served.version,
            served.prior_version,
        )

    def served(self, tenant: str, name: str) -> Served:
        """The agent of an experiment, from memory or from the store."""
        key = (tenant, name)
        known = self._served.get(key)
        if known is None:
            row = self.store.experiment(tenant, name)
            if row is None:
                raise NotFound(f"there is no experiment {name!r}")
            known = self._served[key] = make(parse(row.spec), row, self.store)
        else:
            self._served.move_to_end(key)
        self._touched.add(known)
        return known

    # the two verbs

    def decide(self, tenant: str, name: str, ask: Ask) -> Decided:
        served = self.served(tenant, name)
        experiment = served.id
        decision_id = ask.decision_id
        if decision_id is None:
            decision_id = self._new_id()
        else:
            known = self.store.decision(experiment, decision_id)
            if known is not None:
                if known.task != ask.task:
                    raise rules.Conflict(
                        f"decision_id {decision_id!r} was made for task {known.task!r}"
                    )
                return _decided(known)
        row = self.choose(served, decision_id, ask)
        self.keep(served, row)
        return _decided(row)

    def _new_id(self) -> str:
        """Sorted by time, so that the store's index grows at its end."""
        self._named += 1
        return f"{time.time_ns() // 1_000_000:012x}-{self._run}-{self._named:x}"

    def keep(self, served: Served, row: DecisionRow) -> None:
        self.store.add_decision(row)
        served.version += 1

    def choose(self, served: Served, decision_id: str, ask: Ask) -> DecisionRow:
        """A decision, which is not in the store yet."""
        served.check_request(ask.features, ask.allowed, ask.horizon)
        try:
            chosen = served.decide(
                ask.task,
                decision_id,
                features=ask.features,
                allowed=ask.allowed,
                horizon=ask.horizon,
            )
        except ValueError as error:  # the oracle finds no action among the allowed arms
            raise Invalid("allowed", str(error)) from None
        decision, now = chosen.decision, self.now()
        made = DecisionRow(
            0,
            served.id,
            served.version + 1,
            decision_id,
            ask.task,
            _listed(decision.action),
            None if decision.features is None else decision.features.tobytes(),
            _request(ask),
            _listed(decision.propensity),
            served.version,
            served.prior_version,
            now,
            int(chosen.explored),
            None if chosen.held_out is None else int(chosen.held_out),
            rules.when_due(served.spec, now, served.counts_pending),
        )
        return rules.of_nothing(made) if made.action == [] else made

    def reward(self, tenant: str, name: str, tell: Tell) -> Told:
        served = self.served(tenant, name)
        decision = self.store.decision(served.id, tell.decision_id)
        if decision is None:
            raise NotFound(f"there is no decision {tell.decision_id!r}")
        now = self.now()
        reward = served.check_reward(decision, tell.reward)
        earlier = self.store.rewards(decision.id) if decision.received else []
        due = decision.due is not None and now >= decision.due
        settled = rules.settle(decision, served.spec, served.version + 1) if due else decision
        outcome = rules.receive(settled, earlier, reward, tell.reward_id, served.spec, now)
        if outcome.decision is not None and outcome.decision.reward is not None:
            served.check_reward(decision, outcome.decision.reward)  # the sum of several
        if due:
            self._settle(served, decision)
        if outcome.decision is not None:
            self._count(served, settled, outcome.decision)
            served.version += 1
            self.store.add_reward(
                RewardRow(
                    0,
                    decision.experiment,
                    served.version,
                    decision.id,
                    reward,
                    tell.reward_id,
                    now,
                )
            )
        return Told(tell.decision_id, outcome.status, served.version)

    def rewards(self, tenant: str, name: str, tells: Tells) -> ToldAll:
        """Each alone: one that cannot be taken does not keep the others out."""
        self.served(tenant, name)
        results: list[Told | Refused] = []
        for tell in tells.rewards:
            try:
                results.append(self.reward(tenant, name, tell))
            except (NotFound, rules.Conflict, Invalid) as error:
                code = {NotFound: 404, rules.Conflict: 409, Invalid: 422}[type(error)]
                results.append(Refused(tell.decision_id, code, str(error)))
        return ToldAll(results, sum(isinstance(result, Refused) for result in results))

    def settle_due(self) -> DamagedStore | None:
        """Settle decisions whose window is over; of damaged tasks none, and what was found."""
        found = None
        limit = BACKLOG + len(self._aside)
        due = self.store.due(self.now(), limit)
        self.behind = len(due) == limit
        for decision in due:
            if decision.id in self._aside:
                continue
            served = self._by_id(decision.experiment)
            try:
                served.shelf.get(decision.task)
            except DamagedStore as error:
                self._aside.add(decision.id)
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

    def _settle(self, served: Served, decision: DecisionRow) -> None:
        settled = rules.settle(decision, served.spec, served.version + 1)
        if settled.counted is None:
            served.give_up(decision)
        self._count(served, decision, settled)
        served.version += 1

    def _count(self, served: Served, old: DecisionRow, new: DecisionRow) -> None:
        """Bring the statistics from one state of a decision to the next, and keep it."""
        self.store.save_decision(new)
        if new.counted is None or new.counted == old.counted:
            return
        if old.counted is None:
            served.count(new, new.counted, given_up=old.settled is not None)
            return
        rows = lambda: self.store.counted(new.experiment, new.task)  # noqa: E731
        served.recount(new, old.counted, new.counted, rows)

    def _by_id(self, experiment: int) -> Served:
        named = self._named_by_id.get(experiment)
        if named is None:
            row = self.store.by_id(experiment)
            named = self._named_by_id[experiment] = (row.tenant, row.name)
        return self.served(*named)

    # tasks and arms

    def task(self, tenant: str, name: str, task: str) -> TaskView:
        served = self.served(tenant, name)
        try:
            belief, prior, stats = (
                served.posterior(task),
                served.prior_of(task),
                served.stats(task),
            )
        except UnknownTask:
            raise NotFound(f"there is no task {task!r}") from None
        shares = _shares(belief.scale, prior.scale)
        pulls = stats.count.tolist() if hasattr(stats, "count") else [None] * len(shares)
        rows = zip(
            _names(served, len(shares)),
            belief.mean.tolist(),
            belief.scale.tolist(),
            prior.mean.tolist(),
            prior.scale.tolist(),
            shares,
            (1 - share for share in shares),
            pulls,
            strict=True,
        )
        return TaskView(task, [Part(*row) for row in rows], served.version, served.prior_version)

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
        self._changed(self.served(tenant, name), "forget", None)

    def meta(self, tenant: str, name: str) -> MetaView:
        served = self.served(tenant, name)
        prior = served.meta.task_prior()
        names = _names(served, prior.mean.size)
        parts = zip(names, prior.mean.tolist(), prior.scale.tolist(), strict=True)
        self.flush()  # the store counts what has been written
        return MetaView(
            *self.store.counts(served.id),
            served.meta.log_evidence(),
            [MetaPart(*part) for part in parts],
            {
                "format": "adats-prior",
                "version": files.VERSION,
                "prior": prior_files.meta_to_dict(served.meta),
            },
            served.version,
            served.prior_version,
        )

    def add_arm(self, tenant: str, name: str, new: NewArm) -> About:
        """The same arm again changes nothing."""
        served = self.served(tenant, name)
        change = Change(new.arm, False, new.like, new.features)
        known = served.added(new.arm)
        if known is not None and known == change:
            return self.about(tenant, name)
        if (served.n_arms or 0) >= MOST_ARMS:
            raise Invalid("arm", f"there are {MOST_ARMS} arms, and there cannot be more")
        if new.features is not None and not served.dim:
            raise Invalid("features", "only arms of a linear model have features")
        if new.like is not None and new.like not in (served.all_arms or ()):
            raise Invalid("like", f"there is no arm {new.like!r}")
        self.change_arm(tenant, name, change)
        return self.about(tenant, name)

    def retire_arm(self, tenant: str, name: str, arm: str) -> About:
        served = self.served(tenant, name)
        named: Any = arm
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
        self._changed(served, "arm", change)

    def _changed(self, served: Served, kind: str, data: Any) -> None:
        served.version += 1
        text = msgspec.json.encode(data).decode()
        self.store.add_change(ChangeRow(served.id, served.version, kind, text, self.now()))


def _listed(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _request(ask: Ask) -> str | None:
    """What was asked besides the task, to make the decision again."""
    if ask.features is None and ask.allowed is None and ask.horizon is None:
        return None
    told = {"features": ask.features, "allowed": ask.allowed, "horizon": ask.horizon}
    told = {name: value for name, value in told.items() if value is not None}
    return msgspec.json.encode(told).decode()


def _decided(row: DecisionRow) -> Decided:
    return Decided(
        row.decision_id,
        row.task,
        row.action,
        row.propensity,
        row.state_version,
        row.prior_version,
        row.time,
        bool(row.holdout),
    )


def _names(served: Served, size: int) -> list[int | str]:
    arms = None if served.dim else served.all_arms
    return list(range(size)) if arms is None else list(arms)


def _shares(scale: Any, before: Any) -> list[float]:
    """How much of each belief comes from its own data: the part of the variance that it took."""
    with np.errstate(divide="ignore", invalid="ignore"):
        left = np.where(
            np.isinf(before), np.where(np.isinf(scale), 1.0, 0.0), (scale / before) ** 2
        )
    left = np.where(before == 0, 1.0, left)
    shares: list[float] = (1 - np.clip(left, 0.0, 1.0)).tolist()
    return shares
