"""The service under load: wrk (a Debian package) sends requests over 64 connections on loopback."""

import json
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from adats.service.engine import Engine
from adats.service.messages import DecisionRequest, RewardRequest
from adats.service.spec import ExperimentSpec
from adats.service.stores.sqlite import SQLiteStore

FEW, MANY, DECISIONS = 1_000, 100_000, 1_000_000  # tasks, tasks, and the decisions of the latter
GROUP = 5_000  # decisions in one commit, when a store is filled
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


Row = tuple[str, str, str, bool]  # what, measured, wanted, whether it is so


class Load(NamedTuple):
    """What wrk measured."""

    rate: float  # requests a second
    p99: float  # milliseconds
    failed: int


def rows() -> Iterator[Row]:
    """Lines of the table of `make bench`."""
    if shutil.which("wrk") is None:
        yield "the service under load", "wrk is not installed", "apt-get install wrk", False
        return
    with tempfile.TemporaryDirectory() as folder:
        few, many = Path(folder, "few.db"), Path(folder, "many.db")
        fill(few, FEW, FEW)
        fill(many, MANY, DECISIONS)
        with (
            served(few) as (small, _, _),
            served(many) as (large, process, started),
            empty() as nothing,
        ):
            servers = (small, FEW), (large, MANY), (nothing, FEW)
            for verb in ("decide", "reward"):
                yield from _compared(verb, *(max(loads) for loads in measured(verb, *servers)))
            yield from beside_a_slow_one(small)
            yield from beside_reads(large)
            yield from beside_pages(large)
            memory = resident(process)
    yield f"  memory with {MANY:,} tasks", f"{memory:.0f} MB", "≤ 300 MB", memory <= 300
    yield f"  start to ready with {DECISIONS:,}", f"{started:.1f} s", "≤ 3 s", started <= 3


def _compared(verb: str, load: Load, loaded: Load, empty: Load) -> Iterator[Row]:
    name = f"service: {verb}, Gaussian K=10, {CONNECTIONS} connections"
    part, slower = load.rate / empty.rate, load.rate / loaded.rate
    said = f"{load.rate:,.0f} a second, p99 {load.p99:.0f} ms: {part:.2f} × an empty handler"
    yield name, f"{said} ({empty.rate:,.0f})", "≥ 0.6 ×", part >= 0.6 and not load.failed
    said = f"{loaded.rate:,.0f} a second, p99 {loaded.p99:.0f} ms: {slower:.2f} × slower"
    name = f"  with {DECISIONS:,} decisions and {MANY:,} tasks"
    yield name, said, "≤ 1.2 × slower", slower <= 1.2 and not loaded.failed


def beside_a_slow_one(url: str) -> Iterator[Row]:
    """One client uses an experiment with 150 arms meanwhile."""
    names = [f"a{i}" for i in range(150)]
    call(url, "PUT", "slow", {"model": "binary", "arms": names, "prior": {"default": {}}})

    def use(stop: threading.Event) -> None:
        while not stop.is_set():
            made = call(url, "POST", "slow/decide", {"task": "t"})
            call(url, "POST", "slow/reward", {"decision_id": made["decision_id"], "reward": 1})

    alone, beside = _with_and_without(url, FEW, use)
    part, wait = beside.rate / alone.rate, beside.p99 / alone.p99
    said = f"{part:.2f} × its rate alone, p99 {alone.p99:.0f} → {beside.p99:.0f} ms"
    name = "  decide beside an experiment of 150 arms"
    yield name, said, "≥ 0.4 ×, p99 ≤ 2 ×", part >= 0.4 and wait <= 2


