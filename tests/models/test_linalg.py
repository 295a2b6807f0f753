import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from adats.models.core import linalg
from adats.models.core.sums import Sum


def psd(rng, dim, rank):
    """A random positive semi-definite matrix of that rank."""
    root = rng.standard_normal((dim, rank))
    return root @ root.T


def summed(terms):
    total = Sum.zeros(1)
    for term in terms:
        total = total.add(np.array([term]))
    return float(total.value()[0])


def test_sum_of_a_million_terms_of_all_sizes_has_the_error_of_one():
    rng = np.random.default_rng(0)
    terms = rng.standard_normal((100_000, 10)) * 10.0 ** rng.integers(-9, 9, (100_000, 10))
    total = Sum.zeros(10)
    for row in terms:
        total = total.add(row)
    exact = np.array([math.fsum(column) for column in terms.T])
    biggest = np.abs(terms).max(axis=0)
    assert (np.abs(total.value() - exact) <= 2 * np.finfo(float).eps * np.abs(exact)).all()
    plain = terms.sum(axis=0)  # what the compensation is for
    assert (np.abs(plain - exact) > np.abs(total.value() - exact)).any()
    for row in terms[::-1]:
        total = total.add(-row)
    # what is left is the round-off of `low`, itself an epsilon of the terms
    assert np.abs(total.value()).max() <= 1e-26 * len(terms) * biggest.max()


@given(st.lists(st.floats(-1e150, 1e150), max_size=50))
def test_sum_of_any_terms_equals_the_fraction(terms):
    exact = sum(map(Fraction, terms), Fraction(0))
    size = sum(map(abs, map(Fraction, terms)), Fraction(0))
    bound = Fraction(2.0**-52) * abs(exact) + Fraction(len(terms) ** 2 * 2.0**-104) * size
    assert abs(Fraction(summed(terms)) - exact) <= bound + Fraction(5e-324)


def test_sum_keeps_what_a_float_rounds_away_and_does_not_change():
    start = Sum(np.array([1.0]), np.array([0.0]))
    later = start.add(np.array([1e-30])).add(np.array([-1.0]))
    assert later.value() == 1e-30
    assert start.high == 1.0
    assert start.low == 0.0


@pytest.mark.parametrize(("dim", "rank"), [(1, 1), (4, 4), (4, 2), (6, 1), (3, 0)])
@pytest.mark.parametrize("size", [1e-8, 1.0, 1e8])
def test_factors_multiply_to_the_matrix(dim, rank, size):
    cov = size * psd(np.random.default_rng(dim), dim, rank)
    factor = linalg.psd_factor(cov)
    assert factor.flags.c_contiguous
    np.testing.assert_allclose(factor @ factor.T, cov, rtol=0, atol=1e-12 * size * dim)


def test_factor_of_a_definite_matrix_is_the_cholesky_factor():
    cov = psd(np.random.default_rng(1), 4, 9)
    np.testing.assert_allclose(linalg.psd_factor(cov), np.linalg.cholesky(cov), rtol=1e-13)


def test_factor_forgives_a_negative_eigenvalue_of_round_off():
    factor = linalg.psd_factor(np.diag([1.0, -1e-17, 0.0]))
    np.testing.assert_allclose(factor @ factor.T, np.diag([1.0, 0.0, 0.0]), atol=1e-16)


@pytest.mark.parametrize(("rows", "columns"), [(3, 3), (3, 7), (1, 5)])
@pytest.mark.parametrize("zero", [False, True])
def test_square_factor(rows, columns, zero):
    wide = np.random.default_rng(2).standard_normal((rows, columns)) * (not zero)
    square = linalg.square_factor(wide)
    assert square.shape == (rows, rows)
    np.testing.assert_allclose(square @ square.T, wide @ wide.T, atol=1e-13)


