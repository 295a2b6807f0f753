"""Exactly once: whatever sixteen connections send at the same moment."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from adats.service.stores.sqlite import SQLiteReadView
from hammer import (
    Client,
    Connection,
    check_replay,
    check_service,
    check_statistics,
    heard,
    loaded,
    start,
    told_by_library,
    wait_for,
)
from served import GAUSSIAN, call, process

CONNECTIONS = 16


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    db = tmp_path_factory.mktemp("once") / "x.db"
    with process(db) as running:
        running.db = db
        yield running


def put(service, name, **settings):
    assert call(f"{service.url}/v1/experiments/{name}", "PUT", GAUSSIAN | settings)[0] == 201


def together(service, requests):
    """Answers to requests, each on a connection of its own, sent at the same moment."""
    barrier = threading.Barrier(len(requests))

    def send(request):
        with Connection(service.url) as connection:
            connection.send("GET", "/healthz")  # the connection is there
            barrier.wait(30)
            return connection.send(*request)[:2]

    with ThreadPoolExecutor(len(requests)) as pool:
        return list(pool.map(send, requests))


def to(name, verb, **body):
    return ("POST", f"/v1/experiments/{name}/{verb}", body)


def rows(service, name):
    """Decisions and rewards in the store, whose statistics are those of the decisions."""
    with SQLiteReadView(service.db) as view:
        row = view.experiment("default", name)
        decisions, rewards = list(view.decisions(row.id)), list(view.rewards(row.id))
        check_statistics(view, row, told_by_library(decisions), decisions)
    return decisions, rewards


def pulls(service, name, task):
    _, belief, _ = call(f"{service.url}/v1/experiments/{name}/tasks/{task}")
    return [part["pulls"] for part in belief["parts"]]


@pytest.mark.parametrize("turn", range(3))
def test_one_decision_from_sixteen_connections_is_made_once(service, turn):
    name = f"decide-{turn}"
    put(service, name)
    answers = together(service, [to(name, "decide", task="t", decision_id="d")] * CONNECTIONS)
    assert answers[0][0] == 200
    assert answers == [answers[0]] * CONNECTIONS
    decisions, _ = rows(service, name)
    assert [(row.decision_id, row.action) for row in decisions] == [("d", answers[0][1]["action"])]


def test_one_reward_from_sixteen_connections_counts_once(service):
    put(service, "reward")
    together(service, [to("reward", "decide", task="t", decision_id="d")])
    answers = together(service, [to("reward", "reward", decision_id="d", reward=1.5)] * CONNECTIONS)
    assert [status for status, _ in answers] == [200] * CONNECTIONS
    found = sorted(body["status"] for _, body in answers)
    assert found == ["counted"] + ["duplicate"] * (CONNECTIONS - 1)
    decisions, rewards = rows(service, "reward")
    assert [row.counted for row in decisions] == [1.5]
    assert [row.reward for row in rewards] == [1.5]
    assert sorted(pulls(service, "reward", "t")) == [0.0, 0.0, 1.0]


def test_of_sixteen_different_rewards_the_first_counts(service):
    put(service, "differ")
    together(service, [to("differ", "decide", task="t", decision_id="d")])
    wanted = [to("differ", "reward", decision_id="d", reward=i) for i in range(CONNECTIONS)]
    answers = together(service, wanted)
    assert sorted(status for status, _ in answers) == [200] + [409] * (CONNECTIONS - 1)
    (counted,) = (i for i, (status, _) in enumerate(answers) if status == 200)
    decisions, rewards = rows(service, "differ")
    assert [row.counted for row in decisions] == [counted]
    assert len(rewards) == 1
    assert sum(pulls(service, "differ", "t")) == 1


def test_a_sum_has_each_reward_once_although_each_is_sent_twice(service):
    put(service, "sum", several="sum")
    together(service, [to("sum", "decide", task="t", decision_id="d")])
    wanted = [
        to("sum", "reward", decision_id="d", reward=2.0**i, reward_id=f"r{i}")
        for i in range(CONNECTIONS)
    ]
    answers = together(service, wanted + wanted)
    statuses = [body["status"] for _, body in answers]
    for i in range(CONNECTIONS):
        assert {statuses[i], statuses[i + CONNECTIONS]} == {"counted", "duplicate"}
    decisions, rewards = rows(service, "sum")
    assert [row.counted for row in decisions] == [2.0**CONNECTIONS - 1]
    assert len(rewards) == CONNECTIONS
    assert sum(pulls(service, "sum", "t")) == 1


def test_a_batch_and_single_rewards_at_the_same_moment_count_once_each(service):
    put(service, "batch")
    ids = [f"d{i}" for i in range(8)]
    together(service, [to("batch", "decide", task=name, decision_id=name) for name in ids])
    single = [to("batch", "reward", decision_id=name, reward=1.0) for name in ids]
    batch = to("batch", "reward", rewards=[{"decision_id": name, "reward": 1.0} for name in ids])
    answers = together(service, [*single, *[batch] * 8])
    assert {status for status, _ in answers} == {200}
    results = [result for _, body in answers for result in body.get("results", [body])]
    for name in ids:
        statuses = [one["status"] for one in results if one["decision_id"] == name]
        assert sorted(statuses) == ["counted"] + ["duplicate"] * 8
    decisions, rewards = rows(service, "batch")
    assert [row.counted for row in decisions] == [1.0] * 8
    assert len(rewards) == 8


def test_forgetting_at_the_same_moment_leaves_the_state_of_the_log(service, monkeypatch, capsys):
    put(service, "forget")
    with Connection(service.url) as connection:
        for turn in range(12):
            ids = [f"{turn}-{i}" for i in range(6)]
            for name in ids:
                asked = {"task": "t", "decision_id": name}
                assert connection.post("forget", "decide", asked)[0] == 200
            gone = ("DELETE", "/v1/experiments/forget/tasks/t")
            tells = [to("forget", "reward", decision_id=name, reward=1.0) for name in ids]
            other = to("forget", "decide", task="u", decision_id=f"u{turn}")
            answers = together(service, [*tells[:3], gone, *tells[3:], other, gone])
            codes = [status for status, _ in answers]
            assert {codes[3], codes[8]} == {204, 404}  # the second finds nothing
            assert set(codes[:3] + codes[4:7]) <= {200, 404}
            assert codes[7] == 200
            decisions, _ = rows(service, "forget")
            assert {row.task for row in decisions} == {"u"}  # a reward brings no task back
            reward = {"decision_id": ids[0], "reward": 1.0}
            assert connection.post("forget", "reward", reward)[0] == 404
    assert len(decisions) == 12
    check_replay(service.db, monkeypatch, capsys)


def test_every_moment_that_a_reader_sees_is_consistent(service, monkeypatch, capsys):
    start(service.url)
    clients = [Client(number, seed=5) for number in range(CONNECTIONS)]
    seen = set()

    def look():
        with SQLiteReadView(service.db) as view:
            for name in ("one", "more"):
                row = view.experiment("default", name)
                decisions = list(view.decisions(row.id))
                check_statistics(view, row, told_by_library(decisions), decisions)
                counted = sum(decision.counted is not None for decision in decisions)
                assert (row.decisions, row.counted) == (len(decisions), counted)
                versions = [decision.version for decision in decisions]
                assert versions == sorted(versions)
                assert row.version >= max(versions, default=0)
                seen.add((name, row.version))
        return len(seen) > 15 and heard(clients) > 500

    with loaded(service.url, clients):
        wait_for(look)
    check_service(service, service.db, clients)
    check_replay(service.db, monkeypatch, capsys)
