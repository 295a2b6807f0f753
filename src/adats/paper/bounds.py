"""The regret bounds of Section 4: its lemmas and theorems as pure functions.

`constants="paper"` gives the formulas as printed, `constants="safe"` (the default) those that the
proofs support; each docstring says where the two differ and why, docs/math/bounds.md derives it.
Covariances are matrices, or numbers that stand for number * I. Scales are standard deviations.
"""

import math
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from adats.models.core import checks
from adats.models.core.checks import count_of
from adats.models.core.types import FloatArray

Constants = Literal["paper", "safe"]


@dataclass(frozen=True)
class Decomposition:
    """Lemma 2, term by term: total = learning + acting + excess."""

    learning: float  # the price of learning mu
    acting: float  # the price of learning every theta when mu is known
    excess: float  # the sum of the eps
    total: float


@dataclass(frozen=True)
class Width:
    """Lemma 3: E[gap] <= gamma * sqrt(information) + eps in one round."""

    gamma: float
    eps: float


@dataclass(frozen=True)
class Information:
    """Lemma 4: bounds on I(mu; H_1:m) and on I(theta_s; H_s | mu, H_1:s-1)."""

    meta: float
    task: float


@dataclass(frozen=True)
class LinearBound:
    """Theorem 5, term by term: total = learning + acting + exploration."""

    c1: float
    c2: float
    c3: float
    c4: float
    per_task: float  # R_δ(n; mu), one task whose prior is known
    learning: float
    acting: float  # (m + c2) * per_task
    exploration: float
    total: float
    oracle: float  # all tasks, for linear TS that is told mu
    agnostic: float  # all tasks, for linear TS from N(mu_q, Σ_q + Σ_0) each time


@dataclass(frozen=True)
class ArmBounds:
    """The lemmas behind Theorem 6 in one task: arrays with one entry an arm."""

    variance: FloatArray  # of theta(k) in any round of the task
    task_gamma: FloatArray  # Γ_s(k)
    gamma: FloatArray  # Γ(k), for all tasks
    eps: FloatArray
    meta_information: FloatArray  # I(mu(k); H_1:m)
    task_information: FloatArray  # I(theta_s(k); H_s | mu(k), H_1:s-1)


@dataclass(frozen=True)
class SemibanditBound:
    """Theorem 6, term by term: total = learning + acting + exploration + shared."""

    c1: float
    c2: float
    c3: float
    c4: float
    c5: float
    per_task: float  # R_δ(n; mu), one task whose prior is known
    learning: float
    acting: float  # (m + c2) * per_task
    exploration: float
    shared: float  # the δ-term of arms that are the same in every task, σ_0,k = 0
    total: float


def decomposition(
    *,
    tasks: int,
    rounds: int,
    gamma: ArrayLike,
    task_gamma: ArrayLike,
    meta_information: ArrayLike,
    task_information: ArrayLike,
    eps: ArrayLike = 0.0,
    size: int = 1,
) -> Decomposition:
    """Lemma 2: a regret bound from Γ, the Γ_s, both informations and the expected ε_s,t.

    What has a task's index broadcasts to (tasks, 1), and `eps` to (tasks, rounds). With arms in
    place of the 1, and up to `size` arms pulled a round, this is the semi-bandit's Lemma 11.
    """
    m, n, size = count_of("tasks", tasks), count_of("rounds", rounds), count_of("size", size)
    gammas = np.atleast_1d(checks.non_negative("gamma", gamma))
    gains = _fit("meta_information", meta_information, gammas.shape)
    task_gammas = _fit("task_gamma", task_gamma, (m, gammas.size))
    task_gains = _fit("task_information", task_information, (m, gammas.size))
    learning = math.sqrt(m * n * size * float((gammas**2 * gains).sum()))  # Lemma 2, 11
    acting = float(np.sqrt(n * size * (task_gammas**2 * task_gains).sum(1)).sum())  # Lemma 2, 11
    excess = float(_fit("eps", eps, (m, n)).sum())  # Lemma 2
    return Decomposition(learning, acting, excess, learning + acting + excess)


