"""Draws for many tasks at once have the law of those for one: from a stream, and from keys."""

import numpy as np
import pytest

from adats.models.core.draws import KeyedDraws, StreamDraws, mixed
from adats.models.core.many import add_to_rows, same_rows
from adats.models.latent.meta import LatentMeta
from cases import ALL, gaussian, latent, linear

DRAWS, SINGLE = 6000, 1500
WIDE = np.array([[0.5, 0.2, 0.0], [0.2, 0.3, 0.1], [0.0, 0.1, 0.4]])
METAS = {
    "gaussian": gaussian(),
    "linear": linear(),
    "linear design": linear(task_cov=0.3, design=np.array([[1.0, 0.0, 1.0], [0.0, 1.0, 0.5]])),
    "clicks": latent(),
    "level": LatentMeta([-1.0, 0.0, -0.5], 0.02, task_scale=0.1, level_scale=0.7),
    "full": LatentMeta([-1.0, 0.0, 0.5], 0.02, task_cov=3 * WIDE),
    "design": LatentMeta(
        [-1.0, 0.3], 0.7, task_scale=[0.2, 0.8], design=[[1.0, 0.0], [1.0, 1.0], [0.0, 1.0]]
    ),
    "events": LatentMeta([0.5, 0.0], 0.3, task_scale=0.3, level_scale=0.3, rewards="count"),
    **{name: ALL[name].meta for name in ("beta", "beta arms", "poisson", "normal", "models")},
    "linear models": ALL["linear models"].meta,
}


def told(meta):
    """The meta-belief after two tasks, and the row and the digest of one."""
    rng = np.random.default_rng(3)
    digests = []
    for pulls in (30, 9):
        stats = meta.empty()
        for _ in range(pulls):
            arm = int(rng.integers(meta.n_arms)) if meta.n_arms else rng.normal(size=stats.xy.size)
            stats = stats.add(arm, float(rng.integers(2)))
        digests.append(meta.digest(stats))
        meta = meta.absorb(digests[-1].message)
    return meta, digests[0]


@pytest.mark.statistical
@pytest.mark.parametrize("keyed", [True, False])
@pytest.mark.parametrize("name", METAS)
def test_draws_at_once_have_the_law_of_single_draws(name, keyed):
    """Means, and products of any two coordinates."""
    meta, digest = told(METAS[name])
    belief = meta.posterior_many(meta.digest_many(np.tile(meta.row_of(digest.stats), (DRAWS, 1))))
    keys = mixed(np.arange(1, DRAWS + 1, dtype=np.uint64))
    rng = KeyedDraws(keys) if keyed else StreamDraws(np.random.default_rng(5))
    many = belief.sample(rng)
    one, stream = meta.posterior(digest), np.random.default_rng(6)
    single = np.array([one.sample(stream) for _ in range(SINGLE)])
    assert many.shape == (DRAWS, single.shape[1])
    pairs = np.triu_indices(single.shape[1])
    centred = [x - one.mean for x in (many, single)]
    for law in (lambda x: x, lambda x: x[:, pairs[0]] * x[:, pairs[1]]):
        left, right = map(law, centred)
        error = np.sqrt(left.var(axis=0) / DRAWS + right.var(axis=0) / SINGLE)
        assert (np.abs(left.mean(axis=0) - right.mean(axis=0)) <= 4.5 * error + 1e-12).all()
    assert (np.abs(many.mean(axis=0) - one.mean) <= 4.5 * one.scale / np.sqrt(DRAWS) + 1e-12).all()


def test_keyed_draws_are_those_of_the_key_alone():
    keys = mixed(np.arange(50, dtype=np.uint64))
    whole, part = KeyedDraws(keys), KeyedDraws(keys[[7, 3]])
    for shape in ((2,), (4, 3)):
        np.testing.assert_array_equal(whole.random((50, *shape))[[7, 3]], part.random((2, *shape)))
    index = np.array([7, 3])
    np.testing.assert_array_equal(whole.take(index).random(2), part.take(np.arange(2)).random(2))
    np.testing.assert_array_equal(whole.generator(3).random(4), part.generator(1).random(4))
    assert 0 < whole.random((50, 1000)).min() < whole.random((50, 1000)).max() < 1


def test_rows_are_added_where_they_belong_and_same_ones_are_found():
    rng = np.random.default_rng(1)
    rows, at, more = rng.normal(size=(6, 3)), rng.integers(6, size=40), rng.normal(size=(40, 3))
    expected = rows.copy()
    np.add.at(expected, at, more)
    add_to_rows(rows, at, more)
    np.testing.assert_allclose(rows, expected, rtol=1e-12)
    add_to_rows(rows, at[:0], more[:0])
    np.testing.assert_allclose(rows, expected, rtol=1e-12)
    few = np.array([[0.0, 1.0], [2.0, 3.0], [-0.0, 1.0], [2.0, 3.0], [0.0, 1.5]])
    found, place = same_rows(few)
    assert len(found) == 3
    np.testing.assert_array_equal(found[place], few)
