"""Thompson sampling that learns its own prior, over many related bandit tasks."""

from adats.agents import (
    TS,
    AdaTS,
    BayesUCB,
    Decision,
    Decisions,
    FarSighted,
    FiniteHorizon,
    Greedy,
    MetaTS,
    OracleTS,
    Thompson,
    decide,
    load,
)
from adats.agents.oracles import BestArm, BestRow, Matching, ShortestPath, SpanningTree, Top
from adats.learning.fitting import fit
from adats.models import (
    ArmStats,
    BeliefMixture,
    BetaArms,
    BinaryStats,
    CountStats,
    ExponentialArms,
    GaussianArms,
    GaussianMeta,
    LatentLinearMeta,
    LatentMeta,
    LinearBelief,
    LinearMeta,
    LinearStats,
    MixtureArms,
    MixtureMeta,
    ModelMixture,
    PoissonArms,
    PositiveStats,
)
from adats.models.core.errors import FileFormatError, FinishedTask, Refused, UnknownTask
from adats.models.default_prior import default_prior, grid_prior
from adats.models.prior_files import load_prior, read_about, save_prior
from adats.old_names import keep_old_names as _keep_old_names
from adats.service.client import Client

__version__ = "0.1.0"
_keep_old_names()

__all__ = [
    "TS",
    "AdaTS",
    "ArmStats",
    "BayesUCB",
    "BeliefMixture",
    "BestArm",
    "BestRow",
    "BetaArms",
    "BinaryStats",
    "Client",
    "CountStats",
    "Decision",
    "Decisions",
    "ExponentialArms",
    "FarSighted",
    "FileFormatError",
    "FinishedTask",
    "FiniteHorizon",
    "GaussianArms",
    "GaussianMeta",
    "Greedy",
    "LatentLinearMeta",
    "LatentMeta",
    "LinearBelief",
    "LinearMeta",
    "LinearStats",
    "Matching",
    "MetaTS",
    "MixtureArms",
    "MixtureMeta",
    "ModelMixture",
    "OracleTS",
    "PoissonArms",
    "PositiveStats",
    "Refused",
    "ShortestPath",
    "SpanningTree",
    "Thompson",
    "Top",
    "UnknownTask",
    "decide",
    "default_prior",
    "fit",
    "grid_prior",
    "load",
    "load_prior",
    "read_about",
    "save_prior",
]
