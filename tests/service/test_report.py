"""The report: the lift over the holdout, and what is counted, explored, missing and expired."""

import heapq
import math
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.special import ndtr

from adats.service.evaluation.lift import RewardMoments, Sides
from adats.service.messages import DecisionRequest, RewardRequest
from adats.service.reports import lift_of, report
from served import GAUSSIAN, Local

TENANT = "default"
RUNS, DECISIONS, TASKS, SHARE = 150, 100, 4, 0.3
WINDOW = 30.0
WORLD = {
    "model": "gaussian",
    "arms": ["a", "b"],
    "noise": 1.0,
    "prior": {"given": {"mean": 0.0, "scale": 0.7, "task_scale": 0.7}},
    "control": "a",
}
CHANCES = WORLD | {
    "noise": 0.5,
    "prior": {"given": {"mean": 0.5, "scale": 0.3, "task_scale": 0.2}},
    "window": WINDOW,
    "default_reward": 0.0,
}


@pytest.fixture
def local(tmp_path):
    local = Local(tmp_path / "x.db")
    yield local
    local.close()


def report_of(local, name="x"):
    with local.store.view() as view:
        return report(view, view.experiment(TENANT, name), local.clock())


def z(values):
    return np.mean(values) / (np.std(values, ddof=1) / math.sqrt(len(values)))


# The lift, against the truth of many small experiments


class World:
    """One experiment of which everything is known, with rewards that may take their time."""

    def __init__(self, local, name, spec, rng):
        self.engine, self.clock, self.name, self.rng = local.engine, local.clock, name, rng
        self.delayed, self.to = "window" in spec, spec["holdout"]["to"]
        if self.delayed:
            self.theta = rng.uniform(0.1, 0.9, size=(TASKS, 2))
        else:
            self.theta = rng.normal(0, 0.7, size=2) + rng.normal(0, 0.7, size=(TASKS, 2))
        self.seen, self.coming, self.log = set(), [], []

    def step(self, i):
        self.deliver()
        place, key = int(self.rng.integers(TASKS)), f"{self.name}-{i}"
        task, theta = f"t{place}", self.theta[place]
        own = self.chances(task)
        decided = self.engine.decide(TENANT, self.name, DecisionRequest(task, key))
        self.seen.add(task)
        held = np.array([1.0, 0.0]) if self.to == "control" else np.array([0.5, 0.5])
        arm = "ab".index(decided.action)
        mean = theta[arm]
        reward = float(self.rng.random() < mean) if self.delayed else self.rng.normal(mean, 1.0)
        self.log.append(
            SimpleNamespace(
                time=decided.time,
                held=decided.holdout,
                gain=float((own - held) @ theta),
                propensity=decided.propensity,
                due=(1 - SHARE) * own[arm] + SHARE * held[arm],
                weight=0.5 / decided.propensity,
                reward=float(reward),
                mean=float(theta.mean()),
            )
        )
        if not self.delayed:
            self.engine.reward(TENANT, self.name, RewardRequest(key, float(reward)))
        elif reward:  # nobody says that nothing has happened
            heapq.heappush(self.coming, (decided.time + self.rng.uniform(0, WINDOW - 1), key))

    def chances(self, task):
        """Of Thompson sampling to choose each of two Gaussian arms: a closed form."""
        served = self.engine.served(TENANT, self.name)
        belief = served.posterior(task) if task in self.seen else served.snapshot.meta.task_prior()
        better = ndtr((belief.mean[1] - belief.mean[0]) / math.hypot(*belief.scale))
        return np.array([1 - better, better])

    def deliver(self):
        if self.delayed and len(self.log) % 10 == 0:  # what is due is found when it is committed
            self.engine.flush()
            self.engine.commit()
            self.engine.begin()
        self.engine.settle_due()
        while self.coming and self.coming[0][0] <= self.clock():
            _, key = heapq.heappop(self.coming)
            self.engine.reward(TENANT, self.name, RewardRequest(key, 1.0))


