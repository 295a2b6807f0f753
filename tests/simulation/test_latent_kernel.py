"""The compiled loops of clicks and counts against the models, and against the plain loop.

A site, a change of it and the evidence are exact. A task is not played draw for draw: the compiled
loop renews the site of the arm that was pulled, and the plain loop finds all sites anew.
"""

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.integrate import quad
from scipy.stats import norm

from adats.agents.policies import POLICIES, FarSighted
from adats.models.latent import sites as ep
from adats.models.latent.belief import LatentBelief
from adats.models.latent.family import FAMILIES
from adats.models.latent.level import LevelPrior
from adats.simulation import simulate
from adats.simulation.kernels import common, factors, latent, latent_sites, registry
from adats.simulation.one_task import index_policy, plain_task
from adats.simulation.problems import ClicksProblem
from loops import compiled_task

NONE_FIRST = np.zeros((0, 1), dtype=np.intp)
FAMILY = pytest.mark.parametrize("rewards", ["binary", "count"])
CLICK_AGENTS = ["flat-ts", "pooled-ts", "ada-ts", "ada-far", "default-ts", "default-far"]
PROBLEMS = {
    "binary": ClicksProblem(3, 0.2, task_scale=0.5, level_scale=0.5, mu=[-1.5, -1.3, -1.7]),
    "count": ClicksProblem(3, 1.5, task_scale=0.4, rewards="count", mu=[0.5, 0.3, 0.4]),
}


def counted(rewards, rng, arms=1, most=3.0):
    """Pulls of some arms, and the sums of their rewards; some arms have none of either."""
    n = np.floor(10 ** rng.uniform(-0.5, most, arms))
    rate = 1 / (1 + np.exp(-rng.normal(-2, 2, arms)))
    s = rng.binomial(n.astype(int), rate) if rewards == "binary" else rng.poisson(3 * rate * n)
    return n, s.astype(float)


def level_prior(rng, candidates, arms):
    mean = rng.normal(-2, 1, (candidates, arms))
    own = 10 ** rng.uniform(-3, 0.5, (candidates, arms))
    return LevelPrior(mean, own, 10 ** rng.uniform(-2, 0.5, (candidates, 1)))


def covariance(prior, j):
    return np.diag(prior.own[j]) + prior.shared[j]


# families


@FAMILY
def test_families_are_those_of_the_models(rewards):
    family, counts = FAMILIES[rewards], rewards == "count"
    for eta in (-800.0, -40.0, -3.0, -1e-9, 0.0, 0.5, 4.0, 40.0, 690.0):
        found = latent_sites.log_partition(float(counts), eta)
        assert found == pytest.approx(family.log_partition(eta), rel=1e-14)
        mean, variance = latent_sites.derivatives(counts, eta)
        assert (mean, variance) == (
            pytest.approx(family.mean(eta)),
            pytest.approx(family.variance(eta)),
        )
    for mean, variance in ((-5.0, 0.01), (-3.0, 1.0), (0.5, 0.0), (2.0, 4.0)):
        known = family.expected(np.array([mean]), np.array([math.sqrt(variance)]))[0][0]
        assert latent_sites.expected(counts, mean, variance) == pytest.approx(known, rel=1e-12)


def test_exp_and_log1p_are_right_to_the_last_digits():
    for x in np.linspace(-690.0, 590.0, 4001):
        assert latent_sites.exp(x) == pytest.approx(math.exp(x), rel=1e-15, abs=0.0)
    for u in np.linspace(0.0, 1.0, 1001) ** 4:
        assert latent_sites.log1p(u) == pytest.approx(math.log1p(u), rel=1e-15, abs=0.0)


def test_exp_is_exact_where_a_loop_that_may_add_in_any_order_compiles_it():
    options = {name: latent_sites.exp.targetoptions[name] for name in ("error_model", "fastmath")}
    fresh = common.numba.njit(**options)(latent_sites.exp.py_func)  # not compiled yet

    @common.numba.njit(fastmath={"reassoc", "nsz", "contract"})  # as `compiled_sums`, not kept
    def summed(x):
        return fresh(x) + 0.0

    for x in (-3.0, -1.8, 0.1, 5.0):
        assert summed(x) == pytest.approx(math.exp(x), rel=1e-15)


# one site


