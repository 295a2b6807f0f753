"""Policies: their formulas, what they see of an agent, and the propensities that agents log."""

import math
import warnings
from statistics import NormalDist
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

import adats
from adats import (
    AdaTS,
    BetaArms,
    ExponentialArms,
    GaussianArms,
    GaussianMeta,
    LinearBelief,
    LinearMeta,
    MetaTS,
    MixtureArms,
    MixtureMeta,
    ModelMixture,
    OracleTS,
    PoissonArms,
    ShortestPath,
    Top,
)
from adats.agents.policies import (
    POLICIES,
    BayesUCB,
    FarSighted,
    FiniteHorizon,
    Greedy,
    Scene,
    Thompson,
    policy_of,
)

ROWS = np.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8], [-1.0, 0.3]])
HORIZON = 50


def gaussian(**options):
    settings = {"scale": 0.5, "task_scale": 0.3, "noise": 1.0} | options
    return GaussianMeta([0.0, 0.1, 0.2], **settings)


def beta():
    return MixtureMeta([0.3, 0.7], [BetaArms([2.0, 8.0, 5.0], 5.0), BetaArms([6.0, 2.0, 5.0], 4.0)])


def separate():
    priors = [BetaArms([2.0, 8.0], 5.0), BetaArms([6.0, 2.0], 4.0)]
    return MixtureMeta([[0.2, 0.9], [0.8, 0.1]], priors)


def linear(**options):
    settings = {"mean": [0.1, -0.1], "cov": np.eye(2) + 0.3, "task_cov": 0.2, "noise": 0.7}
    return LinearMeta(**(settings | options))


def models():
    return ModelMixture([0.4, 0.6], [gaussian(), gaussian(task_scale=1.0, scale=0.2)])


def linear_models():
    return ModelMixture([0.4, 0.6], [linear(), linear(mean=[1.0, 0.0], task_cov=1.0)])


def scene(belief, **seen):
    return Scene(belief, np.random.default_rng(0), **seen)


def quiet(agent, *args, **options):
    """Ask, whatever it warns of."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return agent.ask(*args, propensities=True, **options)


class Seen:
    """A policy of the user's own: greedy, and it keeps the scenes."""

    DRAWS: ClassVar[bool] = False

    def __init__(self):
        self.scenes = []

    def values(self, scene):
        self.scenes.append(scene)
        return Greedy().values(scene)


# The formulas, by hand


def test_bayes_ucb_is_the_quantile_at_one_minus_one_over_t_plus_one():
    arms = GaussianArms([1.0, 2.0], [0.5, 0.0], 1.0)
    for t in (1, 3, 199):
        z = NormalDist().inv_cdf(1 - 1 / (t + 1))
        assert_allclose(BayesUCB().values(scene(arms, round=t)), [1 + 0.5 * z, 2.0])
    assert_allclose(BayesUCB().values(scene(arms, round=3)), [1 + 0.5 * 0.6744897501960817, 2.0])


def beta_of(h, v):
    """As the issue of this policy has it."""
    return min(h / math.log(h + 1) ** 1.5, h * v / math.log(h * v + 1) ** 0.5)


def test_the_finite_horizon_index():
    scale, noise = np.array([0.5, 3.0, 0.1]), np.array([1.0, 0.5, 1.0])
    arms = GaussianArms([0.0, 1.0, 2.0], scale, noise)
    found = FiniteHorizon().values(scene(arms, horizon=10))
    few, many, tiny = (beta_of(10, v) for v in (scale / noise) ** 2)
    assert few == pytest.approx(2.5 / math.sqrt(math.log(3.5)))  # v decides
    assert many == pytest.approx(10 / math.log(11) ** 1.5)  # the horizon decides
    assert tiny < 1  # not worth a try
    expected = [0.5 * math.sqrt(2 * math.log(few)), 1 + 3 * math.sqrt(2 * math.log(many)), 2.0]
    assert_allclose(found, expected)
    assert_allclose(found[0], 0.6338829, rtol=1e-6)