def simulated(local, spec, seed):
    """Worlds, and the reports of their experiments."""
    for run in range(RUNS):
        local.put(f"r{run}", spec | {"seed": run})
        world = World(local, f"r{run}", spec, np.random.default_rng([seed, run]))
        local.engine.begin()
        for i in range(DECISIONS):
            world.step(i)
            local.clock.time += 1.0 if world.delayed else 0.0
        world.deliver()
        local.engine.flush()
        local.engine.commit()
        yield world, report_of(local, f"r{run}")
        local.clock.time += 2 * WINDOW


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("spec", "to"), [(WORLD, "control"), (WORLD, "uniform"), (CHANCES, "control")]
)
def test_the_lift_is_unbiased_and_its_interval_covers_the_truth(local, spec, to):
    """The truth is what the policy gains over the holdout on average, decision by decision."""
    spec = spec | {"holdout": {"share": SHARE, "to": to}}
    errors, covered, gains, logs = [], [], [], []
    ended = DECISIONS - int(WINDOW) + 1 if "window" in spec else DECISIONS  # one a second
    for world, result in simulated(local, spec, seed=len(to)):
        log, found = world.log[:ended], result.lift
        gain = np.mean([row.gain for row in log])
        gains.append(gain)
        errors.append(found.estimate - gain)
        covered.append(found.fixed_time.low <= gain <= found.fixed_time.high)
        assert found.low is None or found.low <= gain <= found.high
        logs.append(world.log)
        for size, mean, held in (
            (found.policy_decisions, found.policy_mean, False),
            (found.holdout_decisions, found.holdout_mean, True),
        ):
            rewards = [row.reward for row in log if row.held == held]
            assert size == len(rewards)
            assert abs(mean - np.mean(rewards)) < 1e-9
    assert min(gains) < 0 < max(gains)
    assert abs(z(errors)) < 4
    assert np.mean(covered) > 0.93 - 2.33 * math.sqrt(0.93 * 0.07 / RUNS)
    rows = [row for log in logs for row in log]
    share = np.mean([row.held for row in rows])
    assert abs(share - SHARE) < 4 * math.sqrt(SHARE * (1 - SHARE) / len(rows))
    due = [row.due for row in rows]
    np.testing.assert_allclose([row.propensity for row in rows], due, rtol=0, atol=1e-7)
    # propensities are right on average, so that another policy can be valued by them
    assert abs(z([np.mean([row.weight for row in log]) - 1 for log in logs])) < 4
    uniform = [np.mean([row.weight * row.reward - row.mean for row in log]) for log in logs]
    assert abs(z(uniform)) < 4


def test_the_lift_is_the_difference_of_means_with_a_normal_interval():
    policy, holdout = np.array([1.0, 2.0, 4.0]), np.array([0.5, 0.0, 0.0, 1.0])

    def side(values):
        return RewardMoments(
            values.size, values.mean(), ((values - values.mean()) ** 2).sum(), values.size
        )

    found = lift_of(Sides(side(policy), side(holdout), 0.5), zero_one=False)
    error = math.sqrt(policy.var(ddof=1) / 3 + holdout.var(ddof=1) / 4)
    assert found.estimate == pytest.approx(policy.mean() - holdout.mean())
    once = found.fixed_time
    assert once.high - found.estimate == pytest.approx(1.959964 * error, rel=1e-6)
    assert found.estimate - once.low == pytest.approx(1.959964 * error, rel=1e-6)
    assert (found.policy_decisions, found.holdout_decisions) == (3, 4)


@pytest.mark.parametrize(
    ("sizes", "estimate", "interval"),
    [((0, 0), False, False), ((3, 0), False, False), ((1, 3), True, False), ((2, 2), True, True)],
)
def test_where_rewards_are_missing_the_report_says_no_more_than_it_knows(sizes, estimate, interval):
    found = lift_of(
        Sides(*(RewardMoments(size, 1.5, 0.5, size) for size in sizes), 0.5), zero_one=False
    )
    once = found.fixed_time
    assert (found.estimate is not None) == estimate
    assert (once.low is not None) == (once.high is not None) == interval
    assert found.low is found.high is found.relative.low is None
    assert (found.policy_mean is None) == (sizes[0] == 0)


# Small cases, counted by hand


def test_without_a_holdout_there_is_no_lift(local):
    local.put("x", GAUSSIAN)
    local.decide("x", DecisionRequest("t"))
    assert report_of(local).lift is None


def test_decisions_that_could_not_be_held_out_take_no_part(local):
    """Where the control arm is not allowed, a decision goes on as if there were no holdout."""
    local.put("x", GAUSSIAN | {"control": "a", "holdout": {"share": 0.5}})
    sums = {True: [], False: []}
    for i in range(60):
        decided = local.decide("x", DecisionRequest("t", f"free {i}"))
        reward = float(i % 7)
        sums[decided.holdout].append(reward)
        local.reward("x", RewardRequest(f"free {i}", reward))
        barred = local.decide("x", DecisionRequest("t", f"barred {i}", allowed=["b", "c"]))
        assert not barred.holdout
        assert barred.action in ("b", "c")
        local.reward("x", RewardRequest(f"barred {i}", 1e6))
    result = report_of(local)
    assert result.counted == result.decisions == 120
    assert result.lift.policy_decisions == len(sums[False])
    assert result.lift.holdout_decisions == len(sums[True])
    assert result.lift.policy_mean == pytest.approx(np.mean(sums[False]))
    assert result.lift.holdout_mean == pytest.approx(np.mean(sums[True]))


