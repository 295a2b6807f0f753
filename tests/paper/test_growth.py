"""Slopes of powers, and the three experiments about the paper's theorems."""

import json
import re

import numpy as np
import pytest
from matplotlib.text import Text
from pyarrow import parquet

from adats.paper.bounds import linear_bound, semibandit_bound
from adats.paper.experiments import EXPERIMENTS, price, reproduce, uncertain_arms
from adats.paper.experiments.growth import Growth, steeper
from adats.paper.experiments.panels import run_panel
from adats.simulation import simulate

SIZES = np.array([5.0, 10.0, 20.0, 40.0])


def power(slope, runs=400, noise=0.5, seed=1):
    """What each run measures, around 3 x^slope; errors of one run go together."""
    rng = np.random.default_rng(seed)
    shared = rng.standard_normal((runs, 1)) + rng.standard_normal((runs, 4))
    return Growth(SIZES, 3 * SIZES**slope * (1 + noise * shared))


def test_the_slope_of_a_power_is_exact():
    value, se = power(0.7, noise=0.0).slope()
    assert (value, se) == (pytest.approx(0.7), pytest.approx(0, abs=1e-12))
    assert power(0.7, noise=0.0).measure("", "", high=0.7 + 1e-9).verdict(0.05) == "holds"


def test_its_standard_error_is_that_of_the_jackknife():
    growth = power(0.5)
    value, se = growth.slope()
    total, runs = growth.values.sum(axis=0), len(growth.values)
    means = (total - growth.values) / (runs - 1)  # without each of the runs
    left_out = np.polyfit(np.log(SIZES), np.log(means).T, 1)[0]
    assert value == pytest.approx(np.polyfit(np.log(SIZES), np.log(total / runs), 1)[0])
    jackknife = np.sqrt((runs - 1) / runs * ((left_out - left_out.mean()) ** 2).sum())
    assert se == pytest.approx(jackknife, rel=0.02)
    assert abs(value - 0.5) < 4 * se


def test_slopes_are_compared_over_the_same_runs():
    one, two = power(1.0), power(0.5)  # with the same errors, which cancel
    measure = steeper(one, two, "", "")
    assert measure.value == pytest.approx(0.5)
    assert measure.se < 1e-9
    assert measure.verdict(0.05) == "holds"


def test_where_a_mean_is_not_positive_there_is_no_slope():
    growth = Growth(SIZES, np.array([[1.0, 2.0, -1.0, 4.0], [1.0, 2.0, 0.5, 4.0]]))
    assert growth.measure("", "", high=0.5).verdict(0.05) == "undecided"


NAMES = ("price", "information", "uncertain-arms")
RUNS = 4


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    out = tmp_path_factory.mktemp("growth")
    for name in NAMES:
        reproduce(name, out=out / name, runs=RUNS, seed=5)
    return out


@pytest.mark.parametrize("name", NAMES)
def test_files_and_claims(written, name):
    experiment = EXPERIMENTS[name]
    found = {path.name for path in (written / name).iterdir()}
    assert found == {*experiment.file_names(), "report.md"}
    text = (written / name / "report.md").read_text()
    assert all(f"]({figure}.png)" in text for figure in experiment.drawings)
    claims = json.loads((written / name / "report.json").read_text())["claims"]
    assert [claim["claim"] for claim in claims] == [claim.text for claim in experiment.claims]
    assert all(claim["measures"] for claim in claims)


@pytest.mark.parametrize("name", NAMES)
def test_figures_are_for_print(name):
    experiment = EXPERIMENTS[name]
    options = {"runs": 2, "seed": 1, "workers": 1, "engine": "local"}
    outcomes = [run_panel(panel, panel.problem(), **options) for panel in experiment.panels]
    for draw in experiment.figures().values():
        figure = draw(outcomes)
        figure.draw_without_rendering()
        assert figure.get_figwidth() == 5.5
        words = [t for t in figure.findobj(Text) if t.get_visible() and t.get_text().strip()]
        assert min(text.get_fontsize() for text in words) >= 7
        for axes in figure.axes:
            for text in (axes._left_title, *axes.texts):
                assert text.get_window_extent().x1 < figure.bbox.x1 + 2


def test_prices_are_what_the_records_say(written):
    records = parquet.read_table(written / "price" / "records.parquet").to_pandas()
    text = (written / "price" / "report.md").read_text()
    rows = re.findall(r"\| (.*) \| (\d+) \| (\d+) \| (\S+) ± \S+ \| (\S+) ± \S+ \|\n", text)
    assert len(rows) == 2 * (len(price.TASKS) + len(price.ROUNDS))
    for i, (problem, m, n, *prices) in enumerate(rows):
        over_tasks = i % 12 < 6
        label = (
            f"{problem}; forced exploration"
            if over_tasks
            else f"{problem}, n = {n}; forced exploration"
        )
        some = records[(records["panel"] == label) & (records["task"] <= int(m))]
        lost = some.groupby("agent")["regret"].sum() / RUNS
        for agent, cell in zip(("ada-ts", "meta-ts"), prices, strict=True):
            assert float(cell) == pytest.approx(lost[agent] - lost["oracle-ts"], abs=0.051)


def test_fewer_tasks_are_the_first_ones():
    """So that one simulation serves all m: agents do not know how many tasks will follow."""
    panel = EXPERIMENTS["price"].panels[0]
    sizes = {"rounds": 30, "runs": 3, "seed": 2, "explore_first": True}
    few, many = (simulate(panel.problem(), panel.agents, tasks=m, **sizes) for m in (4, 9))
    np.testing.assert_array_equal(many.regret[:, :, :4], few.regret)


def test_the_bound_of_gaussian_arms_is_theorem_5():
    panel = EXPERIMENTS["price"].panels[0]
    outcome = run_panel(panel, panel.problem(), runs=2, seed=1, workers=1, engine="local")
    (found,) = price.bounds([(20, 200, outcome)])
    model = {"meta_cov": 0.25, "task_cov": 0.01, "noise": 1.0, "eta": 1.0}
    known = vars(linear_bound(tasks=20, rounds=200, dim=2, arms=2, **model))
    assert vars(found) == pytest.approx(known)


def test_the_bound_for_a_task_falls_as_the_root():
    def per_task(uncertain):
        scale = np.where(np.arange(20) < uncertain, 0.3, 0.0)
        sizes = {"tasks": 20, "rounds": 200, "size": 4}
        return semibandit_bound(**sizes, meta_scale=0.5, task_scale=scale, noise=1.0).per_task

    for k in uncertain_arms.UNCERTAIN:
        assert per_task(k) / per_task(20) == pytest.approx(np.sqrt(k / 20))
