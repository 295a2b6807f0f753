"""A torn or corrupt store is reported, and left as it is; what only looks torn is opened."""

import hashlib
import random
import shutil
import sqlite3
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
import uvicorn

import command
from adats.models.core.errors import FileFormatError
from adats.service.errors import DamagedStore, StoreError
from adats.service.messages import DecisionRequest, RewardRequest
from adats.service.replay import replay
from adats.service.stores import sqlite_file
from adats.service.stores.sqlite import SQLiteReadView, SQLiteStore
from adats.service.stores.sqlite_file import check_file
from hammer import check_statistics, told_by_library, wait_for
from served import GAUSSIAN, Clock, Local, call, process

DECISIONS = 20


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """The files of a service that was killed."""
    folder = tmp_path_factory.mktemp("killed")
    with process(folder / "x.db") as service:
        url = f"{service.url}/v1/experiments/x"
        assert call(url, "PUT", GAUSSIAN | {"control": "b"})[0] == 201
        for i in range(DECISIONS):
            asked = {"task": f"t{i % 4}", "decision_id": f"d{i}"}
            assert call(f"{url}/decide", "POST", asked)[0] == 200
            reward = {"decision_id": f"d{i}", "reward": i / 4}
            assert call(f"{url}/reward", "POST", reward)[0] == 200
        service.process.kill()
        service.process.wait()
    assert (folder / "x.db-wal").stat().st_size > 100_000  # nothing is in the file itself yet
    return folder


@pytest.fixture
def torn(killed, tmp_path):
    """A copy of them."""
    return shutil.copytree(killed, tmp_path / "store") / "x.db"


@pytest.fixture
def whole(torn):
    """The same store after a clean stop: one file, and its witness."""
    SQLiteStore(torn).close()
    assert sorted(path.name for path in torn.parent.iterdir()) == ["x.db", "x.db-witness"]
    return torn


def files(db):
    """All files of a store as they are; -shm is scratch."""
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in db.parent.iterdir()
        if not path.name.endswith("-shm")
    }


def refused(db, monkeypatch, capsys):
    """The one line with which `adats serve` does not start; nothing was changed."""

    def run(*_, **__):
        raise AssertionError("it was started")

    monkeypatch.setattr(uvicorn.Server, "run", run)
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")
    before = files(db)
    for words in (("serve", "--db", db, "--port", "0"), ("keys", "add", "somebody", "--db", db)):
        assert command.call(monkeypatch, *words) == 2
        printed = capsys.readouterr()
        assert printed.out == ""
        assert printed.err.count("\n") == 1
        assert str(db) in printed.err
        assert files(db) == before
    return printed.err


def change(path, function):
    path.write_bytes(function(path.read_bytes()))


def flipped(content, place):
    changed = bytearray(content)
    changed[place] ^= 1
    return bytes(changed)


def run_sql(db, *statements):
    connection = sqlite3.connect(db)
    with connection:
        for statement in statements:
            assert connection.execute(statement).rowcount != 0
    connection.close()


def select(db, sql):
    connection = sqlite3.connect(db)
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


# the log beside the store


