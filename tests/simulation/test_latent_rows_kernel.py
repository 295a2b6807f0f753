"""The compiled loops of clicks and counts with features against the models, and the plain loop.

A change of a site and the evidence are exact. A task is not played draw for draw: the compiled loop
renews the site of the row that was pulled, and the plain loop finds all sites anew.
"""

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from adats.agents.policies import POLICIES, FarSighted, Thompson
from adats.models import LinearMeta, ModelMixture
from adats.models.latent import full
from adats.models.latent import sites as ep
from adats.models.latent.family import FAMILIES
from adats.models.latent.row_belief import LatentRows
from adats.models.latent.row_meta import STATS, LatentLinearMeta
from adats.models.latent.row_stats import MOST_ROWS
from adats.simulation import simulate
from adats.simulation.kernels import latent_rows, registry
from adats.simulation.one_task import index_policy, plain_task
from adats.simulation.problems import ClicksProblem, FeatureClicksProblem
from loops import compiled_task

NONE_FIRST = np.zeros((0, 1), dtype=np.intp)
FAMILY = pytest.mark.parametrize("rewards", ["binary", "count"])
AGENTS = ["flat-ts", "pooled-ts", "ada-ts", "ada-far", "default-ts", "default-far", "linear-ts"]
PROBLEMS = {
    "binary": FeatureClicksProblem(3, 5, 0.2, 0.5, 0.4, 0.3),
    "count": FeatureClicksProblem(2, 4, 1.5, 0.2, 0.5, rewards="count"),
    "redrawn": FeatureClicksProblem(3, 4, 0.3, 0.6, 0.3, redraw="round"),
}
PROBLEM = pytest.mark.parametrize("name", PROBLEMS)


def rewarded(rewards, rng, rows):
    """Pulls of some rows, and the sums of their rewards."""
    n = np.ceil(10 ** rng.uniform(0, 2, rows))
    rate = 1 / (1 + np.exp(-rng.normal(-2, 1.5, rows)))
    s = rng.binomial(n.astype(int), rate) if rewards == "binary" else rng.poisson(3 * rate * n)
    return n, s.astype(float)


def any_prior(rng, dim):
    half = rng.normal(size=(dim, dim)) / math.sqrt(dim)
    return rng.normal(-1, 0.5, dim), half @ half.T + 0.05 * np.eye(dim)


# sites


@FAMILY
def test_renewing_sites_one_by_one_keeps_mean_covariance_and_evidence_exact(rewards):
    """Rows that are linearly dependent, told again and again."""
    rng, dim, rows = np.random.default_rng(1), 3, 5
    for _ in range(10):
        start, prior = any_prior(rng, dim)
        x = rng.normal(size=(rows, dim))
        sites, mean, evidence = np.zeros((rows, 3)), start.copy(), 0.0
        upper, room = np.linalg.cholesky(prior).T.copy(), np.empty((2, dim))
        n, s = np.zeros(rows), np.zeros(rows)
        for k in rng.integers(rows, size=15):
            more, sums = rewarded(rewards, rng, 1)
            n[k], s[k] = n[k] + more[0], s[k] + sums[0]
            given = (rewards == "count", n[k], s[k], x[k], sites[k], mean, upper, room)
            evidence += latent_rows.renew(*given)[0]
        w, b, log_s = sites.T
        exact = np.linalg.inv(np.linalg.inv(prior) + (x.T * w) @ x)
        where = exact @ (np.linalg.solve(prior, start) + x.T @ b)
        assert_allclose(upper.T @ upper, exact, rtol=1e-7, atol=1e-10)
        assert_allclose(mean, where, rtol=1e-7, atol=1e-9)
        # ∫ N(θ; start, Σ) ∏ exp(log_s + b xᵀθ - ½ w (xᵀθ)²) dθ, with the square completed
        grown = np.linalg.slogdet(np.eye(dim) + prior @ (x.T * w) @ x)[1]
        squares = where @ np.linalg.solve(exact, where) - start @ np.linalg.solve(prior, start)
        assert evidence == pytest.approx(log_s.sum() + 0.5 * (squares - grown), rel=1e-7, abs=1e-7)


