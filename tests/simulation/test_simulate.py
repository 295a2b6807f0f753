"""The simulator: the same numbers on any workers, honest summaries, and any agent."""

import dataclasses
import json
import math
import os
import re
import signal
import statistics
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import polars as pl
import pytest
from pyarrow import parquet
from threadpoolctl import threadpool_info, threadpool_limits

import adats
from adats import BetaArms, PoissonArms
from adats.simulation import AGENTS, Result, simulate
from adats.simulation.kernels import registry
from adats.simulation.problems import (
    ClicksProblem,
    GaussianProblem,
    LinearProblem,
    MixtureProblem,
    RoutingProblem,
    SemibanditProblem,
)

PAPER = ["oracle-ts", "ada-ts", "meta-ts", "ts"]
BETAS = [BetaArms([2.0, 5.0], [5.0, 2.0]), BetaArms([8.0, 1.0], [2.0, 1.0])]
GAMMAS = [PoissonArms([2.0, 5.0], [1.0, 4.0]), PoissonArms([90.0, 1.0], [3.0, 1.0])]
EDGES = ((0, 1), (1, 2), (0, 3), (3, 2), (0, 2))
PROBLEMS = {
    "gaussian": GaussianProblem(arms=3),
    "linear": LinearProblem(dim=2, arms=5),
    "contextual": LinearProblem(dim=2, arms=5, redraw="round"),
    "semibandit": SemibanditProblem(arms=6, size=2),
    "routing": RoutingProblem("square", EDGES, (1.0, 1.0, 2.0, 2.0, 4.0), 0, 2),
    "bernoulli": MixtureProblem([0.5, 0.5], BETAS),
    "poisson": MixtureProblem([[0.5, 0.2], [0.5, 0.8]], GAMMAS),
    "clicks": ClicksProblem(arms=3, base=0.2, level_scale=0.5),
    "events": ClicksProblem(arms=3, base=1.5, rewards="count"),
}
FOR_ALL = [agent for agent, learner in AGENTS.items() if learner.prior == "problem"]
SMALL = {"tasks": 3, "rounds": 20, "runs": 5, "seed": 7}
KNOWN = re.escape(", ".join(AGENTS))
each_problem = pytest.mark.parametrize("name", PROBLEMS)


def z(sample):
    """The mean in units of its standard error."""
    sample = np.asarray(sample)
    return sample.mean() / (sample.std(ddof=1) / math.sqrt(sample.size))


def result(regret, agents=("ada-ts", "ts")):
    regret = np.asarray(regret, dtype=float)
    _, runs, tasks, *rounds = regret.shape
    seconds = np.full(len(agents), 0.5)
    sizes = (tasks, rounds[0] if rounds else 10, runs)
    return Result({"name": "made"}, *sizes, 3, False, agents, regret, 1.5, seconds)


# one seed, one set of numbers


@each_problem
@pytest.mark.parametrize("detail", ["task", "round"])
def test_numbers_do_not_depend_on_chunks_or_on_other_agents(name, detail):
    problem = PROBLEMS[name]
    base = simulate(problem, PAPER, **SMALL, detail=detail)
    assert base.regret.shape == ((4, 5, 3) if detail == "task" else (4, 5, 3, 20))
    assert np.isfinite(base.regret).all()
    for chunk in (1, 2, 5, 9):
        other = simulate(problem, PAPER, **SMALL, detail=detail, chunk=chunk)
        np.testing.assert_array_equal(other.regret, base.regret)
    for agents in (["ts"], ["meta-ts", "oracle-ts"], PAPER[::-1]):
        other = simulate(problem, agents, **SMALL, detail=detail)
        for agent in agents:
            mine, theirs = agents.index(agent), PAPER.index(agent)
            np.testing.assert_array_equal(other.regret[mine], base.regret[theirs])


@pytest.mark.parametrize("detail", ["task", "round"])
@pytest.mark.parametrize("chunk", [None, 1, 3])
def test_numbers_do_not_depend_on_the_workers(detail, chunk):
    for problem in PROBLEMS.values():
        one = simulate(problem, PAPER, **SMALL, detail=detail)
        two = simulate(problem, PAPER, **SMALL, detail=detail, workers=2, chunk=chunk)
        np.testing.assert_array_equal(two.regret, one.regret)


