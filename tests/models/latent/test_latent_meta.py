"""The model as a whole: against quadrature and importance sampling, and what is exact in it."""

from itertools import product

import numpy as np
import pytest
from scipy.special import expit, logit

import latent_truth as truth
from adats.models.core.frozen import evolve
from adats.models.latent.meta import LatentMeta


def stats_of(meta, pulls, wins):
    """Of each task, told at once."""
    found = []
    for row, sums in zip(pulls, wins, strict=True):
        stats = meta.empty()
        for arm in np.flatnonzero(row):
            stats = stats.add_counts(int(arm), row.item(arm), sums.item(arm))
        found.append(stats)
    return found


def absorbed(meta, tasks):
    digests = [meta.digest(stats) for stats in tasks]
    for digest in digests:
        meta = meta.absorb(digest.message)
    return meta, digests


def played(meta, events, tasks):
    """Told one after another, as an agent does it: the oldest stale tasks move with each."""
    digests = [meta.digest(meta.empty()) for _ in range(tasks)]
    for task, arm, n, s in events:
        stats = digests[task].stats.add_counts(arm, n, s)
        digests[task], meta = meta.replace_task(digests[task], stats, [arm])
        stale = [i for i, digest in enumerate(digests) if meta.is_stale(digest.stats)]
        stale = sorted(stale, key=lambda i: digests[i].stats.anchor)[: meta.renewals(1)]
        found, meta = meta.renew([digests[i] for i in stale])
        for i, digest in zip(stale, found, strict=True):
            digests[i] = digest
    return meta, digests


def anchored(meta, tasks, rounds=4):
    """Every task under an anchor that is the posterior given them all."""
    full, digests = absorbed(meta, tasks)
    for number in range(1, rounds + 1):
        mean, cov = full.mu_moments()
        moved = evolve(meta, anchor=meta.anchor_at(number, 1.0, mean, cov))
        full, digests = absorbed(moved, tasks)
    return full, digests


class Problem:
    """mu, theta and rewards drawn from the model."""

    def __init__(self, family, rate, pulls, arms, tasks, own, shared, seed):
        self.rng = rng = np.random.default_rng([seed, int(1e4 * rate), pulls, arms, tasks])
        eta = logit(rate) if family == "binary" else np.log(rate)
        self.family, self.own, self.shared = family, own, shared
        self.mean, self.cov = np.full(arms, eta), 0.25 * np.eye(arms) + 1.0
        self.mu = rng.multivariate_normal(self.mean, self.cov)
        level = shared * rng.standard_normal((tasks, 1))
        self.theta = self.mu + own * rng.standard_normal((tasks, arms)) + level
        self.pulls = np.maximum(rng.poisson(pulls, (tasks, arms)), 1).astype(float)
        self.wins = truth.draw_rewards(family, self.pulls, self.theta, rng)

    def meta(self, **options):
        scales = {"task_scale": self.own, "level_scale": self.shared, "rewards": self.family}
        return LatentMeta(self.mean, self.cov, **(scales | options))

    def tasks(self):
        return stats_of(self.meta(), self.pulls, self.wins)

    def events(self, parts=8):
        """Pulls of all arms of all tasks, each in a few parts, in any order."""
        found = []
        for task, arm in np.ndindex(self.pulls.shape):
            count = int(min(parts, self.pulls[task, arm]))
            n = 1 + self.rng.multinomial(int(self.pulls[task, arm]) - count, np.ones(count) / count)
            s = int(self.wins[task, arm])
            if self.family == "binary":
                sums = self.rng.multivariate_hypergeometric(n, s)
            else:
                sums = self.rng.multinomial(s, n / n.sum())
            found += [(task, arm, float(a), float(b)) for a, b in zip(n, sums, strict=True)]
        return [found[i] for i in self.rng.permutation(len(found))]

    def truth(self, **options):
        return truth.by_importance(
            self.family, self.mean, self.cov, self.own**2, self.shared**2, self.pulls, self.wins,
            **options,
        )  # fmt: skip


