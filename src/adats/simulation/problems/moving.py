"""Gaussian arms that move: jumps, random walks, and seasons."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from adats.models.core import checks
from adats.models.core.frozen import fill
from adats.models.core.types import FloatArray, Rng
from adats.simulation.kernels.registry import register
from adats.simulation.problems.gaussian import GaussianProblem
from adats.simulation.problems.problem import Instance, Start


@dataclass(frozen=True, eq=False)
class MovingProblem(GaussianProblem):
    """Gaussian arms whose mu moves from task to task, and whose theta moves within tasks.

    Before the tasks `mu_jumps` mu is drawn anew, or goes up or down by `mu_jump` in every arm;
    before the rounds `theta_jumps` of every task its theta is drawn anew around mu. From task to
    task mu takes a step of standard deviation `mu_step`, and theta one of `theta_step` from round
    to round. Of a `season` every arm has so much at its best time of a `period` of rounds; the best
    times of arms are evenly apart. Tasks and rounds count from 0.
    """

    mu_jumps: Any = ()
    theta_jumps: Any = ()
    mu_jump: float | None = None
    mu_step: float = 0.0
    theta_step: float = 0.0
    season: float = 0.0
    period: float = 1000.0
    name: ClassVar[str] = "moving"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.correlated:
            raise ValueError("arms that move have scales here, not covariances")
        clean: dict[str, Any] = {
            name: checks.non_negative_number(name, getattr(self, name))
            for name in ("mu_step", "theta_step", "season")
        }
        for name in ("mu_jumps", "theta_jumps"):
            places = {checks.count_of(name, place) for place in getattr(self, name)}
            clean[name] = tuple(sorted(places))
        if self.mu_jump is not None:
            clean["mu_jump"] = float(checks.number("mu_jump", self.mu_jump))
        fill(self, **clean, period=checks.positive_number("period", self.period))

    def instance(self, start: Start, rounds: int, rng: Rng) -> Instance:
        normals = rng.standard_normal(self.arms + rounds)  # those of a problem that stays
        mu, mu_jumps = start.mu, start.task in self.mu_jumps
        theta_jumps = tuple(at for at in self.theta_jumps if at < rounds)
        if mu_jumps and self.mu_jump is None:
            mu = self.meta().sample(rng)
        elif mu_jumps:
            mu = mu + self.mu_jump * rng.choice([-1.0, 1.0], self.arms)
        if self.mu_step and start.task:
            mu = mu + self.mu_step * rng.standard_normal(self.arms)
        theta = np.tile(self.around(mu, normals[: self.arms]), (rounds, 1))
        if self.theta_step:
            steps = self.theta_step * rng.standard_normal((rounds - 1, self.arms))
            theta[1:] += steps.cumsum(axis=0)
        for at in theta_jumps:
            anew = self.around(mu, rng.standard_normal(self.arms))
            theta[at:] += anew - theta[at]
        if self.season:
            theta += self.season_at(start.task * rounds + np.arange(rounds))
        jumps, then = (0,) * mu_jumps + theta_jumps, Start(mu, task=start.task + 1)
        return Instance(theta, normals[self.arms :], then=then, jumps=jumps)

    def season_at(self, time: ArrayLike) -> FloatArray:
        """What the season adds to each arm, a row a round."""
        turns = (
            np.asarray(time, dtype=np.float64)[:, None] / self.period
            - np.arange(self.arms) / self.arms
        )
        added: FloatArray = self.season * np.cos(2.0 * math.pi * turns)
        return added


register(MovingProblem, "ensemble")  # no loops: those of a problem that stays do not serve
register(MovingProblem, "gaussian", play="moving.play", learn="gaussian.learn", aged="moving.aged")
