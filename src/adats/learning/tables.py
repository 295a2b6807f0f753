"""Sufficient statistics of many tasks: all that a fit needs of a log.

Tables of several logs add. One table is one Parquet file: a row a task, and a JSON header.
"""

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np

from adats.models import BetaArms, BinaryStats, CountStats, GaussianArms, LinearStats, PoissonArms
from adats.models.core import files
from adats.models.core.errors import FileFormatError
from adats.models.core.frozen import evolve
from adats.models.core.product import ProductArms
from adats.models.core.stats import ArmStats
from adats.models.core.types import Arm, FloatArray, IntArray, Task

KINDS: dict[str, type[ArmStats]] = {
    "gaussian": ArmStats,
    "binary": BinaryStats,
    "count": CountStats,
}
CONJUGATES: tuple[type[ProductArms], ...] = (GaussianArms, BetaArms, PoissonArms)
FORMAT = "adats-statistics"
ReadArray = Callable[[str, tuple[int, ...]], FloatArray]  # a column of a file, in a shape


class Features(NamedTuple):
    """What is known of tasks, or of arms, beside their rewards: a row each."""

    names: tuple[str, ...]
    values: FloatArray


@dataclass(frozen=True, eq=False)
class ArmTable:
    """Statistics of models with arms; arms never pulled in a task have a count of zero."""

    kind: type[ArmStats]  # ArmStats, BinaryStats or CountStats
    tasks: tuple[Task, ...]
    arms: tuple[Arm, ...]
    table: FloatArray  # (tasks, kind.ROWS, arms): what `kind.table` is for one task
    since: str | None = None  # first and last time in the log, as ISO text
    until: str | None = None
    task_features: Features | None = None
    arm_features: Features | None = None
    packed: bool = False  # arms are places: their names in the log mean nothing

    def __post_init__(self) -> None:
        if self.kind not in KINDS.values():
            raise ValueError(f"no statistics of kind {self.kind!r}")
        _check_names("tasks", self.tasks)
        _check_names("arms", self.arms)
        _check("table", self.table, (len(self.tasks), self.kind.ROWS, len(self.arms)))
        _not_negative("counts of pulls", self.table[:, 0])
        for what, features, size in (
            ("features of tasks", self.task_features, len(self.tasks)),
            ("features of arms", self.arm_features, len(self.arms)),
        ):
            if features is not None:
                _check(what, features.values, (size, len(features.names)))

    @classmethod
    def from_parts(cls, header: dict[str, Any], tasks: tuple[Task, ...], read: ReadArray) -> Self:
        """From what `to_parts` gave."""
        kind, arms = KINDS[header["model"]], tuple(header["arms"])
        table = read("table", (len(tasks), kind.ROWS, len(arms)))
        more: list[Any] = [None, None]
        if header.get("task_features"):
            named = tuple(header["task_features"])
            more[0] = Features(named, read("task_features", (len(tasks), len(named))))
        if header.get("arm_features"):
            found = header["arm_features"]
            more[1] = Features(tuple(found["names"]), np.array(found["values"], dtype=np.float64))
        more.append(bool(header.get("packed", False)))
        return cls(kind, tasks, arms, table, header["since"], header["until"], *more)

    def to_parts(self) -> tuple[dict[str, Any], dict[str, FloatArray]]:
        """For a file: names for its header, and arrays with a row a task."""
        names: dict[str, Any] = {"arms": self.arms}
        arrays = {"table": self.table}
        if self.task_features is not None:
            names["task_features"] = self.task_features.names
            arrays["task_features"] = self.task_features.values
        if self.arm_features is not None:
            known = self.arm_features
            names["arm_features"] = {"names": known.names, "values": known.values.tolist()}
        if self.packed:
            names["packed"] = True
        return names, arrays

    @property
    def model(self) -> str:
        """The name of the model: gaussian, binary or count."""
        return next(name for name, kind in KINDS.items() if kind is self.kind)

    @property
    def conjugate(self) -> type[ProductArms]:
        """Beliefs over the mean rewards of arms that such rewards keep in the family."""
        return next(family for family in CONJUGATES if family.STATS is self.kind)

    @property
    def names(self) -> tuple[str, ...]:
        """Of arms, as text."""
        return tuple(map(str, self.arms))

    @property
    def pulls(self) -> FloatArray:
        """Of each task."""
        pulls: FloatArray = self.table[:, 0].sum(axis=1)
        return pulls

    @property
    def units(self) -> FloatArray:
        """In which figures show each arm."""
        return np.ones(len(self.arms))

    def own(self) -> FloatArray:
        """The averages of every task and arm; NaN where it was not pulled."""
        count, total = self.table[:, 0], self.table[:, 1]
        return np.where(count > 0, total / np.where(count > 0, count, 1.0), np.nan)

    def stats(self, i: int) -> ArmStats:
        """The statistics of the i-th task."""
        return self.kind(self.table[i])

    def __len__(self) -> int:
        return len(self.tasks)

    def subset(self, index: IntArray) -> "ArmTable":
        """Some of the tasks, in the order of `index`; all arms stay."""
        known = self.task_features
        some = None if known is None else Features(known.names, known.values[index])
        tasks = _taken(self.tasks, index)
        return evolve(self, tasks=tasks, table=self.table[index], task_features=some)

    def __add__(self, other: "ArmTable") -> "ArmTable":
        """Both logs as one: a task or an arm that is in both has the sum of its statistics."""
        _check_same_model(self, other)
        tasks, arms = _union(self.tasks, other.tasks), _union(self.arms, other.arms)
        table = np.zeros((len(tasks), self.kind.ROWS, len(arms)))
        table[: len(self), :, : len(self.arms)] = self.table
        rows, columns = _places(tasks, other.tasks), _places(arms, other.arms)
        table[np.ix_(rows, np.arange(self.kind.ROWS), columns)] += other.table
        more: list[Any] = [
            _joined(tasks, (self.tasks, self.task_features), (other.tasks, other.task_features)),
            _joined(arms, (self.arms, self.arm_features), (other.arms, other.arm_features)),
        ]
        more.append(self.packed or other.packed)
        return ArmTable(self.kind, tasks, arms, table, *_range(self, other), *more)


