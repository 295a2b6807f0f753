"""Tuning by simulation, and problems made of a prior."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from adats import AdaTS, GaussianMeta, LinearMeta, ModelMixture, default_prior, save_prior
from adats.agents.policies import POLICIES, FarSighted, Thompson
from adats.simulation import AGENTS, Learner, simulate, tune
from adats.simulation.one_task import plain_task
from adats.simulation.problems import GaussianProblem, LinearProblem, PriorProblem

GAUSSIAN = GaussianMeta([0.0, 0.5], 0.5, task_scale=0.2, noise=1.5)
LINEAR = LinearMeta([0.1, -0.2], 0.25, task_cov=0.01, noise=1.0)
ROWS = np.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])
UNHURRIED = 1e6  # seconds, so that a slow machine plays the same runs


def totals(problem, agents, **options):
    result = simulate(
        problem, agents, **{"runs": 40, "tasks": 4, "rounds": 30, "seed": 5} | options
    )
    return [result.total(name) for name in agents]


def test_a_learner_with_the_usual_policy_is_the_built_in_agent():
    agents = {"ada-far": "ada-far"}
    usual = {"ada-far": Learner("x", policy=FarSighted())}
    for problem in (GaussianProblem(3), LinearProblem(2, 5)):
        assert_allclose(*totals(problem, agents), *totals(problem, usual))


@pytest.mark.parametrize("problem", [GaussianProblem(3), PriorProblem(LINEAR, ROWS)])
@pytest.mark.parametrize("delay", [0, 4])
def test_width_and_look_ahead_are_compiled_as_they_are_plain(problem, delay, monkeypatch):
    policy = FarSighted(width=2.5, ahead=0.2)
    agents = {"one": Learner("x", policy=policy)}
    options = {"runs": 5, "delay": delay}
    (fast,) = totals(problem, agents, **options)
    (usual,) = totals(problem, {"one": AGENTS["ada-far"]}, **options)
    monkeypatch.setattr("adats.simulation.kernels.registry.has_numba", lambda: False)
    with pytest.warns(UserWarning, match="Numba"):
        (slow,) = totals(problem, agents, **options)
    assert_allclose(fast, slow, rtol=1e-9)
    assert not np.allclose(fast, usual)


def test_a_prior_says_itself_whether_its_rewards_have_a_noise():
    wide, loud = (
        GaussianMeta([0.0, 0.5], 0.5, task_scale=s, noise=n) for s, n in ((1, 1.5), (1, 2))
    )
    (lost,) = totals(
        PriorProblem(ModelMixture([0.5, 0.5], [GAUSSIAN, wide])), {"a": "ada-ts"}, runs=4
    )
    assert np.isfinite(lost).all()
    with pytest.raises(ValueError, match="the same for all arms and models"):
        PriorProblem(ModelMixture([0.5, 0.5], [GAUSSIAN, loud]))
    with pytest.raises(ValueError, match="rewards of a binary model have no noise"):
        PriorProblem(default_prior(arms=["a", "b"], rewards="binary"))


def test_the_index_with_a_width():
    belief = GaussianMeta([0.0], 1.0, task_scale=0.0, noise=1.0).task_prior()
    agent = AdaTS(GAUSSIAN, policy=FarSighted(later=100.0, width=2.0, ahead=0.5), seed=1)
    assert agent.ask("a", horizon=10).action in (0, 1)
    x = 10 + 0.5 * 100 * 0.25
    expected = 2.0 * np.sqrt(np.log1p(0.4 * x + x * x / 300)) - 0.583 * np.sqrt(0.5)
    from adats.agents.policies import Scene

    scene = Scene(belief, None, horizon=10, share=lambda: 0.5)
    found = FarSighted(later=100.0, width=2.0, ahead=0.5).values(scene._replace(round=91))
    assert_allclose(found, expected)


def test_bad_widths():
    for options in ({"width": -1.0}, {"ahead": np.nan}):
        with pytest.raises(ValueError, match=next(iter(options))):
            FarSighted(**options)


def test_a_tuned_policy_survives_a_file(tmp_path):
    import adats

    agent = AdaTS(GAUSSIAN, policy=FarSighted(width=1.35, ahead=0.1), seed=1)
    agent.save(tmp_path / "agent.npz")
    state = adats.load(tmp_path / "agent.npz").state()
    assert state.setup.rule.policy == FarSighted(width=1.35, ahead=0.1)


@pytest.fixture
def few_runs(monkeypatch):
    """Enough to see that it works, not to know a tail."""
    monkeypatch.setattr("adats.simulation.tuning.LEAST_RUNS", 200)


@pytest.mark.usefixtures("few_runs")
def test_tuning_finds_a_policy_with_less_regret_and_no_heavier_tail():
    said = []
    found = tune(
        PriorProblem(GaussianMeta(np.zeros(2), 0.5, task_scale=0.1, noise=1.0)),
        tasks=10, rounds=60, seed=3, runs=200, seconds=UNHURRIED,
        progress=lambda *what: said.append(what),
    )  # fmt: skip
    sampled, *others = found.candidates
    assert sampled.policy == Thompson()
    chosen = next(one for one in found.candidates if one.policy == found.policy)
    assert chosen.tail <= sampled.tail
    assert chosen.regret < sampled.regret - 2 * np.hypot(chosen.se, sampled.se)
    assert all(one.runs == 200 for one in found.candidates)
    assert others
    assert said[-1][1:] == (200, 200)


@pytest.mark.usefixtures("few_runs")
def test_where_no_index_has_a_light_tail_it_is_thompson_sampling(monkeypatch):
    monkeypatch.setattr("adats.simulation.tuning.CANDIDATES", ((0.0, 0.0), (0.0, 1.0)))
    found = tune(GaussianProblem(3), tasks=5, rounds=60, seed=1, runs=200, seconds=UNHURRIED)
    assert found.policy == Thompson()
    assert len(found.candidates) == 3


@pytest.mark.usefixtures("few_runs")
@pytest.mark.parametrize("width", [1.1, 0.0])
def test_tuning_ends_when_its_time_is_over(width, monkeypatch):
    """One block of each stage is played; who is not in the second one goes by the first."""
    monkeypatch.setattr("adats.simulation.tuning.CANDIDATES", ((width, 0.5), (width, 1.0)))
    problem = GaussianProblem(3)
    found = tune(problem, tasks=5, rounds=60, seed=1, runs=2000, seconds=1e-9)
    assert [one.runs for one in found.candidates[:2]] == [100, 100]
    assert {one.runs for one in found.candidates[2:]} <= {20}
    assert found == tune(problem, tasks=5, rounds=60, seed=1, runs=2000, seconds=1e-9)
    with pytest.raises(ValueError, match="seconds must be positive"):
        tune(problem, tasks=5, rounds=60, seed=1, runs=2000, seconds=0.0)


def test_too_few_runs_for_a_tail():
    with pytest.raises(ValueError, match="at least 10000"):
        tune(GaussianProblem(2), tasks=2, rounds=5, seed=1, runs=500)


def test_the_problem_of_a_prior_is_that_of_the_same_settings():
    """Their regrets agree; and compiled loops do as the plain one."""
    made = PriorProblem(GaussianMeta(np.zeros(3), 0.5, task_scale=0.1, noise=1.0))
    pairs = [totals(p, ["ada-ts"], runs=400)[0] for p in (made, GaussianProblem(3))]
    gap = pairs[0].mean() - pairs[1].mean()
    assert abs(gap) < 4 * np.hypot(*(x.std() / 20 for x in pairs))


@pytest.mark.parametrize("problem", [PriorProblem(GAUSSIAN), PriorProblem(LINEAR, ROWS)])
def test_compiled_problems_of_priors_are_as_the_plain_loop(problem):
    world, rng = np.random.default_rng(1), np.random.default_rng(2)
    start = problem.start(world)
    instance = problem.instance(start, 25, world)
    prior, nothing = problem.meta().task_prior(), np.zeros((0, 1), dtype=np.intp)
    from adats.simulation.one_task import index_policy
    from loops import compiled_task

    regrets = np.empty((2, 25))
    index = index_policy("ucb", 25, np.zeros(problem.arms))
    compiled_task(problem, prior, instance, nothing, rng, regrets[0], policy=index)
    plain_task(problem, prior, instance, nothing, rng, regrets[1], policy=POLICIES["ucb"])
    assert_allclose(*regrets)


def test_priors_that_cannot_be_simulated():
    with pytest.raises(ValueError, match="the same for all arms"):
        PriorProblem(GaussianMeta([0.0, 0.0], 1.0, task_scale=0.1, noise=[1.0, 2.0]))
    with pytest.raises(ValueError, match="features"):
        PriorProblem(LINEAR)
    with pytest.raises(ValueError, match="2 columns"):
        PriorProblem(LINEAR, np.ones((3, 4)))


@pytest.mark.usefixtures("few_runs")
def test_the_command(tmp_path, capsys):
    import json

    from typer.testing import CliRunner

    from adats.cli import app

    save_prior(GAUSSIAN, tmp_path / "prior.json")
    given = ["tune", str(tmp_path / "prior.json"), "--tasks", "2", "--rounds", "5"]
    given += ["--runs", "200"]
    told = CliRunner().invoke(app, [*given, "--json", str(tmp_path / "out.json")])
    assert told.exit_code == 0, told.output
    assert "policy=" in told.output
    rows = json.loads((tmp_path / "out.json").read_text())["candidates"]
    assert sum(row["chosen"] for row in rows) == 1
    capsys.readouterr()


def test_later_rounds_that_are_given_count_in_compiled_loops_too():
    learners = {
        "none": Learner("none", policy=FarSighted(later=0.0)),
        "not counted": Learner("not counted", policy=FarSighted(ahead=0.0)),
        "all": Learner("all", policy=FarSighted()),
    }
    found = simulate(GaussianProblem(arms=4), learners, tasks=5, rounds=40, runs=3, seed=2)
    none, not_counted, counted = found.regret
    assert_allclose(none, not_counted, rtol=0)
    assert np.abs(counted - none).max() > 0
