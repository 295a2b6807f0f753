"""Is sharing worth it, and against whom? One answer with its size, from counts by task and arm.

Two opponents: each task alone, with one prior for all arms, and one sampler for all tasks. What a
new task saves, with its own arms and its own length, is estimated under what the log leaves
possible; that it gains at all is tested on tasks that were held out. docs/math/verdict.md.
"""

import math
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy.special import chdtrc, ndtr

from adats.learning.effects import TaskCounts, linearised, smoothed
from adats.learning.savings import Gain, Saving, fits, held_out, savings
from adats.models.core.types import BoolArray, FloatArray, Rng

Answer = Literal[
    "share", "one for all", "each for itself", "too little data", "cannot tell from this log"
]
Structure = Literal["independent", "level", "exchangeable"]
FEWEST = 10  # tasks; with less there is no verdict
MOST = 20_000  # tasks that are looked at; of more, some are drawn
MOST_ARMS = 300  # so many take a quarter of a minute; with more there is no verdict
LEVEL = 0.02  # of the tests whether names and levels matter
ADAPTIVE = 0.001  # of the test whether pulls follow rewards
SURE = 2.054  # standard errors: 98 %, of held-out gains and of savings
WORTH = 0.05  # the part of the regret below which a saving is not worth the trouble
MANY = 400  # tasks from which on permutations are replaced by their limit
USUAL = 0.1  # of the tasks of an average arm: arms of fewer were not offered to all
MOSTLY = 0.5  # of empty cells: if more were there to choose from, all were
HARDLY = 0.01  # if less, each task had arms of its own; between the two nobody knows
OFTEN = 20  # tasks that an arm must occur in for that limit
PERMUTATIONS = 399
SMALL = 1e-9  # a chance that nobody need know better


class Verdict(NamedTuple):
    """The answer and what it rests on."""

    answer: Answer
    structure: Structure | None  # what to share
    saving: float  # part of the better opponent's regret; negative: what that one saves
    interval: tuple[float, float]  # 90 %
    reasons: tuple[str, ...]
    over_alone: Saving | None = None
    over_pooled: Saving | None = None
    gain: Gain | None = None  # reward of a held-out task over playing alone
    names: float = math.nan  # chance of such differences of arms if names meant nothing
    level: float = math.nan  # and of tasks, if they had no level of their own
    adapting: Gain | None = None  # reward of a pull in a held-out task, over the best arm for all


class Early(NamedTuple):
    """Pulls and rewards of the first half of every task's rows, to see whether pulls follow."""

    pulls: FloatArray  # (tasks, arms)
    sums: FloatArray


def verdict(
    counts: TaskCounts, *, early: Early | None = None, weighted: bool = False, rng: Rng
) -> Verdict:
    """The verdict on a log.

    With propensities `counts` are of what `by_propensity` gives, with the tasks' true lengths, and
    are `weighted`. Without them a log that looks adaptive gets no verdict where its pulls depend on
    names or drift within tasks, which `early` shows.
    """
    used = np.flatnonzero(counts.pulls.sum(axis=1) > 0)
    if used.size < FEWEST:
        return nothing(f"{used.size} tasks are too few to tell; {FEWEST} are the least")
    if counts.pulls.shape[1] > MOST_ARMS:
        arms = counts.pulls.shape[1]
        return nothing(f"{arms:,} arms are too many to compare; {MOST_ARMS} are the most")
    if used.size > MOST:
        used = np.sort(rng.choice(used, MOST, replace=False))
    counts = counts.take(used)
    if not weighted:
        first = early and Early(early.pulls[used], early.sums[used])
        reason = adaptive(counts, first, rng)
        if reason:
            return nothing(reason, "cannot tell from this log")
    part = unseen(counts.pulls)
    all_arms = counts._replace(offered=counts.pulls + _usual(counts.pulls) > 0)
    if part > MOSTLY:
        return _rehearsed(all_arms, rng)
    found = _rehearsed(counts, rng)
    if part < HARDLY or found.answer != "share":
        return found
    return _cautious(found, _rehearsed(all_arms, rng))


def _rehearsed(counts: TaskCounts, rng: Rng) -> Verdict:
    """The verdict, given which arms tasks can choose from."""
    if (counts.here.sum(axis=1) < 2).all():
        return nothing("no task had two arms to choose from")
    means = counts.means[counts.pulls > 0]
    if (means == means[0]).all():
        return nothing(f"the mean reward is {means[0]:g} in every task and arm: all are alike")
    found = fits(counts)
    over_alone, over_pooled = savings(counts, found, rng)
    gains = held_out(counts, found, rng)
    names, level = names_matter(counts, rng), level_matters(counts, rng)
    said = judged(names, level, over_alone, over_pooled, *gains)
    return said._replace(reasons=(*said.reasons, *_choice(counts)))


