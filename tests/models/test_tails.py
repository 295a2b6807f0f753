"""Large mixtures: quantiles and chances, against distribution functions, quadrature and draws."""

import numpy as np
import pytest
from scipy.special import betainc, betaln, expit, gammainc, gammaincc, logit, ndtr

from adats import BetaArms, ExponentialArms, GaussianArms, MixtureArms, PoissonArms
from adats.models.core.quadrature import best_of
from adats.models.core.ties import in_order
from adats.models.default_prior import grid_prior

FAMILIES = (BetaArms, PoissonArms, ExponentialArms, GaussianArms)


def random_stack(family, rng, candidates, arms):
    """Beliefs between vague and sharp, a few with parameters below 1."""
    parts = [np.exp(rng.normal(1.0, 1.5, (candidates, arms))) for _ in family.PARAMETERS]
    if family is GaussianArms:
        parts[0] = rng.normal(0.0, 1.0, (candidates, arms))
    return family(*parts)


def known_below(family, stack, x):
    """By SciPy's distribution functions, and not by those of the beliefs."""
    first, second = stack.parameters()[:2]
    if family is BetaArms:
        return betainc(first, second, x)
    if family is PoissonArms:
        return gammainc(first, second * x)
    if family is ExponentialArms:
        return gammaincc(first, second / x)
    return ndtr((x - first) / second)


@pytest.mark.parametrize("z", [-2.5, -0.7, 0.0, 1.3, 2.6, 4.0])
@pytest.mark.parametrize("family", FAMILIES)
def test_quantiles_are_where_the_distribution_function_says(family, z):
    """A millionth of a log-odds or of a logarithm to either side, it is on either side."""
    rng = np.random.default_rng(7)
    stack, weights = random_stack(family, rng, 60, 8), rng.dirichlet(np.ones(60), 8).T
    if family is BetaArms:  # near 1 a float does not tell log-odds as exactly
        stack = BetaArms(stack.alpha, stack.beta + 2)
    found = MixtureArms(weights, stack).upper(z)

    def near(step):
        if family is BetaArms:
            return expit(logit(found) + step * np.maximum(1.0, np.abs(logit(found))))
        if family is GaussianArms:
            return found + step * np.maximum(1.0, np.abs(found))
        return found * np.exp(step)

    low, high = (
        (weights * known_below(family, stack, near(step))).sum(axis=0) for step in (-1e-6, 1e-6)
    )
    assert (low < ndtr(z)).all()
    assert (high > ndtr(z)).all()


@pytest.mark.parametrize("rewards", ["binary", "count"])
@pytest.mark.parametrize("z", [0.0, 0.4, 2.0, 5.0])
def test_arms_that_are_alike_have_the_same_index(rewards, z):
    """To the last digit: the first of them is taken, not one that rounding prefers."""
    for arms in (2, 3, 7, 10, 31):
        index = grid_prior(arms=list(range(arms)), rewards=rewards).task_prior().upper(z)
        assert (index == index[0]).all()


def test_indices_that_round_to_1_keep_their_order():
    """Of arms that may be sure successes the likelier one has the larger quantile."""
    beliefs = [BetaArms([2.0, 2.0, 2.0], [0.01, 0.005, 0.01]), BetaArms(2.0, [3.0, 3.0, 3.0])]
    index = MixtureArms([0.5, 0.5], beliefs).upper(1.0)
    assert index.argmax() == 1
    assert index.min() > 1 - 1e-15
    assert index[0] == index[2]
    assert in_order(np.array([1.0, 1.0]), np.array([40.0, 50.0])).tolist() == [1 - 2**-53, 1.0]
    assert in_order(np.array([1.0, 1.0]), np.array([40.0, 40.0])).tolist() == [1.0, 1.0]


@pytest.mark.parametrize("family", FAMILIES)
def test_chances_of_many_separate_candidates_are_those_of_adaptive_quadrature(family):
    rng = np.random.default_rng(3)
    stack, weights = random_stack(family, rng, 60, 12), rng.dirichlet(np.ones(60), 12).T
    found = MixtureArms(weights, stack).best_chances()
    np.testing.assert_allclose(found, best_of(stack.density(), weights, True), atol=1e-6)


@pytest.mark.parametrize("arms", [3, 12])
@pytest.mark.parametrize("family", FAMILIES)
def test_chances_of_many_whole_candidates_are_those_of_each(family, arms):
    """Also of every candidate by itself, with nearly all of the weight."""
    rng = np.random.default_rng(4)
    stack, weights = random_stack(family, rng, 150, arms), rng.dirichlet(np.ones(150))
    each = np.array(
        [
            best_of(
                stack.of(*(p[[j]] for p in stack.parameters())).density(), np.ones((1, 1)), False
            )
            for j in range(150)
        ]
    )
    found = MixtureArms(weights, stack).best_chances()
    np.testing.assert_allclose(found, weights @ each, atol=2e-6)
    for j in (0, 70, 140):
        lone = np.full(150, 1e-6)
        lone[j] = 1 - 149e-6
        found = MixtureArms(lone, stack).best_chances()
        np.testing.assert_allclose(found, lone @ each, atol=2e-5)


