"""AdaTS and the baselines of the paper: many tasks, and two verbs, `ask` and `tell`."""

import os
import warnings
from collections import deque
from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from time import time as wall_clock
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from adats.agents import agent_files, decision_numbers
from adats.agents.agent_files import AgentState
from adats.agents.aging import (
    CLOCKS,
    NEVER,
    clock_time,
    forgetting_of,
    time_of_look,
    time_of_reward,
)
from adats.agents.batch_verbs import BatchVerbs
from adats.agents.change_detection import FoundChange, Surprise, anew, detector_of, surprises
from adats.agents.decision import Decision
from adats.agents.decision_numbers import OF_A_BATCH
from adats.agents.oracles import Oracle
from adats.agents.policies import Policy
from adats.agents.prior_source import Drawn, Fixed, Known, Marginal, PriorSource
from adats.agents.renewals import Renewals
from adats.agents.steps import learned, make_setup
from adats.agents.task_columns import ColumnBook
from adats.agents.task_state import DictBook, TaskState, task_name
from adats.models.core import checks
from adats.models.core.errors import FinishedTask, UnknownTask
from adats.models.core.summary import SummaryTable, belief_table, prior_table
from adats.models.core.types import AnyPath, Arm, MetaBelief, Task

CERTAIN = (
    "propensities of 1: rounds of forced exploration, and policies that do not draw, cannot be "
    "evaluated off-policy; an agent with epsilon=0.05, say, can"
)


TWICE = (
    "decision {} has had its reward already, and now counts twice; tell each decision once, or "
    "further rewards as task=, action= and reward="
)
REMEMBERED = 100_000  # decisions of which a second reward is warned of

WIDE = 100  # features from which on threads of BLAS slow single decisions down
THREADS = {"OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"}
SLOW_THREADS = (
    "decisions with so many features are faster with one thread of linear algebra: set "
    "OPENBLAS_NUM_THREADS=1 before Python starts (or any number, to keep them and this quiet)"
)


