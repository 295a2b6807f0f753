"""Decisions and their log format; names and indices of arms."""

import json
import re

import numpy as np
import pytest

import adats
from adats.agents.arms import Arms, feature_rows
from adats.agents.decision import Decision

COLUMNS = ["task", "arm", "reward", "propensity", "decision_id", "time"]


def test_a_decision_is_a_plain_value():
    features = np.array([1.0, 2.0])
    decision = Decision("a", 2, features, 7, 12.5)
    assert decision == Decision("a", 2, None, 7, 99.0)
    assert decision != Decision("a", 1, features, 7, 12.5)
    assert len({decision, Decision("a", 2, None, 7)}) == 1
    with pytest.raises(AttributeError):
        decision.action = 1


def test_the_record_of_a_decision():
    record = Decision("a", "red", None, 7, 12.5).record(np.float32(0.5))
    assert list(record) == COLUMNS
    assert list(record.values()) == ["a", "red", 0.5, None, 7, 12.5]
    assert type(record["reward"]) is float
    assert Decision("a", 0, propensity=0.25).record(1)["propensity"] == 0.25


def test_the_record_of_features():
    record = Decision(3, 1, np.array([0.5, -2.0, 0.0]), 1, 0.0).record(1)
    assert list(record) == [*COLUMNS, "x0", "x1", "x2"]
    assert [record[f"x{i}"] for i in range(3)] == [0.5, -2.0, 0.0]
    assert json.loads(json.dumps(record)) == record


def test_the_records_of_a_set_of_arms():
    decision = Decision("a", ("red", "blue"), np.array([[1.0, 2.0], [3.0, 4.0]]), 7, 12.5)
    records = decision.records([0.5, np.float64(1.5)])
    assert [list(record) for record in records] == [[*COLUMNS, "x0", "x1"]] * 2
    assert [(r["arm"], r["reward"], r["x0"], r["x1"]) for r in records] == [
        ("red", 0.5, 1.0, 2.0),
        ("blue", 1.5, 3.0, 4.0),
    ]
    assert {record["decision_id"] for record in records} == {7}
    assert Decision("a", (), None).records([]) == []
    assert Decision("a", (), np.zeros((0, 2))).records(np.zeros(0)) == []
    single = Decision("a", 1, np.array([1.0, 2.0]))
    assert single.records([3.0]) == [single.record(3.0)]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Decision("a", (0, 1)).record(1.0), "use records"),
        (lambda: Decision("a", 0).record(np.nan), "reward must be finite, got nan"),
        (lambda: Decision("a", 0).record("1"), "reward must be a number, got '1'"),
        (lambda: Decision("a", 0).record([1.0]), "reward must be a number"),
        (lambda: Decision("a", (0, 1)).records([1.0]), "2 arms need as many rewards"),
        (lambda: Decision("a", (0, 1)).records(1.0), "2 arms need as many rewards, got 1.0"),
        (lambda: Decision("a", (0, 1)).records([1.0, np.inf]), "reward must be finite, got inf"),
        (lambda: Decision("a", (0, 1)).records([[1.0, 2.0]]), "2 arms need as many rewards"),
    ],
)
def test_bad_rewards_have_no_record(call, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        call()


def test_the_log_of_an_agent_teaches_another_the_same():
    """Round trip: what `record` writes is all that `tell` needs."""
    rng = np.random.default_rng(0)
    meta = adats.LinearMeta(np.zeros(2), 1.0, task_cov=0.5, noise=1.0)
    agent, log = adats.AdaTS(meta, seed=0, oracle=adats.Top(2, exactly=True)), []
    for i in range(20):
        decision = agent.ask(f"user-{i % 3}", features=rng.normal(size=(4, 2)))
        rewards = rng.normal(size=2)
        agent.tell(decision, reward=rewards)
        log += decision.records(rewards)
    log = [json.loads(json.dumps(row)) for row in log]
    assert [row["decision_id"] for row in log] == [i for i in range(1, 21) for _ in range(2)]
    assert all(np.diff([row["time"] for row in log]) >= 0)
    other = adats.AdaTS(meta, seed=1)
    for row in log:
        other.tell(task=row["task"], features=[row["x0"], row["x1"]], reward=row["reward"])
    np.testing.assert_allclose(other.meta.mean, agent.meta.mean, rtol=1e-12)
    for task in agent.tasks:
        np.testing.assert_allclose(other.posterior(task).cov, agent.posterior(task).cov, rtol=1e-9)


# Arms


def test_arms_by_index():
    arms = Arms(3)
    assert [arms.index(arm) for arm in (0, np.int8(2))] == [0, 2]
    assert arms.name(1) == 1
    assert arms.name(np.array([2, 0])) == (2, 0)
    assert arms.mask(None, None) is None
    assert arms.mask([2], None).tolist() == [False, False, True]
    assert arms.mask(np.array([0, 1]), None).tolist() == [True, True, False]


def test_arms_by_name():
    arms = Arms(3, ("a", "b", 7))
    assert [arms.index(arm) for arm in ("b", 7, np.int64(7), np.str_("a"))] == [1, 2, 2, 0]
    assert arms.name(np.array([2, 0])) == (7, "a")
    assert arms.mask({"a": 1, 7: 2}, None).tolist() == [True, False, True]
    for bad in ("c", 0, True, 7.0, None, ["a"], ("a",)):
        with pytest.raises(ValueError, match=re.escape(f"there is no arm {bad!r}")):
            arms.index(bad)
    named_like_bools = Arms(2, (0, 1))
    for bad in (True, False, 1.0, np.bool_(True)):
        with pytest.raises(ValueError, match="no arm"):
            named_like_bools.index(bad)


def test_arms_come_and_go():
    arms = Arms(2, ("a", "b")).add("c")
    assert arms.count == 3
    assert arms.index("c") == 2
    arms = arms.retire("a")
    assert arms.index("a") == 0  # late rewards find it
    assert arms.mask(None, None).tolist() == [False, True, True]
    assert arms.mask(["a", "c"], None).tolist() == [False, False, True]
    with pytest.raises(ValueError, match="allowed leaves no arm"):
        arms.mask(["a"], None)
    with pytest.raises(ValueError, match="the last arm cannot be retired"):
        arms.retire("b").retire("c")
    rows = Arms(2, None, np.eye(2)).add(None, np.array([[3.0, 4.0]]))
    assert rows.features.tolist() == [[1.0, 0.0], [0.0, 1.0], [3.0, 4.0]]


@pytest.mark.parametrize("features", [[[1, 2], [3, 4]], np.array([[1, 2], [3, 4]], np.float32)])
def test_feature_rows_are_float64(features):
    rows = feature_rows(features, 2)
    assert rows.dtype == np.float64
    assert rows.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert feature_rows(features, None).shape == (2, 2)


@pytest.mark.parametrize(
    ("features", "message"),
    [
        (np.ones(2), "shape (2,)"),
        (np.ones((0, 2)), "shape (0, 2)"),
        (np.ones((2, 3)), "one row of 2 numbers an arm; got shape (2, 3)"),
        ([[1.0, np.nan]], "features must be finite, got nan at index (0, 1)"),
        ([[1.0, 1e200]], "too large"),
        ([["1", "2"]], "features must be numbers"),
        (None, "features must be"),
    ],
)
def test_feature_rows_are_checked(features, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        feature_rows(features, 2)
