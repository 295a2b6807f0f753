"""Is sharing worth it where arms are rows of features: held-out scores, simulation, the rule."""

import numpy as np
import pytest

from adats.learning.fit_common import folds
from adats.learning.fitting import estimate
from adats.learning.linear import (
    _Normal,
    action_rows,
    alone_linear,
    held_out_gains,
    intercept,
    judged,
    linear_verdict,
    saving_of,
    simulated_savings,
)
from adats.learning.savings import Saving
from adats.learning.tables import LinearTable
from adats.models import LinearBelief, LinearStats


def linear_table(theta, rows, rng, *, noise=1.0, size=1.0, constant=None):
    tasks, d = theta.shape
    x = rng.standard_normal((tasks, rows, d)) * size
    if constant is not None:
        x[:, :, 0] = constant
    y = np.einsum("snd,sd->sn", x, theta) + noise * rng.standard_normal((tasks, rows))
    z = np.concatenate([x, y[:, :, None]], axis=2)
    moments = np.einsum("sni,snj->sij", z, z)
    names = tuple(f"x{j}" for j in range(d))
    moments = (moments + moments.swapaxes(1, 2)) / 2
    return LinearTable(tuple(range(tasks)), names, np.full(tasks, float(rows)), moments)


def test_alone_linear_is_the_most_likely_spread_in_units_of_the_features():
    rng = np.random.default_rng(2)
    theta = rng.normal(0.0, 0.7, (400, 3))
    size = np.array([1.0, 10.0, 0.01])
    one = linear_table(theta, 10, np.random.default_rng(3))
    other = linear_table(theta / size, 10, np.random.default_rng(3), size=size)
    prior, scaled = alone_linear(one, 1.0), alone_linear(other, 1.0)
    assert (prior.mean == 0).all()
    assert prior.scale == pytest.approx(np.full(3, 0.7), rel=0.1)
    assert scaled.scale * size == pytest.approx(prior.scale, rel=1e-6)

    def score(spread):
        belief = LinearBelief.of(prior.mean, spread * prior.factor, 1.0)
        return sum(belief.condition(one.stats(i)).log_evidence for i in range(len(one)))

    assert score(1.0) > max(score(1.02), score(0.98))


def test_an_intercept_is_known_to_be_near_the_mean_reward():
    rng = np.random.default_rng(4)
    table = linear_table(rng.normal([50.0, 0.0], 0.5, (200, 2)), 8, rng, constant=2.0)
    assert intercept(table) == 0
    prior = alone_linear(table, 1.0)
    assert prior.mean == pytest.approx([50.0, 0.0], abs=0.2)
    assert prior.scale[0] * 2 < 2.0  # not so wide as to reach 100 from zero
    mean, factor = action_rows(table)
    assert mean[0] == pytest.approx(2.0)
    assert (factor[0] == 0).all()  # always the same
    assert (factor @ factor.T)[1, 1] == pytest.approx(1.0, rel=0.1)


def test_a_feature_that_varies_in_size_is_no_intercept_and_two_even_ones_are_none():
    rng = np.random.default_rng(5)
    assert intercept(linear_table(np.zeros((20, 2)), 5, rng)) is None
    x = rng.choice([-1.0, 1.0], (20, 5, 2))
    z = np.concatenate([x, np.zeros((20, 5, 1))], axis=2)
    moments = np.einsum("sni,snj->sij", z, z)
    table = LinearTable(tuple(range(20)), ("a", "b"), np.full(20, 5.0), moments)
    assert intercept(table) is None
    mean, factor = action_rows(table)
    assert (mean == 0).all()
    assert factor @ factor.T == pytest.approx(moments.sum(axis=0)[:2, :2] / 100)


