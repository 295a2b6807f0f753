"""Numbers of decisions: whose they are, and which have their reward already."""

import hashlib
from typing import Any

import numpy as np

from adats.models.core.errors import RowsError
from adats.models.core.types import BoolArray, IntArray, Rng

BITS = 40  # of the count of decisions; those above it are the agent's own number, and all of
# them together fit into a float, as tables may make of them
OF_A_BATCH = 1 << BITS  # decisions of `ask` have smaller numbers
AGENTS = (1 << 12) - 1


def agent_number(rng: Rng) -> int:
    """A number that agents of different seeds hardly share."""
    state: Any = rng.bit_generator.state
    digest = hashlib.blake2b(repr(sorted(state.items())).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % AGENTS + 1


def new_numbers(agent: int, before: int, count: int) -> IntArray:
    """Of the next decisions of an agent that has made so many."""
    return agent * OF_A_BATCH + np.arange(before + 1, before + count + 1)


def counts_of(numbers: IntArray, agent: int, decisions: int, rewarded: BoolArray) -> IntArray:
    """The place of each decision in its agent's count; raises if it is not there, or told twice."""
    whose, count = numbers >> BITS, numbers & (OF_A_BATCH - 1)
    foreign = np.flatnonzero((whose != 0) & (whose != agent))
    if foreign.size:
        raise RowsError(foreign, f"decision {numbers[foreign[0]]} was made by another agent")
    unknown = np.flatnonzero((count < 1) | (count > decisions) | (numbers < 0))
    if unknown.size:
        raise RowsError(unknown, f"decision {numbers[unknown[0]]} is not known to this agent")
    first = np.zeros(count.size, dtype=bool)
    first[np.unique(count, return_index=True)[1]] = True
    again = np.flatnonzero(~first | _have(rewarded, count))
    if again.size:
        raise RowsError(again, f"decision {numbers[again[0]]} has its reward already")
    return count


def _have(rewarded: BoolArray, count: IntArray) -> BoolArray:
    known = np.zeros(count.size, dtype=bool)
    inside = count < rewarded.size
    known[inside] = rewarded[count[inside]]
    return known


def with_rewards(rewarded: BoolArray, count: IntArray) -> BoolArray:
    """After these decisions have got their rewards."""
    size = max(rewarded.size, int(count.max(initial=0)) + 1)
    new = np.zeros(size, dtype=bool)
    new[: rewarded.size] = rewarded
    new[count] = True
    return new
