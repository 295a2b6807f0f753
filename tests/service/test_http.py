"""Nobody gets in who should not, and nothing that cannot be taken."""

import http.client
import json
import random
import re
import socket
import subprocess
import sys
import time
from types import SimpleNamespace
from urllib.parse import quote

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

import adats
import command
from adats.service import engine, keys
from adats.service.errors import Conflict, Invalid, NotFound, Unauthorized, status_of
from adats.service.http.endpoint import AccessControl
from adats.service.http.operations import LARGEST_BODY, LARGEST_SPEC, OPERATIONS
from adats.service.messages import DecisionRequest, NewArm, RewardRequest
from adats.service.stores.sqlite import SQLiteKeys
from served import GAUSSIAN, Local, add_key, call, process

LINEAR = {
    "model": "linear",
    "dim": 2,
    "noise": 1.0,
    "prior": {"given": {"mean": 0.0, "cov": 1.0, "task_cov": 0.1}},
}
BODIES = {
    "put": GAUSSIAN,
    "decide": {"task": "t"},
    "reward": {"decision_id": "d", "reward": 1.0},
    "add_arm": {"arm": "d", "like": "a"},
    "set_status": {"status": "paused"},
}
GUARDED = [operation for operation in OPERATIONS if not operation.open]
NAMED = [o for o in GUARDED if "{name}" in o.path and o.name != "put"]  # of what is there
WITH_BODY = [operation for operation in GUARDED if operation.request is not None]


def names(operations):
    return [operation.name for operation in operations]


def path_of(operation):
    path = operation.path.replace(":path", "")
    return path.format(name="x", task="t", arm="a")


def send(url, operation, *, key=None, body=None, headers=None):
    """One request, with the body it needs and any headers."""
    sent = {} if key is None else {"Authorization": f"Bearer {key}"}
    data = body
    if operation.request is not None:
        sent["Content-Type"] = "application/json"
        data = json.dumps(BODIES[operation.name]).encode() if body is None else body
    return raw(url, operation.method, path_of(operation), data, sent | (headers or {}))


def raw(url, method, path, body=None, headers=None):
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=30)
    try:
        connection.request(method, path, body, headers or {})
        answer = connection.getresponse()
        content = answer.read()
        kind = answer.headers.get("content-type", "")
        body = json.loads(content) if kind == "application/json" else content
        return SimpleNamespace(status=answer.status, body=body, headers=answer.headers)
    finally:
        connection.close()


def until(condition, seconds=3.0):
    """Whether it came true in that time."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def fill(url, key=None):
    """An experiment x with a task t, a decision d, and a linear one."""
    at = f"{url}/v1/experiments"
    assert call(f"{at}/x", "PUT", GAUSSIAN, key)[0] == 201
    assert call(f"{at}/x/decide", "POST", {"task": "t", "decision_id": "d"}, key)[0] == 200
    assert call(f"{at}/lines", "PUT", LINEAR, key)[0] == 201


@pytest.fixture(scope="module")
def free(tmp_path_factory):
    """A service without keys."""
    with process(tmp_path_factory.mktemp("free") / "x.db") as service:
        fill(service.url)
        yield service.url
        faults = [line for line in metrics(service.url).splitlines() if 'code="500"' in line]
        assert faults == []  # of all tests that used it


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A service with keys of two tenants."""
    db = tmp_path_factory.mktemp("kept") / "x.db"
    found = {
        "write": add_key(db, "shop"),
        "read": add_key(db, "shop", write=False),
        "other": add_key(db, "rival"),
    }
    with process(db) as service:
        fill(service.url, found["write"])
        yield SimpleNamespace(url=service.url, db=db, **found)


def metrics(url, key=None):
    return call(f"{url}/metrics", key=key)[1].decode()


# keys


def test_a_secret_is_nowhere_in_the_files_of_the_store(kept):
    for key in (kept.write, kept.read, kept.other):
        assert call(f"{kept.url}/v1/experiments", key=key)[0] == 200
    files = {path: path.read_bytes() for path in kept.db.parent.iterdir()}
    assert f"{kept.db}-wal" in map(str, files)
    for key in (kept.write, kept.read, kept.other):
        _, name, secret = key.split("_", 2)
        assert any(name.encode() in content for content in files.values())
        hashed = keys.hash_of(secret)
        assert any(hashed in content for content in files.values())
        for path, content in files.items():
            assert secret.encode() not in content, path
            assert secret[:20].encode() not in content, path


def test_a_key_is_shown_once_and_not_listed(tmp_path):
    db = tmp_path / "x.db"
    run = [sys.executable, "-m", "adats", "keys"]
    made = subprocess.run([*run, "add", "shop", "--db", db], capture_output=True, text=True)
    key = made.stdout.strip()
    listed = subprocess.run([*run, "list", "--db", db], capture_output=True, text=True).stdout
    assert key.startswith("adats_")
    assert key.split("_")[1] in listed
    assert key.split("_", 2)[2][:12] not in listed


def test_every_key_is_compared_in_constant_time(monkeypatch):
    compared = []

    def compare(left, right):
        compared.append((len(left), len(right)))
        return left == right

    monkeypatch.setattr(keys.hmac, "compare_digest", compare)
    key, row = keys.new_key("shop", write=True)
    known = keys.ApiKeys([row])
    assert known.access(key) == ("shop", True)
    _, name, secret = key.split("_", 2)
    wrong = ("", "adats", "adats__", f"adats_{name}_", f"adats_{name}_{secret[:-1]}", "é_ü_ñ")
    for tried in (None, *wrong, f"adats_nobody_{secret}", f"other_{name}_{secret}"):
        assert known.access(tried) is None, tried
    assert compared == [(32, 32)] * 10  # hashes of one length, whatever was sent


