"""Files, data frames and tables of any engine, as one Ibis table."""

import glob
import os
import re
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

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
            return connection.read_csv(paths, all_varchar=True, skip=0, union_by_name=True)
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
