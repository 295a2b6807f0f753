"""Nothing holds the event loop for long: others are answered meanwhile."""

import asyncio
import gc
import itertools
import json
import sys
import time
from contextlib import suppress

import numpy as np
import pytest

from adats.models import BetaArms, GaussianMeta, LinearMeta, MixtureMeta, ModelMixture
from adats.models.prior_files import prior_to_dict
from adats.service.engine import Engine
from adats.service.http.app import make_app
from adats.service.http.operations import LARGEST_SPEC
from adats.service.http.readers import LONGEST_REST, REST, Readers
from adats.service.server import put_the_loop_first
from adats.service.stores.sqlite import SQLiteStore
from asgi import send
from served import GAUSSIAN, Clock

LONGEST_HOLD = 0.05  # seconds
X = "/v1/experiments/x"
WINDOW = 10.0


@pytest.fixture(autouse=True)
def _as_before():
    turn = sys.getswitchinterval()
    yield
    sys.setswitchinterval(turn)


class Heart:
    """Beats on the loop. The longest gap is in time of this process: others do not matter.

    If they keep the loop from a processor, that is no part of the gap; if they keep the thread
    from it that the loop waits for, the time of the process stands still.
    """

    def __init__(self):
        self.longest = 0.0

    async def beat(self):
        last = _clocks()
        while True:
            await asyncio.sleep(0.001)
            now = _clocks()
            self.longest = max(self.longest, min(b - a for a, b in zip(last, now, strict=True)))
            last = now


def _clocks():
    """The time in which this thread did not wait for a processor, and that of the process."""
    with suppress(FileNotFoundError), open("/proc/thread-self/schedstat") as file:
        return time.perf_counter() - 1e-9 * int(file.read().split()[1]), time.process_time()
    return time.perf_counter(), time.process_time()


def longest_hold(path, before, during, clock=time.time, jump=0.0):
    """Seconds, and the statuses of the calls; all of `during` are sent at once."""

    gc.collect()
    put_the_loop_first()  # as the service does when it starts

    async def run():
        app = make_app(Engine(SQLiteStore(path), clock=clock), hosts=("localhost",))
        async with app.lifespan_context(app):
            for calls in (before[:1], before[1:501], before[501:1001], before[1001:]):
                for status, _ in await asyncio.gather(*(send(app, *call) for call in calls)):
                    assert status in (200, 201)
            if jump:
                clock.time += jump
            heart = Heart()
            beating = asyncio.create_task(heart.beat())
            found = await asyncio.gather(*(send(app, *call, parsed=False) for call in during))
            await asyncio.sleep(0.05)
            beating.cancel()
            return heart.longest, [status for status, _ in found]

    return asyncio.run(run())


def of_many_models():
    """As costly as it may be: 1,000 models of 20 arms."""
    part = GaussianMeta(
        np.zeros(20), 1.0, task_scale=0.5, noise=1.0, arms=[f"a{i}" for i in range(20)]
    )
    file = prior_to_dict(ModelMixture([0.5, 0.5], [part, part]))
    many = {"models": file["prior"]["models"][:1] * 1000, "log_weights": [-np.log(1000)] * 1000}
    return {"model": "gaussian", "prior": {"file": file | {"prior": file["prior"] | many}}}


def of_many_candidates():
    table = np.ones((50, 400)) + np.arange(400) / 1000
    meta = MixtureMeta(
        np.full(50, 0.02), BetaArms(table, table), arms=[f"a{i}" for i in range(400)]
    )
    return {"model": "binary", "prior": {"file": prior_to_dict(meta)}}


def of_many_features():
    """Whose file is large: 128 × 128 numbers of 18 digits."""
    cov = np.eye(128) + 1e-5 * np.random.default_rng(1).normal(size=(128, 128))
    meta = LinearMeta(np.zeros(128), cov @ cov.T, task_cov=0.5, noise=1.0)
    return {
        "model": "linear",
        "features": np.eye(128)[:3].tolist(),
        "prior": {"file": prior_to_dict(meta)},
    }


LARGE = (of_many_models, of_many_candidates, of_many_features)


