"""Decisions that were recorded with version 0.1.0, and how to make them again.

`python tests/helpers/traces.py` records them, once, with the version whose decisions are kept.
"""

import gzip
import json
import sys
import warnings
from pathlib import Path

import numpy as np
from scipy.special import betaincc

import adats
from adats.models.default_prior import grid_prior
from cases import CASES, CLASSES, GROWING, new, rewards_of

ASSETS = Path(__file__).parents[1] / "assets" / "v0.1"
POLICIES = ("ts", "ucb", "index", "far", "greedy")
DEFAULTS = {  # those of 0.1.0
    "binary": (grid_prior, {"rewards": "binary"}),
    "count": (grid_prior, {"rewards": "count", "typical": 2.0}),
    "number": (adats.default_prior, {"rewards": "number", "scale": 1.5}),
}
DRAWS = {
    "binary": lambda rng: float(rng.integers(2)),
    "count": lambda rng: float(rng.poisson(2.0)),
    "number": lambda rng: float(rng.normal()),
}


def library():
    """The name of every trace of an agent, and the function that plays it."""
    found = {}
    for kind in CASES:
        for cls in CLASSES:
            for policy in POLICIES:
                for schedule in ("alone", "interleaved"):
                    name = f"{kind}, {cls.__name__}, {policy}, {schedule}"
                    found[name] = (kind, cls, policy, schedule)
    return found


def play(kind, cls, policy, schedule):
    """Decisions of an agent, and what it believes at the end."""
    case, rng = CASES[kind], np.random.default_rng(5)
    options = {"policy": policy}
    if schedule == "interleaved" and "oracle" not in dict(case.options):
        options["epsilon"] = 0.1
    if schedule == "alone":
        options["explore_first"] = policy in ("ts", "far")
    agent = new(kind, cls, seed=11, **options)
    actions, chances, waiting = [], [], []

    def step(task, horizon, **more):
        decision = agent.ask(
            task,
            features=case.features(task, rng),
            design=case.design(task),
            horizon=horizon,
            propensities=policy == "ts" and len(actions) % 4 == 0,
            **more,
        )
        actions.append(_plain(decision.action))
        if decision.propensity is not None:
            chances.append(_plain(decision.propensity))
        waiting.append(decision)

    def tell(place=0):
        decision = waiting.pop(place)
        agent.tell(decision, reward=rewards_of(decision, kind, rng))

    if schedule == "alone":
        for i in range(10):
            step(0, 10 - i)
            tell()
        step(1, 10)
    else:
        for i in range(14):
            step(int(rng.integers(3)), 14 - i)
            while len(waiting) > 2:
                tell(int(rng.integers(len(waiting))))
        if kind in GROWING and cls is not adats.OracleTS:
            _change_arms(agent, kind)
            for i in range(4):
                step(i % 3, 4)
                tell()
        agent.finish(agent.tasks[0])
        if len(agent.tasks) > 1:
            agent.forget(agent.tasks[1])
            waiting = [d for d in waiting if d.task in agent.tasks]
        while waiting:
            tell()
        for _ in range(3):
            step(7, 3)
    return {"actions": actions, "chances": chances, "numbers": _beliefs(agent)}


def _change_arms(agent, kind):
    options = {"name": "violet"} if agent.arms[0] == "red" else {}
    if "features" in dict(CASES[kind].options):
        agent.add_arm(features=[0.3, 0.1, 0.9])
    else:
        agent.add_arm(like=agent.arms[0], **options)
    agent.retire_arm(agent.arms[1])


def _beliefs(agent):
    numbers = [agent.meta.log_evidence(), *np.ravel(agent.meta.mean)]
    for task in agent.tasks:
        belief = agent.posterior(task)
        numbers += [*belief.mean, *belief.scale]
    return [float(number) for number in numbers]


