"""`adats reproduce policies`: what it runs, what it writes, and how its claims are judged."""

import re
import sys
import xml.etree.ElementTree as ET
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from numpy.testing import assert_allclose
from pyarrow import parquet
from scipy.stats import gamma

from adats.paper.experiments import EXPERIMENTS, pipeline, reproduce, total_steps
from adats.paper.experiments.claims import judge
from adats.paper.experiments.measures import tail, tail_ratio
from adats.paper.experiments.panels import Panel, outcome_of
from adats.paper.experiments.policies import (
    AGENTS,
    POLICY_EXPERIMENT,
    GaussianPendingIgnored,
    LinearPendingIgnored,
)
from adats.paper.experiments.policies_claims import (
    CLAIMS,
    DELAY,
    INDEX_AGENTS,
    PENDING_IGNORED,
)
from adats.paper.experiments.policies_report import crossing
from adats.paper.experiments.report_text import TIMING
from adats.simulation.kernels.registry import UCB, CompiledPolicy
from adats.simulation.learners import AGENTS as BUILT_IN
from adats.simulation.learners import label_of
from adats.simulation.problems import GaussianProblem, LinearProblem
from adats.simulation.simulate import Result, simulate
from loops import compiled_task
from report_files import contents

RUNS, TASKS, ROUNDS, MANY = 20, 12, 15, 14
TABLE, LATE = (
    [p for p in POLICY_EXPERIMENT.panels if p.part == part] for part in ("table", "late")
)
FILES = POLICY_EXPERIMENT.file_names()


@pytest.fixture(scope="module")
def small():
    """The same experiment with few short tasks: its folder, and the calls for progress."""
    panels = []
    for panel in POLICY_EXPERIMENT.panels:
        tasks = MANY if panel.part == "many" else TASKS
        title = panel.title.replace("200 tasks", f"{MANY} tasks")
        panels.append(replace(panel, title=title, tasks=tasks, rounds=ROUNDS))
    patch = pytest.MonkeyPatch()
    experiments = {**EXPERIMENTS, "policies": replace(POLICY_EXPERIMENT, panels=tuple(panels))}
    patch.setattr(pipeline, "EXPERIMENTS", experiments)
    yield [panel for panel in panels if panel.part == "table"]
    patch.undo()


@pytest.fixture(scope="module")
def written(small, tmp_path_factory):  # noqa: ARG001
    calls = []
    out = tmp_path_factory.mktemp("policies") / "new" / "folder"
    path = reproduce("policies", out=out, runs=RUNS, seed=5, progress=lambda *c: calls.append(c))
    assert path == out / "report.md"
    return out, calls, path.read_text()


def tables(text):
    """The Markdown tables of a text, each a list of rows of cells."""
    found = re.findall(r"(?:^\| .*\n)+", text, flags=re.MULTILINE)
    return [
        [[c.strip() for c in line.strip("|").split(" | ")] for line in one.splitlines()]
        for one in found
    ]


def section(text, head):
    return text.split(f"\n## {head}")[1].split("\n## ")[0]


# What is run


def test_the_rows_are_those_of_the_issue():
    def kind(panel):
        settings = panel.problem().describe()
        assert (settings["task_scale"], settings["noise"]) == (0.1, 1.0)
        assert (panel.tasks, panel.rounds, panel.explore_first) == (20, 200, False)
        assert panel.agents == AGENTS
        return settings["name"], settings.get("dim"), settings["arms"], settings["meta_scale"]

    assert [kind(panel) for panel in TABLE] == [
        ("gaussian", None, 2, 0.5),
        ("gaussian", None, 2, 1.0),
        ("gaussian", None, 8, 1.0),
        ("linear", 2, 10, 0.5),
        ("linear", 8, 40, 1.0),
    ]
    for panel, row in zip(LATE, TABLE[2:4], strict=True):
        assert panel.variant.problem().describe() == row.problem().describe()


