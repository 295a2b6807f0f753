"""A prior from statistics, with a structure that is given or is found by comparing them."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import numpy as np

from adats.learning import fit_arms, linear
from adats.learning.effects import counted, split
from adats.learning.fit_common import FOLDS, Fitted, Point, held_out
from adats.learning.tables import ArmTable, LinearTable
from adats.models.core import linalg
from adats.models.core.types import FloatArray, Rng

Structure = Literal["auto", "independent", "level", "full", "exchangeable", "features"]
SIMPLE = ("exchangeable", "independent", "level", "features", "full")  # the simplest first
ABOUT = {
    "independent": "every arm has a mean and a spread of its own",
    "exchangeable": "names of arms mean nothing; their level and spread are shared",
    "level": "arms have means of their own, and a level that the arms of a task share",
    "full": "any covariance between arms",
    "features": "means follow from features of tasks or arms",
}
TOGETHER = dict.fromkeys(fit_arms.TOGETHER, fit_arms.fit_together)
FITS: dict[str, dict[str, Callable[..., Fitted]]] = {  # by what users call the model, by structure
    "gaussian": {"independent": fit_arms.fit_gaussian, **TOGETHER},
    "binary": {"independent": fit_arms.fit_grid, **TOGETHER},
    "count": {"independent": fit_arms.fit_grid, **TOGETHER},
    "linear": {"independent": linear.fit_linear},
}
COMPARED = 1000  # tasks on which structures are compared, at most
MOST_ARMS = 30  # with any covariance
CLEAR = 2.0  # standard errors that a difference has to exceed
STEP = 1e-4  # of a typical variance: for the difference of two slopes
FLAT = 1e-6  # curvature in the same units, below which an error is infinite


class StructureScore(NamedTuple):
    """How a structure does on tasks that it has not seen."""

    structure: str
    density: FloatArray  # log density of each task's rewards
    value: FloatArray  # mean reward of the arm chosen by half of a task, in the other half
    problem: str = ""  # why it could not be fitted

    @property
    def mean_density(self) -> float:
        return float(self.density.mean()) if self.density.size else -np.inf

    @property
    def mean_value(self) -> float:
        known = self.value[np.isfinite(self.value)]
        return float(known.mean()) if known.size else np.nan


def estimate(
    table: Any,
    *,
    model: str,
    diagonal: bool = False,
    structure: Structure = "independent",
    seed: int = 1,
) -> Fitted:
    """The prior of `model`, one of gaussian, linear, binary and count, from statistics by task.

    `diagonal` is for linear models: Σ_0 without covariances. `structure` is for arms: they are
    "independent"; share a "level" in every task; have any covariance, "full"; are "exchangeable",
    so that their names mean nothing; or their means follow from "features" of tasks and arms.
    "auto" takes what does best on held-out tasks (`compare`).
    """
    check(table, model=model, structure=structure, diagonal=diagonal)
    if structure == "auto":
        structure = chosen(compare(table, seed=seed))
    more: dict[str, Any] = {"diagonal": True} if diagonal else {}
    if structure != "independent":
        more["structure"] = structure
    found = FITS[model][structure](table, **more)
    about = {
        "model": model,
        "tasks": len(table),
        "rows": int(table.pulls.sum()),
        "features": list(table.names) if table.arms is None else None,
        "since": table.since,
        "until": table.until,
        "log_evidence": found.log_evidence,
        "shrinkage": found.shrinkage,
        "structure": structure,
        "unidentified": list(found.unidentified),
        "warnings": list(found.warnings),
    }
    return replace(found, about=about)


def check(table: Any, *, model: str, structure: str = "auto", diagonal: bool = False) -> None:
    """Raise unless there is something to fit, in such a way."""
    if model != table.model:
        raise ValueError(f"these are statistics of a {table.model} log, not of a {model} one")
    if len(table) < 2:
        raise ValueError(f"a fit needs two tasks or more, to see how they differ; got {len(table)}")
    if structure not in ("auto", *ABOUT):
        raise ValueError(f"structure is one of auto, {', '.join(ABOUT)}, got {structure!r}")
    if not table.pulls.any():
        raise ValueError("the log is empty: no task has a reward")
    if structure != "auto" and structure not in FITS[model]:
        raise ValueError(f"a structure is for models with arms, not for a {model} one")
    if diagonal and table.arms is not None:
        raise ValueError("diagonal is for linear models; arms have no covariances")


def compare(table: Any, *, seed: int = 1) -> list[StructureScore]:
    """Every structure that the log allows, on tasks that it was not fitted to.

    Tasks are divided into five folds, and each is scored with a fit to the others: by the log
    density of its rewards, and by the reward in one half of the task of the arm that looks best
    after the other half. At most a thousand tasks are compared.
    """
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(4,)))
    if len(table) > COMPARED:
        table = table.subset(np.sort(rng.choice(len(table), COMPARED, replace=False)))
    names = _possible(table)
    if len(names) == 1 or len(table) < FOLDS:
        return [StructureScore(names[0], np.zeros(0), np.zeros(0))]
    first, second = halves(table, rng)
    scores: list[StructureScore] = []
    for name in names:
        if name == "full" and not _names_matter(scores):
            continue
        density, value = np.empty(len(table)), np.empty(len(table))
        try:
            for train, test in held_out(table.tasks):
                part = table.subset(train)
                found = estimate(part, model=table.model, structure=name)  # type: ignore[arg-type]
                density[test] = found.log_density(table.subset(test))
                value[test] = _value(found.means(first.subset(test)), second.subset(test))
        except ValueError as error:
            scores.append(StructureScore(name, np.zeros(0), np.zeros(0), str(error)))
            continue
        scores.append(StructureScore(name, density, value))
    return scores


def _names_matter(scores: list[StructureScore]) -> bool:
    """Whether a level with arms of their own is clearly better than without: else there is no use
    in covariances between arms, and it takes longest."""
    known = {score.structure: score.density for score in scores if score.density.size}
    if "level" not in known or "exchangeable" not in known:
        return True
    return _clearly(known["level"] - known["exchangeable"])


def _possible(table: Any) -> list[str]:
    names = [name for name in SIMPLE if name in FITS[table.model]]
    if table.arms is None or len(table.arms) == 1:
        return ["independent"]
    if table.task_features is None and table.arm_features is None:
        names.remove("features")
    if len(table.arms) > fit_arms.MOST_TOGETHER:
        return ["independent"]
    if len(table.arms) > MOST_ARMS:
        names.remove("full")
    if table.arms == tuple(range(len(table.arms))) and table.packed:
        return ["exchangeable"]
    return names


def chosen(scores: Sequence[StructureScore]) -> Any:
    """The simplest whose held-out density is not clearly worse than the best one's, unless its
    held-out decisions are clearly worse than that one's."""
    scored = [score for score in scores if score.density.size]
    if not scored:
        return scores[0].structure
    best = max(scored, key=lambda score: score.mean_density)
    near = [score for score in scored if not _clearly(best.density - score.density)]
    for score in near:
        if not _clearly(best.value - score.value):
            return score.structure
    return best.structure


