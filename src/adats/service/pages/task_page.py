"""The page of one task: prior, own data and belief of each arm, and its last decisions."""

from adats.service.pages.content import TaskContent
from adats.service.pages.figures import Words, moment, number, percent
from adats.service.pages.html import escape, experiment_url, table


def task_body(experiment: str, content: TaskContent, words: Words) -> str:
    belief = content.belief
    heads = ("Arm", "Prior", "Its own data", "Believed", "From the task", "From the prior")
    rows = [
        (
            escape(str(part.name)),
            _spread(part.prior_mean, part.prior_scale, words),
            _own(average, part.pulls, words),
            _spread(part.mean, part.scale, words),
            percent(part.from_task),
            percent(part.from_prior),
        )
        for part, average in zip(belief.parts, content.averages, strict=True)
    ]
    decisions = [
        (
            escape(moment(row.time)),
            escape(_joined(row.action)),
            escape(_joined(row.propensity)),
            "yes" if row.holdout else "no",
            "–" if row.reward is None else escape(_joined(row.reward)),
        )
        for row in content.decisions
    ]
    return (
        f"<h1>{escape(belief.task)}</h1><p>A task of "
        f'<a href="{experiment_url(experiment)}">{escape(experiment)}</a></p>'
        '<section data-part="beliefs"><h2>What is believed</h2>'
        '<p class="soft">Mean ± spread of the reward of each arm.</p>'
        f"{table(heads, rows, numbers=(1, 2, 3, 4, 5))}</section>"
        '<section data-part="decisions"><h2>Its last decisions</h2>'
        f"{table(DECISION, decisions, numbers=(2,))}</section>"
    )


DECISION = ("When", "Action", "Propensity", "Held out", "Reward")


def _spread(mean: float, scale: float | None, words: Words) -> str:
    return escape(f"{words(mean)} ± {'∞' if scale is None else words(scale)}")


def _own(average: float, pulls: float | None, words: Words) -> str:
    if not pulls:
        return "–"
    return escape(f"{words(average)} of {pulls:,.0f}")


def _joined(value: object) -> str:
    several = value if isinstance(value, list) else [value]
    return ", ".join(number(one) if isinstance(one, float) else str(one) for one in several)