def test_two_keys_are_never_the_same():
    made = [keys.new_key("shop", write=False) for _ in range(100)]
    assert len({key for key, _ in made}) == len({row.hash for _, row in made}) == 100
    assert all(len(key.split("_", 2)[2]) >= 43 for key, _ in made)  # 256 bits


@pytest.mark.parametrize("operation", GUARDED, ids=names(GUARDED))
def test_without_a_valid_key_nothing_is_told(kept, operation):
    _, name, secret = kept.write.split("_", 2)
    for key in (None, "", "adats", kept.write[:-1], f"adats_{name}_", f"adats_none_{secret}"):
        answer = send(kept.url, operation, key=key)
        assert answer.status == 401, key
        assert answer.headers["www-authenticate"] == "Bearer"
    basic = {"Authorization": f"Basic {kept.write}"}
    assert send(kept.url, operation, headers=basic).status == 401
    assert send(kept.url, operation, headers={"Authorization": kept.write}).status == 401


@pytest.mark.parametrize("operation", GUARDED, ids=names(GUARDED))
def test_a_key_to_read_cannot_write(kept, operation):
    answer = send(kept.url, operation, key=kept.read)
    if operation.write:
        assert answer.status == 403
        assert "read" in answer.body["error"]
    else:
        assert answer.status == 200


def test_only_operations_that_change_something_need_a_key_to_write():
    assert {o.name for o in OPERATIONS if o.write} == {
        o.name for o in OPERATIONS if o.method != "GET"
    }
    assert {o.name for o in OPERATIONS if o.open} == {"healthz", "readyz", "describe", "docs"}


@pytest.mark.parametrize("operation", NAMED, ids=names(NAMED))
def test_the_experiment_of_another_tenant_is_not_there(kept, operation):
    other = send(kept.url, operation, key=kept.other)
    none = operation._replace(path=operation.path.replace("{name}", "nothing"))
    assert other.status == 404
    missing = send(kept.url, none, key=kept.other)
    assert missing.body["error"].replace("'nothing'", "'x'") == other.body["error"]


def test_two_tenants_can_use_one_name(kept):
    at = f"{kept.url}/v1/experiments"
    assert call(f"{at}/mine", "PUT", GAUSSIAN, kept.write)[0] == 201
    assert call(f"{at}/mine", "PUT", LINEAR, kept.other)[0] == 201
    assert call(f"{at}/mine", key=kept.write)[1]["spec"]["model"] == "gaussian"
    assert call(f"{at}/mine", key=kept.other)[1]["spec"]["model"] == "linear"
    assert call(at, key=kept.other)[1]["experiments"] == ["mine"]
    assert call(at, key=kept.read)[1]["experiments"] == ["lines", "mine", "x"]


def test_a_key_that_is_removed_stops_working_and_does_not_open_the_service(tmp_path):
    db = tmp_path / "x.db"
    key = add_key(db, "default")  # the tenant of a service without keys
    with process(db) as service:
        at = f"{service.url}/v1/experiments"
        assert call(at, key=key)[0] == 200
        with SQLiteKeys(db) as kept:
            assert kept.remove(key.split("_")[1], keys.mark_of_removed())
        assert until(lambda: call(at, key=key)[0] == 401)
        time.sleep(1.2)  # the keys are read once more: there are none now
        assert call(at, key=key)[0] == 401
        assert call(at)[0] == 401


def test_a_store_whose_keys_are_all_removed_stays_closed_unless_told(tmp_path):
    db = tmp_path / "x.db"
    made = [add_key(db, "default") for _ in range(2)]
    with SQLiteKeys(db) as kept:
        for key in made:
            assert kept.remove(key.split("_")[1], keys.mark_of_removed())
        assert not kept.remove(made[0].split("_")[1], keys.mark_of_removed())
        assert len(keys.ApiKeys(kept.key_rows())) == 0
    for _ in range(2):  # and it does not forget that
        with process(db) as service:
            status, answer, headers = call(f"{service.url}/v1/experiments")
            assert (status, headers["www-authenticate"]) == (401, "Bearer")
            assert "all keys of this service were removed" in answer["error"]
            for key in (made[0], "adats_removed_", f"adats_removed_{'0' * 43}"):
                assert call(f"{service.url}/v1/experiments", key=key)[0] == 401
            assert call(f"{service.url}/healthz")[0] == 200
    with process(db, "--open") as service:
        at = f"{service.url}/v1/experiments"
        assert call(at)[0] == 200
        key = add_key(db, "default")
        assert until(lambda: call(at)[0] == 401)
        assert call(at, key=key)[0] == 200
    with pytest.raises(RuntimeError, match="has keys: leave --open out"):
        process(db, "--open").__enter__()
    with process(db) as service:
        assert call(f"{service.url}/v1/experiments")[0] == 401
        assert call(f"{service.url}/v1/experiments", key=key)[0] == 200


def test_a_store_that_never_had_keys_is_open(tmp_path):
    for options in ((), ("--open",)):
        with process(tmp_path / "x.db", *options) as service:
            assert call(f"{service.url}/v1/experiments")[0] == 200