def errors(full, digests, known):
    """The largest of mu's means in sd, and of its sds as a part; the same of theta."""
    mean, cov = full.mu_moments()
    sd = np.sqrt(np.diagonal(cov[0]))
    beliefs = [full.posterior_joint(digest) for digest in digests]
    theta = np.array([belief.eta_mean[0] for belief in beliefs])
    scale = np.sqrt([(belief.factor[0] ** 2).sum(axis=-1) for belief in beliefs])
    gaps = (mean[0] - known.mu) / known.mu_sd, (theta - known.theta) / known.theta_sd
    parts = sd / known.mu_sd - 1, scale / known.theta_sd - 1
    return [np.abs(x).max() for x in (gaps[0], parts[0], gaps[1], parts[1])]


# Against slower ways to the same numbers


@pytest.mark.parametrize("family", ["binary", "count"])
@pytest.mark.parametrize("pulls", [1, 30, 1000])
def test_one_task_with_one_arm_is_exact(family, pulls):
    """The cavity is the prior then: what is left is quadrature."""
    problem = Problem(family, 0.02, pulls, 1, 1, 0.5, 0.5, seed=1)
    n, s = problem.pulls[0], problem.wins[0]
    full, digests = absorbed(problem.meta(), problem.tasks())
    cov = np.array([[1.25, 1.25], [1.25, 1.75]])
    grid = truth.two_dim(
        np.repeat(problem.mean, 2), cov, lambda x: truth.log_density(family, n, s, x[:, 1])
    )
    mean, mu_cov = full.mu_moments()
    belief = full.posterior(digests[0])
    np.testing.assert_allclose([mean[0, 0], belief.eta_mean[0, 0]], grid.mean, atol=1e-3)
    found = [np.sqrt(mu_cov[0, 0, 0]), np.sqrt((belief.factor[0, 0] ** 2).sum())]
    np.testing.assert_allclose(found, grid.sd, rtol=1e-3)
    base = digests[0].stats.log_base
    assert full.log_evidence() + base == pytest.approx(grid.log_evidence, abs=1e-3)


@pytest.mark.parametrize("family", ["binary", "count"])
@pytest.mark.parametrize("counts", [((9.0, 2.0), (30.0, 1.0)), ((1.0, 1.0), (1.0, 0.0))])
def test_one_task_with_two_arms_that_share_a_level(family, counts):
    (n, s), cov = zip(*counts, strict=True), 0.3 * np.eye(2) + 1.2
    meta = LatentMeta([-1.0, -2.0], 0.2 * np.eye(2) + 0.7, task_scale=0.1**0.5,
                      level_scale=0.5**0.5, rewards=family)  # fmt: skip
    full, (digest,) = absorbed(meta, stats_of(meta, np.array([n]), np.array([s])))
    grid = truth.two_dim(
        [-1.0, -2.0],
        cov,
        lambda x: truth.log_density(family, np.array(n), np.array(s), x).sum(axis=1),
    )
    belief = full.posterior(digest)
    scale = np.sqrt((belief.factor[0] ** 2).sum(axis=-1))
    assert np.abs((belief.eta_mean[0] - grid.mean) / grid.sd).max() < 0.02
    assert np.abs(scale / grid.sd - 1).max() < 0.03
    assert full.log_evidence() + digest.stats.log_base == pytest.approx(grid.log_evidence, abs=0.01)


HARD = [
    ("binary", 0.005, 1, 3, 40, 0.3, 0.5),
    ("binary", 0.005, 100, 1, 20, 0.3, 0.5),
    ("binary", 0.02, 10, 3, 20, 0.1, 0.0),
    ("binary", 0.5, 10, 2, 5, 1.0, 0.5),
    ("binary", 0.02, 1000, 2, 10, 0.3, 0.5),
    ("count", 0.02, 10, 3, 20, 0.3, 0.5),
    ("count", 2.0, 10, 2, 5, 1.0, 0.5),
]


@pytest.mark.parametrize("case", HARD, ids=str)
def test_posteriors_under_their_own_anchor_are_right(case):
    """Means within 0.1 sd, standard deviations within 10 %."""
    problem = Problem(*case, seed=2)
    found = errors(*anchored(problem.meta(), problem.tasks()), problem.truth())
    assert max(found) < 0.1, found


@pytest.mark.parametrize("case", HARD, ids=str)
def test_posteriors_that_were_told_one_by_one_are_nearly_right(case):
    problem = Problem(*case, seed=2)
    told = played(problem.meta(), problem.events(), len(problem.pulls))
    found = errors(*told, problem.truth())
    assert max(found) < 0.2, found


