import math

import numpy as np
import pytest
from scipy import stats

import brute
from adats.models import (
    BeliefMixture,
    BetaArms,
    BinaryStats,
    CountStats,
    ExponentialArms,
    GaussianArms,
    LinearBelief,
    LinearStats,
    MixtureArms,
    PoissonArms,
    PositiveStats,
)
from adats.models.core.stats import ArmStats

SEEDS = range(5)


def close(left, right, tolerance=1e-10):
    np.testing.assert_allclose(left, right, rtol=tolerance, atol=tolerance)


def p_value(draws, cdf):
    return stats.kstest(draws, cdf).pvalue


def drawn(belief, n=4000, seed=0):
    rng = np.random.default_rng(seed)
    return np.array([belief.sample(rng) for _ in range(n)])


# Gaussian rewards, against the joint Gaussian over (theta, rewards)


@pytest.mark.parametrize("seed", SEEDS)
def test_gaussian_arms_equal_the_joint_gaussian(seed):
    rng = np.random.default_rng(seed)
    mean, noise = rng.standard_normal(4), rng.uniform(0.3, 2.0, 4)
    scale = rng.uniform(0.1, 2.0, 4) * (rng.random(4) < 0.7)  # some arms are known exactly
    arms, y = rng.integers(0, 3, 12), rng.standard_normal(12)  # the last arm is never pulled
    result = GaussianArms(mean, scale, noise).condition(ArmStats.zeros(4).add(arms, y))
    x = np.eye(4)[arms]
    new_mean, cov, evidence = brute.one_task(mean, np.diag(scale**2), x, y, noise[arms])
    close(result.belief.mean, new_mean)
    close(result.belief.scale**2, cov.diagonal())
    close(result.log_evidence, evidence)


def test_gaussian_arms_by_hand():
    result = GaussianArms([0.0], 1.0, 1.0).condition(ArmStats.zeros(1).add(0, 2.0))
    close(result.belief.mean, [1.0])
    close(result.belief.scale, [math.sqrt(0.5)])
    close(result.log_evidence, -0.5 * math.log(2 * math.pi * 2) - 1.0)  # N(2; 0, 1 + 1)


def test_an_arm_of_scale_0_never_moves_and_is_never_random():
    prior = GaussianArms([1.0, 1.0], [0.0, 1.0], 0.5)
    result = prior.condition(ArmStats.zeros(2).add([0, 0, 1], [9.0, -3.0, 9.0]))
    assert result.belief.mean[0] == 1.0
    assert result.belief.scale[0] == 0.0
    assert result.belief.mean[1] > 5.0
    assert (drawn(result.belief, 50)[:, 0] == 1.0).all()


@pytest.mark.parametrize("rank", [0, 1, 3, 4])
@pytest.mark.parametrize("pulls", [0, 1, 3, 9])
def test_linear_belief_equals_the_joint_gaussian(rank, pulls):
    rng = np.random.default_rng(10 * rank + pulls)
    mean, root = rng.standard_normal(4), rng.standard_normal((4, rank))
    x, y = rng.standard_normal((pulls, 4)), rng.standard_normal(pulls)
    prior = LinearBelief(mean, root @ root.T, 0.7)
    data = LinearStats.zeros(4).add(x, y)
    result = prior.condition(data)
    new_mean, cov, evidence = brute.one_task(mean, root @ root.T, x, y, 0.7)
    close(result.belief.mean, new_mean)
    close(result.belief.cov, cov)
    close(result.belief.scale**2, cov.diagonal())
    close(result.log_evidence, evidence)


def test_linear_belief_with_the_euclidean_basis_equals_gaussian_arms():
    arms, y = [0, 1, 1, 0], [1.0, -2.0, 0.5, 0.3]
    left = LinearBelief([1.0, 2.0], np.diag([4.0, 0.0]), 0.5)
    left = left.condition(LinearStats.zeros(2).add(np.eye(2)[arms], y))
    right = GaussianArms([1.0, 2.0], [2.0, 0.0], 0.5).condition(ArmStats.zeros(2).add(arms, y))
    close(left.log_evidence, right.log_evidence)
    close(left.belief.mean, right.belief.mean)
    close(left.belief.cov, np.diag(right.belief.scale**2))


