"""Several decisions in one request: each is answered or refused alone."""

import sqlite3

import pytest

import adats
from asgi import talk
from hammer import wait_for
from served import GAUSSIAN, at_rest, call, process, replayed

AT = "/v1/experiments/x"
SPEC = GAUSSIAN | {"holdout": {"share": 0.2}, "control": "b", "policy": {"name": "ucb"}}


def ask(task, **more):
    return {"task": task} | more


def test_each_of_several_is_answered_or_refused_alone(url, tmp_path):
    several = [
        ask("ann", decision_id="d1"),
        ask("ann", decision_id="d2", allowed=["a"]),
        ask("bob", decision_id="d3", allowed=["nothing"]),
        ask("bob", decision_id="d1"),
        ask("bob\n"),
        ask("ann", decision_id="d1"),
        ask("eve"),
    ]
    (_, first, again, one) = talk(
        url,
        [
            ("PUT", AT, SPEC),
            ("POST", AT + "/decide", {"decisions": several}),
            ("POST", AT + "/decide", {"decisions": several[:2]}),
            ("POST", AT + "/decide", several[0]),
        ],
    )
    assert (first[0], first[1]["refused"]) == (200, 3)
    results = first[1]["results"]
    assert [r.get("code") for r in results] == [None, None, 422, 409, 422, None, None]
    assert [results[i]["field"] for i in (2, 3, 4)] == ["allowed", None, "task"]
    assert "there is no arm 'nothing'" in results[2]["error"]
    assert results[5] == results[0] == one[1]
    assert again[1] == {"results": results[:2], "refused": 0}
    assert (results[1]["action"], results[1]["propensity"]) in {("a", 1.0), ("a", 0.8)}
    assert results[6]["decision_id"]
    assert talk(at_rest(url), [("GET", AT + "/report")])[0][1]["decisions"] == 3
    assert replayed(url, tmp_path).decisions == 3


def test_a_batch_is_what_single_requests_would_have_been(url, tmp_path):
    """All tasks are new, and nothing is told between them."""
    asks = [ask(f"t{i}", decision_id=f"d{i}") for i in range(30)]
    (_, several, *_) = talk(url, [("PUT", AT, SPEC), ("POST", AT + "/decide", {"decisions": asks})])
    (_, *single) = talk(
        tmp_path / "single.db", [("PUT", AT, SPEC), *(("POST", AT + "/decide", a) for a in asks)]
    )
    for one, (_, other) in zip(several[1]["results"], single, strict=True):
        assert [one[k] for k in ("action", "holdout")] == [other[k] for k in ("action", "holdout")]
        assert one["propensity"] == pytest.approx(other["propensity"], abs=1e-12)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"decisions": [ask("a")], "task": "b"}, "decisions"),
        ({"decisions": [ask("a")], "horizon": 3}, "decisions"),
        ({"decisions": [ask("a")] * 1001}, "decisions"),
        ({"decisions": [ask("a"), {"decision_id": "d"}]}, "decisions[1].task"),
        ({"decisions": [ask("a"), ask("b", more=1)]}, "decisions[1].more"),
        ({"decisions": [{"decisions": []}]}, "decisions[0].decisions"),
        ({"decision_id": "d"}, "task"),
        ({"task": ""}, "task"),
        ({}, "task"),
    ],
)
def test_a_body_that_cannot_be_is_refused_as_a_whole(tmp_path, body, field):
    (_, bad, report) = talk(
        tmp_path / "x.db",
        [("PUT", AT, GAUSSIAN), ("POST", AT + "/decide", body), ("GET", AT + "/report")],
    )
    assert (bad[0], bad[1]["field"]) == (422, field)
    assert "\n" not in bad[1]["error"]
    assert report[1]["decisions"] == 0


def test_without_a_store_each_gets_the_control_action_if_it_is_open(tmp_path):
    with process(tmp_path / "x.db") as service, adats.Client(service.url, "x") as client:
        at = f"{service.url}{AT}"
        assert call(at, "PUT", GAUSSIAN | {"control": "b"})[0] == 201
        lock = sqlite3.connect(tmp_path / "x.db", isolation_level=None)
        lock.execute("BEGIN IMMEDIATE")
        try:
            asks = [ask("ann", decision_id="d"), ask("bob", allowed=["a"])]
            status, some, _ = call(at + "/decide", "POST", {"decisions": asks})
            none = call(at + "/decide", "POST", {"decisions": asks[1:]})
            client._patience = 0.1
            fallback = client.ask_many(["ann", "bob"])
        finally:
            lock.close()
        assert (status, some["refused"], none[0]) == (503, 1, 503)
        assert (some["results"][0]["action"], some["results"][0]["fallback"]) == ("b", True)
        assert (some["results"][1]["code"], "action" in some["results"][1]) == (503, False)
        assert [(d.action, d.fallback) for d in fallback] == [("b", True)] * 2
        client.tell_many(fallback, [1.0, 1.0])  # of which nothing is sent
        assert client.report()["decisions"] == 0


def test_the_client_asks_and_tells_many(url):
    with process(url) as service, adats.Client(service.url, "x") as client:
        assert call(f"{service.url}{AT}", "PUT", GAUSSIAN)[0] == 201
        decisions = client.ask_many(f"t{i % 700}" for i in range(1400))
        assert [d.task for d in decisions] == [f"t{i % 700}" for i in range(1400)]
        assert len({d.decision_id for d in decisions}) == 1400
        client.tell_many(decisions, (float(d.action == "a") for d in decisions))
        client.tell_many(decisions[:1], [float(decisions[0].action == "a")])  # the same again
        wait_for(lambda: client.report()["counted"] == 1400)
        report = client.report()
        assert (report["decisions"], report["counted"], report["tasks"]) == (1400, 1400, 700)
        unknown = adats.Decision("t", "a", None, "no")
        new = client.ask("t")
        with pytest.raises(adats.Refused, match="1 of 2 were refused, first number 1: ") as found:
            client.tell_many([new, unknown], [1.0, 1.0])
        assert (found.value.status, str(found.value.results[1])) == (
            404,
            "there is no decision 'no'",
        )
        assert found.value.results[0]["status"] == "counted"
        with pytest.raises(adats.Refused, match="1 of 2 were refused, first number 0: ") as found:
            client.ask_many(["other", "t0"], decision_ids=[new.decision_id, "mine"])
        assert (found.value.status, found.value.results[1].decision_id) == (409, "mine")
        with pytest.raises(adats.Refused, match=r"metrics.no: the experiment has no such metric"):
            client.tell(client.ask("t"), reward=1.0, metrics={"no": 1.0})
        with pytest.raises(adats.Refused, match=r"metrics.no: the experiment has no such metric"):
            client.tell_many([client.ask("t")], [1.0], metrics=[{"no": 1}])
        with pytest.raises(ValueError, match="zip"):
            client.tell_many(decisions[:2], [1.0])