def test_linear_updates_are_those_of_the_belief():
    rng = np.random.default_rng(6)
    half = rng.standard_normal((3, 2))
    prior = LinearBelief(rng.standard_normal(3), half @ half.T, 0.5)  # singular
    agent, told = _Normal.start(prior, 2), [LinearStats.zeros(3)] * 2
    for _ in range(6):
        x, y = rng.standard_normal((2, 3)), rng.standard_normal(2)
        agent = agent.tell(x, y, 0.5)
        told = [stats.add(a, b) for stats, a, b in zip(told, x, y, strict=True)]
    for i in range(2):
        exact = prior.condition(told[i]).belief
        assert agent.mean[i] == pytest.approx(exact.mean, abs=1e-9)
        assert agent.factor[i] @ agent.factor[i].T == pytest.approx(exact.cov, abs=1e-9)


def test_savings_and_their_error_by_hand():
    saved = saving_of(np.array([1.0, 3.0]), np.array([4.0, 4.0]))
    assert saved.part == pytest.approx(0.5)
    # rests 1 - 2, 3 - 2: deviation √2 over √2 tasks, over a mean of 4
    assert saved.error == pytest.approx(0.25)
    assert saving_of(np.zeros(2), np.zeros(2)) == (1.0, 0.0)
    # a rival that loses next to nothing: what is gained, or lost, is a part of `least`
    assert saving_of(np.array([1.0, 1.0]), np.zeros(2), least=4.0).left == pytest.approx(1.25)


def test_gains_do_not_depend_on_the_units_of_features():
    rng = np.random.default_rng(9)
    table = linear_table(rng.normal([1.0, 0.0], 0.5, (30, 2)), 5, rng)
    unit = np.array([1e-3, 50.0, 7.0])  # the last is that of rewards
    other = LinearTable(table.tasks, table.features, table.n, table.moments * np.outer(unit, unit))
    before, after = (held_out_gains(t, diagonal=False, seed=1) for t in (table, other))
    for one, same in zip(before, after, strict=True):
        assert same == pytest.approx(one, abs=2e-3)


def test_the_same_prior_saves_nothing():
    belief = LinearBelief([1.0, 0.0], np.diag([0.2, 0.1]), 1.0)
    rows = (np.zeros(2), np.eye(2))
    found = simulated_savings((belief,) * 3, rows=rows, rounds=4, seed=1)
    assert found[0].part == 0.0
    assert found[1].part > 0.1  # the pooled one learns nothing more


def test_a_gain_is_the_difference_of_two_densities_from_the_other_folds():
    rng = np.random.default_rng(8)
    table = linear_table(rng.normal([1.0, 0.0], 0.5, (30, 2)), 5, rng)
    alone, pooled = held_out_gains(table, diagonal=False, seed=1)
    place = folds(table.tasks)
    others = table.subset(np.flatnonzero(place != place[4]))
    fitted = estimate(others, model="linear")
    own = alone_linear(others, fitted.noise)
    all_rows = others.moments.sum(axis=0)
    same = np.linalg.solve(all_rows[:-1, :-1], all_rows[:-1, -1])
    cov = fitted.noise**2 * np.linalg.inv(all_rows[:-1, :-1])
    priors = fitted.meta.task_prior(), own, LinearBelief(same, cov, fitted.noise)
    seen = [prior.condition(table.stats(4)).log_evidence for prior in priors]
    assert alone[4] == pytest.approx(seen[0] - seen[1], abs=1e-8)
    assert pooled[4] == pytest.approx(seen[0] - seen[2], abs=1e-8)


def judge(table):
    return linear_verdict(table, estimate(table, model="linear"), seed=1)


def test_tasks_around_a_common_theta_are_shared():
    rng = np.random.default_rng(12)
    table = linear_table(rng.normal([1.0, -1.0, 0.5], 0.6, (100, 3)), 40, rng)
    found = judge(table)
    assert found.answer == "share"
    assert found.saving > 0.1
    assert found.interval[0] < found.saving < found.interval[1]
    assert "times as likely" in found.reasons[0]
    assert judge(table).saving == found.saving


@pytest.mark.parametrize("constant", [None, 1.0])
def test_tasks_in_all_directions_are_not(constant):
    """Also with an intercept: a level of rewards is nothing that tasks need to share."""
    rng = np.random.default_rng(13)
    level = [0.0 if constant is None else 20.0, 0.0, 0.0]
    table = linear_table(rng.normal(level, 0.7, (200, 3)), 10, rng, constant=constant)
    found = judge(table)
    assert found.answer == "each for itself"
    assert abs(found.saving) < 0.05


