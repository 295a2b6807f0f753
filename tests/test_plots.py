"""Figures: what they show, that they are the same every time, and when Matplotlib is loaded."""

import subprocess
import sys
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from adats.paper.experiments import ALL, EXPERIMENTS
from adats.plots import COLOURS, Chart, Curve, regret_figure, rendered
from adats.plots.pictures import pictures_figure
from adats.simulation.learners import AGENTS, label_of

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


def test_a_panel_a_chart_and_one_legend():
    figure = regret_figure([chart(f"panel {i}") for i in range(5)], columns=3)
    assert [axes.get_title(loc="left") for axes in figure.axes] == [f"panel {i}" for i in range(5)]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == list(
        map(label_of, AGENTS)
    )
    assert [bool(axes.get_ylabel()) for axes in figure.axes] == [True, False, False, True, False]
    assert [axes.get_xlabel() for axes in figure.axes] == ["", "", "task", "task", "task"]
    assert all(text.get_fontsize() >= 9 for axes in figure.axes for text in axes.texts)


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
    for kind in ("png", "svg"):
        assert rendered(first, kind) == rendered(second, kind)


def test_files_are_what_they_say():
    figure = regret_figure([chart()] * 3)
    png, svg = rendered(figure, "png"), rendered(figure, "svg")
    assert png.startswith(b"\x89PNG")
    width, height = (int.from_bytes(png[i : i + 4], "big") for i in (16, 20))
    assert (width, height) == tuple(round(150 * x) for x in figure.get_size_inches())
    root = ET.fromstring(svg)
    texts = {"".join(node.itertext()).strip() for node in root.iter(f"{SVG}text")}
    assert {"OracleTS", "AdaTS−", "task", "cumulative regret", "no forced exploration"} <= texts
    assert b"<dc:date>" not in svg


PAPER = ("oracle-ts", "ada-ts", "meta-ts", "ts")


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
    for kind in ("png", "svg"):
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
def test_titles_fit_their_panels(name):
    experiment = EXPERIMENTS[name]
    charts = [chart(panel.title) for panel in experiment.panels]
    figure = regret_figure(charts, columns=experiment.columns)
    figure.draw_without_rendering()
    for axes in figure.axes:
        assert axes._left_title.get_window_extent().x1 < axes.get_window_extent().x1 + 5
