"""How often the verdict of a fit is right, on simulated logs of many shapes: docs/math/verdict.md.

python -m benchmarks.verdict [part of a name] [--logs 0.1] [--seed 29] [--out folder] [--least]
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import json
import math
import time
from collections import Counter
from pathlib import Path
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit, ndtr

from adats.learning.effects import Prior, Rewards, TaskCounts, believed, counted, linearised, pooled
from adats.learning.savings import LEAST, Z90, Saving, fits, play
from adats.learning.verdict import SURE, Early, verdict
from adats.models.core.types import FloatArray, Rng


class Shape(NamedTuple):
    """A world and its log."""

    tasks: int = 500
    arms: int = 5
    pulls: int = 20  # of every arm in every task, before the design
    names: float = 0.0  # spread of the arms' effects, in η
    level: float = 0.0  # of the tasks'
    own: float = 0.3  # of tasks and arms together
    rewards: Rewards = "gaussian"
    base: float = 0.05  # rate of clicks
    design: str = ""  # uneven, lengths, random, hardly, rare, subset, settled; or several
    tails: str = "normal"  # or t: of own effects, four degrees of freedom
    logger: str = "fixed"  # or alone, pooled: Thompson sampling
    early: bool = True  # whether the log of a sampler has times

    def effects(self) -> FloatArray:
        """Of the arms: the same in every log, quantiles of a normal distribution, shuffled."""
        q = np.array([NormalDist().inv_cdf((i + 0.5) / self.arms) for i in range(self.arms)])
        return self.names * np.random.default_rng(5).permutation(q / q.std())

    def draw(self, rng: Rng, tasks: int) -> tuple[FloatArray, FloatArray]:
        """Rates and planned pulls of tasks."""
        shape = tasks, self.arms
        heavy = self.tails == "t"
        z = rng.standard_t(4, shape) / math.sqrt(2) if heavy else rng.standard_normal(shape)
        level, plan = self.level * rng.standard_normal((tasks, 1)), self._plan(rng, tasks)
        own: Any = self.own
        if "settled" in self.design:  # long tasks are alike
            long = plan.sum(axis=1) > np.median(plan.sum(axis=1))
            own = np.where(long, 0.1, 1.0)[:, None] * own
        eta = self.effects() + level + own * z
        if self.rewards == "binary":
            eta = expit(math.log(self.base / (1 - self.base)) + eta)
        elif self.rewards == "count":
            eta = self.base * np.exp(eta)
        return eta, plan

    def _plan(self, rng: Rng, tasks: int) -> FloatArray:
        arms, pulls = self.arms, np.full((tasks, self.arms), float(self.pulls))
        if "uneven" in self.design:  # by arm, from 4 to 1/4
            w = np.geomspace(4, 0.25, arms)
            pulls = np.maximum(np.round(pulls * w * arms / w.sum()), 1)
        if "random" in self.design:  # every pull goes to an arm at random
            pulls = rng.multinomial(self.pulls * arms, np.full(arms, 1 / arms), tasks) * 1.0
        if "hardly" in self.design:  # the better an arm the rarer; one task in 20 is long
            long = np.where(rng.random(tasks) < 0.05, 10, 1)
            chance = np.geomspace(0.01, 1, arms)[(-self.effects()).argsort().argsort()]
            pulls = rng.multinomial(self.pulls * arms * long, chance / chance.sum()) * 1.0
        if "lengths" in self.design:
            pulls = np.maximum(np.round(pulls * np.exp(rng.normal(-0.32, 0.8, (tasks, 1)))), 1)
        if "rare" in self.design:  # arms occur in all tasks to 2 % of them
            here = rng.random((tasks, arms)) < np.geomspace(1, 0.02, arms)
            one = 1 + rng.integers(0, arms - 1, tasks)
            here[np.arange(tasks), one] |= here.sum(axis=1) < 2
            pulls = pulls * here
        if "subset" in self.design:  # a task has 2 to all of the arms
            place = rng.random((tasks, arms)).argsort(axis=1).argsort(axis=1)
            pulls = pulls * (place < rng.integers(2, arms + 1, tasks)[:, None])
        return pulls


def rewarded(shape: Shape, rng: Rng, theta: FloatArray, pulls: FloatArray) -> FloatArray:
    if shape.rewards == "gaussian":
        return theta * pulls + np.sqrt(pulls) * rng.standard_normal(theta.shape)
    if shape.rewards == "count":
        return rng.poisson(theta * pulls).astype(np.float64)
    return rng.binomial(pulls.astype(np.int64), theta).astype(np.float64)


def logged(shape: Shape, rng: Rng) -> tuple[TaskCounts, Early | None]:
    """The arguments of `verdict`."""
    theta, plan = shape.draw(rng, shape.tasks)
    early = None
    if shape.logger == "fixed":
        pulls, sums = plan, rewarded(shape, rng, theta, plan)
    else:
        pulls, sums, early = _sampled(shape, rng, theta, plan)
    squares = None
    if shape.rewards == "gaussian":
        rest = rng.chisquare(np.maximum(pulls - 1, 1)) * (pulls > 1)
        squares = sums**2 / np.maximum(pulls, 1) + rest
    return counted(pulls, sums, shape.rewards, squares), early if shape.early else None


def _sampled(
    shape: Shape, rng: Rng, theta: FloatArray, plan: FloatArray
) -> tuple[FloatArray, FloatArray, Early]:
    """Gaussian rewards of a sampler, fifty tasks at a time."""
    pulls, sums, first = np.zeros(theta.shape), np.zeros(theta.shape), np.zeros((2, *theta.shape))
    prior = Prior(np.zeros(shape.arms), np.full(shape.arms, shape.own**2 + shape.names**2))
    for start in range(0, shape.tasks, 50):
        rows = slice(start, start + 50)
        here, lengths = plan[rows] > 0, plan[rows].sum(axis=1)
        blank = np.zeros(here.shape)
        like = TaskCounts(blank, blank, "gaussian", 1.0, np.ceil(lengths / 2))
        (one,) = play([prior], theta[rows], here, like, rng)
        belief = believed(prior, linearised(one, one.pulls))
        like = like._replace(lengths=lengths - like.lengths)
        (two,) = play([Prior(belief.mean, belief.var)], theta[rows], here, like, rng)
        first[:, rows] = one.pulls, one.sums
        pulls[rows], sums[rows] = one.pulls + two.pulls, one.sums + two.sums
        if shape.logger == "pooled":
            counts = TaskCounts(pulls, sums, "gaussian", 1.0, pulls[:, 0])
            prior = pooled(counts.lasting(pulls.sum(axis=1)))
    return pulls, sums, Early(*first)


def truth(shape: Shape, counts: TaskCounts, rng: Rng) -> list[tuple[float, float]]:
    """What is left in new tasks of the regret of alone and of pooled, by the fit of this log."""
    size = max(40_000 // shape.arms, 4000)
    theta, plan = shape.draw(rng, size)
    rows = counts._replace(pulls=plan, sums=plan, lengths=np.maximum(plan.sum(axis=1), 1.0))
    priors = (*fits(counts).priors, pooled(counts))
    here = (plan > 0) | ("random" in shape.design)  # there a task is offered all arms
    best = np.where(here, theta, -np.inf).max(axis=1)
    games = play(priors, theta, here, rows, rng)
    lost = [best * one.pulls.sum(axis=1) - (one.pulls * theta).sum(axis=1) for one in games]
    found = []
    for i in (1, 2):
        unit = max(lost[i].mean(), LEAST * lost[3 - i].mean())
        part = float((lost[i] - lost[0]).mean() / unit)
        rest = lost[i] - lost[0] - part * lost[i]
        found.append((1 - part, float(rest.std() / unit / math.sqrt(size))))
    return found


def least_error(shape: Shape) -> tuple[FloatArray, FloatArray]:
    """Savings over alone and pooled, and the least error that an unbiased estimate can have.

    The Cramér–Rao bound: the slopes of a saving by a and σ_0 (differences, the same random numbers)
    and the information of such a log about them. Numbers with noise 1, equal pulls.
    """
    size, arms, a = 20_000, shape.arms, shape.effects()
    rng = np.random.default_rng(3)
    z, level = rng.standard_normal((size, arms)), shape.level * rng.standard_normal((size, 1))
    one = np.ones((size, arms))
    like = TaskCounts(one, one, "gaussian", 1.0, np.full(size, 1.0 * shape.pulls * arms))
    cov = (shape.own**2 + 1 / shape.pulls) * np.eye(arms) + shape.level**2  # of a task's means
    share = Prior(a, shape.own**2 + cov.diagonal() / shape.tasks, shape.level**2)
    alone = Prior(0 * a, np.full(arms, shape.own**2 + shape.level**2 + a.var()))
    priors = (share, alone, Prior(a, np.full(arms, 1 / (shape.pulls * shape.tasks))))

    def saved(a: FloatArray, own: float) -> FloatArray:
        theta = a + own * z + level
        games = play(priors, theta, one > 0, like, np.random.default_rng(9))
        lost = [(theta.max(axis=1, keepdims=True) - theta) * game.pulls for game in games]
        ours, *rivals = (float(each.sum()) for each in lost)
        return np.array([1 - ours / max(r, LEAST * max(rivals)) for r in rivals])

    by_a = np.array(
        [saved(a + e, shape.own) - saved(a - e, shape.own) for e in 0.03 * np.eye(arms)]
    )
    by_own = (saved(a, 1.05 * shape.own) - saved(a, 0.95 * shape.own)) / (0.1 * shape.own)
    inverse = np.linalg.inv(cov)
    parts = inverse, inverse.sum(axis=1, keepdims=True) * np.ones(arms)  # by σ_0² and τ²
    known = 2 if shape.level else 1
    info = np.array([[0.5 * np.sum(p * q.T) for q in parts] for p in parts])[:known, :known]
    of_own = np.linalg.inv(info)[0, 0] / (4 * shape.own**2)
    variance = np.einsum("ki,kl,li->i", by_a / 0.06, cov, by_a / 0.06) + by_own**2 * of_own
    return saved(a, shape.own), np.sqrt(variance / shape.tasks)


SHAPES: dict[str, tuple[int, int, Shape]] = {  # logs, of these with a truth of their own, shape
    # nothing to share
    "null: 10 tasks, 2 arms": (40, 2, Shape(10, 2, 15)),
    "null: 25 tasks, 20 arms, some rare": (40, 2, Shape(25, 20, 10, level=0.2, design="rare")),
    "null: 60 tasks, clicks 3 %": (
        40, 2, Shape(60, 4, 150, level=0.4, rewards="binary", base=0.03, design="uneven")),
    "null: 200 tasks, heavy tails, lengths": (
        40, 2, Shape(200, 6, 12, tails="t", design="lengths")),
    "null: 450 tasks, 8 arms, 2 to 8 a task": (
        40, 2, Shape(450, 8, 15, level=0.3, design="subset")),
    "null: 1000 tasks, counts": (
        30, 1, Shape(1000, 3, 10, rewards="count", base=0.7, design="random")),
    "null: 5000 tasks, 14 arms, rare": (
        10, 1, Shape(5000, 14, 12, level=0.2, design="rare lengths")),
    "null: sampler of each task": (40, 1, Shape(300, 4, 25, logger="alone", early=False)),
    "null: pooled sampler": (40, 1, Shape(300, 4, 25, logger="pooled", early=False)),
    # names matter, but it is worth nothing
    "edge: 150 tasks, no gain over alone": (100, 10, Shape(150, 5, 20, names=0.065, level=0.3)),
    "edge: 600 tasks, no gain over pooled": (100, 10, Shape(600, 4, 22, names=0.17)),
    # tasks are alike
    "alike: 50 tasks": (30, 2, Shape(50, 4, 25, names=0.3, own=0.0)),
    "alike: 400 tasks, levels": (30, 2, Shape(400, 6, 15, names=0.2, own=0.02, level=0.4)),
    "alike: 300 tasks, clicks": (
        20, 2, Shape(300, 3, 200, names=0.3, own=0.02, level=0.3, rewards="binary")),
    # what is found
    "power: 500 tasks, 3 %": (30, 3, Shape(500, 5, 50, names=0.06)),
    "power: 500 tasks, 6 %": (30, 3, Shape(500, 5, 50, names=0.09)),
    "power: 500 tasks, 10 %": (50, 3, Shape(500, 5, 50, names=0.125)),
    "power: 500 tasks, 10 %, clicks": (
        50, 3, Shape(500, 4, 300, names=0.15, own=0.4, rewards="binary", design="lengths")),
    "power: 500 tasks, 10 % over pooled": (40, 10, Shape(500, 5, 30, names=0.2)),
    "power: 500 tasks, 15 % over pooled": (40, 10, Shape(500, 5, 38, names=0.21)),
    "power: 500 tasks, 20 % over pooled": (40, 10, Shape(500, 6, 35, names=0.2)),
    "power: 100 tasks, 10 %": (30, 3, Shape(100, 6, 60, names=0.12)),
    "power: 100 tasks, 20 %": (30, 3, Shape(100, 6, 60, names=0.19)),
    "power: 100 tasks, 30 %": (50, 3, Shape(100, 6, 90, names=0.26)),
    "power: 100 tasks, 30 %, clicks": (
        50, 3, Shape(100, 8, 900, names=0.35, own=0.4, rewards="binary", design="lengths")),
    # how large it is
    "size: 60 tasks": (60, 60, Shape(60, 4, 30, names=0.2, level=0.2)),
    "size: 250 tasks, 10 arms, 2 to 10 a task": (
        60, 60, Shape(250, 10, 20, names=0.15, level=0.2, design="subset lengths")),
    "size: 400 tasks, clicks": (
        60, 60, Shape(400, 5, 120, names=0.25, level=0.3, own=0.35, rewards="binary", base=0.04)),
    "size: 300 tasks, heavy tails": (60, 60, Shape(300, 5, 30, names=0.15, tails="t")),
    "size: 1000 tasks": (40, 40, Shape(1000, 3, 40, names=0.12, level=0.2)),
    "size: 1500 tasks, clicks, lengths": (
        30, 30, Shape(1500, 4, 150, names=0.2, own=0.3, rewards="binary", design="lengths")),
    # adaptive
    "adaptive: sampler of each task, with times": (
        20, 0, Shape(300, 4, 25, names=0.2, logger="alone")),
    "adaptive: pooled sampler, with times": (20, 0, Shape(300, 4, 25, names=0.1, logger="pooled")),
    "adaptive: sampler of each task": (
        20, 0, Shape(300, 4, 25, names=0.2, logger="alone", early=False)),
    "random pulls by name, not adaptive": (
        30, 0, Shape(300, 4, 25, names=0.2, design="uneven lengths")),
    "power: 500 tasks, 20 arms, 10 % over pooled": (30, 10, Shape(500, 20, 15, names=0.2)),
    "power: 100 tasks, 30 % over pooled": (40, 10, Shape(100, 8, 55, names=0.3)),
    # too short to pull all arms
    "short: 1000 tasks, 6 pulls, 6 arms, pooled is better": (
        40, 10, Shape(1000, 6, 1, names=0.8, own=0.4, design="random")),
    "short: 500 tasks, 20 pulls, 20 arms, clicks, pooled is better": (
        40, 10, Shape(500, 20, 1, names=0.7, own=0.3, rewards="binary", design="random")),
    "short: 1000 tasks, 20 pulls, 10 arms, pooled is a little better": (
        40, 10, Shape(1000, 10, 2, names=0.5, own=0.78, design="random")),
    "short: 500 tasks, 20 pulls, 10 arms, names mean nothing": (
        40, 10, Shape(500, 10, 2, own=0.6, design="random")),
    "short: 1000 tasks, 30 pulls, 10 arms": (
        40, 10, Shape(1000, 10, 3, names=0.4, own=1.0, design="random")),
    # long tasks are alike
    "settled: 600 tasks, pooled is better": (
        40, 10, Shape(600, 5, 16, names=0.25, own=0.8, design="lengths settled")),
    # some short tasks did not pull some arms
    "doubt: 1000 tasks, the best arm is hardly pulled": (
        40, 10, Shape(1000, 5, 2, names=0.5, own=0.7, design="random hardly")),
    "doubt: 300 tasks, 8 arms, pooled sampler": (
        40, 10, Shape(300, 8, 4, names=0.4, own=0.75, logger="pooled", early=False)),
}  # fmt: skip


def study(name: str, part: float, seed: int = 29) -> dict[str, Any]:
    """Verdicts on logs of one shape."""
    logs, with_truth, shape = SHAPES[name]
    rows, seconds = [], 0.0
    for i in range(max(round(logs * part), 2)):
        rng = np.random.default_rng([seed, list(SHAPES).index(name), i])
        counts, early = logged(shape, rng)
        begin = time.process_time()
        found = verdict(counts, early=early, rng=rng)
        seconds += time.process_time() - begin
        row: dict[str, Any] = {"answer": found.answer, "structure": found.structure}
        row |= {"names": found.names, "level": found.level}
        if found.over_alone and found.over_pooled and found.gain and found.adapting:
            row["saved"] = [found.over_alone[:2], found.over_pooled[:2]]
            row["gain"], row["adapting"] = found.gain[:2], found.adapting[:2]
            if i < with_truth:
                used = counts.take(np.flatnonzero(counts.pulls.sum(axis=1) > 0))
                row["truth"] = truth(shape, used, rng)
        rows.append(row)
    return {"shape": name, "seconds": seconds / len(rows), "rows": rows}


def line(result: dict[str, Any]) -> str:
    """One line of the table: what is true, what is covered, what is answered."""
    rows = result["rows"]
    text = f"{result['shape']:46s} {len(rows):4d} logs, {result['seconds']:.2f} s"
    known = [row for row in rows if "truth" in row]
    for i, who in enumerate(("alone", "pooled")) if known else ():
        est = np.array([row["saved"][i] for row in known])
        true = np.array([row["truth"][i] for row in known])
        part, known_part = (np.array([Saving(*one).part for one in x]) for x in (est, true))
        gap, left = part - known_part, np.maximum(est[:, 0], 1e-9)
        wide = np.hypot(est[:, 1], true[:, 1]) / left  # the truth is simulated too
        off = np.log(np.maximum(true[:, 0], 1e-9) / left)
        text += f" | {who}: true {known_part.mean():+.3f}"
        if len(known) > 20:
            text += f" bias {gap.mean():+.3f} sd {gap.std():.3f} error {est[:, 1].mean():.3f}"
            text += f" covered {(np.abs(off) < Z90 * wide).mean():.3f}"
            text += f" within 5 {(np.abs(gap) < 0.05).mean():.2f}"
    told = Counter(
        row["answer"] + (f" ({row['structure']})" if row["structure"] else "") for row in rows
    )
    return text + " | " + ", ".join(f"{k} {v}" for k, v in told.most_common())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", nargs="?", default="", help="of the name of a shape")
    parser.add_argument("--logs", type=float, default=1.0, help="part of the logs")
    parser.add_argument("--seed", type=int, default=29)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--least", action="store_true", help="the least error of any estimate")
    given = parser.parse_args()
    for name in SHAPES:
        if given.part in name and given.least:
            true, error = least_error(SHAPES[name][2])
            power = ndtr(true / error - SURE)
            within = 2 * ndtr(0.05 / error) - 1
            print(f"{name:46s}", *(x.round(3) for x in (true, error, power, within)), flush=True)
        elif given.part in name:
            result = study(name, given.logs, given.seed)
            print(line(result), flush=True)
            if given.out:
                given.out.mkdir(parents=True, exist_ok=True)
                file = "".join(c if c.isalnum() else "-" for c in name) + ".json"
                (given.out / file).write_text(json.dumps(result))


if __name__ == "__main__":
    main()
