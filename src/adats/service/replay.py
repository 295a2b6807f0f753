"""The log of a store played again into an empty one: every decision is made anew and compared.

Where digests are approximate and a task was forgotten, they remember where it had them made, and so
do decisions after it. Then decisions may have moved, and the state is the same but for that.
"""

import math
from collections.abc import Callable, Iterator
from functools import partial
from heapq import merge
from itertools import groupby, zip_longest
from typing import Any, NamedTuple

import msgspec
import numpy as np

from adats.models.core.types import FloatArray, MetaBelief
from adats.service.arm_changes import Change
from adats.service.engine import Engine
from adats.service.errors import Refusal
from adats.service.messages import DecisionRequest, RewardRequest
from adats.service.past import Past
from adats.service.rules import of_no_arm, when_due
from adats.service.served_experiment import ServedExperiment
from adats.service.snapshot import Snapshot
from adats.service.stores.interface import DecisionRow, ExperimentRow, ReadView, Store, TaskRow

COMMITS_IN_ONE = 1000  # commits of the log in one transaction
TOLERANCE = 1e-9  # relative: what is left of the order of sums
ALIKE = 0.1  # standard deviations: what is left of digests made elsewhere
CHOICE_FIELDS = (
    "action",
    "features",
    "state_version",
    "prior_version",
    "holdout",
    "explored",
    "kept",
)
COUNTERS = ("tasks", "decisions", "counted")
OUTCOME_FIELDS = ("decision_id", "received", "reward", "counted", "settled", "due", "metrics")
UNPLAYABLE = (Refusal, LookupError, ValueError)  # what a changed log may raise


class Replayed(NamedTuple):
    """What was found."""

    events: int
    decisions: int
    changed: list[str]  # decisions that come out otherwise than they are logged
    moved: int  # the same, but a task was forgotten whose data they may have used
    differences: list[str]  # between the state of the store and that of the replay

    @property
    def same(self) -> bool:
        return not (self.changed or self.differences)


class _Event(NamedTuple):
    version: int
    task: str
    place: int
    kind: str
    row: Any


def replay(
    source: ReadView, target: Store, *, progress: Callable[[int], None] = lambda _: None
) -> Replayed:
    """Play all experiments of `source` into `target`, which is empty."""
    time = _Clock()
    engine = Engine(target, clock=time.now)
    events = decisions = moved = 0
    changed: list[str] = []
    differences: list[str] = []
    for row in source.experiments():
        engine.begin()
        player = _Player(engine, row, time, _last_forgotten(source, row.id))
        if target.many_writers:
            _commit(engine)
            player.begin()
        if source.many_writers:  # a decision may be of an earlier version than the fold it is in
            engine.served(row.tenant, row.name).past = Past()
        loosely = player.forgotten > 0 and engine.served(row.tenant, row.name).snapshot.meta.RENEWS
        for version, together in groupby(_events(source, row), lambda event: event.version):
            player.start(version)
            for event in together:
                try:
                    same = player.play(event)
                except UNPLAYABLE as error:
                    differences.append(f"{row.name}: event {version}, {event.kind}: {error}")
                    same = True
                events += 1
                decisions += event.kind == "decide"
                if not same and (loosely or version < player.forgotten):
                    moved += 1
                elif not same:
                    changed.append(f"{row.name}: {event.row.decision_id}")
            player.end()
            if player.commits % COMMITS_IN_ONE == 0:
                _commit(engine)
                progress(events)
                player.begin()
        if source.many_writers:  # the last fold may have had no event that is left
            played = engine.served(row.tenant, row.name)
            played.number(max(played.snapshot.version, row.version))
        _commit(engine)
        with target.view() as replayed:
            differences += compare(source, replayed, row, loosely=loosely)
    return Replayed(events, decisions, changed, moved, differences)


class _Clock:
    """It shows the time of the event that is played."""

    def __init__(self) -> None:
        self.time = 0.0

    def now(self) -> float:
        return self.time


