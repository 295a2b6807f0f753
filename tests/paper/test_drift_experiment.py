"""`adats reproduce drift`: what it runs, what it writes, and how its claims are judged."""

import json
import warnings
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.text import Text
from pyarrow import parquet

import adats
from adats.paper.experiments import EXPERIMENTS, reproduce, total_steps
from adats.paper.experiments.claims import judge
from adats.paper.experiments.drift import DRIFT
from adats.paper.experiments.drift_claims import (
    ALONE,
    BOTH,
    CLAIMS,
    FILTER,
    JUMP,
    MU,
    NEXT,
    NONE,
    OURS,
    REFERENCE,
    SEASONS,
    STILL,
    THETA,
    TOLD,
    WALK,
    regret_of,
    rivals,
)
from adats.paper.experiments.drift_detector import (
    DETECTOR,
    KINDS,
    SHIFTED,
    WHAT,
    WatchedOutcome,
    delay,
    delays,
    false_alarms,
    share_found,
    watched,
)
from adats.paper.experiments.drift_report import best_rival, ratios_figure
from adats.paper.experiments.panels import of_part, run_panel
from adats.paper.experiments.spec import RunRequest
from adats.plots import rendered
from adats.simulation.memory import Decay, HalfLives
from adats.simulation.problems.problem import instances_of
from report_files import contents

RUNS = 4
OPTIONS = {"runs": RUNS, "seed": 5, "workers": 1, "engine": "local"}


def short(panel):
    """The panel with few rounds."""
    return replace(panel, rounds=20, one_run_in=1)


SHORT = replace(DRIFT, panels=tuple(short(panel) for panel in DRIFT.panels))


@pytest.fixture(scope="module")
def outcomes():
    parts = SHORT.parts(RunRequest(OPTIONS))
    return [outcome for part in parts for outcome in part.run(lambda _: None)]


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    out = tmp_path_factory.mktemp("drift")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(EXPERIMENTS, "drift", SHORT)
        path = reproduce("drift", out=out, runs=RUNS, seed=5)
    return out, path.read_text()


