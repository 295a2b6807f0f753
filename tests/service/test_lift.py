"""Intervals of the lift: against enumeration, quadrature, and scores written out one by one."""

import itertools
import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import binom, norm
from scipy.stats import t as student

from adats.service.evaluation.lift import FEW, FEW_NUMBERS, TASK_RATE, RewardMoments, Sides, lift
from adats.service.evaluation.lift import lift_new_tasks as new_tasks
from adats.service.evaluation.sequences import (
    RATE,
    asymptotic_factor,
    bounded_sequence,
    log_wealth,
)


def side(values):
    values = np.asarray(values, dtype=float)
    mean = values.mean() if values.size else 0.0
    return RewardMoments(values.size, mean, ((values - mean) ** 2).sum(), np.count_nonzero(values))


def clicks(size, successes):
    mean = successes / size
    return RewardMoments(size, mean, size * mean * (1 - mean), successes)


# exact sequences


@pytest.mark.parametrize(("n", "p"), [(1, 0.3), (20, 0.02), (300, 0.5)])
def test_the_wealth_of_equal_chances_is_one_on_average(n, p):
    totals = np.arange(n + 1)
    assert binom.pmf(totals, n, p) @ np.exp(log_wealth(totals, n, p)) == pytest.approx(1.0)


def chance_of(history):
    """Of a success, after what came before: a policy that learns."""
    return 0.15 + 0.7 * (sum(history) + 1) / (len(history) + 4) * (len(history) % 3 != 1)


def test_the_average_chance_is_refuted_seldom_at_any_of_all_looks():
    """Every course that 12 rounds can take, with chances that depend on it."""
    alpha, refuted, ever = 0.2, 0.0, 0
    for course in itertools.product((0, 1), repeat=12):
        chances = [chance_of(course[:t]) for t in range(12)]
        weight = math.prod(c if x else 1 - c for c, x in zip(chances, course, strict=True))
        n = np.arange(1, 13)
        wealth = log_wealth(np.cumsum(course), n, np.cumsum(chances) / n)
        if wealth.max() >= -math.log(alpha):
            refuted, ever = refuted + weight, ever + 1
    assert ever > 100
    assert 0.01 < refuted <= alpha


@pytest.mark.parametrize(("total", "n"), [(0, 40), (3, 5000), (5, 5), (1200, 9000)])
def test_an_interval_has_what_the_wealth_does_not_refute(total, n):
    low, high = (float(end) for end in bounded_sequence(total, n))
    grid = np.linspace(0, 1, 200_001)
    kept = grid[log_wealth(total, n, grid) < -math.log(0.05)]
    assert low <= total / n <= high
    assert low == pytest.approx(kept[0], abs=5e-6)
    assert high == pytest.approx(kept[-1], abs=5e-6)


def test_the_asymptotic_factor_is_that_of_a_normal_mixture():
    """Where ∫ exp(λ s − λ² v / 2) dN(0, ρ²) reaches 1/α; s in standard errors, v = 1."""
    for events in (25, 250, 40_000):
        z, scale = float(asymptotic_factor(events)), math.sqrt(RATE * events)

        def bet(size, z=z, scale=scale):
            return math.exp(size * z - size**2 / 2) * norm.pdf(size, scale=scale)

        assert quad(bet, -12, 12, points=[0, z])[0] == pytest.approx(20.0, rel=1e-6)


# the lift


@pytest.fixture
def log():
    rng = np.random.default_rng(3)
    n, share = 2000, 0.2
    held, task = rng.random(n) < share, rng.integers(0, 9, n)
    y = rng.normal(1.0 + 0.3 * ~held + 0.2 * (task % 3) * ~held, 1.0)
    return share, held, task, y


def test_the_safe_interval_is_that_of_scores_with_the_means_as_predictions(log):
    """With the shares that came about, of which the planned ones are the limit."""
    planned, held, _, y = log
    means, share = [y[~held].mean(), y[held].mean()], held.mean()
    scores = np.where(
        held,
        means[0] - means[1] - (y - means[1]) / share,
        means[0] - means[1] + (y - means[0]) / (1 - share),
    )
    found = lift(Sides(side(y[~held]), side(y[held]), planned), zero_one=False)
    assert found.estimate == pytest.approx(scores.mean())
    half = float(asymptotic_factor(held.sum())) * scores.std() / math.sqrt(y.size)
    assert found.safe.high - found.estimate == pytest.approx(half, rel=0.01)  # and some caution
    assert found.safe.high - found.estimate >= half - 1e-12
    once = found.fixed_time
    assert 1.5 < (found.safe.high - found.safe.low) / (once.high - once.low) < 2


