"""The guide to the service, read aloud: its blocks are run in order, and say what it shows."""

import doctest
import inspect
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import served
from adats.cli.serve import serve
from adats.service import field_types, priors
from adats.service.http import app, operations

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "serve.md"
CURL = Path(__file__).parents[1] / "helpers" / "curl.py"
ADDRESS = "http://127.0.0.1:8000"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def steps():
    """Pairs of what is run, with its language, and what is shown below it, if anything."""
    found = []
    for language, text in BLOCK.findall(GUIDE.read_text()):
        if language in ("bash", "python"):
            found.append([language, text, None])
        else:
            assert found[-1][2] is None
            found[-1][2] = text
    return found


def script(url):
    """All blocks as one, each after a line that says which it is."""
    lines = ["set -euo pipefail"]
    for i, (language, text, _) in enumerate(steps()):
        if language == "python":
            text = f"python3 - <<'END'\n{text}END\n"
        lines.append(f"printf '\\n=== {i}\\n'\n{text.replace(ADDRESS, url)}")
    return "\n".join([*lines, 'echo "$key" > key.txt'])


def stand_in(folder):
    """A folder with a `curl` that can do what the guide does."""
    curl = folder / "curl"
    curl.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I "{CURL}" "$@"\n')
    curl.chmod(0o755)
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """What each block printed, and how often the service gave which answer."""
    folder = tmp_path_factory.mktemp("guide")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    if shutil.which("curl") is None:
        path = f"{path}:{stand_in(tmp_path_factory.mktemp('bin'))}"
    with served.process(folder / "bandits.db") as service:
        done = subprocess.run(
            ["bash"],
            input=script(service.url),
            cwd=folder,
            env=os.environ | {"PATH": path},
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert (done.returncode, done.stderr) == (0, ""), done.stdout[-500:]
        parts = re.split(r"^=== \d+\n", done.stdout, flags=re.MULTILINE)
        key = (folder / "key.txt").read_text().strip()
        _, metrics, _ = served.call(f"{service.url}/metrics", key=key)
    return parts[1:], metrics.decode()


def squeezed(text):
    """JSON may be broken into lines anywhere."""
    return re.sub(r"\s+", "", text)


@pytest.mark.parametrize("i", [i for i, (_, _, shown) in enumerate(steps()) if shown is not None])
def test_a_block_prints_what_the_guide_shows(run, i):
    shown, found = squeezed(steps()[i][2]), squeezed(run[0][i])
    same = doctest.OutputChecker().check_output(shown, found, doctest.ELLIPSIS)
    assert same, run[0][i]


def test_every_request_of_the_guide_is_taken_but_those_it_says(run):
    answers = re.findall(r'adats_requests_total\{code="(\d+)",operation="(\w+)"\}', run[1])
    refused = {(operation, code) for code, operation in answers if code[0] != "2"}
    assert refused == {
        ("reward", "409"),
        ("experiments", "401"),
        ("decide", "422"),
        ("decide", "409"),
    }
    assert {("put", "201"), ("decide", "200"), ("add_arm", "200"), ("retire_arm", "200")} <= {
        (operation, code) for code, operation in answers
    }


def test_the_guide_has_an_example_of_every_model():
    text = "".join(text for _, text, _ in steps())
    for model in ("gaussian", "linear", "binary", "count", "semi-bandit"):
        assert f'"model": "{model}"' in text


def test_the_command_of_the_guide_listens_where_the_guide_says():
    usual = {name: p.default for name, p in inspect.signature(serve).parameters.items()}
    assert f"http://{usual['host']}:{usual['port']}" == ADDRESS
    assert usual["db"] == "bandits.db"
    assert f"is served at {ADDRESS}, described at {ADDRESS}/docs" in GUIDE.read_text()


def test_the_limits_of_the_guide_are_those_of_the_service():
    rows = re.findall(r"^\| (.+?) \| (.+) \|$", GUIDE.read_text().partition("## Limits")[2], re.M)
    limits = {
        name: [int(n.replace(",", "")) for n in re.findall(r"\d[\d,]*", v)] for name, v in rows
    }
    assert limits["arms, features"] == [field_types.MOST_ARMS, field_types.MOST_DIM]
    assert limits["names of tasks, arms, decisions, rewards"] == [field_types.LONGEST_NAME]
    assert limits["decisions or rewards in a batch"] == [field_types.MOST_AT_ONCE]
    assert limits["further figures of an experiment, attributes of tasks"] == [
        field_types.MOST_METRICS,
        field_types.MOST_ATTRIBUTES,
    ]
    assert limits["models, or candidates of a mixture, × arms"] == [priors.MOST_CANDIDATES]
    megabytes = [operations.LARGEST_BODY / 1e6, operations.LARGEST_SPEC / 1e6]
    assert limits["a request"] == megabytes
    assert limits["requests that wait"] == [app.MOST_WAITING]


def test_the_stand_in_does_what_curl_does(tmp_path):
    (tmp_path / "experiment.json").write_text(json.dumps(served.GAUSSIAN))
    curl = [stand_in(tmp_path) / "curl", "-s", "-H", "Content-Type: application/json"]
    with served.process(tmp_path / "x.db") as service:
        url = f"{service.url}/v1/experiments/x"

        def output(*words):
            options = {"cwd": tmp_path, "capture_output": True, "text": True, "check": True}
            return subprocess.run([*curl, *words], **options).stdout

        assert json.loads(output("-X", "PUT", url, "-d", "@experiment.json"))["name"] == "x"
        assert json.loads(output(f"{url}/decide", "-d", '{"task": "ann"}'))["task"] == "ann"
        assert output("-X", "DELETE", f"{url}/tasks/ann", "-w", "%{http_code}\\n") == "204\n"
