"""The client: what a program sees when its agent is a service, and when that has trouble."""

import json
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from types import SimpleNamespace

import numpy as np
import pytest

import adats
import served
from adats.service import client as module
from adats.service import client_messages
from served import GAUSSIAN, Clock, call

BINARY = {"model": "binary", "arms": ["red", "blue"], "prior": {"default": {}}, "seed": 7}
LINEAR = {
    "model": "linear",
    "dim": 2,
    "noise": 1.0,
    "prior": {"given": {"mean": 0.0, "cov": 1.0, "task_cov": 0.1}},
    "seed": 7,
}
SEMI = GAUSSIAN | {"model": "semi-bandit", "size": 2, "exactly": True}
names = (f"experiment-{i}" for i in count())


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    db = tmp_path_factory.mktemp("client") / "x.db"
    with served.process(db) as running:
        running.db = db
        yield running


@pytest.fixture
def clock(monkeypatch):
    """For clients time passes only between two tries: it does not matter how fast this machine is.

    They wait for each answer.
    """
    made, exchange = Clock(0.0), adats.Client._exchange

    def sleep(seconds):
        made.time += seconds

    def patient(client, method, path, content, _):
        return exchange(client, method, path, content, 30.0)

    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=made, sleep=sleep))
    monkeypatch.setattr(adats.Client, "_exchange", patient)
    return made


@contextmanager
def client_of(service, spec, **options):
    """A client of a new experiment."""
    name = next(names)
    status, _, _ = call(f"{service.url}/v1/experiments/{name}", "PUT", spec)
    assert status == 201
    with adats.Client(service.url, name, **options) as client:
        yield client


def ten_lines(agent):
    """The README's program: whatever the agent is."""
    decisions = []
    for user in range(50):
        for _ in range(4):
            decision = agent.ask(f"user-{user}")
            clicked = decision.action == "blue"
            agent.tell(decision, reward=int(clicked))
            decisions.append(decision)
    return decisions, agent.ask("somebody new")


def test_one_line_makes_an_embedded_program_a_client(service, monkeypatch):
    numbers = count()  # what is drawn hangs on the ids of decisions
    own_ids = SimpleNamespace(token_hex=lambda _: f"{next(numbers):016x}")
    monkeypatch.setattr(client_messages, "secrets", own_ids)
    monkeypatch.setattr(client_messages, "time", SimpleNamespace(time_ns=lambda: 0, time=time.time))
    agent = adats.AdaTS(adats.default_prior(arms=["red", "blue"], rewards="binary"), seed=7)
    with client_of(service, BINARY) as client:
        embedded, remote = ten_lines(agent), ten_lines(client)
        report = client.report()
        _, meta, _ = call(f"{service.url}{client._base}/meta")
    assert embedded[1].action == remote[1].action == "blue"
    for decisions, _ in (embedded, remote):
        assert np.mean([d.action == "blue" for d in decisions[100:]]) > 0.9
    decisions = remote[0]
    assert [d.task for d in decisions] == [d.task for d in embedded[0]]
    assert len({d.decision_id for d in decisions}) == 200
    assert all(isinstance(d.decision_id, str) and 0 < d.propensity <= 1 for d in decisions)
    assert all(abs(d.time - time.time()) < 60 and not d.fallback for d in decisions)
    assert (report["decisions"], report["counted"], report["tasks"]) == (201, 200, 51)
    log = [d.record(float(d.action == "blue")) for d in decisions]
    same = adats.AdaTS(adats.default_prior(arms=["red", "blue"], rewards="binary"), seed=7)
    for row in log:
        same.tell(task=row["task"], action=row["arm"], reward=row["reward"])
    means = [part["mean"] for part in meta["parts"]]
    np.testing.assert_allclose(means, same.meta.mean, rtol=1e-3)  # tasks are renewed in turns


def test_features_rewards_and_arms_may_be_of_numpy(service):
    rows = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    with client_of(service, LINEAR) as client:
        decision = client.ask(np.int64(5), features=rows, allowed=np.array([2]))
        assert (decision.task, decision.action, decision.propensity) == (5, 2, 1.0)
        np.testing.assert_array_equal(decision.features, [1.0, 1.0])
        client.tell(decision, reward=np.float32(1.5))
        assert decision.record(1.5)["x1"] == 1.0
        _, view, _ = call(f"{service.url}{client._base}/tasks/5")
        assert all(part["mean"] > 0 for part in view["parts"])
        decision = client.ask("5", features=rows.astype(np.float32), horizon=np.int64(3))
        assert decision.features.tolist() == rows[decision.action].tolist()


