import inspect
import re
from dataclasses import fields
from itertools import count

import numpy as np
import pytest

import adats.models
import adats.models.core.stats
from adats.models import (
    BeliefMixture,
    BetaArms,
    BinaryStats,
    ClusterMeta,
    CountStats,
    ExponentialArms,
    ExponentialFamily,
    FamilyArms,
    GaussianArms,
    GaussianMeta,
    LinearBelief,
    LinearMeta,
    LinearStats,
    MixtureArms,
    MixtureMeta,
    ModelMixture,
    PoissonArms,
    PositiveStats,
)
from adats.models.core.stats import ArmStats
from adats.models.core.types import Conditioned
from adats.models.latent.meta import LatentMeta
from adats.models.latent.row_meta import LatentLinearMeta
from adats.models.latent.row_stats import ClickRows
from adats.models.latent.stats import ClickStats, EventStats
from adats.testing import check_belief, check_meta, check_stats

ROWS = np.array([[1.0, 0.5], [0.0, -1.0], [2.0, 1.0], [1.0, 1.0], [0.3, 0.0]])
OBSERVED = {
    ArmStats: [(0, 1.5), (1, -2.0), (0, 0.25), (0, -1.0), (1, 3.0)],
    BinaryStats: [(0, 1), (1, 0), (0, 0), (0, 1), (1, 1)],
    CountStats: [(0, 3), (1, 0), (0, 1), (0, 7), (1, 2)],
    PositiveStats: [(0, 0.5), (1, 2.0), (0, 0.0), (0, 4.0), (1, 0.1)],
    LinearStats: list(zip(ROWS, [1.0, -2.0, 0.5, 0.0, 3.0], strict=True)),
}
OBSERVED_NEARLY = {
    ClickStats: OBSERVED[BinaryStats],
    EventStats: OBSERVED[CountStats],
    ClickRows: list(zip(ROWS, [1.0, 0.0, 0.0, 1.0, 1.0], strict=True)),
}
SINGULAR = np.array([[1.0, 2.0], [2.0, 4.0]])
BETAS = [BetaArms([1.0, 2.0], 3.0), BetaArms(4.0, [1.0, 2.0])]
COUNTS = [PoissonArms([1.0, 2.0], 3.0), PoissonArms(4.0, [1.0, 2.0])]
TIMES = [ExponentialArms([3.0, 4.0], 3.0), ExponentialArms(5.0, [1.0, 2.0])]
GAUSSIANS = [GaussianArms([1.0, 2.0], 3.0, 1.0), GaussianArms(0.0, [0.0, 2.0], [0.5, 1.0])]
SEPARATE = [[0.2, 0.9], [0.8, 0.1]]

