"""A log of any kind as one Ibis table, and the columns of it that a model uses.

Files, data frames and tables of any engine are read; a `Plan` has the clean values of the columns,
and says where those are good.
"""

import glob
import json
import operator
import os
import re
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from itertools import count, takewhile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from adats.learning.tables import KINDS, TABLES
from adats.models.core.checks import HUGE
from adats.models.core.types import IntArray, Task

FILES = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".tsv": "csv",
    ".ndjson": "json",
    ".jsonl": "json",
    ".json": "json",
}


def read_log(source: Any) -> Any:
    """The log as an Ibis table.

    `source` is one or more paths or globs of Parquet, CSV or NDJSON files, which an in-process
    DuckDB reads piece by piece; or a data frame of pandas, Polars or PyArrow; or an Ibis table
    of any backend, which is returned as it is.
    """
    if isinstance(source, ibis().expr.types.Table):
        return source
    if isinstance(source, (str, os.PathLike)):
        source = [source]
    if isinstance(source, (list, tuple)) and all(isinstance(p, (str, os.PathLike)) for p in source):
        return _read_files([os.fspath(path) for path in source])
    return _read_frame(source)


def _read_frame(frame: Any) -> Any:
    import pyarrow as pa

    if "pandas" in sys.modules and isinstance(frame, sys.modules["pandas"].DataFrame):
        frame = _from_pandas(frame)
    elif hasattr(frame, "to_arrow"):  # Polars
        frame = frame.to_arrow()
    if not isinstance(frame, pa.Table):
        raise ValueError(
            "a log is an Ibis table, a data frame, or paths of Parquet, CSV or NDJSON files; "
            f"got {type(frame).__name__}"
        )
    connection = _duckdb()
    connection.con.register("log", frame)
    with _quietly():
        return connection.table("log")


def _from_pandas(frame: Any) -> Any:
    """A pandas frame as an Arrow table; columns of mixed types become text, to be looked at."""
    import pyarrow as pa

    columns: dict[str, Any] = {}
    for name, values in frame.items():
        if str(name) in columns:
            raise ValueError(f"the data frame has two columns {str(name)!r}")
        try:
            columns[str(name)] = pa.array(values, from_pandas=True)
        except (pa.ArrowInvalid, pa.ArrowTypeError):
            columns[str(name)] = pa.array(values.map(str, na_action="ignore"), from_pandas=True)
    return pa.table(columns)


def _read_files(patterns: Sequence[str]) -> Any:
    files: dict[Path, str] = {}  # by what a link points to: no file counts twice
    for pattern in patterns:
        found = [pattern] if os.path.exists(pattern) else glob.glob(pattern, recursive=True)
        if not found:
            raise FileNotFoundError(f"there is no log {pattern}")
        files |= {Path(path).resolve(): path for path in sorted(found)}
    kinds = {_kind(path) for path in files.values()}
    if len(kinds) > 1:
        raise ValueError(f"the files of a log are of one kind, got {', '.join(sorted(kinds))}")
    paths = [path for path in files.values() if os.path.getsize(path)]
    if not paths:
        raise ValueError(f"the log is empty: {', '.join(patterns) or 'no file was given'}")
    (kind,) = kinds
    connection = _duckdb()
    with _plainly(f"cannot read {', '.join(paths[:3])}"), _quietly():
        if kind == "parquet":
            return connection.read_parquet(paths, union_by_name=True)
        if kind == "csv":  # all text, as types guessed from the first rows fail on later ones
            options: dict[str, Any] = {"all_varchar": True, "skip": 0, "union_by_name": True}
            return connection.read_csv(paths, **options, quote='"', escape='"')  # seen late, maybe
        guess = connection.read_json(paths, union_by_name=True).schema()
        columns = {c: "VARCHAR" if _is_text(t) else "JSON" for c, t in guess.items()}
        return connection.read_json(paths, columns=columns)


def _is_text(kind: Any) -> bool:
    return bool(kind.is_string() or kind.is_temporal())


def _kind(path: str) -> str:
    suffix = Path(path.removesuffix(".gz")).suffix.lower()
    if os.path.isdir(path):
        raise ValueError(f"{path} is a folder: give its files, such as {path}/*.parquet")
    if suffix not in FILES:
        raise ValueError(f"{path} is not a log: the name must end in {', '.join(FILES)}")
    return FILES[suffix]