def test_a_tiny_log_is_too_little():
    rng = np.random.default_rng(14)
    found = judge(linear_table(rng.normal([1.0, -1.0], 0.1, (9, 2)), 10, rng))
    assert found.answer == "too little data"
    assert found.reasons == ("9 tasks are too few to tell; 10 are the least",)
    assert np.isnan(found.saving)


def test_tasks_with_one_theta_are_one_for_all():
    rng = np.random.default_rng(15)
    table = linear_table(np.tile([1.0, -1.0, 0.5], (100, 1)), 10, rng)
    found = judge(table)
    assert found.answer == "one for all"
    assert found.over_alone.part > 0.5
    assert found.over_pooled.high < 0.05


@pytest.mark.parametrize("features", [2, 3])
def test_rows_that_are_all_the_same_leave_nothing_to_choose(features):
    rng = np.random.default_rng(16)
    x = np.ones((30, 10, features))
    y = rng.normal(1.0, 0.3, (30, 1)) + rng.standard_normal((30, 10))
    z = np.concatenate([x, y[:, :, None]], axis=2)
    moments = np.einsum("sni,snj->sij", z, z)
    names = tuple(f"x{j}" for j in range(features))
    found = judge(LinearTable(tuple(range(30)), names, np.full(30, 10.0), moments))
    assert found.answer == "too little data"
    assert "nothing to choose" in found.reasons[0]


@pytest.mark.parametrize("features", [1, 2])
def test_rows_that_differ_in_one_feature_leave_something(features):
    rng = np.random.default_rng(17)
    table = linear_table(rng.normal(1.0, 0.5, (60, features)), 10, rng)
    assert np.isfinite(judge(table).saving)
    rows = np.ones((60, 10, 1)) * rng.choice([-1.0, 1.0], (60, 10, 1))  # of one size
    y = rows[:, :, 0] + rng.standard_normal((60, 10))
    z = np.concatenate([rows, y[:, :, None]], axis=2)
    moments = np.einsum("sni,snj->sij", z, z)
    table = LinearTable(tuple(range(60)), ("x",), np.full(60, 10.0), moments)
    assert np.isfinite(judge(table).saving)


def test_the_rule():
    def rule(gain, saved, few=False, apart=9.0, over_pooled=0.5):
        """The answer for gains with a standard error of 1, and shares saved."""
        z = np.tile([-10.0, 10.0], 50)
        gains = tuple(mean + z / z.std(ddof=1) * 10.0 for mean in (gain, apart))
        savings = Saving(1 - saved, 0.01), Saving(1 - over_pooled, 0.01)
        return judged(gains, savings, few=few).answer

    assert rule(9.0, 0.3, apart=1.9) == "too little data"  # better than alone, not than one for all
    assert rule(9.0, 0.3, over_pooled=0.04) == "too little data"  # it may be worth it
    assert rule(9.0, 0.3, over_pooled=0.02) == "one for all"
    assert rule(9.0, 0.3, apart=-9.0, over_pooled=-0.3) == "one for all"
    assert rule(2.1, 0.051) == "share"
    assert rule(1.9, 0.3) == rule(-1.9, 0.3) == "too little data"  # not two standard errors
    assert rule(2.1, 0.04) == rule(1.9, 0.04) == "each for itself"  # it saves nothing
    assert rule(-2.1, 0.3) == "each for itself"  # worse, whatever simulation says
    assert rule(-2.1, 0.0, few=True) == "too little data"  # under five tasks a feature
    assert rule(2.1, 0.1, few=True) == "share"


def test_a_new_task_is_as_long_as_the_median_one(monkeypatch):
    seen = []

    def simulated(*_, rounds, **__):
        seen.append(rounds)
        return (Saving(1.0, 0.1),) * 2

    monkeypatch.setattr("adats.learning.linear.simulated_savings", simulated)
    judge(linear_table(np.zeros((12, 2)), 6, np.random.default_rng(0)))
    assert seen == [6]
