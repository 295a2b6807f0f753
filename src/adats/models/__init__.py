"""What can be believed, one model a folder: statistics, beliefs over theta and over its prior."""

from adats.models.beta.belief import BetaArms
from adats.models.beta.stats import BinaryStats
from adats.models.clusters.meta import ClusterMeta
from adats.models.core.registry import register
from adats.models.core.stats import ArmStats
from adats.models.ensemble.belief import BeliefMixture
from adats.models.ensemble.meta import ModelMixture
from adats.models.family.belief import FamilyArms
from adats.models.family.family import ExponentialFamily
from adats.models.gamma.belief import ExponentialArms, PoissonArms
from adats.models.gamma.stats import CountStats, PositiveStats
from adats.models.gaussian.belief import GaussianArms
from adats.models.gaussian.meta import GaussianMeta
from adats.models.latent.meta import LatentMeta
from adats.models.latent.row_meta import LatentLinearMeta
from adats.models.linear.belief import LinearBelief
from adats.models.linear.meta import LinearMeta
from adats.models.linear.stats import LinearStats
from adats.models.mixture.belief import MixtureArms
from adats.models.mixture.families import register_arms
from adats.models.mixture.meta import MixtureMeta

__all__ = [
    "ArmStats",
    "BeliefMixture",
    "BetaArms",
    "BinaryStats",
    "ClusterMeta",
    "CountStats",
    "ExponentialArms",
    "ExponentialFamily",
    "FamilyArms",
    "GaussianArms",
    "GaussianMeta",
    "LatentLinearMeta",
    "LatentMeta",
    "LinearBelief",
    "LinearMeta",
    "LinearStats",
    "MixtureArms",
    "MixtureMeta",
    "ModelMixture",
    "PoissonArms",
    "PositiveStats",
    "register",
    "register_arms",
]
