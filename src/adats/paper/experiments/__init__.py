"""The paper's figures and some of our own, as data: what to run, check and show."""

from adats.paper.experiments.catalogue import ALL, EXPERIMENTS
from adats.paper.experiments.panels import Panel
from adats.paper.experiments.pipeline import reproduce, total_steps
from adats.paper.experiments.spec import Experiment

__all__ = ["ALL", "EXPERIMENTS", "Experiment", "Panel", "reproduce", "total_steps"]
