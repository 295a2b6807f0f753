"""Many decisions as one light table, and data frames of every kind as columns."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from adats.agents.arms import Arms
from adats.agents.decision import Decision
from adats.models.core.types import FloatArray, IntArray, Task

Column = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class Decisions:
    """Decisions of `ask_many`, one a row: columns of the same length.

    `features` are those of the chosen arms, where arms are rows of features; in a data frame they
    are the columns x0, x1, and so on. Their `time` is kept where rewards age.
    """

    task: Column
    action: Column
    decision_id: Column | None = None
    propensity: Column | None = None
    features: FloatArray | None = None
    time: FloatArray | None = None

    @classmethod
    def of(cls, decisions: Sequence[Decision], base: int) -> Self:
        """Decisions that were made one by one; `base` is added to their numbers."""
        numbers = np.array([base + int(d.decision_id) for d in decisions], dtype=np.int64)
        chances = [d.propensity for d in decisions]
        rows = [d.features for d in decisions]
        single = all(row is not None and row.ndim == 1 for row in rows)
        return cls(
            task_column([d.task for d in decisions]),
            column_of([d.action for d in decisions]),
            numbers,
            None if None in chances else column_of(chances),
            np.array(rows) if decisions and single else None,
        )

    def __len__(self) -> int:
        return len(self.task)

    def columns(self) -> dict[str, Column]:
        """All columns, by name."""
        found = {"task": self.task, "action": self.action}
        if self.decision_id is not None:
            found["decision_id"] = self.decision_id
        if self.propensity is not None:
            found["propensity"] = self.propensity
        if self.time is not None:
            found["time"] = self.time
        if self.features is not None:
            found |= {f"x{i}": column for i, column in enumerate(self.features.T)}
        return found

    def __getitem__(self, name: str) -> Column:
        return self.columns()[name]

    def __iter__(self) -> Iterator[Decision]:
        """One by one, as `ask` would have given them."""
        chances = [None] * len(self) if self.propensity is None else self.propensity.tolist()
        rows = [None] * len(self) if self.features is None else self.features
        numbers = [0] * len(self) if self.decision_id is None else self.decision_id.tolist()
        times = [0.0] * len(self) if self.time is None else self.time.tolist()
        parts = (self.task.tolist(), self.action.tolist(), rows, numbers, times, chances)
        for part in zip(*parts, strict=True):
            yield Decision(*part)

    def to_pandas(self) -> Any:
        import pandas

        return pandas.DataFrame(self.columns())

    def to_polars(self) -> Any:
        import polars

        return polars.DataFrame(self.columns())

    def to_arrow(self) -> Any:
        import pyarrow

        return pyarrow.table(self.columns())


def column_of(values: list[Any]) -> Column:
    """Numbers as such an array; all else, tuples too, as an array of objects."""
    if set(map(type, values)) <= {int} or set(map(type, values)) <= {float}:
        return np.array(values)
    return np.fromiter(values, dtype=object, count=len(values))


def task_column(tasks: list[Task] | IntArray) -> Column:
    return tasks if isinstance(tasks, np.ndarray) else column_of(tasks)


def named(arms: Arms, actions: IntArray) -> Column:
    """Chosen arms as users call them."""
    return actions if arms.names is None else column_of(list(arms.names))[actions]


def columns_of(frame: Any) -> dict[str, Column]:
    """The columns of a data frame: pandas, Polars, Arrow, Ibis, a dict of arrays, `Decisions`, or
    the path of a Parquet or CSV file."""
    if isinstance(frame, Decisions):
        return frame.columns()
    if isinstance(frame, (str, Path)):
        frame = _read(Path(frame))
    if hasattr(frame, "to_pyarrow"):  # Ibis
        frame = frame.to_pyarrow()
    if isinstance(frame, dict):
        columns = {str(name): _given(str(name), values) for name, values in frame.items()}
    elif hasattr(frame, "column_names"):  # Arrow
        columns = {name: _values(frame.column(name)) for name in frame.column_names}
    elif hasattr(frame, "columns") and hasattr(frame, "__getitem__"):  # pandas, Polars
        columns = {str(name): np.asarray(frame[name].to_numpy()) for name in frame.columns}
    else:
        raise ValueError(
            "give a data frame of pandas, Polars, Arrow or Ibis, a dict of columns, or the path of "
            f"a Parquet or CSV file; got {type(frame).__name__}"
        )
    sizes = {name: len(values) for name, values in columns.items()}
    if len(set(sizes.values())) > 1:
        raise ValueError(f"columns of different lengths: {sizes}")
    return columns


def _given(name: str, values: Any) -> Column:
    """An array, or a list of anything."""
    if hasattr(values, "to_numpy"):  # of pandas or Polars
        values = values.to_numpy()
    if isinstance(values, np.ndarray) and values.ndim:
        return values
    if isinstance(values, str) or not hasattr(values, "__iter__"):
        raise ValueError(f"the column {name} must be a list or an array, got {values!r}")
    return column_of(list(values))


def _values(column: Any) -> Column:
    """An Arrow column; missing numbers are NaN, as in pandas."""
    return np.asarray(column.to_numpy(zero_copy_only=False))


def _read(path: Path) -> Any:
    if path.suffix == ".parquet":
        from pyarrow import parquet

        return parquet.read_table(path)
    if path.suffix == ".csv":
        from pyarrow import csv

        return csv.read_csv(path)
    raise ValueError(f"{path} is neither .parquet nor .csv")
