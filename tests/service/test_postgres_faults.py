"""What a worker on PostgreSQL answers when something goes wrong, and what is true after that."""

import os
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import psycopg
import pytest

from adats.service.audit import check_store
from adats.service.stores.opening import open_store, open_view
from hammer import wait_for, waits
from postgres import new_store
from relay import Relay
from served import GAUSSIAN, call, process

SPEC = GAUSSIAN | {"control": "b"}


@pytest.fixture(scope="module")
def store():
    return new_store("faults")


@pytest.fixture(scope="module")
def relay(store):
    made = Relay(store)
    yield made
    made.close()


@pytest.fixture(scope="module")
def service(store, relay):
    with process(relay.url(store), stderr=subprocess.DEVNULL) as running:
        experiment = f"{running.url}/v1/experiments/x"
        assert call(experiment, "PUT", SPEC)[0] == 201
        yield experiment


def decide(service, name, task="t"):
    return call(f"{service}/decide", "POST", {"task": task, "decision_id": name})[:2]


def kept(store):
    with open_view(store) as view:
        return [row.decision_id for row in view.decisions(view.experiment("default", "x").id)]


def cut(relay, how):
    """At the next commit; those of folds and of looks at windows are cut too, until one counts."""
    relay.cut = how


@pytest.mark.parametrize("how", ["before", "after"])
def test_a_connection_cut_in_a_commit_is_asked_about(store, relay, service, how):
    for i in range(3):
        known = relay.cuts
        cut(relay, how)
        status, answer = decide(service, f"{how}{i}")
        wait_for(lambda known=known: relay.cuts > known)
        assert status == 200, answer
        assert decide(service, f"{how}{i}") == (200, answer)
    made = [name for name in kept(store) if name.startswith(how)]
    assert sorted(made) == [f"{how}{i}" for i in range(3)]
    assert check_store(store) == []


def test_without_the_database_the_answer_is_the_fallback(relay, service):
    decide(service, "before-the-fault")
    relay.shut = True
    relay.end_all()
    try:
        status, answer = decide(service, "away")
        assert status == 503
        assert (answer["fallback"], answer["action"]) == (True, "b")
    finally:
        relay.shut = False
    wait_for(lambda: decide(service, "back")[0] == 200)


def test_where_the_outcome_is_unknown_there_is_no_fallback(store, relay, service):
    """The commit was sent, nobody knows whether it arrived, and the database is away."""
    unknown = None
    relay.shut_when_cut = True
    try:
        for i in range(10):  # until it is the commit of the decision that is cut
            relay.cut = "after"
            status, answer = decide(service, f"u{i}")
            relay.shut = False
            if status == 503 and not answer.get("fallback"):
                unknown = f"u{i}"
                break
            wait_for(lambda: decide(service, "back")[0] == 200)
    finally:
        relay.shut_when_cut = relay.shut = False
        relay.cut = None
    assert unknown is not None
    assert "action" not in answer
    wait_for(lambda: decide(service, unknown)[0] == 200)
    assert kept(store).count(unknown) == 1
    assert check_store(store) == []


def test_a_task_that_somebody_holds_gets_the_fallback_and_others_go_on(store, service):
    """Those that come with it, in the same group, do not wait for it."""
    assert decide(service, "h0", "held")[0] == 200
    schema, slowest = store.rpartition("=")[2], []

    def timed(i):
        began = time.monotonic()
        assert decide(service, f"o{i}", f"other {i % 5}")[0] == 200
        return time.monotonic() - began

    with outside(store) as connection, ThreadPoolExecutor(16) as pool:
        connection.execute(f"SELECT 1 FROM {schema}.tasks WHERE task = 'held' FOR UPDATE")
        for turn in range(5):  # the least of some: what else the machine does only adds to it
            held = [pool.submit(decide, service, f"h{turn}-{i}", "held") for i in range(3)]
            slowest.append(0.0)
            for first in range(160 * turn, 160 * turn + 160, 8):
                slowest[-1] = max(slowest[-1], *pool.map(timed, range(first, first + 8)))
            for status, answer in (one.result() for one in held):
                assert (status, answer["fallback"]) == (503, True)
            if slowest[-1] < 1.0:
                break
        assert call(f"{service.rpartition('/v1')[0]}/readyz")[0] == 200
        later = pool.submit(decide, service, "h0-0", "held")
        time.sleep(0.5)
        connection.rollback()
        assert later.result()[0] == 200
    assert min(slowest) < 1.0, slowest
    assert kept(store).count("h0-0") == 1


