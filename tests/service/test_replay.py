"""Promise 4: the log played into an empty store gives the same state and the same decisions."""

import sqlite3
from contextlib import closing

import msgspec
import numpy as np
import pytest

from adats.service import replay as module
from adats.service.engine import Engine
from adats.service.errors import DamagedStore
from adats.service.messages import DecisionRequest, RewardRequest
from adats.service.replay import replay
from adats.service.spec import ExperimentSpec
from adats.service.stores.interface import DecisionRow, ExperimentRow, RewardRow, TaskRow
from adats.service.stores.sqlite import SQLiteStore
from adats.service.stores.sqlite_rows import sealed, task_checksum, total_to_keep
from command import call
from schedules import CASES, CLOSE, TENANT, Play, Rules, nearly, random_rules, random_schedule
from served import GAUSSIAN, Local

NUMBERS = ("id", "experiment", "decision", "crc")  # a crc is one of the row with its numbers
TIMES = (
    "days_until",
    "believed_at",
    "believed_tasks",
    "total_version",
)  # by the clock at the end of a commit
KINDS = {"decisions": DecisionRow, "rewards": RewardRow, "experiments": ExperimentRow}


def played(path, target):
    """What a replay of the store finds; the target stays open."""
    source = SQLiteStore(path)
    store = SQLiteStore(target)
    try:
        with source.view() as view:
            return replay(view, store)
    finally:
        source.close()
        store.close()


def contents(path):
    """All rows, without the numbers that the store gives them, an experiment after another."""
    connection = sqlite3.connect(path)
    tables = {}
    for table in ("experiments", "totals", "tasks", "decisions", "rewards", "changes"):
        sql = f"SELECT * FROM {table}"
        if table == "rewards":
            sql = "SELECT r.*, d.decision_id FROM rewards r JOIN decisions d ON d.id = r.decision"
        cursor = connection.execute(sql)
        rows = [
            {
                c[0]: v
                for c, v in zip(cursor.description, row, strict=True)
                if c[0] not in NUMBERS + TIMES
            }
            for row in cursor
        ]
        tables[table] = sorted(rows, key=lambda row: (row.get("version", 0), str(row)))
    connection.close()
    return tables


@pytest.mark.parametrize("model", CASES)
def test_the_log_replayed_gives_the_same_state_bit_for_bit(tmp_path, model):
    """And each decision, made again at its state version, is the same."""
    rng = np.random.default_rng([1, list(CASES).index(model)])
    case = CASES[model]
    rules = {name: (case, random_rules(rng, case)) for name in "wx"}
    play = Play(tmp_path / "x.db", rules, compare=False)
    random_schedule(play, rng, 100)
    play.close()
    found = played(tmp_path / "x.db", tmp_path / "y.db")
    assert (found.changed, found.moved, found.differences) == ([], 0, [])
    assert found.decisions == sum(len(book.decisions) for book in play.books.values())
    assert found.events >= sum(book.version for book in play.books.values())
    assert contents(tmp_path / "x.db") == contents(tmp_path / "y.db")


def test_with_forgotten_tasks_the_state_is_that_of_the_remaining_log(tmp_path):
    moved = 0
    for i, (model, case) in enumerate(CASES.items()):
        rng = np.random.default_rng([2, i])
        rules = {"x": (case, random_rules(rng, case))}
        play = Play(tmp_path / f"{model}.db", rules, compare=False)
        random_schedule(play, rng, 40, forget=True)
        play.forget("x", play.books["x"].tasks[0])
        random_schedule(play, rng, 15)
        play.close()
        found = played(tmp_path / f"{model}.db", tmp_path / f"{model} again.db")
        assert (found.changed, found.differences) == ([], []), model
        moved += found.moved
        store = SQLiteStore(tmp_path / f"{model} again.db")
        served = Engine(store).served(TENANT, "x")
        agent = play.books["x"].library(play.now)
        for task in play.books["x"].tasks:
            own, due = served.posterior(task), agent.posterior(task)
            if not case.exact:
                nearly(own, due)
                continue
            np.testing.assert_allclose(own.mean, due.mean, **CLOSE)
            np.testing.assert_allclose(own.scale, due.scale, **CLOSE)
        assert len(list(store.tasks(1))) == len(play.books["x"].tasks)
        store.close()
    assert moved > 0  # decisions that had used what was forgotten later


