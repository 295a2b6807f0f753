"""The prior for people who have none: it works, it learns, and learning pays."""

import re

import numpy as np
import pytest

import adats
from adats import TS, AdaTS, default_prior
from adats.models.default_prior import NOISES, TASK_SCALES, TYPICAL_RATE, grid_prior

ARMS = ["red", "green", "blue"]


def binary(rng, mean, strength=50.0):
    """A task's mean rewards, and how a reward is drawn from one of them."""
    mean = np.array(mean)
    return rng.beta(mean * strength, (1 - mean) * strength), lambda m: float(rng.random() < m)


def count(rng, mean, pulls=5.0):
    mean = np.array(mean)
    return rng.gamma(mean * pulls, 1 / pulls), lambda m: float(rng.poisson(m))


def number(rng, mean, task_scale=0.6, noise=2.0):
    return rng.normal(mean, task_scale), lambda m: float(rng.normal(m, noise))


PROBLEMS = {
    "binary": (default_prior(arms=ARMS, rewards="binary"), binary, [0.05, 0.2, 0.5]),
    "count": (default_prior(arms=ARMS, rewards="count", typical=3.0), count, [1.05, 3.0, 5.1]),
    "number": (default_prior(arms=ARMS, rewards="number", scale=2.0), number, [-2.0, 0.5, 2.5]),
}


@pytest.mark.parametrize("kind", PROBLEMS)
@pytest.mark.parametrize("cls", [AdaTS, adats.MetaTS, TS])
def test_every_default_prior_starts_an_agent(kind, cls):
    prior, task, mean = PROBLEMS[kind]
    rng = np.random.default_rng(0)
    agent = cls(prior, seed=0)
    assert agent.arms == tuple(ARMS)
    for i in range(30):
        theta, draw = task(rng, mean)
        decision = agent.ask(i % 4)
        assert decision.action in ARMS
        agent.tell(decision, reward=draw(theta[ARMS.index(decision.action)]))
    assert np.isfinite(agent.meta.log_evidence())


@pytest.mark.statistical
@pytest.mark.parametrize("kind", PROBLEMS)
def test_the_true_rates_are_learned(kind):
    """200 tasks, 20 pulls an arm: within four standard errors of the mean over tasks."""
    prior, task, mean = PROBLEMS[kind]
    rng, agent, averages = np.random.default_rng(1), AdaTS(prior, seed=0), []
    for i in range(200):
        theta, draw = task(rng, mean)
        rewards = [[draw(m) for _ in range(20)] for m in theta]
        agent.tell(task=i, action=np.repeat(ARMS, 20), reward=np.ravel(rewards))
        averages.append(np.mean(rewards, axis=1))
    error = np.std(averages, axis=0) / np.sqrt(200)
    assert (np.abs(prior.mean - mean) > 20 * error).any()  # it did not know before
    assert (np.abs(agent.meta.mean - mean) <= 4 * error).all()


@pytest.mark.statistical
@pytest.mark.parametrize("cell", [(0.3, 1.0), (1.0, 0.1), (0.1, 0.1), (1.0, 3.0), (0.03, 0.1)])
def test_numbers_find_their_noise_and_their_spread(cell):
    task_scale, noise = cell
    rng = np.random.default_rng(2)
    agent = AdaTS(default_prior(arms=ARMS, rewards="number", scale=2.0, typical=10.0), seed=0)
    for i in range(200):
        theta, draw = number(rng, [9.0, 10.0, 12.0], 2 * task_scale, 2 * noise)
        rewards = [draw(m) for m in theta for _ in range(8)]
        agent.tell(task=i, action=np.repeat(ARMS, 8), reward=rewards)
    weights = agent.meta.weights.reshape(len(TASK_SCALES), len(NOISES))
    assert weights[TASK_SCALES.index(task_scale), NOISES.index(noise)] > 0.9


