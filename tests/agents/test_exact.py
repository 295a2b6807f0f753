"""Agents against the joint Gaussian, plain sums, the paper's formulas and exact probabilities."""

import math

import numpy as np
import pytest
from scipy.stats import norm

import adats
import brute
from adats import TS, AdaTS, MetaTS, OracleTS
from cases import CASES, alike, ask, gaussian, linear, new, play, portrait, rewards_of

KINDS = [kind for kind in CASES if kind != "certain"]


def close(left, right, tolerance=1e-9):
    np.testing.assert_allclose(left, right, rtol=tolerance, atol=tolerance)


def flat(told):
    """One (task, arm, features, reward) for every arm pulled."""
    pulls = []
    for decision, reward in told:
        many = isinstance(decision.action, tuple)
        rows = decision.features
        for i, arm in enumerate(decision.action if many else [decision.action]):
            row = None if rows is None else np.atleast_2d(rows)[i]
            pulls.append((decision.task, arm, row, reward[i] if many else reward))
    return pulls


def joint(kind, pulls, tasks, meta=None):
    """The joint Gaussian of the named kind of model, given the pulls."""
    case = CASES[kind]
    meta = meta or case.meta
    parts = []
    for task in tasks:
        own = [pull for pull in pulls if pull[0] == task]
        y = np.array([pull[3] for pull in own])
        if isinstance(meta, adats.GaussianMeta):
            eye, arms = np.eye(meta.n_arms), [pull[1] for pull in own]
            x, noise = eye[arms].reshape(-1, meta.n_arms), meta.noise[arms]
            parts.append(brute.JointTask(eye, np.diag(meta.task_scale**2), x, y, noise))
            continue
        design = case.design(task)
        phi = np.eye(meta.mean.size) if design is None else design
        x = np.array([pull[2] for pull in own]).reshape(-1, len(phi))
        cov = meta.task_cov if np.ndim(meta.task_cov) else float(meta.task_cov) * np.eye(len(phi))
        parts.append(brute.JointTask(phi, cov, x, y, meta.noise))
    if isinstance(meta, adats.GaussianMeta):
        return brute.joint(meta.meta_mean, np.diag(meta.meta_scale**2), parts)
    return brute.joint(meta.meta_mean, meta.meta_cov, parts)


def equals_joint(agent, kind, pulls):
    expected = joint(kind, pulls, agent.tasks)
    close(agent.meta.mean, expected.mu[0])
    close(agent.meta.log_evidence(), expected.log_evidence)
    spread = np.diag(agent.meta.scale**2) if hasattr(agent.meta, "scale") else agent.meta.cov
    close(spread, expected.mu[1])
    for task, (mean, cov) in zip(agent.tasks, expected.thetas, strict=True):
        belief = agent.posterior(task)
        close(belief.mean, mean)
        close(belief.cov if hasattr(belief, "cov") else np.diag(belief.scale**2), cov)


GAUSSIAN_KINDS = [
    "gaussian", "certain", "linear", "contextual", "exchangeable", "attributes", "semi-bandit",
    "linear semi-bandit", "routing",
]  # fmt: skip


@pytest.mark.parametrize("kind", GAUSSIAN_KINDS)
@pytest.mark.parametrize("seed", range(3))
def test_interleaved_delayed_and_batched_tells_equal_the_joint_gaussian(kind, seed):
    rng = np.random.default_rng(seed)
    agent, told = new(kind, seed=seed), []
    for _ in range(3):
        told += play(agent, kind, rng, rounds=12)
        equals_joint(agent, kind, flat(told))
    agent.finish(agent.tasks[0])
    batch = [ask(agent, kind, agent.tasks[1], rng) for _ in range(4)]
    rewards = [rewards_of(decision, kind, rng) for decision in batch]
    told += zip(batch, rewards, strict=True)
    pulls = flat(told)
    late = flat(zip(batch, rewards, strict=True))
    pull = {"action": [p[1] for p in late]}
    if late[0][2] is not None:
        pull = {"features": [p[2] for p in late]}
    agent.tell(task=agent.tasks[1], **pull, reward=[p[3] for p in late])
    equals_joint(agent, kind, pulls)


def test_a_task_without_data_has_the_task_prior():
    agent = new("gaussian")
    play(agent, "gaussian", np.random.default_rng(0))
    agent.ask("new")
    prior = agent.meta.task_prior()
    close(agent.posterior("new").mean, prior.mean, 1e-15)
    close(agent.posterior("new").scale, prior.scale, 1e-15)


