"""Spreads of clicks and counts: against brute force, on simulated tasks, and on strange ones."""

import numpy as np
import pytest
from scipy.optimize import minimize

from adats.models.latent import spreads
from adats.models.latent.family import BINARY, COUNT
from adats.models.latent.full import FullSpread
from adats.models.latent.level import LevelSpread
from adats.models.latent.meta import LatentMeta
from adats.models.latent.spreads import Log, learn_full, learn_level
from click_logs import brute_log_evidence, counts, wide_log

FAMILIES = pytest.mark.parametrize("family", [BINARY, COUNT], ids=lambda family: family.name)


@FAMILIES
def test_the_same_as_direct_maximisation_of_the_evidence(family):
    """Evidence within 0.02 nats and spreads within 0.02, where their errors are about 0.2."""
    rng = np.random.default_rng(1)
    cov = 0.3**2 * np.eye(2) + 0.6**2
    n, s = counts(rng, 6, 20, mu=np.array([-1.8, -1.4]), cov=cov, family=family)
    log = wide_log(n, s, centre=-1.6, family=family)

    def loss(at):
        return -brute_log_evidence(log, *np.exp(at)) - at.sum() + np.exp(at).sum()

    best = minimize(loss, np.log([0.3, 0.5]), method="Nelder-Mead", options={"xatol": 3e-3})
    found = learn_level(log)
    np.testing.assert_allclose(found.spread.sizes(0), np.exp(best.x), atol=0.02)
    exact = brute_log_evidence(log, *found.spread.sizes(0))
    assert abs(found.log_evidence - exact) < 0.02
    assert abs(found.curve[-1] + best.fun) < 0.02


@pytest.mark.parametrize("full", [False, True])
def test_the_slope_is_that_of_the_evidence(full):
    rng = np.random.default_rng(2)
    cov = np.array([[0.3, 0.1, 0.0], [0.1, 0.2, 0.05], [0.0, 0.05, 0.4]])
    n, s = counts(rng, 12, 20, mu=np.array([-2.0, -1.0, -1.5]), cov=cov)
    design = rng.standard_normal((12, 3, 2)) if full else None
    mean, wide = (np.zeros(2), np.eye(2)) if full else (np.full(3, -1.5), np.eye(3) + 1)
    log = Log(BINARY, n, s, mean, wide, design)
    sites = learn_level(log).sites

    def evidence(cov):
        return spreads._slope(log, FullSpread.of(cov[None]), sites)[0]

    slope = spreads._slope(log, FullSpread.of(cov[None]), sites)[1]
    for i, j in [(0, 0), (1, 1), (0, 2)]:
        way = np.zeros((3, 3))
        way[i, j] = way[j, i] = 1e-5
        change = (evidence(cov + way) - evidence(cov - way)) / 2
        np.testing.assert_allclose((slope * way).sum(), change, rtol=1e-5)


@pytest.mark.statistical
@pytest.mark.parametrize(("rate", "pulls"), [(0.02, 100), (0.2, 20)])
def test_a_level_comes_back(rate, pulls):
    """Over eight logs: spreads within three standard errors, and chi-square of mu as it should."""
    mu = np.log(rate / (1 - rate)) + np.linspace(-0.3, 0.3, 4)
    cov = 0.2**2 * np.eye(4) + 0.4**2
    logs, far = [], 0.0
    for seed in range(8):
        n, s = counts(np.random.default_rng(seed), 400, pulls, mu=mu, cov=cov)
        found = learn_level(wide_log(n, s, centre=mu.mean()))
        assert np.diff(found.curve).min() > -spreads.ENOUGH
        logs.append(np.log(found.spread.sizes(0)))
        far += (found.mean - mu) @ np.linalg.solve(found.cov, found.mean - mu)
    error = np.std(logs, axis=0, ddof=1)
    assert (error < [0.3, 0.12]).all()
    assert (np.abs(np.mean(logs, axis=0) - np.log([0.2, 0.4])) < 3 * error / np.sqrt(8)).all()
    assert abs(far - 32) < 3 * np.sqrt(2 * 32)


@pytest.mark.statistical
@pytest.mark.parametrize(("rate", "pulls"), [(0.02, 100), (0.2, 20)])
def test_a_full_covariance_comes_back(rate, pulls):
    """Every entry within two standard errors of one log, though it is drawn towards a level."""
    mu = np.log(rate / (1 - rate)) + np.linspace(-0.3, 0.3, 3)
    cov = np.array([[0.4, 0.3, 0.0], [0.3, 0.4, -0.1], [0.0, -0.1, 0.2]])
    covs, far = [], 0.0
    for seed in range(6):
        n, s = counts(np.random.default_rng(seed), 600, pulls, mu=mu, cov=cov)
        log = wide_log(n, s, centre=mu.mean())
        level = learn_level(log)
        found = learn_full(log, level)
        assert np.diff(found.curve).min() > -spreads.ENOUGH
        assert found.log_evidence > level.log_evidence + 20
        covs.append(found.spread.covs(3)[0])
        far += (found.mean - mu) @ np.linalg.solve(found.cov, found.mean - mu)
    error = np.std(covs, axis=0, ddof=1)
    assert error.max() < 0.1
    assert (np.abs(np.mean(covs, axis=0) - cov) < 2 * error).all()
    assert abs(far - 18) < 3 * np.sqrt(2 * 18)


