"""What becomes of rewards: a table by hand, and the settings that cannot be."""

import random
from collections import Counter
from itertools import product
from types import SimpleNamespace

import msgspec
import pytest

from adats.service import rules
from adats.service.errors import Invalid
from adats.service.messages import DecisionRequest, NewArm, RewardBatchRequest, RewardRequest
from adats.service.spec import ExperimentSpec
from adats.service.stores.interface import DecisionRow, RewardRow
from served import GAUSSIAN, Local

MADE, WINDOW = 100.0, 10.0
IN_TIME = MADE + 9.0
EDGE = MADE + WINDOW  # the first moment that is late
CLASH = "clash"  # refused with 409


def settings(several="first", *, window=None, **options):
    settings = {"several": several, "window": window, **options}
    return msgspec.convert(GAUSSIAN | settings, ExperimentSpec)


def made(spec, action="a"):
    due = rules.when_due(spec, MADE, counts_pending=False)
    row = DecisionRow(1, 1, 1, "d", "t", action, None, None, 0.5, 0, 1, MADE, 0, None, due)
    return SimpleNamespace(row=row, rewards=[], spec=spec)


def settle(case, now):
    if case.row.due is not None and now >= case.row.due:
        case.row = rules.settle(case.row, case.spec, version=9, place=0)


def tell(case, now, reward, reward_id=None):
    """What the engine does with a reward: settle what is due, then receive. The status, and what
    counts after it."""
    settle(case, now)
    try:
        outcome = rules.receive(case.row, case.rewards, reward, reward_id, case.spec, now)
    except rules.Conflict:
        return CLASH, case.row.counted
    if outcome.decision is not None:
        assert outcome.decision.received == case.row.received + 1
        case.row = outcome.decision
        case.rewards.append(RewardRow(0, 1, 1, 1, reward, reward_id, now))
    assert (outcome.decision is None) == (outcome.status == "duplicate")
    return outcome.status, case.row.counted


def several_rewards(text):
    """`1 b2 a1` is a reward of 1, one of 2 with the reward_id b, and one of 1 with the id a."""
    for word in text.split():
        name = word.rstrip("0123456789.")
        yield float(word.removeprefix(name)), name or None


# Rewards in time, as they come; and the status of each, with what counts after it.
IN_THE_WINDOW = [
    ("first", "1", ["counted 1"]),
    ("first", "1 1", ["counted 1", "duplicate 1"]),
    ("first", "1 2", ["counted 1", "clash 1"]),
    ("first", "1 2 1", ["counted 1", "clash 1", "duplicate 1"]),
    ("first", "a1 a1", ["counted 1", "duplicate 1"]),
    ("first", "a1 b1", ["counted 1", "duplicate 1"]),
    ("first", "a1 b2", ["counted 1", "clash 1"]),
    ("first", "a1 a2", ["counted 1", "clash 1"]),
    ("first", "a1 1", ["counted 1", "duplicate 1"]),
    ("first", "0 0", ["counted 0", "duplicate 0"]),
    ("sum", "1 2", ["counted 1", "counted 3"]),
    ("sum", "1 1", ["counted 1", "duplicate 1"]),
    ("sum", "1 2 1", ["counted 1", "counted 3", "duplicate 3"]),
    ("sum", "a1 b1", ["counted 1", "counted 2"]),
    ("sum", "a1 a1", ["counted 1", "duplicate 1"]),
    ("sum", "a1 b2 a1", ["counted 1", "counted 3", "duplicate 3"]),
    ("sum", "a1 a2", ["counted 1", "clash 1"]),
    ("sum", "a1 1", ["counted 1", "counted 2"]),
    ("sum", "1 a1 1", ["counted 1", "counted 2", "duplicate 2"]),
    ("last", "1 2", ["counted 1", "counted 2"]),
    ("last", "1 1", ["counted 1", "duplicate 1"]),
    ("last", "1 2 1", ["counted 1", "counted 2", "counted 1"]),
    ("last", "1 2 2", ["counted 1", "counted 2", "duplicate 2"]),
    ("last", "a1 b2 a1", ["counted 1", "counted 2", "duplicate 2"]),  # sent again, out of order
    ("last", "a1 b1", ["counted 1", "counted 1"]),
    ("last", "a1 a2", ["counted 1", "clash 1"]),
    ("last", "a1 1", ["counted 1", "duplicate 1"]),
]
WINDOWS = [{}] + [
    {"window": WINDOW, "default_reward": default, "late": late, "apply": apply}
    for default, late, apply in product(
        (None, 0.0), ("ignore", "replace"), ("at_once", "at_window_end")
    )
]