def unseen(pulls: FloatArray) -> float:
    """The part of empty cells that were there to choose from, at least.

    From cells with one pull and with two Chao (1984) estimates how many have none though they were
    there. That is less than there are where cells differ, so it is also done by itself for each arm
    in tasks of about one length, and the larger is taken.
    """
    pulls = pulls[:, _usual(pulls)]
    doubled = np.floor(np.log2(np.maximum(pulls.sum(axis=1), 1.0)))
    lengths = doubled == np.unique(doubled)[:, None]
    kinds = (pulls <= 0, (pulls > 0) & (pulls <= 1), (pulls > 1) & (pulls <= 2))
    empty, once, twice = (lengths.astype(np.float64) @ kind for kind in kinds)

    def there(empty: Any, once: Any, twice: Any) -> Any:
        return np.minimum(once * (once - 1) / (2 * (twice + 1)), empty)

    apart = there(empty, once, twice).sum()
    together = there(empty.sum(), once.sum(), twice.sum())
    return float(max(apart, together) / max(empty.sum(), 1.0))


def _usual(pulls: FloatArray) -> BoolArray:
    """The arms that are in so many tasks that all may have been offered them."""
    tasks_of = (pulls > 0).sum(axis=0)
    return np.asarray((tasks_of > 1) & (tasks_of >= USUAL * tasks_of.mean()))


def _cautious(own: Verdict, every: Verdict) -> Verdict:
    """Of a log that does not say whether tasks could choose from arms that they did not pull."""
    if every.answer == "share":
        return min(own, every, key=lambda found: found.saving)
    reason = (
        "the log does not tell whether tasks could choose from arms that they did not pull: if "
        f"they could not, {own.reasons[0]}; if they could, {every.reasons[0]}"
    )
    reasons = (reason, every.reasons[1])
    return every._replace(answer="too little data", reasons=reasons)


def _choice(counts: TaskCounts) -> tuple[str, ...]:
    """What is taken for granted of arms that tasks have not pulled."""
    if counts.offered is None:
        return ()
    pulled = (counts.pulls > 0).sum(axis=1).mean()
    return (
        f"tasks pulled {pulled:.3g} of {counts.here.sum(axis=1).mean():.3g} arms on average, many "
        "of them once: so short, they are taken to have had the others to choose from too",
    )


def nothing(reason: str, answer: Answer = "too little data") -> Verdict:
    """No size can be given."""
    return Verdict(answer, None, math.nan, (math.nan, math.nan), (reason,))


