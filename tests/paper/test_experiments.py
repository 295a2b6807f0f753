"""The paper's experiments: what they run, what they write, and how claims are judged."""

import json
import re
import sys
import time
import xml.etree.ElementTree as ET
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from pyarrow import parquet

from adats.paper.experiments import (
    ALL,
    EXPERIMENTS,
    Panel,
    claims,
    measures,
    pipeline,
    reproduce,
    total_steps,
)
from adats.paper.experiments.claims import Claim, judge
from adats.paper.experiments.measures import LEVEL, Measure, ratio, slope, z_score
from adats.paper.experiments.panels import run_panel
from adats.paper.experiments.report_text import TIMING
from adats.paper.experiments.simulations import PAPER_AGENTS, SPREAD_AGENTS, WIDTH_AGENTS
from adats.simulation.learners import AGENTS as BUILT_IN
from adats.simulation.learners import label_of
from adats.simulation.problems import GaussianProblem
from report_files import contents

RUNS = 3


@pytest.fixture(scope="module")
def everything(tmp_path_factory):
    """All experiments with few runs: the folder, and the calls for progress."""
    calls = []
    out = tmp_path_factory.mktemp("all") / "new" / "folder"
    path = reproduce("all", out=out, runs=RUNS, seed=5, progress=lambda *call: calls.append(call))
    assert path == out / "report.md"
    return out, calls


@pytest.fixture
def small(monkeypatch):
    """A small experiment named `mixture`, and nothing else."""
    panel = Panel("small", GaussianProblem, PAPER_AGENTS, tasks=3, rounds=7)
    experiment = replace(
        EXPERIMENTS["mixture"],
        panels=(panel, replace(panel, explore_first=True)),
        runs=4,
    )
    monkeypatch.setattr(pipeline, "EXPERIMENTS", {"mixture": experiment})


def rows(text):
    """Cells of the Markdown tables in a text."""
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def section(text, head):
    return text.split(f"\n## {head}\n")[1].split("\n## ")[0]


# What is run


def test_the_experiments_are_those_of_the_paper_and_three_more():
    own = ["semibandit", "mixture", "unknown-spread"]
    assert list(ALL) == ["synthetic", "gaussian", "linear", *own]
    for experiment in (EXPERIMENTS[name] for name in ALL):
        assert experiment.runs == 1000
        assert len({panel.label for panel in experiment.panels}) == len(experiment.panels)
        assert {(panel.tasks, panel.rounds) for panel in experiment.panels} == {(20, 200)}


def test_the_settings_are_those_of_the_paper():
    def seen(name, *keys):
        found = []
        for panel in EXPERIMENTS[name].panels:
            settings = panel.problem().describe()
            assert (settings["task_scale"], settings["noise"]) == (0.1, 1.0)
            kind = (settings["name"], *(settings.get(key) for key in keys))
            found.append((*kind, settings["meta_scale"], panel.explore_first))
        return set(found)

    assert seen("synthetic", "dim", "arms") == {
        *(("gaussian", None, 2, s, first) for s in (0.5, 1.0) for first in (False, True)),
        *(("linear", 2, 10, 1.0, first) for first in (False, True)),
    }
    assert seen("gaussian", "arms") == {
        ("gaussian", k, s, first) for k in (2, 4, 8) for s in (0.5, 1.0) for first in (False, True)
    }
    assert seen("linear", "dim", "arms") == {
        ("linear", d, 5 * d, s, first)
        for d in (2, 4, 8)
        for s in (0.5, 1.0)
        for first in (False, True)
    }
    agents = {n: {p.agents for p in EXPERIMENTS[n].panels} for n in ALL}
    assert agents["gaussian"] == agents["linear"] == {WIDTH_AGENTS}
    assert agents["synthetic"] == agents["semibandit"] == agents["mixture"] == {PAPER_AGENTS}
    assert agents["unknown-spread"] == {SPREAD_AGENTS}


def test_total_runs():
    assert total_steps("synthetic") == 6000
    assert total_steps("gaussian", 10) == 120
    assert total_steps("all", 2) == 2 * sum(len(EXPERIMENTS[n].panels) for n in ALL)


# What is written


