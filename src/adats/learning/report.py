"""The report of an analysis: a text and its figures, in a folder."""

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from adats import plots
from adats.learning.checks import DRIFT_LEVEL, UNLIKE, Calibration, Drift
from adats.learning.fit_common import Worth
from adats.learning.fitting import ABOUT, COMPARED
from adats.learning.half_lives import SURE
from adats.learning.linear import OFFERED
from adats.learning.verdict import Verdict
from adats.models.core.files import write_bytes
from adats.plots import fit as plots_fit
from adats.plots.fit import LANES
from adats.simulation.provenance import versions

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from adats.learning.analysis import Analysis

LINES = 100  # of a table
MANY = 1e4  # pulls: more than in any task, and tasks hardly differ
WHAT_TO_DO = {
    "share": "Start new tasks from this prior",
    "one for all": "Let one agent serve all tasks",
    "each for itself": "Start each task with a prior of its own",
    "too little data": "Log more tasks; until then `default_prior` learns as it goes",
    "cannot tell from this log": "Log some tasks with propensities, or with arms drawn at random",
}


def write_report(
    folder: str | os.PathLike[str], found: "Analysis", command: str | None = None
) -> Path:
    """Write report.md and its figures, each as PNG and SVG; returns the path of report.md.

    Nothing is written before all is drawn, and each file is written whole.
    """
    out = Path(folder)
    if out.exists() and not out.is_dir():
        raise ValueError(f"{out} is a file, not a folder for the report")
    plots.need()
    files: dict[str, bytes] = {}
    for name, figure in _figures(found).items():
        files[f"{name}.png"] = plots.rendered(figure, "png")
        files[f"{name}.svg"] = plots.rendered(figure, "svg")
    files["report.md"] = report_text(found, command).encode()
    out.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        write_bytes(out / name, data)
    return out / "report.md"


def _figures(found: "Analysis") -> dict[str, "Figure"]:
    names, points, verdict = list(found.table.names), found.points, found.verdict
    label = "mean reward"
    if found.table.arms is None:
        label = "coefficient × root mean square of its feature"
    figures = {"prior": plots.prior(found.prior, points=points, names=names, label=label)}
    if not math.isnan(verdict.saving):
        both = {"each task by itself": verdict.over_alone, "one for all": verdict.over_pooled}
        known = {
            name: (saving.part, saving.low, saving.high)
            for name, saving in both.items()
            if saving is not None
        }
        figures["verdict"] = plots_fit.saving_figure(known)
    if found.example is not None:
        task, pulls, raw, belief = found.example
        figures["task"] = plots_fit.task_figure(f"task {task}", names, pulls, raw, belief)
    if found.without_names is not None:
        priors = {f"{found.structure} arms": found.prior, "no names": found.without_names}
        figures["compare"] = plots.compare(priors, names=names)
    if found.allocation is not None:
        figures["allocation"] = plots_fit.allocation_figure(*found.allocation, names)
    if found.calibration is not None:
        figures["calibration"] = plots_fit.calibration_figure(found.calibration.bins)
    return figures


# the text, as Markdown: the verdict first, then what it rests on


def sentence(verdict: Verdict) -> str:
    """The answer, its size with a 90 % interval, and what to do."""
    how = ""
    if verdict.structure is not None:
        how = f" ({ABOUT[verdict.structure]})" if verdict.structure in ABOUT else ""
    start = f"{verdict.answer.capitalize()}{how}."
    if math.isnan(verdict.saving):
        because = "; ".join(verdict.reasons)
        return f"{start} {because[:1].upper()}{because[1:]}." if because else start
    part, (low, high), pooled = verdict.saving, verdict.interval, verdict.over_pooled
    who, whose = "sharing", "the better of each task by itself and one agent for all"
    if pooled is None:
        whose = "a task by itself"
    elif verdict.answer == "one for all":
        whose = "one agent for all"
    if part < 0:  # the rival saves
        part, low, high, whose = -part, -high, -low, "sharing"
        pool = pooled is not None and pooled.part == verdict.saving
        who = "one agent for all" if pool else "each task by itself"
    size = f"{part:.0%} (90 % interval: {low:.0%} to {high:.0%}) of the regret of {whose}"
    if verdict.answer == "one for all":
        return f"{start} Tasks are too alike, or too short, to be told apart: {who} saves {size}."
    only = "saves" if verdict.answer == "share" else "would save"
    return f"{start} {who.capitalize()} {only} {size}."


