import itertools
import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr, ndtri, stdtrit

from adats import AdaTS, BetaArms, GaussianMeta, MixtureMeta
from adats.agents.offpolicy import evaluate
from adats.agents.propensities import floored, propensities


def quietly(*columns, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return evaluate(*columns, **options)


# by hand


def test_ips_by_hand():
    # weights 2, 0, 1, 1; contributions 2, 0, 1, 0.5
    found = evaluate([1.0, 0.0, 1.0, 0.5], [0.5, 0.5, 0.8, 0.2], [1.0, 0.0, 0.8, 0.2])
    assert found.value == pytest.approx(0.875)
    gaps = np.array([2, 0, 1, 0.5]) - 0.875
    se = math.sqrt((gaps**2).sum() / 3 / 4)
    assert found.se == pytest.approx(se)
    half = stdtrit(3, 0.975) * se + ndtri(0.975) ** 2 / 3 * gaps.max() / 4
    assert found.high == pytest.approx(0.875 + half)
    assert found.low == pytest.approx(0.875 - half)
    assert found.effective_sample_size == pytest.approx(16 / 6)
    assert found.n == 4
    assert found.warnings == ()


def test_snips_by_hand():
    found = evaluate(
        [1.0, 0.0, 3.0], [0.5, 0.5, 0.5], [0.5, 0.5, 0.25], method="snips", confidence=0.9
    )
    assert found.value == pytest.approx(2.5 / 2.5)
    gaps = np.array([0.0, -1.0, 0.5 * 2.0]) / 2.5
    assert found.se == pytest.approx(math.sqrt(1.5 * (gaps**2).sum()))
    half = stdtrit(2, 0.95) * found.se + ndtri(0.95) ** 2 / 3 * 0.4
    assert found.high - found.low == pytest.approx(2 * half)


def test_tasks_are_the_sample_by_hand():
    rewards, chance, target = [1.0, 3.0, 2.0, 0.0, 4.0], [0.5] * 5, [0.5] * 5
    found = evaluate(rewards, chance, target, tasks=["a", "a", "b", "b", "b"])
    assert found.value == pytest.approx(2.0)
    sums = np.array([4.0 - 2 * 2.0, 6.0 - 3 * 2.0]) / 5
    assert found.se == pytest.approx(math.sqrt(2 * (sums**2).sum()))
    apart = evaluate(rewards, chance, target, tasks=list("abcde"))
    assert apart == evaluate(rewards, chance, target)


def test_on_policy_it_is_the_mean():
    rng = np.random.default_rng(0)
    y, p = rng.standard_normal(50), rng.uniform(0.1, 0.9, 50)
    for method in ("ips", "snips"):
        found = evaluate(y, p, p, method=method)
        assert found.value == pytest.approx(y.mean())
        assert found.se == pytest.approx(y.std(ddof=1) / math.sqrt(50))
        assert found.effective_sample_size == pytest.approx(50)


@settings(max_examples=50)
@given(st.integers(0, 10_000), st.sampled_from(["ips", "snips"]), st.floats(-5, 5))
def test_order_of_rows_and_names_of_tasks_do_not_matter(seed, method, shift):
    rng = np.random.default_rng(seed)
    y, p, e = rng.standard_normal(20), rng.uniform(0.2, 0.9, 20), rng.uniform(0.1, 1, 20)
    tasks = rng.integers(5, size=20)
    found = quietly(y, p, e, tasks=tasks.tolist(), method=method)
    order = rng.permutation(20)
    names = [f"task {t}" for t in tasks[order]]
    again = quietly(y[order], p[order], e[order], tasks=names, method=method)
    np.testing.assert_allclose(again[:5], found[:5])
    moved = quietly(y + shift, p, e, tasks=tasks.tolist(), method="snips").value
    assert moved == pytest.approx(quietly(y, p, e, method="snips").value + shift)


# adaptive logs


def test_ips_is_unbiased_exactly():
    """All logs of four rounds of a policy that adapts, each with its probability."""
    value = {0: 1.0, 1: -2.0}
    target = {0: 0.3, 1: 0.7}
    mean = total = 0.0
    for actions in itertools.product((0, 1), repeat=4):
        chances, seen = [], [1.0, 1.0]
        for action in actions:
            first = seen[0] / sum(seen)
            chances.append(first if action == 0 else 1 - first)
            seen[action] += 0.5 + 0.2 * value[action]  # what is earned changes what comes
        probability = math.prod(chances)
        rewards = [value[a] for a in actions]
        found = quietly(rewards, chances, [target[a] for a in actions]).value
        mean += probability * found
        total += probability
    assert total == pytest.approx(1)
    assert mean == pytest.approx(0.3 * 1.0 + 0.7 * -2.0)


def adats_log(meta, world, target, *, epsilon, tasks, rounds, seed):
    """A log of AdaTS with a floor: rewards, propensities, target probabilities; and the value."""
    inner, outer = np.random.SeedSequence(seed).spawn(2)  # one stream for both would be a bias
    agent, rng = AdaTS(meta, seed=inner), np.random.default_rng(outer)
    rows, value = [], 0.0
    for task in range(tasks):
        theta, reward = world(rng)
        value += float(target @ theta) / tasks
        for _ in range(rounds):
            action = agent.ask(task).action
            p = floored(propensities(agent.posterior(task)).probabilities, epsilon)
            if rng.random() < epsilon:
                action = int(rng.integers(p.size))
            y = reward(action)
            agent.tell(task=task, action=action, reward=y)
            rows.append((y, p[action], target[action]))
    return *np.array(rows).T, value


def gaussian_world(rng):
    theta = rng.normal([0.5, 0.0, 0.3], 0.3)
    return theta, lambda action: rng.normal(theta[action], 1.0)


def binary_world(rng):
    theta = rng.beta([3.0, 2.0], [5.0, 5.0])
    return theta, lambda action: int(rng.random() < theta[action])


GAUSSIAN = GaussianMeta([0.0, 0.0, 0.0], 0.5, task_scale=0.3, noise=1.0)
BINARY = MixtureMeta([0.5, 0.5], [BetaArms([3.0, 2.0], 5.0), BetaArms([2.0, 3.0], 5.0)])


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("meta", "world", "target", "epsilon"),
    [
        (GAUSSIAN, gaussian_world, np.array([0.2, 0.5, 0.3]), 0.0),
        (GAUSSIAN, gaussian_world, np.array([0.0, 1.0, 0.0]), 0.1),
        (BINARY, binary_world, np.array([0.5, 0.5]), 0.0),
    ],
)
def test_ips_is_unbiased_on_logs_of_adats(meta, world, target, epsilon):
    errors = []
    for seed in range(50):
        *log, value = adats_log(meta, world, target, epsilon=epsilon, tasks=3, rounds=8, seed=seed)
        errors.append(quietly(*log).value - value)
    z = np.mean(errors) / (np.std(errors, ddof=1) / math.sqrt(len(errors)))
    assert abs(z) < 4
    assert np.std(errors) < 1.0  # so that a bias would show


