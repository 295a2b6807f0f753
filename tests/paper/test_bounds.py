"""Section 4's bounds: hand arithmetic, simulated histories, growth, and the paper's slips."""

import math
from dataclasses import asdict, astuple
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adats.paper.bounds import (
    Decomposition,
    arm_bounds,
    decomposition,
    information_bounds,
    linear_bound,
    semibandit_bound,
    variance_bound,
    width,
)

log, sqrt = math.log, math.sqrt
LINEAR: dict[str, Any] = {
    "tasks": 4,
    "rounds": 9,
    "dim": 2,
    "arms": 3,
    "meta_cov": [[3.0, 0.0], [0.0, 1.0]],
    "task_cov": [[1.0, 0.0], [0.0, 2.0]],
    "noise": 2.0,
    "eta": 0.5,
    "meta_mean": [3.0, -4.0],
    "delta": 0.25,
}
SEMI: dict[str, Any] = {
    "tasks": 3,
    "rounds": 4,
    "size": 2,
    "meta_scale": [1.0, 3.0, 2.0],
    "task_scale": [2.0, 0.0, 1.0],
    "noise": 2.0,
    "meta_mean": [1.0, -1.0, 2.0],
    "delta": 0.5,
}


# Hand arithmetic


def test_lemma_2_by_hand() -> None:
    got = decomposition(
        tasks=2,
        rounds=8,
        gamma=3.0,
        task_gamma=[[2.0], [1.0]],
        meta_information=4.0,
        task_information=[[2.0], [0.5]],
        eps=[[0.25], [0.5]],
    )
    # 3 √(2·8·4) = 24;  2 √(8·2) + 1 √(8·½) = 8 + 2;  8·¼ + 8·½ = 6
    assert got == Decomposition(learning=24.0, acting=10.0, excess=6.0, total=40.0)


def test_lemma_2_per_arm_by_hand() -> None:
    got = decomposition(
        tasks=2,
        rounds=2,
        size=3,
        gamma=[1.0, 2.0],
        task_gamma=[[1.0, 1.0], [2.0, 0.0]],
        meta_information=[7.0, 5.0],
        task_information=[[4.0, 2.0], [1.5, 9.0]],
        eps=[[0.5, 1.0], [0.0, 0.0]],
    )
    # √(2·2·3·(1·7 + 4·5)) = 18;  √(2·3·(4 + 2)) + √(2·3·4·1.5) = 6 + 6
    assert got == Decomposition(learning=18.0, acting=12.0, excess=1.5, total=31.5)


def test_lemma_3_width_by_hand() -> None:
    got = width(variance=3.0, arms=5, noise=0.5, delta=0.125, explored_norm=1.5)
    assert got.gamma == pytest.approx(4 * sqrt(3 / log(1 + 3 / 0.25) * log(4 * 5 / 0.125)))
    assert got.eps == pytest.approx(sqrt(2 * 0.125 * 3) + 2 * 1.5)
    certain = width(variance=0.0, arms=1, noise=0.5, delta=1.0)  # v / log(1 + v/σ²) → σ²
    assert certain.gamma == pytest.approx(4 * sqrt(0.25 * log(4)))
    assert certain.eps == 0


def test_lemma_3_variance_by_hand() -> None:
    kwargs: dict[str, Any] = {
        "task": 3,
        "dim": 2,
        "meta_cov": [[3.0, 0.0], [0.0, 1.0]],
        "task_cov": [[1.0, 0.0], [0.0, 2.0]],
        "noise": 2.0,
        "eta": 0.5,
    }
    # λ_q = 3, λ_0 = 2, σ²/η = 8: 2 + 3·10 / (10 + 3·2), and with 3·3 in the paper
    assert variance_bound(**kwargs) == pytest.approx(2 + 30 / 16)
    assert variance_bound(**kwargs, constants="paper") == pytest.approx(2 + 30 / 19)


def test_lemma_4_by_hand() -> None:
    got = information_bounds(
        tasks=4, rounds=8, dim=2, meta_cov=3.0, task_cov=[[1.0, 0.0], [0.0, 2.0]], noise=2.0
    )
    assert got.meta == pytest.approx(2 / 2 * log(1 + 3 * 4 / (1 + 4 / 8)))
    assert got.task == pytest.approx(2 / 2 * log(1 + 2 * 8 / 4))


@pytest.mark.parametrize("constants", ["paper", "safe"])
def test_theorem_5_by_hand(constants: Any) -> None:
    got = linear_bound(**LINEAR, constants=constants)
    width_log = log(4 * 3 / 0.25)
    c1 = sqrt(8 * 5 / log(1 + 5 / 4) * width_log * log(1 + 3 * 4 / (1 + 4 / 9)))
    c2 = (1 + 8 / 2) * log(4)
    if constants == "safe":
        c2 = 0.5 * (3 / 2 + (1 + 8 / 2) * log(1 + 3 * 3 / (2 + 8)))
    c3 = 2 * sqrt(9 + 16 + 3 + 1 + 1 + 2)
    c4 = sqrt(8 * 2 / log(1 + 2 / 4) * width_log * log(1 + 2 * 9 / 4))
    per_task = c4 * sqrt(2 * 9) + sqrt(2 * 0.25 * 2) * 9
    # Σ_q + Σ_0 = diag(4, 3)
    wide = sqrt(8 * 4 / log(1 + 4 / 4) * width_log * log(1 + 4 * 9 / 4))
    agnostic = 4 * (wide * sqrt(2 * 9) + sqrt(2 * 0.25 * (2 if constants == "paper" else 4)) * 9)
    learning, acting, exploration = c1 * sqrt(2 * 4 * 9), (4 + c2) * per_task, c3 * 2 * 4
    expected = {
        "c1": c1,
        "c2": c2,
        "c3": c3,
        "c4": c4,
        "per_task": per_task,
        "learning": learning,
        "acting": acting,
        "exploration": exploration,
        "total": learning + acting + exploration,
        "oracle": 4 * per_task,
        "agnostic": agnostic,
    }
    assert asdict(got) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("constants", ["paper", "safe"])
