"""The simulator's compiled inner loops: one task of one run a call.

Each is the loop of `simulate.plain_task` for one model, written out: the same draws in the same
order, so the same decisions. `first` are the arms that forced exploration pulls, one row a round,
padded with -1; `draws` are the random parts of the rewards, which all agents share.
"""

from adats.simulation.kernels.classification import classification_task
from adats.simulation.kernels.common import KnownRng
from adats.simulation.kernels.gaussian import gaussian_learn, gaussian_task
from adats.simulation.kernels.indices import (
    gaussian_index_task,
    linear_index_task,
    semibandit_index_task,
)
from adats.simulation.kernels.linear import linear_task
from adats.simulation.kernels.mixture import mixture_task
from adats.simulation.kernels.models import gaussian_models_task, linear_models_task
from adats.simulation.kernels.semibandit import semibandit_task

__all__ = [
    "KnownRng",
    "classification_task",
    "gaussian_index_task",
    "gaussian_learn",
    "gaussian_models_task",
    "gaussian_task",
    "linear_index_task",
    "linear_models_task",
    "linear_task",
    "mixture_task",
    "semibandit_index_task",
    "semibandit_task",
]
