"""MNIST's format, the digits, and what all datasets share: real files where they are, made ones."""

import gzip
import hashlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adats.paper import datasets
from adats.paper.datasets import ImageData, Split, load, load_digits, load_mnist
from adats.paper.datasets.images import grey, halves, shrink
from adats.paper.datasets.mnist import MNIST, read_idx
from images import idx, write_set

SHARED = Path(__file__).parents[3] / "shared" / "data" / "mnist"
needs_files = pytest.mark.skipif(not SHARED.is_dir(), reason="the files of MNIST are not here")
COUNTS = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]


@pytest.fixture
def small():
    rng = np.random.default_rng(5)
    labels = rng.permutation(np.repeat([2, 7, 9], [6, 7, 8]))
    return rng.integers(256, size=(21, 28, 28), dtype=np.uint8), labels


# MNIST's format


@needs_files
def test_the_real_mnist_is_what_it_is_known_to_be():
    data = load_mnist(SHARED)
    assert data.name == "mnist"
    assert data.classes == tuple("0123456789")
    assert "7 × 7 = 49" in data.note
    for half in (data.train, data.test):
        assert half.images.shape == (30000, 28, 28)
        assert half.features.shape == (30000, 49)
        assert half.features.dtype == np.float64
        np.testing.assert_allclose(half.images.mean(dtype=float), 0.13066, atol=0.001)
        np.testing.assert_allclose(half.images.std(dtype=float), 0.30811, atol=0.001)
        assert np.abs(2 * np.bincount(half.labels) - COUNTS).max() <= 1
    np.testing.assert_array_equal(
        np.bincount(data.train.labels) + np.bincount(data.test.labels), COUNTS
    )
    both = data.train.images.mean(dtype=float) / 2 + data.test.images.mean(dtype=float) / 2
    assert abs(both - 0.13066) < 5e-6  # each image is in one of the halves
    blocks = data.test.images[:500].reshape(500, 7, 4, 7, 4).mean(axis=(2, 4), dtype=float)
    np.testing.assert_allclose(data.test.features[:500], blocks.reshape(500, 49), atol=1e-6)
    ones = data.train.images[data.train.labels == 1].mean(axis=0)
    assert ones[14, 14] > 0.8  # a stroke through the middle, and ink is high
    assert ones[:, :3].max() < 0.02


@needs_files
def test_checksums_are_those_of_the_real_files():
    for part in MNIST.files:
        assert hashlib.md5((SHARED / part.names[0]).read_bytes()).hexdigest() == part.md5


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("mark", ["-", "."])
def test_made_files_under_every_name(tmp_path, small, mark, packed):
    images, labels = small
    data = load_mnist(write_set(tmp_path, images, labels, mark=mark, packed=packed))
    assert data.classes == ("2", "7", "9")
    assert len(data.train.labels) == 11
    assert len(data.test.labels) == 10
    seen = []
    for half in (data.train, data.test):
        assert half.images.dtype == np.float32
        pixels = np.rint(half.images * 255).astype(np.uint8)
        for pixel, label, row in zip(pixels, half.labels, half.features, strict=True):
            (where,) = np.flatnonzero((images == pixel).all(axis=(1, 2)))
            assert str(labels[where]) == data.classes[label]
            mean = images[where].reshape(7, 4, 7, 4).mean(axis=(1, 3)) / 255
            np.testing.assert_allclose(row, mean.ravel(), atol=1e-6)
            seen.append(where)
    assert sorted(seen) == list(range(21))


def test_another_size_and_other_labels_need_no_special_case(tmp_path):
    images = np.arange(8 * 9 * 12, dtype=np.uint8).reshape(8, 9, 12)
    data = load_mnist(write_set(tmp_path, images, [200, 0, 200, 0, 33, 33, 33, 0]))
    assert data.classes == ("0", "33", "200")
    assert data.train.features.shape == data.test.features.shape == (4, 49)
    assert "9 × 12" in data.note
    np.testing.assert_allclose(
        data.train.features.mean(axis=1), data.train.images.mean(axis=(1, 2)), atol=1e-6
    )


def test_a_set_sorted_by_class_still_has_all_classes_in_both_halves(tmp_path, small):
    images, labels = small
    data = load_mnist(write_set(tmp_path, images, np.sort(labels)))
    assert set(data.train.labels) == set(data.test.labels) == {0, 1, 2}


@given(
    st.lists(st.integers(0, 255), min_size=0, max_size=24),
    st.sampled_from([(24,), (2, 12), (2, 3, 4)]),
)
def test_idx_round_trip(tmp_path_factory, values, shape):
    path = tmp_path_factory.mktemp("idx") / "file"
    array = np.resize(np.array([*values, 0], dtype=np.uint8), shape)
    path.write_bytes(idx(array))
    np.testing.assert_array_equal(read_idx(path, ndim=len(shape)), array)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda raw: gzip.compress(raw)[:-20], "cannot be read"),
        (lambda raw: gzip.compress(raw)[:10], "cannot be read"),
        (lambda raw: raw[:-1], "16464 bytes after its header.*but has 16463"),
        (lambda raw: raw + b"x", "but has 16465"),
        (lambda raw: raw[:15], "must be an idx file"),
        (lambda _: b"", "starts with nothing"),
        (lambda raw: b"\0\0\x0d\3" + raw[4:], "start with 00000803, but starts with 00000d03"),
        (lambda _: idx([1, 2, 3]), "3 dimensions .* but starts with 00000801"),
        (lambda _: idx(np.zeros((20, 28, 28))), "has 20 images, but .* has 21 labels"),
        (lambda _: idx(np.zeros((21, 28, 6))), "7 × 7 or larger"),
    ],
    ids=["cut", "header", "short", "long", "stub", "empty", "type", "labels", "count", "tiny"],
)
def test_a_bad_file_of_images_is_named(tmp_path, small, damage, words):
    images, labels = small
    write_set(tmp_path, images, labels, packed=False)
    path = tmp_path / "train-images-idx3-ubyte"
    path.write_bytes(damage(idx(images)))
    with pytest.raises(ValueError, match=words) as error:
        load_mnist(tmp_path)
    assert str(path) in str(error.value)