def test_per_arm_lemmas_by_hand(constants: Any) -> None:
    got = arm_bounds(
        task=2,
        tasks=3,
        rounds=4,
        meta_scale=[1.0, 3.0],
        task_scale=[2.0, 0.0],
        noise=2.0,
        delta=0.5,
        constants=constants,
    )
    done, half = (2, 0.5) if constants == "paper" else (1, 1.0)
    v = [4 + 1 * 8 / (8 + done * 1), 9 * 4 / (4 + done * 9)]
    wide = log(4 * 2 / 0.5)
    assert got.variance == pytest.approx(v)
    assert got.task_gamma == pytest.approx(
        [4 * sqrt(x / (half * log(1 + x / 4)) * wide) for x in v]
    )
    assert got.gamma == pytest.approx([4 * sqrt(x / log(1 + x / 4) * wide) for x in (5, 9)])
    assert got.eps == pytest.approx([sqrt(2 * 0.5 * x / 2) for x in v])
    assert got.meta_information == pytest.approx(
        [log(1 + 3 * 1 / (4 + 1)) / 2, log(1 + 3 * 9 / 1) / 2]
    )
    assert got.task_information == pytest.approx([log(1 + 4 * 4 / 4) / 2, 0])


@pytest.mark.parametrize("constants", ["paper", "safe"])
def test_theorem_6_by_hand(constants: Any) -> None:
    got = semibandit_bound(**SEMI, constants=constants)
    m, n, wide = 3, 4, log(4 * 3 / 0.5)
    arms = [(1, 4), (9, 0), (4, 1)]  # (σ_q², σ_0²); σ² = 4
    c1 = 4 * sqrt(
        sum((q + z) / log(1 + (q + z) / 4) * log(1 + q * m / (z + 1)) for q, z in arms) / 3 * wide
    )
    c3 = 2 * sqrt((1 + 1 + 4) + (1 + 9 + 4) + (4 + 0 + 1))
    c5 = 4 * sqrt((4 / log(2) * log(1 + 4) + 1 / log(1.25) * log(1 + 1)) / 3 * wide)
    if constants == "paper":
        c2, c4, root = (1 + 4 / 1) * log(3), sqrt(log(1 + 9 * 3 / 4) / 3), 1.0
    else:
        c2 = 0.5 * (4 / 1 + (1 + 4 / 1) * log(1 + 2 * 4 / 5))
        c4, root = sqrt((9 / 4 + log(1 + 9 * 2 / 4)) / 3), sqrt(2)
    per_task = c5 * sqrt(3 * 2 * n) + root * sqrt(2 * 0.5 * 5 / 3) * n
    learning, acting = c1 * sqrt(3 * 2 * m * n), (m + c2) * per_task
    exploration, shared = c3 * 3**1.5 * m, root * c4 * 2 * sqrt(2 * 0.5 * m) * n
    total = learning + acting + exploration + shared
    expected = [c1, c2, c3, c4, c5, per_task, learning, acting, exploration, shared, total]
    assert list(astuple(got)) == pytest.approx(expected, rel=1e-12)


def test_delta_is_one_over_rounds_squared_unless_given() -> None:
    linear, semi = {**LINEAR, "delta": None}, {**SEMI, "delta": None}
    assert linear_bound(**linear) == linear_bound(**{**LINEAR, "delta": 1 / 81})
    assert semibandit_bound(**semi) == semibandit_bound(**{**SEMI, "delta": 1 / 16})


def test_one_number_stands_for_all_arms_and_directions() -> None:
    many = {"meta_scale": [2.0] * 3, "task_scale": [0.5] * 3, "meta_mean": [1.0] * 3}
    one = {"meta_scale": 2.0, "task_scale": 0.5, "meta_mean": 1.0, "arms": 3}
    assert semibandit_bound(**{**SEMI, **one}) == semibandit_bound(**{**SEMI, **many})
    matrix = linear_bound(**{**LINEAR, "meta_cov": 3 * np.eye(2), "meta_mean": [2.0, 2.0]})
    number = linear_bound(**{**LINEAR, "meta_cov": 3.0, "meta_mean": 2.0})
    assert asdict(number) == pytest.approx(asdict(matrix))


def test_a_direction_without_spread_is_legal() -> None:
    flat = linear_bound(**{**LINEAR, "task_cov": [[2.0, 0.0], [0.0, 0.0]]})
    gain = log(1 + 3 * 4 / (0 + 4 / 9))  # λ_d(Σ_0) = 0
    assert flat.c1 == pytest.approx(sqrt(8 * 5 / log(1 + 5 / 4) * log(4 * 3 / 0.25) * gain))
    assert flat.c2 == linear_bound(**LINEAR).c2  # λ_1(Σ_0) = 2, as before