def retold(kind, told, cls=AdaTS):
    """A new agent that gets the same rewards from a log."""
    agent = new(kind, cls)
    for decision, reward in told:
        pull = {"features": decision.features}
        if decision.features is None:
            pull = {"action": decision.action}
        design = CASES[kind].design(decision.task)
        agent.tell(task=decision.task, **pull, reward=reward, design=design)
    return agent


@pytest.mark.parametrize("kind", KINDS)
def test_order_does_not_matter(kind):
    rng = np.random.default_rng(1)
    agent = new(kind)
    told = play(agent, kind, rng, rounds=80)
    for _ in range(3):
        shuffled = [told[i] for i in rng.permutation(len(told))]
        other = retold(kind, shuffled)
        for task in set(agent.tasks) - set(other.tasks):
            ask(other, kind, task, rng)
        alike(portrait(other), portrait(agent))


@pytest.mark.parametrize("kind", KINDS)
def test_forget_is_never_having_seen_the_task(kind):
    agent = new(kind)
    told = play(agent, kind, np.random.default_rng(2), rounds=60)
    agent.finish(3)
    for gone in (1, 3):
        agent.forget(gone)
        told = [(decision, reward) for decision, reward in told if decision.task != gone]
        other = retold(kind, told)
        assert set(other.tasks) == set(agent.tasks)
        alike(portrait(agent), portrait(other))


@pytest.mark.parametrize("outlier", [1e3, 1e6, 1e10])
@pytest.mark.parametrize("kind", ["gaussian", "contextual", "models"])
def test_forgetting_a_task_with_a_wild_reward(kind, outlier):
    """A time stamp that was logged as a reward, say: to forget the task takes it out again."""
    agent, rng = new(kind), np.random.default_rng(3)
    told = play(agent, kind, rng, rounds=30)
    for reward in (1.0, outlier, -2.0, 0.5):
        pull = {"features": rng.normal(size=3)} if kind == "contextual" else {"action": 0}
        agent.tell(task="wild", **pull, reward=reward)
        told += play(agent, kind, rng, rounds=5)
    agent.forget("wild")
    alike(portrait(agent), portrait(retold(kind, told)))


@pytest.mark.parametrize("kind", KINDS)
def test_finished_tasks_keep_what_they_taught_and_late_rewards_count(kind):
    rng = np.random.default_rng(4)
    left, right = new(kind), new(kind)
    told = play(left, kind, rng, rounds=30)
    for i, (decision, reward) in enumerate(told):
        design = CASES[kind].design(decision.task)
        pull = {"features": decision.features}
        if decision.features is None:
            pull = {"action": decision.action}
        right.tell(task=decision.task, **pull, reward=reward, design=design)
        if i % 3 == 0:
            right.finish(decision.task)
    for task in set(left.tasks) - set(right.tasks):
        ask(right, kind, task, rng)
    alike(portrait(left), portrait(right))


# The paper's algorithm, tasks one after another: Sections 3.1 and 3.2 written out


def test_one_after_another_is_section_3_1():
    mu_q, s_q = np.array([0.5, -1.0, 2.0]), np.array([1.0, 0.5, 3.0])
    s_0, sigma = np.array([0.1, 1.0, 0.3]), 0.7
    agent = AdaTS(adats.GaussianMeta(mu_q, s_q, task_scale=s_0, noise=sigma), seed=0)
    rng, finished = np.random.default_rng(5), []
    for task in range(40):
        theta = rng.normal(mu_q, s_0)
        precision = s_q**-2 + sum(t / (t * s_0**2 + sigma**2) for t, _ in finished)
        mu_hat = mu_q / s_q**2 + sum(b / (t * s_0**2 + sigma**2) for t, b in finished)
        mu_hat = mu_hat / precision
        variance = 1 / precision + s_0**2  # of P_s
        t, b = np.zeros(3), np.zeros(3)
        for _ in range(15):
            decision = agent.ask(task)
            belief = agent.posterior(task)
            sd = 1 / np.sqrt(1 / variance + t / sigma**2)
            mean = sd**2 * (mu_hat / variance + b / sigma**2)
            assert (np.abs(belief.mean - mean) <= 1e-12 * sd).all()
            assert (np.abs(belief.scale - sd) <= 1e-12 * sd).all()
            reward = float(rng.normal(theta[decision.action], sigma))
            agent.tell(decision, reward=reward)
            t[decision.action] += 1
            b[decision.action] += reward
        finished.append((t, b))
        if task % 2:
            agent.finish(task)


