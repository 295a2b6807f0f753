"""Half-lives: beliefs are those of the weighted log, whatever came when."""

import math
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import adats
from adats.agents.aging import Aging
from brute import JointTask, joint
from cases import ALL, ROWS

EXACT = [
    "gaussian",
    "linear",
    "beta arms",
    "poisson",
    "normal",
    "models",
    "exchangeable",
    "clusters",
]
LIVES = [(3.0, 5.0), (3.0, None), (None, 5.0)]


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


@pytest.mark.parametrize("lives", LIVES)
@given(order=st.permutations(range(12)))
def test_order_does_not_matter(lives, order):
    case = ALL["gaussian"]
    rows = a_log(case, 12)
    now = max(row[-1] for row in rows)
    first, second = agent_of("gaussian", lives), agent_of("gaussian", lives)
    for i, j in enumerate(order):
        tell(first, case, rows[i])
        tell(second, case, rows[j])
    for task in first.tasks:
        mean = second.posterior(task, time=now).mean
        np.testing.assert_allclose(first.posterior(task, time=now).mean, mean, atol=1e-12)


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


@pytest.mark.parametrize("columns", [False, True])
def test_a_file_goes_on_bit_for_bit(tmp_path, columns):
    case = ALL["gaussian"]
    agent = agent_of("gaussian", (3.0, 5.0), clock="rounds", columns=columns)
    rows = a_log(case, 30, late=0.0)
    for row in rows:
        tell(agent, case, row)
    agent.save(tmp_path / "agent.npz")
    again = adats.load(tmp_path / "agent.npz")
    for _ in range(20):
        one, two = agent.ask(2, time=30.0), again.ask(2, time=30.0)
        assert one == two
        agent.tell(one, reward=0.5)
        again.tell(two, reward=0.5)
    assert again.posterior(2).mean.tolist() == agent.posterior(2).mean.tolist()


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


def test_one_by_one_in_batches():
    case = ALL["gaussian"]
    single, many = agent_of("gaussian", (3.0, 5.0)), agent_of("gaussian", (3.0, 5.0))
    rows = a_log(case, 30)
    for row in rows:
        tell(single, case, row)
    columns = dict(
        zip(("task", "action", "_", "reward", "time"), zip(*rows, strict=True), strict=True)
    )
    del columns["_"]
    with pytest.warns(UserWarning, match="half-lives"):
        many.tell_many({name: np.array(values) for name, values in columns.items()})
    now = max(row[-1] for row in rows)
    for task in single.tasks:
        mean = many.posterior(task, time=now).mean
        assert mean.tolist() == single.posterior(task, time=now).mean.tolist()
    made = many.ask_many([0, 1, 2], time=now + 1.0)
    assert len(made) == 3


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


def test_a_thousand_half_lives_do_not_drift():
    """20,000 rewards over 1,000 half-lives: as good as those of the last 60."""
    case, lives = ALL["gaussian"], (1.0, 2.0)
    agent, other = agent_of("gaussian", lives), agent_of("gaussian", lives)
    rng = np.random.default_rng(5)
    for i in range(20_000):
        time = i / 20
        row = (int(rng.integers(5)), int(rng.integers(3)), None, float(rng.normal()), time)
        tell(agent, case, row)
        if time > 880.0:
            tell(other, case, row)
    for task in agent.tasks:
        wanted = other.posterior(task).mean
        np.testing.assert_allclose(agent.posterior(task).mean, wanted, atol=1e-9)


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


class TestBadInput:
    def agent(self, **options):
        return adats.AdaTS(ALL["gaussian"].meta, seed=1, **{"half_life": 10.0} | options)

    @pytest.mark.parametrize("life", [0, -1.0, math.nan, math.inf, "day"])
    def test_half_lives(self, life):
        with pytest.raises(ValueError, match="half_life must be"):
            self.agent(half_life=life)

    def test_clocks(self):
        with pytest.raises(ValueError, match="clock must be 'seconds' or 'rounds', got 'days'"):
            self.agent(clock="days")

    @pytest.mark.parametrize("time", [math.nan, math.inf, "now"])
    def test_times(self, time):
        agent = self.agent()
        for call in (
            agent.ask,
            lambda task, time: agent.tell(task=task, action=0, reward=1, time=time),
        ):
            with pytest.raises(ValueError, match="time must be"):
                call("a", time=time)
        assert agent.tasks == ()

    def test_times_that_run_backwards(self):
        agent = self.agent()
        agent.tell(task="a", action=0, reward=1.0, time=5.0)
        before = agent.posterior("a").mean
        with pytest.raises(ValueError, match=r"4\.0 is before 5\.0, that of the newest reward"):
            agent.ask("a", time=4.0)
        decision = agent.ask("a", time=6.0)
        with pytest.raises(ValueError, match=r"5\.5 is before its decision, made at 6\.0"):
            agent.tell(decision, reward=1.0, time=5.5)
        assert agent.posterior("a").mean.tolist() == before.tolist()

    def test_other_units(self):
        """Seconds and milliseconds: no half-life is that short."""
        agent = self.agent(half_life=600.0)
        agent.tell(task="a", action=0, reward=1.0, time=1.7e9)
        with pytest.warns(UserWarning, match="are they in the same unit"):
            agent.ask("a", time=1.7e12)
        with warnings.catch_warnings():  # once
            warnings.simplefilter("error")
            agent.ask("a", time=2e18)
