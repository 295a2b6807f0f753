"""Whether to stop: what the meta-posterior says of the arms on average over tasks."""

import math
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from adats.models.core.types import FloatArray, MetaBelief, Rng

DRAWS = 200
SURE = 3.0  # standard deviations on each side: wide enough for daily looks, see docs/math/lift.md
WORTH = 0.01  # of the control's mean, unless the experiment says what is worth having
MOST_LOSS = 0.5  # what is worth having: an arm is not called better while stopping costs more


class Standing(NamedTuple):
    """Of the arms that can be chosen, in order."""

    best: list[float]  # the chance to be the best on average over tasks
    loss: float  # expected, of each decision, if the arm that looks best is taken for good
    leader: int
    settled: bool  # whether there is nothing to wait for
    sentence: str


def average_rewards(
    meta: MetaBelief, rng: Rng, *, features: FloatArray | None = None, draws: int = DRAWS
) -> FloatArray:
    """Draws of what each arm earns on average over all tasks there may be: a row for each."""
    means = np.array([meta.prior_given(meta.sample(rng)).mean for _ in range(draws)])
    return means if features is None else means @ features.T


def standing(
    draws: FloatArray, names: Sequence[object], control: int | None, worth: float | None = None
) -> Standing:
    """From draws of average rewards. Without a control arm, the best is compared with the others.

    A difference is known when its interval is on one side of 0, or within what is worth having.
    """
    means, top = draws.mean(axis=0), draws.max(axis=1)
    leader = int(means.argmax())
    chances = np.bincount(draws.argmax(axis=1), minlength=len(names)) / len(draws)
    loss = float((top - draws[:, leader]).mean())
    found = partial(Standing, chances.tolist(), loss, leader)
    if len(names) < 2:
        return found(False, "Keep running.")
    others = [i for i in range(len(names)) if i != (leader if control is None else control)]
    if control is None:
        base, rival = draws[:, others].max(axis=1), draws[:, leader]
        against = "every other arm"
    else:
        base, rival = draws[:, control], draws[:, leader]
        against = "the control"
    if worth is None:
        worth = WORTH * abs(float(base.mean()))
    best_rival = rival if control is None else draws[:, others].max(axis=1)
    most = float((best_rival - base).mean() + SURE * (best_rival - base).std())
    if most < worth:
        return found(True, "No difference worth having.")
    if leader == control:
        return found(False, "Keep running: no arm looks better than the control yet.")
    low, span = _difference(rival, base)
    if low > 0 and loss <= MOST_LOSS * worth:
        return found(True, f"{names[leader]} is better than {against} by {span}.")
    sentence = f"Keep running: {names[leader]} may be better than {against}, by {span}."
    return found(False, sentence)


def _difference(rival: FloatArray, base: FloatArray) -> tuple[float, str]:
    """The low end of the interval, and the whole as a text: parts of a base that is positive."""
    if min(rival.min(), base.min()) > 0:
        logs = np.log(rival / base)
        half = SURE * logs.std()
        low, high = (float(np.expm1(logs.mean() + sign * half)) for sign in (-1, 1))
        return low, f"{rounded(100 * low, down=True)} to {rounded(100 * high)} %"
    gaps = rival - base
    low, high = (float(gaps.mean() + sign * SURE * gaps.std()) for sign in (-1, 1))
    return low, f"{rounded(low, down=True)} to {rounded(high)}"


def rounded(value: float, *, down: bool = False) -> str:
    """Two figures that matter, to the outside of an interval."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    places = max(0, 1 - math.floor(math.log10(abs(value))))
    whole = (math.floor if down else math.ceil)(value * 10**places) / 10**places
    return f"{whole:.{places}f}"
