"""The service under load: wrk (a Debian package) sends requests over 64 connections on loopback."""

import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from adats.service.engine import Engine
from adats.service.messages import DecisionRequest, RewardRequest
from adats.service.spec import ExperimentSpec
from adats.service.stores.sqlite import SQLiteStore

FEW, MANY = 1_000, 100_000  # tasks
ROUNDS, SECONDS, CONNECTIONS = 3, 5, 64
WAITING = 40_000  # decisions that wait for a reward, for each round

SPEC = {
    "model": "gaussian",
    "arms": 10,
    "noise": 1.0,
    "prior": {"given": {"mean": 0.0, "scale": 0.5, "task_scale": 0.1}},
    "seed": 1,
}
DECIDE = """
wrk.method, wrk.headers["Content-Type"] = "POST", "application/json"
request = function()
  return wrk.format(nil, nil, nil, '{"task": "t' .. math.random(0, %d) .. '"}')
end
"""
REWARD = """
wrk.method, wrk.headers["Content-Type"] = "POST", "application/json"
local count = %d
request = function()
  count = count + 1
  local reward = '", "reward": ' .. (count %% 20 == 0 and 1 or 0) .. '}'
  return wrk.format(nil, nil, nil, '{"decision_id": "r' .. count .. reward)
end
"""


class Load(NamedTuple):
    """What wrk measured."""

    rate: float  # requests a second
    p99: float  # milliseconds
    failed: int


def rows() -> Iterator[tuple[str, str, str, bool]]:
    """Lines of the table of `make bench`."""
    if shutil.which("wrk") is None:
        yield "the service under load", "wrk is not installed", "apt-get install wrk", False
        return
    with tempfile.TemporaryDirectory() as folder:
        few, many = Path(folder, "few.db"), Path(folder, "many.db")
        for path, tasks in ((few, FEW), (many, MANY)):
            fill(path, tasks)
        with served(few) as (small, _, _), served(many) as (large, process, started):
            both = (small, FEW), (large, MANY)
            decide = [max(loads) for loads in measured("decide", *both)]
            reward = [max(loads) for loads in measured("reward", *both)]
            memory = resident(process)
    for verb, (load, loaded) in (("decide", decide), ("reward", reward)):
        said = f"{load.rate:,.0f} a second, p99 {load.p99:.0f} ms, {load.failed} failed"
        good = load.rate >= 3000 and (load.p99 <= 30 or verb == "reward") and not load.failed
        reach = "≥ 3,000 a second" + (", p99 ≤ 30 ms" if verb == "decide" else "")
        yield f"service: {verb}, Gaussian K=10, 64 connections", said, reach, good
        ratio = load.rate / loaded.rate
        said = f"{loaded.rate:,.0f} a second, p99 {loaded.p99:.0f} ms: {ratio:.2f} × slower"
        yield f"  with {MANY:,} tasks", said, "≤ 1.3 × slower", ratio <= 1.3 and not loaded.failed
    yield f"  memory with {MANY:,} tasks", f"{memory:.0f} MB", "≤ 300 MB", memory <= 300
    yield f"  start to ready with {MANY:,} tasks", f"{started:.1f} s", "≤ 3 s", started <= 3


def fill(path: Path, tasks: int, spec: dict[str, Any] = SPEC) -> None:
    """A store with tasks that have a reward each, and decisions that wait for one."""
    store = SQLiteStore(path)
    engine = Engine(store)
    engine.begin()
    engine.put("default", "x", msgspec.convert(spec, ExperimentSpec))
    for i in range(tasks):
        engine.decide("default", "x", DecisionRequest(f"t{i}", f"d{i}"))
        engine.reward("default", "x", RewardRequest(f"d{i}", 0.0))
    for i in range(ROUNDS * WAITING):
        engine.decide("default", "x", DecisionRequest(f"t{i * 7919 % tasks}", f"r{i + 1}"))
    engine.flush()
    engine.commit()
    store.close()


@contextmanager
def served(path: Path) -> Iterator[tuple[str, int, float]]:
    """Address, process and seconds from the start until it is ready."""
    command = [sys.executable, "-m", "adats", "serve", "--db", str(path), "--port", "0"]
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        found = re.search(r"http://\S+?:\d+", process.stdout.readline())
        assert found is not None
        with urllib.request.urlopen(f"{found[0]}/readyz", timeout=10) as answer:
            assert json.load(answer)["status"] == "ready"
        yield found[0], process.pid, time.perf_counter() - began
    finally:
        process.terminate()
        process.wait()


def measured(verb: str, *servers: tuple[str, int]) -> list[list[Load]]:
    """Some rounds with every server, an address and its tasks: they take turns, to meet the same
    machine."""
    found: list[list[Load]] = [[] for _ in servers]
    for i in range(ROUNDS):
        for (url, tasks), loads in zip(servers, found, strict=True):
            script = DECIDE % (tasks - 1) if verb == "decide" else REWARD % (i * WAITING)
            loads.append(one_round(f"{url}/v1/experiments/x/{verb}", script))
    return found


def one_round(url: str, script: str) -> Load:
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as file:
        file.write(script)
        file.flush()
        command = ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{SECONDS}s", "--latency", "-s"]
        command += [file.name, url]
        return read(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def read(said: str) -> Load:
    """The figures in what wrk prints."""
    rate = float(re.search(r"Requests/sec:\s+([\d.]+)", said)[1])  # type: ignore[index]
    number, unit = re.search(r"99%\s+([\d.]+)(us|ms|s)", said).groups()  # type: ignore[union-attr]
    failed = re.search(r"Non-2xx or 3xx responses: (\d+)", said)
    factor = {"us": 1e-3, "ms": 1.0, "s": 1e3}[unit]
    return Load(rate, float(number) * factor, int(failed[1]) if failed else 0)


def resident(process: int) -> float:
    """Megabytes of memory in use."""
    status = Path(f"/proc/{process}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) / 1024  # type: ignore[index]


if __name__ == "__main__":
    for line in rows():
        print(*line, sep=" | ")
