"""The description says what the service does: every operation, field and code of it."""

import re
import shlex
import sqlite3
from html.parser import HTMLParser

import jsonschema
import pytest

import fuzzing
from adats.service.http.docs_page import BASE, curl, page
from adats.service.http.examples import ANSWERS, REQUESTS
from adats.service.http.openapi import GROUPS, LINKS, description
from adats.service.http.operations import OPERATIONS
from served import GAUSSIAN, call, process

FOUND = description()
SCHEMAS = FOUND["components"]["schemas"]


def operations():
    """Method, path and description of each, in the order of the page."""
    found = {
        operation["operationId"]: (method.upper(), path, operation)
        for path, operations in FOUND["paths"].items()
        for method, operation in operations.items()
    }
    return [found[name] for names in GROUPS.values() for name in names]


def test_every_operation_is_described_once_and_in_one_group():
    described = sorted((method, path) for method, path, _ in operations())
    assert described == sorted((o.method, o.path.replace(":path", "")) for o in OPERATIONS)
    assert sorted(n for names in GROUPS.values() for n in names) == sorted(
        o.name for o in OPERATIONS
    )


def test_every_field_has_a_meaning():
    for name, schema in SCHEMAS.items():
        for field, found in schema["properties"].items():
            assert found["description"].endswith("."), (name, field)


def test_schemas_are_valid_and_nothing_refers_to_what_is_not_there():
    for schema in SCHEMAS.values():
        jsonschema.Draft202012Validator.check_schema(schema)
    referred = set(re.findall(r"#/components/schemas/(\w+)", str(FOUND)))
    assert referred - {"RefusedReward"} < set(SCHEMAS)
    assert "{" not in "".join(FOUND["paths"]).replace("{name}", "").replace("{task}", "").replace(
        "{arm}", ""
    )


def test_links_lead_to_operations_that_take_what_they_bring():
    by_name = {operation["operationId"]: operation for _, _, operation in operations()}
    for source, target, parameters, body in LINKS:
        assert source in by_name
        assert set(parameters) <= {p["name"] for p in by_name[target]["parameters"]}
        assert body is None or "requestBody" in by_name[target]


def test_every_operation_that_needs_a_key_says_what_comes_without_one():
    for operation in OPERATIONS:
        method = FOUND["paths"][operation.path.replace(":path", "")][operation.method.lower()]
        assert ("401" in method["responses"]) is not operation.open
        assert ("403" in method["responses"]) is not operation.open
        assert bool(method["security"]) is not operation.open
        assert ("415" in method["responses"]) == (operation.request is not None)


def test_a_busy_or_failing_store_is_described_with_when_to_try_again():
    decide = FOUND["paths"]["/v1/experiments/{name}/decide"]["post"]["responses"]
    for code in ("429", "503"):
        assert decide[code]["headers"]["Retry-After"]["required"]
    choices = decide["503"]["content"]["application/json"]["schema"]["anyOf"]
    assert [choice["$ref"].rpartition("/")[2] for choice in choices] == [
        "Fallback",
        "DecisionBatchResult",
        "Error",
    ]
    forget = FOUND["paths"]["/v1/experiments/{name}/tasks/{task}"]["delete"]["responses"]
    assert "content" not in forget["204"]


@pytest.mark.parametrize("name", ANSWERS)
def test_an_example_of_an_answer_is_one(name):
    (operation,) = (o for _, _, o in operations() if o["operationId"] == name)
    schema = operation["responses"]["200"]["content"]["application/json"]["schema"]
    jsonschema.validate(ANSWERS[name], schema | {"components": FOUND["components"]})


def test_the_commands_of_the_page_work_one_after_another(tmp_path):
    with process(tmp_path / "x.db") as service:
        for method, path, operation in operations():
            command = curl(method, path, operation)
            assert command.partition("\\")[0].strip() in page().replace("&#x27;", "'")
            words = shlex.split(command.replace("\\\n", " "))
            address = next(word for word in words if word.startswith(BASE))
            body = words[words.index("-d") + 1].encode() if "-d" in words else None
            sent = words[words.index("-X") + 1] if "-X" in words else "GET"
            if "format" in str(operation["parameters"]):
                address += "?format=parquet"
            status, answer, _ = call(service.url + address.removeprefix(BASE), sent, body)
            assert str(status) in operation["responses"], (command, answer)
            assert status < 300, (command, answer)


