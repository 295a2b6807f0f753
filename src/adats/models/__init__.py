"""What can be believed, one model a folder: statistics, beliefs over theta and over its prior."""

from adats.models.beta.belief import BetaArms
from adats.models.ensemble.belief import BeliefMixture
from adats.models.ensemble.meta import ModelMixture
from adats.models.gamma.belief import ExponentialArms, PoissonArms
from adats.models.gaussian.belief import GaussianArms
from adats.models.gaussian.meta import GaussianMeta
from adats.models.linear.belief import LinearBelief
from adats.models.linear.meta import LinearMeta
from adats.models.mixture.belief import MixtureArms
from adats.models.mixture.meta import MixtureMeta

__all__ = [
    "BeliefMixture",
    "BetaArms",
    "ExponentialArms",
    "GaussianArms",
    "GaussianMeta",
    "LinearBelief",
    "LinearMeta",
    "MixtureArms",
    "MixtureMeta",
    "ModelMixture",
    "PoissonArms",
]
