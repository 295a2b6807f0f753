"""How often the detector of changes is wrong, and how late: runs that are told to it afterwards."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields

import numpy as np

from adats.agents.agent import AdaTS
from adats.agents.change_detection import ALARM, PRIOR, TASKS, WARNING
from adats.models.core.types import FloatArray, IntArray
from adats.paper.experiments.measures import Measure, standard_error
from adats.paper.experiments.panels import Outcome, of_part
from adats.paper.experiments.report_text import table
from adats.simulation.problems import Problem
from adats.simulation.problems.problem import instances_of

DETECTOR = "detector"  # the part of the experiment
WHAT, KINDS = (PRIOR, TASKS), (WARNING, ALARM)
SHIFTED = 20  # mu has shifted before this task, where it does
FALSE, DELAY = 0.01, 10  # largest share of runs with a false alarm, and largest delay in tasks


@dataclass(frozen=True, eq=False)
class WatchedOutcome(Outcome):
    """With what the detector found in the rewards of each run."""

    found: IntArray  # (runs, what, kind): in which task, from 1 on; 0: in none


def watched(o: Outcome, problem: Problem, progress: Callable[[int], None]) -> WatchedOutcome:
    """The rewards of every run, told to an agent with a detector."""
    result = o.result
    assert result.actions is not None
    found = np.zeros((result.runs, len(WHAT), len(KINDS)), dtype=np.intp)
    for run, actions in enumerate(result.actions[0]):
        rng = np.random.default_rng(np.random.SeedSequence(result.seed, spawn_key=(run, 0)))
        start = problem.start(rng)
        agent = AdaTS(problem.meta(), seed=0, detect_changes=True)
        instances = instances_of(problem, start, result.tasks, result.rounds, rng)
        for s, (instance, arms) in enumerate(zip(instances, actions.tolist(), strict=True)):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # `changes` has them
                for t, arm in enumerate(arms):
                    mean = float(instance.means(t)[arm])
                    reward = problem.reward(mean, instance.draw(t, arm))
                    agent.tell(task=s, action=arm, reward=reward)
            for change in agent.changes:  # an alarm takes the place of a warning
                for kind in KINDS[: KINDS.index(change.kind) + 1]:
                    place = (run, WHAT.index(change.what), KINDS.index(kind))
                    found[place] = found[place] or s + 1
        progress(1)
    known = {field.name: getattr(o, field.name) for field in fields(o)}
    return WatchedOutcome(**known, found=found)


def outcomes_of(outcomes: Sequence[Outcome]) -> list[WatchedOutcome]:
    return [o for o in of_part(DETECTOR, outcomes) if isinstance(o, WatchedOutcome)]


def moves(o: Outcome) -> bool:
    return bool(o.result.problem["mu_jumps"])


def share_found(o: WatchedOutcome, what: Sequence[str], kind: str) -> tuple[float, float]:
    """The share of runs in which any of this was found; of its error as if two more runs had been,
    and it had been found in one."""
    places = [WHAT.index(one) for one in what]
    hits = o.found[:, places, KINDS.index(kind)].any(axis=1)
    runs, count = hits.size, int(hits.sum())
    share = (count + 1) / (runs + 2)
    return count / runs, float(np.sqrt(share * (1 - share) / (runs + 2)))


def delays(o: WatchedOutcome, kind: str) -> FloatArray:
    """Tasks from the shift to what was found of the prior, at most as many as there were."""
    task = o.found[:, WHAT.index(PRIOR), KINDS.index(kind)]
    in_time = task > SHIFTED
    return np.where(in_time, task - SHIFTED, o.result.tasks - SHIFTED).astype(np.float64)


def false_alarms(outcomes: Sequence[Outcome]) -> Iterator[Measure]:
    for o in outcomes_of(outcomes):
        if not moves(o):
            share, se = share_found(o, WHAT, ALARM)
            figure = f"{round(share * o.result.runs)} of {o.result.runs} runs"
            yield Measure(o.panel.label, "runs with an alarm", figure, share, se, high=FALSE)


def delay(outcomes: Sequence[Outcome]) -> Iterator[Measure]:
    for o in outcomes_of(outcomes):
        if moves(o):
            late = delays(o, ALARM)
            value, se = float(late.mean()), standard_error(late)
            figure = f"{value:.1f} ± {se:.1f} tasks"
            yield Measure(
                o.panel.label, "delay of the alarm", figure, value, se, high=DELAY,
                freedom=late.size - 1,
            )  # fmt: skip


def section(outcomes: Sequence[Outcome]) -> list[str]:
    """How many runs have warnings and alarms, and how late they are."""
    rows = []
    for o in outcomes_of(outcomes):
        for kind in KINDS:
            shares = [share_found(o, (what,), kind)[0] for what in WHAT]
            late = delays(o, kind)
            some = [f"{late.mean():.1f} ± {standard_error(late):.1f}", f"{np.median(late):g}"]
            cells = [f"{100 * share:.1f} %" for share in shares]
            rows.append((o.panel.label, kind, *cells, *(some if moves(o) else ("", ""))))
    head = ("panel", "", "runs: the prior moves", "tasks move", "mean delay, tasks", "median")
    return ["## The detector of changes", table(head, rows)]
