"""Is sharing worth it: the prior that shares nothing, held-out scores, simulation, the rule."""

import numpy as np
import pytest
from scipy import stats

from adats.learning.fitting import ArmTable, LinearTable, estimate
from adats.learning.no_sharing import action_rows, alone, alone_arms, alone_linear, intercept
from adats.learning.savings import Savings, _Normal, matched, savings_arms, savings_linear
from adats.learning.fitting.shrinkage import folds
from adats.learning.judge import held_out_gains, judged, usual_rounds, verdict
from adats.models import (
    BetaArms,
    BinaryStats,
    CountStats,
    GaussianArms,
    LinearBelief,
    LinearStats,
    MixtureArms,
    PoissonArms,
)
from adats.models.core.stats import ArmStats


def arm_table(kind, theta, pulls, rng, noise=1.0):
    """Every arm pulled so many times in every task."""
    rewards = {
        ArmStats: lambda: rng.normal(theta, noise),
        BinaryStats: lambda: (rng.random(theta.shape) < theta).astype(float),
        CountStats: lambda: rng.poisson(theta).astype(float),
    }[kind]
    table = np.zeros((len(theta), kind.ROWS, theta.shape[1]))
    for _ in range(pulls):
        for s, row in enumerate(rewards()):
            for k, y in enumerate(row):
                kind.count_reward(table[s], k, float(y))
    names = tuple(f"arm {k}" for k in range(theta.shape[1]))
    return ArmTable(kind, tuple(range(len(theta))), names, table)


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


# the prior that shares nothing


def test_alone_gaussian_is_the_most_likely_common_prior():
    rng = np.random.default_rng(0)
    table = arm_table(ArmStats, rng.normal(3.0, 2.0, (50, 3)), 4, rng)
    means = table.table[:, 1] / 4
    prior = alone_arms(table, 1.0)  # averages of 4 rewards vary by v + 1/4
    assert prior.mean == pytest.approx(np.full(3, means.mean()), abs=1e-3)
    assert prior.scale**2 == pytest.approx(np.full(3, means.var() - 0.25), rel=1e-3)
    assert (prior.noise == 1.0).all()


@pytest.mark.parametrize(
    ("kind", "draw"),
    [
        (BinaryStats, lambda rng: rng.beta(0.4, 1.2, (80, 3))),
        (CountStats, lambda rng: rng.gamma(2.0, 50.0, (80, 3))),
        (ArmStats, lambda rng: rng.normal(-400.0, 0.1, (80, 3))),
    ],
)
def test_no_common_prior_is_more_likely(kind, draw):
    rng = np.random.default_rng(1)
    table = arm_table(kind, draw(rng), 5, rng)
    best = alone_arms(table, 1.0)
    stats_of = [table.stats(i) for i in range(len(table))]

    def score(prior):
        return sum(prior.condition(s).log_evidence for s in stats_of)

    first, second = best.parameters()[:2]
    top = score(best)
    for a, b in ((1.05, 1.0), (1.0, 1.05), (0.95, 1.0), (1.0, 0.95), (1.05, 1.05), (0.95, 0.95)):
        moved = first + (a - 1) if kind is ArmStats else first * a
        assert score(best.of(moved, second * b, *best.parameters()[2:])) < top + 1e-3


def test_alone_without_any_success_or_failure():
    for total in (0.0, 3.0):
        cells = np.array([[[3.0, 3.0], [total, total], [total, total]]] * 4)
        prior = alone_arms(ArmTable(BinaryStats, (0, 1, 2, 3), ("a", "b"), cells), None)
        assert (np.abs(prior.mean - total / 3) < 0.1).all()


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
    prior = alone(table, 1.0)
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


# simulation


def test_the_same_prior_saves_nothing_and_certainty_saves_all():
    prior = GaussianArms(mean=[0.0, 0.5, 1.0], scale=0.3, noise=1.0)
    same = savings_arms(prior, prior, rounds=5, seed=1)
    assert same.share == 0.0
    assert same.se == 0.0
    sure = savings_arms(
        GaussianArms(mean=[0.0, 1.0], scale=0.0, noise=1.0),
        GaussianArms(mean=[0.5, 0.5], scale=0.5, noise=1.0),
        rounds=5,
        seed=1,
    )
    assert sure.share == 1.0
    belief = LinearBelief([1.0, 0.0], np.diag([0.2, 0.1]), 1.0)
    rows = (np.zeros(2), np.eye(2))
    assert savings_linear(belief, belief, rows=rows, rounds=4, seed=1).share == 0.0