def feature_names(spec: str, columns: Sequence[str]) -> list[str]:
    """The features that `x0:x15` or `age,x0:x3` stands for, all of them among `columns`."""
    names: list[str] = []
    for part in (part.strip() for part in spec.split(",")):
        ends = re.fullmatch(r"(.*?)(\d+):(.*?)(\d+)", part)
        if part in columns or not ends:
            names.append(part)
            continue
        prefix, first, again, last = ends.groups()
        if prefix != again or int(first) > int(last):
            raise ValueError(f"a range of features is like x0:x15, got {part!r}")
        present(columns, [prefix + first, prefix + last], "--features")
        names += [f"{prefix}{i:0{len(first)}}" for i in range(int(first), int(last) + 1)]
    present(columns, names, "--features")
    return names


def present(columns: Sequence[str], names: Sequence[str], option: str) -> None:
    """Raise unless all names are among the columns."""
    for name in names:
        if name not in columns:
            raise ValueError(
                f"the log has no column {name!r} ({option}); its columns are {', '.join(columns)}"
            )


def ibis() -> Any:
    """The module Ibis, loaded when it is first needed."""
    try:
        import ibis
    except ImportError:
        raise ValueError("logs need Ibis: pip install 'adats[logs]'") from None
    return ibis


def _duckdb() -> Any:
    try:
        connection = ibis().duckdb.connect()
    except (ImportError, AttributeError):
        raise ValueError("logs need DuckDB: pip install 'adats[logs]'") from None
    connection.con.execute("SET enable_progress_bar = false")  # it would go to stdout
    return connection


def fetch(expression: Any) -> Any:
    """The result of an Ibis expression as an Arrow table."""
    with _plainly("the log cannot be read"):
        return expression.to_pyarrow()


