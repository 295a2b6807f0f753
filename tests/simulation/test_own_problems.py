"""Problems of the user's own, which have no compiled loop; and the arms that are recorded."""

import warnings

import numpy as np
import pytest

import adats
from adats.simulation import AGENTS, simulate
from adats.simulation.kernels.registry import Loops, loops_of
from adats.simulation.problems import (
    ClassificationProblem,
    GaussianProblem,
    Instance,
    LinearProblem,
    MixtureProblem,
    SemibanditProblem,
)
from adats.simulation.problems.problem import Start

SMALL = {"tasks": 3, "rounds": 12, "runs": 4, "seed": 2}
BETAS = [adats.BetaArms([2.0, 5.0], [5.0, 2.0]), adats.BetaArms([8.0, 1.0], [2.0, 1.0])]


class Dial:
    """Two arms of one's own: theta and -theta. Its name is that of a built-in problem."""

    name, oracle = "gaussian", adats.BestArm()

    def describe(self):
        return {"name": self.name}

    def meta(self):
        return adats.GaussianMeta([0.0, 0.0], 1.0, task_scale=0.3, noise=1.0)

    def start(self, rng):
        return Start(rng.standard_normal(1) * [1.0, -1.0])

    def instance(self, start, rounds, rng):
        return Instance(start.mu + 0.3 * rng.standard_normal(2), rng.standard_normal(rounds))

    def reward(self, mean, draw):
        return mean + draw

    def first(self, start):
        return np.arange(start.mu.size).reshape(-1, 1)


@pytest.mark.parametrize(
    "agent",
    [a for a, learner in AGENTS.items() if not learner.spreads and learner.prior == "problem"],
)
def test_a_problem_of_ones_own_is_played_by_the_plain_loop_without_a_word(agent):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        got = simulate(Dial(), [agent], **SMALL, explore_first=True, record=True, detail="round")
    assert loops_of(Dial(), Dial().meta().task_prior()) == Loops()
    assert (got.actions[..., :2] == [0, 1]).all()
    assert (got.regret[got.actions.astype(bool)] == 0).any()
    assert got.regret.max() > 0


def pictures():
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1], 20)
    features = labels[:, None] + rng.normal(size=(40, 3))
    return ClassificationProblem(features, labels, 1, np.ones(3), 0.2, arms=5)


RECORDED = {
    "gaussian": GaussianProblem(arms=3),
    "linear": LinearProblem(dim=2, arms=5),
    "contextual": LinearProblem(dim=2, arms=5, redraw="round"),
    "mixture": MixtureProblem([0.5, 0.5], BETAS),
    "classification": pictures(),
}


def lost(problem, run, actions):
    """Regrets of one run, worked out from the arms alone."""
    world = np.random.default_rng(np.random.SeedSequence(SMALL["seed"], spawn_key=(run, 0)))
    start = problem.start(world)
    for arms in actions:
        instance = problem.instance(start, arms.size, world)
        for t, arm in enumerate(arms):
            means = instance.means(t)
            pulled = [instance.number(t, i) for i in range(means.size)].index(arm)
            yield means.max() - means[pulled]


@pytest.mark.parametrize("delay", [0, 3])
@pytest.mark.parametrize("name", RECORDED)
def test_recorded_arms_are_those_that_were_pulled(name, delay):
    problem = RECORDED[name]
    agents = ["oracle-ts", "ada-ts", "meta-ts", "ada-ucb", "ada-far"]
    if name in ("gaussian", "linear", "contextual"):
        agents.append("ada-grid")
    got = simulate(problem, agents, **SMALL, detail="round", delay=delay, record=True)
    assert got.actions.shape == (len(agents), 4, 3, 12)
    assert got.actions.dtype == np.intp
    for a in range(len(agents)):
        for run in range(4):
            expected = np.reshape(list(lost(problem, run, got.actions[a, run])), (3, 12))
            np.testing.assert_allclose(got.regret[a, run], expected, atol=1e-12)


def test_recording_changes_nothing_and_workers_record_the_same():
    options = {**SMALL, "detail": "round"}
    plain = simulate(GaussianProblem(arms=3), ["ada-ts", "ada-far"], **options)
    assert plain.actions is None
    one = simulate(GaussianProblem(arms=3), ["ada-ts", "ada-far"], **options, record=True)
    two = simulate(
        GaussianProblem(arms=3), ["ada-ts", "ada-far"], **options, record=True, workers=2, chunk=1
    )
    np.testing.assert_array_equal(one.regret, plain.regret)
    np.testing.assert_array_equal(one.actions, two.actions)
    assert one.records().keys() == plain.records().keys()


def test_arms_of_a_live_agent_are_recorded():
    def build(problem, seed):
        return adats.AdaTS(problem.meta(), seed=seed)

    problem = GaussianProblem(arms=3)
    got = simulate(problem, {"live": build}, **SMALL, detail="round", record=True)
    expected = [list(lost(problem, run, got.actions[0, run])) for run in range(4)]
    np.testing.assert_allclose(got.regret[0].reshape(4, -1), expected, atol=1e-12)


def test_sets_of_arms_cannot_be_recorded():
    with pytest.raises(ValueError, match=r"record is for .* single arms"):
        simulate(SemibanditProblem(arms=4, size=2), ["ts"], **SMALL, record=True)
