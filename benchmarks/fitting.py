"""Fits from statistics of 10,000 tasks: linear with 16 features, and clicks of ten arms."""

import time
from collections.abc import Callable
from functools import partial

import numpy as np

from adats.learning import linear
from adats.learning.fit_common import Point, climb
from adats.learning.fitting import estimate
from adats.learning.tables import ArmTable, LinearTable
from adats.models import BinaryStats

TASKS, DIM, ARMS = 10_000, 16, 10


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


def clicks(row: Callable[[str, str, str, bool], None]) -> None:
    """Rates around 3 %, 40 pulls of every arm of every task, a level that its arms share."""
    rng = np.random.default_rng(0)
    eta = -3.5 + 0.5 * rng.standard_normal((TASKS, 1)) + 0.3 * rng.standard_normal((TASKS, ARMS))
    pulls = np.full(eta.shape, 40.0)
    successes = rng.binomial(40, 1.0 / (1.0 + np.exp(-eta))).astype(float)
    names = tuple(f"a{i}" for i in range(ARMS))
    table = ArmTable(
        BinaryStats, tuple(range(TASKS)), names, np.stack([pulls, successes, successes], axis=1)
    )
    for structure in ("level", "full"):
        begin = time.perf_counter()
        estimate(table, model="binary", structure=structure)
        seconds = time.perf_counter() - begin
        what = f"fit of clicks, {TASKS:,} tasks × {ARMS} arms, {structure}"
        row(what, f"{seconds:.1f} s", "≤ 10 s", seconds <= 10)
