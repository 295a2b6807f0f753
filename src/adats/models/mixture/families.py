"""The families of which candidates can be, by the names that files have."""

from typing import TypeVar

from adats.models.beta.belief import BetaArms
from adats.models.core.product import ProductArms
from adats.models.gamma.belief import ExponentialArms, PoissonArms
from adats.models.gaussian.belief import GaussianArms

P = TypeVar("P", bound=type[ProductArms])

FAMILIES: dict[str, type[ProductArms]] = {
    cls.__name__: cls for cls in (BetaArms, PoissonArms, ExponentialArms, GaussianArms)
}


def register_arms(cls: P) -> P:
    """Make arms of your own known to files by the name of their class; a decorator."""
    known = FAMILIES.setdefault(cls.__name__, cls)
    if known is not cls:
        raise ValueError(f"the name {cls.__name__!r} is taken by other arms")
    return cls
