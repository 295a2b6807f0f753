"""`ask_many` and `tell_many` of an agent: one batch of decisions, one batch of rewards."""

import warnings
from collections import deque
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from adats.agents import batch_requests, batches, decision_numbers
from adats.agents.aging import clock_time
from adats.agents.change_detection import Detector
from adats.agents.decision import Decision
from adats.agents.decision_numbers import OF_A_BATCH
from adats.agents.decisions import Column, Decisions, columns_of, named, task_column
from adats.agents.renewals import Renewals
from adats.agents.reward_tables import (
    bad_rows,
    decision_ids,
    reward_rows,
    rewards_of,
    tasks_in,
    times_of,
)
from adats.agents.steps import Setup
from adats.agents.task_columns import NOT_A_ROW, ColumnBook
from adats.agents.task_state import DictBook, TaskState
from adats.models.core import checks
from adats.models.core.draws import StreamDraws
from adats.models.core.errors import FinishedTask, RowsError
from adats.models.core.types import BoolArray, FloatArray, IntArray, MetaBelief, Rng, Task

MANY = 10_000  # tasks from which on a batch turns to columns


class BatchVerbs:
    """Many tasks at once; `Agent` has what it is made of."""

    _setup: Setup
    _meta: MetaBelief
    _book: DictBook | ColumnBook
    _rng: Rng
    _blank: TaskState
    _time: float  # since when what all tasks taught has not lost weight
    _clock: str
    _decisions: int
    _number: int  # of the agent, in the numbers of its decisions
    _rewarded: BoolArray  # which decisions of batches have their reward
    _columns: bool | None  # whether tasks are in columns; None: if there are many
    _renewals: Renewals
    _kept: dict[Task, TaskState | None] | None
    _lately_rewarded: set[int | str]  # the last decisions with a reward, and in their order
    _lately: deque[int | str]
    _said_one_by_one: bool
    _detector: Detector | None

    def ask_many(
        self,
        tasks: Any,
        *,
        features: ArrayLike | None = None,
        allowed: Any = None,
        design: ArrayLike | None = None,
        horizon: Any = None,
        propensities: bool = False,
        time: float | None = None,
    ) -> Decisions:
        """Choose an action for each of many tasks, as `ask` would in this order with no `tell`
        between them; where a task comes again, after all that come for the first time.

        `features` are those of all tasks, or have a first axis for the task; `allowed` is a list of
        arms, or an array of yes and no, a row a task; `horizon` is a number, or one a task.
        `time` is that of all of them, where rewards age.
        """
        names = batch_requests.tasks_of(tasks)
        allowed = list(allowed) if isinstance(allowed, Iterator) else allowed
        reason = "a design" if design is not None else self._why_apart(names)
        own = reason is not None
        request = self._request(names, features, allowed, horizon, propensities, own_designs=own)
        if reason is None:
            reason = batches.why_one_by_one(self._setup, self._meta, request)
        book = self._columns_of(names) if reason is None else None
        now = None if self._setup.aging is None else self._now(time, asked=True)
        before = self._rng.bit_generator.state
        try:
            if book is None:
                self._check_not_finished(names)
                return self._ask_each(request, allowed, {"design": design, "time": now}, reason)
            draws = StreamDraws(self._rng)
            moment = batches.STILL if now is None else batches.Moment(self._time, now)
            answers = batches.decide_many(self._setup, self._meta, book, request, draws, moment)
        except BaseException:
            self._rng.bit_generator.state = before
            raise
        self._put_back(book)
        if propensities and self._setup.counts_pending and not self._setup.rule.epsilon:
            self._warn()
        numbers = decision_numbers.new_numbers(self._number, self._decisions, len(names))
        self._decisions += len(names)
        places = np.arange(len(names))
        return Decisions(
            task_column(names),
            named(self._setup.arms, answers.actions),
            numbers,
            answers.chances,
            batches.features_of(request.features, places, answers.actions),
            None if now is None else np.full(len(names), now),
        )

    def tell_many(self, frame: Any) -> None:
        """Learn from many rewards: a table with the columns task, action and reward, and
        decision_id if `ask_many` decided; of pandas, Polars, Arrow or Ibis, a dict of columns, or
        the path of a Parquet or CSV file.

        As good as `tell` for each row, but checked as a whole: if a row is bad nothing is changed.
        Where rewards are binary or counts, the columns pulls and successes may stand in place of
        reward; where rewards age there may be a column time. Of arms whose features come with every
        decision, those are the columns x0, x1, ...
        """
        reason = None
        setup = self._setup
        if self._detector is not None:
            reason = "a detector of changes, which takes one reward after the other"
        elif setup.keep != 1.0:
            reason = "half-lives in pulls, which take one reward after the other"
        elif setup.aging is not None and self._meta.RENEWS:
            reason = f"half-lives with a {self._meta.model} model"
        elif self._meta.row_size == 0:
            reason = f"a {self._meta.model} model with features"
        elif not setup.rule.single:
            reason = "an oracle that chooses sets of arms"
        elif setup.arms.come_with_decisions:
            frame = columns_of(frame)
            reason = self._why_apart(tasks_in(frame))
        if reason is not None:
            self._tell_each(columns_of(frame), reason)
            return
        aged = setup.aging is not None
        summed = not (setup.counts_pending or aged)
        table = rewards_of(frame, setup.arms, self._meta, summed=summed, aged=aged)
        rewards, counts = table.rewards, self._counts_of(table.numbers)
        tasks, newest = rewards.tasks, self._time
        if aged and len(tasks):
            times = self._times_of(columns_of(frame), rewards.times)
            rewards, newest = rewards._replace(times=times), max(newest, float(times.max()))
        reason = self._why_apart(tasks)
        if reason is not None:
            self._tell_each(columns_of(frame), reason)
            return
        if rewards.times is not None:
            self._check_unit(newest, stacklevel=3)
            self._check_unit(float(rewards.times.min(initial=newest)), stacklevel=3, newest=newest)
        book = self._columns_of(tasks, others=self._meta.RENEWS)
        before = self._rng.bit_generator.state
        try:
            meta = batches.learn_many(setup, self._meta, book, rewards, self._rng, self._time)
        except BaseException:
            self._rng.bit_generator.state = before
            raise
        self._meta, self._time = meta, newest
        self._renewals.look_again()
        self._put_back(book)
        if counts is not None:
            self._rewarded = decision_numbers.with_rewards(self._rewarded, counts)

    def _times_of(self, columns: dict[str, Column], given: FloatArray | None) -> FloatArray:
        """When each reward was: now, if the table does not say so."""
        if given is not None:
            return given
        if "decision_id" in columns:
            raise ValueError(
                "where rewards age, those of decisions have a time: join the column time of "
                "ask_many too, or give the time of each reward"
            )
        return np.full(len(columns["task"]), clock_time(self._clock, self._decisions))

    def _counts_of(self, numbers: Any) -> IntArray | None:
        """Places of decisions in the count of this agent; raises if they cannot be rewarded."""
        if numbers is None:
            return None
        known = (self._number, self._decisions, self._rewarded)
        return decision_numbers.counts_of(np.asarray(numbers), *known)

    # what is asked for

    def _request(
        self,
        tasks: batch_requests.Tasks,
        features: Any,
        allowed: Any,
        horizon: Any,
        propensities: bool,
        *,
        own_designs: bool,
    ) -> batch_requests.BatchRequest:
        arms, count = self._setup.arms, len(tasks)
        dim = np.shape(features)[-1] if own_designs and np.ndim(features) else arms.n_features
        rows: Any = None
        if np.ndim(features) == 3:
            rows = checks.array("features", features)
            checks.modest("features", rows.ravel())
            if arms.features is not None or (len(rows), rows.shape[2]) != (count, dim):
                raise ValueError(
                    f"features of shape {rows.shape}, for {count} tasks and arms of {dim} features"
                )
        elif arms.n_features or features is not None:
            rows = arms.rows(features, dim)
        mask = batch_requests.allowed_mask(
            arms, allowed, count, None if rows is None else rows.shape[-2]
        )
        left = batch_requests.horizon_of(horizon, count)
        return batch_requests.BatchRequest(tasks, rows, mask, left, propensities)

    # the book

    def _columns_of(self, tasks: batch_requests.Tasks, *, others: bool = False) -> ColumnBook:
        """A book in columns that has all these tasks which are known, and `others` too."""
        if isinstance(self._book, DictBook):
            many = len(tasks) + len(self._book) >= MANY
            if self._columns is False or not (many or self._columns):
                layout = batches.layout_of(self._setup, self._meta, self._blank)
                return batches.in_columns(layout, self._book, None if others else tasks)
            self._use_columns()
        assert isinstance(self._book, ColumnBook)
        return self._book

    def _use_columns(self) -> None:
        if isinstance(self._book, DictBook) and self._meta.row_size:
            layout = batches.layout_of(self._setup, self._meta, self._blank)
            self._book = batches.in_columns(layout, self._book)

    def _put_back(self, book: ColumnBook) -> None:
        """What a batch has changed, if the agent keeps its tasks elsewhere."""
        if isinstance(self._book, DictBook):
            self._book.update(book)

    def _keep(self, states: dict[Task, TaskState]) -> None:
        """States that have all changed, in a book of the same kind as before."""
        in_columns, self._book = isinstance(self._book, ColumnBook), DictBook(states)
        self._blank = self._setup.new_state(self._meta)
        if in_columns:
            self._use_columns()

    def _why_apart(self, tasks: batch_requests.Tasks) -> str | None:
        """Why some of these tasks can only be looked at one by one."""
        if isinstance(self._book, ColumnBook):
            apart = bool((self._book.rows(tasks) == NOT_A_ROW).any())
        else:
            states = filter(None, map(self._book.get, batch_requests.names_of(tasks)))
            apart = any(state.finished or state.design is not None for state in states)
        return "tasks that are finished or have designs" if apart else None

    def _check_not_finished(self, tasks: batch_requests.Tasks) -> None:
        names = batch_requests.names_of(tasks)
        states = map(self._book.get, names)
        bad = [i for i, state in enumerate(states) if state is not None and state.finished]
        if bad:
            why = f"task {names[bad[0]]!r} is finished: it takes rewards, but no more asks"
            raise FinishedTask(str(RowsError(bad, why)))

    # one by one

    def _say_one_by_one(self, reason: str | None) -> None:
        if not self._said_one_by_one:
            self._said_one_by_one = True
            warnings.warn(f"{reason}: such batches are worked out one by one", stacklevel=4)

    def _ask_each(
        self, request: batch_requests.BatchRequest, allowed: Any, same: Any, reason: str | None
    ) -> Decisions:
        """In the order of a batch: tasks that come again, after all others."""
        self._say_one_by_one(reason)
        names = batch_requests.names_of(request.tasks)
        kept = {task: self._book.get(task) for task in names}
        index = {task: i for i, task in enumerate(kept)}
        at = np.array([index[task] for task in names], dtype=np.intp)
        found: list[Decision | None] = [None] * len(names)
        meta, count = (self._meta, self._time), self._decisions
        try:
            for i in np.concatenate([*batches.passes(at), at[:0]]).tolist():
                options = batch_requests.options_at(request, i, self._setup.arms, allowed)
                found[i] = self.ask(names[i], **same, **options)
        except BaseException as error:
            self._restore(kept, meta, count)
            if isinstance(error, ValueError):
                raise RowsError([i], str(error)) from None
            raise
        made = Decisions.of([d for d in found if d is not None], self._number * OF_A_BATCH)
        now = same["time"]
        return made if now is None else replace(made, time=np.full(len(made), now))

    def _tell_each(self, columns: dict[str, Column], reason: str) -> None:
        """All rewards, or none of them."""
        self._say_one_by_one(reason)
        times = None
        if self._setup.aging is not None:
            times = self._times_of(columns, times_of(columns))
        rows = list(reward_rows(columns, self._setup.arms, times))
        counts = self._counts_of(decision_ids(columns))
        self._kept = {task: self._book.get(task) for task in tasks_in(columns)}
        meta, count, rewarded = (self._meta, self._time), self._decisions, self._rewarded
        renewals, detector = copy(self._renewals), copy(self._detector)
        before, lately = self._rng.bit_generator.state, frozenset(self._lately_rewarded)
        try:
            for i, options in enumerate(rows):  # noqa: B007
                self.tell(**options)
        except BaseException as error:
            self._restore(self._kept, meta, count)
            self._rewarded, self._renewals, self._detector = rewarded, renewals, detector
            self._rng.bit_generator.state = before
            self._lately_rewarded &= lately
            self._lately = deque(n for n in self._lately if n in lately)
            if isinstance(error, ValueError):
                more = bad_rows(rows[i + 1 :], self._setup.arms, self._meta)
                raise RowsError([i, *more], str(error)) from None
            raise
        finally:
            self._kept = None
        if counts is not None:
            self._rewarded = decision_numbers.with_rewards(rewarded, counts)

    def _restore(
        self, kept: dict[Task, TaskState | None], taught: tuple[MetaBelief, float], count: int
    ) -> None:
        (self._meta, self._time), self._decisions = taught, count
        self._renewals.look_again()
        for task, state in kept.items():
            if state is not None:
                self._book.put(task, state)
            elif task in self._book:
                self._book.delete(task)

    if TYPE_CHECKING:  # of `Agent`
        ask: Callable[..., Decision]
        tell: Callable[..., None]
        _warn: Callable[[], None]
        _now: Callable[..., float]
        _check_unit: Callable[..., None]
