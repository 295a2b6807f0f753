"""What is asked of many tasks at once, checked."""

from typing import Any, NamedTuple

import numpy as np

from adats.agents.arms import Arms
from adats.agents.task_columns import LARGEST
from adats.agents.task_state import task_name
from adats.models.core import checks
from adats.models.core.errors import RowsError
from adats.models.core.types import BoolArray, FloatArray, IntArray, Task

Tasks = list[Task] | IntArray


class BatchRequest(NamedTuple):
    """What is asked of many tasks at once; arrays have a row a task."""

    tasks: Tasks
    features: FloatArray | None = None  # of the arms: the same for all tasks, or for each its own
    allowed: BoolArray | None = None  # (arms,) or (tasks, arms)
    horizon: IntArray | None = None  # a column; or one number for all
    propensities: bool = False


def part_of(request: BatchRequest, some: IntArray) -> BatchRequest:
    """What is asked at some places of the request."""
    features, allowed, horizon = request.features, request.allowed, request.horizon
    return request._replace(
        features=features[some] if features is not None and features.ndim == 3 else features,
        allowed=allowed[some] if allowed is not None and allowed.ndim == 2 else allowed,
        horizon=horizon[some] if horizon is not None and len(horizon) > 1 else horizon,
    )


def tasks_of(values: Any) -> Tasks:
    """Names of tasks: an array of whole numbers, or a list of strings and numbers."""
    if (
        isinstance(values, str)
        or not hasattr(values, "__iter__")
        or getattr(values, "ndim", 1) != 1
    ):
        raise ValueError(f"give a list or a column of tasks, got {values!r}")
    if hasattr(values, "to_pylist"):  # Arrow
        values = values.to_pylist()
    elif hasattr(values, "to_numpy"):  # pandas, Polars
        values = values.to_numpy()
    given = values if isinstance(values, (np.ndarray, list)) else list(values)
    if (
        isinstance(given, np.ndarray)
        and given.dtype.kind in "iu"
        and given.max(initial=0) <= LARGEST
    ):
        return given.astype(np.intp, copy=False)
    names: list[Any] = given.tolist() if isinstance(given, np.ndarray) else given
    kinds = set(map(type, names))
    if not kinds <= {str, int}:
        names = _names(given, names)
        kinds = set(map(type, names))
    if kinds == {int} and min(names) >= -LARGEST and max(names) <= LARGEST:
        return np.array(names, dtype=np.intp)
    return names


def names_of(tasks: Tasks) -> list[Task]:
    """As Python has them."""
    return tasks.tolist() if isinstance(tasks, np.ndarray) else tasks


def _names(given: Any, names: list[Any]) -> list[Task]:
    """Names as `ask` takes them."""
    if isinstance(given, np.ndarray) and given.dtype.kind == "f" and np.isnan(given).any():
        raise RowsError(np.flatnonzero(np.isnan(given)), "there is no task")
    found: list[Task] = []
    bad = []
    for i, name in enumerate(names):
        try:
            found.append(task_name(name))
        except ValueError:
            bad.append(i)
    if bad:
        raise RowsError(bad, f"a task is named by a string or an integer, got {names[bad[0]]!r}")
    return found


def allowed_mask(arms: Arms, allowed: Any, tasks: int, rows: int | None) -> BoolArray | None:
    """Which arms may be chosen: a list of them for all tasks, or yes and no for each."""
    if not (isinstance(allowed, np.ndarray) and allowed.dtype == bool and allowed.ndim == 2):
        return arms.mask(allowed, rows)
    count = arms.count if rows is None else rows
    if allowed.shape != (tasks, count):
        raise ValueError(f"allowed has shape {allowed.shape}, not ({tasks}, {count})")
    mask = allowed if arms.not_retired is None else allowed & arms.not_retired
    none = np.flatnonzero(~mask.any(axis=1))
    if none.size:
        raise RowsError(none, "allowed leaves no arm to choose")
    return mask


def horizon_of(horizon: Any, tasks: int) -> IntArray | None:
    """One number for all tasks, or one for each."""
    if horizon is None:
        return None
    if np.ndim(horizon) == 0:
        return np.array([[checks.count_of("horizon", horizon)]])
    given = np.asarray(horizon)
    if given.shape != (tasks,) or given.dtype.kind not in "iu":
        raise ValueError(f"horizon is a whole number, or one for each of {tasks} tasks")
    if (given < 1).any():
        bad = np.flatnonzero(given < 1)
        raise RowsError(bad, f"horizon must be at least 1, got {given[bad[0]]}")
    return given[:, None]


def options_at(request: BatchRequest, i: int, arms: Arms, allowed: Any) -> dict[str, Any]:
    """What `ask` is given at one place of a request."""
    features, horizon = request.features, request.horizon
    if features is not None:
        features = features[i] if features.ndim == 3 else features
        features = None if arms.features is not None else features
    if request.allowed is not None and request.allowed.ndim == 2:
        mask = np.flatnonzero(request.allowed[i])
        allowed = mask.tolist() if arms.names is None else [arms.names[k] for k in mask.tolist()]
    left = None if horizon is None else int(horizon[i if len(horizon) > 1 else 0, 0])
    return {
        "features": features,
        "allowed": allowed,
        "horizon": left,
        "propensities": request.propensities,
    }
