"""Problems: what is drawn has the stated distribution, and what cannot be is refused."""

import json
import math

import numpy as np
import pytest

from adats import BetaArms, GaussianArms, PoissonArms
from adats.models.latent.family import FAMILIES
from adats.simulation import simulate
from adats.simulation.problems import (
    ClicksProblem,
    GaussianProblem,
    LinearProblem,
    MixtureProblem,
    RoutingProblem,
    SemibanditProblem,
)
from adats.simulation.problems.linear import unit_sphere
from adats.simulation.problems.problem import padded

GRAPH = {
    "network": "square",
    "edges": ((0, 1), (1, 2), (0, 3), (3, 2), (0, 2)),
    "lengths": (1.0, 1.0, 2.0, 2.0, 4.0),
    "source": 0,
    "target": 2,
}
BETAS = [BetaArms([2.0, 5.0], [5.0, 2.0]), BetaArms([8.0, 1.0], [2.0, 1.0])]
GAMMAS = [PoissonArms([2.0, 5.0], [1.0, 4.0]), PoissonArms([90.0, 1.0], [3.0, 1.0])]
BY_ARM = [[0.2, 0.9], [0.8, 0.1]]
GAUSSIAN_KINDS = [
    GaussianProblem(arms=3, meta_scale=0.5, task_scale=0.2, noise=1.5, meta_mean=2.0),
    LinearProblem(dim=3, arms=4, meta_scale=0.5, task_scale=0.2, noise=1.5),
    SemibanditProblem(arms=5, size=2, meta_scale=0.5, task_scale=0.2, noise=1.5),
    RoutingProblem(**GRAPH, meta_scale=0.05, task_scale=0.02, noise=1.5),
]
CLICKS = [
    ClicksProblem(4, 0.02, arm_scale=0.3, task_scale=0.2, level_scale=0.5),
    ClicksProblem(3, 1.5, arm_scale=0.1, task_scale=0.4, level_scale=0.3, rewards="count"),
]
ALL_KINDS = [
    *GAUSSIAN_KINDS,
    MixtureProblem([0.3, 0.7], BETAS),
    MixtureProblem(BY_ARM, BETAS),
    MixtureProblem([0.3, 0.7], GAMMAS),
    *CLICKS,
]
each_gaussian = pytest.mark.parametrize("problem", GAUSSIAN_KINDS, ids=lambda p: p.name)


def z(sample, mean):
    """How many standard errors the means of the columns are away from where they should be."""
    sample = np.asarray(sample, dtype=float)
    return np.abs(sample.mean(axis=0) - mean) / (sample.std(axis=0) / math.sqrt(len(sample)))


def starts(problem, count=4000, seed=0):
    rng = np.random.default_rng(seed)
    return np.array([problem.start(rng).mu for _ in range(count)])


def instances(problem, count=4000, rounds=3, seed=1):
    rng = np.random.default_rng(seed)
    start = problem.start(rng)
    return start, [problem.instance(start, rounds, rng) for _ in range(count)]


# what is drawn


@pytest.mark.statistical
@each_gaussian
def test_mu_has_the_meta_prior(problem):
    mean, mu = problem.meta().mean, starts(problem)
    assert (z(mu, mean) < 4).all()
    assert (z((mu - mean) ** 2, problem.meta_scale**2) < 4).all()


@pytest.mark.statistical
@each_gaussian
def test_theta_is_spread_around_mu_and_rewards_around_theta(problem):
    start, drawn = instances(problem)
    theta = np.array([instance.theta for instance in drawn])
    assert (z(theta, start.mu) < 4).all()
    assert (z((theta - start.mu) ** 2, problem.task_scale**2) < 4).all()
    noise = np.array([instance.draws.ravel() for instance in drawn])
    rewards = np.vectorize(problem.reward)(0.25, noise)
    assert (z(rewards, 0.25) < 4).all()
    assert (z((rewards - 0.25) ** 2, problem.noise**2) < 4).all()
    assert (z(noise[:, 0] * noise[:, 1], 0.0) < 4).all()
    assert (z((theta[:, 0] - start.mu[0]) * noise[:, 0], 0.0) < 4).all()


