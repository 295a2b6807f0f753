"""Problems that move, half-lives in the simulator, and rivals that are told."""

import math

import numpy as np
import pytest

import adats
from adats import FarSighted
from adats.agents.prior_source import Drawn, Fixed
from adats.simulation import AGENTS, Learner, simulate
from adats.simulation.filters import DecayAgent, FilterAgent, Pull
from adats.simulation.kernels import registry
from adats.simulation.memory import Decay, ExactFilter, HalfLives, ToldChanges
from adats.simulation.one_task import rounds_ahead
from adats.simulation.problems import ClicksProblem, GaussianProblem, LinearProblem, MovingProblem
from adats.simulation.problems.problem import instances_of

SMALL = {"tasks": 6, "rounds": 40, "runs": 5, "seed": 3, "detail": "round", "record": True}
SPREAD = {"arms": 3, "meta_scale": 0.6, "task_scale": 0.3, "noise": 0.7}
MOVES: dict[str, MovingProblem] = {
    "still": MovingProblem(**SPREAD),
    "mu jumps": MovingProblem(**SPREAD, mu_jumps=(2, 4)),
    "theta jumps": MovingProblem(**SPREAD, theta_jumps=(10, 25)),
    "walks": MovingProblem(**SPREAD, mu_step=0.1, theta_step=0.05),
    "seasons": MovingProblem(**SPREAD, season=0.5, period=60.0),
    "all": MovingProblem(
        **SPREAD, mu_jumps=[3], theta_jumps=[20], mu_step=0.1, theta_step=0.05, season=0.4
    ),
}
each_move = pytest.mark.parametrize("move", MOVES)


def z(values: np.ndarray, expected: float) -> np.ndarray:
    return abs(values.mean(axis=0) - expected) / (values.std(axis=0) / math.sqrt(len(values)))


def drawn(problem, runs=3000, tasks=4, rounds=12, seed=1):
    """theta by run, task, round and arm, and mu by run, task and arm."""
    theta, mu = [], []
    for run in range(runs):
        rng = np.random.default_rng([seed, run])
        tasks_of = instances_of(problem, problem.start(rng), tasks, rounds, rng)
        theta.append([one.theta for one in tasks_of])
        mu.append([one.then.mu for one in tasks_of])
    return np.array(theta), np.array(mu)


def played(problem, agents, **options):
    return simulate(problem, agents, **SMALL | options)


def of_run(problem, run):
    """The tasks of a run, as `simulate` draws them."""
    rng = np.random.default_rng(np.random.SeedSequence(SMALL["seed"], spawn_key=(run, 0)))
    return instances_of(problem, problem.start(rng), SMALL["tasks"], SMALL["rounds"], rng)


def same(one, other, rtol=1e-9):
    """The same decisions, of agents in their order, and so the same regrets."""
    np.testing.assert_array_equal(one.actions, other.actions)
    np.testing.assert_allclose(one.regret, other.regret, rtol=rtol, atol=1e-12)


# how they move


ALL = [name for name, agent in AGENTS.items() if agent.prior == "problem"]


def test_without_movement_it_is_the_problem_that_stays():
    for options in ({}, {"explore_first": True}, {"delay": 3}):
        few = {"tasks": 3, "rounds": 25, "runs": 2} | options
        still = played(GaussianProblem(**SPREAD), ALL, **few)
        same(still, played(MOVES["still"], ALL, **few))


def test_every_agent_plays_where_arms_move_as_in_the_plain_loop(monkeypatch):
    few = {"tasks": 3, "rounds": 25, "runs": 2}
    fast = played(MOVES["all"], ALL, **few)
    same(fast, interpreted(monkeypatch, MOVES["all"], ALL, **few))


@pytest.mark.statistical
def test_a_random_walk_has_the_variances_of_its_closed_form():
    problem = MovingProblem(arms=2, task_scale=0.2, mu_step=0.3, theta_step=0.1)
    theta, mu = drawn(problem)
    for s in range(4):
        if s:
            assert (z((mu[:, s] - mu[:, 0]) ** 2, s * 0.3**2) < 4).all()
        for t in (0, 5, 11):
            off = theta[:, s, t] - mu[:, s]
            assert (z(off**2, 0.2**2 + t * 0.1**2) < 4).all()
    assert (z(mu[:, 1] * (mu[:, 3] - mu[:, 1]), 0.0) < 4).all()  # steps are independent
    assert (z((theta[:, 0, 5] - mu[:, 0]) * (theta[:, 0, 11] - theta[:, 0, 5]), 0.0) < 4).all()


