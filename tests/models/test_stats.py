import math
from functools import reduce

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adats.models import BinaryStats, CountStats, LinearStats, PositiveStats
from adats.models.core.stats import ArmStats

ARM_KINDS = [ArmStats, BinaryStats, CountStats, PositiveStats]
REWARDS = {
    ArmStats: st.floats(-1e3, 1e3),
    BinaryStats: st.integers(0, 1),
    CountStats: st.integers(0, 1000),
    PositiveStats: st.floats(0, 1e3),
}


def test_arm_stats_by_hand():
    stats = ArmStats.zeros(3).add(0, 1.5).add(2, -2.0).add(0, 0.5)
    np.testing.assert_array_equal(stats.count, [2, 0, 1])
    np.testing.assert_array_equal(stats.total, [2.0, 0, -2.0])
    np.testing.assert_array_equal(stats.squares, [2.5, 0, 4.0])
    np.testing.assert_array_equal(stats.flat(), [2, 0, 1, 2.0, 0, -2.0, 2.5, 0, 4.0])
    np.testing.assert_array_equal(stats.grow(4).total, [2.0, 0, -2.0, 0])


def test_count_stats_sum_log_factorials():
    stats = CountStats.zeros(2).add([0, 0, 1], [3, 5, 0])
    np.testing.assert_allclose(stats.log_factorial, [math.log(6) + math.log(120), 0.0])


def test_linear_stats_by_hand():
    stats = LinearStats.zeros(2).add([1.0, 2.0], 3.0).add([0.0, -1.0], 2.0)
    assert stats.n == 2
    assert stats.yy == 13.0
    np.testing.assert_array_equal(stats.gram, [[1, 2], [2, 5]])
    np.testing.assert_array_equal(stats.xy, [3, 4])
    assert sorted(set(stats.flat())) == [1, 2, 3, 4, 5, 13]


@st.composite
def triples(draw):
    """Three statistics of one kind, each of a few pulls."""
    kind = draw(st.sampled_from([*ARM_KINDS, LinearStats]))
    size = draw(st.integers(1, 4))
    numbers = st.floats(-1e3, 1e3)
    if kind is LinearStats:
        pull = st.tuples(st.lists(numbers, min_size=size, max_size=size), numbers)
    else:
        pull = st.tuples(st.integers(0, size - 1), REWARDS[kind])
    pulls = [draw(st.lists(pull, max_size=4)) for _ in range(3)]
    zero = kind.zeros(size)
    return zero, [reduce(lambda s, p: s.add(*p), some, zero) for some in pulls], pulls


@given(triples())
def test_group_laws(case):
    zero, (a, b, c), pulls = case

    def same(left, right):
        slack = 1e-12 * (1 + sum(np.abs(s.flat()).max() for s in (a, b, c)))
        np.testing.assert_allclose(left.flat(), right.flat(), rtol=0, atol=slack)
        assert type(left) is type(zero)

    same(a + b, b + a)
    same((a + b) + c, a + (b + c))
    same(a + zero, a)
    same(a - a, zero)
    same((a + b) - b, a)
    same(a - b, zero - (b - a))
    same(type(zero).from_flat(a.flat()), a)
    if everything := [pull for some in pulls for pull in some]:
        actions, rewards = zip(*everything, strict=True)
        same(zero.add(np.array(actions), np.array(rewards)), a + b + c)


