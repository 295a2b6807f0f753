"""Half-lives: beliefs are those of the weighted log, whatever came when."""

import math
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import adats
from adats.agents.aging import Aging
from adats.agents.policies import POLICIES
from adats.agents.task_state import DictBook
from adats.models.core.frozen import evolve, fill
from brute import JointTask, joint
from cases import ALL, CLASSES, ROWS, portrait

EXACT = [name for name, case in ALL.items() if not case.meta.RENEWS]
SITES = ["clicks", "events", "click rows", "event rows", "click attributes"]
LIVES = [(3.0, 5.0), (3.0, None), (None, 5.0)]
TIMES = ("task", "action", "reward", "time")


def a_log(case, rewards, tasks=4, seed=0, late=0.25):
    """Rows (task, action, features, reward, time), some late, in the order in which they come."""
    rng = np.random.default_rng(seed)
    rows, now = [], -2.0
    for _ in range(rewards):
        now += rng.exponential(0.4)
        task = int(rng.integers(tasks))
        features = case.features(task, rng)
        fixed = dict(case.options).get("features")
        known = features if fixed is None else fixed
        arms = case.meta.n_arms if known is None else len(known)
        arm = int(rng.integers(arms))
        time = now - rng.exponential(2.0) * (rng.random() < late)
        row = None if features is None else features[arm]
        rows.append((task, arm, row, case.reward(rng), time))
    return rows


def tell(agent, case, row):
    task, arm, features, reward, time = row
    arm = arm if case.meta.arms is None else case.meta.arms[arm]
    action = {"action": arm} if features is None else {"features": features}
    agent.tell(task=task, reward=reward, time=time, design=case.design(task), **action)


def weighted(case, rows, task, now, aging):
    """The belief over theta of a task by the definition: every reward has its weight, in its task;
    every other task has its weight, in what all taught."""
    fixed = dict(case.options).get("features")
    meta = own = None
    for one in {row[0] for row in rows} | {task}:
        mine = [row for row in rows if row[0] == one]
        last = now if one == task else max(row[-1] for row in mine)
        design = case.design(one)
        stats = case.meta.empty(design=design)
        for _, arm, features, reward, time in mine:
            pulled = arm if features is None and fixed is None else features
            pulled = fixed[arm] if pulled is None else pulled
            one_more = case.meta.empty(design=design).add(pulled, reward)
            stats = stats + one_more.scaled(aging.task_weight(last - time))
        digest = case.meta.digest(stats, design=design)
        weight = 1.0 if one == task else aging.prior_weight(now - last)
        meta = (case.meta if meta is None else meta).absorb(weight * digest.message)
        own = digest if one == task else own
    return meta.posterior(own)


def agent_of(name, lives, **options):
    case = ALL[name]
    half_life, prior_half_life = lives
    options = dict(case.options) | options
    return adats.AdaTS(
        case.meta, seed=1, half_life=half_life, prior_half_life=prior_half_life, **options
    )


def aging_of(lives):
    return Aging(*(math.inf if life is None else life for life in lives))