def two_arm_logs(runs, tasks, rounds, epsilon, seed, level=0.0):
    """AdaTS with two Gaussian arms, all runs at once: P(arm 1 is best) has a closed form."""
    rng = np.random.default_rng(seed)
    width, spread = 0.5, 0.3
    mu = level + width * rng.standard_normal((runs, 2))
    told, shift = np.zeros((2, runs, 2))
    every = np.arange(runs)
    theta = mu[:, None] + spread * rng.standard_normal((runs, tasks, 2))
    reward, chance = np.empty((2, runs, tasks, rounds))
    action = np.empty((runs, tasks, rounds), dtype=int)
    for s in range(tasks):
        variance = width**2 / (1 + width**2 * told)
        prior, wide = level + variance * shift, variance + spread**2
        count, total = np.zeros((2, runs, 2))
        for t in range(rounds):
            keep = 1 / (1 + count * wide)
            mean, scale = keep * (prior + wide * total), np.sqrt(keep * wide)
            p = ndtr((mean[:, 1] - mean[:, 0]) / np.hypot(scale[:, 0], scale[:, 1]))
            p = (1 - epsilon) * p + epsilon / 2
            arm = (rng.random(runs) < p).astype(int)
            y = theta[every, s, arm] + rng.standard_normal(runs)
            reward[:, s, t], action[:, s, t] = y, arm
            chance[:, s, t] = np.where(arm == 1, p, 1 - p)
            count[every, arm] += 1
            total[every, arm] += y
        told += count / (1 + count * spread**2)
        shift += (total - count * level) / (1 + count * spread**2)
    return reward, chance, action, theta, mu


