"""How often intervals of the lift hold at every look, and how wide they are: docs/math/lift.md.

python -m benchmarks.lift [how a world's name begins] [--quick] [--seed 1]
"""

import math
import time
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtr

from adats.models.core.types import FloatArray, Rng
from adats.service.evaluation.lift import RewardMoments, Sides, lift, lift_new_tasks
from benchmarks import options

GROUPS = 64
BOUGHT = 0.05  # part of decisions that bring revenue
RUNS = {"0.1 %": 100, "1 %": 200}  # of the longest
CLICKS = {"0.1 %": 0.001, "1 %": 0.01, "20 %": 0.2}


class World(NamedTuple):
    """Two arms, of which the first is the control; tasks differ in both."""

    rewards: str = "1 %"  # or another of CLICKS; t, skewed, revenue
    tasks: int = 40
    share: float = 0.05
    policy: str = "fixed"  # or pooled, alone: what Thompson sampling would do, learning so
    decisions: int = 20_000
    looks: int = 30
    effect: float = 0.2  # on the log of rates, or on means in standard deviations of the noise
    spread: float = 0.3  # the same, between tasks
    arrive: bool = False  # whether tasks come one after another, or all at once

    @property
    def zero_one(self) -> bool:
        return self.rewards in CLICKS

    @property
    def name(self) -> str:
        how = f"{self.tasks} tasks, {self.share:.0%} held out, {self.policy}"
        how += ", arriving" if self.arrive else ""
        return f"{self.rewards}, {how}, {self.decisions:,} decisions, {self.looks} looks"

    def means(self, rng: Rng, runs: int) -> FloatArray:
        """Of each arm, in each task of each run."""
        z = rng.standard_normal((2, runs, self.tasks))
        if self.rewards == "t":
            first = z[0]
            return np.stack([first, first + self.effect + self.spread * z[1]], -1)
        base = CLICKS.get(self.rewards, BOUGHT if self.rewards == "revenue" else 1.0)
        wide = 0.5 if self.rewards != "20 %" else 0.2
        first = base * np.exp(wide * z[0] - wide**2 / 2)
        second = first * np.exp(self.effect + self.spread * z[1])
        return np.minimum(np.stack([first, second], -1), 0.9)

    def rewards_of(self, mean: FloatArray, rng: Rng) -> FloatArray:
        if self.zero_one:
            return (rng.random(mean.shape) < mean) * 1.0
        if self.rewards == "t":
            return mean + rng.standard_t(3, mean.shape)
        scale = 1.0 if self.rewards == "revenue" else 1.5
        skewed = mean * np.exp(scale * rng.standard_normal(mean.shape) - scale**2 / 2)
        if self.rewards == "revenue":
            skewed *= (rng.random(mean.shape) < BOUGHT) / BOUGHT
        return skewed


class Look(NamedTuple):
    """What the counters have, for each run, and what is true."""

    sides: Sides
    groups: Sides
    lift: FloatArray
    relative: FloatArray
    new_tasks: FloatArray
    tasks: FloatArray


