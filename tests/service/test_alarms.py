"""Alarms: silent where all is well, heard where something is wrong, and said in a sentence."""

import itertools
import math
import time

import msgspec
import numpy as np
import pytest

from adats.service.alarms import alarms_of
from adats.service.counters import DAY, tally
from adats.service.evaluation import alarms
from adats.service.messages import ArmStanding, Stop
from adats.service.spec import parse
from adats.service.stores.interface import DecisionRow
from asgi import talk
from served import at_rest

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


ALONE = parse('{"model": "binary", "prior": {"default": {}}, "arms": ["a", "b"]}')


def told(make, days=30, each=400, spec=SPEC):
    """The alarms of an experiment whose decisions are what `make` says of a number and a day."""
    counts, rows = {}, []
    for day, i in itertools.product(range(days), range(each)):
        rows.append(decision(i, day, **make(i, day)))
        tally(counts, rows[-1], 0)

    def made(since, before):
        return (row for row in rows if since <= row.time < before)

    return alarms_of(counts, spec, ["a", "b"], UNSURE, (days + 2) * DAY, made)


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
            lambda i, day: (
                {"counted": float(i // 2 % (9 if day > 19 else 3) == 1)} if i % 10 else {}
            ),
            "What was learned is worth less: the lift fell on 1970-01-21, from ",
        ),
    ],
)
def test_what_is_wrong_is_said(wrong, sentence):
    found = told(lambda i, day: clicks(i, day) | wrong(i, day))
    assert [said for said in found if said.startswith(sentence)], found
    assert len(found) == 1


def test_that_rewards_came_after_their_window_is_said():
    """A third of a day's, of which half came late."""

    def make(i, day):
        lost = {"reward": None, "counted": 0.0, "received": i % 2}
        return clicks(i, day) | (lost if day == 29 and i % 3 == 0 else {})

    windowed = msgspec.structs.replace(SPEC, window=3600.0, default_reward=0.0)
    (found,) = told(make, spec=windowed)
    assert found.startswith("Rewards are missing: 66.5 % of the decisions of 1970-01-30 have one;")
    assert found.endswith("100 % is usual. 16.8 % came too late for the window.")


def alone(i, day):
    """Clicks of an experiment without a holdout."""
    return clicks(i, day) | {"holdout": None}


def test_without_a_holdout_rewards_that_fall_are_found_and_learning_is_none():
    def wrong(part):
        return lambda i, day: (
            alone(i, day) | ({"counted": 0.0} if day > 19 and i % 5 < part else {})
        )

    (found,) = told(wrong(4), spec=ALONE)
    assert found.startswith("Rewards fell on 1970-01-21, from 0.1 to 0.0"), found
    assert told(alone, spec=ALONE) == []
    better = {"counted": 1.0}
    learned = told(lambda i, day: alone(i, day) | (better if i % 40 < day else {}), spec=ALONE)
    assert learned == []


@pytest.mark.parametrize("spec", [SPEC, ALONE])
def test_an_arm_that_falls_alone_is_named(spec):
    """`a` has the even numbers, and with a holdout some of `b` are held out, which is the same."""

    def make(i, day):
        fell = day > 19 and i % 2 == 0
        held = {} if spec is SPEC else {"holdout": None}
        hit = float((i // 2 * 7 + 3 * day) % (10 if fell else 4) == 0)
        return {"counted": hit, "reward": hit, **held}

    found = [said for said in told(make, spec=spec) if "best arms" in said]
    assert len(found) == 1
    assert found[0].startswith(
        "The best arms may be others: the rewards of a fell, and not those of all, on 1970-01-21, "
        "from 0.2"
    )


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


def test_a_few_more_than_none_are_not_fewer_than_usual():
    """Small counts are no normal numbers: two missing of 1,000, where there is one in ten days."""
    sizes = np.full(30, 1000.0)
    some = sizes - (np.arange(30) % 10 == 5)
    for missing, found in ((2, False), (12, True)):
        some[-1] = 1000 - missing
        assert alarms.fewer(some, sizes) is found


def test_rare_actions_may_be_as_frequent_as_all_of_them_together():
    assert not alarms.too_unlikely(500, 10_000, 5, 0.01)
    assert not alarms.too_unlikely(0, 10_000, 5, 0.01)
    assert alarms.too_unlikely(700, 10_000, 5, 0.01)


def daily(means):
    return alarms.Daily(means, np.full(means.size, 1e-4))


def test_a_move_is_where_it_was_and_days_that_differ_hide_it():
    means = np.where(np.arange(40) < 25, 0.1, 0.2)
    noise = 0.01 * np.random.default_rng(2).standard_normal(40)
    move = alarms.moved(daily(means + noise))
    assert move.day == 25
    assert math.isclose(move.after - move.before, 0.1, abs_tol=0.01)
    assert alarms.moved(daily(means + 20 * noise)) is None
    assert alarms.moved(daily(means + noise), least=0.1) is None
    assert alarms.moved(daily(means + noise), fall_only=True) is None
    assert alarms.moved(daily(means[::-1] + noise), fall_only=True) is not None


def test_an_arm_falls_alone_if_others_do_not_fall_with_it():
    noise = 0.005 * np.random.default_rng(2).standard_normal((2, 40))
    still, fell = daily(0.2 + noise[0]), daily(np.where(np.arange(40) < 25, 0.2, 0.1) + noise[1])
    assert alarms.fell_alone(fell, still, 2).day == 25
    assert alarms.fell_alone(still, fell, 2) is None
    assert alarms.fell_alone(fell, fell, 2) is None
    risen = daily(0.4 - fell.means)
    assert alarms.fell_alone(still, risen, 2) is None


@pytest.mark.statistical
def test_daily_looks_at_days_that_differ_find_a_move_seldom():
    rng, runs, found = np.random.default_rng(5), 150, 0
    for _ in range(runs):
        means = 0.1 + 0.02 * rng.standard_normal(40)
        found += any(alarms.moved(daily(means[:d]), least=0.0) is not None for d in range(41))
    assert found / runs < 0.05 + 2.33 * math.sqrt(0.05 * 0.95 / runs)


def test_late_rewards_are_an_alarm_on_both_stores(url):
    """Twelve days, on the last of which two of three rewards come after their window."""
    at, now = "/v1/experiments/x", [time.time() // DAY * DAY - 14 * DAY]
    prior = {"prior": {"default": {"scale": 1}}, "window": 3600, "seed": 1}

    def calls():
        yield "PUT", at, {"model": "gaussian", "arms": ["a", "b"]} | prior
        for day in range(12):
            ids = [f"{day}-{i}" for i in range(42)]
            yield (
                "POST",
                at + "/decide",
                {"decisions": [{"task": x, "decision_id": x} for x in ids]},
            )
            for part, wait in ((ids[::3], 60), (ids[1::3] + ids[2::3], 7200 if day == 11 else 60)):
                now[0] += wait
                told = [{"decision_id": x, "reward": 1.0 + len(x)} for x in part]
                yield "POST", at + "/reward", {"rewards": told}
            now[0] += DAY - 120 if day < 11 else DAY

    answers = talk(url, calls(), clock=lambda: now[0])
    assert [status for status, _ in answers] == [201] + [200] * (len(answers) - 1)
    ((_, report),) = talk(at_rest(url), [("GET", at + "/report")], clock=lambda: now[0])
    (found,) = report["alarms"]
    assert found.startswith("Rewards are missing: 33.3 % of the decisions of ")
    assert found.endswith(" have one; 100 % is usual. 66.7 % came too late for the window.")
