"""Recovery on simulated logs, what a log cannot tell, and what comes out of it."""

import dataclasses
import json

import numpy as np
import pytest

import adats
from adats import AdaTS, GaussianMeta, LinearMeta, fit
from adats.learning.fit_arms import towards_common
from adats.learning.fit_common import WEIGHTS, best_weight, folds
from adats.learning.fitting import estimate, standard_errors
from adats.learning.linear import towards_diagonal
from adats.learning.tables import ArmTable, LinearTable
from adats.models import BinaryStats
from adats.models.prior_files import read_about, save_prior
from fitting_logs import arm_log, arm_table, linear_log, linear_table

COV = np.array([[1.0, 0.5], [0.5, 1.0]])


def normal_table(seed, tasks, pulls, *, mu, cov, noise=1.0):
    rng = np.random.default_rng(seed)
    designs = rng.standard_normal((tasks, pulls, len(mu)))
    return linear_table(linear_log(rng, designs, mu=np.array(mu), cov=cov, noise=noise), len(mu))


def within(fitted, errors, *, mu, cov, noise, few=3.0):
    """All estimates within so many standard errors of the truth."""
    assert (np.abs(fitted.mu - mu) <= few * errors.mu).all()
    assert (np.abs(fitted.task_cov - cov) <= few * errors.task_cov + 1e-12).all()
    assert abs(fitted.noise - noise) <= few * errors.noise


# Recovery


@pytest.mark.statistical
@pytest.mark.parametrize("d", [1, 2, 4])
def test_the_parameters_of_a_long_log_come_back(d):
    """2,000 tasks of 200 rewards, σ_0 = σ, as many as a practitioner may have."""
    mu = np.linspace(-1.0, 2.0, d)
    table = normal_table(d, 2000, 200, mu=mu, cov=0.25 * np.eye(d), noise=0.5)
    fitted = estimate(table, model="linear")
    gap = np.linalg.norm(fitted.task_cov - 0.25 * np.eye(d)) / np.linalg.norm(0.25 * np.eye(d))
    assert gap < 0.10
    errors = standard_errors(table, fitted)
    assert (np.abs(fitted.mu - mu) <= 3 * errors.mu).all()
    assert abs(fitted.noise - 0.5) <= 3 * errors.noise
    assert errors.noise < 0.001
    assert fitted.unidentified == fitted.warnings == ()
    assert type(fitted.meta) is LinearMeta


@pytest.mark.statistical
def test_a_full_covariance_comes_back():
    cov = np.array([[1.0, 0.6, 0.0], [0.6, 1.0, -0.3], [0.0, -0.3, 0.5]])
    table = normal_table(7, 1000, 20, mu=[1.0, 2.0, 3.0], cov=cov)
    fitted = estimate(table, model="linear")
    assert fitted.shrinkage < 0.5  # covariances are worth keeping
    within(fitted, standard_errors(table, fitted), mu=[1.0, 2.0, 3.0], cov=cov, noise=1.0)
    alone = estimate(table, model="linear", diagonal=True)
    np.testing.assert_array_equal(alone.task_cov, np.diag(alone.task_cov.diagonal()))
    assert fitted.log_evidence > alone.log_evidence + 100


@pytest.mark.statistical
def test_arms_come_back():
    mu, scale = np.array([3.0, 0.0, -2.0]), np.array([0.1, 0.5, 2.0])
    rng = np.random.default_rng(8)
    pulls = [rng.integers(3, size=size) for size in rng.integers(1, 30, size=1000)]
    table = arm_table(arm_log(rng, pulls, mu=mu, scale=scale, noise=0.7), 3)
    fitted = estimate(table, model="gaussian")
    within(fitted, standard_errors(table, fitted), mu=mu, cov=np.diag(scale**2), noise=0.7)
    assert type(fitted.meta) is GaussianMeta
    assert fitted.meta.arms == ("a", "b", "c")
    np.testing.assert_allclose(fitted.meta.task_scale, np.sqrt(fitted.task_cov.diagonal()))


