"""Do successes of one task and arm vary from batch to batch more than chance allows?

They do where visitors come again and do the same again, or where rates change with time. A belief
takes every pull for new evidence then, and is too sure.
"""

import math
from typing import NamedTuple

import numpy as np
from scipy.special import gammaincc

from adats.learning.logs import Batches
from adats.learning.tables import KINDS
from adats.models.core.types import FloatArray, IntArray

LEVEL = 0.003  # nominal; in simulations at most 1 in 100 logs without such variation is warned of
LEAST = 1.1  # a factor below which nobody need care
EXPECTED = 2.0  # successes and failures of a batch; smaller ones are joined with their neighbours


class Dispersion(NamedTuple):
    """Variance of successes over the batches of a task and arm."""

    factor: float  # over that of a binomial, or of a Poisson for counts
    degrees: float  # of freedom; 0 where there is nothing to compare
    chance: float  # of such a factor or a larger one where all is right

    @property
    def warning(self) -> str | None:
        """What to tell the user, if anything."""
        if self.chance >= LEVEL or self.factor < LEAST:
            return None
        return (
            f"from batch to batch the successes of one task and arm vary {self.factor:.2g} times "
            f"as much as chance allows (variance, {self.degrees:,.0f} degrees of freedom): the "
            "same visitors may come again, or rates change with time; beliefs will be too sure, "
            f"their intervals too narrow by a factor of {math.sqrt(self.factor):.2g}; count a "
            f"visitor once, or divide pulls and successes by {self.factor:.2g}"
        )


def dispersion(batches: Batches, *, model: str) -> Dispersion:
    """A chi-square over the batches of every task and arm, given its pulls and its successes.

    Its mean and variance are exact: those of successes that are dealt to the pulls at random. Its
    tail is that of a gamma distribution with this mean and variance.
    """
    if not batches.cell.size:
        return Dispersion(1.0, 0.0, 1.0)
    cell, n, s = _joined(batches, model)
    binary = KINDS[model].MOST == 1.0
    pulls, wins, count, inverse = _sums(cell, n, s, np.ones(n.size), 1.0 / n)
    misses = pulls - wins if binary else pulls
    told = (count > 1) & (np.minimum(wins, misses) > 0)
    if not told.any():
        return Dispersion(1.0, 0.0, 1.0)
    kept = told[cell]
    cell, n, s = np.unique(cell[kept], return_inverse=True)[1], n[kept], s[kept]
    pulls, wins, misses, count, inverse = (
        part[told] for part in (pulls, wins, misses, count, inverse)
    )
    expected = n * (wins / pulls)[cell]
    within = expected * (misses / pulls)[cell]
    squares = float(((s - expected) ** 2 / within).sum())
    if binary:  # Haldane (1940), Dawson (1954)
        mean = (count - 1) * pulls / (pulls - 1)
        own = (pulls * inverse - count**2) / (pulls - 2)
        two = (pulls * (1 / wins + 1 / misses) - 4) / (pulls - 2)
        most = (count - 1) * (pulls - count) / (pulls - 1) - own
        variance = 2 * pulls / (pulls - 3) * most * ((pulls - 2) / (pulls - 1) - two)
        variance += pulls**2 / (pulls - 1) * own * two
    else:
        mean = count - 1
        variance = 2 * mean + (pulls * inverse - count**2 - 2 * mean) / wins
    total, spread = float(mean.sum()), float(variance.sum())
    chance = float(gammaincc(total**2 / spread, squares * total / spread)) if spread > 0 else 1.0
    return Dispersion(squares / total, total, chance)


def _sums(cell: IntArray, *values: FloatArray) -> list[FloatArray]:
    return [np.bincount(cell, value).astype(np.float64) for value in values]


def _joined(batches: Batches, model: str) -> Batches:
    """Batches of one cell joined until they expect enough successes and failures each."""
    cell = np.unique(batches.cell, return_inverse=True)[1]
    n, s = batches.pulls, batches.successes
    pulls, wins = _sums(cell, n, s)
    rare = np.minimum(wins, pulls - wins) if KINDS[model].MOST == 1.0 else wins
    parts = np.maximum(np.floor(rare / EXPECTED), 1.0)
    first = np.append(True, cell[1:] != cell[:-1])
    before = np.cumsum(n) - n
    middle = before - np.maximum.accumulate(np.where(first, before, 0.0)) + n / 2
    part = np.minimum(np.floor(middle / pulls[cell] * parts[cell]), parts[cell] - 1)
    new = first | np.append(True, part[1:] != part[:-1])
    place = np.cumsum(new) - 1
    return Batches(cell[new], *_sums(place, n, s))
