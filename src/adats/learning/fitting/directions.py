"""Which directions of Σ_0 the log identifies, and names for those that it does not."""

from collections.abc import Sequence

import numpy as np
from scipy.linalg import qr

from adats.models.core.types import FloatArray

FEWEST = 1.0  # effective tasks; a direction with less is not identified
NOTHING = 1e-9  # of the information about the best known direction: as good as none
SMALL = 0.05  # coefficients below it are left out of a name
PAIRS = 10  # so many pairs are named one by one


def effective_tasks(total: FloatArray, squares: FloatArray, *, most: float) -> FloatArray:
    """How many tasks told a spread, one less for the unknown mean.

    From the information a of the tasks about mu: tasks that tell much less than others count for
    less, (Σa)²/Σa² - 1, with `total` Σa and `squares` Σa². What is nothing against `most` is none.
    """
    known = total > NOTHING * most
    count = np.where(known, total**2 / np.where(known, squares, 1.0), 0.0)
    effective: FloatArray = np.maximum(count - 1.0, 0.0)
    return effective


def unseen(m: FloatArray) -> FloatArray:
    """Orthonormal columns, the directions with too few effective tasks; `m` are the M_s."""
    values, vectors = np.linalg.eigh(m.sum(axis=0))
    told = ((m @ vectors) * vectors).sum(axis=1)
    most = float(values[-1])
    effective = effective_tasks(told.sum(axis=0), (told**2).sum(axis=0), most=most)
    lost: FloatArray = vectors[:, effective < FEWEST]
    return lost


def filled(cov: FloatArray, lost: FloatArray, *, diagonal: bool) -> FloatArray:
    """Along lost directions the average variance of the others, uncorrelated with them.

    A diagonal Σ_0 is changed only where a whole feature is lost.
    """
    d, k = lost.shape
    gone = lost @ lost.T
    if diagonal:
        away, variances = gone.diagonal() > 1.0 - SMALL, cov.diagonal()
        return np.diag(np.where(away, variances[~away].mean(), variances))
    kept = np.eye(d) - gone
    seen = kept @ cov @ kept
    result: FloatArray = seen + (seen.trace() / (d - k)) * gone
    return (result + result.T) / 2


def names(lost: FloatArray, unit: FloatArray, features: Sequence[str]) -> list[str]:
    """A name for each lost direction: a feature, or a combination of coefficients."""
    k = lost.shape[1]
    if k == 0:
        return []
    upper, order = qr(lost.T, mode="r", pivoting=True)
    rows = np.linalg.solve(upper[:, :k], upper)  # each begins with a feature of its own
    result = []
    for i, row in enumerate(rows):
        coefficients = row * unit[order] / unit[order[i]]
        terms = [features[order[i]]]
        for j in np.flatnonzero(np.abs(row) >= SMALL):
            if j != i:
                size = f"{abs(coefficients[j]):.2g}"
                terms += ["-" if row[j] < 0 else "+", *([] if size == "1" else [size])]
                terms.append(features[order[j]])
        result.append(" ".join(terms))
    return result


def pairs(m: FloatArray, lost: FloatArray, features: Sequence[str]) -> list[str]:
    """Pairs of features that too few tasks tried both, so that their covariance is not known."""
    own = np.maximum(np.diagonal(m, axis1=1, axis2=2), 0.0)
    roots = np.sqrt(own)  # the information about a pair is the geometric mean of both
    effective = effective_tasks(roots.T @ roots, own.T @ own, most=float(own.sum(axis=0).max()))
    seen = (lost**2).sum(axis=1) < 0.5
    apart = np.triu((effective < FEWEST) & np.outer(seen, seen), 1)
    found = [f"{features[i]} and {features[j]}" for i, j in np.argwhere(apart)]
    if len(found) > PAIRS:
        return [f"the covariances of {len(found)} pairs of features, such as {found[0]}"]
    return [f"the covariance of {both}" for both in found]
