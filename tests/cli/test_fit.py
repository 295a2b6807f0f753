"""`adats fit`: from a log on disk to a prior file and a report."""

import json

import numpy as np
import polars as pl
import pytest

import adats
from command import call


def pulls(rng, tasks=40, rounds=30, kind="gaussian"):
    """A log of uniformly random pulls, in the project's own format."""
    rows = []
    for task in range(tasks):
        theta = np.array([0.3, 0.6]) + 0.1 * rng.standard_normal(2)
        for time in range(rounds):
            arm = int(rng.integers(2))
            y = theta[arm] + 0.5 * rng.standard_normal()
            reward = float(rng.random() < np.clip(theta[arm], 0, 1)) if kind == "binary" else y
            rows.append({"task": f"u{task}", "arm": "ab"[arm], "reward": reward, "time": time})
    return pl.DataFrame(rows)


def linear_log(rng, tasks=60, rounds=20):
    x = rng.standard_normal((tasks * rounds, 2))
    theta = np.repeat([1.0, -1.0] + 0.3 * rng.standard_normal((tasks, 2)), rounds, axis=0)
    y = (x * theta).sum(axis=1) + 0.5 * rng.standard_normal(len(x))
    names = np.repeat(np.arange(tasks), rounds)
    return pl.DataFrame({"user_id": names, "y": y, "x0": x[:, 0], "x1": x[:, 1]})


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "log.parquet"
    pulls(np.random.default_rng(1)).write_parquet(path)
    return path


def test_a_prior_from_a_log_and_an_agent_from_the_prior(monkeypatch, capsys, tmp_path, log):
    out = tmp_path / "prior.json"
    assert call(monkeypatch, "fit", "gaussian", log, "--out", out) == 0
    assert "40 tasks and 1,200 rewards" in " ".join(capsys.readouterr().out.split())
    meta = adats.load_prior(out)
    np.testing.assert_allclose(meta.mean, [0.3, 0.6], atol=0.1)
    about = adats.read_about(out)
    assert (about["model"], about["tasks"], about["rows"]) == ("gaussian", 40, 1200)
    agent = adats.AdaTS(meta, seed=1)
    agent.tell(agent.ask("new"), reward=0.5)
    direct = adats.fit(pl.read_parquet(log), model="gaussian")
    np.testing.assert_allclose(direct.mean, meta.mean)


def test_features_columns_and_a_report(monkeypatch, capsys, tmp_path):
    path, out = tmp_path / "log.csv", tmp_path / "prior.json"
    linear_log(np.random.default_rng(2)).write_csv(path)
    words = ["--task", "user_id", "--reward", "y", "--features", "x0:x1", "--out", out]
    assert call(monkeypatch, "fit", "linear", path, *words, "--report", tmp_path / "report") == 0
    text = (tmp_path / "report" / "report.md").read_text()
    assert text.splitlines()[2].startswith("**Share**.")
    assert ", by `adats fit linear " in text.splitlines()[-1]
    assert (tmp_path / "report" / "prior.png").stat().st_size > 10_000
    np.testing.assert_allclose(adats.load_prior(out).mean, [1.0, -1.0], atol=0.2)
    assert "The report is" in capsys.readouterr().out


def test_times_bring_a_calibration(monkeypatch, tmp_path, log):
    words = ["--out", tmp_path / "p.json", "--time", "time", "--report", tmp_path / "r"]
    assert call(monkeypatch, "fit", "gaussian", log, *words) == 0
    assert (tmp_path / "r" / "calibration.png").exists()


def test_statistics_of_several_logs_add(monkeypatch, tmp_path):
    whole = pulls(np.random.default_rng(3), kind="binary")
    parts = [whole[:500], whole[500:]]
    kept = [tmp_path / "s0.parquet", tmp_path / "s1.parquet"]
    for part, name, path in zip(parts, "ab", kept, strict=True):
        part.write_parquet(tmp_path / f"{name}.parquet")
        words = ["--out", tmp_path / "part.json", "--stats", path]
        assert call(monkeypatch, "fit", "binary", tmp_path / f"{name}.parquet", *words) == 0
    assert call(monkeypatch, "fit", "binary", *kept, "--out", tmp_path / "sum.json") == 0
    whole.write_parquet(tmp_path / "whole.parquet")
    out = tmp_path / "whole.json"
    assert call(monkeypatch, "fit", "binary", tmp_path / "whole.parquet", "--out", out) == 0
    added, direct = adats.load_prior(tmp_path / "sum.json"), adats.load_prior(out)
    np.testing.assert_allclose(added.mean, direct.mean)
    mixed = call(monkeypatch, "fit", "binary", kept[0], tmp_path / "a.parquet", "--out", out)
    assert mixed == 2


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["gaussian", "LOG", "--task", "nobody"], "nobody"),
        (["binary", "LOG"], "0 or 1"),
        (["quantum", "LOG"], "quantum"),
        (["gaussian", "missing.parquet"], "missing.parquet"),
        (["linear", "LOG"], "features"),
        (["gaussian", "LOG", "--on-bad", "shrug"], "shrug"),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_written(
    monkeypatch, capsys, tmp_path, log, words, says
):
    out = tmp_path / "prior.json"
    words = [str(log) if word == "LOG" else word for word in words]
    assert call(monkeypatch, "fit", *words, "--out", out) == 2
    error = capsys.readouterr().err
    assert says in error
    assert "Traceback" not in error
    assert not out.exists()


