"""Linear models with little noise: within 1e-3 of a standard deviation, or an error."""

import math

import numpy as np
import pytest

import adats
from adats.models.core import linalg
from adats.simulation import simulate
from adats.simulation.problems import LinearProblem

NOISES = 10.0 ** -np.arange(2.0, 13.0)


def exact(rows, rewards, noise):
    """Mean and scale under N(0, I): QR of [X/σ; I], so no Gram matrix is formed."""
    dim = rows.shape[1]
    tall = np.vstack([rows / noise, np.eye(dim)])
    q, r = np.linalg.qr(tall)
    inverse = np.linalg.inv(r)
    mean = inverse @ (q.T @ np.append(rewards / noise, np.zeros(dim)))
    return mean, np.linalg.norm(inverse, axis=1)


def data(dim, distinct, noise, seed):
    rng = np.random.default_rng(seed)
    rows = np.repeat(rng.normal(size=(distinct, dim)), 3, axis=0)
    return rows, rows @ rng.normal(size=dim) + noise * rng.normal(size=len(rows))


def moved(belief, rows, rewards, noise):
    """By how many standard deviations the mean is off, or the scale by what part of itself."""
    mean, scale = exact(rows, rewards, noise)
    return max(np.abs((belief.mean - mean) / scale).max(), np.abs(belief.scale / scale - 1).max())


def by_condition(dim, noise, rows, rewards):
    belief = adats.LinearBelief(np.zeros(dim), np.eye(dim), noise)
    return belief.condition(adats.LinearStats.zeros(dim).add(rows, rewards)).belief


def by_digest(dim, noise, rows, rewards, *, task_cov, cov):
    meta = adats.LinearMeta(np.zeros(dim), cov, task_cov=task_cov, noise=noise)
    digest = meta.digest(meta.empty().add(rows, rewards))
    return meta.absorb(digest.message).posterior(digest)


def by_many(dim, noise, rows, rewards):
    meta = adats.LinearMeta(np.zeros(dim), 0.0, task_cov=1.0, noise=noise)
    row = meta.row_of(meta.empty().add(rows, rewards))
    return meta.posterior_many(meta.digest_many(row[None]))


def isotropic(*given):
    return by_digest(*given, task_cov=1.0, cov=0.0)


def general(dim, *given):
    return by_digest(dim, *given, task_cov=np.eye(dim), cov=0.0)


def shared(*given):
    return by_digest(*given, task_cov=0.0, cov=1.0)


@pytest.mark.parametrize("way", [by_condition, isotropic, general, shared, by_many])
@pytest.mark.parametrize(("dim", "distinct"), [(2, 1), (5, 1), (5, 3), (5, 5), (5, 20), (10, 3)])
def test_a_posterior_is_right_or_there_is_an_error(way, dim, distinct):
    raised = []
    for noise in NOISES:
        for seed in range(2):
            rows, rewards = data(dim, distinct, noise, seed)
            try:
                belief = way(dim, noise, rows, rewards)
            except ValueError as error:
                raised.append((noise, "double precision" in str(error)))
            else:
                assert moved(belief, rows, rewards, noise) < 1e-3
    assert all(known for _, known in raised)
    assert max(raised)[0] <= (1.01e-5 if distinct < dim else 1.01e-9)


def test_nothing_changes_where_a_reward_is_refused():
    agent = adats.AdaTS(adats.LinearMeta(np.zeros(5), 1.0, task_cov=1.0, noise=1e-9), seed=1)
    with pytest.raises(ValueError, match="take a larger noise"):
        agent.tell(task="a", action=0, reward=1.0, features=np.ones(5))
    assert list(agent.tasks) == []


def test_the_advice_is_enough():
    rows, rewards = data(5, 3, 1e-9, 0)
    with pytest.raises(ValueError, match="so many times as large") as error:
        by_condition(5, 1e-9, rows, rewards)
    times = float(str(error.value).split("so many times as large: ")[1].split(")")[0])
    assert by_condition(5, 1.01e-9 * times, rows, rewards) is not None
    with pytest.raises(ValueError, match="double precision"):
        by_condition(5, 0.5e-9 * times, rows, rewards)


def test_simulations_with_too_little_noise_say_so():
    problem = LinearProblem(dim=3, arms=2, task_scale=0.1, noise=1e-9)
    with pytest.raises(ValueError, match="double precision"):
        simulate(problem, ["oracle-ts"], tasks=1, rounds=20, runs=1, seed=1)


def test_the_limit_is_on_eigenvalues():
    """A large norm alone is no error: all directions may be known as well."""
    linalg.check_digits(np.diag([1e7, 2e7]))
    with pytest.raises(ValueError, match="double precision"):
        linalg.check_digits(np.diag([1.0, 2e7]))
    assert math.isclose(linalg.ALLOWED, 1.35e11, rel_tol=0.01)
