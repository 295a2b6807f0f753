"""What an agent's file holds besides its prior and its tasks: the rng and the oracle."""

from dataclasses import fields
from typing import Any

import numpy as np

from adats.agents import oracles

ORACLES = ("BestArm", "Top", "ShortestPath", "SpanningTree", "Matching")


def rng_to_dict(rng: np.random.Generator) -> dict[str, Any]:
    return dict(rng.bit_generator.state)


def rng_from_dict(state: dict[str, Any]) -> np.random.Generator:
    rng = np.random.default_rng(0)
    rng.bit_generator.state = state
    return rng


def oracle_to_dict(oracle: Any) -> dict[str, Any] | None:
    """None for a callable of the user's own: it has to be given again to `load`."""
    name = type(oracle).__name__
    if name not in ORACLES or type(oracle) is not getattr(oracles, name):
        return None
    return {"kind": name, **{f.name: getattr(oracle, f.name) for f in fields(oracle)}}


def oracle_from_dict(data: dict[str, Any]) -> Any:
    options = dict(data)
    return getattr(oracles, _known(options.pop("kind")))(**options)


def _known(name: Any) -> str:
    if name not in ORACLES:
        raise ValueError(f"unknown kind {name!r}")
    return str(name)
