"""Forced exploration at the start of a task: which arms to pull so that every direction is seen."""

import numpy as np

from adats.agents.arms import Arms
from adats.agents.oracles import CheckedOracle, Oracle
from adats.models.core import checks
from adats.models.core.types import BoolArray, FloatArray, IntArray

_GAIN = 1e-9  # a swap must raise the smallest eigenvalue by this fraction
_TRIES = 30  # of an oracle, for one arm that is hard to reach


def spanning_arms(features: FloatArray) -> IntArray:
    """As many rows as the rank of `features`, that span all of its rows, and span them well.

    Pivoted QR finds the first choice. Then one row is swapped for another, the best swap first, as
    long as that raises the smallest eigenvalue of Σ aaᵀ (within the row space). The eigenvalue is
    that of a local optimum: no other single swap would raise it.

    >>> spanning_arms(np.array([[0.1, 0.0], [1.0, 0.0], [0.9, 0.1], [0.0, 1.0]]))
    array([1, 3])
    """
    from scipy.linalg import qr

    features = _matrix(features)
    basis, upper, pivots = qr(features.T, mode="economic", pivoting=True)
    sizes = np.abs(np.diag(upper))
    rank = int(np.sum(sizes > max(features.shape) * np.finfo(float).eps * sizes[0]))
    chosen: IntArray = np.array(pivots[:rank], dtype=np.intp)
    if rank in (0, len(features)):
        return np.sort(chosen)
    rows = features @ basis[:, :rank] / sizes[0]  # coordinates within the row space
    for _ in range(10 * rank + 100):  # far more than are ever used
        swap = _best_swap(rows, chosen)
        if swap is None:
            break
        chosen[swap[0]] = swap[1]
    return np.sort(chosen)


def eta(features: FloatArray, arms: IntArray) -> float:
    """The smallest eigenvalue of Σ aaᵀ over the chosen rows: η of the bounds; 0 if they span less.

    >>> round(eta(np.array([[2.0, 0.0], [0.0, 3.0], [1.0, 0.0]]), np.array([0, 1])), 9)
    4.0
    """
    rows = _matrix(features)[np.asarray(arms, dtype=np.intp)]
    if len(rows) < rows.shape[1]:
        return 0.0
    scales = np.linalg.svd(rows, compute_uv=False)
    spans = scales[-1] > max(rows.shape) * np.finfo(float).eps * scales[0]
    return float(scales[-1] ** 2) if spans else 0.0


def newest_row(
    features: FloatArray, gram: FloatArray, *, allowed: BoolArray | None = None
) -> int | None:
    """The row that adds most to a design whose Σ aaᵀ is `gram`; None if no row adds a direction.

    That is the row with the largest residual after projection on the range of `gram`. A residual
    below 1e-8 of its row's norm is round-off, and so is one whose square would be lost beside the
    largest eigenvalue of `gram`: pulling that row would leave the rank of `gram` as it is.

    >>> features = np.array([[1.0, 0.0], [0.6, 0.8]])
    >>> newest_row(features, np.diag([1.0, 0.0]))
    1
    >>> newest_row(features, np.eye(2)) is None
    True
    """
    features = _matrix(features)
    dim = features.shape[1]
    gram = checks.array("gram", gram)
    if gram.shape != (dim, dim):
        raise ValueError(f"gram has shape {gram.shape}; give a {dim} by {dim} matrix")
    allowed = _mask(allowed, len(features))
    scale, vectors = np.linalg.eigh(gram)
    largest, lost = max(scale[-1], 0.0), dim * np.finfo(float).eps
    seen = vectors[:, scale > lost * largest]
    if seen.shape[1] == dim:
        return None
    residual = np.linalg.norm(features - features @ seen @ seen.T, axis=1)
    new = residual > 1e-8 * np.linalg.norm(features, axis=1)
    new &= (residual**2 > 16 * lost * largest) & allowed
    return int(np.argmax(np.where(new, residual, -1.0))) if new.any() else None


def covering_actions(
    oracle: Oracle, arms: int, *, allowed: BoolArray | None = None
) -> tuple[IntArray, ...]:
    """Actions of `oracle` that together hold all arms 0, ..., arms - 1, or all `allowed` ones.

    Arms not yet covered are made good and the others bad, and the oracle is asked. Where that
    reaches no new arm, each arm left is tried alone. If the oracle has a method `through` that
    names an action with that arm, as `ShortestPath` has, all of that action is made good. Else the
    arm is good, all others are randomly bad, and one chosen in its place gets much worse, up to 30
    times. Arms that no try reaches are left out: an edge on no simple path, say. The same call
    gives the same actions.

    >>> from adats.agents.oracles import Top
    >>> sorted(len(action) for action in covering_actions(Top(2), 5))
    [1, 2, 2]
    """
    if arms < 1:
        raise ValueError(f"arms is {arms}; give at least 1")
    rng = np.random.default_rng(0)
    allowed = _mask(allowed, arms)
    missing = allowed.copy()
    actions: list[IntArray] = []

    def ask(values: FloatArray) -> IntArray:
        """The oracle's action, which is kept if it holds a missing arm."""
        values[~allowed] = -np.inf
        action = np.atleast_1d(np.asarray(oracle(values), dtype=np.intp))
        if missing[action].any():
            actions.append(action)
            missing[action] = False
        return action

    before = arms + 1
    while 0 < missing.sum() < before:
        before = missing.sum()
        size = rng.uniform(1.0, 1.001, arms)
        ask(np.where(missing, size, -size))
    through = getattr(oracle, "through", None)
    for arm in np.flatnonzero(missing):
        known = through(int(arm), allowed=allowed) if through and missing[arm] else None
        if known is not None:
            if known.size:
                ask(np.where(np.isin(np.arange(arms), known), 1.0, -1e9))
            continue
        for attempt in range(_TRIES):
            if not missing[arm]:
                break
            if attempt % 10 == 0:  # start again
                cost = rng.exponential(size=arms)
            action = ask(np.where(np.arange(arms) == arm, 1.0, -cost))
            if action.size:
                cost[rng.choice(action)] *= 1000.0
    return tuple(actions)