@given(st.integers(1, 10**6), st.floats(1e-6, 1e6))
def test_the_finite_horizon_index_everywhere(h, v):
    arms = GaussianArms([0.0], math.sqrt(v), 1.0)
    level = FiniteHorizon().values(scene(arms, horizon=h))[0] / math.sqrt(v)
    assert level == pytest.approx(math.sqrt(2 * math.log(max(1.0, beta_of(h, v)))), abs=1e-6)


def far_level(h, v, later, share):
    x = v * (h + later * share**2)
    ahead = 1.1 * math.sqrt(math.log(1 + 0.4 * x + x**2 / 300))
    return max(0.0, ahead - 0.583 * math.sqrt(v / (1 + v)))


def test_the_far_sighted_index():
    arms = GaussianArms([0.0, 1.0], [0.5, 2.0], [1.0, 1.0])
    share = np.array([0.9, 0.0])
    found = FarSighted(later=200).values(scene(arms, horizon=10, share=lambda: share))
    expected = [0.5 * far_level(10, 0.25, 200, 0.9), 1 + 2 * far_level(10, 4.0, 200, 0.0)]
    assert_allclose(found, expected)
    # x = 0.25 · (10 + 162) = 43; 1.1·√log(1 + 17.2 + 6.16333) = 1.96561; 0.583·√0.2 = 0.26073
    assert_allclose(found[0], 0.5 * (1.96561 - 0.26073), rtol=1e-5)


def test_a_longer_future_is_worth_more_exploration_where_mu_is_unknown():
    arms = GaussianArms([0.0, 0.0], 0.5, 1.0)

    def found(later):
        seen = scene(arms, horizon=20, round=5, share=lambda: np.array([0.8, 0.0]))
        return FarSighted(later).values(seen)

    none, some, full, much, unknown = (found(later) for later in (0, 200, 480, 10**6, None))
    assert none[0] < some[0] < full[0]
    assert full[0] == much[0]  # 20 tasks of 4 + 20 rounds, and no more
    assert unknown[0] == found(240)[0]  # 10 such tasks
    assert none[1] == some[1] == much[1] == unknown[1]


def test_one_round_is_no_time_to_explore():
    known = GaussianArms([0.3, 0.2], 0.0, 1.0)
    vague = GaussianArms([0.3, 0.2], [0.01, 0.3], 1.0)
    for policy in (FiniteHorizon(), FarSighted(0)):
        assert_allclose(policy.values(scene(known, horizon=1)), [0.3, 0.2])
        assert policy.values(scene(vague, horizon=1)).argmax() == 0
        assert policy.values(scene(vague, horizon=10**4)).argmax() == 1


@pytest.mark.parametrize(
    ("arms", "ratio"),
    [
        (BetaArms([2.0, 5.0], [3.0, 1.0]), [1 / 6, 1 / 7]),  # 1/(α + β + 1)
        (PoissonArms([2.0, 5.0], [3.0, 0.5]), [1 / 3, 2.0]),  # 1/rate
        (ExponentialArms([3.0, 12.0], [3.0, 0.5]), [1.0, 0.1]),  # 1/(shape - 2)
        (GaussianArms([0.0, 1.0], [2.0, 0.5], [1.0, 2.0]), [4.0, 1 / 16]),
    ],
)
def test_the_variance_over_that_of_a_reward(arms, ratio):
    h = 30
    level = [far_level(h, v, 0, 0) for v in ratio]
    found = FarSighted(0).values(scene(arms, horizon=h))
    assert_allclose(found, arms.upper(np.array(level)), rtol=1e-12)
    level = [math.sqrt(2 * math.log(max(1.0, beta_of(h, v)))) for v in ratio]
    found = FiniteHorizon().values(scene(arms, horizon=h))
    assert_allclose(found, arms.upper(np.array(level)), rtol=1e-9)


@pytest.mark.parametrize("policy", [FiniteHorizon(), FarSighted(100), BayesUCB()])
def test_an_arm_of_endless_variance_has_an_index_all_the_same(policy):
    arms = ExponentialArms([1.5, 0.5, 3.0], [1.0, 1.0, 1.0])  # infinite variance, mean; neither
    found = policy.values(scene(arms, horizon=20, round=20, share=lambda: np.full(3, 0.5)))
    assert np.isfinite(found).all()
    assert found[0] > found[2]