# Simulated histories


class History(NamedTuple):
    top: Any  # σ²_max(Σ̂_s,t), tasks x rounds
    meta: float  # ½ log det Σ_q / det Σ̂_m+1
    task: Any  # ½ log det Σ_0 / det of theta_s given mu and H_s
    regret: float


META_COV = np.array([[1.5, 0.4], [0.4, 0.8]])
TASK_COV = np.array([[0.3, -0.1], [-0.1, 0.6]])
NOISE = 0.7


def features(rng: np.random.Generator, arms: int) -> Any:
    """Unit vectors; the first two are the explored ones, not orthogonal."""
    rest = rng.standard_normal((arms - 2, 2))
    return np.vstack([[1.0, 0.0], [0.6, 0.8], rest / np.linalg.norm(rest, axis=1, keepdims=True)])


def run_linear(rng: np.random.Generator, arms: Any, tasks: int, rounds: int) -> History:
    """AdaTS in a linear bandit, with both explored arms first, by inverses."""
    mu = rng.multivariate_normal(np.zeros(2), META_COV)
    precision, vector = np.linalg.inv(META_COV), np.zeros(2)  # of mu
    top, gain, regret = np.empty((tasks, rounds)), np.empty(tasks), 0.0
    for s in range(tasks):
        theta = rng.multivariate_normal(mu, TASK_COV)
        prior = np.linalg.inv(TASK_COV + np.linalg.inv(precision))
        gram, xy = np.zeros((2, 2)), np.zeros(2)
        for t in range(rounds):
            cov = np.linalg.inv(prior + gram / NOISE**2)
            top[s, t] = max(a @ cov @ a for a in arms)
            mean = cov @ (prior @ np.linalg.inv(precision) @ vector + xy / NOISE**2)
            pull = t if t < 2 else int((arms @ rng.multivariate_normal(mean, cov)).argmax())
            a = arms[pull]
            gram, xy = gram + np.outer(a, a), xy + a * (a @ theta + NOISE * rng.standard_normal())
            regret += float((arms @ theta).max() - a @ theta)
        within = np.linalg.inv(TASK_COV + NOISE**2 * np.linalg.inv(gram))
        precision, vector = precision + within, vector + within @ np.linalg.inv(gram) @ xy
        gain[s] = np.linalg.slogdet(np.eye(2) + TASK_COV @ gram / NOISE**2)[1] / 2
    return History(top, np.linalg.slogdet(META_COV @ precision)[1] / 2, gain, regret)


@pytest.fixture(scope="module")
def linear_histories() -> Any:
    rng = np.random.default_rng(20)
    arms = features(rng, 6)
    eta = float(np.linalg.eigvalsh(arms[:2].T @ arms[:2])[0])
    return eta, [run_linear(rng, arms, tasks=5, rounds=8) for _ in range(60)]


def test_exact_informations_lie_below_lemma_4(linear_histories: Any) -> None:
    _, runs = linear_histories
    bound = information_bounds(
        tasks=5, rounds=8, dim=2, meta_cov=META_COV, task_cov=TASK_COV, noise=NOISE
    )
    # The information is the mean over histories; it even holds in every history.
    assert np.mean([run.meta for run in runs]) < bound.meta
    assert (np.mean([run.task for run in runs], axis=0) < bound.task).all()
    assert max(run.meta for run in runs) < bound.meta
    assert max(run.task.max() for run in runs) < bound.task
    # and the bounds are of the right size, not just large
    assert bound.meta < 2 * min(run.meta for run in runs)
    assert bound.task < 3 * min(run.task.min() for run in runs)


def test_lemma_4_is_exact_for_one_arm() -> None:
    tasks, rounds, q, z, s2 = 3, 4, 2.0, 0.5, 0.49
    groups = np.kron(np.eye(tasks), np.ones((rounds, rounds)))  # which rewards share a theta
    given_mu = z * groups + s2 * np.eye(tasks * rounds)
    rewards = q * np.ones_like(given_mu) + given_mu
    meta = (np.linalg.slogdet(rewards)[1] - np.linalg.slogdet(given_mu)[1]) / 2
    task = (np.linalg.slogdet(given_mu)[1] - tasks * rounds * log(s2)) / 2 / tasks
    got = information_bounds(
        tasks=tasks, rounds=rounds, dim=1, meta_cov=q, task_cov=z, noise=sqrt(s2)
    )
    assert (got.meta, got.task) == pytest.approx((meta, task))


def test_variances_of_histories_lie_below_safe_lemma_3(linear_histories: Any) -> None:
    eta, runs = linear_histories
    highest = np.max([run.top for run in runs], axis=0)
    for s in range(1, 6):
        kwargs: dict[str, Any] = {
            "task": s,
            "dim": 2,
            "meta_cov": META_COV,
            "task_cov": TASK_COV,
            "noise": NOISE,
            "eta": eta,
        }
        assert (highest[s - 1] <= variance_bound(**kwargs)).all()
        assert highest[s - 1, 0] == highest[s - 1].max()


def test_simulated_regret_lies_below_the_safe_total(linear_histories: Any) -> None:
    eta, runs = linear_histories
    bound = linear_bound(
        tasks=5,
        rounds=8,
        dim=2,
        arms=6,
        meta_cov=META_COV,
        task_cov=TASK_COV,
        noise=NOISE,
        eta=eta,
        delta=1.0,
    )
    regret = float(np.mean([run.regret for run in runs]))
    assert 0 < regret < bound.total


