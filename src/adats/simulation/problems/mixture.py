"""Bernoulli and Poisson arms whose task prior is one of several candidates (Section 3.4)."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from scipy.special import pdtrik

from adats.agents.oracles import BestArm, Oracle
from adats.models import BetaArms, MixtureArms, MixtureMeta, PoissonArms
from adats.models.core.frozen import unchecked
from adats.models.core.product import ProductArms
from adats.models.core.types import FloatArray, IntArray, Rng
from adats.simulation.problems.problem import Instance, Start, each_once, fresh, kernel


@dataclass(frozen=True, eq=False)
class MixtureProblem:
    """mu_* is the index of the true prior among candidates; theta is drawn from that prior."""

    weights: FloatArray
    priors: ProductArms  # a stack of BetaArms, or of PoissonArms
    mu: Any  # a fixed index (or one an arm), or None to draw it in every run

    def __init__(
        self, weights: Any, priors: Sequence[ProductArms] | ProductArms, mu: Any = None
    ) -> None:
        meta = MixtureMeta(weights, priors)
        if not isinstance(meta.priors, (BetaArms, PoissonArms)):
            raise ValueError("priors must be BetaArms or PoissonArms")
        if mu is not None:
            meta.prior_given(mu)  # raises if there is no such candidate
            mu = np.atleast_1d(np.asarray(mu, dtype=np.float64))
        self.__dict__.update(weights=meta.weights, priors=meta.priors, mu=mu)

    FAMILIES: ClassVar[dict[type, str]] = {BetaArms: "bernoulli", PoissonArms: "poisson"}

    @property
    def name(self) -> str:
        return self.FAMILIES[type(self.priors)]

    @property
    def oracle(self) -> Oracle:
        return BestArm()

    def describe(self) -> dict[str, Any]:
        values = [p.tolist() for p in self.priors.parameters()]
        settings = {
            "name": self.name,
            "weights": self.weights.tolist(),
            "priors": dict(zip(self.priors.PARAMETERS, values, strict=True)),
        }
        return settings if self.mu is None else {**settings, "mu": self.mu.tolist()}

    def meta(self) -> MixtureMeta:
        return self._meta

    @cached_property
    def _meta(self) -> MixtureMeta:
        return MixtureMeta(self.weights, self.priors)

    def start(self, rng: Rng) -> Start:
        return Start(self.meta().sample(rng) if self.mu is None else self.mu)

    def instance(self, start: Start, rounds: int, rng: Rng) -> Instance:
        theta = self.meta().prior_given(start.mu).sample(rng)
        return Instance(theta, rng.random(rounds))

    def reward(self, mean: float, draw: float) -> float:
        if isinstance(self.priors, PoissonArms):
            return float(max(0.0, np.ceil(pdtrik(draw, mean))))
        return float(draw < mean)

    def first(self, start: Start) -> IntArray:  # noqa: ARG002
        return each_once(self.priors.n_arms)

    def play(
        self,
        prior: MixtureArms | ProductArms,
        instance: Instance,
        first: IntArray,
        rng: Rng,
        regret: FloatArray,
    ) -> Any:
        if isinstance(prior, MixtureArms):
            weights, parameters = prior.weights, prior.components.parameters()
        else:  # OracleTS knows the candidate
            weights = np.ones((1, 0))  # nothing to draw
            parameters = tuple(p[None] for p in prior.parameters())
        weights, shape, rate = fresh(weights, *parameters)
        table = kernel("mixture_task")(
            isinstance(self.priors, PoissonArms),
            weights,
            shape,
            rate,
            instance.theta,
            first,
            instance.draws,
            rng,
            regret,
        )
        return unchecked(self.priors.STATS, table=table)

    def learn(self, meta: MixtureMeta, stats: Any) -> MixtureMeta:
        return meta.absorb(meta.digest(stats).message)
