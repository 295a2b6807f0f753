"""Conformance checks: the laws that every `Stats`, `Belief` and `MetaBelief` must keep, and stores.

Call them from the tests of a model of your own. They use the public protocol alone, draw from
fixed seeds, and raise `AssertionError` saying which law is broken and by how much.

A model that works its digests out approximately gives a `tolerance`: how many posterior standard
deviations a mean may be off (and a standard deviation, as a part of itself; weights and log
evidence, by that much) where the same rewards are worked out in another way. All that is made of
digests that are kept, such as sums, their order, and forgetting, is exact still.
"""

from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from adats.models.core.types import Belief, FloatArray, MetaBelief, Rng, Stats

ROUND_OFF = 1e-8  # relative to the largest entry, or to 1
AT_ONCE = 1e-12  # the same for messages of many tasks, against those of one
SIGMAS = 5.0  # standard errors that the mean of draws may be off

Observations = Sequence[tuple[Any, Any]]  # pairs of an action and its reward
Portrait = dict[str, FloatArray]  # what can be seen of an object from outside, by name


def check_stats(empty: Stats, observations: Observations) -> None:
    """Statistics are a commutative group, can be scaled, never change, and survive `flat` and
    `from_flat`.

    `empty` is the zero of the group; the observations must be at least two.

    >>> from adats.models.core.stats import ArmStats
    >>> check_stats(ArmStats.zeros(2), [(0, 1.5), (1, -2.0), (0, 0.5)])
    """
    zero = np.array(empty.flat())
    a, b = _halves(empty, observations)
    kept = [zero, np.array(a.flat()), np.array(b.flat())]
    both = _added(empty, observations)
    actions, rewards = zip(*observations, strict=True)
    pairs = {
        "a + zero = a": (a + empty, a),
        "a - a = zero": (a - a, empty),
        "a + b = b + a": (a + b, b + a),
        "order of observations": (_added(empty, observations[::-1]), both),
        "a + b = the observations of both": (a + b, both),
        "(a + b) - b = a": ((a + b) - b, a),
        "half of a, twice = a": (a.scaled(0.5) + a.scaled(0.5), a),
        "a + b scaled = each scaled": ((a + b).scaled(0.3), a.scaled(0.3) + b.scaled(0.3)),
        "batch add = one by one": (empty.add(np.array(actions), np.array(rewards)), both),
        "from_flat(flat) = the same": (type(both).from_flat(both.flat()), both),
    }
    for old, flat in zip((empty, a, b), kept, strict=True):
        _same("the originals are unchanged", old.flat(), flat)
    _same("empty is zero", zero, np.zeros(zero.shape))
    for law, (left, right) in pairs.items():
        _same(law, left.flat(), right.flat())


def check_belief(
    belief: Belief,
    empty: Stats,
    observations: Observations,
    *,
    draws: int = 2000,
    seed: int = 0,
    tolerance: float = 0.0,
) -> None:
    """A belief conditions consistently, draws purely from the rng, and never changes.

    With a `tolerance` only nearly: to condition in two steps is then not quite the same as in one.

    >>> from adats.models import GaussianArms
    >>> from adats.models.core.stats import ArmStats
    >>> prior = GaussianArms(mean=[0.0, 1.0], scale=1.0, noise=1.0)
    >>> check_belief(prior, ArmStats.zeros(2), [(0, 1.5), (1, -2.0), (0, 0.5)])
    """
    a, b = _halves(empty, observations)
    kept = _look(belief)

    nothing, both = belief.condition(empty), belief.condition(a + b)
    _alike("the belief is unchanged", _look(belief), kept)
    _same("the log evidence of nothing is 0", nothing.log_evidence, 0.0)
    _alike("conditioning on nothing", _look(nothing.belief), _look(belief))
    for law, first, second in (("a then b", a, b), ("b then a", b, a)):
        part = belief.condition(first)
        rest = part.belief.condition(second)
        _alike(f"{law} = both at once", _look(rest.belief), _look(both.belief), tolerance)
        summed = part.log_evidence + rest.log_evidence
        _same(f"chain rule of evidence, {law}", summed, both.log_evidence, tolerance)
    for one in (belief, both.belief):
        _check_draws("sample", one.sample, one.sample, one, draws, seed)