@pytest.mark.statistical
def test_jumps_draw_anew():
    problem = MovingProblem(arms=2, task_scale=0.2, mu_jumps=(2,), theta_jumps=(5,))
    theta, mu = drawn(problem)
    np.testing.assert_array_equal(mu[:, 0], mu[:, 1])
    np.testing.assert_array_equal(mu[:, 2], mu[:, 3])
    assert (z(mu[:, 2] ** 2, 0.25) < 4).all()
    assert (z(mu[:, 1] * mu[:, 2], 0.0) < 4).all()
    np.testing.assert_array_equal(theta[:, :, 0], theta[:, :, 4])
    np.testing.assert_array_equal(theta[:, :, 5], theta[:, :, 11])
    before, after = theta[:, 1, 4] - mu[:, 1], theta[:, 1, 5] - mu[:, 1]
    assert (z(after**2, 0.04) < 4).all()
    assert (z(before * after, 0.0) < 4).all()


@pytest.mark.statistical
def test_a_shift_is_up_or_down_in_every_arm():
    _, mu = drawn(MovingProblem(arms=2, mu_jumps=(2,), mu_jump=0.3), runs=1000)
    shift = mu[:, 2] - mu[:, 1]
    np.testing.assert_allclose(abs(shift), 0.3)
    assert (z(shift, 0.0) < 4).all()
    assert z(shift[:, :1] * shift[:, 1:], 0.0) < 4


def test_seasons_come_back_and_arms_have_their_own():
    problem = MovingProblem(arms=4, season=0.5, period=20.0)
    added = problem.season_at(np.arange(40))
    np.testing.assert_allclose(added[:20], added[20:], atol=1e-12)
    np.testing.assert_array_equal(added[:20].argmax(axis=0), [0, 5, 10, 15])
    assert added.max() == 0.5
    still = MovingProblem(arms=4)
    for s, (one, other) in enumerate(zip(*(tasks_of(p) for p in (problem, still)), strict=True)):
        moved = problem.season_at(12 * s + np.arange(12))
        np.testing.assert_allclose(one.theta - other.theta, moved, atol=1e-12)


def tasks_of(problem, tasks=4, rounds=12):
    rng = np.random.default_rng(5)
    return instances_of(problem, problem.start(rng), tasks, rounds, rng)


def test_regret_is_against_the_means_of_the_round():
    problem = MOVES["all"]
    got = played(problem, ["ts"])
    for run in range(SMALL["runs"]):
        for s, one in enumerate(of_run(problem, run)):
            pulled = np.take_along_axis(one.theta, got.actions[0, run, s][:, None], 1)[:, 0]
            expected = one.theta.max(axis=1) - pulled
            np.testing.assert_allclose(got.regret[0, run, s], expected, atol=1e-12)


def test_oracle_ts_is_told_where_mu_is():
    """With tasks that do not differ it is never wrong, whatever mu does."""
    problem = MovingProblem(arms=3, task_scale=0.0, mu_jumps=(2,), mu_step=0.3)
    assert played(problem, ["oracle-ts"]).regret.max() == 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mu_jumps": (0,)}, "mu_jumps must be a whole number of at least 1, got 0"),
        ({"theta_jumps": (2.5,)}, "theta_jumps must be a whole number"),
        ({"mu_step": -1.0}, "mu_step must not be negative"),
        ({"theta_step": np.nan}, "theta_step must be finite"),
        ({"mu_jump": math.inf}, "mu_jump must be finite"),
        ({"period": 0.0}, "period must be positive"),
        ({"task_cov": np.eye(2)}, "not covariances"),
    ],
)
def test_bad_moves(settings, message):
    with pytest.raises(ValueError, match=message):
        MovingProblem(**settings)


# half-lives


POLICIES = ("ts", "greedy", "ucb", "index")
LIVES = [(0.4, 2.0), (None, 0.7), (0.2, None), (0.1, None, "pulls")]


def interpreted(monkeypatch, problem, agents, **options):
    """Played by agents with ask and tell, nothing compiled."""
    monkeypatch.setattr(registry, "has_numba", lambda: False)
    with pytest.warns(UserWarning, match="Numba is not installed"):
        return played(problem, agents, **options)


