"""Statistics of logs against a loop over their rows; bad rows and bad files are named."""

import datetime
import decimal
import math
import sys
import uuid

import ibis
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from adats import AdaTS, GaussianMeta, LinearMeta
from adats.learning import logs
from adats.learning.log_columns import feature_names, read_log
from adats.learning.logs import rows, spread, statistics
from adats.learning.tables import KINDS, ArmTable, LinearTable
from adats.models import LinearStats

LOG = {
    "task": [7, 3, 7, 3, 3, 11],
    "arm": ["b", "a", "b", "b", "a", "a"],
    "reward": [1.0, 4.0, 3.0, 0.0, 2.0, 1.0],
}


def brute(log, model):
    """A table of statistics, one pull after another."""
    tasks, arms = tuple(sorted(set(log["task"]))), tuple(sorted(set(log["arm"])))
    stats = {task: KINDS[model].zeros(len(arms)) for task in tasks}
    for task, arm, reward in zip(log["task"], log["arm"], log["reward"], strict=True):
        stats[task] = stats[task].add(arms.index(arm), reward)
    return ArmTable(KINDS[model], tasks, arms, np.array([s.table for s in stats.values()]))


def same(left, right):
    assert type(left) is type(right)
    assert (left.tasks, left.model) == (right.tasks, right.model)
    if isinstance(left, ArmTable):
        assert left.arms == right.arms
        np.testing.assert_allclose(left.table, right.table, rtol=1e-13, atol=1e-13)
    else:
        assert left.features == right.features
        np.testing.assert_array_equal(left.n, right.n)
        np.testing.assert_allclose(left.moments, right.moments, rtol=1e-12, atol=1e-12)


def write(log, path):
    """A log as a file of the kind that its name says."""
    frame = pd.DataFrame(log)
    if ".csv" in path.name:
        frame.to_csv(path, index=False)
    elif "json" in path.name:
        frame.to_json(path, orient="records", lines=True, double_precision=15)
    else:
        parquet.write_table(pa.table(log), path)
    return path


# The same statistics from any source

FILES = ["a.parquet", "a.pq", "a.csv", "a.csv.gz", "a.ndjson", "a.jsonl.gz"]
FRAMES = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "pyarrow": pa.table}


@pytest.mark.parametrize("model", KINDS)
@pytest.mark.parametrize("name", FILES)
def test_files(name, model, tmp_path):
    log = LOG | {"reward": [1, 0, 1, 0, 0, 1] if model == "binary" else LOG["reward"]}
    found = statistics(write(log, tmp_path / name), model=model)
    same(found.table, brute(log, model))
    assert (found.rows, found.dropped) == (6, 0)


@pytest.mark.parametrize("frame", FRAMES)
def test_data_frames_and_tables(frame):
    source = FRAMES[frame](LOG)
    same(statistics(source, model="count").table, brute(LOG, "count"))
    table = ibis.memtable(pa.table(LOG))
    assert read_log(table) is table
    same(statistics(table, model="gaussian").table, brute(LOG, "gaussian"))


PULLS = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from("abc"), st.integers(0, 9)), min_size=1, max_size=40
)


@settings(max_examples=25)
@given(pulls=PULLS, model=st.sampled_from(["gaussian", "count"]), cut=st.integers(1, 40))
def test_a_log_cut_in_two_adds_up(pulls, model, cut):
    logs = [dict(zip(LOG, zip(*p, strict=True), strict=True)) for p in (pulls, pulls[:cut])]
    frames = [pa.table({name: list(values) for name, values in log.items()}) for log in logs]
    whole, first = (statistics(frame, model=model).table for frame in frames)
    same(whole, brute(logs[0], model))
    if cut < len(pulls):
        both = first + statistics(frames[0].slice(cut), model=model).table
        np.testing.assert_allclose(both.table.sum(axis=(0, 2)), whole.table.sum(axis=(0, 2)))
        place = [both.tasks.index(task) for task in whole.tasks]
        arms = [both.arms.index(arm) for arm in whole.arms]
        np.testing.assert_allclose(both.table[place][:, :, arms], whole.table, atol=1e-12)


