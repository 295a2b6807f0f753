"""Thompson sampling in many tasks side by side: its beliefs, its batches, its regret."""

import numpy as np
import pytest
from scipy.special import expit

from adats.learning.effects import Prior, TaskCounts, Working
from adats.learning.rehearsal import batches, believed, play, settled


def test_beliefs_are_those_of_the_joint_normal_density():
    rng = np.random.default_rng(1)
    n, phi = np.array([[3.0, 0.0, 5.0]]), rng.uniform(0.5, 2.0, (1, 3))
    y = np.where(n > 0, rng.standard_normal((1, 3)), 0.0)
    prior = Prior(np.array([0.1, 0.2, 0.3]), np.array([0.5, 0.6, 0.0]), 0.7)
    belief = believed(prior, Working(n, y, phi))
    cov = np.diag(prior.spread) + 0.7
    seen = [0, 2]
    noisy = cov[np.ix_(seen, seen)] + np.diag(phi[0, seen] / n[0, seen])
    gain = np.linalg.solve(noisy, cov[seen]).T
    assert belief.mean[0] == pytest.approx(prior.mean + gain @ (y[0, seen] - prior.mean[seen]))
    left = np.diagonal(cov - gain @ cov[seen])
    assert (belief.var + belief.slope**2 * belief.level_var)[0] == pytest.approx(left)
    draws = np.array([belief.draw(rng)[0] for _ in range(4000)])
    assert draws.mean(axis=0) == pytest.approx(belief.mean[0], abs=4 * np.sqrt(left.max() / 4000))


@pytest.mark.parametrize(("n", "s"), [(20.0, 0.0), (20.0, 3.0), (400.0, 8.0), (10.0, 9.0)])
def test_log_odds_are_near_quadrature(n, s):
    """The mode of a skewed posterior: within a fifth of its standard deviation."""
    prior = Prior(np.array([-2.5]), np.array([0.5]))
    belief = settled(prior, TaskCounts(np.array([[n]]), np.array([[s]]), "binary", 1.0, np.ones(1)))
    x = np.linspace(-9, 5, 4001)
    log = s * np.log(expit(x)) + (n - s) * np.log(expit(-x)) - (x + 2.5) ** 2 / 1.0
    w = np.exp(log - log.max())
    w /= w.sum()
    mean = float(w @ x)
    sd = float(np.sqrt(w @ (x - mean) ** 2))
    assert abs(belief.mean[0, 0] - mean) < 0.2 * sd
    assert np.sqrt(belief.var[0, 0]) == pytest.approx(sd, rel=0.1)


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