def check_meta(
    meta: MetaBelief,
    tasks: Sequence[Any],
    *,
    designs: Sequence[FloatArray | None] | None = None,
    draws: int = 1000,
    seed: int = 0,
    tolerance: float = 0.0,
) -> None:
    """Messages of tasks add, and can lose weight; evidence, prior and posterior of a task agree
    with each other; and many tasks at once are as one by one.

    `tasks` are the statistics of at least two different tasks, `designs` one design for each. With
    a `tolerance` a digest that is kept is exact, and one that is worked out anew nearly the same.

    >>> from adats.models import GaussianMeta
    >>> meta = GaussianMeta(mean=[0.0, 0.0], scale=1.0, task_scale=0.5, noise=1.0)
    >>> check_meta(meta, [meta.empty().add(0, 1.5), meta.empty().add(1, -2.0).add(0, 0.5)])
    """
    _that("tasks are at least two", len(tasks) >= 2, len(tasks))
    phis = designs or [None] * len(tasks)
    arms = range(getattr(meta, "n_arms", 0))

    def seen(one: MetaBelief) -> Portrait:
        prior = _look(one.task_prior(design=phis[0])).items()
        found = {f"task prior's {name}": value for name, value in prior}
        return _look(one) | found | {"log evidence": np.array(one.log_evidence())}

    kept = seen(meta)
    digests = [meta.digest(s, design=phi) for s, phi in zip(tasks, phis, strict=True)]
    messages = [np.array(digest.message) for digest in digests]
    full = _absorbed(meta, messages)
    _alike("the meta-belief is unchanged", seen(meta), kept)
    _alike("order of tasks", seen(_absorbed(meta, messages[::-1])), seen(full))
    _alike("absorb(-message) restores", seen(_absorbed(full, [-m for m in messages])), seen(meta))
    for i, (stats, phi, digest) in enumerate(zip(tasks, phis, digests, strict=True)):
        nothing = meta.digest(meta.empty(design=phi), design=phi)
        _same("the message of an empty task is 0", nothing.message, np.zeros(messages[i].shape))
        later = full.digest(stats, design=phi)
        _same("digest depends on the model alone", later.message, messages[i])
        kept_stats = type(stats).from_flat(np.array(digest.stats.flat()))
        for kept_one in (digest.stats, kept_stats):
            again = full.digest(kept_one, design=phi)
            _same("digest of what a digest keeps", again.message, messages[i])
        twice = full.absorb(messages[i])
        for old, before in ((nothing, full.absorb(nothing.message)), (digest, twice)):
            grown, swapped = before.replace_task(old, stats, arms)
            if not tolerance:
                _same("digest of a task that grew", grown.message, messages[i])
            _alike("replace_task = absorb", seen(swapped), seen(twice), tolerance)
            anew = full.absorb(grown.message)
            _alike("replace_task = its own messages", seen(swapped), seen(anew))
            found, expected = _look(swapped.posterior(grown)), _look(twice.posterior(digest))
            _alike("posterior of a task that grew", found, expected, tolerance)
        early = _absorbed(meta, messages[:i])
        for others in (early, _absorbed(early, messages[i + 1 :])):
            after = others.absorb(messages[i])
            conditioned = others.task_prior(design=phi).condition(stats)
            gain = after.log_evidence() - others.log_evidence()
            _same("chain rule of evidence over tasks", gain, conditioned.log_evidence, tolerance)
            for one in (digest, later, grown):
                found = _look(after.posterior(one))
                expected = _look(conditioned.belief)
                _alike("posterior = prior, conditioned", found, expected, tolerance)

    faded, less = full.faded(0.5), meta.faded(0.5)
    halves = [0.5 * message for message in messages]
    _alike("faded = messages that weigh less", seen(faded), seen(_absorbed(less, halves)))
    for i, (stats, phi, digest) in enumerate(zip(tasks, phis, digests, strict=True)):
        others = _absorbed(less, halves[:i] + halves[i + 1 :])
        aged, swapped = faded.replace_task(digest, digest.stats.scaled(0.25), (), weight=0.5)
        wanted = seen(others.absorb(aged.message))
        _alike("replace_task of a task that weighed less", seen(swapped), wanted)
        if not tolerance:
            fresh = meta.digest(stats.scaled(0.25), design=phi)
            _same("digest of pulls that weigh less", aged.message, fresh.message)
        conditioned = others.task_prior(design=phi).condition(stats.scaled(0.25))
        found, expected = _look(swapped.posterior(aged)), _look(conditioned.belief)
        _alike("posterior of pulls that weigh less", found, expected, tolerance)
        for now in (digest.stats.scaled(0.25), digest.stats):
            found_aged, sum_aged = full.replace_aged(digest, now, (), 0.5, 0.5)
            wanted = seen(others.absorb(found_aged.message))
            _alike("replace_aged = faded and replace_task", seen(sum_aged), wanted)
            expected = _look(sum_aged.posterior(found_aged))
            found = _look(full.posterior_aged(digest, now, 0.5, 0.5))
            _alike("posterior_aged = posterior after replace_aged", found, expected)
    again, kept_weights = faded.renew(digests, [0.5] * len(digests))
    wanted = seen(_absorbed(less, [0.5 * digest.message for digest in again]))
    _alike("renew keeps the weights", seen(kept_weights), wanted)

    if designs is None and meta.row_size:
        rows = np.stack([np.array(meta.row_of(digest.stats)) for digest in digests])
        _check_many(full, rows, digests)
        total = meta.digest_many(rows, kept=False).message_sum
        _alike("digest_many of nothing kept", seen(meta.absorb(total)), seen(full), tolerance)

    for one in (meta, full):
        means = partial(_mean_given_draw, one, phis[0])
        prior = one.task_prior(design=phis[0])
        _check_draws("prior_given(sample).mean", means, one.sample, prior, draws, seed)
        mu = one.sample(np.random.default_rng(seed))
        conditioned = one.prior_given(mu, design=phis[0]).condition(tasks[0])
        _that("prior_given(sample) conditions", np.isfinite(conditioned.log_evidence), conditioned)