@dataclass(frozen=True, eq=False)
class LinearTable:
    """Statistics of a linear model."""

    tasks: tuple[Task, ...]
    features: tuple[str, ...]
    n: FloatArray  # (tasks,)
    moments: FloatArray  # (tasks, d + 1, d + 1): Σ (a, y)(a, y)ᵀ, as in LinearStats
    since: str | None = None
    until: str | None = None

    def __post_init__(self) -> None:
        size = len(self.features) + 1
        _check_names("tasks", self.tasks)
        _check_names("features", self.features)
        _check("n", self.n, (len(self.tasks),))
        _check("moments", self.moments, (len(self.tasks), size, size))
        _not_negative("numbers of pulls", self.n)
        if not np.array_equal(self.moments, self.moments.swapaxes(1, 2)):
            raise ValueError("moments must be symmetric")

    @classmethod
    def from_parts(cls, header: dict[str, Any], tasks: tuple[Task, ...], read: ReadArray) -> Self:
        """From what `to_parts` gave."""
        features = tuple(header["features"])
        size = len(features) + 1
        n, moments = read("n", (len(tasks),)), read("moments", (len(tasks), size, size))
        return cls(tasks, features, n, moments, header["since"], header["until"])

    def to_parts(self) -> tuple[dict[str, Any], dict[str, FloatArray]]:
        """For a file: names for its header, and arrays with a row a task."""
        return {"features": self.features}, {"n": self.n, "moments": self.moments}

    @property
    def model(self) -> str:
        return "linear"

    @property
    def arms(self) -> None:
        """Arms are rows of features here: they have no names."""

    @property
    def names(self) -> tuple[str, ...]:
        """Of features."""
        return self.features

    @property
    def pulls(self) -> FloatArray:
        """Of each task."""
        return self.n

    @property
    def units(self) -> FloatArray:
        """Root mean square of every feature; 1 where it is never other than 0."""
        squares = np.einsum("sii->i", self.moments)[:-1] / max(float(self.n.sum()), 1.0)
        return np.sqrt(np.where(squares > 0, squares, 1.0))

    def own(self) -> FloatArray:
        """Least squares of every task; NaN where it has too few rows for that."""
        own = np.full((len(self), len(self.features)), np.nan)
        for i, moments in enumerate(self.moments):
            if np.linalg.matrix_rank(moments[:-1, :-1], hermitian=True) == own.shape[1]:
                own[i] = np.linalg.solve(moments[:-1, :-1], moments[:-1, -1])
        return own

    def stats(self, i: int) -> LinearStats:
        """The statistics of the i-th task."""
        return LinearStats(float(self.n[i]), self.moments[i])

    def __len__(self) -> int:
        return len(self.tasks)

    def subset(self, index: IntArray) -> "LinearTable":
        """Some of the tasks, in the order of `index`."""
        tasks = _taken(self.tasks, index)
        return evolve(self, tasks=tasks, n=self.n[index], moments=self.moments[index])

    def __add__(self, other: "LinearTable") -> "LinearTable":
        """Both logs as one: a task that is in both has the sum of its statistics."""
        _check_same_model(self, other)
        if other.features != self.features:
            raise ValueError(
                "statistics of different features do not add: "
                f"{', '.join(self.features)}, and {', '.join(other.features)}"
            )
        tasks = _union(self.tasks, other.tasks)
        rows, more = _places(tasks, other.tasks), len(tasks) - len(self)
        n = np.pad(self.n, (0, more))
        moments = np.pad(self.moments, ((0, more), (0, 0), (0, 0)))
        n[rows] += other.n
        moments[rows] += other.moments
        return LinearTable(tasks, self.features, n, moments, *_range(self, other))


