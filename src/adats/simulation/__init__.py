"""Problems, compiled loops, runs on any number of workers."""

from adats.simulation.learners import AGENTS, Learner
from adats.simulation.results import Result
from adats.simulation.simulate import simulate
from adats.simulation.tuning import Tuned, tune

__all__ = ["AGENTS", "Learner", "Result", "Tuned", "simulate", "tune"]
