"""Beta and gamma priors: evidence against sums written out, grids that are fine and wide enough."""

import math
from functools import partial

import numpy as np
import pytest
from scipy import stats

import brute
from adats import AdaTS, BetaArms, MixtureMeta, PoissonArms
from adats.learning import fit_arms
from adats.learning.fitting import estimate
from adats.models import BinaryStats, CountStats
from fitting_logs import arm_table


def binary_log(seed, tasks, *, alpha, beta, pulls):
    rng = np.random.default_rng(seed)
    log = []
    for arms in pulls:
        theta = rng.beta(alpha, beta)
        log.append((arms, (rng.random(len(arms)) < theta[arms]).astype(int)))
    return arm_table(log[:tasks], len(alpha), kind=BinaryStats)


def count_log(seed, *, shape, rate, pulls):
    rng = np.random.default_rng(seed)
    log = []
    for arms in pulls:
        theta = rng.gamma(shape) / rate
        log.append((arms, rng.poisson(theta[arms])))
    return arm_table(log, len(shape), kind=CountStats)


def tables():
    rng = np.random.default_rng(0)
    pulls = [rng.integers(2, size=size) for size in rng.integers(1, 12, size=40)]
    alpha, beta = np.array([2.0, 30.0]), np.array([8.0, 30.0])
    shape, rate = np.array([2.0, 40.0]), np.array([0.5, 10.0])
    return [
        pytest.param(binary_log(1, 40, alpha=alpha, beta=beta, pulls=pulls), id="binary"),
        pytest.param(count_log(2, shape=shape, rate=rate, pulls=pulls), id="count"),
    ]


@pytest.mark.parametrize("table", tables())
def test_weights_are_what_absorbing_every_task_would_give(table):
    fitted = estimate(table, model=table.model)
    priors = fitted.meta.priors
    shape = priors.parameters()[0].shape
    meta = MixtureMeta(np.full(shape, 1 / shape[0]), priors, arms=table.arms)
    for i in range(len(table)):
        meta = meta.absorb(meta.digest(table.stats(i)).message)
    np.testing.assert_allclose(fitted.meta.weights, meta.weights, rtol=1e-8, atol=1e-14)
    np.testing.assert_allclose(fitted.log_evidence, meta.log_evidence(), rtol=1e-10)
    np.testing.assert_allclose(fitted.mu, meta.mean, rtol=1e-8)
    assert not fitted.meta.total.high.any()  # fresh: the weights have it all
    prior = fitted.meta.task_prior()
    spread = fitted.mu_cov.diagonal() + fitted.task_cov.diagonal()
    np.testing.assert_allclose(prior.scale**2, spread, rtol=1e-8)


def test_binary_evidence_is_that_of_beta_binomials():
    table = tables()[0].values[0]
    fitted = estimate(table, model="binary")
    count, total = table.table[:, 0], table.table[:, 1]
    alpha, beta = fitted.meta.priors.parameters()
    logs = np.zeros(alpha.shape)
    for k in range(2):
        ways = stats.binom.logpmf(total[:, k], count[:, k], 0.5) + count[:, k] * np.log(2.0)
        for j in range(len(alpha)):
            each = stats.betabinom.logpmf(total[:, k], count[:, k], alpha[j, k], beta[j, k])
            logs[j, k] = (each - ways).sum()  # of the rewards in their order
    weights = np.exp(logs - logs.max(axis=0))
    np.testing.assert_allclose(fitted.meta.weights, weights / weights.sum(axis=0), rtol=1e-6)
    evidence = np.log(np.exp(logs - logs.max(axis=0)).mean(axis=0)) + logs.max(axis=0)
    np.testing.assert_allclose(fitted.log_evidence, evidence.sum(), rtol=1e-9)


def poisson(pulls, total, factorials, theta):
    """The chance of counts with this total."""
    return theta**total * math.exp(-pulls * theta) / factorials