def outside(store, **options):
    """A session of somebody else, who has nothing to do with the service."""
    return psycopg.connect(store.partition("&schema")[0], **options)


def test_a_worker_that_stops_between_its_messages_keeps_a_task_for_seconds_only(store, service):
    """No timeout of PostgreSQL ends a session that has sent no end of its pipeline."""
    assert decide(service, "known", "stopped")[0] == 200
    schema = store.rpartition("=")[2]
    session = outside(store, application_name="adats")
    with suppress(psycopg.OperationalError), session, session.pipeline():  # it is ended
        session.execute("BEGIN")
        lock = f"SELECT 1 FROM {schema}.tasks WHERE task = 'stopped' FOR UPDATE"
        session.execute(lock)
        with outside(store, autocommit=True) as looking:  # it was sent, nobody says when it is done
            wait_for(lambda: looking.execute(f"{lock} SKIP LOCKED").fetchone() is None)
        assert decide(service, "held", "stopped")[0] == 503
        wait_for(lambda: decide(service, "held", "stopped")[0] == 200, 60)


def test_a_deadlock_is_not_seen_by_the_client(store, service):
    """Somebody locks two tasks in the other order, and waits for longer than the service."""
    schema = store.rpartition("=")[2]
    known = [decide(service, f"l{task}", f"lock {task}")[1]["decision_id"] for task in "ab"]
    tells = {"rewards": [{"decision_id": name, "reward": 1.0} for name in known]}
    lock = f"SELECT 1 FROM {schema}.tasks WHERE task = %s FOR UPDATE"
    with outside(store) as connection, ThreadPoolExecutor(2) as pool:
        connection.execute("SET LOCAL deadlock_timeout = '20s'")
        connection.execute(lock, ("lock b",))
        answer = pool.submit(call, f"{service}/reward", "POST", tells)
        waits = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        with outside(store, autocommit=True) as looking:
            wait_for(lambda: looking.execute(waits).fetchone())
        connection.execute(lock, ("lock a",))  # the service has that one, until it gives up
        connection.rollback()
        status, said = answer.result()[:2]
    assert (status, [one["status"] for one in said["results"]]) == (200, ["counted"] * 2)
    assert check_store(store) == []


def test_what_the_database_could_not_serialise_is_done_again(store, service):
    """Three times in a row it says so, at the last statement of a group."""
    schema = store.rpartition("=")[2]
    decide(service, "s0", "serial")
    with outside(store, autocommit=True) as connection:
        for statement in SERIALISATION.format(schema=schema).split("--"):
            connection.execute(statement)
        try:
            assert decide(service, "s1", "serial")[0] == 200
            (tries,) = connection.execute(f"SELECT last_value FROM {schema}.tries").fetchone()
        finally:
            connection.execute(f"DROP FUNCTION {schema}.fail CASCADE")
            connection.execute(f"DROP SEQUENCE {schema}.tries")
    assert tries == 4
    assert kept(store).count("s1") == 1


SERIALISATION = """
CREATE SEQUENCE {schema}.tries
-- CREATE FUNCTION {schema}.fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF nextval('{schema}.tries') < 4 THEN
        RAISE 'could not serialize access' USING ERRCODE = '40001';
    END IF;
    RETURN NEW;
END $$
-- CREATE TRIGGER fail BEFORE INSERT ON {schema}.decisions
FOR EACH ROW EXECUTE FUNCTION {schema}.fail()
"""


