"""One-parameter exponential families: how the mean of a reward follows from its natural parameter.

The log density of n rewards with the sum s is s·eta - n·A(eta), up to what does not depend on eta.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from adats.models.core.errors import InvalidValue
from adats.models.core.stats import ArmStats
from adats.models.gamma.stats import PositiveStats

HIGH = 30.0  # a log-partition function has at least this near the end of its domain
FARTHEST = 600.0  # exp of more is no number, or nearly so


@dataclass(frozen=True)
class ExponentialFamily:
    """By its log-partition function A, where that is finite, and which rewards there can be.

    The functions take arrays. `rewards` checks rewards and keeps the statistics; a fourth row of
    them is what the log density has besides eta, negated.
    """

    name: str  # what users call such rewards
    log_partition: Callable[[Any], Any]  # A
    mean: Callable[[Any], Any]  # A', the mean of a reward, which grows with eta
    domain: tuple[float, float] = (-math.inf, math.inf)  # of eta: where A is finite
    rewards: type[ArmStats] = ArmStats

    def __post_init__(self) -> None:
        with np.errstate(all="ignore"):
            for end, u in zip(self.domain, self.ends, strict=True):
                if math.isfinite(end) and self.log_partition(self.natural(u)[0]) < HIGH:
                    raise InvalidValue("domain", f"must end where A is infinite, not at {end}")

    @property
    def ends(self) -> tuple[float, float]:
        """Of u, where eta can be told from the ends of the domain."""
        low, high = np.isfinite(self.domain)
        reach = FARTHEST if low or high else math.inf
        return -reach, reach

    def natural(self, u: Any) -> tuple[Any, Any, Any, Any]:
        """The parameter at u, which goes over the whole line: eta, its derivative, the logarithm
        of that, and the derivative of the logarithm."""
        low, high = self.domain
        if not math.isfinite(low) and not math.isfinite(high):
            return u, np.ones_like(u), np.zeros_like(u), np.zeros_like(u)
        if not math.isfinite(low):
            away = np.exp(-u)
            return high - away, away, -u, -np.ones_like(u)
        away = np.exp(u)
        if not math.isfinite(high):
            return low + away, away, u, np.ones_like(u)
        part, rest = 1.0 / (1.0 + np.exp(-u)), 1.0 / (1.0 + away)
        slope = (high - low) * part * rest
        return low + (high - low) * part, slope, np.log(slope), rest - part


TIME = ExponentialFamily(
    "time", lambda eta: -np.log(-eta), lambda eta: -1.0 / eta, (-math.inf, 0.0), PositiveStats
)