@contextmanager
def _quietly() -> Iterator[None]:
    """Without the warnings of how Ibis asks DuckDB for the columns of a table."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


@contextmanager
def _plainly(what: str) -> Iterator[None]:
    """Errors of the engine in one line, the start of what it says."""
    try:
        yield
    except Exception as error:
        lines = [line for line in str(error).splitlines() if line.strip()]
        raise ValueError(f"{what}: {'; '.join(lines[:3]) or type(error).__name__}") from error


# the columns


EARLIEST, LATEST = 1900, 2200  # years of a log


class Column(NamedTuple):
    """One column: the clean value, and whether it is what it should be, as Ibis expressions."""

    name: str
    value: Any
    good: Any
    wanted: str


class Plan(NamedTuple):
    """What the aggregation reads, by the names that it has there."""

    log: Any
    keys: dict[str, Column]  # task, arm
    numbers: dict[str, Column]  # x0, x1, ..., y; pulls, where a row may have several
    time: str | None  # the column of times
    times: dict[str, Any]
    time_good: Column | None  # where times are text, which may be none
    known: dict[str, Column]  # features of tasks, z0, ..., and of arms, a0, ...
    model: str
    averages: bool = False  # whether rewards of several pulls are their averages

    @property
    def stats(self) -> Any:
        """The kind of statistics; None: arms are rows of features."""
        return KINDS.get(self.model)

    @property
    def columns(self) -> dict[str, Column]:
        time = {} if self.time_good is None else {"clock": self.time_good}
        return self.keys | self.numbers | time | self.known

    def select(self, **more: Any) -> Any:
        """The log under the new names, and whether all values of a row are good."""
        good = reduce(operator.and_, (column.good for column in self.columns.values()))
        used = self.keys | self.numbers | self.known
        values = {name: column.value for name, column in used.items()}
        good = ibis().coalesce(good, False)
        return self.log.select(**values, **self.times, **more, good=good)

    def kind(self, name: str) -> Any:
        """The type of a column in the log."""
        return self.log[self.columns[name].name].type()

    def coded(self, key: str, found: Any) -> tuple[tuple[Task, ...], IntArray]:
        """Distinct names of tasks or arms, sorted, and the place of each entry among them."""
        encoded = found[key].combine_chunks().dictionary_encode()
        names, kind = encoded.dictionary.to_pylist(), self.kind(key)
        untyped = kind.is_json() or (kind.is_string() and self.kind("y").is_string())
        if untyped and all(re.fullmatch("0|-?[1-9][0-9]*", name) for name in names):
            names = [int(name) for name in names]  # as in a CSV file, where all is text
        else:
            names = self.plain(key, names)
        ordered = sorted(set(names))
        place = {name: i for i, name in enumerate(ordered)}
        codes = np.array([place[name] for name in names], dtype=np.intp)
        return tuple(ordered), codes[encoded.indices.to_numpy()]

    def plain(self, key: str, names: list[Any]) -> list[Any]:
        """Names as the log means them: JSON has quotes around text."""
        if not self.kind(key).is_json():
            return names
        return [json.loads(name) if name.startswith('"') else name for name in names]


def planned(log: Any, **columns: Any) -> Plan:
    """The plan of what `read_log` takes, with columns as in `plan`; a plan stays as it is."""
    return log if isinstance(log, Plan) else plan(read_log(log), **columns)


def plan(
    log: Any,
    *,
    model: str,
    task: str = "task",
    arm: str = "arm",
    reward: str = "reward",
    features: Sequence[str] | str | None = None,
    time: str | None = None,
    pulls: str | None = None,
    squares: str | None = None,
    means: bool | None = None,
    task_features: Sequence[str] | str | None = None,
    arm_features: Sequence[str] | str | None = None,
) -> Plan:
    """The columns of a model; all of them are there and have a type that can be right.

    A row is one pull; with a column of `pulls` it is so many, and `reward` is the sum of their
    rewards, or with `means` the average. Of numbers `squares` is then the sum of their squares,
    or with `means`, as is usual of them, their variance (over n - 1). Names with "{arm}" in them
    stand for a column an arm, in a table with one row a task.
    """
    if model not in TABLES:
        raise ValueError(f"no model {model!r}; there are {', '.join(TABLES)}")
    kind = KINDS.get(model)  # None: arms are rows of features
    if kind is None:
        features = _features(log, features)
        for what, given in (("pulls", pulls), ("arm features", arm_features)):
            if given is not None:
                raise ValueError(f"{what} are for models with arms, not for {model}")
    elif features is not None:
        raise ValueError(f"features are for a linear model, not for {model}")
    averages = kind is not None and not kind.SUMS_TELL if means is None else means
    _check_sums(model, kind, pulls, squares, means)
    about = {
        "task_features": _listed(log, task_features or []),
        "arm_features": _listed(log, arm_features or []),
    }
    if kind is None and about["task_features"]:
        raise ValueError("task features are for models with arms: name them among the features")
    if any("{arm}" in (name or "") for name in (reward, pulls, squares)):
        log = long_table(log, task, reward, pulls, squares, time, about["task_features"])
        arm, reward = "arm", reward.replace("{arm}", "*")
        pulls, squares = (name and name.replace("{arm}", "*") for name in (pulls, squares))
    keys = {"task": task} if features is not None else {"task": task, "arm": arm}
    roles = {role: [name] for role, name in (keys | {"reward": reward}).items()}
    roles |= {"features": list(features or [])}
    roles |= {role: [name] for role, name in (("pulls", pulls), ("squares", squares)) if name}
    for role, names in (roles | about).items():
        present(log.columns, names, f"{role}=, --{role.replace('_', '-')}")
    used = [name for names in (roles | about).values() for name in names]
    twice = [name for name in used if used.count(name) > 1]
    if twice:
        raise ValueError(f"column {twice[0]!r} is used twice")
    numbers = {f"x{i}": _finite(log, name) for i, name in enumerate(features or [])}
    if pulls is None:
        numbers["y"] = _reward(log, kind, reward)
    else:
        numbers |= _sums(log, kind, reward, pulls, squares, averages)
    known = {
        f"{role}{i}": _finite(log, name)
        for role, names in (("z", about["task_features"]), ("a", about["arm_features"]))
        for i, name in enumerate(names)
    }
    time = "time" if time is None and "time" in log.columns else time
    times, good = ({}, None) if time is None else _times(log, time)
    return Plan(
        log,
        {role: Column(c, _key(log[c]), log[c].notnull(), "present") for role, c in keys.items()},
        numbers,
        time,
        times,
        good,
        known,
        model,
        averages,
    )


def _check_sums(
    model: str, kind: Any, pulls: str | None, squares: str | None, means: bool | None
) -> None:
    if pulls is None and (squares is not None or means is not None):
        raise ValueError("squares and means are of several pulls: name their column (pulls=)")
    if pulls is None or kind is None:
        return
    if kind.SUMS_TELL and squares is not None:
        raise ValueError(f"squares are for gaussian rewards; {model} ones do not need them")
    if not kind.SUMS_TELL and squares is None:
        raise ValueError(
            f"{model} rewards with pulls= need squares= (--squares): the variance of the rewards "
            "of a row, or with means=False (--sums) the sum of their squares"
        )


def long_table(
    log: Any,
    task: str,
    reward: str,
    pulls: str | None,
    squares: str | None,
    time: str | None,
    kept: Sequence[str],
) -> Any:
    """A table with columns for each arm as one with a row for each task and arm.

    "{arm}" stands for the name of an arm. Cells without a reward, or without pulls, are left out.
    """
    wanted = [name for name in (reward, pulls, squares) if name is not None]
    if not all("{arm}" in name for name in wanted):
        bare = next(name for name in wanted if "{arm}" not in name)
        raise ValueError(f"{bare!r} must have {{arm}} in it too, as a column for each arm")
    pattern = re.compile(re.escape(reward).replace(re.escape("{arm}"), "(.+)"))
    found = (pattern.fullmatch(column) for column in log.columns)
    others = {task, time or "time", *kept}
    arms = [match.group(1) for match in found if match and match.group() not in others]
    arms = [a for a in arms if all(name.replace("{arm}", a) in log.columns for name in wanted)]
    if not arms:
        raise ValueError(
            f"no column is like {' and '.join(map(repr, wanted))}; the columns are "
            f"{', '.join(log.columns)}"
        )
    present(log.columns, [task], "task=, --task")
    stay = [name for name in (task, time or "time", *kept) if name in log.columns]
    kinds = [log[name.replace("{arm}", arm)].type() for name in wanted for arm in arms]
    kind = "float64" if all(kind.is_numeric() for kind in kinds) else "string"
    parts = []
    for arm in arms:
        cells = {
            name.replace("{arm}", "*"): log[name.replace("{arm}", arm)].cast(kind)
            for name in wanted
        }
        row = log.select(*stay, arm=ibis().literal(arm), **cells)
        parts.append(row.filter(row[(pulls or reward).replace("{arm}", "*")].notnull()))
    return ibis().union(*parts) if len(parts) > 1 else parts[0]


def _listed(log: Any, names: Sequence[str] | str) -> list[str]:
    """A list of columns, which may be given as text such as x0:x15, or age,price."""
    return feature_names(names, log.columns) if isinstance(names, str) else list(names)


def _features(log: Any, features: Sequence[str] | str | None) -> list[str]:
    """The features, or those of the project's own log format: x0, x1, ..."""
    numbered = takewhile(lambda name: name in log.columns, (f"x{i}" for i in count()))
    names = list(numbered) if features is None else _listed(log, features)
    if not names:
        raise ValueError(
            "a linear model needs features (features=, --features); the columns are "
            f"{', '.join(log.columns)}"
        )
    return names