def test_progress_counts_every_run_once(everything):
    _, calls = everything
    total = total_steps("all", RUNS)
    done = [0, *(call[1] for call in calls)]
    assert {call[2] for call in calls} == {total}
    assert done[-1] == total
    assert all(a < b for a, b in pairwise(done))
    labels = [panel.label for n in ALL for panel in EXPERIMENTS[n].panels]
    assert list(dict.fromkeys(call[0] for call in calls)) == list(dict.fromkeys(labels))


@pytest.mark.parametrize("name", ALL)
def test_files(everything, name):
    folder = everything[0] / name
    assert {path.name for path in folder.iterdir()} == {
        *EXPERIMENTS[name].file_names(),
        "report.md",
    }
    png = (folder / f"{name}.png").read_bytes()
    assert png.startswith(b"\x89PNG")
    assert len(png) > 50_000
    drawn = list(ET.parse(folder / f"{name}.svg").iter("{http://www.w3.org/2000/svg}path"))
    panels = EXPERIMENTS[name].panels
    assert len(drawn) > sum(2 * len(panel.agents) for panel in panels)  # lines and bands


@pytest.mark.parametrize("name", ALL)
def test_report_has_every_claim(everything, name):
    text = (everything[0] / name / "report.md").read_text()
    table = dict(rows(section(text, "Claims").split("###")[0])[2:])
    assert list(table) == [claim.text for claim in EXPERIMENTS[name].claims]
    assert set(table.values()) <= {"**holds**", "**undecided**", "**does not hold**"}
    for i, claim in enumerate(EXPERIMENTS[name].claims, 1):
        part = text.split(f"\n### {i}. {claim.text}\n")[1].split("\n##")[0]
        assert f"{table[claim.text]}. Rule: {claim.rule}." in part
        found = rows(part)[2:]
        assert found
        assert all(re.search(r"\d|inf", measured) for _, _, measured, _ in found)


@pytest.mark.parametrize("name", ALL)
def test_table_is_what_the_records_say(everything, name):
    folder = everything[0] / name
    records = parquet.read_table(folder / "records.parquet").to_pandas()
    curves = parquet.read_table(folder / "curves.parquet").to_pandas()
    assert list(records) == ["panel", "run", "task", "agent", "regret"]
    assert list(curves) == ["panel", "task", "round", "agent", "mean", "se"]
    assert len(records) == sum(RUNS * 20 * len(panel.agents) for panel in EXPERIMENTS[name].panels)
    totals = records.groupby(["panel", "agent", "run"])["regret"].sum()
    head, _, *table = rows(section((folder / "report.md").read_text(), "Total regret"))
    assert [row[0] for row in table] == [panel.label for panel in EXPERIMENTS[name].panels]
    agents = {label_of(agent): agent for agent in BUILT_IN}
    for label, *cells in table:
        for pretty, cell in zip(head[1:], cells, strict=True):
            of_runs = totals[label, agents[pretty]].to_numpy()
            se = of_runs.std(ddof=1) / np.sqrt(RUNS)
            assert cell == f"{of_runs.mean():.1f} ± {se:.1f}"
            curve = curves[(curves["panel"] == label) & (curves["agent"] == agents[pretty])]
            last = curve.iloc[-1]
            assert (last["task"], last["round"]) == (20, 200)
            assert last["mean"] == pytest.approx(of_runs.mean())
            assert last["se"] == pytest.approx(se)


def test_curves_accumulate_within_tasks(everything):
    curves = parquet.read_table(everything[0] / "synthetic" / "curves.parquet").to_pandas()
    one = curves[(curves["panel"] == curves["panel"][0]) & (curves["agent"] == "ts")]
    assert list(zip(one["task"], one["round"], strict=True)) == [
        (task, at) for task in range(1, 21) for at in range(10, 201, 10)
    ]
    steps = np.diff(one["mean"].to_numpy())
    assert (steps >= -1e-9).all()


def test_report_on_all_links_to_each(everything):
    text = (everything[0] / "report.md").read_text()
    for name in ALL:
        experiment = EXPERIMENTS[name]
        assert f"[{experiment.title}]({name}/report.md)" in text
        for claim in experiment.claims:
            assert claim.text in text


