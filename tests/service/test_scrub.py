"""Damage in a store of any size: refused at the start, found when it is read, or by the scrub."""

import random
import sqlite3
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from adats.models.core.errors import FileFormatError
from adats.service.errors import DamagedStore, StoreError
from adats.service.http import app
from adats.service.messages import DecisionRequest, NewArm, RewardRequest
from adats.service.reports import report
from adats.service.stores import sqlite_check, sqlite_file
from adats.service.stores.interface import Keys
from adats.service.stores.sqlite import SQLiteReadView, SQLiteStore
from adats.service.stores.sqlite_check import Scrub
from hammer import wait_for
from served import GAUSSIAN, Local, call, process

FLIPS = 300
SPEC = GAUSSIAN | {"several": "sum", "window": 1e6, "default_reward": 0.0}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A store with tasks that are stale, rewards with names, windows that are open."""
    path = tmp_path_factory.mktemp("made") / "x.db"
    local = Local(path)
    local.put("x", SPEC)
    clicks = {"model": "binary", "arms": ["a", "b"], "prior": {"default": {}}, "seed": 8}
    local.put("clicks", clicks)
    for i in range(60):
        local.clock.time += 100
        local.decide("x", DecisionRequest(f"t{i % 9}", f"d{i}"))
        local.reward("x", RewardRequest(f"d{i // 2}", i / 4, f"r{i}"))
        local.decide("clicks", DecisionRequest(f"t{i % 9}", f"d{i}"))
        local.reward("clicks", RewardRequest(f"d{i}", float(i % 5 == 0)))
    local.forget("x", "t3")
    local.add_arm("x", NewArm("d", like="a"))
    local.close()
    return path


def scrubbed(path):
    """What a round of the scrub finds."""
    scrub, found = Scrub(), []
    while not scrub.rounds:
        with SQLiteReadView(path) as view:
            found += scrub.step(view, limit=50)
    return found


def seen(path, names):
    """All that the service can say and look up."""
    with SQLiteReadView(path) as view:
        rows = view.experiments()
        parts = (view.tasks, view.decisions, view.rewards, view.changes, view.beliefs)
        whole = [list(part(row.id)) for row in rows for part in parts]
        told = [report(view, row, 1e9) for row in rows]
        own = [view.counts(row.id) for row in rows]
        due, keys = view.due_count(1e9), view.key_rows()
    store = SQLiteStore(path)
    try:
        store.begin()
        loaded = [store.load(Keys(*asked)) for asked in names]
        due = [due, store.due(1e9, 1000)]
        of_tasks = [store.decisions_of(row.id, f"t{i}") for row in rows for i in range(9)]
        stale = [store.stale_tasks(row.id, 99, (-1, ""), 99) for row in rows]
        store.rollback()
    finally:
        store.close()
    return rows, whole, told, own, due, keys, loaded, of_tasks, stale


def lookups(path):
    with SQLiteReadView(path) as view:
        decisions = [row for of in view.experiments() for row in view.decisions(of.id)]
    tasks = {(row.experiment, row.task) for row in decisions}
    return [(sorted(tasks), [(row.experiment, row.decision_id) for row in decisions])]


def test_a_store_that_is_whole_is_found_whole(made):
    assert scrubbed(made) == []


def test_each_flipped_bit_is_refused_reported_or_harmless_at_any_size(made, tmp_path, monkeypatch):
    """As if it were too large to be read as a whole at the start."""
    monkeypatch.setattr(sqlite_file, "MOST_FOR_FULL_CHECK", 0)
    good, db = made.read_bytes(), tmp_path / "x.db"
    names = lookups(made)
    db.write_bytes(good)
    wanted, rng, found = seen(db, names), random.Random(5), Counter()
    used = [place for place, byte in enumerate(good) if byte]
    for place in rng.sample(used, FLIPS):
        for path in tmp_path.iterdir():
            path.unlink()
        changed = bytearray(good)
        changed[place] ^= 1 << rng.randrange(8)
        db.write_bytes(changed)
        found[outcome(db, names, wanted)] += 1
    assert found["silent"] == 0, found
    assert found["read"] + found["scrub"] > FLIPS / 2, found


def outcome(db, names, wanted):
    try:
        sqlite_file.check_file(db)
        same = seen(db, names) == wanted
    except FileFormatError:
        return "start"
    except (DamagedStore, StoreError):
        return "read"
    try:
        if scrubbed(db):
            return "scrub"
    except (DamagedStore, StoreError):
        return "scrub"
    return "harmless" if same else "silent"


@pytest.mark.parametrize(
    ("hurt", "what"),
    [
        (
            "UPDATE decisions SET explored = 1 - explored WHERE decision_id = 'd9'",
            "is not as written",
        ),
        ("UPDATE rewards SET reward = reward + 1 WHERE id = 9", "is not as written"),
        ("UPDATE tasks SET generation = 7 WHERE id = 3", "is not as written"),
        ("UPDATE changes SET kind = 'arm'", "is not as written"),
        ("UPDATE beliefs SET mean = scale", "is not as written"),
        ("UPDATE hourly SET counted = counted + 1", "is not as written"),
        ("DELETE FROM hourly WHERE arm = '\"a\"'", "do not agree"),
    ],
)
def test_the_scrub_names_what_is_wrong(made, tmp_path, hurt, what):
    db = tmp_path / "x.db"
    db.write_bytes(made.read_bytes())
    with closing(sqlite3.connect(db)) as connection, connection:
        assert connection.execute(hurt).rowcount > 0
    found = scrubbed(db)
    assert found
    assert all(what in line for line in found)


@pytest.mark.parametrize("index", ["decisions_by_name", "tasks_by_name", "rewards_by_name"])
def test_an_index_that_lost_a_row_is_found(made, tmp_path, index):
    """A decision that cannot be found would be made twice."""
    db = tmp_path / "x.db"
    db.write_bytes(made.read_bytes())
    with closing(sqlite3.connect(db, isolation_level=None)) as connection:
        (sql,) = connection.execute(
            "SELECT sql FROM sqlite_master WHERE name = ?", (index,)
        ).fetchone()
        short = f"{sql} WHERE id <> 5"
        connection.execute(f"DROP INDEX {index}")
        connection.execute(short)
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute("UPDATE sqlite_master SET sql = ? WHERE name = ?", (sql, index))
    assert any(index in line for line in scrubbed(db))


@pytest.mark.parametrize("index", ["decisions_by_name", "tasks_by_name", "rewards_by_name"])
def test_a_row_that_is_gone_is_found(made, tmp_path, index):
    db, table = tmp_path / "x.db", index.partition("_")[0]
    db.write_bytes(made.read_bytes())
    of_index = "SELECT sql FROM sqlite_master WHERE name = ?"
    for hurt in (f"DELETE FROM {table} WHERE id = 5", None):  # the index does not know of it
        with closing(sqlite3.connect(db, isolation_level=None)) as connection:
            (sql,) = connection.execute(of_index, (index,)).fetchone()
            sql = f"{sql} WHERE id <> 5" if hurt else sql.removesuffix(" WHERE id <> 5")
            connection.execute("PRAGMA writable_schema = ON")
            connection.execute("UPDATE sqlite_master SET sql = ? WHERE name = ?", (sql, index))
        with closing(sqlite3.connect(db, isolation_level=None)) as connection:
            connection.execute(hurt or "SELECT 1")
    assert any(f"are in {index} only" in line for line in scrubbed(db))


def test_a_look_is_as_short_in_a_store_ten_times_as_large(tmp_path, monkeypatch):
    """Counted in steps of SQLite's machine. Pages are looked at all at once, of small tables."""
    monkeypatch.setattr(sqlite_check, "MOST_FOR_PAGES", 0)
    longest = []
    for decisions in (300, 3000):
        db = tmp_path / f"{decisions}.db"
        local = Local(db)
        local.put("x", SPEC)
        local.engine.begin()
        for i in range(decisions):
            local.clock.time += 1
            local.engine.decide("default", "x", DecisionRequest(f"t{i % 70}", f"d{i}"))
            local.engine.reward("default", "x", RewardRequest(f"d{i // 2}", i / 4, f"r{i}"))
        local.engine.flush()
        local.engine.commit()
        local.close()
        longest.append(longest_look(db))
    assert longest[1] < 1.2 * longest[0]


