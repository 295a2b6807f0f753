"""Problems whose arms differ in their spreads, or move together."""

import json

import numpy as np
import pytest

from adats.simulation import simulate
from adats.simulation.kernels import registry
from adats.simulation.problems import GaussianProblem, LinearProblem, SemibanditProblem

COV = np.array([[1.0, 0.6, 0.0], [0.6, 0.5, 0.1], [0.0, 0.1, 0.3]])
TASK = np.array([[0.2, -0.1, 0.0], [-0.1, 0.1, 0.0], [0.0, 0.0, 0.0]])
SCALES = np.array([0.0, 0.5, 2.0])
KINDS = {
    "gaussian": lambda **spreads: GaussianProblem(3, **spreads),
    "linear": lambda **spreads: LinearProblem(3, 5, **spreads),
    "semibandit": lambda **spreads: SemibanditProblem(3, 2, **spreads),
}
every_kind = pytest.mark.parametrize("kind", KINDS)
PAPER = ["oracle-ts", "ada-ts", "meta-ts", "ts"]


def drawn(problem, count=20_000):
    """mu_* of many runs, and theta of many tasks around one of them."""
    rng = np.random.default_rng(1)
    mus = np.array([problem.start(rng).mu for _ in range(count)])
    start = problem.start(rng)
    thetas = np.array([problem.instance(start, 1, rng).theta for _ in range(count)])
    return mus, thetas - start.mu


def assert_covariance(draws, cov):
    """Of a Gaussian: the standard error of an entry is √((c_ij² + c_ii c_jj) / n)."""
    spread = np.sqrt((cov**2 + np.outer(np.diag(cov), np.diag(cov))) / len(draws))
    assert (np.abs(np.cov(draws.T) - cov) <= 5 * spread + 1e-12).all()


@every_kind
def test_what_is_drawn_has_the_scales_of_each_arm(kind):
    mus, thetas = drawn(KINDS[kind](meta_scale=SCALES, task_scale=SCALES[::-1]))
    assert_covariance(mus, np.diag(SCALES**2))
    assert_covariance(thetas, np.diag(SCALES[::-1] ** 2))


@every_kind
def test_what_is_drawn_has_the_covariances(kind):
    mus, thetas = drawn(KINDS[kind](meta_cov=COV, task_cov=TASK))
    assert_covariance(mus, COV)
    assert_covariance(thetas, TASK)


@every_kind
def test_agents_are_told_what_is_drawn(kind):
    one = KINDS[kind](meta_scale=SCALES, task_cov=TASK).meta()
    np.testing.assert_allclose(one.meta_cov, np.diag(SCALES**2))
    np.testing.assert_allclose(one.task_cov, TASK)
    meta = KINDS[kind](meta_scale=SCALES, task_scale=[1.0, 2.0, 0.0]).meta()
    prior = meta.task_prior()
    np.testing.assert_allclose(prior.scale, np.sqrt(SCALES**2 + [1.0, 4.0, 0.0]))


@pytest.mark.parametrize("kind", ["gaussian", "semibandit"])
def test_equal_scales_are_one_number(kind):
    sizes = {"tasks": 4, "rounds": 30, "runs": 4, "seed": 2}
    number = simulate(KINDS[kind](meta_scale=0.7, task_scale=0.2), PAPER, **sizes).regret
    each = {"meta_scale": np.full(3, 0.7), "task_scale": np.full(3, 0.2)}
    np.testing.assert_array_equal(simulate(KINDS[kind](**each), PAPER, **sizes).regret, number)


@pytest.mark.parametrize("kind", ["gaussian", "semibandit"])
def test_a_diagonal_covariance_is_as_good_as_scales(kind):
    sizes = {"tasks": 5, "rounds": 40, "runs": 60, "seed": 3}
    cov = {"meta_cov": np.diag(SCALES**2), "task_cov": 0.04 * np.eye(3)}
    joint = simulate(KINDS[kind](**cov), ["ada-ts"], **sizes)
    apart = simulate(KINDS[kind](meta_scale=SCALES, task_scale=0.2), ["ada-ts"], **sizes)
    difference = joint.total("ada-ts") - apart.total("ada-ts")  # other draws of the same beliefs
    assert abs(difference.mean()) < 4 * difference.std(ddof=1) / np.sqrt(60)


@pytest.mark.parametrize("spreads", [{"meta_scale": SCALES}, {"meta_cov": COV, "task_cov": TASK}])
@every_kind
def test_compiled_loops_and_the_plain_one_decide_alike(kind, spreads, monkeypatch):
    problem, sizes = KINDS[kind](**spreads), {"tasks": 3, "rounds": 25, "runs": 2, "seed": 4}
    compiled = simulate(problem, PAPER, **sizes).regret
    monkeypatch.setattr(registry, "has_numba", lambda: False)
    with pytest.warns(UserWarning, match="Numba"):
        plain = simulate(problem, PAPER, **sizes).regret
    np.testing.assert_allclose(compiled, plain, atol=1e-9)


@every_kind
def test_settings_are_plain_values(kind):
    settings = KINDS[kind](meta_scale=SCALES, task_cov=TASK).describe()
    assert json.loads(json.dumps(settings)) == settings
    assert settings["meta_scale"] == SCALES.tolist()
    assert settings["task_cov"] == TASK.tolist()
    assert not {"meta_cov", "task_scale"} & set(settings)


@every_kind
@pytest.mark.parametrize(
    ("spreads", "message"),
    [
        (
            {"meta_scale": [1.0, 2.0]},
            r"meta_scale must be a number or have shape \(3,\), got \(2,\)",
        ),
        ({"task_scale": [1.0, -2.0, 0.0]}, "task_scale must not be negative"),
        ({"task_cov": np.eye(2)}, r"task_cov must be a number or have shape \(3, 3\)"),
        ({"meta_cov": -np.eye(3)}, "meta_cov must be positive semi-definite"),
    ],
)
def test_bad_spreads(kind, spreads, message):
    with pytest.raises(ValueError, match=message):
        KINDS[kind](**spreads)


def test_candidates_for_the_spread_are_for_scales():
    problem = GaussianProblem(3, meta_cov=COV)
    with pytest.raises(ValueError, match="for scales, not for covariances"):
        simulate(problem, ["ada-grid"], tasks=1, rounds=1, runs=1, seed=1)