@FAMILY
def test_a_site_is_that_of_the_model(rewards):
    """Laid where the last one was, after one more reward or after many."""
    rng, family = np.random.default_rng(1), FAMILIES[rewards]
    for _ in range(200):
        m, v = rng.normal(-2.0, 2.0), 10 ** rng.uniform(-3, 1)
        prior = LevelPrior(np.array([[m]]), np.array([[v]]), np.zeros((1, 1)))
        sites, known = np.zeros((3, 1, 1)), (0.0, 0.0, 0.0)
        n = s = 0.0
        for _ in range(3):
            more, sums = counted(rewards, rng)
            n, s = n + more[0] + 1, s + sums[0]
            ep.update_site(family, n, s, prior, sites, 0)
            known = latent_sites.site(rewards == "count", n, s, m, v, known[0], known[1])
            away = 1.0 + m * m / v + n + abs(s)  # round-off grows with what is subtracted
            assert_allclose(known, sites[:, 0, 0], rtol=1e-9, atol=1e-12 * away)


@pytest.mark.parametrize(
    ("rewards", "n", "s"),
    [
        *(
            ("binary", n, s)
            for n, s in ((1.0, 0.0), (1.0, 1.0), (1e6, 0.0), (1e6, 1e6), (1e6, 3.0))
        ),
        *(("count", n, s) for n, s in ((1.0, 0.0), (1.0, 90.0), (1e6, 0.0), (1e6, 3e6))),
    ],
)
@pytest.mark.parametrize("m", [-14.0, -4.0, 0.0, 3.0])
def test_a_site_of_extreme_counts(rewards, n, s, m):
    counts, family, v = rewards == "count", FAMILIES[rewards], 4.0
    found = np.empty((3, 1))
    centre = ep.mode(family, np.array([n]), np.array([s]), np.array([m]), np.array([v]))
    assert latent_sites.mode(counts, n, s, m, v) == pytest.approx(centre[0], abs=1e-6)
    sd = 1 / np.sqrt(1 / v + n * family.variance(centre))
    ep.fit(family, np.array([n]), np.array([s]), np.array([m]), np.array([v]), centre, sd, found)
    # the old site lies at the mode, so that the compiled one stays there
    w, b = (1 / sd**2 - 1 / v).item(), (centre / sd**2 - m / v).item()
    known = latent_sites.site(counts, n, s, m, v, w, b)
    assert_allclose(known, found[:, 0], rtol=1e-6, atol=1e-6)
    assert np.isfinite(known).all()
    assert known[0] > 0


@FAMILY
def test_the_mass_of_a_site_is_the_evidence_of_its_rewards(rewards):
    """Of one arm: the integral of the likelihood over the cavity, within 0.2 %."""
    counts, family = rewards == "count", FAMILIES[rewards]
    for n, s, m, v in ((4.0, 0.0, -3.0, 1.0), (30.0, 2.0, -2.0, 2.0), (200.0, 90.0, 0.0, 0.1)):
        sites = np.array([[x] for x in latent_sites.site(counts, n, s, m, v, 0.0, 0.0)])
        w, b = sites[0, 0], sites[1, 0]
        mean = np.array([(m / v + b) / (1 / v + w)])
        found = latent.log_evidence(sites, np.array([m]), mean, math.log1p(w * v))

        def density(x, n=n, s=s, m=m, v=v):
            return math.exp(s * x - n * family.log_partition(x)) * norm.pdf(x, m, math.sqrt(v))

        exact = quad(density, m - 9 * math.sqrt(v), m + 9 * math.sqrt(v), points=[mean[0]])[0]
        assert found == pytest.approx(math.log(exact), abs=2e-3)


# all sites of a task


@FAMILY
def test_renewing_sites_one_by_one_keeps_mean_covariance_and_evidence_exact(rewards):
    rng, arms = np.random.default_rng(2), 4
    for _ in range(20):
        prior = level_prior(rng, 1, arms)
        start, cov = prior.mean[0], covariance(prior, 0)
        sites, mean, log_det = np.zeros((3, arms)), start.copy(), 0.0
        upper, room = factors.factorised(cov), np.empty((2, arms))
        n, s = np.zeros(arms), np.zeros(arms)
        for k in rng.integers(arms, size=12):
            more, sums = counted(rewards, rng, most=2.0)
            n[k], s[k] = n[k] + more[0] + 1, s[k] + sums[0]
            given = (rewards == "count", n[k], s[k], k, sites, mean, upper, room)
            log_det += math.log(latent.renew(*given))
        w, b, log_s = sites
        exact = np.linalg.inv(np.linalg.inv(cov) + np.diag(w))
        where = exact @ (np.linalg.solve(cov, start) + b)
        assert_allclose(upper.T @ upper, exact, rtol=1e-7, atol=1e-10)
        assert (np.tril(upper, -1) == 0).all()
        assert_allclose(mean, where, rtol=1e-7, atol=1e-9)
        grown = np.linalg.slogdet(np.eye(arms) + cov @ np.diag(w))[1]
        assert log_det == pytest.approx(grown, rel=1e-8, abs=1e-9)
        # ∫ N(θ; start, Σ) ∏ exp(log_s + bθ - ½wθ²) dθ, with the square completed
        gap = np.linalg.solve(cov, start) @ start
        square = where @ np.linalg.solve(exact, where)
        evidence = log_s.sum() + 0.5 * (square - gap - grown)
        found = latent.log_evidence(sites, start, mean, log_det)
        assert found == pytest.approx(evidence, rel=1e-7, abs=1e-7)