def test_the_first_key_closes_a_service_that_runs(tmp_path):
    db = tmp_path / "x.db"
    with process(db) as service:
        at = f"{service.url}/v1/experiments"
        assert call(at)[0] == 200
        key = add_key(db, "shop")
        assert until(lambda: call(at)[0] == 401)
        assert call(at, key=key)[0] == 200


# from where


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_it_does_not_listen_outside_this_machine_without_keys(tmp_path, host):
    command = [sys.executable, "-m", "adats", "serve", "--db", tmp_path / "x.db", "--port", "0"]
    done = subprocess.run(
        [*command, "--host", host], capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode != 0
    assert "has no keys" in done.stderr
    assert "adats keys add" in done.stderr
    assert "Traceback" not in done.stderr


def test_with_keys_it_does_and_no_key_is_still_refused(tmp_path):
    key = add_key(tmp_path / "x.db", "shop")
    with process(tmp_path / "x.db", "--host", "0.0.0.0") as service:
        url = service.url.replace("0.0.0.0", "127.0.0.1")
        assert call(f"{url}/v1/experiments")[0] == 401
        assert call(f"{url}/v1/experiments", key=key)[0] == 200


@pytest.mark.parametrize("operation", GUARDED, ids=names(GUARDED))
def test_without_keys_a_page_of_another_site_gets_nothing(free, operation):
    for host in ("evil.example", "evil.example:8000", "127.0.0.1.evil.example", "", "a:b:c"):
        answer = send(free, operation, headers={"Host": host})
        assert answer.status == 403, host
        assert "127.0.0.1" in answer.body["error"]


def test_this_machine_is_known_by_its_names(free):
    for host in ("127.0.0.1", "localhost:1", "LOCALHOST", "[::1]:8000", "[::1]"):
        assert raw(free, "GET", "/v1/experiments", headers={"Host": host}).status == 200, host


def test_with_keys_the_name_of_the_host_does_not_matter(kept):
    headers = {"Host": "bandits.example", "Authorization": f"bearer {kept.read}"}
    assert raw(kept.url, "GET", "/v1/experiments", headers=headers).status == 200


def test_access_without_hosts_is_never_open():
    control = AccessControl(keys.ApiKeys([]), None)
    (operation,) = (operation for operation in OPERATIONS if operation.name == "experiments")
    with pytest.raises(Unauthorized) as refused:
        control.tenant({b"host": b"127.0.0.1"}, operation)
    assert status_of(refused.value) == 401


# bodies


@pytest.mark.parametrize("operation", WITH_BODY, ids=names(WITH_BODY))
def test_what_is_not_sent_as_json_is_refused(free, operation):
    body = json.dumps(BODIES[operation.name]).encode()
    path = path_of(operation)
    kinds = ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "")
    for kind in kinds:
        headers = {"Content-Type": kind}
        assert raw(free, operation.method, path, body, headers).status == 415, kind
    assert raw(free, operation.method, path, body).status == 415
    headers = {"Content-Type": "Application/JSON; charset=utf-8"}
    assert raw(free, operation.method, path, b"{", headers).status == 422