Table = ArmTable | LinearTable
TABLES: dict[str, type[Table]] = {"linear": LinearTable, **dict.fromkeys(KINDS, ArmTable)}


def evenly(size: int, most: int) -> IntArray:
    """Places of at most so many out of `size`, evenly spaced."""
    return np.linspace(0, size - 1, min(most, size)).round().astype(np.intp)


def _check_names(what: str, names: tuple[Any, ...]) -> None:
    kinds = set(map(type, names))
    if kinds not in (set(), {str}, {int}):
        raise ValueError(f"names of {what} must be all text or all integers, got {names[:3]}...")
    if len(set(names)) != len(names):
        raise ValueError(f"{what} must have different names")


def _check(what: str, values: FloatArray, shape: tuple[int, ...]) -> None:
    if values.shape != shape:
        raise ValueError(f"{what} must have shape {shape}, got {values.shape}")
    if not np.isfinite(values).all():
        raise ValueError(f"{what} must be finite")


def _not_negative(what: str, values: FloatArray) -> None:
    if (values < 0).any():
        raise ValueError(f"{what} must not be negative, got {values.min()}")


def _check_same_model(one: Table, other: Any) -> None:
    model = getattr(other, "model", type(other).__name__)
    if model != one.model:
        raise ValueError(f"statistics of a {model} log do not add to {one.model} ones")


def _joined(
    names: tuple[Task, ...], *parts: tuple[tuple[Task, ...], Features | None]
) -> Features | None:
    """Features of the tasks, or arms, of two logs."""
    known = [(some, features) for some, features in parts if features is not None]
    if not known:
        return None
    if len(known) < len(parts) or len({features.names for _, features in known}) > 1:
        raise ValueError("statistics add if both have the same features of tasks and of arms")
    values = np.zeros((len(names), len(known[0][1].names)))
    for some, features in known:
        values[_places(names, some)] = features.values
    return Features(known[0][1].names, values)