def test_curve_points_are_exact():
    panel = Panel("p", GaussianProblem, ("ts", "ada-ts"), tasks=3, rounds=7)
    outcome = run_panel(panel, panel.problem(), runs=5, seed=3, workers=1, engine="local")
    assert outcome.at.tolist() == [1, 2, 3, 4, 5, 6, 7]
    ends = outcome.result.regret.cumsum(axis=2)  # agents, runs, tasks
    np.testing.assert_allclose(outcome.mean[:, :, -1], ends.mean(axis=1))
    np.testing.assert_allclose(outcome.se[:, :, -1], ends.std(axis=1, ddof=1) / np.sqrt(5))


@pytest.mark.usefixtures("small")
def test_one_seed_gives_the_same_files_but_for_the_timing(tmp_path):
    def files(folder, **options):
        reproduce("mixture", out=tmp_path / folder, **options)
        return contents(tmp_path / folder)

    first = files("a", seed=7)
    assert first == files("b", seed=7)
    assert first == files("a", seed=7)  # over the old files
    other = files("c", seed=8)
    assert first["records.parquet"] != other["records.parquet"]
    assert first["report.md"] != other["report.md"]


@pytest.mark.usefixtures("small")
def test_files_say_what_they_were_made_with(tmp_path):
    for _ in range(5):  # until nothing else held it up
        begin = time.perf_counter()
        reproduce("mixture", out=tmp_path, seed=7, command="adats reproduce mixture --seed 7")
        spent = time.perf_counter() - begin
        made = json.loads((tmp_path / "report.json").read_text())["made"]
        if made["seconds"] > 0.5 * spent:
            break
    assert (made["command"], made["seed"]) == ("adats reproduce mixture --seed 7", 7)
    assert set(made["versions"]) == {"adats", "python", "numpy", "numba"}
    assert made["versions"]["numpy"] == np.__version__
    assert 0.5 * spent < made["seconds"] <= spent  # wall time, with what is drawn
    for name in ("records.parquet", "curves.parquet"):
        assert json.loads(parquet.read_metadata(tmp_path / name).metadata[b"adats"]) == made
    text = (tmp_path / "report.md").read_text().split(TIMING)[1]
    assert all(f"| {key} | `{value}` |" in text for key, value in made["versions"].items())
    assert f"| wall time | `{made['seconds']:.1f} s` |" in text
    reproduce("mixture", out=tmp_path, seed=8)
    made = json.loads((tmp_path / "report.json").read_text())["made"]
    assert made["command"] == "adats.paper.experiments.reproduce('mixture', seed=8)"


@pytest.mark.usefixtures("small")
def test_a_quick_look_has_fewer_runs(tmp_path):
    assert total_steps("mixture", quick=True) == 20
    reproduce("mixture", out=tmp_path, quick=True)
    text = (tmp_path / "report.md").read_text()
    assert text.splitlines()[0].endswith("; a quick look")
    assert "10 runs" in text


def test_data_of_another_name_have_it_in_all_titles():
    named = EXPERIMENTS["mnist"].called("Fashion-MNIST")
    assert named.title == "Online classification: Fashion-MNIST"
    assert named.setting.title == "Fashion-MNIST"
    assert named.name == "mnist"
    assert named.setting.sizes() == EXPERIMENTS["mnist"].setting.sizes()


# What goes wrong


def test_a_name_is_for_data_that_have_files(tmp_path):
    with pytest.raises(ValueError, match="--name is for mnist and omniglot; 'synthetic' needs no"):
        reproduce("synthetic", out=tmp_path / "x", data_name="mine")
    assert not (tmp_path / "x").exists()


def test_unknown_name_lists_the_known(tmp_path):
    for call in (lambda: reproduce("figure2", out=tmp_path / "x"), lambda: total_steps("figure2")):
        with pytest.raises(ValueError, match=r"'figure2'.*synthetic, gaussian, linear, .*, all"):
            call()
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("inside", ["", "below"])
def test_out_must_not_be_a_file(tmp_path, inside):
    file = tmp_path / "file"
    file.write_text("mine")
    with pytest.raises(ValueError, match="is a file"):
        reproduce("synthetic", out=file / inside)
    assert file.read_text() == "mine"


@pytest.mark.parametrize("runs", [0, 1, -3, 1.5])
def test_too_few_runs(tmp_path, runs):
    with pytest.raises(ValueError, match="runs must be a whole number of at least 2"):
        reproduce("synthetic", out=tmp_path / "x", runs=runs)
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("package", ["topohub", "matplotlib", "pyarrow"])
def test_missing_packages_are_named_before_anything_runs(tmp_path, monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ValueError, match="pip install"):
        reproduce(
            "semibandit", out=tmp_path / "x", runs=2, progress=lambda *_: pytest.fail("it runs")
        )
    assert not (tmp_path / "x").exists()


