"""Readings of "the training set is used to estimate μ_0 and Σ_0", for one class of pictures."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from adats.learning.fitting import estimate
from adats.learning.tables import LinearTable
from adats.models import LatentLinearMeta
from adats.models.core.types import FloatArray, Rng
from adats.simulation.kernels.registry import LoopInput, loops_of, plain_absorb
from adats.simulation.play import absorb_and_renew
from adats.simulation.problems.classification import (
    ClassificationProblem,
    LogisticClassification,
    PictureProblem,
)

TRAINING_TASKS, TRAINING_ROUNDS = 100, 200  # with no more rounds than features no noise is seen
SPREADS = (0.02, 0.06, 0.2, 0.6, 2.0)  # of tasks in log-odds: the least is as good as none


class ClassPrior(NamedTuple):
    """What an agent is told: the mean of theta over tasks, and its covariance."""

    mu: FloatArray
    cov: FloatArray


def of_features(features: FloatArray) -> ClassPrior:
    """Reading (a): mean and covariance of the features of the class."""
    return ClassPrior(features.mean(axis=0), np.cov(features, rowvar=False))


def training_logs(train: PictureProblem[Any], rng: Rng) -> Iterator[tuple[FloatArray, FloatArray]]:
    """Features and rewards of training tasks in which random arms were pulled."""
    start = train.start(rng)
    for _ in range(TRAINING_TASKS):
        instance = train.instance(start, TRAINING_ROUNDS, rng)
        pulled = instance.images[
            np.arange(TRAINING_ROUNDS), rng.integers(train.arms, size=TRAINING_ROUNDS)
        ]
        rewards = instance.draws < train.chances[pulled]
        yield train.features[pulled], rewards.astype(np.float64)


def of_logs(train: ClassificationProblem, rng: Rng) -> ClassPrior:
    """Reading (b): the fit over training tasks in which random arms were pulled and logged."""
    joint = (np.column_stack(log) for log in training_logs(train, rng))
    moments = [z.T @ z for z in joint]
    table = LinearTable(
        tuple(range(TRAINING_TASKS)),
        tuple(f"x{i}" for i in range(train.features.shape[1])),
        np.full(TRAINING_TASKS, float(TRAINING_ROUNDS)),
        np.array(moments),
    )
    fitted = estimate(table, model="linear")
    return ClassPrior(fitted.mu, fitted.task_cov)


def of_clicks(train: LogisticClassification, rng: Rng) -> ClassPrior:
    """Reading (c): the logistic model given the same logs, with the likeliest of some spreads."""
    dim = train.features.shape[1]
    meta: Any = LatentLinearMeta(np.zeros(dim), train.meta_scale**2, task_scale=SPREADS)
    first, absorbed = meta, list[Any]()
    renew = loops_of(train, meta.task_prior()).renew
    for rows, rewards in training_logs(train, rng):
        stats = meta.empty().with_table(rows, np.stack([np.ones(rewards.size), rewards]))
        meta = absorb_and_renew(first, meta, stats, absorbed, renew)
    best = int(meta.log_posterior.argmax())
    return ClassPrior(meta.mu_moments()[0][best], SPREADS[best] ** 2 * np.eye(dim))


def of_play(train: ClassificationProblem, rng: Rng) -> ClassPrior:
    """The belief of AdaTS about mu after it has played the training tasks, and no spread."""
    start, meta = train.start(rng), train.meta()
    first, regret = np.zeros((0, 1), dtype=np.intp), np.empty(TRAINING_ROUNDS)
    pulled, play = np.empty(TRAINING_ROUNDS, dtype=np.intp), loops_of(train, meta.task_prior()).play
    assert play is not None
    for _ in range(TRAINING_TASKS):
        instance = train.instance(start, TRAINING_ROUNDS, rng)
        task = LoopInput(meta.task_prior(), instance, first, rng, regret, pulled)
        stats = play(train, task)
        assert stats is not None
        meta = plain_absorb(meta, stats)
    return ClassPrior(meta.mean, np.zeros_like(meta.cov))
