"""What a simulation found, and how it is written down."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from adats.models.core import files
from adats.models.core.types import AnyPath, FloatArray, IntArray, JsonDict
from adats.simulation.provenance import parquet_bytes, versions


@dataclass(frozen=True, eq=False)
class Result:
    """Expected regrets of every agent, run and task (and round, if asked for)."""

    problem: dict[str, Any]
    tasks: int
    rounds: int
    runs: int
    seed: int
    explore_first: bool
    agents: tuple[str, ...]
    regret: FloatArray  # (agents, runs, tasks), or (agents, runs, tasks, rounds)
    seconds: float
    agent_seconds: FloatArray  # inside the loops, summed over runs
    actions: IntArray | None = None  # (agents, runs, tasks, rounds): the arm, if recorded

    def per_task(self) -> FloatArray:
        """Regret of each agent, run and task."""
        if self.regret.ndim == 3:
            return self.regret
        total: FloatArray = self.regret.sum(axis=3)
        return total

    def of(self, agents: Sequence[str]) -> "Result":
        """The regrets of some of the agents."""
        which = [self.agents.index(agent) for agent in agents]
        return replace(
            self,
            agents=tuple(agents),
            regret=self.regret[which],
            agent_seconds=self.agent_seconds[which],
            actions=None if self.actions is None else self.actions[which],
        )

    def total(self, agent: str) -> FloatArray:
        """Regret over all tasks, one entry a run."""
        if agent not in self.agents:
            raise ValueError(f"no agent {agent!r}; there are {', '.join(self.agents)}")
        total: FloatArray = self.per_task()[self.agents.index(agent)].sum(axis=1)
        return total

    def mean(self, agent: str) -> float:
        return float(self.total(agent).mean())

    def se(self, agent: str) -> float:
        """Standard error of the mean: std / √runs; NaN for a single run."""
        total = self.total(agent)
        return float(total.std(ddof=1) / np.sqrt(total.size)) if total.size > 1 else float("nan")

    def records(self) -> dict[str, Any]:
        """Flat columns run, task, (round,) agent, regret: one call from any data frame."""
        axes = {"agent": np.array(self.agents), "run": np.arange(self.runs)}
        axes["task"] = np.arange(1, self.tasks + 1)
        if self.regret.ndim == 4:
            axes["round"] = np.arange(1, self.rounds + 1)
        grids = np.meshgrid(*axes.values(), indexing="ij")
        columns = {name: grid.ravel() for name, grid in zip(axes, grids, strict=True)}
        order = [name for name in ("run", "task", "round", "agent") if name in columns]
        return {name: columns[name] for name in order} | {"regret": self.regret.ravel()}

    def made(self, command: str = "adats.simulation.simulate") -> JsonDict:
        """The versions, command, seed and wall time that it came from."""
        known = {"command": command, "seed": self.seed, "seconds": self.seconds}
        return {**known, "versions": versions()}

    def save(self, path: AnyPath, *, command: str = "adats.simulation.simulate") -> None:
        """Write the records as Parquet, whole or not at all, with what they came from."""
        files.write_bytes(path, parquet_bytes(self.records(), self.made(command)))

    def summary(self, *, command: str = "adats.simulation.simulate") -> JsonDict:
        """Settings and regrets as plain JSON values."""
        decisions = self.runs * self.tasks * self.rounds * len(self.agents)
        each = decisions // len(self.agents)
        per_task = self.per_task().mean(axis=1)
        return {
            "problem": self.problem,
            "tasks": self.tasks,
            "rounds": self.rounds,
            "runs": self.runs,
            "explore_first": self.explore_first,
            "decisions": decisions,
            **self.made(command),
            "agents": {
                name: {
                    "regret": self.mean(name),
                    "se": self.se(name) if self.runs > 1 else None,
                    "per_task": per_task[i].tolist(),
                    "ns_per_decision": float(self.agent_seconds[i] / each * 1e9),
                }
                for i, name in enumerate(self.agents)
            },
        }