def exact_variance(task: int, q: float, z: float, s2: float) -> float:
    """Of theta_s when each earlier task measured every direction once with noise s2."""
    return z + 1 / (1 / q + (task - 1) / (z + s2))


@pytest.mark.parametrize("task", [1, 2, 3, 10])
def test_paper_lemma_3_fails_where_the_safe_one_is_exact(task: int) -> None:
    # Orthonormal arms, rounds = dim: forced exploration is all there is, eta = 1. By hand for
    # task 1: the prior variance is 1 + 0.01, the paper's bound 0.01 + 1·2.01 / (2.01 + 1) = 0.68.
    q, z, s2 = 1.0, 0.01, 2.0
    truth = exact_variance(task, q, z, s2)
    kwargs: dict[str, Any] = {
        "task": task,
        "dim": 3,
        "meta_cov": q,
        "task_cov": z,
        "noise": sqrt(s2),
        "eta": 1.0,
    }
    assert variance_bound(**kwargs) == pytest.approx(truth)
    assert variance_bound(**kwargs, constants="paper") < truth * 0.99
    if task == 1:
        assert truth == pytest.approx(1.01)
        assert variance_bound(**kwargs, constants="paper") == pytest.approx(0.6777, abs=1e-4)


def run_semibandit(
    rng: np.random.Generator, q: Any, z: Any, tasks: int, rounds: int, size: int
) -> tuple[Any, Any, Any]:
    """AdaTS with top-`size` actions, each arm pulled in the first rounds: variances and pulls."""
    k = q.size
    mu = np.sqrt(q) * rng.standard_normal(k)
    precision, mean = 1 / q, np.zeros(k)  # of mu
    variances, pulls = np.empty((tasks, rounds, k)), np.zeros((tasks, k))
    for s in range(tasks):
        theta = mu + np.sqrt(z) * rng.standard_normal(k)
        prior, total = z + 1 / precision, np.zeros(k)
        for t in range(rounds):
            cov = 1 / (1 / prior + pulls[s] / NOISE**2)
            variances[s, t] = cov
            draw = cov * (mean / prior + total / NOISE**2) + np.sqrt(cov) * rng.standard_normal(k)
            forced = np.arange(t * size, (t + 1) * size) % k
            action = forced if t * size < k else np.argsort(draw)[-size:]
            total[action] += theta[action] + NOISE * rng.standard_normal(size)
            pulls[s, action] += 1
        within = 1 / (z + NOISE**2 / pulls[s])
        mean = (precision * mean + within * total / pulls[s]) / (precision + within)
        precision = precision + within
    return variances, pulls, np.log(precision * q) / 2


def test_per_arm_histories_lie_below_the_safe_lemmas() -> None:
    rng = np.random.default_rng(21)
    q, z = np.array([1.0, 0.3, 2.0, 0.5]), np.array([0.4, 0.0, 0.1, 1.0])
    runs = [run_semibandit(rng, q, z, tasks=4, rounds=6, size=2) for _ in range(60)]
    broken = 0
    for s in range(1, 5):
        kwargs: dict[str, Any] = {
            "task": s,
            "tasks": 4,
            "rounds": 6,
            "meta_scale": np.sqrt(q),
            "task_scale": np.sqrt(z),
            "noise": NOISE,
        }
        safe, paper = arm_bounds(**kwargs), arm_bounds(**kwargs, constants="paper")
        worst = np.max([variances[s - 1].max(axis=0) for variances, _, _ in runs], axis=0)
        assert (worst <= safe.variance * (1 + 1e-12)).all()
        broken += int((worst > paper.variance * (1 + 1e-12)).sum())
        task_information = np.log1p(z * np.array([pulls[s - 1] for _, pulls, _ in runs]) / NOISE**2)
        assert (task_information.mean(axis=0) / 2 <= safe.task_information).all()
        assert (np.mean([meta for _, _, meta in runs], axis=0) < safe.meta_information).all()
    assert broken >= 4  # the paper's count of tasks fails for all four arms in task 1 alone


# The one-round inequality (3)


def test_lemma_3_bounds_the_gap_of_thompson_sampling() -> None:
    rng = np.random.default_rng(22)
    for _ in range(20):
        arms = features(rng, 5)
        root = rng.standard_normal((2, 2))
        cov, mean = root @ root.T, rng.standard_normal(2)
        draws = rng.multivariate_normal(np.zeros(2), cov, size=4000)
        pulled = arms[((mean + draws) @ arms.T).argmax(axis=1)]
        gaps = (pulled * draws).sum(axis=1)  # E[A'(draw - truth)], the truth has mean `mean`
        variances = np.einsum("ij,jk,ik->i", pulled, cov, pulled)
        information = np.log1p(variances / NOISE**2).mean() / 2
        top = max(a @ cov @ a for a in arms)
        w = width(variance=top, arms=5, noise=NOISE, delta=1.0)
        assert gaps.mean() + 4 * gaps.std() / sqrt(4000) < w.gamma * sqrt(information) / 2 + w.eps