# Exponential families, against numeric integration


def gamma(shape, rate):
    return stats.gamma(shape, scale=1 / rate)


FAMILIES = {
    BetaArms: (BinaryStats, stats.beta, lambda y, t: stats.bernoulli.pmf(y, t), lambda t: t, 1.0),
    PoissonArms: (CountStats, gamma, lambda y, t: stats.poisson.pmf(y, t), lambda t: t, 60.0),
    ExponentialArms: (
        PositiveStats,
        gamma,
        lambda y, t: stats.expon.pdf(y, scale=1 / t),
        lambda t: 1 / t,
        60.0,
    ),
}
REWARDS = {
    BetaArms: [[], [1, 0, 1], [0, 0]],
    PoissonArms: [[], [3, 0, 5], [1, 1]],
    ExponentialArms: [[], [0.3, 2.0, 0.1], [4.0, 0.0]],
}


@pytest.mark.parametrize("family", FAMILIES)
def test_families_equal_quadrature(family):
    kind, prior_of, density, value, high = FAMILIES[family]
    first, second = np.array([3.5, 4.0, 2.5]), np.array([0.8, 1.5, 2.0])
    data = kind.zeros(3)
    for arm, rewards in enumerate(REWARDS[family]):
        for y in rewards:
            data = data.add(arm, y)
    result = family(first, second).condition(data)
    total = 0.0
    for arm, rewards in enumerate(REWARDS[family]):
        evidence, (mean, square) = brute.quadrature(
            prior_of(first[arm], second[arm]),
            lambda t, rewards=rewards: math.prod(density(y, t) for y in rewards),
            [value, lambda t: value(t) ** 2],
            0.0,
            high,
        )
        total += math.log(evidence)
        close(result.belief.mean[arm], mean, 1e-7)
        close(result.belief.scale[arm], math.sqrt(square - mean**2), 1e-6)
    close(result.log_evidence, total, 1e-7)


def test_families_by_hand():
    beta = BetaArms([1.0], [1.0]).condition(BinaryStats.zeros(1).add([0, 0, 0], [1, 1, 0]))
    close(beta.log_evidence, math.log(1 / 12))
    close(beta.belief.mean, [3 / 5])
    poisson = PoissonArms([1.0], [1.0]).condition(CountStats.zeros(1).add(0, 2))
    close(poisson.log_evidence, math.log(1 / 8))  # a geometric distribution: ½·½²
    close(poisson.belief.mean, [1.5])
    times = ExponentialArms([2.0], [1.0]).condition(PositiveStats.zeros(1).add(0, 1.0))
    close(times.log_evidence, math.log(2 / 8))  # Lomax: 2 (1 + y)⁻³
    close(times.belief.mean, [1.0])
    close(times.belief.scale, [1.0])


def test_exponential_arms_speak_of_the_mean_reward_one_over_the_rate():
    heavy = ExponentialArms([0.5, 1.5, 3.0], [1.0, 2.0, 4.0])
    np.testing.assert_array_equal(heavy.mean, [np.inf, 4.0, 2.0])
    np.testing.assert_array_equal(heavy.scale, [np.inf, np.inf, 2.0])
    assert (drawn(heavy, 200) > 0).all()


def test_a_mixture_of_infinite_means_has_an_infinite_mean_and_scale():
    heavy, light = ExponentialArms([0.5, 1.5, 3.0], 1.0), ExponentialArms([3.0, 3.0, 3.0], 1.0)
    both = MixtureArms([0.5, 0.5], [heavy, light])
    np.testing.assert_array_equal(both.mean, [np.inf, 1.25, 0.5])
    np.testing.assert_array_equal(both.scale, [np.inf, np.inf, 0.5])
    mixed = BeliefMixture([0.5, 0.5], [heavy, light])
    np.testing.assert_array_equal(mixed.mean, both.mean)
    np.testing.assert_array_equal(mixed.scale, both.scale)
    np.testing.assert_array_equal(MixtureArms([0.0, 1.0], [heavy, light]).mean, light.mean)