def test_one_after_another_is_section_3_2():
    rng = np.random.default_rng(6)
    mu_q, sigma = rng.normal(size=3), 0.8
    root_q, root_0 = rng.normal(size=(2, 3, 3))
    cov_q, cov_0 = root_q @ root_q.T + np.eye(3), root_0 @ root_0.T / 4 + 0.2 * np.eye(3)
    inv = np.linalg.inv
    agent = AdaTS(adats.LinearMeta(mu_q, cov_q, task_cov=cov_0, noise=sigma), seed=0)
    precision, shift = inv(cov_q), inv(cov_q) @ mu_q
    for task in range(15):
        theta = rng.multivariate_normal(mu_q, cov_0)
        prior = inv(inv(precision) + cov_0)  # precision of P_s
        mu_hat = inv(precision) @ shift
        g, b = np.zeros((3, 3)), np.zeros(3)
        for _ in range(12):
            decision = agent.ask(task, features=rng.normal(size=(6, 3)))
            belief = agent.posterior(task)
            cov = inv(prior + g / sigma**2)
            mean = cov @ (prior @ mu_hat + b / sigma**2)
            sd = np.sqrt(cov.diagonal())
            assert (np.abs(belief.mean - mean) <= 1e-12 * sd).all()
            assert (np.abs(belief.cov - cov) <= 1e-12 * np.outer(sd, sd)).all()
            reward = float(decision.features @ theta + sigma * rng.normal())
            agent.tell(decision, reward=reward)
            g += np.outer(decision.features, decision.features)
            b += decision.features * reward
        inner = g / sigma**2 @ inv(inv(cov_0) + g / sigma**2)
        shift = shift + b / sigma**2 - inner @ b / sigma**2
        precision = precision + g / sigma**2 - inner @ g / sigma**2


def test_semi_bandit_equals_gaussian_arms_with_the_same_counts():
    agent, arms = new("semi-bandit"), AdaTS(CASES["semi-bandit"].meta, seed=9)
    told = play(agent, "semi-bandit", np.random.default_rng(7))
    assert {len(decision.action) for decision, _ in told} >= {1, 2}
    for task in agent.tasks:
        arms.ask(task)
    for task, arm, _, reward in reversed(flat(told)):
        arms.tell(task=task, action=arm, reward=reward)
    for task in agent.tasks:
        np.testing.assert_array_equal(agent.stats(task).count, arms.stats(task).count)
    alike(portrait(agent), portrait(arms), 1e-12)


# Mixtures, against sums over all candidates


@pytest.mark.parametrize("separate", [False, True])
@pytest.mark.parametrize("kind", ["beta", "poisson", "exponential", "normal"])
def test_mixtures_equal_a_sum_over_candidates(kind, separate):
    stack = CASES[kind].meta.priors
    priors = [stack.pick(j) for j in range(len(stack.parameters()[0]))]
    rng = np.random.default_rng(8)
    weights = rng.dirichlet(np.ones(len(priors)), stack.n_arms if separate else None).T
    agent = AdaTS(adats.MixtureMeta(weights, priors), seed=0)
    told = []
    candidates = priors
    if separate:
        weights, candidates = brute.unfactorised(weights, priors)
    for _ in range(2):  # in the middle, and at the end
        told += play(agent, kind, rng, rounds=25)
        evidence = np.array(
            [[c.condition(agent.stats(t)).log_evidence for t in agent.tasks] for c in candidates]
        )
        terms = np.array(weights) * np.exp(evidence.sum(axis=1))
        close(agent.meta.log_evidence(), math.log(terms.sum()))
        new_task = brute.mixture(terms / terms.sum(), candidates, agent.meta.empty())
        close(agent.meta.mean, new_task.mean)
        for i, task in enumerate(agent.tasks):
            others = np.array(weights) * np.exp(np.delete(evidence, i, axis=1).sum(axis=1))
            expected = brute.mixture(others / others.sum(), candidates, agent.stats(task))
            close(agent.posterior(task).mean, expected.mean)
            close(agent.posterior(task).scale, expected.scale)


