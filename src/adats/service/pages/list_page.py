"""The list of experiments: their state, how much is decided, the sentence, and warnings."""

from urllib.parse import quote

from adats.service import reports
from adats.service.pages.content import decisions_a_day
from adats.service.pages.html import escape, experiment_url, table
from adats.service.served_experiment import ServedExperiment
from adats.service.stores.interface import ExperimentRow, ReadView

AT_ONCE = 50  # experiments on a page
HEADS = ("Experiment", "State", "Decisions a day")
NONE = (
    "<h1>Experiments</h1><p>There are none yet. "
    'How to make one is in <a href="/docs#put">the description of the API</a>.</p>'
)


def list_body(view: ReadView, tenant: str, now: float, after: str) -> str:
    """The experiments whose names come after this one, as many as fit on a page."""
    rows = sorted(view.experiments(tenant), key=lambda row: row.name)
    rows = [row for row in rows if row.name > after]
    shown = rows[:AT_ONCE]
    if not shown:
        return NONE
    more = f'<p><a href="/?after={quote(shown[-1].name)}">More</a></p>'
    listed = table(HEADS, [_cells(view, row, now) for row in shown], numbers=(2,))
    return (
        f'<h1>Experiments</h1><div data-part="experiments">{listed}</div>'
        f"{more if len(rows) > len(shown) else ''}"
    )


def _cells(view: ReadView, row: ExperimentRow, now: float) -> tuple[str, str, str]:
    snapshot = ServedExperiment(row, view).snapshot
    counts = view.counts(row.id)
    report = reports.report_of(view, row, snapshot, counts, now)
    a_day = decisions_a_day(counts, now, several=snapshot.spec.size is not None)
    alarms = "".join(f'<br><span class="alarm">{escape(alarm)}</span>' for alarm in report.alarms)
    return (
        f'<a href="{experiment_url(row.name)}">{escape(row.name)}</a><br>{escape(report.sentence)}'
        + alarms,
        escape(row.status),
        f"{a_day:,}",
    )
