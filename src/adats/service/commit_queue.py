"""Operations queue here; they are carried out in groups, one commit a group.

All is done on the event loop, except for the commit, which waits for the disk in a thread of its
own while the next requests are read. Replies are sent after the commit.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

from adats.service.engine import Engine
from adats.service.errors import Busy, DamagedStore, Refusal, StoreError

T = TypeVar("T")

MOST_IN_GROUP, LONGEST_GROUP = 32, 0.01  # operations, and seconds
PATIENCE, PAUSE = 1.0, 0.01  # seconds to wait for a lock, and between two tries
SETTLE_EVERY = 0.5  # seconds between looks at what is due

log = logging.getLogger("adats.service")


class _Job(NamedTuple):
    work: Callable[[], Any]
    done: asyncio.Future[Any]


class CommitQueue:
    """The queue of one engine."""

    def __init__(self, engine: Engine, *, most_waiting: int = 1000) -> None:
        self.engine = engine
        self._most_waiting = most_waiting
        self._jobs: deque[_Job] = deque()
        self._arrived = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, "commit")
        self._worker: asyncio.Task[None] | None = None
        self._closing = False
        self.trouble: Exception | None = None  # why the last group failed, if it did
        self.damage: Exception | None = None  # what was found last, if anything
        self._settle_at = 0.0
        self.groups = 0
        self.commit_seconds = 0.0

    @property
    def waiting(self) -> int:
        return len(self._jobs)

    def start(self) -> None:
        self._worker = asyncio.create_task(self._work())

    async def close(self) -> None:
        """Finish what is waiting, then stop."""
        self._closing = True
        self._arrived.set()
        if self._worker is not None:
            await self._worker
        self._thread.shutdown()

    async def do(self, work: Callable[[], T]) -> T:
        """The result of an operation, once it is durable."""
        if self._closing or len(self._jobs) >= self._most_waiting:
            raise Busy(f"{len(self._jobs)} requests are waiting")
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._jobs.append(_Job(work, done))
        self._arrived.set()
        return await done

    async def _work(self) -> None:
        while True:
            if self._jobs:
                size = min(MOST_IN_GROUP, len(self._jobs))
                await self._run_group([self._jobs.popleft() for _ in range(size)])
                await asyncio.sleep(0)  # replies go out, requests come in
            elif self._closing:
                return
            else:
                self._arrived.clear()
                try:
                    pause = 0.0 if self.engine.behind else SETTLE_EVERY
                    await asyncio.wait_for(self._arrived.wait(), pause)
                except TimeoutError:
                    await self._run_group([])

    async def _run_group(self, jobs: list[_Job]) -> None:
        """Carry out operations, commit, and reply. Some may go back to the queue."""
        results: list[Any] = []
        try:
            await self._begin()
            await self._settle()
            until = time.perf_counter() + LONGEST_GROUP
            for job in jobs:
                results.append(_result(job))
                if time.perf_counter() > until:
                    break
            self.engine.flush()
            await self._commit()
        except Exception as error:
            self.engine.undo()
            await self._failed(error, jobs)
            return
        self.trouble = None
        self._jobs.extendleft(reversed(jobs[len(results) :]))
        for job, result in zip(jobs, results, strict=False):
            _reply(job, result)

    async def _begin(self) -> None:
        until = time.monotonic() + PATIENCE
        while True:
            try:
                return self.engine.begin()
            except StoreError:
                if self.trouble is not None or time.monotonic() > until:
                    raise
                await asyncio.sleep(PAUSE)

    async def _settle(self) -> None:
        """A fault among what is due keeps that from being settled, but nothing else back."""
        if time.monotonic() < self._settle_at:
            return
        try:
            found = self.engine.settle_due()
            if found is not None:
                self._note_damage(found)
        except StoreError:
            raise
        except Exception as error:
            self._note_damage(error)
            self._settle_at = time.monotonic() + SETTLE_EVERY
            self.engine.undo()
            await self._begin()

    async def _commit(self) -> None:
        began = time.perf_counter()
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._thread, self.engine.commit)
        self.commit_seconds += time.perf_counter() - began
        self.groups += 1

    async def _failed(self, error: Exception, jobs: list[_Job]) -> None:
        """Nothing of the group has happened. A fault of one operation is not the others' fault."""
        if isinstance(error, StoreError) or not jobs:
            if self.trouble is None:
                log.error("the store cannot be used: %s", error)
            self.trouble = error
        elif len(jobs) > 1:
            for job in jobs:
                await self._run_group([job])
            return
        elif isinstance(error, DamagedStore):
            self._note_damage(error)
        else:
            log.error("an operation failed", exc_info=error)
        for job in jobs:
            _reply(job, error)

    def _note_damage(self, error: Exception) -> None:
        """Part of the store cannot be used; the rest goes on."""
        if str(error) != str(self.damage):
            log.error("%s", error, exc_info=None if isinstance(error, DamagedStore) else error)
        self.damage = error


def _result(job: _Job) -> Any:
    try:
        return job.work()
    except Refusal as error:
        return error


def _reply(job: _Job, result: Any) -> None:
    if job.done.done():  # the client has gone
        return
    if isinstance(result, Exception):
        job.done.set_exception(result)
    else:
        job.done.set_result(result)
