"""What all agents share: many tasks, and two verbs, `ask` and `tell`."""

import os
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, NamedTuple, cast

import numpy as np

from adats.agents import agent_files
from adats.agents.actions import Arms, Decision, feature_rows
from adats.agents.exploration import covering_actions, newest_row, spanning_arms
from adats.agents.oracles import BestArm, BestRow, CheckedOracle, Oracle
from adats.agents.pending import asked_for, told_of
from adats.agents.policies import Policy, Scene, Thompson, policy_of, policy_to_dict
from adats.agents.propensities import exact_propensities, floored
from adats.agents.propensities import propensities as propensities_of
from adats.agents.task_state import TaskState, check_state, pack_states, task_name, unpack_states
from adats.models import prior_files
from adats.models.core import checks, files
from adats.models.core.checks import count_of
from adats.models.core.errors import FinishedTask, UnknownTask
from adats.models.core.names import arm_names
from adats.models.core.stats import LinearStats
from adats.models.core.types import (
    Arm,
    ArmMeta,
    Belief,
    BoolArray,
    FloatArray,
    IntArray,
    MetaBelief,
    Task,
)

CERTAIN = (
    "propensities of 1: rounds of forced exploration, and policies that do not draw, cannot be "
    "evaluated off-policy; an agent with epsilon=0.05, say, can"
)


class Choice(NamedTuple):
    """What was chosen, and what would have been without `epsilon`."""

    action: int | IntArray
    state: TaskState
    own: int | IntArray
    forced: bool = False  # by forced exploration
    belief: Any = None  # from which it was chosen


