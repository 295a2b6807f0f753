"""An experiment is paused, resumed, archived and deleted."""

from contextlib import ExitStack

import pytest

import adats
from adats.service.audit import check_store
from adats.service.engine import Engine
from adats.service.errors import NotFound
from adats.service.messages import DecisionRequest
from adats.service.stores.opening import open_store, open_view
from asgi import talk
from hammer import Connection, wait_for
from postgres import new_store
from served import GAUSSIAN, at_rest, call, process, replayed

AT = "/v1/experiments/x"
CONTROLLED = GAUSSIAN | {"control": "b", "window": 3600.0, "default_reward": 0.0}


def ask(number, **more):
    return ("POST", AT + "/decide", {"task": "t", "decision_id": f"d{number}", **more})


def tell(number, reward=1.0):
    return ("POST", AT + "/reward", {"decision_id": f"d{number}", "reward": reward})


def become(status):
    return ("PUT", AT + "/status", {"status": status})


def test_a_paused_experiment_decides_nothing_and_still_learns(url, tmp_path):
    calls = [("PUT", AT, GAUSSIAN), ask(1), become("paused"), become("paused"), ask(2), ask(1)]
    calls += [("POST", AT + "/decide", {"decisions": [ask(1)[2], ask(2)[2]]}), tell(1)]
    calls += [become("running"), ask(2)]
    _, made, paused, again, refused, same, both, told, resumed, new = talk(url, calls)
    assert (paused[0], paused[1]["status"]) == (200, "paused")
    assert again[1]["state_version"] == paused[1]["state_version"]
    assert refused == (409, {"error": "experiment 'x' is paused", "field": None})
    assert same == made
    assert both[1]["results"][0] == made[1]
    assert (both[1]["refused"], both[1]["results"][1]["code"]) == (1, 409)
    assert told[1]["status"] == "counted"
    assert (resumed[1]["status"], new[0]) == ("running", 200)
    assert talk(at_rest(url), [("GET", AT)])[0][1]["status"] == "running"
    found = replayed(url, tmp_path)
    assert (found.decisions, found.events) == (2, 5)
    assert check_store(url) == []


def test_whoever_asks_a_paused_experiment_gets_its_control_action(url):
    calls = [("PUT", AT, CONTROLLED), become("paused"), ask(1), ask(2, allowed=["a"])]
    calls += [("POST", AT + "/decide", {"decisions": [ask(1)[2], ask(2, allowed=["a"])[2]]})]
    _, _, control, refused, both = talk(url, calls)
    assert control[0] == 200
    assert (control[1]["action"], control[1]["fallback"]) == ("b", True)
    assert refused[0] == 409
    assert both[1]["results"][0] == control[1]
    assert both[1]["refused"] == 1
    assert talk(url, [tell(1)])[0][0] == 404
    assert talk(at_rest(url), [("GET", AT + "/report")])[0][1]["decisions"] == 0


def test_an_archived_experiment_stays_as_it_is_until_it_is_resumed(url, tmp_path):
    calls = [("PUT", AT, GAUSSIAN), ask(1), become("archived")]
    calls += [ask(2), tell(1), ("POST", AT + "/arms", {"arm": "d", "like": "a"})]
    calls += [("DELETE", AT + "/arms/a"), ("GET", "/v1/experiments"), ("GET", AT + "/report")]
    calls += [become("running"), tell(1), ("GET", "/v1/experiments")]
    answers = talk(url, calls)
    assert [status for status, _ in answers[3:7]] == [409] * 4
    assert answers[4][1]["error"] == "experiment 'x' is archived"
    assert answers[7][1] == {"experiments": [], "archived": ["x"]}
    assert answers[8][0] == 200
    assert answers[10][1]["status"] == "counted"
    assert answers[11][1] == {"experiments": ["x"], "archived": []}
    replayed(url, tmp_path)


def test_only_an_archived_experiment_is_deleted_and_then_it_is_gone(url, tmp_path):
    other = ("PUT", "/v1/experiments/other", GAUSSIAN)
    calls = [("PUT", AT, CONTROLLED), other, ask(1), tell(1), ask(2), ("DELETE", AT)]
    calls += [become("paused"), ("DELETE", AT), become("archived"), ("DELETE", AT), ("DELETE", AT)]
    calls += [ask(1), ("GET", AT), ("GET", AT + "/report"), become("running")]
    answers = talk(url, calls)
    codes = [status for status, _ in answers[5:]]
    assert codes == [409, 200, 409, 200, 204, 404, 404, 404, 404, 404]
    assert answers[7][1]["error"] == "experiment 'x' is paused: archive it first"
    with open_view(at_rest(url)) as view:
        assert [row.name for row in view.experiments()] == ["other"]
        assert view.due_count(1e12) == 0
    assert check_store(url) == []
    _, made, _ = talk(url, [("PUT", AT, GAUSSIAN | {"seed": 1}), ask(1), tell(1)])
    assert (made[0], made[1]["state_version"]) == (200, 0)
    assert talk(at_rest(url), [("GET", AT + "/report")])[0][1]["decisions"] == 1
    assert check_store(url) == []
    replayed(url, tmp_path)


