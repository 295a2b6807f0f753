"""Ids of requests in answers and in the log, and a log that stays short when much goes wrong."""

import http.client
import io
import json
import logging
import sqlite3
import subprocess
import sys
import time

import numpy as np
import pytest

from adats.service.log_lines import JsonLines, OneASecond, TextLines
from hammer import wait_for
from served import GAUSSIAN, call, process


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with process(tmp_path_factory.mktemp("log") / "x.db") as running:
        yield running


def id_in(service, path, method="GET", given=None, body=None):
    connection = http.client.HTTPConnection(service.url.removeprefix("http://"), timeout=30)
    headers = {"Content-Type": "application/json"}
    if given is not None:
        headers["X-Request-Id"] = given
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        answer.read()
        return answer.status, answer.headers.get_all("X-Request-Id")
    finally:
        connection.close()


def test_every_answer_has_the_id_of_its_request(service):
    call(f"{service.url}/v1/experiments/x", "PUT", GAUSSIAN)
    decide = json.dumps({"task": "t"})
    at = "/v1/experiments/x"
    requests = [
        (200, "/healthz"),
        (200, at + "/decide", "POST", decide),
        (200, at + "/log"),
        (422, at + "/decide", "POST", "{}"),
        (404, "/nowhere"),
        (405, at + "/decide", "DELETE"),
        (204, at + "/tasks/t", "DELETE"),
    ]
    seen = set()
    for code, path, *more in requests:
        method, body = [*more, None, None][:2]
        status, ids = id_in(service, path, method or "GET", "visit-17", body)
        assert (status, ids) == (code, ["visit-17"]), path
        if method != "DELETE":
            status, ids = id_in(service, path, method or "GET", None, body)
            assert (status, len(ids)) == (code, 1)
            seen.add(ids[0])
    assert len(seen) == 5


@pytest.mark.parametrize("given", ["", "two words", "x" * 101, "é"])
def test_an_id_that_cannot_be_is_replaced(service, given):
    (found,) = id_in(service, "/healthz", given=given.encode("latin-1"))[1]
    assert found != given
    assert 1 <= len(found) <= 100


class Stream(io.StringIO):
    """What was written, and when."""

    def __init__(self):
        super().__init__()
        self.lines, self.times = [], []

    def write(self, text):
        self.lines.append(text.rstrip("\n"))
        self.times.append(time.monotonic())


def told(handler, level, text):
    handler.handle(logging.LogRecord("x", level, "", 0, "%s", (text,), None))


def test_trouble_is_one_line_a_second_and_what_differs_is_not_lost():
    stream = Stream()
    handler = OneASecond(stream)
    with handler.lock:  # on a slow machine too, this is within a second
        for i in range(160):
            told(handler, logging.ERROR, "often" if i % 2 else f"kind {i % 6}")
        for i in range(5):
            told(handler, logging.INFO, f"all is well {i}")
        assert stream.lines == ["kind 0", *(f"all is well {i}" for i in range(5))]
    wait_for(lambda: len(stream.lines) >= 8)
    said = [stream.times[0], *stream.times[6:]]
    assert min(np.diff(said)) >= 0.99
    handler.close()  # as at the end of the process
    assert stream.lines[6:] == [
        "often (80 times)",
        "kind 2 (27 times)",
        "kind 4 (26 times)",
        "kind 0 (26 times)",
    ]


def test_what_is_held_back_has_an_end():
    stream = Stream()
    handler = OneASecond(stream)
    with handler.lock:
        for i in range(130):
            told(handler, logging.ERROR, f"kind {i}")
    handler.close()
    assert len(stream.lines) == 101
    assert stream.lines[:2] == ["kind 0", "kind 1 (29 others left out)"]


def test_a_line_of_json_is_one_line_with_all_of_it():
    try:
        raise ValueError("two\nlines")
    except ValueError:
        record = logging.LogRecord("x", logging.ERROR, "", 0, "it %s", ("fails",), sys.exc_info())
    record.created, record.msecs, record.request_id = 1_000_000.25, 250.0, "visit-17"
    line = JsonLines().format(record)
    assert "\n" not in line
    found = json.loads(line)
    assert found["time"] == "1970-01-12T13:46:40.250Z"
    assert (found["level"], found["message"]) == ("error", "it fails")
    assert found["request_id"] == "visit-17"
    assert "ValueError: two\nlines" in found["error"]
    assert TextLines().format(record).partition("\n")[0].endswith("it fails, request visit-17")


def test_a_service_in_trouble_writes_json_and_little_of_it(tmp_path):
    """A store that cannot be used for a while, with many requests: each line is JSON."""
    path = tmp_path / "x.db"
    with process(path, "--log", "json") as service:
        at = f"{service.url}/v1/experiments/x"
        assert call(at, "PUT", GAUSSIAN)[0] == 201
        lock = sqlite3.connect(path, isolation_level=None)
        lock.execute("BEGIN IMMEDIATE")
        codes = [call(at + "/decide", "POST", {"task": "t"})[0] for _ in range(5)]
        lock.close()
        assert codes == [503] * 5
        service.process.terminate()
        service.process.wait(15)
        written = service.process.stderr.read().splitlines()
    found = [json.loads(line) for line in written]
    assert 1 <= len(found) <= 6
    assert "the store cannot be used" in found[0]["message"]
    assert {line["level"] for line in found} == {"error"}


def test_another_format_is_refused(tmp_path):
    command = [sys.executable, "-m", "adats", "serve", "--db", str(tmp_path / "x"), "--log", "xml"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "'xml' is not one of 'text', 'json'" in done.stderr
