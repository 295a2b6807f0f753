"""Oracles: mean rewards, one an arm, to the action that is best for them.

An arm whose mean is -inf may not be chosen now. A single-arm oracle returns an int; a set oracle
returns the sorted indices of distinct arms, whose means add up to the value of the action.
"""

from adats.agents.oracles.arms import BestArm, BestRow, CheckedOracle, Oracle, Top
from adats.agents.oracles.graphs import Matching, Node, ShortestPath, SpanningTree

__all__ = [
    "BestArm",
    "BestRow",
    "CheckedOracle",
    "Matching",
    "Node",
    "Oracle",
    "ShortestPath",
    "SpanningTree",
    "Top",
]
