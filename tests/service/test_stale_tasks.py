"""Clicks in the service: tasks digested under an old anchor move on, in an order that is kept."""

import sqlite3

import numpy as np
import pytest

from adats.models.core.meta import RENEWED
from adats.models.latent import anchors as anchors_module
from adats.service import replay as replay_module
from adats.service import task_cache
from adats.service.engine import Engine
from adats.service.messages import DecisionRequest, NewArm, RewardRequest
from adats.service.replay import replay
from adats.service.stores.sqlite import SQLiteStore
from served import Clock, Local

CLICKS = {"model": "binary", "arms": ["a", "b", "c"], "prior": {"default": {}}, "seed": 5}
TASKS, REWARDS = 20, 90


def events(seed=0, count=REWARDS):
    """Tasks and rewards, in an order of their own."""
    rng = np.random.default_rng(seed)
    return [
        (f"t{task:02d}", f"d{i}", float(rng.random() < 0.3))
        for i, task in enumerate(rng.integers(TASKS, size=count))
    ]


def play(local, several):
    """Decisions and their rewards; what was decided."""
    made = []
    for task, decision_id, reward in several:
        made.append(local.decide("x", DecisionRequest(task, decision_id)))
        local.reward("x", RewardRequest(decision_id, reward))
    return [(decided.action, decided.propensity) for decided in made]


def served_of(local):
    return local.engine.served("default", "x")


def anchors(local):
    """The number of the anchor of each task that has rewards."""
    served = served_of(local)
    found = {task: served.stats(task) for task in names(local)}
    return {task: stats.anchor for task, stats in found.items() if stats.pulls}


def names(local):
    return [task for task, _ in local.store.tasks(1)]


def contents(path):
    """What is kept of experiments and tasks, but for their ids and the checksums over these."""
    connection = sqlite3.connect(path)
    experiment = connection.execute(
        "SELECT e.version, e.arms, t.total FROM experiments e JOIN totals t ON t.experiment = e.id"
    ).fetchall()
    sql = "SELECT task, stats, rounds, pending, generation FROM tasks ORDER BY task"
    tasks = connection.execute(sql).fetchall()
    connection.close()
    return experiment, tasks


@pytest.fixture
def local(tmp_path):
    local = Local(tmp_path / "x.db")
    local.put("x", CLICKS)
    yield local
    local.close()


@pytest.fixture
def doubling(monkeypatch):
    """Anchors are renewed when rewards have doubled, from the first on."""
    monkeypatch.setattr(anchors_module, "FEW_REWARDS", 0.0)
    monkeypatch.setattr(anchors_module, "GROWTH", 2.0)


@pytest.mark.usefixtures("doubling")
def test_a_reward_moves_two_tasks_and_in_the_end_all_are_up_to_date(local):
    generation, changes = 0, 0
    for task, decision_id, reward in events(count=150):
        local.decide("x", DecisionRequest(task, decision_id))
        before = anchors(local)
        local.reward("x", RewardRequest(decision_id, reward))
        after, now = anchors(local), served_of(local).snapshot.meta.generation
        before[task] = generation  # its sites are new, of the anchor that there was
        stale = sorted((anchor, name) for name, anchor in before.items() if anchor != now)
        moved = {name for name in before if before[name] != after[name]}
        assert moved == {name for _, name in stale[:RENEWED]}  # the oldest, then by name
        assert all(after[name] == now for name in moved)
        changes += now != generation
        generation = now
    assert changes == 8  # 1, 2, 4, ... 128
    assert set(anchors(local).values()) == {generation}


def test_while_rewards_are_few_each_has_a_new_anchor(local):
    play(local, events(count=30))
    assert served_of(local).snapshot.meta.generation == 30
    oldest = min(anchors(local).values())
    assert 30 - oldest <= TASKS / RENEWED  # nobody waits longer than all others take


