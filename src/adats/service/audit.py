"""Whether a store is as it was written, and whether its sums are those of its tasks."""

from collections.abc import Iterator

import numpy as np

from adats.models.core.types import FloatArray, MetaBelief
from adats.service.counters import tally
from adats.service.errors import DamagedStore, StoreError
from adats.service.served_experiment import ServedExperiment
from adats.service.stores.interface import Bucket, Counts, ExperimentRow, ReadView
from adats.service.stores.opening import is_shared, open_view, path_of

TOLERANCE = 1e-9


def check_store(url: str) -> list[str]:
    """All that is wrong with a store, which may be in use."""
    if not is_shared(url):
        return _check_file(url)
    from adats.service.stores.postgres_reader import PostgresReadView

    with open_view(url) as view:
        assert isinstance(view, PostgresReadView)
        found = []
        if view.settings()["fsync"] == "off":
            found.append("fsync is off: what is committed may be lost")
        for row in view.experiments():
            try:
                found += _check_figures(view, row, *view.queued(row.id))
                found += audit(view, row)
            except (DamagedStore, StoreError) as error:
                found.append(str(error))
        return found


def _check_file(url: str) -> list[str]:
    from adats.service.stores.sqlite import SQLiteReadView
    from adats.service.stores.sqlite_check import check_whole
    from adats.service.stores.sqlite_file import check_file, real_path, version_at
    from adats.service.stores.sqlite_schema import VERSION

    db = path_of(url)
    if not db.is_file():
        raise ValueError(f"there is no store {db}")
    check_file(real_path(db), whole=True)
    version = version_at(real_path(db))
    if version < VERSION:
        raise ValueError(f"{db} has version {version}; first: adats store upgrade --db {db}")
    with SQLiteReadView(db) as view:
        found = list(check_whole(view))
        if not found:
            for row in view.experiments():
                found += audit(view, row)
        return found


def _check_figures(
    view: ReadView,
    row: ExperimentRow,
    queued: tuple[int, int, int],
    queued_counts: dict[Bucket, Counts],
) -> Iterator[str]:
    """That its figures and counters, with what is not folded yet, are those of its log."""
    counts: dict[Bucket, Counts] = {}
    made = counted = received = 0
    for decision in view.decisions(row.id):
        tally(counts, decision, row.days_until)
        made, counted = made + 1, counted + (decision.counted is not None)
        received += decision.received
    said = (row.decisions + queued[1], row.counted + queued[2])
    if said != (made, counted):
        yield (
            f"experiment {row.name!r} says {said[0]} decisions and {said[1]} rewards that count; "
            f"there are {made} and {counted}"
        )
    known = view.counts(row.id)
    for bucket, difference in queued_counts.items():
        known[bucket] = known.get(bucket, Counts()).plus(difference)
    if {bucket: n for bucket, n in known.items() if n != Counts()} != counts:
        yield f"the counters of experiment {row.name!r} are not those of its log"
    if received != sum(1 for _ in view.rewards(row.id)):
        yield f"decisions of experiment {row.name!r} do not have the rewards they say"
    tasks = sum(1 for _ in view.tasks(row.id))
    if row.tasks != tasks:
        yield f"experiment {row.name!r} says {row.tasks} tasks; {tasks} are folded"


def audit(view: ReadView, row: ExperimentRow) -> list[str]:
    """Whether what all tasks taught is the sum of what each of them taught."""
    if not row.total:
        return []
    served = ServedExperiment(row, view)
    empty = row._replace(total=b"", total_version=-1)
    meta = ServedExperiment(empty, view).snapshot.meta
    for _, state in view.tasks(row.id):
        meta = meta.absorb(served.message_of(state))
    off = 0.0
    for one, two in zip(_figures(served.snapshot.meta), _figures(meta), strict=True):
        off = max(off, float(np.max(np.abs(one - two) / np.maximum(1.0, np.abs(two)))))
    if off <= TOLERANCE:
        return []
    return [f"what all tasks of {row.name!r} taught is not the sum over them: off by {off:.1e}"]


def _figures(meta: MetaBelief) -> tuple[FloatArray, FloatArray, FloatArray]:
    prior = meta.task_prior()
    return prior.mean, prior.scale, np.asarray(meta.log_evidence())
