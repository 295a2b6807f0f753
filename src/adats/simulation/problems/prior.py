"""The problem that a prior describes: what an agent with this prior believes it will meet."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from adats.models.core import checks
from adats.models.core.frozen import fill
from adats.models.core.types import FloatArray, JsonDict, MetaBelief, Rng
from adats.simulation.kernels.registry import GAUSSIAN_ARMS, register
from adats.simulation.problems.problem import BuiltInProblem, Instance, Start


@dataclass(frozen=True, eq=False, init=False)
class PriorProblem(BuiltInProblem[Any]):
    """mu_* is drawn from a prior for numbers, as it stands, and tasks as it says.

    Of a linear prior `features` are those of the arms, a row each.
    """

    prior: MetaBelief
    features: FloatArray | None
    noise: float
    name: ClassVar[str] = "prior"
    mu: Any = None  # it is drawn in every run

    def __init__(self, prior: MetaBelief, features: ArrayLike | None = None) -> None:
        noise = prior.figures().get("noise")
        if noise is None:
            raise ValueError(
                f"rewards of a {prior.model} model have no noise: give a prior that has"
            )
        if np.ptp(noise) > 0:
            raise ValueError("noise must be the same for all arms and models to be simulated")
        if bool(prior.n_features) != (features is not None):
            raise ValueError("features are given for a linear prior, a row an arm, and only there")
        rows = None if features is None else checks.array("features", features, ndim=2)
        if rows is not None and rows.shape[1] != prior.n_features:
            raise ValueError(f"features must have {prior.n_features} columns, got {rows.shape}")
        fill(self, prior=prior, features=rows, noise=float(np.max(noise)), mu=None)

    @property
    def arms(self) -> int:
        return self.prior.n_arms if self.features is None else len(self.features)

    def new_meta(self) -> Any:
        return self.prior

    def describe(self) -> JsonDict:
        figures = {name: value.tolist() for name, value in self.prior.figures().items()}
        return {"name": self.name, "model": self.prior.model, "arms": self.arms, **figures}

    def instance(self, start: Start, rounds: int, rng: Rng) -> Instance:
        theta = self.prior.prior_given(start.mu).sample(rng)
        rows = None if self.features is None else self.features[None]
        return Instance(theta, rng.standard_normal(rounds), rows)

    def reward(self, mean: float, draw: float) -> float:
        return mean + self.noise * draw


register(PriorProblem, "gaussian", **GAUSSIAN_ARMS)
register(PriorProblem, "linear", play="linear.play", own_index=True)
