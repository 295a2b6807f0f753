import math
from functools import reduce

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import kstest, norm

import brute
from adats.models import (
    BetaArms,
    ExponentialArms,
    GaussianArms,
    GaussianMeta,
    LinearMeta,
    LinearStats,
    MixtureMeta,
    ModelMixture,
    PoissonArms,
)
from adats.models.core.stats import ArmStats

seeds = st.integers(0, 2**32 - 1)


def close(left, right, tolerance=1e-9):
    np.testing.assert_allclose(left, right, rtol=tolerance, atol=tolerance)


def absorb(meta, *digests):
    return reduce(lambda m, digest: m.absorb(digest.message), digests, meta)


def interleaved(meta, pulls, tasks, designs=None):
    """The meta-belief after every pull (task, action, reward) moved only its own task's message."""
    designs = designs or [None] * tasks
    stats = [meta.empty(design=phi) for phi in designs]
    digests = [meta.digest(s, design=phi) for s, phi in zip(stats, designs, strict=True)]
    for task, action, reward in pulls:
        stats[task] = stats[task].add(action, reward)
        digests[task], meta = meta.replace_task(digests[task], stats[task], [action])
    return meta, stats, digests


def psd(rng, dim):
    """Of any rank, often singular, sometimes zero."""
    root = rng.standard_normal((dim, rng.integers(0, dim + 2)))
    return root @ root.T


def belief_close(belief, expected, tolerance=1e-9):
    mean, cov = expected
    close(belief.mean, mean, tolerance)
    close(belief.scale**2, np.diagonal(cov), tolerance)
    if hasattr(belief, "cov"):
        close(belief.cov, cov, tolerance)


# Against the joint Gaussian over (mu, theta_1, ..., theta_m, all rewards)


@settings(max_examples=200)
@given(seeds)
def test_gaussian_meta_equals_the_joint_gaussian(seed):
    rng = np.random.default_rng(seed)
    arms, tasks = rng.integers(1, 4), rng.integers(1, 5)
    mean, noise = rng.standard_normal(arms), rng.uniform(0.3, 2.0, arms)
    scale, task_scale = (rng.uniform(0.1, 2.0, arms) * (rng.random(arms) < 0.7) for _ in "qt")
    pulls = [
        (rng.integers(tasks), rng.integers(arms), 2 * rng.standard_normal())
        for _ in range(rng.integers(0, 15))
    ]
    meta = GaussianMeta(mean, scale, task_scale=task_scale, noise=noise)
    meta, _, digests = interleaved(meta, pulls, tasks)

    joint_tasks = []
    for task in range(tasks + 1):  # the last one is new
        own = [(a, y) for t, a, y in pulls if t == task]
        index, y = np.array([a for a, _ in own], int), np.array([y for _, y in own])
        x, cov = np.eye(arms)[index], np.diag(task_scale**2)
        joint_tasks.append(brute.JointTask(np.eye(arms), cov, x, y, noise[index]))
    expected = brute.joint(mean, np.diag(scale**2), joint_tasks)
    belief_close(meta, expected.mu)
    close(meta.log_evidence(), expected.log_evidence)
    for digest, theta in zip(digests, expected.thetas, strict=False):
        belief_close(meta.posterior(digest), theta)
    belief_close(meta.task_prior(), expected.thetas[-1])


