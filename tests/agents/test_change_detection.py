"""The detector of changes: no bet wins on average if nothing moves, and jumps are seen."""

import itertools
import json
import math
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtr

import adats
from adats import AdaTS, BetaArms, GaussianMeta, LatentMeta, MixtureMeta, PoissonArms
from adats.agents import change_detection as detection
from adats.agents.change_detection import ALARM, PRIOR, TASKS, WARNING, evidence, multiplied
from cases import ALL, ask, new, play, rewards_of
from change_study import World, study

# bets


@given(
    st.lists(st.floats(0.0, 1.0), max_size=6),
    st.floats(-3.0, 3.0),
    st.floats(0.0, 4.0),
    st.floats(1.0, 3.0),
)
def test_no_bet_on_steps_wins_on_average(inner, centre, variance, root):
    edges = [0.0, *sorted(inner), 1.0]
    steps = [(a, b) for a, b in itertools.pairwise(edges) if b > a]
    won = sum((b - a) * multiplied(a, b, centre, variance, root) for a, b in steps)
    assert won <= 1.0 + 1e-9


@pytest.mark.parametrize("centre", [-1.0, 0.3])
@pytest.mark.parametrize("variance", [0.0, 0.5])
def test_a_bet_that_is_not_tempered_is_fair(monkeypatch, centre, variance):
    monkeypatch.setattr(detection, "FAR", 8.0)
    monkeypatch.setattr(detection, "BELOW", float(ndtr(-8.0)))
    steps = [(0.0, 0.02), (0.02, 0.5), (0.5, 0.9), (0.9, 1.0)]
    won = sum((b - a) * multiplied(a, b, centre, variance, 1.0) for a, b in steps)
    assert won == pytest.approx(1.0, abs=1e-7)
    scores, width = np.linspace(-8.0, 8.0, 4001, retstep=True)
    density = np.exp(-0.5 * scores**2) / math.sqrt(2 * math.pi)
    each = [multiplied(level, level, centre, variance, 1.0) for level in ndtr(scores)]
    assert float(density @ each) * width == pytest.approx(1.0, abs=2e-3)


def test_a_step_wins_what_its_points_win_on_average():
    for root, (low, high) in itertools.product((1.0, 1.7), ((0.0, 0.3), (0.2, 0.21), (0.4, 1.0))):
        levels = low + (high - low) * (np.arange(20_000) + 0.5) / 20_000
        points = [multiplied(level, level, 0.8, 0.6, root) for level in levels]
        assert multiplied(low, high, 0.8, 0.6, root) == pytest.approx(np.mean(points), rel=1e-4)
        scores = [detection.normal_score(level, level) for level in levels]
        assert detection.normal_score(low, high) == pytest.approx(np.mean(scores), abs=1e-4)


SMALL = {
    "clicks": MixtureMeta([0.3, 0.7], [BetaArms([1.0, 2.0], 4.0), BetaArms(3.0, [1.0, 2.0])]),
    "models": adats.ModelMixture(
        [0.5, 0.5],
        [
            MixtureMeta([1.0], [BetaArms([1.0, 2.0], 2.0)]),
            MixtureMeta([0.5, 0.5], [BetaArms(2.0, [5.0, 2.0]), BetaArms([9.0, 2.0], 1.0)]),
        ],
    ),
}


@pytest.mark.parametrize("kind", SMALL)
def test_of_all_logs_together_the_evidence_is_what_was_staked(kind):
    """Each of the 256 logs of eight rewards, by its chance; actions depend on what was before."""
    tasks = [0, 0, 1, 0, 1, 2, 2, 0]
    chances, found = [], []
    for rewards in itertools.product((0.0, 1.0), repeat=len(tasks)):
        agent = AdaTS(SMALL[kind], seed=1, detect_changes=True)
        for i, (task, reward) in enumerate(zip(tasks, rewards, strict=True)):
            arm = int(sum(rewards[:i]) + i) % 2
            agent.tell(task=task, action=arm, reward=reward)
        chances.append(math.exp(agent.meta.log_evidence()))
        known = agent.state().detector.watch
        found.append((known.prior_evidence, known.tasks_evidence, known.task_evidence))
    assert sum(chances) == pytest.approx(1.0, abs=1e-9)
    prior, pooled, own = np.array(chances) @ np.array(found)
    for expected, staked in ((prior, 3), (pooled, 8), (own, 8)):
        assert 0.8 * staked < expected <= staked + 1e-9
    spread = np.std(np.array(found)[:, 0])
    assert spread > 0.05  # bets are made at all


