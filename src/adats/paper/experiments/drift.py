"""When things change: what half-lives cost and bring, beside those who are told."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from adats.agents.aging import PULLS
from adats.paper.experiments import drift_report
from adats.paper.experiments.drift_claims import (
    BOTH,
    CLAIMS,
    FILTER,
    INDEX_IN_PULLS,
    INDEX_TOLD,
    JUMP,
    MU,
    OURS,
    PULLS_OF_A_TASK,
    SEASONS,
    STILL,
    THETA,
    TOLD,
    WALK,
)
from adats.paper.experiments.drift_detector import DETECTOR, SHIFTED, watched
from adats.paper.experiments.panels import Outcome, Panel
from adats.paper.experiments.records import curves
from adats.paper.experiments.report_text import ReportParts
from adats.paper.experiments.spec import (
    Advance,
    Drawings,
    ExperimentPart,
    PanelExperiment,
    RunRequest,
    Tables,
)
from adats.simulation.learners import Learner
from adats.simulation.memory import Decay, ExactFilter, HalfLives, Rule, ToldChanges
from adats.simulation.problems import MovingProblem

Agents = dict[str, str | Learner]


def _lives(half_life: float | None, prior: float | None, policy: str = "ts") -> Learner:
    return Learner("half-lives", policy=policy, memory=HalfLives(half_life, prior))


def _in_pulls(half_life: float, policy: str = "ts") -> Learner:
    return Learner("half-lives", policy=policy, memory=HalfLives(half_life, clock=PULLS))


def _rivals(*lives: float) -> Agents:
    """Their three rules with these half-lives: an agent a task, then one for all tasks."""
    rules: tuple[Rule, ...] = ("exponential", "stabilized", "directional")
    names = [(rule, place) for place in ("a task", "all tasks") for rule in rules]
    return {
        f"{rule}, {place}": Learner(rule, memory=Decay(life, rule, place == "all tasks"))
        for (rule, place), life in zip(names, lives, strict=True)
    }


NOTHING: Agents = {"ada-ts": "ada-ts"}
ALONE: Agents = {"ts": "ts"}
TELLING: Agents = {
    TOLD: Learner("told", memory=ToldChanges()),
    INDEX_TOLD: Learner("told", policy="index", memory=ToldChanges()),
}
LONG: Agents = {
    "half-life 5 tasks": _lives(5.0, None),
    "prior half-life 5 tasks": _lives(None, 5.0),
    "both 5 tasks": _lives(5.0, 5.0),
    PULLS_OF_A_TASK: _in_pulls(1.0),
}
# The half-lives below, ours and theirs, are those of pilots with other seeds, over several numbers
# of arms. Half a task is the time from one change to the next.
AFTER_MU: Agents = {
    "prior half-life 1 task": _lives(None, 1.0),
    "finite horizon, prior half-life 1 task": _lives(None, 1.0, "index"),
}
AFTER_THETA: Agents = {
    "half-life ½ task": _lives(0.5, None),
    OURS[THETA]: _in_pulls(0.125),
    INDEX_IN_PULLS: _in_pulls(0.125, "index"),
}
SLOW: Agents = {
    BOTH: _lives(4.0, 8.0),
    "prior half-life 8 tasks": _lives(None, 8.0),
    PULLS_OF_A_TASK: _in_pulls(1.0),
}
KNOWING: Agents = {FILTER: Learner("filter", memory=ExactFilter())}


def _panel(part: str, title: str, agents: Agents, tasks: int, rounds: int, **moves: Any) -> Panel:
    problem = partial(MovingProblem, meta_scale=0.5, **moves)
    return Panel(title, problem, agents, tasks, rounds, detail="task", part=part)


def _still(arms: int, spread: float, rounds: int) -> Panel:
    title = f"still, K = {arms}, σ_0 = {spread:g}, {rounds} rounds"
    return _panel(STILL, title, NOTHING | LONG, 40, rounds, arms=arms, task_scale=spread)


def _theta(arms: int, spread: float, rounds: int) -> Panel:
    title = f"θ_s jumps, K = {arms}, σ_0 = {spread:g}, {rounds} rounds"
    agents = NOTHING | AFTER_THETA | ALONE | TELLING | _rivals(4.0, 4.0, 0.25, 8.0, 8.0, 0.1)
    moves: Any = {"arms": arms, "task_scale": spread, "theta_jumps": (rounds // 2,)}
    return _panel(THETA, title, agents, 20, rounds, **moves)


def _mu(arms: int, rounds: int) -> Panel:
    title = f"μ_* jumps, K = {arms}, σ_0 = 0.2, {rounds} rounds"
    agents = NOTHING | AFTER_MU | ALONE | TELLING | _rivals(4.0, 4.0, 4.0, 1.0, 0.5, 0.1)
    moves = {"arms": arms, "task_scale": 0.2, "mu_jumps": (JUMP,)}
    return _panel(MU, title, agents, 2 * JUMP, rounds, **moves)


def _walk(arms: int, mu_step: float, theta_step: float, rounds: int = 200) -> Panel:
    title = f"walks, K = {arms}, steps {mu_step:g} σ_q a task, {theta_step:g} σ_0 over a task"
    steps = {"mu_step": 0.5 * mu_step, "theta_step": 0.2 * theta_step / rounds**0.5}
    agents = KNOWING | NOTHING | SLOW | ALONE | _rivals(8.0, 8.0, 1.0, 8.0, 8.0, 0.25)
    return _panel(WALK, title, agents, 40, rounds, arms=arms, task_scale=0.2, **steps)


def _seasons(arms: int, period: int, rounds: int = 200) -> Panel:
    title = f"seasons, K = {arms}, {period} tasks a season"
    moves = {"arms": arms, "task_scale": 0.2, "season": 0.4, "period": float(period * rounds)}
    agents = NOTHING | AFTER_MU | ALONE | _rivals(8.0, 8.0, 4.0, 0.5, 0.25, 0.1)
    return _panel(SEASONS, title, agents, 40, rounds, **moves)


def _watched(
    title: str,
    arms: int,
    spread: float,
    rounds: int,
    one_run_in: int,
    tasks: int = 40,
    **moves: Any,
) -> Panel:
    """Runs of AdaTS that are told to the detector afterwards."""
    problem = partial(MovingProblem, arms, meta_scale=1.0, task_scale=spread, **moves)
    title = f"detector, {title}, K = {arms}, σ_0 = {spread:g}, {rounds} rounds"
    options: Any = {"detail": "task", "record": True, "one_run_in": one_run_in}
    return Panel(title, problem, ("ada-ts",), tasks, rounds, part=DETECTOR, **options)


def _shifted(arms: int, spread: float, rounds: int, one_run_in: int) -> Panel:
    moves: Any = {"mu_jumps": (SHIFTED,), "mu_jump": spread}
    return _watched("μ_* shifts by σ_0", arms, spread, rounds, one_run_in, 3 * SHIFTED, **moves)


class DriftExperiment(PanelExperiment):
    """Several ways to move, each judged beside its own reference; and the detector."""

    def steps(self, runs: int) -> int:
        """Runs over all panels, those of the detector twice: played, and told to it."""
        return sum(panel.total_runs(runs) * (1 + panel.record) for panel in self.panels)

    def parts(self, request: RunRequest) -> list[ExperimentPart]:
        plain = super().parts(request)
        return [
            ExperimentPart(part.label, partial(_told, part, panel)) if panel.record else part
            for panel, part in zip(self.panels, plain, strict=True)
        ]

    def figures(self) -> Drawings:
        return {"drift": drift_report.ratios_figure, "jump": drift_report.jump_figure}

    def tables(self) -> Tables:
        return {"records": drift_report.run_records, "curves": curves}

    def report_parts(self, outcomes: Sequence[Outcome]) -> ReportParts:
        return drift_report.report_parts(self.about, outcomes)


def _told(part: ExperimentPart, panel: Panel, advance: Advance) -> list[Outcome]:
    return [watched(o, panel.problem(), advance) for o in part.run(advance)]


_ALL = DriftExperiment(
    name="drift",
    title="When things change: half-lives, and those who are told",
    about=(
        "Gaussian arms with noise σ = 1 and σ_q = 0.5. *Jumps of μ_\\**: before task 21 of 40 all "
        "means are drawn anew. *Jumps of θ_s*: in the middle of each of 20 tasks its θ_s is drawn "
        "anew around μ_*. *Walks*: μ_* takes a step from task to task and θ_s one from round to "
        "round. *Seasons*: every arm rises and falls by 0.4, each at its own time. *Detector*: "
        "σ_q = 1; what AdaTS saw in every run is told to the detector of changes, where nothing "
        "moves and where every arm goes up or down by σ_0 before task 21. Regret is against the "
        "θ_s of the round. Half-lives are of rewards within a task, prior half-lives of tasks in "
        "what all taught; both are in lengths of a task. “In pulls” the age of a reward is how "
        "many others its arm has had since in its task. AdaTS forgets nothing, and TS solves each "
        "task alone. All agents use Thompson "
        "sampling but where “finite horizon” is said. “Told the change” starts anew "
        "when μ_* jumps, and a new task when θ_s does. “Exact filter” is Thompson sampling by the "
        "Kalman filter that is told the sizes of steps. “Exponential”, “stabilized” and "
        "“directional” are bayesianbandits' rules of forgetting, from the marginal prior and told "
        "σ, as an agent for each task or as one for all tasks. (Of single arms its two directional "
        "rules are one: an arm forgets when it has a reward. The figure has the best of the "
        "three.) Half-lives, ours and theirs, were chosen by pilots with other seeds, over several "
        "numbers of arms. The paper has no such experiment: the claims below are our own questions."
    ),
    panels=(
        _still(2, 0.2, 200),
        _still(5, 0.1, 100),
        _mu(2, 200),
        _theta(3, 0.3, 200),
        _theta(4, 0.4, 200),
        _walk(3, 0.1, 0.5),
        _walk(3, 0.1, 1.0),
        _seasons(3, 10),
        _watched("still", 4, 0.7, 40, 2),
        _shifted(4, 0.7, 40, 10),
        _shifted(3, 0.2, 200, 40),
    ),
    claims=CLAIMS,
    runs=2000,
    needs_numba=True,
)
DRIFT = replace(
    _ALL,
    quick=replace(
        _ALL,
        title=f"{_ALL.title}; a quick look",
        about=f"{_ALL.about} This is a quick look, with few runs.",
        runs=50,
    ),
)
