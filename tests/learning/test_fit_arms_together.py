"""Fits of clicks and counts with a level or a covariance, from tables and from logs."""

import numpy as np
import pytest

import adats
from adats import AdaTS, MixtureMeta, fit
from adats.learning.analysis import analyse
from adats.learning.checks import calibrate, outliers
from adats.learning.fitting import estimate
from adats.learning.logs import TaskRows, batches, statistics
from adats.learning.tables import ArmTable
from adats.models import BinaryStats, CountStats
from adats.models.latent.family import BINARY, COUNT
from adats.models.latent.meta import LatentMeta
from adats.models.prior_files import read_about, save_prior
from click_logs import counts
from fitting_logs import linear_table

KINDS = {"binary": (BINARY, BinaryStats), "count": (COUNT, CountStats)}
MODELS = pytest.mark.parametrize("model", KINDS)
MU, LEVEL_COV = np.array([-2.0, -1.5, -2.5]), 0.3**2 * np.eye(3) + 0.5**2


def table_of(n, s, model="binary"):
    kind = KINDS[model][1]
    table = np.zeros((len(n), kind.ROWS, n.shape[1]))
    table[:, 0], table[:, 1], table[:, 2] = n, s, s
    return ArmTable(kind, tuple(range(len(n))), tuple("abcdef"[: n.shape[1]]), table)


def simulated(seed=1, tasks=150, pulls=20, model="binary"):
    rng = np.random.default_rng(seed)
    return counts(rng, tasks, pulls, mu=MU, cov=LEVEL_COV, family=KINDS[model][0])


def rows_of(rng, n, s):
    """One row a pull, in any order."""
    parts = []
    for task, (pulls, wins) in enumerate(zip(n.astype(int), s.astype(int), strict=True)):
        arms = np.repeat(np.arange(len(pulls)), pulls)
        rewards = np.concatenate([np.arange(a) < b for a, b in zip(pulls, wins, strict=True)])
        order = rng.permutation(len(arms))
        parts.append((task, arms[order], rewards[order].astype(float)))
    return parts


# the fit


@MODELS
@pytest.mark.parametrize("structure", ["level", "full"])
def test_a_prior_for_the_next_task(model, structure):
    table = table_of(*simulated(model=model), model)
    fitted = estimate(table, model=model, structure=structure)
    assert (np.abs(fitted.mu - MU) < 4 * np.sqrt(fitted.mu_cov.diagonal())).all()
    np.testing.assert_allclose(fitted.task_cov, LEVEL_COV, atol=0.2)
    meta = fitted.meta
    assert type(meta) is LatentMeta
    assert (meta.model, meta.arms) == (model, ("a", "b", "c"))
    np.testing.assert_allclose(meta.mu_mean, fitted.mu)
    assert ("task_cov" in meta.figures()) == (structure == "full")
    assert fitted.unidentified == fitted.warnings == ()
    agent = AdaTS(meta, seed=1)  # goes on learning
    for _ in range(30):
        agent.tell(task="new", action="c", reward=1)
    assert agent.posterior("new").mean[2] > meta.task_prior().mean[2]
    assert agent.meta.mu_mean[0] > fitted.mu[0]  # by the level


def test_arms_that_move_together_are_likelier_so():
    table = table_of(*simulated())
    scores = [
        estimate(table, model="binary", structure=structure).log_evidence
        for structure in ("independent", "level", "full")
    ]
    assert scores[1] > scores[0] + 5
    assert abs(scores[2] - scores[1]) < 10


@MODELS
def test_evidence_is_what_the_model_says(model):
    """Of a fresh model with the wide meta-prior, told all tasks under the anchor of the fit."""
    n, s = simulated(tasks=40, model=model)
    fitted = estimate(table_of(n, s, model), model=model, structure="level")
    own, shared = fitted.meta.spread.sizes(0)
    centre = KINDS[model][0].eta((s.sum() + 0.5) / (n.sum() + 1))
    wide = np.full((3, 3), 9.0) + 4 * np.eye(3)
    options = {"task_scale": own, "level_scale": shared, "rewards": model}
    meta = LatentMeta(np.full(3, centre), wide, **options)
    total = meta
    for a, b in zip(n, s, strict=True):
        stats = meta.empty() + KINDS[model][1](np.array([a, b, b, 0 * b])[: meta.empty().ROWS])
        sites = fitted.meta.digest(stats).stats
        total = total.absorb(meta.digest(sites).message)
    assert total.log_evidence() == pytest.approx(fitted.log_evidence, abs=0.05)
    np.testing.assert_allclose(total.mu_mean, fitted.mu, atol=0.01)


