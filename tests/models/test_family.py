"""Any one-parameter exponential family: against closed forms, brute force and the laws."""

import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import betaln

import adats
from adats.models import BetaArms, ExponentialArms, FamilyArms, GaussianArms, PoissonArms
from adats.models.core.stats import ArmStats
from adats.models.family.family import TIME, ExponentialFamily
from adats.models.latent.family import BINARY, COUNT
from adats.models.mixture.families import register_arms
from adats.models.prior_files import prior_to_dict
from adats.simulation import simulate
from adats.simulation.problems import MixtureProblem
from adats.testing import check_belief, check_meta, check_stats
from asgi import talk
from geometric_arms import GeometricArms

NOISE = 0.7
RNG = np.random.default_rng(3)
A, B = np.exp(RNG.uniform(-4, 6, (2, 34)))  # from 0.02 to 400; more arms than nodes
MEANS = RNG.normal(size=34)


def gaussian(noise):
    """Numbers with a known standard deviation; eta is the mean over the variance."""
    variance = noise**2
    return ExponentialFamily(
        "number", lambda eta: 0.5 * variance * eta**2, lambda eta: variance * eta
    )


class Clicks(FamilyArms):
    FAMILY = BINARY


class Counts(FamilyArms):
    FAMILY = COUNT


class Times(FamilyArms):
    FAMILY = TIME


class Numbers(FamilyArms):
    FAMILY = gaussian(NOISE)


SHIPPED = {
    "Bernoulli": (Clicks(A, A + B), BetaArms(A, B)),
    "Poisson": (Counts(A, B), PoissonArms(A, B)),
    "exponential": (Times(B, A), ExponentialArms(A + 1, B)),
    "Gaussian": (Numbers(A * MEANS, A), GaussianArms(MEANS, NOISE / np.sqrt(A), NOISE)),
}
REWARDS = {
    "Bernoulli": lambda rng: float(rng.integers(2)),
    "Poisson": lambda rng: float(rng.poisson(3)),
    "exponential": lambda rng: rng.exponential(),
    "Gaussian": lambda rng: rng.normal(),
}


@pytest.mark.parametrize("name", SHIPPED)
def test_families_with_closed_forms_are_instances(name):
    ours, closed = SHIPPED[name]
    close = np.testing.assert_allclose
    close(ours.mean, closed.mean, rtol=1e-14)
    close(ours.scale, closed.scale, rtol=1e-8)  # infinite in the same places
    for z in (-3.0, 0.0, 0.5, 2.0, 4.0):
        close(ours.upper(z), closed.upper(z), rtol=1e-6)
    x = closed.upper(RNG.normal(size=34))
    told = np.abs(x - 1) > 1e-6  # chances near 1 have lost their digits
    close(ours.below(x)[told], closed.below(x)[told], atol=1e-9)
    close(ours.best_chances(), closed.best_chances(), atol=1e-7)
    stats, rng = ours.STATS.zeros(34), np.random.default_rng(4)
    for _ in range(100):
        stats = stats.add(int(rng.integers(34)), REWARDS[name](rng))
    new, old = ours.updated(stats), closed.updated(stats)
    close(new.mean, old.mean, rtol=1e-12)
    evidence, known = ours.arm_log_evidence(stats), closed.arm_log_evidence(stats)
    if name == "Gaussian":  # what does not depend on eta is left out of the family
        base = math.log(2 * math.pi * NOISE**2) * stats.count + stats.squares / NOISE**2
        evidence = evidence - base / 2
    close(evidence, known, atol=1e-8)


def brute(total, count, power=0):
    """∫ A'(eta)^power exp(total·eta - count·A(eta)) of geometric arms, over p = exp(eta)."""

    def f(p):
        return p ** (total - 1) * (1 - p) ** count * (p / (1 - p)) ** power

    return quad(f, 0, 1, epsabs=0, epsrel=1e-11, limit=200)[0]


