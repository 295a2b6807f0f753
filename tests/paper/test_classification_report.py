"""The classification experiments: estimates, what is written, and what the report says."""

import re
import xml.etree.ElementTree as ET
from dataclasses import replace

import numpy as np
import pytest
from pyarrow import parquet

from adats.paper.datasets import ImageData, Split
from adats.paper.experiments import EXPERIMENTS, image_priors, images, pipeline, reproduce
from adats.paper.experiments.image_claims import (
    CLAIMS,
    GAUSSIAN,
    LOGISTIC,
    PAPER,
    READINGS,
    mean_over_classes,
    most_alike,
)
from adats.paper.experiments.image_report import about_oracle
from adats.paper.experiments.images import IMAGES, Case, ImageSetting, positive_classes
from adats.paper.experiments.simulations import PAPER_AGENTS
from adats.simulation.learners import AGENTS as BUILT_IN
from adats.simulation.learners import label_of
from adats.simulation.simulate import simulate
from report_files import contents

RUNS = 4
SMALL = ImageSetting("Toys", rounds=12, arms=5, tasks=3, classes=3)
SURE = SMALL._replace(sure=True)


def toys(classes=5, each=30, side=3, seed=0):
    """Pictures of classes that overlap; their pixels are the features."""
    rng = np.random.default_rng(seed)
    centres = rng.random((classes, side, side)) * (rng.random((classes, side, side)) < 0.7)

    def split():
        labels = np.repeat(np.arange(classes), each)
        noise = 0.15 * rng.standard_normal((len(labels), side, side))
        images = np.clip(centres[labels] + noise, 0, 1).astype(np.float32)
        return Split(images, labels, images.reshape(len(labels), -1).astype(np.float64))

    return ImageData("toys", split(), split(), tuple("abcdefgh"[:classes]), "nine pixels")


@pytest.fixture(scope="module")
def small():
    """`digits` is a small experiment on toys."""
    pictures = toys()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(images, "load", lambda *_, **__: pictures)
        patch.setitem(EXPERIMENTS, "digits", replace(EXPERIMENTS["digits"], setting=SURE))
        patch.setattr(image_priors, "TRAINING_TASKS", 8)
        patch.setattr(image_priors, "TRAINING_ROUNDS", 40)
        yield pictures


@pytest.fixture(scope="module")
def done(small, tmp_path_factory):  # noqa: ARG001
    calls = []
    out = tmp_path_factory.mktemp("done") / "new" / "folder"
    path = reproduce(
        "digits", out=out, runs=RUNS, seed=3, progress=lambda *call: calls.append(call)
    )
    assert path == out / "report.md"
    assert calls == [("b", 1, 3), ("a", 2, 3), ("c", 3, 3)]
    return out


def rows(text):
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def section(text, head):
    return text.split(f"\n## {head}\n")[1].split("\n## ")[0]


# settings


def test_the_sizes_are_those_of_the_paper():
    assert [experiment.name for experiment in IMAGES] == ["digits", "mnist", "omniglot"]
    _, mnist, omniglot = (experiment.setting for experiment in IMAGES)
    assert (mnist.tasks, mnist.rounds, mnist.arms, mnist.sure) == (10, 200, 30, False)
    assert (omniglot.tasks, omniglot.rounds, omniglot.arms, omniglot.sure) == (10, 10, 10, True)


def test_positive_classes():
    assert positive_classes(toys(), 4, seed=1) == [1, 0, 2, 3]
    assert positive_classes(toys(classes=2), 4, seed=1) == [1, 0]
    many = replace(toys(), classes=tuple(map(str, range(659))))
    drawn = positive_classes(many, 10, seed=1)
    assert len(set(drawn)) == 10
    assert max(drawn) < 659
    assert drawn == positive_classes(many, 10, seed=1) != positive_classes(many, 10, seed=2)


# estimates


