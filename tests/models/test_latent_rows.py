"""Clicks and counts with features: statistics of rows, sites and beliefs against brute force."""

import re

import numpy as np
import pytest
from scipy.special import expit, logsumexp

from adats import AdaTS
from adats.models.core.frozen import evolve
from adats.models.core.sums import Sum
from adats.models.latent import row_meta, row_stats
from adats.models.latent.full import FullPrior, site_sums
from adats.models.latent.row_meta import LatentLinearMeta
from adats.models.latent.row_stats import ClickRows, EventRows
from adats.testing import check_stats

ROWS = np.array([[1.0, 0.5], [1.0, -1.0], [1.0, 2.0], [0.3, 0.0]])
MEAN, COV = np.array([-1.0, 0.3]), np.array([[1.0, 0.2], [0.2, 0.5]])
TASK_COV = np.array([[0.3, 0.1], [0.1, 0.2]])
KINDS = {"binary": ClickRows, "count": EventRows}


def meta_of(rewards="binary", **options):
    if "task_scale" not in options:
        options = {"task_cov": TASK_COV} | options
    return LatentLinearMeta(options.pop("mean", MEAN), COV, rewards=rewards, **options)


def reward_of(rewards, eta, rng):
    return float(rng.random() < expit(eta) if rewards == "binary" else rng.poisson(np.exp(eta)))


def log_likelihood(rewards, eta, stats):
    """Of every point, whose etas of the rows are given; written out."""
    pulls, wins = stats.table[:2]
    partition = np.logaddexp(0, eta) if rewards == "binary" else np.exp(eta)
    return eta @ wins - partition @ pulls


def grid(mean, cov, size, reach=8.0):
    """Points of N(mean, cov), evenly spaced, and their log weights."""
    z = np.linspace(-reach, reach, size)
    points = np.stack(np.meshgrid(*[z] * len(mean), indexing="ij"), axis=-1)
    points = points.reshape(-1, len(mean))
    logs = -0.5 * (points**2).sum(axis=1)
    return mean + points @ np.linalg.cholesky(cov).T, logs - logsumexp(logs)


def moments(points, logs):
    """Log mass, mean and covariance of weighted points."""
    total = logsumexp(logs)
    weights = np.exp(logs - total)
    mean = weights @ points
    return total, mean, ((points - mean).T * weights) @ (points - mean)


def told(stats, rewards, pulls, rng, theta):
    for x in ROWS[:3]:
        n = pulls * int(rng.integers(1, 4))
        rate = x @ theta
        s = rng.binomial(n, expit(rate)) if rewards == "binary" else rng.poisson(n * np.exp(rate))
        stats = stats.add_counts(x, n, s)
    return stats


# statistics


OBSERVED = {
    ClickRows: list(zip(ROWS[[0, 1, 0, 2, 1]], [1.0, 0.0, 0.0, 1.0, 1.0], strict=True)),
    EventRows: list(zip(ROWS[[0, 1, 0, 2, 1]], [3.0, 0.0, 7.0, 1.0, 2.0], strict=True)),
}


@pytest.mark.parametrize("kind", OBSERVED)
def test_statistics_keep_the_laws(kind):
    check_stats(kind.zeros(2), OBSERVED[kind])


@pytest.mark.parametrize("kind", OBSERVED)
def test_rows_are_distinct_and_sorted(kind):
    stats = kind.zeros(2)
    for x, reward in OBSERVED[kind]:
        stats = stats.add(x, reward)
    assert stats.rows.tolist() == sorted(ROWS[:3].tolist())
    assert stats.table[0].tolist() == [2, 2, 1]
    assert stats.pulls == 5
    assert stats.pending_shape == (2, 2)
    assert stats.arm_pulls is None
    rows = np.array([x for x, _ in OBSERVED[kind]])
    np.testing.assert_allclose(stats.gram, rows.T @ rows, rtol=1e-14)


def test_zeros_of_both_signs_are_one_row():
    stats = ClickRows.zeros(2).add([0.0, 1.0], 1).add([-0.0, 1.0], 0)
    other = ClickRows.zeros(2).add([[-0.0, 1.0], [0.0, 1.0]], [0, 1])
    assert stats.flat().tobytes() == other.flat().tobytes()
    assert len(stats.rows) == 1


def test_counts_are_pulls_and_the_sum_of_rewards():
    singles = ClickRows.zeros(2).add(ROWS[[0, 0, 0, 1]], [1, 0, 1, 0])
    counts = ClickRows.zeros(2).add_counts(ROWS[0], 3, 2).add_counts(ROWS[1], 1.0, 0.0)
    assert counts.flat().tolist() == singles.flat().tolist()
    assert ClickRows.zeros(2).add_counts(ROWS[:2], [3, 1], [2, 0]).flat().tolist() == (
        counts.flat().tolist()
    )
    halves = ClickRows.zeros(2).add_counts(ROWS[0], 0.5, 0.25)
    assert halves.table.ravel().tolist() == [0.5, 0.25]
    assert (counts - halves).table[0].tolist() == [1.0, 2.5]


