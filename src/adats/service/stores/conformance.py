"""What every store must keep: `adats.testing.check_store` runs all of it."""

import threading
import time
from collections.abc import Callable
from itertools import count

from adats.service.engine import Engine
from adats.service.errors import DamagedStore, StoreError
from adats.service.messages import DecisionRequest, RewardRequest
from adats.service.replay import replay
from adats.service.spec import parse
from adats.service.stores.interface import (
    Bucket,
    ChangeRow,
    Changes,
    Counts,
    DecisionRow,
    ExperimentRow,
    Keys,
    Reward,
    RewardKey,
    RewardRow,
    Store,
    TaskRow,
)

MOST_TRIES = 500  # to begin
Open = Callable[[str], Store]  # the store of this name; a new one is empty
SPEC = (
    '{"arms":["a","b"],"model":"gaussian","noise":1.0,"prior":{"given":'
    '{"mean":0.0,"scale":1.0,"task_scale":0.5}},"seed":3,"several":"sum","window":10.0,'
    '"default_reward":0.0}'
)


def check_store(open_store: Open, damage: Callable[[str], None] | None = None) -> None:
    """All checks, each with a store of its own. `damage` changes a task of a store in its back."""
    checks = (_saving, _loading, _order, _counting, _forgetting, _deleting, _windows, _stale)
    for check in (*checks, _views, _engine, _aging):
        check(open_store, check.__name__.strip("_"))
    if damage is not None:
        _damage(open_store, "damage", damage)


def _saving(open_store: Open, name: str) -> None:
    store = open_store(name)
    store.begin()
    _that("a store is new", store.experiments() == [])
    ids = [store.new_experiment(), store.new_experiment()]
    _that("experiments have ids of their own", ids[0] != ids[1])
    store.rollback()
    row = _experiment(store)
    changed = row._replace(version=7, total=b"123", tasks=2, status="paused")
    store.begin()
    store.save(Changes(experiments={row.id: changed}))
    _same("an experiment is found by its name", store.experiment("o", "x"), changed)
    _same("an experiment is found by its id", store.by_id(row.id), changed)
    store.begin()
    changed = changed._replace(version=8)
    store.save(Changes(experiments={row.id: changed._replace(total=None)}))
    _same("a total that is not written is as it was", store.by_id(row.id), changed)
    store.begin()
    store.rollback()
    store.begin()
    store.save(Changes())
    store.close()
    store = open_store(name)
    _same("what was saved is there after a restart", store.experiments("o"), [changed])
    _same("of other tenants there is nothing", store.experiments("p"), [])
    store.close()


def _loading(open_store: Open, name: str) -> None:
    store = open_store(name)
    row = _experiment(store)
    task = TaskRow(b"stats", 3, b"pending", 2, design=b"design")
    made = [_decision(row, "d1", "t"), _decision(row, "d2", "t")._replace(action=["a", "b"])]
    made[0] = made[0]._replace(metrics={"m": 1.5}, kept=0.25)
    _save(store, row, tasks={(row.id, "t"): task}, decisions=made)
    keys = Keys([(row.id, "t"), (row.id, "u")], [(row.id, "d1"), (row.id, "d9")])
    _begin(store, row)
    found = store.load(keys)
    _same("tasks that are there", found.tasks, {(row.id, "t"): task})
    _same("decisions that are there", list(found.decisions), [(row.id, "d1")])
    kept = found.decisions[row.id, "d1"]
    _same("a decision is as it was made", kept, made[0]._replace(id=kept.id))
    told: list[tuple[Reward, str | None]] = [
        (1.0, None),
        (2.0, "i"),
        ([0.0, 1.5], None),
        (3.0, None),
        (4.0, "j"),
    ]
    rewards = []
    for place, (reward, reward_id) in enumerate(told, 1):
        reward_row = RewardRow(0, row.id, 2, kept.id, reward, reward_id, 5.0, place, {"m": 2.5})
        rewards.append(((row.id, "d1"), reward_row))
    store.save(
        Changes(decisions={(row.id, "d1"): kept._replace(received=5, reward=1.0)}, rewards=rewards)
    )
    for reward, reward_id, earlier in (
        (9.0, None, [4.0]),
        (1.0, None, [1.0, 4.0]),
        ([-0.0, 1.5], None, [[0.0, 1.5], 4.0]),
        (1.0, "i", [2.0, 4.0]),
        (1.0, "k", [4.0]),
    ):
        store.begin()
        loaded = store.load(Keys(rewards=[RewardKey(row.id, "d1", reward, reward_id)]))
        store.rollback()
        values = [one.reward for one in loaded.rewards.get((row.id, "d1"), [])]
        _same("rewards that can matter, in order", values, earlier)
        for one in loaded.rewards.get((row.id, "d1"), []):
            _same("with their metrics", one.metrics, {"m": 2.5})
        _same("with their decision", loaded.decisions[row.id, "d1"].received, 5)
    store.close()


