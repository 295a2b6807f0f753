"""Every compiled loop makes the decisions of the plain loop, draw for draw."""

import math

import numpy as np
import pytest
from scipy import stats as distributions

from adats import BetaArms, GaussianArms, LinearBelief, MixtureArms, PoissonArms
from adats.agents.oracles import ShortestPath, Top
from adats.agents.policies import FarSighted
from adats.agents.prior_source import Drawn, Fixed
from adats.simulation import AGENTS, Learner
from adats.simulation.kernels.common import poisson as poisson_reward
from adats.simulation.kernels.registry import absorb_of, known_rng
from adats.simulation.kernels.semibandit import path as shortest_path
from adats.simulation.kernels.semibandit import top
from adats.simulation.one_task import plain_task
from adats.simulation.play import Job, play_learner
from adats.simulation.problems import (
    GaussianProblem,
    LinearProblem,
    MixtureProblem,
    RoutingProblem,
    SemibanditProblem,
)
from loops import compiled_task

ROUNDS = 60
NONE_FIRST = np.zeros((0, 1), dtype=np.intp)
DIAMOND = {  # two routes of two edges, a bridge between them, and a parallel edge
    "network": "diamond",
    "edges": ((0, 1), (1, 3), (0, 2), (2, 3), (1, 2), (0, 1)),
    "lengths": (1.0, 1.2, 1.1, 1.0, 0.3, 1.05),
    "source": 0,
    "target": 3,
}


def outcome(play, problem, prior, instance, first, seed, rounds):
    rng, regret = np.random.default_rng(seed), np.full(rounds, np.nan)
    stats = play(problem, prior, instance, first, rng, regret)
    return regret, stats, rng.bit_generator.state


def metas(problem):
    """What an agent may have when a task ends."""
    meta = problem.meta()
    return (meta,) if isinstance(problem, MixtureProblem) else (meta, meta.widen(3.0))