def check_store(
    open_store: Callable[[str], Any], damage: Callable[[str], None] | None = None
) -> None:
    """A store of the service keeps what `adats.service.stores.interface` promises.

    `open_store(name)` opens the store of this name; a name that is new has an empty one. Where
    damage can be found, `damage(name)` changes the state of a task behind the store's back.
    """
    checks = import_module("adats.service.stores.conformance")  # needs the service's packages
    checks.check_store(open_store, damage)


def _check_many(meta: MetaBelief, rows: FloatArray, digests: Sequence[Any]) -> None:
    """Tasks at once are as one by one: their messages, the sum of these, and their posteriors."""
    kept = rows.copy()
    many = meta.digest_many(rows)
    for digest, message, row in zip(digests, many.messages, rows, strict=True):
        _same("digest_many = digest", message, digest.message, round_off=AT_ONCE)
        again = meta.row_of(type(digest.stats).from_flat(row.copy()))
        _same("row_of(from_flat(row)) = the same", again, row)
    _same("digest_many keeps the rows", many.rows, kept)
    for some in (many, meta.digest_many(rows, kept=False)):
        total = np.sum(some.messages, axis=0)
        _same("message_sum = the sum of messages", some.message_sum, total, round_off=AT_ONCE)
        again = meta.digest_many(np.array(some.rows)).messages
        _same("digest_many of what it keeps", again, some.messages, round_off=AT_ONCE)
    beliefs = meta.posterior_many(many)
    parts = [meta.posterior(digest) for digest in digests]
    _same("posterior_many = posterior (mean)", beliefs.mean, [part.mean for part in parts])
    _same("posterior_many = posterior (scale)", beliefs.scale, [part.scale for part in parts])
    if meta.APART_MANY:
        changes = 0.5 * many.messages
        apart = meta.posterior_apart_many(many, changes)
        pairs = zip(digests, changes, strict=True)
        parts = [meta.absorb(change).posterior(digest) for digest, change in pairs]
        _same("posterior_apart_many (mean)", apart.mean, [part.mean for part in parts])
        _same("posterior_apart_many (scale)", apart.scale, [part.scale for part in parts])


