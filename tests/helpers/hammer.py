"""Clients that load a service while it is killed, and what must be true of its store after that."""

import http.client
import json
import math
import random
import threading
import time
from collections import Counter, defaultdict
from contextlib import contextmanager
from urllib.parse import urlsplit

import numpy as np

import adats
import command
from adats.service.stores.opening import is_shared, open_view
from served import GAUSSIAN, call, process

WINDOW, DEFAULT = 0.3, -0.5
EXPERIMENTS = {
    "one": GAUSSIAN,
    "more": GAUSSIAN | {"several": "sum", "seed": 8},
    "later": GAUSSIAN
    | {"window": WINDOW, "default_reward": DEFAULT, "apply": "at_window_end", "seed": 9},
}
ARMS = {"arms": ["a", "b", "c"]}
OTHER_MODELS = {
    "clicks": {"model": "binary", **ARMS, "prior": {"default": {}}, "seed": 10},
    "counts": {"model": "count", **ARMS, "prior": {"default": {}}, "seed": 11},
    "lists": GAUSSIAN | {"model": "semi-bandit", "size": 2, "exactly": True, "seed": 12},
    "features": {
        "model": "linear",
        "dim": 2,
        **ARMS,
        "features": [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]],
        "noise": 1.0,
        "prior": {"given": {"mean": 0.0, "cov": 1.0, "task_cov": 0.5}},
        "seed": 13,
    },
}
ALL_MODELS = EXPERIMENTS | OTHER_MODELS
TASKS = 12
CUT_OFF = (OSError, http.client.HTTPException)


class Connection:
    """A connection that is kept open."""

    def __init__(self, url, timeout=30):
        self._connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=timeout)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._connection.close()

    def send(self, method, path, body=None, headers=()):
        """Status, JSON and headers."""
        headers = dict(headers) | ({} if body is None else {"Content-Type": "application/json"})
        content = None if body is None else json.dumps(body)
        self._connection.request(method, path, content, headers)
        answer = self._connection.getresponse()
        content = answer.read()
        kind = answer.headers.get("content-type")
        body = json.loads(content) if kind == "application/json" else content
        return answer.status, body, answer.headers

    def post(self, name, verb, body):
        return self.send("POST", f"/v1/experiments/{name}/{verb}", body)[:2]


class Client:
    """Sends decisions and rewards, and keeps what it sent and what was acknowledged."""

    def __init__(self, number, seed, experiments=EXPERIMENTS):
        self._rng = random.Random(f"{seed}-{number}")
        self._experiments = list(experiments)
        self._number = number
        self.asked = {}  # decision_id: experiment and task
        self.answers = {}  # decision_id: the answer
        self.sent = {}  # decision_id and reward_id: the reward
        self.heard = set()  # decision_id and reward_id that were acknowledged
        self.faults = []

    def load(self, url, stop):
        """Go on until `stop` is set, or the service is gone."""
        try:
            with Connection(url) as connection:
                while not stop.is_set():
                    self._rng.choices((self._ask, self._tell, self._again), (5, 5, 1))[0](
                        connection
                    )
        except CUT_OFF:
            return
        except Exception as error:
            self.faults.append(error)

    def _ask(self, connection):
        decision_id = f"{self._number}-{len(self.asked)}"
        name = self._rng.choice(self._experiments)
        self.asked[decision_id] = (name, f"t{self._rng.randrange(TASKS)}")
        self._send_ask(connection, decision_id)

    def _send_ask(self, connection, decision_id):
        name, task = self.asked[decision_id]
        body = {"task": task, "decision_id": decision_id}
        answer = _good(connection.post(name, "decide", body))
        before = self.answers.setdefault(decision_id, answer)
        assert answer == before, f"{decision_id} got {before}, then {answer}"

    def _tell(self, connection):
        """One reward, or a batch of them."""
        if not self.answers:
            return
        fresh = {}
        for _ in range(self._rng.choice((1, 1, 1, 5))):
            decision_id = self._rng.choice(list(self.answers))
            name, _task = self.asked[decision_id]
            reward_id = f"r{self._rng.randrange(3)}" if name == "more" else None
            known = self.sent.get((decision_id, reward_id))
            fresh[decision_id, reward_id] = self._reward(decision_id) if known is None else known
        self.sent |= fresh
        self._send_tell(connection, list(fresh))

    def _reward(self, decision_id):
        """One that the model of the experiment takes."""
        name = self.asked[decision_id][0]
        if name == "lists":
            return [self._rng.gauss(0.0, 1.0) for _ in self.answers[decision_id]["action"]]
        whole = {"clicks": 1, "counts": 5}.get(name)
        return self._rng.gauss(0.0, 1.0) if whole is None else float(self._rng.randint(0, whole))

    def _send_tell(self, connection, keys):
        for name in self._experiments:
            own = [key for key in keys if self.asked[key[0]][0] == name]
            rewards = [
                {"decision_id": key[0], "reward": self.sent[key], "reward_id": key[1]}
                for key in own
            ]
            if len(rewards) == 1:
                results = [_good(connection.post(name, "reward", rewards[0]))]
            elif rewards:
                results = _good(connection.post(name, "reward", {"rewards": rewards}))["results"]
            else:
                continue
            for key, result in zip(own, results, strict=True):
                own = ("held", "late") if name == "later" else ("counted",)
                assert result["status"] in (*own, "duplicate"), result
                assert result["status"] == "duplicate" or key not in self.heard, result
                self.heard.add(key)

    def _again(self, connection):
        """Something that was sent before, acknowledged or not."""
        if self.asked and self._rng.random() < 0.5:
            self._send_ask(connection, self._rng.choice(list(self.asked)))
        elif self.sent:
            self._send_tell(connection, [self._rng.choice(list(self.sent))])

    def ask_all_again(self, connection):
        """Answers stay as they are, and whatever was cut off gets one now."""
        for decision_id in self.asked:
            self._send_ask(connection, decision_id)


