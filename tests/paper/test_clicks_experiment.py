"""`adats reproduce clicks`: what it runs, what it writes, and how its claims are judged."""

import re
import xml.etree.ElementTree as ET
from itertools import pairwise, product

import numpy as np
import pytest
from pyarrow import parquet

from adats.paper.experiments import EXPERIMENTS, reproduce, total_steps
from adats.paper.experiments.claims import judge
from adats.paper.experiments.clicks import CLICKS_EXPERIMENT
from adats.paper.experiments.clicks_claims import (
    AGENTS,
    CLAIMS,
    GRID,
    NOTHING,
    better_rival,
    ratio_to_better,
    share_below,
)
from adats.paper.experiments.panels import outcome_of
from adats.plots import heat, rendered
from adats.simulation.learners import label_of
from adats.simulation.simulate import Result
from report_files import contents

QUICK = CLICKS_EXPERIMENT.quick
RUNS = 3
TEXT = "{http://www.w3.org/2000/svg}text"


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    calls = []
    out = tmp_path_factory.mktemp("clicks") / "new" / "folder"
    options = {"quick": True, "runs": RUNS, "seed": 5}
    path = reproduce("clicks", out=out, **options, progress=lambda *call: calls.append(call))
    assert path == out / "report.md"
    return out, calls, path.read_text()


def tables(text):
    """The Markdown tables of a text, each a list of rows of cells."""
    found = re.findall(r"(?:^\| .*\n)+", text, flags=re.MULTILINE)
    return [
        [[c.strip() for c in line.strip("|").split(" | ")] for line in one.splitlines()]
        for one in found
    ]


def section(text, head):
    return text.split(f"\n## {head}\n")[1].split("\n## ")[0]


# What is run


def test_the_cells_are_those_of_the_issue():
    assert EXPERIMENTS["clicks"] is CLICKS_EXPERIMENT
    assert CLICKS_EXPERIMENT.runs == 100
    panels = CLICKS_EXPERIMENT.panels
    assert len({panel.label for panel in panels}) == len(panels) == 72 + 12
    found = {GRID: set(), NOTHING: set()}
    for panel in panels:
        assert (panel.tasks, panel.agents, panel.explore_first) == (200, AGENTS, False)
        p = panel.problem()
        settings = (p.base, p.arms, panel.rounds, p.task_scale, p.level_scale, p.arm_scale)
        assert p.rewards == "binary"
        found[panel.part].add(settings)
    where = ((0.005, 0.02, 0.2), (3, 10), (50, 500))
    assert found[GRID] == set(product(*where, (0.05, 0.3, 1.0), (0.0, 0.5), (0.3,)))
    assert found[NOTHING] == set(product(*where, (1.0,), (0.0,), (0.0,)))


def test_a_quick_look_has_few_of_the_cells():
    assert {panel.label for panel in QUICK.panels} < {p.label for p in CLICKS_EXPERIMENT.panels}
    assert {panel.part for panel in QUICK.panels} == {GRID, NOTHING}
    assert QUICK.claims == CLICKS_EXPERIMENT.claims
    assert QUICK.file_names() == CLICKS_EXPERIMENT.file_names()
    assert total_steps("clicks") == 84 * 100
    assert total_steps("clicks", quick=True) == len(QUICK.panels) * QUICK.runs <= 200
    assert sum(panel.tasks * panel.rounds for panel in QUICK.panels) * QUICK.runs <= 200_000


# What is written


def test_progress_counts_every_run_once(written):
    _, calls, _ = written
    total = total_steps("clicks", RUNS, quick=True)
    done = [0, *(call[1] for call in calls)]
    assert {call[2] for call in calls} == {total}
    assert done[-1] == total
    assert all(a < b for a, b in pairwise(done))


def test_files(written):
    out, _, text = written
    drawn = [f"{name}.{kind}" for name in ("clicks", "far") for kind in ("png", "svg", "pdf")]
    names = [*drawn, "records.parquet", "cells.parquet", "report.json"]
    assert list(QUICK.file_names()) == names
    assert {path.name for path in out.iterdir()} == {*names, "report.md"}
    for name in names:
        assert f"`{name}`" in text
    for name in ("clicks.png", "far.png"):
        assert (out / name).read_bytes().startswith(b"\x89PNG")
        assert f"]({name})" in text


