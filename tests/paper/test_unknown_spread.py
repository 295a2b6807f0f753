"""AdaTS that is not told σ_0: its candidates, what it learns, and the experiment about it."""

import math
from dataclasses import replace

import numpy as np
import pytest

import adats
from adats import BeliefMixture, BetaArms, GaussianMeta
from adats.paper.experiments import EXPERIMENTS, claims
from adats.paper.experiments.figures import RATIO_AGENTS, spread_figure
from adats.paper.experiments.measures import ratio
from adats.paper.experiments.panels import run_panel
from adats.paper.experiments.simulations import SPREAD_AGENTS
from adats.simulation import AGENTS, simulate
from adats.simulation.kernels.registry import absorb_of
from adats.simulation.problems import (
    GaussianProblem,
    LinearProblem,
    MixtureProblem,
    SemibanditProblem,
)
from adats.simulation.problems.problem import SPREADS
from loops import compiled_task

EXPERIMENT = EXPERIMENTS["unknown-spread"]
TESTED = (0.05, 0.1, 0.3, 1.0)
KINDS = pytest.mark.parametrize("kind", [GaussianProblem, LinearProblem])


# Candidates


def test_the_grid_is_even_in_logarithms_and_has_no_tested_value():
    steps = np.diff(np.log(SPREADS))
    np.testing.assert_allclose(steps, math.log(100) / 7)
    assert (min(SPREADS), max(SPREADS)) == (0.02, pytest.approx(2.0))
    assert all(abs(math.log(spread / tested)) > 0.03 for spread in SPREADS for tested in TESTED)


@KINDS
def test_candidates_do_not_depend_on_the_truth(kind):
    def told(spread):
        metas = kind(task_scale=spread, noise=2.0, meta_scale=0.7).candidates().models
        return [(m.task_prior().mean, m.task_prior().scale, m.noise) for m in metas]

    for one, two in zip(told(0.05), told(1.0), strict=True):
        for left, right in zip(one, two, strict=True):
            np.testing.assert_array_equal(left, right)


@KINDS
def test_candidates_differ_from_the_truth_in_the_spread_alone(kind):
    problem = kind(task_scale=0.6, noise=2.0, meta_scale=0.7)
    mixture = problem.candidates([0.1, 0.3])
    np.testing.assert_allclose(mixture.weights, 0.5)
    true, right = problem.meta(), mixture.models[1]  # 0.3 σ = 0.6
    for belief in (lambda m: m.task_prior(), lambda m: m.prior_given(np.ones(2))):
        np.testing.assert_allclose(belief(right).mean, belief(true).mean)
        np.testing.assert_allclose(belief(right).scale, belief(true).scale)
    np.testing.assert_allclose(right.meta_mean, true.meta_mean)
    np.testing.assert_allclose(mixture.models[0].prior_given(np.ones(2)).scale, 0.2)


@pytest.mark.parametrize(
    "problem",
    [SemibanditProblem(), MixtureProblem([0.5, 0.5], [BetaArms([1, 2], 1), BetaArms([2, 1], 1)])],
)
def test_other_problems_have_no_candidates(problem):
    sizes = {"tasks": 2, "rounds": 2, "runs": 1, "seed": 1}
    with pytest.raises(ValueError, match=f"gaussian and linear have, but not {problem.name}"):
        simulate(problem, ["ts", "ada-grid"], **sizes, progress=pytest.fail)


# What it learns


@KINDS
@pytest.mark.statistical
@pytest.mark.parametrize("spread", [0.1, 0.3, 1.0])
def test_it_finds_the_spread(kind, spread):
    """Mean of log σ_0 over the candidates, after 60 tasks: a grid step from the truth at most."""
    problem = kind(task_scale=spread)
    rng = np.random.default_rng(4)
    start, none = problem.start(rng), np.zeros((0, 1), dtype=np.intp)
    meta = problem.candidates()
    for _ in range(60):
        instance = problem.instance(start, 200, rng)
        stats = compiled_task(problem, meta.task_prior(), instance, none, rng, np.empty(200))
        meta = absorb_of(problem, meta)(meta, stats)
    guess = float(meta.weights @ np.log(SPREADS))
    assert abs(guess - math.log(spread)) < math.log(100) / 7
    assert meta.weights.max() > 0.5


