"""A disk that is really full: a small one, in memory, under the tables of a store."""

import os
import shutil
import subprocess
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg
import pytest

from adats.service.audit import check_store
from adats.service.stores.opening import open_view, upgrade_store
from hammer import wait_for
from postgres import schema_url, server, server_url
from served import GAUSSIAN, call, process

SIZE = 6_000_000  # bytes
SPEC = GAUSSIAN | {"control": "b"}


@contextmanager
def disk():
    """A folder of the server's user with little room."""
    owner = os.stat(server().pgdata).st_uid
    with tempfile.TemporaryDirectory() as folder:
        options = f"size={SIZE},uid={owner},mode=700"
        mount = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder]
        made = subprocess.run(mount, check=False, capture_output=True, text=True)
        if made.returncode:
            pytest.skip(f"a small disk cannot be mounted here: {made.stderr}")
        try:
            yield Path(folder)
        finally:
            subprocess.run(["umount", "-l", folder], check=True)


@contextmanager
def store_on(folder):
    """A store whose tables are there."""
    url = schema_url("full")
    with psycopg.connect(server_url(), autocommit=True) as connection:
        connection.execute(f"CREATE TABLESPACE small LOCATION '{folder}'")
        try:
            upgrade_store(url.replace("?", "?options=-c%20default_tablespace%3Dsmall&"))
            yield url
        finally:
            connection.execute(f"DROP SCHEMA {url.rpartition('=')[2]} CASCADE")
            connection.execute("DROP TABLESPACE small")


@pytest.mark.skipif("ADATS_TEST_POSTGRES" in os.environ, reason="that disk is not ours to fill")
def test_a_full_disk_gets_the_fallback_until_there_is_room():
    with disk() as folder, store_on(folder) as url:
        with process(url, stderr=subprocess.DEVNULL) as service:
            experiment = f"{service.url}/v1/experiments/x"
            assert call(experiment, "PUT", SPEC)[0] == 201
            made = []

            def decide():
                body = {"task": f"t{len(made) % 5}", "decision_id": f"d{len(made)}"}
                status, answer, _ = call(f"{experiment}/decide", "POST", body)
                if status == 200:
                    made.append(answer["decision_id"])
                return status, answer

            assert decide()[0] == 200
            fill(folder / "ballast")
            status, answer = wait_for(lambda: (found := decide())[0] != 200 and found, 60)
            assert (status, answer["fallback"], answer["action"]) == (503, True, "b")
            assert "No space left on device" in answer["error"]
            assert call(f"{service.url}/readyz")[0] == 503
            (folder / "ballast").unlink()
            wait_for(lambda: decide()[0] == 200)
            assert call(f"{service.url}/readyz")[0] == 200
        with open_view(url) as view:
            kept = [row.decision_id for row in view.decisions(1)]
        assert sorted(kept) == sorted(made)
        assert len(made) > 10
        assert check_store(url) == []


def fill(path):
    """All the room that is left."""
    with path.open("wb", buffering=0) as file, suppress(OSError):
        while file.write(bytes(4096)):
            pass
    assert shutil.disk_usage(path.parent).free == 0
