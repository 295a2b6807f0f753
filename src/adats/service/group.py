"""What a group of operations has read of a store, and what it changes there, until it is saved.

Operations see what earlier ones of their group have done. Nothing is written before the end.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from adats.service import counters
from adats.service.stores.interface import (
    BeliefRow,
    ChangeRow,
    Changes,
    Counts,
    DecisionKey,
    DecisionRow,
    ExperimentRow,
    Keys,
    LearnedReward,
    Progress,
    RewardKey,
    RewardRow,
    Store,
    Taken,
    TaskKey,
    TaskRow,
)


class _Name(NamedTuple):
    """What a reward is known by: its id, or else its value."""

    reward_id: str | None
    value: float | tuple[float, ...] | None
    metrics: tuple[tuple[str, float], ...] = ()


@dataclass(slots=True)
class _Earlier:
    """Rewards of one decision that came before."""

    by_name: dict[_Name, RewardRow] = field(default_factory=dict)
    last: RewardRow | None = None

    def add(self, row: RewardRow) -> None:
        self.by_name[_name(row)] = self.last = row

    def mattering_to(self, asked: RewardKey) -> list[RewardRow]:
        same = self.by_name.get(_name(asked))
        return [row for row in (same, self.last) if row is not None]


class Group:
    """The work on a store between `begin` and `save`."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.clear()

    def clear(self) -> None:
        self._changes = Changes()
        self._tasks: dict[TaskKey, TaskRow | None] = {}
        self._decisions: dict[DecisionKey, DecisionRow | None] = {}
        self._asked: set[tuple[int, str, _Name]] = set()
        self._earlier: dict[DecisionKey, _Earlier] = {}
        self._learned: dict[TaskKey, tuple[LearnedReward, ...]] = {}
        self._last: dict[TaskKey, DecisionRow | None] = {}  # decisions, of tasks that were asked

    # reading

    def load(self, keys: Keys) -> dict[int, ExperimentRow | None]:
        """Read what is not known yet, all at once; the experiments that have another version."""
        tasks = [key for key in keys.tasks if key not in self._tasks]
        decisions = [key for key in keys.decisions if key not in self._decisions]
        asked_for = {_known_by(key): key for key in keys.rewards}
        rewards = {name: key for name, key in asked_for.items() if name not in self._asked}
        if not (tasks or decisions or rewards or keys.experiments):
            return {}
        found = self._store.load(Keys(tasks, decisions, rewards.values(), keys.experiments))
        for task in tasks:
            self._tasks[task] = found.tasks.get(task)
        for task, state in found.tasks.items():  # those of decisions come with them
            self._tasks.setdefault(task, state)
        for task, learned in found.learned.items():
            self._learned.setdefault(task, learned)
        self._asked.update(rewards)
        decisions += [name[:2] for name in rewards]
        for key in decisions:
            row = found.decisions.get(key)
            if row is not None and (row.experiment, row.task) in self._changes.forgotten:
                row = None
            self._decisions.setdefault(key, row)
        for key, several in found.rewards.items():
            made = self._earlier.get(key)
            known = self._earlier[key] = _Earlier()
            for reward in several:
                known.add(reward)
            if made is not None:  # of this group: after those of the store
                known.by_name |= made.by_name
                known.last = made.last
        return found.experiments

    def take(self, experiment: int, *, wait: bool = True) -> Taken | None:
        """Keep others from folding an experiment, and read what is to be folded."""
        taken = self._store.take(experiment, wait=wait)
        if taken is not None:
            for known in (self._tasks, self._learned):  # others may have folded them since
                for key in [key for key in known if key[0] == experiment]:
                    del known[key]
            for task, row in taken.tasks.items():
                self._tasks[experiment, task] = row
                self._learned[experiment, task] = taken.learned.get(task, ())
        return taken

    def experiment(self, tenant: str, name: str) -> ExperimentRow | None:
        stored = self._store.experiment(tenant, name)
        if stored is not None and stored.id in self._changes.deleted:
            return None
        for row in self._changes.experiments.values():
            if (row.tenant, row.name) == (tenant, name):
                if row.total is None and stored is not None:
                    return row._replace(total=stored.total)
                return row
        return stored

    def task(self, experiment: int, task: str) -> TaskRow | None:
        key = (experiment, task)
        changed = self._changes.tasks.get(key)
        if changed is not None:
            return changed
        self.load(Keys(tasks=(key,)))
        return self._tasks[key]

    def learned(self, experiment: int, task: str) -> tuple[LearnedReward, ...]:
        """Of the task as it was read, since it was folded last."""
        return self._learned.get((experiment, task), ())

    def stale_tasks(
        self, experiment: int, generation: int, after: tuple[int, str], limit: int
    ) -> list[tuple[int, str]]:
        """As in `Reader`, with what this group has changed."""
        own = {task: row for (e, task), row in self._changes.tasks.items() if e == experiment}
        more = limit + len(own) + len(self._changes.forgotten)
        stored = self._store.stale_tasks(experiment, generation, after, more)
        gone = {task for e, task in self._changes.forgotten if e == experiment}
        found = [(g, task) for g, task in stored if task not in own and task not in gone]
        for task, row in own.items():
            if row.generation is not None and row.generation < generation:
                place = (row.generation, task)
                found += [place] if place > after else []
        return sorted(found)[:limit]

    def unfolded_tasks(self, experiment: int, total_version: int) -> list[tuple[str, TaskRow]]:
        """As in `Reader`, with what this group has changed."""
        found = dict(self._store.unfolded_tasks(experiment, total_version))
        for (of, task), row in self._changes.tasks.items():
            if of == experiment and row.folded_in == total_version:
                found[task] = row
        return sorted(found.items())

    def decision(self, experiment: int, decision_id: str) -> DecisionRow | None:
        key = (experiment, decision_id)
        if key not in self._decisions:
            self.load(Keys(decisions=(key,)))
        return self._decisions[key]

    def known_decision(self, row: DecisionRow) -> DecisionRow | None:
        """A row of the store, as it is by now."""
        return self._decisions.setdefault((row.experiment, row.decision_id), row)

    def earlier_rewards(self, asked: RewardKey) -> list[RewardRow]:
        """Those that can matter to this one, in order; see `Loaded`."""
        self.load(Keys(rewards=(asked,)))
        known = self._earlier.get((asked.experiment, asked.decision_id))
        return [] if known is None else known.mattering_to(asked)

    def decisions_of(self, experiment: int, task: str) -> list[DecisionRow]:
        """All of a task, in order."""
        stored: list[DecisionRow] = []
        if (experiment, task) not in self._changes.forgotten:
            stored = self._store.decisions_of(experiment, task)
        known = [self._decisions.get((experiment, row.decision_id)) or row for row in stored]
        new = [
            row
            for row in self._changes.decisions.values()
            if not row.id and (row.experiment, row.task) == (experiment, task)
        ]
        return known + sorted(new, key=lambda row: (row.version, row.place))

    def last_decision(self, experiment: int, task: str) -> DecisionRow | None:
        """Of a task, as it was made."""
        key = (experiment, task)
        if key not in self._last:
            stored = self._store.decisions_of(experiment, task, 1)
            self._last[key] = stored[0] if stored else None
        return self._last[key]

    # changing

    def put_decision(self, row: DecisionRow, days_until: int) -> None:
        """A new decision, or another state of one that was there."""
        key = (row.experiment, row.decision_id)
        old = self._decisions.get(key)
        if old is None:
            counters.tally(self._changes.counts, row, days_until)
            if (row.experiment, row.task) in self._last:
                self._last[row.experiment, row.task] = row
        elif (old.reward, old.counted, old.metrics) != (row.reward, row.counted, row.metrics):
            counters.tally_change(self._changes.counts, old, row, days_until)
        self._decisions[key] = self._changes.decisions[key] = row

    def add_reward(self, decision_id: str, row: RewardRow) -> None:
        key = (row.experiment, decision_id)
        self._changes.rewards.append((key, row))
        self._earlier.setdefault(key, _Earlier()).add(row)

    def put_task(self, experiment: int, task: str, row: TaskRow) -> None:
        self._changes.tasks[experiment, task] = row

    def put_learned(self, experiment: int, task: str, learned: list[LearnedReward]) -> None:
        """What is to be folded later."""
        self._changes.learned[experiment, task] = learned

    def put_progress(self, experiment: int, progress: Progress) -> None:
        self._changes.progress[experiment] = progress

    def put_experiment(self, row: ExperimentRow) -> None:
        known = self._changes.experiments.get(row.id)
        if known is not None and row.total is None:
            row = row._replace(total=known.total)
        self._changes.experiments[row.id] = row

    def add_belief(self, row: BeliefRow) -> None:
        self._changes.beliefs.append(row)

    def count_by_days(self, experiment: int, until: int) -> None:
        """Make days of the hours before `until`, which were hours up to now."""
        counts, own = self._changes.counts, self._store.counts(experiment)
        for bucket, difference in counts.items():
            if bucket.experiment == experiment:
                own[bucket] = own.get(bucket, Counts()).plus(difference)
        for bucket, difference in counters.by_days(own, until).items():
            counts[bucket] = counts.get(bucket, Counts()).plus(difference)

    def delete(self, experiment: int) -> None:
        self._changes.deleted.append(experiment)

    def add_change(self, row: ChangeRow) -> None:
        self._changes.changes.append(row)

    def forget(self, experiment: int, task: str, days_until: int) -> list[DecisionRow]:
        """Take out all of a task; the decisions that are gone."""
        gone, changes = self.decisions_of(experiment, task), self._changes
        for row in gone:
            key = (experiment, row.decision_id)
            counters.tally(changes.counts, row, days_until, -1)
            self._decisions[key] = None
            changes.decisions.pop(key, None)
            self._earlier.pop(key, None)
        names = {(experiment, row.decision_id) for row in gone}
        changes.rewards = [pair for pair in changes.rewards if pair[0] not in names]
        changes.tasks.pop((experiment, task), None)
        self._tasks[experiment, task] = self._last[experiment, task] = None
        changes.forgotten.append((experiment, task))
        return gone

    def changes(self) -> Changes:
        """All that is to be saved, in the order of events: by commit, task and place."""
        changes, known = self._changes, self._decisions

        def order(item: tuple[DecisionKey, DecisionRow | RewardRow]) -> tuple[int, int, str, int]:
            key, row = item
            return row.experiment, row.version, known[key].task, row.place  # type: ignore[union-attr]

        changes.decisions = dict(sorted(changes.decisions.items(), key=order))
        changes.rewards.sort(key=order)
        return changes


def _name(row: RewardRow | RewardKey) -> _Name:
    if row.reward_id is not None:
        return _Name(row.reward_id, None)
    value = tuple(row.reward) if isinstance(row.reward, list) else row.reward
    return _Name(None, value, tuple(sorted(row.metrics.items())) if row.metrics else ())


def _known_by(key: RewardKey) -> tuple[int, str, _Name]:
    return key.experiment, key.decision_id, _name(key)