def test_counts_of_runs():
    assert [LATE[0].runs(runs) for runs in (2, 20, 1000, 2000)] == [2, 2, 100, 200]
    assert total_steps("policies", 20) == 5 * 20 + 5 * 2 + 4 * 2
    assert total_steps("policies") == 5 * 2000 + 5 * 200 + 4 * 200
    with pytest.raises(ValueError, match="runs must be a whole number of at least 2"):
        total_steps("policies", 1)


@pytest.mark.parametrize(
    ("uncounted", "problem"),
    [
        (GaussianPendingIgnored(3), GaussianProblem(3)),
        (LinearPendingIgnored(2, 4), LinearProblem(2, 4)),
    ],
)
def test_pending_pulls_are_all_that_differs(uncounted, problem):
    def regret(which, delay):
        options = {"tasks": 3, "rounds": 20, "runs": 3, "seed": 1, "delay": delay}
        return simulate(which, INDEX_AGENTS, **options, explore_first=True).regret  # breaks ties

    assert_allclose(regret(uncounted, 0), regret(problem, 0), atol=1e-9)  # nothing is pending
    assert not np.allclose(regret(uncounted, 8), regret(problem, 8))


def test_an_index_that_does_not_count_asks_for_one_arm_again_and_again():
    world, first = GaussianPendingIgnored(4), np.zeros((0, 1), dtype=np.intp)
    rng = np.random.default_rng(1)
    instance = world.instance(world.start(rng), 10, rng)
    index = CompiledPolicy(UCB, np.full(10, 1.0), np.zeros(4), 10)
    given = (world.meta().task_prior(), instance, first, rng, np.empty(10))
    stats = compiled_task(world, *given, policy=index)
    assert sorted(stats.count.tolist()) == [0, 0, 0, 10]
    plain = GaussianProblem(4)
    stats = compiled_task(plain, *given, policy=index)
    assert stats.count.min() >= 1


# What is written


def test_progress_counts_every_run_once(written):
    _, calls, _ = written
    total = total_steps("policies", RUNS)
    done = [0, *(call[1] for call in calls)]
    assert {call[2] for call in calls} == {total}
    assert done[-1] == total
    assert all(a < b for a, b in pairwise(done))


def test_files(written):
    out, _, text = written
    assert {path.name for path in out.iterdir()} == {*FILES, "report.md"}
    for name in FILES:
        assert f"`{name}`" in text
        if name.endswith("png"):
            assert (out / name).read_bytes().startswith(b"\x89PNG")
            assert f"]({name})" in text
        elif name.endswith("svg"):
            words = "".join(ET.parse(out / name).getroot().itertext())
            assert all(label_of(a).split(", ")[-1] in words for a in AGENTS[:-1])


@pytest.fixture
def totals(written):
    table = parquet.read_table(written[0] / "records.parquet").to_pandas()
    assert list(table) == ["panel", "run", "task", "agent", "regret"]
    return table


def of(totals, label, agent, since=0):
    some = totals[(totals["panel"] == label) & (totals["agent"] == agent)]
    some = some[some["task"] > since]
    return some.groupby("run")["regret"].sum().sort_index().to_numpy()


def test_tables_are_what_the_records_say(written, totals, small):
    text = written[2]
    agents = {label_of(agent): agent for agent in BUILT_IN}
    mean, share = tables(section(text, f"Total regret over {TASKS} tasks"))
    (tails,) = tables(section(text, "Tails"))
    (learned,) = tables(section(text, "From task 10 on"))
    for table in (mean, share, tails, learned):
        assert [row[0] for row in table[2:]] == [panel.label for panel in small]
        assert [agents[name] for name in table[0][1:]] == list(AGENTS)
    for i, panel in enumerate(small, 2):
        ada, oracle = (of(totals, panel.label, agent) for agent in ("ada-ts", "oracle-ts"))
        for j, agent in enumerate(AGENTS, 1):
            own = of(totals, panel.label, agent)
            assert mean[i][j] == f"{own.mean():.1f} ± {own.std(ddof=1) / np.sqrt(RUNS):.1f}"
            assert share[i][j].split(" ")[0] in ("1", f"{own.mean() / ada.mean():.3f}")
            assert tails[i][j].startswith(f"{np.quantile(own, 0.99):.0f} ± ")
            late = of(totals, panel.label, agent, since=9) / (TASKS - 9)
            assert learned[i][j].startswith(f"{late.mean():.2f} ± ")
            if agent != "oracle-ts":
                gap = of(totals, panel.label, "oracle-ts", since=9) / (TASKS - 9) - late
                z = gap.mean() / (gap.std(ddof=1) / np.sqrt(RUNS))
                assert learned[i][j].endswith(f"({z:+.1f})")
        assert oracle.size == ada.size == RUNS


