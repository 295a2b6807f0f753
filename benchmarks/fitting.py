"""The fit of a linear model from statistics: 10,000 tasks, 16 features."""

import time
from collections.abc import Callable
from functools import partial

import numpy as np

from adats.learning import linear
from adats.learning.fit_common import Point, climb
from adats.learning.fitting import estimate
from adats.learning.tables import LinearTable

TASKS, DIM = 10_000, 16


def statistics(rng: np.random.Generator, pulls: int, spread: float) -> LinearTable:
    """Statistics of normal features and rewards with σ = 1, drawn without drawing the rows."""
    root = np.zeros((TASKS, DIM, DIM))  # Bartlett: the Gram matrix is rootᵀ root
    for i in range(DIM):
        root[:, i, i] = np.sqrt(rng.chisquare(pulls - i, TASKS))
        root[:, i, i + 1 :] = rng.standard_normal((TASKS, DIM - i - 1))
    theta = 1.0 + spread * rng.standard_normal((TASKS, DIM))
    y = np.einsum("sij,sj->si", root, theta) + rng.standard_normal((TASKS, DIM))
    rows = np.concatenate([root, y[:, :, None]], axis=2)
    moments = rows.swapaxes(1, 2) @ rows
    moments[:, -1, -1] += rng.chisquare(pulls - DIM, TASKS)
    moments = (moments + moments.swapaxes(1, 2)) / 2
    names = tuple(f"x{i}" for i in range(DIM))
    return LinearTable(tuple(range(TASKS)), names, np.full(TASKS, float(pulls)), moments)


def fitting(row: Callable[[str, str, str, bool], None]) -> None:
    """EM to convergence, and all of `estimate`, on a rich log and on a poor one."""
    for pulls, spread in ((1000, 1.0), (20, 0.1)):
        table = statistics(np.random.default_rng(0), pulls, spread)
        begin = time.perf_counter()
        rows, frame = linear.rows_of(table)
        start = Point(np.eye(DIM) / np.sqrt(DIM), frame.noise)
        found = climb(partial(linear.look, rows), start)
        seconds = time.perf_counter() - begin
        row(
            f"EM, {TASKS:,} tasks × {pulls} rows, d={DIM}, σ_0={spread:g}",
            f"{seconds:.1f} s, {len(found.curve) - 1} iterations",
            "≤ 30 s",
            seconds <= 30 and found.converged,
        )
        begin = time.perf_counter()
        estimate(table, model="linear")
        seconds = time.perf_counter() - begin
        row("  with shrinkage by five folds", f"{seconds:.1f} s", "", True)