def default(rewards, policy):
    """Decisions of AdaTS with the prior for people who have none."""
    rng = np.random.default_rng(3)
    make, options = DEFAULTS[rewards]
    prior = make(arms=["a", "b", "c"], **options)
    agent = adats.AdaTS(prior, seed=2, policy=policy)
    actions, chances, tied = [], [], []
    for i in range(9):
        tied.append(_tied(agent, f"t{i % 2}") if rewards == "binary" else 0.0)
        decision = agent.ask(f"t{i % 2}", horizon=9 - i, propensities=policy == "ts")
        actions.append(decision.action)
        if decision.propensity is not None:
            chances.append(decision.propensity)
        agent.tell(decision, reward=DRAWS[rewards](rng))
    numbers = _beliefs(agent)
    return {"actions": actions, "chances": chances, "numbers": numbers, "tied": tied}


def _tied(agent, task):
    """The chance that two draws or more round to 1, of which 0.1.0 took the first arm's."""
    belief = agent.posterior(task) if task in agent.tasks else agent.meta.task_prior()
    alpha, beta = belief.components.parameters()
    top = (belief.weights * betaincc(alpha, beta, 1 - 2**-53)).sum(axis=0)
    none = (1 - top).prod()
    return float(1 - none - (top / (1 - top) * none).sum())


def _plain(value):
    return list(value) if isinstance(value, tuple) else value


def problems():
    """Small problems of every kind, for the simulator."""
    from adats.models import BetaArms, PoissonArms
    from adats.simulation.problems import (
        GaussianProblem,
        LinearProblem,
        MixtureProblem,
        RoutingProblem,
        SemibanditProblem,
    )

    means = np.array([[0.2, 0.5, 0.4], [0.6, 0.3, 0.1]])
    half = [0.5, 0.5]
    square = {
        "edges": ((0, 1), (1, 2), (0, 3), (3, 2)),
        "lengths": (1.0, 2.0, 1.5, 1.5),
        "source": 0,
        "target": 2,
    }
    return {
        "gaussian": GaussianProblem(arms=4),
        "linear": LinearProblem(dim=3, arms=6),
        "rows": LinearProblem(dim=3, arms=6, redraw="round"),
        "semibandit": SemibanditProblem(arms=5, size=2),
        "routing": RoutingProblem("square", **square),
        "binary": MixtureProblem(half, BetaArms(10 * means, 10 * (1 - means))),
        "binary arms": MixtureProblem(np.full((2, 3), 0.5), BetaArms(10 * means, 10 * (1 - means))),
        "count": MixtureProblem(half, PoissonArms(40 * means, np.full((2, 3), 10.0))),
    }


def simulated(name, problem, delay):
    """Regrets of all agents that know the problem, round by round."""
    from adats.simulation import AGENTS, simulate

    agents = [a for a in AGENTS if AGENTS[a].prior == "problem"]
    if name not in ("gaussian", "linear", "rows"):
        agents = [a for a in agents if _known(a)]
    if delay:
        agents = [a for a in agents if AGENTS[a].policy != "ts"]
    if name in ("binary", "binary arms", "count"):
        agents = [a for a in agents if a not in ("ada-ts+", "ada-ts-")]
    first = name not in ("rows",) and not delay
    result = simulate(
        problem, agents, tasks=3, rounds=12, runs=2, seed=4, delay=delay, explore_first=first,
        detail="round",
    )  # fmt: skip
    return {agent: result.regret[i].ravel().tolist() for i, agent in enumerate(agents)}


def _known(agent):
    """Whether an agent is told σ_0."""
    return agent not in ("ada-grid", "ada-narrow", "ada-broad")


def make_all():
    """Every trace, as plain values by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        traces = {name: play(*what) for name, what in library().items()}
        for rewards in DEFAULTS:
            for policy in POLICIES:
                traces[f"default {rewards}, {policy}"] = default(rewards, policy)
    regrets = {}
    for name, problem in problems().items():
        for delay in (0, 3):
            regrets[f"{name}, delay {delay}"] = simulated(name, problem, delay)
    return {"decisions": traces, "regrets": regrets}


def read():
    """The traces that were recorded."""
    with gzip.open(ASSETS / "traces.json.gz", "rt") as file:
        return json.load(file)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    ASSETS.mkdir(parents=True, exist_ok=True)
    text = json.dumps(make_all(), separators=(",", ":"), allow_nan=True)
    (ASSETS / "traces.json.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
    print(len(text))
