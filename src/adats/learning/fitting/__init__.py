"""A prior learned from logged tasks: statistics by task, estimates, and what they cannot tell."""

from adats.learning.fitting.errors import Errors, standard_errors
from adats.learning.fitting.fitted import Fitted
from adats.learning.fitting.learn import estimate, fit
from adats.learning.tables import ArmTable, LinearTable

__all__ = [
    "ArmTable",
    "Errors",
    "Fitted",
    "LinearTable",
    "estimate",
    "fit",
    "standard_errors",
]
