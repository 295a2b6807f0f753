"""What was acknowledged is never lost: the service is killed under load, again and again."""

import asyncio
import errno
import os
import signal
import sqlite3

import pytest

from adats.service.commit_queue import CommitQueue
from adats.service.engine import Engine
from adats.service.errors import StoreError
from adats.service.messages import DecisionRequest, RewardRequest
from adats.service.stores.sqlite import SQLiteStore
from adats.service.stores.sqlite_file import commits_witnessed
from hammer import (
    Client,
    Connection,
    check_log,
    check_replay,
    check_service,
    check_statistics,
    cut_off,
    heard,
    kill_often,
    loaded,
    start,
    told_by_library,
    wait_for,
)
from served import GAUSSIAN, Local, call, process

# Acknowledges each operation, but commits only the first few.
LAZY = """
from adats.service.stores import sqlite

class Lazy(sqlite.SQLiteStore):
    commits = 0

    def begin(self):
        if not self._connection.in_transaction:
            super().begin()

    def save(self, changes):
        Lazy.commits += 1
        if Lazy.commits < 10:
            super().save(changes)
        else:
            self._write(changes)

sqlite.SQLiteStore = Lazy
"""


def test_what_was_acknowledged_before_kill_9_is_there_after_it(tmp_path, monkeypatch, capsys):
    db = tmp_path / "x.db"
    clients = [Client(number, seed=1) for number in range(8)]
    kill_often(db, clients, times=6, seed=2)
    assert cut_off(clients) > 0  # it was killed in the middle of its work
    assert heard(clients) > 200
    with process(db) as service:
        with Connection(service.url) as connection:
            for client in clients:
                client.ask_all_again(connection)
        check_service(service, db, clients)
        known = heard(clients)
        with loaded(service.url, clients):
            wait_for(lambda: heard(clients) > known + 100)
            service.process.terminate()
            assert service.process.wait(15) in (0, -signal.SIGTERM)
        assert service.process.stderr.read() == ""
    check_log(db, clients)
    check_replay(db, monkeypatch, capsys)


def test_a_store_that_acknowledges_before_it_commits_is_found_out(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(LAZY)
    paths = [str(tmp_path), os.environ.get("PYTHONPATH", "")]
    settings = {"env": os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}}
    clients = [Client(number, seed=3) for number in range(4)]
    db = tmp_path / "x.db"
    with process(db, **settings) as service:
        start(service.url)
        with loaded(service.url, clients):
            wait_for(lambda: heard(clients) > 100)
            service.process.kill()
    with pytest.raises(AssertionError, match="was acknowledged and is lost"):
        check_log(db, clients)


def test_the_log_is_written_ahead_and_synced_at_every_commit(tmp_path):
    store = SQLiteStore(tmp_path / "x.db")
    try:
        for pragma, wanted in (("journal_mode", "wal"), ("synchronous", 2)):
            assert store._connection.execute(f"PRAGMA {pragma}").fetchone() == (wanted,)
    finally:
        store.close()


def test_operations_of_many_connections_share_commits(tmp_path):
    db = tmp_path / "x.db"
    clients = [Client(number, seed=4) for number in range(32)]
    with process(db) as service:
        start(service.url)
        before = groups(service.url)
        with loaded(service.url, clients):
            wait_for(lambda: heard(clients) > 1000)
        shared = groups(service.url) - before
    check_log(db, clients)
    reader = sqlite3.connect(db)
    (commits,) = reader.execute("SELECT count FROM commits").fetchone()
    reader.close()
    assert commits <= shared + before
    assert shared < heard(clients) / 3  # a group has up to 32 operations here


def groups(url):
    lines = call(f"{url}/metrics")[1].decode().splitlines()
    return float(next(line for line in lines if line.startswith("adats_groups ")).split()[1])


# a store whose commit fails


class Failing(SQLiteStore):
    """Its commits fail, before or after they have been made, while it is told so."""

    when = None

    def save(self, changes):
        if self.when == "before":
            raise StoreError("disk I/O error")
        super().save(changes)
        if self.when == "after":
            raise StoreError("disk I/O error")


def ask_and_tell(engine, count=3):
    """Some decisions, all at once, and a reward for the first."""

    async def play():
        queue = CommitQueue(engine)
        queue.start()
        try:
            asks = [DecisionRequest(f"t{i}", f"d{i}") for i in range(count)]
            asked = [queue.do(engine.decide, "default", "x", ask) for ask in asks]
            found = await asyncio.gather(*asked, return_exceptions=True)
            tell = queue.do(engine.reward, "default", "x", RewardRequest("d0", 1.0))
            found += await asyncio.gather(tell, return_exceptions=True)
            return found, queue.trouble
        finally:
            await queue.close()

    return asyncio.run(play())


@pytest.mark.parametrize("when", ["before", "after"])
def test_nothing_is_acknowledged_whose_commit_failed(tmp_path, when):
    made = Local(tmp_path / "x.db")
    made.put("x", GAUSSIAN)
    made.close()
    store = Failing(tmp_path / "x.db")
    try:
        engine = Engine(store)
        store.when = when
        found, trouble = ask_and_tell(engine)
        assert {type(answer) for answer in found} == {StoreError}
        assert isinstance(trouble, StoreError)
        store.when = None
        found, trouble = ask_and_tell(engine)
        assert [answer.decision_id for answer in found] == ["d0", "d1", "d2", "d0"]
        assert found[-1].status == ("counted" if when == "before" else "duplicate")
        assert trouble is None
        decisions = list(store.decisions(1))
        assert [row.decision_id for row in decisions] == ["d0", "d1", "d2"]
        check_statistics(store, store.by_id(1), told_by_library(decisions), decisions)
    finally:
        store.close()


def test_a_witness_that_cannot_be_written_is_behind_and_no_more(tmp_path, monkeypatch):
    made = Local(tmp_path / "x.db")
    made.put("x", GAUSSIAN)
    before = commits_witnessed(made.store.path)

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    try:
        with monkeypatch.context() as patched:
            patched.setattr(os, "pwrite", full)
            found, trouble = ask_and_tell(made.engine)
        assert trouble is None
        assert found[-1].status == "counted"
        assert commits_witnessed(made.store.path) == before
        made.decide("x", DecisionRequest("t", "another"))
        assert commits_witnessed(made.store.path) > before + 1
    finally:
        made.close()
