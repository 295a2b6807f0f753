"""Spreads of tasks learned from all of them at once: by evidence, mu integrated out.

Two steps take turns. With the spreads as they are, sites are settled and mu is conditioned on them
(expectation propagation). With the sites as they are, the model is the linear one, and the spreads
go to where the evidence is largest, but no further than the sites can be trusted.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np

from adats.models.core import linalg
from adats.models.core.stats import ArmStats
from adats.models.core.types import Design, FloatArray
from adats.models.latent import sites as ep
from adats.models.latent.base import framed
from adats.models.latent.family import Family
from adats.models.latent.full import FullSpread
from adats.models.latent.level import LevelSpread

CHUNK = 1024  # tasks at a time: what is worked out on the way stays small
START = 0.3  # of both spreads
LEAST, MOST = math.log(1e-3), math.log(10.0)  # logarithms of spreads
ENOUGH = 0.01  # gain of the evidence, in nats, at which the search ends
STEPS = 100  # at most
REACH, SHORTEST = 1.0, 1e-3  # of a step, in logarithms of spreads
ROUNDS, CLOSE = 10, 0.1  # of sites and mu, until mu moves by less of its standard deviation
KEPT = 5e7  # numbers, about: messages that are needed twice and are more than these are made twice
INNER = 20  # iterations with the sites as they are


@dataclass(frozen=True, eq=False)
class Log:
    """Pulls and summed rewards of all tasks, and what is believed of mu without them."""

    family: Family
    n: FloatArray  # (tasks, arms)
    s: FloatArray
    mean: FloatArray  # mu_q
    cov: FloatArray  # Σ_q
    design: Design = None  # Φ: one for all tasks, or one for each along a first axis

    @cached_property
    def frame(self) -> FloatArray:
        return linalg.frames(self.mean[None], linalg.psd_factor(self.cov)[None])

    @cached_property
    def designs(self) -> FloatArray | None:
        """Always with a first axis."""
        phi = self.design
        return phi[None] if phi is not None and phi.ndim == 2 else phi

    def chunks(self) -> Iterator[slice]:
        return (slice(i, i + CHUNK) for i in range(0, len(self.n), CHUNK))

    def settled(self, part: slice, prior: ep.SitePrior, start: FloatArray) -> FloatArray:
        """The sites of some tasks under a prior."""
        return ep.settled(self.family, self.n[part], self.s[part], prior, start)

    def pooled(self) -> FloatArray:
        """eta of every arm if all tasks were one."""
        n, s = self.n.sum(axis=0), self.s.sum(axis=0)
        rate = (s.sum() + 0.5) / (n.sum() + 1.0)
        eta: FloatArray = self.family.eta((s + rate) / (n + 1.0))
        return eta

    def of_arms(self, value: FloatArray, part: slice) -> FloatArray:
        """Φ times a vector or a matrix, of some tasks; it has a first axis."""
        if self.designs is None:
            return value[None]
        found: FloatArray = (self.designs[part] if len(self.designs) > 1 else self.designs) @ value
        return found


def gathered(
    family: Family,
    mean: FloatArray,
    cov: FloatArray,
    tasks: Sequence[tuple[ArmStats, FloatArray | None]],
    design: Design,
) -> Log:
    """The statistics of tasks, each with a design of its own or with that of all."""
    tables = [stats.table[:2] for stats, _ in tasks]
    if not any(table[0].any() for table in tables):
        raise ValueError("no task has a reward yet: there is nothing to learn spreads from")
    sizes = {table.shape[1] for table in tables}
    if len(sizes) > 1:
        raise ValueError(
            f"a covariance of arms needs the same arms everywhere, got {sizes} of them"
        )
    if any(own is not None for _, own in tasks):
        own = [design if one is None else one for _, one in tasks]
        design = np.array([np.eye(len(mean)) if one is None else one for one in own])
    n, s = np.stack(tables, axis=1)
    return Log(family, n, s, mean, cov, design)


class Learned(NamedTuple):
    """Spreads, and what is known of mu and of every task with them."""

    spread: LevelSpread | FullSpread
    mean: FloatArray  # of mu, and its covariance
    cov: FloatArray
    sites: FloatArray  # (3, tasks, arms)
    log_evidence: float
    curve: FloatArray  # what was made as large as possible, by step


class Parametrisation(NamedTuple):
    """How spreads depend on the numbers that the search moves, and what is believed of those."""

    spread: Callable[[FloatArray], LevelSpread | FullSpread]
    slope: Callable[[FloatArray, FloatArray], FloatArray]  # from the slope by Σ_0
    prior: Callable[[FloatArray], tuple[float, FloatArray]]  # log density, and its slope


def learn_level(log: Log, own: float = START, shared: float = START) -> Learned:
    """σ_0 and τ of the covariance σ_0² I + τ² 11ᵀ, from a first guess.

    Each has the prior density σ exp(-σ), which keeps it off 0 and off infinity and moves it by less
    than its standard error. A single arm has no level: σ_0 is all.
    """
    single = log.n.shape[1] == 1

    def spread(at: FloatArray) -> LevelSpread:
        squares = np.exp(2 * at)
        return LevelSpread(squares[:1, None], np.zeros((1, 1)) if single else squares[1:, None])

    def slope(at: FloatArray, by_cov: FloatArray) -> FloatArray:
        both = np.array([by_cov.trace(), by_cov.sum()])
        found: FloatArray = 2 * np.exp(2 * at) * both[: at.size]
        return found

    def prior(at: FloatArray) -> tuple[float, FloatArray]:
        scale = np.exp(at)
        return float((at - scale).sum()), 1.0 - scale

    guess = np.array([own] if single else [own, shared])
    first = np.clip(np.log(np.maximum(guess, 1e-300)), math.log(0.02), MOST)
    return _climb(log, Parametrisation(spread, slope, prior), first)


def learn_full(log: Log, around: Learned) -> Learned:
    """Any Σ_0, with an inverse Wishart prior around the one that was learned with a level.

    The prior counts as much as K + 2 tasks, with K arms, whose theta was seen exactly.
    """
    arms = log.n.shape[1]
    weight = arms + 2.0
    base = linalg.psd_factor(around.spread.covs(arms)[0])
    below = np.tril_indices(arms)
    diagonal = below[0] == below[1]

    def matrix(at: FloatArray) -> FloatArray:
        """A, lower triangular, of which the logarithms of the diagonal are moved: Σ_0 = BAAᵀBᵀ."""
        a = np.zeros((arms, arms))
        a[below] = np.where(diagonal, np.exp(at), at)
        return a

    def spread(at: FloatArray) -> FullSpread:
        factor = (base @ matrix(at))[None]
        return FullSpread(factor, factor @ factor.transpose(0, 2, 1))

    def moved(a: FloatArray, slope: FloatArray) -> FloatArray:
        by_entry: FloatArray = slope[below]
        return np.where(diagonal, by_entry * a[below], by_entry)

    def slope(at: FloatArray, by_cov: FloatArray) -> FloatArray:
        a = matrix(at)
        return moved(a, 2 * base.T @ by_cov @ base @ a)

    def prior(at: FloatArray) -> tuple[float, FloatArray]:
        a = matrix(at)
        inverse = linalg.solved(a, np.eye(len(a)))
        value = -weight * (at[diagonal].sum() + 0.5 * ((inverse**2).sum() - arms))
        by_a = weight * (inverse.T @ inverse @ inverse.T - np.diag(1 / a.diagonal()))
        return float(value), moved(a, by_a)

    return _climb(log, Parametrisation(spread, slope, prior), np.zeros(diagonal.size), around)


def _climb(
    log: Log, form: Parametrisation, at: FloatArray, start: Learned | None = None
) -> Learned:
    """From `at` to the largest sum of evidence and prior density."""
    now = _settled(log, form.spread(at), start)
    curve, reach = [now.log_evidence + form.prior(at)[0]], REACH
    for _ in range(STEPS):
        goal = _goal(log, form, at, now.sites, curve[-1], reach)
        new = _settled(log, form.spread(goal), now)
        value = new.log_evidence + form.prior(goal)[0]
        gain = value - curve[-1]
        if gain > -ENOUGH:
            at, now, reach = goal, new, min(2 * reach, REACH)
            curve.append(value)
            if gain < ENOUGH:
                break
        else:  # the sites were not to be trusted so far away
            reach = min(reach, float(np.abs(goal - at).max())) / 4
            if reach < SHORTEST:
                break
    return now._replace(curve=np.array(curve))


def _goal(
    log: Log, form: Parametrisation, at: FloatArray, sites: FloatArray, here: float, reach: float
) -> FloatArray:
    """Where evidence and prior density are largest with these sites, no further than `reach`."""
    from scipy.optimize import Bounds, minimize

    def loss(x: FloatArray) -> tuple[float, FloatArray]:
        log_prior, slope = form.prior(x)
        value, by_cov = _slope(log, form.spread(x), sites)
        return here - value - log_prior, -form.slope(x, by_cov) - slope

    bounds = Bounds(np.maximum(at - reach, LEAST), np.minimum(at + reach, MOST))
    options: Any = {"maxiter": INNER, "ftol": 0.1 * ENOUGH}
    found = minimize(loss, at, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    goal: FloatArray = found.x
    return goal


def _settled(log: Log, spread: LevelSpread | FullSpread, start: Learned | None) -> Learned:
    """Sites and mu in turns, until both fit."""
    sites = np.zeros((3, *log.n.shape)) if start is None else start.sites
    mean, cov = (None, None) if start is None else (start.mean, start.cov)
    for _ in range(ROUNDS):
        found = np.empty(sites.shape)
        for part in log.chunks():
            prior = spread.prior(*_around(log, mean, cov, part))
            found[:, part] = log.settled(part, prior, sites[:, part])
        sites, mu = found, _mu(log, _total(log, _messages(log, spread, found)))
        half = mu.halves()
        old, mean, cov = mean, mu.means(half)[0], half[0].T @ half[0]
        if old is not None and (np.abs(mean - old) <= CLOSE * np.sqrt(cov.diagonal())).all():
            break
    assert mean is not None
    assert cov is not None
    return Learned(spread, mean, cov, sites, float(mu.log_integral[0]), np.zeros(0))


def _around(
    log: Log, mean: FloatArray | None, cov: FloatArray | None, part: slice
) -> tuple[FloatArray, FloatArray]:
    """Where sites have to fit: mean and covariance of each task's Φ mu, or first of the arms."""
    if mean is None or cov is None:
        arms = log.n.shape[1]
        return log.pooled()[None], np.zeros((1, arms, arms))
    half = log.of_arms(linalg.psd_factor(cov), part)
    return log.of_arms(mean, part), half @ np.swapaxes(half, -1, -2)


