"""What is no reward, no count or no prior is refused before anything changes; what is extreme is
believed sanely. Warnings are errors here, as everywhere."""

import numpy as np
import pytest

import adats
from adats.models.core.errors import InvalidValue
from adats.models.latent.meta import LatentMeta

FAMILIES = ("binary", "count")
ZEROS = np.zeros(2)


def make(mean=(-1.0, -2.0), cov=1.0, **options):
    return LatentMeta(mean, cov, **({"task_scale": 0.3, "level_scale": 0.5} | options))


def learned(meta, told):
    """After pulls and successes of arms of one task, one after another."""
    digest = meta.digest(meta.empty())
    for arm, pulls, successes in told:
        stats = digest.stats.add_counts(arm, pulls, successes)
        digest, meta = meta.replace_task(digest, stats, [arm])
    return meta, digest


def check_sane(meta, digest):
    """All that can be asked is finite, and a rate where it should be one."""
    rng = np.random.default_rng(0)
    belief, prior = meta.posterior(digest), meta.task_prior()
    x = np.full(meta.n_arms, 0.3)
    for one in (belief, prior, belief.each_arm, prior.condition(digest.stats).belief):
        found = [one.mean, one.scale, one.sample(rng), one.upper(2.0), one.reward_variance]
        chances = [one.below(x), one.below(0 * x), one.below(x + 1)]
        found += [*chances, one.tightened(np.ones(meta.n_arms)).mean]
        assert all(np.isfinite(value).all() for value in found)
        assert all(((value >= 0) & (value <= 1 + 1e-12)).all() for value in chances)
        assert (one.mean >= 0).all()
        assert (one.scale >= 0).all()
        if meta.model == "binary":
            assert (one.mean <= 1).all()
    assert np.isfinite(belief.draws(5, rng)).all()
    assert np.isfinite([meta.log_evidence(), *meta.weights, *meta.mean, *meta.share()]).all()
    assert np.isfinite(meta.sample(rng)).all()
    assert np.isfinite(meta.sums()).all()
    again = type(meta).from_dict(meta.to_dict())
    assert np.array_equal(again.sums(), meta.sums())


# Rewards


@pytest.mark.parametrize("reward", [0.5, 2, -1, np.nan, np.inf, "1", None, 1 + 0j, [1]])
def test_what_is_no_click_is_refused(reward):
    agent = adats.AdaTS(make(), seed=1)
    agent.tell(task="a", action=0, reward=1)
    before = agent.meta.sums()
    with pytest.raises(ValueError, match="reward"):
        agent.tell(task="a", action=1, reward=reward)
    assert np.array_equal(agent.meta.sums(), before)
    agent.tell(task="a", action=1, reward=True)
    agent.tell(task="b", action=1, reward=np.float32(1.0))


@pytest.mark.parametrize("reward", [0.5, -1, np.nan, np.inf, "1", None, 1e160])
def test_what_is_no_count_is_refused(reward):
    agent = adats.AdaTS(make(rewards="count"), seed=1)
    before = agent.meta.sums()
    with pytest.raises(ValueError, match=r"reward|count"):
        agent.tell(task="a", action=1, reward=reward)
    assert np.array_equal(agent.meta.sums(), before)


@pytest.mark.parametrize(
    ("pulls", "successes", "field"),
    [
        (1, 2, "successes"),
        (10, 10.5, "successes"),
        (1, -1, "successes"),
        (1, np.nan, "successes"),
        (1, "1", "successes"),
        (0, 0, "pulls"),
        (-1, 0, "pulls"),
        (np.nan, 0, "pulls"),
        (np.inf, 0, "pulls"),
        (1e151, 0, "pulls"),
        (None, 0, "pulls"),
        ([1], 0, "pulls"),
    ],
)
def test_what_are_no_pulls_and_successes_is_refused(pulls, successes, field):
    stats = make().empty().add(0, 1)
    before = stats.flat().copy()
    with pytest.raises(InvalidValue, match=field) as caught:
        stats.add_counts(0, pulls, successes)
    assert caught.value.field == field
    assert np.array_equal(stats.flat(), before)


@pytest.mark.parametrize("successes", [-1, np.nan, 1e151])
def test_what_is_no_sum_of_counts_is_refused(successes):
    with pytest.raises(InvalidValue, match="successes"):
        make(rewards="count").empty().add_counts(0, 1, successes)


