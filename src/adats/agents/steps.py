"""What happens to one task: it is opened, decided for, rewarded, forgotten. Nothing is changed in
place: each step takes the task's state and the meta-belief, and gives new ones."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike

from adats.agents.aging import NEVER, Aging
from adats.agents.arms import Arms, feature_rows
from adats.agents.choice import Action, Choice, Holdout, Rule, choose
from adats.agents.exploration import Explorer, newest_action
from adats.agents.oracles import BestArm, BestRow, CheckedOracle, Oracle
from adats.agents.policies import Policy, Scene, policy_of
from adats.agents.prior_source import PriorSource
from adats.agents.task_state import TaskState, with_pulls, without_pulls
from adats.models.core import checks
from adats.models.core.frozen import fill
from adats.models.core.names import arm_names
from adats.models.core.types import (
    Arm,
    Belief,
    BoolArray,
    Design,
    Digest,
    FloatArray,
    MetaBelief,
    Rng,
    RowStats,
    Stats,
    Task,
)


@dataclass(frozen=True, eq=False)
class Setup:
    """The fixed parts of an agent: its arms, its rule, and where tasks get their priors."""

    arms: Arms
    rule: Rule
    source: PriorSource
    explore_first: bool = False
    aging: Aging | None = None  # None: nothing loses weight with time
    keep: float = 1.0  # of their weight, by the rewards of an arm in a task when it has another
    counts_pending: bool = field(init=False)  # rounds, and pulls without a reward: for indices

    def __post_init__(self) -> None:
        fill(self, counts_pending=not self.rule.samples)

    def with_arms(self, arms: Arms) -> "Setup":
        return replace(self, arms=arms)

    def with_holdout(self, holdout: Holdout) -> "Setup":
        return replace(self, rule=replace(self.rule, holdout=holdout))

    def with_arm(
        self, meta: MetaBelief, name: Arm | None, like: Arm | None, features: Any
    ) -> tuple["Setup", MetaBelief]:
        """One more arm: with the prior of the arm `like`, or with a row of fixed features."""
        arms, oracle = self.arms, self.rule.oracle
        if isinstance(oracle, CheckedOracle) and oracle.is_graph():
            raise ValueError("the arms are the edges of the oracle's graph, which is fixed")
        if arms.n_features:
            if (features is None) != (arms.features is None) or like is not None:
                raise ValueError("an arm of a linear model with fixed features is added by its own")
            row = None if features is None else feature_rows([features], arms.n_features)
            return self.with_arms(arms.add(name, row)), meta
        if like is None or features is not None:
            raise ValueError("say which arm's prior the new one starts with: like=")
        grown = arms.add(name)
        named = None if meta.arms is None else name
        return self.with_arms(grown), self.source.with_arm(meta, named, arms.index(like))

    @cached_property
    def explorer(self) -> Explorer:
        return Explorer(self.arms, self.rule.oracle)

    def new_state(self, meta: MetaBelief, design: Design = None) -> TaskState:
        """Of a task of which nothing is known, before anything is drawn for it."""
        names = self.arms.names
        if design is not None and names is not None and len(design) != len(names):
            raise ValueError(
                f"a design for {len(design)} arms, but the arms have names: {_listed(names)}; for "
                "tasks with other arms give a prior without names"
            )
        stats = meta.empty(design=design)
        asked = None
        if self.explore_first:
            moving = self.arms.come_with_decisions
            asked = np.zeros(stats.pending_shape if moving else self.arms.count or 0)
        digest = meta.digest(stats, design=design) if self.source.LEARNS else None
        return TaskState(stats, digest, design, None, asked)

    def drawn(self, meta: MetaBelief, state: TaskState, rng: Rng) -> TaskState:
        """A new task, with what is drawn for it."""
        mu = self.source.draw(meta, rng)
        return state if mu is None else state._replace(mu=mu)

    def decide(
        self,
        meta: MetaBelief,
        state: TaskState,
        rng: Rng,
        rows: FloatArray | None,
        allowed: BoolArray | None,
        horizon: int | None,
        *,
        draws: int | None = None,
        logged: bool = False,
        belief: Belief | None = None,
    ) -> tuple[Choice, TaskState]:
        """A choice for a task, and its state after that; `draws` and `logged` as in `choose`. Where
        its `belief` is known already, it is not worked out."""
        if state.digest is None and self.source.LEARNS:  # after a load, or with a new arm
            state = state._replace(digest=state.digested(meta))
        choice = None
        if state.asked is not None:
            choice, state = self._forced(state, rows, allowed, draws is not None)
        if choice is None:
            if belief is None:
                belief = self.source.posterior(meta, state)
            if self.counts_pending:
                scene = self.scene(meta, belief, state, rng, rows, horizon)
            else:
                scene = Scene(belief, rng, rows)
            choice = choose(self.rule, scene, allowed, draws=draws, logged=logged)
        if self.counts_pending:
            state = self.awaiting(state, rows, choice.action)
        return choice, state

    def scene(
        self,
        meta: MetaBelief,
        belief: Any,
        state: TaskState,
        rng: Rng,
        rows: FloatArray | None,
        horizon: int | None,
    ) -> Scene:
        """What a policy that counts pulls sees of a decision."""
        pending = state.pending
        if pending is not None and not pending.any():
            pending = None
        share = self.share_of(meta, rows, state.design)
        return Scene(belief, rng, rows, state.rounds + 1, horizon, pending, share)

    def share_of(
        self, meta: MetaBelief, rows: FloatArray | None, design: Design = None
    ) -> Callable[[], FloatArray | float]:
        """The part of arms' variances that is due to mu, when it is asked for."""
        if not self.source.LEARNS:
            return lambda: 0.0
        return partial(meta.share, rows=rows, design=design)

    def _forced(
        self, state: TaskState, rows: FloatArray | None, allowed: BoolArray | None, explained: bool
    ) -> tuple[Choice | None, TaskState]:
        """The next action of forced exploration, or None when nothing is left to explore."""
        asked, action = state.asked, None
        assert asked is not None
        if rows is not None and self.arms.come_with_decisions:
            gram = cast(RowStats, state.stats).gram
            action = newest_action(rows, gram + asked, self.rule.oracle, allowed)
            if action is None:
                return None, state
            pulled = np.atleast_2d(rows[action])
            state = state._replace(asked=asked + pulled.T @ pulled)
        else:
            fresh = asked == 0
            if not self.arms.n_features:
                fresh &= state.stats.arm_pulls == 0
            arms = self.explorer.next(fresh, allowed)
            if arms is None:
                return None, state if allowed is not None else state._replace(asked=None)
            asked = asked.copy()
            asked[arms] += 1
            state = state._replace(asked=asked)
            action = int(arms[0]) if self.explorer.single else arms
        return self._certain(action, rows) if explained else Choice(action, forced=True), state

    def _certain(self, action: Action, rows: FloatArray | None) -> Choice:
        chances = np.zeros(self.arms.count or 0 if rows is None else len(rows))
        chances[action] = 1.0
        return Choice(action, chances, forced=True)

    def awaiting(self, state: TaskState, rows: FloatArray | None, action: Any) -> TaskState:
        """After a decision whose reward is not known yet."""
        pending = with_pulls(state.pending, rows, action, self.arms.count or 0)
        return state._replace(rounds=state.rounds + 1, pending=pending)

    def learn(
        self,
        meta: MetaBelief,
        state: TaskState,
        stats: Stats,
        pulled: Any,
        *,
        decided: bool,
        kept: float = 1.0,
        weight: float | None = None,
        at: float = NEVER,
    ) -> tuple[TaskState, MetaBelief]:
        """New statistics, with a reward of what was pulled; was that `decided` here? Where rewards
        age, what all taught has `kept` so much of its weight, the task has had a `weight` in it,
        and statistics are as they weigh `at` a time."""
        rounds, pending = state.rounds, state.pending
        if self.counts_pending and not decided:
            rounds += 1
        elif decided and pending is not None:
            pending = without_pulls(pending, pulled)
        digest = None
        if self.source.LEARNS:
            old = state.digested(meta) if state.digest is None else state.digest
            arms = () if self.arms.n_features else (pulled,) if type(pulled) is int else set(pulled)
            if weight is None:
                digest, meta = meta.replace_task(old, stats, arms)
            else:
                digest, meta = meta.replace_aged(old, stats, arms, kept, weight)
            stats = digest.stats
        if state.finished:
            digest = None
        new = TaskState(
            stats, digest, state.design, state.mu, state.asked, state.finished, rounds, pending, at
        )
        return new, meta

    # time

    def present(
        self,
        meta: MetaBelief,
        since: float,
        state: TaskState,
        now: float,
        taught: TaskState | None = None,
        changed: Iterable[int] = (),
    ) -> tuple[MetaBelief, TaskState]:
        """What all tasks taught until `since`, and the state of a task, as they weigh `now`. In its
        own belief a task counts whole, whatever it weighs for others. If all have not been taught
        its state yet, they were `taught` another, which differs in the arms `changed`."""
        aging, then = self.aging, state.time
        if aging is None:
            return meta, state
        kept = aging.faded(since, now)
        if then == NEVER:
            return meta.faded(kept) if self.source.LEARNS else meta, state
        stats, digest = self._aged(state, now), None
        if self.source.LEARNS:
            taught = state if taught is None else taught
            old, weight = taught.digested(meta), self.weight(taught, now)
            digest, meta = meta.replace_aged(old, stats, changed, kept, weight)
            stats = digest.stats
        return meta, TaskState(stats, digest, *state[2:-1], now)

    def belief_at(self, meta: MetaBelief, since: float, state: TaskState, now: float) -> Belief:
        """Of theta in a task, as what `present` gives has it; in fewer steps."""
        aging = self.aging
        if aging is None or state.time == NEVER:
            return self.source.posterior(*self.present(meta, since, state, now))
        kept, weight = aging.faded(since, now), self.weight(state, now)
        return self.source.posterior_aged(meta, state, self._aged(state, now), kept, weight)

    def _aged(self, state: TaskState, at: float) -> Stats:
        """The statistics of a task as they weigh at a later time."""
        aging, then = self.aging, state.time
        if aging is None or then in (NEVER, at) or aging.half_life == math.inf:
            return state.stats
        return state.stats.scaled(aging.task_weight(at - then), afresh=aging.afresh(then, at))

    def learn_at(
        self,
        meta: MetaBelief,
        since: float,
        state: TaskState,
        learn: Callable[[Stats], Stats],
        pulled: Any,
        time: float,
        *,
        decided: bool,
    ) -> tuple[TaskState, MetaBelief]:
        """`learn` where rewards age: a function adds the reward, of a `time`, to statistics. It may
        be late. The meta-belief is then as it weighs at the later of `since` and `time`."""
        aging, now = cast(Aging, self.aging), max(since, time)
        stats, at = self.told(meta, state, learn, time)
        kept, weight = aging.faded(since, now), self.weight(state, now)
        state, meta = self.learn(
            meta, state, stats, pulled, decided=decided, kept=kept, weight=weight, at=at
        )
        if at < now and self.source.LEARNS:  # it is not the newest reward of all
            less = 1.0 - aging.prior_weight(now - at)
            meta = meta.absorb(-less * state.digested(meta).message)
        return state, meta

    def told(
        self, meta: MetaBelief, state: TaskState, learn: Callable[[Stats], Stats], time: float
    ) -> tuple[Stats, float]:
        """The statistics of a task with one more reward, and their time; it may be late."""
        if self.aging is None:
            return learn(state.stats), state.time
        at = max(state.time, time)
        stats = self._aged(state, at)
        if time == at:
            return learn(stats), at
        late = learn(meta.empty(design=state.design))
        return stats + self.weighed(late, time, at), at

    def weighed(self, stats: Stats, time: float, at: float) -> Stats:
        """Rewards of a time as they count in their task at a later one."""
        return stats if self.aging is None else stats.scaled(self.aging.task_weight(at - time))

    def replace(
        self,
        meta: MetaBelief,
        since: float,
        changes: Sequence[tuple[TaskState, TaskState, Iterable[int]]],
    ) -> tuple[list[Digest[Any]], MetaBelief, float]:
        """Tasks in place of what they were, with the arms that changed: their digests, and what all
        taught until `since` as it is at the newest reward, which is the last."""
        aging = cast(Aging, self.aging)
        now = max([since, *(state.time for _, state, _ in changes)])
        digests, meta = [], meta.faded(aging.faded(since, now))
        for before, state, arms in changes:
            old, weight = before.digested(meta), self.weight(before, now)
            digest, meta = meta.replace_task(old, state.stats, arms, weight=weight)
            less = 1.0 - self.weight(state, now)
            if less:
                meta = meta.absorb(-less * digest.message)
            digests.append(digest)
        return digests, meta, now

    def weight(self, state: TaskState, since: float) -> float:
        """Of what a task taught, in the sum at this time."""
        if self.aging is None or state.time == NEVER:
            return 1.0
        return self.aging.prior_weight(since - state.time)

    def renew(
        self, meta: MetaBelief, states: Sequence[TaskState], since: float = NEVER
    ) -> tuple[list[TaskState], MetaBelief]:
        """Stale tasks digested anew, with the same rewards."""
        old = [state.digested(meta) for state in states]
        if self.aging is None:
            digests, meta = meta.renew(old)
        else:
            digests, meta = meta.renew(old, [self.weight(state, since) for state in states])
        return [
            state._replace(stats=digest.stats, digest=None if state.finished else digest)
            for state, digest in zip(states, digests, strict=True)
        ], meta

    def forget(self, meta: MetaBelief, state: TaskState, since: float = NEVER) -> MetaBelief:
        """The meta-belief without this task."""
        if not self.source.LEARNS:
            return meta
        weight = self.weight(state, since)
        return meta.absorb(-weight * state.digested(meta).message).renewed()

    def refit(
        self, meta: MetaBelief, states: Mapping[Task, TaskState], rng: Rng, since: float = NEVER
    ) -> tuple[MetaBelief, dict[Task, TaskState]]:
        """The meta-belief learned anew from all tasks, each whole; then they weigh what they did.
        What was drawn for a task is drawn again."""
        if not self.source.LEARNS:
            raise ValueError("tasks of this agent teach each other nothing: it has no refit")
        new, found = meta.refit([(state.stats, state.design) for state in states.values()])
        learned = {
            task: state._replace(stats=stats, digest=None)
            for (task, state), stats in zip(states.items(), found, strict=True)
        }
        for state in learned.values() if self.aging else ():
            new = new.absorb((self.weight(state, since) - 1.0) * state.digested(new).message)
        return new, {task: self.drawn(new, state, rng) for task, state in learned.items()}

    def grow(self, meta: MetaBelief, state: TaskState, rng: Rng) -> TaskState:
        """A task's state with room for the arm that was added last."""
        if state.asked is not None and not self.arms.come_with_decisions:
            state = state._replace(asked=np.append(state.asked, 0.0))
        if self.arms.n_features:
            return state
        return state._replace(
            stats=state.stats.grow(meta.n_arms),
            digest=None,
            mu=self.source.grown_draw(meta, state.mu, rng),
            pending=None if state.pending is None else np.append(state.pending, 0.0),
        )