def test_what_was_taken_out_leaves_no_row():
    stats = EventRows.zeros(2).add_counts(ROWS[0], 0.3, 0.1).add_counts(ROWS[1], 0.1, 2.0)
    less = stats - EventRows.zeros(2).add_counts(ROWS[0], 0.1, 0.0)
    less = less - EventRows.zeros(2).add_counts(ROWS[0], 0.2, 0.1)
    assert less.rows.tolist() == [ROWS[1].tolist()]
    assert not (stats - stats).flat().any()


def test_a_reward_of_a_row_that_was_let_go_is_counted_from_the_log():
    out = ClickRows.zeros(2).add(ROWS[0], 1)
    assert (ClickRows.zeros(2).add(ROWS[1], 1) - out).dwarfed_by(out, 1e6)
    assert (ClickRows.zeros(2) - out + ClickRows.zeros(2).add(ROWS[0], 0)).dwarfed_by(out, 1e6)
    assert not (ClickRows.zeros(2).add(ROWS[0], 1).add(ROWS[0], 0) - out).dwarfed_by(out, 1e6)


@pytest.mark.parametrize("rewards", KINDS)
def test_sites_are_kept_in_files(rewards):
    meta, rng = meta_of(rewards, task_scale=[0.1, 0.5]), np.random.default_rng(0)
    agent = AdaTS(meta, seed=0)
    for _ in range(40):
        x = rng.normal(size=2).round(1)
        agent.tell(task=0, features=x, reward=reward_of(rewards, x @ MEAN, rng))
    stats = agent.stats(0)
    again = KINDS[rewards].from_flat(stats.flat())
    for name in ("rows", "table", "sites", "anchor", "stale", "gone"):
        assert np.array_equal(getattr(again, name), getattr(stats, name)), name
    assert again.settled
    assert not KINDS[rewards].from_flat(stats.add(ROWS[0], 1).flat()).settled


@pytest.mark.parametrize(
    "damage",
    [
        lambda flat: flat[:5],
        lambda flat: flat[1:],
        lambda flat: np.append(flat[:-1], 0.5),
        lambda flat: np.append(flat[:-1], -2.0),
        lambda flat: np.append(flat[:-2], [1e300, 2.0]),
        lambda flat: np.append(flat[[2, 3, 0, 1]], flat[4:]),  # rows that are not sorted
        lambda flat: flat.reshape(1, -1),
    ],
)
def test_numbers_that_are_not_statistics(damage):
    flat = ClickRows.zeros(2).add(ROWS[0], 1).add(ROWS[1], 0).flat()
    with pytest.raises(ValueError, match="not"):
        ClickRows.from_flat(damage(flat))