@pytest.mark.parametrize("arm", [2, -1, "a", True, 0.0, None])
def test_what_is_no_arm_is_refused(arm):
    with pytest.raises(ValueError, match="arm"):
        make().empty().add_counts(arm, 1, 1)


@pytest.mark.parametrize("family", FAMILIES)
def test_statistics_of_another_size_are_refused(family):
    meta = make(rewards=family)
    other = LatentMeta(np.zeros(3), 1.0, task_scale=0.3, rewards=family).empty().add(2, 1)
    with pytest.raises(ValueError, match="3 arms"):
        meta.digest(other)
    with pytest.raises(ValueError, match="3 arms"):
        meta.replace_task(meta.digest(meta.empty()), other, [0])
    with pytest.raises(ValueError, match="message of shape"):
        meta.absorb(np.zeros(3))


@pytest.mark.parametrize("family", FAMILIES)
def test_more_taken_out_than_was_put_in_is_refused(family):
    meta = make(rewards=family)
    nothing, one = meta.empty(), meta.empty().add(0, 1)
    for wrong in (nothing - one, one - one.add(1, 0), one + nothing.add(0, 0) - one - one):
        with pytest.raises(ValueError, match="taken out"):
            meta.digest(wrong)
        with pytest.raises(ValueError, match="taken out"):
            meta.replace_task(meta.digest(nothing), wrong, [0, 1])


def test_counts_are_no_clicks():
    with pytest.raises(ValueError, match="rewards that sum to"):
        make().digest(make(rewards="count").empty().add(0, 7))


# Priors


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cov": [[1.0, 2.0], [2.0, 1.0]]}, "cov must be positive semi-definite"),
        ({"cov": [[1.0, 0.5], [0.2, 1.0]]}, "cov must be symmetric"),
        ({"cov": -1.0}, "cov must be positive semi-definite"),
        ({"cov": []}, "cov is empty"),
        ({"cov": np.eye(3)}, "cov must be a number or have shape"),
        ({"cov": 1e6}, "standard deviation"),
        ({"cov": 1e300}, "standard deviation"),
        ({"task_scale": None}, "task_scale"),
        ({"task_scale": -1.0}, "task_scale must not be negative"),
        ({"task_scale": np.nan}, "task_scale must be finite"),
        ({"task_scale": 1e200}, "task_scale must be less"),
        ({"task_scale": []}, "task_scale is one number a candidate"),
        ({"task_scale": [[1.0, 2.0]]}, "task_scale is one number a candidate"),
        ({"level_scale": [[1.0, 2.0]]}, "level_scale is one number a candidate"),
        ({"task_cov": 1.0}, "task_scale"),
        ({"task_scale": None, "task_cov": 1.0}, "level_scale is part of task_cov"),
        (
            {"task_scale": None, "level_scale": 0.0, "task_cov": [[1.0, 2.0], [2.0, 1.0]]},
            "task_cov must be positive semi-definite",
        ),
        ({"mean": [0.0, np.nan]}, "mean must be finite"),
        ({"mean": []}, "mean must have a number for each arm"),
        ({"mean": np.zeros((2, 2, 2))}, "mean must have a number for each arm"),
        ({"mean": ["a", "b"]}, "mean must be numbers"),
        ({"mean": [0.0, 60.0]}, "mean is on the scale of theta"),
        ({"mean": [0.0, -1e200]}, "mean is on the scale of theta"),
        ({"rewards": "number"}, "rewards must be 'binary' or 'count'"),
        ({"weights": [0.3, 0.8], "task_scale": [1.0, 2.0]}, "weights must sum to 1"),
        ({"weights": [0.5, 0.5], "task_scale": [1.0, 2.0, 3.0]}, "weights for 2 candidates"),
        ({"cov": [1.0, 2.0], "task_scale": [1.0, 2.0, 3.0]}, "candidates"),
        ({"arms": ["a", "b", "c"]}, "3 names for 2 arms"),
        ({"design": np.ones((3, 3))}, "design must have 2 columns"),
        ({"design": [[1.0, np.inf]]}, "design must be finite"),
    ],
)
def test_what_is_no_prior_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        make(**options)


