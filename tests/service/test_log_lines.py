"""Ids of requests in answers and in the log, and a log that stays short when much goes wrong."""

import http.client
import json
import logging
import sqlite3
import subprocess
import sys

import pytest

from adats.service.log_lines import JsonLines, OneASecond, TextLines
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


def lines(kind, *records):
    """What is written of records: seconds, level, text."""
    written, spare = [], OneASecond()
    for seconds, level, text in records:
        record = logging.LogRecord("adats.service", level, "", 0, text, ("x",), None)
        record.created = 1_000_000.0 + seconds
        if spare.filter(record):
            written.append(kind().format(record))
    return written


def test_trouble_is_one_line_a_second_at_most():
    many = [(i / 64, logging.ERROR, f"{i} %s") for i in range(160)]
    found = [json.loads(line)["message"] for line in lines(JsonLines, *many)]
    assert found == ["0 x", *(f"{i} x (63 lines left out before)" for i in (64, 128))]
    back = (-1000.0, logging.ERROR, "%s")  # the clock was put back
    assert len(lines(JsonLines, *many, back, back)) == 4
    quiet = [(i / 100, logging.INFO, f"{i} %s") for i in range(5)]
    assert len(lines(TextLines, *quiet)) == 5


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