@FAMILY
def test_a_renewed_site_is_that_of_the_model(rewards):
    rng, dim, rows = np.random.default_rng(2), 3, 4
    for _ in range(20):
        start, prior = any_prior(rng, dim)
        x = rng.normal(size=(rows, dim))
        model = full.FullPrior(start[None], np.linalg.cholesky(prior)[None], x)
        told, sites = np.zeros((3, 1, rows)), np.zeros((rows, 3))
        mean, upper, room = start.copy(), np.linalg.cholesky(prior).T.copy(), np.empty((2, dim))
        for k, (n, s) in enumerate(zip(*rewarded(rewards, rng, rows), strict=True)):
            ep.update_site(FAMILIES[rewards], n, s, model, told, k)
            latent_rows.renew(rewards == "count", n, s, x[k], sites[k], mean, upper, room)
        assert_allclose(sites, told[:, 0].T, rtol=1e-7, atol=1e-7)


def test_what_is_known_for_certain_stays():
    """A prior without any doubt: no site moves it, and nothing is divided by zero."""
    mean, upper, sites = np.array([-1.0, 0.5]), np.zeros((2, 2)), np.zeros((1, 3))
    x = np.array([[1.0, 2.0]])
    gain, gap = latent_rows.renew(False, 9.0, 3.0, x[0], sites[0], mean, upper, np.empty((2, 2)))
    assert (mean == [-1.0, 0.5]).all()
    assert gap == 0.0
    assert gain == pytest.approx(9 * math.log(0.5), abs=1e-3)  # eta is 0


def believed(meta, stats, sites):
    """Means and standard deviations of theta under the anchor with these sites."""
    prior, known = meta.anchor.prior, full.site_sums(sites, stats.rows, stats.frozen)
    cov, _ = full.covariances(prior.factor, known.gram)
    mean = prior.mean + full.times(cov, known.shift - full.times(known.gram, prior.mean))
    return mean, np.sqrt(np.einsum("...ii->...i", cov))


@pytest.mark.parametrize("name", ["binary", "count"])
def test_statistics_that_are_renewed_say_what_a_digest_says(name):
    problem, rng = PROBLEMS[name], np.random.default_rng(3)
    meta = problem.default()
    for _ in range(4):
        x = rng.normal(size=(6, problem.features))
        stats = meta.empty()
        for row, n, s in zip(x, *rewarded(name, rng, 6), strict=True):
            stats = stats.add_counts(row, n, s)
        fast, plain = latent_rows.settled(meta, stats), meta.digest(stats)
        assert fast.settled
        assert fast.anchor == meta.anchor.number
        assert_array_equal(fast.table, stats.table)
        again = latent_rows.settled(meta, fast)  # from its own sites: they stay
        assert_allclose(again.sites, fast.sites, rtol=0.01, atol=0.01)
        ours, known = (believed(meta, stats, one.sites) for one in (fast, plain.stats))
        assert (np.abs(ours[0] - known[0]) < 0.01 * known[1]).all()
        assert_allclose(ours[1], known[1], rtol=0.01)
        renewed = meta.absorb(meta.digest(fast).message)
        meta = meta.absorb(plain.message)
        assert_allclose(renewed.weights, meta.weights, atol=2e-3)
        meta = meta.renewed()


def test_rows_that_were_let_go_are_part_of_the_prior():
    rng, meta = np.random.default_rng(4), LatentLinearMeta(np.zeros(2), 1.0, task_scale=[0.2, 0.8])
    rows, table = rng.normal(size=(MOST_ROWS + 20, 2)), np.ones((2, MOST_ROWS + 20))
    table[1] = rng.random(MOST_ROWS + 20) < 0.3
    old = latent_rows.settled(meta, meta.empty().with_table(rows, table))
    assert old.frozen is not None
    more = old.with_table(rng.normal(size=(3, 2)), np.array([[5.0, 6.0, 7.0], [1.0, 0.0, 3.0]]))
    fast, plain = latent_rows.settled(meta, more), meta.digest(more.unsettled()).stats
    ours, known = (believed(meta, one, one.sites) for one in (fast, plain))
    assert (np.abs(ours[0] - known[0]) < 0.01 * known[1]).all()
    assert_allclose(ours[1], known[1], rtol=0.01)


