"""New frozen objects from parts that are known to be good, without checking them again."""

from typing import Any, TypeVar

T = TypeVar("T")


def unchecked(cls: type[T], **fields: Any) -> T:
    """An instance with these fields; `__init__` and its checks do not run."""
    new = object.__new__(cls)
    new.__dict__.update(fields)
    return new


def evolve(old: T, *, drop: tuple[str, ...] = (), **changes: Any) -> T:
    """A copy with some fields changed; `drop` names what was computed from the old ones."""
    fields = old.__dict__ | changes
    for name in drop:
        fields.pop(name, None)
    new = object.__new__(type(old))
    object.__setattr__(new, "__dict__", fields)
    return new