# What is extreme


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    "told",
    [
        [(0, 1e6, 0.0), (1, 1.0, 0.0)],  # no success at all
        [(0, 1e6, 1e6), (1, 1.0, 0.0)],  # separable: always, and never
        [(0, 1e6, 1e6), (1, 1e6, 0.0), (0, 1.0, 0.0)],
        [(0, 1e6, 1e5), (1, 1.0, 1.0), (1, 1.0, 0.0)],  # a million pulls of one arm
        [(0, 1e6, 1.0), (1, 3e6, 2.0)],  # rates of 1e-6
        [(0, 1e12, 1e12), (1, 1.0, 0.0)],
        [(0, 1e-9, 1e-10), (1, 0.3, 0.1), (0, 0.7, 0.7)],  # fractions
        [(0, 1.0, 1.0)] * 40,
        [(1, 1.0, 0.0)] * 40,
    ],
)
def test_extreme_rewards_leave_a_sane_belief(family, told):
    for spread in ({}, {"task_scale": None, "level_scale": 0.0, "task_cov": 0.1 * np.eye(2) + 0.2},
                   {"task_scale": [0.02, 0.3, 1.0], "level_scale": [0.0, 0.3, 0.6]}):  # fmt: skip
        meta, digest = learned(make(rewards=family, **spread), told)
        check_sane(meta, digest)
        stats = digest.stats.unsettled()  # the same at once
        fresh = meta.absorb(-digest.message)
        again = fresh.digest(stats)
        check_sane(fresh.absorb(again.message), again)


def test_a_million_pulls_tell_the_rate():
    meta, digest = learned(make(), [(0, 1e6, 1e5), (1, 1.0, 0.0)])
    belief = meta.posterior(digest)
    assert belief.mean[0] == pytest.approx(0.1, abs=1e-4)
    assert belief.scale[0] == pytest.approx(3e-4, rel=0.02)
    assert belief.scale[1] > 0.05
    meta, digest = learned(make(mean=[-10.0, -10.0], cov=9.0), [(0, 1e7, 10.0)])
    assert meta.posterior(digest).mean[0] == pytest.approx(1e-6, rel=0.1)


def test_no_success_lowers_the_rate_and_no_more():
    meta, digest = learned(make(), [(0, 1000.0, 0.0)])
    rates = meta.posterior(digest).mean
    assert 1e-5 < rates[0] < 1e-2
    assert rates[0] < rates[1] < make().task_prior().mean[1]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    "scales",
    [
        {"cov": 0.0, "task_scale": 0.0, "level_scale": 0.0},
        {"cov": 0.0, "task_scale": 0.3, "level_scale": 0.0},
        {"cov": 1.0, "task_scale": 0.0, "level_scale": 0.0},
        {"cov": 0.0, "task_scale": 0.0, "level_scale": 1.0},
        {"cov": np.ones((2, 2)), "task_scale": 0.0, "level_scale": 1.0},
        {"cov": 0.0, "task_scale": None, "level_scale": 0.0, "task_cov": 0.0},
        {"cov": 0.0, "task_scale": None, "level_scale": 0.0, "task_cov": np.diag([1.0, 0.0])},
        {"cov": 1.0, "task_scale": None, "level_scale": 0.0, "task_cov": np.ones((2, 2))},
        {"cov": 1e-30, "task_scale": 1e-15, "level_scale": 0.0},
        {"cov": 64.0, "task_scale": 3.0, "level_scale": 3.0},
    ],
)
def test_certain_and_wide_priors_are_legal(family, scales):
    told = [(0, 1.0, 1.0), (1, 5.0, 2.0), (0, 100.0, 90.0), (1, 1000.0, 0.0)]
    meta, digest = learned(make(rewards=family, **scales), told)
    check_sane(meta, digest)


@pytest.mark.parametrize("family", FAMILIES)
def test_what_is_certain_stays_and_has_the_exact_evidence(family):
    meta, digest = learned(
        make(cov=0.0, task_scale=0.0, level_scale=0.0, rewards=family), [(0, 4, 1), (1, 9, 2)]
    )
    belief, eta = meta.posterior(digest), np.array([-1.0, -2.0])
    np.testing.assert_allclose(belief.mean, meta.family.mean(eta), rtol=1e-12)
    assert (belief.scale < 1e-8).all()
    n, s = digest.stats.table[:2]
    expected = (s * eta - n * meta.family.log_partition(eta)).sum() - digest.stats.log_base
    assert meta.log_evidence() == pytest.approx(expected, abs=1e-6)
