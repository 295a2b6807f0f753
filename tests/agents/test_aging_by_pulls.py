"""Half-lives in pulls: rewards lose weight as their arm has others."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import adats
from adats.agents.policies import POLICIES
from cases import ALL, CLASSES, alike, portrait

HALF_LIFE = 3.0
OF_ARMS = [
    name
    for name, case in ALL.items()
    if case.meta.n_features == 0 and case.meta.empty().arm_pulls is not None
]
EXACT = [name for name in OF_ARMS if not ALL[name].meta.RENEWS]
OF_FEATURES = sorted(set(ALL) - set(OF_ARMS))


def agent_of(name, cls=adats.AdaTS, **options):
    case = ALL[name]
    told = (case.meta.sample(np.random.default_rng(0)),) if cls is adats.OracleTS else ()
    options = dict(case.options) | {"half_life": HALF_LIFE, "clock": "pulls"} | options
    return cls(case.meta, *told, seed=1, **options)


def a_log(case, rewards, tasks=4, seed=0):
    rng = np.random.default_rng(seed)
    arms = case.meta.n_arms
    return [
        (int(rng.integers(tasks)), int(rng.integers(arms)), case.reward(rng))
        for _ in range(rewards)
    ]


def tell(agent, case, row):
    task, arm, reward = row
    arm = arm if case.meta.arms is None else case.meta.arms[arm]
    agent.tell(task=task, action=arm, reward=reward)


def weighted(case, rows, task):
    """The statistics of a task by the definition: a reward weighs half for each half-life of
    rewards that its arm has had since."""
    stats = case.meta.empty()
    mine = [row for row in rows if row[0] == task]
    for i, (_, arm, reward) in enumerate(mine):
        later = sum(other == arm for _, other, _ in mine[i + 1 :])
        one_more = case.meta.empty().add(arm, reward)
        stats = stats + one_more.scaled(0.5 ** (later / HALF_LIFE))
    return stats


def belief_by_definition(case, rows, task):
    digests = {
        one: case.meta.digest(weighted(case, rows, one))
        for one in {row[0] for row in rows} | {task}
    }
    meta = case.meta
    for digest in digests.values():
        meta = meta.absorb(digest.message)
    return meta.posterior(digests[task])


def same_beliefs(agent, case, rows):
    for task in agent.tasks:
        found, wanted = agent.posterior(task), belief_by_definition(case, rows, task)
        np.testing.assert_allclose(found.mean, wanted.mean, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(found.scale, wanted.scale, rtol=1e-9, atol=1e-9)


def test_models_of_arms_are_known():
    assert {"gaussian", "beta", "poisson", "models", "clusters", "clicks", "events"} <= set(OF_ARMS)


@pytest.mark.parametrize("name", EXACT)
def test_beliefs_are_those_of_the_weighted_log(name):
    case, agent = ALL[name], agent_of(name)
    rows = a_log(case, 80)
    for i, row in enumerate(rows):
        tell(agent, case, row)
        if i % 20 == 19:
            same_beliefs(agent, case, rows[: i + 1])


def test_by_hand():
    """The first of two rewards weighs half; a reward of the other arm changes nothing."""
    meta = adats.GaussianMeta([0.0, 0.0], 0.0, task_scale=1.0, noise=1.0)
    agent = adats.AdaTS(meta, seed=1, half_life=1.0, clock="pulls")
    for action, reward in ((0, 4.0), (0, 1.0), (1, 1.0)):
        agent.tell(task="a", action=action, reward=reward)
    assert agent.stats("a").count.tolist() == [1.5, 1.0]
    assert agent.posterior("a").mean == pytest.approx([3.0 / 2.5, 0.5])


@pytest.mark.parametrize("name", ["gaussian", "beta arms", "models"])
@given(data=st.data())
def test_any_interleaving_is_the_weighted_log(name, data):
    case, agent, rng = ALL[name], agent_of(name), np.random.default_rng(0)
    steps = st.tuples(
        st.sampled_from(["tell"] * 5 + ["ask", "forget", "finish"]),
        st.integers(0, 2),
        st.integers(0, 2),
    )
    rows = []
    for what, task, arm in data.draw(st.lists(steps, min_size=1, max_size=25)):
        if what == "tell":
            rows.append((task, arm, case.reward(rng)))
            tell(agent, case, rows[-1])
        elif task in agent.tasks and what != "ask":
            getattr(agent, what)(task)
            rows = [row for row in rows if what == "finish" or row[0] != task]
        elif task not in agent.tasks:
            agent.ask(task)
    same_beliefs(agent, case, rows)


@pytest.mark.parametrize("name", ["clicks", "events"])
def test_sites_are_those_of_the_weighted_counts(name):
    """Of one task: those of an agent that is told the counts, but for where its anchors are."""
    case, agent = ALL[name], agent_of(name)
    rows = a_log(case, 400, tasks=1)
    for row in rows:
        tell(agent, case, row)
    stats = agent.stats(0)
    wanted = weighted(case, rows, 0)
    np.testing.assert_allclose(stats.table, wanted.table, rtol=1e-9)
    digest = agent.meta.digest(wanted)
    fresh = case.meta.absorb(digest.message).posterior(digest)
    found = agent.posterior(0)
    assert (np.abs(found.mean - fresh.mean) < 0.05 * fresh.scale).all()
    np.testing.assert_allclose(found.scale, fresh.scale, rtol=0.05)


def test_several_rewards_of_an_arm_at_once_come_one_after_another():
    single, many = agent_of("gaussian"), agent_of("gaussian")
    arms, rewards = [0, 1, 0, 0], [1.0, 2.0, 3.0, 4.0]
    for arm, reward in zip(arms, rewards, strict=True):
        single.tell(task=0, action=arm, reward=reward)
    many.tell(task=0, action=np.array(arms), reward=np.array(rewards))
    np.testing.assert_allclose(many.stats(0).table, single.stats(0).table, rtol=1e-15)


@pytest.mark.parametrize("pulls", [1, 7, 2.5])
def test_counts_are_pulls_with_successes_spread_evenly(pulls):
    agent = agent_of("beta arms")
    agent.tell(task=0, action=0, reward=1)
    agent.tell(task=0, action=0, pulls=pulls, successes=0.4 * pulls)
    keep = 0.5 ** (1 / HALF_LIFE)
    whole = keep**pulls + (1 - keep**pulls) / (1 - keep)
    if pulls == 7:
        assert whole == pytest.approx(sum(keep**k for k in range(8)))
    successes = keep**pulls + 0.4 * (1 - keep**pulls) / (1 - keep)
    assert agent.stats(0).table[:2, 0] == pytest.approx([whole, successes])


@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize("name", ["gaussian", "models", "clicks"])
def test_a_table_of_rewards_is_one_by_one(name, columns):
    case = ALL[name]
    single, many = agent_of(name, columns=columns), agent_of(name, columns=columns)
    rows = a_log(case, 40)
    for row in rows:
        tell(single, case, row)
    tasks, actions, rewards = map(np.array, zip(*rows, strict=True))
    with pytest.warns(UserWarning, match="half-lives in pulls, which take one reward after the"):
        many.tell_many({"task": tasks, "action": actions, "reward": rewards})
    alike(portrait(many), portrait(single), 0)
    decided = many.ask_many([0, 1, 9])
    assert [d.task for d in decided] == [0, 1, 9]


@pytest.mark.parametrize("name", ["gaussian", "models", "clicks"])
def test_a_file_goes_on_bit_for_bit(tmp_path, name):
    case, agent = ALL[name], agent_of(name)
    for row in a_log(case, 60):
        tell(agent, case, row)
    agent.save(tmp_path / "agent.npz")
    again = adats.load(tmp_path / "agent.npz")
    for i in range(20):
        one, two = agent.ask(i % 5), again.ask(i % 5)
        assert one == two
        agent.tell(one, reward=1.0)
        again.tell(two, reward=1.0)
    alike(portrait(again), portrait(agent), 0)


def test_the_clock_of_rounds_stays_without_half_lives(tmp_path):
    agent = adats.AdaTS(ALL["gaussian"].meta, seed=1, clock="rounds")
    agent.save(tmp_path / "agent.npz")
    assert adats.load(tmp_path / "agent.npz").ask("a").time == agent.ask("a").time == 1.0


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("cls", CLASSES)
def test_every_agent_and_policy(cls, policy):
    agent = agent_of("gaussian", cls, policy=policy)
    for i in range(30):
        agent.tell(agent.ask(i % 3, horizon=40), reward=float(i % 2))
    for task in range(3):
        most = 1 / (1 - 0.5 ** (1 / HALF_LIFE))
        assert 0 < agent.stats(task).count.max() < most


@pytest.mark.parametrize("name", ["gaussian", "clicks"])
def test_a_bad_reward_changes_nothing(name):
    case, agent = ALL[name], agent_of(name)
    for row in a_log(case, 20):
        tell(agent, case, row)
    before = portrait(agent)
    for bad in ({"reward": math.nan}, {"reward": "x"}, {"pulls": -1, "successes": 0}):
        with pytest.raises(ValueError, match=r"reward|pulls"):
            agent.tell(task=0, action=0, **bad)
    with pytest.raises(ValueError, match="no arm 99"):
        agent.tell(task=0, action=99, reward=1)
    alike(portrait(agent), before, 0)


@pytest.mark.parametrize("name", OF_FEATURES)
def test_arms_with_features_have_none(name):
    with pytest.raises(ValueError, match="model has features: its arms have no rewards to count"):
        agent_of(name)


@pytest.mark.parametrize(
    "lives", [{}, {"prior_half_life": 2.0}, {"half_life": 1.0, "prior_half_life": 2.0}]
)
def test_it_takes_a_half_life_alone(lives):
    with pytest.raises(ValueError, match="'pulls' counts the rewards of an arm in its task"):
        adats.AdaTS(ALL["gaussian"].meta, seed=1, clock="pulls", **lives)


def test_a_damaged_file_is_not_read(tmp_path):
    state = agent_of("gaussian").state()
    fault = object.__new__(type(state.setup))
    for name, value in vars(state.setup).items():
        object.__setattr__(fault, name, value)
    object.__setattr__(fault, "keep", 1.5)
    adats.AdaTS.from_state(state._replace(setup=fault)).save(tmp_path / "agent.npz")
    with pytest.raises(ValueError, match="keep is a part of a weight, between 0 and 1"):
        adats.load(tmp_path / "agent.npz")
