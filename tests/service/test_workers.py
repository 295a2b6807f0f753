"""Several processes on one port: who stops, stops all."""

import select
import signal
import subprocess
import sys

import pytest

pytest.importorskip("uvicorn")

PARENT = """
import time
from adats.service.workers import run_workers

def work(ready):
    print("at work", flush=True)
    ready()
    time.sleep(60)

run_workers(work, 2, lambda: print("ready", flush=True))
"""
PATIENCE = 20.0  # seconds


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGKILL])
def test_workers_end_with_their_parent_however_it_ends(sign):
    with subprocess.Popen(
        [sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True
    ) as parent:
        said = [parent.stdout.readline() for _ in range(3)]
        assert "ready\n" in said
        parent.send_signal(sign)
        parent.wait(PATIENCE)
        ended, _, _ = select.select([parent.stdout], [], [], PATIENCE)
        assert ended  # nobody holds the pipe any more
        assert parent.stdout.read() == ""
