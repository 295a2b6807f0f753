"""Figures: what they show, that they are the same every time, and when Matplotlib is loaded."""

import itertools
import subprocess
import sys
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from matplotlib.text import Text

from adats.paper.experiments import ALL, EXPERIMENTS, clicks_claims, figures, policies
from adats.plots import (
    COLOURS,
    DASHES,
    KINDS,
    OTHER,
    OTHER_DASHES,
    Chart,
    Curve,
    regret_figure,
    rendered,
)
from adats.plots.pictures import pictures_figure
from adats.simulation.learners import AGENTS, label_of
from colour_vision import ciede2000, lab, least_difference

PAPER = ("oracle-ts", "ada-ts", "meta-ts", "ts")
SVG = "{http://www.w3.org/2000/svg}"


def chart(
    title: str = "Gaussian, K = 2, σ_q = 0.5", agents: tuple[str, ...] = tuple(AGENTS)
) -> Chart:
    x = np.linspace(0, 4, 9)
    curves = {a: Curve((i + 1) * x, 0.1 * (i + 1) * x) for i, a in enumerate(agents)}
    return Chart(title, "no forced exploration", x, curves)


def test_every_agent_has_a_name_and_a_colour_of_its_own():
    assert set(COLOURS) == set(AGENTS)
    assert len(set(COLOURS.values())) == len(COLOURS)
    assert label_of("ada-ts-") == "AdaTS−"


TOGETHER = [
    *sorted({panel.agents for name in ALL for panel in EXPERIMENTS[name].panels}),
    policies.AGENTS,
    (*clicks_claims.AGENTS, "linear-ts"),
]


@pytest.mark.parametrize("agents", TOGETHER)
def test_agents_of_one_figure_are_told_apart_by_everybody(agents):
    for one, two in itertools.combinations(agents, 2):
        assert least_difference(COLOURS[one], COLOURS[two]) > 20, (one, two)
        assert DASHES.get(one) != DASHES.get(two), (one, two)


def test_so_is_one_of_another_name():
    assert min(least_difference(COLOURS[agent], OTHER[0]) for agent in PAPER) > 20


def test_so_are_four_of_other_names():
    """The parts of a bound beside agents, as in `uncertain-arms`; MetaTS is not in that figure."""
    colours = [*(COLOURS[agent] for agent in PAPER if agent != "meta-ts"), *OTHER]
    for one, two in itertools.combinations(colours, 2):
        assert least_difference(one, two) > 20, (one, two)
    dashes = [*(DASHES.get(agent) for agent in PAPER), *OTHER_DASHES]
    assert len(set(dashes)) == len(dashes)


def test_differences_of_colours_are_those_of_the_standard():
    """Two pairs of Sharma, Wu and Dalal's table; colours that are known to be confused."""
    blue = np.array([50.0, 0.0, -82.7485])
    assert ciede2000(np.array([50.0, 2.6772, -79.7751]), blue) == pytest.approx(2.0425, abs=1e-4)
    assert ciede2000(np.array([50.0, -1.3802, -84.2814]), blue) == pytest.approx(1.0, abs=1e-4)
    assert least_difference("#000000", "#FFFFFF") == pytest.approx(100.0, abs=0.1)
    assert ciede2000(lab("#D55E00"), lab("#7A8B00")) > 20  # orange and olive
    assert least_difference("#D55E00", "#7A8B00") < 20


def texts(figure):
    figure.draw_without_rendering()
    return [t for t in figure.findobj(Text) if t.get_visible() and t.get_text().strip()]


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 6, 12])
def test_figures_are_for_print(count):
    """At 5.5 inches no text is under 7 points, and nothing is cut off."""
    columns = 2 if count == 4 else 3
    figure = regret_figure([chart(agents=TOGETHER[-1])] * count, columns=columns)
    assert figure.get_figwidth() == 5.5
    assert min(text.get_fontsize() for text in texts(figure)) >= 7
    inside = figure.bbox.padded(2)
    (legend,) = figure.legends
    for artist in (legend, *(axes.title for axes in figure.axes)):
        extent = artist.get_window_extent()
        assert inside.x0 <= extent.x0
        assert extent.x1 <= inside.x1
        assert inside.y0 <= extent.y0
        assert extent.y1 <= inside.y1
    assert not any(legend.get_window_extent().overlaps(axes.bbox) for axes in figure.axes)
    rows = {round(axes.get_position().y0, 2) for axes in figure.axes}
    assert len(figure.axes) + bool(count % len(rows)) >= len(rows) * min(columns, count) - 1


def test_pictures_are_for_print():
    figure = pictures_figure([chart("class", PAPER)] * 4, [pictures()] * 4)
    assert figure.get_figwidth() == 5.5
    assert min(text.get_fontsize() for text in texts(figure)) >= 7


def test_a_panel_a_chart_and_one_legend():
    figure = regret_figure([chart(f"panel {i}", PAPER) for i in range(5)], columns=3)
    assert [axes.get_title(loc="left") for axes in figure.axes] == [f"panel {i}" for i in range(5)]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == list(map(label_of, PAPER))
    assert [bool(axes.get_ylabel()) for axes in figure.axes] == [True, False, False, True, False]
    assert [axes.get_xlabel() for axes in figure.axes] == ["", "", "task", "task", "task"]