def test_draws_of_extreme_tails_are_positive_numbers():
    draws = drawn(ExponentialArms([1e-3, 1e-3], [10.0, 1e-10]), 200)
    assert (draws > 0).all()


# Draws


SAMPLED = [
    (GaussianArms([1.0, -2.0], [0.5, 3.0], 1.0), [stats.norm(1.0, 0.5), stats.norm(-2.0, 3.0)]),
    (BetaArms([0.5, 3.0], [2.0, 1.0]), [stats.beta(0.5, 2.0), stats.beta(3.0, 1.0)]),
    (PoissonArms([0.7, 9.0], [2.0, 0.5]), [gamma(0.7, 2.0), gamma(9.0, 0.5)]),
    (
        ExponentialArms([0.7, 9.0], [2.0, 0.5]),
        [stats.invgamma(0.7, scale=2.0), stats.invgamma(9.0, scale=0.5)],
    ),
]


@pytest.mark.statistical
@pytest.mark.parametrize(("belief", "laws"), SAMPLED)
def test_draws_follow_the_law(belief, laws):
    draws = drawn(belief)
    for column, law in zip(draws.T, laws, strict=True):
        assert p_value(column, law.cdf) > 1e-3
    assert abs(stats.spearmanr(*draws.T).statistic) < 4 / math.sqrt(len(draws))


@pytest.mark.statistical
def test_linear_draws_follow_the_law_in_every_direction():
    rng = np.random.default_rng(1)
    root = rng.standard_normal((4, 2))
    belief = LinearBelief(rng.standard_normal(4), root @ root.T, 1.0)
    draws = drawn(belief) - belief.mean
    for direction in np.vstack([np.eye(4), rng.standard_normal((4, 4))]):
        scale = np.linalg.norm(root.T @ direction)
        assert p_value(draws @ direction, stats.norm(0, scale).cdf) > 1e-3
    null = np.linalg.svd(root.T)[2][2:]
    assert np.abs(draws @ null.T).max() < 1e-6  # the root of round-off where the covariance is 0


@pytest.mark.statistical
@pytest.mark.parametrize("separate", [False, True])
def test_mixture_draws_follow_the_law(separate):
    weights = np.array([[0.3, 0.9], [0.7, 0.1]]) if separate else np.array([0.3, 0.7])
    low, high = BetaArms([2.0, 2.0], [90.0, 90.0]), BetaArms([90.0, 90.0], [2.0, 2.0])
    draws = drawn(MixtureArms(weights, [low, high]))
    for arm, column in enumerate(draws.T):
        w = weights[:, arm] if separate else weights
        parts = [stats.beta(2, 90), stats.beta(90, 2)]
        assert p_value(column, lambda t, w=w, p=parts: w @ [q.cdf(t) for q in p]) > 1e-3
    agree = ((draws[:, 0] > 0.5) == (draws[:, 1] > 0.5)).mean()
    chance = 0.3 * 0.9 + 0.7 * 0.1 if separate else 1.0  # jointly, arms share a candidate
    assert agree == pytest.approx(chance, abs=4 * math.sqrt(chance * (1 - chance) / len(draws)))


@pytest.mark.statistical
def test_draws_of_a_mixture_of_beliefs_follow_the_law():
    parts = [GaussianArms([0.0], 1.0, 1.0), LinearBelief([5.0], 4.0, 1.0)]
    draws = drawn(BeliefMixture([0.2, 0.8], parts))[:, 0]
    laws = [stats.norm(0, 1), stats.norm(5, 2)]
    assert p_value(draws, lambda t: 0.2 * laws[0].cdf(t) + 0.8 * laws[1].cdf(t)) > 1e-3


# Mixtures, against a plain sum