def _taken(tasks: tuple[Task, ...], index: IntArray) -> tuple[Task, ...]:
    return tuple(tasks[i] for i in np.arange(len(tasks))[index].tolist())


def _union(left: Sequence[Task], right: Sequence[Task]) -> tuple[Task, ...]:
    return tuple(dict.fromkeys((*left, *right)))


def _places(names: Sequence[Task], some: Sequence[Task]) -> IntArray:
    place = {name: i for i, name in enumerate(names)}
    return np.array([place[name] for name in some], dtype=np.intp)


def _range(left: Table, right: Table) -> tuple[str | None, str | None]:
    """From the first to the last time of both; ISO texts of one zone sort as times do."""
    since = [t.since for t in (left, right) if t.since is not None]
    until = [t.until for t in (left, right) if t.until is not None]
    return min(since, default=None), max(until, default=None)


# files


def save_statistics(path: str | os.PathLike[str], table: Table) -> None:
    """Write the table as one Parquet file, whole or not at all."""
    pa, parquet = _pyarrow()
    names, arrays = table.to_parts()
    header = {"format": FORMAT, "version": files.VERSION, "model": table.model, **names}
    header |= {"since": table.since, "until": table.until}
    columns = {"task": pa.array(table.tasks, type=None if len(table) else pa.string())}
    for name, values in arrays.items():
        flat = pa.array(values.ravel())
        size = values[0].size if len(table) else 1
        columns[name] = flat if values.ndim == 1 else pa.FixedSizeListArray.from_arrays(flat, size)
    metadata = {"adats": json.dumps(header, allow_nan=False)}
    whole = pa.table(columns).replace_schema_metadata(metadata)
    files.write_whole(path, lambda file: parquet.write_table(whole, file))


def is_statistics(path: str | os.PathLike[str]) -> bool:
    """Whether a file has statistics that were saved: only its header is read."""
    if not (os.fspath(path).endswith(".parquet") and os.path.isfile(path)):
        return False
    _, parquet = _pyarrow()
    try:
        metadata = parquet.read_schema(path).metadata or {}
        return bool(json.loads(metadata.get(b"adats", b"{}")).get("format") == FORMAT)
    except files.DAMAGED:
        return False


def load_statistics(path: str | os.PathLike[str]) -> Any:
    """Read a table from a file that `save_statistics` wrote; everything is checked again."""
    _, parquet = _pyarrow()
    try:
        with open(path, "rb") as file:
            whole = parquet.read_table(file)
        header = json.loads((whole.schema.metadata or {}).get(b"adats", b"null"))
    except FileNotFoundError:
        raise
    except files.DAMAGED as error:
        raise FileFormatError(f"{os.fspath(path)} is not a file of statistics: {error}") from None
    files.check_kind(path, header, FORMAT)
    try:
        return _read(header, whole)
    except files.DAMAGED as error:
        raise FileFormatError(f"{os.fspath(path)} is damaged: {error}") from None


def _read(header: dict[str, Any], whole: Any) -> ArmTable | LinearTable:
    spans = header["since"], header["until"]
    if not all(span is None or isinstance(span, str) for span in spans):
        raise ValueError(f"the range of time is {spans}")

    def read(name: str, shape: tuple[int, ...]) -> FloatArray:
        return _numbers(whole[name], shape)

    return TABLES[header["model"]].from_parts(header, tuple(whole["task"].to_pylist()), read)


def _numbers(column: Any, shape: tuple[int, ...]) -> FloatArray:
    flat = column.combine_chunks()
    flat = flat if len(shape) == 1 else flat.flatten()
    if flat.null_count or str(flat.type) != "double":
        raise ValueError(f"a column of statistics has {flat.null_count} nulls, type {flat.type}")
    values: FloatArray = flat.to_numpy().reshape(shape)
    return values


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError:
        raise ValueError("Parquet needs pyarrow: pip install 'adats[logs]'") from None
    return pa, parquet