@pytest.mark.parametrize(
    ("do", "message"),
    [
        (lambda s: s.add([1.0], 1), "features must end in 2 numbers, got shape (1,)"),
        (lambda s: s.add([[[1.0, 2.0]]], 1), "features must end in 2 numbers"),
        (lambda s: s.add([1.0, np.nan], 1), "features must be finite"),
        (lambda s: s.add(["a", "b"], 1), "features must be numbers"),
        (lambda s: s.add([1e10, 1.0], 1), "features too large: 1e+10; scale them"),
        (lambda s: s.add([1.0, 1.0], 0.5), "reward must be 0 or 1, got 0.5"),
        (lambda s: s.add([1.0, 1.0], None), "reward must be a number, got None"),
        (lambda s: s.add([[1.0, 1.0]], [1, 0]), "reward of shape (2,) for features"),
        (lambda s: s.add_counts([1.0, 1.0], 0, 0), "pulls must be positive, got 0.0"),
        (lambda s: s.add_counts([1.0, 1.0], 2, 3), "successes must be from 0 to 2.0, the pulls"),
        (lambda s: s.add_counts([1.0, 1.0], 2, -1), "successes must be from 0 to 2.0"),
        (lambda s: s.add_counts([1.0, 1.0], 1e16, 1), "too large: at most 1e+15"),
        (lambda s: s.add_counts(ROWS[:2], 2, 1), "pulls of shape () for features of shape (2, 2)"),
        (lambda s: s + ClickRows.zeros(3), "statistics of 2 features, and of 3"),
        (
            lambda _: EventRows.zeros(2).add([1.0, 1.0], 1.5),
            "must be 0, 1, 2, ...",
        ),
        (lambda _: EventRows.zeros(2).add([1.0, 1.0], -1), "0, 1, 2, ..."),
    ],
)
def test_what_statistics_refuse(do, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        do(ClickRows.zeros(2))


# sites and beliefs, against quadrature


@pytest.mark.parametrize("rewards", KINDS)
@pytest.mark.parametrize("base", [-5.0, -3.0, 0.0])
@pytest.mark.parametrize("pulls", [1, 10, 200])
def test_a_task_in_two_dimensions(rewards, base, pulls):
    """Means within 0.01 sd, sds within 3 %, log evidence within 0.02."""
    meta, rng = meta_of(rewards, mean=[base, 0.3]), np.random.default_rng(1)
    theta = rng.multivariate_normal([base, 0.3], COV + TASK_COV)
    stats = told(meta.empty(), rewards, pulls, rng, theta)
    points, logs = grid(np.array([base, 0.3]), COV + TASK_COV, 601)
    logs = logs + log_likelihood(rewards, points @ stats.rows.T, stats)
    evidence, mean, cov = moments(points, logs)
    evidence -= stats.log_base
    scale = np.sqrt(np.diagonal(cov))

    learned = meta.absorb(meta.digest(stats).message)
    found = meta.task_prior().condition(stats)
    for belief in (found.belief, learned.posterior(meta.digest(stats))):
        assert (np.abs(belief.mean - mean) < 0.01 * scale).all()
        np.testing.assert_allclose(belief.scale, scale, rtol=0.03)
        np.testing.assert_allclose(belief.cov, cov, atol=0.06 * scale.max() ** 2)
    assert found.log_evidence == pytest.approx(evidence, abs=0.02)
    assert learned.log_evidence() == pytest.approx(evidence, abs=0.02)
    gain = COV @ np.linalg.inv(COV + TASK_COV)  # given theta, mu is Gaussian
    np.testing.assert_allclose(learned.mean, [base, 0.3] + gain @ (mean - [base, 0.3]), atol=0.01)


@pytest.mark.parametrize("rewards", KINDS)
def test_two_tasks_in_one_dimension(rewards):
    """Means within 0.02 sd, sds within 5 %, weights of candidates within 0.005."""
    scales, rng = np.array([0.2, 1.0]), np.random.default_rng(2)
    meta = LatentLinearMeta([-1.0], 1.5, task_scale=scales, rewards=rewards)
    tasks = [meta.empty() for _ in range(2)]
    for task, theta in enumerate((-2.0, 0.5)):
        for x in (1.0, 0.5, -0.7):
            rate = x * theta
            wins = 20 * (expit(rate) if rewards == "binary" else np.exp(rate))
            tasks[task] = tasks[task].add_counts([x], 20, round(float(wins + rng.random())))
    digests = [meta.digest(stats) for stats in tasks]
    learned = meta.absorb(digests[0].message).absorb(digests[1].message)

    base = sum(stats.log_base for stats in tasks)
    exact = []
    for scale in scales:
        points, logs = grid(np.full(2, -1.0), 1.5 + scale**2 * np.eye(2), 501)
        for i, stats in enumerate(tasks):
            logs = logs + log_likelihood(rewards, points[:, [i]] * stats.rows[:, 0], stats)
        exact.append(moments(points, logs))
    evidence = np.array([total for total, _, _ in exact])
    weights = np.exp(evidence - logsumexp(evidence))
    np.testing.assert_allclose(learned.weights, weights, atol=0.005)
    total = logsumexp(evidence) - np.log(2) - base
    assert learned.log_evidence() == pytest.approx(total, abs=0.02)
    mean = weights @ [part[1] for part in exact]
    second = weights @ [np.diagonal(part[2]) + part[1] ** 2 for part in exact]
    scale = np.sqrt(second - mean**2)
    for i, digest in enumerate(digests):
        belief = learned.posterior(digest)
        assert abs(belief.mean[0] - mean[i]) < 0.02 * scale[i]
        assert belief.scale[0] == pytest.approx(scale[i], rel=0.05)


# exact: given the sites, the model is a joint Gaussian


def test_given_the_sites_all_is_one_gaussian():
    """mu and the thetas of three tasks with designs of their own, written out and conditioned."""
    rng = np.random.default_rng(3)
    meta = LatentLinearMeta(np.array([0.3, -0.4]), COV, task_scale=0.6)
    designs = [rng.normal(size=(3, 2)), None, rng.normal(size=(1, 2))]
    sizes = [3, 2, 1]
    tasks = []
    for phi, dim in zip(designs, sizes, strict=True):
        stats = meta.empty(design=phi)
        for _ in range(7):
            stats = stats.add(rng.normal(size=dim), float(rng.integers(2)))
        tasks.append(stats)
    digests = [meta.digest(s, design=phi) for s, phi in zip(tasks, designs, strict=True)]
    learned = meta
    for digest in digests:
        learned = learned.absorb(digest.message)

    maps = np.vstack([np.eye(2), *(np.eye(2) if phi is None else phi for phi in designs)])
    prior = maps @ COV @ maps.T + np.diag(np.append(np.zeros(2), np.full(sum(sizes), 0.36)))
    centre = maps @ [0.3, -0.4]
    precision, shift, log_s, start = np.zeros(prior.shape), np.zeros(len(prior)), 0.0, 2
    for digest, dim in zip(digests, sizes, strict=True):
        w, b, logs = digest.stats.sites[:, 0]
        rows = digest.stats.rows
        precision[start : start + dim, start : start + dim] = (rows.T * w) @ rows
        shift[start : start + dim] = b @ rows
        log_s += logs.sum()
        start += dim
    cov = np.linalg.inv(np.linalg.inv(prior) + precision)
    mean = cov @ (np.linalg.solve(prior, centre) + shift)
    fit = mean @ np.linalg.solve(cov, mean) - centre @ np.linalg.solve(prior, centre)
    sign = np.linalg.slogdet(cov)[1] - np.linalg.slogdet(prior)[1]

    np.testing.assert_allclose(learned.mean, mean[:2], rtol=1e-9)
    assert learned.log_evidence() == pytest.approx(log_s + 0.5 * (fit + sign), rel=1e-9)
    start = 2
    for digest, dim in zip(digests, sizes, strict=True):
        belief, part = learned.posterior(digest), slice(start, start + dim)
        np.testing.assert_allclose(belief.mean, mean[part], rtol=1e-9)
        np.testing.assert_allclose(belief.cov, cov[part, part], rtol=1e-8, atol=1e-12)
        start += dim


def test_cavities_are_those_of_all_other_sites():
    rng = np.random.default_rng(4)
    sites = np.abs(rng.normal(size=(3, 2, 4)))
    factor = np.stack([np.linalg.cholesky(COV), np.linalg.cholesky(TASK_COV)])
    frozen = np.zeros((2, 7))
    frozen[:, [0, 3]], frozen[:, 4:6] = 0.4, [0.2, -0.1]
    prior = FullPrior(np.stack([MEAN, -MEAN]), factor, ROWS, frozen)
    mean, variance = prior.cavities(sites)
    for k in range(4):
        others = np.delete(np.arange(4), k)
        known = site_sums(sites[..., others], ROWS[others], frozen)
        for c in range(2):
            own = factor[c] @ factor[c].T
            cov = np.linalg.inv(np.linalg.inv(own) + known.gram[c])
            theta = cov @ (np.linalg.solve(own, prior.mean[c]) + known.shift[c])
            assert mean[c, k] == pytest.approx(ROWS[k] @ theta, rel=1e-9)
            assert variance[c, k] == pytest.approx(ROWS[k] @ cov @ ROWS[k], rel=1e-9)
        for one in (prior, prior._replace(known=site_sums(sites, ROWS, frozen))):
            alone = one.cavity(sites, k)
            np.testing.assert_allclose(alone, [mean[:, k], variance[:, k]], rtol=1e-9)


@pytest.mark.parametrize("rewards", KINDS)
@pytest.mark.parametrize("candidates", [1, 9])
def test_tasks_are_replaced_and_forgotten_to_the_last_digit(rewards, candidates):
    scale = np.geomspace(0.05, 1.0, candidates)
    meta, rng = meta_of(rewards, task_scale=scale), np.random.default_rng(5)
    agent = AdaTS(meta, seed=0)
    for _ in range(300):
        x = rng.normal(size=2).round(1)
        reward = reward_of(rewards, x @ MEAN, rng)
        agent.tell(task=int(rng.integers(6)), features=x, reward=reward)
    assert agent.meta.anchor.number > 3
    total = sum(agent.meta.digest(agent.stats(task)).message for task in agent.tasks)
    np.testing.assert_allclose(agent.meta.total.value(), total, rtol=1e-11, atol=1e-11)
    for task in agent.tasks:
        agent.forget(task)
    assert np.abs(agent.meta.total.value()).max() < 1e-11 * np.abs(total).max()
    np.testing.assert_allclose(agent.meta.mean, MEAN, atol=1e-9)


@pytest.mark.parametrize("rewards", KINDS)
def test_order_moves_little(rewards):
    """Against all at once under a late anchor: interleaved tasks within 0.1 sd and sds within 8 %;
    tasks one after another, of which the first keep an early anchor, within 0.4 sd and 20 %."""
    meta, rng = meta_of(rewards, task_scale=[0.1, 0.3, 1.0]), np.random.default_rng(6)
    log = []
    for task in range(8):
        theta = MEAN + 0.3 * rng.normal(size=2)
        for _ in range(25):
            x = np.array([1.0, rng.normal()])
            log.append((task, x, reward_of(rewards, x @ theta, rng)))
    agents = []
    for order in (rng.permutation(len(log)), rng.permutation(len(log)), range(len(log))):
        agent = AdaTS(meta, seed=0)
        for i in order:
            task, x, reward = log[i]
            agent.tell(task=task, features=x, reward=reward)
        agents.append(agent)
    batch = AdaTS(meta, seed=0)
    for _ in range(2):  # the second time under a later anchor
        for task in list(batch.tasks):
            batch.forget(task)
        for task in range(8):
            rows = np.array([x for one, x, _ in log if one == task])
            batch.tell(task=task, features=rows, reward=[y for one, _, y in log if one == task])
    for agent, close in zip(agents, (0.1, 0.1, 0.4), strict=True):
        for task in range(8):
            one, other = agent.posterior(task), batch.posterior(task)
            assert (np.abs(one.mean - other.mean) < close * other.scale).all()
            np.testing.assert_allclose(one.scale, other.scale, rtol=0.04 + 0.4 * close)
        np.testing.assert_allclose(agent.meta.weights, batch.meta.weights, atol=0.05)


# rows that are let go


@pytest.fixture
def _few_rows(monkeypatch):
    for module in (row_stats, row_meta):
        monkeypatch.setattr(module, "MOST_ROWS", 16)


@pytest.mark.usefixtures("_few_rows")
@pytest.mark.parametrize("rewards", KINDS)
def test_rows_that_are_let_go_say_what_they_said(rewards):
    meta, rng = meta_of(rewards, task_scale=[0.2, 0.6]), np.random.default_rng(7)
    stats = meta.empty()
    for _ in range(16):
        x = rng.normal(size=2)
        stats = stats.add(x, reward_of(rewards, x @ MEAN, rng))
    digest = meta.digest(stats)
    more = digest.stats.add(ROWS[0], 1.0)
    new, learned = meta.absorb(digest.message).replace_task(digest, more, ())
    assert len(new.stats.rows) == 8
    assert new.stats.pulls == more.pulls == 17
    whole = row_meta.ep.settled(
        meta.family, *more.table[:2], meta.anchor.prior._replace(rows=more.rows), more.sites
    )
    kept = meta.digest(type(more)(more.rows, more.table, whole))
    np.testing.assert_allclose(new.message, kept.message, rtol=1e-9, atol=1e-11)
    assert learned.log_evidence() == pytest.approx(
        meta.absorb(kept.message).log_evidence(), rel=1e-9
    )
    again = type(stats).from_flat(new.stats.flat())
    assert meta.digest(again).message.tobytes() == new.message.tobytes()


@pytest.mark.usefixtures("_few_rows")
@pytest.mark.parametrize("rewards", KINDS)
def test_statistics_with_rows_let_go_add_and_subtract(rewards):
    meta, rng = meta_of(rewards, task_scale=[0.2, 0.6]), np.random.default_rng(8)
    x = rng.normal(size=(40, 2))
    stats = meta.empty().add(x, [reward_of(rewards, row @ MEAN, rng) for row in x])
    one = meta.digest(stats).stats  # all at once: it is halved more than once
    assert len(one.rows) <= 16
    assert one.pulls == 40
    two = meta.digest(meta.empty().add(ROWS, [1.0, 0.0, 1.0, 1.0])).stats
    assert (one + two).pulls == (two + one).pulls == 44
    np.testing.assert_allclose((one + two - two).flat(), one.add(ROWS[:0], []).flat())
    assert not (one - one).flat().any()
    assert (one + two).gram.shape == (2, 2)
    fewer = meta_of(rewards, task_scale=0.2)
    with pytest.raises(ValueError, match="let go under 2 candidates, not 1"):
        fewer.digest(one)
    other = fewer.digest(stats).stats
    with pytest.raises(ValueError, match="let go under 2 candidates, and 1"):
        one + other


@pytest.mark.parametrize("rewards", KINDS)
def test_a_long_task_is_remembered(rewards):
    """600 rows, of which 128 are kept at most: within 0.3 sd of what all of them say."""
    meta, rng = meta_of(rewards, task_scale=0.3), np.random.default_rng(9)
    agent, theta = AdaTS(meta, seed=0), np.array([-2.0, 0.5])
    x = np.column_stack([np.ones(600), rng.normal(size=600)])
    y = [reward_of(rewards, row @ theta, rng) for row in x]
    for row, reward in zip(x, y, strict=True):
        agent.tell(task=0, features=row, reward=reward)
    stats = agent.stats(0)
    assert len(stats.rows) <= 128
    assert stats.pulls == 600
    belief, exact = agent.posterior(0), meta.task_prior().condition(meta.empty().add(x, y)).belief
    assert (np.abs(belief.mean - exact.mean) < 0.3 * exact.scale).all()
    np.testing.assert_allclose(belief.scale, exact.scale, rtol=0.1)


# beliefs


def belief_of(rewards="binary", **options):
    meta = meta_of(rewards, **options)
    stats = meta.empty().add(ROWS, [1.0, 0.0, 1.0, 0.0])
    digest = meta.digest(stats)
    return meta.absorb(digest.message).posterior(digest)


@pytest.mark.statistical
@pytest.mark.parametrize("rewards", KINDS)
def test_draws_are_those_of_the_belief(rewards):
    belief = belief_of(rewards, task_scale=[0.1, 1.0])
    rng, count = np.random.default_rng(10), 20000
    drawn = belief.draws(count, rng)
    singles = np.array([belief.sample(rng) for _ in range(4000)])
    for found in (drawn, singles):
        error = belief.scale / np.sqrt(len(found))
        assert (np.abs(found.mean(axis=0) - belief.mean) < 4 * error).all()
        np.testing.assert_allclose(np.cov(found.T), belief.cov, atol=0.1)
    etas, arms = drawn @ ROWS.T, belief.at_rows(ROWS)
    assert (np.abs(etas.mean(axis=0) - arms.eta_mean) < 4 * etas.std(axis=0) / count**0.5).all()
    np.testing.assert_allclose(etas.std(axis=0), arms.eta_scale, rtol=0.03)
    rates = belief.rewards_at(ROWS, drawn)
    assert rates.shape == (count, 4)
    np.testing.assert_allclose(rates[0], belief.rewards_at(ROWS, drawn[0]), rtol=1e-12)
    expected = rates.mean(axis=0), rates.std(axis=0) / count**0.5
    assert (np.abs(belief.expected_rewards(ROWS) - expected[0]) < 4 * expected[1]).all()


@pytest.mark.parametrize("rewards", KINDS)
def test_pending_pulls_shrink_the_doubt_and_leave_the_mean(rewards):
    """As much as pulls of arms with the average variance of rewards of those at hand."""
    belief = belief_of(rewards)
    pending = 5 * np.outer(ROWS[0], ROWS[0])
    tight, loose = belief.tightened(pending).at_rows(ROWS), belief.at_rows(ROWS)
    np.testing.assert_allclose(tight.eta_mean, loose.eta_mean, rtol=1e-12)
    assert (tight.eta_scale < loose.eta_scale).all()
    eta = ROWS @ belief.mean
    told = (expit(eta) * expit(-eta) if rewards == "binary" else np.exp(eta)).mean()
    cov = np.linalg.inv(np.linalg.inv(belief.cov) + told * pending)
    np.testing.assert_allclose(tight.eta_scale**2, ((ROWS @ cov) * ROWS).sum(axis=1), rtol=1e-9)
    nothing = belief.tightened(np.zeros((2, 2))).at_rows(ROWS)
    np.testing.assert_allclose(nothing.eta_scale, loose.eta_scale, rtol=1e-9)


def test_the_share_is_what_mu_and_the_candidate_have_in_the_variance():
    meta = meta_of(task_cov=TASK_COV)
    both = COV + TASK_COV
    expected = ((ROWS @ COV) * ROWS).sum(axis=1) / ((ROWS @ both) * ROWS).sum(axis=1)
    np.testing.assert_allclose(meta.share(rows=ROWS), expected, rtol=1e-9)
    np.testing.assert_allclose(meta.share(), np.diagonal(COV) / np.diagonal(both), rtol=1e-9)
    phi = np.ones((3, 2))
    shares = meta_of(task_scale=0.5).share(rows=np.eye(3), design=phi)
    np.testing.assert_allclose(shares, COV.sum() / (COV.sum() + 0.25), rtol=1e-9)
    certain = LatentLinearMeta(MEAN, 0.0, task_scale=0.0)
    assert certain.share(rows=ROWS).tolist() == [0, 0, 0, 0]


def test_candidates_may_differ_in_everything():
    covs, task_covs = np.stack([COV, 2 * COV]), np.stack([TASK_COV, np.eye(2)])
    meta = LatentLinearMeta([MEAN, -MEAN], covs, task_cov=task_covs, weights=[0.25, 0.75])
    parts = [
        LatentLinearMeta(m, c, task_cov=t)
        for m, c, t in zip([MEAN, -MEAN], covs, task_covs, strict=True)
    ]
    stats = meta.empty().add(ROWS, [1.0, 1.0, 0.0, 1.0])
    learned = meta.absorb(meta.digest(stats).message)
    each = [part.absorb(part.digest(stats).message) for part in parts]
    logs = np.log([0.25, 0.75]) + [part.log_evidence() for part in each]
    assert learned.log_evidence() == pytest.approx(logsumexp(logs), rel=1e-6)
    np.testing.assert_allclose(learned.weights, np.exp(logs - logsumexp(logs)), rtol=1e-6)
    belief = learned.posterior(meta.digest(stats))
    means = [one.posterior(part.digest(stats)).mean for one, part in zip(each, parts, strict=True)]
    np.testing.assert_allclose(belief.mean, learned.weights @ means, rtol=1e-5)
    for which in (0, 1):
        prior = meta.prior_given([which, 0.1, 0.2])
        np.testing.assert_allclose(prior.mean, [0.1, 0.2])
        np.testing.assert_allclose(prior.cov, task_covs[which], rtol=1e-9)


def test_what_the_model_says_of_itself():
    meta = meta_of(task_scale=[0.1, 0.2, 0.3])
    assert (meta.model, meta.n_arms, meta.n_features, meta.n_candidates) == ("binary", 0, 2, 6)
    assert meta_of("count").model == "count"
    assert meta_of().n_candidates == 0
    assert not meta.has_design
    assert meta_of(task_scale=0.1, design=np.ones((3, 2))).n_features == 3
    assert meta.figures().keys() == {"mean", "cov", "task_scale"}
    assert meta_of().figures().keys() == {"mean", "cov", "task_cov"}
    wide = meta.widen(3.0)
    np.testing.assert_allclose(wide.meta_cov, 9 * meta.meta_cov)
    np.testing.assert_allclose(wide.anchor.cov, wide.meta_cov)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "give task_scale, the spread of tasks, or task_cov"),
        ({"task_scale": 1.0, "task_cov": 1.0}, "give task_scale"),
        ({"task_scale": -1.0}, "task_scale must not be negative"),
        ({"task_scale": [[1.0]]}, "task_scale is a number a candidate"),
        ({"task_cov": np.diag([1.0, -1.0])}, "task_cov must be positive semi-definite"),
        ({"task_cov": np.eye(3)}, "task_cov must be a number or have shape (2, 2)"),
        ({"task_scale": 1.0, "cov": np.eye(3)}, "cov must be a number or have shape (2, 2)"),
        ({"task_scale": 1.0, "cov": [[1.0, 2.0], [0.0, 1.0]]}, "cov must be symmetric"),
        ({"task_scale": 1.0, "mean": []}, "mean must have a number"),
        ({"task_scale": 1.0, "mean": [np.nan, 0.0]}, "mean must be finite"),
        ({"task_scale": 1.0, "rewards": "money"}, "rewards must be 'binary' or 'count'"),
        ({"task_scale": 1.0, "weights": [0.5, 0.6]}, "weights must sum to 1"),
        ({"task_scale": [1.0, 2.0, 3.0], "weights": [0.5, 0.5]}, "weights for 2 candidates"),
        ({"task_scale": 1.0, "design": np.ones((2, 3))}, "design must have 2 columns"),
    ],
)
def test_models_that_cannot_be(options, message):
    options = {"mean": MEAN, "cov": COV} | options
    with pytest.raises(ValueError, match=re.escape(message)):
        LatentLinearMeta(options.pop("mean"), options.pop("cov"), **options)