def test_late_and_many_are_what_the_records_say(written, totals, small):
    text = written[2]
    (late,) = tables(section(text, "Rewards that come late"))
    names = {label_of(agent): agent for agent in BUILT_IN} | {
        v: v for v in PENDING_IGNORED.values()
    }
    assert [names[row[0]] for row in late[2:]] == [*AGENTS[:-1], *PENDING_IGNORED.values()]
    assert late[0][1:] == [f"{small[i].label}, rewards {DELAY} rounds late" for i in (2, 3)]
    for row in late[2:]:
        for label, cell in zip(late[0][1:], row[1:], strict=True):
            assert cell.startswith(f"{of(totals, label, names[row[0]]).mean():.1f} ± ")
    (many,) = tables(section(text, f"Total regret over {MANY} tasks"))
    assert [row[0] for row in many[2:]] == [f"{panel.label}, {MANY} tasks" for panel in small]
    for row in many[2:]:
        for name, cell in zip(many[0][1:], row[1:], strict=True):
            assert cell.startswith(f"{of(totals, row[0], names[name]).mean():.0f} ± ")
    some = totals[totals["panel"] == many[2][0]]
    assert some["task"].max() == MANY
    assert some["run"].nunique() == LATE[0].runs(RUNS)


def test_the_report_has_every_claim(written):
    text = written[2]
    claims = section(text, "Claims")
    verdicts = dict(tables(claims)[0][2:])
    assert list(verdicts) == [claim.text for claim in CLAIMS]
    for i, claim in enumerate(CLAIMS, 1):
        part = claims.split(f"\n### {i}. {claim.text}\n")[1].split("\n### ")[0]
        assert f"{verdicts[claim.text]}. Rule: {claim.rule}." in part
        assert len(tables(part)[0]) > 2
    assert "A decision of the dearest index takes" in text.split(TIMING)[1]


def test_one_seed_gives_the_same_files_but_for_the_timing(written, tmp_path):
    reproduce("policies", out=tmp_path, runs=RUNS, seed=5)
    assert contents(tmp_path) == contents(written[0])