def test_what_all_tasks_taught_is_the_sum_of_what_is_kept_of_them(local):
    play(local, events())
    served = served_of(local)
    meta = served.snapshot.meta
    messages = sum(meta.digest(served.stats(task)).message for task in names(local))
    np.testing.assert_allclose(meta.total.value(), messages, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("stops", [(45,), (7, 17, 18, 33, 34, 35, 64, 80)])
def test_the_same_decisions_after_restarts(tmp_path, local, stops):
    whole = play(local, events())
    other = Local(tmp_path / "y.db")
    other.put("x", CLICKS)
    parts, start = [], 0
    for stop in (*stops, REWARDS):
        parts += play(other, events()[start:stop])
        start = stop
        other.close()
        other = Local(tmp_path / "y.db")
    other.close()
    assert parts == whole
    assert contents(tmp_path / "x.db") == contents(tmp_path / "y.db")


def play_in_groups(path, size):
    """Some operations become one commit."""
    local = Local(path)
    local.put("x", CLICKS)
    engine, done = local.engine, 0
    engine.begin()
    for task, decision_id, reward in events():
        engine.decide("default", "x", DecisionRequest(task, decision_id))
        engine.reward("default", "x", RewardRequest(decision_id, reward))
        done += 2
        if done % size == 0:
            engine.flush()
            engine.commit()
            engine.begin()
    engine.flush()
    engine.commit()
    local.close()


@pytest.mark.parametrize("size", [4, 33, 2 * REWARDS])
def test_a_replay_follows_however_operations_were_grouped(tmp_path, monkeypatch, size):
    """It does not matter how many stale tasks are read at once, nor how many stay in memory."""
    play_in_groups(tmp_path / "x.db", size)
    monkeypatch.setattr(task_cache, "READ_AT_ONCE", 3)
    monkeypatch.setattr(task_cache, "MEMORY", 0.0)
    monkeypatch.setattr(task_cache, "FEWEST", 2)
    play_in_groups(tmp_path / "y.db", size)
    assert contents(tmp_path / "x.db") == contents(tmp_path / "y.db")
    source, target = SQLiteStore(tmp_path / "x.db"), SQLiteStore(tmp_path / "z.db")
    with source.view() as view:
        found = replay(view, target)
    source.close()
    target.close()
    assert (found.changed, found.moved, found.differences) == ([], 0, [])
    assert contents(tmp_path / "x.db") == contents(tmp_path / "z.db")


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_a_replay_follows(tmp_path, local, monkeypatch, size):
    monkeypatch.setattr(replay_module, "COMMITS_IN_ONE", size)
    play(local, events()[:40])
    local.add_arm("x", NewArm("d", like="b"))
    play(local, events()[40:])
    local.retire_arm("x", "a")
    target = SQLiteStore(tmp_path / "y.db")
    with local.store.view() as view:
        found = replay(view, target)
    target.close()
    assert (found.changed, found.moved, found.differences) == ([], 0, [])
    assert contents(tmp_path / "x.db") == contents(tmp_path / "y.db")


def test_after_a_forgotten_task_a_replay_compares_what_can_be_compared(tmp_path, local):
    play(local, events()[:60])
    local.forget("x", "t03")
    play(local, events()[60:])
    target = SQLiteStore(tmp_path / "y.db")
    with local.store.view() as view:
        found = replay(view, target)
    target.close()
    assert (found.changed, found.differences) == ([], [])
    assert 0 < found.moved < found.decisions


def test_a_changed_count_is_found_even_after_a_forgotten_task(tmp_path, local):
    play(local, events())
    local.forget("x", "t03")
    served = served_of(local)
    state = served.task_cache.get("t05")
    served.task_cache.put("t05", state._replace(stats=state.stats.add(0, 1.0)))
    local.about("x")  # writes it
    target = SQLiteStore(tmp_path / "y.db")
    with local.store.view() as view:
        found = replay(view, target)
    target.close()
    assert found.differences == ["x: task t05"]


@pytest.mark.usefixtures("doubling")
def test_a_task_that_is_forgotten_is_not_moved(local):
    play(local, events()[:32])
    stale = [task for task, anchor in anchors(local).items() if anchor != 6]
    assert served_of(local).snapshot.meta.generation == 6
    assert len(stale) > 4
    for task in stale:
        local.forget("x", task)
    play(local, [("new", f"n{i}", 1.0) for i in range(5)])
    assert not set(stale) & set(names(local))


@pytest.mark.usefixtures("doubling")
def test_a_task_that_is_damaged_keeps_no_other_back(tmp_path, local):
    play(local, events()[:32])
    stale = [task for task, anchor in sorted(anchors(local).items()) if anchor != 6]
    local.close()
    connection = sqlite3.connect(tmp_path / "x.db")
    connection.execute("UPDATE tasks SET rounds = 7 WHERE task = ?", (stale[1],))
    connection.commit()
    connection.close()
    local.__init__(tmp_path / "x.db", Clock())
    play(local, [("new", f"n{i}", 1.0) for i in range(20)])
    served = served_of(local)
    assert all(served.stats(task).anchor == 6 for task in stale if task != stale[1])


@pytest.mark.usefixtures("doubling")
def test_an_arm_that_is_added_makes_all_tasks_stale_once(local):
    play(local, events()[:32])
    local.add_arm("x", NewArm("d", like="b"))
    generation = served_of(local).snapshot.meta.generation
    assert all(anchor < generation for anchor in anchors(local).values())
    play(local, [("new", f"n{i}", 1.0) for i in range(TASKS // 2 + 1)])
    assert set(anchors(local).values()) == {generation}
    assert all(served_of(local).stats(task).table.shape == (3, 4) for task in names(local))


def test_a_reward_that_is_replaced(tmp_path):
    """As if the first had not come, but for where the approximation was made."""
    beliefs = []
    for wrong in (False, True):
        local = Local(tmp_path / f"{wrong}.db")
        local.put("x", CLICKS | {"several": "last"})
        play(local, events())
        for task, decision_id, reward in events()[::4]:
            if wrong:
                local.reward("x", RewardRequest(decision_id, 1.0 - reward))
                local.reward("x", RewardRequest(decision_id, reward))
            assert served_of(local).stats(task).settled
        served = served_of(local)
        meta = served.snapshot.meta
        messages = sum(meta.digest(served.stats(task)).message for task in names(local))
        np.testing.assert_allclose(meta.total.value(), messages, rtol=1e-9, atol=1e-9)
        beliefs.append([meta.task_prior(), *map(served.posterior, names(local))])
        local.close()
        reopened = Local(tmp_path / f"{wrong}.db")
        again = served_of(reopened).posterior(names(reopened)[2])
        np.testing.assert_array_equal(again.mean, beliefs[-1][3].mean)
        reopened.close()
    for own, due in zip(*beliefs, strict=True):
        own, due = own.each_arm, due.each_arm
        assert (np.abs(own.eta_mean - due.eta_mean) < 0.05 * due.eta_scale).all()


def test_memory_of_a_task(tmp_path):
    """Sites are kept, digests are not: at most 3 kB with ten arms."""
    local = Local(tmp_path / "x.db")
    local.put("x", CLICKS | {"arms": [f"a{i}" for i in range(10)]})
    play(local, [(f"t{i % 3}", f"d{i}", 1.0) for i in range(9)])
    state_bytes = served_of(local).task_cache.state_bytes
    sites = served_of(local).stats("t1").sites
    assert 8 * sites.size < state_bytes < 3000
    local.close()


def test_stale_tasks_are_found_by_an_index(local):
    play(local, events()[:20])
    connection = local.store._connection
    sql = (
        "EXPLAIN QUERY PLAN SELECT generation, task FROM tasks WHERE experiment = 1 AND "
        "generation < 3 AND (generation, task) > (1, 't') ORDER BY generation, task LIMIT 64"
    )
    plan = [row[3] for row in connection.execute(sql)]
    assert len(plan) == 1
    assert "COVERING INDEX tasks_by_generation (experiment=? AND (generation,task)>" in plan[0]


def test_other_models_have_no_stale_tasks(tmp_path):
    local = Local(tmp_path / "x.db")
    local.put("x", CLICKS | {"prior": {"default": {"version": 1}}})
    play(local, events()[:20])
    local.close()
    _, tasks = contents(tmp_path / "x.db")
    assert {generation for *_, generation in tasks} == {None}


def test_undone_operations_leave_no_trace(tmp_path, local):
    whole = play(local, events()[:64])
    other = Local(tmp_path / "y.db")
    other.put("x", CLICKS)
    made = play(other, events()[:31])
    engine: Engine = other.engine
    engine.begin()
    for task, decision_id, reward in events()[31:50]:  # an anchor is renewed among them
        engine.decide("default", "x", DecisionRequest(task, decision_id))
        engine.reward("default", "x", RewardRequest(decision_id, reward))
    engine.flush()
    engine.undo()
    made += play(other, events()[31:64])
    other.close()
    assert made == whole
    assert contents(tmp_path / "x.db") == contents(tmp_path / "y.db")
