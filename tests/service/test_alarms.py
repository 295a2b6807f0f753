"""Alarms: silent where all is well, heard where something is wrong, and said in a sentence."""

import itertools
import math

import numpy as np
import pytest

from adats.service.alarms import alarms_of
from adats.service.counters import DAY, tally
from adats.service.evaluation import alarms
from adats.service.messages import ArmStanding, Stop
from adats.service.spec import parse
from adats.service.stores.interface import DecisionRow

SPEC = parse(
    '{"model": "binary", "prior": {"default": {}}, "arms": ["a", "b"], "control": "a",'
    '"holdout": {"share": 0.1}}'
)
UNSURE = Stop([ArmStanding("a", 0.4), ArmStanding("b", 0.6)], 0.1, False)


def decision(i, day, **fields):
    usual = {
        "id": 0,
        "experiment": 1,
        "version": 1,
        "decision_id": str(i),
        "task": f"t{i % 50}",
        "action": "ab"[i % 2],
        "features": None,
        "request": None,
        "propensity": 0.5,
        "state_version": 1,
        "prior_version": 1,
        "time": day * DAY + i % DAY,
        "explored": 0,
        "holdout": int(i % 10 == 0),
        "due": None,
        "place": 0,
        "reward": 1.0,
        "counted": 1.0,
    }
    return DecisionRow(**(usual | fields))


def told(make, days=30, each=400):
    """The alarms of an experiment whose decisions are what `make` says of a number and a day."""
    counts = {}
    for day, i in itertools.product(range(days), range(each)):
        tally(counts, decision(i, day, **make(i, day)), 0)
    return alarms_of(counts, SPEC, UNSURE, (days + 2) * DAY)


def clicks(i, day):
    reward = float((7 * (i // 10) + 3 * day + i) % 10 == 0)
    return {"reward": reward, "counted": reward}


def test_where_all_is_well_nothing_is_said():
    assert told(clicks) == []
    assert told(clicks, days=0) == []


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (
            lambda i, _: {"holdout": int(i % 20 == 0)},
            "600 of 12000 decisions were held out; 10 %",
        ),
        (
            lambda i, day: {"reward": None, "counted": None} if day == 29 and i % 3 else {},
            "Rewards are missing: 33.5 % of the decisions of 1970-01-30 have one; 100 % is usual.",
        ),
        (
            lambda i, _: {"propensity": 0.001 if i % 20 == 1 else 0.6},
            "Propensities are too small: 600 of 12000 decisions had one below 1 %; with 2 arms",
        ),
        (
            lambda i, day: {"counted": float(i % 3 == 0)} if day > 19 else {},
            "The control's rewards moved on 1970-01-21, from 0.1 to ",
        ),
        (
            lambda i, day: {"counted": float(i % (10 if day > 19 else 3) == 1)} if i % 10 else {},
            "What was learned is worth less: the lift fell on 1970-01-21, from ",
        ),
    ],
)
def test_what_is_wrong_is_said(wrong, sentence):
    found = told(lambda i, day: clicks(i, day) | wrong(i, day))
    assert [said for said in found if said.startswith(sentence)], found
    assert len(found) == 1


def test_that_all_go_to_an_arm_that_is_not_known_to_be_best_is_said():
    found = told(lambda i, day: clicks(i, day) | {"action": "b" if i % 10 else "a"}, 3, 1200)
    assert found == [
        "Exploration collapsed: on 1970-01-03 all went to b, which is the best with a probability "
        "of 60 %."
    ]


def test_a_share_as_planned_is_refuted_seldom_at_any_look():
    """All courses of 14 decisions: an exact test, whose chance is its bound at most."""
    chance, wrong = 0.5, 0
    for course in itertools.product((0, 1), repeat=14):
        wrong += bool(alarms.off_plan(np.cumsum(course), np.arange(1, 15), chance).any())
    assert wrong / 2**14 <= alarms.ALPHA


def test_a_share_off_plan_is_found():
    assert not alarms.off_plan(1000, 10_000, 0.1)
    assert alarms.off_plan(800, 10_000, 0.1)
    assert alarms.off_plan(1200, 10_000, 0.1)


def test_rare_actions_may_be_as_frequent_as_all_of_them_together():
    assert not alarms.too_unlikely(500, 10_000, 5, 0.01)
    assert not alarms.too_unlikely(0, 10_000, 5, 0.01)
    assert alarms.too_unlikely(700, 10_000, 5, 0.01)


def test_a_move_is_where_it_was_and_days_that_differ_hide_it():
    means = np.where(np.arange(40) < 25, 0.1, 0.2)
    noise = 0.01 * np.random.default_rng(2).standard_normal(40)
    move = alarms.moved(means + noise, np.full(40, 1e-4))
    assert move.day == 25
    assert math.isclose(move.after - move.before, 0.1, abs_tol=0.01)
    assert alarms.moved(means + 20 * noise, np.full(40, 1e-4)) is None
    assert alarms.moved(means + noise, np.full(40, 1e-4), fall_only=True) is None
    assert alarms.moved(means[::-1] + noise, np.full(40, 1e-4), fall_only=True) is not None


@pytest.mark.statistical
def test_daily_looks_at_days_that_differ_find_a_move_seldom():
    rng, runs, found = np.random.default_rng(5), 150, 0
    for _ in range(runs):
        means = 0.1 + 0.02 * rng.standard_normal(40)
        found += any(alarms.moved(means[:d], np.full(d, 1e-4)) is not None for d in range(41))
    assert found / runs < 0.05 + 2.33 * math.sqrt(0.05 * 0.95 / runs)