@pytest.mark.parametrize("kind", ["models", "linear models"])
def test_mixtures_of_models_equal_the_joint_gaussians_of_all(kind):
    rng = np.random.default_rng(9)
    agent, told = new(kind), []
    weights = np.exp(CASES[kind].meta.log_weights)
    for _ in range(2):
        told += play(agent, kind, rng, rounds=25)
        joints = [joint(kind, flat(told), agent.tasks, meta) for meta in CASES[kind].meta.models]
        terms = weights * np.exp([j.log_evidence for j in joints])
        close(agent.meta.weights, terms / terms.sum())
        close(agent.meta.log_evidence(), math.log(terms.sum()))
        assert agent.meta.weights.min() > 1e-6  # all models matter
        for i, task in enumerate(agent.tasks):
            means, covs = (
                np.array(part) for part in zip(*(j.thetas[i] for j in joints), strict=True)
            )
            mean = agent.meta.weights @ means
            gaps = means - mean
            cov = np.einsum("j,jab->ab", agent.meta.weights, covs)
            cov += np.einsum("j,ja,jb->ab", agent.meta.weights, gaps, gaps)
            close(agent.posterior(task).mean, mean)
            close(agent.posterior(task).cov, cov)


# Thompson sampling: how often an action is chosen

DRAWS = 20_000


def frequency_fits(hits, chance):
    return abs(np.mean(hits) - chance) <= 4 * math.sqrt(chance * (1 - chance) / len(hits))


def wins(gap, variance):
    """The chance that a Gaussian of this mean and variance is positive."""
    return norm.cdf(gap / math.sqrt(variance))


@pytest.mark.statistical
@pytest.mark.parametrize("cls", [AdaTS, MetaTS, TS, OracleTS])
def test_two_arms_are_chosen_with_their_exact_probabilities(cls):
    meta = gaussian([0.2, 0.0], task_scale=[0.4, 0.2])
    told = ([0.3, 0.1],) if cls is OracleTS else ()
    agent = cls(meta, *told, seed=10)
    for task, arm, reward in [("a", 0, 0.7), ("a", 1, 0.9), ("b", 1, 1.0), ("b", 1, 0.2)]:
        agent.tell(task=task, action=arm, reward=reward)
    belief = agent.posterior("a")
    chance = wins(belief.mean[0] - belief.mean[1], (belief.scale**2).sum())
    hits = np.array([agent.ask("a").action for _ in range(DRAWS)]) == 0
    assert 0.05 < chance < 0.95
    assert frequency_fits(hits, chance)


@pytest.mark.statistical
def test_metats_chooses_in_new_tasks_with_the_marginal_probability():
    """Its draw of mu and of theta add up to the marginal prior, over many tasks."""
    agent = MetaTS(gaussian([0.2, 0.0], task_scale=[0.4, 0.2]), seed=11)
    agent.tell(task="a", action=0, reward=0.7)
    prior = agent.meta.task_prior()
    chance = wins(prior.mean[0] - prior.mean[1], (prior.scale**2).sum())
    hits = np.array([agent.ask(task).action for task in range(DRAWS)]) == 0
    assert frequency_fits(hits, chance)


@pytest.mark.statistical
def test_two_rows_of_features_are_chosen_with_their_exact_probability():
    rng = np.random.default_rng(12)
    agent = AdaTS(linear(), seed=12)
    for task in "aab":
        agent.tell(task=task, features=rng.normal(size=3), reward=float(rng.normal()))
    rows = np.array([[1.0, 0.0, 0.5], [0.2, -0.4, 0.3]])
    belief, gap = agent.posterior("a"), rows[0] - rows[1]
    chance = wins(gap @ belief.mean, gap @ belief.cov @ gap)
    hits = np.array([agent.ask("a", features=rows).action for _ in range(DRAWS)]) == 0
    assert 0.05 < chance < 0.95
    assert frequency_fits(hits, chance)


