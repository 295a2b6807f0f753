"""How rewards lose weight with time: half-lives within a task, and of what tasks taught."""

import math
from typing import NamedTuple

from adats.models.core import checks
from adats.models.core.errors import InvalidValue

NEVER = -math.inf  # the time of the last reward, where there was none
CLOCKS = ("seconds", "rounds")  # where time comes from if it is not given
SITES_LAST = 4.0  # times in a half-life at which sites are found anew; in between they are scaled


class Aging(NamedTuple):
    """A reward weighs 2^(-age / half_life) in its task; in what all tasks taught, a task weighs
    2^(-age / prior_half_life), where its age is that of its last reward."""

    half_life: float = math.inf
    prior_half_life: float = math.inf

    def task_weight(self, age: float) -> float:
        return math.exp2(-age / self.half_life)

    def prior_weight(self, age: float) -> float:
        return math.exp2(-age / self.prior_half_life)

    def faded(self, then: float, now: float) -> float:
        """What is left at a later time of what all tasks had taught, if they had."""
        return 1.0 if then == NEVER else self.prior_weight(now - then)

    def afresh(self, then: float, now: float) -> bool:
        """Whether so much time has gone by that sites had better be found anew."""
        quarter = self.half_life / SITES_LAST
        return math.floor(then / quarter) != math.floor(now / quarter)


def aging_of(half_life: float | None, prior_half_life: float | None) -> Aging | None:
    """None if nothing ages."""
    given = {"half_life": half_life, "prior_half_life": prior_half_life}
    known = {name: _checked(name, value) for name, value in given.items() if value is not None}
    return Aging(**known) if known else None


def checked_clock(clock: str) -> str:
    if clock not in CLOCKS:
        raise InvalidValue("clock", f"must be 'seconds' or 'rounds', got {clock!r}")
    return clock


def _checked(name: str, value: float) -> float:
    found = checks.number(name, value)
    if found <= 0:
        raise InvalidValue(name, f"must be more than 0, or None for never, got {value}")
    return found
