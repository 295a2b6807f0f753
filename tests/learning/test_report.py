"""The report of a fit: what the prior is worth, tasks unlike the rest, text, figures, files."""

import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from dataclasses import replace

import numpy as np
import pytest
from scipy import special, stats

from adats import plots
from adats.learning.analysis import analyse
from adats.learning.checks import UNLIKE, Calibration, _tails, outliers
from adats.learning.fit_common import RewardFigures, Worth, worth
from adats.learning.fitting import estimate
from adats.learning.report import report_text, sentence, write_report
from adats.learning.savings import Gain, Saving
from adats.learning.tables import ArmTable, LinearTable
from adats.learning.verdict import Verdict
from adats.models import BetaArms, BinaryStats, CountStats, LinearMeta, PoissonArms
from adats.models.core import files
from adats.models.core.stats import ArmStats
from adats.models.core.summary import interval
from adats.plots import fit as plots_fit

KINDS = {"gaussian": ArmStats, "binary": BinaryStats, "count": CountStats}
WORLDS = {
    "gaussian": lambda rng, n: rng.normal([0.0, 0.5, 1.0], 0.4, (n, 3)),
    "binary": lambda rng, n: rng.beta([2.0, 5.0, 8.0], [18.0, 15.0, 12.0], (n, 3)),
    "count": lambda rng, n: rng.gamma([4.0, 6.0, 8.0], 0.5, (n, 3)),
}


def arm_table(model, theta, pulls, rng):
    kind = KINDS[model]
    draw = {"gaussian": rng.normal, "binary": lambda p: rng.binomial(1, p), "count": rng.poisson}
    table = np.zeros((len(theta), kind.ROWS, theta.shape[1]))
    for _ in range(pulls):
        for s, row in enumerate(draw[model](theta)):
            for k, y in enumerate(row):
                kind.count_reward(table[s], k, float(y))
    names = ("red", "blue", "green")[: theta.shape[1]]
    return ArmTable(kind, tuple(f"t{s}" for s in range(len(theta))), names, table)


def linear_table(theta, rows, rng):
    x = rng.standard_normal((len(theta), rows, theta.shape[1]))
    y = np.einsum("snd,sd->sn", x, theta) + rng.standard_normal(x.shape[:2])
    z = np.concatenate([x, y[:, :, None]], axis=2)
    moments = np.einsum("sni,snj->sij", z, z)
    moments = (moments + moments.swapaxes(1, 2)) / 2
    names = tuple(f"x{j}" for j in range(theta.shape[1]))
    tasks = tuple(f"t{s}" for s in range(len(theta)))
    return LinearTable(tasks, names, np.full(len(theta), float(rows)), moments)


def fit(table):
    return estimate(table, model=table.model)


# what the prior is worth


def by_hand(table, mu, mu_cov, task_cov, noise=None):
    mu, mu_cov, task_cov = np.array(mu), np.array(mu_cov), np.array(task_cov)
    rewards = RewardFigures(mu, task_cov.diagonal(), mu_cov.diagonal())
    parts = {"mu": mu, "mu_cov": mu_cov, "task_cov": task_cov, "rewards": rewards}
    return replace(fit(table), **parts, noise=noise)


def test_the_worth_of_gaussian_arms_is_noise_over_spread():
    rng = np.random.default_rng(0)
    table = arm_table("gaussian", WORLDS["gaussian"](rng, 10), 2, rng)
    fitted = by_hand(table, [0.0] * 3, np.diag([0.0, 1.0, 0.0]), np.diag([4.0, 1.0, 0.0]), 2.0)
    told = worth(table, fitted)
    assert told.pulls.tolist() == [1.0, 2.0, np.inf]
    assert told.typical == pytest.approx(3 / (1 + 1 / 2))
    assert Worth(np.zeros(2), np.zeros(2), np.ones(2)).typical == np.inf


