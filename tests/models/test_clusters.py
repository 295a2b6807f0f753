"""Tasks of several kinds, against a sum over all that the kinds of all tasks can be."""

import itertools

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

import adats
from adats import AdaTS, ClusterMeta, GaussianMeta, LinearMeta
from adats.models.clusters.meta import weights_grid

MEANS = np.array([[-1.0, 0.5], [1.0, 0.0]])
TASK_SCALE, NOISE = 0.3, 0.8
PULLS = [(0, 0.7), (0, 1.1), (1, 0.2)], [(1, -0.4), (0, -0.9)], [(0, 0.1)]


def kind(mean, scale=0.0):
    return GaussianMeta(mean, scale, task_scale=TASK_SCALE, noise=NOISE)


def meta_of(weights=None):
    return ClusterMeta([kind(mean) for mean in MEANS], weights)


def stats_of(meta, pulls):
    stats = meta.empty()
    for arm, reward in pulls:
        stats = stats.add(arm, reward)
    return stats


def joint(mean, pulls):
    """Log density of a task's rewards, and the mean of theta, from the joint Gaussian."""
    picks = np.eye(2)[[arm for arm, _ in pulls]]
    rewards = np.array([reward for _, reward in pulls])
    cov = TASK_SCALE**2 * picks @ picks.T + NOISE**2 * np.eye(len(pulls))
    surprise = rewards - picks @ mean
    density = multivariate_normal(np.zeros(len(pulls)), cov).logpdf(surprise)
    return float(density), mean + TASK_SCALE**2 * picks.T @ np.linalg.solve(cov, surprise)


@pytest.mark.parametrize("weights", [None, [0.3, 0.7], [[0.2, 0.8], [0.9, 0.1], [1.0, 0.0]]])
def test_it_is_the_sum_over_all_kinds_of_all_tasks(weights):
    meta = meta_of(weights)
    digests = [meta.digest(stats_of(meta, pulls)) for pulls in PULLS]
    full = meta
    for digest in digests:
        full = full.absorb(digest.message)
    logs, means, rows = [], [], []
    for row in meta.grid:
        for kinds in itertools.product(range(2), repeat=len(PULLS)):
            found = [joint(MEANS[k], pulls) for k, pulls in zip(kinds, PULLS, strict=True)]
            with np.errstate(divide="ignore"):
                log = np.log(row[list(kinds)]).sum() - np.log(len(meta.grid))
            logs.append(log + sum(density for density, _ in found))
            means.append([mean for _, mean in found])
            rows.append(row)
    chances = np.exp(logs - logsumexp(logs))
    assert_allclose(full.log_evidence(), logsumexp(logs), rtol=1e-12)
    assert_allclose(full.weights, chances @ np.array(rows), rtol=1e-10)
    for i, digest in enumerate(digests):
        expected = chances @ np.array(means)[:, i]
        assert_allclose(full.posterior(digest).mean, expected, rtol=1e-10)


def test_forgetting_a_task_is_exact():
    meta = meta_of()
    agent, other = AdaTS(meta, seed=1), AdaTS(meta, seed=1)
    for task, pulls in enumerate(PULLS):
        for arm, reward in pulls:
            agent.tell(task=task, action=arm, reward=reward)
            if task != 1:
                other.tell(task=task, action=arm, reward=reward)
    agent.forget(1)
    assert_allclose(agent.meta.weights, other.meta.weights, rtol=1e-12)


def test_the_weights_are_learned():
    meta, rng = meta_of(), np.random.default_rng(3)
    for _ in range(300):
        theta = MEANS[int(rng.random() < 0.8)] + TASK_SCALE * rng.normal(size=2)
        pulls = [(arm, theta[arm] + NOISE * rng.normal()) for arm in (0, 1) for _ in range(4)]
        meta = meta.absorb(meta.digest(stats_of(meta, pulls)).message)
    assert abs(meta.weights[1] - 0.8) < 4 * np.sqrt(0.8 * 0.2 / 300)


@pytest.mark.parametrize("features", [False, True])
def test_unknown_means_are_learned_by_refit(features):
    rng = np.random.default_rng(5)
    model = LinearMeta(np.zeros(2), 1.0, task_cov=0.01, noise=0.5) if features else None
    unknown = model or GaussianMeta(np.zeros(2), 1.0, task_scale=0.1, noise=0.5)
    agent = AdaTS(ClusterMeta([unknown, unknown]), seed=1)
    for task in range(40):
        theta = MEANS[task % 2] + 0.1 * rng.normal(size=2)
        for t in range(20):
            row = {"features": np.eye(2)[t % 2]} if features else {}
            reward = theta[t % 2] + 0.5 * rng.normal()
            agent.tell(task=task, action=t % 2, reward=reward, **row)
    before = agent.meta.log_evidence()
    agent.refit()
    found = agent.meta.figures()["means"]
    order = found[:, 0].argsort()
    allowed = 4 * np.sqrt(0.1**2 / 20 + 0.5**2 / 200)
    assert np.abs(found[order] - MEANS).max() < allowed
    assert agent.meta.log_evidence() > before + 10
    assert_allclose(agent.meta.weights, 0.5, atol=0.1)
    again = agent.meta.log_evidence()
    agent.refit()
    assert_allclose(agent.meta.log_evidence(), again, atol=1.0)


