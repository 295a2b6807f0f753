"""Online classification: the arms that are drawn, the compiled loop, and what is learned."""

import json
import math
import pickle

import numpy as np
import pytest

import adats
from adats import LatentLinearMeta, LinearBelief
from adats.simulation import simulate
from adats.simulation.kernels import classification, registry
from adats.simulation.one_task import plain_task
from adats.simulation.problems.classification import (
    ClassificationProblem,
    LogisticClassification,
    subsets,
)
from adats.testing import check_meta
from loops import compiled_task

PAPER = ["oracle-ts", "ada-ts", "meta-ts", "ts"]
NONE_FIRST = np.zeros((0, 1), dtype=np.intp)
SMALL = {"tasks": 3, "rounds": 20, "runs": 5, "seed": 7}


def blobs(classes=5, dim=8, each=40, seed=0, spread=0.25):
    """Features of classes that overlap, in 0..1 like pixels, some of which are always empty."""
    rng = np.random.default_rng(seed)
    centres = rng.random((classes, dim)) * (rng.random((classes, dim)) < 0.6)
    labels = np.repeat(np.arange(classes), each)
    noise = spread * rng.standard_normal((len(labels), dim)) * (centres[labels] > 0)
    return np.clip(centres[labels] + noise, 0.0, 1.0), labels


def problem_of(positive=1, *, data=None, **options):
    features, labels = blobs() if data is None else data
    own = features[labels == positive]
    options = {"arms": 6, **options}
    return ClassificationProblem(
        features, labels, positive, own.mean(axis=0), np.cov(own.T), **options
    )


def z(sample, mean=0.0):
    sample = np.asarray(sample, dtype=float)
    return (sample.mean(axis=0) - mean) / (sample.std(axis=0, ddof=1) / math.sqrt(len(sample)))


# the arms of a round


@pytest.mark.parametrize(("of", "size"), [(1, 1), (5, 1), (5, 5), (9, 4), (400, 3)])
def test_subsets_have_no_number_twice(of, size):
    rows = subsets(of, size, 300, np.random.default_rng(of))
    assert rows.shape == (300, size)
    assert rows.min() >= 0
    assert rows.max() < of
    assert all(len(set(row)) == size for row in rows.tolist())


@pytest.mark.statistical
@pytest.mark.parametrize(("of", "size"), [(5, 2), (7, 3), (6, 5)])
def test_every_subset_is_as_likely(of, size):
    rows = np.sort(subsets(of, size, 20_000, np.random.default_rng(1)), axis=1)
    seen, counts = np.unique(rows, axis=0, return_counts=True)
    every = math.comb(of, size)
    assert len(seen) == every
    variance = len(rows) * (1 / every) * (1 - 1 / every)
    assert (np.abs(counts - len(rows) / every) < 4.5 * math.sqrt(variance)).all()


@pytest.mark.statistical
def test_arms_are_drawn_from_all_pictures():
    problem = problem_of(arms=6)
    rng = np.random.default_rng(2)
    images = problem.instance(problem.start(rng), 4000, rng).images
    pictures = len(problem.features)
    counts = np.bincount(images.ravel(), minlength=pictures)
    chance = 6 / pictures
    assert (np.abs(counts - 4000 * chance) < 4.5 * math.sqrt(4000 * chance * (1 - chance))).all()
    none = (problem.labels[images] != 1).all(axis=1)  # 40 of 200 pictures are positive
    expected = math.prod((160 - i) / (200 - i) for i in range(6))
    assert abs(z(none, expected)) < 4


def test_a_positive_arm_is_sure_and_nothing_else_changes():
    plain, sure = problem_of(sure=False), problem_of(sure=True)
    free, kept = (
        p.instance(p.start(None), 500, np.random.default_rng(3)).images for p in (plain, sure)
    )
    positive = plain.labels == 1
    without = ~positive[free].any(axis=1)
    assert 50 < without.sum() < 450
    np.testing.assert_array_equal(free[~without], kept[~without])
    changed = free[without] != kept[without]
    assert (changed.sum(axis=1) == 1).all()
    assert positive[kept[without][changed]].all()
    assert set(np.nonzero(changed)[1].tolist()) == set(range(6))  # at any place
    assert len(np.unique(kept[without][changed])) > 30  # any of 40 positive pictures