def test_the_reading_of_features_by_hand():
    prior = image_priors.of_features(np.array([[1.0, 0.0], [3.0, 0.0], [2.0, 6.0]]))
    np.testing.assert_allclose(prior.mu, [2.0, 2.0])
    np.testing.assert_allclose(prior.cov, [[1.0, 0.0], [0.0, 12.0]])


@pytest.fixture
def enough(monkeypatch):
    """Training tasks enough to learn from."""
    monkeypatch.setattr(image_priors, "TRAINING_TASKS", 100)
    monkeypatch.setattr(image_priors, "TRAINING_ROUNDS", 200)


@pytest.mark.statistical
@pytest.mark.usefixtures("enough")
def test_the_reading_of_logs_is_the_regression_over_random_pictures():
    images = toys()
    case = Case(images, SMALL, 1)
    fit = case.priors(seed=0)["fit"]
    train = images.train
    chances = np.where(train.labels == 1, 0.9, 0.1)
    best = np.linalg.lstsq(train.features, chances, rcond=None)[0]
    pulls = image_priors.TRAINING_TASKS * image_priors.TRAINING_ROUNDS
    gram = train.features.T @ train.features / len(train.labels) * pulls
    error = np.sqrt(np.diag(np.linalg.inv(gram)) * 0.25)  # a reward has variance 0.25 at most
    assert (np.abs(fit.mu - best) < 4 * error).all()
    spread = np.sqrt(((train.features @ fit.cov) * train.features).sum(axis=1)).mean()
    assert spread < 0.15  # tasks do not differ
    again = case.priors(seed=0)["fit"]
    np.testing.assert_array_equal(again.mu, fit.mu)
    assert not np.array_equal(case.priors(seed=1)["fit"].mu, fit.mu)


@pytest.mark.statistical
@pytest.mark.usefixtures("enough")
def test_the_logistic_reading_is_the_logistic_regression_over_the_same_logs():
    """Against Newton's method on all logs as one, with the meta-prior as its penalty."""
    images = toys()
    case = Case(images, SMALL, 1)
    found = case.priors(seed=0)["logistic"]
    assert found.cov[0, 0] <= 0.06**2  # tasks do not differ
    np.testing.assert_array_equal(found.cov, found.cov[0, 0] * np.eye(10))
    train = case.logistic(images.train, image_priors.ClassPrior(np.zeros(10), np.zeros(())))
    rng = np.random.default_rng(np.random.SeedSequence(0, spawn_key=(1, 0)))
    logs = list(image_priors.training_logs(train, rng))
    x, y = np.concatenate([log[0] for log in logs]), np.concatenate([log[1] for log in logs])
    mu, gram = np.zeros(10), np.eye(10)
    for _ in range(30):
        rate = 1 / (1 + np.exp(-x @ mu))
        gram = (x.T * (rate * (1 - rate))) @ x + np.eye(10)
        mu += np.linalg.solve(gram, x.T @ (y - rate) - mu)
    scale = np.sqrt(np.diag(np.linalg.inv(gram)))
    assert (np.abs(found.mu - mu) < 0.3 * scale).all()


@pytest.mark.statistical
@pytest.mark.usefixtures("enough")
def test_what_ada_ts_learned_in_training_makes_the_best_oracle():
    """The explanation in the report: the right mu, and no spread since tasks do not differ."""
    images = toys(classes=8, each=60, side=4, seed=2)
    setting = SMALL._replace(rounds=60, arms=12, tasks=5)
    options = {"runs": 20, "seed": 1, "workers": 1, "engine": "local"}
    totals = []
    for positive in (0, 1, 2):
        case = Case(images, setting, positive)
        priors = case.priors(seed=1)
        assert (priors["play"].cov == 0).all()
        told = case.oracle_regrets(priors, options)
        outcome = case.outcome("features", priors["features"], told, options)
        np.testing.assert_array_equal(told["features", "features"], outcome.total("oracle-ts"))
        totals.append((told["play", "none"], outcome.total("oracle-ts"), outcome.total("ada-ts")))
    best, oracle, ada = np.sum(totals, axis=0)
    for other in (oracle, ada):
        gap = other - best
        assert gap.mean() > 4 * gap.std(ddof=1) / np.sqrt(gap.size)


