import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.integrate import quad, quad_vec
from scipy.special import betainc, betaln, gammainc, log_ndtr, ndtr

from adats import (
    TS,
    AdaTS,
    ArmStats,
    BeliefMixture,
    BestArm,
    BestRow,
    BetaArms,
    ExponentialArms,
    GaussianArms,
    GaussianMeta,
    LinearBelief,
    LinearMeta,
    MixtureArms,
    MixtureMeta,
    PoissonArms,
    Top,
    default_prior,
)
from adats.agents.propensities import chance, floored, propensities
from adats.models.core.belief import BeliefBase
from adats.models.gaussian.chances import best_gaussian


def chances(belief, **options):
    found = propensities(belief, **options)
    assert (found.se == 0).all()
    assert found.probabilities.sum() == pytest.approx(1, abs=1e-12)
    return found.probabilities


def gaussian(mean, scale):
    return chances(GaussianArms(mean, scale, 1.0))


def worst(found, truth, least=1e-10):
    """The largest relative error where the truth is not too small."""
    big = truth > least
    return np.abs(found[big] / truth[big] - 1).max()


def gaussian_truth(mean, scale):
    """∫ f_k Π_{j≠k} F_j by adaptive quadrature in log space, every k scaled to its own peak."""
    mean, scale = np.asarray(mean, dtype=float), np.asarray(scale, dtype=float)

    def logs(x):
        z = (x - mean) / scale
        below = log_ndtr(z)
        return -0.5 * z**2 - np.log(scale * math.sqrt(2 * math.pi)) + below.sum() - below

    points = np.unique((mean + np.arange(-12, 13)[:, None] * scale).ravel())
    peak = np.max([logs(x) for x in points], axis=0)
    area, _ = quad_vec(
        lambda x: np.exp(logs(x) - peak), points[0], points[-1], points=points, epsrel=1e-12
    )
    return area * np.exp(peak)


def two(m1, s1, m2, s2):
    """The chance of the first of two Gaussians, in closed form."""
    return ndtr((m1 - m2) / math.hypot(s1, s2))


# Gaussian arms


@pytest.mark.parametrize("ratio", [1.0, 2.0, 10.0, 100.0, 1e6])
@pytest.mark.parametrize("gap", [0.0, 0.5, -1.0, 2.0, -4.0, 6.0, -6.3])
def test_two_gaussian_arms_are_known_in_closed_form(ratio, gap):
    m = gap * math.hypot(1.0, ratio)  # a gap of 6.3 is a chance of 1.5e-10
    truth = np.array([two(0.0, 1.0, m, ratio), two(m, ratio, 0.0, 1.0)])
    assert worst(gaussian([0.0, m], [1.0, ratio]), truth) < 1e-6
    assert worst(gaussian([m, 0.0], [ratio, 1.0]), truth[::-1]) < 1e-6


@pytest.mark.parametrize("seed", range(12))
def test_gaussian_arms_whose_scales_differ_a_hundredfold(seed):
    rng = np.random.default_rng(seed)
    arms = rng.choice([3, 5, 10])
    scale = np.exp(rng.uniform(0, math.log(100), arms))
    scale[:2] = 1.0, 100.0
    mean = rng.standard_normal(arms) * rng.choice([0.1, 1.0, 30.0]) * rng.choice([1.0, 0.1], arms)
    assert worst(gaussian(mean, scale), gaussian_truth(mean, scale)) < 1e-6


def test_small_chances_of_many_arms():
    mean, scale = np.linspace(0, 5, 10), np.linspace(0.6, 1.0, 10)
    truth = gaussian_truth(mean, scale)
    assert truth.min() < 1e-6
    assert worst(gaussian(mean, scale), truth) < 1e-6


@pytest.mark.parametrize("arms", [1, 2, 10, 30, 100, 1000])
def test_equal_arms_have_equal_chances(arms):
    np.testing.assert_allclose(gaussian(np.full(arms, 3.0), 0.2), 1 / arms, rtol=1e-6)


