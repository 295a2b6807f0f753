"""The network on a few characters for a few steps: it learns, repeats itself and keeps features."""

from pathlib import Path

import numpy as np
import pooch
import pytest

from adats.paper.datasets import load_omniglot
from adats.paper.datasets.characters import read_characters
from adats.paper.datasets.cnn import FEATURES, Training, learn_features

pytestmark = pytest.mark.heavy
SHARED = Path(__file__).parents[3] / "shared" / "data" / "omniglot"
needs_files = pytest.mark.skipif(not SHARED.is_dir(), reason="the files of Omniglot are not here")
SHORT = Training(epochs=8, batch=16)


def made(characters, *, seed, size=28):
    """Ink of characters that are two thick strokes each, where every drawer is a bit off."""
    rng = np.random.default_rng(seed)
    ink = np.zeros((characters, 20, size, size), dtype=np.uint8)
    reach, thick = size // 14, size // 9
    for drawers in ink:
        start = rng.integers(reach, size - reach - thick, size=2)
        for image in drawers:
            down, across = rng.integers(-reach, reach + 1, size=2) + start
            image[down : down + thick, thick:-thick] = 255
            image[thick:-thick, across : across + thick] = 255
    return ink


@pytest.fixture(scope="module")
def background():
    return made(6, seed=1)


@pytest.fixture(scope="module")
def evaluation():
    return made(4, seed=2)


def nearest(features):
    """How many of the second ten drawings are next to the mean of the first ten of their own."""
    means = features[:, :10].mean(axis=1)
    distance = np.linalg.norm(features[:, 10:, None] - means, axis=-1)
    return (distance.argmin(axis=2) == np.arange(len(features))[:, None]).mean()


def test_it_learns_and_says_how_far_it_is(background, evaluation):
    steps = []
    features, accuracy = learn_features(
        background, evaluation, SHORT, progress=lambda *step: steps.append(step)
    )
    batches = 6  # 6 characters of 16 drawers, 16 a batch
    assert steps == [(done, 8 * batches) for done in range(1, 8 * batches + 1)]
    assert features.shape == (4, 20, FEATURES) == (4, 20, 64)
    assert features.dtype == np.float64
    assert (features >= 0).all()
    np.testing.assert_allclose(np.linalg.norm(features, axis=2), 1.0)
    assert accuracy > 0.5  # one in six by chance
    assert accuracy * 24 == pytest.approx(round(accuracy * 24))  # of 6 times 4 held-out drawings
    assert nearest(features) > 0.6  # one in four by chance, for characters never seen before


def test_accuracy_is_that_of_drawers_not_trained_on(background, evaluation):
    swapped = background.copy()
    swapped[:, 16:] = np.roll(background[:, 16:], 1, axis=0)  # held-out drawings under wrong names
    right = learn_features(background, evaluation, SHORT)
    wrong = learn_features(swapped, evaluation, SHORT)
    np.testing.assert_array_equal(wrong[0], right[0])
    assert wrong[1] < 0.4 < right[1]


def test_one_seed_gives_the_same_numbers_and_no_other_is_touched(background, evaluation):
    import torch

    torch.manual_seed(99)
    state, threads = torch.get_rng_state(), torch.get_num_threads()
    once = learn_features(background, evaluation, Training(epochs=1, batch=32))
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.get_num_threads() == threads
    torch.manual_seed(100)
    torch.set_num_threads(threads + 1)
    again = learn_features(background, evaluation, Training(epochs=1, batch=32))
    torch.set_num_threads(threads)
    np.testing.assert_array_equal(once[0], again[0])
    assert once[1] == again[1]
    other = learn_features(background, evaluation, Training(epochs=1, batch=32, seed=2))
    assert (once[0] != other[0]).any()


def test_from_files_to_features_and_from_the_cache_again(tmp_path, monkeypatch):
    monkeypatch.setattr(pooch, "os_cache", lambda project: tmp_path / project)
    for part, seed in (("background", 1), ("evaluation", 2)):
        images = made(3, seed=seed, size=105) == 0
        labels = np.repeat(np.arange(3)[:, None], 20, axis=1)
        np.savez_compressed(tmp_path / f"images_{part}.npz", images=images, labels=labels)
    steps = []
    options = {"training": SHORT, "progress": lambda *step: steps.append(step)}
    first = load_omniglot(tmp_path, **options)
    assert len(steps) == 24
    second = load_omniglot(tmp_path, **options)
    assert len(steps) == 24
    assert first.note == second.note
    np.testing.assert_array_equal(first.train.features, second.train.features)
    assert first.train.features.shape == first.test.features.shape == (30, 64)
    assert np.isfinite(first.test.features).all()


@needs_files
def test_a_few_real_characters():
    ink = read_characters(SHARED / "official-small" / "images_background_small1.zip").ink
    features, accuracy = learn_features(ink[:12], ink[-12:], Training(epochs=15, batch=16))
    assert accuracy > 0.4  # one in twelve by chance
    assert nearest(features) > 0.4