def _order(open_store: Open, name: str) -> None:
    store = open_store(name)
    row = _experiment(store)
    for version in (1, 2):
        made = [
            _decision(row, f"{version}{task}{place}", task, version, place)
            for task in "ab"
            for place in (0, 1)
        ]
        rewards = [
            ((row.id, d.decision_id), RewardRow(0, row.id, version, 0, 1.0, None, 0.0, d.place + 2))
            for d in made
        ]
        _save(store, row, decisions=made, rewards=rewards)
    _begin(store, row)
    changes = [ChangeRow(row.id, 3, "forget", "null", 1.0), ChangeRow(row.id, 4, "arm", "{}", 2.0)]
    store.save(Changes(changes=changes))
    with store.view() as view:
        events = [(d.version, d.task, d.place) for d in view.decisions(row.id)]
        _same("decisions by commit, task and place", events, sorted(events))
        _same("all of them", len(events), 8)
        names = {d.id: d.decision_id for d in view.decisions(row.id)}
        told = [names[reward.decision] for reward in view.rewards(row.id)]
        _same("rewards by their decisions", told, list(names.values()))
        _same("changes", list(view.changes(row.id)), changes)
        own = [d.decision_id for d in view.decisions_of(row.id, "b")]
        _same("decisions of a task", own, ["1b0", "1b1", "2b0", "2b1"])
    store.close()


def _counting(open_store: Open, name: str) -> None:
    store = open_store(name)
    row = _experiment(store)
    own, other = Bucket(row.id, 3600, 3600, '"a"', 0), Bucket(row.id, 0, 86400, "null", -1)
    large = Counts(2, 1, 1, 1, 1, 1, 3 << 2000, 5 << 4000)
    for counts in ({own: large}, {own: Counts(1, 0, 0, 0, 0, 0, 1, 1), other: large}):
        _begin(store, row)
        store.save(Changes(counts=counts))
    expected = {own: Counts(3, 1, 1, 1, 1, 1, (3 << 2000) + 1, (5 << 4000) + 1), other: large}
    _same("differences add up, to the last digit", store.counts(row.id), expected)
    _begin(store, row)
    store.save(Changes(counts={other: Counts().plus(large, -1)}))
    _same("what is nothing is gone", list(store.counts(row.id)), [own])
    store.close()


def _forgetting(open_store: Open, name: str) -> None:
    store = open_store(name)
    row = _experiment(store)
    tasks = {(row.id, task): TaskRow(task.encode(), 1, None) for task in "tu"}
    made = [_decision(row, f"{task}{i}", task) for task in "tu" for i in range(2)]
    rewards = [
        ((row.id, d.decision_id), RewardRow(0, row.id, 1, 0, 1.0, None, 0.0, 1)) for d in made
    ]
    _save(store, row, tasks=tasks, decisions=made, rewards=rewards)
    again = _decision(row, "t9", "t", 2)
    fresh = {(row.id, "t"): TaskRow(b"new", 0, None)}
    _begin(store, row)
    store.save(Changes(forgotten=[(row.id, "t")], tasks=fresh, decisions={(row.id, "t9"): again}))
    with store.view() as view:
        kept = {d.id: d.decision_id for d in view.decisions(row.id)}
        _same("decisions that are left", sorted(kept.values()), ["t9", "u0", "u1"])
        told = sorted(kept[reward.decision] for reward in view.rewards(row.id))
        _same("rewards that are left", told, ["u0", "u1"])
        states = {task: state.stats for task, state in view.tasks(row.id)}
        _same("a task that comes back is new", states, {"t": b"new", "u": b"u"})
    store.close()