def test_bad_rows_can_be_dropped(monkeypatch, capsys, tmp_path, log):
    spoiled = pl.read_parquet(log).with_columns(
        pl.when(pl.col("time") == 3).then(float("nan")).otherwise(pl.col("reward")).alias("reward")
    )
    spoiled.write_parquet(log)
    out = tmp_path / "prior.json"
    assert call(monkeypatch, "fit", "gaussian", log, "--out", out) == 2
    assert call(monkeypatch, "fit", "gaussian", log, "--out", out, "--on-bad", "drop") == 0
    assert "40 bad rows were dropped" in " ".join(capsys.readouterr().out.split())
    assert json.loads(out.read_text())["about"]["rows"] == 1160


def test_an_out_that_cannot_be_written_is_refused_first(monkeypatch, capsys, tmp_path, log):
    assert call(monkeypatch, "fit", "gaussian", log, "--out", tmp_path) == 2
    assert "cannot be written" in capsys.readouterr().err
    (tmp_path / "file").write_text("mine")
    words = ["--out", tmp_path / "p.json", "--report", tmp_path / "file"]
    assert call(monkeypatch, "fit", "gaussian", log, *words) == 2
    assert f"--report {tmp_path / 'file'} is a file" in " ".join(capsys.readouterr().err.split())
    assert (tmp_path / "file").read_text() == "mine"
    assert not (tmp_path / "p.json").exists()


def test_clicks_whose_arms_move_together(monkeypatch, capsys, tmp_path):
    """A table of clicks by day, of visitors who come three times."""
    rng = np.random.default_rng(3)
    rows = []
    for page in range(40):
        level = 0.5 * rng.standard_normal()
        for arm, at in (("a", -2.0), ("b", -1.5)):
            rate = 1 / (1 + np.exp(-at - level - 0.2 * rng.standard_normal()))
            for day in range(5):
                clicks = 3 * int(rng.binomial(30, rate))
                rows.append({"page": page, "arm": arm, "shown": 90, "clicks": clicks, "day": day})
    log, out = tmp_path / "clicks.csv", tmp_path / "prior.json"
    pl.DataFrame(rows).write_csv(log)
    words = ["--task", "page", "--reward", "clicks", "--pulls", "shown", "--out", out]
    assert call(monkeypatch, "fit", "binary", log, *words, "--structure", "level") == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "40 tasks and 36,000 rewards" in text
    assert "the same visitors may come again" in text
    about = adats.read_about(out)
    assert about["structure"] == "level"
    assert len(about["warnings"]) == 1
    np.testing.assert_allclose(adats.load_prior(out).mu_mean, [-2.0, -1.5], atol=0.4)
    assert call(monkeypatch, "fit", "binary", log, *words, "--batch", "day") == 0
    assert "the same visitors" in " ".join(capsys.readouterr().out.split())
    stats = tmp_path / "stats.parquet"
    words += ["--structure", "full", "--stats", stats]
    assert call(monkeypatch, "fit", "binary", log, *words) == 0
    assert call(monkeypatch, "fit", "binary", stats, "--structure", "level", "--out", out) == 0
    assert call(monkeypatch, "fit", "gaussian", log, *words) == 2


def test_tables_of_sums_means_and_columns_for_each_arm(monkeypatch, capsys, tmp_path):
    rng = np.random.default_rng(4)
    n, rate = rng.integers(20, 60, (30, 2)), np.array([0.2, 0.4])
    clicks = rng.binomial(n, rate)
    wide = {"page": np.arange(30)}
    for k, arm in enumerate("ab"):
        wide |= {f"{arm}_shown": n[:, k], f"{arm}_clicks": clicks[:, k]}
    pl.DataFrame(wide).write_csv(tmp_path / "wide.csv")
    words = ["--task", "page", "--pulls", "{arm}_shown", "--reward", "{arm}_clicks"]
    out = tmp_path / "prior.json"
    assert call(monkeypatch, "fit", "binary", tmp_path / "wide.csv", *words, "--out", out) == 0
    assert f"{n.sum():,} rewards" in " ".join(capsys.readouterr().out.split())
    prior = adats.load_prior(out)
    assert prior.arms == ("a", "b")
    np.testing.assert_allclose(prior.task_prior().mean, rate, atol=0.05)
    mean = rng.normal([1.0, 2.0], 0.3, (30, 2))
    long = {"task": np.repeat(np.arange(30), 2), "arm": ["a", "b"] * 30, "n": 10}
    table = pl.DataFrame(long | {"mean": mean.ravel(), "var": 1.0})
    table.write_csv(tmp_path / "means.csv")
    words = ["--pulls", "n", "--reward", "mean", "--squares", "var", "--out", out]
    assert call(monkeypatch, "fit", "gaussian", tmp_path / "means.csv", *words) == 0
    np.testing.assert_allclose(adats.load_prior(out).task_prior().mean, [1.0, 2.0], atol=0.3)
    dated = table.with_columns(day=pl.lit("13/02/2026"))
    dated.write_csv(tmp_path / "dated.csv")
    words += ["--time", "day"]
    assert call(monkeypatch, "fit", "gaussian", tmp_path / "dated.csv", *words) == 2
    assert "'day' must be a time such as" in " ".join(capsys.readouterr().err.split())


def test_a_file_that_is_read_is_not_written_over(monkeypatch, log, tmp_path, capsys):
    before = log.read_bytes()
    for given in ([str(log)], [str(tmp_path / "*.parquet")]):
        assert call(monkeypatch, "fit", "gaussian", *given, "--out", str(log)) == 2
        assert "is another file of this command too" in capsys.readouterr().err
    both = ["--out", str(tmp_path / "p.json"), "--stats", str(tmp_path / "p.json")]
    assert call(monkeypatch, "fit", "gaussian", str(log), *both) == 2
    assert log.read_bytes() == before
    assert not (tmp_path / "p.json").exists()