@pytest.mark.parametrize("operation", WITH_BODY, ids=names(WITH_BODY))
def test_a_body_that_is_too_large_is_refused(free, operation):
    most = LARGEST_SPEC if operation.name == "put" else LARGEST_BODY
    assert send(free, operation, body=b" " * most).status == 422
    answer = send(free, operation, body=b" " * (most + 1))
    assert answer.status == 413
    assert f"{most:,}" in answer.body["error"]
    pieces = (b" " * 100_000 for _ in range(most // 100_000 + 1))  # no Content-Length
    assert send(free, operation, body=pieces).status == 413


PUT, DECIDE, REWARD, ARM = (
    ("PUT", "/new"),
    ("POST", "/x/decide"),
    ("POST", "/x/reward"),
    (
        "POST",
        "/x/arms",
    ),
)
LINES = ("POST", "/lines/decide")
LONG = "n" * 201


def changed(**fields):
    return GAUSSIAN | fields


def with_prior(**fields):
    return GAUSSIAN | {"prior": {"given": GAUSSIAN["prior"]["given"] | fields}}


@pytest.mark.parametrize(
    ("to", "body", "field"),
    [
        (PUT, changed(arms=[f"a{i}" for i in range(501)]), "arms"),
        (PUT, changed(arms=501), "arms"),
        (PUT, changed(arms=0), "arms"),
        (PUT, changed(arms=[]), "arms"),
        (PUT, changed(arms=["a", "a", "b"]), "arms"),
        (PUT, changed(arms=["a", "", "b"]), "arms[1]"),
        (PUT, changed(arms=["a", "b", LONG]), "arms[2]"),
        (PUT, changed(arms=["a", "b", 3]), "arms[2]"),
        (PUT, changed(arms=["a", "b\nc", "d"]), "arms[1]"),
        (PUT, changed(arms=["a", "b", "\x85"]), "arms[2]"),
        (PUT, changed(model="gausian"), "model"),
        (PUT, changed(model=None), "model"),
        (PUT, changed(nois=1.0), "nois"),
        (PUT, changed(noise=-1.0), "noise"),
        (PUT, changed(noise=0.0), "noise"),
        (PUT, changed(noise=1e-30), "noise"),
        (PUT, changed(noise=[1.0, "x", 1.0]), "noise[1]"),
        (PUT, changed(noise=1e21), "noise"),
        (PUT, changed(noise=True), "noise"),
        (PUT, changed(window=0), "window"),
        (PUT, changed(window=1e12), "window"),
        (PUT, changed(half_life=0), "half_life"),
        (PUT, changed(half_life=-86_400.0), "half_life"),
        (PUT, changed(half_life=0.5), "half_life"),
        (PUT, changed(half_life=1e9), "half_life"),
        (PUT, changed(half_life="7d"), "half_life"),
        (PUT, changed(half_life=True), "half_life"),
        (PUT, changed(half_life=[1.0]), "half_life"),
        (PUT, changed(prior_half_life=0.0), "prior_half_life"),
        (PUT, changed(prior_half_life=1e300), "prior_half_life"),
        (PUT, changed(default_reward=0.0), "default_reward"),
        (PUT, changed(window=1.0, default_reward=1e200), "default_reward"),
        (PUT, changed(apply="at_window_end"), "apply"),
        (PUT, changed(late="replace"), "late"),
        (PUT, changed(several="most"), "several"),
        (PUT, changed(holdout={"share": 1.5}), "holdout.share"),
        (PUT, changed(holdout={"share": 0.5, "two": 1}), "holdout.two"),
        (PUT, changed(holdout={}), "holdout.share"),
        (PUT, changed(holdout={"share": 0.5}), "control"),
        (PUT, changed(control="z"), "control"),
        (PUT, changed(control=-1), "control"),
        (PUT, changed(control=["a"]), "control"),
        (PUT, changed(policy={"name": "best"}), "policy.name"),
        (PUT, changed(policy={"epsilon": 2}), "policy.epsilon"),
        (PUT, changed(policy={"later": 5}), "policy.later"),
        (PUT, changed(seed=-1), "seed"),
        (PUT, changed(seed=2**63), "seed"),
        (PUT, changed(seed=1.5), "seed"),
        (PUT, changed(size=2), "size"),
        (PUT, changed(dim=2), "dim"),
        (PUT, changed(prior={}), "prior"),
        (PUT, changed(prior={"given": {}, "default": {}}), "prior"),
        (PUT, {"model": "gaussian", "prior": {"file": {}}}, "prior.file"),
        (PUT, changed(prior={"file": {}}), "noise"),
        (PUT, changed(prior={"file": []}), "prior.file"),
        (PUT, changed(prior={"given": {"mean": 0.0}}), "prior.given.scale"),
        (PUT, with_prior(mean=[0.0, "x", 0.0]), "prior.given.mean[1]"),
        (PUT, with_prior(mean=[0.0, 1.0]), "prior.given.mean"),
        (PUT, with_prior(mean=None), "prior.given.mean"),
        (PUT, with_prior(mean=1e21), "prior.given.mean"),
        (PUT, with_prior(scale=-1.0), "prior.given.scale"),
        (PUT, with_prior(scale=1e-30), "prior.given.scale"),
        (PUT, with_prior(cov=1.0), "prior.given.cov"),
        (PUT, {"model": "gaussian"}, "prior"),
        (PUT, LINEAR | {"dim": 129}, "dim"),
        (PUT, LINEAR | {"dim": 0}, "dim"),
        (PUT, LINEAR | {"features": [[1.0, 2.0], [1.0]]}, "features"),
        (PUT, LINEAR | {"features": [[1.0, 2.0]] * 501}, "features"),
        (PUT, LINEAR | {"features": [[1.0] * 129]}, "features[0]"),
        (DECIDE, {}, "task"),
        (DECIDE, {"task": ""}, "task"),
        (DECIDE, {"task": LONG}, "task"),
        (DECIDE, {"task": 7}, "task"),
        (DECIDE, {"task": None}, "task"),
        (DECIDE, {"task": "t", "decision_id": ""}, "decision_id"),
        (DECIDE, {"task": "t", "decision_id": LONG}, "decision_id"),
        (DECIDE, {"task": "t", "allowed": []}, "allowed"),
        (DECIDE, {"task": "t", "allowed": ["z"]}, "allowed"),
        (DECIDE, {"task": "t", "allowed": ["a", -1]}, "allowed[1]"),
        (DECIDE, {"task": "t", "allowed": ["a", 1.5]}, "allowed[1]"),
        (DECIDE, {"task": "t", "allowed": ["a"] * 501}, "allowed"),
        (DECIDE, {"task": "t", "horizon": 0}, "horizon"),
        (DECIDE, {"task": "t", "horizon": "5"}, "horizon"),
        (DECIDE, {"task": "t", "features": [[1.0]]}, "features"),
        (DECIDE, {"task": "t", "arm": "a"}, "arm"),
        (LINES, {"task": "t"}, "features"),
        (LINES, {"task": "t", "features": []}, "features"),
        (LINES, {"task": "t", "features": [[1.0, 2.0, 3.0]]}, "features"),
        (LINES, {"task": "t", "features": [[1.0, 2.0], [1.0]]}, "features"),
        (LINES, {"task": "t", "features": [[1.0, 2.0], [1.0, None]]}, "features[1][1]"),
        (LINES, {"task": "t", "features": [[1.0, 1e300]]}, "features[0][1]"),
        (LINES, {"task": "t", "features": [[1.0, 2.0]] * 501}, "features"),
        (REWARD, {}, "decision_id"),
        (REWARD, {"decision_id": "d"}, "reward"),
        (REWARD, {"decision_id": "", "reward": 1}, "decision_id"),
        (REWARD, {"decision_id": "d", "reward": "1"}, "reward"),
        (REWARD, {"decision_id": "d", "reward": True}, "reward"),
        (REWARD, {"decision_id": "d", "reward": [1.0]}, "reward"),
        (REWARD, {"decision_id": "d", "reward": 1e21}, "reward"),
        (REWARD, {"decision_id": "d", "reward": 1, "rewards": []}, "rewards"),
        (REWARD, {"decision_id": "d", "reward": 1, "when": 5}, "when"),
        (REWARD, {"rewards": [{"decision_id": "d", "reward": 1}] * 1001}, "rewards"),
        (REWARD, {"rewards": [{"decision_id": "d", "reward": 1}, {}]}, "rewards[1].decision_id"),
        (
            REWARD,
            {"rewards": [{"decision_id": "d", "reward": 1}, {"decision_id": "d", "reward": "x"}]},
            "rewards[1].reward",
        ),
        (
            REWARD,
            {"rewards": [{"decision_id": "d", "reward": [1.0, None]}]},
            "rewards[0].reward[1]",
        ),
        (REWARD, {"rewards": [{"decision_id": "d", "reward": 1, "x": 1}]}, "rewards[0].x"),
        (REWARD, [], None),
        (ARM, {}, "arm"),
        (ARM, {"arm": LONG, "like": "a"}, "arm"),
        (ARM, {"arm": 7, "like": "a"}, "arm"),
        (ARM, {"arm": "d\r", "like": "a"}, "arm"),
        (DECIDE, {"task": "t\n"}, "task"),
        (DECIDE, {"task": "\x00"}, "task"),
        (DECIDE, {"task": "a\x7fb"}, "task"),
        (ARM, {"arm": "d"}, "arm"),
        (ARM, {"arm": "d", "like": "z"}, "like"),
        (ARM, {"arm": "d", "features": [1.0]}, "features"),
        (ARM, {"arm": "a", "like": "b"}, "arm"),
    ],
)
def test_a_wrong_field_is_named(free, to, body, field):
    status, answer, _ = call(f"{free}/v1/experiments{to[1]}", to[0], body)
    assert (status, answer["field"]) == (422, field), answer
    assert answer["error"]


@pytest.mark.parametrize("figure", ["NaN", "Infinity", "-Infinity", "1e999", "-1e400"])
@pytest.mark.parametrize(
    ("to", "body", "field"),
    [
        (PUT, changed(noise="?"), "noise"),
        (PUT, with_prior(mean=[0.0, 0.0, "?"]), "prior.given.mean[2]"),
        (PUT, changed(holdout={"share": "?"}), "holdout.share"),
        (PUT, changed(window="?"), "window"),
        (PUT, changed(half_life="?"), "half_life"),
        (LINES, {"task": "t", "features": [[0.0, 1.0], [1.0, "?"]]}, "features[1][1]"),
        (DECIDE, {"task": "t", "horizon": "?"}, "horizon"),
        (REWARD, {"decision_id": "d", "reward": "?"}, "reward"),
        (REWARD, {"decision_id": "d", "reward": [0.0, "?"]}, "reward[1]"),
        (
            REWARD,
            {"rewards": [{"decision_id": "d", "reward": 1}, {"decision_id": "d", "reward": "?"}]},
            "rewards[1].reward",
        ),
        (ARM, {"arm": "d", "features": ["?"]}, "features[0]"),
    ],
)
def test_a_figure_that_is_not_finite_is_refused(free, to, body, field, figure):
    text = json.dumps(body).replace('"?"', figure).encode()
    status, answer, _ = call(f"{free}/v1/experiments{to[1]}", to[0], text)
    assert (status, answer["field"]) == (422, field), answer


@pytest.mark.parametrize(
    "name", ["n" * 101, "a%20b", "%C3%A4", "%00", ".", "..", "-x", "%FF", "a:b"]
)
def test_an_experiment_has_a_plain_name(free, name):
    answer = raw(
        free,
        "PUT",
        f"/v1/experiments/{name}",
        json.dumps(GAUSSIAN).encode(),
        {"Content-Type": "application/json"},
    )
    assert (answer.status, answer.body["field"]) == (422, "name")


def test_a_name_may_have_a_hundred_characters(free):
    name = "n" * 97 + ".-_"
    assert call(f"{free}/v1/experiments/{name}", "PUT", GAUSSIAN)[0] == 201
    assert call(f"{free}/v1/experiments/{name}")[1]["name"] == name


DEEP = 100_000
STRANGE = {
    "nothing": b"",
    "space": b"  ",
    "null": b"null",
    "a number": b"1",
    "a text": b'"task"',
    "cut off": b'{"task": "t"',
    "two": b'{"task": "t"}{}',
    "not UTF-8": b'{"task": "\xff\xfe"}',
    "not UTF-8 in a name": b'{"\xff": 1}',
    "surrogate in UTF-8": b'{"task": "\xed\xa0\x80"}',
    "half a pair": b'{"task": "\\ud800"}',
    "other half": b'{"task": "\\udc00x"}',
    "half a pair, not finite": b'{"\\ud800": NaN}',
    "half a pair, deep": b'{"task": {"\\udfff": [Infinity]}}',
    "byte order mark": b'\xef\xbb\xbf{"task": "t"}',
    "UTF-16": '{"task": "t"}'.encode("utf-16"),
    "deep lists": b"[" * DEEP + b"]" * DEEP,
    "deep objects": b'{"a":' * DEEP + b"1" + b"}" * DEEP,
    "deep in a field": b'{"features": ' + b"[" * DEEP + b"]" * DEEP + b"}",
    "deep and not finite": b'{"features": ' + b"[" * 700 + b"NaN" + b"]" * 700 + b"}",
    "deep in an unknown field": b'{"zzz": ' + b"[" * DEEP + b"]" * DEEP + b"}",
    "deep in a file": b'{"prior": {"file": {"a": ' + b"[" * 900 + b"]" * 900 + b"}}}",
    "long name of a field": b'{"' + b"n" * 500_000 + b'": 1}',
    "long integer": b'{"horizon": ' + b"9" * 100_000 + b"}",
    "long figure": b'{"reward": ' + b"9" * 100_000 + b"}",
    "large integer": b'{"seed": 123456789012345678901234567890}',
    "small figure": b'{"reward": 1e-99999999999999999999}',
    "a control character": b'{"task": "\x00"}',
}


@pytest.mark.parametrize("body", STRANGE.values(), ids=STRANGE)
@pytest.mark.parametrize("operation", WITH_BODY, ids=names(WITH_BODY))
def test_strange_bodies_are_refused_in_few_words(free, operation, body):
    answer = send(free, operation, body=body)
    assert answer.status == 422
    assert set(answer.body) == {"error", "field"}
    assert len(json.dumps(answer.body)) < 4000


def test_a_prior_file_is_not_nested_deeply(free):
    """Between what can be read and what can be written lies less than this."""
    file = call(f"{free}/v1/experiments/x/meta")[1]["prior"]
    text = json.dumps({"model": "gaussian", "prior": {"file": file | {"note": "?"}}})
    for depth in (21, 500, *range(900, 1000)):
        body = text.replace('"?"', "[" * depth + "]" * depth).encode()
        assert call(f"{free}/v1/experiments/deep", "PUT", body)[0] == 422, depth
    assert call(f"{free}/v1/experiments/deep")[0] == 404


@pytest.mark.parametrize(
    "arms",
    [
        ["a", "b", ""],
        ["a", "b", LONG],
        ["a", "b", 1.5],
        ["a", "b", None],
        ["a", "b", 10**30],
        ["a", "b", "c\nd"],
        ["a", 1, "1"],
    ],
)
def test_the_arms_of_a_prior_file_have_names_that_can_be_asked_for(free, arms):
    file = call(f"{free}/v1/experiments/x/meta")[1]["prior"]
    prior = {"file": file | {"prior": file["prior"] | {"arms": arms}}}
    body = {"model": "gaussian", "prior": prior}
    status, answer, _ = call(f"{free}/v1/experiments/named", "PUT", body)
    assert (status, answer["field"]) == (422, "prior.file")


@pytest.mark.parametrize("reward", [0.5, -1, 2, 1e20])
def test_a_default_reward_that_cannot_count_is_refused(free, reward):
    """It counts by itself, when nobody is there to be told that it cannot."""
    spec = {
        "model": "binary",
        "arms": ["a", "b"],
        "prior": {"default": {}},
        "window": 0.1,
        "default_reward": reward,
    }
    status, answer, _ = call(f"{free}/v1/experiments/late", "PUT", spec)
    assert (status, answer["field"]) == (422, "default_reward")


def test_names_with_any_characters_go_through(free):
    at = f"{free}/v1/experiments/x"
    quoted = {
        "a/b": "a/b",
        "c%20%2F%20d": "c / d",
        "%C3%A9%F0%9F%8E%B2": "é🎲",
        "..%2F..": "../..",
        "e%3Ff%23g%25": "e?f#g%",
        "decide": "decide",
    }
    for path, task in quoted.items():
        assert call(f"{at}/decide", "POST", {"task": task})[0] == 200
        status, answer, _ = call(f"{at}/tasks/{path}")
        assert (status, answer["task"]) == (200, task)
        assert call(f"{at}/tasks/{path}", "DELETE")[0] == 204
        assert call(f"{at}/tasks/{path}")[0] == 404


NAMES = [
    *(
        "/",
        "//",
        "a/",
        "/a",
        "a//b",
        "../..",
        "a/../b",
        ".",
        "..",
        "...",
        "a.",
        "%2F",
        "a%2Fb",
        "%",
    ),
    *("%0A", "%%", "a b", " ", "+", "a+b", "?", "a?b=c", "#", "a#b", "&", ";", ":", "@", "\\", '"'),
    *(
        "żółw",
        "é",
        "e\u0301",
        "🎲",
        "\u2028",
        "\u200b",
        "\ufeff",
        "日本",
        "tasks/x",
        "decide",
        "0",
        "-1",
    ),
    *("n" * 200, "🎲" * 200, "/" * 200, "%" * 200),
]


def test_every_name_that_is_taken_can_be_asked_for_and_taken_back(free):
    """By HTTP and by the client, as a task and as an arm."""
    at = f"{free}/v1/experiments/named-anyhow"
    assert call(at, "PUT", GAUSSIAN | {"arms": ["a", "b", *NAMES]})[0] == 201
    with adats.Client(free, "named-anyhow") as client:
        for name in NAMES:
            quoted = quote(name, safe="")
            assert client.ask(name, allowed=[name]).action == name
            answer = raw(free, "GET", f"/v1/experiments/named-anyhow/tasks/{quoted}")
            assert (answer.status, answer.body["task"]) == (200, name)
            client.forget(name)
            with pytest.raises(adats.UnknownTask):
                client.forget(name)
            assert client.ask(name).task == name
            forget = raw(free, "DELETE", f"/v1/experiments/named-anyhow/tasks/{quoted}")
            assert forget.status == 204, name
            gone = raw(free, "DELETE", f"/v1/experiments/named-anyhow/arms/{quoted}")
            assert (gone.status, name in gone.body["retired"]) == (200, True)
    assert call(at)[1]["arms"] == ["a", "b"]


def test_a_name_with_a_line_break_is_not_taken_for_one_without(free):
    at = f"{free}/v1/experiments/x"
    assert call(f"{at}/decide", "POST", {"task": "broken"})[0] == 200
    for path in ("broken%0A", "broken%0D%0A", "%0Abroken", "broken%0Ax"):
        assert call(f"{at}/tasks/{path}")[0] == 404
        assert call(f"{at}/tasks/{path}", "DELETE")[0] == 404
        assert call(f"{at}/arms/a%0A", "DELETE")[0] == 404
    assert call(f"{at}/tasks/broken")[0] == 200
    with adats.Client(free, "x") as client:
        with pytest.raises(adats.Refused, match="control characters") as refused:
            client.ask("bro\nken")
        assert (refused.value.status, refused.value.field) == (422, "task")


def test_names_that_an_earlier_version_took_go_on(tmp_path, monkeypatch, capsys):
    """With control characters: they are read, decided for, retired, forgotten, and replayed."""
    db, odd = tmp_path / "x.db", ["a\n", "a", "b\nc"]
    with monkeypatch.context() as before:
        before.setattr(engine, "check_new_name", lambda *_: None)
        before.setattr(engine, "CONTROL", re.compile("(?!)"))
        local = Local(db)
        local.put("x", GAUSSIAN | {"arms": odd})
        for i, task in enumerate(odd):
            local.decide("x", DecisionRequest(task, str(i)))
        local.add_arm("x", NewArm("d\x00", "a"))
        local.close()
    assert command.call(monkeypatch, "replay", db) == 0
    assert "all the same" in capsys.readouterr().out
    with process(db) as service:
        at = f"{service.url}/v1/experiments/x"
        assert call(at, "PUT", GAUSSIAN | {"arms": odd})[0] == 200  # the same again
        assert call(f"{at}/arms", "POST", {"arm": "d\x00", "like": "a"})[0] == 200
        assert call(f"{at}/decide", "POST", {"task": "b\nc", "decision_id": "new"})[0] == 200
        assert call(f"{at}/decide", "POST", {"task": "b\nd"})[0] == 422
        assert call(f"{at}/tasks/b%0Ac")[1]["task"] == "b\nc"
        assert call(f"{at}/tasks/a%0A", "DELETE")[0] == 204
        assert call(f"{at}/tasks/a%0A")[0] == 404
        assert call(f"{at}/tasks/a")[1]["task"] == "a"
        assert call(f"{at}/arms/a%0A", "DELETE")[1]["retired"] == ["a\n"]
        with adats.Client(service.url, "x") as client:
            client.forget("b\nc")
    assert command.call(monkeypatch, "replay", db) == 0


@pytest.mark.parametrize(
    "line",
    [
        b"GET /v1/experiments/\xff\xfe HTTP/1.1",
        b"GET /v1/experiments/%ZZ/meta HTTP/1.1",
        b"GET /v1/experiments/x/tasks/%ff%fe HTTP/1.1",
        b"GET /v1/experiments/x/log?format=%ff&format HTTP/1.1",
        b"GET /" + b"a" * 60_000 + b" HTTP/1.1",
        b"GET //v1//experiments HTTP/1.1",
        b"BREW /v1/experiments HTTP/1.1",
        b"\x00\x01\x02",
    ],
)
def test_strange_requests_are_refused(free, line):
    host, port = free.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(line + b"\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        answer = b""
        while part := connection.recv(65536):
            answer += part
    assert 400 <= int(answer.split(b" ", 2)[1]) < 500, answer[:200]


@pytest.mark.parametrize("operation", OPERATIONS, ids=names(OPERATIONS))
def test_other_methods_are_refused_and_the_right_ones_named(free, operation):
    answer = raw(free, "PATCH", path_of(operation))
    allowed = {o.method for o in OPERATIONS if o.path == operation.path}
    assert answer.status == 405
    assert set(answer.headers["allow"].split(", ")) - {"HEAD"} == allowed


@pytest.mark.parametrize("path", ["/v1", "/v1/", "/v2/experiments", "/docs/", "/healthz/x"])
def test_there_is_nothing_at_other_addresses(free, path):
    answer = raw(free, "GET", path)
    assert answer.status == 404
    assert answer.body["error"]


# figures that are large or small, but allowed: whatever happens is an answer

FIGURES = (0.0, 1.0, 1e-20, 1e20, 1e-10, 1e10, 1e-3, 1e3)
COUNTS = (1e-6, 1e12, 1.0, 1e-3, 1e3)


def test_extreme_figures_break_nothing(tmp_path):
    rng = random.Random(5)
    answers = 0
    for number in range(40):
        local = Local(tmp_path / f"{number}.db")
        spec = extreme(rng)
        if attempt(local.put, "x", spec) is not None:
            answers += played(local, rng, spec["model"])
        local.close()
    assert answers > 150


def extreme(rng):
    """An experiment with any figures."""

    def some(values=FIGURES):
        return [rng.choice(values), rng.choice(values)]

    model = rng.choice(["gaussian", "linear", "binary", "count", "semi-bandit"])
    spec = {"model": model, "policy": {"name": rng.choice(["ts", "ucb", "far", "greedy"])}}
    spec |= {"seed": 7}
    if rng.random() < 0.5:
        spec |= {"window": 0.5, "default_reward": rng.choice([0, 1]), "late": "replace"}
    if model == "linear":
        given = {"mean": some(), "cov": rng.choice(FIGURES), "task_cov": rng.choice(FIGURES)}
        return spec | {"dim": 2, "noise": rng.choice(FIGURES), "prior": {"given": given}}
    spec |= {"arms": ["a", "b"]}
    if model in ("binary", "count"):
        names = ("alpha", "beta") if model == "binary" else ("shape", "rate")
        given = {name: [some(COUNTS), some(COUNTS)] for name in names}
        return spec | {"prior": {"given": given | {"weights": [0.5, 0.5]}}}
    given = {"mean": some(), "scale": some(), "task_scale": some()}
    slate = {"size": 2} if model == "semi-bandit" else {"several": rng.choice(["sum", "last"])}
    return spec | slate | {"noise": some(), "prior": {"given": given}}


def played(local, rng, model):
    """Some rounds with any rewards; how many were answered."""
    answers = []
    for number in range(6):
        features = None
        if model == "linear":
            features = [[rng.choice(FIGURES), -rng.choice(FIGURES)] for _ in range(2)]
        ask = DecisionRequest(rng.choice("tu"), f"d{number}", features, None, 5)
        decided = attempt(local.decide, "x", ask)
        if decided is not None:
            rewards = {"binary": (0.0, 1.0), "count": (0.0, 1.0, 1e20)}.get(model, FIGURES)
            reward = rng.choice(rewards)
            if isinstance(decided.action, list):
                reward = [reward] * len(decided.action)
            answers.append(attempt(local.reward, "x", RewardRequest(f"d{number}", reward)))
        local.clock.time += rng.choice([0.0, 1.0])
    answers.append(attempt(local.add_arm, "x", NewArm("c", "a")))
    answers += [attempt(local.task, "x", "t"), attempt(local.meta, "x")]
    for answer in filter(None, answers):
        answered = msgspec.json.decode(msgspec.json.encode(answer))
        for part in answered.get("parts", []):
            assert part["mean"] is not None  # as NaN is written
            assert part.get("from_task", 0.0) is not None
    answers.append(attempt(local.forget, "x", "t"))
    return sum(answer is not None for answer in answers)


def attempt(work, *arguments):
    """The answer; None if it was refused."""
    try:
        return work(*arguments)
    except (Invalid, NotFound, Conflict):
        return None


# the service itself


def test_metrics_are_text_for_prometheus_without_any_names(tmp_path):
    db = tmp_path / "x.db"
    key = add_key(db, "zebra-tenant")
    with process(db) as service:
        at = f"{service.url}/v1/experiments/zebra-experiment"
        assert (
            call(at, "PUT", GAUSSIAN | {"arms": ["zebra-a", "zebra-b", "zebra-c"]}, key)[0] == 201
        )
        ask = {"task": "zebra-task", "decision_id": "zebra-decision"}
        assert call(f"{at}/decide", "POST", ask, key)[0] == 200
        assert call(f"{at}/tasks/zebra-task", key=key)[0] == 200
        assert call(f"{service.url}/v1/experiments/zebra-none/meta", key=key)[0] == 404
        assert call(f"{service.url}/metrics")[0] == 401
        _, text, headers = call(f"{service.url}/metrics", key=key)
    assert headers["content-type"].startswith("text/plain; version=0.0.4")
    found = {
        (sample.name, sample.labels.get("operation"), sample.labels.get("code")): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }
    assert found["adats_requests_total", "decide", "200"] == 1
    assert found["adats_requests_total", "meta", "404"] == 1
    assert found["adats_request_seconds_count", "decide", None] == 1
    assert found["adats_ready", None, None] == 1
    assert found["adats_groups", None, None] >= 2
    assert b"zebra" not in text
    assert key.split("_")[1].encode() not in text


def test_health_is_told_to_everybody(kept, free):
    for url in (kept.url, free):
        for path, status in (("healthz", "ok"), ("readyz", "ready")):
            code, answer, _ = call(f"{url}/{path}")
            assert (code, answer["status"]) == (200, status)
        assert raw(url, "GET", "/healthz", headers={"Host": "probe.example"}).status == 200
        assert call(f"{url}/openapi.json")[1]["openapi"] == "3.1.0"
        assert call(f"{url}/docs")[0] == 200


def test_an_error_does_not_say_what_others_have(kept):
    """Names of other tenants' experiments, and the words of the store, are not told."""
    at = f"{kept.url}/v1/experiments/x"
    for path in ("", "/meta", "/tasks/t", "/report", "/log"):
        status, answer, _ = call(at + path, key=kept.other)
        assert (status, set(answer)) == (404, {"error", "field"})
        assert answer["error"] == "there is no experiment 'x'"