def agree(problem, prior=None, *, explore_first=False, seed=0, rounds=ROUNDS, tasks=4):
    """Play some tasks both ways; the regrets of all of them."""
    world = np.random.default_rng([seed, 1])
    start = problem.start(world)
    first = problem.first(start) if explore_first else NONE_FIRST
    prior = problem.meta().task_prior() if prior is None else prior
    regrets = []
    for task in range(tasks):
        instance = problem.instance(start, rounds, world)

        ways = [
            outcome(play, problem, prior, instance, first, [seed, 2, task], rounds)
            for play in (compiled_task, compiled_task, plain_task)
        ]
        (regret, stats, state), again, (expected, reference, left) = ways
        np.testing.assert_array_equal(regret, again[0])  # the kernels keep nothing between calls
        np.testing.assert_array_equal(stats.flat(), again[1].flat())
        np.testing.assert_allclose(regret, expected, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(stats.flat(), reference.flat(), rtol=1e-9, atol=1e-9)
        assert type(stats) is type(reference)
        assert state == left
        for meta in metas(problem):
            fast = absorb_of(problem, meta)(meta, stats)
            slow = meta.absorb(meta.digest(stats).message)
            for name in ("high", "low"):
                sums = getattr(fast.total, name), getattr(slow.total, name)
                np.testing.assert_allclose(*sums, rtol=1e-9, atol=1e-9)
            np.testing.assert_allclose(fast.task_prior().mean, slow.task_prior().mean, rtol=1e-9)
            np.testing.assert_allclose(fast.task_prior().scale, slow.task_prior().scale, rtol=1e-9)
        regrets.append(regret)
    return np.array(regrets)


# Gaussian arms


@pytest.mark.parametrize("explore_first", [False, True])
@pytest.mark.parametrize("arms", [1, 2, 7])
def test_gaussian(arms, explore_first):
    problem = GaussianProblem(arms=arms, task_scale=0.3, noise=0.7)
    regrets = agree(problem, explore_first=explore_first)
    assert (regrets.max() > 0) == (arms > 1)


def test_gaussian_with_a_prior_of_its_own_for_every_arm():
    prior = GaussianArms([0.5, 0.0, -1.0, 0.4], [0.1, 1.0, 3.0, 0.0], 0.7)
    agree(GaussianProblem(arms=4, meta_scale=1.0, noise=0.7), prior, tasks=8)


@pytest.mark.parametrize("mean", [[0.0, 0.0, 0.0], [0.0, 1.0, 1.0]])
def test_gaussian_of_scale_zero_keeps_its_first_best_arm(mean):
    problem = GaussianProblem(arms=3, mu=[0.1, 0.2, 0.3], task_scale=0.0)
    regrets = agree(problem, GaussianArms(mean, 0.0, 1.0))
    np.testing.assert_allclose(regrets, 0.2 if mean[1] == 0.0 else 0.1)


def test_fewer_rounds_than_arms_to_explore():
    regrets = agree(
        GaussianProblem(arms=5, mu=[0.0, 1, 2, 3, 4], task_scale=0.0), rounds=3, explore_first=True
    )
    np.testing.assert_allclose(regrets, np.tile([4.0, 3.0, 2.0], (4, 1)))


# linear bandits


@pytest.mark.parametrize("dim", range(1, 9))
@pytest.mark.parametrize(
    ("redraw", "explore_first"), [("run", False), ("run", True), ("round", False)]
)
def test_linear(dim, redraw, explore_first):
    problem = LinearProblem(dim=dim, arms=5 * dim, task_scale=0.4, noise=0.5, redraw=redraw)
    assert agree(problem, explore_first=explore_first, seed=10 + dim).max() > 0


@pytest.mark.parametrize("rank", [0, 1, 2, 3])
def test_linear_with_a_singular_prior(rank):
    rng = np.random.default_rng(rank)
    half = rng.normal(size=(4, rank))
    prior = LinearBelief(rng.normal(size=4), half @ half.T, 0.5)
    agree(LinearProblem(dim=4, arms=9, noise=0.5), prior, seed=rank)


@pytest.mark.parametrize("columns", [1, 3])
def test_linear_with_a_narrow_factor(columns):
    rng = np.random.default_rng(columns)
    prior = LinearBelief.of(rng.normal(size=4), rng.normal(size=(4, columns)), 0.5)
    agree(LinearProblem(dim=4, arms=9, noise=0.5), prior, explore_first=True, seed=columns)


def test_linear_many_rounds_without_drift():
    agree(LinearProblem(dim=5, arms=12, task_scale=1.0, noise=0.2), rounds=1500, tasks=1)


def test_linear_with_fewer_arms_than_dimensions():
    agree(LinearProblem(dim=5, arms=2), explore_first=True)


def test_linear_with_one_round():
    agree(LinearProblem(dim=3, arms=5, redraw="round"), rounds=1)


# semi-bandits


@pytest.mark.parametrize("explore_first", [False, True])
@pytest.mark.parametrize(("arms", "size"), [(1, 1), (6, 1), (6, 4), (6, 6)])
def test_semibandit(arms, size, explore_first):
    agree(SemibanditProblem(arms=arms, size=size), explore_first=explore_first, seed=size)


def test_semibandit_leaves_negative_values_out():
    mu = [-9.0, -9.0, 8.0, -9.0]
    problem = SemibanditProblem(arms=4, size=3, mu=mu)
    regrets = agree(problem, GaussianArms(mu, 0.1, 1.0))
    np.testing.assert_allclose(regrets, 0.0, atol=1e-12)  # arm 2 alone, in every round
    nothing = agree(problem, GaussianArms(-9.0 * np.ones(4), 0.1, 1.0))
    assert nothing.min() > 7  # an empty set: nothing gained, and nothing learned


@pytest.mark.parametrize("size", [1, 3, 8])
def test_top_is_the_oracle(size):
    rng, chosen = np.random.default_rng(size), np.empty(8, dtype=np.intp)
    sizes = set()
    for _ in range(200):
        values = np.round(rng.normal(scale=1.5, size=8))  # with ties and zeros
        count = top(values, size, chosen)
        np.testing.assert_array_equal(chosen[:count], Top(size)(values))
        sizes.add(count)
    assert sizes >= {size, size - 1}


# routing


@pytest.fixture(scope="module")
def germany():
    return RoutingProblem.named("sndlib/germany50")


@pytest.mark.parametrize("explore_first", [False, True])
def test_routing_on_a_small_graph(explore_first):
    problem = RoutingProblem(**DIAMOND, task_scale=0.3)
    assert agree(problem, explore_first=explore_first).max() > 0


@pytest.mark.parametrize("explore_first", [False, True])
def test_routing_on_a_real_network(germany, explore_first):
    assert agree(germany, explore_first=explore_first, rounds=80, tasks=2).max() > 0


def test_routing_with_latencies_at_the_floor():
    """Samples of all edges are mostly clipped: paths tie in length only if they tie in edges."""
    problem = RoutingProblem(**DIAMOND, floor=0.5, mu=-np.array([1, 0.1, 2, 2, 2, 2]))
    prior = GaussianArms(-np.array([0.6, 0.5, 1.5, 1.5, 0.7, 0.9]), 0.4, 1.0)
    agree(problem, prior)


def test_routing_with_nodes_of_any_number():
    """Nodes are names: a negative or a large number is no place in an array."""
    number = {0: -1, 1: 10**12, 2: 7, 3: 3}
    edges = tuple((number[a], number[b]) for a, b in DIAMOND["edges"])
    named = {"edges": edges, "source": number[0], "target": number[3]}
    problem = RoutingProblem(**{**DIAMOND, **named}, task_scale=0.3)
    _, ends, (source, target, nodes), _ = problem.sets()
    assert nodes == 4
    assert set(np.ravel(ends)) | {source, target} == {0, 1, 2, 3}  # before the loop reads them
    np.testing.assert_array_equal(agree(problem), agree(RoutingProblem(**DIAMOND, task_scale=0.3)))


@pytest.mark.parametrize("where", ["diamond", "germany"])
def test_path_is_the_oracle(where, germany):
    problem = RoutingProblem(**DIAMOND) if where == "diamond" else germany
    _, edges, ends, floor = problem.sets()
    oracle = ShortestPath(problem.edges, problem.source, problem.target, floor=floor)
    rng, chosen = np.random.default_rng(4), np.empty(problem.arms, dtype=np.intp)
    seen = set()
    for _ in range(200):
        values = -rng.lognormal(sigma=1.0, size=problem.arms)
        values[rng.random(problem.arms) < 0.05] = 0.7  # below any latency: the floor counts
        count = shortest_path(values, edges, ends, floor, chosen)
        path, expected = chosen[:count].tolist(), oracle(values)
        cost = np.maximum(-values, floor)
        assert cost[path].sum() == pytest.approx(cost[expected].sum(), rel=1e-12)
        assert path == sorted(set(path))
        if len({*cost.tolist()}) == cost.size:  # no ties, so there is one shortest path
            assert path == expected.tolist()
        seen.add(tuple(path))
    assert len(seen) > 4


# mixtures


def bernoulli(weights=(0.6, 0.3, 0.1)):
    priors = [
        BetaArms([2.0, 5.0, 1.0], [5.0, 2.0, 1.0]),
        BetaArms([5.0, 0.5, 1.0], [2.0, 0.5, 1.0]),
        BetaArms([9.0, 9.0, 30.0], [9.0, 9.0, 10.0]),
    ]
    return MixtureProblem(weights, priors)


def poisson(weights=(0.6, 0.3, 0.1)):
    priors = [
        PoissonArms([2.0, 5.0, 30.0], [1.0, 2.0, 5.0]),
        PoissonArms([0.2, 50.0, 3.0], [0.1, 10.0, 1.0]),
        PoissonArms([600.0, 9.0, 3.0], [4.0, 0.1, 0.02]),
    ]
    return MixtureProblem(weights, priors)


BY_ARM = np.array([[0.6, 0.1, 0.2], [0.3, 0.9, 0.2], [0.1, 0.0, 0.6]])
FAMILIES = pytest.mark.parametrize("family", [bernoulli, poisson])


@FAMILIES
@pytest.mark.parametrize("explore_first", [False, True])
@pytest.mark.parametrize("weights", [(0.6, 0.3, 0.1), BY_ARM, (0.0, 1.0, 0.0)])
def test_mixture(family, weights, explore_first):
    assert agree(family(weights), explore_first=explore_first, tasks=8).max() > 0


@FAMILIES
def test_mixture_of_one_candidate(family):
    problem = family()
    one = MixtureProblem([1.0], [problem.priors.pick(1)])
    assert agree(one, tasks=8).max() > 0


@FAMILIES
@pytest.mark.parametrize("mu", [[2.0], [0.0, 1.0, 0.0]])
def test_mixture_whose_candidate_is_told(family, mu):
    """OracleTS and MetaTS: no candidate is left to draw, so none is drawn."""
    weights = BY_ARM if len(mu) > 1 else (0.6, 0.3, 0.1)
    problem = MixtureProblem(weights, family().priors, mu)
    assert agree(problem, problem.meta().prior_given(problem.mu), tasks=8).max() > 0


@FAMILIES
def test_mixture_with_weights_from_other_tasks(family):
    problem = family()
    prior = MixtureArms.of(np.array([[-900.0], [-800.0], [-801.0]]), problem.priors)
    agree(problem, prior, tasks=8)


@pytest.mark.parametrize("weights", [(0.5, 0.5), np.full((2, 3), 0.5)])
def test_mixture_whose_draws_round_to_one(weights):
    """Both ways decide ties by draws from beyond the rounding."""
    priors = [BetaArms([2.0, 2.0, 2.0], [0.01, 0.02, 0.03]), BetaArms([2e-3] * 3, [1.0] * 3)]
    agree(MixtureProblem(weights, priors), tasks=12)


def test_mixture_whose_impossible_candidate_fits_far_better():
    """A weight of zero stays zero, whatever the rewards."""
    priors = [PoissonArms([2e4, 1e4], [20.0, 20.0]), PoissonArms([1e3, 2e3], [1e3, 1e3])]
    problem = MixtureProblem([0.0, 1.0], priors, mu=0)  # the truth is the first
    prior = MixtureArms([0.0, 1.0], priors)
    assert agree(problem, prior, rounds=30).shape == (4, 30)


# the Poisson reward


MEANS = np.concatenate([np.logspace(-3, 4, 22), [0.5, 1.0, 3.0, 143.9, 144.1, 700.0, 750.0]])
POINTS = np.concatenate([[1e-12, 1e-6, 1e-3], np.linspace(0.01, 0.99, 37), [0.999, 1 - 1e-6]])


@pytest.mark.parametrize("mean", MEANS)
def test_poisson_is_the_quantile(mean):
    expected = distributions.poisson.ppf(POINTS, mean)
    np.testing.assert_array_equal([poisson_reward(mean, point) for point in POINTS], expected)


def test_poisson_of_the_lowest_and_the_highest_point():
    assert poisson_reward(3.0, 0.0) == 0.0
    assert poisson_reward(1e-300, 1 - 2**-53) == 0.0
    highest = poisson_reward(30.0, 1 - 2**-53)
    assert distributions.poisson.isf(1e-14, 30.0) <= highest < 120.0


@pytest.mark.statistical
@pytest.mark.parametrize("mean", [0.3, 40.0, 3000.0])
def test_poisson_has_its_mean_and_variance(mean):
    draws = np.random.default_rng(5).random(40_000)
    sample = np.array([poisson_reward(mean, draw) for draw in draws])
    assert abs(sample.mean() - mean) < 4 * math.sqrt(mean / sample.size)
    fourth = mean + 3 * mean**2  # central moment of a Poisson
    assert abs(sample.var() - mean) < 4 * math.sqrt((fourth - mean**2) / sample.size)


def test_the_plain_loop_uses_the_same_poisson_reward():
    problem = poisson()
    rng = np.random.default_rng(6)
    for mean in MEANS:
        for draw in rng.random(20):
            assert problem.reward(mean, draw) == poisson_reward(mean, draw)


@pytest.mark.parametrize("problem", [GaussianProblem(4), GaussianProblem(3, 0.5, [0.1, 0.0, 0.4])])
@pytest.mark.parametrize("forced", [False, True])
@pytest.mark.parametrize(
    "agent",
    [
        *(AGENTS[name] for name in ("oracle-ts", "ada-ts", "meta-ts", "ts", "ada-ucb", "ada-far")),
        Learner("", Drawn(), policy="index"),
        Learner("", Fixed(), policy=FarSighted(70.0, ahead=0.4)),
    ],
)
@pytest.mark.parametrize("delay", [0, 3])
def test_a_run_in_one_loop_is_its_tasks_one_after_another(problem, forced, agent, delay):
    """Bit for bit; whoever watches the priors gets the tasks one by one."""
    rng = np.random.default_rng(8)
    start = problem.start(rng)
    instances = [problem.instance(start, 30, rng) for _ in range(6)]
    first = problem.first(start) if forced else NONE_FIRST
    meta = problem.meta()
    job = Job(problem, {"a": agent}, {"a": meta}, 6, 30, 1, forced, delay, True, True, True)
    found = []
    for watch in (None, lambda _: None):
        own, regret = known_rng(np.random.default_rng(9)), np.empty((6, 30))
        actions = np.zeros((6, 30), dtype=np.intp)
        play_learner(job, agent, meta, start, instances, first, own, regret, actions, watch)
        found.append((regret, actions, own.random()))
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)