@settings(max_examples=200)
@given(seeds, st.sampled_from(["identity", "fixed", "ones", "attributes"]))
def test_linear_meta_equals_the_joint_gaussian(seed, kind):
    rng = np.random.default_rng(seed)
    tasks, p = rng.integers(1, 5), rng.integers(1, 4)
    dims = np.full(tasks + 1, p)
    fixed = None
    if kind == "identity":
        designs = [None] * (tasks + 1)
    elif kind == "fixed":
        dims[:] = rng.integers(1, 5)
        fixed = rng.standard_normal((dims[0], p))
        designs = [None] * (tasks + 1)
    else:  # one a task, of different sizes
        p = 1 if kind == "ones" else p
        dims = rng.integers(1, 5, tasks + 1)
        designs = [np.ones((d, 1)) if kind == "ones" else rng.standard_normal((d, p)) for d in dims]
    varying = kind in ("ones", "attributes")
    task_cov = float(rng.integers(0, 3)) if varying else psd(rng, dims[0])
    mean, cov, noise = rng.standard_normal(p), psd(rng, p), rng.uniform(0.3, 2.0)
    pulls = []
    for _ in range(rng.integers(0, 12)):
        task = rng.integers(tasks)
        pulls.append((task, rng.standard_normal(dims[task]), 2 * rng.standard_normal()))
    meta = LinearMeta(mean, cov, task_cov=task_cov, noise=noise, design=fixed)
    meta, _, digests = interleaved(meta, pulls, tasks, designs[:-1])

    joint_tasks = []
    for task, (phi, dim) in enumerate(zip(designs, dims, strict=True)):
        own = [(a, y) for t, a, y in pulls if t == task]
        x = np.array([a for a, _ in own]).reshape(-1, dim)
        design = next(d for d in (phi, fixed, np.eye(p)) if d is not None)
        spread = task_cov * np.eye(dim) if varying else task_cov
        joint_tasks.append(brute.JointTask(design, spread, x, np.array([y for _, y in own]), noise))
    expected = brute.joint(mean, cov, joint_tasks)
    close(meta.mean, expected.mu[0])
    close(meta.cov, expected.mu[1])
    close(meta.log_evidence(), expected.log_evidence)
    for digest, theta in zip(digests, expected.thetas, strict=False):
        belief_close(meta.posterior(digest), theta)
    belief_close(meta.task_prior(design=designs[-1]), expected.thetas[-1])


# Against the paper's formulas, in exact arithmetic, one task after another


def test_gaussian_meta_posterior_of_the_paper():
    rng = np.random.default_rng(0)
    meta = GaussianMeta([0.5, -1.0, 2.0], [1.0, 0.5, 3.0], task_scale=[0.1, 1.0, 0.3], noise=0.7)
    tasks = []
    for _ in range(200):
        arms = rng.integers(0, 3, 40)
        tasks.append(meta.empty().add(arms, rng.standard_normal(40) + meta.meta_mean[arms]))
    for count in (0, 1, 2, 200):
        after = absorb(meta, *map(meta.digest, tasks[:count]))
        for arm in range(3):
            mean, cov = brute.paper_meta_posterior(
                meta.meta_mean[arm],
                meta.meta_scale[arm] ** 2,
                meta.task_scale[arm] ** 2,
                meta.noise[arm],
                [(s.count[arm], s.total[arm]) for s in tasks[:count]],
            )
            sd = math.sqrt(cov[0, 0])
            assert abs(after.mean[arm] - mean[0]) <= 1e-12 * sd
            assert after.scale[arm] == pytest.approx(sd, rel=1e-12)
            spread = math.hypot(sd, meta.task_scale[arm])
            assert after.task_prior().scale[arm] == pytest.approx(spread, rel=1e-12)


@pytest.mark.parametrize("noise", [1.0, 0.1])
def test_linear_meta_posterior_of_the_paper(noise):
    rng = np.random.default_rng(1)
    roots = rng.standard_normal((2, 3, 3))
    cov, task_cov = roots @ roots.transpose(0, 2, 1) / 3
    meta = LinearMeta(rng.standard_normal(3), cov, task_cov=task_cov, noise=noise)
    mu, tasks = meta.sample(rng), []
    for _ in range(20):
        theta = rng.multivariate_normal(mu, task_cov)
        x = rng.standard_normal((200, 3))
        tasks.append(meta.empty().add(x, x @ theta + noise * rng.standard_normal(200)))
    for count in (0, 1, 2, 20):
        after = absorb(meta, *map(meta.digest, tasks[:count]))
        mean, cov = brute.paper_meta_posterior(
            meta.meta_mean, meta.meta_cov, task_cov, noise, [(s.gram, s.xy) for s in tasks[:count]]
        )
        sd = np.sqrt(cov.diagonal())
        assert (np.abs(after.mean - mean) / sd).max() <= 1e-12
        assert (np.abs(after.cov - cov) / np.outer(sd, sd)).max() <= 1e-12
        close(after.task_prior().cov, cov + task_cov, 1e-12)


def test_a_vague_prior_and_little_noise_do_not_make_honest_data_impossible():
    meta = LinearMeta(np.zeros(5), 1e8, task_cov=1.0, noise=0.001)
    rng = np.random.default_rng(0)
    for _ in range(20):
        x = np.repeat(rng.standard_normal((1, 5)), 200, axis=0)  # a Gram matrix of rank 1
        y = rng.standard_normal() + 0.001 * rng.standard_normal(200)
        after = absorb(meta, meta.digest(meta.empty().add(x, y)))
        assert x[0] @ after.mean == pytest.approx(y.mean(), abs=1e-3)