def test_once_the_control_arm_is_barred_propensities_are_the_policys_own(local):
    local.put("x", GAUSSIAN | {"control": "a", "holdout": {"share": 0.5}})
    barred = local.decide("x", DecisionRequest("t", "1", allowed=["b"]))
    assert barred.propensity == 1.0
    free = local.decide("x", DecisionRequest("t", "2", allowed=["a", "b"]))
    assert free.propensity == pytest.approx(0.75 if free.action == "a" else 0.25, abs=1e-6)


def test_what_is_counted_missing_and_expired(local):
    local.put("x", GAUSSIAN | {"window": 10.0, "default_reward": 0.0, "apply": "at_window_end"})
    for i in range(4):
        local.decide("x", DecisionRequest(f"t{i % 2}", str(i)))
    local.reward("x", RewardRequest("0", 1.0))
    result = report_of(local)
    assert (result.decisions, result.tasks, result.counted) == (4, 2, 0)  # one is held
    assert (result.missing, result.expired) == (3, 0)
    local.clock.time += 10.0
    local.decide("x", DecisionRequest("t0", "4"))
    result = report_of(local)
    assert (result.counted, result.missing, result.expired) == (4, 1, 3)
    local.reward("x", RewardRequest("1", 1.0))  # late: it stays expired
    assert report_of(local).expired == 3
    assert report_of(local).state_version == local.about("x").state_version


def test_a_late_reward_that_counts_is_not_missing_any_more(local):
    local.put("x", GAUSSIAN | {"window": 10.0, "late": "replace"})
    local.decide("x", DecisionRequest("t", "0"))
    local.clock.time += 10.0
    assert (report_of(local).missing, report_of(local).expired) == (0, 1)
    local.reward("x", RewardRequest("0", 1.0))
    result = report_of(local)
    assert (result.missing, result.expired, result.counted) == (0, 0, 1)


def test_without_a_window_rewards_are_missing_until_they_come(local):
    local.put("x", GAUSSIAN)
    local.decide("x", DecisionRequest("t", "0"))
    local.decide("x", DecisionRequest("t", "1"))
    local.reward("x", RewardRequest("0", 1.0))
    result = report_of(local)
    assert (result.missing, result.expired, result.counted) == (1, 0, 1)


def test_while_the_window_is_open_a_reward_is_not_in_the_lift(local):
    """It would be too early: those that come late would be left out."""
    holdout = {"control": "a", "holdout": {"share": 1.0}}
    local.put("x", GAUSSIAN | holdout | {"window": 10.0, "default_reward": 0.0})
    local.decide("x", DecisionRequest("t", "0"))
    local.reward("x", RewardRequest("0", 1.0))
    assert report_of(local).lift.holdout_decisions == 0
    local.clock.time += 10.0
    local.decide("x", DecisionRequest("t", "1"))
    found = report_of(local).lift
    assert (found.holdout_decisions, found.holdout_mean) == (1, 1.0)


def test_explored_are_decisions_whose_action_is_not_the_posteriors_best(local):
    """With a greedy policy only what is held out; and allowed arms are all that is compared."""
    prior = {"given": {"mean": [2.0, 1.0, 0.0], "scale": 0.1, "task_scale": 0.1}}
    rules = {"policy": {"name": "greedy"}, "control": "c", "holdout": {"share": 0.5}}
    local.put("x", GAUSSIAN | {"prior": prior} | rules)
    held = 0
    for i in range(30):
        decided = local.decide("x", DecisionRequest("t", str(i)))
        assert decided.action == ("c" if decided.holdout else "a")
        held += decided.holdout
    assert 0 < held < 30
    assert report_of(local).explored == held
    local.decide("x", DecisionRequest("t", "only b", allowed=["b"]))
    assert report_of(local).explored == held


