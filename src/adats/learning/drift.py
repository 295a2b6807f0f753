"""Do rewards move over the time of the log? A prior learned from a moving log misleads.

Each reward was predicted from the earlier rewards of its task and the prior of the other tasks
(`calibration`). Where all is right, how far it falls from that prediction has nothing to do with
the date, also in a log that a bandit wrote. Errors are taken over tasks, which are independent.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import stdtr

from adats.learning.calibration import Calibration
from adats.models.core.types import FloatArray

LEVEL = 0.01  # size of the test: of the logs that do not move, one in a hundred is warned of
FEWEST = 10  # tasks
BINS = 12  # of time, in figures


class Drift(NamedTuple):
    """The strongest movement that was found."""

    chance: float  # of one as strong in a log that does not move, for all that was looked at
    what: str  # all rewards, or the name of an arm
    shift: float  # by how much later rewards rank higher, from the first to the last day
    looked: int  # movements looked at

    @property
    def warning(self) -> str | None:
        if self.chance >= LEVEL:
            return None
        way = "higher" if self.shift > 0 else "lower"
        return (
            f"rewards move over the time of the log: of {self.what} the late ones are {way} than "
            f"the early ones teach (chance {self.chance:.1g} if nothing moved); fit to the latest "
            "part of the log, or let each period be a task"
        )


def drift(found: Calibration, names: Sequence[str]) -> Drift | None:
    """Trends and bends of ranks over time, of all rewards and of each arm; None: too few tasks.

    Every chance is that of a t test over tasks; the least is multiplied by their number.
    """
    known = np.isfinite(found.time) if found.time.size else np.zeros(0, dtype=bool)
    if not known.any() or np.unique(found.task[known]).size < FEWEST:
        return None
    time, rank, arm = found.time[known], found.middle[known] - 0.5, found.arm[known]
    task = np.unique(found.task[known], return_inverse=True)[1]
    span = float(np.ptp(time))
    if not span > 0:
        return None
    at = (time - time.min()) / span
    trend = at - at.mean()
    bend = trend**2 - (trend**2).mean()
    bend -= trend * float(trend @ bend) / float(trend @ trend)
    tests = []
    groups = [("all rewards", np.ones(at.size, dtype=bool))]
    groups += [(f"arm {name}", arm == k) for k, name in enumerate(names) if (arm == k).any()]
    for what, some in groups[: 1 if len(groups) == 2 else None]:
        for shape in (trend, bend):
            chance = _chance(np.bincount(task[some], (shape * rank)[some]).astype(np.float64))
            slope = float(trend[some] @ rank[some]) / max(float(trend[some] @ trend[some]), 1e-300)
            tests.append((chance, what, slope))
    chance, what, shift = min(tests)
    return Drift(min(1.0, chance * len(tests)), what, shift, len(tests))


def _chance(sums: FloatArray) -> float:
    """Of a mean as far from zero, from one number a task; few that weigh much count as few."""
    squares = float((sums**2).sum())
    if not squares > 0:
        return 1.0
    degrees = max(squares**2 / float((sums**4).sum()) - 1.0, 1.0)
    return 2 * float(stdtr(degrees, -abs(float(sums.sum())) / np.sqrt(squares)))


class Allocation(NamedTuple):
    """Which part of the pulls each arm got over time."""

    time: FloatArray  # seconds since 1970: middles of equal parts of the log
    shares: FloatArray  # (parts, arms)


def allocation(found: Calibration, arms: int) -> Allocation | None:
    """Of the tasks that were looked at; None where arms or times are not known."""
    known = np.isfinite(found.time) & (found.arm >= 0) if found.time.size else np.zeros(0, bool)
    if not known.any() or not np.ptp(found.time[known]) > 0:
        return None
    edges = np.quantile(found.time[known], np.linspace(0, 1, BINS + 1))
    edges = np.unique(edges)
    part = np.clip(np.searchsorted(edges, found.time[known], side="right") - 1, 0, len(edges) - 2)
    counts = np.zeros((len(edges) - 1, arms))
    np.add.at(counts, (part, found.arm[known]), 1.0)
    total = counts.sum(axis=1, keepdims=True)
    full = total[:, 0] > 0
    return Allocation(((edges[1:] + edges[:-1]) / 2)[full], (counts / np.maximum(total, 1.0))[full])
