"""`adats serve --demo`: three experiments with some weeks behind them, and visitors who go on."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, cast

import msgspec
import numpy as np

from adats.demo import LABELS, load_segments
from adats.models.core.types import FloatArray, Rng
from adats.service.client import Client
from adats.service.engine import Engine
from adats.service.messages import DecisionRequest, RewardRequest
from adats.service.spec import ExperimentSpec
from adats.service.stores.sqlite import SQLiteStore

DAYS, A_DAY = 21, 400  # what lies behind, and visitors of an experiment a day
PAUSE = 0.15  # seconds between two visitors
TENANT = "default"


class Visitors(NamedTuple):
    """An experiment, and what its visitors do."""

    name: str
    spec: dict[str, object]
    task: str  # what one is called
    means: FloatArray  # of each task and arm
    numbers: bool = False  # not only 0 and 1

    def visit(self, rng: Rng, there: float = 1.0) -> str:
        """The task of the next visitor; only a share of them is there yet."""
        return f"{self.task} {1 + rng.integers(1 + int(there * (len(self.means) - 1)))}"

    def reward(self, task: str, arm: str, rng: Rng) -> float:
        number = int(task.rpartition(" ")[2])
        mean = float(self.means[number - 1, self.arms.index(arm)])
        return float(rng.normal(mean) if self.numbers else rng.random() < mean)

    @property
    def arms(self) -> list[str]:
        return list(cast("list[str]", self.spec["arms"]))


def demonstration() -> list[Visitors]:
    """E-mails to 54 segments of customers as they were counted; headlines; and delivery times."""
    rng = np.random.default_rng(1)
    rates = load_segments().rates()
    clicks = {"model": "binary", "prior": {"default": {}}, "seed": 1}
    headlines = ["plain", "question", "number", "story"]
    common = np.log([0.04, 0.06, 0.045, 0.05])
    pages = np.exp(common + rng.normal(0, 0.25, (120, 4)) + rng.normal(0, 0.4, (120, 1)))
    routes = np.array([3.0, 3.4, 3.2]) + rng.normal(0, 0.5, (30, 3))
    number = {"model": "gaussian", "noise": 1.0, "seed": 3}
    prior = {"given": {"mean": 3.0, "scale": 1.0, "task_scale": 0.5}}
    held_out = {"holdout": {"share": 0.1}}
    emails = clicks | held_out | {"arms": list(LABELS), "control": LABELS[2]}
    titles = clicks | held_out | {"arms": headlines, "control": headlines[0]}
    couriers = number | {"arms": ["north", "river", "ring road"], "prior": prior}
    return [
        Visitors("e-mails", emails, "segment", rates),
        Visitors("headlines", titles, "page", pages),
        Visitors("courier-ratings", couriers, "district", routes, numbers=True),
    ]


def make_history(path: Path, progress: Callable[[str, int, int], None]) -> list[Visitors]:
    """A store as it is after some weeks."""
    rng, now = np.random.default_rng(2), time.time()
    clock = [now - DAYS * 86_400.0]
    store = SQLiteStore(path)
    engine = Engine(store, clock=lambda: clock[0])
    several = demonstration()
    engine.begin()
    for one in several:
        engine.put(TENANT, one.name, msgspec.convert(one.spec, ExperimentSpec))
    for i in range(DAYS * 24):
        for one in several:
            for j in range(round(A_DAY / 24)):
                clock[0] = now - DAYS * 86_400.0 + i * 3600 + j * 60
                asked = DecisionRequest(one.visit(rng, i / (DAYS * 24)))
                made = engine.decide(TENANT, one.name, asked)
                if rng.random() < 0.97:  # some are never heard of
                    reward = one.reward(made.task, str(made.action), rng)
                    engine.reward(TENANT, one.name, RewardRequest(str(made.decision_id), reward))
        engine.flush()
        engine.commit()
        engine.begin()
        progress("three weeks of visitors", i + 1, DAYS * 24)
    store.close()
    return several


def send_visitors(several: list[Visitors], url: str) -> None:
    """From now on they come one after another, until the process ends."""
    rng = np.random.default_rng(3)
    clients = {one.name: Client(url, one.name) for one in several}

    def go_on() -> None:
        while True:
            time.sleep(PAUSE)
            one = several[int(rng.integers(len(several)))]
            decision = clients[one.name].ask(one.visit(rng))
            reward = one.reward(str(decision.task), str(decision.action), rng)
            clients[one.name].tell(decision, reward=reward)

    threading.Thread(target=go_on, name="visitors", daemon=True).start()