def task(rewards, seed, candidates=3, arms=5):
    """A prior of some candidates, and what was pulled."""
    rng = np.random.default_rng(seed)
    return level_prior(rng, candidates, arms), *counted(rewards, rng, arms)


def settled(rewards, prior, n, s, times=1):
    """Sites by the compiled loop, which goes on from its own sites so many times."""
    table, sites = np.zeros((3, n.size)), np.zeros((3, *prior.mean.shape))
    table[:2] = n, s
    shared = prior.shared[:, 0].copy()
    for _ in range(times):
        latent_sites.settle(rewards == "count", table, prior.mean, prior.own, shared, sites)
    return sites


@FAMILY
@pytest.mark.parametrize("seed", range(5))
def test_settled_sites_are_those_of_telling_arm_after_arm(rewards, seed):
    """Where both have come to rest."""
    prior, n, s = task(rewards, seed)
    sites, told = settled(rewards, prior, n, s, times=20), np.zeros((3, *prior.mean.shape))
    for _ in range(40):
        for k in np.flatnonzero(n):
            ep.update_site(FAMILIES[rewards], n[k], s[k], prior, told, k)
    assert_allclose(sites, told, rtol=1e-9, atol=1e-9)
    assert (sites[:, :, n == 0] == 0).all()


def posteriors(prior, sites):
    """Means and standard deviations of eta, a candidate a row."""
    for j, (w, b) in enumerate(zip(*sites[:2], strict=True)):
        inverse = np.linalg.inv(covariance(prior, j))
        cov = np.linalg.inv(inverse + np.diag(w))
        yield cov @ (inverse @ prior.mean[j] + b), np.sqrt(np.diag(cov))


@FAMILY
@pytest.mark.parametrize("seed", range(5))
def test_settled_sites_are_those_of_the_model(rewards, seed):
    """Within what either calls settled: means to 0.01 sd, sds to 1 %."""
    prior, n, s = task(rewards, seed)
    model = ep.settled(FAMILIES[rewards], n, s, prior, np.zeros((3, *prior.mean.shape)))
    ours, theirs = posteriors(prior, settled(rewards, prior, n, s)), posteriors(prior, model)
    for (mean, sd), (known, known_sd) in zip(ours, theirs, strict=True):
        assert (np.abs(mean - known) < 0.01 * known_sd).all()
        assert_allclose(sd, known_sd, rtol=0.01)


@pytest.mark.parametrize("name", PROBLEMS)
def test_statistics_that_are_renewed_say_what_a_digest_says(name):
    problem = PROBLEMS[name]
    rng = np.random.default_rng(3)
    meta = problem.default()
    for _ in range(3):
        n, s = counted(name, rng, 3, most=2.0)
        stats = meta.empty()
        for k in np.flatnonzero(n):
            stats = stats.add_counts(k, n[k], s[k])
        fast = latent_sites.settled(meta, stats)
        assert fast.settled
        assert fast.anchor == meta.anchor.number
        assert_array_equal(fast.table, stats.table)
        renewed = meta.absorb(meta.digest(fast).message)
        plain = meta.absorb(meta.digest(stats).message)
        assert_allclose(renewed.weights, plain.weights, atol=2e-3)
        ours, theirs = renewed.task_prior().each_arm, plain.task_prior().each_arm
        assert_allclose(ours.eta_mean, theirs.eta_mean, atol=5e-3 * theirs.eta_scale.min())
        assert_allclose(ours.eta_scale, theirs.eta_scale, rtol=5e-3)
        meta = plain.renewed()


def test_draws_have_the_factor_of_the_covariance():
    rng, size = np.random.default_rng(4), 5
    half = rng.normal(size=(size, size))
    mean, cov = rng.normal(size=size), half @ half.T
    theta, upper = np.empty(size), factors.factorised(cov)
    factors.draw(mean, upper, np.random.default_rng(5), theta)
    z = np.random.default_rng(5).standard_normal(size)
    assert_allclose(upper.T, np.linalg.cholesky(cov), atol=1e-12)
    assert_allclose(theta, mean + np.linalg.cholesky(cov) @ z, atol=1e-12)
    found = np.empty(size)
    assert factors.variances(upper, found) == pytest.approx(cov.sum())
    assert_allclose(found, np.diag(cov))
    nothing = factors.factorised(np.zeros((size, size)))
    factors.draw(mean, nothing, np.random.default_rng(5), theta)
    assert_allclose(theta, mean)  # nothing is unknown


