"""Logs as people have them: sums, means and variances, wide tables; and mistakes in them."""

import numpy as np
import pandas as pd
import pytest

from adats import analyse, fit
from adats.learning import logs, tables
from adats.learning.checks import mistaken, swapped
from adats.learning.logs import statistics
from adats.learning.tables import is_statistics, load_statistics, save_statistics


def rows(rng, kind="gaussian", tasks=30, pulls=4):
    """A row a pull of arms a and b in every task."""
    task, arm = np.repeat(np.arange(tasks), 2 * pulls), np.tile(np.repeat(["a", "b"], pulls), tasks)
    mean = 0.3 + 0.3 * (arm == "b") + 0.1 * np.repeat(rng.standard_normal(tasks), 2 * pulls)
    y = mean + 0.2 * rng.standard_normal(task.size)
    if kind == "binary":
        y = (rng.random(task.size) < np.clip(mean, 0, 1)).astype(int)
    return pd.DataFrame({"task": task, "arm": arm, "reward": y})


def same(one, other):
    assert one.tasks == other.tasks
    assert one.arms == other.arms
    np.testing.assert_allclose(one.table, other.table, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", ["frame", "csv"])
def test_means_and_variances_are_the_rows_they_came_from(kind, tmp_path):
    log = rows(np.random.default_rng(0))
    groups = log.groupby(["task", "arm"]).reward
    means = groups.agg(["count", "mean", "var"]).reset_index()
    if kind == "csv":
        means.to_csv(tmp_path / "means.csv", index=False)
        means = tmp_path / "means.csv"
    columns = {"pulls": "count", "reward": "mean", "squares": "var"}
    found = statistics(means, model="gaussian", **columns).table
    same(found, statistics(log, model="gaussian").table)
    sums = groups.agg(n="count", total="sum", squares=lambda y: (y * y).sum()).reset_index()
    columns = {"pulls": "n", "reward": "total", "squares": "squares", "means": False}
    same(statistics(sums, model="gaussian", **columns).table, found)


def test_a_variance_of_one_pull_is_not_asked_for():
    log = pd.DataFrame({"task": [1, 1, 2], "arm": "a", "n": [1, 3, 1], "mean": [2.0, 1.0, 5.0]})
    log["var"] = [None, 0.5, float("nan")]
    found = statistics(log, model="gaussian", pulls="n", reward="mean", squares="var").table
    np.testing.assert_allclose(found.table[:, :, 0], [[4, 5, 8], [1, 5, 25]])
    bad = log.assign(var=[None, -0.5, None])
    with pytest.raises(ValueError, match=r"'var' must be a variance, 0 or more.* 1 of"):
        statistics(bad, model="gaussian", pulls="n", reward="mean", squares="var")
    with pytest.raises(ValueError, match=r"'mean' must be a finite number.*1 of 3 rows"):
        statistics(log.assign(mean=[1.0, np.inf, 2.0]), model="gaussian", pulls="n", reward="mean",
                   squares="var")  # fmt: skip


def test_rates_of_clicks_may_be_means():
    log = pd.DataFrame({"task": [1, 2], "arm": "a", "shown": [10, 20], "ctr": [0.3, 0.05]})
    found = statistics(log, model="binary", pulls="shown", reward="ctr", means=True).table
    np.testing.assert_allclose(found.table[:, :2, 0], [[10, 3], [20, 1]])
    bad = log.assign(ctr=[0.3, 5.0])
    with pytest.raises(ValueError, match="from 0 to 1, but is not in 1 of 2 rows"):
        statistics(bad, model="binary", pulls="shown", reward="ctr", means=True)


def test_sums_that_no_rewards_have_are_refused():
    log = pd.DataFrame({"task": [1, 2], "arm": "a", "n": [2, 2], "s": [4.0, 4.0], "q": [8.0, 7.0]})
    with pytest.raises(ValueError, match=r"'q' must be a sum of squares, at least .* in 1 of 2"):
        statistics(log, model="gaussian", pulls="n", reward="s", squares="q", means=False)
    with pytest.raises(ValueError, match="gaussian rewards with pulls= need squares="):
        statistics(log, model="gaussian", pulls="n", reward="s")
    with pytest.raises(ValueError, match="squares are for gaussian rewards"):
        statistics(log, model="binary", pulls="n", reward="s", squares="q")
    with pytest.raises(ValueError, match="squares and means are of several pulls"):
        statistics(log, model="gaussian", reward="s", squares="q")


@pytest.mark.parametrize("kind", ["frame", "csv", "parquet"])
def test_a_wide_table_is_the_long_one(kind, tmp_path):
    log = rows(np.random.default_rng(1), "binary")
    groups = log.groupby(["task", "arm"]).reward.agg(["count", "sum"]).unstack()
    wide = pd.DataFrame({
        f"{arm}_{name}": groups[how, arm]
        for arm in "ab" for how, name in (("count", "shown"), ("sum", "clicks"))
    }).reset_index()  # fmt: skip
    wide["b_shown"] = wide.b_shown.astype(float)
    wide.loc[3, ["b_shown", "b_clicks"]] = None  # task 3 had no b
    if kind == "csv":
        wide.to_csv(tmp_path / "wide.csv", index=False)
    elif kind == "parquet":
        wide.to_parquet(tmp_path / "wide.parquet")
    source = wide if kind == "frame" else tmp_path / f"wide.{kind}"
    found = statistics(source, model="binary", pulls="{arm}_shown", reward="{arm}_clicks").table
    same(found, statistics(log[(log.task != 3) | (log.arm != "b")], model="binary").table)
    single = pd.DataFrame({"task": [1, 2], "red": [1.0, 2.5], "blue": [None, 3.0]})
    one = statistics(single.add_prefix("y_").rename(columns={"y_task": "task"}), model="gaussian",
                     reward="y_{arm}").table  # fmt: skip
    assert one.arms == ("blue", "red")
    np.testing.assert_array_equal(one.table[:, 0], [[0, 1], [1, 1]])
    with pytest.raises(ValueError, match=r"must have \{arm\} in it too"):
        statistics(wide, model="binary", pulls="shown", reward="{arm}_clicks")
    with pytest.raises(ValueError, match=r"no column is like '\{arm\}_wins'"):
        statistics(wide, model="binary", reward="{arm}_wins")


def test_features_of_tasks_and_arms_are_read_and_kept(tmp_path):
    log = rows(np.random.default_rng(2))
    log = log.assign(age=20 + log.task, price=np.where(log.arm == "a", 1.5, 2.5))
    known = {"task_features": ["age"], "arm_features": "price"}
    table = statistics(log, model="gaussian", **known).table
    np.testing.assert_array_equal(table.task_features.values[:, 0], 20 + np.arange(30))
    np.testing.assert_array_equal(table.arm_features.values[:, 0], [1.5, 2.5])
    save_statistics(tmp_path / "s.parquet", table)
    again = load_statistics(tmp_path / "s.parquet")
    np.testing.assert_array_equal(again.task_features.values, table.task_features.values)
    np.testing.assert_array_equal(again.arm_features.values, table.arm_features.values)
    both = again.subset(np.arange(10)) + again.subset(np.arange(5, 30))
    np.testing.assert_array_equal(both.task_features.values, table.task_features.values)
    log.loc[3, "age"] = 99
    with pytest.raises(ValueError, match=r"'age' must be the same in all rows of a task.* 1 of 30"):
        statistics(log, model="gaussian", **known)
    with pytest.raises(ValueError, match="no column 'plan'"):
        statistics(log, model="gaussian", task_features=["plan"])
    with pytest.raises(ValueError, match="add if both have the same features"):
        again + statistics(rows(np.random.default_rng(2)), model="gaussian").table


def test_arms_of_many_names_become_places(monkeypatch):
    """Every task has other arms: a column for each would be too many."""
    monkeypatch.setattr(logs, "MOST_CELLS", 1000)
    log = rows(np.random.default_rng(3), "binary")
    named = log.assign(arm=log.task.astype(str) + log.arm)
    table = statistics(named, model="binary").table
    assert table.packed
    assert table.arms == (0, 1)
    np.testing.assert_array_equal(
        table.table.sum(axis=2), statistics(log, model="binary").table.table.sum(axis=2)
    )
    found = analyse(named, model="binary")
    assert found.structure == "exchangeable"


def test_what_a_file_is_is_seen_from_its_header(tmp_path, monkeypatch):
    table = statistics(rows(np.random.default_rng(4)), model="gaussian").table
    save_statistics(tmp_path / "stats.parquet", table)
    rows(np.random.default_rng(4)).to_parquet(tmp_path / "log.parquet")
    _, parquet = tables._pyarrow()
    monkeypatch.setattr(parquet, "read_table", lambda *_: 1 / 0)
    assert is_statistics(tmp_path / "stats.parquet")
    assert not is_statistics(tmp_path / "log.parquet")
    assert not is_statistics(tmp_path / "log.csv")


# mistakes


@pytest.mark.parametrize("dates", [
    ["13/02/2026", "14/02/2026"], ["01.02.2026", "02.02.2026"], ["01/26/26", "01/27/26"],
    ["26-1-2026", "yesterday"],
])  # fmt: skip
def test_dates_that_cannot_be_read_are_an_error(dates, tmp_path):
    log = rows(np.random.default_rng(5)).assign(when=np.tile(dates, 120))
    with pytest.raises(ValueError, match=r"'when' must be a time such as .* 240 of 240 rows"):
        fit(log, model="gaussian", time="when")
    log.to_csv(tmp_path / "log.csv", index=False)
    with pytest.raises(ValueError, match=rf"for example .*{dates[0]}"):
        fit(tmp_path / "log.csv", model="gaussian", time="when")
    log["when"] = np.tile(["2026-02-13", None, "2026-02-14T10:30:00", "1770000000"], 60)
    fit(log, model="gaussian", time="when")


@pytest.mark.parametrize("how", ["no time", "seconds", "days", "ids", "retries", "sums"])
def test_rows_that_are_there_twice_are_warned_of(how):
    rng = np.random.default_rng(6)
    log = rows(rng, "binary", pulls=8)
    options = {}
    if how == "seconds":
        log["time"] = 1.7e9 + 37.5 * np.arange(len(log))
    if how == "days":
        log["time"] = pd.Timestamp("2026-01-01") + pd.to_timedelta(np.arange(len(log)) % 3, "D")
    if how in ("ids", "retries"):
        log["decision_id"] = np.arange(len(log))
    if how == "sums":
        log = log.groupby(["task", "arm"]).reward.agg(n="count", s="sum").reset_index()
        options = {"pulls": "n", "reward": "s"}
    extra = log[:7] if how == "retries" else log
    with pytest.warns(UserWarning, match=r"is the log duplicated\? They count twice; for example"):
        fit(pd.concat([log, extra]), model="binary", structure="level", **options)
    fit(log, model="binary", structure="level", **options)  # warnings are errors here


def test_times_in_a_column_of_any_name_tell_rows_apart(tmp_path):
    """Then a tenth of the rows is enough, which by chance could be alike in all else."""
    log = rows(np.random.default_rng(6), "binary", pulls=8)
    log["when"] = (pd.Timestamp("2026-01-01") + pd.to_timedelta(37 * log.index, "s")).astype(str)
    pd.concat([log, log[::10]]).to_csv(tmp_path / "log.csv", index=False)
    with pytest.warns(UserWarning, match=r"is the log duplicated\?"):
        fit(tmp_path / "log.csv", model="binary", structure="level", time="when")


@pytest.mark.parametrize("how", ["one row each", "days", "wide"])
def test_some_sums_that_are_there_twice_are_warned_of(how):
    """As where two exports overlap: a tenth of the rows."""
    rng = np.random.default_rng(8)
    shape = 40, 2, 5 if how == "days" else 1
    task, arm, day = (part.ravel() for part in np.indices(shape))
    log = pd.DataFrame({"task": task, "arm": np.array(["a", "b"])[arm], "day": day})
    log["n"] = rng.integers(100, 999, len(log))
    log["s"] = rng.binomial(log.n, 0.1)
    log["day"] = pd.Timestamp("2026-01-01") + pd.to_timedelta(day, "D")
    columns = {"pulls": "n", "reward": "s", "time": "day"}
    if how != "days":
        log = log.drop(columns="day")
        del columns["time"]
    if how == "wide":
        log = log.pivot(index="task", columns="arm").reset_index()
        log.columns = ["task", "n_a", "n_b", "s_a", "s_b"]
        columns = {"pulls": "n_{arm}", "reward": "s_{arm}"}
    with pytest.warns(UserWarning, match=r"are in it once more: is the log duplicated\?"):
        fit(pd.concat([log, log[::10]]), model="binary", structure="level", **columns)
    fit(log, model="binary", structure="level", **columns)  # warnings are errors here


def test_small_sums_that_are_alike_are_no_duplicates():
    """Batches of five, of which nobody knows the day, and hardly any click."""
    rng = np.random.default_rng(9)
    log = pd.DataFrame({"task": np.arange(900) // 6 % 50, "arm": "a", "n": 5})
    log["s"] = rng.binomial(5, 0.01, 900)
    fit(log, model="binary", structure="independent", pulls="n", reward="s")


def test_tasks_and_arms_that_are_swapped_are_warned_of():
    log = rows(np.random.default_rng(7), "binary", tasks=40)
    with pytest.warns(UserWarning, match="2 tasks and 40 arms: are the columns of tasks and arms"):
        fit(log, model="binary", task="arm", arm="task", structure="independent")
    assert swapped(statistics(log, model="binary").table) == ()


def mistakes(log, **columns):
    return mistaken(log, model="binary", **columns)


def test_rates_where_sums_are_asked_for_are_warned_of():
    log = pd.DataFrame({"task": range(30), "arm": "ab" * 15, "shown": 100, "ctr": 0.034})
    columns = {"reward": "ctr", "pulls": "shown"}
    (said,) = mistakes(log, **columns)
    assert "in 30 of 30 rows with several 'shown', 'ctr' is a fraction, and never above 1" in said
    assert mistakes(log, **columns, means=True) == ()
    assert mistakes(log.assign(ctr=3.4), **columns) == ()  # a sum of parts
    assert mistakes(log.assign(ctr=1), **columns) == ()
    with pytest.warns(UserWarning, match="are these rates"):
        fit(log, model="binary", structure="independent", **columns)


def test_numbers_that_look_like_dates_are_warned_of():
    log = rows(np.random.default_rng(8), "binary")
    for times, said in (
        (
            20260201 + log.index % 28,
            "'when' has numbers from 20260201 to 20260228: are these dates?",
        ),
        (1_770_000_000_000 + log.index, "are these milliseconds, or less?"),
        (1_770_000_000 + log.index, None),
        (log.index, None),
    ):
        found = mistakes(log.assign(when=times), time="when")
        assert [said in one for one in found] == [True] * (said is not None)
        text = mistakes(log.assign(when=times.astype(str)), time="when")
        assert text == found


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ([0.5, 33.3], "in 30 of 60 rows it is not, for example '33.3'"),
        ([0.5, 0.0], "in 30 of 60 rows it is not, for example '0.0'"),
        ([0.5, None], "30 of 60 rows have none"),
        (["0.5", "half"], "in 30 of 60 rows it is not, for example 'half'"),
        ([0.5, 1.0], None),
        ([None, None], None),
    ],
)
def test_propensities_that_are_none_are_warned_of(bad, said):
    log = rows(np.random.default_rng(9), "binary", tasks=15, pulls=2)
    found = mistakes(log.assign(propensity=np.tile(np.array(bad, dtype=object), 30)))
    assert [said in one for one in found] == [True] * (said is not None)


def test_quotes_that_begin_late_are_quotes(tmp_path):
    path, lines = tmp_path / "log.csv", ["task,arm,reward"]
    lines += [f"u{i % 300},{'ab'[i % 2]},{i % 2}" for i in range(30_000)]
    lines += [f'"u{i % 300}","{"ab"[i % 2]}",{i % 2}' for i in range(3000)] + ['"u, 1","a",1']
    path.write_text("\n".join(lines))
    found = statistics(path, model="binary").table
    assert found.arms == ("a", "b")
    assert len(found) == 301
    assert found.table[:, 0].sum() == 33_001


def test_columns_that_have_another_part_are_no_arms_of_a_wide_table():
    log = pd.DataFrame({"user": range(5), "a": 1, "b": 0, "when": 3.0, "age": 30})
    columns = {"task": "user", "reward": "{arm}", "time": "when", "task_features": ["age"]}
    found = statistics(log, model="binary", **columns).table
    assert found.arms == ("a", "b")


def test_structures_with_a_covariance_for_all_arms_are_for_some_arms():
    arms = 160
    log = pd.DataFrame({"task": np.repeat(range(20), arms), "arm": list(range(arms)) * 20})
    log["reward"] = np.random.default_rng(3).integers(2, size=len(log))
    with pytest.raises(ValueError, match=r"'level' is for at most 150 arms, and the log has 160"):
        fit(log, model="binary", structure="level")
    assert analyse(log, model="binary").structure == "independent"
