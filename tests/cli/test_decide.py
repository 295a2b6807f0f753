"""`adats decide`: from a table of users on disk to a table of decisions."""

import sys

import numpy as np
import polars as pl
import pytest
from pyarrow import parquet

import adats
from adats.agents import stateless
from command import call

MODULE = sys.modules["adats.cli.decide"]  # the package has a function of this name
NAMES = [f"u{i}" for i in range(500)]


@pytest.fixture
def agent(tmp_path):
    """It knows half of the users."""
    made = adats.AdaTS(adats.default_prior(arms=["a", "b", "c"], rewards="binary"), seed=1)
    rng = np.random.default_rng(2)
    table = {"task": NAMES[:250], "action": rng.choice(["a", "b", "c"], size=250)}
    made.tell_many(table | {"reward": rng.integers(2, size=250)})
    made.save(tmp_path / "agent.npz")
    return tmp_path / "agent.npz"


@pytest.fixture
def users(tmp_path):
    frame = pl.DataFrame({"task": NAMES, "mail": np.arange(500), "age": np.arange(500) / 7})
    frame.write_parquet(tmp_path / "users.parquet")
    frame.write_csv(tmp_path / "users.csv")
    (tmp_path / "parts").mkdir()
    for i in range(3):
        frame[200 * i : 200 * (i + 1)].write_parquet(tmp_path / "parts" / f"{i}.parquet")
    return tmp_path


def test_decisions_for_a_table_of_every_form(monkeypatch, capsys, agent, users):
    monkeypatch.setattr(MODULE, "BATCH", 64)
    expected = stateless.decide({"task": NAMES}, adats.load(agent), seed=3)
    for name in ("users.parquet", "users.csv", "parts"):
        out = users / "out.parquet"
        assert call(monkeypatch, "decide", agent, users / name, "--out", out, "--seed", 3) == 0
        assert "500 decisions are in" in " ".join(capsys.readouterr().out.split())
        found = parquet.read_table(out)
        assert found.column_names == ["task", "action"]
        assert found["task"].to_pylist() == NAMES
        assert found["action"].to_pylist() == expected.action.tolist()
    assert sorted(p.name for p in users.iterdir() if p.name.startswith(".")) == []


def test_a_prior_and_numbered_decisions(monkeypatch, users):
    prior = users / "prior.json"
    meta = adats.GaussianMeta([0.0, 0.1], 0.5, task_scale=0.3, noise=1.0)
    adats.save_prior(meta, prior)
    out, table = users / "out.parquet", users / "users.parquet"
    options = ("--out", out, "--seed", 3, "--id", "mail", "--propensities")
    assert call(monkeypatch, "decide", prior, table, *options) == 0
    found = parquet.read_table(out)
    assert found.column_names == ["task", "action", "decision_id", "propensity"]
    frame = {"task": NAMES, "mail": np.arange(500)}
    expected = adats.decide(frame, meta, seed=3, decision_id="mail", propensities=True)
    for name in found.column_names:
        assert found[name].to_pylist() == expected[name].tolist()


def refused(monkeypatch, capsys, words, *given, out):
    """One line, exit code 2, and nothing written."""
    before = sorted(out.parent.iterdir()) if out.parent.is_dir() else None
    assert call(monkeypatch, "decide", *given, "--out", out) == 2
    error = capsys.readouterr().err
    assert words in " ".join(error.split()), error
    assert "Traceback" not in error
    assert before is None or sorted(out.parent.iterdir()) == before


def test_what_cannot_be_done_is_said_in_a_line(monkeypatch, capsys, agent, users):
    monkeypatch.setattr(MODULE, "BATCH", 64)
    out, table, seed = users / "out.parquet", users / "users.parquet", ("--seed", 3)
    bad = pl.DataFrame({"task": [None if i in (333, 340) else f"u{i}" for i in range(500)]})
    bad.write_parquet(users / "bad.parquet")
    pl.DataFrame({"task": []}, schema={"task": pl.String}).write_parquet(users / "empty.parquet")
    (users / "damaged.npz").write_bytes(agent.read_bytes()[:300])
    (users / "damaged.parquet").write_bytes(table.read_bytes()[:300])
    (users / "noise.json").write_text("{")
    far = adats.AdaTS(
        adats.GaussianMeta([0.0], 1.0, task_scale=1.0, noise=1.0), seed=1, policy="far"
    )
    far.save(users / "far.npz")
    for words, *given in [
        ("is not there", agent, users / "none.parquet", *seed),
        ("lacks user; its columns are task, mail, age", agent, table, *seed, "--task", "user"),
        ("lacks id", agent, table, *seed, "--id", "id"),
        ("row 333: a task is named by a string", agent, users / "bad.parquet", *seed),
        ("has no rows", agent, users / "empty.parquet", *seed),
        ("is damaged or not an adats-agent file", users / "damaged.npz", table, *seed),
        ("noise.json is not JSON", users / "noise.json", table, *seed),
        ("Is this a 'parquet' file?", agent, users / "damaged.parquet", *seed),
        ("plans ahead", users / "far.npz", table, *seed),
        ("seed", agent, table, "--seed", -1),
        ("propensities of a", agent, table, *seed, "--propensities"),
    ]:
        refused(monkeypatch, capsys, words, *given, out=out)
    refused(monkeypatch, capsys, "cannot be written", agent, table, *seed, out=users / "no" / "x")
    refused(monkeypatch, capsys, "cannot be written", agent, table, *seed, out=users / "parts")


def test_an_older_answer_stays_where_a_later_one_fails(monkeypatch, capsys, agent, users):
    monkeypatch.setattr(MODULE, "BATCH", 64)
    out = users / "out.parquet"
    out.write_text("old")
    bad = pl.DataFrame({"task": [None if i == 333 else f"u{i}" for i in range(500)]})
    bad.write_parquet(users / "bad.parquet")
    refused(monkeypatch, capsys, "row 333", agent, users / "bad.parquet", "--seed", 1, out=out)
    assert out.read_text() == "old"
