"""Omniglot: characters by their drawers, with features that a network learned elsewhere."""

import hashlib
import os

import numpy as np

from adats.models.core import files
from adats.models.core.types import AnyPath, FloatArray
from adats.paper.datasets.characters import DRAWERS, read_characters
from adats.paper.datasets.cnn import RECIPE, TRAINING, Progress, Training, learn_features
from adats.paper.datasets.find import Dataset, DatasetFile, cache_folder, find
from adats.paper.datasets.images import Bytes, ImageData, Split, grey

GITHUB = "https://raw.githubusercontent.com/brendenlake/omniglot/master/python/"
KIND = "adats-features"


def _file(name: str, md5: str) -> DatasetFile:
    return DatasetFile((f"{name}.zip", name, f"{name}.npz"), f"{GITHUB}{name}.zip", md5)


OMNIGLOT = Dataset(
    "Omniglot",
    "omniglot",
    (
        _file("images_background", "68d2efa1b9178cc56df9314c21c6e718"),
        _file("images_evaluation", "6b91aef0f799c5bb55b94e3f2daec811"),
    ),
)


def load_omniglot(
    data: AnyPath | None = None,
    *,
    download: bool = True,
    training: Training = TRAINING,
    progress: Progress | None = None,
) -> ImageData:
    """The evaluation alphabets, with 64 features that a CNN learned on the background alphabets.

    Drawers 1 to 10 of each character are one half, 11 to 20 the other. The features are kept in
    the cache by a hash of the training and the images; where they have to be learned first, which
    takes minutes, `progress` gets the batches done and the number of all.
    """
    paths = find(OMNIGLOT, data, download=download)
    background, evaluation = map(read_characters, paths)
    features, accuracy = _features(background.ink, evaluation.ink, training, progress)
    images = grey(evaluation.ink)
    labels = np.repeat(np.arange(len(images)), DRAWERS // 2)

    def half(drawers: slice) -> Split:
        pixels, rows = images[:, drawers], features[:, drawers]
        return Split(pixels.reshape(-1, *pixels.shape[2:]), labels, rows.reshape(-1, rows.shape[2]))

    train, test = half(slice(0, DRAWERS // 2)), half(slice(DRAWERS // 2, DRAWERS))
    note = (
        f"{features.shape[2]} features of a 4-layer CNN that learned {len(background.names)} other "
        f"characters and tells {100 * accuracy:.1f} % of them right for held-out drawers"
    )
    return ImageData("omniglot", train, test, evaluation.names, note)


def _features(
    background: Bytes, evaluation: Bytes, training: Training, progress: Progress | None
) -> tuple[FloatArray, float]:
    """Features and accuracy, from the cache or learned and put there."""
    digest = hashlib.sha256(repr((RECIPE, training)).encode())
    for ink in (background, evaluation):
        digest.update(repr(ink.shape).encode() + ink.tobytes())
    path = cache_folder() / OMNIGLOT.folder / f"features-{digest.hexdigest()[:16]}.npz"
    if path.exists():
        header, arrays = files.read_npz(path, KIND)
        return arrays["features"], header["accuracy"]
    path.parent.mkdir(parents=True, exist_ok=True)
    if not os.access(path.parent, os.W_OK):
        raise ValueError(f"the features are kept in {path.parent}, which cannot be written to")
    features, accuracy = learn_features(background, evaluation, training, progress=progress)
    files.write_npz(path, KIND, {"accuracy": accuracy}, {"features": features})
    return features, accuracy
