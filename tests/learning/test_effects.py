"""Effects of arms, tasks and both: against the joint normal density written out."""

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit

from adats.learning.effects import (
    TAIL_PRIOR,
    Prior,
    Spreads,
    TaskCounts,
    Working,
    arms_given,
    believed,
    counted,
    learn,
    linearised,
    pooled,
    settled,
    smoothed,
    tails,
)


def some_work(rng, tasks=5, arms=3):
    pulls = rng.integers(0, 4, (tasks, arms)) * 1.0
    means = np.where(pulls > 0, rng.normal(1.0, 1.0, pulls.shape), 0.0)
    return Working(pulls, means, rng.uniform(0.5, 2.0, pulls.shape))


def joint(work, own, level, names, wide):
    """Covariance of all working means and of the arms' effects."""
    t, k = np.nonzero(work.pulls)
    of_arms = names**2 * np.eye(work.pulls.shape[1]) + wide**2
    cov = of_arms[np.ix_(k, k)] + level**2 * (t[:, None] == t)
    cov += np.diag(own**2 + (work.phi / np.maximum(work.pulls, 1))[t, k])
    return work.means[t, k], cov, of_arms[:, k], of_arms


def wide_of(work):
    """The prior width that `learn` takes, and its centre."""
    n = work.pulls / work.phi
    centre = (n * work.means).sum() / n.sum()
    cells = (n > 0).sum()
    seen = (n * (work.means - centre) ** 2).sum()
    reach = (max(seen - cells, 0.0) + 3 * np.sqrt(2 * cells)) / n.sum()
    return 10 * np.sqrt(reach), centre


def test_the_prior_of_a_new_task_is_that_of_the_joint_density():
    work = some_work(np.random.default_rng(1))
    wide, centre = wide_of(work)
    y, cov, cross, of_arms = joint(work, 0.6, 0.8, 0.5, wide)
    prior = arms_given(work, Spreads(0.6**2, 0.8**2, 0.5**2))
    gain = np.linalg.solve(cov, cross.T).T
    assert prior.mean == pytest.approx(centre + gain @ (y - centre), abs=1e-6)
    left = of_arms - gain @ cross.T
    assert prior.spread == pytest.approx(0.6**2 + np.diagonal(left), rel=1e-5)
    assert prior.level == pytest.approx(0.8**2)


def test_weights_of_spreads_are_evidences():
    work = some_work(np.random.default_rng(2), tasks=8)
    found = learn(work)
    wide, centre = wide_of(work)
    middle = [np.unique(found.scales[:, i])[1:-1] for i in range(3)]  # cells of one width
    inside = np.all([np.isin(found.scales[:, i], middle[i]) for i in range(3)], axis=0)
    nodes = np.flatnonzero(inside)[::17][:6]
    exact = []
    for own, level, names in found.scales[nodes]:
        y, cov, *_ = joint(work, own, level, names, wide)
        exact.append(stats.multivariate_normal(np.full(y.size, centre), cov).logpdf(y))
    logs = np.log(found.weight[nodes])
    assert logs - logs[0] == pytest.approx(np.array(exact) - exact[0], abs=1e-6)
    assert found.weight.sum() == pytest.approx(1.0)


def test_without_names_and_level_arms_are_alike():
    found = learn(some_work(np.random.default_rng(3)), names=False, level=False)
    assert np.ptp(found.prior.mean) < 1e-9
    assert found.prior.level == 0.0


