"""The compiled loops of index policies against the plain loop, and what they should do."""

from types import SimpleNamespace

import numpy as np
import pytest

from adats import AdaTS, GaussianMeta, LinearMeta, OwnIndex
from adats.agents.policies import POLICIES, FarSighted
from adats.simulation import Learner, simulate
from adats.simulation.kernels.registry import NUMBERED, absorb_of
from adats.simulation.one_task import index_policy, plain_task
from adats.simulation.problems import (
    ClicksProblem,
    GaussianProblem,
    LinearProblem,
    PriorProblem,
    RoutingProblem,
    SemibanditProblem,
)
from loops import compiled_task

TRIANGLE = RoutingProblem("small", ((0, 1), (1, 2), (0, 2), (1, 3), (2, 3)), (1, 2, 2, 3, 1), 0, 3)
PROBLEMS = {
    "gaussian": GaussianProblem(arms=4),
    "linear": LinearProblem(dim=3, arms=7),
    "semibandit": SemibanditProblem(arms=6, size=2),
    "routing": TRIANGLE,
}
INDICES = NUMBERED[1:]
NOTHING = np.zeros((0, 1), dtype=np.intp)


def both(problem, policy, *, rounds, seed, delay=0, later=0, first=None):
    """Regrets and statistics of the compiled and of the plain loop, in the same world."""
    rng = np.random.default_rng(seed)
    start = problem.start(rng)
    told = problem.instance(start, rounds, rng)
    meta = problem.meta()
    stats = plain_task(problem, meta.task_prior(), told, NOTHING, rng, np.empty(rounds))
    meta = absorb_of(problem, meta)(meta, stats)
    instance, prior = problem.instance(start, rounds, rng), meta.task_prior()
    share = meta.share(rows=instance.rows(0))
    first = NOTHING if first is None else problem.first(start)
    index = index_policy(policy, rounds, later * share**2, delay)
    fast, slow = np.empty(rounds), np.empty(rounds)
    stats = compiled_task(problem, prior, instance, first, rng, fast, policy=index)
    rules = FarSighted(later) if policy == "far" else POLICIES[policy]
    plain = plain_task(
        problem, prior, instance, first, rng, slow, policy=rules, share=lambda _: share, delay=delay
    )
    return fast, slow, stats, plain


@pytest.mark.parametrize("policy", INDICES)
@pytest.mark.parametrize("name", PROBLEMS)
def test_the_compiled_loop_is_the_plain_loop(name, policy):
    lost = 0.0
    for seed in range(4):
        fast, slow, stats, plain = both(PROBLEMS[name], policy, rounds=60, seed=seed, later=300)
        np.testing.assert_allclose(fast, slow, atol=1e-9)
        np.testing.assert_allclose(stats.flat(), plain.flat(), atol=1e-8)
        lost += slow.sum()
    assert lost > 0  # there was something to choose


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("policy", INDICES)
@pytest.mark.parametrize("name", ["gaussian", "linear"])
def test_rewards_that_come_late(name, policy, seed):
    fast, slow, stats, plain = both(
        PROBLEMS[name], policy, rounds=60, seed=seed, delay=9, later=300
    )
    np.testing.assert_allclose(fast, slow, atol=1e-9)
    np.testing.assert_allclose(stats.flat(), plain.flat(), atol=1e-8)


@pytest.mark.parametrize("name", PROBLEMS)
def test_forced_exploration_comes_first(name):
    fast, slow, _, _ = both(PROBLEMS[name], "far", rounds=40, seed=1, first=True)
    np.testing.assert_allclose(fast, slow, atol=1e-9)


def test_a_delay_beyond_the_task_leaves_all_for_its_end():
    problem = PROBLEMS["gaussian"]
    fast, slow, stats, _ = both(problem, "ucb", rounds=20, seed=2, delay=50)
    np.testing.assert_allclose(fast, slow, atol=1e-9)
    assert stats.count.sum() == 20


def test_problems_without_a_compiled_loop_are_played_all_the_same():
    moving = LinearProblem(dim=2, arms=3, redraw="round")
    got = simulate(moving, ["ada-ucb"], tasks=2, rounds=10, runs=2, seed=1)
    assert (got.regret >= 0).all()
    assert got.regret.sum() > 0
    late = simulate(
        PROBLEMS["semibandit"], ["ada-far"], tasks=2, rounds=10, runs=2, seed=1, delay=3
    )
    assert late.regret.shape == (1, 2, 2)


