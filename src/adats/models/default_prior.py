"""A prior for people who have none: wide, and learned from the first task on."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from adats.models import BetaArms, GaussianMeta, LinearMeta, MixtureMeta, ModelMixture, PoissonArms
from adats.models.core import checks
from adats.models.core.errors import InvalidValue
from adats.models.core.names import arm_names
from adats.models.core.types import Arm, FloatArray
from adats.models.latent.family import FAMILIES
from adats.models.latent.meta import LatentMeta
from adats.models.latent.row_meta import LatentLinearMeta

# rates from 1 in 1,000 to 999 in 1,000, evenly on the logit scale at the ends
RATES = (0.001, 0.003, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5)
STRENGTHS = (2.0, 5.0, 15.0, 50.0, 150.0, 500.0)  # pulls that the task prior is worth
FACTORS = (0.03, 0.1, 0.2, 0.35, 0.6, 1.0, 1.7, 3.0, 5.0, 10.0, 30.0)  # of the typical count
BASE_SCALE = 2.5  # of the log-odds, or the logarithm, of the base rate
SPREADS = {0.03: 24.0, 0.2: 3.0, 0.8: 1.0, 2.0: 2.0}  # candidates for that of tasks: their odds
EARLIER_SPREADS = {0.02: 27.0, 0.06: 9.0, 0.2: 3.0, 0.8: 1.0}  # of experiments that began with them
LEVELS = (0.1, 0.7)  # for that of the level which the arms of a task share
ARM_SCALE = 0.8  # of arms
TYPICAL_RATE = 0.12
TASK_SCALES = (0.03, 0.1, 0.3, 1.0)  # of the rough scale of rewards
NOISES = (0.1, 0.3, 1.0, 3.0)
COEFFICIENT = 2.65  # of a feature: 1 in 200 has log-odds of twice that
COEFFICIENT_SPREADS = (0.02, 0.06, 0.2, 0.8)  # candidates for that of tasks, with features
ATTRIBUTE = 1.0  # of what an attribute of tasks adds to the log-odds, or the logarithm, of all arms
KINDS = "must be 'binary', 'count' or 'number', got {!r}"


def default_prior(
    *,
    arms: Sequence[Arm] | None = None,
    dim: int | None = None,
    rewards: Literal["binary", "count", "number"],
    typical: float | None = None,
    scale: float | None = None,
    attributes: int = 0,
) -> Any:
    """A meta-prior that needs no knowledge of the problem, or hardly any.

    For `arms`. `binary` rewards (0 or 1): log-odds of arms are Gaussian in every task, around
    means that are learned, and so is by how much tasks differ and whether their arms move
    together. `count` rewards (0, 1, 2, ...): the same with logarithms, around a `typical` count (1
    unless given). `number`: Gaussian models with different spread of tasks and noise, around the
    `typical` reward (0 unless given), on a rough `scale` by which rewards differ, which has to be
    given.

    Or for arms with `dim` features, roughly between -2 and 2, of which one should be 1 for all
    arms. `binary` and `count`: log-odds, or the logarithm of the mean, are linear in them.
    `number`: rewards are. Tasks differ by one of a few spreads.

    With `attributes`, so many numbers z are known of each task, also between -2 and 2, and what
    they add to every entry of theta is learned: give `design=np.kron([1, *z], np.eye(size))`.

    >>> prior = default_prior(arms=["red", "blue"], rewards="binary")
    >>> prior.mean.round(2)
    array([0.27, 0.27])
    >>> default_prior(dim=3, rewards="binary").mean
    array([0., 0., 0.])
    """
    more = checks.count_of("attributes", attributes, least=0)
    if dim is not None:
        if arms is not None:
            raise ValueError("give arms, a list of names, or dim, the number of features; not both")
        return _with_features(checks.count_of("dim", dim), rewards, typical, scale, more)
    if arms is None or arm_names(arms) is None:
        raise InvalidValue("arms", "is a list of names, got None")
    if rewards == "binary":
        if typical is not None or scale is not None:
            raise ValueError("binary rewards need neither typical nor scale")
        return level_prior(arms, rewards, attributes=more)
    if rewards == "count":
        if scale is not None:
            raise ValueError("counts need no scale; give a typical count")
        return level_prior(arms, rewards, typical=_typical_count(typical), attributes=more)
    if rewards == "number":
        size = _checked_scale(scale)
        centre = checks.number("typical", 0.0 if typical is None else typical)
        if more:
            return _linear(len(arms), size, more, centre, tuple(arms))
        models = [
            GaussianMeta(centre, size, task_scale=t * size, noise=n * size, arms=arms)
            for t in TASK_SCALES
            for n in NOISES
        ]
        return ModelMixture(np.full(len(models), 1 / len(models)), models)
    raise InvalidValue("rewards", KINDS.format(rewards))


def _with_features(dim: int, rewards: str, typical: Any, scale: Any, attributes: int) -> Any:
    """Of an unknown linear function, whose coefficients in tasks differ by one of a few spreads."""
    if typical is not None:
        raise ValueError("with features nothing is typical; let one of them be 1 for all arms")
    if rewards in ("binary", "count"):
        if scale is not None:
            raise ValueError(f"{rewards} rewards need no scale")
        return LatentLinearMeta(
            np.zeros(dim * (1 + attributes)),
            COEFFICIENT**2,
            task_scale=COEFFICIENT_SPREADS,
            rewards=rewards,
            design=_design(dim, attributes),
        )
    if rewards == "number":
        return _linear(dim, _checked_scale(scale), attributes)
    raise InvalidValue("rewards", KINDS.format(rewards))


def _linear(
    dim: int, size: float, attributes: int, centre: float = 0.0, arms: tuple[Arm, ...] | None = None
) -> ModelMixture:
    mean, design = np.zeros(dim * (1 + attributes)), _design(dim, attributes)
    mean[:dim] = centre
    models = [
        LinearMeta(
            mean, size**2, task_cov=(t * size) ** 2, noise=n * size, design=design, arms=arms
        )
        for t in TASK_SCALES
        for n in NOISES
    ]
    return ModelMixture(np.full(len(models), 1 / len(models)), models)


def _design(size: int, attributes: int) -> FloatArray | None:
    """Of a task whose attributes are 0."""
    return np.eye(size, size * (1 + attributes)) if attributes else None


def _checked_scale(scale: Any) -> float:
    if scale is None:
        raise ValueError("for number rewards give scale, roughly how much rewards differ")
    return checks.positive_number("scale", scale)


def level_prior(
    arms: Sequence[Arm],
    rewards: str,
    *,
    task_scales: Mapping[float, float] = SPREADS,
    level_scales: Sequence[float] = LEVELS,
    arm_scale: float = ARM_SCALE,
    typical: float = TYPICAL_RATE,
    attributes: int = 0,
) -> LatentMeta:
    """All combinations of these spreads as candidates, around a base rate that may be anything.

    mu_i is a level of all tasks, around the `typical` mean reward, plus the arm's own part. The
    task scales come with their odds: small ones are likelier, as that tasks are alike is hard to
    see in clicks, and that they are not is soon seen.
    """
    own, level = (grid.ravel() for grid in np.meshgrid(list(task_scales), level_scales))
    odds = np.tile(list(task_scales.values()), len(level_scales))
    size = len(arms)
    mean = np.zeros(size * (1 + attributes))
    mean[:size] = FAMILIES[rewards].eta(typical)
    shared = np.diag([BASE_SCALE**2, *[ATTRIBUTE**2] * attributes])
    return LatentMeta(
        mean,
        arm_scale**2 * np.eye(mean.size) + np.kron(shared, np.ones((size, size))),
        task_scale=own,
        level_scale=level,
        weights=odds / odds.sum(),
        rewards=rewards,
        design=_design(size, attributes),
        arms=tuple(arms),
    )


def grid_prior(
    *, arms: Sequence[Arm], rewards: Literal["binary", "count"], typical: float | None = None
) -> MixtureMeta:
    """The default prior of version 0.1: every arm by itself, with a grid of candidates.

    `binary` rewards: beta priors, mean by strength. `count` rewards: gamma priors, the same around
    a `typical` count (1 unless given).

    >>> grid_prior(arms=["red", "blue"], rewards="binary").mean.round(2)
    array([0.5, 0.5])
    """
    if arm_names(arms) is None:
        raise InvalidValue("arms", "is a list of names, got None")
    if rewards == "binary":
        if typical is not None:
            raise ValueError("binary rewards need no typical one")
        rates = np.array([*RATES, *(1 - r for r in RATES[-2::-1])])
        mean, strength = (grid.ravel() for grid in np.meshgrid(rates, STRENGTHS))
        return _grid(arms, BetaArms, mean * strength, (1 - mean) * strength)
    if rewards == "count":
        centre = _typical_count(typical)
        factor, strength = (grid.ravel() for grid in np.meshgrid(FACTORS, STRENGTHS))
        rate = strength / 10  # pseudo-pulls
        return _grid(arms, PoissonArms, factor * centre * rate, rate)
    raise InvalidValue("rewards", f"must be 'binary' or 'count', got {rewards!r}")


def _typical_count(typical: float | None) -> float:
    given = checks.number("typical", 1.0 if typical is None else typical)
    return float(checks.positive("typical", given))


def _grid(arms: Sequence[Arm], family: Any, *parameters: Any) -> MixtureMeta:
    """The same grid of candidates for every arm, each with a categorical of its own."""
    shape = (parameters[0].size, len(arms))
    priors = family(*(np.broadcast_to(p[:, None], shape) for p in parameters))
    return MixtureMeta(np.full(shape, 1 / shape[0]), priors, arms=arms)
