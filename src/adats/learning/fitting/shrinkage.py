"""How far to pull an estimate of Σ_0 towards a simpler one: what predicts other tasks best."""

import zlib
from collections.abc import Callable, Sequence

import numpy as np

from adats.models.core.types import FloatArray, IntArray, Task

FOLDS = 5
WEIGHTS = np.linspace(0.0, 1.0, 11)
ENOUGH = 0.1  # a fit to a part of the tasks stops at this gain of its log likelihood


def best_weight(tasks: Sequence[Task], score: Callable[[IntArray, IntArray], FloatArray]) -> float:
    """The weight of the simpler estimate under which held-out tasks are most likely.

    `score` fits to the tasks of the first index and returns the log density of those of the
    second, for each of `WEIGHTS`. Of weights that are equally good the largest is taken, and
    with fewer tasks than folds, 1.
    """
    if len(tasks) < FOLDS:
        return 1.0
    place = folds(tasks)
    total = np.zeros(len(WEIGHTS))
    for fold in range(FOLDS):
        total += score(np.flatnonzero(place != fold), np.flatnonzero(place == fold))
    close = total >= total.max() - 1e-9 * (1.0 + abs(total.max()))
    return float(WEIGHTS[np.flatnonzero(close)[-1]])


def folds(tasks: Sequence[Task]) -> IntArray:
    """The fold of every task: by its name, so that it does not depend on the order of tasks."""
    order = sorted(range(len(tasks)), key=lambda i: (zlib.crc32(repr(tasks[i]).encode()), tasks[i]))
    place = np.empty(len(tasks), dtype=np.intp)
    place[order] = np.arange(len(tasks)) % FOLDS
    return place


def towards_diagonal(cov: FloatArray, weight: float) -> FloatArray:
    return (1.0 - weight) * cov + weight * np.diag(cov.diagonal())


def towards_common(variances: FloatArray, effective: FloatArray, weight: float) -> FloatArray:
    """Variances of arms pulled towards their average, weighted by the tasks that told them.

    The weight of the average is at least 1 / (1 + effective tasks), as if one more task had
    shown it, and 1 for an arm with less than one effective task.
    """
    common = float(np.average(variances, weights=effective if effective.any() else None))
    least = np.where(effective < 1.0, 1.0, 1.0 / (1.0 + effective))
    weights = np.maximum(weight, least)
    return (1.0 - weights) * variances + weights * common