def test_designs_and_statistics_that_do_not_fit():
    meta = meta_of()
    with pytest.raises(ValueError, match="theta has 2 entries, but features 3"):
        meta.digest(ClickRows.zeros(3))
    with pytest.raises(ValueError, match="task_scale fits every size"):
        meta.empty(design=np.ones((3, 2)))
    with pytest.raises(ValueError, match="more was taken out than put in"):
        meta.digest(meta.empty() - meta.empty().add(ROWS[0], 1))
    digest = meta.digest(meta.empty().add(ROWS, [1.0, 0.0, 0.0, 1.0]))
    less = digest.stats - meta.empty().add_counts(ROWS[0], 3, 1)
    with pytest.raises(ValueError, match="more was taken out than put in"):
        meta.absorb(digest.message).replace_task(digest, less, ())
    with pytest.raises(ValueError, match="candidate's index and 2 numbers"):
        meta.prior_given([1.0, 0.0, 0.0])
    wide = LatentLinearMeta(MEAN, 1e6, task_scale=1.0)
    with pytest.raises(ValueError, match="scale the features, or give smaller covariances"):
        wide.digest(wide.empty().add(ROWS[0], 1))


HARD = {
    "a row of zeros": ([[0.0, 0.0], [1.0, 0.0]] * 5, [0, 1] * 5),
    "separable": ([[1.0, 1.0], [1.0, -1.0]] * 300, [1, 0] * 300),
    "no successes": ([[1.0, 1.0], [1.0, -1.0]] * 300, [0, 0] * 300),
    "nothing but successes": ([[1.0, 1.0], [1.0, -1.0]] * 300, [1, 1] * 300),
    "tiny features": ([[1e-200, 1e-10], [1.0, 1e-10]] * 5, [0, 1] * 5),
}
SPREADS = {
    "wide": {"cov": 400.0, "task_scale": 20.0},
    "known": {"cov": 0.0, "task_scale": 0.0},
    "singular": {"cov": [[1.0, 1.0], [1.0, 1.0]], "task_cov": [[1.0, -1.0], [-1.0, 1.0]]},
    "one direction": {"cov": [[1.0, 0.0], [0.0, 0.0]], "task_cov": 0.0},
}


