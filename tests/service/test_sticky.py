"""A task keeps its arm for a while; propensities, pending pulls and lift say what was drawn."""

import io
import json

import numpy as np
import pyarrow.parquet as pq
import pytest

from adats import AdaTS, GaussianMeta
from adats.service import export
from adats.service.audit import check_store
from adats.service.counters import of_rewards
from adats.service.engine import Engine
from adats.service.messages import DecisionRequest, RewardRequest
from adats.service.stores.opening import open_store, open_view
from asgi import talk
from schedules import TENANT
from served import GAUSSIAN, Clock, Local, at_rest, replayed

STICKY = GAUSSIAN | {"sticky": 100.0}
AT = "/v1/experiments/x"


class AnyLocal(Local):
    """The same on any store."""

    def __init__(self, url, spec):
        self.clock = Clock()
        self.store = open_store(url)
        self.engine = Engine(self.store, clock=self.clock)
        self.put("x", spec)
        self.count = 0

    def ask(self, task="t", **more):
        self.count += 1
        return self.decide("x", DecisionRequest(task, f"d{self.count}", **more))

    def tell(self, number, reward):
        return self.reward("x", RewardRequest(f"d{number}", reward))


@pytest.fixture
def play(url):
    made = []

    def start(**more):
        made.append(AnyLocal(url, STICKY | more))
        return made[0]

    yield start
    for local in made:
        local.close()


def rows_of(url):
    with open_view(at_rest(url)) as view:
        (row,) = view.experiments()
        return list(view.decisions(row.id)), view.counts(row.id)


def test_a_task_keeps_its_arm_so_long_and_no_longer(play, url, tmp_path):
    local = play()
    for i in range(20):
        local.clock.time += 1.0
        first = local.ask(f"t{i}")
        local.tell(local.count, float(first.action == "a"))
        local.clock.time += 50.0
        second = local.ask(f"t{i}")
        local.clock.time += 49.5  # from the draw, not from the second
        third = local.ask(f"t{i}")
        for kept in (second, third):
            assert (kept.action, kept.propensity) == (first.action, first.propensity)
        assert [d.kept for d in (first, second, third)] == [False, True, True]
        local.clock.time += 0.5
        assert not local.ask(f"t{i}").kept
        assert local.ask(f"t{i}").kept
    decisions, _ = rows_of(url)
    fresh = [d for d in decisions if d.kept is None]
    assert len(fresh) == 40
    assert any(
        a.action != b.action for a, b in zip(fresh[::2], fresh[1::2], strict=True)
    )  # drawn anew
    found = replayed(url, tmp_path)
    assert found.decisions == 100
    assert check_store(url) == []


def test_the_same_decision_again_is_the_same_answer(play):
    local = play()
    first = local.ask()
    kept = local.ask()
    local.clock.time += 1000.0
    assert local.decide("x", DecisionRequest("t", "d2")) == kept
    assert local.decide("x", DecisionRequest("t", "d1")) == first


def test_an_arm_that_may_not_be_chosen_is_not_kept(play, url, tmp_path):
    local = play()
    first = local.ask()
    others = [arm for arm in "abc" if arm != first.action]
    assert local.ask(allowed=[first.action, others[0]]).kept
    other = local.ask(allowed=others)
    assert (other.kept, other.action in others) == (False, True)
    assert local.ask().action == other.action  # the last draw is the one that is kept
    local.retire_arm("x", other.action)
    assert not (last := local.ask()).kept
    assert last.action != other.action
    local.forget("x", "t")
    assert not local.ask().kept
    replayed(url, tmp_path)


def test_rewards_of_kept_decisions_are_learned_like_any_other(play):
    local = play()
    agent = AdaTS(GaussianMeta(np.zeros(3), 1.0, task_scale=0.5, noise=1.0, arms="abc"), seed=1)
    for i in range(6):
        made = local.ask(f"t{i % 2}")
        local.tell(local.count, 0.5 * i)
        agent.tell(task=f"t{i % 2}", action=made.action, reward=0.5 * i)
    local.engine.fold_all()
    for task in ("t0", "t1"):
        means = [part.mean for part in local.task("x", task).parts]
        np.testing.assert_allclose(means, agent.posterior(task).mean, atol=1e-9)