# where rewards fall


@pytest.mark.parametrize("kind", ["beta", "beta arms", "poisson", "clicks", "events"])
def test_a_step_is_as_wide_as_its_reward_is_likely(kind):
    agent = new(kind)
    play(agent, kind, np.random.default_rng(3), rounds=25)
    belief, top = agent.posterior(agent.tasks[0]), 0.0
    for reward in (0.0, 1.0):
        low, high = belief.rank(1, reward)
        stats = agent.meta.empty().add(1, reward)
        chance = math.exp(belief.condition(stats).log_evidence)
        assert high - low == pytest.approx(chance, rel=2e-3)
        assert low == pytest.approx(top, abs=1e-12)
        top = high


@pytest.mark.parametrize("kind", ["gaussian", "exponential", "normal", "models", "linear"])
def test_levels_rise_as_rewards_are_likely(kind):
    agent, width = new(kind), 1e-4
    play(agent, kind, np.random.default_rng(3), rounds=25)
    belief = agent.posterior(agent.tasks[0])
    row = dict(ALL[kind].options).get("features")
    arms = belief if row is None else belief.at_rows(row[1:2])
    for reward in (0.2, 1.0):
        rise = arms.rank(0, reward + width)[0] - arms.rank(0, reward - width)[0]
        stats = agent.meta.empty().add(0 if row is None else row[1], reward)
        chance = math.exp(belief.condition(stats).log_evidence)
        assert rise / (2 * width) == pytest.approx(chance, rel=1e-5)


# agents


@pytest.mark.parametrize("kind", ALL)
def test_an_agent_that_looks_for_changes_decides_as_if_it_did_not(kind):
    agents = [new(kind, seed=5, detect_changes=on) for on in (True, False)]
    told = [play(agent, kind, np.random.default_rng(6)) for agent in agents]
    for (one, reward), (other, same) in zip(*told, strict=True):
        assert one.action == other.action
        assert reward == same
    watch = agents[0].state().detector.watch
    assert watch.rewards == sum(np.size(reward) for _, reward in told[0])
    assert all(math.isfinite(value) for value in evidence(watch).values())
    assert agents[1].changes == ()


@pytest.mark.parametrize("kind", ["gaussian", "linear", "clicks", "semi-bandit", "exchangeable"])
@pytest.mark.parametrize("lives", [{}, {"half_life": 5.0, "clock": "rounds"}])
def test_a_saved_agent_looks_on(kind, lives, tmp_path):
    agent = new(kind, detect_changes=True, **lives)
    play(agent, kind, np.random.default_rng(1))
    agent.save(tmp_path / "agent.npz")
    again = adats.load(tmp_path / "agent.npz")
    for one in (agent, again):
        rng = np.random.default_rng(2)
        decision = ask(one, kind, 1, rng)
        one.tell(decision, reward=rewards_of(decision, kind, rng))
    left, right = (one.state().detector for one in (agent, again))
    assert json.dumps(left.watch.to_dict()) == json.dumps(right.watch.to_dict())
    assert detection.watch_from_dict(json.loads(json.dumps(left.watch.to_dict()))).to_dict() == (
        right.watch.to_dict()
    )
    for task, known in left.tasks.items():
        np.testing.assert_array_equal(known.flat(), right.tasks[task].flat())


