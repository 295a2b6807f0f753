"""What there is to look at: one call for a prior, a task, the allocation, and a comparison."""

from itertools import pairwise

import numpy as np
import pandas as pd
import pytest

from adats import AdaTS, GaussianMeta, LinearMeta, default_prior, plots


@pytest.fixture
def agent():
    world = np.random.default_rng(1)
    agent = AdaTS(default_prior(arms=["red", "blue"], rewards="binary"), seed=1)
    for user in range(5):
        for _ in range(6):
            decision = agent.ask(user)
            agent.tell(decision, reward=int(world.random() < 0.3))
    return agent


def labels(figure):
    (axes,) = figure.axes
    return [label.get_text() for label in axes.get_yticklabels()]


def test_a_prior_a_task_and_two_priors(agent):
    assert labels(plots.prior(agent.meta)) == ["red", "blue"]
    shown = labels(plots.task(agent, 2))
    n = agent.stats(2).count
    assert shown == [f"red ({n[0]:.0f})", f"blue ({n[1]:.0f})"]
    first = default_prior(arms=["red", "blue"], rewards="binary")
    figure = plots.compare({"before": first, "after": agent.meta})
    assert labels(figure) == ["red", "blue"]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["before", "after"]
    for figure in (plots.prior(agent.meta), plots.task(agent, 2)):
        assert plots.rendered(figure, "png").startswith(b"\x89PNG")


def test_a_task_is_drawn_from_its_average_to_what_is_believed():
    agent = AdaTS(GaussianMeta([0.0, 1.0], 0.5, task_scale=1.0, noise=1.0), seed=1)
    agent.tell(task="ann", action=0, reward=4.0)
    (axes,) = plots.task(agent, "ann").axes
    (raw,) = axes.collections[0].get_offsets().tolist()
    assert raw[0] == 4.0
    assert axes.containers[0][0].get_xdata() == pytest.approx(agent.posterior("ann").mean)


def test_the_allocation_over_time_of_records_and_of_a_frame(agent):
    records = [agent.ask("new").record(0) | {"time": 1.7e9 + 60 * i} for i in range(50)]
    one, two = plots.allocation(records), plots.allocation(pd.DataFrame(records))
    assert plots.rendered(one, "svg") == plots.rendered(two, "svg")
    (axes,) = one.axes
    assert axes.get_ylim() == (0, 100)
    with pytest.raises(ValueError, match="no allocation without pulls"):
        plots.allocation([])


@pytest.mark.parametrize("days", [0.2, 3, 70, 900])
def test_dates_of_an_allocation_do_not_overlap(days):
    time = 1_767_571_200 + 86_400 * np.linspace(0, days, 12)
    records = [{"task": 0, "arm": "ab"[i % 2], "reward": 0, "time": t} for i, t in enumerate(time)]
    figure = plots.allocation(records)
    plots.rendered(figure, "png")
    boxes = [label.get_window_extent() for label in figure.axes[0].get_xticklabels()]
    shown = sorted((box.x0, box.x1) for box in boxes if box.width > 0)
    assert len(shown) > 2
    assert all(end < start for (_, end), (start, _) in pairwise(shown))


def test_what_cannot_be_drawn_is_said():
    rows = AdaTS(LinearMeta(np.zeros(2), 1.0, task_cov=0.1, noise=1.0), seed=1)
    rows.tell(task="bob", features=[1.0, 0.0], reward=1.0)
    with pytest.raises(ValueError, match="arms of this model are rows of features"):
        plots.task(rows, "bob")
    few, many = (default_prior(arms=list("abc"[:k]), rewards="binary") for k in (2, 3))
    with pytest.raises(ValueError, match="must have the same arms"):
        plots.compare({"few": few, "many": many})