def test_a_semi_bandit_decision_has_several_arms_and_rewards(service):
    with client_of(service, SEMI) as client:
        decision = client.ask("page")
        assert len(decision.action) == len(decision.propensity) == 2
        client.tell(decision, reward=np.array([1.0, 2.0]))
        assert client.report()["counted"] == 1
        with pytest.raises(ValueError, match="2 arms need as many rewards, got 3"):
            client.tell(client.ask("page"), reward=[1.0, 2.0, 3.0])


def test_what_is_not_a_number_is_never_sent():
    with adats.Client("http://127.0.0.1:9", "x", patience=0.01) as client:  # nobody listens there
        one = adats.Decision("t", 1, None, "id")
        two = adats.Decision("t", (1, 2), None, "id")
        for decision, reward in ((one, np.nan), (one, [1.0]), (two, [1.0, np.inf]), (one, "1")):
            with pytest.raises(ValueError, match="reward must be"):
                client.tell(decision, reward=reward)
        for features in ([[1.0, np.nan]], [1.0, 2.0]):
            with pytest.raises(ValueError, match="features must be"):
                client.ask("t", features=features)
        with pytest.raises(ValueError, match="a task is named by a string or an integer"):
            client.ask(1.5)
        with pytest.raises(ValueError, match="allowed is a list of arms"):
            client.ask("t", allowed="red")
        with pytest.raises(ValueError, match="horizon must be a whole number"):
            client.ask("t", horizon=0)


def test_only_rewards_of_its_decisions_are_told():
    client = adats.Client("http://127.0.0.1:9", "x")
    with pytest.raises(ValueError, match="rewards of its own decisions only"):
        client.tell(task="ann", action="red", reward=1.0)
    with pytest.raises(ValueError, match="rewards of its own decisions only"):
        client.tell(reward=1.0)
    agent = adats.AdaTS(adats.default_prior(arms=["red"], rewards="binary"), seed=1)
    for wrong in (agent.ask("ann"), "some-id"):
        with pytest.raises(ValueError, match="a Decision from this client's ask"):
            client.tell(wrong, reward=1.0)


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "ftp://x", "http://", "http://x:port"])
def test_an_address_that_cannot_be_is_refused(url):
    with pytest.raises(ValueError, match=r"address of a service|[Pp]ort"):
        adats.Client(url, "x")


def test_what_the_service_refuses_is_a_value_error_in_its_words(service):
    with adats.Client(service.url, "nowhere") as client:
        with pytest.raises(adats.Refused, match="there is no experiment 'nowhere'") as found:
            client.ask("ann")
        assert isinstance(found.value, ValueError)
        assert found.value.status == 404
    with client_of(service, GAUSSIAN) as client:
        with pytest.raises(adats.Refused, match="allowed: there is no arm 'z'") as found:
            client.ask("ann", allowed=["z"])
        assert (found.value.status, found.value.field) == (422, "allowed")
        decision = client.ask("ann")
        client.tell(decision, reward=1.0)
        client.tell(decision, reward=1.0)  # the same again
        with pytest.raises(adats.Refused, match="the decision has reward 1") as found:
            client.tell(decision, reward=2.0)
        assert found.value.status == 409
        with pytest.raises(adats.Refused, match="there is no decision 'unheard-of'") as found:
            client.tell(adats.Decision("ann", "a", None, "unheard-of"), reward=1.0)
        assert found.value.status == 404
        assert client.report()["counted"] == 1


def test_the_same_decision_id_is_the_same_decision(service):
    with client_of(service, GAUSSIAN) as client:
        first = client.ask("ann", decision_id="visit-1")
        client.tell(client.ask("bob"), reward=3.0)
        again = client.ask("ann", decision_id="visit-1")
        assert first == again
        assert first.decision_id == "visit-1"
        assert client.report()["decisions"] == 2


def test_reward_ids_tell_equal_rewards_apart(service):
    with client_of(service, GAUSSIAN | {"several": "sum"}) as client:
        decision = client.ask("ann", allowed=["a"])
        for reward_id in ("mon", "tue", "tue"):
            client.tell(decision, reward=1.0, reward_id=reward_id)
        _, log, _ = call(f"{service.url}{client._base}/log")
        assert json.loads(log)["reward"] == 2.0


@pytest.mark.parametrize("task", ["ann", 17, "a/b c?d#e%2F", "..", "żółw"])
def test_a_task_is_forgotten_whatever_its_name(service, task):
    with client_of(service, GAUSSIAN) as client:
        client.tell(client.ask(task), reward=1.0)
        client.tell(client.ask("other"), reward=1.0)
        client.forget(task)
        assert client.report()["tasks"] == 1
        with pytest.raises(adats.UnknownTask, match="there is no task"):
            client.forget(task)


