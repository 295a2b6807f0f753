"""Frozen objects from parts that are known to be good, without checking them again."""

from collections.abc import Callable
from dataclasses import fields
from functools import cache
from typing import Any, Generic, TypeVar

T = TypeVar("T")

put = object.__setattr__  # a field of a frozen object that is just being made


def fill(new: T, **values: object) -> T:
    """Set fields of a frozen object that is just being made."""
    for name, value in values.items():
        put(new, name, value)
    return new


def setters(cls: Any) -> tuple[Callable[[object, object], None], ...]:
    """One for each field of a frozen class with slots, to be used as `put` is; twice as quick."""
    return tuple(getattr(cls, field.name).__set__ for field in fields(cls))


def unchecked(cls: type[T], **values: object) -> T:
    """An instance with these fields; `__init__` and its checks do not run."""
    return fill(object.__new__(cls), **values)


def evolve(old: T, **changes: object) -> T:
    """A copy with some fields changed; what was worked out from the old ones is not copied."""
    cls: Any = type(old)
    new: T = object.__new__(cls)
    for name in _field_names(cls):
        put(new, name, changes[name] if name in changes else getattr(old, name))
    return new


@cache
def _field_names(cls: Any) -> tuple[str, ...]:
    return tuple(field.name for field in fields(cls))


class FieldOf(Generic[T]):
    """A field of a part, as if it were the object's own: `noise = FieldOf[float]("scales")`."""

    def __init__(self, part: str) -> None:
        self._part, self._name = part, ""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: object, owner: type | None = None) -> T:
        found: T = getattr(getattr(instance, self._part), self._name)
        return found