BELIEFS = [
    (GAUSSIANS[0], ArmStats),
    (GAUSSIANS[1], ArmStats),
    (BETAS[0], BinaryStats),
    (COUNTS[1], CountStats),
    (TIMES[0], PositiveStats),
    (ExponentialArms([0.5, 1.5], 1.0), PositiveStats),  # infinite mean, infinite scale
    (LinearBelief([1.0, -1.0], 2.0, 0.5), LinearStats),
    (LinearBelief([1.0, -1.0], SINGULAR, 0.5), LinearStats),
    (LinearBelief([1.0, -1.0], 0.0, 0.5), LinearStats),
    (MixtureArms([0.3, 0.7], BETAS), BinaryStats),
    (MixtureArms(SEPARATE, GAUSSIANS), ArmStats),
    (MixtureArms([0.0, 1.0], TIMES), PositiveStats),
    (BeliefMixture([0.3, 0.7], COUNTS), CountStats),
    (
        BeliefMixture([0.5, 0.5], [LinearBelief([0.0, 0.0], c, 1.0) for c in (1.0, SINGULAR)]),
        LinearStats,
    ),
]
METAS = [
    GaussianMeta([0.0, 1.0], [1.0, 2.0], task_scale=0.5, noise=[1.0, 0.5]),
    GaussianMeta([0.0, 1.0], [0.0, 2.0], task_scale=[0.5, 0.0], noise=1.0),
    LinearMeta([0.0, 1.0], 2.0, task_cov=0.5, noise=1.0),
    LinearMeta([0.0, 1.0], SINGULAR, task_cov=SINGULAR[::-1, ::-1], noise=0.5),
    LinearMeta([0.5], 2.0, task_cov=np.diag([0.5, 0.0]), noise=1.0, design=np.ones((2, 1))),
    *(MixtureMeta(w, p) for w in ([0.3, 0.7], SEPARATE) for p in (BETAS, COUNTS, TIMES, GAUSSIANS)),
    ModelMixture(
        [0.2, 0.8], [GaussianMeta([0.0, 1.0], 1.0, task_scale=s, noise=1 - s) for s in (0.0, 0.5)]
    ),
    ModelMixture(
        [0.5, 0.5], [LinearMeta([0.0, 1.0], 1.0, task_cov=c, noise=0.7) for c in (0.0, SINGULAR)]
    ),
    ModelMixture([0.5, 0.5], [MixtureMeta([0.3, 0.7], COUNTS), MixtureMeta(SEPARATE, COUNTS)]),
    ClusterMeta([GaussianMeta([m, 1.0], 0.3, task_scale=0.5, noise=1.0) for m in (-1.0, 1.0)]),
    ClusterMeta(
        [LinearMeta([m, 1.0], 0.0, task_cov=0.5, noise=1.0) for m in (-1.0, 1.0)],
        [[0.1, 0.9], [0.5, 0.5], [1.0, 0.0]],
    ),
    ClusterMeta([MixtureMeta([0.3, 0.7], BETAS), MixtureMeta(SEPARATE, BETAS)], [0.4, 0.6]),
]
CLICKS = {"mean": [0.0, -1.0], "cov": [[1.0, 0.5], [0.5, 1.0]]}
NEARLY = [  # models whose digests are approximate, and by how much
    (LatentMeta(**CLICKS, task_scale=0.3, level_scale=0.4), 0.05),
    (LatentMeta(**CLICKS, task_scale=[0.1, 0.5], level_scale=[0.3, 0.0]), 0.05),
    (LatentMeta(**CLICKS, task_cov=[[0.5, 0.2], [0.2, 0.3]]), 0.05),
    (LatentMeta(**CLICKS, task_scale=[0.2, 0.8], design=[[1.0, 0.0], [1.0, 1.0]]), 0.05),
    (LatentMeta([0.0, -1.0], 0.0, task_scale=0.0), 0.01),
    (LatentMeta([1.0, 0.0], 0.3, task_scale=0.3, level_scale=0.3, rewards="count"), 0.1),
    (LatentLinearMeta([0.0, 0.5], 1.0, task_scale=[0.2, 0.6]), 0.05),
]


def tasks_of(meta, designs=(None, None, None)):
    """Three tasks, one of them empty."""
    tasks = [meta.empty(design=phi) for phi in designs]
    for number, (action, reward) in enumerate((OBSERVED | OBSERVED_NEARLY)[type(tasks[0])]):
        task = number % 2
        if isinstance(tasks[task], LinearStats):
            action = np.resize(action, tasks[task].xy.size)
        tasks[task] = tasks[task].add(action, reward)
    return tasks


def name_of(value):
    return type(value).__name__


@pytest.mark.parametrize("kind", OBSERVED | OBSERVED_NEARLY)
def test_stats_keep_the_laws(kind):
    check_stats(kind.zeros(2), (OBSERVED | OBSERVED_NEARLY)[kind])


@pytest.mark.parametrize(("belief", "kind"), BELIEFS, ids=lambda v: name_of(v))
def test_beliefs_keep_the_laws(belief, kind):
    check_belief(belief, kind.zeros(2), OBSERVED[kind], draws=1000)


@pytest.mark.parametrize("meta", METAS, ids=name_of)
def test_metas_keep_the_laws(meta):
    check_meta(meta, tasks_of(meta), draws=500)
    told = meta.absorb(meta.digest(tasks_of(meta)[0]).message)  # from any state
    check_meta(told, tasks_of(meta)[1:], draws=500)