# The same model in two ways


@pytest.mark.parametrize("seed", range(3))
def test_linear_meta_with_the_euclidean_basis_equals_gaussian_arms(seed):
    rng = np.random.default_rng(seed)
    mean, scale, spread = rng.standard_normal(3), np.array([1.0, 0.0, 2.0]), np.array([0.5, 1, 0])
    arms = GaussianMeta(mean, scale, task_scale=spread, noise=0.6)
    linear = LinearMeta(mean, np.diag(scale**2), task_cov=np.diag(spread**2), noise=0.6)
    pulls = [(rng.integers(3), rng.integers(3), rng.standard_normal()) for _ in range(20)]
    left, _, left_digests = interleaved(arms, pulls, 3)
    right, _, right_digests = interleaved(linear, [(t, np.eye(3)[a], y) for t, a, y in pulls], 3)
    close(left.log_evidence(), right.log_evidence())
    belief_close(left, (right.mean, right.cov))
    belief_close(left.task_prior(), (right.task_prior().mean, right.task_prior().cov))
    for a, b in zip(left_digests, right_digests, strict=True):
        belief_close(left.posterior(a), (right.posterior(b).mean, right.posterior(b).cov))


def test_gaussian_meta_by_hand():
    meta = GaussianMeta([1.0, 0.0], 1.0, task_scale=1.0, noise=1.0)
    digest = meta.digest(ArmStats.zeros(2).add([0, 0], [3.0, 4.0]))
    after = absorb(meta, digest)
    # T / (T σ_0² + σ²) = 2/3, B / (T σ_0² + σ²) = 7/3
    close(after.mean, [(1 + 7 / 3) / (1 + 2 / 3), 0.0])
    close(after.scale**2, [3 / 5, 1.0])
    close(after.task_prior().scale ** 2, [8 / 5, 2.0])
    # theta_0 ~ N(1, 2) and two rewards of noise 1: precision ½ + 2
    close(after.posterior(digest).mean, [(0.5 + 7) / 2.5, 0.0])
    close(after.posterior(digest).scale ** 2, [1 / 2.5, 2.0])
    # the rewards are N(1, [[3, 2], [2, 3]]): determinant 5, and the deviations are 2 and 3
    close(after.log_evidence(), -math.log(2 * math.pi) - 0.5 * math.log(5) - 0.5 * 15 / 5)


def test_exchangeable_arms_teach_each_other_and_rows_of_attributes_new_arms():
    ones = np.ones((3, 1))
    meta = LinearMeta([0.0], 4.0, task_cov=0.1, noise=0.1, design=ones)
    taught = absorb(meta, meta.digest(meta.empty().add([1.0, 0.0, 0.0], 5.0)))
    prior = taught.task_prior()
    assert prior.mean[2] == pytest.approx(prior.mean[0])
    assert prior.mean[2] > 4.5
    rows = np.array([[1.0, 0.0], [1.0, 1.0]])
    meta = LinearMeta([0.0, 0.0], 4.0, task_cov=0.01, noise=0.1)
    pulled = meta.empty(design=rows).add(np.eye(2), [1.0, 3.0])
    taught = absorb(meta, meta.digest(pulled, design=rows))
    assert taught.task_prior(design=[[1.0, 2.0]]).mean == pytest.approx([5.0], abs=0.2)


@pytest.mark.statistical
@pytest.mark.parametrize("design", [None, np.ones((3, 1)), np.arange(6.0).reshape(3, 2)])
@pytest.mark.parametrize("task_cov", [0.5, np.diag([1.0, 0.0, 2.0])])
def test_draws_of_a_linear_posterior_follow_the_law_in_every_direction(design, task_cov):
    p = 3 if design is None else design.shape[1]
    rng = np.random.default_rng(0)
    meta = LinearMeta(np.ones(p), 2.0, task_cov=task_cov, noise=0.5, design=design)
    tasks = [meta.empty().add(rng.standard_normal((2, 3)), rng.standard_normal(2)) for _ in "ab"]
    digests = [meta.digest(stats) for stats in tasks]
    belief = absorb(meta, *digests).posterior(digests[0])
    draws = np.array([belief.sample(rng) for _ in range(4000)]) - belief.mean
    for direction in np.vstack([np.eye(3), rng.standard_normal((3, 3))]):
        law = norm(0.0, math.sqrt(direction @ belief.cov @ direction))
        assert kstest(draws @ direction, law.cdf).pvalue > 1e-3


