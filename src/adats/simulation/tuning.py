"""Tuning by simulation: how wide the far-sighted index should be, and how far it should look.

The wider it is, the less far it should look: candidates lie along that line.
"""

import itertools
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from adats.agents.policies import FarSighted, Policy, Thompson
from adats.models.core import checks
from adats.models.core.types import FloatArray
from adats.simulation.learners import Learner
from adats.simulation.problems import Problem
from adats.simulation.simulate import simulate

CANDIDATES = (  # width, ahead; with 1.1 and 1 it is the index as it is, whose tail is light
    (0.9, 1.0), (1.0, 0.5), (1.0, 1.0), (1.1, 0.3), (1.1, 0.5), (1.1, 1.0),
    (1.2, 0.2), (1.2, 0.3), (1.35, 0.1), (1.35, 0.2), (1.5, 0.05),
)  # fmt: skip
TAIL = 0.99  # of runs: what the rest exceeds is compared
LEAST_RUNS = 10_000  # for that: a hundred of them are beyond it
FIRST = 5  # of so many runs one is played by all candidates
NEARLY = 1.1  # times the tail of Thompson sampling: it may be chance where runs are few
SHARES = (0.5, 1.0)  # of the time, when each stage has to end
BLOCKS = 20  # of runs in a stage: it can end after each
SECONDS = 60.0
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
    candidates: tuple[Candidate, ...]  # that were played in the end; Thompson sampling first


def tune(
    problem: Problem,
    *,
    tasks: int,
    rounds: int,
    seed: int,
    runs: int = LEAST_RUNS,
    seconds: float = SECONDS,
    workers: int = 1,
    progress: Callable[[str, int, int], None] | None = None,
) -> Tuned:
    """The `width` and `ahead` of `FarSighted` with the least regret on a problem.

    All candidates play some of the runs. Then they play all `runs`, one after another from the best
    on, until the 99th percentile of one is not above that of Thompson sampling; if there is none,
    Thompson sampling is the answer. After so many `seconds` it ends with the runs there are:
    `Candidate.runs` says how many. Only then does the answer depend on more than the seed.
    `PriorProblem` makes a problem of a prior. `progress` is told what is done, of how much.
    """
    if checks.count_of("runs", runs) < LEAST_RUNS:
        raise ValueError(f"runs must be at least {LEAST_RUNS} to know a tail, got {runs}")
    checks.positive_number("seconds", seconds)
    begin = time.monotonic()

    def late(stage: int) -> bool:
        return time.monotonic() - begin > seconds * SHARES[stage - 1]

    def play(policies: Sequence[Policy], part: int, stage: int) -> list[Candidate]:
        agents = {repr(policy): Learner(repr(policy), policy=policy) for policy in policies}
        totals: dict[str, list[FloatArray]] = {name: [] for name in agents}
        ends = np.linspace(0, part, min(BLOCKS, part // 2) + 1).astype(int).tolist()
        for block, (done, end) in enumerate(itertools.pairwise(ends)):
            if block and late(stage):
                break
            own = int(np.random.SeedSequence([seed, stage, block]).generate_state(1)[0])
            found = simulate(
                problem, agents, tasks=tasks, rounds=rounds, runs=end - done, seed=own,
                workers=workers,
            )  # fmt: skip
            for name, lost in totals.items():
                lost.append(found.total(name))
            if progress is not None:
                progress(f"stage {stage} of 2: {len(policies)} policies", end, part)
        pairs = zip(policies, totals.values(), strict=True)
        return [_candidate(policy, np.concatenate(lost)) for policy, lost in pairs]

    indices = [FarSighted(width=width, ahead=ahead) for width, ahead in CANDIDATES]
    sampled, *second = play([Thompson(), *indices], runs // FIRST, 1)
    second.sort(key=lambda one: (one.tail > NEARLY * sampled.tail, one.regret))
    first, *table = play([Thompson(), second[0].policy], runs, 2)
    safe = [one for one in table if one.tail <= first.tail]
    for one in second[1:]:
        if safe:
            break
        if late(2):  # what is known of it must do
            table, limit = [*table, one], sampled.tail
        else:
            table, limit = table + play([one.policy], runs, 2), first.tail
        safe = [found for found in table[-1:] if found.tail <= limit]
    return Tuned(safe[0].policy if safe else first.policy, (first, *table))


def _candidate(policy: Policy, lost: FloatArray) -> Candidate:
    se = float(lost.std(ddof=1) / np.sqrt(lost.size))
    return Candidate(policy, float(lost.mean()), se, float(np.quantile(lost, TAIL)), lost.size)
