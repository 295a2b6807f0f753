"""The service's time: that of the clock, as long as the clock does not jump.

The end of a window cannot be taken back, so none is to end because somebody set the clock; nor is
what was learned to lose its weight by it. While the service runs, the clock is compared with the
time that has passed since; at the start all there is to compare it with is the newest event of the
store.
"""

import logging
import math
import time
from collections.abc import Callable
from datetime import UTC, datetime

from adats.service.spec import parse
from adats.service.stores.interface import ARCHIVED, ExperimentRow, ReadView

JUMP = 60.0  # seconds: by less the clock may be put right at once
LONGEST_STOP = 7 * 86_400.0  # seconds: for longer, a store was not used, or the clock is wrong
PASSED = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # goes on while a machine sleeps

log = logging.getLogger("adats.service")


def time_passed() -> float:
    """Seconds since some moment, whatever the clock says."""
    return time.clock_gettime(PASSED)


class SteadyClock:
    """The time of the clock, but never back. If that jumps, the time goes on from before, until
    it is back.

    `off` says by how many seconds the clock is ahead of this time.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.time,
        passed: Callable[[], float] = time_passed,
    ) -> None:
        self._clock, self._passed = clock, passed
        self._last = (clock(), passed())
        self.off = 0.0

    def __call__(self) -> float:
        clock, passed = self._clock(), self._passed()
        before, at = self._last
        now, off = before + (passed - at), 0.0
        if abs(clock - now) <= JUMP:
            now = max(clock, before)  # put back, it stands still
        else:
            off = clock - now
        if (off == 0) != (self.off == 0):
            self._tell(off)
        self._last, self.off = (now, passed), off
        return now

    def _tell(self, off: float) -> None:
        if off:
            log.error(
                "the clock jumped by %+.0f s; windows end and rewards age by the time that has "
                "passed, until the clock is back or the service is restarted",
                off,
            )
        else:
            log.warning("the clock is back")


def check_clock(view: ReadView, now: float) -> None:
    """Raise ValueError if windows would end, or half-lives, since the newest event is longer ago
    than it can be."""
    newest = view.newest_time()
    if newest is None:
        return
    if newest > now + JUMP:
        log.warning("the clock is %.0f s behind the newest event of the store", newest - now)
    if now <= newest + LONGEST_STOP:
        return
    due, ages = view.due_count(now), sum(_halved(row, now - newest) for row in view.experiments())
    found = [f"the windows of {due:,} decisions would end at once, for good"] if due else []
    found += [f"what {ages:,} experiments have learned would weigh half or less"] if ages else []
    if found:
        day = datetime.fromtimestamp(newest, UTC).strftime("%Y-%m-%d")
        raise ValueError(
            f"the newest event of the store is of {day}, {(now - newest) / 86_400:,.0f} days ago "
            f"by this clock, and {', and '.join(found)}; put the clock right, or if it is right: "
            "--trust-clock"
        )


def _halved(row: ExperimentRow, seconds: float) -> bool:
    """Whether one of its half-lives is over."""
    spec = parse(row.spec)
    lives = [life for life in (spec.half_life, spec.prior_half_life) if life is not None]
    return row.status != ARCHIVED and min(lives, default=math.inf) <= seconds