@pytest.mark.parametrize("prior_rank", [0, 2, 4])
@pytest.mark.parametrize("data_rank", [0, 1, 4])
def test_condition_equals_the_dense_formulas(prior_rank, data_rank):
    rng = np.random.default_rng(10 * prior_rank + data_rank)
    mean, cov = rng.standard_normal(4), psd(rng, 4, prior_rank)
    x, y = rng.standard_normal((data_rank, 4)), rng.standard_normal(data_rank)
    new = linalg.condition(mean, linalg.psd_factor(cov), x.T @ x, x.T @ y)  # y ~ N(x @ theta, I)
    seen = x @ cov @ x.T + np.eye(data_rank)
    gain = np.linalg.solve(seen, x @ cov).T
    np.testing.assert_allclose(new.mean, mean + gain @ (y - x @ mean), atol=1e-12)
    np.testing.assert_allclose(new.factor @ new.factor.T, cov - gain @ x @ cov, atol=1e-12)
    if data_rank:
        evidence = stats.multivariate_normal.logpdf(y, x @ mean, seen)
        flat = stats.norm.logpdf(y).sum()  # the factor that the quadratic form leaves out
        assert new.log_integral() == pytest.approx(evidence - flat, abs=1e-12)
    else:
        assert new.log_integral() == 0.0


def test_condition_takes_a_wide_factor():
    rng = np.random.default_rng(3)
    mean, wide, precision = rng.standard_normal(3), rng.standard_normal((3, 8)), psd(rng, 3, 2)
    shift = rng.standard_normal(3)
    left = linalg.condition(mean, wide, precision, shift)
    right = linalg.condition(mean, linalg.square_factor(wide), precision, shift)
    np.testing.assert_allclose(left.mean, right.mean, atol=1e-12)
    np.testing.assert_allclose(
        left.factor @ left.factor.T, right.factor @ right.factor.T, atol=1e-12
    )
    assert left.log_integral() == pytest.approx(right.log_integral(), abs=1e-12)


@pytest.mark.parametrize("number", [0.0, 0.3, 2.0])
def test_a_number_stands_for_a_multiple_of_the_identity(number):
    precision = psd(np.random.default_rng(4), 3, 2)
    matrix = linalg.as_matrix(number, 3)
    np.testing.assert_array_equal(matrix, number * np.eye(3))
    assert linalg.as_matrix(precision, 3) is precision
    left, right = linalg.whiten(number, precision), linalg.whiten(matrix, precision)
    np.testing.assert_allclose(left[0].T @ left[0], right[0].T @ right[0], atol=1e-13)
    assert linalg.log_det(left[1]) == pytest.approx(linalg.log_det(right[1]), abs=1e-13)
    inner = np.eye(3) + number**2 * precision
    assert linalg.log_det(left[1]) == pytest.approx(np.linalg.slogdet(inner)[1] / 2, abs=1e-13)


@pytest.mark.parametrize("factor", [1e5, 1e5 * np.eye(3)])
def test_round_off_below_zero_is_no_information(factor):
    precision = np.diag([2.0, 0.0, -1e-9])  # times 1e10 this is -10: no Cholesky factor
    half, lower = linalg.whiten(factor, precision)
    expected = np.diag([1 / (1e-10 + 2.0), 1e10, 1e10])
    np.testing.assert_allclose(half.T @ half, expected, rtol=1e-12)
    assert linalg.log_det(lower) == pytest.approx(0.5 * math.log1p(2e10), rel=1e-12)


@pytest.mark.parametrize("size", [1e-6, 1.0, 1e6])
def test_inverse_of_a_definite_matrix_and_its_largest_eigenvalue(size):
    cov = size * psd(np.random.default_rng(5), 3, 7)
    inverse, largest = linalg.psd_inverse(cov)
    np.testing.assert_allclose(inverse @ cov, np.eye(3), atol=1e-12)
    assert largest == pytest.approx(np.linalg.eigvalsh(np.linalg.inv(cov))[-1], rel=1e-10)
    assert linalg.psd_inverse(np.array(4.0)) == (0.25, 0.25)


@pytest.mark.parametrize("cov", [np.array(0.0), np.zeros((2, 2)), np.ones((2, 2))])
def test_a_singular_matrix_has_an_infinite_inverse(cov):
    assert linalg.psd_inverse(cov)[1] == np.inf
