"""EM for tasks of several kinds: which task is of which, and the mean of every kind.

A component's model says what a task tells about its mean: a message. Messages add, and a task that
is of a kind with probability r counts r of its message there. So the step that finds the means is
`absorb`, for Gaussian and linear models exactly the maximum of the expected log density.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.special import softmax

from adats.models.core.types import FloatArray, MetaBelief

Tasks = Sequence[tuple[Any, FloatArray | None]]  # statistics and designs
STEPS = 50
CLOSE = 1e-3  # the largest change of a probability, when it is done
STARTS = 4


def learn_components(components: Sequence[MetaBelief], tasks: Tasks) -> tuple[MetaBelief, ...]:
    """The components after what the tasks say about them; the best of a few starts.

    The first start is from the components as they are. The others are from a task each, and then
    from those that are least like the tasks before.
    """
    fresh = [c.with_sums(np.zeros(c.sums().size)) for c in components]
    if not tasks:
        return tuple(fresh)
    messages = [
        np.array([component.digest(stats, design=phi).message for stats, phi in tasks])
        for component in fresh
    ]
    starts = [list(components)]
    for first in np.unique(np.linspace(0, len(tasks) - 1, STARTS).astype(int)).tolist():
        starts.append(_seeded(fresh, messages, tasks, first))
    found = [_climb(fresh, messages, tasks, start) for start in starts]
    return max(found, key=lambda pair: pair[0])[1]


def _seeded(
    fresh: Sequence[MetaBelief], messages: Sequence[FloatArray], tasks: Tasks, first: int
) -> list[MetaBelief]:
    """Components that each know one task."""
    alone = _log_densities([fresh[0].task_prior], tasks)[:, 0]
    best = np.full(len(tasks), -np.inf)
    start: list[MetaBelief] = []
    for component, of_tasks in zip(fresh, messages, strict=True):
        chosen = int((best - alone).argmin()) if start else first
        start.append(component.absorb(of_tasks[chosen]))
        best = np.maximum(best, _log_densities([start[-1].task_prior], tasks)[:, 0])
    return start


def _climb(
    fresh: Sequence[MetaBelief],
    messages: Sequence[FloatArray],
    tasks: Tasks,
    start: list[MetaBelief],
) -> tuple[float, tuple[MetaBelief, ...]]:
    """EM from one start: a lower bound on the log density of all rewards, and the components."""
    components, logs = tuple(start), np.full(len(fresh), -np.log(len(fresh)))
    chances = np.zeros((len(tasks), len(fresh)))
    for _ in range(STEPS):
        priors = [_given_mean(component) for component in components]
        joint = logs + _log_densities(priors, tasks)
        before, chances = chances, softmax(joint, axis=1)
        pairs = zip(fresh, messages, chances.T, strict=True)
        components = tuple(c.absorb(chance @ of_tasks) for c, of_tasks, chance in pairs)
        counts = chances.sum(axis=0) + 1.0
        logs = np.log(counts / counts.sum())
        if np.abs(chances - before).max() < CLOSE:
            break
    entropy = (chances * (logs - np.log(np.maximum(chances, 1e-300)))).sum()
    return float(sum(c.log_evidence() for c in components) + entropy), components


def _given_mean(component: MetaBelief) -> Any:
    """The task prior at the component's mean, for a design."""
    return lambda design=None: component.prior_given(component.mean, design=design)


def _log_densities(priors: Sequence[Any], tasks: Tasks) -> FloatArray:
    """Of the rewards of every task, under every prior."""
    found = [[prior(design=phi).condition(s).log_evidence for prior in priors] for s, phi in tasks]
    return np.array(found, dtype=np.float64)