@pytest.mark.parametrize("meta", METAS, ids=name_of)
def test_priors_and_posteriors_of_metas_keep_the_laws(meta):
    digest, other, _ = map(meta.digest, tasks_of(meta))
    told = meta.absorb(digest.message + other.message)
    for belief in (told.task_prior(), told.posterior(digest)):
        check_belief(belief, meta.empty(), OBSERVED[type(meta.empty())], draws=500)


def test_metas_with_a_design_for_each_task_keep_the_laws():
    meta = LinearMeta([0.5, -1.0], 2.0, task_cov=0.5, noise=1.0)
    designs = [np.ones((3, 2)), np.eye(2), ROWS[:4]]
    check_meta(meta, tasks_of(meta, designs), designs=designs, draws=500)
    both = ModelMixture([0.5, 0.5], [meta, meta.widen(3.0)])
    check_meta(both, tasks_of(both, designs), designs=designs, draws=500)


@pytest.mark.parametrize(("meta", "tolerance"), NEARLY, ids=name_of)
def test_approximate_metas_nearly_keep_the_laws(meta, tolerance):
    check_meta(meta, tasks_of(meta), draws=500, tolerance=tolerance)
    told = meta.absorb(meta.digest(tasks_of(meta)[0]).message)
    check_meta(told, tasks_of(meta)[1:], draws=500, tolerance=tolerance)
    digest = meta.digest(tasks_of(meta)[0])
    observed = OBSERVED_NEARLY[type(meta.empty())]
    for belief in (told.task_prior(), told.posterior(digest)):
        check_belief(belief, meta.empty(), observed, draws=500, tolerance=tolerance)


def test_every_exported_class_has_a_case():
    classes = set(filter(inspect.isclass, (getattr(adats.models, n) for n in adats.models.__all__)))
    beliefs, metas = (set(map(type, cases)) for cases in ([b for b, _ in BELIEFS], METAS))
    given = {ExponentialFamily, FamilyArms}  # users derive from these: tests/models/test_family.py
    assert classes - given == set(OBSERVED) | beliefs | metas | {type(meta) for meta, _ in NEARLY}


# Each check can fail: sound models, spoiled in one method


def spoiled(original, **methods):
    new = object.__new__(type("Spoiled", (type(original),), methods))
    for base in type(original).__mro__:
        for name in getattr(base, "__slots__", ()):
            vars(base)[name].__set__(new, getattr(original, name))
    new.__dict__.update(getattr(original, "__dict__", {}))
    return new


def scribble_add(self, other):
    self.table[:] += other.table
    return self


def keep_last(table, arm, value):
    table[0, arm] += 1
    table[1, arm] = value


STATS_FAULTS = [
    ("the originals are unchanged", {"__add__": scribble_add}),
    ("a + b = b + a", {"__add__": lambda s, o: type(s)(s.table + 2 * o.table)}),
    ("a + zero = a", {"__add__": lambda s, o: type(s)(s.table + o.table + 1)}),
    ("a - a = zero", {"__sub__": lambda s, _: s}),
    ("(a + b) - b = a", {"__sub__": lambda s, _: type(s)(s.table * 0)}),
    (
        "a + b = the observations",
        {"__add__": lambda s, o: type(s)(s.table + o.table + s.table * o.table)},
    ),
    ("order of observations", {"count_reward": staticmethod(keep_last)}),
    ("batch add", {"add": lambda s, a, y: ArmStats.add(s, np.ravel(a)[:1], np.ravel(y)[:1])}),
    ("half of a, twice", {"scaled": lambda s, _: s}),
    ("a + b scaled", {"scaled": lambda s, f: type(s)(s.table * f + (f != 0.5))}),
    ("from_flat(flat)", {"from_flat": classmethod(lambda c, v: c(np.round(v).reshape(3, -1)))}),
]


@pytest.mark.parametrize(("law", "fault"), STATS_FAULTS)
def test_broken_stats_are_found(law, fault):
    with pytest.raises(AssertionError, match=re.escape(law)):
        check_stats(spoiled(ArmStats.zeros(2), **fault), OBSERVED[ArmStats])


def test_stats_that_do_not_start_at_zero_are_found():
    with pytest.raises(AssertionError, match="empty is zero"):
        check_stats(ArmStats.zeros(2).add(0, 1.0), OBSERVED[ArmStats])