@pytest.mark.parametrize(
    "tear",
    [
        lambda log: change(log, lambda content: flipped(content, len(content) // 2)),
        lambda log: change(log, lambda content: flipped(content, 40)),
        lambda log: change(log, lambda content: content[: len(content) // 2]),
        lambda log: change(log, lambda content: content[:-100]),
        lambda log: change(log, lambda _: b""),
        lambda log: log.unlink(),
    ],
    ids=["flipped", "flipped at the start", "half", "torn at the end", "empty", "gone"],
)
def test_a_log_that_lost_commits_is_found_out(torn, monkeypatch, capsys, tear):
    tear(torn.with_name("x.db-wal"))
    error = refused(torn, monkeypatch, capsys)
    assert "41 were acknowledged" in error  # one experiment, 20 decisions, 20 rewards
    assert "nothing was changed" in error
    torn.with_name("x.db-witness").unlink()  # the user's word that it may be so
    store = SQLiteStore(torn)
    store.close()


def test_a_tail_that_was_never_acknowledged_is_no_damage(torn):
    with open(torn.with_name("x.db-wal"), "ab") as log:
        log.write(random.Random(1).randbytes(2000))  # half a page
    with process(torn) as service:
        assert call(f"{service.url}/readyz")[:2] == (200, {"status": "ready", "why": None})
        _, answer, _ = call(f"{service.url}/v1/experiments/x/meta")
        assert (answer["decisions"], answer["rewards"]) == (DECISIONS, DECISIONS)
    check_whole(torn)


def check_whole(db):
    with SQLiteReadView(db) as view:
        row = view.experiment("default", "x")
        decisions = list(view.decisions(row.id))
        assert [decision.decision_id for decision in decisions] == [
            f"d{i}" for i in range(DECISIONS)
        ]
        assert [decision.counted for decision in decisions] == [i / 4 for i in range(DECISIONS)]
        check_statistics(view, row, told_by_library(decisions), decisions)


def test_a_copy_of_the_file_alone_is_a_store_after_a_clean_stop(whole, tmp_path, monkeypatch):
    copy = shutil.copy(whole, tmp_path / "copy.db")
    store = SQLiteStore(copy)
    store.close()
    check_whole(copy)
    assert command.call(monkeypatch, "replay", copy) == 0


def test_a_copy_put_in_place_of_a_damaged_store_is_taken(torn, tmp_path, monkeypatch, capsys):
    copy = tmp_path / "copy"
    shutil.copytree(torn.parent, copy)
    SQLiteStore(copy / "x.db").close()
    change(torn.with_name("x.db-wal"), lambda content: content[:50_000])
    assert "put a copy of the store here" in refused(torn, monkeypatch, capsys)
    for path in torn.parent.iterdir():
        path.unlink()
    shutil.copy(copy / "x.db", torn)
    SQLiteStore(torn).close()
    check_whole(torn)


# the file itself


@pytest.mark.parametrize(
    ("hurt", "what"),
    [
        (lambda content: content[: len(content) // 2], "malformed"),
        (lambda content: content[:-1], "is damaged"),
        (lambda _: b"", "is empty, but it was not"),
        (lambda content: flipped(content, 5), "not a database"),
        (lambda content: flipped(content, 100), "damaged"),
        (lambda _: b"some text\n" * 500, "not a database"),
    ],
    ids=["half", "a byte less", "empty", "header", "schema", "text"],
)
def test_a_file_that_is_not_whole_is_found_out(whole, monkeypatch, capsys, hurt, what):
    change(whole, hurt)
    assert what in refused(whole, monkeypatch, capsys)


def test_every_page_that_is_zeroed_is_found_out(whole, monkeypatch, capsys):
    content = whole.read_bytes()
    pages = len(content) // 4096
    for page in range(1, pages):
        start = page * 4096
        whole.write_bytes(content[:start] + bytes(4096) + content[start + 4096 :])
        before = files(whole)
        with pytest.raises(FileFormatError, match="damaged"):
            SQLiteStore(whole)
        assert files(whole) == before
    assert "damaged" in refused(whole, monkeypatch, capsys)
    assert pages > 10


@pytest.mark.parametrize(
    ("sql", "what"),
    [
        ("PRAGMA user_version = 6", "has version 6"),
        ("PRAGMA application_id = 7", "not a store of adats"),
        ("PRAGMA user_version = 1", "its column decisions.seq is not as it was made"),
        ("DROP INDEX decisions_by_name", "its index decisions_by_name is not as it was made"),
        ("UPDATE commits SET count = 3", "41 were acknowledged"),
    ],
)
def test_a_store_of_another_kind_is_found_out(whole, monkeypatch, capsys, sql, what):
    run_sql(whole, sql)
    assert what in refused(whole, monkeypatch, capsys)


@pytest.mark.parametrize("state", ["torn", "whole"])
def test_a_file_that_is_gone_is_missed(request, monkeypatch, capsys, state):
    db = request.getfixturevalue(state)
    db.unlink()
    assert "is gone, but it was not" in refused(db, monkeypatch, capsys)


def test_an_empty_file_that_held_nothing_becomes_a_store(tmp_path):
    db = tmp_path / "x.db"
    db.write_bytes(b"")
    made = Local(db)
    assert made.put("x", GAUSSIAN)[0]
    made.close()
    assert check_file(db) == 1


def test_a_store_whose_making_was_cut_off_is_made(tmp_path):
    db = tmp_path / "x.db"
    run_sql(db, "PRAGMA journal_mode = WAL")
    assert db.stat().st_size > 0
    store = SQLiteStore(db)
    try:
        assert store.key_rows() == []
    finally:
        store.close()


def test_a_folder_without_a_write_ahead_log_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(sqlite_file, "connect", lambda *_, **__: sqlite3.connect(":memory:"))
    with pytest.raises(FileFormatError, match="no write-ahead log"):
        SQLiteStore(tmp_path / "x.db")


def test_a_refusal_is_exit_code_2_of_the_process_too(whole):
    change(whole, lambda content: content[:5000])
    command = [sys.executable, "-m", "adats", "serve", "--db", whole, "--port", "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert "damaged" in done.stderr


# single bytes


def contents(db):
    """All that can be read of a store."""
    with SQLiteReadView(db) as view:
        rows = view.experiments()
        parts = (view.tasks, view.decisions, view.rewards, view.changes)
        return rows, [list(part(row.id)) for row in rows for part in parts], view.key_rows()


def test_a_flipped_bit_is_found_or_harmless(tmp_path):
    """At the start, when the row is read, or when the log is replayed."""
    made = Local(tmp_path / "x.db")
    made.put("x", GAUSSIAN)
    for i in range(DECISIONS):
        made.clock.time += 1
        made.decide("x", DecisionRequest(f"t{i % 4}", f"d{i}"))
        made.reward("x", RewardRequest(f"d{i}", i / 4))
    made.close()
    good, db = (tmp_path / "x.db").read_bytes(), tmp_path / "hurt" / "x.db"
    db.parent.mkdir()
    db.write_bytes(good)
    wanted, rng, found = contents(db), random.Random(3), Counter()
    used = [place for place, byte in enumerate(good) if byte]  # the rest is free space, mostly
    for place in rng.sample(used, 400):
        for path in db.parent.iterdir():
            path.unlink()
        changed = bytearray(good)
        changed[place] ^= 1 << rng.randrange(8)
        db.write_bytes(changed)
        found[outcome(db, wanted)] += 1
    assert found["silent"] == 0, found
    assert found["start"] + found["read"] > 350, found


def outcome(db, wanted):
    try:
        check_file(db)
    except FileFormatError:
        return "start"
    try:
        if contents(db) == wanted:
            return "harmless"
    except (DamagedStore, StoreError):
        return "read"
    target = SQLiteStore(db.with_name("replayed.db"))
    try:
        with SQLiteReadView(db) as view:
            return "silent" if replay(view, target).same else "replay"
    finally:
        target.close()


# a row that is not as it was written


def spoiled(content):
    """The same bytes but for one."""
    return flipped(content, len(content) // 2)


@pytest.fixture
def partly(whole):
    """A store with one damaged task, one damaged decision, and one damaged experiment."""
    made = Local(whole, clock=lambda: 1e9)
    made.put("lost", GAUSSIAN)
    made.put("windowed", GAUSSIAN | {"window": 1.0, "default_reward": 0.0})
    for task in ("t1", "u"):
        made.decide("windowed", DecisionRequest(task, f"of-{task}"))
    made.close()
    connection = sqlite3.connect(whole)
    connection.create_function("spoiled", 1, spoiled)
    with connection:
        connection.execute("UPDATE tasks SET stats = spoiled(stats) WHERE task = 't1'")
        connection.execute("UPDATE decisions SET action = '\"c\"' WHERE decision_id = 'd2'")
        connection.execute("UPDATE decisions SET propensity = 0.5 WHERE decision_id = 'd2'")
        connection.execute("UPDATE experiments SET seed = seed + 1 WHERE name = 'lost'")
    connection.close()
    return whole


def test_damage_in_one_place_is_said_and_the_rest_goes_on(partly):
    with process(partly) as service:
        url = f"{service.url}/v1/experiments/x"

        def decide(task, name, experiment="x"):
            path = f"{service.url}/v1/experiments/{experiment}/decide"
            return call(path, "POST", {"task": task, "decision_id": name})

        status, answer, headers = decide("t1", "new")
        assert (status, answer["action"], answer["fallback"]) == (503, "b", True)
        assert "task 't1' is not as written" in answer["error"]
        assert "retry-after" in headers
        status, answer, _ = call(f"{url}/reward", "POST", {"decision_id": "d2", "reward": 3.0})
        assert status == 503
        assert "decision 'd2' is not as written" in answer["error"]
        assert call(f"{url}/tasks/t1")[0] == 503
        assert decide("t1", "d1")[0] == 200  # this was answered before, and is whole
        assert decide("t2", "d2")[0] == 503
        assert decide("t0", "e", experiment="lost")[0] == 503
        _, answer, _ = call(f"{service.url}/readyz")
        assert answer == {
            "status": "ready",
            "why": "part of the store is damaged; the service's log says it",
        }
        with ThreadPoolExecutor(16) as pool:  # in one group with the damaged
            asks = [("t1" if i % 4 == 1 else f"t{i % 4}", f"n{i}") for i in range(64)]
            codes = list(pool.map(lambda ask: decide(*ask)[0], asks))
        assert codes == [503 if task == "t1" else 200 for task, _ in asks]
        assert call(f"{service.url}/readyz")[0] == 200
        lines = call(f"{service.url}/metrics")[1].decode().splitlines()
        assert {"adats_damaged 1.0", "adats_ready 1.0"} <= set(lines)
        assert call(f"{url}/tasks/t2")[0] == 200
        service.process.terminate()
        _, logged = service.process.communicate(timeout=30)
    for what in ("task 't1'", "decision 'd2'", "experiment 'lost'"):
        assert f"ERROR the store is damaged: {what} is not as written" in logged
    assert "Traceback" not in logged
    names = {name for (name,) in select(partly, "SELECT decision_id FROM decisions")}
    assert {f"n{i}" for i in range(64) if i % 4 != 1} <= names
    assert not names & {"new", "e", *(f"n{i}" for i in range(1, 64, 4))}
    assert select(partly, "SELECT received FROM decisions WHERE decision_id = 'd2'") == [(1,)]
    with SQLiteReadView(partly) as view, pytest.raises(DamagedStore, match="task 't1'"):
        view.task(1, "t1")


def test_damage_among_what_is_due_holds_nobody_up(partly):
    run_sql(partly, "UPDATE decisions SET time = time + 1 WHERE decision_id = 'of-t1'")
    with process(partly) as service:
        url = f"{service.url}/v1/experiments/windowed"
        for i in range(20):
            asked = {"task": "u", "decision_id": f"v{i}"}
            assert call(f"{url}/decide", "POST", asked)[0] == 200
        reward = {"decision_id": "of-u", "reward": 2.0}
        assert call(f"{url}/reward", "POST", reward)[1]["status"] == "late"
        wait_for(lambda: call(f"{service.url}/readyz")[1]["why"] is not None)
        assert call(f"{service.url}/readyz")[0] == 200


def test_a_key_that_is_not_as_written_opens_nothing(whole, monkeypatch, capsys):
    assert command.call(monkeypatch, "keys", "add", "one", "--db", whole, "--read-only") == 0
    capsys.readouterr()
    run_sql(whole, "UPDATE keys SET write = 1")
    assert "key" in refused_to_serve(whole, monkeypatch, capsys)


def refused_to_serve(db, monkeypatch, capsys):
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")
    assert command.call(monkeypatch, "serve", "--db", db, "--port", "0") == 2
    return capsys.readouterr().err


def test_windows_of_other_tasks_end_though_one_task_is_damaged(tmp_path):
    path, clock = tmp_path / "x.db", Clock()
    spec = {**GAUSSIAN, "window": 10.0, "default_reward": 0.0}
    local = Local(path, clock)
    local.put("x", spec)
    for task in ("bad", "good"):
        local.decide("x", DecisionRequest(task, task))
    local.close()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE tasks SET rounds = 5 WHERE task = 'bad'")
    local = Local(path, clock)
    clock.time += 11.0
    try:
        assert sum(part.pulls for part in local.task("x", "good").parts) == 1
        with pytest.raises(DamagedStore, match="bad"):
            local.task("x", "bad")
        with local.store.view() as view:
            counted = {row.task: row.counted for row in view.decisions(1)}
        assert counted == {"bad": None, "good": 0.0}
    finally:
        local.close()