@pytest.mark.parametrize("arms", [20, 50])
def test_many_unequal_gaussian_arms(arms):
    rng = np.random.default_rng(arms)
    mean, scale = rng.standard_normal(arms), rng.uniform(0.5, 1.5, arms)
    assert worst(gaussian(mean, scale), gaussian_truth(mean, scale)) < 1e-6


def test_an_arm_far_below_is_never_chosen():
    found = gaussian([0.0, 20.0, 0.0], [1.0, 1.0, 0.5])
    assert found[1] == 1.0
    assert found[0] == found[2] == 0.0


numbers = st.floats(-3, 3)
scales = st.floats(0.01, 1.0)


@settings(max_examples=60)
@given(
    arrays(float, 4, elements=numbers),
    arrays(float, 4, elements=scales),
    st.permutations(range(4)),
    st.floats(-1e3, 1e3),
    st.floats(1e-3, 1e3),
)
def test_order_shift_and_scale_do_not_matter(mean, scale, order, shift, factor):
    found = gaussian(mean, scale)
    np.testing.assert_allclose(gaussian(mean[order], scale[order]), found[order], 1e-6, 1e-12)
    moved = gaussian(mean * factor + shift, scale * factor)
    # rounding mean * factor + shift moves an arm by a share of its own scale
    slack = 1e-6 + 1e-14 * (abs(shift) + 3 * factor) / (scale.min() * factor)
    np.testing.assert_allclose(moved, found, slack, 1e-9)


@settings(max_examples=40)
@given(arrays(float, 3, elements=numbers), arrays(float, 3, elements=scales), st.floats(0.01, 1))
def test_a_better_mean_is_chosen_more_often(mean, scale, more):
    before = gaussian(mean, scale)[0]
    mean[0] += more
    assert gaussian(mean, scale)[0] >= before * (1 - 1e-6)


def test_a_known_arm_by_hand():
    found = gaussian([0.5, 0.0, 0.2], [0.0, 1.0, 2.0])
    best = ndtr(0.5) * ndtr(0.15)
    assert found[0] == pytest.approx(best, rel=1e-12)
    # the second is best where it beats 0.5 and the third
    area, _ = quad_vec(
        lambda x: math.exp(-x * x / 2) / math.sqrt(2 * math.pi) * ndtr((x - 0.2) / 2), 0.5, 12.0
    )
    assert found[1] == pytest.approx(area, rel=1e-6)


def test_of_known_arms_the_first_best_one_is_taken():
    np.testing.assert_array_equal(gaussian([1.0, 2.0, 2.0], 0.0), [0, 1, 0])
    found = gaussian([1.0, 1.0, 0.0], [0.0, 0.0, 1.0])
    np.testing.assert_allclose(found, [ndtr(1.0), 0.0, ndtr(-1.0)], rtol=1e-6)
    np.testing.assert_array_equal(gaussian([1.0, 30.0], [1.0, 0.0]), [0, 1])
    np.testing.assert_array_equal(gaussian([1.0, -30.0], [1.0, 0.0]), [1, 0])


def test_large_means_and_tiny_scales():
    far = gaussian([1e9, 1e9 + 1e-3], [1e-3, 1e-3])
    gap = (1e9 + 1e-3) - 1e9  # as the machine has it
    assert far[0] == pytest.approx(two(0.0, 1e-3, gap, 1e-3), rel=1e-6)
    np.testing.assert_allclose(gaussian([1e9, 1e9], [7e-9, 1e-9]), 0.5, rtol=1e-6)
    tiny = gaussian([0.0, 0.0, 1e-12], [1.0, 1e-12, 1e-12])
    low = two(0.0, 1.0, 1.0, 1.0)
    np.testing.assert_allclose(tiny, [0.5, 0.5 * low, 0.5 * (1 - low)], rtol=1e-6)


def test_scales_that_differ_beyond_reason():
    with pytest.raises(ValueError, match="too far apart"), np.errstate(all="ignore"):
        best_gaussian(np.array([np.nan, 0.0]), np.array([1.0, 1.0]))
    np.testing.assert_allclose(gaussian([0.0, 0.0], [1.0, 1e-100]), 0.5, rtol=1e-6)


