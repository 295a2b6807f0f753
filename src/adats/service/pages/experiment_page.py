"""The page of one experiment: the sentence, the figures, health, and the lines that made it."""

import json
import math
from collections.abc import Sequence

import numpy as np

from adats.models.core.types import FloatArray
from adats.service.counters import FLOOR
from adats.service.pages import figures
from adats.service.pages.content import ExperimentContent, arm_name
from adats.service.pages.figures import COLOURS, Line, Slope, moment, number, percent
from adats.service.pages.html import escape, experiment_url, figure, table, task_url
from adats.service.served_models import MODELS
from adats.service.spec import ExperimentSpec

Health = Sequence[tuple[str, int]]  # what only the running service knows, and how often
NOT_YET = '<p class="note">Nothing to show yet.</p>'


def experiment_body(content: ExperimentContent, base: str, health: Health) -> str:
    report = content.report
    parts = [content.row.status, f"{report.decisions:,} decisions", f"{report.tasks:,} tasks"]
    parts.append(f"{report.counted:,} rewards that count")
    if report.aging is not None:
        parts.append(report.aging)
    alarms = "".join(f'<p class="alarm">{escape(alarm)}</p>' for alarm in report.alarms)
    shown = _shown(content)
    drawn = "".join(
        figure(part, title, about, draw(content, shown) or NOT_YET)
        for part, title, about, draw in FIGURES
    )
    return (
        f"<h1>{escape(content.row.name)}</h1>"
        f'<div data-part="verdict"><p class="verdict">{escape(report.sentence)}</p>'
        f'<p class="soft">{escape(" · ".join(parts))}</p>{alarms}</div>'
        f'<div class="figures">{drawn}{_health(content, health)}</div>{_made_by(content, base)}'
    )


def reward_words(spec: ExperimentSpec) -> figures.Words:
    """How rewards are written: those of 0 and 1 in per cent."""
    return percent if MODELS[spec.model].rates else number


# figures: each is empty where there is nothing to show yet


def _shown(content: ExperimentContent) -> list[int]:
    """The arms that get a colour: all, or those that look best in the end."""
    count, beliefs = len(content.arms), content.beliefs
    if count <= COLOURS or beliefs is None:
        return list(range(min(count, COLOURS)))
    last = (beliefs.mean if beliefs.best is None else beliefs.best)[-1]
    return sorted(np.argsort(-np.nan_to_num(last), kind="stable")[: COLOURS - 1].tolist())


def _lift(content: ExperimentContent, _: Sequence[int]) -> str:
    if content.spec.holdout is None:
        return '<p class="note">This experiment has no holdout: its lift is not measured.</p>'
    pairs = zip(content.periods, content.lifts, strict=True)
    known = [(p.end, lift) for p, lift in pairs if lift.estimate is not None]
    if not known:
        return ""
    words, lifts = reward_words(content.spec), [lift for _, lift in known]
    several = (
        [math.nan if value is None else value for value in values]
        for values in zip(*((one.estimate, one.low, one.high) for one in lifts), strict=True)
    )
    line = Line("lift", *several)
    alt = f"Lift over time; now {words(line.y[-1])}"
    if line.low is not None and line.high is not None:
        alt += f", between {words(line.low[-1])} and {words(line.high[-1])}"
    ends = [end for end, _ in known]
    return figures.lines(ends, [line], alt=alt, x_words=moment, y_words=words, zero=True)


def _prior(content: ExperimentContent, shown: Sequence[int]) -> str:
    beliefs, words = content.beliefs, reward_words(content.spec)
    if beliefs is None:
        return ""
    last_of = {tasks: i for i, tasks in enumerate(beliefs.tasks) if tasks > 0}
    rows = list(last_of.values())  # the last of each number of tasks
    mean, scale = beliefs.mean[rows], beliefs.scale[rows]
    ends = (mean, mean - scale, mean + scale)
    several = [
        Line(content.arms[i], *(end[:, i].tolist() for end in ends))
        for i in shown
        if rows and i < mean.shape[1]
    ]
    if not several:
        return ""
    said = ", ".join(f"{line.name} {words(line.y[-1])}" for line in several)
    alt = f"What is believed of each arm in a new task, over the number of tasks; now {said}"
    tasks = [float(count) for count in last_of]
    return figures.lines(tasks, several, alt=alt, x_words=_tasks, y_words=words, log=True)


def _tasks(count: float) -> str:
    return "1 task" if count == 1 else f"{count:,.0f} tasks"


