"""The history of what is believed of a new task: noted now and then."""

import numpy as np

from adats.models.core.types import Belief, FloatArray
from adats.service.counters import HOUR
from adats.service.snapshot import Snapshot
from adats.service.stores.interface import BeliefRow, ExperimentRow

DRAWS = 500  # to tell the chances of arms


def is_due(row: ExperimentRow, now: float) -> bool:
    """When there are a tenth more tasks, and every hour."""
    grown = row.tasks > row.believed_tasks and 10 * row.tasks >= 11 * row.believed_tasks
    return grown or now >= row.believed_at + HOUR


def belief_row(snapshot: Snapshot, row: ExperimentRow) -> BeliefRow:
    prior = snapshot.meta.task_prior()
    best = _best_chances(snapshot, prior)
    return BeliefRow(
        row.id,
        row.version,
        row.believed_at,
        row.tasks,
        prior.mean.tobytes(),
        prior.scale.tobytes(),
        None if best is None else best.tobytes(),
    )


def _best_chances(snapshot: Snapshot, prior: Belief) -> FloatArray | None:
    """Of arms to be the best in a new task, of those that can still be chosen."""
    arms = snapshot.setup.arms
    if arms.count is None or arms.come_with_decisions:
        return None
    chances, still = np.zeros(arms.count), np.array(arms.open)
    theta = prior.draws(DRAWS, np.random.default_rng(snapshot.version))
    values = theta if arms.features is None else theta @ arms.features.T
    best, counts = np.unique(values[:, still].argmax(axis=1), return_counts=True)
    chances[still[best]] = counts / DRAWS
    return chances