def test_the_rewards_of_several_arms_are_summed(local):
    """The value of a semi-bandit's action is the sum over its arms; of no arms, it is 0."""
    prior = {"given": {"mean": [1.0, 1.0, 1.0], "scale": 0.1, "task_scale": 0.1}}
    semi = {"model": "semi-bandit", "size": 2, "control": ["b"], "holdout": {"share": 0.4}}
    local.put("x", GAUSSIAN | {"prior": prior} | semi)
    sums = {True: [], False: []}
    for i in range(40):
        decided = local.decide("x", DecisionRequest("t", str(i)))
        assert len(decided.action) == (1 if decided.holdout else 2)
        rewards = [float(i % 5), 0.25][: len(decided.action)]
        local.reward("x", RewardRequest(str(i), rewards))
        sums[decided.holdout].append(sum(rewards))
    found = report_of(local).lift
    assert found.policy_mean == pytest.approx(np.mean(sums[False]))
    assert found.holdout_mean == pytest.approx(np.mean(sums[True]))
    error = math.sqrt(sum(np.var(values, ddof=1) / len(values) for values in sums.values()))
    assert found.fixed_time.high - found.fixed_time.low == pytest.approx(
        2 * 1.959964 * error, rel=1e-6
    )


def test_a_decision_to_pull_no_arm_counts_as_a_reward_of_nothing(local):
    """Nobody would tell its reward, and without it the policy would look better than it is."""
    prior = {"given": {"mean": -1.0, "scale": 0.1, "task_scale": 0.1}}
    semi = {"model": "semi-bandit", "size": 2, "control": ["b"], "holdout": {"share": 0.5}}
    local.put("x", GAUSSIAN | {"prior": prior} | semi)
    held = 0
    for i in range(20):
        decided = local.decide("x", DecisionRequest("t", str(i)))
        assert decided.action == (["b"] if decided.holdout else [])
        held += decided.holdout
    result = report_of(local)
    assert (result.counted, result.missing) == (20 - held, held)
    assert (result.lift.policy_mean, result.lift.policy_decisions) == (0.0, 20 - held)
    assert (result.lift.holdout_mean, result.lift.holdout_decisions) == (None, 0)


def test_while_windows_wait_to_be_settled_the_lift_is_of_those_before(local):
    local.put("x", CHANCES | {"holdout": {"share": 0.5}})
    for i in range(40):
        local.decide("x", DecisionRequest(f"t{i}", f"early-{i}"))
    local.clock.time += WINDOW
    local.task("x", "t0")  # settles them, all with the default reward
    for i in range(40):
        local.decide("x", DecisionRequest(f"t{i}", f"new-{i}"))
        if i % 2:
            local.reward(
                "x", RewardRequest(f"new-{i}", 1.0)
            )  # at once, while the others wait for a 0
    local.clock.time += WINDOW  # nothing has settled those: they are a backlog
    found = report_of(local).lift
    assert found.policy_decisions + found.holdout_decisions == 40
    assert (found.policy_mean, found.holdout_mean) == (0.0, 0.0)
    local.task("x", "t0")
    found = report_of(local).lift
    assert found.policy_decisions + found.holdout_decisions == 80
    total = found.policy_decisions * found.policy_mean
    total += found.holdout_decisions * found.holdout_mean
    assert total == pytest.approx(20.0)


def test_further_metrics_have_means_and_a_lift(local):
    rules = {"control": "a", "holdout": {"share": 0.5}, "metrics": {"revenue": 0, "stay": None}}
    local.put("x", GAUSSIAN | rules)
    sums = {True: [], False: []}
    for i in range(200):
        held = local.decide("x", DecisionRequest(f"t{i}", str(i))).holdout
        revenue = float(i % 5) if i % 3 else None
        told = {} if revenue is None else {"revenue": revenue}
        local.reward("x", RewardRequest(str(i), 1.0 + i % 2, metrics=told))
        sums[held].append(revenue or 0.0)
    found = report_of(local).metrics
    assert found["revenue"].policy_mean == pytest.approx(np.mean(sums[False]))
    assert found["revenue"].holdout_mean == pytest.approx(np.mean(sums[True]))
    assert found["revenue"].fixed_time.low < found["revenue"].estimate
    assert (found["stay"].policy_decisions, found["stay"].estimate) == (0, None)
    local.put("y", GAUSSIAN | {"metrics": {"revenue": 0}})
    local.decide("y", DecisionRequest("t", "1"))
    local.reward("y", RewardRequest("1", 1.0, metrics={"revenue": 2.5}))
    alone = report_of(local, "y").metrics["revenue"]
    assert (alone.policy_mean, alone.policy_decisions, alone.estimate) == (2.5, 1, None)
