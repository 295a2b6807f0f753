"""Online classification: find the pictures of one class (paper, supplement)."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from adats.models import LatentLinearMeta, LinearMeta
from adats.models.core import checks
from adats.models.core.frozen import fill
from adats.models.core.types import FloatArray, IntArray, JsonDict, Rng
from adats.simulation.kernels.registry import register
from adats.simulation.problems.problem import BuiltInProblem, Instance, M, Start, first_of_features

POSITIVE, OTHER = 0.9, 0.1  # chances of a reward


@dataclass(frozen=True, eq=False)
class PictureInstance(Instance):
    """One task: `theta` and `features` are of all pictures, some of which are a round's arms."""

    images: IntArray = field(kw_only=True)  # (rounds, arms), numbers of pictures

    def rows(self, t: int) -> FloatArray:
        rows: FloatArray = self.features[self.images[t]]  # type: ignore[index]
        return rows

    def means(self, t: int) -> FloatArray:
        means: FloatArray = self.theta[self.images[t]]
        return means

    def number(self, t: int, arm: int) -> int:
        """The number of the picture."""
        return int(self.images[t, arm])


@dataclass(frozen=True, eq=False)
class PictureProblem(BuiltInProblem[M]):
    """Pictures of the `positive` class give Ber(0.9) rewards, all others Ber(0.1).

    The arms of a round are drawn from all pictures, none of them twice; where none is of the
    positive class and one is `sure` to be, a drawn arm gives way to a drawn picture of the class.
    The agents believe that theta ~ N(mu_*, task_cov) and mu_* ~ N(0, meta_scale² I); `mu` is what
    OracleTS takes for mu_*.
    """

    features: FloatArray  # one row a picture
    labels: IntArray
    positive: int
    mu: Any
    task_cov: ArrayLike
    arms: int = 30
    sure: bool = False
    meta_scale: float = 1.0
    name: ClassVar[str]
    chances: FloatArray = field(init=False, repr=False)  # of a reward, one a picture

    def __post_init__(self) -> None:
        features = checks.array("features", self.features, ndim=2)
        labels, arms = np.asarray(self.labels), checks.count_of("arms", self.arms)
        if labels.shape != features.shape[:1] or labels.dtype.kind not in "iu":
            raise ValueError(
                f"labels must be whole numbers, one for each of {len(features)} pictures; "
                f"got shape {labels.shape} of {labels.dtype}"
            )
        if arms > len(features):
            raise ValueError(f"{arms} arms a round, but only {len(features)} pictures")
        if not (labels == self.positive).any():
            raise ValueError(f"no picture has the positive class {self.positive!r}")
        fill(
            self,
            features=features,
            labels=labels,
            positive=int(self.positive),
            mu=checks.array("mu", self.mu),
            arms=arms,
            meta_scale=checks.non_negative_number("meta_scale", self.meta_scale),
            chances=np.where(labels == self.positive, POSITIVE, OTHER),
        )
        meta = self.meta()  # made here, so that all workers have the same to the last bit
        meta.prior_given(self.mu)  # raises if mu does not fit

    def describe(self) -> JsonDict:
        pictures, dim = self.features.shape
        settings = {"name": self.name, "pictures": pictures, "dim": dim}
        for setting in ("positive", "arms", "sure", "meta_scale"):
            settings[setting] = getattr(self, setting)
        return settings

    def instance(self, start: Start, rounds: int, rng: Rng) -> PictureInstance:  # noqa: ARG002
        images = subsets(len(self.features), self.arms, rounds, rng)
        if self.sure:
            positive = self.labels == self.positive
            without = np.flatnonzero(~positive[images].any(axis=1))
            places = rng.integers(self.arms, size=without.size)
            images[without, places] = rng.choice(np.flatnonzero(positive), size=without.size)
        return PictureInstance(self.chances, rng.random(rounds), self.features, images=images)

    def reward(self, mean: float, draw: float) -> float:
        return float(draw < mean)

    def first(self, start: Start) -> IntArray:
        return first_of_features(start)


@dataclass(frozen=True, eq=False)
class ClassificationProblem(PictureProblem[LinearMeta]):
    """The agents take rewards for N(aᵀtheta, noise²)."""

    noise: float = 0.1
    name: ClassVar[str] = "classification"

    def __post_init__(self) -> None:
        super().__post_init__()
        fill(self, task_cov=self.meta().task_cov, noise=self.meta().noise)

    def new_meta(self) -> LinearMeta:
        mean, variance = np.zeros(self.features.shape[1]), self.meta_scale**2
        return LinearMeta(mean, variance, task_cov=self.task_cov, noise=self.noise)

    def describe(self) -> JsonDict:
        return {**super().describe(), "noise": self.noise}


@dataclass(frozen=True, eq=False)
class LogisticClassification(PictureProblem[LatentLinearMeta]):
    """The agents take rewards for what they are, 0 or 1, with log-odds aᵀtheta.

    If the log-odds of a typical picture are not 0, one of the features has to be 1 everywhere.
    """

    name: ClassVar[str] = "logistic classification"

    def new_meta(self) -> LatentLinearMeta:
        mean, variance = np.zeros(self.features.shape[1]), self.meta_scale**2
        return LatentLinearMeta(mean, variance, task_cov=self.task_cov)


register(ClassificationProblem, "linear", play="classification.play")
register(
    LogisticClassification,
    "latent-linear",
    play="classification.play_logistic",
    renew="latent_rows.settled",
)


def subsets(of: int, size: int, count: int, rng: Rng) -> IntArray:
    """`count` rows of `size` different numbers below `of`, each set as likely (Floyd)."""
    last = np.arange(of - size, of)
    rows = rng.integers(last + 1, size=(count, size), dtype=np.intp)
    for i in range(size):
        again = (rows[:, :i] == rows[:, i : i + 1]).any(axis=1)
        rows[again, i] = last[i]
    return rows