def with_tasks(spec=GAUSSIAN, tasks=1000):
    """An experiment whose tasks have a decision and a reward each."""
    rewards = [{"decision_id": f"d{i}", "reward": 1.0} for i in range(tasks)]
    asks = [
        ("POST", f"{X}/decide", {"task": f"t{i}", "decision_id": f"d{i}"}) for i in range(tasks)
    ]
    return [("PUT", X, spec), *asks], ("POST", f"{X}/reward", {"rewards": rewards})


BAD = {
    "cut off": b'{"prior": {"file": {"x": [' + b"0.123456789," * (LARGEST_SPEC // 12 - 10),
    "not a number": b'{"prior": {"file": {"x": [' + b"1.2345678901234," * 400_000 + b"NaN]}}}",
    "of too many values": b'{"prior": {"file": {"x": ['
    + b"1," * (LARGEST_SPEC // 2 - 20)
    + b"1]}}}",
    "nested": b"[" * (LARGEST_SPEC - 10),
    "of lists in lists": b'{"prior": {"file": {"x": [' + b"[[[[[1]]]]]," * 490_000 + b"1]}}}",
    "of many names": b'{"prior": {"file": {%s}}}'
    % b",".join(b'"k%d": 1' % i for i in range(490_000)),
    "of another kind": b'{"model": [' + b'"a",' * (LARGEST_SPEC // 4 - 10) + b'"a"]}',
}


def least_hold(folder, wanted, *calls, **clock):
    """The least of some tries: what else the machine does only adds to it."""
    tries = []
    for number in range(5):
        held, statuses = longest_hold(folder / f"{number}.db", *calls, **clock)
        assert statuses == wanted
        tries.append(held)
        if held < LONGEST_HOLD:
            break
    return min(tries)


@pytest.mark.parametrize("body", BAD)
def test_a_large_body_that_is_bad(tmp_path, body):
    assert least_hold(tmp_path, [422], [], [("PUT", X, BAD[body])]) < LONGEST_HOLD


def test_nan_in_a_large_body_is_said(tmp_path):
    async def run():
        app = make_app(Engine(SQLiteStore(tmp_path / "x.db")), hosts=("localhost",))
        async with app.lifespan_context(app):
            return await send(app, "PUT", X, BAD["not a number"])

    assert asyncio.run(run()) == (422, {"error": "numbers must be finite", "field": None})


def test_a_batch_of_rewards(tmp_path):
    before, rewards = with_tasks()
    assert least_hold(tmp_path, [200] * 3, before, [rewards] * 3) < LONGEST_HOLD


def test_reads(tmp_path):
    before, rewards = with_tasks()
    parts = ("", "/tasks/t1", "/meta", "/report", "/log")
    reads = [("GET", X + part) for part in parts] * 4
    assert least_hold(tmp_path, [200] * 20, [*before, rewards], reads) < LONGEST_HOLD


def test_windows_that_end_all_at_once(tmp_path):
    spec = GAUSSIAN | {"window": WINDOW, "default_reward": 0.0}
    before, _ = with_tasks(spec)
    ask = ("POST", f"{X}/decide", {"task": "t"})
    assert least_hold(tmp_path, [200], before, [ask], Clock(), 2 * WINDOW) < LONGEST_HOLD


@pytest.mark.parametrize("prior", LARGE)
def test_a_prior_as_large_as_it_may_be(tmp_path, prior):
    asks = [("POST", f"{X}/decide", {"task": "t", "decision_id": f"d{i}"}) for i in range(3)]
    reward = ("POST", f"{X}/reward", {"decision_id": "d0", "reward": 1.0})
    reads = [("GET", X), ("GET", f"{X}/meta"), ("GET", f"{X}/tasks/t")]
    tries = []
    for number in range(5):  # the least of some: what else the machine does only adds to it
        held = {}
        for name, calls, wanted in (
            ("put", [("PUT", X, json.dumps(prior()).encode())], 201),
            ("decide", asks, 200),
            ("reward and reads", [reward, *reads], 200),
            ("forget", [("DELETE", f"{X}/tasks/t")], 204),
        ):
            held[name], statuses = longest_hold(tmp_path / f"{number}.db", [], calls)
            assert statuses == [wanted] * len(calls)
        tries.append(held)
        if max(held.values()) < LONGEST_HOLD:
            break
    assert min(max(held.values()) for held in tries) < LONGEST_HOLD, tries


def reading(store, commits, monkeypatch, looks=10, seconds=0.004):
    """Seconds that some reads take, one after another, the processor's in them, and the rests'."""
    used, rests, sleep = [], [], asyncio.sleep

    def work(_):
        began = time.thread_time()
        while time.thread_time() - began < seconds:
            pass
        used.append(time.thread_time() - began)

    async def rest(pause):
        rests.append(pause)
        await sleep(pause)

    async def all_of_them():
        readers = Readers(store, lambda: next(commits))
        began = time.monotonic()
        for _ in range(looks):
            await readers.read(work)
        readers.close()
        return time.monotonic() - began

    with monkeypatch.context() as patch:
        patch.setattr(asyncio, "sleep", rest)
        return asyncio.run(all_of_them()), sum(used), sum(rests)


def test_reads_rest_where_operations_are_carried_out(tmp_path, monkeypatch):
    store = SQLiteStore(tmp_path / "a.db")
    took, used, _ = reading(store, itertools.count(), monkeypatch)
    assert took >= REST * used * 9 / 10  # after each but the last
    long = 2 * LONGEST_REST / REST
    took, used, rests = reading(store, itertools.count(), monkeypatch, looks=3, seconds=long)
    assert took >= 2 * LONGEST_REST
    assert rests <= 2 * LONGEST_REST < REST * used  # no rest is longer than that
    store.close()


def test_reads_do_not_rest_where_nothing_else_happens(tmp_path, monkeypatch):
    store = SQLiteStore(tmp_path / "a.db")
    after_many = itertools.chain([0] * 59, itertools.count(1))  # two looks at it a read
    _, _, rests = reading(store, after_many, monkeypatch, looks=31, seconds=0.02)
    assert rests < 2 * LONGEST_REST  # of the last, and not of all
    assert reading(store, itertools.repeat(7), monkeypatch)[2] == 0.0
    store.close()


def exporting(store, commits, exports=2, pieces=5, seconds=0.02):
    """Seconds that some exports take at once; how many of their pieces were made at a time."""
    at_work, most = [], 0

    def made():
        nonlocal most
        for _ in range(pieces):
            at_work.append(None)
            most = max(most, len(at_work))
            time.sleep(seconds)
            at_work.pop()
            yield b"piece"

    async def one(readers):
        async with readers.export() as (_, stop):
            own = made()
            while await readers.piece(own, stop) is not None:
                pass

    async def all_of_them():
        readers = Readers(store, lambda: next(commits))
        began = time.monotonic()
        await asyncio.gather(*(one(readers) for _ in range(exports)))
        readers.close()
        return time.monotonic() - began, most

    return asyncio.run(all_of_them())


def test_exports_take_turns_and_rest_where_operations_are_carried_out(tmp_path):
    store = SQLiteStore(tmp_path / "a.db")
    used = 2 * 5 * 0.02
    took, most = exporting(store, itertools.count())
    assert (most, took >= 2 * used) == (1, True)
    took, most = min(exporting(store, itertools.repeat(7)) for _ in range(5))
    assert (most, took < 1.9 * used) == (1, True)
    store.close()


def test_an_export_that_has_to_stop_rests_no_longer(tmp_path):
    store, commits = SQLiteStore(tmp_path / "a.db"), itertools.count()

    def slow():
        time.sleep(1.0)
        yield b"piece"
        raise AssertionError("a piece for nobody")

    async def run():
        readers = Readers(store, lambda: next(commits))
        async with readers.export() as (_, stop):
            pieces, began = slow(), time.monotonic()
            asyncio.get_running_loop().call_later(1.1, stop.set)
            assert await readers.piece(pieces, stop) == b"piece"
            took = time.monotonic() - began
            assert await readers.piece(pieces, stop) == b""  # not the end
        readers.close()
        return took

    assert 1.0 <= asyncio.run(run()) < 1.9
    store.close()