def test_mixtures_have_the_quantiles_of_the_mixture():
    arms = MixtureArms([0.5, 0.5], [BetaArms([2.0, 8.0], 50.0), BetaArms([45.0, 8.0], 50.0)])
    for policy in (BayesUCB(), FiniteHorizon(), FarSighted(0)):
        seen = scene(arms, horizon=40, round=9)
        level = np.broadcast_to(policy.level(arms, seen), (2,))
        found = policy.values(seen)
        assert_allclose(arms.below(found), [NormalDist().cdf(z) for z in level], rtol=1e-9)
        assert abs(found[0] - (arms.mean + level * arms.scale)[0]) > 0.01  # two humps: not a normal


def test_linear_indices_are_those_of_the_rows():
    root = np.array([[1.0, 0.0], [0.5, 0.2]])
    belief = LinearBelief([1.0, -0.5], root @ root.T, 0.7)
    scale = np.sqrt(np.diagonal(ROWS @ root @ root.T @ ROWS.T))
    z = [far_level(30, (s / 0.7) ** 2, 500, 0.5) for s in scale]
    seen = scene(belief, rows=ROWS, horizon=30, share=lambda: np.full(4, 0.5))  # 500 < 20 · 30
    assert_allclose(FarSighted(500).values(seen), ROWS @ [1.0, -0.5] + z * scale)
    assert_allclose(Greedy().values(seen), ROWS @ [1.0, -0.5])


def test_thompson_sampling_draws_once():
    belief = LinearBelief([1.0, -0.5], np.eye(2), 0.7)
    theta = belief.sample(np.random.default_rng(0))
    assert_allclose(Thompson().values(scene(belief, rows=ROWS)), ROWS @ theta)


# The share of mu in the variance of an arm: the law of total variance, by draws


SHARES = {
    "gaussian": (gaussian(), None),
    "linear": (linear(), None),
    "rows": (linear(), ROWS),
    "singular": (linear(cov=[[1.0, 0.5], [0.5, 0.25]], task_cov=np.diag([0.0, 0.3])), ROWS),
    "mixture": (beta(), None),
    "separate": (separate(), None),
    "models": (models(), None),
    "linear models": (linear_models(), ROWS),
}


def at_rows(belief, rows):
    return belief if rows is None else belief.at_rows(rows)


@pytest.mark.parametrize("name", SHARES)
def test_share_is_the_law_of_total_variance(name):
    meta, rows = SHARES[name]
    features = ROWS if isinstance(meta.empty(), adats.LinearStats) else None
    agent = AdaTS(meta, seed=1, features=features)
    for task in range(4):  # the meta-belief has learned something
        agent.tell(task=task, action=task % 2, reward=float(task % 2))
    rng, size = np.random.default_rng(3), 4000
    given = [at_rows(agent.meta.prior_given(agent.meta.sample(rng)), rows) for _ in range(size)]
    means, variances = np.array([b.mean for b in given]), np.array([b.scale for b in given]) ** 2
    parts = np.split(np.arange(size), 20)
    between, within = np.var(means, axis=0), variances.mean(axis=0)
    share = between / (between + within)
    jack = []
    for part in parts:
        kept = np.setdiff1d(np.arange(size), part)
        one, other = np.var(means[kept], axis=0), variances[kept].mean(axis=0)
        jack.append(one / (one + other))
    se = np.sqrt(19 / 20 * ((np.array(jack) - share) ** 2).sum(axis=0))
    found = agent.meta.share(rows=rows)
    assert (np.abs(found - share) <= 4 * se + 1e-12).all()
    assert (found > 0.01).any()
    total = at_rows(agent.meta.task_prior(), rows).scale ** 2
    assert_allclose(total, between + within, rtol=0.2)


