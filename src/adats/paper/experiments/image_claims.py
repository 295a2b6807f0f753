"""What came out of online classification, for a class and for all, and the claims about it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import sqrt

import numpy as np

from adats.models.core.types import FloatArray, IntArray
from adats.paper.datasets import ImageData
from adats.paper.experiments.claims import BELOW, COMPARABLE_TO_ORACLE, MINIMUM, Claim
from adats.paper.experiments.image_priors import ClassPrior
from adats.paper.experiments.measures import (
    Measure,
    Measures,
    all_of,
    beside,
    lower,
    standard_error,
)
from adats.paper.experiments.panels import Outcome

GAUSSIAN = {
    "features": "(a) mean and covariance of the class's features",
    "fit": "(b) fit over logged training tasks",
}
LOGISTIC = {"logistic": "(c) logistic: rewards taken for 0 or 1, fit over the same tasks"}
READINGS = {**GAUSSIAN, **LOGISTIC}
OracleRegrets = Mapping[tuple[str, str], FloatArray]  # of each run, by the μ_0 and Σ_0 it is told


@dataclass(frozen=True, eq=False)
class ClassOutcome(Outcome):
    """What came out for one positive class under one reading."""

    images: ImageData
    reading: str
    positive: int
    prior: ClassPrior
    pulled: dict[str, IntArray]  # by agent, (runs, tasks): the picture pulled in round 1
    oracle: OracleRegrets  # of OracleTS, whatever the reading


@dataclass(frozen=True, eq=False)
class MeanOverClasses(Outcome):
    """The mean over all classes under one reading."""

    reading: str
    right: dict[str, FloatArray]  # (runs, tasks): share of positive pictures pulled in round 1
    alike: int  # classes that AdaTS's average picture of task 2 resembles most
    classes: int


def of_reading(reading: str, outcomes: Sequence[Outcome]) -> list[ClassOutcome]:
    return [o for o in outcomes if isinstance(o, ClassOutcome) and o.reading == reading]


def mean_over_classes(outcomes: Sequence[Outcome], reading: str) -> MeanOverClasses:
    some = of_reading(reading, outcomes)
    first, images = some[0], some[0].images
    labels = images.test.labels
    pictures = [images.test.images[o.pulled["ada-ts"][:, 1]].mean(axis=0) for o in some]
    alike = most_alike(np.array(pictures), images) == [o.positive for o in some]
    return MeanOverClasses(
        replace(first.panel, title=f"mean over {len(some)} classes, {reading}"),
        replace(first.result, regret=np.mean([o.result.regret for o in some], axis=0)),
        first.at,
        np.mean([o.mean for o in some], axis=0),
        np.full_like(first.se, np.nan),  # not drawn
        reading=reading,
        right={
            agent: np.mean([labels[o.pulled[agent]] == o.positive for o in some], axis=0)
            for agent in first.pulled
        },
        alike=int(alike.sum()),
        classes=len(some),
    )


def most_alike(pictures: FloatArray, images: ImageData) -> IntArray:
    """The class whose mean training picture correlates most with each picture."""
    train = images.train
    means = [train.images[train.labels == c].mean(axis=0) for c in range(len(images.classes))]
    found = np.corrcoef(pictures.reshape(len(pictures), -1), np.reshape(means, (len(means), -1)))
    closest: IntArray = found[: len(pictures), len(pictures) :].argmax(axis=1)
    return closest


def _resembles(outcomes: Sequence[Outcome]) -> Iterator[Measure]:
    for o in outcomes:
        if isinstance(o, MeanOverClasses):
            share = o.right["ada-ts"][:, 1]
            value, se = float(share.mean()), standard_error(share)
            figure = f"{100 * value:.0f} ± {100 * se:.0f} %"
            freedom = share.size - 1
            yield Measure(
                o.panel.label, "positive pictures", figure, value, se, low=0.5, freedom=freedom
            )
            yield _resembled(o)


def _resembled(o: MeanOverClasses) -> Measure:
    """Of few classes, so the standard error counts one more of either kind (Agresti and Coull)."""
    value, near = o.alike / o.classes, (o.alike + 1) / (o.classes + 2)
    se = sqrt(near * (1 - near) / (o.classes + 2))
    what, figure, freedom = "classes resembled", f"{o.alike} of {o.classes}", max(o.classes - 1, 1)
    return Measure(o.panel.label, what, figure, value, se, low=0.5, freedom=freedom)


def _under(readings: Mapping[str, str], measures: Measures) -> Measures:
    """The measures of these readings alone."""

    def some(outcomes: Sequence[Outcome]) -> Iterator[Measure]:
        return measures(
            [o for o in outcomes if isinstance(o, MeanOverClasses) and o.reading in readings]
        )

    return some


def _logistic_beside_gaussian(outcomes: Sequence[Outcome]) -> Iterator[Measure]:
    pooled = {o.reading: o for o in outcomes if isinstance(o, MeanOverClasses)}
    for logistic in LOGISTIC:
        for reading in GAUSSIAN:
            for agent in pooled[logistic].panel.agents:
                than = f"the Gaussian one, {reading}"
                yield beside(pooled[logistic], pooled[reading], agent, than)


PAPER = (
    Claim(
        "“AdaTS learns a very good meta-parameter μ_* almost instantly, since its average digit / "
        "character in task 2 already resembles the unknown highly-rewarding digit / character”",
        "of the pictures that AdaTS pulls in round 1 of task 2 at least half are of the positive "
        "class; and for at least half of the classes their average correlates more with the mean "
        "training picture of the class than with that of any other class",
        _resembles,
    ),
    Claim(
        "with a meta-prior that is “not selected in any dataset-specific way”, AdaTS “still works "
        "well”",
        f"AdaTS has lower regret than TS and than MetaTS: {BELOW}",
        all_of(lower("ada-ts", "ts"), lower("ada-ts", "meta-ts")),
    ),
    COMPARABLE_TO_ORACLE,
    MINIMUM,
)
CLAIMS = (
    *(replace(claim, measures=_under(GAUSSIAN, claim.measures)) for claim in PAPER),
    *(
        Claim(
            f"Agents that take rewards for 0 or 1: {claim.text}",
            claim.rule,
            _under(LOGISTIC, claim.measures),
        )
        for claim in PAPER
    ),
    Claim(
        "Every agent has lower regret if it takes rewards for 0 or 1 than if for Gaussian",
        BELOW,
        _logistic_beside_gaussian,
    ),
)