@pytest.mark.parametrize("rewards", KINDS)
@pytest.mark.parametrize("spread", SPREADS)
@pytest.mark.parametrize("data", HARD)
def test_hard_data_leaves_a_sane_belief(rewards, spread, data):
    """Finite, within 60 of 0 and never wider than the prior; warnings are errors here."""
    x, y = HARD[data]
    options = dict(SPREADS[spread])
    meta = LatentLinearMeta([0.0, 0.0], options.pop("cov"), rewards=rewards, **options)
    agent = AdaTS(meta, seed=0)
    for part in (slice(0, 1), slice(1, 4), slice(4, None)):
        agent.tell(task=0, features=x[part], reward=y[part])
    belief, prior = agent.posterior(0), meta.task_prior()
    for value in (belief.mean, belief.scale, agent.meta.mean, agent.meta.log_evidence()):
        assert np.isfinite(value).all()
    assert (np.abs(belief.mean) < 60).all()
    assert (belief.scale <= prior.scale * (1 + 1e-9)).all()
    assert np.isfinite(belief.at_rows(ROWS).upper(2.0)).all()


@pytest.mark.parametrize("rewards", KINDS)
@pytest.mark.parametrize(("pulls", "wins"), [(1e6, 3), (1e6, 5e5), (1e6, 1e6), (1e12, 1e6)])
def test_a_million_pulls(rewards, pulls, wins):
    """The log-odds, or the logarithm of the rate, come out as they went in."""
    meta = LatentLinearMeta([-5.0, 0.0], 25.0, task_scale=1.0, rewards=rewards)
    agent = AdaTS(meta, seed=0)
    agent.tell(task=0, features=[1.0, 0.5], pulls=pulls, successes=wins)
    agent.tell(task=0, features=[1.0, -0.5], pulls=pulls, successes=wins)
    agent.tell(task=0, features=[1.0, -0.5], reward=0)
    belief = agent.posterior(0)
    assert np.isfinite(belief.mean).all()
    if wins < pulls:
        rate = wins / pulls
        eta = np.log(rate / (1 - rate)) if rewards == "binary" else np.log(rate)
        scale = belief.at_rows(np.array([[1.0, 0.0]])).eta_scale
        assert abs(belief.mean[0] - eta) < 0.5 * scale + 1e-5
        width = 1 / np.sqrt(2 * wins * ((1 - rate) if rewards == "binary" else 1.0))
        assert scale == pytest.approx(width, rel=0.05)