@pytest.mark.statistical
def test_standard_errors_are_honest():
    """Over many logs the errors have the size that is said: their squares average to one."""
    cov, mu = np.array([[0.5, 0.2], [0.2, 0.3]]), [0.5, -1.0]
    ratios = []
    for seed in range(60):
        table = normal_table(100 + seed, 150, 8, mu=mu, cov=cov)
        fitted = estimate(table, model="linear")
        errors = standard_errors(table, fitted)
        gaps = np.append((fitted.task_cov - cov).diagonal(), fitted.noise - 1.0)
        gaps = np.append(gaps, fitted.mu - mu)
        sizes = np.append(np.append(errors.task_cov.diagonal(), errors.noise), errors.mu)
        ratios.append(gaps / sizes)
    squares = (np.array(ratios) ** 2).mean(axis=0)  # each is a χ² of 60, over 60
    assert (np.abs(squares - 1.0) < 4 * np.sqrt(2 / 60)).all()


# Logs that a bandit wrote


def bandit_log(meta, thetas, noise, rounds, seed, **options):
    """The log of AdaTS on these tasks: a pair (actions, rewards) for each."""
    agent, rng = AdaTS(meta, seed=seed, **options), np.random.default_rng(seed)
    log = []
    for s, theta in enumerate(thetas):
        actions, rewards = [], []
        for _ in range(rounds):
            decision = agent.ask(s)
            x = decision.features
            mean = theta[decision.action] if x is None else x @ theta
            rewards.append(float(rng.normal(mean, noise)))
            actions.append(decision.action if x is None else x)
            agent.tell(decision, reward=rewards[-1])
        agent.finish(s)
        log.append((np.array(actions), rewards))
    return log


@pytest.mark.statistical
def test_an_adaptive_log_of_arms():
    """The agent soon leaves arm d alone: that is named, its spread is that of the others."""
    mu, scale, rng = np.array([1.0, 0.9, 0.5, -30.0]), 0.4, np.random.default_rng(9)
    thetas = mu + scale * rng.standard_normal((500, 4))
    meta = GaussianMeta(np.zeros(4), 10.0, task_scale=0.4, noise=0.5)
    table = arm_table(bandit_log(meta, thetas, 0.5, 15, seed=10), 4)
    assert 0 < (table.table[:, 0, 3] > 0).sum() < 5
    fitted = estimate(table, model="gaussian")
    assert fitted.unidentified == ("the spread of arm 'd'",)
    assert any("arm 'd'" in text for text in fitted.warnings)
    errors = standard_errors(table, fitted)
    variances = fitted.task_cov.diagonal()
    assert (np.abs(fitted.mu - mu) <= 3 * errors.mu)[:3].all()
    assert (np.abs(variances - scale**2) <= 3 * errors.task_cov.diagonal())[:3].all()
    assert errors.task_cov[:3, :3].max() < 0.1
    assert abs(fitted.noise - 0.5) <= 3 * errors.noise
    assert variances[:3].min() <= variances[3] <= variances[:3].max()
    assert errors.mu[3] > 3 * errors.mu[:3].max()