def test_a_mask_leaves_arms_out():
    belief = GaussianArms([0.0, 1.0, 0.5], [1.0, 2.0, 0.5], 1.0)
    found = chances(belief, allowed=np.array([True, False, True]), oracle=BestArm())
    np.testing.assert_array_equal(found[[0, 2]], gaussian([0.0, 0.5], [1.0, 0.5]))
    assert found[1] == 0
    beta = BetaArms([1.0, 9.0, 3.0], [1.0, 2.0, 4.0])
    found = chances(beta, allowed=np.array([True, False, True]))
    np.testing.assert_allclose(found[[0, 2]], chances(BetaArms([1.0, 3.0], [1.0, 4.0])), 1e-12)
    assert found[1] == 0


# other families, by their own distribution functions


def family_truth(density, below, arms, low, high):
    def shares(x):
        f = np.array([below(k, x) for k in range(arms)])
        return np.array([density(k, x) * np.delete(f, k).prod() for k in range(arms)])

    points = np.linspace(low, high, 200)
    return quad_vec(shares, low, high, points=points, epsabs=1e-13, epsrel=1e-12)[0]


@pytest.mark.parametrize("seed", range(6))
def test_beta_arms_equal_the_integral(seed):
    rng = np.random.default_rng(seed)
    a, b = np.exp(rng.uniform(0, 5, (2, 4)))
    truth = family_truth(
        lambda k, x: math.exp(
            (a[k] - 1) * math.log(x) + (b[k] - 1) * math.log1p(-x) - betaln(a[k], b[k])
        ),
        lambda k, x: betainc(a[k], b[k], x), 4, 1e-9, 1 - 1e-9,
    )  # fmt: skip
    found = chances(BetaArms(a, b))
    np.testing.assert_allclose(found, truth, atol=1e-8)
    assert worst(found, truth, 1e-5) < 1e-6


@pytest.mark.parametrize(("a", "b"), [((3, 5), (7, 9)), ((1, 1), (1, 2)), ((40, 30), (200, 210))])
def test_two_beta_arms_are_known_in_closed_form(a, b):
    """P(θ_2 > θ_1) = Σ_i B(a_1 + i, b_1 + b_2) / ((b_2 + i) B(1 + i, b_2) B(a_1, b_1)), i < a_2."""
    i = np.arange(a[1])
    logs = (
        betaln(a[0] + i, b[0] + b[1]) - np.log(b[1] + i) - betaln(1 + i, b[1]) - betaln(a[0], b[0])
    )
    second = np.exp(logs).sum()
    np.testing.assert_allclose(chances(BetaArms(a, b)), [1 - second, second], rtol=1e-9)


@pytest.mark.parametrize(
    ("k", "r"),
    [
        ((3.0, 5.0), (1.0, 2.0)),
        ((0.5, 0.1), (1.0, 0.2)),
        ((900.0, 30.0), (300.0, 11.0)),
        ((4e6, 4.002e6), (1e4, 1e4)),  # a long log
    ],
)
def test_two_gamma_arms_are_known_in_closed_form(k, r):
    first = betainc(k[1], k[0], r[1] / (r[0] + r[1]))  # P(rate_2 < rate_1)
    np.testing.assert_allclose(chances(PoissonArms(k, r)), [first, 1 - first], rtol=1e-8)
    np.testing.assert_allclose(chances(ExponentialArms(k, r)), [1 - first, first], rtol=1e-8)


def test_poisson_arms_equal_the_integral():
    k, r = np.array([3.0, 50.0, 400.0]), np.array([1.0, 20.0, 150.0])
    truth = family_truth(
        lambda j, x: math.exp(
            k[j] * math.log(r[j]) + (k[j] - 1) * math.log(x) - r[j] * x - math.lgamma(k[j])
        ),
        lambda j, x: gammainc(k[j], r[j] * x), 3, 1e-9, 60.0,
    )  # fmt: skip
    np.testing.assert_allclose(chances(PoissonArms(k, r)), truth, atol=1e-9)


