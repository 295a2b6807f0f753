"""What all tasks taught is not written at each commit where it is large: the tasks that changed
know what of them is in it, and whoever reads the store folds them again."""

import sqlite3
from contextlib import closing

import numpy as np
import pytest

from adats.models.latent import anchors
from adats.service import folds
from adats.service.messages import DecisionRequest, NewArm, RewardRequest
from adats.service.replay import replay
from adats.service.served_experiment import ServedExperiment
from adats.service.stores.sqlite import SQLiteReadView, SQLiteStore
from served import GAUSSIAN, Local, wrong_in

CLICKS = {"model": "binary", "arms": ["a", "b", "c"], "prior": {"default": {}}, "seed": 5}
LINEAR = {
    "model": "linear",
    "dim": 2,
    "features": [[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]],
    "arms": ["a", "b", "c"],
    "noise": 1.0,
    "prior": {"given": {"mean": [0.0, 0.0], "cov": 1.0, "task_cov": 0.5}},
    "seed": 2,
}
FEW = "few clicks"  # each reward has a new anchor, and is followed by two tasks that move to it
SPECS = {"gaussian": GAUSSIAN, "clicks": CLICKS, FEW: CLICKS, "linear": LINEAR}


@pytest.fixture(params=SPECS)
def local(request, tmp_path, monkeypatch):
    monkeypatch.setattr(folds, "LARGE_TOTAL", 0)
    monkeypatch.setattr(folds, "MOST_UNFOLDED", 5 if request.param == FEW else 3)
    if request.param != FEW:
        monkeypatch.setattr(anchors, "FEW_REWARDS", 0.0)
    local = Local(tmp_path / "x.db")
    local.put("x", SPECS[request.param])
    yield local
    local.close()


def play(local, start, count, tasks):
    rng = np.random.default_rng(start)
    for i in range(start, start + count):
        local.decide("x", DecisionRequest(f"t{rng.integers(tasks)}", f"d{i}"))
        local.reward("x", RewardRequest(f"d{i}", float(rng.random() < 0.4)))


def kept_total(path):
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT total FROM totals").fetchone()[0]


def read(path):
    """The experiment as another process has it from the store, and how many tasks it folded."""
    with SQLiteReadView(path) as view:
        row = view.experiment("default", "x")
        found = view.unfolded_tasks(row.id, row.total_version)
        return ServedExperiment(row, view), len(found)


def test_who_reads_the_store_knows_what_memory_knows(local):
    path, written, unfolded = local.store.path, set(), []
    for i in range(30):
        play(local, 3 * i, 3, tasks=5)
        served, changed = read(path)
        own = local.engine.served("default", "x").snapshot.meta
        np.testing.assert_allclose(
            served.snapshot.meta.total.value(), own.total.value(), 1e-13, 1e-13
        )
        assert served.snapshot.meta.generation == own.generation
        written.add(kept_total(path))
        unfolded.append(changed)
    assert len(written) < 25  # of 90 commits with a reward
    assert max(unfolded) == folds.MOST_UNFOLDED
    assert wrong_in(path) == []


def test_it_goes_on_after_a_restart_and_replays(local, tmp_path):
    path = local.store.path
    for i in range(12):
        play(local, 4 * i, 4, tasks=6)
        local.store.close()
        again = Local(path)
        local.store, local.engine = again.store, again.engine
    target = SQLiteStore(tmp_path / "y.db")
    try:
        with SQLiteReadView(path) as source:
            assert replay(source, target).same
    finally:
        target.close()


def test_it_is_written_when_a_task_is_forgotten_or_an_arm_is_added(local):
    play(local, 0, 8, tasks=3)
    local.forget("x", "t1")
    assert read(local.store.path)[1] == 0
    play(local, 10, 4, tasks=3)
    like = {"features": [1.0, 1.0]} if "features" in local.about("x").spec else {"like": "a"}
    local.add_arm("x", NewArm("d", **like))
    play(local, 20, 6, tasks=3)
    served, _ = read(local.store.path)
    own = local.engine.served("default", "x").snapshot.meta
    np.testing.assert_allclose(served.snapshot.meta.total.value(), own.total.value(), 1e-13, 1e-13)


def test_decisions_alone_do_not_write_it(local, monkeypatch):
    play(local, 0, 8, tasks=3)
    saved = []
    save = SQLiteStore.save
    monkeypatch.setattr(SQLiteStore, "save", lambda own, c: (saved.append(c), save(own, c))[1])
    local.decide("x", DecisionRequest("t0", "new"))
    (changes,) = saved
    assert [row.total for row in changes.experiments.values()] == [None]


def test_an_experiment_that_is_made_anew_before_the_commit_has_all_of_it(local):
    play(local, 0, 8, tasks=3)
    engine = local.engine
    engine.begin()
    engine.decide("default", "x", DecisionRequest("t0", "new"))
    engine.reward("default", "x", RewardRequest("new", 1.0))
    engine.flush()
    own = engine.served("default", "x").snapshot.meta
    engine._served.clear()
    again = engine.served("default", "x").snapshot.meta
    np.testing.assert_allclose(again.total.value(), own.total.value(), 1e-13, 1e-13)
    engine.commit()