# Mixtures, against plain sums over candidates


FAMILIES = [
    [BetaArms([1.0, 2.0], 3.0), BetaArms(4.0, [1.0, 2.0]), BetaArms(0.5, [0.5, 1.0])],
    [PoissonArms([1.0, 2.0], 3.0), PoissonArms(4.0, [1.0, 2.0])],
    [ExponentialArms([3.0, 4.0], 3.0), ExponentialArms(5.0, [1.0, 2.0])],
    [GaussianArms([1.0, 2.0], 3.0, 1.0), GaussianArms(0.0, [0.0, 2.0], [0.5, 1.0])],
]


@pytest.mark.parametrize("separate", [False, True])
@pytest.mark.parametrize("priors", FAMILIES)
def test_mixture_meta_equals_a_sum_over_candidates(priors, separate):
    rng = np.random.default_rng(5)
    weights = rng.dirichlet(np.ones(len(priors)), 2 if separate else None).T
    pulls = [(rng.integers(3), rng.integers(2), rng.integers(2)) for _ in range(25)]
    meta, stats, digests = interleaved(MixtureMeta(weights, priors), pulls, 3)

    flat, candidates = brute.unfactorised(weights, priors) if separate else (weights, priors)
    evidence = np.array([[c.condition(s).log_evidence for s in stats] for c in candidates])
    terms = np.array(flat) * np.exp(evidence.sum(axis=1))
    close(meta.log_evidence(), math.log(terms.sum()))
    posterior = terms / terms.sum()
    if separate:  # the weights of an arm are the sums over the choices in all other arms
        grid = posterior.reshape(len(priors), len(priors))
        close(meta.weights, np.stack([grid.sum(axis=1), grid.sum(axis=0)], axis=1))
    else:
        close(meta.weights, posterior)
    nothing = brute.mixture(posterior, candidates, meta.empty())
    close(meta.task_prior().mean, nothing.mean)
    close(meta.mean, nothing.mean)
    close(meta.task_prior().scale, nothing.scale)
    for task, digest in enumerate(digests):
        others = np.array(flat) * np.exp(np.delete(evidence, task, axis=1).sum(axis=1))
        expected = brute.mixture(others / others.sum(), candidates, stats[task])
        close(meta.posterior(digest).mean, expected.mean)
        close(meta.posterior(digest).scale, expected.scale)


@pytest.mark.parametrize("separate", [False, True])
def test_a_thousand_tasks_do_not_underflow(separate):
    rng = np.random.default_rng(0)
    priors = [BetaArms([2.0, 8.0], [8.0, 2.0]), BetaArms([8.0, 2.0], [2.0, 8.0])]
    meta = MixtureMeta(np.full((2, 2), 0.5) if separate else [0.5, 0.5], priors)
    for _ in range(1000):
        theta = priors[1].sample(rng)
        arms = rng.integers(0, 2, 20)
        meta = absorb(meta, meta.digest(meta.empty().add(arms, rng.binomial(1, theta[arms]))))
    assert meta.log_evidence() < -5000  # exp of it would be 0
    np.testing.assert_array_equal(meta.weights[1], 1.0)
    close(meta.task_prior().mean, priors[1].mean)
    assert math.isfinite(meta.task_prior().condition(meta.empty().add(0, 1)).log_evidence)


@pytest.mark.statistical
def test_mixture_meta_draws_its_candidates_by_their_weights():
    meta = MixtureMeta([[0.2, 0.9], [0.8, 0.1]], [BetaArms([1.0, 2.0], 1), BetaArms([3.0, 4.0], 1)])
    meta = absorb(meta, meta.digest(meta.empty().add([0, 0, 1], [0, 0, 1])))
    rng = np.random.default_rng(0)
    draws = np.array([meta.sample(rng) for _ in range(4000)])
    chance = meta.weights[1]
    slack = 4 * np.sqrt(chance * (1 - chance) / 4000)
    assert (np.abs(draws.mean(axis=0) - chance) <= slack).all()
    assert abs(chance[0] - 0.8) > 5 * slack[0]  # the data moved the weights
    np.testing.assert_array_equal(meta.prior_given([1, 0]).alpha, [3.0, 2.0])


