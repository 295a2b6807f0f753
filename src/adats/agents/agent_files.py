"""An agent in one npz file with a JSON header: what it is made of, what it knows, its rng."""

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any, NamedTuple

import numpy as np

from adats.agents import oracles
from adats.agents.aging import CLOCKS, NEVER, aging_of, checked_clock
from adats.agents.batches import layout_of
from adats.agents.change_detection import Detector, task_watch_from_flat, watch_from_dict
from adats.agents.decision_numbers import agent_number
from adats.agents.oracles import CheckedOracle, Oracle
from adats.agents.policies import Policy, policy_from_dict, policy_to_dict
from adats.agents.prior_source import Drawn, Fixed, Known, Marginal, PriorSource
from adats.agents.steps import Setup, make_setup
from adats.agents.task_columns import ColumnBook, times_of
from adats.agents.task_state import TaskState, check_state, pack_states, task_name, unpack_states
from adats.models.core import files
from adats.models.core.checks import count_of
from adats.models.core.checks import number as number_of
from adats.models.core.errors import FileFormatError
from adats.models.core.registry import meta_from_dict, meta_to_dict
from adats.models.core.types import AnyPath, BoolArray, JsonDict, MetaBelief, Rng, Task

FORMAT = "adats-agent"
COLUMNS = 2  # the version of files that have tasks in columns
ORACLES = ("BestArm", "Top", "ShortestPath", "SpanningTree", "Matching")
SOURCES: dict[str, Callable[[dict[str, Any]], PriorSource]] = {
    "AdaTS": lambda _: Marginal(),
    "MetaTS": lambda _: Drawn(),
    "TS": lambda _: Fixed(),
    "OracleTS": lambda arrays: Known(arrays["mu_star"]),
}


class AgentState(NamedTuple):
    """All that an agent is made of, as values."""

    setup: Setup
    meta: MetaBelief
    tasks: Mapping[Task, TaskState]
    rng: Rng
    decisions: int  # so far
    number: int = 0  # of the agent, in the numbers of its decisions
    rewarded: BoolArray = np.zeros(0, dtype=bool)  # which decisions of batches have a reward
    time: float = NEVER  # since when what all tasks taught has not lost weight
    clock: str = CLOCKS[0]
    turns: tuple[Task, ...] = ()  # tasks that weigh something, the oldest digests first
    detector: Detector | None = None


def write_agent(path: AnyPath, kind: str, state: AgentState) -> None:
    """Write an agent of a kind in `SOURCES`, whole or not at all."""
    setup, arms = state.setup, state.setup.arms
    header: JsonDict = {
        "agent": kind,
        "meta": meta_to_dict(state.meta),
        "rng": dict(state.rng.bit_generator.state),
        "oracle": oracle_to_dict(setup.rule.oracle),
        "policy": policy_to_dict(setup.rule.policy),
        "epsilon": setup.rule.epsilon,
        "explore_first": setup.explore_first,
        "decisions": state.decisions,
        "names": None if arms.names is None else list(arms.names),
        "retired": sorted(arms.retired),
        "number": state.number,
    }
    if setup.aging is not None:
        lives = [None if math.isinf(life) else life for life in setup.aging]
        time = None if state.time == NEVER else state.time
        header |= {"half_lives": lives, "time": time}
        header["turns"] = list(state.turns)
    if state.clock != CLOCKS[0]:
        header |= {"clock": state.clock, "keep": setup.keep}
    arrays: dict[str, Any] = {"rewarded": np.packbits(state.rewarded)}
    if state.detector is not None:
        header["watch"] = state.detector.watch.to_dict()
        header["watched"] = list(state.detector.tasks)
        arrays |= files.pack("watched", [one.flat() for one in state.detector.tasks.values()])
    states, version = state.tasks, 1
    if isinstance(states, ColumnBook):
        header["columns"], arrays["columns"], states = states.split()
        version = COLUMNS
    header["tasks"] = list(states)
    arrays |= pack_states(states.values()) | setup.source.arrays()
    if arms.features is not None:
        arrays["features"] = arms.features
    files.write_npz(path, FORMAT, header, arrays, version=version)


