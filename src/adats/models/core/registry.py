"""The models there are, by name. A model of your own is known everywhere once it is registered."""

from typing import Any, TypeVar

from adats.models.core.types import JsonDict, MetaBelief, MetaBeliefOf

M = TypeVar("M", bound=type[MetaBelief])

_MODELS: dict[str, type[MetaBelief]] = {}
NEEDED = tuple(name for name in vars(MetaBeliefOf) if not name.startswith("_"))


def register(cls: M) -> M:
    """Make a class of meta-beliefs known by its `NAME`; can be used as a decorator.

    Its objects then can be saved and loaded, simulated and served. Another class of the same name
    is refused, and so is one that lacks a method of `MetaBelief`.
    """
    missing = [name for name in ("NAME", *NEEDED) if not hasattr(cls, name)]
    if missing:
        raise ValueError(f"{cls.__name__} is no meta-belief: it lacks {', '.join(missing)}")
    known = _MODELS.setdefault(cls.NAME, cls)
    if known is not cls:
        raise ValueError(f"the name {cls.NAME!r} is taken by {known.__name__}")
    return cls


def registered(name: Any) -> type[MetaBelief]:
    """The class that is registered under a name."""
    try:
        return _MODELS[name]
    except (KeyError, TypeError):
        known = ", ".join(sorted(_MODELS))
        raise ValueError(f"unknown model {name!r}; known are {known}") from None


def meta_to_dict(meta: MetaBelief) -> JsonDict:
    """A meta-belief, with what it has learned, as plain JSON values."""
    if type(meta) not in _MODELS.values():
        raise ValueError(
            f"a file of priors cannot take this, of class {type(meta).__name__}: of an agent give "
            "agent.meta, or call agent.save(path); a class of your own has to be registered"
        )
    return meta.to_dict()


def meta_from_dict(data: JsonDict) -> MetaBelief:
    """The meta-belief back from `meta_to_dict`; everything is checked again."""
    return registered(data["model"]).from_dict(data)