def test_the_worth_of_a_beta_prior_is_its_strength_and_of_a_gamma_prior_its_rate():
    rng = np.random.default_rng(1)
    for model, prior in (
        ("binary", BetaArms([2.0, 1.0, 9.0], [6.0, 4.0, 1.0])),
        ("count", PoissonArms([2.0, 1.0, 9.0], [6.0, 4.0, 1.0])),
    ):
        table = arm_table(model, WORLDS[model](rng, 10), 2, rng)
        fitted = by_hand(table, prior.mean, np.zeros((3, 3)), np.diag(prior.scale**2))
        expected = prior.alpha + prior.beta if model == "binary" else prior.rate
        assert worth(table, fitted).pulls == pytest.approx(expected)


def test_the_worth_of_a_linear_prior_by_direction():
    moments = np.zeros((2, 3, 3))
    moments[:, 0, 0], moments[:, 1, 1], moments[:, 2, 2] = 4.0, 16.0, 100.0
    table = LinearTable((0, 1), ("a", "b"), np.array([4.0, 4.0]), moments)  # squares 1 and 4
    rng = np.random.default_rng(2)
    some = linear_table(rng.normal(0.0, 1.0, (12, 2)), 5, rng)
    fitted = by_hand(some, [0.0, 0.0], np.diag([0.0, 0.5]), np.diag([3.0, 0.5]), 2.0)
    told = worth(table, fitted)
    assert told.between + told.unknown == pytest.approx([4.0, 3.0])  # most uncertain first
    assert told.between.sum() == pytest.approx(5.0)  # the mean of aᵀΣ_0 a
    assert told.pulls == pytest.approx([1.0, 4 / 3])


# tasks unlike the rest


@pytest.mark.parametrize("family", [BetaArms, PoissonArms])
@pytest.mark.parametrize("total", [0.0, 1.0, 3.0, 7.0, 9.0])
def test_tails_are_those_of_the_predicted_total(family, total):
    prior = family([2.0], [5.0])
    law = stats.betabinom(9, 2.0, 5.0) if family is BetaArms else stats.nbinom(2.0, 5.0 / 14.0)
    expected = min(1.0, 2 * min(law.cdf(total), law.sf(total - 1)))
    found = _tails(prior, np.array([9.0]), np.array([total]))
    assert found[0] == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("model", WORLDS)
def test_one_odd_task_is_found_and_no_other(model):
    rng = np.random.default_rng(3)
    theta = WORLDS[model](rng, 80)
    theta[17, 0] = {"gaussian": 5.0, "binary": 0.95, "count": 25.0}[model]
    found = outliers(table := arm_table(model, theta, 8, rng), fit(table))
    assert [task.task for task in found if task.flagged] == ["t17"]
    assert found[0].task == "t17"
    assert found[0].what.startswith("arm red: ")
    assert [task.chance for task in found] == sorted(task.chance for task in found)


def test_one_odd_linear_task_is_found_and_no_other():
    rng = np.random.default_rng(4)
    theta = rng.normal([1.0, -1.0], 0.4, (80, 2))
    theta[17] = [-2.0, 2.0]
    found = outliers(table := linear_table(theta, 8, rng), fit(table), most=3)
    assert [task.task for task in found if task.flagged] == ["t17"]
    assert len(found) == 3
    assert "where 2 is usual, from 8 rewards" in found[0].what


def test_the_distance_of_a_linear_task_is_that_of_its_marginal():
    """Rank deficient, so least squares has no answer: the rewards' own covariance has."""
    x = np.array([[1.0, 0.0, 2.0], [1.0, 0.0, 2.0], [0.0, 1.0, 0.0]])
    y = np.array([3.0, 4.0, -1.0])
    z = np.column_stack([x, y])
    table = LinearTable((0,), ("a", "b", "c"), np.array([3.0]), np.einsum("ni,nj->ij", z, z)[None])
    meta = LinearMeta([0.1, 0.2, 0.3], 0.0, task_cov=np.diag([1.0, 0.5, 0.0]), noise=0.8)
    rng = np.random.default_rng(5)
    base = fit(linear_table(rng.normal(0.0, 1.0, (12, 3)), 6, rng))
    (found,) = outliers(table, replace(base, meta=meta))
    pair = np.array([y[:2].mean(), y[2]])  # the two numbers that tell of theta
    rows = np.array([x[0], x[2]])
    cov = rows @ np.diag([1.0, 0.5, 0.0]) @ rows.T + np.diag([0.32, 0.64])
    gap = pair - rows @ [0.1, 0.2, 0.3]
    far = gap @ np.linalg.solve(cov, gap)
    assert found.chance == pytest.approx(stats.chi2(2).sf(far), rel=1e-6)


