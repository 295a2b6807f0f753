"""Rates as the sum of three effects: of the arm, of the task, and of the two together.

    η_tk = a_k + l_t + e_tk,   a_k ~ N(m, ω²),   l_t ~ N(0, τ²),   e_tk ~ N(0, σ_0²)

with η the mean of numbers, the log-odds of clicks or the logarithm of counts. Clicks and counts
are linearised around η̂: their working mean η̂ + (y − p)/V(p) has variance 1/V(p)/n. So all is in
closed form but the three spreads, which are on a grid. Formulas: docs/math/verdict.md.
"""

import math
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy.special import expit, logit, logsumexp, roots_genlaguerre

from adats.learning.fit_common import start_noise
from adats.models.core.types import BoolArray, FloatArray, IntArray, Rng

Rewards = Literal["binary", "count", "gaussian"]
COARSE = np.array([0.0, 0.03, 0.08, 0.16, 0.3, 0.5, 0.8, 1.2, 1.8])  # of the first grid of spreads
FINE = 7  # points of the later ones
FINER = 2  # how often the grid is laid anew
WITHIN = 8.0  # log evidence below the best where it still matters
WIDE = 10.0  # standard deviation of m, in units of the spread of means
PRIOR_SUCCESSES = 2.0  # by which the first levels of tasks and arms are smoothed
MOST_LOG = 30.0  # of a count's mean
LEAST_VARIANCE = 1e-9
TAILS = np.array([3.0, 4.0, 6.0, 12.0, math.inf])  # of e: degrees of freedom of a t distribution
TAIL_PRIOR = np.array([0.1, 0.1, 0.1, 0.1, 0.6])
TAIL_CELLS = 4000  # at most, that tell the tails
FURTHEST = 1.0  # that η̂ moves in one step
STEPS = 8  # of η̂ until it has settled


class TaskCounts(NamedTuple):
    """Pulls and rewards of every task and arm, 0 where an arm does not occur."""

    pulls: FloatArray  # (tasks, arms)
    sums: FloatArray
    rewards: Rewards
    noise: float  # variance of gaussian rewards
    lengths: FloatArray  # (tasks,): pulls of a new task like this one
    offered: BoolArray | None = None  # (tasks, arms): the arms to choose from; None: those pulled

    @property
    def here(self) -> BoolArray:
        """The arms that each task can choose from."""
        return self.pulls > 0 if self.offered is None else self.offered

    @property
    def means(self) -> FloatArray:
        """Of the rewards; 0 where there are none."""
        means: FloatArray = self.sums / np.where(self.pulls > 0, self.pulls, 1.0)
        return means

    def take(self, rows: IntArray | slice) -> "TaskCounts":
        """Some tasks."""
        return self._replace(
            pulls=self.pulls[rows],
            sums=self.sums[rows],
            lengths=self.lengths[rows],
            offered=None if self.offered is None else self.offered[rows],
        )

    def lasting(self, lengths: FloatArray) -> "TaskCounts":
        """New tasks like these have so many pulls."""
        return self._replace(lengths=np.maximum(np.round(lengths), 1.0))


class Working(NamedTuple):
    """Counts as normal means: of η, with variance phi/n."""

    pulls: FloatArray  # (tasks, arms)
    means: FloatArray  # 0 where there are none
    phi: FloatArray

    def take(self, rows: IntArray) -> "Working":
        """Some tasks."""
        return Working(*(part[rows] for part in self))


class Prior(NamedTuple):
    """What a sampler believes of a new task: N(mean, diag(spread) + level 11ᵀ), variances."""

    mean: FloatArray  # (arms,) or (tasks, arms)
    spread: FloatArray
    level: float | FloatArray = 0.0  # or (tasks, 1)


class Spreads(NamedTuple):
    """Variances: of tasks and arms together, of levels, and of arms."""

    own: float
    level: float
    arms: float


