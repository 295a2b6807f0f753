"""Thompson sampling that learns its own prior, over many related bandit tasks."""

from adats.agents.actions import Decision
from adats.agents.named import TS, AdaTS, MetaTS, OracleTS, load
from adats.agents.oracles import BestArm, BestRow, Matching, ShortestPath, SpanningTree, Top
from adats.agents.policies import BayesUCB, FarSighted, FiniteHorizon, Greedy, Thompson
from adats.learning.fitting import fit
from adats.models import (
    BeliefMixture,
    BetaArms,
    ExponentialArms,
    GaussianArms,
    GaussianMeta,
    LinearBelief,
    LinearMeta,
    MixtureArms,
    MixtureMeta,
    ModelMixture,
    PoissonArms,
)
from adats.models.core.errors import FileFormatError, FinishedTask, Refused, UnknownTask
from adats.models.core.stats import ArmStats, BinaryStats, CountStats, LinearStats, PositiveStats
from adats.models.default_prior import default_prior
from adats.models.prior_files import load_prior, read_about, save_prior
from adats.service.client import Client

__version__ = "0.1.0"

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
    "ExponentialArms",
    "FarSighted",
    "FileFormatError",
    "FinishedTask",
    "FiniteHorizon",
    "GaussianArms",
    "GaussianMeta",
    "Greedy",
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
    "default_prior",
    "fit",
    "load",
    "load_prior",
    "read_about",
    "save_prior",
]
