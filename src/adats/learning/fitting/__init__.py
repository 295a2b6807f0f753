"""A prior learned from logged tasks: statistics by task, estimates, and what they cannot tell."""

from adats.learning.fitting.errors import Errors, standard_errors
from adats.learning.fitting.fitted import Fitted
from adats.learning.fitting.structures import compare, estimate
from adats.learning.tables import ArmTable, LinearTable

__all__ = [
    "ArmTable",
    "Errors",
    "Fitted",
    "LinearTable",
    "compare",
    "estimate",
    "standard_errors",
]