def test_pieces_are_short_enough_for_many_arms():
    """The largest of sixty draws varies less than each: lengths for ten arms were off by 2e-4."""
    rng = np.random.default_rng(201)
    stack = PoissonArms(*np.exp(rng.normal(-0.5, 0.4, (2, 150, 60))))
    for j in range(0, 150, 10):
        one = stack.of(*(p[[j]] for p in stack.parameters()))
        repeated = stack.of(*(p[[j] * 150] for p in stack.parameters()))
        found = MixtureArms(np.full(150, 1 / 150), repeated).best_chances()
        alone = best_of(one.density(), np.ones((1, 1)), False)
        np.testing.assert_allclose(found, alone, atol=2e-5)


@pytest.mark.statistical
def test_chances_of_a_thousand_candidates_are_the_frequencies_of_the_sampler():
    rng = np.random.default_rng(5)
    mean, strength = rng.uniform(0.02, 0.6, (1000, 10)), np.exp(rng.uniform(0, 5, (1000, 1)))
    belief = MixtureArms(np.full(1000, 1e-3), BetaArms(mean * strength, (1 - mean) * strength))
    found, draws = belief.best_chances(), 40_000
    weights = rng.choice(1000, draws)
    values = belief.components.of(*(p[weights] for p in belief.components.parameters())).sample(rng)
    counts = np.bincount(values.argmax(axis=1), minlength=10)
    z = (counts - draws * found) / np.sqrt(draws * found * (1 - found))
    assert np.abs(z).max() < 4.5


# draws that round to 0 or 1


@pytest.mark.statistical
@pytest.mark.parametrize("rewards", ["binary", "count"])
def test_arms_of_which_nothing_is_known_have_equal_chances(rewards):
    """Three in a hundred draws of the grid round to 1; the first arm has no advantage of it."""
    belief = grid_prior(arms=list(range(10)), rewards=rewards).task_prior()
    np.testing.assert_allclose(belief.best_chances(), 0.1, atol=1e-9)
    chosen = belief.draws(30_000, np.random.default_rng(8)).argmax(axis=1)
    counts = np.bincount(chosen, minlength=10)
    assert np.abs(counts - 3_000).max() / np.sqrt(2_700) < 4.0
    assert abs(chosen.mean() - 4.5) / np.sqrt(8.25 / 30_000) < 4.0  # 6.5 if the first one wins


def test_chances_beyond_rounding_are_those_of_a_closed_form():
    """P(θ_2 > θ_1) = Σ_i B(a_1 + i, b_1 + b_2) / ((b_2 + i) B(1 + i, b_2) B(a_1, b_1)), i < a_2."""
    a, b, i = (2.0, 3.0), (0.02, 0.01), np.arange(3)
    logs = (
        betaln(a[0] + i, b[0] + b[1]) - np.log(b[1] + i) - betaln(1 + i, b[1]) - betaln(a[0], b[0])
    )
    found = BetaArms(a, b).best_chances()
    np.testing.assert_allclose(found[1], np.exp(logs).sum(), rtol=1e-7)
    values = BetaArms(a, b).draws(40_000, np.random.default_rng(2))
    share = (values.argmax(axis=1) == 1).mean()
    assert abs(share - found[1]) < 4.5 * np.sqrt(found[1] * found[0] / 40_000)


def test_only_tied_draws_change():
    """The stream goes on as it was where the largest draw is one alone."""
    belief = BetaArms([2.0, 2.0, 2.0], [0.03, 0.03, 0.03])
    tied = 0
    for seed in range(60):
        rngs = [np.random.default_rng(seed) for _ in range(2)]
        plain, drawn = rngs[0].beta(belief.alpha, belief.beta), belief.sample(rngs[1])
        np.testing.assert_allclose(drawn, plain, atol=4e-16)
        if (plain == 1.0).sum() > 1:
            tied += 1
            assert (drawn == 1.0).sum() == 1
        else:
            assert (drawn == plain).all()
            assert rngs[0].bit_generator.state == rngs[1].bit_generator.state
    assert tied > 10


def test_draws_that_are_all_0_differ_too():
    """The arm with more of a chance to be above 0 is the best of them more often."""
    belief = PoissonArms([1e-5, 3e-5], [1.0, 1.0])
    values = belief.draws(20_000, np.random.default_rng(1))
    zero = (values < 1e-300).all(axis=1)
    assert zero.mean() > 0.9
    share = (values[zero].argmax(axis=1) == 1).mean()  # the rates are the shapes
    assert abs(share - 0.75) < 4.5 * np.sqrt(0.75 * 0.25 / zero.sum())