ARMS = GaussianArms([0.0, 1.0], 1.0, 1.0)


def fields_of(belief):
    return {field.name: getattr(belief, field.name) for field in fields(belief)}


def condition_in_place(self, stats):
    result = GaussianArms.condition(self, stats)
    for name, value in fields_of(result.belief).items():
        object.__setattr__(self, name, value)
    return result


def changed(name, amount):
    """Conditioning with something added to the evidence, or to a field of the belief."""

    def condition(self, stats):
        evidence, belief = GaussianArms.condition(self, stats)
        parts = fields_of(belief) | {"evidence": evidence}
        parts[name] = parts[name] + amount(stats.count.sum())
        return Conditioned(parts.pop("evidence"), type(self).of(*parts.values()))

    return {"condition": condition}


STREAM = np.random.default_rng(0)
BELIEF_FAULTS = [
    ("the belief is unchanged (mean)", {"condition": condition_in_place}),
    ("the log evidence of nothing is 0", changed("evidence", lambda _: 1.0)),
    ("conditioning on nothing (mean)", changed("mean", lambda _: 1.0)),
    ("conditioning on nothing (scale)", changed("scale", lambda _: 1.0)),
    ("a then b = both at once (mean)", changed("mean", lambda n: n**2)),
    ("a then b = both at once (scale)", changed("scale", lambda n: n == 5)),
    ("chain rule of evidence, a then b", changed("evidence", lambda n: n**2)),
    (
        "sample is a function of the rng",
        {"sample": lambda s, _: s.mean + s.scale * STREAM.standard_normal(2)},
    ),
    ("sample has the shape of mean", {"sample": lambda s, r: GaussianArms.sample(s, r)[:1]}),
    ("sample averages to the mean", {"sample": lambda s, r: GaussianArms.sample(s, r) + 0.3}),
]


@pytest.mark.parametrize(("law", "fault"), BELIEF_FAULTS)
def test_broken_beliefs_are_found(law, fault):
    with pytest.raises(AssertionError, match=re.escape(law)):
        check_belief(spoiled(ARMS, **fault), ArmStats.zeros(2), OBSERVED[ArmStats])


META = GaussianMeta([0.0, 1.0], 1.0, task_scale=0.5, noise=1.0)


def absorb_in_place(self, message):
    self.__dict__.update(GaussianMeta.absorb(self, message).__dict__)
    return self


def shifted_digest(self, stats, **options):
    digest = GaussianMeta.digest(self, stats, **options)
    return digest._replace(message=digest.message + 0.1)


def state_in_digest(self, stats, **options):
    digest = GaussianMeta.digest(self, stats, **options)
    return digest._replace(message=digest.message * (1 + self.total.value()[0]))


def added_twice(self, old, stats, changed):
    digest, meta = GaussianMeta.replace_task(self, old, stats, changed)
    return digest, meta.absorb(digest.message)


def shifted_prior(self, *, design=None):
    prior = GaussianMeta.task_prior(self, design=design)
    return GaussianArms(prior.mean + 0.5, prior.scale, prior.noise)


def forgetting_absorb(self, message):
    return GaussianMeta.absorb(self, message - 0.5 * self.total.value())


def one_way_absorb(self, message):
    return GaussianMeta.absorb(self, np.abs(message))


def absorbed_again(self, old, stats, changed, weight):
    """A task whose pulls never lose weight."""
    grown = old.stats if weight != 1.0 else stats
    return GaussianMeta.replace_task(self, old, grown, changed, weight=weight)


def no_evidence_prior(self, mu, *, design=None):
    prior = GaussianMeta.prior_given(self, mu, design=design)
    return spoiled(prior, condition=lambda s, _: Conditioned(np.nan, s))


def digests_with(**changes):
    """`digest_many` with properties of its answer changed: functions of the answer."""

    class Spoiled:
        def __init__(self, found):
            self.found = found

        def __getattr__(self, name):
            return changes[name](self.found) if name in changes else getattr(self.found, name)

    return {"digest_many": lambda s, r, **o: Spoiled(GaussianMeta.digest_many(s, r, **o))}