def test_many_tasks():
    rng = np.random.default_rng(2)
    cov = 0.2**2 * np.eye(4) + 0.3**2
    n, s = counts(rng, 4000, 20, mu=np.full(4, -3.0), cov=cov)
    fitted = estimate(table_of(n, s), model="binary", structure="level")
    np.testing.assert_allclose(fitted.meta.spread.sizes(0), [0.2, 0.3], atol=0.05)


def test_old_priors_stay_the_default():
    table = table_of(*simulated(tasks=30))
    fitted = estimate(table, model="binary")
    assert type(fitted.meta) is MixtureMeta
    assert fitted.about["structure"] == "independent"


def test_a_prior_file(tmp_path):
    fitted = estimate(table_of(*simulated()), model="binary", structure="full")
    save_prior(fitted.meta, tmp_path / "prior.json", about=fitted.about)
    assert read_about(tmp_path / "prior.json")["structure"] == "full"
    again = adats.load_prior(tmp_path / "prior.json")
    np.testing.assert_array_equal(again.mu_mean, fitted.mu)
    np.testing.assert_allclose(again.spread.covs(3)[0], fitted.task_cov)


# what a log cannot tell


def test_what_cannot_be_told_is_named():
    once = np.eye(3)[np.arange(30) % 3]
    fitted = estimate(table_of(once, 0 * once), model="binary", structure="level")
    assert fitted.unidentified == ("how tasks differ",)
    assert estimate(table_of(once, 0 * once, "count"), model="count", structure="level")
    apart = estimate(table_of(20 * once, 2 * once), model="binary", structure="level")
    assert apart.unidentified[0].startswith("what a task's arms have in common")
    n = 20 * np.array([[1.0, 1.0, 0.0], [0.0, 1.0, 1.0]])[np.arange(30) % 2]
    pairs = estimate(table_of(n, n / 10), model="binary", structure="full")
    assert pairs.unidentified == ("the covariance of arms 'a' and 'c'",)
    few = estimate(table_of(n[:4], n[:4] / 10), model="binary", structure="level")
    assert few.warnings[0] == "arm 'a' was pulled in 2 tasks: below 5 its spread is rough"


@pytest.mark.parametrize("structure", ["level", "full"])
def test_logs_that_say_little(structure):
    n = np.full((20, 2), 50.0)
    for s in (0 * n, n, n / 5):
        fitted = estimate(table_of(n, s), model="binary", structure=structure)
        rate = fitted.meta.task_prior().mean
        assert np.abs(rate - s[0, 0] / 50).max() < 0.01
    single = estimate(table_of(n[:, :1], n[:, :1] / 5), model="binary", structure=structure)
    assert single.meta.n_arms == 1
    with pytest.raises(ValueError, match="two tasks or more"):
        estimate(table_of(n[:1], n[:1]), model="binary", structure=structure)


def test_errors_say_what_to_do():
    table = table_of(*simulated(tasks=5))
    with pytest.raises(ValueError, match=r"one of auto, independent, .*, got 'levels'"):
        estimate(table, model="binary", structure="levels")
    with pytest.raises(ValueError, match="needs features of tasks or of arms"):
        estimate(table, model="binary", structure="features")
    rows = linear_table([(np.eye(2), [1.0, 2.0])] * 3, 2)
    with pytest.raises(ValueError, match="for models with arms, not for a linear one"):
        estimate(rows, model="linear", structure="level")


# the report


@MODELS
def test_the_report_works(model, tmp_path):
    rng = np.random.default_rng(3)
    n, s = simulated(tasks=40)  # counts that are 0 or 1
    table = table_of(n, s, model)
    fitted = estimate(table, model=model, structure="level")
    in_order = [TaskRows(*part, np.zeros(0)) for part in rows_of(rng, n, s)]
    checked = calibrate(table, fitted, in_order, rng=rng)
    if model == "binary":
        assert checked.reading.startswith("Calibrated")
    path = analyse(table, model=model, structure="level").report(tmp_path)
    text = path.read_text()
    assert "in what their arms have in common" in text
    assert "No task looks unlike the rest" in text
    mean = float(s[:, 0].sum() / n[:, 0].sum())
    shown = next(line for line in text.splitlines() if line.startswith("| a |")).split(" | ")[3]
    assert abs(float(shown.split(" ")[0]) - mean) < 0.03


def test_a_task_unlike_the_rest_is_found():
    n, s = simulated(tasks=60)
    n[7], s[7] = 40.0, 38.0
    fitted = estimate(table_of(n, s), model="binary", structure="level")
    worst = outliers(table_of(n, s), fitted)[0]
    assert (worst.task, worst.flagged) == (7, True)


# logs