@pytest.mark.parametrize("options", WINDOWS)
@pytest.mark.parametrize(("several", "rewards", "expected"), IN_THE_WINDOW)
def test_rewards_in_time(several, rewards, expected, options):
    """`late` and a default reward do not matter; at the window's end, it is held until then."""
    case = made(settings(several, **options))
    found = [tell(case, IN_TIME, *reward) for reward in several_rewards(rewards)]
    statuses, counts = zip(*((s, float(c)) for s, c in map(str.split, expected)), strict=True)
    if options.get("apply") == "at_window_end":
        statuses = ["held" if status == "counted" else status for status in statuses]
        assert found == [(status, None) for status in statuses]
    else:
        assert found == list(zip(statuses, counts, strict=True))
    settle(case, EDGE)
    assert case.row.counted == case.row.reward == counts[-1]


# Rewards in time | rewards after the window | late rewards: status and what counts, D for the
# default reward or nothing
AFTER_THE_WINDOW = [
    ("first", "ignore", "", "", [], "D"),
    ("first", "ignore", "", "3", ["late D"], "D"),
    ("first", "ignore", "", "3 3", ["late D", "duplicate D"], "D"),
    ("first", "ignore", "", "3 5", ["late D", "clash D"], "D"),
    ("first", "ignore", "1", "1", ["duplicate 1"], "1"),
    ("first", "ignore", "1", "3", ["clash 1"], "1"),
    ("first", "replace", "", "", [], "D"),
    ("first", "replace", "", "3", ["counted 3"], "3"),
    ("first", "replace", "", "3 3", ["counted 3", "duplicate 3"], "3"),
    ("first", "replace", "", "3 5", ["counted 3", "clash 3"], "3"),
    ("first", "replace", "1", "1", ["duplicate 1"], "1"),
    ("first", "replace", "1", "3", ["clash 1"], "1"),
    ("sum", "ignore", "", "3 5", ["late D", "late D"], "D"),
    ("sum", "ignore", "1", "1 3", ["duplicate 1", "late 1"], "1"),
    ("sum", "ignore", "a1", "b1 b1", ["late 1", "duplicate 1"], "1"),
    ("sum", "replace", "", "3 5", ["counted 3", "counted 8"], "8"),  # the default is no part of it
    ("sum", "replace", "1 2", "3", ["counted 6"], "6"),
    ("sum", "replace", "1", "1 a1", ["duplicate 1", "counted 2"], "2"),
    ("last", "ignore", "", "3 5", ["late D", "late D"], "D"),
    ("last", "ignore", "1 2", "3", ["late 2"], "2"),
    ("last", "ignore", "1 2", "2", ["duplicate 2"], "2"),
    ("last", "replace", "", "3 5", ["counted 3", "counted 5"], "5"),
    ("last", "replace", "1 2", "3 2", ["counted 3", "counted 2"], "2"),
    ("last", "replace", "a1 b2", "a1", ["duplicate 2"], "2"),
]


@pytest.mark.parametrize("apply", ["at_once", "at_window_end"])
@pytest.mark.parametrize("default", [None, 0.0, -7.5])
@pytest.mark.parametrize(("several", "late", "early", "after", "expected", "end"), AFTER_THE_WINDOW)
def test_rewards_after_the_window(several, late, early, after, expected, end, default, apply):
    """When a reward in time counts does not matter any more."""
    spec = settings(several, window=WINDOW, default_reward=default, late=late, apply=apply)
    case = made(spec)
    for reward in several_rewards(early):
        tell(case, IN_TIME, *reward)
    found = [tell(case, EDGE, *reward) for reward in several_rewards(after)]

    def amount(text):
        return default if text == "D" else float(text)

    assert found == [(s, amount(c)) for s, c in map(str.split, expected)]
    settle(case, EDGE + 1000)
    assert case.row.counted == amount(end)
    assert case.row.due is None


@pytest.mark.parametrize("late", ["ignore", "replace"])
def test_a_reward_is_late_from_the_very_end_of_its_window_on(late):
    spec = settings(window=WINDOW, default_reward=0.0, late=late)
    before = made(spec)
    assert tell(before, EDGE - 1e-9, 1.0) == ("counted", 1.0)
    after = made(spec)
    expected = ("late", 0.0) if late == "ignore" else ("counted", 1.0)
    assert tell(after, EDGE, 1.0) == expected


@pytest.mark.parametrize("apply", ["at_once", "at_window_end"])
def test_a_settled_decision_stays_settled_if_the_clock_is_put_back(apply):
    spec = settings(window=WINDOW, default_reward=0.0, apply=apply)
    case = made(spec)
    settle(case, EDGE)
    assert tell(case, IN_TIME, 1.0) == ("late", 0.0)
    replacing = made(settings(window=WINDOW, default_reward=0.0, apply=apply, late="replace"))
    settle(replacing, EDGE)
    assert tell(replacing, IN_TIME, 1.0) == ("counted", 1.0)


