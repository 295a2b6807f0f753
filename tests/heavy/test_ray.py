"""The simulator on a Ray cluster: a local one, of two workers."""

import os

import numpy as np
import pytest

from adats import AdaTS
from adats.simulation import simulate
from adats.simulation.problems import GaussianProblem, LinearProblem

pytestmark = pytest.mark.heavy
SIZES = {"tasks": 3, "rounds": 20, "runs": 6, "seed": 7}


def live(problem, seed):
    return AdaTS(problem.meta(), seed=seed)


@pytest.fixture(scope="module")
def cluster():
    import ray

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield ray
    ray.shutdown()


@pytest.mark.parametrize("detail", ["task", "round"])
@pytest.mark.parametrize("problem", [GaussianProblem(), LinearProblem()], ids=lambda p: p.name)
def test_ray_gives_the_same_numbers(cluster, problem, detail):
    agents = {"ada-ts": "ada-ts", "ts": "ts", "live": live}
    steps = []
    local = simulate(problem, agents, **SIZES, detail=detail)
    spread = simulate(
        problem, agents, **SIZES, detail=detail, engine="ray", workers=2, progress=steps.append
    )
    assert cluster.is_initialized()
    np.testing.assert_array_equal(spread.regret, local.regret)
    assert sum(steps) == 6


@pytest.mark.usefixtures("cluster")
def test_ray_does_the_work_and_passes_errors_on():
    def broken(*_):
        raise RuntimeError(f"process {os.getpid()}.")

    with pytest.raises(RuntimeError, match=r"process [0-9]+") as error:
        simulate(GaussianProblem(), {"broken": broken}, **SIZES, engine="ray", workers=2)
    assert f"process {os.getpid()}." not in str(error.value)
