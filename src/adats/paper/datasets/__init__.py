"""Images to classify online: MNIST and its like, Omniglot, scikit-learn's digits."""

from adats.models.core.types import AnyPath
from adats.paper.datasets.cnn import Progress
from adats.paper.datasets.digits import load_digits
from adats.paper.datasets.images import ImageData, Split
from adats.paper.datasets.mnist import load_mnist
from adats.paper.datasets.omniglot import load_omniglot

__all__ = ["NAMES", "ImageData", "Split", "load", "load_digits", "load_mnist", "load_omniglot"]

NAMES = ("digits", "mnist", "omniglot")


def load(name: str, data: AnyPath | None = None, *, progress: Progress | None = None) -> ImageData:
    """A dataset by its name; the digits need no folder and no download."""
    if name == "digits":
        return load_digits()
    if name == "mnist":
        return load_mnist(data)
    if name == "omniglot":
        return load_omniglot(data, progress=progress)
    raise ValueError(f"unknown dataset {name!r}; known are {', '.join(NAMES)}")