@pytest.mark.parametrize(
    ("labels", "words"),
    [([3] * 21, "two classes or more.* 3: 21"), ([3] * 20 + [4], "two images or more.*4: 1")],
)
def test_labels_that_make_no_classes(tmp_path, small, labels, words):
    with pytest.raises(ValueError, match=words) as error:
        load_mnist(write_set(tmp_path, small[0], labels))
    assert "train-labels" in str(error.value)


def test_flipped_and_lost_bytes_never_give_another_error(tmp_path, small):
    rng = np.random.default_rng(8)
    whole = gzip.compress(idx(small[1]))
    path = tmp_path / "train-labels-idx1-ubyte.gz"
    messages = []
    for _ in range(300):
        raw = bytearray(whole[: rng.integers(len(whole)) if rng.random() < 0.2 else None])
        if raw:
            raw[rng.integers(len(raw))] ^= int(rng.integers(1, 256))
        path.write_bytes(raw)
        try:
            read_idx(path, ndim=1)
        except ValueError as error:
            messages.append(str(error))
    assert len(messages) > 200
    assert all(str(path) in message for message in messages)


# digits


def test_digits_are_complete_and_in_halves():
    data = load_digits()
    assert data.classes == tuple("0123456789")
    assert [len(half.labels) for half in (data.train, data.test)] == [899, 898]
    counts = [np.bincount(half.labels) for half in (data.train, data.test)]
    assert np.abs(counts[0] - counts[1]).max() <= 1
    for half in (data.train, data.test):
        assert half.features.shape[1] == 64
        assert half.features.min() == 0
        assert half.features.max() == 1
        np.testing.assert_array_equal(half.features, half.images.reshape(-1, 64))
    zeros = data.train.images[data.train.labels == 0].mean(axis=0)
    assert zeros[3:5, 3:5].max() < 0.2 < 0.5 < zeros[3, 2]  # a ring of ink


def test_digits_without_scikit_learn(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(ValueError, match=r"scikit-learn.*pip install 'adats\[data\]'"):
        load_digits()


# all


def test_load_by_name(tmp_path, small):
    assert load("digits").name == "digits"
    assert load("mnist", write_set(tmp_path, *small)).classes == ("2", "7", "9")
    with pytest.raises(ValueError, match="unknown dataset 'emnist'") as error:
        load("emnist")
    assert all(name in str(error.value) for name in datasets.NAMES)


def test_importing_loads_nothing_heavy():
    code = "import sys, adats.paper.datasets; print(*sys.modules)"
    command = [sys.executable, "-W", "error", "-c", code]
    modules = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert not {"torch", "sklearn", "pooch", "PIL", "requests"} & set(modules)


@given(st.lists(st.integers(0, 4), max_size=60))
def test_halves_share_every_class(labels):
    labels = np.array(labels, dtype=np.intp)
    first, second = halves(labels)
    assert sorted([*first, *second]) == list(range(len(labels)))
    assert 0 <= len(first) - len(second) <= 1
    assert (np.diff(first) > 0).all()
    for label in range(5):
        assert abs((labels[first] == label).sum() - (labels[second] == label).sum()) <= 1


@given(st.integers(7, 40), st.integers(7, 40), st.integers(1, 7), st.integers(0, 99))
def test_shrinking_is_the_mean_over_areas(height, width, size, seed):
    images = np.random.default_rng(seed).random((2, height, width)).astype(np.float32)
    small = shrink(images, size)
    assert small.shape == (2, size, size)
    # brute force: every pixel repeated size times both ways, so that areas are whole blocks
    fine = images.repeat(size, axis=1).repeat(size, axis=2).astype(float)
    blocks = fine.reshape(2, size, height, size, width).mean(axis=(2, 4))
    np.testing.assert_allclose(small, blocks, atol=1e-6)


def test_images_do_not_grow():
    with pytest.raises(ValueError, match="at least 7 × 7, got 6 pixels"):
        shrink(np.zeros((1, 28, 6), dtype=np.float32), 7)


def test_grey_is_exact_at_both_ends():
    np.testing.assert_array_equal(
        grey(np.array([0, 51, 255], dtype=np.uint8)), [0, np.float32(0.2), 1]
    )


def test_a_split_must_fit_together():
    images, labels, features = np.zeros((3, 2, 2)), np.zeros(3, int), np.zeros((3, 4))
    split = Split(images, labels, features)
    assert ImageData("mine", split, split, ("a",), "").train is split
    for wrong in (
        (images, labels[:2], features),
        (images, labels, features[1:]),
        (images[0], labels, features),
        (images, features, features),
    ):
        with pytest.raises(ValueError, match="of one N, got"):
            Split(*wrong)