def rows_changed(self, rows, **options):
    rows[:, 0] += 1.0
    return GaussianMeta.digest_many(self, rows, **options)


def pulls_lost(self, rows, *, kept=True):
    return GaussianMeta.digest_many(self, rows if kept else 0.5 * rows)


def shifted_many(self, digests, mean=0.0, scale=1.0):
    found = GaussianMeta.posterior_many(self, digests)
    return GaussianArms.of(found.mean + mean, found.scale * scale, found.noise)


CALLS = count()
META_FAULTS = [
    ("digest_many = digest", digests_with(messages=lambda d: d.messages * (1 + 1e-10))),
    ("digest_many keeps the rows", digests_with(rows=lambda d: d.rows + 1e-6)),
    ("digest_many = digest", {"digest_many": rows_changed}),
    ("message_sum = the sum", digests_with(message_sum=lambda d: d.messages[1:].sum(axis=0))),
    ("digest_many of nothing kept", {"digest_many": pulls_lost}),
    (
        "row_of(from_flat(row))",
        {"row_of": lambda _, s: s.flat() + (next(CALLS) > 2)},
    ),
    (
        "posterior_many = posterior (mean)",
        {"posterior_many": lambda s, d: shifted_many(s, d, mean=1e-6)},
    ),
    (
        "posterior_many = posterior (scale)",
        {"posterior_many": lambda s, d: shifted_many(s, d, scale=1.001)},
    ),
    ("the meta-belief is unchanged", {"absorb": absorb_in_place}),
    ("the message of an empty task is 0", {"digest": shifted_digest}),
    ("order of tasks", {"absorb": forgetting_absorb}),
    ("absorb(-message) restores", {"absorb": one_way_absorb}),
    ("digest depends on the model alone", {"digest": state_in_digest}),
    ("digest of a task that grew", {"replace_task": lambda s, old, *_, **__: (old, s)}),
    ("faded = messages that weigh less", {"faded": lambda s, _: s}),
    (
        "replace_task of a task that weighed less",
        {"replace_task": lambda s, *a, **_: GaussianMeta.replace_task(s, *a[:2], range(2))},
    ),
    (
        "digest of pulls that weigh less",
        {"replace_task": lambda s, *a, weight=1.0: absorbed_again(s, *a, weight)},
    ),
    ("renew keeps the weights", {"renew": lambda s, d, _: (d, s.absorb(d[0].message))}),
    (
        "posterior_apart_many (mean)",
        {"posterior_apart_many": lambda s, d, _: s.posterior_many(d)},
    ),
    ("replace_task = absorb", {"replace_task": added_twice}),
    ("chain rule of evidence over tasks", {"log_evidence": lambda s: -s.mean.sum()}),
    ("chain rule of evidence over tasks", {"task_prior": shifted_prior}),
    ("posterior = prior, conditioned", {"posterior": lambda s, _: s.task_prior()}),
    (
        "prior_given(sample).mean is a function of the rng",
        {"sample": lambda s, _: s.mean + s.scale * STREAM.standard_normal(2)},
    ),
    ("prior_given(sample).mean averages", {"sample": lambda s, r: s.mean + 0.3 + 0 * r.random()}),
    ("prior_given(sample) conditions", {"prior_given": no_evidence_prior}),
]


@pytest.mark.parametrize(("law", "fault"), META_FAULTS)
def test_broken_metas_are_found(law, fault):
    with pytest.raises(AssertionError, match=re.escape(law)):
        check_meta(spoiled(META, **fault), tasks_of(META))


NEAR = NEARLY[0][0]


def digest_with(change):
    """Digests whose sites are changed: all of them, or only those that had been kept."""

    def digest(self, stats, **options):
        found = LatentMeta.digest(self, stats, **options)
        if found.stats.sites is None:
            return found
        sites = found.stats.sites * np.reshape(change(stats.settled), (3, 1, 1))
        return found._replace(stats=found.stats.with_sites(sites, found.stats.anchor))

    def replace_task(self, old, stats, _changed, *, weight=1.0):
        new = self.digest(stats.unsettled())
        return new, self.absorb(new.message - weight * old.message)

    return {"digest": digest, "replace_task": replace_task}