# the pictures that are pulled


def test_pulled_pictures_are_those_of_the_run_that_is_shown(small):
    case = Case(small, SURE, 1)
    prior = image_priors.of_features(small.train.features[small.train.labels == 1])
    options = {"runs": RUNS, "seed": 5, "workers": 1, "engine": "local"}
    outcome = case.outcome("features", prior, {}, options)
    problem = case.problem(small.test, prior)
    regret = simulate(problem, PAPER_AGENTS, tasks=3, rounds=12, detail="round", **options).regret
    for i, agent in enumerate(PAPER_AGENTS):
        wrong = small.test.labels[outcome.pulled[agent]] != 1
        np.testing.assert_allclose(regret[i, :, :, 0], np.where(wrong, 0.8, 0.0))
    assert set(outcome.pulled) == {*PAPER_AGENTS, "ada-ts-"}


def test_the_class_that_a_picture_resembles_most():
    images = toys()
    means = [images.train.images[images.train.labels == c].mean(axis=0) for c in range(5)]
    blurred = np.array([0.6 * means[c] + 0.1 * sum(means) for c in (3, 0, 4)])
    assert most_alike(blurred, images).tolist() == [3, 0, 4]


# what is written


def test_files(done):
    assert {path.name for path in done.iterdir()} == {
        *EXPERIMENTS["digits"].file_names(),
        "report.md",
    }
    for reading in READINGS:
        png = (done / f"digits-{reading}.png").read_bytes()
        assert png.startswith(b"\x89PNG")
        root = ET.parse(done / f"digits-{reading}.svg").getroot()
        space = "{http://www.w3.org/2000/svg}"
        assert len(list(root.iter(f"{space}image"))) == 3  # a sheet a class
        texts = {"".join(node.itertext()).strip() for node in root.iter(f"{space}text")}
        assert {"Toys: b", READINGS[reading], "AdaTS", "1", "2", "3"} <= texts


def test_tables_are_what_the_records_say(small, done):
    records = parquet.read_table(done / "records.parquet").to_pandas()
    columns = ["panel", "run", "task", "agent", "regret", "picture", "label"]
    assert list(records) == columns
    assert len(records) == 3 * 3 * 4 * RUNS * 3  # classes, readings, agents, runs, tasks
    assert (small.test.labels[records["picture"]] == records["label"]).all()
    text = (done / "report.md").read_text()
    head, _, *table = rows(section(text, "Total regret"))
    agents = {label_of(agent): agent for agent in BUILT_IN}
    totals = records.groupby(["panel", "agent", "run"])["regret"].sum()
    for label, *cells in table:
        for pretty, cell in zip(head[1:], cells, strict=True):
            if label.startswith("mean over 3 classes"):
                ending = label.split(", ")[1]
                mine = [p for p in records["panel"].unique() if p.endswith(f", {ending}")]
                assert len(mine) == 3
                of_runs = np.mean([totals[p, agents[pretty]] for p in mine], axis=0)
            else:
                of_runs = totals[label, agents[pretty]].to_numpy()
            se = of_runs.std(ddof=1) / np.sqrt(RUNS)
            assert cell == f"{of_runs.mean():.1f} ± {se:.1f}"
    assert len(table) == 3 + 3 * 3
    head, _, *table = rows(section(text, "Gaussian and logistic agents"))
    assert head[1:4] == list(READINGS)
    for label, *cells in table:
        of = {
            reading: np.mean(
                [totals[f"Toys: {c}, {reading}", agents[label]] for c in "abc"], axis=0
            )
            for reading in READINGS
        }
        assert [cell.split(" ± ")[0] for cell in cells] == [
            *(f"{of[reading].mean():.1f}" for reading in READINGS),
            *(f"{of['logistic'].mean() / of[reading].mean():.2f}" for reading in GAUSSIAN),
        ]
    head, _, *table = rows(section(text, "What is pulled first"))
    assert head == ["reading", "agent", "task 1", "task 2", "task 3"]
    positive = {"a": 0, "b": 1, "c": 2}
    records["right"] = [
        positive[panel.split(": ")[1].split(",")[0]] == label
        for panel, label in zip(records["panel"], records["label"], strict=True)
    ]
    shares = records.groupby([records["panel"].str.split(", ").str[1], "agent", "task"])["right"]
    for reading, pretty, *cells in table:
        if pretty != "AdaTS−":
            found = [shares.mean()[reading, agents[pretty], task] for task in (1, 2, 3)]
            assert cells == [f"{100 * share:.0f} %" for share in found]


