"""A store copied into an empty one of any kind, row by row, and checked by a replay."""

import tempfile
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from adats.service.engine import Engine
from adats.service.replay import compare, replay
from adats.service.served_experiment import ServedExperiment
from adats.service.stores.interface import (
    Changes,
    DecisionKey,
    ExperimentRow,
    ReadView,
    Store,
    TaskRow,
)
from adats.service.stores.opening import is_shared, open_keys, open_store, open_view, path_of
from adats.service.stores.sqlite import SQLiteStore

PIECE = 2000  # rows in one transaction

T = TypeVar("T")


def copy_store(source: str, target: str) -> list[str]:
    """Copy a store that nobody writes to; what differs in the copy, which is nothing."""
    if is_shared(source):  # what is not folded yet has no number
        before = open_store(source)
        try:
            Engine(before).fold_all()
        finally:
            before.close()
    elif not path_of(source).is_file():
        raise ValueError(f"there is no store {path_of(source)}")
    store = open_store(target)
    try:
        with open_view(source) as view:
            with store.view() as there:
                if there.experiments() or there.key_rows():
                    raise ValueError("the target is not empty; give a new store")
            for row in view.experiments():
                if view.unfolded(row.id):
                    raise ValueError(f"{row.name!r} is in use; stop the service, then copy")
                _copy(view, store, row)
            with open_keys(target) as keys:
                for key in view.key_rows():
                    keys.add(key)
            with store.view() as copied:
                found = [line for row in view.experiments() for line in compare(view, copied, row)]
    finally:
        store.close()
    return found + _replayed(target)


def _replayed(url: str) -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        again = SQLiteStore(Path(folder, "again.db"))
        try:
            with open_view(url) as view:
                found = replay(view, again)
        finally:
            again.close()
    return [f"another decision: {line}" for line in found.changed] + found.differences


def _copy(view: ReadView, store: Store, row: ExperimentRow) -> None:
    store.begin()
    new = row._replace(id=store.new_experiment())
    if row.total:  # a large one may have been written some commits ago
        total = ServedExperiment(row, view).snapshot.total()
        new = new._replace(total=total, total_version=row.version)
    store.save(Changes(experiments={new.id: new}))
    for states in _pieces(view.tasks(row.id)):
        tasks = {(new.id, task): _folded(state) for task, state in states}
        _save(store, new.id, tasks=tasks)
    names: dict[int, str] = {}
    for some in _pieces(view.decisions(row.id)):
        names |= {decision.id: decision.decision_id for decision in some}
        made = (decision._replace(id=0, experiment=new.id) for decision in some)
        _save(store, new.id, decisions={(new.id, one.decision_id): one for one in made})
    with store.view() as copied:
        ids = {one.decision_id: one.id for one in copied.decisions(new.id)}
    for rewards in _pieces(view.rewards(row.id)):
        told: list[tuple[DecisionKey, Any]] = []
        for reward in rewards:
            name = names[reward.decision]
            own = reward._replace(id=0, experiment=new.id, decision=ids[name])
            told.append(((new.id, name), own))
        _save(store, new.id, rewards=told)
    counts = {
        bucket._replace(experiment=new.id): own for bucket, own in view.counts(row.id).items()
    }
    changes = [change._replace(experiment=new.id) for change in view.changes(row.id)]
    beliefs = [belief._replace(experiment=new.id) for belief in view.beliefs(row.id)]
    _save(store, new.id, counts=counts, changes=changes, beliefs=beliefs)


def _folded(state: TaskRow) -> TaskRow:
    """A task that is in what all taught as it is."""
    return state._replace(folded=None, folded_in=None)


def _save(store: Store, experiment: int, **parts: Any) -> None:
    store.begin()
    store.take(experiment)
    store.save(Changes(**parts))


def _pieces(rows: Iterable[T]) -> Iterator[list[T]]:
    rows = iter(rows)
    while piece := list(islice(rows, PIECE)):
        yield piece
