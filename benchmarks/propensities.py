"""What propensities cost, and how often the intervals of `evaluate` cover on logs of AdaTS.

Alone: python -m benchmarks.propensities; the coverage: python -m benchmarks.propensities 300
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import sys
import time
import warnings
from collections.abc import Callable

import numpy as np

import adats
from adats.agents.offpolicy import evaluate
from adats.agents.propensities import floored, propensities
from adats.models.default_prior import grid_prior

ARMS = 10


def beliefs() -> dict[str, tuple[object, int | None]]:
    """Beliefs over ten arms, and the microseconds to reach: 50, or about a millisecond."""
    rng = np.random.default_rng(0)
    near, wins = 0.3 * rng.standard_normal(ARMS), rng.integers(1, 30, ARMS)
    spread = np.geomspace(0.01, 1.0, ARMS)
    beta = adats.BetaArms(wins, 100.0)
    candidates = [adats.BetaArms(wins + 5.0 * j, 100.0) for j in range(5)]
    return {
        "Gaussian": (adats.GaussianArms(near, 0.2, 1.0), 50),
        "Gaussian, scales a hundredfold": (adats.GaussianArms(near * spread, spread, 1.0), 50),
        "Beta": (beta, 1500),
        "Gamma": (adats.PoissonArms(wins, 10.0), 1500),
        "mixture of 5 Beta products": (adats.MixtureArms(np.full(5, 0.2), candidates), 1500),
        "mixture of 16 Gaussian models": (informed("number", scale=1.0), 1500),
        "default binary prior": (informed("binary"), None),
    }


def mixtures() -> dict[str, object]:
    """Mixtures that are large: meta-priors after 20 tasks, or before the first one."""
    found: dict[str, object] = {}
    for rewards in ("binary", "count"):
        for arms in (3, 10, 50):
            found[f"grid, {rewards}, K={arms}"] = grid_prior(
                arms=list(range(arms)), rewards=rewards
            )
    rng = np.random.default_rng(0)
    mean, strength = rng.uniform(0.02, 0.6, (1000, ARMS)), np.exp(rng.uniform(0, 5, (1000, 1)))
    even, rate = np.full(1000, 1e-3), np.broadcast_to(strength, mean.shape)
    beta = adats.BetaArms(mean * strength, (1 - mean) * strength)
    found["1,000 products, binary"] = adats.MixtureMeta(even, beta)
    found["1,000 products, count"] = adats.MixtureMeta(
        even, adats.PoissonArms(mean * strength, rate)
    )
    return found


def dearest() -> list[tuple[str, str, str, bool]]:
    """The time of an ask in Thompson samplings: with indices, and with propensities."""
    table = []
    for name, meta in mixtures().items():
        for tasks in (0, 20):
            micros = {}
            for policy in ("ts", "ucb", "index", "far"):
                agent, rng = adats.AdaTS(meta, seed=1, policy=policy), np.random.default_rng(1)
                for pull in range(50 * tasks):
                    arm, reward = int(rng.integers(meta.n_arms)), int(rng.random() < 0.1)
                    agent.tell(task=pull // 50, action=arm, reward=reward)
                task = max(tasks - 1, 0)
                micros[policy] = best(lambda: agent.ask(task, horizon=50), 100)  # noqa: B023
                if policy == "ts":
                    micros["chances"] = best(
                        lambda: agent.ask(task, propensities=True),  # noqa: B023
                        100,
                    )
            own = micros.pop("ts")
            ratios = ", ".join(f"{key} {value / own:.0f}" for key, value in micros.items())
            worst = max(micros.values()) / own
            table.append(
                (
                    f"ask, {name}, {tasks} tasks, × Thompson sampling",
                    f"{ratios} × {own:.0f} µs",
                    "≤ 100 ×",
                    worst <= 100,
                )
            )
    return table


def informed(rewards: str, **options: float) -> object:
    """The default prior after 20 tasks, in a task of its own."""
    rng = np.random.default_rng(1)
    meta = adats.default_prior(arms=list(range(ARMS)), rewards=rewards, **options)
    agent = adats.AdaTS(meta, seed=1)
    for task in range(20):
        for _ in range(50):
            agent.tell(agent.ask(task), reward=int(rng.random() < 0.3))
    return agent.posterior(19)


def best(work: Callable[[], object], times: int) -> float:
    """Least microseconds of a call."""
    least = float("inf")
    for _ in range(times):
        begin = time.perf_counter()
        work()
        least = min(least, time.perf_counter() - begin)
    return least * 1e6


def rows() -> list[tuple[str, str, str, bool]]:
    table = []
    for name, (belief, reach) in beliefs().items():
        micros = best(lambda belief=belief: propensities(belief), 2000 if reach == 50 else 200)
        what, reached = f"propensities, K={ARMS}, {name}", reach is None or micros <= reach
        table.append((what, f"{micros:.0f} µs", "" if reach is None else f"≤ {reach} µs", reached))
    rng = np.random.default_rng(0)
    features = rng.standard_normal((50, 16))
    linear = adats.LinearBelief(np.zeros(16), 1.0, 1.0)
    micros = best(lambda: propensities(linear, features=features, rng=rng), 50)
    table.append(("propensities, linear d=16, K=50, 1,000 draws", f"{micros:.0f} µs", "", True))
    return table + dearest()


TARGETS = {"uniform": np.full(3, 1 / 3), "first arm": np.array([1.0, 0.0, 0.0])}


def log(tasks: int, rounds: int, epsilon: float, seed: int) -> tuple[np.ndarray, ...]:
    """One log of AdaTS with three Gaussian arms; theta of every task, and mu."""
    inner, outer = np.random.SeedSequence(seed).spawn(2)
    rng = np.random.default_rng(outer)
    agent = adats.AdaTS(
        adats.GaussianMeta(np.full(3, 0.5), 0.5, task_scale=0.3, noise=1.0), seed=inner
    )
    mu = rng.normal(0.5, 0.5, 3)
    theta = rng.normal(mu, 0.3, (tasks, 3))
    lines = []
    for task in range(tasks):
        for _ in range(rounds):
            action = agent.ask(task).action
            chances = floored(propensities(agent.posterior(task)).probabilities, epsilon)
            if rng.random() < epsilon:
                action = int(rng.integers(3))
            reward = rng.normal(theta[task, action], 1.0)
            agent.tell(task=task, action=action, reward=reward)
            lines.append((reward, chances[action], action))
    reward, chance, action = np.array(lines).T
    return reward, chance, action.astype(int), theta, mu


def coverage(runs: int, tasks: int, rounds: int, epsilon: float) -> None:
    """Prints, for each policy and estimator, how often nominal 95 % intervals cover."""
    names = np.repeat(np.arange(tasks), rounds).tolist()
    found: dict[tuple[str, str, str], list[tuple[float, ...]]] = {}
    for seed in range(runs):
        reward, chance, action, theta, mu = log(tasks, rounds, epsilon, seed)
        for policy, target in TARGETS.items():
            values = {"log": (theta @ target).mean(), "new": mu @ target}
            for method in ("ips", "snips"):
                for kind, value in values.items():
                    given = names if kind == "new" else None
                    try:
                        e = evaluate(reward, chance, target[action], tasks=given, method=method)
                    except ValueError:
                        continue
                    found.setdefault((policy, method, kind), []).append(
                        (
                            e.value - value,
                            abs(e.value - value) <= 1.96 * e.se,
                            e.low <= value <= e.high,
                            e.high - e.low,
                            e.effective_sample_size,
                            bool(e.warnings),
                        )
                    )
    for key, lines in found.items():
        bias, plain, ours, width, size, told = np.array(lines, dtype=float).T
        z = bias.mean() / (bias.std() / np.sqrt(bias.size))
        print(
            f"{tasks}×{rounds} floor {epsilon:<5} {' '.join(key):22} runs {bias.size} "
            f"bias z {z:5.2f}  ±1.96 se {plain.mean():.3f}  ours {ours.mean():.3f} "
            f"width {np.median(width):.2f}  ESS {np.median(size):.0f}  warned {told.mean():.2f}",
            flush=True,
        )


if __name__ == "__main__":
    if sys.argv[1:]:
        warnings.simplefilter("ignore")
        for size in ((20, 50), (4, 250)):
            for floor in (0.0, 0.05, 0.2):
                coverage(int(sys.argv[1]), *size, floor)
    else:
        for line in rows():
            print(*line, sep=" | ")