def test_the_ends_of_the_relative_lift_leave_nothing_between_the_means():
    sides = Sides(clicks(9000, 1100), clicks(1000, 90), 0.1)
    found = lift(sides, zero_one=True)
    assert found.relative == pytest.approx(1100 / 9000 / 0.09 - 1)
    factor, (own, held) = float(asymptotic_factor(90)), sides.errors
    for end in found.relative_safe:
        ratio = 1 + float(end)
        gap = sides.policy.mean - ratio * sides.holdout.mean
        assert abs(gap) == pytest.approx(factor * math.sqrt(own + ratio**2 * held))
    assert found.relative_safe.low < found.relative < found.relative_safe.high


def test_while_successes_are_few_the_two_sums_are_bounded_exactly():
    few = Sides(clicks(950, 12), clicks(50, 1), 0.05)
    found = lift(few, zero_one=True)
    own, held = bounded_sequence(12, 1000, 0.025), bounded_sequence(1, 1000, 0.025)
    assert found.safe.low == pytest.approx(own.low / 0.95 - held.high / 0.05)
    assert found.safe.high == pytest.approx(own.high / 0.95 - held.low / 0.05)
    assert found.relative_safe.low == pytest.approx(own.low / 0.95 / (held.high / 0.05) - 1)
    for successes in (FEW - 1, FEW):
        pair = Sides(clicks(9000, 400), clicks(1000, successes), 0.1)
        width = np.subtract(*lift(pair, zero_one=True).safe[::-1])
        asymptotic = 2 * asymptotic_factor(successes) * math.sqrt(sum(pair.errors))
        assert (width == pytest.approx(float(asymptotic))) == (successes == FEW)


def test_nothing_is_said_of_few_numbers_and_of_none():
    values = np.linspace(-1, 3, 400)
    few = Sides(side(values), side(values[: FEW_NUMBERS - 1]), 0.1)
    assert np.isnan(lift(few, zero_one=False).safe).all()
    assert not np.isnan(lift(few, zero_one=False).fixed_time).any()
    none = Sides(side(values), side([]), 0.1)
    assert np.isnan(lift(none, zero_one=False).safe).all()
    free = lift(Sides(side([]), side([]), 0.5), zero_one=True).safe
    assert (float(free.low), float(free.high)) == (-1.0, 1.0)


def test_few_numbers_are_taken_to_vary_like_the_many_beside_them():
    wide, narrow = 3 * np.resize([-1.0, 1.0], 4000), 1.0 + 0.01 * np.resize([-1.0, 1.0], 100)
    found = lift(Sides(side(wide), side(narrow), 0.025), zero_one=False)
    assert np.subtract(*found.safe[::-1]) > 1.5 * np.subtract(*found.fixed_time[::-1])


def test_for_new_tasks_the_tasks_are_what_is_averaged(log):
    share, held, task, y = log
    sides = Sides(side(y[~held]), side(y[held]), share)
    own = [[side(y[(held == h) & (task == k)]) for k in range(9)] for h in (False, True)]
    groups = Sides(
        *(RewardMoments(*(np.array(field) for field in zip(*s, strict=True))) for s in own), share
    )
    safe = lift(sides, zero_one=False).safe
    found = new_tasks(sides, groups, 9, safe)
    means = [y[~held].mean(), y[held].mean()]
    centred = np.where(held, -(y - means[1]) / share, (y - means[0]) / (1 - share))
    sums, sizes = (np.bincount(task, weights) for weights in (centred, None))
    like = y.size**2 / (sizes**2).sum()
    error = math.sqrt(like / (like - 1) * (sums**2).sum()) / y.size
    factor = float(asymptotic_factor(9, rate=TASK_RATE)) * student.ppf(0.975, like - 1) / 1.959964
    assert found.high - sides.estimate == pytest.approx(factor * error, rel=1e-6)
    assert found.low < safe.low
    assert np.isnan(new_tasks(sides, groups, 1, safe).low) == np.isnan(safe.low)


def test_of_one_task_nothing_is_said_about_others():
    sides = Sides(clicks(900, 100), clicks(100, 10), 0.1)
    alone = Sides(*(RewardMoments(*(np.array([field]) for field in own)) for own in sides[:2]), 0.1)
    assert np.isnan(new_tasks(sides, alone, 1, lift(sides, zero_one=True).safe)).all()