@pytest.mark.parametrize(("seed", "count"), [(39, 20), (32, 8), (33, 8)])
def test_a_forgotten_task_leaves_no_trace_where_rewards_are_few(tmp_path, seed, count):
    """What others taught was worked out with it: that is done again."""
    rng, local = np.random.default_rng(seed), Local(tmp_path / "x.db")
    spec = {"model": "binary", "arms": ["a", "b", "c"], "prior": {"default": {}}, "seed": seed}
    local.put("x", spec)
    for i in range(count):
        task = ("ann", "bob", "eve")[i % 3]
        local.decide("x", DecisionRequest(task, f"d{i}"))
        local.reward("x", RewardRequest(f"d{i}", float(task == "ann" or rng.random() < 0.05)))
    local.forget("x", "ann")
    local.close()
    assert played(tmp_path / "x.db", tmp_path / "y.db").same


def test_several_tenants_and_an_experiment_in_which_nothing_happened(tmp_path):
    local = Local(tmp_path / "x.db")
    local.put("same", GAUSSIAN)
    local.put("idle", GAUSSIAN)
    with_tenant(local, "put", "same", msgspec.convert(GAUSSIAN, ExperimentSpec))
    for i in range(5):
        local.decide("same", DecisionRequest("t", str(i)))
        with_tenant(local, "decide", "same", DecisionRequest("t", str(i)))
        local.reward("same", RewardRequest(str(i), 1.0))
    local.close()
    found = played(tmp_path / "x.db", tmp_path / "y.db")
    assert found.same
    assert (found.events, found.decisions) == (15, 10)
    rows = contents(tmp_path / "y.db")["experiments"]
    names = {(row["tenant"], row["name"]) for row in rows}
    assert names == {("default", "idle"), ("default", "same"), ("o", "same")}


def with_tenant(local, work, *arguments):
    local.engine.begin()
    result = getattr(local.engine, work)("o", *arguments)
    local.engine.flush()
    local.engine.commit()
    return result


def test_a_long_log_is_played_in_groups(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "COMMITS_IN_ONE", 7)
    rng = np.random.default_rng(3)
    rules = {"x": (CASES["gaussian"], Rules(window=10.0, default=0.0, several="sum"))}
    play = Play(tmp_path / "x.db", rules, compare=False)
    random_schedule(play, rng, 60)
    shown = []
    with play.local.store.view() as view:
        store = SQLiteStore(tmp_path / "y.db")
        found = replay(view, store, progress=shown.append)
        store.close()
    play.close()
    assert found.same
    assert shown == sorted(shown)
    assert len(shown) == play.books["x"].version // 7


# What was changed behind the service's back


@pytest.fixture
def store(tmp_path):
    """A store with a log of 12 decisions, and rewards for 8 of them."""
    local = Local(tmp_path / "x.db")
    local.put("x", GAUSSIAN | {"window": 10.0, "late": "replace", "several": "sum"})
    for i in range(12):
        local.decide("x", DecisionRequest(f"t{i % 3}", f"d{i}"))
        if i % 3:
            local.reward("x", RewardRequest(f"d{i}", 0.5 * i))
    local.close()
    return tmp_path / "x.db"


def tamper(path, table, where, **changes):
    """Change a row, with the checksum that it would have."""
    connection = sqlite3.connect(path)
    connection.row_factory = sqlite3.Row
    row = dict(connection.execute(f"SELECT rowid, * FROM {table} WHERE {where}").fetchone())
    rowid, values = row["id"], row | changes
    values.pop("rowid", None)
    if table == "tasks":
        kept = TaskRow(*(values[name] for name in TaskRow._fields))
        values["crc"] = task_checksum((values["experiment"], values["task"]), kept)
    else:
        kept = KINDS[table](*(values[name] for name in KINDS[table]._fields))
        *_, values["crc"] = sealed(kept, int(table != "experiments"))
    assignments = ", ".join(f"{name} = ?" for name in values)
    connection.execute(
        f"UPDATE {table} SET {assignments} WHERE id = {rowid}", tuple(values.values())
    )
    connection.commit()
    connection.close()


def other_action(path, decision_id):
    connection = sqlite3.connect(path)
    (action,) = connection.execute(
        "SELECT action FROM decisions WHERE decision_id = ?", (decision_id,)
    ).fetchone()
    connection.close()
    return '"a"' if action != '"a"' else '"b"'


def test_a_changed_action_is_found_and_named(store, tmp_path):
    tamper(store, "decisions", "decision_id = 'd7'", action=other_action(store, "d7"))
    found = played(store, tmp_path / "y.db")
    assert not found.same
    assert found.changed[0] == "x: d7"
    assert "x: task t1" in found.differences  # its reward counted for another arm
    assert "x: what all tasks taught" in found.differences


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("propensity", 0.123),
        ("state_version", 3),
        ("prior_version", 2),
        ("explored", 7),
        ("holdout", 1),
        ("features", b"12345678"),
    ],
)
def test_a_changed_column_of_a_decision_is_found_and_named(store, tmp_path, column, value):
    tamper(store, "decisions", "decision_id = 'd6'", **{column: value})
    found = played(store, tmp_path / "y.db")
    assert found.changed == ["x: d6"]


