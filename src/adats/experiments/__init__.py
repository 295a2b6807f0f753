"""The paper's synthetic figures and three of our own, as data: what to run and what to check."""

from adats.experiments.catalogue import EXPERIMENTS, Experiment
from adats.experiments.panels import Panel
from adats.experiments.run import reproduce, total_runs

__all__ = ["EXPERIMENTS", "Experiment", "Panel", "reproduce", "total_runs"]