def _shrinkage(content: ExperimentContent, shown: Sequence[int]) -> str:
    colours = {arm: colour for colour, arm in enumerate(shown)}
    tasks = [
        Slope(
            f"{own.task}, {content.arms[own.arm]}",
            task_url(content.row.name, own.task),
            colours.get(own.arm, COLOURS - 1),
            own.average,
            own.believed,
        )
        for own in content.tasks
    ]
    if not tasks:
        return ""
    words = reward_words(content.spec)
    raw, believed = (np.ptp(values) for values in zip(*(task[3:] for task in tasks), strict=True))
    alt = (
        f"{len(tasks)} tasks: averages of their own rewards spread over {words(raw)}, what is "
        f"believed over {words(believed)}"
    )
    return figures.slopes(tasks, alt=alt, words=words)


def _best(content: ExperimentContent, shown: Sequence[int]) -> str:
    beliefs = content.beliefs
    if beliefs is None or beliefs.best is None:
        return ""
    alt = "The chance of each arm to be the best in a new task; now"
    return _stacked(content, shown, beliefs.times, np.nan_to_num(beliefs.best), alt)


def _allocation(content: ExperimentContent, shown: Sequence[int]) -> str:
    places = {name: i for i, name in enumerate(content.arms)}
    counts = np.zeros((len(content.periods), len(content.arms)))
    for own, period in zip(counts, content.periods, strict=True):
        for arm, count in period.by_arm.items():
            if arm_name(arm) in places:
                own[places[arm_name(arm)]] += count
    used = counts.sum(axis=1) > 0
    if not used.any() or content.spec.dim is not None:
        return ""
    shares = counts[used] / counts[used].sum(axis=1, keepdims=True)
    ends = [period.end for period, one in zip(content.periods, used, strict=True) if one]
    alt = "The share of decisions that each arm gets; in the last period"
    return _stacked(content, shown, ends, shares, alt)


def _stacked(
    content: ExperimentContent,
    shown: Sequence[int],
    times: Sequence[float],
    rows: FloatArray,
    alt: str,
) -> str:
    """Shares of the arms that have a colour, and of all others together."""
    names, shares = [content.arms[i] for i in shown], rows[:, list(shown)]
    if len(shown) < rows.shape[1]:
        names.append(f"{rows.shape[1] - len(shown)} others")
        shares = np.hstack([shares, 1 - shares.sum(axis=1, keepdims=True)])
    last = ", ".join(f"{n} {percent(s)}" for n, s in zip(names, shares[-1], strict=True))
    return figures.stacked(times, names, shares.tolist(), alt=f"{alt} {last}", x_words=moment)


FIGURES = (
    (
        "lift",
        "Lift over the holdout",
        "Mean reward more than in the holdout; the band is safe to look at every day.",
        _lift,
    ),
    ("prior", "The prior taking shape", "What is believed of a new task: mean ± spread.", _prior),
    (
        "shrinkage",
        "From each task's own data to what is believed",
        "The tasks with most rewards, each in the arm that it has used most; a line is a link.",
        _shrinkage,
    ),
    ("best", "Which arm is best in a new task", "The chance of each arm, over time.", _best),
    (
        "allocation",
        "Where decisions go",
        "The share of each arm, over time, without the holdout.",
        _allocation,
    ),
)


def _health(content: ExperimentContent, health: Health) -> str:
    report, spec = content.report, content.spec
    rows = [(f"Decisions without a reward, {age}", f"{n:,}") for age, n in content.pending]
    rows.append(("Decisions whose window ended without one", f"{report.expired:,}"))
    rows.append(("Decisions that explored", f"{report.explored:,}"))
    floor = f"Decisions with a propensity below {percent(FLOOR)}"
    rows.append((floor, f"{content.unlikely:,}"))
    rows += [(f"{name}, since the service was started", f"{n:,}") for name, n in health]
    if spec.holdout is not None and report.lift is not None:
        held = report.lift.holdout_decisions
        all_of = held + report.lift.policy_decisions
        share = percent(held / all_of) if all_of else "–"
        rows.append((f"Held out (planned {percent(spec.holdout.share)})", share))
    body = [(escape(name), escape(value)) for name, value in rows]
    return figure("health", "Health", "", table(("", ""), body, numbers=(1,)))


def _made_by(content: ExperimentContent, base: str) -> str:
    spec = json.dumps(json.loads(content.row.spec), indent=2, ensure_ascii=False)
    url = f"{base}/v1{experiment_url(content.row.name)}"
    curl = f"curl -X PUT {url} -H 'Content-Type: application/json' -d '{spec}'"
    python = (
        f"import adats\n\nclient = adats.Client({base!r}, {content.row.name!r})\n"
        'decision = client.ask(task="…")\nclient.tell(decision, reward=…)'
    )
    return (
        "<details><summary>The lines that made it</summary>"
        f"<pre>{escape(curl)}</pre><pre>{escape(python)}</pre></details>"
    )