class _Player:
    """The events of one experiment; `forgotten` is the number of the last that forgot a task."""

    def __init__(self, engine: Engine, row: ExperimentRow, time: _Clock, forgotten: int) -> None:
        self._engine, self._time = engine, time
        self._name = (row.tenant, row.name)
        self._ids: dict[int, str] = {}  # of decisions, by the number that the source has for them
        self.forgotten, self.commits = forgotten, 0
        id = engine.store.new_experiment()
        engine.add_experiment(ExperimentRow(id, row.tenant, row.name, row.spec, row.seed))
        engine.served(*self._name)  # so that it is written, even if nothing has happened

    def begin(self) -> None:
        self._engine.begin()
        self._engine.take(*self._name)

    def start(self, version: int) -> None:
        """The next commit; those in between were of tasks that are forgotten."""
        self._engine.served(*self._name).number(version - 1)

    def end(self) -> None:
        self._engine.end_commit(*self._name)
        self.commits += 1

    def play(self, event: _Event) -> bool:
        """False if a decision comes out otherwise."""
        row = event.row
        match event.kind:
            case "decide":
                self._ids[row.id] = row.decision_id
                self._time.time = row.time
                return self._decide(row)
            case "reward":
                self._time.time = row.time
                told = (row.reward, row.reward_id, row.metrics)
                request = RewardRequest(self._ids[row.decision], *told)
                self._engine.reward(*self._name, request)
            case "settle":
                self._engine.settle(*self._name, row.decision_id)
            case "arm":
                change = msgspec.json.decode(row.data, type=Change)
                self._time.time = row.time
                self._engine.change_arm(*self._name, change)
            case "status":
                self._time.time = row.time
                self._engine.change_status(*self._name, msgspec.json.decode(row.data, type=str))
            case "forget":  # what it took out is not in the log any more
                self._time.time = row.time
                self._engine.note_forgotten(*self._name)
        return True

    def _decide(self, row: DecisionRow) -> bool:
        engine, served = self._engine, self._engine.served(*self._name)
        asked = {} if row.request is None else msgspec.json.decode(row.request)
        request = DecisionRequest(row.task, row.decision_id, **asked)
        before = served.task_cache.get(row.task)
        last = engine.last_decision(served, request)
        made = served.decide(request, row.decision_id, engine.now(), last, row.state_version)
        if made.action != row.action:  # what was done counts
            served.record_decision(row, before)
        due = when_due(served.spec, row.time, served.snapshot.setup.counts_pending)
        fresh = row._replace(
            id=0,
            experiment=made.experiment,
            due=due,
            settled_place=0,
            settled=None,
            received=0,
            reward=None,
            counted=None,
            metrics=None,
        )
        engine.add_decision(served, of_no_arm(fresh, served.spec) if row.action == [] else fresh)
        return all(
            getattr(made, name) == getattr(row, name) for name in CHOICE_FIELDS
        ) and _close_numbers(made.propensity, row.propensity)


def _last_forgotten(source: ReadView, experiment: int) -> int:
    return max((c.version for c in source.changes(experiment) if c.kind == "forget"), default=0)


def _events(source: ReadView, row: ExperimentRow) -> Iterator[_Event]:
    """All events in order: by commit, then task, then their place in it; not what is not folded."""
    experiment, newest = row.id, row.version if source.unfolded(row.id) else math.inf
    tasks: dict[int, str] = {}
    settled: list[_Event] = []
    for made in source.decisions(experiment):
        tasks[made.id] = made.task
        if made.settled is not None:
            settled.append(_Event(made.settled, made.task, made.settled_place, "settle", made))
    merged = merge(
        (
            _Event(row.version, row.task, row.place, "decide", row)
            for row in source.decisions(experiment)
        ),
        (
            _Event(row.version, tasks.get(row.decision, ""), row.place, "reward", row)
            for row in source.rewards(experiment)
        ),
        (_Event(row.version, "", 0, row.kind, row) for row in source.changes(experiment)),
        sorted(settled, key=_order),
        key=_order,
    )
    return (event for event in merged if event.version <= newest)


