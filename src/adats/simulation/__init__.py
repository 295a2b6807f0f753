"""Problems, compiled loops, runs on any number of workers."""

from adats.simulation.learners import AGENTS
from adats.simulation.results import Result
from adats.simulation.simulate import simulate

__all__ = ["AGENTS", "Result", "simulate"]