@pytest.mark.statistical
def test_tasks_that_are_alike_raise_few_alarms():
    alarms = 0
    for seed in range(40):
        rng = np.random.default_rng([6, seed])
        model = ("gaussian", "binary", "count")[seed % 3]
        table = arm_table(model, WORLDS[model](rng, 40), 4, rng)
        alarms += any(task.flagged for task in outliers(table, fit(table)))
    assert alarms <= stats.binom(40, UNLIKE).ppf(0.999)


def test_tasks_without_rows_are_never_unlike():
    rng = np.random.default_rng(7)
    table = arm_table("gaussian", WORLDS["gaussian"](rng, 6), 3, rng)
    cells = table.table.copy()
    cells[2] = 0.0
    table = replace(table, table=cells)
    last = outliers(table, fit(table), most=6)[-1]
    assert (last.task, last.chance, last.what) == ("t2", 1.0, "no rewards")


# the report


def made(model, *, tasks=60, seed=9):
    rng = np.random.default_rng(seed)
    if model == "linear":
        table = linear_table(rng.normal([1.0, -1.0], 0.4, (tasks, 2)), 8, rng)
    else:
        table = arm_table(model, WORLDS[model](rng, tasks), 5, rng)
    structure = "auto" if model == "linear" else "independent"
    return analyse(table, model=model, structure=structure)