def _mask(allowed: BoolArray | None, count: int) -> BoolArray:
    mask = np.ones(count, dtype=bool) if allowed is None else np.asarray(allowed)
    if mask.shape != (count,) or mask.dtype != bool:
        raise ValueError(
            f"allowed has shape {mask.shape} and type {mask.dtype}; give {count} booleans"
        )
    return mask


def _matrix(features: FloatArray) -> FloatArray:
    features = checks.array("features", features, ndim=2)
    if features.size == 0:
        raise ValueError(f"features have shape {features.shape}; give at least one row")
    return features


def _best_swap(rows: FloatArray, chosen: IntArray) -> tuple[int, int] | None:
    """The place in `chosen`, and the row to put there, that raise the smallest eigenvalue most.

    M − aaᵀ + bbᵀ − tI is positive definite iff M − tI has one negative eigenvalue and the 2 × 2
    matrix diag(1, −1) − [a b]ᵀ(M − tI)⁻¹[a b] is positive definite (their inertias add up). So one
    product tests all the swaps against a level t, and bisection finds the highest that one reaches.
    """
    others = np.setdiff1d(np.arange(len(rows)), chosen)
    scale, vectors = np.linalg.eigh(rows[chosen].T @ rows[chosen])
    a, b = rows[chosen] @ vectors, rows[others] @ vectors

    def reach(level: float) -> BoolArray:
        weight = 1 / (scale - level)
        top = 1 - a**2 @ weight
        bottom = -1 - b**2 @ weight
        cross = (a * weight) @ b.T
        pairs: BoolArray = (top > 0)[:, None] & (bottom > 0) & (np.outer(top, bottom) > cross**2)
        return pairs

    low, high = max(scale[0], 0.0), scale[1] if len(scale) > 1 else np.max(b**2)
    best = None
    for _ in range(60):
        if high - low <= _GAIN * high:  # also: a swap cannot lift two equal eigenvalues
            break
        middle = (low + high) / 2
        found = np.argwhere(reach(middle))
        if not len(found):
            high = middle
            continue
        low, best = middle, found[0]
        if len(found) == 1:
            break
    if best is None:
        return None
    place, row = int(best[0]), int(others[best[1]])
    swapped = np.append(np.delete(chosen, place), row)
    before, after = (np.linalg.svd(rows[c], compute_uv=False)[-1] ** 2 for c in (chosen, swapped))
    return (place, row) if after > before * (1 + _GAIN) else None


class Explorer:
    """What forced exploration asks for, where the arms stay the same: actions one after another.

    Each arm once; arms that span the space; or actions of an oracle that cover all arms.
    """

    def __init__(self, arms: Arms, oracle: Oracle) -> None:
        open_arms = np.array(arms.open, dtype=np.intp)
        self.single = True
        if isinstance(oracle, CheckedOracle):
            mask = arms.mask(None, None)
            values = np.zeros(arms.count or 0)
            if mask is not None:
                values[~mask] = -np.inf
            self.single = isinstance(oracle(values), int)
            self.actions = covering_actions(oracle, arms.count or 0, allowed=mask)
            return
        if arms.features is not None:
            open_arms = open_arms[spanning_arms(arms.features[open_arms])]
        self.actions = tuple(open_arms.reshape(-1, 1))

    def next(self, fresh: BoolArray, allowed: BoolArray | None) -> IntArray | None:
        """The next action with an arm that is `fresh`; None if there is none now."""
        for action in self.actions:
            if fresh[action].any() and (allowed is None or allowed[action].all()):
                return action
        return None


def newest_action(
    rows: FloatArray, gram: FloatArray, oracle: Oracle, allowed: BoolArray | None
) -> int | IntArray | None:
    """The same where features come with every decision: an action with the newest row."""
    row = newest_row(rows, gram, allowed=allowed)
    if row is None or not isinstance(oracle, CheckedOracle):
        return row
    values = np.zeros(len(rows)) if allowed is None else np.where(allowed, 0.0, -np.inf)
    values[row] = 1.0
    return oracle(values)