class Agent(BatchVerbs):
    """What all agents share. How a task gets its prior is the subclass's choice."""

    _source: PriorSource

    def __init__(
        self,
        meta: MetaBelief,
        *,
        seed: int | np.random.SeedSequence,
        oracle: Oracle | None = None,
        features: ArrayLike | None = None,
        arms: Sequence[Arm] | None = None,
        explore_first: bool = False,
        policy: Policy | str = "ts",
        epsilon: float = 0.0,
        columns: bool | None = None,
        half_life: float | None = None,
        prior_half_life: float | None = None,
        clock: str = CLOCKS[0],
        detect_changes: bool = False,
    ) -> None:
        """`features` are given here once for linear models with fixed arms, or to every `ask`.

        `oracle` turns mean rewards into an action: the best arm unless another is given.
        `explore_first` starts each task with forced exploration, as the paper's analysis does.
        `policy` is how beliefs become values of arms: Thompson sampling, "ts", or an index (see
        `adats.agents.policies`). With chance `epsilon` any allowed arm is pulled instead, so that
        every arm has a known chance. `columns` says whether tasks are kept in columns, which is for
        very many of them; if it is None, they are from the first large batch on.

        A reward that is `half_life` old weighs half in its task, and a task whose last reward is
        `prior_half_life` old weighs half in what all tasks taught; both are in the unit of the
        times that `ask` and `tell` are given. Where none is given, the `clock` has it: "seconds",
        or "rounds", in which each decision is one. With "pulls" the age of a reward is how many
        others its arm has had since in its task. With `detect_changes` the agent warns if the
        prior, or tasks, seem to move; see `changes`.
        """
        aging, keep = forgetting_of(half_life, prior_half_life, clock)
        setup = make_setup(
            meta,
            self._source,
            oracle,
            features,
            arms,
            explore_first,
            policy,
            epsilon,
            aging,
            keep,
        )
        if seed is None:
            raise ValueError("give a seed: a number, so that the same decisions can be made again")
        if (
            meta.n_features >= WIDE
            and (os.cpu_count() or 1) > 1
            and not THREADS & os.environ.keys()
        ):
            warnings.warn(SLOW_THREADS, stacklevel=2)
        rng = np.random.default_rng(seed)
        number = decision_numbers.agent_number(rng)
        detector = detector_of(setup, detect_changes)
        self._set(AgentState(setup, meta, {}, rng, 0, number, clock=clock, detector=detector))
        self._columns = columns
        if columns:
            self._use_columns()

    @classmethod
    def from_state(cls, state: AgentState) -> Self:
        """An agent made of what `state` gave; tasks in columns are copied."""
        return cls._made_of(state._replace(tasks=copy(state.tasks), detector=copy(state.detector)))

    @classmethod
    def _made_of(cls, state: AgentState) -> Self:
        agent = object.__new__(cls)
        agent._set(state)
        return agent

    def _set(self, state: AgentState) -> None:
        self._setup, self._meta = state.setup, state.meta
        tasks = state.tasks
        self._book = tasks if isinstance(tasks, ColumnBook) else DictBook(tasks)
        self._rng, self._decisions = state.rng, state.decisions
        self._number, self._rewarded = state.number, state.rewarded
        self._time, self._clock = state.time, state.clock
        self._detector = state.detector
        self._columns = None
        self._warned = False  # about propensities of 1
        self._said_unit = False
        self._said_one_by_one = False
        # the last decisions of `ask` that got a reward: to look one up, and as they came
        self._lately_rewarded: set[int | str] = set()
        self._lately: deque[int | str] = deque()
        self._renewals = Renewals(state.turns)
        self._kept: dict[Task, TaskState | None] | None = None  # for a batch that fails to put back
        self._blank = self._setup.new_state(self._meta)  # of a task of which nothing is known

    # looking

    @property
    def meta(self) -> Any:
        """The belief over the task prior: the meta-posterior given all tasks; where rewards age, as
        they weigh at the newest of all."""
        return self._meta

    @property
    def tasks(self) -> tuple[Task, ...]:
        """All tasks, finished ones too."""
        return tuple(self._book)

    @property
    def arms(self) -> tuple[Arm, ...] | None:
        """The arms that can still be chosen; None where features come with every decision."""
        arms = self._setup.arms
        if arms.count is None:
            return None
        named = arms.name(np.array(arms.open, dtype=np.intp))
        return named if isinstance(named, tuple) else (named,)

    def stats(self, task: Task) -> Any:
        """The sufficient statistics of a task; where rewards age, as they weighed at its last."""
        return self._known(task).stats

    def posterior(self, task: Task, *, time: float | None = None) -> Any:
        """The belief over theta of this task, from all data that the agent uses; where rewards
        age, at a time, or at that of the newest reward."""
        now = self._time_shown(time)
        return self._setup.belief_at(self._meta, self._time, self._known(task), now)

    def _time_shown(self, time: float | None) -> float:
        """A time, or that of the newest reward."""
        return self._time if time is None or self._setup.aging is None else self._now(time)

    def _shown(self, state: TaskState, time: float | None) -> tuple[MetaBelief, TaskState]:
        """What all taught, and a task, as they weigh at a time, or at that of the newest reward."""
        return self._setup.present(self._meta, self._time, state, self._time_shown(time))

    def summary(self, task: Task | None = None, *, time: float | None = None) -> SummaryTable:
        """A small table: of a task, what its arms did and what is believed of them; without one,
        what is believed of a new task. Where rewards age, all is as they weigh at a time, or at
        that of the newest one."""
        if task is None:
            table = prior_table(self._shown(self._blank, time)[0])
            counts = f"{len(self._book):,} tasks, {self._decisions:,} decisions"
            return replace(table, title=f"{type(self).__name__}, {counts}; {table.title}")
        meta, state = self._shown(self._known(task), time)
        stats, belief = state.stats, self._setup.source.posterior(meta, state)
        more: dict[str, Any] = {}
        names: Sequence[Arm] | None = self._setup.arms.names
        if stats.arm_pulls is not None:
            names = range(stats.arm_pulls.size) if names is None else names
            more = {"pulls": stats.arm_pulls, "average": stats.arm_averages}
            chances = belief.best_chances()
            if chances is not None:
                more["best"] = chances
        return belief_table(f"{type(self).__name__}, task {task!r}", names, belief, **more)

    @property
    def changes(self) -> tuple[FoundChange, ...]:
        """What seems to have moved, if the agent detects changes: of the prior, and of tasks, a
        warning or an alarm, with the reward that it was found at."""
        return () if self._detector is None else self._detector.watch.changes

    def watch_anew(self) -> None:
        """Forget the changes that were found, and look for others from now on."""
        if self._detector is not None:
            self._detector.watch = anew(self._detector.watch)

    def __repr__(self) -> str:
        return repr(self.summary())

    def _repr_html_(self) -> str:
        return self.summary()._repr_html_()

    def state(self) -> AgentState:
        """All that the agent is made of, as values: its parts, what it knows, its rng."""
        tasks = dict(self._book) if isinstance(self._book, DictBook) else self._book
        counts = (self._decisions, self._number, self._rewarded)
        return AgentState(
            self._setup,
            self._meta,
            tasks,
            self._rng,
            *counts,
            self._time,
            self._clock,
            tuple(self._renewals.turns),
            copy(self._detector),
        )

    # the two verbs

    def ask(
        self,
        task: Task,
        *,
        features: ArrayLike | None = None,
        allowed: Iterable[Arm] | None = None,
        design: ArrayLike | None = None,
        horizon: int | None = None,
        propensities: bool = False,
        time: float | None = None,
    ) -> Decision:
        """Choose an action for a task; a task not seen before is opened.

        `horizon` is how many rounds the task has left, this one too, for policies that plan. With
        `propensities` the decision says how likely every arm was. `time` is now, if not the
        clock's; where rewards age, none that has come in may be newer.
        """
        setup, rng = self._setup, self._rng
        arms = setup.arms
        if propensities and setup.counts_pending and setup.rule.policy.DRAWS:
            raise ValueError("the propensities of a policy of your own that draws are not known")
        task = task_name(task)
        known = self._book.get(task)
        state = self._opened(task, known, design) if known is None or design is not None else known
        if state.finished:
            raise FinishedTask(f"task {task!r} is finished: it takes rewards, but no more asks")
        rows, mask = None, arms.not_retired
        if arms.n_features or features is not None:
            rows = arms.rows(features, state.stats.pending_shape[0])
        if allowed is not None:
            mask = arms.mask(allowed, None if rows is None else len(rows))
        meta, kept, belief = self._meta, state, None
        if setup.aging is not None:
            now = self._now(time, asked=True)
            if state.digest is None and setup.source.LEARNS:  # after a load, or with a new arm
                kept = state = state._replace(digest=state.digested(meta))
            if setup.counts_pending or state.asked is not None or known is None:
                meta, state = setup.present(meta, self._time, state, now)
            else:
                belief = setup.belief_at(meta, self._time, state, now)
        elif time is None:
            now = wall_clock() if self._clock == "seconds" else self._decisions + 1.0
        else:
            now = checks.number("time", time)
        shown = state
        before = rng.bit_generator.state if propensities or setup.rule.can_fail else None
        try:
            if known is None:
                state = setup.drawn(meta, state, rng)
            draws = before["state"]["state"] if propensities and before else None
            choice, state = setup.decide(
                meta, state, rng, rows, mask, horizon, draws=draws, belief=belief
            )
        except BaseException:
            if before is not None:
                rng.bit_generator.state = before
            raise
        if state is shown:
            state = kept
        elif setup.aging is not None:
            state = state._replace(stats=kept.stats, digest=kept.digest, time=kept.time)
        self._book.put(task, state)
        self._decisions += 1
        action, chances = choice.action, choice.propensities
        chosen = None if rows is None else rows[action].copy()
        name = arms.name(action)
        if chances is None:
            return Decision(task, name, chosen, self._decisions, now)
        if choice.forced or (setup.counts_pending and not setup.rule.epsilon):
            self._warn()
        own = chances[action].tolist()
        own = tuple(own) if isinstance(own, list) else own
        return Decision(task, name, chosen, self._decisions, now, own, chances)

    def _warn(self) -> None:
        if not self._warned:
            self._warned = True
            warnings.warn(CERTAIN, stacklevel=3)

    def tell(
        self,
        decision: Decision | None = None,
        *,
        reward: Any = None,
        task: Task | None = None,
        action: Any = None,
        features: ArrayLike | None = None,
        design: ArrayLike | None = None,
        pulls: Any = None,
        successes: Any = None,
        time: float | None = None,
    ) -> None:
        """Learn from a reward: of a decision, or of a task, an action and its features in a log.

        An array of arms (or of rows of features) with as many rewards is a semi-bandit action or
        a batch of pulls. Give the decision where there is one: otherwise indices take its pull
        for pending still. Where rewards are binary or counts, so many `pulls` and `successes`, the
        sum of their rewards, may stand in place of single rewards; fractions are legal. `time` is
        the reward's own, where rewards age: if it is not given, that of the decision, or the
        clock's. A late one weighs what it would if it had come in time.
        """
        counts = None  # of a decision of a batch
        number: int | str = 0
        if decision is not None:
            if not isinstance(decision, Decision):
                raise ValueError(f"tell takes a Decision from ask, or task=; got {decision!r}")
            if task is not None or action is not None or features is not None:
                raise ValueError("give a decision, or task, action and features, not both")
            task, action, features = decision.task, decision.action, decision.features
            number = decision.decision_id
            if type(number) is int and number >= OF_A_BATCH:
                counts = self._counts_of([number])
            elif number in self._lately_rewarded:
                warnings.warn(TWICE.format(number), stacklevel=2)
        elif task is None:
            raise ValueError("tell needs a decision, or task= and action= (or features=)")
        task = task_name(task)
        known = self._book.get(task)
        state = self._opened(task, known, design) if known is None or design is not None else known
        pulled = self._setup.arms.pulled(action, features)
        setup, meta, decided = self._setup, self._meta, decision is not None
        before, moment, found = state, None, []
        undrawn = self._rng.bit_generator.state if known is None else None
        try:
            if setup.aging is None:
                if time is not None:
                    checks.number("time", time)
                stats = learned(state.stats, pulled, reward, pulls, successes, setup.keep)
                if known is None:
                    state = setup.drawn(meta, state, self._rng)
                state, meta = setup.learn(meta, state, stats, pulled, decided=decided)
            else:
                moment = self._moment(decision, time)
                learn = partial(
                    learned, pulled=pulled, reward=reward, pulls=pulls, successes=successes
                )
                if known is None:
                    now = setup.present(meta, self._time, state, max(self._time, moment))
                    state = setup.drawn(now[0], state, self._rng)
                state, meta = setup.learn_at(
                    meta, self._time, state, learn, pulled, moment, decided=decided
                )
                self._check_unit(moment, stacklevel=3)
            if self._detector is not None and reward is not None:
                found = self._surprises(before, pulled, reward, moment)
        except BaseException:
            if undrawn is not None:
                self._rng.bit_generator.state = undrawn
            raise
        if moment is not None:
            self._time = max(self._time, moment)
            if meta.RENEWS:
                self._renewals.learned(task)
        self._book.put(task, state)
        if counts is not None:
            self._rewarded = decision_numbers.with_rewards(self._rewarded, counts)
        elif decision is not None and number not in self._lately_rewarded:
            self._lately_rewarded.add(number)
            self._lately.append(number)
            if len(self._lately) > REMEMBERED:
                self._lately_rewarded.remove(self._lately.popleft())
        if meta.RENEWS:
            self._go_on_with(meta)
        else:
            self._meta = meta
        if self._detector is not None:
            for change in self._detector.see(task, found):
                warnings.warn(str(change), stacklevel=2)

    def _surprises(
        self, state: TaskState, pulled: Any, rewards: Any, moment: float | None
    ) -> list[Surprise]:
        """How rewards compare with what is believed before them."""
        meta = self._meta
        if moment is not None:
            now = max(self._time, moment)
            meta, state = self._setup.present(meta, self._time, state, now)
        return surprises(self._setup, meta, state, pulled, rewards)

    def _go_on_with(self, meta: MetaBelief) -> None:
        """What all tasks have taught now; the next stale ones are brought up to date."""
        if meta.generation != self._meta.generation:
            self._renewals.look_again()
        self._meta = meta
        if not meta.generation:
            return
        stale = self._renewals.next(self._setup, meta, self._book, self._time)
        if not stale:
            return
        if self._kept is not None:
            self._kept = {**stale, **self._kept}
        states, self._meta = self._setup.renew(meta, list(stale.values()), self._time)
        for task, state in zip(stale, states, strict=True):
            self._book.put(task, state)

    # lifecycle

    def finish(self, task: Task) -> None:
        """No more decisions: free the factors, keep the statistics and what the task taught."""
        state = self._known(task)._replace(digest=None, asked=None, finished=True)
        self._book.put(task_name(task), state)

    def forget(self, task: Task) -> None:
        """Take the task out: the state is that of the remaining log, its actions as given."""
        meta = self._setup.forget(self._meta, self._known(task), self._time)
        self._book.delete(task_name(task))
        self._renewals.forget(task_name(task))
        if self._detector is not None:
            self._detector.forget(task_name(task))
        self._go_on_with(meta)

    def add_arm(
        self, name: Arm | None = None, *, like: Arm | None = None, features: ArrayLike | None = None
    ) -> None:
        """A new arm: with the prior of the arm `like`, or with a row of fixed features."""
        self._setup, self._meta = self._setup.with_arm(self._meta, name, like, features)
        states = self._book.items()
        self._keep({task: self._setup.grow(self._meta, s, self._rng) for task, s in states})

    def retire_arm(self, arm: Arm) -> None:
        """Never choose this arm again; what it taught stays, and late rewards still count."""
        self._setup = self._setup.with_arms(self._setup.arms.retire(arm))

    def refit(self) -> None:
        """Learn from all tasks at once how they differ, where the model can do that.

        The new model takes the place of the old one and every task is worked out anew with it. The
        rng and the count of decisions go on. To forget a task is exact given the last refit.
        """
        self._meta, states = self._setup.refit(self._meta, self._book, self._rng, self._time)
        self._keep(states)

    def save(self, path: AnyPath) -> None:
        """Write all state, the rng too, to one file without pickle; `adats.load` reads it."""
        agent_files.write_agent(path, type(self).__name__, self.state())

    # time

    def _now(self, time: float | None, *, asked: bool = False) -> float:
        """The time of a decision, or of a look."""
        if time is not None:
            now = time_of_look(time, self._time)
        else:
            now = max(clock_time(self._clock, self._decisions + asked), self._time)
        if asked:
            self._check_unit(now, stacklevel=4)
        return now

    def _moment(self, decision: Decision | None, time: float | None) -> float:
        """The time of a reward."""
        decided = NEVER if decision is None else time_of_reward(decision.time, NEVER)
        if time is not None:
            return time_of_reward(time, decided)
        return clock_time(self._clock, self._decisions) if decision is None else decided

    def _check_unit(self, time: float, *, stacklevel: int, newest: float | None = None) -> None:
        """Warn once if a time is so far from the newest one that it is hardly in its unit."""
        aging = self._setup.aging
        if aging is None or self._said_unit:
            return
        why = aging.other_unit(self._time if newest is None else newest, time)
        if why is not None:
            self._said_unit = True
            warnings.warn(why, stacklevel=stacklevel)

    # inside

    def _known(self, task: Task) -> TaskState:
        state = self._book.get(task_name(task))
        if state is None:
            raise UnknownTask(f"task {task!r} is not known to this agent")
        return state

    def _opened(self, task: Task, known: TaskState | None, design: Any) -> TaskState:
        """The state of a task; of a new one, if it is not known."""
        if known is None:
            if design is None:
                return self._blank
            return self._setup.new_state(self._meta, checks.array("design", design, ndim=2))
        if design is not None and (
            known.design is None or not np.array_equal(known.design, design)
        ):
            raise ValueError(f"task {task!r} was opened with another design; it cannot change")
        return known


