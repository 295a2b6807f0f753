"""Tables of statistics add as their logs do, and survive their file; other files are refused."""

import json
import sys

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from adats import FileFormatError
from adats.learning.tables import (
    KINDS,
    ArmTable,
    LinearTable,
    load_statistics,
    save_statistics,
)
from adats.models import BinaryStats, CountStats, LinearStats
from adats.models.core.stats import ArmStats

ROWS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3), st.integers(0, 1)), max_size=30)


def arm_table(rows, kind=ArmStats, **span):
    """The table of rows (task, arm, reward), by adding one pull after another."""
    tasks = tuple(dict.fromkeys(f"t{task}" for task, _, _ in rows))
    arms = tuple(dict.fromkeys(arm for _, arm, _ in rows))
    stats = {task: kind.zeros(len(arms)) for task in tasks}
    for task, arm, reward in rows:
        stats[f"t{task}"] = stats[f"t{task}"].add(arms.index(arm), reward)
    table = [stats[task].table for task in tasks]
    shape = (len(tasks), kind.ROWS, len(arms))
    return ArmTable(kind, tasks, arms, np.array(table).reshape(shape), **span)


def linear_table(seed=0, tasks=("a", "b", "c"), features=("x0", "age"), **span):
    rng = np.random.default_rng(seed)
    stats = [
        LinearStats.zeros(len(features)).add(
            rng.normal(size=(n, len(features))), rng.normal(size=n)
        )
        for n in range(1, len(tasks) + 1)
    ]
    shape = (len(tasks), len(features) + 1, len(features) + 1)
    moments = np.array([s.moments for s in stats]).reshape(shape)
    return LinearTable(tasks, features, np.array([s.n for s in stats]), moments, **span)


def same(left, right):
    assert type(left) is type(right)
    for name, value in vars(left).items():
        if isinstance(value, np.ndarray):
            np.testing.assert_array_equal(value, getattr(right, name))
        else:
            assert value == getattr(right, name), name


# Reading and adding


def test_stats_of_one_task():
    table = arm_table([(0, 5, 1), (0, 7, 1), (1, 5, 1), (0, 5, 1)], CountStats)
    assert len(table) == 2
    assert type(table.stats(0)) is CountStats
    np.testing.assert_array_equal(table.stats(0).count, [2, 1])
    np.testing.assert_array_equal(table.stats(1).count, [1, 0])
    linear = linear_table()
    assert linear.stats(1).n == 2.0
    np.testing.assert_array_equal(linear.stats(1).moments, linear.moments[1])
    assert [table.model, linear.model] == ["count", "linear"]


def test_subsets_keep_arms_and_order():
    table = arm_table([(0, 5, 1), (1, 7, 1), (2, 9, 0)], since="2024-01-01")
    part = table.subset(np.array([2, 0]))
    assert (part.tasks, part.arms, part.since) == (("t2", "t0"), (5, 7, 9), "2024-01-01")
    np.testing.assert_array_equal(part.table, table.table[[2, 0]])
    linear = linear_table()
    part = linear.subset(np.array([True, False, True]))
    assert part.tasks == ("a", "c")
    np.testing.assert_array_equal(part.n, [1, 3])
    np.testing.assert_array_equal(part.moments, linear.moments[[0, 2]])


@given(left=ROWS, right=ROWS, kind=st.sampled_from(list(KINDS.values())))
def test_tables_add_as_their_logs_do(left, right, kind):
    same(arm_table(left, kind) + arm_table(right, kind), arm_table(left + right, kind))


def test_linear_tables_add():
    left = linear_table(1, since="2024-01-02T00:00:00", until="2024-01-05T00:00:00")
    right = linear_table(2, tasks=("c", "d"), since="2024-01-01T00:00:00")
    both = left + right
    assert both.tasks == ("a", "b", "c", "d")
    assert (both.since, both.until) == ("2024-01-01T00:00:00", "2024-01-05T00:00:00")
    np.testing.assert_array_equal(both.n, [1, 2, 4, 2])
    np.testing.assert_array_equal(both.moments[2], left.moments[2] + right.moments[0])
    np.testing.assert_array_equal(both.moments[3], right.moments[1])


