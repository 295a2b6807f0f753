"""Who decides: choices, tasks and their priors, policies, propensities, files of agents."""

from adats.agents.agent import TS, AdaTS, Agent, MetaTS, OracleTS, load
from adats.agents.decision import Decision
from adats.agents.policies import BayesUCB, FarSighted, FiniteHorizon, Greedy, Thompson

__all__ = [
    "TS",
    "AdaTS",
    "Agent",
    "BayesUCB",
    "Decision",
    "FarSighted",
    "FiniteHorizon",
    "Greedy",
    "MetaTS",
    "OracleTS",
    "Thompson",
    "load",
]