def regret(cls, kind, seed, tasks, rounds):
    """Expected regret in the second half of the tasks, one after another."""
    prior, task, mean = PROBLEMS[kind]
    agent, worlds, total = cls(prior, seed=seed), np.random.SeedSequence(seed), 0.0
    mean = np.random.default_rng(seed).permutation(mean)
    for i, world in enumerate(worlds.spawn(tasks)):  # the same for every agent
        theta, draw = task(np.random.default_rng(world), mean)
        for _ in range(rounds):
            decision = agent.ask(i)
            arm = ARMS.index(decision.action)
            agent.tell(decision, reward=draw(theta[arm]))
            total += (theta.max() - theta[arm]) * (i >= tasks // 2)
        agent.finish(i)
    return total


@pytest.mark.heavy
@pytest.mark.statistical
@pytest.mark.parametrize("kind", PROBLEMS)
def test_learning_the_prior_pays_in_later_tasks(kind):
    runs = 8
    pairs = [[regret(cls, kind, run, 24, 12) for cls in (AdaTS, TS)] for run in range(runs)]
    gains = np.subtract(*np.transpose(pairs)[::-1])
    assert gains.mean() > 4 * gains.std(ddof=1) / np.sqrt(runs)


def test_the_middle_of_the_grid():
    np.testing.assert_allclose(grid_prior(arms=ARMS, rewards="binary").mean, 0.5, rtol=1e-12)
    middle = PROBLEMS["binary"][0].task_prior().upper(0.0)
    np.testing.assert_allclose(middle, TYPICAL_RATE, rtol=1e-9)
    np.testing.assert_allclose(
        default_prior(arms=ARMS, rewards="number", scale=0.5, typical=-3.0).mean, -3.0, rtol=1e-12
    )
    small, large = (default_prior(arms=[0], rewards="count", typical=t).mean for t in (2.0, 200.0))
    np.testing.assert_allclose(large, 100 * small, rtol=1e-12)
    default = default_prior(arms=[0], rewards="count").mean
    np.testing.assert_allclose(small, 2 * default, rtol=1e-12)


def test_the_unit_of_numbers_does_not_matter():
    """Rewards in cents and in euros: the same decisions."""
    agents = [
        AdaTS(default_prior(arms=ARMS, rewards="number", scale=s, typical=s), seed=3)
        for s in (1.0, 1024.0)
    ]
    rng = np.random.default_rng(3)
    for i in range(60):
        decisions = [agent.ask(i % 5) for agent in agents]
        assert decisions[0] == decisions[1]
        reward = float(rng.normal())
        agents[0].tell(decisions[0], reward=reward)
        agents[1].tell(decisions[1], reward=1024 * reward)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rewards": "money"}, "must be 'binary', 'count' or 'number', got 'money'"),
        ({"rewards": None}, "got None"),
        ({"rewards": "binary", "typical": 0.1}, "neither typical nor scale"),
        ({"rewards": "binary", "scale": 1.0}, "neither typical nor scale"),
        ({"rewards": "count", "scale": 1.0}, "counts need no scale"),
        ({"rewards": "count", "typical": 0.0}, "typical must be positive, got 0.0"),
        ({"rewards": "count", "typical": np.nan}, "typical must be finite"),
        ({"rewards": "count", "typical": [1.0, 2.0]}, "typical"),
        ({"rewards": "count", "typical": "1"}, "typical must be"),
        ({"rewards": "number"}, "give scale"),
        ({"rewards": "number", "scale": 0.0}, "scale must be positive, got 0.0"),
        ({"rewards": "number", "scale": -1.0}, "scale must be positive, got -1.0"),
        ({"rewards": "number", "scale": np.inf}, "scale must be finite"),
        ({"rewards": "number", "scale": [1.0, 2.0]}, "scale"),
        ({"rewards": "number", "scale": 1.0, "typical": np.nan}, "typical must be finite"),
        ({"rewards": "number", "scale": 1.0, "typical": [1.0, 2.0, 3.0]}, "typical"),
    ],
)
def test_options_that_do_not_fit(options, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        default_prior(arms=ARMS, **options)


@pytest.mark.parametrize("options", [{"rewards": "binary"}, {"rewards": "number", "scale": 1.0}])
@pytest.mark.parametrize(
    ("arms", "message"),
    [
        (["a", "b", "a"], "'a' comes twice"),
        ([], "arm"),
        (["a", 1.5], "got 1.5"),
        ([None], "got None"),
        (3, "arms"),
        (None, "arms"),
    ],
)
def test_arms_that_do_not_fit(options, arms, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        default_prior(arms=arms, **options)


# features

COEFFICIENTS = np.array([-1.5, 0.8, 0.0, -0.5])
DRAWS = {
    "binary": lambda eta, rng: float(rng.random() < 1 / (1 + np.exp(-eta))),
    "count": lambda eta, rng: float(rng.poisson(np.exp(eta))),
    "number": lambda eta, rng: float(rng.normal(eta, 0.5)),
}


def with_features(rewards):
    return default_prior(dim=4, rewards=rewards, scale=2.0 if rewards == "number" else None)


@pytest.mark.parametrize("rewards", DRAWS)
@pytest.mark.parametrize("cls", [AdaTS, adats.MetaTS, TS])
def test_every_default_prior_with_features_starts_an_agent(rewards, cls):
    rng, agent = np.random.default_rng(3), cls(with_features(rewards), seed=0)
    assert agent.arms is None
    for i in range(20):
        rows = np.column_stack([np.ones(5), rng.normal(size=(5, 3))])
        decision = agent.ask(i % 3, features=rows)
        agent.tell(decision, reward=DRAWS[rewards](decision.features @ COEFFICIENTS, rng))
    assert np.isfinite(agent.meta.log_evidence())


@pytest.mark.statistical
@pytest.mark.parametrize("rewards", DRAWS)
def test_coefficients_and_their_spread_are_learned(rewards):
    """60 tasks of 20 pulls: within 4.5 sd, and the spread of tasks is found."""
    rng, agent = np.random.default_rng(4), AdaTS(with_features(rewards), seed=0)
    for task in range(60):
        theta = COEFFICIENTS + 0.6 * rng.normal(size=4)
        rows = np.column_stack([np.ones(20), rng.normal(size=(20, 3))])
        wins = [DRAWS[rewards](row @ theta, rng) for row in rows]
        agent.tell(task=task, features=rows, reward=wins)
    prior = agent.meta.task_prior()
    error = prior.scale / np.sqrt(60) * 1.5  # a task's own spread, and what its pulls leave
    assert (np.abs(prior.mean - COEFFICIENTS) < 4.5 * error).all()
    weights = agent.meta.weights.reshape(4, -1).sum(axis=1)
    assert weights[2 if rewards == "number" else 3] > 0.8  # 0.3 times the scale; 0.8 is nearest


def test_a_base_rate_of_one_in_two_hundred_is_in_reach():
    prior = default_prior(dim=1, rewards="binary").task_prior()
    assert prior.at_rows(np.ones((1, 1))).below(np.array([0.005]))[0] > 0.02


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dim": 0, "rewards": "binary"}, "dim must be a whole number of at least 1, got 0"),
        ({"dim": 2.5, "rewards": "binary"}, "dim must be a whole number"),
        ({"dim": 2, "arms": ARMS, "rewards": "binary"}, "give arms, a list of names, or dim"),
        ({"rewards": "binary"}, "arms is a list of names"),
        ({"dim": 2, "rewards": "money"}, "must be 'binary', 'count' or 'number', got 'money'"),
        ({"dim": 2, "rewards": "binary", "scale": 1.0}, "binary rewards need no scale"),
        ({"dim": 2, "rewards": "count", "scale": 1.0}, "count rewards need no scale"),
        ({"dim": 2, "rewards": "count", "typical": 1.0}, "let one of them be 1 for all arms"),
        ({"dim": 2, "rewards": "number"}, "give scale"),
        ({"dim": 2, "rewards": "number", "scale": -1.0}, "scale must be positive"),
    ],
)
def test_features_that_do_not_fit(options, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        default_prior(**options)


@pytest.mark.parametrize("rewards", ["binary", "count", "number"])
@pytest.mark.parametrize("of", [{"arms": ["a", "b"]}, {"dim": 2}])
def test_attributes_start_from_what_there_is_without_them(rewards, of):
    """A task whose attributes are 0 has the prior of all tasks without; of others less is known."""
    scale = {"scale": 2.0} if rewards == "number" else {}
    plain = default_prior(rewards=rewards, **of, **scale).task_prior()
    meta = default_prior(rewards=rewards, attributes=2, **of, **scale)
    same, other = (meta.task_prior(design=np.kron([1, *z], np.eye(2))) for z in ([0, 0], [1, -1]))
    np.testing.assert_allclose(same.mean, plain.mean, rtol=1e-9)
    np.testing.assert_allclose(same.scale, plain.scale, rtol=1e-9)
    assert (other.scale > plain.scale).all()
    with pytest.raises(ValueError, match="attributes"):
        default_prior(rewards=rewards, attributes=-1, **of, **scale)
