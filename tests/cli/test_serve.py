"""`adats serve`, `adats keys`, `adats replay`: what they print, leave behind and refuse."""

import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from functools import partial

import pytest

import adats
import served
from adats.service.messages import DecisionRequest, NewArm, RewardRequest
from command import call

WINDOWED = served.GAUSSIAN | {"window": 60.0, "default_reward": 0.0}


def serve(*words):
    command = [sys.executable, "-m", "adats", "serve", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def one_line(text):
    return text.startswith("adats: ") and text.count("\n") == 1 and "Traceback" not in text


# serve


def test_a_folder_that_is_not_there_is_one_line(tmp_path):
    done = serve("--db", tmp_path / "no" / "x.db", "--port", 0)
    assert (done.returncode, done.stdout) == (2, "")
    assert one_line(done.stderr)
    assert "give a file in a folder that exists" in done.stderr


@pytest.mark.parametrize("content", [b"hello " * 1000, sqlite3.Connection])
def test_a_file_that_is_not_a_store_is_left_as_it_is(tmp_path, content):
    path = tmp_path / "x.db"
    if content is sqlite3.Connection:
        other = sqlite3.connect(path)
        other.execute("CREATE TABLE people (name TEXT)")
        other.close()
    else:
        path.write_bytes(content)
    before = path.read_bytes()
    done = serve("--db", path, "--port", 0)
    assert done.returncode == 2
    assert one_line(done.stderr)
    assert "not a store" in done.stderr
    assert path.read_bytes() == before


def test_a_port_that_is_taken_is_one_line_and_makes_no_store(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        done = serve("--db", tmp_path / "x.db", "--port", port)
    assert done.returncode == 2
    assert one_line(done.stderr)
    assert f"cannot listen at 127.0.0.1:{port}" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_outside_loopback_it_needs_keys(tmp_path):
    done = serve("--db", tmp_path / "x.db", "--port", 0, "--host", "0.0.0.0")
    assert done.returncode == 2
    assert one_line(done.stderr)
    assert "has no keys; make one: adats keys add" in done.stderr


@pytest.mark.parametrize(
    ("number", "code", "last"), [(signal.SIGINT, 0, "stopped\n"), (signal.SIGTERM, -15, "")]
)
def test_a_signal_stops_it_well(tmp_path, number, code, last):
    environment = {k: v for k, v in os.environ.items() if k != "OPENBLAS_NUM_THREADS"}
    db = tmp_path / "x.db"
    heard = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # a shell's background ignores it
    with served.process(db, env=environment, preexec_fn=heard) as service:
        assert served.call(f"{service.url}/v1/experiments/x", "PUT", served.GAUSSIAN)[0] == 201
        with adats.Client(service.url, "x") as client:
            client.tell(client.ask("ann"), reward=1.0)
            assert (tmp_path / "x.db-wal").exists()
            began = time.monotonic()
            service.process.send_signal(number)  # the client's connection is still open
            assert service.process.wait(20) == code
        assert time.monotonic() - began < 5
        assert service.process.stdout.read() == last
        assert service.process.stderr.read() == ""
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.db", "x.db-witness"]
    with served.process(db) as service, adats.Client(service.url, "x") as client:
        assert client.report()["counted"] == 1


def test_a_store_is_served_once(tmp_path):
    db = tmp_path / "x.db"
    with served.process(db) as service:
        done = serve("--db", db, "--port", 0)
        assert done.returncode == 2
        assert one_line(done.stderr)
        assert f"{db} is in use by another process" in done.stderr
        assert served.call(f"{service.url}/readyz")[0] == 200


# keys


def test_keys_are_added_listed_and_removed(monkeypatch, capsys, tmp_path):
    db = tmp_path / "x.db"
    assert call(monkeypatch, "keys", "add", "shop", "--db", db) == 0
    key = capsys.readouterr().out.strip()
    assert call(monkeypatch, "keys", "add", "audit", "--read-only", "--db", db) == 0
    other = capsys.readouterr().out.strip()
    _, name, secret = key.split("_", 2)
    assert call(monkeypatch, "keys", "list", "--db", db) == 0
    listed = capsys.readouterr().out
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in listed.splitlines()]
    assert [row[:3] for row in rows if len(row) == 4] == [
        [name, "shop", "write"],
        [other.split("_")[1], "audit", "read"],
    ]
    assert secret not in listed
    assert secret.encode() not in db.read_bytes()
    assert call(monkeypatch, "keys", "remove", name, "--db", db) == 0
    assert call(monkeypatch, "keys", "remove", name, "--db", db) == 2
    assert f"has no key '{name}'" in capsys.readouterr().err
    assert call(monkeypatch, "keys", "list", "--db", db) == 0
    assert "shop" not in capsys.readouterr().out


def test_a_running_service_learns_of_keys(monkeypatch, capsys, tmp_path):
    db = tmp_path / "x.db"

    def status(key=None):
        return served.call(f"{service.url}/v1/experiments", key=key)[0]

    def becomes(code, key=None):
        until = time.monotonic() + 10
        while status(key) != code and time.monotonic() < until:
            time.sleep(0.05)
        return status(key) == code

    with served.process(db) as service:
        assert status() == 200
        assert call(monkeypatch, "keys", "add", "shop", "--db", db) == 0
        key = capsys.readouterr().out.strip()
        assert becomes(401)
        assert becomes(200, key)
        assert call(monkeypatch, "keys", "remove", key.split("_")[1], "--db", db) == 0
        assert becomes(401, key)
        assert status() == 401  # it does not open again


def test_keys_that_cannot_be_are_one_line(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr("adats.service.stores.sqlite.LOCK_WAIT", 0.05)
    missing = tmp_path / "missing.db"
    assert call(monkeypatch, "keys", "list", "--db", missing) == 2
    assert "there is no such store" in capsys.readouterr().err
    assert call(monkeypatch, "keys", "remove", "abc", "--db", missing) == 2
    assert not missing.exists()
    capsys.readouterr()
    text = tmp_path / "text.db"
    text.write_text("hello " * 1000)
    assert call(monkeypatch, "keys", "add", "shop", "--db", text) == 2
    assert "not a store" in capsys.readouterr().err
    db = tmp_path / "x.db"
    assert call(monkeypatch, "keys", "add", "shop", "--db", db) == 0
    capsys.readouterr()
    assert call(monkeypatch, "keys", "add", "", "--db", db) == 2
    assert one_line(capsys.readouterr().err)
    lock = sqlite3.connect(db, isolation_level=None)
    try:
        lock.execute("BEGIN IMMEDIATE")
        assert call(monkeypatch, "keys", "add", "shop", "--db", db) == 2
    finally:
        lock.close()
    output = capsys.readouterr().err
    assert one_line(output)
    assert "locked" in output


# replay


@pytest.fixture
def store(tmp_path):
    """A store with decisions, rewards in time and late, an arm that was added, settled windows."""
    db = tmp_path / "x.db"
    local = served.Local(db)
    for name in ("x", "y"):
        local.put(name, WINDOWED)
        for i in range(20):
            local.decide(name, DecisionRequest(f"t{i % 5}", f"d{i}"))
            local.clock.time += 10
            if i % 3:
                local.reward(name, RewardRequest(f"d{i}", float(i % 4)))
    local.clock.time += 100
    local.add_arm("x", NewArm("d", like="a"))
    local.decide("x", DecisionRequest("t0", "new", allowed=["d"]))
    local.decide("y", DecisionRequest("t9", "last"))
    local.close()
    return db


def change(db, sql):
    connection = sqlite3.connect(db)
    with connection:
        assert connection.execute(sql).rowcount == 1
    connection.close()


def test_a_log_plays_again_to_the_same_state(monkeypatch, capsys, store, tmp_path):
    before = store.read_bytes()
    assert call(monkeypatch, "replay", store) == 0
    first = capsys.readouterr().out
    assert "42 decisions: all the same" in first
    again = tmp_path / "again.db"
    assert call(monkeypatch, "replay", store, "--into", again) == 0
    assert capsys.readouterr().out == first
    assert call(monkeypatch, "replay", again) == 0
    assert capsys.readouterr().out == first
    assert store.read_bytes() == before
    with served.process(again, "--trust-clock") as service:
        _, report, _ = served.call(f"{service.url}/v1/experiments/y/report")
        assert (report["decisions"], report["tasks"]) == (21, 6)
    assert call(monkeypatch, "replay", store, "--into", again) == 2
    assert "is there already" in capsys.readouterr().err


def test_what_was_taken_out_by_hand_is_found_out(monkeypatch, capsys, store):
    change(store, "DELETE FROM rewards WHERE id = 1")
    assert call(monkeypatch, "replay", store) == 1
    output = capsys.readouterr().out
    assert "NOT the same" in output
    assert "another state: x: task t1" in output
    assert "y:" not in output


def test_decisions_and_states_that_do_not_follow_from_the_log_are_found_out(
    monkeypatch, capsys, store
):
    local = served.Local(store)
    agent = local.engine.served("default", "x")
    agent._key = bytes(8)  # not the seed of the experiment
    with local.store.view() as view:
        decision = next(row for row in view.decisions(agent.id) if row.task == "t2")
    agent.count(decision, 1.0)  # it is not in the log
    for i in range(5):
        local.decide("x", DecisionRequest("t1", f"wrong-{i}"))
    local.close()
    assert call(monkeypatch, "replay", store) == 1
    output = capsys.readouterr().out
    assert "NOT the same" in output
    assert "another decision: x: wrong-" in output
    assert "another state: x: task t2" in output
    assert "another state: x: what all tasks taught" in output
    assert "y:" not in output


@pytest.mark.parametrize(
    ("sql", "what"),
    [
        ("UPDATE decisions SET propensity = 0.5 WHERE decision_id = 'd7' AND experiment = 1", "d7"),
        ("UPDATE rewards SET reward = 9.0 WHERE id = 1", "reward"),
        ("UPDATE experiments SET seed = seed + 1 WHERE id = 1", "experiment 'x'"),
        ("UPDATE tasks SET stats = zeroblob(length(stats)) WHERE id = 1", "task 't0'"),
    ],
)
def test_a_row_that_was_changed_by_hand_is_not_played(monkeypatch, capsys, store, sql, what):
    change(store, sql)
    assert call(monkeypatch, "replay", store) == 2
    output = capsys.readouterr().err
    assert one_line(output)
    assert "not as written" in output
    assert what in output


def test_a_store_that_is_not_there_is_not_made(monkeypatch, capsys, tmp_path):
    assert call(monkeypatch, "replay", tmp_path / "missing.db") == 2
    assert "there is no store" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