def looks_of(world: World, runs: int, rng: Rng) -> Any:
    """Play, and stop at each look. Sums have axes: run, group of tasks, side, what is summed."""
    means = world.means(rng, runs)
    population = world.means(rng, 20_000 // world.tasks * 10).mean(axis=(0, 1))
    weights = np.exp(0.5 * rng.standard_normal((runs, world.tasks)))
    group = rng.integers(0, GROUPS, (runs, world.tasks))
    sums = np.zeros((runs, GROUPS, 2, 4))
    arms = np.zeros((runs, world.tasks, 2, 3))  # size, sum, squares: what the policy knows
    gains, held_means, new = np.zeros(runs), np.zeros(runs), np.zeros(runs)
    row = np.arange(runs)[:, None]
    for look in range(world.looks):
        size = world.decisions * (look + 1) // world.looks - world.decisions * look // world.looks
        chance = _chance(world, arms)
        here = -(-world.tasks * (look + 1) // world.looks) if world.arrive else world.tasks
        some = np.where(np.arange(world.tasks) < here, weights, 0.0)
        cumulative = np.cumsum(some / some.sum(axis=1, keepdims=True), axis=1)
        cumulative[:, here - 1 :] = 1.0
        u = rng.random((runs, size)) + row
        flat = np.searchsorted((cumulative + row).ravel(), u.ravel())
        task = np.minimum(flat.reshape(runs, size) - row * world.tasks, here - 1)
        held = rng.random((runs, size)) < world.share
        own = chance[row, task]
        arm = ((rng.random((runs, size)) < own) & ~held).astype(int)
        mean = means[row, task]
        y = world.rewards_of(np.where(arm, mean[..., 1], mean[..., 0]), rng)
        gains += (own * (mean[..., 1] - mean[..., 0])).sum(axis=1)
        held_means += mean[..., 0].sum(axis=1)
        new += (own * (population[1] - population[0])).sum(axis=1)
        cell = (row * GROUPS + group[row, task]) * 2 + held
        _add(sums, cell, np.stack([np.ones_like(y), y, y * y, y != 0]))
        _add(arms, (row * world.tasks + task) * 2 + arm, np.stack([np.ones_like(y), y, y * y]))
        made = world.decisions * (look + 1) // world.looks
        groups = _sides(sums, world.share)
        seen = (arms[..., 0].sum(axis=-1) > 0).sum(axis=-1)
        truth = gains / made, gains / held_means, new / made
        if world.policy == "alone":
            truth = *truth[:2], np.full(runs, (gains / made).mean())
        yield Look(_sides(sums.sum(axis=1), world.share), groups, *truth, seen)


def _add(sums: FloatArray, cell: Any, values: FloatArray) -> None:
    flat = sums.reshape(-1, sums.shape[-1])
    for i, value in enumerate(values):
        flat[:, i] += np.bincount(cell.ravel(), value.ravel(), minlength=len(flat))


def _chance(world: World, arms: FloatArray) -> FloatArray:
    """Of the second arm, in each task."""
    if world.policy == "fixed":
        return np.full(arms.shape[:2], 0.7)
    known = arms if world.policy == "alone" else arms.sum(axis=1, keepdims=True)
    size = known[..., 0] + 1
    mean = known[..., 1] / size
    variance = (
        known[..., 2] / size
        - mean**2
        + known[..., 2].sum(axis=(1, 2))[:, None, None]
        / (size.sum(axis=(1, 2))[:, None, None] ** 1.5)
    )
    error = np.sqrt((variance / size).sum(axis=-1)) + 1e-12
    chance = ndtr((mean[..., 1] - mean[..., 0]) / error)
    chance = np.where(known[..., 2].sum(axis=-1) > 0, chance, 0.5)
    return np.broadcast_to(chance, arms.shape[:2])


def _sides(sums: FloatArray, share: float) -> Sides:
    found = []
    for side in (0, 1):
        n, total, squares, nonzero = np.moveaxis(sums[..., side, :], -1, 0)
        mean = total / np.maximum(n, 1)
        found.append(RewardMoments(n, mean, np.maximum(squares - total * mean, 0.0), nonzero))
    return Sides(found[0], found[1], share)


class Outcome(NamedTuple):
    safe: float  # parts of runs in which the truth was inside at every look
    fixed_time: float
    relative: float
    new_tasks: float
    new_fixed: float
    width: float  # over the fixed-time interval's, from 100 held-out events on: the largest median
    new_width: float
    silent: float  # part of looks at which there was no interval


def study(world: World, runs: int, rng: Rng) -> Outcome:
    inside = np.ones((5, runs), dtype=bool)
    ratios, new_ratios, silent = [math.nan], [math.nan], []
    for look in looks_of(world, runs, rng):
        found = lift(look.sides, zero_one=world.zero_one)
        new = lift_new_tasks(look.sides, look.groups, look.tasks, found.safe)
        pairs = (
            (found.safe, look.lift),
            (found.fixed_time, look.lift),
            (found.relative_safe, look.relative),
            (new, look.new_tasks),
            (found.fixed_time, look.new_tasks),
        )
        for i, (interval, truth) in enumerate(pairs):
            inside[i] &= ~((truth < interval.low) | (truth > interval.high))  # NaN says nothing
        silent.append(np.isnan(found.safe.low).mean())
        held = look.sides.holdout
        events = np.minimum(held.nonzero, held.size - held.nonzero if world.zero_one else np.inf)
        if (enough := events >= 100).mean() > 0.1:
            once = (found.fixed_time.high - found.fixed_time.low)[enough]
            ratios.append(float(np.median((found.safe.high - found.safe.low)[enough] / once)))
            new_ratios.append(float(np.median((new.high - new.low)[enough] / once)))
    means = inside.mean(axis=1)
    return Outcome(*means, np.nanmax([*ratios, 0]), np.nanmax([*new_ratios, 0]), np.mean(silent))


def worlds(quick: bool) -> list[World]:
    sizes = {"0.1 %": 100_000, "1 %": 30_000, "20 %": 20_000, "t": 10_000, "skewed": 10_000}
    found = [
        World(rewards, tasks, share, policy, decisions, looks, arrive=arrive)
        for rewards, decisions in ({**sizes, "revenue": 30_000}).items()
        for tasks, policy, looks, arrive in (
            (4, "fixed", 30, False),
            (40, "pooled", 30, True),
            (400, "alone", 30, False),
            (4, "alone", 90, False),
            (400, "fixed", 90, True),
        )
        for share in (0.05, 0.5)
    ]
    return [w._replace(decisions=min(w.decisions, 6_000)) for w in found] if quick else found


def main() -> None:
    asked = options.asked(with_part=True)
    print("| world | safe | one look | relative | new tasks | width | new width | silent |")
    print("|---|---|---|---|---|---|---|---|")
    start = time.perf_counter()
    for i, world in enumerate(worlds(asked.quick)):
        if not world.name.startswith(asked.part):
            continue
        runs = asked.runs or (200 if asked.quick else RUNS.get(world.rewards, 500))
        found = study(world, runs, np.random.default_rng([asked.seed, i]))
        shares = (found.safe, found.fixed_time, found.relative, found.new_tasks)
        cells = [f"{share:.1%}" for share in shares]
        cells += [f"{width:.2f}" if width else "-" for width in (found.width, found.new_width)]
        cells.append(f"{found.silent:.0%}")
        print(f"| {world.name} | {' | '.join(cells)} |", flush=True)
    print(f"{time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
