"""Names of arms, and the models that take no design."""

from collections.abc import Sequence

import numpy as np

from adats.models.core.errors import InvalidValue
from adats.models.core.types import Arm, Design


def arm_names(arms: Sequence[Arm] | None) -> tuple[Arm, ...] | None:
    """Distinct names as a tuple."""
    if arms is None:
        return None
    if not hasattr(arms, "__iter__"):
        raise InvalidValue("arms", f"is a list of names, got {arms!r}")
    names = tuple(int(name) if isinstance(name, np.integer) else name for name in arms)
    if not names:
        raise InvalidValue("arms", "must not be empty")
    for name in names:
        if isinstance(name, bool) or not isinstance(name, (int, str)):
            raise ValueError(f"an arm's name is a string or an integer, got {name!r}")
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidValue("arms", f"must have different names, but {twice!r} comes twice")
    return names


def grown_names(
    names: tuple[Arm, ...] | None, name: Arm | None, like: int, count: int
) -> tuple[Arm, ...] | None:
    """Names with one more, for a new arm that starts like another."""
    if not 0 <= like < count:
        raise ValueError(f"there is no arm {like}: arms are 0 to {count - 1}")
    if (names is None) != (name is None):
        raise ValueError("give the new arm a name just where the others have names")
    return None if names is None or name is None else arm_names((*names, name))


def no_design(design: Design) -> None:
    if design is not None:
        raise ValueError("a design is for linear models; this model has arms")
