"""Formulas of a level and of a full covariance, against dense Gaussian algebra."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adats.models.core import linalg
from adats.models.latent.family import FAMILIES
from adats.models.latent.full import FullPrior, FullSpread
from adats.models.latent.level import LevelPrior, LevelSpread

seeds = st.integers(0, 2**32 - 1)


def close(left, right, tolerance=1e-9):
    np.testing.assert_allclose(left, right, rtol=tolerance, atol=tolerance)


def some(seed, *, certain=False):
    """Spreads of a level, sites, and a belief over mu; a third of the arms has no pulls."""
    rng = np.random.default_rng(seed)
    candidates, arms = rng.integers(1, 4), rng.integers(1, 6)
    own, shared = np.exp(rng.uniform(-6, 2, (2, candidates, 1)))
    if certain:
        own, shared = own * (rng.random(own.shape) < 0.5), shared * (rng.random(own.shape) < 0.5)
    w = np.exp(rng.uniform(-5, 5, (candidates, arms)))
    sites = np.stack([w, 3 * w * rng.standard_normal(w.shape), rng.standard_normal(w.shape)])
    sites *= rng.random(arms) < 0.7
    mean = rng.standard_normal((candidates, arms))
    factor = rng.standard_normal((candidates, arms, arms))
    return rng, LevelSpread(own, shared), sites, mean, factor


def dense_covs(level, arms):
    return [o * np.eye(arms) + s for o, s in zip(level.own[:, 0], level.shared[:, 0], strict=True)]


def log_integral(mu, cov, w, b, log_s):
    """log ∫ N(theta; mu, cov) exp(log_s + bᵀtheta - ½ thetaᵀW theta) dtheta."""
    known = np.linalg.inv(cov)
    shift = known @ mu + b
    exponent = shift @ np.linalg.solve(known + np.diag(w), shift) - mu @ known @ mu
    return log_s.sum() + 0.5 * (exponent - np.linalg.slogdet(np.eye(len(w)) + cov * w)[1])


def message(spread, sites):
    size = sites.shape[-1] + 1
    found = np.full((*sites.shape[1:-1], size, size), np.nan)
    spread.message(sites, found)
    return found


@settings(max_examples=100)
@given(seeds)
def test_the_message_of_a_level_is_the_dense_integral(seed):
    rng, level, sites, _, _ = some(seed)
    terms = message(level, sites)
    for which, cov in enumerate(dense_covs(level, sites.shape[-1])):
        for _ in range(3):
            mu = 2 * rng.standard_normal(len(cov))
            x = np.append(mu, 1.0)
            expected = log_integral(mu, cov, *sites[:, which])
            close(-0.5 * x @ terms[which] @ x, expected, 1e-8)


@settings(max_examples=100)
@given(seeds)
def test_a_level_is_a_full_covariance(seed):
    """Also where scales are 0."""
    _, level, sites, mean, factor = some(seed, certain=True)
    arms = sites.shape[-1]
    full = FullSpread.of(np.array(dense_covs(level, arms)))
    close(message(level, sites), message(full, sites), 1e-7)
    theta, wide = level.given(sites, mean, factor)
    other, factors = full.given(sites, mean, factor)
    close(theta, other, 1e-7)
    close(wide @ np.swapaxes(wide, -1, -2), factors @ np.swapaxes(factors, -1, -2), 1e-7)
    close(level.covs(arms), full.covs(arms))
    for spread in (level, full):
        cov = factor @ np.swapaxes(factor, -1, -2)
        means, variances, common = spread.moments(sites, mean, cov)
        close(means, theta, 1e-7)
        close(variances, (wide**2).sum(axis=-1), 1e-7)
        whole = wide @ np.swapaxes(wide, -1, -2)
        close(spread.joint(sites, mean, cov)[1], whole, 1e-7)
        close(spread.joint(sites, mean, cov)[0], means, 1e-9)
        pairs = (whole.sum(axis=(1, 2)) - (wide**2).sum(axis=(1, 2))) / max(arms * (arms - 1), 1)
        least = variances.min(axis=-1)
        assert (common[:, 0] <= least + 1e-7).all()
        inside = (pairs > 0) & (pairs < least - level.own[:, 0])
        close(common[inside, 0], pairs[inside], 1e-7)
        if arms > 1:
            close(spread.own_variances(arms), level.own_variances(arms))


@settings(max_examples=50)
@given(seeds)
def test_messages_of_several_sets_of_sites_are_those_of_each(seed):
    _, level, sites, _, _ = some(seed)
    both = np.stack([sites, 2 * sites], axis=1)
    for spread in (level, FullSpread.of(np.array(dense_covs(level, sites.shape[-1])))):
        found = message(spread, both)
        close(found[0], message(spread, sites), 1e-12)
        close(found[1], message(spread, 2 * sites), 1e-12)


@settings(max_examples=100)
@given(seeds)
def test_theta_given_sites_is_the_dense_posterior(seed):
    _, level, sites, mean, factor = some(seed)
    theta, wide = level.given(sites, mean, factor)
    for which, cov in enumerate(dense_covs(level, sites.shape[-1])):
        w, b, _ = sites[:, which]
        inside = np.linalg.inv(np.linalg.inv(cov) + np.diag(w))
        back = inside @ np.linalg.inv(cov)
        close(theta[which], back @ mean[which] + inside @ b, 1e-7)
        spread = back @ factor[which]
        close(wide[which] @ wide[which].T, inside + spread @ spread.T, 1e-7)


@pytest.mark.statistical
@pytest.mark.parametrize("seed", range(4))
def test_draws_of_theta_have_the_dense_moments(seed):
    rng, level, sites, mean, _ = some(seed)
    which, draws = len(mean) - 1, 4000
    cov = dense_covs(level, sites.shape[-1])[which]
    w, b, _ = sites[:, which]
    inside = np.linalg.inv(np.linalg.inv(cov) + np.diag(w))
    centre = mean[which] + inside @ (b - w * mean[which])
    for spread in (level, FullSpread.of(np.array(dense_covs(level, len(w))))):
        drawn = np.array([spread.sample(which, sites, mean[which], rng) for _ in range(draws)])
        white = np.linalg.solve(np.linalg.cholesky(inside), (drawn - centre).T)
        assert np.abs(white.mean(axis=1)).max() < 4.5 / np.sqrt(draws)
        assert np.abs(white @ white.T / draws - np.eye(len(w))).max() < 4.5 * np.sqrt(2 / draws)


@settings(max_examples=100)
@given(seeds)
def test_cavities_are_dense_posteriors_without_the_own_site(seed):
    _, level, sites, mean, _ = some(seed)
    arms = sites.shape[-1]
    own = np.broadcast_to(level.own, mean.shape) * np.linspace(1, 2, arms)
    prior = LevelPrior(mean, own, level.shared)
    covs = np.stack([np.diag(o) + s for o, s in zip(own, level.shared[:, 0], strict=True)])
    full = FullPrior(mean, linalg.psd_factors(covs), None)
    found, from_full = prior.cavities(sites), full.cavities(sites)
    for which, cov in enumerate(covs):
        for arm in range(arms):
            w, b = np.delete(sites[:2, which], arm, axis=1)
            rest = np.delete(np.arange(arms), arm)
            known = np.linalg.inv(np.eye(arms - 1) + w[:, None] * cov[rest][:, rest])
            gain = cov[arm, rest] @ known
            m = mean[which, arm] + gain @ (b - w * mean[which, rest])
            v = cov[arm, arm] - gain @ (w * cov[rest, arm])
            close([part[which, arm] for part in found], [m, v], 1e-8)
            close([part[which] for part in prior.cavity(sites, arm)], [m, v], 1e-8)
            close([part[which, arm] for part in from_full], [m, v], 1e-5)  # own site divided out
            close([part[which] for part in full.cavity(sites, arm)], [m, v], 1e-5)


@settings(max_examples=50)
@given(seeds)
def test_a_prior_of_a_level_is_exact_where_mu_has_one_too(seed):
    rng, level, _, mean, _ = some(seed)
    arms = mean.shape[-1]
    each, common = rng.uniform(0.1, 2.0, 2)
    cov = np.broadcast_to(each * np.eye(arms) + common, (len(mean), arms, arms))
    prior = level.prior(mean, cov)
    spread = prior.own[:, :, None] * np.eye(arms) + prior.shared[:, :, None]
    close(spread, cov + level.covs(arms))
    odd = cov + np.diag(np.arange(arms))  # any other keeps its variances
    prior = level.prior(mean, odd)
    variances = np.einsum("cii->ci", odd + level.covs(arms))
    close(prior.own + prior.shared, variances)


@settings(max_examples=100)
@given(seeds, st.booleans())
def test_many_gaussians_are_conditioned_as_one_by_one(seed, spoiled):
    """Where round-off spoils one of them, so that M is no precision, the others stay right."""
    rng = np.random.default_rng(seed)
    count, size = rng.integers(1, 5), rng.integers(1, 6)
    mean, shift = rng.standard_normal((2, count, size))
    factor = rng.standard_normal((count, size, size)) * (rng.random((count, 1, size)) < 0.8)
    root = rng.standard_normal((count, size, size))
    gram, c = 3 * root @ np.swapaxes(root, -1, -2), rng.standard_normal(count)
    if spoiled:
        gram[0] -= 1e3 * np.eye(size)
    terms = np.zeros((count, size + 1, size + 1))
    terms[:, :-1, :-1], terms[:, -1, -1] = gram, -2 * c
    terms[:, -1, :-1] = terms[:, :-1, -1] = -shift
    whole = factor @ np.swapaxes(factor, -1, -2)
    frame = linalg.frames(mean, factor)
    found = linalg.condition_all(frame, np.ascontiguousarray(np.swapaxes(frame, -1, -2)), terms)
    conditioned_as_one_by_one(found, mean, factor, gram, shift, c, int(spoiled))
    ready = linalg.GaussianPriors.of(mean, whole)
    conditioned_as_one_by_one(ready.condition(terms), mean, factor, gram, shift, c, int(spoiled))
    wide = linalg.GaussianPriors.of(mean, whole + np.eye(size))
    assert wide.terms is not None
    assert np.isfinite(wide.condition(terms).log_integral).all()
    if not spoiled:
        factor = np.linalg.cholesky(whole + np.eye(size))
        conditioned_as_one_by_one(wide.condition(terms), mean, factor, gram, shift, c, 0)


def conditioned_as_one_by_one(found, mean, factor, gram, shift, c, start):
    halves, size = found.halves(), mean.shape[-1]
    for i in range(start, len(mean)):
        one = linalg.condition(mean[i], factor[i], gram[i], shift[i])
        close(found.means(halves)[i], one.mean, 1e-8)
        close(halves[i].T @ halves[i], one.half.T @ one.half, 1e-8)
        close(found.log_integral[i], one.log_integral() + c[i], 1e-8)
        centre = found.sample(i, np.zeros(size))
        close(centre, one.mean, 1e-8)
        moves = np.array([found.sample(i, z) - centre for z in np.eye(size)])
        close(moves.T @ moves, one.half.T @ one.half, 1e-8)


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
def test_derivatives_of_a_family(family):
    eta, step = np.linspace(-20, 5, 101), 1e-5
    slope = (family.log_partition(eta + step) - family.log_partition(eta - step)) / (2 * step)
    close(slope, family.mean(eta), 1e-6)
    bend = (family.mean(eta + step) - family.mean(eta - step)) / (2 * step)
    close(bend, family.variance(eta), 1e-6)
    close(family.eta(family.mean(eta)), eta, 1e-6)


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
def test_expected_rates_are_integrals(family):
    z = np.linspace(-12, 12, 20001)
    weights = np.exp(-0.5 * z**2) / np.exp(-0.5 * z**2).sum()
    for mean in (-14.0, -5.0, 0.0, 2.0):
        for scale in (0.0, 0.01, 0.5, 2.0, 3.0):
            rates = family.mean(mean + scale * z)
            first, sd = family.expected(np.array([mean]), np.array([scale]))
            assert first[0] == pytest.approx(weights @ rates, rel=1e-6)
            expected = np.sqrt(weights @ (rates - weights @ rates) ** 2)
            assert sd[0] == pytest.approx(expected, rel=1e-4, abs=1e-9)