def _deleting(open_store: Open, name: str) -> None:
    store = open_store(name)
    row = _experiment(store)
    made = [_decision(row, "d", "t")._replace(due=5.0)]
    reward = RewardRow(0, row.id, 1, 0, 1.0, None, 0.0, 1)
    counts = {Bucket(row.id, 0, 3600, '"a"', 0): Counts(1)}
    parts = {"tasks": {(row.id, "t"): TaskRow(b"t", 1, None)}, "counts": counts}
    _save(store, row, decisions=made, rewards=[((row.id, "d"), reward)], **parts)
    _begin(store, row)
    store.save(Changes(deleted=[row.id]))
    with store.view() as view:
        _same("what is deleted is gone", (view.experiments(), view.due_count(9.0)), ([], 0))
        left = (view.decisions, view.rewards, view.tasks, view.changes, view.beliefs)
        _same("with all it had", [list(part(row.id)) for part in left], [[]] * 5)
        _same("and its counters", view.counts(row.id), {})
    again = _experiment(store)
    _same("its name can be used again", store.experiment("o", "x"), again)
    store.close()


def _windows(open_store: Open, name: str) -> None:
    store = open_store(name)
    row = _experiment(store)
    due = {"a": 30.0, "b": 10.0, "c": 20.0, "d": None}
    made = [_decision(row, key, key)._replace(due=at, time=1.0) for key, at in due.items()]
    _save(store, row, decisions=made)
    _begin(store, row)
    found = store.due(20.0, 9)
    _same("what is due, in order", [d.decision_id for d in found], ["b", "c"])
    _same("no more than asked for", [d.decision_id for d in store.due(99.0, 1)], ["b"])
    settled = found[0]._replace(due=None, settled=2, counted=0.0, settled_place=1)
    store.save(Changes(decisions={(row.id, "b"): settled}))
    store.begin()
    _same("what is settled is not due", [d.decision_id for d in store.due(20.0, 9)], ["c"])
    _same(
        "as it was settled",
        store.load(Keys(decisions=[(row.id, "b")])).decisions,
        {(row.id, "b"): settled},
    )
    store.rollback()
    with store.view() as view:
        _same("how many are due", view.due_count(30.0), 2)
        _same("the first that is overdue", view.overdue(row.id, 20.0), 1.0)
        _same("none is", view.overdue(row.id, 10.0), None)
        _same("the newest time", view.newest_time(), 1.0)
    store.close()


def _stale(open_store: Open, name: str) -> None:
    store = open_store(name)
    row = _experiment(store)
    generations = {"b": 1, "a": 1, "c": 0, "d": None, "e": 2}
    tasks = {(row.id, t): TaskRow(b"", 0, None, g) for t, g in generations.items()}
    _save(store, row, tasks=tasks)
    found = store.stale_tasks(row.id, 2, (-1, ""), 9)
    _same("the oldest first, then by name", found, [(0, "c"), (1, "a"), (1, "b")])
    _same("after one of them", store.stale_tasks(row.id, 2, (0, "c"), 1), [(1, "a")])
    sizes = {"a": 3, "b": 9, "c": 7}
    sized = {(row.id, t): TaskRow(b"", 0, None, size=size) for t, size in sizes.items()}
    _save(store, row, tasks=sized)
    with store.view() as view:
        _same("the tasks with most rewards", view.largest_tasks(row.id, 2), ["b", "c"])
    if store.many_writers:  # every fold writes the total
        store.close()
        return
    versions = {"b": 4, "a": 4, "c": 3}
    since = {(row.id, t): TaskRow(b"", 0, None, None, b"x", v) for t, v in versions.items()}
    _save(store, row, tasks=since)
    known = [(t, since[row.id, t]) for t in "ab"]
    _same("tasks that are not in the total", store.unfolded_tasks(row.id, 4), known)
    store.close()


def _views(open_store: Open, name: str) -> None:
    """Readers see whole commits, each of one moment, while others are made."""
    store = open_store(name)
    row = _experiment(store)
    _save(store, row, tasks={(row.id, "t"): TaskRow(b"old", 0, None)})
    with store.view() as view:
        before = view.task(row.id, "t")
        _save(store, row, tasks={(row.id, "t"): TaskRow(b"new", 0, None)})
        _same("a view is of one moment", view.task(row.id, "t"), before)
    wrong: list[object] = []
    looks = [0, 0]  # of each reader
    stop = threading.Event()

    def read(reader: int) -> None:
        try:
            while not stop.is_set():
                looks[reader] += 1
                with store.view() as view:
                    said, made = view.by_id(row.id).decisions, len(list(view.decisions(row.id)))
                    if said != made:
                        wrong.append((said, made))
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=read, args=(reader,)) for reader in range(2)]
    for thread in threads:
        thread.start()
    for i in count():
        if wrong or (i > 50 and min(looks) > 50):
            break
        row = row._replace(decisions=2 * (i + 1))
        made = [_decision(row, f"{i}{j}", "t", i + 1, j) for j in range(2)]
        _save(store, row, experiments={row.id: row}, decisions=made)
    stop.set()
    for thread in threads:
        thread.join()
    _same("what readers saw that is half a commit", wrong, [])
    store.close()


