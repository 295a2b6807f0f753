"""One task of 1,000 rounds through the public interface of each peer, and through ours.

Nobody else has the same models: the nearest that they have is named in the table. Peers keep a
separate linear model for every arm; ours has one theta and a row of features for every arm.
"""

import contextlib
import warnings
from collections.abc import Callable

import numpy as np

import adats

ARMS, DIM, ROUNDS = 10, 16, 1000


def _rewards() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return (
        rng.standard_normal(ARMS),
        rng.standard_normal(ROUNDS),
        rng.standard_normal((ROUNDS, DIM)),
    )


def ours_arms() -> None:
    theta, noise, _ = _rewards()
    meta = adats.GaussianMeta(np.zeros(ARMS), 1.0, task_scale=0.1, noise=1.0)
    agent = adats.AdaTS(meta, seed=1)
    for t in range(ROUNDS):
        decision = agent.ask("task")
        agent.tell(decision, reward=theta[decision.action] + noise[t])


def ours_linear() -> None:
    theta, noise, _ = _rewards()
    rng = np.random.default_rng(1)
    features = rng.standard_normal((ARMS, DIM))
    agent = adats.AdaTS(
        adats.LinearMeta(np.zeros(DIM), 1.0, task_cov=0.01, noise=1.0), seed=1, features=features
    )
    for t in range(ROUNDS):
        decision = agent.ask("task")
        agent.tell(decision, reward=theta[decision.action] + noise[t])


def bayesianbandits_arms() -> None:
    from bayesianbandits import Agent, Arm, NormalRegressor, ThompsonSampling

    theta, noise, _ = _rewards()
    arms = [Arm(i, learner=NormalRegressor(alpha=1.0, beta=1.0)) for i in range(ARMS)]
    agent = Agent(arms, ThompsonSampling(), random_seed=1)
    for t in range(ROUNDS):
        (arm,) = agent.pull()
        agent.update(np.array([theta[arm] + noise[t]]))


def bayesianbandits_linear() -> None:
    from bayesianbandits import Arm, ContextualAgent, NormalRegressor, ThompsonSampling

    theta, noise, x = _rewards()
    arms = [Arm(i, learner=NormalRegressor(alpha=1.0, beta=1.0)) for i in range(ARMS)]
    agent = ContextualAgent(arms, ThompsonSampling(), random_seed=1)
    for t in range(ROUNDS):
        (arm,) = agent.pull(x[t : t + 1])
        agent.update(x[t : t + 1], np.array([theta[arm] + noise[t]]))


def mabwiser_arms() -> None:
    from mabwiser.mab import MAB, LearningPolicy

    theta, noise, _ = _rewards()
    agent = MAB(list(range(ARMS)), LearningPolicy.ThompsonSampling(), seed=1)
    agent.fit(list(range(ARMS)), [0] * ARMS)
    for t in range(ROUNDS):
        arm = agent.predict()
        agent.partial_fit([arm], [int(theta[arm] + noise[t] > 0)])


def mabwiser_linear() -> None:
    from mabwiser.mab import MAB, LearningPolicy

    theta, noise, x = _rewards()
    agent = MAB(list(range(ARMS)), LearningPolicy.LinTS(alpha=1.0), seed=1)
    agent.fit(list(range(ARMS)), [0.0] * ARMS, x[:ARMS])
    for t in range(ROUNDS):
        arm = agent.predict(x[t : t + 1])
        agent.partial_fit([arm], [theta[arm] + noise[t]], x[t : t + 1])


def contextualbandits_arms() -> None:
    _contextualbandits(np.ones((ROUNDS, 1)))


def contextualbandits_linear() -> None:
    _contextualbandits(_rewards()[2])


def _contextualbandits(x: np.ndarray) -> None:
    from contextualbandits.online import LinTS

    theta, noise, _ = _rewards()
    agent = LinTS(nchoices=ARMS, fit_intercept=False, random_state=1)
    agent.partial_fit(x[:ARMS], np.arange(ARMS), np.zeros(ARMS))
    for t in range(ROUNDS):
        (arm,) = agent.predict(x[t : t + 1])
        agent.partial_fit(x[t : t + 1], np.array([arm]), np.array([theta[arm] + noise[t]]))


PEERS: dict[str, tuple[Callable[[], None], Callable[[], None], str]] = {
    "bayesianbandits": (
        bayesianbandits_arms,
        bayesianbandits_linear,
        "normal arms / linear an arm",
    ),
    "mabwiser": (mabwiser_arms, mabwiser_linear, "Bernoulli arms / LinTS an arm"),
    "contextualbandits": (
        contextualbandits_arms,
        contextualbandits_linear,
        "LinTS with a constant / LinTS an arm",
    ),
}


@contextlib.contextmanager
def quiet():
    """Peers warn about their own dependencies; that is not measured here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
