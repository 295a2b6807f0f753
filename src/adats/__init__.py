"""Thompson sampling that learns its own prior, over many related bandit tasks."""

from adats.actions import Decision
from adats.agents import TS, AdaTS, MetaTS, OracleTS, load
from adats.beliefs import (
    BeliefMixture,
    BetaArms,
    ExponentialArms,
    GaussianArms,
    LinearBelief,
    MixtureArms,
    PoissonArms,
)
from adats.codec import load_prior, save_prior
from adats.defaults import default_prior
from adats.errors import FileFormatError, FinishedTask, UnknownTask
from adats.meta import GaussianMeta, LinearMeta, MixtureMeta, ModelMixture
from adats.oracles import BestArm, BestRow, Matching, ShortestPath, SpanningTree, Top
from adats.stats import ArmStats, BinaryStats, CountStats, LinearStats, PositiveStats

__version__ = "0.1.0"

__all__ = [
    "TS",
    "AdaTS",
    "ArmStats",
    "BeliefMixture",
    "BestArm",
    "BestRow",
    "BetaArms",
    "BinaryStats",
    "CountStats",
    "Decision",
    "ExponentialArms",
    "FileFormatError",
    "FinishedTask",
    "GaussianArms",
    "GaussianMeta",
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
    "ShortestPath",
    "SpanningTree",
    "Top",
    "UnknownTask",
    "default_prior",
    "load",
    "load_prior",
    "save_prior",
]
