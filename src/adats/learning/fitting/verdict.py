"""Is sharing worth it? One answer, from tasks that the prior had not seen and from simulation."""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from adats.learning.fitting.alone import action_rows, alone, alone_arms, alone_linear
from adats.learning.fitting.fitted import ENOUGH_TASKS, Fitted, stats_of
from adats.learning.fitting.learn import Structure, estimate
from adats.learning.fitting.savings import Savings, savings_arms, savings_linear
from adats.learning.fitting.shrinkage import FOLDS, folds
from adats.learning.tables import ArmTable, LinearTable, Table
from adats.models import LinearMeta
from adats.models.core import checks
from adats.models.core.types import Belief, FloatArray

Answer = Literal["share", "do not share", "too little data"]
FEWEST = 10  # tasks; with less there is no verdict
MOST = 2000  # tasks that are scored; of more, some are drawn
ERRORS = 2.0  # standard errors by which the held-out gain must exceed zero
WORTH = 0.05  # the share of the regret that a new task must save
LONGEST = 1000  # rounds of a simulated task, unless more are asked for


@dataclass(frozen=True, eq=False)
class Verdict:
    """The answer, and what it rests on."""

    answer: Answer
    sentence: str
    tasks: int  # in the log
    gains: FloatArray  # held-out log score of each scored task: shared less alone, in nats
    savings: Savings | None  # None where there were too few tasks

    @property
    def gain(self) -> float:
        """Held-out gain of a task, on average."""
        return float(self.gains.mean()) if self.gains.size else math.nan

    @property
    def gain_se(self) -> float:
        """Its standard error over tasks."""
        n = self.gains.size
        return float(self.gains.std(ddof=1)) / math.sqrt(n) if n > 1 else math.nan


def verdict(
    table: Table,
    fitted: Fitted,
    *,
    diagonal: bool = False,
    rounds: int | None = None,
    seed: int,
) -> Verdict:
    """Share, if held-out tasks gain more than two standard errors and a new one saves 5 %.

    `fitted` is what `estimate` made of the table with the same `diagonal`. A new task has
    `rounds`, or as many as the median task of the log. Its arms are simulated independent of each
    other, also where a prior says how they move together.
    """
    rounds = usual_rounds(table) if rounds is None else checks.count_of("rounds", rounds)
    if len(table) < FEWEST:
        return _nothing(table, f"{len(table)} tasks are too few to tell; {FEWEST} are the least.")
    try:
        structure = fitted.about.get("structure", "independent")
        gains = held_out_gains(table, diagonal=diagonal, structure=structure, seed=seed)
    except ValueError as error:  # what is left of the log is not enough for a fit
        return _nothing(table, f"With a fifth of the tasks left out there is no fit: {error}.")
    saved = simulated(table, fitted, rounds=rounds, seed=seed)
    return judged(table, gains, saved)


def held_out_gains(
    table: Table, *, diagonal: bool, structure: Structure = "independent", seed: int
) -> FloatArray:
    """Log density of each task's rewards, fitted to the other folds: shared less alone."""
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(1,)))
    if len(table) > MOST:
        table = table.subset(np.sort(rng.choice(len(table), MOST, replace=False)))
    place = folds(table.tasks)
    gains = np.empty(len(table))
    for fold in range(FOLDS):
        others = table.subset(np.flatnonzero(place != fold))
        fitted = estimate(others, model=table.model, diagonal=diagonal, structure=structure)
        shared: Belief = fitted.meta.task_prior()
        own: Belief = alone(others, fitted.noise)
        for i in np.flatnonzero(place == fold).tolist():
            stats = stats_of(table, i, fitted.meta)
            gains[i] = shared.condition(stats).log_evidence - own.condition(stats).log_evidence
    return gains


def usual_rounds(table: Table) -> int:
    """Rows of the median task."""
    n = table.n if isinstance(table, LinearTable) else table.table[:, 0].sum(axis=1)
    return max(1, min(round(float(np.median(n[n > 0]))), LONGEST))


def simulated(table: Table, fitted: Fitted, *, rounds: int, seed: int) -> Savings:
    """New tasks from the fitted prior, played with it and with the prior that shares nothing."""
    meta = fitted.meta
    if isinstance(table, LinearTable) and isinstance(meta, LinearMeta):
        both = meta.task_prior(), alone_linear(table, fitted.noise)
        return savings_linear(*both, rows=action_rows(table), rounds=rounds, seed=seed)
    if isinstance(table, ArmTable) and not isinstance(meta, LinearMeta):
        own = alone_arms(table, fitted.noise)
        return savings_arms(meta.task_prior(), own, rounds=rounds, seed=seed)
    raise ValueError(f"statistics of a {table.model} log, but a prior of another model")


def _nothing(table: Table, reason: str) -> Verdict:
    return Verdict("too little data", f"Too little data. {reason}", len(table), np.zeros(0), None)


def judged(table: Table, gains: FloatArray, saved: Savings) -> Verdict:
    """The rule, in order: share; better, but for nothing; cannot tell; do not share."""
    draft = Verdict("share", "", len(table), gains, saved)
    better = draft.gain > ERRORS * draft.gain_se
    worse = draft.gain < -ERRORS * draft.gain_se
    few = isinstance(table, LinearTable) and len(table) < ENOUGH_TASKS * len(table.features)
    score = f"{draft.gain:+.2g} ± {draft.gain_se:.1g} nats a task"
    rounds = saved.alone.shape[1]
    new = f"a new task of {rounds} round{'s' if rounds > 1 else ''}"
    less = f"{round(saved.share, 2) or 0.0:.0%} ± {saved.se:.1%} of its regret"
    answer: Answer
    if better and saved.share >= WORTH:
        answer = "share"
        why = (
            "The shared prior predicts tasks that it has not seen better than each could by "
            f"itself ({score}), and in simulation {new} saves {less}."
        )
    elif better:
        answer = "do not share"
        why = (
            "The shared prior predicts tasks that it has not seen better than each could by "
            f"itself ({score}), but in simulation {new} saves only {less}, and {WORTH:.0%} is "
            "the least that is worth it."
        )
    elif few or (not worse and saved.share >= WORTH):
        answer = "too little data"
        why = (
            f"{len(table)} tasks do not settle it. Those that the shared prior has not seen gain "
            f"{score}, which is not {ERRORS:.0f} standard errors above zero, while in simulation "
            f"{new} saves {less}."
        )
    else:
        answer = "do not share"
        how = "worse" if worse else "no better"
        why = (
            f"The shared prior predicts tasks that it has not seen {how} than each could by "
            f"itself ({score}); in simulation {new} saves {less}."
        )
    return Verdict(answer, f"{answer.capitalize()}. {why}", len(table), gains, saved)