@pytest.mark.parametrize("family", ["binary", "count"])
def test_posteriors_with_a_design_are_right(family):
    """Four arms of two kinds, with attributes: theta = design @ mu and more."""
    rng, design = np.random.default_rng(3), np.array([[1, 0], [1, 0.5], [1, -1], [1, 2]])
    mean, cov = np.array([-1.5, 0.0]), np.diag([1.0, 0.3])
    theta = design @ [-2.0, 0.5] + rng.normal(0, 0.4, (12, 4)) + rng.normal(0, 0.3, (12, 1))
    pulls = rng.integers(1, 30, theta.shape).astype(float)
    wins = truth.draw_rewards(family, pulls, theta, rng)
    meta = LatentMeta(mean, cov, task_scale=0.4, level_scale=0.3, rewards=family, design=design)
    known = truth.by_importance(family, mean, cov, 0.16, 0.09, pulls, wins, design=design)
    found = errors(*anchored(meta, stats_of(meta, pulls, wins)), known)
    assert max(found) < 0.1, found


def test_gibbs_says_the_same():
    problem = Problem("binary", 0.1, 20, 4, 4, 0.3, 0.5, seed=4)
    known = truth.by_gibbs(
        problem.mean, problem.cov, 0.09, 0.25, problem.pulls, problem.wins, sweeps=1500
    )
    found = errors(*anchored(problem.meta(), problem.tasks()), known)
    assert max(found) < 0.1, found


@pytest.mark.heavy
@pytest.mark.parametrize("family", ["binary", "count"])
@pytest.mark.parametrize("pulls", [1, 10, 100, 1000])
@pytest.mark.parametrize("rate", [0.005, 0.02, 0.1, 0.5])
def test_posteriors_over_a_grid_of_problems(family, rate, pulls):
    sizes, spreads = ((1, 20), (2, 3), (3, 40), (8, 20)), ((0.1, 0.0), (0.3, 0.5), (1.0, 0.5))
    told = []
    for (arms, tasks), (own, shared) in product(sizes, spreads):
        problem = Problem(family, rate, pulls, arms, tasks, own, shared, seed=5)
        known = problem.truth(draws=4096 if arms == 8 else 1024)
        assert known.size > 200
        under_anchor = errors(*anchored(problem.meta(), problem.tasks()), known)
        assert max(under_anchor) < 0.1
        told.append(errors(*played(problem.meta(), problem.events(), tasks), known))
    assert np.mean(told) < 0.08
    assert np.max(told) < 0.4


@pytest.mark.parametrize("family", ["binary", "count"])
def test_candidates_are_weighed_as_by_quadrature(family):
    """Differences of log evidence between spreads."""
    problem = Problem(family, 0.1, 15, 2, 10, 0.5, 0.5, seed=6)
    own, shared = np.array([0.1, 0.5, 1.5, 0.5]), np.array([0.5, 0.5, 0.0, 0.0])
    full, _ = anchored(problem.meta(task_scale=own, level_scale=shared), problem.tasks())
    known = [
        truth.by_importance(
            family, problem.mean, problem.cov, o**2, t**2, problem.pulls, problem.wins, theta=False
        ).log_evidence
        for o, t in zip(own, shared, strict=True)
    ]
    found = full.log_posterior - full.log_posterior[1]
    np.testing.assert_allclose(found, np.array(known) - known[1], atol=0.05)
    assert full.weights.sum() == pytest.approx(1.0)


def test_evidence_of_counts_is_a_density():
    """The chances of all counts of one pull sum to one."""
    meta = LatentMeta([0.2], 0.5, task_scale=0.3, rewards="count")
    logs = [absorbed(meta, [meta.empty().add(0, count)])[0].log_evidence() for count in range(200)]
    assert np.exp(logs).sum() == pytest.approx(1.0, abs=1e-4)
    binary = LatentMeta([0.2], 0.5, task_scale=0.3)
    logs = [absorbed(binary, [binary.empty().add(0, y)])[0].log_evidence() for y in (0, 1)]
    assert np.exp(logs).sum() == pytest.approx(1.0, abs=1e-6)