def test_instances_share_the_pictures():
    problem = problem_of()
    instance = problem.instance(problem.start(None), 4, np.random.default_rng(0))
    assert instance.features is problem.features
    assert instance.theta is problem.chances
    for t in range(4):
        np.testing.assert_array_equal(instance.rows(t), problem.features[instance.images[t]])
        expected = np.where(problem.labels[instance.images[t]] == 1, 0.9, 0.1)
        np.testing.assert_array_equal(instance.means(t), expected)


def test_tasks_differ_and_the_rng_alone_decides():
    problem = problem_of()
    one, two = np.random.default_rng(5), np.random.default_rng(5)
    first, second = (problem.instance(problem.start(one), 9, one) for _ in range(2))
    again = problem.instance(problem.start(two), 9, two)
    np.testing.assert_array_equal(again.images, first.images)
    np.testing.assert_array_equal(again.draws, first.draws)
    assert not np.array_equal(second.images, first.images)
    assert not np.array_equal(second.draws, first.draws)


@pytest.mark.statistical
@pytest.mark.parametrize("mean", [0.9, 0.1])
def test_rewards_are_one_with_their_chance(mean):
    problem = problem_of()
    rng = np.random.default_rng(6)
    draws = problem.instance(problem.start(rng), 5000, rng).draws
    rewards = [problem.reward(mean, draw) for draw in draws]
    assert set(rewards) == {0.0, 1.0}
    assert abs(z(rewards, mean)) < 4


# regret, by hand


@pytest.mark.parametrize("agent", PAPER)
def test_expected_regret_by_hand(agent):
    """An agent that is sure of a wrong theta always pulls picture 2, or picture 1 without it."""
    problem = ClassificationProblem(
        np.eye(3), [7, 8, 8], 7, [0.0, 1.0, 2.0], 0.0, arms=2, meta_scale=0.0
    )
    told = ClassificationProblem(
        np.eye(3), [7, 8, 8], 7, [2.0, 1.0, 0.0], 0.0, arms=2, meta_scale=0.0
    )
    sizes = {"tasks": 4, "rounds": 25, "runs": 3, "seed": 2, "detail": "round"}
    regret = simulate(problem, [agent], **sizes).regret[0]
    best = simulate(told, [agent], **sizes).regret[0]
    if agent != "oracle-ts":  # theta = 0 for sure: the first arm
        np.testing.assert_array_equal(regret, best)
        assert set(np.unique(regret).round(12)) == {0.0, 0.8}
        return
    assert (best == 0).all()
    for run in range(3):
        world = np.random.default_rng(np.random.SeedSequence(2, spawn_key=(run, 0)))
        start = problem.start(world)
        for task in range(4):
            images = problem.instance(start, 25, world).images
            possible = (images == 0).any(axis=1)
            np.testing.assert_allclose(regret[run, task], np.where(possible, 0.8, 0.0))
            assert 0 < possible.sum() < 25


# the compiled loop


def pulled_plainly(problem, prior, instance, rng):
    stats, pulled = problem.meta().empty(), []
    for images, draw in zip(instance.images, instance.draws, strict=True):
        theta = prior.condition(stats).belief.sample(rng)
        pulled.append(images[(problem.features[images] @ theta).argmax()])
        reward = 1.0 if draw < (0.9 if problem.labels[pulled[-1]] == 1 else 0.1) else 0.0
        stats = stats.add(problem.features[pulled[-1]], reward)
    return pulled, stats


def pulls(problem, prior, instance, rng):
    """One task by the compiled loop: the picture pulled in every round, and the statistics."""
    pulled = np.full(len(instance.images), -1)
    regret = np.empty(len(instance.images))
    return pulled, compiled_task(problem, prior, instance, NONE_FIRST, rng, regret, pulled)