def report_text(found: "Analysis", command: str | None = None) -> str:
    """All of report.md; `command` is what it was made by."""
    linear, sized = found.table.arms is None, not math.isnan(found.verdict.saving)
    parts = [
        "# Is sharing worth it?",
        _bold(found.sentence, "."),
        *["![What sharing saves, with its 90 % interval](verdict.png)"] * sized,
        f"{WHAT_TO_DO[found.verdict.answer]}.",
        *_warnings(found),
        _log(found),
        *(_judged(found, linear) if sized else []),
        *_structures(found),
        "## The prior of a new task",
        "![The prior of a new task, and the tasks of the log](prior.png)",
        _prior(found),
        *_fit(found),
        *_example(found),
        "## How much tasks differ",
        _differ(found.worth, linear, float(found.table.pulls.max())),
        *_without_names(found),
        "## Calibration",
        *_calibration(found.calibration),
        "## Does it move?",
        *_drift(found.drift),
        *_half_lives(found),
        *["![Which arms were pulled over time](allocation.png)"] * (found.allocation is not None),
        "## Tasks unlike the rest",
        *_outliers(found),
        "## How this was made",
        _made(command),
    ]
    return "\n\n".join(parts) + "\n"


def _log(found: "Analysis") -> str:
    table = found.table
    what = "feature" if table.arms is None else "arm"
    size = len(table.names)
    text = (
        f"The log: {len(table):,} tasks, {table.pulls.sum():,.0f} rewards, "
        f"{size} {what}{'s' if size > 1 else ''}, model `{table.model}`"
    )
    if table.since is not None:
        text += f", from {table.since} to {table.until}"
    return text + (f". {found.dropped:,} bad rows were dropped." if found.dropped else ".")


def _warnings(found: "Analysis") -> list[str]:
    lines = [f"- Warning: {warning}." for warning in found.warnings]
    lines += [f"- The log cannot tell {what}." for what in found.fitted.unidentified]
    return ["\n".join(lines)] if lines else []


def _judged(found: "Analysis", linear: bool) -> list[str]:
    verdict = found.verdict
    said = ". ".join(f"{reason[:1].upper()}{reason[1:]}" for reason in verdict.reasons) + "."
    if linear:
        return [
            "## Why",
            f"{said} Tasks were held out in five folds. The saving is that of new tasks drawn from "
            "the fitted prior, as long as the median task of the log; each round offers "
            f"{OFFERED} arms, with features like the log's.",
        ]
    return [
        "## Why",
        f"{said} *Regret* is the reward that a task loses by not always pulling its best arm; a "
        "*saving* is the part of a rival's regret that Thompson sampling with the shared "
        "prior saves in a new task with the arms and the length of the log's own (or, where "
        "sharing loses more, the part of its regret that the rival saves): what the model "
        "promises, over all that the log leaves possible. Tasks that were *held out* had no say in "
        f"the prior they were played with.{_disagreement(verdict)}{_not_rehearsed(found)}",
    ]


def _not_rehearsed(found: "Analysis") -> str:
    """Structures of which the saving knows nothing."""
    if found.structure not in ("full", "features"):
        return ""
    return (
        f" The saving is that of arms with means of their own and a level; that of the structure "
        f"which was chosen, *{found.structure}*, was not worked out."
    )


def _disagreement(verdict: Verdict) -> str:
    """What the model promises and held-out tasks deny."""
    rivals = {
        "each task by itself": (verdict.over_alone, verdict.gain),
        "one agent for all": (verdict.over_pooled, verdict.adapting),
    }
    for rival, (promise, gain) in rivals.items():
        if promise is not None and gain is not None and promise.low > 0 and gain.high < 0:
            return (
                f" **They disagree:** the model promises a saving over {rival}, but tasks that "
                "were held out lost by sharing. Believe the tasks."
            )
    return ""


