"""Agents with models of clicks and counts, with arms and with features; counts that are told."""

import re
import warnings

import numpy as np
import pytest

import adats
from adats import AdaTS, Top
from adats.agents.policies import POLICIES, Scene
from adats.agents.propensities import propensities
from adats.models.latent.row_meta import LatentLinearMeta
from cases import (
    CASES,
    CLASSES,
    LATER,
    ROWS,
    ask,
    click,
    latent,
    latent_rows,
    new,
    play,
    rewards_of,
)

ROWS_ONLY = [k for k in LATER if LATER[k].meta.n_features and "clusters" not in k]
FIXED = ["click rows", "event rows"]


def finite(agent):
    for task in agent.tasks:
        belief = agent.posterior(task)
        assert np.isfinite(belief.mean).all()
        assert (belief.scale >= 0).all()
    assert np.isfinite(agent.meta.log_evidence())


@pytest.fixture(autouse=True)
def _warned():
    """That propensities of indices are 1 is known here."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "propensities of 1")
        yield


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("kind", LATER)
@pytest.mark.parametrize("cls", CLASSES)
def test_every_agent_plays_every_policy(cls, kind, policy):
    """Interleaved tasks with delayed rewards; finished, late, forgotten and new ones."""
    agent, rng, waiting = new(kind, cls, policy=policy), np.random.default_rng(1), []
    case = LATER[kind]
    for i in range(24):
        task = int(rng.integers(4))
        waiting.append(
            agent.ask(
                task,
                features=case.features(task, rng),
                design=case.design(task),
                horizon=30,
                propensities=i % 6 == 0,
            )
        )
        if rng.random() < 0.6:
            decision = waiting.pop(int(rng.integers(len(waiting))))
            agent.tell(decision, reward=rewards_of(decision, kind, rng))
    finite(agent)
    agent.finish(0)
    for decision in waiting:  # late ones, of the finished task too
        agent.tell(decision, reward=rewards_of(decision, kind, rng))
    finite(agent)
    with pytest.raises(adats.FinishedTask):
        ask(agent, kind, 0, rng)
    for task in agent.tasks:
        agent.forget(task)
    assert np.abs(agent.meta.total.value()).max(initial=0.0) < 1e-8
    np.testing.assert_allclose(agent.meta.mean, case.meta.mean, atol=1e-8)


@pytest.mark.parametrize("kind", LATER)
def test_a_forgotten_task_leaves_what_the_others_say(kind):
    agent, rng = new(kind), np.random.default_rng(2)
    play(agent, kind, rng, rounds=60, tasks=4)
    gone = agent.tasks[0]
    agent.finish(gone)
    agent.forget(gone)
    messages = [agent.meta.digest(s.stats, design=s.design).message for s in _states(agent)]
    np.testing.assert_allclose(agent.meta.total.value(), sum(messages), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("tasks", "count"), [(3, 5), (3, 30), (12, 80)])
@pytest.mark.parametrize("rewards", ["binary", "count"])
def test_few_rewards_in_any_order_say_the_same(rewards, tasks, count):
    """Also in a batch, and after a task with as many rewards has come and gone."""
    rng = np.random.default_rng([tasks, count])
    meta = adats.default_prior(arms=range(3), rewards=rewards)
    told = [
        {"task": int(task), "action": int(arm), "reward": float(reward)}
        for task, arm, reward in zip(
            rng.integers(tasks, size=count),
            rng.integers(3, size=count),
            rng.choice([0, 0, 1] if rewards == "binary" else [0, 1, 2, 7], size=count),
            strict=True,
        )
    ]
    gone = [row | {"task": "gone", "reward": 1.0} for row in told]
    mixed = [row for pair in zip(gone, told, strict=True) for row in pair]
    agents = [AdaTS(meta, seed=1) for _ in range(5)]
    by_task = sorted(told, key=lambda row: row["task"])
    for agent, rows in zip(agents, (told, told[::-1], by_task, mixed), strict=False):
        for row in rows:
            agent.tell(**row)
    agents[3].forget("gone")
    agents[4].tell_many({name: [row[name] for row in told] for name in told[0]})
    names = {row["task"] for row in told}
    beliefs = [
        [one.meta.task_prior().each_arm, *(one.posterior(task).each_arm for task in names)]
        for one in agents
    ]
    for own in beliefs[1:]:
        for found, due in zip(own, beliefs[0], strict=True):
            assert (np.abs(found.eta_mean - due.eta_mean) < 0.05 * due.eta_scale).all()
            np.testing.assert_allclose(found.eta_scale, due.eta_scale, rtol=0.05)


def _states(agent):
    return agent.state().tasks.values()


@pytest.mark.parametrize("kind", ROWS_ONLY)
def test_bad_rewards_and_features_change_nothing(kind, tmp_path):
    agent, rng = new(kind), np.random.default_rng(3)
    play(agent, kind, rng, rounds=10, tasks=2)
    task = agent.tasks[0]
    row = np.ones(agent.stats(task).rows.shape[1])
    agent.save(tmp_path / "before.npz")
    for options in (
        {"features": row, "reward": 0.5},
        {"features": row, "reward": np.nan},
        {"features": row, "reward": None},
        {"features": row, "reward": -1},
        {"features": np.append(row, 1.0), "reward": 1},
        {"features": row * np.inf, "reward": 1},
        {"features": row * 1e4, "reward": 1},
        {"features": row, "pulls": 2, "successes": -1},
        {"features": row, "pulls": 0, "successes": 0},
        {"features": row, "pulls": 2},
        {"features": row, "successes": 2},
        {"features": row, "reward": 1, "pulls": 1, "successes": 1},
    ):
        with pytest.raises(ValueError, match=r"."):
            agent.tell(task=task, **options)
    agent.save(tmp_path / "after.npz")
    assert (tmp_path / "before.npz").read_bytes() == (tmp_path / "after.npz").read_bytes()


@pytest.mark.parametrize("kind", FIXED)
@pytest.mark.parametrize("cls", CLASSES)
def test_arms_with_features_come_and_go(kind, cls, tmp_path):
    agent, rng = new(kind, cls, arms=["a", "b", "c", "d"]), np.random.default_rng(4)
    play(agent, kind, rng, rounds=20, tasks=3)
    agent.add_arm("e", features=[0.3, 0.2, 0.1])
    agent.retire_arm("a")
    assert agent.arms == ("b", "c", "d", "e")
    play(agent, kind, rng, rounds=20, tasks=3)
    assert {agent.ask(0).action for _ in range(60)} <= {"b", "c", "d", "e"}
    assert agent.ask(0, allowed=["e"]).features.tolist() == [0.3, 0.2, 0.1]
    agent.save(tmp_path / "agent.npz")
    loaded = adats.load(tmp_path / "agent.npz")
    for _ in range(20):
        decisions = [one.ask(1) for one in (agent, loaded)]
        assert decisions[0] == decisions[1]
        for one, decision in zip((agent, loaded), decisions, strict=True):
            one.tell(decision, reward=1.0)
    assert agent.posterior(1).mean.tobytes() == loaded.posterior(1).mean.tobytes()


@pytest.mark.parametrize("cls", CLASSES[:3])
def test_arms_without_features_come_and_go(cls):
    agent, rng = new("clicks", cls), np.random.default_rng(5)
    play(agent, "clicks", rng, rounds=20, tasks=3)
    agent.add_arm(like=1)
    agent.retire_arm(0)
    play(agent, "clicks", rng, rounds=20, tasks=3)
    assert agent.arms == (1, 2, 3)
    finite(agent)


def test_rows_of_a_long_task_are_let_go_and_saved(tmp_path):
    agent, rng = AdaTS(latent_rows(task_scale=[0.2, 0.6]), seed=0), np.random.default_rng(6)
    for _ in range(300):
        decision = agent.ask("a", features=rng.normal(size=(3, 3)))
        agent.tell(decision, reward=click(rng))
    assert len(agent.stats("a").rows) <= 128
    assert agent.stats("a").pulls == 300
    agent.save(tmp_path / "agent.npz")
    loaded = adats.load(tmp_path / "agent.npz")
    for _ in range(80):
        rows = rng.normal(size=(3, 3))
        decisions = [one.ask("a", features=rows) for one in (agent, loaded)]
        assert decisions[0] == decisions[1]
        reward = click(rng)
        for one, decision in zip((agent, loaded), decisions, strict=True):
            one.tell(decision, reward=reward)
    assert agent.meta.total.high.tobytes() == loaded.meta.total.high.tobytes()
    agent.forget("a")
    assert np.abs(agent.meta.total.value()).max() < 1e-8


# counts in place of single rewards

COUNTED = {
    "binary": adats.default_prior(arms=[0, 1], rewards="binary"),
    "poisson": adats.MixtureMeta(
        [0.5, 0.5], [adats.PoissonArms([1.0, 2.0], r) for r in (1.0, 9.0)]
    ),
    "clicks": latent(design=np.eye(3)[:2]),
    "events": latent(design=np.eye(3)[:2], rewards="count"),
}


@pytest.mark.parametrize("kind", COUNTED)
def test_counts_are_as_good_as_single_rewards(kind):
    one, other = (AdaTS(COUNTED[kind], seed=0) for _ in range(2))
    one.tell(task="a", action=0, pulls=7, successes=3)
    one.tell(task="a", action=[0, 1], pulls=[1, 2], successes=[1, 1])
    other.tell(task="a", action=[0] * 7, reward=[1, 0, 0, 1, 0, 0, 1])
    other.tell(task="a", action=[0, 1, 1], reward=[1, 1, 0])
    stats = one.stats("a")
    assert stats.table[:2].tolist() == other.stats("a").table[:2].tolist()
    np.testing.assert_allclose(one.posterior("a").mean, other.posterior("a").mean, rtol=0.01)
    one.tell(task="a", action=0, pulls=0.5, successes=0.25)
    assert one.stats("a").count.tolist() == [8.5, 2.0]
    assert one.stats("a").total.tolist() == [4.25, 1.0]
    if kind == "binary":
        assert stats.squares.tolist() == stats.total.tolist()


def test_counts_of_rows_with_features():
    one, other = (new("click rows") for _ in range(2))
    one.tell(task="a", action=0, pulls=7, successes=3)
    one.tell(task="a", action=[1, 2], pulls=[1, 2], successes=[1, 1])
    one.tell(task="a", features=ROWS[3], pulls=1, successes=0)
    other.tell(task="a", action=[0] * 7, reward=[1, 0, 0, 1, 0, 0, 1])
    other.tell(task="a", features=ROWS[[1, 2, 2, 3]], reward=[1, 1, 0, 0])
    assert one.stats("a").table.tolist() == other.stats("a").table.tolist()
    left, right = one.posterior("a"), other.posterior("a")
    assert (np.abs(left.mean - right.mean) < 0.05 * right.scale).all()
    decision = one.ask("a")
    one.tell(decision, pulls=2.5, successes=0.5)
    assert one.stats("a").pulls == 13.5


@pytest.mark.parametrize(
    ("meta", "options", "message"),
    [
        (COUNTED["binary"], {"pulls": 2, "successes": 1, "reward": 1}, "give a reward, or pulls"),
        (COUNTED["binary"], {"pulls": 2}, "give a reward, or pulls and successes"),
        (COUNTED["binary"], {"successes": 2}, "give a reward, or pulls and successes"),
        (COUNTED["binary"], {"pulls": 2, "successes": 2.5}, "successes must be from 0 to 2.0"),
        (COUNTED["binary"], {"pulls": -1, "successes": 0}, "pulls must be positive, got -1.0"),
        (COUNTED["binary"], {"pulls": np.nan, "successes": 0}, "pulls must be finite"),
        (COUNTED["poisson"], {"pulls": 2, "successes": -1}, "successes must be 0 or more"),
        (COUNTED["binary"], {"pulls": [2], "successes": [1]}, "one for each arm"),
        (
            adats.GaussianMeta([0.0, 0.0], 1.0, task_scale=1.0, noise=1.0),
            {"pulls": 2, "successes": 1},
            "this model takes single rewards",
        ),
        (COUNTED["binary"], {}, "reward must be a number, got None"),
    ],
)
def test_counts_that_are_refused(meta, options, message):
    agent = AdaTS(meta, seed=0)
    with pytest.raises(ValueError, match=re.escape(message)):
        agent.tell(task="a", action=0, **options)
    assert agent.tasks == ()


def test_linear_models_take_single_rewards():
    agent = AdaTS(adats.LinearMeta([0.0, 0.0], 1.0, task_cov=1.0, noise=1.0), seed=0)
    with pytest.raises(ValueError, match="this model takes single rewards"):
        agent.tell(task="a", features=[1.0, 0.0], pulls=2, successes=1)


# values of policies


def scene_of(kind, **options):
    agent = new(kind)
    agent.tell(task=0, action=[0, 1, 2, 3], reward=[1.0, 0.0, 1.0, 1.0])
    return Scene(agent.posterior(0), np.random.default_rng(7), ROWS, horizon=20, **options)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("kind", FIXED)
def test_values_are_mean_rewards(kind, policy):
    """Of sets of arms the sum counts, so that values are rates, not log-odds."""
    scene = scene_of(kind)
    values = POLICIES[policy].values(scene)
    assert (values > 0).all()
    assert kind == "event rows" or (values < 1).all()


def test_values_under_a_draw_and_expected_ones():
    scene = scene_of("click rows")
    belief = scene.belief
    theta = belief.sample(np.random.default_rng(7))
    drawn = POLICIES["ts"].values(scene)
    np.testing.assert_allclose(drawn, 1 / (1 + np.exp(-ROWS @ theta)), rtol=1e-12)
    means = belief.rewards_at(ROWS, belief.draws(20000, np.random.default_rng(8)))
    greedy = POLICIES["greedy"].values(scene)
    assert (np.abs(greedy - means.mean(axis=0)) < 4 * means.std(axis=0) / 20000**0.5).all()


def test_propensities_of_sets_are_counted_over_mean_rewards():
    """The sum of rates decides, not that of log-odds."""
    meta = LatentLinearMeta([1.0], 0.0, task_scale=0.0)
    belief = meta.task_prior()
    rows = np.array([[3.0], [-2.0], [0.2], [0.2]])  # log-odds: 1 > 0.4, and rates: 1.07 < 1.1

    def pairs(values):
        return [0, 1] if values[0] + values[1] > values[2] + values[3] else [2, 3]

    found = propensities(belief, oracle=pairs, features=rows, rng=np.random.default_rng(0), draws=5)
    assert found.probabilities.tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize("kind", ["gaussian", "beta", "poisson", "exponential", "models"])
def test_the_ratio_of_variances_is_that_of_mean_and_reward(kind):
    belief = CASES[kind].meta.task_prior()
    ratio = belief.variance_ratio
    known = np.isfinite(belief.scale)
    expected = belief.scale[known] ** 2 / np.maximum(belief.reward_variance[known], 1e-300)
    np.testing.assert_array_equal(ratio[known], expected)
    assert (ratio[~known] == 1e12).all()


def test_the_ratio_of_variances_of_rows_is_that_of_eta():
    arms = scene_of("click rows").belief.at_rows(ROWS)
    rate = 1 / (1 + np.exp(-arms.eta_mean))
    np.testing.assert_allclose(arms.variance_ratio, arms.eta_scale**2 * rate * (1 - rate))


def test_a_semi_bandit_earns_as_it_should():
    """The two best of four arms by rate are found, where one success in four is typical."""
    agent = AdaTS(latent_rows(), seed=0, features=ROWS, oracle=Top(2, exactly=True))
    rng, rates = np.random.default_rng(9), np.array([0.1, 0.6, 0.2, 0.7])
    theta = np.linalg.lstsq(ROWS, np.log(rates / (1 - rates)), rcond=None)[0]
    best = set(np.argsort(-ROWS @ theta)[:2].tolist())
    picked = []
    for _ in range(300):
        decision = agent.ask("a")
        chances = 1 / (1 + np.exp(-decision.features @ theta))
        agent.tell(decision, reward=(rng.random(2) < chances).astype(float))
        picked.append(set(decision.action) == best)
    assert np.mean(picked[-100:]) > 0.6