def _that(law: str, holds: Any, found: object) -> None:
    if not holds:
        raise AssertionError(f"{law}: does not hold, got {found}")


def _same(
    law: str, left: Any, right: Any, allowed: Any = 0.0, *, round_off: float = ROUND_OFF
) -> None:
    """Equal to round-off, and to what is `allowed` beyond it."""
    left, right = np.asarray(left, dtype=np.float64), np.asarray(right, dtype=np.float64)
    _that(f"{law} (shapes)", left.shape == right.shape, f"{left.shape} and {right.shape}")
    slack = round_off * (1.0 + np.abs(right[np.isfinite(right)]).max(initial=0.0))
    close = np.isclose(left, right, rtol=0.0, atol=slack + np.asarray(allowed))
    _that(law, close.all(), f"{left} and {right}")


def _alike(law: str, left: Portrait, right: Portrait, tolerance: float = 0.0) -> None:
    for name in (name for name in left if name in right):
        allowed = tolerance * _unit(right, name) if tolerance else 0.0
        _same(f"{law} ({name})", left[name], right[name], allowed)


def _unit(portrait: Portrait, name: str) -> Any:
    """Standard deviations of what is looked at, or products of two; 1 where there are none."""
    whose, _, what = name.rpartition(" ")
    scale = portrait.get(f"{whose} scale".strip())
    if what == "cov":
        scale = np.sqrt(np.diagonal(portrait[name]))
        return scale[:, None] * scale
    return 1.0 if scale is None or what not in ("mean", "scale") else scale


def _look(one: Any) -> Portrait:
    names = ("mean", "scale", "cov", "weights")
    return {name: np.array(getattr(one, name)) for name in names if hasattr(one, name)}


def _added(stats: Stats, observations: Observations) -> Stats:
    for action, reward in observations:
        stats = stats.add(action, reward)
    return stats


def _halves(empty: Stats, observations: Observations) -> tuple[Stats, Stats]:
    _that("observations are at least two", len(observations) >= 2, len(observations))
    half = len(observations) // 2
    return _added(empty, observations[:half]), _added(empty, observations[half:])


def _absorbed(meta: MetaBelief, messages: Sequence[FloatArray]) -> MetaBelief:
    for message in messages:
        meta = meta.absorb(message)
    return meta


def _mean_given_draw(meta: MetaBelief, design: FloatArray | None, rng: Rng) -> FloatArray:
    prior: Belief = meta.prior_given(meta.sample(rng), design=design)
    return prior.mean


def _check_draws(
    law: str,
    draw: Callable[[Rng], FloatArray],
    pure: Callable[[Rng], FloatArray],
    belief: Belief,
    draws: int,
    seed: int,
) -> None:
    """`pure` depends on the rng alone; `draw` averages to the mean of `belief`, if finite."""
    once, twice = (np.array(pure(np.random.default_rng(seed))) for _ in range(2))
    _that(f"{law} is a function of the rng", np.array_equal(once, twice), f"{once} and {twice}")
    rng, mean = np.random.default_rng(seed), belief.mean
    drawn = np.array([draw(rng) for _ in range(draws)])
    _that(f"{law} has the shape of mean", drawn.shape[1:] == mean.shape, drawn.shape[1:])
    finite = np.isfinite(mean)
    mean, scale, drawn = mean[finite], belief.scale[finite], drawn[:, finite]
    error = np.abs(drawn.mean(axis=0) - mean)
    scale = np.where(np.isfinite(scale), scale, drawn.std(axis=0))
    slack = SIGMAS * scale / np.sqrt(draws) + ROUND_OFF * (1.0 + np.abs(mean))
    _that(f"{law} averages to the mean", (error <= slack).all(), f"errors {error} over {slack}")