def test_nothing_of_a_deleted_experiment_is_left_in_the_file(tmp_path):
    path = tmp_path / "x.db"
    calls = [("PUT", AT, GAUSSIAN), ("POST", AT + "/decide", {"task": "somebody-special"})]
    talk(path, calls)
    assert b"somebody-special" in path.read_bytes()
    talk(path, [become("archived"), ("DELETE", AT)])
    assert not [f for f in tmp_path.iterdir() if b"somebody-special" in f.read_bytes()]


@pytest.mark.parametrize(
    ("body", "field"),
    [({"status": "stopped"}, "status"), ({}, "status"), ({"status": "paused", "x": 1}, "x")],
)
def test_a_status_that_cannot_be_is_refused(tmp_path, body, field):
    calls = [("PUT", AT, GAUSSIAN), ("PUT", AT + "/status", body), ("GET", AT)]
    _, found, now = talk(tmp_path / "x.db", calls)
    assert (found[0], found[1]["field"]) == (422, field)
    assert now[1]["status"] == "running"


def test_all_workers_know_at_once():
    url = new_store("status")
    with process(url, "--workers", "2") as service, ExitStack() as stack:
        open_ones = [stack.enter_context(Connection(service.url)) for _ in range(12)]

        def everywhere(task):
            return {one.post("x", "decide", {"task": task})[0] for one in open_ones}

        assert open_ones[0].send("PUT", AT, GAUSSIAN)[0] == 201
        assert everywhere("t") == {200}
        for status, code in (("paused", 409), ("running", 200), ("archived", 409)):
            assert open_ones[1].send("PUT", AT + "/status", {"status": status})[0] == 200
            assert everywhere("t") == everywhere("new") == {code}
        assert open_ones[2].send("DELETE", AT)[0] == 204
        assert everywhere("t") == {404}
        assert open_ones[3].send("PUT", AT, GAUSSIAN | {"arms": ["q", "r"]})[0] == 201
        assert everywhere("t") == {200}
        reward = {one.post("x", "decide", {"task": "u"})[1]["action"] for one in open_ones}
        assert reward <= {"q", "r"}
        report = wait_for(
            lambda: (r := open_ones[0].send("GET", AT + "/report")[1])["decisions"] == 24 and r
        )
        assert report["tasks"] == 2
    assert check_store(url) == []


def test_a_group_that_waits_for_a_deletion_finds_nothing(url):
    """Where many write, a worker that knew the experiment before."""
    talk(url, [("PUT", AT, GAUSSIAN)])
    stores = [open_store(url) for _ in range(2 if url.startswith("postgres") else 1)]
    engines = [Engine(store) for store in stores]

    def group(engine, work, *arguments):
        engine.begin()
        try:
            found = getattr(engine, work)("default", "x", *arguments)
            engine.flush()
        except BaseException:
            engine.undo()
            raise
        engine.commit()
        return found

    for engine in engines:
        group(engine, "decide", DecisionRequest("t"))
    group(engines[0], "set_status", "archived")
    group(engines[0], "delete")
    for engine in engines:
        for task in ("t", "new"):
            with pytest.raises(NotFound):
                group(engine, "decide", DecisionRequest(task))
        with pytest.raises(NotFound):
            group(engine, "set_status", "running")
    for store in stores:
        assert store.waiting() == []
        store.close()
    assert check_store(url) == []


def test_the_client_pauses_resumes_archives_and_deletes(tmp_path):
    with process(tmp_path / "x.db") as service, adats.Client(service.url, "x") as client:
        assert call(f"{service.url}{AT}", "PUT", CONTROLLED)[0] == 201
        client.pause()
        decision = client.ask("ann")
        assert (decision.action, decision.fallback) == ("b", True)
        assert [d.fallback for d in client.ask_many(["ann", "bob"])] == [True, True]
        client.tell(decision, reward=1.0)  # is not sent
        client.resume()
        decision = client.ask("ann")
        assert not decision.fallback
        with pytest.raises(adats.Refused, match="archive it first") as found:
            client.delete()
        assert found.value.status == 409
        client.archive()
        with pytest.raises(adats.Refused, match="is archived"):
            client.tell(decision, reward=1.0)
        client.delete()
        with pytest.raises(adats.Refused, match="there is no experiment 'x'"):
            client.delete()