def test_a_batch_is_looked_at_reward_by_reward_and_a_bad_one_not_at_all():
    one, many = (new("gaussian", detect_changes=True) for _ in range(2))
    rng = np.random.default_rng(0)
    tasks, arms, rewards = rng.integers(3, size=30), rng.integers(3, size=30), rng.normal(size=30)
    for task, arm, reward in zip(tasks.tolist(), arms.tolist(), rewards.tolist(), strict=True):
        one.tell(task=task, action=arm, reward=reward)
    frame = {"task": tasks, "action": arms, "reward": rewards}
    with pytest.warns(UserWarning, match="a detector of changes"):
        many.tell_many(frame)
    assert one.state().detector.watch.to_dict() == many.state().detector.watch.to_dict()
    with pytest.raises(ValueError, match="arm"):
        many.tell_many(frame | {"action": np.append(arms[:-1], 7)})
    assert one.state().detector.watch.to_dict() == many.state().detector.watch.to_dict()


@pytest.mark.parametrize(
    "lives", [{}, {"half_life": 1, "clock": "pulls"}, {"half_life": 3.0, "prior_half_life": 5.0}]
)
def test_rewards_that_come_at_once_are_looked_at_one_after_another(lives):
    meta = GaussianMeta([0.0, 0.0], 1.0, task_scale=0.5, noise=1.0)
    once, each = (AdaTS(meta, seed=1, detect_changes=True, **lives) for _ in range(2))
    for i in range(30):
        time = {"time": float(i)} if "prior_half_life" in lives else {}
        once.tell(task=i % 3, action=[0, 0, 1], reward=[2.0, 2.0, -2.0], **time)
        for arm, reward in ((0, 2.0), (0, 2.0), (1, -2.0)):
            each.tell(task=i % 3, action=arm, reward=reward, **time)
    found, wanted = (evidence(agent.state().detector.watch) for agent in (once, each))
    assert found == pytest.approx(wanted, rel=1e-9)


def test_arms_that_are_added_are_looked_at_too():
    agent = new("gaussian", detect_changes=True)
    play(agent, "gaussian", np.random.default_rng(0))
    agent.add_arm(like=0)
    agent.tell(task=1, action=3, reward=0.5)
    assert agent.state().detector.watch.shift.mean.size == 5
    agent.forget(1)
    assert 1 not in agent.state().detector.tasks


def test_sums_of_rewards_are_not_compared():
    agent = new("beta", detect_changes=True)
    agent.tell(task="a", action=0, pulls=5, successes=2)
    assert agent.state().detector.watch.rewards == 0


def test_only_agents_that_learn_can_look():
    meta = GaussianMeta([0.0, 0.0], scale=1.0, task_scale=1.0, noise=1.0)
    with pytest.raises(ValueError, match="agents that learn their prior, such as AdaTS"):
        adats.TS(meta, seed=1, detect_changes=True)
    with pytest.raises(ValueError, match="True or False, got 'yes'"):
        AdaTS(meta, seed=1, detect_changes="yes")


# what is found


@pytest.mark.parametrize(
    ("world", "meta"),
    [
        (
            World(4, 0.7, scale=0.9, noise=1.2, believed=(0.8, 0.9)),
            GaussianMeta(np.zeros(4), scale=0.9, task_scale=0.56, noise=1.08),
        ),
        (World(3, clicks=(2.0, 6.0)), MixtureMeta([1.0], [BetaArms([2.0, 2.0, 2.0], 6.0)])),
    ],
)
def test_another_way_to_the_same_evidence(world, meta):
    """The study of many runs, in arrays, has formulas of its own."""
    rewards = []
    found = study(world._replace(tasks=8, rounds=30), 3, 1, rewards)
    agent, tops = AdaTS(meta, seed=1, detect_changes=True), np.zeros((2, 8))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for task, arm, reward in rewards:
            agent.tell(task=task, action=arm, reward=reward)
            now = evidence(agent.state().detector.watch)
            tops[:, task] = np.maximum(tops[:, task], [now[PRIOR], now[TASKS]])
    np.testing.assert_allclose(tops, [found.prior[0], found.tasks[0]], rtol=1e-9)