@pytest.mark.parametrize(
    ("column", "value"),
    [("counted", 9.0), ("reward", 9.0), ("received", 2), ("due", 1e9)],
)
def test_a_changed_outcome_of_a_decision_is_found_and_named(store, tmp_path, column, value):
    tamper(store, "decisions", "decision_id = 'd7'", **{column: value})
    assert "x: reward of decision d7" in played(store, tmp_path / "y.db").differences


def test_an_end_of_a_window_that_never_was_is_found(store, tmp_path):
    tamper(store, "decisions", "decision_id = 'd7'", settled=100)
    assert played(store, tmp_path / "y.db").differences == ["x: version"]


def test_a_changed_reward_is_found_and_named(store, tmp_path):
    tamper(store, "rewards", "reward = 3.5", reward=3.25)
    found = played(store, tmp_path / "y.db")
    assert "x: task t1" in found.differences
    assert "x: reward of decision d7" in found.differences


@pytest.mark.parametrize(
    ("where", "changes", "named"),
    [
        ("reward = 3.5", {"reward": "[1.0, 2.0]"}, "reward: the reward of this decision is one"),
        ("reward = 3.5", {"decision": 99}, "reward: 99"),
    ],
)
def test_a_reward_that_could_not_have_been_is_found_and_named(
    store, tmp_path, where, changes, named
):
    tamper(store, "rewards", where, **changes)
    found = played(store, tmp_path / "y.db")
    assert any(named in difference for difference in found.differences)
    assert "x: reward of decision d7" in found.differences


def test_a_request_that_could_not_have_been_is_found_and_named(store, tmp_path):
    tamper(store, "decisions", "decision_id = 'd7'", request='{"allowed": ["z"]}')
    found = played(store, tmp_path / "y.db")
    assert any("decide: there is no arm 'z'" in difference for difference in found.differences)


@pytest.mark.parametrize("column", ["stats", "rounds"])
def test_changed_statistics_are_found_and_named(store, tmp_path, column):
    connection = sqlite3.connect(store)
    (stats,) = connection.execute("SELECT stats FROM tasks WHERE task = 't2'").fetchone()
    connection.close()
    more = np.frombuffer(stats) + np.eye(9)[3] * 1e-6
    value = more.tobytes() if column == "stats" else 5
    tamper(store, "tasks", "task = 't2'", **{column: value})
    assert played(store, tmp_path / "y.db").differences == ["x: task t2"]


def test_what_all_tasks_taught_is_found_if_it_was_changed(store, tmp_path):
    with closing(sqlite3.connect(store)) as connection, connection:
        (total,) = connection.execute("SELECT total FROM totals").fetchone()
        changed = total_to_keep(1, (np.frombuffer(total) * 1.01).tobytes())
        connection.execute("UPDATE totals SET experiment = ?, total = ?, crc = ?", changed)
    assert played(store, tmp_path / "y.db").differences == ["x: what all tasks taught"]


def test_a_decision_that_was_taken_out_is_found(store, tmp_path):
    connection = sqlite3.connect(store)
    connection.execute("DELETE FROM decisions WHERE decision_id = 'd7'")
    connection.commit()
    connection.close()
    found = played(store, tmp_path / "y.db")
    assert "x: task t1" in found.differences
    assert any("reward: 8" in difference for difference in found.differences)


def test_a_row_that_is_not_as_written_is_named(store, tmp_path):
    connection = sqlite3.connect(store)
    connection.execute("UPDATE tasks SET rounds = 3 WHERE task = 't1'")
    connection.commit()
    connection.close()
    with pytest.raises(DamagedStore, match="task 't1' is not as written"):
        played(store, tmp_path / "y.db")


def test_the_command_says_whether_all_is_the_same(store, tmp_path, monkeypatch, capsys):
    assert call(monkeypatch, "replay", store) == 0
    assert "20 events, 12 decisions: all the same" in capsys.readouterr().out
    tamper(store, "decisions", "decision_id = 'd6'", propensity=0.5)
    assert call(monkeypatch, "replay", store, "--into", tmp_path / "kept.db") == 1
    assert "another decision: x: d6" in capsys.readouterr().out
    assert (tmp_path / "kept.db").exists()