def test_a_draw_works_out_one_posterior_and_the_mean_all(monkeypatch):
    meta = GaussianProblem().candidates()
    digest = meta.digest(meta.empty().add([0, 1, 1], [1.0, 2.0, 0.5]))
    meta = meta.absorb(digest.message)
    eager = tuple(m.posterior(p) for m, p in zip(meta.models, digest.parts, strict=True))
    expected = BeliefMixture(meta.weights, eager)
    asked, known = [], GaussianMeta.posterior
    monkeypatch.setattr(GaussianMeta, "posterior", lambda *a: (asked.append(a), known(*a))[1])
    lazy = meta.posterior(digest)
    draws = [belief.sample(np.random.default_rng(3)) for belief in (lazy, expected)]
    np.testing.assert_allclose(*draws, rtol=1e-12)
    assert len(asked) == 1
    np.testing.assert_allclose(lazy.mean, expected.mean, rtol=1e-12)
    np.testing.assert_allclose(lazy.scale, expected.scale, rtol=1e-12)
    assert len(asked) == len(SPREADS)


@KINDS
def test_workers_do_not_matter(kind):
    options = {"tasks": 3, "rounds": 20, "runs": 4, "seed": 7, "detail": "round"}
    one = simulate(kind(), SPREAD_AGENTS, **options)
    two = simulate(kind(), SPREAD_AGENTS, **options, workers=2, chunk=1)
    np.testing.assert_array_equal(one.regret, two.regret)


@KINDS
@pytest.mark.statistical
def test_it_is_the_live_agent(kind):
    problem = kind(task_scale=0.3)

    def live(problem, seed):
        return adats.AdaTS(problem.candidates(), seed=seed)

    options = {"tasks": 3, "rounds": 12, "seed": 1}
    mine = simulate(problem, {"live": live}, runs=40, **options).total("live")
    fast = simulate(problem, ["ada-grid"], runs=400, **options).total("ada-grid")
    error = math.hypot(mine.std(ddof=1) / math.sqrt(40), fast.std(ddof=1) / math.sqrt(400))
    assert abs(mine.mean() - fast.mean()) < 4 * error


@pytest.mark.statistical
@pytest.mark.parametrize(("agent", "spread"), [("ada-narrow", 0.05), ("ada-broad", 1.0)])
def test_an_agent_that_happens_to_be_right_is_ada_ts(agent, spread):
    problem = GaussianProblem(task_scale=spread)
    got = simulate(problem, [agent, "ada-ts"], tasks=10, rounds=50, runs=400, seed=1)
    gap = got.total(agent) - got.total("ada-ts")
    assert abs(gap.mean()) < 4 * gap.std(ddof=1) / math.sqrt(400)
    other = {"ada-narrow": "ada-broad", "ada-broad": "ada-narrow"}[agent]
    wrong = simulate(problem, [other], tasks=10, rounds=50, runs=400, seed=1)
    assert wrong.mean(other) > 1.5 * got.mean("ada-ts")


@pytest.mark.statistical
@pytest.mark.parametrize(("kind", "runs"), [(GaussianProblem, 300), (LinearProblem, 100)])
def test_regret_is_near_that_of_the_agent_that_knows(kind, runs):
    """With two standard errors to spare."""
    got = simulate(kind(), ["ada-ts", "ada-grid"], tasks=20, rounds=200, runs=runs, seed=1)
    value, se = ratio(got.total("ada-grid"), got.total("ada-ts"))
    assert value + 2 * se < 1.25


# The experiment


