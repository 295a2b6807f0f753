"""`agent.refit()`: a model learned anew from all tasks, while everything else goes on."""

import numpy as np
import pytest
from scipy.special import expit

import adats
from adats import TS, AdaTS, GaussianMeta, MetaTS
from adats.models.latent.meta import LatentMeta

COV = np.array([[0.5, 0.4, 0.0], [0.4, 0.5, 0.0], [0.0, 0.0, 0.05]])


def prior():
    grid = np.array([(a, b) for a in (0.1, 0.4) for b in (0.1, 0.5)])
    cov = np.eye(3) + np.ones((3, 3))
    options = {"task_scale": grid[:, 0], "level_scale": grid[:, 1]}
    return LatentMeta(np.full(3, -1.0), cov, arms=("a", "b", "c"), **options)


def played(kind=AdaTS, *, tasks=25, rounds=12, **options):
    """An agent that knows some tasks."""
    rng = np.random.default_rng(1)
    agent = kind(prior(), seed=2, **options)
    for task in range(tasks):
        rates = expit(rng.multivariate_normal(np.full(3, -1.0), COV))
        for _ in range(rounds):
            decision = agent.ask(task)
            agent.tell(decision, reward=int(rng.random() < rates["abc".index(decision.action)]))
    return agent


def test_a_refit_replaces_the_model_and_keeps_the_rest():
    agent = played()
    before = {task: agent.posterior(task).mean for task in agent.tasks}
    tables = {task: agent.stats(task).table for task in agent.tasks}
    state = agent.state()
    rng, decisions = state.rng.bit_generator.state, state.decisions
    agent.finish(3)
    agent.refit()
    assert agent.meta.log_weights.size == 1
    assert agent.tasks == tuple(range(25))
    after = agent.state()
    assert (after.rng.bit_generator.state, after.decisions) == (rng, decisions)
    assert after.tasks[3].finished
    for task in agent.tasks:
        np.testing.assert_array_equal(agent.stats(task).table, tables[task])
        assert np.abs(agent.posterior(task).mean - before[task]).max() < 0.1
    agent.tell(agent.ask("new"), reward=1)
    agent.tell(task=3, action="a", reward=1)  # late


def test_forgetting_is_exact_given_the_last_refit():
    agent = played()
    agent.refit()
    model = agent.meta
    agent.tell(task=2, action="b", reward=1)
    agent.forget(2)
    rest = model.absorb(-model.digest(played_stats(model, 2)).message)
    np.testing.assert_allclose(agent.meta.mean, rest.mean, rtol=1e-12)
    for task in agent.tasks:
        agent.forget(task)
    np.testing.assert_allclose(agent.meta.total.value(), 0.0, atol=1e-8)
    np.testing.assert_allclose(agent.meta.mu_mean, -1.0, rtol=1e-8)


def played_stats(model, task):
    """Those of the task right after the refit."""
    agent = played()
    agent.refit()
    np.testing.assert_array_equal(agent.meta.mean, model.mean)  # the same every time
    return agent.stats(task)


def test_a_refitted_agent_is_saved_and_goes_on(tmp_path):
    agent = played()
    agent.refit()
    agent.save(tmp_path / "agent.npz")
    again = adats.load(tmp_path / "agent.npz")
    np.testing.assert_array_equal(agent.posterior(4).mean, again.posterior(4).mean)
    for task in (4, "new", 5):
        one, other = agent.ask(task), again.ask(task)
        assert one.action == other.action
        agent.tell(one, reward=0)
        again.tell(other, reward=0)
    np.testing.assert_array_equal(agent.meta.mean, again.meta.mean)


def test_drawn_priors_are_drawn_again():
    agent = played(MetaTS, tasks=8)
    assert agent.state().tasks[0].mu.size == 4
    agent.refit()
    assert all(state.mu[0] == 0.0 for state in agent.state().tasks.values())
    assert agent.ask(0)


def test_index_policies_go_on():
    agent = played(tasks=8, policy="ucb")
    asked = agent.ask(0)
    agent.refit()
    agent.tell(asked, reward=1)
    assert agent.ask(0)


def test_errors_say_why_and_change_nothing():
    agent = AdaTS(GaussianMeta(np.zeros(2), 1.0, task_scale=1.0, noise=1.0), seed=1)
    agent.tell(task=1, action=0, reward=0.5)
    with pytest.raises(ValueError, match="a gaussian model learns as it goes: it has no refit"):
        agent.refit()
    assert agent.tasks == (1,)
    with pytest.raises(ValueError, match="teach each other nothing"):
        played(TS, tasks=2).refit()
    fresh = AdaTS(prior(), seed=1)
    with pytest.raises(ValueError, match="no task has a reward yet"):
        fresh.refit()
    fresh.ask(1)
    with pytest.raises(ValueError, match="no task has a reward yet"):
        fresh.refit()
    assert fresh.meta.log_weights.size == 4
