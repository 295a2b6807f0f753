"""Operations queue here; they are carried out in groups, one commit a group.

Short operations are done on the event loop, up to a few milliseconds of them, whoever has had the
least time first. They are written in a thread of its own while the next requests are read. What
takes longer, or may, is done in that thread too, one such operation a group. Then the next group
begins, while another thread waits for the disk. Replies are sent when what they say is on it.
"""

import asyncio
import logging
import math
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple, ParamSpec, TypeVar, TypeVarTuple

from adats.service.engine import MOST_SETTLED, Engine
from adats.service.errors import Busy, DamagedStore, OutcomeUnknown, Refusal, StoreError
from adats.service.fair_queue import FairQueue

P = ParamSpec("P")
T = TypeVar("T")
Ts = TypeVarTuple("Ts")

MOST_IN_GROUP, LONGEST_GROUP = 64, 0.01  # operations, and seconds
LONG = 0.003  # seconds of an operation that is done alone, in the thread
ANSWER_TIME = 0.005  # seconds in which a client that was answered asks again
PART_OF_COMMIT = 0.5  # so much of the time of a commit is waited for others to share the next
PARTS = 2  # of the clients, if the disk is slow: one part waits for it while the other is at work
MOST_COSTS = 10_000  # experiments whose costs are known
PATIENCE, PAUSE = 1.0, 0.01  # seconds to wait for a lock, and between two tries
SETTLE_EVERY = 0.5  # seconds between looks at what is due
MAY_BE_KEPT = "whether this was kept is known when the store is back: ask again, with the same ids"

log = logging.getLogger("adats.service")


class WaitingJob(NamedTuple):
    work: Callable[..., Any]  # of what was asked
    asked: tuple[Any, ...]  # the tenant and the experiment first
    done: asyncio.Future[Any]
    size: float  # operations in it; infinite if it may take long

    @property
    def owner(self) -> tuple[Any, ...]:
        return self.asked[:2]


class CommitGroup:
    """What is written at once, and how long it took."""

    def __init__(self) -> None:
        self.jobs: list[WaitingJob] = []
        self.results: list[Any] = []
        self.seconds: list[float] = []  # of each job, with its part of what was done for several
        self.commit_seconds = 0.0
        self.last_short: tuple[Any, ...] | None = None  # whose its last short operation was

    def run(self, engine: Engine, jobs: list[WaitingJob]) -> None:
        """Carry out some more."""
        self.jobs += jobs
        began, own = time.perf_counter(), []
        engine.load(job.asked for job in jobs)
        loaded = before = time.perf_counter()
        for job in jobs:
            try:
                result = job.work(*job.asked)
            except Refusal as error:
                result = error
            self.results.append(result)
            after = time.perf_counter()
            own.append(after - before)
            before = after
        engine.flush()
        shared = (loaded - began + time.perf_counter() - before) / max(len(jobs), 1)
        self.seconds += [seconds + shared for seconds in own]

    def save(self, engine: Engine) -> None:
        began = time.perf_counter()
        engine.save()
        self.commit_seconds = time.perf_counter() - began

    def reply(self, error: Exception | None = None) -> None:
        """Tell all of them what became of their operations, or the error of all."""
        for job, result in zip(self.jobs, self.results, strict=True):
            reply(job, error or result)