def test_the_prior_of_the_agents_is_the_one_that_is_drawn_from():
    gaussian, linear, semibandit, routing = (problem.meta() for problem in GAUSSIAN_KINDS)
    np.testing.assert_allclose(gaussian.mean, 2.0)
    np.testing.assert_allclose(routing.mean, -np.array([0.5, 0.5, 1.0, 1.0, 2.0]))  # mean 1
    np.testing.assert_allclose(gaussian.task_prior().scale, math.hypot(0.5, 0.2))
    np.testing.assert_allclose(semibandit.task_prior().scale, math.hypot(0.5, 0.2))
    np.testing.assert_allclose(linear.task_prior().cov, (0.5**2 + 0.2**2) * np.eye(3), atol=1e-12)
    assert linear.noise == 1.5


@pytest.mark.statistical
@pytest.mark.parametrize("weights", [[0.3, 0.7], BY_ARM])
@pytest.mark.parametrize("priors", [BETAS, GAMMAS])
def test_candidates_are_drawn_by_their_weights(weights, priors):
    problem = MixtureProblem(weights, priors)
    mu = starts(problem)
    assert mu.shape[1] == np.reshape(weights, (2, -1)).shape[1]
    assert (z(mu == 1, np.reshape(weights, (2, -1))[1]) < 4).all()


@pytest.mark.statistical
@pytest.mark.parametrize("priors", [BETAS, GAMMAS])
@pytest.mark.parametrize("mu", [0, 1, [1, 0]])
def test_theta_of_a_mixture_comes_from_its_candidate(priors, mu):
    separate = np.ndim(mu) == 1
    problem = MixtureProblem(BY_ARM if separate else [0.3, 0.7], priors, mu=mu)
    _, drawn = instances(problem)
    theta = np.array([instance.theta for instance in drawn])
    picked = np.broadcast_to(mu, (2,))
    mean = np.array([priors[j].mean[arm] for arm, j in enumerate(picked)])
    scale = np.array([priors[j].scale[arm] for arm, j in enumerate(picked)])
    assert (z(theta, mean) < 4).all()
    assert (z((theta - mean) ** 2, scale**2) < 4).all()


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("priors", "mean", "variance"), [(BETAS, 0.3, 0.21), (GAMMAS, 0.3, 0.3), (GAMMAS, 25.0, 25.0)]
)
def test_rewards_of_a_mixture_have_their_mean_and_variance(priors, mean, variance):
    problem = MixtureProblem([0.3, 0.7], priors)
    _, drawn = instances(problem)
    rewards = [problem.reward(mean, float(instance.draws[0])) for instance in drawn]
    assert all(reward >= 0 and reward == int(reward) for reward in rewards)
    assert z(rewards, mean) < 4
    assert z((np.array(rewards) - mean) ** 2, variance) < 4


@pytest.mark.statistical
@pytest.mark.parametrize("problem", CLICKS, ids=lambda p: p.rewards)
def test_clicks_have_a_base_rate_a_spread_and_a_level(problem):
    eta = FAMILIES[problem.rewards].eta
    mu = starts(problem)
    assert (z(mu, eta(problem.base)) < 4).all()
    assert (z((mu - eta(problem.base)) ** 2, problem.arm_scale**2) < 4).all()
    assert z((mu[:, 0] - eta(problem.base)) * (mu[:, 1] - eta(problem.base)), 0.0) < 4
    start, drawn = instances(problem)
    away = eta(np.array([instance.theta for instance in drawn])) - start.mu
    assert (z(away, 0.0) < 4).all()
    assert (z(away**2, problem.task_scale**2 + problem.level_scale**2) < 4).all()
    assert z(away[:, 0] * away[:, 1], problem.level_scale**2) < 4  # what the arms share


@pytest.mark.statistical
@pytest.mark.parametrize("problem", CLICKS, ids=lambda p: p.rewards)
def test_rewards_of_clicks_have_their_mean_and_variance(problem):
    mean = 0.3
    _, drawn = instances(problem)
    rewards = np.array([problem.reward(mean, float(i.draws[0])) for i in drawn])
    assert z(rewards, mean) < 4
    assert z((rewards - mean) ** 2, mean if problem.counts else mean * (1 - mean)) < 4