def by_propensity(
    weights: FloatArray, squares: FloatArray, rewards: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Pulls and sums to pass for rows weighted by w = 1/propensity: Σw, Σw², Σwy by task and arm.

    Pulls are as many as would tell as much without weights: (Σw)²/Σw².
    """
    here = weights > 0
    pulls = np.where(here, weights**2 / np.where(here, squares, 1.0), 0.0)
    return pulls, pulls * rewards / np.where(here, weights, 1.0)


def adaptive(counts: TaskCounts, early: Early | None, rng: Rng) -> str | None:
    """Why the log cannot tell, if it cannot."""
    if early is None:
        follows, drift = pulls_follow_rewards(counts), 1.0
    else:
        first = counts._replace(pulls=early.pulls, sums=early.sums)
        follows = pulls_follow_rewards(first, counts.pulls - early.pulls)
        drift = pulls_drift(counts.pulls, early.pulls)
    if follows > ADAPTIVE:
        return None
    if drift <= LEVEL:
        how = "drift within tasks"
    elif pulls_by_name(counts, rng) <= LEVEL:
        how = "depend on the names of arms"
    else:
        return None
    return (
        f"pulls follow rewards (chance {follows:.1g}) and {how}, and there are no propensities: "
        "log them, or give every arm its pulls at random in some tasks"
    )


def judged(
    names: float,
    level: float,
    over_alone: Saving,
    over_pooled: Saving,
    gain: Gain,
    adapting: Gain,
) -> Verdict:
    """The rule, in order: one for all, share, each for itself, too little data."""
    worst = min(over_alone, over_pooled, key=lambda saving: saving.part)
    structure: Structure | None = None
    if names <= LEVEL:
        structure = "level" if level <= LEVEL else "independent"
    elif level <= LEVEL:
        structure = "exchangeable"
    together = over_alone.above(-SURE) > 0 and gain.mean > SURE * gain.error and bool(structure)
    apart = over_pooled.above(-SURE) > 0 and adapting.mean > SURE * adapting.error
    alone, pool = _said(over_alone, "a task alone"), _said(over_pooled, "one sampler for all")
    both = f"{alone}, and {pool}"
    answer: Answer
    if together and apart and over_pooled.high >= WORTH:
        answer, why = "share", both
    elif together and (over_pooled.high < WORTH or over_pooled.part <= 0):
        answer, why = "one for all", f"tasks are too alike, or too short, to be told apart: {pool}"
    elif over_alone.high < WORTH:
        answer, why = "each for itself", alone
    else:
        unknown = "which of the two is better" if together else "whether there is a gain at all"
        answer, why = "too little data", f"{both}; the log does not settle {unknown}"
    if answer == "each for itself":
        worst = over_alone
    structure = structure if answer == "share" else None
    reasons = (why, _chances(names, level, gain, adapting))
    size, savings = (worst.part, (worst.low, worst.high)), (over_alone, over_pooled)
    return Verdict(answer, structure, *size, reasons, *savings, gain, names, level, adapting)


def _said(saving: Saving, rival: str) -> str:
    """Who saves how much of what the other loses."""
    part, low, high = saving.part, saving.low, saving.high
    if part < 0:
        return f"{rival} saves {-part:.0%} ({-high:.0%} to {-low:.0%}) of what sharing loses"
    return f"sharing saves {part:.0%} ({low:.0%} to {high:.0%}) of what {rival} loses"


def _chances(names: float, level: float, gain: Gain, adapting: Gain) -> str:
    return (
        f"if names of arms meant nothing, they would differ as much with chance {_odds(names)}; if "
        f"tasks had no level, with chance {_odds(level)}; tasks that were held out gain "
        f"{gain.mean:+.3g} ± {gain.error:.2g} over playing alone, and a pull there, after half of "
        f"the task, {adapting.mean:+.3g} ± {adapting.error:.2g} over the arm that is best for all"
    )


def _odds(chance: float) -> str:
    return f"{chance:.2g}" if chance > SMALL else f"under {SMALL:g}"


# tests on counts by task and arm: do names matter, does the level, is the log adaptive?


def names_matter(counts: TaskCounts, rng: Rng) -> float:
    """Chance of such differences of arms if (pulls, sums) were dealt to a task's arms at random."""
    return dealt_within_tasks(_scores(counts, within_tasks=True), counts.pulls > 0, rng)


def dealt_within_tasks(x: FloatArray, here: BoolArray, rng: Rng) -> float:
    """Chance of such differences of arms if scores were dealt to a task's arms at random."""
    n = here.sum(axis=1)
    often = here[n > 1].sum(axis=0) >= (OFTEN if len(x) >= MANY else 1)
    if often.sum() < 2:
        return 1.0
    centre = x.sum(axis=1) / np.maximum(n, 1)
    x = np.where(here, x - centre[:, None], 0.0)
    own = (x**2).sum(axis=1) / np.maximum(n - 1, 1) * (n > 1)
    cov = np.diag(own @ here) - (here * (own / np.maximum(n, 1))[:, None]).T @ here
    inverse = np.linalg.pinv(cov[np.ix_(often, often)], rcond=1e-9, hermitian=True)

    def far(u: FloatArray) -> FloatArray:
        u = u[..., often]
        return np.asarray(np.einsum("...i,ij,...j->...", u, inverse, u))

    seen = far(x.sum(axis=0))
    if len(x) >= MANY:
        rank = int(np.linalg.matrix_rank(inverse, hermitian=True))
        return float(chdtrc(rank, seen))
    order = np.argsort(~here, axis=1, kind="stable")  # arms that a task has come first
    packed, absent = np.take_along_axis(x, order, 1), np.sort(~here, axis=1)
    u = np.empty((PERMUTATIONS, x.shape[1]))
    for i in range(PERMUTATIONS):
        deal = np.argsort(rng.random(x.shape) + absent, axis=1)
        dealt = np.take_along_axis(packed, deal, 1)
        u[i] = np.bincount(order.ravel(), dealt.ravel(), minlength=x.shape[1])
    return float((1 + (far(u) >= seen * (1 - 1e-9)).sum()) / (1 + PERMUTATIONS))


def level_matters(counts: TaskCounts, rng: Rng) -> float:
    """Chance of such agreement of a task's arms if they were dealt to tasks at random."""
    here = counts.pulls > 0
    x = _scores(counts, within_tasks=False)

    def agree(x: FloatArray) -> float:
        return float((x.sum(axis=1) ** 2 - (x**2).sum(axis=1)).sum())

    seen = agree(x)
    if len(x) >= MANY:
        var = 2 * float(((x**2).sum(axis=1) ** 2 - (x**4).sum(axis=1)).sum())
        return float(ndtr(-seen / math.sqrt(var))) if var > 0 else 1.0
    beyond = 0
    for _ in range(PERMUTATIONS):
        dealt = np.zeros_like(x)
        for k in range(x.shape[1]):
            dealt[here[:, k], k] = rng.permutation(x[here[:, k], k])
        beyond += agree(dealt) >= seen
    return (1 + beyond) / (1 + PERMUTATIONS)


def _scores(counts: TaskCounts, *, within_tasks: bool) -> FloatArray:
    """Weighted gaps of means of η, from the mean of their task or of their arm."""
    work = linearised(counts, smoothed(counts, arms=not within_tasks, tasks=within_tasks))
    n = work.pulls / work.phi
    gaps = work.means - float((n * work.means).sum() / n.sum())
    spread = max(float((n * gaps**2 - (n > 0)).sum() / n.sum()), 0.0)
    w = n / (1.0 + n * spread)
    axis = 1 if within_tasks else 0
    total = np.maximum(w.sum(axis=axis, keepdims=True), 1e-300)
    centre = (w * work.means).sum(axis=axis, keepdims=True) / total
    return np.asarray(w * (work.means - centre))


def pulls_by_name(counts: TaskCounts, rng: Rng) -> float:
    """Chance of such a preference for some arms if pulls were dealt to a task's arms at random."""
    return dealt_within_tasks(_preference(counts.pulls), counts.pulls > 0, rng)


def _preference(pulls: FloatArray) -> FloatArray:
    """The part of a task's pulls that an arm has, over that of an equal split."""
    here = pulls > 0
    total, arms = pulls.sum(axis=1, keepdims=True), here.sum(axis=1, keepdims=True)
    even = 1.0 / np.maximum(arms, 1)
    return np.asarray(np.where(here, pulls / np.maximum(total, 1.0) - even, 0.0))


def pulls_follow_rewards(counts: TaskCounts, later: FloatArray | None = None) -> float:
    """Chance of such agreement of pulls and rewards within tasks if pulls were set beforehand.

    What each arm has in all tasks is subtracted from both. `later` are pulls after the rewards
    of `counts`; without them it is the pulls of `counts` themselves.
    """
    here = counts.pulls > 0
    pulls = _preference(counts.pulls if later is None else np.where(here, later, 0.0))
    work = linearised(counts, smoothed(counts))
    n = work.pulls / work.phi
    pulls, means = (_without_arms(x, here) for x in (pulls, np.where(here, work.means, 0.0)))
    weight = n.sum(axis=1, keepdims=True) ** 0.5
    agree = (weight * pulls * means).sum(axis=1)
    size = math.sqrt(float((agree**2).sum()))
    return float(ndtr(-agree.sum() / size)) if size > 0 else 1.0


def _without_arms(x: FloatArray, here: BoolArray) -> FloatArray:
    """Less the mean of each arm, then less that of each task."""
    x = np.where(here, x - x.sum(axis=0) / np.maximum(here.sum(axis=0), 1), 0.0)
    centre = x.sum(axis=1, keepdims=True) / np.maximum(here.sum(axis=1, keepdims=True), 1)
    return np.asarray(np.where(here, x - centre, 0.0))


def pulls_drift(pulls: FloatArray, early: FloatArray) -> float:
    """Chance of such a change within tasks if the order of a task's pulls were random.

    `early` are those of `pulls` that came first. A chi-square over tasks and arms, with the exact
    mean and variance of dealing at random in large tasks.
    """
    total, first = pulls.sum(axis=1, keepdims=True), early.sum(axis=1, keepdims=True)
    informative = ((first > 0) & (first < total) & (total > 1))[:, 0]
    pulls, early, total, first = (x[informative] for x in (pulls, early, total, first))
    expected = pulls * first / np.maximum(total, 1.0)
    share = first / np.maximum(total, 1.0)
    var = np.maximum(pulls * share * (1 - share), 1e-300)
    square = np.where(pulls > 0, (early - expected) ** 2 / var, 0.0).sum(axis=1)
    square = square * ((total - 1) / np.maximum(total, 1.0))[:, 0]
    degrees = float(np.maximum((pulls > 0).sum(axis=1) - 1, 0).sum())
    return float(chdtrc(degrees, square.sum())) if degrees > 0 else 1.0