def linear_log(n=60, dim=3, seed=0):
    rng = np.random.default_rng(seed)
    x, tasks = rng.standard_normal((n, dim)), rng.integers(5, size=n)
    log = {"user": [f"u{t}" for t in tasks], "y": rng.standard_normal(n)}
    return log | {f"f{i}": x[:, i] for i in range(dim)}, x


@pytest.mark.parametrize("name", ["a.parquet", "a.csv", "a.ndjson"])
def test_linear(name, tmp_path):
    log, x = linear_log()
    path = write(log, tmp_path / name)
    found = statistics(path, model="linear", task="user", reward="y", features=["f0", "f1", "f2"])
    users, y = np.array(log["user"]), log["y"]
    tasks = tuple(sorted(set(log["user"])))
    stats = [LinearStats.zeros(3).add(x[users == t], y[users == t]) for t in tasks]
    n, moments = np.array([s.n for s in stats]), np.array([s.moments for s in stats])
    same(found.table, LinearTable(tasks, ("f0", "f1", "f2"), n, moments))


def test_one_pass_is_enough_when_all_is_well(monkeypatch):
    passes = []
    fetch = logs.fetch
    monkeypatch.setattr(logs, "fetch", lambda e: passes.append(e) or fetch(e))
    statistics(pa.table(LOG), model="gaussian")
    statistics(pa.table(LOG | {"reward": [None, *LOG["reward"][1:]]}), model="count", on_bad="drop")
    assert len(passes) == 2


def test_the_own_log_format_needs_no_options():
    agent = AdaTS(GaussianMeta([0.0, 0.0], 1.0, task_scale=0.1, noise=1.0), seed=1)
    decisions = [agent.ask(f"user-{i % 3}") for i in range(9)]
    log = pd.DataFrame([d.record(0.5 * i) for i, d in enumerate(decisions)])
    found = statistics(log, model="gaussian").table
    assert found.tasks == ("user-0", "user-1", "user-2")
    assert found.table[:, 0].sum() == 9
    assert found.table[:, 1].sum() == 18
    assert found.since[:13] == str(np.datetime64(int(decisions[0].time), "s"))[:13]

    linear = AdaTS(LinearMeta(np.zeros(2), 1.0, task_cov=0.1, noise=1.0), seed=1)
    decision = linear.ask("ann", features=[[1.0, 2.0], [1.0, 3.0]])
    log = pd.DataFrame([decision.record(2.0)] * 2)
    found = statistics(log, model="linear").table
    assert found.features == ("x0", "x1")
    np.testing.assert_array_equal(found.stats(0).gram, 2 * np.outer(*[decision.features] * 2))


# Names and times