def _clearly(gains: FloatArray) -> bool:
    gains = gains[np.isfinite(gains)]
    if gains.size < 2:
        return False
    return bool(gains.mean() > CLEAR * gains.std(ddof=1) / np.sqrt(gains.size))


def halves(table: Any, rng: Rng) -> tuple[Any, Any]:
    """Each task cut in two at random, such that given theta both halves are independent."""
    count, total, squares = table.table.swapaxes(0, 1)[:3]
    one, _ = split(counted(count, total, table.model, squares), rng)
    first = table.table * (one.pulls / np.maximum(count, 1.0))[:, None]
    first[:, 0], first[:, 1] = one.pulls, one.sums
    if table.kind.MOST == 1.0:
        first[:, 2] = first[:, 1] = np.clip(one.sums, total - count + one.pulls, one.pulls)
    return replace(table, table=first), replace(table, table=table.table - first)


def _value(means: FloatArray, second: Any) -> FloatArray:
    """What the best-looking arm of a task gets in its other half, less what all get there."""
    count, total = second.table[:, 0], second.table[:, 1]
    known = count > 0
    arm = np.where(known, means, -np.inf).argmax(axis=1)
    raw = np.where(known, total / np.where(known, count, 1.0), np.nan)
    return np.where(known.sum(axis=1) > 1, raw[np.arange(len(arm)), arm], np.nan)