def run(agent, tasks, rounds, mean, draw, rng):
    """The changes that an agent finds in tasks one after another, and those that it warns of."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for task in tasks:
            theta = mean(task) if callable(mean) else mean
            for i in range(rounds):
                arm = agent.ask(task).action
                agent.tell(task=task, action=arm, reward=draw(theta(i)[arm], rng))
    return agent.changes, [str(one.message) for one in said]


def test_a_jump_of_the_prior_mean_is_found_and_said_once_each():
    delays = []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        meta = GaussianMeta(np.zeros(10), scale=1.0, task_scale=1.0, noise=1.0)
        agent, mu = AdaTS(meta, seed=seed, detect_changes=True), rng.normal(size=10)
        jump = rng.choice([-1.0, 1.0], 10)

        def mean(task, mu=mu, jump=jump, rng=rng):
            theta = mu + jump * (task >= 40) + rng.normal(size=10)
            return lambda _: theta

        found, said = run(agent, range(65), 100, mean, lambda m, rng: m + rng.normal(), rng)
        change = {one.what: one for one in found}[PRIOR]
        assert change.kind == ALARM
        delays.append(change.tasks - 40)
        assert sum("new tasks fall off" in line for line in said) == 2
        assert sum(line.startswith("alarm") for line in said) >= 1
        assert "prior_half_life=" in str(change)
    assert min(delays) > 0
    assert np.median(delays) <= 12


def turning(_):
    return lambda i: np.array([0.0, 0.0, 0.0, 0.0, 1.0 if i < 100 else -1.0])


def test_a_jump_within_a_task_is_found():
    for seed in range(4):
        rng = np.random.default_rng(seed)
        meta = GaussianMeta(np.zeros(5), scale=0.3, task_scale=1.0, noise=1.0)
        agent = AdaTS(meta, seed=seed, detect_changes=True)
        found, _ = run(agent, ["a"], 200, turning, lambda m, rng: m + rng.normal(), rng)
        change = {one.what: one for one in found}[TASKS]
        assert change.rewards > 100
        agent.watch_anew()
        assert agent.changes == ()
        agent.tell(task="a", action=0, reward=0.0)
        assert evidence(agent.state().detector.watch)[TASKS] < 10


STILL = {
    "gaussian": (
        GaussianMeta(np.zeros(4), scale=1.0, task_scale=0.5, noise=1.0),
        lambda mean, rng: mean + rng.normal(),
    ),
    "clicks": (
        LatentMeta(np.full(4, -1.0), 0.5, task_scale=0.5),
        lambda mean, rng: float(rng.random() < mean),
    ),
    "counts": (
        MixtureMeta(
            [0.5, 0.5], [PoissonArms([2.0, 4, 3, 1], 1.0), PoissonArms(6.0, [2.0, 3, 4, 5])]
        ),
        lambda mean, rng: float(rng.poisson(mean)),
    ),
}


@pytest.mark.parametrize("kind", STILL)
def test_in_worlds_that_stand_still_nothing_is_alarming(kind):
    """One false alarm in 10,000 tasks at most: in 5 × 25 there is one with a chance of 0.01."""
    for seed in range(5):
        rng = np.random.default_rng([seed, 9])
        meta, draw = STILL[kind]
        agent, mu = AdaTS(meta, seed=seed, detect_changes=True), meta.sample(rng)

        def mean(_, meta=meta, mu=mu, rng=rng):
            theta = meta.prior_given(mu).sample(rng)
            return lambda _: theta

        found, _ = run(agent, range(25), 25, mean, draw, rng)
        assert ALARM not in {one.kind for one in found}


def test_wrong_spreads_are_no_change():
    """Tasks differ twice as much as is believed, and rewards half as much again."""
    alarms = 0
    for seed in range(8):
        rng = np.random.default_rng([seed, 4])
        meta = GaussianMeta(np.zeros(5), scale=1.0, task_scale=0.5, noise=1.0)
        agent, mu = AdaTS(meta, seed=seed, detect_changes=True), rng.normal(size=5)

        def mean(_, mu=mu, rng=rng):
            theta = mu + rng.normal(size=5)
            return lambda _: theta

        found, _ = run(agent, range(40), 40, mean, lambda m, rng: m + 1.5 * rng.normal(), rng)
        alarms += sum(one.kind == ALARM for one in found)
    assert alarms <= 1


def test_warnings_come_before_alarms():
    for limits in detection.LIMITS.values():
        assert limits[WARNING] < limits[ALARM]
