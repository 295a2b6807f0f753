"""Sites against sums over fine grids."""

from itertools import product

import numpy as np
import pytest

import latent_truth as truth
from adats.models.latent import sites as ep
from adats.models.latent.family import FAMILIES
from adats.models.latent.level import LevelPrior

# The worst error of a site by the variance of its cavity: of the mean in standard deviations, of
# the standard deviation as a part of it, and of the log evidence. Half of it was found.
LIMITS = {1e-4: 1e-7, 0.01: 1e-7, 0.1: 1e-7, 1.0: 2e-6, 4.0: 1e-3, 9.0: 0.01, 25.0: 0.05}
TOLD_LIMITS = {0.01: 1e-6, 0.1: 5e-6, 1.0: 5e-4, 4.0: 5e-3, 9.0: 0.02, 25.0: 0.1}
PULLS = (1.0, 3.0, 10.0, 100.0, 1e3, 1e4, 1e6)
RATES = (1e-6, 1e-4, 0.005, 0.02, 0.1, 0.5, 0.9, 0.99)


def worst_errors(family, n, s, m, v, sites):
    """Of the mean, the standard deviation and the log evidence, over many sites."""
    w, b, log_s = sites
    tight, shift = 1 / v + w, m / v + b
    log_evidence = log_s - 0.5 * np.log1p(w * v) + 0.5 * (shift**2 / tight - m**2 / v)
    known = truth.one_dim(family.name, n, s, m, v)
    gaps = np.abs(shift / tight - known.mean) / known.sd
    scales = np.abs(tight**-0.5 / known.sd - 1)
    size = 1 + 1e-6 * np.abs(known.log_evidence)  # that of a million pulls is large
    return gaps.max(), scales.max(), (np.abs(log_evidence - known.log_evidence) / size).max()


def alone(m, v):
    """Arms that share nothing, so that the prior is the cavity."""
    return LevelPrior(np.atleast_2d(m), np.atleast_2d(v), np.zeros((1, 1)))


def settled(family, n, s, m, v):
    n, s, m, v = np.broadcast_arrays(*map(np.atleast_1d, (n, s, m, v)))
    return ep.settled(family, n, s, alone(m, v), np.zeros((3, 1, n.size)))


@pytest.mark.parametrize("variance", LIMITS)
@pytest.mark.parametrize("name", FAMILIES)
def test_a_site_has_the_moments_of_quadrature(name, variance):
    family = FAMILIES[name]
    cases = [
        (n, s, float(family.eta(rate)) + off * np.sqrt(variance))
        for n, rate, off in product(PULLS, RATES, (-2.0, 0.0, 2.0))
        for s in {0.0, float(round(n * rate)), 1.0}
    ]
    n, s, m = np.array(cases).T
    sites = settled(family, n, s, m, variance)[:, 0]
    assert (sites[0] > 0).all()
    errors = worst_errors(family, n, s, m, variance, sites)
    assert max(errors) < LIMITS[variance], errors


@pytest.mark.parametrize("variance", TOLD_LIMITS)
@pytest.mark.parametrize("name", FAMILIES)
def test_a_site_that_is_told_has_them_too(name, variance):
    """From the site before, whether rewards were added, taken out or replaced."""
    family, rng, size = FAMILIES[name], np.random.default_rng(0), 200
    m = rng.uniform(-7.0, 2.0, size)
    theta = m + np.sqrt(variance) * rng.standard_normal(size)
    few, more = 2.0 ** rng.integers(0, 8, size), 2.0 ** rng.integers(0, 12, size)
    first, rest = (truth.draw_rewards(name, n, theta, rng) for n in (few, more))
    less, full, none = (few, first), (few + more, first + rest), (0 * few, 0 * few)
    for before, after in ((less, full), (full, less), (none, less)):
        sites = settled(family, *before, m, variance)
        for arm in range(size):
            n, s = after[0].item(arm), after[1].item(arm)
            ep.update_site(family, n, s, alone(m, np.full(size, variance)), sites, arm)
        errors = worst_errors(family, *after, m, variance, sites[:, 0])
        assert max(errors) < TOLD_LIMITS[variance], errors


