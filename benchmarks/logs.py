"""Logs: our aggregation against hand-written SQL for the same sums, and a report of many tests.

Alone, and smaller: python -m benchmarks.logs 200000
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

ROWS, DIM, TASKS, CHUNK = 10_000_000, 16, 10_000, 500_000

OURS = """
import json, resource, sys, time
import ibis, numpy as np
from adats.learning.log_columns import read_log
from adats.learning.logs import statistics
begin = time.perf_counter()
log = read_log(sys.argv[1])
log.get_backend().con.execute("SET threads = 2")
table = statistics(log, model="linear").table
seconds = time.perf_counter() - begin
sums = [table.n.sum(), table.moments[:, *np.tril_indices(len(table.features) + 1)].sum()]
"""
SQL = """
import json, resource, sys, time
import duckdb
numbers = [*(f"x{i}" for i in range(int(sys.argv[2]))), "reward"]
parts = [f"sum({z} * {w})" for i, z in enumerate(numbers) for w in numbers[: i + 1]]
begin = time.perf_counter()
connection = duckdb.connect()
connection.execute("SET threads = 2; SET enable_progress_bar = false")
query = f"SELECT task, count(*), {', '.join(parts)} FROM '{sys.argv[1]}' GROUP BY task"
found = list(connection.sql(query).fetchnumpy().values())
seconds = time.perf_counter() - begin
sums = [found[1].sum(), sum(part.sum() for part in found[2:])]
"""
REPORT = """
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
print(json.dumps([seconds, peak, *map(float, sums)]))
"""


def rows(size: int = ROWS, times: int = 2) -> list[tuple[str, str, str, bool]]:
    """Time and memory, each measured in a process of its own; the two take turns."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.parquet"
        write(path, size)
        turns = [[measure(code, path) for code in (OURS, SQL)] for _ in range(times)]
    (ours, peak, *sums), (theirs, _, *same) = (min(turn) for turn in zip(*turns, strict=True))
    np.testing.assert_allclose(sums, same, rtol=1e-9)
    what = f"statistics of {size:,} rows, {DIM} features"
    ratio = ours / theirs
    return [
        (what, f"{ours:.1f} s = {ratio:.2f} × hand-written SQL", "≤ 1.2 ×", ratio <= 1.2),
        ("  peak memory", f"{peak:.2f} GB", "≤ 2 GB", peak <= 2),
    ]


def measure(code: str, path: Path) -> list[float]:
    """Seconds, gigabytes at the peak, and two sums to compare."""
    command = [sys.executable, "-c", code + REPORT, str(path), str(DIM)]
    numbers: list[float] = json.loads(
        subprocess.run(command, capture_output=True, check=True).stdout
    )
    return numbers


def write(path: Path, size: int) -> None:
    """A log of a linear model as one Parquet file, a piece at a time."""
    import pyarrow as pa
    from pyarrow import parquet

    rng = np.random.default_rng(0)
    theta = rng.standard_normal((TASKS, DIM))
    fields = [("task", pa.int64()), *((f"x{i}", pa.float64()) for i in range(DIM))]
    schema = pa.schema([*fields, ("reward", pa.float64())])
    with parquet.ParquetWriter(path, schema) as file:
        for start in range(0, size, CHUNK):
            n = min(CHUNK, size - start)
            task, x = rng.integers(TASKS, size=n), rng.standard_normal((DIM, n))
            reward = (x * theta[task].T).sum(axis=0) + rng.standard_normal(n)
            file.write_table(pa.table([task, *x, reward], schema=schema))


TESTS = 4873


def aggregated() -> list[tuple[str, str, str, bool]]:
    """Tests of 2 to 14 arms, impressions and clicks of each, to a prior and a report."""
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tests.csv"
        with path.open("w") as file:
            print("test,arm,impressions,clicks", file=file)
            for test in range(TESTS):
                level = -4.2 + 0.6 * rng.standard_normal()
                for arm in range(int(rng.choice(range(2, 15), p=_few()))):
                    shown = int(rng.lognormal(8.0, 0.6))
                    rate = 1.0 / (1.0 + np.exp(-level - 0.15 * rng.standard_normal()))
                    print(test, arm, shown, rng.binomial(shown, rate), sep=",", file=file)
        command = [sys.executable, "-m", "adats", "fit", "binary", str(path), "--task", "test"]
        command += ["--pulls", "impressions", "--reward", "clicks"]
        command += ["--out", f"{folder}/prior.json", "--report", f"{folder}/report"]
        begin = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        _, status, used = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - begin
    assert status == 0
    peak = used.ru_maxrss / 1024
    return [
        (
            f"fit with a report, {TESTS:,} tests of 2 to 14 arms",
            f"{seconds:.1f} s",
            "≤ 10 s",
            seconds <= 10,
        ),
        ("  peak memory", f"{peak:.0f} MB", "≤ 500 MB", peak <= 500),
    ]


def _few() -> np.ndarray:
    """Most tests have few arms."""
    weights = 0.6 ** np.arange(13)
    return weights / weights.sum()


if __name__ == "__main__":
    for line in (*aggregated(), *rows(*map(int, sys.argv[1:]))):
        print(*line, sep=" | ", flush=True)