def test_a_refit_of_no_tasks_changes_nothing():
    meta = meta_of()
    assert_allclose(meta.refit([])[0].mean, meta.mean)


def test_a_posterior_knows_which_kind_a_task_is():
    meta = meta_of([0.5, 0.5])
    digest = meta.digest(stats_of(meta, [(0, 1.0)] * 10))
    assert meta.absorb(digest.message).posterior(digest).weights[1] > 0.999


def test_a_task_with_a_design_of_its_own_keeps_it_when_it_learns():
    """Against the joint Gaussian of each kind, written out."""
    design, rewards = np.array([[1.0, 0.5], [0.0, 2.0]]), np.array([2.0, 0.3, 1.1])
    width, own, noise = 0.5 * np.eye(2), 0.1 * np.eye(2), 1.0
    kinds = [LinearMeta(mean, width, task_cov=own, noise=noise, design=np.eye(2)) for mean in MEANS]
    agent = AdaTS(ClusterMeta(kinds, [0.3, 0.7]), seed=1, features=np.eye(2))
    agent.ask("t", design=design)
    for arm, reward in zip((0, 1, 0), rewards, strict=True):
        agent.tell(task="t", action=arm, reward=reward)
    picks = np.eye(2)[[0, 1, 0]]
    cov = design @ width @ design.T + own  # of theta
    spread = picks @ cov @ picks.T + noise**2 * np.eye(3)
    gain = cov @ picks.T @ np.linalg.inv(spread)
    means = MEANS @ design.T
    logs = [multivariate_normal(picks @ m, spread).logpdf(rewards) for m in means]
    chances = np.array([0.3, 0.7]) * np.exp(logs)
    expected = [m + gain @ (rewards - picks @ m) for m in means]
    assert_allclose(agent.posterior("t").mean, chances @ expected / chances.sum(), atol=1e-12)


@pytest.mark.parametrize("kinds", range(1, 7))
def test_grids_of_weights(kinds):
    grid = weights_grid(kinds)
    assert_allclose(grid.sum(axis=1), 1.0)
    assert grid.min() > 0
    assert_allclose(grid.mean(axis=0), 1 / kinds)
    assert len(grid) <= 100


@pytest.mark.parametrize(
    ("weights", "words"), [([0.5, 0.3, 0.2], "must be 2 numbers"), ([0.5, 0.6], "weights")]
)
def test_bad_weights(weights, words):
    with pytest.raises(ValueError, match=words):
        meta_of(weights)


def test_components_of_other_arms():
    with pytest.raises(ValueError, match="the same arms"):
        ClusterMeta([kind([0.0]), kind([0.0, 1.0])])


def test_the_share_of_unknown_weights():
    meta = meta_of([[1.0, 0.0], [0.0, 1.0]])  # all tasks are of one kind, nobody knows which
    between = MEANS.var(axis=0)
    assert_allclose(meta.share(), between / (between + TASK_SCALE**2))
    assert_allclose(meta_of([0.5, 0.5]).share(), 0.0, atol=1e-15)


@pytest.mark.statistical
def test_with_two_kinds_it_loses_less_than_plain_sampling():
    """And hardly more than where the weights are known (`docs/math/clusters.md`)."""
    runs, tasks, rounds = 8, 15, 40
    lost = np.zeros((3, runs))
    for run in range(runs):
        rng = np.random.default_rng([7, run])
        means = rng.normal(0, 0.7, (2, 4))
        theta = means[rng.integers(0, 2, tasks)] + 0.1 * rng.normal(size=(tasks, 4))
        noise = rng.normal(size=(tasks, rounds))
        wide = GaussianMeta(np.zeros(4), 0.7, task_scale=0.1, noise=1.0)
        listed = [GaussianMeta(mean, 0.0, task_scale=0.1, noise=1.0) for mean in means]
        agents = [adats.TS(wide, seed=run), AdaTS(ClusterMeta(listed), seed=run)]
        agents.append(AdaTS(ClusterMeta(listed, [0.5, 0.5]), seed=run))
        for i, agent in enumerate(agents):
            for s, t in itertools.product(range(tasks), range(rounds)):
                decision = agent.ask(s)
                arm = decision.action
                agent.tell(decision, reward=theta[s, arm] + noise[s, t])
                lost[i, run] += theta[s].max() - theta[s, arm]
    saved = lost[0] - lost[1]
    assert saved.mean() > 2 * saved.std(ddof=1) / np.sqrt(runs)
    more = lost[1] - 1.1 * lost[2]
    assert more.mean() < 2 * more.std(ddof=1) / np.sqrt(runs)