def test_tables_are_what_the_records_say(written):
    out, _, text = written
    records = parquet.read_table(out / "records.parquet").to_pandas()
    settings = ["base", "arms", "rounds", "task_scale", "level_scale", "arm_scale"]
    assert list(records) == ["panel", *settings, "run", "agent", "regret"]
    assert len(records) == len(QUICK.panels) * len(AGENTS) * RUNS
    totals = records.groupby(["panel", "agent"])["regret"]
    grid, unlike = tables(section(text, "Total regret"))
    assert [row[0] for row in (*grid[2:], *unlike[2:])] == [panel.label for panel in QUICK.panels]
    assert grid[0][1:] == [label_of(agent) for agent in AGENTS]
    for label, *cells in (*grid[2:], *unlike[2:]):
        for agent, cell in zip(AGENTS, cells, strict=True):
            own = totals.get_group((label, agent)).to_numpy()
            assert cell == f"{own.mean():.1f} ± {own.std(ddof=1) / np.sqrt(RUNS):.1f}"
    cells = parquet.read_table(out / "cells.parquet").to_pandas().set_index("panel")
    assert list(cells.index) == [panel.label for panel in QUICK.panels]
    means = totals.mean()
    for label, row in cells.iterrows():
        flat, pooled = means[label, "flat-ts"], means[label, "pooled-ts"]
        assert row["better"] == ("flat-ts" if flat <= pooled else "pooled-ts")
        best, told = min(flat, pooled), means[label, "ada-ts"]
        assert row["default-ts / better"] == pytest.approx(means[label, "default-ts"] / best)
        assert row["default-far / better"] == pytest.approx(means[label, "default-far"] / best)
        assert row["default-ts / ada-ts"] == pytest.approx(means[label, "default-ts"] / told)
        assert row["default-ts / flat-ts"] == pytest.approx(means[label, "default-ts"] / flat)
        assert row["default-ts / better, se"] > 0


def test_the_report_has_every_claim_in_every_cell(written):
    text = written[2]
    claims = section(text, "Claims")
    verdicts = dict(tables(claims)[0][2:])
    assert list(verdicts) == [claim.text for claim in CLAIMS]
    (counted,) = tables(section(text, "Claims, counted over cells"))
    for i, (claim, counts) in enumerate(zip(CLAIMS, counted[2:], strict=True), 1):
        part = claims.split(f"\n### {i}. {claim.text}\n")[1].split("\n### ")[0]
        assert f"{verdicts[claim.text]}. Rule: {claim.rule}." in part
        judged = [row[-1] for row in tables(part)[0][2:]]
        assert len(judged) == (1 if i == 3 else 2 if i == 6 else 8)
        words = ("holds", "undecided", "does not hold")
        assert counts[:4] == [claim.text, *(str(judged.count(word)) for word in words)]


def test_figures_have_a_number_and_a_rival_in_every_cell(written):
    out = written[0]
    cells = parquet.read_table(out / "cells.parquet").to_pandas()
    for name, agent in (("clicks", "default-ts"), ("far", "default-far")):
        words = [text.text for text in ET.parse(out / f"{name}.svg").iter(TEXT)]
        for ratio in cells[f"{agent} / better"]:
            assert f"{ratio:.2f}" in words
        assert words.count("pooled") == (cells["better"] == "pooled-ts").sum()
        assert words.count("alone") == (cells["better"] == "flat-ts").sum()
        assert f"{label_of(agent)}: regret / regret of the better rival" in words


@pytest.mark.heavy
def test_one_seed_gives_the_same_files_on_any_number_of_workers(written, tmp_path):
    reproduce("clicks", out=tmp_path, quick=True, runs=RUNS, seed=5, workers=2)
    assert contents(tmp_path) == contents(written[0])


# How claims are judged


def made_up(means, *, panel=None, runs=60, noise=0.02, tail=None):
    """An outcome of a cell whose agents have these regrets in a run; one may have a long tail."""
    panel = panel or CLICKS_EXPERIMENT.panels[0]
    rng = np.random.default_rng(1)
    regret = np.array(means)[:, None] * (1 + noise * rng.standard_normal((len(means), runs)))
    if tail is not None:
        regret[AGENTS.index(tail), :3] *= 2
    settings = (panel.problem().describe(), 1, panel.rounds, runs, 1, False)
    result = Result(*settings, AGENTS, regret[..., None], 1.0, np.ones(len(means)))
    return outcome_of(panel, result)


def verdicts(*outcomes):
    return [judged.verdict if judged.measures else None for judged in judge(CLAIMS, outcomes)]


UNLIKE = next(p for p in CLICKS_EXPERIMENT.panels if p.part == NOTHING)
# flat, pooled, told its spreads, default, default and far-sighted
GOOD, BAD = [2.0, 1.0, 1.0, 1.05, 0.8], [1.0, 2.0, 1.0, 1.6, 1.9]


def test_claims_on_made_up_numbers():
    assert verdicts(made_up(GOOD), made_up(GOOD, panel=UNLIKE)) == ["holds"] * 6
    no = verdicts(made_up(BAD), made_up(BAD, panel=UNLIKE))
    assert no == ["does not hold"] * 6
    both = verdicts(made_up(GOOD), made_up(BAD), made_up(GOOD, panel=UNLIKE))
    assert both == [*["does not hold"] * 5, "holds"]