def test_one_arm_leaves_nothing_to_save():
    prior = BetaArms([1.0], [1.0])
    saved = savings_arms(prior, prior, rounds=3, seed=1)
    assert (saved.share, saved.se) == (0.0, 0.0)


def test_simulated_regret_is_that_of_the_simulator():
    from adats.simulation import simulate
    from adats.simulation.problems import GaussianProblem

    problem = GaussianProblem(arms=3, task_scale=0.7, noise=1.0, mu=[0.0, 0.2, 0.4])
    result = simulate(problem, ["oracle-ts"], tasks=2, rounds=20, runs=1000, seed=3)
    prior = GaussianArms(mean=[0.0, 0.2, 0.4], scale=0.7, noise=1.0)
    regret = savings_arms(prior, prior, rounds=20, seed=5).shared.sum(axis=1)
    expected = result.mean("oracle-ts") / 2
    error = np.hypot(regret.std() / np.sqrt(regret.size), result.se("oracle-ts") / 2)
    assert abs(regret.mean() - expected) < 4 * error


@pytest.mark.parametrize("rounds", [1, 2])
def test_first_rounds_by_hand(rounds):
    """Two arms with the same prior: a first pull is a coin toss, whatever the family."""
    for prior in (
        BetaArms([2.0, 2.0], [2.0, 2.0]),
        PoissonArms([3.0, 3.0], [1.0, 1.0]),
        GaussianArms([0.0, 0.0], [1.0, 1.0], 1.0),
    ):
        saved = savings_arms(prior, prior, rounds=rounds, seed=2)
        draws = prior.of(*(np.tile(p, (200_000, 1)) for p in prior.parameters()))
        theta = draws.sample(np.random.default_rng(0))
        toss = np.abs(theta[:, 0] - theta[:, 1]).mean() / 2
        first = saved.shared[:, 0]
        assert abs(first.mean() - toss) < 4 * first.std() / np.sqrt(first.size)
        if rounds == 2:  # the second knows more
            assert saved.shared[:, 1].mean() < first.mean()


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
    shared, alone = np.array([[1.0, 0.0], [1.0, 2.0]]), np.array([[2.0, 2.0], [3.0, 1.0]])
    saved = Savings(shared, alone)
    assert saved.share == pytest.approx(0.5)
    # rests 1 - 2, 3 - 2: deviation √2 over √2 tasks, over a mean of 4
    assert saved.se == pytest.approx(0.25)


def test_matched_priors_have_the_moments_asked_for():
    for like in (BetaArms([1.0], [1.0]), PoissonArms([1.0], [1.0]), GaussianArms([1.0], 1.0, 1.0)):
        prior = matched(like, np.array([0.3]), np.array([0.1]))
        assert (prior.mean[0], prior.scale[0]) == pytest.approx((0.3, 0.1))
    mixture = MixtureArms([0.5, 0.5], [BetaArms([1.0], [3.0]), BetaArms([6.0], [2.0])])
    assert matched(mixture.components, mixture.mean, mixture.scale).mean == mixture.mean


# held-out scores


def test_a_gain_is_the_difference_of_two_densities_from_the_other_folds():
    rng = np.random.default_rng(7)
    table = arm_table(ArmStats, rng.normal([0.0, 1.0], 0.5, (15, 2)), 2, rng)
    gains = held_out_gains(table, diagonal=False, seed=1)
    place = folds(table.tasks)
    others = table.subset(np.flatnonzero(place != place[3]))
    fitted = estimate(others, model="gaussian")
    own = alone_arms(others, fitted.noise)
    gain = 0.0
    for k in range(2):  # two rewards from their sum and sum of squares: both orders are alike
        _, total, squares = table.table[3, :, k]
        gap = np.sqrt(max(2 * squares - total**2, 0.0))
        y = np.array([total + gap, total - gap]) / 2
        for sign, prior in ((1, fitted.meta.task_prior()), (-1, own)):
            cov = prior.scale[k] ** 2 + fitted.noise**2 * np.eye(2)
            gain += sign * stats.multivariate_normal(np.full(2, prior.mean[k]), cov).logpdf(y)
    assert gains[3] == pytest.approx(gain, abs=1e-8)