def test_a_kept_decision_is_a_pull_that_waits_for_its_reward(play, url, tmp_path):
    """Of an index policy: every decision counts as a round, and its pull is pending till told."""
    local = play(policy={"name": "ucb", "epsilon": 0.1})
    first = local.ask()
    assert all(local.ask().kept for _ in range(3))
    local.tell(2, 1.0)
    with open_view(at_rest(url)) as view:
        (row,) = view.experiments()
        ((_, state),) = view.tasks(row.id)
    assert state.rounds == 4
    pending = np.frombuffer(state.pending)
    assert pending.tolist() == [3.0 * (arm == first.action) for arm in "abc"]
    replayed(url, tmp_path)


def test_lift_is_measured_on_draws_alone(play, url):
    """Who is held out stays so, and is counted once; the rest of a period is not held-out data."""
    local = play(holdout={"share": 0.5}, control="b")
    for i in range(40):
        first = local.ask(f"t{i}")
        for _ in range(2):
            kept = local.ask(f"t{i}")
            assert (kept.holdout, kept.action) == (first.holdout, first.action)
    for i in range(120):
        local.tell(i + 1, 1.0)
    _, counts = rows_of(url)
    by_side = {}
    for bucket, own in of_rewards(counts, several=False).items():
        by_side[bucket.held_out] = by_side.get(bucket.held_out, 0) + own.counted
    assert by_side[-1] == 80
    assert by_side[0] + by_side[1] == 40
    assert min(by_side.values()) >= 10


def test_propensities_weigh_kept_decisions_as_their_draw(tmp_path):
    """Inverse propensities estimate a sticky uniform policy, with kept decisions in it.

    Each task is asked three times in one period, and its rewards depend on the arm.
    """
    local = AnyLocal(str(tmp_path / "x.db"), STICKY | {"arms": ["a", "b"], "seed": 2})
    value = {"a": 1.0, "b": 3.0}
    scores = []
    local.engine.begin()
    for i in range(400):
        for visit in range(3):
            made = local.engine.decide(TENANT, "x", DecisionRequest(f"t{i}", f"{i}-{visit}"))
            scores.append(0.5 / made.propensity * value[made.action])
        local.engine.reward(TENANT, "x", RewardRequest(f"{i}-0", value[made.action] / 10))
        if i % 20 == 19:
            local.engine.end_commit(TENANT, "x")
    local.engine.undo()
    local.close()
    by_task = np.array(scores).reshape(400, 3).mean(axis=1)
    error = by_task.std(ddof=1) / np.sqrt(400)
    assert abs(by_task.mean() - 2.0) < 3 * error  # of a uniform policy: (1 + 3) / 2
    assert error < 0.3


def test_the_log_says_which_decisions_were_kept(url):
    calls = [("PUT", AT, STICKY)]
    for i in range(3):
        calls += [
            ("POST", AT + "/decide", {"task": "t", "decision_id": f"d{i}"}),
            ("POST", AT + "/reward", {"decision_id": f"d{i}", "reward": 1.0}),
        ]
    answers = talk(url, calls)
    assert [answers[i][1]["kept"] for i in (1, 3, 5)] == [False, True, True]
    at_rest(url)
    _, log = talk(url, [("GET", AT + "/log")])[0]
    assert [json.loads(line)["kept"] for line in log.splitlines()] == [False, True, True]
    with open_view(url) as view:
        (row,) = view.experiments()
        table = pq.read_table(io.BytesIO(b"".join(export.log(view, row, "parquet"))))
    assert table["kept"].to_pylist() == [False, True, True]


SEMI = GAUSSIAN | {"model": "semi-bandit", "size": 2, "sticky": 100.0}


def test_a_set_of_arms_is_kept_as_it_is(url):
    spec = SEMI | {"exactly": True}
    calls = [("PUT", AT, spec)] + [
        ("POST", AT + "/decide", {"task": f"t{i % 5}"}) for i in range(15)
    ]
    _, *answers = talk(url, calls)
    for i, (_, answer) in enumerate(answers):
        assert answer["kept"] == (i >= 5)
        assert answer["action"] == answers[i % 5][1]["action"]


LINEAR = {
    "model": "linear",
    "dim": 2,
    "noise": 1.0,
    "prior": {"given": {"mean": 0.0, "cov": 1.0, "task_cov": 0.1}},
}


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        (GAUSSIAN | {"sticky": 0}, "sticky"),
        (GAUSSIAN | {"sticky": -1.0}, "sticky"),
        (GAUSSIAN | {"sticky": "long"}, "sticky"),
        (LINEAR | {"sticky": 10.0}, "sticky"),
    ],
)
def test_what_cannot_be_sticky_is_refused(tmp_path, spec, field):
    (found,) = talk(tmp_path / "x.db", [("PUT", AT, spec)])
    assert (found[0], found[1]["field"]) == (422, field)
