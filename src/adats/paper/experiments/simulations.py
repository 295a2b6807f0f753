"""Simulated experiments: those of the paper, and three of our own."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from adats.models import BetaArms, PoissonArms
from adats.models.core.types import FloatArray
from adats.paper.experiments import claims
from adats.paper.experiments.figures import regret_panels, spread_figure
from adats.paper.experiments.panels import Panel
from adats.paper.experiments.spec import PanelExperiment
from adats.simulation import problems
from adats.simulation.problems.problem import SPREADS

PAPER_AGENTS = ("oracle-ts", "ada-ts", "meta-ts", "ts")
WIDTH_AGENTS = (*PAPER_AGENTS, "ada-ts+", "ada-ts-")  # and σ_q three times too wide, too narrow
SPREAD_AGENTS = ("oracle-ts", "ada-ts", "ada-grid", "ts", "ada-narrow", "ada-broad")


def both(panels: Iterable[Panel]) -> tuple[Panel, ...]:
    """Without forced exploration, and with it, as the analysis needs it."""
    some = tuple(panels)
    return *some, *(replace(panel, explore_first=True) for panel in some)


def gaussian_panel(arms: int, scale: float, agents: tuple[str, ...]) -> Panel:
    problem = partial(
        problems.GaussianProblem, arms=arms, meta_scale=scale, task_scale=0.1, noise=1.0
    )
    return Panel(f"Gaussian, K = {arms}, σ_q = {scale:g}", problem, agents)


def linear_panel(dim: int, scale: float, agents: tuple[str, ...]) -> Panel:
    arms = 5 * dim
    problem = partial(
        problems.LinearProblem, dim=dim, arms=arms, meta_scale=scale, task_scale=0.1, noise=1.0
    )
    return Panel(f"Linear, d = {dim}, K = {arms}, σ_q = {scale:g}", problem, agents)


def _every_spread(title: str, problem: Callable[..., problems.Problem]) -> tuple[Panel, ...]:
    """A problem with every spread of its tasks."""
    return tuple(
        Panel(f"{title}, σ_0 = {spread:g}", partial(problem, task_scale=spread), SPREAD_AGENTS)
        for spread in (0.05, 0.1, 0.3, 1.0)
    )


def _best_arms(scale: float) -> Panel:
    problem = partial(
        problems.SemibanditProblem, arms=20, size=4, meta_scale=scale, task_scale=0.1, noise=1.0
    )
    return Panel(f"Best 4 of K = 20, σ_q = {scale:g}", problem, PAPER_AGENTS)


def _routing(network: str, scale: float) -> Panel:
    problem = partial(
        problems.RoutingProblem.named,
        network,
        meta_scale=scale,
        task_scale=0.1,
        noise=1.0,
        floor=0.05,
    )
    return Panel(f"Routing, {network.split('/')[-1]}, σ_q = {scale:g}", problem, PAPER_AGENTS)


def _turned_ladder(low: float, high: float, arms: int) -> FloatArray:
    """A ladder of means, and the same one turned by one arm, two arms and so on: one a row."""
    ladder = np.linspace(low, high, arms)
    return np.array([np.roll(ladder, j) for j in range(arms)])


def _beta(means: FloatArray, size: float) -> BetaArms:
    return BetaArms(means * size, (1 - means) * size)


def _bernoulli() -> problems.MixtureProblem:
    means = _turned_ladder(0.3, 0.6, 6)
    return problems.MixtureProblem(np.full(6, 1 / 6), _beta(means, 50.0))


def _one_better() -> problems.MixtureProblem:
    means = np.where(np.eye(5, dtype=bool), 0.6, 0.4)
    return problems.MixtureProblem(np.full(5, 1 / 5), _beta(means, 10.0))


def _grid() -> problems.MixtureProblem:
    means = np.array([0.2, 0.35, 0.5, 0.65])[:, None] + np.zeros(10)
    return problems.MixtureProblem(np.full((4, 10), 1 / 4), _beta(means, 50.0))


def _poisson() -> problems.MixtureProblem:
    means = _turned_ladder(1.0, 3.0, 6)
    return problems.MixtureProblem(
        np.full(6, 1 / 6), PoissonArms(means * 20.0, np.full_like(means, 20.0))
    )


def _listed(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.3g}" for value in values)


SHARED = "The prior's width is σ_0 = 0.1 and the noise is σ = 1."
FORCED = (
    "The paper does not say whether its agents explore by force at the start of a task, as its "
    "analysis needs: so panels are shown without and with it, each arm once with Gaussian arms, "
    "arms that span all directions in linear bandits, and sets that cover all arms in semi-bandits."
)
RUNS = 1000  # so that hardly a claim is undecided


def _misspecified(
    name: str,
    sizes: str,
    arms: str,
    panel: Callable[[int, float, tuple[str, ...]], Panel],
    judged: tuple[claims.Claim, ...],
) -> PanelExperiment:
    """An experiment of the supplement, over sizes and widths of the meta-prior."""
    return PanelExperiment(
        name=name,
        title=f"{name.title()} bandits of the supplement: {sizes}, and a misspecified meta-prior",
        about=(
            f"{SHARED} {FORCED} AdaTS+ believes that σ_q is three times as wide as it is, AdaTS− a "
            f"third as wide.{arms}"
        ),
        panels=both(panel(size, scale, WIDTH_AGENTS) for scale in (0.5, 1.0) for size in (2, 4, 8)),
        claims=judged,
        runs=RUNS,
    )


SIMULATIONS = (
    PanelExperiment(
        name="synthetic",
        title="Figure 2 of the paper: synthetic problems",
        about=(
            f"{SHARED} {FORCED} In the linear bandit the arms are drawn from the unit sphere once "
            "a run."
        ),
        panels=both(
            (
                *(gaussian_panel(2, scale, PAPER_AGENTS) for scale in (0.5, 1.0)),
                linear_panel(2, 1.0, PAPER_AGENTS),
            )
        ),
        claims=claims.SYNTHETIC,
        runs=RUNS,
    ),
    _misspecified("gaussian", "K arms", "", gaussian_panel, claims.GAUSSIAN),
    _misspecified(
        "linear",
        "d dimensions",
        " There are K = 5d arms, drawn from the unit sphere once a run.",
        linear_panel,
        claims.LINEAR,
    ),
    PanelExperiment(
        name="semibandit",
        title="Semi-bandits: the best arms of many, and routing on a real network",
        about=(
            f"{SHARED} {FORCED} The first two problems pull at most 4 of 20 arms a round, those of "
            "the largest sampled means that are not negative. In the third, arms are the links of "
            "the network sndlib/germany50, and a round sends a packet between its two most "
            "distant nodes; the reward of a link is minus its latency, in units of the mean link, "
            "and true and sampled latencies are clipped below at 0.05. The paper has no such "
            "experiment: the claims below are our own questions."
        ),
        panels=both((_best_arms(0.5), _best_arms(1.0), _routing("sndlib/germany50", 0.5))),
        claims=claims.OWN,
        runs=RUNS,
    ),
    PanelExperiment(
        name="mixture",
        title="Exponential-family bandits whose prior is one of several candidates",
        about=(
            "The paper has no such experiment (its Section 3.4 gives the algorithm): the claims "
            "below are our own questions. Turned ladder: six arms have prior means 0.3, 0.36, …, "
            "0.6 (Poisson: 1, 1.4, …, 3), and each of six equally likely candidates turns the "
            "ladder by one arm more, so that the best arm depends on the candidate. Grid: each of "
            "ten arms has one of the prior means 0.2, 0.35, 0.5 and 0.65, equally likely and "
            "apart from the other arms. A beta prior weighs as much as 50 rewards (its standard "
            "deviation is about 0.07), a gamma prior as much as 20 (about 0.3). So tasks of one "
            "run are alike, yet the best arm still varies between them. One better arm is a case "
            "where little is to be learned: one of five arms, each as likely, has prior mean 0.6 "
            "and the others 0.4, and the priors weigh as much as 10 rewards only. TS keeps the "
            "equal weights as the prior of every task."
        ),
        panels=(
            Panel("Bernoulli, turned ladder, K = 6", _bernoulli, PAPER_AGENTS),
            Panel("Bernoulli, grid for each arm, K = 10", _grid, PAPER_AGENTS),
            Panel("Poisson, turned ladder, K = 6", _poisson, PAPER_AGENTS),
            Panel("Bernoulli, one better arm, K = 5", _one_better, PAPER_AGENTS),
        ),
        claims=claims.OWN,
        runs=RUNS,
        draw=partial(regret_panels, columns=2),
    ),
    PanelExperiment(
        name="unknown-spread",
        title="Exploration when nobody says how much tasks differ",
        about=(
            "The paper takes σ_0, the spread of tasks, for known. Here one agent has to learn it: "
            "it keeps AdaTS for each of eight values of σ_0, equally likely at first, and weighs "
            f"them by the evidence of all rewards so far. The values are {_listed(SPREADS)} times "
            "σ, evenly spaced in their logarithm: the same for every problem, and no true σ_0 is "
            "among them. All else is known to it as to the others, σ = 1 and σ_q. OracleTS, AdaTS "
            "and TS are told σ_0. Two more agents show what a wrong σ_0 costs: they are AdaTS "
            "that takes it for 0.05 σ and for σ, whatever it is. The paper has no such "
            "experiment: the claims below are our own questions."
        ),
        panels=(
            *_every_spread("Gaussian, K = 2, σ_q = 0.5", partial(problems.GaussianProblem, 2, 0.5)),
            *_every_spread("Gaussian, K = 8, σ_q = 1", partial(problems.GaussianProblem, 8, 1.0)),
            *_every_spread(
                "Linear, d = 2, K = 10, σ_q = 1", partial(problems.LinearProblem, 2, 10, 1.0)
            ),
            *_every_spread(
                "Linear, d = 4, K = 20, σ_q = 1", partial(problems.LinearProblem, 4, 20, 1.0)
            ),
        ),
        claims=claims.UNKNOWN,
        runs=RUNS,
        draw=spread_figure,
    ),
)