def test_what_is_run():
    assert EXPERIMENTS["drift"] is DRIFT
    assert total_steps("drift") == 8 * 2000 + 2 * (1000 + 200 + 50)
    assert total_steps("drift", quick=True) == 8 * 50 + 2 * (25 + 5 + 2)
    panels = DRIFT.panels[:8]
    assert [p.part for p in panels] == [STILL, STILL, MU, THETA, THETA, WALK, WALK, SEASONS]
    assert [p.part for p in DRIFT.panels[8:]] == [DETECTOR] * 3
    assert len({p.label for p in DRIFT.panels}) == len(DRIFT.panels)
    for panel in panels:
        problem = panel.problem()
        assert REFERENCE[panel.part] in panel.agents
        assert OURS.get(panel.part, NONE) in panel.agents
        assert (problem.meta_scale, problem.noise) == (0.5, 1.0)
        assert problem.mu_jumps == ((JUMP,) if panel.part == MU else ())
        assert problem.theta_jumps == ((panel.rounds // 2,) if panel.part == THETA else ())
        assert bool(problem.mu_step and problem.theta_step) == (panel.part == WALK)
        assert bool(problem.season) == (panel.part == SEASONS)
    walk = next(panel for panel in panels if panel.part == WALK)
    assert walk.problem().mu_step == pytest.approx(0.1 * 0.5)
    assert walk.problem().theta_step * walk.rounds**0.5 == pytest.approx(0.5 * 0.2)


def test_rivals_are_the_rules_of_bayesianbandits():
    for panel in DRIFT.panels[:8]:
        known = [a for a in panel.agents.values() if getattr(a, "memory", None)]
        rules = [a.memory for a in known if isinstance(a.memory, Decay)]
        assert len(rules) == (0 if panel.part == STILL else 6)
        assert {(rule.rule, rule.pooled) for rule in rules} == {
            (name, pooled)
            for name in ("exponential", "stabilized", "directional")
            for pooled in (False, True)
            if rules
        }
        for name, agent in panel.agents.items():
            pooled = getattr(getattr(agent, "memory", None), "pooled", None)
            assert pooled is None or pooled == name.endswith("all tasks")
    slow = next(panel for panel in DRIFT.panels if panel.part == WALK)
    assert slow.agents[BOTH].memory == HalfLives(4.0, 8.0)


def test_files_are_those_that_it_names(written):
    out, text = written
    assert {path.name for path in out.iterdir()} == {*DRIFT.file_names(), "report.md"}
    for name in ("drift.png", "jump.png"):
        assert (out / name).read_bytes().startswith(b"\x89PNG")
        assert f"]({name})" in text
    for panel in DRIFT.panels:
        assert (f"### {panel.label}" in text) == (panel.part != DETECTOR)
        assert f"| {panel.label} |" in text
    claims = json.loads((out / "report.json").read_bytes())["claims"]
    assert [claim["claim"] for claim in claims] == [claim.text for claim in CLAIMS]


def test_tables_are_what_the_records_say(written):
    out, text = written
    records = parquet.read_table(out / "records.parquet").to_pandas()
    assert list(records) == ["panel", "run", "agent", "regret", "judged"]
    compared = DRIFT.panels[:8]
    assert len(records) == RUNS * sum(len(panel.agents) for panel in compared)
    for panel in compared:
        mine = records[records["panel"] == panel.label].pivot(index="run", columns="agent")
        judged, section = mine["judged"], text.split(f"### {panel.label}\n")[1].split("\n\n")[1]
        for row in section.splitlines()[2:]:
            name, total, *_, last = (cell.strip() for cell in row.strip("|").split("|"))
            agent = {"AdaTS": NONE, "TS": ALONE}.get(name, name)
            assert total.startswith(f"{mine['regret'][agent].mean():.1f} ±")
            value = judged[agent].mean() / judged[REFERENCE[panel.part]].mean()
            assert last.startswith(f"{value:.3f} ±")


def test_what_is_judged_of_a_jump_are_the_ten_tasks_after_it(outcomes):
    (jumped,) = of_part(MU, outcomes)
    after = jumped.result.regret[jumped.result.agents.index(TOLD), :, JUMP : JUMP + NEXT]
    np.testing.assert_array_equal(regret_of(jumped, TOLD), after.sum(axis=1))
    (season,) = of_part(SEASONS, outcomes)
    np.testing.assert_array_equal(regret_of(season, NONE), season.total(NONE))


def test_each_claim_measures_what_it_says(outcomes):
    """As many measures as panels, times rivals where there are some."""
    judged = judge(CLAIMS, outcomes)
    counts = [len(one.measures) for one in judged]
    assert counts == [2, 2, 2, 1, 1, 1, 2, 2, 2, 2, 15, 15, 1, 2, 1]
    first = judged[0].measures[0]
    still = of_part(STILL, outcomes)[0]
    assert first.value == pytest.approx(
        still.result.mean("half-life 5 tasks") / still.result.mean(NONE)
    )
    assert first.high == 1.05
    walk = judged[9].measures[0]
    one = of_part(WALK, outcomes)[0]
    assert walk.value == pytest.approx(one.result.mean(BOTH) / one.result.mean(FILTER))
    assert {m.what.split(" below ")[0] for m in judged[10].measures} == {
        OURS[part] for part in (MU, THETA, WALK)
    }


def test_the_detector_is_told_what_the_runs_saw():
    """By the library's own agent, which was in the run."""
    for panel in DRIFT.panels[8:]:
        panel = replace(panel, rounds=60, one_run_in=1)
        problem = panel.problem()
        (o,) = [
            watched(run_panel(panel, problem, **OPTIONS | {"runs": 2}), problem, lambda _: None)
        ]
        assert o.found.shape == (2, 2, 2)
        late, alarms = o.found[..., 0], o.found[..., 1]  # a warning is never later
        assert ((alarms == 0) | ((late > 0) & (late <= alarms))).all()
        rng = np.random.default_rng(np.random.SeedSequence(OPTIONS["seed"], spawn_key=(1, 0)))
        tasks = instances_of(problem, problem.start(rng), panel.tasks, panel.rounds, rng)
        agent = adats.AdaTS(problem.meta(), seed=3, detect_changes=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for s, one in enumerate(tasks):
                for t, arm in enumerate(o.result.actions[0, 1, s].tolist()):
                    reward = float(one.theta[t, arm] + one.draws[t])
                    agent.tell(task=s, action=arm, reward=reward)
        last = {(change.what, change.kind): change.tasks for change in agent.changes}
        for (what, kind), task in last.items():
            assert o.found[1, WHAT.index(what), KINDS.index(kind)] == task


def test_delays_and_shares():
    """Of four runs: at once, after three tasks, before the shift, and never."""
    found = np.zeros((4, 2, 2), dtype=np.intp)
    found[:, 0, 1] = [SHIFTED + 1, SHIFTED + 3, 5, 0]
    (panel,) = [p for p in DRIFT.panels if p.part == DETECTOR and p.rounds == 200]
    o = run_panel(replace(panel, rounds=1, one_run_in=1), panel.problem(), **OPTIONS)
    o = WatchedOutcome(o.panel, o.result, o.at, o.mean, o.se, found)
    np.testing.assert_array_equal(delays(o, "alarm"), [1, 3, 40, 40])
    share, error = share_found(o, ("prior", "tasks"), "alarm")
    assert share == 0.75
    assert error == pytest.approx(np.sqrt((4 / 6) * (2 / 6) / 6))
    (measure,) = delay([o])
    assert measure.value == 21
    assert list(false_alarms([o])) == []


def test_the_best_rival_is_the_one_with_the_least_regret(outcomes):
    for o in outcomes[:8]:
        for place in ("a task", "all tasks"):
            if rivals(o, place):
                least = min(regret_of(o, agent).mean() for agent in rivals(o, place))
                assert regret_of(o, best_rival(o, place)).mean() == least


def test_the_figure_is_for_print(outcomes):
    figure = ratios_figure(outcomes)
    figure.draw_without_rendering()
    words = [t for t in figure.findobj(Text) if t.get_visible() and t.get_text().strip()]
    assert figure.get_figwidth() == 5.5
    assert min(word.get_fontsize() for word in words) >= 7
    inside = figure.bbox.padded(2)
    for word in words:
        if word.get_transform() is not None and word.axes is None:
            continue
        extent = word.get_window_extent()
        assert inside.x0 <= extent.x0
        assert extent.x1 <= inside.x1
    assert rendered(figure, "png") == rendered(ratios_figure(outcomes), "png")


def test_workers_change_nothing(outcomes):
    (jumped,) = of_part(MU, outcomes)
    again = run_panel(jumped.panel, jumped.panel.problem(), **OPTIONS | {"workers": 2})
    np.testing.assert_array_equal(again.result.regret, jumped.result.regret)


def test_the_same_seed_writes_the_same_files(written, tmp_path):
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(EXPERIMENTS, "drift", SHORT)
        reproduce("drift", out=tmp_path, runs=RUNS, seed=5, workers=2)
    assert contents(tmp_path) == contents(written[0])