def test_what_agents_are_told_of_clicks():
    told = CLICKS[0].meta()
    assert told.figures()["task_scale"].tolist() == [0.2]
    assert told.figures()["level_scale"].tolist() == [0.5]
    base = told.meta_cov[0, 0, 1]  # the variance of the base rate, which is not told
    np.testing.assert_allclose(told.meta_cov[0], base + 0.3**2 * np.eye(4))
    assert len(CLICKS[0].default().figures()["task_scale"]) > 1
    np.testing.assert_allclose(CLICKS[0].pooled().task_prior().mean, 0.5)


@pytest.mark.parametrize("problem", ALL_KINDS, ids=lambda p: p.name)
def test_tasks_differ_and_the_rng_alone_decides(problem):
    start, (first, second) = instances(problem, count=2, rounds=7)
    assert len(first.draws) == 7
    assert not np.array_equal(first.theta, second.theta)
    assert not np.array_equal(first.draws, second.draws)
    again_start, (again, _) = instances(problem, count=2, rounds=7)
    np.testing.assert_array_equal(again_start.mu, start.mu)
    np.testing.assert_array_equal(again.theta, first.theta)
    np.testing.assert_array_equal(again.draws, first.draws)


@pytest.mark.parametrize(
    "problem",
    [
        GaussianProblem(arms=3, mu=[1, 2, 3]),
        LinearProblem(dim=3, mu=[1, 2, 3]),
        SemibanditProblem(arms=3, size=2, mu=[1, 2, 3]),
        RoutingProblem(
            **{**GRAPH, "edges": GRAPH["edges"][:3], "lengths": (1, 1, 1)}, mu=[1, 2, 3]
        ),
    ],
    ids=lambda p: p.name,
)
def test_a_fixed_mu_is_the_mu_of_every_run(problem):
    np.testing.assert_array_equal(starts(problem, 3), [[1, 2, 3]] * 3)
    assert problem.describe()["mu"] == [1.0, 2.0, 3.0]


def test_a_fixed_candidate_is_the_candidate_of_every_run():
    problem = MixtureProblem([0.5, 0.5], BETAS, mu=1)
    np.testing.assert_array_equal(starts(problem, 3), [[1]] * 3)
    assert problem.describe()["mu"] == [1.0]


# the arms of a linear bandit


@pytest.mark.statistical
@pytest.mark.parametrize("dim", [1, 2, 5])
def test_the_unit_sphere(dim):
    points = unit_sphere(np.random.default_rng(dim), 4000, dim)
    np.testing.assert_allclose(np.linalg.norm(points, axis=1), 1.0, rtol=1e-12)
    assert (z(points, 0.0) < 4).all()
    if dim > 1:
        assert (z(points**2, 1 / dim) < 4).all()
        assert z(points[:, 0] * points[:, 1], 0.0) < 4


@pytest.mark.parametrize("redraw", ["run", "round"])
def test_arms_are_drawn_once_a_run_or_every_round(redraw):
    problem = LinearProblem(dim=3, arms=6, redraw=redraw)
    start, drawn = instances(problem, count=2, rounds=4)
    rows = np.array([[instance.rows(t) for t in range(4)] for instance in drawn]).reshape(8, 6, 3)
    np.testing.assert_allclose(np.linalg.norm(rows, axis=2), 1.0)
    assert len(np.unique(rows.reshape(8, -1), axis=0)) == (1 if redraw == "run" else 8)
    np.testing.assert_allclose(drawn[1].means(2), rows[6] @ drawn[1].theta)
    other = problem.start(np.random.default_rng(99))
    if redraw == "run":
        assert not np.array_equal(other.features, start.features)
    else:
        with pytest.raises(ValueError, match="stay the same"):
            problem.first(start)


# forced exploration


@pytest.mark.parametrize("problem", ALL_KINDS, ids=lambda p: p.name)
def test_forced_exploration_sees_every_arm_or_direction(problem):
    start = problem.start(np.random.default_rng(0))
    first = problem.first(start)
    pulled = np.unique(first[first >= 0])
    if isinstance(problem, LinearProblem):
        assert len(first) == np.linalg.matrix_rank(start.features[0][pulled]) == problem.dim
    else:
        np.testing.assert_array_equal(pulled, np.arange(problem.meta().n_arms))