@pytest.mark.usefixtures("small")
def test_an_interrupt_leaves_nothing_behind(tmp_path):
    def stop(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        reproduce("mixture", out=tmp_path / "x", progress=stop)
    assert not (tmp_path / "x").exists()


# How claims are judged


def test_a_measure_is_judged_by_a_t_test():
    def verdict(value, se=0.1, low=1.0, high=2.0, freedom=np.inf, among=1):
        return Measure("", "", "", value, se, low, high, freedom).verdict(0.05, among)

    assert [verdict(v) for v in (1.17, 1.5, 1.83)] == ["holds"] * 3  # 1.645 standard errors
    assert [verdict(v) for v in (1.16, 1.84, 0.9, 2.1)] == ["undecided"] * 4
    assert [verdict(v) for v in (0.80, 2.20)] == ["does not hold"] * 2  # two sides: 1.96
    assert verdict(0.83, high=np.inf) == "does not hold"
    assert verdict(0.83, high=np.inf, among=10) == "undecided"
    assert verdict(1.17, freedom=3) == "undecided"
    assert verdict(1.24, freedom=3) == "holds"  # 2.353
    assert [verdict(v, se=0.0) for v in (1.0, 0.99)] == ["holds", "does not hold"]
    assert verdict(1.0, se=np.inf) == "undecided"


def test_p_values_are_those_of_draws():
    rng, runs = np.random.default_rng(1), 12
    draws = rng.normal(0.3, 1.0, (40_000, runs))
    values, ses = draws.mean(axis=1), draws.std(axis=1, ddof=1) / np.sqrt(runs)
    at_edge = [
        Measure("", "", "", value, se, low=0.3, freedom=runs - 1)
        for value, se in zip(values, ses, strict=True)
    ]
    for p in (np.mean([m.p_inside() <= 0.05 for m in at_edge]),
              np.mean([m.p_outside() <= 0.05 for m in at_edge])):  # fmt: skip
        assert abs(p - 0.05) < 4 * np.sqrt(0.05 * 0.95 / len(draws))


def test_the_chance_of_a_wrong_verdict_is_that_of_the_report():
    """Claims at the very edge of truth, with two measures each: the worst case there is."""
    rng, wrong, reports = np.random.default_rng(2), 0, 4000
    for _ in range(reports):
        z = rng.standard_normal((5, 2))
        edge = [[Measure("", "", "", v, 1.0, low=0.0) for v in pair] for pair in z]
        claims_ = [Claim("", "", lambda _, found=found: iter(found)) for found in edge]
        wrong += any(judged.verdict == "does not hold" for judged in judge(claims_, []))
    assert wrong / reports < LEVEL + 4 * np.sqrt(LEVEL / reports)
    assert wrong / reports > LEVEL / 2


def test_verdict_of_a_claim():
    yes, no = Measure("", "", "", 1, 0.1, low=0), Measure("", "", "", 1, 0.1, low=5)
    open_ = Measure("", "", "", 1, 1.0, low=2)

    def verdict(*found):
        (judged,) = judge([Claim("", "", lambda _: iter(found))], [])
        return judged.verdict

    assert verdict(yes, yes) == "holds"
    assert verdict(no, no) == verdict(yes, no) == verdict(no, open_) == "does not hold"
    assert verdict(open_) == verdict(yes, open_) == verdict() == "undecided"
    nearly = Measure("", "", "", 1, 0.1, low=0.8)  # z = 2: not enough for the third of 5 %
    assert [j.verdict for j in judge([Claim("", "", lambda _: iter([nearly]))] * 3, [])] == [
        "undecided"
    ] * 3


def test_ratio_has_the_standard_error_of_the_jackknife():
    rng = np.random.default_rng(1)
    b = rng.gamma(9.0, size=400)
    a = 0.5 * b + rng.gamma(4.0, size=400)
    value, se = ratio(a, b)
    left_out = (a.sum() - a) / (b.sum() - b)
    jackknife = np.sqrt(399 / 400 * ((left_out - left_out.mean()) ** 2).sum())
    assert value == a.mean() / b.mean()
    assert se == pytest.approx(jackknife, rel=0.02)
    assert ratio(2 * b, b) == (2.0, pytest.approx(0.0))
    assert ratio(np.zeros(3), np.zeros(3)) == (1.0, np.inf)


def test_z_and_slope_by_hand():
    assert z_score(np.array([1.0, 2.0, 3.0])) == pytest.approx(2 * np.sqrt(3))
    assert [z_score(np.full(3, v)) for v in (0.0, 2.0, -2.0)] == [0.0, np.inf, -np.inf]
    per_task = np.array([[1.0, 3.0, 5.0], [4.0, 4.0, 4.0]])
    np.testing.assert_allclose(slope(per_task), [2.0, 0.0])


@pytest.fixture
def made_up():
    """Outcomes of the synthetic experiment with given means of a task's regret."""

    def make(means, meta_scale=0.5, first=False, runs=50):
        panel = Panel(f"σ_q = {meta_scale}", GaussianProblem, PAPER_AGENTS, 20, 10, first)
        problem = GaussianProblem(meta_scale=meta_scale)
        outcome = run_panel(panel, problem, runs=2, seed=1, workers=1, engine="local")
        noise = np.random.default_rng(2).normal(0, 0.05, (4, runs, 20))
        regret = np.array(means, dtype=float).reshape(4, 1, -1) + noise
        return replace(outcome, result=replace(outcome.result, regret=regret, runs=runs))

    return make


def verdict(claim, *outcomes):
    (judged,) = judge([claim], outcomes)
    return judged.verdict


def test_claims_on_made_up_numbers(made_up):
    good = made_up([2.0, 2.8, 4.0, 9.0])  # OracleTS, AdaTS, MetaTS, TS
    bad = made_up([2.0, 4.0, 3.9, 3.0])
    for claim in (claims.OUTPERFORMS_TS, claims.COMPARABLE_TO_ORACLE, claims.THIRTY_PERCENT):
        assert verdict(claim, good) == "holds"
        assert verdict(claim, bad) == "does not hold"
        assert verdict(claim, good, bad) == "does not hold"
    assert verdict(claims.MINIMUM, good) == "holds"
    assert verdict(claims.MINIMUM, made_up([4.0, 2.0, 3.0, 9.0])) == "does not hold"
    wide = made_up([2.0, 2.8, 7.0, 9.0], meta_scale=1.0)
    assert verdict(claims.WIDER, good, wide) == "holds"
    (rise, _) = claims.WIDER.measures([good, wide])
    assert rise.value == pytest.approx(7 / 4, rel=0.02)
    assert not list(claims.WIDER.measures([good, replace_first(wide)]))[:-1]


def replace_first(outcome):
    """The same with forced exploration: not to be compared with a panel without."""
    return replace(outcome, panel=replace(outcome.panel, explore_first=True))


def test_linear_growth_is_told_from_learning(made_up):
    flat, falling = np.full(20, 5.0), np.linspace(6.0, 2.0, 20)
    steady = made_up([flat, falling, falling, flat])
    assert verdict(claims.LINEAR_IN_TASKS, steady) == "holds"
    learning = made_up([falling, falling, falling, falling])
    assert verdict(claims.LINEAR_IN_TASKS, learning) == "does not hold"
    assert verdict(claims.LINEAR_IN_TASKS, steady, learning) == "does not hold"
    oracle, alone = claims.LINEAR_IN_TASKS.measures([steady, learning])  # means of both panels
    for measure, row in ((oracle, 0), (alone, 3)):
        changes = []
        for o in (steady, learning):
            mean = o.result.regret[row].mean(axis=0)
            changes.append(19 * np.polyfit(np.arange(20), mean, 1)[0] / mean.mean())
        assert measure.value == pytest.approx(np.mean(changes), abs=1e-12)


def test_the_second_half_is_judged_apart(made_up):
    learned = np.r_[np.full(10, 9.0), np.full(10, 2.0)]
    outcome = made_up([np.full(20, 2.0), learned, learned, np.full(20, 9.0)])
    whole, late = measures.comparable("ada-ts", "oracle-ts")([outcome])
    assert (whole.verdict(0.05), late.verdict(0.05)) == ("does not hold", "holds")
    assert late.value == pytest.approx(1.0, rel=0.02)
    assert verdict(claims.COMPARABLE_TO_ORACLE, outcome) == "does not hold"