def test_report_has_every_claim_and_every_reading(done):
    text = (done / "report.md").read_text()
    table = dict(rows(section(text, "Claims").split("###")[0])[2:])
    assert list(table) == [claim.text for claim in CLAIMS]
    readings = [*(GAUSSIAN for _ in PAPER), *(LOGISTIC for _ in PAPER), LOGISTIC]
    for i, (claim, some) in enumerate(zip(CLAIMS, readings, strict=True), 1):
        part = text.split(f"\n### {i}. {claim.text}\n")[1].split("\n##")[0]
        found = rows(part)[2:]
        assert {row[0] for row in found} == {f"mean over 3 classes, {r}" for r in some}
        lossless = [what.startswith("AdaTS / OracleTS") for _, what, _, _ in found]  # on toys
        for (_, _, measured, _), allowed in zip(found, lossless, strict=True):
            assert re.search(r"\d", measured) or (allowed and measured == "inf ± inf")
    readings = rows(section(text, "The readings of μ_0 and Σ_0"))[2:]
    assert [row[0] for row in readings] == list(READINGS.values())
    assert "nine pixels" in text
    assert "one is replaced by a drawn positive picture" in text


@pytest.mark.usefixtures("small")
def test_one_seed_gives_the_same_files_on_any_workers(tmp_path):
    def files(folder, **options):
        reproduce("digits", out=tmp_path / folder, runs=2, **options)
        return contents(tmp_path / folder)

    first = files("a", seed=7)
    assert first == files("b", seed=7, workers=2)
    assert first["records.parquet"] != files("c", seed=8)["records.parquet"]


def test_what_the_report_says_of_the_oracle(small):
    options = {"runs": RUNS, "seed": 5, "workers": 1, "engine": "local"}
    case = Case(small, SURE, 1)
    priors = case.priors(1)
    told = case.oracle_regrets(priors, options)
    outcome = case.outcome("features", priors["features"], told, options)
    pooled = mean_over_classes([outcome], "features")

    def says(*scores):
        found = []
        for oracle, ada in scores:
            regret = (
                np.ones_like(pooled.result.regret) * np.array([oracle, ada, 9, 9])[:, None, None]
            )
            found.append(replace(pooled, result=replace(pooled.result, regret=regret)))
        return about_oracle(found, [told])

    assert "loses to AdaTS under both readings" in says((3, 2), (3, 2))
    assert "loses to AdaTS under reading features:" in says((3, 2))
    assert "does not lose" in says((1, 2), (1, 2))


# what is refused


@pytest.mark.usefixtures("small")
def test_what_cannot_be_is_refused_before_anything_is_done(tmp_path, monkeypatch):
    for name, options, message in (
        ("cifar", {}, "unknown experiment 'cifar'; known are .*, digits, mnist, omniglot"),
        ("digits", {"runs": 1}, "runs .* 1"),
    ):
        with pytest.raises(ValueError, match=message):
            reproduce(name, out=tmp_path / "out", **options)
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="is a file"):
        reproduce("digits", out=tmp_path / "file")
    monkeypatch.setattr(pipeline, "has_numba", lambda: False)
    with pytest.raises(ValueError, match=r"pip install 'adats\[sim\]'"):
        reproduce("digits", out=tmp_path / "out")
    assert not (tmp_path / "out").exists()