@pytest.mark.statistical
@pytest.mark.parametrize("kind", ["mixture", "models"])
def test_a_mixture_chooses_with_its_exact_probability(kind):
    if kind == "models":
        models = [gaussian([0.0, 0.0], task_scale=0.1), gaussian([0.9, 0.0], task_scale=1.0)]
        agent = AdaTS(adats.ModelMixture([0.6, 0.4], models), seed=13)
    else:
        priors = [
            adats.GaussianArms([0.0, 0.3], 0.4, 1.0),
            adats.GaussianArms([1.5, 0.0], 0.2, 1.0),
        ]
        agent = AdaTS(adats.MixtureMeta([0.6, 0.4], priors), seed=13)
    for task, arm, reward in [("a", 0, 0.7), ("a", 1, 0.9), ("b", 1, 1.0), ("b", 0, 0.2)]:
        agent.tell(task=task, action=arm, reward=reward)
    belief = agent.posterior("a")
    parts = getattr(belief, "beliefs", None) or [belief.components.pick(j) for j in range(2)]
    chances = [wins(part.mean[0] - part.mean[1], (part.scale**2).sum()) for part in parts]
    assert abs(chances[0] - chances[1]) > 0.15
    chance = np.ravel(belief.weights) @ chances
    hits = np.array([agent.ask("a").action for _ in range(DRAWS)]) == 0
    assert frequency_fits(hits, chance)


# The other agents


@pytest.mark.statistical
@pytest.mark.parametrize("kind", ["gaussian", "contextual"])
def test_metats_draws_mu_from_the_meta_posterior(kind):
    count, rng = 4000, np.random.default_rng(14)
    agent = new(kind, MetaTS)
    play(agent, kind, rng)
    for task in range(100, 100 + count):
        ask(agent, kind, task, rng)
    draws = np.array([agent.posterior(task).mean for task in range(100, 100 + count)])
    mean, cov = agent.meta.mean, getattr(agent.meta, "cov", None)
    cov = np.diag(agent.meta.scale**2) if cov is None else cov
    sd = np.sqrt(cov.diagonal())
    assert (np.abs(draws.mean(axis=0) - mean) <= 4 * sd / math.sqrt(count)).all()
    # the sampling error of an entry of the covariance matrix
    error = np.sqrt((cov**2 + np.outer(sd, sd) ** 2) / count)
    assert (np.abs(np.cov(draws.T) - cov) <= 4.5 * error).all()


@pytest.mark.parametrize("kind", KINDS)
def test_metats_keeps_its_draw_for_the_whole_task(kind):
    rng = np.random.default_rng(15)
    agent = new(kind, MetaTS)
    first = ask(agent, kind, 0, rng)
    before = agent.posterior(0)
    for task in (1, 2, 1, 2):
        decision = ask(agent, kind, task, rng)
        agent.tell(decision, reward=rewards_of(decision, kind, rng))
    np.testing.assert_array_equal(agent.posterior(0).mean, before.mean)
    np.testing.assert_array_equal(agent.posterior(0).scale, before.scale)
    told = rewards_of(first, kind, rng)
    agent.tell(first, reward=told)
    close(agent.posterior(0).mean, before.condition(agent.stats(0)).belief.mean)
    learner = new(kind)
    for task in agent.tasks:
        ask(learner, kind, task, rng)
    assert agent.meta.log_evidence() != learner.meta.log_evidence()


@pytest.mark.parametrize("kind", ["gaussian", "linear", "attributes"])
def test_ts_solves_every_task_alone(kind):
    rng = np.random.default_rng(16)
    agent = new(kind, TS)
    pulls = flat(play(agent, kind, rng))
    assert agent.meta is CASES[kind].meta
    for task in agent.tasks:
        alone = joint(kind, [pull for pull in pulls if pull[0] == task], [task])
        close(agent.posterior(task).mean, alone.thetas[0][0])
        close(agent.posterior(task).scale ** 2, alone.thetas[0][1].diagonal())


@pytest.mark.parametrize("kind", ["gaussian", "linear", "attributes"])
def test_oraclets_conditions_the_true_prior(kind):
    rng = np.random.default_rng(17)
    meta = CASES[kind].meta
    mu = meta.mean + rng.normal(size=meta.mean.size)
    agent = OracleTS(meta, mu, seed=0, **dict(CASES[kind].options))
    pulls = flat(play(agent, kind, rng))
    known = {"mean": mu, "noise": meta.noise}
    if kind == "gaussian":
        known = adats.GaussianMeta(scale=0.0, task_scale=meta.task_scale, **known)
    else:
        known = adats.LinearMeta(cov=0.0, task_cov=meta.task_cov, **known)
    expected = joint(kind, pulls, agent.tasks, known)
    for task, (mean, cov) in zip(agent.tasks, expected.thetas, strict=True):
        close(agent.posterior(task).mean, mean)
        close(agent.posterior(task).scale ** 2, cov.diagonal())