CANDIDATES = [
    (BinaryStats, [BetaArms([1.0, 2.0], 3.0), BetaArms(4.0, [1.0, 2.0]), BetaArms(0.5, [0.5, 1])]),
    (CountStats, [PoissonArms([1.0, 2.0], 3.0), PoissonArms(4.0, [1.0, 2.0])]),
    (PositiveStats, [ExponentialArms([3.0, 4.0], 3.0), ExponentialArms(5.0, [1.0, 2.0])]),
    (ArmStats, [GaussianArms([1.0, 2.0], 3.0, 1.0), GaussianArms(0.0, [0.0, 2.0], [0.5, 1.0])]),
]


@pytest.mark.parametrize("separate", [False, True])
@pytest.mark.parametrize(("kind", "priors"), CANDIDATES)
def test_mixture_arms_equal_a_sum(kind, priors, separate):
    data = kind.zeros(2).add([0, 1, 0, 0], [1, 0, 1, 0])
    rng = np.random.default_rng(3)
    weights = rng.dirichlet(np.ones(len(priors)), 2 if separate else None).T
    result = MixtureArms(weights, priors).condition(data)
    flat = brute.unfactorised(weights, priors) if separate else (weights, priors)
    expected = brute.mixture(*flat, data)
    close(result.log_evidence, expected.log_evidence)
    close(result.belief.mean, expected.mean)
    close(result.belief.scale, expected.scale)
    if not separate:
        close(result.belief.weights[:, 0], expected.weights)
        alike = BeliefMixture(weights, priors).condition(data)
        close(alike.log_evidence, expected.log_evidence)
        close(alike.belief.weights, expected.weights)
        close(alike.belief.mean, expected.mean)
        close(alike.belief.scale, expected.scale)


def test_a_weight_of_0_stays_0():
    mixture = MixtureArms([0.0, 1.0], [BetaArms([9.0], 1.0), BetaArms([1.0], 9.0)])
    result = mixture.condition(BinaryStats.zeros(1).add([0] * 9, [1] * 9))
    np.testing.assert_array_equal(result.belief.weights[:, 0], [0.0, 1.0])
    close(result.log_evidence, BetaArms([1.0], 9.0).condition(BinaryStats.zeros(1).add(
        [0] * 9, [1] * 9)).log_evidence)  # fmt: skip


def test_covariance_of_a_mixture_of_beliefs():
    rng = np.random.default_rng(0)
    root = rng.standard_normal((2, 2))
    linear, arms = LinearBelief([1.0, 0.0], root @ root.T, 1.0), GaussianArms([0.0, 3.0], 2.0, 1.0)
    mixture = BeliefMixture([0.25, 0.75], [linear, arms])
    gap = np.array([1.0, -3.0])
    close(mixture.cov, 0.25 * root @ root.T + 0.75 * 4 * np.eye(2) + 3 / 16 * np.outer(gap, gap))
    close(mixture.scale**2, mixture.cov.diagonal())


def test_long_histories_do_not_underflow():
    priors = [BetaArms([1.0], 1.0), BetaArms([2.0], 1.0)]
    data = BinaryStats.from_flat(np.array([1e5, 6e4, 6e4]))
    result = MixtureArms([0.5, 0.5], priors).condition(data)
    assert math.isfinite(result.log_evidence)
    assert result.belief.weights[1, 0] == pytest.approx(1.2 / 2.2, abs=1e-4)  # 2·0.6 against 1


# Bad input