def test_hundredfold_spreads_of_beta_arms():
    a, b = np.array([2.0, 20000.0, 20100.0]), np.array([2.0, 20000.0, 20000.0])
    found = chances(BetaArms(a, b))
    mean, scale = a / (a + b), np.sqrt(a * b / (a + b) ** 2 / (a + b + 1))
    # given the first, the other two are Gaussian but for their skewness
    pair = two(mean[1], scale[1], mean[2], scale[2])
    assert found[1] / (found[1] + found[2]) == pytest.approx(pair, abs=2e-3)
    assert found[0] == pytest.approx(betainc(2.0, 2.0, 1 - mean[2]), abs=2e-3)


def same(left, right):
    np.testing.assert_allclose(left, right, atol=1e-10)


def test_a_mixture_of_whole_products_averages_them():
    betas = [BetaArms([1.0, 5.0], [2.0, 3.0]), BetaArms([9.0, 2.0], [4.0, 30.0])]
    each = [chances(b) for b in betas]
    same(chances(MixtureArms([0.3, 0.7], betas)), 0.3 * each[0] + 0.7 * each[1])
    same(chances(BeliefMixture([0.3, 0.7], betas)), 0.3 * each[0] + 0.7 * each[1])
    same(chances(MixtureArms([1.0, 0.0], betas)), each[0])
    normals = [GaussianArms([0.0, 1.0], [1.0, 0.0], 1.0), GaussianArms([0.0, -1.0], 0.3, 1.0)]
    each = [chances(b) for b in normals]
    same(chances(MixtureArms([0.2, 0.8], normals)), 0.2 * each[0] + 0.8 * each[1])
    same(chances(BeliefMixture([0.2, 0.8], normals)), 0.2 * each[0] + 0.8 * each[1])


@pytest.mark.parametrize("family", [BetaArms, PoissonArms, ExponentialArms, GaussianArms])
def test_separate_mixtures_average_over_all_combinations(family):
    rng = np.random.default_rng(3)
    count = len(family.PARAMETERS)
    stack = family(*np.exp(rng.uniform(-1, 2, (count, 2, 3))))
    weights = rng.dirichlet([1.0, 1.0], 3).T
    weights[:, 2] = 0.0, 1.0
    total = np.zeros(3)
    for picks in np.ndindex(2, 2, 2):
        index = np.array(picks)
        total += weights[index, np.arange(3)].prod() * chances(stack.pick(index))
    np.testing.assert_allclose(chances(MixtureArms(weights, stack)), total, atol=1e-7)


def test_separate_mixtures_of_gaussians_do_not_depend_on_the_unit():
    mean, scale = np.array([[0.0, 1.0], [2.0, 0.5]]), np.array([[1.0, 0.1], [0.5, 0.3]])
    weights = [[0.4, 0.9], [0.6, 0.1]]
    found = chances(MixtureArms(weights, GaussianArms(mean, scale, 1.0)))
    small = GaussianArms(1e-9 * mean + 0.25e-3, 1e-9 * scale, 1.0)
    np.testing.assert_allclose(chances(MixtureArms(weights, small)), found, rtol=1e-6)


def test_a_needle_in_a_mixture_is_found():
    """A narrow candidate of little weight, far from the likeliest one."""
    broad, needle = BetaArms([2.0, 2.0], [2.0, 2.0]), BetaArms([9e5, 2.0], [1e5, 2.0])
    weights = [[0.999, 1.0], [0.001, 0.0]]
    found = chances(MixtureArms(weights, [broad, needle]))
    expected = 0.999 * 0.5 + 0.001 * betainc(2.0, 2.0, 0.9)
    assert found[0] == pytest.approx(expected, abs=1e-6)


# what the sampler does


def frequencies(belief, draws=40_000, seed=0):
    values = belief.draws(draws, np.random.default_rng(seed))
    return np.bincount(values.argmax(axis=1), minlength=values.shape[1]), draws