@pytest.mark.statistical
def test_an_adaptive_linear_log():
    """Two directions are explored; the third belongs to an action that is never worth it."""
    mu, rng = np.array([1.0, 1.0, -50.0]), np.random.default_rng(11)
    cov = np.diag([0.3, 0.3, 0.3])
    cov[0, 1] = cov[1, 0] = 0.2
    thetas = rng.multivariate_normal(mu, cov, size=500)
    angles = np.linspace(0.0, 1.5, 6)
    actions = np.column_stack([np.cos(angles), np.sin(angles), np.zeros(6)])
    actions = np.vstack([actions, [0.0, 0.0, 1.0]])
    meta = LinearMeta(np.zeros(3), 100.0, task_cov=0.3, noise=0.5)
    log = bandit_log(meta, thetas, 0.5, 12, seed=12, features=actions)
    fitted = estimate(table := linear_table(log, 3), model="linear")
    assert fitted.unidentified[0] == "x2"
    errors = standard_errors(table, fitted)
    seen = np.ix_([0, 1], [0, 1])
    assert (np.abs(fitted.mu - mu)[:2] <= 3 * errors.mu[:2]).all()
    assert (np.abs(fitted.task_cov - cov)[seen] <= 3 * errors.task_cov[seen]).all()
    assert errors.task_cov[seen].max() < 0.1
    assert abs(fitted.noise - 0.5) <= 3 * errors.noise
    assert np.isinf(errors.task_cov[2, 2])
    assert 0.1 < fitted.task_cov[2, 2] < 10.0
    np.testing.assert_allclose(fitted.task_cov[2, :2], 0.0, atol=0.05)


# What a log cannot tell


def test_a_feature_that_is_always_zero_is_named():
    rng = np.random.default_rng(13)
    designs = rng.standard_normal((60, 8, 3)) * [1.0, 1.0, 0.0]
    table = linear_table(linear_log(rng, designs, mu=np.ones(3), cov=np.eye(3), noise=1.0), 3)
    for diagonal in (False, True):
        fitted = estimate(table, model="linear", diagonal=diagonal)
        assert fitted.unidentified == ("x2",)
        spread = fitted.task_cov.diagonal()
        assert spread[:2].min() / 2 < spread[2] < 2 * spread[:2].max()
        np.testing.assert_allclose(fitted.task_cov[2, :2], 0.0, atol=1e-12)
        assert fitted.mu[2] == pytest.approx(0.0, abs=1e-6)
        assert fitted.mu_cov[2, 2] > 1000 * fitted.mu_cov[0, 0]
        assert np.isinf(standard_errors(table, fitted).task_cov[2, 2])


def test_a_combination_of_features_is_named():
    rng = np.random.default_rng(14)
    designs = rng.standard_normal((60, 8, 3))
    designs[:, :, 2] = 2.0 * designs[:, :, 0]
    log = linear_log(rng, designs, mu=np.ones(3), cov=np.eye(3), noise=1.0)
    fitted = estimate(linear_table(log, 3), model="linear")
    assert fitted.unidentified in (("x0 - 0.5 x2",), ("x2 - 2 x0",))
    way = np.array([1.0, 0.0, 2.0])  # what the log does tell: the spread of θ_0 + 2 θ_2
    assert way @ fitted.task_cov @ way == pytest.approx(5.0, rel=4 * np.sqrt(2 / 60))


def test_an_intercept_beside_indicators_is_legal():
    rng = np.random.default_rng(15)
    arms = rng.integers(2, size=(60, 8))
    designs = np.stack([np.ones((60, 8)), arms == 0, arms == 1], axis=2).astype(float)
    log = linear_log(rng, designs, mu=np.zeros(3), cov=np.eye(3), noise=0.5)
    fitted = estimate(linear_table(log, 3), model="linear")
    assert len(fitted.unidentified) == 1
    assert set("+-") & set(fitted.unidentified[0])
    for way in ([1.0, 1.0, 0.0], [1.0, 0.0, 1.0]):  # the mean of each arm has a variance of two
        assert way @ fitted.task_cov @ way == pytest.approx(2.0, rel=4 * np.sqrt(2 / 60))


