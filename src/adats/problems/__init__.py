"""Problems to simulate: how mu_*, tasks and rewards come about, one model a file."""

from adats.problems.classification import ClassificationProblem
from adats.problems.gaussian import GaussianProblem
from adats.problems.linear import LinearProblem
from adats.problems.mixture import MixtureProblem
from adats.problems.problem import Instance, Problem
from adats.problems.semibandit import RoutingProblem, SemibanditProblem

__all__ = [
    "ClassificationProblem",
    "GaussianProblem",
    "Instance",
    "LinearProblem",
    "MixtureProblem",
    "Problem",
    "RoutingProblem",
    "SemibanditProblem",
]
