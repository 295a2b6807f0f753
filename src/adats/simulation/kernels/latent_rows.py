"""Clicks and counts where arms are rows of features, under several candidates at once.

Each candidate's posterior of theta is kept as a mean and a factor of the covariance. A reward
renews the site of its row, a rank-one change; when the pulls have doubled, all are renewed.
"""

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from adats.models.core.linalg import times
from adats.models.core.types import FloatArray
from adats.models.latent import full
from adats.models.latent.row_belief import LatentRows
from adats.models.latent.row_meta import LatentLinearMeta
from adats.models.latent.row_stats import RowSites
from adats.models.latent.sites import LEAST_VARIANCE
from adats.simulation.kernels.common import Policy, World, compiled, fresh, pick_by_logs, reward
from adats.simulation.kernels.factors import candidates_of, draw, factorised, narrow
from adats.simulation.kernels.latent import greedy_arm, index_arm, normalise
from adats.simulation.kernels.latent_sites import derivatives, site
from adats.simulation.kernels.linear import dot
from adats.simulation.kernels.registry import FAR, GREEDY, TS, LoopInput

if TYPE_CHECKING:
    from adats.models.core.types import Rng
    from adats.simulation.problems.clicks import FeatureClicksProblem

SWEEPS, SETTLED = 12, 1e-6  # at most; until no mean of eta moves by more variances


@compiled
def at_row(
    x: FloatArray, mean: FloatArray, upper: FloatArray, own: FloatArray
) -> tuple[float, float]:
    """Mean and variance of eta = xᵀtheta; `own` becomes Ux."""
    for j in range(x.size):
        own[j] = 0.0
        for i in range(j, x.size):
            own[j] += upper[j, i] * x[i]
    return dot(mean, x), dot(own, own)


@compiled
def change(
    m: float,
    v: float,
    more: float,
    shift: float,
    mean: FloatArray,
    upper: FloatArray,
    room: FloatArray,
) -> float:
    """Let w and b of a site grow by `more` and `shift`, where `at_row` gave m, v and room[0].

    Gives the log of what exp(shift·eta - ½ more·eta²) integrates to.
    """
    grown = 1.0 + more * v
    step, moved = (shift - more * m) / grown, room[1]
    narrow(upper, room[0], mean.size, more / grown, 1.0 / grown, moved)
    for i in range(mean.size):
        mean[i] += moved[i] * step
    return 0.5 * ((2.0 * m + v * shift) * shift - m * m * more) / grown - 0.5 * math.log(grown)


@compiled
def renew(
    counts: bool,
    n: float,
    s: float,
    x: FloatArray,
    site_of_row: FloatArray,
    mean: FloatArray,
    upper: FloatArray,
    room: FloatArray,
) -> tuple[float, float]:
    """Renew the site of the row x, which has n pulls with the sum s, under one candidate.

    Gives what the log evidence grows by, and the square of the change of eta's mean in variances.
    """
    m, v = at_row(x, mean, upper, room[0])
    w, b, old = site_of_row
    left = max(1.0 - w * v, 1e-12)
    cavity = max(v / left, LEAST_VARIANCE)
    new_w, new_b, log_s = site(counts, n, s, (m - v * b) / left, cavity, w, b)
    gain = log_s - old + change(m, v, new_w - w, new_b - b, mean, upper, room)
    site_of_row[0], site_of_row[1], site_of_row[2] = new_w, new_b, log_s
    gap = dot(mean, x) - m
    return gain, gap * gap / max(v, LEAST_VARIANCE)