def _key(column: Any) -> Any:
    kind = column.type()
    return column if kind.is_integer() or kind.is_string() else column.cast("string")


def _number(log: Any, name: str) -> Any:
    """A column as float64, null where it is text that is no number."""
    column = log[name]
    kind = column.type()
    if kind.is_boolean():
        return column.cast("int64").cast("float64")
    if kind.is_numeric():
        return column.cast("float64")
    if not (kind.is_string() or kind.is_json() or kind.is_null()):
        raise ValueError(f"column {name!r} must have numbers, but its type is {kind}")
    text = column.cast("string")
    word, number = text.lower(), text.try_cast("float64")
    false_or_number = ibis().ifelse(word == "false", 0.0, number)
    return ibis().ifelse(word == "true", 1.0, false_or_number)


def _real(x: Any) -> Any:
    """Neither NaN nor infinite.

    Comparisons, and even isnan, may be wrong for NaN: DuckDB believes the bounds in Parquet files,
    which leave NaN out (issue 25521 of duckdb/duckdb). It cannot know the difference.
    """
    return (x - x) == 0.0


def _finite(log: Any, name: str) -> Column:
    x = _number(log, name)
    return Column(name, x, _real(x) & (x.abs() < HUGE), "a finite number")


def _reward(log: Any, kind: Any, name: str) -> Column:
    if kind is None or not kind.WHOLE_REWARDS:
        return _finite(log, name)
    y = _number(log, name)
    good = _real(y) & (y >= kind.LEAST) & (y <= min(kind.MOST, 2.0**53 - 1))
    whole = ibis().ifelse(good, y, 0.0).cast("int64").cast("float64")
    return Column(name, y, good & (whole == y), kind.WANTED)