# standard errors, from the curvature of the log likelihood at the fit


class Errors(NamedTuple):
    mu: FloatArray
    task_cov: FloatArray
    noise: float


def standard_errors(table: Any, fitted: Fitted) -> Errors:
    """Of mu, Σ_0 and σ, from the observed information about Σ_0 and σ, mu integrated out.

    Infinite where the log tells nothing, zero for covariances that are zero by assumption: those
    of arms and of a diagonal Σ_0. The work is that of one EM step for each entry of Σ_0.
    """
    if fitted.noise is None:
        raise ValueError("a grid of candidates has no standard errors; its weights are the belief")
    of = _of_linear if table.arms is None else _of_arms
    cov, variance = of(table, fitted.task_cov, fitted.noise)
    mu: FloatArray = np.sqrt(fitted.mu_cov.diagonal())
    return Errors(mu, cov, variance / (2 * fitted.noise))


def _of_linear(table: LinearTable, cov: FloatArray, noise: float) -> tuple[FloatArray, float]:
    rows, frame = linear.rows_of(table)
    units = np.outer(frame.unit, frame.unit)
    cov, v = cov / units, (noise / frame.spread) ** 2
    d = len(cov)
    alone = np.array_equal(cov, np.diag(cov.diagonal()))
    pairs = [(i, j) for i in range(d) for j in range(i + 1) if i == j or not alone]
    ways = np.zeros((len(pairs), d, d))  # each adds a square, so that Σ_0 stays a covariance
    for way, (i, j) in zip(ways, pairs, strict=True):
        way[[i, i, j, j], [i, j, i, j]] = 1.0
    typical = float(cov.trace()) / d + v * len(rows.n) / float(rows.n.sum())

    def slopes(at: FloatArray) -> FloatArray:
        moved = cov + np.tensordot(at[:-1], ways, 1) * typical
        view = linear.look(rows, Point(linalg.psd_factor(moved), v + at[-1] * typical))
        along = (ways * view.slope).sum(axis=(1, 2))
        return np.append(along, view.slope_variance) * typical

    errors = _errors(slopes, np.append(ways.reshape(len(ways), -1).T, np.zeros((d * d, 1)), axis=1))
    return errors[:-1].reshape(d, d) * typical * units, errors[-1] * typical * frame.spread**2


def _of_arms(table: ArmTable, cov: FloatArray, noise: float) -> tuple[FloatArray, float]:
    pulls, frame = fit_arms.pulls_of(table)
    square = frame.spread**2
    variances, v = cov.diagonal() / square, noise**2 / square
    typical = float(variances.mean()) + v

    def slopes(at: FloatArray) -> FloatArray:
        scales = np.sqrt(variances + at[:-1] * typical)
        view = fit_arms.look(pulls, Point(scales, v + at[-1] * typical))
        return np.append(view.slope, view.slope_variance) * typical

    errors = _errors(slopes, np.eye(len(variances), len(variances) + 1))
    return np.diag(errors[:-1]) * typical * square, errors[-1] * typical * square


def _errors(slopes: Callable[[FloatArray], FloatArray], shown: FloatArray) -> FloatArray:
    """Errors of the combinations in the rows of `shown`, and of the last coordinate."""
    size = shown.shape[1]
    here = slopes(np.zeros(size))
    bend = np.array([here - slopes(STEP * e) for e in np.eye(size)]) / STEP
    values, vectors = np.linalg.eigh((bend + bend.T) / 2)
    parts = np.vstack([shown, np.eye(size)[-1]]) @ vectors
    flat = values <= FLAT
    endless = (parts[:, flat] ** 2).sum(axis=1) > FLAT
    finite = (parts[:, ~flat] ** 2 / values[~flat]).sum(axis=1)
    return np.where(endless, np.inf, np.sqrt(finite))
