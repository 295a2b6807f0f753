"""Quantiles of arms, and what pending pulls do to a belief."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy import stats as reference

from adats import (
    ArmStats,
    BeliefMixture,
    BetaArms,
    ExponentialArms,
    GaussianArms,
    LinearBelief,
    LinearMeta,
    LinearStats,
    MixtureArms,
    PoissonArms,
)

Z = np.array([-1.5, 0.3, 2.5])
ARMS = [
    (GaussianArms([0.0, 1.0, -2.0], [1.0, 0.5, 3.0], 1.0), reference.norm([0, 1, -2], [1, 0.5, 3])),
    (BetaArms([1.0, 3.0, 0.5], [2.0, 1.0, 7.0]), reference.beta([1, 3, 0.5], [2, 1, 7])),
    (
        PoissonArms([1.0, 6.0, 0.4], [2.0, 1.0, 3.0]),
        reference.gamma([1, 6, 0.4], scale=[0.5, 1, 1 / 3]),
    ),
    (
        ExponentialArms([3.0, 6.0, 1.5], [2.0, 1.0, 3.0]),
        reference.invgamma([3, 6, 1.5], scale=[2, 1, 3]),
    ),
]


@pytest.mark.parametrize(("belief", "known"), ARMS)
def test_quantiles_are_those_of_scipy(belief, known):
    level = reference.norm.cdf(Z)
    assert_allclose(belief.upper(Z), known.ppf(level), rtol=1e-9)
    assert_allclose(belief.upper(0.7), known.ppf(reference.norm.cdf(0.7)), rtol=1e-9)
    assert_allclose(belief.below(belief.upper(Z)), level, rtol=1e-9)


def test_a_known_arm_has_one_quantile():
    belief = GaussianArms([1.0], 0.0, 1.0)
    assert belief.upper(3.0) == belief.upper(-3.0) == 1.0
    assert belief.below(np.array([0.9])) == 0
    assert belief.below(np.array([1.1])) == 1


def mixtures():
    parts = [BetaArms([1.0, 8.0], [9.0, 2.0]), BetaArms([5.0, 2.0], [5.0, 8.0])]
    yield MixtureArms([0.3, 0.7], parts)
    yield MixtureArms([[0.2, 0.9], [0.8, 0.1]], parts)
    yield BeliefMixture(
        [0.3, 0.7], [GaussianArms([0.0, 1.0], 1.0, 1.0), GaussianArms(0.5, [0.1, 2.0], 1.0)]
    )


@pytest.mark.parametrize("belief", list(mixtures()))
@pytest.mark.parametrize("z", [-2.0, 0.0, 1.0, 3.5])
def test_quantiles_of_mixtures(belief, z):
    assert_allclose(belief.below(belief.upper(z)), reference.norm.cdf(z), rtol=1e-9)


def test_the_mixture_of_equal_parts_is_the_part():
    part = BetaArms([1.0, 8.0], [9.0, 2.0])
    assert_allclose(MixtureArms([0.3, 0.7], [part, part]).upper(1.2), part.upper(1.2), rtol=1e-12)


@given(st.lists(st.floats(0, 50), min_size=3, max_size=3))
@pytest.mark.parametrize("belief", [arms for arms, _ in ARMS])
def test_pending_pulls_leave_the_mean_and_shrink_the_doubt(belief, pending):
    tight = belief.tightened(np.array(pending))
    assert_allclose(tight.mean, belief.mean, rtol=1e-12)
    finite = np.isfinite(belief.scale)
    assert (tight.scale[finite] <= belief.scale[finite] * (1 + 1e-12)).all()
    assert_allclose(belief.tightened(np.zeros(3)).scale, belief.scale)


def test_an_endless_mean_takes_no_pending_pulls():
    belief = ExponentialArms([0.5, 3.0], [1.0, 1.0])
    tight = belief.tightened(np.array([2.0, 2.0]))
    assert tight.mean[0] == np.inf
    assert tight.shape.tolist() == [0.5, 5.0]


def test_pending_gaussian_pulls_are_pulls():
    belief = GaussianArms([0.5, 1.0], [1.0, 2.0], [1.0, 3.0])
    stats = ArmStats.zeros(2).add([0, 0, 1], [-3.0, 8.0, 2.0])
    assert_allclose(
        belief.tightened(np.array([2.0, 1.0])).scale, belief.condition(stats).belief.scale
    )


def test_pending_pulls_in_mixtures_move_no_weight():
    for belief in mixtures():
        tight = belief.tightened(np.array([4.0, 0.0]))
        assert_allclose(tight.weights, belief.weights)
        assert_allclose(tight.mean, belief.mean)
        assert tight.scale[0] < belief.scale[0]
        assert_allclose(tight.scale[1], belief.scale[1])


def linear_beliefs():
    rng = np.random.default_rng(0)
    root = rng.standard_normal((3, 2))
    yield LinearBelief([1.0, 2.0, 0.0], root @ root.T, 0.5)
    meta = LinearMeta(np.ones(3), 0.5, task_cov=0.2, noise=0.5)
    yield meta.posterior(meta.digest(LinearStats.zeros(3).add([1.0, 0.0, 2.0], 1.0)))


@pytest.mark.parametrize("belief", list(linear_beliefs()))
def test_linear_arms_and_their_pending_pulls(belief):
    rng = np.random.default_rng(1)
    rows = rng.standard_normal((4, 3))
    arms = belief.at_rows(rows)
    assert_allclose(arms.mean, rows @ belief.mean)
    assert_allclose(arms.scale**2, np.diagonal(rows @ belief.cov @ rows.T))
    assert_allclose(arms.noise, 0.5)
    pulled = rows[[0, 2, 2]]
    tight = belief.tightened(pulled.T @ pulled)
    told = belief.condition(LinearStats.zeros(3).add(pulled, [5.0, -1.0, 0.3])).belief
    assert_allclose(tight.cov, told.cov, atol=1e-12)
    assert_allclose(tight.mean, belief.mean)


def test_arms_of_a_mixture_of_linear_beliefs():
    rows = np.array([[1.0, 0.0, 1.0], [0.0, 2.0, 0.0]])
    parts = list(linear_beliefs())
    both = BeliefMixture([0.5, 0.5], parts).at_rows(rows)
    for one, part in zip(both.beliefs, parts, strict=True):
        assert_allclose(one.upper(1.0), part.at_rows(rows).upper(1.0))
    assert_allclose(both.below(both.upper(1.3)), reference.norm.cdf(1.3))