class CommitQueue:
    """The queue of one engine."""

    def __init__(self, engine: Engine, *, most_waiting: int = 1000) -> None:
        self.engine = engine
        self._most_waiting = most_waiting
        self._waiting: FairQueue[WaitingJob] = FairQueue()
        self._cost: dict[tuple[Any, ...], float] = {}  # seconds of an operation, by experiment
        self._last_short: tuple[Any, ...] | None = None  # who had the last short operation
        self._answered_at = self._commit_time = 0.0  # of the last short operations
        self._arrived = asyncio.Event()  # as many wait as are wanted
        self._wanted = 1
        self._expected = 0  # who waited when the last were answered, and those
        self._on_disk = 0  # operations that were saved and not answered
        self._sync_time = 0.0  # that the disk has taken lately
        self._thread = ThreadPoolExecutor(1, "commit")
        self._saved: list[CommitGroup] = []  # groups that may not be on the disk yet
        self._sync_thread = ThreadPoolExecutor(1, "sync")
        self._syncing: asyncio.Task[None] | None = None
        self._not_synced: Exception | None = None  # why what was saved is not safe
        self._worker: asyncio.Task[None] | None = None
        self._closing = False
        self.trouble: Exception | None = None  # why the last group failed, if it did
        self.damage: Exception | None = None  # what was found last, if anything
        self._settle_at, self._most_settled = 0.0, MOST_SETTLED
        self.groups = 0
        self.commit_seconds = 0.0

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def start(self) -> None:
        self._worker = asyncio.create_task(self._work())

    async def close(self) -> None:
        """Finish what is waiting, then stop."""
        self._closing = True
        self._arrived.set()
        if self._worker is not None:
            await self._worker
        if self._syncing is not None:
            await self._syncing
        if self._not_synced is not None:
            self.engine.undo()
        self._thread.shutdown()
        self._sync_thread.shutdown()

    async def do(
        self,
        work: Callable[[str, str, *Ts], T],
        tenant: str,
        experiment: str,
        *more: *Ts,
        size: float = 1.0,
    ) -> T:
        """The result of an operation, once it is durable. `size`: how many it is, or infinity."""
        if self._closing or len(self._waiting) >= self._most_waiting:
            raise Busy(f"{len(self._waiting)} requests are waiting")
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        asked = (tenant, experiment, *more)
        self._waiting.put(tenant, experiment, WaitingJob(work, asked, done, size))
        if len(self._waiting) >= self._wanted:
            self._arrived.set()
        return await done

    async def _work(self) -> None:
        while True:
            if self._waiting:
                if self._is_long(self._waiting.first()):
                    await self._let_others_first()
                else:
                    await self._gather()
                await self._run_group()
                await asyncio.sleep(0)  # replies go out, requests come in
            elif self._closing:
                return
            else:
                self._arrived.clear()
                try:
                    pause = 0.0 if self.engine.behind else SETTLE_EVERY
                    await asyncio.wait_for(self._arrived.wait(), pause)
                except TimeoutError:
                    await self._run_group()

    async def _let_others_first(self) -> None:
        """Clients that were just answered will ask again: who has had more time waits for them."""
        job, owner = self._waiting.first(), self._last_short
        while (
            owner is not None
            and not self._closing
            and self._waiting.first() is job
            and self._waiting.has_had_more(job.owner, owner)
        ):
            one_more = len(self._waiting) + 1
            if self._on_disk:  # they are not answered yet
                await self._wait(one_more)
            elif not await self._wait(one_more, ANSWER_TIME):
                return

    async def _gather(self) -> None:
        """The same, for a short time: the more share a commit, the less each of them costs.

        Where waiting for the disk takes longer than the work, half of them are enough.
        """
        parts = PARTS if self._sync_time > self._commit_time else 1
        if self._on_disk:
            at_work = len(self._waiting) + self._on_disk
            await self._wait(min(math.ceil(at_work / parts), MOST_IN_GROUP))
        wanted = min(math.ceil(self._expected / parts), MOST_IN_GROUP)
        await self._wait(wanted, PART_OF_COMMIT * self._commit_time)

    async def _wait(self, wanted: int, seconds: float = math.inf) -> bool:
        """Until so many wait, or so long after the last answers; or until there are new answers."""
        seconds += self._answered_at - time.monotonic()
        if len(self._waiting) >= wanted or seconds <= 0 or self._closing:
            return len(self._waiting) >= wanted
        self._wanted = wanted
        self._arrived.clear()
        try:
            await asyncio.wait_for(self._arrived.wait(), min(seconds, SETTLE_EVERY))
        except TimeoutError:
            return False
        finally:
            self._wanted = 1
        return len(self._waiting) >= wanted

    async def _run_group(self, alone: WaitingJob | None = None) -> None:
        """Carry out operations, commit, and reply. A long one shares its commit with short ones,
        unless it is told to be `alone`."""
        group, again = CommitGroup(), alone is not None
        try:
            await self._begin()
            await self._settle()
            if alone is None and self._waiting and self._is_long(self._waiting.first()):
                alone = self._waiting.pop()
            short: list[WaitingJob] = []
            if alone is not None:
                await self._in_thread(group.run, self.engine, [alone])
            if not again:
                short = self._short_jobs()
                group.run(self.engine, short)
            await self._in_thread(group.save, self.engine)
            if self._not_synced is not None:  # it builds on what may be lost
                raise self._may_be_kept() if group.jobs else self._not_synced
        except Exception as error:
            self.engine.undo()
            await self._failed(error, group.jobs or self._kept_waiting(alone))
            return
        self.trouble = None
        self.groups += 1
        self._charge(group)
        if short:
            group.last_short = short[-1].owner
        self._saved.append(group)
        self._on_disk += len(group.jobs)
        if self._syncing is None or self._syncing.done():
            self._syncing = asyncio.create_task(self._sync())

    async def _sync(self) -> None:
        """Wait until what was saved is on the disk, and reply. What is saved meanwhile is next."""
        loop = asyncio.get_running_loop()
        while self._saved:
            groups, self._saved = self._saved, []
            error = None
            try:
                seconds = await loop.run_in_executor(
                    self._sync_thread, _timed, self.engine.store.sync
                )
                self._sync_time = (self._sync_time + seconds) / 2
            except Exception as found:  # what was saved since builds on what may be lost
                log.error("the store cannot be used: %s", found)
                self.trouble = self._not_synced = found
                error = self._may_be_kept()
                groups, self._saved = groups + self._saved, []
            answered = 0
            for group in groups:
                group.reply(error)
                answered += len(group.jobs)
                if group.last_short is not None:
                    self._last_short, self._answered_at = group.last_short, time.monotonic()
                    self._commit_time = group.commit_seconds
            self._on_disk -= answered
            self._expected = answered + len(self._waiting)
            self._arrived.set()

    def _may_be_kept(self) -> OutcomeUnknown:
        """Of what was saved, and is not on the disk: it may be there when the store is back."""
        return OutcomeUnknown(f"{self._not_synced}; {MAY_BE_KEPT}")

    def _kept_waiting(self, alone: WaitingJob | None) -> list[WaitingJob]:
        """Operations of a group that could not even begin."""
        if alone is not None:
            return [alone]
        return [self._waiting.pop() for _ in range(min(MOST_IN_GROUP, len(self._waiting)))]

    def _seconds(self, job: WaitingJob) -> float:
        """That it will take, as far as one knows."""
        return max(job.size, 1.0) * self._cost.get(job.owner, math.inf)

    def _is_long(self, job: WaitingJob) -> bool:
        """Whether it keeps others waiting: it is done alone, off the loop."""
        return self._seconds(job) > LONG

    def _short_jobs(self) -> list[WaitingJob]:
        """Those that are next, as far as they are short."""
        jobs: list[WaitingJob] = []
        left = LONGEST_GROUP

        def is_short(job: WaitingJob) -> bool:
            nonlocal left
            seconds = max(job.size, 1.0) * cost
            if left <= 0 or seconds > LONG:
                return False
            left -= seconds
            return True

        while self._waiting and len(jobs) < MOST_IN_GROUP:
            cost = self._cost.get(self._waiting.first().owner, math.inf)
            some = self._waiting.pop_while(is_short, MOST_IN_GROUP - len(jobs))
            if not some:
                break
            jobs += some
        return jobs

    def _charge(self, group: "CommitGroup") -> None:
        """Each has used the time of its operation, and its part of what was done for all."""
        self.commit_seconds += group.commit_seconds
        commit = group.commit_seconds / max(len(group.jobs), 1)
        if len(self._cost) > MOST_COSTS:
            self._cost.clear()
        used: dict[tuple[Any, ...], list[float]] = {}  # seconds, and operations, if one can tell
        for job, seconds in zip(group.jobs, group.seconds, strict=True):
            own = used.setdefault(job.owner, [0.0, 0.0, 0.0])
            own[0] += seconds + commit
            if job.size < math.inf:
                own[1] += seconds
                own[2] += max(job.size, 1.0)
        for owner, (all_seconds, seconds, size) in used.items():
            self._waiting.pay(owner[0], owner[1], all_seconds)
            if size:
                cost = seconds / size
                self._cost[owner] = (self._cost.get(owner, cost) + cost) / 2

    async def _in_thread(self, work: Callable[P, None], *more: P.args, **named: P.kwargs) -> None:
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._thread, partial(work, *more, **named))

    async def _begin(self) -> None:
        until = time.monotonic() + PATIENCE
        while True:
            try:
                if self._not_synced is not None:
                    self.engine.undo()
                    self._not_synced = None
                if self.trouble is None:
                    return self.engine.begin()
                return await self._in_thread(self.engine.begin)  # it may have to be opened again
            except StoreError:
                if self.trouble is not None or time.monotonic() > until:
                    raise
                await asyncio.sleep(PAUSE)

    async def _settle(self) -> None:
        """A fault among what is due keeps that from being settled, but nothing else back."""
        if time.monotonic() < self._settle_at:
            return
        try:
            if self.engine.has_due():
                await self._in_thread(self._settle_due)
        except StoreError:
            raise
        except Exception as error:
            self.note_damage(error)
            self._settle_at = time.monotonic() + SETTLE_EVERY
            self.engine.undo()
            await self._begin()

    def _settle_due(self) -> None:
        """As many as can be settled in a short time."""
        began = time.perf_counter()
        found = self.engine.settle_due(self._most_settled)
        took = time.perf_counter() - began
        most = self._most_settled * (2 if took < LONGEST_GROUP / 2 else 1)
        self._most_settled = min(most, MOST_SETTLED) if took < LONGEST_GROUP else max(most // 2, 1)
        if found is not None:
            self.note_damage(found)

    async def _failed(self, error: Exception, jobs: list[WaitingJob]) -> None:
        """Nothing of the group has happened. A fault of one operation is not the others' fault."""
        if isinstance(error, (StoreError, OutcomeUnknown)) or not jobs:
            if self.trouble is None:
                log.error("the store cannot be used: %s", error)
            self.trouble = error
        elif len(jobs) > 1:
            for job in jobs:
                await self._run_group(alone=job)
            return
        elif isinstance(error, DamagedStore):
            self.note_damage(error)
        else:
            log.error("an operation failed", exc_info=error)
        for job in jobs:
            reply(job, error)

    def note_damage(self, error: Exception) -> None:
        """Part of the store cannot be used; the rest goes on."""
        if str(error) != str(self.damage):
            log.error("%s", error, exc_info=None if isinstance(error, DamagedStore) else error)
        self.damage = error


def _timed(work: Callable[[], None]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def reply(job: WaitingJob, result: Any) -> None:
    if job.done.done():  # the client has gone
        return
    if isinstance(result, Exception):
        job.done.set_exception(result)
    else:
        job.done.set_result(result)
