"""How often the report's sentence on whether to stop is wrong, with daily looks: docs/math/lift.md.

python -m benchmarks.sentences [--quick] [--seed 1] [--runs 125]
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import re
import time
from typing import NamedTuple

import numpy as np
from scipy.special import expit

from adats import AdaTS
from adats.models.core.types import FloatArray, Rng
from adats.models.default_prior import default_prior
from adats.service.evaluation.stopping import WORTH, average_rewards, standing
from benchmarks import options

DAYS, DECISIONS, HELD_OUT = 30, 400, 0.1  # a day
LEVEL, POPULATION = 0.4, 200_000


class World(NamedTuple):
    """Arms, of which the first is the control, in tasks that differ."""

    rewards: str  # binary, at some 12 %; or number, with a mean of 1 and a noise of 1
    effects: tuple[float, ...]  # in log-odds, or on means
    worth: float | None = None
    tasks: int = 40
    spread: float = 0.2  # of effects between tasks

    def means(self, rng: Rng, tasks: int) -> FloatArray:
        own = LEVEL * rng.standard_normal((tasks, 1)) + np.array(self.effects)
        own = own + self.spread * rng.standard_normal((tasks, len(self.effects)))
        found: FloatArray = expit(own - 2) if self.rewards == "binary" else own + 1
        return found


WORLDS = tuple(
    World(rewards, effects, worth, tasks)
    for rewards in ("binary", "number")
    for effects, worth, tasks in (
        ((0, 0, 0), None, 40),
        ((0, 0, 0), 0.03, 100),
        ((0, 0.1, 0.2), 0.01, 40),
        ((0, 0.4, 0.2), 0.01, 100),
    )
)


def said(world: World, seed: int) -> list[str]:
    """The sentence of each day, of an experiment that AdaTS plays with its default prior."""
    rng = np.random.default_rng(seed)
    means, arms = world.means(rng, world.tasks), [str(i) for i in range(len(world.effects))]
    more = {} if world.rewards == "binary" else {"scale": 1.0}
    agent = AdaTS(default_prior(arms=arms, rewards=world.rewards, **more), seed=seed)  # type: ignore[arg-type]
    found = []
    for _ in range(DAYS):
        task = rng.integers(0, world.tasks, DECISIONS)
        names = [f"t{i}" for i in task]
        arm = np.array([int(arm) for arm in agent.ask_many(names).to_pandas().action])
        arm[rng.random(DECISIONS) < HELD_OUT] = 0
        mean = means[task, arm]
        if world.rewards == "binary":
            reward = (rng.random(DECISIONS) < mean) * 1.0
        else:
            reward = rng.normal(mean, 1.0)
        agent.tell_many({"task": names, "action": [str(i) for i in arm], "reward": reward})
        found.append(standing(average_rewards(agent.meta, rng), arms, 0, world.worth).sentence)
    return found


def is_wrong(sentence: str, truth: FloatArray, worth: float | None) -> bool:
    """What the arms earn on average over all tasks is the truth."""
    if sentence.startswith("No difference"):
        return bool(truth.max() - truth[0] > (WORTH * truth[0] if worth is None else worth))
    better = re.fullmatch(r"(\d+) is better than the control by (\S+) to (\S+?)( %)?\.", sentence)
    if better is None:
        return False  # keep running
    arm, low, high, percent = better.groups()
    gain = truth[int(arm)] - truth[0]
    gain = 100 * gain / truth[0] if percent else gain
    return not float(low) <= gain <= float(high)


def main() -> None:
    asked = options.asked()
    runs, start = asked.runs or (5 if asked.quick else 125), time.perf_counter()
    print("| rewards | effects | worth | tasks | runs | said | wrong | runs with a wrong one |")
    print("|---|---|---|---|---|---|---|---|")
    all_said = all_wrong = all_runs = 0
    for i, world in enumerate(WORLDS):
        truth = world.means(np.random.default_rng(0), POPULATION).mean(axis=0)
        decided = wrong = bad = 0
        for run in range(runs):
            found = said(world, int(np.random.default_rng([asked.seed, i, run]).integers(2**62)))
            own = [is_wrong(sentence, truth, world.worth) for sentence in found]
            decided += sum(not sentence.startswith("Keep") for sentence in found)
            wrong, bad = wrong + sum(own), bad + any(own)
        worth = "usual" if world.worth is None else world.worth
        cells = (world.rewards, world.effects, worth, world.tasks, runs, decided, wrong, bad)
        print("|", " | ".join(map(str, cells)), "|", flush=True)
        all_said, all_wrong, all_runs = all_said + decided, all_wrong + wrong, all_runs + bad
    print(f"said {all_said}, wrong {all_wrong}, in {all_runs} of {len(WORLDS) * runs} runs")
    print(f"{time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
