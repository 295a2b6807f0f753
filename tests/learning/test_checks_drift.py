"""Does the log move: a test with its stated size, also where a bandit wrote the log."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from adats import analyse
from adats.learning.checks import DRIFT_LEVEL, Calibration, allocation, drift


def ranked(rng, tasks, rows, shift=0.0, arms=3):
    """Ranks of rewards at times between 0 and 1, with a trend in those of the last arm."""
    task = np.repeat(np.arange(tasks), rows)
    time = np.repeat(rng.random(tasks), rows) * 0.8 + 0.2 * rng.random(task.size)
    arm = rng.integers(arms, size=task.size)
    z = rng.standard_normal(task.size) + shift * (time - 0.5) * (arm == arms - 1)
    rank = stats.norm.cdf(z)
    return Calibration(rank, tasks, task, arm, time, rank)


@pytest.mark.statistical
@pytest.mark.parametrize("tasks", [12, 100])
def test_logs_that_do_not_move_are_warned_of_one_time_in_a_hundred(tasks):
    rng = np.random.default_rng([1, tasks])
    found = [drift(ranked(rng, tasks, 20), "abc").chance < DRIFT_LEVEL for _ in range(600)]
    assert sum(found) <= stats.binom(600, DRIFT_LEVEL).ppf(0.999)


def test_an_arm_that_moves_is_named():
    found = drift(ranked(np.random.default_rng(2), 100, 20, shift=1.0), "abc")
    assert found.chance < 1e-3
    assert found.what == "arm c"
    assert "of arm c the late ones are higher" in found.warning
    assert drift(ranked(np.random.default_rng(2), 100, 20), "abc").warning is None


def test_nothing_is_said_of_few_tasks_or_without_times():
    rng = np.random.default_rng(3)
    assert drift(ranked(rng, 9, 20), "abc") is None
    assert drift(Calibration(rng.random(100), 20), "abc") is None
    same = ranked(rng, 20, 5)
    assert drift(replace(same, time=0 * same.time), "abc") is None


def played(seed, *, moving, users=80, rounds=15):
    """The log of a bandit that goes for the best average so far, in a world whose best arm changes
    or does not."""
    rng = np.random.default_rng(seed)
    n, s = np.ones(3), np.full(3, 0.2)
    rows = []
    for user in range(users):
        late = moving and user > users / 2
        rate = rng.beta([4, 8, 12] if not late else [16, 8, 2], [36, 32, 28])
        for visit in range(rounds):
            arm = int(rng.integers(3) if rng.random() < 0.4 else (s / n).argmax())
            reward = int(rng.random() < rate[arm])
            n[arm] += 1
            s[arm] += reward
            rows.append((user, "abc"[arm], reward, 1.7e9 + 86400 * user + 60 * visit))
    return pd.DataFrame(rows, columns=["task", "arm", "reward", "time"])


def test_a_log_of_a_bandit_that_moves_and_one_that_does_not():
    moved = analyse(played(1, moving=True), model="binary", structure="independent")
    assert moved.drift.chance < DRIFT_LEVEL
    assert any("rewards move over the time of the log" in text for text in moved.warnings)
    still = analyse(played(1, moving=False), model="binary", structure="independent")
    assert still.drift.chance > DRIFT_LEVEL
    shares = still.allocation.shares
    np.testing.assert_allclose(shares.sum(axis=1), 1.0)
    assert shares[-1, 2] > shares[0, 2]  # it learned that c is best


def test_an_allocation_needs_arms_and_times():
    rng = np.random.default_rng(5)
    found = ranked(rng, 20, 10)
    shares = allocation(found, 3).shares
    np.testing.assert_allclose(shares.mean(axis=0), 1 / 3, atol=0.15)
    assert allocation(Calibration(rng.random(10), 2), 3) is None