def agree(problem, prior=None, *, rounds=60, tasks=4, seed=0):
    """Play some tasks in all ways; all of them pull the same pictures."""
    world = np.random.default_rng([seed, 1])
    start, meta = problem.start(world), problem.meta()
    for task in range(tasks):
        belief = meta.task_prior() if prior is None else prior
        instance = problem.instance(start, rounds, world)
        rngs = [np.random.default_rng([seed, 2, task]) for _ in range(4)]
        pulled, stats = pulls(problem, belief, instance, rngs[0])
        expected, reference = pulled_plainly(problem, belief, instance, rngs[1])
        np.testing.assert_array_equal(pulled, expected)
        regrets = np.full((2, rounds), np.nan)
        again = compiled_task(problem, belief, instance, NONE_FIRST, rngs[2], regrets[0])
        plain = plain_task(problem, belief, instance, NONE_FIRST, rngs[3], regrets[1])
        np.testing.assert_array_equal(regrets[0], regrets[1])
        np.testing.assert_array_equal(again.flat(), stats.flat())
        for other in (reference, plain):
            np.testing.assert_allclose(stats.flat(), other.flat(), rtol=1e-9, atol=1e-9)
        assert len({str(rng.bit_generator.state) for rng in rngs}) == 1
        meta = registry.absorb_of(problem, meta)(meta, stats)


@pytest.mark.parametrize("dim", [1, 2, 5, 13])
@pytest.mark.parametrize("sure", [False, True])
def test_the_compiled_loop_pulls_what_the_plain_one_pulls(dim, sure):
    agree(problem_of(data=blobs(dim=dim, seed=dim), sure=sure), seed=dim)


def test_the_same_with_the_sizes_of_mnist():
    problem = problem_of(data=blobs(classes=10, dim=49, each=100), arms=30)
    assert np.linalg.matrix_rank(problem.task_cov) < 49  # empty pixels
    agree(problem, rounds=120, tasks=3)


@pytest.mark.parametrize("cov", [0.0, 0.3])
def test_the_same_with_a_number_for_the_covariance(cov):
    features, labels = blobs()
    problem = ClassificationProblem(features, labels, 1, np.zeros(8), cov, arms=6)
    agree(problem)
    agree(problem, problem.meta().prior_given(np.linspace(-1, 1, 8)))


@pytest.mark.parametrize("columns", [0, 1, 3])
def test_the_same_with_a_narrow_factor(columns):
    rng = np.random.default_rng(columns)
    prior = LinearBelief.of(rng.normal(size=8), rng.normal(size=(8, columns)), 0.1)
    agree(problem_of(), prior)


def test_the_same_for_one_arm_one_round_and_all_pictures():
    agree(problem_of(arms=1))
    agree(problem_of(), rounds=1)
    agree(problem_of(data=blobs(classes=3, each=4), arms=12))


def test_without_numba_the_numbers_are_the_same(monkeypatch):
    problem = problem_of()
    agents = [*PAPER, "ada-ts+", "ada-ts-"]
    compiled = simulate(problem, agents, **SMALL, detail="round")
    monkeypatch.setattr(registry, "has_numba", lambda: False)
    with pytest.warns(UserWarning, match="Numba"):
        plain = simulate(problem, agents, **SMALL, detail="round")
    np.testing.assert_allclose(plain.regret, compiled.regret, atol=1e-12)


# one seed, one set of numbers


@pytest.mark.parametrize("detail", ["task", "round"])
def test_numbers_do_not_depend_on_workers_chunks_or_other_agents(detail):
    problem = problem_of()
    base = simulate(problem, PAPER, **SMALL, detail=detail)
    for options in ({"chunk": 1}, {"chunk": 9}, {"workers": 2}, {"workers": 2, "chunk": 3}):
        other = simulate(problem, PAPER, **SMALL, detail=detail, **options)
        np.testing.assert_array_equal(other.regret, base.regret)
    alone = simulate(problem, ["ada-ts"], **SMALL, detail=detail)
    np.testing.assert_array_equal(alone.regret[0], base.regret[1])


def test_pictures_that_workers_map_from_a_file():
    """Arrays of more than a megabyte come to workers as read-only maps."""
    problem = problem_of(data=blobs(classes=10, dim=49, each=300), arms=30)
    assert problem.features.nbytes > 2**20
    one = simulate(problem, PAPER, **SMALL)
    two = simulate(problem, PAPER, **SMALL, workers=2, chunk=2)
    np.testing.assert_array_equal(two.regret, one.regret)


