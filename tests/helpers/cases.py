"""Every kind of model, with all that is needed to play it."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import adats
from adats import AdaTS, BetaArms, ExponentialArms, GaussianArms, OracleTS, PoissonArms, Top
from adats.models.latent.meta import LatentMeta
from adats.models.latent.row_meta import LatentLinearMeta

CLASSES = [adats.AdaTS, adats.MetaTS, adats.TS, adats.OracleTS]


class Case(NamedTuple):
    meta: Any
    options: tuple[tuple[str, Any], ...] = ()
    features: Callable[[Any, Any], Any] = lambda _task, _rng: None
    design: Callable[[Any], Any] = lambda _task: None
    reward: Callable[[Any], float] = lambda rng: float(rng.normal())


ROWS = np.array([[1.0, 0.0, 0.5], [0.0, 1.0, -0.5], [0.6, 0.8, 0.0], [-1.0, 0.3, 0.2]])
EDGES = [("s", "a"), ("s", "b"), ("a", "b"), ("a", "t"), ("b", "t")]
SINGULAR = np.array([[1.0, 0.5, 0.0], [0.5, 0.25, 0.0], [0.0, 0.0, 2.0]])  # of rank 2


def gaussian(mean=(0.3, 0.0, -0.2), **options):
    options = {"scale": 1 / 1.9, "task_scale": [0.3, 0.0, 0.1], "noise": 0.8} | options
    return adats.GaussianMeta(mean, **options)


def linear(**options):
    options = {"mean": [0.1, 0.0, -0.1], "cov": np.eye(3) + 0.3, "task_cov": SINGULAR} | options
    return adats.LinearMeta(noise=0.7, **options)


def beta():
    return [BetaArms([1.0, 2.0, 3.0], 4.0), BetaArms(4.0, [1.0, 2.0, 0.5])]


def separate(candidates):
    weights = np.full((len(candidates), candidates[0].n_arms), 1 / len(candidates))
    return adats.MixtureMeta(weights, candidates)


def size(task):
    return 2 + int(task) % 3


def latent(**options):
    options = {"task_scale": [0.1, 0.5], "level_scale": 0.3} | options
    return LatentMeta([-1.0, 0.0, -0.5], 0.7, **options)


def latent_rows(**options):
    if "task_cov" not in options:
        options = {"task_scale": 0.4} | options
    return LatentLinearMeta([-0.8, 0.3, 0.0], np.eye(3) * 0.5 + 0.1, **options)


def click(rng):
    return float(rng.integers(2))


def event(rng):
    return float(rng.poisson(1.5))


CASES = {
    "gaussian": Case(gaussian()),
    "named": Case(gaussian(arms=["red", "green", "blue"])),
    "certain": Case(gaussian(scale=0.0, task_scale=0.0)),
    "linear": Case(linear(), (("features", ROWS),)),
    "contextual": Case(linear(), features=lambda _, rng: rng.normal(size=(4, 3))),
    "exchangeable": Case(
        adats.LinearMeta([0.2], 2.0, task_cov=0.4, noise=0.7),
        features=lambda task, _: np.eye(size(task)),
        design=lambda task: np.ones((size(task), 1)),
    ),
    "attributes": Case(
        linear(task_cov=0.3),
        features=lambda task, _: np.eye(size(task)),
        design=lambda task: np.random.default_rng(int(task)).normal(size=(size(task), 3)),
    ),
    "beta": Case(adats.MixtureMeta([0.3, 0.7], beta()), reward=lambda r: float(r.integers(2))),
    "beta arms": Case(separate(beta()), reward=lambda r: float(r.integers(2))),
    "poisson": Case(
        separate([PoissonArms([1.0, 2.0, 3.0], 1.0), PoissonArms(6.0, [2.0, 1.0, 2.0])]),
        reward=lambda r: float(r.poisson(2.0)),
    ),
    "exponential": Case(
        adats.MixtureMeta(
            [0.5, 0.5], [ExponentialArms([3.0, 4.0], 2.0), ExponentialArms(5.0, [1.0, 9.0])]
        ),
        reward=lambda r: float(r.exponential()),
    ),
    "normal": Case(
        adats.MixtureMeta(
            [0.4, 0.6],
            [GaussianArms([0.0, 1.0, 0.0], 0.5, 1.0), GaussianArms(0.5, [1.0, 0.0, 2.0], 0.7)],
        )
    ),
    "models": Case(
        adats.ModelMixture(
            [0.2, 0.3, 0.5],
            [gaussian(), gaussian(noise=2.0), gaussian([0.0, 0.5, 0.0], task_scale=1.0)],
        )
    ),
    "linear models": Case(
        adats.ModelMixture([0.5, 0.5], [linear(), linear(task_cov=0.5)]),
        features=lambda _, rng: rng.normal(size=(4, 3)),
    ),
    "semi-bandit": Case(gaussian([0.3, 0.1, 0.2]), (("oracle", Top(2)),)),
    "linear semi-bandit": Case(linear(), (("features", ROWS), ("oracle", Top(2, exactly=True)))),
    "routing": Case(
        gaussian(-np.ones(5), task_scale=0.2),
        (("oracle", adats.ShortestPath(EDGES, "s", "t")),),
        reward=lambda rng: -float(rng.exponential()),
    ),
}
# of later versions, which the recordings of 0.1.0 do not have
LATER = {
    "clusters": Case(adats.ClusterMeta([gaussian(), gaussian([0.0, 0.9, 0.4], scale=0.0)])),
    "linear clusters": Case(
        adats.ClusterMeta([linear(), linear(mean=[1.0, 0.0, 0.5])], [0.3, 0.7]),
        features=lambda _, rng: rng.normal(size=(4, 3)),
    ),
    "clicks": Case(latent(), reward=click),
    "events": Case(latent(rewards="count", level_scale=0.0), reward=event),
    "click rows": Case(latent_rows(), (("features", ROWS),), reward=click),
    "click contexts": Case(
        latent_rows(task_scale=[0.1, 0.3, 1.0]),
        features=lambda _, rng: rng.normal(size=(4, 3)),
        reward=click,
    ),
    "event rows": Case(
        latent_rows(task_cov=SINGULAR, rewards="count"), (("features", ROWS),), reward=event
    ),
    "click attributes": Case(
        latent_rows(task_scale=[0.2, 0.5]),
        features=lambda task, _: np.eye(size(task)),
        design=lambda task: np.random.default_rng(int(task)).normal(size=(size(task), 3)),
        reward=click,
    ),
    "click semi-bandit": Case(
        latent_rows(), (("features", ROWS), ("oracle", Top(2, exactly=True))), reward=click
    ),
}
ALL = CASES | LATER
GROWING = ["gaussian", "named", "linear", "beta", "beta arms", "poisson", "models", "semi-bandit"]
GROWING += ["clusters"]


def new(kind, cls=AdaTS, seed=0, **options):
    case = ALL[kind]
    told = (case.meta.sample(np.random.default_rng(seed)),) if cls is OracleTS else ()
    return cls(case.meta, *told, seed=seed, **dict(case.options) | options)


def ask(agent, kind, task, rng):
    case = ALL[kind]
    return agent.ask(task, features=case.features(task, rng), design=case.design(task))


def rewards_of(decision, kind, rng):
    draw = ALL[kind].reward
    if isinstance(decision.action, tuple):
        return [draw(rng) for _ in decision.action]
    return draw(rng)


def play(agent, kind, rng, rounds=40, tasks=5, wait=0.6):
    """Interleaved tasks; a reward comes at once or after other decisions, in any order."""
    told, waiting = [], []
    for i in range(rounds):
        waiting.append(ask(agent, kind, int(rng.integers(tasks)), rng))
        while waiting and (i == rounds - 1 or rng.random() > wait):
            decision = waiting.pop(int(rng.integers(len(waiting))))
            told.append((decision, rewards_of(decision, kind, rng)))
            agent.tell(decision, reward=told[-1][1])
    return told


def portrait(agent):
    """All that an agent believes, as arrays by name."""
    seen = {"log evidence": agent.meta.log_evidence(), "prior": agent.meta.mean}
    for name in ("scale", "cov", "weights"):
        if hasattr(agent.meta, name):
            seen[f"prior's {name}"] = getattr(agent.meta, name)
    for task in sorted(agent.tasks, key=str):
        belief = agent.posterior(task)
        seen[f"mean of {task}"], seen[f"scale of {task}"] = belief.mean, belief.scale
    return {name: np.array(value) for name, value in seen.items()}


def alike(left, right, tolerance=1e-9):
    assert left.keys() == right.keys()
    for name, value in left.items():
        np.testing.assert_allclose(
            value, right[name], rtol=tolerance, atol=tolerance * 1e-2, err_msg=name
        )