def test_the_rewards_of_several_arms_sum_arm_by_arm():
    options = {"model": "semi-bandit", "size": 2, "window": WINDOW, "late": "replace"}
    spec = settings("sum", **options, default_reward=-1.0)
    case = made(spec, ["a", "c"])
    assert tell(case, IN_TIME, [1.0, 2.0]) == ("counted", [1.0, 2.0])
    assert tell(case, IN_TIME, [2.0, 1.0]) == ("counted", [3.0, 3.0])
    assert tell(case, IN_TIME, [1.0, 2.0]) == ("duplicate", [3.0, 3.0])
    assert tell(case, EDGE, [1.0, 2.0], "again") == ("counted", [4.0, 5.0])
    silent = made(spec, ["a", "c"])
    settle(silent, EDGE)
    assert silent.row.counted == [-1.0, -1.0]


def test_a_decision_to_pull_no_arm_has_nothing_to_wait_for():
    spec = settings("sum", model="semi-bandit", size=2, window=WINDOW, apply="at_window_end")
    case = made(spec, [])
    case.row = rules.of_no_arm(case.row, case.spec)
    assert (case.row.due, case.row.reward, case.row.counted) == (None, [], [])
    assert tell(case, IN_TIME, []) == ("held", [])
    assert tell(case, EDGE, []) == ("duplicate", [])


@pytest.mark.parametrize(
    ("options", "pending", "due"),
    [
        ({}, True, None),
        ({"window": WINDOW}, False, None),
        ({"window": WINDOW, "late": "replace"}, False, None),
        ({"window": WINDOW}, True, EDGE),  # an index waits for the pull until then
        ({"window": WINDOW, "default_reward": 0.0}, False, EDGE),
        ({"window": WINDOW, "apply": "at_window_end"}, False, EDGE),
    ],
)
def test_a_decision_is_due_where_the_end_of_its_window_changes_something(options, pending, due):
    assert rules.when_due(settings(**options), MADE, counts_pending=pending) == due


def test_conflicts_say_what_is_known_and_what_helps():
    case = made(settings())
    tell(case, IN_TIME, 1.0, "a")
    with pytest.raises(rules.Conflict, match=r"reward_id 'a' came with reward 1\.0, now 2\.0"):
        rules.receive(case.row, case.rewards, 2.0, "a", case.spec, IN_TIME)
    with pytest.raises(rules.Conflict, match=r"has reward 1\.0, now 2\.0.*several: sum or last"):
        rules.receive(case.row, case.rewards, 2.0, "b", case.spec, IN_TIME)


# Through the engine


@pytest.fixture
def local(tmp_path):
    local = Local(tmp_path / "x.db")
    yield local
    local.close()


BINARY = {"model": "binary", "arms": ["a", "b"], "prior": {"default": {}}}
LINEAR = {
    "model": "linear",
    "dim": 2,
    "noise": 1.0,
    "prior": {"given": {"mean": 0.0, "cov": 1.0, "task_cov": 0.5}},
}
SEMI = GAUSSIAN | {"model": "semi-bandit", "size": 2}


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        (BINARY | {"window": 1.0, "default_reward": 0.5}, "default_reward"),
        (BINARY | {"model": "count", "window": 1.0, "default_reward": -1.0}, "default_reward"),
        (GAUSSIAN | {"default_reward": 0.0}, "default_reward"),
        (GAUSSIAN | {"apply": "at_window_end"}, "apply"),
        (GAUSSIAN | {"late": "replace"}, "late"),
        (BINARY | {"several": "sum"}, "several"),
        (SEMI | {"size": 4}, "size"),
        (SEMI | {"holdout": {"share": 0.1, "to": "uniform"}}, "holdout.to"),
        (SEMI | {"policy": {"epsilon": 0.1}}, "policy.epsilon"),
        (LINEAR | {"arms": 3}, "arms"),
        (LINEAR | {"arms": 3, "features": [[1.0, 0.0], [0.0, 1.0]]}, "arms"),
    ],
)
def test_settings_that_cannot_work_are_refused_when_the_experiment_is_made(local, spec, field):
    with pytest.raises(Invalid) as found:
        local.put("x", spec)
    assert found.value.field == field


def test_as_many_arms_may_be_told_as_there_are_rows(local):
    spec = LINEAR | {"arms": 2, "features": [[1.0, 0.0], [0.0, 1.0]]}
    assert local.put("x", spec)[1].arms == [0, 1]


def test_an_action_of_exactly_two_arms_keeps_two(local):
    local.put("x", SEMI | {"exactly": True})
    local.retire_arm("x", "a")
    with pytest.raises(Invalid, match="exactly 2 arms"):
        local.retire_arm("x", "b")
    local.add_arm("x", NewArm("d", like="a"))
    assert local.retire_arm("x", "b").arms == ["c", "d"]
    assert local.decide("x", DecisionRequest("t", "1")).action == ["c", "d"]