def read_agent(
    path: AnyPath, *, oracle: Oracle | None, policy: Policy | None
) -> tuple[str, AgentState]:
    """The kind of an agent and all that it is made of; everything is checked again."""
    header, arrays = files.read_npz(path, FORMAT, newest=COLUMNS)
    try:
        return header["agent"], _state(header, arrays, oracle, policy)
    except files.DAMAGED as error:
        raise FileFormatError(f"{os.fspath(path)} cannot be loaded: {error}") from None


def _state(
    header: dict[str, Any], arrays: dict[str, Any], oracle: Oracle | None, policy: Policy | None
) -> AgentState:
    stored, known = header["oracle"], header["policy"]
    for name, own, given in (("oracle", stored, oracle), ("policy", known, policy)):
        if (own is None) != (given is not None):
            need = "needs" if own is None else "has its own, so it takes no"
            raise ValueError(f"the agent {need} {name}=")
    meta = meta_from_dict(header["meta"])
    setup = make_setup(
        meta,
        SOURCES[header["agent"]](arrays),
        oracle_from_dict(stored) if oracle is None else oracle,
        arrays.get("features"),
        header["names"],
        header["explore_first"],
        policy_from_dict(known) if policy is None else policy,
        header["epsilon"],
        aging_of(*header.get("half_lives", (None, None))),
        number_of("keep", header.get("keep", 1.0)),
    )
    setup.source.check(meta)
    setup = setup.with_arms(replace(setup.arms, retired=frozenset(header["retired"])))
    rng = np.random.default_rng(0)
    rng.bit_generator.state = header["rng"]
    decisions = count_of("decisions", header["decisions"], least=0)
    number = header.get("number") or agent_number(rng)
    rewarded = np.unpackbits(arrays["rewarded"]).astype(bool) if "rewarded" in arrays else ()
    tasks = _tasks(header, arrays, setup, meta)
    newest = header.get("time")
    newest = NEVER if newest is None else number_of("time", newest)
    if setup.aging is not None and not (times_of(tasks) <= newest).all():
        raise ValueError(f"rewards of tasks are newer than the newest one, at {newest}")
    return AgentState(
        setup,
        meta,
        tasks,
        rng,
        decisions,
        number,
        np.array(rewarded, dtype=bool),
        newest,
        checked_clock(header.get("clock", CLOCKS[0])),
        tuple(map(task_name, header.get("turns", ()))),
        _detector(header, arrays),
    )


def _detector(header: dict[str, Any], arrays: dict[str, Any]) -> Detector | None:
    if "watch" not in header:
        return None
    known = [
        task_watch_from_flat(one) for one in files.unpack("watched", arrays) if one is not None
    ]
    tasks = zip(map(task_name, header["watched"]), known, strict=True)
    return Detector(watch_from_dict(header["watch"]), dict(tasks))


def _tasks(
    header: dict[str, Any], arrays: dict[str, Any], setup: Setup, meta: MetaBelief
) -> Mapping[Task, TaskState]:
    names = [task_name(task) for task in header["tasks"]]
    if len(set(names)) != len(names):
        raise ValueError("two tasks have one name")
    blank = setup.new_state(meta)
    states = list(unpack_states(arrays, type(blank.stats)))
    for state in states:
        check_state(state, blank if state.design is None else setup.new_state(meta, state.design))
        setup.source.check(meta, state)
    known = dict(zip(names, states, strict=True))
    if "columns" not in header:
        return known
    rows = [task_name(task) for task in header["columns"]]
    return ColumnBook.joined(layout_of(setup, meta, blank), rows, arrays["columns"], known)


def oracle_to_dict(oracle: Oracle) -> JsonDict | None:
    """None for a callable of the user's own: it has to be given again to `load`."""
    own = oracle.oracle if isinstance(oracle, CheckedOracle) else oracle
    name = type(own).__name__
    if name not in ORACLES or type(own) is not getattr(oracles, name):
        return None
    return {"kind": name, **{f.name: getattr(own, f.name) for f in fields(own)}}  # type: ignore[arg-type]


def oracle_from_dict(data: JsonDict) -> Any:
    """Read what `oracle_to_dict` wrote."""
    options = dict(data)
    kind = options.pop("kind")
    if kind not in ORACLES:
        raise ValueError(f"unknown kind {kind!r}")
    return getattr(oracles, kind)(**options)