@pytest.mark.parametrize("policy", POLICIES)
@each_move
def test_compiled_half_lives_decide_as_the_library(monkeypatch, move, policy):
    agents = {f"{lives}": Learner("", policy=policy, memory=HalfLives(*lives)) for lives in LIVES}
    fast = played(MOVES[move], agents)
    same(fast, interpreted(monkeypatch, MOVES[move], agents))


@pytest.mark.parametrize("problem", [GaussianProblem(**SPREAD), MOVES["all"]])
def test_no_half_lives_decide_as_ever(problem):
    for policy in POLICIES:
        agent = Learner("", policy=policy)
        for explore_first in (False, True):
            options = {"explore_first": explore_first}
            today = played(problem, {"a": agent}, **options)
            same(today, played(problem, {"a": agent._replace(memory=HalfLives())}, **options))


@pytest.mark.parametrize(
    ("problem", "learner"),
    [
        (LinearProblem(2, 5), Learner("")),
        (LinearProblem(2, 5, redraw="round"), Learner("", policy="far")),
        (ClicksProblem(3), Learner("", prior="default")),
        (GaussianProblem(**SPREAD), Learner("", Drawn())),
        (MOVES["all"], Learner("", Fixed())),
        (MOVES["all"], Learner("", policy="far")),
    ],
)
def test_every_problem_and_agent_can_have_them(problem, learner):
    few = {"tasks": 3, "rounds": 12, "runs": 2}
    still = played(problem, {"a": learner._replace(memory=HalfLives())}, **few)
    aged = played(problem, {"a": learner._replace(memory=HalfLives(0.3, 1.0))}, **few)
    late = played(problem, {"a": learner._replace(memory=HalfLives(0.3, 1.0))}, **few, delay=3)
    assert len({result.actions.tobytes() for result in (still, aged, late)}) == 3


def test_a_half_life_is_that_of_an_agent_of_the_library():
    """By hand: ask and tell with times in rounds."""
    problem, lives = MOVES["mu jumps"], HalfLives(0.5, 1.5)
    got = played(problem, {"a": Learner("", memory=lives)}, runs=1)
    tasks = of_run(problem, 0)
    agent = adats.AdaTS(problem.meta(), seed=0, half_life=20.0, prior_half_life=60.0)
    now = 0.0
    for s, one in enumerate(tasks):
        for t, arm in enumerate(got.actions[0, 0, s].tolist()):
            now += 1.0
            reward = problem.reward(float(one.theta[t, arm]), float(one.draws[t]))
            agent.tell(task=s, action=arm, reward=reward, time=now)
    compiled = played_beliefs(problem, lives, tasks, got.actions[0, 0])
    np.testing.assert_allclose(compiled.mean, agent.posterior(s, time=now).mean, rtol=1e-9)
    np.testing.assert_allclose(compiled.scale, agent.posterior(s, time=now).scale, rtol=1e-9)


def played_beliefs(problem, lives, tasks, actions):
    """The belief about the last task by the definition: every reward with its weight."""
    meta, rounds = problem.meta(), SMALL["rounds"]
    life, prior_life = lives.half_life * rounds, lives.prior_half_life * rounds
    now, digest = len(tasks) * rounds, None
    for s, one in enumerate(tasks):
        stats = meta.empty()
        for t, arm in enumerate(actions[s].tolist()):
            stats = stats.scaled(2.0 ** (-1.0 / life)).add(
                arm, problem.reward(float(one.theta[t, arm]), float(one.draws[t]))
            )
        digest = meta.digest(stats)
        meta = meta.absorb(2.0 ** (-(now - (s + 1) * rounds) / prior_life) * digest.message)
    return meta.posterior(digest)


# who is told


def test_told_nothing_moves_is_the_agent_itself():
    for problem in (GaussianProblem(**SPREAD), MOVES["walks"]):
        today = played(problem, {"a": Learner("")})
        same(today, played(problem, {"a": Learner("", memory=ToldChanges())}))


def test_told_of_jumps_it_starts_anew():
    """With known tasks: from the second jump on it plays as one that was not there before."""
    agents = {"a": Learner("", memory=ToldChanges(), policy="greedy")}
    problem = MovingProblem(**SPREAD, mu_jumps=(2,))
    whole = played(problem, agents, runs=1)
    tasks = of_run(problem, 0)
    meta = problem.meta()
    for s, one in enumerate(tasks):
        meta = problem.meta() if s == 2 else meta
        stats = meta.empty()
        for t, arm in enumerate(whole.actions[0, 0, s].tolist()):
            assert arm == int(meta.task_prior().condition(stats).belief.mean.argmax())
            stats = stats.add(arm, problem.reward(float(one.theta[t, arm]), float(one.draws[t])))
        meta = meta.absorb(meta.digest(stats).message)