def wider_posterior(self, digest):
    joint = self.posterior_joint(digest)
    return type(joint)(joint.family, joint.log_weights, joint.eta_mean, 1.1 * joint.factor)


def settles_only_once(self, old, stats, changed):
    """The sites of a task that was pulled before are left as they were."""
    if old.stats.pulls == 0:
        return LatentMeta.replace_task(self, old, stats, changed)
    sites = 0.8 * old.stats.sites
    new = old._replace(stats=stats.with_sites(sites, old.stats.anchor))
    return new, self.absorb(new.message - old.message)


def half_forgotten(self, old, stats, changed):
    digest, meta = LatentMeta.replace_task(self, old, stats, changed)
    return digest, meta.absorb(1e-4 * digest.message)


NEAR_FAULTS = [
    ("digest of what a digest keeps", digest_with(lambda kept: [1 + 1e-4 * kept, 1.0, 1.0])),
    (
        "posterior = prior, conditioned (mean)",
        digest_with(lambda kept: [1.0, 1.0 if kept else 1.3, 1.0]),
    ),
    ("posterior = prior, conditioned (scale)", {"posterior": wider_posterior}),
    (
        "chain rule of evidence over tasks",
        digest_with(lambda kept: [1.0, 1.0, 1.0 if kept else 1.2]),
    ),
    ("posterior = prior, conditioned", {"posterior": lambda s, _: s.task_prior()}),
    ("replace_task = absorb", {"replace_task": settles_only_once}),
    ("replace_task = its own messages", {"replace_task": half_forgotten}),
    (
        "order of tasks",
        {"absorb": lambda s, m: LatentMeta.absorb(s, m - 1e-4 * s.total.value())},
    ),
]


@pytest.mark.parametrize(("law", "fault"), NEAR_FAULTS)
def test_approximate_metas_that_are_broken_are_found(law, fault):
    """By more than the tolerance; or at all, where what is kept must be exact."""
    with pytest.raises(AssertionError, match=re.escape(law)):
        check_meta(spoiled(NEAR, **fault), tasks_of(NEAR), draws=500, tolerance=0.05)


def test_approximate_models_do_not_pass_as_exact():
    with pytest.raises(AssertionError, match="digest of a task that grew"):
        check_meta(NEAR, tasks_of(NEAR))
    with pytest.raises(AssertionError, match="a then b = both at once"):
        check_belief(NEAR.task_prior(), NEAR.empty(), OBSERVED_NEARLY[ClickStats])


def test_broken_approximate_beliefs_are_found():
    def condition(self, stats):
        evidence, belief = type(NEAR.task_prior()).condition(self, stats)
        means = belief.eta_mean + 0.02 * stats.count.sum() ** 2
        shifted = {"eta_mean": means, "log_weights": belief.log_weights, "factor": belief.factor}
        return Conditioned(evidence, type(self)(belief.family, **shifted))

    prior = NEAR.task_prior()
    broken = type("Spoiled", (type(prior),), {"condition": condition})
    belief = broken(prior.family, prior.log_weights, prior.eta_mean, prior.factor)
    with pytest.raises(AssertionError, match="a then b = both at once"):
        check_belief(belief, NEAR.empty(), OBSERVED_NEARLY[ClickStats], tolerance=0.05)


def test_the_checks_pass_what_is_not_spoiled():
    check_meta(spoiled(NEAR), tasks_of(NEAR), draws=500, tolerance=0.05)
    check_stats(spoiled(ArmStats.zeros(2)), OBSERVED[ArmStats])
    check_belief(spoiled(ARMS), ArmStats.zeros(2), OBSERVED[ArmStats])
    check_meta(spoiled(META), tasks_of(META))


def test_one_observation_or_task_is_too_few():
    with pytest.raises(AssertionError, match="observations are at least two: does not hold, got 1"):
        check_stats(ArmStats.zeros(2), [(0, 1.0)])
    with pytest.raises(AssertionError, match="tasks are at least two: does not hold, got 1"):
        check_meta(META, [META.empty()])
