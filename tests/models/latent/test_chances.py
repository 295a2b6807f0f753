"""The chance of each arm to be best, against counting over very many draws."""

import numpy as np
import pytest

from adats import LatentMeta
from adats.models.latent.chances import LEAST, Laws, best_chance, best_chances

DRAWS = 1_000_000


def counted(laws, rng):
    """The share of draws that each arm wins; its standard error at 0.01 is 1 % of that."""
    arms = laws.means.shape[1]
    wins = np.zeros(arms)
    for count, mean, cov in zip(rng.multinomial(DRAWS, laws.weights), *laws[1:], strict=True):
        values, vectors = np.linalg.eigh(cov)
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        for part in np.array_split(np.empty(count), max(count // 100_000, 1)):
            draws = mean + rng.standard_normal((part.size, arms), dtype=np.float32) @ root.T
            wins += np.bincount(draws.argmax(axis=1), minlength=arms)
    return wins / DRAWS


def some_laws(arms, rng, candidates=8):
    """Arms that share a level and differ a little or much, in ways that are correlated too."""
    spread = rng.choice([0.02, 0.2, 0.8], size=candidates)[:, None, None]
    root = rng.standard_normal((candidates, arms, arms)) * 0.5 / np.sqrt(arms)
    covs = spread**2 * (np.eye(arms) + root @ np.swapaxes(root, -1, -2)) + rng.random() * 6
    means = -3 + rng.standard_normal(arms) * 0.3 + 0.1 * rng.standard_normal((candidates, arms))
    return Laws(rng.dirichlet(np.ones(candidates)), means, covs)


@pytest.mark.parametrize("arms", [2, 3, 10, 50])
def test_within_a_tenth_above_one_in_a_hundred(arms):
    rng = np.random.default_rng(arms)
    for _ in range(2 if arms < 50 else 1):
        laws = some_laws(arms, rng)
        truth, found = counted(laws, rng), best_chances(laws)
        assert found.sum() == pytest.approx(1.0)
        for arm in np.flatnonzero(truth > 0.01):
            assert found[arm] == pytest.approx(truth[arm], rel=0.1)
            assert best_chance(laws, arm) == pytest.approx(truth[arm], rel=0.1)


def test_of_some_arms():
    laws = some_laws(5, np.random.default_rng(1))
    some = np.array([0, 2, 4])
    fewer = Laws(laws.weights, laws.means[:, some], laws.covs[:, some][:, :, some])
    np.testing.assert_array_equal(best_chances(laws.of(some)), best_chances(fewer))


def test_arms_that_are_one_and_the_same_or_certain():
    """No nan and no 0, whatever is singular."""
    one = np.ones(1)
    same = Laws(one, np.zeros((1, 3)), np.ones((1, 3, 3)))
    np.testing.assert_allclose(best_chances(same), 1 / 3, rtol=0.05)
    assert best_chance(same, 1) == pytest.approx(1 / 3, rel=0.05)
    known = Laws(one, np.array([[0.0, 1.0, -1.0]]), np.zeros((1, 3, 3)))
    np.testing.assert_allclose(best_chances(known), [LEAST, 1.0, LEAST])
    assert best_chance(known, 0) == LEAST
    assert best_chance(known, 1) == 1.0
    alone = Laws(one, np.zeros((1, 1)), np.ones((1, 1, 1)))
    assert best_chance(alone, 0) == 1.0
    np.testing.assert_array_equal(best_chances(alone), [1.0])


@pytest.mark.parametrize("design", [None, np.array([[1.0, 0.2], [1.0, -0.3], [1.0, 1.0]])])
@pytest.mark.parametrize("full", [False, True])
def test_of_a_posterior_are_those_of_its_joint_belief(design, full):
    """They are worked out from other matrices."""
    p = 3 if design is None else 2
    spread = {"task_cov": 0.1 * np.eye(3) + 0.2} if full else {"task_scale": [0.1, 0.5]}
    options = spread if full else spread | {"level_scale": [0.3, 0.6]}
    meta = LatentMeta(np.full(p, -1.0), 1.0, design=design, **options)
    stats = meta.empty().add_counts([0, 1], [20, 9], [4, 3])
    meta = meta.absorb(meta.digest(stats).message)
    belief = meta.posterior(meta.digest(stats))
    joint = meta.posterior_joint(meta.digest(stats))
    np.testing.assert_allclose(belief.best_chances(), joint.best_chances(), rtol=1e-4)
    assert belief.best_chance(1) == pytest.approx(joint.best_chance(1), rel=1e-4)
    for name in ("mean", "scale", "variance_ratio"):
        np.testing.assert_allclose(getattr(belief, name), getattr(joint, name), rtol=1e-9)
    if design is None:
        np.testing.assert_allclose(belief.apart.eta_scale, joint.apart.eta_scale, rtol=1e-9)