@FAMILY
def test_statistics_made_at_once_are_those_told_one_by_one(rewards):
    rng = np.random.default_rng(5)
    rows = np.array([[1.0, 0.5], [1.0, -0.5], [1.0, 0.5], [1.0, 2.0]])
    table = np.array([[2.0, 1.0, 1.0, 0.0], [1.0, 0.0, 1.0, 0.0], [0.0, 0.0, 0.0, 0.0]])
    kind = STATS[rewards]
    fast = kind.zeros(2).with_table(rows, table[: kind.ROWS])
    slow = kind.zeros(2)
    for k, y in rng.permutation([(0, 1), (0, 0), (1, 0), (2, 1)]).tolist():
        slow = slow.add(rows[k], y)
    assert_array_equal(fast.rows, slow.rows)
    assert_array_equal(fast.table, slow.table)
    assert not fast.settled


# whole tasks


def learned(problem, tasks=4, rounds=60, seed=6):
    """What the default believes after some tasks, and the world they were of."""
    rng = np.random.default_rng(seed)
    start, meta = problem.start(rng), problem.default()
    for _ in range(tasks):
        instance = problem.instance(start, rounds, rng)
        given = (meta.task_prior(), instance, NONE_FIRST, rng, np.empty(rounds))
        stats = latent_rows.settled(meta, compiled_task(problem, *given))
        meta = meta.absorb(meta.digest(stats).message).renewed()
    return meta, start


class Factored(Thompson):
    """Thompson sampling with the factor that the compiled loop has, so that draws are the same."""

    def values(self, scene):
        belief = scene.belief
        index = int((belief.weights.cumsum() <= scene.rng.random()).sum())
        factor = belief.factor[index]
        lower = np.linalg.cholesky(factor @ factor.T)
        theta = belief.theta[index] + lower @ scene.rng.standard_normal(len(lower))
        return scene.rows @ theta


def both(problem, meta, start, policy, seed, rounds):
    """Regrets and actions of one task by the compiled and by the plain loop."""
    instance = problem.instance(start, rounds, np.random.default_rng([seed, 1]))
    share, prior, ways = meta.share(rows=instance.rows(0)), meta.task_prior(), []
    for plain in (False, True):
        rng = np.random.default_rng([seed, 2])
        regret, actions = np.empty(rounds), np.empty(rounds, dtype=np.intp)
        given = (problem, prior, instance, NONE_FIRST, rng, regret, actions)
        if plain:
            rules = {"far": FarSighted(300), "ts": Factored()}.get(policy, POLICIES[policy])
            stats = plain_task(*given, policy=rules, share=lambda _: share)
        elif policy == "ts":
            stats = compiled_task(*given)
        else:
            stats = compiled_task(*given, policy=index_policy(policy, rounds, 300 * share**2))
        if stats is None:
            return None
        means = np.array([instance.means(t) for t in range(rounds)])
        assert_allclose(regret, means.max(axis=1) - means[np.arange(rounds), actions])
        told = np.array([instance.rows(t)[arm] for t, arm in enumerate(actions)])
        assert_allclose(stats.gram, told.T @ told)
        ways.append((regret, actions))
    return ways


@pytest.mark.statistical
@PROBLEM
@pytest.mark.parametrize("policy", registry.NUMBERED)
def test_a_task_is_played_as_by_the_plain_loop(name, policy):
    """The same draws and nearly the same beliefs: decisions differ only where two arms nearly tie,
    and from there on for a while."""
    problem = PROBLEMS[name]
    meta, start = learned(problem)
    same, lost = [], []
    for seed in range(4):
        ways = both(problem, meta, start, policy, seed, 30)
        if ways is None:  # the share that an arm has in mu changes with its features
            assert (name, policy) == ("redrawn", "far")
            return
        (fast, ours), (slow, theirs) = ways
        same.append(ours == theirs)
        lost.append((fast.sum(), slow.sum()))
    assert np.mean([one[:3] for one in same]) == 1.0
    assert np.mean(same) > 0.75
    gap = np.subtract(*np.transpose(lost))
    assert abs(gap.mean()) <= 3 * gap.std(ddof=1) / math.sqrt(gap.size) + 1e-9
    assert np.sum(lost) > 0  # there was something to choose