@each_problem
def test_tasks_are_the_sums_of_rounds(name):
    coarse = simulate(PROBLEMS[name], PAPER, **SMALL)
    fine = simulate(PROBLEMS[name], PAPER, **SMALL, detail="round")
    np.testing.assert_array_equal(fine.per_task(), coarse.regret)
    assert (fine.regret >= -1e-12).all()
    assert fine.regret.max() > 0


def test_fewer_runs_are_the_first_of_more_and_no_two_runs_are_alike():
    few = simulate(GaussianProblem(), ["ts"], tasks=2, rounds=30, runs=4, seed=1)
    many = simulate(GaussianProblem(), ["ts"], tasks=2, rounds=30, runs=40, seed=1, chunk=7)
    np.testing.assert_array_equal(many.regret[:, :4], few.regret)
    assert len(np.unique(many.total("ts"))) == 40
    other = simulate(GaussianProblem(), ["ts"], tasks=2, rounds=30, runs=4, seed=2)
    assert not np.isin(other.regret, many.regret).any()


def test_all_agents_meet_the_same_instances():
    """Made to pull both arms once, all agents lose the gap between them, each run its own."""
    problem = GaussianProblem(arms=2, task_scale=1.0)
    known = simulate(problem, PAPER, tasks=1, rounds=2, runs=30, seed=1, explore_first=True)
    for row in known.regret[1:]:
        np.testing.assert_array_equal(row, known.regret[0])
    assert len(np.unique(known.regret[0])) == 30


def test_an_agent_under_another_name_has_draws_of_its_own():
    named = simulate(GaussianProblem(), {"ts": "ts", "flat": "ts"}, **SMALL)
    plain = simulate(GaussianProblem(), ["ts"], **SMALL)
    assert named.agents == ("ts", "flat")
    np.testing.assert_array_equal(named.total("ts"), plain.total("ts"))
    assert not np.array_equal(named.total("flat"), plain.total("ts"))


@pytest.mark.parametrize("name", [n for n in PROBLEMS if n not in ("clicks", "events")])
def test_without_numba_the_numbers_are_the_same(name, monkeypatch):
    problem = PROBLEMS[name]
    explore_first = name != "contextual"
    options = {**SMALL, "detail": "round", "explore_first": explore_first}
    agents = PAPER if "weights" in vars(problem) else FOR_ALL
    if not hasattr(problem, "candidates"):
        agents = [agent for agent in agents if not AGENTS[agent].spreads]
    compiled = simulate(problem, agents, **options)
    monkeypatch.setattr(registry, "has_numba", lambda: False)
    with pytest.warns(UserWarning, match=r"Numba.*pip install 'adats\[sim\]'"):
        plain = simulate(problem, agents, **options)
    for agent, mine, theirs in zip(agents, plain.regret, compiled.regret, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-9, atol=1e-9, err_msg=agent)


# what comes out


@pytest.mark.parametrize("detail", ["task", "round"])
def test_records_are_flat_columns(detail):
    got = simulate(GaussianProblem(), PAPER, **SMALL, detail=detail)
    records = got.records()
    columns = ["run", "task", "round", "agent", "regret"]
    assert list(records) == [c for c in columns if detail == "round" or c != "round"]
    assert {np.shape(column) for column in records.values()} == {(got.regret.size,)}
    rows = zip(*(np.asarray(column).tolist() for column in records.values()), strict=True)
    for run, task, *middle, agent, regret in rows:
        place = (PAPER.index(agent), run, task - 1, *(r - 1 for r in middle))
        assert regret == got.regret[place]
    assert len({*zip(*(records[c].tolist() for c in list(records)[:-1]), strict=True)}) == len(
        records["regret"]
    )


def test_records_are_one_call_from_a_data_frame(tmp_path):
    got = simulate(GaussianProblem(), PAPER, **SMALL, detail="round")
    got.save(tmp_path / "records.parquet")
    columns = {name: np.asarray(column).tolist() for name, column in got.records().items()}
    frames = [
        pl.DataFrame(got.records()).to_dict(as_series=False),
        pd.DataFrame(got.records()).to_dict(orient="list"),
        parquet.read_table(tmp_path / "records.parquet").to_pydict(),
        pl.read_parquet(tmp_path / "records.parquet").to_dict(as_series=False),
    ]
    for frame in frames:
        assert frame == columns
        assert list(frame) == list(columns)
    means = pl.DataFrame(got.records()).group_by("agent").agg(pl.col("regret").sum() / got.runs)
    assert dict(means.iter_rows()) == pytest.approx({name: got.mean(name) for name in PAPER})