def test_geometric_arms_against_brute_force():
    total, count = np.array([3.0, 1.5, 40.0]), np.array([5.0, 4.0, 12.0])
    arms = GeometricArms(total, count)
    z = [brute(t, c) for t, c in zip(total, count, strict=True)]
    np.testing.assert_allclose(arms.log_normaliser(), np.log(z), atol=1e-10)
    np.testing.assert_allclose(arms.log_normaliser(), betaln(total, count + 1), atol=1e-10)
    means = [brute(t, c, 1) for t, c in zip(total, count, strict=True)] / np.array(z)
    squares = [brute(t, c, 2) for t, c in zip(total, count, strict=True)] / np.array(z)
    np.testing.assert_allclose(arms.mean, means, rtol=1e-9)
    np.testing.assert_allclose(arms.scale, np.sqrt(squares - means**2), rtol=1e-8)
    draws = arms.draws(4000, np.random.default_rng(1))
    np.testing.assert_allclose(draws.mean(axis=0), means, atol=4 * (arms.scale / 4000**0.5).max())
    p = np.random.default_rng(2).beta(total, count + 1, size=(200_000, 3))
    wins = np.bincount((p / (1 - p)).argmax(axis=1), minlength=3) / 200_000
    np.testing.assert_allclose(arms.best_chances(), wins, atol=4 * 0.5 / 200_000**0.5)


CANDIDATES = [GeometricArms([2.0, 4.0, 6.0], 4.0), GeometricArms(9.0, [3.0, 4.0, 2.5])]
METAS = [adats.MixtureMeta(w, CANDIDATES) for w in ([0.3, 0.7], [[0.3, 0.5, 0.9], [0.7, 0.5, 0.1]])]


@pytest.mark.parametrize("meta", METAS, ids=["whole", "separate"])
def test_they_keep_the_laws(meta):
    """Order does not matter, evidence has its chain rule, messages add."""
    observed = [(0, 3.0), (1, 0.0), (0, 1.0), (2, 7.0)]
    check_stats(meta.empty(), observed)
    check_belief(CANDIDATES[0], meta.empty(), observed, draws=100)
    check_belief(meta.task_prior(), meta.empty(), observed, draws=100)
    tasks = [meta.empty().add(0, 2.0), meta.empty().add(1, 7.0).add(0, 1.0)]
    check_meta(meta, tasks, draws=100)


@pytest.mark.parametrize("policy", ["ts", "ucb", "index"])
def test_agents_ask_tell_save_and_go_on(policy, tmp_path):
    agent, rng = adats.AdaTS(METAS[0], policy=policy, seed=1), np.random.default_rng(2)
    for task in range(12):
        for _ in range(4):
            decision = agent.ask(task, horizon=4)
            agent.tell(decision, reward=float(rng.geometric(0.25) - 1))
    assert agent.meta.weights[1] > 0.99  # means of 3, 2.25 and 4.5, not of 0.5 to 1.5
    agent.save(tmp_path / "agent.npz")
    again = adats.load(tmp_path / "agent.npz")
    assert [again.ask("a", horizon=9).action for _ in range(9)] == [
        agent.ask("a", horizon=9).action for _ in range(9)
    ]
    with pytest.raises(ValueError, match=r"reward must be 0, 1, 2, \.\.\., got 0\.5"):
        agent.tell(task=0, action=0, reward=0.5)
    with pytest.raises(ValueError, match=r"reward must be 0, 1, 2, \.\.\., got -1\.0"):
        agent.tell(task=0, action=0, reward=-1)


def test_batches_say_what_one_by_one_says():
    one, many = adats.AdaTS(METAS[1], seed=1), adats.AdaTS(METAS[1], seed=1)
    actions, rewards = [0, 1, 2, 1, 0, 2], [0, 3, 1, 12, 2, 0]
    for task, action, reward in zip("abacba", actions, rewards, strict=True):
        one.tell(task=task, action=action, reward=reward)
    many.tell_many({"task": list("abacba"), "action": actions, "reward": rewards})
    np.testing.assert_allclose(many.meta.weights, one.meta.weights, atol=1e-12)
    np.testing.assert_allclose(many.posterior("a").mean, one.posterior("a").mean, rtol=1e-12)
    assert len(many.ask_many(["a", "b", "new"])) == 3


@pytest.mark.parametrize("kind", [GeometricArms, ExponentialArms])
def test_the_simulator_plays_them(kind):
    candidates = (
        CANDIDATES if kind is GeometricArms else [kind([3.0, 4.0], 4.0), kind([9.0] * 2, 30.0)]
    )
    problem = MixtureProblem([0.5, 0.5], candidates)
    result = simulate(problem, ["oracle-ts", "ada-ts", "ts"], tasks=4, rounds=6, runs=3, seed=5)
    assert result.regret.shape == (3, 3, 4)
    assert (result.regret >= 0).all()
    assert result.mean("oracle-ts") > 0


