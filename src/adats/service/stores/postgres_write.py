"""What a group of operations changes, as the rows that one statement writes.

Events get their ids here, in the order of their task. In an experiment that was taken they have
numbers already; in others the fold to come will have them.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from adats.service.stores.interface import (
    Bucket,
    Changes,
    Counts,
    DecisionKey,
    DecisionRow,
    LearnedReward,
    Reward,
    TaskKey,
)
from adats.service.stores.postgres_reader import UNFOLDED, all_learned, packed
from adats.service.stores.sqlite_rows import reward_column, text_of

Row = dict[str, Any]
_encode = msgspec.json.Encoder().encode


def as_json(value: Any) -> str:
    return _encode(value).decode()


class KnownTask(NamedTuple):
    id: int
    seq: int  # of the last event that changed it; 0: nothing has, it is only locked
    learned: str | None
    folded: int | None  # the event up to which it is folded
    queued: int | None = None  # the event up to which it is in the queue that was taken


class GroupRows:
    """The rows of a group. `known` are its tasks, `settled` the ends of windows that were there."""

    def __init__(
        self,
        changes: Changes,
        known: dict[TaskKey, KnownTask],
        settled: Mapping[int, int | None],
        taken: Mapping[int, int],
        next_id: Callable[[], int],
    ) -> None:
        self._changes, self._known, self._taken = changes, known, taken
        self._settled, self._next = settled, next_id
        self._ids: dict[Any, int] = {}
        self._firsts: dict[TaskKey, int] = {}
        self._last: dict[TaskKey, int] = {}
        self._number()
        self.made, self.later = self._decisions()
        self._told = [self._reward(i) for i in range(len(changes.rewards))]
        self._used, self._folded = self._tasks()
        have = tasks_of(changes)
        self.unused = [t.id for key, t in known.items() if not t.seq and key not in have]

    def values(self) -> Row | None:
        """For `sql.WRITE`; None if there is nothing to write."""
        parts = {
            "made": self.made,
            "later": self.later,
            "told": self._told,
            "used": self._used,
            "folded_first": [row for known, row in self._folded if known.folded is None],
            "folded_again": [row for known, row in self._folded if known.folded is not None],
            "folds": self._folds(),
            "queued": [] if self._taken else self._queued(),
        }
        if not (any(parts.values()) or self.unused):
            return None
        return {name: as_json(part) for name, part in parts.items()} | {"unused": self.unused}

    def proof(self) -> Row | None:
        """The events by which it can be told whether all this was written."""
        events = self.made + self._told
        if not events:
            return None
        ids, times = [event["id"] for event in events], [event["at"] for event in events]
        of = [event["d"] for event in self._told]
        return {"ids": ids, "of": of, "from": min(times), "to": max(times)}

    def _number(self) -> None:
        """Ids of new events, by decision, by place of the reward, and of windows' ends."""
        changes = self._changes
        events: list[tuple[int, int, str, int, Any]] = []
        for key, row in changes.decisions.items():
            if not row.id:
                events.append((row.experiment, row.version, row.task, row.place, key))
            if row.settled is not None and self._settled.get(row.id) is None:
                at = (row.experiment, row.settled, row.task, row.settled_place)
                events.append((*at, (key, "settled")))
        for i, (key, reward) in enumerate(changes.rewards):
            task = changes.decisions[key].task if key in changes.decisions else ""  # a copy
            events.append((reward.experiment, reward.version, task, reward.place, i))
        events.sort(key=lambda event: event[:4])
        for experiment, _, task, _, key in events:
            self._ids[key] = self._last[experiment, task] = self._next()
            self._firsts.setdefault((experiment, task), self._ids[key])

    def _decisions(self) -> tuple[list[Row], list[Row]]:
        made, later = [], []
        for key, row in self._changes.decisions.items():
            settled, place = row.settled, row.settled_place
            end = self._ids.get((key, "settled"))
            if end is not None and row.experiment not in self._taken:
                settled, place = UNFOLDED, end
            values = {"id": row.id or self._ids[key], "s": settled, "sp": place}
            values |= _later_part(row)
            if row.id:
                later.append(values)
            else:
                made.append(values | _first_part(row) | self._where(key, row))
        return made, later

    def _where(self, key: DecisionKey, row: DecisionRow) -> Row:
        """A new decision's task, its place, and the event of its task that it knew of last."""
        task, own = (row.experiment, row.task), self._ids[key]
        known = self._known[task]
        if row.experiment in self._taken:
            return {"task": known.id, "p": row.place, "after": 0}
        after = 0 if known.seq == (known.folded or 0) else known.seq
        if own != self._firsts[task]:  # what this very group has learned before
            after = own
        return {"task": known.id, "p": own, "after": after}

    def _reward(self, i: int) -> Row:
        (key, row), own = self._changes.rewards[i], self._ids[i]
        taken = row.experiment in self._taken
        return {
            "id": own,
            "e": row.experiment,
            "v": row.version if taken else None,
            "d": row.decision or self._ids[key],
            "r": reward_text(row.reward),
            "n": row.reward_id,
            "at": row.time,
            "p": row.place if taken else own,
            "m": _optional(row.metrics),
        }

    def _tasks(self) -> tuple[list[Row], list[tuple[KnownTask, Row]]]:
        """As they are now, and as they are in what all taught."""
        used: list[Row] = []
        folded: list[tuple[KnownTask, Row]] = []
        for key, state in self._changes.tasks.items():
            known, taken = self._known[key], key[0] in self._taken
            seq = self._last.get(key, known.seq) or self._next()
            if taken and known.queued is None and key not in self._last and known.folded:
                seq = known.folded  # others may have changed it since; that is folded later
            row = {"id": known.id, "seq": seq, "n": state.rounds, "p": state.pending}
            design = None if known.seq else state.design  # it never changes
            if not taken:
                new = self._changes.learned.get(key, ())
                used.append(row | {"l": _learned(known, new, seq), "d": design})
                continue
            if key in self._last or not known.seq:
                used.append(row | {"l": None, "d": design})
            row |= {"e": key[0], "s": packed(state.stats)}
            folded.append((known, row | {"g": state.generation, "z": state.size}))
        return used, folded

    def _folds(self) -> list[Row]:
        """Up to which event tasks are in the version that ends what was queued."""
        return [
            {"id": known.id, "seq": known.queued, "v": self._taken[experiment] + 1}
            for (experiment, _), known in self._known.items()
            if known.queued is not None
        ]

    def _queued(self) -> list[Row]:
        counts: dict[int, list[Any]] = {}
        for bucket, own in self._changes.counts.items():
            counts.setdefault(bucket.experiment, []).append(counts_row(bucket, own)[1:])
        tasks: dict[int, set[int]] = {}
        for key in tasks_of(self._changes):
            tasks.setdefault(key[0], set()).add(self._known[key].id)
        ids = self._ids.values()
        ends = {"first": min(ids, default=0), "last": max(ids, default=0)}
        return [
            ends
            | {"e": e, "ids": as_json(sorted(tasks.get(e, ())))}
            | {"counts": as_json(counts.get(e, []))}
            | progress._asdict()
            for e, progress in self._changes.progress.items()
        ]