@pytest.mark.parametrize("package", ["matplotlib", "pyarrow"])
def test_missing_packages_are_named_before_anything_runs(tmp_path, monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    stop = {"progress": lambda *_: pytest.fail("it runs")}
    with pytest.raises(ValueError, match="pip install"):
        reproduce("policies", out=tmp_path / "x", runs=2, **stop)
    assert not (tmp_path / "x").exists()


def test_out_must_not_be_a_file(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ValueError, match="is a file"):
        reproduce("policies", out=tmp_path / "file", runs=2)


# How claims are judged


def made_up(part, means, *, agents=AGENTS, dim=None, noise=0.05, tasks=20):
    """An outcome whose agents have these mean regrets in every task (or in each)."""
    rng = np.random.default_rng(1)
    regret = np.array([np.broadcast_to(m, tasks) for m in means], dtype=float)[:, None]
    regret = regret + noise * rng.standard_normal((len(means), 200, tasks))
    problem = {"name": "made up"} | ({} if dim is None else {"dim": dim})
    panel = Panel(f"made up, {tasks} tasks", GaussianProblem, agents, tasks=tasks, part=part)
    sizes = (problem, tasks, 200, 200, 1, False)
    result = Result(*sizes, tuple(agents), regret, 1.0, np.ones(len(means)))
    return outcome_of(panel, result)


def verdicts(*outcomes):
    return [judged.verdict if judged.measures else None for judged in judge(CLAIMS, outcomes)]


def test_claims_about_the_table():
    # OracleTS, AdaTS, Bayes-UCB, finite horizon, far-sighted, greedy
    good, bad = [2.0, 4.0, 3.0, 2.5, 1.5, 9.0], [2.0, 4.0, 3.5, 3.0, 4.5, 9.0]
    found = verdicts(made_up("table", good), made_up("table", good, dim=8))
    assert found[:6] == ["holds"] * 6
    found = verdicts(made_up("table", bad), made_up("table", bad, dim=8))
    assert found[:6] == ["does not hold"] * 6
    better = [2.0, 4.0, 2.2, 3.0, 2.9, 9.0]  # another index is the best: all others hold
    assert verdicts(made_up("table", better))[:2] == ["holds", "does not hold"]
    assert verdicts(made_up("table", good))[3] is None
    assert verdicts(made_up("table", good))[6:] == [None] * 3


def test_late_tasks_are_judged_apart():
    learned = np.r_[np.full(9, 9.0), np.full(11, 1.0)]
    outcome = made_up("table", [2.0, 9.0, 9.0, 9.0, learned, 9.0])
    (measure,) = CLAIMS[2].measures([outcome])
    assert measure.verdict(0.05) == "holds"
    assert measure.figure.startswith("1.00 against 2.00")
    assert CLAIMS[5].measures([outcome]).__next__().verdict(0.05) == "does not hold"


def test_claims_about_many_tasks_and_late_rewards():
    names = (*AGENTS[:-1], *PENDING_IGNORED.values())
    good = made_up("late", [2.0, 4.0, 3.0, 3.0, 3.0, 5.0, 5.0, 5.0], agents=names)
    bad = made_up("late", [2.0, 4.0, 5.0, 5.0, 5.0, 4.5, 4.5, 4.5], agents=names)
    assert verdicts(good)[7:] == ["holds", "holds"]
    assert verdicts(bad)[7:] == ["does not hold", "does not hold"]
    assert verdicts(good, bad)[7:] == ["does not hold"] * 2
    many = made_up("many", [2.0, 4.0, 3.0, 3.0, 1.0], agents=AGENTS[:-1], tasks=50)
    assert verdicts(many)[6] == "holds"


def test_the_tail_and_its_error():
    assert tail(np.arange(101.0)) == 99
    rng, runs = np.random.default_rng(1), 8000
    a, b = rng.gamma(4.0, size=(2, runs))
    assert tail_ratio(2 * a, a) == (pytest.approx(2), pytest.approx(0))
    value, se = tail_ratio(a, b)
    assert abs(value - 1) < 4 * se
    known = gamma(4.0)
    error = np.sqrt(0.99 * 0.01 / runs) / known.pdf(known.ppf(0.99))  # of a quantile
    assert se == pytest.approx(np.sqrt(2) * error / known.ppf(0.99), rel=0.25)


def test_where_the_regret_falls_below_that_of_the_oracle():
    learned = np.r_[5.0, 1.0, 1.0, 1.0, 1.0, 1.0]  # 5 6 7 8 9 10 against 2 4 6 8 10 12
    names = ("oracle-ts", "ada-ts", "ada-far")
    outcome = made_up("many", [2.0, 3.0, learned], agents=names, tasks=6, noise=0.0)
    assert crossing(outcome, "ada-far") == 5
    assert crossing(outcome, "ada-ts") is None
    always = made_up("many", [2.0, 3.0, 1.0], agents=names, tasks=6, noise=0.0)
    assert crossing(always, "ada-far") == 1