def _structures(found: "Analysis") -> list[str]:
    known = [score for score in found.structures if score.density.size]
    if not known:
        return []
    best = max(known, key=lambda score: score.mean_density)
    rows = []
    for score in found.structures:
        if not score.density.size:
            rows.append((score.structure, ABOUT[score.structure], "no fit", score.problem))
            continue
        behind = score.density - best.density
        se = float(behind.std(ddof=1)) / math.sqrt(behind.size)
        said = "best" if score is best else f"{behind.mean():.3g} ± {se:.1g}"
        value = "" if math.isnan(score.mean_value) else f"{score.mean_value:.4g}"
        mark = " (chosen)" if score.structure == found.structure else ""
        rows.append((score.structure + mark, ABOUT[score.structure], said, value))
    return [
        "## Structures compared",
        _table(["structure", "what it says", "held-out score", "held-out reward"], rows),
        "Each was fitted to four fifths of the tasks and judged by the rest"
        + (f" ({COMPARED:,} tasks at most). " if len(found.table) > COMPARED else ". ")
        + "*Score* is the log probability of a task's rewards less that under the best structure: "
        "at -0.7 they are half as probable. *Reward* is that of the arm that looks best after half "
        "of a task, in its other half. The simplest that is not clearly worse in either is chosen.",
    ]


def _prior(found: "Analysis") -> str:
    table, fitted, worth = found.table, found.fitted, found.worth
    mean, between, unknown = fitted.rewards
    error, spread = np.sqrt(unknown), np.sqrt(between)
    means = [f"{m:.4g} ± {se:.2g}" for m, se in zip(mean, error, strict=True)]
    columns = {"mean over tasks": means, "spread between tasks": [f"{s:.3g}" for s in spread]}
    if table.arms is None:
        columns = {"feature": list(table.names)} | columns
    else:
        pulls = table.table[:, 0]
        first = {
            "arm": list(table.names),
            "tasks": [f"{count:,}" for count in (pulls > 0).sum(axis=0)],
            "rewards": [f"{count:,.0f}" for count in pulls.sum(axis=0)],
        }
        columns = first | columns | {"worth in pulls": [_pulls(value) for value in worth.pulls]}
    rows = list(zip(*columns.values(), strict=True))
    text = _table(list(columns), rows[:LINES])
    if len(rows) > LANES:
        text += f"\n\nThe figure shows the first {LANES} of {len(rows)}"
        text += f", the table the first {LINES}." if len(rows) > LINES else "."
    return text


def _fit(found: "Analysis") -> list[str]:
    fitted = found.fitted
    if fitted.words:
        return [fitted.words]
    if fitted.noise is None or fitted.shrinkage is None:
        return []
    simple = "Σ_0 its diagonal" if found.table.arms is None else "the arms' average"
    return [
        f"The noise of a reward around its mean has standard deviation {fitted.noise:.4g}. EM took "
        f"{fitted.curve.size} steps. The spread between tasks gives {simple} a weight of "
        f"{fitted.shrinkage:.1f}, which predicts held-out tasks best."
    ]


def _example(found: "Analysis") -> list[str]:
    if found.example is None:
        return []
    return [
        f"![Task {found.example.task}: raw averages, and what is believed of it](task.png)",
        f"One task of the log, `{found.example.task}`: its averages, and what is believed of its "
        "arms with the prior. Arms with few pulls are drawn towards the others.",
    ]


def _without_names(found: "Analysis") -> list[str]:
    if found.without_names is None:
        return []
    return [
        "![The prior, and one that knows no names of arms](compare.png)",
        "What the names of arms teach: the prior beside one for which arms are exchangeable.",
    ]


def _drift(found: Drift | None) -> list[str]:
    if found is None:
        return ["Not looked at: it needs the times of single rewards, in ten tasks or more."]
    said = "No movement was found"
    if found.warning is not None:
        said = f"**{found.warning[:1].upper()}{found.warning[1:]}**"
    return [
        f"{said}. The ranks of rewards in what the earlier ones predict were compared with their "
        f"dates, in {found.looked} ways; the least chance, times {found.looked}, is "
        f"{found.chance:.2g}. Of logs that do not move, one in {1 / DRIFT_LEVEL:.0f} is warned of "
        "(errors are taken over tasks)."
    ]


