"""Thompson sampling in many tasks side by side: its beliefs, its batches, its regret."""

import math

import numpy as np
import pytest
from scipy import stats

from adats.learning.effects import Effects, Prior, TaskCounts, Working, counted
from adats.learning.savings import batches, by_length, fits, own_score, play, savings
from adats.learning.verdict import verdict


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


def logs_by_length(rng, tasks, own):
    """Tasks of 10 to 400 pulls, with names; `own` is the spread in each."""
    pulls = np.round(np.geomspace(2, 80, tasks))[:, None] * np.ones(5)
    theta = np.linspace(-0.3, 0.3, 5) + own[:, None] * rng.standard_normal(pulls.shape)
    sums = theta * pulls + np.sqrt(pulls) * rng.standard_normal(pulls.shape)
    return counted(pulls, sums, "gaussian", sums**2 / pulls + rng.chisquare(pulls - 1))


def test_the_score_of_a_spread_is_the_slope_of_the_log_density():
    rng = np.random.default_rng(31)
    n = rng.integers(0, 9, (6, 4)) * 1.0
    work = Working(n, np.where(n > 0, rng.normal(size=n.shape), 0.0), rng.uniform(1, 2, n.shape))
    effects = Effects(
        np.ones(1),
        np.array([[0.5, 0.7, 0.0]]),
        np.zeros(3),
        np.full((1, 4), 0.2),
        np.zeros((1, 4, 4)),
    )
    score, known = own_score(work, effects)
    for i, pulled in enumerate(n > 0):
        gap, phi = work.means[i, pulled] - 0.2, (work.phi / np.maximum(n, 1))[i, pulled]
        size = int(pulled.sum())

        def log_density(own, gap=gap, phi=phi, size=size):
            cov = np.diag(own + phi) + 0.49
            return stats.multivariate_normal(np.zeros(size), cov).logpdf(gap)

        slope = (log_density(0.25 + 1e-5) - log_density(0.25 - 1e-5)) / 2e-5
        assert score[i] == pytest.approx(slope, rel=1e-4, abs=1e-6)
        inverse = np.linalg.inv(np.diag(0.25 + phi) + 0.49)
        assert known[i] == pytest.approx(0.5 * np.trace(inverse @ inverse))


def test_spreads_by_length_are_seen_and_are_one_elsewhere():
    rng = np.random.default_rng(32)
    even = logs_by_length(rng, 400, np.full(400, 0.4))
    np.testing.assert_array_equal(by_length(even, fits(even)), np.ones(400))
    own = np.where(np.arange(400) < 200, 0.8, 0.1)
    counts = logs_by_length(rng, 400, own)
    found = fits(counts)
    spread = by_length(counts, found) * math.sqrt(found.effects.spreads.own)
    np.testing.assert_allclose(spread[:200], 0.8, rtol=0.15)
    assert spread[210:].max() < 0.2  # lengths are whole numbers: groups end a little later
    none = np.where(np.arange(200)[:, None] < 100, 3.0, 300.0) * np.ones(4)
    clicks = counted(none, np.where(none > 3, 4.0, 0.0), "binary")  # groups without any scatter
    assert np.isfinite(by_length(clicks, fits(clicks))).all()
    few = counts.take(np.arange(0, 400, 12))  # too few for two groups
    np.testing.assert_array_equal(by_length(few, fits(few)), np.ones(34))


def test_savings_where_long_tasks_are_alike():
    """By the spread of all tasks together one agent for all would be much worse than sharing."""
    rng = np.random.default_rng(33)
    counts = logs_by_length(rng, 400, np.where(np.arange(400) < 200, 0.8, 0.03))
    assert savings(counts, fits(counts), rng)[1].high < 0
    assert verdict(counts, rng=rng).answer == "one for all"