class Effects(NamedTuple):
    """The posterior: nodes of a grid of spreads, the arms' effects normal at each of them."""

    weight: FloatArray  # (nodes,)
    scales: FloatArray  # (nodes, 3): σ_0, τ, ω
    steps: FloatArray  # (3,): how far nodes are apart
    mean: FloatArray  # (nodes, arms): of a
    cov: FloatArray  # (nodes, arms, arms)

    @property
    def spreads(self) -> Spreads:
        """Posterior means of the variances."""
        return Spreads(*(self.weight @ self.scales**2).tolist())

    @property
    def prior(self) -> Prior:
        """Of a new task, all that is uncertain integrated out (arms kept independent)."""
        mean = self.weight @ self.mean
        around = np.einsum("mkk->mk", self.cov) + (self.mean - mean) ** 2
        spread = self.weight @ (self.scales[:, :1] ** 2 + around)
        return Prior(mean, spread, float(self.weight @ self.scales[:, 1] ** 2))

    def draws(self, rng: Rng, size: int) -> tuple[FloatArray, FloatArray, FloatArray]:
        """a (size, arms), σ_0 and τ (size,): what the log leaves possible."""
        node = rng.choice(len(self.weight), size, p=self.weight)
        scales = self.scales[node] + self.steps * (rng.random((size, 3)) - 0.5)
        scales = np.where(self.scales[node] > 0, np.abs(scales), 0.0)
        met, back = np.unique(node, return_inverse=True)
        values, vectors = np.linalg.eigh(self.cov[met])
        factor = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]
        z = rng.standard_normal((size, self.mean.shape[1]))
        a = self.mean[node] + np.einsum("mij,mj->mi", factor[back], z)
        return a, scales[:, 0], scales[:, 1]


def rate(rewards: Rewards, eta: FloatArray) -> FloatArray:
    """The mean of a reward."""
    if rewards == "gaussian":
        return eta
    found: FloatArray = expit(eta) if rewards == "binary" else np.exp(np.minimum(eta, MOST_LOG))
    return found


def linearised(counts: TaskCounts, eta: FloatArray) -> Working:
    """Around η̂ = `eta`."""
    here = counts.pulls > 0
    if counts.rewards == "gaussian":
        return Working(counts.pulls, counts.means, np.full(here.shape, counts.noise))
    p = rate(counts.rewards, eta)
    v = np.maximum(p * (1.0 - p) if counts.rewards == "binary" else p, LEAST_VARIANCE)
    means = np.where(here, eta + (counts.means - p) / v, 0.0)
    return Working(counts.pulls, means, 1.0 / v)


def counted(
    pulls: FloatArray, sums: FloatArray, rewards: Rewards, squares: FloatArray | None = None
) -> TaskCounts:
    """From (tasks, arms) arrays, 0 or nan where an arm does not occur.

    Gaussian rewards need squares, which tell their noise.
    """
    pulls, sums = (np.nan_to_num(np.asarray(x, np.float64), nan=0.0) for x in (pulls, sums))
    _check(pulls, sums, rewards)
    counts = TaskCounts(pulls, sums, rewards, 1.0, pulls[:, 0]).lasting(pulls.sum(axis=1))
    if rewards != "gaussian":
        return counts
    if squares is None:
        raise ValueError("gaussian rewards need the sums of their squares too; pass squares")
    rest = float((squares - sums**2 / np.where(pulls > 0, pulls, 1.0)).sum())
    degrees = float((pulls - (pulls > 0)).sum())
    return counts._replace(noise=start_noise(rest, degrees, float(np.sum(squares))))


def _check(pulls: FloatArray, sums: FloatArray, rewards: Rewards) -> None:
    if pulls.ndim != 2 or pulls.shape != sums.shape:
        raise ValueError(
            f"pulls and sums must be (tasks, arms) alike, not {pulls.shape} and {sums.shape}"
        )
    if (pulls < 0).any() or not np.isfinite(pulls).all() or not np.isfinite(sums).all():
        raise ValueError("pulls must be at least 0, and pulls and sums finite")
    if rewards == "binary" and (sums > pulls * (1 + 1e-9)).any():
        task, arm = np.unravel_index(int((sums - pulls).argmax()), pulls.shape)
        raise ValueError(
            f"task {task} has {sums[task, arm]:g} successes in {pulls[task, arm]:g} pulls of arm "
            f"{arm}; binary rewards are 0 or 1"
        )
    if rewards != "gaussian" and (sums < 0).any():
        raise ValueError(f"sums of {rewards} rewards must be at least 0")