@PROBLEM
def test_what_a_task_ends_with_is_what_conditioning_finds(name):
    """Renewed one by one, doubled or not: means within 0.05 sd, weights within 0.02."""
    problem = PROBLEMS[name]
    meta, start = learned(problem)
    prior = meta.task_prior()
    logs, means, covs = latent_rows.stacked(prior)
    for seed in range(5):
        rng, rounds = np.random.default_rng([seed, 3]), 100
        instance = problem.instance(start, rounds, rng)
        regret, actions = np.empty(rounds), np.empty(rounds, dtype=np.intp)
        world = (instance.theta, NONE_FIRST, instance.draws, regret, actions)
        thompson = registry.THOMPSON.fields()
        given = (problem.counts, logs, means, covs, thompson, instance.features, world, rng)
        rows, table, sites, after = latent_rows.row_task(*given)
        known = prior.condition(meta.empty().with_table(rows, table)).belief
        weights = np.exp(after - after.max())
        weights /= weights.sum()
        assert_allclose(weights, known.weights, atol=0.02)
        for j in np.flatnonzero(weights > 1e-3):
            w, b, _ = sites[j].T
            cov = np.linalg.inv(np.linalg.inv(covs[j]) + (rows.T * w) @ rows)
            mean = cov @ (np.linalg.solve(covs[j], means[j]) + rows.T @ b)
            scale = np.sqrt((known.factor[j] ** 2).sum(axis=-1))
            assert (np.abs(mean - known.theta[j]) < 0.05 * scale).all()


def test_candidates_of_no_weight_sit_out():
    problem = PROBLEMS["binary"]
    rng = np.random.default_rng(7)
    means, factor = rng.normal(-0.5, 0.3, (3, 3)), np.stack([0.5 * np.eye(3)] * 3)
    family, which = FAMILIES["binary"], np.arange(3)
    all_three = LatentRows(family, np.array([-50.0, 0.0, -1.0]), means, factor, which)
    two = LatentRows(family, np.array([0.0, -1.0]), means[1:], factor[1:], which[1:])
    instance = problem.instance(problem.start(rng), 80, rng)
    for number in ("ts", "greedy", "ucb"):
        found = []
        for prior in (all_three, two):
            regret, actions = np.empty(80), np.empty(80, dtype=np.intp)
            given = (instance, NONE_FIRST, np.random.default_rng(8), regret, actions)
            policy = registry.THOMPSON if number == "ts" else index_policy(number, 80, np.zeros(5))
            compiled_task(problem, prior, *given, policy=policy)
            found.append(actions)
        assert_array_equal(*found)


# whole runs


@pytest.mark.parametrize("name", ["binary", "count"])
def test_forced_exploration_comes_first(name):
    options = {"tasks": 2, "rounds": 6, "runs": 2, "seed": 1, "record": True}
    got = simulate(PROBLEMS[name], AGENTS, **options, explore_first=True)
    size = PROBLEMS[name].features
    assert (got.actions[..., :size] == got.actions[:1, :, :1, :size]).all()
    with pytest.raises(ValueError, match="stay the same"):
        simulate(PROBLEMS["redrawn"], AGENTS, **options, explore_first=True)


def test_late_rewards_are_for_the_plain_loop():
    options = {"tasks": 2, "rounds": 8, "runs": 2, "seed": 1}
    problem = PROBLEMS["binary"]
    late = simulate(problem, ["ada-ts", "default-far", "linear-ts"], **options, delay=3)
    assert np.isfinite(late.regret).all()
    assert not np.array_equal(late.regret, simulate(problem, [*late.agents], **options).regret)


@PROBLEM
def test_one_seed_gives_the_same_regrets_whatever_the_chunks_and_the_other_agents(name):
    options = {"tasks": 3, "rounds": 6, "runs": 2, "seed": 3}
    base = simulate(PROBLEMS[name], AGENTS, **options)
    assert_array_equal(simulate(PROBLEMS[name], AGENTS, **options, chunk=1).regret, base.regret)
    alone = simulate(PROBLEMS[name], ["default-ts"], **options)
    assert_array_equal(alone.regret[0], base.regret[AGENTS.index("default-ts")])