LINEAR_BAD = [
    (([math.nan, 0.0], 1.0), "features must be finite, got nan at index (0,)"),
    ((np.array([0.0, math.nan]), 1.0), "features must be finite, got nan at index (1,)"),
    (([0.0, math.inf], 1.0), "features must be finite, got inf at index (1,)"),
    (([1.0, 0.0], math.nan), "reward must be finite, got nan"),
    (([1.0, 0.0], math.inf), "reward must be finite, got inf"),
    (([1.0, 0.0], "high"), "reward must be a number, got 'high'"),
    (([1.0, 0.0], [1.0, 2.0]), "reward must be a number, got [1.0, 2.0]"),
    ((["a", "b"], 1.0), "features must be numbers, got ['a', 'b']"),
    (([1.0, 0.0, 0.0], 1.0), "features must end in 2 numbers, got shape (3,)"),
    ((1.0, 1.0), "features must end in 2 numbers, got shape ()"),
    ((np.zeros((2, 2, 2)), 1.0), "features must end in 2 numbers, got shape (2, 2, 2)"),
    ((np.zeros((3, 2)), [1.0, 2.0]), "(2,) rewards for features of shape (3, 2)"),
    ((np.zeros((1, 2)), [math.nan]), "reward must be finite, got nan at index (0,)"),
    (([1.0, 0.0], "1.5"), "reward must be a number, got '1.5'"),
    ((["1", "0"], 1.0), "features must be numbers, got ['1', '0']"),
    (([1.0, 0.0], 1e200), "1e+200 is too large: its square overflows"),
    (([1e200, 0.0], 1.0), "too large: their squares overflow"),
    (([[1e200, 0.0]], [1.0]), "too large: their squares overflow"),
    (([[1.0, 0.0]], [1e200]), "too large: their squares overflow"),
    ((np.array([math.inf, 0.0]), 1.0), "features must be finite, got inf at index (0,)"),
]
ARM_BAD = [
    ((True, 1.0), "an arm is an integer index here, got True"),
    ((np.True_, 1.0), "an arm is an integer index here, got np.True_"),
    ((1.0, 1.0), "an arm is an integer index here, got 1.0"),
    (("a", 1.0), "an arm is an integer index here, got 'a'"),
    ((None, 1.0), "an arm is an integer index here, got None"),
    ((-1, 1.0), "there is no arm -1: arms are 0 to 1"),
    ((2, 1.0), "there is no arm 2: arms are 0 to 1"),
    ((0, math.nan), "reward must be finite, got nan"),
    ((0, -math.inf), "reward must be finite, got -inf"),
    ((0, "high"), "reward must be a number, got 'high'"),
    ((0, None), "reward must be a number, got None"),
    ((0, [1.0]), "reward must be a number, got [1.0]"),
    (([0, 1], [1.0]), "(1,) rewards for (2,) arms"),
    (([0, 1], 1.0), "() rewards for (2,) arms"),
    (([[0], [1]], [[1.0], [1.0]]), "(2, 1) rewards for (2, 1) arms"),
    (([0, 5], [1.0, 1.0]), "there is no arm 5: arms are 0 to 1"),
    (([0.0, 1.0], [1.0, 1.0]), "an arm is an integer index here, got 0.0"),
    (([False, True], [1.0, 1.0]), "an arm is an integer index here, got False"),
    (([0, 1], [1.0, math.nan]), "reward must be finite, got nan"),
    ((0, "1"), "reward must be a number, got '1'"),
    ((0, 10**400), "reward must be"),
]
REWARD_BAD = [
    (ArmStats, 1e200, "reward 1e+200 is too large: its square overflows"),
    (CountStats, 1e200, "reward 1e+200 is too large: its square overflows"),
    (BinaryStats, 0.5, "reward must be 0 or 1, got 0.5"),
    (BinaryStats, 2, "reward must be 0 or 1, got 2.0"),
    (BinaryStats, -1, "reward must be 0 or 1, got -1.0"),
    (BinaryStats, 1e200, "reward must be 0 or 1, got 1e+200"),
    (CountStats, -1, "reward must be 0, 1, 2, ..., got -1.0"),
    (CountStats, 1.5, "reward must be 0, 1, 2, ..., got 1.5"),
    (PositiveStats, -0.5, "reward must be 0 or more, got -0.5"),
]


def refuses(stats, action, reward, message):
    before = stats.flat().copy()
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        stats.add(action, reward)
    assert message in str(caught.value)
    np.testing.assert_array_equal(stats.flat(), before)


@pytest.mark.parametrize("kind", ARM_KINDS)
@pytest.mark.parametrize(("pull", "message"), ARM_BAD)
def test_arm_stats_refuse(kind, pull, message):
    refuses(kind.zeros(2).add(0, 1), *pull, message)


@pytest.mark.parametrize(("kind", "reward", "message"), REWARD_BAD)
def test_rewards_of_the_wrong_kind_are_refused(kind, reward, message):
    refuses(kind.zeros(2).add(0, 1), 1, reward, message)
    refuses(kind.zeros(2), [0, 1], [1, reward], message)


@pytest.mark.parametrize(("pull", "message"), LINEAR_BAD)
def test_linear_stats_refuse(pull, message):
    refuses(LinearStats.zeros(2).add([1.0, 1.0], 1.0), *pull, message)


@pytest.mark.parametrize("kind", [*ARM_KINDS, LinearStats])
@pytest.mark.parametrize("shape", [(1,), (7,), (11,), (2, 6)])
def test_from_flat_refuses_a_wrong_shape(kind, shape):
    with pytest.raises(ValueError, match=f"{math.prod(shape)} numbers are not"):
        kind.from_flat(np.zeros(shape))


def test_from_flat_owns_its_numbers():
    for stats in (ArmStats.zeros(2).add(0, 1.0), LinearStats.zeros(2).add([1.0, 2.0], 3.0)):
        flat = stats.flat().copy()
        again = type(stats).from_flat(flat)
        flat[:] = 7.0
        np.testing.assert_array_equal(again.flat(), stats.flat())


def test_statistics_of_different_sizes_do_not_add():
    for kind in (*ARM_KINDS, LinearStats):
        for left, right in ((1, 3), (3, 1), (2, 3)):
            with pytest.raises(ValueError, match=r"3|shapes"):
                kind.zeros(left) + kind.zeros(right)
