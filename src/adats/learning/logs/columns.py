"""The columns that a model uses: their clean values, and where those are good."""

import json
import operator
import re
from collections.abc import Sequence
from functools import reduce
from itertools import count, takewhile
from typing import Any, NamedTuple

import numpy as np

from adats.learning.logs.reading import ibis, present
from adats.learning.tables import TABLES
from adats.models.core.checks import HUGE
from adats.models.core.types import IntArray, Task

COUNTED = ("binary", "count")  # a row may have several pulls, and the sum of their rewards


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
    times: dict[str, Any]

    @property
    def columns(self) -> dict[str, Column]:
        return self.keys | self.numbers

    def select(self, **more: Any) -> Any:
        """The log under the new names, and whether all values of a row are good."""
        good = reduce(operator.and_, (column.good for column in self.columns.values()))
        values = {name: column.value for name, column in self.columns.items()}
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


def plan(
    log: Any,
    *,
    model: str,
    task: str,
    arm: str,
    reward: str,
    features: Sequence[str] | None,
    time: str | None,
    pulls: str | None = None,
) -> Plan:
    """The columns of a model; all of them are there and have a type that can be right."""
    if model not in TABLES:
        raise ValueError(f"no model {model!r}; there are {', '.join(TABLES)}")
    if model == "linear":
        features = _features(log, features)
    elif features is not None:
        raise ValueError(f"features are for a linear model, not for {model}")
    if pulls is not None and model not in COUNTED:
        raise ValueError(f"pulls are for {' and '.join(COUNTED)} rewards, not for {model}")
    keys = {"task": task} if features is not None else {"task": task, "arm": arm}
    for role, name in (keys | {"reward": reward}).items():
        present(log.columns, [name], f"{role}=, --{role}")
    present(log.columns, features or [], "features=, --features")
    several = [] if pulls is None else [pulls]
    present(log.columns, several, "pulls=, --pulls")
    used = [*keys.values(), reward, *(features or []), *several]
    twice = [name for name in used if used.count(name) > 1]
    if twice:
        raise ValueError(f"column {twice[0]!r} is used twice")
    numbers = {f"x{i}": _finite(log, name) for i, name in enumerate(features or [])}
    if pulls is None:
        numbers["y"] = _reward(log, model, reward)
    else:
        numbers |= {"y": _sum(log, model, reward, pulls), "pulls": _pulls(log, pulls)}
    return Plan(
        log,
        {role: Column(c, _key(log[c]), log[c].notnull(), "present") for role, c in keys.items()},
        numbers,
        _times(log, time),
    )


def _features(log: Any, features: Sequence[str] | None) -> list[str]:
    """The features, or those of the project's own log format: x0, x1, ..."""
    numbered = takewhile(lambda name: name in log.columns, (f"x{i}" for i in count()))
    names = list(numbered if features is None else features)
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


def _reward(log: Any, model: str, name: str) -> Column:
    y = _number(log, name)
    if model == "binary":
        return Column(name, y, _real(y) & ((y == 0.0) | (y == 1.0)), "0 or 1")
    if model == "count":
        small = _real(y) & (y >= 0.0) & (y < 2.0**53)
        whole = ibis().ifelse(small, y, 0.0).cast("int64").cast("float64")
        return Column(name, y, small & (whole == y), "0, 1, 2, ...")
    return _finite(log, name)


def _pulls(log: Any, name: str) -> Column:
    n = _number(log, name)
    return Column(name, n, _real(n) & (n >= 0.0) & (n < HUGE), "0 or more")


def _sum(log: Any, model: str, name: str, pulls: str) -> Column:
    """The rewards of several pulls."""
    y, n = _number(log, name), _number(log, pulls)
    if model == "binary":
        return Column(name, y, _real(y) & (y >= 0.0) & (y <= n), f"from 0 to {pulls!r}")
    return Column(name, y, _real(y) & (y >= 0.0) & (y < HUGE), "0 or more")


def _times(log: Any, time: str | None) -> dict[str, Any]:
    """The time as expressions that sort; text may hold times or seconds since 1970."""
    if time is None:
        if "time" not in log.columns:
            return {}
        time = "time"
    present(log.columns, [time], "time=, --time")
    kind = log[time].type()
    if kind.is_timestamp() or kind.is_date():
        return {"time": log[time]}
    if kind.is_unknown():  # DuckDB's times in a zone with nanoseconds are unknown to Ibis
        return {"time": log[time].cast("timestamp('UTC')")}
    if kind.is_numeric():
        return {"seconds": _seconds(log, time)}
    if not (kind.is_string() or kind.is_json() or kind.is_null()):
        raise ValueError(f"column {time!r} must have times, but its type is {kind}")
    text = log[time].cast("string")
    return {"time": text.try_cast("timestamp"), "seconds": _seconds(log, time)}


def _seconds(log: Any, time: str) -> Any:
    number = _number(log, time)
    return ibis().ifelse(_real(number), number, ibis().null("float64"))