def test_statistics_that_were_never_settled_give_the_digest_of_all():
    meta = meta_of(task_scale=[0.1, 0.4])
    stats = meta.empty().add(ROWS, [1.0, 0.0, 1.0, 0.0])
    empty = meta.digest(meta.empty())
    assert not empty.message.any()
    grown, learned = meta.replace_task(empty, stats, ())
    np.testing.assert_allclose(grown.message, meta.digest(stats).message, rtol=1e-12)
    np.testing.assert_allclose(learned.total.value(), grown.message, rtol=1e-12)
    fresh = evolve(learned, total=Sum.zeros(grown.message.size))
    assert fresh.digest(grown.stats).message.tobytes() == grown.message.tobytes()


def test_sites_of_another_model_are_worked_out_anew():
    stats = meta_of(task_scale=[0.1, 0.4]).digest(meta_of().empty().add(ROWS, [1, 0, 1, 0])).stats
    meta = meta_of(task_scale=0.2)
    fresh = meta.digest(meta.empty().add(ROWS, [1, 0, 1, 0]).add(ROWS[0], 1))
    nothing = meta.digest(meta.empty())
    found, _ = meta.replace_task(nothing, stats.add(ROWS[0], 1), ())
    np.testing.assert_allclose(found.message, fresh.message, rtol=1e-9)
    assert meta.digest(stats).stats.sites.shape == (3, 1, 4)


def test_a_reward_is_corrected_as_the_service_does_it():
    """The statistics less one reward and with another: the other sites are kept."""
    meta = meta_of(task_scale=[0.1, 0.4])
    digest = meta.digest(meta.empty().add(ROWS, [1, 0, 1, 0]))
    one, other = (meta.empty().add(ROWS[1], reward) for reward in (0, 1))
    stats = digest.stats - one + other
    assert stats.table[1].tolist() == [0, 1, 1, 1]
    new, learned = meta.absorb(digest.message).replace_task(digest, stats, ())
    exact = meta.digest(meta.empty().add(ROWS, [1, 1, 1, 0]))
    belief = learned.posterior(new)
    right = meta.absorb(exact.message).posterior(exact)
    assert (np.abs(belief.mean - right.mean) < 0.1 * right.scale).all()
    np.testing.assert_allclose(learned.absorb(-new.message).total.value(), 0.0, atol=1e-10)