def test_threads_share_a_client(service):
    with client_of(service, GAUSSIAN) as client:
        wrong = []

        def work(arm):
            for i in range(20):
                decision = client.ask(f"{arm}{i}", allowed=[arm])
                if (decision.task, decision.action) != (f"{arm}{i}", arm):
                    wrong.append(decision)
                client.tell(decision, reward=1.0)

        threads = [threading.Thread(target=work, args=(arm,)) for arm in "abcabcab"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wrong == []
        assert client.report()["counted"] == 160
        assert 1 <= len(client._idle) <= 8


FORK = """
import os, sys, adats
client = adats.Client(*sys.argv[1:])
client.ask("before", allowed=["c"])
child = os.fork() == 0
arm = "a" if child else "b"
wrong = sum(client.ask(arm, allowed=[arm]).action != arm for _ in range(30))
if child:
    os._exit(wrong)
sys.exit(wrong + os.waitstatus_to_exitcode(os.wait()[1]))
"""


def test_a_process_that_forks_does_not_mix_up_answers(service):
    with client_of(service, GAUSSIAN) as client:
        name = client._base.rpartition("/")[2]
        command = [sys.executable, "-c", FORK, service.url, name]
        assert subprocess.run(command, timeout=60).returncode == 0
        assert client.report()["decisions"] == 61


def test_while_the_store_is_locked_the_control_action_is_the_answer(service, clock):
    spec = GAUSSIAN | {"control": "c"}
    with client_of(service, spec, patience=1.5) as client, client_of(service, GAUSSIAN) as other:
        other._patience = 1.5
        client.tell(client.ask("ann"), reward=1.0)
        other.ask("ann")
        lock = sqlite3.connect(service.db, isolation_level=None)
        try:
            lock.execute("BEGIN IMMEDIATE")
            began = clock.time
            decision = client.ask(4)
            assert clock.time - began < 1.5
            assert decision.fallback
            assert (decision.task, decision.action, decision.propensity) == (4, "c", None)
            client.tell(decision, reward=5.0)  # goes nowhere
            with pytest.raises(ConnectionError, match="503: the store cannot be written now"):
                client.ask("ann", allowed=["a", "b"])  # which leaves out the control action
            with pytest.raises(ConnectionError, match="503: the store cannot be written now"):
                other.ask("ann")
            lock.execute("ROLLBACK")
        finally:
            lock.close()
        decision = client.ask("ann")
        assert not decision.fallback
        client.tell(decision, reward=1.0)
        report = client.report()
        assert (report["decisions"], report["counted"]) == (2, 2)


def test_keys_are_sent_and_not_shown(tmp_path):
    command = [sys.executable, "-m", "adats", "keys", "add", "shop", "--db", tmp_path / "x.db"]
    key = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    with served.process(tmp_path / "x.db") as service:
        assert call(f"{service.url}/v1/experiments/x", "PUT", GAUSSIAN, key)[0] == 201
        with adats.Client(service.url, "x", key=key) as client:
            assert client.ask("ann").action in ("a", "b", "c")
            assert key not in repr(client)
        for wrong in (None, "adats_1234_5678"):
            with adats.Client(service.url, "x", key=wrong) as client:
                with pytest.raises(adats.Refused, match="give a valid key") as found:
                    client.ask("ann")
                assert found.value.status == 401


# a service with trouble


@contextmanager
def fake(script):
    """A server that does what the script says, one item a request, and the last for ever after.

    An item is an answer (status, headers, body); "drop" reads the request and hangs up.
    """
    seen = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            length = int(self.headers.get("Content-Length", 0))
            seen.append((self.path, json.loads(self.rfile.read(length) or "null")))
            item = script[min(len(seen), len(script)) - 1]
            item = item(seen[-1][1]) if callable(item) else item
            if item == "drop":
                self.close_connection = True
                return
            status, headers, body = item
            content = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_DELETE = do_POST

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", seen
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def decided(asked):
    more = {"action": "a", "propensity": 0.5, "time": 1.0, "fallback": False}
    return 200, {}, asked | more


FULL = (503, {"Retry-After": "0"}, {"error": "the disk is full"})
LOCK_WAIT = (429, {"Retry-After": "1"}, {"error": "1000 requests are waiting"})


@pytest.mark.parametrize(
    ("script", "least"),
    [
        (["drop", decided], 0.0),
        (["drop", "drop", FULL, decided], 0.0),
        ([LOCK_WAIT, decided], 1.0),
        ([(502, {}, b"<html>bad gateway</html>"), decided], 1.0),
        ([(503, {"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}, {}), decided], 1.0),
    ],
)
def test_what_passes_is_asked_again_with_the_same_id(clock, script, least):
    with fake(script) as (url, seen), adats.Client(url, "x") as client:
        decision = client.ask("ann")
        assert least <= clock.time < 1.5
        assert decision.action == "a"
        assert len(seen) == len(script)
        assert all(request == seen[0] for request in seen)
        assert seen[0][1] == {"task": "ann", "decision_id": decision.decision_id}


def test_patience_ends(clock):
    with fake(["drop"]) as (url, seen), adats.Client(url, "x", patience=0.3) as client:
        with pytest.raises(ConnectionError, match="does not answer"):
            client.ask("ann")
        assert clock.time < 0.3
        assert len(seen) > 1
    with fake([LOCK_WAIT]) as (url, seen), adats.Client(url, "x", patience=0.3) as client:
        with pytest.raises(ConnectionError, match="answers 429: 1000 requests are waiting"):
            client.report()
        assert len(seen) == 1  # a second later it would be too late
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{mute.getsockname()[1]}"  # nobody listens there
        with pytest.raises(ConnectionError, match="does not answer"):
            adats.Client(url, "x", patience=0.3).ask("ann")


def test_a_service_that_hangs_is_not_waited_for_longer():
    over, took = threading.Event(), []

    def hang(_):
        over.wait(30)
        return "drop"

    with fake([hang]) as (url, _):
        for _ in range(5):  # the least of some: what else the machine does only adds to it
            with adats.Client(url, "x", patience=0.3) as client:
                began = time.monotonic()
                with pytest.raises(ConnectionError, match="does not answer"):
                    client.ask("ann")
                took.append(time.monotonic() - began)
            if took[-1] < 0.9:
                break
        over.set()
    assert min(took) < 0.9, took


@pytest.mark.usefixtures("clock")
def test_the_fallback_is_taken_only_when_patience_is_over():
    down = (503, {"Retry-After": "0"}, {"error": "full", "action": 1, "fallback": True})
    features = [[1.0, 0.0], [0.0, 1.0]]
    with fake([down, decided]) as (url, _), adats.Client(url, "x") as client:
        assert not client.ask("ann").fallback
    with fake([down]) as (url, seen), adats.Client(url, "x", patience=1.5) as client:
        decision = client.ask("ann", features=features, decision_id="mine")
        assert (decision.action, decision.decision_id, decision.fallback) == (1, "mine", True)
        assert decision.features.tolist() == [0.0, 1.0]
        sent = len(seen)
        assert sent > 1
        client.tell(decision, reward=1.0)
        assert len(seen) == sent
        with pytest.raises(ValueError, match="reward must be finite"):
            client.tell(decision, reward=float("nan"))


def test_answers_that_are_no_answers_are_errors():
    page = (200, {}, b"<html>welcome</html>")
    fault = (500, {}, {"error": "this is a fault of the service"})
    with fake([page, fault]) as (url, _), adats.Client(url, "x") as client:
        with pytest.raises(ConnectionError, match="is not a decision service"):
            client.ask("ann")
        with pytest.raises(ConnectionError, match="answers 500: this is a fault"):
            client.ask("ann")


def test_forgetting_twice_because_the_answer_was_lost_is_forgetting():
    gone = (404, {}, {"error": "there is no task 'ann'"})
    with fake(["drop", gone]) as (url, seen), adats.Client(url, "x") as client:
        client.forget("ann")
        assert len(seen) == 2
        with pytest.raises(adats.UnknownTask):
            client.forget("ann")


def test_connections_are_kept_and_stale_ones_are_not_used(monkeypatch):
    with fake([decided]) as (url, _), adats.Client(url, "x") as client:
        client.ask("ann")
        (kept, _), *rest = client._idle
        assert not rest
        client.ask("ann")
        assert client._idle[0][0] is kept
        monkeypatch.setattr("adats.service.client.IDLE", 0.0)
        client.ask("ann")
        assert client._idle[0][0] is not kept


def test_lost_answers_count_once(service):
    """Every answer of a real service is lost at first; what it did is not done again."""
    with client_of(service, GAUSSIAN) as straight:
        base, tries = straight._base, count()
        answers = {}

        def forward(kind):
            def handle(body):
                status, content, _ = call(f"{service.url}{base}/{kind}", "POST", body)
                answers.setdefault(body["decision_id"], []).append(content)
                return "drop" if next(tries) % 2 == 0 else (status, {}, content)

            return handle

        name = base.rpartition("/")[2]
        with fake([forward("decide")]) as (url, _), adats.Client(url, name) as client:
            decisions = [client.ask("ann") for _ in range(5)]
        assert [len(found) for found in answers.values()] == [2] * 5
        assert all(first == second for first, second in answers.values())
        answers.clear()
        with fake([forward("reward")]) as (url, _), adats.Client(url, name) as client:
            for decision in decisions:
                client.tell(decision, reward=1.0)
        statuses = [[result["status"] for result in found] for found in answers.values()]
        assert statuses == [["counted", "duplicate"]] * 5
        report = straight.report()
        assert (report["decisions"], report["counted"]) == (5, 5)