def test_forced_exploration_of_a_network_follows_paths():
    problem = RoutingProblem(**GRAPH)
    for row in problem.first(problem.start(np.random.default_rng(0))):
        assert row[row >= 0].tolist() in ([0, 1], [2, 3], [4])


def test_padded_rows():
    rows = padded([np.array([3]), np.array([0, 2])])
    np.testing.assert_array_equal(rows, [[3, -1], [0, 2]])


# latencies at the floor


def test_true_latencies_are_clipped_at_the_floor():
    problem = RoutingProblem(**GRAPH, floor=0.4, meta_scale=0.0, task_scale=0.3)
    _, drawn = instances(problem, count=500)
    theta = np.array([instance.theta for instance in drawn])
    assert theta.max() == -0.4
    low = problem.meta().mean + 0.3 * 4 < -0.4  # this edge is never near the floor
    assert (theta == -0.4).any(axis=0)[~low].all()
    assert (theta[:, low] < -0.4).all()
    assert low.any()
    assert not low.all()


def test_sampled_latencies_are_clipped_at_the_floor():
    problem = RoutingProblem(**GRAPH, floor=0.5)
    sampled = np.array([3.0, 3.0, 9.0, -9.0, -0.8])  # minus latency
    assert problem.oracle(sampled).tolist() == [4]  # 0.8 against 2 × 0.5
    assert RoutingProblem(**GRAPH, floor=0.3).oracle(sampled).tolist() == [0, 1]


def test_lengths_are_in_units_of_their_mean():
    doubled = RoutingProblem(**{**GRAPH, "lengths": tuple(2 * x for x in GRAPH["lengths"])})
    np.testing.assert_allclose(doubled.lengths, RoutingProblem(**GRAPH).lengths)
    assert np.mean(doubled.lengths) == pytest.approx(1.0)


# settings


@pytest.mark.parametrize("problem", ALL_KINDS, ids=lambda p: p.name)
def test_describe_is_plain_json(problem):
    settings = problem.describe()
    assert settings["name"] == problem.name
    assert json.loads(json.dumps(settings, allow_nan=False)) == settings


@pytest.mark.parametrize(
    "problem",
    [
        GaussianProblem(arms=np.int64(3), noise=np.float32(0.5)),
        LinearProblem(dim=np.int32(3), arms=np.int64(4)),
        SemibanditProblem(arms=np.int64(3), size=np.int64(2), meta_scale=np.float32(0.5)),
        RoutingProblem(**{**GRAPH, "source": np.int64(0)}, floor=np.float32(0.1)),
        ClicksProblem(np.int64(3), base=np.float32(0.1), level_scale=np.int64(1), mu=np.zeros(3)),
    ],
    ids=lambda p: p.name,
)
def test_describe_is_plain_json_for_numbers_of_numpy(problem):
    assert json.loads(json.dumps(problem.describe()))["name"] == problem.name


def test_names():
    assert [p.name for p in ALL_KINDS] == [
        *("gaussian", "linear", "semibandit", "routing"),
        *("binary", "binary", "count"),
        *("clicks", "clicks"),
    ]


# what is refused


def routing(**changes):
    return RoutingProblem(**{**GRAPH, **changes})


def mixture(weights=(0.3, 0.7), priors=BETAS, mu=None):
    return MixtureProblem(weights, priors, mu)


