"""Who decides: choices, tasks and their priors, policies, propensities, files of agents."""

from adats.agents.agent import TS, AdaTS, Agent, MetaTS, OracleTS, load
from adats.agents.decision import Decision
from adats.agents.decisions import Decisions
from adats.agents.policies import (
    BayesUCB,
    FarSighted,
    FiniteHorizon,
    Greedy,
    OwnIndex,
    Thompson,
)
from adats.agents.stateless import decide

__all__ = [
    "TS",
    "AdaTS",
    "Agent",
    "BayesUCB",
    "Decision",
    "Decisions",
    "FarSighted",
    "FiniteHorizon",
    "Greedy",
    "MetaTS",
    "OracleTS",
    "OwnIndex",
    "Thompson",
    "decide",
    "load",
]