TWO, THREE = GaussianArms([0.0, 1.0], 1.0, 1.0), GaussianArms([0.0, 1.0, 2.0], 1.0, 1.0)
BAD = [
    (lambda: GaussianArms([0.0, math.nan], 1.0, 1.0), "mean must be finite, got nan at index (1,)"),
    (lambda: GaussianArms(["a"], 1.0, 1.0), "mean must be numbers, got ['a']"),
    (lambda: GaussianArms([0.0], -1.0, 1.0), "scale must not be negative, got -1.0"),
    (lambda: GaussianArms([0.0], math.inf, 1.0), "scale must be finite, got inf"),
    (lambda: GaussianArms([0.0], 1.0, 0.0), "noise must be positive, got 0.0"),
    (
        lambda: GaussianArms([0.0, 1.0], [1.0, 1.0, 1.0], 1.0),
        "shapes do not fit together: mean (2,), scale (3,), noise (1,)",
    ),
    (lambda: BetaArms([0.0], 1.0), "alpha must be positive, got 0.0"),
    (lambda: BetaArms([1.0], -2.0), "beta must be positive, got -2.0"),
    (lambda: PoissonArms([-1.0], 1.0), "shape must be positive, got -1.0"),
    (lambda: ExponentialArms([1.0], 0.0), "rate must be positive, got 0.0"),
    (lambda: LinearBelief([[0.0]], 1.0, 1.0), "mean must have 1 dimensions, got shape (1, 1)"),
    (lambda: LinearBelief([0.0], math.nan, 1.0), "cov must be finite, got nan"),
    (lambda: LinearBelief([0.0], -1.0, 1.0), "its smallest eigenvalue is -1.0"),
    (lambda: LinearBelief([0.0, 0.0], [[1.0, 2.0], [2.0, 1.0]], 1.0), "eigenvalue is -1.0"),
    (lambda: LinearBelief([0.0, 0.0], [[1.0, 0.5], [0.0, 1.0]], 1.0), "its transpose by 0.5"),
    (lambda: LinearBelief([0.0], np.eye(2), 1.0), "cov must be a number or have shape (1, 1)"),
    (lambda: LinearBelief([0.0], 1.0, -1.0), "noise must be positive, got -1.0"),
    (lambda: MixtureArms([0.5, 0.4], [TWO, TWO]), "weights must sum to 1, got 0.9"),
    (lambda: MixtureArms([1.5, -0.5], [TWO, TWO]), "weights must not be negative, got -0.5"),
    (lambda: MixtureArms([1.0], [TWO, TWO]), "weights must have shape (2,), or (2, 2)"),
    (lambda: MixtureArms(1.0, [TWO]), "weights has the wrong shape ()"),
    (lambda: MixtureArms([0.5, 0.5], [TWO, THREE]), "candidate priors must have the same arms"),
    (lambda: MixtureArms([0.5, 0.5], [TWO, BetaArms([1.0, 1.0], 1.0)]), "all of one family"),
    (lambda: MixtureArms([1.0], []), "priors must be at least one"),
    (lambda: MixtureArms([1.0], TWO), "parameters of shape (candidates, arms)"),
    (lambda: BeliefMixture([1.0], [TWO, TWO]), "2 beliefs need as many weights, got (1,)"),
    (lambda: BeliefMixture([0.7, 0.7], [TWO, TWO]), "weights must sum to 1, got 1.4"),
    (lambda: BeliefMixture([math.nan, 0.7], [TWO, TWO]), "weights must be finite, got nan"),
    (lambda: TWO.condition(ArmStats.zeros(3)), "(3, 3) for 2 arms"),
    (lambda: LinearBelief([0.0], 1.0, 1.0).condition(LinearStats.zeros(3)), "(3,3)"),
    (lambda: BeliefMixture([0.5, 0.5], [TWO, THREE]), "arms"),
    (lambda: LinearBelief([0.0], 1.0, [1.0, 2.0]), "noise"),
    (lambda: GaussianArms([0.0], 1.0, 1.0).condition(ArmStats.zeros(3)), "(3, 3) for 1 arms"),
]


@pytest.mark.parametrize(("build", "message"), BAD)
def test_bad_input_is_refused(build, message):
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        build()
    assert message in str(caught.value)


def test_covariances_are_judged_with_room_for_round_off():
    almost = np.array([[1.0, 1.0 + 1e-12], [1.0, 1.0]])
    close(LinearBelief([0.0, 0.0], almost, 1.0).cov, np.ones((2, 2)))


@pytest.mark.parametrize("belief", [belief for belief, _ in SAMPLED])
def test_parameters_are_copies_that_cannot_be_written(belief):
    given = np.array([2.0, 3.0])
    kept = type(belief)(given, *belief.parameters()[1:])
    given[0] = 9.0
    assert kept.parameters()[0][0] == 2.0
    with pytest.raises(ValueError, match="read-only"):
        kept.parameters()[0][0] = 1.0