@pytest.mark.parametrize(
    ("left", "right", "message"),
    [
        (arm_table([]), arm_table([], BinaryStats), "of a binary log do not add to gaussian"),
        (arm_table([]), linear_table(), "of a linear log do not add to gaussian"),
        (linear_table(), arm_table([]), "of a gaussian log do not add to linear"),
        (linear_table(), linear_table(features=("x0", "x1")), "different features.*age.*x1"),
        (linear_table(), linear_table(tasks=(1, 2)), "tasks must be all text or all integers"),
    ],
)
def test_different_tables_do_not_add(left, right, message):
    with pytest.raises(ValueError, match=message):
        left + right


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"kind": LinearStats}, "no statistics of kind"),
        ({"tasks": ("a", "a")}, "tasks must have different names"),
        ({"arms": (1, "2")}, "arms must be all text or all integers"),
        ({"tasks": (True, False)}, "tasks must be all text or all integers"),
        ({"table": np.zeros((2, 3, 1))}, r"shape \(2, 3, 2\), got \(2, 3, 1\)"),
        ({"table": np.full((2, 3, 2), np.nan)}, "table must be finite"),
        ({"table": np.full((2, 3, 2), -1.0)}, "counts of pulls must not be negative, got -1"),
    ],
)
def test_bad_arm_tables_are_refused(fields, message):
    good = {"kind": ArmStats, "tasks": ("a", "b"), "arms": (1, 2), "table": np.zeros((2, 3, 2))}
    ArmTable(**good)
    with pytest.raises(ValueError, match=message):
        ArmTable(**good | fields)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"features": ("x", "x")}, "features must have different names"),
        ({"n": np.zeros(2)}, "n must have shape"),
        ({"n": np.array([-1.0])}, "numbers of pulls must not be negative"),
        ({"moments": np.zeros((1, 2, 2))}, "moments must have shape"),
        ({"moments": np.triu(np.ones((1, 3, 3)))}, "moments must be symmetric"),
    ],
)
def test_bad_linear_tables_are_refused(fields, message):
    good = {
        "tasks": ("a",), "features": ("x", "y"), "n": np.zeros(1), "moments": np.zeros((1, 3, 3)),
    }  # fmt: skip
    LinearTable(**good)
    with pytest.raises(ValueError, match=message):
        LinearTable(**good | fields)


# Files

TABLES = {
    "gaussian": arm_table([(0, 5, 1), (1, 7, 0), (0, 7, 1)], since="2024-01-01T00:00:00"),
    "binary": arm_table([(0, 5, 1), (1, 7, 0)], BinaryStats),
    "count": arm_table([(0, 5, 1), (1, 7, 4)], CountStats, until="2024-01-01T00:00:00"),
    "linear": linear_table(),
    "integers": linear_table(tasks=(3, -(2**63), 1)),
    "no task": linear_table(tasks=()),
    "no arm": arm_table([]),
}


@pytest.mark.parametrize("name", TABLES)
def test_a_table_survives_its_file(name, tmp_path):
    save_statistics(tmp_path / "stats.parquet", TABLES[name])
    same(load_statistics(tmp_path / "stats.parquet"), TABLES[name])
    assert [path.name for path in tmp_path.iterdir()] == ["stats.parquet"]


def test_the_file_is_plain_parquet(tmp_path):
    save_statistics(tmp_path / "stats.parquet", TABLES["gaussian"])
    read = parquet.read_table(tmp_path / "stats.parquet")
    assert read["task"].to_pylist() == ["t0", "t1"]
    assert read["table"][0].as_py() == [1, 1, 1, 1, 1, 1]
    header = json.loads(read.schema.metadata[b"adats"])
    assert header == {
        "format": "adats-statistics", "version": 1, "model": "gaussian", "arms": [5, 7],
        "since": "2024-01-01T00:00:00", "until": None,
    }  # fmt: skip


