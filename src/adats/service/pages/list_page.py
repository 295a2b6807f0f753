"""The list of experiments: their state, how much is decided, the lift in a sentence, warnings."""

from typing import NamedTuple

from adats.service import reports
from adats.service.messages import Report
from adats.service.pages.content import decisions_a_day
from adats.service.pages.html import escape, experiment_url, table
from adats.service.spec import parse
from adats.service.stores.interface import ReadView

AT_ONCE = 50  # experiments on a page


class ExperimentSummary(NamedTuple):
    name: str
    report: Report
    a_day: int


def experiments(
    view: ReadView, tenant: str, now: float, after: str
) -> tuple[list[ExperimentSummary], str | None]:
    """The next ones by name, and after which the rest begins."""
    rows = sorted(view.experiments(tenant), key=lambda row: row.name)
    rows = [row for row in rows if row.name > after]
    found = [
        ExperimentSummary(
            row.name,
            reports.report(view, row, now),
            decisions_a_day(view.counts(row.id), now, several=parse(row.spec).size is not None),
        )
        for row in rows[:AT_ONCE]
    ]
    return found, found[-1].name if len(rows) > AT_ONCE else None


def list_body(found: list[ExperimentSummary], more: str | None) -> str:
    if not found:
        return (
            "<h1>Experiments</h1><p>There are none yet. "
            'How to make one is in <a href="/docs#put">the description of the API</a>.</p>'
        )
    rows = [
        (
            f'<a href="{experiment_url(one.name)}">{escape(one.name)}</a>',
            f"{one.a_day:,}",
            escape(one.report.sentence)
            + "".join(f'<br><span class="alarm">{escape(a)}</span>' for a in one.report.alarms),
        )
        for one in found
    ]
    heads = ("Experiment", "Decisions a day", "What it says")
    rest = "" if more is None else f'<p><a href="/?after={escape(more)}">More</a></p>'
    return (
        "<h1>Experiments</h1>"
        f'<div data-part="experiments">{table(heads, rows, numbers=(1,))}</div>{rest}'
    )