def longest_look(db):
    scrub, steps = Scrub(), []
    while not scrub.rounds:
        with SQLiteReadView(db) as view:
            steps.append(0)

            def count():
                steps[-1] += 1

            view._connection.set_progress_handler(count, 10)
            assert scrub.step(view, limit=20) == []
    return max(steps)


def test_what_is_committed_between_slices_is_no_damage(made, tmp_path):
    db = tmp_path / "x.db"
    db.write_bytes(made.read_bytes())
    local, scrub, found = Local(db), Scrub(), []
    for i in range(150):
        local.clock.time = 1e5 + i
        local.decide("x", DecisionRequest(f"n{i % 20}", f"n{i}"))
        local.reward("x", RewardRequest(f"n{i}", 0.5))
        if i % 50 == 30:
            local.forget("x", f"n{i % 20}")
        with SQLiteReadView(db) as view:
            found += scrub.step(view, limit=7)
    local.close()
    assert scrub.rounds > 0
    assert found == []


def test_a_service_says_what_the_scrub_finds(made, tmp_path):
    db = tmp_path / "x.db"
    db.write_bytes(made.read_bytes())
    with closing(sqlite3.connect(db)) as connection, connection:
        connection.execute("UPDATE experiments SET seed = 4 WHERE name = 'x'")
    with process(db, "--trust-clock") as service:
        wait_for(lambda: call(f"{service.url}/readyz")[1]["why"] is not None)
        service.process.terminate()
        logged = service.process.communicate(timeout=30)[1]
    assert "experiment 'x' is not as written" in logged
    assert app.SCRUB_PAUSE <= 1.0


# what was forgotten


def test_forget_is_answered_when_nothing_is_left_though_somebody_reads(tmp_path):
    db, name = tmp_path / "x.db", "somebody-with-a-name"
    with process(db) as service:
        url = f"{service.url}/v1/experiments/x"
        assert call(url, "PUT", GAUSSIAN)[0] == 201
        for i in range(3):
            asked = {"task": name, "decision_id": f"d{i}"}
            assert call(f"{url}/decide", "POST", asked)[0] == 200
        view = SQLiteReadView(db)
        assert len(list(view.decisions(1))) == 3
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(call, f"{url}/tasks/{name}", "DELETE")
            for i in range(5):
                asked = {"task": "another", "decision_id": f"e{i}"}
                assert call(f"{url}/decide", "POST", asked)[0] == 200
            assert not answer.done()
            view.close()
            assert answer.result(10)[0] == 204
        for path in tmp_path.iterdir():
            assert name.encode() not in path.read_bytes(), path