def test_whatever_the_database_is_set_to_groups_read_what_is_committed(store):
    """Under another isolation they would not see what those wrote whom they have waited for."""
    strict = store.replace("?", "?options=-c%20default_transaction_isolation%3Dserializable&")
    opened = open_store(strict)
    try:
        opened._begun()
        assert opened._one("SHOW transaction_isolation") == ("read committed",)
    finally:
        opened.close()


def test_somebodys_long_transaction_keeps_nobody_from_going_on(store, service):
    """It has read all tables and stays; rows that are deleted meanwhile cannot be cleared away."""
    schema = store.rpartition("=")[2]
    with outside(store) as connection:
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        before = connection.execute(f"SELECT count(*) FROM {schema}.decisions").fetchone()
        connection.execute(f"SELECT * FROM {schema}.queue, {schema}.folded, {schema}.experiments")
        took = []
        for turn in range(5):  # the least of some: what else the machine does only adds to it
            for i in range(100 * turn, 100 * turn + 100):
                status, made = decide(service, f"long{i}", f"long {i % 7}")
                assert status == 200
                told = {"decision_id": made["decision_id"], "reward": 1.0}
                assert call(f"{service}/reward", "POST", told)[0] == 200
            began = time.monotonic()
            wait_for(lambda: not unfolded(store))
            took.append(time.monotonic() - began)
            if took[-1] < 1.0:
                break
        assert min(took) < 1.0, took
        assert connection.execute(f"SELECT count(*) FROM {schema}.decisions").fetchone() == before
    assert check_store(store) == []


def unfolded(store):
    with open_view(store) as view:
        return view.unfolded(view.experiment("default", "x").id)


def test_clocks_of_workers_do_not_matter(tmp_path):
    """One is an hour late and one an hour early; windows and times are the database's."""
    store = new_store("clocks")
    (tmp_path / "sitecustomize.py").write_text(WRONG_CLOCK)
    path = f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    spec = GAUSSIAN | {"window": 1.0, "default_reward": 0.0, "apply": "at_window_end"}

    def worker(seconds):
        env = os.environ | {"PYTHONPATH": path, "CLOCK_OFF": str(seconds)}
        return process(store, env=env, stderr=subprocess.DEVNULL)

    with worker(-3600) as late, worker(3600) as early:
        assert call(f"{late.url}/v1/experiments/x", "PUT", spec)[0] == 201
        one, two = (f"{running.url}/v1/experiments/x" for running in (late, early))
        counted = {"nobody's": 0.0}
        for i, (asked, told) in enumerate([(one, two), (two, one)] * 3):
            began = time.time()
            status, made = decide(asked, f"c{i}")
            assert status == 200
            assert began - 1.0 < made["time"] < time.time() + 1.0
            tell = {"decision_id": f"c{i}", "reward": 1.0}
            found = call(f"{told}/reward", "POST", tell)[1]["status"]
            in_time = found == "held"
            assert in_time or time.time() - began > 0.9  # a machine so slow that the window is over
            counted[f"c{i}"] = float(in_time)
        decide(one, "nobody's")
        wait_for(lambda: not waits(store))
        tell = {"decision_id": "nobody's", "reward": 1.0}
        assert call(f"{two}/reward", "POST", tell)[1]["status"] == "late"
    with open_view(store) as view:
        rows = list(view.decisions(view.experiment("default", "x").id))
    assert {row.decision_id: row.counted for row in rows} == counted
    assert check_store(store) == []


WRONG_CLOCK = """
import os, time
right, off = time.time, float(os.environ["CLOCK_OFF"])
time.time = lambda: right() + off
time.time_ns = lambda: int(1e9 * (right() + off))
"""