def test_a_pickled_problem_has_its_pictures_once():
    problem = problem_of(data=blobs(classes=10, dim=49, each=300))
    assert len(pickle.dumps(problem)) < 1.2 * problem.features.nbytes
    back = pickle.loads(pickle.dumps(problem))
    np.testing.assert_array_equal(
        simulate(back, PAPER, **SMALL).regret, simulate(problem, PAPER, **SMALL).regret
    )


def test_any_agent_with_ask_and_tell_can_play():
    """The live AdaTS has other draws, but the same belief, so about the same regret."""
    problem = problem_of(sure=True)
    sizes = {"tasks": 4, "rounds": 30, "runs": 20, "seed": 1}
    agents = {"ada-ts": "ada-ts", "live": lambda p, seed: adats.AdaTS(p.meta(), seed=seed)}
    got = simulate(problem, agents, **sizes)
    assert abs(z(got.total("live") - got.total("ada-ts"))) < 4
    assert got.mean("live") > 0


# the model


def test_the_meta_prior_keeps_its_laws():
    problem = problem_of()
    rng = np.random.default_rng(0)
    start, prior = problem.start(rng), problem.meta().task_prior()
    played = [pulls(problem, prior, problem.instance(start, 15, rng), rng)[1] for _ in range(3)]
    check_meta(problem.meta(), played)
    assert {stats.n for stats in played} == {15.0}


def test_the_model_is_that_of_the_paper():
    problem = problem_of()
    meta, prior = problem.meta(), problem.meta().prior_given(problem.mu)
    np.testing.assert_array_equal(meta.mean, np.zeros(8))
    np.testing.assert_allclose(meta.cov, np.eye(8))
    assert meta.noise == 0.1
    np.testing.assert_allclose(prior.mean, problem.features[problem.labels == 1].mean(axis=0))
    np.testing.assert_allclose(
        prior.cov, np.cov(problem.features[problem.labels == 1].T), atol=1e-12
    )
    np.testing.assert_allclose(meta.task_prior().cov, np.eye(8) + prior.cov, atol=1e-12)


def test_describe_is_plain_json():
    settings = problem_of(np.int64(1), arms=np.int64(6)).describe()
    assert json.loads(json.dumps(settings, allow_nan=False)) == settings
    assert (settings["name"], settings["positive"], settings["dim"]) == ("classification", 1, 8)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"features": np.ones(4)}, r"features .*2 dimensions"),
        ({"features": np.full((200, 8), np.nan)}, "features must be finite"),
        ({"labels": np.zeros(3, dtype=int)}, r"labels .*200 pictures.*\(3,\)"),
        ({"labels": np.zeros(200)}, "labels must be whole numbers, .*float64"),
        ({"positive": 77}, "no picture .* 77"),
        ({"positive": "cat"}, "no picture .* 'cat'"),
        ({"arms": 0}, "arms .* 0"),
        ({"arms": 201}, "201 arms .* 200"),
        ({"mu": [1.0]}, r"mu .*\(8,\).*\(1,\)"),
        ({"task_cov": -1.0}, "task_cov .* -1"),
        ({"task_cov": np.eye(3)}, r"task_cov .*\(8, 8\)"),
        ({"noise": 0.0}, "noise .* 0"),
        ({"meta_scale": -1.0}, "meta_scale .* -1"),
    ],
)
def test_what_cannot_be_is_refused(changes, message):
    features, labels = blobs()
    given = {"features": features, "labels": labels, "positive": 1, "mu": np.zeros(8)}
    given = {**given, "task_cov": 1.0, **changes}
    with pytest.raises(ValueError, match=message):
        ClassificationProblem(**given)


def test_forced_exploration_is_refused():
    with pytest.raises(ValueError, match="arms that stay the same"):
        simulate(problem_of(), ["ts"], **SMALL, explore_first=True)


# what is learned


