"""Whether a commit has happened whose answer was lost: what was written says so."""

import msgspec
import pytest

from adats.service.audit import check_store
from adats.service.engine import Engine
from adats.service.errors import Again, StoreError
from adats.service.messages import DecisionRequest
from adats.service.spec import ExperimentSpec
from adats.service.stores import postgres
from adats.service.stores.opening import open_store, open_view
from postgres import new_store
from relay import Relay
from served import GAUSSIAN
from shared_play import group

COMMITTED = "SELECT 'committed' WHERE %(xid)s::text IS NOT NULL"


@pytest.fixture(scope="module")
def url():
    return new_store("outcome")


@pytest.fixture(scope="module")
def other(url):
    """A worker that nothing happens to."""
    engine = Engine(open_store(url))
    spec = msgspec.convert(GAUSSIAN, ExperimentSpec)
    group(engine, lambda: engine.put("default", "x", spec))
    yield engine
    engine.store.close()


@pytest.fixture
def relay(url):
    made = Relay(url)
    yield made
    made.close()


@pytest.fixture
def worker(url, relay, other):  # noqa: ARG001
    engine = Engine(open_store(relay.url(url)))
    yield engine
    engine.store.close()


def decide(engine, *tasks):
    def work():
        asked = [("default", "x", DecisionRequest(task, f"of {task}")) for task in tasks]
        engine.load(asked)
        return [engine.decide(*one) for one in asked]

    return group(engine, work)


def kept(url):
    with open_view(url) as view:
        rows = view.decisions(view.experiment("default", "x").id)
        return {row.decision_id for row in rows}


def meanwhile(monkeypatch, work):
    """Before the worker is connected again."""
    connect = postgres.connect

    def later(*arguments):
        work()
        return connect(*arguments)

    monkeypatch.setattr(postgres, "connect", later)


def test_a_number_given_to_another_transaction_proves_nothing(url, relay, worker, monkeypatch):
    monkeypatch.setattr(postgres.sql, "STATUS", COMMITTED)
    relay.cut = "before"
    with pytest.raises(Again):
        decide(worker, "lost")
    assert "of lost" not in kept(url)
    relay.cut = "after"
    decide(worker, "there")
    assert "of there" in kept(url)


def test_a_number_that_is_not_given_yet_is_of_a_lost_transaction(worker):
    found = worker.store._one(postgres.sql.STATUS, {"xid": str(2**40)})
    assert found == ("aborted",)


def test_what_is_forgotten_meanwhile_does_not_hide_the_rest(url, relay, worker, other, monkeypatch):
    meanwhile(monkeypatch, lambda: group(other, lambda: other.forget("default", "x", "first")))
    relay.cut = "after"
    decide(worker, "first", "second")
    assert kept(url) >= {"of second"}
    assert "of first" not in kept(url)
    relay.cut = "after"
    with pytest.raises(Again):  # nothing of it is left: it is done again, after that
        decide(worker, "first")
    assert check_store(url) == []


def test_a_fold_that_was_cut_is_not_asked_about(url, relay, worker, other, monkeypatch):
    """Nobody waits for it. What is there is read again."""
    asked = []
    monkeypatch.setattr(worker.store, "_ask_for_outcome", asked.append)
    for how in ("before", "after"):
        decide(other, f"folded {how}")
        relay.cut = how
        with pytest.raises(StoreError):
            worker.fold_all()
        assert asked == []
        worker.undo()
        worker.begin()
        assert bool(other.store.waiting()) == (how == "before")
        worker.fold_all()
        assert check_store(url) == []