@pytest.mark.statistical
def test_the_naive_mean_is_biased_where_ips_is_not():
    """What the log earned with an arm is less than its worth: it was dropped when unlucky."""
    reward, chance, action, theta, _ = (x[:, 0] for x in two_arm_logs(1000, 1, 30, 0.1, seed=4))
    naive, weighted = [], []
    for y, p, arm, means in zip(reward, chance, action, theta, strict=True):
        pulled = arm == 0
        if pulled.any():
            naive.append(y[pulled].mean() - means[0])
            weighted.append(quietly(y, p, pulled.astype(float)).value - means[0])
        else:
            weighted.append(-means[0])
    naive_z, z = (np.mean(x) / (np.std(x) / math.sqrt(len(x))) for x in (naive, weighted))
    assert naive_z < -4
    assert abs(z) < 3.5


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("epsilon", "rounds", "least"),
    [(0.0, 40, 0.93), (0.05, 40, 0.95), (0.2, 40, 0.95), (0.0, 300, 0.93), (0.05, 300, 0.95)],
)
def test_intervals_cover_on_adaptive_logs(epsilon, rounds, least):
    """What the guide says: at least 95 % with a floor, a little less without one."""
    runs, tasks = 250, 8
    reward, chance, action, theta, mu = two_arm_logs(
        runs, tasks, rounds, epsilon, seed=1, level=0.5
    )
    names = np.repeat(np.arange(tasks), rounds).tolist()
    for target in (np.array([0.5, 0.5]), np.array([1.0, 0.0])):
        covered = {}
        for run in range(runs):
            log = reward[run].ravel(), chance[run].ravel(), target[action[run].ravel()]
            if not log[2].any():
                continue
            for method in ("ips", "snips"):
                here = quietly(*log, method=method)
                value = (theta[run] @ target).mean()
                covered.setdefault((method, "log"), []).append(here.low <= value <= here.high)
                new = quietly(*log, method=method, tasks=names)
                value = mu[run] @ target
                covered.setdefault((method, "new"), []).append(new.low <= value <= new.high)
        slack = 3 * math.sqrt(least * (1 - least) / runs)
        for kind, hits in covered.items():
            assert np.mean(hits) > least - slack, kind


@pytest.mark.statistical
def test_snips_is_consistent():
    reward, chance, action, theta, _ = two_arm_logs(40, 1, 3000, 0.1, seed=2, level=5.0)
    target = np.array([0.3, 0.7])
    errors = {"ips": [], "snips": []}
    for run in range(40):
        for method, found in errors.items():
            log = reward[run].ravel(), chance[run].ravel(), target[action[run].ravel()]
            found.append(quietly(*log, method=method).value - float(theta[run, 0] @ target))
    spread = {method: np.std(found) for method, found in errors.items()}
    assert spread["snips"] < 0.15  # of a level of 5
    assert spread["snips"] < 0.5 * spread["ips"]
    assert abs(np.mean(errors["snips"])) < 4 * spread["snips"] / math.sqrt(40)


# warnings and errors


def test_vanishing_propensities_are_told_with_the_effective_sample_size():
    p = np.full(100, 0.9)
    p[0] = 1e-4
    with pytest.warns(UserWarning, match=r"100 rows are worth 1\.\d: .* down to 1\.0e-04"):
        found = evaluate(np.ones(100), p, np.full(100, 0.5))
    assert found.effective_sample_size < 2
    assert len(found.warnings) == 1


def test_weights_that_do_not_average_one_are_told():
    with pytest.warns(UserWarning, match=r"average 0\.5 and should average 1"):
        evaluate(np.arange(50.0), np.full(50, 0.999), np.full(50, 0.4995))


def test_certain_actions_are_left_out_and_told():
    reward, chance, target = [9.0, 1.0, 2.0, 3.0], [1.0, 0.5, 0.5, 1.0], [0.5, 0.5, 0.5, 1.0]
    with pytest.warns(UserWarning, match="1 of 4 rows are left out"):
        found = evaluate(reward, chance, target)
    assert found.n == 3
    assert found.value == pytest.approx(2.0)


GOOD = ([1.0, 2.0], [0.5, 0.5], [0.5, 0.5])


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        (([1.0, 2.0], [0.5, 0.0], [0.5, 0.5]), {}, "above 0 and at most 1, got 0.0"),
        (([1.0, 2.0], [0.5, 1.5], [0.5, 0.5]), {}, "got 1.5"),
        (([1.0, 2.0], [0.5, np.nan], [0.5, 0.5]), {}, "propensities must be finite"),
        (([1.0, np.nan], [0.5, 0.5], [0.5, 0.5]), {}, "rewards must be finite"),
        (([1.0, 2.0], [0.5, 0.5], [0.5, 1.5]), {}, "between 0 and 1, got 1.5"),
        (([1.0, 2.0], [0.5, 0.5], [-0.1, 0.5]), {}, "between 0 and 1, got -0.1"),
        (([1.0, 2.0], [0.5], [0.5, 0.5]), {}, r"differ in length: \(2, 1, 2, 2\)"),
        (GOOD, {"tasks": ["a"]}, "differ in length"),
        (GOOD, {"tasks": ["a", "a"]}, "at least 2 rows, or 2 tasks; got 1"),
        (GOOD, {"method": "dr"}, "'ips' or 'snips', got 'dr'"),
        (GOOD, {"confidence": 95}, "between 0 and 1, got 95"),
        (([1.0, 2.0], [1.0, 1.0], [0.5, 0.5]), {}, "deterministic policy"),
        (([1.0, 2.0], [0.5, 0.5], [0.0, 0.0]), {}, "never takes an action of the log"),
        (([], [], []), {}, "no rows"),
        (([[1.0]], [0.5], [0.5]), {}, "1 dimensions"),
    ],
)
def test_bad_input(columns, options, message):
    with pytest.raises(ValueError, match=message):
        evaluate(*columns, **options)
