"""The agents that the simulator knows by name."""

from typing import Literal, NamedTuple

from adats.models.core.types import Belief, FloatArray, MetaBelief, Rng
from adats.simulation.problems import Problem
from adats.simulation.problems.problem import SPREADS, UnknownSpread


class Learner(NamedTuple):
    """A built-in agent: where a task's prior comes from, and what its meta-prior is.

    `width` multiplies the true σ_q; `spreads` are the values of σ_0 that it holds for possible, in
    units of σ, instead of the true one.
    """

    label: str  # its name for people
    prior: Literal["told", "marginal", "drawn", "fixed"]
    width: float = 1.0
    spreads: tuple[float, ...] = ()
    policy: str = "ts"  # a name in `POLICIES`

    @property
    def learns(self) -> bool:
        """Whether a task's prior depends on earlier tasks."""
        return self.prior in ("marginal", "drawn")

    def task_prior(self, meta: MetaBelief, mu: FloatArray, rng: Rng) -> Belief:
        """The prior of a new task; only OracleTS looks at the true mu."""
        if self.prior == "told":
            return meta.prior_given(mu)  # OracleTS
        if self.prior == "drawn":
            return meta.prior_given(meta.sample(rng))  # MetaTS: P(·; mũ)
        return meta.task_prior()  # AdaTS: P_s; TS, which never learns: P_1

    def meta(self, problem: Problem) -> MetaBelief:
        """What it believes before the first task."""
        if not self.spreads:
            meta = problem.meta()
        elif isinstance(problem, UnknownSpread):
            meta = problem.candidates(self.spreads)
        else:
            raise ValueError(
                "an agent that is not told σ_0 needs candidates for it, which the problems "
                f"gaussian and linear have, but not {problem.name}"
            )
        return meta if self.width == 1.0 else meta.widen(self.width)


AGENTS: dict[str, Learner] = {
    "oracle-ts": Learner("OracleTS", "told"),
    "ada-ts": Learner("AdaTS", "marginal"),
    "meta-ts": Learner("MetaTS", "drawn"),
    "ts": Learner("TS", "fixed"),
    "ada-ts+": Learner("AdaTS+", "marginal", 3.0),
    "ada-ts-": Learner("AdaTS−", "marginal", 1 / 3),
    "ada-grid": Learner("AdaTS, spread learned", "marginal", spreads=SPREADS),
    "ada-narrow": Learner("AdaTS, spread 0.05σ", "marginal", spreads=(0.05,)),
    "ada-broad": Learner("AdaTS, spread 1σ", "marginal", spreads=(1.0,)),
    "ada-ucb": Learner("learned prior, Bayes-UCB", "marginal", policy="ucb"),
    "ada-index": Learner("learned prior, finite horizon", "marginal", policy="index"),
    "ada-far": Learner("learned prior, far-sighted", "marginal", policy="far"),
    "ada-greedy": Learner("learned prior, greedy", "marginal", policy="greedy"),
}