@pytest.mark.statistical
def test_ada_ts_has_lower_regret_than_ts_and_meta_ts_over_several_classes():
    data = blobs(classes=8, dim=16, each=100, seed=4)
    sizes = {"tasks": 8, "rounds": 80, "runs": 20, "seed": 3}
    results = [simulate(problem_of(c, data=data, arms=20), PAPER, **sizes) for c in range(8)]
    total = {agent: sum(r.total(agent) for r in results) for agent in PAPER}
    assert z(total["ts"] - total["ada-ts"]) > 4
    assert z(total["meta-ts"] - total["ada-ts"]) > 3


@pytest.mark.statistical
def test_what_ada_ts_learns_stays():
    """In task 2 AdaTS already pulls mostly positive pictures in round 1; TS never does."""
    problem = problem_of(data=blobs(classes=8, dim=16, each=100, seed=4), arms=20, sure=True)
    got = simulate(problem, ["ada-ts", "ts"], tasks=4, rounds=80, runs=40, seed=1, detail="round")
    wrong = got.regret[:, :, :, 0] > 0
    assert wrong[0, :, 0].mean() > 0.5
    assert z(wrong[1, :, 1:].mean(axis=1) - wrong[0, :, 1:].mean(axis=1)) > 4


# rewards taken for 0 or 1


def logistic_of(positive=1, *, data=None, spread=0.1, **options):
    features, labels = blobs() if data is None else data
    features = np.column_stack([features, np.ones(len(labels))])
    mu = np.zeros(features.shape[1])
    return LogisticClassification(
        features, labels, positive, mu, spread**2, **{"arms": 6, **options}
    )


def test_logistic_agents_meet_the_same_pictures():
    gaussian, logistic = problem_of(), logistic_of()
    for problem in (gaussian, logistic):
        assert problem.meta().empty().arm_pulls is None
    one, two = (
        problem.instance(problem.start(None), 30, np.random.default_rng(4))
        for problem in (gaussian, logistic)
    )
    np.testing.assert_array_equal(one.images, two.images)
    np.testing.assert_array_equal(one.draws, two.draws)
    settings = logistic.describe()
    assert json.loads(json.dumps(settings, allow_nan=False)) == settings
    assert (settings["name"], settings["dim"]) == ("logistic classification", 9)


@pytest.mark.parametrize(
    ("changes", "message"), [({"mu": [1.0]}, "mu"), ({"task_cov": -1.0}, "-1")]
)
def test_what_cannot_be_is_refused_of_logistic_agents_too(changes, message):
    features, labels = blobs()
    given = {"mu": np.zeros(8), "task_cov": 1.0, **changes}
    with pytest.raises(ValueError, match=message):
        LogisticClassification(features, labels, 1, **given)


