"""The paper's online classification on MNIST and Omniglot, and on scikit-learn's digits."""

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from adats import plots
from adats.models.core.checks import count_of
from adats.models.core.files import write_bytes
from adats.models.core.types import Rng
from adats.paper.datasets import ImageData, Split, load
from adats.paper.experiments.catalogue import FOUR
from adats.paper.experiments.class_claims import READINGS, ClassOutcome
from adats.paper.experiments.class_priors import Prior, of_features, of_logs, of_play
from adats.paper.experiments.class_report import Told, class_report, file_names
from adats.paper.experiments.panels import Panel, run_panel
from adats.paper.experiments.run import (
    Progress,
    chart,
    check_folder,
    curves,
    parquet_bytes,
    records,
)
from adats.plots.pictures import pictures_figure
from adats.simulation import simulate
from adats.simulation.kernels.registry import has_numba
from adats.simulation.problems.classification import ClassificationProblem

SHOWN = 4  # classes in the figures
PULLS = (*FOUR, "ada-ts-")  # agents whose first pictures are kept


class Setting(NamedTuple):
    """The sizes of one experiment."""

    title: str
    rounds: int
    arms: int
    sure: bool = False  # at least one arm of the positive class in every round
    tasks: int = 10
    classes: int = SHOWN

    def sizes(self) -> dict[str, Any]:
        return {"tasks": self.tasks, "rounds": self.rounds}


SETTINGS = {
    "mnist": Setting("MNIST", rounds=200, arms=30),
    "omniglot": Setting("Omniglot", rounds=10, arms=10, sure=True, classes=10),
    "digits": Setting("Digits of scikit-learn", rounds=200, arms=30),
}


def reproduce_classification(
    name: str,
    *,
    data: str | os.PathLike[str] | None = None,
    out: Path,
    runs: int = 20,
    seed: int = 1,
    workers: int = 1,
    engine: str = "local",
    progress: Progress | None = None,
) -> Path:
    """Run `mnist`, `omniglot` or `digits` and return the path of the report.

    Nothing is written before all is computed. `data` is a folder with the files of the dataset.
    `progress` gets what is being done, how much of it is done and how much there is.
    """
    if name not in SETTINGS:
        raise ValueError(f"unknown experiment {name!r}; known are {', '.join(SETTINGS)}")
    count_of("runs", runs, least=2)  # of one run there is no standard error
    out = Path(out)
    check_folder(out)
    plots.need()
    parquet_bytes()
    if not has_numba():
        raise ValueError("classification needs Numba: pip install 'adats[sim]'")
    learning = None if progress is None else partial(progress, "learning features")
    images = load(name, data, progress=learning)
    chosen = positive_classes(images, SETTINGS[name].classes, seed)
    options = {"runs": runs, "seed": seed, "workers": workers, "engine": engine}
    outcomes: list[ClassOutcome] = []
    told: list[Told] = []
    for i, positive in enumerate(chosen):
        case = Case(images, SETTINGS[name], positive)
        priors = case.priors(seed)
        outcomes += [case.run(reading, priors[reading], options) for reading in READINGS]
        told.append(case.told(priors, options))
        if progress is not None:
            progress(images.classes[positive], i + 1, len(chosen))
    title = SETTINGS[name].title
    text = class_report(name, title, images, outcomes, told, workers=workers, engine=engine)
    files = dict(zip(file_names(name), _data(outcomes, images, chosen[:SHOWN]), strict=True))
    out.mkdir(parents=True, exist_ok=True)
    for file, content in {**files, "report.md": text.encode()}.items():
        write_bytes(out / file, content)
    return out / "report.md"


def positive_classes(images: ImageData, count: int, seed: int) -> list[int]:
    """Class 1, then 0, 2, 3 and so on; of more than a hundred classes, some that the seed draws."""
    labels = range(len(images.classes))
    if len(labels) > 100:
        return [int(label) for label in np.random.default_rng(seed).permutation(labels)[:count]]
    return sorted(labels, key=lambda label: label != 1)[:count]


class Case(NamedTuple):
    """One positive class."""

    images: ImageData
    setting: Setting
    positive: int

    def problem(self, split: Split, prior: Prior) -> ClassificationProblem:
        data, (mu, cov) = (split.features, split.labels, self.positive), prior
        return ClassificationProblem(*data, mu, cov, arms=self.setting.arms, sure=self.setting.sure)

    def priors(self, seed: int) -> dict[str, Prior]:
        """The readings of μ_0 and Σ_0, and what AdaTS learns on the training half."""
        train = self.images.train
        plain = of_features(train.features[train.labels == self.positive])
        practice = self.problem(train, Prior(np.zeros_like(plain.mu), np.zeros_like(plain.cov)))

        def rng(use: int) -> Rng:
            key = (self.positive, use)
            return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))

        return {
            "features": plain,
            "fit": of_logs(practice, rng(0)),
            "play": of_play(practice, rng(1)),
        }

    def run(self, reading: str, prior: Prior, options: dict[str, Any]) -> ClassOutcome:
        """All agents under one reading."""
        problem = self.problem(self.images.test, prior)
        title = f"{self.setting.title}: {self.images.classes[self.positive]}, {reading}"
        sizes = self.setting.sizes()
        outcome = run_panel(Panel(title, lambda: problem, FOUR, **sizes), problem, **options)
        again = simulate(problem, PULLS, record=True, **sizes, **options)
        assert again.actions is not None
        pulled = dict(zip(PULLS, again.actions[..., 0], strict=True))
        return ClassOutcome(
            **vars(outcome), reading=reading, positive=self.positive, prior=prior, pulled=pulled
        )

    def told(self, priors: dict[str, Prior], options: dict[str, Any]) -> Told:
        """Regrets of OracleTS for each μ_0, with the spread of the class and with none."""
        spreads = {"features": priors["features"].cov, "none": priors["play"].cov}
        regrets = {}
        for mean, prior in priors.items():
            for spread, cov in spreads.items():
                problem = self.problem(self.images.test, Prior(prior.mu, cov))
                result = simulate(problem, ["oracle-ts"], **self.setting.sizes(), **options)
                regrets[mean, spread] = result.total("oracle-ts")
        return regrets


def _data(outcomes: Sequence[ClassOutcome], images: ImageData, shown: Sequence[int]) -> list[bytes]:
    """The files of `file_names`."""
    files = []
    for reading, what in READINGS.items():
        some = [o for o in outcomes if o.reading == reading and o.positive in shown]
        charts = [
            replace(chart(o), title=o.panel.title.removesuffix(f", {reading}"), note=what)
            for o in some
        ]
        pictures = [
            {agent: images.test.images[o.pulled[agent]].mean(axis=0) for agent in FOUR}
            for o in some
        ]
        figure = pictures_figure(charts, pictures)
        files += [plots.rendered(figure, "png"), plots.rendered(figure, "svg")]
    table = records(outcomes)
    table["picture"] = np.ravel([[o.pulled[agent] for agent in FOUR] for o in outcomes])
    table["label"] = images.test.labels[table["picture"]]
    return [*files, parquet_bytes(table), parquet_bytes(curves(outcomes))]
