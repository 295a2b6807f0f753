"""A prior learned from logged tasks: statistics by task, estimates, and what they cannot tell."""

from adats.fitting.errors import Errors, standard_errors
from adats.fitting.fitted import Fitted
from adats.fitting.learn import estimate, fit
from adats.tables import ArmTable, LinearTable

__all__ = [
    "ArmTable",
    "Errors",
    "Fitted",
    "LinearTable",
    "estimate",
    "fit",
    "standard_errors",
]