def test_told_of_a_change_within_a_task_it_opens_a_new_one():
    agents = {"a": Learner("", memory=ToldChanges(), policy="greedy")}
    problem = MovingProblem(**SPREAD, theta_jumps=(15,))
    whole = played(problem, agents, runs=1)
    tasks = of_run(problem, 0)
    meta = problem.meta()
    for s, one in enumerate(tasks):
        stats = meta.empty()
        for t, arm in enumerate(whole.actions[0, 0, s].tolist()):
            if t == 15:
                meta, stats = meta.absorb(meta.digest(stats).message), meta.empty()
            assert arm == int(meta.task_prior().condition(stats).belief.mean.argmax())
            stats = stats.add(arm, problem.reward(float(one.theta[t, arm]), float(one.draws[t])))
        meta = meta.absorb(meta.digest(stats).message)


def test_the_far_sighted_index_looks_at_the_rounds_that_are_left():
    """Also where tasks that it is told of are pieces of tasks, more than there were and shorter."""
    assert rounds_ahead(FarSighted(), [40] * 4, 2) == [80, 80, 40, 0]
    assert rounds_ahead(FarSighted(), [10, 30, 20], 20) == [50, 20, 0]
    assert rounds_ahead(FarSighted(later=100), [10, 30, 20], 4) == [40, 100, 80]


def test_told_of_jumps_it_can_be_far_sighted(monkeypatch):
    agents = {policy: Learner("", memory=ToldChanges(), policy=policy) for policy in ("ts", "far")}
    problem = MovingProblem(**SPREAD, theta_jumps=(10, 25))
    told = played(problem, agents, runs=40, tasks=10, rounds=40)
    assert told.mean("far") < 0.9 * told.mean("ts")
    some = {"tasks": 3, "rounds": 40, "runs": 2}
    same(played(problem, agents, **some), interpreted(monkeypatch, problem, agents, **some))


RIVALS: dict[str, Learner] = {
    "filter": Learner("", memory=ExactFilter()),
    **{
        f"{rule} {pooled}": Learner("", memory=Decay(0.5, rule, pooled))
        for rule in ("exponential", "stabilized", "directional")
        for pooled in (False, True)
    },
}


@each_move
def test_compiled_rivals_decide_as_the_plain_ones(monkeypatch, move):
    fast = played(MOVES[move], RIVALS)
    same(fast, interpreted(monkeypatch, MOVES[move], RIVALS))


def test_the_filter_of_what_stays_is_ada_ts():
    """By another formula: the same draws give the same decisions."""
    filtered = played(MOVES["mu jumps"], {"a": Learner("", memory=ExactFilter())})
    same(filtered, played(MOVES["mu jumps"], {"a": Learner("")}))


def test_the_filter_is_the_joint_gaussian():
    """By brute force: mu of each task and theta of each round, all together, one arm."""
    mu_step, theta_step, rounds, tasks = 0.3, 0.2, 5, 3
    problem = MovingProblem(arms=1, meta_scale=0.6, task_scale=0.4, noise=0.7)
    meta, rng = problem.meta(), np.random.default_rng(1)
    agent = FilterAgent(meta, mu_step, theta_step, rng)
    seen: list[tuple[int, int, float]] = []  # task, round, reward
    for s in range(tasks):
        for t in range(rounds):
            agent.ask(s)
            mean, cov = joint(meta, seen, (s, t), mu_step, theta_step)
            np.testing.assert_allclose([agent.mu[0], agent.theta[0]], mean, rtol=1e-9)
            found = [agent.width[0], agent.shared[0], agent.variance[0]]
            np.testing.assert_allclose(found, [cov[0, 0], cov[0, 1], cov[1, 1]], rtol=1e-9)
            reward = float(rng.normal())
            seen.append((s, t, reward))
            agent.tell(Pull(0), reward)