def test_no_pulls_no_site():
    family = FAMILIES["binary"]
    sites = settled(family, 100.0, 3.0, -2.0, 1.0)
    ep.update_site(family, 0.0, 0.0, alone(-2.0, 1.0), sites, 0)
    assert not sites.any()
    assert not settled(family, 0.0, 0.0, -2.0, 1.0).any()


@pytest.mark.parametrize(("n", "s"), [(-1.0, 0.0), (1.0, -1.0), (1.0, 2.0), (0.0, 1.0)])
def test_more_taken_out_than_was_put_in_is_an_error(n, s):
    family, sites = FAMILIES["binary"], np.zeros((3, 1, 1))
    with pytest.raises(ValueError, match="put in"):
        ep.update_site(family, n, s, alone(0.0, 1.0), sites, 0)
    assert not sites.any()
    with pytest.raises(ValueError, match="put in"):
        settled(family, n, s, 0.0, 1.0)


def test_round_off_of_fractional_counts_is_no_error():
    n, s = 0.1 + 0.2 - 0.3, 0.0 - 1e-17
    site = settled(FAMILIES["binary"], n, s, 0.0, 1.0)
    assert np.abs(site).max() < 1e-9
    ep.update_site(FAMILIES["binary"], -1e-17, -1e-17, alone(0.0, 1.0), site, 0)
    assert not site.any()


def in_turn(family, n, s, prior, sites, sweeps=40):
    """Expectation propagation with one arm at a time, which does not swing."""
    sites = sites.copy()
    for _ in range(sweeps):
        for arm in np.flatnonzero(n):
            m, v = prior.cavity(sites, arm)
            site = settled(family, n[arm], s[arm], m[0], v[0])
            sites[:, :, arm] = site[..., 0]
    return sites


def marginals(prior, sites):
    m, v = prior.cavities(sites)
    variance = 1 / (1 / v + sites[0])
    return variance * (m / v + sites[1]), np.sqrt(variance)


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize(
    ("arms", "own", "shared", "most"), [(2, 1.0, 1.0, 10), (20, 0.1, 4.0, 10), (50, 1e-3, 9.0, 1)]
)
def test_sites_of_arms_that_share_a_level_settle(name, arms, own, shared, most):
    """At the fixed point, to 0.05 sd, even where a sweep over all arms at once would swing."""
    family, rng = FAMILIES[name], np.random.default_rng(3)
    prior = LevelPrior(np.full((1, arms), -2.0), np.full((1, arms), own), np.array([[shared]]))
    theta = -2 + np.sqrt(own) * rng.standard_normal(arms) + np.sqrt(shared)
    n = rng.integers(0, most + 1, arms).astype(float)
    s = truth.draw_rewards(name, n, theta, rng)
    found = ep.settled(family, n, s, prior, np.zeros((3, 1, arms)))
    again = ep.settled(family, n, s, prior, found)
    assert not found[:, :, n == 0].any()
    mean, sd = marginals(prior, in_turn(family, n, s, prior, found, sweeps=10 if arms > 2 else 40))
    for sites in (found, again):
        gap, scale = marginals(prior, sites)
        assert np.abs((gap - mean) / sd).max() < 0.05
        assert np.abs(scale / sd - 1).max() < 0.03


def test_the_mode_is_found_from_anywhere():
    rng = np.random.default_rng(5)
    for family in FAMILIES.values():
        n = 10.0 ** rng.uniform(-3, 9, 2000)
        s = n * rng.random(2000) * (rng.random(2000) < 0.7)
        m, v = rng.uniform(-30, 30, 2000), 10.0 ** rng.uniform(-6, 2, 2000)
        x = ep.mode(family, n, s, m, v)
        slope = (m - x) / v + s - n * family.mean(x)
        precision = 1 / v + n * family.variance(x)
        assert np.abs(slope / np.sqrt(precision)).max() < ep.CLOSE