def test_share_with_a_design_by_hand():
    meta = LinearMeta([0.0], 4.0, task_cov=1.0, noise=1.0)
    design = np.array([[1.0], [1.0], [0.0]])
    # theta_i = mu + e_i, mu ~ N(0, 4), e_i ~ N(0, 1); the third entry has no mu
    assert_allclose(meta.share(design=design), [0.8, 0.8, 0.0])
    rows = np.array([[1.0, 1.0, 0.0], [1.0, -1.0, 0.0]])  # 2 mu + e_1 + e_2; e_1 - e_2
    assert_allclose(meta.share(rows=rows, design=design), [16 / 18, 0.0])


def test_share_where_nothing_or_all_is_known():
    assert_allclose(gaussian(scale=0.0).share(), 0.0)
    assert_allclose(gaussian(task_scale=0.0).share(), 1.0)
    assert_allclose(gaussian(scale=0.0, task_scale=0.0).share(), 0.0)


def test_share_where_a_candidate_has_an_endless_mean():
    heavy = [ExponentialArms([0.5, 3.0], 1.0), ExponentialArms([1.5, 3.0], [1.0, 2.0])]
    share = MixtureMeta([0.5, 0.5], heavy).share()
    # arm 1: means 0.5 and 1, variances 0.25 and 1, so 0.0625 between and 0.625 within
    assert share[0] == 0
    assert share[1] == pytest.approx(0.0625 / 0.6875)


# What a policy sees of an agent


def test_the_scene_of_a_decision():
    policy = Seen()
    agent = AdaTS(gaussian(), seed=1, policy=policy)
    agent.tell(task="a", action=0, reward=1.0)
    agent.ask("b")
    agent.tell(agent.ask("a", horizon=9), reward=0.0)
    agent.ask("a")
    first, second, third = policy.scenes
    assert (first.round, first.horizon, first.pending) == (1, None, None)
    assert (second.round, second.horizon, second.pending) == (2, 9, None)
    assert (third.round, third.horizon, third.pending) == (3, None, None)
    assert third.rows is None
    assert_allclose(third.share(), agent.meta.share())
    assert_allclose(third.belief.mean, agent.posterior("a").mean)


def test_agents_that_do_not_learn_have_no_later_tasks_to_serve():
    for cls, mu in ((adats.TS, ()), (OracleTS, ([0.0, 0.1, 0.2],))):
        policy = Seen()
        cls(gaussian(), *mu, seed=1, policy=policy).ask("a")
        assert policy.scenes[0].share() == 0.0


def index_of(agent, task, level, pending):
    """Mean plus level times sd, the sd shrunk by pulls that are not told yet."""
    belief = agent.posterior(task)
    noise = agent.meta.noise
    scale = belief.scale / np.sqrt(1 + pending * (belief.scale / noise) ** 2)
    return belief.mean + level * scale


def test_pending_pulls_shrink_the_sd_and_leave_the_mean():
    agent = AdaTS(gaussian(noise=0.5), seed=1, policy="ucb")
    pending, asked = np.zeros(3), []
    for t in range(1, 30):
        before = agent.posterior("a") if t > 1 else agent.meta.task_prior()
        if t > 1:
            level = NormalDist().inv_cdf(1 - 1 / (t + 1))
            expected = index_of(agent, "a", level, pending).argmax()
        asked.append(agent.ask("a"))
        if t > 1:
            assert asked[-1].action == expected
        assert_allclose(agent.posterior("a").mean, before.mean)
        assert_allclose(agent.posterior("a").scale, before.scale)  # it is not told anything
        pending[asked[-1].action] += 1
        assert_allclose(agent.state().tasks["a"].pending, pending)
    assert len({d.action for d in asked}) == 3  # without that, it would ask for one arm only
    for decision in asked:
        agent.tell(decision, reward=0.1)
    assert not agent.state().tasks["a"].pending.any()
    assert_allclose(agent.stats("a").count, pending)


def test_pending_pulls_of_a_linear_model():
    policy = Seen()
    agent = AdaTS(linear(), seed=1, features=ROWS, policy=policy)
    waiting = [agent.ask("a", allowed=[arm]) for arm in (0, 2, 2, 3)]
    for told in (2, 0, 1):  # in another order
        waiting.append(agent.ask("a"))
        pulled = ROWS[[decision.action for decision in waiting[:-1]]]
        assert_allclose(policy.scenes[-1].pending, pulled.T @ pulled, atol=1e-12)
        agent.tell(waiting.pop(told), reward=1.0)
    assert len(waiting) == 4


