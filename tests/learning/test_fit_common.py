"""The likelihood against the joint Gaussian written out; EM never falls and ends at the top."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize

import brute
from adats import GaussianMeta, LinearMeta
from adats.learning import fit_arms, linear
from adats.learning.fit_common import WIDE, Climb, Point, View, climb, holding
from adats.learning.linear import Rows
from adats.models.core.linalg import psd_factor
from fitting_logs import arm_log, arm_table, linear_log, linear_table

MU, COV = [1.0, -2.0], np.array([[0.5, 0.3], [0.3, 0.4]])
SCALE = np.array([0.3, 0.0, 2.0])


def small_log(seed=0, tasks=4, pulls=3):
    """Tasks with one row, with none, with the same row again, and with more."""
    rng = np.random.default_rng(seed)
    log = linear_log(rng, rng.standard_normal((tasks, pulls, 2)), mu=MU, cov=COV, noise=0.7)
    one, same = np.array([[1.0, 2.0]]), np.array([[1.0, -1.0]] * 3)
    more = [(one, [3.0]), (np.zeros((0, 2)), []), (same, [2.0, 3.5, 2.5])]
    return [*log, *more]


def small_arm_log(seed=0):
    rng = np.random.default_rng(seed)
    log = arm_log(rng, rng.integers(3, size=(6, 5)), mu=[5.0, 6.0, 7.0], scale=SCALE, noise=0.5)
    return [*log, ([0], [5.5]), ([], []), ([1, 1, 1], [6.0, 5.0, 7.0])]


def written_out(log, centre, width, cov, noise):
    """Log density of all rewards and the posterior of mu, from the dense joint Gaussian."""
    d = len(cov)
    tasks = [
        brute.JointTask(np.eye(d), cov, np.reshape(x, (-1, d)), np.array(y), noise) for x, y in log
    ]
    return brute.joint(centre, np.diag(width**2), tasks)


# The likelihood


@pytest.mark.parametrize("cov", [COV, np.diag([0.5, 0.0]), np.ones((2, 2)), np.zeros((2, 2))])
def test_the_linear_likelihood_is_that_of_the_joint_gaussian(cov):
    log = small_log()
    table = linear_table(log, 2)
    rows, frame = linear.rows_of(table)
    view = linear.look(
        rows, Point(psd_factor(cov) / frame.unit[:, None], (0.7 / frame.spread) ** 2)
    )
    expected = written_out(log, frame.centre, WIDE * frame.unit, cov, 0.7)
    shift = table.n.sum() * np.log(frame.spread)
    np.testing.assert_allclose(view.log_likelihood - shift, expected.log_evidence, rtol=1e-10)
    mean, spread = expected.mu
    np.testing.assert_allclose(frame.centre + frame.unit * view.mu, mean, rtol=1e-7)
    units = np.outer(frame.unit, frame.unit)
    np.testing.assert_allclose(units * view.mu_cov, spread, rtol=1e-6, atol=1e-9)


def test_the_likelihood_of_arms_is_that_of_the_joint_gaussian():
    log = small_arm_log()
    table = arm_table(log, 3)
    pulls, frame = fit_arms.pulls_of(table)
    view = fit_arms.look(pulls, Point(SCALE / frame.spread, (0.5 / frame.spread) ** 2))
    dense = [(np.eye(3)[np.array(a, int)], y) for a, y in log]
    width = np.full(3, WIDE * frame.spread)
    expected = written_out(dense, frame.centre, width, np.diag(SCALE**2), 0.5)
    shift = table.table[:, 0].sum() * np.log(frame.spread)
    np.testing.assert_allclose(view.log_likelihood - shift, expected.log_evidence, rtol=1e-10)
    np.testing.assert_allclose(frame.centre + frame.spread * view.mu, expected.mu[0], rtol=1e-8)
    variances = expected.mu[1].diagonal() / frame.spread**2
    np.testing.assert_allclose(view.mu_cov, variances, rtol=1e-6)


def test_the_likelihood_is_the_evidence_of_the_meta_beliefs():
    """What EM climbs is what `absorb` of every task would say."""
    table = linear_table(small_log(), 2)
    rows, frame = linear.rows_of(table)
    meta = LinearMeta(frame.centre, np.diag((WIDE * frame.unit) ** 2), task_cov=COV, noise=0.7)
    for i in range(len(table)):
        meta = meta.absorb(meta.digest(table.stats(i)).message)
    factor = np.linalg.cholesky(COV) / frame.unit[:, None]
    view = linear.look(rows, Point(factor, (0.7 / frame.spread) ** 2))
    shift = table.n.sum() * np.log(frame.spread)
    np.testing.assert_allclose(view.log_likelihood - shift, meta.log_evidence(), rtol=1e-9)
    table = arm_table(small_arm_log(), 3)
    pulls, frame = fit_arms.pulls_of(table)
    meta = GaussianMeta(frame.centre, WIDE * frame.spread, task_scale=SCALE, noise=0.5)
    for i in range(len(table)):
        meta = meta.absorb(meta.digest(table.stats(i)).message)
    view = fit_arms.look(pulls, Point(SCALE / frame.spread, (0.5 / frame.spread) ** 2))
    shift = table.table[:, 0].sum() * np.log(frame.spread)
    np.testing.assert_allclose(view.log_likelihood - shift, meta.log_evidence(), rtol=1e-9)


def test_held_out_densities_are_those_of_single_tasks():
    log = small_log()
    rows, frame = linear.rows_of(linear_table(log, 2))
    point = Point(np.linalg.cholesky(COV) / frame.unit[:, None], (0.7 / frame.spread) ** 2)
    mu = np.array([0.4, -1.0])
    density = linear.log_density(rows, (mu - frame.centre) / frame.unit, point)
    for (x, y), value in zip(log, density, strict=True):
        expected = brute.one_task(mu, COV, np.reshape(x, (-1, 2)), np.array(y), 0.7)[2]
        np.testing.assert_allclose(value - len(y) * np.log(frame.spread), expected, rtol=1e-9)
    log = small_arm_log()
    pulls, arm_frame = fit_arms.pulls_of(arm_table(log, 3))
    mu = np.array([4.0, 5.0, 6.0])
    point = Point(SCALE / arm_frame.spread, (0.5 / arm_frame.spread) ** 2)
    density = fit_arms.log_density(pulls, (mu - arm_frame.centre) / arm_frame.spread, point)
    for (a, y), value in zip(log, density, strict=True):
        x = np.eye(3)[np.array(a, int)]
        expected = brute.one_task(mu, np.diag(SCALE**2), x, np.array(y), 0.5)[2]
        np.testing.assert_allclose(value - len(y) * np.log(arm_frame.spread), expected, rtol=1e-9)


def test_slopes_are_derivatives():
    rows, _ = linear.rows_of(linear_table(small_log(), 2))
    cov, v, h = np.array([[0.5, 0.2], [0.2, 0.4]]), 0.4, 1e-5

    def at(move, more=0.0):
        point = Point(np.linalg.cholesky(cov + move), v + more)
        return linear.look(rows, point).log_likelihood

    view = linear.look(rows, Point(np.linalg.cholesky(cov), v))
    for way in (np.diag([1.0, 0.0]), np.diag([0.0, 1.0]), np.array([[0.0, 1.0], [1.0, 0.0]])):
        difference = (at(h * way) - at(-h * way)) / (2 * h)
        np.testing.assert_allclose((view.slope * way).sum(), difference, rtol=1e-6)
    difference = (at(0.0, h) - at(0.0, -h)) / (2 * h)
    np.testing.assert_allclose(view.slope_variance, difference, rtol=1e-6)

    pulls, _ = fit_arms.pulls_of(arm_table(small_arm_log(), 3))
    variances = np.array([0.3, 0.1, 2.0])
    view = fit_arms.look(pulls, Point(np.sqrt(variances), v))
    for k, e in enumerate(np.eye(3)):
        sides = [fit_arms.look(pulls, Point(np.sqrt(variances + s * h * e), v)) for s in (1, -1)]
        difference = (sides[0].log_likelihood - sides[1].log_likelihood) / (2 * h)
        np.testing.assert_allclose(view.slope[k], difference, rtol=1e-6)
    sides = [fit_arms.look(pulls, Point(np.sqrt(variances), v + s * h)) for s in (1, -1)]
    difference = (sides[0].log_likelihood - sides[1].log_likelihood) / (2 * h)
    np.testing.assert_allclose(view.slope_variance, difference, rtol=1e-6)


def test_chunks_do_not_matter(monkeypatch):
    rows, _ = linear.rows_of(linear_table(small_log(), 2))
    point = Point(np.linalg.cholesky(COV), 0.4)
    whole, densities = linear.look(rows, point), linear.log_density(rows, np.ones(2), point)
    monkeypatch.setattr(linear, "CHUNK", 3)
    cut, _ = linear.rows_of(linear_table(small_log(), 2))
    for left, right in zip(rows, cut, strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-12, atol=1e-12)
    parts = linear.look(rows, point)
    for left, right in zip(whole[:5], parts[:5], strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(whole.next.factor, parts.next.factor, rtol=1e-10, atol=1e-12)
    np.testing.assert_array_equal(linear.log_density(rows, np.ones(2), point), densities)


def test_a_sum_over_tasks_is_a_sum_over_parts():
    rows, _ = linear.rows_of(linear_table(small_log(), 2))
    point = Point(np.linalg.cholesky(COV), 0.4)
    whole = linear.messages(rows, point)
    halves = [linear.messages(rows.subset(np.arange(a, b)), point) for a, b in ((0, 3), (3, 7))]
    for name in ("m", "h", "c"):
        joined = np.concatenate([getattr(half, name) for half in halves])
        np.testing.assert_allclose(joined, getattr(whole, name), rtol=1e-12, atol=1e-14)


# EM


def start(rows):
    return Point(np.eye(rows.y.shape[1]) / np.sqrt(rows.y.shape[1]), 0.5)


@st.composite
def designs(draw):
    """Logs with few different rows: most Gram matrices are singular, some tasks are empty."""
    d, tasks = draw(st.integers(1, 3)), draw(st.integers(2, 6))
    entry = st.sampled_from([-1.0, 0.0, 0.5, 2.0])
    row = st.lists(entry, min_size=d, max_size=d)
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    log = []
    for _ in range(tasks):
        x = np.array(draw(st.lists(row, max_size=5)), float).reshape(-1, d)
        theta = 1.0 + draw(st.sampled_from([0.0, 0.1, 3.0])) * rng.standard_normal(d)
        log.append((x, x @ theta + rng.standard_normal(len(x))))
    log.append((np.ones((3, d)), rng.standard_normal(3)))  # so that the noise is identifiable
    return linear_table(log, d), rng


@given(designs(), st.booleans())
def test_a_step_of_em_never_falls(case, diagonal):
    table, rng = case
    rows, _ = linear.rows_of(table)
    d = rows.y.shape[1]
    for _ in range(3):
        factor = rng.standard_normal((d, d)) * 10.0 ** rng.uniform(-3, 1)
        if diagonal:
            factor = np.diag(factor.diagonal())
        point = Point(factor, 10.0 ** rng.uniform(-3, 2))
        for _ in range(3):
            view = linear.look(rows, point, diagonal=diagonal)
            after = linear.look(rows, view.next, diagonal=diagonal)
            assert after.log_likelihood >= view.log_likelihood - 1e-9 * abs(view.log_likelihood)
            assert (
                not diagonal or not (view.next.factor - np.diag(view.next.factor.diagonal())).any()
            )
            point = view.next


@given(st.integers(0, 2**32 - 1))
def test_a_step_of_em_for_arms_never_falls(seed):
    rng = np.random.default_rng(seed)
    scale = 10.0 ** rng.uniform(-2, 1, 3)
    choices = [rng.integers(3, size=size) for size in rng.integers(4, size=5)]
    log = arm_log(rng, choices, mu=np.zeros(3), scale=scale, noise=1.0)
    pulls, _ = fit_arms.pulls_of(arm_table([*log, ([0, 0], rng.standard_normal(2))], 3))
    point = Point(10.0 ** rng.uniform(-3, 1, 3), 10.0 ** rng.uniform(-3, 2))
    for _ in range(5):
        view = fit_arms.look(pulls, point)
        after = fit_arms.look(pulls, view.next)
        assert after.log_likelihood >= view.log_likelihood - 1e-9 * abs(view.log_likelihood)
        point = view.next


def test_a_step_written_out():
    """The moments of mu and of u = (theta - mu)/L given all rewards, from their joint Gaussian.

    The step makes A the regression of y - x mu on x u, σ² what it leaves, and L Lᵀ = A² E u².
    """
    rng = np.random.default_rng(6)
    log = [(np.ones((n, 1)), rng.normal(3.0, 2.0, n)) for n in (3, 1, 4)]
    rows, frame = linear.rows_of(linear_table(log, 1))
    size, v, tasks = 0.7, 0.4, np.repeat(np.arange(3), [3, 1, 4])
    y = (np.concatenate([y for _, y in log]) - frame.centre[0]) / frame.spread
    x = np.column_stack([np.ones(8), size * np.eye(3)[tasks]])  # of mu and the three u
    prior = np.diag([WIDE**2, 1.0, 1.0, 1.0])
    gain = np.linalg.solve(x @ prior @ x.T + v * np.eye(8), x @ prior).T
    mean, cov = gain @ y, prior - gain @ x @ prior
    second = cov + np.outer(mean, mean)
    square = second.diagonal()[1:]  # E u²
    cross = y * mean[1:][tasks] - second[0, 1:][tasks]  # E (y - mu) u
    slope = cross.sum() / square[tasks].sum()
    left = y**2 - 2 * y * mean[0] + second[0, 0] - 2 * slope * cross + slope**2 * square[tasks]
    goal = linear.look(rows, Point(np.array([[size]]), v)).next
    np.testing.assert_allclose(goal.variance, left.mean(), rtol=1e-9)
    np.testing.assert_allclose(goal.factor[0, 0], slope * np.sqrt(square.mean()), rtol=1e-9)
    table = arm_table([([0] * len(y), y) for _, y in log], 1)
    same = fit_arms.look(fit_arms.pulls_of(table)[0], Point(np.array([size]), v)).next
    np.testing.assert_allclose([*same.factor, same.variance], [goal.factor[0, 0], goal.variance])


@given(designs(), st.booleans())
def test_em_climbs_and_converges(case, diagonal):
    rows, _ = linear.rows_of(case[0])
    found = climb(partial(linear.look, rows, diagonal=diagonal), start(rows))
    assert (np.diff(found.curve) > 0).all()
    assert found.converged
    after = linear.look(rows, found.view.next, diagonal=diagonal).log_likelihood
    assert after - found.curve[-1] <= 1e-5  # one more step gains nothing
    factor, v = found.point
    tasks = len(rows.n)
    assert np.abs(factor.T @ found.view.slope @ factor).max() <= 0.02 * tasks
    assert abs(v * found.view.slope_variance) <= 0.02 * rows.n.sum()


def best_of_scipy(rows, d, diagonal=False):
    """The greatest likelihood that BFGS finds from several points, over factors of Σ_0."""
    places = np.diag_indices(d) if diagonal else np.tril_indices(d)

    def loss(x):
        factor = np.zeros((d, d))
        factor[places] = x[:-1]
        return -linear.look(rows, Point(factor, np.exp(x[-1]))).log_likelihood

    size = len(places[0]) + 1
    rng = np.random.default_rng(0)
    starts = [np.append(np.ones(size - 1), 0.0), *rng.standard_normal((4, size))]
    return max(-optimize.minimize(loss, x, method="BFGS").fun for x in starts)


@pytest.mark.parametrize("diagonal", [False, True])
@pytest.mark.parametrize("spread", [0.0, 0.1, 1.0, 10.0])
def test_em_ends_at_the_top(spread, diagonal):
    rng = np.random.default_rng(int(10 * spread))
    cov = spread**2 * np.array([[1.0, 0.6], [0.6, 1.0]]) + 1e-12 * np.eye(2)
    log = linear_log(rng, rng.standard_normal((12, 4, 2)), mu=[0.0, 1.0], cov=cov, noise=1.0)
    rows, _ = linear.rows_of(linear_table([*log, (np.ones((1, 2)), [2.0])], 2))
    best = best_of_scipy(rows, 2, diagonal)
    for scale in (0.01, 1.0, 30.0):
        for v in (0.01, 1.0):
            at = Point(scale * np.eye(2), v)
            found = climb(partial(linear.look, rows, diagonal=diagonal), at)
            assert abs(found.curve[-1] - best) <= 2e-4


def test_em_for_arms_ends_at_the_top():
    pulls, _ = fit_arms.pulls_of(arm_table(small_arm_log(3), 3))

    def loss(x):
        return -fit_arms.look(pulls, Point(np.exp(x[:-1]), np.exp(x[-1]))).log_likelihood

    best = -optimize.minimize(loss, np.zeros(4), method="BFGS").fun
    for scale in (0.01, 1.0, 30.0):
        found = climb(partial(fit_arms.look, pulls), Point(np.full(3, scale), 1.0))
        assert abs(found.curve[-1] - best) <= 2e-4


def test_the_balanced_layout_by_hand():
    """Three tasks, two pulls each: (1, 3), (6, 8), (11, 13).

    Within: each pair has a sum of squares of 2, so σ² = 6 / 3 = 2. The means 2, 7 and 12 have a
    variance of 25, of which σ²/2 = 1 is noise: σ_0² = 24. mu is 7 ± √(25/3).
    """
    table = arm_table([([0, 0], [1.0, 3.0]), ([0, 0], [6.0, 8.0]), ([0, 0], [11.0, 13.0])], 1)
    pulls, frame = fit_arms.pulls_of(table)
    found = climb(partial(fit_arms.look, pulls), Point(np.ones(1), frame.noise), enough=1e-12)
    assert frame.spread**2 * frame.noise == pytest.approx(2.0, rel=1e-12)
    assert frame.spread**2 * found.point.variance == pytest.approx(2.0, rel=1e-4)
    assert frame.spread**2 * found.point.factor[0] ** 2 == pytest.approx(24.0, rel=1e-4)
    assert frame.centre[0] + frame.spread * found.view.mu[0] == pytest.approx(7.0, rel=1e-9)
    assert frame.spread**2 * found.view.mu_cov[0] == pytest.approx(25 / 3, rel=1e-4)
    same = linear_table([(np.ones((2, 1)), [1.0, 3.0]), (np.ones((2, 1)), [6.0, 8.0]),
                         (np.ones((2, 1)), [11.0, 13.0])], 1)  # fmt: skip
    rows, frame = linear.rows_of(same)
    found = climb(partial(linear.look, rows), Point(np.eye(1), frame.noise), enough=1e-12)
    assert frame.spread**2 * found.point.variance == pytest.approx(2.0, rel=1e-4)
    assert frame.unit[0] ** 2 * found.point.factor[0, 0] ** 2 == pytest.approx(24.0, rel=1e-4)


def test_a_spread_that_is_less_than_noise_is_zero():
    """By hand: means 2, 2 and 2.3 vary less than noise in them would."""
    table = arm_table([([0, 0], [1.0, 3.0]), ([0, 0], [0.0, 4.0]), ([0, 0], [1.0, 3.6])], 1)
    pulls, frame = fit_arms.pulls_of(table)
    found = climb(partial(fit_arms.look, pulls), Point(np.ones(1), frame.noise))
    assert found.point.factor[0] ** 2 <= 0.01 * found.point.variance
    total = ((np.array([1, 3, 0, 4, 1, 3.6]) - 2.1) ** 2).sum()  # all six are draws around 2.1
    assert frame.spread**2 * found.point.variance == pytest.approx(total / 5, rel=0.01)


# The search itself, on a likelihood made up for it


def hill(x, goal):
    point = Point(np.array([goal]), 1.0)
    none = np.zeros(1)
    return View(-((x.factor[0] - 1.0) ** 2), none, none, none, 0.0, point)


def test_a_stretched_step_that_falls_is_taken_back():
    seen = []

    def look(x):
        seen.append(float(x.factor[0]))
        return hill(x, x.factor[0] + 0.3 * (1.0 - x.factor[0]))

    found = climb(look, Point(np.zeros(1), 1.0))
    assert found.converged
    assert found.point.factor[0] == pytest.approx(1.0, abs=0.01)
    assert (np.diff(found.curve) > 0).all()
    assert len(seen) > len(found.curve)  # some were tried and not taken
    assert max(seen) > 1.0


def test_a_fall_of_plain_em_is_an_error():
    def look(x):
        return hill(x, x.factor[0] - 0.1)

    with pytest.raises(ArithmeticError, match=r"fell by 0\.21"):
        climb(look, Point(np.zeros(1), 1.0))


def test_the_noise_can_be_held():
    rows, _ = linear.rows_of(linear_table(small_log(), 2))
    free = climb(partial(linear.look, rows), start(rows))
    held = climb(holding(partial(linear.look, rows), 0.5), start(rows))
    assert held.point.variance == 0.5 != free.point.variance
    assert (np.diff(held.curve) > 0).all()
    assert held.curve[-1] < free.curve[-1]


def test_a_spread_that_dwarfs_the_noise_is_no_failure(monkeypatch):
    """Where rounding eats the identity there is no Cholesky factor; eigenvalues do the same."""
    rows, _ = linear.rows_of(linear_table(small_log(), 2))
    flat = Point(1e5 * np.array([[1.0, 0.0], [1.0, 0.0]]), 1e-10)
    assert np.isfinite(linear.log_density(rows, np.zeros(2), flat)).all()
    point = Point(np.linalg.cholesky(COV), 0.4)
    view = linear.look(rows, point)

    def fails(_):
        raise np.linalg.LinAlgError

    monkeypatch.setattr(np.linalg, "cholesky", fails)
    for left, right in zip(linear.look(rows, point)[:5], view[:5], strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-9, atol=1e-12)


def test_a_search_without_end_says_so(monkeypatch):
    monkeypatch.setattr("adats.learning.fit_common.MOST", 3)
    rows, _ = linear.rows_of(linear_table(small_log(), 2))
    found = climb(partial(linear.look, rows), Point(30.0 * np.eye(2), 0.01))
    assert isinstance(found, Climb)
    assert not found.converged
    assert len(found.curve) == 4


def test_round_off_in_large_rewards_is_bounded():
    """A level a million times the noise leaves the estimate of σ; ten times more is refused."""
    rng = np.random.default_rng(5)
    log = linear_log(rng, np.ones((50, 10, 1)), mu=[0.0], cov=np.eye(1), noise=1.0)
    _, near = linear.rows_of(linear_table(log, 1))
    _, far = linear.rows_of(linear_table([(x, y + 3e5) for x, y in log], 1))
    np.testing.assert_allclose(far.spread**2 * far.noise, near.spread**2 * near.noise, rtol=1e-3)
    with pytest.raises(ValueError, match="subtract"):
        linear.rows_of(linear_table([(x, y + 1e7) for x, y in log], 1))


def test_rows_are_an_exact_reduction():
    """R and y of a task give back its Gram matrix, Σ ay and Σ y²."""
    table = linear_table(small_log(), 2)
    rows, frame = linear.rows_of(table)
    assert isinstance(rows, Rows)
    inverse = frame.unit[:, None] / frame.spread
    gram = np.einsum("ski,skj->sij", rows.root / inverse[:, 0], rows.root / inverse[:, 0])
    np.testing.assert_allclose(gram, table.moments[:, :-1, :-1], atol=1e-12)
    left = [y - x @ frame.centre for x, y in small_log()]
    squares = [(e**2).sum() for e in left]
    total = frame.spread**2 * ((rows.y**2).sum(axis=1) + rows.rest)
    np.testing.assert_allclose(total, squares, rtol=1e-9, atol=1e-12)