BELIEFS = {
    "gaussian": GaussianArms([0.0, 0.3, 1.0], [1.0, 0.1, 0.0], 1.0),
    "beta": BetaArms([1.0, 30.0, 4.0], [1.0, 40.0, 3.0]),
    "beta draws of exactly 1": BetaArms([5.0, 1.0, 2.0], [0.02, 0.01, 0.03]),
    "beta draws of exactly 0": BetaArms([0.002, 0.001, 0.002], [1.0, 2.0, 0.5]),
    "poisson": PoissonArms([0.3, 40.0, 5.0], [0.1, 20.0, 2.0]),
    "poisson draws of exactly 0": PoissonArms([0.001, 0.002, 0.001], [1.0, 2.0, 0.5]),
    "exponential": ExponentialArms([0.9, 40.0, 5.0], [0.5, 20.0, 2.0]),
    "default binary": default_prior(arms=["a", "b", "c"], rewards="binary").task_prior(),
    "default count": default_prior(arms=["a", "b", "c"], rewards="count").task_prior(),
    "default number": default_prior(arms=["a", "b"], rewards="number", scale=2.0).task_prior(),
}


@pytest.mark.statistical
@pytest.mark.parametrize("name", BELIEFS)
def test_chances_are_the_frequencies_of_the_sampler(name):
    found = chances(BELIEFS[name])
    counts, draws = frequencies(BELIEFS[name])
    z = (counts - draws * found) / np.sqrt(draws * found * (1 - found) + 1)
    assert np.abs(z).max() < 4.5


@pytest.mark.statistical
def test_chances_are_the_frequencies_of_an_agent():
    meta = GaussianMeta([0.0, 0.2, 0.4], 0.5, task_scale=0.3, noise=1.0)
    agent = AdaTS(meta, seed=1)
    for arm, reward in ((0, 1.0), (1, 0.3), (2, -0.5), (2, 0.1)):
        agent.tell(task="earlier", action=arm, reward=reward)
        agent.tell(task="now", action=arm, reward=reward + 0.3)
    found = chances(agent.posterior("now"))
    counts = np.bincount([agent.ask("now").action for _ in range(20_000)], minlength=3)
    z = (counts - 20_000 * found) / np.sqrt(20_000 * found * (1 - found))
    assert np.abs(z).max() < 4.5


def test_the_posterior_of_every_model_is_covered():
    count = GaussianMeta([0.0, 0.0], 1.0, task_scale=0.3, noise=1.0)
    binary = MixtureMeta([[0.5, 0.5], [0.5, 0.5]], [BetaArms(1.0, [1, 2]), BetaArms(3.0, [1, 2])])
    for meta in (count, binary):
        for agent in (AdaTS(meta, seed=1), TS(meta, seed=1)):
            agent.tell(task=0, action=0, reward=1)
            assert chances(agent.posterior(0)).shape == (2,)


# draws


def test_two_rows_of_a_linear_model_are_known_in_closed_form():
    rng = np.random.default_rng(0)
    root = rng.standard_normal((3, 3))
    belief = LinearBelief([0.3, -0.2, 0.5], root @ root.T, 1.0)
    rows = rng.standard_normal((2, 3))
    gap = rows[0] - rows[1]
    truth = ndtr(gap @ belief.mean / math.sqrt(gap @ belief.cov @ gap))
    for options in ({"features": rows}, {"oracle": BestRow(rows)}):
        found = propensities(belief, rng=np.random.default_rng(1), draws=20_000, **options)
        assert abs(found.probabilities[0] - truth) < 4 * found.se[0]
        assert found.se[0] == pytest.approx(math.sqrt(truth * (1 - truth) / 20_000), rel=0.02)
        assert found.probabilities.sum() == pytest.approx(1)


def test_linear_posteriors_and_their_mixtures():
    meta = LinearMeta([0.5, 0.0], 1.0, task_cov=0.2, noise=1.0)
    stats = meta.empty().add([1.0, 0.0], 1.0).add([0.0, 1.0], 0.4)
    digest = meta.digest(stats)
    belief = meta.absorb(digest.message).posterior(digest)
    rows = np.array([[1.0, 0.0], [0.0, 1.0]])
    gap = np.array([1.0, -1.0])
    truth = ndtr(gap @ belief.mean / math.sqrt(gap @ belief.cov @ gap))
    plain = LinearBelief(belief.mean, belief.cov, 1.0)
    for kind in (belief, plain, BeliefMixture([0.5, 0.5], [belief, plain])):
        found = propensities(kind, features=rows, rng=np.random.default_rng(2), draws=20_000)
        assert abs(found.probabilities[0] - truth) < 4 * found.se[0]