def test_a_full_covariance_is_drawn_towards_the_level():
    """It counts as five tasks: with four others no variance is below five ninths of its own."""
    rng = np.random.default_rng(3)
    n, s = counts(rng, 4, 20, mu=np.full(3, -2.0), cov=np.diag([0.01, 0.5, 1.0]))
    log = wide_log(n, s, centre=-2.0)
    level = learn_level(log)
    found = learn_full(log, level).spread.covs(3)[0]
    ratios = np.linalg.eigvals(np.linalg.solve(level.spread.covs(3)[0], found)).real
    assert ratios.min() > 5 / 9 - 0.01
    assert ratios.max() < 2.5


def strange():
    rng = np.random.default_rng(0)
    full = np.full((30, 3), 100.0)
    once = np.eye(3)[rng.integers(3, size=100)]
    return {
        "no successes": (full, 0 * full),
        "the same everywhere": (full, full / 10),
        "one task": (full[:1], np.array([[10.0, 3.0, 0.0]])),
        "one arm": (full[:, :1], rng.binomial(100, 0.1, (30, 1)).astype(float)),
        "an arm never pulled": (full * [1, 1, 0], rng.binomial(100, 0.1, (30, 3)) * [1.0, 1.0, 0]),
        "a million pulls": (full * 1e4, rng.binomial(10**6, 1e-6, (30, 3)).astype(float)),
        "separated arms": (full, np.tile([0.0, 50.0, 100.0], (30, 1))),
        "separated tasks": (full, full * (np.arange(30) % 2)[:, None]),
        "one pull a task": (once, once * (rng.random((100, 1)) < 0.1)),
        "fractions": (full / 200, full / 200 * rng.random((30, 3))),
    }


@FAMILIES
@pytest.mark.parametrize("name", strange())
def test_strange_logs_give_a_finite_belief(family, name):
    n, s = strange()[name]
    rate = (s.sum() + 0.5) / (n.sum() + 1)
    log = wide_log(n, s, centre=family.eta(rate), family=family)
    level = learn_level(log)
    for found in (level, learn_full(log, level)):
        cov = found.spread.covs(n.shape[1])[0]
        assert np.isfinite(cov).all()
        assert np.isfinite(found.mean).all()
        assert (np.abs(found.mean) < 20).all()
        assert (np.linalg.eigvalsh(cov) > 0).all()
        assert (found.cov.diagonal() > 0).all()
        assert np.diff(found.curve).min(initial=0.0) > -spreads.ENOUGH
    own, shared = level.spread.sizes(0)
    assert own <= 10
    assert shared <= 10.01
    if name == "the same everywhere":
        assert max(own, shared) < 0.05
    if name == "one arm":
        assert shared == 0.0
    if name == "an arm never pulled":
        assert np.sqrt(level.cov[2, 2]) > 2.0


def test_chunks_do_not_matter(monkeypatch):
    rng = np.random.default_rng(4)
    n, s = counts(rng, 50, 20, mu=np.full(2, -2.0), cov=0.2 * np.eye(2) + 0.1)
    log = wide_log(n, s, centre=-2.0)
    whole = learn_level(log)
    monkeypatch.setattr(spreads, "CHUNK", 7)
    monkeypatch.setattr(spreads, "KEPT", 0)
    parts = learn_level(log)
    np.testing.assert_allclose(parts.spread.sizes(0), whole.spread.sizes(0), rtol=1e-3)
    np.testing.assert_allclose(parts.log_evidence, whole.log_evidence, atol=1e-3)


def test_a_design_for_all_is_a_design_for_each():
    rng = np.random.default_rng(5)
    n, s = counts(rng, 40, 30, mu=np.array([-2.0, -1.5, -1.0]), cov=0.1 * np.eye(3) + 0.1)
    phi = np.array([[1.0, -1.0], [1.0, 0.0], [1.0, 1.0]])
    prior = (np.array([-1.5, 0.0]), np.diag([4.0, 1.0]))
    one = learn_level(Log(BINARY, n, s, *prior, phi))
    each = learn_level(Log(BINARY, n, s, *prior, np.tile(phi, (40, 1, 1))))
    np.testing.assert_allclose(one.mean, each.mean, rtol=1e-8)
    np.testing.assert_allclose(one.mean, [-1.5, 0.5], atol=0.4)
    plain = learn_level(
        Log(BINARY, n, s, np.full(3, -1.5), phi @ prior[1] @ phi.T + 1e-8 * np.eye(3))
    )
    np.testing.assert_allclose(phi @ one.mean, plain.mean, atol=1e-3)


