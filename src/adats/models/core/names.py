"""Names of arms, and designs: what models make of them before they are theirs."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from adats.models.core import checks
from adats.models.core.errors import InvalidValue
from adats.models.core.types import Arm, Design, FloatArray


def arm_names(arms: Sequence[Arm] | None, count: int | None = None) -> tuple[Arm, ...] | None:
    """Distinct names as a tuple, of so many arms if their `count` is known."""
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
    if count is not None and len(names) != count:
        raise ValueError(f"{len(names)} names for {count} arms")
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


def checked_design(design: ArrayLike, p: int) -> FloatArray:
    """A matrix that makes the mean of theta from mu, which has p entries."""
    phi = checks.array("design", design, ndim=2)
    if phi.shape[1] != p or len(phi) == 0:
        raise ValueError(f"design must have {p} columns, as mean has, got shape {phi.shape}")
    return phi