def test_the_service_serves_them(tmp_path):
    experiment = "/v1/experiments/x"
    spec = {"model": "geometric", "prior": {"file": prior_to_dict(METAS[0])}, "seed": 1}
    calls = [("PUT", experiment, spec)]
    calls += [("POST", f"{experiment}/decide", {"task": "ann", "decision_id": "1"})]
    calls += [("POST", f"{experiment}/reward", {"decision_id": "1", "reward": r}) for r in (0.5, 3)]
    answers = talk(tmp_path / "failures.db", calls)
    assert [status for status, _ in answers] == [201, 200, 422, 200]
    assert answers[2][1]["error"] == "reward must be 0, 1, 2, ..., got 0.5"


def test_rewards_have_their_means():
    points = (np.arange(20_000) + 0.5) / 20_000
    for arms, mean in ((GeometricArms, 2.5), (ExponentialArms, 2.5), (PoissonArms, 2.5)):
        drawn = [arms.reward_at(mean, point) for point in points]
        assert np.mean(drawn) == pytest.approx(mean, rel=2e-3)
    with pytest.raises(ValueError, match="GaussianArms has no reward_at"):
        MixtureProblem([1.0], [GaussianArms([0.0], 1.0, 1.0)])


def test_a_domain_may_end_on_any_side():
    """Two-sided exponential rewards, tilted, and losses; A = -log(1 - eta²) and -log(eta)."""
    tilted = ExponentialFamily(
        "tilted", lambda e: -np.log(1 - e * e), lambda e: 2 * e / (1 - e * e), (-1.0, 1.0)
    )
    losses = ExponentialFamily(
        "loss", lambda e: -np.log(e), lambda e: -1 / e, (0.0, math.inf), ArmStats
    )
    for family, total, count, high in ((tilted, 3.0, 5.0, 1.0), (losses, -9.0, 2.5, 40.0)):
        arms = type("Sided", (FamilyArms,), {"FAMILY": family})([total], [count])

        def f(eta, power, family=family, total=total, count=count):
            density = math.exp(total * eta - count * float(family.log_partition(eta)))
            return density * family.mean(eta) ** power

        ways = [quad(f, family.domain[0], high, (p,), epsrel=1e-11)[0] for p in range(3)]
        assert arms.log_normaliser()[0] == pytest.approx(math.log(ways[0]), abs=1e-9)
        assert arms.mean[0] == pytest.approx(ways[1] / ways[0], rel=1e-9)
        variance = ways[2] / ways[0] - arms.mean[0] ** 2
        assert arms.scale[0] == pytest.approx(math.sqrt(variance), rel=1e-7)
    with pytest.raises(ValueError, match=r"domain must end where A is infinite, not at 2\.0"):
        ExponentialFamily("cut", BINARY.log_partition, BINARY.mean, (-math.inf, 2.0))


@pytest.mark.parametrize(("total", "count"), [(-1.0, 1.0), (0.0, 1.0)])
def test_a_mean_that_no_reward_has_is_refused(total, count):
    with pytest.raises(ValueError, match="total over count must be a mean reward, got"):
        GeometricArms(total, count)


def test_a_name_is_taken_once():
    assert register_arms(GeometricArms) is GeometricArms
    with pytest.raises(ValueError, match="'GeometricArms' is taken by other arms"):
        register_arms(type("GeometricArms", (GeometricArms,), {}))
    data = METAS[0].to_dict() | {"family": "NoneSuch"}
    with pytest.raises(ValueError, match=r"unknown kind 'NoneSuch'; is it registered"):
        adats.MixtureMeta.from_dict(data)


def test_statistics_say_by_four_words_which_rewards_there_are():
    class Dice(ArmStats):
        LEAST, MOST, WHOLE_REWARDS, WANTED = 1.0, 6.0, True, "1 to 6"

    assert Dice.are_rewards(np.array([0.0, 1.0, 2.5, 6.0, 7.0, np.nan])).tolist() == [
        *(False, True, False, True, False, False)
    ]
    with pytest.raises(ValueError, match="reward must be 1 to 6, got 7"):
        Dice.zeros(1).add(0, 7)
