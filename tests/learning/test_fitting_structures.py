"""Structures of arms: exact where they can be, and the right one is found on held-out tasks."""

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit

from adats import AdaTS, LatentMeta, LinearMeta, load_prior, save_prior
from adats.learning.fitting import StructureScore, chosen, compare, estimate, halves
from adats.learning.tables import ArmTable, Features
from adats.models import BinaryStats, CountStats
from adats.models.core.stats import ArmStats

KINDS = {"binary": BinaryStats, "count": CountStats, "gaussian": ArmStats}
WORLDS = ("independent", "level", "exchangeable", "features")


def made(model, world, *, tasks=400, arms=4, seed=0, pulls=40):
    """A log of arms of such a kind, with a feature of tasks in the world of features."""
    rng = np.random.default_rng([seed, WORLDS.index(world)])
    z = rng.standard_normal((tasks, 1))
    mean = np.linspace(-0.5, 0.5, arms) if world != "exchangeable" else np.zeros(arms)
    theta = mean + 0.3 * rng.standard_normal((tasks, arms))
    if world in ("level", "exchangeable"):
        theta += 0.6 * rng.standard_normal((tasks, 1))
    if world == "features":
        theta += 0.7 * z
    n = rng.integers(pulls // 2, 2 * pulls, (tasks, arms))
    if model == "gaussian":
        parts = [[5 + 2 * theta[t, k] + rng.standard_normal(n[t, k]) for k in range(arms)]
                 for t in range(tasks)]  # fmt: skip
        cells = [[[y.size, y.sum(), (y * y).sum()] for y in row] for row in parts]
        table = np.array(cells, dtype=float).swapaxes(1, 2)
    else:
        s = (
            rng.binomial(n, expit(theta - 1))
            if model == "binary"
            else rng.poisson(n * np.exp(theta))
        )
        table = np.stack([n, s, s, 0 * s][: KINDS[model].ROWS], axis=1).astype(float)
    known = Features(("z",), z) if world == "features" else None
    names = tuple("abcdefgh"[:arms])
    return ArmTable(KINDS[model], tuple(range(tasks)), names, table, task_features=known)


QUICK = [("gaussian", world) for world in WORLDS] + [("binary", "level")]
SLOW = [(model, world) for model in ("binary", "count") for world in WORLDS]


@pytest.mark.parametrize(
    ("model", "world"),
    QUICK + [pytest.param(*case, marks=pytest.mark.heavy) for case in SLOW if case not in QUICK],
)
def test_the_structure_is_found(model, world):
    table = made(model, world, tasks=250)
    scores = compare(table)
    found = chosen(scores)
    if model != "gaussian" and world == "independent":
        # log-normal worlds: beta and gamma priors are near, a level of nearly nothing is exact
        assert found in ("independent", "level")
        level = estimate(table, model=model, structure="level").meta.spread.sizes(0)[1]
        assert level < 0.1
    else:
        assert found == world
    names = [score.structure for score in scores]
    assert ("features" in names) == (world == "features")
    assert ("full" in names) == (world != "exchangeable")  # where names matter
    assert estimate(table, model=model, structure="auto").about["structure"] == found


def test_the_simplest_that_is_not_clearly_worse():
    rng = np.random.default_rng(1)
    base, none = rng.standard_normal(500), np.full(500, np.nan)
    noise = rng.standard_normal(500)
    near, far = base - 0.001 * (noise - noise.mean()) - 1e-6, base - 1.0
    scores = [StructureScore("a", far, none), StructureScore("b", near, none),
              StructureScore("c", base, none)]  # fmt: skip
    assert chosen(scores) == "b"
    reward = rng.standard_normal(500)
    worse = [StructureScore("b", near, reward - 1.0), StructureScore("c", base, reward)]
    assert chosen(worse) == "c"  # decisions speak against b


@pytest.mark.parametrize("structure", ["level", "full", "exchangeable"])
def test_the_density_of_numbers_is_that_of_the_joint_gaussian(structure):
    """Two rewards a task and arm from their sums: both orders are alike."""
    rng = np.random.default_rng(2)
    y = 3 + rng.standard_normal((30, 1, 1)) + 0.5 * rng.standard_normal((30, 3, 1))
    y = y + rng.standard_normal((30, 3, 2))
    cells = np.stack([np.full((30, 3), 2.0), y.sum(axis=2), (y**2).sum(axis=2)], axis=1)
    table = ArmTable(ArmStats, tuple(range(30)), ("a", "b", "c"), cells)
    fitted = estimate(table, model="gaussian", structure=structure)
    phi = np.ones((3, 1)) if structure == "exchangeable" else np.eye(3)
    cov = phi @ fitted.mu_cov @ phi.T + fitted.task_cov
    wide = np.kron(cov, np.ones((2, 2))) + fitted.noise**2 * np.eye(6)
    law = stats.multivariate_normal(np.repeat(phi @ fitted.mu, 2), wide)
    expected = law.logpdf(y.reshape(30, 6))
    np.testing.assert_allclose(fitted.log_density(table), expected, rtol=1e-8)
    given = cov @ np.linalg.inv(cov + fitted.noise**2 / 2 * np.eye(3))
    means = phi @ fitted.mu + (y.mean(axis=2) - phi @ fitted.mu) @ given.T
    np.testing.assert_allclose(fitted.means(table), means, rtol=1e-8)
    prior = fitted.meta.task_prior()
    np.testing.assert_allclose(prior.cov, cov, rtol=1e-8)
    np.testing.assert_allclose(fitted.rewards.mean, phi @ fitted.mu, rtol=1e-8)


@pytest.mark.parametrize("model", ["binary", "count"])
@pytest.mark.parametrize("structure", ["independent", "level", "full", "exchangeable"])
def test_densities_of_many_tasks_are_those_of_one(model, structure):
    table = made(model, "level", tasks=40)
    fitted = estimate(table, model=model, structure=structure)
    prior = fitted.meta.task_prior()
    for i in (0, 7):
        one = prior.condition(fitted.meta.empty() + table.stats(i))
        assert fitted.log_density(table)[i] == pytest.approx(one.log_evidence, abs=1e-6)
        np.testing.assert_allclose(fitted.means(table)[i], one.belief.mean, rtol=1e-5)


def test_features_of_tasks_and_arms_come_back_in_their_own_units():
    rng = np.random.default_rng(3)
    z, x = 50 + 10 * rng.standard_normal((500, 1)), np.array([[100.0], [200.0], [400.0]])
    theta = -1 + 0.05 * (z - 50) + 0.004 * (x[:, 0] - 200) + 0.2 * rng.standard_normal((500, 3))
    n = np.full((500, 3), 60)
    s = rng.binomial(n, expit(theta))
    cells = np.stack([n, s, s], axis=1).astype(float)
    names = ("a", "b", "c")
    table = ArmTable(
        BinaryStats, tuple(range(500)), names, cells,
        task_features=Features(("age",), z), arm_features=Features(("price",), x),
    )  # fmt: skip
    fitted = estimate(table, model="binary", structure="features")
    design = np.kron([1.0, 60.0], np.column_stack([np.ones(3), x]))  # somebody of age 60
    expected = -1 + 0.05 * 10 + 0.004 * (x[:, 0] - 200)
    error = np.sqrt(np.einsum("ki,ij,kj->k", design, fitted.mu_cov, design))
    assert (np.abs(design @ fitted.mu - expected) < 4 * error).all()
    assert (error < 0.1).all()
    agent = AdaTS(fitted.meta, seed=1)
    agent.tell(agent.ask("new", design=design), reward=1)
    old = agent.posterior("new").mean
    young = np.kron([1.0, 40.0], np.column_stack([np.ones(3), x]))
    assert (fitted.meta.task_prior(design=young).mean < old).all()


def test_numbers_with_a_structure_need_no_features_to_play(tmp_path):
    fitted = estimate(made("gaussian", "level", tasks=60), model="gaussian", structure="level")
    assert type(fitted.meta) is LinearMeta
    save_prior(fitted.meta, tmp_path / "prior.json")
    agent = AdaTS(load_prior(tmp_path / "prior.json"), seed=1)
    assert agent.arms == ("a", "b", "c", "d")
    for _ in range(20):
        agent.tell(task="new", action="a", reward=20.0)
    assert agent.posterior("new").mean[3] > fitted.rewards.mean[3] + 1  # by the level
    assert agent.ask("new").action in agent.arms


def test_exchangeable_arms_of_tasks_that_have_others():
    """Half of the tasks have two arms, the others four; names say nothing."""
    table = made("binary", "exchangeable", tasks=300)
    cells = table.table.copy()
    cells[::2, :, 2:] = 0.0
    fitted = estimate(
        ArmTable(BinaryStats, table.tasks, table.arms, cells),
        model="binary",
        structure="exchangeable",
    )
    assert type(fitted.meta) is LatentMeta
    np.testing.assert_allclose(fitted.meta.spread.sizes(0), [0.3, 0.6], atol=0.1)
    with pytest.raises(ValueError, match="a design for 6 arms, but the arms have names"):
        AdaTS(fitted.meta, seed=1).ask("six arms", design=np.ones((6, 1)))
    known = fitted.meta.figures()
    spread = {name: known[name] for name in ("task_scale", "level_scale")}
    agent = AdaTS(LatentMeta(known["mean"], known["cov"], rewards="binary", **spread), seed=1)
    actions = {agent.ask(f"six arms {i}", design=np.ones((6, 1))).action for i in range(40)}
    assert actions == set(range(6))


@pytest.mark.statistical
@pytest.mark.parametrize("model", KINDS)
def test_halves_are_independent_given_theta(model):
    """Their covariance over tasks with the same theta is zero, and they add up."""
    rng = np.random.default_rng(4)
    kind, n = KINDS[model], np.full((4000, 1), 20.0)
    if model == "gaussian":
        y = rng.normal(2.0, 1.5, (4000, 20))
        cells = np.stack([n[:, 0], y.sum(axis=1), (y**2).sum(axis=1)], axis=1)[:, :, None]
    else:
        s = rng.binomial(20, 0.3, (4000, 1)) if model == "binary" else rng.poisson(40.0, (4000, 1))
        cells = np.stack([n, s, s, 0 * s][: kind.ROWS], axis=1).astype(float)
    table = ArmTable(kind, tuple(range(4000)), ("a",), cells)
    first, second = halves(table, rng)
    np.testing.assert_allclose(first.table[:, :2] + second.table[:, :2], cells[:, :2])
    a, b = first.table[:, 1, 0], second.table[:, 1, 0]
    assert abs(np.corrcoef(a, b)[0, 1]) < 4 / np.sqrt(4000)
    assert abs(a.mean() - b.mean()) < 4 * np.hypot(a.std(), b.std()) / np.sqrt(4000)


def test_logs_without_a_choice_are_not_compared():
    one = made("binary", "level", tasks=30, arms=1)
    assert [score.structure for score in compare(one)] == ["independent"]
    few = made("binary", "level", tasks=3)
    assert estimate(few, model="binary", structure="auto").about["structure"] == "exchangeable"