def test_a_file_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "stats.parquet"
    save_statistics(path, TABLES["linear"])

    def fail(_, file):
        file.write(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(parquet, "write_table", fail)
    with pytest.raises(OSError, match="disk full"):
        save_statistics(path, TABLES["gaussian"])
    monkeypatch.undo()
    same(load_statistics(path), TABLES["linear"])
    assert [p.name for p in tmp_path.iterdir()] == ["stats.parquet"]


def rewrite(path, *, header=None, column=None, values=None):
    """The same file with one thing changed."""
    table = parquet.read_table(path)
    found = json.loads(table.schema.metadata[b"adats"])
    if column is not None:
        place = table.column_names.index(column)
        table = table.set_column(place, column, values(table[column]))
    metadata = {b"adats": json.dumps(header(found) if header else found)}
    parquet.write_table(table.replace_schema_metadata(metadata), path)


def without(key):
    return {"header": lambda h: {k: v for k, v in h.items() if k != key}}


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("linear", without("format"), "is not an adats-statistics file"),
        ("linear", {"header": lambda h: [h]}, "is not an adats-statistics file"),
        ("linear", {"header": lambda h: h | {"version": 2}}, "has version 2; this adats reads 1"),
        ("linear", without("features"), "is damaged"),
        ("linear", without("since"), "is damaged"),
        ("linear", {"header": lambda h: h | {"since": 7}}, "is damaged.*range of time"),
        ("linear", {"header": lambda h: h | {"features": ["x"]}}, "is damaged"),
        ("linear", {"header": lambda h: h | {"features": [["x"], 2]}}, "is damaged"),
        ("linear", {"header": lambda h: h | {"model": "cubic"}}, "is damaged"),
        ("linear", {"header": lambda h: h | {"model": []}}, "is damaged"),
        ("linear", {"header": lambda h: h | {"model": "binary"}}, "is damaged"),
        ("gaussian", {"header": lambda h: h | {"model": "count"}}, "is damaged"),
        ("gaussian", {"header": lambda h: h | {"arms": [1, 1]}}, "is damaged.*different names"),
        ("linear", {"column": "n", "values": lambda c: c.cast("int64")}, "damaged.*type int64"),
        ("linear", {"column": "n", "values": lambda c: pa.nulls(len(c), c.type)}, "damaged.*nulls"),
        ("linear", {"column": "n", "values": lambda c: pa.array([-1.0] * len(c))}, "negative"),
        ("linear", {"column": "task", "values": lambda c: pa.array(["a"] * len(c))}, "different"),
        ("linear", {"column": "task", "values": lambda c: pa.array([0.5] * len(c))}, "all text"),
        ("linear", {"column": "task", "values": lambda _: pa.array([None, "a", "b"])}, "all text"),
        ("linear", {"column": "moments", "values": lambda c: pa.nulls(len(c), c.type)}, "damaged"),
    ],
)  # fmt: skip
def test_damaged_files_are_refused(name, change, message, tmp_path):
    path = tmp_path / "stats.parquet"
    save_statistics(path, TABLES[name])
    rewrite(path, **change)
    with pytest.raises(FileFormatError, match=message):
        load_statistics(path)


def test_foreign_files_are_refused(tmp_path):
    path = tmp_path / "stats.parquet"
    with pytest.raises(FileNotFoundError):
        load_statistics(path)
    path.write_text("not Parquet")
    with pytest.raises(FileFormatError, match="is not a file of statistics"):
        load_statistics(path)
    parquet.write_table(pa.table({"task": [1]}), path)
    with pytest.raises(FileFormatError, match="is not an adats-statistics file"):
        load_statistics(path)
    save_statistics(path, TABLES["linear"])
    whole = path.read_bytes()
    for end in range(0, len(whole), 97):
        path.write_bytes(whole[:end])
        with pytest.raises(FileFormatError):
            load_statistics(path)


def test_without_pyarrow_one_line_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ValueError, match=r"needs pyarrow: pip install 'adats\[logs\]'"):
        save_statistics(tmp_path / "x", TABLES["linear"])
    with pytest.raises(ValueError, match=r"needs pyarrow"):
        load_statistics(tmp_path / "x")
