"""The page of one experiment: the sentence, the figures, health, and the lines that made it."""

import json
import math
from collections.abc import Sequence

import numpy as np

from adats.service.counters import FLOOR
from adats.service.pages import figures
from adats.service.pages.content import ExperimentContent, arm_name
from adats.service.pages.figures import COLOURS, Line, Slope, moment, number, percent
from adats.service.pages.html import escape, experiment_url, figure, table, task_url
from adats.service.spec import ExperimentSpec

Health = Sequence[tuple[str, int]]  # what only the running service knows, and how often
NOT_YET = '<p class="note">Nothing to show yet.</p>'


def experiment_body(content: ExperimentContent, base: str, health: Health) -> str:
    name, shown = content.row.name, _shown(content)
    return (
        f"<h1>{escape(name)}</h1>"
        f'<div data-part="verdict"><p class="verdict">{escape(sentence(content))}</p>'
        f'<p class="soft">{_figures(content)}</p>{_alarms(content)}</div>'
        f'<div class="figures">{_lift(content)}{_prior(content, shown)}{_shrinkage(content, shown)}'
        f"{_best(content, shown)}{_allocation(content, shown)}{_health(content, health)}</div>"
        f"{_made_by(content, base)}"
    )


def reward_words(spec: ExperimentSpec) -> figures.Words:
    """How rewards are written: those of 0 and 1 in per cent."""
    return percent if spec.model == "binary" else number


def sentence(content: ExperimentContent) -> str:
    return content.report.sentence


def _figures(content: ExperimentContent) -> str:
    report = content.report
    parts = [f"{report.decisions:,} decisions", f"{report.tasks:,} tasks"]
    parts.append(f"{report.counted:,} rewards that count")
    return escape(" · ".join(parts))


def _alarms(content: ExperimentContent) -> str:
    return "".join(f'<p class="alarm">{escape(alarm)}</p>' for alarm in content.report.alarms)


# figures


def _shown(content: ExperimentContent) -> list[int]:
    """The arms that get a colour: all, or those that were best most often in the end."""
    count = len(content.arms)
    if count <= COLOURS:
        return list(range(count))
    beliefs = content.beliefs
    last = (
        np.zeros(count)
        if beliefs is None
        else (beliefs.mean if beliefs.best is None else beliefs.best)[-1]
    )
    return sorted(np.argsort(-np.nan_to_num(last), kind="stable")[: COLOURS - 1].tolist())


def _lift(content: ExperimentContent) -> str:
    title = "Lift over the holdout"
    if content.spec.holdout is None:
        said = "This experiment has no holdout, so its lift is not measured."
        return figure("lift", title, said, "")
    known = [(p.end, lift) for p, lift in zip(content.periods, content.lifts, strict=True)]
    known = [(end, lift) for end, lift in known if lift.estimate is not None]
    said = "Mean reward more than in the holdout; the band is safe to look at every day."
    if not known:
        return figure("lift", title, said, NOT_YET)
    words, lifts = reward_words(content.spec), [lift for _, lift in known]
    line = Line(
        "lift",
        [_or_nan(lift.estimate) for lift in lifts],
        [_or_nan(lift.low) for lift in lifts],
        [_or_nan(lift.high) for lift in lifts],
    )
    last = lifts[-1]
    alt = f"Lift over time; now {words(_or_nan(last.estimate))}"
    if last.low is not None and last.high is not None:
        alt += f", between {words(last.low)} and {words(last.high)}"
    ends = [end for end, _ in known]
    drawn = figures.lines(ends, [line], alt=alt, x_words=moment, y_words=words, zero=True)
    return figure("lift", title, said, drawn)


