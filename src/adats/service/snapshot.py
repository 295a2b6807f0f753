"""An experiment at one version, without its tasks: what it decides, and what a reward changes.

Nothing is changed in place: a task's state goes in, and another comes out.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, cast

import msgspec
import numpy as np

from adats.agents.aging import LIGHT, NEVER
from adats.agents.choice import Choice
from adats.agents.decision import Decision
from adats.agents.steps import Setup
from adats.agents.task_state import TaskState, without_pulls
from adats.models.core import checks
from adats.models.core.types import (
    Arm,
    ArmBelief,
    BoolArray,
    Digest,
    FloatArray,
    MetaBelief,
    Rng,
    Stats,
)
from adats.service.arm_changes import Change, check_change, setup_of
from adats.service.designs import design_of
from adats.service.errors import Invalid
from adats.service.field_types import MOST_DIM
from adats.service.messages import DecisionRequest
from adats.service.priors import prior_of
from adats.service.spec import ExperimentSpec, check
from adats.service.stores.interface import DecisionRow, LearnedReward, Reward, TaskRow
from adats.service.task_cache import unpacked

OTHER_FIELDS = ("features", "allowed", "horizon", "attributes", "design")
ROUND_OFF = 1e6  # a reward taken out whose square is this much larger than the rest leaves that


class Unfolded(NamedTuple):
    """A task that has learned something in this commit: as it was before, and in which arms."""

    before: TaskState
    arms: set[int]


class LearnedTask(NamedTuple):
    """What a reward makes of a task."""

    state: TaskState  # not digested
    arms: Iterable[int]  # that have changed
    what: LearnedReward


class Snapshot(NamedTuple):
    """All of an experiment but its tasks."""

    spec: ExperimentSpec
    version: int  # commits so far
    prior_version: int
    setup: Setup
    meta: MetaBelief  # what all tasks taught
    blank: TaskState  # of a task of which nothing is known
    time: float = NEVER  # of the newest reward in what all taught, where rewards age

    @classmethod
    def first(cls, spec: ExperimentSpec) -> "Snapshot":
        """Before anything has happened; `Invalid` if the parts do not fit."""
        check(spec)
        meta = prior_of(spec)
        setup = setup_of(spec, meta)
        if setup.counts_pending and not setup.arms.n_features:  # an index needs quantiles
            try:
                cast(ArmBelief, meta.task_prior()).upper(0.0)
            except ValueError as error:
                raise Invalid("policy.name", str(error)) from None
        if spec.sticky is not None and setup.arms.count is None:
            raise Invalid("sticky", "arms come with every decision here: name them, to keep one")
        return cls(spec, 0, 1, setup, meta, setup.new_state(meta))

    def with_meta(self, meta: MetaBelief) -> "Snapshot":
        return self._replace(meta=meta)

    # what all taught

    @property
    def aging(self) -> bool:
        """Whether rewards lose weight with time."""
        return self.setup.aging is not None

    def total(self) -> bytes:
        """The sum of all messages, as it is kept."""
        sums = self.meta.sums()
        return (np.append(sums, self.time) if self.aging else sums).tobytes()

    def with_total(self, total: bytes) -> "Snapshot":
        sums, time = np.frombuffer(total), NEVER
        if self.aging:
            sums, time = sums[:-1], sums.item(-1)
        return self._replace(meta=self.meta.with_sums(sums), time=time)

    def at(self, now: float) -> "Snapshot":
        """With what all taught as it weighs now, or with the newest reward."""
        aging = self.setup.aging
        if aging is None or now <= self.time:
            return self
        return self._replace(meta=self.meta.faded(aging.faded(self.time, now)), time=now)

    # arms

    def changed(self, change: Change) -> "Snapshot":
        """With an arm more, or one that is retired; `Invalid` if that cannot be."""
        setup, meta = self.setup, self.meta
        check_change(self.spec, setup.arms, change)
        try:
            if change.retired:
                return self._replace(setup=setup.with_arms(setup.arms.retire(change.arm)))
            setup, meta = setup.with_arm(meta, change.arm, change.like, change.features)
        except ValueError as error:
            raise Invalid("arm", str(error)) from None
        number, blank = self.prior_version + 1, setup.new_state(meta)
        return self._replace(prior_version=number, setup=setup, meta=meta, blank=blank)

    @property
    def n_arms(self) -> int | None:
        return self.setup.arms.count

    @property
    def dim(self) -> int:
        """Features of a linear model, else 0."""
        return self.setup.arms.n_features

    @property
    def arms(self) -> list[Arm] | None:
        """The arms that can still be chosen; None where features come with every decision."""
        return None if self.n_arms is None else self._named(self.setup.arms.open)

    @property
    def all_arms(self) -> list[Arm] | None:
        """Retired ones too; None where features come with every decision."""
        return None if self.n_arms is None else self._named(range(self.n_arms))

    @property
    def retired(self) -> list[Arm]:
        return self._named(sorted(self.setup.arms.retired))

    def _named(self, arms: Iterable[int]) -> list[Arm]:
        return [cast(Arm, self.setup.arms.name(arm)) for arm in arms]

    def with_learned_by(
        self, changes: Sequence[tuple[TaskState, TaskState, Sequence[int]]]
    ) -> tuple[list[Digest[Any]], "Snapshot"]:
        """After some tasks were taught: as they were, as they are, and the arms that changed."""
        meta = self.meta
        if self.aging:
            digests, meta, time = self.setup.replace(meta, self.time, changes)
            return digests, self._replace(meta=meta, time=time)
        digests, meta = meta.replace_tasks(
            [(before.digested(meta), state.stats, arms) for before, state, arms in changes]
        )
        return digests, self.with_meta(meta)

    # tasks

    def blank_of(self, design: FloatArray | None) -> TaskState:
        """Of a new task that may have a design of its own."""
        return self.blank if design is None else self.setup.new_state(self.meta, design)

    def state_of(self, row: TaskRow) -> TaskState:
        """Of a task as it is kept."""
        return unpacked(row, self.blank_of, aging=self.aging)

    def generation_of(self, state: TaskState) -> int | None:
        """In which it was digested; None: it never gets stale."""
        return None if self.is_light(state) else self.meta.generation_of(state.stats)

    def is_light(self, state: TaskState) -> bool:
        """Whether a task weighs so little that its digest is left as it is."""
        newest = max(self.time, state.time)  # its own may not be folded into the sum yet
        return self.setup.weight(state, newest) < LIGHT

    def opened(self, request: DecisionRequest, known: TaskState | None) -> TaskState:
        """The state of a task, which may be new; `Invalid` if it cannot be like this."""
        if request.attributes is None and request.design is None:
            return self.blank if known is None else known
        field = "design" if request.attributes is None else "attributes"
        design = self._design(request)
        if known is None:
            try:
                return self.blank_of(design)
            except ValueError as error:
                raise Invalid(field, str(error)) from None
        if known.design is None or not np.array_equal(known.design, design):
            raise Invalid(field, "the task began with others, which are fixed")
        return known

    def _design(self, request: DecisionRequest) -> FloatArray:
        declared, size = self.spec.attributes, self.blank.stats.pending_shape[0]
        if request.attributes is not None:
            if request.design is not None or not declared:
                why = "there is a design" if request.design else "the experiment declares none"
                raise Invalid("attributes", why)
            return design_of(declared, request.attributes, size)
        if declared:
            raise Invalid("design", "the experiment has attributes: give those")
        if not (self.dim or self.meta.has_design):
            raise Invalid("design", "this model has no design: take a linear one, or a prior file")
        rows = request.design or []
        if len(rows) > MOST_DIM or not (self.dim or len(rows) == size):
            most = f"at most {MOST_DIM} rows" if self.dim else f"{size} rows, one an arm"
            raise Invalid("design", f"a design has {most} here, got {len(rows)}")
        try:
            return checks.array("design", rows, ndim=2)
        except ValueError as error:
            raise Invalid("design", str(error)) from None

    # decisions

    def present(
        self, state: TaskState, unfolded: Unfolded | None, now: float = NEVER
    ) -> tuple[MetaBelief, TaskState]:
        """What all taught, with what this task has learned in this commit; where rewards age, as
        they weigh now, or with the newest reward."""
        if self.aging:
            before, changed = unfolded or Unfolded(state, set())
            now = max(now, self.time, state.time)
            return self.setup.present(self.meta, self.time, state, now, before, sorted(changed))
        if unfolded is None:
            return self.meta, state
        before, arms = unfolded
        digest, meta = self.meta.replace_task(before.digested(self.meta), state.stats, sorted(arms))
        return meta, state._replace(stats=digest.stats, digest=digest)

    def decide(
        self,
        request: DecisionRequest,
        state: TaskState,
        unfolded: Unfolded | None,
        rng: Rng,
        draws: int,
        now: float,
    ) -> tuple[Choice, TaskState, FloatArray | None]:
        """A choice, the task's state after it, and the features of the arms; or `Invalid`.

        `draws` is the seed of draws that count chances.
        """
        rows, mask = None, self.setup.arms.not_retired
        if self.dim or self.setup.counts_pending or has_other_fields(request):
            rows, mask = self._asked(request, state)
        meta, state = self.present(state, unfolded, now)
        try:
            choice, after = self.setup.decide(
                meta, state, rng, rows, mask, request.horizon, draws=draws, logged=True
            )
        except ValueError as error:  # the oracle finds no action among the allowed arms
            raise Invalid("allowed", str(error)) from None
        return choice, after, rows

    def keep(
        self, request: DecisionRequest, state: TaskState, last: DecisionRow
    ) -> tuple[Any, TaskState, FloatArray | None] | None:
        """The action of the last decision, with what `decide` gives; None if it is not allowed."""
        rows, mask = self._asked(request, state)
        index = self.setup.arms.index
        action: Any
        if isinstance(last.action, list):
            action = np.array([index(arm) for arm in last.action], dtype=np.intp)
        else:
            action = index(last.action)
        if mask is not None and not mask[action].all():
            return None
        if self.setup.counts_pending:
            state = self.setup.awaiting(state, rows, action)
        return action, state, rows

    def _asked(
        self, request: DecisionRequest, state: TaskState
    ) -> tuple[FloatArray | None, BoolArray | None]:
        """Rows of features, and which may be chosen; `Invalid`, with the field, if that is wrong"""
        arms, size = self.setup.arms, state.stats.pending_shape[0]
        features: Any = request.features
        if features is None and arms.come_with_decisions and state.design is not None:
            features = np.eye(size)  # the arms are the rows of the design
        try:
            rows = arms.rows(features, size)
        except ValueError as error:
            raise Invalid("features", str(error)) from None
        try:
            mask = arms.mask(request.allowed, None if rows is None else len(rows))
        except ValueError as error:
            raise Invalid("allowed", str(error)) from None
        if self.spec.policy.name in ("index", "far") and request.horizon is None:
            raise Invalid("horizon", "this policy plans ahead: say how many rounds are left")
        return rows, mask

    def awaiting(self, decision: DecisionRow, state: TaskState) -> TaskState:
        """The state of a task after a decision that was made elsewhere."""
        if not self.setup.counts_pending:
            return state
        action, features = _pull(decision)
        if features is None:
            return self.setup.awaiting(state, None, self.setup.arms.pulled(action, None))
        return self.setup.awaiting(state, np.atleast_2d(features), slice(None))

    # rewards

    def check_reward(
        self,
        decision: DecisionRow,
        reward: Reward,
        present: Callable[[], tuple[MetaBelief, TaskState]],
    ) -> None:
        """Raise `Invalid` if the decision, the model or the task at `present` cannot have it."""
        action = decision.action
        if isinstance(action, list) != isinstance(reward, list):
            due = "a list, one number an arm" if isinstance(action, list) else "one number"
            raise Invalid("reward", f"the reward of this decision is {due}; got {reward!r}")
        if isinstance(action, list) and isinstance(reward, list) and len(reward) != len(action):
            raise Invalid("reward", f"{len(action)} arms need as many rewards, got {len(reward)}")
        try:
            for value in reward if isinstance(reward, list) else [reward]:
                self.blank.stats.check_reward(value)
            if self.dim and decision.counted is None:
                meta, state = present()
                stats = state.stats.add(self._pulled(decision), reward)
                meta.check_change(state.digested(meta), stats)
        except ValueError as error:
            raise Invalid("reward", str(error)) from None

    def counted(
        self, decision: DecisionRow, reward: Reward, state: TaskState, given_up: bool
    ) -> LearnedTask:
        """A reward for a decision that had none in the statistics; its time is the decision's.

        If the decision was given up, its pull is not pending any more: another's may be.
        """
        pulled, pending = self._pulled(decision), state.pending
        if pending is not None and not given_up:
            pending = without_pulls(pending, pulled)
        stats, time = self._told(state, decision, reward, decision.time)
        return LearnedTask(
            state._replace(stats=stats, digest=None, pending=pending, time=time),
            self._arms_in(pulled),
            LearnedReward(decision.action, decision.features, reward, time=self._kept(decision)),
        )

    def _told(
        self, state: TaskState, row: DecisionRow | LearnedReward, reward: Reward, time: float
    ) -> tuple[Stats, float]:
        """The statistics of a task with one more reward, and their time."""
        pulled = self._pulled(row)
        return self.setup.told(self.meta, state, lambda stats: stats.add(pulled, reward), time)

    def _kept(self, decision: DecisionRow) -> float | None:
        """The time of a reward, where that matters."""
        return decision.time if self.aging else None

    def recounted(
        self, decision: DecisionRow, old: Reward, new: Reward, state: TaskState
    ) -> tuple[LearnedTask, bool]:
        """Another reward in place of one that counts; whether the old one was so large that only
        its round-off is left: then the task has to be counted from the log."""
        time = self._kept(decision)
        what = LearnedReward(decision.action, decision.features, new, old, time=time)
        stats, out = self._instead(state, what)
        arms = self._arms_in(self._pulled(decision))
        learned = LearnedTask(state._replace(stats=stats, digest=None), arms, what)
        return learned, stats.dwarfed_by(out, ROUND_OFF)

    def counted_again(
        self, state: TaskState, last: LearnedReward, rows: Iterable[DecisionRow]
    ) -> LearnedTask:
        """A task whose `last` reward took the place of another: as all its decisions tell."""
        again = self.blank_of(state.design)
        for row in rows:
            if row.counted not in (None, []):  # a reward of no arms has no time either
                stats, time = self._told(again, row, row.counted, row.time)
                again = again._replace(stats=stats, time=time)
        what = last._replace(stats=again.stats.flat().tobytes())
        state = state._replace(stats=again.stats, digest=None)
        return LearnedTask(state, range(self.meta.n_arms), what)

    def _instead(self, state: TaskState, what: LearnedReward) -> tuple[Stats, Stats]:
        """Statistics with a reward in place of another, and of that other alone."""
        pulled, nothing = self._pulled(what), self.blank_of(state.design).stats
        out, new = (
            self.setup.weighed(nothing.add(pulled, reward), what.time or 0.0, state.time)
            for reward in (what.instead, what.reward)
        )
        return state.stats - out + new, out

    def with_learned(
        self, state: TaskState, learned: Iterable[LearnedReward]
    ) -> tuple[TaskState, Unfolded]:
        """A task as it was folded last, with what it has learned since."""
        now, arms = state, set[int]()
        for one in learned:
            time = now.time
            if one.stats is not None:
                stats = type(state.stats).from_flat(np.frombuffer(one.stats))
                arms.update(range(self.meta.n_arms))
            else:
                if one.instead is not None:
                    stats, _ = self._instead(now, one)
                else:
                    stats, time = self._told(now, one, one.reward, one.time or 0.0)
                arms.update(self._arms_in(self._pulled(one)))
            now = now._replace(stats=stats, digest=None, time=time)
        return now._replace(digest=None), Unfolded(state, arms)

    def given_up(self, decision: DecisionRow, state: TaskState) -> TaskState:
        """No reward will come: its pull is not pending any more."""
        if state.pending is None:
            return state
        return state._replace(pending=without_pulls(state.pending, self._pulled(decision)))

    def _pulled(self, row: DecisionRow | LearnedReward) -> Any:
        return self.setup.arms.pulled(*_pull(row))

    def _arms_in(self, pulled: Any) -> Iterable[int]:
        """Arms whose statistics a pull changes; none where they are rows of features."""
        if self.dim:
            return ()
        return (pulled,) if type(pulled) is int else np.atleast_1d(pulled).tolist()


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


def has_other_fields(request: DecisionRequest) -> bool:
    """Whether more than the task was given."""
    return not (
        request.features is None
        and request.allowed is None
        and request.horizon is None
        and request.attributes is None
        and request.design is None
    )


def other_fields(request: DecisionRequest) -> str | None:
    """What was asked besides the task, to make the decision again."""
    if not has_other_fields(request):
        return None
    given = {name: value for name in OTHER_FIELDS if (value := getattr(request, name)) is not None}
    return msgspec.json.encode(given).decode()
