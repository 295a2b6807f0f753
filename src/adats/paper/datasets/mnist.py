"""MNIST, and any other set in its format: idx files, with or without .gz."""

import gzip
import math
import zlib
from pathlib import Path

import numpy as np

from adats.models.core.types import AnyPath
from adats.paper.datasets.find import Dataset, DatasetFile, find
from adats.paper.datasets.images import Bytes, ImageData, Split, grey, halves, shrink

SIDE = 7  # 28 × 28 pixels become 7 × 7 = 49 features
MIRROR = "https://ossci-datasets.s3.amazonaws.com/mnist/"


def _file(stem: str, kind: str, md5: str) -> DatasetFile:
    names = [f"{stem}{mark}{kind}{end}" for mark in "-." for end in (".gz", "")]
    return DatasetFile(tuple(names), MIRROR + names[0], md5)


MNIST = Dataset(
    "MNIST",
    "mnist",
    (
        _file("train-images", "idx3-ubyte", "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
        _file("train-labels", "idx1-ubyte", "d53e105ee54ea40749a09fcbcd1e9432"),
    ),
)


def load_mnist(data: AnyPath | None = None, *, download: bool = True) -> ImageData:
    """MNIST's training images in two halves, each averaged to 7 × 7 = 49 features.

    The paper splits the 60,000 into equal halves and does not say how: here images of one class
    go to them in turn. Any number of images, of any size from 7 × 7 and of any labels, will do.
    """
    image_path, label_path = find(MNIST, data, download=download)
    pixels, given = read_idx(image_path, ndim=3), read_idx(label_path, ndim=1)
    if len(pixels) != len(given):
        raise ValueError(
            f"{image_path} has {len(pixels)} images, but {label_path} has {len(given)} labels"
        )
    values, labels, counts = np.unique(given, return_inverse=True, return_counts=True)
    if len(values) < 2 or counts.min() < 2:
        found = ", ".join(f"{v}: {n}" for v, n in zip(values, counts, strict=True)) or "none"
        raise ValueError(
            f"{label_path} must have two classes or more, of two images or more each; "
            f"its labels and their counts are {found}"
        )
    if min(pixels.shape[1:]) < SIDE:
        raise ValueError(f"{image_path}: images must be {SIDE} × {SIDE} or larger")
    images = grey(pixels)
    features = shrink(images, SIDE).reshape(len(images), -1).astype(np.float64)
    train, test = (Split(images[rows], labels[rows], features[rows]) for rows in halves(labels))
    height, width = images.shape[1:]
    note = f"{height} × {width} pixels averaged to {SIDE} × {SIDE} = {features.shape[1]} features"
    return ImageData("mnist", train, test, tuple(map(str, values)), note)


def read_idx(path: Path, *, ndim: int) -> Bytes:
    """The bytes of an idx file, in the shape that its header says."""
    try:
        raw = path.read_bytes()
        if raw[:2] == b"\x1f\x8b":
            raw = gzip.decompress(raw)
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"{path} cannot be read: {error}") from None
    magic = bytes([0, 0, 8, ndim])
    start = 4 + 4 * ndim
    if raw[:4] != magic or len(raw) < start:
        raise ValueError(
            f"{path} must be an idx file of bytes with {ndim} dimensions and start with "
            f"{magic.hex()}, but starts with {raw[:4].hex() or 'nothing'}"
        )
    shape = tuple(int(size) for size in np.frombuffer(raw, ">u4", count=ndim, offset=4))
    if len(raw) - start != math.prod(shape):
        raise ValueError(
            f"{path} must have {math.prod(shape)} bytes after its header, for shape {shape}, "
            f"but has {len(raw) - start}"
        )
    return np.frombuffer(raw, np.uint8, offset=start).reshape(shape)