def test_pending_sets_of_arms():
    agent = AdaTS(gaussian(), seed=1, oracle=Top(2, exactly=True), policy="far")
    one, two = (agent.ask("a", horizon=HORIZON) for _ in range(2))
    pending = np.zeros(3)
    for decision in (one, two):
        pending[list(decision.action)] += 1
    assert_allclose(agent.state().tasks["a"].pending, pending)
    agent.tell(one, reward=[0.0, 0.0])
    pending[list(one.action)] -= 1
    assert_allclose(agent.state().tasks["a"].pending, pending)


def test_a_decision_told_twice_leaves_no_negative_pulls():
    agent = AdaTS(gaussian(), seed=1, policy="ucb")
    decision = agent.ask("a")
    agent.tell(decision, reward=0.0)
    with pytest.warns(UserWarning, match="has had its reward already"):
        agent.tell(decision, reward=0.0)
    assert not agent.state().tasks["a"].pending.any()
    rows = AdaTS(linear(), seed=1, features=ROWS, policy="ucb")
    decision = rows.ask("a")
    rows.tell(decision, reward=0.0)
    with pytest.warns(UserWarning, match="has had its reward already"):
        rows.tell(decision, reward=0.0)
    assert 0 <= rows.ask("a").action < 4


def test_an_arm_added_while_pulls_are_pending():
    agent = AdaTS(gaussian(), seed=1, policy="ucb")
    agent.ask("a")
    agent.add_arm(like=0)
    assert agent.ask("a", allowed=[3]).action == 3
    assert_allclose(agent.state().tasks["a"].pending.sum(), 2)
    assert_allclose(agent.state().tasks["a"].pending[3], 1)
    rows = AdaTS(linear(), seed=1, features=ROWS, policy="ucb")
    rows.ask("a")
    rows.add_arm(features=[1.0, 1.0])
    assert rows.ask("a", allowed=[4]).action == 4


def test_thompson_sampling_keeps_no_pending_pulls():
    agent = AdaTS(gaussian(), seed=1)
    agent.ask("a")
    assert agent.state().tasks["a"].pending is None


@pytest.mark.parametrize("policy", ["ucb", "index", "far", "greedy"])
def test_sets_get_the_index_of_every_arm(policy):
    """Of these arms the widest is worth its place in the set, unless one is greedy."""
    meta = GaussianMeta([0.5, 0.4, 0.3], [0.01, 0.01, 1.0], task_scale=0.01, noise=1.0)
    agent = AdaTS(meta, seed=1, oracle=Top(2, exactly=True), policy=policy)
    for _ in range(5):  # the level of Bayes-UCB starts at 0
        agent.tell(task="a", action=0, reward=0.5)
    chosen = set(agent.ask("a", horizon=200).action)
    assert chosen == ({0, 1} if policy == "greedy" else {0, 2})


def test_a_path_is_chosen_by_the_indices_of_its_edges():
    edges = [("s", "a"), ("a", "t"), ("s", "b"), ("b", "t")]
    oracle = ShortestPath(edges, source="s", target="t")
    scale = [0.01, 0.01, 1.0, 1.0]  # little is known of the second path
    meta = GaussianMeta([-1.0, -1.0, -1.2, -1.2], scale, task_scale=0.01, noise=1.0)
    paths = {
        policy: AdaTS(meta, seed=1, oracle=oracle, policy=policy).ask("x", horizon=200).action
        for policy in ("greedy", "index", "far")
    }
    assert paths == {"greedy": (0, 1), "index": (2, 3), "far": (2, 3)}


def test_forced_exploration_comes_before_any_policy():
    agent = AdaTS(gaussian(), seed=1, explore_first=True, policy="far")
    assert {agent.ask("a").action for _ in range(3)} == {0, 1, 2}  # and needs no horizon
    with pytest.raises(ValueError, match="horizon"):
        agent.ask("a")


# Files