def _messages(
    log: Log, spread: LevelSpread | FullSpread, sites: FloatArray
) -> Iterator[tuple[slice, FloatArray]]:
    """T of every task, in chunks, before any design."""
    for part in log.chunks():
        some = sites[:, part]
        found = np.empty((some.shape[1], some.shape[2] + 1, some.shape[2] + 1))
        spread.message(some, found)
        yield part, found


def _total(log: Log, messages: Iterable[tuple[slice, FloatArray]]) -> FloatArray:
    """Σ ΦᵀTΦ over all tasks: what they say of (mu, 1)."""
    size = log.mean.size + 1
    total = np.zeros((size, size))
    for part, found in messages:
        if log.designs is None:
            total += found.sum(axis=0)
            continue
        phi = log.designs[part] if len(log.designs) > 1 else log.designs
        total += framed(found, phi).sum(axis=0)
    return total


def _mu(log: Log, total: FloatArray) -> linalg.Gaussians:
    frame = log.frame
    turned = np.ascontiguousarray(np.swapaxes(frame, -1, -2))
    return linalg.condition_all(frame, turned, total[None])


def _slope(
    log: Log, spread: LevelSpread | FullSpread, sites: FloatArray
) -> tuple[float, FloatArray]:
    """The evidence with these sites, and its derivative ½ Σ (ggᵀ - M + MCM) by Σ_0.

    With g = h - M mean, and mean and C those of mu: as in the linear model (docs/math/fitting.md).
    """
    messages = partial(_messages, log, spread, sites)
    kept = list(messages()) if sites.size * sites.shape[-1] < KEPT else None
    mu = _mu(log, _total(log, kept or messages()))
    half = mu.halves()
    mean, factor = mu.means(half)[0], half[0].T
    arms = sites.shape[-1]
    slope = np.zeros((arms, arms))
    for part, found in kept or messages():
        m = found[:, :-1, :-1]
        score = -found[:, -1, :-1] - (m @ log.of_arms(mean, part)[..., None])[..., 0]
        known = (m @ log.of_arms(factor, part)).transpose(1, 0, 2).reshape(arms, -1)
        slope += score.T @ score - m.sum(axis=0) + known @ known.T
    return float(mu.log_integral[0]), 0.5 * slope