def test_a_task_has_no_say_in_the_prior_it_is_scored_with():
    rng = np.random.default_rng(8)
    table = arm_table(ArmStats, rng.normal([0.0, 1.0], 0.5, (30, 2)), 3, rng)
    other = table.table.copy()
    other[4, 2] += 2 * 9.0 * other[4, 1] + 9.0**2 * other[4, 0]  # 9 more in every reward
    other[4, 1] += 9.0 * other[4, 0]
    moved = ArmTable(table.kind, table.tasks, table.arms, other)
    before, after = (held_out_gains(t, diagonal=False, seed=1) for t in (table, moved))
    place = folds(table.tasks)
    same = (place == place[4]) & (np.arange(30) != 4)
    assert (before[same] == after[same]).all()
    assert (before[place != place[4]] != after[place != place[4]]).any()


@pytest.mark.parametrize(("level", "unit"), [(0.0, 1e-4), (30.0, 1.0), (-2e4, 1e3)])
def test_gains_do_not_depend_on_the_units_of_rewards(level, unit):
    rng = np.random.default_rng(9)
    table = arm_table(ArmStats, rng.normal([0.0, 1.0], 0.5, (30, 2)), 3, rng)
    count, total, squares = table.table.swapaxes(0, 1)
    cells = [
        count,
        level * count + unit * total,
        level**2 * count + 2 * level * unit * total + unit**2 * squares,
    ]
    other = ArmTable(ArmStats, table.tasks, table.arms, np.stack(cells, axis=1))
    before, after = (held_out_gains(t, diagonal=False, seed=1) for t in (table, other))
    assert after == pytest.approx(before, abs=2e-3)


def test_gains_do_not_depend_on_the_units_of_features():
    rng = np.random.default_rng(9)
    table = linear_table(rng.normal([1.0, 0.0], 0.5, (30, 2)), 5, rng)
    unit = np.array([1e-3, 50.0, 7.0])  # the last is that of rewards
    other = LinearTable(table.tasks, table.features, table.n, table.moments * np.outer(unit, unit))
    before, after = (held_out_gains(t, diagonal=False, seed=1) for t in (table, other))
    assert after == pytest.approx(before, abs=2e-3)


# the verdict

PULLS = 5
WORLDS = {
    "gaussian": (
        ArmStats,
        lambda rng, n: rng.normal([0.0, 0.5, 1.0], 0.4, (n, 3)),
        lambda rng, n: rng.normal(0.5, 0.6, (n, 3)),
    ),
    "binary": (
        BinaryStats,
        lambda rng, n: rng.beta([2.0, 5.0, 8.0], [18.0, 15.0, 12.0], (n, 3)),
        lambda rng, n: rng.beta(2.0, 4.0, (n, 3)),
    ),
    "count": (
        CountStats,
        lambda rng, n: rng.gamma([4.0, 6.0, 8.0], 0.5, (n, 3)),
        lambda rng, n: rng.gamma(4.0, 0.5, (n, 3)),
    ),
}


def judge(table, seed=1):
    return verdict(table, estimate(table, model=table.model), seed=seed)


@pytest.mark.parametrize("model", WORLDS)
def test_arms_that_are_alike_in_all_tasks_are_shared(model):
    kind, alike, _ = WORLDS[model]
    rng = np.random.default_rng(10)
    found = judge(arm_table(kind, alike(rng, 100), PULLS, rng))
    assert found.answer == "share"
    assert found.sentence.startswith("Share. ")
    assert found.gain > 2 * found.gain_se > 0
    assert found.savings.share > 0.2
    assert found.savings.alone.shape[1] == 3 * PULLS


@pytest.mark.parametrize("seed", [11, 12])
@pytest.mark.parametrize("model", WORLDS)
def test_arms_whose_names_mean_nothing_are_not(model, seed):
    kind, _, worthless = WORLDS[model]
    rng = np.random.default_rng(seed)
    found = judge(arm_table(kind, worthless(rng, 250), PULLS, rng))
    assert found.answer == "do not share"
    assert found.gain < 2 * found.gain_se
    assert abs(found.savings.share) < 0.05


def test_linear_tasks_around_a_common_theta_are_shared():
    rng = np.random.default_rng(12)
    table = linear_table(rng.normal([1.0, -1.0, 0.5], 0.4, (100, 3)), 10, rng)
    found = judge(table)
    assert found.answer == "share"
    assert found.savings.share > 0.2


@pytest.mark.parametrize("constant", [None, 1.0])
def test_linear_tasks_in_all_directions_are_not(constant):
    """Also with an intercept: a level of rewards is nothing that tasks need to share."""
    rng = np.random.default_rng(13)
    level = [0.0 if constant is None else 20.0, 0.0, 0.0]
    table = linear_table(rng.normal(level, 0.7, (200, 3)), 10, rng, constant=constant)
    found = judge(table)
    assert found.answer == "do not share"
    assert abs(found.savings.share) < 0.05