@pytest.mark.statistical
@PROBLEM
def test_runs_lose_what_they_lose_without_numba(name, monkeypatch):
    """Learning from task to task included: renewed statistics, anchors, candidates."""
    problem, agents = PROBLEMS[name], ["ada-ts", "default-ts", "linear-ts"]
    options = {"tasks": 3, "rounds": 8, "runs": 8, "seed": 2}
    fast = simulate(problem, agents, **options)
    monkeypatch.setattr(registry, "has_numba", lambda: False)
    with pytest.warns(UserWarning, match="Numba"):
        slow = simulate(problem, agents, **options)
    for agent in agents:
        gap = fast.total(agent) - slow.total(agent)
        assert abs(gap.mean()) <= 3 * gap.std(ddof=1) / math.sqrt(gap.size), agent


# the problem


def test_rates_follow_from_the_features():
    problem, rng = FeatureClicksProblem(4, 6, mu=[-3.0, 1.0, 0.0, -1.0]), np.random.default_rng(9)
    start = problem.start(rng)
    instance = problem.instance(start, 5, rng)
    rows = instance.rows(3)
    assert rows.shape == (6, 4)
    assert (rows[:, 0] == 1.0).all()
    assert_allclose(instance.means(3), 1 / (1 + np.exp(-rows @ instance.theta)))
    assert_array_equal(problem.instance(start, 5, rng).rows(0), rows)  # the same arms all the run
    anew = FeatureClicksProblem(4, 6, redraw="round")
    instance = anew.instance(anew.start(rng), 5, rng)
    assert not np.isin(instance.rows(0)[:, 1], instance.rows(1)[:, 1]).any()


@pytest.mark.statistical
def test_mu_and_tasks_spread_as_they_are_said_to():
    problem, rng = FeatureClicksProblem(3, 2, 0.1, 0.7, 0.2, 0.5), np.random.default_rng(10)
    mus = np.array([problem.start(rng).mu for _ in range(2000)])
    assert_allclose(mus[:, 0], math.log(1 / 9))
    assert_allclose(mus[:, 1:].std(axis=0), 0.7, rtol=0.05)
    start = problem.start(rng)
    gaps = np.array([problem.instance(start, 1, rng).theta - start.mu for _ in range(2000)])
    assert_allclose(gaps.std(axis=0), [math.hypot(0.2, 0.5), 0.2, 0.2], rtol=0.05)


def test_what_agents_are_told():
    problem = FeatureClicksProblem(3, 2, 0.1, 0.7, 0.2, 0.5)
    told = problem.meta()
    assert_allclose(told.spread.cov[0], np.diag([0.29, 0.04, 0.04]))
    assert_allclose(told.meta_cov[0].diagonal()[1:], 0.49)
    assert (problem.pooled().spread.cov == 0).all()
    linear = problem.linear()
    assert isinstance(linear, ModelMixture)
    assert all(isinstance(model, LinearMeta) for model in linear.models)
    assert linear.models[0].meta_cov[0, 0] == pytest.approx(0.09 / 4)  # 10 %: variance 0.09
    with pytest.raises(ValueError, match="features"):
        ClicksProblem().linear()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"features": 0}, "features"),
        ({"arms": 0}, "arms"),
        ({"base": 1.0}, "base"),
        ({"base": 0.0}, "base"),
        ({"arm_scale": -1.0}, "arm_scale"),
        ({"rewards": "number"}, "rewards"),
        ({"redraw": "task"}, "redraw"),
        ({"mu": [1.0]}, "mu must have 8"),
    ],
)
def test_settings_that_make_no_sense(options, message):
    with pytest.raises(ValueError, match=message):
        FeatureClicksProblem(**options)


def test_one_feature_is_a_base_rate_and_nothing_to_choose():
    got = simulate(FeatureClicksProblem(1, 3), AGENTS, tasks=2, rounds=5, runs=2, seed=1)
    assert (got.regret == 0).all()