@pytest.mark.parametrize("policy", ["ts", "ucb", "index", FarSighted(later=300), FarSighted()])
@pytest.mark.parametrize("kind", ["gaussian", "linear", "beta", "models"])
def test_a_saved_agent_goes_on_bit_for_bit(tmp_path, kind, policy):
    meta = {"gaussian": gaussian, "linear": linear, "beta": beta, "models": models}[kind]()
    features = ROWS if kind == "linear" else None
    agent = AdaTS(meta, seed=1, features=features, policy=policy, epsilon=0.2)
    waiting = [agent.ask(task, horizon=HORIZON) for task in ("a", "b", "a", "a")]
    agent.tell(waiting.pop(0), reward=1.0)
    agent.save(tmp_path / "agent.npz")
    other = adats.load(tmp_path / "agent.npz")
    mine, its = agent.state().setup.rule, other.state().setup.rule
    assert mine.policy == its.policy
    assert its.epsilon == 0.2
    for task in ("a", "b"):
        mine, its = agent.state().tasks[task], other.state().tasks[task]
        assert mine.rounds == its.rounds
        assert (mine.pending is None) == (its.pending is None)
        assert mine.pending is None or (mine.pending == its.pending).all()
    for _ in range(3):
        for task in ("a", "b", "c"):
            one, two = (x.ask(task, horizon=HORIZON, propensities=True) for x in (agent, other))
            assert one == two
            assert (one.propensities == two.propensities).all()
            for x in (agent, other):
                x.tell(one, reward=1.0)
    assert (agent.meta.mean == other.meta.mean).all()


def test_a_policy_of_ones_own_is_given_to_load(tmp_path):
    agent = AdaTS(gaussian(), seed=1, policy=Seen())
    agent.ask("a")
    agent.save(tmp_path / "own.npz")
    with pytest.raises(ValueError, match="needs policy="):
        adats.load(tmp_path / "own.npz")
    again = Seen()
    adats.load(tmp_path / "own.npz", policy=again).ask("a")
    assert again.scenes[0].pending.sum() == 1
    AdaTS(gaussian(), seed=1, policy="ucb").save(tmp_path / "known.npz")
    with pytest.raises(ValueError, match="takes no policy="):
        adats.load(tmp_path / "known.npz", policy=again)


def test_numbers_of_numpy_are_saved_too(tmp_path):
    agent = AdaTS(gaussian(), seed=1, policy=FarSighted(later=np.int64(7)))
    agent.save(tmp_path / "agent.npz")
    assert adats.load(tmp_path / "agent.npz").state().setup.rule.policy.later == 7


# Bad input


@pytest.mark.parametrize("agent", [AdaTS, MetaTS])
@pytest.mark.parametrize("policy", ["index", "far"])
def test_without_a_horizon_nothing_is_changed(agent, policy):
    one, two = (agent(gaussian(), seed=3, policy=policy) for _ in range(2))
    for bad in (None, 0, -1, 2.5):
        with pytest.raises(ValueError, match="horizon"):
            one.ask("a", horizon=bad)
    assert one.tasks == ()
    assert one._rng.bit_generator.state == two._rng.bit_generator.state
    assert one.ask("a", horizon=5) == two.ask("a", horizon=5)
    assert one.state().tasks["a"].rounds == 1


def test_unknown_policies_are_named_with_the_known():
    with pytest.raises(ValueError, match=r"'ucb1'.*ts, ucb, index, far, greedy"):
        AdaTS(gaussian(), seed=1, policy="ucb1")
    for bad in (3, None, object()):
        with pytest.raises(ValueError, match="a policy is"):
            AdaTS(gaussian(), seed=1, policy=bad)
    assert policy_of("far") is POLICIES["far"]


@pytest.mark.parametrize("later", [-1, math.inf, math.nan, "many"])
def test_bad_lengths_of_the_future(later):
    with pytest.raises(ValueError, match="later"):
        FarSighted(later)


@pytest.mark.parametrize("epsilon", [-0.1, 1.1, math.nan, "0.1", None])
def test_bad_epsilons(epsilon):
    with pytest.raises(ValueError, match="epsilon"):
        AdaTS(gaussian(), seed=1, epsilon=epsilon)