def test_lemma_10_needs_its_eps_outside_the_probability() -> None:
    # Arm 1 is known to be 0, arm 2 has posterior N(-6, 1). The gap is E[(X + 6) 1(X > 0)] = φ(6)
    # for X ~ N(-6, 1), but arm 2 is pulled with a probability of about φ(6) / 6.2 only.
    density = math.exp(-18) / sqrt(2 * math.pi)
    pulled = math.erfc(6 / sqrt(2)) / 2
    got = arm_bounds(
        task=1, tasks=1, rounds=1, meta_scale=[0, 1], task_scale=0.0, noise=1.0, delta=1.0
    )
    inside = got.task_gamma[1] * sqrt(got.meta_information[1]) + got.eps[1]
    assert got.meta_information[1] == pytest.approx(log(2) / 2)
    assert density > pulled * inside  # as printed: false
    assert density < sqrt((got.eps**2).sum())  # eps added once a round: true


# Theorem against lemmas


def plugged_linear(constants: Any = "safe", **kwargs: Any) -> Decomposition:
    """Lemmas 3 and 4 in Lemma 2, task by task, without forced exploration's own cost."""
    model = {name: kwargs[name] for name in ("dim", "meta_cov", "task_cov", "noise")}
    line = {"arms": kwargs["arms"], "noise": kwargs["noise"], "delta": kwargs["delta"]}
    steps = range(1, kwargs["tasks"] + 1)
    tops = [variance_bound(task=s, eta=kwargs["eta"], constants=constants, **model) for s in steps]
    widths = [width(variance=top, **line) for top in tops]
    sizes = {"tasks": kwargs["tasks"], "rounds": kwargs["rounds"]}
    information = information_bounds(**sizes, **model)
    return decomposition(
        **sizes,
        gamma=width(variance=kwargs["meta_cov"] + kwargs["task_cov"], **line).gamma,
        task_gamma=[[w.gamma] for w in widths],
        meta_information=information.meta,
        task_information=information.task,
        eps=[[w.eps] for w in widths],
    )


def plugged_semibandit(**kwargs: Any) -> Decomposition:
    """Lemmas 10, 12 and 13 in Lemma 11, with the √L of a round that pulls L arms."""
    rest = {name: value for name, value in kwargs.items() if name != "size"}
    each = [arm_bounds(task=s, **rest) for s in range(1, kwargs["tasks"] + 1)]
    return decomposition(
        tasks=kwargs["tasks"],
        rounds=kwargs["rounds"],
        size=kwargs["size"],
        gamma=each[0].gamma,
        task_gamma=[a.task_gamma for a in each],
        meta_information=each[0].meta_information,
        task_information=[a.task_information for a in each],
        eps=[[sqrt(kwargs["size"] * (a.eps**2).sum())] for a in each],
    )


positive = st.floats(0.01, 100)
linear_cases = st.fixed_dictionaries(
    {
        "tasks": st.integers(1, 12),
        "rounds": st.integers(1, 300),
        "dim": st.integers(1, 4),
        "arms": st.integers(4, 50),
        "meta_cov": st.floats(0, 100),
        "task_cov": positive,
        "noise": st.floats(0.1, 10),
        "eta": st.floats(0.01, 1),
        "delta": st.floats(1e-6, 1),
    }
)
scales = st.lists(st.one_of(st.just(0.0), st.floats(0.05, 10)), min_size=4, max_size=4)
semi_cases = st.fixed_dictionaries(
    {
        "tasks": st.integers(1, 12),
        "rounds": st.integers(1, 300),
        "size": st.integers(1, 4),
        "meta_scale": scales,
        "task_scale": scales,
        "noise": st.floats(0.1, 10),
        "delta": st.floats(1e-6, 1),
    }
)
quick = settings(max_examples=300, deadline=None, derandomize=True)
above = 1 + 1e-9


@quick
@given(linear_cases)
def test_safe_theorem_5_covers_its_lemmas(case: dict[str, Any]) -> None:
    bound, lemmas = linear_bound(**case), plugged_linear(**case)
    assert bound.learning == pytest.approx(lemmas.learning)
    assert lemmas.acting + lemmas.excess <= bound.acting * above
    exact = [variance_bound(task=s, **pick(case)) for s in range(1, case["tasks"] + 1)]
    extra = sum(v / case["task_cov"] - 1 for v in exact) / 2  # ½ Σ u_s
    assert extra <= bound.c2 * above + 1e-9


def pick(case: dict[str, Any]) -> dict[str, Any]:
    return {name: case[name] for name in ("dim", "meta_cov", "task_cov", "noise", "eta")}


@pytest.mark.parametrize(("tasks", "meta_cov"), [(1, 1.0), (2, 100.0), (20, 1000.0)])
def test_paper_theorem_5_does_not_cover_its_lemmas(tasks: int, meta_cov: float) -> None:
    case: dict[str, Any] = {
        "tasks": tasks,
        "rounds": 50,
        "dim": 2,
        "arms": 10,
        "meta_cov": meta_cov,
        "task_cov": 1.0,
        "noise": 0.1,
        "eta": 1.0,
        "delta": 1 / 2500,
    }
    paper, safe, lemmas = (
        linear_bound(**case, constants="paper"),
        linear_bound(**case),
        plugged_linear(**case),
    )
    assert paper.acting < lemmas.acting + lemmas.excess <= safe.acting
    if tasks == 1:
        assert paper.c2 == 0
        # nor does it follow from the paper's own count, in which one task is finished already
        own = plugged_linear(constants="paper", **case)
        assert paper.acting < own.acting + own.excess