def smoothed(counts: TaskCounts, *, arms: bool = True, tasks: bool = True) -> FloatArray:
    """A first η̂ of every task and arm: the levels of both, or of one, from their totals."""
    shape = counts.pulls.shape
    m = (counts.sums.sum() + 0.5) / (counts.pulls.sum() + 1.0)
    if counts.rewards == "gaussian":
        return np.full(shape, m)
    link = logit if counts.rewards == "binary" else np.log
    few, eta = PRIOR_SUCCESSES / m, np.full(shape, link(m))
    for axis in (0,) * arms + (1,) * tasks:
        n, s = (part.sum(axis=axis, keepdims=True) for part in (counts.pulls, counts.sums))
        eta += link((s + PRIOR_SUCCESSES) / (n + few)) - link(m)
    return eta


def split(counts: TaskCounts, rng: Rng) -> tuple[TaskCounts, TaskCounts]:
    """The rewards of every task and arm dealt at random to two halves."""
    n, s = counts.pulls, counts.sums
    if counts.rewards == "binary" and bool(((n == np.floor(n)) & (s == np.floor(s))).all()):
        n1 = np.floor(n / 2 + (rng.random(n.shape) < 0.5) / 2)
        won, lost = s.astype(np.int64), (n - s).astype(np.int64)
        s1 = rng.hypergeometric(won, lost, n1.astype(np.int64)).astype(np.float64)
    elif counts.rewards == "count" and bool((s == np.floor(s)).all()):
        n1, s1 = n / 2, rng.binomial(s.astype(np.int64), 0.5).astype(np.float64)
    else:
        phi = linearised(counts, smoothed(counts)).phi
        noise = counts.noise if counts.rewards == "gaussian" else 1.0 / phi
        n1 = n / 2
        s1 = s / 2 + np.sqrt(noise * n) / 2 * rng.standard_normal(n.shape)
    return counts._replace(pulls=n1, sums=s1), counts._replace(pulls=n - n1, sums=s - s1)


class _Grid(NamedTuple):
    log: FloatArray  # (σ_0, τ, ω)
    mean: FloatArray
    cov: FloatArray


def learn(counts: Working, *, names: bool = True, level: bool = True) -> Effects:
    """All effects; without `names` arms have one mean, without `level` tasks have none."""
    centre, reach = _units(counts)
    axes = [reach * COARSE, reach * COARSE if level else np.zeros(1)]
    axes.append(reach * 1.5 * COARSE if names else np.zeros(1))
    for again in range(FINER + 1):
        grid = _evaluate(counts, centre, WIDE * reach, axes)
        if again < FINER:
            axes = [_finer(grid.log, axes, i) for i in range(3)]
    widths = [np.gradient(axis) if len(axis) > 1 else np.ones(1) for axis in axes]
    log = grid.log + sum(
        np.log(w).reshape([-1 if i == j else 1 for j in range(3)]) for i, w in enumerate(widths)
    )
    weight = np.exp(log - log.max()).ravel()
    arms = counts.pulls.shape[1]
    nodes = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 3)
    steps = np.array([axis[1] - axis[0] if len(axis) > 1 else 0.0 for axis in axes])
    return Effects(
        weight / weight.sum(),
        nodes,
        steps,
        centre + grid.mean.reshape(-1, arms),
        grid.cov.reshape(-1, arms, arms),
    )


class Tails(NamedTuple):
    """Which t distribution own effects have, one entry for each of `TAILS`."""

    weight: FloatArray
    scale: FloatArray  # standard deviation over σ_0, where it is the most likely one


