"""What a worker on PostgreSQL answers when something goes wrong, and what is true after that."""

import subprocess
import time

import psycopg
import pytest

from adats.service.audit import check_store
from adats.service.stores.opening import open_view
from hammer import wait_for
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
    assert decide(service, "h0", "held")[0] == decide(service, "o0", "other")[0] == 200
    schema = store.rpartition("=")[2]
    with psycopg.connect(store.partition("&schema")[0]) as connection:
        held = f"SELECT 1 FROM {schema}.tasks WHERE task = 'held' FOR UPDATE"
        connection.execute(held)
        began = time.monotonic()
        assert decide(service, "o1", "other")[0] == 200
        assert time.monotonic() - began < 1.0
        status, answer = decide(service, "h1", "held")
        assert (status, answer["fallback"]) == (503, True)
        connection.rollback()
    assert decide(service, "h1", "held")[0] == 200
