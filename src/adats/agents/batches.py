"""Many decisions, or many rewards, at once: in arrays over tasks, some thousand tasks at a time."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from adats.agents.aging import NEVER, ages_of
from adats.agents.batch_requests import BatchRequest, Tasks, names_of, part_of
from adats.agents.policies import Scene, policy_to_dict
from adats.agents.steps import Setup
from adats.agents.task_columns import NOT_A_ROW, ColumnBook, Layout
from adats.agents.task_state import DictBook, TaskState
from adats.models.core.draws import Draws
from adats.models.core.types import BoolArray, FloatArray, IntArray, MetaBelief, Task

NUMBERS = 1 << 18  # in the statistics of so many tasks as are decided for at a time
MOST_TASKS = 16384  # at a time
RENEWALS = 4  # of all digests, at most, after a batch


class Answers(NamedTuple):
    """An arm for each task, and how likely it was, if that was asked for."""

    actions: IntArray
    chances: FloatArray | None


class Rewards(NamedTuple):
    """Rewards of many tasks, one a row."""

    tasks: Tasks
    pulled: Any  # arms by index, or rows of features
    sums: FloatArray  # what each adds to the statistics, a column a reward
    decided: BoolArray  # whether each is of a decision
    times: FloatArray | None = None  # where rewards age


class Moment(NamedTuple):
    """Decisions are made `now`; what all tasks taught is as it weighed at another time."""

    since: float
    now: float


STILL = Moment(NEVER, NEVER)  # where nothing ages


def chunks(tasks: int, size: int = MOST_TASKS) -> Iterator[slice]:
    """Slices of so many tasks."""
    return (slice(i, min(i + size, tasks)) for i in range(0, tasks, size))


def why_one_by_one(setup: Setup, meta: MetaBelief, request: BatchRequest) -> str | None:
    """Why decisions of such an agent cannot be made at once; None if they can."""
    if setup.explore_first:
        return "forced exploration"
    if not setup.rule.single:
        return "an oracle that chooses sets of arms"
    if policy_to_dict(setup.rule.policy) is None:
        return "a policy of your own"
    if meta.row_size == 0:
        return f"a {meta.model} model with features"
    belief = setup.source.posterior_many(meta, meta.row_of(meta.empty())[None])
    if belief is None:
        return f"{type(setup.source).__name__.lower()} priors of a {meta.model} model"
    if setup.aging is not None:
        if setup.counts_pending:
            return "an index where rewards age"
        if setup.source.LEARNS and not meta.APART_MANY:
            return f"half-lives with a {meta.model} model"
    if request.features is not None and request.features.ndim == 3 and not setup.rule.samples:
        return "an index with features that differ between tasks"
    if request.propensities and setup.rule.samples:
        first = np.zeros(1, dtype=np.intp)
        if setup.arms.n_features or belief.best_chance_many(first, None) is None:
            return f"propensities of a {meta.model} model"
    return None


# tasks in columns


def layout_of(setup: Setup, meta: MetaBelief, blank: TaskState) -> Layout:
    draws = setup.source.draw(meta, np.random.default_rng(0)) is not None
    size = meta.draw_size if draws else 0
    return Layout.of(meta, blank, size, setup.counts_pending, setup.aging is not None)


def in_columns(layout: Layout, states: DictBook, tasks: Tasks | None = None) -> ColumnBook:
    """These tasks, or all, as far as they are known, in a book of columns."""
    book = ColumnBook(layout)
    names = states if tasks is None else names_of(tasks)
    for task in names:
        if task in states:
            book.put(task, states[task])
    return book


def _opened(
    book: ColumnBook, setup: Setup, meta: MetaBelief, tasks: Tasks, rng: Any
) -> tuple[IntArray, list[Task]]:
    """The row of each task, and those tasks that are new: they are opened."""
    at = book.rows(tasks)
    if at.min(initial=0) >= NOT_A_ROW:
        return at, []
    names = names_of(tasks)
    fresh = list(dict.fromkeys(names[i] for i in np.flatnonzero(at < NOT_A_ROW).tolist()))
    blank = setup.new_state(meta)
    states = [setup.drawn(meta, blank, rng) for _ in fresh] if book.layout.mu else [blank]
    rows = book.open(fresh)
    book.array[rows] = book.layout.pack(states)
    return book.rows(tasks), fresh


# decisions


def decide_many(
    setup: Setup,
    meta: MetaBelief,
    book: ColumnBook,
    request: BatchRequest,
    rng: Draws,
    moment: Moment = STILL,
) -> Answers:
    """Arms for all tasks, in this order, without a reward between them; all, or none of them."""
    at, fresh = _opened(book, setup, meta, request.tasks, rng.generator(0))
    before = book.array[at] if setup.counts_pending else None
    try:
        return _decided(setup, meta, book, at, request, rng, moment)
    except BaseException:
        if before is not None:
            book.array[at] = before
        for task in fresh:
            book.delete(task)
        raise


def _decided(
    setup: Setup,
    meta: MetaBelief,
    book: ColumnBook,
    at: IntArray,
    request: BatchRequest,
    rng: Draws,
    moment: Moment,
) -> Answers:
    actions = np.empty(at.size, dtype=np.intp)
    chances = np.empty(at.size) if request.propensities else None
    rounds = passes(at) if setup.counts_pending else [np.arange(at.size)]
    for places in rounds:
        for part in chunks(places.size, size_of(book.layout)):
            some = places[part]
            asked = asked_of(book.layout, book.array[at[some]], part_of(request, some))
            chosen, chance = choose_many(setup, meta, asked, rng.take(some), moment)
            actions[some] = chosen
            if chances is not None:
                chances[some] = chance
            if setup.counts_pending:
                _await(book, at[some], features_of(request.features, some, chosen), chosen)
    return Answers(actions, chances)


class Asked(NamedTuple):
    """What is asked of some tasks, and all that is known of them."""

    rows: FloatArray  # statistics
    request: BatchRequest
    round: FloatArray | None = None  # for indices, a column
    pending: FloatArray | None = None
    times: FloatArray | None = None  # of their last rewards, where rewards age


def size_of(layout: Layout) -> int:
    """Of how many tasks a processor's cache can hold the statistics."""
    return max(NUMBERS // layout.stats, 64)


def asked_of(layout: Layout, states: FloatArray, request: BatchRequest) -> Asked:
    """A request of tasks with these states, rows of a book."""
    stats, rounds, _, _, pending, time = layout.slices
    waiting = None
    if layout.pending:
        waiting = np.nan_to_num(states[:, pending]).reshape(-1, *layout.pending)
    times = states[:, time.start] if layout.times else None
    rows = np.ascontiguousarray(states[:, stats])
    return Asked(rows, request, states[:, rounds] + 1.0, waiting, times)


def _beliefs(setup: Setup, meta: MetaBelief, asked: Asked, moment: Moment) -> Any:
    """Of theta in each task; where rewards age, as `Setup.present` has it."""
    aging, rows = setup.aging, asked.rows
    if aging is None or asked.times is None:
        return setup.source.posterior_many(meta, rows)
    ages = ages_of(asked.times, moment.now)
    aged = rows * aging.task_weights(ages)[:, None]
    if not setup.source.LEARNS:
        return setup.source.posterior_many(meta, aged)
    digests, old = meta.digest_many(aged), meta.digest_many(rows)
    changes = digests.messages - aging.prior_weights(ages)[:, None] * old.messages
    return meta.faded(aging.faded(*moment)).posterior_apart_many(digests, changes)


def choose_many(
    setup: Setup, meta: MetaBelief, asked: Asked, rng: Draws, moment: Moment = STILL
) -> tuple[IntArray, FloatArray | None]:
    """An arm for each task, and how likely it was, if that is asked for."""
    rule, tasks, request = setup.rule, len(asked.rows), asked.request
    belief = _beliefs(setup, meta, asked, moment)
    scene = Scene(belief, rng, request.features)  # type: ignore[arg-type]
    if setup.counts_pending:
        pending = asked.pending if asked.pending is not None and asked.pending.any() else None
        share = setup.share_of(meta, request.features)
        scene = scene._replace(
            round=asked.round, horizon=request.horizon, pending=pending, share=share
        )
    values = rule.policy.values(scene)
    allowed = request.allowed
    if allowed is not None:
        values = np.where(allowed, values, -np.inf)
        allowed = np.broadcast_to(allowed, values.shape)
    own = actions = values.argmax(axis=1)
    if rule.epsilon:
        strays = rng.random(tasks) < rule.epsilon
        actions = np.where(strays, _any(values.shape[1], allowed, rng.random(tasks)), own)
    if not request.propensities:
        return actions, None
    if rule.samples:
        chances = belief.best_chance_many(actions, allowed)
    else:
        chances = (actions == own).astype(np.float64)
    open_ = values.shape[1] if allowed is None else allowed.sum(axis=1)
    return actions, (1 - rule.epsilon) * chances + rule.epsilon / open_


def _any(arms: int, allowed: BoolArray | None, uniform: FloatArray) -> IntArray:
    """Any allowed arm of each task."""
    if allowed is None:
        return np.minimum((uniform * arms).astype(np.intp), arms - 1)
    places = np.cumsum(allowed, axis=1)
    wanted = np.floor(uniform * places[:, -1]) + 1
    found: IntArray = (places < wanted[:, None]).sum(axis=1)
    return found


def passes(at: IntArray) -> Iterator[IntArray]:
    """Places of the first time that each row is asked for, then of the second time, and so on."""
    order = at.argsort(kind="stable")
    starts = np.flatnonzero(np.diff(at[order], prepend=-1))
    times = np.empty(at.size, dtype=np.intp)
    times[order] = np.arange(at.size) - np.repeat(starts, np.diff(starts, append=at.size))
    return (np.flatnonzero(times == k) for k in range(int(times.max(initial=-1)) + 1))


def features_of(features: FloatArray | None, some: IntArray, chosen: IntArray) -> FloatArray | None:
    """Those of the chosen arms, at some places of a request."""
    if features is None:
        return None
    return features[some, chosen] if features.ndim == 3 else features[chosen]


def _await(book: ColumnBook, rows: IntArray, pulled: FloatArray | None, arms: IntArray) -> None:
    """After decisions whose rewards are not known yet, each of another task."""
    _, rounds, _, _, pending, _ = book.layout.slices
    book.array[rows, rounds] += 1.0
    book.array[rows, pending] = np.nan_to_num(book.array[rows, pending])
    if pulled is None:
        book.array[rows, pending.start + arms] += 1.0
    else:
        book.array[rows, pending] += _grams(pulled)


def _grams(rows: FloatArray) -> FloatArray:
    """xxᵀ of every row x, flat."""
    grams: FloatArray = rows[:, :, None] * rows[:, None, :]
    return grams.reshape(len(rows), rows.shape[1] ** 2)


# rewards


def learn_many(
    setup: Setup,
    meta: MetaBelief,
    book: ColumnBook,
    rewards: Rewards,
    rng: Any,
    since: float = NEVER,
) -> MetaBelief:
    """The meta-belief after all these rewards; the book has the new statistics. Where rewards age,
    what all tasks taught is given as it weighed `since`, and is then as at the newest reward.

    Nothing is changed before all of it is worked out.
    """
    aging, times = setup.aging, rewards.times
    now = since if times is None else float(times.max(initial=since))
    grown = (
        meta if aging is None or not setup.source.LEARNS else meta.faded(aging.faded(since, now))
    )
    at, fresh = _opened(book, setup, grown, rewards.tasks, rng)
    layout = book.layout
    try:
        touched, place = np.unique(at, return_inverse=True)
        order = place.argsort(kind="stable")
        starts = np.searchsorted(place[order], np.arange(touched.size + 1))
        stats = layout.slices[0]
        found = []
        for part in chunks(touched.size):
            some = order[starts[part.start] : starts[part.stop]]
            rows = np.ascontiguousarray(book.array[touched[part], stats])
            new, task, sums = rows.copy(), place[some] - part.start, rewards.sums[:, some]
            if aging is not None and times is not None:
                had = book.array[touched[part], layout.slices[-1].start]
                first = starts[part.start : part.stop] - starts[part.start]
                last = np.maximum(had, np.maximum.reduceat(times[some], first))
                new *= aging.task_weights(ages_of(had, last))[:, None]
                sums = sums * aging.task_weights(last[task] - times[some])
            pulled = rewards.pulled[some]
            actions = pulled if meta.n_features else (meta.n_arms, pulled)
            kind: Any = layout.kind
            kind.add_many(new, task, actions, sums)
            if setup.source.LEARNS:
                digests, old = meta.digest_many(new, kept=False), meta.digest_many(rows)
                if aging is None:
                    gain = digests.message_sum - old.message_sum
                else:
                    gain = aging.prior_weights(now - last) @ digests.messages
                    gain = gain - aging.prior_weights(ages_of(had, now)) @ old.messages
                new, grown = digests.rows, grown.absorb(gain)
            found.append((part, new if aging is None else np.column_stack([new, last])))
    except BaseException:
        for task in fresh:
            book.delete(task)
        raise
    for part, new in found:
        book.array[touched[part], stats] = new[:, : layout.stats]
        if layout.times:
            book.array[touched[part], layout.slices[-1]] = new[:, layout.stats :]
    if setup.counts_pending:
        _arrived(book, at, rewards, bool(meta.n_features))
    return _brought_up_to_date(book, grown, touched, 2 * at.size) if meta.RENEWS else grown


def _arrived(book: ColumnBook, at: IntArray, rewards: Rewards, rows_of_features: bool) -> None:
    """Count rounds and pending pulls after rewards have come in."""
    _, rounds, _, _, pending, _ = book.layout.slices
    np.add.at(book.array, (at[~rewards.decided], rounds.start), 1.0)
    decided = np.flatnonzero(rewards.decided & ~np.isnan(book.array[at, pending.start]))
    some, pulled = at[decided], rewards.pulled[decided]
    if rows_of_features:
        np.subtract.at(book.array[:, pending], some, _grams(pulled))
    else:
        np.subtract.at(book.array, (some, pending.start + pulled), 1.0)
        book.array[some, pending] = np.maximum(book.array[some, pending], 0.0)


def _brought_up_to_date(
    book: ColumnBook, meta: MetaBelief, touched: IntArray, most: int
) -> MetaBelief:
    """Digests that have become stale found anew: of the tasks of this batch, and of some others."""
    stats = book.layout.slices[0]
    generation = meta.generation
    meta = meta.renewed()
    for _ in range(RENEWALS):
        if meta.generation == generation:
            break
        all_rows = book.row_numbers()
        of_batch = np.isin(all_rows, touched)
        rows = np.concatenate([all_rows[of_batch], all_rows[~of_batch]])
        for part in chunks(min(most, rows.size)):
            some = rows[part]
            old = np.ascontiguousarray(book.array[some, stats])
            stale = meta.stale_rows(old)
            if stale.any():
                book.array[some[stale], stats], meta = meta.renew_many(old[stale])
        generation = meta.generation
        meta = meta.renewed_if_moved()
    return meta