def joint(meta, seen, now, mu_step, theta_step):
    """Mean and covariance of mu and theta at (task, round), given what was seen before."""
    width, spread = float(meta.meta_scale[0] ** 2), float(meta.task_scale[0] ** 2)

    def mu_cov(s: int, other: int) -> float:
        return width + min(s, other) * mu_step**2

    def cov(one: tuple[int, int], other: tuple[int, int]) -> float:
        found = mu_cov(one[0], other[0])
        if one[0] == other[0]:
            found += spread + min(one[1], other[1]) * theta_step**2
        return found

    places = [(s, t) for s, t, _ in seen]
    prior = np.array([[mu_cov(now[0], now[0])] * 2, [mu_cov(now[0], now[0]), cov(now, now)]])
    if not seen:
        return np.zeros(2), prior
    across = np.array(
        [[mu_cov(now[0], s) for s, _ in places], [cov(now, place) for place in places]]
    )
    data = np.array([[cov(a, b) for b in places] for a in places])
    data += float(meta.noise[0] ** 2) * np.eye(len(places))
    gain = np.linalg.solve(data, across.T).T
    return gain @ np.array([reward for _, _, reward in seen]), prior - gain @ across.T


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("rule", "name"),
    [
        ("exponential", "ExponentialForgetting"),
        ("stabilized", "StabilizedForgetting"),
        ("directional", "SiftForgetting"),
        ("directional", "FeatureWiseForgetting"),
        ("directional", "ExponentialForgetting"),
    ],
)
def test_the_rules_are_those_of_bayesianbandits(rule, name):
    import bayesianbandits as peer

    meta = MovingProblem(arms=2, meta_scale=0.6, task_scale=0.8, noise=0.7).meta()
    agent = DecayAgent(meta, 0.9, rule, True, np.random.default_rng(0))
    theirs = getattr(peer, name)(0.9)
    ticks = rule != "directional"
    options = {} if ticks else {"forgetting": theirs}
    precision, noise = float(meta.task_prior().scale[0] ** -2), float(meta.noise[0] ** -2)
    arms = [peer.NormalRegressor(alpha=precision, beta=noise, **options) for _ in range(2)]
    for arm in arms:
        arm.sample(np.ones((1, 1)))  # so that it has its prior
    rng = np.random.default_rng(3)
    for _ in range(30):
        agent.ask(0)
        pulled, reward = int(rng.integers(2)), float(rng.normal())
        agent.tell(Pull(pulled), reward)
        arms[pulled].partial_fit(np.ones((1, 1)), np.array([reward]))
        for arm in arms if ticks else ():
            arm.decay(theirs)
        known = [float(arm.coef_[0]) for arm in arms]
        np.testing.assert_allclose(agent.centre, known, rtol=1e-9, atol=1e-12)
        sure = [float(np.asarray(arm.cov_inv_).squeeze()) for arm in arms]
        np.testing.assert_allclose(agent.precision, sure, rtol=1e-9)


@pytest.mark.parametrize("memory", [ExactFilter(), Decay(0.5, "exponential")])
def test_rivals_say_what_they_are_not_for(memory):
    agents = {"a": Learner("", memory=memory)}
    with pytest.raises(ValueError, match="is for problems that move, not for gaussian"):
        played(GaussianProblem(), agents)
    for options in ({"delay": 2}, {"explore_first": True}):
        with pytest.raises(ValueError, match="no forced exploration"):
            played(MovingProblem(), agents, **options)


@pytest.mark.parametrize(
    ("lives", "message"),
    [
        ((0.0, None), "half_life must be"),
        ((None, -1.0), "half_life must be"),
        ((math.nan, None), "half_life must be"),
        ((1.0, 2.0, "pulls"), "and no prior_half_life"),
        ((1.0, None, "days"), "clock must be one of seconds, rounds, pulls, got 'days'"),
    ],
)
def test_bad_half_lives(lives, message):
    with pytest.raises(ValueError, match=message):
        played(MovingProblem(), {"a": Learner("", memory=HalfLives(*lives))})


def test_workers_and_other_agents_change_nothing():
    agents = {**RIVALS, "told": Learner("", memory=ToldChanges()), "a": Learner("")}
    whole = played(MOVES["all"], agents, runs=6)
    parts = played(MOVES["all"], agents, runs=6, workers=2, chunk=1)
    np.testing.assert_array_equal(whole.regret, parts.regret)
    alone = played(MOVES["all"], {"told": agents["told"]}, runs=6)
    np.testing.assert_array_equal(alone.regret, whole.of(["told"]).regret)