def learned(
    stats: Any, pulled: Any, reward: Any, pulls: Any, successes: Any, keep: float = 1.0
) -> Any:
    """The statistics with a reward, or with so many pulls and the sum of their rewards."""
    if pulls is None and successes is None:
        return stats.add(pulled, reward) if keep == 1.0 else stats.add(pulled, reward, keep=keep)
    if reward is None and pulls is not None and successes is not None:
        options = {} if keep == 1.0 else {"keep": keep}
        return stats.add_counts(pulled, pulls, successes, **options)
    raise ValueError("give a reward, or pulls and successes")


def make_setup(
    meta: MetaBelief,
    source: PriorSource,
    oracle: Oracle | None = None,
    features: ArrayLike | None = None,
    arms: Sequence[Arm] | None = None,
    explore_first: bool = False,
    policy: Policy | str = "ts",
    epsilon: float = 0.0,
    aging: Aging | None = None,
    keep: float = 1.0,
) -> Setup:
    """The parts of an agent, checked; the options are those of `Agent`."""
    if isinstance(oracle, BestRow):
        features, oracle = oracle.features, None
    own = oracle is not None and type(oracle) is not BestArm
    if not isinstance(explore_first, bool):
        raise ValueError(f"explore_first is True or False, got {explore_first!r}")
    if not 0 <= checks.number("epsilon", epsilon) <= 1:
        raise ValueError(f"epsilon is a chance, between 0 and 1, got {epsilon}")
    if epsilon and own:
        raise ValueError("epsilon is for single arms: any set of arms is not an action")
    checked = CheckedOracle(oracle) if own and oracle is not None else BestArm()
    rule = Rule(policy_of(policy), checked, float(epsilon))
    if not 0 <= keep <= 1:
        raise ValueError(f"keep is a part of a weight, between 0 and 1, got {keep}")
    if keep != 1.0 and meta.empty().arm_pulls is None:
        raise ValueError(f"the {meta.model} model has features: its arms have no rewards to count")
    known = _arms_of(meta, arm_names(arms), features)
    return Setup(known, rule, source, explore_first, aging, keep)


def _listed(arms: Sequence[Arm]) -> str:
    return ", ".join(map(str, arms[:5])) + (", ..." if len(arms) > 5 else "")


def _arms_of(meta: MetaBelief, names: tuple[Arm, ...] | None, features: Any) -> Arms:
    dim = meta.n_features
    if names is not None and meta.arms is not None and names != meta.arms:
        raise ValueError(
            f"the prior is for arms {_listed(meta.arms)}, but the agent has {_listed(names)}: "
            "leave arms= out, or give them as the prior has them, in its order"
        )
    if dim:
        if features is None and meta.arms is not None:  # theta has an entry for each arm
            features, names = np.eye(dim), meta.arms
        rows = None if features is None else np.array(feature_rows(features, dim))
        sized = names if rows is None else rows
        return Arms(None if sized is None else len(sized), names, rows, n_features=dim)
    if features is not None:
        raise ValueError("features are for linear models; this model has arms")
    return Arms(meta.n_arms, names or meta.arms)