@quick
@given(semi_cases)
def test_safe_theorem_6_covers_its_lemmas(case: dict[str, Any]) -> None:
    bound, lemmas = semibandit_bound(**case), plugged_semibandit(**case)
    # The theorem has 4 where 4 / √2 would do, in c1 and in c5.
    assert bound.learning == pytest.approx(sqrt(2) * lemmas.learning)
    assert lemmas.acting + lemmas.excess <= (bound.acting + bound.shared) * above + 1e-9
    # The δ-terms alone, where the 4 leaves no slack to hide in:
    q, z, s2 = np.square(case["meta_scale"]), np.square(case["task_scale"]), case["noise"] ** 2
    n, size, delta = case["rounds"], case["size"], case["delta"]
    slack = (case["tasks"] + bound.c2) * n * sqrt(size * 2 * delta * z.mean())
    assert lemmas.excess <= (slack + bound.shared) * above + 1e-9
    steps = np.arange(case["tasks"])[:, None]
    if (z > 0).any():
        q_varied, z_varied = q[z > 0], z[z > 0]
        e = z_varied + s2
        u = q_varied * e / (e + steps * q_varied) / z_varied
        assert u.max(axis=1).sum() / 2 <= bound.c2 * above + 1e-9
    alike = (q[z == 0] * s2 / (s2 + steps * q[z == 0])).sum() / s2 / 4
    assert alike <= bound.c4**2 * above + 1e-9


def test_paper_c2_and_c4_of_theorem_6_are_too_small_for_one_task() -> None:
    case = {**SEMI, "tasks": 1}
    paper, safe = semibandit_bound(**case, constants="paper"), semibandit_bound(**case)
    # One task, none finished: ½ max σ_q²/σ_0² = ½ · 4/1 and (1/K) σ_q²/σ² = ⅓ · 9/4
    assert paper.c2 == 0
    assert safe.c2 == pytest.approx(2.0)
    assert paper.c4**2 == pytest.approx(log(1 + 9 / 4) / 3)
    assert safe.c4**2 == pytest.approx(9 / 4 / 3)
    assert paper.c4 < safe.c4


def test_size_enters_the_safe_delta_terms_as_a_root() -> None:
    case = {**SEMI, "size": 3}
    paper, safe = semibandit_bound(**case, constants="paper"), semibandit_bound(**case)
    assert safe.shared / safe.c4 == pytest.approx(sqrt(3) * paper.shared / paper.c4)
    extra = safe.per_task - paper.per_task
    assert extra == pytest.approx((sqrt(3) - 1) * sqrt(2 * 0.5 * 5 / 3) * 4)


def test_the_corrected_recursion_is_the_posterior_of_mu() -> None:
    # One arm, prior N(μ̂, v), N rewards of mean x: condition the joint Gaussian of (mu, x).
    center, v, z, s2, pulls, x = 0.3, 2.0, 0.5, 0.49, 4, 1.7
    noise = z + s2 / pulls
    mean = center + v / (v + noise) * (x - center)
    after = 1 / (1 / v + 1 / noise)
    assert after * (center / v + x / noise) == pytest.approx(mean)
    assert (center * v + x * s2 / pulls) / after != pytest.approx(mean, rel=0.2)  # as printed


# Growth


def slope(values: list[float], at: list[int]) -> float:
    return log(values[1] / values[0]) / log(at[1] / at[0])


GROWTH: dict[str, Any] = {
    "tasks": 1000,
    "rounds": 1000,
    "dim": 4,
    "arms": 1000,
    "meta_cov": 1.0,
    "task_cov": 0.5,
    "noise": 1.0,
    "eta": 0.5,
}


@pytest.mark.parametrize(
    ("name", "term", "low", "high"),
    [
        # Õ(√(d m n)), Õ(m √(d n)), Õ(d m): above the exponent by a logarithm, never below
        ("tasks", "learning", 0.5, 0.56),
        ("tasks", "acting", 0.98, 1.0),
        ("tasks", "exploration", 1.0, 1.0),
        ("rounds", "learning", 0.5, 0.56),
        ("rounds", "acting", 0.5, 0.62),
        ("rounds", "exploration", 0.0, 0.0),
        ("dim", "learning", 0.5, 0.5),
        ("dim", "exploration", 1.5, 1.5),  # c3 itself grows as √tr, so as √d here
    ],
)
def test_growth_of_theorem_5(name: str, term: str, low: float, high: float) -> None:
    at = [4, 400] if name == "dim" else [10**4, 10**6]
    values = [getattr(linear_bound(**{**GROWTH, name: x}), term) for x in at]
    assert low - 1e-9 <= slope(values, at) <= high + 1e-9


def test_growth_of_theorem_5_in_dim_with_a_fixed_trace() -> None:
    at = [4, 400]
    values = [
        linear_bound(**{**GROWTH, "dim": d, "meta_cov": 1 / d, "task_cov": 0.5 / d}).exploration
        for d in at
    ]
    assert slope(values, at) == pytest.approx(1.0)
    tiny = [linear_bound(**{**GROWTH, "dim": d, "delta": 1e-12}).per_task for d in at]
    assert slope(tiny, at) == pytest.approx(0.5, abs=1e-3)  # the δ-term has no √d