def tails(counts: Working, found: Effects) -> Tails:
    """From what tasks and arms have beyond a and l; a t distribution is a mixture of normal ones.

    Only cells count that tell more than they scatter: the shape of rewards is not taken for theirs.
    """
    mean, _, level = found.prior
    own = found.spreads.own
    here = counts.pulls > 0
    q = counts.phi / np.where(here, counts.pulls, 1.0)
    w = here / (own + q)
    gap = counts.means - mean
    d = np.asarray(level) / (1.0 + level * w.sum(axis=1, keepdims=True))
    rest = gap - d * (w * gap).sum(axis=1, keepdims=True)
    cells = np.flatnonzero(here & (q < own))
    if cells.size == 0:
        return Tails(TAIL_PRIOR, np.ones(len(TAILS)))
    cells = cells[np.linspace(0, cells.size - 1, min(cells.size, TAIL_CELLS)).astype(np.intp)]
    r, q = rest.ravel()[cells], q.ravel()[cells]
    grid = np.linspace(-0.5, 0.5, 9)
    log, size = np.log(TAIL_PRIOR), np.zeros(len(TAILS))  # size: log of the scale
    for i, tail in enumerate(TAILS):
        parts, mix = np.ones(1), np.ones(1)
        if tail < math.inf:
            nodes, mix = roots_genlaguerre(16, tail / 2 - 1)  # of a gamma distribution
            parts, mix = (tail / 2 - 1) / nodes, mix / mix.sum()
        v = np.exp(2 * grid)[:, None, None] * own * parts[:, None] + q
        each = logsumexp(-0.5 * (r * r / v + np.log(v)), axis=1, b=mix[:, None])
        total = each.sum(axis=1)
        top = int(total[1:-1].argmax()) + 1
        down, best, up = total[top - 1 : top + 2]  # a parabola through the best three
        bend = min(down - 2 * best + up, -1e-9)
        move = float(np.clip(0.5 * (down - up) / bend, -1.0, 1.0))
        size[i] = grid[top] + move * (grid[1] - grid[0])
        log[i] += best - 0.25 * (down - up) * move
    weight = np.exp(log - log.max())
    return Tails(weight / weight.sum(), np.exp(size - size[-1]))


def arms_given(counts: Working, spreads: Spreads) -> Prior:
    """The prior of a new task from these counts, spreads known."""
    centre, reach = _units(counts)
    own, level, arms = spreads
    axes = [np.sqrt([own]), np.sqrt([level]), np.sqrt([arms])]
    found = _evaluate(counts, centre, WIDE * reach, axes)
    mean, cov = found.mean[0, 0, 0], found.cov[0, 0, 0]
    return Prior(centre + mean, own + np.diagonal(cov), level)


def pooled(counts: TaskCounts) -> Prior:
    """One sampler for all tasks: what it knows of each arm from all pulls together."""
    total = counts._replace(
        pulls=counts.pulls.sum(axis=0)[None], sums=counts.sums.sum(axis=0)[None]
    )
    eta = smoothed(total)
    for _ in range(3):
        work = linearised(total, eta)
        eta = (work.means * work.pulls + eta.mean()) / (work.pulls + 1.0)
    return Prior(eta[0], (linearised(total, eta).phi / (total.pulls + 1.0))[0])


def _units(counts: Working) -> tuple[float, float]:
    """The mean of all rewards, and a spread of means that is large for this log."""
    n = counts.pulls / counts.phi
    centre = float((n * counts.means).sum() / n.sum())
    seen = float((n * (counts.means - centre) ** 2).sum())
    cells = max(float((n > 0).sum()), 1.0)
    reach = (max(seen - cells, 0.0) + 3 * math.sqrt(2 * cells)) / float(n.sum())
    return centre, math.sqrt(reach)


def _finer(log: FloatArray, axes: list[FloatArray], i: int) -> FloatArray:
    """Around the points of axis i that are near the best, one step further on each side."""
    axis = axes[i]
    if len(axis) == 1:
        return axis
    best = log.max(axis=tuple(j for j in range(3) if j != i))
    near = np.flatnonzero(best > best.max() - WITHIN)
    low, high = max(near[0] - 1, 0), min(near[-1] + 1, len(axis) - 1)
    return np.linspace(axis[low], axis[high], FINE)