def test_every_example_of_a_body_is_accepted(tmp_path):
    with process(tmp_path / "x.db") as service:
        for name, body in REQUESTS["put"].items():
            assert call(f"{service.url}/v1/experiments/{name}", "PUT", body)[0] == 201
        at = f"{service.url}/v1/experiments/binary"
        for operation, path in (("decide", "decide"), ("reward", "reward"), ("add_arm", "arms")):
            for body in REQUESTS[operation].values():
                status, answer, _ = call(f"{at}/{path}", "POST", body)
                assert (status, answer.get("refused", 0)) == (200, 0), answer


class Tags(HTMLParser):
    """The tags of a page; those that are not closed."""

    def __init__(self):
        super().__init__()
        self.seen, self.open = [], []

    def handle_starttag(self, tag, attributes):
        self.seen.append((tag, dict(attributes)))
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_is_whole_and_needs_nothing_from_elsewhere():
    tags = Tags()
    tags.feed(page())
    assert tags.open == []
    assert not {tag for tag, _ in tags.seen} & {"script", "link", "img", "iframe", "object"}
    assert not re.search(r"\burl\(|@import|\bsrc=", page())
    targets = {a["href"].removeprefix("#") for tag, a in tags.seen if tag == "a"}
    sections = {a["id"] for tag, a in tags.seen if tag == "section"}
    assert targets == sections == {operation.name for operation in OPERATIONS}


def test_the_page_shows_every_field_of_every_body():
    for name in (
        "ExperimentSpec",
        "PriorSpec",
        "GivenPrior",
        "PolicySpec",
        "HoldoutSpec",
        "DecisionRequest",
        "RewardRequest",
        "NewArm",
    ):
        for field, found in SCHEMAS[name]["properties"].items():
            assert re.search(rf"<code>[\w.\[\]]*\b{field}</code>", page()), (name, field)
            first = found["description"].partition("`")[0].partition("'")[0]
            assert first in page(), (name, field)


def conforms(answer, path, method):
    """Check status, headers and body of an answer against the description."""
    status, body, headers = answer
    response = FOUND["paths"][path][method]["responses"][str(status)]
    schema = response["content"]["application/json"]["schema"]
    jsonschema.validate(body, schema | {"components": FOUND["components"]})
    assert {name.lower() for name in response["headers"]} <= headers.keys()
    assert int(headers.get("retry-after", 1)) >= 1


def test_answers_of_a_store_that_cannot_be_written_are_as_described(tmp_path):
    path = "/v1/experiments/{name}/decide"
    with process(tmp_path / "x.db") as service:
        at = f"{service.url}/v1/experiments"
        assert call(f"{at}/x", "PUT", GAUSSIAN)[0] == 201
        assert call(f"{at}/safe", "PUT", GAUSSIAN | {"control": "b"})[0] == 201
        lock = sqlite3.connect(tmp_path / "x.db", isolation_level=None)
        lock.execute("BEGIN IMMEDIATE")
        try:
            plain = call(f"{at}/x/decide", "POST", {"task": "t"})
            safe = call(f"{at}/safe/decide", "POST", {"task": "t", "decision_id": "d"})
        finally:
            lock.close()
        assert (plain[0], safe[0]) == (503, 503)
        conforms(plain, path, "post")
        conforms(safe, path, "post")
        assert "action" not in plain[1]
        assert {"action": "b", "fallback": True, "decision_id": "d"}.items() <= safe[1].items()


def test_answers_of_a_service_with_too_much_to_do_are_as_described(tmp_path):
    with process(tmp_path / "x.db", "--waiting", "0") as service:
        answer = call(f"{service.url}/v1/experiments/x", "PUT", GAUSSIAN)
    assert answer[0] == 429
    conforms(answer, "/v1/experiments/{name}", "put")


# What other answers look like is checked by Schemathesis against a process


def test_schemathesis_finds_no_fault_in_what_is_described(tmp_path):
    with process(tmp_path / "x.db") as service:
        options = ("--phases", "examples,coverage,fuzzing", "-n", "5", "--seed", "1")
        codes = fuzzing.fuzz(service.url, tmp_path, *options)
        assert call(f"{service.url}/healthz")[0] == 200
    assert sum(codes.values()) > 500
    assert {code for _, code in codes} >= {200, 201, 204, 404, 405, 409, 415, 422}


def test_schemathesis_finds_no_fault_in_sequences_of_requests(tmp_path):
    with process(tmp_path / "x.db") as service:
        fuzzing.prepare(service.url)
        options = ("--phases", "fuzzing,stateful", "-n", "25", "--seed", "1", "--mode", "positive")
        codes = fuzzing.fuzz(service.url, tmp_path, *options, description=fuzzing.narrowed())
    done = {operation for operation, code in codes if code < 300}
    assert done == {f"{method} {path}" for method, path, _ in operations()}