@pytest.mark.heavy
@pytest.mark.statistical
@pytest.mark.parametrize("family", ["binary", "count"])
def test_intervals_cover(family):
    """90 % intervals of theta and of mu over 1,000 problems drawn from the model."""
    rng, inside = np.random.default_rng(7), {"mu": [], "theta": []}
    for seed in range(1000):
        rate, pulls = rng.choice([0.02, 0.1, 0.5]), int(rng.choice([1, 10, 50]))
        problem = Problem(family, rate, pulls, 2, 8, 0.3, 0.5, seed=seed)
        full, digests = anchored(problem.meta(), problem.tasks(), rounds=2)
        mean, cov = full.mu_moments()
        sd = np.sqrt(np.diagonal(cov[0]))
        inside["mu"] += (np.abs(problem.mu - mean[0]) < 1.6449 * sd).tolist()
        belief = full.posterior_joint(digests[0])
        scale = np.sqrt((belief.factor[0] ** 2).sum(axis=-1))
        gap = np.abs(problem.theta[0] - belief.eta_mean[0])
        inside["theta"] += (gap < 1.6449 * scale).tolist()
    for values in inside.values():
        assert 0.88 < np.mean(values) < 0.92


# What is exact


def candidates(**options):
    scales = {"task_scale": [0.1, 0.5, 1.0], "level_scale": [0.0, 0.3, 0.5]} | options
    return LatentMeta(np.full(3, -1.0), 0.3 * np.eye(3) + 0.5, **scales)


METAS = {
    "level": candidates(),
    "count": candidates(rewards="count"),
    "full": candidates(task_scale=None, level_scale=0.0, task_cov=np.diag([0.1, 0.4, 0.0]) + 0.2),
    "design": LatentMeta(
        [-1.0, 0.3], 0.5, task_scale=[0.2, 0.6], design=[[1.0, 0.0], [1.0, 1.0], [1.0, -2.0]]
    ),
}


@pytest.fixture(params=METAS)
def meta(request):
    return METAS[request.param]


def some_events(meta, count=60, tasks=4, seed=8):
    rng = np.random.default_rng(seed)
    return [
        (int(rng.integers(tasks)), int(rng.integers(meta.n_arms)), 1.0, float(rng.random() < 0.3))
        for _ in range(count)
    ]


def same(left, right):
    np.testing.assert_array_equal(left, right)


def close(left, right, tolerance=1e-9):
    np.testing.assert_allclose(left, right, rtol=tolerance, atol=tolerance)


def test_counts_at_once_are_counts_one_by_one(meta):
    one, batch, rng = meta.empty(), meta.empty(), np.random.default_rng(9)
    for arm in range(meta.n_arms):
        rewards = (rng.random(20) < 0.3).astype(float)
        for reward in rewards:
            one = one.add(arm, reward)
        batch = batch.add_counts(arm, 20, rewards.sum())
    same(one.table[:2], batch.table[:2])
    if meta.model == "binary":
        same(one.flat(), batch.flat())
        same(meta.digest(one).message, meta.digest(batch).message)
    halves = meta.empty().add_counts(0, 0.5, 0.5).add_counts(0, 0.5, 0.5)
    close(halves.table[:2], meta.empty().add(0, 1.0).table[:2])


def test_the_order_of_tasks_does_not_matter(meta):
    tasks = [digest.stats for digest in played(meta, some_events(meta), 4)[1]]
    one, other = absorbed(meta, tasks)[0], absorbed(meta, tasks[::-1])[0]
    close(one.sums(), other.sums(), 1e-12)
    close(one.log_posterior, other.log_posterior)


def test_what_was_told_is_the_sum_of_what_is_stored(meta):
    full, digests = played(meta, some_events(meta), 4)
    again = meta
    for digest in digests:
        again = again.absorb(digest.message)
    close(again.total.value(), full.total.value(), 1e-12)
    close(again.log_posterior, full.log_posterior)


def test_a_task_is_taken_out_to_the_last_bit(meta):
    """Forgetting what was told in between leaves the sums of the others, to round-off of one."""
    full, digests = played(meta, some_events(meta), 4)
    left = full
    for digest in digests:
        left = left.absorb(-digest.message)
    size = np.abs(full.total.high).max()
    assert np.abs(left.total.value()).max() < 4e-16 * size
    close(left.log_posterior, meta.log_posterior, 1e-12)