def beside_reads(url: str) -> Iterator[Row]:
    """One client asks for reports and priors, one after another, meanwhile."""
    times = []

    def use(stop: threading.Event) -> None:
        while not stop.is_set():
            for what in ("report", "meta"):
                began = time.perf_counter()
                call(url, "GET", f"x/{what}")
                times.append(time.perf_counter() - began)

    alone, beside = _with_and_without(url, MANY, use)
    part = beside.rate / alone.rate
    said = f"{part:.2f} × its rate alone; a read took {max(times):.2f} s at most"
    yield (
        "  decide while reports are made",
        said,
        "≥ 0.8 ×, ≤ 0.5 s",
        (part >= 0.8 and max(times) <= 0.5),
    )


def beside_pages(url: str) -> Iterator[Row]:
    """Ten browsers show the experiment, and bring it up to date every five seconds."""

    def opened() -> tuple[float, int]:
        began = time.perf_counter()
        with urllib.request.urlopen(f"{url}/experiments/x", timeout=60) as answer:
            return time.perf_counter() - began, len(answer.read())

    seconds, size = opened()

    def use(stop: threading.Event) -> None:
        while not stop.wait(0.5):
            opened()

    alone, beside = _with_and_without(url, MANY, use)
    part = beside.rate / alone.rate
    said = f"{1000 * seconds:.0f} ms, {size / 1000:.0f} kB; decide {part:.2f} × its rate with ten"
    good = seconds <= 0.2 and size <= 150_000 and part >= 0.9
    yield "  the page of the experiment", said, "≤ 200 ms, ≤ 150 kB, ≥ 0.9 ×", good


def _with_and_without(
    url: str, tasks: int, use: Callable[[threading.Event], None]
) -> tuple[Load, Load]:
    """The best of some rounds of `decide` alone, and with another use; they take turns."""
    found: tuple[list[Load], list[Load]] = [], []
    for _ in range(ROUNDS):
        found[0].append(one_round(f"{url}/v1/experiments/x/decide", DECIDE % (tasks - 1)))
        stop = threading.Event()
        user = threading.Thread(target=use, args=(stop,))
        user.start()
        found[1].append(one_round(f"{url}/v1/experiments/x/decide", DECIDE % (tasks - 1)))
        stop.set()
        user.join()
    return max(found[0]), max(found[1])


def call(url: str, method: str, path: str, body: object = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{url}/v1/experiments/{path}", data, headers, method=method)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def fill(path: Path, tasks: int, decisions: int, spec: dict[str, Any] = SPEC) -> None:
    """A store with decisions that have a reward each, and some that wait for one."""
    store = SQLiteStore(path)
    engine = Engine(store)
    engine.begin()
    engine.put("default", "x", msgspec.convert(spec, ExperimentSpec))
    for i in range(decisions):
        engine.decide("default", "x", DecisionRequest(f"t{i % tasks}", f"d{i}"))
        engine.reward("default", "x", RewardRequest(f"d{i}", 0.0))
        if i % GROUP == 0:
            engine.flush()
            engine.commit()
            engine.begin()
    for i in range(ROUNDS * WAITING):
        engine.decide("default", "x", DecisionRequest(f"t{i * 7919 % tasks}", f"r{i + 1}"))
        if i % GROUP == 0:
            engine.flush()
            engine.commit()
            engine.begin()
    engine.flush()
    engine.commit()
    store.close()


@contextmanager
def served(path: Path) -> Iterator[tuple[str, int, float]]:
    """Address, process and seconds from the start until it is ready."""
    began = time.perf_counter()
    with _process("adats", "serve", "--db", str(path), "--port", "0") as (url, process):
        with urllib.request.urlopen(f"{url}/readyz", timeout=30) as answer:
            assert json.load(answer)["status"] == "ready"
        yield url, process, time.perf_counter() - began


@contextmanager
def empty() -> Iterator[str]:
    """The address of a service that does nothing."""
    with _process("benchmarks.empty_service") as (url, _):
        yield url


@contextmanager
def _process(*module: str) -> Iterator[tuple[str, int]]:
    command = [sys.executable, "-m", *module]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        found = re.search(r"http://\S+?:\d+", process.stdout.readline())
        assert found is not None
        yield found[0], process.pid
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
        print(*line, sep=" | ", flush=True)
