"""Many decisions, or many rewards, at once: in arrays over tasks, some thousand tasks at a time."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from adats.agents.arms import Arms
from adats.agents.errors import RowsError
from adats.agents.policies import Scene, policy_to_dict
from adats.agents.steps import Setup
from adats.agents.task_columns import NOT_A_ROW, ColumnBook, Layout
from adats.agents.task_state import DictBook, TaskState
from adats.models.core import checks
from adats.models.core.draws import Draws
from adats.models.core.types import BoolArray, FloatArray, IntArray, MetaBelief, Task

NUMBERS = 1 << 18  # in the statistics of so many tasks as are decided for at a time
MOST_TASKS = 16384  # at a time
RENEWALS = 4  # of all digests, at most, after a batch
Tasks = list[Task] | IntArray


class Request(NamedTuple):
    """What is asked of many tasks at once; arrays have a row a task."""

    tasks: Tasks
    features: FloatArray | None = None  # of the arms: the same for all tasks, or for each its own
    allowed: BoolArray | None = None  # (arms,) or (tasks, arms)
    horizon: IntArray | None = None  # a column; or one number for all
    propensities: bool = False


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


def chunks(tasks: int, size: int = MOST_TASKS) -> Iterator[slice]:
    """Slices of so many tasks."""
    return (slice(i, min(i + size, tasks)) for i in range(0, tasks, size))


# what is asked for, checked


def tasks_of(values: Any) -> Tasks:
    """Names of tasks: an array of whole numbers, or a list of strings and numbers."""
    given = values if isinstance(values, (np.ndarray, list)) else list(values)
    if isinstance(given, np.ndarray) and given.dtype.kind in "iu":
        return given.astype(np.intp, copy=False)
    names: list[Any] = given.tolist() if isinstance(given, np.ndarray) else given
    kinds = set(map(type, names))
    if kinds <= {str}:
        return names
    if kinds <= {int}:
        return np.array(names, dtype=np.intp)
    if kinds <= {str, int}:
        return names
    bad = [i for i, name in enumerate(names) if type(name) not in (str, int)]
    raise RowsError(bad, f"a task is named by a string or an integer, got {names[bad[0]]!r}")


def allowed_mask(arms: Arms, allowed: Any, tasks: int, rows: int | None) -> BoolArray | None:
    """Which arms may be chosen: a list of them for all tasks, or yes and no for each."""
    if not (isinstance(allowed, np.ndarray) and allowed.dtype == bool and allowed.ndim == 2):
        return arms.mask(allowed, rows)
    count = arms.count if rows is None else rows
    if allowed.shape != (tasks, count):
        raise ValueError(f"allowed has shape {allowed.shape}, not ({tasks}, {count})")
    mask = allowed if arms.not_retired is None else allowed & arms.not_retired
    none = np.flatnonzero(~mask.any(axis=1))
    if none.size:
        raise RowsError(none, "allowed leaves no arm to choose")
    return mask


def horizon_of(horizon: Any, tasks: int) -> IntArray | None:
    """One number for all tasks, or one for each."""
    if horizon is None:
        return None
    if np.ndim(horizon) == 0:
        return np.array([[checks.count_of("horizon", horizon)]])
    given = np.asarray(horizon)
    if given.shape != (tasks,) or given.dtype.kind not in "iu":
        raise ValueError(f"horizon is a whole number, or one for each of {tasks} tasks")
    if (given < 1).any():
        bad = np.flatnonzero(given < 1)
        raise RowsError(bad, f"horizon must be at least 1, got {given[bad[0]]}")
    return given[:, None]


def options_at(request: Request, i: int, arms: Arms, allowed: Any) -> dict[str, Any]:
    """What `ask` is given at one place of a request."""
    features, horizon = request.features, request.horizon
    if features is not None:
        features = features[i] if features.ndim == 3 else features
        features = None if arms.features is not None else features
    if request.allowed is not None and request.allowed.ndim == 2:
        mask = np.flatnonzero(request.allowed[i])
        allowed = mask.tolist() if arms.names is None else [arms.names[k] for k in mask.tolist()]
    left = None if horizon is None else int(horizon[i if len(horizon) > 1 else 0, 0])
    return {
        "features": features,
        "allowed": allowed,
        "horizon": left,
        "propensities": request.propensities,
    }


def why_one_by_one(setup: Setup, meta: MetaBelief, request: Request) -> str | None:
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
    if request.features is not None and request.features.ndim == 3 and not setup.rule.samples:
        return "an index with features that differ between tasks"
    if request.propensities and setup.rule.samples:
        first = np.zeros(1, dtype=np.intp)
        if setup.arms.n_features or belief.best_chance_many(first, None) is None:
            return f"propensities of a {meta.model} model"
    return None


# tasks in columns


def layout_of(setup: Setup, meta: MetaBelief, blank: TaskState) -> Layout:
    draws = setup.source.draw(meta, np.random.default_rng(0))
    size = 0 if draws is None else draws.size
    return Layout.of(meta, blank, size, setup.counts_pending)


def in_columns(layout: Layout, states: DictBook, tasks: Tasks | None = None) -> ColumnBook:
    """These tasks, or all, as far as they are known, in a book of columns."""
    book = ColumnBook(layout)
    names = states if tasks is None else tasks.tolist() if isinstance(tasks, np.ndarray) else tasks
    for task in names:
        if task in states:
            book.put(task, states[task])
    return book


def _opened(book: ColumnBook, setup: Setup, meta: MetaBelief, tasks: Tasks, rng: Any) -> IntArray:
    """The row of each task; new ones are opened."""
    at = book.rows(tasks)
    if at.size and at.min() >= NOT_A_ROW:
        return at
    names = tasks.tolist() if isinstance(tasks, np.ndarray) else tasks
    fresh = list(dict.fromkeys(names[i] for i in np.flatnonzero(at < NOT_A_ROW).tolist()))
    rows = book.open(fresh)
    blank = setup.new_state(meta)
    book.array[rows] = book.layout.pack(blank)
    if book.layout.mu:
        _, _, mu, _, _ = book.layout.slices
        book.array[rows, mu] = [setup.source.draw(meta, rng) for _ in fresh]
    return book.rows(tasks)


# decisions


def decide_many(
    setup: Setup, meta: MetaBelief, book: ColumnBook, request: Request, rng: Draws
) -> Answers:
    """Arms for all tasks, in this order, without a reward between them."""
    at = _opened(book, setup, meta, request.tasks, rng.generator(0))
    actions = np.empty(at.size, dtype=np.intp)
    chances = np.empty(at.size) if request.propensities else None
    rounds = passes(at) if setup.counts_pending else [np.arange(at.size)]
    for places in rounds:
        for part in chunks(places.size, size_of(book.layout)):
            some = places[part]
            asked = asked_of(book.layout, book.array[at[some]], _at(request, some))
            chosen, chance = choose_many(setup, meta, asked, rng.take(some))
            actions[some] = chosen
            if chances is not None:
                chances[some] = chance
            if setup.counts_pending:
                _await(book, at[some], features_of(request.features, some, chosen), chosen)
    return Answers(actions, chances)


class Asked(NamedTuple):
    """What is asked of some tasks, and all that is known of them."""

    rows: FloatArray  # statistics
    request: Request
    round: FloatArray | None = None  # for indices, a column
    pending: FloatArray | None = None


def size_of(layout: Layout) -> int:
    """Of how many tasks a processor's cache can hold the statistics."""
    return max(NUMBERS // layout.stats, 64)


def _at(request: Request, some: IntArray) -> Request:
    """What is asked at some places of the request."""
    features, allowed, horizon = request.features, request.allowed, request.horizon
    return request._replace(
        features=features[some] if features is not None and features.ndim == 3 else features,
        allowed=allowed[some] if allowed is not None and allowed.ndim == 2 else allowed,
        horizon=horizon[some] if horizon is not None and len(horizon) > 1 else horizon,
    )


def asked_of(layout: Layout, states: FloatArray, request: Request) -> Asked:
    """A request of tasks with these states, rows of a book."""
    stats, rounds, _, _, pending = layout.slices
    waiting = None
    if layout.pending:
        waiting = np.nan_to_num(states[:, pending]).reshape(-1, *layout.pending)
    return Asked(np.ascontiguousarray(states[:, stats]), request, states[:, rounds] + 1.0, waiting)


def choose_many(
    setup: Setup, meta: MetaBelief, asked: Asked, rng: Draws
) -> tuple[IntArray, FloatArray | None]:
    """An arm for each task, and how likely it was, if that is asked for."""
    rule, tasks, request = setup.rule, len(asked.rows), asked.request
    belief = setup.source.posterior_many(meta, asked.rows)
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
    _, rounds, _, _, pending = book.layout.slices
    book.array[rows, rounds] += 1.0
    book.array[rows, pending] = np.nan_to_num(book.array[rows, pending])
    if pulled is None:
        book.array[rows, pending.start + arms] += 1.0
    else:
        gram = pulled[:, :, None] * pulled[:, None, :]
        book.array[rows, pending] += gram.reshape(len(rows), -1)


# rewards


def learn_many(
    setup: Setup, meta: MetaBelief, book: ColumnBook, rewards: Rewards, rng: Any
) -> MetaBelief:
    """The meta-belief after all these rewards; the book has the new statistics.

    Nothing is changed before all of it is worked out.
    """
    known, layout = book.rows(rewards.tasks), book.layout
    names = rewards.tasks.tolist() if isinstance(rewards.tasks, np.ndarray) else rewards.tasks
    at = _opened(book, setup, meta, rewards.tasks, rng)
    fresh = [names[i] for i in np.flatnonzero(known < NOT_A_ROW).tolist()]
    try:
        touched, place = np.unique(at, return_inverse=True)
        order = place.argsort(kind="stable")
        starts = np.searchsorted(place[order], np.arange(touched.size + 1))
        stats = layout.slices[0]
        found, grown = [], meta
        for part in chunks(touched.size):
            some = order[starts[part.start] : starts[part.stop]]
            rows = np.ascontiguousarray(book.array[touched[part], stats])
            new = rows.copy()
            pulled = rewards.pulled[some]
            actions = pulled if meta.n_features else (meta.n_arms, pulled)
            kind: Any = layout.kind
            kind.add_many(new, place[some] - part.start, actions, rewards.sums[:, some])
            if setup.source.LEARNS:
                digests = meta.digest_many(new, kept=False)
                gain = digests.message_sum - meta.digest_many(rows).message_sum
                new, grown = digests.rows, grown.absorb(gain)
            found.append((part, new))
    except BaseException:
        for task in dict.fromkeys(fresh):
            book.delete(task)
        raise
    for part, new in found:
        book.array[touched[part], stats] = new
    if setup.counts_pending:
        _arrived(book, at, rewards, bool(meta.n_features))
    return _brought_up_to_date(book, grown, touched, 2 * at.size) if meta.RENEWS else grown


def _arrived(book: ColumnBook, at: IntArray, rewards: Rewards, rows_of_features: bool) -> None:
    """Count rounds and pending pulls after rewards have come in."""
    _, rounds, _, _, pending = book.layout.slices
    np.add.at(book.array, (at[~rewards.decided], rounds.start), 1.0)
    decided = np.flatnonzero(rewards.decided & ~np.isnan(book.array[at, pending.start]))
    some, pulled = at[decided], rewards.pulled[decided]
    if rows_of_features:
        gram = pulled[:, :, None] * pulled[:, None, :]
        np.subtract.at(book.array[:, pending], some, gram.reshape(len(some), -1))
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
        rows = np.concatenate([touched, np.setdiff1d(book.row_numbers(), touched)])
        for part in chunks(min(most, rows.size)):
            some = rows[part]
            old = np.ascontiguousarray(book.array[some, stats])
            stale = meta.stale_rows(old)
            if stale.any():
                digests = meta.digest_many(old[stale], kept=False)
                gain = digests.message_sum - meta.digest_many(old[stale]).message_sum
                book.array[some[stale], stats] = digests.rows
                meta = meta.absorb(gain)
        generation = meta.generation
        meta = meta.renewed_if_moved()
    return meta
