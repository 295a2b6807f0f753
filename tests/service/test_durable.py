"""What was acknowledged is never lost: the service is killed under load, again and again."""

import asyncio
import errno
import math
import os
import signal
import sqlite3
import threading
import time

import pytest

from adats.service.commit_queue import CommitQueue
from adats.service.engine import Engine
from adats.service.errors import OutcomeUnknown, StoreError
from adats.service.http.app import make_app
from adats.service.messages import DecisionRequest, RewardRequest
from adats.service.stores import sqlite as sqlite_store
from adats.service.stores.sqlite import SQLiteStore
from adats.service.stores.sqlite_file import commits_witnessed
from asgi import send
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
from served import GAUSSIAN, Local, call, process, wrong_in

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


class Disk:
    """What of a store has reached the disk: its log as it was when it was synced last."""

    def __init__(self, db, monkeypatch):
        self.db, self.log, self.overlapped = db, b"", 0
        self._real = sqlite_store.sync_file
        monkeypatch.setattr(sqlite_store, "sync_file", self._sync)

    def _sync(self, file):
        log = self.db.with_name("x.db-wal")
        written = log.read_bytes()  # whatever comes later is not in it
        time.sleep(0.01)
        self._real(file)
        self.overlapped += log.stat().st_size > len(written)
        self.log = written

    def after_a_power_cut(self, folder):
        folder.mkdir()
        (folder / "x.db").write_bytes(self.db.read_bytes())
        (folder / "x.db-wal").write_bytes(self.log)
        return SQLiteStore(folder / "x.db")


def test_what_is_answered_has_reached_the_disk(tmp_path, monkeypatch):
    """After each answer the power could be cut; groups overlap, and there is no checkpoint."""
    disk = Disk(tmp_path / "x.db", monkeypatch)
    local = Local(tmp_path / "x.db")
    local.put("x", GAUSSIAN)
    local.store._run("PRAGMA wal_autocheckpoint = 0")
    cuts = []

    async def client(queue, number):
        for i in range(12):
            name = f"d{number}-{i}"
            asked = DecisionRequest(f"t{number}", name)
            await asyncio.sleep(0.003 * number)  # not all of them together
            await queue.do(local.engine.decide, "default", "x", asked)
            await queue.do(local.engine.reward, "default", "x", RewardRequest(name, 1.0))
            if i % 4 == 0:
                cuts.append((name, disk.log))

    async def play():
        queue = CommitQueue(local.engine)
        queue.start()
        await asyncio.gather(*(client(queue, number) for number in range(6)))
        await queue.close()

    asyncio.run(play())
    for number, (name, disk.log) in enumerate(cuts):
        store = disk.after_a_power_cut(tmp_path / f"cut-{number}")
        assert store.decision(1, name).counted == 1.0
        store.close()
    assert len(cuts) == 18
    assert disk.overlapped  # groups were written while others were on their way to the disk
    local.close()


def test_a_group_begins_while_the_last_one_is_not_on_the_disk(tmp_path, monkeypatch):
    disk = threading.Event()
    monkeypatch.setattr(sqlite_store, "sync_file", lambda _: disk.wait(30))
    disk.set()
    local = Local(tmp_path / "x.db")
    local.put("x", GAUSSIAN)

    async def play():
        queue = CommitQueue(local.engine)
        queue.start()
        disk.clear()
        asked = []
        for i in range(3):  # of the same task: each builds on what the one before left
            ask = DecisionRequest("t", f"d{i}")
            asked.append(asyncio.create_task(queue.do(local.engine.decide, "default", "x", ask)))
            saved = queue.groups
            while queue.groups == saved:
                await asyncio.sleep(0.001)
        assert not any(one.done() for one in asked)
        assert local.store._commits == commits_witnessed(local.store.path) + 3
        disk.set()
        found = await asyncio.gather(*asked)
        assert local.store._commits == commits_witnessed(local.store.path)
        await queue.close()
        return found

    found = asyncio.run(play())
    assert [one.decision_id for one in found] == ["d0", "d1", "d2"]
    assert [one.state_version for one in found] == [0, 1, 2]
    local.close()


def test_what_was_saved_after_a_log_that_did_not_reach_the_disk_fails_too(tmp_path, monkeypatch):
    """The system may say that all is well the next time, and has forgotten what it lost."""
    local, real = Local(tmp_path / "x.db"), sqlite_store.sync_file
    local.put("x", GAUSSIAN)
    failed, syncs = threading.Event(), []

    def sync_file(file):
        syncs.append(file)
        if len(syncs) == 1:
            failed.wait(30)
            raise OSError(errno.EIO, "Input/output error")
        real(file)

    monkeypatch.setattr(sqlite_store, "sync_file", sync_file)

    async def play():
        queue = CommitQueue(local.engine)
        queue.start()

        def ask(name):
            asked = DecisionRequest("t", name)
            return asyncio.create_task(queue.do(local.engine.decide, "default", "x", asked))

        asked = []
        for name in ("d0", "d1"):
            asked.append(ask(name))
            saved = queue.groups
            while queue.groups == saved:
                await asyncio.sleep(0.001)
        failed.set()
        found = await asyncio.gather(*asked, return_exceptions=True)
        trouble = queue.trouble
        again = [await ask(name) for name in ("d0", "d1", "d2")]
        await queue.close()
        return found, trouble, again, queue.trouble

    found, trouble, again, in_the_end = asyncio.run(play())
    assert [type(one) for one in found] == [OutcomeUnknown, OutcomeUnknown]
    assert (type(trouble), in_the_end) == (StoreError, None)
    assert [one.decision_id for one in again] == ["d0", "d1", "d2"]
    assert [row.decision_id for row in local.store.decisions(1)] == ["d0", "d1", "d2"]
    local.close()