def test_every_problem_with_every_spread():
    seen = {}
    for panel in EXPERIMENT.panels:
        assert panel.agents == SPREAD_AGENTS
        settings = panel.problem().describe()
        assert settings.pop("noise") == 1.0
        spread = settings.pop("task_scale")
        assert panel.title.endswith(f", σ_0 = {spread:g}")
        key = tuple(settings.get(name) for name in ("name", "dim", "arms", "meta_scale"))
        seen.setdefault(key, []).append(spread)
    assert seen == {
        ("gaussian", None, 2, 0.5): list(TESTED),
        ("gaussian", None, 8, 1.0): list(TESTED),
        ("linear", 2, 10, 1.0): list(TESTED),
        ("linear", 4, 20, 1.0): list(TESTED),
    }
    assert [agent for agent in SPREAD_AGENTS if AGENTS[agent].spreads] == [
        "ada-grid", "ada-narrow", "ada-broad"
    ]  # fmt: skip


@pytest.fixture(scope="module")
def outcomes():
    """The experiment with few and short tasks."""
    panels = [replace(panel, tasks=2, rounds=20) for panel in EXPERIMENT.panels]
    options = {"runs": 4, "seed": 3, "workers": 1, "engine": "local"}
    return [run_panel(panel, panel.problem(), **options) for panel in panels]


def test_figure_shows_the_ratios(outcomes):
    figure = spread_figure(outcomes)
    assert len(figure.axes) == 12
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert ["σ_0" in title for title in titles] == [False, False, True] * 4
    agents = ("ada-grid",), RATIO_AGENTS
    for i, axes in enumerate(figure.axes):
        row, column = divmod(i, 3)
        if column == 2:
            continue
        found, shown = outcomes[4 * row : 4 * row + 4], agents[column]
        assert len(axes.containers) == len(shown)  # error bars
        for agent, line, bars in zip(shown, axes.get_lines(), axes.containers, strict=False):
            pairs = [ratio(o.total(agent), o.total("ada-ts")) for o in found]
            np.testing.assert_array_equal(line.get_xdata(), TESTED)
            np.testing.assert_allclose(line.get_ydata(), [value for value, _ in pairs])
            ends = bars.lines[2][0].get_segments()
            half = [(end[1, 1] - end[0, 1]) / 2 for end in ends]
            np.testing.assert_allclose(half, [se for _, se in pairs], rtol=1e-9)
        assert 1.25 in [line.get_ydata()[0] for line in axes.get_lines()]
        assert axes.get_ylim() == figure.axes[column].get_ylim()
        assert axes.get_xscale() == "log"


def test_report_states_the_grid_and_judges_every_setting(outcomes):
    made = {"seconds": 1.0, "versions": {}}
    text = EXPERIMENT.written(outcomes, made)["report.md"].decode()
    assert "0.02, 0.0386, 0.0746, 0.144, 0.278, 0.537, 1.04, 2 times σ" in text
    first = text.split("### 1. ")[1].split("### 2. ")[0]
    assert all(f"| {panel.title} |" in first for panel in EXPERIMENT.panels)


def test_claims_on_made_up_numbers(outcomes):
    def made_up(learned, narrow, broad):
        """Regrets of a run: AdaTS 100, TS 300; one number an agent, or one a spread."""
        made = []
        for o in outcomes:
            i = TESTED.index(o.result.problem["task_scale"])
            numbers = [50, 100, learned, 300, narrow, broad]
            means = [float(np.broadcast_to(value, 4)[i]) for value in numbers]
            noise = np.random.default_rng(i).normal(0, 1, (6, 50, 2))
            regret = np.array(means)[:, None, None] / 2 + noise
            made.append(replace(o, result=replace(o.result, regret=regret, runs=50)))
        return [judged.verdict for judged in claims.judge(claims.UNKNOWN, made)]

    assert made_up(110, (100, 90, 150, 700), (500, 300, 150, 100)) == ["holds"] * 3
    assert made_up(140, (100, 90, 150, 700), 110) == ["does not hold", "holds", "does not hold"]
    assert made_up((400, 110, 110, 110), 100, 100) == ["does not hold"] * 3
