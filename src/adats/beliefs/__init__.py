"""Beliefs over the theta of one task, one model a file."""

from adats.beliefs.beta import BetaArms
from adats.beliefs.gamma import ExponentialArms, PoissonArms
from adats.beliefs.gaussian import GaussianArms
from adats.beliefs.linear import LinearBelief
from adats.beliefs.mixture import BeliefMixture, MixtureArms

__all__ = [
    "BeliefMixture",
    "BetaArms",
    "ExponentialArms",
    "GaussianArms",
    "LinearBelief",
    "MixtureArms",
    "PoissonArms",
]
