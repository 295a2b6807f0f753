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
from adats.client import Client
from adats.codec import load_prior, read_about, save_prior
from adats.defaults import default_prior
from adats.errors import FileFormatError, FinishedTask, Refused, UnknownTask
from adats.fitting import fit
from adats.meta import GaussianMeta, LinearMeta, MixtureMeta, ModelMixture
from adats.oracles import BestArm, BestRow, Matching, ShortestPath, SpanningTree, Top
from adats.policies import BayesUCB, FarSighted, FiniteHorizon, Greedy, Thompson
from adats.stats import ArmStats, BinaryStats, CountStats, LinearStats, PositiveStats

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