def test_a_file_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    got = simulate(GaussianProblem(), ["ts"], **SMALL)
    target = tmp_path / "records.parquet"
    got.save(target)
    before = target.read_bytes()

    def fail(table, file):
        file.write(before[: len(before) // 2])
        raise KeyboardInterrupt(table.num_rows)

    monkeypatch.setattr(parquet, "write_table", fail)
    for path in (target, tmp_path / "other.parquet"):
        with pytest.raises(KeyboardInterrupt, match=str(3 * 5)):
            got.save(path)
    assert [path.name for path in tmp_path.iterdir()] == ["records.parquet"]
    assert target.read_bytes() == before


def test_mean_and_standard_error_by_hand():
    totals = [3.0, 7.0, 5.0, 9.0]
    got = result([[[1, 2], [3, 4], [5, 0], [4, 5]], [[0, 0]] * 4])
    assert got.total("ada-ts").tolist() == totals
    assert got.mean("ada-ts") == 6.0
    assert got.se("ada-ts") == pytest.approx(statistics.stdev(totals) / 2)  # √4
    assert got.se("ada-ts") == pytest.approx(math.sqrt(20 / 3) / 2)
    assert (got.mean("ts"), got.se("ts")) == (0.0, 0.0)
    fine = result(np.arange(24.0).reshape(1, 3, 2, 4), ("ts",))
    assert fine.total("ts").tolist() == [28.0, 92.0, 156.0]
    assert fine.per_task()[0, 0].tolist() == [6.0, 22.0]


def test_one_run_has_no_standard_error():
    got = result([[[1.0, 2.0]]], ("ts",))
    assert math.isnan(got.se("ts"))
    assert got.summary()["agents"]["ts"]["se"] is None


@pytest.mark.statistical
def test_the_standard_error_is_that_of_the_mean():
    """Means of 80 batches spread as much as one batch says."""
    got = simulate(GaussianProblem(), ["ts"], tasks=2, rounds=20, runs=4000, seed=5)
    batches = got.total("ts").reshape(80, 50)
    said = batches.std(axis=1, ddof=1).mean() / math.sqrt(50)
    seen = batches.mean(axis=1).std(ddof=1)
    assert abs(seen / said - 1) < 4 / math.sqrt(2 * 79)
    part = simulate(GaussianProblem(), ["ts"], tasks=2, rounds=20, runs=50, seed=5)
    assert part.se("ts") == pytest.approx(batches[0].std(ddof=1) / math.sqrt(50))


@pytest.mark.parametrize("detail", ["task", "round"])
def test_summary_is_json_with_the_promised_keys(detail):
    got = simulate(GaussianProblem(), PAPER, **SMALL, detail=detail)
    summary = json.loads(json.dumps(got.summary(), allow_nan=False))
    sizes = {"tasks": 3, "rounds": 20, "runs": 5, "seed": 7, "decisions": 4 * 5 * 3 * 20}
    assert set(summary) >= {"problem", "seconds", "agents", *sizes}
    assert {name: summary[name] for name in sizes} == sizes
    assert summary["problem"] == GaussianProblem().describe()
    assert summary["seconds"] > 0
    assert list(summary["agents"]) == PAPER
    for name, agent in summary["agents"].items():
        assert set(agent) == {"regret", "se", "per_task", "ns_per_decision"}
        assert agent["regret"] == got.mean(name) == pytest.approx(sum(agent["per_task"]))
        assert agent["se"] == got.se(name) > 0
        assert len(agent["per_task"]) == 3
        assert agent["ns_per_decision"] > 0


def test_nanoseconds_a_decision_by_hand():
    summary = result(np.ones((2, 5, 4))).summary()  # 5 runs, 4 tasks, 10 rounds, 0.5 s an agent
    assert summary["decisions"] == 400
    assert summary["agents"]["ts"]["ns_per_decision"] == pytest.approx(0.5e9 / 200)


def test_summary_is_json_for_sizes_of_numpy():
    sizes = {name: np.int64(size) for name, size in SMALL.items() if name != "seed"}
    got = simulate(GaussianProblem(), ["ts"], **sizes, seed=7)
    assert json.loads(json.dumps(got.summary()))["runs"] == 5


@pytest.mark.parametrize(("workers", "chunk"), [(1, None), (1, 2), (2, 2), (2, 1)])
def test_progress_adds_up_to_the_runs(workers, chunk):
    steps = []
    options = {"workers": workers, "chunk": chunk, "progress": steps.append}
    simulate(GaussianProblem(), ["ts"], **SMALL, **options)
    assert sum(steps) == 5
    assert len(steps) == (5 if chunk != 2 else 3)


# what is refused


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"agents": ["ts", "adats"]}, f"'adats'; known are {KNOWN}"),
        ({"agents": {"mine": "adats"}}, f"'adats'; known are {KNOWN}"),
        ({"agents": []}, r"agents .*\[\]"),
        ({"agents": "ts"}, "agents .* 'ts'"),
        ({"engine": "spark"}, "'spark'; known are local, ray"),
        ({"tasks": 0}, "tasks .* 0"),
        ({"rounds": 0}, "rounds .* 0"),
        ({"runs": 0}, "runs .* 0"),
        ({"runs": 2.0}, "runs .* 2.0"),
        ({"workers": 0}, "workers .* 0"),
        ({"workers": -1}, "workers .* -1"),
        ({"chunk": -1}, "chunk .* -1"),
        ({"chunk": 0}, "chunk .* 0"),
        ({"detail": "rounds"}, "'rounds'.*task.*round|task.*round.*'rounds'"),
        ({"seed": -1}, "seed .* -1"),
        ({"seed": None}, "seed .* None"),
        ({"seed": True}, "seed .* True"),
    ],
)
def test_what_cannot_be_is_refused(given, message):
    options = {"agents": ["ts"], **SMALL, **given}
    with pytest.raises(ValueError, match=message):
        simulate(GaussianProblem(), **options)


