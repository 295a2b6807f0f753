"""Arms of one family whose task prior is one of several candidates (Section 3.4)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from adats.models import MixtureMeta
from adats.models.core.frozen import fill
from adats.models.core.product import ProductArms
from adats.models.core.types import FloatArray, JsonDict, Rng
from adats.simulation.kernels.registry import register
from adats.simulation.problems.problem import BuiltInProblem, Instance, Start


@dataclass(frozen=True, eq=False)
class MixtureProblem(BuiltInProblem[MixtureMeta]):
    """mu_* is the index of the true prior among candidates; theta is drawn from that prior."""

    weights: FloatArray
    priors: ProductArms  # a stack, such as of BetaArms
    mu: Any  # a fixed index (or one an arm), or None to draw it in every run

    def __init__(
        self, weights: ArrayLike, priors: Sequence[ProductArms] | ProductArms, mu: Any = None
    ) -> None:
        meta = MixtureMeta(weights, priors)
        try:
            meta.priors.reward_at(float(meta.mean[0]), 0.5)
        except NotImplementedError:
            raise ValueError(f"{type(meta.priors).__name__} has no reward_at") from None
        if mu is not None:
            meta.prior_given(mu)  # raises if there is no such candidate
            mu = np.atleast_1d(np.asarray(mu, dtype=np.float64))
        fill(self, weights=meta.weights, priors=meta.priors, mu=mu)

    @property
    def name(self) -> str:
        return self.priors.MODEL

    @property
    def arms(self) -> int:
        return self.priors.n_arms

    def describe(self) -> JsonDict:
        values = [p.tolist() for p in self.priors.parameters()]
        settings = {
            "name": self.name,
            "weights": self.weights.tolist(),
            "priors": dict(zip(self.priors.PARAMETERS, values, strict=True)),
        }
        return settings if self.mu is None else {**settings, "mu": self.mu.tolist()}

    def new_meta(self) -> MixtureMeta:
        return MixtureMeta(self.weights, self.priors)

    def instance(self, start: Start, rounds: int, rng: Rng) -> Instance:
        theta = self.meta().prior_given(start.mu).sample(rng)
        return Instance(theta, rng.random(rounds))

    def reward(self, mean: float, draw: float) -> float:
        return self.priors.reward_at(mean, draw)


register(MixtureProblem, "mixture", play="mixture.play")
register(MixtureProblem, "beta", play="mixture.play_told")
register(MixtureProblem, "poisson", play="mixture.play_told")