def models(noises=(0.5, 1.0), spreads=(0.0, 0.7)):
    return [
        GaussianMeta([0.0, 1.0], 1.0, task_scale=spread, noise=noise)
        for noise in noises
        for spread in spreads
    ]


def linear_models():
    return [
        LinearMeta([0.0, 1.0], 1.0, task_cov=spread, noise=noise)
        for noise, spread in [(0.5, 0.0), (1.0, 0.7), (0.5, np.diag([0.0, 1.0]))]
    ]


def mixture_models():
    return [MixtureMeta(w, FAMILIES[3]) for w in ([0.5, 0.5], [0.9, 0.1])]


@pytest.mark.parametrize("build", [models, linear_models, mixture_models])
def test_model_mixture_equals_a_sum_over_models(build):
    rng = np.random.default_rng(2)
    parts = build()
    weights = rng.dirichlet(np.ones(len(parts)))
    pulls = [(rng.integers(3), rng.integers(2), rng.standard_normal()) for _ in range(20)]
    if build is linear_models:
        pulls = [(t, rng.standard_normal(2), y) for t, _, y in pulls]
    meta, stats, digests = interleaved(ModelMixture(weights, parts), pulls, 3)
    runs = [interleaved(part, pulls, 3) for part in parts]
    terms = weights * np.exp([after.log_evidence() for after, _, _ in runs])
    posterior = terms / terms.sum()
    close(meta.log_evidence(), math.log(terms.sum()))
    close(meta.weights, posterior)
    nothing = brute.mixture(posterior, [after.task_prior() for after, _, _ in runs], meta.empty())
    close(meta.task_prior().mean, nothing.mean)
    close(meta.mean, nothing.mean)
    close(meta.task_prior().scale, nothing.scale)
    for task, digest in enumerate(digests):
        rest = [absorb(p, *(d for i, d in enumerate(ds) if i != task))
                for p, (_, _, ds) in zip(parts, runs, strict=True)]  # fmt: skip
        before = weights * np.exp([one.log_evidence() for one in rest])
        priors = [one.task_prior() for one in rest]
        expected = brute.mixture(before / before.sum(), priors, stats[task])
        close(meta.posterior(digest).mean, expected.mean)
        close(meta.posterior(digest).scale, expected.scale)


def test_model_mixture_of_models_whose_messages_differ_in_size():
    free = LinearMeta([0.0, 0.0], 1.0, task_cov=0.5, noise=1.0)
    shared = LinearMeta([0.0], 1.0, task_cov=0.5, noise=1.0, design=np.ones((2, 1)))
    meta = ModelMixture([0.5, 0.5], [free, shared])
    stats = meta.empty().add(np.eye(2), [1.0, 1.2])
    evidence = [m.task_prior().condition(stats).log_evidence for m in (free, shared)]
    after = absorb(meta, meta.digest(stats))
    close(after.log_evidence(), np.log(np.mean(np.exp(evidence))))


@pytest.mark.statistical
@pytest.mark.parametrize("truth", [(0.5, 0.0), (1.0, 0.0), (0.5, 0.7), (1.0, 0.7)])
def test_model_mixture_finds_the_noise_and_the_spread_of_tasks(truth):
    noise, spread = truth
    rng = np.random.default_rng(0)
    parts = models()
    meta = ModelMixture(np.full(4, 0.25), parts)
    mu = parts[0].sample(rng)
    for _ in range(40):
        theta = mu + spread * rng.standard_normal(2)
        arms = rng.integers(0, 2, 10)
        y = theta[arms] + noise * rng.standard_normal(10)
        meta = absorb(meta, meta.digest(meta.empty().add(arms, y)))
    best = parts[int(meta.weights.argmax())]
    assert (best.noise[0], best.task_scale[0]) == truth
    assert meta.weights.max() > 0.99


def test_model_mixture_draws_a_model_and_its_mu():
    meta = ModelMixture([0.25, 0.75], [models()[0], mixture_models()[0]])
    rng = np.random.default_rng(0)
    draws = [meta.sample(rng) for _ in range(2000)]
    share = np.mean([mu[0] for mu in draws])
    assert share == pytest.approx(0.75, abs=4 * math.sqrt(0.25 * 0.75 / 2000))
    kinds = {(int(mu[0]), type(meta.prior_given(mu)), mu.size) for mu in draws}
    assert kinds == {(0, GaussianArms, 3), (1, GaussianArms, 2)}


