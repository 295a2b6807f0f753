"""Whose operation is next: that of whoever has had the least time.

Tenants share the time of the engine evenly, as far as they want it; and the experiments of a tenant
share what it gets. Time is measured, and paid after it was used: deficit round robin.
"""

import heapq
from collections import deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")

MOST_AWAY = 100  # accounts of those who wait for nothing now


class _Line(Generic[T]):
    """Things that wait under some names, each with an account of time."""

    def __init__(self) -> None:
        self.waiting: dict[str, T] = {}
        self._paid: dict[str, float] = {}
        self._order: list[tuple[float, str]] = []  # a heap; an account may be ahead of it
        self._now = 0.0  # the account of whose turn it was last

    def join(self, name: str, thing: T) -> None:
        """Who was away has not saved up time, and has not lost its debt."""
        self._paid[name] = max(self._paid.get(name, 0.0), self._now)
        self.waiting[name] = thing
        heapq.heappush(self._order, (self._paid[name], name))

    def first(self) -> str:
        while True:
            known, name = self._order[0]
            paid = self._paid[name]
            if known == paid:
                return name
            heapq.heapreplace(self._order, (paid, name))

    def take(self) -> T:
        """Of the first: it is its turn."""
        name = self.first()
        self._now = self._paid[name]
        return self.waiting[name]

    def leave(self) -> None:
        """The first has nothing more that waits. Of the accounts of others the deepest stay."""
        del self.waiting[heapq.heappop(self._order)[1]]
        if len(self._paid) > 2 * (len(self.waiting) + MOST_AWAY):
            away = (name for name in self._paid if name not in self.waiting)
            kept = {*self.waiting, *heapq.nlargest(MOST_AWAY, away, self._paid.__getitem__)}
            self._paid = {name: self._paid[name] for name in kept}

    def account(self, name: str) -> float:
        return self._paid.get(name, 0.0)

    def pay(self, name: str, seconds: float) -> None:
        self._paid[name] = max(self._paid.get(name, 0.0), self._now) + seconds


class FairQueue(Generic[T]):
    """Things that wait, by tenant and experiment."""

    def __init__(self) -> None:
        self._tenants: _Line[_Line[deque[T]]] = _Line()
        self._experiments: dict[str, _Line[deque[T]]] = {}
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def put(self, tenant: str, experiment: str, thing: T) -> None:
        line = self._experiments.get(tenant)
        if line is None:
            line = self._experiments[tenant] = _Line()
        if not line.waiting:
            self._tenants.join(tenant, line)
        if experiment in line.waiting:
            line.waiting[experiment].append(thing)
        else:
            line.join(experiment, deque((thing,)))
        self._size += 1

    def first(self) -> T:
        """What is next; it stays."""
        line = self._tenants.waiting[self._tenants.first()]
        return line.waiting[line.first()][0]

    def pop(self) -> T:
        return self.pop_while(lambda _: True, 1)[0]

    def pop_while(self, wanted: Callable[[T], bool], most: int) -> list[T]:
        """Of who is next, what is wanted, up to the first that is not. If nothing is, it is still
        the turn of who was last."""
        if not wanted(self.first()):
            return []
        line = self._tenants.take()
        things = line.take()
        found = [things.popleft()]
        while things and len(found) < most and wanted(things[0]):
            found.append(things.popleft())
        if not things:
            line.leave()
            if not line.waiting:
                self._tenants.leave()
        self._size -= len(found)
        return found

    def pay(self, tenant: str, experiment: str, seconds: float) -> None:
        """An operation took this long."""
        self._tenants.pay(tenant, seconds)
        self._experiments[tenant].pay(experiment, seconds)

    def has_had_more(self, one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
        """Whether one tenant and experiment has had more time than another, who may be away."""
        line, i = (self._experiments[one[0]], 1) if one[0] == other[0] else (self._tenants, 0)
        return line.account(one[i]) > line.account(other[i])