# whole tasks


def learned(problem, tasks=4, rounds=60, seed=6):
    """What the default believes after some tasks, and the world they were of."""
    rng = np.random.default_rng(seed)
    start, meta = problem.start(rng), problem.default()
    for _ in range(tasks):
        instance = problem.instance(start, rounds, rng)
        stats = compiled_task(
            problem, meta.task_prior(), instance, NONE_FIRST, rng, np.empty(rounds)
        )
        meta = meta.absorb(meta.digest(latent_sites.settled(meta, stats)).message).renewed()
    return meta, start


def both(problem, meta, start, policy, seed, rounds):
    """Regrets and actions of one task by the compiled and by the plain loop."""
    instance = problem.instance(start, rounds, np.random.default_rng([seed, 1]))
    share, prior, ways = meta.share(), meta.task_prior(), []
    for plain in (False, True):
        rng = np.random.default_rng([seed, 2])
        regret, actions = np.empty(rounds), np.empty(rounds, dtype=np.intp)
        given = (problem, prior, instance, NONE_FIRST, rng, regret, actions)
        if plain:
            rules = FarSighted(300) if policy == "far" else POLICIES[policy]
            stats = plain_task(*given, policy=rules, share=lambda _: share)
        elif policy == "ts":
            stats = compiled_task(*given)
        else:
            stats = compiled_task(*given, policy=index_policy(policy, rounds, 300 * share**2))
        assert_allclose(regret, instance.theta.max() - instance.theta[actions])
        assert_array_equal(stats.table[0], np.bincount(actions, minlength=len(share)))
        ways.append((regret, actions))
    return ways


@pytest.mark.statistical
@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("policy", registry.NUMBERED)
def test_a_task_is_played_as_by_the_plain_loop(name, policy):
    """The same draws and nearly the same beliefs: decisions differ only where two arms nearly tie,
    and from there on for a while."""
    problem = PROBLEMS[name]
    meta, start = learned(problem)
    same, lost = [], []
    for seed in range(6):
        (fast, ours), (slow, theirs) = both(problem, meta, start, policy, seed, 40)
        same.append(ours == theirs)
        lost.append((fast.sum(), slow.sum()))
    assert np.mean([one[:5] for one in same]) == 1.0
    assert np.mean(same) > 0.75
    gap = np.subtract(*np.transpose(lost))
    assert abs(gap.mean()) <= 3 * gap.std(ddof=1) / math.sqrt(gap.size)
    assert np.sum(lost) > 0  # there was something to choose


@pytest.mark.parametrize("name", PROBLEMS)
def test_what_a_task_ends_with_is_what_conditioning_finds(name):
    """Renewed one by one, doubled or not: means within 0.05 sd, weights within 0.02."""
    problem = PROBLEMS[name]
    meta, start = learned(problem)
    prior = meta.task_prior()
    for seed in range(5):
        rng, rounds = np.random.default_rng([seed, 3]), 100
        instance = problem.instance(start, rounds, rng)
        covs = np.matmul(prior.factor, np.swapaxes(prior.factor, -1, -2))
        given = (prior.log_weights, prior.eta_mean, covs)
        regret, actions = np.empty(rounds), np.empty(rounds, dtype=np.intp)
        world = (instance.theta, NONE_FIRST, instance.draws, regret, actions)
        thompson = registry.THOMPSON.fields()
        table, sites = latent.latent_task(problem.counts, *given, thompson, world, rng)
        stats = meta.empty().with_table(table)
        known = prior.condition(stats).belief
        logs, means = [], []
        for j, cov in enumerate(covs):
            w, b, _ = sites[j]
            post = np.linalg.inv(np.linalg.inv(cov) + np.diag(w))
            mean = post @ (np.linalg.solve(cov, prior.eta_mean[j]) + b)
            det = np.linalg.slogdet(np.eye(w.size) + cov @ np.diag(w))[1]
            gain = latent.log_evidence(sites[j], prior.eta_mean[j], mean, det)
            logs.append(prior.log_weights[j] + gain)
            means.append(mean)
        weights = np.exp(np.array(logs) - max(logs))
        weights /= weights.sum()
        heavy = weights > 1e-3
        assert_allclose(weights, known.weights, atol=0.02)
        scale = np.sqrt((known.factor[heavy] ** 2).sum(axis=-1))
        assert (np.abs(np.array(means)[heavy] - known.eta_mean[heavy]) < 0.05 * scale).all()