def _aging(open_store: Open, name: str) -> None:
    """The same where rewards age: their times are kept too."""
    _engine(open_store, name, SPEC[:-1] + ',"half_life":30.0,"prior_half_life":90.0}')


def _engine(open_store: Open, name: str, spec: str = SPEC) -> None:
    """An engine on it: the same again is the same, and a replay finds the same."""
    store, times = open_store(name), count(1_000_000.0)
    engine = Engine(store, clock=lambda: next(times))
    answers = []
    for i in range(30):
        engine.begin()
        engine.settle_due()
        if not i:
            engine.put("o", "x", parse(spec))
        for task in "ts":
            request = DecisionRequest(task, f"{task}{i}")
            answers.append((request, engine.decide("o", "x", request)))
            if i % 3:
                engine.reward("o", "x", RewardRequest(f"{task}{i - 1}", 0.25 * i, f"r{i}"))
        engine.flush()
        engine.commit()
        if i == 20:
            engine.begin()
            engine.forget("o", "x", "s")
            engine.flush()
            engine.commit()
        if i % 7 == 0:
            engine.fold_all()
    engine.fold_all()
    engine.begin()
    for request, answer in answers:
        if request.task == "t":
            _same("asked again", engine.decide("o", "x", request), answer)
    again = engine.reward("o", "x", RewardRequest("t28", 0.25 * 29, "r29"))
    _same("told again", again.status, "duplicate")
    engine.undo()
    target = open_store(f"{name}-again")
    with store.view() as view:
        found = replay(view, target)
    _same("what a replay finds", (found.changed, found.differences), ([], []))
    _that("there was something to replay", found.decisions > 30)
    target.close()
    store.close()


def _damage(open_store: Open, name: str, damage: Callable[[str], None]) -> None:
    store = open_store(name)
    row = _experiment(store)
    _save(store, row, tasks={(row.id, "t"): TaskRow(b"stats", 0, None)})
    store.close()
    damage(name)
    store = open_store(name)
    store.begin()
    try:
        store.load(Keys(tasks=[(row.id, "t")]))
    except DamagedStore:
        return
    finally:
        store.rollback()
        store.close()
    raise AssertionError("a task that was changed is read as if it were whole")


# parts


def _experiment(store: Store) -> ExperimentRow:
    store.begin()
    row = ExperimentRow(store.new_experiment(), "o", "x", SPEC, 3)
    store.save(Changes(experiments={row.id: row}))
    return row


def _decision(
    row: ExperimentRow, decision_id: str, task: str, version: int = 1, place: int = 0
) -> DecisionRow:
    return DecisionRow(
        id=0,
        experiment=row.id,
        version=version,
        decision_id=decision_id,
        task=task,
        action="a",
        features=None,
        request=None,
        propensity=0.5,
        state_version=version - 1,
        prior_version=1,
        time=float(version),
        explored=0,
        holdout=None,
        place=place,
    )


def _begin(store: Store, row: ExperimentRow) -> None:
    """Whoever has taken an experiment numbers its versions. Others may hold a lock for a moment."""
    for _ in range(MOST_TRIES):
        try:
            store.begin()
            break
        except StoreError:
            time.sleep(0.01)
    else:
        store.begin()
    store.take(row.id)


def _save(store: Store, row: ExperimentRow, *, decisions: object = (), **more: object) -> None:
    _begin(store, row)
    named = {(row.id, d.decision_id): d for d in decisions}  # type: ignore[attr-defined]
    store.save(Changes(decisions=named, **more))  # type: ignore[arg-type]
    store.sync()


def _that(law: str, holds: object) -> None:
    if not holds:
        raise AssertionError(f"{law}: it is not so")


def _same(law: str, found: object, expected: object) -> None:
    if found != expected:
        raise AssertionError(f"{law}: found {found}, not {expected}")
