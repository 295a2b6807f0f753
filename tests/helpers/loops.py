"""One task by its compiled loop, called as `plain_task` is."""

import numpy as np

from adats.simulation.kernels.registry import THOMPSON, LoopInput, loops_of


def compiled_task(problem, prior, instance, first, rng, regret, actions=None, *, policy=THOMPSON):
    """The statistics; None where there is no loop that serves."""
    play = loops_of(problem, prior).play
    if play is None:
        return None
    chosen = np.empty(regret.size, dtype=np.intp) if actions is None else actions
    return play(problem, LoopInput(prior, instance, first, rng, regret, chosen, policy))
