"""The paper's online classification on MNIST and Omniglot, and on scikit-learn's digits."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple, TypedDict

import numpy as np

from adats import plots
from adats.models.core.types import Rng
from adats.paper.datasets import ImageData, Split, load
from adats.paper.experiments import image_report, records
from adats.paper.experiments.figures import chart
from adats.paper.experiments.image_claims import (
    CLAIMS,
    GAUSSIAN,
    READINGS,
    ClassOutcome,
    OracleRegrets,
    of_reading,
)
from adats.paper.experiments.image_priors import (
    ClassPrior,
    of_clicks,
    of_features,
    of_logs,
    of_play,
)
from adats.paper.experiments.panels import Options, Outcome, Panel, outcome_of
from adats.paper.experiments.report_text import ReportParts
from adats.paper.experiments.simulations import PAPER_AGENTS
from adats.paper.experiments.spec import (
    Advance,
    Drawings,
    Experiment,
    ExperimentPart,
    RunRequest,
    Tables,
)
from adats.plots.pictures import pictures_figure
from adats.simulation.problems.classification import (
    ClassificationProblem,
    LogisticClassification,
)
from adats.simulation.simulate import simulate

SHOWN = 4  # classes in the figures
RIVAL = "AdaTS, Gaussian, reading (b)"  # in the figure of logistic agents
PICTURE_AGENTS = (*PAPER_AGENTS, "ada-ts-")  # whose first pictures are kept


class Sizes(TypedDict):
    tasks: int
    rounds: int


class ImageSetting(NamedTuple):
    """The sizes of one experiment."""

    title: str
    rounds: int
    arms: int
    sure: bool = False  # at least one arm of the positive class in every round
    tasks: int = 10
    classes: int = SHOWN

    def sizes(self) -> Sizes:
        return {"tasks": self.tasks, "rounds": self.rounds}


def positive_classes(images: ImageData, count: int, seed: int) -> list[int]:
    """Class 1, then 0, 2, 3 and so on; of more than a hundred classes, some that the seed draws."""
    labels = range(len(images.classes))
    if len(labels) > 100:
        return [int(label) for label in np.random.default_rng(seed).permutation(labels)[:count]]
    return sorted(labels, key=lambda label: label != 1)[:count]


class Case(NamedTuple):
    """One positive class."""

    images: ImageData
    setting: ImageSetting
    positive: int

    def problem(self, split: Split, prior: ClassPrior) -> ClassificationProblem:
        data, (mu, cov) = (split.features, split.labels, self.positive), prior
        return ClassificationProblem(*data, mu, cov, arms=self.setting.arms, sure=self.setting.sure)

    def logistic(self, split: Split, prior: ClassPrior) -> LogisticClassification:
        """The same for agents that take rewards for 0 or 1; one more feature is 1."""
        features = np.column_stack([split.features, np.ones(len(split.labels))])
        data, (mu, cov) = (features, split.labels, self.positive), prior
        return LogisticClassification(
            *data, mu, cov, arms=self.setting.arms, sure=self.setting.sure
        )

    def priors(self, seed: int) -> dict[str, ClassPrior]:
        """The readings of μ_0 and Σ_0, and what AdaTS learns on the training half."""
        train = self.images.train
        plain = of_features(train.features[train.labels == self.positive])
        nothing = ClassPrior(np.zeros_like(plain.mu), np.zeros_like(plain.cov))
        practice = self.problem(train, nothing)
        clicks = self.logistic(train, ClassPrior(np.zeros(plain.mu.size + 1), np.zeros(())))

        def rng(use: int) -> Rng:
            key = (self.positive, use)
            return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))

        return {
            "features": plain,
            "fit": of_logs(practice, rng(0)),
            "logistic": of_clicks(clicks, rng(0)),
            "play": of_play(practice, rng(1)),
        }

    def outcomes(self, options: Options, advance: Advance) -> list[ClassOutcome]:
        """All agents under every reading."""
        priors = self.priors(options["seed"])
        oracle = self.oracle_regrets(priors, options)
        found = [self.outcome(reading, priors[reading], oracle, options) for reading in READINGS]
        advance(1)
        return found

    def outcome(
        self, reading: str, prior: ClassPrior, oracle: OracleRegrets, options: Options
    ) -> ClassOutcome:
        """All agents under one reading."""
        make = self.problem if reading in GAUSSIAN else self.logistic
        problem = make(self.images.test, prior)
        title = f"{self.setting.title}: {self.images.classes[self.positive]}, {reading}"
        panel = Panel(title, lambda: problem, PAPER_AGENTS, **self.setting.sizes())
        sizes = self.setting.sizes()
        result = simulate(problem, PICTURE_AGENTS, **sizes, **options, detail="round", record=True)
        assert result.actions is not None
        first = dict(zip(PICTURE_AGENTS, result.actions[..., 0], strict=True))
        return ClassOutcome(
            **vars(outcome_of(panel, result.of(PAPER_AGENTS))),
            images=self.images,
            reading=reading,
            positive=self.positive,
            prior=prior,
            pulled=first,
            oracle=oracle,
        )

    def oracle_regrets(self, priors: dict[str, ClassPrior], options: Options) -> OracleRegrets:
        """Gaussian OracleTS told each μ_0, with the spread of the class and with none."""
        spreads = {"features": priors["features"].cov, "none": priors["play"].cov}
        regrets = {}
        for mean in (*GAUSSIAN, "play"):
            for spread, cov in spreads.items():
                problem = self.problem(self.images.test, ClassPrior(priors[mean].mu, cov))
                result = simulate(problem, ["oracle-ts"], **self.setting.sizes(), **options)
                regrets[mean, spread] = result.total("oracle-ts")
        return regrets


@dataclass(frozen=True, kw_only=True)
class ImageExperiment(Experiment):
    """Online classification with several positive classes, one after another."""

    setting: ImageSetting

    def called(self, data_name: str) -> "ImageExperiment":
        setting = self.setting._replace(title=data_name)
        return replace(self, setting=setting, title=_title(setting))

    def steps(self, runs: int) -> int:  # noqa: ARG002
        """Progress counts classes."""
        return self.setting.classes

    def parts(self, request: RunRequest) -> list[ExperimentPart]:
        """A part a class; the images are read, and features learned where they have to be."""
        learning = None
        if request.progress is not None:
            learning = partial(request.progress, "learning features")
        images = load(self.name, request.data, progress=learning)
        classes = positive_classes(images, self.setting.classes, request.options["seed"])
        cases = [Case(images, self.setting, positive) for positive in classes]
        return [
            ExperimentPart(images.classes[case.positive], partial(case.outcomes, request.options))
            for case in cases
        ]

    def figures(self) -> Drawings:
        return {f"{self.name}-{reading}": partial(_figure, reading) for reading in READINGS}

    def tables(self) -> Tables:
        return {"records": _records, "curves": records.curves}

    def report_parts(self, outcomes: Sequence[Outcome]) -> ReportParts:
        return image_report.report_parts(self.name, outcomes)


def _figure(reading: str, outcomes: Sequence[Outcome]) -> "plots.Figure":
    some = of_reading(reading, outcomes)[:SHOWN]
    charts = [
        replace(chart(o), title=o.panel.title.removesuffix(f", {reading}"), note=READINGS[reading])
        for o in some
    ]
    if reading not in GAUSSIAN:
        rivals = [chart(o).curves["ada-ts"] for o in of_reading("fit", outcomes)[:SHOWN]]
        charts = [
            replace(drawn, curves={**drawn.curves, RIVAL: rival})
            for drawn, rival in zip(charts, rivals, strict=True)
        ]
    pictures = [
        {agent: o.images.test.images[o.pulled[agent]].mean(axis=0) for agent in PAPER_AGENTS}
        for o in some
    ]
    return pictures_figure(charts, pictures)


def _records(outcomes: Sequence[Outcome]) -> records.Columns:
    """The records, and which picture was pulled first in each task."""
    some = [o for o in outcomes if isinstance(o, ClassOutcome)]
    pulled = np.ravel([[o.pulled[agent] for agent in PAPER_AGENTS] for o in some])
    labels = some[0].images.test.labels[pulled]
    return {**records.records(outcomes), "picture": pulled, "label": labels}


def _title(setting: ImageSetting) -> str:
    return f"Online classification: {setting.title}"


def _experiment(name: str, setting: ImageSetting, *, takes_files: bool) -> ImageExperiment:
    return ImageExperiment(
        name=name,
        title=_title(setting),
        claims=CLAIMS,
        runs=20,
        needs_numba=True,
        takes_files=takes_files,
        setting=setting,
    )


DIGITS = ImageSetting("Digits of scikit-learn", rounds=200, arms=30)
MNIST = ImageSetting("MNIST", rounds=200, arms=30)
OMNIGLOT = ImageSetting("Omniglot", rounds=10, arms=10, sure=True, classes=10)
IMAGES = (
    _experiment("digits", DIGITS, takes_files=False),
    _experiment("mnist", MNIST, takes_files=True),
    _experiment("omniglot", OMNIGLOT, takes_files=True),
)
