"""The text of the report, as Markdown: the verdict first, then what it rests on."""

from collections.abc import Sequence

import numpy as np

from adats.learning.fitting.alone import ABOUT, intercept
from adats.learning.fitting.calibration import Calibration
from adats.learning.fitting.fitted import Fitted
from adats.learning.fitting.savings import OFFERED
from adats.learning.fitting.shrinkage import FOLDS
from adats.learning.fitting.unlike import LEVEL, unlike
from adats.learning.fitting.verdict import ERRORS, WORTH, Verdict
from adats.learning.fitting.worth import Worth, reward_means, worth
from adats.learning.tables import LinearTable, Table
from adats.models.latent.meta import LatentMeta
from adats.plots.fit import LANES

LINES = 100  # of a table
MANY = 1e4  # pulls: a prior that is worth more says that tasks do not differ


def report(
    table: Table,
    fitted: Fitted,
    verdict: Verdict,
    *,
    calibration: Calibration | None = None,
    dropped: int = 0,
) -> str:
    told = worth(table, fitted)
    parts = [
        "# Is sharing worth it?",
        _bold(verdict.sentence, "."),
        _log(table, dropped),
        *_warnings(fitted),
        *_judged(table, verdict),
        "## The prior of a new task",
        "![The prior of a new task, and the tasks of the log](prior.png)",
        _prior(table, fitted, told),
        *_fit(table, fitted),
        "## How much tasks differ",
        _differ(told, linear=isinstance(table, LinearTable)),
        "## Calibration",
        *_calibration(calibration),
        "## Tasks unlike the rest",
        *_unlike(table, fitted),
    ]
    return "\n\n".join(parts) + "\n"


def names(table: Table) -> list[str]:
    """Of features, or of arms."""
    return list(map(str, table.features if isinstance(table, LinearTable) else table.arms))


def _bold(text: str, end: str) -> str:
    """The text with its start, up to `end`, in bold."""
    start, rest = text.split(end, 1)
    return f"**{start}**{end}{rest}"


def _log(table: Table, dropped: int) -> str:
    what = "feature" if isinstance(table, LinearTable) else "arm"
    rows = table.n.sum() if isinstance(table, LinearTable) else table.table[:, 0].sum()
    size = len(names(table))
    text = (
        f"The log: {len(table):,} tasks, {rows:,.0f} rows, {size} {what}{'s' if size > 1 else ''}, "
        f"model `{table.model}`"
    )
    if table.since is not None:
        text += f", from {table.since} to {table.until}"
    return text + (f". {dropped:,} bad rows were dropped." if dropped else ".")


def _warnings(fitted: Fitted) -> list[str]:
    lines = [f"- Warning: {warning}." for warning in fitted.warnings]
    lines += [f"- The log cannot tell {what}." for what in fitted.unidentified]
    return ["\n".join(lines)] if lines else []


def _judged(table: Table, verdict: Verdict) -> list[str]:
    if verdict.savings is None:
        return []
    tasks, rounds = verdict.savings.alone.shape
    arms = ""
    if isinstance(table, LinearTable):
        like = "second moments" if intercept(table) is None else "means and covariances"
        arms = (
            f" Each round offers {OFFERED} arms, with normal features that have the {like} of "
            "the log's."
        )
    return [
        "![What a new task loses, and held-out gains of logged tasks](saving.png)",
        "How it is judged. *By itself* a task starts afresh, with a prior that knows the level of "
        f"rewards but nothing else: {ABOUT[table.model]}. *Not seen*: {verdict.gains.size:,} tasks "
        f"in {FOLDS} folds, each scored with a prior fitted to the other folds. The gain is the "
        "log density of a task's rewards under the shared prior, less that under its own; over "
        f"tasks it must exceed {ERRORS:.0f} standard errors (one stands after ±). *Simulation*: "
        f"{tasks:,} new tasks of {rounds:,} rounds, drawn from the fitted prior, and Thompson "
        f"sampling with either prior; {WORTH:.0%} of the regret must be saved.{arms}",
    ]