def test_count_evidence_by_quadrature():
    rewards = [[3, 1], [0], [7, 5, 6]]
    log = [([0] * len(y), y) for y in rewards]
    fitted = estimate(arm_table(log, 1, kind=CountStats), model="count")
    shapes, rates = (p[:, 0] for p in fitted.meta.priors.parameters())
    some = np.flatnonzero(shapes > 0.5)[::40]  # where quadrature is good
    values = []
    for j in some:
        prior = stats.gamma(shapes[j], scale=1 / rates[j])
        value = 0.0
        for y in rewards:
            like = partial(poisson, len(y), sum(y), math.prod(map(math.factorial, y)))
            value += np.log(brute.quadrature(prior, like, [], 0.0, 60.0)[0])
        values.append(value)
    logs = np.log(fitted.meta.weights[some, 0])
    np.testing.assert_allclose(logs - logs[0], np.array(values) - values[0], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("table", tables())
def test_a_finer_grid_says_the_same(table, monkeypatch):
    coarse = estimate(table, model=table.model)
    monkeypatch.setattr(fit_arms, "SIDE", 41)
    fine = estimate(table, model=table.model)
    assert len(fine.meta.weights) == 41**2
    np.testing.assert_allclose(coarse.mu, fine.mu, rtol=2e-3)
    np.testing.assert_allclose(coarse.mu_cov, fine.mu_cov, rtol=0.05)
    np.testing.assert_allclose(coarse.task_cov, fine.task_cov, rtol=0.1)  # far below its error


@pytest.mark.parametrize("table", tables())
def test_a_grid_ends_where_nothing_is_left(table):
    """Except where the strength has no upper end, since the arm may be the same in all tasks."""
    weights = estimate(table, model=table.model).meta.weights
    side = fit_arms.SIDE
    for square in weights.T.reshape(-1, side, side):
        for edge in (square[0], square[-1], square[:, 0]):
            assert edge.sum() < 1e-2
        assert (square.sum(axis=0) > 1e-3).sum() > 3
        assert (square.sum(axis=1) > 1e-3).sum() > 3


@pytest.mark.statistical
def test_priors_come_back():
    rng = np.random.default_rng(3)
    pulls = rng.integers(2, size=(1500, 30))
    alpha, beta = np.array([2.0, 30.0]), np.array([8.0, 20.0])
    fitted = estimate(binary_log(4, 1500, alpha=alpha, beta=beta, pulls=pulls), model="binary")
    assert type(fitted.meta.priors) is BetaArms
    truth = BetaArms(alpha, beta)
    assert (np.abs(fitted.mu - truth.mean) <= 3 * np.sqrt(fitted.mu_cov.diagonal())).all()
    near(fitted, np.log(alpha + beta), lambda p: np.log(p.alpha + p.beta))
    shape, rate = np.array([2.0, 40.0]), np.array([0.5, 10.0])
    fitted = estimate(count_log(5, shape=shape, rate=rate, pulls=pulls), model="count")
    assert type(fitted.meta.priors) is PoissonArms
    truth = PoissonArms(shape, rate)
    assert (np.abs(fitted.mu - truth.mean) <= 3 * np.sqrt(fitted.mu_cov.diagonal())).all()
    near(fitted, np.log(shape), lambda p: np.log(p.shape))


def near(fitted, truth, of):
    """The truth lies within three standard deviations of the weighted grid."""
    weights, values = fitted.meta.weights, of(fitted.meta.priors)
    mean = (weights * values).sum(axis=0)
    scale = np.sqrt((weights * (values - mean) ** 2).sum(axis=0))
    assert (np.abs(mean - truth) <= 3 * scale).all()
    assert (scale < 0.5).all()


def test_single_pulls_of_zeros_and_ones_do_not_tell_their_spread():
    log = [([0], [s % 2]) for s in range(40)]
    fitted = estimate(arm_table(log, 1, kind=BinaryStats), model="binary")
    assert fitted.unidentified == ("the spread of arm 'a'",)
    by_strength = fitted.meta.weights[:, 0].reshape(fit_arms.SIDE, fit_arms.SIDE).sum(axis=0)
    np.testing.assert_allclose(by_strength, 1 / fit_arms.SIDE, rtol=1e-6)  # no strength is likelier
    assert fitted.mu[0] == pytest.approx(0.5, abs=1e-6)
    log = [([0], [s % 9]) for s in range(40)]
    assert estimate(arm_table(log, 1, kind=CountStats), model="count").unidentified == ()


def test_an_arm_that_was_never_pulled_is_named():
    log = [([0, 0], [s % 2, 1]) for s in range(10)]
    fitted = estimate(arm_table(log, 2, kind=BinaryStats), model="binary")
    assert fitted.unidentified == ("the spread of arm 'b'",)
    assert fitted.warnings == ("arm 'b' was pulled in 0 tasks: below 5 its spread is rough",)
    np.testing.assert_allclose(fitted.meta.weights[:, 1], fit_arms.SIDE**-2)


@pytest.mark.parametrize("reward", [0, 1])
def test_arms_that_always_say_the_same_are_legal(reward):
    log = [([0, 0], [reward, reward]) for _ in range(20)]
    fitted = estimate(arm_table(log, 1, kind=BinaryStats), model="binary")
    assert abs(fitted.mu[0] - reward) < 0.05
    assert estimate(arm_table(log, 1, kind=CountStats), model="count").mu[0] < 1.5


def test_many_tasks_are_cut_into_chunks(monkeypatch):
    table = tables()[1].values[0]
    whole = estimate(table, model="count")
    monkeypatch.setattr(fit_arms, "CHUNK", 7)
    parts = estimate(table, model="count")
    np.testing.assert_allclose(whole.meta.weights, parts.meta.weights, rtol=1e-9)


def test_the_grid_goes_on_learning():
    table = tables()[0].values[0]
    fitted = estimate(table, model="binary")
    agent = AdaTS(fitted.meta, seed=1)
    for task in range(20):
        for _ in range(10):
            agent.tell(task=task, action="a", reward=1)
    assert agent.meta.mean[0] > fitted.mu[0]
    assert agent.meta.mean[1] == pytest.approx(fitted.mu[1], rel=1e-9)