def test_features_that_never_meet_in_a_task_have_no_covariance():
    rng = np.random.default_rng(16)
    designs = [np.eye(3)[[s % 3] * 5] for s in range(90)]
    log = linear_log(rng, designs, mu=np.zeros(3), cov=np.eye(3), noise=1.0)
    fitted = estimate(linear_table(log, 3), model="linear")
    pairs = (("x0", "x1"), ("x0", "x2"), ("x1", "x2"))
    assert fitted.unidentified == tuple(f"the covariance of {a} and {b}" for a, b in pairs)
    np.testing.assert_allclose(fitted.task_cov, np.diag(fitted.task_cov.diagonal()), atol=1e-9)
    many = [(np.pad(x, ((0, 0), (0, 3))), y) for x, y in log]
    for s, (x, _) in enumerate(many):
        x[:, 3:] = x[:, :3] if s % 2 else 0.0
        x[:, :3] *= 0.0 if s % 2 else 1.0
    fitted = estimate(linear_table(many, 6), model="linear")
    assert len(fitted.unidentified) == 1
    assert fitted.unidentified[0].startswith("the covariances of 15 pairs of features, such as")


def test_a_feature_in_one_task_only_is_named():
    rng = np.random.default_rng(17)
    designs = rng.standard_normal((60, 8, 2))
    designs[1:, :, 1] = 0.0
    log = linear_log(rng, designs, mu=np.ones(2), cov=np.eye(2), noise=1.0)
    fitted = estimate(linear_table(log, 2), model="linear")
    assert fitted.unidentified == ("x1",)
    designs[:30] = rng.standard_normal((30, 8, 2))
    log = linear_log(rng, designs, mu=np.ones(2), cov=np.eye(2), noise=1.0)
    assert estimate(linear_table(log, 2), model="linear").unidentified == ()


def test_few_tasks_shrink_the_spread_of_an_arm():
    """Arm c is in three tasks, where it happens to be just the same."""
    rng = np.random.default_rng(18)
    log = arm_log(rng, rng.integers(2, size=(80, 8)), mu=np.zeros(2), scale=1.0, noise=0.5)
    for s in range(3):
        log[s] = (np.append(log[s][0], [2, 2]), np.append(log[s][1], [0.4, -0.4]))
    fitted = estimate(arm_table(log, 3), model="gaussian")
    assert fitted.unidentified == ()
    spread = fitted.task_cov.diagonal()
    assert 0.2 * spread[:2].mean() < spread[2] < spread[:2].mean()
    assert fitted.warnings == ("arm 'c' was pulled in 3 tasks: below 5 its spread is rough",)


def test_shrinkage_by_hand():
    cov = np.array([[2.0, 1.0], [1.0, 4.0]])
    np.testing.assert_allclose(towards_diagonal(cov, 0.25), [[2.0, 0.75], [0.75, 4.0]])
    # the average of 1 and 4 with weights 3 and 1 is 1.75; an arm with 1 effective task has at
    # least half of it, one with 3 at least a quarter, and one with less than 1 all
    variances, tasks = np.array([1.0, 4.0, 100.0]), np.array([3.0, 1.0, 0.0])
    shrunk = towards_common(variances, tasks, 0.0)
    np.testing.assert_allclose(shrunk, [0.75 + 1.75 / 4, 2.0 + 1.75 / 2, 1.75])
    np.testing.assert_allclose(towards_common(variances, tasks, 1.0), 1.75)


def test_the_weight_is_the_best_on_held_out_tasks():
    seen = []

    def score(train, test):
        assert sorted([*train, *test]) == list(range(12))
        seen.extend(test)
        return -((WEIGHTS - 0.31) ** 2)

    assert best_weight(range(12), score) == pytest.approx(0.3)
    assert sorted(seen) == list(range(12))
    assert best_weight(range(12), lambda *_: np.zeros(len(WEIGHTS))) == 1.0
    assert best_weight(range(4), score) == 1.0


def test_folds_depend_on_names_only():
    tasks = [*range(50)]
    place = dict(zip(tasks, folds(tasks), strict=True))
    mixed = np.random.default_rng(0).permutation(50).tolist()
    assert place == dict(zip(mixed, folds(mixed), strict=True))
    assert sorted(np.bincount(folds(tasks))) == [10] * 5


