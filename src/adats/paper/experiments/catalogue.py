"""The experiments as data: what each runs, and what its report checks."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np

from adats.models import BetaArms, PoissonArms
from adats.models.core.types import FloatArray
from adats.paper.experiments import claims
from adats.paper.experiments.claims import Claim
from adats.paper.experiments.panels import Panel
from adats.simulation.problems import (
    GaussianProblem,
    LinearProblem,
    MixtureProblem,
    Problem,
    RoutingProblem,
    SemibanditProblem,
)
from adats.simulation.problems.problem import SPREADS

FOUR = ("oracle-ts", "ada-ts", "meta-ts", "ts")
SIX = (*FOUR, "ada-ts+", "ada-ts-")
UNTOLD = ("oracle-ts", "ada-ts", "ada-grid", "ts", "ada-narrow", "ada-broad")


@dataclass(frozen=True)
class Experiment:
    """Panels of one figure, and the claims that its report checks."""

    title: str
    about: str
    panels: tuple[Panel, ...]
    claims: tuple[Claim, ...]
    columns: int = 3
    runs: int = 100
    figure: Literal["regret", "spread"] = "regret"


def _gaussian(arms: int, scale: float, agents: tuple[str, ...], first: bool) -> Panel:
    problem = partial(GaussianProblem, arms=arms, meta_scale=scale, task_scale=0.1, noise=1.0)
    title = f"Gaussian, K = {arms}, σ_q = {scale:g}"
    return Panel(title, problem, agents, explore_first=first)


def _linear(dim: int, scale: float, agents: tuple[str, ...]) -> Panel:
    arms = 5 * dim
    problem = partial(
        LinearProblem, dim=dim, arms=arms, meta_scale=scale, task_scale=0.1, noise=1.0
    )
    return Panel(f"Linear, d = {dim}, K = {arms}, σ_q = {scale:g}", problem, agents)


def _unknown(title: str, problem: Callable[..., Problem]) -> tuple[Panel, ...]:
    """A problem with every spread of its tasks."""
    return tuple(
        Panel(f"{title}, σ_0 = {spread:g}", partial(problem, task_scale=spread), UNTOLD)
        for spread in (0.05, 0.1, 0.3, 1.0)
    )


def _top(scale: float) -> Panel:
    problem = partial(
        SemibanditProblem, arms=20, size=4, meta_scale=scale, task_scale=0.1, noise=1.0
    )
    return Panel(f"Best 4 of K = 20, σ_q = {scale:g}", problem, FOUR)


def _routing(network: str, scale: float) -> Panel:
    problem = partial(
        RoutingProblem.named, network, meta_scale=scale, task_scale=0.1, noise=1.0, floor=0.05
    )
    return Panel(f"Routing, {network.split('/')[-1]}, σ_q = {scale:g}", problem, FOUR)


def _turned(low: float, high: float, arms: int) -> FloatArray:
    """A ladder of means, and the same one turned by one arm, two arms and so on: one a row."""
    ladder = np.linspace(low, high, arms)
    return np.array([np.roll(ladder, j) for j in range(arms)])


def _beta(means: FloatArray, size: float) -> BetaArms:
    return BetaArms(means * size, (1 - means) * size)


def _bernoulli() -> MixtureProblem:
    means = _turned(0.3, 0.6, 6)
    return MixtureProblem(np.full(6, 1 / 6), _beta(means, 50.0))


def _one_better() -> MixtureProblem:
    means = np.where(np.eye(5, dtype=bool), 0.6, 0.4)
    return MixtureProblem(np.full(5, 1 / 5), _beta(means, 10.0))


def _grid() -> MixtureProblem:
    means = np.array([0.2, 0.35, 0.5, 0.65])[:, None] + np.zeros(10)
    return MixtureProblem(np.full((4, 10), 1 / 4), _beta(means, 50.0))


def _poisson() -> MixtureProblem:
    means = _turned(1.0, 3.0, 6)
    return MixtureProblem(np.full(6, 1 / 6), PoissonArms(means * 20.0, np.full_like(means, 20.0)))


def _listed(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.3g}" for value in values)


SHARED = "The prior's width is σ_0 = 0.1 and the noise is σ = 1."

EXPERIMENTS: dict[str, Experiment] = {
    "synthetic": Experiment(
        "Figure 2 of the paper: synthetic problems",
        f"{SHARED} The paper does not say whether each arm is pulled once at the start of a task, "
        "as public code of the same group does, so the Gaussian panels are shown without and with "
        "it. In the linear bandit the arms are drawn from the unit sphere once a run.",
        (
            *(_gaussian(2, scale, FOUR, False) for scale in (0.5, 1.0)),
            _linear(2, 1.0, FOUR),
            *(_gaussian(2, scale, FOUR, True) for scale in (0.5, 1.0)),
        ),
        claims.SYNTHETIC,
    ),
    "gaussian": Experiment(
        "Gaussian bandits of the supplement: K arms, and a misspecified meta-prior",
        f"{SHARED} AdaTS+ believes that σ_q is three times as wide as it is, AdaTS− a third as "
        "wide. All panels are shown without and with pulling each arm once first in every task.",
        tuple(
            _gaussian(arms, scale, SIX, first)
            for first in (False, True)
            for scale in (0.5, 1.0)
            for arms in (2, 4, 8)
        ),
        claims.GAUSSIAN,
    ),
    "linear": Experiment(
        "Linear bandits of the supplement: d dimensions, and a misspecified meta-prior",
        f"{SHARED} AdaTS+ believes that σ_q is three times as wide as it is, AdaTS− a third as "
        "wide. There are K = 5d arms, drawn from the unit sphere once a run.",
        tuple(_linear(dim, scale, SIX) for scale in (0.5, 1.0) for dim in (2, 4, 8)),
        claims.LINEAR,
    ),
    "semibandit": Experiment(
        "Semi-bandits: the best arms of many, and routing on a real network",
        f"{SHARED} The first two problems pull at most 4 of 20 arms a round, those of the largest "
        "sampled means that are not negative. In the third, arms are the links of the network "
        "sndlib/germany50, and a round sends a packet between its two most distant nodes; the "
        "reward of a link is minus its latency, in units of the mean link, and true and sampled "
        "latencies are clipped below at 0.05. The paper has no such experiment: the claims "
        "below are our own questions.",
        (_top(0.5), _top(1.0), _routing("sndlib/germany50", 0.5)),
        claims.OWN,
    ),
    "mixture": Experiment(
        "Exponential-family bandits whose prior is one of several candidates",
        "The paper has no such experiment (its Section 3.4 gives the algorithm): the claims below "
        "are our own questions. "
        "Turned ladder: six arms have prior means 0.3, 0.36, …, 0.6 (Poisson: 1, 1.4, …, 3), and "
        "each of six equally likely candidates turns the ladder by one arm more, so that the best "
        "arm depends on the candidate. Grid: each of ten arms has one of the prior means 0.2, "
        "0.35, 0.5 and 0.65, equally likely and apart from the other arms. A beta prior weighs as "
        "much as 50 rewards (its standard deviation is about 0.07), a gamma prior as much as 20 "
        "(about 0.3). So tasks of one run are alike, yet the best arm still varies between them. "
        "One better arm is a case where little is to be learned: one of five arms, each as likely, "
        "has prior mean 0.6 and the others 0.4, and the priors weigh as much as 10 rewards only. "
        "TS keeps the equal weights as the prior of every task.",
        (
            Panel("Bernoulli, turned ladder, K = 6", _bernoulli, FOUR),
            Panel("Bernoulli, grid for each arm, K = 10", _grid, FOUR),
            Panel("Poisson, turned ladder, K = 6", _poisson, FOUR),
            Panel("Bernoulli, one better arm, K = 5", _one_better, FOUR),
        ),
        claims.OWN,
        columns=2,
    ),
    "unknown-spread": Experiment(
        "Exploration when nobody says how much tasks differ",
        "The paper takes σ_0, the spread of tasks, for known. Here one agent has to learn it: it "
        "keeps AdaTS for each of eight values of σ_0, equally likely at first, and weighs them by "
        f"the evidence of all rewards so far. The values are {_listed(SPREADS)} times σ, evenly "
        "spaced in their logarithm: the same for every problem, and no true σ_0 is among them. All "
        "else is known to it as to the others, σ = 1 and σ_q. OracleTS, AdaTS and TS are told σ_0. "
        "Two more agents show what a wrong σ_0 costs: they are AdaTS that takes it for 0.05 σ and "
        "for σ, whatever it is. The paper has no such experiment: the claims below are our own "
        "questions.",
        (
            *_unknown("Gaussian, K = 2, σ_q = 0.5", partial(GaussianProblem, 2, 0.5)),
            *_unknown("Gaussian, K = 8, σ_q = 1", partial(GaussianProblem, 8, 1.0)),
            *_unknown("Linear, d = 2, K = 10, σ_q = 1", partial(LinearProblem, 2, 10, 1.0)),
            *_unknown("Linear, d = 4, K = 20, σ_q = 1", partial(LinearProblem, 4, 20, 1.0)),
        ),
        claims.UNKNOWN,
        columns=4,
        figure="spread",
    ),
}