def tasks_of(changes: Changes) -> set[TaskKey]:
    """That are changed, or have events."""
    return {(row.experiment, row.task) for row in changes.decisions.values()} | set(changes.tasks)


def _learned(known: KnownTask, new: Iterable[LearnedReward], seq: int) -> str | None:
    """What is not folded yet, each with the event that has it."""
    left: list[Any] = []
    if known.learned:
        left = [one for one in all_learned(known.learned) if one[0] > (known.folded or 0)]
    several = list(new)
    left += [(seq, several)] if several else []
    return as_json(left) if left else None


def reward_text(reward: Reward) -> str:
    kept = reward_column(reward)
    return kept if isinstance(kept, str) else as_json(float(kept) + 0.0)


def _optional(value: Any) -> str | None:
    return None if value is None else as_json(value)


def _first_part(row: DecisionRow) -> dict[str, Any]:
    return {
        "e": row.experiment,
        "v": row.version,
        "name": row.decision_id,
        "a": as_json(row.action),
        "f": row.features,
        "q": row.request,
        "c": as_json(row.propensity),
        "sv": row.state_version,
        "pv": row.prior_version,
        "at": row.time,
        "x": row.explored,
        "h": row.holdout,
        "kept": row.kept,
    }


def _later_part(row: DecisionRow) -> dict[str, Any]:
    return {
        "due": row.due,
        "k": row.received,
        "r": _optional(row.reward),
        "n": _optional(row.counted),
        "m": _optional(row.metrics),
    }


def counts_row(bucket: Bucket, counts: Counts) -> list[Any]:
    return [*bucket, *counts[:6], text_of(counts.sum), text_of(counts.squares)]
