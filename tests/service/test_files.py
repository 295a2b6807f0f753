"""The files of a store: one process has them, by whatever name, and nobody else reads them."""

import os
import stat

import pytest

import command
from adats.models.core.errors import FileFormatError
from adats.service.messages import DecisionRequest
from adats.service.stores.sqlite import SQLiteKeys, SQLiteReadView, SQLiteStore
from served import GAUSSIAN, Local, call, process


@pytest.mark.parametrize("first", ["x.db", "link.db"])
def test_a_symbolic_link_leads_to_the_same_lock(tmp_path, first):
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "elsewhere" / "link.db"
    link.symlink_to(tmp_path / "x.db")  # which is not there yet
    names = {"x.db": tmp_path / "x.db", "link.db": link}
    one, other = names.pop(first), *names.values()
    with process(one) as service:
        url = f"{service.url}/v1/experiments/x"
        assert call(url, "PUT", GAUSSIAN)[0] == 201
        with pytest.raises(RuntimeError, match=r"x\.db is in use by another process"):
            process(other).__enter__()
        assert call(f"{url}/decide", "POST", {"task": "t", "decision_id": "1"})[0] == 200
    assert [path.name for path in link.parent.iterdir()] == ["link.db"]  # all else is by the file
    for name in (one, other):
        with SQLiteReadView(name) as view:
            assert [row.decision_id for row in view.decisions(1)] == ["1"]


def test_a_store_that_is_taken_away_is_missed_behind_a_link_too(tmp_path):
    (tmp_path / "link.db").symlink_to(tmp_path / "x.db")
    local = Local(tmp_path / "link.db")
    try:
        local.put("x", GAUSSIAN)
        assert len(local.store._file_ids) == 2  # the file, and the -wal that is beside it
    finally:
        local.close()


def test_a_store_with_two_names_is_refused_in_one_line(tmp_path, monkeypatch, capsys):
    local = Local(tmp_path / "x.db")
    local.put("x", GAUSSIAN)
    os.link(tmp_path / "x.db", tmp_path / "y.db")
    for name in ("x.db", "y.db"):
        with pytest.raises(FileFormatError, match=r"has 2 names \(hard links\)"):
            SQLiteStore(tmp_path / name)
        with pytest.raises(FileFormatError, match="hard links"):
            SQLiteKeys(tmp_path / name)
        assert command.call(monkeypatch, "replay", tmp_path / name) == 2
        error = capsys.readouterr().err
        assert (error.count("\n"), "remove the other names" in error) == (1, True)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *("x.db", "x.db-shm", "x.db-wal", "x.db-witness", "y.db")
    ]
    local.decide("x", DecisionRequest("t", "1"))  # who was there first goes on
    local.close()
    (tmp_path / "x.db-witness").unlink()
    (tmp_path / "x.db").unlink()
    with SQLiteReadView(tmp_path / "y.db") as view:
        assert [row.decision_id for row in view.decisions(1)] == ["1"]


def modes(folder):
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}


@pytest.fixture
def _everybody_may_read():
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("_everybody_may_read")
def test_only_the_owner_reads_the_files_of_a_store(tmp_path):
    files = ["x.db", "x.db-shm", "x.db-wal", "x.db-witness"]
    with process(tmp_path / "x.db") as service:
        assert call(f"{service.url}/v1/experiments/x", "PUT", GAUSSIAN)[0] == 201
        assert modes(tmp_path) == dict.fromkeys(files, 0o600)
        service.process.kill()  # the log stays
        service.process.wait()
    for name in files:
        (tmp_path / name).chmod(0o664)  # as an earlier version left them
    local = Local(tmp_path / "x.db")
    try:
        assert local.about("x").name == "x"
        assert modes(tmp_path) == dict.fromkeys(files, 0o600)
    finally:
        local.close()
    (tmp_path / "x.db").chmod(0o644)
    with SQLiteKeys(tmp_path / "x.db") as kept:
        assert kept.key_rows() == []
        assert modes(tmp_path) == dict.fromkeys(files, 0o600)
    with SQLiteKeys(tmp_path / "new.db", make=True):
        assert set(modes(tmp_path).values()) == {0o600}