@pytest.mark.statistical
def test_spreads_are_found():
    rng = np.random.default_rng(4)
    tasks, arms, n = 3000, 4, 10.0
    eta = np.array([0.0, 0.2, 0.4, 0.6]) + 0.5 * rng.standard_normal((tasks, 1))
    eta = eta + 0.3 * rng.standard_normal((tasks, arms))
    pulls = np.full((tasks, arms), n)
    sums = n * eta + np.sqrt(n) * rng.standard_normal(eta.shape)
    squares = sums**2 / n + rng.chisquare(n - 1, eta.shape)
    counts = counted(pulls, sums, "gaussian", squares)
    assert counts.noise == pytest.approx(1.0, abs=4 * np.sqrt(2 / (9 * tasks * arms)))
    found = learn(linearised(counts, smoothed(counts)))
    own, level, _ = np.sqrt(found.spreads)
    assert own == pytest.approx(0.3, abs=4 * 0.19 / (2 * 0.3) * np.sqrt(2 / (3 * tasks)))
    assert level == pytest.approx(0.5, abs=4 * 0.3 / (2 * 0.5) * np.sqrt(2 / tasks))
    a, sigma, _ = found.draws(rng, 400)
    assert a.mean(axis=0) == pytest.approx(found.prior.mean, abs=0.005)
    assert sigma.mean() == pytest.approx(0.3, abs=0.02)


@pytest.mark.parametrize("level", [0.0, 0.4])
def test_tails_of_own_effects_are_seen(level):
    rng = np.random.default_rng(8)
    n = np.full((300, 4), 40.0)
    heavy = []
    for z in (rng.standard_normal(n.shape), rng.standard_t(3, n.shape) / np.sqrt(3)):
        eta = np.array([0.0, 0.1, 0.2, 0.3]) + level * rng.standard_normal((300, 1)) + 0.5 * z
        work = Working(n, eta + rng.standard_normal(n.shape) / np.sqrt(n), np.ones(n.shape))
        weight, scale = tails(work, learn(work))
        assert weight.sum() == pytest.approx(1.0)
        assert weight @ scale == pytest.approx(1.0, abs=0.15)
        heavy.append(weight[:2].sum())
    assert heavy[0] < 0.01
    assert heavy[1] > 0.9


@pytest.mark.parametrize("far", [0.6, 1e4])
def test_a_task_that_is_far_off_has_heavy_tails_and_no_warning(far):
    n = np.full((60, 2), 1e6)
    n[::7, 0] = 0.0
    means = np.where(n > 0, np.random.default_rng(10).normal(0.0, 0.1, n.shape), 0.0)
    means[1] = far
    work = Working(n, means, np.ones(n.shape))
    effects = learn(Working(n[2:], means[2:], work.phi[2:]))
    weight, scale = tails(work, effects)
    assert weight[-1] < 1e-6  # not normal
    assert np.isfinite(scale).all()


def test_tails_that_nothing_tells_keep_their_prior():
    n = np.full((20, 2), 1.0)
    work = Working(n, np.random.default_rng(9).standard_normal(n.shape), np.full(n.shape, 100.0))
    assert tails(work, learn(work)).weight == pytest.approx(TAIL_PRIOR)


def test_linearised_counts_are_exact_where_they_are_linearised():
    eta = np.array([[-2.0, 0.5]])
    p = expit(eta)
    work = linearised(TaskCounts(np.array([[10.0, 0.0]]), 10 * p, "binary", 1.0, np.ones(1)), eta)
    assert work.means[0, 0] == pytest.approx(-2.0)
    assert work.means[0, 1] == 0.0
    assert work.phi == pytest.approx(1 / (p * (1 - p)))


def test_pooled_knows_the_arms_of_all_tasks_together():
    pulls = np.array([[500.0, 300.0], [700.0, 900.0]])
    prior = pooled(counted(pulls, pulls * [[0.1, 0.3], [0.05, 0.3]], "binary"))
    assert expit(prior.mean) == pytest.approx([(50 + 35) / 1200, 0.3], rel=0.02)
    assert prior.spread[1] == pytest.approx(1 / (0.3 * 0.7 * 1201), rel=0.02)


def test_numbers_need_squares_and_arms_pulled_twice():
    once = np.ones((3, 2))
    with pytest.raises(ValueError, match="squares"):
        counted(once, once, "gaussian")
    with pytest.raises(ValueError, match="no task pulled anything twice"):
        counted(once, once, "gaussian", once)


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
