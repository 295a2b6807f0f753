"""Reading what is committed, beside the engine: in threads, a few at a time.

While operations are carried out, short reads have a small part of the processor: after each the
next one rests. Pieces of exports are made one at a time, and rest as long as they took. A view of
the store keeps its log from being cleared. So views are counted, and while a task is forgotten
there is none: exports are cut off, short reads are waited for.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from typing import TypeVar

from starlette.concurrency import run_in_threadpool

from adats.service.errors import Busy
from adats.service.stores.interface import ReadView, Store

T = TypeVar("T")

AT_ONCE, MOST_WAITING, MOST_EXPORTS = 2, 100, 4
REST, LONGEST_REST = 15.0, 0.25  # times the processor time of the last read; seconds


class Readers:
    """The views of one store."""

    def __init__(self, store: Store, commits: Callable[[], int]) -> None:
        self._store = store
        self._commits = commits  # how many there were, to see whether operations are carried out
        self._seen, self._rested_at = 0, 0.0  # how many before the last read; when the next may be
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._threads = ThreadPoolExecutor(AT_ONCE, "read")
        self._open = asyncio.Condition()
        self._views = self._clearing = 0
        self._waiting = 0
        self._exports: set[asyncio.Event] = set()  # each is set when it has to stop
        self._exporting = asyncio.Lock()

    def close(self) -> None:
        self._threads.shutdown()

    async def read(self, work: Callable[[ReadView], T]) -> T:
        """What a short look at the store finds."""
        return await self.run(lambda: self._look(work))

    async def read_at_once(self, work: Callable[[ReadView], T]) -> T:
        """The same, however many others wait; for the service itself."""
        async with self._viewed():
            return await run_in_threadpool(self._look, work)

    async def run(self, work: Callable[[], T]) -> T:
        """The same as `read`, of what opens a view for itself."""
        if self._waiting >= MOST_WAITING:
            raise Busy(f"{self._waiting} requests wait to read")
        self._waiting += 1
        try:
            async with self._turns:
                await self._rest()
                async with self._viewed():
                    loop = asyncio.get_running_loop()
                    return await loop.run_in_executor(self._threads, self._measured, work)
        finally:
            self._waiting -= 1

    async def _rest(self) -> None:
        """Where operations were carried out beside the last read."""
        pause = self._rested_at - time.monotonic()
        if pause > 0 and self._commits() != self._seen:
            await asyncio.sleep(pause)

    def _measured(self, work: Callable[[], T]) -> T:
        commits, began = self._commits(), time.thread_time()
        try:
            return work()
        finally:
            rest, now = REST * (time.thread_time() - began), time.monotonic()
            self._seen = commits
            self._rested_at = min(max(self._rested_at, now) + rest, now + LONGEST_REST)

    def _look(self, work: Callable[[ReadView], T]) -> T:
        with self._store.view() as view:
            return work(view)

    @asynccontextmanager
    async def export(self) -> AsyncIterator[tuple[ReadView, asyncio.Event]]:
        """A view for a long look, until the event is set."""
        if len(self._exports) >= MOST_EXPORTS:
            raise Busy(f"{MOST_EXPORTS} exports are under way; ask again when one is done")
        stop = asyncio.Event()
        self._exports.add(stop)
        try:
            async with self._viewed():
                with await run_in_threadpool(self._store.view) as view:
                    yield view, stop
        finally:
            self._exports.discard(stop)

    async def piece(self, pieces: Iterator[bytes], stop: asyncio.Event) -> bytes | None:
        """The next piece of an export, None at its end; nothing if it has to stop."""
        async with self._exporting:
            if stop.is_set():
                return b""
            commits, began = self._commits(), time.monotonic()
            made = await run_in_threadpool(next, pieces, None)
            if self._commits() != commits:
                with suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), time.monotonic() - began)
            return made

    @asynccontextmanager
    async def _viewed(self) -> AsyncIterator[None]:
        async with self._open:
            await self._open.wait_for(lambda: not self._clearing)
            self._views += 1
        try:
            yield
        finally:
            async with self._open:
                self._views -= 1
                self._open.notify_all()

    @asynccontextmanager
    async def none(self) -> AsyncIterator[None]:
        """While nobody reads: exports are cut off, and who comes waits."""
        self._clearing += 1
        try:
            for stop in self._exports:
                stop.set()
            async with self._open:
                await self._open.wait_for(lambda: not self._views)
            yield
        finally:
            self._clearing -= 1
            async with self._open:
                self._open.notify_all()