def _order(event: _Event) -> tuple[int, str, int]:
    return event.version, event.task, event.place


def _commit(engine: Engine) -> None:
    engine.flush()
    engine.commit()


def compare(
    left: ReadView, right: ReadView, row: ExperimentRow, *, loosely: bool = False
) -> list[str]:
    """Where two stores differ in what they know of an experiment.

    Digests may differ `loosely`: statistics are the same without them.
    """
    other = right.experiment(row.tenant, row.name)
    if other is None:
        return [f"{row.name}: it is not there"]
    found = []
    for name in ("spec", "seed", "version", "prior_version", "arms", "status", *COUNTERS):
        if getattr(row, name) != getattr(other, name):
            found.append(f"{row.name}: {name}")
    known, again = _taught(left, row), _taught(right, other)
    last = max(known.time, again.time)  # of one it may be that of a task which is forgotten
    alike = _alike if loosely else _close_sums
    if not alike(known.at(last).meta, again.at(last).meta):
        found.append(f"{row.name}: what all tasks taught")
    close = partial(_close_stats, known) if loosely else _close_bytes
    theirs = dict(right.tasks(other.id))
    changing = left.unfolded(row.id)
    for task, state in left.tasks(row.id):
        own = theirs.pop(task, None)
        if task in changing and own is not None:
            own = own._replace(rounds=state.rounds, pending=state.pending)
        if own is None or own.rounds != state.rounds or not close(own.stats, state.stats):
            found.append(f"{row.name}: task {task}")
        elif not _close_bytes(own.pending or b"", state.pending or b""):
            found.append(f"{row.name}: pending pulls of task {task}")
    found += [f"{row.name}: task {task}" for task in theirs]
    newest = row.version if changing else math.inf
    folded = (one for one in left.decisions(row.id) if one.version <= newest)
    for one, two in zip_longest(folded, right.decisions(other.id)):
        if one is None or two is None:
            found.append(f"{row.name}: decision {(one or two).decision_id} is in one of them")
            break
        if one.task in changing:
            continue
        if any(getattr(one, name) != getattr(two, name) for name in OUTCOME_FIELDS):
            found.append(f"{row.name}: reward of decision {one.decision_id}")
    return found


def _taught(view: ReadView, row: ExperimentRow) -> Snapshot:
    """With the sum of all messages, and what tasks have learned since it was written."""
    return ServedExperiment(row, view).snapshot


def _close_bytes(left: bytes, right: bytes) -> bool:
    return left == right or _close_numbers(np.frombuffer(left), np.frombuffer(right))


def _close_stats(snapshot: Snapshot, left: bytes, right: bytes) -> bool:
    """Without what they were digested to."""
    one, two = (snapshot.state_of(TaskRow(side, 0, None)) for side in (left, right))
    if one.time != two.time:
        return False
    between = (one.stats - two.stats).flat()
    return _close_numbers(between, np.zeros(between.size))


def _close_sums(one: MetaBelief, two: MetaBelief) -> bool:
    if one.generation == two.generation and one.at_generation(one.generation) is not None:
        return _close_numbers(_figures(one), _figures(two))  # the anchor is of no account yet
    return _close_numbers(one.sums(), two.sums())


def _figures(meta: MetaBelief) -> FloatArray:
    prior = meta.task_prior()
    return np.concatenate([prior.mean, prior.scale, [meta.log_evidence()]])


def _alike(one: MetaBelief, two: MetaBelief) -> bool:
    """Whether they are nearly the same prior."""
    other, own = one.task_prior(), two.task_prior()
    return bool((np.abs(own.mean - other.mean) <= ALIKE * own.scale).all())


def _close_numbers(left: Any, right: Any) -> bool:
    return np.shape(left) == np.shape(right) and bool(
        np.allclose(left, right, TOLERANCE, TOLERANCE)
    )
