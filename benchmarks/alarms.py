"""How often alarms are raised where nothing is wrong, and where something is: docs/math/lift.md.

python -m benchmarks.alarms [--quick] [--seed 1] [--runs 1000]
"""

import time
from collections.abc import Callable

import numpy as np
from scipy.special import expit

from adats.models.core.types import FloatArray, Rng
from adats.service.evaluation import alarms
from benchmarks import options

DAYS, CHANGE = 90, 45  # of an experiment; when something goes wrong
TASKS, SHARE, ARMS = 50, 0.1, 5


def days_of(rng: Rng, change: float, *, of: str) -> tuple[FloatArray, ...]:
    """Sizes and successes of policy and holdout by day: these and tasks differ, the policy learns.

    From day CHANGE on the log-odds of all (`of` level) or of the policy's arm (gain) are others.
    """
    size = np.maximum(rng.poisson(800 * np.exp(0.3 * np.sin(np.arange(DAYS) * 2 * np.pi / 7))), 50)
    level = -2 + 0.1 * rng.standard_normal(DAYS) + 0.1 * rng.standard_normal()
    taste = 0.5 * rng.standard_normal(TASKS)
    gain = 0.6 * (1 - np.exp(-np.arange(DAYS) / 10))
    late = np.arange(DAYS) >= CHANGE
    level = level + change * late * (of == "level")
    gain = gain + change * late * (of == "gain")
    held = rng.binomial(size, SHARE)
    rows = []
    for n, plus in ((size - held, gain), (held, np.zeros(DAYS))):
        by_task = rng.multinomial(n, np.full(TASKS, 1 / TASKS))
        p = expit(level[:, None] + plus[:, None] + taste)
        rows.append((n, rng.binomial(by_task, p).sum(axis=1)))
    return size, held, *(np.asarray(x, np.float64) for row in rows for x in row)


def rewards_moved(rng: Rng, change: float) -> bool:
    _, _, _, _, n, successes = days_of(rng, change, of="level")
    means, variances = _daily(n, successes)
    return any(alarms.moved(means[:d], variances[:d]) for d in range(1, DAYS + 1))


def gain_fell(rng: Rng, change: float) -> bool:
    _, _, n1, s1, n0, s0 = days_of(rng, change, of="gain")
    (own, noise), (control, more) = _daily(n1, s1), _daily(n0, s0)
    gains, variances = own - control, noise + more
    looks = range(1, DAYS + 1)
    return any(alarms.moved(gains[:d], variances[:d], fall_only=True) for d in looks)


def _daily(size: FloatArray, successes: FloatArray) -> tuple[FloatArray, FloatArray]:
    p = successes.sum() / size.sum()
    return successes / size, p * (1 - p) / size


def fewer(rng: Rng, change: float) -> bool:
    size, _, _, s1, _, s0 = days_of(rng, 0.0, of="level")
    rewarded = s1 + s0
    rewarded[CHANGE] = rng.binomial(rewarded[CHANGE].astype(int), 1 - change)
    return any(alarms.fewer_rewards(rewarded[:d], size[:d]) for d in range(1, DAYS + 1))


def off_plan(rng: Rng, change: float) -> bool:
    could = np.full(DAYS, 800)
    held = rng.binomial(could, SHARE * (1 - change * (np.arange(DAYS) >= CHANGE)))
    return bool(alarms.off_plan(held.cumsum(), could.cumsum(), SHARE).any())


def unlikely(rng: Rng, change: float) -> bool:
    """Thompson sampling of ARMS arms, whose chances are said right, or for some rare ones wrong."""
    chances = rng.dirichlet(np.full(ARMS, 0.15), (DAYS, 200))
    done = chances if not change else (1 - change) * chances + change / ARMS
    arm = (rng.random((DAYS, 200, 1)) > done.cumsum(axis=-1)[..., :-1]).sum(axis=-1)
    said = np.take_along_axis(chances, arm[..., None], -1)[..., 0]
    low = (said < 0.01).sum(axis=1).cumsum()
    return bool(alarms.too_unlikely(low, 200 * np.arange(1, DAYS + 1), ARMS, 0.01).any())


def collapsed(rng: Rng, change: float) -> bool:
    """Two arms, with the belief that Thompson sampling has of them; or with one far too sure."""
    pulls, sums = np.ones(2), np.zeros(2)
    means = rng.normal(0, 0.05, 2)
    for _ in range(DAYS):
        sd = 1 / np.sqrt(pulls)
        chosen = rng.normal(sums / pulls, sd * (0.01 if change else 1.0), (1200, 2)).argmax(axis=1)
        counts = np.bincount(chosen, minlength=2)
        best = (rng.normal(sums / pulls, sd, (500, 2)).argmax(axis=1)[:, None] == [0, 1]).mean(0)
        if alarms.collapsed(counts, best):
            return True
        sums += rng.normal(counts * means, np.sqrt(counts))
        pulls += counts
    return False


TESTS: dict[str, tuple[Callable[[Rng, float], bool], str, float]] = {
    "the control's rewards moved": (rewards_moved, "log-odds 0.5 higher", 0.5),
    "what was learned is worth less": (gain_fell, "log-odds of the gain from 0.6 to 0", -0.6),
    "fewer rewards than usual": (fewer, "half of a day's rewards lost", 0.5),
    "holdout off plan": (off_plan, "8 % in place of 10 %", 0.2),
    "propensities too small": (unlikely, "one decision in five is at random", 0.2),
    "exploration collapsed": (collapsed, "beliefs a hundredth as wide", 1.0),
}


def main() -> None:
    asked = options.asked()
    runs, start = asked.runs or (50 if asked.quick else 1000), time.perf_counter()
    print(f"| alarm | false, in {DAYS} days | what goes wrong | found |\n|---|---|---|---|")
    for i, (name, (test, what, change)) in enumerate(TESTS.items()):
        false, found = (
            np.mean([test(np.random.default_rng([asked.seed, i, j, k]), size) for k in range(n)])
            for j, (size, n) in enumerate(((0.0, runs), (change, runs // 5)))
        )
        print(f"| {name} | {false:.1%} | {what} | {found:.0%} |", flush=True)
    print(f"{runs} runs, {runs // 5} with something wrong; {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