def test_a_delay_costs_something_and_bad_ones_are_refused():
    problem = GaussianProblem(arms=3)
    options = {"tasks": 3, "rounds": 60, "runs": 200, "seed": 1}
    late = simulate(problem, ["ada-ucb", "ada-ts"], delay=20, **options)
    soon = simulate(problem, ["ada-ucb", "ada-ts"], **options)
    for agent in ("ada-ucb", "ada-ts"):
        gap = late.total(agent) - soon.total(agent)
        assert gap.mean() / (gap.std(ddof=1) / np.sqrt(200)) > 3
    with pytest.raises(ValueError, match="delay"):
        simulate(problem, ["ts"], tasks=1, rounds=2, runs=1, seed=1, delay=-1)


@pytest.mark.statistical
@pytest.mark.parametrize("agent", ["ada-ucb", "ada-index", "ada-far"])
def test_indices_have_less_regret_than_thompson_sampling(agent):
    problem = GaussianProblem(arms=2, meta_scale=0.5)
    got = simulate(problem, ["ada-ts", agent], tasks=20, rounds=200, runs=300, seed=5)
    gap = got.total("ada-ts") - got.total(agent)
    assert gap.mean() / (gap.std(ddof=1) / np.sqrt(300)) > 5


def test_agents_from_a_factory_are_told_the_horizon_and_take_a_delay():
    def build(problem, seed):
        return AdaTS(problem.meta(), policy="far", seed=seed)

    options = {"tasks": 2, "rounds": 10, "runs": 2, "seed": 1}
    got = simulate(GaussianProblem(arms=3), {"mine": build}, **options)
    assert (got.regret >= 0).all()
    late = simulate(GaussianProblem(arms=3), {"mine": build}, **options, delay=2)
    assert not np.array_equal(late.regret, got.regret)


@pytest.mark.parametrize("delay", [0, 3, 50])
def test_agents_from_a_factory_get_every_reward_late_and_in_order(delay):
    class Keeps:
        def __init__(self):
            self.seen = []

        def ask(self, task):
            self.seen.append(("ask", task))
            return SimpleNamespace(action=0, task=task, number=len(self.seen))

        def tell(self, decision, reward):
            self.seen.append(("tell", decision.task))

    made = []

    def build(problem, seed):  # noqa: ARG001
        made.append(Keeps())
        return made[-1]

    simulate(GaussianProblem(2), {"mine": build}, tasks=2, rounds=6, runs=1, seed=1, delay=delay)
    (agent,) = made
    for task in range(2):
        order = [what for what, which in agent.seen if which == task]
        asks_before_the_first = order.index("tell")
        assert asks_before_the_first == min(delay + 1, 6)
        assert order.count("ask") == order.count("tell") == 6


def own_rule(v, left, round):
    return np.sqrt(np.log(1.0 + 0.5 * v * left)) + 0.01 * round


@pytest.mark.parametrize("delay", [0, 3])
@pytest.mark.parametrize("kind", ["gaussian", "linear"])
def test_an_index_of_ones_own_is_compiled_as_it_is_plain(kind, delay, monkeypatch):
    gaussian = GaussianMeta([0.0, 0.3, 0.1], 0.5, task_scale=0.1, noise=1.0)
    linear = LinearMeta([0.1, -0.2], 0.25, task_cov=0.01, noise=1.0)
    rows = np.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])
    problem = PriorProblem(gaussian) if kind == "gaussian" else PriorProblem(linear, rows)
    agents = {"own": Learner("own", policy=OwnIndex(own_rule))}
    options = {"tasks": 3, "rounds": 25, "runs": 4, "seed": 2, "delay": delay}
    fast = simulate(problem, agents, **options)
    monkeypatch.setattr("adats.simulation.kernels.registry.has_numba", lambda: False)
    with pytest.warns(UserWarning, match="Numba"):
        slow = simulate(problem, agents, **options)
    np.testing.assert_allclose(fast.regret, slow.regret, rtol=1e-9)


def test_an_index_of_ones_own_where_no_loop_takes_it():
    agents = {"own": Learner("own", policy=OwnIndex(own_rule))}
    found = simulate(ClicksProblem(2, 0.2), agents, tasks=2, rounds=8, runs=1, seed=1)
    assert (found.regret >= 0).all()