def width(
    *, variance: float, arms: int, noise: float, delta: float, explored_norm: float = 0.0
) -> Width:
    """Lemma 3, first part: Γ_s,t and ε_s,t from σ²_max(Σ̂_s,t).

    `explored_norm` is E[‖θ‖] in a round of forced exploration, 0 in any other. The constants are
    the paper's; its proof takes the pulled arm as known beforehand, the docs repair that.
    """
    v = float(_fit("variance", variance, ()))
    norm = float(_fit("explored_norm", explored_norm, ()))
    arms, delta, s2 = count_of("arms", arms), _delta(delta), _noise(noise) ** 2
    gamma = 4 * math.sqrt(float(_spread(np.array(v), s2)) * math.log(4 * arms / delta))  # Lemma 3
    return Width(gamma, math.sqrt(2 * delta * v) + 2 * norm)  # Lemma 3


def variance_bound(
    *,
    task: int,
    dim: int,
    meta_cov: ArrayLike,
    task_cov: ArrayLike,
    noise: float,
    eta: float,
    constants: Constants = "safe",
) -> float:
    """Lemma 3, second part (eq. 5): a bound on σ²_max(Σ̂_s,t) that holds for every history.

    When task s (counted from 1) begins, s - 1 tasks are finished. The paper counts s of them, so
    its number can be too small in any task; in the first it is below the prior variance, λ_q + λ_0.
    """
    q, z = _spectrum("meta_cov", meta_cov, dim), _spectrum("task_cov", task_cov, dim)
    measured = _noise(noise) ** 2 / _eta(eta)
    return float(_variance(q[-1:], z[-1:], measured, _finished(task, constants))[0])


def information_bounds(
    *, tasks: int, rounds: int, dim: int, meta_cov: ArrayLike, task_cov: ArrayLike, noise: float
) -> Information:
    """Lemma 4: what all rewards tell about mu, and what a task's rewards tell about its theta."""
    m, n, s2 = count_of("tasks", tasks), count_of("rounds", rounds), _noise(noise) ** 2
    q, z = _spectrum("meta_cov", meta_cov, dim), _spectrum("task_cov", task_cov, dim)
    return Information(
        meta=dim / 2 * math.log1p(q[-1] * m / (z[0] + s2 / n)),  # Lemma 4
        task=dim / 2 * math.log1p(z[-1] * n / s2),  # Lemma 4
    )


def linear_bound(
    *,
    tasks: int,
    rounds: int,
    dim: int,
    arms: int,
    meta_cov: ArrayLike,
    task_cov: ArrayLike,
    noise: float,
    eta: float,
    meta_mean: ArrayLike = 0.0,
    delta: float | None = None,
    constants: Constants = "safe",
) -> LinearBound:
    """Theorem 5: the regret of AdaTS with forced exploration in a linear bandit.

    `delta` is 1 / rounds² unless given. c2 differs: the paper's, built on its eq. 5, is 0 for one
    task; the safe one counts s - 1 finished tasks. Both grow without limit as task_cov → 0.
    `agnostic` differs: the paper widens the prior in c4 alone, the δ-term needs it as well.

    >>> bound = linear_bound(tasks=20, rounds=200, dim=4, arms=20, meta_cov=1.0, task_cov=0.1,
    ...                      noise=1.0, eta=0.5)
    >>> round(bound.learning), round(bound.acting), round(bound.exploration), round(bound.total)
    (3865, 27263, 336, 31463)
    """
    m, n, s2 = count_of("tasks", tasks), count_of("rounds", rounds), _noise(noise) ** 2
    q, z = _spectrum("meta_cov", meta_cov, dim), _spectrum("task_cov", task_cov, dim)
    if count_of("arms", arms) < dim:
        raise ValueError(f"arms must be at least dim = {dim}, to explore all of it, got {arms}")
    if z[-1] == 0:
        raise ValueError(
            "task_cov must not be 0, got largest eigenvalue 0.0, by which Theorem 5 divides; "
            "put the lemmas into decomposition() instead"
        )
    delta, mean = _delta(delta, n), _fit("meta_mean", meta_mean, (dim,), signed=True)
    marginal = sum(checks.covariance("cov", cov, dim) for cov in (meta_cov, task_cov))
    both = _spectrum("meta_cov + task_cov", marginal, dim)[-1]
    log = 8 * math.log(4 * arms / delta)

    def constant(variance: float, gain: float) -> float:
        return math.sqrt(float(_spread(np.array(variance), s2)) * log * math.log1p(gain))

    c1 = constant(q[-1] + z[-1], q[-1] * m / (z[0] + s2 / n))  # Theorem 5
    c2 = _extra_tasks(q[-1:], z[-1:], s2 / _eta(eta), m, constants)  # Theorem 5
    c3 = 2 * math.sqrt(float(mean @ mean + q.sum() + z.sum()))  # Theorem 5
    c4 = constant(z[-1], z[-1] * n / s2)  # Theorem 5
    per_task = c4 * math.sqrt(dim * n) + math.sqrt(2 * delta * z[-1]) * n  # Theorem 5
    learning = c1 * math.sqrt(dim * m * n)  # Theorem 5
    acting, exploration = (m + c2) * per_task, c3 * dim * m  # Theorem 5
    slack = z[-1] if _paper(constants) else both
    agnostic = m * (  # the text after Theorem 5
        constant(both, both * n / s2) * math.sqrt(dim * n) + math.sqrt(2 * delta * slack) * n
    )
    total = learning + acting + exploration
    return LinearBound(
        c1, c2, c3, c4, per_task, learning, acting, exploration, total, m * per_task, agnostic
    )