def test_a_categorical_meta_prior_cannot_be_widened():
    with pytest.raises(ValueError, match="no width"):
        simulate(PROBLEMS["bernoulli"], ["ada-ts+"], **SMALL)


def test_arms_that_change_cannot_be_explored_first():
    with pytest.raises(ValueError, match="stay the same"):
        simulate(PROBLEMS["contextual"], ["ts"], **SMALL, explore_first=True)


def test_a_result_names_the_agents_that_it_has():
    with pytest.raises(ValueError, match=r"'adats'.*ada-ts.*ts"):
        result(np.ones((2, 3, 1))).mean("adats")


# regrets


def test_a_fixed_mu_gives_the_regret_of_that_mu():
    """With task_scale 0 each task is mu itself, so that the regret of a round is 0 or the gap."""
    problem = GaussianProblem(arms=2, task_scale=0.0, mu=[0.1, 0.35])
    got = simulate(problem, PAPER, tasks=4, rounds=50, runs=20, seed=1, detail="round")
    np.testing.assert_allclose(np.unique(got.regret.round(12)), [0.0, 0.25])
    assert got.total("oracle-ts").max() == 0.0
    assert got.mean("ts") > got.mean("ada-ts") > 0


@pytest.mark.statistical
def test_drawn_mu_is_the_average_over_fixed_mu():
    sizes = {"tasks": 3, "rounds": 30, "seed": 2}
    drawn = simulate(GaussianProblem(), ["ada-ts"], runs=600, **sizes)
    points = np.random.default_rng(3).normal(scale=0.5, size=(300, 2))
    fixed = [
        simulate(GaussianProblem(mu=mu), ["ada-ts"], runs=2, **(sizes | {"seed": i}))
        for i, mu in enumerate(points)
    ]
    means = np.array([got.mean("ada-ts") for got in fixed])
    error = math.hypot(drawn.se("ada-ts"), means.std(ddof=1) / math.sqrt(means.size))
    assert abs(means.mean() - drawn.mean("ada-ts")) < 4 * error
    assert drawn.mean("ada-ts") > 8 * error  # so that the test can tell


