"""What every dataset becomes: two halves of images, with labels and features."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from adats.models.core.types import FloatArray, IntArray

Images = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class Split:
    """Images with their labels and features, one a row."""

    images: Images  # (N, height, width), from 0 for paper to 1 for ink
    labels: IntArray  # (N,), indices of classes
    features: FloatArray  # (N, d)

    def __post_init__(self) -> None:
        shapes = (self.images.shape, self.labels.shape, self.features.shape)
        if tuple(map(len, shapes)) != (3, 1, 2) or len({shape[0] for shape in shapes}) != 1:
            raise ValueError(
                "images, labels and features must have shapes (N, height, width), (N,) and (N, d) "
                f"of one N, got {shapes[0]}, {shapes[1]} and {shapes[2]}"
            )


@dataclass(frozen=True, eq=False)
class ImageData:
    """A dataset in halves: priors are estimated from `train`, and `test` is played."""

    name: str
    train: Split
    test: Split
    classes: tuple[str, ...]  # the name of each label
    note: str  # what the features are


def grey(pixels: Bytes) -> Images:
    """Pixels from 0 to 255 as images from 0 to 1."""
    return pixels.astype(np.float32) / np.float32(255)


def halves(labels: IntArray) -> tuple[IntArray, IntArray]:
    """Rows of the two halves: images of one class go to them in turn.

    The halves differ by at most one image, in all and in each class, in whatever order the images
    come, and no random numbers are needed.
    """
    order = np.argsort(labels, kind="stable")
    return np.sort(order[0::2]), np.sort(order[1::2])


def shrink(images: Images, size: int) -> Images:
    """Images averaged to `size` × `size`: every new pixel is the mean of the area it covers."""
    rows, columns = (_averages(old, size) for old in images.shape[-2:])
    small: Images = rows @ (images @ columns.T)
    return small


def _averages(old: int, new: int) -> Images:
    """The (new, old) matrix that averages; its rows sum to one."""
    if old < new:
        raise ValueError(f"images must be at least {new} × {new}, got {old} pixels on one side")
    edges = np.arange(new + 1) * old / new
    pixels = np.arange(old)
    right = np.minimum(edges[1:, None], pixels + 1)
    left = np.maximum(edges[:-1, None], pixels)
    overlap = np.maximum(right - left, 0.0) * new / old
    weights: Images = overlap.astype(np.float32)
    return weights
