"""Calibration: transforms one step ahead, exact, uniform where all is right, and telling."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from scipy.special import kolmogorov

from adats.learning.checks import ROWS, TASKS, Calibration, calibrate
from adats.learning.fit_common import Fitted
from adats.learning.fitting import estimate
from adats.learning.tables import ArmTable, LinearTable
from adats.models import (
    BetaArms,
    BinaryStats,
    CountStats,
    GaussianArms,
    GaussianMeta,
    LinearBelief,
    LinearMeta,
    LinearStats,
    MixtureArms,
    MixtureMeta,
    PoissonArms,
)
from adats.models.core.stats import ArmStats


def ranked(prior, actions, rewards, rng):
    """Points of the steps into which rewards fall."""
    low, high = prior.ranks(actions, rewards)
    return low + rng.random(rewards.size) * (high - low)


def others(meta, stats):
    """The prior of a task without what the task itself said."""
    return meta.absorb(-meta.digest(stats).message).task_prior()


ARMS = 3


class Half:
    """A random number that is always one half: the middle of every step."""

    def random(self, size):
        return np.full(size, 0.5)


def played(kind, theta, rounds, rng, *, greedy=0.0):
    """Rows and statistics of tasks in which a bandit goes for the best average so far, or not."""
    draw = {
        ArmStats: lambda mean: rng.normal(mean, 1.0),
        BinaryStats: lambda mean: float(rng.random() < mean),
        CountStats: lambda mean: float(rng.poisson(mean)),
    }[kind]
    rows, tables = [], []
    for s, means in enumerate(theta):
        told, actions, rewards = kind.zeros(len(means)), [], []
        for _ in range(rounds):
            average = (told.total + 1.0) / (told.count + 1.0)
            arm = int(average.argmax() if rng.random() < greedy else rng.integers(len(means)))
            actions.append(arm)
            rewards.append(draw(means[arm]))
            told = told.add(arm, rewards[-1])
        rows.append((s, np.array(actions), np.array(rewards)))
        tables.append(told.table)
    names = tuple(range(theta.shape[1]))
    return rows, ArmTable(kind, tuple(range(len(theta))), names, np.array(tables))


def known(meta):
    """A fit by hand: only its meta-belief is used here."""
    return Fitted(meta, *(np.zeros(0),) * 3, 1.0, 0.0, np.zeros(0), None, (), (), None, None)


# exact


def test_gaussian_transforms_are_those_of_beliefs_conditioned_in_turn():
    rng = np.random.default_rng(0)
    prior = GaussianArms([0.0, 1.0, -1.0], [1.0, 0.5, 0.0], [1.0, 2.0, 0.5])
    actions, rewards = rng.integers(ARMS, size=12), rng.standard_normal(12)
    found = ranked(prior, actions, rewards, rng)
    belief = prior
    for u, arm, y in zip(found, actions.tolist(), rewards, strict=True):
        spread = np.hypot(belief.scale[arm], belief.noise[arm])
        assert u == pytest.approx(stats.norm.cdf(y, belief.mean[arm], spread), abs=1e-12)
        belief = belief.condition(ArmStats.zeros(ARMS).add(arm, y)).belief


def test_linear_transforms_are_those_of_beliefs_conditioned_in_turn():
    rng = np.random.default_rng(1)
    half = rng.standard_normal((3, 2))
    prior = LinearBelief([1.0, 0.0, -1.0], half @ half.T, 0.7)  # singular
    x, rewards = rng.standard_normal((8, 3)), rng.standard_normal(8)
    found = ranked(prior, x, rewards, rng)
    belief = prior
    for u, a, y in zip(found, x, rewards, strict=True):
        spread = np.sqrt(a @ belief.cov @ a + 0.7**2)
        assert u == pytest.approx(stats.norm.cdf(y, a @ belief.mean, spread), abs=1e-9)
        belief = belief.condition(LinearStats.zeros(3).add(a, y)).belief


@pytest.mark.parametrize("family", [BetaArms, PoissonArms])
def test_transforms_of_steps_are_those_of_mixtures_conditioned_in_turn(family):
    rng = np.random.default_rng(2)
    stack = family(rng.gamma(2.0, 1.0, (4, ARMS)), rng.gamma(2.0, 1.0, (4, ARMS)))
    prior = MixtureArms(rng.dirichlet(np.ones(4), ARMS).T, stack)
    actions = rng.integers(ARMS, size=15)
    rewards = rng.integers(2 if family is BetaArms else 5, size=15).astype(float)
    found = ranked(prior, actions, rewards, Half())
    belief = prior
    for u, arm, y in zip(found, actions.tolist(), rewards, strict=True):
        a, b = (p[:, arm] for p in belief.components.parameters())
        if family is BetaArms:
            mass = np.array([b / (a + b), a / (a + b)])
        else:
            mass = stats.nbinom.pmf(np.arange(6)[:, None], a, b / (b + 1))
        mass = mass @ belief.weights[:, arm]
        middle = mass[: int(y)].sum() + mass[int(y)] / 2
        assert u == pytest.approx(middle, abs=1e-9)
        kind = BinaryStats if family is BetaArms else CountStats
        belief = belief.condition(kind.zeros(ARMS).add(arm, y)).belief


def test_the_prior_of_a_task_is_from_the_other_tasks():
    """What the fit of all tasks knows, less the task: the same as never having seen it."""
    rng = np.random.default_rng(3)
    _, table = played(ArmStats, rng.normal(0.0, 1.0, (4, ARMS)), 5, rng)
    meta = GaussianMeta(np.zeros(ARMS), 2.0, task_scale=0.5, noise=1.0)
    messages = [meta.digest(table.stats(i)).message for i in range(4)]
    both = meta.absorb(sum(messages))
    fresh = GaussianMeta(both.mean, both.scale, task_scale=0.5, noise=1.0)
    expected = meta.absorb(sum(messages[1:])).task_prior()
    for seen in (both, fresh):
        prior = others(seen, table.stats(0))
        assert prior.mean == pytest.approx(expected.mean)
        assert prior.scale == pytest.approx(expected.scale)


def test_distance_chance_and_bins():
    values = np.array([0.05, 0.1, 0.5, 0.55, 0.99])
    found = Calibration(values, 1)
    exact = stats.kstest(values, "uniform")
    assert found.distance == pytest.approx(exact.statistic)
    assert found.chance == pytest.approx(kolmogorov(np.sqrt(5) * exact.statistic))
    assert found.bins.tolist() == [1, 1, 0, 0, 0, 2, 0, 0, 0, 1]
    many = np.random.default_rng(0).random(2000) ** 1.05
    exact = stats.kstest(many, "uniform")
    assert Calibration(many, 1).chance == pytest.approx(exact.pvalue, rel=0.1)


# uniform where all is right

WORLDS = {
    "gaussian": (ArmStats, lambda rng, n: rng.normal([0.0, 0.3, 0.6], 0.6, (n, ARMS))),
    "binary": (BinaryStats, lambda rng, n: rng.beta([2.0, 3.0, 4.0], [8.0, 7.0, 6.0], (n, ARMS))),
    "count": (CountStats, lambda rng, n: rng.gamma([2.0, 4.0, 6.0], 0.7, (n, ARMS))),
}


@pytest.mark.statistical
@pytest.mark.parametrize("greedy", [0.0, 0.9])
@pytest.mark.parametrize("model", WORLDS)
def test_uniform_for_tasks_from_the_model_also_if_a_bandit_wrote_the_log(model, greedy):
    kind, world = WORLDS[model]
    rng = np.random.default_rng(4)
    rows, table = played(kind, world(rng, 150), 20, rng, greedy=greedy)
    found = calibrate(table, estimate(table, model=model), rows, rng=rng)
    assert found.values.size == 3000
    assert found.tasks == 150
    assert found.chance > 0.01
    assert found.reading.startswith("Calibrated: ")


def linear_rows(rng, tasks, rounds, *, noise=1.0):
    """A bandit that takes the best of four rows by ridge regression."""
    rows, moments = [], np.zeros((tasks, 3, 3))
    for s in range(tasks):
        theta = rng.normal([1.0, -0.5], 0.5)
        gram, xy, actions, rewards = np.eye(2), np.zeros(2), [], []
        for _ in range(rounds):
            offered = rng.standard_normal((4, 2))
            x = offered[(offered @ np.linalg.solve(gram, xy)).argmax()]
            y = x @ theta + noise * rng.standard_normal()
            gram, xy = gram + np.outer(x, x), xy + x * y
            actions.append(x)
            rewards.append(y)
        z = np.column_stack([actions, rewards])
        moments[s] = np.einsum("ni,nj->ij", z, z)
        rows.append((f"task {s}", np.array(actions), np.array(rewards)))
    names = tuple(task for task, *_ in rows)
    moments = (moments + moments.swapaxes(1, 2)) / 2
    return rows, LinearTable(names, ("a", "b"), np.full(tasks, float(rounds)), moments)


@pytest.mark.statistical
def test_uniform_for_linear_tasks_that_a_bandit_wrote():
    rng = np.random.default_rng(5)
    rows, table = linear_rows(rng, 120, 20)
    found = calibrate(table, estimate(table, model="linear"), rows, rng=rng)
    assert found.chance > 0.01
    assert found.reading.startswith("Calibrated: ")


@pytest.mark.statistical
def test_on_adaptive_logs_the_aggregate_is_not_uniform_though_all_is_right():
    """An arm with bad luck is not pulled again, so averages lie low: why we go step by step."""
    rng = np.random.default_rng(6)
    theta = rng.normal(0.0, 0.3, (1500, 4))
    rows, table = played(ArmStats, theta, 12, rng, greedy=0.95)
    prior = GaussianArms(np.zeros(4), 0.3, 1.0)
    count, total = table.table[:, 0], table.table[:, 1]
    once = (count > 0) & (count < 4)
    spread = np.sqrt(0.3**2 + 1.0 / count[once])
    aggregate = stats.norm.cdf(total[once] / count[once], 0.0, spread)
    assert Calibration(aggregate, 1500).chance < 1e-6
    steps = np.concatenate([ranked(prior, a, y, rng) for _, a, y in rows])
    assert Calibration(steps, 1500).chance > 0.01


# telling where it is not


@pytest.mark.parametrize(("factor", "word"), [(0.5, "too sure"), (2.0, "not sure enough")])
def test_a_noise_that_is_wrong_by_two_shows(factor, word):
    rng = np.random.default_rng(7)
    kind, world = WORLDS["gaussian"]
    rows, table = played(kind, world(rng, 60), 20, rng)
    meta = GaussianMeta([0.0, 0.3, 0.6], 0.1, task_scale=0.6 * factor, noise=factor)
    found = calibrate(table, known(meta), rows, rng=rng)
    assert found.chance < 1e-6
    assert found.distance > 0.1
    assert found.reading.startswith("Not calibrated: ")
    assert word in found.reading


def test_a_linear_noise_that_is_wrong_by_two_shows():
    rng = np.random.default_rng(8)
    rows, table = linear_rows(rng, 40, 20)
    meta = LinearMeta([1.0, -0.5], 0.01, task_cov=0.25, noise=0.5)
    found = calibrate(table, known(meta), rows, rng=rng)
    assert "too sure" in found.reading
    assert found.distance > 0.1


def test_a_level_that_is_wrong_shows_where_it_is_not_learned():
    rng = np.random.default_rng(9)
    rows, table = played(BinaryStats, np.full((160, 1), 0.27), 10, rng)
    stuck = MixtureMeta([1.0], [BetaArms([2000.0], [8000.0])])
    found = calibrate(table, known(stuck), rows, rng=rng)
    assert found.reading.startswith("Not quite calibrated: rewards are higher than predicted")


def test_heavy_tails_show_in_a_fit():
    rng = np.random.default_rng(10)
    rows, table = played(ArmStats, rng.normal(0.0, 0.3, (100, 2)), 20, rng)
    tails = [(task, a, y + 4.0 * (rng.random(20) < 0.04)) for task, a, y in rows]
    cells = np.array([_counted(a, y, 2) for _, a, y in tails])
    heavy = ArmTable(ArmStats, table.tasks, table.arms, cells)
    plain = calibrate(table, estimate(table, model="gaussian"), rows, rng=rng)
    found = calibrate(heavy, estimate(heavy, model="gaussian"), tails, rng=rng)
    assert plain.reading.startswith("Calibrated")
    assert not found.reading.startswith("Calibrated")


def _counted(actions, rewards, arms):
    told = ArmStats.zeros(arms)
    return told.add(actions, rewards).table


def test_a_shape_without_tilt_or_spread_has_words_too():
    values = np.concatenate([np.full(500, 0.211), np.full(500, 0.789)])
    assert "shape" in Calibration(values, 1).reading


# what is looked at


def test_many_tasks_and_rows_are_thinned_out():
    rng = np.random.default_rng(11)
    rows, table = played(ArmStats, rng.normal(0.0, 1.0, (TASKS + 30, 1)), ROWS + 20, rng)
    meta = GaussianMeta([0.0], 0.1, task_scale=1.0, noise=1.0)
    found = calibrate(table, known(meta), rows, rng=rng)
    assert (found.tasks, found.values.size) == (TASKS, TASKS * ROWS)
    first, last = rows[0], rows[-1]
    for values, (i, actions, rewards) in (
        (found.values[:ROWS], first),
        (found.values[-ROWS:], last),
    ):
        prior = others(meta, table.stats(i))
        assert values == pytest.approx(ranked(prior, actions[:ROWS], rewards[:ROWS], rng))


def test_rows_of_nothing_or_of_unknown_tasks_are_errors():
    rng = np.random.default_rng(12)
    rows, table = played(ArmStats, np.zeros((3, 1)), 2, rng)
    fitted = known(GaussianMeta([0.0], 0.1, task_scale=1.0, noise=1.0))
    with pytest.raises(ValueError, match="no rows to look at"):
        calibrate(table, fitted, [], rng=rng)
    with pytest.raises(ValueError, match="task 'x' has rows, but is not in the statistics"):
        calibrate(table, fitted, [("x", rows[0][1], rows[0][2])], rng=rng)
    joint = MixtureMeta([1.0], [BetaArms([1.0, 1.0], [1.0, 1.0])])
    rows, table = played(BinaryStats, np.full((3, 2), 0.5), 2, rng)
    with pytest.raises(ValueError, match="every arm must have a mixture of its own"):
        calibrate(table, replace(fitted, meta=joint), rows, rng=rng)