def test_forced_exploration_pulls_every_arm_first():
    problem = GaussianProblem(arms=3, task_scale=0.0, mu=[0.0, 1.0, 3.0])
    got = simulate(problem, PAPER, **SMALL, explore_first=True, detail="round")
    np.testing.assert_allclose(got.regret[..., :3], np.broadcast_to([3.0, 2.0, 0.0], (4, 5, 3, 3)))
    assert got.explore_first
    assert got.summary()["explore_first"] is True


@pytest.fixture(scope="module")
def paper():
    """Gaussian arms as in Figure 2: K = 2, σ_q = 0.5, σ_0 = 0.1, σ = 1, m = 20, n = 200."""
    return simulate(GaussianProblem(), FOR_ALL, tasks=20, rounds=200, runs=200, seed=1)


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("better", "worse"),
    [("oracle-ts", "ada-ts"), ("ada-ts", "meta-ts"), ("meta-ts", "ts"), ("ada-ts+", "ts")],
)
def test_the_order_of_the_paper(paper, better, worse):
    assert z(paper.total(worse) - paper.total(better)) > 3


@pytest.mark.statistical
def test_ada_ts_approaches_oracle_ts():
    got = simulate(GaussianProblem(), PAPER, tasks=40, rounds=200, runs=400, seed=1, workers=2)
    oracle, ada, _, ts = got.per_task()
    gap = ada - oracle
    early, late = gap[:, :5].mean(axis=1), gap[:, -10:].mean(axis=1)
    assert z(0.25 * early - late) > 3  # of the early gap at most a quarter is left
    flat = (ts - oracle)[:, -10:].mean(axis=1)
    assert z(0.25 * flat - late) > 3


# an agent of one's own


def live(kind):
    def build(problem, seed):
        told = (problem.mu,) if kind is adats.OracleTS else ()
        return kind(problem.meta(), *told, seed=seed, oracle=problem.oracle)

    return build


LIVE = {
    "gaussian": (GaussianProblem(arms=3), [0.3, 0.0, -0.3]),
    "linear": (LinearProblem(dim=2, arms=6), [0.5, -0.2]),
    "contextual": (LinearProblem(dim=2, arms=4, redraw="round"), [0.5, -0.2]),
    "semibandit": (SemibanditProblem(arms=5, size=2), [0.3, 0.1, 0.0, -0.3, 0.2]),
    "bernoulli": (PROBLEMS["bernoulli"], 0),
    "poisson": (MixtureProblem([0.5, 0.5], GAMMAS), 0),
}


@pytest.mark.statistical
@pytest.mark.parametrize("name", LIVE)
@pytest.mark.parametrize(
    ("kind", "builtin"),
    [
        (adats.AdaTS, "ada-ts"),
        (adats.MetaTS, "meta-ts"),
        (adats.TS, "ts"),
        (adats.OracleTS, "oracle-ts"),
    ],
    ids=PAPER[1:] + PAPER[:1],
)
def test_a_live_agent_has_the_regret_of_the_built_in_one(name, kind, builtin):
    problem, mu = LIVE[name]
    if kind is adats.OracleTS:
        problem = dataclasses.replace(problem, mu=mu)
    agents = {"live": live(kind), builtin: builtin}
    got = simulate(problem, agents, tasks=4, rounds=25, runs=40, seed=11)
    assert abs(z(got.total("live") - got.total(builtin))) < 4


@pytest.mark.statistical
def test_the_comparison_of_live_agents_can_tell():
    agents = {"live": live(adats.TS), "ada-ts": "ada-ts"}
    got = simulate(GaussianProblem(arms=3), agents, tasks=10, rounds=25, runs=60, seed=11)
    assert z(got.total("live") - got.total("ada-ts")) > 4


def test_a_live_agent_gives_the_same_numbers_on_two_workers():
    agents = {"live": live(adats.AdaTS), "ts": "ts"}
    one = simulate(PROBLEMS["contextual"], agents, **SMALL)
    two = simulate(PROBLEMS["contextual"], agents, **SMALL, workers=2, chunk=1)
    np.testing.assert_array_equal(one.regret, two.regret)


class Always:
    """Pulls the same arm, and remembers what it was told."""

    def __init__(self, arm, seed):
        self.arm, self.seed, self.rewards = arm, seed, []

    def ask(self, task):
        return adats.Decision(task, self.arm, None, 0, 0.0)

    def tell(self, decision, *, reward):
        self.rewards.append((decision.task, decision.action, reward))