# Widening, more arms


@pytest.mark.parametrize("factor", [3.0, 1 / 3])
def test_widen_scales_the_width_of_the_meta_prior_alone(factor):
    arms = GaussianMeta([0.0, 1.0], [1.0, 2.0], task_scale=0.5, noise=1.0)
    same = GaussianMeta([0.0, 1.0], factor * arms.meta_scale, task_scale=0.5, noise=1.0)
    linear = LinearMeta([0.0, 1.0], np.diag([1.0, 4.0]), task_cov=0.25, noise=1.0)
    alike = LinearMeta([0.0, 1.0], factor**2 * linear.meta_cov, task_cov=0.25, noise=1.0)
    both = (
        ModelMixture([0.5, 0.5], [arms, same]),
        ModelMixture([0.5, 0.5], [same, same.widen(factor)]),
    )
    for old, new in ((arms, same), (linear, alike), both):
        action = np.array([1.0, 0.5]) if old is linear else 0
        stats = old.empty().add(action, 2.0)
        told = absorb(old, old.digest(stats))  # data before or after widening: no difference
        for left in (absorb(old.widen(factor), old.digest(stats)), told.widen(factor)):
            right = absorb(new, new.digest(stats))
            close(left.mean, right.mean)
            close(left.task_prior().scale, right.task_prior().scale)
            close(left.log_evidence(), right.log_evidence())


@pytest.mark.parametrize("kind", ["gaussian", "joint", "separate", "models"])
def test_a_new_arm_is_as_if_it_had_always_been_there(kind):
    def build(arms):
        names = ["a", "b", "c"][:arms]
        scale = [1.0, 2.0, 2.0][:arms]
        gaussian = GaussianMeta(
            [0.0, 1.0, 1.0][:arms], scale, task_scale=0.5, noise=1.0, arms=names
        )
        beta = [BetaArms([1.0, 2.0, 2.0][:arms], 1.0), BetaArms([3.0, 4.0, 4.0][:arms], 2.0)]
        columns = np.array([[0.3, 0.6, 0.6], [0.7, 0.4, 0.4]])[:, :arms]
        return {
            "gaussian": gaussian,
            "joint": MixtureMeta([0.3, 0.7], beta, arms=names),
            "separate": MixtureMeta(columns, beta, arms=names),
            "models": ModelMixture([0.3, 0.7], [gaussian, gaussian.widen(2.0)]),
        }[kind]

    small, large = build(2), build(3)
    early = [small.empty().add([0, 1, 1], [1, 0, 1]), small.empty().add([1], [1])]
    grown = absorb(small, *map(small.digest, early)).with_arm("c", 1)
    whole = absorb(large, *(large.digest(stats.grow(3)) for stats in early))
    last = large.empty().add([2, 0, 2], [1, 1, 0])
    for left, right in (
        (grown, whole),
        (absorb(grown, grown.digest(last)), absorb(whole, large.digest(last))),
    ):
        assert left.arms == right.arms == ("a", "b", "c")
        assert left.n_arms == 3
        close(left.mean, right.mean)
        close(left.task_prior().scale, right.task_prior().scale)
        close(left.log_evidence(), right.log_evidence())
    assert small.n_arms == 2


def test_the_only_arm_of_separate_mixtures_can_get_a_second_one():
    def build(arms):
        return MixtureMeta([[0.5] * arms, [0.5] * arms], [BetaArms([a] * arms, 1) for a in (1, 9)])

    grown, whole = build(1).with_arm(None, 0), build(2)
    told = whole.empty().add([0, 0], [1, 1])
    grown, whole = (absorb(meta, meta.digest(told)) for meta in (grown, whole))
    close(grown.task_prior().mean, whole.task_prior().mean)


def test_changed_arms_may_come_from_an_iterator():
    parts = models()
    meta = ModelMixture(np.full(4, 0.25), parts)
    stats = meta.empty().add([0, 1], [1.0, 2.0])
    grown, after = meta.replace_task(meta.digest(meta.empty()), stats, iter([0, 1]))
    close(grown.message, meta.digest(stats).message)
    close(after.weights, meta.absorb(grown.message).weights)