def test_epsilon_is_for_single_arms():
    with pytest.raises(ValueError, match="single arms"):
        AdaTS(gaussian(), seed=1, oracle=Top(2), epsilon=0.1)
    agent = AdaTS(gaussian(), seed=1, oracle=adats.BestArm(), epsilon=0.1)
    assert agent.ask("a").action in range(3)


# Propensities


def stay(_agent, _decision):
    """Nothing is told, so that the belief stays as it is."""


def learn(agent, decision):
    agent.tell(decision, reward=float(decision.action == 1))


LOGS = {
    "gaussian": (gaussian, {}, stay),
    "beta mixture": (beta, {}, stay),
    "one mixture an arm": (separate, {}, stay),
    "models": (models, {}, stay),
    "linear": (linear, {"features": ROWS}, stay),
    "a floor": (gaussian, {"epsilon": 0.3}, stay),
    "linear with a floor": (linear, {"features": ROWS, "epsilon": 0.3}, stay),
    "a floor for the greedy": (gaussian, {"policy": "greedy", "epsilon": 0.3}, learn),
    "a floor for an index": (gaussian, {"policy": "far", "epsilon": 0.2}, learn),
    "nothing but the floor": (gaussian, {"policy": "ucb", "epsilon": 1.0}, learn),
    "learning": (gaussian, {}, learn),
}


@pytest.mark.statistical
@pytest.mark.parametrize("allowed", [None, [0, 1]])
@pytest.mark.parametrize("name", LOGS)
def test_arms_are_chosen_as_often_as_their_propensities_say(name, allowed):
    meta, options, then = LOGS[name]
    agent, rounds = AdaTS(meta(), seed=7, **options), 600 if meta is gaussian else 150
    chosen, chances = [], []
    for _ in range(rounds):
        decision = agent.ask("a", horizon=HORIZON, allowed=allowed, propensities=True)
        assert decision.propensity == decision.propensities[decision.action]
        assert decision.propensities.sum() == pytest.approx(1.0, abs=1e-6)
        chosen.append(decision.action)
        chances.append(decision.propensities)
        then(agent, decision)
    p = np.array(chances)
    hits = np.array(chosen)[:, None] == np.arange(p.shape[1])
    # given the past, an arm is hit with chance p: the sum of the differences is a martingale
    spread = np.sqrt((p * (1 - p)).sum(axis=0))
    assert (np.abs((hits - p).sum(axis=0)) <= 4 * spread + 1e-6).all()
    if allowed is not None:
        assert (p[:, 2:] == 0).all()
    if "epsilon" in options:
        open_arms = np.arange(2 if allowed else p.shape[1])
        low = options["epsilon"] / open_arms.size
        assert (p[:, open_arms] >= low - 1e-12).all()
        weights = (hits / np.where(p > 0, p, 1.0))[:, open_arms]  # 1 on average: what IPS needs
        error = np.sqrt((1 / p[:, open_arms] - 1).sum(axis=0))
        assert (np.abs(weights.sum(axis=0) - rounds) <= 4 * error + 1e-6).all()


@pytest.mark.parametrize("options", [{}, {"epsilon": 0.2}, {"policy": "far", "epsilon": 0.2}])
@pytest.mark.parametrize("agent", [AdaTS, MetaTS])
@pytest.mark.parametrize("meta", [gaussian, beta, linear])
def test_to_be_asked_for_propensities_changes_no_decision(meta, agent, options):
    features = {"features": ROWS} if meta is linear else {}
    one, two = (agent(meta(), seed=5, **features, **options) for _ in range(2))
    for t in range(20):
        with_, without = one.ask(t % 2, horizon=9, propensities=True), two.ask(t % 2, horizon=9)
        assert (with_.action, with_.decision_id) == (without.action, without.decision_id)
        assert without.propensity is without.propensities is None
        for each, decision in ((one, with_), (two, without)):
            each.tell(decision, reward=float(t % 3 == 0))
    assert one._rng.bit_generator.state == two._rng.bit_generator.state