@pytest.mark.parametrize("model", [*WORLDS, "linear"])
def test_a_tiny_log_is_too_little(model):
    rng = np.random.default_rng(14)
    if model == "linear":
        table = linear_table(rng.normal([1.0, -1.0], 0.1, (9, 2)), 10, rng)
    else:
        kind, alike, _ = WORLDS[model]
        table = arm_table(kind, alike(rng, 9), PULLS, rng)
    found = judge(table)
    assert found.answer == "too little data"
    assert "9 tasks are too few to tell; 10 are the least" in found.sentence
    assert found.savings is None
    assert np.isnan(found.gain)


def test_a_small_log_that_promises_much_and_confirms_nothing_is_too_little():
    rng = np.random.default_rng(15)
    table = arm_table(ArmStats, rng.normal([0.0, 0.2, 0.4], 0.5, (14, 3)), 2, rng)
    found = judge(table)
    assert found.answer == "too little data"
    assert "14 tasks do not settle it" in found.sentence
    assert found.savings.share > 0.05


def test_a_log_of_which_no_part_can_be_fitted_is_too_little():
    """Only one task pulls an arm twice, so the noise is unknown without it."""
    cells = np.zeros((12, 3, 2))
    cells[:, :, 0] = np.array([[1.0, y, y * y] for y in np.arange(12.0)])
    cells[0, :, 1] = [3.0, 3.0, 5.0]
    cells[1, :, 1] = [1.0, 4.0, 16.0]
    table = ArmTable(ArmStats, tuple(range(12)), ("a", "b"), cells)
    found = judge(table)
    assert found.answer == "too little data"
    assert "left out there is no fit" in found.sentence


def rule(gain, saved, *, table=None):
    """The answer for gains with a standard error of 1, and a share saved."""
    z = np.tile([-10.0, 10.0], 50)
    gains = gain + z / z.std(ddof=1) * 10.0
    regret = np.ones((20, 3))
    if table is None:
        table = ArmTable(ArmStats, tuple(range(100)), ("a",), np.zeros((100, 3, 1)))
    return judged(table, gains, Savings((1 - saved) * regret, regret))


def test_the_rule():
    assert rule(2.1, 0.051).answer == "share"
    assert rule(1.9, 0.3).answer == "too little data"  # not two standard errors
    assert rule(-1.9, 0.3).answer == "too little data"
    assert rule(2.1, 0.04).answer == "do not share"  # better, but it saves nothing
    assert rule(1.9, 0.04).answer == "do not share"
    assert rule(-2.1, 0.3).answer == "do not share"  # worse, whatever simulation says
    assert "5% is the least" in rule(2.1, 0.04).sentence
    assert "0% ± 0.0%" in rule(0.0, -0.001).sentence
    few = linear_table(np.zeros((14, 3)), 4, np.random.default_rng(0))
    assert rule(-2.1, 0.0, table=few).answer == "too little data"  # under five tasks a feature
    assert rule(2.1, 0.1, table=few).answer == "share"


def test_the_seed_decides_the_simulation_and_rounds_are_as_asked():
    rng = np.random.default_rng(16)
    table = arm_table(ArmStats, rng.normal([0.0, 1.0], 0.5, (20, 2)), 3, rng)
    fitted = estimate(table, model="gaussian")
    one, same, other = (verdict(table, fitted, rounds=7, seed=s) for s in (1, 1, 2))
    assert one.sentence == same.sentence
    assert one.savings.share == same.savings.share != other.savings.share
    assert one.savings.alone.shape[1] == 7
    assert usual_rounds(table) == 6
    for rounds in (0, -1, 1.5, True):
        with pytest.raises(ValueError, match="rounds must be a whole number of at least 1"):
            verdict(table, fitted, rounds=rounds, seed=1)


def test_a_prior_of_another_model_is_an_error():
    rng = np.random.default_rng(17)
    table = arm_table(ArmStats, rng.normal([0.0, 1.0], 0.5, (20, 2)), 3, rng)
    linear = linear_table(rng.normal(0.0, 1.0, (20, 2)), 5, rng)
    with pytest.raises(ValueError, match="statistics of a gaussian log, but a prior of another"):
        verdict(table, estimate(linear, model="linear"), seed=1)