# Bad input


def gaussian(mean=(0.0, 0.0), scale=1.0, task_scale=1.0, noise=1.0, **options):
    return GaussianMeta(mean, scale, task_scale=task_scale, noise=noise, **options)


def linear(mean=(0.0, 0.0), cov=1.0, task_cov=1.0, noise=1.0, **options):
    return LinearMeta(mean, cov, task_cov=task_cov, noise=noise, **options)


BETAS = [BetaArms([1.0, 1.0], 1.0), BetaArms([2.0, 1.0], 1.0)]
NOT_PSD, NOT_SYMMETRIC = [[1.0, 2.0], [2.0, 1.0]], [[1.0, 0.5], [0.0, 1.0]]
MIXTURE = MixtureMeta([0.5, 0.5], BETAS)
BAD = [
    (lambda: gaussian(mean=[0.0, math.nan]), "mean must be finite, got nan at index (1,)"),
    (lambda: gaussian(mean=["a", "b"]), "mean must be numbers, got ['a', 'b']"),
    (lambda: gaussian(mean=0.0), "one entry an arm, or arms must be named; got shape ()"),
    (lambda: gaussian(mean=[]), "mean must be a vector, one entry an arm"),
    (lambda: gaussian(mean=[[0.0]]), "got shape (1, 1)"),
    (lambda: gaussian(scale=-1.0), "scale must not be negative, got -1.0"),
    (lambda: gaussian(scale=[1.0] * 3), "shapes do not fit together: mean (2,), scale (3,)"),
    (lambda: gaussian(task_scale=[1.0, -0.1]), "task_scale must not be negative, got -0.1"),
    (lambda: gaussian(task_scale=math.inf), "task_scale must be finite, got inf"),
    (lambda: gaussian(noise=0.0), "noise must be positive, got 0.0"),
    (lambda: gaussian(noise=math.nan), "noise must be finite, got nan"),
    (lambda: gaussian(arms=["a", "a"]), "but 'a' comes twice"),
    (lambda: gaussian(arms=[]), "arms must not be empty"),
    (lambda: gaussian(arms=["a", 1.5]), "a string or an integer, got 1.5"),
    (lambda: gaussian(arms=["a", True]), "a string or an integer, got True"),
    (lambda: gaussian(arms=["a", "b", "c"]), "arms (3,)"),
    (lambda: gaussian().widen(0.0), "factor must be positive, got 0.0"),
    (lambda: gaussian().widen(math.nan), "factor must be finite, got nan"),
    (lambda: gaussian().prior_given([1.0]), "mu must have shape (2,), got (1,)"),
    (lambda: gaussian().prior_given([1.0, math.nan]), "mu must be finite, got nan"),
    (lambda: gaussian().task_prior(design=np.eye(2)), "a design is for linear models"),
    (lambda: linear(mean=0.0), "mean must have 1 dimensions, got shape ()"),
    (lambda: linear(mean=[]), "mean must have at least one entry"),
    (lambda: linear(mean=[math.inf]), "mean must be finite, got inf"),
    (
        lambda: linear(cov=-1.0),
        "cov must be positive semi-definite, but its smallest eigenvalue is -1",
    ),
    (lambda: linear(cov=NOT_PSD), "smallest eigenvalue is -1.0"),
    (
        lambda: linear(cov=NOT_SYMMETRIC),
        "cov must be symmetric, but differs from its transpose by 0.5",
    ),
    (lambda: linear(cov=np.eye(3)), "cov must be a number or have shape (2, 2), got (3, 3)"),
    (lambda: linear(task_cov=-0.5), "task_cov must not be negative, got -0.5"),
    (lambda: linear(task_cov=math.nan), "task_cov must be finite, got nan"),
    (lambda: linear(task_cov=NOT_PSD), "task_cov must be positive semi-definite"),
    (lambda: linear(task_cov=NOT_SYMMETRIC), "task_cov must be symmetric"),
    (lambda: linear(task_cov=np.eye(2), design=np.ones((3, 2))), "shape (3, 3), got (2, 2)"),
    (lambda: linear(noise=-1.0), "noise must be positive, got -1.0"),
    (
        lambda: linear(design=np.ones((3, 1))),
        "design must have 2 columns, as mean has, got shape (3, 1)",
    ),
    (lambda: linear(design=[1.0, 1.0]), "design must have 2 dimensions, got shape (2,)"),
    (lambda: linear(design=[[math.nan, 1.0]]), "design must be finite, got nan"),
    (lambda: linear().task_prior(design=np.ones((2, 3))), "design must have 2 columns"),
    (
        lambda: linear(task_cov=np.eye(2)).empty(design=np.ones((3, 2))),
        "theta has 3 entries in this task",
    ),
    (lambda: linear().prior_given([1.0]), "mu must have shape (2,), got (1,)"),
    (lambda: linear().widen(-1.0), "factor must be positive, got -1.0"),
    (lambda: MixtureMeta([0.5, 0.6], BETAS), "weights must sum to 1, got 1.1"),
    (lambda: MixtureMeta([[0.5, 0.5], [0.5, 0.4]], BETAS), "weights must sum to 1, got 0.9"),
    (lambda: MixtureMeta([1.5, -0.5], BETAS), "weights must not be negative, got -0.5"),
    (lambda: MixtureMeta([math.nan, 0.5], BETAS), "weights must be finite, got nan"),
    (lambda: MixtureMeta([0.5, 0.3, 0.2], BETAS), "weights must have shape (2,), or (2, 2)"),
    (lambda: MixtureMeta([1.0], []), "priors must be at least one"),
    (lambda: MixtureMeta([0.5, 0.5], [BETAS[0], BetaArms([1.0], 1.0)]), "must have the same arms"),
    (lambda: MixtureMeta([0.5, 0.5], BETAS, arms=["a"]), "1 names for 2 arms"),
    (lambda: MIXTURE.prior_given(2), "index of a candidate, 0 to 1, got 2"),
    (lambda: MIXTURE.prior_given(-1), "index of a candidate, 0 to 1, got -1"),
    (lambda: MIXTURE.prior_given(0.5), "index of a candidate, 0 to 1, got 0.5"),
    (lambda: MIXTURE.prior_given([0, 1]), "index of a candidate, 0 to 1, got [0, 1]"),
    (lambda: MIXTURE.widen(2.0), "a categorical meta-prior has no width"),
    (lambda: MIXTURE.empty(design=np.eye(2)), "a design is for linear models"),
    (lambda: ModelMixture([1.0], models()), "4 models need as many weights, got (1,)"),
    (lambda: ModelMixture([0.5, 0.6], models()[:2]), "weights must sum to 1, got 1.1"),
    (lambda: ModelMixture([], []), "weights has the wrong shape (0,)"),
    (
        lambda: ModelMixture([0.5, 0.5], [gaussian(), linear()]),
        "same kind of rewards and the same arms",
    ),
    (lambda: ModelMixture([0.5, 0.5], [gaussian(), gaussian([0.0])]), "and the same arms"),
    (lambda: ModelMixture([0.5, 0.5], [gaussian(), MIXTURE]), "same kind of rewards"),
    (lambda: ModelMixture([0.5, 0.5], [gaussian(), gaussian(arms="ab")]), "same names of arms"),
    (
        lambda: ModelMixture([1.0], [gaussian()]).prior_given([1.0, 0.0, 0.0]),
        "a model's index, got [1. 0. 0.]",
    ),
    (lambda: ModelMixture([1.0], [gaussian()]).prior_given([]), "a model's index"),
    (lambda: linear().digest(LinearStats.zeros(3).add([1.0, 0.0, 0.0], 1.0)), "3"),
    (lambda: gaussian().digest(ArmStats.zeros(1).add(0, 1.0)), "1"),
    (lambda: gaussian().digest(ArmStats.zeros(3).add(0, 1.0)), "3"),
    (lambda: gaussian().digest(ArmStats.zeros(3).add(2, 1.0)), "3"),
    (lambda: gaussian().absorb(np.ones(1)), "(1,)"),
    (lambda: gaussian().widen([1.0, 2.0]), "factor"),
    (lambda: gaussian(arms="ab").with_arm("a", 0), "'a' comes twice"),
    (lambda: gaussian(arms="ab").with_arm("c", 7), "7"),
    (lambda: linear(noise=[1.0, 2.0]), "noise"),
]


@pytest.mark.parametrize(("build", "message"), BAD)
def test_bad_input_is_refused(build, message):
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        build()
    assert message in str(caught.value)
