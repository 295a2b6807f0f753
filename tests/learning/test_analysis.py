"""What `analyse` and `fit` do around a fit: threads."""

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from adats import analyse
from fitting_logs import arm_log, arm_table


@pytest.mark.parametrize("asked", [None, "2"])
def test_matrices_of_arms_are_multiplied_by_one_thread_unless_asked_for(asked, monkeypatch):
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    if asked is not None:
        monkeypatch.setenv("OPENBLAS_NUM_THREADS", asked)
    rng, seen = np.random.default_rng(0), []
    log = arm_log(rng, [np.arange(3).repeat(4)] * 12, mu=np.ones(3), scale=np.ones(3), noise=1.0)

    def look(step):  # noqa: ARG001
        seen.append({pool["num_threads"] for pool in threadpool_info()})

    with threadpool_limits(2):
        analyse(arm_table(log, 3), model="gaussian", structure="independent", progress=look)
        after = {pool["num_threads"] for pool in threadpool_info()}
    assert after == {2}
    assert seen == [{1 if asked is None else 2}] * 4