def arm_bounds(
    *,
    task: int,
    tasks: int,
    rounds: int,
    meta_scale: ArrayLike,
    task_scale: ArrayLike,
    noise: float,
    arms: int | None = None,
    delta: float | None = None,
    constants: Constants = "safe",
) -> ArmBounds:
    """Lemmas 10, 12 and 13: what Theorem 6 needs of every arm in task s, counted from 1.

    The paper's variance and Γ_s(k) count s finished tasks where s - 1 are, and its Γ_s(k) has a
    stray 1/2 beside the logarithm; the safe ones have neither.
    """
    m, n, s2 = count_of("tasks", tasks), count_of("rounds", rounds), _noise(noise) ** 2
    q, z, _ = _arms(meta_scale, task_scale, 0.0, arms)
    delta = _delta(delta, n)
    log = math.log(4 * q.size / delta)
    variance = _variance(q, z, s2, _finished(task, constants))  # Lemma 13
    stray = 2 if _paper(constants) else 1
    return ArmBounds(
        variance=variance,
        task_gamma=4 * np.sqrt(stray * _spread(variance, s2) * log),  # Lemma 13
        gamma=4 * np.sqrt(_spread(q + z, s2) * log),  # Lemma 13
        eps=np.sqrt(2 * delta * variance / q.size),  # Lemma 10
        meta_information=np.log1p(m * q / (z + s2 / n)) / 2,  # Lemma 12
        task_information=np.log1p(n * z / s2) / 2,  # Lemma 12
    )


def semibandit_bound(
    *,
    tasks: int,
    rounds: int,
    size: int,
    meta_scale: ArrayLike,
    task_scale: ArrayLike,
    noise: float,
    arms: int | None = None,
    meta_mean: ArrayLike = 0.0,
    delta: float | None = None,
    constants: Constants = "safe",
) -> SemibanditBound:
    """Theorem 6: the regret of AdaTS with forced exploration, up to `size` arms a round.

    Scales have one entry an arm, or are one number for all `arms`. `delta` is 1 / rounds² unless
    given. The safe c2 and c4 count s - 1 finished tasks, the paper's s; both δ-terms (the end of
    per_task, and shared) are √size larger when safe, since a round pulls up to `size` arms.
    """
    m, n, s2 = count_of("tasks", tasks), count_of("rounds", rounds), _noise(noise) ** 2
    q, z, mean = _arms(meta_scale, task_scale, meta_mean, arms)
    k, paper, delta = q.size, _paper(constants), _delta(delta, n)
    if count_of("size", size) > k:
        raise ValueError(f"size must be at most the number of arms, {k}, got {size}")
    log = math.log(4 * k / delta)
    root = 1.0 if paper else math.sqrt(size)  # a round's pulls, in the δ-terms
    same = q[z == 0] / s2
    logs = np.log1p(same * m) if paper else same + np.log1p(same * (m - 1))
    gains, task_gains = np.log1p(q * m / (z + s2 / n)), np.log1p(z * n / s2)
    c1 = 4 * math.sqrt(float((_spread(q + z, s2) * gains).mean()) * log)  # Theorem 6
    c2 = _extra_tasks(q[z > 0], z[z > 0], s2, m, constants)  # Theorem 6
    c3 = 2 * math.sqrt(float((mean**2 + q + z).sum()))  # Theorem 6
    c4 = math.sqrt(float(logs.sum()) / k)  # Theorem 6
    c5 = 4 * math.sqrt(float((_spread(z, s2) * task_gains).mean()) * log)  # Theorem 6
    slack = root * math.sqrt(2 * delta * float(z.mean())) * n  # Theorem 6
    per_task = c5 * math.sqrt(k * size * n) + slack  # Theorem 6
    learning = c1 * math.sqrt(k * size * m * n)  # Theorem 6
    acting, exploration = (m + c2) * per_task, c3 * k**1.5 * m  # Theorem 6
    shared = root * c4 * math.sqrt(s2 * 2 * delta * m) * n  # Theorem 6
    total = learning + acting + exploration + shared
    return SemibanditBound(
        c1, c2, c3, c4, c5, per_task, learning, acting, exploration, shared, total
    )


