"""Readings of "the training set is used to estimate μ_0 and Σ_0", for one class of pictures."""

from typing import NamedTuple

import numpy as np

from adats.learning.fitting import LinearTable, estimate
from adats.models.core.types import FloatArray, Rng
from adats.simulation.kernels.registry import plain_absorb
from adats.simulation.play import compiled_task
from adats.simulation.problems.classification import ClassificationProblem

TRAINING_TASKS, TRAINING_ROUNDS = 100, 200  # with no more rounds than features no noise is seen


class ClassPrior(NamedTuple):
    """What an agent is told: the mean of theta over tasks, and its covariance."""

    mu: FloatArray
    cov: FloatArray


def of_features(features: FloatArray) -> ClassPrior:
    """Reading (a): mean and covariance of the features of the class."""
    return ClassPrior(features.mean(axis=0), np.cov(features, rowvar=False))


def of_logs(train: ClassificationProblem, rng: Rng) -> ClassPrior:
    """Reading (b): the fit over training tasks in which random arms were pulled and logged."""
    start, moments = train.start(rng), []
    for _ in range(TRAINING_TASKS):
        instance = train.instance(start, TRAINING_ROUNDS, rng)
        pulled = instance.images[
            np.arange(TRAINING_ROUNDS), rng.integers(train.arms, size=TRAINING_ROUNDS)
        ]
        rewards = instance.draws < train.chances[pulled]
        z = np.column_stack([train.features[pulled], rewards])
        moments.append(z.T @ z)
    table = LinearTable(
        tuple(range(TRAINING_TASKS)),
        tuple(f"x{i}" for i in range(train.features.shape[1])),
        np.full(TRAINING_TASKS, float(TRAINING_ROUNDS)),
        np.array(moments),
    )
    fitted = estimate(table, model="linear")
    return ClassPrior(fitted.mu, fitted.task_cov)


def of_play(train: ClassificationProblem, rng: Rng) -> ClassPrior:
    """The belief of AdaTS about mu after it has played the training tasks, and no spread."""
    start, meta = train.start(rng), train.meta()
    first, regret = np.zeros((0, 1), dtype=np.intp), np.empty(TRAINING_ROUNDS)
    for _ in range(TRAINING_TASKS):
        instance = train.instance(start, TRAINING_ROUNDS, rng)
        stats = compiled_task(train, meta.task_prior(), instance, first, rng, regret)
        meta = plain_absorb(meta, stats)
    return ClassPrior(meta.mean, np.zeros_like(meta.cov))