class Agent(ABC):
    """What all agents share. How a task gets its prior is the subclass's choice."""

    LEARNS: ClassVar[bool] = True  # whether tasks teach the meta-belief

    def __init__(
        self,
        meta: MetaBelief,
        *,
        seed: int | np.random.SeedSequence,
        oracle: Oracle | None = None,
        features: Any = None,
        arms: Sequence[Arm] | None = None,
        explore_first: bool = False,
        policy: Policy | str = "ts",
        epsilon: float = 0.0,
    ) -> None:
        """`features` are given here once for linear models with fixed arms, or to every `ask`.

        `oracle` turns mean rewards into an action: the best arm unless another is given.
        `explore_first` starts each task with forced exploration, as the paper's analysis does.
        `policy` is how beliefs become values of arms: Thompson sampling, "ts", or an index (see
        `adats.agents.policies`). With chance `epsilon` any allowed arm is pulled instead, so that
        every arm has a known chance.
        """
        if isinstance(oracle, BestRow):
            features, oracle = oracle.features, None
        empty = meta.empty()
        self._linear = isinstance(empty, LinearStats)
        self._dim = empty.xy.size if self._linear else 0
        if self._linear:
            names = arm_names(arms)
            rows = None if features is None else np.array(feature_rows(features, self._dim))
            sized = names if rows is None else rows
            self._arms = Arms(None if sized is None else len(sized), names, rows)
        elif features is not None:
            raise ValueError("features are for linear models; this model has arms")
        else:
            armed = cast(ArmMeta, meta)
            self._arms = Arms(armed.n_arms, arm_names(arms) or armed.arms)
        self._meta = meta
        if seed is None:
            raise ValueError("give a seed: a number, so that the same decisions can be made again")
        self._rng = np.random.default_rng(seed)
        own = oracle is not None and type(oracle) is not BestArm
        self._oracle: Oracle = CheckedOracle(cast(Oracle, oracle)) if own else BestArm()
        if not isinstance(explore_first, bool):
            raise ValueError(f"explore_first is True or False, got {explore_first!r}")
        self._explore_first = explore_first
        self._policy = policy_of(policy)
        self._index = type(self._policy) is not Thompson
        self._may_fail = own or self._index  # where asking can raise after drawing
        if not 0 <= checks.number("epsilon", epsilon) <= 1:
            raise ValueError(f"epsilon is a chance, between 0 and 1, got {epsilon}")
        if epsilon and own:
            raise ValueError("epsilon is for single arms: any set of arms is not an action")
        self._epsilon = float(epsilon)
        self._warned = False  # about propensities of 1
        self._plan: tuple[IntArray, ...] | None = None
        self._single = True  # whether actions are single arms; the plan finds out
        self._tasks: dict[Task, TaskState] = {}
        self._decisions = 0
        self._blank = self._new_state(None)

    # what a subclass chooses

    @abstractmethod
    def _belief(self, state: TaskState) -> Belief:
        """The belief over theta from which this agent samples."""

    def _drawn(self, state: TaskState) -> TaskState:
        """A new task, with what the agent draws for it."""
        return state

    # looking

    @property
    def meta(self) -> Any:
        """The belief over the task prior: the meta-posterior given all tasks."""
        return self._meta

    @property
    def tasks(self) -> tuple[Task, ...]:
        """All tasks, finished ones too."""
        return tuple(self._tasks)

    @property
    def arms(self) -> tuple[Arm, ...] | None:
        """The arms that can still be chosen; None where features come with every decision."""
        if self._arms.count is None:
            return None
        still = [i for i in range(self._arms.count) if i not in self._arms.retired]
        named = self._arms.name(np.array(still, dtype=np.intp))
        return named if isinstance(named, tuple) else (named,)

    def stats(self, task: Task) -> Any:
        """The sufficient statistics of a task."""
        return self._known(task).stats

    def posterior(self, task: Task) -> Any:
        """The belief over theta of this task, from all data that the agent uses."""
        return self._belief(self._known(task))

    # the two verbs

    def ask(
        self,
        task: Task,
        *,
        features: Any = None,
        allowed: Iterable[Arm] | None = None,
        design: Any = None,
        horizon: int | None = None,
        propensities: bool = False,
    ) -> Decision:
        """Choose an action for a task; a task not seen before is opened.

        `horizon` is how many rounds the task has left, this one too, for policies that plan. With
        `propensities` the decision says how likely every arm was.
        """
        if propensities and self._index and self._policy.DRAWS:
            raise ValueError("the propensities of a policy of your own that draws are not known")
        task = task_name(task)
        known = self._tasks.get(task)
        state = self._opened(task, known, design) if known is None or design is not None else known
        if state.finished:
            raise FinishedTask(f"task {task!r} is finished: it takes rewards, but no more asks")
        rows = self._rows(state, features) if self._linear or features is not None else None
        mask = self._arms.mask(allowed, None if rows is None else len(rows))
        before = self._rng.bit_generator.state if propensities or self._may_fail else None
        try:
            choice = self._choose(state, rows, mask, horizon, new=known is None)
        except BaseException:
            if before is not None:
                self._rng.bit_generator.state = before
            raise
        action, state = choice.action, choice.state
        chances = self._propensities(choice, rows, mask, before) if propensities else None
        if self._index:
            count = cast(int, self._arms.count) if rows is None else 0
            pending = asked_for(state.pending, rows, action, count)
            state = state._replace(rounds=state.rounds + 1, pending=pending)
        self._tasks[task] = state
        self._decisions += 1
        chosen = None if rows is None else rows[action].copy()
        name = self._arms.name(action)
        if chances is None:
            return Decision(task, name, chosen, self._decisions, time.time())
        own = chances[action].tolist()
        own = tuple(own) if isinstance(own, list) else own
        return Decision(task, name, chosen, self._decisions, time.time(), own, chances)

    def tell(
        self,
        decision: Decision | None = None,
        *,
        reward: Any,
        task: Task | None = None,
        action: Any = None,
        features: Any = None,
        design: Any = None,
    ) -> None:
        """Learn from a reward: of a decision, or of a task, an action and its features in a log.

        An array of arms (or of rows of features) with as many rewards is a semi-bandit action or
        a batch of pulls. Give the decision where there is one: otherwise indices take its pull
        for pending still.
        """
        if decision is not None:
            if not isinstance(decision, Decision):
                raise ValueError(f"tell takes a Decision from ask, or task=; got {decision!r}")
            if task is not None or action is not None or features is not None:
                raise ValueError("give a decision, or task, action and features, not both")
            task, action, features = decision.task, decision.action, decision.features
        elif task is None:
            raise ValueError("tell needs a decision, or task= and action= (or features=)")
        task = task_name(task)
        known = self._tasks.get(task)
        state = self._opened(task, known, design) if known is None or design is not None else known
        pulled = self._pulled(action, features)
        stats = state.stats.add(pulled, reward)
        if known is None:
            state = self._drawn(state)
        pending = state.pending
        if decision is None and self._index:
            state = state._replace(rounds=state.rounds + 1)
        elif decision is not None and pending is not None:
            pending = told_of(pending, pulled)
        digest = None
        if self.LEARNS:
            changed = (pulled,) if type(pulled) is int else () if self._linear else set(pulled)
            digest, self._meta = self._meta.retell(self._digest(state), stats, changed)
            if state.finished:
                digest = None
        self._tasks[task] = TaskState(
            stats,
            digest,
            state.design,
            state.mu,
            state.asked,
            state.finished,
            state.rounds,
            pending,
        )

    def _choose(
        self,
        state: TaskState,
        rows: FloatArray | None,
        mask: BoolArray | None,
        horizon: int | None,
        new: bool,
    ) -> Choice:
        if new:
            state = self._drawn(state)
        if state.digest is None and self.LEARNS:  # after a load, or with a new arm
            state = state._replace(digest=self._digest(state))
        if state.asked is not None:
            action, state = self._forced(state, rows, mask)
            if action is not None:
                return Choice(action, state, action, forced=True)
        belief = self._belief(state)
        if self._index:
            values = self._policy.values(self._scene(belief, state, rows, horizon))
        else:
            theta = belief.sample(self._rng)
            values = theta if rows is None else rows.dot(theta)
        if mask is not None:
            values = np.where(mask, values, -np.inf)
        own = self._oracle(values)
        instead = self._instead(mask, len(values))
        return Choice(own if instead is None else instead, state, own, belief=belief)

    def _instead(self, mask: BoolArray | None, arms: int) -> int | IntArray | None:
        """What is pulled in place of the policy's choice, if anything: with chance epsilon."""
        if self._epsilon and self._rng.random() < self._epsilon:
            return int(self._rng.choice(arms if mask is None else np.flatnonzero(mask)))
        return None

    def _mixed(self, chances: FloatArray, mask: BoolArray | None) -> FloatArray:
        """The chances of the policy's choices, together with those of `_instead`."""
        return floored(chances, self._epsilon, allowed=mask) if self._epsilon else chances

    def _scene(
        self, belief: Belief, state: TaskState, rows: FloatArray | None, horizon: int | None
    ) -> Scene:
        pending = state.pending
        if pending is not None and not pending.any():
            pending = None
        share = partial(self._share, rows, state.design)
        return Scene(belief, self._rng, rows, state.rounds + 1, horizon, pending, share)

    def _share(self, rows: FloatArray | None, design: FloatArray | None) -> FloatArray | float:
        return self._meta.share(rows=rows, design=design) if self.LEARNS else 0.0

    def _propensities(
        self, choice: Choice, rows: FloatArray | None, mask: BoolArray | None, before: Any
    ) -> FloatArray:
        """How likely every arm was: exact, or counted over draws of a stream of their own."""
        forced = choice.forced
        if not (self._index or forced):
            chances = self._drawn_chances(choice, rows, mask, before)
        else:
            chances = np.zeros(cast(int, self._arms.count) if rows is None else len(rows))
            chances[choice.own] = 1.0
            if not self._warned and (forced or not self._epsilon):
                self._warned = True
                warnings.warn(CERTAIN, stacklevel=3)
        return chances if forced else self._mixed(chances, mask)

    def _drawn_chances(
        self, choice: Choice, rows: FloatArray | None, mask: BoolArray | None, before: Any
    ) -> FloatArray:
        """Of Thompson sampling; a stream for draws is made only where they are needed."""
        if rows is None and type(self._oracle) is BestArm:
            exact = exact_propensities(choice.belief, mask)
            if exact is not None:
                return exact
        return propensities_of(
            choice.belief,
            oracle=getattr(self._oracle, "oracle", self._oracle),
            features=rows,
            allowed=mask,
            rng=np.random.default_rng(before["state"]["state"]),
            chosen=choice.own,
        ).probabilities

    # lifecycle

    def finish(self, task: Task) -> None:
        """No more decisions: free the factors, keep the statistics and what the task taught."""
        self._tasks[task_name(task)] = self._known(task)._replace(
            digest=None, asked=None, finished=True
        )

    def forget(self, task: Task) -> None:
        """Take the task out: the state is that of the remaining log, its actions as given."""
        state = self._known(task)
        if self.LEARNS:
            self._meta = self._meta.absorb(-self._digest(state).message)
        del self._tasks[task_name(task)]

    def add_arm(
        self, name: Arm | None = None, *, like: Arm | None = None, features: Any = None
    ) -> None:
        """A new arm: with the prior of the arm `like`, or with a row of fixed features."""
        if isinstance(self._oracle, CheckedOracle) and self._oracle.is_graph():
            raise ValueError("the arms are the edges of the oracle's graph, which is fixed")
        if self._linear:
            if (features is None) != (self._arms.features is None) or like is not None:
                raise ValueError("an arm of a linear model with fixed features is added by its own")
            row = None if features is None else feature_rows([features], self._dim)
            arms, meta, tasks = self._arms.add(name, row), self._meta, self._tasks
            if self._arms.features is not None:
                tasks = {task: _asked_more(state) for task, state in tasks.items()}
        else:
            if like is None or features is not None:
                raise ValueError("say which arm's prior the new one starts with: like=")
            index = self._arms.index(like)
            arms = self._arms.add(name)
            meta = self._with_arm(None if self.meta.arms is None else name, index)
            tasks = {task: self._grown(state, meta) for task, state in self._tasks.items()}
        self._arms, self._meta, self._tasks, self._plan = arms, meta, tasks, None
        self._blank = self._new_state(None)

    def retire_arm(self, arm: Arm) -> None:
        """Never choose this arm again; what it taught stays, and late rewards still count."""
        self._arms = self._arms.retire(arm)
        self._plan = None

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all state, the rng too, to one file without pickle; `adats.load` reads it."""
        header = {
            "agent": type(self).__name__,
            "meta": prior_files.meta_to_dict(self._meta),
            "rng": agent_files.rng_to_dict(self._rng),
            "oracle": agent_files.oracle_to_dict(getattr(self._oracle, "oracle", self._oracle)),
            "policy": policy_to_dict(self._policy),
            "epsilon": self._epsilon,
            "explore_first": self._explore_first,
            "decisions": self._decisions,
            "names": None if self._arms.names is None else list(self._arms.names),
            "retired": sorted(self._arms.retired),
            "tasks": list(self._tasks),
        }
        arrays = pack_states(self._tasks.values()) | self._own_arrays()
        if self._arms.features is not None:
            arrays["features"] = self._arms.features
        files.write_npz(path, "adats-agent", header, arrays)

    def _own_arrays(self) -> dict[str, FloatArray]:
        return {}

    def _restore(self, header: dict[str, Any], arrays: dict[str, Any]) -> None:
        self._arms = replace(self._arms, retired=frozenset(header["retired"]))
        self._rng = agent_files.rng_from_dict(header["rng"])
        self._decisions = count_of("decisions", header["decisions"], least=0)
        names = [task_name(task) for task in header["tasks"]]
        if len(set(names)) != len(names):
            raise ValueError("two tasks have one name")
        states = unpack_states(arrays, type(self._blank.stats))
        for name, state in zip(names, states, strict=True):
            self._check_state(state)
            self._tasks[name] = state

    def _check_state(self, state: TaskState) -> None:
        """Raise unless the state, read from a file, fits the model."""
        check_state(state, self._blank if state.design is None else self._new_state(state.design))

    # inside

    def _known(self, task: Task) -> TaskState:
        try:
            return self._tasks[task_name(task)]
        except KeyError:
            raise UnknownTask(f"task {task!r} is not known to this agent") from None

    def _new_state(self, design: FloatArray | None) -> TaskState:
        stats = self._meta.empty(design=design)
        asked = None
        if self._explore_first:
            contextual = self._linear and self._arms.features is None
            asked = np.zeros(stats.gram.shape if contextual else cast(int, self._arms.count))
        digest = self._meta.digest(stats, design=design) if self.LEARNS else None
        return TaskState(stats, digest, design, None, asked)

    def _opened(self, task: Task, known: TaskState | None, design: Any) -> TaskState:
        """The state of a task; of a new one, if it is not known."""
        if known is None:
            if design is None:
                return self._blank
            return self._new_state(checks.array("design", design, ndim=2))
        if design is not None and (
            known.design is None or not np.array_equal(known.design, design)
        ):
            raise ValueError(f"task {task!r} was opened with another design; it cannot change")
        return known

    def _digest(self, state: TaskState) -> Any:
        if state.digest is not None:
            return state.digest
        return self._meta.digest(state.stats, design=state.design)

    def _rows(self, state: TaskState, features: Any) -> FloatArray | None:
        if not self._linear:
            if features is not None:
                raise ValueError("features are for linear models; this model has arms")
            return None
        if features is not None:
            if self._arms.features is not None:
                raise ValueError("the features of this agent are fixed; use allowed= to restrict")
            rows = feature_rows(features, len(state.stats.moments) - 1)
            if self._arms.count is not None and len(rows) != self._arms.count:
                raise ValueError(f"{len(rows)} rows of features for {self._arms.count} named arms")
            return rows
        if self._arms.features is None:
            raise ValueError("a linear model needs features, one row an arm: ask(task, features=X)")
        if self._arms.features.shape[1] != len(state.stats.moments) - 1:
            raise ValueError("this task has a design of another size than the fixed features")
        return self._arms.features

    def _pulled(self, action: Any, features: Any) -> Any:
        """What was pulled, as the statistics take it: indices, or rows of features."""
        if not self._linear:
            if features is not None:
                raise ValueError("features are for linear models; this model has arms")
            if action is None:
                raise ValueError("say which arm was pulled: action=")
            if _several(action):
                return [self._arms.index(arm) for arm in action]
            return self._arms.index(action)
        if features is not None:
            return features
        if self._arms.features is None:
            raise ValueError("say the features of the arm that was pulled: features=")
        if _several(action):
            return self._arms.features[[self._arms.index(arm) for arm in action]]
        return self._arms.features[self._arms.index(action)]

    def _forced(
        self, state: TaskState, rows: FloatArray | None, mask: BoolArray | None
    ) -> tuple[int | IntArray | None, TaskState]:
        """The next action of forced exploration, or None when nothing is left to explore."""
        asked = cast(FloatArray, state.asked)
        if rows is not None and self._arms.features is None:
            row = newest_row(rows, state.stats.gram + asked, allowed=mask)
            if row is None:
                return None, state
            chosen: int | IntArray = row
            if isinstance(self._oracle, CheckedOracle):  # an action of its own, with that row
                values = np.zeros(len(rows)) if mask is None else np.where(mask, 0.0, -np.inf)
                values[row] = 1.0
                chosen = self._oracle(values)
            pulled = np.atleast_2d(rows[chosen])
            return chosen, state._replace(asked=asked + pulled.T @ pulled)
        if self._plan is None:
            self._plan = self._exploration_plan()
        fresh = asked == 0
        if not self._linear:
            fresh &= state.stats.count == 0
        for action in self._plan:
            if fresh[action].any() and (mask is None or mask[action].all()):
                asked = asked.copy()
                asked[action] += 1
                return int(action[0]) if self._single else action, state._replace(asked=asked)
        return None, state if mask is not None else state._replace(asked=None)

    def _exploration_plan(self) -> tuple[IntArray, ...]:
        """Each arm once; arms that span the space; or actions of the oracle that cover all arms."""
        count = cast(int, self._arms.count)
        still = np.array([i for i in range(count) if i not in self._arms.retired], dtype=np.intp)
        if isinstance(self._oracle, CheckedOracle):
            mask = self._arms.mask(None, None)
            values = np.zeros(count) if mask is None else np.where(mask, 0.0, -np.inf)
            self._single = isinstance(self._oracle(values), int)
            return covering_actions(self._oracle, count, allowed=mask)
        if self._arms.features is not None:
            still = still[spanning_arms(self._arms.features[still])]
        return tuple(still.reshape(-1, 1))

    def _with_arm(self, name: Arm | None, like: int) -> ArmMeta:
        return cast(ArmMeta, self._meta).with_arm(name, like)

    def _grown(self, state: TaskState, meta: ArmMeta) -> TaskState:
        """A task's state with room for the new arm of `meta`."""
        pending = None if state.pending is None else np.append(state.pending, 0.0)
        stats = state.stats.grow(meta.n_arms)
        return _asked_more(state)._replace(stats=stats, digest=None, pending=pending)


def _asked_more(state: TaskState) -> TaskState:
    return state if state.asked is None else state._replace(asked=np.append(state.asked, 0.0))


def _several(action: Any) -> bool:
    return isinstance(action, (tuple, list)) or (isinstance(action, np.ndarray) and action.ndim > 0)