def _prior(content: ExperimentContent, shown: Sequence[int]) -> str:
    title, said = "The prior taking shape", "What is believed of a new task: mean ± spread."
    beliefs, words = content.beliefs, reward_words(content.spec)
    if beliefs is None:
        return figure("prior", title, said, NOT_YET)
    rows = [i for i, tasks in enumerate(beliefs.tasks) if tasks > 0]
    rows = list({beliefs.tasks[i]: i for i in rows}.values())  # the last of each number of tasks
    mean, scale = beliefs.mean[rows], beliefs.scale[rows]
    several = [
        Line(
            content.arms[i],
            mean[:, i].tolist(),
            (mean - scale)[:, i].tolist(),
            (mean + scale)[:, i].tolist(),
        )
        for i in shown
        if i < mean.shape[1]
    ]
    if not rows or not several:
        return figure("prior", title, said, NOT_YET)
    last = ", ".join(f"{line.name} {words(line.y[-1])}" for line in several)
    alt = f"What is believed of each arm in a new task, over the number of tasks; now {last}"
    tasks = [float(beliefs.tasks[i]) for i in rows]
    drawn = figures.lines(tasks, several, alt=alt, x_words=_tasks, y_words=words, log=True)
    return figure("prior", title, said, drawn)


def _tasks(count: float) -> str:
    return "1 task" if count == 1 else f"{count:,.0f} tasks"


def _shrinkage(content: ExperimentContent, shown: Sequence[int]) -> str:
    title = "From each task's own data to what is believed"
    said = "The tasks with most rewards, each in the arm that it has used most; a line is a link."
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
        return figure("shrinkage", title, said, NOT_YET)
    spreads = [np.ptp([task.raw for task in tasks]), np.ptp([task.believed for task in tasks])]
    words = reward_words(content.spec)
    alt = (
        f"{len(tasks)} tasks: averages of their own rewards spread over {words(spreads[0])}, "
        f"what is believed over {words(spreads[1])}"
    )
    return figure("shrinkage", title, said, figures.slopes(tasks, alt=alt, words=words))


def _best(content: ExperimentContent, shown: Sequence[int]) -> str:
    title, said = "Which arm is best in a new task", "The chance of each arm, over time."
    beliefs = content.beliefs
    if beliefs is None or beliefs.best is None:
        return figure("best", title, said, NOT_YET)
    names, shares = _grouped(content, shown, np.nan_to_num(beliefs.best))
    last = ", ".join(f"{n} {percent(s)}" for n, s in zip(names, shares[-1], strict=True))
    alt = f"The chance of each arm to be the best in a new task; now {last}"
    drawn = figures.stacked(beliefs.times, names, shares, alt=alt, x_words=moment)
    return figure("best", title, said, drawn)


def _allocation(content: ExperimentContent, shown: Sequence[int]) -> str:
    title, said = "Where decisions go", "The share of each arm, over time, without the holdout."
    places = {name: i for i, name in enumerate(content.arms)}
    counts = np.zeros((len(content.periods), len(content.arms)))
    for own, period in zip(counts, content.periods, strict=True):
        for arm, count in period.by_arm.items():
            if arm_name(arm) in places:
                own[places[arm_name(arm)]] += count
    used = counts.sum(axis=1) > 0
    if not used.any() or content.spec.dim is not None:
        return figure("allocation", title, said, NOT_YET)
    counts = counts[used]
    names, shares = _grouped(content, shown, counts / counts.sum(axis=1, keepdims=True))
    ends = [period.end for period, one in zip(content.periods, used, strict=True) if one]
    last = ", ".join(f"{n} {percent(s)}" for n, s in zip(names, shares[-1], strict=True))
    alt = f"The share of decisions that each arm gets; in the last period {last}"
    drawn = figures.stacked(ends, names, shares, alt=alt, x_words=moment)
    return figure("allocation", title, said, drawn)


def _grouped(
    content: ExperimentContent,
    shown: Sequence[int],
    rows: "np.ndarray[tuple[int, int], np.dtype[np.float64]]",
) -> tuple[list[str], list[list[float]]]:
    """Of the arms that have a colour, and of all others together."""
    names = [content.arms[i] for i in shown]
    shares = rows[:, list(shown)]
    if len(shown) < rows.shape[1]:
        others = 1 - shares.sum(axis=1, keepdims=True)
        names, shares = (
            [*names, f"{rows.shape[1] - len(shown)} others"],
            np.hstack([shares, others]),
        )
    return names, shares.tolist()


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


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else value