def test_candidates_of_no_weight_sit_out():
    problem = PROBLEMS["binary"]
    rng = np.random.default_rng(7)
    means = rng.normal(-1.5, 0.3, (3, 3))
    factor = np.stack([0.5 * np.eye(3)] * 3)
    family = FAMILIES["binary"]
    all_three = LatentBelief(family, np.array([-50.0, 0.0, -1.0]), means, factor)
    two = LatentBelief(family, np.array([0.0, -1.0]), means[1:], factor[1:])
    instance = problem.instance(problem.start(rng), 80, rng)
    found = []
    for prior in (all_three, two):
        regret, actions = np.empty(80), np.empty(80, dtype=np.intp)
        given = (instance, NONE_FIRST, np.random.default_rng(8), regret, actions)
        compiled_task(problem, prior, *given)
        found.append(actions)
    assert_array_equal(*found)


@pytest.mark.parametrize("name", PROBLEMS)
def test_forced_exploration_comes_first(name):
    problem = PROBLEMS[name]
    options = {"tasks": 2, "rounds": 6, "runs": 2, "seed": 1, "record": True}
    got = simulate(problem, CLICK_AGENTS, **options, explore_first=True)
    assert (got.actions[..., :3] == [0, 1, 2]).all()


def test_late_rewards_are_for_the_plain_loop():
    options = {"tasks": 2, "rounds": 8, "runs": 2, "seed": 1}
    problem = PROBLEMS["binary"]
    late = simulate(problem, ["ada-ts", "default-far"], **options, delay=3)
    assert np.isfinite(late.regret).all()
    assert not np.array_equal(late.regret, simulate(problem, [*late.agents], **options).regret)


# whole runs


@pytest.mark.parametrize("name", PROBLEMS)
def test_one_seed_gives_the_same_regrets_whatever_the_chunks_and_the_other_agents(name):
    options = {"tasks": 5, "rounds": 20, "runs": 4, "seed": 3}
    base = simulate(PROBLEMS[name], CLICK_AGENTS, **options)
    assert_array_equal(
        simulate(PROBLEMS[name], CLICK_AGENTS, **options, chunk=1).regret, base.regret
    )
    for i, agent in enumerate(CLICK_AGENTS):
        assert_array_equal(simulate(PROBLEMS[name], [agent], **options).regret[0], base.regret[i])
    other = simulate(PROBLEMS[name], CLICK_AGENTS, **{**options, "seed": 4})
    assert not np.isin(other.regret[other.regret > 0], base.regret).any()


def test_two_workers_give_the_numbers_of_one():
    options = {"tasks": 5, "rounds": 20, "runs": 4, "seed": 3}
    for problem in PROBLEMS.values():
        one = simulate(problem, CLICK_AGENTS, **options)
        two = simulate(problem, CLICK_AGENTS, **options, workers=2, chunk=1)
        assert_array_equal(two.regret, one.regret)


@pytest.mark.parametrize("rewards", PROBLEMS)
def test_rivals_play_in_a_compiled_loop(rewards):
    """The plain loop, which serves whatever has none, is forty times slower."""
    problem, rng = PROBLEMS[rewards], np.random.default_rng(1)
    instance = problem.instance(problem.start(rng), 20, rng)
    prior = problem.pooled().task_prior()
    loop = registry.loops_of(problem, prior).play
    room = (np.empty(20), np.empty(20, dtype=np.intp))
    stats = loop(problem, registry.LoopInput(prior, instance, NONE_FIRST, rng, *room))
    assert stats.table[0].sum() == 20


@pytest.mark.statistical
def test_runs_lose_what_they_lose_without_numba(monkeypatch):
    """Learning from task to task included: renewed statistics, anchors, candidates."""
    problem, agents = PROBLEMS["binary"], ["ada-ts", "default-ts", "default-far", "pooled-ts"]
    options = {"tasks": 4, "rounds": 10, "runs": 8, "seed": 2}
    fast = simulate(problem, agents, **options)
    monkeypatch.setattr(registry, "has_numba", lambda: False)
    with pytest.warns(UserWarning, match="Numba"):
        slow = simulate(problem, agents, **options)
    for agent in agents[:-1]:
        gap = fast.total(agent) - slow.total(agent)
        assert abs(gap.mean()) <= 3 * gap.std(ddof=1) / math.sqrt(gap.size), agent
    assert_allclose(fast.total("pooled-ts"), slow.total("pooled-ts"))  # this one draw for draw
