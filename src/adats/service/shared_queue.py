"""The queue of a worker beside others on one store, and who folds what all of them have learned.

A group's operations are known before it begins: their tasks are locked and read at once. All of it
is done in the thread of the commit. If others were in the way, the group is done again.
"""

import asyncio
import logging
import math
import random
import threading
import time
from collections.abc import Callable
from itertools import count
from typing import cast

from adats.service.commit_queue import (
    LONGEST_GROUP,
    MOST_IN_GROUP,
    SETTLE_EVERY,
    CommitGroup,
    CommitQueue,
    WaitingJob,
    reply,
)
from adats.service.engine import Engine
from adats.service.errors import Again, DamagedStore, Held, OutcomeUnknown, StoreError
from adats.service.stores.interface import SharedStore

FIRST_PAUSE, LONGEST_PAUSE = 0.005, 0.2  # seconds before another try
MOST_TRIES, PATIENCE = 20, 3.0  # and seconds in which others may be in the way
GATHER = 0.001  # seconds in which clients that were answered ask again
SHORT_WAIT = 0.005  # seconds for what somebody is known to hold
FOLD_EVERY = 0.04  # seconds between looks at what is to be folded
FOLD_AFTER = 0.05  # seconds that it waits at least, so that there is some of it
OTHERS_FOLD = 3  # looks without anything to fold: somebody else does that
FOLLOWING = 2.0  # times as long are both of these then
AWAY = (StoreError, Again, OutcomeUnknown)  # what passes

log = logging.getLogger("adats.service")


class SharedQueue(CommitQueue):
    """The queue of one engine whose store has other writers."""

    def __init__(self, engine: Engine, *, most_waiting: int = 1000) -> None:
        super().__init__(engine, most_waiting=most_waiting)
        self._later: set[asyncio.Task[None]] = set()  # jobs that need what somebody holds
        self._last_size = 0  # of the last group

    async def close(self) -> None:
        while self._later:
            await asyncio.wait(self._later)
        await super().close()

    async def _wait_for_others(self) -> None:
        """Clients that were just answered ask again: a moment later there are more in a group."""
        if len(self._waiting) < self._last_size and not self._closing:
            await asyncio.sleep(GATHER)

    async def _run_group(self, alone: WaitingJob | None = None) -> None:
        if time.monotonic() >= self._settle_at:
            await self._settle_apart()
        jobs = self._next_jobs() if alone is None else [alone]
        if jobs:
            await self._do(jobs)

    async def _do(self, jobs: list[WaitingJob], wait: float | None = None) -> None:
        """In one commit; again, if others were in the way."""
        until = time.monotonic() + PATIENCE
        for attempt in range(MOST_TRIES):
            try:
                await self._try(jobs, wait)
                return
            except Held:
                await self._do_apart(jobs)
                return
            except Again as error:
                if attempt == MOST_TRIES - 1 or time.monotonic() > until:
                    await self._failed(error, jobs)
                    return
                await _pause(attempt)
            except Exception as error:
                await self._failed(error, jobs)
                return

    async def _try(self, jobs: list[WaitingJob], wait: float | None) -> None:
        group = CommitGroup()

        def work() -> None:
            group.run(self.engine, jobs)
            group.save(self.engine)

        await self._in_thread(self._whole, work, wait)
        self.trouble = None
        self.groups += 1
        self._last_size = len(jobs)
        self._charge(group)
        group.reply()

    async def _do_apart(self, jobs: list[WaitingJob]) -> None:
        """Somebody holds what one of them needs: that one waits, and the others do not."""
        half = len(jobs) // 2
        if half:
            for some in (jobs[:half], jobs[half:]):
                await self._do(some, SHORT_WAIT)
            return
        task = asyncio.create_task(self._do_later(jobs))
        self._later.add(task)
        task.add_done_callback(self._later.discard)

    async def _do_later(self, jobs: list[WaitingJob]) -> None:
        until = time.monotonic() + PATIENCE
        for attempt in count():
            await _pause(attempt)
            try:
                await self._try(jobs, SHORT_WAIT)
                return
            except Exception as error:
                if not isinstance(error, Again) or time.monotonic() > until:
                    await self._failed(error, jobs)
                    return

    def _next_jobs(self) -> list[WaitingJob]:
        """Short ones, as many as take a few milliseconds; or one that may take long."""
        jobs: list[WaitingJob] = []
        spent = 0.0
        while self._waiting and len(jobs) < MOST_IN_GROUP and spent < LONGEST_GROUP:
            job = self._waiting.first()
            if job.size == math.inf:
                return jobs or [self._waiting.pop()]
            spent += job.size * self._cost.get(job.owner, 0.0)
            jobs.append(self._waiting.pop())
        return jobs

    def _whole(self, work: Callable[[], None], wait: float | None = None) -> None:
        """All of it, or nothing; `wait`: for what others hold."""
        cast(SharedStore, self.engine.store).lock_wait = wait
        try:
            self.engine.begin()
            work()
        except BaseException:
            self.engine.undo()
            raise

    async def _settle_apart(self) -> None:
        """In a group of its own: its tasks are locked in another order."""
        self._settle_at = time.monotonic() + SETTLE_EVERY
        try:
            await self._in_thread(self._whole, self._settle_group)
            self.trouble = None
        except Exception as error:
            if isinstance(error, StoreError):
                await self._failed(error, [])
            elif not isinstance(error, AWAY):
                self.note_damage(error)
        if self.engine.behind:
            self._settle_at = 0.0

    def _settle_group(self) -> None:
        self._settle_due()
        self.engine.flush()
        self.engine.commit()

    async def _failed(self, error: Exception, jobs: list[WaitingJob]) -> None:
        if isinstance(error, OutcomeUnknown):
            log.error("%s", error)
            self.trouble = error
        elif not isinstance(error, Held):
            error = StoreError(str(error)) if isinstance(error, Again) else error
            await super()._failed(error, jobs)
            return
        else:
            error = StoreError(str(error))
        for job in jobs:
            reply(job, error)


async def _pause(attempt: int) -> None:
    """Longer from one to the next, and not at the same time as others."""
    await asyncio.sleep(min(FIRST_PAUSE * 2**attempt, LONGEST_PAUSE) * random.random())


class Folder:
    """Folds what workers have learned, some times a second, in a thread of its own."""

    def __init__(self, engine: Engine, folded: Callable[[float], None]) -> None:
        """`folded` is told how long the oldest of what was folded had waited."""
        self._engine, self._folded = engine, folded
        self._misses = 0  # looks since there was something to fold
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="fold", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        self._engine.store.close()

    def _work(self) -> None:
        said = ""
        while True:
            patience = FOLLOWING if self._misses >= OTHERS_FOLD else 1.0
            if self._stop.wait(FOLD_EVERY * patience * random.uniform(0.75, 1.25)):
                return
            try:
                self._fold_waiting(FOLD_AFTER * patience)
            except Exception as error:
                self._engine.undo()
                if not isinstance(error, AWAY) and str(error) != said:
                    log.error("a fold failed", exc_info=error)
                    said = str(error)

    def _fold_waiting(self, for_long: float) -> None:
        engine = self._engine
        engine.begin()
        self._misses += 1
        for experiment in engine.store.waiting(for_long):
            try:
                if engine.fold(experiment):
                    self._misses = 0
                    self._folded(engine.store.waited)
            except DamagedStore as error:  # the others go on
                log.error("experiment %s is not folded: %s", experiment, error)
                engine.undo()