def _prior(table: Table, fitted: Fitted, told: Worth) -> str:
    spread, error = np.sqrt(fitted.task_cov.diagonal()), np.sqrt(fitted.mu_cov.diagonal())
    if not isinstance(table, LinearTable):
        spread, error = np.sqrt(told.between), np.sqrt(told.unknown)
    means = [f"{mean:.4g} ± {se:.2g}" for mean, se in zip(reward_means(fitted), error, strict=True)]
    columns = {"mean over tasks": means, "spread between tasks": [f"{s:.3g}" for s in spread]}
    if isinstance(table, LinearTable):
        columns = {"feature": names(table)} | columns
    else:
        pulls = table.table[:, 0]
        first = {
            "arm": names(table),
            "tasks": [f"{count:,}" for count in (pulls > 0).sum(axis=0)],
            "rows": [f"{count:,.0f}" for count in pulls.sum(axis=0)],
        }
        columns = first | columns | {"worth in pulls": [_pulls(value) for value in told.pulls]}
    rows = list(zip(*columns.values(), strict=True))
    text = _table(list(columns), rows[:LINES])
    if len(rows) > LANES:
        text += f"\n\nThe figure shows the first {LANES} of {len(rows)}"
        text += f", the table the first {LINES}." if len(rows) > LINES else "."
    return text


def _fit(table: Table, fitted: Fitted) -> list[str]:
    if isinstance(fitted.meta, LatentMeta):
        return [_together(fitted.meta)]
    if fitted.noise is None or fitted.shrinkage is None:
        return []
    simple = "Σ_0 its diagonal" if isinstance(table, LinearTable) else "the arms' average"
    return [
        f"The noise of a reward around its mean has standard deviation {fitted.noise:.4g}. EM took "
        f"{fitted.curve.size} steps. The spread between tasks gives {simple} a weight of "
        f"{fitted.shrinkage:.1f}, which predicts held-out tasks best."
    ]


def _together(meta: LatentMeta) -> str:
    own, level = meta.spread.sizes(0)
    scale = "log-odds" if meta.model == "binary" else "the logarithm of the mean"
    return (
        f"Tasks differ by {level:.3g} in what their arms have in common and by {own:.3g} in each "
        f"arm (standard deviations of {scale}). In the simulation their arms are independent."
    )


def _pulls(value: float) -> str:
    if value > MANY:
        return f"over {MANY:,.0f}"
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}"


def _differ(told: Worth, *, linear: bool) -> str:
    if linear:
        where, what = "the reward of an average row", "rows"
        between, within = float(told.between.sum()), float(told.within[0])
    else:
        where, what = "the rewards of one arm (on average over arms)", "pulls of every arm"
        between, within = float(told.between.mean()), float(told.within.mean())
    text = (
        f"Of the variance of {where}, {between / (between + within):.0%} lies between tasks "
        f"({between:.3g}) and {within / (between + within):.0%} within a task ({within:.3g}). "
    )
    if told.typical > MANY:
        return text + "Tasks hardly differ: one task for all would do as well."
    text += f"A new task starts as if it had already seen about {_pulls(told.typical)} {what}"
    if linear:
        text += (
            f": {_pulls(told.pulls.min())} in the direction in which tasks differ most, "
            f"{_pulls(told.pulls.max())} where they differ least"
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


def _unlike(table: Table, fitted: Fitted) -> list[str]:
    found = unlike(table, fitted)
    count = sum(task.flagged for task in found)
    words = f"{count} task{'s look' if count > 1 else ' looks'}" if count else "No task looks"
    if count == len(found) < len(table):
        words = f"At least {words}"
    rows = [
        (str(task.task), f"{task.chance:.1e}", "yes" if task.flagged else "no", task.what)
        for task in found
    ]
    return [
        f"{words} unlike the rest. *Chance* is that of a task as far off, if the prior comes from "
        f"the other tasks. It must be below {LEVEL:g} over the number of tasks, "
        f"{LEVEL / len(table):.1e}; then logs of tasks that are all alike raise one false alarm in "
        f"{1 / LEVEL:.0f}. Where a bandit wrote the log, an arm with bad luck is not pulled again "
        "and stays low, so look twice.",
        _table(["task", "chance", "unlike", "what"], rows),
    ]


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    cells = ([cell.replace("|", "\\|").replace("\n", " ") for cell in line] for line in lines)
    return "\n".join("| " + " | ".join(line) + " |" for line in cells)