def _variance(q: FloatArray, z: FloatArray, measured: float, finished: int) -> FloatArray:
    """Of theta, after `finished` tasks that each measured theirs with a variance of `measured`."""
    return z + q * (z + measured) / (z + measured + finished * q)  # eq. 5, multiplied out


def _spread(variance: FloatArray, s2: float) -> FloatArray:
    """v / log(1 + v / σ²), which is σ² at v = 0."""
    ratio = variance / s2
    return s2 * np.divide(ratio, np.log1p(ratio), out=np.ones_like(ratio), where=ratio > 0)


def _extra_tasks(q: FloatArray, z: FloatArray, measured: float, m: int, constants: str) -> float:
    """c2, over arms with z > 0: how many tasks' worth of regret the unknown mu adds."""
    if not z.size:
        return 0.0
    factor = 1 + measured / float(z.min())
    if _paper(constants):
        return factor * math.log(m)  # Theorems 5 and 6
    later = factor * math.log1p((m - 1) * float((q / (z + measured)).max()))
    return (float((q / z).max()) + later) / 2  # Theorems 5 and 6, safe


def _within(name: str, value: object, top: float, hint: str) -> float:
    number = checks.number(name, value)
    if not 0 < number <= top:
        raise ValueError(f"{name} must be above 0 and at most {top}, got {number}; {hint}")
    return number


def _noise(value: object) -> float:
    return _within("noise", value, math.inf, "give the standard deviation of the rewards")


def _eta(value: object) -> float:
    hint = "give the smallest eigenvalue of Σ a aᵀ over the dim explored arms, no longer than 1"
    return _within("eta", value, 1.0, hint)


def _delta(value: object, rounds: int = 1) -> float:
    return _within("delta", rounds**-2.0 if value is None else value, 1.0, "try 1 / rounds**2")


def _paper(constants: str) -> bool:
    if constants not in get_args(Constants):
        raise ValueError(f"constants must be 'paper' or 'safe', got {constants!r}")
    return constants == "paper"


def _finished(task: int, constants: str) -> int:
    return count_of("task", task) - (0 if _paper(constants) else 1)


def _spectrum(name: str, cov: ArrayLike, dim: int) -> FloatArray:
    """Eigenvalues in ascending order, 0 for what round-off makes negative."""
    eigenvalues = np.linalg.eigvalsh(checks.covariance(name, cov, count_of("dim", dim)))
    return np.asarray(np.maximum(eigenvalues, 0.0))


def _fit(
    name: str, value: ArrayLike, shape: tuple[int, ...], *, signed: bool = False
) -> FloatArray:
    array = checks.array(name, value) if signed else checks.non_negative(name, value)
    try:
        return np.broadcast_to(array, shape)
    except ValueError:
        raise ValueError(f"{name} must broadcast to shape {shape}, got {array.shape}") from None


def _arms(
    meta_scale: ArrayLike, task_scale: ArrayLike, meta_mean: ArrayLike, arms: int | None
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Both variances and the mean, with one entry an arm."""
    if arms is None:
        arms = max(np.size(value) for value in (meta_scale, task_scale, meta_mean))
        if not any(np.ndim(value) for value in (meta_scale, task_scale, meta_mean)):
            raise ValueError(f"arms is unknown from one number, {meta_scale!r}; give arms")
    shape = (count_of("arms", arms),)
    q, z = _fit("meta_scale", meta_scale, shape), _fit("task_scale", task_scale, shape)
    return q**2, z**2, _fit("meta_mean", meta_mean, shape, signed=True)