def _sums(
    log: Any, kind: Any, reward: str, pulls: str, squares: str | None, averages: bool
) -> dict[str, Column]:
    """Pulls, the sum of their rewards, and of numbers the sum of their squares."""
    y, n = _number(log, reward), _number(log, pulls)
    some = Column(pulls, n, _real(n) & (n >= 0.0) & (n < HUGE), "0 or more")
    least = kind.LEAST * (1.0 if averages else n)
    most = kind.MOST * (1.0 if averages else n)
    good = _real(y) & (y >= least) & (y <= most)
    wanted = "0 or more"
    if kind.MOST == 1.0:
        wanted = "from 0 to 1" if averages else f"from 0 to {pulls!r}"
    if squares is None:
        return {"y": Column(reward, y * n if averages else y, good, wanted), "pulls": some}
    total = y * n if averages else y
    found = {"y": Column(reward, total, _real(y) & (y.abs() < HUGE), "a finite number")}
    q = _number(log, squares)
    one = n <= 1.0  # of which no variance is known
    if averages:
        scatter = ibis().ifelse(one, 0.0, (n - 1.0) * q)
        fine = ibis().ifelse(one, True, _real(q) & (q >= 0.0) & (q < HUGE))
        found["squares"] = Column(squares, scatter + y * y * n, fine, "a variance, 0 or more")
    else:
        least = total * total / ibis().ifelse(n > 0.0, n, 1.0) * (1 - 1e-9)
        fine = _real(q) & (q >= least) & (q < HUGE)
        said = f"a sum of squares, at least {reward!r}² / {pulls!r}"
        found["squares"] = Column(squares, q, fine, said)
    return found | {"pulls": some}


def _times(log: Any, time: str) -> tuple[dict[str, Any], Column | None]:
    """The time as expressions that sort, and where it can be read.

    Text may hold times or seconds since 1970; times that no engine reads, or that are of another
    century than any log, are no good: 13/02/2026 is one, as nobody knows whether 01/02/2026 is in
    January.
    """
    present(log.columns, [time], "time=, --time")
    column = log[time]
    kind = column.type()
    if kind.is_timestamp() or kind.is_date():
        return {"time": column}, None
    if kind.is_unknown():  # DuckDB's times in a zone with nanoseconds are unknown to Ibis
        return {"time": column.cast("timestamp('UTC')")}, None
    if kind.is_numeric():
        return {"seconds": _seconds(log, time)}, None
    if not (kind.is_string() or kind.is_json() or kind.is_null()):
        raise ValueError(f"column {time!r} must have times, but its type is {kind}")
    text = column.cast("string")
    clock, seconds = text.try_cast("timestamp"), _seconds(log, time)
    read = ibis().coalesce((clock.year() >= EARLIEST) & (clock.year() <= LATEST), False)
    none = column.isnull() | text.strip().isin(["", "null", "NaN", "nan", "None", "NaT"])
    good = none | read | seconds.notnull()
    wanted = "a time such as 2026-02-13T10:00 (year first), or seconds since 1970"
    return {"time": clock, "seconds": seconds}, Column(time, column, good, wanted)


def _seconds(log: Any, time: str) -> Any:
    number = _number(log, time)
    return ibis().ifelse(_real(number), number, ibis().null("float64"))