def test_inclusion_in_a_set_of_arms():
    belief = GaussianArms([0.0, 0.5, 1.0, -9.0], [1.0, 0.5, 0.2, 0.1], 1.0)
    rng = np.random.default_rng(0)
    found = propensities(belief, oracle=Top(2, exactly=True), rng=rng, draws=4000)
    assert found.probabilities.sum() == pytest.approx(2)
    # arm 2 is left out where both of the first two are above it
    z = np.linspace(-8, 8, 4001)
    x = 1.0 + 0.2 * z
    weight = np.exp(-z * z / 2) / np.sqrt(2 * math.pi) * (z[1] - z[0])
    out = (weight * ndtr(-x) * ndtr((0.5 - x) / 0.5)).sum()
    assert abs(found.probabilities[2] - (1 - out)) < 4 * found.se[2]
    assert found.probabilities[3] == 0
    assert found.se[3] > 0  # none was seen, which is not the same as none


def test_masks_hold_in_draws_too():
    belief = GaussianArms([0.0, 9.0, 1.0], 1.0, 1.0)
    mask = np.array([True, False, True])
    found = propensities(
        belief, oracle=Top(1, exactly=True), allowed=mask, rng=np.random.default_rng(0)
    )
    assert found.probabilities[1] == 0
    assert found.probabilities[[0, 2]].sum() == pytest.approx(1)


def test_draws_of_a_belief_of_ones_own():
    class Coin(BeliefBase):
        mean = np.zeros(2)

        def sample(self, rng):
            return np.array([0.5, float(rng.random() < 0.3)])

    found = propensities(Coin(), rng=np.random.default_rng(0), draws=2000)
    assert abs(found.probabilities[1] - 0.3) < 4 * found.se[1]


@pytest.mark.statistical
def test_with_the_chosen_action_among_the_draws_weights_average_one():
    """E[1/share of the chosen arm] over arms: Σ_a 1 - (1 - p_a)^(draws + 1), by hand."""
    belief, rows = LinearBelief([0.0, 0.4], 1.0, 1.0), np.eye(2)
    p = ndtr(0.4 / math.sqrt(2))
    expected = 2 - p**6 - (1 - p) ** 6
    rng = np.random.default_rng(0)
    weights = []
    for _ in range(4000):
        chosen = int((rows @ belief.sample(rng)).argmax())
        found = propensities(belief, features=rows, rng=rng, draws=5, chosen=chosen)
        weights.append(1 / found.probabilities[chosen])
    z = (np.mean(weights) - expected) / (np.std(weights) / math.sqrt(len(weights)))
    assert abs(z) < 4


# floors and errors


def test_a_floor_is_shared_by_the_allowed_arms():
    np.testing.assert_allclose(floored([0.7, 0.3, 0.0], 0.3), [0.59, 0.31, 0.1])
    mask = np.array([True, True, False])
    np.testing.assert_allclose(floored([0.7, 0.3, 0.0], 0.2, allowed=mask), [0.66, 0.34, 0.0])
    np.testing.assert_array_equal(floored([0.7, 0.3], 0.0), [0.7, 0.3])
    np.testing.assert_array_equal(floored([0.7, 1.0, 0.3], 0.0), [0.7, 1.0, 0.3])  # of a set
    np.testing.assert_array_equal(floored([0.7, 0.3], 1.0), [0.5, 0.5])


