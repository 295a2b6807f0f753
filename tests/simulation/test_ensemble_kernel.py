"""The compiled loops over several models make the decisions of the plain loop, draw for draw."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from adats import BeliefMixture, GaussianArms, GaussianMeta, LinearBelief, LinearMeta, ModelMixture
from adats.simulation.kernels.common import pick_by_logs
from adats.simulation.kernels.linear import no_data, rank_one
from adats.simulation.kernels.registry import absorb_of
from adats.simulation.one_task import plain_task
from adats.simulation.problems import GaussianProblem, LinearProblem
from loops import compiled_task

ROUNDS = 60
NONE_FIRST = np.zeros((0, 1), dtype=np.intp)


def agree(problem, meta=None, *, prior=None, explore_first=False, seed=0, rounds=ROUNDS, tasks=4):
    """Play tasks both ways, each from what the earlier ones taught; the regrets of all of them."""
    world = np.random.default_rng([seed, 1])
    start = problem.start(world)
    first = problem.first(start) if explore_first else NONE_FIRST
    meta = problem.candidates() if meta is None else meta
    regrets = []
    for task in range(tasks):
        instance = problem.instance(start, rounds, world)
        belief = meta.task_prior() if prior is None else prior
        assert isinstance(belief, BeliefMixture)
        found = []
        for plain in (False, False, True):
            rng, regret = np.random.default_rng([seed, 2, task]), np.full(rounds, np.nan)
            play = plain_task if plain else compiled_task
            stats = play(problem, belief, instance, first, rng, regret)
            found.append((regret, stats, rng.bit_generator.state))
        (regret, stats, state), again, (expected, reference, left) = found
        np.testing.assert_array_equal(regret, again[0])  # nothing is kept between calls
        np.testing.assert_array_equal(stats.flat(), again[1].flat())
        np.testing.assert_allclose(regret, expected, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(stats.flat(), reference.flat(), rtol=1e-9, atol=1e-9)
        assert type(stats) is type(reference)
        assert state == left
        slow = meta.absorb(meta.digest(stats).message)
        meta = absorb_of(problem, meta)(meta, stats)
        np.testing.assert_allclose(meta.weights, slow.weights, rtol=1e-7, atol=1e-12)
        np.testing.assert_allclose(meta.mean, slow.mean, rtol=1e-9, atol=1e-12)
        regrets.append(regret)
    return np.array(regrets)


# Gaussian arms


@pytest.mark.parametrize("explore_first", [False, True])
@pytest.mark.parametrize("arms", [1, 2, 7])
def test_gaussian(arms, explore_first):
    problem = GaussianProblem(arms=arms, task_scale=0.3, noise=0.7)
    regrets = agree(problem, explore_first=explore_first, tasks=6)
    assert (regrets.max() > 0) == (arms > 1)


def test_gaussian_models_may_differ_in_all_they_say():
    models = [
        GaussianMeta([0.5, 0.0, -1.0], 1.0, task_scale=[0.1, 1.0, 0.0], noise=0.5),
        GaussianMeta([0.0, 0.0, 0.0], 0.3, task_scale=0.7, noise=[0.7, 0.9, 2.0]),
        GaussianMeta([0.0, 0.2, 0.4], 0.0, task_scale=0.0, noise=0.7),
    ]
    problem = GaussianProblem(arms=3, meta_scale=1.0, task_scale=0.7, noise=0.7)
    assert agree(problem, ModelMixture([0.5, 0.3, 0.2], models), tasks=8).max() > 0


@pytest.mark.parametrize("logs", [[-900.0, -800.0, -801.0], [-np.inf, 3.0, 3.0], [0.0, -5e3, -9e9]])
def test_gaussian_with_any_log_weights(logs):
    beliefs = tuple(GaussianArms(np.zeros(4), scale, 0.7) for scale in (0.05, 0.4, 2.0))
    problem = GaussianProblem(arms=4, task_scale=0.4, noise=0.7)
    agree(problem, prior=BeliefMixture.of(np.array(logs), beliefs), tasks=8)


def test_gaussian_weights_recover_within_a_task():
    """The model that fits has a weight that is no float at first: it must not be lost."""
    beliefs = (GaussianArms([0.0, 0.0], 0.01, 0.1), GaussianArms([0.0, 0.0], 3.0, 0.1))
    prior = BeliefMixture.of(np.array([0.0, -800.0]), beliefs)
    problem = GaussianProblem(arms=2, mu=[1.0, 2.0], task_scale=0.0, noise=0.1)
    regrets = agree(problem, prior=prior)
    assert regrets[:, :5].max() == 1.0
    assert regrets[:, -20:].max() == 0.0  # the wide model has taken over


def test_fewer_rounds_than_arms_to_explore():
    problem = GaussianProblem(arms=5, mu=[0.0, 1, 2, 3, 4], task_scale=0.0)
    regrets = agree(problem, rounds=3, explore_first=True)
    np.testing.assert_allclose(regrets, np.tile([4.0, 3.0, 2.0], (4, 1)))


# linear bandits


@pytest.mark.parametrize("dim", [1, 2, 3, 5])
@pytest.mark.parametrize(
    ("redraw", "explore_first"), [("run", False), ("run", True), ("round", False)]
)
def test_linear(dim, redraw, explore_first):
    problem = LinearProblem(dim=dim, arms=5 * dim, task_scale=0.4, noise=0.5, redraw=redraw)
    assert agree(problem, explore_first=explore_first, seed=20 + dim).max() > 0


def test_linear_models_may_differ_in_all_they_say():
    half = np.random.default_rng(3).normal(size=(3, 1))
    models = [
        LinearMeta([0.5, 0.0, -1.0], 1.0, task_cov=0.01, noise=0.5),
        LinearMeta([0.0, 0.0, 0.0], half @ half.T, task_cov=np.diag([1.0, 0.0, 0.2]), noise=0.9),
        LinearMeta([0.0, 0.2, 0.4], 0.0, task_cov=0.0, noise=2.0),
    ]
    problem = LinearProblem(dim=3, arms=9, task_scale=0.7, noise=0.7)
    assert agree(problem, ModelMixture([0.5, 0.3, 0.2], models), tasks=8).max() > 0


@pytest.mark.parametrize("logs", [[-900.0, -800.0, -801.0], [-np.inf, 3.0, 3.0]])
def test_linear_with_any_log_weights(logs):
    beliefs = tuple(LinearBelief(np.zeros(3), scale, 0.7) for scale in (0.01, 0.2, 4.0))
    problem = LinearProblem(dim=3, arms=8, task_scale=0.4, noise=0.7)
    agree(problem, prior=BeliefMixture.of(np.array(logs), beliefs), tasks=8)


def test_linear_many_rounds_without_drift():
    agree(LinearProblem(dim=4, arms=12, task_scale=1.0, noise=0.2), rounds=1500, tasks=1)


def test_linear_with_one_round():
    agree(LinearProblem(dim=3, arms=5, redraw="round"), rounds=1)


def test_a_mixture_of_one_is_that_model():
    for problem in (GaussianProblem(arms=3), LinearProblem(dim=2, arms=5)):
        agree(problem, problem.candidates([0.1]))


# the parts


def test_update_is_conditioning_with_the_density_of_the_reward():
    rng = np.random.default_rng(5)
    size, noise = 4, 0.6
    columns, diagonal, scale = no_data(size)
    rows, rewards, logs = rng.normal(size=(9, size)), rng.normal(size=9), 0.0
    for row, y in zip(rows, rewards, strict=True):
        x = np.append(row, y)
        precision = rank_one(columns, diagonal, scale, x, noise**-2)
        logs += 0.5 * (np.log(precision / (2 * np.pi)) - precision * x[-1] ** 2)
    lower = np.eye(size) + np.tril(columns[:, :size].T, -1)
    exact = np.eye(size) + rows.T @ rows / noise**2
    np.testing.assert_allclose(lower @ np.diag(diagonal) @ lower.T, exact, rtol=1e-12)
    np.testing.assert_allclose(scale**-2, diagonal, rtol=1e-12)
    mean = np.linalg.solve(lower.T, columns[:, size])
    np.testing.assert_allclose(exact @ mean, rows.T @ rewards / noise**2, rtol=1e-11)
    joint = multivariate_normal(np.zeros(9), rows @ rows.T + noise**2 * np.eye(9))
    assert logs == pytest.approx(joint.logpdf(rewards), rel=1e-12)


def test_pick_goes_by_the_weights():
    logs, cumulative = np.log([0.2, 0.5, 0.3]) - 700.0, np.empty(3)
    picked = [
        pick_by_logs(logs, cumulative, point) for point in (0.0, 0.19, 0.21, 0.69, 0.71, 1 - 2**-53)
    ]
    assert picked == [0, 0, 1, 1, 2, 2]
    impossible = np.array([-np.inf, 0.0, -np.inf])
    assert [pick_by_logs(impossible, cumulative, point) for point in (0.0, 0.5, 1 - 2**-53)] == [
        1
    ] * 3
