"""What agents of the simulator do about change: half-lives, and rivals that are told of it.

Each of these plays all tasks of a run: by a compiled loop where there is one, else by a plain
agent.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

import numpy as np

from adats.agents.agent import Agent
from adats.agents.agent_files import AgentState
from adats.agents.aging import CLOCKS, Aging, aging_of, forgetting_of
from adats.agents.policies import policy_of
from adats.agents.prior_source import Marginal
from adats.agents.steps import make_setup
from adats.models.core.types import FloatArray, IntArray, Rng
from adats.simulation.filters import DecayAgent, FilterAgent
from adats.simulation.kernels.registry import FAR, LoopInput, Loops, absorb_of, found, loops_of
from adats.simulation.one_task import compiled_policy, play_agent
from adats.simulation.problems import Instance, MovingProblem
from adats.simulation.problems.problem import Start

if TYPE_CHECKING:
    from adats.simulation.learners import Learner
    from adats.simulation.play import Job

Rule = Literal["exponential", "stabilized", "directional"]


class Run(NamedTuple):
    """One run of one agent: what it is given, and what it fills."""

    job: "Job"
    learner: "Learner"
    meta: Any
    start: Start
    instances: list[Instance]
    first: IntArray
    rng: Rng
    regret: FloatArray
    actions: IntArray
    learn: Callable[..., None]  # `play_learner`

    def without_memory(self, instances: list[Instance], regret: Any, actions: Any) -> None:
        """Some tasks, as pieces with their rows, played from the start by an agent without this."""
        learner = self.learner._replace(memory=None)
        world = (self.start, instances, self.first, self.rng)
        self.learn(self.job, learner, self.meta, *world, regret, actions)

    def by_agent(self, agent: Any) -> None:
        """Played by something with ask and tell."""
        job = self.job
        play_agent(job.problem, agent, self.instances, self.regret, self.actions, job.delay)

    def by_loop(self, name: str, settings: Any) -> None:
        """Played by a compiled loop for whole runs."""
        loop = found(name)
        loop(self.meta, settings, self.instances, self.rng, self.regret, self.actions)


class Memory(Protocol):
    """How an agent takes account of time."""

    def check(self, job: "Job") -> None:
        """Raise `ValueError` if it cannot play this."""
        ...

    def play(self, run: Run) -> None: ...


class HalfLives(NamedTuple):
    """Rewards lose weight, as in the library; in tasks' lengths, None: never. The clock counts
    rounds, or pulls."""

    half_life: float | None = None
    prior_half_life: float | None = None
    clock: str = CLOCKS[1]

    def check(self, job: "Job") -> None:
        self.forgetting(job.rounds)

    def forgetting(self, length: int) -> tuple[Aging | None, float]:
        """As agents have it, where a task has so many rounds."""
        forgetting_of(*self)
        own, prior = (None if x is None else x * length for x in self[:2])
        return forgetting_of(own, prior, self.clock)

    def play(self, run: Run) -> None:
        job, meta, learner = run.job, run.meta, run.learner
        loops = loops_of(job.problem, meta.task_prior()) if job.compiled else Loops()
        policy = compiled_policy(job, policy_of(learner.policy), loops, run.instances[0])
        if (
            policy is None
            or policy.number == FAR
            or policy.delay
            or policy.rule is not None
            or loops.aged is None
            or not isinstance(learner.source, Marginal)
        ):
            run.by_agent(self._agent(run))
            return
        found, keep = self.forgetting(job.rounds)
        aging = found or Aging()
        factors = (aging.task_weight(1.0), aging.prior_weight(1.0), keep)
        absorb = absorb_of(job.problem, meta)
        for instance, lost, chosen in zip(run.instances, run.regret, run.actions, strict=True):
            given = LoopInput(meta.task_prior(), instance, run.first, run.rng, lost, chosen, policy)
            stats = loops.aged(given, meta, factors)
            meta = absorb(meta.faded(aging.prior_weight(job.rounds)), stats)

    def _agent(self, run: Run) -> Agent:
        """The library's own agent, whose clock counts rounds."""
        job, learner = run.job, run.learner
        aging, keep = self.forgetting(job.rounds)
        setup = make_setup(
            run.meta,
            learner.source_of(run.start.mu),
            job.problem.oracle,
            explore_first=job.explore_first,
            policy=learner.policy,
            aging=aging,
            keep=keep,
        )
        return Agent.from_state(AgentState(setup, run.meta, {}, run.rng, 0, clock=self.clock))


class ToldChanges(NamedTuple):
    """Told when means jump, and so is right to start anew: from the meta-prior when mu has jumped,
    with a new task when theta has."""

    def check(self, job: "Job") -> None:
        """It is for all problems: where none jumps it is told of none."""

    def play(self, run: Run) -> None:
        if not any(instance.jumps for instance in run.instances):
            run.without_memory(run.instances, run.regret, run.actions)
            return
        parts: list[list[Any]] = [[]]  # of each time from one jump of mu to the next, the pieces
        for row in zip(run.instances, run.regret, run.actions, strict=True):
            if parts[-1] and 0 in row[0].jumps:
                parts.append([])
            parts[-1] += _pieces(*row)
        for part in parts:
            instances, regret, actions = zip(*part, strict=True)
            run.without_memory(list(instances), regret, actions)


def _pieces(
    instance: Instance, regret: FloatArray, actions: IntArray
) -> Iterator[tuple[Instance, FloatArray, IntArray]]:
    """A task, cut where its theta jumps."""
    for begin, end in pairwise([0, *(at for at in instance.jumps if at), regret.size]):
        part = slice(begin, end)
        piece = replace(instance, theta=instance.theta[part], draws=instance.draws[part])
        yield piece if instance.jumps else instance, regret[part], actions[part]


def _own_loop(job: "Job", what: str) -> MovingProblem:
    """The problem, if an agent that has a loop of its own can play it."""
    problem = job.problem
    if not isinstance(problem, MovingProblem):
        raise ValueError(f"{what} is for problems that move, not for {problem.name}")
    if job.delay or job.explore_first:
        raise ValueError(f"{what} has no forced exploration, and no rewards that come late")
    return problem


class ExactFilter(NamedTuple):
    """Told by how much mu and theta move: Thompson sampling by the Kalman filter of both."""

    def check(self, job: "Job") -> None:
        _own_loop(job, "the filter")

    def play(self, run: Run) -> None:
        problem = _own_loop(run.job, "the filter")
        steps = (problem.mu_step, problem.theta_step)
        if run.job.compiled:
            run.by_loop("moving.play_filter", steps)
        else:
            run.by_agent(FilterAgent(run.meta, *steps, run.rng))


class Decay(NamedTuple):
    """The forgetting of bayesianbandits: see `DecayAgent`."""

    half_life: float  # in tasks' lengths
    rule: Rule
    pooled: bool = False

    def check(self, job: "Job") -> None:
        _own_loop(job, "this rule")
        aging_of(self.half_life, None)

    def play(self, run: Run) -> None:
        rate = float(np.exp2(-1.0 / (self.half_life * run.job.rounds)))
        rule = (rate, self.rule, self.pooled)
        if run.job.compiled:
            run.by_loop("moving.play_decay", rule)
        else:
            run.by_agent(DecayAgent(run.meta, *rule, run.rng))
