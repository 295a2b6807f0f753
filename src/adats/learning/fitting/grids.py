"""Beta and gamma task priors by evidence over a grid, laid where the log says they are."""

import numpy as np
from scipy.special import logsumexp

from adats.learning.fitting.fitted import Fitted, RewardFigures, few_tasks, fits, spreads_of
from adats.learning.tables import ArmTable
from adats.models import MixtureMeta
from adats.models.core.product import ProductArms
from adats.models.core.stats import ArmStats
from adats.models.core.types import FloatArray, IntArray
from adats.models.core.weights import log_of, softmax
from adats.models.latent.family import FAMILIES

SIDE = 11  # candidates along each side of the grid
REACH = 4.0  # of the first grid, around the pooled mean: logits, or logarithms
STRENGTHS = (0.1, 1e4)  # of the first grid: pseudo-pulls of a beta, pseudo-events of a gamma
DEEP = 8.0  # where the log evidence is so far below the best, a grid ends
ROUNDS = 20
CHUNK = 4096


@fits("binary", "independent")
@fits("count", "independent")
def fit_grid(table: ArmTable) -> Fitted:
    """Candidates for every arm, weighted by their evidence: the weighted grid goes on learning."""
    family = table.conjugate
    columns = [_arm(family, table.kind, table.table[:, :, k]) for k in range(len(table.arms))]
    priors = family(*(np.column_stack(p) for p in zip(*(c for c, _ in columns), strict=True)))
    logs = np.column_stack([evidence for _, evidence in columns])
    weights = softmax(logs)
    mu = (weights * priors.mean).sum(axis=0)
    unknown = (weights * (priors.mean - mu) ** 2).sum(axis=0)
    between = (weights * priors.scale**2).sum(axis=0)

    def each(other: ArmTable) -> tuple[FloatArray, FloatArray]:
        """Log density of each task, and posterior means: arm by arm, as they are independent."""
        density, means = np.zeros(len(other)), np.empty((len(other), len(other.arms)))
        for k in range(len(other.arms)):
            cells, place = np.unique(other.table[:, :, k], axis=0, return_inverse=True)
            one = family.of(*(p[:, k, None] for p in priors.parameters()))
            for i in range(0, len(cells), CHUNK):
                stats = other.kind(cells[i : i + CHUNK].T)
                gained = one.arm_log_evidence(stats) + log_of(weights[:, k, None])
                chosen = np.flatnonzero((place >= i) & (place < i + CHUNK))
                at = place[chosen] - i
                density[chosen] += logsumexp(gained, axis=0)[at]
                means[chosen, k] = (softmax(gained) * one.updated(stats).mean).sum(axis=0)[at]
        return density, means

    return Fitted(
        meta=MixtureMeta(weights, priors, arms=table.arms),
        mu=mu,
        mu_cov=np.diag(unknown),
        task_cov=np.diag(between),
        noise=None,
        log_evidence=float((logsumexp(logs, axis=0) - np.log(len(logs))).sum()),
        curve=np.zeros(0),
        shrinkage=None,
        unidentified=spreads_of(
            table.arms, (table.table[:, 0] >= fewest_pulls(table)).sum(axis=0) < 2
        ),
        warnings=few_tasks(table),
        rewards=RewardFigures(mu, between, unknown),
        log_density=lambda other: each(other)[0],
        means=lambda other: each(other)[1],
    )


def fewest_pulls(table: ArmTable) -> int:
    """That tell a spread: one count shows it, a single 0 or 1 does not."""
    return 2 if table.kind.MOST == 1.0 else 1


def _arm(
    family: type[ProductArms], kind: type[ArmStats], table: FloatArray
) -> tuple[tuple[FloatArray, ...], FloatArray]:
    """Parameters of the candidates of one arm, and the log evidence of each."""
    told, times = np.unique(table[table[:, 0] > 0][:, :2], axis=0, return_counts=True)
    constant = float(table[:, 3:].sum())  # Σ log y! of counts
    count, total = table[:, 0].sum(), table[:, 1].sum()
    centre = float(FAMILIES[family.MODEL].eta((total + 0.5) / (count + 1)))
    low = np.array([centre - REACH, np.log(STRENGTHS[0])])
    high = np.array([centre + REACH, np.log(STRENGTHS[1])])
    for _ in range(ROUNDS):
        sides = np.linspace(low, high, SIDE)
        parameters = _candidates(family, sides)
        logs = _evidence(family.of(*parameters), kind, told, times)
        depth = (logs - logs.max()).reshape(SIDE, SIDE)
        ends = [np.flatnonzero(depth.max(axis=1 - i) > -DEEP)[[0, -1]] for i in (0, 1)]
        steps = np.array([[max(a - 1, 0), min(b + 1, SIDE - 1)] for a, b in ends])
        before = high - low
        low, high = sides[steps[:, 0], [0, 1]], sides[steps[:, 1], [0, 1]]
        if (high - low > 0.8 * before).all():
            break
    return tuple(p[:, 0] for p in parameters), logs - constant


def _candidates(family: type[ProductArms], sides: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Every place with every strength, one a row."""
    place = np.repeat(sides[:, 0], SIDE)[:, None]
    strength = np.exp(np.tile(sides[:, 1], SIDE))[:, None]
    link = FAMILIES[family.MODEL]
    return family.placed(link.mean(place), link.mean(-place), strength)


def _evidence(
    candidates: ProductArms, kind: type[ArmStats], told: FloatArray, times: IntArray
) -> FloatArray:
    """Log evidence of every candidate; tasks that tell the same are worked out once."""
    logs = np.zeros(SIDE**2)
    for i in range(0, len(told), CHUNK):
        part = np.zeros((kind.ROWS, len(told[i : i + CHUNK])))
        part[:2] = told[i : i + CHUNK].T  # pulls and their total are all that matters
        stats = kind(part)
        logs += candidates.arm_log_evidence(stats) @ times[i : i + CHUNK]
    return logs
