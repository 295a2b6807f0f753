"""What is counted at every commit is what the log says, whatever happens, to the last digit."""

import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

from adats.service.answers import prior_belief
from adats.service.counters import DAY, HOUR, HOURS_KEPT, moments
from adats.service.messages import DecisionRequest, NewArm, RewardRequest
from adats.service.reports import report
from adats.service.served_experiment import ServedExperiment
from schedules import CASES, TENANT, Play, random_rules, random_schedule
from served import GAUSSIAN, Local, wrong_in

WINDOWED = GAUSSIAN | {
    "window": 5000.0,
    "control": "a",
    "holdout": {"share": 0.4},
    "several": "sum",
}


@pytest.fixture
def local(tmp_path):
    local = Local(tmp_path / "x.db")
    yield local
    local.close()


def row_of(local, name="x"):
    return local.store.experiment(TENANT, name)


def counts_of(local, name="x"):
    return local.store.counts(row_of(local, name).id)


def report_of(local, now=None):
    with local.store.view() as view:
        return report(view, view.experiment(TENANT, "x"), local.clock() if now is None else now)


@pytest.mark.parametrize("model", ["gaussian", "contextual", "semi-bandit", "clicks"])
def test_counters_are_those_of_the_log_whatever_happens(tmp_path, model):
    rng = np.random.default_rng([5, len(model)])
    case = CASES[model]
    rules = {name: (case, random_rules(rng, case)) for name in "wxyz"}
    play = Play(tmp_path / "x.db", rules, compare=False)
    random_schedule(play, rng, 120, forget=True)
    play.close()
    assert wrong_in(tmp_path / "x.db") == []


@pytest.mark.parametrize("size", [3, 40])
def test_they_are_when_a_commit_has_many_operations(tmp_path, local, size):
    """Also decisions, rewards, ends of windows and a forgotten task in one commit."""
    local.put("x", WINDOWED | {"default_reward": 0.5})
    rng, engine = np.random.default_rng(size), local.engine
    for group in range(10):
        engine.begin()
        engine.settle_due()
        for i in range(size):
            task, name = f"t{rng.integers(4)}", f"{group}-{i}"
            engine.decide(TENANT, "x", DecisionRequest(task, name))
            for told in range(rng.integers(3)):
                asked = RewardRequest(name, float(rng.normal()), f"r{told}")
                engine.reward(TENANT, "x", asked)
            if rng.random() < 0.5 / size:
                engine.forget(TENANT, "x", task)
                engine.decide(TENANT, "x", DecisionRequest(task, f"{name}-again"))
        engine.flush()
        engine.commit()
        local.clock.time += float(rng.uniform(0, 2000))
        assert wrong_in(tmp_path / "x.db") == []
    about = report_of(local)
    assert (about.decisions, about.tasks) == (local.meta("x").decisions, local.meta("x").tasks)


def test_what_is_forgotten_leaves_no_digit(local):
    local.put("x", GAUSSIAN)
    for task, reward in (("a", 0.1), ("b", 1e17), ("c", 0.2), ("d", -3e-9)):
        local.decide("x", DecisionRequest(task, task))
        local.reward("x", RewardRequest(task, reward))
    local.forget("x", "b")
    counts = list(counts_of(local).values())
    total = sum(Fraction(own.sum, 1 << 1074) for own in counts)
    squares = sum(Fraction(own.squares, 1 << 2148) for own in counts)
    left = [Fraction(value) for value in (0.1, 0.2, -3e-9)]
    assert (total, squares) == (sum(left), sum(value**2 for value in left))
    for task in "acd":
        local.forget("x", task)
    assert counts_of(local) == {}
    assert (row_of(local).tasks, row_of(local).decisions, row_of(local).counted) == (0, 0, 0)


def test_moments_are_rounded_once(local):
    """Where sums of squares of floats would have lost everything."""
    local.put("x", GAUSSIAN | {"arms": ["a"]})
    values = [1e9 + i / 8 for i in range(9)]
    for i, value in enumerate(values):
        local.decide("x", DecisionRequest("t", f"{i}"))
        local.reward("x", RewardRequest(f"{i}", value))
    (counts,) = counts_of(local).values()
    found = moments(counts)
    assert found == (9, np.mean(values), 60 / 64, 9)


def brute(local, now):
    """Decisions that are counted, missing and expired; sizes and means of the lift."""
    rows = list(local.store.decisions(1))
    over = now - WINDOWED["window"]
    ended = [row for row in rows if row.time <= over]
    none = [row for row in rows if row.reward is None]
    expired = sum(row.time <= over for row in none)
    held = [[row.counted for row in ended if row.holdout == h and row.counted is not None]
            for h in (0, 1)]  # fmt: skip
    return (
        len(rows),
        sum(row.counted is not None for row in rows),
        len(none) - expired,
        expired,
        sum(row.explored for row in rows),
        [len(own) for own in held],
        [math.fsum(own) / len(own) if own else None for own in held],
    )