def test_replacing_swaps_just_the_message(meta):
    full, digests = played(meta, some_events(meta), 4)
    old = digests[0]
    new, after = full.replace_task(old, old.stats.add(1, 1.0), [1])
    gap = after.total.value() - full.total.value()
    close(gap, new.message - old.message, 1e-12)
    _, back = after.replace_task(new, meta.empty(), range(meta.n_arms))
    close(back.total.value(), full.absorb(-old.message).total.value(), 1e-12)


def test_rewards_taken_out_again_leave_what_was_there(meta):
    """Within 0.05 sd: the sites are found anew."""
    full, digests = played(meta, some_events(meta, 40), 4)
    stats = digests[0].stats
    more = stats
    for _ in range(stats.table[0].astype(int).sum()):
        more = more.add(0, 1.0)
    between, told = full.replace_task(digests[0], more, [0])
    less = stats.with_table(more.table - (more.table - stats.table))
    digest, after = told.replace_task(between, less, [0])
    one, other = full.posterior(digests[0]).each_arm, after.posterior(digest).each_arm
    assert np.abs((one.eta_mean - other.eta_mean) / one.eta_scale).max() < 0.05
    assert np.abs(one.eta_scale / other.eta_scale - 1).max() < 0.05


def test_sites_and_the_model_survive_files_bit_for_bit(meta):
    full, digests = played(meta, some_events(meta), 4)
    again = type(full).from_dict(full.to_dict())
    assert full.generation > 0
    same(again.sums(), full.sums())
    same(again.log_posterior, full.log_posterior)
    for digest in digests:
        stats = type(digest.stats).from_flat(digest.stats.flat())
        assert stats.settled
        same(stats.flat(), digest.stats.flat())
        same(again.digest(stats).message, digest.message)
        same(again.posterior(again.digest(stats)).mean, full.posterior(digest).mean)
    told = [m.replace_task(m.digest(d.stats), d.stats.add(0, 1.0), [0])[1]
            for m, d in ((full, digests[0]), (again, digests[0]))]  # fmt: skip
    same(told[0].sums(), told[1].sums())
    same(full.with_sums(full.sums()).sums(), full.sums())


def test_unsettled_statistics_are_digested_alike_after_a_file(meta):
    stats = meta.empty().add(0, 1.0).add(2, 0.0)
    again = type(stats).from_flat(stats.flat())
    assert not again.settled
    same(meta.digest(again).message, meta.digest(stats).message)


@pytest.mark.parametrize(
    "values",
    [
        [],
        [0],
        [0] * 7,
        [0, 0, 0, 0, 0.5],
        [0, 0, 0, 0, -1],
        [1, 1, 1, 0, np.inf],
        [np.nan] + 4 * [0],
    ],
)
def test_numbers_that_are_no_statistics_are_refused(values):
    with pytest.raises(ValueError, match="numbers"):
        type(METAS["level"].empty()).from_flat(np.array(values, dtype=float))


def test_draws_of_a_task_follow_its_belief(meta):
    full, digests = played(meta, some_events(meta), 4)
    belief, rng, count = full.posterior(digests[1]), np.random.default_rng(10), 4000
    one_by_one = np.array([belief.sample(rng) for _ in range(count)])
    for drawn in (one_by_one, belief.draws(count, rng)):
        assert np.abs((drawn.mean(axis=0) - belief.mean) / belief.scale).max() < 4.5 / count**0.5
        assert np.abs(drawn.std(axis=0) / belief.scale - 1).max() < 0.1
        for level in (0.1, 0.5, 0.9):
            x = np.quantile(drawn, level, axis=0)
            assert np.abs(belief.below(x) - level).max() < 4.5 * np.sqrt(0.25 / count)


def test_the_task_prior_is_what_draws_of_mu_give(meta):
    full, _ = played(meta, some_events(meta), 4)
    prior, rng = full.task_prior(), np.random.default_rng(11)
    drawn = np.array([full.prior_given(full.sample(rng)).sample(rng) for _ in range(2000)])
    assert np.abs((drawn.mean(axis=0) - prior.mean) / prior.scale).max() < 4.5 / 2000**0.5
    for level in (0.1, 0.5, 0.9):
        x = np.quantile(drawn, level, axis=0)
        assert np.abs(prior.below(x) - level).max() < 4.5 * np.sqrt(0.25 / 2000)