@pytest.mark.parametrize(
    ("name", "term", "low", "high"),
    [
        ("tasks", "learning", 0.5, 0.56),
        ("tasks", "acting", 0.98, 1.0),
        ("tasks", "exploration", 1.0, 1.0),
        ("tasks", "shared", 0.5, 0.56),  # sublinear in m where σ_0,k = 0
        ("rounds", "learning", 0.5, 0.6),
        ("rounds", "acting", 0.5, 0.62),
        ("arms", "learning", 0.5, 0.56),
        ("arms", "exploration", 2.0, 2.0),  # K^{3/2}, and √K in c3
        ("size", "learning", 0.5, 0.5),
    ],
)
def test_growth_of_theorem_6(name: str, term: str, low: float, high: float) -> None:
    case: dict[str, Any] = {
        "tasks": 1000,
        "rounds": 1000,
        "arms": 1000,
        "size": 3,
        "meta_scale": 1.0,
        "task_scale": 0.7 if term != "shared" else 0.0,
        "noise": 1.0,
    }
    at = [4, 400] if name in ("arms", "size") else [10**4, 10**6]
    values = [getattr(semibandit_bound(**{**case, name: x}), term) for x in at]
    assert low - 1e-9 <= slope(values, at) <= high + 1e-9


def test_few_uncertain_arms_cost_as_the_root_of_their_number() -> None:
    few = [1.0] * 10 + [0.0] * 90
    case: dict[str, Any] = {"tasks": 5, "rounds": 100, "size": 2, "meta_scale": 1.0, "noise": 1.0}
    ratio = (
        semibandit_bound(**case, task_scale=[1.0] * 100).per_task
        / semibandit_bound(**case, task_scale=few).per_task
    )
    assert ratio == pytest.approx(sqrt(100 / 10))  # √(K L n) against √(K' L n)
    same = semibandit_bound(**case, arms=100, task_scale=0.0)
    assert (same.c2, same.c5, same.acting) == (0, 0, 0)


def test_theorem_5_grows_as_task_cov_vanishes_but_the_lemmas_do_not() -> None:
    case: dict[str, Any] = {**GROWTH, "tasks": 10, "delta": 1e-6}
    z = [1e-4, 1e-6]
    totals = [linear_bound(**{**case, "task_cov": x}).total for x in z]
    assert log(totals[1] / totals[0]) / log(z[1] / z[0]) == pytest.approx(-0.5, abs=0.02)
    lemmas = [plugged_linear(**{**case, "task_cov": x}) for x in (*z, 0.0)]
    assert lemmas[0].total > lemmas[1].total > lemmas[2].total
    assert lemmas[2].acting == 0
    with pytest.raises(ValueError, match=r"Theorem 5 divides.*decomposition"):
        linear_bound(**{**case, "task_cov": 0.0})
    # a narrower meta-prior does lower the theorem
    narrow, wide = (linear_bound(**{**case, "meta_cov": q}) for q in (0.01, 1.0))
    assert narrow.total < wide.total


def test_agnostic_ts_loses_in_the_long_run_only_if_rounds_pay_for_exploration() -> None:
    many = {**GROWTH, "tasks": 10**6, "task_cov": 0.01, "meta_cov": 100.0}
    long = linear_bound(**{**many, "rounds": 10**4})
    assert long.oracle < long.total < long.agnostic
    few_tasks = linear_bound(**{**many, "rounds": 10**4, "tasks": 2})
    assert few_tasks.agnostic < few_tasks.total
    short = linear_bound(**{**many, "rounds": 4, "meta_mean": 100.0})  # c3 d m is linear in m too
    assert short.agnostic < short.total


# Properties


@quick
@given(linear_cases, st.sampled_from(["paper", "safe"]))
def test_properties_of_theorem_5(case: dict[str, Any], constants: Any) -> None:
    bound = linear_bound(**case, constants=constants)
    assert bound.total == pytest.approx(bound.learning + bound.acting + bound.exploration)
    assert all(math.isfinite(x) and x >= 0 and type(x) is float for x in astuple(bound))
    assert bound.oracle == pytest.approx(case["tasks"] * bound.per_task)
    assert bound.oracle <= bound.total
    assert bound.oracle <= bound.agnostic * above
    for name in ("tasks", "rounds"):
        more = linear_bound(**{**case, name: case[name] + 1}, constants=constants)
        for term in ("learning", "acting", "exploration", "oracle", "agnostic"):
            assert getattr(bound, term) <= getattr(more, term) * above
        assert bound.total < more.total
    spread = linear_bound(**{**case, "meta_cov": case["meta_cov"] + 1}, constants=constants)
    assert spread.total > bound.total
    assert spread.oracle == bound.oracle


@quick
@given(semi_cases, st.sampled_from(["paper", "safe"]))
def test_properties_of_theorem_6(case: dict[str, Any], constants: Any) -> None:
    bound = semibandit_bound(**case, constants=constants)
    terms = ("learning", "acting", "exploration", "shared")
    assert bound.total == pytest.approx(sum(getattr(bound, term) for term in terms))
    assert all(math.isfinite(x) and x >= 0 and type(x) is float for x in astuple(bound))
    assert case["tasks"] * bound.per_task <= bound.acting * above
    for name in ("tasks", "rounds"):
        more = semibandit_bound(**{**case, name: case[name] + 1}, constants=constants)
        for term in terms:
            assert getattr(bound, term) <= getattr(more, term) * above
    backwards = {name: case[name][::-1] for name in ("meta_scale", "task_scale")}
    again = semibandit_bound(**{**case, **backwards}, constants=constants)
    assert again.total == pytest.approx(bound.total)  # arms have no order