class AdaTS(Agent):
    """Thompson sampling with the meta-posterior marginalised out (paper, Algorithm 1).

    Exact for tasks one after another, as in the paper, and for interleaved ones: a task's belief
    uses its own rewards and all that the others taught.
    """

    _source = Marginal()


class MetaTS(Agent):
    """Thompson sampling with a prior drawn once a task from the meta-posterior, then kept."""

    _source = Drawn()


class TS(Agent):
    """Thompson sampling that solves every task alone, from the marginal prior."""

    _source = Fixed()


class OracleTS(Agent):
    """Thompson sampling that is told mu_*: the reference that nobody can run in practice."""

    def __init__(self, meta: MetaBelief, mu: Any, **options: Any) -> None:
        self._source = Known(mu)
        self._source.check(meta)
        super().__init__(meta, **options)


AGENTS: dict[str, type[Agent]] = {cls.__name__: cls for cls in (AdaTS, MetaTS, TS, OracleTS)}


def load(path: AnyPath, *, oracle: Oracle | None = None, policy: Policy | None = None) -> Any:
    """Read an agent from a file that `save` wrote; it goes on bit for bit.

    An oracle or a policy of your own is not in the file: give it again.
    """
    name, state = agent_files.read_agent(path, oracle=oracle, policy=policy)
    return AGENTS[name]._made_of(state)  # noqa: SLF001
