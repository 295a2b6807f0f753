"""The aggregation on Spark, on a local master: the same statistics as DuckDB's."""

import sys

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

import adats
from adats.learning.logs import rows, statistics

pytestmark = [
    pytest.mark.heavy,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
    pytest.mark.filterwarnings("ignore:The copy keyword is deprecated"),  # PySpark to pandas
    pytest.mark.filterwarnings("ignore:The 'future.infer_string' option"),  # Ibis to pandas
]
DIM, ROWS = 5, 20_000


@pytest.fixture(scope="module")
def session():
    from pyspark.sql import SparkSession

    patch = pytest.MonkeyPatch()
    patch.setenv("PYSPARK_PYTHON", sys.executable)  # workers have what this process has
    session = (
        SparkSession.builder.master("local[2]")
        .appName("adats")
        .config("spark.ui.enabled", False)
        .config("spark.sql.shuffle.partitions", 2)
        .config("spark.log.level", "OFF")
        .getOrCreate()
    )
    yield session
    session.stop()
    patch.undo()


@pytest.fixture(scope="module")
def spark(session):
    import ibis

    return ibis.pyspark.connect(session)


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


AGENTS = {
    "clicks": adats.default_prior(arms=["a", "b", "c"], rewards="binary"),
    "gaussian": adats.GaussianMeta([0.0, 0.1, 0.2], 0.5, task_scale=0.3, noise=1.0),
}


@pytest.mark.parametrize("kind", AGENTS)
@pytest.mark.parametrize("named", [True, False])
def test_decisions_on_spark_do_not_depend_on_the_partitions(session, kind, named):
    """The same as of Arrow in this process, in one partition and in four."""
    agent, rng = adats.AdaTS(AGENTS[kind], seed=1), np.random.default_rng(2)
    tasks = [f"u{i}" if named else i for i in range(2000)]
    arms = agent.arms
    some = tasks[:300]
    agent.tell_many(
        {
            "task": some,
            "action": [arms[i] for i in rng.integers(3, size=len(some))],
            "reward": rng.integers(2, size=len(some)).astype(float),
        }
    )
    table = pa.table({"task": tasks, "number": np.arange(2000, dtype=np.int32)})
    options = {"seed": 3, "decision_id": "number", "propensities": kind == "gaussian"}
    ours = adats.decide(table, agent, **options).sort_by("decision_id")
    assert len(set(ours["action"].to_pylist())) == 3
    frame = session.createDataFrame(table.to_pandas())
    for parts in (1, 4):
        theirs = adats.decide(frame.repartition(parts), agent, **options)
        assert theirs.columns == ours.column_names
        found = sorted(theirs.collect(), key=lambda row: row.decision_id)
        for name in ours.column_names:
            assert [row[name] for row in found] == ours[name].to_pylist()


def test_an_empty_table_on_spark_has_no_decisions(session):
    table = session.createDataFrame([], "task string")
    found = adats.decide(table, AGENTS["gaussian"], seed=1)
    assert (found.columns, found.count()) == (["task", "action"], 0)


@pytest.fixture(scope="module")
def shapes(tmp_path_factory):
    """The same log in several shapes: rows, sums, means and a wide table; with times as text."""
    import pandas as pd

    rng = np.random.default_rng(2)
    size = 4000
    frame = pd.DataFrame(
        {
            "task": rng.integers(50, size=size),
            "arm": np.array(["a", "b"])[rng.integers(2, size=size)],
            "reward": rng.standard_normal(size),
            "propensity": rng.choice([0.25, 0.5], size),
            "time": [
                f"2026-02-01T{i // 3600:02d}:{i // 60 % 60:02d}:{i % 60:02d}" for i in range(size)
            ],
            "age": 0.0,
        }
    )
    frame["age"] = 20.0 + frame.task
    cells = frame.groupby(["task", "arm"]).reward.agg(["count", "mean", "var"]).reset_index()
    wide = cells.pivot(index="task", columns="arm", values=["count", "mean", "var"])
    wide.columns = [f"{name}_{arm}" for name, arm in wide.columns]
    folder = tmp_path_factory.mktemp("shapes")
    for name, part in {"rows": frame, "cells": cells, "wide": wide.reset_index()}.items():
        part.to_parquet(folder / f"{name}.parquet")
    return folder


SHAPES = {
    "rows": {"task_features": ["age"]},
    "cells": {"pulls": "count", "reward": "mean", "squares": "var"},
    "wide": {"pulls": "count_{arm}", "reward": "mean_{arm}", "squares": "var_{arm}"},
}


@pytest.mark.parametrize("name", SHAPES)
def test_shapes_of_logs(spark, shapes, name):
    path = shapes / f"{name}.parquet"
    ours = statistics(path, model="gaussian", **SHAPES[name]).table
    theirs = statistics(spark.read_parquet(path), model="gaussian", **SHAPES[name]).table
    assert (ours.tasks, ours.arms) == (theirs.tasks, theirs.arms)
    np.testing.assert_allclose(theirs.table, ours.table, rtol=1e-9, atol=1e-9)
    rows_table = statistics(shapes / "rows.parquet", model="gaussian").table
    np.testing.assert_allclose(ours.table, rows_table.table, rtol=1e-9, atol=1e-9)


def test_looks_at_how_a_log_was_allocated(spark, shapes):
    from adats.learning.checks import duplicated
    from adats.learning.logs import first_halves, weighted_cells

    path = shapes / "rows.parquet"
    table = statistics(path, model="gaussian").table
    options = {"model": "gaussian", "tasks": table.tasks, "arms": table.arms}
    for look in (first_halves, weighted_cells):
        ours, theirs = look(path, **options), look(spark.read_parquet(path), **options)
        for one, other in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-9)
    options = {"model": "gaussian", "tasks": table.tasks}
    twice = spark.read_parquet(path).union(spark.read_parquet(path))
    assert duplicated(spark.read_parquet(path), **options) == ()
    assert "is the log duplicated?" in duplicated(twice, **options)[0]


def test_dates_that_cannot_be_read(spark, shapes):
    table = spark.read_parquet(shapes / "rows.parquet")
    bad = table.mutate(time=table.time.substr(0, 0) + "13/02/2026")
    with pytest.raises(ValueError, match=r"'time' must be a time such as .* 4,000 of 4,000 rows"):
        statistics(bad, model="gaussian")