def test_curves_and_bands_are_the_given_numbers():
    given = chart(agents=("ada-ts", "ts"))
    axes = regret_figure([given], columns=1).axes[0]
    for line, band, (agent, curve) in zip(
        axes.get_lines(), axes.collections, given.curves.items(), strict=True
    ):
        np.testing.assert_array_equal(line.get_xdata(), given.x)
        np.testing.assert_array_equal(line.get_ydata(), curve.mean)
        assert line.get_color() == COLOURS[agent]
        corners = band.get_paths()[0].vertices[:, 1]
        assert corners.max() == pytest.approx((curve.mean + curve.se).max())
    assert axes.get_ylim()[0] == 0
    assert axes.get_xlim() == (0, 4)


def test_agents_of_other_names_are_drawn_too():
    axes = regret_figure([chart(agents=("ts", "mine", "yours"))], columns=1).axes[0]
    colours = [line.get_color() for line in axes.get_lines()]
    assert len(set(colours)) == 3
    assert [line.get_label() for line in axes.get_lines()] == ["TS", "mine", "yours"]


def test_the_same_figure_gives_the_same_bytes():
    first, second = regret_figure([chart()]), regret_figure([chart()])
    for kind in KINDS:
        assert rendered(first, kind) == rendered(second, kind)


def test_files_are_what_they_say():
    figure = regret_figure([chart()] * 3)
    png, svg = rendered(figure, "png"), rendered(figure, "svg")
    assert png.startswith(b"\x89PNG")
    width, height = (int.from_bytes(png[i : i + 4], "big") for i in (16, 20))
    assert (width, height) == tuple(round(300 * x) for x in figure.get_size_inches())
    root = ET.fromstring(svg)
    texts = {"".join(node.itertext()).strip() for node in root.iter(f"{SVG}text")}
    assert {"OracleTS", "AdaTS−", "task", "cumulative regret", "no forced exploration"} <= texts
    assert b"<dc:date>" not in svg


def pictures(tasks=4, height=8, width=6, agents=PAPER):
    """Every picture has a brightness of its own."""
    count = len(agents) * tasks
    shades = np.linspace(0.1, 1.0, count).reshape(len(agents), tasks, 1, 1)
    return {a: shades[i] * np.ones((tasks, height, width)) for i, a in enumerate(agents)}


def test_pictures_are_below_their_tasks():
    figure = pictures_figure([chart(f"class {i}", PAPER) for i in range(3)], [pictures()] * 3)
    above = [axes for axes in figure.axes if not axes.images]
    below = [axes for axes in figure.axes if axes.images]
    assert [axes.get_title(loc="left") for axes in above] == ["class 0", "class 1", "class 2"]
    assert len(below) == 3
    figure.draw_without_rendering()
    for top, sheet in zip(above, below, strict=True):
        assert [t.get_text() for t in sheet.get_yticklabels()] == list(map(label_of, PAPER))
        assert [t.get_color() for t in sheet.get_yticklabels()] == [COLOURS[a] for a in PAPER]
        assert [t.get_text() for t in sheet.get_xticklabels()] == ["1", "2", "3", "4"]
        np.testing.assert_allclose(sheet.get_xticks(), [0.5, 1.5, 2.5, 3.5])
        assert sheet.get_window_extent().y1 < top.get_window_extent().y0
        for task in range(5):  # the sheet's columns are as wide as the tasks above
            x_above = top.transData.transform((task, 0))[0]
            x_below = sheet.transData.transform((task, 0))[0]
            assert x_above == pytest.approx(x_below, abs=2.0)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        label_of(a) for a in PAPER
    ]


def test_every_picture_is_in_its_place():
    given = pictures()
    figure = pictures_figure([chart(agents=PAPER)], [given])
    (sheet,) = (axes for axes in figure.axes if axes.images)
    values = np.asarray(sheet.images[0].get_array().filled(np.nan))
    left, right, bottom, top = sheet.images[0].get_extent()
    assert (left, right, bottom, top) == (0, 4, 4, 0)
    high, wide = values.shape[0] / 4, values.shape[1] / 4
    for i, agent in enumerate(PAPER):
        for task in range(4):
            centre = values[int((i + 0.5) * high), int((task + 0.5) * wide)]
            assert centre == given[agent][task, 0, 0]
            assert np.isnan(values[int(i * high), int(task * wide)])  # a frame between


def test_pictures_give_the_same_bytes():
    figures = [pictures_figure([chart(agents=PAPER)], [pictures()]) for _ in range(2)]
    for kind in KINDS:
        assert rendered(figures[0], kind) == rendered(figures[1], kind)


def test_matplotlib_is_loaded_only_to_draw_and_pyplot_never():
    code = """
import sys
import numpy as np
from adats import plots
assert "matplotlib" not in sys.modules
curves = {"ts": plots.Curve(np.arange(3.0), np.ones(3))}
plots.rendered(plots.regret_figure([plots.Chart("t", "n", np.arange(3.0), curves)]), "png")
assert "matplotlib.pyplot" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_without_matplotlib_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ValueError, match="pip install"):
        regret_figure([chart()])


@pytest.mark.parametrize("name", ALL)
def test_titles_fit_their_panels(name, monkeypatch):
    experiment = EXPERIMENTS[name]
    monkeypatch.setattr(figures, "chart", lambda panel: chart(panel.title))
    draw = figures.regret_panels if experiment.draw is figures.spread_figure else experiment.draw
    figure = draw(experiment.panels)
    figure.draw_without_rendering()
    for axes in figure.axes:
        assert axes._left_title.get_window_extent().x1 < axes.get_window_extent().x1 + 5
