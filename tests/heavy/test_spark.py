"""The aggregation on Spark, on a local master: the same statistics as DuckDB's."""

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from adats.learning.logs import rows, statistics

pytestmark = [
    pytest.mark.heavy,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
    pytest.mark.filterwarnings("ignore:The copy keyword is deprecated"),  # PySpark to pandas
    pytest.mark.filterwarnings("ignore:The 'future.infer_string' option"),  # Ibis to pandas
]
DIM, ROWS = 5, 20_000


@pytest.fixture(scope="module")
def spark():
    import ibis
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.master("local[2]")
        .appName("adats")
        .config("spark.ui.enabled", False)
        .config("spark.sql.shuffle.partitions", 2)
        .config("spark.log.level", "OFF")
        .getOrCreate()
    )
    yield ibis.pyspark.connect(session)
    session.stop()


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """A log with a few bad rows: nulls, NaN, infinity."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal((ROWS, DIM)) * 10.0 ** np.arange(-2, DIM - 2)
    mean = np.exp(rng.standard_normal(ROWS))
    columns = {
        "user": [None if i % 997 == 0 else f"u{i % 173}" for i in range(ROWS)],
        "arm": rng.integers(7, size=ROWS),
        "reward": np.where(np.arange(ROWS) % 991 == 5, np.nan, x.sum(axis=1) + mean),
        "visits": rng.poisson(mean).astype(np.float64),
        "click": rng.random(ROWS) < 0.3,
        "ts": np.datetime64("2024-03-01T10:00:00", "us") + rng.permutation(ROWS),
    }
    x[::499, 2], x[::1009, 3] = np.inf, np.nan
    path = tmp_path_factory.mktemp("log") / "log.parquet"
    parquet.write_table(pa.table(columns | {f"x{i}": x[:, i] for i in range(DIM)}), path)
    return path


CASES = {
    "linear": {"model": "linear"},
    "gaussian": {"model": "gaussian"},
    "count": {"model": "count", "reward": "visits"},
    "binary": {"model": "binary", "reward": "click"},
}


@pytest.mark.parametrize("case", CASES)
def test_spark_gives_the_statistics_of_duckdb(spark, log, case):
    options = {**CASES[case], "task": "user", "time": "ts", "on_bad": "drop"}
    ours = statistics(log, **options)
    theirs = statistics(spark.read_parquet(str(log)), **options)
    assert ours.dropped > 0
    assert (theirs.rows, theirs.dropped) == (ours.rows, ours.dropped)
    assert theirs.rows + theirs.dropped == ROWS
    assert theirs.table.tasks == ours.table.tasks
    assert (theirs.table.since, theirs.table.until) == (ours.table.since, ours.table.until)
    if case == "linear":
        np.testing.assert_array_equal(theirs.table.n, ours.table.n)
        np.testing.assert_allclose(theirs.table.moments, ours.table.moments, rtol=1e-9, atol=0)
    else:
        assert theirs.table.arms == ours.table.arms
        np.testing.assert_allclose(theirs.table.table, ours.table.table, rtol=1e-9, atol=0)


def test_spark_names_bad_rows_and_gives_rows_in_order(spark, log):
    table = spark.read_parquet(str(log))
    with pytest.raises(
        ValueError, match=r"'x2' must be a finite number, but is not in 41 of 20,000"
    ):
        statistics(table, model="linear", task="user")
    options = {"model": "linear", "task": "user", "time": "ts", "tasks": ["u3", "u5"]}
    for ours, theirs in zip(rows(log, **options), rows(table, **options), strict=True):
        assert len(ours.rewards) > 100
        np.testing.assert_array_equal(theirs.actions, ours.actions)
        np.testing.assert_array_equal(theirs.rewards, ours.rewards)


def test_spark_reads_numbers_that_are_text(spark, tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("task,arm,reward,time\n1,a,1.5,2024-01-01\n1,a,x,2024-01-02\n2,b,TRUE,\n")
    table = spark.read_csv(str(path), header=True)
    ours = statistics(path, model="gaussian", on_bad="drop")
    theirs = statistics(table, model="gaussian", on_bad="drop")
    assert theirs[1:] == ours[1:] == (2, 1)
    assert (theirs.table.tasks, theirs.table.arms) == ((1, 2), ("a", "b"))
    assert theirs.table.since == ours.table.since == "2024-01-01T00:00:00"
    np.testing.assert_array_equal(theirs.table.table, ours.table.table)
