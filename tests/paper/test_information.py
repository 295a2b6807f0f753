"""What histories have told: against the joint Gaussian written out, and never above Lemma 4."""

import numpy as np
import pytest

from adats.paper.bounds import arm_bounds, information_bounds
from adats.paper.experiments.panels import start_of
from adats.paper.information import realised_information
from adats.simulation import simulate
from adats.simulation.problems import GaussianProblem, LinearProblem

META = np.array([[1.0, 0.3], [0.3, 0.5]])
TASK = np.array([[0.2, -0.1], [-0.1, 0.1]])


def log_det(matrix):
    return np.linalg.slogdet(matrix)[1]


def test_against_the_covariance_of_all_rewards():
    """I(X; Y) = ½ log det Cov(Y) / det Cov(Y | X), with the rewards Y of all tasks."""
    rng, noise = np.random.default_rng(1), 0.7
    rows = [rng.normal(size=(n, 2)) for n in (3, 1, 4)]
    told = realised_information(
        meta_cov=META, task_cov=TASK, noise=noise, grams=[x.T @ x for x in rows]
    )
    for s in range(3):
        x = np.concatenate(rows[: s + 1])
        same = np.equal.outer(*[np.repeat(range(s + 1), [len(r) for r in rows[: s + 1]])] * 2)
        given_mu = same * (x @ TASK @ x.T) + noise**2 * np.eye(len(x))
        joint = given_mu + x @ META @ x.T
        assert told.meta[s] == pytest.approx((log_det(joint) - log_det(given_mu)) / 2)
        own = rows[s] @ TASK @ rows[s].T + noise**2 * np.eye(len(rows[s]))
        noise_alone = noise**2 * np.eye(len(rows[s]))
        assert told.task[s] == pytest.approx((log_det(own) - log_det(noise_alone)) / 2)
        posterior = np.linalg.inv(np.linalg.inv(TASK) + rows[s].T @ rows[s] / noise**2)
        entropy = log_det(2 * np.pi * np.e * posterior) / 2
        assert told.task_entropy[s] == pytest.approx(entropy)
    assert told.prior_entropy == pytest.approx(log_det(2 * np.pi * np.e * META) / 2)
    np.testing.assert_allclose(told.prior_entropy - told.meta_entropy, told.meta)


def test_the_entropy_is_that_of_the_agents_belief():
    problem = GaussianProblem(2, meta_cov=META, task_cov=TASK)
    meta, pulls = problem.meta(), [[3, 1], [0, 2]]
    told = realised_information(meta_cov=META, task_cov=TASK, noise=1.0, pulls=pulls)
    for s, task in enumerate(pulls):
        stats = meta.empty()
        for arm, count in enumerate(task):
            for _ in range(count):
                stats = stats.add(np.eye(2)[arm], 1.0)
        meta = meta.absorb(meta.digest(stats).message)
        assert told.meta_entropy[s] == pytest.approx(log_det(2 * np.pi * np.e * meta.cov) / 2)


def test_singular_covariances_and_stacks():
    pulls = np.array([[[2, 0], [1, 1]], [[0, 0], [5, 0]]])
    told = realised_information(meta_cov=np.diag([1.0, 0.0]), task_cov=0.0, noise=1.0, pulls=pulls)
    np.testing.assert_allclose(told.meta, np.log1p([[2, 3], [0, 5]]) / 2)
    np.testing.assert_array_equal(told.task, 0)
    assert told.prior_entropy == told.task_prior_entropy == -np.inf


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "one of both"),
        ({"pulls": [[1]], "grams": [[[1.0]]]}, "one of both"),
        ({"pulls": [1, 2]}, r"pulls must have shape \(\.\.\., tasks, arms\)"),
        ({"pulls": [[1, -2]]}, "pulls must not be negative"),
        ({"grams": [[1.0, 2.0]]}, r"grams must have shape"),
    ],
)
def test_bad_input(given, message):
    with pytest.raises(ValueError, match=message):
        realised_information(meta_cov=1.0, task_cov=1.0, noise=1.0, **given)


SIZES = {"tasks": 15, "rounds": 60}
PAPER = ("oracle-ts", "ada-ts", "meta-ts", "ts")


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize(
    "spreads",
    [
        {},
        {"meta_scale": [1.0, 0.0, 2.0], "task_scale": [0.0, 0.5, 0.1]},
        {"task_cov": np.diag([1, 1, 2]) - 0.3},
    ],
)
def test_real_histories_never_exceed_the_bounds(spreads, first):
    problem = GaussianProblem(3, noise=0.8, **spreads)
    runs = {"runs": 8, "seed": 5, "explore_first": first, "record": True}
    got = simulate(problem, PAPER, **SIZES, **runs)
    pulls = (got.actions[..., None] == np.arange(3)).sum(axis=-2)
    model = {
        "meta_cov": problem.meta_spread(), "task_cov": problem.task_spread(), "noise": 0.8
    }  # fmt: skip
    told = realised_information(pulls=pulls, **model)
    assert told.meta.shape == (4, 8, 15)
    for s in range(1, 16):
        bound = information_bounds(tasks=s, rounds=60, dim=3, **model)
        assert (told.meta[..., s - 1] <= bound.meta * (1 + 1e-12)).all()
        assert (told.task[..., s - 1] <= bound.task * (1 + 1e-12)).all()
    if "task_cov" not in spreads:
        arms = arm_bounds(
            task=1, **SIZES, arms=3, noise=0.8,
            meta_scale=problem.meta_scale, task_scale=problem.task_scale,
        )  # fmt: skip
        assert (told.meta[..., -1] <= arms.meta_information.sum()).all()
        assert (told.task <= arms.task_information.sum()).all()


def test_linear_histories_never_exceed_the_bounds():
    problem = LinearProblem(3, 7)
    got = simulate(problem, PAPER, **SIZES, runs=6, seed=5, record=True)
    features = np.stack([start_of(problem, 5, run).features[0] for run in range(6)])
    pulled = features[np.arange(6)[None, :, None, None], got.actions]
    grams = np.swapaxes(pulled, -1, -2) @ pulled
    np.testing.assert_allclose(np.trace(grams, axis1=-2, axis2=-1), 60)  # arms of length 1
    model = {"meta_cov": 1.0, "task_cov": 0.01, "noise": 1.0}
    told = realised_information(grams=grams, **model)
    for s in range(1, 16):
        bound = information_bounds(tasks=s, rounds=60, dim=3, **model)
        assert (told.meta[..., s - 1] <= bound.meta).all()
        assert (told.task[..., s - 1] <= bound.task).all()


def test_the_start_of_a_run_is_that_of_the_simulator():
    """The regret of what was pulled, from the features and mu_* that are drawn again."""
    problem = LinearProblem(2, 4, task_scale=0.0)
    got = simulate(problem, ["ts"], tasks=2, rounds=9, runs=3, seed=6, record=True)
    for run in range(3):
        start = start_of(problem, 6, run)
        means = start.features[0] @ start.mu
        lost = (means.max() - means[got.actions[0, run]]).sum(axis=1)
        np.testing.assert_allclose(got.regret[0, run], lost)
