"""The slow answers that the model is judged by agree with each other."""

import numpy as np
import pytest

import latent_truth as truth

rng = np.random.default_rng(1)
PULLS = rng.integers(1, 40, (4, 3)).astype(float)
MEAN, COV = np.full(3, -1.5), 0.5 * np.eye(3) + 0.5
OWN, SHARED = 0.09, 0.25
THETA = (
    MEAN + rng.standard_normal(3) + 0.3 * rng.standard_normal((4, 3)) + rng.normal(0, 0.5, (4, 1))
)


@pytest.mark.statistical
@pytest.mark.parametrize(("n", "z"), [(1.0, 0.0), (1.0, 0.5), (0.4, 2.0), (5.0, 3.0), (200.0, 8.0)])
def test_polya_gamma_variables_have_their_moments_and_their_transform(n, z):
    draws = 40_000
    drawn = truth.polya_gamma(np.full(draws, n), np.full(draws, z), np.random.default_rng(2))
    z = max(z, 1e-2)
    mean = n * np.tanh(z / 2) / (2 * z)
    variance = n * (np.sinh(z) - z) / (4 * z**3 * np.cosh(z / 2) ** 2)
    assert abs(drawn.mean() - mean) < 4 * np.sqrt(variance / draws)
    assert drawn.var() == pytest.approx(variance, rel=0.05)
    for t in (0.5, 2.0, 10.0):
        values = np.exp(-t * drawn)
        expected = (np.cosh(z / 2) / np.cosh(np.sqrt((z**2 / 2 + t) / 2))) ** n
        assert abs(values.mean() - expected) < 4 * values.std() / np.sqrt(draws) + 1e-6 * expected


@pytest.mark.heavy
@pytest.mark.statistical
def test_gibbs_and_importance_sampling_agree():
    wins = truth.draw_rewards("binary", PULLS, THETA, np.random.default_rng(3))
    one = truth.by_importance("binary", MEAN, COV, OWN, SHARED, PULLS, wins, draws=2048)
    two = truth.by_gibbs(MEAN, COV, OWN, SHARED, PULLS, wins, sweeps=1500)
    assert one.size > 1000
    assert two.size > 100
    assert np.abs((one.mu - two.mu) / one.mu_sd).max() < 0.1
    assert np.abs((one.theta - two.theta) / one.theta_sd).max() < 0.1
    assert np.abs(two.mu_sd / one.mu_sd - 1).max() < 0.05
    assert np.abs(two.theta_sd / one.theta_sd - 1).max() < 0.05


@pytest.mark.parametrize("family", ["binary", "count"])
def test_importance_sampling_and_grids_agree(family):
    """mu and theta of one arm; two arms with a level; two tasks, whose likelihoods multiply."""
    n, y = np.array([12.0]), np.array([2.0])
    joint = np.array([[0.8, 0.8], [0.8, 0.8 + 0.3]])
    grid = truth.two_dim([-1, -1], joint, lambda x: truth.log_density(family, n, y, x[:, 1]))
    found = truth.by_importance(family, [-1.0], [[0.8]], 0.2, 0.1, n, y)
    np.testing.assert_allclose(found.mu[0], grid.mean[0], atol=2e-3)
    np.testing.assert_allclose([found.mu_sd[0], found.theta_sd[0, 0]], grid.sd, rtol=2e-3)
    np.testing.assert_allclose(found.theta[0, 0], grid.mean[1], atol=2e-3)
    np.testing.assert_allclose(found.log_evidence, grid.log_evidence, atol=2e-3)

    n, y = np.array([9.0, 30.0]), np.array([2.0, 1.0])
    cov = 0.2 * np.eye(2) + 0.3  # of theta: mu is known all but exactly
    grid = truth.two_dim([-1, -2], cov, lambda x: truth.log_density(family, n, y, x).sum(axis=1))
    found = truth.by_importance(family, [-1, -2], 1e-8 * np.eye(2), 0.2, 0.3, n, y, draws=256)
    np.testing.assert_allclose(found.theta[0], grid.mean, atol=1e-3)
    np.testing.assert_allclose(found.theta_sd[0], grid.sd, rtol=1e-3)
    np.testing.assert_allclose(found.log_evidence, grid.log_evidence, atol=1e-3)

    n, y = np.array([[5.0], [40.0]]), np.array([[2.0], [3.0]])

    def both(mu):
        parts = [
            truth.one_dim(family, *pair, mu, 0.25).log_evidence for pair in zip(n, y, strict=True)
        ]
        return sum(parts)

    z = np.linspace(-8, 8, 801)
    logs = both(-1 + z) - 0.5 * z**2 - 0.5 * np.log(2 * np.pi)
    found = truth.by_importance(family, [-1.0], [[1.0]], 0.25, 0.0, n, y)
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    mean = weights @ (z - 1)
    np.testing.assert_allclose(found.mu[0], mean, atol=2e-3)
    np.testing.assert_allclose(found.mu_sd[0], np.sqrt(weights @ (z - 1 - mean) ** 2), rtol=2e-3)
    total = np.log(np.exp(logs - logs.max()).sum() * (z[1] - z[0])) + logs.max()
    np.testing.assert_allclose(found.log_evidence, total, atol=2e-3)