@pytest.mark.parametrize("factor", [3.0, 1 / 3])
@pytest.mark.parametrize("kind", ["gaussian", "linear", "attributes", "models"])
def test_adats_plus_and_minus_scale_the_width_of_the_meta_prior(kind, factor):
    meta = CASES[kind].meta
    wide = meta.widen(factor)
    for before, after in zip(
        getattr(meta, "models", [meta]), getattr(wide, "models", [wide]), strict=True
    ):
        if hasattr(before, "meta_cov"):
            close(after.meta_cov, factor**2 * before.meta_cov, 1e-12)
        else:
            close(after.scale**2, factor**2 * before.scale**2, 1e-12)
        np.testing.assert_array_equal(after.mean, before.mean)
    agent = AdaTS(wide, seed=0, **dict(CASES[kind].options))
    pulls = flat(play(agent, kind, np.random.default_rng(18)))
    if kind == "models":
        joints = [joint(kind, pulls, agent.tasks, model) for model in wide.models]
        logs = [j.log_evidence for j in joints] + meta.log_weights
        close(agent.meta.log_evidence(), np.logaddexp.reduce(logs))
        return
    cov = np.diag(meta.scale**2) if kind == "gaussian" else meta.cov
    expected = joint(kind, pulls, agent.tasks, widened(meta, factor, cov))
    close(agent.meta.mean, expected.mu[0])
    for task, (mean, _) in zip(agent.tasks, expected.thetas, strict=True):
        close(agent.posterior(task).mean, mean)


def widened(meta, factor, cov):
    """The same model made anew, with the covariance of mu times factor²."""
    if isinstance(meta, adats.GaussianMeta):
        scale = factor * np.sqrt(cov.diagonal())
        return adats.GaussianMeta(meta.mean, scale, task_scale=meta.task_scale, noise=meta.noise)
    return adats.LinearMeta(meta.mean, factor**2 * cov, task_cov=meta.task_cov, noise=meta.noise)


# Drift


def afresh(meta, agent):
    """The meta-posterior computed once from the statistics of all tasks."""
    for task in agent.tasks:
        meta = meta.absorb(meta.digest(agent.stats(task)).message)
    return meta


def within(left, right, tolerance=1e-8):
    np.testing.assert_allclose(left, right, rtol=tolerance, atol=0)


def test_drift_after_a_million_tells():
    meta = adats.GaussianMeta([0.4, -0.3, 7.0], 0.5, task_scale=[0.1, 1.0, 0.0], noise=1.0)
    agent, rng = AdaTS(meta, seed=0), np.random.default_rng(19)
    for _ in range(100):
        tasks = rng.integers(0, 1000, 10_000).tolist()
        arms = rng.integers(0, 3, 10_000)
        rewards = (meta.mean[arms] + 3 * rng.standard_normal(10_000)).tolist()
        for task, arm, reward in zip(tasks, arms.tolist(), rewards, strict=True):
            agent.tell(task=task, action=arm, reward=reward)
        for task in rng.choice(tasks[-2000:], 5).tolist():
            if task in agent.tasks:
                agent.forget(task)
    fresh = afresh(meta, agent)
    within(agent.meta.mean, fresh.mean)
    within(agent.meta.scale, fresh.scale)
    within(agent.meta.log_evidence(), fresh.log_evidence())


def test_drift_of_a_linear_model():
    meta = adats.LinearMeta([0.4, -0.3, 7.0], np.eye(3) + 0.5, task_cov=0.3, noise=1.0)
    agent, rng = AdaTS(meta, seed=0), np.random.default_rng(20)
    for _ in range(10):
        rows = rng.standard_normal((10_000, 3))
        rewards = (rows @ meta.mean + rng.standard_normal(10_000)).tolist()
        tasks = rng.integers(0, 200, 10_000).tolist()
        for task, row, reward in zip(tasks, rows, rewards, strict=True):
            agent.tell(task=task, features=row, reward=reward)
        agent.forget(tasks[-1])
    fresh = afresh(meta, agent)
    within(agent.meta.mean, fresh.mean)
    sd = np.sqrt(fresh.cov.diagonal())
    assert (np.abs(agent.meta.cov - fresh.cov) <= 1e-8 * np.outer(sd, sd)).all()
    within(agent.meta.log_evidence(), fresh.log_evidence())