def said(about):
    lift = about.lift
    return (
        about.decisions,
        about.counted,
        about.missing,
        about.expired,
        about.explored,
        [lift.policy_decisions, lift.holdout_decisions],
        [lift.policy_mean, lift.holdout_mean],
    )


def test_a_report_is_of_its_moment_within_an_hour_and_after_days_were_made(local):
    """Hours become days after two weeks; a late reward counts in the day of its decision."""
    local.put("x", WINDOWED | {"late": "replace"})
    rng, start = np.random.default_rng(3), local.clock.time
    for i in range(150):
        local.decide("x", DecisionRequest(f"t{i % 7}", f"d{i}"))
        which = int(rng.integers(max(0, i - 60), i + 1))
        if rng.random() < 0.7 and (i <= 120 or which % 7 != 3):
            local.reward("x", RewardRequest(f"d{which}", float(rng.normal()), f"r{i}"))
        if i == 120:
            local.forget("x", "t3")
        local.clock.time += float(rng.exponential(0.4 * DAY))
        now = local.clock.time + float(rng.uniform(0, 8000))
        found, expected = said(report_of(local, now)), brute(local, now)
        assert found[:6] == expected[:6]
        for own, due in zip(found[6], expected[6], strict=True):
            assert own == due or math.isclose(own, due, rel_tol=1e-12, abs_tol=1e-14)
    assert local.clock.time > start + 2 * HOURS_KEPT
    spans = {span: [b.start for b in counts_of(local) if b.span == span] for span in (HOUR, DAY)}
    newest = max(row.time for row in local.store.decisions(1))
    assert max(spans[DAY]) + DAY <= row_of(local).days_until <= min(spans[HOUR])
    assert newest - HOURS_KEPT - 2 * DAY < row_of(local).days_until <= newest - HOURS_KEPT + DAY
    assert wrong_in(local.store.path) == []


def test_beliefs_are_noted_as_tasks_come_and_every_hour(local):
    local.put("x", GAUSSIAN)
    for i in range(40):
        local.decide("x", DecisionRequest(f"t{i}", f"d{i}"))
        local.reward("x", RewardRequest(f"d{i}", 1.0 + (i % 3)))
    local.retire_arm("x", "b")
    local.add_arm("x", NewArm("d", like="c"))
    local.clock.time += HOUR
    local.decide("x", DecisionRequest("t1", "later"))
    with local.store.view() as view:
        noted = list(view.beliefs(1))
    tasks = [row.tasks for row in noted]
    assert tasks[:13] == [*range(12), 13]
    assert all(10 * b >= 11 * a for a, b in pairwise(tasks[:-1]))
    assert (noted[-1].tasks, noted[-1].time) == (40, local.clock.time)
    prior = local.engine.served(TENANT, "x").snapshot.meta.task_prior()
    for kept, now in ((noted[-1].mean, prior.mean), (noted[-1].scale, prior.scale)):
        np.testing.assert_array_equal(np.frombuffer(kept), now)
    best = np.frombuffer(noted[-1].best)
    assert best.shape == (4,)
    assert best[1] == 0  # it is retired
    assert math.isclose(best.sum(), 1.0)
    wins = prior.draws(20_000, np.random.default_rng(0))[:, [0, 2, 3]].argmax(axis=1)
    due = np.bincount(wins, minlength=3) / 20_000
    np.testing.assert_allclose(best[[0, 2, 3]], due, atol=5 * math.sqrt(0.25 / 500))


@pytest.mark.parametrize("what", ["report", "meta"])
def test_reports_cost_the_same_however_many_decisions_there_are(local, what):
    """They were counted anew each time: 2 and 9 seconds for a million."""
    local.put("x", WINDOWED)
    steps = []
    for more in (40, 400):
        for i in range(more):
            local.engine.begin()
            local.engine.decide(TENANT, "x", DecisionRequest(f"t{i % 20}", f"{more}-{i}"))
            local.engine.flush()
            local.engine.commit()
        local.clock.time += 2 * HOUR  # what is counted is in whole hours now
        with local.store.view() as view:
            taken = []
            view._connection.set_progress_handler(lambda t=taken: t.append(1) and None, 10)
            row = view.experiment(TENANT, "x")
            if what == "report":
                report(view, row, local.clock.time + WINDOWED["window"])
            else:
                prior_belief(ServedExperiment(row, view))
            steps.append(len(taken))
    assert steps[1] < 2 * steps[0], steps  # two hours in place of one, ten times the decisions
