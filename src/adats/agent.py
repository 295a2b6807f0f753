"""What all agents share: many tasks, and two verbs, `ask` and `tell`."""

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple, cast

import numpy as np

from adats import checks, codec
from adats.actions import Arms, Decision, feature_rows
from adats.checks import count_of
from adats.errors import FinishedTask, UnknownTask
from adats.explore import covering_actions, newest_row, spanning_arms
from adats.meta.names import arm_names
from adats.oracles import BestArm, BestRow, CheckedOracle, Oracle
from adats.stats import LinearStats
from adats.types import Arm, ArmMeta, Belief, BoolArray, FloatArray, IntArray, MetaBelief, Task


class TaskState(NamedTuple):
    """All that is kept of one task."""

    stats: Any
    digest: Any = None  # the statistics worked out; freed when the task is finished
    design: FloatArray | None = None
    mu: FloatArray | None = None  # MetaTS's draw
    asked: FloatArray | None = None  # pulls that forced exploration asked for; None: it is over
    finished: bool = False


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
    ) -> None:
        """`features` are given here once for linear models with fixed arms, or to every `ask`.

        `oracle` turns mean rewards into an action: the best arm unless another is given.
        `explore_first` starts each task with forced exploration, as the paper's analysis does.
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
    ) -> Decision:
        """Choose an action for a task; a task not seen before is opened."""
        task = _task_name(task)
        known = self._tasks.get(task)
        state = self._opened(task, known, design) if known is None or design is not None else known
        if state.finished:
            raise FinishedTask(f"task {task!r} is finished: it takes rewards, but no more asks")
        rows = self._rows(state, features) if self._linear or features is not None else None
        mask = self._arms.mask(allowed, None if rows is None else len(rows))
        if type(self._oracle) is BestArm:  # which cannot fail
            action, state = self._choose(state, rows, mask, new=known is None)
        else:
            before = self._rng.bit_generator.state
            try:
                action, state = self._choose(state, rows, mask, new=known is None)
            except BaseException:
                self._rng.bit_generator.state = before
                raise
        self._tasks[task] = state
        self._decisions += 1
        chosen = None if rows is None else rows[action].copy()
        return Decision(task, self._arms.name(action), chosen, self._decisions, time.time())

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
        a batch of pulls.
        """
        if decision is not None:
            if not isinstance(decision, Decision):
                raise ValueError(f"tell takes a Decision from ask, or task=; got {decision!r}")
            if task is not None or action is not None or features is not None:
                raise ValueError("give a decision, or task, action and features, not both")
            task, action, features = decision.task, decision.action, decision.features
        elif task is None:
            raise ValueError("tell needs a decision, or task= and action= (or features=)")
        task = _task_name(task)
        known = self._tasks.get(task)
        state = self._opened(task, known, design) if known is None or design is not None else known
        pulled = self._pulled(action, features)
        stats = state.stats.add(pulled, reward)
        if known is None:
            state = self._drawn(state)
        digest = None
        if self.LEARNS:
            changed = (pulled,) if type(pulled) is int else () if self._linear else set(pulled)
            digest, self._meta = self._meta.retell(self._digest(state), stats, changed)
            if state.finished:
                digest = None
        self._tasks[task] = TaskState(
            stats, digest, state.design, state.mu, state.asked, state.finished
        )

    def _choose(
        self, state: TaskState, rows: FloatArray | None, mask: BoolArray | None, new: bool
    ) -> tuple[int | IntArray, TaskState]:
        if new:
            state = self._drawn(state)
        if state.digest is None and self.LEARNS:  # after a load, or with a new arm
            state = state._replace(digest=self._digest(state))
        if state.asked is not None:
            action, state = self._forced(state, rows, mask)
            if action is not None:
                return action, state
        theta = self._belief(state).sample(self._rng)
        values = theta if rows is None else rows.dot(theta)
        if mask is not None:
            values = np.where(mask, values, -np.inf)
        return self._oracle(values), state

    # lifecycle

    def finish(self, task: Task) -> None:
        """No more decisions: free the factors, keep the statistics and what the task taught."""
        self._tasks[_task_name(task)] = self._known(task)._replace(
            digest=None, asked=None, finished=True
        )

    def forget(self, task: Task) -> None:
        """Take the task out: the state is that of the remaining log, its actions as given."""
        state = self._known(task)
        if self.LEARNS:
            self._meta = self._meta.absorb(-self._digest(state).message)
        del self._tasks[_task_name(task)]

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
            "meta": codec.meta_to_dict(self._meta),
            "rng": codec.rng_to_dict(self._rng),
            "oracle": codec.oracle_to_dict(getattr(self._oracle, "oracle", self._oracle)),
            "explore_first": self._explore_first,
            "decisions": self._decisions,
            "names": None if self._arms.names is None else list(self._arms.names),
            "retired": sorted(self._arms.retired),
            "tasks": list(self._tasks),
        }
        states = list(self._tasks.values())
        arrays = {
            "finished": np.array([s.finished for s in states], dtype=bool),
            **codec.pack("stats", [s.stats.flat() for s in states]),
            **codec.pack("design", [s.design for s in states]),
            **codec.pack("mu", [s.mu for s in states]),
            **codec.pack("asked", [s.asked for s in states]),
            **self._own_arrays(),
        }
        if self._arms.features is not None:
            arrays["features"] = self._arms.features
        codec.write_npz(path, "adats-agent", header, arrays)

    def _own_arrays(self) -> dict[str, FloatArray]:
        return {}

    def _restore(self, header: dict[str, Any], arrays: dict[str, Any]) -> None:
        self._arms = replace(self._arms, retired=frozenset(header["retired"]))
        self._rng = codec.rng_from_dict(header["rng"])
        self._decisions = count_of("decisions", header["decisions"], least=0)
        if len(set(map(_task_name, header["tasks"]))) != len(header["tasks"]):
            raise ValueError("two tasks have one name")
        read = type(self._blank.stats).from_flat
        names = ("stats", "design", "mu", "asked")
        columns = [codec.unpack(name, arrays) for name in names]
        finished = arrays["finished"].tolist()
        for task, done, stats, design, mu, asked in zip(
            header["tasks"], finished, *columns, strict=True
        ):
            state = TaskState(read(stats), None, design, mu, asked, done)
            self._check_state(state)
            self._tasks[_task_name(task)] = state

    def _check_state(self, state: TaskState) -> None:
        """Raise unless the state, read from a file, fits the model."""
        fresh = self._blank if state.design is None else self._new_state(state.design)
        if state.stats.flat().shape != fresh.stats.flat().shape:
            raise ValueError("statistics of the wrong size")
        if state.asked is not None and getattr(fresh.asked, "shape", None) != state.asked.shape:
            raise ValueError("counts of forced pulls of the wrong size")

    # inside

    def _known(self, task: Task) -> TaskState:
        try:
            return self._tasks[_task_name(task)]
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
        return _asked_more(state)._replace(stats=state.stats.grow(meta.n_arms), digest=None)


def _asked_more(state: TaskState) -> TaskState:
    return state if state.asked is None else state._replace(asked=np.append(state.asked, 0.0))


def _task_name(task: Any) -> Task:
    if type(task) is str or type(task) is int:
        return task
    if isinstance(task, (str, np.str_)):
        return str(task)
    if isinstance(task, (int, np.integer)) and not isinstance(task, bool):
        return int(task)
    raise ValueError(f"a task is named by a string or an integer, got {task!r}")


def _several(action: Any) -> bool:
    return isinstance(action, (tuple, list)) or (isinstance(action, np.ndarray) and action.ndim > 0)
