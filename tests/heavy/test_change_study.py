"""How often the detector of changes is wrong, and how soon it is right: a thousand runs, in arrays.

`tests/agents/test_change_detection.py` holds that the study does what agents do.
"""

import math

import numpy as np
import pytest

from adats.agents.change_detection import ALARM, LIMITS, PRIOR, TASKS
from change_study import World, study

RUNS = 1000


@pytest.mark.parametrize(
    "world",
    [World(5), World(10), World(5, task_scale=0.5), World(5, clicks=(2.0, 8.0))],
    ids=["five", "ten", "alike", "clicks"],
)
def test_of_a_thousand_still_runs_at_most_ten_are_alarmed(world):
    """Up to luck, three standard errors of a rate of 1 %."""
    found = study(world, RUNS, 51)
    alarmed = (found.prior.max(axis=1) >= LIMITS[PRIOR][ALARM]) | (
        found.tasks.max(axis=1) >= LIMITS[TASKS][ALARM]
    )
    assert alarmed.mean() <= 0.01 + 3 * math.sqrt(0.01 * 0.99 / RUNS)


@pytest.mark.parametrize("signs", ["random", "up", "down"])
def test_a_jump_of_one_task_scale_is_found_within_ten_tasks(signs):
    found = study(World(10, tasks=75, jump=50, signs=signs), 200, 52)
    after = found.prior[:, 50:] >= LIMITS[PRIOR][ALARM]
    delays = np.where(after.any(axis=1), after.argmax(axis=1) + 1, math.inf)
    assert np.median(delays) <= 10


def test_spreads_that_are_not_as_believed_are_no_change():
    """Tasks that differ twice as much as believed, where every run was alarmed if this were not
    looked after."""
    found = study(World(5, believed=(0.5, 1.0)), 300, 53)
    assert (found.prior.max(axis=1) >= LIMITS[PRIOR][ALARM]).mean() < 0.1