def test_an_agent_needs_only_ask_and_tell():
    built = []

    def factory(problem, seed):
        built.append(Always(problem.arms - 1, seed))
        return built[-1]

    problem = GaussianProblem(arms=3, mu=[2.0, 0.5, 0.0], task_scale=0.0, noise=0.1)
    got = simulate(problem, {"last": factory}, **SMALL, detail="round")
    np.testing.assert_allclose(got.regret, 2.0)
    assert len(built) == 5
    assert len({agent.seed for agent in built}) == 5  # one a run
    tasks, actions, rewards = zip(*built[0].rewards, strict=True)
    assert tasks == tuple(np.repeat([0, 1, 2], 20))
    assert set(actions) == {2}
    assert abs(z(rewards)) < 4
    assert np.std(rewards) == pytest.approx(0.1, rel=0.5)


def test_the_error_of_an_agent_comes_out_and_workers_have_one_thread_each():
    def broken(*_):
        raise RuntimeError(f"threads: {os.environ.get('OMP_NUM_THREADS')}")

    with pytest.raises(RuntimeError, match="threads: 1"):
        simulate(GaussianProblem(), {"broken": broken}, **SMALL, workers=2)


# stopping


STOP = """
import signal
import sys
from adats.simulation.problems import GaussianProblem
from adats.simulation import simulate

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background ignores it
workers, how, path = sys.argv[1:]

def progress(done):
    print(done, flush=True)
    if how == "raise":
        raise KeyboardInterrupt

got = simulate(GaussianProblem(), ["ts"], tasks=50, rounds=10_000, runs=200, seed=1,
               workers=int(workers), chunk=1, progress=progress)
got.save(path)
"""


@pytest.mark.skipif(os.name != "posix", reason="process groups are of POSIX")
@pytest.mark.parametrize(("workers", "how"), [(1, "raise"), (2, "raise"), (2, "signal")])
def test_ctrl_c_leaves_no_file_and_no_process(workers, how, tmp_path):
    target = tmp_path / "records.parquet"
    process = subprocess.Popen(
        [sys.executable, "-c", STOP, str(workers), how, str(target)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # a process group of its own, as a shell gives
    )
    try:
        assert process.stdout.readline() == "1\n"
        if how == "signal":
            os.killpg(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=60)
        assert process.returncode != 0
        assert err.rstrip().endswith("KeyboardInterrupt")
        assert err.count("Traceback") == 1  # none from a worker
        assert "Warning" not in err
        assert list(tmp_path.iterdir()) == []
        deadline = time.monotonic() + 20
        while group_lives(process.pid) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not group_lives(process.pid)
    finally:
        if group_lives(process.pid):
            os.killpg(process.pid, signal.SIGKILL)


def group_lives(group):
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("installed", [True, False])
def test_one_worker_has_one_thread_of_linear_algebra_as_each_of_several(installed, monkeypatch):
    """Threads of small matrices wait for each other: 3 to 39 times as slow on a busy machine."""
    simulator = sys.modules["adats.simulation.simulate"]
    simulator._linear_algebra.cache_clear()
    if not installed:
        monkeypatch.setitem(sys.modules, "threadpoolctl", None)
    seen = []

    def look(runs):  # noqa: ARG001
        seen.append({pool["num_threads"] for pool in threadpool_info()})

    with threadpool_limits(2):
        simulate(GaussianProblem(arms=2), ["ts"], **SMALL, progress=look)
        after = {pool["num_threads"] for pool in threadpool_info()}
    simulator._linear_algebra.cache_clear()
    assert after == {2}
    assert seen == [{1 if installed else 2}] * SMALL["runs"]


# a thread of joblib may stumble over work that was taken away from it
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_after_ctrl_c_one_can_go_on():
    def stop(done):
        raise KeyboardInterrupt(done)

    for workers in (1, 2):
        with pytest.raises(KeyboardInterrupt):
            simulate(GaussianProblem(), ["ts"], **SMALL, workers=workers, chunk=1, progress=stop)
    again = simulate(GaussianProblem(), ["ts"], **SMALL, workers=2)
    np.testing.assert_array_equal(again.regret, simulate(GaussianProblem(), ["ts"], **SMALL).regret)
