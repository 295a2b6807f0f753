"""What models that are made of others answer from their parts."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from adats.models.core.meta import MetaBase
from adats.models.core.types import Arm, Design, Digest, FloatArray, MetaBelief
from adats.models.ensemble.belief import BeliefMixture

D = TypeVar("D", bound=Digest[Any])


class MadeOfParts(MetaBase[Any, D], Generic[D]):
    """All parts see the same statistics, of the same arms."""

    @property
    @abstractmethod
    def parts(self) -> tuple[MetaBelief, ...]:
        """The models that it is made of."""

    @property
    def model(self) -> str:
        return self.parts[0].model

    @property
    def arms(self) -> tuple[Arm, ...] | None:  # type: ignore[override]
        return self.parts[0].arms

    @property
    def n_arms(self) -> int:
        return self.parts[0].n_arms

    @property
    def n_features(self) -> int:
        return self.parts[0].n_features

    @property
    def has_design(self) -> bool:
        return any(part.has_design for part in self.parts)

    def empty(self, *, design: Design = None) -> Any:
        return self.parts[0].empty(design=design)

    @abstractmethod
    def task_prior(self, *, design: Design = None) -> BeliefMixture:
        """Of theta in a new task."""

    @property
    def mean(self) -> FloatArray:
        """Of theta in a new task."""
        return self.task_prior().mean


def check_alike(models: Sequence[MetaBelief]) -> None:
    """Models that are parts of one must be of the same rewards and arms."""
    empties = [model.empty() for model in models]
    if len({(type(e), e.flat().size) for e in empties}) != 1:
        raise ValueError("models must have the same kind of rewards and the same arms")
    if len({m.arms for m in models}) != 1:
        raise ValueError("models must have the same names of arms")