class Unavailable(AssertionError):
    """A 503: it may be done again."""


class PatientClient(Client):
    """It goes on when the service is gone, or has no database; with others, until it is back."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.patience = 15  # seconds without an answer
        self.unavailable = 0

    def load(self, url, stop):
        while not stop.is_set():
            try:
                with Connection(url, timeout=self.patience) as connection:
                    while not stop.is_set():
                        act = self._rng.choices((self._ask, self._tell, self._again), (5, 5, 1))[0]
                        act(connection)
            except (*CUT_OFF, Unavailable):
                self.unavailable += 1
                time.sleep(0.02)
            except Exception as error:
                self.faults.append(error)
                return


def _good(answer):
    status, body = answer
    if status == 503:
        raise Unavailable(body)
    assert status == 200, body
    return body


def start(url, experiments=EXPERIMENTS):
    for name, spec in experiments.items():
        assert call(f"{url}/v1/experiments/{name}", "PUT", spec)[0] in (200, 201)


@contextmanager
def loaded(url, clients):
    """The clients are at it."""
    stop = threading.Event()
    threads = [threading.Thread(target=client.load, args=(url, stop)) for client in clients]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    faults = [repr(fault) for client in clients for fault in client.faults]
    assert not faults, faults


def wait_for(condition, seconds=20.0, pause=0.01):
    """Until something is true, which it must be in time."""
    until = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < until, "it did not come to be in time"
        time.sleep(pause)
    return found


def heard(clients):
    return sum(len(client.answers) + len(client.heard) for client in clients)


def cut_off(clients):
    """How much was sent and not acknowledged."""
    asked = sum(len(client.asked) - len(client.answers) for client in clients)
    return asked + sum(len(client.sent) - len(client.heard) for client in clients)


def kill_often(
    db, clients, *, times, seed, experiments=EXPERIMENTS, check_every=1, longest=0.4, least=1
):
    """Kill the service under load again and again, once it has answered at `least` so often; after
    some starts the store is looked at."""
    rng = random.Random(seed)
    for i in range(times):
        with process(db) as service:
            start(service.url, experiments)
            if i % check_every == 0:
                check_service(service, db, clients, experiments)
            known = heard(clients)
            with loaded(service.url, clients):
                wait_for(lambda before=known: heard(clients) >= before + least, 60)
                time.sleep(rng.uniform(0.0, longest))  # the moment is the point
                service.process.kill()
            assert heard(clients) >= known + least
        if i % check_every == 0:
            check_log(db, clients, experiments)


def check_log(db, clients, experiments=EXPERIMENTS):
    """What was acknowledged is in the store, what is there was sent; the library told the same."""
    agents = {}
    with open_view(str(db)) as view:
        for name in experiments:
            row = view.experiment("default", name)
            decisions, rewards = list(view.decisions(row.id)), list(view.rewards(row.id))
            _check_decisions(name, decisions, clients)
            _check_rewards(name, decisions, rewards, clients)
            if not is_shared(str(db)):
                check_order(row, decisions, rewards)
            if name in EXPERIMENTS:
                agents[name] = told_by_library(decisions)
                check_statistics(view, row, agents[name], decisions)
    return agents


def check_order(row, decisions, rewards):
    """Each commit has events; those of one task in it have places of their own, from 0 on."""
    tasks = {decision.id: decision.task for decision in decisions}
    places = defaultdict(list)
    for event in decisions:
        places[event.version, event.task].append(event.place)
        if event.settled is not None:
            places[event.settled, event.task].append(event.settled_place)
    for event in rewards:
        places[event.version, tasks[event.decision]].append(event.place)
    assert {version for version, _ in places} == set(range(1, row.version + 1))
    assert all(sorted(own) == list(range(len(own))) for own in places.values())


def waits(db):
    """Whether there are decisions whose window has to end, or rewards that nobody has folded."""
    with open_view(str(db)) as view:
        folded = not any(view.unfolded(row.id) for row in view.experiments())
        return view.due_count(math.inf) > 0 or not folded


def _check_decisions(name, decisions, clients):
    kept = {row.decision_id: row for row in decisions}
    assert len(kept) == len(decisions)
    asked = {key: task for c in clients for key, (own, task) in c.asked.items() if own == name}
    for key, row in kept.items():
        assert asked.get(key) == row.task, f"nobody asked for {key}"
    for client in clients:
        for key, answer in client.answers.items():
            if client.asked[key][0] != name:
                continue
            assert key in kept, f"decision {key} was acknowledged and is lost"
            for field in ("action", "propensity", "state_version", "prior_version", "time"):
                assert getattr(kept[key], field) == answer[field], key


def _check_rewards(name, decisions, rewards, clients):
    names = {row.id: row.decision_id for row in decisions}
    kept = Counter((names[row.decision], row.reward_id) for row in rewards)
    assert not kept or max(kept.values()) == 1, "a reward is there twice"
    sent = {key: reward for c in clients for key, reward in c.sent.items()}
    amounts = defaultdict(list)
    for row in rewards:
        key = (names[row.decision], row.reward_id)
        assert sent.get(key) == row.reward, f"nobody sent {key}"
        amounts[row.decision].append(row)
    for client in clients:
        for key in client.heard:
            if client.asked[key[0]][0] == name:
                assert key in kept, f"reward {key} was acknowledged and is lost"
    for row in decisions:
        own = amounts[row.id]
        assert row.received == len(own)
        if name == "later":
            held = [reward.reward for reward in own if reward.time < row.time + WINDOW]
            assert row.counted == (None if row.settled is None else [*held, DEFAULT][0])
        else:
            assert (row.counted is None) == (not own)
            amount = np.sum([reward.reward for reward in own], axis=0)
            assert not own or np.allclose(row.counted, amount, rtol=1e-12, atol=1e-12)


def told_by_library(decisions, spec=GAUSSIAN):
    """The agent of the plain library that was told what counts."""
    agent = new_agent(spec)
    for row in decisions:
        if row.counted is not None:
            agent.tell(task=row.task, action=row.action, reward=row.counted)
    return agent


def new_agent(spec=GAUSSIAN):
    given = spec["prior"]["given"]
    mean = np.broadcast_to(given["mean"], len(spec["arms"]))
    scales = {"scale": given["scale"], "task_scale": given["task_scale"]}
    meta = adats.GaussianMeta(mean, noise=spec["noise"], arms=spec["arms"], **scales)
    return adats.AdaTS(meta, seed=0)


def check_statistics(view, row, agent, decisions):
    """The statistics of tasks, and what they taught, are those of the decisions beside them."""
    empty = agent.meta.empty().flat()
    stats = {task: np.frombuffer(state.stats) for task, state in view.tasks(row.id)}
    assert set(agent.tasks) <= set(stats) <= {decision.task for decision in decisions}
    for task, found in stats.items():
        wanted = agent.stats(task).flat() if task in agent.tasks else empty
        np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-9)
    if row.total:
        learned = np.frombuffer(row.total).reshape(2, -1).sum(axis=0)
        total = agent.meta.total
        np.testing.assert_allclose(learned, total.high + total.low, rtol=1e-9, atol=1e-9)
    else:
        assert not agent.tasks


def check_service(service, db, clients, experiments=EXPERIMENTS):
    """The log, and that the posteriors which the service gives are those of the library."""
    wait_for(lambda: not waits(db), 60)
    agents = check_log(db, clients, experiments)
    with Connection(service.url) as connection:
        for name, agent in agents.items():
            for task in agent.tasks:
                answer = _good(connection.send("GET", f"/v1/experiments/{name}/tasks/{task}")[:2])
                _close(answer["parts"], agent.posterior(task))
            answer = _good(connection.send("GET", f"/v1/experiments/{name}/meta")[:2])
            _close(answer["parts"], agent.meta.task_prior())
            assert math.isclose(answer["log_evidence"], agent.meta.log_evidence(), rel_tol=1e-8)


def check_replay(db, monkeypatch, capsys):
    """The log played again gives the same decisions and the same state."""
    assert command.call(monkeypatch, "replay", db) == 0
    assert "all the same" in capsys.readouterr().out


def _close(parts, belief):
    for field in ("mean", "scale"):
        found = [part[field] for part in parts]
        np.testing.assert_allclose(found, getattr(belief, field), rtol=0, atol=1e-8)