def test_a_reward_after_its_pull_was_given_up_leaves_other_pulls_pending(local):
    """An index does not wait for the first pull any more, but it does for the second."""
    local.put("x", GAUSSIAN | {"policy": {"name": "ucb"}, "window": 10.0, "late": "replace"})
    local.decide("x", DecisionRequest("t", "1", allowed=["a"]))
    local.clock.time += 10.0
    local.decide("x", DecisionRequest("t", "2", allowed=["a"]))
    assert local.reward("x", RewardRequest("1", 1.0)).status == "counted"
    pending = local.engine.served("default", "x").task_cache.get("t").pending
    assert pending.tolist() == [1.0, 0.0, 0.0]


def test_a_late_reward_settles_its_decision_on_the_way(local):
    """Without waiting for anybody to look at what is due."""
    local.put("x", GAUSSIAN | {"window": 10.0, "default_reward": -1.0})
    decided = local.decide("x", DecisionRequest("t", "1"))
    local.clock.time = decided.time + 10.0
    local.engine.begin()
    result = local.engine.reward("default", "x", RewardRequest("1", 5.0))
    local.engine.flush()
    local.engine.commit()
    assert (result.status, result.state_version) == ("late", decided.state_version + 2)
    row = local.store.decision(1, "1")
    assert (row.counted, row.reward, row.received, row.due) == (-1.0, None, 1, None)


@pytest.mark.parametrize("several", ["first", "sum", "last"])
@pytest.mark.parametrize("spec", [GAUSSIAN, SEMI | {"exactly": True}], ids=["one", "two arms"])
def test_few_earlier_rewards_decide_as_all_of_them_would(local, several, spec):
    """The engine reads those that can matter; here are all, kept by hand."""
    rng, told = random.Random(4), {}
    local.put("x", spec | {"several": several})
    rules_of = local.engine.served("default", "x").spec
    found = Counter()
    for _ in range(400):
        name, reward_id = rng.choice("abcde"), rng.choice([None, None, "i", "j", "k"])
        reward = rng.choice([0.0, -0.0, 1.0, 2.5, 7.0])
        if name not in told:
            local.decide("x", DecisionRequest("t", name))
            told[name] = []
        if spec["model"] == "semi-bandit":
            reward = [reward, rng.choice([0.0, -0.0])]
        row, all_told = local.store.decision(1, name), told[name]
        try:
            expected = rules.receive(row, all_told, reward, reward_id, rules_of, 0.0).status
        except rules.Conflict:
            expected = CLASH
        try:
            status = local.reward("x", RewardRequest(name, reward, reward_id)).status
        except rules.Conflict:
            status = CLASH
        assert status == expected
        if status == "counted":
            all_told.append(RewardRow(0, 1, 1, row.id, reward, reward_id, 0.0))
        found[status] += 1
    assert found["counted"] >= 5
    assert min(found["duplicate"], found[CLASH]) > 20


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("several", ["sum", "last"])
def test_a_reward_costs_the_same_however_many_came_before(local, several, named):
    local.put("x", GAUSSIAN | {"several": several})
    local.decide("x", DecisionRequest("t", "1"))
    steps = Counter()  # of SQLite's machine, by the hundred
    for batch in range(4):
        local.store._connection.set_progress_handler(lambda b=batch: steps.update([b]), 100)
        told = [(batch * 300 + i) / 8 for i in range(300)]
        requests = [RewardRequest("1", y, f"r{y}" if named else None) for y in told]
        assert local.rewards("x", RewardBatchRequest(requests)).refused == 0
    assert steps[3] < 1.2 * steps[1]  # to the first batch there is nothing before
    row = local.store.decision(1, "1")
    expected = sum(i / 8 for i in range(1200)) if several == "sum" else 1199 / 8
    assert (row.received, row.counted) == (1200, expected)


def test_a_refused_late_reward_does_not_settle(local):
    """All or nothing: what is due is settled by the next look."""
    local.put("x", GAUSSIAN | {"window": 10.0, "apply": "at_window_end"})
    local.decide("x", DecisionRequest("t", "1"))
    version = local.reward("x", RewardRequest("1", 5.0)).state_version
    local.clock.time += 10.0
    local.engine.begin()
    with pytest.raises(rules.Conflict):
        local.engine.reward("default", "x", RewardRequest("1", 6.0))
    assert local.engine.served("default", "x").snapshot.version == version
    assert local.store.decision(1, "1").counted is None
    local.engine.settle_due()
    local.engine.flush()
    local.engine.commit()
    assert local.store.decision(1, "1").counted == 5.0
    local.engine.undo()
