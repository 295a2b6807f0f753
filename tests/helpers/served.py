"""A service for tests: as a process, or as an engine with a clock that is set by hand."""

import json
import re
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import contextmanager
from types import SimpleNamespace

import msgspec

from adats.service.engine import Engine
from adats.service.keys import new_key
from adats.service.replay import replay
from adats.service.spec import ExperimentSpec
from adats.service.stores.opening import is_shared, open_store, open_view
from adats.service.stores.sqlite import SQLiteKeys, SQLiteReadView, SQLiteStore
from adats.service.stores.sqlite_check import check_whole

GAUSSIAN = {
    "model": "gaussian",
    "arms": ["a", "b", "c"],
    "noise": 1.0,
    "prior": {"given": {"mean": 0.0, "scale": 1.0, "task_scale": 0.5}},
    "seed": 7,
}


@contextmanager
def process(db, *options, **settings):
    """`adats serve` on a free port: its address, and the process."""
    command = [sys.executable, "-m", "adats", "serve", "--db", str(db), "--port", "0", *options]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    running = subprocess.Popen(command, **(pipes | settings))
    try:
        line = running.stdout.readline()
        found = re.search(r"http://\S+?:\d+", line)
        if found is None:
            raise RuntimeError(line + running.communicate()[1])
        yield SimpleNamespace(url=found[0], process=running)
    finally:
        running.terminate()
        try:
            running.wait(60)
        finally:
            running.kill()
            running.wait()
            running.stdout.close()
            if running.stderr is not None:
                running.stderr.close()


def add_key(db, tenant, *, write=True):
    key, row = new_key(tenant, write=write)
    with SQLiteKeys(db, make=True) as kept:
        kept.add(row)
    return key


def call(url, method="GET", body=None, key=None):
    """Status, JSON (or bytes) and headers of one request."""
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    data = None
    if body is not None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers["Content-Type"] = "application/json"
    request = urllib.request.Request(url, data, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, _read(answer), dict(answer.headers)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, _read(error), dict(error.headers)


def _read(answer):
    content = answer.read()
    plain = answer.headers.get("content-type", "").startswith("application/json")
    return json.loads(content) if plain else content


def wrong_in(path):
    """All that is wrong with a store."""
    with SQLiteReadView(path) as view:
        return list(check_whole(view))


def at_rest(url):
    """A store, with all folded that was handed over."""
    if is_shared(url):
        store = open_store(url)
        Engine(store).fold_all()
        store.close()
    return url


def replayed(url, folder):
    """The store played again, and found to be the same."""
    again = SQLiteStore(folder / "again.db")
    with open_view(at_rest(url)) as view:
        found = replay(view, again)
    again.close()
    assert (found.changed, found.differences) == ([], [])
    return found


class Clock:
    """Time stands still until it is moved."""

    def __init__(self, time=1_000_000.0):
        self.time = time

    def __call__(self):
        return self.time


class Local:
    """An engine on a store, each operation in a transaction of its own."""

    def __init__(self, path, clock=None):
        self.clock = Clock() if clock is None else clock
        self.store = SQLiteStore(path)
        self.engine = Engine(self.store, clock=self.clock)

    def __getattr__(self, name):
        """`local.decide("x", DecisionRequest("t"))` is the engine's, for the tenant `default`."""

        def work(*arguments):
            self.engine.begin()
            try:
                self.engine.settle_due()
                result = getattr(self.engine, name)("default", *arguments)
                self.engine.flush()
            except BaseException:
                self.engine.undo()
                raise
            self.engine.commit()
            return result

        return work

    def put(self, name, spec):
        return self.__getattr__("put")(name, msgspec.convert(spec, ExperimentSpec))

    def close(self):
        self.store.close()