def _half_lives(found: "Analysis") -> list[str]:
    lives = found.half_lives
    if lives is None:
        return ["`--half-life auto` looks for half-lives that would have predicted better."]
    never = "never"
    rows = [
        (
            *(never if life is None else f"{life:.4g}" for life in score[:2]),
            f"{score.gain:+.2g} ± {score.error:.2g}",
        )
        for score in lives.scores
    ]
    if not rows:
        return [f"{lives.sentence}."]
    return [
        f"{lives.sentence}.",
        "What forgetting would have brought: rewards were predicted one after another, each from "
        f"those before it, with half-lives (in seconds) and without. Gains are of the log "
        f"density of a task's rewards; {SURE:g} standard errors are asked for.",
        _table(["half-life", "prior half-life", "gain"], rows),
    ]


def _pulls(value: float) -> str:
    if value > MANY:
        return f"over {MANY:,.0f}"
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}"


def _differ(worth: Worth, linear: bool, longest: float) -> str:
    if linear:
        where, what = "the reward of an average row", "rows"
        between, within = float(worth.between.sum()), float(worth.within[0])
    else:
        where, what = "the rewards of one arm (on average over arms)", "pulls of every arm"
        between, within = float(worth.between.mean()), float(worth.within.mean())
    text = (
        f"Of the variance of {where}, {between / (between + within):.0%} lies between tasks "
        f"({between:.3g}) and {within / (between + within):.0%} within a task ({within:.3g}). "
    )
    if worth.typical > max(MANY, longest):
        return text + "Tasks hardly differ: one task for all would do as well."
    typical = f"{worth.typical:,.0f}" if worth.typical > MANY else _pulls(worth.typical)
    text += f"A new task starts as if it had already seen about {typical} {what}"
    if linear:
        text += (
            f": {_pulls(worth.pulls.min())} in the direction in which tasks differ most, "
            f"{_pulls(worth.pulls.max())} where they differ least"
        )
    return text + ". After so many of its own, its data and the prior have an equal say."


def _calibration(calibration: Calibration | None) -> list[str]:
    if calibration is None:
        return [
            "Not looked at: the order of rewards within a task is not known. With the log itself "
            "and its column of time (`--time`), each reward is compared with what the earlier "
            "ones predict."
        ]
    return [
        _bold(calibration.reading, ":"),
        "![Predicted probability of a smaller reward](calibration.png)",
        f"Each of {calibration.values.size:,} rewards of {calibration.tasks:,} tasks was predicted "
        "from the earlier rewards of its task and the prior of the other tasks. The predicted "
        "probability of a smaller reward should be uniform, also where a bandit wrote the log. "
        f"The largest distance from uniform is {calibration.distance:.3f}. If all is right, one as "
        f"large has a chance of {calibration.chance:.2g}.",
    ]


def _outliers(found: "Analysis") -> list[str]:
    tasks, count = len(found.table), sum(task.flagged for task in found.outliers)
    words = f"{count} task{'s look' if count > 1 else ' looks'}" if count else "No task looks"
    if count == len(found.outliers) < tasks:
        words = f"At least {words}"
    rows = [
        (str(task.task), f"{task.chance:.1e}", "yes" if task.flagged else "no", task.what)
        for task in found.outliers
    ]
    return [
        f"{words} unlike the rest. *Chance* is that of a task as far off, if the prior comes from "
        f"the other tasks. It must be below {UNLIKE:g} over the number of tasks, "
        f"{UNLIKE / tasks:.1e}; then logs of tasks that are all alike raise one false alarm in "
        f"{1 / UNLIKE:.0f}. Where a bandit wrote the log, an arm with bad luck is not pulled again "
        "and stays low, so look twice.",
        _table(["task", "chance", "unlike", "what"], rows),
    ]


def _made(command: str | None) -> str:
    names = {"adats": "adats", "python": "Python", "numpy": "NumPy"}
    text = "With " + ", ".join(f"{names[k]} {v}" for k, v in versions().items() if k in names)
    return f"{text}." if command is None else f"{text}, by `{command}`."


def _bold(text: str, end: str) -> str:
    """The text with its start, up to `end`, in bold."""
    start, rest = text.split(end, 1)
    return f"**{start}**{end}{rest}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    cells = ([cell.replace("|", "\\|").replace("\n", " ") for cell in line] for line in lines)
    return "\n".join("| " + " | ".join(line) + " |" for line in cells)
