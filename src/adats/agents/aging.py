"""How rewards lose weight with time: half-lives within a task, and of what tasks taught."""

import math
from time import time as wall_clock
from typing import NamedTuple

import numpy as np

from adats.models.core import checks
from adats.models.core.errors import InvalidValue
from adats.models.core.types import FloatArray

NEVER = -math.inf  # the time of the last reward, where there was none
CLOCKS = ("seconds", "rounds", "pulls")  # where time comes from if it is not given
PULLS = CLOCKS[2]  # age is not time: it is how many rewards the arm has had in its task since
PULLS_NEED = (
    "'pulls' counts the rewards of an arm in its task: it takes a half_life, and no prior_half_life"
)
SITES_LAST = 4.0  # times in a half-life at which sites are found anew; in between they are scaled
LIGHT = 1e-3  # the weight of a task that is not looked at any more
UNITS_APART = 1e6  # half-lives that go by at once only if times are in another unit
NOTHING_LEFT = 1e3  # half-lives after which a reward weighs nothing
OTHER_UNIT = (
    "time goes on by {:g} at once, and the half-life is {:g}: are they in the same unit? "
    "nothing is left of what was learned before"
)
TOO_LATE = (
    "a reward is {:g} older than the newest one, and the half-life is {:g}: is its time in the "
    "same unit? it weighs nothing"
)


class Aging(NamedTuple):
    """A reward weighs 2^(-age / half_life) in its task; in what all tasks taught, a task weighs
    2^(-age / prior_half_life), where its age is that of its last reward."""

    half_life: float = math.inf
    prior_half_life: float = math.inf

    def task_weight(self, age: float) -> float:
        return math.exp2(-age / self.half_life)

    def prior_weight(self, age: float) -> float:
        return math.exp2(-age / self.prior_half_life)

    def task_weights(self, ages: FloatArray) -> FloatArray:
        """Of many."""
        return np.exp2(-ages / self.half_life)

    def prior_weights(self, ages: FloatArray) -> FloatArray:
        return np.exp2(-ages / self.prior_half_life)

    def faded(self, then: float, now: float) -> float:
        """What is left at a later time of what all tasks had taught, if they had."""
        return 1.0 if then == NEVER else self.prior_weight(now - then)

    def afresh(self, then: float, now: float) -> bool:
        """Whether so much time has gone by that sites had better be found anew."""
        lasts = self.half_life / SITES_LAST
        return now - then >= lasts or math.floor(then / lasts) != math.floor(now / lasts)

    def other_unit(self, newest: float, now: float) -> str | None:
        """What to say where times are so far apart that units are hardly the same."""
        gone, least = now - newest, min(self)
        if newest == NEVER or -NOTHING_LEFT * least <= gone <= UNITS_APART * least:
            return None
        return OTHER_UNIT.format(gone, least) if gone > 0 else TOO_LATE.format(-gone, least)


def ages_of(times: FloatArray, now: FloatArray | float) -> FloatArray:
    """Of many tasks at a time; 0 where there was no reward yet."""
    return np.where(times == NEVER, 0.0, now - np.where(times == NEVER, 0.0, times))


def aging_of(half_life: float | None, prior_half_life: float | None) -> Aging | None:
    """None if nothing ages."""
    given = {"half_life": half_life, "prior_half_life": prior_half_life}
    known = {name: _checked(name, value) for name, value in given.items() if value is not None}
    return Aging(**known) if known else None


def forgetting_of(
    half_life: float | None, prior_half_life: float | None, clock: str
) -> tuple[Aging | None, float]:
    """What loses weight with time; and what the rewards of an arm keep when it has another."""
    aging = aging_of(half_life, prior_half_life)
    if checked_clock(clock) != PULLS:
        return aging, 1.0
    if aging is None or prior_half_life is not None:
        raise InvalidValue("clock", PULLS_NEED)
    return None, aging.task_weight(1.0)


def _checked(name: str, value: float) -> float:
    found = _number(name, value)
    if found <= 0:
        raise InvalidValue(name, f"must be more than 0, or None for never, got {value}")
    return found


def _number(name: str, value: float) -> float:
    """A finite number of modest size: the difference of two is one too."""
    if isinstance(value, (bool, np.bool_)):
        raise InvalidValue(name, f"must be a number, got {value}")
    found = checks.number(name, value)
    if abs(found) > checks.HUGE:
        raise InvalidValue(name, f"is too far from 0, got {value}")
    return found


def checked_clock(clock: str) -> str:
    if clock not in CLOCKS:
        raise InvalidValue("clock", f"must be one of {', '.join(CLOCKS)}, got {clock!r}")
    return clock


def clock_time(clock: str, decisions: int) -> float:
    """Where none is given: that of the computer, or how many decisions were made."""
    return wall_clock() if clock == CLOCKS[0] else float(decisions)


def time_of_look(time: float, newest: float) -> float:
    """A time that was given for a decision, or a look: none before the newest reward."""
    now = _number("time", time)
    if now < newest:
        raise InvalidValue(
            "time",
            f"{now} is before {newest}, that of the newest reward: what was believed then is not "
            "known any more",
        )
    return now


def time_of_reward(time: float, decided: float) -> float:
    """A time that was given for a reward: none before its decision."""
    moment = _number("time", time)
    if moment < decided:
        raise InvalidValue("time", f"{moment} is before its decision, made at {decided}")
    return moment
