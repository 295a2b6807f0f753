"""The agents that the simulator knows by name."""

from typing import Literal, NamedTuple

from adats.agents.policies import Policy
from adats.agents.prior_source import Drawn, Fixed, Known, Marginal, PriorSource
from adats.models.core.types import FloatArray, MetaBelief
from adats.simulation.memory import ExactFilter, HalfLives, Memory, ToldChanges
from adats.simulation.problems import Problem
from adats.simulation.problems.clicks import LatentClicks
from adats.simulation.problems.problem import SPREADS, UnknownSpread


class Learner(NamedTuple):
    """A built-in agent: where a task's prior comes from, and what its meta-prior is.

    `width` multiplies the true σ_q; `spreads` are the values of σ_0 that it holds for possible, in
    units of σ, instead of the true one.
    """

    label: str  # its name for people
    source: PriorSource | None = Marginal()  # None: it is told mu_*
    width: float = 1.0
    spreads: tuple[float, ...] = ()
    policy: str | Policy = "ts"  # a name in `POLICIES`, or one of its own
    prior: Literal["problem", "default", "pooled", "linear"] = "problem"  # whose meta-prior it has
    memory: Memory | None = None  # what it does about change; None: nothing

    def source_of(self, mu: FloatArray) -> PriorSource:
        """Where a task's prior comes from, in a run whose mu_* is `mu`."""
        return Known(mu) if self.source is None else self.source

    def meta(self, problem: Problem) -> MetaBelief:
        """What it believes before the first task."""
        if self.prior != "problem":
            if not isinstance(problem, LatentClicks):
                raise ValueError(f"{self.label} is for the problem clicks, not for {problem.name}")
            known = {
                "default": problem.default, "pooled": problem.pooled, "linear": problem.linear
            }  # fmt: skip
            return known[self.prior]()
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
    "oracle-ts": Learner("OracleTS", None),
    "ada-ts": Learner("AdaTS"),
    "meta-ts": Learner("MetaTS", Drawn()),
    "ts": Learner("TS", Fixed()),
    "ada-ts+": Learner("AdaTS+", width=3.0),
    "ada-ts-": Learner("AdaTS−", width=1 / 3),
    "ada-grid": Learner("AdaTS, spread learned", spreads=SPREADS),
    "ada-narrow": Learner("AdaTS, spread 0.05σ", spreads=(0.05,)),
    "ada-broad": Learner("AdaTS, spread 1σ", spreads=(1.0,)),
    "ada-ucb": Learner("learned prior, Bayes-UCB", policy="ucb"),
    "ada-index": Learner("learned prior, finite horizon", policy="index"),
    "ada-far": Learner("learned prior, far-sighted", policy="far"),
    "default-ts": Learner("AdaTS, told nothing", prior="default"),
    "default-far": Learner("far-sighted, told nothing", policy="far", prior="default"),
    "pooled-ts": Learner("one TS for all tasks", prior="pooled"),
    "flat-ts": Learner("TS, each task alone", Fixed(), prior="pooled"),
    "linear-ts": Learner("linear model, told nothing", prior="linear"),
    "ada-greedy": Learner("learned prior, greedy", policy="greedy"),
}

MOVING: dict[str, Learner] = {  # for problems that move
    "ada-life": Learner("AdaTS, half-lives", memory=HalfLives(4.0, 8.0)),
    "ada-told": Learner("AdaTS, told the changes", memory=ToldChanges()),
    "filter-ts": Learner("filter that knows the steps", memory=ExactFilter()),
}


def label_of(agent: str) -> str:
    """What people call an agent; one of another name is shown by that name."""
    return AGENTS[agent].label if agent in AGENTS else agent
