"""Tuning by simulation: how wide the far-sighted index should be, and how far it should look."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from adats.agents.policies import FarSighted, Policy, Thompson
from adats.models.core.checks import count_of
from adats.simulation.learners import Learner
from adats.simulation.problems import Problem
from adats.simulation.results import Result
from adats.simulation.simulate import simulate

WIDTHS = (0.9, 1.0, 1.1, 1.2, 1.35)
AHEAD = (0.1, 0.2, 0.4, 1.0)
TAIL = 0.99  # of runs: what the rest exceeds is compared
LEAST_RUNS = 10_000  # for that: a hundred of them are beyond it
STAGES = ((40, 8), (20, 4))  # of so many runs one is played, and so many candidates go on
TAILS = 5  # of so many runs one, for tails of those that are left
CAREFUL = FarSighted()  # it goes on whatever it loses: its tail is light
SAMPLED = "Thompson sampling"


class Candidate(NamedTuple):
    """A policy, and what it lost over all tasks."""

    policy: Policy
    regret: float
    se: float
    tail: float  # the regret that one run in a hundred exceeds
    runs: int


class Tuned(NamedTuple):
    """The policy with the least regret whose tail is no heavier than Thompson sampling's."""

    policy: Policy
    candidates: tuple[Candidate, ...]  # that were played in all runs; Thompson sampling first


def tune(
    problem: Problem,
    *,
    tasks: int,
    rounds: int,
    seed: int,
    runs: int = LEAST_RUNS,
    workers: int = 1,
    progress: Callable[[str, int, int], None] | None = None,
) -> Tuned:
    """The `width` and `ahead` of `FarSighted` with the least regret on a problem.

    All candidates play a few runs, the best of them more, and the best of those, with the index as
    it is, more again. Then they play all `runs`, one after another, until the 99th percentile of
    one is not above that of Thompson sampling; if there is none, Thompson sampling is the answer.
    `PriorProblem` makes a problem of a prior. `progress` is told what is done, of how much.
    """
    if count_of("runs", runs) < LEAST_RUNS:
        raise ValueError(f"runs must be at least {LEAST_RUNS} to know a tail, got {runs}")

    def play(policies: Sequence[Policy], part: int, stage: int) -> list[Candidate]:
        done = 0

        def advance(more: int) -> None:
            nonlocal done
            done += more
            if progress is not None:
                progress(f"stage {stage} of 4: {len(policies)} policies", done, part)

        agents = {repr(policy): Learner(repr(policy), policy=policy) for policy in policies}
        own = int(np.random.SeedSequence([seed, stage]).generate_state(1)[0])
        found = simulate(
            problem, agents, tasks=tasks, rounds=rounds, runs=part, seed=own,
            workers=workers, progress=advance,
        )  # fmt: skip
        pairs = zip(agents, policies, strict=True)
        return [_candidate(policy, found, name) for name, policy in pairs]

    best: list[Policy] = [FarSighted(width=w, ahead=a) for w in WIDTHS for a in AHEAD]
    for stage, (part, left) in enumerate(STAGES, 1):
        ranked = sorted(play(best, runs // part, stage), key=lambda one: one.regret)
        best = [one.policy for one in ranked[:left]]
    careful = () if CAREFUL in best else (CAREFUL,)
    sampled, *second = play([Thompson(), *best, *careful], runs // TAILS, 3)
    second.sort(key=lambda one: (one.tail > sampled.tail, one.regret))
    table = play([Thompson(), second[0].policy], runs, 4)
    for one in second[1:]:
        if table[-1].tail <= table[0].tail:
            break
        table += play([one.policy], runs, 4)
    safe = [one for one in table if one.tail <= table[0].tail]
    return Tuned(min(safe, key=lambda one: one.regret).policy, tuple(table))


def _candidate(policy: Policy, found: Result, agent: str) -> Candidate:
    tail = float(np.quantile(found.total(agent), TAIL))
    return Candidate(policy, found.mean(agent), found.se(agent), tail, found.runs)