def test_few_tasks_are_worth_a_warning():
    table = normal_table(19, 9, 12, mu=[0.0, 0.0], cov=COV)
    fitted = estimate(table, model="linear")
    assert fitted.warnings == ("9 tasks are few for 2 features: below 10 Σ_0 is rough",)
    assert fitted.about["warnings"] == list(fitted.warnings)
    assert estimate(normal_table(19, 10, 12, mu=[0.0, 0.0], cov=COV), model="linear").warnings == ()


def test_an_unfinished_search_is_worth_a_warning(monkeypatch):
    monkeypatch.setattr("adats.learning.fit_common.MOST", 1)
    fitted = estimate(normal_table(20, 40, 5, mu=[0.0, 0.0], cov=COV), model="linear")
    assert fitted.warnings == ("EM had not converged after 2 iterations",)


# The same log in other words


def portrait(fitted):
    return [fitted.mu, fitted.mu_cov, fitted.task_cov, fitted.noise, fitted.shrinkage]


@pytest.mark.parametrize("diagonal", [False, True])
def test_the_order_of_tasks_does_not_matter(diagonal):
    table = normal_table(21, 40, 5, mu=[1.0, -1.0], cov=COV)
    order = np.random.default_rng(0).permutation(40)
    left = estimate(table, model="linear", diagonal=diagonal)
    right = estimate(table.subset(order), model="linear", diagonal=diagonal)
    for a, b in zip(portrait(left), portrait(right), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_units_of_rewards_and_features_do_not_matter(scale):
    table = normal_table(22, 40, 5, mu=[1.0, -1.0], cov=COV)
    change = np.array([1.0, 1e-3, scale])
    other = dataclasses.replace(table, moments=table.moments * np.outer(change, change))
    left, right = (estimate(t, model="linear") for t in (table, other))
    unit = scale / change[:-1]
    np.testing.assert_allclose(right.mu, left.mu * unit, rtol=1e-6)
    np.testing.assert_allclose(right.mu_cov, left.mu_cov * np.outer(unit, unit), rtol=1e-6)
    np.testing.assert_allclose(right.task_cov, left.task_cov * np.outer(unit, unit), rtol=1e-6)
    assert right.noise == pytest.approx(left.noise * scale)
    assert right.shrinkage == left.shrinkage
    shift = table.n.sum() * np.log(scale)
    assert right.log_evidence == pytest.approx(left.log_evidence - shift)


def test_a_level_of_rewards_does_not_matter_beside_an_intercept():
    rng = np.random.default_rng(23)
    designs = np.dstack([np.ones((40, 6)), rng.standard_normal((40, 6))])
    log = linear_log(rng, designs, mu=np.zeros(2), cov=COV, noise=1.0)
    left = estimate(linear_table(log, 2), model="linear")
    right = estimate(linear_table([(x, y + 1000.0) for x, y in log], 2), model="linear")
    np.testing.assert_allclose(right.mu - left.mu, [1000.0, 0.0], rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(right.task_cov, left.task_cov, rtol=1e-4)


def test_arms_are_indicators():
    """Gaussian arms are a linear model with a diagonal Σ_0 and one feature an arm."""
    rng = np.random.default_rng(24)
    log = arm_log(rng, rng.integers(3, size=(60, 9)), mu=np.ones(3), scale=1.0, noise=1.0)
    dense = linear_table([(np.eye(3)[a], y) for a, y in log], 3)
    left = estimate(dense, model="linear", diagonal=True)
    table = arm_table(log, 3)
    right = estimate(table, model="gaussian")
    np.testing.assert_allclose(left.mu, right.mu, atol=1e-2)
    np.testing.assert_allclose(left.noise, right.noise, rtol=1e-3)
    np.testing.assert_allclose(left.curve[-1], right.curve[-1], atol=0.05 * 60)
    errors = [standard_errors(t, left) for t in (dense, table)]
    for a, b in zip(*errors, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-2, atol=1e-12)


# What comes out


def test_the_prior_goes_on_learning():
    table = normal_table(25, 50, 6, mu=[1.0, -1.0], cov=COV)
    fitted = estimate(table, model="linear")
    assert not fitted.meta.total.high.any()
    np.testing.assert_array_equal(fitted.meta.mean, fitted.mu)
    agent = AdaTS(fitted.meta, seed=1, features=np.eye(2))
    for _ in range(30):
        agent.tell(agent.ask("new"), reward=100.0)
    assert (agent.meta.mean != fitted.mu).any()


def test_the_mean_is_that_of_all_tasks_absorbed():
    """Σ_0 and σ given, mu is what a nearly flat meta-prior would have learned from the log."""
    table = normal_table(26, 50, 6, mu=[1.0, -1.0], cov=COV)
    fitted = estimate(table, model="linear")
    meta = LinearMeta(np.zeros(2), 1e6, task_cov=fitted.task_cov, noise=fitted.noise)
    for i in range(len(table)):
        meta = meta.absorb(meta.digest(table.stats(i)).message)
    np.testing.assert_allclose(fitted.mu, meta.mean, rtol=1e-4)
    np.testing.assert_allclose(fitted.mu_cov, meta.cov, rtol=1e-3)


def test_the_file_says_what_it_is(tmp_path):
    table = normal_table(27, 50, 6, mu=[1.0, -1.0], cov=COV)
    table = dataclasses.replace(table, since="2025-01-01", until="2025-02-01")
    fitted = estimate(table, model="linear")
    path = tmp_path / "prior.json"
    save_prior(fitted.meta, path, about=fitted.about)
    about = read_about(path)
    assert about == fitted.about
    assert about["model"] == "linear"
    assert (about["tasks"], about["rows"]) == (50, 300)
    assert (about["since"], about["until"]) == ("2025-01-01", "2025-02-01")
    assert about["features"] == ["x0", "x1"]
    assert about["log_evidence"] == fitted.log_evidence
    assert json.loads(path.read_text())["prior"]["total"] is None
    assert path.stat().st_size < 2000
    np.testing.assert_array_equal(adats.load_prior(path).mean, fitted.mu)


def test_a_log_as_a_data_frame():
    pytest.importorskip("ibis")
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(31)
    user = np.repeat(np.arange(30), 6)
    frame = pd.DataFrame({"user": user, "arm": rng.choice(["a", "b"], 180), "one": 1.0})
    frame["x"] = rng.standard_normal(180)
    theta = rng.standard_normal((30, 2))
    frame["y"] = theta[user, 0] + theta[user, 1] * frame["x"] + rng.standard_normal(180)
    frame["clicked"] = (frame["y"] > 0).astype(int)
    options = {"task": "user", "features": ["one", "x"]}
    meta = fit(frame, model="linear", reward="y", **options)
    log = [
        (part[["one", "x"]].to_numpy(), part["y"].to_numpy()) for _, part in frame.groupby("user")
    ]
    expected = estimate(linear_table(log, 2), model="linear")
    np.testing.assert_allclose(meta.mean, expected.mu, rtol=1e-6)
    np.testing.assert_allclose(meta.task_cov, expected.task_cov, rtol=1e-5)
    alone = fit(frame, model="linear", reward="y", diagonal=True, **options)
    assert alone.task_cov[0, 1] == 0.0
    assert fit(frame, model="gaussian", task="user", reward="y").arms == ("a", "b")
    assert AdaTS(fit(frame, model="binary", task="user", reward="clicked"), seed=1).ask(1)


# Bad input


def test_errors_say_what_to_do():
    table = normal_table(28, 5, 4, mu=[0.0, 0.0], cov=COV)
    with pytest.raises(ValueError, match="statistics of a linear log, not of a gaussian one"):
        estimate(table, model="gaussian")
    with pytest.raises(ValueError, match="two tasks or more, to see how they differ; got 1"):
        estimate(table.subset(np.arange(1)), model="linear")
    arms = arm_table([([0, 0], [1.0, 2.0]), ([0, 1], [3.0, 4.0])], 2)
    with pytest.raises(ValueError, match="diagonal is for linear models"):
        estimate(arms, model="gaussian", diagonal=True)
    nothing = ArmTable(BinaryStats, (1, 2), ("a",), np.zeros((2, 3, 1)))
    with pytest.raises(ValueError, match="the log is empty"):
        estimate(nothing, model="binary")
    empty = LinearTable((1, 2), ("x",), np.zeros(2), np.zeros((2, 2, 2)))
    with pytest.raises(ValueError, match="the log is empty"):
        estimate(empty, model="linear")


def test_a_noise_that_cannot_be_told_is_refused():
    """Nothing was pulled twice in a task; or as many features as rows; or no noise at all."""
    log = [([0, 1], [1.0, 2.0]), ([0, 1], [3.0, 4.0]), ([0], [2.0])]
    with pytest.raises(ValueError, match="noise is not identifiable: no task pulled anything twi"):
        estimate(arm_table(log, 2), model="gaussian")
    table = normal_table(29, 20, 3, mu=[0.0] * 3, cov=np.eye(3))
    with pytest.raises(ValueError, match="noise is not identifiable: no task pulled anything twi"):
        estimate(table, model="linear")
    same = [([0, 0], [1.0, 1.0]), ([0, 0, 1, 1], [3.0, 3.0, 2.0, 2.0])]
    with pytest.raises(ValueError, match="noise is not identifiable: within tasks"):
        estimate(arm_table(same, 2), model="gaussian")
    with pytest.raises(ValueError, match="no rewards but zeros"):
        estimate(arm_table([([0, 0], [0.0, 0.0]), ([0], [0.0])], 1), model="gaussian")


@pytest.mark.parametrize("d", [1, 4])
def test_one_task_that_tells_the_noise_is_enough(d):
    """Without it the others could be told by any noise, as they are where it is held out."""
    rng = np.random.default_rng(32)
    designs = [rng.standard_normal((d if s else d + 3, d)) for s in range(12)]
    log = linear_log(rng, designs, mu=np.zeros(d), cov=np.eye(d), noise=0.1)
    fitted = estimate(linear_table(log, d), model="linear")
    assert 0.02 < fitted.noise < 0.5
    log = arm_log(rng, [[0, 0], *[[0, 1]] * 8], mu=np.zeros(2), scale=1.0, noise=0.1)
    assert estimate(arm_table(log, 2), model="gaussian").noise > 0.0


def test_tasks_that_share_nothing_are_refused():
    log = [([0, 0], [1.0, 2.0]), ([1, 1], [3.0, 5.0])]
    with pytest.raises(ValueError, match="no two tasks pulled the same arm"):
        estimate(arm_table(log, 2), model="gaussian")
    dense = [(np.eye(2)[a], y) for a, y in log]
    with pytest.raises(ValueError, match="no two tasks tried the same"):
        estimate(linear_table(dense, 2), model="linear")


def test_one_row_tasks_are_legal():
    rng = np.random.default_rng(30)
    pulls = [rng.integers(3, size=1 if s % 4 else 6) for s in range(120)]
    log = arm_log(rng, pulls, mu=np.array([0.0, 1.0, 2.0]), scale=0.5, noise=0.5)
    fitted = estimate(arm_table(log, 3), model="gaussian")
    assert (np.abs(fitted.mu - [0.0, 1.0, 2.0]) < 4 * np.sqrt(fitted.mu_cov.diagonal())).all()
    dense = linear_table([(np.eye(3)[a], y) for a, y in log], 3)
    again = estimate(dense, model="linear")
    assert (np.abs(again.mu - fitted.mu) < np.sqrt(fitted.mu_cov.diagonal())).all()


def test_a_grid_has_no_standard_errors():
    table = arm_table([([0, 0], [1, 0]), ([0, 0], [1, 1])], 1, kind=BinaryStats)
    with pytest.raises(ValueError, match="no standard errors"):
        standard_errors(table, estimate(table, model="binary"))