def test_the_gaussian_propensity_of_two_arms_by_hand():
    meta = GaussianMeta([0.0, 1.0], 0.3, task_scale=0.4, noise=1.0)  # sd 0.5 each
    decision = AdaTS(meta, seed=1).ask("a", propensities=True)
    other = NormalDist().cdf(-1 / math.sqrt(0.5))
    assert_allclose(decision.propensities, [other, 1 - other], rtol=1e-6)


@pytest.mark.parametrize("policy", ["ucb", "index", "far", "greedy"])
def test_policies_that_do_not_draw_say_one_and_warn_once(policy):
    agent = AdaTS(gaussian(), seed=1, policy=policy)
    with pytest.warns(UserWarning, match="cannot be evaluated off-policy"):
        decision = agent.ask("a", horizon=HORIZON, propensities=True)
    assert decision.propensity == 1
    assert decision.propensities.tolist() == np.eye(3)[decision.action].tolist()
    assert agent.ask("b", horizon=HORIZON, propensities=True).propensity == 1  # not again


def test_forced_exploration_says_one_and_warns_once():
    agent = AdaTS(gaussian(), seed=1, explore_first=True, epsilon=0.5)
    with pytest.warns(UserWarning, match="forced exploration"):
        assert agent.ask("a", propensities=True).propensity == 1
    assert [agent.ask("a", propensities=True).propensity for _ in range(2)] == [1, 1]
    assert agent.ask("a", propensities=True).propensity < 1  # the task's own decisions


def test_a_floor_takes_the_warning_away():
    agent = AdaTS(gaussian(), seed=1, policy="greedy", epsilon=0.3)
    found = {round(agent.ask("a", propensities=True).propensity, 9) for _ in range(60)}
    assert found == {0.8, 0.1}  # 0.7 + 0.3/3 for the greedy arm, 0.3/3 for the others


def test_a_policy_that_draws_in_its_own_way_has_no_known_propensities():
    class Coin:
        DRAWS: ClassVar[bool] = True

        def values(self, scene):
            return scene.rng.random(3)

    agent = AdaTS(gaussian(), seed=1, policy=Coin())
    state = agent.state().rng.bit_generator.state
    with pytest.raises(ValueError, match="propensities"):
        agent.ask("a", propensities=True)
    assert agent.tasks == ()
    assert agent.state().rng.bit_generator.state == state
    assert agent.ask("a").action in range(3)


def test_records_carry_the_propensity():
    decision = AdaTS(gaussian(arms=["x", "y", "z"]), seed=1).ask("a", propensities=True)
    index = ["x", "y", "z"].index(decision.action)
    assert decision.record(1.0)["propensity"] == decision.propensities[index]
    assert AdaTS(gaussian(), seed=1).ask("a").record(1.0)["propensity"] is None


def test_records_of_a_set_carry_a_propensity_each():
    agent = AdaTS(gaussian(), seed=1, oracle=Top(2, exactly=True))
    decision = agent.ask("a", propensities=True)
    assert decision.propensities.sum() == pytest.approx(2)  # chances to be in the set
    assert decision.propensity == tuple(decision.propensities[list(decision.action)].tolist())
    rows = decision.records([1.0, 0.0])
    assert tuple(row["propensity"] for row in rows) == decision.propensity
    certain = quiet(AdaTS(gaussian(), seed=1, oracle=Top(2, exactly=True), policy="ucb"), "a")
    assert certain.propensity == (1.0, 1.0)
    assert certain.propensities.sum() == 2


@pytest.mark.statistical
def test_sets_are_chosen_as_often_as_they_say():
    agent = AdaTS(gaussian(), seed=2, oracle=Top(2, exactly=True))
    hits, chances, rounds = np.zeros(3), [], 2000
    for t in range(rounds):  # the belief stays as it is
        decision = agent.ask("a", propensities=t % 200 == 0)
        hits[list(decision.action)] += 1
        chances += [] if decision.propensities is None else [decision.propensities]
    p = np.mean(chances, axis=0)  # of 10 times 1,001 draws
    assert (np.abs(hits / rounds - p) <= 4 * np.sqrt(p * (1 - p) * (1 / rounds + 1e-4))).all()