@pytest.mark.parametrize(
    ("kind", "given", "message"),
    [
        (GaussianProblem, {"arms": 0}, "arms .* 0"),
        (GaussianProblem, {"arms": -2}, "arms .* -2"),
        (GaussianProblem, {"arms": 2.5}, "arms .* 2.5"),
        (GaussianProblem, {"arms": True}, "arms .* True"),
        (GaussianProblem, {"arms": "2"}, "arms .* '2'"),
        (GaussianProblem, {"meta_scale": -0.5}, "meta_scale .* -0.5"),
        (GaussianProblem, {"task_scale": math.nan}, "task_scale .* nan"),
        (GaussianProblem, {"noise": 0.0}, "noise .* 0.0"),
        (GaussianProblem, {"noise": math.inf}, "noise .* inf"),
        (GaussianProblem, {"noise": "loud"}, "noise .* 'loud'"),
        (GaussianProblem, {"meta_mean": math.nan}, "mean .* nan"),
        (GaussianProblem, {"meta_mean": "high"}, "mean .* 'high'"),
        (GaussianProblem, {"arms": 3, "mu": [1.0, 2.0]}, r"mu .*\(3,\).*\(2,\)"),
        (GaussianProblem, {"mu": [1.0, math.nan]}, "mu .* nan"),
        (LinearProblem, {"dim": 0}, "dim .* 0"),
        (LinearProblem, {"arms": 0}, "arms .* 0"),
        (LinearProblem, {"meta_scale": -1}, "meta_scale .* -1"),
        (LinearProblem, {"task_scale": -1}, "task_scale .* -1"),
        (LinearProblem, {"noise": 0}, "noise .* 0"),
        (LinearProblem, {"redraw": "task"}, "'run' or 'round', got 'task'"),
        (LinearProblem, {"dim": 2, "mu": 1.0}, r"mu .*\(2,\).*\(\)"),
        (SemibanditProblem, {"arms": 4, "size": 5}, "5 .* 4"),
        (SemibanditProblem, {"size": 0}, "size .* 0"),
        (SemibanditProblem, {"arms": 0, "size": 1}, "arms .* 0"),
        (SemibanditProblem, {"noise": -1}, "noise .* -1"),
        (routing, {"floor": 0.0}, "floor .* 0.0"),
        (routing, {"floor": -1.0}, "floor .* -1.0"),
        (routing, {"noise": 0.0}, "noise .* 0.0"),
        (routing, {"lengths": (1.0,)}, "5 edges .*1,"),
        (routing, {"lengths": (1.0, -1.0, 1.0, 1.0, 1.0)}, "lengths .* -1.0"),
        (routing, {"source": 9}, "source .* 9"),
        (routing, {"target": 0}, "0; give two nodes"),
        (routing, {"mu": [1.0]}, r"mu .*\(5,\).*\(1,\)"),
        (mixture, {"weights": [0.5, 0.6]}, "weights .* 1.1"),
        (mixture, {"weights": [1.0]}, r"weights .*\(1,\)"),
        (mixture, {"mu": 2}, "mu .* 2"),
        (mixture, {"mu": 0.5}, "mu .* 0.5"),
        (ClicksProblem, {"arms": 0}, "arms .* 0"),
        (ClicksProblem, {"base": 0.0}, "base .* 0.0"),
        (ClicksProblem, {"base": 1.0}, "base must be below 1.0, got 1.0"),
        (ClicksProblem, {"base": math.nan}, "base .* nan"),
        (ClicksProblem, {"base": -1.0, "rewards": "count"}, "base .* -1.0"),
        (ClicksProblem, {"arm_scale": -0.1}, "arm_scale .* -0.1"),
        (ClicksProblem, {"task_scale": math.inf}, "task_scale .* inf"),
        (ClicksProblem, {"level_scale": "high"}, "level_scale .* 'high'"),
        (ClicksProblem, {"rewards": "number"}, "'binary' or 'count', got 'number'"),
        (ClicksProblem, {"arms": 2, "mu": [1.0]}, r"mu .* 2 numbers, got \(1,\)"),
        (ClicksProblem, {"arms": 1, "mu": [math.nan]}, "mu .* nan"),
        (mixture, {"priors": [GaussianArms([0.0], 1.0, 1.0)] * 2}, "GaussianArms has no reward_at"),
    ],
)
def test_what_cannot_be_is_refused(kind, given, message):
    with pytest.raises(ValueError, match=message):
        kind(**given)


def test_a_target_that_cannot_be_reached_is_an_error():
    problem = routing(edges=((0, 1), (2, 3)), lengths=(1.0, 1.0), target=3)
    with pytest.raises(ValueError, match="no path leads from 0 to 3"):
        simulate(problem, ["ts"], tasks=1, rounds=2, runs=1, seed=0)