def test_a_claim_is_never_loosened():
    (measure,) = CLAIMS[0].measures([made_up([2.0, 1.0, 1.0, 1.11, 0.8], noise=0.0)])
    assert (measure.high, measure.verdict(0.05)) == (1.10, "does not hold")
    limits = [next(iter(claim.measures([made_up(GOOD)])), None) for claim in CLAIMS[:5]]
    assert [limit.high for limit in limits] == [1.10, 1.4, np.inf, 1.15, 1.0]
    assert limits[2].low == 0.75
    (alone,) = CLAIMS[5].measures([made_up(GOOD, panel=UNLIKE)])
    assert alone.high == 1.05


def test_the_better_rival_is_that_of_the_cell():
    assert better_rival(made_up(GOOD)) == "pooled-ts"
    assert better_rival(made_up(BAD)) == "flat-ts"
    value, se = ratio_to_better(made_up(BAD, noise=0.0), "default-ts")
    assert (value, se) == (pytest.approx(1.6), pytest.approx(0.0, abs=1e-12))


def test_three_quarters_of_the_cells():
    ok, not_ok = [2.0, 1.0, 1.0, 1.1, 1.0], [2.0, 1.0, 1.0, 1.3, 1.0]
    (measure,) = CLAIMS[2].measures([made_up(ok)] * 3 + [made_up(not_ok)])
    assert (measure.value, measure.se, measure.verdict(0.05)) == (0.75, 0.0, "holds")
    assert measure.figure == "3 of 4 cells, 75 ± 0 %"
    (measure,) = CLAIMS[2].measures([made_up(ok)] * 2 + [made_up(not_ok)])
    assert measure.verdict(0.05) == "does not hold"
    near = made_up([2.0, 1.0, 1.0, 1.1501, 1.0], noise=0.1)
    (measure,) = CLAIMS[2].measures([near])
    assert measure.se > 0.2  # this cell may as well be on the other side
    assert share_below([np.array([1.0, 2.0, 1.0]), np.array([3.0, 4.0, 2.0])], 1.2) == 0.5


def test_a_long_tail_is_seen():
    assert verdicts(made_up(GOOD, tail="default-ts"))[4] == "holds"
    (measure,) = CLAIMS[4].measures([made_up([2.0, 1.0, 1.0, 1.05, 1.0], tail="default-far")])
    assert measure.value > 1.5
    assert measure.verdict(0.05) != "holds"


# The whole figure


@pytest.mark.heavy
def test_the_whole_grid_is_legible():
    outcomes = [
        made_up(GOOD if i % 3 else BAD, panel=p) for i, p in enumerate(CLICKS_EXPERIMENT.panels)
    ]
    for draw in CLICKS_EXPERIMENT.figures().values():
        figure = draw(outcomes)
        texts = [text for axes in figure.axes for text in axes.texts]
        numbers = [text for text in texts if re.fullmatch(r"\d\.\d\d", text.get_text())]
        assert len(numbers) == 84
        wide = figure.get_figwidth()
        assert min(t.get_fontsize() for t in texts) * 1000 / (72 * wide) >= 10  # pixels of 1,000
        assert rendered(figure, "svg") == rendered(draw(outcomes), "svg")
    words = "".join(ET.fromstring(rendered(figure, "svg")).itertext())
    for part in ("0.5 %", "20 %", "K = 10", "50 rounds a task", "level 0.5", "nothing in common"):
        assert part in words


def test_colours_frames_and_corners():
    row = [heat.HeatCell(0.25, "a"), heat.HeatCell(1.0, "b"), heat.HeatCell(1.7, "c", True, True)]
    panel = heat.HeatPanel("panel", ["x", "y", "z"], [[row]])
    group = heat.HeatGroup("group", "columns", [panel])
    chart = heat.HeatMap("title", "band", ["one"], ["row"], [group], ("low", "high"), ["note"])
    axes, scale = heat.heat_figure(chart).axes
    (image,) = axes.get_images()
    np.testing.assert_allclose(image.get_array()[0], np.log([0.25, 1.0, 1.7]))
    assert image.get_clim() == (pytest.approx(-np.log(2)), pytest.approx(np.log(2)))
    red, _, blue, _ = np.array(image.cmap(image.norm(image.get_array())))[0].T[:4]
    assert blue[0] > red[0]
    assert red[2] > blue[2]
    assert [t.get_color() for t in axes.texts[::2]] == ["white", "black", "white"]
    assert len(axes.patches) == 2  # a corner and a frame, of the last cell
    assert [tick.get_text() for tick in scale.get_xticklabels()] == ["0.5", "0.7", "1", "1.4", "2"]