@pytest.mark.parametrize("lives", LIVES)
@pytest.mark.parametrize("name", EXACT)
def test_beliefs_are_those_of_the_weighted_log(name, lives):
    case, agent = ALL[name], agent_of(name, lives)
    rows = a_log(case, 120)
    for i, row in enumerate(rows):
        tell(agent, case, row)
        if i % 20 == 19:
            now = max(row[-1] for row in rows[: i + 1]) + 0.7 * (i % 3)
            for task in agent.tasks:
                found = agent.posterior(task, time=now)
                wanted = weighted(case, rows[: i + 1], task, now, aging_of(lives))
                np.testing.assert_allclose(found.mean, wanted.mean, rtol=1e-9, atol=1e-9)
                np.testing.assert_allclose(found.scale, wanted.scale, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("lives", LIVES)
@pytest.mark.parametrize("name", EXACT + SITES)
def test_a_quick_look_sees_what_a_long_one_does(name, lives):
    """`belief_at` makes no sum; `present` does."""
    case, agent = ALL[name], agent_of(name, lives)
    for row in a_log(case, 60):
        tell(agent, case, row)
    state = agent.state()
    for gap in (0.0, 0.7, 40.0, 4000.0):
        for task in state.tasks.values():
            where = (state.meta, state.time, task, state.time + gap)
            quick = state.setup.belief_at(*where)
            long = state.setup.source.posterior(*state.setup.present(*where))
            np.testing.assert_allclose(quick.mean, long.mean, rtol=1e-12, atol=1e-12)
            np.testing.assert_allclose(quick.scale, long.scale, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("lives", LIVES)
def test_a_decision_is_drawn_from_the_belief_of_the_weighted_log(lives):
    case, agent = ALL["gaussian"], agent_of("gaussian", lives)
    rows = a_log(case, 60)
    for row in rows:
        tell(agent, case, row)
    now = max(row[-1] for row in rows) + 1.5
    for task in (0, 1, 2, 3, 0):
        wanted = weighted(case, rows, task, now, aging_of(lives))
        before = agent.state().rng.bit_generator.state
        theta = wanted.sample(agent.state().rng)
        agent.state().rng.bit_generator.state = before
        assert agent.ask(task, time=now).action == theta.argmax()


def test_round_off_of_a_message_that_is_out_is_no_negative_variance():
    """A message of 1e12 fades with one half-life, the task's own rewards with another."""
    meta = adats.GaussianMeta([0.0], 1e7, task_scale=0.0, noise=1e-6)
    for seed in range(60):
        agent = adats.AdaTS(meta, seed=1, half_life=0.01, prior_half_life=3.0)
        rng, now = np.random.default_rng(seed), 0.0
        for _ in range(100):
            now += rng.exponential(0.3)
            agent.tell(task="a", action=0, reward=5.0, time=now)
        state = agent.state()
        for time in (now + 0.5, now + 3.0):
            meta_then, task = state.setup.present(state.meta, now, state.tasks["a"], time)
            for belief in (agent.posterior("a", time=time), meta_then.posterior(task.digest)):
                assert 0.0 < belief.scale[0] <= 1e7


def test_a_task_whose_own_rewards_keep_their_weight_is_not_worked_out_again(monkeypatch):
    case, agent = ALL["linear"], agent_of("linear", (None, 5.0))
    rows = a_log(case, 40, late=0.0)
    for row in rows:
        tell(agent, case, row)
    calls, digest = [], adats.LinearMeta.digest
    monkeypatch.setattr(
        adats.LinearMeta, "digest", lambda *a, **k: calls.append(1) or digest(*a, **k)
    )
    assert agent.ask(0, time=rows[-1][-1] + 2.0).task == 0
    assert not calls
    tell(agent, case, rows[0])
    assert calls


def test_a_weighted_reward_is_one_with_more_noise():
    """By the joint Gaussian written out: a weight w is a noise of σ/√w."""
    case, lives = ALL["linear"], (3.0, None)
    agent, rows = agent_of("linear", lives), a_log(ALL["linear"], 40)
    for row in rows:
        tell(agent, case, row)
    now, meta = max(row[-1] for row in rows) + 1.0, case.meta
    for task in agent.tasks:
        tasks, names = [], sorted(agent.tasks)
        for one in names:
            mine = [row for row in rows if row[0] == one]
            last = now if one == task else max(row[-1] for row in mine)
            x = np.array([ROWS[row[1]] for row in mine])
            y = np.array([row[3] for row in mine])
            noise = 0.7 * np.array([2.0 ** ((last - row[-1]) / 6.0) for row in mine])
            cov = meta.figures()["task_cov"]
            tasks.append(JointTask(np.eye(3), cov, x, y, noise))
        mean, cov = joint(meta.figures()["mean"], meta.figures()["cov"], tasks).thetas[
            names.index(task)
        ]
        found = agent.posterior(task, time=now)
        np.testing.assert_allclose(found.mean, mean, atol=1e-9)
        np.testing.assert_allclose(found.scale**2, np.diag(cov), atol=1e-9)


def test_by_hand():
    """Two rewards of 1, one half-life apart, are 1.5 pulls; n / (n + 1) of the average."""
    meta = adats.GaussianMeta([0.0], 0.0, task_scale=1.0, noise=1.0)
    agent = adats.AdaTS(meta, seed=1, half_life=10.0)
    agent.tell(task="a", action=0, reward=1.0, time=0.0)
    agent.tell(task="a", action=0, reward=1.0, time=10.0)
    assert agent.stats("a").count.tolist() == [1.5]
    assert agent.posterior("a").mean == pytest.approx([0.6])
    assert agent.posterior("a", time=20.0).mean == pytest.approx([0.75 / 1.75])


@pytest.mark.parametrize("name", ["gaussian", "linear", "beta arms", "models"])
@given(data=st.data())
def test_any_interleaving_is_the_weighted_log(name, data):
    """Rewards of any time, some all but forgotten, decisions and tasks that go, in any order."""
    case, lives = ALL[name], data.draw(st.sampled_from(LIVES))
    agent, rng = agent_of(name, lives), np.random.default_rng(0)
    fixed = dict(case.options).get("features")
    steps = st.tuples(
        st.sampled_from(["tell"] * 5 + ["ask", "forget", "finish"]),
        st.integers(0, 2),
        st.integers(0, 2),
        st.sampled_from([0.0, 0.0, 0.3, 2.0, 40.0]),
        st.sampled_from([0.0, 0.0, 0.3, 2.0, 40.0, 2900.0]),
    )
    rows, now = [], 0.0
    for what, task, arm, on, late in data.draw(st.lists(steps, min_size=1, max_size=25)):
        now += on
        if what == "tell":
            rows.append((task, arm, None, case.reward(rng), now - late))
            tell(
                agent,
                case,
                rows[-1] if fixed is None else (*rows[-1][:2], fixed[arm], *rows[-1][3:]),
            )
        elif task in agent.tasks and what != "ask":
            getattr(agent, what)(task)
            rows = [row for row in rows if what == "finish" or row[0] != task]
        elif task not in agent.tasks:
            agent.ask(task, time=now)
    for task in agent.tasks:
        found = agent.posterior(task, time=now + 1.0)
        wanted = weighted(case, rows, task, now + 1.0, aging_of(lives))
        np.testing.assert_allclose(found.mean, wanted.mean, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(found.scale, wanted.scale, rtol=1e-9, atol=1e-9)


def settled(case, rows, task, now, aging, passes=12):
    """The belief of a task with sites found under what all tasks say in the end."""
    fixed, weighted_stats = dict(case.options).get("features"), {}
    for one in {row[0] for row in rows}:
        mine = [row for row in rows if row[0] == one]
        last = now if one == task else max(row[-1] for row in mine)
        stats = case.meta.empty(design=case.design(one))
        for _, arm, features, reward, time in mine:
            pulled = arm if features is None and fixed is None else features
            pulled = fixed[arm] if pulled is None else pulled
            one_more = case.meta.empty(design=case.design(one)).add(pulled, reward)
            stats = stats + one_more.scaled(aging.task_weight(last - time))
        weighted_stats[one] = stats.unsettled(), aging.prior_weight(now - last)
    meta = case.meta
    for number in range(passes):
        total, anchor = case.meta, meta.anchor_at(number, 1e9, *meta.mu_moments())
        meta = fill(evolve(meta), anchor=anchor)
        for one, (stats, weight) in weighted_stats.items():
            digest = meta.digest(stats, design=case.design(one))
            total = total.absorb((1.0 if one == task else weight) * digest.message)
        meta = evolve(meta, total=total.total)
    stats, _ = weighted_stats[task]
    return meta.posterior(meta.digest(stats, design=case.design(task)))


@pytest.mark.parametrize(
    ("lives", "rewards"), [((3.0, 5.0), 60), ((20.0, 60.0), 300), ((None, 5.0), 60)]
)
@pytest.mark.parametrize("name", SITES)
def test_sites_are_those_of_the_weighted_log(name, lives, rewards):
    """They are found one after another, some of them anew: off by 0.05 sd at worst."""
    case, agent = ALL[name], agent_of(name, lives)
    rows = a_log(case, rewards)
    for row in rows:
        tell(agent, case, row)
    for gap in (0.0, 0.7, 3.0):
        now = max(row[-1] for row in rows) + gap
        for task in agent.tasks:
            found = agent.posterior(task, time=now)
            wanted = settled(case, rows, task, now, aging_of(lives))
            assert (np.abs(found.mean - wanted.mean) < 0.06 * wanted.scale).all()
            np.testing.assert_allclose(found.scale, wanted.scale, rtol=0.06)


def test_with_few_rewards_left_no_step_looks_at_all_tasks(monkeypatch):
    """Of clicks, sites of some tasks are renewed with every reward then."""
    monkeypatch.delattr(DictBook, "stale")
    agent = agent_of("clicks", (5.0, 10.0))
    for i in range(200):
        agent.tell(task=i, action=i % 3, reward=float(i % 4 == 0), time=float(i))
    assert agent.meta.has_few_rewards
    turns = agent.state().turns
    assert set(turns) == set(range(200 - len(turns), 200))
    assert 90 < len(turns) < 110  # ten half-lives


@pytest.mark.parametrize("name", ["gaussian", "linear", "clicks", "click rows"])
def test_a_forgotten_task_was_never_there(name):
    case, lives = ALL[name], (3.0, 5.0)
    rows = a_log(case, 40, late=0.0)
    agent, other = agent_of(name, lives), agent_of(name, lives)
    for row in rows:
        tell(agent, case, row)
        if row[0] != 1:
            tell(other, case, row)
    agent.forget(1)
    now = rows[-1][-1]
    tolerance = 1e-12 if case.meta.RENEWS is False else 0.1
    for task in other.tasks:
        wanted = other.posterior(task, time=now)
        off = (agent.posterior(task, time=now).mean - wanted.mean) / wanted.scale
        assert np.abs(off).max() < tolerance


@pytest.mark.parametrize(
    ("name", "columns"), [("gaussian", False), ("gaussian", True), ("clicks", False)]
)
def test_a_file_goes_on_bit_for_bit(tmp_path, name, columns):
    case = ALL[name]
    agent = agent_of(name, (3.0, 5.0), clock="rounds", columns=columns)
    for row in a_log(case, 60, tasks=25):
        tell(agent, case, row)
    agent.save(tmp_path / "agent.npz")
    again = adats.load(tmp_path / "agent.npz")
    for i in range(40):
        one, two = agent.ask(i % 10, time=30.0 + i), again.ask(i % 10, time=30.0 + i)
        assert one == two
        agent.tell(one, reward=1.0)
        again.tell(two, reward=1.0)
    for task in agent.tasks:
        assert again.posterior(task).mean.tolist() == agent.posterior(task).mean.tolist()
    assert again.ask(2).time == agent.ask(2).time == 69.0  # 41 rounds, but of the newest reward


def test_a_file_that_says_a_task_is_newer_than_all_is_not_read(tmp_path):
    agent = agent_of("gaussian", (3.0, 5.0))
    agent.tell(task="a", action=0, reward=1.0, time=7.0)
    state = agent.state()._replace(time=6.0)
    adats.AdaTS.from_state(state).save(tmp_path / "agent.npz")
    with pytest.raises(ValueError, match="newer than the newest one"):
        adats.load(tmp_path / "agent.npz")


@pytest.mark.parametrize("kind", ["MetaTS", "TS", "OracleTS"])
def test_baselines_age_within_tasks(kind):
    case = ALL["gaussian"]
    told = ([0.1, 0.2, 0.3],) if kind == "OracleTS" else ()
    agent = getattr(adats, kind)(case.meta, *told, seed=1, half_life=3.0)
    agent.tell(task=0, action=0, reward=2.0, time=0.0)
    agent.tell(task=0, action=1, reward=1.0, time=3.0)
    assert agent.stats(0).count.tolist() == [0.5, 1.0, 0.0]
    late = agent.posterior(0, time=3000.0)
    fresh = adats.OracleTS(case.meta, *told, seed=1) if told else None
    if fresh is not None:
        fresh.ask(0)
        np.testing.assert_allclose(late.mean, fresh.posterior(0).mean)


@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize("lives", LIVES)
@pytest.mark.parametrize("name", ["gaussian", "linear", "beta arms", "models", "clicks"])
def test_many_rewards_are_as_one_by_one(name, lives, columns):
    case = ALL[name]
    single, many = (agent_of(name, lives, columns=columns) for _ in range(2))
    rows = a_log(case, 90)
    for i, some in enumerate((rows[:40], rows[40:45], rows[45:])):
        for row in some:
            tell(single, case, (*row[:2], None, *row[3:]))
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            many.tell_many(table_of(some))
        now = single.state().time
        assert many.state().time == now
        assert bool(said) == (case.meta.RENEWS and i == 0)
        for task in single.tasks:
            one, other = (agent.posterior(task, time=now + 0.5) for agent in (single, many))
            np.testing.assert_allclose(other.mean, one.mean, rtol=1e-12, atol=1e-12)
            np.testing.assert_allclose(other.scale, one.scale, rtol=1e-12, atol=1e-12)


def table_of(rows):
    parts = [(task, arm, reward, time) for task, arm, _, reward, time in rows]
    return {
        name: np.array(values) for name, values in zip(TIMES, zip(*parts, strict=True), strict=True)
    }


@pytest.mark.parametrize("kind", ["AdaTS", "TS", "OracleTS"])
def test_many_decisions_are_by_the_same_beliefs(kind):
    """Their chances are those of single ones; so are those of `decide`, which changes nothing."""
    case = ALL["gaussian"]
    told = ([0.1, 0.2, 0.3],) if kind == "OracleTS" else ()
    agent = getattr(adats, kind)(case.meta, *told, seed=1, half_life=3.0, prior_half_life=5.0)
    agent.tell_many(table_of(a_log(case, 60)))
    now, tasks = agent.state().time + 2.0, [0, 1, 2, 3, 9]
    made = agent.ask_many(tasks, time=now, propensities=True)
    assert made["time"].tolist() == [now] * 5
    by_table = adats.decide({"task": tasks}, agent, seed=1, propensities=True, time=now)
    for batch in (made, by_table):
        for task, action, chance in zip(tasks, batch.action, batch.propensity, strict=True):
            one = agent.ask(task, time=now, propensities=True)
            assert one.propensities[action] == pytest.approx(chance, abs=1e-9)
    with pytest.raises(ValueError, match="before"):
        adats.decide({"task": tasks}, agent, seed=1, time=now - 9.0)


def test_rewards_of_a_batch_have_the_time_of_their_decisions():
    agent, other = (agent_of("gaussian", (3.0, 5.0), clock="rounds") for _ in range(2))
    for one in (agent, other):
        one.tell(task=0, action=0, reward=1.0, time=4.0)
    made = agent.ask_many([0, 1], time=5.0)
    agent.tell_many(made.columns() | {"reward": [0.5, 0.5]})
    for decision in made:
        assert decision.time == 5.0
        other.tell(task=decision.task, action=decision.action, reward=0.5, time=5.0)
    assert agent.posterior(0).mean.tolist() == other.posterior(0).mean.tolist()


@pytest.mark.parametrize("cls", CLASSES)
@pytest.mark.parametrize("policy", list(POLICIES))
def test_half_the_age_is_half_the_pulls(cls, policy):
    """After a half-life an agent decides as one that was told half of everything."""
    case = ALL["beta arms"]
    told = (case.meta.sample(np.random.default_rng(0)),) if cls is adats.OracleTS else ()
    options = {"policy": policy, "explore_first": True, "epsilon": 0.1, "seed": 3}
    aged, half = cls(case.meta, *told, half_life=7.0, **options), cls(case.meta, *told, **options)
    for agent in (aged, half):
        agent.ask("a", **({"time": 0.0} if agent is aged else {}), horizon=20)
    for arm, (pulls, successes) in enumerate([(8, 3), (2, 1), (5, 5)]):
        aged.tell(task="a", action=arm, pulls=pulls, successes=successes, time=0.0)
        half.tell(task="a", action=arm, pulls=pulls / 2, successes=successes / 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # propensities of 1
        for i in range(12):
            one = aged.ask("a", time=7.0, horizon=19 - i, propensities=True)
            two = half.ask("a", horizon=19 - i, propensities=True)
            assert one.action == two.action
            np.testing.assert_allclose(one.propensities, two.propensities, atol=1e-12)


@pytest.mark.parametrize("name", ["gaussian", "clicks"])
def test_arms_come_and_go_as_time_does(name):
    case = ALL[name]
    agent = agent_of(name, (3.0, 5.0))
    rows = a_log(case, 60, late=0.0)
    for row in rows:
        tell(agent, case, row)
    before, now = agent.posterior(0).mean, agent.state().time
    agent.add_arm(like=1)
    after = agent.posterior(0).mean
    np.testing.assert_allclose(after[:3], before, atol=1e-12 if name == "gaussian" else 0.02)
    agent.tell(task=0, action=3, reward=1.0, time=now + 1.0)
    agent.tell(task=0, action=3, reward=1.0, time=now - 1.0)
    pulls = agent.stats(0).count[3]
    assert pulls == pytest.approx(1.0 + 2.0 ** (-2.0 / 3.0))
    agent.retire_arm(0)
    assert all(agent.ask(0, time=now + 2.0).action != 0 for _ in range(20))


def test_refit_weighs_tasks_as_before():
    case = ALL["clicks"]
    agent = agent_of("clicks", (None, 50.0))
    for row in a_log(case, 300, tasks=8, late=0.0):
        tell(agent, case, row)
    rewards = agent.meta.rewards
    agent.refit()
    assert agent.meta.rewards == pytest.approx(rewards, rel=1e-9)


def test_time_without_half_lives_changes_nothing():
    case = ALL["gaussian"]
    plain, timed = (adats.AdaTS(case.meta, seed=1) for _ in range(2))
    for i in range(10):
        one, two = plain.ask(0), timed.ask(0, time=1e3 * i)
        assert one.action == two.action
        assert two.time == 1e3 * i
        plain.tell(one, reward=0.1)
        timed.tell(two, reward=0.1, time=1e3 * i)
    assert plain.posterior(0).mean.tolist() == timed.posterior(0).mean.tolist()


@pytest.mark.parametrize("rewards", [20_000, pytest.param(1_000_000, marks=pytest.mark.heavy)])
def test_a_thousand_half_lives_do_not_drift(rewards):
    """As good as the rewards of the last 60 alone: what is left of the others is below 1e-18, so
    that all else is round-off."""
    case, lives = ALL["gaussian"], (1.0, 2.0)
    agent, other = agent_of("gaussian", lives), agent_of("gaussian", lives)
    rng = np.random.default_rng(5)
    for i in range(rewards):
        time = 1000.0 * i / rewards
        row = (int(rng.integers(5)), int(rng.integers(3)), None, float(rng.normal()), time)
        tell(agent, case, row)
        if time > 880.0:
            tell(other, case, row)
    for task in agent.tasks:
        wanted = other.posterior(task)
        np.testing.assert_allclose(agent.posterior(task).mean, wanted.mean, atol=1e-11)
        np.testing.assert_allclose(agent.posterior(task).scale, wanted.scale, atol=1e-11)


@pytest.mark.parametrize(
    "name", ["gaussian", "linear", "beta arms", "models", "clicks", "click rows"]
)
def test_after_ages_nothing_is_left_but_the_prior(name):
    """Of 5,000 half-lives: weights are 0, not NaN; and then it learns again."""
    case = ALL[name]
    agent, fresh = agent_of(name, (1.0, 1.0)), agent_of(name, (None, None))
    for row in a_log(case, 40):
        tell(agent, case, row)
    fresh.ask(0)
    for age in (30.0, 1060.0, 5000.0, 1e7):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # in another unit?
            found = agent.posterior(0, time=age + 20.0)
        np.testing.assert_allclose(found.mean, fresh.posterior(0).mean, atol=1e-6)
        np.testing.assert_allclose(found.scale, fresh.posterior(0).scale, rtol=1e-6)
    for agent_, time in ((agent, {"time": 5000.0}), (fresh, {})):
        agent_.tell(task=0, action=1, reward=1.0, **time)
    np.testing.assert_allclose(agent.posterior(0).mean, fresh.posterior(0).mean, atol=1e-6)


def test_what_is_shown_is_of_one_time():
    agent = agent_of("gaussian", (10.0, 10.0))
    agent.tell(task=0, action=0, reward=1.0, time=0.0)
    agent.tell(task=1, action=0, reward=1.0, time=10.0)
    assert "0.5" in str(agent.summary(0))  # pulls, at the newest reward
    assert "0.25" in str(agent.summary(0, time=20.0))
    wide, now = (agent.summary(time=time) for time in (1000.0, None))
    assert str(wide) != str(now)


def test_a_task_falls_back_to_what_others_know():
    meta = adats.GaussianMeta([0.0], 1.0, task_scale=0.1, noise=1.0)
    agent = adats.AdaTS(meta, seed=1, half_life=1.0)
    for task in range(50):
        agent.tell(task=task, action=0, reward=2.0, time=0.0)
    agent.tell(task="odd", action=0, reward=-50.0, time=0.0)
    back = agent.posterior("odd", time=100.0).mean
    agent.forget("odd")
    agent.ask("new", time=100.0)
    np.testing.assert_allclose(back, agent.posterior("new", time=100.0).mean, atol=1e-6)


def looks(agent):
    """All that is known, to be compared."""
    state = agent.state()
    return (
        {name: value.tolist() for name, value in portrait(agent).items()},
        state.rng.bit_generator.state,
        (state.decisions, state.time, state.tasks.keys(), state.turns),
        [(one.time, one.stats.flat().tolist()) for one in state.tasks.values()],
    )


class TestBadInput:
    """One line, and nothing has changed."""

    def agent(self, **options):
        return adats.AdaTS(ALL["gaussian"].meta, seed=1, **{"half_life": 10.0} | options)

    @pytest.mark.parametrize("name", ["half_life", "prior_half_life"])
    @pytest.mark.parametrize("life", [0, -1.0, math.nan, math.inf, "day", True, [1.0], 1e200])
    def test_half_lives(self, name, life):
        with pytest.raises(ValueError, match=f"^{name} (must be|is too far)"):
            self.agent(**{name: life})

    def test_tiny_half_lives_are_legal(self):
        agent = self.agent(half_life=5e-324, prior_half_life=1e-300)
        for time in (1.7e9, 1.7e9 + 1.0):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # in another unit?
                agent.tell(task="a", action=0, reward=1.0, time=time)
        assert agent.stats("a").count.tolist() == [1.0, 0.0, 0.0]

    def test_clocks(self):
        with pytest.raises(
            ValueError, match="clock must be one of seconds, rounds, pulls, got 'days'"
        ):
            self.agent(clock="days")

    @pytest.mark.parametrize("time", [math.nan, math.inf, "now", True, 1e300, np.datetime64("now")])
    def test_times(self, time):
        agent = self.agent()
        agent.tell(task="b", action=0, reward=1.0, time=3.0)
        before = looks(agent)
        for call in (
            lambda: agent.ask("a", time=time),
            lambda: agent.ask_many(["a", "b"], time=time),
            lambda: agent.posterior("b", time=time),
            lambda: agent.tell(task="a", action=0, reward=1, time=time),
            lambda: agent.tell_many(
                {
                    "task": ["a", "b"],
                    "action": [0, 0],
                    "reward": [1.0, 1.0],
                    "time": [5.0, math.nan if time is True else time],
                }
            ),
        ):
            with pytest.raises(ValueError, match=r"time (must be|is too far)"):
                call()
        assert looks(agent) == before

    def test_bad_rewards_at_a_good_time(self):
        agent = self.agent()
        agent.tell(task="b", action=0, reward=1.0, time=3.0)
        before = looks(agent)
        for time in (2.0, 9.0):
            for task in ("a", "b"):
                with pytest.raises(ValueError, match="reward must be"):
                    agent.tell(task=task, action=0, reward=math.nan, time=time)
        assert looks(agent) == before

    def test_times_that_run_backwards(self):
        agent = self.agent()
        agent.tell(task="a", action=0, reward=1.0, time=5.0)
        decision, before = agent.ask("a", time=6.0), looks(agent)
        for look in (
            agent.ask,
            agent.posterior,
            lambda task, time: agent.ask_many([task], time=time),
        ):
            with pytest.raises(ValueError, match=r"4\.0 is before 5\.0, that of the newest reward"):
                look("a", time=4.0)
        with pytest.raises(ValueError, match=r"5\.5 is before its decision, made at 6\.0"):
            agent.tell(decision, reward=1.0, time=5.5)
        assert looks(agent) == before
        agent.tell(decision, reward=1.0, time=6.0)

    def test_other_units(self):
        """Seconds and milliseconds: no half-life is that short."""
        agent = self.agent(half_life=600.0)
        agent.tell(task="a", action=0, reward=1.0, time=1.7e9)
        with pytest.warns(UserWarning, match="are they in the same unit"):
            agent.ask("a", time=1.7e12)
        with warnings.catch_warnings():  # once
            warnings.simplefilter("error")
            agent.ask("a", time=2e18)

    def test_a_decision_that_was_made_by_hand_and_has_no_time(self):
        agent = self.agent(half_life=600.0)
        agent.tell(task="a", action=0, reward=1.0, time=1.7e9)
        with pytest.warns(UserWarning, match="it weighs nothing"):
            agent.tell(adats.Decision("a", 1), reward=1.0)

    def test_dates_in_a_table(self):
        agent = self.agent()
        table = {"task": ["a"], "action": [0], "reward": [1.0]}
        dates = np.array(["2026-01-01"], dtype="datetime64[ns]")
        with pytest.raises(ValueError, match="not a date"):
            agent.tell_many(table | {"time": dates})

    def test_half_a_table_is_not_learned(self):
        agent = agent_of("clicks", (3.0, 5.0))
        for row in a_log(ALL["clicks"], 30):
            tell(agent, ALL["clicks"], row)
        before, now = looks(agent), agent.state().time
        table = {"task": [0, 1, 2], "action": [0, 1, 2], "reward": [1.0, 0.0, 7.0]}
        with pytest.warns(UserWarning, match="half-lives"), pytest.raises(ValueError, match="row"):
            agent.tell_many(table | {"time": [now + 1.0, now + 2.0, now + 3.0]})
        assert looks(agent) == before

    @pytest.mark.parametrize("time", [math.nan, math.inf, None, True, "2026-01-01", 1e200])
    def test_a_decision_made_by_hand_with_a_bad_time(self, time):
        agent = self.agent()
        agent.tell(task="a", action=0, reward=1.0, time=3.0)
        before = looks(agent)
        for more in ({}, {"time": 9.0}):
            with pytest.raises(ValueError, match=r"time (must be|is too far)"):
                agent.tell(adats.Decision("a", 0, time=time), reward=1.0, **more)
        assert looks(agent) == before

    @pytest.mark.filterwarnings("ignore:.* one by one")
    @pytest.mark.parametrize("name", ["gaussian", "clicks"])
    @pytest.mark.parametrize("detect", [False, True])
    def test_dates_and_holes_in_a_table_told_one_by_one(self, name, detect):
        agent = agent_of(name, (30.0, None), detect_changes=detect)
        table = {"task": ["a", "b"], "action": [0, 0], "reward": [1.0, 1.0]}
        dates = np.array(["2026-01-01", "2026-01-02"], dtype="datetime64[ns]")
        for times, why in ((dates, "not a date"), ([1.0, None], "time must be a number")):
            before = looks(agent)
            with pytest.raises(ValueError, match=why):
                agent.tell_many(table | {"time": times})
            assert looks(agent) == before

    @pytest.mark.filterwarnings("ignore:.* one by one")
    @pytest.mark.parametrize("name", ["gaussian", "clicks"])
    def test_rewards_of_decisions_need_the_time_of_those(self, name):
        agent = agent_of(name, (30.0, None), clock="rounds")
        made = agent.ask_many(["a", "b"], time=10.0).columns() | {"reward": [1.0, 0.0]}
        del made["time"]
        with pytest.raises(ValueError, match="join the column time"):
            agent.tell_many(made)

    def test_rewards_without_a_time_are_of_now(self):
        """Also where it is before the newest reward."""
        single, many = self.agent(clock="rounds"), self.agent(clock="rounds")
        for agent in (single, many):
            agent.tell(task="a", action=0, reward=1.0, time=50.0)
        single.tell(task="b", action=0, reward=1.0)
        many.tell_many({"task": ["b"], "action": [0], "reward": [1.0]})
        assert many.state().tasks["b"].time == single.state().tasks["b"].time == 0.0

    @pytest.mark.parametrize(
        "times", [[1.7e9 + 1.0, 0.0], [0.0, 1.7e9], [1.7e9, 1.7e12]], ids=["late", "two", "ms"]
    )
    def test_other_units_in_a_table(self, times):
        table = {"task": ["a", "b"], "action": [0, 0], "reward": [1.0, 1.0], "time": times}
        with pytest.warns(UserWarning, match="the same unit"):
            self.agent(half_life=600.0).tell_many(table)

    def test_neither_a_look_nor_a_refused_reward_uses_up_the_warning(self):
        agent = self.agent()
        agent.tell(task="a", action=0, reward=1.0, time=3.0)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            agent.posterior("a", time=1e12)
            with pytest.raises(ValueError, match="reward must be"):
                agent.tell(task="a", action=0, reward="x", time=1e12)
        with pytest.warns(UserWarning, match="are they in the same unit"):
            agent.tell(task="a", action=0, reward=1.0, time=1e12)


@pytest.mark.parametrize("many", [False, True])
def test_what_is_drawn_for_a_new_task_is_of_what_is_left(many):
    """MetaTS, 50 half-lives after all that was learned: from the prior that was given."""
    drawn = []
    for seed in range(200):
        meta = adats.GaussianMeta([0.0], 1.0, task_scale=0.1, noise=0.1)
        agent = adats.MetaTS(meta, seed=seed, prior_half_life=1.0)
        for task in range(5):
            agent.tell(task=task, action=0, reward=3.0, time=0.0)
        if many:
            agent.tell_many({"task": ["new"], "action": [0], "reward": [0.0], "time": [50.0]})
        else:
            agent.tell(task="new", action=0, reward=0.0, time=50.0)
        drawn.append(agent.state().tasks["new"].mu[0])
    assert abs(np.mean(drawn)) < 4 / math.sqrt(200)
    assert 0.8 < np.std(drawn) < 1.2


@pytest.mark.filterwarnings("ignore:.* one by one")
@pytest.mark.parametrize("name", ["gaussian", "clicks"])
def test_a_table_that_is_refused_has_drawn_nothing(name):
    agent = adats.MetaTS(ALL[name].meta, seed=1, half_life=3.0, detect_changes=True)
    before = agent.state().rng.bit_generator.state
    table = {"task": ["a", "b"], "action": [0, 0], "reward": [1.0, math.nan], "time": [1.0, 2.0]}
    with pytest.raises(ValueError, match="row 1: reward"):
        agent.tell_many(table)
    assert agent.state().rng.bit_generator.state == before


def test_a_reward_that_is_refused_late_has_drawn_nothing():
    meta = adats.LinearMeta(np.zeros(3), 1e9, task_cov=1.0, noise=1e-9)
    agent = adats.MetaTS(meta, seed=1)
    before = agent.state().rng.bit_generator.state
    rows = np.random.default_rng(0).normal(size=(8, 3)) * [1.0, 1e6, 1e-6]
    with pytest.raises(ValueError, match="double precision is not enough"):
        agent.tell(task="a", features=rows, reward=np.ones(8))
    assert agent.state().rng.bit_generator.state == before


def test_a_table_that_was_refused_can_be_told_again():
    agent = adats.AdaTS(ALL["gaussian"].meta, seed=1, detect_changes=True)
    made = agent.ask_many(["a", "b"]).columns()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(ValueError, match="row 1"):
            agent.tell_many(made | {"reward": [1.0, math.nan]})
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # of a decision that is told twice
        agent.tell_many(made | {"reward": [1.0, 0.0]})


def test_a_forgotten_task_leaves_no_name(tmp_path):
    agent = agent_of("clicks", (3.0, 5.0), detect_changes=True)
    for row in a_log(ALL["clicks"], 40):
        tell(agent, ALL["clicks"], ("anna", *row[1:]))
    found = adats.agents.change_detection.FoundChange("prior", "warning", "anna", 1, 2)
    agent._detector.watch = agent._detector.watch._replace(changes=(found,))
    agent.forget("anna")
    agent.save(tmp_path / "agent.npz")
    assert b"anna" not in (tmp_path / "agent.npz").read_bytes()
    state = adats.load(tmp_path / "agent.npz").state()
    assert state.turns == ()
    assert "of a task that was forgotten" in str(state.detector.watch.changes[0])
