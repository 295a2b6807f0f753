"""How often alarms are raised where nothing is wrong, and where something is: docs/math/lift.md.

python -m benchmarks.alarms [--quick] [--seed 1] [--runs 1000]
"""

import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from scipy.special import expit

from adats.models.core.types import FloatArray, Rng
from adats.service.evaluation import alarms
from benchmarks import options

DAYS, CHANGE = 90, 45  # of an experiment; when something goes wrong
TASKS, LATER, SHARE, ARMS = 50, 150, 0.1, 5  # LATER: tasks that come while others go


class Played(NamedTuple):
    """Decisions and successes by day and arm, of the policy; and by day, of the holdout."""

    size: FloatArray
    successes: FloatArray
    held: FloatArray
    held_successes: FloatArray


def played(rng: Rng, wrong: str) -> Played:
    """Clicks at some 12 %: days, weeks, tasks and arms differ, and Thompson sampling learns, of all
    tasks together, of each alone, or in between. In half of the runs tasks come and go.

    From day CHANGE on the log-odds of all are 0.5 lower (`wrong` all), or 0.8 of the best arm,
    or all arms are alike.
    """
    tasks = TASKS + int(rng.integers(2)) * LATER
    strength = (0.0, 40.0, np.inf)[rng.integers(3)]  # of what all tasks say, in pulls
    arms = 0.3 * rng.standard_normal(ARMS)
    level, own = 0.5 * rng.standard_normal((tasks, 1)), rng.normal(arms, 0.3, (tasks, ARMS))
    day_level = -2 + 0.1 * rng.standard_normal(DAYS)
    known = np.zeros((2, tasks, ARMS))  # pulls and successes
    found = Played(*np.zeros((2, DAYS, ARMS)), *np.zeros((2, DAYS)))
    best = np.arange(ARMS) == arms.argmax()
    for day in range(DAYS):
        worse = (day >= CHANGE) * {"all": 0.5, "best": 0.8 * best}.get(wrong, 0.0)
        differ = wrong != "alike" or day < CHANGE
        chance = expit(day_level[day] + level + differ * own - worse)
        size = max(int(rng.poisson(800 * np.exp(0.3 * np.sin(day * 2 * np.pi / 7)))), 50)
        task = rng.integers(0, TASKS, size) + (tasks - TASKS) * day // DAYS
        n, s = known.sum(axis=1) + np.array([[8.0], [1.0]])
        if np.isfinite(strength):
            prior = strength or 8.0
            mean = s / n if strength else 1 / 8
            s, n = prior * mean + known[1, task], prior + known[0, task]
        held = rng.random(size) < SHARE
        arm = np.where(held, 0, rng.beta(s, n - s, (size, ARMS)).argmax(axis=1))
        hit = rng.random(size) < chance[task, arm]
        for total, weights in zip(known, (np.ones(size), hit), strict=True):
            place = task * ARMS + arm
            total += np.bincount(place, weights, tasks * ARMS).reshape(tasks, ARMS)
        found.size[day] = np.bincount(arm[~held], minlength=ARMS)
        found.successes[day] = np.bincount(arm[~held & hit], minlength=ARMS)
        found.held[day], found.held_successes[day] = held.sum(), (held & hit).sum()
    return found


def looks(size: FloatArray, successes: FloatArray) -> Iterator[alarms.Daily]:
    """What is known at the end of each day."""
    for day in range(1, DAYS + 1):
        n, s = size[:day], successes[:day]
        p = s.sum() / n.sum()
        yield alarms.Daily(s / n, p * (1 - p) / n)


def control_moved(run: Played) -> bool:
    return any(map(alarms.moved, looks(run.held, run.held_successes)))


def lift_fell(run: Played) -> bool:
    policy = looks(run.size.sum(axis=1), run.successes.sum(axis=1))
    both = zip(policy, looks(run.held, run.held_successes), strict=True)
    return any(alarms.moved(own.minus(held), fall_only=True) for own, held in both)


def rewards_fell(run: Played) -> bool:
    policy = looks(run.size.sum(axis=1), run.successes.sum(axis=1))
    return any(alarms.moved(own, fall_only=True) for own in policy)


def arm_fell(run: Played) -> bool:
    """On days on which it was done, and others too."""
    for arm in range(ARMS):
        n, s = run.size[:, arm], run.successes[:, arm]
        others_n, others_s = run.size.sum(axis=1) - n, run.successes.sum(axis=1) - s
        for day in range(1, DAYS + 1):
            both = np.flatnonzero((n[:day] > 0) & (others_n[:day] > 0))
            if both.size < alarms.DAYS:
                continue
            daily = []
            for size, hits in ((n[both], s[both]), (others_n[both], others_s[both])):
                p = (hits.sum() + 0.5) / (size.sum() + 1)
                daily.append(alarms.Daily(hits / size, p * (1 - p) / size))
            if alarms.fell_alone(daily[0], daily[1], ARMS):
                return True
    return False


def missing(run: Played) -> bool:
    """Where only successes are told."""
    size, told = run.size.sum(axis=1) + run.held, run.successes.sum(axis=1) + run.held_successes
    return any(alarms.fewer(told[:day], size[:day]) for day in range(1, DAYS + 1))


def lost(rng: Rng, _: str) -> Played:
    """Half of a day's successes."""
    run = played(rng, "")
    for told in (run.successes, run.held_successes):
        told[CHANGE] = rng.binomial(told[CHANGE].astype(int), 0.5)
    return run


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


TESTS: dict[str, tuple[Callable[[Played], bool], str, Callable[[Rng, str], Played], str]] = {
    "the control's rewards moved": (control_moved, "all log-odds 0.5 lower", played, "all"),
    "the lift fell": (lift_fell, "all arms are alike", played, "alike"),
    "rewards fell (no holdout)": (rewards_fell, "all log-odds 0.5 lower", played, "all"),
    "an arm fell alone (no holdout)": (
        arm_fell, "the best arm's log-odds 0.8 lower", played, "best",
    ),
    "rewards are missing": (missing, "half of a day's lost", lost, ""),
}  # fmt: skip
OTHERS: dict[str, tuple[Callable[[Rng, float], bool], str, float]] = {
    "holdout off plan": (off_plan, "8 % in place of 10 %", 0.2),
    "propensities too small": (unlikely, "one decision in five is at random", 0.2),
    "exploration collapsed": (collapsed, "beliefs a hundredth as wide", 1.0),
}


def main() -> None:
    asked = options.asked()
    runs, start = asked.runs or (50 if asked.quick else 1000), time.perf_counter()
    few = runs // 5

    def rngs(number: int, *what: int) -> Iterator[Rng]:
        return (np.random.default_rng([asked.seed, *what, k]) for k in range(number))

    print(f"| alarm | false, in {DAYS} days | what goes wrong | found |\n|---|---|---|---|")
    well = [played(rng, "") for rng in rngs(runs, 0)]
    for i, (name, (test, what, play, wrong)) in enumerate(TESTS.items(), 1):
        found = np.mean([test(play(rng, wrong)) for rng in rngs(few, i)])
        print(f"| {name} | {np.mean([test(run) for run in well]):.1%} | {what} | {found:.0%} |")
    for i, (name, (alone, what, change)) in enumerate(OTHERS.items(), 10):
        false = np.mean([alone(rng, 0.0) for rng in rngs(runs, i)])
        found = np.mean([alone(rng, change) for rng in rngs(few, i, 1)])
        print(f"| {name} | {false:.1%} | {what} | {found:.0%} |", flush=True)
    print(f"{runs} runs, {few} with something wrong; {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