ARMS = GaussianArms([0.0, 1.0], 1.0, 1.0)
LINEAR = LinearBelief([0.0, 1.0], 1.0, 1.0)
RNG = np.random.default_rng(0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: floored([0.5, 0.5], 1.2), "between 0 and 1"),
        (lambda: floored([0.5, 0.9], 0.1), "sum to 1"),
        (lambda: floored([0.5, -0.5], 0.1), "not be negative"),
        (lambda: floored([0.5, 0.5], 0.1, allowed=[0, 1]), "mask of 2 arms"),
        (lambda: propensities(ARMS, allowed=np.array([False, False])), "at least one True"),
        (lambda: propensities(ARMS, allowed=np.array([True])), "mask of 2 arms"),
        (lambda: propensities(LINEAR, features=np.eye(2)), "give rng="),
        (lambda: propensities(LINEAR, features=np.eye(3), rng=RNG), "3 columns, theta 2"),
        (lambda: propensities(LINEAR, features=np.eye(2), rng=RNG, draws=0), "at least 1"),
        (lambda: propensities(LINEAR, features=np.eye(2), rng=RNG, chosen=2), "of the 2 arms"),
        (lambda: propensities(LINEAR, features=np.eye(2), rng=RNG, chosen=-1), "of the 2 arms"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_known_arms_in_separate_mixtures_need_draws():
    stack = GaussianArms([[0.0, 1.0], [0.5, 0.2]], [[0.0, 1.0], [1.0, 1.0]], 1.0)
    belief = MixtureArms([[0.5, 0.5], [0.5, 0.5]], stack)
    with pytest.raises(ValueError, match="give rng="):
        propensities(belief)
    found = propensities(belief, rng=np.random.default_rng(0), draws=2000)
    assert found.probabilities.sum() == pytest.approx(1)
    # by hand: four pairs of Gaussians
    pairs = [(0, 0, 1, 1), (0, 0, 0.2, 1), (0.5, 1, 1, 1), (0.5, 1, 0.2, 1)]
    truth = np.mean([two(*pair) for pair in pairs])
    assert abs(found.probabilities[0] - truth) < 4 * found.se[0]


def test_conditioning_changes_the_chances():
    prior = GaussianArms([0.0, 0.0], 1.0, 1.0)
    told = prior.condition(ArmStats.zeros(2).add(0, 3.0)).belief
    assert chances(told)[0] == pytest.approx(two(1.5, math.sqrt(0.5), 0.0, 1.0), rel=1e-6)


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=150)
def test_the_chance_of_one_arm_is_that_of_all(seed):
    rng = np.random.default_rng(seed)
    arms = int(rng.integers(2, 30))
    scale = np.exp(rng.choice([0.01, 0.3, 1.5]) * rng.standard_normal(arms))
    scale[rng.random(arms) < 0.1] = 0.0  # known
    belief = GaussianArms(rng.choice([0.01, 1.0, 5.0]) * rng.standard_normal(arms), scale, 1.0)
    allowed = rng.random(arms) < 0.7
    allowed[0] = True
    for mask in (None, allowed):
        every = propensities(belief, allowed=mask).probabilities
        open_arms = np.arange(arms) if mask is None else np.flatnonzero(mask)
        for arm in rng.choice(open_arms, 2).tolist():
            assert chance(belief, arm, mask) == pytest.approx(every[arm], rel=2e-6, abs=1e-9)


def test_the_chance_of_one_arm_by_adaptive_quadrature():
    rng = np.random.default_rng(5)
    for arms in (2, 3, 10, 40):
        mean, scale = rng.standard_normal(arms), rng.uniform(0.3, 1.5, arms)
        others = np.delete(np.arange(arms), 1)

        def density(x, mean=mean, scale=scale, others=others):
            below = ndtr((x - mean[others]) / scale[others]).prod()
            u = (x - mean[1]) / scale[1]
            return math.exp(-u * u / 2) / math.sqrt(2 * math.pi) / scale[1] * below

        ends = (mean[1] - 12 * scale[1], mean[1] + 12 * scale[1])
        wanted, _ = quad(density, *ends, epsabs=1e-13, epsrel=1e-10, limit=500)
        found = chance(GaussianArms(mean, scale, 1.0), 1)
        assert found == pytest.approx(wanted, rel=1e-7, abs=1e-10)


def test_the_chance_of_one_arm_of_other_beliefs():
    beta = BetaArms([3.0, 5.0, 2.0], [7.0, 6.0, 2.0])
    every = propensities(beta).probabilities
    assert [chance(beta, arm) for arm in range(3)] == every.tolist()
    assert chance(GaussianArms([0.0, 1.0], [0.0, 0.0], 1.0), 1) == 1.0
    assert chance(GaussianArms([0.0], [1.0], 1.0), 0) == 1.0