def test_a_renewed_site_is_an_exact_change_of_the_belief():
    """Against (Σ⁻¹ + Σ wxxᵀ)⁻¹ written out, after sites were renewed several times."""
    rng = np.random.default_rng(11)
    mean, factor, rows = rng.normal(size=5), rng.normal(size=(5, 5)), rng.normal(size=(12, 5))
    precision = np.linalg.inv(factor @ factor.T)
    rewards, sites = (rng.random(12) < 0.4).astype(float), np.zeros((12, 2))
    new_mean, new_factor = mean.copy(), factor.copy()
    for k in [*range(12), *range(12), *range(12)]:
        room = (np.empty(5), np.empty(5))
        classification.renew(rows[k], rewards[k], sites[k], new_mean, new_factor, *room)
    cov = np.linalg.inv(precision + (rows.T * sites[:, 0]) @ rows)
    np.testing.assert_allclose(new_factor @ new_factor.T, cov, rtol=1e-9, atol=1e-12)
    expected = cov @ (precision @ mean + sites[:, 1] @ rows)
    np.testing.assert_allclose(new_mean, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("reward", [0.0, 1.0])
def test_one_reward_gives_the_moments_of_quadrature(reward):
    rng = np.random.default_rng(12)
    mean, factor, x = rng.normal(size=3), rng.normal(size=(3, 3)), rng.normal(size=3)
    m, sd = x @ mean, np.linalg.norm(factor.T @ x)
    eta = m + sd * np.linspace(-10, 10, 20_001)
    density = np.exp(-0.5 * ((eta - m) / sd) ** 2) / (1 + np.exp(eta if reward == 0 else -eta))
    density /= density.sum()
    first = density @ eta
    classification.renew(x, reward, np.zeros(2), mean, factor, np.empty(3), np.empty(3))
    assert x @ mean == pytest.approx(first, abs=0.002 * sd)
    assert ((factor.T @ x) ** 2).sum() == pytest.approx(density @ (eta - first) ** 2, rel=0.005)


@pytest.mark.parametrize("tasks", [0, 2])
def test_the_belief_of_the_compiled_loop_is_that_of_the_model(tasks):
    """In a first task, and in one whose prior was learned: sites renewed and found anew differ."""
    problem = logistic_of(data=blobs(dim=12, each=60), arms=10, spread=0.2)
    rng, meta = np.random.default_rng(13), problem.meta()
    for _ in range(tasks):
        instance = problem.instance(problem.start(rng), 100, rng)
        _, stats = pulls(problem, meta.task_prior(), instance, rng)
        meta = meta.absorb(meta.digest(stats).message)
    prior, instance = meta.task_prior(), problem.instance(problem.start(rng), 100, rng)
    mean, factor = prior.theta[0].copy(), np.linalg.cholesky(prior.cov)
    pulled = np.empty(100, dtype=np.intp)
    pictures = (problem.chances, problem.features, instance.images, instance.draws, pulled)
    rewards = classification.logistic_task(mean, factor, pictures, rng)
    np.testing.assert_array_equal(rewards, instance.draws < problem.chances[pulled])
    belief = prior.condition(problem.meta().empty().add(problem.features[pulled], rewards)).belief
    scale = np.sqrt(np.diag(factor @ factor.T))
    assert (np.abs(mean - belief.mean) < 0.1 * belief.scale).all()
    np.testing.assert_allclose(scale, belief.scale, rtol=0.05)
    assert (scale < 0.9 * prior.scale).any()  # something was learned


def test_statistics_of_the_compiled_loop_count_every_pull():
    problem = logistic_of()
    instance = problem.instance(problem.start(None), 50, np.random.default_rng(14))
    pulled, stats = pulls(problem, problem.meta().task_prior(), instance, np.random.default_rng(0))
    rewards = (instance.draws < problem.chances[pulled]).astype(float)
    expected = problem.meta().empty().add(problem.features[pulled], rewards)
    np.testing.assert_array_equal(stats.flat(), expected.flat())
    assert stats.pulls == 50


@pytest.mark.statistical
def test_the_compiled_logistic_agents_lose_what_the_plain_ones_lose(monkeypatch):
    """Other draws and other sites, the same tasks."""
    problem = logistic_of(sure=True, spread=0.3, meta_scale=2.0)
    sizes = {"tasks": 2, "rounds": 16, "runs": 25, "seed": 5}
    compiled = simulate(problem, ["ada-ts"], **sizes)
    monkeypatch.setattr(registry, "has_numba", lambda: False)
    with pytest.warns(UserWarning, match="Numba"):
        plain = simulate(problem, ["ada-ts"], **sizes)
    assert abs(z(compiled.total("ada-ts") - plain.total("ada-ts"))) < 3
    assert compiled.mean("ada-ts") > 1


def test_logistic_numbers_do_not_depend_on_workers_or_other_agents():
    problem = logistic_of()
    base = simulate(problem, [*PAPER, "ada-ts-"], **SMALL)
    other = simulate(problem, [*PAPER, "ada-ts-"], **SMALL, workers=2, chunk=2)
    np.testing.assert_array_equal(other.regret, base.regret)
    alone = simulate(problem, ["meta-ts"], **SMALL)
    np.testing.assert_array_equal(alone.regret[0], base.regret[2])
    some = base.of(["ts", "ada-ts"])
    np.testing.assert_array_equal(some.total("ada-ts"), base.total("ada-ts"))
    assert some.agents == ("ts", "ada-ts")


def test_candidates_for_the_spread_are_left_to_the_plain_loop():
    problem = logistic_of()
    several = LatentLinearMeta(np.zeros(9), 1.0, task_scale=[0.1, 0.5]).task_prior()
    instance = problem.instance(problem.start(None), 3, np.random.default_rng(0))
    given = (several, instance, NONE_FIRST, np.random.default_rng(0), np.empty(3))
    assert compiled_task(problem, *given) is None
