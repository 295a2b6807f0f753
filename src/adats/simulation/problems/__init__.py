"""Problems to simulate: how mu_*, tasks and rewards come about, one model a file."""

from adats.simulation.problems.classification import ClassificationProblem
from adats.simulation.problems.clicks import ClicksProblem, FeatureClicksProblem
from adats.simulation.problems.gaussian import GaussianProblem
from adats.simulation.problems.linear import LinearProblem
from adats.simulation.problems.mixture import MixtureProblem
from adats.simulation.problems.moving import MovingProblem
from adats.simulation.problems.prior import PriorProblem
from adats.simulation.problems.problem import Instance, Problem
from adats.simulation.problems.semibandit import RoutingProblem, SemibanditProblem

__all__ = [
    "ClassificationProblem",
    "ClicksProblem",
    "FeatureClicksProblem",
    "GaussianProblem",
    "Instance",
    "LinearProblem",
    "MixtureProblem",
    "MovingProblem",
    "PriorProblem",
    "Problem",
    "RoutingProblem",
    "SemibanditProblem",
]