def _evaluate(counts: Working, centre: float, wide: float, axes: list[FloatArray]) -> _Grid:
    """Log evidence of every node, and the arms' effects there (around the centre)."""
    here = counts.pulls > 0
    y = np.where(here, counts.means - centre, 0.0)
    q = counts.phi / np.where(here, counts.pulls, 1.0)
    own, level, spread = (axis**2 for axis in axes)
    arms = y.shape[1]
    prior = spread[:, None, None] * np.eye(arms) + wide**2  # of a: ω² I + wide² 11ᵀ
    shape = (own.size, level.size, spread.size)
    log, mean = np.empty(shape), np.empty((*shape, arms))
    cov = np.empty((*shape, arms, arms))
    for i, s in enumerate(own):
        v = s + q
        w = here / v
        sw, swy = w.sum(axis=1), (w * y).sum(axis=1)
        logdet, squares = float(np.log(v[here]).sum()), float((w * y * y).sum())
        for j, t in enumerate(level):
            d = t / (1.0 + t * sw)  # V⁻¹ = diag w − d wwᵀ
            info = np.diag(w.sum(axis=0)) - (w * d[:, None]).T @ w
            b = (w * y).sum(axis=0) - (d * swy) @ w
            rest = squares - float((d * swy**2).sum())
            grown = np.eye(arms) + prior @ info
            c = np.linalg.solve(grown, prior)
            cov[i, j] = (c + c.swapaxes(1, 2)) / 2
            mean[i, j] = cov[i, j] @ b
            logs = logdet + float(np.log1p(t * sw).sum()) + np.linalg.slogdet(grown)[1]
            log[i, j] = -0.5 * (logs + rest - mean[i, j] @ b)
    return _Grid(log, mean, cov)


# what is believed of a task after its rewards


class LevelBelief(NamedTuple):
    """Of η in every task: normal given the level, which is normal."""

    level: FloatArray  # (tasks, 1): mean of the level
    level_var: FloatArray
    base: FloatArray  # (tasks, arms): mean where the level is 0
    slope: FloatArray  # and how it moves with the level
    var: FloatArray  # given the level

    @property
    def mean(self) -> FloatArray:
        """Of η."""
        return self.base + self.slope * self.level

    def draw(self, rng: Rng) -> FloatArray:
        """One η for every task."""
        level, own = rng.standard_normal(self.level.shape), rng.standard_normal(self.base.shape)
        drawn: FloatArray = self.mean + self.around(level, own)
        return drawn

    def around(self, level: Any, own: Any) -> Any:
        """η less its mean, where the standard normal numbers of levels and arms are these.

        As precise as they are: draws need not be.
        """
        found = np.sqrt(self.var).astype(own.dtype) * own
        if np.any(self.level_var):
            found += (self.slope * np.sqrt(self.level_var)).astype(own.dtype) * level
        return found


def believed(prior: Prior, work: Working) -> LevelBelief:
    """The posterior, exact for normal means."""
    w = work.pulls / (work.pulls * prior.spread + work.phi)
    gap = work.means - prior.mean
    grown = 1.0 + prior.level * w.sum(axis=1, keepdims=True)
    level = prior.level * (w * gap).sum(axis=1, keepdims=True) / grown
    trust = w * prior.spread
    return LevelBelief(
        level,
        prior.level / grown,
        prior.mean + trust * gap,
        1.0 - trust,
        prior.spread * (1.0 - trust),
    )


def settled(prior: Prior, counts: TaskCounts, eta: FloatArray | None = None) -> LevelBelief:
    """The posterior with counts linearised around its own mean."""
    eta = np.broadcast_to(prior.mean, counts.pulls.shape) if eta is None else eta
    steps = 1 if counts.rewards == "gaussian" else STEPS
    for _ in range(steps):
        belief = believed(prior, linearised(counts, eta))
        eta = eta + np.clip(belief.mean - eta, -FURTHEST, FURTHEST)
    return belief