@pytest.mark.parametrize("lost", [False, True])
def test_nothing_is_built_on_what_the_disk_may_have_lost(tmp_path, monkeypatch, lost):
    """Whoever begins before anybody has heard of it too. What nobody was told of may be lost."""
    local, real = Local(tmp_path / "x.db"), sqlite_store.sync_file
    local.put("x", GAUSSIAN)
    log = tmp_path / "x.db-wal"
    size = log.stat().st_size

    def fails_once(_):
        monkeypatch.setattr(sqlite_store, "sync_file", real)
        if lost:
            os.truncate(log, size)
        raise OSError(errno.EIO, "Input/output error")

    engine = local.engine
    engine.begin()
    engine.decide("default", "x", DecisionRequest("t", "d0"))
    engine.flush()
    engine.save()
    monkeypatch.setattr(sqlite_store, "sync_file", fails_once)
    with pytest.raises(StoreError, match="Input/output error"):
        local.store.sync()
    for _ in range(2):  # what is in memory has the decision still
        with pytest.raises(StoreError, match="written anew"):
            engine.begin()
    engine.undo()
    asked = local.decide("x", DecisionRequest("t", "d0"))
    assert (asked.state_version, asked.decision_id) == (0, "d0")
    assert [row.decision_id for row in local.store.decisions(1)] == ["d0"]
    assert wrong_in(local.store.path) == []
    local.close()


def test_what_may_be_kept_has_no_fallback(tmp_path, monkeypatch):
    """Of a decision that may be in the store: the fallback would be learned from as another arm."""
    app = make_app(Engine(SQLiteStore(tmp_path / "x.db")), hosts=("localhost",))
    real, x = sqlite_store.sync_file, "/v1/experiments/x"

    def fails_once(_):
        monkeypatch.setattr(sqlite_store, "sync_file", real)
        raise OSError(errno.EIO, "Input/output error")

    async def play():
        async with app.lifespan_context(app):
            await send(app, "PUT", x, GAUSSIAN | {"control": "b"})
            monkeypatch.setattr(sqlite_store, "sync_file", fails_once)
            asked = {"task": "t", "decision_id": "d"}
            return [await send(app, "POST", f"{x}/decide", asked) for _ in range(2)]

    failed, again = asyncio.run(play())
    assert failed[0] == 503
    assert "ask again, with the same ids" in failed[1]["error"]
    assert "action" not in failed[1]
    assert again[0] == 200


@pytest.mark.parametrize("closes", [False, True])
def test_a_long_operation_waits_for_the_disk_and_the_queue_ends(tmp_path, monkeypatch, closes):
    local, disk = Local(tmp_path / "x.db"), threading.Event()
    for name in "ab":
        local.put(name, GAUSSIAN)
    real = sqlite_store.sync_file
    disk.set()

    def slow(file):
        disk.wait(30)
        real(file)

    monkeypatch.setattr(sqlite_store, "sync_file", slow)

    async def play():
        queue = CommitQueue(local.engine)
        queue.start()

        def ask(name, number, size=1.0):
            asked = DecisionRequest("t", f"{name}{number}")
            task = queue.do(local.engine.decide, "default", name, asked, size=size)
            return asyncio.create_task(task)

        for i in range(3):
            await ask("a", i)
            await ask("b", i)
        await queue.do(lambda *_: time.sleep(0.05), "default", "a", size=math.inf)
        await ask("b", 50)
        disk.clear()
        short, groups = ask("b", 100), queue.groups
        while queue.groups == groups:
            await asyncio.sleep(0.001)
        long = ask("a", 100, math.inf)  # "a" has had more time: others go first
        await asyncio.sleep(0.05)
        threading.Timer(0.2, disk.set).start()
        if not closes:
            await asyncio.gather(short, long)
        await asyncio.wait_for(queue.close(), 20)
        return await asyncio.gather(short, long)

    found = asyncio.run(asyncio.wait_for(play(), 30))
    assert [one.decision_id for one in found] == ["b100", "a100"]
    local.close()


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
    """Its commits fail, before or after they have been made, while it is told so; or they do not
    reach the disk."""

    when = None

    def sync(self):
        if self.when == "sync":
            self._synced = -1
        super().sync()

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


@pytest.mark.parametrize("when", ["before", "after", "sync"])
def test_nothing_is_acknowledged_whose_commit_failed(tmp_path, when, monkeypatch):
    real = sqlite_store.sync_file

    def sync_file(file):
        if store.when == "sync":
            raise OSError(errno.EIO, "Input/output error")
        real(file)

    made = Local(tmp_path / "x.db")
    made.put("x", GAUSSIAN)
    made.close()
    store = Failing(tmp_path / "x.db")
    monkeypatch.setattr(sqlite_store, "sync_file", sync_file)
    try:
        engine = Engine(store)
        store.when = when
        found, trouble = ask_and_tell(engine)
        assert {type(answer) for answer in found} == {
            OutcomeUnknown if when == "sync" else StoreError
        }
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