def frame(rng, n, s, *, days=4, repeats=1):
    """Counts by day, in which every visitor comes so many times."""
    pd = pytest.importorskip("pandas")
    rows = []
    for task, (pulls, wins) in enumerate(zip(n.astype(int), s.astype(int), strict=True)):
        for k in range(len(pulls)):
            day = rng.integers(days, size=pulls[k])
            for d in range(days):
                shown = repeats * int((day == d).sum())
                clicks = repeats * int((day[: wins[k]] == d).sum())
                rows.append((task, "abc"[k], shown, clicks, d))
    return pd.DataFrame(rows, columns=["user", "arm", "shown", "clicks", "day"])


@MODELS
def test_a_log_of_sums_is_the_log_of_its_rows(model):
    pd = pytest.importorskip("pandas")
    pytest.importorskip("ibis")
    rng = np.random.default_rng(4)
    n, s = simulated(tasks=40)
    n[3] = s[3] = 0.0
    log = frame(rng, n, s)
    told = statistics(log, model=model, task="user", reward="clicks", pulls="shown")
    parts = [part for part in rows_of(rng, n, s) if len(part[1])]
    single = pd.DataFrame(
        [(t, "abc"[a], y) for t, arms, ys in parts for a, y in zip(arms, ys, strict=True)],
        columns=["user", "arm", "reward"],
    )
    rows = statistics(single, model=model, task="user")
    assert told.table.tasks == rows.table.tasks  # nobody was shown anything in task 3
    np.testing.assert_array_equal(told.table.table[:, :2], rows.table.table[:, :2])
    assert (told.rows, told.dropped) == (len(log), 0)
    prior = fit(log, model=model, task="user", reward="clicks", pulls="shown", structure="level")
    np.testing.assert_allclose(
        prior.mean, fit(single, model=model, task="user", structure="level").mean
    )


def test_bad_sums_are_refused():
    pytest.importorskip("ibis")
    log = frame(np.random.default_rng(5), *simulated(tasks=5))
    options = {"task": "user", "reward": "clicks", "pulls": "shown"}
    bad = log.assign(clicks=log.clicks.where(log.index != 2, 1000))
    with pytest.raises(ValueError, match=r"'clicks' must be from 0 to 'shown', but is not in 1 of"):
        statistics(bad, model="binary", **options)
    assert statistics(bad, model="binary", on_bad="drop", **options).dropped == 1
    with pytest.raises(ValueError, match="'shown' must be 0 or more"):
        statistics(log.assign(shown=-1, clicks=-1), model="count", **options)
    with pytest.raises(ValueError, match="has no pulls"):
        statistics(log.assign(shown=0, clicks=0), model="binary", **options)
    with pytest.raises(ValueError, match="gaussian rewards with pulls= need squares="):
        statistics(log, model="gaussian", **options)
    with pytest.raises(ValueError, match="no column 'views'"):
        statistics(log, model="binary", task="user", reward="clicks", pulls="views")
    with pytest.raises(ValueError, match="no column 'hour'"):
        batches(log, model="binary", batch="hour", **options)


@MODELS
def test_repeat_visitors_are_warned_of(model):
    pytest.importorskip("ibis")
    rng = np.random.default_rng(6)
    n, s = simulated(tasks=60, pulls=40)
    options = {"model": model, "task": "user", "reward": "clicks", "pulls": "shown"}
    fit(frame(rng, n, s), **options)  # no warning
    again = frame(rng, n, s, repeats=3)
    with pytest.warns(UserWarning, match="the same visitors may come again"):
        fit(again, **options)
    with pytest.warns(UserWarning, match="vary 3"):
        fit(again, batch="day", structure="level", **{**options, "model": "binary"})


def test_days_are_batches_where_there_are_times():
    pd = pytest.importorskip("pandas")
    pytest.importorskip("ibis")
    rng = np.random.default_rng(7)
    log = pd.DataFrame(
        {"task": rng.integers(5, size=4000), "arm": "a", "day": np.arange(4000) // 400}
    )
    log["reward"] = (rng.random(4000) < np.where(log.day % 2, 0.1, 0.3)).astype(int)
    when = pd.Timestamp("2024-01-01") + pd.to_timedelta(log.day, unit="D")
    for time in (when, when.astype(str), when.astype("datetime64[s]").astype("int64")):
        dated = log.assign(time=time)
        found = batches(dated, model="binary")
        assert len(found.cell) == 50
        assert (np.diff(found.cell) >= 0).all()
        assert found.pulls.sum() == 4000
        with pytest.warns(UserWarning, match="rates change with time"):
            fit(dated, model="binary")
    by_day = batches(log, model="binary", batch="day")
    np.testing.assert_array_equal(np.sort(by_day.pulls), np.sort(found.pulls))
    assert batches(log, model="binary") is None
    fit(log, model="binary")  # nothing to look at, no warning
    with pytest.raises(ValueError, match="batch is for binary and count models"):
        fit(log, model="gaussian", batch="day")
    with pytest.raises(ValueError, match="batches are for binary rewards and counts"):
        batches(log, model="gaussian")
