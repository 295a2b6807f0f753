"""Thompson sampling in many tasks side by side: its beliefs, its batches, its regret."""

import numpy as np
import pytest

from adats.learning.effects import Prior, TaskCounts
from adats.learning.savings import batches, play


def test_batches_add_up_and_begin_one_by_one():
    sizes = batches(np.array([1.0, 7.0, 1000.0]))
    assert sizes.sum(axis=0).tolist() == [1.0, 7.0, 1000.0]
    assert sizes[:6, 2].tolist() == [1.0] * 6
    assert (sizes[:, 2] <= 1 + 0.2 * np.cumsum(sizes[:, 2])).all()


@pytest.mark.statistical
@pytest.mark.parametrize("rounds", [20, 150])
def test_regret_is_near_that_of_the_simulator(rounds):
    """Batches cost at most 5 % of the regret."""
    from adats.simulation import simulate
    from adats.simulation.problems import GaussianProblem

    problem = GaussianProblem(arms=3, task_scale=0.7, noise=1.0, mu=[0.0, 0.2, 0.4])
    result = simulate(problem, ["oracle-ts"], tasks=2, rounds=rounds, runs=1000, seed=3)
    rng = np.random.default_rng(5)
    prior = Prior(np.array([0.0, 0.2, 0.4]), np.full(3, 0.49))
    theta = rng.normal(prior.mean, 0.7, (6000, 3))
    blank, lengths = np.zeros(theta.shape), np.full(6000, float(rounds))
    like = TaskCounts(blank, blank, "gaussian", 1.0, lengths)
    pulls = play([prior], theta, blank == 0, like, rng)[0].pulls
    regret = theta.max(axis=1) * rounds - (pulls * theta).sum(axis=1)
    expected = result.mean("oracle-ts") / 2
    error = np.hypot(regret.std() / np.sqrt(regret.size), result.se("oracle-ts") / 2)
    assert abs(regret.mean() - expected) < 0.05 * expected + 3 * error


def test_a_large_level_of_all_rewards_changes_nothing():
    theta = np.random.default_rng(7).normal(0.0, 0.5, (200, 3))
    blank, pulls = np.zeros(theta.shape), []
    like = TaskCounts(blank, blank, "gaussian", 1.0, np.full(200, 50.0))
    for level in (0.0, 2.0**30):
        prior = Prior(np.full(3, level), np.full(3, 0.25), 0.1)
        (found,) = play([prior], theta + level, blank == 0, like, np.random.default_rng(8))
        pulls.append(found.pulls)
    assert np.abs(pulls[0] - pulls[1]).mean() < 0.1


@pytest.mark.parametrize("rewards", ["binary", "count", "gaussian"])
def test_arms_that_a_task_lacks_are_not_pulled_and_better_ones_are(rewards):
    rng = np.random.default_rng(6)
    theta = np.tile([0.1, 0.6, 0.9], (50, 1))
    here = np.tile([True, True, False], (50, 1))
    blank = np.zeros(theta.shape)
    like = TaskCounts(blank, blank, rewards, 0.1, np.full(50, 300.0))
    start = {"binary": 0.0, "count": -1.0, "gaussian": 0.5}[rewards]
    (found,) = play([Prior(np.full(3, start), np.ones(3))], theta, here, like, rng)
    assert (found.pulls[:, 2] == 0).all()
    assert (found.pulls.sum(axis=1) == 300).all()
    assert found.pulls[:, 1].mean() > 270
    assert (blank == 0).all()
