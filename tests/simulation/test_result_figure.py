"""A figure straight from a result."""

import numpy as np
import pytest

from adats.plots.results import result_figure
from adats.simulation import simulate
from adats.simulation.problems import GaussianProblem


@pytest.mark.parametrize(("runs", "detail"), [(1, "task"), (3, "round")])
def test_a_result_is_drawn_as_it_is(runs, detail):
    options = {"tasks": 4, "rounds": 10, "runs": runs, "seed": 1, "detail": detail}
    result = simulate(GaussianProblem(2), {"mine": "ada-far", "ts": "ts"}, **options)
    axes = result_figure(result, title="my own").axes[0]
    assert axes.get_title(loc="left") == "my own"
    for agent, line in zip(result.agents, axes.get_lines(), strict=True):
        assert line.get_ydata()[0] == 0.0
        np.testing.assert_allclose(line.get_ydata()[-1], result.mean(agent))