@pytest.mark.parametrize("family", ["binary", "count"])
def test_an_added_arm_has_the_prior_of_another_and_a_covariance(family):
    """Also where arms are nearly the same, or opposed, or one is much wider."""
    rng = np.random.default_rng(12)
    for _ in range(100):
        arms = rng.integers(1, 5)
        root = rng.uniform(0.1, 2.0, (arms, 1)) * rng.standard_normal((arms, rng.integers(1, 6)))
        like = int(rng.integers(arms))
        meta = LatentMeta(np.zeros(arms), root @ root.T, task_scale=0.3, rewards=family)
        stats = meta.empty().add(0, 1.0)
        told = meta.absorb(meta.digest(stats).message)
        grown = told.with_arm(None, like)
        cov = grown.meta_cov[0]
        assert np.linalg.eigvalsh(cov)[0] > -1e-12 * np.trace(cov)
        assert cov[-1, -1] == cov[like, like]
        close(grown.task_prior().mean[:-1], told.task_prior().mean, 1e-7)
        old = meta.digest(stats).stats.grow(arms + 1)
        close(grown.absorb(-grown.digest(old).message).total.value(), 0.0, 1e-9)
        type(grown).from_dict(grown.to_dict())


def test_expected_rate_of_another_task():
    """By hand: E[p(mu) p(mu)] / E[p(mu)] for one success, p(mu) the mean rate given mu."""
    meta = LatentMeta([0.0], 1.0, task_scale=0.3)
    z = np.linspace(-8, 8, 801)
    w = np.exp(-0.5 * z**2) / np.exp(-0.5 * z**2).sum()
    rate = expit(z[:, None] + 0.3 * z) @ w
    told, _ = absorbed(meta, [meta.empty().add(0, 1)])
    assert told.task_prior().mean[0] == pytest.approx(w @ rate**2 / (w @ rate), abs=5e-4)


@pytest.mark.parametrize(
    "spread", [{"task_scale": [0.2, 0.6], "level_scale": [0.5, 0.1]}, {"task_cov": np.eye(3) + 0.3}]
)
@pytest.mark.parametrize("rewards", ["binary", "count"])
def test_several_tasks_are_replaced_at_once_as_one_by_one(spread, rewards):
    rng = np.random.default_rng(3)
    meta = LatentMeta(np.full(3, -1.0), 1.0, rewards=rewards, **spread)
    meta = evolve(meta, anchor=meta.anchor_at(0, 1e9, meta.meta_mean, meta.meta_cov))  # stays
    digests = []
    for _ in range(9):
        stats = meta.empty().add_counts(
            [0, 1, 2], rng.integers(4, 9, 3).astype(float), [1.0, 0.0, 3.0]
        )
        digests.append(meta.digest(stats))
        meta = meta.absorb(digests[-1].message)
    changes = [(old, old.stats.add(i % 3, 1.0), [i % 3]) for i, old in enumerate(digests[:5])]
    changes += [(old, old.stats.add(0, 0.0).add(2, 1.0), [0, 2]) for old in digests[5:7]]
    changes += [(old, old.stats.add_counts(1, 40.0, 4.0), [1]) for old in digests[7:]]
    found, at_once = meta.replace_tasks(changes)
    each, expected = [], meta
    for change in changes:
        digest, expected = expected.replace_task(*change)
        each.append(digest)
    scale = np.sqrt(np.einsum("cii->ci", expected.mu_moments()[1]))
    assert (np.abs(at_once.mu_moments()[0] - expected.mu_moments()[0]) < 0.02 * scale).all()
    assert at_once.log_evidence() == pytest.approx(expected.log_evidence(), abs=0.02)
    for one, other in zip(found, each, strict=True):
        np.testing.assert_array_equal(one.stats.table, other.stats.table)
    total = sum(digest.message for digest in found)  # what is kept is what was put in
    np.testing.assert_allclose(at_once.total.value(), total, rtol=1e-9, atol=1e-9)