@pytest.mark.parametrize("model", [*WORLDS, "linear"])
def test_the_report_and_its_figures(model, tmp_path):
    values = np.random.default_rng(9).random(500)
    found = replace(made(model), calibration=Calibration(values, 7), dropped=1234)
    path = write_report(tmp_path / "new" / "out", found)
    assert path == tmp_path / "new" / "out" / "report.md"
    text = path.read_text()
    shown = {"prior", "verdict", "calibration"} | (
        {"task", "compare"} if model != "linear" else set()
    )
    names = {f"{name}.{kind}" for name in shown for kind in ("png", "svg")}
    assert {file.name for file in path.parent.iterdir()} == names | {"report.md"}
    title, first, figure, todo = text.split("\n\n")[:4]  # the first screen
    assert title == "# Is sharing worth it?"
    assert first.replace("**", "") == found.sentence
    assert figure.endswith("(verdict.png)")
    assert todo.endswith(".")
    assert "1,234 bad rows were dropped." in text
    assert text.endswith(f", NumPy {np.__version__}.\n")
    assert f"model `{model}`" in text
    assert "nats" not in text
    for name in shown:
        assert f"({name}.png)" in text
        assert (path.parent / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        ET.parse(path.parent / f"{name}.svg")
    for name in ("x0", "x1") if model == "linear" else ("red", "blue", "green"):
        assert f"| {name} |" in text
    assert "as if it had already seen about" in text
    assert "500 rewards of 7 tasks" in text
    assert "No task looks unlike the rest." in text


def test_sentences_have_the_size_and_itsinterval():
    saving = Saving(0.8, 0.05)
    known = ("share", "level", 0.2, (0.118, 0.282), (), saving, saving)
    assert sentence(Verdict(*known)) == (
        "Share (arms have means of their own, and a level that the arms of a task share). Sharing "
        "saves 20% (90 % interval: 12% to 28%) of the regret of the better of each task by itself "
        "and one agent for all."
    )
    assert "would save 20%" in sentence(Verdict("too little data", None, *known[2:]))
    alike = Verdict("one for all", None, *known[2:])
    assert "told apart: sharing saves 20% (" in sentence(alike)
    worse = Saving(1.25, 0.1)
    alike = alike._replace(saving=worse.part, interval=(worse.low, worse.high), over_pooled=worse)
    assert sentence(alike) == (
        "One for all. Tasks are too alike, or too short, to be told apart: one agent for all saves "
        "20% (90 % interval: 9% to 30%) of the regret of sharing."
    )
    alone = alike._replace(answer="each for itself", over_alone=worse, over_pooled=saving)
    assert "Each task by itself would save 20% (90 % interval: 9% to 30%)" in sentence(alone)


def test_a_promise_that_held_out_tasks_deny_is_said():
    found = made("binary")
    good, bad = Saving(0.7, 0.01), Gain(-2.0, 0.1)
    denied = replace(found, verdict=found.verdict._replace(over_alone=good, gain=bad))
    assert "**They disagree:**" in report_text(denied)
    assert "was not worked out" not in report_text(found)
    about = found.fitted.about | {"structure": "full"}
    other = replace(found, fitted=replace(found.fitted, about=about))
    assert "*full*, was not worked out" in report_text(other)
    denied = replace(found, verdict=found.verdict._replace(over_pooled=good, adapting=bad))
    assert "a saving over one agent for all, but" in report_text(denied)
    agreed = replace(found, verdict=found.verdict._replace(over_alone=good, gain=Gain(2.0, 0.1)))
    assert "disagree" not in report_text(agreed)


def test_the_same_fit_gives_the_same_files(tmp_path):
    found = made("gaussian", tasks=20)
    one, two = (write_report(tmp_path / name, found).parent for name in ("a", "b"))
    files = sorted(file.name for file in one.iterdir())
    assert "prior.png" in files
    for name in files:
        assert (one / name).read_bytes() == (two / name).read_bytes()


def test_without_time_calibration_says_so():
    text = report_text(made("gaussian", tasks=20))
    assert "Not looked at: the order of rewards within a task is not known" in text
    assert "calibration.png" not in text


def test_a_tiny_log_has_a_report_without_scores(tmp_path):
    path = write_report(tmp_path, made("binary", tasks=6))
    assert "**Too little data**. 6 tasks are too few" in path.read_text()
    assert not (tmp_path / "verdict.png").exists()
    assert (tmp_path / "prior.png").exists()


def test_the_report_repeats_warnings_and_what_is_not_known():
    found = made("linear", tasks=12)
    unknown = replace(found.fitted, unidentified=("x0 - x1",))
    text = report_text(replace(found, fitted=unknown, warnings=("12 tasks are few",)))
    assert "- Warning: 12 tasks are few.\n- The log cannot tell x0 - x1." in text


def test_names_cannot_break_a_table_and_many_arms_are_cut():
    rng = np.random.default_rng(10)
    table = arm_table("gaussian", rng.normal(0.0, 1.0, (9, 3)), 2, rng)
    names = ("a|b\nc", *map(str, range(118)))
    wide = ArmTable(ArmStats, table.tasks, names, np.repeat(table.table, 40, 2)[:, :, :119])
    text = report_text(analyse(wide, model="gaussian", structure="independent"))
    assert "| a\\|b c | 9 |" in text
    assert "The figure shows the first 20 of 119, the table the first 100." in text
    assert "\n| 98 |" in text
    assert "\n| 99 |" not in text  # the first hundred are a|b c and 0 to 98


def test_tasks_that_do_not_differ_are_called_so():
    found = made("gaussian", tasks=20)
    none = RewardFigures(found.fitted.rewards.mean, np.zeros(3), np.zeros(3))
    text = report_text(replace(found, fitted=replace(found.fitted, rewards=none)))
    assert "Tasks hardly differ: one task for all would do as well." in text
    assert "| over 10,000 |" in text


def test_rare_clicks_in_long_tasks_are_not_called_alike():
    """The prior is worth tens of thousands of pulls there, and tasks have many more."""
    rng = np.random.default_rng(12)
    theta = special.expit(-5.3 + 0.06 * rng.standard_normal((40, 2)))
    wins = rng.binomial(200_000, theta).astype(float)
    sums = np.stack([np.full(theta.shape, 200_000.0), wins, wins], axis=1)
    table = ArmTable(BinaryStats, tuple(range(40)), ("red", "blue"), sums)
    text = report_text(analyse(table, model="binary", structure="independent"))
    assert "Tasks hardly differ" not in text
    (worth,) = re.findall(r"as if it had already seen about (\S+) pulls of every arm", text)
    assert 10_000 < float(worth.replace(",", "")) < 100_000  # about 1 / (0.06² · 0.005)


def test_a_report_that_fails_writes_nothing(tmp_path, monkeypatch):
    found = made("gaussian", tasks=20)
    monkeypatch.setattr(plots, "rendered", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write_report(tmp_path / "out", found)
    assert not (tmp_path / "out").exists()


def test_a_file_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    found = made("gaussian", tasks=20)
    before = write_report(tmp_path, found).read_bytes()
    count = len(list(tmp_path.iterdir()))
    monkeypatch.setattr(files.os, "replace", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write_report(tmp_path, replace(found, dropped=5))
    assert (tmp_path / "report.md").read_bytes() == before
    assert len(list(tmp_path.iterdir())) == count  # no half-written neighbours


def test_a_file_in_place_of_the_folder_is_an_error(tmp_path):
    (tmp_path / "out").write_text("")
    with pytest.raises(ValueError, match="is a file, not a folder for the report"):
        write_report(tmp_path / "out", made("gaussian", tasks=20))


# figures


def test_the_prior_figure_shows_every_task_and_arm():
    own = np.array([[0.0, 5.0], [1.0, np.nan], [2.0, 3.0]])
    prior = np.array([[-1.0, 2.0], [0.0, 3.0], [1.5, 4.0]])
    figure = plots_fit.prior_figure(["a", "b" * 30], prior, own, own / 2, label="mean reward")
    (axes,) = figure.axes
    points = [np.ma.getdata(cloud.get_offsets())[:, 0] for cloud in axes.collections[:4]]
    clouds = (own[:, 0], own[:, 0] / 2, own[:, 1], own[:, 1] / 2)
    for shown, expected in zip(points, clouds, strict=True):
        np.testing.assert_array_equal(shown, expected)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a", "b" * 17 + "…"]
    low, high = axes.get_xlim()
    assert low < -1.0
    assert high > 4.0


def test_the_verdict_figure_shows_each_rival_with_itsinterval():
    (axes,) = plots_fit.saving_figure({"alone": (0.2, 0.1, 0.3), "pooled": (-0.1, -0.2, 0.0)}).axes
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels == ["against alone", "against pooled"]
    low, high = axes.get_xlim()
    assert low < -20
    assert high > 30


def test_the_calibration_figure_shows_bars_around_one():
    (axes,) = plots_fit.calibration_figure(np.array([5, 15, 10, 10])).axes
    assert [bar.get_height() for bar in axes.patches[:4]] == [0.5, 1.5, 1.0, 1.0]


def test_matplotlib_is_loaded_only_to_draw():
    code = "import sys, adats.learning.report; print('matplotlib' in sys.modules)"
    command = [sys.executable, "-W", "error", "-c", code]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "False\n"


def test_intervals_of_the_prior():
    meta = made("gaussian", tasks=20).prior
    low, mean, high = interval(meta.task_prior())
    assert mean == pytest.approx(meta.mean)
    assert high - mean == pytest.approx(1.959964 * meta.task_prior().scale, rel=1e-6)
    assert mean - low == pytest.approx(high - mean)
    binary = made("binary", tasks=20).prior.task_prior()
    low, mean, high = interval(binary)
    assert ((low > 0) & (low < mean) & (mean < high) & (high < 1)).all()
