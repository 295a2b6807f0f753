"""Clicks and counts whose arms move together: theta is Gaussian in log-odds, or in logarithms.

The mathematics are in `models/latent/spreads.py`, as agents need them too.
"""

from itertools import combinations
from typing import Any

import numpy as np

from adats.learning.fitting.fitted import Fitted, few_tasks
from adats.learning.tables import ArmTable
from adats.models.core.types import FloatArray
from adats.models.latent.family import FAMILIES
from adats.models.latent.meta import LatentMeta
from adats.models.latent.spreads import Log, learn_full, learn_level

STRUCTURES = ("level", "full")
LEVEL, ARM = 3.0, 2.0  # widths of the prior of mu: of what arms share, and of each arm
FEWEST = 2  # tasks that tell something, below which it cannot be told


def fit_latent(table: ArmTable, *, structure: str) -> Fitted:
    """A prior whose arms share a level in every task, or with any covariance between arms."""
    n, s = table.table[:, 0], table.table[:, 1]
    arms = len(table.arms)
    log = Log(FAMILIES[table.model], n, s, *_wide(table))
    found = learn_level(log)
    task_scale, level_scale = found.spread.sizes(0)
    spread: dict[str, Any] = {"task_scale": task_scale, "level_scale": level_scale}
    if structure == "full" and arms > 1:
        found = learn_full(log, found)
        spread = {"task_cov": found.spread.covs(arms)}
    return Fitted(
        meta=LatentMeta(found.mean, found.cov, rewards=table.model, arms=table.arms, **spread),
        mu=found.mean,
        mu_cov=found.cov,
        task_cov=found.spread.covs(arms)[0],
        noise=None,
        log_evidence=found.log_evidence - float(table.table[:, 3:].sum()),  # Σ log y! of counts
        curve=found.curve,
        shrinkage=None,
        unidentified=_unidentified(table, structure),
        warnings=few_tasks(table),
    )


def _wide(table: ArmTable) -> tuple[FloatArray, FloatArray]:
    """A weak prior of mu around the rate of all arms together."""
    n, s = float(table.table[:, 0].sum()), float(table.table[:, 1].sum())
    arms = len(table.arms)
    centre = float(FAMILIES[table.model].eta((s + 0.5) / (n + 1.0)))
    return np.full(arms, centre), np.full((arms, arms), LEVEL**2) + ARM**2 * np.eye(arms)


def _unidentified(table: ArmTable, structure: str) -> tuple[str, ...]:
    """Spreads that keep what was believed of them before."""
    n = table.table[:, 0]
    least = 2 if table.model == "binary" else 1  # one count shows its spread, a single 0 or 1 not
    if (n.sum(axis=1) >= least).sum() < FEWEST:
        return ("how tasks differ",)
    both = (n > 0).astype(float)
    together = both.T @ both
    if (both.sum(axis=1) > 1).sum() < FEWEST and len(table.arms) > 1:
        return ("what a task's arms have in common: no two tasks tried several arms",)
    if structure != "full":
        return ()
    apart = [pair for pair in combinations(range(len(table.arms)), 2) if together[pair] < FEWEST]
    if not apart:
        return ()
    first = " and ".join(repr(table.arms[i]) for i in apart[0])
    more = f" (and {len(apart) - 1} more pairs)" * (len(apart) > 1)
    return (f"the covariance of arms {first}{more}",)