@quick
@given(linear_cases)
def test_variance_bound_falls_from_the_prior_to_task_cov(case: dict[str, Any]) -> None:
    values = [variance_bound(task=s, **pick(case)) for s in (1, 2, 50, 10**9)]
    assert values[0] == pytest.approx(case["meta_cov"] + case["task_cov"])
    assert sorted(values, reverse=True) == values
    assert values[-1] == pytest.approx(case["task_cov"], rel=1e-2)
    paper = variance_bound(task=1, **pick(case), constants="paper")
    assert paper == pytest.approx(values[1])  # the paper is one task ahead


def test_equal_arms_agree_with_one_direction_of_a_linear_bandit() -> None:
    linear = linear_bound(**{**GROWTH, "eta": 1.0, "meta_cov": 4.0, "task_cov": 0.25})
    semi = semibandit_bound(
        tasks=1000, rounds=1000, size=1, arms=1000, meta_scale=2.0, task_scale=0.5, noise=1.0
    )
    assert semi.c2 == pytest.approx(linear.c2)
    assert (semi.c1, semi.c5) == pytest.approx((sqrt(2) * linear.c1, sqrt(2) * linear.c4))


# Bad input


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tasks": 0}, "tasks must be a whole number of at least 1, got 0"),
        ({"tasks": -3}, "tasks .* got -3"),
        ({"rounds": 2.5}, "rounds .* got 2.5"),
        ({"rounds": True}, "rounds .* got True"),
        ({"dim": 0}, "dim .* got 0"),
        ({"arms": 1}, "arms must be at least dim = 2.* got 1"),
        ({"noise": 0.0}, "noise must be above 0 .* got 0.0; give"),
        ({"noise": math.nan}, "noise must be finite, got nan"),
        ({"eta": 0.0}, "eta must be above 0 and at most 1.0, got 0.0; give"),
        ({"eta": -1.0}, "eta .* got -1.0"),
        ({"eta": 1.5}, "eta .* got 1.5"),
        ({"delta": 0.0}, "delta .* got 0.0; try"),
        ({"delta": 1.5}, "delta .* got 1.5; try"),
        ({"delta": math.nan}, "delta must be finite, got nan"),
        ({"meta_cov": -1.0}, "meta_cov must be positive semi-definite.* -1.0"),
        ({"task_cov": [[1.0, 2.0], [2.0, 1.0]]}, "task_cov must be positive semi-definite.* -1.0"),
        ({"task_cov": [[1.0, 0.5], [0.0, 1.0]]}, "task_cov must be symmetric"),
        ({"task_cov": [[1.0, math.nan], [0.0, 1.0]]}, "task_cov must be finite, got nan"),
        ({"meta_cov": np.eye(3)}, r"meta_cov .* got \(3, 3\)"),
        ({"meta_mean": [1.0, 2.0, 3.0]}, r"meta_mean must broadcast to shape \(2,\), got \(3,\)"),
        ({"constants": "loose"}, "constants must be 'paper' or 'safe', got 'loose'"),
    ],
)
def test_linear_bound_says_what_is_wrong(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        linear_bound(**{**LINEAR, **change})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"size": 4}, "size must be at most the number of arms, 3, got 4"),
        ({"size": 0}, "size .* got 0"),
        ({"tasks": -1}, "tasks .* got -1"),
        ({"rounds": 0}, "rounds .* got 0"),
        ({"noise": -1.0}, "noise .* got -1.0"),
        ({"delta": 2.0}, "delta .* got 2.0"),
        ({"meta_scale": [1.0, -3.0, 2.0]}, "meta_scale must not be negative, got -3.0"),
        ({"task_scale": math.nan}, "task_scale must be finite, got nan"),
        ({"meta_mean": [1.0, 2.0]}, r"meta_mean must broadcast to shape \(3,\), got \(2,\)"),
        ({"arms": 5}, r"meta_scale must broadcast to shape \(5,\), got \(3,\)"),
        ({"meta_scale": 1.0, "task_scale": 1.0, "meta_mean": 0.0}, "give arms"),
        ({"constants": ""}, "constants must be 'paper' or 'safe', got ''"),
    ],
)
def test_semibandit_bound_says_what_is_wrong(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        semibandit_bound(**{**SEMI, **change})


def test_lemmas_say_what_is_wrong() -> None:
    with pytest.raises(ValueError, match=r"variance must not be negative, got -1\.0"):
        width(variance=-1.0, arms=2, noise=1.0, delta=1.0)
    with pytest.raises(ValueError, match="explored_norm must be finite, got inf"):
        width(variance=1.0, arms=2, noise=1.0, delta=1.0, explored_norm=math.inf)
    with pytest.raises(ValueError, match="task must be a whole number of at least 1, got 0"):
        variance_bound(task=0, dim=1, meta_cov=1.0, task_cov=1.0, noise=1.0, eta=1.0)
    base: dict[str, Any] = {
        "tasks": 2,
        "rounds": 2,
        "gamma": 1.0,
        "task_gamma": 1.0,
        "meta_information": 1.0,
        "task_information": 1.0,
    }
    with pytest.raises(ValueError, match=r"task_gamma must broadcast to shape \(2, 1\)"):
        decomposition(**{**base, "task_gamma": [1.0, 1.0, 1.0]})
    with pytest.raises(ValueError, match=r"meta_information must not be negative, got -1\.0"):
        decomposition(**{**base, "meta_information": -1.0})