# refit


def told(meta, n, s):
    """Statistics of every task, digested and absorbed."""
    found = []
    for pulls, wins in zip(n, s, strict=True):
        stats = meta.empty()
        for k in np.flatnonzero(pulls).tolist():
            stats = stats.add_counts(k, pulls[k], wins[k])
        digest, meta = meta.replace_task(meta.digest(meta.empty()), stats, np.flatnonzero(pulls))
        found.append(digest.stats)
    return meta, found


def candidates(**options):
    grid = np.array([(a, b) for a in (0.1, 0.3, 1.0) for b in (0.1, 0.5)])
    cov = np.eye(3) + np.ones((3, 3))
    return LatentMeta(
        np.full(3, -2.0), cov, task_scale=grid[:, 0], level_scale=grid[:, 1], **options
    )


@FAMILIES
def test_a_refit_has_absorbed_all_tasks(family):
    rng = np.random.default_rng(6)
    cov = np.array([[0.5, 0.4, 0.0], [0.4, 0.5, 0.0], [0.0, 0.0, 0.05]])
    n, s = counts(rng, 60, 40, mu=np.array([-2.0, -1.5, -1.8]), cov=cov, family=family)
    old, stats = told(candidates(rewards=family.name, arms=("a", "b", "c")), n, s)
    new, again = old.refit([(one, None) for one in stats])
    assert isinstance(old.spread, LevelSpread)
    assert isinstance(new.spread, FullSpread)
    assert (new.arms, new.model) == (("a", "b", "c"), family.name)
    assert new.anchor.number == old.anchor.number + 1
    np.testing.assert_array_equal(new.meta_mean[0], old.meta_mean[0])  # data count once
    total = new
    for i, one in enumerate(again):
        np.testing.assert_array_equal(one.table, stats[i].table)
        bare = type(one)(one.table)
        np.testing.assert_allclose(new.digest(bare).stats.sites[:2], one.sites[:2], rtol=0.05)
        total = total.absorb(-new.digest(one).message)
    assert np.abs(total.total.value()).max() < 1e-8
    log = Log(family, n, s, old.meta_mean[0], old.meta_cov[0])
    found = learn_full(log, learn_level(log))
    np.testing.assert_allclose(new.mu_mean, found.mean, atol=0.02)
    base = sum(one.log_base for one in stats)
    np.testing.assert_allclose(new.log_evidence() + base, found.log_evidence, atol=0.1)
    correlation = new.spread.covs(3)[0] / np.sqrt(np.outer(*[new.spread.covs(3)[0].diagonal()] * 2))
    assert correlation[0, 1] > 0.5
    assert abs(correlation[0, 2]) < 0.4


def test_a_refit_of_a_refit_is_the_same():
    rng = np.random.default_rng(7)
    n, s = counts(rng, 40, 40, mu=np.full(3, -1.5), cov=np.diag([0.1, 0.3, 0.5]) + 0.2)
    old, stats = told(candidates(), n, s)
    once, found = old.refit([(one, None) for one in stats])
    twice, _ = once.refit([(one, None) for one in found])
    np.testing.assert_allclose(twice.spread.covs(3), once.spread.covs(3), rtol=0.03)


def test_a_refit_with_designs():
    rng = np.random.default_rng(8)
    n, s = counts(rng, 40, 40, mu=np.full(3, -1.5), cov=np.diag([0.1, 0.3, 0.5]) + 0.2)
    phi = np.column_stack([np.ones(3), [-1.0, 0.0, 1.0]])
    options = {"task_scale": 0.3, "level_scale": 0.3}
    meta = LatentMeta([-1.5, 0.0], np.eye(2), design=phi, **options)
    tasks = [(type(meta.empty())(np.array([a, b, b])), None) for a, b in zip(n, s, strict=True)]
    one, _ = meta.refit(tasks)
    own, _ = meta.refit([(stats, phi) for stats, _ in tasks])
    np.testing.assert_allclose(one.mean, own.mean, rtol=1e-6)
    np.testing.assert_allclose(one.spread.covs(3), own.spread.covs(3), rtol=1e-6)
    short = (type(meta.empty())(tasks[0][0].table[:, :2]), phi[:2])
    with pytest.raises(ValueError, match="needs the same arms everywhere"):
        meta.refit([*tasks, short])


def test_there_is_nothing_to_refit_without_rewards():
    meta = candidates()
    for tasks in ([], [(meta.empty(), None)]):
        with pytest.raises(ValueError, match="no task has a reward yet"):
            meta.refit(tasks)
