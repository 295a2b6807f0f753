"""Who waits for whom: time is shared by tenant, then by experiment."""

import asyncio
import math
import time

import pytest

from adats.service import commit_queue
from adats.service.commit_queue import CommitQueue
from adats.service.fair_queue import FairQueue


def order(queue, costs, count):
    """The names of what comes out, each paid for."""
    found = []
    for _ in range(count):
        tenant, experiment = queue.pop()
        queue.pay(tenant, experiment, costs[experiment])
        queue.put(tenant, experiment, (tenant, experiment))  # it comes again at once
        found.append(experiment)
    return found


def filled(*owners):
    queue = FairQueue()
    for owner in owners:
        queue.put(*owner, owner)
    return queue


def test_experiments_of_one_tenant_share_time_not_turns():
    found = order(filled(("t", "fast"), ("t", "slow")), {"fast": 1.0, "slow": 100.0}, 1010)
    assert abs(found.count("slow") - 10) <= 1


def test_tenants_share_before_experiments_do():
    owners = [("one", f"many-{i}") for i in range(9)] + [("two", "only")]
    found = order(filled(*owners), dict.fromkeys((name for _, name in owners), 1.0), 1000)
    assert abs(found.count("only") - 500) <= 1


def test_who_was_away_has_saved_nothing_up():
    queue = filled(("t", "here"))
    order(queue, {"here": 1.0}, 1000)
    queue.put("t", "back", ("t", "back"))
    found = order(queue, {"here": 1.0, "back": 1.0}, 20)
    assert abs(found.count("back") - 10) <= 1


def test_who_leaves_and_comes_back_still_has_its_debt():
    queue = filled(("t", "fast"), ("t", "slow"))
    order(queue, {"fast": 1.0, "slow": 100.0}, 2)
    assert queue.pop() == ("t", "fast")  # the slow one waits again
    queue.put("t", "fast", ("t", "fast"))
    found = order(queue, {"fast": 1.0, "slow": 100.0}, 90)
    assert found.count("slow") == 0


def test_accounts_of_names_that_never_come_again_go():
    queue = FairQueue()
    for i in range(5000):
        queue.put("t", f"e{i}", i)
        queue.pay("t", f"e{queue.pop()}", 1e-9)
    assert len(queue._experiments["t"]._paid) <= 202


class Nothing:
    """An engine and a store that do nothing."""

    behind = False

    def __init__(self):
        self.store, self.saved = self, 0

    def begin(self):
        pass

    flush = sync = undo = rollback = begin

    def save(self):
        self.saved += 1

    def load(self, asked):
        pass

    def has_due(self):
        return False


def time_used(seconds, **clients):
    """By each experiment, whose operations take so long, with some clients each."""

    async def play():
        queue = CommitQueue(Nothing())
        queue.start()
        used, until = dict.fromkeys(clients, 0.0), time.monotonic() + seconds

        def work(_, name, cost):
            began = time.perf_counter()
            time.sleep(cost)
            used[name] += time.perf_counter() - began

        async def client(name, cost):
            while time.monotonic() < until:
                await queue.do(work, "t", name, cost)

        await asyncio.gather(
            *(client(n, cost) for n, (k, cost) in clients.items() for _ in range(k))
        )
        await queue.close()
        return used

    return asyncio.run(play())


@pytest.mark.parametrize("slow", [1, 8])  # clients
def test_fast_operations_get_as_much_time_as_slow_ones(slow):
    """Although all their clients have just been answered when a slow one could begin."""
    used = time_used(1.0, fast=(8, 2e-4), slow=(slow, 0.02))
    assert used["fast"] > 0.5 * used["slow"]  # in turns it would be a tenth


def test_a_long_operation_shares_its_commit_with_short_ones(monkeypatch):
    for limit in ("LONG", "LONGEST_GROUP"):  # however slow this machine is now
        monkeypatch.setattr(commit_queue, limit, 10.0)
    done, engine = [], Nothing()

    def work(_, name, cost):
        time.sleep(cost)
        done.append(name)
        return name

    async def play():
        queue = CommitQueue(engine)
        queue.start()
        await queue.do(work, "t", "short", 0.0)  # from now on it is known to be short
        jobs = [queue.do(work, "t", name, 0.0) for name in ("short",) * 5]
        long = queue.do(work, "t", "long", 0.02, size=math.inf)
        done.clear()
        before = engine.saved
        found = await asyncio.gather(long, *jobs)
        await queue.close()
        return found, engine.saved - before

    found, commits = asyncio.run(play())
    assert found == done == ["long"] + ["short"] * 5
    assert commits == 1


def test_who_fails_in_a_shared_commit_fails_alone(monkeypatch):
    for limit in ("LONG", "LONGEST_GROUP"):
        monkeypatch.setattr(commit_queue, limit, 10.0)

    class Failing(Nothing):
        """Nothing is saved that `broken` was a part of."""

        def __init__(self):
            super().__init__()
            self.group = []

        def begin(self):
            self.group = []

        def save(self):
            if "broken" in self.group:
                raise ValueError("this cannot be written")
            super().save()

    engine = Failing()

    def work(_, name):
        engine.group.append(name)
        return name

    async def play():
        queue = CommitQueue(engine)
        queue.start()
        await queue.do(work, "t", "one")
        names = ("one", "broken", "two")
        asked = [queue.do(work, "t", name) for name in names]
        found = await asyncio.gather(*asked, return_exceptions=True)
        await queue.close()
        return found

    one, broken, two = asyncio.run(play())
    assert (one, two) == ("one", "two")
    assert isinstance(broken, ValueError)