@compiled
def row_task(
    counts: bool,
    log_weights: FloatArray,
    means: FloatArray,
    covs: FloatArray,
    policy: Policy,
    features: FloatArray,
    world: World,
    rng: "Rng",
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Thompson sampling or an index; fills regret and actions.

    `features` has one set of arms, or one a round. Gives rows, their statistics and their sites,
    and the log weights of the candidates.
    """
    theta, first, draws, regret, actions = world
    number, levels, counted, _ = policy
    candidates, dim = means.shape
    arms, rounds, fixed = features.shape[1], regret.size, len(features) == 1
    kept = arms if fixed else rounds
    rows = features[0].copy() if fixed else np.zeros((rounds, dim))
    table, sites = np.zeros((3 if counts else 2, kept)), np.zeros((candidates, kept, 3))
    logs, mean, upper = candidates_of(log_weights, means, covs)
    weights = np.empty(candidates)
    point, room = np.empty(dim), np.empty((2, dim))
    etas, variances = np.zeros((candidates, arms)), np.zeros((candidates, arms))
    rates, best = np.empty(arms), 0.0
    for t in range(rounds):
        shown = features[0 if fixed else t]
        if t == 0 or not fixed:
            for k in range(arms):
                rates[k] = derivatives(counts, dot(shown[k], theta))[0]
            best = rates.max()
        if t < len(first):
            arm = first[t, 0]
        elif number == TS:
            j = pick_by_logs(logs, weights, rng.random()) if candidates > 1 else 0
            draw(mean[j], upper[j], rng, point)
            arm, highest = 0, -np.inf
            for k in range(arms):
                value = dot(shown[k], point)
                if value > highest:
                    arm, highest = k, value
        else:
            for j in range(candidates):
                if logs[j] > -np.inf:
                    for k in range(arms):
                        etas[j, k], variances[j, k] = at_row(shown[k], mean[j], upper[j], room[0])
            if number == GREEDY:
                arm = greedy_arm(counts, logs, etas, variances)
            else:
                normalise(logs, weights)
                now = (number, levels[t], rounds - t)
                arm = index_arm(now, counted, counts, weights, etas, variances)
        place = arm if fixed else t
        rows[place] = shown[arm]
        y = reward(counts, rates[arm], draws[t])
        if counts:
            table[2, place] += math.lgamma(y + 1.0)
        table[0, place] += 1.0
        table[1, place] += y
        doubled = (t + 1) & t == 0 or t == 2  # as `doublings` has it
        for j in range(candidates):
            if logs[j] == -np.inf:
                continue
            for k in range(0 if doubled else place, kept if doubled else place + 1):
                if table[0, k] > 0.0:
                    n, s = table[0, k], table[1, k]
                    own = sites[j, k]
                    logs[j] += renew(counts, n, s, rows[k], own, mean[j], upper[j], room)[0]
        regret[t], actions[t] = best - rates[arm], arm
    return rows, table, sites, logs


@compiled
def settle(
    counts: bool,
    rows: FloatArray,
    table: FloatArray,
    mean: FloatArray,
    cov: FloatArray,
    sites: FloatArray,
) -> None:
    """As `sites.settled`, one row after another, under one candidate; `sites` has a row each.

    `mean` and `sites` are changed.
    """
    upper, room = factorised(cov), np.empty((2, mean.size))
    for k in range(len(rows)):
        m, v = at_row(rows[k], mean, upper, room[0])
        change(m, v, sites[k, 0], sites[k, 1], mean, upper, room)
    for _ in range(SWEEPS):
        most = 0.0
        for k in range(len(rows)):
            n, s = table[0, k], table[1, k]
            _, gap = renew(counts, n, s, rows[k], sites[k], mean, upper, room)
            most = max(most, gap)
        if most < SETTLED:
            break


def play(problem: "FeatureClicksProblem", task: LoopInput) -> RowSites | None:
    features = task.instance.features
    if features is None:
        raise ValueError("an instance of clicks with features has features")
    if task.policy.delay or (task.policy.number == FAR and len(features) > 1):
        return None
    prior: LatentRows = task.prior
    given, policy = stacked(prior), task.policy.fields()
    rows, table, *_ = row_task(problem.counts, *given, policy, features, task.world(), task.rng)
    return problem.meta().empty().with_table(rows, table)


def stacked(prior: LatentRows) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Log weights, means and covariances of all candidates."""
    covs = np.matmul(prior.factor, np.swapaxes(prior.factor, -1, -2))
    logs, means, covs = fresh(prior.log_weights, prior.theta, covs)
    return logs, means, covs


def settled(meta: LatentLinearMeta, stats: RowSites) -> RowSites:
    """The statistics with the sites that the meta-belief's anchor gives them."""
    prior: Any = meta.anchor.prior
    count = meta.log_weights.size
    none = full.site_sums(np.zeros((3, count, 0)), stats.rows[:0], stats.frozen)
    covs, _ = full.covariances(prior.factor, none.gram)
    means = prior.mean + times(covs, none.shift - times(none.gram, prior.mean))
    sites = np.moveaxis(stats.sites_of(count), 0, -1).copy()
    rows, table = fresh(stats.rows, stats.table)
    for j in range(count):
        settle(meta.family.counts, rows, table, means[j], covs[j], sites[j])
    return stats.with_sites(np.moveaxis(sites, -1, 0).copy(), meta.anchor.number)