@pytest.mark.parametrize(
    ("values", "names"),
    [
        (pa.array([3, 1, 3], pa.int8()), (1, 3)),
        (pa.array([3, 2**63, 3], pa.uint64()), (3, 2**63)),
        (pa.array(["10", "9", "9"]), ("10", "9")),
        (pa.array([True, False, True]), ("false", "true")),
        (pa.array([datetime.date(2024, 5, 1)] * 3), ("2024-05-01",)),
        (pa.array([decimal.Decimal("1.5")] * 3), ("1.5",)),
        (pa.array([str(uuid.UUID(int=5))] * 3), ("00000000-0000-0000-0000-000000000005",)),
        (pa.array(["b", "a", "b"]).dictionary_encode(), ("a", "b")),
    ],
)
def test_names_keep_their_type_or_are_text(values, names):
    log = pa.table({"task": values, "arm": values, "reward": [1.0, 2.0, 3.0]})
    found = statistics(log, model="gaussian").table
    assert found.tasks == found.arms == names
    assert {type(name) for name in found.tasks} == {type(names[0])}


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("5 -3 0", (-3, 0, 5)),
        ("5 007 1", ("007", "1", "5")),
        ("5 -0 1", ("-0", "1", "5")),
        ("5 1.0 1", ("1", "1.0", "5")),
        ("5 ann 1", ("1", "5", "ann")),
    ],
)
def test_names_in_csv_are_integers_where_all_are(text, names, tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("task,arm,reward\n" + "".join(f"{t},{t},1\n" for t in text.split()))
    found = statistics(path, model="binary").table
    assert found.tasks == found.arms == names


def test_names_in_json_keep_their_type(tmp_path):
    path = tmp_path / "log.ndjson"
    path.write_text(
        '{"task": 7, "arm": "7", "reward": 1}\n{"task": 8, "arm": "\\u00e9/\\"", "reward": true}\n'
    )
    found = statistics(path, model="binary").table
    assert (found.tasks, found.arms) == ((7, 8), ("7", 'é/"'))
    with path.open("a") as file:
        file.write('{"task": "ann", "arm": null, "reward": "x"}\n' * 2)
        file.write('{"task": "ann", "arm": "7", "reward": 0}\n')
    found = statistics(path, model="binary", on_bad="drop")
    assert (found.table.tasks, found.table.arms) == (("7", "8", "ann"), ("7", 'é/"'))
    assert (found.rows, found.dropped) == (3, 2)
    (ann,) = rows(path, model="binary", tasks=["ann"])
    np.testing.assert_array_equal(ann.actions, [0])


STAMPS = [
    datetime.datetime(2024, 3, 2, 12),
    datetime.datetime(2024, 3, 1, 23, 59, 59),
    None,
    datetime.datetime(2025, 1, 1),
    datetime.datetime(2024, 12, 31),
    datetime.datetime(2024, 12, 31),
]
SECONDS = [t and t.replace(tzinfo=datetime.UTC).timestamp() + 0.25 for t in STAMPS]
SPAN = ("2024-03-01T23:59:59", "2025-01-01T00:00:00")


@pytest.mark.parametrize(
    "times",
    [
        pa.array(STAMPS, pa.timestamp("us")),
        pa.array(STAMPS, pa.timestamp("ns", tz="Europe/Zurich")),
        pa.array(SECONDS),
        pa.array([math.nan if s is None else s for s in SECONDS]),
        pa.array([t and t.isoformat() for t in STAMPS]),
        pa.array([s and str(s) for s in SECONDS]),
    ],
    ids=["timestamp", "zone", "seconds", "nan", "text", "seconds in text"],
)
def test_the_range_of_time(times):
    found = statistics(pa.table(LOG | {"ts": times}), model="gaussian", time="ts").table
    assert (found.since, found.until) == SPAN
    found = statistics(pa.table(LOG | {"ts": times}), model="gaussian").table
    assert (found.since, found.until) == (None, None)


def test_odd_times():
    for times in ([math.inf] * 6, [1e300] * 6, [None] * 6):
        log = pa.table(LOG | {"time": pa.array(times, pa.float64())})
        assert statistics(log, model="gaussian").table.since is None
    dates = pa.array([datetime.date(2024, 1, day) for day in range(1, 7)])
    found = statistics(pa.table(LOG | {"time": dates}), model="gaussian").table
    assert (found.since, found.until) == ("2024-01-01T00:00:00", "2024-01-06T00:00:00")
    with pytest.raises(ValueError, match="'time' must have times, but its type is array"):
        statistics(pa.table(LOG | {"time": [[1]] * 6}), model="gaussian")


# Bad rows

GOOD = {"task": ["t"] * 4, "arm": [0, 1, 0, 1], "reward": [1.0, 0.0, 1.0, 1.0]}
LINEAR = GOOD | {"x0": [1.0] * 4, "x1": [0.5, 1.0, 2.0, 3.0]}
nan, inf = math.nan, math.inf
BAD = [
    ("gaussian", "reward", [1, nan, 2, 3], "'reward' must be a finite number, but .* 1 of 4"),
    ("binary", "reward", [1, nan, 1, 1], "'reward' must be 0 or 1, but is not in 1 of 4"),
    ("count", "reward", [5, nan, 5, 5], "'reward' must be 0, 1, 2, .* 1 of 4"),
    ("linear", "x1", [1, 2, nan, 3], "'x1' must be a finite number, but is not in 1 of 4"),
    ("gaussian", "reward", [1, nan, inf, 1], "'reward' must be a finite number, but .* 2 of 4"),
    ("gaussian", "reward", [1, None, 1, 1], "'reward' must be a finite number, but is not in 1 of"),
    (
        "gaussian",
        "reward",
        [1e200, 1, 1, 1],
        "'reward' must be a finite number, but is not in 1 of",
    ),
    ("gaussian", "reward", ["1", "1e1", "one", "-.5"], "'reward' must be a finite number.*'one'"),
    ("gaussian", "reward", ["1", "nan", "1", "inf"], "'reward' .* 2 of 4 rows.*'nan'"),
    ("gaussian", "task", ["t", None, "t", "t"], "'task' must be present, but is not in 1 of 4"),
    ("gaussian", "arm", [None, None, 3, 4], "'arm' must be present, but is not in 2 of 4"),
    ("binary", "reward", [0, 1, 2, 1], r"'reward' must be 0 or 1, .* 1 of 4 .*'reward': 2"),
    ("binary", "reward", [0, 1, 0.5, nan], "'reward' must be 0 or 1, but is not in 2 of 4"),
    ("binary", "reward", ["yes", "TRUE", "false", "1.0"], "must be 0 or 1, .* 1 of 4 .*'yes'"),
    ("count", "reward", [0, 1, -1, 7], r"'reward' must be 0, 1, 2, \.\.\., but .* 1 of 4 .*-1"),
    ("count", "reward", [0, 0.5, nan, inf], "'reward' must be 0, 1, 2.* 3 of 4"),
    ("count", "reward", [0, 2**53, 1e18, 3], "'reward' must be 0, 1, 2.* 2 of 4"),
    ("linear", "x1", [1, 2, nan, -inf], "'x1' must be a finite number, but is not in 2 of 4"),
    ("linear", "x0", ["1", "2", "x", "4"], "'x0' must .* 1 of 4 rows; for example .*'x0': 'x'"),
]


@pytest.mark.parametrize("kind", ["parquet", "pandas"])
@pytest.mark.parametrize(("model", "column", "values", "message"), BAD)
def test_bad_rows_are_named_or_dropped(kind, model, column, values, message, tmp_path):
    """NaN in Parquet is the hard one: the bounds in the file know nothing of it."""
    log = (LINEAR if model == "linear" else GOOD) | {column: values}
    source = write(log, tmp_path / "log.parquet") if kind == "parquet" else pd.DataFrame(log)
    with pytest.raises(ValueError, match=message) as error:
        statistics(source, model=model)
    assert "for example {'task': " in str(error.value)
    assert "--on-bad drop" in str(error.value)
    found = statistics(source, model=model, on_bad="drop")
    bad = int(message.split(" of ")[0].split()[-1]) if " of " in message else 1
    assert (found.rows, found.dropped) == (4 - bad, bad)
    assert np.isfinite(getattr(found.table, "table" if model != "linear" else "moments")).all()


def test_several_bad_columns_are_all_named():
    log = LINEAR | {"x0": [nan, 1, 1, 1], "reward": ["a", "b", "1", "2"]}
    with pytest.raises(ValueError, match=r"'x0' .* 1 of 4 rows; column 'reward' .* 2 of 4 rows"):
        statistics(pa.table(log), model="linear")
    assert statistics(pa.table(log), model="linear", on_bad="drop").dropped == 2


def test_dropped_rows_leave_the_statistics_of_the_others():
    log, _ = linear_log(200)
    names = ["f0", "f1", "f2"]
    options = {"model": "linear", "task": "user", "reward": "y", "features": names}
    spoilt = {name: np.array(values) for name, values in log.items()}
    for place, name in ((3, "f0"), (77, "f2"), (78, "y")):
        spoilt[name][place] = nan
    kept = np.delete(np.arange(200), [3, 77, 78])
    clean = statistics(pa.table({k: np.array(v)[kept] for k, v in log.items()}), **options)
    found = statistics(pa.table(spoilt), **options, on_bad="drop")
    assert found.dropped == 3
    same(found.table, clean.table)


def test_nothing_left():
    log = pa.table(GOOD | {"reward": [nan] * 4})
    with pytest.raises(
        ValueError, match=r"no good row is left in the log: column 'reward'.* 4 of 4"
    ):
        statistics(log, model="gaussian", on_bad="drop")
    with pytest.raises(ValueError, match="the log is empty"):
        statistics(log.slice(0, 0), model="gaussian")


@pytest.mark.parametrize("name", ["log.csv", "log.ndjson"])
@pytest.mark.parametrize("column", ["task", "reward"])
def test_text_far_down_in_a_file(name, column, tmp_path):
    """Types guessed from the first rows would fail here."""
    n = 30_000
    log = {"task": [1] * n, "arm": [0] * n, "reward": [1] * n}
    log[column] = [*log[column][:-1], "x1"]
    path = write(log, tmp_path / name)
    if column == "task":
        assert statistics(path, model="binary").table.tasks == ("1", "x1")
        return
    with pytest.raises(ValueError, match=r"'reward' .* 1 of 30,000 rows.*x1"):
        statistics(path, model="binary")
    assert statistics(path, model="binary", on_bad="drop").rows == n - 1


# Bad logs


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"model": "linear", "reward": "y"},
            r"no column 'y' \(reward=, --reward\); its columns are",
        ),
        ({"model": "gaussian", "task": "user"}, "no column 'user' .*task, arm, reward, x0, x1"),
        ({"model": "gaussian", "arm": "ad"}, "no column 'ad'"),
        ({"model": "linear", "time": "ts"}, "no column 'ts'"),
        ({"model": "linear", "features": ["x0", "x2"]}, "no column 'x2'"),
        ({"model": "linear", "features": ["x0", "x0"]}, "'x0' is used twice"),
        ({"model": "linear", "features": ["x0", "reward"]}, "'reward' is used twice"),
        ({"model": "linear", "features": []}, "a linear model needs features"),
        (
            {"model": "binary", "features": ["x0"]},
            "features are for a linear model, not for binary",
        ),
        ({"model": "poisson"}, "no model 'poisson'; there are linear, gaussian, binary, count"),
        ({"model": "binary", "on_bad": "keep"}, "on_bad is 'raise' or 'drop', got 'keep'"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        statistics(pa.table(LINEAR), **options)


def test_columns_of_other_types():
    with pytest.raises(ValueError, match="'reward' must have numbers, but its type is array"):
        statistics(pa.table(GOOD | {"reward": [[1.0]] * 4}), model="gaussian")
    with pytest.raises(ValueError, match=r"needs features .* columns are task, arm, reward"):
        statistics(pa.table(GOOD), model="linear")
    numbers = pa.array([decimal.Decimal("0.5")] * 4)
    assert (
        statistics(pa.table(GOOD | {"reward": numbers}), model="gaussian").table.table[0, 1, 0] == 1
    )
    assert statistics(pa.table(GOOD | {"reward": [True] * 4}), model="binary").rows == 4


@pytest.mark.parametrize("source", [7, None, {"task": [1]}, [1, 2], ["a.csv", 7]])
def test_what_is_no_log(source):
    with pytest.raises(ValueError, match="a log is an Ibis table, a data frame, or paths"):
        read_log(source)


def test_files_that_are_no_log(tmp_path):
    write(LOG, tmp_path / "a.csv")
    write(LOG, tmp_path / "b.parquet")
    (tmp_path / "c.txt").write_text("x")
    (tmp_path / "empty.csv").touch()
    (tmp_path / "bad.parquet").write_text("not Parquet at all")
    with pytest.raises(FileNotFoundError, match=r"there is no log .*d\.csv"):
        read_log(tmp_path / "d.csv")
    with pytest.raises(FileNotFoundError, match=r"there is no log .*\*\.ndjson"):
        read_log([tmp_path / "a.csv", tmp_path / "*.ndjson"])
    for paths, message in (
        ([tmp_path / "a.csv", tmp_path / "b.parquet"], "of one kind, got csv, parquet"),
        (tmp_path / "c.txt", r"c.txt is not a log: the name must end in \.parquet"),
        (tmp_path, "is a folder: give its files"),
        (tmp_path / "empty.csv", "the log is empty: .*empty.csv"),
        ([], "the log is empty: no file was given"),
        (tmp_path / "bad.parquet", "cannot read .*bad.parquet: "),
    ):
        with pytest.raises(ValueError, match=message):
            read_log(paths)


def test_a_line_that_is_too_short(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("task,arm,reward\n" + "1,2,3\n" * 30_000 + "1,2\n")
    with pytest.raises(ValueError, match=r"the log cannot be read: .*Line: 30002") as error:
        statistics(path, model="gaussian")
    assert "\n" not in str(error.value)


def test_several_files(tmp_path):
    first, second = {k: v[:2] for k, v in LOG.items()}, {k: v[2:] for k, v in LOG.items()}
    write(first, tmp_path / "1.csv")
    write({k: second[k] for k in ("reward", "task", "arm")}, tmp_path / "2.csv")
    (tmp_path / "3.csv").touch()  # nothing happened that day
    whole = brute(LOG, "gaussian")
    same(statistics(tmp_path / "*.csv", model="gaussian").table, whole)
    twice = [tmp_path / "1.csv", str(tmp_path / "?.csv"), tmp_path / "." / "2.csv"]
    same(statistics(twice, model="gaussian").table, whole)


def test_without_ibis_one_line_says_what_to_install(tmp_path, monkeypatch):
    path = write(LOG, tmp_path / "a.csv")
    monkeypatch.setitem(sys.modules, "ibis", None)
    with pytest.raises(ValueError, match=r"^logs need Ibis: pip install 'adats\[logs\]'$"):
        statistics(path, model="gaussian")
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "duckdb", None)
    monkeypatch.delitem(sys.modules, "ibis.backends.duckdb", raising=False)
    monkeypatch.delattr(ibis, "duckdb", raising=False)
    with pytest.raises(ValueError, match=r"^logs need DuckDB: pip install 'adats\[logs\]'$"):
        read_log(path)


# Rows in order


def test_rows_in_the_order_of_time():
    log = LOG | {"time": [5, 9, 1, 3, 3, 0]}
    found = rows(pa.table(log), model="gaussian", tasks=[3, 99, 7])
    assert [part.task for part in found] == [3, 99, 7]
    np.testing.assert_array_equal(found[0].actions, [1, 0, 0])  # ties stay in the log's order
    np.testing.assert_array_equal(found[0].rewards, [0, 2, 4])
    np.testing.assert_array_equal(found[2].rewards, [3, 1])
    assert found[1].actions.shape == found[1].rewards.shape == (0,)
    assert found[0].actions.dtype.kind == "i"
    assert rows(pa.table(log), model="gaussian", tasks=[]) == []
    (found,) = rows(pa.table(log), model="gaussian", tasks=[3], arms=["b", "c", "a"])
    np.testing.assert_array_equal(found.actions, [0, 2, 2])
    with pytest.raises(ValueError, match=r"an arm 'b', which is not one of \['a'\]"):
        rows(pa.table(log), model="gaussian", tasks=[3], arms=["a"])


def test_rows_without_time_and_bad_rows():
    log = GOOD | {"reward": [nan, 2.0, 3.0, 4.0], "arm": ["only bad", "b", "c", "b"]}
    (found,) = rows(pa.table(log), model="gaussian", tasks=["t"])
    np.testing.assert_array_equal(found.actions, [0, 1, 0])
    np.testing.assert_array_equal(found.rewards, [2, 3, 4])


@pytest.mark.parametrize("name", ["log.parquet", "log.csv", "log.ndjson"])
def test_rows_of_files(name, tmp_path):
    days = ["2024-01-03", "2024-01-01T10:00:00", "2024-01-01T09:00:00", "2024-01-02"]
    path = write(LINEAR | {"task": [1, 2, 1, 1], "ts": days}, tmp_path / name)
    one, two = rows(path, model="linear", tasks=[1, 2], time="ts")
    np.testing.assert_array_equal(one.actions, [[1, 2], [1, 3], [1, 0.5]])
    np.testing.assert_array_equal(two.actions, [[1, 1]])
    seconds = write(LINEAR | {"task": [1, 2, 1, 1], "ts": [30, 1, 2, 9]}, tmp_path / name)
    one, _ = rows(seconds, model="linear", tasks=[1, 2], time="ts")
    np.testing.assert_array_equal(one.rewards, [1, 1, 1])
    np.testing.assert_array_equal(one.actions[:, 1], [2, 3, 0.5])


def test_rows_add_up_to_the_statistics():
    log, _ = linear_log(80)
    options = {"model": "linear", "task": "user", "reward": "y", "features": ["f0", "f2"]}
    table = statistics(pa.table(log), **options).table
    for i, part in enumerate(rows(pa.table(log), tasks=table.tasks, **options)):
        stats = LinearStats.zeros(2).add(part.actions, part.rewards)
        assert stats.n == table.n[i]
        np.testing.assert_allclose(stats.moments, table.moments[i])


def test_some_tasks_are_evenly_spaced():
    assert spread([5, 1, 4, 2, 3], 3) == [1, 3, 5]
    assert spread(["b", "a"], 10) == ["a", "b"]
    assert spread(range(1000), 5) == [0, 250, 500, 749, 999]
    assert spread([], 3) == []
    with pytest.raises(ValueError, match="most must be a whole number of at least 1"):
        spread([1], 0)


# Names of features

COLUMNS = ["task", "x0", "x1", "x2", "f08", "f09", "f10", "age", "a:b", "1", "2"]


@pytest.mark.parametrize(
    ("spec", "names"),
    [
        ("x0:x2", ["x0", "x1", "x2"]),
        ("age, x1:x2", ["age", "x1", "x2"]),
        ("f08:f10", ["f08", "f09", "f10"]),
        ("a:b,x0", ["a:b", "x0"]),
        ("1:2", ["1", "2"]),
        ("x1:x1", ["x1"]),
    ],
)
def test_feature_names(spec, names):
    assert feature_names(spec, COLUMNS) == names


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("x0:x3", "no column 'x3'"),
        ("x2:x0", "a range of features is like x0:x15, got 'x2:x0'"),
        ("x0:f10", "a range of features is like x0:x15"),
        ("x0:x99999999999", "no column 'x99999999999'"),
        ("x8:x10", "no column 'x8'"),
        ("age,,x0", "no column ''"),
        ("", "no column ''"),
        ("x:y", "no column 'x:y'"),
    ],
)
def test_bad_feature_names(spec, message):
    with pytest.raises(ValueError, match=message):
        feature_names(spec, COLUMNS)
